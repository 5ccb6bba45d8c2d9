//! Blocks of one replica: taken, shared through the prefix cache, and given back.

use super::{Around, Replica};
use crate::schedule::cache::{Found, LOWER_TIERS};
use crate::schedule::clock::Ps;
use crate::schedule::fleet::{FleetSpec, Role};
use crate::schedule::metrics::Counters;
use crate::schedule::request::Requests;
use crate::schedule::steps::index;

use super::Doing;
use super::price::{run_ps, steps_to_reach};

impl Replica {
    pub(super) fn blocks(&self, tokens: u64) -> u64 {
        self.decoding.blocks(tokens)
    }

    /// Blocks the decoding set needs for the coming step.
    pub(super) fn decode_blocks(&self) -> u64 {
        if self.policy.reserves() { 0 } else { self.decoding.blocks_now() }
    }

    /// Of these, or of those with drafts, those of a request with `computed` tokens in place.
    pub(super) fn next_blocks(&self, computed: u64) -> u64 {
        self.blocks(computed + self.tok_a_seq) - self.blocks(computed)
    }

    /// Blocks it takes in the `steps` steps after that.
    pub(super) fn decode_blocks_after(&self, steps: u64) -> u64 {
        if self.policy.reserves() { 0 } else { self.decoding.blocks_after_first(steps) }
    }

    /// Steps after the coming one that the free blocks allow, at most `most`.
    pub(super) fn decode_steps_in_blocks(&self, most: u64) -> u64 {
        if self.policy.reserves() { most } else { self.decoding.steps_in_blocks(self.free, most) }
    }

    /// Takes blocks; unused units of the cache are evicted where no block is empty.
    pub(super) fn take(&mut self, blocks: u64, counters: &mut Counters, fleet: &FleetSpec) {
        self.free -= blocks;
        counters.blocks_taken += blocks;
        if self.cache.is_some() {
            self.evict_down_to(self.free, counters, fleet);
        }
    }

    #[inline(never)]
    fn evict_down_to(&mut self, free: u64, counters: &mut Counters, fleet: &FleetSpec) {
        let Some(cache) = &mut self.cache else { return };
        let unit_blocks = fleet.unit_blocks();
        if cache.unused() * unit_blocks <= free {
            return;
        }
        while cache.unused() * unit_blocks > free {
            cache.evict();
            counters.evicted_tok += fleet.unit_tok;
        }
        let spec = fleet.pools[self.pool].cache.as_ref().expect("Invariant: it has a cache");
        for (tier, units) in cache.take_written().into_iter().enumerate() {
            let tokens = units * fleet.unit_tok;
            counters.tier_written_tok[tier] += tokens;
            counters.tier_pj[tier] +=
                u128::from(tokens) * u128::from(spec.tiers[tier].write_tok_pj);
        }
    }

    /// Evicts what the steps planned before `now` have displaced; a run does so only at its end.
    #[inline(never)]
    pub(super) fn settle_evictions(&mut self, now: Ps, counters: &mut Counters, fleet: &FleetSpec) {
        if self.cache.is_none() {
            return;
        }
        if now <= self.settled_to {
            return;
        }
        if let Doing::Run { start, first, growth, steps } = self.doing {
            let planned = steps_to_reach(now - start, first, growth).clamp(1, steps);
            let taken = self.decode_blocks_after(planned - 1);
            self.settled_to = start + run_ps(first, growth, planned);
            self.evict_down_to(self.free - taken, counters, fleet);
        }
    }

    /// How much of the start of `r`'s prompt the cache holds at `now`.
    pub(crate) fn overlap(
        &mut self,
        r: u32,
        now: Ps,
        requests: &Requests,
        counters: &mut Counters,
        fleet: &FleetSpec,
    ) -> Found {
        self.settle_evictions(now, counters, fleet);
        self.look_up_within(u64::from(requests[r].isl_tok), r, false, requests, fleet)
    }

    /// The longest cached start of `r`, short of its last token.
    pub(super) fn look_up(
        &self,
        r: u32,
        hbm_only: bool,
        requests: &Requests,
        fleet: &FleetSpec,
    ) -> Found {
        self.look_up_within(requests.num_tok(r), r, hbm_only, requests, fleet)
    }

    #[inline]
    fn look_up_within(
        &self,
        tokens: u64,
        r: u32,
        hbm_only: bool,
        requests: &Requests,
        fleet: &FleetSpec,
    ) -> Found {
        let Some(cache) = &self.cache else { return Found::default() };
        let most = index((tokens - 1) / fleet.unit_tok);
        let ids = requests.units(r);
        cache.look_up(&ids[..most.min(ids.len())], hbm_only)
    }

    /// Uses what a look-up found; returns when all of it is in HBM.
    #[inline(never)]
    pub(super) fn claim(&mut self, r: u32, found: Found, now: Ps, around: &mut Around<'_>) -> Ps {
        let fleet = around.fleet;
        let (range, side) = (around.requests.unit_range(r), self.side(fleet));
        let Some(cache) = &mut self.cache else { return now };
        let range = range.start..range.start + index(found.units());
        for used in &mut around.requests.unit_users[range.clone()] {
            *used |= side;
        }
        let ids = &around.requests.unit_of[range];
        let lower: u64 = found.lower.iter().sum();
        let mut ready = found.ready_ps.max(now);
        if lower > 0 {
            ready = ready.max(cache.read(found.lower, fleet.unit_tok, now));
        }
        cache.use_found(ids, (lower > 0).then_some(ready));
        if lower > 0 {
            let spec = fleet.pools[self.pool].cache.as_ref().expect("Invariant: it has a cache");
            for tier in 0..LOWER_TIERS {
                let tokens = found.lower[tier] * fleet.unit_tok;
                around.counters.tier_read_tok[tier] += tokens;
                around.counters.tier_pj[tier] +=
                    u128::from(tokens) * u128::from(spec.tiers[tier].read_tok_pj);
                around.counters.tier_read_ps[tier] +=
                    u128::from(tokens) * u128::from(spec.tiers[tier].read_tok_ps);
            }
        }
        let blocks = (found.units() - found.shared) * fleet.unit_blocks();
        self.take(blocks, around.counters, fleet);
        ready
    }

    /// Makes the whole units among tokens `from..to` of `r` findable.
    pub(super) fn register(
        &mut self,
        r: u32,
        from: u64,
        to: u64,
        requests: &mut Requests,
        fleet: &FleetSpec,
    ) {
        let side = self.side(fleet);
        let Some(cache) = &mut self.cache else { return };
        let range = requests.unit_range(r);
        let (from, to) = (index(from / fleet.unit_tok), index(to / fleet.unit_tok));
        for at in range.start + from..(range.start + to).min(range.end) {
            if requests.unit_users[at] & side == 0 && cache.register(requests.unit_of[at]) {
                requests.unit_users[at] |= side;
            }
        }
    }

    pub(super) fn register_pulled(&mut self, r: u32, requests: &mut Requests, fleet: &FleetSpec) {
        let tokens = requests[r].computed.unsigned_abs();
        self.register(r, 0, tokens, requests, fleet);
    }

    /// Shares the whole units among tokens `from..to` of `r`, now computed: where the cache has one
    /// already, that is used and the blocks of the other are given back.
    pub(super) fn register_shared(&mut self, r: u32, from: u64, to: u64, around: &mut Around<'_>) {
        let fleet = around.fleet;
        let side = self.side(fleet);
        let Some(cache) = &mut self.cache else { return };
        let range = around.requests.unit_range(r);
        let (from, to) = (index(from / fleet.unit_tok), index(to / fleet.unit_tok));
        let mut twice = 0;
        for at in range.start + from..(range.start + to).min(range.end) {
            if around.requests.unit_users[at] & side != 0 {
                continue;
            }
            around.requests.unit_users[at] |= side;
            let id = around.requests.unit_of[at];
            if !cache.register(id) && cache.share(id) {
                twice += fleet.unit_blocks();
            }
        }
        self.free += twice;
        around.counters.blocks_freed += twice;
    }

    /// Gives back everything `r` holds here for `computed` tokens.
    pub(crate) fn give_back(
        &mut self,
        r: u32,
        computed: u64,
        requests: &mut Requests,
        counters: &mut Counters,
        fleet: &FleetSpec,
    ) {
        if self.cache.is_some() {
            // Units of the answer become findable only now.
            self.register(r, 0, computed, requests, fleet);
        }
        self.release(r, computed, requests, counters, fleet);
    }

    /// As [`Replica::give_back`], without making the answer findable.
    #[inline]
    pub(super) fn release(
        &mut self,
        r: u32,
        computed: u64,
        requests: &mut Requests,
        counters: &mut Counters,
        fleet: &FleetSpec,
    ) {
        let mut blocks = self.blocks(computed);
        if self.policy.reserves() {
            blocks = self.blocks(requests.most_tok(r));
        }
        let side = self.side(fleet);
        if let Some(cache) = &mut self.cache {
            // The tail is freed first, so that it is evicted first.
            for at in requests.unit_range(r).rev() {
                if requests.unit_users[at] & side != 0 {
                    requests.unit_users[at] &= !side;
                    if !cache.leave(requests.unit_of[at]) {
                        blocks -= fleet.unit_blocks();
                    }
                }
            }
        }
        self.free += blocks;
        counters.blocks_freed += blocks;
    }

    /// Which of the two replicas that can hold a request this one is.
    pub(super) fn side(&self, fleet: &FleetSpec) -> u8 {
        if fleet.pools[self.pool].role == Role::Decode { 2 } else { 1 }
    }
}
