"""The first and the last row: tabs and state above, keys or a message below."""

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

TABS = ("explore", "compare", "map", "timeline", "claims")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopData:
    """What the first row shows.

    Attributes:
        tab: The open tab.
        summary: The scenario in a few words.
        state: Tier, seconds and flags at the right.
        is_final: Whether the numbers are from the full simulation.
    """

    tab: str
    summary: str = ""
    state: str = ""
    is_final: bool = False


def top_spans(width: int) -> list[tuple[int, int, str]]:
    """Return (start, end, tab) of each tab's name; short names where there is no room."""
    x = 13 if width >= 60 else 0
    length = 99 if width >= 96 else 3 if width >= 40 else 0
    spans = []
    for number, tab in enumerate(TABS, start=1):
        size = len(f" {number} {tab[:length]} ") if length else 3
        spans.append((x, x + size, tab))
        x += size
    return spans


def render_top(
    width: int, height: int, theme: Theme, symbols: Symbols, data: TopData
) -> list[Strip]:
    """Return the strips of the first row."""
    canvas = Canvas(width, height, theme.style(on=Ink.BAR))
    if width >= 60:
        canvas.text(0, 0, " firstlight ", theme.style(Ink.ACCENT, Ink.BAR, bold=True))
    for number, (start, end, tab) in enumerate(top_spans(width), start=1):
        is_open = tab == data.tab
        on = Ink.GROUND if is_open and not theme.is_mono else Ink.BAR
        name = f" {number} {tab}"[: end - start - 1] + " "
        style = theme.style(Ink.TITLE if is_open else Ink.DIM, on, bold=is_open)
        canvas.text(start, 0, name, style)
        if is_open and theme.is_mono:
            canvas.text(start, 0, ">", theme.style(Ink.TITLE, on))
    ink = Ink.GAIN if data.is_final else Ink.ACCENT
    end = max((stop for _, stop, _ in top_spans(width)), default=0)
    state = plain(data.state, symbols)
    x = canvas.right(width - 1, 0, state, theme.style(ink, Ink.BAR), width=max(width - end - 2, 0))
    room = x - end - 3
    if room >= 8:
        text = plain(data.summary, symbols)
        canvas.right(x - 2, 0, text, theme.style(Ink.DIM, Ink.BAR), width=room)
    return canvas.strips()


class TopBar(Panel):
    """The first row; a click opens a tab."""

    DEFAULT_CSS = "TopBar { height: 1; dock: top; }"

    class Opened(Message):
        """A tab was clicked."""

        def __init__(self, tab: str) -> None:
            super().__init__()
            self.tab = tab

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.data = TopData(tab=TABS[0])

    def show(self, data: TopData) -> None:
        """Show another state."""
        self.data = data
        self.redraw()

    def draw(self, width: int, height: int) -> list[Strip]:
        """Return the row."""
        return render_top(width, height, self.look.theme, self.look.symbols, self.data)

    def on_click(self, event: events.Click) -> None:
        """Open the tab under the pointer."""
        for start, end, tab in top_spans(self.size.width):
            if start <= event.x < end:
                self.post_message(self.Opened(tab))


@dataclass(frozen=True, slots=True, kw_only=True)
class BottomData:
    """What the last row shows.

    Attributes:
        keys: (key, word, action) of what matters now.
        message: Shown instead, "" for none.
        is_error: Whether the message is an error.
    """

    keys: tuple[tuple[str, str, str], ...]
    message: str = ""
    is_error: bool = False


def bottom_spans(width: int, data: BottomData) -> list[tuple[int, int, str]]:
    """Return (start, end, action) of each key that fits."""
    x, spans = 1, []
    for key, word, action in data.keys:
        size = cells(key) + 1 + cells(word)
        if x + size > width:
            break
        spans.append((x, x + size, action))
        x += size + 2
    return spans


def render_bottom(
    width: int, height: int, theme: Theme, symbols: Symbols, data: BottomData
) -> list[Strip]:
    """Return the strips of the last row."""
    canvas = Canvas(width, height, theme.style(on=Ink.BAR))
    if data.message:
        ink = Ink.ERROR if data.is_error else Ink.TEXT
        sign = "! " if data.is_error else ""
        text = plain(sign + data.message, symbols)
        canvas.text(1, 0, text, theme.style(ink, Ink.BAR), width=max(width - 1, 0))
        return canvas.strips()
    for (start, _, _), (key, word, _) in zip(bottom_spans(width, data), data.keys, strict=False):
        x = canvas.text(start, 0, plain(key, symbols), theme.style(Ink.ACCENT, Ink.BAR, bold=True))
        canvas.text(x + 1, 0, plain(word, symbols), theme.style(Ink.TEXT, Ink.BAR))
    return canvas.strips()


class BottomBar(Panel):
    """The last row; a click on a key does what it says."""

    DEFAULT_CSS = "BottomBar { height: 1; dock: bottom; }"

    class Pressed(Message):
        """A key of the row was clicked."""

        def __init__(self, action: str) -> None:
            super().__init__()
            self.action = action

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.data = BottomData(keys=())

    def show(self, data: BottomData) -> None:
        """Show other keys or a message."""
        self.data = data
        self.redraw()

    def draw(self, width: int, height: int) -> list[Strip]:
        """Return the row."""
        return render_bottom(width, height, self.look.theme, self.look.symbols, self.data)

    def on_click(self, event: events.Click) -> None:
        """Do what the key under the pointer does."""
        for start, end, action in bottom_spans(self.size.width, self.data):
            if start <= event.x < end and not self.data.message:
                self.post_message(self.Pressed(action))
