//! Calibration: what a sample of real inputs tells the digital side about a specimen.
//!
//! The sample passes the compiled masks and an error-free twin of them. Column by column the
//! analog signal is fitted by `gain · ideal + bias`, which the accumulator then undoes; its spread
//! sets the converter's range, its mean light the laser.

use crate::error::Error;
use crate::optics::cycle::Columns;
use crate::optics::lane::Sent;
use crate::optics::layer::{Layer, Tables, is_unipolar};
use crate::optics::real::Real;
use crate::optics::run::{Seen, probe};
use crate::optics::spec::{AdcRange, PixelNoise, RangePer, Spec};

/// Most vectors of a sample that are used.
const MAX_SAMPLE: usize = 512;

/// Sums over the sample of one column.
#[derive(Debug, Clone, Copy, Default)]
struct Fit {
    count: f64,
    ideal: f64,
    real: f64,
    ideal_sq: f64,
    real_sq: f64,
    product: f64,
}

impl Fit {
    fn add(&mut self, ideal: f64, real: f64) {
        self.count += 1.0;
        self.ideal += ideal;
        self.real += real;
        self.ideal_sq += ideal * ideal;
        self.real_sq += real * real;
        self.product += ideal * real;
    }

    /// Gain and bias of the least squares; gain 1 where the sample cannot tell.
    fn line(&self) -> [f64; 2] {
        let spread = self.ideal_sq - self.ideal * self.ideal / self.count;
        let together = self.product - self.ideal * self.real / self.count;
        let is_telling = self.count >= 8.0 && spread > 1e-12 * self.ideal_sq.max(1e-300);
        let gain = if is_telling { (together / spread).clamp(0.25, 4.0) } else { 1.0 };
        [gain, (self.real - gain * self.ideal) / self.count]
    }

    fn rms(&self) -> f64 {
        (self.real_sq / self.count).sqrt()
    }

    fn mean_and_spread(&self) -> [f64; 2] {
        let mean = self.real / self.count;
        [mean, (self.real_sq / self.count - mean * mean).max(0.0).sqrt()]
    }
}

impl Layer {
    /// Compiles `w` and calibrates it with `sample`, `(tokens, k)` row by row.
    ///
    /// # Errors
    /// As [`Layer::compile`]; [`Error::Shape`] or [`Error::Range`] when the sample is empty, of
    /// another width or not finite.
    pub fn calibrated(self, w: &[f32], sample: &[f32]) -> Result<Self, Error> {
        let tokens = sample.len() / self.k;
        if tokens == 0 || sample.len() != tokens * self.k {
            let expected = format!("(1 or more, {})", self.k);
            return Err(Error::shape("calibration", format!("{} values", sample.len()), expected));
        }
        if sample.iter().any(|v| !v.is_finite()) {
            return Err(Error::range("calibration", "NaN or infinite", "finite numbers"));
        }
        let sample = &sample[..tokens.min(MAX_SAMPLE) * self.k];
        let mut layer = self;
        layer.measure_inputs(sample);
        let ideal = Self::compile(w, layer.n, layer.k, layer.spec.without_errors(), layer.isa)?;
        let fits = fits(&layer, &ideal, sample);
        for (tile, by_reading) in layer.tiles.iter_mut().zip(&fits) {
            for (index, fits) in by_reading.iter().enumerate() {
                let is_unipolar = is_unipolar(&layer.spec, &layer.readings[index]);
                match &mut tile.tables[index] {
                    Tables::Integer(c) => apply(c, fits, &layer.spec, is_unipolar),
                    Tables::Real(c) => apply(c, fits, &layer.spec, is_unipolar),
                }
            }
        }
        layer.set_light();
        Ok(layer)
    }

    fn measure_inputs(&mut self, sample: &[f32]) {
        let (mut magnitude, mut square, mut count) = (0.0, 0.0, 0.0);
        let mut sent = Sent::default();
        for edge in self.k_edges.windows(2) {
            let inputs = edge[1] - edge[0];
            let rows = sample.len() / self.k;
            sent.convert(self, &sample[edge[0]..], self.k, rows, inputs);
            for row in 0..rows {
                let at = row * inputs..(row + 1) * inputs;
                let scale = sent.scales[row];
                for i in at {
                    let v = match self.spec.input_levels() {
                        Some(levels) => f64::from(sent.codes[i]) / f64::from(levels),
                        None if scale > 0.0 => f64::from(sent.values[i]) / scale,
                        None => 0.0,
                    };
                    magnitude += v.abs();
                    square += v * v;
                    count += 1.0;
                }
            }
        }
        if magnitude > 0.0 {
            self.mean_input = magnitude / count;
            self.rms_input = (square / count).sqrt();
        }
    }
}

impl Spec {
    /// Returns the same engine without static errors, noise or conversion of outputs.
    #[must_use]
    pub fn without_errors(&self) -> Self {
        Self {
            adc_bits: None,
            adc_enob: None,
            electrons_per_mac: None,
            electrons_full_scale: None,
            receiver_noise_electrons: 0.0,
            readout_noise: 0.0,
            rin_rms: 0.0,
            weight_error_sigma: 0.0,
            stuck_pixel_frac: 0.0,
            dead_source_frac: 0.0,
            dead_detector_frac: 0.0,
            source_gain_sigma: 0.0,
            source_compression: 0.0,
            mask_gamma: 1.0,
            mask_response_poly: None,
            column_gain_sigma: 0.0,
            rail_leak: 0.0,
            rail_ratio_sigma: 0.0,
            detector_offset_sigma: 0.0,
            crosstalk: [0.0; 2],
            saturation: None,
            drift_per_tok: 0.0,
            inter_symbol_frac: 0.0,
            pixel_noise: PixelNoise::Off,
            ..self.clone()
        }
    }
}

/// Fits every column, by tile and reading.
fn fits(layer: &Layer, ideal: &Layer, sample: &[f32]) -> Vec<Vec<Vec<Fit>>> {
    let mut fits: Vec<Vec<Vec<Fit>>> = layer
        .tiles
        .iter()
        .map(|tile| vec![vec![Fit::default(); tile.outputs.len()]; layer.readings.len()])
        .collect();
    // A few vectors at a time, so that the two probes can be compared without keeping all.
    for rows in sample.chunks(16 * layer.k) {
        let mut wanted: Vec<(usize, usize, usize, Vec<f64>)> = Vec::new();
        probe(ideal, rows, &mut |seen: Seen| {
            wanted.push((seen.tile, seen.reading, seen.row, seen.signal));
        });
        let mut next = wanted.into_iter();
        probe(layer, rows, &mut |seen: Seen| {
            let Some((tile, reading, row, ideal)) = next.next() else { return };
            debug_assert_eq!(
                (tile, reading, row),
                (seen.tile, seen.reading, seen.row),
                "Invariant: twins are read in the same order"
            );
            for ((fit, real), ideal) in fits[tile][reading].iter_mut().zip(&seen.signal).zip(ideal)
            {
                fit.add(ideal, *real);
            }
        });
    }
    fits
}

fn apply<R: Real, S>(c: &mut Columns<R, S>, fits: &[Fit], spec: &Spec, is_unipolar: bool) {
    let all = (fits.iter().map(|fit| fit.rms().powi(2)).sum::<f64>() / fits.len() as f64).sqrt();
    let top = |fit: &Fit, sigma: f64| {
        let [mean, spread] = fit.mean_and_spread();
        mean + sigma * spread
    };
    for (column, fit) in fits.iter().enumerate() {
        let [gain, bias] = fit.line();
        let scale = c.scale[column].wide();
        let range = match (spec.adc_range, spec.adc_range_per) {
            (AdcRange::Fixed(range), _) => range,
            (AdcRange::Sigma(sigma), RangePer::Tile) if is_unipolar => {
                fits.iter().map(|fit| top(fit, sigma)).fold(0.0, f64::max)
            }
            (AdcRange::Sigma(sigma), RangePer::Tile) => sigma * all,
            (AdcRange::Sigma(sigma), RangePer::Column) if is_unipolar => top(fit, sigma),
            (AdcRange::Sigma(sigma), RangePer::Column) => sigma * fit.rms(),
        };
        c.set_range(column, range, spec, is_unipolar);
        let value = c.value[column].wide();
        c.value[column] = R::of(value / gain);
        c.bias[column] = R::of(c.bias[column].wide() - bias / gain * scale);
    }
}
