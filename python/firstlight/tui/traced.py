"""A few seconds of a simulated cell: what each device did, and what each request waited for.

The scheduler records every step with prompt work and every run of decode steps. A pass on a prefill
replica is named after the first request whose first token comes at its end. The hand-over of a
request is drawn as long as its bytes take; when links queue it takes longer, at the cost of decode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from firstlight import schedule
from firstlight.errors import ScenarioError, nearest
from firstlight.tui import closed_form, coarse
from firstlight.tui.answer import Lane, Life, Span, Timeline
from firstlight.tui.solver import Cancelled

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from firstlight.evaluate.cell import Cell, Group
    from firstlight.tui.solver import Cancel
    from firstlight.tui.state import Setup

    Rows = dict[str, NDArray[Any]]

PS_PER_S = 1e12
BEGIN_S = 14.0
"""When the window begins: by then a cell has filled up [s]."""
WINDOW_S = 4.0
END_S = BEGIN_S + WINDOW_S
SAMPLES = 200
AFTER_S = 60.0
"""How long after the window requests are followed [s]."""
MOST_LANES = 8
"""Replicas of a pool that are shown."""


def timeline(setup: Setup, *, design: str, cancel: Cancel) -> Timeline:
    """Return a window of one design's cell at its capacity.

    Args:
        setup: Plain numbers only.
        design: Name of the design.
        cancel: Polled while simulating.

    Raises:
        ScenarioError: There is no such design, or it carries nothing.
        Cancelled: A newer question arrived.
    """
    point, changes = closed_form.asked(setup)
    base, quick = point.standing(changes)
    _, plans = point.resolved(changes)
    if design not in plans:
        raise ScenarioError(
            f"no design {design!r}; allowed: {', '.join(plans)}{nearest(design, plans)}"
        )
    one = base.quick(quick, only=frozenset({design}))[design]
    if not one.feasible:
        raise ScenarioError(f"{design}: {one.reason}")
    rate = one.request_per_s / one.cells
    cell = coarse.cell_of(plans[design], one)
    arrivals = coarse.traffic_of(base, quick, request_per_s=rate).at(rate)
    try:
        outcome = schedule.run(
            cell.fleet,
            arrivals,
            drain_ps=round((END_S + AFTER_S) * PS_PER_S),
            record=True,
            cancelled=lambda: cancel.is_set,
        )
    except KeyboardInterrupt:
        if cancel.is_set:
            raise Cancelled from None
        raise
    return Timeline(
        start_s=BEGIN_S,
        end_s=END_S,
        lanes=tuple(_lanes(cell, outcome)),
        lives=tuple(_lives(cell, outcome)),
    )


def _lanes(cell: Cell, outcome: schedule.Outcome) -> list[Lane]:
    every: Rows = outcome.timeline or {}
    inside = (every["end_ps"] > BEGIN_S * PS_PER_S) & (every["start_ps"] < END_S * PS_PER_S)
    rows = {name: column[inside] for name, column in every.items()}
    ended = {
        int(t): request
        for request, t in reversed(list(enumerate(outcome.first_ps.tolist())))
        if BEGIN_S * PS_PER_S <= t < (END_S + AFTER_S) * PS_PER_S
    }
    lanes: list[Lane] = []
    first = 0
    for group in cell.groups:
        count = group.count * group.replicas
        for replica in range(min(count, MOST_LANES)):
            mine = rows["replica"] == first + replica
            its = {name: column[mine] for name, column in rows.items()}
            lanes.append(_lane(group, replica, its, ended))
        first += count
    if len(cell.groups) > 1:
        lanes.append(_link(cell, outcome))
    return lanes


def _link(cell: Cell, outcome: schedule.Outcome) -> Lane:
    """Return the hand-over of keys and values: how many of the decode replicas' links are busy."""
    begin_s = outcome.first_ps / PS_PER_S
    took_ps = cell.fleet.link_latency_ps + outcome.arrivals.isl_tok * float(cell.fleet.link_tok_ps)
    end_s = begin_s + took_ps / PS_PER_S
    inside = (end_s > BEGIN_S) & (begin_s < END_S)
    begin_s, end_s = np.maximum(begin_s[inside], BEGIN_S), np.minimum(end_s[inside], END_S)
    links = sum(g.count * g.replicas for g in cell.groups if g.role == "decode")
    times = np.linspace(BEGIN_S, END_S, SAMPLES)
    step_s = times[1] - times[0]
    # The share of each sample's time, for most hand-overs are shorter than a sample.
    done = [
        np.clip(t - begin_s, 0.0, end_s - begin_s).sum()
        for t in (BEGIN_S - step_s, *times.tolist())
    ]
    busy = np.clip(np.diff(done) / step_s / links, 0.0, 1.0)
    return Lane(
        name="KV link",
        busy_frac=float(min((end_s - begin_s).sum() / WINDOW_S / links, 1.0)),
        occupancy=tuple(busy.tolist()),
        kind="transfer",
    )


def _lane(group: Group, replica: int, rows: Rows, ended: dict[int, int]) -> Lane:
    start_s, end_s = rows["start_ps"] / PS_PER_S, rows["end_ps"] / PS_PER_S
    busy_s = (np.minimum(end_s, END_S) - np.maximum(start_s, BEGIN_S)).sum()
    busy = float(min(busy_s / WINDOW_S, 1.0))
    if group.role != "prefill":
        return Lane(
            name=f"GPU{replica} {'dec' if group.role == 'decode' else 'both'}",
            busy_frac=busy,
            occupancy=_filled(start_s, end_s, rows["decode_seqs"], most=group.max_seqs),
        )
    kind = "optics" if group.server.kind == "optical" else "prefill"
    spans = tuple(
        Span(
            start_s=float(a),
            end_s=float(b),
            kind=kind,
            request=f"r{ended[int(t)]}" if int(t) in ended else "",
        )
        for a, b, t in zip(start_s, end_s, rows["end_ps"], strict=True)
    )
    name = f"OPT{replica}" if kind == "optics" else f"GPU{replica} pre"
    return Lane(name=name, busy_frac=busy, spans=spans)


def _filled(
    start_s: NDArray[np.float64], end_s: NDArray[np.float64], seqs: NDArray[Any], *, most: int
) -> tuple[float, ...]:
    """Return the sequences that decode over the most there may be, sampled over the window."""
    if not len(start_s):
        return (0.0,) * SAMPLES
    times = np.linspace(BEGIN_S, END_S, SAMPLES)
    row = np.clip(np.searchsorted(start_s, times, side="right") - 1, 0, len(start_s) - 1)
    level = np.where((times >= start_s[row]) & (times < end_s[row]), seqs[row] / most, 0.0)
    return tuple(np.clip(level, 0.0, 1.0).tolist())


def _lives(cell: Cell, outcome: schedule.Outcome) -> list[Life]:
    """Return the requests that arrive in the window and are done before long."""
    fleet = cell.fleet
    lives = []
    columns = (outcome.arrival_ps, outcome.started_ps, outcome.first_ps, outcome.last_ps)
    inside = (columns[0] >= BEGIN_S * PS_PER_S) & (columns[0] < END_S * PS_PER_S)
    for request in np.flatnonzero(inside & (columns[3] < schedule.NEVER)).tolist():
        arrival_s, started_s, first_s, last_s = (int(c[request]) / PS_PER_S for c in columns)
        handed_s = first_s
        if len(cell.groups) > 1:
            tokens = int(outcome.arrivals.isl_tok[request])
            handed_s += (fleet.link_latency_ps + tokens * fleet.link_tok_ps) / PS_PER_S
        handed_s = min(handed_s, last_s)
        stages = (
            Span(start_s=arrival_s, end_s=started_s, kind="queue"),
            Span(start_s=started_s, end_s=first_s, kind="prefill"),
            Span(start_s=first_s, end_s=handed_s, kind="transfer"),
            Span(start_s=handed_s, end_s=last_s, kind="decode"),
        )
        lives.append(
            Life(request=f"r{request}", stages=tuple(s for s in stages if s.end_s > s.start_s))
        )
    return lives
