"""One control on one row: name, track or choice, value, provenance letter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from firstlight.tui.canvas import Canvas, cells
from firstlight.tui.field import Field, Scale
from firstlight.tui.number import Range, Value
from firstlight.tui.symbols import Symbols, plain
from firstlight.tui.theme import Ink, Theme, colored

if TYPE_CHECKING:
    from textual.strip import Strip

LABEL_CELLS = 11
VALUE_CELLS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class SliderData:
    """What a slider shows.

    Attributes:
        field: The control.
        value: What it says.
        is_focused: Whether keys go to it.
        letter: Provenance letter.
        ghost: Value of the pinned scenario, or None when it is the same.
        edit: Text being typed, or None.
        problem: Whether that text cannot be used.
    """

    field: Field
    value: Value
    is_focused: bool = False
    letter: str = " "
    ghost: Value | None = None
    edit: str | None = None
    problem: bool = False


@dataclass(frozen=True, slots=True)
class Track:
    """Where a slider's track lies in its row.

    Attributes:
        start: First column.
        cells: Columns.
    """

    start: int
    cells: int

    def position(self, x: float) -> float:
        """Return the place on the track under a column, 0 to 1; fractions of a cell count."""
        return min(max((x - self.start) / max(self.cells, 1), 0.0), 1.0)


def track_of(width: int) -> Track:
    """Return where the track lies in a row of this width; no cells when there is no room."""
    length = width - LABEL_CELLS - VALUE_CELLS - 3
    return Track(LABEL_CELLS, max(length, 0))


def render(
    width: int, height: int, theme: Theme, symbols: Symbols, data: SliderData
) -> list[Strip]:
    """Return the strips of one slider.

    Args:
        width: Cells across.
        height: Rows; the slider is in the first.
        theme: Colours.
        symbols: Glyphs.
        data: What to show.
    """
    canvas = Canvas(width, height, theme.style())
    draw(canvas, 0, theme, symbols, data)
    return canvas.strips()


def draw(canvas: Canvas, y: int, theme: Theme, symbols: Symbols, data: SliderData) -> None:
    """Draw a slider into one row of a canvas."""
    width = canvas.width
    on = Ink.SELECTED if data.is_focused else Ink.GROUND
    canvas.fill(0, y, width, 1, theme.style(on=on))
    ink = Ink.TITLE if data.is_focused else Ink.TEXT
    canvas.text(0, y, symbols.right if data.is_focused else " ", theme.style(Ink.ACCENT, on))
    label = plain(data.field.label, symbols)
    canvas.text(1, y, label, theme.style(ink, on), width=max(min(LABEL_CELLS - 1, width - 1), 0))
    if data.edit is not None:
        _draw_edit(canvas, y, theme, symbols, data)
        return
    canvas.text(width - 1, y, data.letter, theme.style(Ink.DIM, on))
    if data.field.scale is Scale.CHOICE:
        _draw_choice(canvas, y, theme, symbols, data)
        return
    track = track_of(width)
    shown = plain(data.field.shown(data.value), symbols)
    room = max(width - 2 - LABEL_CELLS, 0)
    if cells(shown) > VALUE_CELLS:  # a range needs more room: the track gives it
        track = Track(track.start, max(track.cells - (cells(shown) - VALUE_CELLS), 0))
    if track.cells >= 3:
        _draw_track(canvas, y, theme, symbols, data, track)
    canvas.right(width - 2, y, shown, theme.style(ink, on, bold=data.is_focused), width=room)


def _draw_edit(canvas: Canvas, y: int, theme: Theme, symbols: Symbols, data: SliderData) -> None:
    style = theme.style(Ink.ERROR if data.problem else Ink.ACCENT, Ink.SELECTED)
    room = max(canvas.width - LABEL_CELLS - 2, 0)
    text = data.edit or ""
    while cells(text) > room:
        text = text[1:]
    end = canvas.text(LABEL_CELLS, y, text, style)
    canvas.text(end, y, symbols.levels[-1] if symbols.half else "_", style)
    canvas.text(canvas.width - 1, y, "!" if data.problem else " ", style)


def _draw_choice(canvas: Canvas, y: int, theme: Theme, symbols: Symbols, data: SliderData) -> None:
    on = Ink.SELECTED if data.is_focused else Ink.GROUND
    arrows = theme.style(Ink.ACCENT if data.is_focused else Ink.DIM, on)
    name = plain(data.field.shown(data.value), symbols)
    x = canvas.text(LABEL_CELLS, y, symbols.left + " ", arrows)
    room = max(canvas.width - x - 4, 0)
    style = theme.style(Ink.TITLE if data.is_focused else Ink.TEXT, on, bold=True)
    x = canvas.text(x, y, name, style, width=room)
    canvas.text(x, y, " " + symbols.right, arrows)


def _draw_track(
    canvas: Canvas, y: int, theme: Theme, symbols: Symbols, data: SliderData, track: Track
) -> None:
    on = Ink.SELECTED if data.is_focused else Ink.GROUND
    length = track.cells
    canvas.fill(track.start, y, length, 1, theme.style(Ink.FAINT, on), glyph=symbols.track)
    lit = theme.style(Ink.ACCENT if data.is_focused else Ink.DIM, on)
    value = data.value
    if isinstance(value, str):
        canvas.text(track.start, y, value, theme.style(Ink.DIM, on), width=length)
        return
    ends = (value.lo, value.hi) if isinstance(value, Range) else (value, value)
    low, high = (data.field.position(end) * (length - 1) for end in ends)
    if data.ghost is not None and not isinstance(data.ghost, (str, Range)):
        ghost = round(data.field.position(data.ghost) * (length - 1))
        canvas.text(track.start + ghost, y, symbols.ghost, theme.style(Ink.DIM, on))
    if isinstance(value, Range):
        first, last = round(low), max(round(high), round(low) + 1)
        canvas.fill(track.start + first, y, last - first + 1, 1, lit, glyph=symbols.fill)
        canvas.text(track.start + first, y, symbols.left, lit)
        canvas.text(track.start + min(last, length - 1), y, symbols.right, lit)
        return
    canvas.fill(track.start, y, int(low), 1, lit, glyph=symbols.fill)
    # The thumb's left edge moves in eighths of a cell, so that every key press is seen.
    whole, part = int(low), low - int(low)
    if len(symbols.thumb) == 1 or theme.is_mono:
        canvas.text(track.start + round(low), y, symbols.marks[0], lit)
        return
    if len(set(symbols.eighths)) < 8:
        knob = theme.style(Ink.TITLE if data.is_focused else Ink.TEXT, on)
        canvas.text(track.start + round(low), y, symbols.eighths[-1], knob)
        return
    eighth = int(part * 8)
    knob = theme.style(Ink.TITLE if data.is_focused else Ink.TEXT, on)
    # A one-cell knob across two cells: its right part here, its left part in the next.
    if eighth == 0:
        canvas.text(track.start + whole, y, symbols.eighths[-1], knob)
        return
    ink = Ink.TITLE if data.is_focused else Ink.TEXT
    inverse = colored(theme.color(on), theme.color(ink))
    canvas.text(track.start + whole, y, symbols.eighths[eighth - 1], inverse)
    canvas.text(track.start + whole + 1, y, symbols.eighths[eighth - 1], knob)
