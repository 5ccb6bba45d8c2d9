"""What reaches the screen from the engine's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from firstlight.tui.engine import Report


class Reported(Message):
    """The engine found something; a newer report of the same kind replaces a waiting one."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self.report = report

    def can_replace(self, message: Message) -> bool:
        """Return whether this report makes the other needless."""
        return isinstance(message, Reported) and type(message.report) is type(self.report)
