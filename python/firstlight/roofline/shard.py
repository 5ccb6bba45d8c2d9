"""A model cut over a tensor-parallel group: what one device of the group computes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from firstlight.errors import ModelError

if TYPE_CHECKING:
    from firstlight.models import ModelShape

GROUPS = (1, 2, 4, 8)
"""Group sizes with measured collectives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A matrix product on one device: `count` times (m, rows) × (rows, cols)."""

    name: str
    rows: int
    cols: int
    count: int
    is_router: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One device's part of a model.

    Attributes:
        shape: The whole model.
        tp: Devices in the group.
        products: Dense matrix products of one step.
        heads: Query heads on this device.
        kv_heads: KV heads on this device; a head is copied when there are fewer than devices.
        expert_ffn: Inner width of an expert on this device; 0 without experts.
        elementwise: Activations that norms, rotary embedding and activation move a token and
            layer, averaged over layers.
        head_cols: Columns of the output head on this device.
    """

    shape: ModelShape
    tp: int
    products: tuple[Product, ...]
    heads: int
    kv_heads: int
    expert_ffn: int
    elementwise: float
    head_cols: int

    @property
    def kv_elements_per_tok(self) -> int:
        """Cached elements a token on this device, all layers."""
        if self.shape.is_mla:
            return self.shape.kv_elements_per_tok
        return self.shape.num_layers * 2 * self.kv_heads * self.shape.head_dim


@lru_cache(maxsize=256)
def shard(shape: ModelShape, tp: int) -> Shard:
    """Return what one of `tp` devices computes of `shape`.

    Raises:
        ModelError: The group size is not 1, 2, 4 or 8, or a dimension does not divide by it.
    """
    _check(shape, tp)
    heads = shape.num_heads // tp
    kv_heads = max(1, shape.num_kv_heads // tp)
    hidden, layers = shape.hidden_size, shape.num_layers
    found = [*_projections(shape, heads, kv_heads)]
    moved = 8.0 * hidden + 2 * shape.head_dim * (heads + kv_heads)
    if shape.dense_layers:
        inner = shape.ffn_size // tp
        found.append(_product("gate_up", hidden, 2 * inner, shape.dense_layers))
        found.append(_product("down", inner, hidden, shape.dense_layers))
        moved += 3.0 * inner * shape.dense_layers / layers
    if shape.moe_layers:
        expert = shape.moe_expert_ffn_size // tp
        router = Product(
            name="router",
            rows=hidden,
            cols=shape.moe_experts,
            count=shape.moe_layers,
            is_router=True,
        )
        found.append(router)
        if shape.moe_shared_experts:
            inner = expert * shape.moe_shared_experts
            found.append(_product("shared_gate_up", hidden, 2 * inner, shape.moe_layers))
            found.append(_product("shared_down", inner, hidden, shape.moe_layers))
            moved += 3.0 * inner * shape.moe_layers / layers
    return Shard(
        shape=shape,
        tp=tp,
        products=tuple(found),
        heads=heads,
        kv_heads=kv_heads,
        expert_ffn=shape.moe_expert_ffn_size // tp if shape.is_moe else 0,
        elementwise=moved,
        head_cols=-(-shape.vocab_size // tp),
    )


def _product(name: str, rows: int, cols: int, count: int) -> Product:
    return Product(name=name, rows=rows, cols=cols, count=count)


def _projections(shape: ModelShape, heads: int, kv_heads: int) -> list[Product]:
    hidden, layers = shape.hidden_size, shape.num_layers
    if not shape.is_mla:
        width = heads * shape.head_dim
        return [
            _product("qkv", hidden, width + 2 * kv_heads * shape.head_dim, layers),
            _product("o", width, hidden, layers),
        ]
    rank, latent = shape.mla_q_lora_rank, shape.mla_kv_lora_rank + shape.mla_qk_rope_dim
    query = heads * (shape.mla_qk_nope_dim + shape.mla_qk_rope_dim)
    # The compressions are copied to every device: they are small and feed all heads.
    compress = _product("q_kv_down", hidden, rank + latent, layers)
    return [
        compress,
        _product("q_up", rank or hidden, query, layers),
        _product(
            "kv_up",
            shape.mla_kv_lora_rank,
            heads * (shape.mla_qk_nope_dim + shape.mla_v_dim),
            layers,
        ),
        _product("o", heads * shape.mla_v_dim, hidden, layers),
    ]


def _divides(shape: ModelShape, tp: int) -> str:
    """Return what does not divide by `tp`, or an empty string."""
    checks = [("num_heads", shape.num_heads)]
    if shape.dense_layers:
        checks.append(("ffn_size", shape.ffn_size))
    if shape.is_moe:
        checks.append(("moe_expert_ffn_size", shape.moe_expert_ffn_size))
    for name, value in checks:
        if value % tp:
            return f"{name} = {value}"
    if shape.num_kv_heads % tp and tp % shape.num_kv_heads:
        return f"num_kv_heads = {shape.num_kv_heads}"
    return ""


def groups(shape: ModelShape) -> tuple[int, ...]:
    """Return the tensor-parallel sizes over which `shape` can be cut."""
    return tuple(tp for tp in GROUPS if not _divides(shape, tp))


def _check(shape: ModelShape, tp: int) -> None:
    allowed = ", ".join(str(size) for size in groups(shape))
    if tp not in GROUPS:
        raise ModelError(
            f"model {shape.id!r}: tensor parallel over {tp} devices is not supported; "
            f"allowed: {allowed}"
        )
    obstacle = _divides(shape, tp)
    if obstacle:
        raise ModelError(
            f"model {shape.id!r}: {obstacle} does not divide over tp = {tp}; allowed: {allowed}"
        )
