"""What the claims are tested on: one scenario, its three designs, and the energy and money of each.

Everything is computed by the fast tier, on the same model, traffic, service level and power.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from firstlight.evaluate import servers
from firstlight.evaluate.analytic import Estimate, Point
from firstlight.evaluate.analytic.point import whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from firstlight.claims.record import Reading
    from firstlight.models import ModelShape
    from firstlight.optics import EngineSpec
    from firstlight.scenario import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Gains:
    """An optical design against GPU designs, in joules and dollars; each a ratio, above 1 is better.

    Attributes:
        prefill: Energy of the prompt, `gpu-disaggregated` over optical, at the facility.
        linear: The same for linear layers alone, at the boards above idle.
        decode: Energy of the answer, `gpu-disaggregated` over optical, at the facility.
        whole: Energy of a request, the better GPU design over optical, at the facility.
        whole_colocated: The same against `gpu-colocated`.
        cost: Cost of a request, the cheaper GPU design over optical.
        prefill_cost: Cost of the prompt, `gpu-disaggregated` over optical.
        prefill_share: Prompt's share of the energy of `gpu-disaggregated`.
        rho: Its energy of an output token over that of an uncached input token.
        ratio: Uncached input tokens per output token.
    """

    prefill: float
    linear: float
    decode: float
    whole: float
    whole_colocated: float
    cost: float
    prefill_cost: float
    prefill_share: float
    rho: float
    ratio: float


class Case:
    """A scenario as the claims see it.

    Args:
        scenario: The user's question.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.point = Point(scenario)
        specs = scenario.designs
        self.colocated = next((d.name for d in specs if len(d.pools) == 1), None)
        self.split = next(
            (d.name for d in specs if len(d.pools) > 1 and not _optical_server(d.name, scenario)),
            None,
        )
        self.light = next((d.name for d in specs if _optical_server(d.name, scenario)), None)

    @property
    def shape(self) -> ModelShape:
        """The model."""
        return self.point.asked.shape

    def engine(self, changes: Mapping[str, object], *, server: str = "") -> EngineSpec | None:
        """Return the optical engine under changes, None when the scenario has none.

        Args:
            changes: Changes of the scenario.
            server: Another optical server in place of the scenario's.
        """
        name = server or (self.light and _optical_server(self.light, self.scenario)) or ""
        if not name:
            return None
        fields = {**self.point.asked.overrides}
        fields |= {
            key: whole(key, float(value))
            for key, value in changes.items()
            if key in _ENGINE_FIELDS and isinstance(value, int | float)
        }
        return servers.load(name, overrides=fields, usd_per_peak_w=1.0).engine

    def estimates(
        self, changes: Mapping[str, object], *, server: str = "", only: str | None = None
    ) -> dict[str, Estimate]:
        """Return what each design delivers under changes.

        Args:
            changes: Changes of the scenario.
            server: Another optical server in place of the scenario's.
            only: The one design that is wanted; None for all.
        """
        asked = dict(changes)
        if server and self.light is not None:
            asked |= swapped(self.scenario, self.light, server)
        return self.point.at(asked, only=None if only is None else frozenset({only}))

    def reading(self, reading: Reading) -> dict[str, object]:
        """Return a reading as changes of the scenario, ready for `Scenario.replace`."""
        changes: dict[str, object] = dict(reading.changes)
        if reading.engine and self.light is not None:
            changes |= swapped(self.scenario, self.light, reading.engine)
        return changes

    def gains(self, changes: Mapping[str, object], *, server: str = "") -> Gains | None:
        """Return the optical design against the GPU designs, None when one does not work."""
        found = self.estimates(changes, server=server)
        if self.light is None or self.split is None:
            return None
        mine, rival = found[self.light], found[self.split]
        if not mine.feasible or not rival.feasible:
            return None
        others = [rival]
        colocated = found.get(self.colocated or "")
        if colocated is not None and colocated.feasible:
            others.append(colocated)
        decode = rival.energy_j_per_request - rival.prefill_energy_j_per_request
        own_decode = mine.energy_j_per_request - mine.prefill_energy_j_per_request
        least = min(other.energy_j_per_request for other in others)
        cheapest = min(other.cost_usd_per_request for other in others)
        per_out = decode / rival.output_tok
        per_in = rival.prefill_energy_j_per_request / rival.uncached_tok
        return Gains(
            prefill=rival.prefill_energy_j_per_request / mine.prefill_energy_j_per_request,
            linear=rival.linear_energy_j_per_request / mine.linear_energy_j_per_request,
            decode=decode / own_decode,
            whole=least / mine.energy_j_per_request,
            whole_colocated=others[-1].energy_j_per_request / mine.energy_j_per_request,
            cost=cheapest / mine.cost_usd_per_request,
            prefill_cost=rival.prefill_cost_usd_per_request / mine.prefill_cost_usd_per_request,
            prefill_share=rival.prefill_energy_j_per_request / rival.energy_j_per_request,
            rho=per_out / per_in if per_in > 0 else math.inf,
            ratio=rival.uncached_tok / rival.output_tok,
        )


def swapped(scenario: Scenario, design: str, server: str) -> dict[str, object]:
    """Return the changes that put another optical server into a design."""
    changes: dict[str, object] = {}
    for index, pool in enumerate(scenario.design(design).pools):
        if servers.is_optical(pool.server):
            changes[f"design.{design}.pools.{index}.server"] = server
            if pool.band is not None:
                changes[f"design.{design}.pools.{index}.band"] = None
    return changes


def _optical_server(design: str, scenario: Scenario) -> str | None:
    for pool in scenario.design(design).pools:
        if servers.is_optical(pool.server):
            return pool.server
    return None


def _fields() -> frozenset[str]:
    from firstlight.evaluate.question import ENGINE_FIELDS

    return ENGINE_FIELDS


_ENGINE_FIELDS = _fields()
