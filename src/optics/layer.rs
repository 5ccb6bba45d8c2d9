//! A weight matrix on masks: quantised, distorted by its specimen, packed for the kernels.

use crate::error::Error;
use crate::optics::convert::{Adc, nearest_even};
use crate::optics::cycle::{Circuit, Columns};
use crate::optics::encode::{Encoding, Operand, Polarity, Reading, readings, slice_share, slices};
use crate::optics::kernel::{Isa, Packed8, Packed16, PackedF32};
use crate::optics::mask::{Grid, Specimen, seen};
use crate::optics::noise::Noise;
use crate::optics::real::Real;
use crate::optics::spec::{AdcRange, PixelNoise, RangePer, Spec, Variance, WeightScale};
use crate::optics::tile::{TileSplit, edges};

/// Most weights of one matrix: beyond it an allocation is refused before it is tried.
const MAX_WEIGHTS: usize = 1 << 31;

/// How a setting's sums are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Path {
    /// 8-bit mask on this grid.
    Narrow(Grid),
    /// 16-bit mask on this grid.
    Wide(Grid),
    /// Real mask, sums in f64.
    Real(Grid),
}

impl Path {
    /// Returns the path's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Narrow(_) => "narrow",
            Self::Wide(_) => "wide",
            Self::Real(_) => "real",
        }
    }
    fn grid(self) -> Grid {
        match self {
            Self::Narrow(grid) | Self::Wide(grid) | Self::Real(grid) => grid,
        }
    }
}

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
    /// Input by input, and summed over groups of four with the unit of that.
    Integer { exact: Packed8, unit: f64, grouped: Option<(Packed8, f64)>, unevenness: f64 },
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
    pub(crate) inputs: std::ops::Range<usize>,
    /// Outputs it covers.
    pub(crate) outputs: std::ops::Range<usize>,
    /// By reading.
    pub(crate) masks: Vec<std::sync::Arc<SignalMask>>,
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
    /// Standard deviation of a column's transmissions over their mean.
    pub(crate) unevenness: f64,
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
        let crest = 1.0 / harmonic_peak(width);
        let readings = readings(&spec);
        let mut layer = Self {
            k,
            n,
            path,
            reason,
            isa,
            readings,
            mean_input: (2.0 / std::f64::consts::PI).sqrt() * crest,
            rms_input: crest,
            electrons: f64::INFINITY,
            k_edges,
            n_edges,
            tiles: Vec::new(),
            circuits: Vec::new(),
            mean_light: 0.0,
            unevenness: 0.0,
            spec,
        };
        let mut transmission = 0.0;
        for (kt, k_edge) in layer.k_edges.windows(2).enumerate() {
            for n_edge in layer.n_edges.windows(2) {
                let part = Part {
                    layer: &layer,
                    w,
                    scales: &scales,
                    kt,
                    inputs: k_edge[0]..k_edge[1],
                    outputs: n_edge[0]..n_edge[1],
                };
                let (tile, open) = part.tile();
                transmission += open;
                layer.tiles.push(tile);
            }
        }
        let uneven = layer.tiles.iter().flat_map(|tile| &tile.light).map(|light| match light {
            LightMask::Integer { unevenness, .. } => *unevenness,
            _ => 0.0,
        });
        layer.unevenness = uneven.fold(0.0, f64::max).sqrt();
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
    fn bytes(&self) -> usize {
        let masks = self.masks.iter().map(|mask| match &**mask {
            SignalMask::Eight(m) => m.bytes(),
            SignalMask::Sixteen(m) => m.bytes(),
            SignalMask::Real(m) => m.bytes(),
        });
        let light = self.light.iter().map(|light| match light {
            LightMask::None => 0,
            LightMask::Integer { exact, grouped, .. } => {
                exact.bytes() + grouped.as_ref().map_or(0, |(mask, _)| mask.bytes())
            }
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

/// Decides how sums are made, and says why.
fn plan(spec: &Spec, column_sum: f64, width: usize) -> (Path, String) {
    let real = |why: &str| (Path::Real(Grid::real(spec)), format!("sums in f64: {why}"));
    let (Some(levels), Some(inputs)) = (spec.weight_levels(), spec.input_levels()) else {
        return real("inputs or weights are continuous (bits=None)");
    };
    if spec.source_compression.abs() > 0.0 {
        return real("the sources compress, so that light is no whole number of steps");
    }
    if spec.pixel_noise != PixelNoise::Off {
        return real("pixels draw noise of their own");
    }
    let (levels, _) = slice_share(Some(levels), spec.mask_bits, 0);
    let (inputs, _) = slice_share(Some(inputs), spec.input_slice_bits, 0);
    let (levels, inputs) = (levels.unwrap_or(1), inputs.unwrap_or(1));
    let fits_byte = inputs <= if spec.encoding.is_unsigned() { 255 } else { 127 };
    if fits_byte {
        if let Some(grid) = Grid::narrow(spec, levels) {
            let why = if spec.has_fine_mask() {
                format!("8-bit mask of {} steps, dithered by the pixel error", grid.steps)
            } else {
                format!("8-bit mask, one step a level ({levels})")
            };
            return (Path::Narrow(grid), why);
        }
    }
    // Six sigma bound what the pixel error can add to a sum.
    let spread = 6.0 * spec.weight_error_sigma * width as f64;
    let sum = column_sum * (1.0 + 6.0 * spec.source_gain_sigma)
        + spread
        + 2.0 * spec.stuck_pixel_frac.sqrt() * width as f64;
    let budget = (f64::from(i32::MAX) - 1.0) / (f64::from(inputs) * sum.max(1.0)) - 1.0;
    match Grid::wide(spec, levels, budget) {
        Some(grid) => {
            let why = format!(
                "16-bit mask of {} steps: {}",
                grid.steps,
                if fits_byte { "finer than 8 bits hold" } else { "inputs beyond 8 bits" }
            );
            (Path::Wide(grid), why)
        }
        None => real("sums would leave 32 bits"),
    }
}

/// Harmonic mean of the largest of `count` standard normal magnitudes: what scaling by it divides
/// by.
///
/// # Source
/// Median of the maximum, and mean and variance of a Gumbel law about it.
pub(crate) fn harmonic_peak(count: usize) -> f64 {
    if count <= 1 {
        return (2.0 / std::f64::consts::PI).sqrt();
    }
    // Solve erf(m/√2)^count = 1/2 with the tail's leading terms, by fixed iteration.
    let tail = -(0.5_f64.ln()) / count as f64;
    let mut m = (2.0 * (1.0 / tail).ln()).max(0.5).sqrt();
    for _ in 0..50 {
        let correction = 1.0 - 1.0 / (m * m) + 3.0 / m.powi(4) - 15.0 / m.powi(6);
        let right = (2.0 / std::f64::consts::PI).sqrt() * correction.max(0.2) / (tail * m);
        m = (2.0 * right.max(1.05).ln()).sqrt().max(0.6);
    }
    m + 0.2107 / m - 1.645 / m.powi(3)
}

/// What the fully open pixel stands for, by tile and column.
struct Scales {
    per_column: Vec<f64>,
    n: usize,
    levels: Option<f64>,
    k_edges: Vec<usize>,
}

impl Scales {
    fn new(w: &[f32], n: usize, k: usize, spec: &Spec, k_edges: &[usize]) -> Self {
        let peak = |row: &[f32]| row.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
        let matrix = f64::from(peak(w));
        let mut per_column = Vec::with_capacity((k_edges.len() - 1) * n);
        for edge in k_edges.windows(2) {
            let columns = w.chunks_exact(k).map(|row| f64::from(peak(&row[edge[0]..edge[1]])));
            match spec.weight_scale {
                WeightScale::Column => per_column.extend(columns),
                WeightScale::Tile => {
                    // One tile is `outputs` columns wide.
                    let all: Vec<f64> = columns.collect();
                    for part in all.chunks(spec.outputs) {
                        let top = part.iter().copied().fold(0.0, f64::max);
                        per_column.extend(std::iter::repeat_n(top, part.len()));
                    }
                }
                WeightScale::Matrix => per_column.extend(std::iter::repeat_n(matrix, n)),
                WeightScale::Fixed(scale) => per_column.extend(std::iter::repeat_n(scale, n)),
            }
        }
        Self { per_column, n, levels: spec.weight_levels().map(f64::from), k_edges: k_edges.into() }
    }

    fn of(&self, kt: usize, column: usize) -> f64 {
        self.per_column[kt * self.n + column]
    }

    /// The written level of a weight: whole where the mask has levels, else w / scale.
    fn level(&self, value: f32, scale: f64) -> f64 {
        if scale <= 0.0 {
            return 0.0;
        }
        let exact = f64::from(value) / scale;
        match self.levels {
            Some(levels) => nearest_even((exact * levels).clamp(-levels, levels)),
            None => exact,
        }
    }

    /// The largest Σ|level| of any column and tile, in units of full scale.
    fn largest_column_sum(&self, w: &[f32], k: usize) -> f64 {
        let mut largest = 0.0_f64;
        for (kt, edge) in self.k_edges.windows(2).enumerate() {
            for (column, row) in w.chunks_exact(k).enumerate() {
                let sum: f64 = row[edge[0]..edge[1]].iter().map(|v| f64::from(v.abs())).sum();
                let scale = self.of(kt, column);
                // Rounding may add half a level to each weight.
                let rounding = self.levels.map_or(0.0, |l| 0.5 / l) * (edge[1] - edge[0]) as f64;
                if scale > 0.0 {
                    largest = largest.max((sum / scale).min((edge[1] - edge[0]) as f64) + rounding);
                }
            }
        }
        largest
    }
}

/// One tile while it is built.
struct Part<'a> {
    layer: &'a Layer,
    w: &'a [f32],
    scales: &'a Scales,
    kt: usize,
    inputs: std::ops::Range<usize>,
    outputs: std::ops::Range<usize>,
}

/// One weight slice of a tile: written and effective transmissions, `(columns, inputs)`.
struct Written {
    /// In ±1.
    nominal: Vec<f64>,
    /// What light meets, in steps of the grid.
    effective: Vec<f64>,
    /// Levels of the slice; `None` is continuous.
    levels: Option<i32>,
}

impl Part<'_> {
    fn size(&self) -> (usize, usize) {
        (self.outputs.len(), self.inputs.len())
    }

    /// Builds the tile; also returns the sum of its transmissions.
    fn tile(&self) -> (Tile, f64) {
        let spec = &self.layer.spec;
        let slices = self.layer.masks_per_tile();
        let written: Vec<Written> = (0..slices).map(|slice| self.written(slice)).collect();
        let open: f64 = self.whole_transmission();
        let light = written.iter().map(|slice| self.light(slice)).collect();
        let noise = match spec.pixel_noise {
            PixelNoise::Off => Vec::new(),
            kind => written.iter().map(|slice| self.pixel_noise(slice, kind)).collect(),
        };
        let (mut masks, mut tables, mut dark) = (Vec::new(), Vec::new(), Vec::new());
        let mut known: Vec<(u32, Polarity, std::sync::Arc<SignalMask>)> = Vec::new();
        for reading in &self.layer.readings {
            let slice = &written[reading.weight_slice as usize];
            let table = self.columns(reading, slice);
            dark.push(table.dark.iter().sum());
            let shared = known.iter().find(|(slice, polarity, _)| {
                *slice == reading.weight_slice && *polarity == reading.polarity
            });
            let mask = if let Some((.., mask)) = shared {
                std::sync::Arc::clone(mask)
            } else {
                let mask = std::sync::Arc::new(self.mask(reading, slice));
                known.push((reading.weight_slice, reading.polarity, std::sync::Arc::clone(&mask)));
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

    fn written(&self, slice: u32) -> Written {
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
    fn unit(&self, slice: &Written, column: usize) -> f64 {
        let spec = &self.layer.spec;
        if !matches!(self.layer.path, Path::Real(_)) {
            return 1.0 / self.layer.path.grid().steps;
        }
        if spec.has_fine_mask() || spec.dead_source_frac > 0.0 || self.has_noise_shift() {
            return 1.0;
        }
        match slice.levels {
            Some(levels) => 1.0 / f64::from(levels),
            None => {
                let scale = self.scales.of(self.kt, self.outputs.start + column);
                if scale > 0.0 { 1.0 / scale } else { 0.0 }
            }
        }
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

    fn light(&self, slice: &Written) -> LightMask {
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
        let steps = light_steps(spec, slice.levels);
        let exact: Vec<i8> = open.iter().map(|v| whole8(nearest_even(v * steps))).collect();
        let x_max =
            if spec.encoding.is_offset() || spec.encoding.is_unsigned() { 255 } else { 127 };
        let grouped = (spec.variance == Variance::Grouped).then(|| {
            let groups = inputs.div_ceil(4);
            let top = (4.0 * steps).min(63.0);
            let mut sums = vec![0_i8; slice.nominal.len() / inputs * groups];
            for (column, row) in open.chunks_exact(inputs).enumerate() {
                for (group, four) in row.chunks(4).enumerate() {
                    // The mean over the inputs there are: the last group may be short.
                    let mean = four.iter().sum::<f64>() / four.len() as f64;
                    sums[column * groups + group] = whole8(nearest_even(mean * top));
                }
            }
            (Packed8::new(&sums, groups, 255), 1.0 / top)
        });
        let mean = open.iter().sum::<f64>() / open.len() as f64;
        let square = open.iter().map(|v| v * v).sum::<f64>() / open.len() as f64;
        let unevenness = if mean > 0.0 { (square / (mean * mean) - 1.0).max(0.0) } else { 0.0 };
        let exact = Packed8::new(&exact, inputs, x_max);
        LightMask::Integer { exact, unit: 1.0 / steps, grouped, unevenness }
    }

    fn columns(&self, reading: &Reading, slice: &Written) -> Columns<f64, f64> {
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
        self.set_ranges(reading, &specimen, &mut c, rms_all);
        c
    }

    /// Turns expected means and spreads into converter steps.
    fn set_ranges(
        &self,
        reading: &Reading,
        specimen: &Specimen<'_>,
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
    fn narrow(&self) -> Columns<f32, i32> {
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
    fn set_floor(&mut self, spec: &Spec, receiver: f64) {
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

    /// Whether light is summed over groups of four.
    pub(crate) fn is_grouped(&self) -> bool {
        self.spec.variance == Variance::Grouped
    }

    /// Whether inputs are sent in slices.
    pub(crate) fn is_input_sliced(&self) -> bool {
        slices(self.spec.input_levels(), self.spec.input_slice_bits) > 1
    }

    /// Spread of a vector's light inside groups, over its sum, that makes a relative error `limit`.
    pub(crate) fn uneven_limit(&self, limit: f64) -> f64 {
        limit / self.unevenness.max(1e-9)
    }

    /// Unit of a light sum, the inputs' unit not included.
    pub(crate) fn light_unit(&self, tile: &Tile, reading: &Reading, is_uneven: bool) -> f64 {
        match &tile.light[reading.weight_slice as usize] {
            LightMask::Integer { grouped: Some((_, unit)), .. } if !is_uneven => *unit,
            LightMask::Integer { unit, .. } => *unit,
            LightMask::None | LightMask::Real(_) => 1.0,
        }
    }

    /// Whether signals are summed from bytes; else from words of the same value.
    fn has_byte_masks(&self, x_max: i32) -> bool {
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

/// Steps of full scale in which light is summed: what 16-bit pair sums hold on every machine.
pub(crate) fn light_steps(spec: &Spec, levels: Option<i32>) -> f64 {
    let top = if spec.encoding.is_offset() || spec.encoding.is_unsigned() { 63 } else { 127 };
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
fn erfc(x: f64) -> f64 {
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
