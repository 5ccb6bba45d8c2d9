"""One design from its plan to its record: search, simulate the whole time, account."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from firstlight import cost
from firstlight.evaluate import capacity
from firstlight.evaluate.answer import CellInfo, Design, End, Parts, Power, Scope
from firstlight.evaluate.measure import measure

if TYPE_CHECKING:
    from collections.abc import Callable

    from firstlight.evaluate.capacity import Slo, Traffic
    from firstlight.evaluate.cell import Cell
    from firstlight.evaluate.measure import Measured
    from firstlight.evaluate.search import Budget, DesignPlan, Found

FULL_TOLERANCE_FRAC = 0.02
OF_SAMPLE = {1: 0.99, 2: 0.95}
"""What the whole time carries over what a sample of it does, about, by the number of pools: backlogs
have longer to build."""
SLOPE_OF_SAMPLE = 0.5
"""How much less steeply requests get late with load in the whole time than in a sample of it."""
FULL_STEP_FRAC = 0.02
"""How far the whole time may differ from the sample of it that was searched first."""


@dataclass(frozen=True, kw_only=True)
class Solved:
    """A design that was searched.

    Attributes:
        plan: What was asked for.
        found: Its best cell; None when nothing meets the service level.
        measured: That cell at its load over the whole time.
        reason: Why there is none.
    """

    plan: DesignPlan
    found: Found | None
    measured: Measured | None
    reason: str | None

    @property
    def goodput(self) -> float:
        """Requests a second of the fleet that meet the service level."""
        if self.found is None or self.measured is None:
            return 0.0
        return self.measured.met * (self.found.cells / self.measured.window_s)


def solve(
    plan: DesignPlan,
    found: Found,
    *,
    full: Traffic,
    slo: Slo,
    budget: Budget,
    rate_request_per_s: float | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Solved:
    """Return a found cell at its capacity, or at a given load, over the whole time.

    Args:
        plan: The design.
        found: Its best cell, from a sample of the time.
        full: The whole time.
        slo: The service level.
        budget: What the fleet may take.
        rate_request_per_s: Load of the fleet; None finds the capacity.
        cancelled: Asked a few times a second.
    """
    if rate_request_per_s is not None:
        rate = min(rate_request_per_s / found.cells, full.most_request_per_s)
        return at(
            plan, found, full=full, slo=slo, cell_rate=rate, budget=budget, cancelled=cancelled
        )
    held = capacity.search_for(
        lambda run: measure(run, found.cell, site=budget.site),
        found.cell.fleet,
        full,
        slo=slo,
        guess_request_per_s=found.rate_request_per_s * OF_SAMPLE[len(found.cell.groups)],
        tolerance_frac=FULL_TOLERANCE_FRAC,
        first_step_frac=FULL_STEP_FRAC,
        slope=None if found.slope is None else SLOPE_OF_SAMPLE * found.slope,
        cancelled=cancelled,
    )
    if held is None:
        return refused(plan, "a sample of the time meets the service level, the whole of it never")
    return Solved(plan=plan, found=found, measured=held.kept, reason=None)


def refused(plan: DesignPlan, reason: str) -> Solved:
    """Return a design that nothing can be said of but why."""
    return Solved(plan=plan, found=None, measured=None, reason=reason)


def together(found: Found) -> Found:
    """Return all cells of a fleet as one cell."""
    groups = tuple(replace(group, count=group.count * found.cells) for group in found.cell.groups)
    return replace(
        found,
        cell=replace(found.cell, groups=groups),
        cells=1,
        rate_request_per_s=found.rate_request_per_s * found.cells,
    )


def at(
    plan: DesignPlan,
    found: Found,
    *,
    full: Traffic,
    slo: Slo,
    cell_rate: float,
    budget: Budget,
    cancelled: Callable[[], bool] | None = None,
) -> Solved:
    """Return a found cell at one load over the whole time."""
    run = capacity.simulate(
        found.cell.fleet, full, rate_request_per_s=cell_rate, slo=slo, cancelled=cancelled
    )
    measured = measure(run, found.cell, site=budget.site)
    return Solved(plan=plan, found=found, measured=measured, reason=None)


def record(solved: Solved, *, budget: Budget) -> Design:
    """Return the record of a solved design; what needs other designs is filled in by `compare`."""
    found, measured = solved.found, solved.measured
    if found is None or measured is None or not measured.completed:
        return _empty(solved)
    site, cell, cells = budget.site, found.cell, found.cells
    done = measured.completed
    per_s = cells / measured.window_s
    parts = Parts(
        **{name: getattr(measured.parts_j, name) / done for name in Parts.__struct_fields__}
    )
    input_tok, output_tok = max(measured.input_tok, 1), max(measured.output_tok, 1)
    usd = measured.cost_usd
    return Design(
        name=solved.plan.name,
        feasible=measured.holds,
        reason=None if measured.holds else _overloaded(measured, cells),
        servers=_servers(cell, cells),
        power_w=Power(
            provisioned=cells * site.provisioned_w(cell.peak_w),
            mean=measured.energy_j.total * per_s,
            peak=cells * site.provisioned_w(cell.peak_w) / site.margin_ratio,
            boundary="facility",
        ),
        offered_request_per_s=measured.rate_request_per_s * cells,
        request_per_s=done * per_s,
        goodput_request_per_s=solved.goodput,
        input_tok_per_s=measured.input_tok * per_s,
        output_tok_per_s=measured.output_tok * per_s,
        ttft_s=measured.ttft_s,
        tpot_s=measured.tpot_s,
        itl_s=measured.itl_s,
        e2e_s=measured.e2e_s,
        attainment_frac=measured.attainment_frac,
        energy_j_per_request=parts.total,
        energy_j_per_request_by_part=parts,
        energy_j_per_tok_input=measured.energy_j.prefill / input_tok,
        energy_j_per_tok_output=measured.energy_j.decode / output_tok,
        cost_usd_per_mtok_input=usd.prefill / input_tok * 1e6,
        cost_usd_per_mtok_input_uncached=usd.prefill / max(measured.uncached_tok, 1) * 1e6,
        cost_usd_per_mtok_output=usd.decode / output_tok * 1e6,
        cost_usd_per_mtok_blended=usd.total / (input_tok + output_tok) * 1e6,
        cost_usd_per_request=usd.total / done,
        carbon_g_per_request=cost.carbon_g(measured.energy_j.total, rates=site.rates) / done,
        gpu_equivalents_freed=None,
        utilization=measured.utilization,
        binding=None,
        bursts=None,
        scopes=_scopes(measured),
        cell=CellInfo(
            servers={f"{group.role}:{group.server.id}": group.count for group in cell.groups},
            count=cells,
            tp={group.role: group.tp for group in cell.groups},
            chunk_tok={group.role: group.chunk_tok for group in cell.groups},
            kv_blocks={group.role: group.kv_blocks for group in cell.groups},
            source="computed: (memory × utilisation − weights − activations) / bytes of a block",
        ),
        band=None,
        accuracy=None,
        retrofit=None,
    )


def _overloaded(measured: Measured, cells: int) -> str:
    """Say how far a given load is beyond what a fleet carries."""
    return (
        f"at {measured.rate_request_per_s * cells:,.0f} requests/s only "
        f"{measured.attainment_frac:.1%} meet the service level"
    )


def end(solved: Solved, *, server: str, budget: Budget) -> End:
    """Return a solved design as one end of a band."""
    full = record(solved, budget=budget)
    power = full.power_w.provisioned if full.power_w else 0.0
    return End(
        server=server,
        feasible=full.feasible,
        reason=full.reason,
        goodput_request_per_s=full.goodput_request_per_s,
        goodput_request_per_s_per_w=full.goodput_request_per_s / power if power else 0.0,
        energy_j_per_request=full.energy_j_per_request,
        cost_usd_per_request=full.cost_usd_per_request,
        servers=full.servers,
    )


def gpus(cell: Cell) -> int:
    """Return the GPUs in a cell."""
    return sum(
        group.count * group.server.accelerators
        for group in cell.groups
        if group.server.kind == "gpu"
    )


def _servers(cell: Cell, cells: int) -> dict[str, int]:
    servers: dict[str, int] = {}
    for group in cell.groups:
        servers[group.server.id] = servers.get(group.server.id, 0) + group.count * cells
    return servers


def _scopes(measured: Measured) -> dict[str, Scope]:
    done = measured.completed
    energies = {
        "linear_only": (measured.linear_j / done, "board, above idle"),
        "prefill": (measured.energy_j.prefill / done, "facility"),
        "inference": (measured.energy_j.total / done, "facility"),
    }
    return {
        name: Scope(
            energy_j_per_request=energy_j,
            boundary=boundary,
            gain_vs_colocated=None,
            gain_vs_disaggregated=None,
        )
        for name, (energy_j, boundary) in energies.items()
    }


def _empty(solved: Solved) -> Design:
    nothing: dict[str, None] = dict.fromkeys(
        (
            "power_w", "ttft_s", "tpot_s", "itl_s", "e2e_s", "energy_j_per_request",
            "energy_j_per_request_by_part", "energy_j_per_tok_input", "energy_j_per_tok_output",
            "cost_usd_per_mtok_input", "cost_usd_per_mtok_input_uncached",
            "cost_usd_per_mtok_output", "cost_usd_per_mtok_blended", "cost_usd_per_request",
            "carbon_g_per_request", "gpu_equivalents_freed", "binding", "bursts", "cell", "band", "accuracy",
            "retrofit",
        )
    )  # fmt: skip
    return Design(
        name=solved.plan.name,
        feasible=False,
        reason=solved.reason
        or "no request was completed in one cell: too few arrive there to judge, or all are too long",
        servers={},
        offered_request_per_s=0.0,
        request_per_s=0.0,
        goodput_request_per_s=0.0,
        input_tok_per_s=0.0,
        output_tok_per_s=0.0,
        attainment_frac=0.0,
        utilization={},
        scopes={},
        **nothing,
    )
