//! The highest load that one server alone carries within the service level.

use super::late::Pool;
use super::{Shape, Steps, Traffic};
use crate::Error;
use crate::schedule::StepTable;

/// Loads that are tried, over the bound that step times alone give.
const LOADS: i32 = 30;
/// The least of them.
const LEAST: f64 = 0.04;

/// What the servers of a pool do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Both phases.
    Mixed,
    /// Prompts only.
    Prefill,
    /// Answers only.
    Decode,
}

/// A service level that a share of the requests must meet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// Longest time to first token [s].
    pub ttft_s: f64,
    /// Longest time per output token [s].
    pub tpot_s: f64,
    /// Longest wait for a place among the sequences that decode [s].
    pub decode_wait_s: f64,
    /// Share of the requests that must meet it.
    pub quantile: f64,
}

/// One server of a pool under one traffic.
#[derive(Debug, Clone, PartialEq)]
pub struct Alone {
    role: Role,
    replicas: f64,
    chunk_tok: f64,
    steps: Steps,
    traffic: Traffic,
}

impl Alone {
    /// Reads a server's step table for a traffic.
    ///
    /// # Errors
    /// [`Error::Range`] for a server without replicas or a chunk of fewer than 2 tokens.
    pub fn new(
        role: Role,
        replicas: u32,
        table: &StepTable,
        shape: Shape,
        traffic: &Traffic,
    ) -> Result<Self, Error> {
        if replicas == 0 {
            return Err(Error::range("replicas", replicas, "at least 1"));
        }
        Ok(Self {
            role,
            replicas: f64::from(replicas),
            chunk_tok: shape.chunk_tok as f64,
            steps: Steps::of(table, shape, traffic)?,
            traffic: traffic.clone(),
        })
    }

    /// Takes an optical server, whose passes are of so many tokens and take so long.
    ///
    /// # Errors
    /// [`Error::Shape`] when there is not one time for each size.
    pub fn of_passes(
        tokens: Vec<f64>,
        linear_s: Vec<f64>,
        pair_s: f64,
        traffic: &Traffic,
    ) -> Result<Self, Error> {
        let steps = Steps::of_passes(tokens, linear_s, pair_s, traffic)?;
        Ok(Self {
            role: Role::Prefill,
            replicas: 1.0,
            chunk_tok: steps.most_tok(),
            steps,
            traffic: traffic.clone(),
        })
    }

    /// Returns the times of its steps.
    pub const fn steps(&self) -> &Steps {
        &self.steps
    }

    /// Returns a load that one server cannot exceed, from step times alone [request/s].
    pub fn bound(&self) -> f64 {
        let least = |times: &[f64], counts: &[f64]| {
            times.iter().zip(counts).map(|(s, n)| s / n).fold(f64::INFINITY, f64::min)
        };
        let prompt_s =
            self.traffic.mean_uncached_tok * least(&self.steps.prefill_s, &self.steps.tokens);
        let answer_s = self.traffic.mean_output_tok * least(&self.steps.decode_s, &self.steps.seqs);
        let busy_s = match self.role {
            Role::Mixed => prompt_s + answer_s,
            Role::Prefill => prompt_s,
            Role::Decode => answer_s,
        };
        self.replicas / busy_s
    }

    /// Returns the share of requests that miss the level when `count` servers share a queue.
    pub fn missed(&self, rate_request_per_s: f64, count: u32, level: &Level) -> f64 {
        self.pool(count).missed(rate_request_per_s, level, f64::INFINITY)
    }

    /// Returns the highest load that `count` servers on one queue carry within a level, 0 when the
    /// least load that is tried is too much, or when it is not above `beat` [request/s].
    ///
    /// A server that does no better than another costs one look.
    pub fn carried(&self, count: u32, level: &Level, beat: f64) -> f64 {
        let bound = f64::from(count) * self.bound();
        let pool = self.pool(count);
        let allowed = 1.0 - level.quantile;
        let load = |i: i32| bound * LEAST.powf(f64::from(LOADS - 1 - i) / f64::from(LOADS - 1));
        let holds = |rate: f64| pool.missed(rate, level, allowed) <= allowed;
        if beat >= bound || (beat > 0.0 && !holds(beat)) {
            return 0.0;
        }
        // Misses rise with load: the first of the loads that fails is found by halving.
        let (mut low, mut high) = (-1, LOADS);
        while high - low > 1 {
            let middle = i32::midpoint(low, high);
            if holds(load(middle)) { low = middle } else { high = middle }
        }
        if low < 0 {
            return 0.0;
        }
        if high == LOADS {
            return load(low);
        }
        let (held, over) =
            (self.missed(load(low), count, level), self.missed(load(high), count, level));
        load(low) + (allowed - held) / (over - held) * (load(high) - load(low))
    }

    fn pool(&self, count: u32) -> Pool<'_> {
        Pool {
            role: self.role,
            replicas: self.replicas,
            count: f64::from(count),
            chunk_tok: self.chunk_tok,
            steps: &self.steps,
            traffic: &self.traffic,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(tokens: usize, seqs: usize) -> StepTable {
        let upto = |n: usize, ps: fn(u64) -> u64| {
            (0..=n as u64).map(|i| if i == 0 { 0 } else { ps(i) }).collect::<Vec<u64>>()
        };
        StepTable {
            linear_ps: upto(tokens, |n| 10_000_000_000 + 5_000_000 * n),
            head_ps: upto(seqs, |_| 100_000_000),
            prefill_attn_floor_ps: 0,
            prefill_attn_pair_fs: vec![1_000; tokens + 1],
            decode_attn_floor_ps: upto(seqs, |_| 50_000_000),
            decode_attn_ctx_ps: upto(seqs, |_| 1_000),
            mix_1024: 1024,
            linear_pj: vec![1; tokens + 1],
            head_pj: vec![1; seqs + 1],
            prefill_attn_pair_fj: vec![1; tokens + 1],
            decode_attn_floor_pj: vec![1; seqs + 1],
            decode_attn_ctx_pj: vec![1; seqs + 1],
            mixed: None,
        }
    }

    fn traffic() -> Traffic {
        Traffic {
            rate_ratio: vec![0.8, 1.0, 1.2],
            prefill_ratio: vec![0.7, 1.1, 1.2],
            decode_ratio: vec![0.9, 1.0, 1.1],
            uncached_tok: vec![100.0, 500.0, 1500.0],
            uncached_weight: vec![0.4, 0.4, 0.2],
            mean_uncached_tok: 540.0,
            uncached_cv: 0.9,
            mean_input_tok: 1080.0,
            mean_output_tok: 200.0,
            mean_pairs: 5e5,
            context_tok: 1200.0,
            bin_s: 30.0,
        }
    }

    const LEVEL: Level = Level { ttft_s: 2.0, tpot_s: 0.05, decode_wait_s: 0.5, quantile: 0.9 };

    fn alone(role: Role) -> Alone {
        let shape = Shape { chunk_tok: 2048, max_seqs: 128, kv_blocks: 20_000, block_tok: 16 };
        Alone::new(role, 2, &table(4096, 256), shape, &traffic()).unwrap()
    }

    #[test]
    fn what_is_carried_is_at_the_edge_of_the_level() {
        for role in [Role::Mixed, Role::Prefill, Role::Decode] {
            let server = alone(role);
            let rate = server.carried(1, &LEVEL, 0.0);
            assert!(rate > 0.0 && rate <= server.bound() * (1.0 + 1e-9), "{role:?}");
            assert!(server.missed(rate * 0.95, 1, &LEVEL) <= 0.1, "{role:?}");
            if rate < server.bound() * 0.999 {
                assert!(server.missed(rate * 1.1, 1, &LEVEL) > 0.1, "{role:?}");
            }
        }
    }

    #[test]
    fn what_does_no_better_is_not_looked_at_further() {
        for role in [Role::Mixed, Role::Prefill, Role::Decode] {
            let server = alone(role);
            let rate = server.carried(1, &LEVEL, 0.0);
            assert!((server.carried(1, &LEVEL, rate * 0.9) - rate).abs() < 1e-12, "{role:?}");
            assert!(server.carried(1, &LEVEL, rate * 1.1).abs() < 1e-12, "{role:?}");
        }
    }

    #[test]
    fn a_laxer_level_carries_no_less() {
        let lax = Level { ttft_s: 4.0, tpot_s: 0.1, ..LEVEL };
        for role in [Role::Mixed, Role::Prefill, Role::Decode] {
            assert!(alone(role).carried(1, &lax, 0.0) >= alone(role).carried(1, &LEVEL, 0.0));
        }
    }

    #[test]
    fn an_impossible_level_carries_nothing() {
        let level = Level { ttft_s: 1e-6, ..LEVEL };
        assert!(alone(Role::Prefill).carried(1, &level, 0.0).abs() < 1e-12);
    }

    #[test]
    fn servers_that_share_a_queue_carry_no_less_each() {
        let one = alone(Role::Prefill);
        assert!(one.carried(6, &LEVEL, 0.0) >= 6.0 * one.carried(1, &LEVEL, 0.0) * (1.0 - 1e-9));
    }
}
