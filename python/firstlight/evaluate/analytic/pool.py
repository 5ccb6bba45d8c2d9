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

from firstlight.errors import InfeasibleError, ModelError
from firstlight.evaluate import screen
from firstlight.evaluate.analytic.unit import unit
from firstlight.evaluate.cell import fitting_tp

if TYPE_CHECKING:
    from firstlight import _core
    from firstlight.evaluate.analytic.load import Load
    from firstlight.evaluate.analytic.unit import Unit
    from firstlight.evaluate.capacity import Slo
    from firstlight.evaluate.cell import Serving
    from firstlight.evaluate.screen import PoolPlan
    from firstlight.evaluate.servers import Server

CROWD = 6
"""Prefill servers of a large cell; long prompts hold up others less where there are more."""
RATE_FRAC = {"prefill": 1.0, "decode": 1.03, "mixed": 0.88}
"""Simulated over closed-form capacity, fitted to whole designs; see docs/analytic.md."""


@dataclass(frozen=True, kw_only=True)
class Alone:
    """One pool by itself.

    Attributes:
        server: The server.
        unit: The server in its role.
        steps: Its step table at the batch sizes of this traffic.
        rate_request_per_s: What one server carries within the service level [request/s].
        crowd_frac: What each of `CROWD` servers of one queue carries, over one alone.
    """

    server: Server
    unit: Unit
    steps: _core.Alone
    rate_request_per_s: float
    crowd_frac: float = 1.0

    def together(self, count: int) -> float:
        """Return what servers that share one queue carry [request/s]."""
        share = min(math.log(count) / math.log(CROWD), 1.0)
        return count * self.rate_request_per_s * (1.0 + (self.crowd_frac - 1.0) * share)


def carried(steps: _core.Alone, *, slo: Slo, count: int = 1, beat: float = 0.0) -> float:
    """Return the highest load servers carry within the service level, before any fit [request/s].

    Args:
        steps: One server.
        slo: The service level.
        count: Servers that share one queue.
        beat: What has to be beaten; 0 is returned when it is not [request/s].
    """
    return steps.carried(
        count=count,
        ttft_s=slo.ttft_s,
        tpot_s=slo.tpot_s,
        decode_wait_s=screen.DECODE_WAIT_STEPS * slo.tpot_s,
        quantile=slo.quantile,
        beat=beat,
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
    # A server's price may differ from that of the one that was looked up.
    return replace(best, server=pool.server)


@lru_cache(maxsize=1024)
def _alone(key: _Key, *, serving: Serving, load: Load, slo: Slo) -> Alone:
    pool = key.pool

    def tried(made: tuple[Unit, ...], best: Alone | None) -> Alone:
        steps = [one.steps(load, serving) for one in made]
        bounds = [step.bound() for step in steps]
        for bound, one, step in sorted(zip(bounds, made, steps, strict=True), key=lambda x: -x[0]):
            # What cannot carry more than the best needs no closer look.
            if best is None or bound * RATE_FRAC[one.role] > best.rate_request_per_s:
                beat = 0.0 if best is None else best.rate_request_per_s / RATE_FRAC[one.role]
                rate = carried(step, slo=slo, beat=beat) * RATE_FRAC[one.role]
                if best is None or rate > best.rate_request_per_s:
                    best = Alone(server=pool.server, unit=one, steps=step, rate_request_per_s=rate)
        if best is None:
            raise ModelError(f"{pool.server.id} as {pool.role}: no parallelism to try")
        return best

    first, further = _units(key, serving)
    best = tried(first, None)
    best = tried(further.get(best.unit.tp, ()), best)
    if pool.role != "prefill" or best.rate_request_per_s <= 0:
        return best
    rate = carried(best.steps, slo=slo, count=CROWD) * RATE_FRAC["prefill"]
    return replace(best, crowd_frac=max(rate / CROWD / best.rate_request_per_s, 1.0))


@lru_cache(maxsize=512)
def _units(key: _Key, serving: Serving) -> tuple[tuple[Unit, ...], dict[int, tuple[Unit, ...]]]:
    """Return what is tried first, and by parallelism what is tried with the best of them."""
    pool = key.pool

    def made(tp: int, chunk_tok: int) -> Unit:
        return unit(pool.server, role=pool.role, tp=tp, chunk_tok=chunk_tok, serving=serving)

    first, further = _options(pool, serving)
    degrees = [tp for tp, _ in first]
    return (
        tuple(made(tp, chunk) for tp, chunk in first),
        {tp: tuple(made(tp, chunk) for chunk in further) for tp in degrees},
    )


def _options(pool: PoolPlan, serving: Serving) -> tuple[list[tuple[int, int]], tuple[int, ...]]:
    """Return (parallelism, chunk) to try first, and the chunks to try with the best of them."""
    if pool.server.engine is not None:
        return [(1, pool.chunk_tok or 0)], ()
    degrees = _fitting(pool.server, serving) if pool.tp is None else (pool.tp,)
    chunks = {
        "mixed": screen.CHUNKS_MIXED_TOK,
        "prefill": screen.CHUNKS_PREFILL_TOK,
        "decode": (screen.CHUNK_DECODE_TOK,),
    }[pool.role]
    if pool.chunk_tok is not None:
        chunks = (pool.chunk_tok,)
    return [(tp, chunks[0]) for tp in degrees], chunks[1:]


_FITTING: dict[tuple[str, Serving], tuple[int, ...]] = {}


def _fitting(server: Server, serving: Serving) -> tuple[int, ...]:
    key = server.id, serving
    if key not in _FITTING:
        _FITTING[key] = fitting_tp(server, serving=serving)
    return _FITTING[key]
