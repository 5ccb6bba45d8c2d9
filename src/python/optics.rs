//! `_core.OpticalLayer`: compile a matrix onto masks, send vectors past it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use numpy::{PyArray2, PyReadonlyArray2, PyReadwriteArray2};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyDictMethods};

use crate::error::Error;
use crate::optics::convert::{AdcLevels, Order, Rounding};
use crate::optics::encode::Encoding;
use crate::optics::spec::{
    AdcRange, InputScale, PixelNoise, RangePer, Spec, Variance, WeightScale,
};
use crate::optics::tile::TileSplit;
use crate::optics::{Counts, Isa, Layer, Run, energy, matmul};
use crate::python::arrays::{matrix, matrix_mut};

/// How often a running product looks for Ctrl-C.
const POLL: Duration = Duration::from_millis(50);

/// A weight matrix on masks.
#[pyclass(frozen, module = "firstlight._core")]
pub(super) struct OpticalLayer {
    layer: Arc<Layer>,
}

#[pymethods]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 extracts arguments by value")]
impl OpticalLayer {
    #[new]
    #[pyo3(signature = (w, spec, *, calibration = None))]
    fn new(
        py: Python<'_>,
        w: PyReadonlyArray2<'_, f32>,
        spec: &Bound<'_, PyDict>,
        calibration: Option<PyReadonlyArray2<'_, f32>>,
    ) -> PyResult<Self> {
        let spec = spec_of(spec)?;
        let (values, [n, k]) = matrix("w", &w)?;
        let sample = calibration.as_ref().map(|c| matrix("calibration", c)).transpose()?;
        if let Some((_, [_, width])) = sample
            && width != k
        {
            let given = format!("(…, {width})");
            return Err(Error::shape("calibration", given, format!("(…, {k})")).into());
        }
        let layer = py.detach(|| -> Result<Layer, Error> {
            let layer = Layer::compile(values, n, k, spec, Isa::detect()?)?;
            match sample {
                Some((sample, _)) => layer.calibrated(values, sample),
                None => Ok(layer),
            }
        })?;
        Ok(Self { layer: Arc::new(layer) })
    }

    /// Computes `x · wᵀ` into `out`; returns the counters.
    #[pyo3(signature = (x, out, *, seed, layer, first_token, threads))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments in Python")]
    fn matmul<'py>(
        &self,
        py: Python<'py>,
        x: PyReadonlyArray2<'py, f32>,
        mut out: PyReadwriteArray2<'py, f32>,
        seed: u64,
        layer: u64,
        first_token: u64,
        threads: usize,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (values, [tokens, k]) = matrix("x", &x)?;
        if k != self.layer.k {
            let (given, expected) =
                (format!("({tokens}, {k})"), format!("(tokens, {})", self.layer.k));
            return Err(Error::shape("x", given, expected).into());
        }
        let (y, [rows, n]) = matrix_mut("out", &mut out)?;
        if rows != tokens || n != self.layer.n {
            let expected = format!("({tokens}, {})", self.layer.n);
            return Err(Error::shape("out", format!("({rows}, {n})"), expected).into());
        }
        let cancel = AtomicBool::new(false);
        let run = Run { seed, layer, first_token, threads, cancel: &cancel };
        let core = &self.layer;
        let is_short = tokens * core.k * core.n < 1 << 24;
        let counts = if is_short {
            py.detach(|| matmul(core, values, y, &run))?
        } else {
            py.detach(|| watched(|| matmul(core, values, y, &run), &cancel))?
        };
        counters(py, &counts)
    }

    /// Returns what was compiled, by name.
    fn describe<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let l = &self.layer;
        let out = PyDict::new(py);
        out.set_item("inputs", l.k)?;
        out.set_item("outputs", l.n)?;
        out.set_item("k_tiles", l.k_tiles())?;
        out.set_item("n_tiles", l.n_tiles())?;
        out.set_item("masks_per_tile", l.masks_per_tile())?;
        out.set_item("readings", l.readings.len())?;
        out.set_item("cycles_per_tile", l.readings.iter().filter(|r| r.is_new_cycle).count())?;
        out.set_item("path", l.path.name())?;
        out.set_item("reason", &l.reason)?;
        out.set_item("isa", l.isa.name())?;
        out.set_item("bytes", l.bytes())?;
        out.set_item("mean_input", l.mean_input)?;
        out.set_item("rms_input", l.rms_input)?;
        out.set_item("electrons_full_scale", l.electrons)?;
        out.set_item("mean_transmission", l.mean_transmission())?;
        let [low, high] = l.step_range();
        out.set_item("adc_step_low", low)?;
        out.set_item("adc_step_high", high)?;
        Ok(out)
    }

    /// Returns (cycles, reloads, DAC writes, ADC reads) of so many vectors by the closed form.
    fn expected_counts(&self, tokens: u64) -> [u64; 4] {
        energy::expected(&self.layer, tokens)
    }

    /// Returns the effective mask of a weight slice, `(outputs, inputs)`, in ±1.
    #[pyo3(signature = (w, *, weight_slice = 0))]
    fn effective<'py>(
        &self,
        py: Python<'py>,
        w: PyReadonlyArray2<'py, f32>,
        weight_slice: u32,
    ) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let (values, shape) = matrix("w", &w)?;
        let flat = self.layer.effective_mask(values, shape, weight_slice)?;
        let rows: Vec<Vec<f64>> = flat.chunks(self.layer.k).map(<[f64]>::to_vec).collect();
        Ok(PyArray2::from_vec2(py, &rows)?)
    }
}

/// Runs `work` beside a loop that turns Ctrl-C into the cancel flag.
fn watched<T: Send>(
    work: impl FnOnce() -> Result<T, Error> + Send,
    cancel: &AtomicBool,
) -> PyResult<T> {
    std::thread::scope(|scope| {
        let (done, wait) = channel();
        scope.spawn(move || {
            let _ = done.send(work());
        });
        let mut interrupt = None;
        loop {
            match wait.recv_timeout(POLL) {
                Ok(result) => {
                    return match interrupt {
                        Some(error) => Err(error),
                        None => Ok(result?),
                    };
                }
                Err(RecvTimeoutError::Timeout) => {
                    let signals = Python::attach(|py| -> PyResult<()> {
                        py.check_signals()?;
                        Ok(())
                    });
                    if let Err(error) = signals {
                        cancel.store(true, Ordering::Relaxed);
                        interrupt = Some(error);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Err(Error::Cancelled.into()),
            }
        }
    })
}

fn counters<'py>(py: Python<'py>, counts: &Counts) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("cycles", counts.cycles)?;
    out.set_item("reloads", counts.reloads)?;
    out.set_item("dac_writes", counts.dac_writes)?;
    out.set_item("adc_reads", counts.adc_reads)?;
    out.set_item("accumulations", counts.accumulations)?;
    out.set_item("dac_clips", counts.dac_clips)?;
    out.set_item("dac_values", counts.dac_values)?;
    out.set_item("adc_clips", counts.adc_clips)?;
    out.set_item("sent", counts.sent)?;
    out.set_item("light", counts.light)?;
    out.set_item("carrying", counts.carrying)?;
    out.set_item("signal_sq", counts.signal_sq)?;
    out.set_item("noise_sq", counts.noise_sq)?;
    out.set_item("uneven_vectors", counts.uneven_vectors)?;
    Ok(out)
}

/// Reads the names of a specification; what is absent keeps its ideal default.
fn spec_of(given: &Bound<'_, PyDict>) -> PyResult<Spec> {
    let mut spec = Spec::default();
    for (key, value) in given.iter() {
        set(&mut spec, &key.extract::<String>()?, &value)?;
    }
    Ok(spec)
}

fn set(spec: &mut Spec, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    match name {
        "inputs" => spec.inputs = value.extract()?,
        "outputs" => spec.outputs = value.extract()?,
        "activation_bits" => spec.activation_bits = value.extract()?,
        "input_slice_bits" => spec.input_slice_bits = value.extract()?,
        "weight_bits" => spec.weight_bits = value.extract()?,
        "mask_bits" => spec.mask_bits = value.extract()?,
        "adc_bits" => spec.adc_bits = value.extract()?,
        "adc_enob" => spec.adc_enob = value.extract()?,
        "electrons_per_mac" => spec.electrons_per_mac = value.extract()?,
        "electrons_full_scale" => spec.electrons_full_scale = value.extract()?,
        "shot_noise" => spec.is_shot_noise_on = value.extract()?,
        "poisson_below" => spec.poisson_below = value.extract()?,
        "receiver_noise_electrons" => spec.receiver_noise_electrons = value.extract()?,
        "readout_noise" => spec.readout_noise = value.extract()?,
        "rin_rms" => spec.rin_rms = value.extract()?,
        "rin_common" => spec.is_rin_common = value.extract()?,
        "mask_contrast_ratio" => spec.mask_contrast_ratio = value.extract()?,
        "mask_response_poly" => spec.mask_response_poly = value.extract()?,
        "mask_gamma" => spec.mask_gamma = value.extract()?,
        "weight_error_sigma" => spec.weight_error_sigma = value.extract()?,
        "stuck_pixel_frac" => spec.stuck_pixel_frac = value.extract()?,
        "dead_source_frac" => spec.dead_source_frac = value.extract()?,
        "dead_detector_frac" => spec.dead_detector_frac = value.extract()?,
        "source_gain_sigma" => spec.source_gain_sigma = value.extract()?,
        "source_compression" => spec.source_compression = value.extract()?,
        "column_gain_sigma" => spec.column_gain_sigma = value.extract()?,
        "rail_leak" => spec.rail_leak = value.extract()?,
        "rail_ratio_sigma" => spec.rail_ratio_sigma = value.extract()?,
        "detector_offset_sigma" => spec.detector_offset_sigma = value.extract()?,
        "crosstalk" => spec.crosstalk = value.extract()?,
        "crosstalk_conserving" => spec.is_crosstalk_conserving = value.extract()?,
        "saturation" => spec.saturation = value.extract()?,
        "drift_per_tok" => spec.drift_per_tok = value.extract()?,
        "reload_every_tok" => spec.reload_every_tok = value.extract()?,
        "inter_symbol_frac" => spec.inter_symbol_frac = value.extract()?,
        "engine_seed" => spec.engine_seed = value.extract()?,
        _ => set_choice(spec, name, value)?,
    }
    Ok(())
}

fn set_choice(spec: &mut Spec, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let word = || value.extract::<String>();
    match name {
        "tile_split" => spec.tile_split = TileSplit::parse(&word()?)?,
        "signed_encoding" => spec.encoding = Encoding::parse(&word()?)?,
        "input_scale" => {
            spec.input_scale = match value.extract::<f64>() {
                Ok(scale) => InputScale::Fixed(scale),
                Err(_) => one_of(name, &word()?, &[("absmax", InputScale::AbsMax)])?,
            };
        }
        "weight_scale" => {
            let all = [
                ("column", WeightScale::Column),
                ("tile", WeightScale::Tile),
                ("matrix", WeightScale::Matrix),
            ];
            spec.weight_scale = match value.extract::<f64>() {
                Ok(scale) => WeightScale::Fixed(scale),
                Err(_) => one_of(name, &word()?, &all)?,
            };
        }
        "adc_range" => spec.adc_range = AdcRange::Fixed(value.extract()?),
        "adc_range_sigma" => spec.adc_range = AdcRange::Sigma(value.extract()?),
        "adc_range_per" => {
            let all = [("column", RangePer::Column), ("tile", RangePer::Tile)];
            spec.adc_range_per = one_of(name, &word()?, &all)?;
        }
        "adc_levels" => {
            let all = [("full", AdcLevels::Full), ("symmetric", AdcLevels::Symmetric)];
            spec.adc_levels = one_of(name, &word()?, &all)?;
        }
        "clip_order" => {
            let all = [
                ("clip_then_round", Order::ClipThenRound),
                ("round_then_clip", Order::RoundThenClip),
            ];
            spec.order = one_of(name, &word()?, &all)?;
        }
        "rounding" => {
            let all =
                [("nearest_even", Rounding::NearestEven), ("half_to_zero", Rounding::HalfToZero)];
            spec.rounding = one_of(name, &word()?, &all)?;
        }
        "variance" => {
            let all = [("grouped", Variance::Grouped), ("exact", Variance::Exact)];
            spec.variance = one_of(name, &word()?, &all)?;
        }
        "pixel_noise_proportional" => spec.pixel_noise = PixelNoise::Proportional(value.extract()?),
        "pixel_noise_additive" => spec.pixel_noise = PixelNoise::Additive(value.extract()?),
        _ => return Err(Error::range("option", name, "a name of the specification").into()),
    }
    Ok(())
}

fn one_of<T: Copy>(name: &str, given: &str, all: &[(&str, T)]) -> Result<T, Error> {
    all.iter().find(|(known, _)| *known == given).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|(known, _)| *known).collect();
        Error::range(name, given, names.join(", "))
    })
}
