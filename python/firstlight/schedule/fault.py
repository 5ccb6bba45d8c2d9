"""`Fault`: a replica, or its link, in trouble for a while."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from firstlight.errors import ScheduleError

if TYPE_CHECKING:
    from firstlight.steps import StepTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A replica in trouble.

    Attributes:
        kind: ``down``: the step under way is lost, and so are all KV caches and cached prefixes on
            the replica; its requests are routed anew and computed again; it comes back empty.
            ``slow``: steps that begin meanwhile cost what `table` says. ``link-down``: pulls into
            the replica stand still. ``link-slow``: pulls that begin meanwhile take `slower` times as
            long.
        replica: Its number over all pools, in their order.
        from_ps: Begin [ps].
        until_ps: End [ps].
        table: Step costs under ``slow``, of the shape of the pool's.
        slower: Factor under ``link-slow``, 1 or more.
    """

    kind: Literal["down", "slow", "link-down", "link-slow"]
    replica: int
    from_ps: int
    until_ps: int
    table: StepTable | None = None
    slower: float = 1.0


def slower_table(table: StepTable, *, factor: float) -> StepTable:
    """Return step costs whose linear layers take `factor` times as long, at the same energy.

    An optical server of n engines that share every layer has a factor of n / (n − 1) when one of
    them has failed.

    Args:
        table: Costs of the whole replica.
        factor: 1 or more.

    Raises:
        ScheduleError: The factor is below 1.
    """
    if not 1.0 <= factor <= 1000.0:
        raise ScheduleError(f"factor={factor!r} is not allowed; 1 to 1000")
    return replace(table, linear_ps=np.round(table.linear_ps * factor).astype(np.uint64))
