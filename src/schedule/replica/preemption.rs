//! Who is thrown out when blocks run out, and what becomes of them.

use super::{Around, Replica};
use crate::schedule::clock::Ps;
use crate::schedule::request::{NONE, Requests, State};

impl Replica {
    /// Throws `r` out of the running list, to the head of the queue.
    #[inline(never)]
    pub(super) fn preempt(&mut self, r: u32, now: Ps, around: &mut Around<'_>) {
        let computed = if around.requests[r].state == State::Decoding {
            // `generated` is not kept up while decoding.
            around.requests[r].generated = self.generated(r, around.requests);
            around.requests[r].paused_ps = now;
            self.decoding.leave(r, around.requests)
        } else {
            self.partial = NONE;
            around.requests[r].computed.unsigned_abs()
        };
        self.running.unlink(r, around.requests);
        self.give_up(r, computed, around);
    }

    /// Frees what `r` holds for `computed` tokens; it will be recomputed from the head of the queue.
    pub(super) fn give_up(&mut self, r: u32, computed: u64, around: &mut Around<'_>) {
        self.give_back(r, computed, around.requests, around.counters, around.fleet);
        self.begin_again(r, around);
        self.waiting.push_front(r);
    }

    fn begin_again(&mut self, r: u32, around: &mut Around<'_>) {
        self.outlook.is_full = false;
        around.requests[r].computed = 0;
        around.requests[r].state = State::Queued;
        around.requests[r].preemptions = around.requests[r].preemptions.saturating_add(1);
        around.counters.preemptions += 1;
    }

    /// Throws a decoding `r` out, to the end of the queue; its answer is not kept in the cache.
    pub(super) fn retract(&mut self, r: u32, around: &mut Around<'_>) {
        around.requests[r].generated = self.generated(r, around.requests);
        match self.joined.iter().position(|&joined| joined == r) {
            // It has not decoded yet: its last token came with its prompt.
            Some(at) => drop(self.joined.remove(at)),
            None => around.requests[r].paused_ps = self.last_decode,
        }
        let computed = self.decoding.leave(r, around.requests);
        self.running.unlink(r, around.requests);
        self.release(r, computed, around.requests, around.counters, around.fleet);
        self.begin_again(r, around);
        self.waiting.push_back(r);
    }

    /// Tokens out of a request that decodes.
    pub(super) fn generated(&self, r: u32, requests: &Requests) -> u32 {
        let left = requests[r].finish_step() - self.decoding.step;
        requests[r].osl_tok - u32::try_from(left).expect("an output length")
    }

    /// Gives up the latest cache that waits here without running, if it is not that of `r`.
    pub(super) fn give_up_idle(&mut self, r: u32, around: &mut Around<'_>) -> bool {
        let latest = self.loaded.back().copied().filter(|&victim| victim != r);
        let victim = match latest {
            Some(victim) => {
                self.loaded.pop_back();
                victim
            }
            None => match self.ready.back().copied().filter(|&victim| victim != r) {
                Some(victim) => {
                    self.ready.pop_back();
                    victim
                }
                None => return false,
            },
        };
        let computed = self.reserved(victim, around);
        self.give_up(victim, computed, around);
        true
    }

    /// Tokens for which a pulled request holds blocks.
    pub(super) fn reserved(&self, r: u32, around: &Around<'_>) -> u64 {
        let pulled = around.fleet.imitate_dynosim && around.requests[r].state == State::Ready;
        self.computed(r, around.requests) + u64::from(pulled)
    }
}
