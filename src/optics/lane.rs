//! What the sources send of one block of vectors, in the form a kernel takes.
//!
//! A [`Lane`] is the precision of a path: bytes or words behind integer masks, f32 behind real ones.

use crate::optics::convert::Dac;
use crate::optics::cycle::Columns;
use crate::optics::encode::Reading;
use crate::optics::kernel::{Isa, Out, PackedF32, Work};
use crate::optics::layer::{Layer, LightMask, SignalMask, Tile};
use crate::optics::light::{Grouping, Split};
use crate::optics::real::{Real, Sum};

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
    /// Splits every vector sent last in a group and what stands out of it.
    fn split_light(&mut self, layer: &Layer, grouping: &Grouping);
    /// How the light of a vector was split.
    fn light_split(&self, row: usize) -> Split;
    /// Sums the light of a panel, or that of the inputs that stand out.
    fn sum_light(&mut self, isa: Isa, mask: &LightMask, panel: usize, out: Out<'_, Self::S>);
    /// Sums the pixels' own noise of a panel.
    fn sum_noise(&mut self, isa: Isa, mask: &PackedF32, panel: usize, out: Out<'_, Self::S>);
    /// Picks the columns of this precision.
    fn columns(tile: &Tile, reading: usize) -> &Columns<Self::R, Self::S>;
}
