"""The highest load a cell carries within its service level.

Loads are nested (every request has one fixed mark), so the search compares like with like.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, count
from typing import TYPE_CHECKING, Generic, Literal, TypeVar, cast

import numpy as np

from firstlight import schedule

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from firstlight.workload import Fold, Requests, Superposed

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
        slo: The service level they are judged by.
    """

    rate_request_per_s: float
    outcome: schedule.Outcome
    arrived: int
    met: int
    met_ttft: int
    met_tpot: int
    slo: Slo

    @property
    def counted(self) -> NDArray[np.bool_]:
        """Which requests arrived inside the window, (requests,)."""
        return self.outcome.arrivals.arrival_ps >= self.outcome.window_ps[0]

    @property
    def holds(self) -> bool:
        """Whether the run met its service level."""
        return not self.outcome.stopped and self.met >= self.slo.quantile * self.arrived - 1e-9

    @property
    def attainment_frac(self) -> float:
        """Share of arrivals that met both limits."""
        return self.met / self.arrived if self.arrived else 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
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
        fold: What sample of the time it is; None: all of it.
    """

    requests: Requests
    mark: NDArray[np.float64]
    full_request_per_s: float
    most_request_per_s: float
    span_s: float
    warm_up_frac: float
    phase: Literal["prefill", "decode"] | None = None
    fold: Fold | None = None

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

    @cached_property
    def _offered(self) -> schedule.Arrivals:
        every = self.requests
        osl = np.ones_like(every.osl_tok) if self.phase == "prefill" else every.osl_tok
        cached = every.isl_tok - 1 if self.phase == "decode" else every.cached_tok
        return schedule.Arrivals(
            arrival_ps=every.arrival_ps, isl_tok=every.isl_tok, cached_tok=cached, osl_tok=osl
        )

    @cached_property
    def longest_tok(self) -> int:
        """Longest answer [tok]."""
        return int(self._offered.osl_tok.max(initial=1))

    def arrive_from(self, start_ps: int, rate_request_per_s: float) -> int:
        """Return how many requests of a load arrive from a time on."""
        first = int(np.searchsorted(self.requests.arrival_ps, start_ps))
        return int((self.mark[first:] < rate_request_per_s / self.full_request_per_s).sum())

    def at(self, rate_request_per_s: float) -> schedule.Arrivals:
        """Return the requests of a load."""
        return replace(self._offered, keep=self.mark < rate_request_per_s / self.full_request_per_s)


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
    limits = {"ttft_ps": round(slo.ttft_s * PS_PER_S), "tpot_ps": round(slo.tpot_s * PS_PER_S)}
    arrived = traffic.arrive_from(start, rate_request_per_s)
    outcome = schedule.run(
        fleet,
        arrivals,
        window_ps=(start, end),
        # By then a request that is unfinished has missed.
        drain_ps=end + limits["ttft_ps"] + limits["tpot_ps"] * traffic.longest_tok,
        limits=schedule.Limits(
            **limits,
            misses=int(arrived * (1.0 - slo.quantile) + 1e-9) if stop_early else arrived,
        ),
        cancelled=cancelled,
    )
    # A request that never got a token is beyond every limit.
    arrived, met, met_ttft, met_tpot = outcome.core.tally(from_ps=start, **limits)
    return Run(
        rate_request_per_s=rate_request_per_s,
        outcome=outcome,
        arrived=arrived,
        met=met,
        met_ttft=met_ttft,
        met_tpot=met_tpot,
        slo=slo,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Held(Generic[Kept]):
    """The highest load that met the service level.

    Attributes:
        rate_request_per_s: That load [request/s].
        kept: What was kept of its run.
        slope: At least how much larger a share of requests is late for a load e times as high,
            judged from there to the lowest load that did not hold; None when none failed.
    """

    rate_request_per_s: float
    kept: Kept
    slope: float | None


def search(
    fleet: schedule.Fleet,
    traffic: Traffic,
    *,
    slo: Slo,
    guess_request_per_s: float,
    tolerance_frac: float,
    first_step_frac: float = 0.25,
    beyond_request_per_s: float | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Held[None] | None:
    """Return the highest load that meets the service level; None when none does.

    As `search_for`, with nothing kept of the runs.

    Args:
        fleet: The cell.
        traffic: What arrives.
        slo: The service level.
        guess_request_per_s: Where to start.
        tolerance_frac: Width of the last bracket over the load.
        first_step_frac: How far from the guess the bracket is tried first.
        beyond_request_per_s: Give None at once when not even this load meets it.
        cancelled: Asked a few times a second.
    """
    return search_for(
        lambda _: None,
        fleet,
        traffic,
        slo=slo,
        guess_request_per_s=guess_request_per_s,
        tolerance_frac=tolerance_frac,
        first_step_frac=first_step_frac,
        beyond_request_per_s=beyond_request_per_s,
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
    beyond_request_per_s: float | None = None,
    slope: float | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Held[Kept] | None:
    """Return the highest load that meets the service level, and what is kept of its run.

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
        beyond_request_per_s: Give None at once when not even this load meets it.
        slope: How late requests get with more load (`Held.slope`), where that is known: a load that
            holds with no more to spare than a step of the tolerance takes is then the last.
        cancelled: Asked a few times a second.
    """
    most = traffic.most_request_per_s
    # Fewer arrivals than this in the window say nothing about a quantile.
    least = min(most, 20.0 / (traffic.span_s * (1.0 - traffic.warm_up_frac)))
    climb = _Climb(
        lambda rate: simulate(
            fleet, traffic, rate_request_per_s=rate, slo=slo, stop_early=True, cancelled=cancelled
        ),
        keep,
        enough=slope * tolerance_frac if slope else -1.0,
    )
    if beyond_request_per_s is not None:
        if beyond_request_per_s <= most:
            climb.attempt(beyond_request_per_s)
        if climb.low == 0.0:
            return None
    guess = min(max(guess_request_per_s, least), most)
    if guess > climb.low:
        climb.attempt(guess)
    step = 1.0 + first_step_frac
    # The second step is as short as the first: a good guess is seldom off by much more.
    steps = chain((step,), (step**2**n for n in count()))
    while not climb.is_done and climb.low < most and climb.high > least:
        low, high = climb.low, climb.high
        if low == 0.0:
            climb.attempt(max(high / next(steps), least))
        elif high == math.inf:
            climb.attempt(min(low * next(steps), most))
        elif high / low > 1.0 + tolerance_frac:
            climb.attempt(math.sqrt(low * high))
        else:
            break
    return climb.held()


class _Climb(Generic[Kept]):
    """A capacity between the highest load that held and the lowest that did not.

    Args:
        run: Simulates a load.
        keep: What to keep of a run that holds.
        enough: Share of requests over the quantile that met the level which is too few to go on.

    Attributes:
        low: The highest load that held, 0 when none did [request/s].
        high: The lowest that did not, infinite when all did [request/s].
    """

    def __init__(
        self, run: Callable[[float], Run], keep: Callable[[Run], Kept], *, enough: float
    ) -> None:
        self.low, self.high = 0.0, math.inf
        self._run = run
        self._keep = keep
        self._enough = enough
        self._kept: Kept | None = None
        self._to_spare = math.inf

    def attempt(self, rate: float) -> None:
        """Try a load; loads that hold are tried in rising order once one has held."""
        run = self._run(rate)
        if run.holds:
            self.low, self._kept = rate, self._keep(run)
            self._to_spare = run.attainment_frac - run.slo.quantile
        else:
            self.high = rate

    @property
    def is_done(self) -> bool:
        """Whether a load has held with hardly any request to spare."""
        return self._to_spare <= self._enough

    def held(self) -> Held[Kept] | None:
        """Return the highest load that held."""
        if self.low == 0.0:
            return None
        apart = math.log(self.high / self.low) if self.high < math.inf else math.inf
        return Held(
            rate_request_per_s=self.low,
            kept=cast("Kept", self._kept),
            slope=max(self._to_spare, 0.0) / apart if apart < math.inf else None,
        )
