"""What LLM inference gains when prefill runs on light and decode on silicon.

Public names are loaded when first used, so that `import firstlight` costs nothing.

Example:
    >>> import firstlight as fl
    >>> scenario = fl.Scenario.default().replace(power_w="2 MW")
    >>> answer = fl.compare(scenario)  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firstlight import (
        catalog,
        claims,
        cost,
        errors,
        models,
        optics,
        plan,
        report,
        roofline,
        schedule,
        sweep,
        units,
        workload,
    )
    from firstlight.errors import FirstlightError
    from firstlight.evaluate.answer import Comparison
    from firstlight.evaluate.compare import compare
    from firstlight.scenario import Scenario

_HOME = {
    "Comparison": "firstlight.evaluate",
    "FirstlightError": "firstlight.errors",
    "Scenario": "firstlight.scenario",
    "compare": "firstlight.evaluate",
}
"""Public name -> the module that holds it."""

_ROOMS = (
    "catalog", "claims", "cost", "errors", "models", "optics", "plan", "report", "roofline", "schedule",
    "sweep", "units", "workload",
)  # fmt: skip

__all__ = [
    "Comparison", "FirstlightError", "Scenario", "catalog", "claims", "compare", "cost", "errors",
    "models", "optics", "plan", "report", "roofline", "schedule", "sweep", "units", "workload",
]  # fmt: skip


def __getattr__(name: str) -> Any:  # noqa: ANN401  # any public object of the package
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in _ROOMS:
        return import_module(f"firstlight.{name}")
    if name == "__version__":
        return import_module("firstlight._core").__version__
    msg = f"module 'firstlight' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_ROOMS, "__version__"})
