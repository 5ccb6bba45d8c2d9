"""What queueing theory says of the simplest servers, the engine must say too."""

import numpy as np
import pytest

from firstlight import schedule
from firstlight.steps import StepTable

MAX_TOK = 4096
TOKEN_PS = 1_000_000


def table(max_seqs):
    """A step takes its tokens times a fixed time: one prompt after the other is a single server."""
    by_tok, by_seq = np.zeros(MAX_TOK + 1, np.uint64), np.zeros(max_seqs + 1, np.uint64)
    return StepTable(
        linear_ps=(TOKEN_PS * np.arange(MAX_TOK + 1)).astype(np.uint64),
        head_ps=by_seq,
        prefill_attn_floor_ps=0,
        prefill_attn_pair_fs=by_tok,
        decode_attn_floor_ps=by_seq,
        decode_attn_ctx_ps=by_seq,
        mix_1024=1024,
        linear_pj=by_tok,
        head_pj=by_seq,
        prefill_attn_pair_fj=by_tok,
        decode_attn_floor_pj=by_seq,
        decode_attn_ctx_pj=by_seq,
    )


def serve(isl, *, load, seed, osl=None, max_seqs=1):
    rng = np.random.default_rng(seed)
    service_ps = isl.mean() * TOKEN_PS
    arrival = np.cumsum(rng.exponential(service_ps / load, len(isl))).astype(np.uint64)
    pool = schedule.Pool(
        name="server",
        role="mixed",
        replicas=1,
        table=table(max_seqs),
        token_budget=MAX_TOK,
        max_seqs=max_seqs,
        kv_blocks=10**7,
    )
    isl = isl.astype(np.uint32)
    arrivals = schedule.Arrivals(
        arrival_ps=arrival,
        isl_tok=isl,
        cached_tok=np.zeros_like(isl),
        osl_tok=np.ones_like(isl) if osl is None else osl.astype(np.uint32),
    )
    return schedule.run(schedule.Fleet(pools=(pool,)), arrivals)


def waits(outcome):
    return (outcome.started_ps - outcome.arrival_ps).astype(np.float64)


def interval(values, batches=40):
    """Mean and four standard errors of it, by batch means."""
    means = values[: len(values) // batches * batches].reshape(batches, -1).mean(axis=1)
    return means.mean(), 4 * means.std(ddof=1) / np.sqrt(batches)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_fixed_prompts_wait_as_m_d_1_says(load):
    isl = np.full(200_000, 1000)
    mean, error = interval(waits(serve(isl, load=load, seed=3)))
    service_ps = 1000 * TOKEN_PS
    assert abs(mean - load * service_ps / (2 * (1 - load))) <= error


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_prompts_of_any_length_wait_as_pollaczek_and_khinchine_say(load):
    rng = np.random.default_rng(4)
    isl = np.minimum(rng.geometric(1 / 400, 200_000), MAX_TOK)
    mean, error = interval(waits(serve(isl, load=load, seed=5)))
    service_ps = isl * float(TOKEN_PS)
    rate = load / service_ps.mean()
    assert abs(mean - rate * (service_ps**2).mean() / (2 * (1 - load))) <= error


def test_littles_law_holds_of_the_queue():
    rng = np.random.default_rng(6)
    outcome = serve(rng.integers(1, 2000, 50_000), load=0.7, seed=7)
    inside = (outcome.last_ps - outcome.arrival_ps).astype(np.float64)
    events = np.concatenate([outcome.arrival_ps, outcome.last_ps]).astype(np.float64)
    change = np.concatenate([np.ones(50_000), -np.ones(50_000)])
    order = np.argsort(events, kind="stable")
    area = (np.cumsum(change[order])[:-1] * np.diff(events[order])).sum()
    assert area == pytest.approx(inside.sum(), rel=1e-9)


def test_no_work_is_lost_and_the_server_never_idles_beside_a_queue():
    rng = np.random.default_rng(8)
    isl = rng.integers(1, 2000, 20_000)
    outcome = serve(isl, load=0.9, seed=9)
    total = outcome.total[0]
    assert total["prefill_ps"] + total["decode_ps"] == int(isl.sum()) * TOKEN_PS
    # One server: each starts when it has arrived and the one before it is done.
    free = np.concatenate([[np.uint64(0)], outcome.last_ps[:-1]])
    assert np.array_equal(outcome.started_ps, np.maximum(outcome.arrival_ps, free))


def test_first_come_is_first_served_and_nobody_starves():
    rng = np.random.default_rng(10)
    isl, osl = rng.integers(1, 4000, 5_000), rng.integers(1, 400, 5_000)
    outcome = serve(isl, load=1.5, seed=11, osl=osl, max_seqs=16)
    assert np.all(np.diff(outcome.started_ps.astype(np.int64)) >= 0)
    assert np.all(outcome.last_ps < schedule.NEVER)


def test_equal_answers_share_the_processor():
    """Answers of one length that start together end together, at n times the time of one."""
    isl, osl = np.full(8, 1), np.full(8, 500)
    outcome = serve(isl, load=1e9, seed=12, osl=osl, max_seqs=8)
    assert len(np.unique(outcome.last_ps)) <= 2
    assert int(outcome.last_ps.max()) == pytest.approx(8 * 500 * TOKEN_PS, rel=0.01)
