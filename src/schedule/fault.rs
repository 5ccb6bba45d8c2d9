//! What breaks and when: servers, parts of servers, links.
//!
//! | fault | what it does |
//! |---|---|
//! | [`Trouble::Down`] | the step under way is lost, and every KV cache and cached prefix on the replica; its requests are routed anew; it comes back empty |
//! | [`Trouble::Slow`] | steps that begin meanwhile cost what another table says: an optical server with an engine less |
//! | [`Trouble::LinkDown`] | pulls into the replica stand still |
//! | [`Trouble::LinkSlow`] | pulls that begin meanwhile take longer |

use std::sync::Arc;

use super::clock::{NEVER, Ps};
use super::steps::StepTable;

/// What is wrong with a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// It is gone, with everything in its memory.
    Down,
    /// Its steps cost this.
    Slow(Arc<StepTable>),
    /// Nothing passes its link.
    LinkDown,
    /// Its link takes this much longer, in 1/1024.
    LinkSlow(u64),
}

/// A replica in trouble from one time to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The replica, counted over all pools.
    pub replica: u32,
    /// It begins [ps].
    pub from_ps: Ps,
    /// It is over [ps].
    pub until_ps: Ps,
    /// What it is.
    pub trouble: Trouble,
}

/// The begins and ends of all faults, in order of time; of equal times in order of adding.
#[derive(Debug, Clone)]
pub(crate) struct Faults {
    /// When the next fault begins or ends, [`NEVER`] when none does.
    pub(crate) next: Ps,
    all: Vec<Fault>,
    /// (time, fault, whether it begins).
    turns: Vec<(Ps, usize, bool)>,
    done: usize,
}

impl Default for Faults {
    fn default() -> Self {
        Self { next: NEVER, all: Vec::new(), turns: Vec::new(), done: 0 }
    }
}

impl Faults {
    pub(crate) fn add(&mut self, fault: Fault) {
        let (number, from, until) = (self.all.len(), fault.from_ps, fault.until_ps);
        self.all.push(fault);
        self.turns.extend([(from, number, true), (until, number, false)]);
        self.turns[self.done..].sort_by_key(|&(at, number, begins)| (at, number, !begins));
        self.next = self.turns[self.done].0;
    }

    /// The next begin (`true`) or end.
    pub(crate) fn pop(&mut self) -> Option<(Fault, bool)> {
        let &(_, number, begins) = self.turns.get(self.done)?;
        self.done += 1;
        self.next = self.turns.get(self.done).map_or(NEVER, |&(at, ..)| at);
        Some((self.all[number].clone(), begins))
    }
}
