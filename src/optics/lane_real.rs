//! Operands of real masks: f32, summed in f64.

use crate::optics::cycle::Columns;
use crate::optics::encode::{Operand, Reading};
use crate::optics::kernel::{Isa, Out, PackedF32, Rows};
use crate::optics::lane::{Lane, Sent, Totals};
use crate::optics::layer::{Layer, LightMask, SignalMask, Tables, Tile};
use crate::optics::light::{Grouping, Split};
use crate::optics::real::Real;
use crate::optics::spec::PixelNoise;

/// Real masks.
#[derive(Debug, Default)]
pub(crate) struct RealLane {
    signal: Vec<f32>,
    light: Vec<f32>,
    /// v², where pixels draw noise.
    squares: Vec<f32>,
    inputs: usize,
    rows: usize,
    totals: Vec<Totals>,
}

impl Lane for RealLane {
    type R = f64;
    type S = f64;

    fn send(
        &mut self,
        layer: &Layer,
        sent: &Sent,
        reading: &Reading,
        levels: Option<i32>,
        light: bool,
    ) {
        let (rows, inputs) = (sent.rows, sent.inputs);
        (self.rows, self.inputs) = (rows, inputs);
        self.signal.clear();
        self.light.clear();
        self.totals.clear();
        let slice = layer
            .spec
            .input_slice_bits
            .filter(|_| layer.is_input_sliced())
            .map(|bits| (bits * reading.input_slice, (1_i16 << bits) - 1));
        let compression = layer.spec.source_compression;
        let has_pixel_noise = layer.spec.pixel_noise != PixelNoise::Off;
        self.squares.clear();
        for row in 0..rows {
            let at = row * inputs..(row + 1) * inputs;
            let scale = sent.scales[row];
            // What the stored value of a full-scale source is.
            let full = levels.map_or(scale, f64::from);
            let unit = if full > 0.0 { 1.0 / full } else { 0.0 };
            let mut total = Totals { signal_unit: unit, light_unit: unit, ..Totals::default() };
            for i in at {
                let raw = match (levels, slice) {
                    (Some(_), Some((shift, mask))) => {
                        let magnitude = (sent.codes[i].abs() >> shift) & mask;
                        f32::from(if sent.codes[i] < 0 { -magnitude } else { magnitude })
                    }
                    (Some(_), None) => f32::from(sent.codes[i]),
                    (None, _) => sent.values[i],
                };
                let value = match reading.operand {
                    Operand::Signed | Operand::Offset => raw,
                    Operand::Positive => raw.max(0.0),
                    Operand::Negative => (-raw).max(0.0),
                };
                let value = if compression.abs() > 0.0 {
                    let v = f64::from(value) * unit;
                    f32::of(f64::from(value) * (1.0 - compression * v * v))
                } else {
                    value
                };
                let lit = if reading.operand == Operand::Offset {
                    f32::of(0.5 * (f64::from(value) + full))
                } else {
                    value.abs()
                };
                self.signal.push(value);
                if has_pixel_noise {
                    self.squares.push(f32::of((f64::from(value) * unit).powi(2)));
                }
                if light {
                    self.light.push(lit);
                }
                total.signed += f64::from(value) * unit;
                total.lit += f64::from(lit) * unit;
                total.square += (f64::from(value) * unit).powi(2);
            }
            self.totals.push(total);
        }
    }

    fn totals(&self) -> &[Totals] {
        &self.totals
    }

    fn sum_signal(&self, isa: Isa, mask: &SignalMask, panel: usize, out: Out<'_, f64>) {
        let SignalMask::Real(mask) = mask else {
            unreachable!("Invariant: the real path has real masks")
        };
        isa.sum_f64(
            Rows { data: &self.signal, stride: self.inputs, rows: self.rows },
            mask,
            panel,
            out,
        );
    }

    fn split_light(&mut self, _: &Layer, _: &Grouping) {
        unreachable!("Invariant: the real path sums all light")
    }

    fn light_split(&self, _: usize) -> Split {
        unreachable!("Invariant: the real path sums all light")
    }

    fn sum_light(&mut self, isa: Isa, mask: &LightMask, panel: usize, out: Out<'_, f64>) {
        let LightMask::Real(mask) = mask else {
            unreachable!("Invariant: the real path has real masks")
        };
        isa.sum_f64(
            Rows { data: &self.light, stride: self.inputs, rows: self.rows },
            mask,
            panel,
            out,
        );
    }

    fn sum_noise(&mut self, isa: Isa, mask: &PackedF32, panel: usize, out: Out<'_, f64>) {
        isa.sum_f64(
            Rows { data: &self.squares, stride: self.inputs, rows: self.rows },
            mask,
            panel,
            out,
        );
    }

    fn columns(tile: &Tile, reading: usize) -> &Columns<f64, f64> {
        match &tile.tables[reading] {
            Tables::Real(columns) => columns,
            Tables::Integer(_) => unreachable!("Invariant: the path chose the tables"),
        }
    }
}
