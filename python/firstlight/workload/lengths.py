"""Lengths of prompts and answers: laws to draw them from, and moving them to another mean."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from firstlight.errors import TraceError
from firstlight.workload.trace import MAX_TOK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from firstlight.workload.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthLaw:
    """A law of lengths by its published quantiles, log-linear between them.

    Attributes:
        quantile: Cumulative shares from 0 to 1, rising.
        tok: Lengths there, ≥ 1, not falling [tok].
        mean_tok: Mean the source reports, for the check that the table reproduces it [tok].
        source: Where the quantiles come from.
    """

    quantile: tuple[float, ...]
    tok: tuple[float, ...]
    mean_tok: float
    source: str

    def draw(self, uniform: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return lengths for uniform numbers in [0, 1), same shape."""
        log = np.interp(uniform, self.quantile, np.log(self.tok))
        return np.maximum(1, np.rint(np.exp(log))).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledTrace:
    """A trace whose lengths were moved.

    Attributes:
        trace: The new trace.
        clipped_frac: Share of requests shortened to fit the model's context.
    """

    trace: Trace
    clipped_frac: float


def scale_lengths(
    trace: Trace,
    *,
    context_tok: float | None = None,
    output_tok: float | None = None,
    max_context_tok: int | None = None,
) -> ScaledTrace:
    """Scale prompts and answers to a mean, then clip to the model's maximum.

    The shape of the distributions stays; the mean is that before clipping. A prompt and its answer
    share the context: the answer keeps its length as far as one prompt token remains.

    Args:
        trace: The trace.
        context_tok: Mean prompt to reach; None keeps the prompts [tok].
        output_tok: Mean answer to reach; None keeps the answers [tok].
        max_context_tok: The model's maximum of prompt and answer together; None: no limit [tok].

    Raises:
        TraceError: When a length is not finite or below 1, or the maximum below 2.
    """
    if max_context_tok is not None and max_context_tok < 2:
        raise TraceError(f"max_context_tok: {max_context_tok!r} is not allowed; at least 2 tokens")
    isl = _scaled(trace.isl_tok, mean_tok=context_tok, name="context_tok")
    osl = _scaled(trace.osl_tok, mean_tok=output_tok, name="output_tok")
    clipped = 0.0
    if max_context_tok is not None:
        fits = isl + osl <= max_context_tok
        clipped = 1.0 - float(np.mean(fits))
        osl = np.minimum(osl, max_context_tok - 1)
        isl = np.minimum(isl, max_context_tok - osl)
    return ScaledTrace(trace=replace(trace, isl_tok=isl, osl_tok=osl), clipped_frac=clipped)


def cached_tok(isl_tok: NDArray[np.int64], *, cached_frac: float) -> NDArray[np.int64]:
    """Return prompt tokens whose keys and values are present: floor(isl · cached_frac), below isl.

    At least one token is always computed: it makes the first answer token.

    Raises:
        TraceError: When `cached_frac` is not 0 to 1.
    """
    if not 0.0 <= cached_frac <= 1.0:
        raise TraceError(f"cached_frac: {cached_frac!r} is not allowed; 0 to 1")
    # A product such as 0.29 · 100 lies just below its whole number.
    whole = np.floor(np.asarray(isl_tok) * cached_frac + 1e-9).astype(np.int64)
    cached: NDArray[np.int64] = np.minimum(whole, np.asarray(isl_tok, dtype=np.int64) - 1)
    return cached


def _scaled(lengths: NDArray[np.int64], *, mean_tok: float | None, name: str) -> NDArray[np.int64]:
    if mean_tok is None:
        return lengths
    if not (math.isfinite(mean_tok) and 1 <= mean_tok <= 1e8):
        raise TraceError(f"{name}: {mean_tok!r} is not allowed; 1 to 1e8 tokens")
    factor = mean_tok / float(lengths.mean())
    scaled: NDArray[np.int64] = np.clip(np.rint(lengths * factor), 1, MAX_TOK).astype(np.int64)
    return scaled
