//! The ledger: what one run did, counted where it was done.
//!
//! The counters are raised in the driver's loops (`run.rs`). [`expected`] is the closed form they
//! must equal; joules are counts times the energies of the engine's parts, which the caller knows.

use crate::optics::layer::Layer;

/// What happened in one product.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counts {
    /// Optical cycles.
    pub cycles: u64,
    /// Masks written.
    pub reloads: u64,
    /// Inputs converted to light.
    pub dac_writes: u64,
    /// Readings converted to numbers.
    pub adc_reads: u64,
    /// Sums given to the accumulators.
    pub accumulations: u64,
    /// Inputs beyond full scale.
    pub dac_clips: u64,
    /// Inputs that could have clipped (each vector and tile once).
    pub dac_values: u64,
    /// Readings beyond the last code.
    pub adc_clips: u64,
    /// Σ of the light the sources sent, in full-scale sources.
    pub sent: f64,
    /// Σ of the light on detectors, in units of a full-scale source through an open pixel.
    pub light: f64,
    /// The part of it that carries signal (no dark light).
    pub carrying: f64,
    /// Σ of the squared analog signal.
    pub signal_sq: f64,
    /// Σ of the analog noise variance.
    pub noise_sq: f64,
    /// Vectors and tiles whose light was summed input by input although groups were asked for.
    pub uneven_vectors: u64,
}

impl Counts {
    /// Adds another part of the same run.
    pub fn add(&mut self, other: &Self) {
        self.cycles += other.cycles;
        self.reloads += other.reloads;
        self.dac_writes += other.dac_writes;
        self.adc_reads += other.adc_reads;
        self.accumulations += other.accumulations;
        self.dac_clips += other.dac_clips;
        self.dac_values += other.dac_values;
        self.adc_clips += other.adc_clips;
        self.sent += other.sent;
        self.light += other.light;
        self.carrying += other.carrying;
        self.signal_sq += other.signal_sq;
        self.noise_sq += other.noise_sq;
        self.uneven_vectors += other.uneven_vectors;
    }
}

/// Returns (cycles, reloads, DAC writes, ADC reads) of `tokens` vectors from the layer's shape.
pub fn expected(layer: &Layer, tokens: u64) -> [u64; 4] {
    let cycles = layer.readings.iter().filter(|r| r.is_new_cycle).count() as u64;
    let readings = layer.readings.len() as u64;
    let (k_tiles, n_tiles) = (layer.k_tiles() as u64, layer.n_tiles() as u64);
    let masks = u64::from(layer.masks_per_tile());
    [
        tokens * cycles * k_tiles * n_tiles,
        if tokens == 0 { 0 } else { masks * k_tiles * n_tiles },
        tokens * cycles * n_tiles * layer.k as u64,
        tokens * readings * k_tiles * layer.n as u64,
    ]
}
