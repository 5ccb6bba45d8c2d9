"""Whether the terminal is still there."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO


def is_gone(stream: TextIO | None) -> bool:
    """Return whether the other end of a terminal has been closed.

    Args:
        stream: The terminal's input, or None where there is none.
    """
    if stream is None or stream.closed:
        return True
    poller = select.poll()
    poller.register(stream.fileno(), 0)
    gone = select.POLLHUP | select.POLLERR | select.POLLNVAL
    return any(event & gone for _, event in poller.poll(0))
