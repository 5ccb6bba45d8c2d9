"""A sweep: points in chunks, each chunk computed anywhere and kept once."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from firstlight.errors import FirstlightError, ScenarioError
from firstlight.sweep.axis import Axis, Distribution, Value, axis
from firstlight.sweep.engines import Engine, EngineName, Local, Ray, Serial
from firstlight.sweep.table import Folder, read
from firstlight.sweep.task import NUMBERS, RATE, Task, Tier

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from firstlight.scenario import Scenario
    from firstlight.sweep.table import Row

MOST_POINTS = 10_000_000
CHUNK_POINTS = {"analytic": 200, "cell": 20, "full": 1}
SERIAL_POINTS = {"analytic": 1500, "cell": 8, "full": 0}
"""Fewer points than these are computed here: starting processes would take longer."""
TIERS: tuple[Tier, ...] = ("analytic", "cell", "full")


@dataclass(frozen=True, kw_only=True, eq=False)
class Swept:
    """What a sweep found.

    Attributes:
        fields: The fields that varied.
        rows: One row a point and design, by point.
        folder: Where the parts are; None when they were kept in memory only.
        points: Points of the sweep.
        failed: Points that could not be computed.
        computed: Points computed now; the others were there already.
        seconds: Time this run took [s].
    """

    fields: tuple[str, ...]
    rows: tuple[Row, ...]
    folder: Path | None
    points: int
    failed: int
    computed: int
    seconds: float

    def column(self, name: str, *, design: str) -> NDArray[np.float64]:
        """Return one number of one design by point, (points,); NaN where there is none.

        Raises:
            ScenarioError: There is no such column or design.
        """
        if self.rows and name not in self.rows[0]:
            raise ScenarioError(f"no column {name!r}; allowed: {', '.join(self.rows[0])}")
        found = np.full(self.points, np.nan)
        seen = False
        for row in self.rows:
            if row["design"] == design:
                seen = True
                value = row[name]
                if isinstance(value, int | float):
                    found[int(str(row["point"]))] = value
        if not seen:
            raise ScenarioError(f"no design {design!r} in the sweep")
        return found


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """All points of a sweep, in order, made when asked for."""

    axes: tuple[Axis, ...]
    distributions: tuple[Distribution, ...]
    draws: NDArray[np.float64] | None

    @property
    def fields(self) -> tuple[str, ...]:
        return (*(one.field for one in self.axes), *(one.field for one in self.distributions))

    @property
    def count(self) -> int:
        grid = 1
        for one in self.axes:
            grid *= len(one.values)
        return grid * (len(self.draws) if self.draws is not None else 1)

    def point(self, index: int) -> tuple[tuple[str, Value], ...]:
        values: list[tuple[str, Value]] = []
        rest = index
        sample = 0
        if self.draws is not None:
            rest, sample = divmod(rest, len(self.draws))
        for one in reversed(self.axes):
            rest, place = divmod(rest, len(one.values))
            values.append((one.field, one.values[place]))
        values.reverse()
        if self.draws is not None:
            values += [
                (one.field, _whole(one.field, float(self.draws[sample, column])))
                for column, one in enumerate(self.distributions)
            ]
        return tuple(values)


def _whole(field: str, value: float) -> float:
    from firstlight.evaluate.analytic.point import bare, whole

    return whole(bare(field), value)


def sweep(
    scenario: Scenario,
    *,
    over: Mapping[str, object],
    tier: Tier = "analytic",
    engine: EngineName = "local",
    folder: Path | str | None = None,
    draws: int = 256,
    seed: int | None = None,
    rate_request_per_s: float | None = None,
    workers: int | None = None,
    address: str | None = None,
    chunk_points: int | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Swept:
    """Compute a scenario at every point of a grid and every draw of a sample.

    Args:
        scenario: What all points are changes of.
        over: Field -> values, as in `firstlight.sweep.axis`; distributions are drawn jointly and
            the draws are the same at every grid point.
        tier: ``analytic`` by closed form; ``cell`` simulates one cell over the whole trace at one
            load; ``full`` is `compare` at every point.
        engine: Processes here, or a Ray cluster.
        folder: Where parts and manifest go; a sweep that was interrupted goes on there.
        draws: Draws of the distributions.
        seed: Seed of the draws; None takes the scenario's.
        rate_request_per_s: Load of the cell in tier ``cell`` [request/s]; None takes the trace's.
        workers: Processes; None takes every core.
        address: Address of the Ray cluster; None starts Ray here.
        chunk_points: Points that are kept together; None chooses.
        progress: Told how far it is, with the rate and the time left.

    Raises:
        ScenarioError: A field, range or tier is impossible.
        OutputError: The folder is in use, holds another sweep, or is full.

    Example:
        >>> import firstlight as fl
        >>> swept = fl.sweep(fl.Scenario.default(), over={"power_w": "1e5..1e6:log:3"})
        >>> swept.points, swept.failed
        (3, 0)
    """
    if tier not in TIERS:
        raise ScenarioError(f"tier {tier!r}; allowed: {', '.join(TIERS)}")
    plan = _planned(scenario, over, draws=draws, seed=seed)
    _check(scenario, plan)
    size = chunk_points or CHUNK_POINTS[tier]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(folder) if folder is not None else Path(scratch) / "sweep"
        with Folder(place) as held:
            form = held.claim(_manifest(scenario, plan, tier=tier, size=size, over=over, draws=draws,
                                        rate=rate_request_per_s))  # fmt: skip
            ready = held.parts()
            document = scenario.to_toml()
            todo = [
                Task(
                    number=number,
                    document=document,
                    tier=tier,
                    rate_request_per_s=rate_request_per_s,
                    fields=plan.fields,
                    points=tuple(
                        (index, plan.point(index))
                        for index in range(number * size, min((number + 1) * size, plan.count))
                    ),
                )
                for number in range(-(-plan.count // size))
                if number not in ready
            ]
            left = sum(len(task.points) for task in todo)
            chosen = _engine(engine, tier, left, workers=workers, address=address)
            done = plan.count - left
            tell = _Teller(progress, total=plan.count, ready=done)
            for task, rows in chosen.results(todo):
                held.write(task.number, rows, chosen=form)
                done += len(task.points)
                tell(done)
            rows = sorted(read(place), key=_order)
    return Swept(
        fields=plan.fields,
        rows=tuple(rows),
        folder=Path(folder) if folder is not None else None,
        points=plan.count,
        failed=len({row["point"] for row in rows if row["status"] == "failed"}),
        computed=left,
        seconds=time.monotonic() - began,
    )


def _order(row: Row) -> int:
    return int(str(row["point"]))


class _Teller:
    """Tells progress with points a second and time left."""

    def __init__(
        self, progress: Callable[[int, int, str], None] | None, *, total: int, ready: int
    ) -> None:
        self.progress = progress
        self.total = total
        self.ready = ready
        self.began = time.monotonic()

    def __call__(self, done: int) -> None:
        if self.progress is None:
            return
        seconds = max(time.monotonic() - self.began, 1e-9)
        rate = (done - self.ready) / seconds
        left_s = (self.total - done) / rate if rate > 0 else 0.0
        self.progress(done, self.total, f"{rate:,.0f} points/s, {left_s:,.0f} s left")


def _planned(
    scenario: Scenario, over: Mapping[str, object], *, draws: int, seed: int | None
) -> _Plan:
    if not over:
        raise ScenarioError("nothing to sweep; allowed: at least one FIELD=VALUES")
    made = [axis(field, form) for field, form in over.items()]
    axes = tuple(one for one in made if isinstance(one, Axis))
    distributions = tuple(one for one in made if isinstance(one, Distribution))
    drawn = None
    if distributions:
        from firstlight.sweep.draws import sample

        drawn = sample(distributions, draws=draws, seed=scenario.seed if seed is None else seed)
    plan = _Plan(axes=axes, distributions=distributions, draws=drawn)
    if plan.count > MOST_POINTS:
        raise ScenarioError(f"{plan.count:,} points; allowed: at most {MOST_POINTS:,}")
    return plan


def _check(scenario: Scenario, plan: _Plan) -> None:
    """Check each field's name, and that its values are possible one by one or at both ends.

    A value that is impossible only together with others fails alone, with its reason.

    Raises:
        ScenarioError: A field is unknown, or no value of it is possible.
    """
    tried: list[tuple[str, tuple[Value, ...]]] = [
        (one.field, (one.values[0], one.values[-1])) for one in plan.axes
    ]
    tried += [
        (one.field, tuple(_whole(one.field, end) for end in one.span)) for one in plan.distributions
    ]
    for field, values in tried:
        if field != RATE:
            _one_is_possible(scenario, field, values)


def _one_is_possible(scenario: Scenario, field: str, values: tuple[Value, ...]) -> None:
    problem: FirstlightError | None = None
    for value in values:
        try:
            scenario.replace(**{field: value})
        except FirstlightError as error:
            problem = error
        else:
            return
    raise ScenarioError(f"{field}: {problem}")


def _manifest(
    scenario: Scenario,
    plan: _Plan,
    *,
    tier: Tier,
    size: int,
    over: Mapping[str, object],
    draws: int,
    rate: float | None,
) -> dict[str, object]:
    """Return what decides the numbers of a sweep, and nothing else."""
    from firstlight import _core

    return {
        "schema": 1,
        "firstlight": _core.__version__,
        "scenario": scenario.name,
        "scenario_hash": scenario.hash(),
        "tier": tier,
        "fields": list(plan.fields),
        "over": {field: _written(form) for field, form in over.items()},
        "draws": draws if plan.draws is not None else 0,
        "draws_sum": float(plan.draws.sum()) if plan.draws is not None else 0.0,
        "points": plan.count,
        "chunk_points": size,
        "rate_request_per_s": rate,
        "columns": ["point", *plan.fields, "design", "status", "reason", *NUMBERS],
    }


def _written(form: object) -> object:
    """Return a form as JSON can hold it."""
    if isinstance(form, str | int | float):
        return form
    if isinstance(form, dict):
        return {str(name): _written(item) for name, item in form.items()}
    if isinstance(form, Iterable):
        return [_written(item) for item in form]
    return str(form)


def _engine(
    name: EngineName, tier: Tier, left: int, *, workers: int | None, address: str | None
) -> Engine:
    """Return where to compute.

    Raises:
        ScenarioError: The engine is unknown or cannot be had.
    """
    if name == "ray":
        return Ray(address, workers)
    if name != "local":
        raise ScenarioError(f"engine {name!r}; allowed: local, ray")
    if workers == 1 or (workers is None and left <= SERIAL_POINTS[tier]):
        return Serial()
    return Local(workers)
