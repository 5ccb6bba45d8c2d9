//! Failures of a fleet: what is lost, and where its requests go.

use std::cmp::Reverse;
use std::sync::Arc;

use super::clock::Ps;
use super::engine::{Engine, to_u32};
use super::fault::Trouble;
use super::request::{NONE, State};
use super::router;
use super::steps::index;
use super::timeline::Segment;

impl Engine {
    /// Begins or ends the next fault.
    #[inline(never)]
    pub(super) fn turn_fault(&mut self, at: Ps) {
        self.events += 1;
        let Some((fault, begins)) = self.faults.pop() else { return };
        let i = fault.replica as usize;
        match fault.trouble {
            Trouble::Down if begins => {
                self.replicas[i].troubles += 1;
                if self.replicas[i].troubles == 1 {
                    self.fail(i, at);
                }
            }
            Trouble::Down => {
                self.replicas[i].repair();
                self.touch(i);
                for r in std::mem::take(&mut self.stranded) {
                    self.place(r, at);
                }
            }
            Trouble::Slow(table) => {
                let pool = &self.fleet.pools[self.replicas[i].pool];
                let table = if begins { table } else { Arc::clone(&pool.table) };
                self.new_tables.retain(|&(other, _)| other != i);
                self.new_tables.push((i, table));
                if let Some(end) = self.replicas[i].cut_at(at) {
                    self.next.set(i, end);
                }
                self.touch(i);
            }
            Trouble::LinkDown if begins => self.hold_link(i, at, fault.until_ps),
            Trouble::LinkDown => {}
            Trouble::LinkSlow(slower) => {
                self.replicas[i].link_1024 = if begins { slower } else { 1024 };
            }
        }
    }

    fn hold_link(&mut self, i: usize, at: Ps, until: Ps) {
        self.replicas[i].hold_link(at, until);
        let pulls = std::mem::take(&mut self.pulls);
        let requests = &self.requests;
        self.pulls = pulls
            .into_iter()
            .map(|Reverse((end, r))| {
                let held = requests[r].state == State::Pulling && requests[r].replica as usize == i;
                Reverse((if held { end + (until - at) } else { end }, r))
            })
            .collect();
    }

    /// Replica `i` is lost: so is the step under way and everything in its memory.
    fn fail(&mut self, i: usize, at: Ps) {
        self.abort(i, at);
        self.next.set(i, super::clock::NEVER);
        let affected = |r: u32| {
            let live = &self.requests[r];
            let source = matches!(live.state, State::Handed | State::Pulling);
            let over = matches!(live.state, State::Done | State::Rejected);
            !over && (live.replica as usize == i || source && live.holder as usize == i)
        };
        let affected: Vec<u32> =
            (0..to_u32(self.requests.len())).filter(|&r| affected(r)).collect();
        let pulls = std::mem::take(&mut self.pulls);
        let stays = |&Reverse((_, r)): &Reverse<(Ps, u32)>| affected.binary_search(&r).is_err();
        self.pulls = pulls.into_iter().filter(stays).collect();
        // Handed over before, without a replica to go to: now without a KV cache either.
        self.stranded.retain(|r| affected.binary_search(r).is_err());
        for &r in &affected {
            self.uproot(i, r, at);
        }
        let freed = self.replicas[i].empty(&self.fleet);
        let counters = &mut self.counters[self.replicas[i].pool];
        counters.blocks_freed += freed;
        counters.rerouted += affected.len() as u64;
        for r in affected {
            self.place(r, at);
        }
    }

    /// Takes `r` from where it is, with what survives the loss of replica `i`.
    fn uproot(&mut self, i: usize, r: u32, at: Ps) {
        let live = self.requests[r];
        let in_transit = matches!(live.state, State::Handed | State::Pulling);
        let survives = in_transit && live.holder as usize != i;
        let (failed, mut around) = self.split(i);
        if live.replica as usize == i {
            let lost = around.counters.lost_tok;
            failed.lose(r, &mut around);
            if survives {
                around.counters.lost_tok = lost;
            }
        } else {
            around.counters.lost_tok += live.computed.unsigned_abs();
            failed.forget(r, &mut around);
            if live.replica != NONE {
                let d = live.replica as usize;
                let (decode, mut around) = self.split(d);
                decode.turn_away(r, &mut around);
                // There may be room now for whoever waits there.
                if let Some(end) = decode.cut_at(at) {
                    self.next.set(d, end);
                }
                self.touch(d);
            }
        }
        let live = &mut self.requests[r];
        live.replica = NONE;
        live.charged_tok = 0;
        if survives {
            live.state = State::Handed;
            return;
        }
        if live.state != State::Queued {
            live.preemptions = live.preemptions.saturating_add(1);
        }
        live.state = State::Queued;
        live.computed = 0;
    }

    /// Books `r` on a replica that is up, or keeps it until one is.
    ///
    /// A request with a token out is computed again where it decodes.
    pub(super) fn place(&mut self, r: u32, at: Ps) {
        let live = &self.requests[r];
        let decodes = live.state == State::Handed || live.generated > 0;
        let chosen = if decodes && !self.decode.is_empty() {
            let range = self.decode.clone();
            let routing = self.fleet.routing;
            router::decode(&mut self.replicas, range, &mut self.turns, routing).map(|d| (d, 0))
        } else {
            self.route(r, at)
        };
        match chosen {
            Some((i, charged)) => {
                self.assign(i, r, charged);
                self.enqueue(i, r, at);
            }
            None => self.stranded.push(r),
        }
    }

    /// Lets the step that replica `i` begins now cost what it is to cost from now on.
    #[cold]
    pub(super) fn turn_table(&mut self, i: usize) {
        if let Some(at) = self.new_tables.iter().position(|&(other, _)| other == i) {
            self.costs[i].table = self.new_tables.swap_remove(at).1;
        }
    }

    /// Ends what replica `i` does in the middle of a step, and notes the whole steps.
    fn abort(&mut self, i: usize, at: Ps) {
        let before = self.counters[self.replicas[i].pool];
        let start_ps = self.replicas[i].started().unwrap_or(at);
        let (replica, mut around) = self.split(i);
        replica.abort(at, &mut around);
        let end_ps = replica.stopped_ps;
        self.tell(at);
        let now = &self.counters[self.replicas[i].pool];
        let steps = now.steps - before.steps;
        if steps > 0
            && let Some(timeline) = &mut self.timeline
        {
            timeline.push(Segment {
                replica: to_u32(index(i as u64)),
                start_ps,
                end_ps,
                steps,
                prompt_tok: 0,
                decode_seqs: (now.decode_tok - before.decode_tok) / steps,
                pj: now.compute_pj() - before.compute_pj(),
            });
        }
    }
}
