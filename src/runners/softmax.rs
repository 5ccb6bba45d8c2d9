//! The softmax of attention: a query sees no key after itself and none outside its window.

use rayon::prelude::*;

use crate::error::Error;
use crate::runners::exp::exp;
use crate::runners::isa::dispatched;

const LANES: usize = 16;

dispatched! {
    /// Turns one row of visible scores into weights that sum to 1.
    fn row(scores: &mut [f32], scale: f32) {
        let mut top = [f32::NEG_INFINITY; LANES];
        let chunks = scores.chunks_exact(LANES);
        for (top, value) in top.iter_mut().zip(chunks.remainder()) {
            *top = if *value > *top { *value } else { *top };
        }
        for chunk in chunks {
            for (top, value) in top.iter_mut().zip(chunk) {
                *top = if *value > *top { *value } else { *top };
            }
        }
        let top = top.iter().copied().fold(f32::NEG_INFINITY, f32::max) * scale;
        let mut sums = [0.0_f32; LANES];
        let mut chunks = scores.chunks_exact_mut(LANES);
        for chunk in &mut chunks {
            for (sum, value) in sums.iter_mut().zip(chunk) {
                *value = exp(*value * scale - top);
                *sum += *value;
            }
        }
        for (sum, value) in sums.iter_mut().zip(chunks.into_remainder()) {
            *value = exp(*value * scale - top);
            *sum += *value;
        }
        let inverse = 1.0 / sums.iter().sum::<f32>();
        for value in scores {
            *value *= inverse;
        }
    }
}

/// Where the queries of a block of scores stand among the keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mask {
    /// Keys in a row of scores.
    pub keys: usize,
    /// Queries in a block; rows repeat with this period.
    pub queries: usize,
    /// Position of the block's first query; position 0 is the first key.
    pub first: usize,
    /// How many keys a query sees, itself included; `None` is all of them.
    pub window: Option<usize>,
}

/// Replaces `scores`, `(blocks, mask.queries, mask.keys)`, by attention weights, in place.
///
/// `scale` (positive) multiplies the scores first. Hidden keys get weight 0.
///
/// # Errors
/// [`Error::Shape`] when `scores` is no whole number of blocks; [`Error::Range`] when the last
/// query stands after the last key or the window is empty.
pub fn causal_softmax(scores: &mut [f32], scale: f32, mask: Mask) -> Result<(), Error> {
    let Mask { keys, queries, first, window } = mask;
    if keys == 0 || queries == 0 || !scores.len().is_multiple_of(keys * queries) {
        return Err(Error::shape("scores", scores.len(), format!("blocks of {queries} × {keys}")));
    }
    if first + queries > keys {
        return Err(Error::range("first + queries", first + queries, format!("at most {keys}")));
    }
    if window == Some(0) {
        return Err(Error::range("window", 0, "at least 1, or none"));
    }
    scores.par_chunks_mut(keys).enumerate().with_min_len(16).for_each(|(index, scores)| {
        let end = first + index % queries + 1;
        let start = window.map_or(0, |window| end.saturating_sub(window));
        scores[..start].fill(0.0);
        scores[end..].fill(0.0);
        row(&mut scores[start..end], scale);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Mask, causal_softmax};

    #[test]
    fn weights_sum_to_one_and_the_future_has_none() {
        let mut scores: Vec<f32> = (0_u8..60).map(|i| f32::from(i % 7) - 3.0).collect();
        let mask = Mask { keys: 20, queries: 3, first: 17, window: None };
        causal_softmax(&mut scores, 0.5, mask).unwrap();
        for (query, row) in scores.chunks(20).enumerate() {
            assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-6);
            assert!(row[18 + query..].iter().all(|weight| *weight == 0.0));
            assert!(row[..18 + query].iter().all(|weight| *weight > 0.0));
        }
    }

    #[test]
    fn a_window_of_one_sees_only_the_query_itself() {
        let mut scores = vec![0.25; 9];
        let mask = Mask { keys: 3, queries: 3, first: 0, window: Some(1) };
        causal_softmax(&mut scores, 1.0, mask).unwrap();
        assert_eq!(scores, [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
    }

    #[test]
    fn a_query_after_the_last_key_is_refused() {
        let mask = Mask { keys: 3, queries: 2, first: 2, window: None };
        assert!(causal_softmax(&mut [0.0; 6], 1.0, mask).is_err());
    }
}
