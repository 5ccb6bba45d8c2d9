"""`Trace`: when requests came and how long they were."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from firstlight.errors import TraceError

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_DURATION_S = 1e7
"""Longest trace [s]: 115 days, so that a few laps still fit a 64-bit picosecond clock."""

MAX_TOK = 2**31 - 1
"""Longest prompt or answer [tok]."""

PS_PER_S = 10**12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """Requests in order of arrival.

    Attributes:
        arrival_s: Arrivals from the first one on, (requests,) float64, sorted, first 0 or later [s].
        isl_tok: Prompt lengths, (requests,) int64 [tok].
        osl_tok: Answer lengths, (requests,) int64 [tok].
        duration_s: Length of the trace; past it the trace repeats [s].
        name: Short name.
        source: Where it comes from.

    Raises:
        TraceError: When the trace is empty, unsorted, or a value is out of range.
    """

    arrival_s: NDArray[np.float64]
    isl_tok: NDArray[np.int64]
    osl_tok: NDArray[np.int64]
    duration_s: float
    name: str
    source: str

    def __post_init__(self) -> None:
        arrival = np.array(self.arrival_s, dtype=np.float64)
        isl, osl = _lengths("isl_tok", self.isl_tok), _lengths("osl_tok", self.osl_tok)
        if arrival.ndim != 1 or not len(arrival) == len(isl) == len(osl):
            raise TraceError(
                f"trace {self.name!r}: {len(arrival)} arrivals, {len(isl)} prompts and {len(osl)} "
                "answers; one of each a request"
            )
        if not len(arrival):
            raise TraceError(f"trace {self.name!r} is empty; at least one request")
        if not (math.isfinite(self.duration_s) and 0 < self.duration_s <= MAX_DURATION_S):
            raise TraceError(
                f"trace {self.name!r}: duration_s={self.duration_s!r} is not allowed; above 0, at "
                f"most {MAX_DURATION_S:g} s"
            )
        if not np.all(np.isfinite(arrival)) or arrival[0] < 0 or np.any(np.diff(arrival) < 0):
            raise TraceError(f"trace {self.name!r}: arrivals must be finite, ≥ 0 and sorted")
        if arrival[-1] > self.duration_s:
            raise TraceError(
                f"trace {self.name!r}: the last request comes at {arrival[-1]:g} s, after the end "
                f"at {self.duration_s:g} s"
            )
        for name, values in (("arrival_s", arrival), ("isl_tok", isl), ("osl_tok", osl)):
            values.flags.writeable = False
            object.__setattr__(self, name, values)

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.arrival_s)

    @property
    def request_per_s(self) -> float:
        """Mean arrival rate [1/s]."""
        return len(self) / self.duration_s

    def arrival_ps(self) -> NDArray[np.uint64]:
        """Return arrivals as whole picoseconds, (requests,)."""
        return np.rint(self.arrival_s * PS_PER_S).astype(np.uint64)

    @classmethod
    def from_arrivals(
        cls,
        arrival_s: NDArray[np.float64],
        *,
        isl_tok: NDArray[np.int64],
        osl_tok: NDArray[np.int64],
        name: str,
        source: str,
        duration_s: float | None = None,
    ) -> Trace:
        """Make a trace from sorted times that need not start at 0.

        Args:
            arrival_s: Sorted times on any clock [s].
            isl_tok: Prompt lengths [tok].
            osl_tok: Answer lengths [tok].
            name: Short name.
            source: Where it comes from.
            duration_s: Length; None adds one mean gap after the last arrival, so that a repeated
                trace keeps its rate [s].

        Raises:
            TraceError: When values are out of range, or all requests come at once and no duration
                is given.
        """
        times = np.asarray(arrival_s, dtype=np.float64)
        if not len(times):
            raise TraceError(f"trace {name!r} is empty; at least one request")
        times = times - times[0]
        if duration_s is None:
            if times[-1] <= 0:
                raise TraceError(
                    f"trace {name!r}: all {len(times)} requests come at the same time, so it has no "
                    "rate; give duration_s"
                )
            duration_s = float(times[-1] * len(times) / (len(times) - 1))
        return cls(
            arrival_s=times,
            isl_tok=isl_tok,
            osl_tok=osl_tok,
            duration_s=duration_s,
            name=name,
            source=source,
        )


def _lengths(name: str, values: NDArray[np.int64]) -> NDArray[np.int64]:
    given = np.asarray(values)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise TraceError(f"{name}: one whole number a request, not {given.dtype} {given.shape}")
    if given.size and (int(given.min()) < 1 or int(given.max()) > MAX_TOK):
        raise TraceError(
            f"{name}: {int(given.min())} to {int(given.max())} is not allowed; 1 to {MAX_TOK} tokens"
        )
    return np.array(given, dtype=np.int64)
