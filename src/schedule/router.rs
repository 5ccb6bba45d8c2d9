//! Which replica takes a request, and who computes its prompt.

use std::ops::Range;

use super::clock::Ps;
use super::fleet::{Disaggregation, FleetSpec, Routing};
use super::metrics::Counters;
use super::replica::Replica;
use super::request::Requests;
use super::steps::index;

/// What a router sees.
pub(crate) struct View<'a> {
    pub(crate) fleet: &'a FleetSpec,
    pub(crate) requests: &'a Requests,
    pub(crate) counters: &'a mut [Counters],
    pub(crate) now: Ps,
}

/// Whose turn is next, for each stage of a request.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Turns {
    pub(crate) entry: u64,
    pub(crate) decode: u64,
}

impl View<'_> {
    /// Tokens of the start of `r`'s prompt that replica `i` has: in HBM, DRAM and storage.
    fn cached(&mut self, replica: &mut Replica, r: u32) -> [u64; 3] {
        let private = u64::from(self.requests[r].cached_tok);
        if private > 0 {
            return [private, 0, 0];
        }
        let counters = &mut self.counters[replica.pool];
        let found = replica.overlap(r, self.now, self.requests, counters, self.fleet);
        [found.hbm, found.lower[0], found.lower[1]].map(|units| units * self.fleet.unit_tok)
    }
}

/// The replica of `range` that computes the prompt of `r`, and the tokens it is charged with; none
/// when all are down.
pub(crate) fn entry(
    replicas: &mut [Replica],
    range: Range<usize>,
    r: u32,
    turns: &mut Turns,
    view: &mut View<'_>,
) -> Option<(usize, u32)> {
    let isl = u64::from(view.requests[r].isl_tok);
    let best = match view.fleet.routing {
        Routing::LeastLoad => least(replicas, range, |replica| replica.load),
        Routing::RoundRobin => next_turn(&mut turns.entry, replicas, range),
        Routing::PrefixAware { weight_1024, credit_1024 } => least(replicas, range, |replica| {
            let cached = view.cached(replica, r);
            let credit: u64 = cached.iter().zip(credit_1024).map(|(tok, c)| tok * c).sum();
            let to_compute = 1024 * (replica.prompt_tok + isl) - credit;
            u128::from(weight_1024) * u128::from(to_compute)
                + (u128::from(replica.context_tok) << 20)
        }),
        Routing::LeastTtft => least(replicas, range, |replica| {
            let cached: u64 = view.cached(replica, r).iter().sum();
            let spec = &view.fleet.pools[replica.pool];
            replica.queue_ps + spec.table.prompt_ps(isl - cached, cached, spec.token_budget)
        }),
    }?;
    let new = match view.fleet.routing {
        Routing::LeastLoad | Routing::RoundRobin => isl - u64::from(view.requests[r].cached_tok),
        _ => isl - view.cached(&mut replicas[best], r).iter().sum::<u64>(),
    };
    let new = u32::try_from(new).expect("Invariant: a part of a prompt is at most the prompt");
    Some((best, new))
}

/// The replica of `range` that decodes a request whose prompt is computed.
pub(crate) fn decode(
    replicas: &mut [Replica],
    range: Range<usize>,
    turns: &mut Turns,
    routing: Routing,
) -> Option<usize> {
    match routing {
        Routing::RoundRobin => next_turn(&mut turns.decode, replicas, range),
        Routing::PrefixAware { .. } => least(replicas, range, |replica| replica.context_tok),
        Routing::LeastLoad | Routing::LeastTtft => least(replicas, range, |replica| replica.load),
    }
}

/// The tokens of the prompt of `r` that `decode` computes itself, if it is to do that.
///
/// `queued_tok` is what the prefill replica that would take it has still to compute.
pub(crate) fn local(
    queued_tok: u64,
    decode: &mut Replica,
    r: u32,
    view: &mut View<'_>,
) -> Option<u32> {
    let isl = u64::from(view.requests[r].isl_tok);
    let new = isl - view.cached(decode, r)[0];
    let local = match view.fleet.disaggregation {
        Disaggregation::Always => false,
        Disaggregation::Never => true,
        Disaggregation::Conditional { below_tok, share_1024, queue_tok, busy_seqs } => {
            let little = new < below_tok && new * 1024 < share_1024 * isl;
            let queued = queue_tok > 0 && queued_tok > queue_tok;
            let busy = busy_seqs > 0 && decode.load >= busy_seqs;
            (little || queued) && !busy
        }
    };
    local.then(|| u32::try_from(new).expect("Invariant: a part of a prompt is at most the prompt"))
}

/// Those of `range` that are up, one after the other.
fn next_turn(turn: &mut u64, replicas: &[Replica], range: Range<usize>) -> Option<usize> {
    let count = replicas[range.clone()].iter().filter(|replica| replica.is_up()).count();
    let place = index(turn.checked_rem(count as u64)?);
    *turn += 1;
    range.filter(|&i| replicas[i].is_up()).nth(place)
}

/// The replica of `range` that is up and has the least cost; the lowest of equals.
#[inline]
fn least<C: PartialOrd>(
    replicas: &mut [Replica],
    range: Range<usize>,
    mut cost: impl FnMut(&mut Replica) -> C,
) -> Option<usize> {
    let first = range.clone().find(|&i| replicas[i].is_up())?;
    let (mut best, mut least) = (first, cost(&mut replicas[first]));
    for (i, replica) in replicas.iter_mut().enumerate().take(range.end).skip(first + 1) {
        if replica.is_up() {
            let other = cost(replica);
            if other < least {
                (best, least) = (i, other);
            }
        }
    }
    Some(best)
}
