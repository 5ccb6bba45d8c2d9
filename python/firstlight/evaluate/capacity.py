"""The highest load a cell carries within its service level.

Loads are nested (every request has one fixed mark), so the search compares like with like.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

from firstlight import schedule

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from firstlight.workload import Requests, Superposed

PS_PER_S = 10**12
Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """A service level: the share `quantile` of arrivals meets both limits.

    Attributes:
        ttft_s: Longest time to first token [s].
        tpot_s: Longest mean time per output token after the first [s].
        quantile: Share that must meet them.
    """

    ttft_s: float
    tpot_s: float
    quantile: float


@dataclass(frozen=True, kw_only=True)
class Run:
    """One simulated load.

    Attributes:
        rate_request_per_s: Load offered to the cell [request/s].
        outcome: What the scheduler did.
        arrived: Requests that arrived inside the window.
        met: Of these, requests that met both limits.
        met_ttft: Requests that met the first.
        met_tpot: Requests that met the second.
        counted: Which requests arrived inside the window, (requests,) bool.
        slo: The service level they are judged by.
    """

    rate_request_per_s: float
    outcome: schedule.Outcome
    arrived: int
    met: int
    met_ttft: int
    met_tpot: int
    counted: np.ndarray
    slo: Slo

    @property
    def holds(self) -> bool:
        """Whether the run met its service level."""
        return not self.outcome.stopped and self.met >= self.slo.quantile * self.arrived - 1e-9

    @property
    def attainment_frac(self) -> float:
        """Share of arrivals that met both limits."""
        return self.met / self.arrived if self.arrived else 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Traffic:
    """The requests one cell may be offered, each with its fixed mark.

    Attributes:
        requests: Requests at the highest load, in order of arrival.
        mark: Fixed uniform mark of each, (requests,).
        full_request_per_s: The load at which every mark up to 1 is kept [request/s].
        most_request_per_s: Highest load that can be asked for [request/s].
        span_s: Length of time [s].
        warm_up_frac: First part of it, not counted.
        phase: Only this phase of each request: ``prefill`` ends with the first token, ``decode``
            starts with the prompt present; None: both.
    """

    requests: Requests
    mark: NDArray[np.float64]
    full_request_per_s: float
    most_request_per_s: float
    span_s: float
    warm_up_frac: float
    phase: Literal["prefill", "decode"] | None = None

    @classmethod
    def of(cls, superposed: Superposed, *, warm_up_frac: float) -> Traffic:
        """Return superposed traffic."""
        every = superposed.requests
        return cls(
            requests=every,
            mark=superposed.mark,
            full_request_per_s=superposed.full_request_per_s,
            most_request_per_s=superposed.max_request_per_s,
            span_s=every.duration_ps / PS_PER_S,
            warm_up_frac=warm_up_frac,
        )

    @property
    def mean_input_tok(self) -> float:
        """Mean prompt [tok]."""
        return float(self.requests.isl_tok.mean())

    @property
    def mean_uncached_tok(self) -> float:
        """Mean prompt tokens to compute [tok]."""
        return float((self.requests.isl_tok - self.requests.cached_tok).mean())

    @property
    def mean_output_tok(self) -> float:
        """Mean tokens to generate [tok]."""
        return float(self.requests.osl_tok.mean())

    def at(self, rate_request_per_s: float) -> schedule.Arrivals:
        """Return the requests of a load."""
        every = self.requests
        keep = np.flatnonzero(self.mark < rate_request_per_s / self.full_request_per_s)
        isl, osl, cached = every.isl_tok[keep], every.osl_tok[keep], every.cached_tok[keep]
        if self.phase == "prefill":
            osl = np.ones_like(osl)
        elif self.phase == "decode":
            cached = isl - 1
        return schedule.Arrivals(
            arrival_ps=every.arrival_ps[keep], isl_tok=isl, cached_tok=cached, osl_tok=osl
        )


def simulate(
    fleet: schedule.Fleet,
    traffic: Traffic,
    *,
    rate_request_per_s: float,
    slo: Slo,
    stop_early: bool = False,
    cancelled: Callable[[], bool] | None = None,
) -> Run:
    """Run one load through a cell.

    Args:
        fleet: The cell.
        traffic: What arrives.
        rate_request_per_s: Load offered to the cell [request/s].
        slo: The service level.
        stop_early: Give up once the level cannot be met any more; only the verdict is then valid.
        cancelled: Asked a few times a second.
    """
    if cancelled is not None and cancelled():
        raise KeyboardInterrupt
    arrivals = traffic.at(rate_request_per_s)
    start = round(traffic.span_s * traffic.warm_up_frac * PS_PER_S)
    end = round(traffic.span_s * PS_PER_S)
    counted = arrivals.arrival_ps >= start
    arrived = int(counted.sum())
    ttft_ps, tpot_ps = round(slo.ttft_s * PS_PER_S), round(slo.tpot_s * PS_PER_S)
    longest = int(arrivals.osl_tok.max(initial=1))
    outcome = schedule.run(
        fleet,
        arrivals,
        window_ps=(start, end),
        # By then a request that is unfinished has missed.
        drain_ps=end + ttft_ps + tpot_ps * longest,
        limits=schedule.Limits(
            ttft_ps=ttft_ps,
            tpot_ps=tpot_ps,
            misses=int(arrived * (1.0 - slo.quantile) + 1e-9) if stop_early else arrived,
        ),
        cancelled=cancelled,
    )
    # A request that never got a token has a time beyond every limit.
    first_ok = outcome.first_ps - arrivals.arrival_ps <= ttft_ps
    gaps = arrivals.osl_tok.astype(np.uint64) - 1
    done = outcome.last_ps < schedule.NEVER
    rest_ok = done & (outcome.last_ps - outcome.first_ps <= gaps * np.uint64(tpot_ps))
    first_ok, rest_ok = first_ok & counted, rest_ok & counted
    return Run(
        rate_request_per_s=rate_request_per_s,
        outcome=outcome,
        arrived=arrived,
        met=int((first_ok & rest_ok).sum()),
        met_ttft=int(first_ok.sum()),
        met_tpot=int(rest_ok.sum()),
        counted=counted,
        slo=slo,
    )


def search(
    fleet: schedule.Fleet,
    traffic: Traffic,
    *,
    slo: Slo,
    guess_request_per_s: float,
    tolerance_frac: float,
    first_step_frac: float = 0.25,
    cancelled: Callable[[], bool] | None = None,
) -> Run | None:
    """Return the run at the highest load that meets the service level; None when none does.

    As `search_for`, with the whole run.
    """
    return search_for(
        lambda run: run,
        fleet,
        traffic,
        slo=slo,
        guess_request_per_s=guess_request_per_s,
        tolerance_frac=tolerance_frac,
        first_step_frac=first_step_frac,
        cancelled=cancelled,
    )


def search_for(
    keep: Callable[[Run], Kept],
    fleet: schedule.Fleet,
    traffic: Traffic,
    *,
    slo: Slo,
    guess_request_per_s: float,
    tolerance_frac: float,
    first_step_frac: float = 0.25,
    cancelled: Callable[[], bool] | None = None,
) -> Kept | None:
    """Return what is kept of the run at the highest load that meets the service level.

    Bisection on the logarithm of the load, bracketed outward from a guess. A run holds arrays over
    all its requests; what is kept of it need not.

    Args:
        keep: What to keep of a run that holds.
        fleet: The cell.
        traffic: What arrives.
        slo: The service level.
        guess_request_per_s: Where to start.
        tolerance_frac: Width of the last bracket over the load.
        first_step_frac: How far from the guess the bracket is tried first.
        cancelled: Asked a few times a second.
    """
    most = traffic.most_request_per_s
    # Fewer arrivals than this in the window say nothing about a quantile.
    least = min(most, 20.0 / (traffic.span_s * (1.0 - traffic.warm_up_frac)))
    best: Kept | None = None

    def holds(rate: float) -> bool:
        nonlocal best
        run = simulate(
            fleet, traffic, rate_request_per_s=rate, slo=slo, stop_early=True, cancelled=cancelled
        )
        if not run.holds:
            return False
        # Loads that hold are tried in rising order once one has held.
        best = keep(run)
        return True

    start = min(max(guess_request_per_s, least), most)
    low, high = _bracket(holds, guess=start, step=1.0 + first_step_frac, least=least, most=most)
    while low > 0.0 and high / low > 1.0 + tolerance_frac:
        middle = math.sqrt(low * high)
        if holds(middle):
            low = middle
        else:
            high = middle
    return best


def _bracket(
    holds: Callable[[float], bool], *, guess: float, step: float, least: float, most: float
) -> tuple[float, float]:
    """Return a load that holds (0 when none does) and one that does not (or the most there is)."""
    if holds(guess):
        low = guess
        while low < most:
            high = min(low * step, most)
            if not holds(high):
                return low, high
            low, step = high, step * step
        return most, most
    high = guess
    while high > least:
        low = max(high / step, least)
        if holds(low):
            return low, high
        high, step = low, step * step
    return 0.0, high
