"""A measured table as a smooth surface: a roofline times a tabled residual.

A kernel's time is ``ideal(x) · exp(residual(x))``. The ideal is a physical roofline (FLOP over
peak, bytes over bandwidth, a launch), so it carries the scale over many decades; the residual is
what the measurement adds, it varies slowly, and it is interpolated linearly between the table's
points in the logarithm of each axis. Outside the table the residual stays at its edge value, so
extrapolation follows the roofline.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Surface:
    """A residual on a rectangular grid.

    Attributes:
        axes: Grid values of each axis, ascending and positive.
        residual: ln(measured / ideal), one dimension an axis.
    """

    axes: tuple[F64, ...]
    residual: F64

    def at(self, *point: float) -> Surface:
        """Return the surface over the leading axes when the trailing ones are fixed.

        Args:
            point: Values of the last ``len(point)`` axes, in order.
        """
        values = self.residual
        for axis, value in zip(reversed(self.axes), reversed(point), strict=False):
            low, weight = _bracket(axis, value)
            high = min(low + 1, len(axis) - 1)
            values = values[..., low] * (1 - weight) + values[..., high] * weight
        return Surface(axes=self.axes[: values.ndim], residual=values)

    def curve(self, at: F64) -> F64:
        """Return the residual of a one-dimensional surface at every value of `at`."""
        return interpolate_log(at, self.axes[0], self.residual)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scatter:
    """Residual grids measured for some shapes only, with no grid between the shapes.

    A new shape takes the mean of the measured ones, weighted by the inverse square of their
    distance in the logarithm of each coordinate; a measured shape takes its own grid.

    Attributes:
        points: Coordinates of the measured shapes, (shapes, coordinates).
        axes: Grid values of each axis of a shape's grid.
        residual: ln(measured / ideal), (shapes, …).
    """

    points: F64
    axes: tuple[F64, ...]
    residual: F64

    def at(self, *point: float) -> Surface:
        """Return the surface of the shape at `point`."""
        distance = ((np.log(self.points) - np.log(np.array(point))) ** 2).sum(axis=1)
        nearest = int(distance.argmin())
        if distance[nearest] < _SAME_SHAPE:
            return Surface(axes=self.axes, residual=self.residual[nearest])
        weight = 1.0 / distance
        mixed = np.tensordot(weight / weight.sum(), self.residual, axes=1)
        return Surface(axes=self.axes, residual=mixed)


_SAME_SHAPE = 1e-9


def _bracket(axis: F64, value: float) -> tuple[int, float]:
    if len(axis) == 1:
        return 0, 0.0
    low = int(np.clip(np.searchsorted(axis, value, side="right") - 1, 0, len(axis) - 2))
    weight = float(np.log(max(value, 1e-9) / axis[low]) / np.log(axis[low + 1] / axis[low]))
    return low, min(1.0, max(0.0, weight))


def interpolate_log(at: F64, axis: F64, values: F64) -> F64:
    """Interpolate `values` linearly in ln(axis), flat beyond both ends."""
    return np.interp(np.log(np.maximum(at, 1e-9)), np.log(axis), values)


def fill_holes(axes: tuple[F64, ...], residual: F64) -> F64:
    """Return the grid with every NaN replaced from its known neighbours.

    Along each axis a hole takes the linear interpolation of its nearest known neighbours; the
    axes are averaged with weights that fall with the distance to those neighbours. A hole without
    neighbours on both sides of any axis takes the nearest known values; the sweep repeats until
    nothing is left.

    Args:
        axes: Grid values of each axis.
        residual: Grid with NaN for holes.
    """
    filled = residual.copy()
    while np.isnan(filled).any():
        known = ~np.isnan(filled)
        if not known.any():
            return np.zeros_like(filled)
        totals = [_sweep(axes[i], filled, i) for i in range(filled.ndim)]
        weight = reduce(np.add, [w for _, w in totals])
        value = reduce(np.add, [v * w for v, w in totals])
        update = ~known & (weight > 0)
        filled[update] = value[update] / weight[update]
    return filled


_ONE_SIDED = 0.02
"""Weight of an estimate that only repeats one neighbour, beside one that interpolates two."""


def _sweep(axis: F64, grid: F64, dimension: int) -> tuple[F64, F64]:
    moved = np.moveaxis(grid, dimension, -1)
    log_axis = np.log(axis)
    flat = moved.reshape(-1, moved.shape[-1])
    value, weight = np.zeros_like(flat), np.zeros_like(flat)
    for row, values, weights in zip(flat, value, weight, strict=True):
        known = np.flatnonzero(~np.isnan(row))
        holes = np.flatnonzero(np.isnan(row))
        if not len(known) or not len(holes):
            continue
        values[holes] = np.interp(log_axis[holes], log_axis[known], row[known])
        right = np.searchsorted(known, holes)
        inside = (right > 0) & (right < len(known))
        left = known[np.maximum(right - 1, 0)]
        after = known[np.minimum(right, len(known) - 1)]
        gap = np.where(inside, log_axis[after] - log_axis[left], 1.0)
        near = np.minimum(
            np.abs(log_axis[holes] - log_axis[left]), np.abs(log_axis[after] - log_axis[holes])
        )
        weights[holes] = np.where(inside, 1.0 / gap**2, _ONE_SIDED / (0.1 + near) ** 2)
    shape = moved.shape
    return np.moveaxis(value.reshape(shape), -1, dimension), np.moveaxis(
        weight.reshape(shape), -1, dimension
    )
