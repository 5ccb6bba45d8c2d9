//! What the planned step costs, and what its end changes.

use super::{Around, Doing, Replica};
use crate::schedule::clock::Ps;
use crate::schedule::fleet::{Role, Routing};
use crate::schedule::request::{NONE, Requests, State};
use crate::schedule::steps::{AttnPs, StepTable, index};

/// Runs are cut here so that their length stays far inside a `u64` of picoseconds.
const LONGEST_RUN: u64 = 1 << 12;

/// The prompt work of one step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Prompts {
    pub(super) tok: u64,
    /// Prompts that end, and yield a token.
    pub(super) emitted: u64,
    pub(super) attn: AttnPs,
    pub(super) attn_pj: u128,
    /// What a power cap adds.
    pub(super) capped_ps: u64,
}

/// Length of the steps of a run, and what a power cap adds to them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Pace {
    first: Ps,
    growth: Ps,
    /// Added to the first step, and its growth, which may be negative.
    capped: (u64, i64),
}

impl Pace {
    /// The pace of steps that take `first`, growing by `growth`, or what the cap demands, and for
    /// how many steps that stays the same one of the two.
    fn of(first: Ps, growth: Ps, cap: Option<&StepTable>, n: u64, context: u64) -> (Self, u64) {
        let free = Self { first, growth, capped: (0, 0) };
        let Some(cap) = cap else { return (free, u64::MAX) };
        let attn = cap.attention(std::iter::empty(), 0, n, context, || 0);
        let (least, rise) = (cap.step_ps(n, n, attn), cap.decode_attn_ctx_ps[index(n)] * n);
        if least > first {
            let over = least - first;
            let steps = if rise >= growth { u64::MAX } else { over.div_ceil(growth - rise) };
            let added = rise.cast_signed() - growth.cast_signed();
            return (Self { first: least, growth: rise, capped: (over, added) }, steps);
        }
        let steps = if growth >= rise { u64::MAX } else { (first - least) / (rise - growth) + 1 };
        (free, steps)
    }

    /// What the cap adds to `steps` steps.
    fn capped_ps(&self, steps: u64) -> u128 {
        let (k, (first, growth)) = (i128::from(steps), self.capped);
        (k * i128::from(first) + k * (k - 1) / 2 * i128::from(growth)).unsigned_abs()
    }
}

impl Replica {
    /// Prices the planned step and sets it going.
    pub(super) fn begin(
        &mut self,
        now: Ps,
        preempted: bool,
        tokens: u64,
        around: &mut Around<'_>,
    ) -> Ps {
        let spec = &around.fleet.pools[self.pool];
        let (table, cap) = (around.table, around.cap);
        let imitate = around.fleet.imitate_dynosim;
        let n = self.seqs_in_step();
        let context = if imitate && n > 0 {
            (spec.kv_blocks - self.free) * self.decoding.block_tok()
        } else {
            self.decoding.context
        };
        let requests = &*around.requests;
        let longest = || self.longest_context(requests);
        if self.chunks.is_empty() {
            let attn = table.attention(std::iter::empty(), 0, n, context, longest);
            let first = table.step_ps(n, n, attn);
            let growth = table.decode_attn_ctx_ps[index(n)] * n;
            let (pace, same) = Pace::of(first, growth, cap, n, context);
            self.stalled_ps = if self.prompts_alone && n > self.joined.len() as u64 {
                now - self.last_decode
            } else {
                0
            };
            let single = preempted
                || self.stalled_ps > 0
                || !self.joined.is_empty()
                || table.mixed.is_some()
                || imitate;
            let steps = if single {
                1
            } else {
                let finish = self.decoding.steps_to_first_finish(around.requests);
                1 + self.decode_steps_in_blocks(finish.min(same).min(LONGEST_RUN) - 1)
            };
            let Pace { first, growth, .. } = pace;
            self.pace = pace;
            self.settled_to = 0;
            self.doing = Doing::Run { start: now, first, growth, steps };
            return now + run_ps(first, growth, steps);
        }
        let emits = around.prompt_end_emits(self.pool);
        let mut prompts = Prompts { tok: tokens - n, ..Prompts::default() };
        let (mut prefill, mut prefill_cap) = (0, 0);
        for &(r, q) in &self.chunks {
            let kv = self.computed(r, requests);
            let (ps, pj) = table.chunk_attn(q, kv);
            prefill += ps;
            prefill_cap += cap.map_or(0, |cap| cap.chunk_attn(q, kv).0);
            prompts.attn_pj += u128::from(pj);
            prompts.emitted += u64::from(emits && kv + q == requests.num_tok(r));
        }
        let chunks = self.chunks.iter().map(|&(r, q)| (q, self.computed(r, requests)));
        prompts.attn = table.attention(chunks, prefill, n, context, longest);
        let emitted = prompts.emitted + n;
        let chunks = self.chunks.len() as u64;
        let priced = if imitate { n + prompts.tok / chunks * chunks } else { tokens };
        let free_ps = table.step_ps(priced, emitted, prompts.attn);
        if let Some(cap) = cap {
            let attn = cap.attention(std::iter::empty(), prefill_cap, n, context, || 0);
            prompts.capped_ps = cap.step_ps(tokens, emitted, attn).saturating_sub(free_ps);
        }
        let end = now + free_ps + prompts.capped_ps;
        self.prompts = prompts;
        self.doing = Doing::Step { start: now, end };
        end
    }

    /// The longest context the coming step attends to for a decoding request.
    #[inline(never)]
    fn longest_context(&self, requests: &Requests) -> u64 {
        let mut longest = 0;
        let mut r = self.running.first;
        while r != NONE {
            if requests[r].state == State::Decoding {
                longest = longest.max(self.computed(r, requests) + 1);
            }
            r = requests[r].next;
        }
        longest
    }

    pub(super) fn end_run(
        &mut self,
        first: Ps,
        growth: Ps,
        steps: u64,
        now: Ps,
        around: &mut Around<'_>,
    ) {
        let table = around.table;
        let (n, k) = (self.decoding.n, u128::from(steps));
        let counters = &mut *around.counters;
        counters.steps += steps;
        counters.decode_ps += u128::from(run_ps(first, growth, steps));
        counters.capped_ps += self.pace.capped_ps(steps);
        counters.decode_tok += n * steps;
        counters.emitted_tok += n * steps;
        counters.decode_linear_pj += k * u128::from(table.linear_pj[index(n)]);
        counters.decode_head_pj += k * u128::from(table.head_pj[index(n)]);
        let contexts = k * u128::from(self.decoding.context) + u128::from(n) * (k * (k - 1) / 2);
        counters.decode_attn_pj += k * u128::from(table.decode_attn_floor_pj[index(n)])
            + u128::from(table.decode_attn_ctx_pj[index(n)]) * contexts;
        // The first step's blocks were taken when it was planned.
        let blocks = self.decode_blocks_after(steps - 1);
        self.take(blocks, counters, around.fleet);
        if self.joined.is_empty() && self.stalled_ps == 0 {
            around.gaps.add_run(first, growth, steps, n);
        } else {
            around.gaps.add(first + self.stalled_ps, n - self.joined.len() as u64);
            self.count_pauses(now, around);
        }
        if self.prompts_alone {
            self.last_decode = now;
            self.outlook.pass(steps - 1);
        }
        self.decoding.pass(steps);
        self.finish_due(now, around);
    }

    pub(super) fn end_step(&mut self, lasted: Ps, now: Ps, around: &mut Around<'_>) {
        if self.tok_a_seq > 1 {
            self.end_verifying(lasted, now, around);
        } else {
            self.end_decoding(lasted, now, around);
        }
        let chunks = std::mem::take(&mut self.chunks);
        for &(r, q) in &chunks {
            if around.requests[r].preemptions > 0 {
                around.counters.recomputed_tok += q;
            }
            self.end_chunk(r, q, now, around);
        }
        self.chunks = chunks;
        self.chunks.clear();
    }

    /// Ends the part of a step that decodes.
    #[inline]
    fn end_decoding(&mut self, lasted: Ps, now: Ps, around: &mut Around<'_>) {
        let n = self.seqs_in_step();
        let head_pj = around.table.head_pj[index(self.prompts.emitted + n)];
        self.book_step(lasted, (n, n, self.decoding.context), head_pj, around);
        if n > 0 {
            around.gaps.add(lasted, n - self.joined.len() as u64);
            if !self.joined.is_empty() {
                self.count_pauses(now, around);
            }
            self.decoding.pass(1);
            self.finish_due(now, around);
        }
    }

    /// Counts a step with prompt work; a mixed step is split by the time each part alone would take.
    ///
    /// Of those that decode: their number, their tokens in the step, and the context these attend to.
    #[expect(clippy::inline_always, reason = "at every step with prompt work")]
    #[inline(always)]
    pub(super) fn book_step(
        &self,
        lasted: Ps,
        (n, rows, context): (u64, u64, u64),
        head_pj: u64,
        around: &mut Around<'_>,
    ) {
        let prompts = &self.prompts;
        let table = around.table;
        let decode_attn_pj = if n > 0 { table.decode_attn_pj(n, context) } else { 0 };
        let alone = table.linear_ps[index(prompts.tok)] + prompts.attn.prefill;
        let both = u128::from(alone)
            + if n > 0 {
                u128::from(table.linear_ps[index(rows)] + prompts.attn.decode)
            } else {
                0
            };
        let share = |whole: u64| {
            if n == 0 || whole == 0 {
                return whole;
            }
            let share = u128::from(whole) * u128::from(alone) / both;
            u64::try_from(share).expect("Invariant: a part is at most the whole")
        };
        let (linear, head) = (table.linear_pj[index(prompts.tok + rows)], prompts.emitted + rows);
        let (prefill_ps, linear_share) = (share(lasted), share(linear));
        let head_pj = u128::from(head_pj);
        let head_share =
            if head == 0 { 0 } else { head_pj * u128::from(prompts.emitted) / u128::from(head) };
        let counters = &mut *around.counters;
        counters.steps += 1;
        counters.prefill_ps += u128::from(prefill_ps);
        counters.decode_ps += u128::from(lasted - prefill_ps);
        counters.capped_ps += u128::from(prompts.capped_ps);
        counters.prefill_tok += prompts.tok;
        counters.decode_tok += n;
        counters.prefill_linear_pj += u128::from(linear_share);
        counters.decode_linear_pj += u128::from(linear - linear_share);
        counters.prefill_head_pj += head_share;
        counters.decode_head_pj += head_pj - head_share;
        counters.prefill_attn_pj += prompts.attn_pj;
        counters.decode_attn_pj += u128::from(decode_attn_pj);
        counters.emitted_tok += n;
    }

    /// The gap of a request that joined in this step reaches back to its last token elsewhere.
    #[inline(never)]
    pub(super) fn count_pauses(&mut self, now: Ps, around: &mut Around<'_>) {
        for r in self.joined.drain(..) {
            if around.requests[r].generated == 0 {
                around.requests.first_ps[r as usize] = now;
                if around.requests[r].osl_tok > 1 {
                    around.told.push(r);
                }
            } else {
                around.gaps.add(now - around.requests[r].paused_ps, 1);
            }
        }
    }

    /// `q` more tokens of `r` are computed; with the last of them a token comes out.
    fn end_chunk(&mut self, r: u32, q: u64, now: Ps, around: &mut Around<'_>) {
        let computed = self.computed(r, around.requests) + q;
        around.requests[r].computed = computed.cast_signed();
        if self.prompts_alone {
            self.register_shared(r, computed - q, computed, around);
        }
        if computed < around.requests.num_tok(r) {
            return;
        }
        if self.partial == r {
            self.partial = NONE;
        }
        let prefill_pool = around.pool(self.pool).role == Role::Prefill;
        if prefill_pool {
            self.load -= u64::from(around.requests[r].isl_tok - around.requests[r].cached_tok);
        }
        self.settle_prompt(r, around);
        if around.prompt_end_emits(self.pool) {
            emit_at_prompt_end(r, now, around);
            if around.requests[r].generated == around.requests[r].osl_tok {
                self.running.unlink(r, around.requests);
                self.give_back(r, computed, around.requests, around.counters, around.fleet);
                self.complete(r, now, around);
                return;
            }
        }
        if prefill_pool {
            self.running.unlink(r, around.requests);
            self.context_tok -= u64::from(around.requests[r].isl_tok);
            around.requests[r].state = State::Handed;
            around.requests[r].paused_ps = now;
            around.handed.push(r);
        } else {
            self.decoding.enter(r, computed, around.requests);
            if self.prompts_alone {
                self.joined.push(r);
            }
        }
    }

    /// The prompt that was routed here is computed: it no longer counts as work to come.
    pub(crate) fn settle_prompt(&mut self, r: u32, around: &mut Around<'_>) {
        let charged = u64::from(std::mem::take(&mut around.requests[r].charged_tok));
        if charged > 0 {
            self.prompt_tok -= charged;
            if around.fleet.routing == Routing::LeastTtft {
                let hit = u64::from(around.requests[r].isl_tok) - charged;
                let spec = around.pool(self.pool);
                self.queue_ps -= spec.table.prompt_ps(charged, hit, spec.token_budget);
            }
        }
    }

    pub(super) fn finish_due(&mut self, now: Ps, around: &mut Around<'_>) {
        while let Some(r) = self.decoding.pop_finished(around.requests) {
            let computed = self.decoding.leave(r, around.requests);
            self.running.unlink(r, around.requests);
            // Before the state changes: the row's counts are relative while it decodes.
            around.requests[r].generated = around.requests[r].osl_tok;
            around.requests[r].state = State::Done;
            self.give_back(r, computed, around.requests, around.counters, around.fleet);
            self.complete(r, now, around);
        }
    }

    fn complete(&mut self, r: u32, now: Ps, around: &mut Around<'_>) {
        around.requests.last_ps[r as usize] = now;
        around.requests[r].state = State::Done;
        around.told.push(r);
        if self.prompts_alone {
            self.outlook.is_full = false;
        }
        self.context_tok -= u64::from(around.requests[r].isl_tok);
        if around.pool(self.pool).role != Role::Prefill {
            self.load -= 1;
        }
    }
}

/// A prompt is complete, or computed again: a token comes out.
fn emit_at_prompt_end(r: u32, now: Ps, around: &mut Around<'_>) {
    if around.requests[r].generated == 0 {
        around.requests.first_ps[r as usize] = now;
        // A request of one token is told of once, when it is complete.
        if around.requests[r].osl_tok > 1 {
            around.told.push(r);
        }
    } else {
        around.gaps.add(now - around.requests[r].paused_ps, 1);
    }
    around.requests[r].generated += 1;
    around.requests[r].paused_ps = now;
    around.counters.emitted_tok += 1;
}

/// Length of `steps` steps that grow from `first` by `growth` each.
pub(super) fn run_ps(first: Ps, growth: Ps, steps: u64) -> Ps {
    first * steps + growth * (steps * (steps - 1) / 2)
}

/// The least number of steps whose length reaches `target`.
pub(super) fn steps_to_reach(target: Ps, first: Ps, growth: Ps) -> u64 {
    if growth == 0 {
        return target.div_ceil(first).max(1);
    }
    let (a, b, t) = (first as f64, growth as f64, target as f64);
    let half = a - b / 2.0;
    let root = ((half * half + 2.0 * b * t).sqrt() - half) / b;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "corrected below")]
    let mut steps = (root.max(1.0)) as u64;
    while steps > 1 && run_ps(first, growth, steps - 1) >= target {
        steps -= 1;
    }
    while run_ps(first, growth, steps) < target {
        steps += 1;
    }
    steps
}
