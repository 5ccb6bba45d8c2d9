"""Orthogonal rotations that spread an outlier over all inputs of a linear layer.

A Hadamard matrix of order n = m·2^k is the Kronecker product of Sylvester's for 2^k and Paley's for
m, so that 576 = 16·36 and 1536 = 128·12 have one although neither is a power of two.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import isqrt
from typing import TYPE_CHECKING

import numpy as np

from firstlight import _core
from firstlight.errors import ModelError

if TYPE_CHECKING:
    from firstlight.runners.weights import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """The orthogonal matrix R = (H_order ⊗ H_m) / √n, applied without being formed.

    Attributes:
        size: n, the numbers that are rotated.
        order: The power of two.
        base: Paley's matrix, (m, m), entries ±1.
    """

    size: int
    order: int
    base: FloatArray

    @property
    def adds_per_tok(self) -> int:
        """Digital additions that one token's rotation takes."""
        stages = self.order.bit_length() - 1
        return self.size * (stages + len(self.base) - 1)

    def __call__(self, x: FloatArray) -> FloatArray:
        """Return ``x R`` of rows ``(tokens, n)``; the norm of a row stays what it was."""
        m = len(self.base)
        scale = np.float32(self.size**-0.5)
        # The base is applied as a product, which BLAS does at full rate; the rest is additions.
        out = (x.reshape(-1, m) @ (self.base * scale)).reshape(x.shape)
        if self.order > 1:
            _core.walsh(out, self.order, m)
        return out


@lru_cache(maxsize=64)
def rotation(size: int) -> Rotation:
    """Return the rotation of ``size`` numbers with the fewest additions.

    Raises:
        ModelError: No Hadamard matrix of that order is built here.
    """
    order = size & -size
    while order >= 1:
        base = _base(size // order)
        if base is not None:
            return Rotation(size=size, order=order, base=base)
        order //= 2
    raise ModelError(
        f"no Hadamard matrix of order {size} is built here; allowed: m·2^k with m 1 or one of "
        "Paley's orders (12, 20, 28, 36 …)"
    )


def _base(m: int) -> FloatArray | None:
    """Return a Hadamard matrix of order ``m`` with columns as its rows are used, or None.

    Source:
        R. Paley, On orthogonal matrices, J. Math. Phys. 12 (1933) 311: constructions I and II.
    """
    if m == 1:
        return np.ones((1, 1), np.float32)
    if m % 4 == 0 and (m - 1) % 4 == 3 and _is_prime(m - 1):
        q = m - 1
        skew = np.zeros((m, m), np.float32)
        skew[0, 1:], skew[1:, 0] = 1, -1
        skew[1:, 1:] = _jacobsthal(q)
        return skew + np.eye(m, dtype=np.float32)
    if m % 4 == 0 and (m // 2 - 1) % 4 == 1 and _is_prime(m // 2 - 1):
        q = m // 2 - 1
        conference = np.zeros((q + 1, q + 1), np.float32)
        conference[0, 1:], conference[1:, 0] = 1, 1
        conference[1:, 1:] = _jacobsthal(q)
        ones = np.array([[1, 1], [1, -1]], np.float32)
        diagonal = np.array([[1, -1], [-1, -1]], np.float32)
        both = np.kron(conference, ones) + np.kron(np.eye(q + 1, dtype=np.float32), diagonal)
        return both.astype(np.float32)
    return None


def _jacobsthal(q: int) -> FloatArray:
    """Return the matrix of Legendre symbols of (row − column) modulo the prime ``q``."""
    symbol = -np.ones(q, np.float32)
    symbol[[i * i % q for i in range(1, q)]] = 1
    symbol[0] = 0
    index = np.arange(q)
    matrix: FloatArray = symbol[(index[:, None] - index[None, :]) % q]
    return matrix


def _is_prime(n: int) -> bool:
    """Tell whether ``n`` is a prime number."""
    return n > 1 and all(n % divisor for divisor in range(2, isqrt(n) + 1))
