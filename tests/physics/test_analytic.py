"""The fast tier against simulation, and its limits.

Error on the test grid, of goodput, energy and cost, simulated over closed form: within 0.75 to
1.3, median within 10 %; wider for presets whose single prompts or answers are near a limit. The
simulation here runs on a sample of the hour; docs/analytic.md has the same over the whole hour.
"""

from __future__ import annotations

import time

import numpy as np
import pytest

from firstlight.errors import ScenarioError
from firstlight.evaluate import design, question, search
from firstlight.evaluate.analytic import Point, estimate
from firstlight.evaluate.analytic.boundary import break_even, solve
from firstlight.scenario import Scenario

GRID = {
    "default": {},
    "tight": {"ttft_s": 0.5, "tpot_s": 0.03},
    "cold": {"cached_frac": 0.0},
    "slow mask": {"t_reload_s": 3e-5},
    "prompts of 4,096": {"context_tok": 4096},
}
PRESETS = {"code": {"preset": "code"}, "rag": {"preset": "rag"}}
LOW, HIGH, MEDIAN = 0.75, 1.3, 0.1
PRESET_LOW, PRESET_HIGH = 0.65, 1.4
"""Energy of a mixed pool under short answers (code) is the worst of them."""


@pytest.fixture(scope="module")
def point():
    return Point(Scenario.default())


@pytest.fixture(scope="module")
def compared():
    """Simulated over closed form: (case, design) -> (goodput, energy, cost)."""
    found = {}
    for case, changes in (GRID | PRESETS).items():
        scenario = Scenario.default().replace(**changes)
        asked = question.resolve(scenario)
        plans = [asked.plan(one) for one in scenario.designs]
        sample = asked.sample(plans)
        quick = estimate(scenario)
        for plan in plans:
            best = search.best_cell(plan, traffic=sample, slo=asked.slo, budget=asked.budget)
            solved = design.solve(plan, best, full=sample, slo=asked.slo, budget=asked.budget)
            slow, fast = design.record(solved, budget=asked.budget), quick[plan.name]
            found[case, plan.name] = (
                slow.goodput_request_per_s / fast.goodput_request_per_s,
                slow.energy_j_per_request / fast.energy_j_per_request,
                slow.cost_usd_per_request / fast.cost_usd_per_request,
            )
    return found


def test_closed_form_is_within_its_stated_error_of_simulation(compared):
    ratios = np.array([ratio for (case, _), ratio in compared.items() if case in GRID])
    assert ratios.min() > LOW
    assert ratios.max() < HIGH
    assert np.median(np.abs(ratios - 1.0)) < MEDIAN


def test_closed_form_of_presets_is_within_its_stated_error_of_simulation(compared):
    ratios = np.array([ratio for (case, _), ratio in compared.items() if case in PRESETS])
    assert ratios.min() > PRESET_LOW
    assert ratios.max() < PRESET_HIGH


def test_parallelism_is_what_the_simulation_takes_where_one_request_may_not_fit(compared):
    # One GPU holds too little KV for the longest prompts; compare refuses those few and so does this.
    assert estimate(Scenario.default())["gpu-disaggregated"].tp == {"prefill": 1, "decode": 2}


def test_order_of_designs_is_that_of_the_simulation(compared):
    for case, changes in (GRID | PRESETS).items():
        quick = estimate(Scenario.default().replace(**changes))
        by_form = sorted(quick, key=lambda name: quick[name].goodput_request_per_s)
        simulated = sorted(
            quick, key=lambda name: quick[name].goodput_request_per_s * compared[case, name][0]
        )
        assert by_form == simulated


@pytest.mark.parametrize(
    "changes",
    [
        {"power_w": 3e5, "pue": 1.1, "electricity_usd_per_kwh": 0.2},
        {"ttft_s": 1.0, "tpot_s": 0.04, "quantile": 0.95},
        {"cached_frac": 0.2, "context_tok": 2048, "output_tok": 100},
        {"t_reload_s": 2e-5, "engines": 8, "optical_price_ratio": 0.5},
        {"it_life_years": 3.0, "network_frac": 0.2, "server_margin_ratio": 1.3},
        {"model": "llama-3.1-8b", "power_w": 2e5},
    ],
)
def test_point_answers_as_a_changed_scenario_does(point, changes):
    whole = estimate(point.scenario.replace(**changes))
    for name, one in point.at(changes).items():
        assert one == whole[name]


def test_more_of_what_helps_never_carries_less(point):
    for name in ("optical+gpu", "gpu-disaggregated", "gpu-colocated"):
        for field, values in {
            "power_w": (1e5, 3e5, 1e6, 3e6),
            "ttft_s": (0.5, 1.0, 2.0, 4.0),
            "tpot_s": (0.03, 0.05, 0.1),
            "cached_frac": (0.0, 0.3, 0.6),
        }.items():
            carried = [point.at({field: v})[name].goodput_request_per_s for v in values]
            assert carried == sorted(carried), (name, field)


def test_faster_masks_never_carry_less(point):
    values = np.geomspace(1e-3, 1e-7, 9)
    carried = [point.at({"t_reload_s": v})["optical+gpu"].goodput_request_per_s for v in values]
    assert carried == sorted(carried)


def test_parts_of_cost_and_energy_do_not_exceed_the_whole(point):
    for one in point.at().values():
        assert 0 < one.prefill_energy_j_per_request < one.energy_j_per_request
        assert 0 < one.prefill_cost_usd_per_request < one.cost_usd_per_request
        assert sum(one.equipment_usd_per_request.values()) < one.cost_usd_per_request
        assert one.power_w <= 1e6
        assert one.mean_power_w < one.power_w


@pytest.mark.parametrize(
    ("values", "floor"),
    [
        ([{"power_w": v} for v in np.geomspace(1e5, 1e7, 200)], 500),
        ([{"t_reload_s": v} for v in np.geomspace(1e-6, 1e-4, 100)], 180),
        ([{"ttft_s": v} for v in np.linspace(0.5, 4.0, 100)], 130),
        ([{"cached_frac": v} for v in np.linspace(0.01, 0.9, 60)], 90),
        ([{"context_tok": round(v)} for v in np.linspace(512, 4096, 60)], 60),
    ],
    ids=["power", "engine", "limits", "cache", "lengths"],
)
def test_points_a_second_on_one_core(point, values, floor):
    # A third of what one busy core does, so that only a fall of a whole kind fails.
    point.at()
    began = time.thread_time()
    for changes in values:
        point.at(changes)
    assert len(values) / (time.thread_time() - began) > floor


def test_break_even_is_where_both_designs_are_equal(point):
    turn = break_even(point, field="t_reload_s", one="optical+gpu", other="gpu-disaggregated")
    assert turn.holds == "below"
    low = point.at({"t_reload_s": turn.value * 0.99})
    high = point.at({"t_reload_s": turn.value * 1.02})

    def margin(found):
        return (
            found["optical+gpu"].goodput_request_per_s_per_w
            - found["gpu-disaggregated"].goodput_request_per_s_per_w
        )

    assert margin(low) > 0 > margin(high)
    assert turn.distance_ratio == pytest.approx(turn.value / 1e-5)


def test_break_even_of_price_is_that_of_the_bill(point):
    turn = break_even(
        point,
        field="optical_price_ratio",
        one="optical+gpu",
        other="gpu-disaggregated",
        measure="cost_usd_per_request",
    )
    found = point.at({"optical_price_ratio": turn.value})
    costs = [found[name].cost_usd_per_request for name in ("optical+gpu", "gpu-disaggregated")]
    assert costs[0] == pytest.approx(costs[1], rel=2e-3)


def test_break_even_that_never_comes_says_where_it_holds(point):
    turn = break_even(
        point, field="pue", one="gpu-colocated", other="gpu-disaggregated",
        measure="energy_j_per_request",
    )  # fmt: skip
    assert turn.value is None
    assert turn.holds == "nowhere"


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"field": "t_reload"}, "did you mean 't_reload_s'"),
        ({"field": "t_reload_s", "low": 1e-3, "high": 1e-6}, "empty or inverted"),
        ({"field": "t_reload_s", "measure": "joy"}, "unknown measure"),
        ({"field": "t_reload_s", "one": "optical"}, "did you mean 'optical"),
        ({"field": "mask_bits_word"}, "unknown assumption"),
    ],
)
def test_break_even_refuses_what_it_does_not_know(point, keywords, message):
    asked = {"one": "optical+gpu", "other": "gpu-disaggregated"} | keywords
    with pytest.raises(ScenarioError, match=message):
        break_even(point, **asked)


def test_solve_finds_the_turn_nearest_to_today(point):
    turn = solve(
        point, field="power_w", holds=lambda c: not 2e5 < c["power_w"] < 5e5, low=1e5, high=1e7
    )
    assert turn.value == pytest.approx(5e5, rel=2e-3)
    assert turn.holds == "above"


def test_design_that_cannot_meet_the_limits_says_why(point):
    found = point.at({"t_reload_s": 1e-3})["optical+gpu"]
    assert not found.feasible
    assert "TTFT" in found.reason
    assert found.goodput_request_per_s == 0.0
