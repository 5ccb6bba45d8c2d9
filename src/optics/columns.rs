//! Every column of a tile as one reading sees it: gains, offsets, converter range, digital scale.

use crate::optics::convert::{Adc, nearest_even};
use crate::optics::cycle::Columns;
use crate::optics::encode::{Encoding, Operand, Polarity, Reading};
use crate::optics::layer::{Tables, is_unipolar};
use crate::optics::mask::{Specimen, seen};
use crate::optics::plan::Path;
use crate::optics::real::Real;
use crate::optics::spec::{AdcRange, RangePer, Spec};
use crate::optics::write::{Part, Written};

impl Part<'_> {
    pub(crate) fn columns(&self, reading: &Reading, slice: &Written) -> Columns<f64, f64> {
        let spec = &self.layer.spec;
        let (count, inputs) = self.size();
        let specimen = Specimen::new(spec);
        let grid = self.layer.path.grid();
        let gain = match spec.encoding {
            Encoding::OffsetInputBalanced => 0.5,
            Encoding::OffsetBoth | Encoding::OffsetBothRaw => 0.25,
            _ => 1.0,
        };
        let (_, zero) = self.layer.operand_range(reading);
        let is_real = matches!(self.layer.path, Path::Real(_));
        let mut c = Columns::<f64, f64>::default();
        let mut rms_all = 0.0;
        for column in 0..count {
            let at = column * inputs..(column + 1) * inputs;
            let nominal = &slice.nominal[at.clone()];
            let sum_nominal: f64 = nominal.iter().map(|v| seen(reading.polarity, *v)).sum();
            let square: f64 = nominal.iter().map(|v| seen(reading.polarity, *v).powi(2)).sum();
            let sum_steps: f64 = slice.effective[at]
                .iter()
                .map(|v| {
                    let value = seen(reading.polarity, *v);
                    if is_real { value } else { nearest_even(value).clamp(-grid.top, grid.top) }
                })
                .sum();
            let column_gain = specimen.column_gain(column);
            let alive = if column_gain == 0.0 { 0.0 } else { 1.0 };
            let leak = if reading.polarity == Polarity::Balanced {
                1.0 - 2.0 * spec.rail_leak
            } else {
                1.0
            };
            c.known_sum.push(zero * sum_steps);
            c.signal.push(gain * column_gain * leak * self.unit(slice, column));
            c.light.push(column_gain);
            let pair =
                if reading.polarity == Polarity::Balanced && !spec.encoding.is_weight_offset() {
                    2.0
                } else {
                    1.0
                };
            c.dark.push(pair * spec.dark_level() * alive);
            c.rail.push(0.5 * specimen.rail_ratio(column));
            let sum_seen = if is_real { sum_steps } else { sum_steps / grid.steps };
            // What the encoding adds: in the light as it is, removed as it should be.
            let (is, should) = match spec.encoding {
                Encoding::OffsetInputBalanced => (0.5 * sum_seen, 0.5 * sum_nominal),
                Encoding::OffsetBoth | Encoding::OffsetBothRaw => {
                    (0.25 * sum_seen, 0.25 * sum_nominal)
                }
                _ => (0.0, 0.0),
            };
            c.known_light.push(is);
            let is_removed_before = spec.encoding == Encoding::OffsetBoth;
            c.offset.push(if is_removed_before { is - should } else { 0.0 });
            c.spread.push(square / inputs as f64);
            let scale =
                self.scales.of(self.kt, self.outputs.start + column) * reading.coefficient / gain;
            c.scale.push(scale);
            c.bias.push(if is_removed_before { 0.0 } else { -should * scale });
            let known = if spec.encoding == Encoding::OffsetBothRaw {
                let constant = 0.25 * inputs as f64;
                is + constant
            } else if is_removed_before {
                0.0
            } else {
                is
            };
            let rms = gain * self.layer.rms_input * square.sqrt();
            // Readings of one rail see half of the inputs, and their mean.
            let mean = match (reading.operand, reading.polarity) {
                (Operand::Positive | Operand::Negative, Polarity::Plus | Polarity::Minus) => {
                    0.5 * self.layer.mean_input * sum_nominal
                }
                _ => 0.0,
            };
            let row_spread = if spec.encoding == Encoding::OffsetBothRaw {
                0.25 * self.layer.rms_input * (inputs as f64).sqrt()
            } else {
                0.0
            };
            let spread = (rms * rms + row_spread * row_spread).sqrt();
            c.per_step.push(if is_unipolar(spec, reading) {
                f64::NAN
            } else {
                spread.hypot(known)
            });
            c.value.push(mean + known);
            c.floor.push(spread);
            rms_all += spread.hypot(known).powi(2);
        }
        let rms_all = (rms_all / count as f64).sqrt();
        self.set_ranges(reading, specimen, &mut c, rms_all);
        c
    }

    /// Turns expected means and spreads into converter steps.
    fn set_ranges(
        &self,
        reading: &Reading,
        specimen: Specimen<'_>,
        c: &mut Columns<f64, f64>,
        rms_all: f64,
    ) {
        let spec = &self.layer.spec;
        let is_unipolar = is_unipolar(spec, reading);
        let tile_top = |c: &Columns<f64, f64>, sigma: f64| {
            c.value.iter().zip(&c.floor).map(|(m, s)| m + sigma * s).fold(0.0, f64::max)
        };
        let shared = match spec.adc_range {
            AdcRange::Sigma(sigma) if is_unipolar => tile_top(c, sigma),
            AdcRange::Sigma(sigma) => sigma * rms_all,
            AdcRange::Fixed(range) => range,
        };
        for column in 0..c.scale.len() {
            let range = match (spec.adc_range, spec.adc_range_per) {
                (AdcRange::Fixed(range), _) => range,
                (_, RangePer::Tile) => shared,
                (AdcRange::Sigma(sigma), _) if is_unipolar => {
                    c.value[column] + sigma * c.floor[column]
                }
                (AdcRange::Sigma(sigma), _) => sigma * c.per_step[column],
            };
            c.set_range(column, range, spec, is_unipolar);
            c.offset[column] += specimen.offset(column) * range;
        }
    }
}

impl<R: Real, S> Columns<R, S> {
    /// Sets the converter of one column to `range`.
    pub(crate) fn set_range(&mut self, column: usize, range: f64, spec: &Spec, is_unipolar: bool) {
        let Some(bits) = spec.adc_bits else {
            self.per_step[column] = R::of(1.0);
            self.value[column] = self.scale[column];
            return;
        };
        let range = if range > 0.0 { range } else { 1.0 };
        let adc = Adc::new(bits, range, spec.adc_levels, is_unipolar);
        self.per_step[column] = R::of(1.0 / adc.step);
        self.value[column] = R::of(adc.step * self.scale[column].wide());
    }
}

impl Columns<f64, f64> {
    pub(crate) fn narrow(&self) -> Columns<f32, i32> {
        let narrow = |from: &[f64]| from.iter().map(|v| f32::of(*v)).collect();
        #[expect(clippy::cast_possible_truncation, reason = "whole numbers that fit by the plan")]
        let whole = |from: &[f64]| from.iter().map(|v| *v as i32).collect();
        Columns {
            known_sum: whole(&self.known_sum),
            signal: narrow(&self.signal),
            light: narrow(&self.light),
            dark: narrow(&self.dark),
            rail: narrow(&self.rail),
            known_light: narrow(&self.known_light),
            offset: narrow(&self.offset),
            floor: narrow(&self.floor),
            spread: narrow(&self.spread),
            per_step: narrow(&self.per_step),
            value: narrow(&self.value),
            scale: narrow(&self.scale),
            bias: narrow(&self.bias),
            floor_sum: self.floor_sum,
            spread_sum: self.spread_sum,
        }
    }
}

impl Tables {
    /// Sets the variance that does not depend on light.
    pub(crate) fn set_floor(&mut self, spec: &Spec, receiver: f64) {
        fn fill<R: Real, S>(c: &mut Columns<R, S>, constant: f64, enob: f64) {
            for (floor, per_step) in c.floor.iter_mut().zip(&c.per_step) {
                let step = if enob > 0.0 { enob / per_step.wide() } else { 0.0 };
                *floor = R::of(constant + step * step);
            }
            c.floor_sum = c.floor.iter().map(|v| v.wide()).sum();
            c.spread_sum = c.spread.iter().map(|v| v.wide()).sum();
        }
        let enob = match (spec.adc_bits, spec.adc_enob) {
            (Some(bits), Some(enob)) => Adc::enob_noise_steps(bits, enob),
            _ => 0.0,
        };
        let constant = receiver * receiver + spec.readout_noise * spec.readout_noise;
        match self {
            Self::Integer(c) => fill(c, constant, enob),
            Self::Real(c) => fill(c, constant, enob),
        }
    }
}
