"""Shipped sessions: who waits for whom, what prompts share, and what a run makes of it."""

import dataclasses
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from firstlight import schedule, workload
from firstlight.errors import TraceError
from firstlight.steps import StepTable


@pytest.fixture(scope="module")
def made():
    return workload.draw_sessions("agentic", count=24, session_per_s=0.02, longest_think_s=600.0)


def rows_of(made, session):
    return np.flatnonzero(made.session_of == session)


def units(made, row):
    return made.unit_of[int(made.unit_from[row]) : int(made.unit_from[row + 1])]


def fleet(made, *, kv_tok):
    max_tok, max_seqs = 8192, 256
    by_tok, by_seq = np.zeros(max_tok + 1, np.uint64), np.zeros(max_seqs + 1, np.uint64)
    linear = (5_000_000_000 + 10_000_000 * np.arange(max_tok + 1)).astype(np.uint64)
    linear[0] = 0
    table = StepTable(
        linear_ps=linear, head_ps=by_seq, prefill_attn_floor_ps=0, prefill_attn_pair_fs=by_tok,
        decode_attn_floor_ps=by_seq, decode_attn_ctx_ps=np.full(max_seqs + 1, 100, np.uint64),
        mix_1024=1024, linear_pj=by_tok, head_pj=by_seq, prefill_attn_pair_fj=by_tok,
        decode_attn_floor_pj=by_seq, decode_attn_ctx_pj=by_seq,
    )  # fmt: skip
    pool = schedule.Pool(
        name="mixed", role="mixed", replicas=1, table=table, token_budget=max_tok,
        max_seqs=max_seqs, kv_blocks=kv_tok // 64, cache=schedule.Cache(),
    )  # fmt: skip
    return schedule.Fleet(pools=(pool,), block_tok=64, unit_tok=made.unit_tok)


def hit_frac(outcome):
    return outcome.total[0]["hit_hbm_tok"] / outcome.total[0]["queried_tok"]


def test_every_turn_but_the_first_waits_for_the_one_before(made):
    assert (len(made.isl_tok), len(made.follow_of)) == (724, 700)
    for session in range(24):
        rows = rows_of(made, session)
        assert (np.diff(rows) == 1).all()
        for row, before in zip(rows[1:], rows[:-1], strict=True):
            begin, end = made.follow_from[row : row + 2]
            assert made.follow_of[int(begin) : int(end)].tolist() == [before]
        assert made.follow_from[rows[0]] == made.follow_from[rows[0] + 1]


def test_prompts_have_whole_units_and_mostly_grow_from_the_one_before(made):
    shared = total = 0
    for session in range(24):
        for before, row in pairwise(rows_of(made, session)):
            a, b = units(made, before), units(made, row)
            assert len(b) == made.isl_tok[row] // 64
            n = min(len(a), len(b))
            same = a[:n] == b[:n]
            shared += n if same.all() else int(same.argmin())
            total += len(b)
            if len(a) and len(b):
                # chained ids: after the first that differs none is equal in place
                assert not same[int(same.argmin()) :].any() or same.all()
    assert shared / total > 0.9


def test_sessions_and_copies_share_nothing():
    made = workload.draw_sessions(count=60, session_per_s=1.0, seed=3)
    seen = set()
    for session in range(60):
        rows = rows_of(made, session)
        mine = set(np.concatenate([units(made, row) for row in rows]).tolist())
        assert not mine & seen
        seen |= mine
    lengths = [tuple(made.isl_tok[rows_of(made, session)]) for session in range(60)]
    assert len(set(lengths[:24])) == len(set(lengths[24:48])) == len(set(lengths)) == 24


def test_longer_units_share_what_they_cover(made):
    longer = workload.draw_sessions(
        count=24, session_per_s=0.02, longest_think_s=600.0, unit_tok=512
    )
    assert (longer.isl_tok == made.isl_tok).all()
    for row in (1, 100, 500):
        fine, coarse = units(made, row), units(longer, row)
        assert len(coarse) == longer.isl_tok[row] // 512
        offset = {int(c) - int(f) for c, f in zip(coarse, fine[7::8], strict=False)}
        assert len(offset) == 1


def test_a_run_keeps_the_order_of_turns_and_finds_their_prefixes(made):
    outcome = schedule.run(fleet(made, kv_tok=2**31), schedule.Arrivals(**made.columns()))
    waits = np.flatnonzero(np.diff(made.follow_from))
    ready = outcome.last_ps[made.follow_of] + made.think_ps[waits]
    assert (outcome.arrival_ps[waits] == ready).all()
    assert outcome.total[0]["emitted_tok"] == int(made.osl_tok.sum())
    expected = 0
    for session in range(24):
        known = set()
        for row in rows_of(made, session):
            ids = units(made, row).tolist()
            hit = next((i for i, unit in enumerate(ids) if unit not in known), len(ids))
            expected += 64 * min(hit, (int(made.isl_tok[row]) - 1) // 64)
            known.update(ids)
    assert outcome.total[0]["hit_hbm_tok"] == expected
    assert hit_frac(outcome) > 0.9


def test_less_memory_finds_less(made):
    arrivals = schedule.Arrivals(**made.columns())
    hits = [
        hit_frac(schedule.run(fleet(made, kv_tok=tok), arrivals)) for tok in (2**20, 2**22, 2**31)
    ]
    assert hits[0] < hits[1] <= hits[2]


def test_the_same_seed_gives_the_same_sessions_and_another_does_not(made):
    again = workload.draw_sessions("agentic", count=24, session_per_s=0.02, longest_think_s=600.0)
    for field in dataclasses.fields(made):
        assert np.array_equal(getattr(made, field.name), getattr(again, field.name))
    other = workload.draw_sessions(count=24, session_per_s=0.02, seed=1)
    assert not np.array_equal(other.isl_tok, made.isl_tok)
    assert int(other.think_ps.max()) > int(made.think_ps.max()) == 600 * 10**12
    starts = np.unique(
        workload.draw_sessions(count=2000, session_per_s=5.0, unit_tok=4096).arrival_ps
    )
    assert len(starts) / (starts[-1] / 1e12) == pytest.approx(5.0, rel=0.1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "agentik"}, "one of agentic; did you mean 'agentic'"),
        ({"count": 0}, "count: 0 is not allowed"),
        ({"session_per_s": 0.0}, "session_per_s: 0.0 is not allowed; above 0"),
        ({"session_per_s": 1e-9}, "at most 1e\\+07 s"),
        ({"seed": -1}, "seed: -1 is not allowed"),
        ({"unit_tok": 100}, "unit_tok: 100 is not allowed; a multiple of 64"),
        ({"longest_think_s": -1.0}, "longest_think_s: -1.0 is not allowed"),
        ({"count": 10**6, "session_per_s": 1.0}, "too many cache units; at most"),
    ],
)
def test_what_is_not_possible_is_refused_in_one_line(change, said):
    with pytest.raises(TraceError, match=said):
        workload.draw_sessions(**{"count": 2, "session_per_s": 1.0, **change})


def test_the_example_of_the_docs_prints_what_they_show(capsys):
    note = (Path(__file__).parents[2] / "docs" / "scheduler.md").read_text()
    code = next(
        block for block in note.split("```python\n")[1:] if "workload.draw_sessions" in block
    )
    code, rest = code.split("```", 1)
    exec(compile(code, "docs/scheduler.md", "exec"), {})  # noqa: S102  # our own page
    assert capsys.readouterr().out.strip() == rest.split("```text\n")[1].split("```")[0].strip()
