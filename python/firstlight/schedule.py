"""Tokens in time: run requests over a fleet and say when each token came and what it cost.

The simulation itself is compiled (`firstlight._core.Engine`); this façade checks, calls and wraps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from firstlight.errors import ScheduleError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from firstlight import _core
    from firstlight.steps import StepTable

EVENTS_A_CALL = 2_000_000
"""Events between two looks at Ctrl-C: some tenths of a second."""

STATES = (
    "queued",
    "prefilling",
    "decoding",
    "handed",
    "pulling",
    "ready",
    "done",
    "rejected",
    "loading",
    "loaded",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """One tier of KV memory below HBM, of one replica.

    Attributes:
        units: Cache units (`Fleet.unit_tok` tokens each) it holds.
        read_tok_ps: Time to read one token back [ps]; reads follow each other, so they share it.
        latency_ps: Time before the first byte [ps].
        read_tok_pj: Energy to read one token back [pJ].
        write_tok_pj: Energy to write one token [pJ].
    """

    units: int
    read_tok_ps: int = 0
    latency_ps: int = 0
    read_tok_pj: int = 0
    write_tok_pj: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """A prefix cache by chained block hash, least recently freed evicted first.

    Attributes:
        dram: Tier that takes what HBM evicts; None: evicted units are gone.
        storage: Tier that takes what DRAM evicts, or HBM where there is no DRAM.
        write_back: ``all`` evicted units, or those ``reused`` at least once.
    """

    dram: Tier | None = None
    storage: Tier | None = None
    write_back: Literal["all", "reused"] = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """Which replica takes a request.

    Attributes:
        policy: ``least-load``: unfinished requests (prompt tokens to compute on prefill replicas);
            ``round-robin``; ``prefix-aware``: Dynamo's cost, `weight` × (prompt tokens to compute −
            credits) + context tokens in use; ``least-ttft``: least estimated time to the end of the
            prompt, cached prefix counted (Mooncake, FAST'25, Algorithm 1, without its copies
            between prefill instances).
        weight: Dynamo's overlap weight.
        hbm_credit: What a token cached in HBM is worth, 0 to 1.
        dram_credit: The same for DRAM.
        storage_credit: The same for storage.
    """

    policy: Literal["least-load", "round-robin", "prefix-aware", "least-ttft"] = "least-load"
    weight: float = 1.0
    hbm_credit: float = 1.0
    dram_credit: float = 0.75
    storage_credit: float = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Disaggregation:
    """Which prompts the decode pool computes itself.

    Attributes:
        policy: ``always``: the prefill pool computes every prompt; ``never``: none;
            ``conditional``: Dynamo's rule, decode replica chosen first. Local when fewer than
            `local_below_tok` prompt tokens are uncached there *and* they are less than
            `local_below_frac` of the prompt, or when the prefill replica has more than
            `queue_tok` tokens to compute (0: never for that reason); remote in any case when the
            decode replica has `busy_seqs` unfinished requests (0: no such line).
        local_below_tok: See `policy` [tok].
        local_below_frac: See `policy`.
        queue_tok: See `policy` [tok].
        busy_seqs: See `policy`.
    """

    policy: Literal["always", "never", "conditional"] = "always"
    local_below_tok: int = 2048
    local_below_frac: float = 0.7
    queue_tok: int = 0
    busy_seqs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Identical replicas under one policy.

    Attributes:
        name: What reports call it.
        role: ``mixed`` does both phases; ``prefill`` hands its prompts over to ``decode``.
        replicas: Number of replicas.
        table: What a step costs on one replica.
        token_budget: Most tokens in a step [tok]; the SRAM chunk of an optical pass.
        max_seqs: Most sequences at once.
        kv_blocks: KV blocks of one replica.
        watermark_blocks: Blocks kept free when a request is admitted beside others.
        window_ps: How long an idle replica waits for prompts to fill a pass [ps].
        fill_tok: Prompt tokens that fill a pass [tok].
        cache: Prefix cache of each replica.
    """

    name: str
    role: Literal["mixed", "prefill", "decode"]
    replicas: int
    table: StepTable
    token_budget: int
    max_seqs: int
    kv_blocks: int
    watermark_blocks: int = 0
    window_ps: int = 0
    fill_tok: int = 0
    cache: Cache | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A fleet, or one cell of it.

    Attributes:
        pools: One ``mixed`` pool, or ``prefill`` and ``decode`` pools.
        block_tok: Tokens in a KV block [tok].
        link_tok_ps: Time to move one token's KV into a decode replica [ps].
        link_latency_ps: Time before the first byte [ps].
        first_token: Who emits the first token of a disaggregated request.
        link_layers: Layers of the model if each layer's KV is sent while later layers are computed;
            1 sends all at the end of the prompt.
        unit_tok: Tokens in a unit of the prefix cache, a multiple of `block_tok`; 0: `block_tok`.
        routing: Which replica takes a request.
        disaggregation: Which prompts the decode pool computes itself.
    """

    pools: tuple[Pool, ...]
    block_tok: int = 16
    link_tok_ps: int = 0
    link_latency_ps: int = 0
    first_token: Literal["prefill", "decode"] = "prefill"
    link_layers: int = 1
    unit_tok: int = 0
    routing: Routing = Routing()
    disaggregation: Disaggregation = Disaggregation()


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Requests in order of arrival.

    Attributes:
        arrival_ps: Arrival, (requests,) uint64 [ps].
        isl_tok: Prompt tokens, (requests,) uint32, at least 1.
        cached_tok: Prompt tokens whose KV is present, (requests,) uint32, below ``isl_tok``.
        osl_tok: Tokens to generate, (requests,) uint32, at least 1.
        unit_from: Where the cache units of each request begin in `unit_of`, (requests + 1,) uint64;
            None when prompts have no identity.
        unit_of: Ids of whole units, counted from the start of each prompt; an id stands for its
            unit and everything before it, and they may go on into the answer, uint32.
    """

    arrival_ps: NDArray[np.uint64]
    isl_tok: NDArray[np.uint32]
    cached_tok: NDArray[np.uint32]
    osl_tok: NDArray[np.uint32]
    unit_from: NDArray[np.uint64] | None = None
    unit_of: NDArray[np.uint32] | None = None

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.arrival_ps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a service level, as the early stop of a run needs them.

    Attributes:
        ttft_ps: Longest time to first token [ps].
        tpot_ps: Longest mean time per output token after the first [ps].
        misses: Requests that may miss before the run is stopped.
    """

    ttft_ps: int
    tpot_ps: int
    misses: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run did.

    Attributes:
        arrivals: The requests that were run.
        first_ps: First token, (requests,) uint64 [ps]; `NEVER` when none came.
        last_ps: Last token, (requests,) uint64 [ps]; `NEVER` when it did not come.
        started_ps: First admission, (requests,) uint64 [ps]; `NEVER` when it was not.
        state: Index into `STATES`, (requests,) uint8.
        preemptions: How often each was preempted, (requests,) uint16.
        window: Counters of each pool between the two times of the window, in the pools' order.
        total: Counters of each pool over the whole run.
        gap_counts: Histogram of gaps between tokens inside the window, by `gap_edges_ps`.
        gap_sum_ps: Sum of these gaps [ps].
        window_ps: Start and end of the window [ps].
        end_ps: Time up to which everything has happened [ps].
        events: Events simulated.
        stopped: Whether `Limits` ended the run early; the other numbers are then partial.
        free_blocks: Free KV blocks of every replica at the end.
    """

    arrivals: Arrivals
    first_ps: NDArray[np.uint64]
    last_ps: NDArray[np.uint64]
    started_ps: NDArray[np.uint64]
    state: NDArray[np.uint8]
    preemptions: NDArray[np.uint16]
    window: tuple[dict[str, int], ...]
    total: tuple[dict[str, int], ...]
    gap_counts: NDArray[np.uint64]
    gap_sum_ps: int
    window_ps: tuple[int, int]
    end_ps: int
    events: int
    stopped: bool
    free_blocks: tuple[int, ...]


NEVER = 2**64 - 1
"""The time of a token that never came [ps]."""


def gap_edges_ps() -> NDArray[np.uint64]:
    """Return the lower edges of the gap histogram's buckets, each at most 0.8 % wide [ps]."""
    from firstlight import _core

    return _core.gap_edges_ps()


def engine(fleet: Fleet) -> _core.Engine:
    """Build the online engine of a fleet, idle at time 0.

    Raises:
        ScheduleError: The fleet cannot be simulated; the message names the field.
    """
    from firstlight import _core

    tables = {id(pool.table): _compiled(pool.table) for pool in fleet.pools}
    try:
        return _core.Engine(
            [_pool(pool, tables[id(pool.table)]) for pool in fleet.pools], _beside_pools(fleet)
        )
    except (ValueError, OverflowError, TypeError) as error:
        raise ScheduleError(str(error)) from error


def run(
    fleet: Fleet,
    arrivals: Arrivals,
    *,
    window_ps: tuple[int, int] | None = None,
    drain_ps: int = NEVER,
    limits: Limits | None = None,
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
        cancelled: Asked a few times a second; the run stops with `KeyboardInterrupt` when true.

    Raises:
        ScheduleError: The fleet or the requests are malformed.
        KeyboardInterrupt: The run was cancelled.
    """
    core = engine(fleet)
    try:
        core.push(
            arrivals.arrival_ps,
            arrivals.isl_tok,
            arrivals.cached_tok,
            arrivals.osl_tok,
            np.empty(0, np.uint64) if arrivals.unit_from is None else arrivals.unit_from,
            np.empty(0, np.uint32) if arrivals.unit_of is None else arrivals.unit_of,
        )
    except (ValueError, TypeError) as error:
        raise ScheduleError(str(error)) from error
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
    columns = core.requests()
    end_ps = _last_event(core, columns, drain_ps)
    return Outcome(
        arrivals=arrivals,
        first_ps=columns["first_ps"],
        last_ps=columns["last_ps"],
        started_ps=columns["started_ps"],
        state=columns["state"].astype(np.uint8, copy=False),
        preemptions=columns["preemptions"].astype(np.uint16, copy=False),
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
    )


def _advance(core: _core.Engine, until_ps: int, cancelled: Callable[[], bool] | None) -> bool:
    while True:
        stop = core.advance(until_ps, EVENTS_A_CALL)
        if stop != "paused":
            return stop == "missed"
        if cancelled is not None and cancelled():
            raise KeyboardInterrupt


def _last_event(core: _core.Engine, columns: dict[str, NDArray[np.uint64]], drain_ps: int) -> int:
    if drain_ps < NEVER:
        return core.now_ps
    last = columns["last_ps"]
    last = last[last < NEVER]
    return int(last.max()) if len(last) else core.now_ps


def _pool(pool: Pool, table: _core.StepTable) -> dict[str, Any]:
    return {
        "role": pool.role,
        "replicas": pool.replicas,
        "table": table,
        "token_budget": pool.token_budget,
        "max_seqs": pool.max_seqs,
        "kv_blocks": pool.kv_blocks,
        "watermark_blocks": pool.watermark_blocks,
        "window_ps": pool.window_ps,
        "fill_tok": pool.fill_tok,
        "cache": None if pool.cache is None else _cache(pool.cache),
    }


def _cache(cache: Cache) -> dict[str, Any]:
    tiers = [
        (tier.units, tier.read_tok_ps, tier.latency_ps, tier.read_tok_pj, tier.write_tok_pj)
        for tier in (cache.dram or Tier(units=0), cache.storage or Tier(units=0))
    ]
    return {"tiers": tiers, "reused_only": cache.write_back == "reused"}


def _beside_pools(fleet: Fleet) -> dict[str, Any]:
    routing, split = fleet.routing, fleet.disaggregation
    return {
        "block_tok": fleet.block_tok,
        "unit_tok": fleet.unit_tok or fleet.block_tok,
        "link_tok_ps": fleet.link_tok_ps,
        "link_latency_ps": fleet.link_latency_ps,
        "link_layers": fleet.link_layers,
        "first_token": fleet.first_token,
        "routing": routing.policy,
        "weight_1024": _in_1024(routing.weight),
        "credit_1024": [
            _in_1024(credit)
            for credit in (routing.hbm_credit, routing.dram_credit, routing.storage_credit)
        ],
        "disaggregation": split.policy,
        "local_below_tok": split.local_below_tok,
        "local_share_1024": _in_1024(split.local_below_frac),
        "local_queue_tok": split.queue_tok,
        "local_busy_seqs": split.busy_seqs,
    }


def _in_1024(share: float) -> int:
    return round(share * 1024)


def _compiled(table: StepTable) -> _core.StepTable:
    from firstlight import _core

    columns = {
        name: np.ascontiguousarray(getattr(table, name), dtype=np.uint64)
        for name in (
            "linear_ps",
            "head_ps",
            "prefill_attn_pair_fs",
            "decode_attn_floor_ps",
            "decode_attn_ctx_ps",
            "linear_pj",
            "head_pj",
            "prefill_attn_pair_fj",
            "decode_attn_floor_pj",
            "decode_attn_ctx_pj",
        )
    }
    try:
        return _core.StepTable(
            prefill_attn_floor_ps=table.prefill_attn_floor_ps, mix_1024=table.mix_1024, **columns
        )
    except (ValueError, OverflowError) as error:
        msg = f"step table: {error}"
        raise ScheduleError(msg) from error
