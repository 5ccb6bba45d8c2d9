"""A real vLLM run, request by request, from kernel times and nothing fitted to the run."""

import csv
from pathlib import Path

import numpy as np
import pytest

from firstlight import schedule
from firstlight.steps import read_profile

DATA = Path(__file__).parents[1] / "data" / "vllm_rtx4090"
BLOCK_TOK = 16
KV_BLOCKS = 2588 - 1
"""What the run's log says, less the block vLLM keeps for padding."""


def expanded(ranges):
    for piece in ranges.split():
        first, last = piece.split("-")
        yield from range(int(first), int(last) + 1)


@pytest.fixture(scope="module")
def errors():
    with (DATA / "requests.csv").open() as file:
        rows = sorted(csv.DictReader(file), key=lambda row: float(row["queued_s"]))
    units, fresh = [], 10**6
    for row in rows:
        isl, osl = int(row["input_tok"]), int(row["output_tok"])
        own = list(expanded(row["prompt_blocks16"]))[: isl // BLOCK_TOK]
        answer = (isl + osl) // BLOCK_TOK - len(own)
        units.append(own + list(range(fresh, fresh + answer)))
        fresh += answer
    column = lambda name: np.array([float(row[name]) for row in rows])  # noqa: E731
    isl, osl = column("input_tok").astype(np.uint32), column("output_tok").astype(np.uint32)
    arrivals = schedule.Arrivals(
        arrival_ps=np.rint(column("queued_s") * 1e12).astype(np.uint64),
        isl_tok=isl,
        cached_tok=np.zeros_like(isl),
        osl_tok=osl,
        unit_from=np.cumsum([0, *map(len, units)]).astype(np.uint64),
        unit_of=np.concatenate(units).astype(np.uint32),
    )
    table = read_profile(
        dense=DATA / "dense.csv",
        per_sequence=DATA / "per_sequence.csv",
        attention=DATA / "attention.csv.gz",
        num_layers=32,
    )
    pool = schedule.Pool(
        name="rtx4090",
        role="mixed",
        replicas=1,
        table=table,
        token_budget=2048,
        max_seqs=256,
        kv_blocks=KV_BLOCKS,
        cache=schedule.Cache(),
    )
    outcome = schedule.run(schedule.Fleet(pools=(pool,), block_tok=BLOCK_TOK), arrivals)
    arrival = arrivals.arrival_ps.astype(np.float64)
    ttft_s = (outcome.first_ps - arrival) / 1e12
    e2e_s = (outcome.last_ps - arrival) / 1e12
    tpot_s = (e2e_s - ttft_s) / (osl - 1)
    return {
        "outcome": outcome,
        "e2e": np.abs(e2e_s / column("e2e_s") - 1),
        "ttft_mean": ttft_s.mean() / column("ttft_s").mean() - 1,
        "tpot_mean": tpot_s.mean() / column("tpot_s").mean() - 1,
    }


def test_each_request_ends_within_one_percent_on_average(errors):
    assert errors["e2e"].mean() <= 0.006
    assert np.quantile(errors["e2e"], 0.9) <= 0.015


def test_mean_times_are_within_half_a_percent(errors):
    assert abs(errors["ttft_mean"]) <= 0.005
    assert abs(errors["tpot_mean"]) <= 0.005


def test_it_preempts_as_the_real_run_did(errors):
    """vLLM counted 187 preemptions."""
    outcome = errors["outcome"]
    assert abs(outcome.total[0]["preemptions"] - 187) <= 5
    assert outcome.total[0]["emitted_tok"] == int(outcome.arrivals.osl_tok.sum())
