"""Rounding weights so that the layer's *outputs* change least, not the weights."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from firstlight.errors import ModelError

if TYPE_CHECKING:
    from firstlight.runners.weights import FloatArray

_BLOCK = 64
_DAMPING = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Weights on a symmetric grid with one scale for every (K-tile, output).

    Attributes:
        codes: Whole numbers, (outputs, inputs), as float32.
        scales: (outputs, tiles): weight = code × scale.
        tile_starts: First input of every tile, and the number of inputs at the end.
    """

    codes: FloatArray
    scales: FloatArray
    tile_starts: tuple[int, ...]

    @property
    def weights(self) -> FloatArray:
        """The weights that the codes stand for, (outputs, inputs)."""
        return self.codes * _spread(self.scales, self.tile_starts)


def tiles(inputs: int, rows: int) -> tuple[int, ...]:
    """Return the boundaries of the fewest equal tiles of at most ``rows``, longer ones first."""
    count = -(-inputs // rows)
    size, longer = divmod(inputs, count)
    sizes = [size + 1] * longer + [size] * (count - longer)
    return tuple(accumulate(sizes, initial=0))


def round_to_nearest(weight: FloatArray, *, bits: int, tile_starts: tuple[int, ...]) -> Grid:
    """Round every weight to the nearest code of ``bits`` bits.

    Args:
        weight: (outputs, inputs).
        bits: Bits of the mask, sign included.
        tile_starts: Boundaries as :func:`tiles` returns them.

    Raises:
        ModelError: Fewer than 2 or more than 16 bits.
    """
    scales = _scales(weight, bits=bits, tile_starts=tile_starts)
    levels = np.float32(2 ** (bits - 1) - 1)
    codes = np.clip(np.rint(weight / _spread(scales, tile_starts)), -levels, levels)
    return Grid(codes=codes.astype(np.float32), scales=scales, tile_starts=tile_starts)


def gptq(
    weight: FloatArray, *, inputs: FloatArray, bits: int, tile_starts: tuple[int, ...]
) -> Grid:
    """Round column by column, moving each column's error into those not rounded yet.

    Every output keeps whichever of this and plain rounding serves it better on ``inputs``, so that
    no output is worse than rounded.

    Args:
        weight: (outputs, inputs).
        inputs: What the layer sees, (tokens, inputs), rotated if the layer's inputs will be.
        bits: Bits of the mask, sign included.
        tile_starts: Boundaries as :func:`tiles` returns them.

    Raises:
        ModelError: Fewer than 2 or more than 16 bits.

    Source:
        E. Frantar et al., GPTQ, arXiv:2210.17323.
    """
    nearest = round_to_nearest(weight, bits=bits, tile_starts=tile_starts)
    hessian = inputs.T @ inputs
    moved = _rounded_in_order(weight, hessian, nearest, bits)
    better = output_error(moved, weight, hessian) < output_error(nearest, weight, hessian)
    return Grid(
        codes=np.where(better[:, None], moved.codes, nearest.codes),
        scales=nearest.scales,
        tile_starts=tile_starts,
    )


def output_error(grid: Grid, weight: FloatArray, hessian: FloatArray) -> FloatArray:
    """Return Σ over tokens of every output's squared error, (outputs,): GPTQ's objective.

    Args:
        grid: The rounded weights.
        weight: The true ones, (outputs, inputs).
        hessian: Xᵀ X of the inputs, (inputs, inputs).
    """
    miss = grid.weights - weight
    error: FloatArray = np.einsum("oi,oi->o", miss @ hessian, miss)
    return error


def _rounded_in_order(weight: FloatArray, hessian: FloatArray, nearest: Grid, bits: int) -> Grid:
    """Round from the first input to the last."""
    levels = np.float32(2 ** (bits - 1) - 1)
    scale = _spread(nearest.scales, nearest.tile_starts)
    damped = hessian.astype(np.float64)
    mean = float(np.trace(damped)) / len(damped)
    damped[np.diag_indices_from(damped)] += _DAMPING * mean if mean > 0 else 1.0
    # Upper Cholesky factor of the inverse: row i says where the error of input i goes.
    factor = np.linalg.cholesky(np.linalg.inv(damped)).T.astype(np.float32)
    # The weight that sets a scale keeps its code, so that whoever derives the scale from the
    # rounded weights finds the same one.
    is_fixed = np.abs(nearest.codes) == levels
    left = weight.copy()
    codes = np.empty_like(weight)
    for start in range(0, weight.shape[1], _BLOCK):
        end = min(start + _BLOCK, weight.shape[1])
        errors = np.empty((len(weight), end - start), np.float32)
        for column in range(start, end):
            value = left[:, column]
            code = np.clip(np.rint(value / scale[:, column]), -levels, levels)
            code = np.where(is_fixed[:, column], nearest.codes[:, column], code)
            codes[:, column] = code
            error = (value - code * scale[:, column]) / factor[column, column]
            errors[:, column - start] = error
            left[:, column + 1 : end] -= np.outer(error, factor[column, column + 1 : end])
        left[:, end:] -= errors @ factor[start:end, end:]
    return Grid(codes=codes, scales=nearest.scales, tile_starts=nearest.tile_starts)


def _scales(weight: FloatArray, *, bits: int, tile_starts: tuple[int, ...]) -> FloatArray:
    """Return one scale for every (output, tile): the largest weight is the largest code."""
    if not 2 <= bits <= 16:
        raise ModelError(f"mask of {bits} bits; 2 to 16 are allowed")
    top = np.maximum.reduceat(np.abs(weight), tile_starts[:-1], axis=1)
    return np.where(top > 0, top / np.float32(2 ** (bits - 1) - 1), np.float32(1))


def _spread(scales: FloatArray, tile_starts: tuple[int, ...]) -> FloatArray:
    """Repeat every tile's scale over its inputs."""
    return np.repeat(scales, np.diff(tile_starts), axis=1)
