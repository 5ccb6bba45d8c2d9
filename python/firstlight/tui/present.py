"""From what is known to what each picture shows. Pure functions: no widget, no calculation."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from firstlight.tui.answer import Answer, Citation, DesignAnswer, Tier, Timeline
from firstlight.tui.axis import Axis, Floats
from firstlight.tui.engine import (
    NO_CLOSED_FORM,
    BreakEven,
    Curve,
    Drawn,
    Judged,
    Map,
    Tornado,
    crossings,
)
from firstlight.tui.field import BY_KEY, FIELDS, Scale
from firstlight.tui.metric import METRICS, PARTS, SCOPES, Metric, ratio, short
from firstlight.tui.number import Range, Value, setting, written
from firstlight.tui.state import DEFAULT, Setup
from firstlight.tui.theme import Ink
from firstlight.tui.widgets.gantt import GanttData
from firstlight.tui.widgets.headline import LETTERS, HeadlineData
from firstlight.tui.widgets.heat_map import HeatMapData
from firstlight.tui.widgets.line_chart import LineChartData, Series
from firstlight.tui.widgets.stacked_bars import Bar, StackedBarsData
from firstlight.tui.widgets.text_table import Cell, TableData
from firstlight.tui.widgets.tornado import Blade, TornadoData
from firstlight.tui.widgets.why import WhyData

MAP_KEYS = tuple(f.key for f in FIELDS if f.scale is not Scale.CHOICE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Everything the screen is drawn from.

    Attributes:
        setup: What the controls say.
        home: What a reset returns to.
        pinned: Scenario A, or None.
        metric: The chosen metric.
        scope: Its scope.
        curve_key: Field along the chart.
        map_keys: Fields across and up the map.
        answer: Newest answer, or None.
        detailed: Newest answer with energy by part; the closed form has none.
        bound: Newest optical design of which is known what binds it.
        pin_answer: Scenario A's answer, or None.
        seconds: How long the answer took [s].
        curve: Newest curve, or None.
        tornado: Newest swings, or None.
        map: Newest map, or None.
        drawn: Newest timeline, or None.
        judged: Newest verdicts, or None.
        is_stale: Whether the numbers belong to an earlier setup that could be answered.
        is_frozen: Whether edits wait.
        progress: How far the running simulation is, in words, or "".
        held_axis: Vertical scale held during a drag, or None.
    """

    setup: Setup = DEFAULT
    home: Setup = DEFAULT
    pinned: Setup | None = None
    metric: Metric = METRICS[5]
    scope: str = "inference"
    curve_key: str = "context_tok"
    map_keys: tuple[str, str] = ("context_tok", "power_w")
    answer: Answer | None = None
    detailed: Answer | None = None
    bound: DesignAnswer | None = None
    pin_answer: Answer | None = None
    seconds: float = 0.0
    curve: Curve | None = None
    tornado: Tornado | None = None
    map: Map | None = None
    drawn: Drawn | None = None
    judged: Judged | None = None
    is_stale: bool = False
    is_frozen: bool = False
    progress: str = ""
    held_axis: Axis | None = field(default=None)


def title_of(metric: Metric, scope: str) -> str:
    """Return a metric's name with its scope, where it has scopes."""
    return f"{metric.label}, {dict(SCOPES)[scope]}" if metric.has_scopes else metric.label


def summary(setup: Setup) -> str:
    """Return a setup in a few words."""
    words = [setup.name] if setup.name else []
    words += [BY_KEY[key].shown(setup[key]) for key in ("model", "gpu", "power_w")]
    if setup["context_tok"] != "auto":
        words.append(f"ctx {BY_KEY['context_tok'].shown(setup['context_tok'])}")
    return " · ".join(words)


def state_words(known: Known) -> tuple[str, bool]:
    """Return the tier of the answer in words, and whether it is final; short words come last."""
    flags = ("A pinned  " if known.pinned else "") + ("FROZEN  " if known.is_frozen else "")
    if known.progress:
        return f"{flags}simulating {known.progress}", False
    if known.answer is None:
        return f"{flags}…", False
    if known.is_stale:
        return flags + "last good numbers", False
    if known.answer.tier is Tier.FULL:
        # An answer that was kept took no time; how long it took once is of no interest.
        time = f" in {written(known.seconds, 's')}" if known.seconds > 0.01 else ""
        return f"{flags}simulated{time}", True
    word = "closed form" if known.answer.tier is Tier.ANALYTIC else "coarse simulation"
    return f"{flags}≈ {word}", False


# -------------------------------------------------------------------------------------- explore


def headline(known: Known) -> HeadlineData:
    """Return the table of designs."""
    return HeadlineData(
        answer=known.answer,
        scope=known.scope,
        selected=known.metric,
        is_stale=known.is_stale,
        note=note(known),
        short_note=wins(known).replace(f" {known.metric.label}", ""),
    )


def note(known: Known) -> str:
    """Return the sentence under the table: where optics win, and what they free."""
    parts = []
    found = wins(known)
    if found:
        parts.append(found)
    if known.answer is not None:
        freed = known.answer.designs[-1].gpu_equivalents_freed
        if freed is not None:
            parts.append(f"frees {freed:.0f} GPUs" if freed >= 0 else f"costs {-freed:.0f} GPUs")
    return " · ".join(parts)


def wins(known: Known) -> str:
    """Return along the chart where the optical design beats both others, in words."""
    if known.curve is None or known.curve.key != known.curve_key:
        return ""
    return wins_of(known.curve, known.metric, known.scope)


@lru_cache(maxsize=8)
def wins_of(curve: Curve, metric: Metric, scope: str) -> str:
    """Return along a curve where the optical design beats both others, in words."""
    f = BY_KEY[curve.key]
    logs: dict[float, float] = {}
    for x, answer in zip(curve.xs.tolist(), curve.answers, strict=True):
        value = None if answer is None else ratio(answer, metric, scope)
        if value:
            logs[x] = math.log(value)
        elif answer is not None and _only_silicon(answer):
            logs[x] = _LOST
    if not logs:
        return ""
    xs = sorted(logs)
    is_log = f.scale is Scale.LOG
    scale = [math.log(x) if is_log else x for x in xs]
    heights = [logs[x] for x in xs]

    def edge(x: float) -> float | None:
        return float(np.interp(math.log(x) if is_log else x, scale, heights))

    found, first = crossings(xs, edge, is_log=is_log)
    breaks = tuple(_last_served(x, xs, logs) for x in found)
    name = metric.label
    if not breaks:
        served = "" if xs[-1] == curve.xs[-1] else f" served (to {written(xs[-1], f.unit)})"
        return (
            f"optics win {name} at every {f.label}{served}"
            if first
            else f"optics never win {name} along {f.label}"
        )
    edges = [xs[0], *breaks, xs[-1]]
    spans = [
        _span_words(f.label, f.unit, edges, i)
        for i in range(len(edges) - 1)
        if (i % 2 == 0) == bool(first)
    ]
    return f"optics win {name} for {' and '.join(spans)}"


_LOST = -0.05
"""Logarithm of the ratio where only silicon serves: it is lost there, though by no number."""


def _last_served(x: float, xs: list[float], logs: dict[float, float]) -> float:
    """Return where a win ends: where the curves meet, or the last point that optics serve."""
    right = next((i for i, each in enumerate(xs) if each >= x), len(xs) - 1)
    left = max(right - 1, 0)
    if logs[xs[right]] == _LOST:
        return xs[left]
    return xs[right] if logs[xs[left]] == _LOST else x


def _only_silicon(answer: Answer) -> bool:
    """Return whether some GPU design serves and the optical one does not."""
    optical, others = answer.designs[-1], answer.designs[:-1]
    return not optical.is_feasible and any(d.is_feasible for d in others)


def _span_words(label: str, unit: str, edges: list[float], index: int) -> str:
    low, high = edges[index], edges[index + 1]
    if index == 0:
        return f"{label} ≤ {written(high, unit)}"
    if index == len(edges) - 2:
        return f"{label} ≥ {written(low, unit)}"
    return f"{label} {written(low, unit)}…{written(high, unit)}"


def chart(known: Known) -> LineChartData:
    """Return the curves of the chosen metric."""
    f = BY_KEY[known.curve_key]
    axis = Axis(lo=f.lo, hi=f.hi, is_log=f.scale is Scale.LOG)
    title = title_of(known.metric, known.scope)
    arrow = "more is better" if known.metric.is_more_better else "less is better"
    cursor = f.on_track(known.setup[f.key])
    data = LineChartData(
        title=f"{title} over {f.label} ({arrow})",
        x_unit=f.unit,
        x_axis=axis,
        y_unit=known.metric.unit,
        cursor=cursor,
        is_more_better=known.metric.is_more_better,
        is_stale=known.is_stale,
        note=_empty(known),
        y_axis=known.held_axis,
        points=points(known),
        is_approximate=known.answer is None or known.answer.tier is not Tier.FULL,
    )
    curve = known.curve
    if curve is None or curve.key != known.curve_key:
        return data
    return replace(data, series=series_of(curve, known.metric, known.scope), void=void(curve))


@lru_cache(maxsize=8)
def void(curve: Curve) -> tuple[float, str] | None:
    """Return from where on no design serves, and why, in words; None where some always does.

    Args:
        curve: Answers along a field.
    """
    served = [
        x
        for x, answer in zip(curve.xs.tolist(), curve.answers, strict=True)
        if answer is not None and any(d.is_feasible for d in answer.designs)
    ]
    if not served or served[-1] == curve.xs[-1]:
        return None
    f = BY_KEY[curve.key]
    beyond = next(
        (a for x, a in zip(curve.xs.tolist(), curve.answers, strict=True) if x > served[-1]), None
    )
    reason = beyond.designs[-1].reason if beyond is not None else "the scenario is impossible there"
    return served[-1], f"above {written(served[-1], f.unit)} no design serves: {reason}"


def _empty(known: Known) -> str:
    """Return why a chart has no curves, and what the answer says in words."""
    curve = known.curve
    if curve is None:
        return "calculating …"
    said = "no scenario along this axis can be answered"
    if not curve.xs.size:
        said = NO_CLOSED_FORM
    return "\n\n".join([said, *(known.answer.warnings if known.answer else ())])


def points(known: Known) -> tuple[float | None, ...]:
    """Return each design's number of the chosen metric at the setup."""
    if known.answer is None:
        return ()
    return tuple(known.metric.value(d, known.scope) for d in known.answer.designs)


@lru_cache(maxsize=8)
def series_of(curve: Curve, metric: Metric, scope: str) -> tuple[Series, ...]:
    """Return a curve's series of a metric, scenario A's beneath; the same object each time."""
    path = metric.at(scope)
    ghosts = _series(curve, curve.ghosts, path, is_ghost=True) if curve.ghosts else []
    return (*ghosts, *_series(curve, curve.answers, path, is_ghost=False))


def _series(
    curve: Curve, answers: tuple[Answer | None, ...], path: str, *, is_ghost: bool
) -> list[Series]:
    first = next((a for a in answers if a is not None), None)
    if first is None:
        return []
    found = []
    for i, design in enumerate(first.designs):
        designs = [None if a is None else a.designs[i] for a in answers]
        ys = [math.nan if d is None else _number(d.value(path)) for d in designs]
        bands = [None if d is None else d.band.get(path) for d in designs]
        has_band = not is_ghost and any(bands)
        low = [b[0] if b else y for b, y in zip(bands, ys, strict=True)]
        high = [b[1] if b else y for b, y in zip(bands, ys, strict=True)]
        if np.isfinite(ys).any():
            found.append(
                Series(
                    label=design.label,
                    short=short(design),
                    index=i,
                    xs=curve.xs,
                    ys=np.array(ys),
                    low=np.array(low) if has_band else None,
                    high=np.array(high) if has_band else None,
                    is_ghost=is_ghost,
                )
            )
    return found


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def bars(known: Known) -> StackedBarsData | None:
    """Return energy per request by part."""
    shown = known.answer
    if shown is None:
        return None
    is_stale = known.is_stale
    if known.detailed is not None and not any(d.energy_j_by_part for d in shown.designs):
        shown, is_stale = known.detailed, True
    rows = tuple(
        Bar(
            label=d.label,
            index=i,
            parts=tuple(max(d.energy_j_by_part.get(key, 0.0), 0.0) for key, _, _ in PARTS),
        )
        for i, d in enumerate(shown.designs)
        if d.is_feasible and d.energy_j_by_part
    )
    mark = "" if shown.tier is Tier.FULL and not is_stale else " ≈"
    return StackedBarsData(
        title=f"ENERGY A REQUEST{mark}",
        unit="J",
        key=tuple((label, letter) for _, label, letter in PARTS),
        bars=rows,
        is_stale=is_stale,
    )


def why(known: Known) -> WhyData:
    """Return what binds the optical design."""
    if known.answer is None:
        return WhyData(design=None)
    warning = known.answer.warnings[0] if known.answer.warnings else ""
    design = known.answer.designs[-1]
    if design.is_feasible and not design.binding and known.bound is not None:
        # What bound it before the last edit, greyed until it has been simulated again.
        return WhyData(design=known.bound, warning=warning, is_stale=True)
    return WhyData(design=design, warning=warning, is_stale=known.is_stale)


def tornado(known: Known) -> TornadoData | None:
    """Return the swings of the chosen metric."""
    if known.tornado is None:
        return None
    blades = tuple(
        Blade(
            key=s.key,
            label=_swing_label(known.setup, s.key, s.low, s.high),
            low=s.low_change,
            high=s.high_change,
        )
        for s in known.tornado.swings
        if max(abs(s.low_change or 0.0), abs(s.high_change or 0.0)) >= 0.0005
    )
    return TornadoData(
        title=f"WHAT MOVES optical {known.tornado.metric.label}",
        blades=blades,
        is_more_better=known.tornado.metric.is_more_better,
        is_stale=known.is_stale,
    )


def _swing_label(setup: Setup, key: str, low: float, high: float) -> str:
    f = BY_KEY[key]
    if isinstance(setup[key], Range):
        return f"{f.label} {setting(Range(low, high), f.unit)}"
    if f.scale is Scale.INTEGER:
        return f"{f.label} {setting(low, f.unit)}…{setting(high, f.unit)}"
    return f"{f.label} ÷×1.2" if f.scale is Scale.LOG else f"{f.label} ±20%"


# -------------------------------------------------------------------------------------- compare


def compare(known: Known) -> TableData:
    """Return A against B: first the inputs that differ, then the metrics."""
    if known.pinned is None:
        return TableData(
            title="COMPARE",
            rows=tuple(
                (Cell(text, ink),)
                for text, ink in (
                    ("Nothing is pinned yet.", Ink.TEXT),
                    (
                        "p  pins what the controls say now as scenario A; then move anything.",
                        Ink.DIM,
                    ),
                    ("x  swaps A and B, a  goes back to A.", Ink.DIM),
                )
            ),
        )
    rows: list[tuple[Cell, ...]] = []
    differing = known.setup.changed(known.pinned)
    head = (Cell("", Ink.DIM), Cell("A pinned", Ink.DIM, is_right=True), Cell("B now", Ink.DIM, is_right=True),
            Cell("change", Ink.DIM, is_right=True))  # fmt: skip
    rows.append(
        (Cell("INPUTS THAT DIFFER" if differing else "INPUTS: the same in A and B", Ink.TITLE),)
    )
    for key, value in differing.items():
        f = BY_KEY[key]
        rows.append(
            (
                Cell(f.label),
                Cell(f.shown(known.pinned[key]), Ink.DIM, is_right=True),
                Cell(f.shown(value), Ink.ACCENT, is_right=True),
                Cell(_times(known.pinned[key], value), Ink.DIM, is_right=True),
            )
        )
    if known.answer is not None and known.pin_answer is not None:
        rows += _compare_designs(known, known.pin_answer, known.answer)
    return TableData(title="COMPARE  A pinned, B live", head=head, rows=tuple(rows))


def _compare_designs(known: Known, before: Answer, after: Answer) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = []
    mark, old_mark = ("" if a.tier is Tier.FULL else "≈" for a in (after, before))
    if before.tier is not after.tier:
        rows.append((Cell("changes come when A is simulated as B is", Ink.DIM),))
    for index in reversed(range(len(after.designs))):
        rows.append((Cell(after.designs[index].label, design=index),))
        for metric in METRICS:
            a = metric.value(before.designs[index], known.scope)
            b = metric.value(after.designs[index], known.scope)
            if a is None and b is None:
                continue
            rows.append(
                (
                    Cell(f"  {metric.label}"),
                    Cell(
                        (old_mark if a is not None else "") + written(a, metric.unit),
                        Ink.DIM,
                        is_right=True,
                    ),
                    Cell((mark if b is not None else "") + written(b, metric.unit), is_right=True),
                    _change(a, b, metric)
                    if before.tier is after.tier
                    else Cell("…", Ink.DIM, is_right=True),
                )
            )
    return rows


def _change(a: float | None, b: float | None, metric: Metric) -> Cell:
    if not a or b is None:
        return Cell("?", Ink.DIM, is_right=True)
    if math.isclose(a, b, rel_tol=5e-4):
        return Cell("=", Ink.DIM, is_right=True)
    is_gain = (b > a) == metric.is_more_better
    arrow = "▲" if b > a else "▼"
    word = "better" if is_gain else "worse"
    text = f"{(b / a - 1) * 100:+.1f}% {arrow} {word}"
    return Cell(text, Ink.GAIN if is_gain else Ink.LOSS, is_right=True)


def _times(a: Value, b: Value) -> str:
    if isinstance(a, float) and isinstance(b, float) and a > 0:
        return f"×{b / a:.3g}"
    return ""


# ------------------------------------------------------------------------------------------ map


def heat_map(known: Known, cursor: tuple[float, float] | None) -> HeatMapData | None:
    """Return the map of the chosen metric: silicon over optics, above one where optics win."""
    found = known.map
    if found is None or found.keys != known.map_keys:
        return None
    across, up = (BY_KEY[key] for key in found.keys)
    values = np.full((found.ys.size, found.xs.size), np.nan)
    for row, line in enumerate(found.answers):
        for column, answer in enumerate(line):
            value = None if answer is None else ratio(answer, known.metric, known.scope)
            if value is not None:
                values[row, column] = value
    here = (across.on_track(known.setup[across.key]), up.on_track(known.setup[up.key]))
    x_axis = Axis(lo=float(found.xs[0]), hi=float(found.xs[-1]), is_log=across.scale is Scale.LOG)
    y_axis = Axis(lo=float(found.ys[0]), hi=float(found.ys[-1]), is_log=up.scale is Scale.LOG)
    # A cursor set on other axes may have no place on these.
    is_placed = cursor is not None and all(
        math.isfinite(axis.position(v)) for axis, v in zip((x_axis, y_axis), cursor, strict=True)
    )
    point = cursor if cursor is not None and is_placed else here
    where = (
        f"{across.label} {written(point[0], across.unit)}, {up.label} {written(point[1], up.unit)}"
    )
    value = at_point(values, x_axis, y_axis, point)
    return HeatMapData(
        title=f"{title_of(known.metric, known.scope)}: optics against silicon ≈   {up.label} (up) × {across.label}",
        x_axis=x_axis,
        y_axis=y_axis,
        x_unit=across.unit,
        y_unit=up.unit,
        values=values,
        known_rows=found.known_rows,
        unit="×",
        is_ratio=True,
        cursor=point,
        here=here,
        note=f"{where}: {said_ratio(value)}   ({found.xs.size}×{found.ys.size} closed-form answers)",
    )


def at_point(values: Floats, x_axis: Axis, y_axis: Axis, point: tuple[float, float]) -> float:
    """Return the value of the grid point nearest to a point."""
    rows, columns = values.shape
    column = round(min(max(x_axis.position(point[0]), 0), 1) * (columns - 1))
    row = round(min(max(y_axis.position(point[1]), 0), 1) * (rows - 1))
    return float(values[row, column])


def said_ratio(value: float) -> str:
    """Return a ratio in words."""
    if not math.isfinite(value):
        return "no answer"
    if abs(value - 1) < 0.005:
        return "break-even"
    return f"optics win ×{value:.3g}" if value > 1 else f"optics lose ×{1 / value:.3g}"


# ----------------------------------------------------------------------------- timeline, claims


def gantt(known: Known, window: tuple[float, float] | None, request: str, design: str) -> GanttData:
    """Return the timeline in a window."""
    line = known.drawn.timeline if known.drawn else None
    if line is not None and not request:
        request = first_request(line)
    note_ = known.drawn.reason if known.drawn else "calculating the timeline …"
    start, end = window or ((line.start_s, line.end_s) if line else (0.0, 0.0))
    title = f"TIMELINE of {design}"
    if request:
        title += f", request {request}"
    return GanttData(
        timeline=line, start_s=start, end_s=end, request=request, title=title, note=note_
    )


def first_request(line: Timeline) -> str:
    """Return the request whose life is shown first: one that begins inside the window."""
    inside = [one for one in line.lives if one.stages and one.stages[0].start_s > line.start_s]
    chosen = inside or list(line.lives)
    return chosen[0].request if chosen else ""


CLAIM = 52
"""Characters of a claim in the list; below it stands whole."""
_VERDICTS = ("holds", "partly", "fails", "unknown")


def claims(known: Known, selected: int, signs: str) -> TableData:
    """Return the verdicts.

    Args:
        known: Verdicts.
        selected: Row that is selected.
        signs: Glyphs for holds, partly, fails, unknown.
    """
    verdicts = known.judged.verdicts if known.judged else ()
    reason = known.judged.reason if known.judged else "judging the claims …"
    if not verdicts:
        return TableData(title="CLAIMS", rows=((Cell(reason, Ink.DIM),),))
    inks = {"holds": Ink.GAIN, "partly": Ink.WARN, "fails": Ink.LOSS, "unknown": Ink.DIM}
    rows = tuple(
        (
            Cell(f"{signs[_VERDICTS.index(v.state)]} {v.state}", inks[v.state]),
            Cell(v.claim if len(v.claim) <= CLAIM else v.claim[: CLAIM - 1] + "…"),
            Cell(v.here, Ink.DIM),
        )
        for v in verdicts
    )
    head = (Cell("here", Ink.DIM), Cell("claim", Ink.DIM), Cell("what comes out", Ink.DIM))
    return TableData(
        title="CLAIMS in this scenario", head=head, rows=rows, selected=selected, stretch=2
    )


def claim_detail(known: Known, selected: int) -> TableData:
    """Return all that is known of the selected claim."""
    verdicts = known.judged.verdicts if known.judged else ()
    if not 0 <= selected < len(verdicts):
        return TableData(rows=())
    v = verdicts[selected]
    rows = [
        (Cell(v.claim, Ink.TITLE),),
        (Cell(f"here   {v.here}"),),
        (Cell(f"basis  {v.basis}", Ink.DIM),),
        (Cell(f"source {v.source or '?'}", Ink.DIM),),
    ]
    if v.holds_when:
        rows.append((Cell(f"holds when {v.holds_when}", Ink.ACCENT),))
    if v.settings:
        words = ", ".join(f"{BY_KEY[k].label} {BY_KEY[k].shown(x)}" for k, x in v.settings)
        rows.append((Cell(f"Enter sets {words} (u undoes)", Ink.TEXT),))
    return TableData(rows=tuple(rows))


# ------------------------------------------------------------------------------------- citation


def citation(known: Known, key: str, fact: Citation | None) -> str:
    """Return the full sentence about a control: value, unit, meaning, provenance."""
    f = BY_KEY[key]
    value = known.setup[key]
    said = f"{f.label}: {f.shown(value)}. {f.meaning} Allowed: {f.allowed()}."
    if value != known.home[key]:
        return f"{said} Set by you; before {f.shown(known.home[key])}."
    if fact is not None:
        tail = f", {fact.date}" if fact.date else ""
        note_ = f" {fact.note}." if fact.note else ""
        return f"{said} {fact.status}: {fact.source}{tail}.{note_}"
    return f"{said} {f.status}: {f.source}."


def metric_citation(known: Known) -> str:
    """Return the full sentence about the chosen metric."""
    metric = known.metric
    said = f"{title_of(metric, known.scope)}: {metric.meaning}"
    if known.answer is None:
        return said
    values = ", ".join(
        f"{d.label} {written(metric.value(d, known.scope), metric.unit)} ({d.status.get(metric.at(known.scope), '?')})"
        for d in known.answer.designs
    )
    return f"{said} {values}."


def letters() -> str:
    """Return the key to the provenance letters."""
    words = [f"{letter} {status}" for status, letter in LETTERS.items() if status != "set"]
    return "  ".join([*words, "S set by you", "· the question itself"])


def break_even(found: BreakEven, known: Known) -> str:
    """Return where optics break even along a field, in words."""
    f = BY_KEY[found.key]
    name = title_of(found.metric, known.scope)
    if found.wins_first is None:
        return f"{name}: nothing along {f.label} can be answered"
    if not found.values:
        word = "always win" if found.wins_first else "never win"
        return f"{name}: optics {word} for {f.label} {f.allowed()}"
    where = ", ".join(written(v, f.unit) for v in found.values)
    side = "below" if found.wins_first else "above"
    return f"{name}: break-even at {f.label} {where}; optics win {side} {written(found.values[0], f.unit)} ≈"
