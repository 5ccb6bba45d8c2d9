"""The exceptions of firstlight. A message says what was wrong, where, and what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
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


def written(value: object) -> str:
    """Return a value as a user of files and commands would write it, never as Python does.

    Args:
        value: What was given.
    """
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return repr(value)
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(float(value))
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key(key)} = {written(item)}" for key, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list | tuple | set | frozenset):
        return f"[{', '.join(written(item) for item in value)}]"
    return " ".join(str(value).split())


def _key(key: object) -> str:
    return key if isinstance(key, str) and key.isidentifier() else repr(key)


MOST_NAMED = 12
"""A list of allowed names is written out up to this length."""


def choices(name: str, allowed: Iterable[str], *, see: str = "") -> str:
    """Return what may be given instead of an unknown name: the nearest, or the allowed names.

    Args:
        name: What was given.
        allowed: Every accepted name.
        see: What prints the names where they are many, such as "firstlight catalog list".
    """
    names = list(allowed)
    hint = nearest(name, names)
    if hint:
        return hint
    if len(names) <= MOST_NAMED:
        return f"; allowed: {', '.join(names)}"
    where = f"; {see!r} names them" if see else ""
    return f"; {len(names)} are allowed, such as {', '.join(names[:3])}{where}"


CUTOFF = 0.5
SHORT, SHORT_CUTOFF = 4, 0.7
"""A short word is like many others, so more of it has to agree."""


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest allowed name, or ``""``.

    Args:
        name: What was given.
        allowed: Every accepted name.
    """
    names = list(allowed)
    # what was begun right is meant, however long the rest
    begun = [other for other in names if name and other.startswith(name)]
    close = sorted(begun, key=len) or difflib.get_close_matches(
        name, names, n=1, cutoff=SHORT_CUTOFF if len(name) <= SHORT else CUTOFF
    )
    return f"; did you mean {close[0]!r}?" if close else ""
