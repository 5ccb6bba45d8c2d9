//! Prefix cache of one replica: whole units of a prompt by chained hash, in up to three tiers.
//!
//! ```text
//! HBM: in use ⇄ unused, least recently freed first ──evicted──► DRAM ──► storage ──► gone
//!        ▲                                                       │          │
//!        └────────────────────────── read back ──────────────────┴──────────┘
//! ```
//!
//! A unit is in one place at a time. Unused units in HBM count as free memory: they are evicted,
//! oldest first, when their blocks are needed and none is empty. Evictions are written back without
//! delaying anybody; their bytes and energy are counted. A unit id stands for its whole chain, as
//! in vLLM: equal ids mean equal prompts up to there.

use super::clock::Ps;
use super::fleet::CacheSpec;
use super::idmap::IdMap;
use super::request::NONE;

/// Number of places beside HBM.
pub(crate) const LOWER_TIERS: usize = 2;

/// Where a unit is: HBM, DRAM or storage.
const HBM: usize = 0;

/// A unit that is somewhere.
#[derive(Debug, Clone, Copy)]
struct Unit {
    id: u32,
    /// Neighbours among the unused units of its place.
    prev: u32,
    next: u32,
    users: u32,
    place: u8,
    /// Found again at least once.
    reused: bool,
}

/// Unused units of one place, oldest first.
#[derive(Debug, Clone, Copy)]
struct Order {
    oldest: u32,
    newest: u32,
    len: u64,
}

/// What a look-up found: the longest cached start of a prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Units in HBM.
    pub(crate) hbm: u64,
    /// Of these, units that other requests use, and that therefore cost no memory.
    pub(crate) shared: u64,
    /// Units in DRAM and in storage.
    pub(crate) lower: [u64; LOWER_TIERS],
    /// When the last of the units in HBM has been read back [ps].
    pub(crate) ready_ps: Ps,
}

impl Found {
    pub(crate) fn units(&self) -> u64 {
        self.hbm + self.lower.iter().sum::<u64>()
    }
}

/// The units of one replica.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    spec: CacheSpec,
    at: IdMap,
    units: Vec<Unit>,
    /// When each has been read back [ps].
    ready_ps: Vec<Ps>,
    /// Slots without a unit.
    vacant: Vec<u32>,
    orders: [Order; 1 + LOWER_TIERS],
    /// When each lower tier's channel is free again.
    channel_ps: [Ps; LOWER_TIERS],
    /// Units written to each lower tier since last asked.
    written: [u64; LOWER_TIERS],
}

impl Cache {
    pub(crate) fn new(spec: CacheSpec) -> Self {
        let order = Order { oldest: NONE, newest: NONE, len: 0 };
        Self {
            spec,
            at: IdMap::new(),
            units: Vec::new(),
            ready_ps: Vec::new(),
            vacant: Vec::new(),
            orders: [order; 1 + LOWER_TIERS],
            channel_ps: [0; LOWER_TIERS],
            written: [0; LOWER_TIERS],
        }
    }

    /// Units in HBM that nobody uses.
    pub(crate) fn unused(&self) -> u64 {
        self.orders[0].len
    }

    /// The longest cached start of `ids`; only in HBM when `hbm_only`.
    pub(crate) fn look_up(&self, ids: &[u32], hbm_only: bool) -> Found {
        let mut found = Found::default();
        for &id in ids {
            let Some(slot) = self.at.get(id) else { break };
            match usize::from(self.units[slot].place) {
                HBM => {
                    found.hbm += 1;
                    found.shared += u64::from(self.units[slot].users > 0);
                    found.ready_ps = found.ready_ps.max(self.ready_ps[slot]);
                }
                _ if hbm_only => break,
                lower => found.lower[lower - 1] += 1,
            }
        }
        found
    }

    /// Uses every unit of `ids`; those of lower tiers leave them and are in HBM from now on.
    ///
    /// `read_back` says when each of the latter has come, once all have left their tiers.
    pub(crate) fn use_found(&mut self, ids: &[u32], read_back: Option<Ps>) {
        for &id in ids {
            let slot = self.slot(id);
            if self.units[slot].place > 0 || self.units[slot].users == 0 {
                self.remove(slot);
            }
            if self.units[slot].place > 0 {
                self.units[slot].place = 0;
                self.ready_ps[slot] = read_back.unwrap_or(0);
            }
            self.units[slot].users += 1;
            self.units[slot].reused = true;
        }
    }

    /// Reads `units` of `unit_tok` tokens back from each lower tier; returns when all have come.
    pub(crate) fn read(&mut self, units: [u64; LOWER_TIERS], unit_tok: u64, now: Ps) -> Ps {
        let mut done = now;
        for (tier, &count) in units.iter().enumerate() {
            if count > 0 {
                let spec = &self.spec.tiers[tier];
                let begin = self.channel_ps[tier].max(now);
                self.channel_ps[tier] = begin + count * unit_tok * spec.read_tok_ps;
                done = done.max(self.channel_ps[tier] + spec.latency_ps);
            }
        }
        done
    }

    /// Registers a unit that its request has computed; `false` when HBM has it already.
    pub(crate) fn register(&mut self, id: u32) -> bool {
        let slot = match self.at.get(id) {
            Some(slot) if usize::from(self.units[slot].place) == HBM => return false,
            Some(slot) => {
                self.remove(slot);
                slot
            }
            None => self.settle_in(id),
        };
        let unit = &mut self.units[slot];
        (unit.place, unit.users, unit.reused) = (0, 1, false);
        self.ready_ps[slot] = 0;
        true
    }

    /// Uses a unit that is in HBM; `true` when others use it too, so that it costs no memory.
    pub(crate) fn share(&mut self, id: u32) -> bool {
        let slot = self.slot(id);
        let others = self.units[slot].users > 0;
        if !others {
            self.remove(slot);
        }
        self.units[slot].users += 1;
        self.units[slot].reused = true;
        others
    }

    /// Makes unused units of `ids` the newest of their places, the first of them the very newest.
    pub(crate) fn touch(&mut self, ids: &[u32]) {
        for &id in ids.iter().rev() {
            let slot = self.slot(id);
            if self.units[slot].users == 0 {
                self.remove(slot);
                self.push(usize::from(self.units[slot].place), slot);
            }
        }
    }

    /// Ends one use of a unit; `true` when nobody uses it any more.
    pub(crate) fn leave(&mut self, id: u32) -> bool {
        let slot = self.slot(id);
        self.units[slot].users -= 1;
        if self.units[slot].users > 0 {
            return false;
        }
        self.push(HBM, slot);
        true
    }

    /// Moves the oldest unused unit out of HBM.
    pub(crate) fn evict(&mut self) {
        let mut slot = self.orders[HBM].oldest as usize;
        self.remove(slot);
        if !self.spec.reused_only || self.units[slot].reused {
            for tier in 0..LOWER_TIERS {
                let room = self.spec.tiers[tier].units;
                if room == 0 {
                    continue;
                }
                self.written[tier] += 1;
                self.push(tier + 1, slot);
                if self.orders[tier + 1].len <= room {
                    return;
                }
                slot = self.orders[tier + 1].oldest as usize;
                self.remove(slot);
            }
        }
        self.forget(slot);
    }

    /// Units written to each lower tier since the last call.
    pub(crate) fn take_written(&mut self) -> [u64; LOWER_TIERS] {
        std::mem::take(&mut self.written)
    }

    fn slot(&self, id: u32) -> usize {
        self.at.get(id).expect("Invariant: a unit in use is somewhere")
    }

    /// A slot for a new unit.
    fn settle_in(&mut self, id: u32) -> usize {
        let unit = Unit { id, prev: NONE, next: NONE, users: 0, place: 0, reused: false };
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.units.push(unit);
            self.ready_ps.push(0);
            u32::try_from(self.units.len() - 1).expect("ids are below 2^32")
        });
        self.units[slot as usize] = unit;
        self.at.insert(id, slot);
        slot as usize
    }

    fn forget(&mut self, slot: usize) {
        self.at.remove(self.units[slot].id);
        self.vacant.push(u32::try_from(slot).expect("ids are below 2^32"));
    }

    /// Puts a unit at the newest end of the unused ones of `place`.
    fn push(&mut self, place: usize, slot: usize) {
        let at = u32::try_from(slot).expect("ids are below 2^32");
        let newest = self.orders[place].newest;
        let unit = &mut self.units[slot];
        (unit.prev, unit.next) = (newest, NONE);
        unit.place = u8::try_from(place).expect("three places");
        if newest == NONE {
            self.orders[place].oldest = at;
        } else {
            self.units[newest as usize].next = at;
        }
        self.orders[place].newest = at;
        self.orders[place].len += 1;
    }

    /// Takes a unit out of the unused ones of its place.
    fn remove(&mut self, slot: usize) {
        let Unit { prev, next, place, .. } = self.units[slot];
        let order = &mut self.orders[usize::from(place)];
        order.len -= 1;
        if prev == NONE {
            order.oldest = next;
        } else {
            self.units[prev as usize].next = next;
        }
        if next == NONE {
            order.newest = prev;
        } else {
            self.units[next as usize].prev = prev;
        }
    }
}
