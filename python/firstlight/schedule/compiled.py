"""From the records of this package to the compiled engine."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from firstlight.errors import ScheduleError
from firstlight.schedule.fleet import Tier

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from firstlight import _core
    from firstlight.schedule.fleet import Cache, Fleet, Governor, Pool, SGLang, Speculation
    from firstlight.steps import StepTable


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

    try:
        return _core.Engine(
            [_pool(pool, compiled(pool.table)) for pool in fleet.pools], _beside_pools(fleet)
        )
    except (ValueError, OverflowError, TypeError) as error:
        raise ScheduleError(str(error)) from error


def below_power(table: StepTable, *, cap_w: float) -> StepTable:
    """Return the step times at which the energy above idle of every step stays below a cap.

    The energy of a step is taken as given: a real device that lowers its clock also lowers its
    voltage and saves some, so that this is the slower side of the truth.

    Args:
        table: Times and energies without a cap.
        cap_w: Most power above idle [W].

    Raises:
        ScheduleError: The cap is not above idle.
    """
    if not cap_w > 0:
        raise ScheduleError(f"cap_w={cap_w!r} is not allowed; above 0, in watts above idle")

    def times(energy: NDArray[np.uint64]) -> NDArray[np.uint64]:
        return np.ceil(energy / cap_w).astype(np.uint64)

    return replace(
        table,
        linear_ps=np.maximum(times(table.linear_pj), np.arange(len(table.linear_pj)) > 0),
        head_ps=times(table.head_pj),
        prefill_attn_floor_ps=0,
        prefill_attn_pair_fs=times(table.prefill_attn_pair_fj),
        decode_attn_floor_ps=times(table.decode_attn_floor_pj),
        decode_attn_ctx_ps=times(table.decode_attn_ctx_pj),
        mix_1024=1024,
        mixed=None,
    )


def _pool(pool: Pool, table: _core.StepTable) -> dict[str, Any]:
    return {
        "policy": pool.policy,
        "chunk_tok": pool.chunk_tok,
        "sglang": sglang_shares(pool.sglang),
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
        "cap": None if pool.cap_w is None else _compiled(below_power(pool.table, cap_w=pool.cap_w)),
        "speculation": None if pool.speculation is None else speculation_shares(pool.speculation),
    }


def sglang_shares(settings: SGLang) -> dict[str, Any]:
    """Return the settings of SGLang's rule as the engine takes them, shares in 2⁻²⁰.

    Source:
        sgl-project/sglang, `srt/environ.py`: initial ratio 0.7, least 0.14 of it, 600 decay steps.

    Raises:
        ScheduleError: A value is out of range.
    """
    if settings.order not in ("lpm", "fcfs"):
        raise ScheduleError(f"sglang.order={settings.order!r} is not allowed; lpm or fcfs")
    if not 0 <= settings.conservativeness <= 100:
        raise ScheduleError(
            f"sglang.conservativeness={settings.conservativeness!r} is not allowed; 0 to 100"
        )
    ratio = min(0.7 * settings.conservativeness, 1.0)
    most, least = round(ratio * 2**20), round(0.14 * ratio * 2**20)
    return {
        "longest_prefix_first": settings.order == "lpm",
        "ratio": most,
        "least_ratio": least,
        "decay": (most - least) // 600,
        "most_new_tok": settings.most_new_tok,
    }


def speculation_shares(speculation: Speculation) -> dict[str, Any]:
    """Return speculative decoding as the engine takes it: shares in 2⁻³² and 2⁻²⁰.

    Raises:
        ScheduleError: A value is out of range.
    """
    drafts, accept = speculation.drafts, speculation.accept_frac
    if drafts not in range(1, 33):
        raise ScheduleError(f"speculation.drafts={drafts!r} is not allowed; 1 to 32")
    each = accept if isinstance(accept, tuple) else tuple(accept**i for i in range(1, drafts + 1))
    if len(each) != drafts:
        raise ScheduleError(
            f"speculation.accept_frac: {len(each)} shares are not allowed; one, or {drafts}, one a "
            "draft"
        )
    if not all(0 <= later <= before <= 1 for before, later in pairwise((1.0, *each))):
        raise ScheduleError(
            f"speculation.accept_frac={accept!r} is not allowed; 0 to 1, those of several drafts "
            "not rising"
        )
    if not 0 <= speculation.draft_frac <= 1:
        raise ScheduleError(
            f"speculation.draft_frac={speculation.draft_frac!r} is not allowed; 0 to 1"
        )
    if not 0 <= speculation.seed < 2**64:
        raise ScheduleError(f"speculation.seed={speculation.seed!r} is not allowed; 0 to 2^64 - 1")
    return {
        "accepted": [round(share * 2**32) for share in each],
        "draft_share": round(speculation.draft_frac * 2**20),
        "seed": speculation.seed,
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
        "imitate_dynosim": fleet.imitate_dynosim,
        "governor": None if fleet.governor is None else _governor(fleet, fleet.governor),
    }


def _governor(fleet: Fleet, governor: Governor) -> dict[str, Any]:
    if any(len(level) != len(fleet.pools) for level in governor.caps_w):
        raise ScheduleError(
            f"governor.caps_w: levels of {[len(level) for level in governor.caps_w]} caps are not "
            f"allowed; {len(fleet.pools)} in each, one a pool"
        )
    return {
        "tick_ps": governor.tick_ps,
        "levels": [
            [
                _compiled(below_power(pool.table, cap_w=cap_w))
                for pool, cap_w in zip(fleet.pools, level, strict=True)
            ]
            for level in governor.caps_w
        ],
        "first": governor.first,
        "above_tok": governor.above_tok,
        "below_tok": governor.below_tok,
    }


def shared_caps_w(
    fleet: Fleet, *, cap_w: float, levels: int = 9, least_frac: float = 0.3
) -> tuple[tuple[float, ...], ...]:
    """Return the levels of a governor that shares one cap between prefill and decode replicas.

    Args:
        fleet: Pools of both roles.
        cap_w: Power above idle of all replicas together, the same at every level [W].
        levels: How many.
        least_frac: Share of the cap that each of the two sides keeps at least.

    Raises:
        ScheduleError: The fleet has no pools of both roles, or a value is out of range.
    """
    replicas = {
        role: sum(pool.replicas for pool in fleet.pools if pool.role == role)
        for role in ("prefill", "decode")
    }
    if not all(replicas.values()):
        raise ScheduleError("a shared cap needs prefill and decode pools; this fleet has one kind")
    if not (cap_w > 0 and levels >= 2 and 0 < least_frac < 0.5):
        raise ScheduleError(
            f"cap_w={cap_w!r}, levels={levels!r}, least_frac={least_frac!r} are not allowed; "
            "above 0, 2 or more, between 0 and 0.5"
        )
    shares = np.linspace(least_frac, 1.0 - least_frac, levels)
    each = {
        "prefill": cap_w * shares / replicas["prefill"],
        "decode": cap_w * (1.0 - shares) / replicas["decode"],
    }
    return tuple(
        tuple(float(each[pool.role][level]) for pool in fleet.pools) for level in range(levels)
    )


def _in_1024(share: float) -> int:
    return round(share * 1024)


def _u64(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return np.ascontiguousarray(values, dtype=np.uint64)


MOST_KEPT = 20
"""Tables whose compiled copy is kept; a copy takes up to half a megabyte."""
_KEPT: dict[int, tuple[StepTable, _core.StepTable]] = {}
_LOCK = threading.Lock()


def compiled(table: StepTable) -> _core.StepTable:
    """Return a table as the compiled engine holds it; the last few are kept.

    Raises:
        ScheduleError: The table is malformed.
    """
    with _LOCK:
        # The table is held beside its copy, so that its id stays its own.
        kept = _KEPT.pop(id(table), None) or (table, _compiled(table))
        _KEPT[id(table)] = kept
        while len(_KEPT) > MOST_KEPT:
            _KEPT.pop(next(iter(_KEPT)))
        return kept[1]


def _compiled(table: StepTable) -> _core.StepTable:
    from firstlight import _core

    columns: dict[str, Any] = {
        name: _u64(getattr(table, name))
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
    mixed: dict[str, Any] = {}
    if table.mixed is not None:
        mixed = {
            "mixed_axes": [_u64(axis) for axis in table.mixed.axes],
            "mixed_ps": _u64(table.mixed.attn_ps.ravel()),
            "mixed_skew_1024": _in_1024(table.mixed.skew_frac),
        }
    try:
        return _core.StepTable(
            prefill_attn_floor_ps=table.prefill_attn_floor_ps,
            mix_1024=table.mix_1024,
            **columns,
            **mixed,
        )
    except (ValueError, OverflowError) as error:
        msg = f"step table: {error}"
        raise ScheduleError(msg) from error
