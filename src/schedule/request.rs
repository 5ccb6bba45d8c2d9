//! One request's life, for all requests at once: a structure of arrays.
//!
//! ```text
//! Queued ─► Prefilling ─► Decoding ─► Done                      one pool
//!    ▲          │             │
//!    └──────────┴─ preempted ─┘
//! Queued ─► Prefilling ─► Handed ─► Pulling ─► Ready ─► Decoding ─► Done      two pools
//! ```

use super::clock::{NEVER, Ps};

/// No request, at the ends of a list.
pub(crate) const NONE: u32 = u32::MAX;

/// Where a request is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Not yet arrived, or waiting for admission.
    Queued = 0,
    /// Its prompt (or what was lost to a preemption) is being computed.
    Prefilling = 1,
    /// One token a step.
    Decoding = 2,
    /// Its prompt is done on a prefill replica; no decode replica has room yet.
    Handed = 3,
    /// Its KV cache is on the way to a decode replica.
    Pulling = 4,
    /// Its KV cache has come; it joins at the next step.
    Ready = 5,
    /// All its tokens are out.
    Done = 6,
    /// It can never fit the memory of one replica.
    Rejected = 7,
}

/// All requests, in order of arrival.
#[derive(Debug, Clone, Default)]
pub struct Requests {
    /// Arrival [ps].
    pub arrival_ps: Vec<Ps>,
    /// Prompt tokens.
    pub isl_tok: Vec<u32>,
    /// Prompt tokens whose KV is present at arrival.
    pub cached_tok: Vec<u32>,
    /// Tokens to generate.
    pub osl_tok: Vec<u32>,
    /// First token at the client [ps], [`NEVER`] before.
    pub first_ps: Vec<Ps>,
    /// Last token at the client [ps], [`NEVER`] before.
    pub last_ps: Vec<Ps>,
    /// Where each is.
    pub state: Vec<State>,
    /// How often each was preempted.
    pub preemptions: Vec<u16>,
    pub(crate) generated: Vec<u32>,
    /// Tokens with KV present; while decoding, this minus the replica's step counter.
    pub(crate) computed: Vec<i64>,
    /// Last token before a gap that is not one step: a preemption or a hand-over [ps].
    pub(crate) paused_ps: Vec<Ps>,
    /// The step counter at which decoding ends.
    pub(crate) finish_step: Vec<u64>,
    pub(crate) prev: Vec<u32>,
    pub(crate) next: Vec<u32>,
    /// The prefill replica that holds the KV cache until it is pulled.
    pub(crate) holder: Vec<u32>,
    /// The replica that decodes it.
    pub(crate) replica: Vec<u32>,
}

impl Requests {
    /// Number of requests.
    pub fn len(&self) -> usize {
        self.arrival_ps.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.arrival_ps.is_empty()
    }

    pub(crate) fn push(&mut self, arrival_ps: Ps, isl_tok: u32, cached_tok: u32, osl_tok: u32) {
        self.arrival_ps.push(arrival_ps);
        self.isl_tok.push(isl_tok);
        self.cached_tok.push(cached_tok);
        self.osl_tok.push(osl_tok);
        self.first_ps.push(NEVER);
        self.last_ps.push(NEVER);
        self.state.push(State::Queued);
        self.preemptions.push(0);
        self.generated.push(0);
        self.computed.push(0);
        self.paused_ps.push(0);
        self.finish_step.push(0);
        self.prev.push(NONE);
        self.next.push(NONE);
        self.holder.push(NONE);
        self.replica.push(NONE);
    }

    /// Prompt and generated tokens of `r`.
    pub(crate) fn num_tok(&self, r: u32) -> u64 {
        u64::from(self.isl_tok[r as usize]) + u64::from(self.generated[r as usize])
    }
}
