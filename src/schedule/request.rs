//! One request's life: what the loop needs in one cache line, what is reported in columns.
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

/// What the loop needs of one request: one cache line.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub struct Live {
    /// Arrival [ps].
    pub arrival_ps: Ps,
    /// Last token before a gap that is not one step: a preemption or a hand-over [ps].
    pub(crate) paused_ps: Ps,
    /// Tokens with KV present; while decoding, this minus the replica's step counter.
    pub(crate) computed: i64,
    /// Prompt tokens.
    pub isl_tok: u32,
    /// Prompt tokens whose KV is present at arrival.
    pub cached_tok: u32,
    /// Tokens to generate.
    pub osl_tok: u32,
    /// Tokens out so far; not kept up while decoding.
    pub(crate) generated: u32,
    pub(crate) prev: u32,
    pub(crate) next: u32,
    /// The prefill replica that holds the KV cache until it is pulled.
    pub(crate) holder: u32,
    /// The replica that decodes it.
    pub(crate) replica: u32,
    /// Where it is.
    pub state: State,
    /// How often it was preempted.
    pub preemptions: u16,
}

impl Live {
    /// Prompt and generated tokens.
    pub(crate) fn num_tok(&self) -> u64 {
        u64::from(self.isl_tok) + u64::from(self.generated)
    }

    /// The step counter at which decoding ends: its last token but one is then computed.
    pub(crate) fn finish_step(&self) -> u64 {
        let computed = i64::from(self.isl_tok) + i64::from(self.osl_tok) - 1;
        (computed - self.computed).unsigned_abs()
    }
}

/// All requests, in order of arrival.
#[derive(Debug, Clone, Default)]
pub struct Requests {
    pub(crate) live: Vec<Live>,
    /// First token at the client [ps], [`NEVER`] before.
    pub first_ps: Vec<Ps>,
    /// Last token at the client [ps], [`NEVER`] before.
    pub last_ps: Vec<Ps>,
}

impl Requests {
    /// Number of requests.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Where each is.
    pub fn states(&self) -> impl ExactSizeIterator<Item = State> {
        self.live.iter().map(|live| live.state)
    }

    /// How often each was preempted.
    pub fn preemptions(&self) -> impl ExactSizeIterator<Item = u16> {
        self.live.iter().map(|live| live.preemptions)
    }

    pub(crate) fn push(&mut self, arrival_ps: Ps, isl_tok: u32, cached_tok: u32, osl_tok: u32) {
        self.live.push(Live {
            arrival_ps,
            paused_ps: 0,
            computed: 0,
            isl_tok,
            cached_tok,
            osl_tok,
            generated: 0,
            prev: NONE,
            next: NONE,
            holder: NONE,
            replica: NONE,
            state: State::Queued,
            preemptions: 0,
        });
        self.first_ps.push(NEVER);
        self.last_ps.push(NEVER);
    }

    pub(crate) fn num_tok(&self, r: u32) -> u64 {
        self[r].num_tok()
    }
}

impl std::ops::Index<u32> for Requests {
    type Output = Live;

    fn index(&self, r: u32) -> &Live {
        &self.live[r as usize]
    }
}

impl std::ops::IndexMut<u32> for Requests {
    fn index_mut(&mut self, r: u32) -> &mut Live {
        &mut self.live[r as usize]
    }
}
