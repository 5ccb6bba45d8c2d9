//! What a failure leaves of a replica and of the requests on it.

use super::price::{run_ps, steps_to_reach};
use super::{Around, Doing, Replica};
use crate::schedule::clock::Ps;
use crate::schedule::fleet::FleetSpec;
use crate::schedule::request::State;

impl Replica {
    pub(crate) fn is_up(&self) -> bool {
        self.doing != Doing::Failed
    }

    /// Ends what is under way at `now`, in the middle of a step: whole steps count, the rest does
    /// not.
    pub(crate) fn abort(&mut self, now: Ps, around: &mut Around<'_>) {
        match self.doing {
            Doing::Nothing | Doing::Holding | Doing::Failed => self.stopped_ps = now,
            Doing::Step { start, .. } => self.stopped_ps = start,
            Doing::Run { start, first, growth, steps } => {
                let done = (steps_to_reach(now - start + 1, first, growth) - 1).min(steps);
                self.stopped_ps = start + run_ps(first, growth, done);
                if done > 0 {
                    self.doing = Doing::Run { start, first, growth, steps: done };
                    self.end(self.stopped_ps, around);
                    if self.stopped_ps < now {
                        // The step that was under way had its blocks.
                        self.take(self.decode_blocks(), around.counters, around.fleet);
                    }
                }
            }
        }
        if !self.prompts_alone {
            self.last_decode = self.stopped_ps;
        }
    }

    /// Lets `r`, which is here, be as if it had never been admitted.
    pub(crate) fn lose(&mut self, r: u32, around: &mut Around<'_>) {
        if around.requests[r].state == State::Decoding {
            around.requests[r].generated = self.generated(r, around.requests);
            if !self.joined.contains(&r) {
                around.requests[r].paused_ps = self.last_decode;
            }
        }
        around.counters.lost_tok += self.computed(r, around.requests);
        self.forget(r, around);
    }

    /// Lets `r` use no cached unit here.
    pub(crate) fn forget(&self, r: u32, around: &mut Around<'_>) {
        let side = self.side(around.fleet);
        let range = around.requests.unit_range(r);
        for users in &mut around.requests.unit_users[range] {
            *users &= !side;
        }
    }

    /// Forgets everything that was here.
    pub(crate) fn empty(&mut self, fleet: &FleetSpec) -> u64 {
        let spec = &fleet.pools[self.pool];
        let held = spec.kv_blocks - self.free;
        let fresh = Self::new(self.pool, spec, fleet.block_tok);
        let old = std::mem::replace(self, fresh);
        (self.troubles, self.link_1024) = (old.troubles, old.link_1024);
        self.link_free = old.link_free;
        self.doing = Doing::Failed;
        held
    }

    /// One trouble less; the last of them leaves it up and idle.
    pub(crate) fn repair(&mut self) {
        self.troubles -= 1;
        if self.troubles == 0 {
            self.doing = Doing::Nothing;
        }
    }

    /// Takes `r`, whose KV cache will not come, out of the queue or out of what is on its way.
    pub(crate) fn turn_away(&mut self, r: u32, around: &mut Around<'_>) {
        if around.requests[r].state == State::Pulling {
            self.coming -= 1;
            let computed = around.requests[r].computed.unsigned_abs();
            self.release(r, computed, around.requests, around.counters, around.fleet);
        } else {
            self.waiting.retain(|&waits| waits != r);
        }
        self.load -= 1;
        self.context_tok -= u64::from(around.requests[r].isl_tok);
    }

    /// Lets the link stand still from `now` to `until`.
    pub(crate) fn hold_link(&mut self, now: Ps, until: Ps) {
        self.link_free = self.link_free.max(now) + (until - now);
    }
}
