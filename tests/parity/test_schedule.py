"""The compiled engine equals the step-by-step reference to the last picosecond and picojoule."""

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firstlight import schedule
from parity.schedule_cases import make_case, speculating
from reference import fleet as records
from reference import schedule as reference

STATE = {name: number for number, name in enumerate(schedule.STATES)}

COUNTED = (
    "hit_hbm_tok",
    "hit_dram_tok",
    "hit_storage_tok",
    "resumed_hit_tok",
    "pull_saved_tok",
    "capped_ps",
    "local_prompts",
    "rerouted",
    "lost_tok",
)

SGLANG = ("chunked", "deferred", "retracted", "deduped")


def plain(table):
    same = {
        name: value if isinstance(value, int) else [int(v) for v in value]
        for name in records.Table.__dataclass_fields__
        if name != "mixed"
        for value in [getattr(table, name)]
    }
    mixed = table.mixed
    if mixed is not None:
        axes = tuple(points.tolist() for points in mixed.axes)
        mixed = (axes, mixed.attn_ps.tolist(), round(1024 * mixed.skew_frac))
    return records.Table(**same, mixed=mixed)


def plain_pool(pool):
    def tier(given):
        given = given or schedule.Tier(units=0)
        return records.Tier(*(getattr(given, name) for name in records.Tier.__dataclass_fields__))

    cache = None
    if pool.cache is not None:
        tiers = [tier(pool.cache.dram), tier(pool.cache.storage)]
        cache = (tiers, pool.cache.write_back == "reused")
    same = {
        name: getattr(pool, name)
        for name in records.Pool.__dataclass_fields__
        if name not in ("table", "cache", "cap", "sglang", "speculation")
    }
    cap = None
    if pool.cap_w is not None:
        cap = plain(schedule.below_power(pool.table, cap_w=pool.cap_w))
    sglang = records.Rule(**schedule.sglang_shares(pool.sglang))
    speculation = None
    if pool.speculation is not None:
        speculation = records.Speculation(**schedule.speculation_shares(pool.speculation))
    return records.Pool(
        **same,
        table=plain(pool.table),
        cache=cache,
        cap=cap,
        sglang=sglang,
        speculation=speculation,
    )


def settings_of(fleet):
    routing, split = fleet.routing, fleet.disaggregation
    return records.Settings(
        block_tok=fleet.block_tok,
        unit_tok=fleet.unit_tok,
        link_tok_ps=fleet.link_tok_ps,
        link_latency_ps=fleet.link_latency_ps,
        link_layers=fleet.link_layers,
        first_token=fleet.first_token,
        routing=routing.policy,
        weight_1024=round(1024 * routing.weight),
        disaggregation=split.policy,
        local_below_tok=split.local_below_tok,
        local_queue_tok=split.queue_tok,
        local_busy_seqs=split.busy_seqs,
        governor=plain_governor(fleet),
    )


def plain_governor(fleet):
    governor = fleet.governor
    if governor is None:
        return None
    caps = [
        [
            plain(schedule.below_power(pool.table, cap_w=cap_w))
            for pool, cap_w in zip(fleet.pools, level, strict=True)
        ]
        for level in governor.caps_w
    ]
    return (governor.tick_ps, caps, governor.first, governor.above_tok, governor.below_tok)


def plain_fault(fault):
    what = plain(fault.table) if fault.kind == "slow" else round(1024 * fault.slower)
    return (fault.kind, fault.replica, fault.from_ps, fault.until_ps, what)


def check(seed, only=None, *, drafts=False):
    fleet, arrivals, faults = make_case(seed, only)
    if drafts:
        fleet = speculating(fleet, seed)
    outcome = schedule.run(fleet, arrivals, faults=faults)
    simulation = reference.Simulation(
        [plain_pool(pool) for pool in fleet.pools], settings_of(fleet)
    )
    parents = arrivals.follow_of.tolist()
    begin, ids = arrivals.unit_from.tolist(), arrivals.unit_of.tolist()
    rows = zip(
        arrivals.arrival_ps.tolist(),
        arrivals.isl_tok.tolist(),
        arrivals.cached_tok.tolist(),
        arrivals.osl_tok.tolist(),
        [tuple(ids[a:b]) for a, b in pairwise(begin)],
        [tuple(parents[a:b]) for a, b in pairwise(arrivals.follow_from.tolist())],
        arrivals.think_ps.tolist(),
        strict=True,
    )
    simulation.run(list(rows), arrivals.in_flight, [plain_fault(fault) for fault in faults])
    came = [r.arrival_ps for r in simulation.requests if r.state != "rejected"]
    assert outcome.arrival_ps[outcome.state != STATE["rejected"]].tolist() == came, seed
    assert outcome.first_ps.tolist() == [r.first_ps for r in simulation.requests], seed
    assert outcome.last_ps.tolist() == [r.last_ps for r in simulation.requests], seed
    started = [r.started_ps for r in simulation.requests]
    assert outcome.started_ps.tolist() == started, seed
    assert outcome.preemptions.tolist() == [r.preemptions for r in simulation.requests], seed
    assert list(outcome.total) == simulation.counters(), seed
    counts = {i: int(c) for i, c in enumerate(outcome.gap_counts) if c}
    assert counts == simulation.gaps, seed
    assert outcome.gap_sum_ps == simulation.gap_sum, seed
    assert list(outcome.free_blocks) == [r.free for r in simulation.replicas], seed
    return simulation


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**63 - 1))
def test_engine_equals_the_step_by_step_reference(seed):
    check(seed)


def test_the_random_cases_reach_every_corner():
    """The parity test is worth something only if its cases preempt, hand over, block and reject."""
    seen = dict.fromkeys(
        ("preempted", "handed", "done", "long", "followed", "bounded", "shifts", *COUNTED), 0
    )
    survived = 0
    for seed in range(400):
        simulation = check(seed)
        seen["preempted"] += sum(r.preemptions for r in simulation.requests)
        seen["handed"] += sum(r.decode is not None for r in simulation.requests)
        seen["done"] += sum(r.state == "done" for r in simulation.requests)
        seen["long"] += sum(r.osl > 50 for r in simulation.requests)
        seen["followed"] += sum(bool(r.parents) and r.state == "done" for r in simulation.requests)
        seen["bounded"] += simulation.bounded
        seen["shifts"] += simulation.shifts
        survived += simulation.survived
        assert simulation.stalls == 0, seed
        for name in COUNTED:
            seen[name] += sum(count[name] for count in simulation.counters())
    assert min(seen.values()) > 40, {name: count for name, count in seen.items() if count <= 40}
    assert survived > 5  # a KV cache outlived the replica it was to go to


def test_the_random_cases_reach_every_corner_of_sglang():
    """Prompts are cut, deferred behind their like, retracted and found to be computed twice."""
    seen = dict.fromkeys(SGLANG, 0)
    for seed in range(200):
        simulation = check(seed, only="sglang")
        for name in SGLANG:
            seen[name] += getattr(simulation, name)
    assert min(seen.values()) > 30, seen


def test_the_random_cases_reach_every_corner_of_speculation():
    """Drafts hold, fail, reach beyond the end, and cost room: all of it as the reference says."""
    seen = dict.fromkeys(
        ("drafted_tok", "accepted_tok", "draft_ps", "cut_short", "preempted", "pulled", *COUNTED), 0
    )
    for seed in range(600):
        simulation = check(seed, "vllm" if seed % 3 == 0 else None, drafts=True)
        seen["cut_short"] += simulation.cut_short
        for pool, count in zip(simulation.pools, simulation.counters(), strict=True):
            if pool.speculation is None:
                continue
            seen["preempted"] += count["preemptions"]
            seen["pulled"] += count["pulled_tok"]
            for name in ("drafted_tok", "accepted_tok", "draft_ps", *COUNTED):
                seen[name] += count[name]
    assert min(seen.values()) > 40, seen


@pytest.mark.long
def test_ten_thousand_random_fleets():
    for seed in range(10_000, 20_000):
        check(seed)
        if seed % 2 == 0:
            check(seed, drafts=True)
        if seed % 4 == 0:
            check(seed, only="sglang")
