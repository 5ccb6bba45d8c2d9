//! The fast Walsh–Hadamard transform: the power-of-two part of an orthogonal rotation.

use rayon::prelude::*;

use crate::error::Error;
use crate::runners::isa::dispatched;

dispatched! {
    /// Transforms one row of `order` groups of `stride` numbers: `order · log₂ order · stride` adds.
    fn row(x: &mut [f32], order: usize, stride: usize) {
        let mut span = stride;
        while span < order * stride {
            for pair in x.chunks_exact_mut(2 * span) {
                let (low, high) = pair.split_at_mut(span);
                for (a, b) in low.iter_mut().zip(high) {
                    let (sum, difference) = (*a + *b, *a - *b);
                    *a = sum;
                    *b = difference;
                }
            }
            span *= 2;
        }
    }
}

/// Multiplies the middle axis of `x`, `(rows, order, stride)`, by the Sylvester–Hadamard matrix of
/// that order, in place and not normalised.
///
/// # Errors
/// [`Error::Range`] when `order` is no power of two or `stride` is 0; [`Error::Shape`] when `x` is
/// no whole number of rows.
pub fn transform(x: &mut [f32], order: usize, stride: usize) -> Result<(), Error> {
    if !order.is_power_of_two() {
        return Err(Error::range("order", order, "a power of two"));
    }
    if stride == 0 || !x.len().is_multiple_of(order * stride) {
        return Err(Error::shape("x", x.len(), format!("rows of {order} × {stride}")));
    }
    x.par_chunks_mut(order * stride).with_min_len(32).for_each(|x| row(x, order, stride));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::transform;

    #[test]
    fn an_impulse_becomes_a_row_of_signs() {
        let mut x = [0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 0.0, 0.0];
        transform(&mut x, 4, 2).unwrap();
        let want = [1.0, 2.0, 1.0, 2.0, -1.0, -2.0, -1.0, -2.0_f32];
        assert_eq!(x.map(f32::to_bits), want.map(f32::to_bits));
    }

    #[test]
    fn an_order_that_is_no_power_of_two_is_refused() {
        assert!(transform(&mut [0.0; 6], 3, 2).is_err());
        assert!(transform(&mut [0.0; 6], 4, 2).is_err());
    }
}
