"""The decode side's own numbers: weights and KV cache in the formats silicon serves with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from firstlight.errors import ModelError
from firstlight.runners.cache import KV_FORMATS, rounded
from firstlight.runners.gptq import round_to_nearest

if TYPE_CHECKING:
    from firstlight.runners.llama import Llama
    from firstlight.runners.weights import FloatArray

WEIGHT_FORMATS = (*KV_FORMATS, "int8", "int4-g32")
"""Formats of decode weights: floats with a scale for every output where they are narrow, integers
with a scale for every output (``int8``) or for every 32 inputs of it (``int4-g32``)."""


class RoundedLinear:
    """A linear layer with weights rounded to a serving format, computed in float32."""

    def __init__(self, weight: FloatArray, *, number_format: str) -> None:
        """Round ``weight``, (outputs, inputs).

        Raises:
            ModelError: The format is unknown.
        """
        self._weight = rounded_weight(weight, number_format)

    def __call__(self, x: FloatArray, *, first_tok: int = 0) -> FloatArray:  # noqa: ARG002
        """Return the outputs, (tokens, outputs); positions do not matter to silicon."""
        return x @ self._weight.T


def rounded_weight(weight: FloatArray, number_format: str) -> FloatArray:
    """Return ``weight`` as the format holds it, in float32.

    Raises:
        ModelError: The format is unknown.
    """
    if number_format == "int8":
        return round_to_nearest(weight, bits=8, tile_starts=(0, weight.shape[1])).weights
    if number_format == "int4-g32":
        edges = (*tuple(range(0, weight.shape[1], 32)), weight.shape[1])
        return round_to_nearest(weight, bits=4, tile_starts=edges).weights
    if number_format == "fp8_e4m3":
        largest = np.abs(weight).max(axis=1, keepdims=True)
        scale = np.where(largest > 0, largest / np.float32(448), np.float32(1))
        return rounded((weight / scale).astype(np.float32), number_format) * scale
    if number_format not in KV_FORMATS:
        raise ModelError(f"weights as {number_format!r}; allowed: {', '.join(WEIGHT_FORMATS)}")
    return rounded(weight, number_format)


def decode_layers(model: Llama, *, number_format: str) -> dict[str, RoundedLinear]:
    """Return all linear layers of ``model`` with weights in ``number_format``; none for f32.

    Raises:
        ModelError: The format is unknown, or the copies do not fit in memory.
    """
    from firstlight.runners.memory import require_memory

    if number_format == "f32":
        return {}
    shape = model.architecture
    require_memory(4 * shape.macs_per_tok, f"decode weights as {number_format}")
    return {
        name: RoundedLinear(model.linear(name), number_format=number_format)
        for name in model.linear_names
    }
