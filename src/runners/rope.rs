//! Rotary position embedding: every pair of a head turns by an angle that grows with position.

use rayon::prelude::*;

use crate::error::Error;

/// Which two numbers of a head form a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairing {
    /// `(2i, 2i + 1)`: GGUF files of the Llama family, whose rows are permuted for it.
    Interleaved,
    /// `(i, i + half)`: Hugging Face checkpoints, and GGUF files of the Qwen family.
    Halves,
}

/// Rotates `x`, `(tokens, heads, 2 * half)`, in place; `cos` and `sin` are `(tokens, half)`.
///
/// # Errors
/// [`Error::Shape`] when the lengths do not fit; [`Error::Range`] when `heads` or `half` is 0.
pub fn rotate(
    x: &mut [f32],
    cos: &[f32],
    sin: &[f32],
    heads: usize,
    half: usize,
    pairing: Pairing,
) -> Result<(), Error> {
    if heads == 0 || half == 0 {
        return Err(Error::range("heads and half", heads.min(half), "at least 1"));
    }
    let width = heads * half * 2;
    if !x.len().is_multiple_of(width) {
        return Err(Error::shape("x", x.len(), format!("tokens of {width}")));
    }
    let expected = x.len() / width * half;
    if cos.len() != expected || sin.len() != expected {
        return Err(Error::shape("cos and sin", cos.len().min(sin.len()), expected));
    }
    x.par_chunks_mut(width)
        .zip(cos.par_chunks(half).zip(sin.par_chunks(half)))
        .with_min_len(64)
        .for_each(|(token, (cos, sin))| {
            for head in token.chunks_exact_mut(half * 2) {
                match pairing {
                    Pairing::Interleaved => {
                        for ((pair, c), s) in head.chunks_exact_mut(2).zip(cos).zip(sin) {
                            let (a, b) = (pair[0], pair[1]);
                            pair[0] = a * c - b * s;
                            pair[1] = a * s + b * c;
                        }
                    }
                    Pairing::Halves => {
                        let (low, high) = head.split_at_mut(half);
                        for (((a, b), c), s) in low.iter_mut().zip(high).zip(cos).zip(sin) {
                            let (x, y) = (*a, *b);
                            *a = x * c - y * s;
                            *b = x * s + y * c;
                        }
                    }
                }
            }
        });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Pairing, rotate};

    #[test]
    fn a_quarter_turn_moves_the_first_of_a_pair_to_the_second() {
        let mut x = [1.0, 2.0, 3.0, 4.0];
        rotate(&mut x, &[0.0, 1.0], &[1.0, 0.0], 1, 2, Pairing::Interleaved).unwrap();
        assert_eq!(x.map(f32::to_bits), [-2.0_f32, 1.0, 3.0, 4.0].map(f32::to_bits));
        let mut x = [1.0, 2.0, 3.0, 4.0];
        rotate(&mut x, &[0.0, 1.0], &[1.0, 0.0], 1, 2, Pairing::Halves).unwrap();
        assert_eq!(x.map(f32::to_bits), [-3.0_f32, 2.0, 1.0, 4.0].map(f32::to_bits));
    }

    #[test]
    fn tables_of_another_length_are_refused() {
        assert!(rotate(&mut [0.0; 8], &[1.0], &[0.0], 1, 2, Pairing::Halves).is_err());
        assert!(rotate(&mut [0.0; 8], &[1.0], &[0.0], 0, 2, Pairing::Halves).is_err());
    }
}
