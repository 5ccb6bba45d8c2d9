"""Failures lose work and time, never a request."""

from dataclasses import replace

import numpy as np
import pytest

from firstlight import schedule
from firstlight.errors import ScheduleError
from validation.test_queueing import TOKEN_PS, table

DONE = schedule.STATES.index("done")
LONGEST = 200


def pool(role, replicas, **changed):
    settings = {"token_budget": 64, "max_seqs": 16, "kv_blocks": 120, "cache": schedule.Cache()}
    return schedule.Pool(
        name=role, role=role, replicas=replicas, table=table(16), **(settings | changed)
    )


def fleet(*, split, replicas=2, **changed):
    roles = ("prefill", "decode") if split else ("mixed",)
    pools = tuple(pool(role, replicas, **changed) for role in roles)
    return schedule.Fleet(
        pools=pools, block_tok=4, unit_tok=8, link_tok_ps=TOKEN_PS // 2, link_latency_ps=TOKEN_PS
    )


def traffic(count, *, gap, seed=3):
    rng = np.random.default_rng(seed)
    isl = rng.integers(1, LONGEST, count).astype(np.uint32)
    return schedule.Arrivals(
        arrival_ps=np.cumsum(rng.exponential(gap * TOKEN_PS, count)).astype(np.uint64),
        isl_tok=isl,
        cached_tok=np.zeros_like(isl),
        osl_tok=rng.integers(1, LONGEST, count).astype(np.uint32),
    )


def fault(kind, replica, begin, lasts, **changed):
    return schedule.Fault(
        kind=kind,
        replica=replica,
        from_ps=begin * TOKEN_PS,
        until_ps=(begin + lasts) * TOKEN_PS,
        **changed,
    )


@pytest.mark.parametrize(("split", "policy"), [(False, "vllm"), (False, "sglang"), (True, "vllm")])
def test_every_request_is_served_and_every_token_and_block_is_accounted_for(split, policy):
    design = fleet(split=split, policy=policy)
    arrivals = traffic(600, gap=110)
    replicas = 4 if split else 2
    # Every replica goes down in turn, the last two at the same time.
    faults = [
        fault("down", i, 9_000 + 11_000 * min(i, replicas - 2), 7_000) for i in range(replicas)
    ]
    outcome = schedule.run(design, arrivals, faults=faults)
    assert (outcome.state == DONE).all()
    whole = {name: sum(pool[name] for pool in outcome.total) for name in outcome.total[0]}
    assert whole["emitted_tok"] == arrivals.osl_tok.sum()
    assert whole["blocks_taken"] == whole["blocks_freed"]
    assert whole["rerouted"] > 0
    assert whole["lost_tok"] > 0
    assert outcome.free_blocks == (120,) * replicas
    first_late = outcome.first_ps >= outcome.arrival_ps
    assert first_late.all()


def test_while_all_are_down_requests_wait_and_then_go_on():
    design = fleet(split=True, replicas=1)
    arrivals = traffic(20, gap=100)
    faults = [fault("down", 0, 500, 5_000), fault("down", 1, 500, 9_000)]
    outcome = schedule.run(design, arrivals, faults=faults)
    assert (outcome.state == DONE).all()
    late = outcome.arrival_ps >= 500 * TOKEN_PS
    assert outcome.first_ps[late].min() > 5_500 * TOKEN_PS
    quiet = (outcome.last_ps > 500 * TOKEN_PS) & (outcome.last_ps < 9_500 * TOKEN_PS)
    assert not quiet.any()


def test_one_server_more_than_needed_keeps_the_service_through_a_loss():
    """N + 1 shows in goodput: three prefill servers lose one and hold, two lose one and do not."""
    arrivals = traffic(2000, gap=90)
    held = {}
    for servers in (2, 3):
        prefill = pool("prefill", servers, kv_blocks=4000)
        decode = replace(pool("decode", 2, kv_blocks=4000), table=quick())
        design = schedule.Fleet(pools=(prefill, decode), block_tok=4)
        faults = [fault("down", 0, 60_000, 60_000)]
        met = {}
        for name, given in (("whole", []), ("broken", faults)):
            outcome = schedule.run(design, arrivals, faults=given)
            met[name] = np.mean(outcome.first_ps - outcome.arrival_ps < 2_000 * TOKEN_PS)
        held[servers] = met["whole"] - met["broken"]
    assert held[2] > 0.2
    assert held[3] < 0.02


def quick():
    """A hundredth of the time: decode replicas that are never what is waited for."""
    return replace(table(16), linear_ps=(TOKEN_PS // 100 * np.arange(4097)).astype(np.uint64))


def test_an_engine_less_is_slower_by_its_share_and_nothing_is_lost():
    design = fleet(split=False, replicas=1)
    one = traffic(1, gap=1)
    slow = schedule.slower_table(design.pools[0].table, factor=1.5)
    lasts = (schedule.run(design, one).last_ps - one.arrival_ps)[0]
    outcome = schedule.run(design, one, faults=[fault("slow", 0, 0, 10**6, table=slow)])
    assert outcome.last_ps[0] - one.arrival_ps[0] == pytest.approx(1.5 * lasts, rel=1e-9)
    assert outcome.total[0]["rerouted"] == outcome.total[0]["lost_tok"] == 0


def test_a_link_that_stands_still_delays_pulls_by_as_long():
    design = fleet(split=True, replicas=1)
    one = traffic(1, gap=1)
    plain = schedule.run(design, one)
    begin = int(plain.first_ps[0]) // TOKEN_PS + 1  # the pull is under way
    held = schedule.run(design, one, faults=[fault("link-down", 1, begin, 777)])
    assert held.last_ps[0] - plain.last_ps[0] == 777 * TOKEN_PS


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (fault("down", 9, 0, 5), "below 4"),
        (fault("down", 0, 5, 0), "rising times"),
        (fault("link-down", 0, 0, 5), "decode pool"),
        (fault("link-slow", 2, 0, 5, slower=0.5), "1024"),
        (fault("slow", 0, 0, 5), "slow with a table"),
        (fault("slow", 0, 0, 5, table=table(7)), "fault.table"),
    ],
)
def test_impossible_faults_are_refused(given, said):
    with pytest.raises(ScheduleError, match=said):
        schedule.run(fleet(split=True), traffic(3, gap=9), faults=[given])
