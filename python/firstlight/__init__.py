"""What LLM inference gains when prefill runs on light and decode on silicon.

Public names are loaded when first used, so that `import firstlight` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firstlight.errors import FirstlightError
    from firstlight.scenario import Scenario

_HOME = {
    "FirstlightError": "firstlight.errors",
    "Scenario": "firstlight.scenario",
}

__all__ = ["FirstlightError", "Scenario"]


def __getattr__(name: str) -> Any:  # noqa: ANN401  # any public object of the package
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name == "__version__":
        return import_module("firstlight._core").__version__
    msg = f"module 'firstlight' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
