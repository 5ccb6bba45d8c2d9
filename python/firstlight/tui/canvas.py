"""A raster of cells that becomes strips whose width is exact by construction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from rich.cells import get_character_cell_size
from rich.segment import Segment
from textual.strip import Strip

if TYPE_CHECKING:
    from rich.style import Style

_TAIL = 0
"""Code of the second cell of a wide glyph."""


def clip(text: str, width: int) -> str:
    """Return as much of the text as fits, ended by "…" when something is missing.

    Args:
        text: Any text; wide glyphs count two cells.
        width: Cells there are.
    """
    if width <= 0:
        return ""
    if cells(text) <= width:
        return text
    kept, used = [], 0
    for glyph in text:
        size = get_character_cell_size(glyph)
        if used + size > width - 1:
            break
        kept.append(glyph)
        used += size
    return "".join(kept) + "…"


def cells(text: str) -> int:
    """Return how many cells the text takes."""
    return len(text) if text.isascii() else sum(map(get_character_cell_size, text))


class Canvas:
    """A width × height grid, each cell a code point and a style.

    Writing outside is clipped, so that a picture needs no case for every small size.
    """

    def __init__(self, width: int, height: int, style: Style) -> None:
        self.width = max(width, 0)
        self.height = max(height, 0)
        self._codes: npt.NDArray[np.uint32] = np.full((self.height, self.width), 32, np.uint32)
        self._inks: npt.NDArray[np.int32] = np.zeros((self.height, self.width), np.int32)
        self._styles = [style]
        # Styles are kept by the themes: one object a style, and held here while its id counts.
        self._index = {id(style): 0}
        self._has_wide = False

    def _ink(self, style: Style) -> int:
        index = self._index.get(id(style))
        if index is None:
            index = self._index[id(style)] = len(self._styles)
            self._styles.append(style)
        return index

    def _release(self, y: int, first: int, last: int) -> None:
        """Blank the halves of wide glyphs that the cells first..last−1 cut."""
        if not self._has_wide:
            return
        row = self._codes[y]
        if first < self.width and row[first] == _TAIL:
            row[first - 1] = 32
        if last < self.width and row[last] == _TAIL:
            row[last] = 32

    def text(self, x: int, y: int, text: str, style: Style, *, width: int | None = None) -> int:
        """Write text and return the column after it.

        Args:
            x: First column; may be negative.
            y: Row; outside the canvas nothing is written.
            text: Any text; control and combining characters are left out.
            style: Its style.
            width: Cells it may take; more is clipped with "…".
        """
        if width is not None:
            text = clip(text, width)
        if not 0 <= y < self.height:
            return x + cells(text)
        ink = self._ink(style)
        row, inks = self._codes[y], self._inks[y]
        if text.isascii() and text.isprintable():
            first, last = max(x, 0), min(x + len(text), self.width)
            if first < last:
                self._release(y, first, last)
                part = text[first - x : last - x]
                row[first:last] = np.frombuffer(part.encode("ascii"), np.uint8)
                inks[first:last] = ink
            return x + len(text)
        for glyph in text:
            size = get_character_cell_size(glyph) if glyph.isprintable() else 0
            if size and x >= 0 and x + size <= self.width:
                self._release(y, x, x + size)
                row[x] = ord(glyph)
                if size > 1:
                    row[x + 1 : x + size] = _TAIL
                    self._has_wide = True
                inks[x : x + size] = ink
            x += size
        return x

    def right(self, end: int, y: int, text: str, style: Style, *, width: int | None = None) -> int:
        """Write text that ends before column `end` and return the column where it starts."""
        if width is not None:
            text = clip(text, width)
        start = end - cells(text)
        self.text(start, y, text, style)
        return start

    def center(self, x: int, y: int, text: str, style: Style) -> None:
        """Write text around column x, moved inward at the edges."""
        size = cells(text)
        self.text(max(0, min(x - size // 2, self.width - size)), y, text, style)

    def fill(
        self, x: int, y: int, width: int, height: int, style: Style, *, glyph: str = " "
    ) -> None:
        """Fill a rectangle."""
        first, last = max(x, 0), min(x + width, self.width)
        top, bottom = max(y, 0), min(y + height, self.height)
        if first >= last or top >= bottom:
            return
        for row in range(top, bottom):
            self._release(row, first, last)
        self._codes[top:bottom, first:last] = ord(glyph)
        self._inks[top:bottom, first:last] = self._ink(style)

    def restyle(self, x: int, y: int, width: int, style: Style) -> None:
        """Change the style of a stretch of one row, keeping its glyphs."""
        if 0 <= y < self.height:
            self._inks[y, max(x, 0) : max(min(x + width, self.width), 0)] = self._ink(style)

    def paint(
        self,
        x: int,
        y: int,
        codes: npt.NDArray[np.uint32],
        inks: npt.NDArray[np.int32],
        styles: list[Style],
    ) -> None:
        """Lay a block of one-cell glyphs; code 0 leaves the cell below as it is.

        Args:
            x: First column, not negative.
            y: First row, not negative.
            codes: (rows, columns) code points.
            inks: (rows, columns) index into `styles`.
            styles: Styles of the block.
        """
        rows = min(codes.shape[0], self.height - y)
        columns = min(codes.shape[1], self.width - x)
        if rows <= 0 or columns <= 0:
            return
        index = np.array([self._ink(style) for style in styles], np.int32)
        codes, inks = codes[:rows, :columns], inks[:rows, :columns]
        seen = codes != 0
        under = self._codes[y : y + rows, x : x + columns]
        ink = self._inks[y : y + rows, x : x + columns]
        under[seen] = codes[seen]
        ink[seen] = index[inks[seen]]

    def strips(self) -> list[Strip]:
        """Return one strip a row, each exactly `width` cells."""
        if not self.width:
            return [Strip([], 0)] * self.height
        inks = self._joined()
        return [self._strip(y, inks[y]) for y in range(self.height)]

    def _joined(self) -> npt.NDArray[np.int32]:
        """Return the styles with blanks joined to what stands before them on the same ground.

        A blank shows nothing but its ground, and every change of style costs bytes and time.
        """
        grounds: dict[tuple[object, ...], int] = {}
        ground_of = np.array(
            [
                grounds.setdefault(
                    (s.bgcolor, s.color) if s.reverse else (s.bgcolor,), len(grounds)
                )
                for s in self._styles
            ]
        )
        ground = ground_of[self._inks]
        is_alike = np.zeros(self._inks.shape, np.bool_)
        is_alike[:, 1:] = (self._codes[:, 1:] == 32) & (ground[:, 1:] == ground[:, :-1])
        source = np.where(is_alike, 0, np.arange(self.width))
        np.maximum.accumulate(source, axis=1, out=source)
        joined: npt.NDArray[np.int32] = np.take_along_axis(self._inks, source, axis=1)
        return joined

    def _strip(self, y: int, inks: npt.NDArray[np.int32]) -> Strip:
        edges = np.flatnonzero(inks[1:] != inks[:-1]) + 1
        text = self._codes[y].tobytes().decode("utf-32-le")
        starts = [0, *edges.tolist()]
        ends = [*edges.tolist(), self.width]
        styles = self._styles
        return Strip(
            [
                Segment(text[a:b].replace("\0", ""), styles[inks[a]])
                for a, b in zip(starts, ends, strict=True)
            ],
            self.width,
        )
