"""One pool alone: the highest load its servers carry within the service level.

The formulas are compiled (`src/analytic`): a prefill pool is a gated queue (a step takes what
waits, up to the chunk); a decode pool holds as many sequences as its arrivals need; a mixed pool
does both, prefill stretching the steps of decode. Their plain form in NumPy is in the tests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from firstlight import _core
from firstlight.errors import InfeasibleError, ModelError
from firstlight.evaluate import screen
from firstlight.evaluate.cell import fitting_tp, group, room_tok
from firstlight.schedule.compiled import compiled

if TYPE_CHECKING:
    from firstlight.evaluate.analytic.load import Load
    from firstlight.evaluate.capacity import Slo
    from firstlight.evaluate.cell import Group, Role, Serving
    from firstlight.evaluate.screen import PoolPlan
    from firstlight.evaluate.servers import Server

FEMTO = 1e15
CROWD = 6
"""Prefill servers of a large cell; long prompts hold up others less where there are more."""
RATE_FRAC = {"prefill": 1.0, "decode": 1.03, "mixed": 0.93}
"""Simulated over closed-form capacity, fitted to whole designs; see docs/analytic.md."""


@dataclass(frozen=True, kw_only=True)
class Alone:
    """One pool by itself.

    Attributes:
        group: One server in its role.
        steps: Its step table at the batch sizes of this traffic.
        rate_request_per_s: What one server carries within the service level [request/s].
        crowd_frac: What each of `CROWD` servers of one queue carries, over one alone.
    """

    group: Group
    steps: _core.Alone
    rate_request_per_s: float
    crowd_frac: float = 1.0

    def together(self, count: int) -> float:
        """Return what servers that share one queue carry [request/s]."""
        share = min(math.log(count) / math.log(CROWD), 1.0)
        return count * self.rate_request_per_s * (1.0 + (self.crowd_frac - 1.0) * share)


def steps_of(made: Group, *, load: Load, serving: Serving) -> _core.Alone:
    """Return one server's step table at the batch sizes that matter for a traffic.

    Args:
        made: One server in its role.
        load: The traffic.
        serving: How the model is served.
    """
    return _core.Alone(
        role=made.role,
        replicas=made.replicas,
        table=compiled(made.table),
        chunk_tok=made.chunk_tok,
        max_seqs=made.max_seqs,
        kv_blocks=made.kv_blocks,
        block_tok=serving.block_tok,
        moments=load.moments,
    )


def carried(steps: _core.Alone, *, slo: Slo, count: int = 1) -> float:
    """Return the highest load servers carry within the service level, before any fit [request/s].

    Args:
        steps: One server.
        slo: The service level.
        count: Servers that share one queue.
    """
    return steps.carried(
        count=count,
        ttft_s=slo.ttft_s,
        tpot_s=slo.tpot_s,
        decode_wait_s=screen.DECODE_WAIT_STEPS * slo.tpot_s,
        quantile=slo.quantile,
    )


@dataclass(frozen=True, eq=False)
class _Key:
    """A pool that is looked up by what decides its load, not by what it costs."""

    pool: PoolPlan

    @cached_property
    def parts(self) -> tuple[object, ...]:
        """What decides the load."""
        pool = self.pool
        return pool.server.id, pool.server.engine, pool.role, pool.tp, pool.chunk_tok

    def __hash__(self) -> int:
        return hash(self.parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.parts == other.parts


def alone(pool: PoolPlan, *, serving: Serving, load: Load, slo: Slo) -> Alone:
    """Return the best parallelism and chunk of a pool alone, and what one server then carries.

    Args:
        pool: The pool as asked for.
        serving: How the model is served.
        load: The traffic.
        slo: The service level.

    Raises:
        InfeasibleError: Nothing meets the service level.
        ModelError: The model does not fit.
    """
    best = _alone(_Key(pool), serving=serving, load=load, slo=slo)
    if best.rate_request_per_s <= 0:
        tpot = "" if pool.role == "prefill" else f" and TPOT {slo.tpot_s * 1e3:g} ms"
        raise InfeasibleError(
            f"{pool.server.id} as {pool.role} cannot meet TTFT {slo.ttft_s:g} s{tpot} for "
            f"{slo.quantile:.0%} of requests at any load"
        )
    # The group is made anew: its server's price may be another, and its table is large.
    made = _made(pool.server, role=pool.role, tp=best.tp, chunk_tok=best.chunk_tok, serving=serving)
    return Alone(
        group=made,
        steps=best.steps,
        rate_request_per_s=best.rate_request_per_s,
        crowd_frac=best.crowd_frac,
    )


@dataclass(frozen=True, kw_only=True)
class _Best:
    """The best parallelism and chunk of a pool, small enough to keep thousands."""

    tp: int
    chunk_tok: int
    steps: _core.Alone
    rate_request_per_s: float
    crowd_frac: float = 1.0


@lru_cache(maxsize=2048)
def _alone(key: _Key, *, serving: Serving, load: Load, slo: Slo) -> _Best:
    pool = key.pool
    fit = RATE_FRAC[pool.role]

    def tried(options: list[tuple[int, int]], best: _Best | None) -> _Best:
        found = []
        for tp, chunk in options:
            made = _made(pool.server, role=pool.role, tp=tp, chunk_tok=chunk, serving=serving)
            steps = steps_of(made, load=load, serving=serving)
            found.append((steps.bound(), tp, chunk, steps))
        for bound, tp, chunk, steps in sorted(found, key=lambda x: -x[0]):
            # What cannot carry more than the best needs no closer look.
            if best is None or bound * fit > best.rate_request_per_s:
                rate = carried(steps, slo=slo) * fit
                if best is None or rate > best.rate_request_per_s:
                    best = _Best(tp=tp, chunk_tok=chunk, steps=steps, rate_request_per_s=rate)
        if best is None:
            raise ModelError(f"{pool.server.id} as {pool.role}: no parallelism to try")
        return best

    first, further = _options(pool, serving, load=load)
    best = tried(first, None)
    best = tried([(best.tp, chunk) for chunk in further], best)
    if pool.role != "prefill" or best.rate_request_per_s <= 0:
        return best
    rate = carried(best.steps, slo=slo, count=CROWD) * fit
    return replace(best, crowd_frac=max(rate / CROWD / best.rate_request_per_s, 1.0))


def _options(
    pool: PoolPlan, serving: Serving, *, load: Load
) -> tuple[list[tuple[int, int]], tuple[int, ...]]:
    """Return (parallelism, chunk) to try first, and the chunks to try with the best of them."""
    if pool.server.engine is not None:
        return [(1, pool.chunk_tok or 0)], ()
    degrees = _fitting(pool.server, serving) if pool.tp is None else (pool.tp,)
    # A replica that could never hold the longest request would refuse it.
    longest = load.longest_prompt_tok if pool.role == "prefill" else load.longest_tok
    roomy = [tp for tp in degrees if room_tok(pool.server, tp=tp, serving=serving) >= longest]
    degrees = tuple(roomy) or degrees[-1:]
    chunks = {
        "mixed": screen.CHUNKS_MIXED_TOK,
        "prefill": screen.CHUNKS_PREFILL_TOK,
        "decode": (screen.CHUNK_DECODE_TOK,),
    }[pool.role]
    if pool.chunk_tok is not None:
        chunks = (pool.chunk_tok,)
    return [(tp, chunks[0]) for tp in degrees], chunks[1:]


_FITTING: dict[tuple[str, Serving], tuple[int, ...]] = {}
_GROUPS: dict[tuple[str, str, int, int, Serving], Group] = {}
MOST_GROUPS = 128
"""Groups that are kept; they share the tables of `evaluate.cell`."""


def _fitting(server: Server, serving: Serving) -> tuple[int, ...]:
    key = server.id, serving
    if key not in _FITTING:
        _FITTING[key] = fitting_tp(server, serving=serving)
    return _FITTING[key]


def _made(server: Server, *, role: Role, tp: int, chunk_tok: int, serving: Serving) -> Group:
    """Return one server in its role; GPU groups are kept, for only their server's price changes."""
    if server.engine is not None:
        return group(server, role=role, tp=tp, chunk_tok=chunk_tok, serving=serving)
    key = server.id, role, tp, chunk_tok, serving
    if key not in _GROUPS:
        while len(_GROUPS) >= MOST_GROUPS:
            _GROUPS.pop(next(iter(_GROUPS)), None)
        _GROUPS[key] = group(server, role=role, tp=tp, chunk_tok=chunk_tok, serving=serving)
    return replace(_GROUPS[key], server=server)
