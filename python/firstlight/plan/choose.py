"""The best place of a space: all of them where they are few, else differential evolution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from firstlight.errors import FirstlightError
from firstlight.evaluate.analytic import load as traffic
from firstlight.evaluate.analytic.fleet import Estimate, design_estimate
from firstlight.sweep.extras import library

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from firstlight.evaluate.question import Question
    from firstlight.evaluate.search import DesignPlan
    from firstlight.plan.space import Space

Objective = Literal["goodput", "goodput-per-watt", "cost", "carbon"]
OBJECTIVES: tuple[Objective, ...] = ("goodput", "goodput-per-watt", "cost", "carbon")
WORST = 1e12
"""Stands for what is not feasible; the optimiser's own statistics need it finite."""
EXACT = 2000
"""Spaces up to this size are searched whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A design that was screened.

    Attributes:
        plan: The design as the search takes it.
        estimate: What it delivers by closed form.
        price_usd: What its servers and network cost to buy; installed ones are free [usd].
    """

    plan: DesignPlan
    estimate: Estimate
    price_usd: float


def score(estimate: Estimate, objective: Objective) -> float:
    """Return how good a design is; more is better, and what is not feasible is worst."""
    if not estimate.feasible:
        return -math.inf
    if objective == "goodput":
        return estimate.goodput_request_per_s
    if objective == "goodput-per-watt":
        return estimate.goodput_request_per_s_per_w
    if objective == "cost":
        return -estimate.cost_usd_per_mtok_blended
    return -estimate.carbon_g_per_request


class Screen:
    """Screens the places of a space, each once.

    Args:
        asked: The question, with its budget.
        space: The designs.
    """

    def __init__(self, asked: Question, space: Space) -> None:
        self.asked = asked
        self.space = space
        self.load = traffic.load_of_question(asked)
        self.skipped: dict[str, str] = {}
        self._known: dict[tuple[int, ...], Candidate | None] = {}

    def at(self, index: tuple[int, ...]) -> Candidate | None:
        """Return the candidate at a place; None where there is no design, or it is impossible."""
        if index not in self._known:
            self._known[index] = self._screened(index)
        return self._known[index]

    def _screened(self, index: tuple[int, ...]) -> Candidate | None:
        design = self.space.design(index)
        if design is None:
            return None
        try:
            plan = self.asked.plan(design, overrides=self.space.overrides(index))
            estimate = design_estimate(plan, asked=self.asked, load=self.load)
        except FirstlightError as error:
            self.skipped[design.name] = str(error)
            return None
        if not estimate.feasible:
            self.skipped[design.name] = estimate.reason or "not feasible"
        return Candidate(
            plan=plan, estimate=estimate, price_usd=price_usd(plan, estimate, asked=self.asked)
        )

    @property
    def screened(self) -> list[Candidate]:
        """Every candidate that was screened."""
        return [one for one in self._known.values() if one is not None]


def price_usd(plan: DesignPlan, estimate: Estimate, *, asked: Question) -> float:
    """Return what buying a fleet's servers and network costs; installed ones are free [usd]."""
    rates = asked.site.rates
    prices = {pool.server.id: pool.server.price_usd for pool in plan.pools}
    return sum(
        n * prices[name] * (1.0 + rates.network_price_frac)
        for name, n in estimate.servers.items()
        if name not in asked.site.sunk
    )


def choose(
    screen: Screen,
    objective: Objective,
    *,
    exact: int = EXACT,
    seed: int = 0,
    progress: Callable[[int, int, str], None] | None = None,
) -> tuple[Candidate | None, bool]:
    """Return the best candidate, and whether every place was tried.

    Args:
        screen: Screens a place.
        objective: What is best.
        exact: Spaces up to this size are searched whole.
        seed: Seed of the optimiser.
        progress: Told how far it is.

    Raises:
        ScenarioError: The space is large and SciPy is not installed.
    """
    places = len(screen.space)
    if places <= exact:
        for done, index in enumerate(screen.space.indices()):
            screen.at(index)
            if progress is not None and done % 8 == 0:
                progress(done, places, "screening")
    else:
        _evolve(screen, objective, seed=seed)
    best = max(screen.screened, key=lambda one: score(one.estimate, objective), default=None)
    if best is None or not best.estimate.feasible:
        return None, places <= exact
    return best, places <= exact


def _evolve(screen: Screen, objective: Objective, *, seed: int) -> None:
    """Visit the places differential evolution asks for."""
    optimize = library("scipy.optimize", extra="sweep", what="searching a large space")

    shape = screen.space.shape
    free = [axis for axis, n in enumerate(shape) if n > 1]

    def cost(x: NDArray[np.float64]) -> float:
        index = [0] * len(shape)
        for axis, value in zip(free, x, strict=True):
            index[axis] = round(float(value))
        found = screen.at(tuple(index))
        value = -math.inf if found is None else score(found.estimate, objective)
        return WORST if value == -math.inf else -value

    optimize.differential_evolution(
        cost,
        bounds=[(0, shape[axis] - 1) for axis in free],
        integrality=[True] * len(free),
        rng=seed,
        popsize=12,
        maxiter=40,
        tol=0.0,
        polish=False,
        init="sobol",
    )


Values = tuple[float, float, float]
"""Goodput per watt, cost and carbon of a design; more is better in each."""


def front(
    candidates: list[Candidate],
    *,
    best: Candidate | None = None,
    simulated: Mapping[str, Values] | None = None,
) -> list[Candidate]:
    """Return the candidates that none other beats in goodput per watt, cost and carbon at once.

    Two that were both simulated are compared as simulated, all others by closed form.

    Args:
        candidates: What was screened.
        best: What was chosen; it is on the front whatever the closed form says.
        simulated: What simulation found, by name of the design.
    """
    known = simulated or {}
    works = [one for one in candidates if one.estimate.feasible]
    if best is not None and all(one.plan.name != best.plan.name for one in works):
        works.append(best)

    def values(one: Candidate) -> Values:
        return (
            one.estimate.goodput_request_per_s_per_w,
            -one.estimate.cost_usd_per_mtok_blended,
            -one.estimate.carbon_g_per_request,
        )

    def beats(other: Candidate, one: Candidate) -> bool:
        names = other.plan.name, one.plan.name
        if names[0] in known and names[1] in known:
            theirs, mine = known[names[0]], known[names[1]]
        else:
            theirs, mine = values(other), values(one)
        return theirs != mine and all(a >= b for a, b in zip(theirs, mine, strict=True))

    kept = [
        one
        for one in works
        if (best is not None and one.plan.name == best.plan.name)
        or not any(beats(other, one) for other in works)
    ]
    return sorted(kept, key=lambda one: -one.estimate.goodput_request_per_s_per_w)
