//! The closed form of one pool as two Python classes.
#![expect(clippy::needless_pass_by_value, reason = "PyO3 hands arguments over by value")]

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

use super::schedule::PyStepTable;
use crate::analytic::{Alone, Level, Role, Shape, Traffic};
use crate::error::Error;

/// Traffic as the closed form sees it, checked and kept in Rust.
#[pyclass(frozen, name = "Moments", module = "firstlight._core")]
pub(super) struct PyMoments(Traffic);

#[pymethods]
impl PyMoments {
    #[new]
    #[pyo3(signature = (*, rate_ratio, prefill_ratio, decode_ratio, uncached_tok, uncached_weight,
        mean_uncached_tok, uncached_cv, mean_input_tok, mean_output_tok, mean_pairs, context_tok,
        bin_s))]
    #[expect(clippy::too_many_arguments, reason = "one argument a moment, all by keyword")]
    fn new(
        rate_ratio: PyReadonlyArray1<'_, f64>,
        prefill_ratio: PyReadonlyArray1<'_, f64>,
        decode_ratio: PyReadonlyArray1<'_, f64>,
        uncached_tok: PyReadonlyArray1<'_, f64>,
        uncached_weight: PyReadonlyArray1<'_, f64>,
        mean_uncached_tok: f64,
        uncached_cv: f64,
        mean_input_tok: f64,
        mean_output_tok: f64,
        mean_pairs: f64,
        context_tok: f64,
        bin_s: f64,
    ) -> PyResult<Self> {
        let traffic = Traffic {
            rate_ratio: column(&rate_ratio),
            prefill_ratio: column(&prefill_ratio),
            decode_ratio: column(&decode_ratio),
            uncached_tok: column(&uncached_tok),
            uncached_weight: column(&uncached_weight),
            mean_uncached_tok,
            uncached_cv,
            mean_input_tok,
            mean_output_tok,
            mean_pairs,
            context_tok,
            bin_s,
        };
        traffic.check()?;
        Ok(Self(traffic))
    }
}

/// One server of a pool under one traffic.
#[pyclass(frozen, name = "Alone", module = "firstlight._core")]
pub(super) struct PyAlone(Alone);

#[pymethods]
impl PyAlone {
    #[new]
    #[pyo3(signature = (*, role, replicas, table, chunk_tok, max_seqs, kv_blocks, block_tok,
        moments))]
    #[expect(clippy::too_many_arguments, reason = "what bounds a step, all by keyword")]
    fn new(
        role: &str,
        replicas: u32,
        table: &PyStepTable,
        chunk_tok: usize,
        max_seqs: usize,
        kv_blocks: u64,
        block_tok: u64,
        moments: &PyMoments,
    ) -> PyResult<Self> {
        let role = match role {
            "mixed" => Role::Mixed,
            "prefill" => Role::Prefill,
            "decode" => Role::Decode,
            other => Err(Error::range("role", other, "mixed, prefill or decode"))?,
        };
        let shape = Shape { chunk_tok, max_seqs, kv_blocks, block_tok };
        Ok(Self(Alone::new(role, replicas, table.get(), shape, &moments.0)?))
    }

    /// An optical server, whose passes of so many tokens take so long.
    #[staticmethod]
    #[pyo3(signature = (*, tokens, linear_s, pair_s, moments))]
    fn of_passes(
        tokens: PyReadonlyArray1<'_, f64>,
        linear_s: PyReadonlyArray1<'_, f64>,
        pair_s: f64,
        moments: &PyMoments,
    ) -> PyResult<Self> {
        Ok(Self(Alone::of_passes(column(&tokens), column(&linear_s), pair_s, &moments.0)?))
    }

    /// Returns a load that one server cannot exceed [request/s].
    fn bound(&self) -> f64 {
        self.0.bound()
    }

    /// Returns the highest load that `count` servers on one queue carry [request/s].
    ///
    /// It is 0 when the level is not met at any load, or when it is not above `beat`.
    #[pyo3(signature = (*, count, ttft_s, tpot_s, decode_wait_s, quantile, beat=0.0))]
    fn carried(
        &self,
        count: u32,
        ttft_s: f64,
        tpot_s: f64,
        decode_wait_s: f64,
        quantile: f64,
        beat: f64,
    ) -> f64 {
        // A tenth of a millisecond: to let go of the interpreter and wait for it costs more.
        self.0.carried(count, &Level { ttft_s, tpot_s, decode_wait_s, quantile }, beat)
    }

    /// Returns the share of requests that miss the level at a load.
    #[pyo3(signature = (rate_request_per_s, *, count, ttft_s, tpot_s, decode_wait_s, quantile))]
    fn missed(
        &self,
        rate_request_per_s: f64,
        count: u32,
        ttft_s: f64,
        tpot_s: f64,
        decode_wait_s: f64,
        quantile: f64,
    ) -> f64 {
        self.0.missed(rate_request_per_s, count, &Level { ttft_s, tpot_s, decode_wait_s, quantile })
    }

    /// Returns the size of the prefill step that keeps up with so many tokens a second [tok].
    fn prefill_size_tok(&self, tok_per_s: f64) -> f64 {
        self.0.steps().prefill_size_tok(tok_per_s)
    }

    /// Returns the time of a prefill step with its attention [s].
    fn prefill_time_s(&self, tokens: f64) -> f64 {
        self.0.steps().prefill_time_s(tokens)
    }

    /// Returns the sequences in flight that keep up with so many tokens a second.
    fn decode_seqs(&self, tok_per_s: f64) -> f64 {
        self.0.steps().decode_seqs(tok_per_s)
    }

    /// Returns the time of a step that decodes so many sequences [s].
    fn decode_time_s(&self, seqs: f64) -> f64 {
        self.0.steps().decode_time_s(seqs)
    }

    /// Largest prefill step [tok].
    #[getter]
    fn most_tok(&self) -> f64 {
        self.0.steps().most_tok()
    }

    /// Prompt tokens of a step [tok].
    #[getter]
    fn tokens<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        PyArray1::from_slice(py, &self.0.steps().tokens)
    }

    /// Time of such a step with its attention [s].
    #[getter]
    fn prefill_s<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        PyArray1::from_slice(py, &self.0.steps().prefill_s)
    }

    /// Decoding sequences.
    #[getter]
    fn seqs<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        PyArray1::from_slice(py, &self.0.steps().seqs)
    }

    /// Time of a step that decodes them [s].
    #[getter]
    fn decode_s<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        PyArray1::from_slice(py, &self.0.steps().decode_s)
    }

    /// What a prompt token adds to a step that decodes [s].
    #[getter]
    fn extra_s_per_tok(&self) -> f64 {
        self.0.steps().extra_s_per_tok
    }
}

/// Copies an array, wherever its elements lie.
fn column(array: &PyReadonlyArray1<'_, f64>) -> Vec<f64> {
    array.as_array().iter().copied().collect()
}
