//! Writing one tile: levels, the light that meets them, packed for the kernels.

use std::ops::Range;
use std::sync::Arc;

use crate::optics::convert::nearest_even;
use crate::optics::encode::{Polarity, Reading, slice_share};
use crate::optics::kernel::{Packed8, Packed16, PackedF32};
use crate::optics::layer::{Layer, LightMask, SignalMask, Tables, Tile, is_light_summed};
use crate::optics::light::{PackedLight, Sample};
use crate::optics::mask::{Specimen, seen};
use crate::optics::plan::Path;
use crate::optics::real::Real;
use crate::optics::scales::Scales;
use crate::optics::spec::{PixelNoise, Spec};

/// One tile while it is built.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    pub(crate) layer: &'a Layer,
    pub(crate) w: &'a [f32],
    pub(crate) scales: &'a Scales,
    pub(crate) kt: usize,
    pub(crate) inputs: Range<usize>,
    pub(crate) outputs: Range<usize>,
}

/// One weight slice of a tile: written and effective transmissions, `(columns, inputs)`.
#[derive(Debug)]
pub(crate) struct Written {
    /// In ±1.
    pub(crate) nominal: Vec<f64>,
    /// What light meets, in steps of the grid.
    pub(crate) effective: Vec<f64>,
    /// Levels of the slice; `None` is continuous.
    pub(crate) levels: Option<i32>,
}

impl Part<'_> {
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.outputs.len(), self.inputs.len())
    }

    /// Builds the tile and adds to the statistics of light, one a slice where they are wanted;
    /// also returns the sum of its transmissions.
    pub(crate) fn tile(&self, samples: &mut [Sample]) -> (Tile, f64) {
        let spec = &self.layer.spec;
        let slices = self.layer.masks_per_tile();
        let written: Vec<Written> = (0..slices).map(|slice| self.written(slice)).collect();
        let open: f64 = self.whole_transmission();
        let mut samples = samples.iter_mut();
        let light = written.iter().map(|slice| self.light(slice, samples.next())).collect();
        let noise = match spec.pixel_noise {
            PixelNoise::Off => Vec::new(),
            kind => written.iter().map(|slice| self.pixel_noise(slice, kind)).collect(),
        };
        let (mut masks, mut tables, mut dark) = (Vec::new(), Vec::new(), Vec::new());
        let mut known: Vec<(u32, Polarity, Arc<SignalMask>)> = Vec::new();
        for reading in &self.layer.readings {
            let slice = &written[reading.weight_slice as usize];
            let table = self.columns(reading, slice);
            dark.push(table.dark.iter().sum());
            let shared = known.iter().find(|(slice, polarity, _)| {
                *slice == reading.weight_slice && *polarity == reading.polarity
            });
            let mask = if let Some((.., mask)) = shared {
                Arc::clone(mask)
            } else {
                let mask = Arc::new(self.mask(reading, slice));
                known.push((reading.weight_slice, reading.polarity, Arc::clone(&mask)));
                mask
            };
            masks.push(mask);
            tables.push(match self.layer.path {
                Path::Real(_) => Tables::Real(table),
                _ => Tables::Integer(table.narrow()),
            });
        }
        let (inputs, outputs) = (self.inputs.clone(), self.outputs.clone());
        (Tile { inputs, outputs, masks, light, noise, tables, dark }, open)
    }

    /// Σ of the mean transmissions of the whole weight, signal-carrying light only.
    fn whole_transmission(&self) -> f64 {
        let full = self.scales.levels.unwrap_or(1.0);
        let mut sum = 0.0;
        for column in self.outputs.clone() {
            let scale = self.scales.of(self.kt, column);
            for &value in &self.w[column * self.layer.k..][self.inputs.clone()] {
                sum += self
                    .layer
                    .spec
                    .response((self.scales.level(value, scale).abs() / full).min(1.0));
            }
        }
        sum
    }

    pub(crate) fn written(&self, slice: u32) -> Written {
        let spec = &self.layer.spec;
        let (columns, inputs) = self.size();
        let (levels, _) = slice_share(spec.weight_levels(), spec.mask_bits, slice);
        let count = self.layer.masks_per_tile();
        let mut nominal = vec![0.0; columns * inputs];
        for (local, column) in self.outputs.clone().enumerate() {
            let scale = self.scales.of(self.kt, column);
            let row = &self.w[column * self.layer.k..][self.inputs.clone()];
            for (place, &value) in nominal[local * inputs..].iter_mut().zip(row) {
                let level = self.scales.level(value, scale);
                *place = match (levels, spec.mask_bits) {
                    (Some(top), Some(bits)) if count > 1 => {
                        sliced(level, bits, slice) / f64::from(top)
                    }
                    (Some(top), _) => level / f64::from(top),
                    (None, _) => level,
                };
            }
        }
        let effective = self.effective(&nominal);
        Written { nominal, effective, levels }
    }

    fn effective(&self, nominal: &[f64]) -> Vec<f64> {
        let spec = &self.layer.spec;
        let (columns, inputs) = self.size();
        let grid = self.layer.path.grid();
        let is_exact = !spec.has_fine_mask() && spec.dead_source_frac <= 0.0;
        if is_exact {
            return nominal.iter().map(|v| v * grid.steps).collect();
        }
        let specimen = Specimen::new(spec);
        let mut effective = vec![0.0; nominal.len()];
        let (mut written, mut seen) = (vec![0.0; columns], vec![0.0; columns]);
        for input in 0..inputs {
            for column in 0..columns {
                written[column] = nominal[column * inputs + input];
            }
            specimen.fill_row(input, &written, &grid, &mut seen);
            for column in 0..columns {
                effective[column * inputs + input] = seen[column] * grid.steps;
            }
        }
        effective
    }

    fn mask(&self, reading: &Reading, slice: &Written) -> SignalMask {
        let inputs = self.inputs.len();
        let grid = self.layer.path.grid();
        let on_grid =
            |value: &f64| nearest_even(seen(reading.polarity, *value)).clamp(-grid.top, grid.top);
        match self.layer.path {
            Path::Narrow(_) => {
                let values: Vec<i8> = slice.effective.iter().map(|v| whole8(on_grid(v))).collect();
                let (x_max, _) = self.layer.operand_range(reading);
                if self.layer.has_byte_masks(x_max) {
                    SignalMask::Eight(Packed8::new(&values, inputs, x_max))
                } else {
                    let wide: Vec<i16> = values.into_iter().map(i16::from).collect();
                    SignalMask::Sixteen(Packed16::new(&wide, inputs))
                }
            }
            Path::Wide(_) => {
                let values: Vec<i16> =
                    slice.effective.iter().map(|v| whole16(on_grid(v))).collect();
                SignalMask::Sixteen(Packed16::new(&values, inputs))
            }
            Path::Real(_) => {
                let values: Vec<f32> = (0..slice.effective.len())
                    .map(|i| f32::of(seen(reading.polarity, self.real_value(slice, i))))
                    .collect();
                SignalMask::Real(PackedF32::new(&values, inputs))
            }
        }
    }

    /// A mask value on the real path, in units of [`Part::real_unit`]: the weight itself where it
    /// is continuous and undistorted, so that products stay exact.
    fn real_value(&self, slice: &Written, index: usize) -> f64 {
        let spec = &self.layer.spec;
        let inputs = self.inputs.len();
        let column = self.outputs.start + index / inputs;
        if spec.has_fine_mask() || spec.dead_source_frac > 0.0 || self.has_noise_shift() {
            let value = slice.effective[index];
            return value + self.noise_shift(value);
        }
        match slice.levels {
            Some(levels) => slice.nominal[index] * f64::from(levels),
            None if self.scales.of(self.kt, column) <= 0.0 => 0.0,
            None => f64::from(self.w[column * self.layer.k + self.inputs.start + index % inputs]),
        }
    }

    /// Light of one unit of the mask values of a column.
    pub(crate) fn unit(&self, slice: &Written, column: usize) -> f64 {
        let spec = &self.layer.spec;
        if !matches!(self.layer.path, Path::Real(_)) {
            return 1.0 / self.layer.path.grid().steps;
        }
        if spec.has_fine_mask() || spec.dead_source_frac > 0.0 || self.has_noise_shift() {
            return 1.0;
        }
        if let Some(levels) = slice.levels {
            return 1.0 / f64::from(levels);
        }
        let scale = self.scales.of(self.kt, self.outputs.start + column);
        if scale > 0.0 { 1.0 / scale } else { 0.0 }
    }

    fn has_noise_shift(&self) -> bool {
        matches!(self.layer.spec.pixel_noise, PixelNoise::Additive(_))
    }

    /// Transmission cannot be negative: noise on a dark pixel shifts its mean.
    fn noise_shift(&self, value: f64) -> f64 {
        match self.layer.spec.pixel_noise {
            PixelNoise::Additive(s) if s > 0.0 => {
                let [plus, _] = rectified(value.max(0.0), s);
                let [minus, _] = rectified((-value).max(0.0), s);
                plus - minus - value
            }
            _ => 0.0,
        }
    }

    fn pixel_noise(&self, slice: &Written, kind: PixelNoise) -> PackedF32 {
        let variance = |value: f64| match kind {
            PixelNoise::Off => 0.0,
            PixelNoise::Proportional(s) => (s * value).powi(2),
            PixelNoise::Additive(s) => {
                rectified(value.max(0.0), s)[1] + rectified((-value).max(0.0), s)[1]
            }
        };
        let values: Vec<f32> = slice.effective.iter().map(|v| f32::of(variance(*v))).collect();
        PackedF32::new(&values, self.inputs.len())
    }

    fn light(&self, slice: &Written, sample: Option<&mut Sample>) -> LightMask {
        let spec = &self.layer.spec;
        let needs_sum = self.layer.readings.iter().any(|r| is_light_summed(spec, r));
        if !needs_sum {
            return LightMask::None;
        }
        let inputs = self.inputs.len();
        let open: Vec<f64> =
            slice.nominal.iter().map(|v| spec.response(v.abs().min(1.0))).collect();
        if matches!(self.layer.path, Path::Real(_)) {
            let open: Vec<f32> = open.iter().map(|v| f32::of(*v)).collect();
            return LightMask::Real(PackedF32::new(&open, inputs));
        }
        let steps = light_steps(spec, slice.levels, sample.is_some());
        let mask: Vec<i8> = open.iter().map(|v| whole8(nearest_even(v * steps))).collect();
        let unit = 1.0 / steps;
        let Some(sample) = sample else {
            let is_wide = spec.encoding.is_offset() || spec.encoding.is_unsigned();
            let x_max = if is_wide { 255 } else { 127 };
            return LightMask::Exact { mask: Packed8::new(&mask, inputs, x_max), unit };
        };
        let columns = open.chunks_exact(inputs);
        for (column, row) in columns.clone().enumerate() {
            sample.add(self.outputs.start + column, row);
        }
        let open = columns.map(|row| f32::of(row.iter().sum())).collect();
        LightMask::Grouped { open, mask: PackedLight::new(&mask, inputs), unit }
    }
}

/// Whether grouped light takes more than half of seven bits.
pub(crate) fn is_light_fine(spec: &Spec) -> bool {
    let (levels, _) = slice_share(spec.weight_levels(), spec.mask_bits, 0);
    light_steps(spec, levels, true) > 63.0
}

/// Steps of full scale in which light is summed: what 16-bit sums hold on every machine.
fn light_steps(spec: &Spec, levels: Option<i32>, is_grouped: bool) -> f64 {
    let is_wide = spec.encoding.is_offset() || spec.encoding.is_unsigned();
    let top = if is_wide && !is_grouped { 63 } else { 127 };
    match levels {
        Some(levels) if levels <= top && spec.is_response_linear() => f64::from(levels),
        _ => f64::from(top),
    }
}

/// One slice of a level's magnitude, with its sign.
fn sliced(level: f64, bits: u32, slice: u32) -> f64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole level")]
    let magnitude = level.abs() as u32;
    f64::from((magnitude >> (bits * slice)) & ((1 << bits) - 1)).copysign(level)
}

#[expect(clippy::cast_possible_truncation, reason = "whole and clamped to the grid")]
fn whole8(value: f64) -> i8 {
    value as i8
}

#[expect(clippy::cast_possible_truncation, reason = "whole and clamped to the grid")]
fn whole16(value: f64) -> i16 {
    value as i16
}

/// Mean and variance of max(0, N(mean, sigma²)).
fn rectified(mean: f64, sigma: f64) -> [f64; 2] {
    let z = mean / sigma;
    let density = (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let below = 0.5 * erfc(z / std::f64::consts::SQRT_2);
    let above = 1.0 - below;
    let first = mean * above + sigma * density;
    let second = (mean * mean + sigma * sigma) * above + mean * sigma * density;
    [first, second - first * first]
}

/// Complementary error function for x ≥ 0, relative error below 1.2e-7.
///
/// # Source
/// Numerical Recipes, §6.2 (Chebyshev fit).
pub(crate) fn erfc(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.5 * x);
    let poly = [
        0.170_872_77,
        -0.822_152_23,
        1.488_515_87,
        -1.135_203_98,
        0.278_868_07,
        -0.186_288_06,
        0.096_784_18,
        0.374_091_96,
        1.000_023_68,
        -1.265_512_23,
    ];
    let exponent = poly.iter().fold(0.0, |sum, c| sum * t + c);
    t * (-x * x + exponent).exp()
}
