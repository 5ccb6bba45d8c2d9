"""One pool alone: the highest load its servers carry within the service level.

A prefill pool is a gated queue (a step takes what waits, up to the chunk); a decode pool holds as
many sequences as its arrivals need; a mixed pool does both, prefill stretching the steps of decode.
Overload is carried from bin to bin as a fluid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from firstlight.errors import InfeasibleError, ModelError
from firstlight.evaluate import screen
from firstlight.evaluate.analytic.load import BIN_S
from firstlight.evaluate.cell import fitting_tp, group, room_tok

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from firstlight.evaluate.analytic.load import Load
    from firstlight.evaluate.capacity import Slo
    from firstlight.evaluate.cell import Group, Role, Serving
    from firstlight.evaluate.screen import PoolPlan
    from firstlight.evaluate.servers import Server

    F64 = NDArray[np.float64]

PS_PER_S = 1e12
FEMTO = 1e15
GRID = np.geomspace(0.04, 1.0, 30)
"""Loads that are tried, over the bound that step times alone give."""
STRIDE = 5
"""Every so many of them are tried first."""
BATCHES = 32
"""Sizes of a prefill step at which a table is read."""
CROWD = 6
"""Prefill servers of a large cell; long prompts hold up others less where there are more."""
SCATTER = 1.0
"""Spread of a batch over the square root of its size: 1 for Poisson arrivals."""
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
    steps: Steps
    rate_request_per_s: float
    crowd_frac: float = 1.0

    def together(self, count: int) -> float:
        """Return what servers that share one queue carry [request/s]."""
        share = min(math.log(count) / math.log(CROWD), 1.0)
        return count * self.rate_request_per_s * (1.0 + (self.crowd_frac - 1.0) * share)


@dataclass(frozen=True, kw_only=True, eq=False)
class Steps:
    """A step table at a few batch sizes, for one traffic.

    Attributes:
        tokens: Prompt tokens of a step, (BATCHES,).
        prefill_s: Time of such a step with its attention [s], (BATCHES,).
        seqs: Decoding sequences, (max,).
        decode_s: Time of a step that decodes them [s], (max,).
        extra_s_per_tok: What one prompt token adds to a step that decodes [s/tok].
        linear_s: Time of a prefill step without its attention [s], (BATCHES,).
        pair_s: Attention time of a query-key pair of a prompt [s].
    """

    tokens: F64
    prefill_s: F64
    seqs: F64
    decode_s: F64
    extra_s_per_tok: float
    linear_s: F64
    pair_s: float


def steps_of(made: Group, *, load: Load, serving: Serving) -> Steps:
    """Return a group's step table at the batch sizes that matter for a traffic.

    Args:
        made: One server in its role.
        load: The traffic.
        serving: How the model is served.
    """
    table = made.table
    chunk = min(made.chunk_tok, table.max_tok)
    # Prompts of one step end together; the bound on them bounds the step as well.
    most = min(float(chunk), made.max_seqs * load.mean_uncached_tok)
    tokens = np.unique(np.round(np.geomspace(1.0, max(most, 2.0), BATCHES))).astype(np.int64)
    pairs_per_tok = load.mean_pairs / load.mean_uncached_tok
    pair_s = table.prefill_attn_pair_fs[np.minimum(tokens, int(load.mean_uncached_tok) + 1)] / FEMTO
    prompts = np.maximum(tokens / load.mean_uncached_tok, 1.0)
    ends = np.minimum(np.round(prompts).astype(np.int64), table.max_seqs)
    linear_s = (
        table.linear_ps[tokens] + table.head_ps[ends] + prompts * table.prefill_attn_floor_ps
    ) / PS_PER_S
    prefill_s = linear_s + pairs_per_tok * tokens * pair_s
    room = made.kv_blocks * serving.block_tok / (load.context_tok + serving.block_tok / 2.0)
    most_seqs = max(min(made.max_seqs, int(room), table.max_seqs), 1)
    seqs = np.arange(1, most_seqs + 1)
    decode_s = (
        table.linear_ps[np.minimum(seqs, table.max_tok)]
        + table.head_ps[seqs]
        + table.decode_attn_floor_ps[seqs]
        + table.decode_attn_ctx_ps[seqs] * seqs * load.context_tok
    ) / PS_PER_S
    typical = min(64, most_seqs, max(chunk - 1, 1))
    extra = float(table.linear_ps[chunk] - table.linear_ps[typical]) / PS_PER_S / (chunk - typical)
    return Steps(
        tokens=tokens.astype(np.float64),
        prefill_s=np.asarray(prefill_s, dtype=np.float64),
        seqs=seqs.astype(np.float64),
        decode_s=np.asarray(decode_s, dtype=np.float64),
        extra_s_per_tok=extra + pairs_per_tok * float(pair_s[-1]),
        linear_s=np.asarray(linear_s, dtype=np.float64),
        pair_s=float(pair_s[-1]),
    )


def _backlog_s(use: F64) -> F64:
    """Return how far behind a server is in each bin, when it is asked for `use` of its time [s].

    Args:
        use: Work arriving over work that can be done, (loads, bins).
    """
    drift = (use - 1.0) * BIN_S
    walk = np.cumsum(drift, axis=1)
    lowest = np.minimum(np.minimum.accumulate(walk, axis=1), 0.0)
    behind: F64 = walk - lowest
    return behind


def _late(slack_s: F64, *, use: F64, rate: float, cv: float, servers: int) -> F64:
    """Return the chance to wait longer than `slack_s` in a queue.

    Allen and Cunneen's wait with Sakasegawa's chance to wait, exponential beyond it.

    Args:
        slack_s: How long a request can wait [s].
        use: Utilisation.
        rate: Requests a second when nothing idles.
        cv: Spread of the work of a request.
        servers: Replicas that share the queue.
    """
    busy = np.clip(use, 1e-9, 0.995)
    waits = busy ** (math.sqrt(2.0 * (servers + 1)) - 1.0)
    decay = 2.0 * (1.0 - busy) * rate / (1.0 + cv**2)
    chance: F64 = np.where(slack_s < 0, 1.0, waits * np.exp(-np.maximum(slack_s, 0.0) * decay))
    return chance


def _work_cv(work_s: F64, *, load: Load) -> float:
    """Return the spread of a prompt's work over its mean; long prompts' attention widens it.

    Never less than that of the lengths: what a gate shares among short prompts comes in clumps.

    Args:
        work_s: Work at `LENGTH_QUANTILES`, (quantiles,) [s].
        load: The traffic.
    """
    mean = float(work_s @ load.uncached_weight)
    square = float(work_s**2 @ load.uncached_weight)
    return max(math.sqrt(max(square / mean**2 - 1.0, 0.0)), load.uncached_cv)


def _prefill_miss(made: Group, steps: Steps, rates: F64, *, load: Load, ttft_s: float) -> F64:
    """Return the share of requests whose first token is late, by load, (loads,)."""
    replicas = made.replicas * made.count
    asked = rates[:, None] * load.prefill_ratio[None, :] * load.mean_uncached_tok / replicas
    speed = np.maximum.accumulate(steps.tokens / steps.prefill_s)
    size = np.interp(asked, speed, steps.tokens)
    pass_s = np.interp(size, steps.tokens, steps.prefill_s)
    use = asked / speed[-1]
    behind = _backlog_s(use)
    busy = np.minimum(asked * pass_s / np.maximum(size, load.mean_uncached_tok), 1.0)
    cv = _work_cv(
        np.array(
            [
                max(length / steps.tokens[-1], 1.0)
                * float(np.interp(length, steps.tokens, steps.linear_s))
                + load.pairs(length) * steps.pair_s
                for length in load.uncached_tok
            ]
        ),
        load=load,
    )
    miss = np.zeros(len(rates))
    weight = load.rate_ratio / load.rate_ratio.sum()
    for length, share in zip(load.uncached_tok, load.uncached_weight, strict=True):
        alone = np.maximum(size, length)
        passes = np.maximum(alone / steps.tokens[-1], 1.0)
        own_s = passes * np.interp(alone, steps.tokens, steps.linear_s)
        own_s = own_s + load.pairs(length) * steps.pair_s
        slack = ttft_s - own_s - behind
        # A request arrives at a random place of the pass that is under way.
        inside = np.where(slack < 0, 1.0, busy * np.maximum(1.0 - slack / pass_s, 0.0))
        queued = _late(
            slack,
            use=use,
            rate=replicas * float(speed[-1]) / load.mean_uncached_tok,
            cv=cv,
            servers=replicas,
        )
        late = 1.0 - (1.0 - inside) * (1.0 - queued)
        miss += share * (late @ weight)
    return miss


def _decode_miss(
    made: Group, steps: Steps, rates: F64, *, load: Load, tpot_s: float, slowed: F64
) -> F64:
    """Return the share of requests that decode too slowly or wait too long, by load, (loads,).

    Args:
        made: One server.
        steps: Its steps.
        rates: Loads, (loads,) [request/s].
        load: The traffic.
        tpot_s: Longest time per output token [s].
        slowed: Factor by which prefill stretches each step, (loads, bins); 1 where there is none.
    """
    asked = rates[:, None] * load.decode_ratio[None, :] * load.mean_output_tok / made.replicas
    speed = np.maximum.accumulate(steps.seqs / steps.decode_s)
    wanted = asked * slowed
    seqs = np.interp(wanted, speed, steps.seqs)
    behind = _backlog_s(wanted / speed[-1])
    # The largest batch within the limit; arrivals and lengths scatter the batch around its mean.
    fits = np.interp(tpot_s / slowed, np.maximum.accumulate(steps.decode_s), steps.seqs)
    fits = np.where(tpot_s / slowed < steps.decode_s[0], 0.0, fits)
    top = tpot_s / slowed >= steps.decode_s[-1]
    slow = np.where(top, 0.0, _above(fits - seqs, SCATTER * np.sqrt(np.maximum(fits, 1.0))))
    late = np.where(behind > screen.DECODE_WAIT_STEPS * tpot_s, 1.0, 0.0)
    weight = load.rate_ratio / load.rate_ratio.sum()
    missed: F64 = np.maximum(slow, late) @ weight
    return missed


def _above(margin: F64, spread: F64) -> F64:
    """Return the chance that a normal deviate of that spread exceeds a margin (logistic form)."""
    chance: F64 = 1.0 / (1.0 + np.exp(np.clip(1.702 * margin / spread, -50.0, 50.0)))
    return chance


def _mixed_miss(made: Group, steps: Steps, rates: F64, *, load: Load, slo: Slo) -> F64:
    asked = rates[:, None] / made.replicas
    prompts, answers = asked * load.prefill_ratio, asked * load.decode_ratio
    taken = np.minimum(prompts * load.mean_uncached_tok * steps.extra_s_per_tok, 0.98)
    slowed = 1.0 / (1.0 - taken)
    slow = _decode_miss(made, steps, rates, load=load, tpot_s=slo.tpot_s, slowed=slowed)
    speed = np.maximum.accumulate(steps.seqs / steps.decode_s)
    wanted = answers * load.mean_output_tok * slowed
    seqs = np.interp(wanted, speed, steps.seqs)
    room = np.maximum(made.chunk_tok - seqs, 1.0)
    decode_s = np.interp(seqs, steps.seqs, steps.decode_s)
    full_s = decode_s + steps.extra_s_per_tok * room
    use = prompts * load.mean_uncached_tok * full_s / room
    behind = _backlog_s(np.maximum(use, wanted / speed[-1]))
    weight = load.rate_ratio / load.rate_ratio.sum()
    linear = steps.extra_s_per_tok - steps.pair_s * load.mean_pairs / load.mean_uncached_tok
    quadratic = np.array([load.pairs(length) for length in load.uncached_tok]) * steps.pair_s
    cv = _work_cv(linear * load.uncached_tok + quadratic, load=load)
    late = np.zeros(len(rates))
    idle_rate = 1.0 / float(np.median(full_s / room)) / load.mean_uncached_tok * made.replicas
    for length, share in zip(load.uncached_tok, load.uncached_weight, strict=True):
        own_s = np.ceil(length / room) * decode_s + linear * length
        own_s = own_s + load.pairs(length) * steps.pair_s
        slack = slo.ttft_s - own_s - behind - decode_s * slowed / 2.0
        queued = _late(
            slack,
            use=use,
            rate=idle_rate,
            cv=cv,
            servers=made.replicas,
        )
        late += share * (queued @ weight)
    missed: F64 = 1.0 - (1.0 - slow) * (1.0 - late)
    return missed


def miss_frac(made: Group, steps: Steps, rates: F64, *, load: Load, slo: Slo) -> F64:
    """Return the share of requests that one server alone fails, by load, (loads,).

    Args:
        made: One server in its role.
        steps: Its steps.
        rates: Loads, (loads,) [request/s].
        load: The traffic.
        slo: The service level.
    """
    if made.role == "prefill":
        return _prefill_miss(made, steps, rates, load=load, ttft_s=slo.ttft_s)
    if made.role == "decode":
        still = np.ones((len(rates), len(load.rate_ratio)))
        return _decode_miss(made, steps, rates, load=load, tpot_s=slo.tpot_s, slowed=still)
    return _mixed_miss(made, steps, rates, load=load, slo=slo)


def carried(made: Group, steps: Steps, *, bound: float, load: Load, slo: Slo) -> float:
    """Return the highest load one server alone carries within the service level [request/s].

    Args:
        made: One server in its role.
        steps: Its steps.
        bound: A load it cannot exceed [request/s].
        load: The traffic.
        slo: The service level.
    """
    allowed = 1.0 - slo.quantile
    # Misses rise with load: every few loads are tried, then those between the last two.
    some = GRID[STRIDE - 1 :: STRIDE]
    above = np.flatnonzero(miss_frac(made, steps, some * bound, load=load, slo=slo) > allowed)
    end = (int(above[0]) + 1) * STRIDE if len(above) else len(GRID)
    rates = GRID[max(end - STRIDE - 1, 0) : end] * bound
    miss = miss_frac(made, steps, rates, load=load, slo=slo)
    over = np.flatnonzero(miss > allowed)
    if not len(over):
        return float(rates[-1]) * RATE_FRAC[made.role]
    first = int(over[0])
    if first == 0:
        # Even the least load that is tried is too much.
        return 0.0
    low, high = miss[first - 1], miss[first]
    part = (allowed - low) / (high - low)
    rate = rates[first - 1] + part * (rates[first] - rates[first - 1])
    return float(rate) * RATE_FRAC[made.role]


def _bound(made: Group, steps: Steps, *, load: Load) -> float:
    """Return a load that one server cannot exceed [request/s]."""
    prefill_s = load.mean_uncached_tok * float((steps.prefill_s / steps.tokens).min())
    decode_s = load.mean_output_tok * float((steps.decode_s / steps.seqs).min())
    busy_s = {"mixed": prefill_s + decode_s, "prefill": prefill_s, "decode": decode_s}[made.role]
    return made.replicas / busy_s


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
    return replace(best, group=replace(best.group, server=pool.server))


@lru_cache(maxsize=8192)
def _alone(key: _Key, *, serving: Serving, load: Load, slo: Slo) -> Alone:
    pool = key.pool

    def tried(options: list[tuple[int, int]], best: Alone | None) -> Alone:
        made = [_made(pool.server, role=pool.role, tp=tp, chunk_tok=chunk, serving=serving)
                for tp, chunk in options]  # fmt: skip
        steps = [steps_of(one, load=load, serving=serving) for one in made]
        bounds = [_bound(one, step, load=load) for one, step in zip(made, steps, strict=True)]
        for bound, one, step in sorted(zip(bounds, made, steps, strict=True), key=lambda x: -x[0]):
            # What cannot carry more than the best needs no closer look.
            if best is None or bound * RATE_FRAC[one.role] > best.rate_request_per_s:
                rate = carried(one, step, bound=bound, load=load, slo=slo)
                if best is None or rate > best.rate_request_per_s:
                    best = Alone(group=one, steps=step, rate_request_per_s=rate)
        if best is None:
            raise ModelError(f"{pool.server.id} as {pool.role}: no parallelism to try")
        return best

    first, further = _options(pool, serving, load=load)
    best = tried(first, None)
    best = tried([(best.group.tp, chunk) for chunk in further], best)
    if pool.role != "prefill" or best.rate_request_per_s <= 0:
        return best
    many = replace(best.group, count=CROWD)
    bound = CROWD * _bound(best.group, best.steps, load=load)
    rate = carried(many, best.steps, bound=bound, load=load, slo=slo)
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
        _GROUPS[key] = group(server, role=role, tp=tp, chunk_tok=chunk_tok, serving=serving)
    return replace(_GROUPS[key], server=server)
