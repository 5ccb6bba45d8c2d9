//! How a setting's sums are made: in bytes, in words, or in f64, and why.

use crate::optics::encode::slice_share;
use crate::optics::mask::Grid;
use crate::optics::spec::{PixelNoise, Spec};
use crate::optics::write::erfc;

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
fn harmonic_peak(count: usize) -> f64 {
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

/// Below so many values the tail's law does not hold yet.
const FEW: usize = 128;

/// Mean magnitude and rms of `count` normal values over the largest magnitude among them.
///
/// # Source
/// One of them is the largest, m, of density n·f(m)·F(m)^(n−1); the others are normal up to m.
pub(crate) fn normal_over_peak(count: usize) -> [f64; 2] {
    const STEPS: u32 = 1200;
    if count >= FEW {
        let crest = 1.0 / harmonic_peak(count);
        return [(2.0 / std::f64::consts::PI).sqrt() * crest, crest];
    }
    let n = count.max(1) as f64;
    let width = 6.0 / f64::from(STEPS);
    let (mut mean, mut square) = (0.0, 0.0);
    for step in 1..STEPS {
        let m = f64::from(step) * width;
        let root = (2.0 / std::f64::consts::PI).sqrt();
        let bell = (-0.5 * m * m).exp();
        let below = 1.0 - erfc(m / std::f64::consts::SQRT_2);
        let weight = n * root * bell * below.powf(n - 2.0) * width;
        mean += weight * root * (1.0 - bell) / m;
        square += weight * (below - m * root * bell) / (m * m);
    }
    [(1.0 + (n - 1.0) * mean) / n, ((1.0 + (n - 1.0) * square) / n).sqrt()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, Stream, counter};

    #[test]
    fn the_expected_inputs_are_those_of_drawn_numbers() {
        for count in [1, 2, 3, 5, 16, 127, 128, 1024] {
            let draws = 4_000_000 / (count + 100);
            let (mut mean, mut square) = (0.0, 0.0);
            for draw in 0..draws {
                let stream = Stream::new(9, Purpose::Detector, [draw as u64, 0, 0]);
                let values: Vec<f64> =
                    (0..counter(count)).map(|i| f64::from(stream.normal(i)).abs()).collect();
                let top = values.iter().copied().fold(0.0, f64::max);
                mean += values.iter().map(|v| v / top).sum::<f64>() / count as f64;
                square += values.iter().map(|v| (v / top).powi(2)).sum::<f64>() / count as f64;
            }
            let drawn = [mean / draws as f64, (square / draws as f64).sqrt()];
            for (expected, drawn) in normal_over_peak(count).into_iter().zip(drawn) {
                assert!((expected / drawn - 1.0).abs() < 0.03, "{count}: {expected} {drawn}");
            }
        }
    }
}
