//! Speculative decoding: how many tokens are drafted, how many hold, what drafting costs.
//!
//! What becomes of them in a step is in `replica/speculation.rs`.

use super::fleet::{Policy, PoolSpec, Role};
use crate::error::Error;
use crate::rng::mixed;

/// A few tokens are drafted, and the next step verifies them all at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpeculationSpec {
    /// How probable it is that the first one, two, … drafts are all accepted, in 2⁻³²: as many as
    /// are drafted, none above the one before it.
    pub accepted: Vec<u64>,
    /// Time and energy of drafting one token, as a share of a plain decode step, in 2⁻²⁰.
    pub draft_share: u64,
    /// Key of the draws.
    pub seed: u64,
}

impl SpeculationSpec {
    /// Tokens drafted for each request in a step.
    pub(crate) fn drafts(&self) -> u64 {
        self.accepted.len() as u64
    }

    /// How many drafts of request `r` hold when it has `generated` tokens out.
    pub(crate) fn accepted_of(&self, r: u32, generated: u32) -> u64 {
        const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
        let place = u64::from(r) << 32 | u64::from(generated);
        let drawn = mixed(place.wrapping_mul(GOLDEN).wrapping_add(self.seed)) >> 32;
        self.accepted.iter().take_while(|&&share| drawn < share).count() as u64
    }

    /// What drafting one token costs of a `whole` plain step.
    pub(crate) fn share(&self, whole: u128) -> u128 {
        (whole * u128::from(self.draft_share)) >> 20
    }
}

impl PoolSpec {
    /// Tokens drafted for each decoding request in a step.
    pub(crate) fn drafts(&self) -> u64 {
        self.speculation.as_ref().map_or(0, SpeculationSpec::drafts)
    }

    pub(crate) fn check_speculation(&self, rule: &SpeculationSpec, at: usize) -> Result<(), Error> {
        let name = |field: &str| format!("pools[{at}].{field}");
        if !matches!(self.policy, Policy::Vllm { chunk_tok: 0 }) || self.role == Role::Prefill {
            let given = format!("{:?} on a {:?} pool", self.policy, self.role);
            let allowed = "a mixed or decode pool under vllm without chunk_tok";
            return Err(Error::range(name("speculation"), given, allowed));
        }
        if !(1..=32).contains(&rule.drafts()) {
            return Err(Error::range(name("speculation.drafts"), rule.drafts(), "1 to 32"));
        }
        let whole = 1 << 32;
        if rule.accepted[0] > whole || rule.accepted.windows(2).any(|pair| pair[0] < pair[1]) {
            let given = format!("{:?}", rule.accepted);
            let allowed = "shares in 2^-32 that do not rise, at most 2^32";
            return Err(Error::range(name("speculation.accepted"), given, allowed));
        }
        if rule.draft_share > 1 << 20 {
            let allowed = "shares in 2^-20, at most 2^20";
            return Err(Error::range(name("speculation.draft_share"), rule.draft_share, allowed));
        }
        let rows = self.verified_rows();
        if rows > self.token_budget {
            let allowed = format!("{rows} (max_seqs times one and the drafts) or more");
            return Err(Error::range(name("token_budget"), self.token_budget, allowed));
        }
        self.table.check_rows(rows)
    }

    /// Most tokens of decoding requests in a step.
    pub(crate) fn verified_rows(&self) -> u64 {
        self.max_seqs.saturating_mul(1 + self.drafts())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(seed: u64) -> SpeculationSpec {
        let accepted = [8, 5, 1].map(|tenths: u64| (tenths << 32) / 10);
        SpeculationSpec { accepted: accepted.to_vec(), draft_share: 1 << 18, seed }
    }

    #[test]
    fn drafts_hold_as_often_as_they_should() {
        let (rule, places) = (rule(7), 200_000);
        let mut held = [0_u32; 4];
        for place in 0..places {
            let count = rule.accepted_of(place / 1000, place % 1000);
            held[usize::try_from(count).unwrap()] += 1;
        }
        for (count, share) in [0.2, 0.3, 0.4, 0.1].into_iter().enumerate() {
            let expected = share * f64::from(places);
            let bound = 4.0 * (expected * (1.0 - share)).sqrt();
            assert!((f64::from(held[count]) - expected).abs() < bound, "{count}: {held:?}");
        }
    }

    #[test]
    fn a_draw_belongs_to_request_place_and_seed() {
        let draws = |rule: &SpeculationSpec, r| -> Vec<u64> {
            (0..64).map(|place| rule.accepted_of(r, place)).collect()
        };
        let one = draws(&rule(7), 3);
        assert_eq!(one, draws(&rule(7), 3));
        assert_ne!(one, draws(&rule(7), 4));
        assert_ne!(one, draws(&rule(8), 3));
    }

    #[test]
    fn a_share_of_a_quarter_is_a_quarter() {
        assert_eq!(rule(0).share(4_000_000_003), 1_000_000_000);
    }
}
