//! Signed numbers on light, which cannot be negative: an encoding is a list of detector readings.
//!
//! With v the input and T the weight, both in ±1, the accumulator wants D = Σ v·T. Each reading
//! measures part of it:
//!
//! | encoding | cycles | readings | what is read |
//! |---|---|---|---|
//! | four quadrants, balanced | 1 | 1 | Σ (v⁺ − v⁻)(T⁺ − T⁻) |
//! | two passes, balanced | 2 | 2 | Σ v⁺(T⁺ − T⁻), Σ v⁻(T⁺ − T⁻) |
//! | two passes, digital | 2 | 4 | the four products apart |
//! | offset input, balanced | 1 | 1 | Σ (v + 1)/2 · (T⁺ − T⁻) |
//! | offset both | 1 | 1 | Σ (v + 1)/2 · (T + 1)/2, less its known part in analog |
//! | offset both, raw | 1 | 1 | the same, known part removed after conversion |
//! | non-negative | 1 | 1 | Σ v⁺(T⁺ − T⁻); negative inputs clip |
//! | non-negative, digital | 1 | 2 | Σ v⁺T⁺, Σ v⁺T⁻ |

use crate::error::Error;
use crate::optics::spec::Spec;

/// How signs ride on light.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Two rails in, mask pairs, balanced detection.
    FourQuadrantBalanced,
    /// One rail, twice; balanced detection.
    TwoPassBalanced,
    /// One rail, twice; both detectors digitised.
    TwoPassDigital,
    /// Inputs shifted to be non-negative.
    OffsetInputBalanced,
    /// Inputs and weights shifted; the known part is removed before conversion.
    OffsetBoth,
    /// Inputs and weights shifted; the known part is removed after conversion.
    OffsetBothRaw,
    /// Inputs are non-negative already.
    Nonnegative,
    /// The same, both detectors digitised.
    NonnegativeDigital,
}

const NAMES: [(&str, Encoding); 8] = [
    ("four_quadrant_balanced", Encoding::FourQuadrantBalanced),
    ("two_pass_balanced", Encoding::TwoPassBalanced),
    ("two_pass_digital", Encoding::TwoPassDigital),
    ("offset_input_balanced", Encoding::OffsetInputBalanced),
    ("offset_both", Encoding::OffsetBoth),
    ("offset_both_raw", Encoding::OffsetBothRaw),
    ("nonnegative", Encoding::Nonnegative),
    ("nonnegative_digital", Encoding::NonnegativeDigital),
];

impl Encoding {
    /// Reads the option's name.
    ///
    /// # Errors
    /// [`Error::Range`] when the name is unknown.
    pub fn parse(name: &str) -> Result<Self, Error> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, encoding)| *encoding).ok_or_else(
            || {
                let all: Vec<_> = NAMES.iter().map(|(known, _)| *known).collect();
                Error::range("signed_encoding", name, all.join(", "))
            },
        )
    }

    /// Tells whether negative inputs cannot be sent at all.
    pub fn is_unsigned(self) -> bool {
        matches!(self, Self::Nonnegative | Self::NonnegativeDigital)
    }

    /// Tells whether inputs are shifted.
    pub fn is_offset(self) -> bool {
        matches!(self, Self::OffsetInputBalanced | Self::OffsetBoth | Self::OffsetBothRaw)
    }

    /// Tells whether weights are shifted, too.
    pub fn is_weight_offset(self) -> bool {
        matches!(self, Self::OffsetBoth | Self::OffsetBothRaw)
    }
}

/// Which part of the inputs the sources send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// v on two rails.
    Signed,
    /// v⁺.
    Positive,
    /// v⁻.
    Negative,
    /// (v + 1)/2.
    Offset,
}

/// Which detectors a reading takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polarity {
    /// The difference of the pair.
    Balanced,
    /// The detector of T⁺.
    Plus,
    /// The detector of T⁻.
    Minus,
}

/// One conversion an output, cycle and tile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// What the sources send.
    pub operand: Operand,
    /// Which slice of the input's magnitude bits.
    pub input_slice: u32,
    /// Which detectors are read.
    pub polarity: Polarity,
    /// Which slice of the weight's magnitude bits.
    pub weight_slice: u32,
    /// Its share of D in the accumulator.
    pub coefficient: f64,
    /// Whether the sources send something new for it.
    pub is_new_cycle: bool,
}

/// Slices of a magnitude of `levels` into pieces of `bits`; one piece when it fits.
pub fn slices(levels: Option<i32>, bits: Option<u32>) -> u32 {
    match (levels, bits) {
        (Some(levels), Some(bits)) => (32 - levels.leading_zeros()).div_ceil(bits),
        _ => 1,
    }
}

/// Levels of one slice and its weight in the whole, `levels` being those of the whole.
pub fn slice_share(levels: Option<i32>, bits: Option<u32>, index: u32) -> (Option<i32>, f64) {
    let count = slices(levels, bits);
    match (levels, bits) {
        (Some(levels), Some(bits)) if count > 1 => {
            let top = (1 << bits) - 1;
            let share =
                f64::from(top) * 2_f64.powi((bits * index).cast_signed()) / f64::from(levels);
            (Some(top), share)
        }
        _ => (levels, 1.0),
    }
}

/// Returns the readings that make one tile's sums.
pub fn readings(spec: &Spec) -> Vec<Reading> {
    use Operand::{Negative, Offset, Positive, Signed};
    use Polarity::{Balanced, Minus, Plus};
    let parts: &[(Operand, Polarity, f64, bool)] = match spec.encoding {
        Encoding::FourQuadrantBalanced => &[(Signed, Balanced, 1.0, true)],
        Encoding::TwoPassBalanced => {
            &[(Positive, Balanced, 1.0, true), (Negative, Balanced, -1.0, true)]
        }
        Encoding::TwoPassDigital => &[
            (Positive, Plus, 1.0, true),
            (Positive, Minus, -1.0, false),
            (Negative, Plus, -1.0, true),
            (Negative, Minus, 1.0, false),
        ],
        Encoding::OffsetInputBalanced | Encoding::OffsetBoth | Encoding::OffsetBothRaw => {
            &[(Offset, Balanced, 1.0, true)]
        }
        Encoding::Nonnegative => &[(Positive, Balanced, 1.0, true)],
        Encoding::NonnegativeDigital => {
            &[(Positive, Plus, 1.0, true), (Positive, Minus, -1.0, false)]
        }
    };
    let (input, weight) = (spec.input_levels(), spec.weight_levels());
    let mut all = Vec::new();
    for weight_slice in 0..slices(weight, spec.mask_bits) {
        let (_, weight_share) = slice_share(weight, spec.mask_bits, weight_slice);
        for input_slice in 0..slices(input, spec.input_slice_bits) {
            let (_, input_share) = slice_share(input, spec.input_slice_bits, input_slice);
            for &(operand, polarity, sign, is_new_cycle) in parts {
                let coefficient = sign * weight_share * input_share;
                all.push(Reading {
                    operand,
                    input_slice,
                    polarity,
                    weight_slice,
                    coefficient,
                    is_new_cycle,
                });
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_recombine_to_the_whole() {
        // 127 in two 4-bit slices: 15 + 16·7.
        assert_eq!(slices(Some(127), Some(4)), 2);
        let (low, low_share) = slice_share(Some(127), Some(4), 0);
        let (_, high_share) = slice_share(Some(127), Some(4), 1);
        assert_eq!(low, Some(15));
        let whole = 15.0 / 15.0 * low_share + 7.0 / 15.0 * high_share;
        assert!((whole - 1.0).abs() < 1e-12);
    }

    #[test]
    fn an_int4_weight_fits_a_4_bit_mask_in_one_slice() {
        assert_eq!(slices(Some(7), Some(4)), 1);
        assert_eq!(slice_share(Some(7), Some(4), 0), (Some(7), 1.0));
    }

    #[test]
    fn every_encoding_has_the_conversions_of_its_row() {
        let rows = [(1, 1), (2, 2), (2, 4), (1, 1), (1, 1), (1, 1), (1, 1), (1, 2)];
        for ((name, encoding), (cycles, conversions)) in NAMES.into_iter().zip(rows) {
            let all = readings(&Spec { encoding, ..Spec::default() });
            assert_eq!(all.len(), conversions, "{name}");
            assert_eq!(all.iter().filter(|r| r.is_new_cycle).count(), cycles, "{name}");
            assert_eq!(Encoding::parse(name).unwrap(), encoding);
        }
    }
}
