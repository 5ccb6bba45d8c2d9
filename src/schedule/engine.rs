//! The loop: time, and nothing else. It is an online engine; replaying a trace is a loop over it.
//!
//! At each time: what ends, ends (lowest replica first); pulls that have come are taken; arrivals
//! are routed; then every replica that does nothing plans its next step. So what happens at a step
//! boundary is seen by the step that starts there.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::clock::{NEVER, NextEvents, Ps};
use super::fleet::{FleetSpec, Role};
use super::metrics::{Counters, Gaps};
use super::replica::{Around, Replica};
use super::request::{Requests, State};
use super::router;
use super::steps::index;
use crate::error::Error;

/// Where [`Engine::advance`] stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Everything up to the given time has happened.
    Reached,
    /// The allowance of events is used up; call again.
    Paused,
    /// More requests have missed the limits of [`Watch`] than it allows.
    Missed,
}

/// Stops a run early once too many requests have missed their limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watch {
    /// Requests that arrive from this time on count [ps].
    pub from_ps: Ps,
    /// Longest time to first token [ps].
    pub ttft_ps: Ps,
    /// Longest mean time per output token after the first [ps].
    pub tpot_ps: Ps,
    /// Misses that are still allowed.
    pub allowed: u64,
}

/// A fleet in time.
#[derive(Debug, Clone)]
pub struct Engine {
    fleet: FleetSpec,
    now: Ps,
    requests: Requests,
    arrived: usize,
    replicas: Vec<Replica>,
    next: NextEvents,
    pulls: BinaryHeap<Reverse<(Ps, u32)>>,
    entry: std::ops::Range<usize>,
    decode: std::ops::Range<usize>,
    counters: Vec<Counters>,
    gaps: Gaps,
    events: u64,
    watch: Option<Watch>,
    missed: u64,
    touched: Vec<u32>,
    is_touched: Vec<bool>,
    handed: Vec<u32>,
    told: Vec<u32>,
}

impl Engine {
    /// Builds an idle fleet at time 0.
    ///
    /// # Errors
    /// As [`FleetSpec::check`].
    pub fn new(fleet: FleetSpec) -> Result<Self, Error> {
        fleet.check()?;
        let mut replicas = Vec::new();
        let mut ranges = Vec::new();
        for (pool, spec) in fleet.pools.iter().enumerate() {
            let first = replicas.len();
            replicas.extend((0..spec.replicas).map(|_| Replica::new(pool, spec, fleet.block_tok)));
            ranges.push((spec.role, first..replicas.len()));
        }
        let span = |wanted: &[Role]| {
            let mut of_role = ranges.iter().filter(|(role, _)| wanted.contains(role));
            let first = of_role.clone().map(|(_, range)| range.start).min().unwrap_or(0);
            let last = of_role.by_ref().map(|(_, range)| range.end).max().unwrap_or(0);
            first..last
        };
        let (entry, decode) = (span(&[Role::Mixed, Role::Prefill]), span(&[Role::Decode]));
        Ok(Self {
            now: 0,
            requests: Requests::default(),
            arrived: 0,
            next: NextEvents::new(replicas.len()),
            pulls: BinaryHeap::new(),
            entry,
            decode,
            counters: vec![Counters::default(); fleet.pools.len()],
            gaps: Gaps::default(),
            events: 0,
            watch: None,
            missed: 0,
            touched: Vec::new(),
            is_touched: vec![false; replicas.len()],
            handed: Vec::new(),
            told: Vec::new(),
            replicas,
            fleet,
        })
    }

    /// Stops [`Engine::advance`] early once more than `watch.allowed` requests have missed.
    pub fn watch(&mut self, watch: Watch) {
        self.watch = Some(watch);
    }

    /// Adds a request.
    ///
    /// A request whose tokens can never fit one replica's KV blocks is recorded as
    /// [`State::Rejected`].
    ///
    /// # Errors
    /// [`Error::Range`] when it arrives before the last one or before now, or has no tokens.
    pub fn push(&mut self, arrival_ps: Ps, isl: u32, cached: u32, osl: u32) -> Result<(), Error> {
        let row = self.requests.len();
        let earliest = self.requests.live.last().map_or(0, |live| live.arrival_ps).max(self.now);
        if arrival_ps < earliest || arrival_ps > NEVER / 4 {
            let allowed = format!("{earliest} (the previous arrival, or now) to {}", NEVER / 4);
            return Err(Error::range(format!("arrival_ps[{row}]"), arrival_ps, allowed));
        }
        if isl == 0 {
            return Err(Error::range(format!("isl_tok[{row}]"), isl, "1 or more"));
        }
        if osl == 0 {
            return Err(Error::range(format!("osl_tok[{row}]"), osl, "1 or more"));
        }
        if cached >= isl {
            let allowed = format!("below isl_tok, {isl}");
            return Err(Error::range(format!("cached_tok[{row}]"), cached, allowed));
        }
        if row as u64 >= u64::from(u32::MAX - 1) {
            return Err(Error::range("requests", row, "below 2^32 - 2"));
        }
        self.requests.push(arrival_ps, isl, cached, osl);
        Ok(())
    }

    /// Lets time pass until `until` [ps], at most `most_events` events.
    pub fn advance(&mut self, until: Ps, most_events: u64) -> Stop {
        let last_event = self.events.saturating_add(most_events);
        loop {
            let arrival = self.next_arrival();
            let pull = self.pulls.peek().map_or(NEVER, |&Reverse((at, _))| at);
            let at = self.next.earliest().min(pull).min(arrival);
            if at > until || at == NEVER {
                self.now = self.now.max(until.min(NEVER / 2));
                return Stop::Reached;
            }
            if self.watch.is_some_and(|watch| self.missed > watch.allowed) {
                return Stop::Missed;
            }
            if self.events >= last_event {
                return Stop::Paused;
            }
            self.now = at;
            while self.next.earliest() == at {
                self.end_first(at);
            }
            while let Some(&Reverse((done, r))) = self.pulls.peek() {
                if done > at {
                    break;
                }
                self.pulls.pop();
                self.take_pulled(r, at);
            }
            while self.next_arrival() == at {
                self.arrive(at);
            }
            self.start_touched(at);
        }
    }

    fn next_arrival(&self) -> Ps {
        self.requests.live.get(self.arrived).map_or(NEVER, |live| live.arrival_ps)
    }

    fn end_first(&mut self, at: Ps) {
        self.events += 1;
        let i = self.next.first();
        self.next.set(i, NEVER);
        self.touch(i);
        let (replica, mut around) = self.split(i);
        replica.end(at, &mut around);
        while let Some(r) = self.told.pop() {
            self.judge(r);
        }
        for r in std::mem::take(&mut self.handed) {
            self.requests[r].holder = self.requests[r].replica;
            let d = router::least_loaded(&self.replicas, self.decode.clone());
            self.requests[r].replica = to_u32(d);
            self.replicas[d].load += 1;
            self.enqueue(d, r, at);
        }
    }

    fn take_pulled(&mut self, r: u32, at: Ps) {
        self.events += 1;
        let holder = self.requests[r].holder as usize;
        let blocks = u64::from(self.requests[r].isl_tok).div_ceil(self.fleet.block_tok);
        let pool = self.replicas[holder].pool;
        self.replicas[holder].release(blocks, &mut self.counters[pool]);
        self.touch(holder);
        let d = self.requests[r].replica as usize;
        self.replicas[d].pulled(r, &mut self.requests);
        let spec = &self.fleet.pools[self.replicas[d].pool];
        if let Some(end) = self.replicas[d].receive(r, at, spec) {
            self.next.set(d, end);
        }
        self.touch(d);
    }

    fn arrive(&mut self, at: Ps) {
        self.events += 1;
        let r = to_u32(self.arrived);
        self.arrived += 1;
        let isl = u64::from(self.requests[r].isl_tok);
        let osl = u64::from(self.requests[r].osl_tok);
        let fits = self.fleet.pools.iter().all(|pool| {
            let tokens = if pool.role == Role::Prefill { isl } else { isl + osl };
            tokens.div_ceil(self.fleet.block_tok) <= pool.kv_blocks
        });
        if !fits {
            self.requests[r].state = State::Rejected;
            let counted = self.watch.is_some_and(|watch| at >= watch.from_ps);
            self.missed += u64::from(counted);
            return;
        }
        let i = router::least_loaded(&self.replicas, self.entry.clone());
        self.requests[r].replica = to_u32(i);
        let prefill = self.fleet.pools[self.replicas[i].pool].role == Role::Prefill;
        let uncached = isl - u64::from(self.requests[r].cached_tok);
        self.replicas[i].load += if prefill { uncached } else { 1 };
        self.enqueue(i, r, at);
    }

    fn enqueue(&mut self, i: usize, r: u32, at: Ps) {
        let spec = &self.fleet.pools[self.replicas[i].pool];
        if let Some(end) = self.replicas[i].enqueue(r, at, spec) {
            self.next.set(i, end);
        }
        self.touch(i);
    }

    fn start_touched(&mut self, at: Ps) {
        while let Some(i) = self.touched.pop() {
            let i = i as usize;
            self.is_touched[i] = false;
            if self.replicas[i].is_idle() {
                let (replica, mut around) = self.split(i);
                let end = replica.start(at, &mut around);
                self.next.set(i, end);
            }
        }
    }

    fn touch(&mut self, i: usize) {
        if !std::mem::replace(&mut self.is_touched[i], true) {
            self.touched.push(to_u32(i));
        }
    }

    fn split(&mut self, i: usize) -> (&mut Replica, Around<'_>) {
        let replica = &mut self.replicas[i];
        let around = Around {
            fleet: &self.fleet,
            requests: &mut self.requests,
            counters: &mut self.counters[replica.pool],
            gaps: &mut self.gaps,
            pulls: &mut self.pulls,
            handed: &mut self.handed,
            told: &mut self.told,
        };
        (replica, around)
    }

    /// Counts a miss when the first or the last token of `r` came too late.
    fn judge(&mut self, r: u32) {
        let Some(watch) = self.watch else { return };
        let at = r as usize;
        let (arrival, first) = (self.requests[r].arrival_ps, self.requests.first_ps[at]);
        if arrival < watch.from_ps {
            return;
        }
        let late_first = first - arrival > watch.ttft_ps;
        if self.requests[r].state != State::Done {
            self.missed += u64::from(late_first);
            return;
        }
        let gaps = u64::from(self.requests[r].osl_tok) - 1;
        let late_rest = self.requests.last_ps[at] - first > watch.tpot_ps.saturating_mul(gaps);
        if gaps == 0 {
            self.missed += u64::from(late_first);
        } else {
            self.missed += u64::from(late_rest && !late_first);
        }
    }

    /// The time up to which everything has happened [ps].
    pub fn now(&self) -> Ps {
        self.now
    }

    /// Ends of steps and runs, arrivals and pulls so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Requests that missed the limits of [`Watch`] so far.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// What each pool did.
    pub fn counters(&self) -> &[Counters] {
        &self.counters
    }

    /// Gaps between tokens.
    pub fn gaps(&self) -> &Gaps {
        &self.gaps
    }

    /// All requests.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Free KV blocks of every replica.
    pub fn free_blocks(&self) -> Vec<u64> {
        self.replicas.iter().map(Replica::free_blocks).collect()
    }
}

fn to_u32(i: usize) -> u32 {
    debug_assert!(index(i as u64) == i && u32::try_from(i).is_ok());
    #[expect(clippy::cast_possible_truncation, reason = "replicas and requests are bounded")]
    {
        i as u32
    }
}
