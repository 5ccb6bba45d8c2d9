"""A ratio or a metric over two fields, with the contour where optics break even."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from textual.message import Message

from firstlight.tui.canvas import Canvas, cells
from firstlight.tui.number import written
from firstlight.tui.symbols import Symbols, plain
from firstlight.tui.theme import Ink, Theme, colored
from firstlight.tui.widgets.line_chart import masks
from firstlight.tui.widgets.panel import Panel

if TYPE_CHECKING:
    from rich.style import Style
    from textual import events
    from textual.strip import Strip

    from firstlight.tui.axis import Axis, Floats


REACH = math.log(10.0)
"""Ratios beyond tenfold share the last colour."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeatMapData:
    """What the map shows.

    Attributes:
        title: What the colour says.
        x_axis: Scale across.
        y_axis: Scale up.
        x_unit: Unit across.
        y_unit: Unit up.
        values: (rows, columns) values on evenly divided scales, row 0 at the bottom; nan unknown.
        unit: Unit of the values.
        is_ratio: Whether one is break-even.
        cursor: (x, y) of the cursor.
        here: (x, y) of the scenario, or None.
        note: Last line.
        known_rows: How many rows, from the bottom, are calculated; None: all.
    """

    title: str
    x_axis: Axis
    y_axis: Axis
    x_unit: str
    y_unit: str
    values: Floats
    unit: str
    is_ratio: bool
    cursor: tuple[float, float]
    here: tuple[float, float] | None = None
    note: str = ""
    known_rows: int | None = None


def enlarged(values: Floats, rows: int, columns: int) -> Floats:
    """Return the grid drawn out to rows × columns, straight between its points.

    Args:
        values: (n, m) with nan where unknown; those stay unknown, nearest point by nearest point.
        rows: Rows wanted.
        columns: Columns wanted.
    """
    n, m = values.shape
    y = np.linspace(0, n - 1, rows) if rows > 1 else np.array([(n - 1) / 2])
    x = np.linspace(0, m - 1, columns) if columns > 1 else np.array([(m - 1) / 2])
    top, left = np.minimum(y.astype(int), max(n - 2, 0)), np.minimum(x.astype(int), max(m - 2, 0))
    down, right = np.minimum(top + 1, n - 1), np.minimum(left + 1, m - 1)
    fy, fx = (y - top)[:, None], (x - left)[None, :]
    a, b = values[np.ix_(top, left)], values[np.ix_(top, right)]
    c, d = values[np.ix_(down, left)], values[np.ix_(down, right)]
    mixed = a * (1 - fy) * (1 - fx) + b * (1 - fy) * fx + c * fy * (1 - fx) + d * fy * fx
    nearest = values[np.ix_(np.rint(y).astype(int), np.rint(x).astype(int))]
    whole: Floats = np.where(np.isnan(mixed), nearest, mixed)
    return whole


def contour(grid: Floats) -> npt.NDArray[np.bool_]:
    """Return the points below zero that touch a point above it.

    Args:
        grid: (rows, columns) signed values, nan unknown.
    """
    above = grid > 0
    below = grid <= 0
    edge = np.zeros(grid.shape, bool)
    edge[:, :-1] |= below[:, :-1] & above[:, 1:]
    edge[:, 1:] |= below[:, 1:] & above[:, :-1]
    edge[:-1] |= below[:-1] & above[1:]
    edge[1:] |= below[1:] & above[:-1]
    return edge


@dataclass(frozen=True, slots=True)
class Frame:
    """Where the cells of the map lie."""

    left: int
    top: int
    width: int
    height: int

    @classmethod
    def of(cls, width: int, height: int, data: HeatMapData) -> Frame:
        """Return the frame of a map in a picture of this size."""
        label = max((cells(t) for t, _ in y_ticks(data, height)), default=0)
        left = min(label + 2, max(width // 3, 1))
        return cls(left, 1, width - left - 1, height - 4)

    def cell(self, data: HeatMapData, point: tuple[float, float]) -> tuple[int, int]:
        """Return the cell of a point."""
        x = min(max(data.x_axis.position(point[0]), 0.0), 1.0)
        y = min(max(data.y_axis.position(point[1]), 0.0), 1.0)
        return (
            self.left + round(x * (self.width - 1)),
            self.top + round((1 - y) * (self.height - 1)),
        )

    def point(self, data: HeatMapData, x: float, y: float) -> tuple[float, float]:
        """Return the point under a cell."""
        across = min(max((x - self.left) / max(self.width - 1, 1), 0.0), 1.0)
        up = 1 - min(max((y - self.top) / max(self.height - 1, 1), 0.0), 1.0)
        return data.x_axis.value(across), data.y_axis.value(up)


def y_ticks(data: HeatMapData, height: int) -> list[tuple[str, float]]:
    """Return the labels of the vertical scale."""
    count = min(max((height - 4) // 3, 2), 9)
    return [(written(v, data.y_unit, is_tick=True), v) for v in data.y_axis.ticks(count)]


def render(
    width: int, height: int, theme: Theme, symbols: Symbols, data: HeatMapData
) -> list[Strip]:
    """Return the strips of the map.

    Args:
        width: Cells across.
        height: Rows: title, map, ticks, colour key, note.
        theme: Colours.
        symbols: Glyphs.
        data: What to show.
    """
    canvas = Canvas(width, height, theme.style())
    canvas.text(1, 0, plain(data.title, symbols), theme.style(Ink.TITLE), width=max(width - 1, 0))
    frame = Frame.of(width, height, data)
    if frame.width < 4 or frame.height < 2:
        return canvas.strips()
    shade = _Shade.of(data)
    tall = 2 if symbols.half and not theme.is_mono and theme.heat[0].startswith("#") else 1
    grid = enlarged(shade.scaled, frame.height * tall, frame.width)[::-1]
    _cells(canvas, theme, symbols, frame, data, grid, tall)
    if data.is_ratio:
        _contour(canvas, theme, symbols, frame, data, shade, grid, tall)
    _pending(canvas, theme, frame, data)
    _ticks(canvas, theme, symbols, frame, data, height)
    for point, glyph in ((data.here, symbols.ghost), (data.cursor, symbols.cursor)):
        if point is not None:
            x, y = frame.cell(data, point)
            canvas.text(x, y, glyph, _pointer(theme))
    _key(canvas, theme, symbols, data, shade, height - 2)
    canvas.text(1, height - 1, plain(data.note, symbols), theme.style(Ink.DIM), width=width - 1)
    return canvas.strips()


@dataclass(frozen=True, slots=True, eq=False)
class _Shade:
    """Values on the scale of the colours: 0 to 1, break-even at one half."""

    scaled: Floats
    lo: float
    hi: float
    is_log: bool

    @classmethod
    def of(cls, data: HeatMapData) -> _Shade:
        values = data.values
        seen = values[np.isfinite(values)]
        is_log = bool(seen.size) and bool((seen > 0).all())
        if not seen.size:
            return cls(np.full(values.shape, np.nan), 1.0, 1.0, is_log)
        forward = np.log(np.where(values > 0, values, np.nan)) if is_log else values
        lo, hi = float(np.nanmin(forward)), float(np.nanmax(forward))
        if data.is_ratio:
            # Each side has its own reach, at most tenfold: a far corner must not grey the rest.
            worst, best = min(max(-lo, 0.1), REACH), min(max(hi, 0.1), REACH)
            sides = np.where(forward < 0, forward / worst, forward / best)
            return cls(0.5 + np.clip(sides, -1, 1) / 2, math.exp(-worst), math.exp(best), is_log)
        span = hi - lo or 1.0
        ends = (math.exp(lo), math.exp(hi)) if is_log else (lo, hi)
        return cls((forward - lo) / span, *ends, is_log)


def _colors(theme: Theme, data: HeatMapData) -> tuple[str, ...]:
    return theme.diverging if data.is_ratio else theme.heat


def _levels(grid: Floats, count: int) -> npt.NDArray[np.int32]:
    with np.errstate(invalid="ignore"):
        level = np.clip((grid * count).astype(np.int32), 0, count - 1)
    return np.where(np.isnan(grid), count, level)


def _cells(
    canvas: Canvas,
    theme: Theme,
    symbols: Symbols,
    frame: Frame,
    data: HeatMapData,
    grid: Floats,
    tall: int,
) -> None:
    if theme.is_mono or not symbols.half:
        shades = symbols.shades
        level = _levels(grid, len(shades))
        codes = np.array([ord(c) for c in shades] + [ord(symbols.hatch)], np.uint32)[level]
        inks = np.zeros(codes.shape, np.int32)
        canvas.paint(frame.left, frame.top, codes, inks, [theme.style()])
        return
    colors = [*_colors(theme, data), theme.color(Ink.FAINT)]
    level = _levels(grid, len(colors) - 1)
    if tall == 1:
        codes = np.full(level.shape, ord(" "), np.uint32)
        canvas.paint(frame.left, frame.top, codes, level, [colored(c, c) for c in colors])
        _unknown(canvas, theme, symbols, frame, np.isnan(grid))
        return
    pairs = level[0::2] * len(colors) + level[1::2]
    used, inks = np.unique(pairs, return_inverse=True)
    styles = [colored(colors[p // len(colors)], colors[p % len(colors)]) for p in used.tolist()]
    codes = np.full(pairs.shape, ord(symbols.half), np.uint32)
    canvas.paint(frame.left, frame.top, codes, inks.reshape(pairs.shape).astype(np.int32), styles)
    _unknown(canvas, theme, symbols, frame, np.isnan(grid[0::2]) & np.isnan(grid[1::2]))


def _unknown(
    canvas: Canvas, theme: Theme, symbols: Symbols, frame: Frame, where: npt.NDArray[np.bool_]
) -> None:
    codes = np.where(where, ord(symbols.hatch), 0).astype(np.uint32)
    inks = np.zeros(codes.shape, np.int32)
    canvas.paint(frame.left, frame.top, codes, inks, [theme.style(Ink.FAINT)])


def _pending(canvas: Canvas, theme: Theme, frame: Frame, data: HeatMapData) -> None:
    """Leave blank what is not yet calculated, so that it does not look impossible."""
    rows = data.values.shape[0]
    if data.known_rows is None or data.known_rows >= rows:
        return
    height = round(frame.height * (1 - (data.known_rows - 0.5) / max(rows - 1, 1)))
    height = min(max(height, 1), frame.height)
    canvas.fill(frame.left, frame.top, frame.width, height, theme.style())
    if height > 1:
        canvas.center(
            frame.left + frame.width // 2, frame.top + height // 2, "calculating …",
            theme.style(Ink.DIM),
        )  # fmt: skip


def _contour(
    canvas: Canvas,
    theme: Theme,
    symbols: Symbols,
    frame: Frame,
    data: HeatMapData,
    shade: _Shade,
    grid: Floats,
    tall: int,
) -> None:
    fine = enlarged(
        shade.scaled, frame.height * symbols.dot_rows, frame.width * symbols.dot_columns
    )[::-1]
    mask = masks(contour(fine - 0.5), symbols)
    codes = symbols.glyphs()[mask]
    if theme.is_mono or not symbols.half:
        # Among shades of dots a line of dots would be lost: it stands reversed.
        codes = np.full(mask.shape, ord(symbols.ghost if symbols.half else "*"), np.uint32)
        styles, inks = [theme.style(Ink.TITLE, Ink.SELECTED)], np.zeros(codes.shape, np.int32)
    else:
        colors = [*_colors(theme, data), theme.color(Ink.FAINT)]
        inks = _levels(grid[tall - 1 :: tall], len(colors) - 1)
        bright = "#ffffff" if theme.is_dark else "#000000"
        styles = [colored(bright if c.startswith("#") else "default", c) for c in colors]
    codes[mask == 0] = 0
    canvas.paint(frame.left, frame.top, codes, inks, styles)


def _pointer(theme: Theme) -> Style:
    if theme.is_mono:
        return theme.style(Ink.TITLE, Ink.SELECTED)
    return colored(theme.color(Ink.GROUND), theme.color(Ink.ACCENT), bold=True)


def _ticks(
    canvas: Canvas, theme: Theme, symbols: Symbols, frame: Frame, data: HeatMapData, height: int
) -> None:
    dim = theme.style(Ink.DIM)
    for text, value in y_ticks(data, height):
        _, y = frame.cell(data, (data.x_axis.lo, value))
        canvas.right(frame.left - 1, y, plain(text, symbols), dim, width=frame.left - 1)
    y = frame.top + frame.height
    end = 0
    for value in data.x_axis.ticks(max(frame.width // 10, 2)):
        text = plain(written(value, data.x_unit, is_tick=True), symbols)
        column, _ = frame.cell(data, (value, data.y_axis.lo))
        start = max(min(column - cells(text) // 2, canvas.width - cells(text)), frame.left)
        if start > end:
            end = canvas.text(start, y, text, dim)


def _key(
    canvas: Canvas,
    theme: Theme,
    symbols: Symbols,
    data: HeatMapData,
    shade: _Shade,
    y: int,
) -> None:
    dim = theme.style(Ink.DIM)
    low, high = written(shade.lo, data.unit), written(shade.hi, data.unit)
    if data.is_ratio:
        low, high = f"lose ×{1 / shade.lo:.2g}", f"×{shade.hi:.2g} win"
    x = canvas.text(1, y, plain(low, symbols) + " ", dim)
    length = min(max(canvas.width - x - cells(high) - 35, 4), 32)
    for i in range(length):
        share = (i + 0.5) / length
        if theme.is_mono or not symbols.half:
            glyph = symbols.shades[min(int(share * len(symbols.shades)), len(symbols.shades) - 1)]
            canvas.text(x + i, y, glyph, theme.style())
        else:
            colors = _colors(theme, data)
            color = colors[min(int(share * len(colors)), len(colors) - 1)]
            canvas.text(x + i, y, " ", colored(color, color))
    x = canvas.text(x + length + 1, y, plain(high, symbols), dim)
    if data.is_ratio:
        glyph, style = (
            "⠒⠒" if symbols.name == "braille" else symbols.line * 2,
            theme.style(Ink.TITLE),
        )
        if theme.is_mono or not symbols.half:
            glyph = (symbols.ghost if symbols.half else "*") * 2
            style = theme.style(Ink.TITLE, Ink.SELECTED)
        x = canvas.text(x + 2, y, glyph, style)
        x = canvas.text(x + 1, y, "break-even", theme.style(Ink.TITLE))
        if np.isnan(shade.scaled).any():
            canvas.text(x + 2, y, f"{symbols.hatch * 2} impossible", dim)


class HeatMap(Panel, can_focus=True):
    """The map; keys and clicks move its cursor, Enter takes the cell to the controls."""

    class Moved(Message):
        """The cursor moved."""

        def __init__(self, point: tuple[float, float]) -> None:
            super().__init__()
            self.point = point

    class Chosen(Message):
        """The cell under the cursor is to become the scenario."""

        def __init__(self, point: tuple[float, float]) -> None:
            super().__init__()
            self.point = point

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.data: HeatMapData | None = None
        self.note = "calculating the map"

    def show(self, data: HeatMapData) -> None:
        """Show another map."""
        self.data = data
        self.redraw()

    def draw(self, width: int, height: int) -> list[Strip]:
        """Return the map's strips."""
        if self.data is None:
            canvas = Canvas(width, height, self.look.theme.style())
            canvas.text(1, 0, self.note, self.look.theme.style(Ink.DIM), width=max(width - 1, 0))
            return canvas.strips()
        return render(width, height, self.look.theme, self.look.symbols, self.data)

    def moved(self, across: int, up: int) -> None:
        """Move the cursor by cells."""
        if self.data is None:
            return
        frame = Frame.of(*self.size, self.data)
        x, y = frame.cell(self.data, self.data.cursor)
        point = frame.point(self.data, x + across, y - up)
        # The next key may come before the answer to this message.
        self.data = replace(self.data, cursor=point)
        self.post_message(self.Moved(point))

    def on_click(self, event: events.Click) -> None:
        """Move the cursor; a second click in place takes the cell."""
        if self.data is None:
            return
        point = Frame.of(*self.size, self.data).point(self.data, event.x, event.y)
        self.post_message(self.Chosen(point) if event.chain > 1 else self.Moved(point))
