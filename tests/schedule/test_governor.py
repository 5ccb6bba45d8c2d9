"""Watts move to where they are needed, under one cap that holds all the time."""

from dataclasses import replace

import numpy as np
import pytest

from firstlight import schedule
from firstlight.errors import ScheduleError
from validation.test_queueing import TOKEN_PS, table

JOULE_A_TOKEN = 10_000_000  # pJ, so that a replica at full speed draws 10 W
CAP_W = 20.0


def energetic():
    energy = (JOULE_A_TOKEN * np.arange(4097)).astype(np.uint64)
    return replace(table(32), linear_pj=energy)


def fleet(governor=None, caps=(None, None)):
    pools = tuple(
        schedule.Pool(
            name=role,
            role=role,
            replicas=2,
            table=energetic(),
            token_budget=64,
            max_seqs=32,
            kv_blocks=4000,
            cap_w=cap_w,
        )
        for role, cap_w in zip(("prefill", "decode"), caps, strict=True)
    )
    return schedule.Fleet(pools=pools, governor=governor)


def governed(**changed):
    caps_w = schedule.shared_caps_w(fleet(), cap_w=CAP_W)
    settings = {"first": 4, "above_tok": 400, "below_tok": 100, "tick_ps": 5 * TOKEN_PS}
    return schedule.Governor(caps_w=caps_w, **(settings | changed))


def bursts():
    """Long prompts in bursts, then quiet times in which only answers are written."""
    at = np.repeat(np.arange(8) * 12_000, 12) + np.tile(np.arange(12) * 20, 8)
    isl = np.full(len(at), 240, np.uint32)
    return schedule.Arrivals(
        arrival_ps=(at * TOKEN_PS).astype(np.uint64),
        isl_tok=isl,
        cached_tok=np.zeros_like(isl),
        osl_tok=np.full(len(at), 100, np.uint32),
    )


def test_levels_share_the_cap_exactly():
    for level in schedule.shared_caps_w(fleet(), cap_w=CAP_W, levels=5):
        assert 2 * level[0] + 2 * level[1] == pytest.approx(CAP_W)


def mean_s(outcome):
    return float((outcome.last_ps - outcome.arrival_ps).mean()) / 1e12


def test_moving_watts_beats_equal_shares_and_nearly_the_best_of_all_fixed_shares():
    """It is not told the traffic; the best fixed share was found by trying all on it."""
    arrivals = bursts()
    levels = schedule.shared_caps_w(fleet(), cap_w=CAP_W)
    moved = mean_s(schedule.run(fleet(governed()), arrivals))
    fixed = [mean_s(schedule.run(fleet(caps=level), arrivals)) for level in levels]
    assert moved < 0.9 * fixed[len(levels) // 2]
    assert moved < 1.06 * min(fixed)


def test_the_same_work_takes_the_same_energy_wherever_the_watts_are():
    moved, fixed = (
        schedule.run(design, bursts()).total
        for design in (fleet(governed()), fleet(caps=(CAP_W / 4, CAP_W / 4)))
    )
    for name in ("prefill_linear_pj", "decode_linear_pj"):
        assert sum(pool[name] for pool in moved) == sum(pool[name] for pool in fixed)


def test_the_cap_holds_at_every_moment():
    outcome = schedule.run(fleet(governed()), bursts(), record=True)
    power = schedule.power_w(outcome, bin_s=20 * TOKEN_PS / 1e12)["power_w"]
    # A step that began before a change keeps its pace to its end; nothing else is above.
    assert power.max() <= CAP_W * 1.4
    assert np.mean(power > CAP_W * 1.001) < 0.05


@pytest.mark.parametrize(
    ("governor", "said"),
    [
        (governed(first=9), "one of two levels"),
        (governed(above_tok=5), "at most above_tok"),
        (governed(tick_ps=5), "1 us or more"),
        (replace(governed(), caps_w=((1.0,), (2.0,))), "one a pool"),
        (replace(governed(), caps_w=((1.0, 0.0), (2.0, 1.0))), "above 0"),
    ],
)
def test_impossible_governors_are_refused(governor, said):
    with pytest.raises(ScheduleError, match=said):
        schedule.run(fleet(governor), bursts())


def test_a_shared_cap_needs_two_sides_and_no_caps_beside_it():
    mixed = replace(fleet(), pools=(replace(fleet().pools[0], role="mixed"),))
    with pytest.raises(ScheduleError, match="prefill and decode"):
        schedule.shared_caps_w(mixed, cap_w=CAP_W)
    with pytest.raises(ScheduleError, match="one of the two"):
        schedule.run(fleet(governed(), caps=(3.0, None)), bursts())
