//! The loop: time, and nothing else. It is an online engine; replaying a trace is a loop over it.
//!
//! At each time: what ends, ends (lowest replica first); pulls that have come are taken; arrivals
//! are routed; then every replica that does nothing plans its next step. So what happens at a step
//! boundary is seen by the step that starts there.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::clock::{NEVER, NextEvents, Ps};
use super::fault::{Fault, Faults, Trouble};
use super::fleet::{Disaggregation, FleetSpec, Policy, Role, Routing};
use super::metrics::{Counters, Gaps};
use super::replica::{Around, Replica};
use super::request::{NONE, Requests, State};
use super::router::{self, Turns, View};
use super::session::Sessions;
use super::steps::{StepTable, index};
use super::timeline::Segment;
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

/// What the steps of one replica cost.
#[derive(Debug, Clone)]
pub(super) struct Costs {
    pub(super) table: Arc<StepTable>,
    /// What a step takes at least.
    cap: Option<Arc<StepTable>>,
}

/// A fleet in time.
#[derive(Debug, Clone)]
pub struct Engine {
    pub(super) fleet: FleetSpec,
    now: Ps,
    pub(super) requests: Requests,
    arrived: usize,
    pub(super) replicas: Vec<Replica>,
    pub(super) next: NextEvents,
    pub(super) pulls: BinaryHeap<Reverse<(Ps, u32)>>,
    pub(super) turns: Turns,
    sessions: Sessions,
    entry: std::ops::Range<usize>,
    pub(super) decode: std::ops::Range<usize>,
    pub(super) counters: Vec<Counters>,
    gaps: Gaps,
    pub(super) events: u64,
    watch: Option<Watch>,
    pub(super) timeline: Option<Vec<Segment>>,
    pub(super) faults: Faults,
    /// The governor's level, and its next look; [`NEVER`] without one.
    level: usize,
    tick_ps: Ps,
    /// What a step of each replica costs.
    pub(super) costs: Vec<Costs>,
    /// What it costs from the next one on, where that is to change.
    pub(super) new_tables: Vec<(usize, Arc<StepTable>)>,
    /// Requests that no replica can take because all of a pool are down.
    pub(super) stranded: Vec<u32>,
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
        Ok(Self::idle(fleet))
    }

    fn idle(fleet: FleetSpec) -> Self {
        let mut replicas = Vec::new();
        let mut ranges = Vec::new();
        for (pool, spec) in fleet.pools.iter().enumerate() {
            let first = replicas.len();
            replicas.extend((0..spec.replicas).map(|_| Replica::new(pool, spec, fleet.block_tok)));
            ranges.push((spec.role, first..replicas.len()));
        }
        let first = fleet.governor.as_ref().map(|governor| &governor.levels[governor.first]);
        let costs_of = |replica: &Replica| {
            let pool = &fleet.pools[replica.pool];
            let cap = first.map(|level| &level[replica.pool]).or(pool.cap.as_ref());
            Costs { table: Arc::clone(&pool.table), cap: cap.cloned() }
        };
        let costs = replicas.iter().map(costs_of).collect();
        let span = |wanted: &[Role]| {
            let mut of_role = ranges.iter().filter(|(role, _)| wanted.contains(role));
            let first = of_role.clone().map(|(_, range)| range.start).min().unwrap_or(0);
            let last = of_role.by_ref().map(|(_, range)| range.end).max().unwrap_or(0);
            first..last
        };
        let (entry, decode) = (span(&[Role::Mixed, Role::Prefill]), span(&[Role::Decode]));
        Self {
            now: 0,
            requests: Requests::default(),
            arrived: 0,
            next: NextEvents::new(replicas.len()),
            pulls: BinaryHeap::new(),
            turns: Turns::default(),
            sessions: Sessions::default(),
            entry,
            decode,
            counters: vec![Counters::default(); fleet.pools.len()],
            gaps: Gaps::default(),
            events: 0,
            watch: None,
            timeline: None,
            faults: Faults::default(),
            level: fleet.governor.as_ref().map_or(0, |governor| governor.first),
            tick_ps: fleet.governor.as_ref().map_or(NEVER, |governor| governor.tick_ps),
            costs,
            new_tables: Vec::new(),
            stranded: Vec::new(),
            missed: 0,
            touched: Vec::new(),
            is_touched: vec![false; replicas.len()],
            handed: Vec::new(),
            told: Vec::new(),
            replicas,
            fleet,
        }
    }

    /// Stops [`Engine::advance`] early once more than `watch.allowed` requests have missed.
    pub fn watch(&mut self, watch: Watch) {
        self.watch = Some(watch);
    }

    /// Records what every replica does from now on.
    pub fn record(&mut self) {
        self.timeline.get_or_insert_default();
    }

    /// What was recorded, in order of ends.
    pub fn timeline(&self) -> &[Segment] {
        self.timeline.as_deref().unwrap_or_default()
    }

    /// Makes room for `more` requests.
    pub fn reserve(&mut self, more: usize) {
        self.requests.reserve(more);
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

    /// Lets the request pushed last wait for earlier ones: it comes `think_ps` after the last of
    /// them has ended, and not before its arrival time.
    ///
    /// # Errors
    /// [`Error::Range`] for a parent that is no earlier request, or occurs twice.
    pub fn follow(&mut self, parents: &[u32], think_ps: Ps) -> Result<(), Error> {
        let row = self.requests.len().saturating_sub(1);
        for (at, &parent) in parents.iter().enumerate() {
            if parent as usize >= row || parents[..at].contains(&parent) {
                let allowed = format!("each once, below {row}");
                return Err(Error::range(format!("follows[{row}]"), parent, allowed));
            }
        }
        if u32::try_from(self.sessions.edges() + parents.len()).is_err() || think_ps > NEVER / 4 {
            return Err(Error::range("follows", "too much", "2^32 edges, 53 days"));
        }
        if !parents.is_empty() {
            self.sessions.follow(to_u32(row), parents, think_ps);
            self.skip_followers();
        }
        Ok(())
    }

    /// Keeps at most `most` requests in flight: others wait at the client, and arrive when they are
    /// sent. 0: no such bound.
    pub fn keep_in_flight(&mut self, most: u64) {
        self.sessions.most = most;
    }

    /// Names the units of the request pushed last: a chained hash id for each whole unit of its
    /// prompt and, if known, of its answer, in order.
    ///
    /// # Errors
    /// [`Error::Range`] when an id occurs twice, or the request has private `cached` tokens too.
    pub fn name_units(&mut self, ids: &[u32]) -> Result<(), Error> {
        let row = self.requests.len().saturating_sub(1);
        if self.requests.live.last().is_some_and(|live| live.cached_tok > 0) && !ids.is_empty() {
            let allowed = "0 for a request with unit ids: its cache decides what is present";
            return Err(Error::range(format!("cached_tok[{row}]"), "above 0", allowed));
        }
        if self.requests.name_units(ids) {
            return Ok(());
        }
        let allowed = "ids that differ within a request: chained hashes name the whole start";
        Err(Error::range(format!("unit_ids[{row}]"), "a repeated id", allowed))
    }

    /// Adds a fault.
    ///
    /// # Errors
    /// [`Error::Range`] when there is no such replica, it begins before now or does not end, or its
    /// step costs do not have the shape of the pool's.
    pub fn add_fault(&mut self, fault: Fault) -> Result<(), Error> {
        let Some(replica) = self.replicas.get(fault.replica as usize) else {
            let allowed = format!("below {}", self.replicas.len());
            return Err(Error::range("fault.replica", fault.replica, allowed));
        };
        if fault.from_ps < self.now || fault.until_ps <= fault.from_ps || fault.until_ps > NEVER / 4
        {
            let given = format!("{} to {}", fault.from_ps, fault.until_ps);
            let allowed = format!("rising times from {} to {}", self.now, NEVER / 4);
            return Err(Error::range("fault", given, allowed));
        }
        if self.fleet.imitate_dynosim {
            return Err(Error::range("fault", "beside imitate_dynosim", "one of the two"));
        }
        let pool = &self.fleet.pools[replica.pool];
        match &fault.trouble {
            Trouble::Slow(table) => {
                table.check()?;
                table.check_context(pool.kv_blocks * self.fleet.block_tok)?;
                if pool.speculation.is_some() {
                    table.check_rows(pool.verified_rows())?;
                }
                let shape =
                    |table: &StepTable| format!("{} by {}", table.max_tok(), table.max_seqs());
                if shape(table) != shape(&pool.table) {
                    return Err(Error::shape("fault.table", shape(table), shape(&pool.table)));
                }
            }
            Trouble::LinkDown | Trouble::LinkSlow(_) if pool.role != Role::Decode => {
                return Err(Error::range("fault", "a link", "replicas of a decode pool have one"));
            }
            Trouble::Down | Trouble::LinkDown => {}
            Trouble::LinkSlow(slower) => {
                if !(1024..=1 << 20).contains(slower) {
                    return Err(Error::range("fault.link", slower, "1024 (as ever) to 2^20"));
                }
            }
        }
        self.faults.add(fault);
        Ok(())
    }

    /// Lets time pass until `until` [ps], at most `most_events` events.
    // Inlined into a caller, the loop came out a fortieth slower.
    #[inline(never)]
    pub fn advance(&mut self, until: Ps, most_events: u64) -> Stop {
        let last_event = self.events.saturating_add(most_events);
        loop {
            let arrival = self.next_arrival();
            let pull = self.pulls.peek().map_or(NEVER, |&Reverse((at, _))| at);
            let mut at = self.next.earliest().min(pull).min(arrival).min(self.faults.next);
            if at != NEVER {
                at = at.min(self.tick_ps);
            }
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
            while self.faults.next == at {
                self.turn_fault(at);
            }
            if self.tick_ps == at {
                self.look(at);
            }
            self.take_arrivals(at);
            self.start_touched(at);
        }
    }

    /// The governor looks at what waits, and may move watts.
    #[cold]
    fn look(&mut self, at: Ps) {
        let Some(governor) = &self.fleet.governor else { return };
        self.events += 1;
        self.tick_ps = at + governor.tick_ps;
        let entry = &self.replicas[self.entry.clone()];
        let waiting = entry.iter().map(|replica| replica.prompt_tok).sum();
        let level = governor.next(self.level, waiting, entry.len() as u64);
        if level != self.level {
            self.level = level;
            for i in 0..self.replicas.len() {
                let cap = &governor.levels[level][self.replicas[i].pool];
                self.costs[i].cap = Some(Arc::clone(cap));
                if let Some(end) = self.replicas[i].cut_at(at) {
                    self.next.set(i, end);
                }
            }
        }
    }

    /// Ends what replica `i` does, and records it by what its pool's counters gain.
    #[cold]
    fn end_and_note(&mut self, i: usize, end_ps: Ps) {
        let before = self.counters[self.replicas[i].pool];
        let started = self.replicas[i].started();
        let (replica, mut around) = self.split(i);
        replica.end(end_ps, &mut around);
        let Some(start_ps) = started else { return };
        let now = &self.counters[self.replicas[i].pool];
        let steps = now.steps - before.steps;
        let segment = Segment {
            replica: to_u32(i),
            start_ps,
            end_ps,
            steps,
            prompt_tok: now.prefill_tok - before.prefill_tok,
            decode_seqs: (now.decode_tok - before.decode_tok) / steps.max(1),
            pj: now.compute_pj() - before.compute_pj(),
        };
        self.timeline.get_or_insert_default().push(segment);
    }

    fn next_arrival(&self) -> Ps {
        let alone = self.requests.live.get(self.arrived).map_or(NEVER, |live| live.arrival_ps);
        alone.min(self.sessions.next().0)
    }

    /// Takes every request that comes at `at`, in order, as far as there is room.
    fn take_arrivals(&mut self, at: Ps) {
        if !self.sessions.in_use() {
            while self.requests.live.get(self.arrived).is_some_and(|live| live.arrival_ps == at) {
                let r = to_u32(self.arrived);
                self.arrived += 1;
                self.arrive(r, at);
            }
            return;
        }
        while self.sessions.has_room() {
            let Some(r) = self.sessions.backlog.pop_front() else { break };
            self.arrive(r, at);
        }
        loop {
            let alone = self.requests.live.get(self.arrived);
            let alone = alone.is_some_and(|live| live.arrival_ps == at);
            let (time, follower) = self.sessions.next();
            let r = if time == at && !(alone && self.arrived < follower as usize) {
                self.sessions.pop();
                follower
            } else if alone {
                let r = to_u32(self.arrived);
                self.arrived += 1;
                self.skip_followers();
                r
            } else {
                return;
            };
            if self.sessions.has_room() {
                self.arrive(r, at);
            } else {
                self.sessions.backlog.push_back(r);
            }
        }
    }

    fn skip_followers(&mut self) {
        while self.arrived < self.requests.len() && self.sessions.is_follower(self.arrived) {
            self.arrived += 1;
        }
    }

    /// Counts the last token of `r`: whoever waited for it may come.
    fn finish(&mut self, r: u32, at: Ps) {
        self.sessions.in_flight -= 1;
        if !self.sessions.in_use() {
            return;
        }
        let live = &self.requests.live;
        self.sessions.end(r, at, |child| live[child as usize].arrival_ps);
    }

    /// Rejects `r` and everything that waits for it.
    #[inline(never)]
    fn reject(&mut self, r: u32, at: Ps) {
        let mut rejected = vec![r];
        while let Some(r) = rejected.pop() {
            if self.requests[r].state != State::Rejected {
                self.requests[r].state = State::Rejected;
                let counted = self.watch.is_some_and(|watch| at >= watch.from_ps);
                self.missed += u64::from(counted);
                rejected.extend(self.sessions.children(r));
            }
        }
    }

    fn end_first(&mut self, at: Ps) {
        self.events += 1;
        let i = self.next.first();
        self.next.set(i, NEVER);
        self.touch(i);
        if self.timeline.is_some() {
            self.end_and_note(i, at);
        } else {
            let (replica, mut around) = self.split(i);
            replica.end(at, &mut around);
        }
        self.tell(at);
        let mut handed = std::mem::take(&mut self.handed);
        for (place, r) in handed.drain(..).enumerate() {
            self.requests[r].late = self.fleet.imitate_dynosim && place > 0;
            self.requests[r].holder = self.requests[r].replica;
            self.requests[r].replica = NONE;
            self.place(r, at);
        }
        self.handed = handed;
    }

    /// Hears of the requests that emitted their first or last token.
    #[expect(clippy::inline_always, reason = "at the end of every step")]
    #[inline(always)]
    pub(super) fn tell(&mut self, at: Ps) {
        while let Some(r) = self.told.pop() {
            self.judge(r);
            if self.requests[r].state == State::Done {
                self.finish(r, at);
            }
        }
    }

    /// Takes a KV cache that has been pulled, or a prefix that has been read back.
    #[inline(never)]
    fn take_pulled(&mut self, r: u32, at: Ps) {
        self.events += 1;
        let d = self.requests[r].replica as usize;
        if self.requests[r].state == State::Pulling {
            let holder = self.requests[r].holder as usize;
            let held = u64::from(self.requests[r].isl_tok);
            let counters = &mut self.counters[self.replicas[holder].pool];
            self.replicas[holder].give_back(r, held, &mut self.requests, counters, &self.fleet);
            self.touch(holder);
        }
        let (replica, mut around) = self.split(d);
        if let Some(end) = replica.receive(r, at, &mut around) {
            self.next.set(d, end);
        }
        self.touch(d);
    }

    fn arrive(&mut self, r: u32, at: Ps) {
        self.events += 1;
        self.requests[r].arrival_ps = at;
        let isl = u64::from(self.requests[r].isl_tok);
        let osl = u64::from(self.requests[r].osl_tok);
        let fits = self.fleet.pools.iter().all(|pool| {
            let tokens = if pool.role == Role::Prefill { isl } else { isl + osl };
            let whole = !pool.policy.reserves() || isl <= pool.token_budget;
            // SGLang keeps less than a block away from the last request that runs.
            let spare =
                if matches!(pool.policy, Policy::Sglang(_)) { self.fleet.block_tok } else { 0 };
            // Verification holds blocks for drafts beyond the answer's end.
            let spare = spare + pool.drafts();
            whole && (tokens + spare).div_ceil(self.fleet.block_tok) <= pool.kv_blocks
        });
        if !fits {
            self.reject(r, at);
            return;
        }
        self.sessions.in_flight += 1;
        self.place(r, at);
    }

    /// Chooses who computes the prompt of `r`, and how many of its tokens that is; none when all who
    /// could are down.
    #[inline]
    pub(super) fn route(&mut self, r: u32, now: Ps) -> Option<(usize, u32)> {
        let (fleet, counters) = (&self.fleet, &mut self.counters[..]);
        let mut view = View { fleet, requests: &self.requests, counters, now };
        let mut turns = self.turns;
        let entry = self.entry.clone();
        let chosen = router::entry(&mut self.replicas, entry, r, &mut turns, &mut view);
        if !self.decode.is_empty() && fleet.disaggregation != Disaggregation::Always {
            let mut local = self.turns;
            let range = self.decode.clone();
            if let Some(d) = router::decode(&mut self.replicas, range, &mut local, fleet.routing) {
                let busy_tok = chosen.map_or(0, |(i, _)| self.replicas[i].prompt_tok);
                let decode = &mut self.replicas[d];
                if let Some(charged) = router::local(busy_tok, decode, r, &mut view) {
                    self.turns = local;
                    self.counters[self.replicas[d].pool].local_prompts += 1;
                    return Some((d, charged));
                }
            }
        }
        self.turns = turns;
        chosen
    }

    /// Books `r` on replica `i`, which has `charged` tokens of its prompt to compute.
    #[inline]
    pub(super) fn assign(&mut self, i: usize, r: u32, charged: u32) {
        let isl = u64::from(self.requests[r].isl_tok);
        self.requests[r].replica = to_u32(i);
        self.requests[r].charged_tok = charged;
        let replica = &mut self.replicas[i];
        let spec = &self.fleet.pools[replica.pool];
        let uncached = isl - u64::from(self.requests[r].cached_tok);
        replica.load += if spec.role == Role::Prefill { uncached } else { 1 };
        replica.context_tok += isl;
        let charged = u64::from(charged);
        if charged > 0 {
            replica.prompt_tok += charged;
            if self.fleet.routing == Routing::LeastTtft {
                replica.queue_ps += spec.table.prompt_ps(charged, isl - charged, spec.token_budget);
            }
        }
    }

    pub(super) fn enqueue(&mut self, i: usize, r: u32, at: Ps) {
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
                if !self.new_tables.is_empty() {
                    self.turn_table(i);
                }
                let (replica, mut around) = self.split(i);
                let end = replica.start(at, &mut around);
                self.next.set(i, end);
            }
        }
    }

    pub(super) fn touch(&mut self, i: usize) {
        if !std::mem::replace(&mut self.is_touched[i], true) {
            self.touched.push(to_u32(i));
        }
    }

    pub(super) fn split(&mut self, i: usize) -> (&mut Replica, Around<'_>) {
        let replica = &mut self.replicas[i];
        let costs = &self.costs[i];
        let around = Around {
            fleet: &self.fleet,
            table: &costs.table,
            cap: costs.cap.as_deref(),
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
    #[inline(never)]
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

    /// Hands all requests over, finished or not, and forgets them: the fleet is then idle.
    pub fn take_requests(&mut self) -> Requests {
        let mut idle = Self::idle(self.fleet.clone());
        idle.now = self.now;
        idle.events = self.events;
        idle.missed = self.missed;
        idle.watch = self.watch;
        idle.sessions.most = self.sessions.most;
        std::mem::swap(&mut idle.counters, &mut self.counters);
        std::mem::swap(&mut idle.gaps, &mut self.gaps);
        std::mem::swap(&mut idle.timeline, &mut self.timeline);
        std::mem::replace(self, idle).requests
    }

    /// Free KV blocks of every replica.
    pub fn free_blocks(&self) -> Vec<u64> {
        self.replicas.iter().map(Replica::free_blocks).collect()
    }
}

pub(super) fn to_u32(i: usize) -> u32 {
    debug_assert!(index(i as u64) == i && u32::try_from(i).is_ok());
    #[expect(clippy::cast_possible_truncation, reason = "replicas and requests are bounded")]
    {
        i as u32
    }
}
