"""The best cell of a design under a budget: screen what each pool alone can do, then simulate.

A pool alone is cheap to simulate: a prefill pool serves requests of one token, a decode pool serves
requests whose prompt is present. From these the ratio of servers follows; the few best cells are then
simulated whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import TYPE_CHECKING, Literal

import numpy as np

from firstlight.errors import InfeasibleError, ScenarioError
from firstlight.evaluate import capacity
from firstlight.evaluate.cell import Cell, Group, Role, Serving, fitting_tp, group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from firstlight.evaluate.capacity import Slo, Traffic
    from firstlight.evaluate.measure import Site
    from firstlight.evaluate.servers import Server

CHUNKS_MIXED_TOK = (2048, 512, 1024, 4096, 8192)
CHUNKS_PREFILL_TOK = (8192, 2048)
CHUNK_DECODE_TOK = 2048
PS_PER_S = 1e12
SCREEN_TOLERANCE_FRAC = 0.03
COARSE_TOLERANCE_FRAC = 0.015
MOST_CELLS = 1 << 30
BETTER = 1.01
"""How much more a further cell must carry to replace the best so far."""
SMALLER_FRAC = 0.005
"""What a cell must carry more for each further server in it; small cells are simulated sooner."""
SIMULATED_CELLS = 4
"""Cells of a design that are simulated whole after the screening."""
DECODE_WAIT_STEPS = 10
"""A decode pool alone may keep a request waiting this many output tokens' time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """One pool of a design as asked for; None means: find the best.

    Attributes:
        role: What the pool does.
        server: What it is made of.
        tp: GPUs to a replica.
        chunk_tok: Most tokens in a step [tok].
        share: Share of the facility's watts.
        count: Number of servers.
    """

    role: Role
    server: Server
    tp: int | None = None
    chunk_tok: int | None = None
    share: float | None = None
    count: int | None = None


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
    """

    cell: Cell
    cells: int
    rate_request_per_s: float
    alone: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Screened:
    group: Group
    rate: float


def best_cell(
    plan: DesignPlan,
    *,
    traffic: Traffic,
    slo: Slo,
    budget: Budget,
    cancelled: Callable[[], bool] | None = None,
) -> Found:
    """Return the cell of a design that carries the most within the budget.

    Args:
        plan: The design.
        traffic: A window of the traffic, coarse for the search.
        slo: The service level.
        budget: What the fleet may take.
        cancelled: Asked a few times a second.

    Raises:
        InfeasibleError: Nothing meets the service level; the message names the limit.
        ModelError: The model does not fit.
        ScenarioError: The budget is smaller than one server or one cell.
    """
    budget.check(plan)
    screened = [
        _screen(pool, plan.serving, traffic=traffic, slo=slo, cancelled=cancelled)
        for pool in plan.pools
    ]
    candidates = sorted(
        _candidates(plan, screened, budget),
        key=lambda candidate: -candidate[0] * (1.0 - SMALLER_FRAC * sum(candidate[1])),
    )
    if not candidates:
        raise ScenarioError(
            f"{plan.name}: no cell of {' + '.join(pool.server.id for pool in plan.pools)} fits "
            f"power_w = {budget.power_w:g}"
        )
    best: Found | None = None
    for score, counts in candidates[:SIMULATED_CELLS]:
        groups = tuple(
            replace(option.group, count=count)
            for option, count in zip(screened, counts, strict=True)
        )
        cell = Cell(groups=groups, serving=plan.serving, disaggregate=plan.disaggregate)
        cells = budget.cells(tuple((g.server, g.count) for g in groups))
        guess = score / cells * 0.95
        if best is not None:
            # One run says whether this cell could be better at all.
            guess = best.rate_request_per_s * best.cells / cells * BETTER
            tried = capacity.simulate(
                cell.fleet,
                traffic,
                rate_request_per_s=min(guess, traffic.most_request_per_s),
                slo=slo,
                stop_early=True,
                cancelled=cancelled,
            )
            if not tried.holds:
                continue
        held = capacity.search(
            cell.fleet,
            traffic,
            slo=slo,
            guess_request_per_s=guess,
            tolerance_frac=COARSE_TOLERANCE_FRAC,
            first_step_frac=0.1,
            cancelled=cancelled,
        )
        rate = held.rate_request_per_s if held else 0.0
        if rate > 0 and (best is None or rate * cells > best.rate_request_per_s * best.cells):
            alone: dict[str, float] = {option.group.role: option.rate for option in screened}
            best = Found(cell=cell, cells=cells, rate_request_per_s=rate, alone=alone)
    if best is None:
        raise InfeasibleError(
            f"each pool alone meets the service level, the two together never: TTFT {slo.ttft_s:g} s "
            f"and TPOT {slo.tpot_s:g} s for {slo.quantile:.0%} of requests"
        )
    return best


def _candidates(
    plan: DesignPlan, screened: list[_Screened], budget: Budget
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


def _screen(
    pool: PoolPlan,
    serving: Serving,
    *,
    traffic: Traffic,
    slo: Slo,
    cancelled: Callable[[], bool] | None,
) -> _Screened:
    """Find the best tensor parallelism and chunk of a pool alone."""
    best: _Screened | None = None
    for option in _options(pool, serving):
        made = group(
            pool.server, role=pool.role, tp=option[0], chunk_tok=option[1], serving=serving
        )
        rate = alone(made, serving=serving, traffic=traffic, slo=slo, cancelled=cancelled)
        if best is None or rate > best.rate:
            best = _Screened(group=made, rate=rate)
    # The other chunks only for the parallelism that did best with the first.
    if best is not None and pool.role == "mixed" and pool.chunk_tok is None:
        for chunk_tok in CHUNKS_MIXED_TOK[1:]:
            made = group(
                pool.server,
                role=pool.role,
                tp=best.group.tp,
                chunk_tok=chunk_tok,
                serving=serving,
            )
            rate = alone(made, serving=serving, traffic=traffic, slo=slo, cancelled=cancelled)
            if rate > best.rate:
                best = _Screened(group=made, rate=rate)
    if best is None or best.rate <= 0:
        raise InfeasibleError(_why_not(pool, serving, traffic=traffic, slo=slo))
    return best


def _options(pool: PoolPlan, serving: Serving) -> list[tuple[int, int]]:
    """Return (tensor parallelism, chunk) to try."""
    if pool.server.engine is not None:
        return [(1, pool.chunk_tok or 0)]
    degrees = fitting_tp(pool.server, serving=serving)
    if pool.tp is not None:
        if pool.tp not in degrees:
            # The message of the group itself says what is missing.
            group(pool.server, role=pool.role, tp=pool.tp, chunk_tok=2048, serving=serving)
        degrees = (pool.tp,)
    chunks = {
        "mixed": CHUNKS_MIXED_TOK[:1],
        "prefill": CHUNKS_PREFILL_TOK,
        "decode": (CHUNK_DECODE_TOK,),
    }[pool.role]
    if pool.chunk_tok is not None:
        chunks = (pool.chunk_tok,)
    return [(tp, chunk) for tp in degrees for chunk in chunks]


def alone(
    made: Group,
    *,
    serving: Serving,
    traffic: Traffic,
    slo: Slo,
    cancelled: Callable[[], bool] | None = None,
    tolerance_frac: float = SCREEN_TOLERANCE_FRAC,
) -> float:
    """Return what one server carries in its role alone, with the other phase free [request/s].

    Args:
        made: The server in its role.
        serving: How the model is served.
        traffic: What arrives.
        slo: The service level.
        cancelled: Asked a few times a second.
        tolerance_frac: Width of the last bracket over the load.
    """
    by_itself = replace(made, role="mixed", count=1)
    fleet = Cell(groups=(by_itself,), serving=serving).fleet
    phase = None if made.role == "mixed" else made.role
    if phase == "prefill":
        slo = replace(slo, tpot_s=1e6)
    if phase == "decode":
        slo = replace(slo, ttft_s=DECODE_WAIT_STEPS * slo.tpot_s)
    only = replace(traffic, phase=phase)
    held = capacity.search(
        fleet,
        only,
        slo=slo,
        guess_request_per_s=0.5 * bound(made, serving=serving, traffic=traffic),
        tolerance_frac=tolerance_frac,
        cancelled=cancelled,
    )
    return held.rate_request_per_s if held else 0.0


def bound(made: Group, *, serving: Serving, traffic: Traffic) -> float:
    """Return a load that one server cannot exceed, from step times alone [request/s].

    Args:
        made: The server in its role.
        serving: How the model is served.
        traffic: What arrives; its mean lengths are used.
    """
    table = made.table
    uncached, output = traffic.mean_uncached_tok, traffic.mean_output_tok
    chunk = min(made.chunk_tok, table.max_tok)
    prefill_s = uncached * float(table.linear_ps[chunk]) / chunk / PS_PER_S
    context = traffic.mean_input_tok + output / 2.0
    room = made.kv_blocks * serving.block_tok / context
    seqs = np.arange(1, max(min(made.max_seqs, int(room)), 1) + 1)
    step_ps = (
        table.linear_ps[seqs]
        + table.head_ps[seqs]
        + table.decode_attn_floor_ps[seqs]
        + table.decode_attn_ctx_ps[seqs] * seqs * context
    )
    decode_s = output * float((step_ps / seqs).min()) / PS_PER_S
    busy_s = {"mixed": prefill_s + decode_s, "prefill": prefill_s, "decode": decode_s}[made.role]
    return made.replicas / busy_s


def _why_not(pool: PoolPlan, serving: Serving, *, traffic: Traffic, slo: Slo) -> str:
    """Say which limit a pool misses even when it is almost idle, and by how much."""
    tp, chunk_tok = _options(pool, serving)[-1]
    made = group(pool.server, role=pool.role, tp=tp, chunk_tok=chunk_tok, serving=serving)
    table = made.table
    mean = traffic.mean_uncached_tok
    if pool.role != "decode":
        tokens = min(int(mean) or 1, table.max_tok)
        steps = max(mean / table.max_tok, 1.0)
        seconds = float(table.linear_ps[tokens]) * steps / PS_PER_S
        if pool.server.engine is not None and 2.0 * seconds > slo.ttft_s:
            return (
                f"TTFT {slo.ttft_s:g} s cannot be met by {pool.server.id}: one pass over the "
                f"weights takes {seconds:.3g} s (reload {pool.server.engine.t_reload_s:.3g} s a tile)"
            )
        if seconds > slo.ttft_s:
            return (
                f"TTFT {slo.ttft_s:g} s cannot be met by {pool.server.id}: a prompt of "
                f"{mean:.0f} uncached tokens takes {seconds:.3g} s"
            )
    run = _nearly_idle(made, serving=serving, traffic=traffic, slo=slo)
    return (
        f"the service level cannot be met by {pool.server.id} as {pool.role}: at a load of "
        f"{run.rate_request_per_s:.3g} requests/s a server {run.met_ttft / max(run.arrived, 1):.0%} "
        f"of requests meet TTFT {slo.ttft_s:g} s and {run.met_tpot / max(run.arrived, 1):.0%} TPOT "
        f"{slo.tpot_s * 1e3:g} ms; {slo.quantile:.0%} must meet both"
    )


def _nearly_idle(made: Group, *, serving: Serving, traffic: Traffic, slo: Slo) -> capacity.Run:
    """Return one server alone under hardly any load."""
    fleet = Cell(groups=(replace(made, role="mixed", count=1),), serving=serving).fleet
    rate = min(traffic.most_request_per_s, 50.0 / traffic.span_s)
    return capacity.simulate(fleet, traffic, rate_request_per_s=rate, slo=slo)
