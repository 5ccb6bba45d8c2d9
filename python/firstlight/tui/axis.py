"""Scales: where a value lies, and at which round numbers to write ticks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A linear or logarithmic scale.

    Attributes:
        lo: Value at position 0.
        hi: Value at position 1.
        is_log: Whether equal distances are equal ratios.
    """

    lo: float
    hi: float
    is_log: bool

    @classmethod
    def around(cls, values: Floats, *, is_log: bool) -> Axis:
        """Return a scale that holds the values with a little air.

        Args:
            values: Any shape; what is not finite (or not positive on a log scale) is ignored.
            is_log: Use a logarithmic scale.
        """
        usable = values[np.isfinite(values)]
        if is_log:
            usable = usable[usable > 0]
        if not usable.size:
            return cls(lo=1.0, hi=10.0, is_log=is_log)
        lo, hi = float(usable.min()), float(usable.max())
        if is_log:
            air = max((hi / lo) ** 0.04, 1.05)
            return cls(lo=lo / air, hi=hi * air, is_log=True)
        air = 0.05 * (hi - lo) or abs(hi) * 0.1 or 1.0
        return cls(
            lo=min(lo - air, 0.0) if lo < 0 else max(lo - air, 0.0), hi=hi + air, is_log=False
        )

    def position(self, value: float) -> float:
        """Return where a value lies, 0 to 1 inside the scale; nan when it cannot be shown."""
        if not math.isfinite(value) or (self.is_log and value <= 0):
            return math.nan
        if self.is_log:
            span = math.log(self.hi / self.lo)
            return math.log(value / self.lo) / span if span else 0.5
        span = self.hi - self.lo
        return (value - self.lo) / span if span else 0.5

    def positions(self, values: Floats) -> Floats:
        """Return `position` of each value."""
        out = np.full(values.shape, np.nan)
        usable = np.isfinite(values) & ((values > 0) if self.is_log else True)
        if self.is_log:
            span = math.log(self.hi / self.lo)
            out[usable] = np.log(values[usable] / self.lo) / span if span else 0.5
        else:
            span = self.hi - self.lo
            out[usable] = (values[usable] - self.lo) / span if span else 0.5
        return out

    def value(self, position: float) -> float:
        """Return the value at a position."""
        if self.is_log:
            return float(self.lo * (self.hi / self.lo) ** position)
        return self.lo + (self.hi - self.lo) * position

    def ticks(self, count: int) -> list[float]:
        """Return at most about `count` round values on the scale, ascending."""
        if count < 1 or not self.hi > self.lo:
            return []
        return self._log_ticks(count) if self.is_log else self._linear_ticks(count)

    def _linear_ticks(self, count: int) -> list[float]:
        rough = (self.hi - self.lo) / count
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * (1 - 1e-9))
        first = math.ceil(self.lo / step - 1e-9)
        last = math.floor(self.hi / step + 1e-9)
        return [k * step for k in range(first, last + 1)]

    def _log_ticks(self, count: int) -> list[float]:
        low, high = math.log10(self.lo), math.log10(self.hi)
        powers = range(math.floor(low), math.ceil(high) + 1)
        best: list[float] = []
        for leads, every in (
            ((1, 2, 5), 1),
            ((1, 3), 1),
            ((1,), 1),
            ((1,), 2),
            ((1,), 3),
            ((1,), 6),
        ):
            found = [lead * 10.0**p for p in powers if p % every == 0 for lead in leads]
            inside = [v for v in found if self.lo * (1 - 1e-9) <= v <= self.hi * (1 + 1e-9)]
            if len(inside) < 2:
                break  # coarser sets have even less
            best = inside
            if len(inside) <= count:
                break
        return best or self._linear_ticks(max(count, 2))
