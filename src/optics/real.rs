//! The two precisions of the analog part: f32 behind integer sums, f64 behind real ones.

use crate::optics::convert::{half_to_zero, nearest_even};

/// A number of the analog part. Only correctly rounded IEEE operations, so that every instruction
/// set gives the same bits.
pub(crate) trait Real:
    Copy
    + Default
    + PartialOrd
    + std::fmt::Debug
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + Send
    + Sync
{
    /// Rounds a number of the specification.
    fn of(x: f64) -> Self;
    /// Widens.
    fn wide(self) -> f64;
    /// Narrows to the precision of the outputs.
    fn narrow(self) -> f32;
    /// Takes an f32 as it is.
    fn of_f32(x: f32) -> Self;
    /// Returns the square root, correctly rounded.
    fn root(self) -> Self;
    /// Returns the larger of two numbers.
    fn or_more(self, other: Self) -> Self;
    /// Returns the smaller of two numbers.
    fn or_less(self, other: Self) -> Self;
    /// Rounds to a whole number, ties to even; |x| < 2²².
    fn even(self) -> Self;
    /// Rounds to a whole number, ties towards zero.
    fn toward_zero(self) -> Self;
}

impl Real for f32 {
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the precision of this path")]
    fn of(x: f64) -> Self {
        x as Self
    }
    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }
    #[inline(always)]
    fn narrow(self) -> f32 {
        self
    }
    #[inline(always)]
    fn of_f32(x: f32) -> Self {
        x
    }
    #[inline(always)]
    fn root(self) -> Self {
        self.sqrt()
    }
    #[inline(always)]
    fn or_more(self, other: Self) -> Self {
        if self > other { self } else { other }
    }
    #[inline(always)]
    fn or_less(self, other: Self) -> Self {
        if self < other { self } else { other }
    }
    #[inline(always)]
    fn even(self) -> Self {
        const MAGIC: f32 = 12_582_912.0; // 1.5 · 2²³: the sum has no fraction bits left
        (self + MAGIC) - MAGIC
    }
    #[inline(always)]
    fn toward_zero(self) -> Self {
        (self.abs() - 0.5).ceil().max(0.0).copysign(self)
    }
}

impl Real for f64 {
    #[inline(always)]
    fn of(x: f64) -> Self {
        x
    }
    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the precision of the outputs")]
    fn narrow(self) -> f32 {
        self as f32
    }
    #[inline(always)]
    fn of_f32(x: f32) -> Self {
        Self::from(x)
    }
    #[inline(always)]
    fn root(self) -> Self {
        self.sqrt()
    }
    #[inline(always)]
    fn or_more(self, other: Self) -> Self {
        if self > other { self } else { other }
    }
    #[inline(always)]
    fn or_less(self, other: Self) -> Self {
        if self < other { self } else { other }
    }
    #[inline(always)]
    fn even(self) -> Self {
        nearest_even(self)
    }
    #[inline(always)]
    fn toward_zero(self) -> Self {
        half_to_zero(self)
    }
}

/// A sum as a kernel leaves it.
pub(crate) trait Sum<R>: Copy + Default + Send + Sync {
    /// Returns the sum less `known`, in the analog precision.
    fn real(self, known: Self) -> R;
}

impl Sum<f32> for i32 {
    #[inline(always)]
    fn real(self, known: Self) -> f32 {
        self.wrapping_sub(known) as f32
    }
}

impl Sum<f64> for f64 {
    #[inline(always)]
    fn real(self, known: Self) -> f64 {
        self - known
    }
}
