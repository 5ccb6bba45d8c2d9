"""Keys and values of the tokens a model has seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from firstlight.errors import ModelError

if TYPE_CHECKING:
    from firstlight.runners.architecture import Architecture
    from firstlight.runners.weights import FloatArray

KV_FORMATS = ("f32", "f16", "bf16", "fp8_e4m3")
"""Formats a cache may be kept in; the arrays stay float32 and hold rounded values."""


class KvCache:
    """Keys and values of one sequence, all layers.

    Attributes:
        keys: (layers, kv_heads, capacity, head_dim).
        values: Likewise.
        length_tok: Tokens stored [tok].
        format: What every stored value is rounded to, one of :data:`KV_FORMATS`.
    """

    def __init__(
        self, architecture: Architecture, *, capacity_tok: int, kv_format: str = "f32"
    ) -> None:
        """Make an empty cache for ``capacity_tok`` tokens.

        Raises:
            ModelError: The capacity is not positive, or the format is unknown.
        """
        if capacity_tok < 1:
            raise ModelError(f"KV cache for {capacity_tok} tokens; at least 1 is allowed")
        if kv_format not in KV_FORMATS:
            raise ModelError(f"KV format {kv_format!r}; allowed: {', '.join(KV_FORMATS)}")
        shape = (architecture.layers, architecture.kv_heads, capacity_tok, architecture.head_dim)
        self.keys: FloatArray = np.zeros(shape, np.float32)
        self.values: FloatArray = np.zeros(shape, np.float32)
        self.length_tok = 0
        self.format = kv_format

    @property
    def capacity_tok(self) -> int:
        """Tokens the cache can hold [tok]."""
        return int(self.keys.shape[2])

    def write(self, layer: int, keys: FloatArray, values: FloatArray) -> None:
        """Store the ``(tokens, kv_heads, head_dim)`` of new tokens after the stored ones.

        ``length_tok`` moves when the last layer has written: see :meth:`advance`.

        Raises:
            ModelError: The tokens do not fit.
        """
        start, end = self.length_tok, self.length_tok + len(keys)
        if end > self.capacity_tok:
            raise ModelError(f"{end} tokens in a KV cache for {self.capacity_tok}")
        self.keys[layer, :, start:end] = rounded(keys, self.format).transpose(1, 0, 2)
        self.values[layer, :, start:end] = rounded(values, self.format).transpose(1, 0, 2)

    def advance(self, tokens: int) -> None:
        """Count ``tokens`` more as stored."""
        self.length_tok += tokens

    def clear(self) -> None:
        """Forget all tokens; the memory is kept."""
        self.length_tok = 0

    def copy(self, *, kv_format: str | None = None) -> KvCache:
        """Return an independent cache with the same tokens, rounded to ``kv_format`` if given."""
        twin = object.__new__(KvCache)
        twin.format = self.format if kv_format is None else kv_format
        twin.keys = rounded(self.keys, twin.format).copy()
        twin.values = rounded(self.values, twin.format).copy()
        twin.length_tok = self.length_tok
        return twin


def rounded(x: FloatArray, number_format: str) -> FloatArray:
    """Return ``x`` rounded to the nearest number of a narrower format, as float32.

    Args:
        x: Values of any shape.
        number_format: One of :data:`KV_FORMATS`. ``fp8_e4m3`` saturates at ±448.

    Raises:
        ModelError: The format is unknown.

    Source:
        OCP 8-bit Floating Point Specification 1.0 for E4M3.
    """
    if number_format == "f32":
        return x
    if number_format == "f16":
        return x.astype(np.float16).astype(np.float32)
    if number_format == "bf16":
        bits = np.ascontiguousarray(x).view(np.uint32)
        even = (bits >> np.uint32(16)) & np.uint32(1)
        kept = (bits + np.uint32(0x7FFF) + even) & np.uint32(0xFFFF0000)
        widened: FloatArray = kept.view(np.float32)
        return widened
    if number_format == "fp8_e4m3":
        # Spacing is 2^(e-3) for e from -6 up; below it the numbers are subnormal.
        _, exponent = np.frexp(x)
        step = np.ldexp(np.float32(1), np.maximum(exponent - 1, -6) - 3)
        narrowed: FloatArray = np.clip(np.rint(x / step) * step, -448, 448).astype(np.float32)
        return narrowed
    raise ModelError(f"number format {number_format!r}; allowed: {', '.join(KV_FORMATS)}")
