"""What limits a design: give each resource a little more, simulate again, see which helped.

What a resource is worth is how much more load the cell then carries within its service level. How
much seldomer requests are late at the same load would not do: a cell is chosen so that its pools are
balanced, and beyond the load it carries the next resource stops it at once.
"""

from __future__ import annotations

import math
from dataclasses import replace
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


def find(
    cell: Cell,
    *,
    traffic: Traffic,
    slo: Slo,
    rate_request_per_s: float,
    cancelled: Callable[[], bool] | None = None,
) -> Binding:
    """Return the resource whose increase raises a cell's capacity most.

    Power itself is left out: at a fixed cell, goodput is proportional to it by construction.

    Args:
        cell: The cell.
        traffic: A sample of the traffic.
        slo: The service level.
        rate_request_per_s: What the cell carries.
        cancelled: Asked a few times a second.
    """
    allowed = 1.0 - slo.quantile

    def late_frac(changed: Cell, level: Slo, load: float) -> float:
        run = capacity.simulate(
            changed.fleet,
            traffic,
            rate_request_per_s=min(load * rate_request_per_s, traffic.most_request_per_s),
            slo=level,
            cancelled=cancelled,
        )
        return 1.0 - run.attainment_frac

    def edge(changed: Cell, level: Slo) -> float:
        """Return the logarithm of the load at which as many are late as may be."""
        before, late_before = math.nan, math.nan
        for load in LOADS:
            late = late_frac(changed, level, load)
            if late > allowed:
                if math.isnan(before):
                    return math.log(load)
                share = (allowed - late_before) / (late - late_before)
                return math.log(before) + share * math.log(load / before)
            before, late_before = load, late
        return math.log(before)

    today = edge(cell, slo)
    gains = {
        (name, pool): (edge(changed, level) - today) / math.log(MORE)
        for name, pool, changed, level in _more(cell, slo)
    }
    (resource, pool), marginal = max(gains.items(), key=lambda item: item[1])
    return Binding(
        resource=resource,
        pool=pool,
        marginal=marginal,
        others={f"{name} @ {where}": gain for (name, where), gain in gains.items() if gain},
    )


def _more(cell: Cell, slo: Slo) -> Iterator[tuple[str, str, Cell, Slo]]:
    """Yield (resource, pool, cell with more of it, service level)."""
    for index, group in enumerate(cell.groups):
        for name, changed in _more_of(group):
            groups = (*cell.groups[:index], changed, *cell.groups[index + 1 :])
            yield name, group.role, replace(cell, groups=groups), slo
    yield "TTFT limit", "all", cell, replace(slo, ttft_s=slo.ttft_s * MORE)
    yield "TPOT limit", "all", cell, replace(slo, tpot_s=slo.tpot_s * MORE)


def _more_of(group: Group) -> Iterator[tuple[str, Group]]:
    table = group.table
    if group.server.engine is not None:
        yield "optical pass rate", replace(group, table=faster(table, part="all", by=MORE))
    else:
        yield "compute", replace(group, table=faster(table, part="matrix", by=MORE))
        yield "memory bandwidth", replace(group, table=faster(table, part="memory", by=MORE))
    yield "KV memory", replace(group, kv_blocks=int(group.kv_blocks * MORE))
