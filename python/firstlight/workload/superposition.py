"""Load from a trace: many seeded copies, shifted in a circle, thinned by fixed marks.

Copy `j` of a trace starts at its own random place and runs around the trace's length once. Each
request of each copy has one fixed uniform mark, and a load of rate r keeps the requests whose marks
lie below r over the rate of all copies. A higher load therefore contains every lower one, which is
what makes a search over loads smooth. Independent shifts average bursts away; `correlation_s` bounds
the shifts, so that 0 leaves the bursts of all copies together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from firstlight.errors import TraceError
from firstlight.workload.lengths import cached_tok
from firstlight.workload.summary import count_cv
from firstlight.workload.trace import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from firstlight.workload.trace import Trace

Number = TypeVar("Number", bound=np.generic)
MAX_MARKS = 2 * 10**9
"""Most candidate requests of all copies together."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Requests:
    """Requests in order of arrival, as the scheduler takes them.

    Attributes:
        arrival_ps: Arrivals, (requests,) uint64 [ps].
        isl_tok: Prompt lengths, (requests,) uint32 [tok].
        osl_tok: Answer lengths, (requests,) uint32 [tok].
        cached_tok: Prompt tokens already present, (requests,) uint32, below `isl_tok` [tok].
        duration_ps: Length of the observation [ps].
    """

    arrival_ps: NDArray[np.uint64]
    isl_tok: NDArray[np.uint32]
    osl_tok: NDArray[np.uint32]
    cached_tok: NDArray[np.uint32]
    duration_ps: int

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.arrival_ps)

    def count_cv(self, *, bin_s: float) -> float | None:
        """Return the spread of the count in `bin_s` seconds over its mean."""
        return count_cv(
            self.arrival_ps / PS_PER_S, duration_s=self.duration_ps / PS_PER_S, bin_s=bin_s
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Superposed:
    """All requests up to the highest rate asked for, sorted by time, copy and place in the trace.

    Attributes:
        requests: Requests at the highest rate.
        mark: Fixed uniform mark of each request, (requests,).
        copy: Copy each request belongs to, (requests,) uint32.
        index: Place of each request in the trace, (requests,) uint32.
        full_request_per_s: Rate of all copies together, none thinned out [1/s].
        max_request_per_s: Highest rate that can be asked for [1/s].
    """

    requests: Requests
    mark: NDArray[np.float64]
    copy: NDArray[np.uint32]
    index: NDArray[np.uint32]
    full_request_per_s: float
    max_request_per_s: float

    def at(self, request_per_s: float) -> Requests:
        """Return the load of a rate; it contains the load of every lower rate.

        Args:
            request_per_s: Mean rate [1/s]; the number of requests is random around it.

        Raises:
            TraceError: When the rate is not positive or above `max_request_per_s`.
        """
        if not 0.0 < request_per_s <= self.max_request_per_s:
            raise TraceError(
                f"request_per_s: {request_per_s!r} is not allowed; above 0, at most "
                f"{self.max_request_per_s:g} for which this load was built"
            )
        keep = np.flatnonzero(self.mark < request_per_s / self.full_request_per_s)
        every = self.requests
        return Requests(
            arrival_ps=every.arrival_ps[keep],
            isl_tok=every.isl_tok[keep],
            osl_tok=every.osl_tok[keep],
            cached_tok=every.cached_tok[keep],
            duration_ps=every.duration_ps,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """A sample of the time that holds its busy and its quiet parts alike.

    Of each period only the first part stays, and the parts are put end to end. A time shorter than
    two periods is kept whole.

    Attributes:
        period_s: Length of a period [s].
        keep_s: What stays of it [s].
    """

    period_s: float
    keep_s: float

    def shortened(
        self, time_ps: NDArray[np.uint64], *, length_ps: int
    ) -> tuple[NDArray[np.intp], NDArray[np.uint64], int]:
        """Return which times stay, where they lie then, and the length of what stays.

        Args:
            time_ps: Times, (requests,) [ps].
            length_ps: Length of the whole [ps].
        """
        period, keep = round(self.period_s * PS_PER_S), round(self.keep_s * PS_PER_S)
        if length_ps <= 2 * period or keep >= period:
            return np.arange(len(time_ps)), time_ps, length_ps
        number, inside = np.divmod(time_ps, np.uint64(period))
        stays = np.flatnonzero(inside < keep)
        whole, rest = divmod(length_ps, period)
        return (
            stays,
            number[stays] * np.uint64(keep) + inside[stays],
            whole * keep + min(rest, keep),
        )


def copies_for(trace: Trace, *, request_per_s: float) -> int:
    """Return how many copies a rate needs at least.

    Raises:
        TraceError: When the rate is not positive.
    """
    if not (math.isfinite(request_per_s) and request_per_s > 0):
        raise TraceError(f"request_per_s: {request_per_s!r} is not allowed; above 0")
    return max(1, math.ceil(request_per_s / trace.request_per_s))


def superpose(
    trace: Trace,
    *,
    copies: int,
    seed: int,
    max_request_per_s: float,
    correlation_s: float = math.inf,
    cached_frac: float = 0.0,
    fold: Fold | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Superposed:
    """Superpose seeded copies of a trace, ready to be thinned to any rate.

    Copy j depends on the seed and on j alone, not on how many copies there are.

    Args:
        trace: The trace.
        copies: Number of copies.
        seed: Seed of shifts and marks.
        max_request_per_s: Highest rate that will be asked for [1/s].
        correlation_s: Shifts are uniform from 0 to here; infinity: over the whole trace; 0: none [s].
        cached_frac: Share of each prompt that is already present.
        fold: Keep only a sample of the time; the whole of it when None.
        cancelled: Asked before every copy.

    Raises:
        TraceError: When a value is out of range or the copies do not reach the rate.
        KeyboardInterrupt: It was cancelled.
    """
    _check(trace, copies=copies, seed=seed, correlation_s=correlation_s)
    full = copies * trace.request_per_s
    # A rate computed from `copies_for` may exceed the full rate by rounding alone.
    if not 0.0 < max_request_per_s <= full * (1 + 1e-9):
        raise TraceError(
            f"max_request_per_s: {max_request_per_s!r} is not allowed; above 0, at most {full:g}, "
            f"the rate of {copies} copies"
        )
    length_ps = round(trace.duration_s * PS_PER_S)
    base_ps = trace.arrival_ps()
    window_s = min(correlation_s, trace.duration_s)
    kept_share = max_request_per_s / full
    span_ps = length_ps
    shifted: list[NDArray[np.uint64]] = []
    marks: list[NDArray[np.float64]] = []
    places: list[NDArray[np.uint32]] = []
    for copy in range(copies):
        if cancelled is not None and cancelled():
            raise KeyboardInterrupt
        rng = np.random.Generator(np.random.SFC64(np.random.SeedSequence((seed, copy))))
        shift_ps = np.uint64(int(rng.random() * window_s * PS_PER_S))
        mark = rng.random(len(trace))
        place = np.flatnonzero(mark < kept_share).astype(np.uint32)
        time_ps = (base_ps[place] + shift_ps) % np.uint64(length_ps)
        if fold is not None:
            stays, time_ps, span_ps = fold.shortened(time_ps, length_ps=length_ps)
            place = place[stays]
        shifted.append(time_ps)
        marks.append(mark[place])
        places.append(place)
    return _sorted(
        trace,
        shifted=shifted,
        marks=marks,
        places=places,
        cached_frac=cached_frac,
        length_ps=span_ps,
        full=full,
        limit=max_request_per_s,
    )


def _sorted(
    trace: Trace,
    *,
    shifted: list[NDArray[np.uint64]],
    marks: list[NDArray[np.float64]],
    places: list[NDArray[np.uint32]],
    cached_frac: float,
    length_ps: int,
    full: float,
    limit: float,
) -> Superposed:
    """Merge the copies; equal times keep the order of copies and of the trace.

    The lists are emptied on the way: there may be millions of requests, and what is merged goes.
    """
    sizes = [len(place) for place in places]
    time_ps = _joined(shifted)
    order = np.argsort(time_ps, kind="stable")
    time_ps = time_ps[order]
    index = _joined(places)[order]
    mark = _joined(marks)[order]
    copy = np.repeat(np.arange(len(sizes), dtype=np.uint32), sizes)[order]
    del order
    cached = cached_tok(trace.isl_tok, cached_frac=cached_frac)
    return Superposed(
        requests=Requests(
            arrival_ps=time_ps,
            isl_tok=trace.isl_tok.astype(np.uint32)[index],
            osl_tok=trace.osl_tok.astype(np.uint32)[index],
            cached_tok=cached.astype(np.uint32)[index],
            duration_ps=length_ps,
        ),
        mark=mark,
        copy=copy,
        index=index,
        full_request_per_s=full,
        max_request_per_s=limit,
    )


def _joined(parts: list[NDArray[Number]]) -> NDArray[Number]:
    whole = np.concatenate(parts)
    parts.clear()
    return whole


def _check(trace: Trace, *, copies: int, seed: int, correlation_s: float) -> None:
    if isinstance(copies, bool) or copies < 1:
        raise TraceError(f"copies: {copies!r} is not allowed; a whole number ≥ 1")
    if copies * len(trace) > MAX_MARKS:
        raise TraceError(
            f"copies: {copies} of {len(trace)} requests are too many; at most {MAX_MARKS:g} in all"
        )
    if isinstance(seed, bool) or seed < 0:
        raise TraceError(f"seed: {seed!r} is not allowed; a whole number ≥ 0")
    if math.isnan(correlation_s) or correlation_s < 0:
        raise TraceError(f"correlation_s: {correlation_s!r} is not allowed; 0 to infinity")
