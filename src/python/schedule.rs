//! The discrete-event engine as one Python class.

use std::collections::BTreeMap;
use std::sync::Arc;

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::Error;
use crate::schedule::{
    Counters, Engine, FirstToken, FleetSpec, Gaps, LinkSpec, PoolSpec, Role, StepTable, Stop, Watch,
};

/// Step costs of one replica, checked and kept in Rust.
#[pyclass(frozen, name = "StepTable", module = "firstlight._core")]
pub(crate) struct PyStepTable(Arc<StepTable>);

#[pymethods]
impl PyStepTable {
    #[new]
    #[pyo3(signature = (*, linear_ps, head_ps, prefill_attn_floor_ps, prefill_attn_pair_fs,
        decode_attn_floor_ps, decode_attn_ctx_ps, mix_1024, linear_pj, head_pj,
        prefill_attn_pair_fj, decode_attn_floor_pj, decode_attn_ctx_pj))]
    #[expect(clippy::too_many_arguments, reason = "one argument a table, all by keyword")]
    fn new(
        linear_ps: PyReadonlyArray1<'_, u64>,
        head_ps: PyReadonlyArray1<'_, u64>,
        prefill_attn_floor_ps: u64,
        prefill_attn_pair_fs: PyReadonlyArray1<'_, u64>,
        decode_attn_floor_ps: PyReadonlyArray1<'_, u64>,
        decode_attn_ctx_ps: PyReadonlyArray1<'_, u64>,
        mix_1024: u64,
        linear_pj: PyReadonlyArray1<'_, u64>,
        head_pj: PyReadonlyArray1<'_, u64>,
        prefill_attn_pair_fj: PyReadonlyArray1<'_, u64>,
        decode_attn_floor_pj: PyReadonlyArray1<'_, u64>,
        decode_attn_ctx_pj: PyReadonlyArray1<'_, u64>,
    ) -> PyResult<Self> {
        let table = StepTable {
            linear_ps: column(linear_ps),
            head_ps: column(head_ps),
            prefill_attn_floor_ps,
            prefill_attn_pair_fs: column(prefill_attn_pair_fs),
            decode_attn_floor_ps: column(decode_attn_floor_ps),
            decode_attn_ctx_ps: column(decode_attn_ctx_ps),
            mix_1024,
            linear_pj: column(linear_pj),
            head_pj: column(head_pj),
            prefill_attn_pair_fj: column(prefill_attn_pair_fj),
            decode_attn_floor_pj: column(decode_attn_floor_pj),
            decode_attn_ctx_pj: column(decode_attn_ctx_pj),
        };
        table.check()?;
        Ok(Self(Arc::new(table)))
    }
}

/// One pool: (role, replicas, table, token budget, most sequences, KV blocks, watermark blocks).
type PyPool<'py> = (String, u32, PyRef<'py, PyStepTable>, u64, u64, u64, u64);

/// A fleet in time.
#[pyclass(name = "Engine", module = "firstlight._core")]
pub(crate) struct PyEngine(Engine);

#[pymethods]
impl PyEngine {
    #[new]
    #[pyo3(signature = (*, pools, block_tok, link_tok_ps, link_latency_ps, first_token))]
    fn new(
        pools: Vec<PyPool<'_>>,
        block_tok: u64,
        link_tok_ps: u64,
        link_latency_ps: u64,
        first_token: &str,
    ) -> PyResult<Self> {
        let pools = pools.into_iter().map(read_pool).collect::<Result<_, _>>()?;
        let first_token = match first_token {
            "prefill" => FirstToken::Prefill,
            "decode" => FirstToken::Decode,
            _ => return Err(Error::range("first_token", first_token, "prefill or decode").into()),
        };
        let link = LinkSpec { tok_ps: link_tok_ps, latency_ps: link_latency_ps };
        Ok(Self(Engine::new(FleetSpec { pools, block_tok, link, first_token })?))
    }

    /// Adds requests in order of arrival.
    fn push(
        &mut self,
        py: Python<'_>,
        arrival_ps: PyReadonlyArray1<'_, u64>,
        isl_tok: PyReadonlyArray1<'_, u32>,
        cached_tok: PyReadonlyArray1<'_, u32>,
        osl_tok: PyReadonlyArray1<'_, u32>,
    ) -> PyResult<()> {
        let (arrival, isl) = (column(arrival_ps), column(isl_tok));
        let (cached, osl) = (column(cached_tok), column(osl_tok));
        let rows = arrival.len();
        for (name, length) in
            [("isl_tok", isl.len()), ("cached_tok", cached.len()), ("osl_tok", osl.len())]
        {
            if length != rows {
                return Err(Error::shape(name, length, rows).into());
            }
        }
        py.detach(|| {
            for row in 0..rows {
                self.0.push(arrival[row], isl[row], cached[row], osl[row])?;
            }
            Ok(())
        })
        .map_err(|error: Error| error.into())
    }

    /// Stops early once more than `allowed` requests have missed their limits.
    #[pyo3(signature = (*, from_ps, ttft_ps, tpot_ps, allowed))]
    fn watch(&mut self, from_ps: u64, ttft_ps: u64, tpot_ps: u64, allowed: u64) {
        self.0.watch(Watch { from_ps, ttft_ps, tpot_ps, allowed });
    }

    /// Lets time pass; returns "reached", "paused" or "missed".
    fn advance(&mut self, py: Python<'_>, until_ps: u64, most_events: u64) -> &'static str {
        match py.detach(|| self.0.advance(until_ps, most_events)) {
            Stop::Reached => "reached",
            Stop::Paused => "paused",
            Stop::Missed => "missed",
        }
    }

    /// The time up to which everything has happened [ps].
    #[getter]
    fn now_ps(&self) -> u64 {
        self.0.now()
    }

    /// Events so far.
    #[getter]
    fn events(&self) -> u64 {
        self.0.events()
    }

    /// Requests that missed the watched limits so far.
    #[getter]
    fn missed(&self) -> u64 {
        self.0.missed()
    }

    /// One dictionary of integers a pool.
    fn counters(&self) -> Vec<BTreeMap<&'static str, u128>> {
        self.0.counters().iter().map(read_counters).collect()
    }

    /// Histogram of gaps between tokens: (counts by bucket, sum [ps]).
    fn gaps<'py>(&self, py: Python<'py>) -> (Bound<'py, PyArray1<u64>>, u128) {
        let gaps = self.0.gaps();
        (PyArray1::from_slice(py, &gaps.counts), gaps.sum_ps)
    }

    /// Free KV blocks of every replica.
    fn free_blocks(&self) -> Vec<u64> {
        self.0.free_blocks()
    }

    /// Columns of all requests, as NumPy arrays.
    fn requests<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let requests = self.0.requests();
        let columns = PyDict::new(py);
        columns.set_item("first_ps", PyArray1::from_slice(py, &requests.first_ps))?;
        columns.set_item("last_ps", PyArray1::from_slice(py, &requests.last_ps))?;
        let state: Vec<u8> = requests.states().map(|state| state as u8).collect();
        columns.set_item("state", PyArray1::from_vec(py, state))?;
        columns.set_item("preemptions", PyArray1::from_iter(py, requests.preemptions()))?;
        Ok(columns)
    }
}

/// Lower edges of the gap histogram's buckets [ps].
#[pyfunction]
#[pyo3(name = "gap_edges_ps")]
pub(crate) fn py_gap_edges_ps(py: Python<'_>) -> Bound<'_, PyArray1<u64>> {
    let buckets = Gaps::default().counts.len();
    PyArray1::from_iter(py, (0..buckets).map(Gaps::lower_ps))
}

#[expect(clippy::needless_pass_by_value, reason = "the borrow of the array ends here")]
fn column<T: numpy::Element + Copy>(array: PyReadonlyArray1<'_, T>) -> Vec<T> {
    array.as_array().to_vec()
}

fn read_pool(pool: PyPool<'_>) -> Result<PoolSpec, Error> {
    let (role, replicas, table, token_budget, max_seqs, kv_blocks, watermark_blocks) = pool;
    let (role, table) = (Role::parse(&role)?, Arc::clone(&table.0));
    Ok(PoolSpec { role, replicas, table, token_budget, max_seqs, kv_blocks, watermark_blocks })
}

fn read_counters(counters: &Counters) -> BTreeMap<&'static str, u128> {
    let c = counters;
    [
        ("steps", u128::from(c.steps)),
        ("prefill_ps", c.prefill_ps),
        ("decode_ps", c.decode_ps),
        ("prefill_tok", u128::from(c.prefill_tok)),
        ("recomputed_tok", u128::from(c.recomputed_tok)),
        ("decode_tok", u128::from(c.decode_tok)),
        ("emitted_tok", u128::from(c.emitted_tok)),
        ("preemptions", u128::from(c.preemptions)),
        ("blocks_taken", u128::from(c.blocks_taken)),
        ("blocks_freed", u128::from(c.blocks_freed)),
        ("pulled_tok", u128::from(c.pulled_tok)),
        ("link_ps", c.link_ps),
        ("prefill_linear_pj", c.prefill_linear_pj),
        ("prefill_attn_pj", c.prefill_attn_pj),
        ("prefill_head_pj", c.prefill_head_pj),
        ("decode_linear_pj", c.decode_linear_pj),
        ("decode_attn_pj", c.decode_attn_pj),
        ("decode_head_pj", c.decode_head_pj),
    ]
    .into_iter()
    .collect()
}
