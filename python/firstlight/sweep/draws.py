"""What follows when inputs are ranges: percentiles, how often light wins, and what to measure first.

All designs see the same draws and the same traffic (common random numbers), so that a difference
between them is a difference of designs.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Literal

import numpy as np

from firstlight.errors import FirstlightError, ScenarioError
from firstlight.evaluate import servers
from firstlight.evaluate.analytic import Point
from firstlight.evaluate.analytic.boundary import LESS_IS_BETTER, today
from firstlight.scenario import overrides, rules
from firstlight.sweep.axis import Distribution, axis
from firstlight.sweep.extras import library

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from firstlight.scenario import Scenario

    F64 = NDArray[np.float64]

Sampler = Literal["sobol", "latin-hypercube"]
PERCENTILES = (10.0, 50.0, 90.0)
MEASURES = (
    "goodput_request_per_s_per_w", "energy_j_per_request", "cost_usd_per_request",
    "carbon_g_per_request",
)  # fmt: skip
MEASURE = MEASURES[0]
DRAWS = 512
SOBOL_DRAWS = 64
SOBOL_FIELDS = 8
"""Fields whose interaction is resolved; the others' tornado bars are shorter than all of these."""
UNDISCLOSED = frozenset({"assumed", "vendor"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar of a tornado: a field at both ends of its range, the others as in the scenario.

    Attributes:
        field: The field.
        low: Its value at the low percentile.
        high: At the high one.
        ratio_low: Measure of the first design over its best rival at `low`; above 1 it wins.
        ratio_high: The same at `high`.
        status: How far the scenario's value can be trusted.
    """

    field: str
    low: float
    high: float
    ratio_low: float
    ratio_high: float
    status: str

    @property
    def swing(self) -> float:
        """Width of the bar, as a difference of logarithms."""
        return abs(math.log(max(self.ratio_high, 1e-3)) - math.log(max(self.ratio_low, 1e-3)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Uncertainty:
    """What a scenario answers when some inputs are not known.

    Attributes:
        fields: The uncertain fields.
        draws: Their values, (draws, fields).
        values: design -> measure -> value of each draw, (draws,); NaN where it does not work.
        percentiles: design -> measure -> (p10, p50, p90) of the draws where it works.
        works_frac: design -> share of draws in which it meets the service level.
        first: The design that is asked about.
        wins_frac: measure -> share of draws in which `first` beats every other design.
        tornado: Bars, widest first.
        sobol_total: field -> total Sobol index of the ratio; empty without SciPy.
        sobol_first: field -> first-order index.
        measure_first: Undisclosed field that decides most, None when none does.
    """

    fields: tuple[str, ...]
    draws: F64
    values: dict[str, dict[str, F64]]
    percentiles: dict[str, dict[str, tuple[float, float, float]]]
    works_frac: dict[str, float]
    first: str
    wins_frac: dict[str, float]
    tornado: tuple[Bar, ...]
    sobol_total: dict[str, float]
    sobol_first: dict[str, float]
    measure_first: str | None


def ranges(scenario: Scenario) -> dict[str, Distribution]:
    """Return the fields and assumptions a scenario states as ranges or distributions."""
    found: dict[str, Distribution] = {}
    for path, written in scenario.uncertain.items():
        section, _, name = path.partition(".")
        unit = rules.SECTIONS[section][name].unit or "1"
        found[name] = Distribution.of(name, overrides.spread_of(written, unit))
    for name, written in scenario.assumptions.items():
        assumed = scenario.assumption(name)
        if assumed.low is not None and assumed.high is not None and assumed.low < assumed.high:
            found[name] = Distribution.of(name, overrides.spread_of(written, assumed.fact.unit))
    return found


def undisclosed(scenario: Scenario) -> dict[str, Distribution]:
    """Return what nobody disclosed about the scenario's optical servers, over credible ranges.

    Source:
        sweep/data/undisclosed.toml, a source each.
    """
    found: dict[str, Distribution] = {}
    if _optical(scenario) is None:
        return found
    text = (resources.files("firstlight.sweep") / "data" / "undisclosed.toml").read_text("utf-8")
    for name, limits in tomllib.loads(text).items():
        made = axis(name, f"{limits['low']!r}..{limits['high']!r}")
        if isinstance(made, Distribution) and name not in scenario.assumptions:
            found[name] = made
    return found


def sample(
    distributions: Sequence[Distribution], *, draws: int, seed: int, sampler: Sampler = "sobol"
) -> F64:
    """Return joint draws, (draws, fields).

    Args:
        distributions: What each field is drawn from; fields are independent.
        draws: Number of draws.
        seed: Seed; the same seed gives the same draws.
        sampler: Scrambled Sobol points, or a Latin hypercube.

    Raises:
        ScenarioError: There is nothing to draw, or SciPy is not installed.
    """
    if not distributions or draws < 1:
        raise ScenarioError(
            f"{draws} draws of {len(distributions)} fields; allowed: 1 or more each"
        )
    qmc = library("scipy.stats.qmc", extra="sweep", what="sampling")
    rng = np.random.default_rng(seed)
    if sampler == "sobol":
        power = max(math.ceil(math.log2(draws)), 0)
        unit = qmc.Sobol(len(distributions), rng=rng).random_base2(power)[:draws]
    else:
        unit = qmc.LatinHypercube(len(distributions), rng=rng).random(draws)
    columns = [one.at(unit[:, index]) for index, one in enumerate(distributions)]
    stacked: F64 = np.stack(columns, axis=1)
    return stacked


def uncertainty(
    scenario: Scenario,
    *,
    over: Mapping[str, object] | None = None,
    draws: int = DRAWS,
    seed: int | None = None,
    sampler: Sampler = "sobol",
    measure: str = MEASURE,
    first: str | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Uncertainty:
    """Return what a scenario answers when some inputs are ranges or distributions.

    Args:
        scenario: The question.
        over: Field -> range or distribution; None takes the scenario's own ranges, and where it has
            none, what is undisclosed about its optical servers.
        draws: Number of draws.
        seed: Seed of the draws; None takes the scenario's.
        sampler: Scrambled Sobol points, or a Latin hypercube.
        measure: What the tornado and the indices are of: `first` over its best rival.
        first: The design that is asked about; None takes the first optical one.
        progress: Told how far it is.

    Raises:
        ScenarioError: A field, range or design is impossible, or nothing is uncertain.
    """
    given = _distributions(scenario, over)
    if not given:
        raise ScenarioError("nothing is uncertain: no range in [assumptions] and none given")
    if measure not in MEASURES:
        raise ScenarioError(f"measure {measure!r}; allowed: {', '.join(MEASURES)}")
    point = Point(scenario)
    for one in given.values():
        for end in one.span:
            point.checked({one.field: rounded(one.field, end)})
    names = [design.name for design in scenario.designs]
    lead = first or _optical(scenario) or names[0]
    scenario.design(lead)
    fields = tuple(given)
    points = sample(
        tuple(given.values()),
        draws=draws,
        seed=scenario.seed if seed is None else seed,
        sampler=sampler,
    )
    tell = progress or (lambda _done, _total, _what: None)
    values = {name: {m: np.full(draws, np.nan) for m in MEASURES} for name in names}
    for row in range(draws):
        _take(values, row, point, dict(zip(fields, points[row], strict=True)))
        if row % 32 == 0:
            tell(row, draws, "draws")
    asks = _Ask(point, lead, measure)
    tornado = _tornado(asks, given, scenario)
    total, main = _indices(asks, given, tornado, seed=scenario.seed)
    return Uncertainty(
        fields=fields,
        draws=points,
        values=values,
        percentiles={n: {m: _spread(values[n][m]) for m in MEASURES} for n in names},
        works_frac={n: float(np.isfinite(values[n][MEASURE]).mean()) for n in names},
        first=lead,
        wins_frac={m: _wins(values, lead, m) for m in MEASURES},
        tornado=tornado,
        sobol_total=total,
        sobol_first=main,
        measure_first=_worth(total, tornado),
    )


def _distributions(
    scenario: Scenario, over: Mapping[str, object] | None
) -> dict[str, Distribution]:
    if over is None:
        return ranges(scenario) or undisclosed(scenario)
    found: dict[str, Distribution] = {}
    for field, form in over.items():
        made = axis(field, form)
        if not isinstance(made, Distribution):
            raise ScenarioError(f"{field}: {form!r} is a list; allowed here: 'low..high' or a dist")
        found[field] = made
    return found


def rounded(field: str, value: float) -> float:
    """Return a value as its field takes it: counts are whole."""
    from firstlight.evaluate.analytic.point import bare, whole

    return whole(bare(field), value)


def _optical(scenario: Scenario) -> str | None:
    return next(
        (d.name for d in scenario.designs if any(servers.is_optical(p.server) for p in d.pools)),
        None,
    )


def _take(
    values: dict[str, dict[str, F64]], row: int, point: Point, changes: dict[str, float]
) -> None:
    try:
        found = point.at(changes)
    except FirstlightError:
        # A draw that is impossible works for nobody; it counts as such.
        return
    for name, one in found.items():
        if one.feasible:
            for measure in MEASURES:
                values[name][measure][row] = getattr(one, measure)


def _spread(values: F64) -> tuple[float, float, float]:
    works = values[np.isfinite(values)]
    if not len(works):
        return math.nan, math.nan, math.nan
    p10, p50, p90 = np.percentile(works, PERCENTILES)
    return float(p10), float(p50), float(p90)


def _wins(values: dict[str, dict[str, F64]], lead: str, measure: str) -> float:
    sign = -1.0 if measure in LESS_IS_BETTER else 1.0
    mine = np.nan_to_num(sign * values[lead][measure], nan=-np.inf)
    rivals = [
        np.nan_to_num(sign * of[measure], nan=-np.inf)
        for name, of in values.items()
        if name != lead
    ]
    if not rivals:
        return math.nan
    return float((mine > np.max(rivals, axis=0)).mean())


class _Ask:
    """The measure of one design over its best rival, as a function of changes."""

    def __init__(self, point: Point, lead: str, measure: str) -> None:
        self.point = point
        self.lead = lead
        self.measure = measure

    def __call__(self, changes: dict[str, float]) -> float:
        """Return the ratio, 0 when the design does not work; above 1 it wins."""
        try:
            found = self.point.at(changes)
        except FirstlightError:
            return 0.0
        mine = found[self.lead]
        rivals = [one for name, one in found.items() if name != self.lead and one.feasible]
        if not mine.feasible:
            return 0.0
        value = float(getattr(mine, self.measure))
        if not rivals:
            return value
        others = [float(getattr(one, self.measure)) for one in rivals]
        if self.measure in LESS_IS_BETTER:
            return min(others) / value
        return value / max(others)


def _tornado(asks: _Ask, given: dict[str, Distribution], scenario: Scenario) -> tuple[Bar, ...]:
    middle = {name: _now(asks.point, one) for name, one in given.items()}
    bars = []
    for name, one in given.items():
        low, high = (float(v) for v in one.at(np.array([0.1, 0.9])))
        bars.append(
            Bar(
                field=name,
                low=low,
                high=high,
                ratio_low=asks({**middle, name: low}),
                ratio_high=asks({**middle, name: high}),
                status=_status(scenario, name),
            )
        )
    return tuple(sorted(bars, key=lambda bar: -bar.swing))


def _now(point: Point, one: Distribution) -> float:
    """Return the scenario's own value of a field; the median where it states a range."""
    name = one.field.removeprefix("assumptions.")
    if name in ranges(point.scenario):
        return float(one.at(np.array([0.5]))[0])
    return today(point, one.field)


def _status(scenario: Scenario, field: str) -> str:
    try:
        return str(scenario.assumption(field.removeprefix("assumptions.")).fact.status)
    except ScenarioError:
        return "assumed"


def _indices(
    asks: _Ask, given: dict[str, Distribution], tornado: tuple[Bar, ...], *, seed: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Return total and first-order Sobol indices of the log ratio, of the fields that matter most."""
    fields = [bar.field for bar in tornado if bar.swing > 0][:SOBOL_FIELDS]
    if not fields:
        return {}, {}
    rest = {name: _now(asks.point, one) for name, one in given.items() if name not in fields}

    def model(unit: F64) -> F64:
        columns = [given[name].at(unit[i]) for i, name in enumerate(fields)]
        return np.array(
            [
                math.log(max(asks({**rest, **dict(zip(fields, row, strict=True))}), 1e-3))
                for row in zip(*columns, strict=True)
            ]
        )

    total, main = sobol_indices(model, len(fields), draws=SOBOL_DRAWS, seed=seed)
    return dict(zip(fields, total, strict=True)), dict(zip(fields, main, strict=True))


def sobol_indices(
    model: Callable[[F64], F64], fields: int, *, draws: int, seed: int
) -> tuple[list[float], list[float]]:
    """Return total and first-order Sobol indices of a function on the unit cube.

    Args:
        model: Takes (fields, points) in 0..1, returns (points,).
        fields: Number of inputs.
        draws: Points of each sample, a power of two; the function sees draws·(fields + 2).
        seed: Seed.

    Source:
        Saltelli's estimators as in scipy.stats.sobol_indices.
    """
    if fields == 1:
        # One input explains everything; SciPy's estimator wants at least two.
        return [1.0], [1.0]
    stats = library("scipy.stats", extra="sweep", what="a Sobol index")

    def flat(unit: F64) -> F64:
        values = model(unit.reshape(fields, -1))
        return values.reshape(unit.shape[1:])

    found = stats.sobol_indices(
        func=flat,
        n=draws,
        dists=[stats.uniform(loc=0, scale=1)] * fields,
        rng=np.random.default_rng(seed),
    )
    return (
        [float(v) for v in np.nan_to_num(found.total_order)],
        [float(v) for v in np.nan_to_num(found.first_order)],
    )


def _worth(total: dict[str, float], tornado: tuple[Bar, ...]) -> str | None:
    """Return the undisclosed field that explains most of the answer."""
    hidden = [bar.field for bar in tornado if bar.status in UNDISCLOSED and bar.swing > 0]
    if not hidden:
        return None
    return max(hidden, key=lambda name: total.get(name, 0.0))
