//! `SwiGLU`: the gate's sigmoid-weighted value times the up projection.

use rayon::prelude::*;

use crate::error::Error;
use crate::runners::exp::exp;
use crate::runners::isa::dispatched;

dispatched! {
    /// Computes one row.
    fn row(gate: &[f32], up: &[f32], out: &mut [f32]) {
        for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
            *out = gate / (1.0 + exp(-gate)) * up;
        }
    }
}

/// Writes `silu(gate) * up` of every row of `gate_up`, `(rows, 2 * width)`, to `out`.
///
/// The gate is the first half of a row, as a fused projection leaves it; `out` is `(rows, width)`.
///
/// # Errors
/// [`Error::Shape`] when the lengths do not fit; [`Error::Range`] when `width` is 0.
pub fn swiglu(gate_up: &[f32], width: usize, out: &mut [f32]) -> Result<(), Error> {
    if width == 0 {
        return Err(Error::range("width", 0, "at least 1"));
    }
    if gate_up.len() != out.len() * 2 || !out.len().is_multiple_of(width) {
        return Err(Error::shape("gate_up", gate_up.len(), format!("rows of {}", width * 2)));
    }
    out.par_chunks_mut(width)
        .zip(gate_up.par_chunks(width * 2))
        .with_min_len(16)
        .for_each(|(out, both)| row(&both[..width], &both[width..], out));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::swiglu;

    #[test]
    fn a_large_gate_passes_and_a_very_negative_one_closes() {
        let mut out = [0.0; 2];
        swiglu(&[50.0, -80.0, 3.0, 3.0], 2, &mut out).unwrap();
        assert!((out[0] - 150.0).abs() < 1e-4);
        assert!(out[1].abs() < 1e-30);
        assert!(swiglu(&[0.0; 3], 2, &mut out).is_err());
    }
}
