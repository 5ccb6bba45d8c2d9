"""The prefix cache on a real trace with identities: Mooncake's conversation."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from firstlight import schedule
from firstlight.steps import StepTable

DATA = Path(__file__).parents[1] / "data" / "mooncake-conversation.npz"
UNIT_TOK = 512


@pytest.fixture(scope="module")
def arrivals():
    with np.load(DATA) as archive:
        isl, count = archive["isl_tok"], archive["unit_count"].astype(np.int64)
        step = archive["unit_step"].astype(np.uint32)
        begin = np.concatenate([[0], np.cumsum(count)])
        ids = [np.cumsum(step[a:b], dtype=np.uint32) for a, b in pairwise(begin)]
        # A unit that the prompt does not fill is not cached.
        full = [row[: length // UNIT_TOK] for row, length in zip(ids, isl, strict=True)]
        return schedule.Arrivals(
            arrival_ps=np.cumsum(archive["gap_ms"], dtype=np.uint64) * np.uint64(10**9),
            isl_tok=isl,
            cached_tok=np.zeros_like(isl),
            osl_tok=archive["osl_tok"],
            unit_from=np.cumsum([0, *map(len, full)]).astype(np.uint64),
            unit_of=np.concatenate(full),
        )


def fleet(*, kv_tok, dram=None, replicas=1, policy="least-load"):
    max_tok, max_seqs = 8192, 256
    by_tok, by_seq = np.zeros(max_tok + 1, np.uint64), np.zeros(max_seqs + 1, np.uint64)
    linear = (1_000_000_000 + 3_000_000 * np.arange(max_tok + 1)).astype(np.uint64)
    linear[0] = 0
    table = StepTable(
        linear_ps=linear,
        head_ps=by_seq,
        prefill_attn_floor_ps=0,
        prefill_attn_pair_fs=by_tok,
        decode_attn_floor_ps=by_seq,
        decode_attn_ctx_ps=np.full(max_seqs + 1, 100, np.uint64),
        mix_1024=1024,
        linear_pj=by_tok,
        head_pj=by_seq,
        prefill_attn_pair_fj=by_tok,
        decode_attn_floor_pj=by_seq,
        decode_attn_ctx_pj=by_seq,
    )
    pool = schedule.Pool(
        name="mixed",
        role="mixed",
        replicas=replicas,
        table=table,
        token_budget=max_tok,
        max_seqs=max_seqs,
        kv_blocks=kv_tok // 16,
        cache=schedule.Cache(dram=dram),
    )
    routing = schedule.Routing(policy=policy)
    return schedule.Fleet(pools=(pool,), unit_tok=UNIT_TOK, routing=routing)


def hit_frac(outcome):
    total = outcome.total[0]
    hit = total["hit_hbm_tok"] + total["hit_dram_tok"] + total["hit_storage_tok"]
    return hit / total["queried_tok"]


def test_an_infinite_cache_hits_as_the_trace_allows(arrivals):
    """By full units: tokens of units that were seen before, from the start, over prompt tokens."""
    outcome = schedule.run(fleet(kv_tok=10**9), arrivals)
    assert 0.36 <= hit_frac(outcome) <= 0.38
    seen, hit = set(), 0
    for a, b in pairwise(arrivals.unit_from):
        ids = arrivals.unit_of[int(a) : int(b)].tolist()
        known = next((i for i, unit in enumerate(ids) if unit not in seen), len(ids))
        hit += known * UNIT_TOK
        seen.update(ids)
    # A prompt that is cached whole computes its last unit again.
    assert (
        0 <= hit - hit_frac(outcome) * outcome.total[0]["queried_tok"] <= 12_031 * UNIT_TOK * 0.01
    )


def test_hits_rise_with_capacity_in_hbm_and_in_dram(arrivals):
    hbm = [hit_frac(schedule.run(fleet(kv_tok=tok), arrivals)) for tok in (10**6, 10**7, 10**8)]
    assert hbm == sorted(hbm)
    assert hbm[0] < 0.2 < 0.35 < hbm[2]
    tiers = [schedule.Tier(units=units, read_tok_ps=10_000) for units in (1_000, 20_000, 300_000)]
    dram = [hit_frac(schedule.run(fleet(kv_tok=10**6, dram=tier), arrivals)) for tier in tiers]
    assert hbm[0] < dram[0] < dram[1] < dram[2]
    assert dram[2] > 0.35


def test_routing_by_prefix_finds_what_load_alone_scatters(arrivals):
    by_load, by_prefix = (
        hit_frac(schedule.run(fleet(kv_tok=10**7, replicas=8, policy=policy), arrivals))
        for policy in ("least-load", "prefix-aware")
    )
    assert by_prefix > 1.5 * by_load
