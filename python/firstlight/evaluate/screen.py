"""What one server of a pool does alone, and at which parallelism and chunk it does most.

A pool alone is cheap to simulate: a prefill pool serves requests of one token, a decode pool serves
requests whose prompt is present.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from firstlight.errors import InfeasibleError
from firstlight.evaluate import capacity
from firstlight.evaluate.cell import Cell, Group, Role, Serving, fitting_tp, group
from firstlight.units import format_si

if TYPE_CHECKING:
    from collections.abc import Callable

    from firstlight.evaluate.capacity import Slo, Traffic
    from firstlight.evaluate.servers import Server
    from firstlight.schedule import Fleet

CHUNKS_MIXED_TOK = (2048, 512, 1024, 4096, 8192)
CHUNKS_PREFILL_TOK = (8192, 2048)
CHUNK_DECODE_TOK = 2048
PS_PER_S = 1e12
SCREEN_TOLERANCE_FRAC = 0.03
BETTER = 1.01
"""How much more a further choice must carry to replace the best so far."""
DECODE_WAIT_STEPS = 10
"""A decode pool alone may keep a request waiting this many output tokens' time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """One pool of a design as asked for; None means: find the best.

    Attributes:
        role: What the pool does.
        server: What it is made of.
        tp: GPUs to a replica.
        chunk_tok: Most tokens in a step [tok].
        share: Share of the facility's watts.
        count: Number of servers.
    """

    role: Role
    server: Server
    tp: int | None = None
    chunk_tok: int | None = None
    share: float | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Screened:
    """What one server of a pool does alone.

    Attributes:
        group: One server at its best parallelism and chunk.
        rate: What it carries in its role, the other phase being free [request/s].
    """

    group: Group
    rate: float


def screen(
    pool: PoolPlan,
    serving: Serving,
    *,
    traffic: Traffic,
    slo: Slo,
    cancelled: Callable[[], bool] | None = None,
) -> Screened:
    """Return the best tensor parallelism and chunk of a pool alone.

    Args:
        pool: The pool; what it leaves open is searched.
        serving: How the model is served.
        traffic: A sample of the traffic.
        slo: The service level.
        cancelled: Asked a few times a second.

    Raises:
        InfeasibleError: Even a pool alone misses the service level; the message names the limit.
        ModelError: The model does not fit.
    """
    best: Screened | None = None

    def consider(tp: int, chunk_tok: int) -> None:
        nonlocal best
        made = group(pool.server, role=pool.role, tp=tp, chunk_tok=chunk_tok, serving=serving)
        known = best.rate if best else None
        rate = alone(
            made, serving=serving, traffic=traffic, slo=slo, beyond=known, cancelled=cancelled
        )
        if best is None or rate > best.rate:
            best = Screened(group=made, rate=rate)

    for tp, chunk_tok in _options(pool, serving):
        consider(tp, chunk_tok)
    if best is None or best.rate <= 0:
        raise InfeasibleError(_why_not(pool, serving, traffic=traffic, slo=slo))
    return best


def _options(pool: PoolPlan, serving: Serving) -> list[tuple[int, int]]:
    """Return (tensor parallelism, chunk) to try."""
    if pool.server.engine is not None:
        return [(1, pool.chunk_tok or 0)]
    degrees = fitting_tp(pool.server, serving=serving)
    if pool.tp is not None:
        if pool.tp not in degrees:
            # The message of the group itself says what is missing.
            group(pool.server, role=pool.role, tp=pool.tp, chunk_tok=2048, serving=serving)
        degrees = (pool.tp,)
    chunks = {
        "mixed": CHUNKS_MIXED_TOK,
        "prefill": CHUNKS_PREFILL_TOK,
        "decode": (CHUNK_DECODE_TOK,),
    }[pool.role]
    if pool.chunk_tok is not None:
        chunks = (pool.chunk_tok,)
    return [(tp, chunk) for chunk in chunks for tp in degrees]


def alone(
    made: Group,
    *,
    serving: Serving,
    traffic: Traffic,
    slo: Slo,
    beyond: float | None = None,
    cancelled: Callable[[], bool] | None = None,
    tolerance_frac: float = SCREEN_TOLERANCE_FRAC,
) -> float:
    """Return what one server carries in its role alone, with the other phase free [request/s].

    Args:
        made: The server in its role.
        serving: How the model is served.
        traffic: What arrives.
        slo: The service level.
        beyond: A load that another choice carries; what does not carry more is given as 0, which
            one run tells.
        cancelled: Asked a few times a second.
        tolerance_frac: Width of the last bracket over the load.
    """
    fleet, only, level = _by_itself(made, serving=serving, traffic=traffic, slo=slo)
    held = capacity.search(
        fleet,
        only,
        slo=level,
        guess_request_per_s=0.5 * bound(made, serving=serving, traffic=traffic),
        tolerance_frac=tolerance_frac,
        beyond_request_per_s=beyond * BETTER if beyond else None,
        cancelled=cancelled,
    )
    return held.rate_request_per_s if held else 0.0


def bound(made: Group, *, serving: Serving, traffic: Traffic) -> float:
    """Return a load that one server cannot exceed, from step times alone [request/s].

    Args:
        made: The server in its role.
        serving: How the model is served.
        traffic: What arrives; its mean lengths are used.
    """
    table = made.table
    uncached, output = traffic.mean_uncached_tok, traffic.mean_output_tok
    chunk = min(made.chunk_tok, table.max_tok)
    prefill_s = uncached * float(table.linear_ps[chunk]) / chunk / PS_PER_S
    context = traffic.mean_input_tok + output / 2.0
    room = made.kv_blocks * serving.block_tok / context
    seqs = np.arange(1, max(min(made.max_seqs, int(room)), 1) + 1)
    step_ps = (
        table.linear_ps[seqs]
        + table.head_ps[seqs]
        + table.decode_attn_floor_ps[seqs]
        + table.decode_attn_ctx_ps[seqs] * seqs * context
    )
    decode_s = output * float((step_ps / seqs).min()) / PS_PER_S
    busy_s = {"mixed": prefill_s + decode_s, "prefill": prefill_s, "decode": decode_s}[made.role]
    return made.replicas / busy_s


def _why_not(pool: PoolPlan, serving: Serving, *, traffic: Traffic, slo: Slo) -> str:
    """Say which limit a pool misses even when it is almost idle, and by how much."""
    tp, chunk_tok = _options(pool, serving)[-1]
    made = group(pool.server, role=pool.role, tp=tp, chunk_tok=chunk_tok, serving=serving)
    table = made.table
    mean = traffic.mean_uncached_tok
    if pool.role != "decode":
        tokens = min(int(mean) or 1, table.max_tok)
        steps = max(mean / table.max_tok, 1.0)
        seconds = float(table.linear_ps[tokens]) * steps / PS_PER_S
        if pool.server.engine is not None and 2.0 * seconds > slo.ttft_s:
            return (
                f"TTFT {slo.ttft_s:g} s cannot be met by {pool.server.id}: one pass over the "
                f"weights takes {format_si(seconds, 's')} (reload "
                f"{format_si(pool.server.engine.t_reload_s, 's')} a tile)"
            )
        if seconds > slo.ttft_s:
            return (
                f"TTFT {slo.ttft_s:g} s cannot be met by {pool.server.id}: a prompt of "
                f"{mean:.0f} uncached tokens takes {format_si(seconds, 's')}"
            )
    fleet, only, level = _by_itself(made, serving=serving, traffic=traffic, slo=slo)
    rate = min(traffic.most_request_per_s, 50.0 / traffic.span_s)
    run = capacity.simulate(fleet, only, rate_request_per_s=rate, slo=level)
    arrived = max(run.arrived, 1)
    in_time = f"{run.met_ttft / arrived:.0%} of requests meet TTFT {slo.ttft_s:g} s"
    fluent = f"{run.met_tpot / arrived:.0%} of requests meet TPOT {slo.tpot_s * 1e3:g} ms"
    met = {"mixed": f"{in_time} and {fluent}", "prefill": in_time, "decode": fluent}[pool.role]
    must = "must meet both" if pool.role == "mixed" else "must"
    return (
        f"the service level cannot be met by {pool.server.id} as {pool.role}: at a load of "
        f"{run.rate_request_per_s:.3g} requests/s a server {met}; {slo.quantile:.0%} {must}"
    )


def _by_itself(
    made: Group, *, serving: Serving, traffic: Traffic, slo: Slo
) -> tuple[Fleet, Traffic, Slo]:
    """Return a server as a fleet, the phase of the traffic it sees, and what that is judged by."""
    fleet = Cell(groups=(replace(made, role="mixed", count=1),), serving=serving).fleet
    if made.role == "prefill":
        return fleet, replace(traffic, phase="prefill"), replace(slo, tpot_s=1e6)
    if made.role == "decode":
        patience_s = DECODE_WAIT_STEPS * slo.tpot_s
        return fleet, replace(traffic, phase="decode"), replace(slo, ttft_s=patience_s)
    return fleet, traffic, slo
