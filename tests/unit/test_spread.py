"""Ranges and distributions as values of a scenario: anywhere, there and back, and their limits."""

from __future__ import annotations

import numpy as np
import pytest

from firstlight.errors import ScenarioError
from firstlight.scenario import Scenario
from firstlight.sweep.draws import ranges

FILE = """
[workload]
context_tok = "500..3000"
[slo]
ttft_s = { dist = "lognormal", median = "2 s", sigma = 0.3 }
tpot_s = "40ms..60ms"
[facility]
electricity_usd_per_kwh = "0.05 $/kWh..0.12 $/kWh"
[assumptions]
t_reload_s = { dist = "loguniform", low = "1 us", high = "1 ms" }
f_cycle_hz = "normal(mean=1GHz, std=0.1GHz)"
it_life_years = { dist = "triangular", low = 3, mode = 5, high = 6 }
"""


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "rack.toml"
    path.write_text(FILE)
    return Scenario.load(path)


def test_a_field_holds_the_middle_of_what_it_may_be(scenario):
    assert scenario.slo.ttft_s == 2.0
    assert scenario.slo.tpot_s == pytest.approx(0.05)
    assert scenario.facility.electricity_usd_per_kwh == pytest.approx(0.085)
    assert scenario.workload.context_tok == 1750
    assert scenario.assumption("t_reload_s").value == pytest.approx(1e-6**0.5 * 1e-3**0.5)
    assert scenario.assumption("f_cycle_hz").value == 1e9
    assert scenario.assumption("it_life_years").value == 5.0


def test_a_scenario_with_distributions_goes_to_a_file_and_back(scenario, tmp_path):
    scenario.dump(tmp_path / "again.toml")
    again = Scenario.load(tmp_path / "again.toml")
    assert again == scenario
    assert again.hash() == scenario.hash()
    assert again.hash() != scenario.replace(ttft_s=2.0).hash()


def test_a_new_value_ends_the_uncertainty(scenario):
    assert "slo.ttft_s" in scenario.uncertain
    changed = scenario.replace(ttft_s=1.0)
    assert "slo.ttft_s" not in changed.uncertain
    assert "slo.tpot_s" in changed.uncertain
    assert scenario.replace(power_w="1 MW..2 MW").uncertain["facility.power_w"] == "1 MW..2 MW"


def test_every_uncertain_field_is_drawn(scenario):
    found = ranges(scenario)
    assert set(found) == {
        "context_tok", "ttft_s", "tpot_s", "electricity_usd_per_kwh", "t_reload_s", "f_cycle_hz",
        "it_life_years",
    }  # fmt: skip
    middle = {name: float(one.at(np.array([0.5]))[0]) for name, one in found.items()}
    assert middle["ttft_s"] == pytest.approx(2.0)
    assert middle["f_cycle_hz"] == pytest.approx(1e9)


def test_provenance_of_an_uncertain_field_has_its_range(scenario):
    fact = scenario.provenance("slo.tpot_s")
    assert fact.range == pytest.approx((0.04, 0.06))
    assert fact.source == "given in the scenario"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('ttft_s = "3 s..2 s"', "rack.toml:2: slo.ttft_s: '3 s..2 s' is inverted"),
        ('ttft_s = "0 s..2 s"', "rack.toml:2: slo.ttft_s: 0"),
        ('quantile = "0.5..1.5"', "rack.toml:2: slo.quantile: 1.5; allowed"),
        ('ttft_s = { dist = "lognorm", median = 1, sigma = 1 }', "did you mean 'lognormal'"),
        ('ttft_s = { dist = "lognormal", median = 1 }', "takes median, sigma"),
        ('ttft_s = { dist = "lognormal", median = "1 W", sigma = 1 }', "'W' is the wrong unit"),
        ('ttft_s = { dist = "normal", mean = 1, std = -1 }', "std, sigma and median above 0"),
        ('ttft_s = { dist = "triangular", low = 1, mode = 9, high = 2 }', "mode 9 is outside"),
        ('ttft_s = { dist = "uniform", low = 1, high = true }', "true; allowed"),
        ("ttft_s = { mean = 1 }", "{ mean = 1 }; allowed"),
    ],
)
def test_impossible_distributions_are_refused_with_file_and_line(tmp_path, line, said):
    path = tmp_path / "rack.toml"
    path.write_text(f"[slo]\n{line}\n")
    with pytest.raises(ScenarioError) as refused:
        Scenario.load(path)
    assert said in str(refused.value)
    assert "rack.toml:2" in str(refused.value)
    assert "\n" not in str(refused.value)
