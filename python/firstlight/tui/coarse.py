"""The coarse tier: one cell of each design over a minute or two of the hour's traffic.

The closed form chooses the cell and its load; requests, shifts and marks are the same at every
setup (common random numbers), so that a moving slider shows what it does and no noise. Goodput
follows from the closed form with one damped correction for the share of requests that were late.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from firstlight import workload
from firstlight.evaluate import capacity, design
from firstlight.evaluate.analytic import load as moments
from firstlight.evaluate.capacity import Traffic
from firstlight.evaluate.cell import Cell, group
from firstlight.evaluate.measure import measure
from firstlight.evaluate.search import Found
from firstlight.tui import closed_form
from firstlight.tui.metric import OPTICAL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from firstlight.evaluate import Design
    from firstlight.evaluate.analytic import Estimate, Point
    from firstlight.evaluate.question import Question
    from firstlight.evaluate.search import DesignPlan
    from firstlight.tui.solver import Cancel
    from firstlight.tui.state import Setup
    from firstlight.workload import Requests, Superposed

KEEP_S = 8.0
"""Length of a piece of the hour, about that of an answer [s]."""
PERIODS_S = (240.0, 480.0, 960.0)
"""One piece is taken in so many seconds: two minutes of the hour, one, or half a one."""
MOST_REQUESTS = 4_000
"""Requests that one design is shown; a millisecond or two."""
WARM_UP_S = 12.0
"""First part, not counted: the cell fills up in the time of an answer or two [s]."""
KEPT_RUNS = 12
"""Simulated loads that are remembered: neither prices nor watts change what a cell does."""
LATE_ENOUGH = 0.02
"""Shortfall that is worth a second look: it moves the load by half a per cent."""
LATE_WEIGHT = 0.25
"""How much of the shortfall in requests on time is taken off the load."""
HEAD_ROOM = 1.3
DOUBLINGS = 8
"""Copies of the trace that are drawn ahead of need: up to 128."""


_RUNS: dict[tuple[object, ...], tuple[capacity.Run, Requests]] = {}


def designs(setup: Setup, *, cancel: Cancel) -> dict[str, Design]:
    """Return a record of each feasible design near its capacity.

    Args:
        setup: Plain numbers only.
        cancel: Polled between designs and inside.

    Raises:
        FirstlightError: The scenario is impossible.
        KeyboardInterrupt: It was cancelled.
    """
    point, changes = closed_form.asked(setup)
    base, quick = point.standing(changes)
    asked, plans = point.resolved(changes)
    estimates = base.quick(quick)
    found = {}
    # The optical design first: the explorer is about it.
    for name in sorted(estimates, key=lambda name: name != OPTICAL):
        one = estimates[name]
        if one.feasible:
            found[name] = _record(
                plans[name], one, asked=asked, base=base, quick=quick, cancel=cancel
            )
    return found


def _record(
    plan: DesignPlan,
    one: Estimate,
    *,
    asked: Question,
    base: Point,
    quick: dict[str, float],
    cancel: Cancel,
) -> Design:
    cell = cell_of(plan, one)
    rate = one.request_per_s / one.cells
    traffic = traffic_of(base, quick, request_per_s=rate)

    does = tuple((p.server.id, p.server.engine, p.role) for p in plan.pools)
    shape = str(one.tp), str(one.chunk_tok), str(one.cell), plan.serving, plan.disaggregate

    def ran(load: float) -> capacity.Run:
        key = does, shape, asked.slo, load, id(traffic.requests)
        kept = _RUNS.pop(key, None)
        # The requests themselves are held beside the run, so that their id stays theirs.
        run = (
            kept[0]
            if kept
            else capacity.simulate(
                cell.fleet,
                traffic,
                rate_request_per_s=load,
                slo=asked.slo,
                cancelled=lambda: cancel.is_set,
            )
        )
        _RUNS[key] = run, traffic.requests
        while len(_RUNS) > KEPT_RUNS:
            _RUNS.pop(next(iter(_RUNS)))
        return run

    run = ran(rate)
    short = 1.0 - run.attainment_frac / asked.slo.quantile
    if short > LATE_ENOUGH:
        rate *= 1.0 - LATE_WEIGHT * short
        run = ran(rate)
    found = Found(cell=cell, cells=one.cells, rate_request_per_s=rate, alone={})
    solved = design.Solved(
        plan=plan, found=found, measured=measure(run, cell, site=asked.site), reason=None
    )
    record = design.record(solved, budget=asked.budget)
    # At a load near the edge a minute may miss what the hour meets: the closed form judges that.
    return msgspec.structs.replace(
        record,
        feasible=True,
        reason=None,
        goodput_request_per_s=rate * one.cells * asked.slo.quantile,
    )


def cell_of(plan: DesignPlan, one: Estimate) -> Cell:
    """Return the cell that the closed form chose.

    Args:
        plan: The design.
        one: Its estimate.
    """
    groups = tuple(
        group(
            pool.server,
            role=pool.role,
            tp=one.tp[pool.role],
            chunk_tok=one.chunk_tok[pool.role],
            serving=plan.serving,
            count=one.cell[pool.role],
        )
        for pool in plan.pools
    )
    return Cell(groups=groups, serving=plan.serving, disaggregate=plan.disaggregate)


def traffic_of(base: Point, quick: dict[str, float], *, request_per_s: float) -> Traffic:
    """Return a sample of the traffic, heavy enough for a load.

    Args:
        base: The scenario.
        quick: Changes of its numbers by bare name.
        request_per_s: Load of the cell [request/s].
    """
    work = base.scenario.workload
    name, seed, correlation_s = _named(base, quick)
    rows = _arrivals(name, seed, correlation_s=correlation_s, request_per_s=request_per_s)
    requests = _requests(
        rows,
        name,
        seed,
        context_tok=quick.get("context_tok", work.context_tok),
        output_tok=quick.get("output_tok", work.output_tok),
        cached_frac=quick.get("cached_frac", work.cached_frac),
        shared_tok=int(work.shared_prefix_tok),
        max_context_tok=base.asked.shape.max_context_tok,
    )
    span_s = requests.duration_ps / 1e12
    return Traffic(
        requests=requests,
        mark=rows.mark,
        full_request_per_s=rows.full_request_per_s,
        most_request_per_s=rows.max_request_per_s,
        span_s=span_s,
        warm_up_frac=min(WARM_UP_S / span_s, 0.5),
    )


def warm(setup: Setup) -> Iterator[None]:
    """Draw the arrivals of every load a slider may ask for next, one draw a step.

    Args:
        setup: Plain numbers only.
    """
    point, changes = closed_form.asked(setup)
    base, quick = point.standing(changes)
    name, seed, correlation_s = _named(base, quick)
    full = moments.trace_of(name, seed).request_per_s
    for doubling in range(DOUBLINGS):
        for share in (0.6, 0.99):
            load = full * 2**doubling * share / HEAD_ROOM
            _arrivals(name, seed, correlation_s=correlation_s, request_per_s=load)
            yield


def _named(base: Point, quick: dict[str, float]) -> tuple[str, int, float]:
    """Return the trace, its seed, and how far its copies are shifted at most [s]."""
    work = base.scenario.workload
    name = work.preset or work.trace or "azure-2023-conv"
    return name, base.scenario.seed, quick.get("correlation_s", work.correlation_s)


def _arrivals(name: str, seed: int, *, correlation_s: float, request_per_s: float) -> Superposed:
    """Return a sample heavy enough for a load; neighbouring loads share it."""
    trace = moments.trace_of(name, seed)
    needed = max(HEAD_ROOM * request_per_s / trace.request_per_s, 1.0)
    period_s = next(
        (p for p in PERIODS_S if request_per_s * trace.duration_s * KEEP_S / p <= MOST_REQUESTS),
        PERIODS_S[-1],
    )
    copies = 2 ** math.ceil(math.log2(needed))
    return _rows(name, seed, copies=copies, correlation_s=correlation_s, period_s=period_s)


@lru_cache(maxsize=20)
def _rows(
    name: str, seed: int, *, copies: int, correlation_s: float, period_s: float
) -> Superposed:
    """Return who arrives when; lengths are looked up apart, for they change with the sliders."""
    trace = moments.trace_of(name, seed)
    return workload.superpose(
        trace,
        copies=copies,
        seed=seed,
        max_request_per_s=copies * trace.request_per_s,
        correlation_s=correlation_s,
        fold=workload.Fold(period_s=period_s, keep_s=KEEP_S),
    )


@lru_cache(maxsize=6)
def _requests(
    rows: Superposed,
    name: str,
    seed: int,
    *,
    context_tok: float | None,
    output_tok: float | None,
    cached_frac: float,
    shared_tok: int,
    max_context_tok: int,
) -> Requests:
    trace = moments.scaled_of(
        name,
        seed,
        context_tok=context_tok,
        output_tok=output_tok,
        max_context_tok=max_context_tok,
    )
    present = workload.cached_tok(trace.isl_tok, cached_frac=cached_frac)
    if shared_tok:
        # What all requests share is present wherever they go.
        present = np.maximum(present, np.minimum(trace.isl_tok - 1, shared_tok))
    return replace(
        rows.requests,
        isl_tok=trace.isl_tok.astype(np.uint32)[rows.index],
        osl_tok=trace.osl_tok.astype(np.uint32)[rows.index],
        cached_tok=present.astype(np.uint32)[rows.index],
    )
