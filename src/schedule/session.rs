//! Requests that wait for others: turns of a conversation, tool calls, sub-agents, closed loops.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::clock::{NEVER, Ps};
use super::request::NONE;

/// Who waits for whom, and for how long after.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sessions {
    /// Parents that are not done, by request; empty while nobody waits for anybody.
    waits: Vec<u32>,
    /// From the end of the last parent to the request [ps].
    think_ps: Vec<Ps>,
    /// First edge to a child, by request.
    first: Vec<u32>,
    /// (child, next edge of the same parent).
    edges: Vec<(u32, u32)>,
    /// Requests whose parents are done: (arrival, request).
    released: BinaryHeap<Reverse<(Ps, u32)>>,
    /// Most requests in flight; 0: any number.
    pub(crate) most: u64,
    pub(crate) in_flight: u64,
    /// Requests that have arrived and wait for one in flight to end.
    pub(crate) backlog: VecDeque<u32>,
}

impl Sessions {
    /// Lets the request `row` wait for `parents`, all of them earlier rows.
    pub(crate) fn follow(&mut self, row: u32, parents: &[u32], think_ps: Ps) {
        let rows = row as usize + 1;
        self.waits.resize(rows, 0);
        self.think_ps.resize(rows, 0);
        self.first.resize(rows, NONE);
        self.think_ps[row as usize] = think_ps;
        self.waits[row as usize] = u32::try_from(parents.len()).expect("rows are below 2^32");
        for &parent in parents {
            let edge = u32::try_from(self.edges.len()).expect("bounded by the caller");
            let first = std::mem::replace(&mut self.first[parent as usize], edge);
            self.edges.push((row, first));
        }
    }

    /// Whether anybody waits for anybody, or for room.
    pub(crate) fn in_use(&self) -> bool {
        self.most > 0 || !self.edges.is_empty()
    }

    pub(crate) fn edges(&self) -> usize {
        self.edges.len()
    }

    /// Whether `row` comes when its parents are done, and not by itself.
    pub(crate) fn is_follower(&self, row: usize) -> bool {
        self.waits.get(row).is_some_and(|&waits| waits > 0)
    }

    /// Counts the end of `row` at `at`: who waited for it alone comes after thinking, but not before
    /// its own `earliest` time.
    pub(crate) fn end(&mut self, row: u32, at: Ps, earliest: impl Fn(u32) -> Ps) {
        let mut edge = self.first.get(row as usize).copied().unwrap_or(NONE);
        while edge != NONE {
            let (child, next) = self.edges[edge as usize];
            self.waits[child as usize] -= 1;
            if self.waits[child as usize] == 0 {
                // Still a follower: it does not come by itself.
                self.waits[child as usize] = NONE;
                let comes = at.saturating_add(self.think_ps[child as usize]).min(NEVER / 2);
                self.released.push(Reverse((comes.max(earliest(child)), child)));
            }
            edge = next;
        }
    }

    /// Requests that wait for `row`.
    pub(crate) fn children(&self, row: u32) -> Vec<u32> {
        let mut children = Vec::new();
        let mut edge = self.first.get(row as usize).copied().unwrap_or(NONE);
        while edge != NONE {
            children.push(self.edges[edge as usize].0);
            edge = self.edges[edge as usize].1;
        }
        children
    }

    /// The next request that comes because its parents are done.
    pub(crate) fn next(&self) -> (Ps, u32) {
        self.released.peek().map_or((NEVER, NONE), |&Reverse(next)| next)
    }

    pub(crate) fn pop(&mut self) {
        self.released.pop();
    }

    /// Whether one more request may be in flight.
    pub(crate) fn has_room(&self) -> bool {
        self.most == 0 || self.in_flight < self.most
    }
}
