"""A table with a selection, moved by keys and clicks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from textual.message import Message

from firstlight.tui.widgets import text_table
from firstlight.tui.widgets.panel import Panel
from firstlight.tui.widgets.text_table import TableData

if TYPE_CHECKING:
    from textual import events
    from textual.strip import Strip


class Listing(Panel, can_focus=True):
    """A table that keeps its selection in sight."""

    class Moved(Message):
        """Another row is selected."""

        def __init__(self, listing: Listing, index: int) -> None:
            super().__init__()
            self.listing = listing
            self.index = index

    class Chosen(Message):
        """The selected row was clicked again."""

        def __init__(self, listing: Listing, index: int) -> None:
            super().__init__()
            self.listing = listing
            self.index = index

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.data = TableData(rows=())
        self._first = 0

    def show(self, data: TableData) -> None:
        """Show another table."""
        self.data = data
        self.redraw()

    @property
    def _head(self) -> int:
        return bool(self.data.title) + bool(self.data.head)

    def draw(self, width: int, height: int) -> list[Strip]:
        """Return the table's strips."""
        room = max(height - self._head, 1)
        if self.data.selected >= 0:
            self._first = max(min(self._first, self.data.selected), self.data.selected - room + 1)
        self._first = max(min(self._first, len(self.data.rows) - room), 0)
        data = replace(self.data, first=self._first)
        return text_table.render(width, height, self.look.theme, self.look.symbols, data)

    def step(self, rows: int) -> None:
        """Select a neighbour, or scroll a table without selection."""
        if self.data.selected < 0:
            self._first += rows
            self.redraw()
            return
        index = min(max(self.data.selected + rows, 0), max(len(self.data.rows) - 1, 0))
        # The next key may come before the answer to this message.
        self.data = replace(self.data, selected=index)
        self.post_message(self.Moved(self, index))

    def on_click(self, event: events.Click) -> None:
        """Select the row under the pointer; a click on the selected one chooses it."""
        index = event.y - self._head + self._first
        if not 0 <= index < len(self.data.rows) or self.data.selected < 0:
            return
        kind = self.Chosen if index == self.data.selected else self.Moved
        self.post_message(kind(self, index))

    def on_mouse_scroll_up(self) -> None:
        """Go up."""
        self.step(-1)

    def on_mouse_scroll_down(self) -> None:
        """Go down."""
        self.step(1)
