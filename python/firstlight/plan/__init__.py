"""Plans: the best mix and policy under power, service level, space and price; what binds next.

The room is callable: ``fl.plan(scenario)`` is `firstlight.plan.plan`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firstlight.plan.lab import Sheet, sheet
    from firstlight.plan.run import Plan, plan

_HOME = {"Plan": "run", "plan": "run", "Sheet": "lab", "sheet": "lab"}

__all__ = ["Plan", "Sheet", "plan", "sheet"]


class _Room(ModuleType):
    """A module that can be called, so that `fl.plan` is both the room and the work."""

    def __call__(self, *arguments: Any, **keywords: Any) -> Plan:  # noqa: ANN401
        """Run `plan`."""
        work = import_module("firstlight.plan.run").plan
        planned: Plan = work(*arguments, **keywords)
        return planned


def __getattr__(name: str) -> Any:  # noqa: ANN401  # any public object of the room
    if name in _HOME:
        return getattr(import_module(f"firstlight.plan.{_HOME[name]}"), name)
    msg = f"module 'firstlight.plan' has no attribute {name!r}"
    raise AttributeError(msg)


sys.modules[__name__].__class__ = _Room
