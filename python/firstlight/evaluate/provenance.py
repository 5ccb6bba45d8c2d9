"""Where every number of an answer comes from; a derived one is as weak as its weakest input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight import catalog
from firstlight.catalog import weakest
from firstlight.evaluate.answer import Design, Provenance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from firstlight.evaluate.answer import BreakEven, Ratio
    from firstlight.evaluate.design import Solved
    from firstlight.evaluate.question import Question

UNITS = {
    "goodput_request_per_s": "request/s",
    "offered_request_per_s": "request/s",
    "request_per_s": "request/s",
    "input_tok_per_s": "tok/s",
    "output_tok_per_s": "tok/s",
    "attainment_frac": "1",
    "energy_j_per_request": "J/request",
    "energy_j_per_tok_input": "J/tok",
    "energy_j_per_tok_output": "J/tok",
    "cost_usd_per_mtok_input": "usd/Mtok",
    "cost_usd_per_mtok_output": "usd/Mtok",
    "cost_usd_per_request": "usd/request",
    "carbon_g_per_request": "g/request",
    "gpu_equivalents_freed": "1",
}
"""Results of a design and their units."""
GROUPS = {
    "ttft_s": "s", "tpot_s": "s", "itl_s": "s", "e2e_s": "s", "power_w": "W",
    "energy_j_per_request_by_part": "J/request",
}  # fmt: skip
"""Results that are several numbers of one unit."""
ASSUMPTIONS = (
    "server_margin_ratio", "network_frac", "network_price_frac", "it_life_years",
    "cost_of_capital_frac", "colocation_usd_per_kw_month", "optical_price_ratio", "kv_block_tok",
    "gpu_memory_utilization_frac", "max_seqs_count", "kv_link_frac", "kv_latency_s", "warm_up_frac",
)  # fmt: skip
SERVER_FACTS = ("peak_w", "idle_w", "host_idle_w", "host_peak_w", "price_usd", "nic_bytes_per_s")
NOT_NUMBERS = frozenset({"description"})


def provenance(
    asked: Question,
    solved: dict[str, Solved],
    records: dict[str, Design],
    *,
    ratios: tuple[Ratio, ...] = (),
    turning: tuple[BreakEven, ...] = (),
) -> tuple[Provenance, ...]:
    """Return the source of every input that was used and the status of every result.

    Args:
        asked: The question.
        solved: The designs as solved.
        records: Their records.
        ratios: Optical over GPU designs.
        turning: Break-evens.
    """
    inputs = list(_inputs(asked, solved))
    by_design = {name: weakest(*(_statuses(one, inputs))) for name, one in solved.items()}
    date = inputs[0].date

    def computed(path: str, value: float | None, unit: str, status: str) -> Provenance:
        return Provenance(
            path=path, value=value, unit=unit, status=status, source=COMPUTED, date=date
        )

    results = [
        computed(f"designs.{name}.{path}", value, unit, str(by_design[name]))
        for name, record in records.items()
        for path, value, unit in _numbers(record)
    ]
    # A ratio rests on both of its designs.
    both = str(weakest(*by_design.values()))
    results += [
        computed(f"ratios.{one.silicon}.{kind}.{rival}", value, "1", both)
        for one in ratios
        for kind in ("goodput_per_w", "energy", "cost")
        for rival, value in getattr(one, kind).items()
    ]
    results += [computed(f"break_even.{one.field}", one.value, one.unit, both) for one in turning]
    return (*results, *inputs)


COMPUTED = "computed; as weak as its weakest input"


def _numbers(record: Design) -> Iterator[tuple[str, float | None, str]]:
    """Yield (path, value, unit) of each result of a design."""
    for field, unit in UNITS.items():
        yield field, getattr(record, field), unit
    for name, unit in GROUPS.items():
        group = getattr(record, name)
        for part in () if group is None else group.__struct_fields__:
            value = getattr(group, part)
            if isinstance(value, float):
                yield f"{name}.{part}", value, unit
    for pool, busy in record.utilization.items():
        yield f"utilization.{pool}", busy, "1"
    for name, scope in record.scopes.items():
        yield f"scopes.{name}.energy_j_per_request", scope.energy_j_per_request, "J/request"
        for rival in ("gain_vs_colocated", "gain_vs_disaggregated"):
            yield f"scopes.{name}.{rival}", getattr(scope, rival), "1"


def status(facts: tuple[Provenance, ...]) -> str:
    """Return the weakest status among all."""
    return str(weakest(*(fact.status for fact in facts)))


def _statuses(one: Solved, inputs: list[Provenance]) -> Iterator[str]:
    """Yield the status of each input a design rests on."""
    mine = {pool.server.id for pool in one.plan.pools}
    mine |= {pool.server.device for pool in one.plan.pools}
    for fact in inputs:
        kind, _, rest = fact.path.partition(".")
        if kind in {"servers", "engines", "devices", "step_tables"}:
            if rest.rpartition(".")[0].partition("/")[0] in mine:
                yield fact.status
        else:
            yield fact.status


def _inputs(asked: Question, solved: dict[str, Solved]) -> Iterator[Provenance]:
    scenario = asked.scenario
    for path in scenario.paths():
        if path.startswith("design.") or path in {"schema", "name", "assumptions", "seed"}:
            continue
        yield _fact(f"scenario.{path}", scenario.provenance(path))
    for name in ASSUMPTIONS:
        yield _fact(f"assumptions.{name}", scenario.assumption(name).fact)
    seen: set[str] = set()
    for one in solved.values():
        for pool in one.plan.pools:
            if pool.server.id not in seen:
                seen.add(pool.server.id)
                yield from _server(asked, pool.server.id)
        if one.found is not None:
            for group in one.found.cell.groups:
                place = f"{group.server.device}/{group.role}"
                if place not in seen:
                    seen.add(place)
                    yield from _table(place, group.table.provenance)


def _server(asked: Question, server_id: str) -> Iterator[Provenance]:
    record = asked.scenario.applied(catalog.get(server_id, kind="server"))
    for name in SERVER_FACTS:
        if name in record:
            yield _fact(f"servers.{server_id}.{name}", record.fact(name))
    if "engine" in record:
        engine_id = record.text("engine")
        engine = asked.scenario.applied(catalog.get(engine_id, kind="engine"))
        for name in engine:
            if name not in NOT_NUMBERS:
                yield _fact(f"engines.{engine_id}.{name}", engine.fact(name))


def _table(place: str, parts: dict[str, tuple[str, str]]) -> Iterator[Provenance]:
    for part, (grade, source) in parts.items():
        yield Provenance(
            path=f"step_tables.{place}.{part}",
            value=None,
            unit="ps",
            status=grade,
            source=source,
            date="2026-12-01",
        )


def _fact(path: str, fact: catalog.Fact) -> Provenance:
    value = fact.value
    return Provenance(
        path=path,
        value=value if isinstance(value, int | float | str | bool) else str(value),
        unit=fact.unit,
        status=str(fact.status),
        source=fact.source,
        date=fact.date,
    )
