"""Curves over one field: dots that join where curves cross, bands, and who wins where."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from rich.color import Color, blend_rgb
from textual.message import Message

from firstlight.tui.axis import Axis, Floats
from firstlight.tui.canvas import Canvas, cells
from firstlight.tui.number import written
from firstlight.tui.symbols import Symbols, plain
from firstlight.tui.theme import Ink, Theme, colored
from firstlight.tui.widgets.panel import Panel
from firstlight.tui.widgets.text_table import wrapped

if TYPE_CHECKING:
    from rich.style import Style
    from textual import events
    from textual.strip import Strip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Series:
    """One curve.

    Attributes:
        label: Name in the legend.
        short: Name in a narrow legend.
        index: Design, for colour and mark.
        xs: (n,) ascending.
        ys: (n,) values; nan leaves a gap.
        low: (n,) lower end of the band, or None.
        high: (n,) upper end of the band, or None.
        is_ghost: Whether it belongs to the pinned scenario.
    """

    label: str
    short: str = ""
    index: int
    xs: Floats
    ys: Floats
    low: Floats | None = None
    high: Floats | None = None
    is_ghost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LineChartData:
    """What the chart shows.

    Attributes:
        title: Metric and scope.
        x_unit: Unit of the field.
        x_axis: Scale of the field.
        y_unit: Unit of the metric.
        series: Curves; ghosts are drawn beneath.
        cursor: Where the field stands now, or None.
        is_more_better: Direction, for who wins.
        is_stale: Whether it belongs to an earlier scenario.
        note: Said instead of curves when there are none.
        y_axis: Scale held during a drag, or None to fit.
        points: Each design's number at the cursor, which may differ from its curve: the curve is
            closed form, the point may be simulated.
        is_approximate: Whether the points are not final.
        void: From which x on no design serves, and why; None where some design always does.
    """

    title: str
    x_unit: str
    x_axis: Axis
    y_unit: str
    series: tuple[Series, ...] = ()
    cursor: float | None = None
    is_more_better: bool = False
    is_stale: bool = False
    note: str = ""
    y_axis: Axis | None = field(default=None)
    points: tuple[float | None, ...] = ()
    is_approximate: bool = False
    void: tuple[float, str] | None = None

    def point(self, series: Series) -> float:
        """Return a design's number at the cursor, from its curve where nothing better is known."""
        if not series.is_ghost and series.index < len(self.points):
            value = self.points[series.index]
            return math.nan if value is None else value
        return at(series, self.cursor, self.x_axis) if self.cursor is not None else math.nan


def fit(data: LineChartData) -> Axis:
    """Return the vertical scale that holds every curve; logarithmic when they span a decade."""
    values = [s.ys for s in data.series] + [
        b for s in data.series for b in (s.low, s.high) if b is not None
    ]
    every = np.concatenate(values) if values else np.array([])
    usable = every[np.isfinite(every)]
    positive = bool(usable.size) and bool((usable > 0).all())
    return Axis.around(every, is_log=positive and float(usable.max() / usable.min()) > 8)


def render(
    width: int, height: int, theme: Theme, symbols: Symbols, data: LineChartData
) -> list[Strip]:
    """Return the strips of the chart.

    Args:
        width: Cells across.
        height: Rows: title, plot, who wins, ticks, and in narrow charts the legend.
        theme: Colours.
        symbols: Glyphs.
        data: What to show.
    """
    canvas = Canvas(width, height, theme.style())
    if width < 2 or height < 1:
        return canvas.strips()
    curves = [s for s in data.series if not s.is_ghost]
    title = plain(data.title, symbols)
    if cells(title) > width - 1:
        title = title.partition(" (")[0]
    end = canvas.text(1, 0, title, theme.style(Ink.TITLE), width=width - 1)
    legend = _legend(theme, symbols, data, curves, names="long")
    need = sum(cells(text) + 2 for text, _ in legend)
    for names in ("short", "none"):
        if need > width:
            legend = _legend(theme, symbols, data, curves, names=names)
            need = sum(cells(text) + 2 for text, _ in legend)
    is_wide = end + need + 2 <= width
    if is_wide:
        _write_legend(canvas, width - need, 0, legend)
    elif height >= 7:
        _write_legend(canvas, 1, height - 1, legend)
    bottom = height - (1 if is_wide or height < 7 else 2)  # row of the x ticks
    y_axis = data.y_axis or fit(data)
    labels = _y_labels(y_axis, data.y_unit, bottom - 2, symbols)
    left = min(max((cells(text) for text, _ in labels), default=0) + 2, max(width // 3, 1))
    frame = _Frame(left=left, top=1, width=width - left - 1, height=bottom - 2, y_axis=y_axis)
    if frame.width < 4 or frame.height < 2 or not curves:
        for y, line in enumerate(wrapped(plain(data.note, symbols), max(width - 2, 1)), start=1):
            canvas.text(1, y, line, theme.style(Ink.DIM), width=width - 1)
        return canvas.strips()
    _grid(canvas, theme, symbols, frame, labels)
    _cursor_line(canvas, theme, symbols, frame, data)
    breaks = _winners(canvas, theme, symbols, frame, data, curves)
    for x in breaks:
        column = frame.column(data.x_axis, x)
        canvas.fill(column, 1, 1, frame.height, theme.style(Ink.ACCENT), glyph=symbols.dash)
    _void(canvas, theme, symbols, frame, data)
    _curves(canvas, theme, symbols, frame, data)
    _marks(canvas, theme, symbols, frame, data, curves)
    _x_labels(canvas, theme, symbols, frame, data, breaks, bottom)
    return canvas.strips()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    left: int
    top: int
    width: int
    height: int
    y_axis: Axis

    def column(self, axis: Axis, x: float) -> int:
        return self.left + min(max(round(axis.position(x) * (self.width - 1)), 0), self.width - 1)

    def row(self, y: float) -> int | None:
        place = self.y_axis.position(y)
        if not 0 <= place <= 1:
            return None
        return self.top + round((1 - place) * (self.height - 1))


def _legend(
    theme: Theme, symbols: Symbols, data: LineChartData, curves: list[Series], *, names: str
) -> list[tuple[str, Style]]:
    entries = []
    for s in curves:
        sign = symbols.approximate if data.is_approximate else ""
        name = {"long": f"{s.label} ", "short": f"{s.short} "}.get(names, "")
        text = f"{symbols.mark(s.index)} {name}{sign}{written(data.point(s), data.y_unit)}"
        style = theme.style(Ink.FAINT) if data.is_stale else theme.design(s.index)
        entries.append((plain(text, symbols), style))
    if any(s.is_ghost for s in data.series):
        entries.append((f"{symbols.grid * 2} A", theme.style(Ink.DIM)))
    return entries


def _write_legend(canvas: Canvas, x: int, y: int, legend: list[tuple[str, Style]]) -> None:
    for text, style in legend:
        x = canvas.text(x, y, text, style) + 2


def at(series: Series, x: float, axis: Axis) -> float:
    """Return a curve's value at x, between its points on a log or linear scale; nan in gaps."""
    places = axis.positions(series.xs)
    where = axis.position(x)
    if not series.xs.size or not places[0] <= where <= places[-1]:
        return math.nan
    right = min(int(np.searchsorted(places, where)), series.xs.size - 1)
    left = max(right - 1, 0)
    span = places[right] - places[left]
    share = (where - places[left]) / span if span else 0.0
    a, b = float(series.ys[left]), float(series.ys[right])
    if share >= 1 - 1e-9:
        return b
    if a > 0 and b > 0:
        return float(a * (b / a) ** share)
    return a + (b - a) * share


def _y_labels(axis: Axis, unit: str, rows: int, symbols: Symbols) -> list[tuple[str, float]]:
    count = min(max(rows // 3, 1), 9)
    return [(plain(written(v, unit, is_tick=True), symbols), v) for v in axis.ticks(count)]


def _grid(
    canvas: Canvas, theme: Theme, symbols: Symbols, frame: _Frame, labels: list[tuple[str, float]]
) -> None:
    faint, dim = theme.style(Ink.FAINT), theme.style(Ink.DIM)
    dots = np.full((1, frame.width), 0, np.uint32)
    dots[0, ::2] = ord(symbols.grid)
    taken: set[int] = set()
    for text, value in labels:
        y = frame.row(value)
        if y is None or y in taken:
            continue
        taken.add(y)
        canvas.paint(frame.left, y, dots, np.zeros(dots.shape, np.int32), [faint])
        canvas.right(frame.left - 1, y, text, dim, width=frame.left - 1)


def _cursor_line(
    canvas: Canvas, theme: Theme, symbols: Symbols, frame: _Frame, data: LineChartData
) -> None:
    if data.cursor is None:
        return
    column = frame.column(data.x_axis, data.cursor)
    canvas.fill(column, frame.top, 1, frame.height, theme.style(Ink.DIM), glyph=symbols.bar)


def _void(
    canvas: Canvas, theme: Theme, symbols: Symbols, frame: _Frame, data: LineChartData
) -> None:
    """Say why there is nothing, where there is nothing."""
    if data.void is None:
        return
    first = frame.column(data.x_axis, data.void[0]) + 3
    room = frame.left + frame.width - first
    lines = wrapped(plain(data.void[1], symbols), min(room, 44)) if room >= 18 else []
    if not 0 < len(lines) <= frame.height - 2:
        return
    top = frame.top + (frame.height - len(lines)) // 2
    style = theme.style(Ink.WARN if not data.is_stale else Ink.FAINT)
    for y, line in enumerate(lines, start=top):
        canvas.text(first, y, line, style)


def sampled(xs: Floats, ys: Floats, axis: Axis, y_axis: Axis, columns: int) -> Floats:
    """Return the vertical position of a curve in each column, nan where it has no value.

    Args:
        xs: (n,) ascending.
        ys: (n,) values, nan in gaps.
        axis: Horizontal scale.
        y_axis: Vertical scale.
        columns: Columns across.
    """
    if xs.size < 1:
        return np.full(columns, np.nan)
    places, heights = axis.positions(xs), y_axis.positions(ys)
    where = np.linspace(0.0, 1.0, columns)
    seen = np.isfinite(heights)
    if not seen.any():
        return np.full(columns, np.nan)
    line = np.interp(where, places[seen], heights[seen], left=np.nan, right=np.nan)
    if seen.all():
        return line
    right = np.clip(np.searchsorted(places, where), 0, places.size - 1)
    left = np.clip(right - 1, 0, places.size - 1)
    line[~(seen[left] & seen[right])] = np.nan
    return line


def dots(line: Floats, rows: int, *, thickness: int = 1) -> npt.NDArray[np.bool_]:
    """Return the dots of a curve: steep parts are filled, so that it never tears.

    Args:
        line: (columns,) positions 0 at the bottom to 1 at the top, nan for gaps.
        rows: Rows of dots.
        thickness: Dots across the line.
    """
    y = (1.0 - line) * (rows - 1)
    before = np.concatenate([y[:1], (y[1:] + y[:-1]) / 2])
    after = np.concatenate([(y[1:] + y[:-1]) / 2, y[-1:]])
    before = np.where(np.isnan(before), y, before)
    after = np.where(np.isnan(after), y, after)
    with np.errstate(invalid="ignore"):
        low = np.round(np.minimum(np.minimum(before, after), y))
        high = np.round(np.maximum(np.maximum(before, after), y))
        # A gentle slope needs no filling: one dot a column looks finest.
        flat = high - low <= 1
        low = np.where(flat, np.round(y), low)
        high = np.where(flat, np.round(y), high) + (thickness - 1)
        grid = np.arange(rows)[:, None]
        return (grid >= low[None, :]) & (grid <= high[None, :])


def masks(grid: npt.NDArray[np.bool_], symbols: Symbols) -> npt.NDArray[np.int64]:
    """Return the dot mask of each cell: (rows × dot_rows, columns × dot_columns) to (rows, columns)."""
    down, across = symbols.dot_rows, symbols.dot_columns
    rows, columns = grid.shape[0] // down, grid.shape[1] // across
    bits = (1 << np.arange(down * across)).reshape(down, across)
    cut = grid.reshape(rows, down, columns, across)
    found: npt.NDArray[np.int64] = np.einsum("rdca,da->rc", cut, bits)
    return found


@lru_cache(maxsize=4)
def _raster(
    layers: tuple[Series, ...],
    x_axis: Axis,
    y_axis: Axis,
    size: tuple[int, int],
    thickness: int,
    symbols: Symbols,
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int32]]:
    """Return the glyph of each cell and the curve it belongs to; the same while no curve moves.

    Args:
        layers: Curves, the lowest first.
        x_axis: Horizontal scale.
        y_axis: Vertical scale.
        size: Dots across and down.
        thickness: Dots across a line.
        symbols: Glyphs.
    """
    count = symbols.dot_rows * symbols.dot_columns
    found, lit = [], []
    for s in layers:
        line = sampled(s.xs, s.ys, x_axis, y_axis, size[0])
        grid = dots(line, size[1], thickness=1 if s.is_ghost else thickness)
        if s.is_ghost:
            grid[:, 1::3] = False
            grid[:, 2::3] = False
        mask = masks(grid, symbols)
        found.append(mask)
        dots_in = sum((mask >> bit) & 1 for bit in range(count))
        # A ghost never takes a cell from a live curve, and no curve takes one it does not touch.
        lit.append(np.where(mask == 0, -1000, dots_in - (100 if s.is_ghost else 0)))
    # Curves that share a cell share its dots: the last one drawn must not cut the others.
    owner = np.stack(lit).argmax(axis=0).astype(np.int32)
    joined = np.bitwise_or.reduce(np.stack(found))
    codes = symbols.glyphs()[joined]
    codes[joined == 0] = 0
    return codes, owner


def _curves(
    canvas: Canvas, theme: Theme, symbols: Symbols, frame: _Frame, data: LineChartData
) -> None:
    wide, high = frame.width * symbols.dot_columns, frame.height * symbols.dot_rows
    thickness = 2 if symbols.name == "braille" and frame.height >= 12 else 1
    layers = sorted(data.series, key=lambda s: not s.is_ghost)
    if not layers:
        return
    shaded = np.full((frame.height, frame.width), -1, np.int32)
    for i, s in enumerate(layers):
        inside = _band(canvas, theme, symbols, frame, data, s)
        if inside is not None:
            shaded[inside] = i
    codes, owner = _raster(
        tuple(layers), data.x_axis, frame.y_axis, (wide, high), thickness, symbols
    )
    styles = [_line_style(theme, data, s, None) for s in layers]
    for ground in layers:
        styles += [_line_style(theme, data, s, ground) for s in layers]
    canvas.paint(frame.left, frame.top, codes, owner + (shaded + 1) * len(layers), styles)


def _line_style(theme: Theme, data: LineChartData, s: Series, band: Series | None) -> Style:
    """Return a curve's style, over the band of another curve where it lies in one."""
    if data.is_stale:
        return theme.style(Ink.FAINT)
    color = theme.designs[s.index % len(theme.designs)]
    ground = None
    if band is not None:
        ground = blend(theme, theme.designs[band.index % len(theme.designs)], 0.2)
    if not s.is_ghost:
        return theme.design(s.index) if ground is None else colored(color, ground)
    mixed = blend(theme, color, 0.55)
    if mixed is None:
        return theme.style(Ink.DIM)
    return colored(mixed, ground or theme.color(Ink.GROUND))


def blend(theme: Theme, color: str, share: float) -> str | None:
    """Return a colour mixed into the ground, or None where the terminal chooses the colours."""
    ground = theme.color(Ink.GROUND)
    if theme.is_mono or not (color.startswith("#") and ground.startswith("#")):
        return None
    a, b = Color.parse(ground).triplet, Color.parse(color).triplet
    return blend_rgb(a, b, share).hex if a and b else None


def _band(
    canvas: Canvas, theme: Theme, symbols: Symbols, frame: _Frame, data: LineChartData, s: Series
) -> npt.NDArray[np.bool_] | None:
    """Lay a curve's band beneath it, its edges to an eighth of a cell; return the cells inside."""
    if s.low is None or s.high is None:
        return None
    low = sampled(s.xs, s.low, data.x_axis, frame.y_axis, frame.width)
    high = sampled(s.xs, s.high, data.x_axis, frame.y_axis, frame.width)
    floor = np.arange(frame.height - 1, -1, -1)[:, None] / frame.height
    with np.errstate(invalid="ignore"):
        top = np.clip((high[None, :] - floor) * frame.height, 0, 1)
        bottom = np.clip((low[None, :] - floor) * frame.height, 0, 1)
    top, bottom = np.nan_to_num(top), np.nan_to_num(bottom)
    inside = top - bottom > 0.5
    shade = None
    if len(set(symbols.levels)) == 8:
        shade = blend(theme, theme.designs[s.index % len(theme.designs)], 0.2)
    codes = np.zeros(inside.shape, np.uint32)
    inks = np.zeros(inside.shape, np.int32)
    if shade is None:
        codes[inside] = ord(symbols.shades[1])
        canvas.paint(frame.left, frame.top, codes, inks, [theme.style(Ink.DIM)])
        return None
    ground = theme.color(Ink.GROUND)
    levels = np.array([ord(c) for c in " " + symbols.levels], np.uint32)
    is_top = (top > bottom) & (bottom <= 0)
    codes[is_top] = levels[np.rint(top[is_top] * 8).astype(int)]
    is_bottom = (top > bottom) & (bottom > 0)
    codes[is_bottom] = levels[np.rint(bottom[is_bottom] * 8).astype(int)]
    inks[is_bottom] = 1
    canvas.paint(
        frame.left, frame.top, codes, inks, [colored(shade, ground), colored(ground, shade)]
    )
    return inside


def winner_at(curves: list[Series], x: float, axis: Axis, *, is_more_better: bool) -> int | None:
    """Return the design that is best at x, None where none has a value."""
    values = [(at(s, x, axis), s.index) for s in curves]
    known = [pair for pair in values if math.isfinite(pair[0])]
    if not known:
        return None
    return (max if is_more_better else min)(known)[1]


def _winners(
    canvas: Canvas,
    theme: Theme,
    symbols: Symbols,
    frame: _Frame,
    data: LineChartData,
    curves: list[Series],
) -> list[float]:
    """Draw who wins along the axis and return where that changes."""
    lines = np.stack([sampled(s.xs, s.ys, data.x_axis, frame.y_axis, frame.width) for s in curves])
    worst = -np.inf if data.is_more_better else np.inf
    filled = np.where(np.isnan(lines), worst, lines)
    best = _steady(filled if data.is_more_better else -filled, 1.0 / (2 * frame.height))
    known: npt.NDArray[np.bool_] = np.any(np.isfinite(filled), axis=0, keepdims=True)[0]
    y = frame.top + frame.height
    breaks: list[float] = []
    start = 0
    for column in range(1, frame.width + 1):
        if column < frame.width and best[column] == best[start] and known[column] == known[start]:
            continue
        is_known = bool(known[start])
        index = curves[int(best[start])].index
        style = theme.design(index) if is_known and not data.is_stale else theme.style(Ink.FAINT)
        glyph = symbols.line if is_known else symbols.grid
        canvas.fill(frame.left + start, y, column - start, 1, style, glyph=glyph)
        if is_known:
            canvas.text(frame.left + (start + column - 1) // 2, y, symbols.mark(index), style)
        if column < frame.width and known[start] and known[column]:
            before, after = curves[int(best[start])], curves[int(best[column])]
            span = ((column - 1) / (frame.width - 1), column / (frame.width - 1))
            served = before.xs[np.isfinite(before.ys)]
            ends = np.isnan(lines[int(best[start]), column])
            breaks.append(float(served[-1]) if ends else _meeting(before, after, data.x_axis, span))
        start = column
    canvas.right(frame.left - 1, y, "best", theme.style(Ink.DIM), width=max(frame.left - 1, 0))
    return breaks


def _steady(lines: Floats, least: float) -> npt.NDArray[np.intp]:
    """Return the highest line in each column; another one only once it is seen to be higher.

    Args:
        lines: (curves, columns) heights.
        least: Height that is seen.
    """
    best: npt.NDArray[np.intp] = lines.argmax(axis=0)
    for column in range(1, best.size):
        old, new = best[column - 1], best[column]
        with np.errstate(invalid="ignore"):  # neither has a value here
            is_seen = lines[new, column] - lines[old, column] >= least
        if not is_seen:
            best[column] = old
            continue
        # It took over where the two crossed, not where that began to be seen.
        first = column
        while (
            first > 0 and best[first - 1] == old and lines[new, first - 1] > lines[old, first - 1]
        ):
            first -= 1
        best[first:column] = new
    return best


@lru_cache(maxsize=64)
def _meeting(a: Series, b: Series, axis: Axis, span: tuple[float, float]) -> float:
    """Return where two curves meet between two positions on the axis."""
    low, high = span
    sign = at(a, axis.value(low), axis) > at(b, axis.value(low), axis)
    for _ in range(20):
        middle = (low + high) / 2
        x = axis.value(middle)
        if (at(a, x, axis) > at(b, x, axis)) == sign:
            low = middle
        else:
            high = middle
    return axis.value((low + high) / 2)


def _marks(
    canvas: Canvas,
    theme: Theme,
    symbols: Symbols,
    frame: _Frame,
    data: LineChartData,
    curves: list[Series],
) -> None:
    for s in curves:
        style = theme.style(Ink.FAINT) if data.is_stale else theme.design(s.index, bold=True)
        # Staggered, so that the marks of curves that lie close do not hide each other.
        for share in (0.12 + 0.04 * s.index, 0.86 + 0.04 * s.index):
            x = data.x_axis.value(share)
            _mark(canvas, frame, data, x, at(s, x, data.x_axis), symbols.mark(s.index), style)
        if data.cursor is not None:
            _mark(canvas, frame, data, data.cursor, data.point(s), symbols.mark(s.index), style)


def _mark(
    canvas: Canvas,
    frame: _Frame,
    data: LineChartData,
    x: float,
    value: float,
    glyph: str,
    style: Style,
) -> None:
    y = frame.row(value) if math.isfinite(value) else None
    if y is not None:
        canvas.text(frame.column(data.x_axis, x), y, glyph, style)


def _x_labels(
    canvas: Canvas,
    theme: Theme,
    symbols: Symbols,
    frame: _Frame,
    data: LineChartData,
    breaks: list[float],
    y: int,
) -> None:
    taken: list[tuple[int, int]] = []
    dim, accent = theme.style(Ink.DIM), theme.style(Ink.ACCENT, bold=True)
    wanted = [(x, accent, symbols.ghost) for x in breaks[:3]]
    if data.cursor is not None:
        wanted.append((data.cursor, theme.style(Ink.TITLE), symbols.bar))
    wanted += [(x, dim, "") for x in data.x_axis.ticks(max(frame.width // 9, 2))]
    for x, style, sign in wanted:
        text = plain(written(x, data.x_unit, is_tick=True), symbols)
        if sign == symbols.ghost:
            text = sign + text
        column = frame.column(data.x_axis, x)
        size = cells(text)
        start = min(max(column - size // 2, frame.left), max(canvas.width - size, 0))
        if any(start <= b and a <= start + size for a, b in taken):
            continue
        canvas.text(start, y, text, style)
        taken.append((start, start + size))


class LineChart(Panel):
    """The chart; a click or a drag moves the field that lies along it."""

    class Moved(Message):
        """The pointer asks for a value of the field along the chart."""

        def __init__(self, value: float, *, is_drag: bool) -> None:
            super().__init__()
            self.value = value
            self.is_drag = is_drag

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.data: LineChartData | None = None
        self._is_dragging = False

    def show(self, data: LineChartData) -> None:
        """Show other curves."""
        self.data = data
        self.redraw()

    def draw(self, width: int, height: int) -> list[Strip]:
        """Return the chart's strips."""
        if self.data is None:
            return Canvas(width, height, self.look.theme.style()).strips()
        return render(width, height, self.look.theme, self.look.symbols, self.data)

    def _value(self, x: float) -> float | None:
        if self.data is None:
            return None
        labels = _y_labels(
            self.data.y_axis or fit(self.data),
            self.data.y_unit,
            self.size.height - 3,
            self.look.symbols,
        )
        left = max((cells(text) for text, _ in labels), default=0) + 2
        span = max(self.size.width - left - 2, 1)
        return self.data.x_axis.value(min(max((x - left) / span, 0.0), 1.0))

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Begin to drag the cursor."""
        value = self._value(event.x)
        if value is not None:
            self._is_dragging = True
            self.capture_mouse()
            self.post_message(self.Moved(value, is_drag=False))

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Drag the cursor."""
        value = self._value(event.pointer_x) if self._is_dragging else None
        if value is not None:
            self.post_message(self.Moved(value, is_drag=True))

    def on_mouse_up(self) -> None:
        """End the drag."""
        self._is_dragging = False
        self.release_mouse()
