//! What one step costs on one replica: picoseconds, and picojoules above idle.
//!
//! ```text
//! prefill_attn = Σ_chunks floor + (q·kv + q(q+1)/2) · pair_fs[q] / 1000
//! decode_attn  = ctx_floor[n] + ctx[n] · S                       (0 when n = 0)
//! step         = linear[m] + head[e] + max(…) + min(…) · mix / 1024
//! ```
//!
//! `m` tokens in the step, `e` emitted, `q` new tokens behind `kv` resident ones in a chunk, `n`
//! decoding sequences whose context lengths sum to `S`. All divisions floor.

use super::clock::Ps;
use super::mixed::MixedAttention;
use crate::error::Error;

/// Step costs of one replica; see the module text for the formula.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepTable {
    /// Time by tokens in the step [ps]; entry 0 is 0.
    pub linear_ps: Vec<u64>,
    /// Time of output head and sampler by emitted tokens [ps]; entry 0 is 0.
    pub head_ps: Vec<u64>,
    /// Floor of each prefill chunk's attention [ps].
    pub prefill_attn_floor_ps: u64,
    /// Prefill attention per query-key pair by chunk length [fs].
    pub prefill_attn_pair_fs: Vec<u64>,
    /// Decode attention floor by sequences [ps]; entry 0 is 0.
    pub decode_attn_floor_ps: Vec<u64>,
    /// Decode attention per context token by sequences [ps].
    pub decode_attn_ctx_ps: Vec<u64>,
    /// Share of the smaller attention part that is not hidden, in 1/1024.
    pub mix_1024: u64,
    /// Energy above idle beside `linear_ps` [pJ].
    pub linear_pj: Vec<u64>,
    /// Energy above idle beside `head_ps` [pJ].
    pub head_pj: Vec<u64>,
    /// Energy beside `prefill_attn_pair_fs` [fJ].
    pub prefill_attn_pair_fj: Vec<u64>,
    /// Energy beside `decode_attn_floor_ps` [pJ].
    pub decode_attn_floor_pj: Vec<u64>,
    /// Energy beside `decode_attn_ctx_ps` [pJ].
    pub decode_attn_ctx_pj: Vec<u64>,
    /// Measured attention times instead of the affine ones above; energies stay affine.
    pub mixed: Option<MixedAttention>,
}

/// Attention of a step: each part alone, and both together [ps].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AttnPs {
    pub(crate) prefill: u64,
    pub(crate) decode: u64,
    pub(crate) both: u64,
}

/// The longest part of a step that is accepted: 1000 s. It keeps every sum of a run of steps inside
/// a `u64`.
const LONGEST_PS: u64 = 1_000_000_000_000_000;

/// The most energy of one part of a step that is accepted: 1 MJ.
const MOST_PJ: u64 = 1_000_000_000_000_000_000;

impl StepTable {
    /// Checks shapes and ranges once, so that the loop need not.
    ///
    /// # Errors
    /// [`Error::Shape`] when tables over the same axis differ in length, [`Error::Range`] when a
    /// step could take no time or an absurd one.
    pub fn check(&self) -> Result<(), Error> {
        let tokens = self.linear_ps.len();
        let seqs = self.head_ps.len();
        if tokens < 2 {
            return Err(Error::range("linear_ps", format!("{tokens} entries"), "at least 2"));
        }
        if seqs < 2 {
            return Err(Error::range("head_ps", format!("{seqs} entries"), "at least 2"));
        }
        for (name, table, length) in [
            ("prefill_attn_pair_fs", &self.prefill_attn_pair_fs, tokens),
            ("linear_pj", &self.linear_pj, tokens),
            ("prefill_attn_pair_fj", &self.prefill_attn_pair_fj, tokens),
            ("decode_attn_floor_ps", &self.decode_attn_floor_ps, seqs),
            ("decode_attn_ctx_ps", &self.decode_attn_ctx_ps, seqs),
            ("head_pj", &self.head_pj, seqs),
            ("decode_attn_floor_pj", &self.decode_attn_floor_pj, seqs),
            ("decode_attn_ctx_pj", &self.decode_attn_ctx_pj, seqs),
        ] {
            if table.len() != length {
                return Err(Error::shape(name, table.len(), length));
            }
        }
        for (name, table) in [
            ("linear_ps", &self.linear_ps),
            ("head_ps", &self.head_ps),
            ("decode_attn_floor_ps", &self.decode_attn_floor_ps),
            ("linear_pj", &self.linear_pj),
            ("head_pj", &self.head_pj),
            ("decode_attn_floor_pj", &self.decode_attn_floor_pj),
        ] {
            if table[0] != 0 {
                return Err(Error::range(format!("{name}[0]"), table[0], "0: no tokens, no cost"));
            }
        }
        for (name, table) in [
            ("linear_ps", &self.linear_ps),
            ("head_ps", &self.head_ps),
            ("decode_attn_floor_ps", &self.decode_attn_floor_ps),
        ] {
            if let Some(at) = table.iter().position(|&ps| ps > LONGEST_PS) {
                let allowed = format!("at most {LONGEST_PS} ps");
                return Err(Error::range(format!("{name}[{at}]"), table[at], allowed));
            }
        }
        for (name, table) in [
            ("linear_pj", &self.linear_pj),
            ("head_pj", &self.head_pj),
            ("decode_attn_floor_pj", &self.decode_attn_floor_pj),
        ] {
            if let Some(at) = table.iter().position(|&pj| pj > MOST_PJ) {
                let allowed = format!("at most {MOST_PJ} pJ");
                return Err(Error::range(format!("{name}[{at}]"), table[at], allowed));
            }
        }
        if let Some(at) = self.linear_ps[1..].iter().position(|&ps| ps == 0) {
            return Err(Error::range(format!("linear_ps[{}]", at + 1), 0, "above 0"));
        }
        if let Some(mixed) = &self.mixed {
            mixed.check()?;
            let (tokens, seqs) = mixed.largest();
            if tokens < self.max_tok() || seqs < self.max_seqs() {
                let allowed = format!("at most {tokens} tokens and {seqs} sequences, as measured");
                let given = format!("{} and {}", self.max_tok(), self.max_seqs());
                return Err(Error::range("the table's steps", given, allowed));
            }
        }
        if self.mix_1024 > 8192 {
            return Err(Error::range("mix_1024", self.mix_1024, "0 to 8192"));
        }
        Ok(())
    }

    /// Checks that no step over a KV cache of `kv_tok` tokens can overflow.
    ///
    /// # Errors
    /// [`Error::Range`] with the entry that is too slow.
    pub fn check_context(&self, kv_tok: u64) -> Result<(), Error> {
        let kv = u128::from(kv_tok);
        let too_slow = |name: &str, at: usize, given: u64| {
            let allowed = format!("a step of at most 1000 s over {kv_tok} tokens of KV cache");
            Error::range(format!("{name}[{at}]"), given, allowed)
        };
        let (time, energy) = (u128::from(LONGEST_PS), u128::from(MOST_PJ));
        for (name, table, most) in [
            ("decode_attn_ctx_ps", &self.decode_attn_ctx_ps, time),
            ("decode_attn_ctx_pj", &self.decode_attn_ctx_pj, energy),
        ] {
            if let Some(at) = table.iter().position(|&v| u128::from(v) * kv > most) {
                return Err(too_slow(name, at, table[at]));
            }
        }
        for (name, table, most) in [
            ("prefill_attn_pair_fs", &self.prefill_attn_pair_fs, time),
            ("prefill_attn_pair_fj", &self.prefill_attn_pair_fj, energy),
        ] {
            for (q, &value) in table.iter().enumerate() {
                if u128::from(value) * (q as u128) * kv / 1000 > most {
                    return Err(too_slow(name, q, value));
                }
            }
        }
        Ok(())
    }

    /// Largest number of tokens in one step.
    pub fn max_tok(&self) -> u64 {
        self.linear_ps.len() as u64 - 1
    }

    /// Largest number of sequences in one step.
    pub fn max_seqs(&self) -> u64 {
        self.head_ps.len() as u64 - 1
    }

    /// Time [ps] and energy [pJ] of a chunk's attention.
    pub(crate) fn chunk_attn(&self, q: u64, kv: u64) -> (u64, u64) {
        let (pairs, at) = (pairs(q, kv), index(q));
        let ps = self.prefill_attn_floor_ps + floor_milli(pairs, self.prefill_attn_pair_fs[at]);
        (ps, floor_milli(pairs, self.prefill_attn_pair_fj[at]))
    }

    pub(crate) fn decode_attn_ps(&self, n: u64, context: u64) -> u64 {
        self.decode_attn_floor_ps[index(n)] + self.decode_attn_ctx_ps[index(n)] * context
    }

    pub(crate) fn decode_attn_pj(&self, n: u64, context: u64) -> u64 {
        self.decode_attn_floor_pj[index(n)] + self.decode_attn_ctx_pj[index(n)] * context
    }

    /// Estimated time of a prompt alone: `new` tokens behind `hit` cached ones, `budget` a step.
    pub(crate) fn prompt_ps(&self, new: u64, hit: u64, budget: u64) -> Ps {
        let (whole, rest) = (new / budget, new % budget);
        let pair = self.prefill_attn_pair_fs[index(new.min(budget))];
        whole * self.linear_ps[index(budget)]
            + self.linear_ps[index(rest)]
            + floor_milli(pairs(new, hit), pair)
    }

    /// Attention of `n` decoding sequences whose contexts sum to `context`, beside prompt chunks
    /// of (tokens, context before them) that alone take `prefill`.
    ///
    /// A measured table is asked for the longest chunk beside the decoding sequences; further
    /// chunks add what they take alone. `longest` is the longest decode context.
    pub(crate) fn attention(
        &self,
        chunks: impl Iterator<Item = (u64, u64)>,
        prefill: u64,
        n: u64,
        context: u64,
        longest: impl FnOnce() -> u64,
    ) -> AttnPs {
        if let Some(mixed) = &self.mixed {
            return measured(mixed, chunks, n, context, longest);
        }
        let decode = if n > 0 { self.decode_attn_ps(n, context) } else { 0 };
        let (more, less) = (prefill.max(decode), prefill.min(decode));
        AttnPs { prefill, decode, both: more + less * self.mix_1024 / 1024 }
    }

    /// A step of `m` tokens that emits `emitted`, around its attention.
    pub(crate) fn step_ps(&self, m: u64, emitted: u64, attn: AttnPs) -> Ps {
        self.linear_ps[index(m)] + self.head_ps[index(emitted)] + attn.both
    }

    /// As [`StepTable::step_ps`], where `rows` through the output head may be beyond its table.
    pub(crate) fn verify_ps(&self, m: u64, rows: u64, attn: AttnPs) -> Ps {
        self.linear_ps[index(m)] + beyond(&self.head_ps, rows) + attn.both
    }

    /// Energy of the output head beside that [pJ].
    pub(crate) fn verify_head_pj(&self, rows: u64) -> u64 {
        beyond(&self.head_pj, rows)
    }

    /// Checks that the output head can be told for `rows` tokens, which may be beyond its table.
    pub(crate) fn check_rows(&self, rows: u64) -> Result<(), Error> {
        for (name, table, most) in
            [("head_ps", &self.head_ps, LONGEST_PS), ("head_pj", &self.head_pj, MOST_PJ)]
        {
            let rise = last_rise(table);
            if u128::from(rise) * u128::from(rows) > u128::from(most) {
                let allowed = format!("at most {most} when it goes on to {rows} tokens");
                return Err(Error::range(format!("the last rise of {name}"), rise, allowed));
            }
        }
        Ok(())
    }
}

/// [`StepTable::attention`] by a measured table; apart, so that the usual case stays small.
#[inline(never)]
fn measured(
    mixed: &MixedAttention,
    chunks: impl Iterator<Item = (u64, u64)>,
    n: u64,
    context: u64,
    longest: impl FnOnce() -> u64,
) -> AttnPs {
    let mean = if n > 0 { mixed.context(n, context, longest()) } else { 0 };
    let (mut first, mut alone) = ((0, 0), 0);
    for chunk in chunks {
        alone += mixed.ps(chunk.0, chunk.1, 0, 0);
        if chunk.0 > first.0 {
            first = chunk;
        }
    }
    let decode = mixed.ps(0, 0, n, mean);
    if first.0 == 0 {
        return AttnPs { prefill: 0, decode, both: decode };
    }
    let others = alone - mixed.ps(first.0, first.1, 0, 0);
    let both = mixed.ps(first.0, first.1, n, mean) + others;
    AttnPs { prefill: alone, decode, both }
}

/// The entry `at` of a table; where there is none, its last rise goes on.
///
/// Only verification asks the output head for more rows than there are sequences.
fn beyond(table: &[u64], at: u64) -> u64 {
    table.get(index(at)).copied().unwrap_or_else(|| {
        let end = table.len() - 1;
        table[end] + (at - end as u64) * last_rise(table)
    })
}

fn last_rise(table: &[u64]) -> u64 {
    match table {
        [.., before, last] => last.saturating_sub(*before),
        _ => 0,
    }
}

/// Query-key pairs of a causal chunk: `q` new tokens behind `kv` resident ones.
fn pairs(q: u64, kv: u64) -> u64 {
    q * kv + q * (q + 1) / 2
}

fn floor_milli(count: u64, per_milli: u64) -> u64 {
    if let Some(product) = count.checked_mul(per_milli) {
        return product / 1000;
    }
    let product = u128::from(count) * u128::from(per_milli) / 1000;
    u64::try_from(product).expect("StepTable::check bounds the factors")
}

/// A count as an index into a table. Counts are bounded by the tables' lengths.
#[expect(clippy::cast_possible_truncation, reason = "bounded by a table's length, a usize")]
pub(crate) fn index(count: u64) -> usize {
    count as usize
}
