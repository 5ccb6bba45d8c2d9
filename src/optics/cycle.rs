//! One reading of one optical cycle: from sums of light to numbers in the accumulator.
//!
//! The order is the hardware's:
//!
//! ```text
//! Σ v·T → column gain, rail leak and mismatch → previous symbol → neighbour crosstalk
//!       → saturation → laser, shot and receiver noise → converter → scale → accumulate
//! ```
//!
//! The loops are written once, over a row of columns; the instruction sets differ only in how many
//! columns they take at a time.

#![expect(clippy::needless_bitwise_bool, reason = "a branch would keep loops from being vectors")]

use crate::optics::convert::{Order, Rounding};
use crate::optics::kernel::Work;
use crate::optics::noise::{Noise, Place};
use crate::optics::real::{Real, Sum};
use crate::rng::Purpose;

/// What is known of every column of a tile, for one reading.
#[derive(Debug, Clone, Default)]
pub(crate) struct Columns<R, S> {
    /// Part of the integer sum that the offset of the operands makes.
    pub known_sum: Vec<S>,
    /// Light of one unit of the sum; column gain and rail leak included.
    pub signal: Vec<R>,
    /// Light of one unit of the light sum.
    pub light: Vec<R>,
    /// Dark light per unit of light sent.
    pub dark: Vec<R>,
    /// Half the relative error of the rails' ratio.
    pub rail: Vec<R>,
    /// Known light that the encoding adds.
    pub known_light: Vec<R>,
    /// Light that the detector's zero is off by.
    pub offset: Vec<R>,
    /// Variance that does not depend on light.
    pub floor: Vec<R>,
    /// Mean square transmission: noise of independent sources.
    pub spread: Vec<R>,
    /// Steps of one unit of light.
    pub per_step: Vec<R>,
    /// Accumulator value of one step, before the vector's scale.
    pub value: Vec<R>,
    /// Accumulator value of one unit of light, before the vector's scale.
    pub scale: Vec<R>,
    /// Calibrated accumulator offset, before the vector's scale.
    pub bias: Vec<R>,
    /// Σ of `floor`.
    pub floor_sum: f64,
    /// Σ of `spread`.
    pub spread_sum: f64,
}

/// What is known of one vector in a tile, for one reading.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Vector<R> {
    /// Unit of the sum: 1/levels, or 1/full scale where values are not coded.
    pub signal: R,
    /// Unit of the light sum.
    pub light: R,
    /// Σ of the light sent.
    pub lit: R,
    /// r²·Σv²: noise of independent sources.
    pub square: R,
    /// Known light that the encoding adds to every column.
    pub known_light: R,
    /// Transmission left after drift.
    pub drift: R,
    /// Full scale of the inputs.
    pub scale: R,
}

/// What is the same for every vector and column of a reading.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Circuit {
    /// Random errors.
    pub noise: Noise,
    /// Light from the left and right neighbour, and what stays.
    pub crosstalk: Option<[f64; 3]>,
    /// Share of the previous symbol.
    pub inter_symbol: f64,
    /// Light at which a detector saturates.
    pub saturation: f64,
    /// Lowest and highest code; `None` is an ideal converter.
    pub codes: Option<[f64; 2]>,
    /// Clip first?
    pub order: Order,
    /// Ties.
    pub rounding: Rounding,
    /// The light is the signal itself (one detector).
    pub is_single: bool,
    /// Known light is in the analog signal and leaves after conversion.
    pub is_known_light_read: bool,
    /// Any column has unequal rails or a zero that is off.
    pub has_static_offsets: bool,
}

/// Where light comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LightSums<'a, S> {
    /// Summed beside the signal.
    Summed(&'a [S]),
    /// A level times the columns' transmissions, and what a few inputs send beyond it.
    Grouped { open: &'a [f32], level: f32, unit: f32, few: Option<&'a [S]> },
    /// The signal is the light.
    Signal,
}

/// Memory of one row.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scratch<R> {
    signal: Vec<R>,
    light: Vec<R>,
    mixed: Vec<R>,
    previous: [Vec<R>; 2],
    normals: Vec<f32>,
}

impl<R: Real> Scratch<R> {
    /// Makes room for `columns`, and forgets the previous symbol.
    pub(crate) fn reset(&mut self, columns: usize) {
        for row in [&mut self.signal, &mut self.light, &mut self.mixed] {
            row.resize(columns, R::default());
        }
        self.normals.resize(columns, 0.0);
        for row in &mut self.previous {
            row.clear();
            row.resize(columns, R::default());
        }
    }

    /// The analog signal of the row read last, before noise.
    pub(crate) fn signal(&self) -> &[R] {
        &self.signal
    }
}

/// What one row of readings adds to the ledger.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct RowCount {
    /// Readings outside the converter's codes.
    pub clipped: u64,
    /// Σ of the light, dark light included.
    pub light: f64,
    /// Σ of the squared signal.
    pub signal_sq: f64,
    /// Σ of the light that carries signal.
    pub carrying: f64,
    /// Σ of the analog noise variance.
    pub variance: f64,
}

/// One row of readings, ready to be taken.
#[derive(Debug)]
pub(crate) struct Reading<'a, R, S> {
    /// Sums of the kernel, one a column.
    pub sums: &'a [S],
    /// Where the light is.
    pub light: LightSums<'a, S>,
    /// The columns.
    pub columns: &'a Columns<R, S>,
    /// The vector.
    pub vector: Vector<R>,
    /// The rest.
    pub circuit: &'a Circuit,
    /// Variance each column adds by itself (pixel noise), if any.
    pub extra: Option<&'a [S]>,
    /// Key of the noise.
    pub place: Place,
    /// Memory.
    pub scratch: &'a mut Scratch<R>,
    /// The accumulator's row; `None` only prepares the previous symbol.
    pub y: Option<&'a mut [f32]>,
}

impl<R: Real, S: Sum<R>> Work for Reading<'_, R, S> {
    type Output = RowCount;

    #[inline(always)]
    fn call(mut self) -> RowCount {
        self.detect();
        self.carry_over();
        self.cross();
        self.saturate();
        let Some(y) = self.y.take() else { return RowCount::default() };
        let mut count = self.prepare();
        if self.circuit.noise.is_on {
            self.place.stream(Purpose::Detector).fill_normal(&mut self.scratch.normals);
        }
        count.clipped = self.convert(y);
        count
    }
}

impl<R: Real, S: Sum<R>> Reading<'_, R, S> {
    /// Sums of light become signal and light of every column.
    #[inline(always)]
    fn detect(&mut self) {
        let n = self.sums.len();
        let (v, c) = (self.vector, self.columns);
        let sums = &self.sums[..n];
        let (signal, light) = (&mut self.scratch.signal[..n], &mut self.scratch.light[..n]);
        let (known_sum, unit) = (&c.known_sum[..n], &c.signal[..n]);
        let row_unit = v.signal * v.drift;
        for i in 0..n {
            signal[i] = sums[i].real(known_sum[i]) * (row_unit * unit[i]);
        }
        match self.light {
            LightSums::Summed(sums) => {
                let (sums, unit, dark) = (&sums[..n], &c.light[..n], &c.dark[..n]);
                let (row_unit, lit) = (v.light * v.drift, v.lit * v.drift);
                for i in 0..n {
                    let carried = sums[i].real(S::default()) * (row_unit * unit[i]);
                    light[i] = carried + lit * dark[i];
                }
            }
            LightSums::Grouped { open, level, unit, few } => {
                let (open, gain, dark) = (&open[..n], &c.light[..n], &c.dark[..n]);
                let (row_unit, lit) = (v.light * v.drift, v.lit * v.drift);
                let (level, unit) = (R::of_f32(level), R::of_f32(unit));
                if let Some(few) = few {
                    let few = &few[..n];
                    for i in 0..n {
                        let beyond = few[i].real(S::default()) * unit;
                        let carried = (level * R::of_f32(open[i]) + beyond) * (row_unit * gain[i]);
                        light[i] = carried.or_more(R::default()) + lit * dark[i];
                    }
                } else {
                    let level = level * row_unit;
                    for i in 0..n {
                        light[i] = level * R::of_f32(open[i]) * gain[i] + lit * dark[i];
                    }
                }
            }
            LightSums::Signal => {
                let (known, dark) = (&c.known_light[..n], &c.dark[..n]);
                for i in 0..n {
                    let carried = signal[i] + (v.known_light + known[i]) * v.drift;
                    light[i] = carried.or_more(R::default()) + v.lit * dark[i] * v.drift;
                }
            }
        }
        if self.circuit.is_known_light_read {
            let known = &c.known_light[..n];
            for i in 0..n {
                signal[i] = signal[i] + (v.known_light + known[i]) * v.drift;
            }
        }
        if self.circuit.has_static_offsets {
            let (rail, offset) = (&c.rail[..n], &c.offset[..n]);
            for i in 0..n {
                signal[i] = signal[i] + rail[i] * light[i] + offset[i];
            }
        }
    }

    /// Part of the previous symbol stays in the receiver.
    #[inline(always)]
    fn carry_over(&mut self) {
        if self.circuit.inter_symbol <= 0.0 {
            return;
        }
        let (stay, left) =
            (R::of(1.0 - self.circuit.inter_symbol), R::of(self.circuit.inter_symbol));
        let Scratch { signal, light, previous: [old_signal, old_light], .. } = &mut *self.scratch;
        for (now, before) in [(signal, old_signal), (light, old_light)] {
            for (value, old) in now.iter_mut().zip(before.iter_mut()) {
                let fresh = *value;
                *value = stay * fresh + left * *old;
                *old = fresh;
            }
        }
    }

    /// Light of a column reaches its neighbours' detectors.
    #[inline(always)]
    fn cross(&mut self) {
        let Some([left, centre, right]) = self.circuit.crosstalk.map(|k| k.map(R::of)) else {
            return;
        };
        let n = self.sums.len();
        if n == 0 {
            return;
        }
        let Scratch { signal, light, mixed, .. } = &mut *self.scratch;
        for row in [signal, light] {
            let (from, to) = (&row[..n], &mut mixed[..n]);
            let at = |i: usize| if i < n { from[i] } else { R::default() };
            to[0] = centre * from[0] + right * at(1);
            for i in 1..n.max(2) - 1 {
                to[i] = centre * from[i] + (left * from[i - 1] + right * from[i + 1]);
            }
            if n > 1 {
                to[n - 1] = centre * from[n - 1] + left * from[n - 2];
            }
            std::mem::swap(row, mixed);
        }
    }

    /// A detector gives no more than its full well.
    #[inline(always)]
    fn saturate(&mut self) {
        if !self.circuit.saturation.is_finite() {
            return;
        }
        let (full, half) = (R::of(self.circuit.saturation), R::of(0.5));
        let Scratch { signal, light, .. } = &mut *self.scratch;
        for (value, total) in signal.iter_mut().zip(light.iter_mut()) {
            if self.circuit.is_single {
                *value = value.or_less(full);
                *total = total.or_less(full);
            } else {
                let plus = ((*total + *value) * half).or_less(full);
                let minus = ((*total - *value) * half).or_less(full);
                *value = plus - minus;
                *total = plus + minus;
            }
        }
    }

    /// Counts signal and light, and turns light into the deviation of every reading.
    #[inline(always)]
    fn prepare(&mut self) -> RowCount {
        let n = self.sums.len();
        let noise = &self.circuit.noise;
        let (shot, square) = (R::of(noise.shot), self.vector.square);
        let Scratch { signal, light, mixed, .. } = &mut *self.scratch;
        let (signal, light, deviation) = (&signal[..n], &light[..n], &mut mixed[..n]);
        let zero = R::default();
        let mut count = RowCount {
            signal_sq: folded(signal, zero, |sum, v| sum + v * v, |a, b| a + b),
            light: folded(light, zero, |sum, v| sum + v, |a, b| a + b),
            ..RowCount::default()
        };
        if !noise.is_on {
            return count;
        }
        let floor = &self.columns.floor[..n];
        if square > zero {
            let spread = &self.columns.spread[..n];
            for i in 0..n {
                let variance = light[i] * shot + floor[i] + square * spread[i];
                deviation[i] = variance.or_more(zero).root();
            }
        } else {
            for i in 0..n {
                deviation[i] = (light[i] * shot + floor[i]).or_more(zero).root();
            }
        }
        count.variance = count.light * noise.shot
            + self.columns.floor_sum
            + square.wide() * self.columns.spread_sum;
        if let Some(extra) = self.extra {
            for (value, sum) in deviation.iter_mut().zip(extra) {
                let own = sum.real(S::default());
                count.variance += own.wide();
                *value = (*value * *value + own).root();
            }
        }
        if noise.shot > 0.0 {
            let weakest = folded(light, R::of(f64::INFINITY), R::or_less, f64::min);
            if weakest < noise.poisson_below {
                self.count_photons();
            }
        }
        count
    }

    /// Where the light is weak, photons are counted and the Gaussian keeps the rest.
    #[cold]
    fn count_photons(&mut self) {
        let n = self.sums.len();
        let noise = &self.circuit.noise;
        let below = R::of(noise.poisson_below);
        let Scratch { signal, light, mixed, .. } = &mut *self.scratch;
        for i in 0..n {
            if light[i] < below {
                let (total, value) = (light[i].wide(), signal[i].wide());
                let (plus, minus) = if self.circuit.is_single {
                    (total, 0.0)
                } else {
                    (f64::midpoint(total, value), f64::midpoint(total, -value))
                };
                signal[i] = signal[i] + R::of(noise.counted(self.place, i, plus, minus));
                let rest = mixed[i] * mixed[i] - light[i] * R::of(noise.shot);
                mixed[i] = rest.or_more(R::default()).root();
            }
        }
    }

    /// The laser flickers, the receiver adds noise, the converter reads, the digital side scales and
    /// accumulates. Returns clipped readings.
    #[inline(always)]
    fn convert(&mut self, y: &mut [f32]) -> u64 {
        if !self.circuit.noise.is_on && !self.circuit.is_known_light_read {
            self.convert_with::<false, false>(y)
        } else if self.circuit.is_known_light_read {
            if !self.circuit.noise.is_on {
                self.scratch.mixed.fill(R::default());
            }
            self.convert_with::<true, true>(y)
        } else {
            self.convert_with::<false, true>(y)
        }
    }

    #[inline(always)]
    fn convert_with<const KNOWN: bool, const NOISY: bool>(&mut self, y: &mut [f32]) -> u64 {
        let n = self.sums.len();
        let (v, c) = (self.vector, self.columns);
        let noise = &self.circuit.noise;
        let gain = R::of(noise.laser_gain(self.place));
        let Scratch { signal, mixed, normals, .. } = &mut *self.scratch;
        let (signal, deviation, normals) = (&signal[..n], &mixed[..n], &normals[..n]);
        let (value, bias, scale) = (&c.value[..n], &c.bias[..n], &c.scale[..n]);
        let y = &mut y[..n];
        let read = |i: usize| {
            let lit = signal[i] * gain;
            if NOISY { lit + deviation[i] * R::of_f32(normals[i]) } else { lit }
        };
        let known = |i: usize| if KNOWN { bias[i] - v.known_light * scale[i] } else { bias[i] };
        let Some([low, high]) = self.circuit.codes else {
            for i in 0..n {
                y[i] += (v.scale * (read(i) * value[i] + known(i))).narrow();
            }
            return 0;
        };
        let slack = if self.circuit.order == Order::ClipThenRound { 0.0 } else { 1.0 };
        let (low_edge, high_edge) = (R::of(low - slack), R::of(high + slack));
        let (low, high) = (R::of(low), R::of(high));
        let half = R::of(0.5);
        let (low_half, high_half) = (low - half, high + half);
        let per_step = &c.per_step[..n];
        let is_even = self.circuit.rounding == Rounding::NearestEven;
        let mut clipped = 0_u32;
        for i in 0..n {
            let steps = read(i) * per_step[i];
            clipped += u32::from((steps > high_half) | (steps < low_half));
            let near = steps.or_more(low_edge).or_less(high_edge);
            let whole = if is_even { near.even() } else { near.toward_zero() };
            let code = whole.or_more(low).or_less(high);
            y[i] += (v.scale * (code * value[i] + known(i))).narrow();
        }
        u64::from(clipped)
    }
}

/// Folds values in sixteen lanes, then the lanes.
#[inline(always)]
fn folded<R: Real>(
    values: &[R],
    start: R,
    step: impl Fn(R, R) -> R,
    join: impl Fn(f64, f64) -> f64,
) -> f64 {
    const LANES: usize = 16;
    let mut lanes = [start; LANES];
    let mut chunks = values.chunks_exact(LANES);
    for chunk in &mut chunks {
        for lane in 0..LANES {
            lanes[lane] = step(lanes[lane], chunk[lane]);
        }
    }
    for (lane, &value) in lanes.iter_mut().zip(chunks.remainder()) {
        *lane = step(*lane, value);
    }
    lanes.iter().map(|lane| lane.wide()).reduce(join).unwrap_or(start.wide())
}
