//! One request's life: what the loop needs in one cache line, what is reported in columns.
//!
//! ```text
//! Queued ─► Prefilling ─► Decoding ─► Done                      one pool
//!    ▲          │             │
//!    └──────────┴─ preempted ─┘
//! Queued ─► Loading ─► Loaded ─► Prefilling                     a prefix in a lower tier
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
    /// A cached start of its prompt is being read back from a lower tier.
    Loading = 8,
    /// That has come; the rest of its prompt is computed next.
    Loaded = 9,
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
    /// Prompt tokens that its entry replica was charged with when it was routed, until computed.
    pub(crate) charged_tok: u32,
    /// It is to be passed over once before it is taken.
    pub(crate) late: bool,
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
    /// First admission [ps], [`NEVER`] before.
    pub started_ps: Vec<Ps>,
    /// Ids of the units of all requests, one after the other.
    pub(crate) unit_of: Vec<u32>,
    /// Beside them: on which side of a hand-over (1, 2) the request uses the cached unit.
    pub(crate) unit_users: Vec<u8>,
    /// Where each request's units begin; empty while no request has any.
    unit_from: Vec<u32>,
    /// The last request that named each unit.
    named_by: Vec<u32>,
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

    /// Makes room for `more`.
    pub(crate) fn reserve(&mut self, more: usize) {
        self.live.reserve_exact(more);
        self.first_ps.reserve_exact(more);
        self.last_ps.reserve_exact(more);
        self.started_ps.reserve_exact(more);
    }

    /// Of those that come from `from_ps` on: how many, how many met both limits, the first, the
    /// second. The limits are the time to first token and the mean time per token after it; what
    /// never came met nothing.
    pub fn tally(&self, from_ps: Ps, ttft_ps: Ps, tpot_ps: Ps) -> [u64; 4] {
        let mut counts = [0; 4];
        for ((live, &first), &last) in self.live.iter().zip(&self.first_ps).zip(&self.last_ps) {
            if live.arrival_ps < from_ps {
                continue;
            }
            let gaps = u64::from(live.osl_tok) - 1;
            let in_time = first != NEVER && first - live.arrival_ps <= ttft_ps;
            let fluent = last != NEVER && last - first <= tpot_ps.saturating_mul(gaps);
            counts[0] += 1;
            counts[1] += u64::from(in_time && fluent);
            counts[2] += u64::from(in_time);
            counts[3] += u64::from(fluent);
        }
        counts
    }

    /// Where each is.
    pub fn states(&self) -> impl ExactSizeIterator<Item = State> {
        self.live.iter().map(|live| live.state)
    }

    /// When each arrived, or will if it waits for nobody [ps].
    pub fn arrivals_ps(&self) -> impl ExactSizeIterator<Item = Ps> {
        self.live.iter().map(|live| live.arrival_ps)
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
            charged_tok: 0,
            late: false,
            state: State::Queued,
            preemptions: 0,
        });
        self.first_ps.push(NEVER);
        self.last_ps.push(NEVER);
        self.started_ps.push(NEVER);
        if !self.unit_from.is_empty() {
            self.unit_from.push(self.unit_end());
        }
    }

    /// Prompt and answer of `r`.
    pub(crate) fn most_tok(&self, r: u32) -> u64 {
        u64::from(self[r].isl_tok) + u64::from(self[r].osl_tok)
    }

    pub(crate) fn num_tok(&self, r: u32) -> u64 {
        self[r].num_tok()
    }

    /// Names the units of the request pushed last; `false`, and nothing is named, when one occurs
    /// twice or there are too many.
    pub(crate) fn name_units(&mut self, ids: &[u32]) -> bool {
        let Some(row) = self.len().checked_sub(1) else { return false };
        let row = u32::try_from(row).unwrap_or(NONE);
        let widest = ids.iter().max().map_or(0, |&id| id as usize + 1);
        if u32::try_from(self.unit_of.len() + ids.len()).is_err() {
            return false;
        }
        if self.unit_from.is_empty() {
            self.unit_from.resize(self.len(), 0);
        }
        if widest > self.named_by.len() {
            self.named_by.resize(widest, NONE);
        }
        for &id in ids {
            if std::mem::replace(&mut self.named_by[id as usize], row) == row {
                return false;
            }
        }
        self.unit_of.extend_from_slice(ids);
        self.unit_users.resize(self.unit_of.len(), 0);
        true
    }

    fn unit_end(&self) -> u32 {
        u32::try_from(self.unit_of.len()).expect("name_units bounds it")
    }

    pub(crate) fn unit_range(&self, r: u32) -> std::ops::Range<usize> {
        let at = r as usize;
        let Some(&from) = self.unit_from.get(at) else { return 0..0 };
        let to = self.unit_from.get(at + 1).map_or(self.unit_of.len(), |&to| to as usize);
        from as usize..to
    }

    pub(crate) fn units(&self, r: u32) -> &[u32] {
        &self.unit_of[self.unit_range(r)]
    }

    pub(crate) fn note_start(&mut self, r: u32, now: Ps) {
        let start = &mut self.started_ps[r as usize];
        if *start == NEVER {
            *start = now;
        }
    }

    /// From the first admission of `r` to the end of its prompt, once it is handed over [ps].
    pub(crate) fn prompt_ps(&self, r: u32) -> Ps {
        self[r].paused_ps - self.started_ps[r as usize]
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
