"""What is tried on the found cells beside solving them: more of a resource, other bursts.

These hang on the sample alone, so they are worked on while the whole time is being drawn.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from firstlight.evaluate import binding, capacity, search
from firstlight.evaluate.answer import Binding, Bursts

if TYPE_CHECKING:
    from collections.abc import Callable

    from firstlight.evaluate.capacity import Traffic
    from firstlight.evaluate.crew import Crew
    from firstlight.evaluate.question import Question
    from firstlight.evaluate.search import Found

CORRELATIONS_S = (0.0, math.inf)
"""Bursts of all copies together, and apart."""
MORE_THAN_SAMPLE = 1.5
"""How much more than the sample a cell may carry when bursts do not coincide."""
FIRST_STEP_FRAC = 0.05


class Tried:
    """Trials on each design's cell.

    Args:
        asked: The question.
        founds: The designs' cells by name.
        sample: The traffic they were found on.
        crew: Who works.
        binding: Whether to find what binds.
        bursts: Whether to find what other bursts would do.
    """

    def __init__(
        self,
        asked: Question,
        *,
        founds: dict[str, Found],
        sample: Traffic,
        crew: Crew,
        binding: bool,
        bursts: bool,
    ) -> None:
        self._asked = asked
        self._founds = founds
        self._sample = sample
        self._crew = crew
        self._variants = self._all_variants() if binding else {}
        self._correlations_s = CORRELATIONS_S if bursts and founds else ()
        self._edges: dict[tuple[str, int], float] = {}
        self._traffic: dict[float, Traffic] = {}

    def _all_variants(self) -> dict[str, list[binding.Variant]]:
        return {
            name: binding.variants(found.cell, self._asked.slo)
            for name, found in self._founds.items()
        }

    def prepare(self, whole: Callable[[], Traffic]) -> Traffic:
        """Return the whole time, having tried meanwhile what can be.

        Args:
            whole: Draws it.
        """
        drawn: list[Traffic] = []
        works: dict[object, Callable[[], object]] = {"whole": lambda: drawn.append(whole())}
        for name, variants in self._variants.items():
            works |= {(name, at): partial(self._edge, name, at) for at in range(len(variants))}
        works |= {at: partial(self._draw, at) for at in self._correlations_s}
        self._crew.run(works)
        return drawn[0]

    def _edge(self, name: str, at: int) -> None:
        self._edges[name, at] = binding.edge(
            self._variants[name][at],
            traffic=self._sample,
            rate_request_per_s=self._founds[name].rate_request_per_s,
            cancelled=self._crew.cancelled,
        )

    def _draw(self, correlation_s: float) -> None:
        most = MORE_THAN_SAMPLE * max(found.rate_request_per_s for found in self._founds.values())
        self._traffic[correlation_s] = self._asked.correlated(
            self._sample, most=most, correlation_s=correlation_s
        )

    def binding(self, name: str) -> Binding | None:
        """Return what binds a design."""
        variants = self._variants.get(name)
        if variants is None:
            return None
        return binding.conclude(variants, [self._edges[name, at] for at in range(len(variants))])

    def bursts(self, goodput_request_per_s: dict[str, float]) -> dict[str, Bursts]:
        """Return what each design carries when bursts coincide and when they do not.

        Args:
            goodput_request_per_s: What each carries as asked [request/s].
        """
        works = {
            (name, at): partial(self._carried, name, at)
            for name in self._founds
            for at in self._correlations_s
        }
        if not works:
            return {}
        carried = self._crew.run(works)

        def bursts(name: str) -> Bursts:
            # The sample gives the ratios, the whole time what they are ratios of.
            whole = goodput_request_per_s[name]
            together, apart = (carried[name, at] for at in CORRELATIONS_S)
            return Bursts(
                synchronised_request_per_s=whole * together,
                as_asked_request_per_s=whole,
                independent_request_per_s=whole * apart,
            )

        return {name: bursts(name) for name in self._founds}

    def _carried(self, name: str, correlation_s: float) -> float:
        """Return what a cell carries over what it carries on the sample."""
        found = self._founds[name]
        run = capacity.search(
            found.cell.fleet,
            self._traffic[correlation_s],
            slo=self._asked.slo,
            guess_request_per_s=found.rate_request_per_s,
            tolerance_frac=search.COARSE_TOLERANCE_FRAC,
            first_step_frac=FIRST_STEP_FRAC,
            cancelled=self._crew.cancelled,
        )
        return run.rate_request_per_s / found.rate_request_per_s if run else 0.0
