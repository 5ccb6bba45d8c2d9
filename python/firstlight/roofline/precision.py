"""Number formats of weights and KV cache: what they take, what runs them, which table they read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from firstlight.errors import ModelError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """How the linear layers compute.

    Attributes:
        id: Name a caller gives.
        table: Name of the measured kernels.
        peak: Device fact that holds the dense peak.
        weight_bits: Bits a weight, block scales included.
        activation_bits: Bits an activation entering a matrix product.
        expert_table: Name of the measured mixture-of-experts kernels.
    """

    id: str
    table: str
    peak: str
    weight_bits: float
    activation_bits: float
    expert_table: str


_BF16, _FP8, _FP4, _INT8 = (
    "dense_bf16_flop_per_s",
    "dense_fp8_flop_per_s",
    "dense_fp4_flop_per_s",
    "dense_int8_op_per_s",
)

PRECISIONS = {
    p.id: p
    for p in (
        Precision(
            id="bf16",
            table="bf16",
            peak=_BF16,
            weight_bits=16,
            activation_bits=16,
            expert_table="bf16",
        ),
        Precision(
            id="fp16",
            table="bf16",
            peak=_BF16,
            weight_bits=16,
            activation_bits=16,
            expert_table="bf16",
        ),
        Precision(
            id="fp8", table="fp8", peak=_FP8, weight_bits=8, activation_bits=8, expert_table="fp8"
        ),
        Precision(
            id="fp8-block",
            table="fp8-block",
            peak=_FP8,
            weight_bits=8.002,
            activation_bits=8.25,
            expert_table="fp8-block",
        ),
        Precision(
            id="nvfp4",
            table="nvfp4",
            peak=_FP4,
            weight_bits=4.5,
            activation_bits=4.5,
            expert_table="nvfp4",
        ),
        Precision(
            id="int8",
            table="int8",
            peak=_INT8,
            weight_bits=8,
            activation_bits=8,
            expert_table="fp8",
        ),
        Precision(
            id="int8-weight",
            table="int8-weight",
            peak=_BF16,
            weight_bits=8,
            activation_bits=16,
            expert_table="bf16",
        ),
        Precision(
            id="int4-weight",
            table="int4-weight",
            peak=_BF16,
            weight_bits=4.25,
            activation_bits=16,
            expert_table="mxfp4",
        ),
    )
}
"""``fp8`` scales a tensor or a row, ``fp8-block`` a 128 × 128 block, ``nvfp4`` 16 elements;
``int8`` multiplies integers, ``int8-weight`` and ``int4-weight`` store integers and multiply in
16 bits."""

KV_BITS = {"bf16": 16, "fp16": 16, "fp8": 8}
"""Bits of a cached element."""


Format = TypeVar("Format")


def precision(name: str) -> Precision:
    """Return the number format called `name`.

    Raises:
        ModelError: No such format; the message lists those there are.
    """
    return _known(name, PRECISIONS, what="weight")


def kv_bits(name: str) -> int:
    """Return the bits of a KV element in format `name`.

    Raises:
        ModelError: No such format; the message lists those there are.
    """
    return _known(name, KV_BITS, what="KV")


def _known(name: str, formats: Mapping[str, Format], *, what: str) -> Format:
    found = formats.get(name)
    if found is None:
        raise ModelError(
            f"unknown {what} precision {name!r}{nearest(name, formats)}; allowed: "
            f"{', '.join(formats)}"
        )
    return found
