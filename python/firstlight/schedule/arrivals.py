"""`Arrivals`: the requests that come, what they share, and whom they wait for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Requests in order of arrival.

    Attributes:
        arrival_ps: Arrival, (requests,) uint64 [ps].
        isl_tok: Prompt tokens, (requests,) uint32, at least 1.
        cached_tok: Prompt tokens whose KV is present, (requests,) uint32, below ``isl_tok``.
        osl_tok: Tokens to generate, (requests,) uint32, at least 1.
        keep: Which rows come, (requests,) bool, so that loads that are nested share their columns;
            None: all. Not where requests wait for others.
        unit_from: Where the cache units of each request begin in `unit_of`, (requests + 1,) uint64;
            None when prompts have no identity.
        unit_of: Ids of whole units, counted from the start of each prompt; an id stands for its
            unit and everything before it, and they may go on into the answer, uint32.
        follow_from: Where the requests that each waits for begin in `follow_of`, (requests + 1,)
            uint64; None when nobody waits.
        follow_of: Earlier rows: a turn waits for the one before it, a join for every branch, uint32.
        think_ps: From the end of the last of them to the request, a tool call or a person
            reading, (requests,) uint64 [ps].
        in_flight: Most requests in flight, others wait at the client (closed loop); 0: any number.
    """

    arrival_ps: NDArray[np.uint64]
    isl_tok: NDArray[np.uint32]
    cached_tok: NDArray[np.uint32]
    osl_tok: NDArray[np.uint32]
    keep: NDArray[np.bool_] | None = None
    unit_from: NDArray[np.uint64] | None = None
    unit_of: NDArray[np.uint32] | None = None
    follow_from: NDArray[np.uint64] | None = None
    follow_of: NDArray[np.uint32] | None = None
    think_ps: NDArray[np.uint64] | None = None
    in_flight: int = 0

    def __len__(self) -> int:
        """Return the number of requests that come."""
        return len(self.arrival_ps) if self.keep is None else int(self.keep.sum())

    def kept(self) -> Arrivals:
        """Return the lengths and times of the rows that come, without those that do not."""
        if self.keep is None:
            return self
        rows = self.keep.nonzero()[0]
        return Arrivals(
            arrival_ps=self.arrival_ps[rows],
            isl_tok=self.isl_tok[rows],
            cached_tok=self.cached_tok[rows],
            osl_tok=self.osl_tok[rows],
            in_flight=self.in_flight,
        )
