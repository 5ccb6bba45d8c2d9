"""The same screen without a terminal: one answer, printed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from firstlight.tui import engine, export
from firstlight.tui.answer import Tier
from firstlight.tui.metric import METRICS, Metric
from firstlight.tui.present import Known

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from firstlight.tui.solver import Solver
    from firstlight.tui.state import Setup

FORMATS: Mapping[str, Callable[[Known], str]] = {
    "text": export.as_text,
    "md": export.as_markdown,
    "json": export.as_json,
    "csv": export.as_csv,
}
"""What `--print` may say."""


class _Never:
    """A cancel flag nobody sets."""

    is_set = False

    def note(self, done: int, total: int, what: str) -> None:
        """Say nothing."""

    def work(self) -> bool:
        """Do nothing else."""
        return False


def answered(solver: Solver, setup: Setup, *, metric: Metric = METRICS[5]) -> Known:
    """Return the fullest answer to a setup, with its curve where the solver has a closed form.

    Args:
        solver: What calculates.
        setup: What the controls say.
        metric: Metric of the curve.

    Raises:
        FirstlightError: The scenario is impossible.
    """
    begin = time.perf_counter()
    answer = engine.solve(solver, setup, max(solver.tiers), _Never())
    seconds = time.perf_counter() - begin
    curve = None
    if Tier.ANALYTIC in solver.tiers:
        curve = engine.whole_curve(solver, setup, "context_tok")
    return Known(
        setup=setup, home=setup, metric=metric, answer=answer, seconds=seconds, curve=curve
    )
