//! Vectors past masks: blocks of tokens, tile after tile, with the counters of the ledger.
//!
//! A worker takes a block of tokens through all tiles: convert, sum, read, accumulate. Nothing it
//! computes depends on how tokens were cut into blocks: noise is keyed by place, sums are exact or
//! in fixed order, and the counters of blocks are added in their order.

use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::{IndexedParallelIterator, ParallelIterator, ParallelSliceMut};

use crate::error::Error;
use crate::optics::cycle::{LightSums, Reading, Scratch, Vector};
use crate::optics::encode::{Encoding, slice_share};
use crate::optics::energy::Counts;
use crate::optics::kernel::{Out, PANEL};
use crate::optics::lane::{Lane, Sent, Totals};
use crate::optics::lane_integer::IntegerLane;
use crate::optics::lane_real::RealLane;
use crate::optics::layer::{Layer, LightMask, Tile, is_light_summed};
use crate::optics::noise::Place;
use crate::optics::plan::Path;
use crate::optics::real::Real;

/// Tokens of one block.
const BLOCK: usize = 64;

/// What a run is keyed by and how it may be stopped.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// Seed of the noise.
    pub seed: u64,
    /// Number of the layer in the model.
    pub layer: u64,
    /// Number of the first token in its stream.
    pub first_token: u64,
    /// Threads to use; 0 takes all.
    pub threads: usize,
    /// Polled between blocks.
    pub cancel: &'a AtomicBool,
}

/// Computes `x · wᵀ` through the optics into `y`, `(tokens, n)`.
///
/// `x` is `(tokens, k)` row by row.
///
/// # Errors
/// [`Error::Shape`] when sizes disagree, [`Error::Range`] when an input is not finite,
/// [`Error::Cancelled`] when the flag was raised; `y` is then unspecified.
pub fn matmul(layer: &Layer, x: &[f32], y: &mut [f32], run: &Run<'_>) -> Result<Counts, Error> {
    let tokens = x.len() / layer.k;
    if x.len() != tokens * layer.k {
        return Err(Error::shape("x", format!("({},)", x.len()), format!("(tokens, {})", layer.k)));
    }
    if y.len() != tokens * layer.n {
        let expected = format!("({tokens}, {})", layer.n);
        return Err(Error::shape("out", format!("({},)", y.len()), expected));
    }
    check_finite(x, layer.k)?;
    match layer.path {
        Path::Real(_) => blocks::<RealLane>(layer, x, y, run),
        Path::Narrow(_) | Path::Wide(_) => blocks::<IntegerLane>(layer, x, y, run),
    }
}

fn check_finite(x: &[f32], k: usize) -> Result<(), Error> {
    // Magnitudes order like their bits; infinity is the first that is not finite.
    let largest = |row: &[f32]| row.iter().map(|v| v.to_bits() & 0x7FFF_FFFF).max().unwrap_or(0);
    match x.chunks_exact(k).position(|row| largest(row) >= 0x7F80_0000) {
        Some(row) => {
            Err(Error::range(format!("x, row {row}"), "NaN or infinite", "finite numbers"))
        }
        None => Ok(()),
    }
}

/// What a probe sees: the analog signal of one row before noise.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) tile: usize,
    pub(crate) reading: usize,
    pub(crate) row: usize,
    pub(crate) signal: Vec<f64>,
}

fn blocks<L: Lane>(
    layer: &Layer,
    x: &[f32],
    y: &mut [f32],
    run: &Run<'_>,
) -> Result<Counts, Error> {
    let (k, n) = (layer.k, layer.n);
    let tokens = x.len() / k;
    if tokens == 0 {
        return Ok(Counts::default());
    }
    let threads = if run.threads == 0 {
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
    } else {
        run.threads
    };
    // Small batches are cut finer so that every thread has work.
    let block = tokens.div_ceil(threads).clamp(1, BLOCK);
    let one = |worker: &mut Worker<L>, index: usize, y: &mut [f32]| {
        if run.cancel.load(Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        let first = index * block;
        let rows = y.len() / n;
        Ok(worker.block(layer, x, first..first + rows, y, run, &mut |_| {}))
    };
    let results: Vec<Result<Counts, Error>> = if threads == 1 || tokens <= block {
        let mut worker = Worker::<L>::default();
        y.chunks_mut(block * n).enumerate().map(|(i, y)| one(&mut worker, i, y)).collect()
    } else {
        pool(threads)?.install(|| {
            y.par_chunks_mut(block * n)
                .enumerate()
                .map_init(Worker::<L>::default, |worker, (i, y)| one(worker, i, y))
                .collect()
        })
    };
    let mut counts = Counts::default();
    for result in results {
        counts.add(&result?);
    }
    counts.reloads = u64::from(layer.masks_per_tile()) * layer.tiles.len() as u64;
    Ok(counts)
}

/// Returns the pool of so many threads; pools are kept, because threads are slow to start.
fn pool(threads: usize) -> Result<std::sync::Arc<rayon::ThreadPool>, Error> {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex, PoisonError};
    static POOLS: Mutex<BTreeMap<usize, Arc<rayon::ThreadPool>>> = Mutex::new(BTreeMap::new());
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pool) = pools.get(&threads) {
        return Ok(Arc::clone(pool));
    }
    let built = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = built.map_err(|_| Error::range("threads", threads, "what the system can start"))?;
    Ok(Arc::clone(pools.entry(threads).or_insert(Arc::new(pool))))
}

/// Shows a probe every analog signal of `x`, without noise and conversion.
pub(crate) fn probe(layer: &Layer, x: &[f32], see: &mut dyn FnMut(Seen)) {
    let cancel = AtomicBool::new(false);
    let run = Run { seed: 0, layer: 0, first_token: 0, threads: 1, cancel: &cancel };
    let tokens = x.len() / layer.k;
    for first in (0..tokens).step_by(BLOCK) {
        let rows = first..(first + BLOCK).min(tokens);
        match layer.path {
            Path::Real(_) => {
                Worker::<RealLane>::default().block(layer, x, rows, &mut [], &run, see);
            }
            _ => {
                Worker::<IntegerLane>::default().block(layer, x, rows, &mut [], &run, see);
            }
        }
    }
}

/// Memory of one thread: independent of the number of tokens.
#[derive(Debug, Default)]
struct Worker<L: Lane> {
    sent: Sent,
    lane: L,
    scratch: Scratch<L::R>,
    signal: Vec<L::S>,
    light: Vec<L::S>,
    extra: Vec<L::S>,
}

impl<L: Lane> Worker<L> {
    /// Takes `tokens` of `x` through every tile. An empty `y` is a probe.
    fn block(
        &mut self,
        layer: &Layer,
        x: &[f32],
        tokens: std::ops::Range<usize>,
        y: &mut [f32],
        run: &Run<'_>,
        see: &mut dyn FnMut(Seen),
    ) -> Counts {
        let mut counts = Counts::default();
        y.fill(0.0);
        // The symbol before the block is seen again where it leaves a trace.
        let halo = usize::from(layer.spec.inter_symbol_frac > 0.0 && tokens.start > 0);
        let start = tokens.start - halo;
        let rows = tokens.end - start;
        for (kt, edge) in layer.k_edges.windows(2).enumerate() {
            let inputs = edge[1] - edge[0];
            let block = &x[start * layer.k + edge[0]..];
            self.sent.convert(layer, block, layer.k, rows, inputs);
            counts.dac_clips += self.sent.clips;
            counts.dac_values += ((rows - halo) * inputs) as u64;
            let mut last = None;
            for (index, reading) in layer.readings.iter().enumerate() {
                let key = (reading.operand, reading.input_slice);
                if last != Some(key) {
                    let (levels, _) = slice_share(
                        layer.spec.input_levels(),
                        layer.spec.input_slice_bits,
                        reading.input_slice,
                    );
                    let light = is_light_summed(&layer.spec, reading);
                    self.lane.send(layer, &self.sent, reading, levels, light);
                    last = Some(key);
                }
                for nt in 0..layer.n_tiles() {
                    let tile = &layer.tiles[kt * layer.n_tiles() + nt];
                    let at = At { layer, tile, kt, nt, index, halo, start };
                    self.sum(&at, rows);
                    counts.add(&self.read(&at, rows, y, run, see));
                }
            }
        }
        counts
    }

    /// The lens: sums of one tile and reading.
    fn sum(&mut self, at: &At<'_>, rows: usize) {
        let (layer, tile) = (at.layer, at.tile);
        let reading = &layer.readings[at.index];
        let panels = tile.outputs.len().div_ceil(PANEL);
        let ldo = panels * PANEL;
        let slice = reading.weight_slice as usize;
        let is_lit = is_light_summed(&layer.spec, reading);
        if is_lit
            && at.nt == 0
            && let Some(grouping) = layer.groupings[at.kt].get(slice)
        {
            self.lane.split_light(layer, grouping);
        }
        self.signal.resize(rows * ldo, L::S::default());
        if is_lit {
            self.light.resize(rows * ldo, L::S::default());
        }
        for panel in 0..panels {
            if let (true, LightMask::Grouped { mask, .. }) = (is_lit, &tile.light[slice]) {
                mask.fetch(layer.isa, panel);
            }
            let data = &mut self.signal[panel * PANEL..];
            self.lane.sum_signal(layer.isa, &tile.masks[at.index], panel, Out { data, ldo });
            if is_lit {
                let data = &mut self.light[panel * PANEL..];
                self.lane.sum_light(layer.isa, &tile.light[slice], panel, Out { data, ldo });
            }
        }
        if let Some(noise) = tile.noise.get(slice) {
            self.extra.resize(rows * ldo, L::S::default());
            for panel in 0..panels {
                let data = &mut self.extra[panel * PANEL..];
                self.lane.sum_noise(layer.isa, noise, panel, Out { data, ldo });
            }
        }
    }

    /// The detectors: every row of sums becomes numbers in `y`.
    fn read(
        &mut self,
        at: &At<'_>,
        rows: usize,
        y: &mut [f32],
        run: &Run<'_>,
        see: &mut dyn FnMut(Seen),
    ) -> Counts {
        let (layer, tile) = (at.layer, at.tile);
        let reading = &layer.readings[at.index];
        let width = tile.outputs.len();
        let ldo = width.div_ceil(PANEL) * PANEL;
        let columns = L::columns(tile, at.index);
        let is_lit = is_light_summed(&layer.spec, reading);
        let mut counts = Counts::default();
        self.scratch.reset(width);
        for row in 0..rows {
            let is_halo = row < at.halo;
            let totals = self.lane.totals()[row];
            let token = run.first_token + (at.start + row) as u64;
            let vector = at.vector::<L::R>(&totals, self.sent.scales[row], token, is_lit);
            let mut is_whole = false;
            let sums = if is_lit { &self.light[row * ldo..][..width] } else { &[] };
            // A halo row has no place in `y`; it is only carried into the next.
            let first = row.saturating_sub(at.halo) * layer.n + tile.outputs.start;
            let taken = Reading {
                sums: &self.signal[row * ldo..][..width],
                light: match &tile.light[reading.weight_slice as usize] {
                    _ if !is_lit => LightSums::Signal,
                    LightMask::Grouped { open, unit, .. } => {
                        let split = self.lane.light_split(row);
                        is_whole = split.is_whole;
                        LightSums::Grouped {
                            open,
                            level: split.level,
                            unit: f32::of(*unit) * f32::from(split.step),
                            few: (split.last > split.first).then_some(sums),
                        }
                    }
                    _ => LightSums::Summed(sums),
                },
                columns,
                vector,
                circuit: &layer.circuits[at.index],
                extra: (!tile.noise.is_empty()).then(|| &self.extra[row * ldo..][..width]),
                place: at.place(run, token),
                scratch: &mut self.scratch,
                y: if is_halo || y.is_empty() { None } else { Some(&mut y[first..first + width]) },
            };
            let count = layer.isa.run(taken);
            if is_halo {
                continue;
            }
            if y.is_empty() {
                let signal = self.scratch.signal()[..width].iter().map(|v| v.wide()).collect();
                let row = at.start + row;
                let tile = at.kt * layer.n_tiles() + at.nt;
                see(Seen { tile, reading: at.index, row, signal });
            }
            counts.adc_clips += count.clipped;
            counts.light += count.light;
            counts.carrying += count.light - totals.lit * tile.dark[at.index] * vector.drift.wide();
            counts.signal_sq += count.signal_sq;
            counts.noise_sq += count.variance;
            counts.adc_reads += width as u64;
            if reading.is_new_cycle {
                counts.cycles += 1;
                counts.dac_writes += tile.inputs.len() as u64;
                counts.accumulations += width as u64;
                counts.sent += totals.lit;
            }
            counts.uneven_vectors += u64::from(is_whole);
        }
        counts
    }
}

/// Where a worker is.
struct At<'a> {
    layer: &'a Layer,
    tile: &'a Tile,
    kt: usize,
    nt: usize,
    index: usize,
    halo: usize,
    start: usize,
}

impl At<'_> {
    fn place(&self, run: &Run<'_>, token: u64) -> Place {
        let tile = (self.kt * self.layer.n_tiles() + self.nt) as u64;
        let reading = tile * self.layer.readings.len() as u64 + self.index as u64;
        Place { seed: run.seed, layer: run.layer, token, reading }
    }

    fn vector<R: Real>(&self, totals: &Totals, scale: f64, token: u64, is_lit: bool) -> Vector<R> {
        let spec = &self.layer.spec;
        let reading = &self.layer.readings[self.index];
        let since = (token % spec.reload_every_tok) as f64;
        let known = if spec.encoding.is_weight_offset() {
            0.25 * (totals.signed + self.tile.inputs.len() as f64)
        } else {
            0.0
        };
        let light = if is_lit { totals.light_unit * self.tile.light_unit(reading) } else { 0.0 };
        let square = match spec.encoding {
            Encoding::OffsetInputBalanced => 0.25,
            Encoding::OffsetBoth | Encoding::OffsetBothRaw => 0.0625,
            _ => 1.0,
        };
        let rin = if spec.is_rin_common { 0.0 } else { spec.rin_rms * spec.rin_rms };
        Vector {
            signal: R::of(totals.signal_unit),
            light: R::of(light),
            lit: R::of(totals.lit),
            square: R::of(rin * totals.square * square),
            known_light: R::of(known),
            drift: R::of((1.0 - spec.drift_per_tok * since).max(0.0)),
            scale: R::of(scale),
        }
    }
}
