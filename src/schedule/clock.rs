//! Simulated time, and which replica acts next.

/// Simulated time [ps]. A `u64` of picoseconds lasts 213 days.
pub type Ps = u64;

/// A time that never comes.
pub const NEVER: Ps = Ps::MAX;

/// The next event time of every replica, with the earliest at the root of a complete tree.
///
/// Equal times go to the lowest index, so the order of events is total.
#[derive(Debug, Clone)]
pub(crate) struct NextEvents {
    leaves: usize,
    tree: Vec<Ps>,
}

impl NextEvents {
    pub(crate) fn new(replicas: usize) -> Self {
        let leaves = replicas.next_power_of_two().max(1);
        Self { leaves, tree: vec![NEVER; 2 * leaves] }
    }

    /// The earliest event time, [`NEVER`] when nothing is under way.
    pub(crate) fn earliest(&self) -> Ps {
        self.tree[1]
    }

    pub(crate) fn set(&mut self, replica: usize, at: Ps) {
        let mut node = self.leaves + replica;
        self.tree[node] = at;
        while node > 1 {
            node /= 2;
            let least = self.tree[2 * node].min(self.tree[2 * node + 1]);
            if self.tree[node] == least {
                break;
            }
            self.tree[node] = least;
        }
    }

    /// The lowest replica whose event time is the earliest.
    pub(crate) fn first(&self) -> usize {
        let mut node = 1;
        while node < self.leaves {
            node *= 2;
            if self.tree[node] != self.tree[node / 2] {
                node += 1;
            }
        }
        node - self.leaves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_times_go_to_the_lowest_replica() {
        let mut next = NextEvents::new(5);
        next.set(4, 7);
        next.set(2, 7);
        assert_eq!((next.earliest(), next.first()), (7, 2));
        next.set(2, NEVER);
        assert_eq!((next.earliest(), next.first()), (7, 4));
        next.set(4, NEVER);
        assert_eq!(next.earliest(), NEVER);
    }

    #[test]
    fn one_replica_is_a_tree_of_one_leaf() {
        let mut next = NextEvents::new(1);
        next.set(0, 3);
        assert_eq!((next.earliest(), next.first()), (3, 0));
    }
}
