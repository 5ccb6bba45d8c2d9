"""Which control moves the optical design's metric most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

from firstlight.tui.canvas import Canvas, cells
from firstlight.tui.symbols import Symbols, plain
from firstlight.tui.theme import Ink, Theme
from firstlight.tui.widgets.panel import Panel

if TYPE_CHECKING:
    from textual import events
    from textual.strip import Strip


@dataclass(frozen=True, slots=True, kw_only=True)
class Blade:
    """One control.

    Attributes:
        key: Field.
        label: Its name and the ends that were tried.
        low: Relative change at the lower end, None when that is impossible.
        high: Relative change at the upper end, None when that is impossible.
    """

    key: str
    label: str
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TornadoData:
    """What the tornado shows.

    Attributes:
        title: Metric and direction.
        blades: The widest first.
        is_more_better: Direction of the metric.
        is_stale: Whether it belongs to an earlier scenario.
    """

    title: str
    blades: tuple[Blade, ...]
    is_more_better: bool
    is_stale: bool = False


def render(
    width: int, height: int, theme: Theme, symbols: Symbols, data: TornadoData
) -> list[Strip]:
    """Return the strips of the tornado.

    Args:
        width: Cells across.
        height: Rows: heading, then one a control.
        theme: Colours.
        symbols: Glyphs.
        data: What to show.
    """
    canvas = Canvas(width, height, theme.style())
    if width < 2 or height < 1:
        return canvas.strips()
    canvas.text(1, 0, plain(data.title, symbols), theme.style(Ink.TITLE), width=width - 1)
    shown = data.blades[: max(height - 1, 0)]
    label = min(max((cells(b.label) for b in shown), default=0) + 2, max(width * 5 // 10, 4))
    numbers = 12 if width >= 34 else 0
    half = (width - label - numbers - 2) // 2
    reach = max((abs(c) for b in shown for c in (b.low, b.high) if c is not None), default=0.0)
    for y, blade in enumerate(shown, start=1):
        text = plain(blade.label, symbols)
        canvas.text(1, y, text, theme.style(), width=max(label - 2, 0))
        if half >= 2:
            center = label + half
            for change in sorted(
                (c for c in (blade.low, blade.high) if c is not None), key=abs, reverse=True
            ):
                _arm(canvas, y, theme, symbols, data, center, half, change, reach)
            canvas.text(center, y, symbols.bar, theme.style(Ink.DIM))
        if numbers:
            said = f"{_percent(blade.low)}/{_percent(blade.high)}"
            canvas.right(width - 1, y, plain(said, symbols), theme.style(Ink.DIM), width=numbers)
    return canvas.strips()


def _percent(change: float | None) -> str:
    if change is None:
        return "?"
    if abs(change) >= 10:
        return f"{change + 1:+.2g}x"
    percent = change * 100
    return f"{percent:+.0f}%" if abs(percent) >= 0.5 else "0%"


def _arm(
    canvas: Canvas,
    y: int,
    theme: Theme,
    symbols: Symbols,
    data: TornadoData,
    center: int,
    half: int,
    change: float,
    reach: float,
) -> None:
    # Very long arms would hide the others: the scale is the widest blade, at most ×3.
    scale = min(reach, 2.0) or 1.0
    size = min(round(min(abs(change), scale) / scale * half), half)
    if size == 0:
        return
    is_gain = (change > 0) == data.is_more_better
    style = theme.style(Ink.FAINT if data.is_stale else Ink.GAIN if is_gain else Ink.LOSS)
    # A gain is a solid arm, a loss a thin one, whatever the colours.
    glyph = symbols.line if is_gain else symbols.track
    if change > 0:
        canvas.fill(center + 1, y, size, 1, style, glyph=glyph)
        canvas.text(center + size, y, symbols.right, style)
    else:
        canvas.fill(center - size, y, size, 1, style, glyph=glyph)
        canvas.text(center - size, y, symbols.left, style)


class TornadoChart(Panel):
    """The tornado; a click goes to the control."""

    class Chosen(Message):
        """A control was clicked."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.data: TornadoData | None = None

    def show(self, data: TornadoData) -> None:
        """Show other swings."""
        self.data = data
        self.redraw()

    def draw(self, width: int, height: int) -> list[Strip]:
        """Return the tornado's strips."""
        if self.data is None:
            return Canvas(width, height, self.look.theme.style()).strips()
        return render(width, height, self.look.theme, self.look.symbols, self.data)

    def on_click(self, event: events.Click) -> None:
        """Go to the control under the pointer."""
        if self.data and 0 < event.y <= len(self.data.blades):
            self.post_message(self.Chosen(self.data.blades[event.y - 1].key))
