//! One replica: continuous batching by the vLLM v1 step rule, with runs of decode steps in closed
//! form.
//!
//! A step is planned in two stages. *Running first*: every decoding request gets one token, then
//! the one unfinished prompt gets what is left of the token budget; when blocks run out, the last of
//! the running list is preempted. *Then waiting*, only if nothing was preempted: requests whose KV
//! cache has been pulled, then those whose prefix has been read back, then the queue in order,
//! stopping at the first that does not fit.
//!
//! Because the budget is at least `max_seqs`, every decoding request advances in every step. So a
//! request needs no visit while it decodes: a request's own state is relative to the step counter. A
//! stretch of steps without prompt work is one event, whatever its length: step `j` of it lasts
//! `first + j·growth`.
//!
//! | file | what |
//! |---|---|
//! | [`decoding`] | those that yield a token a step, as a whole |
//! | [`list`] | the running list |
//! | [`plan`] | who is in the next step |
//! | [`price`] | what the step costs, and what its end changes |
//! | [`memory`] | blocks, taken and given back |

mod decoding;
mod list;
mod memory;
mod plan;
mod price;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::cache::Cache;
use super::clock::Ps;
use super::fleet::{FirstToken, FleetSpec, Policy, PoolSpec, Role};
use super::metrics::{Counters, Gaps};
use super::request::{NONE, Requests, State};
use decoding::Decoding;
use list::RunningList;
use price::{Pace, Prompts, run_ps, steps_to_reach};

/// What a replica is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Nothing,
    /// Waits for more prompts to fill a pass.
    Holding,
    /// One step with prompt work in it.
    Step {
        start: Ps,
        end: Ps,
    },
    /// `steps` decode steps; it ends early when something arrives that could be admitted.
    Run {
        start: Ps,
        first: Ps,
        growth: Ps,
        steps: u64,
    },
}

/// The state of one replica.
#[derive(Debug, Clone)]
pub(crate) struct Replica {
    pub(crate) pool: usize,
    doing: Doing,
    /// Pace of the run under way, or of the last one.
    pace: Pace,
    /// What the prompts of the step under way cost alone.
    prompts: Prompts,
    decoding: Decoding,
    free: u64,
    cache: Option<Cache>,
    policy: Policy,
    running: RunningList,
    /// The unfinished prompt; always the last of the running list.
    partial: u32,
    /// Requests whose KV cache or prefix is on the way.
    coming: u64,
    waiting: VecDeque<u32>,
    /// Their KV cache has been pulled; they decode from the next step on.
    ready: VecDeque<u32>,
    /// Their prefix has been read back; the rest of the prompt is computed next.
    loaded: VecDeque<u32>,
    /// Until then, evictions of the run under way are up to date.
    settled_to: Ps,
    chunks: Vec<(u32, u64)>,
    /// Requests that decode for the first time since a hand-over in the coming step.
    joined: Vec<u32>,
    link_free: Ps,
    /// Unfinished requests; on a prefill replica, prompt tokens to compute.
    pub(crate) load: u64,
    /// Prompt tokens that were to be computed when the requests were routed here, until they are.
    pub(crate) prompt_tok: u64,
    /// Prompt tokens of all requests that are here.
    pub(crate) context_tok: u64,
    /// Estimated time of the prompts that were routed here and are not computed [ps].
    pub(crate) queue_ps: u64,
}

/// What a replica needs beside itself.
pub(crate) struct Around<'a> {
    pub(crate) fleet: &'a FleetSpec,
    pub(crate) requests: &'a mut Requests,
    pub(crate) counters: &'a mut Counters,
    pub(crate) gaps: &'a mut Gaps,
    /// Pulls and read-backs under way: (end, request).
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
            pace: Pace::default(),
            prompts: Prompts::default(),
            decoding: Decoding::new(block_tok),
            free: spec.kv_blocks,
            cache: spec.cache.clone().map(Cache::new),
            policy: spec.policy,
            running: RunningList::new(),
            partial: NONE,
            coming: 0,
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
            loaded: VecDeque::new(),
            settled_to: 0,
            chunks: Vec::new(),
            joined: Vec::new(),
            link_free: 0,
            load: 0,
            prompt_tok: 0,
            context_tok: 0,
            queue_ps: 0,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.doing, Doing::Nothing | Doing::Holding)
    }

    /// When what is under way began, if it computes anything.
    pub(crate) fn started(&self) -> Option<Ps> {
        match self.doing {
            Doing::Step { start, .. } | Doing::Run { start, .. } => Some(start),
            Doing::Nothing | Doing::Holding => None,
        }
    }

    pub(crate) fn free_blocks(&self) -> u64 {
        self.free
    }

    /// Requests admitted or on their way in.
    fn admitted(&self) -> u64 {
        self.running.len + self.coming + (self.ready.len() + self.loaded.len()) as u64
    }

    /// Puts `r` at the end of the queue; returns a new end when that cuts a run short.
    pub(crate) fn enqueue(&mut self, r: u32, now: Ps, spec: &PoolSpec) -> Option<Ps> {
        let cut = self.waiting.is_empty() && self.running.len + self.coming < spec.max_seqs;
        self.waiting.push_back(r);
        if cut { self.cut(now, spec) } else { None }
    }

    /// Takes `r`, whose KV cache or prefix has come; returns a new end when that cuts a run short.
    #[inline(never)]
    pub(crate) fn receive(&mut self, r: u32, now: Ps, around: &mut Around<'_>) -> Option<Ps> {
        self.coming -= 1;
        let cut = if around.requests[r].state == State::Loading {
            around.requests[r].state = State::Loaded;
            self.loaded.push_back(r);
            self.loaded.len() == 1
        } else {
            around.requests[r].state = State::Ready;
            self.settle_evictions(now, around.counters, around.fleet);
            self.register_pulled(r, around.requests, around.fleet);
            self.ready.push_back(r);
            self.ready.len() == 1
        };
        let spec = &around.fleet.pools[self.pool];
        if cut { self.cut(now, spec) } else { None }
    }

    /// Ends an open run at its first step boundary at or after `now`.
    fn cut(&mut self, now: Ps, spec: &PoolSpec) -> Option<Ps> {
        let Doing::Run { start, first, growth, steps } = self.doing else { return None };
        if spec.token_budget <= self.decoding.n {
            return None;
        }
        let fewer = steps_to_reach(now - start, first, growth).clamp(1, steps);
        self.doing = Doing::Run { start, first, growth, steps: fewer };
        Some(start + run_ps(first, growth, fewer))
    }

    /// Ends what is under way at `now`.
    pub(crate) fn end(&mut self, now: Ps, around: &mut Around<'_>) {
        match std::mem::replace(&mut self.doing, Doing::Nothing) {
            Doing::Nothing => debug_assert!(false, "Invariant: only what runs can end"),
            Doing::Holding => {}
            Doing::Run { first, growth, steps, .. } => {
                self.end_run(first, growth, steps, now, around);
            }
            Doing::Step { start, end } => self.end_step(end - start, now, around),
        }
    }

    /// Throws `r` out of the running list, to the head of the queue.
    #[inline(never)]
    fn preempt(&mut self, r: u32, now: Ps, around: &mut Around<'_>) {
        let computed = if around.requests[r].state == State::Decoding {
            // `generated` is not kept up while decoding.
            let left = around.requests[r].finish_step() - self.decoding.step;
            around.requests[r].generated =
                around.requests[r].osl_tok - u32::try_from(left).expect("an output length");
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
    fn give_up(&mut self, r: u32, computed: u64, around: &mut Around<'_>) {
        self.give_back(r, computed, around.requests, around.counters, around.fleet);
        around.requests[r].computed = 0;
        around.requests[r].state = State::Queued;
        around.requests[r].preemptions = around.requests[r].preemptions.saturating_add(1);
        around.counters.preemptions += 1;
        self.waiting.push_front(r);
    }

    fn computed(&self, r: u32, requests: &Requests) -> u64 {
        self.decoding.computed(r, requests)
    }
}
