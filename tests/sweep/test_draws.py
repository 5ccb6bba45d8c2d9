"""Ranges as values: percentiles, wins, tornado, and Sobol indices of a textbook function."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from firstlight.cli.root import firstlight
from firstlight.errors import ScenarioError
from firstlight.evaluate.analytic import Point
from firstlight.scenario import Scenario
from firstlight.sweep import draws
from firstlight.sweep.axis import axis

pytest.importorskip("scipy", reason="the extra 'sweep' is not installed")


def test_sobol_indices_of_the_ishigami_function():
    a, b = 7.0, 0.1

    def ishigami(unit):
        x, y, z = (2 * unit - 1) * np.pi
        return np.sin(x) + a * np.sin(y) ** 2 + b * z**4 * np.sin(x)

    variance = a**2 / 8 + b * np.pi**4 / 5 + b**2 * np.pi**8 / 18 + 0.5
    first = np.array([0.5 * (1 + b * np.pi**4 / 5) ** 2, a**2 / 8, 0.0]) / variance
    third = b**2 * np.pi**8 * (1 / 18 - 1 / 50) / variance
    total, main = draws.sobol_indices(ishigami, 3, draws=4096, seed=3)
    assert main == pytest.approx(first, abs=0.02)
    assert total == pytest.approx(first + np.array([third, 0, third]), abs=0.03)


@pytest.mark.parametrize("sampler", ["sobol", "latin-hypercube"])
def test_draws_fill_each_tenth_evenly_and_repeat_with_the_seed(sampler):
    given = [axis("a", "0..1"), axis("b", "1..2")]
    points = draws.sample(given, draws=640, seed=5, sampler=sampler)
    counts = np.histogram(points[:, 0], bins=10, range=(0, 1))[0]
    assert counts.min() >= 60
    assert np.array_equal(points, draws.sample(given, draws=640, seed=5, sampler=sampler))
    assert not np.array_equal(points, draws.sample(given, draws=640, seed=6, sampler=sampler))


@pytest.fixture(scope="module")
def found():
    scenario = Scenario.default().replace(t_reload_s="1 us..1 ms", optical_price_ratio="0.3..3")
    return draws.uncertainty(scenario, draws=64)


def test_ranges_of_the_scenario_are_what_is_uncertain(found):
    assert found.fields == ("t_reload_s", "optical_price_ratio")


def test_designs_without_uncertain_parts_have_one_value(found):
    assert np.ptp(found.values["gpu-colocated"]["energy_j_per_request"]) == 0
    assert found.works_frac["gpu-colocated"] == 1.0
    assert 0 < found.works_frac["optical+gpu"] < 1


def test_wins_are_the_share_of_draws_in_which_the_point_itself_wins(found):
    point = Point(Scenario.default())
    wins = 0
    for reload_s, ratio in found.draws:
        one = point.at({"t_reload_s": reload_s, "optical_price_ratio": ratio})
        light = one["optical+gpu"].goodput_request_per_s_per_w
        wins += light > max(
            one[name].goodput_request_per_s_per_w for name in ("gpu-colocated", "gpu-disaggregated")
        )
    assert found.wins_frac["goodput_request_per_s_per_w"] == pytest.approx(wins / 64)


def test_percentiles_are_ordered(found):
    for measures in found.percentiles.values():
        for low, middle, high in measures.values():
            assert low <= middle <= high


def test_reload_decides_goodput_and_price_does_not(found):
    assert found.measure_first == "t_reload_s"
    assert found.tornado[0].field == "t_reload_s"
    price = next(bar for bar in found.tornado if bar.field == "optical_price_ratio")
    assert price.swing == 0


def test_price_decides_cost():
    scenario = Scenario.default().replace(optical_price_ratio="0.3..30")
    found = draws.uncertainty(scenario, draws=16, measure="cost_usd_per_request")
    assert found.measure_first == "optical_price_ratio"
    assert found.sobol_total["optical_price_ratio"] == pytest.approx(1.0, abs=0.1)


def test_undisclosed_inputs_have_ranges_around_what_can_be_simulated():
    scenario = Scenario.default()
    given = draws.undisclosed(scenario)
    assert {"t_reload_s", "f_cycle_hz", "engines", "optical_price_ratio"} <= set(given)
    for name, one in given.items():
        for end in one.span:
            scenario.replace(**{name: draws.rounded(name, end)})


def test_nothing_uncertain_is_refused():
    scenario = Scenario.default()
    silicon = scenario.replace(designs=[d for d in scenario.designs if "optical" not in d.name])
    with pytest.raises(ScenarioError, match="nothing is uncertain"):
        draws.uncertainty(silicon)


def test_inverted_range_is_refused():
    with pytest.raises(ScenarioError, match="inverted"):
        draws.uncertainty(Scenario.default(), over={"t_reload_s": "1ms..1us"})


def test_command_prints_wins_and_what_to_measure_in_80_columns():
    result = CliRunner().invoke(
        firstlight, ["sweep", "--set", "t_reload_s=1us..1ms", "--draws", "32"],
        catch_exceptions=False,
    )  # fmt: skip
    assert result.exit_code == 0
    assert max(len(line) for line in result.stdout.splitlines()) <= 80
    assert "is best in" in result.stdout
    assert "Worth measuring first: t_reload_s" in result.stdout
