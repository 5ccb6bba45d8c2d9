"""What every picture of ours shares: strips drawn once, and only changed rows repainted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from firstlight.tui.symbols import BRAILLE, Symbols
from firstlight.tui.theme import DARK, Ink, Theme

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Look:
    """Colours and glyphs in use.

    Attributes:
        theme: Colours.
        symbols: Glyphs.
    """

    theme: Theme = DARK
    symbols: Symbols = BRAILLE


class Panel(Widget):
    """A widget whose content is a list of strips.

    Subclasses implement `draw`; they call `redraw` when what they show changed.
    """

    ALLOW_MAXIMIZE = True
    DEFAULT_CSS = "Panel { width: 1fr; height: 1fr; }"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self.look = Look()
        self._strips: list[Strip] = []
        self._drawn_size = (-1, -1)

    def draw(self, width: int, height: int) -> list[Strip]:
        """Return `height` strips of exactly `width` cells."""
        raise NotImplementedError

    def put_on(self, look: Look) -> None:
        """Change colours and glyphs."""
        self.look = look
        self._drawn_size = (-1, -1)
        self.refresh()

    def redraw(self) -> None:
        """Draw now and mark the rows that differ; a hidden panel is drawn when it is shown."""
        width, height = self.size
        if not width or not height:
            self._drawn_size = (-1, -1)
            return
        if self._drawn_size != (width, height):
            self._drawn_size = (-1, -1)
            self.refresh()
            return
        old, self._strips = self._strips, self.draw(width, height)
        rows = [y for y, strip in enumerate(self._strips) if strip != old[y]]
        if rows:
            # One span a run of rows: more spans restart the terminal's style each time.
            self.refresh(*(Region(0, a, width, b - a) for a, b in _runs(rows)))

    def render_line(self, y: int) -> Strip:
        """Return one row, drawing all of them when the size changed."""
        width, height = self.size
        if self._drawn_size != (width, height):
            self._strips = self.draw(width, height)
            self._drawn_size = (width, height)
        if y < len(self._strips):
            return self._strips[y]
        return Strip.blank(width, self.look.theme.style(Ink.TEXT))


def _runs(rows: list[int]) -> Iterator[tuple[int, int]]:
    start = previous = rows[0]
    for y in rows[1:]:
        if y > previous + 1:
            yield start, previous + 1
            start = y
        previous = y
    yield start, previous + 1
