"""The parts a scenario is made of: frozen structs, one a section of the file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from firstlight.errors import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from firstlight import catalog


class Table(dict[str, Any]):
    """A dict that cannot be changed, so that a scenario that holds it is a value."""

    def __init__(self, items: Mapping[str, object] | None = None) -> None:
        super().__init__(items or {})

    def _refuse(self, *_: object, **__: object) -> Any:  # noqa: ANN401  # stands in for many methods
        raise TypeError("a scenario is frozen; make a new one with Scenario.replace")

    __setitem__ = __delitem__ = update = pop = popitem = clear = setdefault = __ior__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # frozen, so it may have one
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type[Table], tuple[dict[str, Any]]]:
        return Table, (dict(self),)


class Precision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Number formats on silicon; an optical pool holds weights in its engine's mask bits.

    Attributes:
        weights: Format of weights and matrix products.
        kv: Format of the KV cache.
    """

    weights: str
    kv: str


class Workload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The traffic: a preset or a trace, and how it is scaled.

    Attributes:
        preset: Name of a preset, or None.
        trace: Id of a shipped trace or absolute path of a file, or None.
        context_tok: Mean prompt length the trace is scaled to [tok]; None leaves it as it is.
        output_tok: Mean output length the trace is scaled to [tok]; None leaves it as it is.
        cached_frac: Prompt tokens whose KV is present and not computed, 0 to 1.
        correlation_s: Largest shift between copies of the trace [s]; may be infinite.
        shared_prefix_tok: Tokens shared by requests of different copies [tok].
    """

    preset: str | None = None
    trace: str | None = None
    context_tok: int | None = None
    output_tok: int | None = None
    cached_frac: float
    correlation_s: float
    shared_prefix_tok: int


class Slo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the client is promised; both limits must hold for `quantile` of all arrivals.

    Attributes:
        ttft_s: Time to first token [s].
        tpot_s: Time per output token after the first [s].
        quantile: Share of arrivals, 0 to 1.
    """

    ttft_s: float
    tpot_s: float
    quantile: float


class Facility(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The power, what surrounds it, and what stands there already.

    Attributes:
        power_w: Power budget at `boundary` [W].
        boundary: "engine", "board", "server" or "facility".
        pue: Facility energy over IT energy.
        electricity_usd_per_kwh: Price of electricity.
        carbon_g_per_kwh: CO2 equivalent of electricity.
        installed: Servers that stay, their price sunk: server id -> number.
        rack_power_w: Limit of one rack [W], or None.
    """

    power_w: float
    boundary: Literal["engine", "board", "server", "facility"]
    pue: float
    electricity_usd_per_kwh: float
    carbon_g_per_kwh: float
    installed: Table = msgspec.field(default_factory=Table)
    rack_power_w: float | None = None


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How requests are batched and where their prefill runs.

    Attributes:
        batching: Step rule; "vllm-v1".
        chunk_tok: Token budget of a step [tok], or "auto" to search it.
        disaggregate: "never", "always", or "conditional": the decode pool computes what is short.
        local_below_tok: Uncached prompt tokens below which a prompt is short, when "conditional"
            [tok]; None takes Dynamo's 2,048.
    """

    batching: str
    chunk_tok: int | Literal["auto"]
    disaggregate: Literal["never", "always", "conditional"]
    local_below_tok: int | None = None


class Pool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Servers of one kind with one role.

    Attributes:
        role: "prefill", "decode" or "both".
        server: Catalog id.
        share: Share of the facility's watts, 0 to 1, or "auto" to search it.
        count: Number of servers, or None when `share` decides.
        tp: Tensor-parallel degree, or "auto" to search it.
        band: Two optical servers, conservative and optimistic, between which the truth lies.
    """

    role: Literal["prefill", "decode", "both"]
    server: str
    share: float | Literal["auto"]
    count: int | None = None
    tp: int | Literal["auto"]
    band: tuple[str, str] | None = None


class Design(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to spend the power.

    Attributes:
        name: What it is called in results.
        policy: How requests are batched.
        pools: One pool "both", or one "prefill" and one "decode".
        precision: Its own formats by name, where they differ from the scenario's.
    """

    name: str
    policy: Policy
    pools: tuple[Pool, ...]
    precision: Table = msgspec.field(default_factory=Table)

    def pool(self, role: str) -> Pool:
        """Return the pool that does `role`; a pool "both" does either.

        Raises:
            ScenarioError: No pool does it.
        """
        for pool in self.pools:
            if pool.role in {role, "both"}:
                return pool
        raise ScenarioError(f"design {self.name!r} has no pool for {role!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """An assumption as this scenario takes it.

    Attributes:
        value: Number, word or truth value; the midpoint of a range.
        low: Lower end, or None when it is no number.
        high: Upper end, or None.
        fact: The catalog's fact, or the override as a fact marked assumed.
        given: Whether the scenario overrides it.
    """

    value: catalog.Scalar
    low: float | None
    high: float | None
    fact: catalog.Fact
    given: bool
