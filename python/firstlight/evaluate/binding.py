"""What limits a design: give each resource a little more, simulate again, see which helped.

What a resource is worth is how much more load the cell then carries within its service level. How
much seldomer requests are late at the same load would not do: a cell is chosen so that its pools are
balanced, and beyond the load it carries the next resource stops it at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from firstlight.evaluate import capacity
from firstlight.evaluate.answer import Binding
from firstlight.evaluate.cell import Cell, Group, faster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from firstlight.evaluate.capacity import Slo, Traffic

MORE = 1.05
"""How much more of a resource is tried."""
LOADS = (1.0, 1.015, 1.03, 1.05, 1.08, 1.11)
"""Loads over the one a cell carries; between the last that holds and the next is interpolated."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A cell with a little more of one resource.

    Attributes:
        resource: Which; empty for the cell as it is.
        pool: Whose.
        cell: The cell.
        slo: The service level it is judged by.
    """

    resource: str
    pool: str
    cell: Cell
    slo: Slo


def variants(cell: Cell, slo: Slo) -> list[Variant]:
    """Return a cell as it is, then with more of each resource.

    Power itself is left out: at a fixed cell, goodput is proportional to it by construction.
    """
    return [Variant(resource="", pool="", cell=cell, slo=slo), *_more(cell, slo)]


def edge(
    variant: Variant,
    *,
    traffic: Traffic,
    rate_request_per_s: float,
    cancelled: Callable[[], bool] | None = None,
) -> float:
    """Return how much load a variant carries, as the logarithm of a multiple of a load.

    Args:
        variant: The cell.
        traffic: A sample of the traffic.
        rate_request_per_s: What the cell as it is carries, about.
        cancelled: Asked a few times a second.
    """
    allowed = 1.0 - variant.slo.quantile
    before, late_before = math.nan, math.nan
    for load in LOADS:
        run = capacity.simulate(
            variant.cell.fleet,
            traffic,
            rate_request_per_s=min(load * rate_request_per_s, traffic.most_request_per_s),
            slo=variant.slo,
            cancelled=cancelled,
        )
        late = 1.0 - run.attainment_frac
        if late > allowed:
            if math.isnan(before):
                return math.log(load)
            share = (allowed - late_before) / (late - late_before)
            return math.log(before) + share * math.log(load / before)
        before, late_before = load, late
    return math.log(before)


def conclude(tried: list[Variant], edges: list[float]) -> Binding:
    """Return the resource whose increase raises a cell's capacity most.

    Args:
        tried: What `variants` gives.
        edges: The edge of each.
    """
    today = edges[0]
    gains = {
        (variant.resource, variant.pool): (at - today) / math.log(MORE)
        for variant, at in zip(tried[1:], edges[1:], strict=True)
    }
    (resource, pool), marginal = max(gains.items(), key=lambda item: item[1])
    return Binding(
        resource=resource,
        pool=pool,
        marginal=marginal,
        others={f"{name} @ {where}": gain for (name, where), gain in gains.items() if gain},
    )


def _more(cell: Cell, slo: Slo) -> Iterator[Variant]:
    for index, group in enumerate(cell.groups):
        for name, changed in _more_of(group):
            groups = (*cell.groups[:index], changed, *cell.groups[index + 1 :])
            more = replace(cell, groups=groups)
            yield Variant(resource=name, pool=group.role, cell=more, slo=slo)
    for name, looser in (
        ("TTFT limit", replace(slo, ttft_s=slo.ttft_s * MORE)),
        ("TPOT limit", replace(slo, tpot_s=slo.tpot_s * MORE)),
    ):
        yield Variant(resource=name, pool="all", cell=cell, slo=looser)


def _more_of(group: Group) -> Iterator[tuple[str, Group]]:
    table = group.table
    if group.server.engine is not None:
        yield "optical pass rate", replace(group, table=faster(table, part="all", by=MORE))
    else:
        yield "compute", replace(group, table=faster(table, part="matrix", by=MORE))
        yield "memory bandwidth", replace(group, table=faster(table, part="memory", by=MORE))
    yield "KV memory", replace(group, kv_blocks=int(group.kv_blocks * MORE))
