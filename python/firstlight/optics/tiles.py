"""Cutting a model's linear layers into the tiles of a mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from firstlight.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from firstlight.optics.spec import EngineSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearLayer:
    """A matrix product that occurs `count` times in a model.

    Attributes:
        name: What it is, for tables and errors.
        k: Inputs.
        n: Outputs.
        count: Occurrences (usually the number of layers).
        experts: Resident copies to choose from (1 for a dense layer).
        top_k: Copies each token uses.

    Raises:
        ModelError: When a size is not a positive whole number or `top_k` exceeds `experts`.
    """

    name: str
    k: int
    n: int
    count: int = 1
    experts: int = 1
    top_k: int = 1

    def __post_init__(self) -> None:
        for what in ("k", "n", "count", "experts", "top_k"):
            value = getattr(self, what)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ModelError(
                    f"layer {self.name!r}: {what}={value!r} must be a whole number ≥ 1"
                )
        if self.top_k > self.experts:
            raise ModelError(
                f"layer {self.name!r}: top_k={self.top_k} exceeds experts={self.experts}"
            )

    def k_tiles(self, spec: EngineSpec) -> int:
        """Tiles along the inputs."""
        return -(-self.k // spec.inputs)

    def n_tiles(self, spec: EngineSpec) -> int:
        """Tiles along the outputs."""
        return -(-self.n // spec.outputs)

    def tiles(self, spec: EngineSpec) -> int:
        """Tiles of one copy of one occurrence."""
        return self.k_tiles(spec) * self.n_tiles(spec)

    def experts_hit(self, tokens: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how many copies a batch is expected to touch when tokens choose evenly.

        Args:
            tokens: Batch sizes.

        Returns:
            experts · (1 − (1 − top_k/experts)^tokens); a real router is less even and touches fewer.
        """
        miss = 1.0 - self.top_k / self.experts
        hit: NDArray[np.float64] = self.experts * (1.0 - miss**tokens)
        return hit


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearStack:
    """What an optical server has to compute for one model.

    Attributes:
        layers: Every linear layer except the output head.
        hidden_size: Width of the residual stream; a chunk's activations are this wide.
        head: The output head, computed digitally for the last token of a prompt, or None.
        attention_mac_per_pair: Multiply-accumulates of one query-key pair over all layers.
        kv_elements_per_tok: Numbers stored for one token over all layers.
    """

    layers: tuple[LinearLayer, ...]
    hidden_size: int
    head: LinearLayer | None = None
    attention_mac_per_pair: int = 0
    kv_elements_per_tok: int = 0

    def __post_init__(self) -> None:
        if not self.layers:
            raise ModelError("a model without linear layers has nothing to compute optically")
        if self.hidden_size < 1:
            raise ModelError(f"hidden_size={self.hidden_size!r} must be ≥ 1")

    @property
    def resident_weights(self) -> int:
        """Weights of all layers, every expert counted, head excluded."""
        return sum(layer.k * layer.n * layer.count * layer.experts for layer in self.layers)

    @property
    def active_weights(self) -> int:
        """Weights one token meets, head excluded."""
        return sum(layer.k * layer.n * layer.count * layer.top_k for layer in self.layers)


def tile_count(stack: LinearStack | Sequence[LinearLayer], *, spec: EngineSpec) -> int:
    """Return the tiles of a model, every resident expert counted, output head excluded.

    Examples:
        Llama-3.1-8B is 6,656 tiles of 1,024² or 1,664 of 2,048².
    """
    layers = stack.layers if isinstance(stack, LinearStack) else stack
    return sum(layer.tiles(spec) * layer.count * layer.experts for layer in layers)


def linear_stack(shape: Any) -> LinearStack:  # noqa: ANN401 (any object with a model's shape)
    """Extract the linear layers of a model, with q, k, v fused and gate, up fused.

    Fusing matters: it is one mask sweep over the same inputs, and it is how tiles are counted.

    Args:
        shape: An object or mapping with `hidden_size`, `num_heads`, `num_kv_heads`, `head_dim`,
            `ffn_size`, `num_layers`, `vocab_size`, and optionally `moe` (`experts`, `topk`,
            `expert_ffn`, `shared`, `first_dense_layers`) and `mla` (`q_lora_rank`,
            `kv_lora_rank`, `qk_nope`, `qk_rope`, `v`).

    Raises:
        ModelError: When a size is missing or impossible.
    """
    hidden, layers = _size(shape, "hidden_size"), _size(shape, "num_layers")
    heads = _size(shape, "num_heads")
    mla = _get(shape, "mla")
    if mla is None:
        attention, head_mac, kv = _grouped_attention(shape)
    else:
        attention, head_mac, kv = _latent_attention(shape, mla)
    vocab = _size(shape, "vocab_size")
    return LinearStack(
        layers=(*attention, *_feed_forward(shape)),
        hidden_size=hidden,
        head=LinearLayer(name="head", k=hidden, n=vocab),
        attention_mac_per_pair=layers * heads * head_mac,
        kv_elements_per_tok=layers * kv,
    )


def _grouped_attention(shape: object) -> tuple[list[LinearLayer], int, int]:
    hidden, layers = _size(shape, "hidden_size"), _size(shape, "num_layers")
    heads, kv_heads = _size(shape, "num_heads"), _size(shape, "num_kv_heads")
    dim = _size(shape, "head_dim")
    linear = [
        LinearLayer(name="qkv", k=hidden, n=(heads + 2 * kv_heads) * dim, count=layers),
        LinearLayer(name="attention_out", k=heads * dim, n=hidden, count=layers),
    ]
    return linear, 2 * dim, 2 * kv_heads * dim


def _latent_attention(shape: object, mla: object) -> tuple[list[LinearLayer], int, int]:
    hidden, layers = _size(shape, "hidden_size"), _size(shape, "num_layers")
    heads = _size(shape, "num_heads")
    q_rank, kv_rank = _size(mla, "q_lora_rank"), _size(mla, "kv_lora_rank")
    nope, rope, value = _size(mla, "qk_nope"), _size(mla, "qk_rope"), _size(mla, "v")
    linear = [
        LinearLayer(name="q_kv_down", k=hidden, n=q_rank + kv_rank + rope, count=layers),
        LinearLayer(name="q_up", k=q_rank, n=heads * (nope + rope), count=layers),
        LinearLayer(name="kv_up", k=kv_rank, n=heads * (nope + value), count=layers),
        LinearLayer(name="attention_out", k=heads * value, n=hidden, count=layers),
    ]
    return linear, nope + rope + value, kv_rank + rope


def _feed_forward(shape: object) -> list[LinearLayer]:
    hidden, layers = _size(shape, "hidden_size"), _size(shape, "num_layers")
    moe = _get(shape, "moe")
    if moe is None:
        return _gated(hidden=hidden, ffn=_size(shape, "ffn_size"), count=layers)
    dense = int(_get(moe, "first_dense_layers") or 0)
    experts, top_k = _size(moe, "experts"), _size(moe, "topk")
    expert_ffn, shared = _size(moe, "expert_ffn"), int(_get(moe, "shared") or 0)
    sparse = layers - dense
    if sparse < 1:
        raise ModelError(f"moe: first_dense_layers={dense} leaves no sparse layer of {layers}")
    out = [
        LinearLayer(
            name="expert_gate_up",
            k=hidden,
            n=2 * expert_ffn,
            count=sparse,
            experts=experts,
            top_k=top_k,
        ),
        LinearLayer(
            name="expert_down", k=expert_ffn, n=hidden, count=sparse, experts=experts, top_k=top_k
        ),
    ]
    if dense:
        out += _gated(hidden=hidden, ffn=_size(shape, "ffn_size"), count=dense)
    if shared:
        out += _gated(hidden=hidden, ffn=shared * expert_ffn, count=sparse, prefix="shared_")
    return out


def _gated(*, hidden: int, ffn: int, count: int, prefix: str = "") -> list[LinearLayer]:
    return [
        LinearLayer(name=f"{prefix}gate_up", k=hidden, n=2 * ffn, count=count),
        LinearLayer(name=f"{prefix}down", k=ffn, n=hidden, count=count),
    ]


def _get(shape: object, name: str) -> Any:  # noqa: ANN401
    if isinstance(shape, Mapping):
        return shape.get(name)
    return getattr(shape, name, None)


def _size(shape: object, name: str) -> int:
    value = _get(shape, name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ModelError(f"model shape: {name}={value!r} must be a whole number ≥ 1")
    return value
