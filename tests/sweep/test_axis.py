"""Forms of what is varied, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from firstlight.errors import ScenarioError
from firstlight.sweep.axis import Axis, Distribution, axis, parse_over


def test_logarithmic_grid_has_equal_ratios():
    made = axis("power_w", "1e5..1e7:log:5")
    assert isinstance(made, Axis)
    assert np.diff(np.log10(made.values)) == pytest.approx([0.5] * 4)
    assert made.values[0] == 1e5
    assert made.values[-1] == 1e7


def test_even_grid_has_equal_steps():
    assert axis("pue", "1..2:lin:3").values == (1.0, 1.5, 2.0)


def test_units_are_read():
    assert axis("t_reload_s", "1 us..1 ms:log:2").values == pytest.approx((1e-6, 1e-3))
    assert axis("power_w", "100 kW,1 MW").values == (1e5, 1e6)


def test_list_keeps_words_and_numbers():
    assert axis("model", "llama-3.1-8b,llama-3.1-70b").values == ("llama-3.1-8b", "llama-3.1-70b")
    assert axis("engines", [1, 2, 4]).values == (1.0, 2.0, 4.0)


def test_range_over_more_than_a_decade_is_drawn_in_its_logarithm():
    wide, narrow = axis("t_reload_s", "1e-6..1e-3"), axis("pue", "1.0..1.5")
    assert isinstance(wide, Distribution)
    assert wide.at(np.array([0.5]))[0] == pytest.approx(10**-4.5)
    assert narrow.at(np.array([0.5]))[0] == pytest.approx(1.25)


@pytest.mark.parametrize(
    "form",
    [
        "5..20",
        "lognormal(median=10us, sigma=1)",
        "normal(mean=5, std=1)",
        "triangular(low=1, mode=2, high=4)",
        {"dist": "loguniform", "low": 1.0, "high": 10.0},
    ],
)
def test_quantiles_rise_and_stay_in_the_span(form):
    made = axis("x", form)
    values = made.at(np.linspace(0, 1, 101))
    assert np.all(np.diff(values) >= 0)
    low, high = made.span
    assert values[0] == low
    assert values[-1] == high


def test_lognormal_has_its_median_and_sigma():
    made = axis("x", {"dist": "lognormal", "median": 2.0, "sigma": 0.5})
    one_sigma = made.at(np.array([0.5, 0.8413447460685429]))
    assert one_sigma == pytest.approx((2.0, 2.0 * np.exp(0.5)))


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("5..5", "empty"),
        ("20..5", "inverted"),
        ("0..5:log:3", "above 0"),
        ("1..5:log:0", "allowed: 1 to"),
        ("1..5:sqrt:3", "allowed: 'low..high'"),
        ("1,,2", "empty value"),
        ("..5", "allowed: 'low..high'"),
        ([], "empty list"),
        ([float("nan")], "finite"),
        ([True], "numbers and words"),
        ({"dist": "gamma", "low": 1}, "allowed: uniform"),
        ({"dist": "uniform", "low": 1}, "takes low, high"),
        ({"dist": "lognormal", "median": -1, "sigma": 1}, "above 0"),
        ({"dist": "normal", "mean": 1, "std": 0}, "above 0"),
        ({"dist": "triangular", "low": 1, "mode": 9, "high": 4}, "outside"),
        ("fish..5", "no number"),
    ],
)
def test_what_makes_no_sense_is_refused(form, message):
    with pytest.raises(ScenarioError, match=message):
        axis("x", form)


@pytest.mark.parametrize("words", [["power_w"], ["=3"], ["power_w="], ["a=1", "a=2"]])
def test_words_that_are_no_assignment_are_refused(words):
    with pytest.raises(ScenarioError):
        parse_over(words)
