//! Which replica takes a request.

use super::replica::Replica;

/// The replica of `range` with the least load; the lowest of equals.
///
/// Load is unfinished requests on mixed and decode replicas, prompt tokens still to compute on
/// prefill replicas.
pub(crate) fn least_loaded(replicas: &[Replica], range: std::ops::Range<usize>) -> usize {
    let mut best = range.start;
    for i in range {
        if replicas[i].load < replicas[best].load {
            best = i;
        }
    }
    best
}
