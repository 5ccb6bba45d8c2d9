//! A step table read at the few batch sizes that matter for one traffic.

use super::{Traffic, interpolated, rising};
use crate::Error;
use crate::schedule::StepTable;

const PS_PER_S: f64 = 1e12;
const FEMTO: f64 = 1e15;

/// Sizes of a prefill step at which a table is read.
const BATCHES: usize = 32;

/// Sequences of a decode step beside which prompts usually ride.
const TYPICAL_SEQS: usize = 64;

/// What bounds a step of one replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Most tokens in a step [tok].
    pub chunk_tok: usize,
    /// Most sequences in a step.
    pub max_seqs: usize,
    /// KV blocks of a replica.
    pub kv_blocks: u64,
    /// Tokens in a block [tok].
    pub block_tok: u64,
}

/// Times of the steps of one replica under one traffic.
#[derive(Debug, Clone, PartialEq)]
pub struct Steps {
    /// Prompt tokens of a step, ascending [tok].
    pub tokens: Vec<f64>,
    /// Time of such a step with its attention [s].
    pub prefill_s: Vec<f64>,
    /// Time of it without [s].
    pub linear_s: Vec<f64>,
    /// Decoding sequences, 1 and up.
    pub seqs: Vec<f64>,
    /// Time of a step that decodes them [s].
    pub decode_s: Vec<f64>,
    /// What a prompt token adds to a step that decodes [s].
    pub extra_s_per_tok: f64,
    /// Attention time of a query-key pair of a prompt [s].
    pub pair_s: f64,
    /// Most prompt tokens a second that steps of up to each size compute [tok/s].
    pub(super) prefill_speed: Vec<f64>,
    /// Most tokens a second that up to so many sequences decode [tok/s].
    pub(super) decode_speed: Vec<f64>,
    /// Longest step of up to so many sequences [s].
    pub(super) decode_rising_s: Vec<f64>,
}

impl Steps {
    /// Reads a table at the batch sizes that matter.
    ///
    /// # Errors
    /// [`Error::Range`] when the chunk is shorter than 2 tokens, which leaves nothing to compare.
    pub fn of(table: &StepTable, shape: Shape, traffic: &Traffic) -> Result<Self, Error> {
        let (max_tok, max_seqs) = (table.linear_ps.len() - 1, table.head_ps.len() - 1);
        let chunk = shape.chunk_tok.min(max_tok);
        if chunk < 2 {
            return Err(Error::range("chunk_tok", shape.chunk_tok, "at least 2"));
        }
        let mean = traffic.mean_uncached_tok;
        // Prompts of one step end together; the bound on them bounds the step as well.
        let most = (chunk as f64).min(shape.max_seqs as f64 * mean);
        let sizes = geometric(most.max(2.0));
        let pair_at = |tokens: usize| {
            let row = tokens.min(whole(mean) + 1).min(max_tok);
            table.prefill_attn_pair_fs[row] as f64 / FEMTO
        };
        let linear_s: Vec<f64> = sizes
            .iter()
            .map(|&tokens| {
                let prompts = (tokens as f64 / mean).max(1.0);
                let ends = whole(prompts.round_ties_even()).min(max_seqs);
                let ps = table.linear_ps[tokens] as f64
                    + table.head_ps[ends] as f64
                    + prompts * table.prefill_attn_floor_ps as f64;
                ps / PS_PER_S
            })
            .collect();
        let pairs_per_tok = traffic.mean_pairs / mean;
        let prefill_s: Vec<f64> = sizes
            .iter()
            .zip(&linear_s)
            .map(|(&tokens, linear)| linear + pairs_per_tok * tokens as f64 * pair_at(tokens))
            .collect();
        let held = traffic.context_tok + shape.block_tok as f64 / 2.0;
        let room = whole((shape.kv_blocks * shape.block_tok) as f64 / held);
        let most_seqs = shape.max_seqs.min(room).min(max_seqs).max(1);
        let decode_s: Vec<f64> = (1..=most_seqs)
            .map(|seqs| {
                let ps = (table.linear_ps[seqs.min(max_tok)]
                    + table.head_ps[seqs]
                    + table.decode_attn_floor_ps[seqs]) as f64
                    + (table.decode_attn_ctx_ps[seqs] * seqs as u64) as f64 * traffic.context_tok;
                ps / PS_PER_S
            })
            .collect();
        let typical = TYPICAL_SEQS.min(most_seqs).min(chunk - 1);
        let further_ps = table.linear_ps[chunk] as f64 - table.linear_ps[typical] as f64;
        let pair_s = sizes.last().map_or(0.0, |&tokens| pair_at(tokens));
        let tokens: Vec<f64> = sizes.iter().map(|&size| size as f64).collect();
        let seqs: Vec<f64> = (1..=most_seqs).map(|count| count as f64).collect();
        Ok(Self {
            extra_s_per_tok: further_ps / PS_PER_S / (chunk - typical) as f64
                + pairs_per_tok * pair_s,
            prefill_speed: rising(tokens.iter().zip(&prefill_s).map(|(n, s)| n / s)),
            decode_speed: rising(seqs.iter().zip(&decode_s).map(|(n, s)| n / s)),
            decode_rising_s: rising(decode_s.iter().copied()),
            tokens,
            prefill_s,
            linear_s,
            seqs,
            decode_s,
            pair_s,
        })
    }

    /// Takes passes that only compute prompts.
    ///
    /// # Errors
    /// [`Error::Shape`] when there is not one time for each size.
    pub fn of_passes(
        tokens: Vec<f64>,
        linear_s: Vec<f64>,
        pair_s: f64,
        traffic: &Traffic,
    ) -> Result<Self, Error> {
        if tokens.is_empty() || tokens.len() != linear_s.len() {
            return Err(Error::shape(
                "linear_s",
                linear_s.len(),
                format!("{}, at least 1", tokens.len()),
            ));
        }
        let pairs_per_tok = traffic.mean_pairs / traffic.mean_uncached_tok;
        let prefill_s: Vec<f64> =
            tokens.iter().zip(&linear_s).map(|(n, s)| s + pairs_per_tok * n * pair_s).collect();
        Ok(Self {
            extra_s_per_tok: pairs_per_tok * pair_s,
            prefill_speed: rising(tokens.iter().zip(&prefill_s).map(|(n, s)| n / s)),
            // Nobody decodes here; one sequence that takes for ever keeps the formulas whole.
            decode_speed: vec![f64::MIN_POSITIVE],
            decode_rising_s: vec![f64::MAX],
            seqs: vec![1.0],
            decode_s: vec![f64::MAX],
            tokens,
            prefill_s,
            linear_s,
            pair_s,
        })
    }

    /// Returns the size of the prefill step that keeps up with so many tokens a second [tok].
    pub fn prefill_size_tok(&self, tok_per_s: f64) -> f64 {
        interpolated(tok_per_s, &self.prefill_speed, &self.tokens)
    }

    /// Returns the time of a prefill step with its attention [s].
    pub fn prefill_time_s(&self, tokens: f64) -> f64 {
        interpolated(tokens, &self.tokens, &self.prefill_s)
    }

    /// Returns the sequences in flight that keep up with so many tokens a second.
    pub fn decode_seqs(&self, tok_per_s: f64) -> f64 {
        interpolated(tok_per_s, &self.decode_speed, &self.seqs)
    }

    /// Returns the time of a step that decodes so many sequences [s].
    pub fn decode_time_s(&self, seqs: f64) -> f64 {
        interpolated(seqs, &self.seqs, &self.decode_s)
    }

    /// Returns the largest prefill step [tok].
    pub fn most_tok(&self) -> f64 {
        self.tokens[self.tokens.len() - 1]
    }
}

/// Returns up to [`BATCHES`] whole numbers from 1 to `most` in equal ratios.
fn geometric(most: f64) -> Vec<usize> {
    let step = most.log10() / (BATCHES - 1) as f64;
    let mut sizes: Vec<usize> = (0..BATCHES)
        .map(|i| if i + 1 == BATCHES { most } else { 10f64.powf(i as f64 * step) })
        .map(|size| whole(size.round_ties_even()))
        .collect();
    sizes.dedup();
    sizes
}

/// Returns the whole part of a number that is not negative.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "lengths and counts: never negative, and a saturating cast bounds the rest"
)]
fn whole(value: f64) -> usize {
    value as usize
}
