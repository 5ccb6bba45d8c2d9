//! A weight matrix on masks: quantised, distorted by its specimen, packed for the kernels.

use std::ops::Range;
use std::sync::Arc;

use crate::error::Error;
use crate::optics::convert::{Adc, nearest_even};
use crate::optics::cycle::{Circuit, Columns};
use crate::optics::encode::{Encoding, Operand, Polarity, Reading, readings, slices};
use crate::optics::kernel::{Isa, Packed8, Packed16, PackedF32};
use crate::optics::light::{Grouping, LEAST_INPUTS, PackedLight, Sample};
use crate::optics::noise::Noise;
use crate::optics::plan::{Path, normal_over_peak, plan};
use crate::optics::real::Real;
use crate::optics::scales::Scales;
use crate::optics::spec::{PixelNoise, Spec, Variance};
use crate::optics::tile::{TileSplit, edges};
use crate::optics::write::{Part, is_light_fine};

/// Most weights of one matrix: beyond it an allocation is refused before it is tried.
const MAX_WEIGHTS: usize = 1 << 31;

/// A packed mask, as one reading sees it.
#[derive(Debug)]
pub(crate) enum SignalMask {
    Eight(Packed8),
    Sixteen(Packed16),
    Real(PackedF32),
}

/// The masks whose products are light.
#[derive(Debug)]
pub(crate) enum LightMask {
    /// Nobody asks.
    None,
    /// Summed input by input.
    Exact { mask: Packed8, unit: f64 },
    /// What each column's pixels pass together, and the pixels for inputs that stand out.
    Grouped { open: Vec<f32>, mask: PackedLight, unit: f64 },
    /// Real.
    Real(PackedF32),
}

/// The columns in the precision of the path.
#[derive(Debug)]
pub(crate) enum Tables {
    Integer(Columns<f32, i32>),
    Real(Columns<f64, f64>),
}

/// One mask load.
#[derive(Debug)]
pub(crate) struct Tile {
    /// Inputs it covers.
    pub(crate) inputs: Range<usize>,
    /// Outputs it covers.
    pub(crate) outputs: Range<usize>,
    /// By reading.
    pub(crate) masks: Vec<Arc<SignalMask>>,
    /// By weight slice.
    pub(crate) light: Vec<LightMask>,
    /// By weight slice: variances of the pixels' own noise, where they have any.
    pub(crate) noise: Vec<PackedF32>,
    /// By reading.
    pub(crate) tables: Vec<Tables>,
    /// By reading: Σ of the dark light over columns, per unit sent.
    pub(crate) dark: Vec<f64>,
}

/// A compiled layer: `(outputs, inputs)` weights on masks.
#[derive(Debug)]
pub struct Layer {
    /// The engine.
    pub spec: Spec,
    /// Inputs.
    pub k: usize,
    /// Outputs.
    pub n: usize,
    /// How sums are made.
    pub path: Path,
    /// Why.
    pub reason: String,
    /// Instruction set it is packed for.
    pub isa: Isa,
    /// Conversions that make one tile's sums.
    pub readings: Vec<Reading>,
    /// Mean |v| of the inputs that the light budget assumes.
    pub mean_input: f64,
    /// Rms of v that the converter range assumes.
    pub rms_input: f64,
    /// Electrons of one unit of light.
    pub electrons: f64,
    pub(crate) k_edges: Vec<usize>,
    pub(crate) n_edges: Vec<usize>,
    pub(crate) tiles: Vec<Tile>,
    pub(crate) circuits: Vec<Circuit>,
    pub(crate) mean_light: f64,
    /// By K-tile and weight slice: what the columns have in common, where light is grouped.
    pub(crate) groupings: Vec<Vec<Grouping>>,
}

impl Layer {
    /// Compiles `w`, `(n, k)` row by row.
    ///
    /// # Errors
    /// [`Error::Shape`] when `w` is not n × k; [`Error::Range`] when it is empty, too large or not
    /// finite.
    pub fn compile(w: &[f32], n: usize, k: usize, spec: Spec, isa: Isa) -> Result<Self, Error> {
        let spec = spec.validated()?;
        check_weights(w, n, k)?;
        let (k_edges, n_edges) =
            (edges(k, spec.inputs, spec.tile_split), edges(n, spec.outputs, TileSplit::Full));
        let scales = Scales::new(w, n, k, &spec, &k_edges);
        let width = k_edges.windows(2).map(|e| e[1] - e[0]).max().unwrap_or(1);
        let (path, reason) = plan(&spec, scales.largest_column_sum(w, k), width);
        let [mean_input, rms_input] = normal_over_peak(width);
        let readings = readings(&spec);
        let mut layer = Self {
            k,
            n,
            path,
            reason,
            isa,
            readings,
            mean_input,
            rms_input,
            electrons: f64::INFINITY,
            k_edges,
            n_edges,
            tiles: Vec::new(),
            circuits: Vec::new(),
            mean_light: 0.0,
            groupings: Vec::new(),
            spec,
        };
        let mut transmission = 0.0;
        for (kt, k_edge) in layer.k_edges.windows(2).enumerate() {
            let is_fine = is_light_fine(&layer.spec);
            let mut samples = layer.light_samples(k_edge[1] - k_edge[0]);
            for n_edge in layer.n_edges.windows(2) {
                let part = Part {
                    layer: &layer,
                    w,
                    scales: &scales,
                    kt,
                    inputs: k_edge[0]..k_edge[1],
                    outputs: n_edge[0]..n_edge[1],
                };
                let (tile, open) = part.tile(&mut samples);
                transmission += open;
                layer.tiles.push(tile);
            }
            layer.groupings.push(samples.into_iter().map(|s| s.grouping(isa, is_fine)).collect());
        }
        layer.mean_light = transmission / (w.len() as f64);
        layer.set_light();
        Ok(layer)
    }

    /// Sets the laser from the mean light of a MAC, and every circuit with it.
    pub(crate) fn set_light(&mut self) {
        let per_mac = match self.spec.encoding {
            Encoding::OffsetInputBalanced => 0.5 * self.mean_light,
            Encoding::OffsetBoth | Encoding::OffsetBothRaw => 0.25,
            _ => self.mean_input * self.mean_light,
        };
        self.electrons = match (self.spec.electrons_full_scale, self.spec.electrons_per_mac) {
            (Some(electrons), _) => electrons,
            (None, Some(per)) if per_mac > 0.0 => per / per_mac,
            _ => f64::INFINITY,
        };
        self.circuits = self.readings.iter().map(|reading| self.circuit(reading)).collect();
        let receiver = self.spec.receiver_noise_electrons / self.electrons;
        for tile in &mut self.tiles {
            for table in &mut tile.tables {
                table.set_floor(&self.spec, receiver);
            }
        }
    }

    fn circuit(&self, reading: &Reading) -> Circuit {
        let spec = &self.spec;
        let is_single = reading.polarity != Polarity::Balanced || spec.encoding.is_weight_offset();
        let is_unipolar = is_unipolar(spec, reading);
        let adc = spec.adc_bits.map(|b| Adc::new(b, 1.0, spec.adc_levels, is_unipolar));
        let shot = if spec.is_shot_noise_on { 1.0 / self.electrons } else { 0.0 };
        let receiver = spec.receiver_noise_electrons / self.electrons;
        let has_enob = spec.adc_enob.zip(spec.adc_bits).is_some_and(|(e, b)| e < f64::from(b));
        let has_rin = spec.rin_rms > 0.0 && !spec.is_rin_common;
        let [left, right] = spec.crosstalk;
        let stays = if spec.is_crosstalk_conserving { 1.0 - left - right } else { 1.0 };
        Circuit {
            noise: Noise {
                electrons: self.electrons,
                shot,
                is_on: shot > 0.0
                    || receiver > 0.0
                    || spec.readout_noise > 0.0
                    || has_enob
                    || has_rin
                    || spec.pixel_noise != PixelNoise::Off,
                common_rin: if spec.is_rin_common { spec.rin_rms } else { 0.0 },
                poisson_below: spec.poisson_below / self.electrons,
            },
            crosstalk: (left > 0.0 || right > 0.0).then_some([left, stays, right]),
            inter_symbol: spec.inter_symbol_frac,
            saturation: spec.saturation.unwrap_or(f64::INFINITY),
            codes: adc.map(|adc| [adc.low, adc.high]),
            order: spec.order,
            rounding: spec.rounding,
            is_single,
            is_known_light_read: matches!(
                spec.encoding,
                Encoding::OffsetInputBalanced | Encoding::OffsetBothRaw
            ),
            has_static_offsets: spec.rail_ratio_sigma > 0.0
                || spec.detector_offset_sigma > 0.0
                || spec.encoding == Encoding::OffsetBoth,
        }
    }

    /// Number of mask loads along the inputs.
    pub fn k_tiles(&self) -> usize {
        self.k_edges.len() - 1
    }

    /// Number of mask loads along the outputs.
    pub fn n_tiles(&self) -> usize {
        self.n_edges.len() - 1
    }

    /// Masks that one tile takes, one a weight slice.
    pub fn masks_per_tile(&self) -> u32 {
        slices(self.spec.weight_levels(), self.spec.mask_bits)
    }

    /// Mean transmission of a mask, dark light not counted.
    pub fn mean_transmission(&self) -> f64 {
        self.mean_light
    }

    /// Smallest and largest converter step of any column, in units of light; 0 when ideal.
    pub fn step_range(&self) -> [f64; 2] {
        if self.spec.adc_bits.is_none() {
            return [0.0; 2];
        }
        let mut range = [f64::INFINITY, 0.0_f64];
        for table in self.tiles.iter().flat_map(|tile| &tile.tables) {
            let steps: Vec<f64> = match table {
                Tables::Integer(c) => c.per_step.iter().map(|v| 1.0 / v.wide()).collect(),
                Tables::Real(c) => c.per_step.iter().map(|v| 1.0 / v).collect(),
            };
            for step in steps {
                range = [range[0].min(step), range[1].max(step)];
            }
        }
        range
    }

    /// Returns the effective mask of a weight slice of `w`, `(n, k)` row by row, in ±1.
    ///
    /// # Errors
    /// [`Error::Shape`] when `w` is not the compiled matrix's shape.
    pub fn effective_mask(
        &self,
        w: &[f32],
        shape: [usize; 2],
        slice: u32,
    ) -> Result<Vec<f64>, Error> {
        if shape != [self.n, self.k] {
            let expected = format!("({}, {})", self.n, self.k);
            return Err(Error::shape("w", format!("({}, {})", shape[0], shape[1]), expected));
        }
        if slice >= self.masks_per_tile() {
            let allowed = format!("below {}", self.masks_per_tile());
            return Err(Error::range("weight_slice", slice, allowed));
        }
        check_weights(w, self.n, self.k)?;
        let scales = Scales::new(w, self.n, self.k, &self.spec, &self.k_edges);
        let grid = self.path.grid();
        let mut all = vec![0.0; w.len()];
        for (index, tile) in self.tiles.iter().enumerate() {
            let (inputs, outputs) = (tile.inputs.clone(), tile.outputs.clone());
            let kt = index / self.n_tiles();
            let part = Part { layer: self, w, scales: &scales, kt, inputs, outputs };
            let written = part.written(slice);
            for (column, row) in written.effective.chunks_exact(tile.inputs.len()).enumerate() {
                let at = (tile.outputs.start + column) * self.k + tile.inputs.start;
                for (place, value) in all[at..].iter_mut().zip(row) {
                    *place = match self.path {
                        Path::Real(_) => *value,
                        _ => nearest_even(*value).clamp(-grid.top, grid.top) / grid.steps,
                    };
                }
            }
        }
        Ok(all)
    }

    /// Memory of the packed weights [byte].
    pub fn bytes(&self) -> usize {
        self.tiles.iter().map(Tile::bytes).sum()
    }
}

impl Tile {
    /// Unit of a light sum, the inputs' unit not included.
    pub(crate) fn light_unit(&self, reading: &Reading) -> f64 {
        match &self.light[reading.weight_slice as usize] {
            LightMask::Exact { unit, .. } => *unit,
            LightMask::None | LightMask::Grouped { .. } | LightMask::Real(_) => 1.0,
        }
    }

    fn bytes(&self) -> usize {
        let masks = self.masks.iter().map(|mask| match &**mask {
            SignalMask::Eight(m) => m.bytes(),
            SignalMask::Sixteen(m) => m.bytes(),
            SignalMask::Real(m) => m.bytes(),
        });
        let light = self.light.iter().map(|light| match light {
            LightMask::None => 0,
            LightMask::Exact { mask, .. } => mask.bytes(),
            LightMask::Grouped { open, mask, .. } => 4 * open.len() + mask.bytes(),
            LightMask::Real(mask) => mask.bytes(),
        });
        masks.chain(light).chain(self.noise.iter().map(PackedF32::bytes)).sum()
    }
}

fn check_weights(w: &[f32], n: usize, k: usize) -> Result<(), Error> {
    if n == 0 || k == 0 {
        return Err(Error::shape("w", format!("({n}, {k})"), "at least one output and one input"));
    }
    if n.checked_mul(k).is_none_or(|size| size > MAX_WEIGHTS) {
        return Err(Error::range(
            "w",
            format!("{n} × {k}"),
            format!("at most {MAX_WEIGHTS} weights"),
        ));
    }
    if w.len() != n * k {
        return Err(Error::shape("w", format!("({},)", w.len()), format!("({n}, {k})")));
    }
    if let Some(at) = w.iter().position(|v| !v.is_finite()) {
        return Err(Error::range(format!("w, row {}", at / k), w[at], "finite numbers"));
    }
    Ok(())
}

impl Layer {
    /// Largest stored operand of a reading, and the stored value of zero.
    pub(crate) fn operand_range(&self, reading: &Reading) -> (i32, f64) {
        let is_signed = matches!(reading.operand, Operand::Signed | Operand::Offset);
        let x_max = if is_signed || self.spec.encoding.is_unsigned() { 255 } else { 127 };
        let zero = if is_signed && self.has_byte_masks(x_max) { 128.0 } else { 0.0 };
        (x_max, zero)
    }

    /// Whether the signal of a reading is summed from bytes.
    pub(crate) fn has_bytes(&self, reading: &Reading) -> bool {
        self.has_byte_masks(self.operand_range(reading).0)
    }

    /// Whether the light of tiles of so many inputs is grouped.
    pub(crate) fn is_grouped(&self, inputs: usize) -> bool {
        self.spec.variance == Variance::Grouped
            && inputs >= LEAST_INPUTS
            && !matches!(self.path, Path::Real(_))
            && self.readings.iter().any(|reading| is_light_summed(&self.spec, reading))
    }

    /// Places for the statistics of light, one a weight slice, where tiles of `inputs` need them.
    fn light_samples(&self, inputs: usize) -> Vec<Sample> {
        let count = if self.is_grouped(inputs) { self.masks_per_tile() } else { 0 };
        (0..count).map(|_| Sample::new(self.n, inputs)).collect()
    }

    /// Whether inputs are sent in slices.
    pub(crate) fn is_input_sliced(&self) -> bool {
        slices(self.spec.input_levels(), self.spec.input_slice_bits) > 1
    }

    /// Whether signals are summed from bytes; else from words of the same value.
    pub(crate) fn has_byte_masks(&self, x_max: i32) -> bool {
        let Path::Narrow(grid) = self.path else { return false };
        let top = if self.spec.has_fine_mask() { grid.top } else { grid.steps };
        #[expect(clippy::cast_possible_truncation, reason = "at most 127")]
        let top = top as i32;
        self.isa.has_room8(x_max, top)
    }
}

/// Whether a reading's converter starts at zero.
pub(crate) fn is_unipolar(spec: &Spec, reading: &Reading) -> bool {
    reading.polarity != Polarity::Balanced || spec.encoding == Encoding::OffsetBothRaw
}

/// Whether a reading's light needs a sum of its own.
pub(crate) fn is_light_summed(spec: &Spec, reading: &Reading) -> bool {
    let is_asked = spec.is_light_needed();
    is_asked && reading.polarity == Polarity::Balanced && !spec.encoding.is_weight_offset()
}

impl Spec {
    /// Whether any effect depends on the total light. The ledger's photons do whenever there is a
    /// light budget.
    pub(crate) fn is_light_needed(&self) -> bool {
        let has_budget = self.electrons_per_mac.is_some() || self.electrons_full_scale.is_some();
        has_budget || self.rail_ratio_sigma > 0.0 || self.saturation.is_some()
    }
}
