"""The turn of a field is found wherever light wins, more of it being better or not."""

import pytest

from firstlight.evaluate import breakeven


def turn(wins, *, today, rising=True):
    """Solve for a field that makes light win between two values."""
    return breakeven.solve(
        "f_cycle_hz",
        unit="Hz",
        today=today,
        low=1e7,
        high=2e10,
        rising=rising,
        wins=lambda value: wins[0] < value < wins[1],
    )


@pytest.mark.parametrize("today", [1e9, 5e7, 1e7])
def test_a_turn_on_the_worse_side_is_found(today):
    found = turn((7.8e7, 1e12), today=today)
    assert found.value == pytest.approx(7.8e7, rel=1.1e-2)
    assert (found.wins, found.today) == ("above", today)


def test_a_clock_that_draws_too_much_beyond_does_not_hide_the_turn():
    assert turn((7.8e7, 5e9), today=1e9).value == pytest.approx(7.8e7, rel=1.1e-2)
    # today's loses, and so does the fastest
    assert turn((7.8e7, 5e9), today=2e7).value == pytest.approx(7.8e7, rel=1.1e-2)


def test_a_reload_may_be_as_slow_as_the_turn():
    assert turn((0.0, 6e8), today=1e8, rising=False).value == pytest.approx(6e8, rel=1.1e-2)
    assert turn((0.0, 6e8), today=1e10, rising=False).value == pytest.approx(6e8, rel=1.1e-2)


def test_where_light_always_wins_there_is_no_turn_inside():
    found = turn((0.0, 1e12), today=1e9)
    assert found.value == 1e7
    assert "wins from 10 MHz to 1 GHz" in found.note


def test_where_light_never_wins_there_is_none():
    found = turn((1.0, 2.0), today=1e9)
    assert found.value is None
    assert "loses from 1 GHz to 20 GHz" in found.note
