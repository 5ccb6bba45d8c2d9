"""Units: what is read, what is refused, and that printing and reading agree."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight import units
from firstlight.errors import UnitError


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("50 kW", "W", 5e4),
        ("1MW", "W", 1e6),
        ("10 us", "s", 1e-5),
        ("10 µs", "s", 1e-5),
        ("50 ms", "s", 0.05),
        ("2 h", "s", 7200.0),
        ("80 GB", "byte", 80e9),
        ("80 GiB", "byte", 85899345920.0),
        ("400 Gb/s", "byte/s", 5e10),
        ("3.35 TB/s", "byte/s", 3.35e12),
        ("0.08 $/kWh", "usd/kWh", 0.08),
        ("80 $/MWh", "usd/kWh", 0.08),
        ("150 $/kW/month", "usd/kW/month", 150.0),
        ("989 TFLOP/s", "flop/s", 9.89e14),
        ("1 kWh", "J", 3.6e6),
        ("5.5 pJ/bit", "J/bit", 5.5e-12),
        ("50 %", "1", 0.5),
        ("16 ktok", "tok", 16000.0),
        ("1e6", "W", 1e6),
        ("1_000", "W", 1000.0),
        ("-135", "dB/Hz", -135.0),
    ],
)
def test_a_quantity_is_read_in_si(text, unit, value):
    assert units.parse(text, unit) == value


@pytest.mark.parametrize(
    ("text", "unit", "says"),
    [
        ("50 s", "W", "wrong unit; allowed: W, kW or MW"),
        ("5 kWW", "W", "did you mean 'kW'"),
        ("a lot", "W", "is not a quantity"),
        ("", "W", "is not a quantity"),
        ("1 2", "W", "is unknown"),
        ("0.08 $", "usd/kWh", "wrong unit"),
        ("nan", "W", "is not a quantity"),
        ("inf", "W", "is not a quantity"),
        ("1e999", "W", "out of range"),
        ("1e-999999", "W", "is unknown"),
        ("5 KiW", "W", "is unknown"),
    ],
)
def test_what_is_no_quantity_is_refused_with_what_is_allowed(text, unit, says):
    with pytest.raises(UnitError, match=r"^[^\n]+$") as refused:
        units.parse(text, unit)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (5e4, "W", "50 kW"),
        (999.6, "W", "1 kW"),
        (1e-5, "s", "10 µs"),
        (80e9, "byte", "80 GB"),
        (3.35e12, "byte/s", "3.35 TB/s"),
        (9.89e14, "flop/s", "989 TFLOP/s"),
        (0.08, "usd/kWh", "0.08 $/kWh"),
        (0.0, "W", "0 W"),
        (-3e-13, "J", "-300 fJ"),
        (0.5, "1", "0.5"),
        (None, "W", "?"),
        (math.nan, "W", "?"),
        (math.inf, "s", "∞"),
    ],
)
def test_a_number_prints_with_the_prefix_that_fits(value, unit, text):
    assert units.format_si(value, unit) == text


@given(
    st.floats(1e-14, 1e17),
    st.sampled_from(["W", "J", "s", "Hz", "byte", "byte/s", "flop/s", "op/s", "tok", "J/bit"]),
)
def test_what_is_printed_can_be_read_back(value, unit):
    assert units.parse(units.format_si(value, unit, digits=15), unit) == pytest.approx(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_plain_number_passes_unchanged(value):
    assert units.parse(value, "W") == value


def test_constants_are_those_of_si_2019():
    # photon energy at 850 nm is 1.4587 eV: hc/λe ties three of the four together
    energy_ev = units.PLANCK_J_S * units.LIGHT_SPEED_M_PER_S / 850e-9 / units.ELEMENTARY_CHARGE_C
    assert energy_ev == pytest.approx(1.45864, abs=1e-5)
    assert (
        pytest.approx(0.025852, abs=1e-6)
        == units.BOLTZMANN_J_PER_K * 300 / units.ELEMENTARY_CHARGE_C
    )
