"""Blocks of a printed answer, and how they become lines of a terminal or a Markdown page.

A block knows nothing of what it says. No line is ever wider than asked for: a table that is too wide
is cut into tables of fewer columns, and a word that is too long is broken.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

NARROWEST = 20
"""Below this many columns nothing can be laid out; narrower terminals get lines of this width."""
WIDEST_PROSE = 100
_NARROWEST_PROSE = 4
_GAP = 2
_LABEL_FRAC = 0.45
_BREAKS = re.compile(r"[^-+/ ]*[-+/ ]?")


class Style(Protocol):
    """Dresses a line; the default of every writer is to leave it as it is."""

    def __call__(self, text: str, *, role: str) -> str:
        """Return a line of role "heading", "head" (of a table) or "body" as it is to be shown."""


def plain(text: str, *, role: str) -> str:  # noqa: ARG001  # the style that does nothing
    """Return a line as it is."""
    return text


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of what follows."""

    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Prose, wrapped."""

    text: str


@dataclass(frozen=True, slots=True)
class Points:
    """Short items, each wrapped under its own mark."""

    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: the first column names the rows, the others hold values.

    Attributes:
        head: Names of the columns, the first of them over the labels.
        rows: Label and values of each row; a label that starts with a space belongs to the row
            above.
        words: Whether values are words, which are set to the left.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: bool = False


Block = Heading | Paragraph | Points | Grid


def cells(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return sum(_cells(char) for char in text)


def _cells(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1


def clean(text: str) -> str:
    """Return a text on one line, without characters that would steer a terminal."""
    return "".join(char if char.isprintable() else " " for char in text)


def wrap(text: str, width: int, *, first: str = "", rest: str = "") -> list[str]:
    """Return a text in lines of at most `width` columns.

    Args:
        text: The text.
        width: Columns.
        first: What the first line starts with.
        rest: What the others start with.
    """
    room = width - max(cells(first), cells(rest))
    if room < _NARROWEST_PROSE:
        first, rest, room = "", "", max(width, 1)
    lines, line, empty = [], first, True
    for word in clean(text).split(" "):
        # the first line may have more room than the rest
        fits = empty and cells(line) + cells(word) <= width
        for piece in [word] if fits else _chopped(word, room):
            if not empty and cells(line) + 1 + cells(piece) > width:
                lines.append(line)
                line, empty = rest, True
            line += piece if empty else f" {piece}"
            empty = empty and not piece
    return [line.rstrip() for line in [*lines, line]]


def _chopped(word: str, width: int) -> Iterator[str]:
    """Yield a word in pieces of at most `width` columns."""
    piece = ""
    for char in word:
        if cells(piece) + _cells(char) > width:
            yield piece
            piece = ""
        piece += char
    yield piece


def to_terminal(blocks: Iterable[Block], *, width: int, style: Style = plain) -> str:
    """Return blocks as lines for a terminal.

    Args:
        blocks: What to say.
        width: Columns there are.
        style: Dresses each line.
    """
    width = max(width, NARROWEST)
    lines: list[str] = []
    previous: Block | None = None
    for block in blocks:
        if previous is not None and not isinstance(previous, Heading):
            lines.append("")
        lines += [style(text, role=role) for text, role in _lines(block, width)]
        previous = block
    return "\n".join(lines) + "\n"


def _lines(block: Block, width: int) -> Iterator[tuple[str, str]]:
    prose = min(width, WIDEST_PROSE)
    if isinstance(block, Heading):
        yield from ((line, "heading") for line in wrap(block.text, prose))
    elif isinstance(block, Paragraph):
        yield from ((line, "body") for line in wrap(block.text, prose))
    elif isinstance(block, Points):
        for item in block.items:
            yield from ((line, "body") for line in wrap(item, prose, first="- ", rest="  "))
    else:
        yield from _grid(block, width)


def _grid(grid: Grid, width: int) -> Iterator[tuple[str, str]]:
    """Yield the lines of a table, of several tables when it is too wide."""
    column_cells = [_column(grid, index) for index in range(1, len(grid.head))]
    labels = [clean(label) for label in (grid.head[0], *(row[0] for row in grid.rows))]
    wanted = max(map(cells, labels), default=0)
    room = width - sum(size + _GAP for size in column_cells)
    label_cells = min(wanted, max(room, int(width * _LABEL_FRAC)))
    start = 0
    while start < len(column_cells) or start == 0:
        stop, used = start, label_cells
        while stop < len(column_cells) and (
            stop == start or used + _GAP + column_cells[stop] <= width
        ):
            used += _GAP + column_cells[stop]
            stop += 1
        sizes = [min(size, width - label_cells - _GAP) for size in column_cells[start:stop]]
        if start:
            yield "", "body"
        picked = range(start + 1, stop + 1)
        yield from _rows(grid, picked, label_cells=label_cells, sizes=sizes)
        start = max(stop, 1)


def _column(grid: Grid, index: int) -> int:
    """Return the columns a column of a table needs: its widest value, or part of its name."""
    parts = _BREAKS.findall(clean(grid.head[index]))
    values = [cells(clean(row[index])) for row in grid.rows]
    return max([*(cells(part.rstrip()) for part in parts), *values], default=1)


def _rows(
    grid: Grid, picked: range, *, label_cells: int, sizes: list[int]
) -> Iterator[tuple[str, str]]:
    left = [True, *([grid.words] * len(sizes))]
    widths = [label_cells, *sizes]
    names = [grid.head[index] for index in picked]
    if any((grid.head[0], *names)):
        columns = [
            wrap(grid.head[0], label_cells),
            *(_broken(name, size) for name, size in zip(names, sizes, strict=True)),
        ]
        tall = max(map(len, columns))
        # names stand on the line their values start under
        columns = [[""] * (tall - len(column)) + column for column in columns]
        yield from ((line, "head") for line in _zipped(columns, widths, left))
    for row in grid.rows:
        label = row[0].lstrip(" ")
        indent = " " * (len(row[0]) - len(label))
        columns = [
            wrap(label, label_cells, first=indent, rest=f"{indent}  "),
            *(wrap(row[index], size) for index, size in zip(picked, sizes, strict=True)),
        ]
        yield from ((line, "body") for line in _zipped(columns, widths, left))


def _broken(name: str, width: int) -> list[str]:
    """Return the name of a column in lines, broken where a hyphen or a plus stands."""
    lines = [""]
    for part in _BREAKS.findall(clean(name)):
        for piece in _chopped(part, max(width, 1)):
            if cells(lines[-1]) + cells(piece.rstrip()) > width:
                lines.append("")
            lines[-1] += piece
    return [line.strip() for line in lines if line.strip()] or [""]


def _zipped(columns: list[list[str]], widths: list[int], left: list[bool]) -> Iterator[str]:
    gap = " " * _GAP
    for parts in zip_longest(*columns, fillvalue=""):
        yield gap.join(
            _padded(part, width, left=to_left)
            for part, width, to_left in zip(parts, widths, left, strict=True)
        ).rstrip()


def _padded(text: str, width: int, *, left: bool) -> str:
    blank = " " * (width - cells(text))
    return text + blank if left else blank + text


def to_markdown(blocks: Iterable[Block]) -> str:
    """Return blocks as a Markdown page; the first paragraph stands before any heading."""
    return "\n\n".join(_markdown(block) for block in blocks) + "\n"


def _markdown(block: Block) -> str:
    if isinstance(block, Heading):
        return f"## {_escaped(block.text)}"
    if isinstance(block, Paragraph):
        return _escaped(block.text)
    if isinstance(block, Points):
        return "\n".join(f"- {_escaped(item)}" for item in block.items)
    rule = ["---", *(["---" if block.words else "---:"] * (len(block.head) - 1))]
    return "\n".join(_piped(row) for row in (block.head, rule, *block.rows))


def _piped(row: Sequence[str]) -> str:
    indented = [re.sub(r"^ +", lambda blank: "&nbsp;" * len(blank[0]), cell) for cell in row]
    return f"| {' | '.join(map(_escaped, indented))} |"


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_|<>#\[\]])", r"\\\1", clean(text))
