//! From a unit's id to its slot: a hash table with a fixed hash that is never iterated.

/// No entry.
const EMPTY: u32 = u32::MAX;

/// An open-addressing table; at most half full, so that a probe ends after a step or two.
#[derive(Debug, Clone)]
pub(crate) struct IdMap {
    /// (id, slot), the slot [`EMPTY`] where there is none.
    entries: Vec<(u32, u32)>,
    len: usize,
    shift: u32,
}

impl IdMap {
    pub(crate) fn new() -> Self {
        Self { entries: vec![(0, EMPTY); 64], len: 0, shift: 32 - 3 }
    }

    fn home(&self, id: u32) -> usize {
        // Fibonacci hashing of groups of eight: the units of a prompt, whose ids mostly follow each
        // other, stay in one cache line, and prompts land far apart.
        let group = (id >> 3).wrapping_mul(0x9E37_79B1) >> self.shift;
        (group << 3 | id & 7) as usize
    }

    fn find(&self, id: u32) -> usize {
        let mask = self.entries.len() - 1;
        let mut at = self.home(id);
        while self.entries[at].1 != EMPTY && self.entries[at].0 != id {
            at = (at + 1) & mask;
        }
        at
    }

    pub(crate) fn get(&self, id: u32) -> Option<usize> {
        let (_, slot) = self.entries[self.find(id)];
        (slot != EMPTY).then_some(slot as usize)
    }

    /// Adds an id that is not there.
    pub(crate) fn insert(&mut self, id: u32, slot: u32) {
        if 2 * (self.len + 1) > self.entries.len() {
            let double = vec![(0, EMPTY); 2 * self.entries.len()];
            let old = std::mem::replace(&mut self.entries, double);
            self.shift -= 1;
            for entry in old.into_iter().filter(|entry| entry.1 != EMPTY) {
                let at = self.find(entry.0);
                self.entries[at] = entry;
            }
        }
        let at = self.find(id);
        self.entries[at] = (id, slot);
        self.len += 1;
    }

    /// Takes out an id that is there, and closes the gap.
    pub(crate) fn remove(&mut self, id: u32) {
        let mask = self.entries.len() - 1;
        let mut hole = self.find(id);
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            if self.entries[at].1 == EMPTY {
                break;
            }
            // An entry may move back if its home is not between the hole and itself.
            let home = self.home(self.entries[at].0);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.entries[hole] = self.entries[at];
                hole = at;
            }
        }
        self.entries[hole].1 = EMPTY;
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_what_a_tree_holds(ids in prop::collection::vec(0u32..400, 0..2000)) {
            let (mut map, mut tree) = (IdMap::new(), BTreeMap::new());
            for (slot, id) in (0..).zip(ids) {
                if tree.remove(&id).is_some() {
                    map.remove(id);
                } else {
                    tree.insert(id, slot);
                    map.insert(id, slot);
                }
            }
            for id in 0..400 {
                prop_assert_eq!(map.get(id), tree.get(&id).map(|&slot| slot as usize));
            }
        }
    }
}
