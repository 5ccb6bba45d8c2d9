"""The exceptions of firstlight. A message says what was wrong, where, and what is allowed."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class FirstlightError(Exception):
    """Base of every error that is the caller's to mend. The CLI prints it in one line."""


class UnitError(FirstlightError):
    """A quantity cannot be read, or its unit has the wrong dimension."""


class CatalogError(FirstlightError):
    """A catalog record is unknown, incomplete or malformed."""


class ScenarioError(FirstlightError):
    """A scenario file or value is malformed or impossible."""


class ModelError(FirstlightError):
    """A model's shape is impossible, or it does not fit where it was put."""


class TraceError(FirstlightError):
    """A request trace is empty or malformed; the message names the row."""


class ScheduleError(FirstlightError):
    """A fleet or policy cannot be simulated."""


class InfeasibleError(FirstlightError):
    """The scenario is well formed but nothing can meet it (exit code 1)."""


class OutputError(FirstlightError):
    """A result cannot be written where it was asked for."""


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest allowed name, or ``""``.

    Args:
        name: What was given.
        allowed: Every accepted name.
    """
    names = list(allowed)
    # what was begun right is meant, however long the rest
    begun = [other for other in names if name and other.startswith(name)]
    close = sorted(begun, key=len) or difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""
