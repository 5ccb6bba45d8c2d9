"""The step table of a model on a group of devices: kernels, collectives, attention, power."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from firstlight.errors import ModelError
from firstlight.roofline.attention import attention
from firstlight.roofline.calibration import calibration
from firstlight.roofline.device import Device, device
from firstlight.roofline.linear import Cost, gemm, knots, linear_parts
from firstlight.roofline.power import power_curve
from firstlight.roofline.precision import PRECISIONS, Precision, kv_bits, precision
from firstlight.roofline.shard import Shard, shard
from firstlight.roofline.stack import Stack
from firstlight.roofline.stack import stack as find_stack
from firstlight.steps import StepTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from firstlight.models import ModelShape

    F64 = NDArray[np.float64]
    U64 = NDArray[np.uint64]

_PS, _FS = 1e12, 1e15
_MOST_TOK, _MOST_SEQS = 1 << 20, 1 << 16
_DEFAULT_STACK = "vllm-2025"


def step_table(
    shape: ModelShape,
    device_id: str,
    *,
    tp: int,
    weights: str,
    kv: str,
    max_tok: int,
    max_seqs: int,
    stack: str = _DEFAULT_STACK,
) -> StepTable:
    """Return what one step of `shape` costs on `tp` devices, in time and energy above idle.

    Args:
        shape: The model.
        device_id: Catalog id of the device.
        tp: Devices in the tensor-parallel group: 1, 2, 4 or 8.
        weights: Format of the linear weights (see `firstlight.roofline.PRECISIONS`).
        kv: Format of the KV cache: ``bf16``, ``fp16`` or ``fp8``.
        max_tok: Most tokens in one step.
        max_seqs: Most sequences in one step.
        stack: Serving stack whose overheads apply.

    Raises:
        CatalogError: The device is unknown or lacks a fact.
        ModelError: A format, group size, stack or limit is not possible; the message says what is.

    Examples:
        >>> from firstlight.models import from_table
        >>> shape = from_table(
        ...     dict(
        ...         num_layers=32,
        ...         hidden_size=4096,
        ...         num_heads=32,
        ...         num_kv_heads=8,
        ...         head_dim=128,
        ...         ffn_size=14336,
        ...         vocab_size=128256,
        ...         max_context_tok=131072,
        ...     ),
        ...     id="8b",
        ... )
        >>> table = step_table(
        ...     shape, "h100-sxm", tp=1, weights="bf16", kv="bf16", max_tok=512, max_seqs=64
        ... )
        >>> bool(table.linear_ps[512] > table.linear_ps[1] > 0)
        True
    """
    _limit("max_tok", max_tok, _MOST_TOK)
    _limit("max_seqs", max_seqs, _MOST_SEQS)
    return _step_table(shape, device_id, tp, weights, kv, max_tok, max_seqs, find_stack(stack))


def bare_step_table(
    shape: ModelShape,
    device_id: str,
    *,
    tp: int,
    weights: str,
    kv: str,
    max_tok: int,
    max_seqs: int,
) -> StepTable:
    """Return a step table of the kernels alone, without any serving stack: what stacks are fitted on."""
    return _step_table(shape, device_id, tp, weights, kv, max_tok, max_seqs, _BARE)


_BARE = Stack(
    id="bare",
    step_s=0.0,
    sequence_s=0.0,
    overhead_power_frac=0.0,
    graph_bytes=0.0,
    source="kernels alone",
)


def _limit(name: str, value: object, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ModelError(f"{name} = {value!r} is outside 1..{most}")


@lru_cache(maxsize=64)
def _step_table(
    shape: ModelShape,
    device_id: str,
    tp: int,
    weights: str,
    kv: str,
    max_tok: int,
    max_seqs: int,
    around: Stack,
) -> StepTable:
    where, form, bits = device(device_id), precision(weights), kv_bits(kv)
    where.peak(form)
    part = shard(shape, tp)
    plain = PRECISIONS["bf16"]
    parts = linear_parts(where, form, plain, part, knots(max_tok))
    linear = _linear(where, parts, part, around, max_tok)
    head = _head(where, plain, part, around, max_seqs)
    attend = attention(where, part, kv_bits=bits, max_tok=max_tok, max_seqs=max_seqs)
    layers = shape.full_layers
    group = float(tp)
    window = shape.sliding_layers * shape.sliding_window_tok
    tokens = np.arange(max_tok + 1, dtype=np.float64)
    seqs = np.arange(max_seqs + 1, dtype=np.float64)
    # A sliding layer attends to a whole window once a prompt is longer than it: a cost for each
    # token (prefill) and for each sequence (decode), not for each context token.
    # The causal edge of a chunk goes with its tokens too (decoding tokens pay it as well, which is
    # a thousandth of their step).
    linear_s = linear.time_s + tokens * (window * attend.pair_s[-1] + layers * attend.edge_s)
    linear_j = linear.energy_j + tokens * (window * attend.pair_j[-1] + layers * attend.edge_j)
    sliding_floor = (
        shape.sliding_layers * attend.decode_floor_s + window * seqs * attend.decode_ctx_s
    )
    sliding_j = shape.sliding_layers * attend.decode_floor_j + window * seqs * attend.decode_ctx_j
    mix, mix_status = _mix(where, part)
    return StepTable(
        linear_ps=_whole(np.maximum.accumulate(linear_s) * _PS),
        head_ps=_whole(np.maximum.accumulate(head.time_s) * _PS),
        prefill_attn_floor_ps=round(shape.num_layers * attend.prefill_floor_s * _PS),
        prefill_attn_pair_fs=_whole(layers * attend.pair_s * _FS),
        decode_attn_floor_ps=_whole((layers * attend.decode_floor_s + sliding_floor) * _PS),
        decode_attn_ctx_ps=_whole(layers * attend.decode_ctx_s * _PS),
        mix_1024=round(1024 * mix),
        linear_pj=_whole(group * linear_j * _PS),
        head_pj=_whole(group * head.energy_j * _PS),
        prefill_attn_pair_fj=_whole(group * layers * attend.pair_j * _FS),
        decode_attn_floor_pj=_whole(group * (layers * attend.decode_floor_j + sliding_j) * _PS),
        decode_attn_ctx_pj=_whole(group * layers * attend.decode_ctx_j * _PS),
        provenance={
            **{name: (cost.status, cost.source) for name, cost in parts.items()},
            "head": (head.status, head.source),
            "attention": (attend.status, attend.source),
            "mix": mix_status,
            "energy": _energy_status(where),
            "stack": ("estimate", around.source),
        },
    )


def _whole(values: F64) -> U64:
    return np.rint(np.maximum(values, 0.0)).astype(np.uint64)


def _linear(
    where: Device, parts: dict[str, Cost], part: Shard, around: Stack, max_tok: int
) -> Cost:
    at = knots(max_tok)
    time_s = np.sum([cost.time_s for cost in parts.values()], axis=0)
    energy_j = np.sum([cost.energy_j for cost in parts.values()], axis=0)
    overhead_s = around.step_overhead_s(at, device=where, tp=part.tp, layers=part.shape.num_layers)
    tokens = np.arange(max_tok + 1, dtype=np.float64)
    whole_s = np.interp(tokens, at, time_s + overhead_s)
    whole_j = np.interp(tokens, at, energy_j + around.overhead_w(where) * overhead_s)
    whole_s[0] = whole_j[0] = 0.0
    return Cost(time_s=whole_s, energy_j=whole_j, status="", source="")


def _head(where: Device, plain: Precision, part: Shard, around: Stack, max_seqs: int) -> Cost:
    at = knots(max_seqs)
    product = gemm(where, plain, rows=part.shape.hidden_size, cols=part.head_cols, tokens=at)
    launch_s, passes = calibration().scalars["sampler"]
    logits_bytes = 4.0 * part.shape.vocab_size * at
    sampler_s = launch_s + passes * logits_bytes / where.mem_bytes_per_s
    extra_s = sampler_s + around.sequence_s * at
    floor_w = power_curve(where, "gemm", "bf16").above_idle_w(0.0 * at, 0.0 * at)
    seqs = np.arange(max_seqs + 1, dtype=np.float64)
    time_s = np.interp(seqs, at, product.time_s + extra_s)
    extra_j = floor_w * sampler_s + around.overhead_w(where) * around.sequence_s * at
    energy_j = np.interp(seqs, at, product.energy_j + extra_j)
    time_s[0] = energy_j[0] = 0.0
    return Cost(time_s=time_s, energy_j=energy_j, status=product.status, source=product.source)


def _mix(where: Device, part: Shard) -> tuple[float, tuple[str, str]]:
    """Return the share of the smaller attention part that adds, and its provenance.

    The share grows with the query heads a KV head serves: in a mixed step each of them reads the
    cache on its own.
    """
    found = calibration().scalars["mix"]
    group = part.heads / part.kv_heads
    own = [key for key in found if key.startswith(f"{where.id}/")]
    key = min(
        own or [key for key in found if key.startswith("rtx-pro-6000/")],
        key=lambda key: abs(np.log(int(key.split("/")[1]) / group)),
    )
    source = f"mixed prefill and decode attention of {key}, LLMServingSim @5daddb21 (MIT)"
    return found[key], ("estimate", source)


def _energy_status(where: Device) -> tuple[str, str]:
    if where.id in {"h200-sxm", "b200"}:
        return "measured", "NVML board power during kernel loops, aiconfigurator @095f58a5"
    return "estimate", "H200 or B200 power curves as fractions of this device's cap"
