"""The one thread that calculates: latest question wins, tiers of answers, cancellation.

Order of work for a question: analytic point, coarse simulation, timeline and claims where their tab
is open, then in small units the curve, the tornado and the map; after `quiet_s` without a newer
question the full simulation goes first, in a process of its own while details go on.
A newer question is looked for before every unit and, through `Cancel`, inside long ones.
"""

from __future__ import annotations

import threading
import time
import traceback
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from itertools import pairwise, product
from typing import TYPE_CHECKING

import numpy as np

from firstlight.errors import FirstlightError
from firstlight.tui.answer import Answer, DesignAnswer, Tier, Timeline, Verdict
from firstlight.tui.field import BY_KEY, NUMERIC, Field, Scale
from firstlight.tui.metric import Metric, ratio
from firstlight.tui.number import Range, Value
from firstlight.tui.solver import (
    Cancel,
    Cancelled,
    CanWarmUp,
    HasClaims,
    HasMore,
    HasTimeline,
    Solver,
)
from firstlight.tui.state import Setup, share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from firstlight.tui.axis import Floats

CURVE_POINTS = 65
"""Points of a finished curve; 9 are there after one coarse sweep, then the gaps are halved."""

NO_CLOSED_FORM = "this engine gives no closed form, which curves, map and sensitivity need"
"""Said where a picture cannot be had."""

OVERTAKEN_S = 0.04
"""A coarse simulation at least this fast leaves the closed form unshown."""

PAINT_S = 0.025
"""Time the screen gets to show an answer before work on details begins."""

TIE = 0.01
"""Logarithm of a ratio below which neither side wins."""

SWING = 1.2
"""Factor by which the tornado moves a field that is not a range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Everything the screen wants to know.

    Attributes:
        setup: What the controls say.
        pinned: Scenario A, drawn as a ghost, or None.
        curve_key: Field along the chart.
        map_keys: Fields along the map, or None while no map is visible.
        map_shape: Points of the map across and down.
        metric: Metric of tornado and break-even.
        scope: Scope of that metric.
        timeline_design: Design whose timeline is wanted, or "".
        wants_claims: Whether verdicts are wanted.
    """

    setup: Setup
    pinned: Setup | None = None
    curve_key: str = "context_tok"
    map_keys: tuple[str, str] | None = None
    map_shape: tuple[int, int] = (25, 17)
    metric: Metric
    scope: str = "inference"
    timeline_design: str = ""
    wants_claims: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Report:
    """Base of what the engine sends. `generation` tells which question it answers.

    Each is itself only: pictures are kept by report, and several reports answer one question.
    """

    generation: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solved(Report):
    """The answer at the point, with how long it took [s]."""

    answer: Answer
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PinSolved(Report):
    """The answer of scenario A."""

    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curve(Report):
    """Answers along one field; None where the scenario is impossible.

    Attributes:
        key: The field.
        xs: Ascending values.
        answers: One an x.
        ghosts: The same of scenario A, or empty.
        is_final: Whether no more points follow.
    """

    key: str
    xs: Floats
    answers: tuple[Answer | None, ...]
    ghosts: tuple[Answer | None, ...]
    is_final: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Swing:
    """What moving one field does to the metric of the optical design.

    Attributes:
        key: The field.
        low: Value it was lowered to.
        high: Value it was raised to.
        low_change: Relative change of the metric at `low`, None if impossible.
        high_change: The same at `high`.
    """

    key: str
    low: float
    high: float
    low_change: float | None
    high_change: float | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tornado(Report):
    """Swings, the widest first."""

    metric: Metric
    swings: tuple[Swing, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Map(Report):
    """A grid of answers.

    Attributes:
        keys: Fields across and down.
        xs: Values across.
        ys: Values down, ascending.
        answers: (len(ys), len(xs)) answers, None where impossible or not yet found.
        known_rows: Rows that are found.
        is_final: Whether no more rows follow.
    """

    keys: tuple[str, str]
    xs: Floats
    ys: Floats
    answers: tuple[tuple[Answer | None, ...], ...]
    known_rows: int
    is_final: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drawn(Report):
    """The timeline, or why there is none."""

    timeline: Timeline | None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judged(Report):
    """The verdicts, or why there are none."""

    verdicts: tuple[Verdict, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BreakEven(Report):
    """Where the optical design starts or stops to win.

    Attributes:
        key: Field that was searched.
        values: Values where the ratio crosses one, ascending.
        wins: Whether optics win below the first crossing, and so on alternately.
    """

    key: str
    metric: Metric
    values: tuple[float, ...]
    wins_first: bool | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Refused(Report):
    """The scenario is impossible, in one line."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Broken(Report):
    """The solver failed; the message carries the share string, `detail` the traceback."""

    message: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Progress(Report):
    """How far a long simulation is."""

    done: int
    total: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Idle(Report):
    """Nothing is left to do for the question."""


class _Generation:
    """Cancel flag of one question, and what can be done while its answer is made elsewhere."""

    __slots__ = ("_engine", "_units", "generation")

    def __init__(self, engine: Engine, generation: int) -> None:
        self._engine = engine
        self._units: Iterator[bool] = iter(())
        self.generation = generation

    def beside(self, units: Iterator[bool]) -> None:
        """Give it details to work on."""
        self._units = units

    def work(self) -> bool:
        """Do one unit of the details; return whether there was one."""
        return next(self._units, None) is not None

    @property
    def is_set(self) -> bool:
        return self._engine.generation != self.generation

    def note(self, done: int, total: int, what: str) -> None:
        self._engine.post(Progress(generation=self.generation, done=done, total=total, what=what))


class _Boundary(AbstractContextManager[None]):
    """What the solver raises ends here as a report, so that the thread lives on."""

    def __init__(self, engine: Engine, generation: int, setup: Setup) -> None:
        self._engine, self._generation, self._setup = engine, generation, setup

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if error is None or isinstance(error, Cancelled):
            return True
        if not isinstance(error, Exception):
            return False
        if isinstance(error, FirstlightError):
            self._engine.post(Refused(generation=self._generation, message=str(error)))
            return True
        text = f"the calculation failed ({type(error).__name__}: {error}); {share(self._setup)}"
        detail = "".join(traceback.format_exception(kind, error, trace))
        self._engine.post(Broken(generation=self._generation, message=text, detail=detail))
        return True


class Engine:
    """Runs a solver on its own thread with a mailbox of one slot.

    Attributes:
        generation: Number of the newest question.
        running: Simulations running now; never more than one.
    """

    def __init__(
        self,
        solver: Solver,
        post: Callable[[Report], object],
        *,
        quiet_s: float = 0.15,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.solver = solver
        self.post = post
        self.quiet_s = quiet_s
        self.generation = 0
        self._clock = clock
        self._slot: tuple[int, float, Question | BreakEvenSearch] | None = None
        self._wake = threading.Condition()
        self._is_stopped = False
        self._coarse_s = float("inf")
        self._curves: dict[tuple[Setup, str], dict[float, Answer | None]] = {}
        self._thread = threading.Thread(target=self._run, name="firstlight-engine", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, question: Question | BreakEvenSearch) -> int:
        """Put a question into the slot, replacing what waits there, and return its generation."""
        with self._wake:
            self.generation += 1
            self._slot = (self.generation, self._clock(), question)
            self._wake.notify()
            return self.generation

    def stop(self) -> None:
        """End the thread; what runs is cancelled."""
        with self._wake:
            self.generation += 1
            self._is_stopped = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(timeout=5)
        if isinstance(self.solver, HasMore):
            self.solver.close()

    def _run(self) -> None:
        while True:
            with self._wake:
                while self._slot is None and not self._is_stopped:
                    self._wake.wait()
                if self._slot is None or self._is_stopped:
                    return
                generation, asked, question = self._slot
                self._slot = None
            with _Boundary(self, generation, question.setup):
                if isinstance(question, BreakEvenSearch):
                    self._search(generation, question)
                else:
                    self._answer(generation, asked, question)

    def _is_stale(self, generation: int) -> bool:
        return self.generation != generation

    def _answer(self, generation: int, asked: float, question: Question) -> None:
        cancel = _Generation(self, generation)
        for tier in (Tier.ANALYTIC, Tier.COARSE):
            # A closed form that a simulation overtakes at once would only cost a repaint.
            is_overtaken = tier is Tier.ANALYTIC and self._coarse_s < OVERTAKEN_S
            if tier in self.solver.tiers and not is_overtaken:
                self._point(generation, question.setup, tier, cancel)
        # Who opened these tabs waits for them; the whole simulation takes longer than both.
        for work in (self._timeline, self._claims):
            if not self._is_stale(generation):
                work(generation, question, cancel)
        self._fill_in(generation, asked, question, cancel)
        if not self._is_stale(generation):
            self.post(Idle(generation=generation))

    def _fill_in(
        self, generation: int, asked: float, question: Question, cancel: _Generation
    ) -> None:
        """Work on details until they are done, the full simulation first once it is quiet.

        A solver that simulates elsewhere works on the details while it waits.
        """
        units = self._details(generation, question)
        cancel.beside(units)
        is_full = False
        self._wait_until(self._clock() + PAINT_S)
        if question.pinned is not None and not self._is_stale(generation):
            # As B was answered: what comes of two ways of answering is no difference of A and B.
            tier = max(self.solver.tiers - {Tier.FULL}, default=Tier.FULL)
            self._pinned(generation, question.pinned, tier)
        while not self._is_stale(generation):
            if not is_full and self._clock() - asked >= self.quiet_s:
                self._point(generation, question.setup, Tier.FULL, cancel)
                if question.pinned is not None and Tier.FULL in self.solver.tiers:
                    self._pinned(generation, question.pinned, Tier.FULL)
                is_full = True
            elif next(units, None) is None:
                if is_full:
                    return
                self._wait_until(asked + self.quiet_s)

    def _wait_until(self, time_s: float) -> None:
        """Wait until a time, or until a question arrives."""
        with self._wake:
            left = time_s - self._clock()
            if left > 0 and self._slot is None and not self._is_stopped:
                self._wake.wait(left)

    def _point(self, generation: int, setup: Setup, tier: Tier, cancel: _Generation) -> None:
        if self._is_stale(generation):
            raise Cancelled
        begin = self._clock()
        answer = solve(self.solver, setup, tier, cancel)
        if self._is_stale(generation):
            raise Cancelled
        if tier is Tier.COARSE:
            self._coarse_s = self._clock() - begin
        self.post(Solved(generation=generation, answer=answer, seconds=self._clock() - begin))

    # -- details, in units short enough to look at the clock between them

    def _details(self, generation: int, question: Question) -> Iterator[bool]:
        if Tier.ANALYTIC not in self.solver.tiers:
            self.post(_no_closed_form(generation, question))
            return
        yield from self._curve(generation, question)
        yield from self._tornado(generation, question)
        yield from self._map(generation, question)
        if isinstance(self.solver, CanWarmUp):
            for _ in self.solver.warm(question.setup.nominal()):
                yield True

    def _pinned(self, generation: int, pinned: Setup, tier: Tier) -> None:
        """Answer scenario A; where it is impossible, B stands alone."""
        with suppress(FirstlightError):
            answer = solve(self.solver, pinned, tier, _Generation(self, generation))
            self.post(PinSolved(generation=generation, answer=answer))

    def _curve(self, generation: int, question: Question) -> Iterator[bool]:
        along = BY_KEY[question.curve_key]
        known = self._known(question.setup, along)
        ghosts = self._known(question.pinned, along) if question.pinned else {}
        for xs in _refinements(along):
            for x in xs:
                if x not in known:
                    known[x] = along_at(self.solver, question.setup, along, x)
                    yield True
                if question.pinned and x not in ghosts:
                    ghosts[x] = along_at(self.solver, question.pinned, along, x)
                    yield True
            values = sorted(x for x in xs)
            self.post(
                Curve(
                    generation=generation,
                    key=along.key,
                    xs=np.array(values),
                    answers=tuple(known[x] for x in values),
                    ghosts=tuple(ghosts[x] for x in values) if question.pinned else (),
                    is_final=len(xs) >= len(_grid(along, CURVE_POINTS)),
                )
            )

    def _known(self, setup: Setup, along: Field) -> dict[float, Answer | None]:
        """Return the points of a curve found before; the field along it does not matter."""
        key = (setup.replace(along.key, along.lo), along.key)
        found = self._curves.pop(key, {})
        self._curves[key] = found
        while len(self._curves) > 8:
            self._curves.pop(next(iter(self._curves)))
        return found

    def _tornado(self, generation: int, question: Question) -> Iterator[bool]:
        setup = question.setup.nominal()
        base = try_analytic(self.solver, setup)
        if base is None:
            return
        swings = []
        for f in NUMERIC:
            ends = _swing(f, question.setup[f.key])
            if ends is None:
                continue
            changes = [
                _change(base, try_analytic(self.solver, setup.replace(f.key, end)), question)
                for end in ends
            ]
            swings.append(
                Swing(
                    key=f.key,
                    low=ends[0],
                    high=ends[1],
                    low_change=changes[0],
                    high_change=changes[1],
                )
            )
            yield True
        swings.sort(key=lambda s: -max(abs(s.low_change or 0.0), abs(s.high_change or 0.0)))
        self.post(Tornado(generation=generation, metric=question.metric, swings=tuple(swings)))

    def _map(self, generation: int, question: Question) -> Iterator[bool]:
        if question.map_keys is None:
            return
        across, down = (BY_KEY[key] for key in question.map_keys)
        xs = _grid(across, question.map_shape[0])
        ys = _grid(down, question.map_shape[1])
        rows: list[tuple[Answer | None, ...]] = [(None,) * len(xs)] * len(ys)
        setup = question.setup.nominal()
        for y_index, y in enumerate(ys):
            line = []
            for x in xs:
                line.append(
                    try_analytic(self.solver, setup.replace(across.key, x).replace(down.key, y))
                )
                yield True
            rows[y_index] = tuple(line)
            if y_index % 4 == 3 or y_index == len(ys) - 1:
                self.post(
                    Map(
                        generation=generation,
                        keys=question.map_keys,
                        xs=np.array(xs),
                        ys=np.array(ys),
                        answers=tuple(rows),
                        known_rows=y_index + 1,
                        is_final=y_index == len(ys) - 1,
                    )
                )

    def _timeline(self, generation: int, question: Question, cancel: _Generation) -> None:
        if not question.timeline_design:
            return
        if not isinstance(self.solver, HasTimeline):
            self.post(
                Drawn(generation=generation, timeline=None, reason="this solver keeps no timeline")
            )
            return
        drawn = self.solver.timeline(
            question.setup.nominal(), design=question.timeline_design, cancel=cancel
        )
        self.post(Drawn(generation=generation, timeline=drawn))

    def _claims(self, generation: int, question: Question, cancel: _Generation) -> None:
        if not question.wants_claims:
            return
        if not isinstance(self.solver, HasClaims):
            self.post(
                Judged(generation=generation, verdicts=(), reason="this solver judges no claims")
            )
            return
        verdicts = self.solver.claims(question.setup.nominal(), cancel=cancel)
        self.post(Judged(generation=generation, verdicts=verdicts))

    def _search(self, generation: int, search: BreakEvenSearch) -> None:
        if Tier.ANALYTIC not in self.solver.tiers:
            self.post(Refused(generation=generation, message=f"break-even: {NO_CLOSED_FORM}"))
            return
        values, wins_first = self._crossings(generation, search)
        self.post(
            BreakEven(
                generation=generation,
                key=search.key,
                metric=search.metric,
                values=values,
                wins_first=wins_first,
            )
        )

    def _crossings(
        self, generation: int, search: BreakEvenSearch
    ) -> tuple[tuple[float, ...], bool | None]:
        f, setup = BY_KEY[search.key], search.setup.nominal()

        def edge(x: float) -> float | None:
            if self._is_stale(generation):
                raise Cancelled
            answer = try_analytic(self.solver, setup.replace(f.key, x))
            found = None if answer is None else ratio(answer, search.metric, search.scope)
            return None if found is None else float(np.log(found))

        return crossings(_grid(f, 33), edge, is_log=f.scale is Scale.LOG)


def solve(solver: Solver, setup: Setup, tier: Tier, cancel: Cancel) -> Answer:
    """Return the answer at the middle of all ranges, banded by their corners.

    Args:
        solver: What calculates.
        setup: May hold ranges.
        tier: How to answer.
        cancel: Polled while simulating.

    Raises:
        FirstlightError: The scenario is impossible.
        Cancelled: A newer question arrived.
    """
    nominal = setup.nominal()
    if tier is Tier.ANALYTIC:
        answer = solver.analytic(nominal)
    else:
        answer = solver.simulate(nominal, fidelity=tier, cancel=cancel)
    if not setup.ranges or Tier.ANALYTIC not in solver.tiers:
        return answer
    corners = [try_analytic(solver, corner) for corner in corners_of(setup)]
    return banded(answer, try_analytic(solver, nominal), corners)


def try_analytic(solver: Solver, setup: Setup) -> Answer | None:
    """Return the closed-form answer, None for an impossible point: a gap, not an error."""
    try:
        return solver.analytic(setup)
    except FirstlightError:
        return None


def along_at(solver: Solver, setup: Setup, along: Field, x: float) -> Answer | None:
    """Return the closed-form answer with one field at x, banded by the ranges of the others."""
    moved = setup.replace(along.key, x)
    nominal = try_analytic(solver, moved.nominal())
    if nominal is None or not moved.ranges:
        return nominal
    return banded(nominal, nominal, [try_analytic(solver, c) for c in corners_of(moved)])


def whole_curve(solver: Solver, setup: Setup, key: str) -> Curve:
    """Return a finished curve, outside the engine's thread.

    Args:
        solver: With a closed form.
        setup: What the controls say.
        key: Field along the curve.
    """
    along = BY_KEY[key]
    xs = _grid(along, CURVE_POINTS)
    return Curve(
        generation=0,
        key=key,
        xs=np.array(xs),
        answers=tuple(along_at(solver, setup, along, x) for x in xs),
        ghosts=(),
        is_final=True,
    )


def _no_closed_form(generation: int, question: Question) -> Curve:
    return Curve(
        generation=generation,
        key=question.curve_key,
        xs=np.array([]),
        answers=(),
        ghosts=(),
        is_final=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEvenSearch:
    """A question of its own: at which value of a field does the optical design break even?

    Attributes:
        setup: What the controls say.
        key: Field to search.
        metric: Metric to compare.
        scope: Its scope.
    """

    setup: Setup
    key: str
    metric: Metric
    scope: str = "inference"


def crossings(
    xs: list[float], edge: Callable[[float], float | None], *, is_log: bool
) -> tuple[tuple[float, ...], bool | None]:
    """Return where `edge` changes sign, and whether it is positive before the first.

    Between two points that are decided there may be some that are not: nothing crosses back and
    forth where nobody wins by more than `TIE`.

    Args:
        xs: Ascending points that are looked at first.
        edge: A continuous function, None where it has no value.
        is_log: Halve intervals by ratio.
    """
    every = [(x, value) for x in xs if (value := edge(x)) is not None]
    known = [(x, value) for x, value in every if abs(value) > TIE] or every
    found = []
    for (a, at_a), (b, at_b) in pairwise(known):
        if (at_a > 0) == (at_b > 0):
            continue
        low, high, low_sign = a, b, at_a > 0
        for _ in range(24):
            middle = float(np.sqrt(low * high)) if is_log else (low + high) / 2
            value = edge(middle)
            if value is None:
                break
            low, high = (middle, high) if (value > 0) == low_sign else (low, middle)
        found.append(float(np.sqrt(low * high)) if is_log else (low + high) / 2)
    return tuple(found), (known[0][1] > 0 if known else None)


def corners_of(setup: Setup) -> list[Setup]:
    """Return the setups at the ends of the ranges: all combinations of up to three, else draws."""
    ends = []
    for key in setup.ranges:
        value = setup[key]
        if isinstance(value, Range):
            ends.append((key, value))
    if len(ends) <= 3:
        picks: list[dict[str, Value]] = [
            dict(zip((key for key, _ in ends), corner, strict=True))
            for corner in product(*((r.lo, r.hi) for _, r in ends))
        ]
    else:
        # Fixed seed: the band must not flicker while another slider moves.
        shares = np.random.default_rng(7).random((16, len(ends)))
        picks = [
            {key: _between(BY_KEY[key], r, float(s)) for (key, r), s in zip(ends, row, strict=True)}
            for row in shares
        ]
    nominal = setup.nominal()
    return [nominal.with_values(pick) for pick in picks]


def _between(f: Field, value: Range, position: float) -> float:
    low, high = f.position(value.lo), f.position(value.hi)
    return min(max(f.at(low + (high - low) * position), value.lo), value.hi)


def banded(answer: Answer, nominal: Answer | None, corners: list[Answer | None]) -> Answer:
    """Return the answer with the band that the corners span around it.

    The corners are analytic; their ratio to the analytic middle is laid around the answer, so that
    a simulated number and its band agree.

    Args:
        answer: Of any tier.
        nominal: The analytic answer at the same point.
        corners: Analytic answers at the ends of the ranges.
    """
    if nominal is None:
        return answer
    designs = tuple(
        _banded_design(design, i, nominal, [c for c in corners if c is not None])
        for i, design in enumerate(answer.designs)
    )
    return Answer(
        tier=answer.tier, designs=designs, citations=answer.citations, warnings=answer.warnings
    )


def _banded_design(
    design: DesignAnswer, index: int, nominal: Answer, corners: list[Answer]
) -> DesignAnswer:
    band = dict(design.band)
    for path, value in design.metrics.items():
        middle = nominal.designs[index].value(path)
        ends = [v for c in corners if (v := c.designs[index].value(path)) is not None]
        if value is None or not middle or not ends:
            continue
        low, high = min(*ends, middle) / middle, max(*ends, middle) / middle
        old = band.get(path, (value, value))
        band[path] = (min(value * low, old[0]), max(value * high, old[1]))
    return DesignAnswer(
        name=design.name,
        label=design.label,
        is_feasible=design.is_feasible,
        reason=design.reason,
        metrics=design.metrics,
        status=design.status,
        energy_j_by_part=design.energy_j_by_part,
        band=band,
        binding=design.binding,
        gpu_equivalents_freed=design.gpu_equivalents_freed,
    )


def _grid(f: Field, count: int) -> list[float]:
    """Return `count` values along a field's track, ascending and distinct."""
    if f.scale is Scale.INTEGER:
        count = min(count, int(f.hi - f.lo) + 1)
    return sorted({f.at(i / (count - 1)) for i in range(count)})


def _refinements(f: Field) -> Iterator[list[float]]:
    for count in (9, 17, 33, CURVE_POINTS):
        yield _grid(f, count)


def _swing(f: Field, value: Value) -> tuple[float, float] | None:
    """Return the two values the tornado tries: a range's ends, else a fixed factor either way."""
    if isinstance(value, Range):
        return value.lo, value.hi
    if isinstance(value, str):
        return None
    if f.scale is Scale.LOG:
        low, high = value / SWING, value * SWING
    elif f.scale is Scale.INTEGER:
        step = max(round(value * (SWING - 1)), 1)
        low, high = value - step, value + step
    else:
        low, high = value * (2 - SWING), value * SWING
    low, high = max(low, f.lo), min(high, f.hi)
    return (low, high) if low < high else None


def _change(base: Answer, moved: Answer | None, question: Question) -> float | None:
    if moved is None:
        return None
    old = question.metric.value(base.designs[-1], question.scope)
    new = question.metric.value(moved.designs[-1], question.scope)
    return None if not old or new is None else new / old - 1.0
