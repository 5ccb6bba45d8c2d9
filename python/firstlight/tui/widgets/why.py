"""WHY: what binds, and what a little more of each resource would bring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from firstlight.tui.canvas import Canvas, cells
from firstlight.tui.symbols import Symbols, plain
from firstlight.tui.theme import Ink, Theme
from firstlight.tui.widgets.panel import Panel
from firstlight.tui.widgets.text_table import wrapped

if TYPE_CHECKING:
    from rich.style import Style
    from textual.strip import Strip

    from firstlight.tui.answer import DesignAnswer

STEP = 0.05
"""The little more of a resource that is spoken of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyData:
    """What is explained.

    Attributes:
        design: The optical design's answer, or None before the first.
        warning: What the reader must know first, or "".
        is_stale: Whether it belongs to an earlier scenario.
    """

    design: DesignAnswer | None
    warning: str = ""
    is_stale: bool = False


def render(width: int, height: int, theme: Theme, symbols: Symbols, data: WhyData) -> list[Strip]:
    """Return the strips of the explanation.

    Args:
        width: Cells across.
        height: Rows: the sentence, then one a resource, then the warning.
        theme: Colours.
        symbols: Glyphs.
        data: What to say.
    """
    canvas = Canvas(width, height, theme.style())
    canvas.text(1, 0, "WHY", theme.style(Ink.TITLE))
    design = data.design
    if design is None:
        return canvas.strips()
    dim = theme.style(Ink.DIM)
    plain_style = dim if data.is_stale else theme.style()
    if not design.is_feasible:
        _lines(canvas, 0, design.reason or "no operating point", theme.style(Ink.ERROR), 5)
        return canvas.strips()
    if not design.binding:
        canvas.text(5, 0, "what binds is found by simulation", dim, width=max(width - 5, 0))
        return canvas.strips()
    first = design.binding[0]
    strong = plain_style if data.is_stale else theme.style(Ink.ACCENT)
    text = plain(f"bound by {first.resource} ({first.pool})", symbols)
    canvas.text(5, 0, text, strong, width=max(width - 5, 0))
    y = 1
    notes = wrapped(plain(data.warning, symbols), max(width - 2, 1)) if data.warning else []
    # A sentence is shown whole or not at all; where to read it takes one row.
    is_whole = len(notes) <= max(height - 1 - len(design.binding), 2 if height > 4 else 0)
    taken = len(notes) if is_whole else int(height > 4)
    gains = design.binding[: max(height - 1 - taken, 0)]
    label = max((cells(f"+5% {g.resource}") for g in gains), default=0)
    label = min(label + 2, max(width - (16 if width >= 38 else 8), 1))
    longest = max((abs(g.gain) for g in gains), default=0.0)
    for gain in gains:
        canvas.text(1, y, plain(f"+5% {gain.resource}", symbols), plain_style, width=label - 1)
        said = f"{gain.gain * STEP * 100:+.1f}%" + (" goodput" if width >= 38 else "")
        x = canvas.right(width - 1, y, said, plain_style, width=max(width - label - 1, 0))
        room = x - label - 2
        if room > 2 and longest > 0:
            size = round(abs(gain.gain) / longest * room)
            canvas.fill(label + 1, y, size, 1, dim, glyph=symbols.line)
        y += 1
    if is_whole and y < height:
        _lines(canvas, y, plain(data.warning, symbols), theme.style(Ink.WARN), 1)
    elif data.warning and height > 4:
        canvas.text(
            1, y, plain("c  reads the answer and its sources", symbols), dim, width=width - 1
        )
    return canvas.strips()


def _lines(canvas: Canvas, y: int, text: str, style: Style, x: int) -> None:
    room = canvas.width - x - 1
    if room < 1:
        return
    every = wrapped(text, room)
    for offset, line in enumerate(every[: canvas.height - y]):
        is_last = y + offset == canvas.height - 1 and offset < len(every) - 1
        canvas.text(x, y + offset, line[: room - 1] + "…" if is_last else line, style, width=room)


class Why(Panel):
    """The explanation."""

    DEFAULT_CSS = "Why { height: 4; }"

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.data = WhyData(design=None)

    def show(self, data: WhyData) -> None:
        """Explain another answer."""
        self.data = data
        self.redraw()

    def draw(self, width: int, height: int) -> list[Strip]:
        """Return the explanation's strips."""
        return render(width, height, self.look.theme, self.look.symbols, self.data)
