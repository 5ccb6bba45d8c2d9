//! The normaliser of a row of logits.

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

#[cfg(test)]
mod tests {
    use super::log_sum_exp;

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
}
