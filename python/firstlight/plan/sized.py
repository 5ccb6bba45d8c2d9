"""Designs sized to one load: the fewest whole cells of each that carry it within the service level."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from firstlight.errors import InfeasibleError, ModelError, ScenarioError, ScheduleError
from firstlight.evaluate import design, follow, search
from firstlight.evaluate.crew import Crew

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from firstlight.evaluate import Design
    from firstlight.evaluate.capacity import Traffic
    from firstlight.evaluate.design import Solved
    from firstlight.evaluate.question import Question
    from firstlight.evaluate.search import DesignPlan, Found

MORE_THAN_SAMPLE = 1.15
"""How much more than the sample says the whole time might carry."""


@dataclass(frozen=True, kw_only=True)
class Sized:
    """A design with the fewest servers for a load.

    Attributes:
        record: These servers at the load, over the whole time.
        full_record: The same servers at the most they carry within the service level.
    """

    record: Design
    full_record: Design


def sized(
    asked: Question,
    *,
    rate_request_per_s: float,
    progress: Callable[[int, int, str], None] | None = None,
) -> tuple[dict[str, Sized], Mapping[str, float | str]]:
    """Return every design of a question sized to a load, and what the traffic was.

    Args:
        asked: The question; its budget is the most a design may take.
        rate_request_per_s: The load [request/s].
        progress: Told how far it is.

    Raises:
        InfeasibleError: A design cannot carry the load within the budget and the service level.
        ScenarioError: The load is no number above 0, or the budget smaller than one server.
    """
    if not (math.isfinite(rate_request_per_s) and rate_request_per_s > 0):
        raise ScenarioError(f"load of {rate_request_per_s!r} requests/s; allowed: a number above 0")
    plans = {spec.name: asked.plan(spec) for spec in asked.scenario.designs}
    with Crew(progress=progress, cancelled=None) as crew:
        crew.total = 2 * len(plans)
        sample = asked.sample(list(plans.values()), cancelled=crew.cancelled)
        founds = crew.map(lambda name: _found(plans[name], asked, sample, crew), plans)
        most = MORE_THAN_SAMPLE * max(one.rate_request_per_s for one in founds.values())
        full = asked.whole(sample, most=most, cancelled=crew.cancelled)

        def fewest(name: str) -> Sized:
            solved = design.solve(
                plans[name],
                founds[name],
                full=full,
                slo=asked.slo,
                budget=asked.budget,
                cancelled=crew.cancelled,
            )
            made = _fewest(solved, asked, full=full, rate=rate_request_per_s, crew=crew)
            crew.tick(f"sized {name}")
            return made

        return crew.map(fewest, plans), follow.workload(asked, full)


def _found(plan: DesignPlan, asked: Question, sample: Traffic, crew: Crew) -> Found:
    try:
        found = search.best_cell(
            plan, traffic=sample, slo=asked.slo, budget=asked.budget, cancelled=crew.cancelled
        )
    except (InfeasibleError, ModelError, ScheduleError) as error:
        raise InfeasibleError(f"{plan.name}: {error}") from None
    crew.tick(f"searched {plan.name}")
    return found


def _fewest(solved: Solved, asked: Question, *, full: Traffic, rate: float, crew: Crew) -> Sized:
    """Return a design at its capacity with the fewest cells that carry a load."""
    found, measured, name = solved.found, solved.measured, solved.plan.name
    if found is None or measured is None:
        raise InfeasibleError(f"{name}: {solved.reason}")
    cells = math.ceil(rate / measured.rate_request_per_s - 1e-9)
    if cells > found.cells:
        raise InfeasibleError(
            f"{name}: carries {measured.rate_request_per_s * found.cells:,.0f} requests/s within the "
            f"service level and power_w = {asked.budget.power_w:g}; {rate:,.0f} are asked for"
        )
    reason: str | None = None
    while cells <= found.cells:
        fleet = replace(found, cells=cells)
        at_load = design.at(
            solved.plan,
            fleet,
            full=full,
            slo=asked.slo,
            cell_rate=min(rate / cells, full.most_request_per_s),
            budget=asked.budget,
            cancelled=crew.cancelled,
        )
        record = design.record(at_load, budget=asked.budget)
        if record.feasible:
            at_most = design.record(replace(solved, found=fleet), budget=asked.budget)
            return Sized(record=record, full_record=at_most)
        reason = reason or record.reason
        cells += 1  # just below capacity bursts may still break the service level
    raise InfeasibleError(f"{name}: {reason}")
