//! Converters: numbers to light (DAC) and light to numbers (ADC).
//!
//! A DAC writes `code = round(x / scale · levels)`, an ADC reads `code = round(light / step)`; both
//! clip at their last code. Ties go to the even code unless the specification says otherwise.

#![expect(clippy::needless_bitwise_bool, reason = "a branch would keep loops from being vectors")]

use crate::optics::real::Real;
use crate::optics::spec::{InputScale, Spec};

/// Which codes a signed output converter of b bits has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdcLevels {
    /// −2^(b−1) … 2^(b−1) − 1; the step is range / 2^(b−1).
    Full,
    /// ±(2^(b−1) − 1); the step is range / (2^(b−1) − 1), so that both ends are levels.
    Symmetric,
}

/// Whether a converter limits its input or its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Limit the analog value to the range, then round.
    ClipThenRound,
    /// Round, then limit the code.
    RoundThenClip,
}

/// What happens half-way between two codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    /// To the even code.
    NearestEven,
    /// To the code nearer to zero.
    HalfToZero,
}

/// Rounds to a whole number, ties to even. |x| < 2⁵¹.
#[inline(always)]
pub fn nearest_even(x: f64) -> f64 {
    const MAGIC: f64 = 6_755_399_441_055_744.0; // 1.5 · 2⁵²: the sum has no fraction bits left
    (x + MAGIC) - MAGIC
}

/// Rounds to a whole number, ties towards zero.
#[inline(always)]
pub fn half_to_zero(x: f64) -> f64 {
    (x.abs() - 0.5).ceil().max(0.0).copysign(x)
}

/// The input converters of one tile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dac {
    /// Magnitude levels; `None` passes values through.
    pub levels: Option<i32>,
    scale: InputScale,
    order: Order,
    rounding: Rounding,
    is_unsigned: bool,
}

impl Dac {
    /// Returns the converters of `spec`.
    pub fn new(spec: &Spec) -> Self {
        Self {
            levels: spec.input_levels(),
            scale: spec.input_scale,
            order: spec.order,
            rounding: spec.rounding,
            is_unsigned: spec.encoding.is_unsigned(),
        }
    }

    /// Returns the full scale of one vector inside a tile; 0 when it is all zeros.
    #[inline(always)]
    pub fn full_scale(&self, x: &[f32]) -> f64 {
        match self.scale {
            InputScale::Fixed(scale) => scale,
            // Magnitudes order like their bits, and integers have no NaN to lose.
            InputScale::AbsMax => f64::from(f32::from_bits(
                x.iter().map(|v| v.to_bits() & 0x7FFF_FFFF).max().unwrap_or(0),
            )),
        }
    }

    /// Writes the codes of one vector; returns how many values were out of range.
    #[inline(always)]
    pub fn write(&self, x: &[f32], scale: f64, levels: i32, codes: &mut [i16]) -> u64 {
        let top = f64::from(levels);
        let low = if self.is_unsigned { 0.0 } else { -top };
        let gain = if scale > 0.0 { top / scale } else { 0.0 };
        // A code beyond the last one by a whole step clips alike, whatever the order.
        let slack = if self.order == Order::ClipThenRound { 0.0 } else { 1.0 };
        let is_even = self.rounding == Rounding::NearestEven;
        let mut clipped = 0_u32;
        for (&value, code) in x.iter().zip(codes) {
            let exact = f64::from(value) * gain;
            clipped += u32::from((exact > top) | (exact < low));
            let near = exact.clamp(low - slack, top + slack);
            let whole = if is_even { nearest_even(near) } else { half_to_zero(near) };
            *code = to_code(whole.clamp(low, top));
        }
        u64::from(clipped)
    }

    /// Limits one vector without rounding it; returns how many values were out of range.
    #[inline(always)]
    pub fn pass(&self, x: &[f32], scale: f64, out: &mut [f32]) -> u64 {
        let top = if scale > 0.0 { f32::of(scale) } else { 0.0 };
        let low = if self.is_unsigned { 0.0 } else { -top };
        let mut clipped = 0_u32;
        for (&value, place) in x.iter().zip(out) {
            clipped += u32::from((value > top) | (value < low));
            *place = value.clamp(low, top);
        }
        u64::from(clipped)
    }
}

/// Converts a whole number of a converter's range.
#[inline(always)]
fn to_code(whole: f64) -> i16 {
    // Two steps, because the vector units convert f64 to i32 only.
    #[expect(clippy::cast_possible_truncation, reason = "clamped to 15 bits by the caller")]
    let code = low_word(whole) as i16;
    code
}

#[inline(always)]
fn low_word(whole: f64) -> i32 {
    // The integer sits in the low bits of the sum with 1.5 · 2⁵².
    #[expect(clippy::cast_possible_truncation, reason = "the low word is the number")]
    let low = (whole + 6_755_399_441_055_744.0).to_bits() as u32;
    low.cast_signed()
}

/// The output converter of one reading.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adc {
    /// Light of one step.
    pub step: f64,
    /// Lowest code.
    pub low: f64,
    /// Highest code.
    pub high: f64,
}

impl Adc {
    /// Returns the converter of `bits` over ±`range`, or 0 to `range` when it is unipolar.
    pub fn new(bits: u32, range: f64, levels: AdcLevels, is_unipolar: bool) -> Self {
        let half = f64::from(1_u32 << (bits - 1));
        match (is_unipolar, levels) {
            (true, _) => {
                let high = 2.0 * half - 1.0;
                Self { step: range / high, low: 0.0, high }
            }
            (false, AdcLevels::Full) => Self { step: range / half, low: -half, high: half - 1.0 },
            (false, AdcLevels::Symmetric) => {
                Self { step: range / (half - 1.0), low: 1.0 - half, high: half - 1.0 }
            }
        }
    }

    /// Returns the noise that lowers `bits` to `enob` [in steps, rms].
    ///
    /// # Source
    /// A step's rounding error has variance 1/12; one bit less has four times that.
    pub fn enob_noise_steps(bits: u32, enob: f64) -> f64 {
        ((4_f64.powf(f64::from(bits) - enob) - 1.0) / 12.0).max(0.0).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(spec: &Spec, x: &[f32]) -> Vec<i16> {
        let dac = Dac::new(spec);
        let mut out = vec![0; x.len()];
        dac.write(x, dac.full_scale(x), dac.levels.unwrap(), &mut out);
        out
    }

    #[test]
    fn largest_input_gets_the_last_code_and_ties_go_to_even() {
        let spec = Spec { activation_bits: Some(8), ..Spec::default() };
        assert_eq!(
            codes(&spec, &[127.0, -127.0, 0.5, 1.5, 2.5, -0.5, -1.5]),
            [127, -127, 0, 2, 2, 0, -2]
        );
        let toward_zero = Spec { rounding: Rounding::HalfToZero, ..spec };
        assert_eq!(codes(&toward_zero, &[127.0, 0.5, 1.5, -1.5, 1.6]), [127, 0, 1, -1, 2]);
    }

    #[test]
    fn a_zero_vector_has_zero_codes() {
        let spec = Spec { activation_bits: Some(8), ..Spec::default() };
        assert_eq!(codes(&spec, &[0.0, -0.0]), [0, 0]);
    }

    #[test]
    fn adc_rule_has_its_levels() {
        let full = Adc::new(8, 4.0, AdcLevels::Full, false);
        assert_eq!((full.low, full.high, full.step), (-128.0, 127.0, 4.0 / 128.0));
        let symmetric = Adc::new(8, 4.0, AdcLevels::Symmetric, false);
        assert_eq!((symmetric.low, symmetric.high, symmetric.step), (-127.0, 127.0, 4.0 / 127.0));
        let unipolar = Adc::new(8, 16.0, AdcLevels::Full, true);
        assert_eq!((unipolar.low, unipolar.high, unipolar.step), (0.0, 255.0, 16.0 / 255.0));
    }

    #[test]
    fn an_enob_equal_to_the_bits_adds_nothing() {
        assert!(Adc::enob_noise_steps(8, 8.0).abs() < 1e-12);
        // One bit lost: total variance 4/12, of which rounding is 1/12.
        assert!((Adc::enob_noise_steps(8, 7.0).powi(2) - 0.25).abs() < 1e-12);
    }
}
