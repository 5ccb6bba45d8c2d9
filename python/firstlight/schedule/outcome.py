"""`Outcome`: when each token came, and what every pool did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run did.

    Attributes:
        arrivals: The requests that were run.
        arrival_ps: When each arrived, (requests,) uint64 [ps]; differs from what was given for
            requests that wait for others or for room.
        first_ps: First token, (requests,) uint64 [ps]; `NEVER` when none came.
        last_ps: Last token, (requests,) uint64 [ps]; `NEVER` when it did not come.
        started_ps: First admission, (requests,) uint64 [ps]; `NEVER` when it was not.
        state: Index into `STATES`, (requests,) uint8.
        preemptions: How often each was preempted, (requests,) uint16.
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

    arrivals: Arrivals
    arrival_ps: NDArray[np.uint64]
    first_ps: NDArray[np.uint64]
    last_ps: NDArray[np.uint64]
    started_ps: NDArray[np.uint64]
    state: NDArray[np.uint8]
    preemptions: NDArray[np.uint16]
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
