"""Reads a scenario file: text, then TOML, each failure one line that names the file."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

from firstlight.errors import ScenarioError

if TYPE_CHECKING:
    from pathlib import Path

_MAX_FILE_BYTES = 1_000_000


def text(path: Path) -> str:
    """Return the text of a scenario file.

    Raises:
        ScenarioError: It cannot be read, is too large, empty, or no text.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(_MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ScenarioError(f"{path}: cannot be read: {why}") from None
    if len(content) > _MAX_FILE_BYTES:
        raise ScenarioError(f"{path}: larger than 1 MB; allowed: a scenario in TOML")
    try:
        # editors on Windows begin a file with a mark
        decoded = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ScenarioError(f"{path}: not UTF-8 text; allowed: a scenario in TOML") from None
    if not decoded.strip():
        raise ScenarioError(f"{path}: empty; allowed: a scenario in TOML")
    return decoded


def parsed(content: str, *, path: Path) -> dict[str, Any]:
    """Return the tables of a TOML text.

    Args:
        content: The text.
        path: Its file, for errors.

    Raises:
        ScenarioError: It is no TOML; names the line.
    """
    try:
        return tomllib.loads(content)
    except RecursionError:
        raise ScenarioError(f"{path}: nested too deeply; allowed: a scenario in TOML") from None
    except ValueError as error:
        message, _, place = str(error).rpartition(" (at ")
        line = place.removeprefix("line ").partition(",")[0].rstrip(")")
        at = (
            f"{path}:{line}"
            if line.isdigit()
            else f"{path}:{_lines(content)}"
            if message
            else str(path)
        )
        raise ScenarioError(f"{at}: not TOML: {message or error}") from None


def _lines(content: str) -> int:
    return max(1, content.count("\n"))
