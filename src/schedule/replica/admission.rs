//! How a request comes in: its prompt begins, or its KV cache is pulled.

use std::cmp::Reverse;

use super::{Around, Replica};
use crate::schedule::cache::Found;
use crate::schedule::clock::Ps;
use crate::schedule::fleet::FirstToken;
use crate::schedule::request::State;

impl Replica {
    /// Takes the cached start of `r`, and its `whole` memory at once where that is the rule; returns
    /// how many tokens are in place, or nothing while they are read back.
    #[expect(clippy::inline_always, reason = "at every admission")]
    #[inline(always)]
    pub(super) fn bring_in(
        &mut self,
        r: u32,
        found: Found,
        whole: Option<u64>,
        now: Ps,
        around: &mut Around<'_>,
    ) -> Option<u64> {
        if self.cache.is_none() {
            let private = u64::from(around.requests[r].cached_tok);
            let hit = private.min(around.requests.num_tok(r) - 1);
            self.take(self.blocks(whole.unwrap_or(hit)), around.counters, around.fleet);
            return Some(hit);
        }
        let ready = self.claim(r, found, now, around);
        let hit = found.units() * around.fleet.unit_tok;
        Self::count_hits(r, found, around);
        around.requests[r].computed = hit.cast_signed();
        if ready > now {
            around.requests[r].state = State::Loading;
            self.coming += 1;
            around.pulls.push(Reverse((ready, r)));
            return None;
        }
        Some(hit)
    }

    /// Lets the prompt of `r`, of which `hit` tokens are in place, begin; returns its first chunk.
    pub(super) fn admit(&mut self, r: u32, hit: u64, budget: u64, around: &mut Around<'_>) -> u64 {
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

    pub(super) fn add_chunk(&mut self, r: u32, done: u64, q: u64, around: &mut Around<'_>) {
        self.chunks.push((r, q));
        if !self.prompts_alone {
            // Computed within this step, and therefore findable in it.
            self.register(r, done, done + q, around.requests, around.fleet);
        }
    }

    /// Counts what the cache saved when `r` is admitted for the first time.
    #[inline(never)]
    pub(super) fn count_hits(r: u32, found: Found, around: &mut Around<'_>) {
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

    /// Reserves room for a handed-over prompt and starts to pull its KV cache.
    #[inline(never)]
    pub(super) fn pull(&mut self, r: u32, now: Ps, around: &mut Around<'_>) {
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
        let tok_ps = link.tok_ps * self.link_1024 / 1024;
        let wire = link.left_after(tok_ps * (sent - here), around.requests.prompt_ps(r));
        let begin = if shares { self.link_free.max(now) } else { now };
        self.link_free = begin + wire;
        around.counters.link_ps += u128::from(wire);
        around.counters.pulled_tok += tokens - here;
        around.pulls.push(Reverse((begin + wire + link.latency_ps, r)));
    }
}
