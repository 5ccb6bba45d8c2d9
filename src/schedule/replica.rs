//! One replica: continuous batching by the vLLM v1 step rule, with runs of decode steps in closed
//! form.
//!
//! A step is planned in two stages. *Running first*: every decoding request gets one token, then
//! the one unfinished prompt gets what is left of the token budget; when blocks run out, the last of
//! the running list is preempted. *Then waiting*, only if nothing was preempted: requests whose KV
//! cache has been pulled, then the queue in order, stopping at the first that does not fit.
//!
//! Because the budget is at least `max_seqs`, every decoding request advances in every step. So a
//! request needs no visit while it decodes: the replica keeps their number `n`, the sum of their
//! contexts, and how many of them stand at each position within a block; a request's own state is
//! relative to the step counter. A stretch of steps without prompt work is one event, whatever its
//! length: step `j` of it lasts `first + j·growth`.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::clock::{NEVER, Ps};
use super::fleet::{FirstToken, FleetSpec, PoolSpec, Role};
use super::metrics::{Counters, Gaps};
use super::request::{NONE, Requests, State};
use super::steps::index;

/// Runs are cut here so that their length stays far inside a `u64` of picoseconds.
const LONGEST_RUN: u64 = 1 << 12;

/// What a replica is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Nothing,
    /// One step with prompt work in it.
    Step {
        start: Ps,
        end: Ps,
        /// What its prompts cost alone.
        prompts: Prompts,
    },
    /// `steps` decode steps; it ends early when something arrives that could be admitted.
    Run {
        start: Ps,
        first: Ps,
        growth: Ps,
        steps: u64,
    },
}

/// The prompt work of one step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Prompts {
    tok: u64,
    /// Prompts that end, and yield a token.
    emitted: u64,
    attn_ps: u64,
    attn_pj: u128,
}

/// The state of one replica.
#[derive(Debug, Clone)]
pub(crate) struct Replica {
    pub(crate) pool: usize,
    doing: Doing,
    step: u64,
    /// `step` modulo the block size.
    phase: usize,
    decoding: u64,
    context: u64,
    /// Decoding requests by the step, modulo the block size, at which each needs its next block.
    due: Vec<u32>,
    free: u64,
    first: u32,
    last: u32,
    /// The unfinished prompt; always the last of the running list.
    partial: u32,
    /// Requests in the running list.
    running: u64,
    pulling: u64,
    waiting: VecDeque<u32>,
    ready: VecDeque<u32>,
    finish: BinaryHeap<Reverse<(u64, u32)>>,
    chunks: Vec<(u32, u64)>,
    /// Requests that decode for the first time since a hand-over in the coming step.
    joined: Vec<u32>,
    link_free: Ps,
    pub(crate) load: u64,
}

/// What a replica needs beside itself.
pub(crate) struct Around<'a> {
    pub(crate) fleet: &'a FleetSpec,
    pub(crate) requests: &'a mut Requests,
    pub(crate) counters: &'a mut Counters,
    pub(crate) gaps: &'a mut Gaps,
    /// Pulls under way: (end, request).
    pub(crate) pulls: &'a mut BinaryHeap<Reverse<(Ps, u32)>>,
    /// Prompts that ended in a step of a prefill pool.
    pub(crate) handed: &'a mut Vec<u32>,
    /// Requests that emitted their first or last token in a step.
    pub(crate) told: &'a mut Vec<u32>,
}

impl Around<'_> {
    fn pool(&self, pool: usize) -> &PoolSpec {
        &self.fleet.pools[pool]
    }

    /// Whether the end of a prompt on `pool` yields a token there.
    fn prompt_end_emits(&self, pool: usize) -> bool {
        self.pool(pool).role != Role::Prefill || self.fleet.first_token == FirstToken::Prefill
    }
}

impl Replica {
    pub(crate) fn new(pool: usize, spec: &PoolSpec, block_tok: u64) -> Self {
        Self {
            pool,
            doing: Doing::Nothing,
            step: 0,
            phase: 0,
            decoding: 0,
            context: 0,
            due: vec![0; index(block_tok)],
            free: spec.kv_blocks,
            first: NONE,
            last: NONE,
            partial: NONE,
            running: 0,
            pulling: 0,
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
            finish: BinaryHeap::new(),
            chunks: Vec::new(),
            joined: Vec::new(),
            link_free: 0,
            load: 0,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.doing == Doing::Nothing
    }

    pub(crate) fn free_blocks(&self) -> u64 {
        self.free
    }

    /// Puts `r` at the end of the queue; returns a new end when that cuts a run short.
    pub(crate) fn enqueue(&mut self, r: u32, now: Ps, spec: &PoolSpec) -> Option<Ps> {
        let cut = self.waiting.is_empty() && self.running + self.pulling < spec.max_seqs;
        self.waiting.push_back(r);
        if cut { self.cut(now, spec) } else { None }
    }

    /// Takes `r`, whose KV cache has come; returns a new end when that cuts a run short.
    pub(crate) fn receive(&mut self, r: u32, now: Ps, spec: &PoolSpec) -> Option<Ps> {
        let cut = self.ready.is_empty();
        self.ready.push_back(r);
        if cut { self.cut(now, spec) } else { None }
    }

    /// Gives back the blocks of a prompt that has been pulled away.
    pub(crate) fn release(&mut self, blocks: u64, counters: &mut Counters) {
        self.free += blocks;
        counters.blocks_freed += blocks;
    }

    /// Ends an open run at its first step boundary at or after `now`.
    fn cut(&mut self, now: Ps, spec: &PoolSpec) -> Option<Ps> {
        let Doing::Run { start, first, growth, steps } = self.doing else { return None };
        if spec.token_budget <= self.decoding {
            return None;
        }
        let fewer = steps_to_reach(now - start, first, growth).clamp(1, steps);
        self.doing = Doing::Run { start, first, growth, steps: fewer };
        Some(start + run_ps(first, growth, fewer))
    }

    /// Plans the next step at `now` and returns when it ends, [`NEVER`] when there is nothing to do.
    pub(crate) fn start(&mut self, now: Ps, around: &mut Around<'_>) -> Ps {
        debug_assert!(self.is_idle(), "Invariant: a replica starts only when it does nothing");
        loop {
            let preempted = self.plan_running(now, around);
            if !preempted {
                self.plan_waiting(now, around);
            }
            let tokens = self.decoding + self.chunks.iter().map(|&(_, q)| q).sum::<u64>();
            if tokens > 0 {
                return self.begin(now, preempted, tokens, around);
            }
            // Everything that ran was preempted: the blocks are free now, so try the queue again.
            if !preempted {
                return NEVER;
            }
        }
    }

    /// Stage one: blocks for everything that runs. Returns whether something was preempted.
    fn plan_running(&mut self, now: Ps, around: &mut Around<'_>) -> bool {
        debug_assert!(self.chunks.is_empty() && self.joined.is_empty());
        let needed = u64::from(self.due[self.phase]);
        let mut preempted = false;
        if needed <= self.free {
            self.take(needed, around.counters);
        } else {
            preempted = self.plan_decoding_one_by_one(now, around);
        }
        if self.partial != NONE {
            let r = self.partial;
            let budget = around.pool(self.pool).token_budget - self.decoding;
            let done = self.computed(r, around.requests);
            let q = (around.requests.num_tok(r) - done).min(budget);
            let blocks = self.blocks(done + q) - self.blocks(done);
            if blocks > self.free {
                self.preempt(r, now, around);
                return true;
            }
            self.take(blocks, around.counters);
            if q > 0 {
                self.chunks.push((r, q));
            }
        }
        preempted
    }

    /// Too few blocks for all: walk the running list and preempt from its end.
    fn plan_decoding_one_by_one(&mut self, now: Ps, around: &mut Around<'_>) -> bool {
        let mut r = self.first;
        let mut preempted = false;
        while r != NONE && r != self.partial {
            if self.computed(r, around.requests).is_multiple_of(self.block_tok()) {
                while self.free == 0 {
                    let victim = self.last;
                    self.preempt(victim, now, around);
                    preempted = true;
                    if victim == r {
                        return true;
                    }
                }
                self.take(1, around.counters);
            }
            r = around.requests[r].next;
        }
        preempted
    }

    /// Stage two: what has been pulled, then the queue in order.
    fn plan_waiting(&mut self, now: Ps, around: &mut Around<'_>) {
        let fleet = around.fleet;
        let spec = &fleet.pools[self.pool];
        let used: u64 = self.chunks.iter().map(|&(_, q)| q).sum::<u64>() + self.decoding;
        let mut budget = spec.token_budget - used;
        while budget > 0 && !self.ready.is_empty() {
            if !self.join(around) {
                break;
            }
            budget -= 1;
        }
        while budget > 0 && self.running + self.pulling + (self.ready.len() as u64) < spec.max_seqs
        {
            let Some(&r) = self.waiting.front() else { break };
            let total = around.requests.num_tok(r);
            let spare = if self.running > 0 { spec.watermark_blocks } else { 0 };
            if self.blocks(total) + spare > self.free {
                break;
            }
            self.waiting.pop_front();
            if around.requests[r].state == State::Handed {
                self.pull(r, now, around);
                continue;
            }
            let hit = u64::from(around.requests[r].cached_tok).min(total - 1);
            let q = (total - hit).min(budget);
            self.take(self.blocks(hit + q), around.counters);
            around.requests[r].computed = hit.cast_signed();
            around.requests[r].state = State::Prefilling;
            self.append(r, around.requests);
            self.chunks.push((r, q));
            budget -= q;
            if hit + q < total {
                self.partial = r;
            }
        }
    }

    /// Lets the first pulled request join the coming step; `false` when it has to wait.
    fn join(&mut self, around: &mut Around<'_>) -> bool {
        let r = self.ready[0];
        let computed = around.requests[r].computed.unsigned_abs();
        if computed.is_multiple_of(self.block_tok()) {
            while self.free == 0 {
                if self.running > 0 {
                    return false;
                }
                // Nothing runs that could free a block: give up the latest pulled cache.
                let Some(victim) = self.ready.pop_back() else { return false };
                let held = self.blocks(around.requests[victim].computed.unsigned_abs());
                self.give_up(victim, held, around);
                if victim == r {
                    return false;
                }
            }
            self.take(1, around.counters);
        }
        self.ready.pop_front();
        self.append(r, around.requests);
        self.joined.push(r);
        self.enter_decoding(r, computed, self.step, around.requests);
        true
    }

    /// Reserves room for a handed-over prompt and starts to pull its KV cache.
    fn pull(&mut self, r: u32, now: Ps, around: &mut Around<'_>) {
        let tokens = match around.fleet.first_token {
            FirstToken::Prefill => u64::from(around.requests[r].isl_tok),
            // The last prompt token is computed here again, to emit the first token.
            FirstToken::Decode => u64::from(around.requests[r].isl_tok) - 1,
        };
        self.take(self.blocks(tokens), around.counters);
        around.requests[r].computed = tokens.cast_signed();
        around.requests[r].state = State::Pulling;
        self.pulling += 1;
        let link = around.fleet.link;
        let wire = link.tok_ps * tokens;
        let begin = self.link_free.max(now);
        self.link_free = begin + wire;
        around.counters.link_ps += u128::from(wire);
        around.counters.pulled_tok += tokens;
        around.pulls.push(Reverse((begin + wire + link.latency_ps, r)));
    }

    /// Marks the end of a pull; the request joins at the next step.
    pub(crate) fn pulled(&mut self, r: u32, requests: &mut Requests) {
        self.pulling -= 1;
        requests[r].state = State::Ready;
    }

    /// Prices the planned step and sets it going.
    fn begin(&mut self, now: Ps, preempted: bool, tokens: u64, around: &mut Around<'_>) -> Ps {
        let spec = &around.fleet.pools[self.pool];
        let table = &*spec.table;
        let n = self.decoding;
        let decode = if n > 0 { table.decode_attn_ps(n, self.context) } else { 0 };
        if self.chunks.is_empty() {
            let first = table.step_ps(n, n, 0, decode);
            let growth = table.decode_attn_ctx_ps[index(n)] * n;
            let steps = if preempted || !self.joined.is_empty() {
                1
            } else {
                let finish = self.steps_to_first_finish(around.requests);
                1 + self.steps_in_blocks(finish.min(LONGEST_RUN) - 1)
            };
            self.doing = Doing::Run { start: now, first, growth, steps };
            return now + run_ps(first, growth, steps);
        }
        let requests = &*around.requests;
        let emits = around.prompt_end_emits(self.pool);
        let mut prompts = Prompts { tok: tokens - n, ..Prompts::default() };
        for &(r, q) in &self.chunks {
            let kv = self.computed(r, requests);
            let (ps, pj) = table.chunk_attn(q, kv);
            prompts.attn_ps += ps;
            prompts.attn_pj += u128::from(pj);
            prompts.emitted += u64::from(emits && kv + q == requests.num_tok(r));
        }
        let end = now + table.step_ps(tokens, prompts.emitted + n, prompts.attn_ps, decode);
        self.doing = Doing::Step { start: now, end, prompts };
        end
    }

    /// Ends what is under way at `now`.
    pub(crate) fn end(&mut self, now: Ps, around: &mut Around<'_>) {
        match std::mem::replace(&mut self.doing, Doing::Nothing) {
            Doing::Nothing => debug_assert!(false, "Invariant: only what runs can end"),
            Doing::Run { first, growth, steps, .. } => {
                self.end_run(first, growth, steps, now, around);
            }
            Doing::Step { start, end, prompts } => {
                self.end_step(end - start, &prompts, now, around);
            }
        }
    }

    fn end_run(&mut self, first: Ps, growth: Ps, steps: u64, now: Ps, around: &mut Around<'_>) {
        let table = &*around.fleet.pools[self.pool].table;
        let (n, k) = (self.decoding, u128::from(steps));
        let counters = &mut *around.counters;
        counters.steps += steps;
        counters.decode_ps += u128::from(run_ps(first, growth, steps));
        counters.decode_tok += n * steps;
        counters.emitted_tok += n * steps;
        counters.decode_linear_pj += k * u128::from(table.linear_pj[index(n)]);
        counters.decode_head_pj += k * u128::from(table.head_pj[index(n)]);
        let contexts = k * u128::from(self.context) + u128::from(n) * (k * (k - 1) / 2);
        counters.decode_attn_pj += k * u128::from(table.decode_attn_floor_pj[index(n)])
            + u128::from(table.decode_attn_ctx_pj[index(n)]) * contexts;
        // The first step's blocks were taken when it was planned.
        let blocks = self.blocks_after_first(steps - 1);
        self.take(blocks, counters);
        if self.joined.is_empty() {
            around.gaps.add_run(first, growth, steps, n);
        } else {
            around.gaps.add(first, n - self.joined.len() as u64);
            self.count_pauses(now, around);
        }
        self.pass(steps);
        self.finish_due(now, around);
    }

    fn end_step(&mut self, lasted: Ps, prompts: &Prompts, now: Ps, around: &mut Around<'_>) {
        let table = &*around.fleet.pools[self.pool].table;
        let n = self.decoding;
        let decode_attn_ps = if n > 0 { table.decode_attn_ps(n, self.context) } else { 0 };
        let decode_attn_pj = if n > 0 { table.decode_attn_pj(n, self.context) } else { 0 };
        // A mixed step is split by the time each part alone would take.
        let alone = table.linear_ps[index(prompts.tok)] + prompts.attn_ps;
        let both = u128::from(alone)
            + if n > 0 { u128::from(table.linear_ps[index(n)] + decode_attn_ps) } else { 0 };
        let share = |whole: u64| {
            if n == 0 || whole == 0 {
                return whole;
            }
            let share = u128::from(whole) * u128::from(alone) / both;
            u64::try_from(share).expect("Invariant: a part is at most the whole")
        };
        let (linear, head) = (table.linear_pj[index(prompts.tok + n)], prompts.emitted + n);
        let (prefill_ps, linear_share) = (share(lasted), share(linear));
        let head_pj = u128::from(table.head_pj[index(head)]);
        let head_share =
            if head == 0 { 0 } else { head_pj * u128::from(prompts.emitted) / u128::from(head) };
        let counters = &mut *around.counters;
        counters.steps += 1;
        counters.prefill_ps += u128::from(prefill_ps);
        counters.decode_ps += u128::from(lasted - prefill_ps);
        counters.prefill_tok += prompts.tok;
        counters.decode_tok += n;
        counters.prefill_linear_pj += u128::from(linear_share);
        counters.decode_linear_pj += u128::from(linear - linear_share);
        counters.prefill_head_pj += head_share;
        counters.decode_head_pj += head_pj - head_share;
        counters.prefill_attn_pj += prompts.attn_pj;
        counters.decode_attn_pj += u128::from(decode_attn_pj);
        counters.emitted_tok += n;
        around.gaps.add(lasted, n - self.joined.len() as u64);
        self.count_pauses(now, around);
        self.pass(1);
        self.finish_due(now, around);
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

    /// The gap of a request that joined in this step reaches back to its last token elsewhere.
    fn count_pauses(&mut self, now: Ps, around: &mut Around<'_>) {
        for r in self.joined.drain(..) {
            let at = r as usize;
            if around.requests[r].generated == 0 {
                around.requests.first_ps[at] = now;
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
        if around.prompt_end_emits(self.pool) {
            emit_at_prompt_end(r, now, around);
            if around.requests[r].generated == around.requests[r].osl_tok {
                self.unlink(r, around.requests);
                self.release(self.blocks(computed), around.counters);
                self.complete(r, now, around);
                return;
            }
        }
        if prefill_pool {
            self.unlink(r, around.requests);
            around.requests[r].state = State::Handed;
            around.handed.push(r);
        } else {
            self.enter_decoding(r, computed, self.step, around.requests);
        }
    }

    /// From here on `r` yields a token in every step.
    fn enter_decoding(&mut self, r: u32, computed: u64, step: u64, requests: &mut Requests) {
        requests[r].state = State::Decoding;
        requests[r].computed = computed.cast_signed() - step.cast_signed();
        let left = u64::from(requests[r].osl_tok - requests[r].generated);
        self.finish.push(Reverse((step + left, r)));
        self.decoding += 1;
        self.context += computed + 1;
        let due = due_at(requests[r].computed, self.block_tok());
        self.due[due] += 1;
    }

    fn leave_decoding(&mut self, r: u32, requests: &Requests) -> u64 {
        let computed = self.computed(r, requests);
        self.decoding -= 1;
        self.context -= computed + 1;
        let due = due_at(requests[r].computed, self.block_tok());
        self.due[due] -= 1;
        computed
    }

    fn finish_due(&mut self, now: Ps, around: &mut Around<'_>) {
        while let Some(&Reverse((step, r))) = self.finish.peek() {
            if step > self.step {
                break;
            }
            self.finish.pop();
            // An entry from before a preemption is stale.
            let valid = around.requests[r].state == State::Decoding
                && around.requests[r].finish_step() == step;
            if !valid {
                continue;
            }
            let computed = self.leave_decoding(r, around.requests);
            self.unlink(r, around.requests);
            self.release(self.blocks(computed), around.counters);
            around.requests[r].generated = around.requests[r].osl_tok;
            self.complete(r, now, around);
        }
    }

    fn complete(&mut self, r: u32, now: Ps, around: &mut Around<'_>) {
        around.requests.last_ps[r as usize] = now;
        around.requests[r].state = State::Done;
        around.told.push(r);
        if around.pool(self.pool).role != Role::Prefill {
            self.load -= 1;
        }
    }

    /// Throws `r` out of the running list, to the head of the queue.
    fn preempt(&mut self, r: u32, now: Ps, around: &mut Around<'_>) {
        let computed = if around.requests[r].state == State::Decoding {
            // `generated` is kept relative to the step counter while decoding.
            let left = around.requests[r].finish_step() - self.step;
            around.requests[r].generated =
                around.requests[r].osl_tok - u32::try_from(left).expect("an output length");
            around.requests[r].paused_ps = now;
            self.leave_decoding(r, around.requests)
        } else {
            self.partial = NONE;
            around.requests[r].computed.unsigned_abs()
        };
        self.unlink(r, around.requests);
        self.give_up(r, self.blocks(computed), around);
    }

    /// Frees what `r` holds; it will be recomputed from the head of the queue.
    fn give_up(&mut self, r: u32, held: u64, around: &mut Around<'_>) {
        self.release(held, around.counters);
        around.requests[r].computed = 0;
        around.requests[r].state = State::Queued;
        around.requests[r].preemptions = around.requests[r].preemptions.saturating_add(1);
        around.counters.preemptions += 1;
        self.waiting.push_front(r);
    }

    fn take(&mut self, blocks: u64, counters: &mut Counters) {
        self.free -= blocks;
        counters.blocks_taken += blocks;
    }

    fn computed(&self, r: u32, requests: &Requests) -> u64 {
        let stored = requests[r].computed;
        if requests[r].state == State::Decoding {
            (stored + self.step.cast_signed()).unsigned_abs()
        } else {
            stored.unsigned_abs()
        }
    }

    fn block_tok(&self) -> u64 {
        self.due.len() as u64
    }

    fn blocks(&self, tokens: u64) -> u64 {
        tokens.div_ceil(self.block_tok())
    }

    fn steps_to_first_finish(&mut self, requests: &Requests) -> u64 {
        while let Some(&Reverse((step, r))) = self.finish.peek() {
            if requests[r].state == State::Decoding && requests[r].finish_step() == step {
                return step - self.step;
            }
            self.finish.pop();
        }
        1
    }

    /// Blocks taken by the `steps` steps after the coming one.
    fn blocks_after_first(&self, steps: u64) -> u64 {
        let block = self.block_tok();
        let (whole, rest) = (steps / block, index(steps % block));
        let from = self.wrapped(self.phase + 1);
        let until = (from + rest).min(self.due.len());
        let wrapped = from + rest - until;
        let sum = |part: &[u32]| part.iter().map(|&due| u64::from(due)).sum::<u64>();
        whole * self.decoding + sum(&self.due[from..until]) + sum(&self.due[..wrapped])
    }

    /// Steps after the first, already planned one, that the free blocks allow, at most `most`.
    fn steps_in_blocks(&self, most: u64) -> u64 {
        let block = self.block_tok();
        if self.free >= self.decoding * most.div_ceil(block) {
            return most;
        }
        let mut steps = self.free / self.decoding * block;
        let mut left = self.free % self.decoding;
        let mut phase = self.wrapped(self.phase + 1);
        while steps < most {
            let due = u64::from(self.due[phase]);
            if due > left {
                break;
            }
            left -= due;
            steps += 1;
            phase = self.wrapped(phase + 1);
        }
        steps.min(most)
    }

    fn wrapped(&self, phase: usize) -> usize {
        if phase == self.due.len() { 0 } else { phase }
    }

    /// Lets `steps` steps pass for everything that decodes.
    fn pass(&mut self, steps: u64) {
        self.step += steps;
        self.context += self.decoding * steps;
        let phase = self.phase as u64 + steps;
        let block = self.block_tok();
        self.phase = index(if phase < block { phase } else { phase % block });
    }

    fn append(&mut self, r: u32, requests: &mut Requests) {
        self.running += 1;
        requests[r].prev = self.last;
        requests[r].next = NONE;
        if self.last == NONE {
            self.first = r;
        } else {
            requests[self.last].next = r;
        }
        self.last = r;
    }

    fn unlink(&mut self, r: u32, requests: &mut Requests) {
        self.running -= 1;
        let (prev, next) = (requests[r].prev, requests[r].next);
        if prev == NONE {
            self.first = next;
        } else {
            requests[prev].next = next;
        }
        if next == NONE {
            self.last = prev;
        } else {
            requests[next].prev = prev;
        }
    }
}

/// A prompt is complete, or computed again: a token comes out.
fn emit_at_prompt_end(r: u32, now: Ps, around: &mut Around<'_>) {
    let at = r as usize;
    if around.requests[r].generated == 0 {
        around.requests.first_ps[at] = now;
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

/// The step counter, modulo the block size, at which a decoding request needs a block.
fn due_at(relative: i64, block_tok: u64) -> usize {
    index((-relative).rem_euclid(block_tok.cast_signed()).unsigned_abs())
}

/// Length of `steps` steps that grow from `first` by `growth` each.
fn run_ps(first: Ps, growth: Ps, steps: u64) -> Ps {
    first * steps + growth * (steps * (steps - 1) / 2)
}

/// The least number of steps whose length reaches `target`.
fn steps_to_reach(target: Ps, first: Ps, growth: Ps) -> u64 {
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
