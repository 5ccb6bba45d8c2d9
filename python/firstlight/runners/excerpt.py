"""Values from a file that is not trusted, cut short for a message of one line."""

from __future__ import annotations

import reprlib

_LIMITS = reprlib.Repr()
_LIMITS.maxstring = _LIMITS.maxother = 80


def excerpt(value: object) -> str:
    """Return ``value`` as code would write it, on one line and never long.

    Lists are cut after a few items and nesting after a few levels, so that neither the length nor
    the depth of what a file holds gets into a message.
    """
    return " ".join(_LIMITS.repr(value).split())
