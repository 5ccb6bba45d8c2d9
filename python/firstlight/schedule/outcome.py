"""`Outcome`: when each token came, and what every pool did."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from firstlight import _core
    from firstlight.schedule.arrivals import Arrivals

NEVER = 2**64 - 1
"""The time of a token that never came [ps]."""

STATES = (
    "queued",
    "prefilling",
    "decoding",
    "handed",
    "pulling",
    "ready",
    "done",
    "rejected",
    "loading",
    "loaded",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a service level, as the early stop of a run needs them.

    Attributes:
        ttft_ps: Longest time to first token [ps].
        tpot_ps: Longest mean time per output token after the first [ps].
        misses: Requests that may miss before the run is stopped.
    """

    ttft_ps: int
    tpot_ps: int
    misses: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run did. Columns over the requests are made when they are first asked for.

    Attributes:
        offered: The requests as they were given.
        core: The engine at the end; its requests move into the columns when these are asked for.
        window: Counters of each pool between the two times of the window, in the pools' order.
        total: Counters of each pool over the whole run.
        gap_counts: Histogram of gaps between tokens inside the window, by `gap_edges_ps`.
        gap_sum_ps: Sum of these gaps [ps].
        window_ps: Start and end of the window [ps].
        end_ps: Time up to which everything has happened [ps].
        events: Events simulated.
        stopped: Whether `Limits` ended the run early; the other numbers are then partial.
        free_blocks: Free KV blocks of every replica at the end.
        timeline: Columns of what every replica did, if it was recorded: replica, start_ps, end_ps,
            steps, prompt_tok, decode_seqs, energy_j (above idle).
    """

    offered: Arrivals
    core: _core.Engine
    window: tuple[dict[str, int], ...]
    total: tuple[dict[str, int], ...]
    gap_counts: NDArray[np.uint64]
    gap_sum_ps: int
    window_ps: tuple[int, int]
    end_ps: int
    events: int
    stopped: bool
    free_blocks: tuple[int, ...]
    timeline: dict[str, NDArray[Any]] | None = None

    @cached_property
    def arrivals(self) -> Arrivals:
        """The requests that came, those that were not kept left out."""
        return self.offered.kept()

    @cached_property
    def _columns(self) -> dict[str, NDArray[Any]]:
        return self.core.take_requests()

    @property
    def arrival_ps(self) -> NDArray[np.uint64]:
        """When each arrived, (requests,) [ps].

        It differs from what was given for requests that wait for others or for room.
        """
        return self._columns["arrival_ps"]

    @property
    def first_ps(self) -> NDArray[np.uint64]:
        """First token, (requests,) [ps]; `NEVER` when none came."""
        return self._columns["first_ps"]

    @property
    def last_ps(self) -> NDArray[np.uint64]:
        """Last token, (requests,) [ps]; `NEVER` when it did not come."""
        return self._columns["last_ps"]

    @property
    def started_ps(self) -> NDArray[np.uint64]:
        """First admission, (requests,) [ps]; `NEVER` when it was not."""
        return self._columns["started_ps"]

    @property
    def state(self) -> NDArray[np.uint8]:
        """Index into `STATES`, (requests,)."""
        return self._columns["state"]

    @property
    def preemptions(self) -> NDArray[np.uint16]:
        """How often each was preempted, (requests,)."""
        return self._columns["preemptions"]
