"""Sweeps: grids and samples over any field, resumable, on cores or a cluster; and what is uncertain.

The room is callable: ``fl.sweep(scenario, over={"power_w": "1e5..1e7:log:9"})`` is
`firstlight.sweep.sweep`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firstlight.sweep.draws import Uncertainty, uncertainty, undisclosed
    from firstlight.sweep.run import Swept, sweep

_HOME = {
    "Swept": "run", "sweep": "run",
    "Uncertainty": "draws", "uncertainty": "draws", "undisclosed": "draws",
}  # fmt: skip

__all__ = ["Swept", "Uncertainty", "sweep", "uncertainty", "undisclosed"]


class _Room(ModuleType):
    """A module that can be called, so that `fl.sweep` is both the room and the work."""

    def __call__(self, *arguments: Any, **keywords: Any) -> Swept:  # noqa: ANN401
        """Run `sweep`."""
        work = import_module("firstlight.sweep.run").sweep
        swept: Swept = work(*arguments, **keywords)
        return swept


def __getattr__(name: str) -> Any:  # noqa: ANN401  # any public object of the room
    if name in _HOME:
        return getattr(import_module(f"firstlight.sweep.{_HOME[name]}"), name)
    msg = f"module 'firstlight.sweep' has no attribute {name!r}"
    raise AttributeError(msg)


sys.modules[__name__].__class__ = _Room
