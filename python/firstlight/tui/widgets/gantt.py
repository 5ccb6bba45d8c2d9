"""What each device did when, and what one request waited for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from textual.message import Message

from firstlight.tui.axis import Axis
from firstlight.tui.canvas import Canvas, cells
from firstlight.tui.number import written
from firstlight.tui.symbols import Symbols, plain
from firstlight.tui.theme import Ink, Theme
from firstlight.tui.widgets.panel import Panel

if TYPE_CHECKING:
    from textual import events
    from textual.strip import Strip

    from firstlight.tui.answer import Lane, Life, Span, Timeline

KINDS = (
    ("optics", "O"), ("prefill", "P"), ("attention", "A"), ("decode", "D"), ("transfer", "K"),
    ("reload", "W"), ("queue", "q"), ("stall", "S"),
)  # fmt: skip
"""Kinds of span with their letters; colours as the energy parts of the same place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GanttData:
    """What the timeline shows.

    Attributes:
        timeline: Lanes and requests, or None.
        start_s: Left end of the window.
        end_s: Right end of the window.
        request: Request whose life is shown, "" for none.
        title: Heading.
        note: Shown when there is no timeline.
    """

    timeline: Timeline | None
    start_s: float
    end_s: float
    request: str = ""
    title: str = "TIMELINE"
    note: str = ""


def kind_index(kind: str) -> int:
    """Return the colour of a kind; unknown kinds share the last."""
    return next((i for i, (name, _) in enumerate(KINDS) if name == kind), len(KINDS) - 1)


def render(width: int, height: int, theme: Theme, symbols: Symbols, data: GanttData) -> list[Strip]:
    """Return the strips of the timeline.

    Args:
        width: Cells across.
        height: Rows: heading, time, lanes, life of one request, key.
        theme: Colours.
        symbols: Glyphs.
        data: What to show.
    """
    canvas = Canvas(width, height, theme.style())
    if width < 2 or height < 1:
        return canvas.strips()
    canvas.text(1, 0, plain(data.title, symbols), theme.style(Ink.TITLE), width=width - 1)
    line = data.timeline
    if line is None or not data.end_s > data.start_s:
        canvas.text(1, 1, plain(data.note, symbols), theme.style(Ink.DIM), width=width - 1)
        return canvas.strips()
    label = min(max((cells(lane.name) for lane in line.lanes), default=0) + 2, max(width // 3, 2))
    room = width - label - 6
    if room < 4:
        return canvas.strips()
    axis = Axis(lo=data.start_s, hi=data.end_s, is_log=False)
    _time(canvas, theme, symbols, axis, label, room)
    life = next((one for one in line.lives if one.request == data.request), None)
    foot = height - (len(life.stages) if life else 0) - 1
    _lanes(canvas, theme, symbols, data, line, axis, label, room, foot)
    if life:
        _life(canvas, theme, symbols, life, axis, label, room, foot)
    _key(canvas, theme, symbols, height - 1)
    return canvas.strips()


def _lanes(
    canvas: Canvas,
    theme: Theme,
    symbols: Symbols,
    data: GanttData,
    line: Timeline,
    axis: Axis,
    label: int,
    room: int,
    foot: int,
) -> None:
    # Lanes share the room there is; from two rows on the last one parts them.
    each = min(max((foot - 2) // max(len(line.lanes), 1), 1), 4)
    rows = max(each - 1, 1)
    y = 2
    for index, lane in enumerate(line.lanes):
        if y >= foot:
            more = len(line.lanes) - index
            canvas.text(1, foot - 1, f"+{more + 1} lanes", theme.style(Ink.DIM), width=label - 2)
            break
        canvas.text(1, y, lane.name, theme.style(), width=label - 2)
        for row in range(rows):
            canvas.fill(label, y + row, room, 1, theme.style(Ink.FAINT), glyph=symbols.grid)
        if lane.occupancy:
            _occupancy(canvas, y, rows, theme, symbols, lane, line, axis, label, room)
        for span in lane.spans:
            is_lit = span.request == data.request
            for row in range(rows):
                _span(canvas, y + row, theme, symbols, span, axis, label, room,
                      is_lit=is_lit, is_named=row == 0)  # fmt: skip
        canvas.right(canvas.width - 1, y, f"{lane.busy_frac * 100:.0f}%", theme.style(Ink.DIM))
        y += each


def _time(
    canvas: Canvas, theme: Theme, symbols: Symbols, axis: Axis, label: int, room: int
) -> None:
    end = 0
    for t in axis.ticks(max(room // 12, 2)):
        text = plain(written(t, "s", is_tick=True), symbols)
        x = label + round(axis.position(t) * (room - 1))
        if x - cells(text) // 2 > end and x + cells(text) // 2 < canvas.width:
            canvas.center(x, 1, text, theme.style(Ink.DIM))
            end = x + cells(text) // 2 + 1


def _span(
    canvas: Canvas,
    y: int,
    theme: Theme,
    symbols: Symbols,
    span: Span,
    axis: Axis,
    label: int,
    room: int,
    *,
    is_lit: bool,
    is_named: bool = True,
) -> None:
    if span.end_s <= axis.lo or span.start_s >= axis.hi:
        return
    first = label + int(max(axis.position(span.start_s), 0.0) * room)
    last = label + max(int(np.ceil(min(axis.position(span.end_s), 1.0) * room)), first - label + 1)
    last = min(last, label + room)
    index = kind_index(span.kind)
    style = theme.part(index)
    if is_lit and span.request:
        style = theme.style(Ink.TITLE, Ink.SELECTED, bold=True)
    size = last - first
    canvas.fill(first, y, size, 1, style)
    # Letters only where they can be read as words; narrow spans keep the first cell's letter.
    letter = KINDS[index][1] if symbols.half and not theme.is_mono else span.kind[:1].upper()
    if not is_named:
        # Where one ends and the next begins is seen on the first row.
        canvas.text(first, y, symbols.bar, style, width=size)
        return
    text = span.request if size >= cells(span.request) + 3 and span.request else ""
    canvas.text(first, y, f"{letter} {text}".strip() if size >= 4 else letter, style, width=size)


def _occupancy(
    canvas: Canvas,
    y: int,
    rows: int,
    theme: Theme,
    symbols: Symbols,
    lane: Lane,
    line: Timeline,
    axis: Axis,
    label: int,
    room: int,
) -> None:
    """Draw how full a lane is, standing on the last of its rows."""
    style = theme.part_ink(kind_index(lane.kind))
    times = np.linspace(line.start_s, line.end_s, len(lane.occupancy))
    where = np.linspace(axis.lo, axis.hi, room)
    level = np.interp(where, times, np.array(lane.occupancy))
    for column, share in enumerate(level.tolist()):
        if share <= 0.02:
            continue
        # In one row the last eighth parts the lanes.
        height = share * 8 * rows if rows > 1 else min(share * 8, 6.99)
        for row in range(rows):
            level = min(int(height - 8 * row), 7) if height - 8 * row > 0 else -1
            if level >= 0:
                canvas.text(label + column, y + rows - 1 - row, symbols.levels[level], style)


def _life(
    canvas: Canvas,
    theme: Theme,
    symbols: Symbols,
    life: Life,
    axis: Axis,
    label: int,
    room: int,
    top: int,
) -> None:
    for y, stage in enumerate(life.stages, start=top):
        text = f"{life.request}" if y == top else ""
        canvas.text(1, y, text, theme.style(Ink.TITLE), width=label - 2)
        _span(canvas, y, theme, symbols, stage, axis, label, room, is_lit=False)
        said = f"{stage.kind} {written(stage.end_s - stage.start_s, 's')}"
        x = label + int(min(max(axis.position(stage.end_s), 0.0), 1.0) * room) + 1
        x = min(x + 1, canvas.width - cells(said))
        canvas.text(x, y, plain(said, symbols), theme.style(Ink.TEXT))


def _key(canvas: Canvas, theme: Theme, symbols: Symbols, y: int) -> None:
    x = 1
    for i, (name, letter) in enumerate(KINDS):
        if x + cells(name) + 5 > canvas.width:
            return
        x = canvas.text(x, y, f" {letter} ", theme.part(i))
        x = canvas.text(x + 1, y, plain(name, symbols), theme.style(Ink.DIM)) + 1


class Gantt(Panel, can_focus=True):
    """The timeline; keys zoom and pan, a click picks a request."""

    class Picked(Message):
        """A request was clicked."""

        def __init__(self, request: str) -> None:
            super().__init__()
            self.request = request

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.data = GanttData(timeline=None, start_s=0, end_s=0)

    def show(self, data: GanttData) -> None:
        """Show another window or run."""
        self.data = data
        self.redraw()

    def draw(self, width: int, height: int) -> list[Strip]:
        """Return the timeline's strips."""
        return render(width, height, self.look.theme, self.look.symbols, self.data)

    def on_click(self, event: events.Click) -> None:
        """Pick the request under the pointer."""
        line = self.data.timeline
        if line is None or not 2 <= event.y < 2 + len(line.lanes):
            return
        width = self.size.width
        label = min(max((cells(one.name) for one in line.lanes), default=0) + 2, max(width // 3, 2))
        share = (event.x - label) / max(width - label - 6, 1)
        time = self.data.start_s + share * (self.data.end_s - self.data.start_s)
        for span in line.lanes[event.y - 2].spans:
            if span.start_s <= time <= span.end_s and span.request:
                self.post_message(self.Picked(span.request))
                return
