//! SGLang: prompts first and alone, then one decode step for all; memory by estimate.
//!
//! ```text
//! a prompt can begin or go on? ─yes─► a step of prompts; requests that decode wait
//!            │no
//!            └─► blocks for one token each? ─no─► retract until there are
//!                         └─yes─► a step of decoding
//! ```
//!
//! A prompt is admitted when its tokens and what it may still generate fit beside a share of what
//! the running requests may still generate. The share falls with every decode step, rises when it
//! proved too low (a retraction), and begins anew when the replica is idle. Once a prompt has not
//! fitted, none is tried until a request leaves.
//!
//! Source: sgl-project/sglang, `srt/managers/{scheduler,schedule_policy,schedule_batch}.py`.

use super::{Around, Replica};
use crate::schedule::cache::Found;
use crate::schedule::clock::Ps;
use crate::schedule::fleet::{Policy, SglangSpec};
use crate::schedule::request::{NONE, Requests, State};
use crate::schedule::steps::index;

/// What a request may still generate counts up to here (`CLIP_MAX_NEW_TOKENS`).
const MOST_EXPECTED_TOK: u64 = 4096;
/// A longer queue is taken in order of arrival.
const MOST_SORTED: usize = 128;
/// With a cached prefix of at most this, a request that shares as much with one before it in the
/// queue waits for that one's prompt.
const IN_BATCH_TOK: u64 = 32;
/// Steps that each remaining request is expected to do after a retraction.
const STEPS_AFTER_RETRACTION: u64 = 20;

/// What the rule expects of running requests, from step to step.
#[derive(Debug, Clone, Default)]
pub(super) struct Outlook {
    /// Share of what they may still generate that is kept free, in 2⁻²⁰.
    ratio: u64,
    least: u64,
    decay: u64,
    /// Nobody is admitted until a request leaves.
    pub(super) is_full: bool,
    /// The queue by rank, while it is sorted.
    ranks: Vec<(u64, u32)>,
    /// First units of the requests that are ranked by their prefix.
    starts: Vec<u32>,
}

impl Outlook {
    pub(super) fn new(policy: Policy) -> Self {
        let Policy::Sglang(rule) = policy else { return Self::default() };
        let SglangSpec { ratio, least_ratio: least, decay, .. } = rule;
        Self { ratio, least, decay, ..Self::default() }
    }

    /// Lets `steps` decode steps pass.
    pub(super) fn pass(&mut self, steps: u64) {
        self.ratio = self.ratio.saturating_sub(steps * self.decay).max(self.least);
    }
}

impl Replica {
    /// Plans a step; returns whether something was retracted, and its tokens, if there are any.
    #[inline(never)]
    pub(super) fn plan_sglang(
        &mut self,
        rule: SglangSpec,
        now: Ps,
        around: &mut Around<'_>,
    ) -> Option<(bool, u64)> {
        self.plan_prompts(rule, now, around);
        if !self.chunks.is_empty() {
            return Some((false, self.chunks.iter().map(|&(_, q)| q).sum()));
        }
        if self.decoding.n == 0 {
            self.outlook.ratio = rule.ratio;
            return None;
        }
        let retracted = self.decode_blocks() > self.free;
        if retracted {
            self.retract_for_one_step(rule, around);
            if self.decode_blocks() > self.free {
                // The rest is held by prefixes that are being read back.
                return None;
            }
        } else {
            self.outlook.pass(1);
        }
        self.take(self.decode_blocks(), around.counters, around.fleet);
        Some((retracted, self.decoding.n))
    }

    /// Fills a step with prompts: the unfinished one, those whose prefix has come, then the queue.
    fn plan_prompts(&mut self, rule: SglangSpec, now: Ps, around: &mut Around<'_>) {
        debug_assert!(self.chunks.is_empty(), "Invariant: the last step has ended");
        if self.partial != NONE {
            self.outlook.is_full = false;
        } else if self.outlook.is_full || (self.waiting.is_empty() && self.loaded.is_empty()) {
            return;
        }
        let fleet = around.fleet;
        let spec = &fleet.pools[self.pool];
        let mut budget = spec.token_budget / fleet.block_tok * fleet.block_tok;
        let mut expected = self.expected_of_running(rule, around);
        if self.partial != NONE {
            let r = self.partial;
            expected += self.go_on(r, &mut budget, rule, around);
        }
        while budget > 0 {
            let Some(&r) = self.loaded.front() else { break };
            let hit = around.requests[r].computed.unsigned_abs();
            let blocks = self.blocks(around.requests.num_tok(r)) - self.blocks(hit);
            while !self.fits(r, blocks, expected, rule, around) {
                if self.running.len > 0 || !self.give_up_idle(r, around) {
                    self.outlook.is_full = true;
                    return;
                }
            }
            self.loaded.pop_front();
            expected += self.begin_prompt(r, &mut budget, rule, around);
        }
        if budget > 0 && self.admitted() < spec.max_seqs && rule.longest_prefix_first {
            self.sort_waiting(around);
        }
        while budget > 0 {
            let Some(&r) = self.waiting.front() else { return };
            if self.admitted() >= spec.max_seqs {
                self.outlook.is_full = true;
                return;
            }
            let found = self.look_up_and_touch(r, around);
            let total = self.blocks(around.requests.num_tok(r));
            let blocks = total - found.shared * fleet.unit_blocks();
            if !self.fits(r, blocks, expected, rule, around) {
                self.outlook.is_full = true;
                return;
            }
            self.waiting.pop_front();
            around.requests.note_start(r, now);
            let Some(hit) = self.bring_in(r, found, None, now, around) else { continue };
            around.requests[r].computed = hit.cast_signed();
            expected += self.begin_prompt(r, &mut budget, rule, around);
        }
    }

    /// Whether `blocks` and what `r` may generate leave something beside what is `expected`.
    fn fits(
        &self,
        r: u32,
        blocks: u64,
        expected: u64,
        rule: SglangSpec,
        around: &Around<'_>,
    ) -> bool {
        let generated = u64::from(around.requests[r].generated);
        let still = self.still_expected(r, generated, rule, around);
        blocks * around.fleet.block_tok + still + expected < self.free * around.fleet.block_tok
    }

    /// Lets the prompt of `r` begin where its cached start ends; returns what `r` may generate.
    fn begin_prompt(
        &mut self,
        r: u32,
        budget: &mut u64,
        rule: SglangSpec,
        around: &mut Around<'_>,
    ) -> u64 {
        around.requests[r].state = State::Prefilling;
        self.running.append(r, around.requests);
        self.go_on(r, budget, rule, around)
    }

    /// Gives the prompt of `r` what the budget allows, in whole blocks unless it ends; returns what
    /// `r` may generate if it does.
    fn go_on(
        &mut self,
        r: u32,
        budget: &mut u64,
        rule: SglangSpec,
        around: &mut Around<'_>,
    ) -> u64 {
        let done = around.requests[r].computed.unsigned_abs();
        let rest = around.requests.num_tok(r) - done;
        let q = rest.min(*budget);
        self.take(self.blocks(done + q) - self.blocks(done), around.counters, around.fleet);
        self.add_chunk(r, done, q, around);
        *budget -= (self.blocks(q) * around.fleet.block_tok).min(*budget);
        if q < rest {
            self.partial = r;
            return 0;
        }
        self.still_expected(r, u64::from(around.requests[r].generated), rule, around)
    }

    /// What `r` may still generate as far as it counts, with `generated` tokens out.
    fn still_expected(&self, r: u32, generated: u64, rule: SglangSpec, around: &Around<'_>) -> u64 {
        (self.most_new(r, rule, around) - generated).min(MOST_EXPECTED_TOK)
    }

    /// What `r` says it may generate: at least its answer, at most what memory holds.
    fn most_new(&self, r: u32, rule: SglangSpec, around: &Around<'_>) -> u64 {
        let block_tok = around.fleet.block_tok;
        let room = around.pool(self.pool).kv_blocks * block_tok - block_tok;
        let most = room - u64::from(around.requests[r].isl_tok);
        rule.most_new_tok.min(most).max(u64::from(around.requests[r].osl_tok))
    }

    /// The share of what decoding requests may still generate that is kept free for them.
    fn expected_of_running(&self, rule: SglangSpec, around: &Around<'_>) -> u64 {
        let mut still = 0;
        self.each_decoding(around.requests, |r| {
            let generated = u64::from(self.generated(r, around.requests));
            still += self.still_expected(r, generated, rule, around);
        });
        (still * self.outlook.ratio) >> 20
    }

    fn each_decoding(&self, requests: &Requests, mut visit: impl FnMut(u32)) {
        let mut r = self.running.first;
        while r != NONE {
            if requests[r].state == State::Decoding {
                visit(r);
            }
            r = requests[r].next;
        }
    }

    /// Longest cached prefix first, except that requests that share a start wait for one of them.
    #[inline(never)]
    fn sort_waiting(&mut self, around: &mut Around<'_>) {
        if self.cache.is_none() || self.waiting.len() > MOST_SORTED {
            return;
        }
        let unit_tok = around.fleet.unit_tok;
        let deciding = IN_BATCH_TOK.div_ceil(unit_tok) - 1;
        let (mut ranks, mut starts) =
            (std::mem::take(&mut self.outlook.ranks), std::mem::take(&mut self.outlook.starts));
        for at in 0..self.waiting.len() {
            let r = self.waiting[at];
            let hit = self.look_up_and_touch(r, around).hbm * unit_tok;
            let mut rank = u64::MAX - 1 - hit;
            if hit <= IN_BATCH_TOK && around.requests.num_tok(r) / unit_tok > deciding {
                match around.requests.units(r).get(index(deciding)) {
                    Some(start) if starts.contains(start) => rank = u64::MAX,
                    Some(&start) => starts.push(start),
                    None => {}
                }
            }
            ranks.push((rank, r));
        }
        ranks.sort_by_key(|&(rank, _)| rank);
        for (place, (_, r)) in self.waiting.iter_mut().zip(ranks.drain(..)) {
            *place = r;
        }
        starts.clear();
        (self.outlook.ranks, self.outlook.starts) = (ranks, starts);
    }

    /// A look-up that counts as a use: what it finds is evicted later.
    fn look_up_and_touch(&mut self, r: u32, around: &mut Around<'_>) -> Found {
        let found = self.look_up(r, false, around.requests, around.fleet);
        if let Some(cache) = &mut self.cache {
            cache.touch(&around.requests.units(r)[..index(found.units())]);
        }
        found
    }

    /// Retracts decoding requests until all others have blocks for a token, at least one of them
    /// unless it is the last.
    ///
    /// The fewest tokens out go first; of these the longest prompt; of these the latest admitted.
    #[inline(never)]
    fn retract_for_one_step(&mut self, rule: SglangSpec, around: &mut Around<'_>) {
        while self.decode_blocks() > self.free {
            if self.decoding.n > 1 {
                let mut victim = (u32::MAX, 0, NONE);
                self.each_decoding(around.requests, |r| {
                    let generated = self.generated(r, around.requests);
                    let isl = around.requests[r].isl_tok;
                    let (least, longest, _) = victim;
                    if generated < least || generated == least && isl >= longest {
                        victim = (generated, isl, r);
                    }
                });
                self.retract(victim.2, around);
            } else if !self.give_up_idle(NONE, around) {
                return;
            }
        }
        let (mut generated, mut most) = (self.decoding.n * STEPS_AFTER_RETRACTION, 0);
        self.each_decoding(around.requests, |r| {
            generated += u64::from(self.generated(r, around.requests));
            most += self.most_new(r, rule, around);
        });
        self.outlook.ratio = (generated << 20).checked_div(most).unwrap_or(0).min(1 << 20);
    }
}
