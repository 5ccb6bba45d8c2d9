"""Attention of one device, reduced to the two laws the scheduler uses.

Prefill: a floor, a causal edge for each token and a time for each query-key pair that depends on
the chunk's length. Decode: affine in the
sum of the contexts, with a floor and a slope for each number of sequences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from firstlight.roofline import ideal
from firstlight.roofline.calibration import Table, calibration
from firstlight.roofline.power import power_curve
from firstlight.roofline.surface import Scatter, interpolate_log

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from firstlight.roofline.device import Device
    from firstlight.roofline.shard import Shard

    F64 = NDArray[np.float64]

FIT_FROM_TOK, FIT_TO_TOK = 256.0, 32768.0
"""Contexts [tok] over which the affine law of decode attention is fitted."""
TILE_TOK = 128
"""Query rows an attention kernel works on at once: a shorter chunk costs as much as one tile."""
EDGE_TOK, CARD_EDGE_TOK = 640.0, 480.0
"""What the causal edge costs beyond its pairs [tok]: a chunk's own q (q + 1) / 2 pairs take as long
as q (q + 640) / 2 pairs behind it. Datacenter devices, workstation cards.

Source: chunks of 512 to 2,048 tokens with and without resident tokens: A800 560 and H800 500 to
880 (NetX-lab/Frontier @a4b22df8), RTX PRO 6000 430 to 540 (LLMServingSim @5daddb21).
"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Attention:
    """Attention of one layer on one device.

    Attributes:
        prefill_floor_s: Floor of a chunk [s].
        edge_s: Time of the causal edge for each token of a chunk [s].
        edge_j: Energy above idle beside `edge_s` [J].
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
    edge_s: float
    edge_j: float
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
    law = _prefill(device, prefill, first, kv_bits=kv_bits)
    pair = np.concatenate([[0.0], law.pair_s(np.arange(1, max_tok + 1, dtype=np.float64))])
    decode_floor, decode_ctx = _decode(device, decode, then, kv_bits=kv_bits, max_seqs=max_seqs)
    peak = device.peaks["dense_bf16_flop_per_s"]
    with np.errstate(divide="ignore", invalid="ignore"):
        pair_use = np.where(pair > 0, 4.0 * first.heads * first.head_dim / pair / peak, 0.0)
        ctx_bytes = 2.0 * then.kv_heads * then.head_dim * kv_bits / 8
        ctx_use = np.where(decode_ctx > 0, ctx_bytes / decode_ctx / device.mem_bytes_per_s, 0.0)
    prefill_w = power_curve(device, "prefill_attention", form)
    decode_w = power_curve(device, "decode_attention", form)
    zero = 0.0 * decode_floor
    pair_j = pair * prefill_w.above_idle_w(pair_use, 0.0 * pair_use)
    return Attention(
        prefill_floor_s=law.floor_s,
        edge_s=law.edge_s,
        edge_j=law.edge_s * float(pair_j[-1] / pair[-1]),
        pair_s=pair,
        pair_j=pair_j,
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PrefillLaw:
    """Time of a chunk of q tokens behind kv: floor + edge · q + pair(q) · (q · kv + q (q + 1) / 2).

    Attributes:
        floor_s: Floor of a chunk [s].
        edge_s: Time of the causal edge for each token [s].
        lengths: Chunk lengths at which the pair's time is known [tok], ascending.
        rates: Time of a pair at those lengths [s].
    """

    floor_s: float
    edge_s: float
    lengths: F64
    rates: F64

    def pair_s(self, q: F64) -> F64:
        """Return the time of a pair in chunks of `q` tokens [s]."""
        known = np.log(self.rates)
        whole = np.exp(interpolate_log(np.maximum(q, TILE_TOK), self.lengths, known))
        return whole * np.maximum(1.0, TILE_TOK / q)


def prefill_law(lengths: F64, behind: F64, time_s: F64, *, edge_tok: float) -> PrefillLaw:
    """Return the law that best explains measured chunks.

    Args:
        lengths: Chunk lengths q [tok], ascending.
        behind: Resident tokens kv [tok].
        time_s: Measured times, (lengths, behind) [s].
        edge_tok: Extent of the causal edge [tok].
    """
    floor = float(time_s.min())
    usable = lengths >= TILE_TOK
    chunk, times = lengths[usable][:, None], time_s[usable]
    rate = _pair_rate(times - floor, chunk * behind + chunk * (chunk + edge_tok) / 2, times)
    edge = float(rate[-1]) * (edge_tok - 1) / 2
    if len(behind) > 1:
        # Resident tokens were measured: the pairs take what the edge leaves.
        rate = _pair_rate(
            times - floor - edge * chunk, chunk * behind + chunk * (chunk + 1) / 2, times
        )
    # Short chunks are mostly floor, so their rate is noise: it is never below a longer chunk's.
    rate = np.maximum.accumulate(np.maximum(rate, _LEAST_PAIR_S)[::-1])[::-1]
    return PrefillLaw(floor_s=floor, edge_s=edge, lengths=lengths[usable], rates=rate)


def _pair_rate(spent_s: F64, pairs: F64, time_s: F64) -> F64:
    """Return the time of a pair that best explains each chunk length, least relative squares."""
    weight = pairs / time_s**2
    return np.asarray((spent_s * weight).sum(axis=1) / (pairs * weight).sum(axis=1))


_LEAST_PAIR_S = 1e-18


def _prefill(device: Device, table: Table, kernel: _Kernel, *, kv_bits: int) -> PrefillLaw:
    surface = table.grid.at(kernel.heads, kernel.kv_heads)
    flop_per_s, bytes_per_s = _peaks(table, device)
    measured_behind = isinstance(table.grid, Scatter)
    lengths = surface.axes[0] if measured_behind else surface.axes[1]
    behind = surface.axes[1] if measured_behind else np.zeros(1)
    residual = surface.residual if measured_behind else surface.residual[0][:, None]
    time_s = np.exp(residual) * ideal.prefill_attention_s(
        1.0,
        lengths[:, None],
        behind,
        kernel.heads,
        kernel.kv_heads,
        head_dim=kernel.head_dim,
        flop_per_s=flop_per_s,
        bytes_per_s=bytes_per_s,
        kv_bits=kv_bits,
    )
    edge_tok = CARD_EDGE_TOK if measured_behind else EDGE_TOK
    return prefill_law(lengths, behind, time_s, edge_tok=edge_tok)


def _decode(
    device: Device, table: Table, kernel: _Kernel, *, kv_bits: int, max_seqs: int
) -> tuple[F64, F64]:
    surface = table.grid.at(kernel.heads, kernel.kv_heads)
    flop_per_s, bytes_per_s = _peaks(table, device)
    batch, context = surface.axes
    used = (context >= FIT_FROM_TOK) & (context <= FIT_TO_TOK)
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
    # A kernel loop can read a small cache from L2; between the layers of a model it cannot stay.
    ctx_bytes = 2 * kernel.kv_heads * kernel.head_dim * kv_bits / 8
    slope = np.maximum(slope, ctx_bytes / bytes_per_s)
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
