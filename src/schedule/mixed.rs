//! Measured attention time of a step, over four axes at once.
//!
//! Neither the sum nor the larger of prompt and decode attention predicts a mixed step; a measured
//! table over (chunk, context before it, decoding sequences, their context) does. Between its points
//! it is linear in each axis, and beyond the last point of a context axis it goes on linearly.

use crate::error::Error;

/// Time by prompt chunk, prompt context, decoding sequences and decode context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MixedAttention {
    /// Points of the four axes, each rising from 0: prompt tokens, resident tokens before them,
    /// decoding sequences, tokens of context of each of these.
    pub axes: [Vec<u64>; 4],
    /// Attention time of all layers at each point, the last axis running fastest [ps].
    pub attn_ps: Vec<u64>,
    /// How far the context that counts lies from the mean towards the longest, in 1/1024.
    pub skew_1024: u64,
}

impl MixedAttention {
    /// Checks the axes and the size of the table.
    ///
    /// # Errors
    /// [`Error::Range`] or [`Error::Shape`] with the axis.
    pub fn check(&self) -> Result<(), Error> {
        for (at, axis) in self.axes.iter().enumerate() {
            let name = format!("mixed.axes[{at}]");
            if axis.len() < 2 || axis[0] != 0 || axis.windows(2).any(|pair| pair[0] >= pair[1]) {
                let allowed = "two points or more, rising from 0";
                return Err(Error::range(name, format!("{axis:?}"), allowed));
            }
            if axis.iter().any(|&point| point > 1 << 32) {
                return Err(Error::range(name, "a larger point", "at most 2^32"));
            }
        }
        let points: usize = self.axes.iter().map(Vec::len).product();
        if self.attn_ps.len() != points {
            return Err(Error::shape("mixed.attn_ps", self.attn_ps.len(), points));
        }
        if let Some(&ps) = self.attn_ps.iter().find(|&&ps| ps > 1_000_000_000_000_000) {
            return Err(Error::range("mixed.attn_ps", ps, "at most 1000 s"));
        }
        if self.skew_1024 > 1024 {
            return Err(Error::range("mixed.skew_1024", self.skew_1024, "0 to 1024"));
        }
        Ok(())
    }

    /// Largest prompt chunk and number of sequences that were measured.
    pub(crate) fn largest(&self) -> (u64, u64) {
        let last = |axis: &[u64]| axis.last().copied().unwrap_or(0);
        (last(&self.axes[0]), last(&self.axes[2]))
    }

    /// The context that stands for `n` sequences of `sum` tokens, the longest of `longest`.
    pub(crate) fn context(&self, n: u64, sum: u64, longest: u64) -> u64 {
        if n == 0 {
            return 0;
        }
        let excess = u128::from(longest * n - sum) * u128::from(self.skew_1024) / 1024;
        let sum = u128::from(sum) + excess;
        let mean = (sum + u128::from(n / 2)) / u128::from(n);
        u64::try_from(mean).expect("a mean of contexts is a context")
    }

    /// Attention time of one chunk beside `n` decoding sequences [ps].
    #[inline(never)]
    pub(crate) fn ps(&self, chunk: u64, kv: u64, n: u64, context: u64) -> u64 {
        let at = [chunk, kv, n, context];
        let mut cell = [0; 4];
        for (axis, cell) in cell.iter_mut().enumerate() {
            let points = &self.axes[axis];
            let above = points.partition_point(|&point| point <= at[axis]);
            *cell = above.clamp(1, points.len() - 1) - 1;
        }
        // Corners of the cell in the order of the axes; each axis halves them.
        let mut values = [0_i128; 16];
        for (corner, value) in values.iter_mut().enumerate() {
            let mut index = 0;
            for (axis, (points, &low)) in self.axes.iter().zip(&cell).enumerate() {
                index = index * points.len() + low + (corner >> (3 - axis) & 1);
            }
            *value = i128::from(self.attn_ps[index]);
        }
        let mut half = 8;
        for axis in 0..4 {
            let (low, high) = (self.axes[axis][cell[axis]], self.axes[axis][cell[axis] + 1]);
            let (x, width) = (i128::from(at[axis] - low), i128::from(high - low));
            for i in 0..half {
                values[i] += (values[i + half] - values[i]) * x / width;
            }
            half /= 2;
        }
        u64::try_from(values[0].max(0)).unwrap_or(u64::MAX >> 8)
    }
}
