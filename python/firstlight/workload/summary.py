"""What a trace looks like: rate, burstiness, lengths."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from firstlight.errors import TraceError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from firstlight.workload.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Facts about a trace.

    Attributes:
        name: Name.
        source: Where it comes from.
        requests: Number of requests.
        duration_s: Length [s].
        request_per_s: Mean rate [1/s].
        interarrival_cv: Spread of the gaps over their mean; 1 is Poisson; None below two gaps.
        count_cv_1s: Spread of the count in 1 s over its mean.
        count_cv_10s: Spread of the count in 10 s over its mean.
        isl_tok: Prompt lengths: mean, p50, p90, p99, max [tok].
        osl_tok: Answer lengths: mean, p50, p90, p99, max [tok].
    """

    name: str
    source: str
    requests: int
    duration_s: float
    request_per_s: float
    interarrival_cv: float | None
    count_cv_1s: float | None
    count_cv_10s: float | None
    isl_tok: dict[str, float]
    osl_tok: dict[str, float]


def summarize(trace: Trace) -> Summary:
    """Return the facts about a trace."""
    return Summary(
        name=trace.name,
        source=trace.source,
        requests=len(trace),
        duration_s=trace.duration_s,
        request_per_s=trace.request_per_s,
        interarrival_cv=interarrival_cv(trace.arrival_s),
        count_cv_1s=count_cv(trace.arrival_s, duration_s=trace.duration_s, bin_s=1.0),
        count_cv_10s=count_cv(trace.arrival_s, duration_s=trace.duration_s, bin_s=10.0),
        isl_tok=_lengths(trace.isl_tok),
        osl_tok=_lengths(trace.osl_tok),
    )


def count_cv(arrival_s: ArrayLike, *, duration_s: float, bin_s: float) -> float | None:
    """Return the spread of the number of arrivals in a bin over its mean; Poisson is 1/√mean.

    Args:
        arrival_s: Arrivals, in any order [s].
        duration_s: Length of the observation; a last part shorter than a bin is left out [s].
        bin_s: Length of a bin [s].

    Returns:
        The coefficient of variation, or None when no two whole bins fit or nothing falls in them.

    Raises:
        TraceError: When a length of time is not positive.
    """
    for name, value in (("duration_s", duration_s), ("bin_s", bin_s)):
        if not (math.isfinite(value) and value > 0):
            raise TraceError(f"{name}: {value!r} is not allowed; above 0 s")
    bins = int(duration_s // bin_s)
    if bins < 2:
        return None
    index = np.floor_divide(np.asarray(arrival_s, dtype=np.float64), bin_s).astype(np.int64)
    counts = np.bincount(index[index < bins], minlength=bins)
    mean = float(counts.mean())
    return float(counts.std()) / mean if mean else None


def interarrival_cv(arrival_s: ArrayLike) -> float | None:
    """Return the spread of the gaps between sorted arrivals over their mean; 1 is Poisson."""
    gaps = np.diff(np.asarray(arrival_s, dtype=np.float64))
    if len(gaps) < 2 or gaps.mean() <= 0:
        return None
    return float(gaps.std() / gaps.mean())


def _lengths(tokens: NDArray[np.int64]) -> dict[str, float]:
    p50, p90, p99 = (float(value) for value in np.percentile(tokens, (50, 90, 99)))
    return {
        "mean": float(tokens.mean()),
        "p50": p50,
        "p90": p90,
        "p99": p99,
        "max": float(tokens.max()),
    }
