"""The compiled engine equals the step-by-step reference to the last picosecond and picojoule."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firstlight import schedule
from firstlight.steps import StepTable
from reference import schedule as reference


def make_table(rng, max_tok, max_seqs, scale):
    """A random table: monotone in tokens, like real ones, but with rough edges."""

    def rising(length, step):
        return np.concatenate([[0], np.cumsum(rng.integers(1, step + 1, length))]).astype(np.uint64)

    def flat(length, high):
        return rng.integers(0, high, length + 1).astype(np.uint64)

    floor = rising(max_seqs, scale)
    return StepTable(
        linear_ps=rising(max_tok, scale * 10),
        head_ps=rising(max_seqs, scale),
        prefill_attn_floor_ps=int(rng.integers(0, scale * 3)),
        prefill_attn_pair_fs=flat(max_tok, scale * 100),
        decode_attn_floor_ps=floor,
        decode_attn_ctx_ps=flat(max_seqs, max(2, scale // 8)),
        mix_1024=int(rng.integers(0, 1500)),
        linear_pj=rising(max_tok, 5000),
        head_pj=rising(max_seqs, 500),
        prefill_attn_pair_fj=flat(max_tok, 90_000),
        decode_attn_floor_pj=rising(max_seqs, 300),
        decode_attn_ctx_pj=flat(max_seqs, 40),
    )


def plain(table):
    return reference.Table(
        **{
            name: value if isinstance(value, int) else [int(v) for v in value]
            for name in reference.Table.__dataclass_fields__
            for value in [getattr(table, name)]
        }
    )


def make_case(seed):
    rng = np.random.default_rng(seed)
    block_tok = int(rng.choice([1, 4, 16]))
    split = bool(rng.integers(2))
    longest = int(rng.choice([12, 60, 200]))
    scale = int(rng.choice([3, 200, 10_000]))
    pools = []
    for role in ("prefill", "decode") if split else ("mixed",):
        max_seqs = int(rng.integers(1, 9))
        budget = int(rng.integers(max_seqs, max_seqs + longest))
        # Tight memory, so that preemption and blocked queues are common.
        fewest = -(-2 * longest // block_tok)
        kv_blocks = int(rng.integers(fewest, fewest * 3 + 2))
        pools.append(
            schedule.Pool(
                name=role,
                role=role,
                replicas=int(rng.integers(1, 4)),
                table=make_table(rng, budget + int(rng.integers(0, 3)), max_seqs, scale),
                token_budget=budget,
                max_seqs=max_seqs,
                kv_blocks=kv_blocks,
                watermark_blocks=int(rng.integers(0, 2)),
            )
        )
    fleet = schedule.Fleet(
        pools=tuple(pools),
        block_tok=block_tok,
        link_tok_ps=int(rng.integers(0, scale * 3)),
        link_latency_ps=int(rng.integers(0, scale * 30)),
        first_token=str(rng.choice(["prefill", "decode"])),
    )
    count = int(rng.integers(1, 40))
    isl = rng.integers(1, longest + 1, count)
    osl = np.where(rng.random(count) < 0.3, 1, rng.integers(1, longest + 1, count))
    cached = (isl * rng.random(count) * rng.integers(0, 2)).astype(np.int64)
    spread = scale * longest * int(rng.choice([0, 1, 40]))
    arrival = np.sort(rng.integers(0, spread + 1, count))
    arrivals = schedule.Arrivals(
        arrival_ps=arrival.astype(np.uint64),
        isl_tok=isl.astype(np.uint32),
        cached_tok=np.minimum(cached, isl - 1).astype(np.uint32),
        osl_tok=osl.astype(np.uint32),
    )
    return fleet, arrivals


def check(seed):
    fleet, arrivals = make_case(seed)
    outcome = schedule.run(fleet, arrivals)
    tables = {id(pool.table): plain(pool.table) for pool in fleet.pools}
    simulation = reference.Simulation(
        [
            reference.Pool(
                pool.role,
                pool.replicas,
                tables[id(pool.table)],
                pool.token_budget,
                pool.max_seqs,
                pool.kv_blocks,
                pool.watermark_blocks,
            )
            for pool in fleet.pools
        ],
        fleet.block_tok,
        fleet.link_tok_ps,
        fleet.link_latency_ps,
        fleet.first_token,
    )
    rows = zip(
        arrivals.arrival_ps.tolist(),
        arrivals.isl_tok.tolist(),
        arrivals.cached_tok.tolist(),
        arrivals.osl_tok.tolist(),
        strict=True,
    )
    simulation.run(list(rows))
    assert outcome.first_ps.tolist() == [r.first_ps for r in simulation.requests], seed
    assert outcome.last_ps.tolist() == [r.last_ps for r in simulation.requests], seed
    assert outcome.preemptions.tolist() == [r.preemptions for r in simulation.requests], seed
    assert list(outcome.total) == simulation.counters(), seed
    counts = {i: int(c) for i, c in enumerate(outcome.gap_counts) if c}
    assert counts == simulation.gaps, seed
    assert outcome.gap_sum_ps == simulation.gap_sum, seed
    assert list(outcome.free_blocks) == [r.free for r in simulation.replicas], seed
    return simulation


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**63 - 1))
def test_engine_equals_the_step_by_step_reference(seed):
    check(seed)


def test_the_random_cases_reach_every_corner():
    """The parity test is worth something only if its cases preempt, hand over, block and reject."""
    seen = {"preempted": 0, "handed": 0, "done": 0, "long": 0}
    for seed in range(150):
        simulation = check(seed)
        seen["preempted"] += sum(r.preemptions for r in simulation.requests)
        seen["handed"] += sum(r.decode is not None for r in simulation.requests)
        seen["done"] += sum(r.state == "done" for r in simulation.requests)
        seen["long"] += sum(r.osl > 50 for r in simulation.requests)
    assert min(seen.values()) > 50, seen


@pytest.mark.long
def test_ten_thousand_random_fleets():
    for seed in range(10_000, 20_000):
        check(seed)
