"""The highest load a cell carries within its service level.

Loads are nested (every request has one fixed mark), so the search compares like with like.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from firstlight import schedule

if TYPE_CHECKING:
    from collections.abc import Callable

    from firstlight.workload import Superposed

PS_PER_S = 10**12


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
    """

    rate_request_per_s: float
    outcome: schedule.Outcome
    arrived: int
    met: int
    met_ttft: int
    met_tpot: int
    counted: np.ndarray

    @property
    def attainment_frac(self) -> float:
        """Share of arrivals that met both limits."""
        return self.met / self.arrived if self.arrived else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Superposed traffic and the part of it that is simulated.

    Attributes:
        superposed: The requests with their marks.
        span_s: Length simulated [s].
        warm_up_frac: First part of it, not counted.
    """

    superposed: Superposed
    span_s: float
    warm_up_frac: float

    def shorter(self, span_s: float) -> Traffic:
        """Return the first part of this traffic."""
        return Traffic(
            superposed=self.superposed,
            span_s=min(span_s, self.span_s),
            warm_up_frac=self.warm_up_frac,
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
    arrivals = traffic.superposed.at(rate_request_per_s, until_s=traffic.span_s)
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
    )


def meets(run: Run, *, slo: Slo) -> bool:
    """Return whether a run met its service level."""
    return not run.outcome.stopped and run.met >= slo.quantile * run.arrived - 1e-9


def search(
    fleet: schedule.Fleet,
    traffic: Traffic,
    *,
    slo: Slo,
    guess_request_per_s: float,
    tolerance_frac: float,
    cancelled: Callable[[], bool] | None = None,
) -> float:
    """Return the highest load that meets the service level [request/s]; 0 when none does.

    Bisection on the logarithm of the load, bracketed outward from a guess.

    Args:
        fleet: The cell.
        traffic: What arrives.
        slo: The service level.
        guess_request_per_s: Where to start.
        tolerance_frac: Width of the last bracket over the load.
        cancelled: Asked a few times a second.
    """
    most = traffic.superposed.max_rate_request_per_s
    # Fewer arrivals than this in the window say nothing about a quantile.
    least = min(most, 20.0 / (traffic.span_s * (1.0 - traffic.warm_up_frac)))

    def holds(rate: float) -> bool:
        run = simulate(
            fleet, traffic, rate_request_per_s=rate, slo=slo, stop_early=True, cancelled=cancelled
        )
        return meets(run, slo=slo)

    low, high = _bracket(holds, guess=min(max(guess_request_per_s, least), most), least=least, most=most)
    while low > 0.0 and high / low > 1.0 + tolerance_frac:
        middle = float(np.sqrt(low * high))
        if holds(middle):
            low = middle
        else:
            high = middle
    return low


def _bracket(
    holds: Callable[[float], bool], *, guess: float, least: float, most: float
) -> tuple[float, float]:
    """Return a load that holds (0 when none does) and one that does not (or the most there is)."""
    step = 1.25
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
