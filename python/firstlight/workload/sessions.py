"""Sessions: requests that wait for one another, and prompts that grow from those before them.

    session 1   ├─turn─┤ think ├─turn─┤ think ├──turn──┤
    session 2        ├─turn─┤   think   ├─turn─┤ ...

A turn comes after the answer of the one before it and a pause: a tool at work, or a person. Its
prompt mostly begins with the prompt before it, which the ids of its cache units say.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from firstlight.errors import TraceError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    U32 = NDArray[np.uint32]
    U64 = NDArray[np.uint64]

SESSIONS = {
    "agentic": "24 sessions of a coding agent, 724 requests: callanjfox/kv-cache-tester traces/ "
    "@94f6046d (Apache-2.0)",
}
"""Shipped sessions by name, and where they come from (`data/ATTRIBUTION.md`)."""

BLOCK_TOK = 64
"""Tokens that an id of the shipped sessions stands for."""

PS_PER_MS, PS_PER_S = 10**9, 10**12
MOST_UNITS = 1 << 31
MOST_START_S = 1e7


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sessions:
    """Requests of sessions, those of one session side by side, sessions by their start.

    Attributes:
        arrival_ps: Start of the session of each request, (requests,) [ps].
        isl_tok: Prompts, (requests,) [tok].
        osl_tok: Answers, (requests,) [tok].
        unit_from: Where the units of each request begin in `unit_of`, (requests + 1,).
        unit_of: Ids of whole units from the start of each prompt; an id stands for its unit and all
            before it.
        follow_from: Where the requests that each waits for begin in `follow_of`, (requests + 1,).
        follow_of: The turn before, for every request but the first of its session.
        think_ps: From the end of that turn to the request, (requests,) [ps].
        session_of: Session of each request, (requests,).
        unit_tok: Tokens in a unit: what `Fleet.unit_tok` has to be [tok].
        source: Where they come from.
    """

    arrival_ps: U64
    isl_tok: U32
    osl_tok: U32
    unit_from: U64
    unit_of: U32
    follow_from: U64
    follow_of: U32
    think_ps: U64
    session_of: U32
    unit_tok: int
    source: str

    def columns(self) -> Mapping[str, NDArray[np.uint32] | NDArray[np.uint64]]:
        """Return what `firstlight.schedule.Arrivals` takes, by name."""
        return {
            "arrival_ps": self.arrival_ps,
            "isl_tok": self.isl_tok,
            "cached_tok": np.zeros_like(self.isl_tok),
            "osl_tok": self.osl_tok,
            "unit_from": self.unit_from,
            "unit_of": self.unit_of,
            "follow_from": self.follow_from,
            "follow_of": self.follow_of,
            "think_ps": self.think_ps,
        }


def draw_sessions(
    name: str = "agentic",
    *,
    count: int = 24,
    session_per_s: float,
    seed: int = 0,
    unit_tok: int = BLOCK_TOK,
    longest_think_s: float | None = None,
) -> Sessions:
    """Return `count` sessions that start at random, at a constant mean rate.

    Every shipped session comes once, in a drawn order, before one comes again; copies share no
    units. Nor do different sessions: their common system prompt is not in the published ids.

    Args:
        name: A key of `SESSIONS`.
        count: Sessions.
        session_per_s: Mean rate of starts (Poisson: an assumption) [1/s].
        seed: Seed of starts and order.
        unit_tok: Tokens in a cache unit, a multiple of 64 [tok].
        longest_think_s: Longer pauses become as long as this (a person came back the next day);
            None: as they were [s].

    Raises:
        TraceError: When the name is unknown or a value is out of range.

    Examples:
        >>> made = draw_sessions(count=24, session_per_s=0.1)
        >>> len(made.isl_tok), len(made.follow_of), int(made.isl_tok.max())
        (724, 700, 706227)
    """
    _check(name, count, session_per_s, seed, unit_tok, longest_think_s)
    shipped = _shipped(name)
    starts, order = (np.random.default_rng(each) for each in np.random.SeedSequence(seed).spawn(2))
    turns = shipped["turns"].astype(np.int64)
    laps = -(-count // len(turns))
    drawn = np.concatenate([order.permutation(len(turns)) for _ in range(laps)])[:count]
    begin_ps = np.floor(np.cumsum(starts.exponential(1 / session_per_s, count)) * PS_PER_S)
    if begin_ps[-1] > MOST_START_S * PS_PER_S:
        raise TraceError(
            f"{count} sessions at {session_per_s:g} a second start over "
            f"{begin_ps[-1] / PS_PER_S:.3g} s; at most {MOST_START_S:g} s"
        )
    first_turn = np.concatenate([[0], np.cumsum(turns)])
    rows = np.concatenate([np.arange(first_turn[s], first_turn[s + 1]) for s in drawn])
    session_of = np.repeat(np.arange(count), turns[drawn])
    units = _units(shipped, unit_tok)
    span = max((int(ids.max()) for ids in units if len(ids)), default=0) + 1
    if span * count > MOST_UNITS:
        raise TraceError(f"count = {count} has too many cache units; at most {MOST_UNITS // span}")
    chosen = [units[row] + span * lap for row, lap in zip(rows, session_of, strict=True)]
    follows = np.concatenate([[False], session_of[1:] == session_of[:-1]])
    think_ps = shipped["think_ms"][rows].astype(np.uint64) * np.uint64(PS_PER_MS)
    if longest_think_s is not None:
        think_ps = np.minimum(think_ps, np.uint64(round(longest_think_s * PS_PER_S)))
    return Sessions(
        arrival_ps=begin_ps[session_of].astype(np.uint64),
        isl_tok=shipped["isl_tok"][rows].astype(np.uint32),
        osl_tok=shipped["osl_tok"][rows].astype(np.uint32),
        unit_from=np.cumsum([0, *map(len, chosen)]).astype(np.uint64),
        unit_of=np.concatenate(chosen).astype(np.uint32),
        follow_from=np.concatenate([[0], np.cumsum(follows)]).astype(np.uint64),
        follow_of=(np.flatnonzero(follows) - 1).astype(np.uint32),
        think_ps=np.where(follows, think_ps, np.uint64(0)),
        session_of=session_of.astype(np.uint32),
        unit_tok=unit_tok,
        source=SESSIONS[name],
    )


def _check(
    name: str,
    count: int,
    session_per_s: float,
    seed: int,
    unit_tok: int,
    longest_think_s: float | None,
) -> None:
    if name not in SESSIONS:
        raise TraceError(
            f"sessions {name!r} are not shipped; one of {', '.join(SESSIONS)}"
            f"{nearest(name, SESSIONS)}"
        )
    if isinstance(count, bool) or count < 1:
        raise TraceError(f"count: {count!r} is not allowed; a whole number ≥ 1")
    if not (math.isfinite(session_per_s) and session_per_s > 0):
        raise TraceError(f"session_per_s: {session_per_s!r} is not allowed; above 0")
    if isinstance(seed, bool) or seed < 0:
        raise TraceError(f"seed: {seed!r} is not allowed; a whole number ≥ 0")
    if unit_tok < BLOCK_TOK or unit_tok % BLOCK_TOK:
        raise TraceError(f"unit_tok: {unit_tok!r} is not allowed; a multiple of {BLOCK_TOK}")
    if longest_think_s is not None and not 0 <= longest_think_s <= MOST_START_S:
        raise TraceError(
            f"longest_think_s: {longest_think_s!r} is not allowed; 0 to {MOST_START_S:g}, or None"
        )


def _units(shipped: Mapping[str, NDArray[np.uint32]], unit_tok: int) -> list[NDArray[np.int64]]:
    """Return the ids of whole units of every shipped request.

    Ids are chained: one stands for its block and all before it. So that of a longer unit is that
    of its last block.
    """
    runs = np.concatenate([[0], np.cumsum(shipped["run_count"], dtype=np.int64)])
    first, length = (shipped[name].astype(np.int64) for name in ("run_first", "run_length"))
    step = unit_tok // BLOCK_TOK
    found = []
    for row in range(len(shipped["isl_tok"])):
        mine = range(int(runs[row]), int(runs[row + 1]))
        ids = [np.arange(first[run], first[run] + length[run]) for run in mine]
        found.append(np.concatenate([np.empty(0, np.int64), *ids])[step - 1 :: step])
    return found


def _shipped(name: str) -> dict[str, NDArray[np.uint32]]:
    from importlib.resources import as_file, files

    place = files("firstlight.workload") / "data" / f"{name}-sessions.npz"
    with as_file(place) as file, np.load(file) as archive:
        return {key: archive[key] for key in archive.files}
