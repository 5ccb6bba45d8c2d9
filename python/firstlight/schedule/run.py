"""`run`: requests over a fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from firstlight.errors import ScheduleError
from firstlight.schedule.compiled import compiled, engine, gap_edges_ps
from firstlight.schedule.outcome import NEVER, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from firstlight import _core
    from firstlight.schedule.arrivals import Arrivals
    from firstlight.schedule.fault import Fault
    from firstlight.schedule.fleet import Fleet
    from firstlight.schedule.outcome import Limits

EVENTS_A_CALL = 100_000
"""Events between two looks at Ctrl-C: some hundredths of a second."""


def loaded(
    fleet: Fleet, arrivals: Arrivals, *, record: bool = False, faults: Sequence[Fault] = ()
) -> _core.Engine:
    """Return the engine of a fleet at time 0 with its requests still to come.

    Args:
        fleet: What serves them.
        arrivals: The requests.
        record: Keep a timeline of what every replica did.
        faults: What breaks, and when.

    Raises:
        ScheduleError: The fleet, the requests or the faults are malformed.
    """
    core = engine(fleet)
    if record:
        core.record()
    try:
        core.push(
            arrivals.arrival_ps,
            arrivals.isl_tok,
            arrivals.cached_tok,
            arrivals.osl_tok,
            _or_none(arrivals.keep, np.bool_),
            _or_none(arrivals.unit_from, np.uint64),
            _or_none(arrivals.unit_of, np.uint32),
            _or_none(arrivals.follow_from, np.uint64),
            _or_none(arrivals.follow_of, np.uint32),
            _or_none(arrivals.think_ps, np.uint64),
        )
        core.keep_in_flight(arrivals.in_flight)
        for fault in faults:
            core.add_fault(
                kind=fault.kind,
                replica=fault.replica,
                from_ps=fault.from_ps,
                until_ps=fault.until_ps,
                table=None if fault.table is None else compiled(fault.table),
                slower_1024=round(fault.slower * 1024),
            )
    except (ValueError, TypeError, OverflowError) as error:
        raise ScheduleError(str(error)) from error
    return core


def run(
    fleet: Fleet,
    arrivals: Arrivals,
    *,
    window_ps: tuple[int, int] | None = None,
    drain_ps: int = NEVER,
    limits: Limits | None = None,
    record: bool = False,
    faults: Sequence[Fault] = (),
    cancelled: Callable[[], bool] | None = None,
) -> Outcome:
    """Run requests over a fleet.

    Args:
        fleet: What serves them.
        arrivals: The requests.
        window_ps: Start and end of the time in which counters and gaps are taken; the whole run
            when omitted. Requests are all reported, whenever they arrive.
        drain_ps: When to stop even if requests are unfinished [ps].
        limits: Stop early when more requests that arrive inside the window miss these limits.
        record: Keep a timeline of what every replica did.
        faults: What breaks, and when.
        cancelled: Asked a few times a second; the run stops with `KeyboardInterrupt` when true.

    Raises:
        ScheduleError: The fleet or the requests are malformed.
        KeyboardInterrupt: The run was cancelled.
    """
    core = loaded(fleet, arrivals, record=record, faults=faults)
    if limits is not None:
        core.watch(
            from_ps=window_ps[0] if window_ps else 0,
            ttft_ps=limits.ttft_ps,
            tpot_ps=limits.tpot_ps,
            allowed=limits.misses,
        )
    none = tuple(dict.fromkeys(counters, 0) for counters in core.counters())
    before, gaps_before = none, (np.zeros_like(gap_edges_ps()), 0)
    after, gaps_after = None, None
    stopped = False
    if window_ps is not None:
        stopped = _advance(core, window_ps[0], cancelled)
        before, gaps_before = tuple(core.counters()), core.gaps()
        stopped = stopped or _advance(core, window_ps[1], cancelled)
        after, gaps_after = tuple(core.counters()), core.gaps()
    stopped = stopped or _advance(core, drain_ps, cancelled)
    total = tuple(core.counters())
    after, gaps_after = after or total, gaps_after or core.gaps()
    end_ps = _last_event(core, drain_ps)
    return Outcome(
        offered=arrivals,
        core=core,
        window=tuple(
            {name: late[name] - early[name] for name in late}
            for early, late in zip(before, after, strict=True)
        ),
        total=total,
        gap_counts=gaps_after[0] - gaps_before[0],
        gap_sum_ps=gaps_after[1] - gaps_before[1],
        window_ps=window_ps or (0, end_ps),
        end_ps=end_ps,
        events=core.events,
        stopped=stopped,
        free_blocks=tuple(core.free_blocks()),
        timeline=core.timeline() if record else None,
    )


def _advance(core: _core.Engine, until_ps: int, cancelled: Callable[[], bool] | None) -> bool:
    while True:
        stop = core.advance(until_ps, EVENTS_A_CALL)
        if stop != "paused":
            return stop == "missed"
        if cancelled is not None and cancelled():
            raise KeyboardInterrupt


def _last_event(core: _core.Engine, drain_ps: int) -> int:
    if drain_ps < NEVER:
        return core.now_ps
    last = core.requests()["last_ps"]
    last = last[last < NEVER]
    return int(last.max()) if len(last) else core.now_ps


def _or_none(values: NDArray[Any] | None, kind: type[np.generic]) -> NDArray[Any]:
    return np.empty(0, kind) if values is None else values
