"""One chunk of points, computed in whatever process it is sent to.

A task is plain data (a scenario document, a tier and points), so that it can be pickled to another
process or machine. The last scenario a process has seen stays resolved.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from firstlight.errors import FirstlightError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from firstlight.evaluate.analytic import Estimate, Point
    from firstlight.scenario import Scenario
    from firstlight.sweep.table import Row

Tier = Literal["analytic", "cell", "full"]
Point_ = tuple[int, tuple[tuple[str, float | str], ...]]
RATE = "rate_request_per_s"
"""The load of tier ``cell`` may vary like a field."""
NUMBERS = (
    "goodput_request_per_s", "goodput_request_per_s_per_w", "request_per_s", "provisioned_power_w",
    "input_tok_per_s", "output_tok_per_s", "energy_j_per_request", "cost_usd_per_request",
    "cost_usd_per_mtok_blended", "carbon_g_per_request", "mean_ttft_s", "mean_tpot_s",
)  # fmt: skip
"""Columns of every tier, after the point's own fields; none is a field that can be varied."""
ESTIMATED = {"provisioned_power_w": "power_w", "mean_ttft_s": "ttft_s", "mean_tpot_s": "tpot_s"}
"""Column -> field of `Estimate`, where they differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Some points of a sweep.

    Attributes:
        number: The part they become.
        document: The scenario, as a document.
        tier: How each point is computed.
        rate_request_per_s: Load of the cell in tier ``cell``; None takes the trace's own rate.
        fields: Names of the fields that vary.
        points: (index, values by field) of each point.
    """

    number: int
    document: str
    tier: Tier
    rate_request_per_s: float | None
    fields: tuple[str, ...]
    points: tuple[Point_, ...]


def run(task: Task) -> list[Row]:
    """Return the rows of a task: one a point and design, also where a point fails."""
    rows: list[Row] = []
    for index, values in task.points:
        changes = dict(values)
        own: Row = {"point": index, **changes}
        try:
            found = _answer(task, changes)
        except FirstlightError as error:
            rows.append(failed(own, str(error)))
            continue
        rows += [{**own, **row} for row in found]
    return rows


def failed(own: Row, reason: str) -> Row:
    """Return the row of a point that could not be computed."""
    return {**own, "design": "", "status": "failed", "reason": reason, **dict.fromkeys(NUMBERS)}


@lru_cache(maxsize=2)
def _point(document: str) -> Point:
    import tomllib

    from firstlight.evaluate.analytic import Point
    from firstlight.scenario import Scenario

    return Point(Scenario.from_document(tomllib.loads(document)))


def _answer(task: Task, changes: Mapping[str, float | str]) -> list[Row]:
    point = _point(task.document)
    if task.tier == "analytic":
        point.possible(changes)
        return [_estimate(one) for one in point.at(changes).values()]
    if task.tier == "full":
        return _full(point.scenario.replace(**changes))
    point.possible({name: value for name, value in changes.items() if name != RATE})
    rate = changes.get(RATE, task.rate_request_per_s)
    return _cell(point, changes, rate=float(rate) if rate is not None else None)


def _estimate(one: Estimate) -> Row:
    row: Row = {
        "design": one.name,
        "status": "done" if one.feasible else "infeasible",
        "reason": one.reason or "",
    }
    for name in NUMBERS:
        row[name] = getattr(one, ESTIMATED.get(name, name)) if one.feasible else None
    return row


def _full(scenario: Scenario) -> list[Row]:
    """Return the whole comparison, simulated."""
    from firstlight.evaluate import compare

    rows: list[Row] = []
    for design in compare(scenario).designs:
        row: Row = {
            "design": design.name,
            "status": "done" if design.feasible else "infeasible",
            "reason": design.reason or "",
        }
        power = design.power_w.provisioned if design.power_w is not None else None
        row |= {name: getattr(design, name, None) for name in NUMBERS}
        row["provisioned_power_w"] = power
        if power and design.feasible:
            row["goodput_request_per_s_per_w"] = design.goodput_request_per_s / power
        for name in ("ttft_s", "tpot_s"):
            spread = getattr(design, name)
            row[f"mean_{name}"] = spread.mean if spread is not None else None
        rows.append(row)
    return rows


def _cell(point: Point, changes: Mapping[str, float | str], *, rate: float | None) -> list[Row]:
    """Return one cell of each design over the whole trace at one load, simulated."""
    from firstlight.sweep.cell import simulated

    rest = {name: value for name, value in changes.items() if name != RATE}
    return simulated(point, rest, rate_request_per_s=rate)
