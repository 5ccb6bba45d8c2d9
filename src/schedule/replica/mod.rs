//! One replica: continuous batching, with runs of decode steps in closed form.
//!
//! Because the budget is at least `max_seqs`, every decoding request advances in every step it is
//! in. So a request needs no visit while it decodes: a request's own state is relative to the step
//! counter. A stretch of steps without prompt work is one event, whatever its length: step `j` of it
//! lasts `first + j·growth`.
//!
//! | file | what |
//! |---|---|
//! | [`decoding`] | those that yield a token a step, as a whole |
//! | [`list`] | the running list |
//! | [`plan`] | when the next step begins |
//! | [`vllm`] | who is in it by vLLM's rule, and by Orca's and that of static batches |
//! | [`sglang`] | who is in it by SGLang's rule |
//! | [`admission`] | how a request comes in |
//! | [`failure`] | what is left when it fails |
//! | [`preemption`] | who is thrown out when blocks run out |
//! | [`price`] | what the step costs, and what its end changes |
//! | [`speculation`] | the same where drafts are verified |
//! | [`memory`] | blocks, taken and given back |

mod admission;
mod decoding;
mod failure;
mod list;
mod memory;
mod plan;
mod preemption;
mod price;
mod sglang;
mod speculation;
mod vllm;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::cache::Cache;
use super::clock::Ps;
use super::fleet::{FirstToken, FleetSpec, Policy, PoolSpec, Role};
use super::metrics::{Counters, Gaps};
use super::request::{NONE, Requests, State};
use super::steps::StepTable;
use decoding::Decoding;
use list::RunningList;
use price::{Pace, Prompts, run_ps, steps_to_reach};
use sglang::Outlook;
use speculation::Drafts;

/// What a replica is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Nothing,
    /// It is down.
    Failed,
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
    /// Tokens of each decoding request in a step: one, and those that were drafted.
    tok_a_seq: u64,
    /// What drafting costs in the step under way.
    drafts: Box<Drafts>,
    /// Prompts run without the requests that decode: these wait for the next step without prompts.
    prompts_alone: bool,
    /// What SGLang's rule expects of the requests that decode.
    outlook: Box<Outlook>,
    /// End of the last step in which anything decoded, where prompts run alone.
    last_decode: Ps,
    /// How long the requests that decode have waited for prompts before the step under way.
    stalled_ps: Ps,
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
    /// Requests that decode for the first time here in the coming step with decoding in it.
    joined: Vec<u32>,
    link_free: Ps,
    /// How much longer its link takes, in 1/1024.
    pub(crate) link_1024: u64,
    /// Why it is down: so many faults.
    pub(crate) troubles: u32,
    /// End of the last step before a failure.
    pub(crate) stopped_ps: Ps,
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
    /// What the step under way costs, or the next one.
    pub(crate) table: &'a StepTable,
    /// What a step that begins now takes at least.
    pub(crate) cap: Option<&'a StepTable>,
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
            tok_a_seq: 1 + spec.drafts(),
            drafts: Box::default(),
            prompts_alone: matches!(spec.policy, Policy::Sglang(_)),
            outlook: Box::new(Outlook::new(spec.policy)),
            last_decode: 0,
            stalled_ps: 0,
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
            link_1024: 1024,
            troubles: 0,
            stopped_ps: 0,
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
            Doing::Nothing | Doing::Holding | Doing::Failed => None,
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
        let cut = if self.prompts_alone {
            !self.outlook.is_full
        } else {
            self.waiting.is_empty() && self.running.len + self.coming < spec.max_seqs
        };
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
            if self.prompts_alone {
                self.outlook.is_full = false;
            }
            self.loaded.len() == 1 || self.prompts_alone
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

    /// As [`Replica::cut_at`], if the step that begins there could admit anybody.
    fn cut(&mut self, now: Ps, spec: &PoolSpec) -> Option<Ps> {
        if spec.token_budget <= self.decoding.n && !self.prompts_alone {
            return None;
        }
        self.cut_at(now)
    }

    /// Ends an open run at its first step boundary at or after `now`.
    pub(crate) fn cut_at(&mut self, now: Ps) -> Option<Ps> {
        let Doing::Run { start, first, growth, steps } = self.doing else { return None };
        let fewer = steps_to_reach(now - start, first, growth).clamp(1, steps);
        self.doing = Doing::Run { start, first, growth, steps: fewer };
        Some(start + run_ps(first, growth, fewer))
    }

    /// Ends what is under way at `now`.
    pub(crate) fn end(&mut self, now: Ps, around: &mut Around<'_>) {
        match std::mem::replace(&mut self.doing, Doing::Nothing) {
            Doing::Nothing | Doing::Failed => {
                debug_assert!(false, "Invariant: only what runs can end");
            }
            Doing::Holding => {}
            Doing::Run { first, growth, steps, .. } => {
                self.end_run(first, growth, steps, now, around);
            }
            Doing::Step { start, end } => self.end_step(end - start, now, around),
        }
    }

    /// Sequences that decode in the planned step.
    fn seqs_in_step(&self) -> u64 {
        if self.prompts_alone && !self.chunks.is_empty() { 0 } else { self.decoding.n }
    }

    fn computed(&self, r: u32, requests: &Requests) -> u64 {
        self.decoding.computed(r, requests)
    }
}
