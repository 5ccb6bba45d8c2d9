//! Operands of integer masks: bytes or words, and their light as bytes.

use crate::optics::cycle::Columns;
use crate::optics::encode::{Operand, Reading};
use crate::optics::kernel::{Isa, Out, PackedF32, Rows, Work};
use crate::optics::lane::{Lane, Sent, Totals};
use crate::optics::layer::{Layer, LightMask, SignalMask, Tables, Tile};
use crate::optics::light::{Grouping, Outstanding, Split};

/// Integer masks.
#[derive(Debug, Default)]
pub(crate) struct IntegerLane {
    bytes: Vec<u8>,
    words: Vec<i16>,
    /// What a reading sends of a row, where that is not all of it.
    part: Vec<i16>,
    stride: usize,
    rows: usize,
    light: Vec<u8>,
    splits: Vec<Split>,
    outstanding: Outstanding,
    totals: Vec<Totals>,
}

/// One row of integer operands: codes as stored for the kernels.
struct Fill<'a> {
    codes: &'a [i16],
    /// Levels that the light of an offset operand is shifted by.
    offset: Option<i16>,
    light_shift: u32,
    light_top: i16,
    needs_square: bool,
    zero: i16,
    bytes: Option<&'a mut [u8]>,
    words: Option<&'a mut [i16]>,
    light: Option<&'a mut [u8]>,
}

impl Work for Fill<'_> {
    /// Σ code, Σ light, Σ code².
    type Output = [i64; 3];

    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "codes fit by the plan"
    )]
    fn call(self) -> [i64; 3] {
        let n = self.codes.len();
        let (mut signed, mut magnitude, mut square) = (0_i64, 0_i64, 0_i64);
        // 32,768 magnitudes of 15 bits fit 32 bits.
        for chunk in self.codes.chunks(1 << 15) {
            let (mut s, mut m) = (0_i32, 0_i32);
            for &code in chunk {
                let code = i32::from(code);
                s += code;
                m += code.abs();
            }
            signed += i64::from(s);
            magnitude += i64::from(m);
        }
        if self.needs_square {
            square = self.codes.iter().map(|&c| i64::from(i32::from(c) * i32::from(c))).sum();
        }
        let lit = match self.offset {
            Some(offset) => {
                signed + i64::from(offset) * self.codes.iter().map(|_| 1_i64).sum::<i64>()
            }
            None => magnitude,
        };
        if let Some(bytes) = self.bytes {
            for (place, &code) in bytes[..n].iter_mut().zip(self.codes) {
                *place = (code + self.zero) as u8;
            }
        }
        if let Some(words) = self.words {
            words[..n].copy_from_slice(self.codes);
        }
        if let Some(light) = self.light {
            // What is halved is rounded, so that it loses nothing on average.
            let (shift, half) = (self.light_shift, (1_i16 << self.light_shift) >> 1);
            let top = self.light_top;
            let places = light[..n].iter_mut().zip(self.codes);
            match self.offset {
                Some(offset) => {
                    for (place, &code) in places {
                        *place = ((code + offset).saturating_add(half) >> shift).min(top) as u8;
                    }
                }
                None => {
                    for (place, &code) in places {
                        *place = (code.abs().saturating_add(half) >> shift).min(top) as u8;
                    }
                }
            }
        }
        [signed, lit, square]
    }
}

/// Writes the part of `codes` that a reading sends.
fn select(codes: &[i16], operand: Operand, slice: Option<(u32, i16)>, part: &mut Vec<i16>) {
    part.clear();
    part.extend(codes.iter().map(|&code| {
        let value = match operand {
            Operand::Signed | Operand::Offset => code,
            Operand::Positive => code.max(0),
            Operand::Negative => (-code).max(0),
        };
        match slice {
            Some((shift, mask)) => ((value.abs() >> shift) & mask) * value.signum(),
            None => value,
        }
    }));
}

impl Lane for IntegerLane {
    type R = f32;
    type S = i32;

    fn send(
        &mut self,
        layer: &Layer,
        sent: &Sent,
        reading: &Reading,
        levels: Option<i32>,
        light: bool,
    ) {
        let (rows, inputs) = (sent.rows, sent.inputs);
        let levels = levels.unwrap_or(1);
        let is_byte = layer.has_bytes(reading);
        // An odd number of cache lines, so that rows do not meet in one place of the cache.
        self.stride = inputs.div_ceil(128) * 128 + 64;
        self.rows = rows;
        let size = rows * self.stride;
        if is_byte {
            self.bytes.resize(size, 0);
        } else {
            self.words.resize(size, 0);
        }
        if light {
            self.light.resize(rows * self.stride, 0);
        }
        let slice = layer
            .spec
            .input_slice_bits
            .filter(|_| layer.is_input_sliced())
            .map(|bits| (bits * reading.input_slice, (1_i16 << bits) - 1));
        let is_offset = reading.operand == Operand::Offset;
        let top = if is_offset { 2 * levels } else { levels };
        let is_wide = is_offset || layer.spec.encoding.is_unsigned();
        let limit = if is_wide && !layer.is_grouped(inputs) { 255 } else { 127 };
        let light_shift = shift_below(top, i32::from(limit));
        let (_, zero) = layer.operand_range(reading);
        let units = 1.0 / f64::from(levels);
        let lit_unit = if is_offset { 0.5 * units } else { units };
        let is_whole =
            slice.is_none() && matches!(reading.operand, Operand::Signed | Operand::Offset);
        self.totals.clear();
        for row in 0..rows {
            let at = row * self.stride..(row + 1) * self.stride;
            let codes = &sent.codes[row * inputs..(row + 1) * inputs];
            if !is_whole {
                select(codes, reading.operand, slice, &mut self.part);
            }
            let fill = Fill {
                codes: if is_whole { codes } else { &self.part },
                #[expect(clippy::cast_possible_truncation, reason = "at most 15 bits")]
                offset: is_offset.then_some(levels as i16),
                light_shift,
                light_top: limit,
                needs_square: layer.spec.rin_rms > 0.0 && !layer.spec.is_rin_common,
                #[expect(clippy::cast_possible_truncation, reason = "0 or 128")]
                zero: zero as i16,
                bytes: is_byte.then(|| &mut self.bytes[at.clone()]),
                words: (!is_byte).then(|| &mut self.words[at.clone()]),
                light: light.then(|| &mut self.light[row * self.stride..(row + 1) * self.stride]),
            };
            let [signed, lit, square] = layer.isa.run(fill);
            self.totals.push(Totals {
                signed: signed as f64 * units,
                lit: lit as f64 * lit_unit,
                square: square as f64 * units * units,
                signal_unit: units,
                light_unit: f64::from(1_u32 << light_shift) * lit_unit,
            });
        }
    }

    fn totals(&self) -> &[Totals] {
        &self.totals
    }

    fn sum_signal(&self, isa: Isa, mask: &SignalMask, panel: usize, out: Out<'_, i32>) {
        let (stride, rows) = (self.stride, self.rows);
        match mask {
            SignalMask::Eight(mask) => {
                isa.sum8(Rows { data: &self.bytes, stride, rows }, mask, panel, out);
            }
            SignalMask::Sixteen(mask) => {
                isa.sum16(Rows { data: &self.words, stride, rows }, mask, panel, out);
            }
            SignalMask::Real(_) => unreachable!("Invariant: integer paths have integer masks"),
        }
    }

    fn sum_light(&mut self, isa: Isa, mask: &LightMask, panel: usize, out: Out<'_, i32>) {
        match mask {
            LightMask::Exact { mask, .. } => {
                let all = Rows { data: &self.light, stride: self.stride, rows: self.rows };
                isa.sum8(all, mask, panel, out);
            }
            LightMask::Grouped { mask, .. } => {
                for (row, split) in self.splits.iter().enumerate() {
                    if split.last > split.first {
                        let out = &mut out.data[row * out.ldo..];
                        mask.sum(isa, panel, *split, &self.outstanding, out);
                    }
                }
            }
            LightMask::None | LightMask::Real(_) => {
                unreachable!("Invariant: light is summed only where it has a mask")
            }
        }
    }

    fn split_light(&mut self, layer: &Layer, grouping: &Grouping) {
        self.splits.clear();
        self.outstanding.clear();
        for row in self.light.chunks_exact(self.stride).take(self.rows) {
            let split = grouping.split(layer.isa, row, &mut self.outstanding);
            self.splits.push(split);
        }
    }

    fn light_split(&self, row: usize) -> Split {
        self.splits[row]
    }

    fn sum_noise(&mut self, _: Isa, _: &PackedF32, _: usize, _: Out<'_, i32>) {
        unreachable!("Invariant: pixel noise takes the real path")
    }

    fn columns(tile: &Tile, reading: usize) -> &Columns<f32, i32> {
        match &tile.tables[reading] {
            Tables::Integer(columns) => columns,
            Tables::Real(_) => unreachable!("Invariant: the path chose the tables"),
        }
    }
}

/// Halvings that bring `value` to `limit` or below.
fn shift_below(value: i32, limit: i32) -> u32 {
    (0..16).find(|shift| value >> shift <= limit).unwrap_or(16)
}
