//! The weight mask: what is written, and what light actually meets.
//!
//! A weight becomes a level, the level a transmission (gamma or a measured response above a dark
//! level), and the specimen's static errors make it the *effective* mask: pixel error, stuck
//! pixels, source gain. It is fixed-point by definition, on a grid of [`Grid::steps`] steps per
//! full scale, so that the kernels may sum integers.

use crate::optics::encode::Polarity;
use crate::optics::spec::Spec;
use crate::rng::{Purpose, Stream, counter};

/// The static errors of one specimen of the engine, frozen by its seed.
#[derive(Debug, Clone, Copy)]
pub struct Specimen<'a> {
    spec: &'a Spec,
}

impl<'a> Specimen<'a> {
    /// Returns the specimen `spec.engine_seed`.
    pub fn new(spec: &'a Spec) -> Self {
        Self { spec }
    }

    fn stream(self, purpose: Purpose, row: usize) -> Stream {
        Stream::new(self.spec.engine_seed, purpose, [row as u64, 0, 0])
    }

    fn is_hit(self, purpose: Purpose, row: usize, column: usize, frac: f64) -> bool {
        frac > 0.0 && f64::from(self.stream(purpose, row).uniform(counter(column))) <= frac
    }

    /// Gain of source `k`; 0 when it is dead.
    pub fn source_gain(self, k: usize) -> f64 {
        if self.is_hit(Purpose::DeadSource, 0, k, self.spec.dead_source_frac) {
            return 0.0;
        }
        1.0 + self.spec.source_gain_sigma * self.normal(Purpose::SourceGain, k)
    }

    /// Gain of column `n`; 0 when its detector is dead.
    pub fn column_gain(self, n: usize) -> f64 {
        if self.is_hit(Purpose::DeadDetector, 0, n, self.spec.dead_detector_frac) {
            return 0.0;
        }
        1.0 + self.spec.column_gain_sigma * self.normal(Purpose::ColumnGain, n)
    }

    /// Relative error of the ratio of column `n`'s rails.
    pub fn rail_ratio(self, n: usize) -> f64 {
        self.spec.rail_ratio_sigma * self.normal(Purpose::RailRatio, n)
    }

    /// Offset of detector `n`, of the converter's range.
    pub fn offset(self, n: usize) -> f64 {
        self.spec.detector_offset_sigma * self.normal(Purpose::DetectorOffset, n)
    }

    fn normal(self, purpose: Purpose, index: usize) -> f64 {
        f64::from(self.stream(purpose, 0).normal(counter(index)))
    }

    /// Fills `out` with the signed effective transmissions of source `k` at pixels `0..out.len()`,
    /// on `grid`; `levels` are the written weights in ±1.
    pub fn fill_row(self, k: usize, levels: &[f64], grid: &Grid, out: &mut [f64]) {
        let gain = self.source_gain(k);
        let pixel = self.stream(Purpose::PixelError, k);
        for (n, (value, &level)) in out.iter_mut().zip(levels).enumerate() {
            let mut seen = self.spec.response(level.abs()).copysign(level);
            if self.is_hit(Purpose::StuckPixel, k, n, self.spec.stuck_pixel_frac) {
                seen =
                    2.0 * f64::from(
                        self.stream(Purpose::StuckPixel, k + (1 << 32)).uniform(counter(n)),
                    ) - 1.0;
            }
            seen *= gain;
            if grid.pixel_sigma > 0.0 {
                seen += grid.pixel_sigma * f64::from(pixel.normal(counter(n)));
            }
            *value = if gain == 0.0 { 0.0 } else { seen };
        }
    }
}

impl Spec {
    /// Transmission of a written weight `w` in 0…1, less the dark level, over that of an open pixel.
    pub fn response(&self, w: f64) -> f64 {
        let shape = if (self.mask_gamma - 1.0).abs() > 0.0 { w.powf(self.mask_gamma) } else { w };
        match self.mask_response_poly {
            Some([a, b, _]) => (a * shape * shape + b * shape) / (a + b),
            None => shape,
        }
    }

    /// Light of a dark pixel over the usable range of an open one.
    ///
    /// The contrast ratio wins over the constant term of the response.
    pub fn dark_level(&self) -> f64 {
        match (self.mask_contrast_ratio, self.mask_response_poly) {
            (Some(contrast), _) => 1.0 / (contrast - 1.0),
            (None, Some([a, b, c])) => c / (a + b),
            (None, None) => 0.0,
        }
    }

    /// Tells whether transmissions leave the grid of the written levels.
    pub fn has_fine_mask(&self) -> bool {
        self.weight_error_sigma > 0.0
            || self.source_gain_sigma > 0.0
            || self.stuck_pixel_frac > 0.0
            || !self.is_response_linear()
    }

    /// Tells whether a written level is its own transmission.
    pub fn is_response_linear(&self) -> bool {
        let is_gamma_one = (self.mask_gamma - 1.0).abs() <= 0.0;
        is_gamma_one && self.mask_response_poly.is_none_or(|[a, ..]| a.abs() <= 0.0)
    }
}

/// The fixed-point grid of an effective mask.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Grid {
    /// Steps of full scale.
    pub steps: f64,
    /// Largest value [steps].
    pub top: f64,
    /// Pixel error drawn before rounding, of full scale.
    pub pixel_sigma: f64,
}

impl Grid {
    /// Returns the 8-bit grid for `levels`, if the mask is faithful on it.
    ///
    /// Levels fall on whole steps. Finer effects survive rounding when the pixel error spans half
    /// a step or more: it is then a dither, the mean response stays linear, and its own spread is
    /// reduced by the 1/12 step² that rounding adds, so that the stated spread is kept
    /// within 2.5 %.
    pub fn narrow(spec: &Spec, levels: i32) -> Option<Self> {
        if levels > 127 {
            return None;
        }
        if !spec.has_fine_mask() {
            return Some(Self { steps: f64::from(levels), top: 127.0, pixel_sigma: 0.0 });
        }
        let steps = f64::from(levels * (64 / (levels + 1)).max(1));
        let spread = spec.weight_error_sigma * steps;
        let top = if steps > 63.0 { 127.0 } else { 64.0 };
        (spread >= 0.5).then(|| Self {
            steps,
            top,
            pixel_sigma: (spread * spread - 1.0 / 12.0).sqrt() / steps,
        })
    }

    /// Returns the 16-bit grid: as many steps as the budget leaves, levels on whole steps.
    pub fn wide(spec: &Spec, levels: i32, budget: f64) -> Option<Self> {
        let levels = f64::from(levels);
        // Room for four sigma of error above full scale.
        let room = 1.0 + 4.0 * (spec.weight_error_sigma + spec.source_gain_sigma);
        let steps = levels * (budget.min(32_767.0) / (levels * room)).floor();
        (steps >= levels && (!spec.has_fine_mask() || steps >= 4.0 * levels.max(128.0)))
            .then_some(Self { steps, top: 32_767.0, pixel_sigma: spec.weight_error_sigma })
    }

    /// Returns the grid of real masks.
    pub fn real(spec: &Spec) -> Self {
        Self { steps: 1.0, top: f64::INFINITY, pixel_sigma: spec.weight_error_sigma }
    }
}

/// Returns what a reading of `polarity` sees of a signed transmission.
pub fn seen(polarity: Polarity, value: f64) -> f64 {
    match polarity {
        Polarity::Balanced => value,
        Polarity::Plus => value.max(0.0),
        Polarity::Minus => (-value).max(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optics::convert::nearest_even;

    #[test]
    fn a_dithered_pixel_has_the_stated_error_and_a_linear_mean() {
        let spec = Spec { weight_error_sigma: 0.01, source_gain_sigma: 0.005, ..Spec::default() };
        let grid = Grid::narrow(&spec, 7).expect("one percent dithers");
        let specimen = Specimen::new(&spec);
        let levels = vec![3.0 / 7.0; 4096];
        let mut row = vec![0.0; 4096];
        let (mut square, mut count) = (0.0, 0.0);
        for k in 0..64 {
            specimen.fill_row(k, &levels, &grid, &mut row);
            let whole: Vec<f64> =
                row.iter().map(|v| nearest_even(v * grid.steps) / grid.steps).collect();
            let mean = whole.iter().sum::<f64>() / 4096.0;
            let wanted = 3.0 / 7.0 * specimen.source_gain(k);
            assert!((mean - wanted).abs() < 5.0 * 0.01 / 64.0, "{mean} {wanted}");
            square += whole.iter().map(|v| (v - mean).powi(2)).sum::<f64>();
            count += 4095.0;
        }
        // Levels on whole steps keep 1.8 % less than the law for levels anywhere.
        assert!(((square / count).sqrt() / 0.01 - 1.0).abs() < 0.025);
    }

    #[test]
    fn a_small_pixel_error_does_not_fit_the_narrow_grid() {
        let spec = Spec { weight_error_sigma: 0.001, ..Spec::default() };
        assert!(Grid::narrow(&spec, 7).is_none());
        assert!(Grid::wide(&spec, 7, 1e9).is_some());
    }

    #[test]
    fn response_runs_from_dark_to_open() {
        let poly = Spec { mask_response_poly: Some([-0.143, 0.853, 0.049]), ..Spec::default() };
        for spec in [poly, Spec { mask_gamma: 2.2, ..Spec::default() }] {
            assert!(spec.response(0.0).abs() < 1e-15);
            assert!((spec.response(1.0) - 1.0).abs() < 1e-15);
        }
        let contrast = Spec { mask_contrast_ratio: Some(21.0), ..Spec::default() };
        assert!((contrast.dark_level() - 0.05).abs() < 1e-12);
    }
}
