//! Who is in the next step: the vLLM v1 step rule.

use std::cmp::Reverse;

use super::{Around, Doing, Replica};
use crate::schedule::cache::Found;
use crate::schedule::clock::{NEVER, Ps};
use crate::schedule::fleet::{FirstToken, Policy, PoolSpec};
use crate::schedule::request::{NONE, Requests, State};

impl Replica {
    /// Plans the next step at `now` and returns when it ends, [`NEVER`] when there is nothing to do.
    pub(crate) fn start(&mut self, now: Ps, around: &mut Around<'_>) -> Ps {
        debug_assert!(self.is_idle(), "Invariant: a replica starts only when it does nothing");
        self.doing = Doing::Nothing;
        let spec = &around.fleet.pools[self.pool];
        if spec.window_ps > 0 && self.running.len == 0 && !self.waiting.is_empty() {
            let until = self.hold_until(spec, around.requests);
            if until > now {
                self.doing = Doing::Holding;
                return until;
            }
        }
        loop {
            let preempted = self.plan_running(now, around);
            if !preempted {
                self.plan_waiting(now, around);
            }
            let tokens = self.decoding.n + self.chunks.iter().map(|&(_, q)| q).sum::<u64>();
            if tokens > 0 {
                return self.begin(now, preempted, tokens, around);
            }
            // Everything that ran was preempted: the blocks are free now, so try the queue again.
            if !preempted {
                return NEVER;
            }
        }
    }

    /// How long to wait for a fuller pass: until the queue fills it, or its head has waited enough.
    #[inline(never)]
    fn hold_until(&self, spec: &PoolSpec, requests: &Requests) -> Ps {
        let mut tokens = 0;
        for &r in &self.waiting {
            let live = &requests[r];
            tokens += live.num_tok() - u64::from(live.cached_tok).min(live.num_tok() - 1);
            if tokens >= spec.fill_tok {
                return 0;
            }
        }
        requests[self.waiting[0]].arrival_ps + spec.window_ps
    }

    /// Stage one: blocks for everything that runs. Returns whether something was preempted.
    fn plan_running(&mut self, now: Ps, around: &mut Around<'_>) -> bool {
        debug_assert!(self.chunks.is_empty() && self.joined.is_empty());
        if self.chunk_tok() < u64::MAX && self.running.len > self.decoding.n {
            return self.plan_in_order(now, around);
        }
        let needed = self.decode_blocks();
        let mut preempted = false;
        if needed <= self.free {
            self.take(needed, around.counters, around.fleet);
        } else {
            preempted = self.plan_decoding_one_by_one(now, around);
        }
        if self.partial != NONE {
            let r = self.partial;
            let budget = around.pool(self.pool).token_budget - self.decoding.n;
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

    fn add_chunk(&mut self, r: u32, done: u64, q: u64, around: &mut Around<'_>) {
        self.chunks.push((r, q));
        // Computed within this step, and therefore findable in it.
        self.register(r, done, done + q, around.requests, around.fleet);
    }

    /// Counts what the cache saved when `r` is admitted for the first time.
    #[inline(never)]
    fn count_hits(r: u32, found: Found, around: &mut Around<'_>) {
        let unit_tok = around.fleet.unit_tok;
        if around.requests[r].preemptions > 0 {
            around.counters.resumed_hit_tok += found.units() * unit_tok;
            return;
        }
        around.counters.queried_tok += around.requests.num_tok(r);
        around.counters.hit_tok[0] += found.hbm * unit_tok;
        for (tier, units) in found.lower.iter().enumerate() {
            around.counters.hit_tok[tier + 1] += units * unit_tok;
        }
    }

    /// Most tokens of one prompt in a step.
    fn chunk_tok(&self) -> u64 {
        match self.policy {
            Policy::Vllm { chunk_tok } if chunk_tok > 0 => chunk_tok,
            _ => u64::MAX,
        }
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
            if self.decoding.begins_block(self.computed(r, around.requests)) {
                while self.free == 0 {
                    let victim = self.running.last;
                    self.preempt(victim, now, around);
                    preempted = true;
                    if victim == r {
                        return true;
                    }
                }
                self.take(1, around.counters, around.fleet);
            }
            r = around.requests[r].next;
        }
        preempted
    }

    /// Stage two: what has been pulled or read back, then the queue in order.
    fn plan_waiting(&mut self, now: Ps, around: &mut Around<'_>) {
        let fleet = around.fleet;
        let spec = &fleet.pools[self.pool];
        let used: u64 = self.chunks.iter().map(|&(_, q)| q).sum::<u64>() + self.decoding.n;
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
            let hit = if self.cache.is_some() {
                let ready = self.claim(r, found, now, around);
                let tokens = found.units() * fleet.unit_tok;
                Self::count_hits(r, found, around);
                around.requests[r].computed = tokens.cast_signed();
                if ready > now {
                    around.requests[r].state = State::Loading;
                    self.coming += 1;
                    around.pulls.push(Reverse((ready, r)));
                    continue;
                }
                tokens
            } else {
                let hit = u64::from(around.requests[r].cached_tok).min(total - 1);
                let at_once = if whole { most } else { hit };
                self.take(self.blocks(at_once), around.counters, around.fleet);
                hit
            };
            budget -= self.admit(r, hit, budget, around);
        }
    }

    /// Lets the prompt of `r`, of which `hit` tokens are in place, begin; returns its first chunk.
    fn admit(&mut self, r: u32, hit: u64, budget: u64, around: &mut Around<'_>) -> u64 {
        let total = around.requests.num_tok(r);
        let q = (total - hit).min(budget).min(self.chunk_tok());
        if !self.policy.reserves() {
            self.take(self.blocks(hit + q) - self.blocks(hit), around.counters, around.fleet);
        }
        around.requests[r].computed = hit.cast_signed();
        around.requests[r].state = State::Prefilling;
        self.running.append(r, around.requests);
        self.add_chunk(r, hit, q, around);
        if hit + q < total && self.chunk_tok() == u64::MAX {
            self.partial = r;
        }
        q
    }

    /// Admits the first request whose prefix has come, if the rest of it fits.
    #[inline(never)]
    fn resume_loaded(&mut self, budget: u64, around: &mut Around<'_>) -> Option<u64> {
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

    /// Gives up the latest cache that waits here without running, if it is not that of `r`.
    fn give_up_idle(&mut self, r: u32, around: &mut Around<'_>) -> bool {
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

    /// Lets the first pulled request join the coming step; `false` when it has to wait.
    #[inline(never)]
    fn join(&mut self, around: &mut Around<'_>) -> bool {
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

    /// Tokens for which a pulled request holds blocks.
    fn reserved(&self, r: u32, around: &Around<'_>) -> u64 {
        let pulled = around.fleet.imitate_dynosim && around.requests[r].state == State::Ready;
        self.computed(r, around.requests) + u64::from(pulled)
    }

    /// Reserves room for a handed-over prompt and starts to pull its KV cache.
    #[inline(never)]
    fn pull(&mut self, r: u32, now: Ps, around: &mut Around<'_>) {
        let tokens = match around.fleet.first_token {
            FirstToken::Prefill => u64::from(around.requests[r].isl_tok),
            // The last prompt token is computed here again, to emit the first token.
            FirstToken::Decode => u64::from(around.requests[r].isl_tok) - 1,
        };
        let shares = !around.fleet.imitate_dynosim;
        let sent = if shares { tokens } else { u64::from(around.requests[r].isl_tok) };
        let mut here = 0;
        if self.cache.is_some() {
            let found = self.look_up(r, true, around.requests, around.fleet);
            self.claim(r, found, now, around);
            here = found.hbm * around.fleet.unit_tok;
            around.counters.pull_saved_tok += here;
        }
        self.take(self.blocks(sent) - self.blocks(here), around.counters, around.fleet);
        around.requests[r].computed = tokens.cast_signed();
        around.requests[r].state = State::Pulling;
        self.coming += 1;
        let link = around.fleet.link;
        let wire = link.left_after(link.tok_ps * (sent - here), around.requests.prompt_ps(r));
        let begin = if shares { self.link_free.max(now) } else { now };
        self.link_free = begin + wire;
        around.counters.link_ps += u128::from(wire);
        around.counters.pulled_tok += tokens - here;
        around.pulls.push(Reverse((begin + wire + link.latency_ps, r)));
    }
}
