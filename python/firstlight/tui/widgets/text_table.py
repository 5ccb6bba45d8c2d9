"""Rows of styled cells with a heading and a selection: compare, claims, WHY and help use it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from firstlight.tui.canvas import Canvas, cells, clip
from firstlight.tui.symbols import Symbols, plain
from firstlight.tui.theme import Ink, Theme

if TYPE_CHECKING:
    from rich.style import Style
    from textual.strip import Strip


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell.

    Attributes:
        text: What it says.
        ink: Its colour.
        design: Design whose colour it takes instead, or None.
        is_right: Whether it stands at the right of its column.
    """

    text: str
    ink: Ink = Ink.TEXT
    design: int | None = None
    is_right: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableData:
    """What a table shows.

    Attributes:
        title: Heading line, "" for none.
        head: Column names, may be empty.
        rows: Rows of cells; a row of one cell runs across all columns.
        selected: Index of the selected row, -1 for none.
        first: First row that is shown.
        stretch: Column that takes the spare width.
    """

    title: str = ""
    head: tuple[Cell, ...] = ()
    rows: tuple[tuple[Cell, ...], ...]
    selected: int = -1
    first: int = 0
    stretch: int = 0


def render(width: int, height: int, theme: Theme, symbols: Symbols, data: TableData) -> list[Strip]:
    """Return the strips of the table.

    Args:
        width: Cells across; columns that do not fit are left out from the right.
        height: Rows.
        theme: Colours.
        symbols: Glyphs.
        data: What to show.
    """
    canvas = Canvas(width, height, theme.style())
    y = 0
    if data.title:
        canvas.text(
            1, 0, plain(data.title, symbols), theme.style(Ink.TITLE), width=max(width - 1, 0)
        )
        y = 1
    sizes = column_widths(width - 2, data)
    if data.head:
        _line(canvas, y, theme, symbols, data.head, sizes, Ink.GROUND)
        y += 1
    for index, row in enumerate(data.rows[data.first :], start=data.first):
        if y >= height:
            break
        on = Ink.SELECTED if index == data.selected else Ink.GROUND
        canvas.fill(0, y, width, 1, theme.style(on=on))
        if index == data.selected:
            canvas.text(0, y, symbols.right, theme.style(Ink.ACCENT, on))
        _line(canvas, y, theme, symbols, row, sizes, on)
        y += 1
    return canvas.strips()


def column_widths(room: int, data: TableData) -> list[int]:
    """Return the cells of each column, those left out being missing."""
    lines = [row for row in (data.head, *data.rows) if len(row) > 1]
    count = max((len(row) for row in lines), default=0)
    sizes = [max(cells(row[i].text) for row in lines if i < len(row)) for i in range(count)]
    while sizes and sum(sizes) + 2 * (len(sizes) - 1) > room:
        over = sum(sizes) + 2 * (len(sizes) - 1) - room
        keep = min(sizes[data.stretch], 14) if data.stretch < len(sizes) else 0
        if data.stretch < len(sizes) and sizes[data.stretch] - over >= keep:
            sizes[data.stretch] -= over
        elif len(sizes) > 2:
            sizes.pop()
        else:
            sizes = [max(room - 2 - sizes[-1], 1), sizes[-1]] if len(sizes) == 2 else [room]
            break
    return [max(size, 0) for size in sizes]


def _style(theme: Theme, cell: Cell, on: Ink) -> Style:
    if cell.design is not None:
        return theme.design(cell.design, on, bold=True)
    return theme.style(cell.ink, on)


def _line(
    canvas: Canvas,
    y: int,
    theme: Theme,
    symbols: Symbols,
    row: tuple[Cell, ...],
    sizes: list[int],
    on: Ink,
) -> None:
    if len(row) == 1:
        text = plain(row[0].text, symbols)
        canvas.text(1, y, text, _style(theme, row[0], on), width=max(canvas.width - 1, 0))
        return
    x = 1
    for cell, size in zip(row, sizes, strict=False):
        text, style = clip(plain(cell.text, symbols), size), _style(theme, cell, on)
        if cell.is_right:
            canvas.right(x + size, y, text, style)
        else:
            canvas.text(x, y, text, style)
        x += size + 2


def wrapped(text: str, width: int) -> list[str]:
    """Return the text in lines of at most `width` cells, broken at spaces where possible."""
    lines: list[str] = []
    for paragraph in text.split("\n"):
        line = ""
        for word in paragraph.split(" "):
            rest = word
            while cells(rest) > width > 0:
                head = clip(rest, width)[:-1] or rest[:1]
                if line:
                    lines.append(line)
                    line = ""
                lines.append(head)
                rest = rest[len(head) :]
            joined = f"{line} {rest}" if line else rest
            if cells(joined) > width and line:
                lines.append(line)
                line = rest
            else:
                line = joined
        lines.append(line)
    return lines
