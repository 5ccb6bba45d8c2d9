"""The closed form of one pool in NumPy, formula by formula: what the compiled one must agree with."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from firstlight.evaluate import screen
from firstlight.evaluate.analytic.load import BIN_S

PS_PER_S = 1e12
FEMTO = 1e15
GRID = np.geomspace(0.04, 1.0, 30)
"""Loads that are tried, over the bound that step times alone give."""
BATCHES = 32
SCATTER = 1.0


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

    tokens: np.ndarray
    prefill_s: np.ndarray
    seqs: np.ndarray
    decode_s: np.ndarray
    extra_s_per_tok: float
    linear_s: np.ndarray
    pair_s: float


def steps_of(made, *, load, serving) -> Steps:
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


def _pairs(load, uncached_tok):
    """Return the query-key pairs of a prompt with that many tokens to compute."""
    behind = load.mean_input_tok / load.mean_uncached_tok - 1.0
    return uncached_tok * uncached_tok * (behind + 0.5)


def _backlog_s(use):
    """Return how far behind a server is in each bin, when it is asked for `use` of its time [s].

    Args:
        use: Work arriving over work that can be done, (loads, bins).
    """
    drift = (use - 1.0) * BIN_S
    walk = np.cumsum(drift, axis=1)
    lowest = np.minimum(np.minimum.accumulate(walk, axis=1), 0.0)
    return walk - lowest


def _late(slack_s, *, use, rate, cv: float, servers: int):
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
    return np.where(slack_s < 0, 1.0, waits * np.exp(-np.maximum(slack_s, 0.0) * decay))


def _work_cv(work_s, *, load) -> float:
    """Return the spread of a prompt's work over its mean; long prompts' attention widens it.

    Never less than that of the lengths: what a gate shares among short prompts comes in clumps.

    Args:
        work_s: Work at `LENGTH_QUANTILES`, (quantiles,) [s].
        load: The traffic.
    """
    mean = float(work_s @ load.uncached_weight)
    square = float(work_s**2 @ load.uncached_weight)
    return max(math.sqrt(max(square / mean**2 - 1.0, 0.0)), load.uncached_cv)


def _prefill_miss(made, steps, rates, *, load, ttft_s: float):
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
                + _pairs(load, length) * steps.pair_s
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
        own_s = own_s + _pairs(load, length) * steps.pair_s
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


def _decode_miss(made, steps, rates, *, load, tpot_s: float, slowed):
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
    return np.maximum(slow, late) @ weight


def _above(margin, spread):
    """Return the chance that a normal deviate of that spread exceeds a margin (logistic form)."""
    return 1.0 / (1.0 + np.exp(np.clip(1.702 * margin / spread, -50.0, 50.0)))


def _mixed_miss(made, steps, rates, *, load, slo):
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
    quadratic = np.array([_pairs(load, length) for length in load.uncached_tok]) * steps.pair_s
    cv = _work_cv(linear * load.uncached_tok + quadratic, load=load)
    late = np.zeros(len(rates))
    typical_s = np.median(full_s / room, axis=1)[:, None]
    # A router goes by unfinished requests, most of which decode: no queue is shared.
    idle_rate = 1.0 / typical_s / load.mean_uncached_tok
    for length, share in zip(load.uncached_tok, load.uncached_weight, strict=True):
        own_s = np.ceil(length / room) * decode_s + linear * length
        own_s = own_s + _pairs(load, length) * steps.pair_s
        slack = slo.ttft_s - own_s - behind - decode_s * slowed / 2.0
        queued = _late(
            slack,
            use=use,
            rate=idle_rate,
            cv=cv,
            servers=1,
        )
        late += share * (queued @ weight)
    return 1.0 - (1.0 - slow) * (1.0 - late)


def miss_frac(made, steps, rates, *, load, slo):
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


def bound_of(made, steps, *, load):
    """Return a load that one server cannot exceed [request/s]."""
    prefill_s = load.mean_uncached_tok * float((steps.prefill_s / steps.tokens).min())
    decode_s = load.mean_output_tok * float((steps.decode_s / steps.seqs).min())
    busy_s = {"mixed": prefill_s + decode_s, "prefill": prefill_s, "decode": decode_s}[made.role]
    return made.replicas * made.count / busy_s


def carried(made, steps, *, load, slo):
    """Return the highest load within the service level, every load of the grid tried."""
    allowed = 1.0 - slo.quantile
    rates = GRID * bound_of(made, steps, load=load)
    miss = miss_frac(made, steps, rates, load=load, slo=slo)
    over = np.flatnonzero(miss > allowed)
    if not len(over):
        return float(rates[-1])
    first = int(over[0])
    if first == 0:
        return 0.0
    part = (allowed - miss[first - 1]) / (miss[first] - miss[first - 1])
    return float(rates[first - 1] + part * (rates[first] - rates[first - 1]))
