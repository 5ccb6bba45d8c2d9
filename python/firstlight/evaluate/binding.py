"""What limits a design: give each resource a little more, simulate again, see which helped.

More of a resource at the same load leaves fewer requests late. The load at which the unchanged cell
is late as seldom says how much goodput the resource is worth.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from firstlight.evaluate import capacity
from firstlight.evaluate.answer import Binding
from firstlight.evaluate.cell import Cell, Group, faster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from firstlight.evaluate.capacity import Slo, Traffic

MORE = 1.1
"""How much more of a resource is tried."""
LOADS = (0.86, 0.9, 0.94, 0.97, 1.0, 1.04)
"""Loads of the unchanged cell, over the one it carries, between which is interpolated."""


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

    def late_frac(changed: Cell, level: Slo, load: float) -> float:
        run = capacity.simulate(
            changed.fleet,
            traffic,
            rate_request_per_s=min(load * rate_request_per_s, traffic.most_request_per_s),
            slo=level,
            cancelled=cancelled,
        )
        return 1.0 - run.attainment_frac

    # More load never means fewer late requests; where chance says so, it is smoothed away.
    late = np.maximum.accumulate([late_frac(cell, slo, load) for load in LOADS])
    logs = np.log(LOADS)
    today = float(np.interp(0.0, logs, late))
    gains: dict[tuple[str, str], float] = {}
    for name, pool, changed, level in _more(cell, slo):
        then = late_frac(changed, level, 1.0)
        worth = float(np.interp(today, late, logs)) - float(np.interp(then, late, logs))
        gains[name, pool] = worth / math.log(MORE)
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
