"""Attention of one device, reduced to the two laws the scheduler uses.

Prefill: a floor and a time for each query-key pair that depends on the chunk's length. Decode: affine in the
sum of the contexts, with a floor and a slope for each number of sequences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from firstlight.roofline import ideal
from firstlight.roofline.calibration import Table, calibration
from firstlight.roofline.power import power_curve
from firstlight.roofline.surface import interpolate_log

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from firstlight.roofline.device import Device
    from firstlight.roofline.shard import Shard

    F64 = NDArray[np.float64]

_FIT_FROM_TOK, _FIT_TO_TOK = 256.0, 32768.0
"""Contexts [tok] over which the affine law of decode attention is fitted."""
_TILE_TOK = 128
"""Query rows an attention kernel works on at once: a shorter chunk costs as much as one tile."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Attention:
    """Attention of one layer on one device.

    Attributes:
        prefill_floor_s: Floor of a chunk [s].
        pair_s: Time of a query-key pair by chunk length 0…max_tok [s].
        pair_j: Energy above idle beside `pair_s` [J].
        decode_floor_s: Floor of a decode batch by sequences 0…max_seqs [s].
        decode_ctx_s: Time of one context token by sequences [s].
        decode_floor_j: Energy above idle beside `decode_floor_s` [J].
        decode_ctx_j: Energy above idle beside `decode_ctx_s` [J].
        status: ``measured`` or ``estimate``.
        source: Where the numbers come from.
    """

    prefill_floor_s: float
    pair_s: F64
    pair_j: F64
    decode_floor_s: F64
    decode_ctx_s: F64
    decode_floor_j: F64
    decode_ctx_j: F64
    status: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kernel:
    """The shape an attention kernel sees on one device, as the tabled kernels express it."""

    heads: float
    kv_heads: float
    head_dim: float


def attention(
    device: Device, part: Shard, *, kv_bits: int, max_tok: int, max_seqs: int
) -> Attention:
    """Return the attention laws of one layer.

    Args:
        device: Where it runs.
        part: The device's share of the model.
        kv_bits: Bits of a cached element.
        max_tok: Longest chunk [tok].
        max_seqs: Most decoding sequences.
    """
    shape = part.shape
    form = "bf16-fp8" if kv_bits == 8 else "bf16-bf16"
    prefill = _table("prefill_attention", device, form)
    decode = _table("decode_attention", device, form)
    own = all(t.key.split("/")[1:] == [device.id, form] for t in (prefill, decode))
    first = then = _Kernel(heads=part.heads, kv_heads=part.kv_heads, head_dim=float(shape.head_dim))
    if shape.is_mla:
        own = False
        width = shape.mla_qk_nope_dim + shape.mla_qk_rope_dim + shape.mla_v_dim
        first = _Kernel(heads=part.heads, kv_heads=part.heads, head_dim=width / 2)
        latent = shape.mla_kv_lora_rank + shape.mla_qk_rope_dim
        flop = 2.0 * part.heads * (latent + shape.mla_kv_lora_rank)
        then = _Kernel(heads=flop / (2.0 * latent), kv_heads=1.0, head_dim=latent / 2)
    floor, pair = _prefill(device, prefill, first, kv_bits=kv_bits, max_tok=max_tok)
    decode_floor, decode_ctx = _decode(device, decode, then, kv_bits=kv_bits, max_seqs=max_seqs)
    peak = device.peaks["dense_bf16_flop_per_s"]
    with np.errstate(divide="ignore", invalid="ignore"):
        pair_use = np.where(pair > 0, 4.0 * first.heads * first.head_dim / pair / peak, 0.0)
        ctx_bytes = 2.0 * then.kv_heads * then.head_dim * kv_bits / 8
        ctx_use = np.where(decode_ctx > 0, ctx_bytes / decode_ctx / device.mem_bytes_per_s, 0.0)
    prefill_w = power_curve(device, "prefill_attention", form)
    decode_w = power_curve(device, "decode_attention", form)
    zero = 0.0 * decode_floor
    return Attention(
        prefill_floor_s=floor,
        pair_s=pair,
        pair_j=pair * prefill_w.above_idle_w(pair_use, 0.0 * pair_use),
        decode_floor_s=decode_floor,
        decode_ctx_s=decode_ctx,
        decode_floor_j=decode_floor * decode_w.above_idle_w(zero, zero),
        decode_ctx_j=decode_ctx * decode_w.above_idle_w(0.0 * ctx_use, ctx_use),
        status="measured" if own else "estimate",
        source=decode.source if own else f"residuals of {decode.key} on datasheet peaks",
    )


def _table(kernel: str, device: Device, form: str) -> Table:
    for name in (device.tables, "a100-sxm"):
        table, _ = calibration().find(kernel, name, form, "bf16-bf16")
        if table is not None:
            return table
    raise LookupError(kernel)


def _peaks(table: Table, device: Device) -> tuple[float, float]:
    if table.key.split("/")[1] == device.id:
        return table.flop_per_s, table.bytes_per_s
    return device.peaks["dense_bf16_flop_per_s"], device.mem_bytes_per_s


def _prefill(
    device: Device, table: Table, kernel: _Kernel, *, kv_bits: int, max_tok: int
) -> tuple[float, F64]:
    surface = table.grid.at(kernel.heads, kernel.kv_heads)
    flop_per_s, bytes_per_s = _peaks(table, device)
    scattered = "rtx" in table.key
    lengths = surface.axes[0] if scattered else surface.axes[1]
    kv = surface.axes[1] if scattered else np.zeros(1)
    chunk, behind = (a.ravel() for a in np.meshgrid(lengths, kv, indexing="ij"))
    residual = surface.residual.ravel() if scattered else surface.residual[0]
    time_s = np.exp(residual) * ideal.prefill_attention_s(
        1,
        chunk,
        behind,
        kernel.heads,
        kernel.kv_heads,
        head_dim=kernel.head_dim,
        flop_per_s=flop_per_s,
        bytes_per_s=bytes_per_s,
        kv_bits=kv_bits,
    )
    floor = float(time_s.min())
    pairs = chunk * behind + chunk * (chunk + 1) / 2
    time_s, pairs = (a.reshape(len(lengths), len(kv)) for a in (time_s, pairs))
    # Rate of a pair that best explains the chunk's times, each weighed by its relative error.
    weight = pairs / time_s**2
    rate = ((time_s - floor) * weight).sum(axis=1) / (pairs * weight).sum(axis=1)
    usable = lengths >= _TILE_TOK
    q = np.arange(1, max_tok + 1, dtype=np.float64)
    whole = np.exp(
        interpolate_log(
            np.maximum(q, _TILE_TOK), lengths[usable], np.log(np.maximum(rate[usable], 1e-18))
        )
    )
    pair = np.concatenate([[0.0], whole * np.maximum(1.0, _TILE_TOK / q)])
    return floor, pair


def _decode(
    device: Device, table: Table, kernel: _Kernel, *, kv_bits: int, max_seqs: int
) -> tuple[F64, F64]:
    surface = table.grid.at(kernel.heads, kernel.kv_heads)
    flop_per_s, bytes_per_s = _peaks(table, device)
    batch, context = surface.axes
    used = (context >= _FIT_FROM_TOK) & (context <= _FIT_TO_TOK)
    context = context[used]
    total = batch[:, None] * context
    time_s = np.exp(surface.residual[:, used]) * ideal.decode_attention_s(
        batch[:, None],
        context,
        kernel.heads,
        kernel.kv_heads,
        head_dim=kernel.head_dim,
        flop_per_s=flop_per_s,
        bytes_per_s=bytes_per_s,
        kv_bits=kv_bits,
    )
    floor, slope = affine(total, time_s)
    n = np.arange(1, max_seqs + 1, dtype=np.float64)
    return (
        np.concatenate([[0.0], interpolate_log(n, batch, floor)]),
        np.concatenate([[0.0], interpolate_log(n, batch, slope)]),
    )


def affine(x: F64, y: F64) -> tuple[F64, F64]:
    """Return (floor, slope) ≥ 0 of each row's line y = floor + slope · x, least relative squares.

    Args:
        x: Abscissae, (rows, points).
        y: Positive ordinates, (rows, points).
    """
    w = 1.0 / y**2
    sw, sx, sy = w.sum(axis=1), (w * x).sum(axis=1), (w * y).sum(axis=1)
    sxx, sxy = (w * x * x).sum(axis=1), (w * x * y).sum(axis=1)
    slope = np.maximum((sw * sxy - sx * sy) / (sw * sxx - sx * sx), 0.0)
    floor = (sy - slope * sx) / sw
    through_origin = floor < 0
    slope = np.where(through_origin, sxy / sxx, slope)
    return np.where(through_origin, 0.0, floor), slope
