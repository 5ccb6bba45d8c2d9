"""NVIDIA's DynoSim, request by request, in the mode that imitates it."""

from pathlib import Path

import numpy as np
import pytest

from firstlight import schedule
from firstlight.steps import StepTable

DATA = Path(__file__).parents[1] / "data" / "dynosim-1p1d.npz"
MAX_TOK, MAX_SEQS = 8192, 512
BY_DECODE = {"first_token": "decode"}
PASS_MS = 14.6
"""The longest decode pass but one in a hundred, as DynoSim's own report says."""


def table(*, token_ps):
    by_tok, by_seq = np.zeros(MAX_TOK + 1, np.uint64), np.zeros(MAX_SEQS + 1, np.uint64)
    linear = (13_500_000_000 + token_ps * np.arange(MAX_TOK + 1)).astype(np.uint64)
    linear[0] = 0
    return StepTable(
        linear_ps=linear,
        head_ps=by_seq,
        prefill_attn_floor_ps=0,
        prefill_attn_pair_fs=by_tok,
        decode_attn_floor_ps=by_seq,
        decode_attn_ctx_ps=np.full(MAX_SEQS + 1, 27_200, np.uint64),
        mix_1024=1024,
        linear_pj=by_tok,
        head_pj=by_seq,
        prefill_attn_pair_fj=by_tok,
        decode_attn_floor_pj=by_seq,
        decode_attn_ctx_pj=by_seq,
    )


@pytest.fixture(scope="module")
def peer():
    with np.load(DATA) as archive:
        return {name: archive[name] for name in archive.files}


def run(peer, *, imitate):
    pools = tuple(
        schedule.Pool(
            name=role,
            role=role,
            replicas=1,
            table=table(token_ps=token_ps),
            token_budget=budget,
            max_seqs=256,
            kv_blocks=10**6,
        )
        for role, token_ps, budget in (("prefill", 64_300_000, 8192), ("decode", 0, 512))
    )
    fleet = schedule.Fleet(pools=pools, link_tok_ps=6_553_600, imitate_dynosim=imitate, **BY_DECODE)
    isl = peer["isl_tok"].astype(np.uint32)
    arrivals = schedule.Arrivals(
        arrival_ps=peer["arrival_us"].astype(np.uint64) * 10**6,
        isl_tok=isl,
        cached_tok=np.zeros_like(isl),
        osl_tok=peer["osl_tok"].astype(np.uint32),
    )
    return schedule.run(fleet, arrivals)


def differences_ms(peer, outcome):
    for name, when in (("ttft_ns", outcome.first_ps), ("e2e_ns", outcome.last_ps)):
        took_ms = (when - outcome.arrival_ps) / 1e9
        yield np.abs(took_ms - peer[name] / 1e6)


def test_first_and_last_tokens_come_when_dynosim_says(peer):
    outcome = run(peer, imitate=True)
    assert outcome.total[1]["steps"] == 249_116, "its own count of decode passes"
    for difference in differences_ms(peer, outcome):
        assert np.median(difference) <= 1e-3
        assert np.quantile(difference, 0.99) <= PASS_MS


def test_the_difference_of_the_two_rules_is_below_two_passes(peer):
    for difference in differences_ms(peer, run(peer, imitate=False)):
        assert 1.0 < np.median(difference) < PASS_MS
        assert np.quantile(difference, 0.99) <= 2 * PASS_MS
