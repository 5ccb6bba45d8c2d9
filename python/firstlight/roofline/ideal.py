"""The physical roofline of each kernel: what it would take without any loss but a launch.

Each function is the denominator of a measured residual (`surface`). A kernel that is bound by
neither arithmetic nor bandwidth alone sits a little above both lines; the fourth-power mean
rounds that corner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    F64 = NDArray[np.float64]
    Number = F64 | float

GEMM_LAUNCH_S = 2e-6
ATTENTION_LAUNCH_S = 5e-6
EXPERT_LAUNCH_S = 20e-6
COLLECTIVE_LAUNCH_S = 3e-6
ELEMENTWISE_LAUNCH_S = 2e-6
"""Shortest useful kernel times [s]: scales for the residuals, not claims; the tables correct them."""


def corner(compute_s: Number, memory_s: Number) -> F64:
    """Return the rounded maximum of the two bounds [s]."""
    return np.asarray((compute_s**4 + memory_s**4) ** 0.25)


def gemm_s(
    m: F64,
    n: Number,
    k: Number,
    *,
    flop_per_s: float,
    bytes_per_s: float,
    weight_bits: float,
    activation_bits: float,
) -> F64:
    """Return the time of an (m, k) × (k, n) product with 16-bit output [s]."""
    moved = n * k * (weight_bits / 8) + m * k * (activation_bits / 8) + 2.0 * m * n
    return GEMM_LAUNCH_S + corner(2.0 * m * n * k / flop_per_s, moved / bytes_per_s)


def prefill_attention_s(
    sequences: Number,
    q: Number,
    kv: Number,
    heads: Number,
    kv_heads: Number,
    *,
    head_dim: float,
    flop_per_s: float,
    bytes_per_s: float,
    kv_bits: float,
) -> F64:
    """Return the causal attention time of chunks of `q` tokens behind `kv` resident ones [s]."""
    pairs = sequences * (q * kv + q * (q + 1) / 2)
    moved = sequences * head_dim * (4.0 * q * heads + 2 * (q + kv) * kv_heads * (kv_bits / 8))
    return ATTENTION_LAUNCH_S + corner(
        4.0 * heads * head_dim * pairs / flop_per_s, moved / bytes_per_s
    )


def decode_attention_s(
    sequences: Number,
    context: Number,
    heads: Number,
    kv_heads: Number,
    *,
    head_dim: float,
    flop_per_s: float,
    bytes_per_s: float,
    kv_bits: float,
) -> F64:
    """Return the attention time of one new token for each sequence [s]."""
    flop = 4.0 * heads * head_dim * sequences * context
    moved = sequences * head_dim * (context * 2 * kv_heads * (kv_bits / 8) + 4.0 * heads)
    return ATTENTION_LAUNCH_S + corner(flop / flop_per_s, moved / bytes_per_s)


def experts_s(
    m: Number,
    hidden: float,
    inner: float,
    topk: float,
    *,
    experts_hit: Number,
    flop_per_s: float,
    bytes_per_s: float,
    weight_bits: float,
) -> F64:
    """Return the time of the grouped gate, up and down products of routed experts [s]."""
    matrices = 3.0 * hidden * inner
    moved = experts_hit * matrices * (weight_bits / 8) + 4.0 * m * topk * hidden
    return EXPERT_LAUNCH_S + corner(2.0 * m * topk * matrices / flop_per_s, moved / bytes_per_s)


def all_reduce_s(elements: Number, gpus: float, *, link_bytes_per_s: float) -> F64:
    """Return the ring all-reduce time of a 16-bit vector [s]."""
    moved = 2.0 * (gpus - 1) / gpus * 2.0 * elements
    return np.asarray(COLLECTIVE_LAUNCH_S + moved / link_bytes_per_s)


def elementwise_s(m: Number, elements_per_tok: float, launches: int, *, bytes_per_s: float) -> F64:
    """Return the time of `launches` fused element-wise kernels over 16-bit activations [s]."""
    return np.asarray(launches * ELEMENTWISE_LAUNCH_S + 2.0 * m * elements_per_tok / bytes_per_s)
