"""How many KV blocks fit beside the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight.errors import ModelError
from firstlight.roofline.device import Device, device
from firstlight.roofline.precision import PRECISIONS, Precision, kv_bits, precision
from firstlight.roofline.shard import Shard, groups, shard
from firstlight.roofline.stack import Stack
from firstlight.roofline.stack import stack as find_stack

if TYPE_CHECKING:
    from firstlight.models import ModelShape

_HIDDEN_COPIES = 4
_INNER_COPIES = 3
"""Activations alive at once at the peak of a step, in widths of the residual stream and of the
feed-forward: the residual, its norm and two projections; gate, up and their product.
"""


def kv_blocks(
    shape: ModelShape,
    device_id: str,
    *,
    tp: int,
    weights: str,
    kv: str,
    block_tok: int = 16,
    mem_util_frac: float = 0.9,
    max_tok: int = 8192,
    stack: str = "vllm-2025",
) -> int:
    """Return the number of KV blocks a replica holds.

    Blocks = (memory · utilisation − weights − activations − graphs) / bytes of a block, all of
    one device. Sliding-window layers count as full ones: an upper bound of what they need.

    Args:
        shape: The model.
        device_id: Catalog id of the device.
        tp: Devices in the tensor-parallel group.
        weights: Format of the linear weights; embedding and output head stay in 16 bits.
        kv: Format of the KV cache.
        block_tok: Tokens in a block.
        mem_util_frac: Share of the memory the server may use.
        max_tok: Most tokens in one step, which sets the activation peak.
        stack: Serving stack, which sets the memory for graphs.

    Raises:
        CatalogError: The device is unknown.
        ModelError: The model does not fit; the message says what it needs, what there is, and
            the smallest group that holds it.
    """
    if block_tok < 1 or not 0 < mem_util_frac <= 1 or max_tok < 1:
        raise ModelError(
            f"block_tok = {block_tok} and max_tok = {max_tok} must be at least 1 and "
            f"mem_util_frac = {mem_util_frac} within 0..1"
        )
    where, form = device(device_id), precision(weights)
    bits, around = kv_bits(kv), find_stack(stack)
    where.peak(form)
    part = shard(shape, tp)
    needed = _resident_bytes(part, form, around, max_tok)
    block_bytes = part.kv_elements_per_tok * bits / 8 * block_tok
    room = where.mem_bytes * mem_util_frac - needed
    if room < block_bytes:
        raise ModelError(
            _does_not_fit(shape, where, form, around, tp, mem_util_frac, max_tok, needed)
        )
    return int(room // block_bytes)


def _resident_bytes(part: Shard, form: Precision, around: Stack, max_tok: int) -> float:
    shape = part.shape
    inner = max(shape.ffn_size // part.tp, part.expert_ffn * max(1, shape.moe_topk))
    activations = 2.0 * max_tok * (_HIDDEN_COPIES * shape.hidden_size + _INNER_COPIES * inner)
    return shard_weight_bytes(part, form) + activations + around.graph_bytes


def shard_weight_bytes(part: Shard, form: Precision) -> float:
    """Return the weights on one device [B], copies of shared heads included."""
    shape = part.shape
    dense = sum(p.rows * p.cols * p.count for p in part.products if not p.is_router)
    router = sum(p.rows * p.cols * p.count for p in part.products if p.is_router)
    routed = 3 * shape.hidden_size * part.expert_ffn * shape.moe_experts * shape.moe_layers
    embeddings = part.head_cols * shape.hidden_size * (1 if shape.tie_embeddings else 2)
    plain = PRECISIONS["bf16"].weight_bits
    return ((dense + routed) * form.weight_bits + (router + embeddings) * plain) / 8


def _does_not_fit(
    shape: ModelShape,
    where: Device,
    form: Precision,
    around: Stack,
    tp: int,
    mem_util_frac: float,
    max_tok: int,
    needed: float,
) -> str:
    has = where.mem_bytes * mem_util_frac
    fitting = [
        size
        for size in groups(shape)
        if _resident_bytes(shard(shape, size), form, around, max_tok) < has
    ]
    advice = f"smallest group that fits: tp = {fitting[0]}" if fitting else "no group up to 8 fits"
    return (
        f"model {shape.id!r} in {form.id} does not fit on {tp} × {where.id}: needs "
        f"{needed / 1e9:.1f} GB a device before any KV cache, has {has / 1e9:.1f} GB "
        f"({mem_util_frac:g} of {where.mem_bytes / 1e9:.0f} GB); {advice}"
    )
