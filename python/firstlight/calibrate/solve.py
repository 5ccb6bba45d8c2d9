"""Numbers that may not be negative, from more rows than numbers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np

from firstlight.errors import ScenarioError, TraceError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    F64 = NDArray[np.float64]

_ROUNDS = 20
_EXACT_FRAC = 0.02
"""Errors below this count as squares, which keeps the weights of exact rows finite."""


def relative(parts: F64, measured: F64, *, is_robust: bool = False) -> F64:
    """Return x >= 0 with the least error of (parts @ x) / measured.

    Args:
        parts: What one unit of each unknown adds to each row, (rows, unknowns).
        measured: What each row should come to, above 0, (rows,).
        is_robust: Least sum of error sizes instead of their squares, so that a few rows that
            went wrong in the measurement do not move the rest.

    Raises:
        ScenarioError: scipy is not installed.
    """
    try:
        optimize = import_module("scipy.optimize")
    except ImportError:
        raise ScenarioError("calibrate needs scipy: pip install 'firstlight[sweep]'") from None
    scaled = parts / measured[:, None]
    # unknowns of very different size (seconds a step, a factor near 1) share one tolerance
    size = np.abs(scaled).max(axis=0)
    size[size == 0.0] = 1.0
    scaled = scaled / size
    weight = np.ones(len(measured))
    for _ in range(_ROUNDS if is_robust else 1):
        found, _norm = optimize.nnls(scaled * weight[:, None], weight)
        error = np.abs(scaled @ found - 1.0)
        weight = 1.0 / np.sqrt(np.maximum(error, _EXACT_FRAC))
    return np.asarray(found / size)


def held_out(count: int, hold_out: int) -> set[int]:
    """Return which of `count` rows are only judged: each `hold_out`-th, none at 0.

    Raises:
        ScenarioError: `hold_out` is 1 or negative.
    """
    check_hold_out(hold_out)
    return set(range(count)[hold_out - 1 :: hold_out]) if hold_out else set()


def check_hold_out(hold_out: int) -> None:
    """Refuse a split that leaves nothing to fit.

    Raises:
        ScenarioError: `hold_out` is 1 or negative.
    """
    if hold_out < 0 or hold_out == 1:
        raise ScenarioError(f"hold_out = {hold_out} is not allowed; 0, or 2 or more")


def check_covered(count: int, why_not: Mapping[int, str]) -> None:
    """Refuse measurements of which none is covered.

    Args:
        count: Rows there are.
        why_not: Why a row is not covered, by its number in the file.

    Raises:
        TraceError: None is; the message says why the first is not.
    """
    if len(why_not) == count:
        row, why = next(iter(why_not.items()), (0, "there are no rows"))
        raise TraceError(f"nothing to fit: none of {count} rows is covered; row {row}: {why}")
