"""`firstlight simulate`: a design, request by request."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from firstlight import schedule
from firstlight.cli.root import firstlight
from validation.test_queueing import table as one_server


def invoke(short_trace, *words):
    setting = f"trace={short_trace}"
    return CliRunner().invoke(
        firstlight, ["simulate", "--set", setting, "--set", "power_w=60kW", *words]
    )


def test_it_writes_a_row_a_request_and_a_timeline(short_trace, tmp_path):
    table, timeline = tmp_path / "requests.csv", tmp_path / "cell.json"
    result = invoke(
        short_trace, "--rate", "2", "--table", str(table), "--timeline", str(timeline), "--json"
    )
    assert result.exit_code == 0, result.output
    summary = json.loads(result.output)
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == summary["requests"] == summary["done"] > 0
    for row in rows:
        parts = float(row["queue_s"]) + float(row["prompt_s"]) + float(row["answer_s"])
        assert parts == pytest.approx(float(row["e2e_s"]))
    events = json.loads(timeline.read_text())["traceEvents"]
    steps = sum(event["args"]["steps"] for event in events if event["ph"] == "X")
    assert steps == sum(pool["steps"] for pool in summary["pools"])


def test_an_unknown_design_is_refused_with_the_nearest(short_trace):
    result = invoke(short_trace, "--design", "optcal")
    assert result.exit_code != 0
    assert "optical" in str(result.exception)


def test_a_cap_slows_and_a_governor_needs_one(short_trace):
    words = ["--design", "gpu-disaggregated", "--json"]
    free, capped, moved = (
        json.loads(invoke(short_trace, *words, *more).output)
        for more in ([], ["--cap", "8kW"], ["--cap", "8kW", "--governor", "100ms"])
    )
    assert sum(pool["capped_ps"] for pool in free["pools"]) == 0
    assert sum(pool["capped_ps"] for pool in capped["pools"]) > 0
    assert moved["events"] > capped["events"]
    for wrong, said in (
        (["--governor", "1s"], "needs --cap"),
        (["--cap", "0W"], "above 0"),
        (["--cap", "8kW", "--governor", "1ns"], "1 us or more"),
    ):
        assert said in str(invoke(short_trace, *words, *wrong).exception)
    alone = invoke(short_trace, "--design", "gpu-colocated", "--cap", "8kW", "--governor", "1s")
    assert "prefill and decode" in str(alone.exception)


def test_a_lost_server_costs_service_and_loses_no_request(short_trace):
    words = ["--design", "gpu-colocated", "--json", "--fault", "t=20s server=0 down=60s"]
    result = invoke(short_trace, *words)
    assert result.exit_code == 0, result.output
    summary = json.loads(result.output)
    assert summary["done"] == summary["requests"]
    assert sum(pool["rerouted"] for pool in summary["pools"]) > 0
    assert summary["met_frac"] < summary["met_frac_without_faults"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("t=20s server=0", "one of down="),
        ("t=20s server=0 down=3parsec", "is unknown"),
        ("t=20s sever=0 down=3s", "did you mean 'server'"),
        ("t=20s server=77 down=3s", "this cell has 0 to"),
        ("t=20s server=0 slow=0.5 for=3s", "1 to 1000"),
        ("t=20s server=0 slow=2", "slow=FACTOR and for="),
        ("t=20s link=0 down=1s", "nothing is sent between pools"),
        ("t=20s server=x down=1s", "0, 1, 2"),
        ("t=20s server=0 down=0s", "up to 1e6 s"),
    ],
)
def test_a_malformed_fault_is_refused_in_one_line(short_trace, words, said):
    result = invoke(short_trace, "--design", "gpu-colocated", "--fault", words)
    assert result.exit_code != 0
    assert said in str(result.exception)
    assert "\n" not in str(result.exception)


def test_power_over_time_integrates_to_the_energy_of_the_counters():
    energy = np.full(4097, 7_000_000, np.uint64)
    energy[0] = 0
    lines = replace(one_server(4), linear_pj=energy)
    pool = schedule.Pool(
        name="one", role="mixed", replicas=1, table=lines, token_budget=64, max_seqs=4, kv_blocks=99
    )
    ones = np.full(5, 30, np.uint32)
    arrivals = schedule.Arrivals(
        arrival_ps=np.arange(5, dtype=np.uint64) * np.uint64(10**8),
        isl_tok=ones,
        cached_tok=ones * 0,
        osl_tok=ones,
    )
    outcome = schedule.run(schedule.Fleet(pools=(pool,)), arrivals, record=True)
    bin_s = outcome.end_ps / 1e12 / 7
    power = schedule.power_w(outcome, bin_s=bin_s)
    joules = outcome.total[0]["prefill_linear_pj"] + outcome.total[0]["decode_linear_pj"]
    assert power["power_w"].sum() * bin_s == pytest.approx(joules * 1e-12)
    assert power["busy_replicas"].max() <= 1 + 1e-9


def test_drafts_shorten_a_token_and_are_told(short_trace):
    words = ["--design", "gpu-colocated", "--set", "max_seqs_count=100"]
    plain, drafted = (
        json.loads(invoke(short_trace, *words, "--json", *more).output)
        for more in ([], ["--speculate", "k=4 accept=0.8/0.6/0.4/0.3 draft=0.02"])
    )
    assert drafted["done"] == drafted["requests"] == plain["requests"]
    assert drafted["tpot_s_p50"] < 0.6 * plain["tpot_s_p50"]
    pool = drafted["pools"][0]
    assert pool["accepted_tok"] / pool["drafted_tok"] == pytest.approx(2.1 / 4, abs=0.03)
    text = invoke(short_trace, *words, "--speculate", "k=4 accept=0.7").output
    assert "of decode time went into them" in text
    assert "drafts:" not in invoke(short_trace, *words).output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("k=4", "k=… and accept=…"),
        ("accept=0.7", "k=… and accept=…"),
        ("k=4 acept=0.7", "did you mean 'accept'"),
        ("k=4 k=5 accept=0.7", "each once"),
        ("k=0 accept=0.7", "k=0 is not allowed; 1 to 32"),
        ("k=four accept=0.7", "k=four is not allowed"),
        ("k=4 accept=70%", "accept=70% is not allowed; 0 to 1"),
        ("k=4 accept=0.7/0.5", "2 shares are not allowed; one, or 4"),
        ("accept=0.5/0.7", "do not rise"),
        ("k=4 accept=0.7 draft=2", "draft=2 is not allowed; 0 to 1"),
        ("k=32 accept=0.7", "k=4 at most"),
    ],
)
def test_malformed_drafts_are_refused_in_one_line(short_trace, words, said):
    settings = ["--design", "gpu-colocated", "--set", "max_seqs_count=100"]
    result = invoke(short_trace, *settings, "--speculate", words)
    assert result.exit_code != 0
    assert said in str(result.exception)
    assert "\n" not in str(result.exception)


def test_drafts_are_for_vllm(short_trace):
    words = ["--design", "gpu-colocated", "--batching", "sglang", "--speculate", "k=1 accept=0.7"]
    assert "vllm-v1" in str(invoke(short_trace, *words).exception)
