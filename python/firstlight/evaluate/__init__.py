"""The only composer: a scenario in, an answer out. Command line, screens and sweeps all call it."""

from __future__ import annotations

from firstlight.evaluate.answer import Comparison, Design
from firstlight.evaluate.compare import compare

__all__ = ["Comparison", "Design", "compare"]
