//! The kernels of a model runner over `NumPy` arrays, without a copy.
#![expect(clippy::needless_pass_by_value, reason = "PyO3 hands arguments over by value")]

use numpy::{
    PyReadonlyArray1, PyReadonlyArrayDyn, PyReadwriteArray1, PyReadwriteArrayDyn,
    PyUntypedArrayMethods,
};
use pyo3::prelude::*;

use crate::error::Error;
use crate::runners::dequant::{self, Format};
use crate::runners::readout::{Range, Readings, Receiver};
use crate::runners::rope::Pairing;
use crate::runners::softmax::Mask;
use crate::runners::{
    gate, likelihood, norm, readout as receiver, rope as rotary, softmax, walsh as transform,
};

/// The refusal of an array that is not laid out row by row.
fn scattered(name: &str) -> Error {
    Error::shape(name, "scattered memory", "a C-contiguous array")
}

fn slice<'a>(name: &str, array: &'a PyReadonlyArrayDyn<'_, f32>) -> Result<&'a [f32], Error> {
    if !array.is_c_contiguous() {
        return Err(scattered(name));
    }
    array.as_slice().map_err(|_| scattered(name))
}

fn slice_mut<'a>(
    name: &str,
    array: &'a mut PyReadwriteArrayDyn<'_, f32>,
) -> Result<&'a mut [f32], Error> {
    if !array.is_c_contiguous() {
        return Err(scattered(name));
    }
    array.as_slice_mut().map_err(|_| scattered(name))
}

/// Unpacks GGUF blocks into `out` and returns how many weights are not finite.
#[pyfunction]
pub(super) fn dequantize(
    py: Python<'_>,
    data: PyReadonlyArray1<'_, u8>,
    kind: &str,
    mut out: PyReadwriteArray1<'_, f32>,
) -> PyResult<usize> {
    let format = Format::named(kind)?;
    let data = data.as_slice().map_err(|_| scattered("data"))?;
    let out = out.as_slice_mut().map_err(|_| scattered("out"))?;
    Ok(py.detach(|| dequant::dequantize(data, format, out))?)
}

/// Normalises the rows of `x` by their root mean square into `out`.
#[pyfunction]
pub(super) fn rms_norm(
    py: Python<'_>,
    x: PyReadonlyArrayDyn<'_, f32>,
    gain: PyReadonlyArrayDyn<'_, f32>,
    epsilon: f32,
    mut out: PyReadwriteArrayDyn<'_, f32>,
) -> PyResult<()> {
    let (x, gain, out) = (slice("x", &x)?, slice("gain", &gain)?, slice_mut("out", &mut out)?);
    Ok(py.detach(|| norm::rms_norm(x, gain, epsilon, out))?)
}

/// Rotates the pairs of every head of `x`, `(tokens, heads, head_dim)`, in place.
#[pyfunction]
pub(super) fn rope(
    py: Python<'_>,
    mut x: PyReadwriteArrayDyn<'_, f32>,
    cos: PyReadonlyArrayDyn<'_, f32>,
    sin: PyReadonlyArrayDyn<'_, f32>,
    heads: usize,
    half: usize,
    interleaved: bool,
) -> PyResult<()> {
    let (x, cos, sin) = (slice_mut("x", &mut x)?, slice("cos", &cos)?, slice("sin", &sin)?);
    let pairing = if interleaved { Pairing::Interleaved } else { Pairing::Halves };
    Ok(py.detach(|| rotary::rotate(x, cos, sin, heads, half, pairing))?)
}

/// Turns attention scores into causal weights, in place.
#[pyfunction]
#[pyo3(signature = (scores, scale, queries, keys, first, window=None))]
pub(super) fn causal_softmax(
    py: Python<'_>,
    mut scores: PyReadwriteArrayDyn<'_, f32>,
    scale: f32,
    queries: usize,
    keys: usize,
    first: usize,
    window: Option<usize>,
) -> PyResult<()> {
    let scores = slice_mut("scores", &mut scores)?;
    let mask = Mask { keys, queries, first, window };
    Ok(py.detach(|| softmax::causal_softmax(scores, scale, mask))?)
}

/// Writes `silu(gate) * up` of every row of the fused projection to `out`.
#[pyfunction]
pub(super) fn swiglu(
    py: Python<'_>,
    gate_up: PyReadonlyArrayDyn<'_, f32>,
    width: usize,
    mut out: PyReadwriteArrayDyn<'_, f32>,
) -> PyResult<()> {
    let (gate_up, out) = (slice("gate_up", &gate_up)?, slice_mut("out", &mut out)?);
    Ok(py.detach(|| gate::swiglu(gate_up, width, out))?)
}

/// Writes the log-sum-exp of every row of `logits` to `out`.
#[pyfunction]
pub(super) fn log_sum_exp(
    py: Python<'_>,
    logits: PyReadonlyArrayDyn<'_, f32>,
    vocab: usize,
    mut out: PyReadwriteArray1<'_, f64>,
) -> PyResult<()> {
    let logits = slice("logits", &logits)?;
    let out = out.as_slice_mut().map_err(|_| scattered("out"))?;
    Ok(py.detach(|| likelihood::log_sum_exp(logits, vocab, out))?)
}

/// Writes the divergence of the softmax of every row of `b` from that of `a` to `out`.
#[pyfunction]
pub(super) fn divergence(
    py: Python<'_>,
    a: PyReadonlyArrayDyn<'_, f32>,
    b: PyReadonlyArrayDyn<'_, f32>,
    vocab: usize,
    mut out: PyReadwriteArray1<'_, f64>,
) -> PyResult<()> {
    let (a, b) = (slice("a", &a)?, slice("b", &b)?);
    let out = out.as_slice_mut().map_err(|_| scattered("out"))?;
    Ok(py.detach(|| likelihood::divergence(a, b, vocab, out))?)
}

/// Multiplies the middle axis of `x`, `(rows, order, stride)`, by a Hadamard matrix, in place.
#[pyfunction]
pub(super) fn walsh(
    py: Python<'_>,
    mut x: PyReadwriteArrayDyn<'_, f32>,
    order: usize,
    stride: usize,
) -> PyResult<()> {
    let x = slice_mut("x", &mut x)?;
    Ok(py.detach(|| transform::transform(x, order, stride))?)
}

/// Reads detector sums in place; returns clipped readings, Σ signal² and Σ error².
///
/// Without `full_scales` the converter's range follows the largest sum of each token.
#[pyfunction]
#[pyo3(signature = (sums, outputs, full_scales, margin, levels, sigma_frac, key, first_token))]
#[expect(clippy::too_many_arguments, reason = "a Python call names its arguments")]
pub(super) fn readout(
    py: Python<'_>,
    mut sums: PyReadwriteArrayDyn<'_, f32>,
    outputs: usize,
    full_scales: Option<PyReadonlyArray1<'_, f32>>,
    margin: f32,
    levels: Option<f32>,
    sigma_frac: f32,
    key: u64,
    first_token: u64,
) -> PyResult<(u64, f64, f64)> {
    let sums = slice_mut("sums", &mut sums)?;
    let range = match &full_scales {
        Some(scales) => Range::Fixed(scales.as_slice().map_err(|_| scattered("full_scales"))?),
        None => Range::PerToken { margin },
    };
    let spec = Receiver { range, levels, sigma_frac, key, first_token };
    let Readings { clipped, signal, error } =
        py.detach(|| receiver::readout(sums, outputs, &spec))?;
    Ok((clipped, signal, error))
}
