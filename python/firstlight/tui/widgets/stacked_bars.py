"""Energy per request by part, one bar a design; the letters repeat what the colours say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from firstlight.tui.canvas import Canvas, cells
from firstlight.tui.number import si, written
from firstlight.tui.symbols import Symbols, plain
from firstlight.tui.theme import Ink, Theme
from firstlight.tui.widgets.panel import Panel

if TYPE_CHECKING:
    from textual.strip import Strip


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One design's parts.

    Attributes:
        label: Design.
        index: Design, for its mark and colour.
        parts: Amount of each part, in the order of the key.
    """

    label: str
    index: int
    parts: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StackedBarsData:
    """What the bars show.

    Attributes:
        title: Heading.
        unit: Unit of the amounts.
        key: (label, letter) of each part.
        bars: The designs.
        is_stale: Whether they belong to an earlier scenario.
    """

    title: str
    unit: str
    key: tuple[tuple[str, str], ...]
    bars: tuple[Bar, ...]
    is_stale: bool = False


def lengths(parts: tuple[float, ...], room: int, longest: float) -> list[int]:
    """Return the cells of each part; they sum to the rounded whole.

    Args:
        parts: Amounts, not negative.
        room: Cells of the longest bar.
        longest: Amount of the longest bar.
    """
    ends, total = [], 0.0
    for part in parts:
        total += part
        ends.append(round(total / longest * room) if longest > 0 else 0)
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def render(
    width: int, height: int, theme: Theme, symbols: Symbols, data: StackedBarsData
) -> list[Strip]:
    """Return the strips of the bars.

    Args:
        width: Cells across.
        height: Rows: heading, one a design, key.
        theme: Colours.
        symbols: Glyphs.
        data: What to show.
    """
    canvas = Canvas(width, height, theme.style())
    if height <= 0 or width <= 0:
        return canvas.strips()
    end = canvas.text(1, 0, plain(data.title, symbols), theme.style(Ink.TITLE), width=width - 1)
    longest = max((sum(bar.parts) for bar in data.bars), default=0.0)
    label = min(max((cells(bar.label) for bar in data.bars), default=0) + 4, max(width // 3, 1))
    room = max(width - label - 9, 1)
    present = [i for i in range(len(data.key)) if any(bar.parts[i] > 0 for bar in data.bars)]
    _key(canvas, theme, symbols, data, present, end + 3)
    for y, bar in enumerate(data.bars, start=1):
        style = theme.style(Ink.FAINT) if data.is_stale else theme.design(bar.index)
        text = plain(f"{symbols.mark(bar.index)} {bar.label}", symbols)
        canvas.text(1, y, text, style, width=max(label - 2, 0))
        x = label
        sizes = lengths(bar.parts, room, longest)
        for i, size in enumerate(sizes):
            x = _part(canvas, x, y, theme, data, bar, i, size)
        total = plain(written(sum(bar.parts), data.unit), symbols)
        canvas.text(x + 1, y, total, theme.style(Ink.TEXT, bold=True))
    return canvas.strips()


def _part(
    canvas: Canvas,
    x: int,
    y: int,
    theme: Theme,
    data: StackedBarsData,
    bar: Bar,
    index: int,
    size: int,
) -> int:
    if size <= 0:
        return x
    name, letter = data.key[index]
    style = theme.style(Ink.DIM, Ink.BAR) if data.is_stale else theme.part(index)
    canvas.fill(x, y, size, 1, style)
    amount = si(bar.parts[index])
    for text in (f"{name} {amount}", amount if size > 12 else name, letter):
        if cells(text) + 2 <= size or (text == letter and size >= 1):
            canvas.text(x + (1 if size > 2 else 0), y, text, style, width=size)
            break
    return x + size


def _key(
    canvas: Canvas,
    theme: Theme,
    symbols: Symbols,
    data: StackedBarsData,
    present: list[int],
    start: int,
) -> None:
    need = sum(cells(data.key[i][0]) + 4 for i in present)
    is_beside = start + need <= canvas.width
    x = canvas.width - need if is_beside else 1
    y = 0 if is_beside else len(data.bars) + 1
    for i in present:
        name, letter = data.key[i]
        x = canvas.text(x, y, letter, theme.part(i))
        x = canvas.text(x + 1, y, plain(name, symbols), theme.style(Ink.DIM)) + 2


class StackedBars(Panel):
    """The bars."""

    DEFAULT_CSS = "StackedBars { height: 5; }"

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.data: StackedBarsData | None = None

    def show(self, data: StackedBarsData) -> None:
        """Show other bars."""
        self.data = data
        self.redraw()

    def draw(self, width: int, height: int) -> list[Strip]:
        """Return the bars' strips."""
        if self.data is None:
            return Canvas(width, height, self.look.theme.style()).strips()
        return render(width, height, self.look.theme, self.look.symbols, self.data)
