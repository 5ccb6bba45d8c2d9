"""What limits a design: give each resource a little more, simulate again, see which helped."""

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

MORE = 1.1
"""How much more of a resource is tried: enough to stand out from the search's tolerance."""
TOLERANCE_FRAC = 0.006
FIRST_STEP_FRAC = 0.03


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
        rate_request_per_s: About what the cell carries.
        cancelled: Asked a few times a second.
    """

    def carries(changed: Cell, level: Slo, guess: float) -> float:
        held = capacity.search(
            changed.fleet,
            traffic,
            slo=level,
            guess_request_per_s=guess,
            tolerance_frac=TOLERANCE_FRAC,
            first_step_frac=FIRST_STEP_FRAC,
            cancelled=cancelled,
        )
        return held.rate_request_per_s if held else 0.0

    base = carries(cell, slo, rate_request_per_s)
    gains: dict[tuple[str, str], float] = {}
    for name, pool, changed, level in _more(cell, slo):
        rate = carries(changed, level, base * 1.01)
        gains[name, pool] = math.log(max(rate, 1e-12) / max(base, 1e-12)) / math.log(MORE)
    (resource, pool), marginal = max(gains.items(), key=lambda item: item[1])
    return Binding(
        resource=resource,
        pool=pool,
        marginal=marginal,
        others={f"{name} @ {where}": gain for (name, where), gain in gains.items()},
    )


def _more(cell: Cell, slo: Slo) -> Iterator[tuple[str, str, Cell, Slo]]:
    """Yield (resource, pool, cell with more of it, service level)."""
    for index, group in enumerate(cell.groups):
        for name, changed in _more_of(group):
            groups = (*cell.groups[:index], changed, *cell.groups[index + 1 :])
            yield name, group.role, Cell(groups=groups, serving=cell.serving), slo
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
