"""What one more of anything is worth, what binds next, and the cheapest way out when nothing fits."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from firstlight.errors import FirstlightError
from firstlight.evaluate.analytic.fleet import design_estimate
from firstlight.plan.space import CappedBudget, Limits, capped

if TYPE_CHECKING:
    from collections.abc import Callable

    from firstlight.evaluate.analytic.fleet import Estimate
    from firstlight.evaluate.analytic.load import Load
    from firstlight.evaluate.question import Question
    from firstlight.evaluate.screen import PoolPlan
    from firstlight.evaluate.search import DesignPlan
    from firstlight.evaluate.servers import Server
    from firstlight.plan.choose import Candidate

MORE = 1.1
"""How much more of a resource is tried."""
MOST_RELAXED = 1e3
HALVINGS = 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """What a little more of one resource brings.

    Attributes:
        resource: Power, money, room, a limit of the service level, or the speed of a pool.
        elasticity: d ln goodput / d ln resource.
        per_unit: Requests a second within the service level for one more unit; NaN without a unit.
        unit: The unit: W, $, server, or empty.
    """

    resource: str
    elasticity: float
    per_unit: float
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxation:
    """A limit that would have to give way for anything to be feasible.

    Attributes:
        resource: The limit.
        today: Its value.
        needed: The nearest value at which a design works.
        design: The design that then works.
    """

    resource: str
    today: float
    needed: float
    design: str

    @property
    def factor(self) -> float:
        """How far it has to give way, above 1."""
        return max(self.needed / self.today, self.today / self.needed)


def budget_of(asked: Question) -> CappedBudget:
    """Return the question's budget as one with further limits."""
    budget = asked.budget
    return budget if isinstance(budget, CappedBudget) else capped(budget, Limits())


def relaxed(asked: Question, resource: str, factor: float) -> Question | None:
    """Return a question with more of one resource; None when it has no such limit.

    Args:
        asked: The question.
        resource: A key of `RESOURCES`.
        factor: How much more; limits of the service level get longer, the quantile's misses more.
    """
    budget = budget_of(asked)
    caps = budget.caps
    if resource == "power":
        return replace(asked, budget=replace(budget, power_w=budget.power_w * factor))
    if resource == "rack power" and budget.rack_power_w is not None:
        return replace(asked, budget=replace(budget, rack_power_w=budget.rack_power_w * factor))
    if resource == "money" and caps.price_usd is not None:
        more = replace(caps, price_usd=caps.price_usd * factor)
        return replace(asked, budget=replace(budget, caps=more))
    if resource == "room" and caps.servers is not None:
        more = replace(caps, servers=math.ceil(caps.servers * factor))
        return replace(asked, budget=replace(budget, caps=more))
    if resource == "racks" and caps.racks is not None:
        more = replace(caps, racks=math.ceil(caps.racks * factor))
        return replace(asked, budget=replace(budget, caps=more))
    if resource == "TTFT limit":
        return replace(asked, slo=replace(asked.slo, ttft_s=asked.slo.ttft_s * factor))
    if resource == "TPOT limit":
        return replace(asked, slo=replace(asked.slo, tpot_s=asked.slo.tpot_s * factor))
    if resource == "quantile":
        misses = min((1.0 - asked.slo.quantile) * factor, 0.99)
        return replace(asked, slo=replace(asked.slo, quantile=1.0 - misses))
    return None


RESOURCES = (
    "power",
    "rack power",
    "money",
    "room",
    "racks",
    "TTFT limit",
    "TPOT limit",
    "quantile",
)
"""Limits that can be moved."""


def amount(asked: Question, resource: str) -> tuple[float, str]:
    """Return how much of a resource there is, and its unit."""
    budget = budget_of(asked)
    known = {
        "power": (budget.power_w, "W"),
        "rack power": (budget.rack_power_w or math.nan, "W"),
        "money": (budget.caps.price_usd or math.nan, "$"),
        "room": (float(budget.caps.servers or math.nan), "server"),
        "racks": (float(budget.caps.racks or math.nan), "rack"),
        "TTFT limit": (asked.slo.ttft_s, "s"),
        "TPOT limit": (asked.slo.tpot_s, "s"),
        "quantile": (1.0 - asked.slo.quantile, "missed share"),
    }
    return known[resource]


def margins(best: Candidate, *, asked: Question, load: Load) -> tuple[Margin, ...]:
    """Return what a tenth more of each resource brings the chosen design, most first.

    Args:
        best: The chosen design.
        asked: The question.
        load: The traffic.
    """
    base = best.estimate.goodput_request_per_s
    found = []
    for resource in RESOURCES:
        more = relaxed(asked, resource, MORE)
        if more is None:
            continue
        gained = _goodput(best.plan, more, load)
        (total, unit), (larger, _) = amount(asked, resource), amount(more, resource)
        if larger == total:
            continue
        found.append(
            Margin(
                resource=resource,
                # Of servers and racks a whole one is the least there can be more of.
                elasticity=math.log(max(gained, 1e-12) / base) / math.log(larger / total),
                per_unit=(gained - base) / (larger - total),
                unit=unit,
            )
        )
    found += list(_servers(best, base=base))
    return tuple(sorted(found, key=lambda one: -one.elasticity))


def _goodput(plan: DesignPlan, asked: Question, load: Load) -> float:
    try:
        return design_estimate(plan, asked=asked, load=load).goodput_request_per_s
    except FirstlightError:
        return 0.0


def _servers(best: Candidate, *, base: float) -> list[Margin]:
    """Return what one more server of each pool brings, all else as it stands."""
    estimate = best.estimate
    numbers = {role: n * estimate.cells for role, n in estimate.cell.items()}
    able = {
        role: n * estimate.request_per_s / (estimate.utilization[role] * n)
        for role, n in numbers.items()
    }
    found = []
    for role, n in numbers.items():
        more = {**able, role: able[role] * (n + 1) / n}
        ratio = min(more.values()) / min(able.values())
        found.append(
            Margin(
                resource=f"{role} servers",
                elasticity=math.log(ratio) / math.log((n + 1) / n),
                per_unit=base * (ratio - 1.0),
                unit="server",
            )
        )
    return found


def relaxations(asked: Question, works: Callable[[Question], str | None]) -> tuple[Relaxation, ...]:
    """Return, for each limit alone, the nearest value at which some design works, cheapest first.

    Args:
        asked: The question nothing answers.
        works: Name of a design that meets a question, or None.
    """
    found = []
    for resource in RESOURCES:
        most = relaxed(asked, resource, MOST_RELAXED)
        if most is None or works(most) is None:
            continue
        low, high = 1.0, MOST_RELAXED
        for _ in range(HALVINGS):
            middle = math.sqrt(low * high)
            tried = relaxed(asked, resource, middle)
            if tried is not None and works(tried) is not None:
                high = middle
            else:
                low = middle
        eased = relaxed(asked, resource, high)
        if eased is None:
            continue
        found.append(
            Relaxation(
                resource=resource,
                today=amount(asked, resource)[0],
                needed=amount(eased, resource)[0],
                design=works(eased) or "",
            )
        )
    return tuple(sorted(found, key=lambda one: one.factor))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of an upgrade: what the power of one rack brings.

    Attributes:
        step: Its number.
        adds: Servers it brings, by id.
        servers: Servers that stand then, by id.
        racks: Racks that stand then, each of one kind of server.
        goodput_request_per_s: What they carry.
        price_usd: What the step costs [usd].
    """

    step: int
    adds: dict[str, int]
    servers: dict[str, int]
    racks: int
    goodput_request_per_s: float
    price_usd: float


def upgrades(
    best: Candidate, *, asked: Question, rack_power_w: float, racks: int
) -> tuple[Step, ...]:
    """Return what the power of each further rack should bring, keeping what stands.

    Each step adds the servers that raise goodput most within one rack's power and within all limits of
    the plan: power, money, servers, racks and what is installed; of equals, those that draw least.

    Args:
        best: The design whose pools are built up.
        asked: The question.
        rack_power_w: What one rack gives, at the servers' plugs [W].
        racks: Number of steps.
    """
    estimate = best.estimate
    pools = list(best.plan.pools)
    rates = [_per_server(estimate, pool.role) for pool in pools]
    watts = [pool.server.peak_w for pool in pools]
    budget = budget_of(asked)
    rack = replace(budget.caps, rack_power_w=rack_power_w)
    options = [add for add in _additions(watts, rack_power_w) if any(add)]

    def carried(stands: tuple[int, ...]) -> float:
        return min(n * rate for n, rate in zip(stands, rates, strict=True))

    def standing(stands: tuple[int, ...]) -> tuple[tuple[Server, int], ...]:
        return tuple((pool.server, n) for pool, n in zip(pools, stands, strict=True))

    def better(add: tuple[int, ...]) -> tuple[float, float]:
        drawn = sum(n * w for n, w in zip(add, watts, strict=True))
        return carried(_sum(stand, add)), -drawn

    stand = tuple(0 for _ in pools)
    steps: list[Step] = []
    for step in range(1, racks + 1):
        allowed = [add for add in options if budget.cells(standing(_sum(stand, add))) >= 1]
        add = max(allowed, key=better, default=None)
        if add is None or carried(_sum(stand, add)) <= carried(stand):
            break
        stand = _sum(stand, add)
        steps.append(
            Step(
                step=step,
                adds=_named(pools, add),
                servers=_named(pools, stand),
                racks=int(rack.racks_of(standing(stand), 1)),
                goodput_request_per_s=asked.slo.quantile * carried(stand),
                price_usd=sum(
                    budget.price_usd(pool.server) * a for pool, a in zip(pools, add, strict=True)
                ),
            )
        )
    return tuple(steps)


def _sum(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip(one, other, strict=True))


def _per_server(estimate: Estimate, role: str) -> float:
    n = estimate.cell[role] * estimate.cells
    return estimate.request_per_s / n / estimate.utilization[role]


def _additions(watts: list[float], rack_power_w: float) -> list[tuple[int, ...]]:
    """Return every number of servers of each pool that fits one rack, none included."""
    most = [int(rack_power_w / w + 1e-9) for w in watts]
    if len(watts) == 1:
        return [(n,) for n in range(most[0] + 1)]
    return [
        (first, second)
        for first in range(most[0] + 1)
        for second in range(most[1] + 1)
        if first * watts[0] + second * watts[1] <= rack_power_w * (1 + 1e-9)
    ]


def _named(pools: list[PoolPlan], counts: tuple[int, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for pool, n in zip(pools, counts, strict=True):
        if n:
            found[pool.server.id] = found.get(pool.server.id, 0) + n
    return found
