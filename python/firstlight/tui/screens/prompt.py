"""One line to type into, at the bottom, with what is wrong said while typing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from firstlight.errors import FirstlightError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ClassVar

    from textual.app import ComposeResult


class Prompt(ModalScreen[str | None]):
    """Asks for a line; dismissed with it, or with None."""

    DEFAULT_CSS = """
    Prompt { align: left bottom; background: transparent; }
    Prompt Vertical { height: auto; background: $panel; }
    Prompt Static { height: auto; padding: 0 1; }
    Prompt Input { height: 1; border: none; padding: 0 1; background: $surface; }
    Prompt Input:focus { border: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "back")]

    def __init__(self, label: str, *, text: str, check: Callable[[str], str]) -> None:
        """Ask for a line.

        Args:
            label: What is asked.
            text: What stands there first.
            check: Returns what a text would do, or raises a FirstlightError.
        """
        super().__init__()
        self._label, self._text, self._check = label, text, check

    def compose(self) -> ComposeResult:
        """Lay out the label, the answer to what is typed, and the line."""
        with Vertical():
            yield Static(self._label, id="prompt-label", markup=False)
            yield Static("", id="prompt-said", markup=False)
            yield Input(self._text, id="prompt-line")

    def on_mount(self) -> None:
        """Give the line the keys."""
        self.query_one(Input).focus()

    def _say(self, text: str) -> tuple[str, bool]:
        if not text.strip():
            return "", False
        try:
            return self._check(text), True
        except FirstlightError as error:
            return f"! {error}", False

    def on_input_changed(self, event: Input.Changed) -> None:
        """Say what the text would do."""
        self.query_one("#prompt-said", Static).update(self._say(event.value)[0])

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the line when it can be used."""
        said, is_usable = self._say(event.value)
        if is_usable:
            self._leave(event.value)
        else:
            self.query_one("#prompt-said", Static).update(said or "! nothing was typed")

    def action_leave(self) -> None:
        """Close without a line."""
        self._leave(None)

    def _leave(self, line: str | None) -> None:
        # A second key that was under way finds it closed.
        if self.is_current:
            self.dismiss(line)
