//! The discrete-event engine as one Python class.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::Error;
use crate::schedule::{
    CacheSpec, Counters, Disaggregation, Engine, Fault, FirstToken, FleetSpec, Gaps, GovernorSpec,
    LinkSpec, MixedAttention, Policy, PoolSpec, Requests, Role, Routing, Segment, SglangSpec,
    SpeculationSpec, StepTable, Stop, TierSpec, Trouble, Watch,
};

/// Step costs of one replica, checked and kept in Rust.
#[pyclass(frozen, name = "StepTable", module = "firstlight._core")]
pub(crate) struct PyStepTable(Arc<StepTable>);

impl PyStepTable {
    /// Returns the table itself.
    pub(super) fn get(&self) -> &StepTable {
        &self.0
    }
}

#[pymethods]
impl PyStepTable {
    #[new]
    #[pyo3(signature = (*, linear_ps, head_ps, prefill_attn_floor_ps, prefill_attn_pair_fs,
        decode_attn_floor_ps, decode_attn_ctx_ps, mix_1024, linear_pj, head_pj,
        prefill_attn_pair_fj, decode_attn_floor_pj, decode_attn_ctx_pj, mixed_axes=None,
        mixed_ps=None, mixed_skew_1024=0))]
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
        mixed_axes: Option<[PyReadonlyArray1<'_, u64>; 4]>,
        mixed_ps: Option<PyReadonlyArray1<'_, u64>>,
        mixed_skew_1024: u64,
    ) -> PyResult<Self> {
        let mixed = mixed_axes.zip(mixed_ps).map(|(axes, ps)| MixedAttention {
            axes: axes.map(column),
            attn_ps: column(ps),
            skew_1024: mixed_skew_1024,
        });
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
            mixed,
        };
        table.check()?;
        Ok(Self(Arc::new(table)))
    }
}

/// One pool, from a dictionary.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct PyPool {
    policy: String,
    chunk_tok: u64,
    sglang: PySglang,
    role: String,
    replicas: u32,
    table: Py<PyStepTable>,
    token_budget: u64,
    max_seqs: u64,
    kv_blocks: u64,
    watermark_blocks: u64,
    window_ps: u64,
    fill_tok: u64,
    cache: Option<PyCache>,
    cap: Option<Py<PyStepTable>>,
    speculation: Option<PySpeculation>,
}

/// Speculative decoding, from a dictionary; shares in 2⁻³² and 2⁻²⁰.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct PySpeculation {
    accepted: Vec<u64>,
    draft_share: u64,
    seed: u64,
}

/// `SGLang`'s settings, from a dictionary; shares in 2⁻²⁰.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct PySglang {
    longest_prefix_first: bool,
    ratio: u64,
    least_ratio: u64,
    decay: u64,
    most_new_tok: u64,
}

/// A prefix cache, from a dictionary: two tiers of (units, ps and ps before, pJ to read, to write).
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct PyCache {
    tiers: [(u64, u64, u64, u64, u64); 2],
    reused_only: bool,
}

/// A fleet beside its pools, from a dictionary.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct PyFleet {
    block_tok: u64,
    unit_tok: u64,
    link_tok_ps: u64,
    link_latency_ps: u64,
    link_layers: u64,
    first_token: String,
    routing: String,
    weight_1024: u64,
    credit_1024: [u64; 3],
    disaggregation: String,
    local_below_tok: u64,
    local_share_1024: u64,
    local_queue_tok: u64,
    local_busy_seqs: u64,
    imitate_dynosim: bool,
    governor: Option<PyGovernor>,
}

/// Who moves watts between pools, from a dictionary.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct PyGovernor {
    tick_ps: u64,
    levels: Vec<Vec<Py<PyStepTable>>>,
    first: usize,
    above_tok: u64,
    below_tok: u64,
}

impl PyFleet {
    fn read(&self, pools: Vec<PoolSpec>) -> Result<FleetSpec, Error> {
        let first_token = match self.first_token.as_str() {
            "prefill" => FirstToken::Prefill,
            "decode" => FirstToken::Decode,
            other => return Err(Error::range("first_token", other, "prefill or decode")),
        };
        let routing = match self.routing.as_str() {
            "least-load" => Routing::LeastLoad,
            "round-robin" => Routing::RoundRobin,
            "prefix-aware" => Routing::PrefixAware {
                weight_1024: self.weight_1024,
                credit_1024: self.credit_1024,
            },
            "least-ttft" => Routing::LeastTtft,
            other => {
                let allowed = "least-load, round-robin, prefix-aware or least-ttft";
                return Err(Error::range("routing", other, allowed));
            }
        };
        let disaggregation = match self.disaggregation.as_str() {
            "always" => Disaggregation::Always,
            "never" => Disaggregation::Never,
            "conditional" => Disaggregation::Conditional {
                below_tok: self.local_below_tok,
                share_1024: self.local_share_1024,
                queue_tok: self.local_queue_tok,
                busy_seqs: self.local_busy_seqs,
            },
            other => {
                let allowed = "always, never or conditional";
                return Err(Error::range("disaggregation", other, allowed));
            }
        };
        Ok(FleetSpec {
            pools,
            block_tok: self.block_tok,
            unit_tok: self.unit_tok,
            link: LinkSpec {
                tok_ps: self.link_tok_ps,
                latency_ps: self.link_latency_ps,
                layers: self.link_layers,
            },
            first_token,
            routing,
            disaggregation,
            governor: self.governor.as_ref().map(|governor| GovernorSpec {
                tick_ps: governor.tick_ps,
                levels: governor
                    .levels
                    .iter()
                    .map(|pools| pools.iter().map(|cap| Arc::clone(&cap.get().0)).collect())
                    .collect(),
                first: governor.first,
                above_tok: governor.above_tok,
                below_tok: governor.below_tok,
            }),
            imitate_dynosim: self.imitate_dynosim,
        })
    }
}

/// A fleet in time.
#[pyclass(name = "Engine", module = "firstlight._core")]
pub(crate) struct PyEngine(Engine);

#[pymethods]
impl PyEngine {
    #[new]
    #[expect(clippy::needless_pass_by_value, reason = "extracted from Python by value")]
    fn new(pools: Vec<PyPool>, fleet: PyFleet) -> PyResult<Self> {
        let pools = pools.iter().map(read_pool).collect::<Result<_, _>>()?;
        Ok(Self(Engine::new(fleet.read(pools)?)?))
    }

    /// Adds requests in order of arrival.
    ///
    /// `keep` says which of the rows come, `unit_from` where the units of each row begin in
    /// `unit_of`, `follow_from` the same of the rows it waits for; each may be empty.
    #[expect(clippy::too_many_arguments, reason = "one argument a column")]
    #[expect(clippy::needless_pass_by_value, reason = "the borrow of the arrays ends here")]
    fn push(
        &mut self,
        py: Python<'_>,
        arrival_ps: PyReadonlyArray1<'_, u64>,
        isl_tok: PyReadonlyArray1<'_, u32>,
        cached_tok: PyReadonlyArray1<'_, u32>,
        osl_tok: PyReadonlyArray1<'_, u32>,
        keep: PyReadonlyArray1<'_, bool>,
        unit_from: PyReadonlyArray1<'_, u64>,
        unit_of: PyReadonlyArray1<'_, u32>,
        follow_from: PyReadonlyArray1<'_, u64>,
        follow_of: PyReadonlyArray1<'_, u32>,
        think_ps: PyReadonlyArray1<'_, u64>,
    ) -> PyResult<()> {
        let columns = Columns {
            arrival_ps: &view(&arrival_ps),
            isl_tok: &view(&isl_tok),
            cached_tok: &view(&cached_tok),
            osl_tok: &view(&osl_tok),
            keep: &view(&keep),
            unit_from: &view(&unit_from),
            unit_of: &view(&unit_of),
            follow_from: &view(&follow_from),
            follow_of: &view(&follow_of),
            think_ps: &view(&think_ps),
        };
        columns.check()?;
        py.detach(|| columns.push_to(&mut self.0)).map_err(Into::into)
    }

    /// Adds a fault: "down", "slow" (with its step costs), "link-down" or "link-slow".
    #[pyo3(signature = (*, kind, replica, from_ps, until_ps, table=None, slower_1024=1024))]
    fn add_fault(
        &mut self,
        kind: &str,
        replica: u32,
        from_ps: u64,
        until_ps: u64,
        table: Option<Py<PyStepTable>>,
        slower_1024: u64,
    ) -> PyResult<()> {
        let trouble = match (kind, table) {
            ("down", None) => Trouble::Down,
            ("slow", Some(table)) => Trouble::Slow(Arc::clone(&table.get().0)),
            ("link-down", None) => Trouble::LinkDown,
            ("link-slow", None) => Trouble::LinkSlow(slower_1024),
            (other, _) => {
                let allowed = "down, link-down or link-slow, or slow with a table";
                return Err(Error::range("fault.kind", other, allowed).into());
            }
        };
        Ok(self.0.add_fault(Fault { replica, from_ps, until_ps, trouble })?)
    }

    /// Keeps at most `most` requests in flight; 0: any number.
    fn keep_in_flight(&mut self, most: u64) {
        self.0.keep_in_flight(most);
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

    /// Of the requests that come from `from_ps` on: how many, how many met both limits, the first,
    /// the second.
    #[pyo3(signature = (*, from_ps, ttft_ps, tpot_ps))]
    fn tally(&self, py: Python<'_>, from_ps: u64, ttft_ps: u64, tpot_ps: u64) -> [u64; 4] {
        py.detach(|| self.0.requests().tally(from_ps, ttft_ps, tpot_ps))
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

    /// Records what every replica does from now on.
    fn record(&mut self) {
        self.0.record();
    }

    /// Columns of what was recorded, as NumPy arrays.
    fn timeline<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let rows = self.0.timeline();
        let columns = PyDict::new(py);
        let of = |value: fn(&Segment) -> u64| PyArray1::from_iter(py, rows.iter().map(value));
        columns.set_item("replica", of(|row| u64::from(row.replica)))?;
        columns.set_item("start_ps", of(|row| row.start_ps))?;
        columns.set_item("end_ps", of(|row| row.end_ps))?;
        columns.set_item("steps", of(|row| row.steps))?;
        columns.set_item("prompt_tok", of(|row| row.prompt_tok))?;
        columns.set_item("decode_seqs", of(|row| row.decode_seqs))?;
        let joules = rows.iter().map(|row| row.pj as f64 * 1e-12);
        columns.set_item("energy_j", PyArray1::from_iter(py, joules))?;
        Ok(columns)
    }

    /// Free KV blocks of every replica.
    fn free_blocks(&self) -> Vec<u64> {
        self.0.free_blocks()
    }

    /// Columns of all requests, as NumPy arrays.
    fn requests<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let requests = self.0.requests();
        let columns = shared_columns(py, requests)?;
        columns.set_item("first_ps", PyArray1::from_slice(py, &requests.first_ps))?;
        columns.set_item("last_ps", PyArray1::from_slice(py, &requests.last_ps))?;
        columns.set_item("started_ps", PyArray1::from_slice(py, &requests.started_ps))?;
        Ok(columns)
    }

    /// The same, handed over: the engine forgets all requests and is idle.
    fn take_requests<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let requests = self.0.take_requests();
        let columns = shared_columns(py, &requests)?;
        columns.set_item("first_ps", PyArray1::from_vec(py, requests.first_ps))?;
        columns.set_item("last_ps", PyArray1::from_vec(py, requests.last_ps))?;
        columns.set_item("started_ps", PyArray1::from_vec(py, requests.started_ps))?;
        Ok(columns)
    }
}

fn shared_columns<'py>(py: Python<'py>, requests: &Requests) -> PyResult<Bound<'py, PyDict>> {
    let columns = PyDict::new(py);
    columns.set_item("arrival_ps", PyArray1::from_iter(py, requests.arrivals_ps()))?;
    let state = requests.states().map(|state| state as u8);
    columns.set_item("state", PyArray1::from_iter(py, state))?;
    columns.set_item("preemptions", PyArray1::from_iter(py, requests.preemptions()))?;
    Ok(columns)
}

/// The columns of [`PyEngine::push`].
struct Columns<'a> {
    arrival_ps: &'a [u64],
    isl_tok: &'a [u32],
    cached_tok: &'a [u32],
    osl_tok: &'a [u32],
    keep: &'a [bool],
    unit_from: &'a [u64],
    unit_of: &'a [u32],
    follow_from: &'a [u64],
    follow_of: &'a [u32],
    think_ps: &'a [u64],
}

impl Columns<'_> {
    fn check(&self) -> Result<(), Error> {
        let rows = self.arrival_ps.len();
        for (name, length) in [
            ("isl_tok", self.isl_tok.len()),
            ("cached_tok", self.cached_tok.len()),
            ("osl_tok", self.osl_tok.len()),
        ] {
            if length != rows {
                return Err(Error::shape(name, length, rows));
            }
        }
        for (name, length, wanted) in [
            ("keep", self.keep.len(), rows),
            ("unit_from", self.unit_from.len(), rows + 1),
            ("follow_from", self.follow_from.len(), rows + 1),
        ] {
            if length != 0 && length != wanted {
                return Err(Error::shape(name, length, wanted));
            }
        }
        if !self.keep.is_empty() && !self.follow_from.is_empty() {
            let allowed = "none where requests wait for others: whom for is told by row";
            return Err(Error::range("keep", "given", allowed));
        }
        Ok(())
    }

    fn push_to(&self, engine: &mut Engine) -> Result<(), Error> {
        let rows = self.arrival_ps.len();
        let all = self.keep.is_empty();
        engine.reserve(if all { rows } else { self.keep.iter().filter(|&&kept| kept).count() });
        for row in (0..rows).filter(|&row| all || self.keep[row]) {
            let (isl, cached) = (self.isl_tok[row], self.cached_tok[row]);
            engine.push(self.arrival_ps[row], isl, cached, self.osl_tok[row])?;
            if let [begin, end] = self.unit_from.get(row..row + 2).unwrap_or(&[]) {
                let Some(ids) = self.unit_of.get(index(*begin)..index(*end)) else {
                    let allowed = format!("rising, at most {}", self.unit_of.len());
                    return Err(Error::range(format!("unit_from[{row}]"), begin, allowed));
                };
                engine.name_units(ids)?;
            }
            if let [begin, end] = self.follow_from.get(row..row + 2).unwrap_or(&[]) {
                let Some(parents) = self.follow_of.get(index(*begin)..index(*end)) else {
                    let allowed = format!("rising, at most {}", self.follow_of.len());
                    return Err(Error::range(format!("follow_from[{row}]"), begin, allowed));
                };
                engine.follow(parents, self.think_ps.get(row).copied().unwrap_or(0))?;
            }
        }
        Ok(())
    }
}

/// The values of an array, copied only where they do not lie one after the other.
fn view<'a, T: numpy::Element + Copy>(array: &'a PyReadonlyArray1<'_, T>) -> Cow<'a, [T]> {
    array.as_slice().map_or_else(|_| Cow::Owned(array.as_array().to_vec()), Cow::Borrowed)
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

fn read_pool(pool: &PyPool) -> Result<PoolSpec, Error> {
    let cache = pool.cache.as_ref().map(|cache| CacheSpec {
        tiers: cache.tiers.map(|(units, read_tok_ps, latency_ps, read_tok_pj, write_tok_pj)| {
            TierSpec { units, read_tok_ps, latency_ps, read_tok_pj, write_tok_pj }
        }),
        reused_only: cache.reused_only,
    });
    let policy = match pool.policy.as_str() {
        "vllm" => Policy::Vllm { chunk_tok: pool.chunk_tok },
        "orca" => Policy::Orca,
        "static" => Policy::Static,
        "sglang" => Policy::Sglang(SglangSpec {
            longest_prefix_first: pool.sglang.longest_prefix_first,
            ratio: pool.sglang.ratio,
            least_ratio: pool.sglang.least_ratio,
            decay: pool.sglang.decay,
            most_new_tok: pool.sglang.most_new_tok,
        }),
        other => return Err(Error::range("policy", other, "vllm, sglang, orca or static")),
    };
    Ok(PoolSpec {
        policy,
        role: Role::parse(&pool.role)?,
        replicas: pool.replicas,
        table: Arc::clone(&pool.table.get().0),
        token_budget: pool.token_budget,
        max_seqs: pool.max_seqs,
        kv_blocks: pool.kv_blocks,
        watermark_blocks: pool.watermark_blocks,
        window_ps: pool.window_ps,
        fill_tok: pool.fill_tok,
        cache,
        cap: pool.cap.as_ref().map(|cap| Arc::clone(&cap.get().0)),
        speculation: pool.speculation.as_ref().map(|rule| SpeculationSpec {
            accepted: rule.accepted.clone(),
            draft_share: rule.draft_share,
            seed: rule.seed,
        }),
    })
}

#[expect(clippy::cast_possible_truncation, reason = "an index beyond memory finds nothing")]
fn index(count: u64) -> usize {
    count as usize
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
        ("drafted_tok", u128::from(c.drafted_tok)),
        ("accepted_tok", u128::from(c.accepted_tok)),
        ("draft_ps", c.draft_ps),
        ("preemptions", u128::from(c.preemptions)),
        ("rerouted", u128::from(c.rerouted)),
        ("lost_tok", u128::from(c.lost_tok)),
        ("blocks_taken", u128::from(c.blocks_taken)),
        ("blocks_freed", u128::from(c.blocks_freed)),
        ("pulled_tok", u128::from(c.pulled_tok)),
        ("link_ps", c.link_ps),
        ("capped_ps", c.capped_ps),
        ("queried_tok", u128::from(c.queried_tok)),
        ("hit_hbm_tok", u128::from(c.hit_tok[0])),
        ("hit_dram_tok", u128::from(c.hit_tok[1])),
        ("hit_storage_tok", u128::from(c.hit_tok[2])),
        ("resumed_hit_tok", u128::from(c.resumed_hit_tok)),
        ("evicted_tok", u128::from(c.evicted_tok)),
        ("dram_read_tok", u128::from(c.tier_read_tok[0])),
        ("storage_read_tok", u128::from(c.tier_read_tok[1])),
        ("dram_read_ps", c.tier_read_ps[0]),
        ("storage_read_ps", c.tier_read_ps[1]),
        ("dram_written_tok", u128::from(c.tier_written_tok[0])),
        ("storage_written_tok", u128::from(c.tier_written_tok[1])),
        ("dram_pj", c.tier_pj[0]),
        ("storage_pj", c.tier_pj[1]),
        ("pull_saved_tok", u128::from(c.pull_saved_tok)),
        ("local_prompts", u128::from(c.local_prompts)),
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
