"""What a comparison has to solve: its designs, the ends of a band, the same on other silicon."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from firstlight.evaluate import servers

if TYPE_CHECKING:
    from collections.abc import Callable

    from firstlight.evaluate.question import Question
    from firstlight.evaluate.search import DesignPlan
    from firstlight.scenario import Design

SILICON = (("h100-sxm-8x", "fp8"), ("b200-8x", "nvfp4"))
"""Ratios are given on these: server and format of the weights."""


@dataclass(frozen=True, slots=True)
class Key:
    """One thing to solve: a design, with some of its hardware swapped."""

    design: str
    optical: str | None = None
    gpu: str | None = None
    weights: str | None = None

    def __str__(self) -> str:
        """Return it in words."""
        return " ".join(filter(None, (self.design, self.optical, self.gpu)))


class Pieces:
    """The designs of a question, and which of them is which.

    Args:
        asked: The question.
        compared: Whether bands and other silicon are wanted beside the designs themselves.
        ratios: Whether other silicon is wanted at all.

    Attributes:
        specs: The designs by name.
        colocated: The first design that does both phases in one pool.
        split: The first with two pools of GPUs.
        optical: The first that prefills with light.
    """

    def __init__(self, asked: Question, *, compared: bool, ratios: bool = True) -> None:
        self._asked = asked
        self._compared = compared
        self._ratios = ratios
        self.specs = {spec.name: spec for spec in asked.scenario.designs}
        self.colocated = self._first(lambda spec: len(spec.pools) == 1)
        self.optical = self._first(_is_optical)
        self.split = self._first(lambda spec: len(spec.pools) > 1 and not _is_optical(spec))

    def _first(self, wanted: Callable[[Design], bool]) -> str | None:
        return next((name for name, spec in self.specs.items() if wanted(spec)), None)

    @property
    def triple(self) -> tuple[str, str, str] | None:
        """Colocated, disaggregated and optical design, when there are all three."""
        if self.colocated is None or self.split is None or self.optical is None:
            return None
        return self.colocated, self.split, self.optical

    @property
    def band(self) -> tuple[str, str] | None:
        """Conservative and optimistic server of the optical design."""
        if self.optical is None or not self._compared:
            return None
        return next((pool.band for pool in self.specs[self.optical].pools if pool.band), None)

    @cached_property
    def silicon(self) -> tuple[str, str] | None:
        """GPU server and format of the weights, when all designs share them."""
        scenario = self._asked.scenario
        used = {
            (pool.server, scenario.precision_of(spec).weights)
            for spec in self.specs.values()
            for pool in spec.pools
            if not servers.is_optical(pool.server)
        }
        return used.pop() if len(used) == 1 else None

    def end(self, server: str) -> Key:
        """Return the key of one end of the band; the end the design names is the design itself."""
        name = self.optical or ""
        named = any(pool.server == server for pool in self.specs[name].pools)
        return Key(name) if named else Key(name, optical=server)

    def on(self, name: str, silicon: tuple[str, str]) -> Key:
        """Return the key of a design on some silicon."""
        if silicon == self.silicon:
            return Key(name)
        gpu, weights = silicon
        return Key(name, gpu=gpu, weights=weights)

    def plans(self) -> dict[Key, DesignPlan]:
        """Return everything to solve, each thing once.

        Raises:
            ScenarioError: A design cannot be simulated.
        """
        keys = [Key(name) for name in self.specs]
        keys += [self.end(server) for server in self.band or ()]
        if self._compared and self._ratios and self.triple is not None:
            keys += [self.on(name, silicon) for silicon in SILICON for name in self.triple]
        return {
            key: self._asked.plan(
                self.specs[key.design], optical=key.optical, gpu=key.gpu, weights=key.weights
            )
            for key in dict.fromkeys(keys)
        }


def _is_optical(spec: Design) -> bool:
    return any(servers.is_optical(pool.server) for pool in spec.pools)
