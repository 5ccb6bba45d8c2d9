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
from firstlight.roofline.stack import Stack, stack
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
    return _step_table(shape, device_id, tp, weights, kv, max_tok, max_seqs, stack)


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
    stack_id: str,
) -> StepTable:
    where, form, bits, around = device(device_id), precision(weights), kv_bits(kv), stack(stack_id)
    where.peak(form)
    part = shard(shape, tp)
    plain = PRECISIONS["bf16"]
    linear = _linear(where, form, plain, part, around, max_tok)
    head = _head(where, plain, part, around, max_seqs)
    attend = attention(where, part, kv_bits=bits, max_tok=max_tok, max_seqs=max_seqs)
    layers, scale = shape.full_layers, around.kernel_scale
    group = float(tp)
    window = shape.sliding_layers * shape.sliding_window_tok
    tokens = np.arange(max_tok + 1, dtype=np.float64)
    seqs = np.arange(max_seqs + 1, dtype=np.float64)
    # A sliding layer attends to a whole window once a prompt is longer than it: a cost for each
    # token (prefill) and for each sequence (decode), not for each context token.
    linear_s = linear.time_s + scale * window * tokens * attend.pair_s[-1]
    linear_j = linear.energy_j + scale * window * tokens * attend.pair_j[-1]
    sliding_floor = (
        shape.sliding_layers * attend.decode_floor_s + window * seqs * attend.decode_ctx_s
    )
    sliding_j = shape.sliding_layers * attend.decode_floor_j + window * seqs * attend.decode_ctx_j
    mix, mix_status = _mix(where)
    return StepTable(
        linear_ps=_whole(np.maximum.accumulate(linear_s) * _PS),
        head_ps=_whole(np.maximum.accumulate(head.time_s) * _PS),
        prefill_attn_floor_ps=round(scale * shape.num_layers * attend.prefill_floor_s * _PS),
        prefill_attn_pair_fs=_whole(scale * layers * attend.pair_s * _FS),
        decode_attn_floor_ps=_whole(scale * (layers * attend.decode_floor_s + sliding_floor) * _PS),
        decode_attn_ctx_ps=_whole(scale * layers * attend.decode_ctx_s * _PS),
        mix_1024=round(1024 * mix),
        linear_pj=_whole(group * linear_j * _PS),
        head_pj=_whole(group * head.energy_j * _PS),
        prefill_attn_pair_fj=_whole(group * scale * layers * attend.pair_j * _FS),
        decode_attn_floor_pj=_whole(
            group * scale * (layers * attend.decode_floor_j + sliding_j) * _PS
        ),
        decode_attn_ctx_pj=_whole(group * scale * layers * attend.decode_ctx_j * _PS),
        provenance={
            "linear": (linear.status, linear.source),
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
    where: Device, form: Precision, plain: Precision, part: Shard, around: Stack, max_tok: int
) -> Cost:
    at = knots(max_tok)
    parts = linear_parts(where, form, plain, part, at)
    time_s = around.kernel_scale * sum(cost.time_s for cost in parts.values())
    energy_j = around.kernel_scale * sum(cost.energy_j for cost in parts.values())
    floor_w = float(power_curve(where, "gemm", "bf16").above_idle_w(np.zeros(1), np.zeros(1))[0])
    tokens = np.arange(max_tok + 1, dtype=np.float64)
    whole_s = np.interp(tokens, at, time_s + around.step_s)
    whole_j = np.interp(tokens, at, energy_j + floor_w * around.step_s)
    whole_s[0] = whole_j[0] = 0.0
    worst = next((c for c in parts.values() if c.status == "estimate"), next(iter(parts.values())))
    return Cost(time_s=whole_s, energy_j=whole_j, status=worst.status, source=worst.source)


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
    energy_j = np.interp(seqs, at, product.energy_j + floor_w * extra_s)
    time_s[0] = energy_j[0] = 0.0
    return Cost(time_s=time_s, energy_j=energy_j, status=product.status, source=product.source)


def _mix(where: Device) -> tuple[float, tuple[str, str]]:
    found = calibration().scalars["mix"]
    if where.id in found:
        return found[where.id], (
            "measured",
            "mixed prefill and decode attention, LLMServingSim (MIT)",
        )
    mean = sum(found.values()) / len(found)
    return mean, ("estimate", "mean of the mixed tables of RTX 4090 and RTX PRO 6000")


def _energy_status(where: Device) -> tuple[str, str]:
    if where.id in {"h200-sxm", "b200"}:
        return "measured", "NVML board power during kernel loops, aiconfigurator @095f58a5"
    return "estimate", "H200 or B200 power curves as fractions of this device's cap"
