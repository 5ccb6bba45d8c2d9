"""Memory, asked for before it is taken."""

from __future__ import annotations

from pathlib import Path

from firstlight.errors import ModelError


def available_bytes() -> int | None:
    """Return the memory that can be taken without swapping [byte], or None where nobody tells."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def require_memory(needed_bytes: int, what: str) -> None:
    """Refuse what would not fit.

    Raises:
        ModelError: Less than ``needed_bytes`` are available.
    """
    available = available_bytes()
    if available is not None and needed_bytes > available:
        raise ModelError(
            f"{what} take {needed_bytes / 1e9:.1f} GB; {available / 1e9:.1f} GB are available"
        )
