"""The space a plan is searched in, and the limits beside power: money, room, cooling."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from firstlight import catalog
from firstlight.errors import ScenarioError
from firstlight.evaluate import servers
from firstlight.evaluate.search import Budget
from firstlight.scenario import Design, Policy, Pool, Table

if TYPE_CHECKING:
    from firstlight.evaluate.servers import Server
    from firstlight.scenario import Scenario

OTHERS = ("h200-sxm-8x", "b200-8x")
"""GPU servers that are tried beside those of the scenario: sold in 2026, air-cooled, measured."""
NARROWER = {"b200-8x": ("nvfp4",), "b300-8x": ("nvfp4",)}
"""Formats of weights that are tried beside the scenario's, where the hardware is sold for them."""
AIR_RACK_W = 35e3
"""What air cools in one rack: the middle of 30 to 40 kW."""
Cooling = Literal["any", "air"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a plan may take beside power and rack.

    Attributes:
        price_usd: Most money for servers and network [usd]; None when there is no ceiling.
        servers: Most servers; None when there is room for any number.
        racks: Most racks; None when there is room for any number.
        rack_power_w: Power of one of them at the servers' plugs [W].
        cooling: ``air`` leaves out servers that need liquid.
    """

    price_usd: float | None = None
    servers: int | None = None
    racks: int | None = None
    rack_power_w: float = AIR_RACK_W
    cooling: Cooling = "any"

    def __post_init__(self) -> None:
        if self.price_usd is not None and not self.price_usd > 0:
            raise ScenarioError(f"price ceiling {self.price_usd!r} $; allowed: above 0")
        if self.servers is not None and self.servers < 1:
            raise ScenarioError(f"{self.servers!r} servers; allowed: 1 or more")
        if self.racks is not None and self.racks < 1:
            raise ScenarioError(f"{self.racks!r} racks; allowed: 1 or more")

    def racks_of(self, servers: tuple[tuple[Server, int], ...], cells: int) -> float:
        """Return the racks so many cells take; a rack holds servers of one kind."""
        taken = 0.0
        for server, n in servers:
            held = int(self.rack_power_w / server.peak_w + 1e-9)
            taken += math.ceil(n * cells / held) if held else math.inf
        return taken


@dataclass(frozen=True, slots=True, kw_only=True)
class CappedBudget(Budget):
    """A budget of power that is also one of money and room.

    Attributes:
        caps: The other limits.
    """

    caps: Limits = field(default_factory=Limits)

    def cells(self, servers: tuple[tuple[Server, int], ...]) -> int:
        """Return how many cells of these servers fit."""
        fit = Budget.cells(self, servers)
        if self.caps.servers is not None:
            fit = min(fit, self.caps.servers // sum(n for _, n in servers))
        if self.caps.price_usd is not None:
            price = sum(self.price_usd(server) * n for server, n in servers)
            if price > 0:
                fit = min(fit, int(self.caps.price_usd / price + 1e-9))
        if self.caps.racks is not None:
            while fit and self.caps.racks_of(servers, fit) > self.caps.racks:
                # Each step is at most to what the racks would hold if they could be shared.
                over = self.caps.racks_of(servers, fit) / self.caps.racks
                fit = min(fit - 1, int(fit / over) + 1) if math.isfinite(over) else 0
        return fit

    def price_usd(self, server: Server) -> float:
        """Return what buying one server costs, network included; nothing for installed ones [usd]."""
        if server.id in self.site.sunk:
            return 0.0
        return server.price_usd * (1.0 + self.site.rates.network_price_frac)


def capped(budget: Budget, caps: Limits) -> CappedBudget:
    """Return a budget with further limits."""
    return CappedBudget(
        power_w=budget.power_w,
        boundary=budget.boundary,
        rack_power_w=budget.rack_power_w,
        limits=budget.limits,
        site=budget.site,
        max_cell_servers=budget.max_cell_servers,
        caps=caps,
    )


@dataclass(frozen=True, kw_only=True)
class Space:
    """Designs to choose among: a kind, what prefills, what decodes, and in which format.

    Attributes:
        gpus: (GPU server, format of its weights) that decode, or do both.
        lights: Optical servers that may prefill.
        chunks: Token budgets; ("auto",) lets each pool take its best.
        engines: Engines in an optical server; None takes the scenario's.
        left_out: Servers that were not considered, with the reason.
    """

    gpus: tuple[tuple[str, str], ...]
    lights: tuple[str, ...]
    chunks: tuple[int | Literal["auto"], ...]
    engines: tuple[int | None, ...]
    left_out: dict[str, str]

    @cached_property
    def shape(self) -> tuple[int, int, int, int]:
        """Numbers of (what prefills, what decodes, chunks, engines); a first index of 0 does both."""
        first = 1 + len(self.gpus) + len(self.lights)
        return first, len(self.gpus), len(self.chunks), len(self.engines)

    def __len__(self) -> int:
        return math.prod(self.shape)

    def overrides(self, index: tuple[int, ...]) -> dict[str, float]:
        """Return the engine fields a place assumes otherwise than the scenario."""
        engines = self.engines[index[3]]
        return {} if engines is None else {"engines": float(engines)}

    def indices(self) -> itertools.product[tuple[int, ...]]:
        """Return every place in the space."""
        return itertools.product(*(range(n) for n in self.shape))

    def design(self, index: tuple[int, ...]) -> Design | None:
        """Return the design at a place; None where a place stands for no design of its own.

        Two GPU pools of different formats are left out: the KV cache is handed over as it is, and
        the weights of both must be of one format to be one model.
        """
        first, second, third, fourth = index
        engines = self.engines[fourth]
        if first <= len(self.gpus) and fourth:
            return None
        decode, weights = self.gpus[second]
        chunk = self.chunks[third]
        policy = Policy(
            batching="vllm-v1", chunk_tok=chunk, disaggregate="never" if first == 0 else "always"
        )
        suffix = "" if chunk == "auto" else f" chunk {chunk}"
        precision = Table({"weights": weights})
        if first == 0:
            return Design(
                name=f"{decode} {weights} both{suffix}",
                policy=policy,
                pools=(_pool("both", decode),),
                precision=precision,
            )
        if first <= len(self.gpus):
            prefill, own = self.gpus[first - 1]
            if own != weights:
                return None
        else:
            prefill = self.lights[first - 1 - len(self.gpus)]
            suffix += "" if engines is None else f" engines {engines}"
        return Design(
            name=f"{prefill} > {decode} {weights}{suffix}",
            policy=policy,
            pools=(_pool("prefill", prefill), _pool("decode", decode)),
            precision=precision,
        )


def _pool(role: Literal["prefill", "decode", "both"], server: str) -> Pool:
    return Pool(role=role, server=server, share="auto", tp="auto")


def space_of(
    scenario: Scenario,
    *,
    caps: Limits,
    servers_asked: tuple[str, ...] = (),
    chunks: tuple[int | Literal["auto"], ...] = ("auto",),
    engines: tuple[int | None, ...] = (None,),
) -> Space:
    """Return the designs a scenario may choose among.

    Args:
        scenario: The question; its servers, both ends of its bands and, unless servers are installed,
            the usual others.
        caps: Limits; cooling leaves servers out.
        servers_asked: Only these servers; empty takes the default.
        chunks: Token budgets to try.
        engines: Engines in an optical server to try; None takes the scenario's.

    Raises:
        CatalogError: A server is unknown.
        ScenarioError: No GPU server is left to decode on.
    """
    named = [pool.server for design in scenario.designs for pool in design.pools]
    named += [
        end for design in scenario.designs for pool in design.pools for end in pool.band or ()
    ]
    named += list(scenario.facility.installed)
    if servers_asked:
        named = list(servers_asked)
    elif not scenario.facility.installed:
        named += OTHERS
    kept: list[str] = []
    left_out: dict[str, str] = {}
    rack_w = scenario.facility.rack_power_w
    for name in dict.fromkeys(named):
        record = catalog.get(name, kind="server")
        # an optical server is said to need no liquid
        if caps.cooling == "air" and record.get("cooling", "air") == "liquid":
            left_out[name] = "needs liquid cooling"
        elif rack_w is not None and "peak_w" in record and record.value("peak_w") > rack_w:
            left_out[name] = f"draws {record.value('peak_w'):,.0f} W; a rack gives {rack_w:,.0f} W"
        elif scenario.facility.installed and _is_new_gpu(name, scenario):
            left_out[name] = "not installed; a retrofit adds light to what stands"
        else:
            kept.append(name)
    lights = tuple(name for name in kept if servers.is_optical(name))
    own = scenario.precision.weights
    gpus = tuple(
        (name, weights)
        for name in kept
        if not servers.is_optical(name)
        for weights in dict.fromkeys((own, *NARROWER.get(name, ())))
    )
    if not gpus:
        reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        raise ScenarioError(f"no GPU server is left to decode on ({reasons or 'none was named'})")
    return Space(gpus=gpus, lights=lights, chunks=chunks, engines=engines, left_out=left_out)


def _is_new_gpu(name: str, scenario: Scenario) -> bool:
    return not servers.is_optical(name) and name not in scenario.facility.installed
