"""Libraries a sweep can do without: imported where they are used, named where they are missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from firstlight.errors import ScenarioError


def library(module: str, *, extra: str, what: str) -> Any:  # noqa: ANN401  # any module
    """Return a library of an extra.

    Args:
        module: What to import.
        extra: The extra of firstlight that installs it.
        what: What needs it.

    Raises:
        ScenarioError: It is not installed.
    """
    try:
        return import_module(module)
    except ImportError:
        name = module.partition(".")[0]
        raise ScenarioError(f"{what} needs {name}: pip install 'firstlight[{extra}]'") from None
