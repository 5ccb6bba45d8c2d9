//! Operands of integer masks: bytes or words, and their light as bytes.

use crate::optics::cycle::Columns;
use crate::optics::encode::{Operand, Reading};
use crate::optics::kernel::{Isa, Out, PANEL, PackedF32, Rows, Work};
use crate::optics::lane::{Lane, Sent, Totals};
use crate::optics::layer::{Layer, LightMask, SignalMask, Tables, Tile};

/// Largest relative error (rms) of light summed over groups of four.
///
/// Its mean magnitude is then below 2 %.
const UNEVEN_ABOVE: f64 = 0.025;

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
    groups: Vec<u8>,
    light_stride: usize,
    group_stride: usize,
    /// Rows whose light is summed input by input, packed.
    uneven: Vec<usize>,
    uneven_light: Vec<u8>,
    uneven_sums: Vec<i32>,
    totals: Vec<Totals>,
}

/// One row of integer operands: codes as stored for the kernels.
struct Fill<'a> {
    codes: &'a [i16],
    /// Levels that the light of an offset operand is shifted by.
    offset: Option<i16>,
    light_shift: u32,
    needs_square: bool,
    zero: i16,
    bytes: Option<&'a mut [u8]>,
    words: Option<&'a mut [i16]>,
    light: Option<&'a mut [u8]>,
    groups: Option<&'a mut [u8]>,
    group_shift: u32,
}

impl Work for Fill<'_> {
    /// Σ code, Σ light, Σ code², and Σ of the squared differences of light inside groups of four.
    type Output = [i64; 4];

    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "codes fit by the plan"
    )]
    fn call(self) -> [i64; 4] {
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
        let mut uneven = 0_i64;
        if let Some(light) = self.light {
            match self.offset {
                Some(offset) => {
                    for (place, &code) in light[..n].iter_mut().zip(self.codes) {
                        *place = ((code + offset) >> self.light_shift) as u8;
                    }
                }
                None => {
                    for (place, &code) in light[..n].iter_mut().zip(self.codes) {
                        *place = (code.abs() >> self.light_shift) as u8;
                    }
                }
            }
            if let Some(groups) = self.groups {
                uneven = grouped(light, groups, self.group_shift);
            }
        }
        [signed, lit, square, uneven]
    }
}

/// Sums light over groups of four; returns 4·Σ (x − mean)² inside the groups.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "shifted to a byte by the caller's choice")]
fn grouped(light: &[u8], groups: &mut [u8], shift: u32) -> i64 {
    // The rounding of halves alternates, so that it does not add up.
    let mask = (1_u16 << shift) - 1;
    let (mut total, mut squares) = (0_i64, 0_i64);
    // 1,024 groups of four bytes: the squares of their sums fit 32 bits.
    for (chunk, places) in light.chunks(4096).zip(groups.chunks_mut(1024)) {
        let (mut sum_sq, mut each_sq) = (0_u32, 0_u32);
        for (group, (place, four)) in places.iter_mut().zip(chunk.chunks_exact(4)).enumerate() {
            let sum: u16 = four.iter().map(|v| u16::from(*v)).sum();
            let round = (group as u16).wrapping_mul(3) & mask;
            *place = ((sum + round) >> shift) as u8;
            sum_sq += u32::from(sum) * u32::from(sum);
        }
        for &value in chunk {
            each_sq += u32::from(value) * u32::from(value);
        }
        total += i64::from(sum_sq);
        squares += i64::from(each_sq);
    }
    4 * squares - total
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
        self.stride = inputs.div_ceil(4) * 4;
        self.rows = rows;
        self.light_stride = self.stride;
        self.group_stride = (self.stride / 4).div_ceil(4) * 4;
        let is_grouped = light && layer.is_grouped();
        let size = rows * self.stride;
        if is_byte {
            self.bytes.resize(size, 0);
        } else {
            self.words.resize(size, 0);
        }
        if light {
            self.light.resize(size, 0);
        }
        if is_grouped {
            self.groups.resize(rows * self.group_stride, 0);
        }
        let slice = layer
            .spec
            .input_slice_bits
            .filter(|_| layer.is_input_sliced())
            .map(|bits| (bits * reading.input_slice, (1_i16 << bits) - 1));
        let is_offset = reading.operand == Operand::Offset;
        let top = if is_offset { 2 * levels } else { levels };
        let limit = if is_offset || layer.spec.encoding.is_unsigned() { 255 } else { 127 };
        let light_shift = shift_below(top, limit);
        let group_shift = shift_below(4 * (top >> light_shift), 252);
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
                needs_square: layer.spec.rin_rms > 0.0 && !layer.spec.is_rin_common,
                #[expect(clippy::cast_possible_truncation, reason = "0 or 128")]
                zero: zero as i16,
                bytes: is_byte.then(|| &mut self.bytes[at.clone()]),
                words: (!is_byte).then(|| &mut self.words[at.clone()]),
                light: light.then(|| &mut self.light[at.clone()]),
                groups: is_grouped.then(|| {
                    &mut self.groups[row * self.group_stride..(row + 1) * self.group_stride]
                }),
                group_shift,
            };
            let [signed, lit, square, uneven] = layer.isa.run(fill);
            let light_sum = (lit >> light_shift) as f64;
            // Σ within groups of (x − mean)² is a quarter of 4Σx² − (Σx)².
            let spread = (uneven as f64 / 4.0).sqrt();
            let group_unit = f64::from(1_u32 << (group_shift + light_shift)) * lit_unit;
            self.totals.push(Totals {
                signed: signed as f64 * units,
                lit: lit as f64 * lit_unit,
                square: square as f64 * units * units,
                signal_unit: units,
                light_unit: if is_grouped {
                    group_unit
                } else {
                    f64::from(1_u32 << light_shift) * lit_unit
                },
                is_uneven: is_grouped
                    && light_sum > 0.0
                    && spread > layer.uneven_limit(UNEVEN_ABOVE) * light_sum,
            });
        }
        self.uneven.clear();
        self.uneven_light.clear();
        for (row, total) in self.totals.iter_mut().enumerate() {
            if total.is_uneven {
                total.light_unit = f64::from(1_u32 << light_shift) * lit_unit;
                self.uneven.push(row);
                let at = row * self.light_stride..(row + 1) * self.light_stride;
                self.uneven_light.extend_from_slice(&self.light[at]);
            }
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
        let LightMask::Integer { exact, grouped, .. } = mask else {
            unreachable!("Invariant: light is summed only where it has a mask")
        };
        let Some((groups, _)) = grouped else {
            let all = Rows { data: &self.light, stride: self.light_stride, rows: self.rows };
            return isa.sum8(all, exact, panel, out);
        };
        if self.uneven.len() < self.rows {
            let all = Rows { data: &self.groups, stride: self.group_stride, rows: self.rows };
            isa.sum8(all, groups, panel, Out { data: &mut *out.data, ldo: out.ldo });
        }
        if self.uneven.len() == self.rows {
            let all = Rows { data: &self.light, stride: self.light_stride, rows: self.rows };
            return isa.sum8(all, exact, panel, out);
        }
        if self.uneven.is_empty() {
            return;
        }
        let width = PANEL;
        self.uneven_sums.resize(self.uneven.len() * width, 0);
        let few =
            Rows { data: &self.uneven_light, stride: self.light_stride, rows: self.uneven.len() };
        isa.sum8(few, exact, panel, Out { data: &mut self.uneven_sums, ldo: width });
        for (&row, sums) in self.uneven.iter().zip(self.uneven_sums.chunks_exact(width)) {
            out.data[row * out.ldo..][..width].copy_from_slice(sums);
        }
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
