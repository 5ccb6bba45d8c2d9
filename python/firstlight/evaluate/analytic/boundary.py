"""Where an answer turns over in one field: break-evens of any two designs, boundaries of any claim.

A field is scanned over its range on a logarithmic grid (linear where it may be zero or is a share),
then the crossing nearest to today's value is bisected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from firstlight.errors import FirstlightError, ScenarioError, nearest
from firstlight.evaluate.analytic.fleet import Estimate
from firstlight.evaluate.analytic.point import QUICK, bare
from firstlight.optics import EngineSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from firstlight.evaluate.analytic.point import Point

SCAN = 13
HALVINGS = 30
WIDTH_FRAC = 1e-3
"""Width of the last bracket over the value."""
SPAN = 100.0
"""How far around today's value a field without a published range is searched, as a factor."""
LESS_IS_BETTER = frozenset(
    {
        "energy_j_per_request", "prefill_energy_j_per_request", "linear_energy_j_per_request",
        "cost_usd_per_request", "prefill_cost_usd_per_request", "cost_usd_per_mtok_blended",
        "carbon_g_per_request", "tpot_s", "ttft_s", "power_w", "mean_power_w",
    }
)  # fmt: skip
_RANGES = {
    "power_w": (1e4, 1e9), "pue": (1.0, 2.0), "electricity_usd_per_kwh": (0.01, 1.0),
    "carbon_g_per_kwh": (1.0, 1000.0), "ttft_s": (0.05, 60.0), "tpot_s": (0.005, 1.0),
    "quantile": (0.5, 0.99), "cached_frac": (0.0, 0.95), "context_tok": (64.0, 131072.0),
    "output_tok": (1.0, 8192.0), "optical_price_ratio": (0.01, 1000.0),
    "correlation_s": (1.0, 3600.0),
}  # fmt: skip
_ENGINE = {
    field.name: (field.metadata["low"], field.metadata["high"])
    for field in fields(EngineSpec)
    if field.metadata
}
_NATURAL = {"t_reload_s": (1e-8, 0.0167), "f_cycle_hz": (1e6, 2e10), "engines": (1, 256)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """Where something begins or ceases to hold.

    Attributes:
        field: The field.
        value: Where; None when it never changes over the range.
        today: The scenario's value.
        holds: ``below`` or ``above`` the value; ``everywhere`` or ``nowhere`` when there is none.
        low: Lower end of what was searched.
        high: Upper end.
    """

    field: str
    value: float | None
    today: float
    holds: str
    low: float
    high: float

    @property
    def distance_ratio(self) -> float | None:
        """Factor from today to the value, above 1 whichever way; None when there is no value."""
        if self.value is None or self.value <= 0 or self.today <= 0:
            return None
        return max(self.value / self.today, self.today / self.value)


def today(point: Point, field: str) -> float:
    """Return a field's value in a scenario.

    Raises:
        ScenarioError: The field is unknown or no number.
    """
    name = bare(field)
    scenario = point.scenario
    for section in (scenario.slo, scenario.facility, scenario.workload):
        if name in section.__struct_fields__:
            value = getattr(section, name)
            if value is None:
                value = scenario.assumption(name).value
            return _number(name, value)
    if name in point.asked.overrides:
        return point.asked.overrides[name]
    if name in _ENGINE:
        for plan in point.plans:
            for pool in plan.pools:
                if pool.server.engine is not None:
                    return _number(name, getattr(pool.server.engine, name))
        raise ScenarioError(f"{field!r} is a field of optical engines; the scenario has none")
    return _number(name, scenario.assumption(name).value)


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ScenarioError(f"{name}: {value!r} is no number, so it cannot be varied")
    return float(value)


def searched(point: Point, field: str) -> tuple[float, float]:
    """Return the range over which a field is searched."""
    name = bare(field)
    known = _NATURAL.get(name) or _RANGES.get(name) or _ENGINE.get(name)
    if known is not None:
        return float(known[0]), float(known[1])
    now = today(point, field)
    assumed = point.scenario.assumption(name)
    if assumed.low is not None and assumed.high is not None and assumed.low < assumed.high:
        return assumed.low, assumed.high
    return now / SPAN, now * SPAN


def solve(
    point: Point,
    *,
    field: str,
    holds: Callable[[dict[str, float]], bool],
    low: float | None = None,
    high: float | None = None,
) -> Boundary:
    """Return where in one field something begins or ceases to hold, nearest to today.

    Args:
        point: The scenario.
        field: The field, a number.
        holds: Whether it holds under changes.
        low: Lower end of the search; None takes the field's own.
        high: Upper end.

    Raises:
        ScenarioError: The field is unknown, or the range empty or inverted.
    """
    own_low, own_high = searched(point, field)
    start = own_low if low is None else low
    end = own_high if high is None else high
    if not start < end:
        raise ScenarioError(
            f"{field}: {start:g}..{end:g} is empty or inverted; allowed: low < high"
        )
    now = today(point, field)
    is_log = start > 0 and end / start > 4.0  # shares and small spans are searched evenly
    grid = np.geomspace(start, end, SCAN) if is_log else np.linspace(start, end, SCAN)
    if start < now < end:
        grid = np.unique(np.append(grid, now))

    def asked(value: float) -> bool | None:
        try:
            return holds({field: float(value)})
        except FirstlightError:
            # Impossible values, such as a budget below one server, lie outside the question.
            return None

    answers = {float(value): answer for value in grid if (answer := asked(value)) is not None}
    if not answers:
        raise ScenarioError(f"{field}: nothing between {start:g} and {end:g} is possible here")
    grid, truth = np.array(list(answers)), list(answers.values())
    turns = [i for i in range(len(grid) - 1) if truth[i] != truth[i + 1]]
    if not turns:
        where = "everywhere" if truth[0] else "nowhere"
        return Boundary(field=field, value=None, today=now, holds=where, low=start, high=end)

    def away(i: int) -> float:
        middle = (grid[i] + grid[i + 1]) / 2
        return abs(math.log(middle / now)) if is_log and now > 0 else abs(middle - now)

    turn = min(turns, key=away)
    ends = float(grid[turn]), float(grid[turn + 1])
    left, right = _bisected(*ends, asked=asked, before=truth[turn], is_log=is_log)
    side = "below" if truth[turn] else "above"
    value = left if truth[turn] else right
    return Boundary(field=field, value=value, today=now, holds=side, low=start, high=end)


def _bisected(
    left: float,
    right: float,
    *,
    asked: Callable[[float], bool | None],
    before: bool,
    is_log: bool,
) -> tuple[float, float]:
    """Return a narrow bracket of the turn between two values; `before` is the answer at the left."""
    for _ in range(HALVINGS):
        middle = math.sqrt(left * right) if is_log else (left + right) / 2
        if asked(middle) == before:
            left = middle
        else:
            right = middle
        if right - left <= WIDTH_FRAC * abs(right):
            break
    return left, right


def measure_names() -> tuple[str, ...]:
    """Return what designs can be compared in."""
    return tuple(f.name for f in fields(Estimate) if f.type == "float")


def break_even(
    point: Point,
    *,
    field: str,
    one: str,
    other: str,
    measure: str = "goodput_request_per_s_per_w",
    low: float | None = None,
    high: float | None = None,
) -> Boundary:
    """Return where one design equals another in any field; it `holds` where the first one is better.

    Args:
        point: The scenario.
        field: What is varied.
        one: The design that is to win.
        other: Its rival.
        measure: A number of `Estimate`; for joules, dollars and seconds less is better.
        low: Lower end of the search; None takes the field's own.
        high: Upper end.

    Raises:
        ScenarioError: A design, field or measure is unknown.
    """
    if measure not in measure_names():
        raise ScenarioError(
            f"unknown measure {measure!r}; allowed: {', '.join(measure_names())}"
            f"{nearest(measure, measure_names())}"
        )
    for name in (one, other):
        point.scenario.design(name)

    def wins(changes: dict[str, float]) -> bool:
        return better(point.at(changes), one=one, other=other, measure=measure)

    return solve(point, field=field, holds=wins, low=low, high=high)


def better(estimates: dict[str, Estimate], *, one: str, other: str, measure: str) -> bool:
    """Return whether one design beats another; one that is not feasible beats nobody."""
    mine, rival = estimates[one], estimates[other]
    if not mine.feasible:
        return False
    if not rival.feasible:
        return True
    left, right = float(getattr(mine, measure)), float(getattr(rival, measure))
    return left < right if measure in LESS_IS_BETTER else left > right


def is_quick(field: str) -> bool:
    """Return whether a field can be varied without a new scenario."""
    return bare(field) in QUICK
