"""What one pass over a batch computes: the operator list of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from firstlight.errors import ModelError

if TYPE_CHECKING:
    from firstlight.models.shape import ModelShape

Kind = Literal["linear", "attention", "other", "head"]
Phase = Literal["prefill", "decode"]

LOAD_SPREAD = 1.2
"""Exponent of the power law by which routers load experts.

Source: the load distribution that ai-dynamo/aiconfigurator (Apache-2.0) measures its
mixture-of-experts kernels with (``power_law_1.2``).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator, repeated over layers. A matrix product maps `rows` inputs to `cols` outputs.

    Attributes:
        name: ``qkv``, ``o``, ``gate_up``, ``down``, ``router``, ``experts_gate_up``, … .
        kind: ``linear`` (weights times activations), ``attention`` (activations times
            activations), ``other`` (element-wise) or ``head`` (output head).
        rows: Inputs K of the matrix product; 0 when there is none.
        cols: Outputs N of the matrix product; 0 when there is none.
        count: Layers that hold the operator.
        experts: Routed copies of the matrix in a layer; 1 for a plain matrix.
        experts_active: Copies that one token visits.
        flop_per_pair: FLOP of one query-key pair in one layer (attention only).
        elements_per_tok: Activations read and written in one layer by one token.
        elements_per_pair: KV elements read in one layer for each context token (decode attention).
    """

    name: str
    kind: Kind
    rows: int = 0
    cols: int = 0
    count: int
    experts: int = 1
    experts_active: int = 1
    flop_per_pair: int = 0
    elements_per_tok: int = 0
    elements_per_pair: int = 0

    @property
    def weight_elements(self) -> int:
        """Resident weights over all layers and experts."""
        return self.rows * self.cols * self.count * self.experts

    @property
    def weight_elements_active(self) -> int:
        """Weights that one token visits, over all layers."""
        return self.rows * self.cols * self.count * self.experts_active

    def experts_hit(self, tokens: float) -> float:
        """Return the expected number of distinct experts that a step of `tokens` visits."""
        return distinct_experts(tokens, experts=self.experts, topk=self.experts_active)

    def flop(self, tokens: float, *, pairs: float = 0) -> float:
        """Return the FLOP over all layers for `tokens` tokens and `pairs` query-key pairs."""
        return 2.0 * self.weight_elements_active * tokens + self.count * self.flop_per_pair * pairs

    def weight_bytes(self, tokens: float, *, bits: float) -> float:
        """Return the weight bytes that a step of `tokens` must read, over all layers."""
        hit = self.experts_hit(tokens) if self.experts > 1 else float(tokens > 0)
        return self.rows * self.cols * self.count * hit * bits / 8

    def activation_bytes(self, tokens: float, *, bits: float = 16, pairs: float = 0) -> float:
        """Return the activation (and KV) bytes that a step moves, over all layers."""
        elements = self.elements_per_tok * tokens + self.elements_per_pair * pairs
        return self.count * elements * bits / 8


def distinct_experts(tokens: float, *, experts: int, topk: int) -> float:
    """Return how many distinct experts `tokens` tokens visit, in expectation.

    Expert i takes a share of the visits that follows the power law with exponent `LOAD_SPREAD`
    on uniform quantiles, never more than one visit a token; a token misses it with probability
    1 − share · topk.

    Args:
        tokens: Tokens in the step.
        experts: Routed experts of the layer.
        topk: Experts a token visits.
    """
    if experts <= 1:
        return float(tokens > 0)
    shares = [((i + 0.5) / experts) ** LOAD_SPREAD for i in range(experts)]
    scale = topk / sum(shares)
    missed: float = sum((1.0 - min(1.0, share * scale)) ** tokens for share in shares)
    return experts - missed


def operators(shape: ModelShape, *, phase: Phase = "prefill") -> tuple[Operator, ...]:
    """Return the operators of one pass in the order a layer runs them.

    The matrices are the same in both phases. Attention is not: a decode step reads cached keys
    and values, and latent attention multiplies queries with the cached latent itself.

    Args:
        shape: The model.
        phase: ``"prefill"`` or ``"decode"``.

    Raises:
        ModelError: The phase is unknown.
    """
    if phase not in {"prefill", "decode"}:
        raise ModelError(f"unknown phase {phase!r}; allowed: prefill, decode")
    return (
        _linear("embedding", shape, rows=0, cols=0, count=1, elements=shape.hidden_size),
        _other("norm", shape, elements=8 * shape.hidden_size),
        *_projections(shape),
        _attention(shape, phase=phase),
        *_feed_forward(shape),
        Operator(
            name="lm_head",
            kind="head",
            rows=shape.hidden_size,
            cols=shape.vocab_size,
            count=1,
            elements_per_tok=shape.hidden_size + shape.vocab_size,
        ),
    )


def _linear(
    name: str, shape: ModelShape, *, rows: int, cols: int, count: int = -1, elements: int = 0
) -> Operator:
    return Operator(
        name=name,
        kind="linear" if rows else "other",
        rows=rows,
        cols=cols,
        count=shape.num_layers if count < 0 else count,
        elements_per_tok=elements or rows + cols,
    )


def _other(name: str, shape: ModelShape, *, elements: int, count: int = -1) -> Operator:
    layers = shape.num_layers if count < 0 else count
    return Operator(name=name, kind="other", count=layers, elements_per_tok=elements)


def _projections(shape: ModelShape) -> tuple[Operator, ...]:
    hidden = shape.hidden_size
    if not shape.is_mla:
        width = shape.num_heads * shape.head_dim
        kv_width = shape.num_kv_heads * shape.head_dim
        return (
            _linear("qkv", shape, rows=hidden, cols=width + 2 * kv_width),
            _other("rope", shape, elements=2 * (width + kv_width)),
            _linear("o", shape, rows=width, cols=hidden),
        )
    heads, rank = shape.num_heads, shape.mla_q_lora_rank
    query = heads * (shape.mla_qk_nope_dim + shape.mla_qk_rope_dim)
    latent = shape.mla_kv_lora_rank + shape.mla_qk_rope_dim
    down = _linear("q_kv_down", shape, rows=hidden, cols=rank + latent)
    up = _linear("q_up", shape, rows=rank, cols=query)
    if not rank:
        down = _linear("kv_down", shape, rows=hidden, cols=latent)
        up = _linear("q", shape, rows=hidden, cols=query)
    expand = heads * (shape.mla_qk_nope_dim + shape.mla_v_dim)
    return (
        down,
        up,
        _linear("kv_up", shape, rows=shape.mla_kv_lora_rank, cols=expand),
        _other("rope", shape, elements=2 * (heads + 1) * shape.mla_qk_rope_dim),
        _linear("o", shape, rows=heads * shape.mla_v_dim, cols=hidden),
    )


def _attention(shape: ModelShape, *, phase: Phase) -> Operator:
    flop, kv_elements = shape.attention_flop_per_pair, 2 * shape.num_kv_heads * shape.head_dim
    if shape.is_mla:
        kv_elements = shape.mla_kv_lora_rank + shape.mla_qk_rope_dim
        if phase == "decode":
            flop = 2 * shape.num_heads * (2 * shape.mla_kv_lora_rank + shape.mla_qk_rope_dim)
    return Operator(
        name="attention",
        kind="attention",
        count=shape.num_layers,
        flop_per_pair=flop,
        elements_per_tok=2 * shape.num_heads * shape.head_dim + kv_elements,
        elements_per_pair=kv_elements if phase == "decode" else 0,
    )


def _feed_forward(shape: ModelShape) -> tuple[Operator, ...]:
    hidden, found = shape.hidden_size, []
    if shape.dense_layers:
        layers, width = shape.dense_layers, shape.ffn_size
        found += [
            _linear("gate_up", shape, rows=hidden, cols=2 * width, count=layers),
            _other("activation", shape, elements=3 * width, count=layers),
            _linear("down", shape, rows=width, cols=hidden, count=layers),
        ]
    if shape.moe_layers:
        layers, width, active = shape.moe_layers, shape.moe_expert_ffn_size, shape.moe_topk
        found.append(_linear("router", shape, rows=hidden, cols=shape.moe_experts, count=layers))
        for name, rows, cols in (
            ("experts_gate_up", hidden, 2 * width),
            ("experts_down", width, hidden),
        ):
            found.append(
                Operator(
                    name=name,
                    kind="linear",
                    rows=rows,
                    cols=cols,
                    count=layers,
                    experts=shape.moe_experts,
                    experts_active=active,
                    elements_per_tok=active * (rows + cols),
                )
            )
        if shape.moe_shared_experts:
            width *= shape.moe_shared_experts
            found += [
                _linear("shared_gate_up", shape, rows=hidden, cols=2 * width, count=layers),
                _linear("shared_down", shape, rows=width, cols=hidden, count=layers),
            ]
        inner = 3 * shape.moe_expert_ffn_size * (active + shape.moe_shared_experts)
        found.append(_other("activation", shape, elements=inner, count=layers))
    return tuple(found)
