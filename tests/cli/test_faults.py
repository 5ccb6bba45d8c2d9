"""Faults that were found by trying to break the command line, each kept as a test."""

import json

import numpy as np
import pytest

from firstlight import evaluate, schedule
from firstlight.errors import OutputError, ScenarioError
from firstlight.sweep import axis


def test_goodput_is_not_above_what_was_completed_nor_that_above_what_was_offered(small):
    answer = evaluate.compare(small, rate_request_per_s=20.0)
    for design in answer.designs:
        assert design.goodput_request_per_s <= design.request_per_s
    full = evaluate.compare(small, ratios=False)
    for design in full.designs:
        assert design.goodput_request_per_s <= design.request_per_s


def test_requests_cut_to_the_models_context_are_told_of(small):
    answer = evaluate.compare(
        small.replace(context_tok=200_000), rate_request_per_s=1.0, ratios=False
    )
    assert any("were cut to it" in line for line in answer.warnings)
    assert not any("were cut" in line for line in evaluate.compare(small, ratios=False).warnings)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
def test_an_axis_takes_finite_numbers_only(text):
    with pytest.raises(ScenarioError, match="finite"):
        axis.number(text, field="power_w")


def outcome():
    from firstlight.steps import StepTable

    def flat(length, value):
        return np.concatenate([[0], np.full(length, value)]).astype(np.uint64)

    table = StepTable(
        linear_ps=flat(64, 1000), head_ps=flat(8, 10), prefill_attn_floor_ps=0,
        prefill_attn_pair_fs=flat(64, 1), decode_attn_floor_ps=flat(8, 1),
        decode_attn_ctx_ps=flat(8, 1), mix_1024=1024, linear_pj=flat(64, 1), head_pj=flat(8, 1),
        prefill_attn_pair_fj=flat(64, 1), decode_attn_floor_pj=flat(8, 1),
        decode_attn_ctx_pj=flat(8, 1),
    )  # fmt: skip
    pool = schedule.Pool(
        name="p", role="mixed", replicas=1, table=table, token_budget=64, max_seqs=8, kv_blocks=99
    )
    fleet = schedule.Fleet(pools=(pool,))
    arrivals = schedule.Arrivals(
        arrival_ps=np.array([0, 5], np.uint64),
        isl_tok=np.array([4, 4], np.uint32),
        cached_tok=np.array([0, 0], np.uint32),
        osl_tok=np.array([2, 2], np.uint32),
    )
    return fleet, schedule.run(fleet, arrivals, record=True)


def test_a_timeline_is_written_whole_or_not_at_all(tmp_path):
    fleet, run = outcome()
    good = schedule.write_timeline(run, fleet=fleet, path=tmp_path / "ok é.json")
    assert json.loads(good.read_text())["traceEvents"]
    with pytest.raises(OutputError, match="nothing was written"):
        schedule.write_timeline(run, fleet=fleet, path=tmp_path / "none" / "t.json")
    with pytest.raises(OutputError):
        schedule.write_table(run, path=tmp_path / "none" / "t.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["ok é.json"]


def test_a_matrix_whose_header_lies_about_its_size_is_refused_in_one_line(tmp_path, run):
    lie = tmp_path / "lie.npy"
    with lie.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (10**12, 64)}
        np.lib.format.write_array_header_1_0(file, header)
        file.write(bytes(64))
    np.save(tmp_path / "w.npy", np.zeros((8, 64), np.float32))
    ran = run("emulate", "--x", str(lie), "--w", str(tmp_path / "w.npy"))
    assert ran.status == 2
    assert ran.err.count("\n") == 1
