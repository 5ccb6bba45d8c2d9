//! RMS norm: every row divided by its root mean square, then scaled by a learnt gain.

use rayon::prelude::*;

use crate::error::Error;
use crate::runners::isa::dispatched;

const LANES: usize = 16;

dispatched! {
    /// Normalises one row. The sum of squares has a fixed order: 16 lanes, then the lanes.
    fn row(x: &[f32], gain: &[f32], epsilon: f32, out: &mut [f32]) {
        let mut lanes = [0.0_f32; LANES];
        let chunks = x.chunks_exact(LANES);
        for (lane, value) in lanes.iter_mut().zip(chunks.remainder()) {
            *lane += value * value;
        }
        for chunk in chunks {
            for (lane, value) in lanes.iter_mut().zip(chunk) {
                *lane += value * value;
            }
        }
        let mean = lanes.iter().sum::<f32>() / x.len() as f32;
        let inverse = 1.0 / (mean + epsilon).sqrt();
        for ((out, x), gain) in out.iter_mut().zip(x).zip(gain) {
            *out = x * inverse * gain;
        }
    }
}

/// Normalises every row of `x`, `(rows, width)`, into `out` of the same shape; `gain` is `(width,)`.
///
/// # Errors
/// [`Error::Shape`] when the lengths do not fit; [`Error::Range`] when `gain` is empty.
pub fn rms_norm(x: &[f32], gain: &[f32], epsilon: f32, out: &mut [f32]) -> Result<(), Error> {
    if gain.is_empty() {
        return Err(Error::range("width of gain", 0, "at least 1"));
    }
    if x.len() != out.len() || !x.len().is_multiple_of(gain.len()) {
        return Err(Error::shape("x", x.len(), format!("rows of {}", gain.len())));
    }
    let width = gain.len();
    out.par_chunks_mut(width)
        .zip(x.par_chunks(width))
        .with_min_len(64)
        .for_each(|(out, x)| row(x, gain, epsilon, out));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::rms_norm;

    #[test]
    fn a_normalised_row_has_unit_mean_square() {
        let x: Vec<f32> = (0_u8..37).map(|i| f32::from(i) - 11.0).collect();
        let mut out = vec![0.0; 37];
        rms_norm(&x, &[1.0; 37], 0.0, &mut out).unwrap();
        let mean = out.iter().map(|v| v * v).sum::<f32>() / 37.0;
        assert!((mean - 1.0).abs() < 1e-6);
    }

    #[test]
    fn rows_of_another_width_are_refused() {
        assert!(rms_norm(&[1.0; 7], &[1.0; 4], 0.0, &mut [0.0; 7]).is_err());
        assert!(rms_norm(&[], &[], 0.0, &mut []).is_err());
    }
}
