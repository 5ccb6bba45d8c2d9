"""The question: a model, its traffic, a service level, a power budget, and designs to compare.

`Scenario` is one frozen record, read from TOML, checked once, and never changed: `replace` makes a
new one. Every default comes from the catalog's assumptions, with a source or marked assumed.
"""

from __future__ import annotations

from firstlight.scenario.parts import (
    Assumed,
    Design,
    Facility,
    Policy,
    Pool,
    Precision,
    Slo,
    Table,
    Workload,
)
from firstlight.scenario.record import Scenario

__all__ = [
    "Assumed", "Design", "Facility", "Policy", "Pool", "Precision", "Scenario", "Slo", "Table",
    "Workload",
]  # fmt: skip
