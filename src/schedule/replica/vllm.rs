//! vLLM v1: running requests first, then the queue; the last of the running list is preempted.

use super::{Around, Replica};
use crate::schedule::clock::Ps;
use crate::schedule::fleet::Policy;
use crate::schedule::request::{NONE, State};

impl Replica {
    /// Plans a step; returns whether something was preempted, and its tokens, if there are any.
    ///
    /// `DRAFTS` tells whether any are verified: what decodes takes several tokens of the step then.
    #[inline]
    pub(super) fn plan_vllm<const DRAFTS: bool>(
        &mut self,
        now: Ps,
        around: &mut Around<'_>,
    ) -> Option<(bool, u64)> {
        loop {
            let preempted = self.plan_running::<DRAFTS>(now, around);
            if !preempted {
                self.plan_waiting::<DRAFTS>(now, around);
            }
            let tokens = self.decoding.n + self.chunks.iter().map(|&(_, q)| q).sum::<u64>();
            if tokens > 0 {
                return Some((preempted, tokens));
            }
            // Everything that ran was preempted: the blocks are free now, so try the queue again.
            if !preempted {
                return None;
            }
        }
    }

    /// Stage one: blocks for everything that runs. Returns whether something was preempted.
    fn plan_running<const DRAFTS: bool>(&mut self, now: Ps, around: &mut Around<'_>) -> bool {
        debug_assert!(self.chunks.is_empty() && self.joined.is_empty());
        if self.chunk_tok() < u64::MAX && self.running.len > self.decoding.n {
            return self.plan_in_order(now, around);
        }
        let needed = if DRAFTS { self.blocks_with_drafts() } else { self.decode_blocks() };
        let mut preempted = false;
        if needed <= self.free {
            self.take(needed, around.counters, around.fleet);
        } else {
            preempted = self.plan_decoding_one_by_one(now, around);
        }
        if self.partial != NONE {
            let r = self.partial;
            let decoding = if DRAFTS { self.decode_tok() } else { self.decoding.n };
            let budget = around.pool(self.pool).token_budget - decoding;
            let done = self.computed(r, around.requests);
            let q = (around.requests.num_tok(r) - done).min(budget);
            let blocks = self.blocks(done + q) - self.blocks(done);
            if blocks > self.free {
                self.preempt(r, now, around);
                return true;
            }
            self.take(blocks, around.counters, around.fleet);
            if q > 0 {
                self.add_chunk(r, done, q, around);
            }
        }
        preempted
    }

    /// Stage one where prompts are bounded: several of them may be unfinished, and stand before
    /// requests that decode.
    ///
    /// The budget reaches every request that decodes: when it was admitted, some was left behind all
    /// before it, and none of these takes more than it took then.
    #[inline(never)]
    fn plan_in_order(&mut self, now: Ps, around: &mut Around<'_>) -> bool {
        let (mut budget, bound) = (around.pool(self.pool).token_budget, self.chunk_tok());
        let mut preempted = false;
        let mut r = self.running.first;
        while r != NONE {
            let decodes = around.requests[r].state == State::Decoding;
            let done = self.computed(r, around.requests);
            let rest = if decodes { 1 } else { around.requests.num_tok(r) - done };
            let q = rest.min(bound).min(budget);
            debug_assert!(q > 0 || !decodes, "Invariant: the budget reaches what decodes");
            let blocks = self.blocks(done + q) - self.blocks(done);
            while blocks > self.free {
                let victim = self.running.last;
                self.preempt(victim, now, around);
                preempted = true;
                if victim == r {
                    return true;
                }
            }
            self.take(blocks, around.counters, around.fleet);
            if !decodes && q > 0 {
                self.add_chunk(r, done, q, around);
            }
            budget -= q;
            r = around.requests[r].next;
        }
        preempted
    }

    /// Too few blocks for all: walk the running list and preempt from its end.
    #[inline(never)]
    fn plan_decoding_one_by_one(&mut self, now: Ps, around: &mut Around<'_>) -> bool {
        let mut r = self.running.first;
        let mut preempted = false;
        while r != NONE && r != self.partial {
            let blocks = self.next_blocks(self.computed(r, around.requests));
            if blocks > 0 {
                while self.free < blocks {
                    let victim = self.running.last;
                    self.preempt(victim, now, around);
                    preempted = true;
                    if victim == r {
                        return true;
                    }
                }
                self.take(blocks, around.counters, around.fleet);
            }
            r = around.requests[r].next;
        }
        preempted
    }

    /// Stage two: what has been pulled or read back, then the queue in order.
    fn plan_waiting<const DRAFTS: bool>(&mut self, now: Ps, around: &mut Around<'_>) {
        let fleet = around.fleet;
        let spec = &fleet.pools[self.pool];
        let decoding = if DRAFTS { self.decode_tok() } else { self.decoding.n };
        let used: u64 = self.chunks.iter().map(|&(_, q)| q).sum::<u64>() + decoding;
        let mut budget = spec.token_budget - used;
        if self.policy == Policy::Static && self.running.len > 0 {
            return;
        }
        while budget > 0 && !self.ready.is_empty() {
            if !self.join(around) {
                break;
            }
            budget -= 1;
        }
        while budget > 0 && !self.loaded.is_empty() {
            // What has come first goes first: nobody overtakes it into the free blocks.
            let Some(q) = self.resume_loaded(budget, around) else { return };
            budget -= q;
        }
        while budget > 0 && self.admitted() < spec.max_seqs {
            let Some(&r) = self.waiting.front() else { break };
            if around.requests[r].late {
                for &r in &self.waiting {
                    around.requests[r].late = false;
                }
                break;
            }
            let total = around.requests.num_tok(r);
            let spare = if self.running.len > 0 { spec.watermark_blocks } else { 0 };
            let handed = around.requests[r].state == State::Handed;
            let found = self.look_up(r, handed, around.requests, fleet);
            let whole = self.policy.reserves();
            if whole && total - u64::from(around.requests[r].cached_tok) > budget {
                break;
            }
            let most = if whole { around.requests.most_tok(r) } else { total };
            let needed = self.blocks(most) - found.shared * fleet.unit_blocks();
            if needed + spare > self.free {
                break;
            }
            self.waiting.pop_front();
            around.requests.note_start(r, now);
            if handed {
                self.pull(r, now, around);
                continue;
            }
            let at_once = whole.then_some(most);
            let Some(hit) = self.bring_in(r, found, at_once, now, around) else { continue };
            budget -= self.admit(r, hit, budget, around);
        }
    }

    /// Lets the first pulled request join the coming step; `false` when it has to wait.
    #[inline(never)]
    pub(super) fn join(&mut self, around: &mut Around<'_>) -> bool {
        let r = self.ready[0];
        let computed = around.requests[r].computed.unsigned_abs();
        let reserved = self.reserved(r, around) > computed;
        if self.decoding.begins_block(computed) && !reserved {
            while self.free == 0 {
                // Nothing runs that could free a block: give up the latest cache that waits.
                if self.running.len > 0 {
                    return false;
                }
                if !self.give_up_idle(r, around) {
                    self.ready.pop_front();
                    self.give_up(r, computed, around);
                    return false;
                }
            }
            self.take(1, around.counters, around.fleet);
        }
        self.ready.pop_front();
        self.running.append(r, around.requests);
        self.joined.push(r);
        self.decoding.enter(r, computed, around.requests);
        true
    }

    /// Admits the first request whose prefix has come, if the rest of it fits.
    #[inline(never)]
    pub(super) fn resume_loaded(&mut self, budget: u64, around: &mut Around<'_>) -> Option<u64> {
        let r = self.loaded[0];
        let hit = around.requests[r].computed.unsigned_abs();
        while self.blocks(around.requests.num_tok(r)) - self.blocks(hit) > self.free {
            if self.running.len > 0 || !self.give_up_idle(r, around) {
                return None;
            }
        }
        self.loaded.pop_front();
        Some(self.admit(r, hit, budget, around))
    }

    /// Most tokens of one prompt in a step.
    pub(super) fn chunk_tok(&self) -> u64 {
        match self.policy {
            Policy::Vllm { chunk_tok } if chunk_tok > 0 => chunk_tok,
            _ => u64::MAX,
        }
    }
}
