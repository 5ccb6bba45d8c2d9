"""A page of text to read: help, a citation, an error's detail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

if TYPE_CHECKING:
    from typing import ClassVar

    from textual.app import ComposeResult


class Page(ModalScreen[None]):
    """Shows text until a key is pressed."""

    DEFAULT_CSS = """
    Page { align: center middle; background: $background 60%; }
    Page VerticalScroll {
        width: 90%; max-width: 100; height: auto; max-height: 90%;
        border: round $primary; background: $panel; padding: 0 1;
    }
    Page Static { height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,question_mark,f1,c", "leave", "back"),
        Binding("j,down", "scroll(1)", "down"),
        Binding("k,up", "scroll(-1)", "up"),
    ]

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title, self._text = title, text

    def compose(self) -> ComposeResult:
        """Lay out the text."""
        with VerticalScroll() as box:
            box.border_title = self._title
            box.border_subtitle = "Esc back"
            yield Static(self._text, markup=False)

    def action_scroll(self, rows: int) -> None:
        """Scroll the text."""
        self.query_one(VerticalScroll).scroll_relative(y=rows, animate=False)

    def action_leave(self) -> None:
        """Close; a second click or key that was under way finds it closed."""
        if self.is_current:
            self.dismiss(None)

    def on_click(self) -> None:
        """Close."""
        self.action_leave()


def help_text(keys: list[tuple[str, str]], control: str, letters: str) -> str:
    """Return the help page.

    Args:
        keys: (keys, words).
        control: The sentence about the selected control.
        letters: Key to the provenance letters.
    """
    wide = max(len(key) for key, _ in keys) + 2
    lines = [control, "", "Letters beside numbers: " + letters, ""]
    lines += [f"{key:<{wide}}{words}" for key, words in keys]
    lines += [
        "",
        "Mouse: drag or wheel a slider, click a metric, drag in the chart, click the map twice.",
        "≈ stands before every number that is not yet from the full simulation.",
    ]
    return "\n".join(lines)
