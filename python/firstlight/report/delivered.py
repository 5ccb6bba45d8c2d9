"""What each design delivers: one column a design."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from firstlight import units
from firstlight.report.layout import Grid, Heading, Points

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from firstlight.evaluate.answer import Comparison, Design, Parts, Percentiles
    from firstlight.report.layout import Block
    from firstlight.report.status import Letters

Given = float | str | bool | None
"""An input: a number, a word, a truth value, or nothing known."""
GAP = "?"
NONE = "–"
_PART_NAMES = {
    "optics": "optics: light, converters, reload",
    "gpu_prefill": "GPU prefill, above idle",
    "attention": "attention on its own device",
    "gpu_decode": "GPU decode, above idle",
    "kv_transfer": "KV hand-over",
    "host": "hosts, fans, network, supply loss",
    "idle": "idle floors of accelerators",
    "cooling": "cooling and distribution",
}
_SCOPE_NAMES = {
    "linear_only": "linear layers only",
    "prefill": "whole prefill, attention too",
    "inference": "whole inference, idle too",
}
_LARGE = 1000.0
_ROUNDING = 1e-9
_WORTH_SAYING = 0.01


def number(value: float | str | None, *, digits: int = 3) -> str:
    """Return a count: thousands in groups, small ones with `digits` significant digits."""
    if value is None or isinstance(value, str):
        return value or GAP
    if not math.isfinite(value):
        return units.format_si(value, "1")
    if value == int(value) or abs(value) >= _LARGE:
        return f"{value:,.0f}"
    return units.format_si(value, "1", digits)


def quantity(value: Given, unit: str) -> str:
    """Return an input as people read it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or isinstance(value, str):
        return value or GAP
    return units.format_si(value, unit)


def results(comparison: Comparison, letters: Letters) -> Grid:
    """Return the table of servers, throughput, latency, energy, cost and power."""
    designs = comparison.designs

    def row(label: str, cell: Callable[[Design], str | None], *, path: str = "") -> tuple[str, ...]:
        return (label, *(_marked(design, cell(design), path, letters) for design in designs))

    ids = list(dict.fromkeys(name for design in designs for name in design.servers))
    pools = list(dict.fromkeys(name for design in designs for name in design.utilization))
    rows = [
        ("servers", *(_all(design.servers) or NONE for design in designs)),
        *(
            (f" {name}", *(_count(design.servers.get(name)) for design in designs)) for name in ids
        ),
        row("requests/s in limits", lambda design: number(design.goodput_request_per_s),
            path="goodput_request_per_s"),
        row("requests/s offered", lambda design: number(design.offered_request_per_s)),
        row("requests/s completed", lambda design: number(design.request_per_s)),
        row(" share in limits", lambda design: _percent(design.attainment_frac)),
        row("input", lambda design: units.format_si(design.input_tok_per_s, "tok/s")),
        row("output", lambda design: units.format_si(design.output_tok_per_s, "tok/s")),
        row("TTFT p50", lambda design: _time(design.ttft_s, "p50")),
        row("TTFT p90", lambda design: _time(design.ttft_s, "p90")),
        row("TPOT p90", lambda design: _time(design.tpot_s, "p90")),
        row("energy a request", lambda design: _si(design.energy_j_per_request, "J"),
            path="energy_j_per_request"),
        row(" an input token", lambda design: _si(design.energy_j_per_tok_input, "J"),
            path="energy_j_per_tok_input"),
        row(" an output token", lambda design: _si(design.energy_j_per_tok_output, "J"),
            path="energy_j_per_tok_output"),
        row("$/Mtok input", lambda design: _si(design.cost_usd_per_mtok_input, "1"),
            path="cost_usd_per_mtok_input"),
        row(" uncached input", lambda design: _si(design.cost_usd_per_mtok_input_uncached, "1"),
            path="cost_usd_per_mtok_input"),
        row("$/Mtok output", lambda design: _si(design.cost_usd_per_mtok_output, "1"),
            path="cost_usd_per_mtok_output"),
        row("$ a 1000 requests", lambda design: _si(_thousand(design.cost_usd_per_request), "1"),
            path="cost_usd_per_request"),
        row("CO₂e, g a 1000 req.", lambda design: _si(_thousand(design.carbon_g_per_request), "1"),
            path="carbon_g_per_request"),
        row("GPUs freed", lambda design: _count(design.gpu_equivalents_freed),
            path="gpu_equivalents_freed"),
        row("power provisioned", lambda design: _power(design, "provisioned")),
        row(" mean", lambda design: _power(design, "mean")),
        *(
            (f"busy: {name}", *(_marked(design, _percent(design.utilization.get(name)), "", letters)
                                for design in designs))
            for name in pools
        ),
    ]  # fmt: skip
    return Grid(("", *(design.name for design in designs)), tuple(rows))


FULL = 0.995
"""A pool above this share of its time is shown as always busy."""


def is_always_stepping(comparison: Comparison) -> bool:
    """Return whether some pool is in a step all the time."""
    return any(busy > FULL for design in comparison.designs for busy in design.utilization.values())


def misses(comparison: Comparison, letters: Letters) -> Iterator[Block]:
    """Yield which designs miss the service level, at what and how far."""
    fact = letters.fact("scenario.slo.quantile")
    wanted = fact.value if fact and isinstance(fact.value, float) else 0.0
    lines = [
        f"{design.name} is not feasible: {design.reason}"
        if design.power_w is None
        else f"{design.name} misses the service level at this load: "
        f"{_percent(design.attainment_frac)} of requests within both limits, {wanted:.1%} wanted"
        for design in comparison.designs
        if not meets(design, quantile=wanted)
    ]
    if lines:
        yield Points(tuple(lines))


def meets(design: Design, *, quantile: float) -> bool:
    """Return whether a design meets the service level where it was simulated."""
    return design.feasible and design.attainment_frac >= quantile - _ROUNDING


def parts(comparison: Comparison, letters: Letters) -> Grid:
    """Return the table of energy by part; the parts sum to the last row."""
    designs = [design for design in comparison.designs if design.energy_j_per_request_by_part]
    rows = [
        (
            label,
            *(
                _part(design.energy_j_per_request_by_part, name, letters.of_design(design.name))
                for design in designs
            ),
        )
        for name, label in _PART_NAMES.items()
    ]
    total = [
        f"{_si(design.energy_j_per_request, 'J')} "
        f"{letters.of(f'designs.{design.name}.energy_j_per_request')}"
        for design in designs
    ]
    return Grid(("", *(design.name for design in designs)), (*rows, ("sum", *total)))


def scopes(comparison: Comparison, letters: Letters) -> Grid:
    """Return the three scopes side by side, each with its boundary."""
    designs = [design for design in comparison.designs if design.scopes]
    rows: list[tuple[str, ...]] = []
    for name, label in _SCOPE_NAMES.items():
        found = [design.scopes[name] for design in designs]
        boundary = ", ".join(dict.fromkeys(scope.boundary for scope in found))
        rows += [
            (
                label,
                *(
                    f"{_si(scope.energy_j_per_request, 'J')} {letters.of_design(design.name)}"
                    for scope, design in zip(found, designs, strict=True)
                ),
            ),
            (f" at: {boundary}", *("" for _ in designs)),
            (" over gpu-colocated", *(_times(scope.gain_vs_colocated) for scope in found)),
            (" over gpu-disaggregated", *(_times(scope.gain_vs_disaggregated) for scope in found)),
        ]
    return Grid(("", *(design.name for design in designs)), tuple(rows))


def binding(comparison: Comparison) -> Iterator[Block]:
    """Yield what limits each design, and what comes next."""
    rows = []
    for design in comparison.designs:
        if design.binding is None:
            continue
        found = design.binding
        ranked = sorted(found.others.items(), key=lambda item: -item[1])
        next_ones = [
            f"{name} {gain:.2f}"
            for name, gain in ranked
            if name != f"{found.resource} @ {found.pool}" and gain >= _WORTH_SAYING
        ]
        text = f"{design.name}: {found.resource} of the {found.pool} pool ({found.marginal:.2f})"
        rows.append(f"{text}; then {', '.join(next_ones[:3])}" if next_ones else text)
    if rows:
        yield Heading("What binds: growth of goodput over growth of the resource, both in logs")
        yield Points(tuple(rows))


def cells(comparison: Comparison) -> Iterator[Block]:
    """Yield the cell that was chosen and simulated for each design."""
    designs = [design for design in comparison.designs if design.cell is not None]
    if not designs:
        return
    found = [design.cell for design in designs if design.cell is not None]
    roles = list(dict.fromkeys(role for cell in found for role in cell.tp))
    rows = [("cells", *(f"{cell.count:,}" for cell in found))]
    for role in roles:
        rows += [
            (
                f"{role}: servers a cell",
                *(
                    _count(_of_role(cell.servers, role)) if role in cell.tp else NONE
                    for cell in found
                ),
            ),
            (" TP", *(_count(cell.tp.get(role)) for cell in found)),
            (" chunk, tokens", *(_count(cell.chunk_tok.get(role)) for cell in found)),
            (" KV blocks", *(_count(cell.kv_blocks.get(role)) for cell in found)),
        ]
    yield Heading("The cell that was chosen and simulated")
    yield Grid(("", *(design.name for design in designs)), tuple(rows))


def _of_role(servers: dict[str, int], role: str) -> int:
    return sum(count for name, count in servers.items() if name.partition(":")[0] == role)


def _marked(design: Design, text: str | None, path: str, letters: Letters) -> str:
    """Return a value with the letter of what it rests on."""
    if design.power_w is None or text is None:
        return NONE
    full = f"designs.{design.name}.{path}"
    letter = letters.of(full) if path and letters.fact(full) else letters.of_design(design.name)
    return f"{text} {letter}"


def _all(servers: dict[str, int]) -> str | None:
    return f"{sum(servers.values()):,}" if servers else None


def _count(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f}".replace("-", "−")


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value * 100:.1f} %"


def _time(found: Percentiles | None, which: str) -> str | None:
    return None if found is None else units.format_si(getattr(found, which), "s")


def _power(design: Design, which: str) -> str | None:
    if design.power_w is None:
        return None
    return units.format_si(getattr(design.power_w, which), "W")


def _part(found: Parts | None, name: str, letter: str) -> str:
    value = getattr(found, name)
    return NONE if not value else f"{units.format_si(value, 'J')} {letter}"


def _si(value: float | None, unit: str) -> str | None:
    return None if value is None else units.format_si(value, unit)


def _thousand(value: float | None) -> float | None:
    return None if value is None else value * 1000.0


def _times(value: float | None) -> str:
    return NONE if value is None else f"{units.format_si(value, '1')}×"
