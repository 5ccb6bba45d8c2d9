//! From a unit's id to its slot: pages of neighbouring ids, made when one of them is first there.
//!
//! The units of a prompt mostly have ids that follow each other, so that a look-up of a prompt walks
//! along a page. Ids are dense, as [`super::request::Requests`] needs them to be anyway.

/// No entry, and no page.
const EMPTY: u32 = u32::MAX;
const PAGE_BITS: u32 = 8;
const PAGE: usize = 1 << PAGE_BITS;

/// A table in two levels.
#[derive(Debug, Clone)]
pub(crate) struct IdMap {
    /// Page by the upper part of an id.
    page_of: Vec<u32>,
    /// Slot by the lower part.
    pages: Vec<[u32; PAGE]>,
    /// Entries on each page.
    entries: Vec<u32>,
    /// Pages without entries.
    vacant: Vec<u32>,
}

impl IdMap {
    pub(crate) fn new() -> Self {
        Self { page_of: Vec::new(), pages: Vec::new(), entries: Vec::new(), vacant: Vec::new() }
    }

    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<usize> {
        let page = *self.page_of.get((id >> PAGE_BITS) as usize)?;
        let slot = self.pages.get(page as usize)?[id as usize % PAGE];
        (slot != EMPTY).then_some(slot as usize)
    }

    /// Adds an id that is not there.
    pub(crate) fn insert(&mut self, id: u32, slot: u32) {
        let upper = (id >> PAGE_BITS) as usize;
        if upper >= self.page_of.len() {
            self.page_of.resize(upper + 1, EMPTY);
        }
        if self.page_of[upper] == EMPTY {
            self.page_of[upper] = self.vacant.pop().unwrap_or_else(|| {
                self.pages.push([EMPTY; PAGE]);
                self.entries.push(0);
                u32::try_from(self.pages.len() - 1).expect("fewer pages than ids")
            });
        }
        let page = self.page_of[upper] as usize;
        self.pages[page][id as usize % PAGE] = slot;
        self.entries[page] += 1;
    }

    /// Takes out an id that is there.
    pub(crate) fn remove(&mut self, id: u32) {
        let upper = (id >> PAGE_BITS) as usize;
        let page = self.page_of[upper];
        self.pages[page as usize][id as usize % PAGE] = EMPTY;
        self.entries[page as usize] -= 1;
        if self.entries[page as usize] == 0 {
            self.page_of[upper] = EMPTY;
            self.vacant.push(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_what_a_tree_holds(ids in prop::collection::vec(0u32..1400, 0..4000)) {
            let (mut map, mut tree) = (IdMap::new(), BTreeMap::new());
            for (slot, id) in (0..).zip(ids) {
                if tree.remove(&id).is_some() {
                    map.remove(id);
                } else {
                    tree.insert(id, slot);
                    map.insert(id, slot);
                }
            }
            for id in 0..1400 {
                prop_assert_eq!(map.get(id), tree.get(&id).map(|&slot| slot as usize));
            }
        }
    }
}
