"""Tier ``cell``: the cell the fast tier chose, run over the whole trace at one load."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from firstlight import cost, workload
from firstlight.evaluate import capacity
from firstlight.evaluate.analytic.load import trace_of
from firstlight.evaluate.cell import Cell, group
from firstlight.evaluate.measure import measure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from firstlight.evaluate.analytic import Estimate, Point
    from firstlight.evaluate.capacity import Traffic
    from firstlight.evaluate.question import Question
    from firstlight.evaluate.search import DesignPlan
    from firstlight.sweep.table import Row


def simulated(
    point: Point, changes: Mapping[str, float | str], *, rate_request_per_s: float | None
) -> list[Row]:
    """Return each design's cell at one load over the whole trace.

    Args:
        point: The scenario.
        changes: What this point changes.
        rate_request_per_s: Load offered to the cell [request/s]; None takes the trace's own.
    """
    asked, plans = point.resolved(changes)
    work = asked.scenario.workload
    number = {name: value for name, value in changes.items() if isinstance(value, int | float)}
    traffic = _traffic(
        work.preset or work.trace or "azure-2023-conv",
        seed=asked.scenario.seed,
        context_tok=number.get("context_tok", work.context_tok),
        output_tok=number.get("output_tok", work.output_tok),
        cached_frac=number.get("cached_frac", work.cached_frac),
        correlation_s=number.get("correlation_s", work.correlation_s),
        max_context_tok=asked.shape.max_context_tok,
        rate_request_per_s=rate_request_per_s,
        warm_up_frac=asked.number("warm_up_frac"),
    )
    return [
        _row(asked, plans[name], one, traffic=traffic) for name, one in point.at(changes).items()
    ]


@lru_cache(maxsize=8)
def _traffic(
    name: str,
    *,
    seed: int,
    context_tok: float | None,
    output_tok: float | None,
    cached_frac: float,
    correlation_s: float,
    max_context_tok: int,
    rate_request_per_s: float | None,
    warm_up_frac: float,
) -> Traffic:
    scaled = workload.scale_lengths(
        trace_of(name, seed),
        context_tok=context_tok,
        output_tok=output_tok,
        max_context_tok=max_context_tok,
    ).trace
    load = scaled.request_per_s if rate_request_per_s is None else rate_request_per_s
    return capacity.Traffic.of(
        workload.superpose(
            scaled,
            copies=workload.copies_for(scaled, request_per_s=load),
            seed=seed,
            max_request_per_s=load,
            correlation_s=correlation_s,
            cached_frac=cached_frac,
        ),
        warm_up_frac=warm_up_frac,
    )


def _row(asked: Question, plan: DesignPlan, one: Estimate, *, traffic: Traffic) -> Row:
    from firstlight.sweep.task import NUMBERS

    empty: Row = {"design": plan.name, "status": "infeasible", "reason": one.reason or ""}
    empty |= dict.fromkeys(NUMBERS)
    if not one.feasible:
        return empty
    groups = tuple(
        replace(
            group(
                pool.server,
                role=pool.role,
                tp=one.tp[pool.role],
                chunk_tok=one.chunk_tok[pool.role],
                serving=plan.serving,
            ),
            count=one.cell[pool.role],
        )
        for pool in plan.pools
    )
    cell = Cell(groups=groups, serving=plan.serving, disaggregate=plan.disaggregate)
    rate = traffic.most_request_per_s
    run = capacity.simulate(cell.fleet, traffic, rate_request_per_s=rate, slo=asked.slo)
    found = measure(run, cell, site=asked.site)
    if not found.completed:
        return empty | {"reason": "no request was completed"}
    done = found.completed
    power_w = asked.site.provisioned_w(cell.peak_w)
    tokens = max(found.input_tok + found.output_tok, 1)
    return {
        "design": plan.name,
        "status": "done",
        "reason": "",
        "goodput_request_per_s": rate * run.attainment_frac,
        "goodput_request_per_s_per_w": rate * run.attainment_frac / power_w,
        "request_per_s": done / found.window_s,
        "provisioned_power_w": power_w,
        "input_tok_per_s": found.input_tok / found.window_s,
        "output_tok_per_s": found.output_tok / found.window_s,
        "energy_j_per_request": found.energy_j.total / done,
        "cost_usd_per_request": found.cost_usd.total / done,
        "cost_usd_per_mtok_blended": found.cost_usd.total / tokens * 1e6,
        "carbon_g_per_request": cost.carbon_g(found.energy_j.total, rates=asked.site.rates) / done,
        "mean_ttft_s": found.ttft_s.mean if found.ttft_s else None,
        "mean_tpot_s": found.tpot_s.mean if found.tpot_s else None,
    }
