"""Traffic as the closed form sees it: its rate by the half minute and moments of its lengths."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from firstlight import _core, workload

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from firstlight.evaluate.question import Question

    F64 = NDArray[np.float64]

PS_PER_S = 1e12
BIN_S = 30.0
"""Time over which the rate of arrivals counts as constant: some answers long."""
FINE = 30
"""Parts of a bin in which arrivals are counted before they are smoothed."""
LENGTH_EDGES = (0.0, 0.2, 0.4, 0.55, 0.7, 0.8, 0.86, 0.9, 0.94, 0.98, 1.0)
"""Where the requests are cut into kinds by length, finest where a service level decides."""
LENGTH_QUANTILES = tuple((low + high) / 2 for low, high in pairwise(LENGTH_EDGES))


@dataclass(frozen=True, kw_only=True, eq=False)
class Load:
    """Traffic as the closed form sees it.

    Attributes:
        rate_ratio: Rate of arrivals over its mean, by bin of `BIN_S`, (bins,).
        prefill_ratio: Rate of prompt tokens over its mean, by bin, (bins,).
        decode_ratio: Rate of answer tokens over its mean, by bin, (bins,).
        uncached_tok: Prompt tokens to compute at `LENGTH_QUANTILES`, (quantiles,).
        uncached_weight: Share of the requests each of them stands for, (quantiles,).
        mean_uncached_tok: Mean prompt tokens to compute [tok].
        uncached_cv: Their spread over their mean.
        mean_input_tok: Mean prompt [tok].
        mean_output_tok: Mean answer [tok].
        mean_pairs: Mean query-key pairs of one prompt.
        context_tok: Mean context of a sequence that decodes, long answers weighing more [tok].
    """

    rate_ratio: F64
    prefill_ratio: F64
    decode_ratio: F64
    uncached_tok: F64
    uncached_weight: F64
    mean_uncached_tok: float
    uncached_cv: float
    mean_input_tok: float
    mean_output_tok: float
    mean_pairs: float
    context_tok: float

    @cached_property
    def moments(self) -> _core.Moments:
        """The same as the compiled formulas take it."""
        return _core.Moments(
            rate_ratio=self.rate_ratio,
            prefill_ratio=self.prefill_ratio,
            decode_ratio=self.decode_ratio,
            uncached_tok=self.uncached_tok,
            uncached_weight=self.uncached_weight,
            mean_uncached_tok=self.mean_uncached_tok,
            uncached_cv=self.uncached_cv,
            mean_input_tok=self.mean_input_tok,
            mean_output_tok=self.mean_output_tok,
            mean_pairs=self.mean_pairs,
            context_tok=self.context_tok,
            bin_s=BIN_S,
        )


@lru_cache(maxsize=512)
def load_of(
    name: str,
    *,
    seed: int,
    context_tok: float | None,
    output_tok: float | None,
    cached_frac: float,
    correlation_s: float,
    max_context_tok: int,
    shared_prefix_tok: int = 0,
) -> Load:
    """Return the moments of a traffic; the same one is read once.

    Args:
        name: Preset, shipped trace or file.
        seed: Seed of a drawn preset.
        context_tok: Mean prompt the trace is scaled to [tok]; None leaves it.
        output_tok: Mean answer it is scaled to [tok]; None leaves it.
        cached_frac: Prompt tokens whose KV is present.
        correlation_s: Largest shift of a copy of the trace [s].
        max_context_tok: Longest prompt and answer of the model [tok].
        shared_prefix_tok: Tokens all prompts share, present wherever they go [tok].
    """
    known = _lengths_of(
        name,
        seed,
        context_tok=context_tok,
        output_tok=output_tok,
        max_context_tok=max_context_tok,
        correlation_s=correlation_s,
    )

    def uncached_of(isl_tok: NDArray[np.int64]) -> F64:
        cached = workload.cached_tok(isl_tok, cached_frac=cached_frac)
        if shared_prefix_tok:
            cached = np.maximum(cached, np.minimum(isl_tok - 1, shared_prefix_tok))
        computed: F64 = (isl_tok - cached).astype(np.float64)
        return computed

    uncached = uncached_of(known.isl_tok)
    # Longer prompts have no less to compute, so the order of lengths is that of what is computed.
    low, high = uncached_of(known.below_tok), uncached_of(known.above_tok)
    mean_uncached_tok = float(uncached.mean())
    square = float(np.square(uncached).mean())
    # Each query sees what is cached and, on average, half of what is computed with it.
    mean_pairs = (
        float((uncached * known.isl_tok).mean()) - square + (square + mean_uncached_tok) / 2
    )
    return Load(
        rate_ratio=known.rate_ratio,
        prefill_ratio=_ratio(name, seed, uncached, correlation_s=correlation_s),
        decode_ratio=known.decode_ratio,
        uncached_tok=low + known.between * (high - low),
        uncached_weight=np.diff(LENGTH_EDGES),
        mean_uncached_tok=mean_uncached_tok,
        uncached_cv=math.sqrt(max(square / mean_uncached_tok**2 - 1.0, 0.0)),
        mean_input_tok=known.mean_input_tok,
        mean_output_tok=known.mean_output_tok,
        mean_pairs=mean_pairs,
        context_tok=known.context_tok,
    )


def load_of_question(asked: Question) -> Load:
    """Return the moments of a question's traffic."""
    work = asked.scenario.workload
    return load_of(
        work.preset or work.trace or "azure-2023-conv",
        seed=asked.scenario.seed,
        context_tok=work.context_tok,
        output_tok=work.output_tok,
        cached_frac=work.cached_frac,
        correlation_s=work.correlation_s,
        max_context_tok=asked.shape.max_context_tok,
        shared_prefix_tok=work.shared_prefix_tok,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Lengths:
    """What of a traffic does not depend on how much of it is cached.

    Attributes:
        isl_tok: Prompts, (requests,) [tok].
        below_tok: The prompts next below `LENGTH_QUANTILES`, (quantiles,) [tok].
        above_tok: Those next above, (quantiles,) [tok].
        between: How far from the one to the other a quantile lies, (quantiles,).
        rate_ratio: As in `Load`.
        decode_ratio: As in `Load`.
        mean_input_tok: As in `Load`.
        mean_output_tok: As in `Load`.
        context_tok: As in `Load`.
    """

    isl_tok: NDArray[np.int64]
    below_tok: NDArray[np.int64]
    above_tok: NDArray[np.int64]
    between: F64
    rate_ratio: F64
    decode_ratio: F64
    mean_input_tok: float
    mean_output_tok: float
    context_tok: float


@lru_cache(maxsize=16)
def _lengths_of(
    name: str,
    seed: int,
    *,
    context_tok: float | None,
    output_tok: float | None,
    max_context_tok: int,
    correlation_s: float,
) -> _Lengths:
    """Return the lengths of a traffic; the last few are kept."""
    made = _scaled(name, seed, context_tok, output_tok, max_context_tok)
    scaled = made.trace
    isl, osl = scaled.isl_tok.astype(np.float64), scaled.osl_tok.astype(np.float64)
    place = np.array(LENGTH_QUANTILES) * (len(scaled.isl_tok) - 1)
    below = place.astype(np.intp)
    above = np.minimum(below + 1, len(scaled.isl_tok) - 1)
    # Scaling keeps the order of lengths; cutting to the model's context need not.
    in_order = np.sort(scaled.isl_tok) if made.clipped_frac else scaled.isl_tok[_order(name, seed)]
    return _Lengths(
        isl_tok=scaled.isl_tok,
        below_tok=in_order[below],
        above_tok=in_order[above],
        between=place - below,
        rate_ratio=_rate_ratio(name, seed, correlation_s=correlation_s),
        decode_ratio=_ratio(name, seed, osl, correlation_s=correlation_s),
        mean_input_tok=float(isl.mean()),
        mean_output_tok=float(osl.mean()),
        context_tok=float((osl * (isl + osl / 2)).sum() / osl.sum()),
    )


def scaled_of(
    name: str,
    seed: int,
    *,
    context_tok: float | None,
    output_tok: float | None,
    max_context_tok: int,
) -> workload.Trace:
    """Return a trace with its lengths moved; the last few are kept."""
    return _scaled(name, seed, context_tok, output_tok, max_context_tok).trace


@lru_cache(maxsize=8)
def _scaled(
    name: str,
    seed: int,
    context_tok: float | None,
    output_tok: float | None,
    max_context_tok: int,
) -> workload.ScaledTrace:
    return workload.scale_lengths(
        trace_of(name, seed),
        context_tok=context_tok,
        output_tok=output_tok,
        max_context_tok=max_context_tok,
    )


@lru_cache(maxsize=16)
def trace_of(name: str, seed: int) -> workload.Trace:
    """Return a trace; the last few are kept."""
    return workload.load(name, seed=seed)


@lru_cache(maxsize=16)
def _bins(name: str, seed: int) -> tuple[NDArray[np.intp], int]:
    """Return the fine bin of each arrival of a trace, (requests,), and how many bins there are."""
    trace = trace_of(name, seed)
    bins = max(int(trace.duration_s / BIN_S * FINE), 1)
    place = trace.arrival_ps() / PS_PER_S / trace.duration_s * bins
    return np.minimum(place.astype(np.intp), bins - 1), bins


@lru_cache(maxsize=16)
def _order(name: str, seed: int) -> NDArray[np.intp]:
    """Return the places of a trace's prompts from the shortest to the longest, (requests,)."""
    return np.argsort(trace_of(name, seed).isl_tok, kind="stable")


@lru_cache(maxsize=64)
def _rate_ratio(name: str, seed: int, *, correlation_s: float) -> F64:
    """Return the rate of arrivals over its mean by bin."""
    return _ratio(name, seed, None, correlation_s=correlation_s)


def _ratio(name: str, seed: int, amount: F64 | None, *, correlation_s: float) -> F64:
    """Return a rate over its mean by bin, as copies shifted up to `correlation_s` see it.

    Args:
        name: Preset, shipped trace or file.
        seed: Seed of a drawn preset.
        amount: What each arrival brings, (requests,); None: 1.
        correlation_s: Largest shift of a copy [s].
    """
    bin_of, bins = _bins(name, seed)
    fine_s = BIN_S / FINE
    counts = np.bincount(bin_of, weights=amount, minlength=bins)
    longest_s = min(correlation_s, trace_of(name, seed).duration_s)
    window = max(min(round(longest_s / fine_s), bins), 1)
    around = np.concatenate([counts[bins - window + 1 :], counts])
    total = np.concatenate([[0.0], np.cumsum(around)])
    smooth = (total[window:] - total[:-window]) / window
    whole = max(bins // FINE, 1)
    coarse: F64 = smooth[: whole * (bins // whole)].reshape(whole, -1).mean(axis=1)
    ratio: F64 = coarse / coarse.mean()
    return ratio
