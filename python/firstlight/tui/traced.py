"""A few seconds of a simulated cell: what each device did, and what each request waited for.

The scheduler keeps no log, so its engine is stopped at every admission and every few milliseconds
and asked. A pass on a prefill replica is known exactly: it begins where requests are admitted there
and ends where their first tokens come. How full a decode replica is, and where a request is between
its first token and its next, is known to a sample.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from firstlight import schedule
from firstlight.errors import ScenarioError, nearest
from firstlight.tui import closed_form, coarse
from firstlight.tui.answer import Lane, Life, Span, Timeline
from firstlight.tui.solver import Cancelled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from firstlight._core import Engine
    from firstlight.evaluate.cell import Cell, Group
    from firstlight.tui.solver import Cancel
    from firstlight.tui.state import Setup

PS_PER_S = 1e12
BEGIN_S = 14.0
"""When the window begins: by then a cell has filled up [s]."""
WINDOW_S = 4.0
SAMPLES = 400
AFTER_S = 60.0
"""How long after the window requests are followed [s]."""
MOST_LANES = 8
"""Replicas of a pool that are shown."""
_WAITS = {"handed": "queue", "pulling": "transfer", "ready": "stall"}
"""States between prompt and answer as kinds of span."""


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
    seen = _watched(cell, arrivals, cancel=cancel)
    return Timeline(
        start_s=BEGIN_S,
        end_s=BEGIN_S + WINDOW_S,
        lanes=tuple(_lanes(cell, seen)),
        lives=tuple(_lives(arrivals, seen)),
    )


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """What was seen of a run.

    Attributes:
        outcome: The run as a whole.
        times_s: Stops, ascending.
        free: Free KV blocks at each stop, (stops, replicas).
        counters: Of each pool at each stop.
        admitted: Replica to which each request was admitted first, by request.
        states: State of the requests that arrive in the window, (stops, requests).
        inside: These requests.
    """

    outcome: schedule.Outcome
    times_s: NDArray[np.float64]
    free: NDArray[np.int64]
    counters: list[list[dict[str, int]]]
    admitted: dict[int, int]
    states: NDArray[np.uint8]
    inside: NDArray[np.intp]


def _watched(cell: Cell, arrivals: schedule.Arrivals, *, cancel: Cancel) -> _Seen:
    start, end = (round(t * PS_PER_S) for t in (BEGIN_S, BEGIN_S + WINDOW_S))
    try:
        outcome = schedule.run(
            cell.fleet,
            arrivals,
            drain_ps=end + round(AFTER_S * PS_PER_S),
            cancelled=lambda: cancel.is_set,
        )
    except KeyboardInterrupt:
        if cancel.is_set:
            raise Cancelled from None
        raise
    started = outcome.started_ps
    now = (started >= start) & (started < end)
    stops = np.unique(
        np.concatenate([np.linspace(start, end, SAMPLES).astype(np.uint64), started[now]])
    )
    inside = np.flatnonzero((arrivals.arrival_ps >= start) & (arrivals.arrival_ps < end))
    engine = _begun(cell, arrivals, until_ps=start - 1)
    free, counters, states = [], [], []
    before = np.array(engine.free_blocks(), dtype=np.int64)
    admitted: dict[int, int] = {}
    entry = cell.groups[0].count * cell.groups[0].replicas
    begun = {int(t): np.flatnonzero(now & (started == t)) for t in np.unique(started[now])}
    for stop in stops.tolist():
        if cancel.is_set:
            raise Cancelled
        engine.advance(stop - 1, schedule.EVENTS_A_CALL)
        before = np.array(engine.free_blocks(), dtype=np.int64)
        engine.advance(stop, schedule.EVENTS_A_CALL)
        after = np.array(engine.free_blocks(), dtype=np.int64)
        if stop in begun:
            took = (before - after)[:entry]
            if took.max(initial=0) > 0:
                admitted |= dict.fromkeys(begun[stop].tolist(), int(took.argmax()))
        free.append(after)
        counters.append(engine.counters())
        states.append(engine.requests()["state"][inside].astype(np.uint8))
    return _Seen(
        outcome=outcome,
        times_s=stops / PS_PER_S,
        free=np.array(free),
        counters=counters,
        admitted=admitted,
        states=np.array(states),
        inside=inside,
    )


def _begun(cell: Cell, arrivals: schedule.Arrivals, *, until_ps: int) -> Engine:
    engine = schedule.loaded(cell.fleet, arrivals)
    while engine.advance(until_ps, schedule.EVENTS_A_CALL) == "paused":
        pass
    return engine


def _lanes(cell: Cell, seen: _Seen) -> list[Lane]:
    lanes: list[Lane] = []
    first = 0
    for index, group in enumerate(cell.groups):
        count = group.count * group.replicas
        lanes += [
            _prefill_lane(group, replica, seen)
            if group.role == "prefill"
            else _filled_lane(group, replica, seen, pool=index, column=first + replica)
            for replica in range(min(count, MOST_LANES))
        ]
        first += count
    if len(cell.groups) > 1:
        lanes.append(_link_lane(cell.groups[-1], seen))
    return lanes


def _prefill_lane(group: Group, replica: int, seen: _Seen) -> Lane:
    """Return the passes of a prefill replica, each named after its first request."""
    starts: dict[float, list[int]] = {}
    for request, where in seen.admitted.items():
        if where == replica:
            at_s = float(seen.outcome.started_ps[request] / PS_PER_S)
            starts.setdefault(at_s, []).append(request)
    kind = "optics" if group.server.kind == "optical" else "prefill"
    times = sorted(starts)
    spans = []
    for i, start_s in enumerate(times):
        ends = [int(seen.outcome.first_ps[r]) for r in starts[start_s]]
        end_s = max((t / PS_PER_S for t in ends if t < schedule.NEVER), default=start_s)
        if i + 1 < len(times):
            end_s = min(end_s, times[i + 1])
        if end_s > start_s:
            spans.append(
                Span(start_s=start_s, end_s=end_s, kind=kind, request=f"r{starts[start_s][0]}")
            )
    end = BEGIN_S + WINDOW_S
    busy_s = sum(min(span.end_s, end) - span.start_s for span in spans)
    name = f"OPT{replica}" if kind == "optics" else f"GPU{replica} pre"
    return Lane(name=name, busy_frac=min(busy_s / WINDOW_S, 1.0), spans=tuple(spans))


def _filled_lane(group: Group, replica: int, seen: _Seen, *, pool: int, column: int) -> Lane:
    """Return how full the KV memory of a replica is, with the busy share of its pool."""
    full = 1.0 - seen.free[:, column] / group.kv_blocks
    busy_ps = sum(
        seen.counters[-1][pool][name] - seen.counters[0][pool][name]
        for name in ("prefill_ps", "decode_ps")
    )
    seconds = seen.times_s[-1] - seen.times_s[0]
    busy = busy_ps / PS_PER_S / seconds / (group.count * group.replicas)
    name = f"GPU{replica} " + ("dec" if group.role == "decode" else "both")
    return Lane(name=name, busy_frac=min(busy, 1.0), occupancy=_even(seen.times_s, full))


def _link_lane(group: Group, seen: _Seen) -> Lane:
    """Return how busy the links into the decode replicas are."""
    sums = np.array([pools[-1]["link_ps"] for pools in seen.counters], dtype=np.float64) / PS_PER_S
    even = np.linspace(seen.times_s[0], seen.times_s[-1], SAMPLES // 4)
    used = np.diff(np.interp(even, seen.times_s, sums)) / np.diff(even)
    used /= group.count * group.replicas
    share = tuple(np.clip(used, 0.0, 1.0).tolist())
    return Lane(name="KV links", busy_frac=float(np.mean(share)), occupancy=share)


def _even(times_s: NDArray[np.float64], values: NDArray[np.float64]) -> tuple[float, ...]:
    even = np.linspace(times_s[0], times_s[-1], SAMPLES // 2)
    return tuple(np.clip(np.interp(even, times_s, values), 0.0, 1.0).tolist())


def _lives(arrivals: schedule.Arrivals, seen: _Seen) -> list[Life]:
    lives = []
    lanes = Counter(seen.admitted.values())
    for column, request in enumerate(seen.inside.tolist()):
        times = [
            int(x)
            for x in (
                arrivals.arrival_ps[request],
                seen.outcome.started_ps[request],
                seen.outcome.first_ps[request],
                seen.outcome.last_ps[request],
            )
        ]
        # Only whole lives, whose device is on the screen.
        if schedule.NEVER in times or (lanes and request not in seen.admitted):
            continue
        arrival_s, started_s, first_s, last_s = (t / PS_PER_S for t in times)
        waits = _between(seen, column, first_s)
        decode_s = max((span.end_s for span in waits), default=first_s)
        stages = [
            Span(start_s=arrival_s, end_s=started_s, kind="queue"),
            Span(start_s=started_s, end_s=first_s, kind="prefill"),
            *waits,
            Span(start_s=decode_s, end_s=last_s, kind="decode"),
        ]
        lives.append(
            Life(request=f"r{request}", stages=tuple(s for s in stages if s.end_s > s.start_s))
        )
    return lives


def _between(seen: _Seen, column: int, first_s: float) -> list[Span]:
    """Return what a request did between its first token and decode, as far as samples saw it."""
    spans = []
    begin = first_s
    for state, kind in _WAITS.items():
        rows = np.flatnonzero(seen.states[:, column] == schedule.STATES.index(state))
        if len(rows):
            end = float(seen.times_s[min(rows[-1] + 1, len(seen.times_s) - 1)])
            spans.append(Span(start_s=begin, end_s=max(end, begin), kind=kind))
            begin = max(end, begin)
    return spans
