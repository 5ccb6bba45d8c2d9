//! What the sources send of one block of vectors, in the form a kernel takes.
//!
//! A [`Lane`] is the precision of a path: bytes or words behind integer masks, f32 behind real ones.

use crate::optics::convert::Dac;
use crate::optics::cycle::Columns;
use crate::optics::encode::{Operand, Reading};
use crate::optics::kernel::{Isa, Out, PackedF32, Rows, Work};
use crate::optics::layer::{Layer, LightMask, SignalMask, Tables, Tile};
use crate::optics::real::{Real, Sum};
use crate::optics::spec::PixelNoise;

/// Largest relative error (rms) of light summed over groups of four.
///
/// Its mean magnitude is then below 2 %.
const UNEVEN_ABOVE: f64 = 0.025;

/// Vectors of one tile as the converters left them.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    /// Vectors.
    pub(crate) rows: usize,
    /// Inputs of the tile.
    pub(crate) inputs: usize,
    /// Codes, `rows × inputs`.
    pub(crate) codes: Vec<i16>,
    /// Values where the converters are ideal.
    pub(crate) values: Vec<f32>,
    /// Full scale of each vector.
    pub(crate) scales: Vec<f64>,
    /// Values out of range.
    pub(crate) clips: u64,
}

impl Sent {
    /// Converts `rows` vectors; `x` starts at the tile's first input of the first vector.
    pub(crate) fn convert(
        &mut self,
        layer: &Layer,
        x: &[f32],
        stride: usize,
        rows: usize,
        inputs: usize,
    ) {
        self.rows = rows;
        self.inputs = inputs;
        self.clips = 0;
        let dac = Dac::new(&layer.spec);
        match dac.levels {
            Some(_) => self.codes.resize(rows * inputs, 0),
            None => self.values.resize(rows * inputs, 0.0),
        }
        self.scales.clear();
        for row in 0..rows {
            let x = &x[row * stride..][..inputs];
            let at = row * inputs..(row + 1) * inputs;
            let (scale, clips) = match dac.levels {
                Some(levels) => layer.isa.run(Write { dac, x, levels, codes: &mut self.codes[at] }),
                None => layer.isa.run(Pass { dac, x, out: &mut self.values[at] }),
            };
            self.scales.push(scale);
            self.clips += clips;
        }
    }
}

struct Write<'a> {
    dac: Dac,
    x: &'a [f32],
    levels: i32,
    codes: &'a mut [i16],
}

impl Work for Write<'_> {
    type Output = (f64, u64);
    #[inline(always)]
    fn call(self) -> (f64, u64) {
        let scale = self.dac.full_scale(self.x);
        (scale, self.dac.write(self.x, scale, self.levels, self.codes))
    }
}

struct Pass<'a> {
    dac: Dac,
    x: &'a [f32],
    out: &'a mut [f32],
}

impl Work for Pass<'_> {
    type Output = (f64, u64);
    #[inline(always)]
    fn call(self) -> (f64, u64) {
        let scale = self.dac.full_scale(self.x);
        (scale, self.dac.pass(self.x, scale, self.out))
    }
}

/// One vector's sums over what is sent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    /// Σ v.
    pub(crate) signed: f64,
    /// Σ of the light sent.
    pub(crate) lit: f64,
    /// Σ v².
    pub(crate) square: f64,
    /// Unit of the signal sum.
    pub(crate) signal_unit: f64,
    /// Unit of the light sum, unit of the mask not included.
    pub(crate) light_unit: f64,
    /// Whether light is summed input by input.
    pub(crate) is_uneven: bool,
}

/// The precision of a path.
pub(crate) trait Lane: Default + Send {
    type R: Real;
    type S: Sum<Self::R>;

    /// Prepares what a reading sends; `light` says whether its light is summed.
    fn send(
        &mut self,
        layer: &Layer,
        sent: &Sent,
        reading: &Reading,
        levels: Option<i32>,
        light: bool,
    );
    /// Per-vector sums of what was sent last.
    fn totals(&self) -> &[Totals];
    /// Sums the signal of a panel.
    fn sum_signal(&self, isa: Isa, mask: &SignalMask, panel: usize, out: Out<'_, Self::S>);
    /// Sums the light of a panel.
    fn sum_light(&mut self, isa: Isa, mask: &LightMask, panel: usize, out: Out<'_, Self::S>);
    /// Sums the pixels' own noise of a panel.
    fn sum_noise(&mut self, isa: Isa, mask: &PackedF32, panel: usize, out: Out<'_, Self::S>);
    /// Picks the columns of this precision.
    fn columns(tile: &Tile, reading: usize) -> &Columns<Self::R, Self::S>;
}

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
            Some(offset) => signed + n as i64 * i64::from(offset),
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
            self.bytes.resize(size, 0)
        } else {
            self.words.resize(size, 0)
        }
        if light {
            self.light.resize(size, 0)
        }
        if is_grouped {
            self.groups.resize(rows * self.group_stride, 0)
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
                isa.sum8(Rows { data: &self.bytes, stride, rows }, mask, panel, out)
            }
            SignalMask::Sixteen(mask) => {
                isa.sum16(Rows { data: &self.words, stride, rows }, mask, panel, out)
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
        let width = crate::optics::kernel::PANEL;
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
