//! The normaliser of a row of logits, and how far another row is from it.

use rayon::prelude::*;

use crate::error::Error;
use crate::runners::exp::exp;
use crate::runners::isa::dispatched;

const LANES: usize = 16;
/// Values summed in `f32` before their sum is added in `f64`.
const BLOCK: usize = 1024;

dispatched! {
    /// Returns `ln Σ e^x` of one row: 16 `f32` lanes a block, blocks in `f64`.
    fn row(logits: &[f32]) -> f64 {
        let mut top = [f32::NEG_INFINITY; LANES];
        for chunk in logits.chunks(LANES) {
            for (top, value) in top.iter_mut().zip(chunk) {
                *top = if *value > *top { *value } else { *top };
            }
        }
        let top = top.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut total = 0.0_f64;
        for block in logits.chunks(BLOCK) {
            let mut lanes = [0.0_f32; LANES];
            for chunk in block.chunks(LANES) {
                for (lane, value) in lanes.iter_mut().zip(chunk) {
                    *lane += exp(value - top);
                }
            }
            total += f64::from(lanes.iter().sum::<f32>());
        }
        f64::from(top) + total.ln()
    }
}

/// Writes `ln Σ e^x` of every row of `logits`, `(rows, vocab)`, to `out`, `(rows,)`.
///
/// # Errors
/// [`Error::Shape`] when the rows do not fit; [`Error::Range`] when `vocab` is 0.
pub fn log_sum_exp(logits: &[f32], vocab: usize, out: &mut [f64]) -> Result<(), Error> {
    if vocab == 0 {
        return Err(Error::range("vocab", 0, "at least 1"));
    }
    if logits.len() != out.len() * vocab {
        return Err(Error::shape("logits", logits.len(), format!("{} × {vocab}", out.len())));
    }
    out.par_iter_mut().zip(logits.par_chunks(vocab)).for_each(|(out, logits)| *out = row(logits));
    Ok(())
}

dispatched! {
    /// Returns `Σ p (a − b)` of two rows of logits, where `p` is the softmax of `a`.
    fn expected_gap(a: &[f32], b: &[f32], normaliser: f32) -> f64 {
        let mut total = 0.0_f64;
        for (a, b) in a.chunks(BLOCK).zip(b.chunks(BLOCK)) {
            let mut lanes = [0.0_f32; LANES];
            for (a, b) in a.chunks(LANES).zip(b.chunks(LANES)) {
                for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
                    *lane += exp(a - normaliser) * (a - b);
                }
            }
            total += f64::from(lanes.iter().sum::<f32>());
        }
        total
    }
}

/// Writes the Kullback–Leibler divergence, in nats, of the softmax of every row of `b` from that of
/// the same row of `a`, both `(rows, vocab)`, to `out`, `(rows,)`.
///
/// # Errors
/// [`Error::Shape`] when the rows do not fit; [`Error::Range`] when `vocab` is 0.
pub fn divergence(a: &[f32], b: &[f32], vocab: usize, out: &mut [f64]) -> Result<(), Error> {
    if vocab == 0 {
        return Err(Error::range("vocab", 0, "at least 1"));
    }
    if a.len() != out.len() * vocab || b.len() != a.len() {
        let given = format!("{} and {}", a.len(), b.len());
        return Err(Error::shape("logits", given, format!("{} × {vocab}", out.len())));
    }
    out.par_iter_mut().zip(a.par_chunks(vocab).zip(b.par_chunks(vocab))).for_each(
        |(out, (a, b))| {
            let normaliser = row(a);
            #[expect(clippy::cast_possible_truncation, reason = "logits are f32")]
            let gap = expected_gap(a, b, normaliser as f32);
            // Rounding may leave a few 1e-7 below zero, which a divergence cannot be.
            *out = (gap - normaliser + row(b)).max(0.0);
        },
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{divergence, log_sum_exp};

    #[test]
    fn equal_logits_give_the_log_of_their_number() {
        let mut out = [0.0];
        log_sum_exp(&vec![3.0; 49_152], 49_152, &mut out).unwrap();
        assert!((out[0] - 3.0 - 49_152_f64.ln()).abs() < 1e-6);
    }

    #[test]
    fn rows_of_another_length_are_refused() {
        assert!(log_sum_exp(&[0.0; 5], 2, &mut [0.0; 2]).is_err());
        assert!(log_sum_exp(&[], 0, &mut []).is_err());
    }

    #[test]
    fn divergence_is_zero_from_itself_and_known_for_two_outcomes() {
        let mut out = [0.0];
        divergence(&[1.0, -2.0, 0.5], &[1.0, -2.0, 0.5], 3, &mut out).unwrap();
        assert!(out[0].abs() < 1e-6);
        // p = (¾, ¼) against (½, ½): ln 2 − H(p).
        divergence(&[3.0_f32.ln(), 0.0], &[0.0, 0.0], 2, &mut out).unwrap();
        let want = std::f64::consts::LN_2 + 0.75 * 0.75_f64.ln() + 0.25 * 0.25_f64.ln();
        assert!((out[0] - want).abs() < 1e-6);
        assert!(divergence(&[0.0; 2], &[0.0; 3], 2, &mut out).is_err());
    }
}
