//! A matrix cut into what one mask holds: edges along the inputs and along the outputs.

use crate::error::Error;

/// How the inputs are cut when they do not fit one mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TileSplit {
    /// Full tiles, then what is left.
    #[default]
    Full,
    /// Tiles of equal width, the first ones larger by one where it does not divide.
    Even,
    /// Tiles of the rounded mean width; the last takes the rest.
    Rounded,
}

impl TileSplit {
    /// Reads the option's name.
    ///
    /// # Errors
    /// [`Error::Range`] when the name is unknown.
    pub fn parse(name: &str) -> Result<Self, Error> {
        match name {
            "full" => Ok(Self::Full),
            "even" => Ok(Self::Even),
            "rounded" => Ok(Self::Rounded),
            _ => Err(Error::range("tile_split", name, "full, even or rounded")),
        }
    }
}

/// Returns the edges `0 … length` of the tiles along one side, at most `width` each.
///
/// `Rounded` may exceed `width` in its last tile by what rounding leaves, as its model does.
pub fn edges(length: usize, width: usize, split: TileSplit) -> Vec<usize> {
    if length == 0 {
        return vec![0];
    }
    let count = length.div_ceil(width);
    match split {
        TileSplit::Full => (0..count).map(|i| i * width).chain([length]).collect(),
        TileSplit::Even => {
            let (base, extra) = (length / count, length % count);
            (0..=count).map(|i| i * base + i.min(extra)).collect()
        }
        TileSplit::Rounded => {
            // Ties to even, as the reference model rounds.
            let doubled = 2 * (length % count);
            let floor = length / count;
            let up = doubled > count || (doubled == count && floor % 2 == 1);
            let base = floor + usize::from(up);
            (0..count).map(|i| i * base).chain([length]).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_cut_as_their_names_say() {
        assert_eq!(edges(160, 64, TileSplit::Full), [0, 64, 128, 160]);
        assert_eq!(edges(160, 64, TileSplit::Even), [0, 54, 107, 160]);
        assert_eq!(edges(160, 64, TileSplit::Rounded), [0, 53, 106, 160]);
        assert_eq!(edges(128, 64, TileSplit::Full), [0, 64, 128]);
        assert_eq!(edges(0, 64, TileSplit::Even), [0]);
    }

    #[test]
    fn every_input_is_in_exactly_one_tile() {
        for length in 1..200 {
            for width in 1..70 {
                for split in [TileSplit::Full, TileSplit::Even] {
                    let cut = edges(length, width, split);
                    assert_eq!((cut[0], *cut.last().unwrap()), (0, length));
                    assert!(cut.windows(2).all(|w| w[0] < w[1] && w[1] - w[0] <= width));
                }
            }
        }
    }
}
