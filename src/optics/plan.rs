//! How a setting's sums are made: in bytes, in words, or in f64, and why.

use crate::optics::encode::slice_share;
use crate::optics::mask::Grid;
use crate::optics::spec::{PixelNoise, Spec};

/// How a setting's sums are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Path {
    /// 8-bit mask on this grid.
    Narrow(Grid),
    /// 16-bit mask on this grid.
    Wide(Grid),
    /// Real mask, sums in f64.
    Real(Grid),
}

impl Path {
    /// Returns the path's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Narrow(_) => "narrow",
            Self::Wide(_) => "wide",
            Self::Real(_) => "real",
        }
    }

    pub(crate) fn grid(self) -> Grid {
        match self {
            Self::Narrow(grid) | Self::Wide(grid) | Self::Real(grid) => grid,
        }
    }
}

/// Decides how sums are made, and says why.
pub(crate) fn plan(spec: &Spec, column_sum: f64, width: usize) -> (Path, String) {
    let real = |why: &str| (Path::Real(Grid::real(spec)), format!("sums in f64: {why}"));
    let (Some(levels), Some(inputs)) = (spec.weight_levels(), spec.input_levels()) else {
        return real("inputs or weights are continuous (bits=None)");
    };
    if spec.source_compression.abs() > 0.0 {
        return real("the sources compress, so that light is no whole number of steps");
    }
    if spec.pixel_noise != PixelNoise::Off {
        return real("pixels draw noise of their own");
    }
    let (levels, _) = slice_share(Some(levels), spec.mask_bits, 0);
    let (inputs, _) = slice_share(Some(inputs), spec.input_slice_bits, 0);
    let (levels, inputs) = (levels.unwrap_or(1), inputs.unwrap_or(1));
    let fits_byte = inputs <= if spec.encoding.is_unsigned() { 255 } else { 127 };
    if fits_byte && let Some(grid) = Grid::narrow(spec, levels) {
        let why = if spec.has_fine_mask() {
            format!("8-bit mask of {} steps, dithered by the pixel error", grid.steps)
        } else {
            format!("8-bit mask, one step a level ({levels})")
        };
        return (Path::Narrow(grid), why);
    }
    // Six sigma bound what the pixel error can add to a sum.
    let spread = 6.0 * spec.weight_error_sigma * width as f64;
    let sum = column_sum * (1.0 + 6.0 * spec.source_gain_sigma)
        + spread
        + 2.0 * spec.stuck_pixel_frac.sqrt() * width as f64;
    let budget = (f64::from(i32::MAX) - 1.0) / (f64::from(inputs) * sum.max(1.0)) - 1.0;
    match Grid::wide(spec, levels, budget) {
        Some(grid) => {
            let why = format!(
                "16-bit mask of {} steps: {}",
                grid.steps,
                if fits_byte { "finer than 8 bits hold" } else { "inputs beyond 8 bits" }
            );
            (Path::Wide(grid), why)
        }
        None => real("sums would leave 32 bits"),
    }
}

/// Harmonic mean of the largest of `count` standard normal magnitudes: what scaling by it divides
/// by.
///
/// # Source
/// Median of the maximum, and mean and variance of a Gumbel law about it.
pub(crate) fn harmonic_peak(count: usize) -> f64 {
    if count <= 1 {
        return (2.0 / std::f64::consts::PI).sqrt();
    }
    // Solve erf(m/√2)^count = 1/2 with the tail's leading terms, by fixed iteration.
    let tail = -(0.5_f64.ln()) / count as f64;
    let mut m = (2.0 * (1.0 / tail).ln()).max(0.5).sqrt();
    for _ in 0..50 {
        let correction = 1.0 - 1.0 / (m * m) + 3.0 / m.powi(4) - 15.0 / m.powi(6);
        let right = (2.0 / std::f64::consts::PI).sqrt() * correction.max(0.2) / (tail * m);
        m = (2.0 * right.max(1.05).ln()).sqrt().max(0.6);
    }
    m + 0.2107 / m - 1.645 / m.powi(3)
}
