"""How long an answer takes, and one design at one load over the whole Azure conversation hour.

Run: `pytest benches --benchmark-only`. Each bench checks what it computed before it times it.
"""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from firstlight import evaluate, schedule, workload
from firstlight.evaluate import question
from firstlight.evaluate.cell import Cell, group
from firstlight.scenario import Scenario

pytestmark = pytest.mark.timeout(1800)
REQUESTS, OUTPUT_TOK = 19_366, 4_088_665
"""Of the Azure conversation hour."""


@pytest.mark.benchmark(group="compare")
def test_compare_the_shipped_scenario(benchmark):
    found = benchmark.pedantic(evaluate.compare, args=(Scenario.default(),), rounds=1)
    assert [design.feasible for design in found.designs] == [True, True, True]
    benchmark.extra_info["peak_resident_mb"] = (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000.0
    )


@pytest.fixture(scope="module")
def hour():
    """The whole hour as one load, for two replicas of four H100."""
    scenario = Scenario.default()
    asked = question.resolve(scenario)
    serving = asked.serving(scenario.design("gpu-colocated"))
    made = group(
        asked.server("h100-sxm-8x", beside="h100-sxm-8x"),
        role="mixed", tp=4, chunk_tok=2048, serving=serving,
    )  # fmt: skip
    trace = workload.load("azure-2023-conv")
    superposed = workload.superpose(
        trace, copies=1, seed=0, max_request_per_s=trace.request_per_s, cached_frac=0.5
    )
    requests = superposed.requests
    arrivals = schedule.Arrivals(
        arrival_ps=requests.arrival_ps, isl_tok=requests.isl_tok,
        cached_tok=requests.cached_tok, osl_tok=requests.osl_tok,
    )  # fmt: skip
    return Cell(groups=(made,), serving=serving).fleet, arrivals, requests.duration_ps


@pytest.mark.benchmark(group="schedule")
def test_one_design_at_one_load_over_the_whole_hour(benchmark, hour):
    fleet, arrivals, duration_ps = hour

    def run():
        return schedule.run(
            fleet, arrivals, window_ps=(0, duration_ps), drain_ps=2 * duration_ps,
            limits=schedule.Limits(ttft_ps=2 * 10**12, tpot_ps=5 * 10**10, misses=len(arrivals.isl_tok)),
        )  # fmt: skip

    outcome = run()
    assert len(arrivals.isl_tok) == REQUESTS
    assert (outcome.last_ps < schedule.NEVER).all()
    emitted = int(arrivals.osl_tok.sum())
    assert emitted == OUTPUT_TOK
    benchmark.pedantic(run, rounds=5, warmup_rounds=1)
    if benchmark.stats is not None:
        seconds = benchmark.stats.stats.min
        benchmark.extra_info["output_tok_per_s"] = emitted / seconds
        benchmark.extra_info["requests"] = REQUESTS
        benchmark.extra_info["events"] = outcome.events
        benchmark.extra_info["ns_per_event"] = seconds * 1e9 / outcome.events
        for name, value in benchmark.extra_info.items():
            print(f"{name:18} {value:,.1f}")


@pytest.mark.benchmark(group="start")
def test_cold_help(benchmark):
    def run():
        return subprocess.run(
            [sys.executable, "-m", "firstlight", "--help"], capture_output=True, check=True
        )

    assert b"compare" in run().stdout
    benchmark.pedantic(run, rounds=10, warmup_rounds=1)
