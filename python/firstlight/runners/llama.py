"""A dense decoder of the Llama family, in float32, with its linear layers open to replacement.

Matrix products are NumPy's; what lies between them is compiled (`src/runners`). A linear layer
can be taken over by anything that is a :class:`~firstlight.runners.optical.Linear`, layer by layer
and call by call, so that a prompt may be computed by light and its continuation by silicon.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from firstlight import _core
from firstlight.errors import ModelError
from firstlight.runners.architecture import LINEARS, Architecture
from firstlight.runners.cache import KvCache
from firstlight.runners.memory import require_memory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import ArrayLike, NDArray

    from firstlight.runners.optical import Linear
    from firstlight.runners.weights import FloatArray, Weights

Replacements: TypeAlias = "Mapping[str, Linear]"
"""``layers.3.down`` -> what computes it instead of the float32 weights."""

GROUPS = {"qkv": ("q", "k", "v"), "o": ("o",), "gate_up": ("gate", "up"), "down": ("down",)}
"""Linear layers that share an input, and are one matrix product on silicon."""

_QUERY_BLOCK_TOK = 128
"""Queries whose scores are held at a time; blocks skip the keys that none of them sees."""


class Llama:
    """A model with its weights in memory.

    Attributes:
        architecture: Sizes and conventions.
        weights: The file it came from.
        embedding: (vocab, width).
        head: (vocab, width); the embedding itself when the model ties them.
    """

    def __init__(self, weights: Weights) -> None:
        """Read all weights of an open model.

        Raises:
            ModelError: They do not fit in memory, or one is not finite.
        """
        require_memory(weights.float32_bytes, f"{weights.path}: the model's weights as float32")
        self.weights = weights
        self.architecture = weights.architecture
        self.embedding: FloatArray = weights.read("embedding")
        self.head: FloatArray = weights.read("head") if "head" in weights else self.embedding
        self._norm = weights.read("norm")
        self._blocks = [_Block(weights, layer) for layer in range(self.architecture.layers)]
        self._rope = _RopeTable(self.architecture, _rope_divisors(weights))

    @property
    def linear_names(self) -> list[str]:
        """Names of all replaceable linear layers, in the order in which they run."""
        return [f"layers.{n}.{kind}" for n in range(self.architecture.layers) for kind in LINEARS]

    @property
    def matrices(self) -> list[FloatArray]:
        """The matrices of all matrix products on silicon, in order, each (outputs, inputs)."""
        return [block.matrices[group] for block in self._blocks for group in GROUPS]

    def linear(self, name: str) -> FloatArray:
        """Return the weights of linear layer ``layers.N.KIND``: (outputs, inputs), a view.

        Raises:
            ModelError: There is no such layer.
        """
        parts = name.split(".")
        if len(parts) == 3 and parts[1].isdecimal() and int(parts[1]) < len(self._blocks):
            views = self._blocks[int(parts[1])].views
            if parts[0] == "layers" and parts[2] in views:
                return views[parts[2]]
        raise ModelError(
            f"no linear layer {name!r}; allowed: layers.0 to layers.{len(self._blocks) - 1} "
            f"with .{', .'.join(LINEARS)}"
        )

    def new_cache(self, *, capacity_tok: int, kv_format: str = "f32") -> KvCache:
        """Return an empty KV cache of this model."""
        return KvCache(self.architecture, capacity_tok=capacity_tok, kv_format=kv_format)

    def hidden(
        self,
        ids: ArrayLike,
        *,
        cache: KvCache,
        replacements: Replacements | None = None,
        chunk_tok: int = 512,
    ) -> FloatArray:
        """Run tokens through all blocks, after those already in ``cache``.

        Args:
            ids: Token ids, (tokens,).
            cache: Grows by the tokens.
            replacements: Linear layers computed by something else.
            chunk_tok: Tokens a pass [tok]; bounds the memory of activations.

        Returns:
            Normalised final hidden states, (tokens, width).

        Raises:
            ModelError: An id lies outside the vocabulary, there is no token, or the cache is full.
        """
        tokens = self._checked_ids(ids)
        if cache.length_tok + len(tokens) > cache.capacity_tok:
            raise ModelError(
                f"{cache.length_tok} + {len(tokens)} tokens in a KV cache for {cache.capacity_tok}"
            )
        replaced = replacements or {}
        out = np.empty((len(tokens), self.architecture.width), np.float32)
        for start in range(0, len(tokens), chunk_tok):
            chunk = tokens[start : start + chunk_tok]
            x = self.embedding[chunk]
            for layer, block in enumerate(self._blocks):
                x = self._block(x, layer, block, cache, replaced)
            cache.advance(len(chunk))
            _core.rms_norm(
                x, self._norm, self.architecture.norm_epsilon, out[start : start + len(chunk)]
            )
        return out

    def logits(self, hidden: FloatArray) -> FloatArray:
        """Return the logits, (tokens, vocab), of final hidden states, (tokens, width)."""
        return hidden @ self.head.T

    def residuals(self, ids: ArrayLike) -> Iterator[FloatArray]:
        """Yield the residual stream, (tokens, width), after every block, for finding a fault."""
        tokens = self._checked_ids(ids)
        cache = self.new_cache(capacity_tok=len(tokens))
        x = self.embedding[tokens]
        for layer, block in enumerate(self._blocks):
            x = self._block(x, layer, block, cache, {})
            yield x

    def observe(self, ids: ArrayLike, *, window_tok: int = 512) -> Iterator[tuple[str, FloatArray]]:
        """Yield (group, input) of every group of linear layers while ``ids`` run through the model.

        A group is ``layers.N.qkv``, ``.o``, ``.gate_up`` or ``.down``; its input is (tokens, width).
        Windows of ``window_tok`` tokens do not see each other.
        """
        tokens = self._checked_ids(ids)
        windows = [tokens[i : i + window_tok] for i in range(0, len(tokens), window_tok)]
        caches = [self.new_cache(capacity_tok=len(window)) for window in windows]
        states = [self.embedding[window] for window in windows]
        for layer, block in enumerate(self._blocks):
            seen: dict[str, list[FloatArray]] = {}
            for index, cache in enumerate(caches):
                states[index] = self._block(states[index], layer, block, cache, {}, seen)
            for group, inputs in seen.items():
                yield group, np.concatenate(inputs)

    def _checked_ids(self, ids: ArrayLike) -> NDArray[np.int64]:
        tokens = np.asarray(ids)
        if tokens.ndim != 1 or tokens.size == 0 or not np.issubdtype(tokens.dtype, np.integer):
            raise ModelError(
                f"token ids have shape {tokens.shape} and type {tokens.dtype}; "
                "a non-empty list of integers is allowed"
            )
        low, high = int(tokens.min()), int(tokens.max())
        if low < 0 or high >= self.architecture.vocab:
            raise ModelError(
                f"token id {low if low < 0 else high}; the model has 0 to "
                f"{self.architecture.vocab - 1}: does the tokenizer belong to it?"
            )
        return tokens.astype(np.int64)

    def _block(
        self,
        x: FloatArray,
        layer: int,
        block: _Block,
        cache: KvCache,
        replaced: Replacements,
        seen: dict[str, list[FloatArray]] | None = None,
    ) -> FloatArray:
        """Return the residual stream after one block."""
        shape, first = self.architecture, cache.length_tok

        def project(group: str, inputs: FloatArray) -> FloatArray:
            if seen is not None:
                seen.setdefault(f"layers.{layer}.{group}", []).append(inputs.copy())
            return block.project(group, inputs, layer=layer, first_tok=first, replaced=replaced)

        normed = np.empty_like(x)
        _core.rms_norm(x, block.attention_norm, shape.norm_epsilon, normed)
        mixed = self._attention(project("qkv", normed), layer, block, cache)
        x = x + project("o", mixed)
        _core.rms_norm(x, block.feed_forward_norm, shape.norm_epsilon, normed)
        gate_up = project("gate_up", normed)
        gated = np.empty((len(x), shape.feed_forward), np.float32)
        _core.swiglu(gate_up, shape.feed_forward, gated)
        x += project("down", gated)
        return x

    def _attention(self, qkv: FloatArray, layer: int, block: _Block, cache: KvCache) -> FloatArray:
        """Store the new keys and values; return the mixed values, (tokens, query_width)."""
        shape, first, tokens = self.architecture, cache.length_tok, len(qkv)
        split = shape.query_width + shape.kv_width
        query_key = np.ascontiguousarray(qkv[:, :split])
        query_key = block.head_norm(query_key, shape)
        cos, sin = self._rope.at(first, tokens)
        _core.rope(
            query_key, cos, sin, shape.heads + shape.kv_heads, shape.head_dim // 2,
            shape.rope_interleaved,
        )  # fmt: skip
        heads = query_key.reshape(tokens, -1, shape.head_dim)
        values = qkv[:, split:].reshape(tokens, shape.kv_heads, shape.head_dim)
        cache.write(layer, heads[:, shape.heads :], values)
        group = shape.heads // shape.kv_heads
        out = np.empty((tokens, shape.kv_heads, group, shape.head_dim), np.float32)
        scale = shape.head_dim**-0.5
        for start in range(0, tokens, _QUERY_BLOCK_TOK):
            count = min(_QUERY_BLOCK_TOK, tokens - start)
            keys = first + start + count
            queries = heads[start : start + count, : shape.heads]
            queries = queries.reshape(count, shape.kv_heads, group, shape.head_dim)
            stacked = queries.transpose(1, 2, 0, 3).reshape(shape.kv_heads, group * count, -1)
            scores = stacked @ cache.keys[layer, :, :keys].transpose(0, 2, 1)
            _core.causal_softmax(scores, scale, count, keys, first + start, shape.window_tok)
            mixed = scores @ cache.values[layer, :, :keys]
            mixed = mixed.reshape(shape.kv_heads, group, count, shape.head_dim)
            out[start : start + count] = mixed.transpose(2, 0, 1, 3)
        return out.reshape(tokens, shape.query_width)


class _Block:
    """Weights of one decoder block; layers with one input lie in one matrix."""

    def __init__(self, weights: Weights, layer: int) -> None:
        shape, prefix = weights.architecture, f"layers.{layer}."
        self.attention_norm = weights.read(prefix + "attention_norm")
        self.feed_forward_norm = weights.read(prefix + "feed_forward_norm")
        self.matrices: dict[str, FloatArray] = {}
        self.views: dict[str, FloatArray] = {}
        self.biases: dict[str, FloatArray] = {}
        for group, kinds in GROUPS.items():
            shapes = [shape.linear_shape(kind) for kind in kinds]
            matrix = np.empty((sum(rows for rows, _ in shapes), shapes[0][1]), np.float32)
            bias, row = np.zeros(len(matrix), np.float32), 0
            for kind, (rows, _) in zip(kinds, shapes, strict=True):
                view = matrix[row : row + rows]
                self.views[kind] = weights.read(prefix + kind, out=view)
                if f"{prefix}{kind}.bias" in weights:
                    bias[row : row + rows] = weights.read(f"{prefix}{kind}.bias")
                row += rows
            self.matrices[group] = matrix
            if bias.any():
                self.biases[group] = bias
        self._head_gain: FloatArray | None = None
        if prefix + "q_norm" in weights:
            q, k = weights.read(prefix + "q_norm"), weights.read(prefix + "k_norm")
            self._head_gain = np.stack([q, k])

    def project(
        self, group: str, x: FloatArray, *, layer: int, first_tok: int, replaced: Replacements
    ) -> FloatArray:
        """Return the outputs of the group's linear layers side by side, (tokens, outputs)."""
        kinds = GROUPS[group]
        if any(f"layers.{layer}.{kind}" in replaced for kind in kinds):
            matrix = self.matrices[group]
            out = np.empty((len(x), len(matrix)), np.float32)
            row = 0
            for kind in kinds:
                weights = self.views[kind]
                linear = replaced.get(f"layers.{layer}.{kind}")
                part = x @ weights.T if linear is None else linear(x, first_tok=first_tok)
                out[:, row : row + len(weights)] = part
                row += len(weights)
        else:
            out = x @ self.matrices[group].T
        if group in self.biases:
            out += self.biases[group]
        return out

    def head_norm(self, query_key: FloatArray, shape: Architecture) -> FloatArray:
        """Normalise every query and key head, where the model does so."""
        if self._head_gain is None:
            return query_key
        out = np.empty_like(query_key)
        for columns, gain in (
            (slice(0, shape.query_width), self._head_gain[0]),
            (slice(shape.query_width, None), self._head_gain[1]),
        ):
            part = np.ascontiguousarray(query_key[:, columns])
            normed = np.empty_like(part)
            _core.rms_norm(
                part.reshape(-1, shape.head_dim), gain, shape.norm_epsilon,
                normed.reshape(-1, shape.head_dim),
            )  # fmt: skip
            out[:, columns] = normed
        return out


class _RopeTable:
    """Cosines and sines of rotary angles, grown as positions are asked for."""

    def __init__(self, shape: Architecture, divisors: FloatArray) -> None:
        exponent = np.arange(0, shape.head_dim, 2, dtype=np.float64) / shape.head_dim
        self._frequencies = (
            shape.rope_base**-exponent / divisors / shape.rope_linear_factor
        ).astype(np.float32)
        self._cos: FloatArray = np.empty((0, shape.head_dim // 2), np.float32)
        self._sin: FloatArray = self._cos

    def at(self, first: int, tokens: int) -> tuple[FloatArray, FloatArray]:
        """Return (cos, sin), each (tokens, head_dim / 2), from position ``first`` on."""
        if first + tokens > len(self._cos):
            length = max(first + tokens, 2 * len(self._cos), 512)
            # In float32, as the models were trained.
            angles = np.arange(length, dtype=np.float32)[:, None] * self._frequencies
            self._cos, self._sin = np.cos(angles), np.sin(angles)
        return self._cos[first : first + tokens], self._sin[first : first + tokens]


def _rope_divisors(weights: Weights) -> FloatArray:
    """Return what each rotary frequency is divided by, (head_dim / 2,).

    Source:
        Llama 3.1: ``transformers.modeling_rope_utils``, type ``llama3``.
    """
    shape = weights.architecture
    if "rope_freqs" in weights:
        return weights.read("rope_freqs")
    divisors = np.ones(shape.head_dim // 2, np.float32)
    scaling = shape.rope_scaling
    if scaling is None:
        return divisors
    exponent = np.arange(0, shape.head_dim, 2, dtype=np.float64) / shape.head_dim
    turns = scaling.original_context_tok * shape.rope_base**-exponent / (2 * np.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / scaling.factor + smooth)).astype(np.float32)
