"""The answer: one record a design, in SI units, with the words of the field.

Field order is the order of the JSON document. A null carries its reason in `warnings`.
"""

from __future__ import annotations

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every part of an answer: frozen, by keyword."""


class Percentiles(Record, frozen=True, kw_only=True):
    """A distribution [s]."""

    mean: float
    p50: float
    p90: float
    p99: float


class Power(Record, frozen=True, kw_only=True):
    """Power of the whole fleet [W].

    Attributes:
        provisioned: What the budget is charged: server peaks, network, PUE, margin.
        mean: Energy over time in the simulated window.
        peak: Every server at full load, network and PUE included.
        boundary: Where all three are taken.
    """

    provisioned: float
    mean: float
    peak: float
    boundary: str


class Parts(Record, frozen=True, kw_only=True):
    """Energy of a request by part [J]; disjoint, and they sum to the whole.

    Attributes:
        optics: Engine ledger: light, converters, reload, accumulators.
        gpu_prefill: GPU boards above idle, booked to prefill.
        attention: Attention where it runs on a device of its own (the optical server's digital part).
        gpu_decode: GPU boards above idle, booked to decode.
        kv_transfer: KV hand-over.
        host: CPUs, memory, fans, NICs, switches, supply loss.
        idle: Accelerators' floors.
        cooling: (PUE − 1) times all of these.
    """

    optics: float
    gpu_prefill: float
    attention: float
    gpu_decode: float
    kv_transfer: float
    host: float
    idle: float
    cooling: float

    @property
    def total(self) -> float:
        """Sum of the parts [J]."""
        return float(sum(getattr(self, name) for name in self.__struct_fields__))


class Binding(Record, frozen=True, kw_only=True):
    """What limits the goodput of a design.

    Attributes:
        resource: The resource of which a little more helps most.
        pool: The pool it belongs to.
        marginal: d ln goodput / d ln resource, found by simulating again.
        others: The same for every resource that made a difference, as "resource @ pool".
    """

    resource: str
    pool: str
    marginal: float
    others: dict[str, float]


class Scope(Record, frozen=True, kw_only=True):
    """One way to draw the line around the comparison.

    Attributes:
        energy_j_per_request: Energy inside the line [J].
        boundary: What is measured: accelerator boards above idle, or the facility.
        gain_vs_colocated: Energy of `gpu-colocated` over this.
        gain_vs_disaggregated: Energy of `gpu-disaggregated` over this.
    """

    energy_j_per_request: float
    boundary: str
    gain_vs_colocated: float | None
    gain_vs_disaggregated: float | None


class CellInfo(Record, frozen=True, kw_only=True):
    """The cell that was simulated.

    Attributes:
        servers: Servers in it by role and id.
        count: Cells in the fleet.
        tp: Tensor parallel degree by role.
        chunk_tok: Most tokens in a step by role [tok].
        kv_blocks: KV blocks of a replica by role.
        source: Where `kv_blocks` comes from.
    """

    servers: dict[str, int]
    count: int
    tp: dict[str, int]
    chunk_tok: dict[str, int]
    kv_blocks: dict[str, int]
    source: str


class End(Record, frozen=True, kw_only=True):
    """One end of a band over undisclosed inputs."""

    server: str
    feasible: bool
    reason: str | None
    goodput_request_per_s: float
    goodput_request_per_s_per_w: float
    energy_j_per_request: float | None
    cost_usd_per_request: float | None
    servers: dict[str, int]


class Band(Record, frozen=True, kw_only=True):
    """Both ends of what the undisclosed inputs allow."""

    conservative: End
    optimistic: End


class Bursts(Record, frozen=True, kw_only=True):
    """What the fleet would carry were bursts otherwise correlated; found on a sample of the time.

    Attributes:
        synchronised_request_per_s: All copies of the trace together (`correlation_s` = 0).
        as_asked_request_per_s: At the scenario's `correlation_s`.
        independent_request_per_s: Copies independent (`correlation_s` infinite).
    """

    synchronised_request_per_s: float
    as_asked_request_per_s: float
    independent_request_per_s: float


class Design(Record, frozen=True, kw_only=True):
    """What one design delivers at its capacity under the budget; see docs/metrics.md."""

    name: str
    feasible: bool
    reason: str | None
    servers: dict[str, int]
    power_w: Power | None
    offered_request_per_s: float
    request_per_s: float
    goodput_request_per_s: float
    input_tok_per_s: float
    output_tok_per_s: float
    ttft_s: Percentiles | None
    tpot_s: Percentiles | None
    itl_s: Percentiles | None
    e2e_s: Percentiles | None
    attainment_frac: float
    energy_j_per_request: float | None
    energy_j_per_request_by_part: Parts | None
    energy_j_per_tok_input: float | None
    energy_j_per_tok_output: float | None
    cost_usd_per_mtok_input: float | None
    cost_usd_per_mtok_input_uncached: float | None
    cost_usd_per_mtok_output: float | None
    cost_usd_per_mtok_blended: float | None
    cost_usd_per_request: float | None
    carbon_g_per_request: float | None
    gpu_equivalents_freed: float | None
    utilization: dict[str, float]
    binding: Binding | None
    bursts: Bursts | None
    scopes: dict[str, Scope]
    cell: CellInfo | None
    band: Band | None
    accuracy: dict[str, float] | None
    retrofit: dict[str, float] | None


class EqualLoad(Record, frozen=True, kw_only=True):
    """Designs at one and the same load: the capacity of the optical design, or the least capacity."""

    request_per_s: float
    designs: dict[str, dict[str, float]]


class Ratio(Record, frozen=True, kw_only=True):
    """The optical design over the GPU designs on one silicon at one precision.

    Attributes:
        silicon: Server and number format, for example ``h100-sxm-8x fp8``.
        goodput_request_per_s_per_w: Of each design, at the facility [request/s/W].
        goodput_per_w: Optical over each GPU design.
        energy: Energy a request of each GPU design over optical.
        cost: Cost a request of each GPU design over optical.
        reason: Why a design is missing.
    """

    silicon: str
    goodput_request_per_s_per_w: dict[str, float]
    goodput_per_w: dict[str, float]
    energy: dict[str, float]
    cost: dict[str, float]
    reason: str | None


class BreakEven(Record, frozen=True, kw_only=True):
    """Where the optical design equals the better GPU design in one undisclosed input.

    Attributes:
        field: The input.
        unit: Its unit.
        value: Where they are equal; null when they never are.
        today: The scenario's value.
        wins: ``below`` or ``above`` the value.
        note: In words.
    """

    field: str
    unit: str
    value: float | None
    today: float
    wins: str
    note: str


class Provenance(Record, frozen=True, kw_only=True):
    """Where one number comes from."""

    path: str
    value: float | str | bool | None
    unit: str
    status: str
    source: str
    date: str


class Comparison(Record, frozen=True, kw_only=True):
    """Designs on the same model, traffic, service level and power budget."""

    schema: int
    firstlight: str
    scenario: str
    scenario_hash: str
    scenario_document: dict[str, object]
    seed: int
    answer: str
    status: str
    workload: dict[str, float | str]
    designs: tuple[Design, ...]
    at_equal_load: EqualLoad | None
    ratios: tuple[Ratio, ...]
    break_even: tuple[BreakEven, ...]
    provenance: tuple[Provenance, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """Return plain dictionaries and lists, as in the JSON document."""
        built: dict[str, object] = msgspec.to_builtins(self)
        return built

    def design(self, name: str) -> Design:
        """Return one design by name.

        Raises:
            KeyError: There is none of that name.
        """
        for design in self.designs:
            if design.name == name:
                return design
        raise KeyError(name)
