"""What a Llama-family model is made of, from GGUF metadata or a Hugging Face ``config.json``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from firstlight.errors import ModelError, nearest
from firstlight.runners.excerpt import excerpt

if TYPE_CHECKING:
    from collections.abc import Mapping

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""Architectures that run: dense decoders with RMS norm, rotary positions and SwiGLU."""

_LEAST = 1e-18
"""No epsilon, base or factor of a model is smaller, or larger than its inverse."""

_REFUSED_KEYS = {
    "num_local_experts": "a mixture of experts",
    "num_experts": "a mixture of experts",
    "attn_logit_softcapping": "soft-capped attention",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """Stretching of rotary wavelengths in the manner of Llama 3.1.

    Attributes:
        factor: How much the longest wavelengths are stretched.
        low_freq_factor: Wavelengths above ``original_context_tok`` over this are fully stretched.
        high_freq_factor: Wavelengths below ``original_context_tok`` over this are left alone.
        original_context_tok: Context length before stretching [tok].
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context_tok: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Sizes and conventions of one model.

    Attributes:
        family: One of :data:`FAMILIES`.
        layers: Decoder blocks.
        width: Size of the residual stream.
        heads: Query heads.
        kv_heads: Key and value heads; each serves ``heads // kv_heads`` query heads.
        head_dim: Size of one head.
        feed_forward: Size of the gated layer.
        vocab: Rows of the embedding.
        context_tok: Longest context the model was made for [tok].
        norm_epsilon: Added to the mean square in RMS norm.
        rope_base: Base of the rotary frequencies.
        rope_interleaved: Whether a rotary pair is (2i, 2i+1), not (i, i + half).
        rope_linear_factor: Positions are divided by this.
        rope_scaling: Llama 3.1 stretching, or None.
        window_tok: Keys a query sees [tok], or None for all.
    """

    family: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocab: int
    context_tok: int
    norm_epsilon: float
    rope_base: float
    rope_interleaved: bool
    rope_linear_factor: float = 1.0
    rope_scaling: RopeScaling | None = None
    window_tok: int | None = None

    @property
    def query_width(self) -> int:
        """Outputs of the query projection."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Outputs of the key projection, and of the value projection."""
        return self.kv_heads * self.head_dim

    def linear_shape(self, kind: str) -> tuple[int, int]:
        """Return (outputs, inputs) of a block's linear layer: q, k, v, o, gate, up or down."""
        return {
            "q": (self.query_width, self.width),
            "k": (self.kv_width, self.width),
            "v": (self.kv_width, self.width),
            "o": (self.width, self.query_width),
            "gate": (self.feed_forward, self.width),
            "up": (self.feed_forward, self.width),
            "down": (self.width, self.feed_forward),
        }[kind]

    @property
    def macs_per_tok(self) -> int:
        """Multiply-accumulates of all blocks' linear layers for one token."""
        shapes = [self.linear_shape(kind) for kind in LINEARS]
        return self.layers * sum(outputs * inputs for outputs, inputs in shapes)


LINEARS = ("q", "k", "v", "o", "gate", "up", "down")
"""The linear layers of a block, in the order in which they run."""


def from_gguf(metadata: Mapping[str, Any], *, vocab: int, where: str) -> Architecture:
    """Return the architecture that GGUF ``metadata`` describes.

    Args:
        metadata: Key-value pairs of the file.
        vocab: Rows of the embedding.
        where: The file, for messages.

    Raises:
        ModelError: Another architecture, or a key is missing or impossible.
    """
    family = _family(metadata.get("general.architecture"), where)
    reader = _Reader({k.removeprefix(f"{family}."): v for k, v in metadata.items()}, where)
    if reader.count("expert_count", 0):
        raise ModelError(f"{where}: a mixture of experts; dense models run: {', '.join(FAMILIES)}")
    scaling = reader.values.get("rope.scaling.type", "none")
    if not isinstance(scaling, str) or scaling not in ("none", "linear"):
        raise ModelError(f"{where}: rope.scaling.type {excerpt(scaling)}; allowed: none, linear")
    heads, width = reader.count("attention.head_count"), reader.count("embedding_length")
    head_dim = reader.count("attention.key_length", width // heads)
    if reader.count("attention.value_length", head_dim) != head_dim:
        raise ModelError(f"{where}: keys and values of different size are not supported")
    if reader.count("rope.dimension_count", head_dim) != head_dim:
        raise ModelError(f"{where}: rotary positions on a part of a head are not supported")
    return _checked(
        Architecture(
            family=family,
            layers=reader.count("block_count"),
            width=width,
            heads=heads,
            kv_heads=reader.count("attention.head_count_kv", heads),
            head_dim=head_dim,
            feed_forward=reader.count("feed_forward_length"),
            vocab=vocab,
            context_tok=reader.count("context_length"),
            norm_epsilon=reader.positive("attention.layer_norm_rms_epsilon"),
            rope_base=reader.positive("rope.freq_base", 10_000.0),
            # Only the converter of the llama architecture permutes rows for interleaved pairs.
            rope_interleaved=family in ("llama", "mistral"),
            rope_linear_factor=reader.positive("rope.scaling.factor", 1.0)
            if scaling == "linear"
            else 1.0,
            window_tok=reader.count("attention.sliding_window", 0) or None,
        ),
        where,
    )


def from_config(config: Mapping[str, Any], *, where: str) -> Architecture:
    """Return the architecture that a Hugging Face ``config.json`` describes.

    Raises:
        ModelError: Another architecture, or a key is missing or impossible.
    """
    family = _family(config.get("model_type"), where)
    for key, what in _REFUSED_KEYS.items():
        if config.get(key):
            raise ModelError(f"{where}: {key}: {what} is not supported")
    reader = _Reader(config, where)
    activation = config.get("hidden_act", "silu")
    if activation != "silu":
        raise ModelError(f"{where}: hidden_act is {excerpt(activation)}; allowed: 'silu'")
    heads, width = reader.count("num_attention_heads"), reader.count("hidden_size")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise ModelError(f"{where}: rope_scaling is {excerpt(rope)}, not a table")
    linear, scaling = _rope_scaling(rope, where)
    windowed = family == "mistral" or bool(config.get("use_sliding_window"))
    return _checked(
        Architecture(
            family=family,
            layers=reader.count("num_hidden_layers"),
            width=width,
            heads=heads,
            kv_heads=reader.count("num_key_value_heads", heads),
            head_dim=reader.count("head_dim", width // heads),
            feed_forward=reader.count("intermediate_size"),
            vocab=reader.count("vocab_size"),
            context_tok=reader.count("max_position_embeddings"),
            norm_epsilon=reader.positive("rms_norm_eps"),
            rope_base=_Reader({**rope, **config}, where).positive("rope_theta", 10_000.0),
            rope_interleaved=False,
            rope_linear_factor=linear,
            rope_scaling=scaling,
            window_tok=(reader.count("sliding_window", 0) or None) if windowed else None,
        ),
        where,
    )


class _Reader:
    """Typed look-ups in a table from a file."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values, self.where = values, where

    def count(self, key: str, default: int | None = None) -> int:
        """Return a count, at most 2^24; 0 only where the default is 0."""
        value = self.values.get(key)
        value = default if value is None else value
        least = 0 if default == 0 else 1
        if type(value) is not int or not least <= value <= 1 << 24:
            raise ModelError(f"{self.where}: {key} is {excerpt(value)}; allowed: {least} to 2^24")
        return value

    def positive(self, key: str, default: float | None = None) -> float:
        """Return a positive number of a size that arithmetic bears."""
        value = self.values.get(key)
        value = default if value is None else value
        # The comparison is exact for integers of any length and false for what is not a number.
        known = isinstance(value, int | float) and not isinstance(value, bool)
        if value is None or not known or not _LEAST <= value <= 1 / _LEAST:
            raise ModelError(
                f"{self.where}: {key} is {excerpt(value)}; a positive number is allowed, "
                f"{_LEAST:g} to {1 / _LEAST:g}"
            )
        return float(value)


def _family(name: object, where: str) -> str:
    """Check the architecture's name."""
    if not isinstance(name, str) or name not in FAMILIES:
        hint = nearest(name[:80], FAMILIES) if isinstance(name, str) else ""
        raise ModelError(
            f"{where}: architecture {excerpt(name)}; these run: {', '.join(FAMILIES)}{hint}"
        )
    return name


def _rope_scaling(rope: Mapping[str, Any], where: str) -> tuple[float, RopeScaling | None]:
    """Return the linear factor and the Llama 3.1 stretching of a rope table."""
    kind = rope.get("rope_type", rope.get("type", "default"))
    reader = _Reader(rope, where)
    if kind == "default":
        return 1.0, None
    if kind == "linear":
        return reader.positive("factor"), None
    if kind == "llama3":
        low, high = reader.positive("low_freq_factor"), reader.positive("high_freq_factor")
        if not low < high:
            raise ModelError(
                f"{where}: low_freq_factor {low:g} is not below {high:g}, the high one"
            )
        return 1.0, RopeScaling(
            factor=reader.positive("factor"),
            low_freq_factor=low,
            high_freq_factor=high,
            original_context_tok=reader.count("original_max_position_embeddings"),
        )
    raise ModelError(f"{where}: rope type {excerpt(kind)}; allowed: default, linear, llama3")


def _checked(architecture: Architecture, where: str) -> Architecture:
    """Refuse sizes that do not fit together."""
    if architecture.heads % architecture.kv_heads:
        raise ModelError(
            f"{where}: {architecture.heads} query heads over {architecture.kv_heads} KV heads"
        )
    if architecture.head_dim % 2 or architecture.head_dim == 0:
        raise ModelError(f"{where}: head size {architecture.head_dim}; even ones are allowed")
    return architecture
