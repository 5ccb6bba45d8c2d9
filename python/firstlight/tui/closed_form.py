"""The closed form as the explorer shows it: three designs, the optical band, in milliseconds."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from firstlight import catalog
from firstlight.evaluate import design, provenance
from firstlight.evaluate.analytic import Point
from firstlight.tui.answer import Answer, Citation, DesignAnswer, Tier
from firstlight.tui.metric import COLOCATED, DISAGGREGATED, OPTICAL
from firstlight.tui.scenario_file import changes_of, shipped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from firstlight.evaluate.analytic import Estimate
    from firstlight.scenario import Scenario
    from firstlight.tui.state import Setup

LABELS = {COLOCATED: "co-located", DISAGGREGATED: "disaggregated", OPTICAL: "optical+GPU"}
_BANDED = ("goodput_request_per_s", "energy_j_per_request")


def in_order(names: Mapping[str, object]) -> list[str]:
    """Return design names as the screen shows them; the optical one is the last.

    Args:
        names: By design name.
    """
    rank = {name: i for i, name in enumerate(LABELS)}
    return sorted(names, key=lambda name: (name == OPTICAL, rank.get(name, len(rank))))


def asked(setup: Setup) -> tuple[Point, dict[str, object]]:
    """Return a setup as a point that is looked up once and the changes at it.

    Args:
        setup: Plain numbers only.

    Raises:
        FirstlightError: The scenario it starts from is impossible.
    """
    _, changes = changes_of(setup)
    return _point(setup.base), changes


@lru_cache(maxsize=4)
def _point(base: Scenario | None) -> Point:
    return Point(base or shipped())


@lru_cache(maxsize=256)
def answer(setup: Setup) -> Answer:
    """Return the closed-form answer of a setup; the last few are kept.

    Args:
        setup: Plain numbers only.

    Raises:
        FirstlightError: The scenario is impossible.
    """
    point, changes = asked(setup)
    found = point.at(changes)
    status, citations = _sources(point, changes)
    band, warnings = _band(point, changes, found)
    freed = _freed_gpus(found)
    return Answer(
        tier=Tier.ANALYTIC,
        designs=tuple(
            _design(
                found[name],
                status=status.get(name, ""),
                band=band if name == OPTICAL else {},
                freed=freed if name == OPTICAL else None,
            )
            for name in in_order(found)
        ),
        citations=citations,
        warnings=warnings,
    )


def _design(
    one: Estimate, *, status: str, band: dict[str, tuple[float, float]], freed: float | None
) -> DesignAnswer:
    metrics = metrics_of(one) if one.feasible else {}
    return DesignAnswer(
        name=one.name,
        label=LABELS.get(one.name, one.name),
        is_feasible=one.feasible,
        reason=one.reason or "",
        metrics=metrics,
        status=dict.fromkeys(metrics, status),
        band=band,
        gpu_equivalents_freed=freed,
    )


def metrics_of(one: Estimate) -> dict[str, float | None]:
    """Return an estimate's numbers by metric path; the closed form knows no tails.

    Args:
        one: A feasible design.
    """
    decode_usd = one.cost_usd_per_request - one.prefill_cost_usd_per_request
    input_tok = one.input_tok_per_s / one.request_per_s
    numbers = {
        "goodput_request_per_s": one.goodput_request_per_s,
        "output_tok_per_s": one.output_tok_per_s,
        "ttft_s.p50": one.ttft_s,
        "tpot_s.p50": one.tpot_s,
        "energy_j_per_request": one.energy_j_per_request,
        "scopes.prefill.energy_j_per_request": one.prefill_energy_j_per_request,
        "scopes.linear_only.energy_j_per_request": one.linear_energy_j_per_request,
        "cost_usd_per_mtok_input": one.prefill_cost_usd_per_request / input_tok * 1e6,
        "cost_usd_per_mtok_output": decode_usd / one.output_tok * 1e6,
        "carbon_g_per_request": one.carbon_g_per_request,
    }
    return {path: value if math.isfinite(value) else None for path, value in numbers.items()}


def _band(
    point: Point, changes: dict[str, object], found: dict[str, Estimate]
) -> tuple[dict[str, tuple[float, float]], tuple[str, ...]]:
    """Return both ends of what undisclosed inputs allow, and what must be said of them."""
    spec = next((d for d in point.scenario.designs if d.name == OPTICAL), None)
    index = next((i for i, pool in enumerate(spec.pools) if pool.band), None) if spec else None
    head = f"design.{OPTICAL}.pools.{index}"
    # Another server has no band of its own.
    if spec is None or index is None or f"design.{OPTICAL}.pools.prefill.band" in changes:
        return {}, ()
    pool = spec.pools[index]
    ends: list[Estimate] = []
    warnings: list[str] = []
    for server in pool.band or ():
        end = found[OPTICAL]
        if server != changes.get(f"design.{OPTICAL}.pools.prefill.server", pool.server):
            swap = {**changes, f"{head}.server": server, f"{head}.band": None}
            swap.pop(f"design.{OPTICAL}.pools.prefill.server", None)
            end = point.at(swap, only=frozenset({OPTICAL}))[OPTICAL]
        if end.feasible:
            ends.append(end)
        else:
            warnings.append(f"as {server} it fails: {end.reason}")
    if len(ends) < 2:
        return {}, tuple(warnings)
    values = {path: [float(getattr(end, path)) for end in ends] for path in _BANDED}
    return {path: (min(both), max(both)) for path, both in values.items()}, tuple(warnings)


def _freed_gpus(found: dict[str, Estimate]) -> float | None:
    """Return GPUs that the split GPU design needs for the optical design's load, less its own."""
    mine, rival = found.get(OPTICAL), found.get(DISAGGREGATED)
    if mine is None or rival is None or not (mine.feasible and rival.feasible):
        return None
    own, theirs = (
        sum(_gpus(server) * count for server, count in one.servers.items()) for one in (mine, rival)
    )
    needed = mine.goodput_request_per_s / rival.goodput_request_per_s * theirs
    return float(math.ceil(needed - 1e-9) - own)


@lru_cache(maxsize=64)
def _gpus(server: str) -> int:
    record = catalog.get(server, kind="server")
    return 0 if "engine" in record else record.count("device_count")


def _sources(
    point: Point, changes: dict[str, object]
) -> tuple[dict[str, str], tuple[Citation, ...]]:
    """Return the weakest status of each design's inputs and where they come from.

    It hangs on which records are used, not on the values of sliders.
    """
    words = {path: value for path, value in changes.items() if value is None or type(value) is str}
    return _sources_of(point, tuple(sorted(words.items(), key=lambda item: item[0])))


@lru_cache(maxsize=64)
def _sources_of(
    point: Point, words: tuple[tuple[str, object], ...]
) -> tuple[dict[str, str], tuple[Citation, ...]]:
    scenario_point = point.other(dict(words)) if words else point
    plans = {plan.name: plan for plan in scenario_point.plans}
    solved = {name: design.refused(plan, "closed form") for name, plan in plans.items()}
    budget = scenario_point.asked.budget
    records = {name: design.record(one, budget=budget) for name, one in solved.items()}
    facts = provenance.provenance(scenario_point.asked, solved, records)
    status = {
        name: fact.status
        for name in plans
        for fact in facts
        if fact.path == f"designs.{name}.goodput_request_per_s"
    }
    citations = tuple(
        Citation(
            path=fact.path,
            value=float(fact.value) if isinstance(fact.value, (int, float)) else None,
            unit=fact.unit,
            status=fact.status,
            source=fact.source,
            date=fact.date,
        )
        for fact in facts
        # Results and sliders may have moved since; the rest has not.
        if not fact.path.startswith(("designs.", "scenario."))
    )
    return status, citations
