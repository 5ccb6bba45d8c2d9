"""The best cell of a design under a budget: screen what each pool alone can do, then simulate.

From what each pool carries alone the ratio of servers follows; the few best cells are then simulated
whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import TYPE_CHECKING, Literal

from firstlight.errors import InfeasibleError, ScenarioError
from firstlight.evaluate import capacity
from firstlight.evaluate.cell import Cell
from firstlight.evaluate.screen import BETTER, SCREEN_TOLERANCE_FRAC, screen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from firstlight.evaluate.capacity import Slo, Traffic
    from firstlight.evaluate.cell import Serving
    from firstlight.evaluate.measure import Site
    from firstlight.evaluate.screen import PoolPlan, Screened
    from firstlight.evaluate.servers import Server

COARSE_TOLERANCE_FRAC = 0.02
MOST_CELLS = 1 << 30
SMALLER_FRAC = 0.005
"""What a cell must carry more for each further server in it; small cells are simulated sooner."""
FIRST_GUESS_FRAC, FIRST_STEP_FRAC = 0.96, 0.06
"""Where a cell is tried first over what its pools alone carry, and how far from there next."""
NEXT_STEP_FRAC = 0.03
"""The same step for a cell that carries more than the best so far."""
LEAST_SHARE = 0.4
"""A cell whose pools alone carry less of a load than this will not carry it; together they may carry
more than alone, as bursts spread over several servers."""
SIMULATED_CELLS = 4
"""Cells of a design that are simulated whole after the screening."""
TRIED_CELLS = 2
"""Cells that are tried at one load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignPlan:
    """A design as asked for."""

    name: str
    pools: tuple[PoolPlan, ...]
    serving: Serving
    disaggregate: Literal["always", "conditional"] = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a fleet may take.

    Attributes:
        power_w: Power limit [W].
        boundary: Where it is counted.
        rack_power_w: Most power of a rack, None when there is no limit [W].
        limits: Most servers of an id there are, for a retrofit.
        site: Overheads that count against it.
        max_cell_servers: Largest cell.
        standing_w: What the servers under `limits` take already, at the boundary [W].
    """

    power_w: float
    boundary: Literal["facility", "server", "board", "engine"]
    rack_power_w: float | None
    limits: dict[str, int]
    site: Site
    max_cell_servers: int
    standing_w: float = 0.0

    def charge_w(self, server: Server) -> float:
        """Return what one server takes of the budget, at the budget's boundary [W]."""
        if self.boundary == "facility":
            return self.site.provisioned_w(server.peak_w)
        if self.boundary == "server":
            return self.site.provisioned_w(server.peak_w) / self.site.pue
        accelerators_w = server.peak_w / server.supply_factor - server.host_peak_w
        return accelerators_w * self.site.margin_ratio

    def cells(self, servers: tuple[tuple[Server, int], ...]) -> int:
        """Return how many cells of these servers fit."""
        added_w = sum(
            self.charge_w(server) * n for server, n in servers if server.id not in self.limits
        )
        free_w = self.power_w - self.standing_w
        fit = int(free_w / added_w + 1e-9) if added_w else MOST_CELLS
        counts: dict[str, int] = {}
        for server, n in servers:
            counts[server.id] = counts.get(server.id, 0) + n
        for server_id, n in counts.items():
            if server_id in self.limits:
                fit = min(fit, self.limits[server_id] // n)
        return fit

    def check(self, plan: DesignPlan) -> None:
        """Check that at least one server of each kind could stand here.

        Raises:
            ScenarioError: The budget is smaller than one server.
            InfeasibleError: A server needs more power than a rack gives.
        """
        for pool in plan.pools:
            charge = self.charge_w(pool.server)
            if charge > self.power_w:
                raise ScenarioError(
                    f"power_w = {self.power_w:g} is smaller than one {pool.server.id}, which takes "
                    f"{charge:,.0f} W at the {self.boundary} (peak {pool.server.peak_w:,.0f} W with "
                    "network, PUE and margin)"
                )
            if self.rack_power_w is not None and pool.server.peak_w > self.rack_power_w:
                raise InfeasibleError(
                    f"{pool.server.id} draws {pool.server.peak_w:,.0f} W; a rack gives "
                    f"{self.rack_power_w:,.0f} W"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The best cell of a design.

    Attributes:
        cell: The cell.
        cells: How many fit the budget.
        rate_request_per_s: What one cell carries within the service level [request/s].
        alone: What one server of each role carries alone [request/s].
        slope: How late requests get with more load (`capacity.Held`).
    """

    cell: Cell
    cells: int
    rate_request_per_s: float
    alone: dict[str, float]
    slope: float | None = None


def best_cell(
    plan: DesignPlan,
    *,
    traffic: Traffic,
    slo: Slo,
    budget: Budget,
    screened: list[Screened] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Found:
    """Return the cell of a design that carries the most within the budget.

    Args:
        plan: The design.
        traffic: A window of the traffic, coarse for the search.
        slo: The service level.
        budget: What the fleet may take.
        screened: What each pool does alone, where it is known.
        cancelled: Asked a few times a second.

    Raises:
        InfeasibleError: No cell fits the budget, or none meets the service level; the message names
            the limit.
        ModelError: The model does not fit.
        ScenarioError: The budget is smaller than one server.
    """
    budget.check(plan)
    if screened is None:
        screened = [
            screen(pool, plan.serving, traffic=traffic, slo=slo, cancelled=cancelled)
            for pool in plan.pools
        ]
    candidates = sorted(
        _candidates(plan, screened, budget),
        key=lambda candidate: -candidate[0] * (1.0 - SMALLER_FRAC * sum(candidate[1])),
    )
    if not candidates:
        raise InfeasibleError(
            f"{plan.name}: no cell of {' + '.join(pool.server.id for pool in plan.pools)} fits "
            f"power_w = {budget.power_w:g}"
        )
    best: Found | None = None
    for score, counts in candidates[:SIMULATED_CELLS]:
        cell = _cell(plan, screened, counts)
        cells = budget.cells(tuple((g.server, g.count) for g in cell.groups))
        # A pool alone was found to carry this; of two, queues between them cost a little.
        guess, step = score / cells, SCREEN_TOLERANCE_FRAC
        if len(counts) > 1:
            guess, step = FIRST_GUESS_FRAC * guess, FIRST_STEP_FRAC
        beyond = None
        if best is not None:
            # One run says whether this cell could be better at all; it seldom is by much.
            guess = beyond = best.rate_request_per_s * best.cells / cells * BETTER
            step = NEXT_STEP_FRAC
        held = capacity.search(
            cell.fleet,
            traffic,
            slo=slo,
            guess_request_per_s=guess,
            tolerance_frac=COARSE_TOLERANCE_FRAC,
            first_step_frac=step,
            beyond_request_per_s=beyond,
            cancelled=cancelled,
        )
        if held is not None:
            best = Found(
                cell=cell,
                cells=cells,
                rate_request_per_s=held.rate_request_per_s,
                alone={option.group.role: option.rate for option in screened},
                slope=held.slope,
            )
    if best is None:
        raise InfeasibleError(
            f"each pool alone meets the service level, the two together never: TTFT {slo.ttft_s:g} s "
            f"and TPOT {slo.tpot_s:g} s for {slo.quantile:.0%} of requests"
        )
    return best


def reaches(
    plan: DesignPlan,
    screened: list[Screened],
    *,
    w_s: float,
    traffic: Traffic,
    slo: Slo,
    budget: Budget,
    cancelled: Callable[[], bool] | None = None,
) -> bool:
    """Return whether some cell of a design carries a request a second for so many watts.

    Args:
        plan: The design.
        screened: What each of its pools does alone.
        w_s: Watts of the budget for each request a second [W·s].
        traffic: A sample of the traffic.
        slo: The service level.
        budget: What a server takes of the power.
        cancelled: Asked a few times a second.
    """
    charges_w = [budget.charge_w(pool.server) for pool in plan.pools]
    offers = []
    for counts in ratios(plan, budget):
        rate = sum(n * w for n, w in zip(counts, charges_w, strict=True)) / w_s
        carried = min(option.rate * n for option, n in zip(screened, counts, strict=True))
        offers.append((carried / rate, rate, counts))
    best = sorted(offers, key=lambda offer: -offer[0])[:TRIED_CELLS]
    return any(
        share > LEAST_SHARE
        and rate <= traffic.most_request_per_s
        and capacity.simulate(
            _cell(plan, screened, counts).fleet,
            traffic,
            rate_request_per_s=rate,
            slo=slo,
            stop_early=True,
            cancelled=cancelled,
        ).holds
        for share, rate, counts in best
    )


def _cell(plan: DesignPlan, screened: list[Screened], counts: tuple[int, ...]) -> Cell:
    groups = tuple(
        replace(option.group, count=count) for option, count in zip(screened, counts, strict=True)
    )
    return Cell(groups=groups, serving=plan.serving, disaggregate=plan.disaggregate)


def _candidates(
    plan: DesignPlan, screened: list[Screened], budget: Budget
) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Yield (fleet rate if pools simply add up, servers of each pool in a cell)."""
    for counts in ratios(plan, budget):
        servers = tuple(
            (pool.server, count) for pool, count in zip(plan.pools, counts, strict=True)
        )
        cells = budget.cells(servers)
        if cells:
            rate = min(option.rate * count for option, count in zip(screened, counts, strict=True))
            yield cells * rate, counts


def ratios(plan: DesignPlan, budget: Budget) -> Iterator[tuple[int, ...]]:
    """Yield the server counts of each possible cell."""
    pools = plan.pools
    if len(pools) == 1:
        yield (1,)
        return
    if all(pool.count is not None for pool in pools):
        fixed = [pool.count or 0 for pool in pools]
        common = gcd(*fixed)
        yield tuple(count // common for count in fixed)
        return
    wanted = _wanted_share(plan, budget)
    pairs = [
        (prefill, total - prefill)
        for total in range(2, budget.max_cell_servers + 1)
        for prefill in range(1, total)
        if gcd(prefill, total - prefill) == 1
    ]
    if wanted is None:
        yield from pairs
        return
    first, second = (budget.charge_w(pool.server) for pool in pools)
    yield min(
        pairs,
        key=lambda pair: abs(pair[0] * first / (pair[0] * first + pair[1] * second) - wanted),
    )


def _wanted_share(plan: DesignPlan, budget: Budget) -> float | None:
    """Return the first pool's share of the watts when the scenario fixes it."""
    first, second = plan.pools
    if first.share is not None:
        return first.share
    if second.share is not None:
        return 1.0 - second.share
    if first.count is not None:
        return first.count * budget.charge_w(first.server) / budget.power_w
    if second.count is not None:
        return 1.0 - second.count * budget.charge_w(second.server) / budget.power_w
    return None
