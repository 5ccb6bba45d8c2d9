"""Traffic as the closed form sees it: its rate by the half minute and moments of its lengths."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from firstlight import _core, workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from firstlight.evaluate.question import Question

    F64 = NDArray[np.float64]

PS_PER_S = 1e12
BIN_S = 30.0
"""Time over which the rate of arrivals counts as constant: some answers long."""
FINE = 30
"""Parts of a bin in which arrivals are counted before they are smoothed."""
LENGTH_QUANTILES = (0.15, 0.5, 0.75, 0.9, 0.98)


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
        longest_prompt_tok: Longest prompt [tok].
        longest_tok: Longest prompt and answer together [tok].
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
    longest_prompt_tok: int
    longest_tok: int

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
    trace = trace_of(name, seed)
    scaled = scaled_of(
        name,
        seed,
        context_tok=context_tok,
        output_tok=output_tok,
        max_context_tok=max_context_tok,
    )
    isl = scaled.isl_tok.astype(np.float64)
    osl = scaled.osl_tok.astype(np.float64)
    cached = workload.cached_tok(scaled.isl_tok, cached_frac=cached_frac)
    uncached = isl - np.maximum(cached, np.minimum(isl - 1.0, shared_prefix_tok))
    edges = (0.0, *(_middles(LENGTH_QUANTILES)), 1.0)
    bin_of, bins = _bins(name, seed)

    def ratio(amount: F64) -> F64:
        return _rate_ratio(
            bin_of, amount, bins=bins, length_s=trace.duration_s, correlation_s=correlation_s
        )

    return Load(
        rate_ratio=ratio(np.ones_like(isl)),
        prefill_ratio=ratio(uncached),
        decode_ratio=ratio(osl),
        uncached_tok=np.quantile(uncached, LENGTH_QUANTILES),
        uncached_weight=np.diff(edges),
        mean_uncached_tok=float(uncached.mean()),
        uncached_cv=float(uncached.std() / uncached.mean()),
        mean_input_tok=float(isl.mean()),
        mean_output_tok=float(osl.mean()),
        mean_pairs=float((uncached * (isl - uncached) + uncached * (uncached + 1) / 2).mean()),
        context_tok=float((osl * (isl + osl / 2)).sum() / osl.sum()),
        longest_prompt_tok=int(isl.max()),
        longest_tok=int((isl + osl).max()),
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


def _middles(quantiles: tuple[float, ...]) -> Iterator[float]:
    for low, high in pairwise(quantiles):
        yield (low + high) / 2


@lru_cache(maxsize=16)
def trace_of(name: str, seed: int) -> workload.Trace:
    """Return a trace; the last few are kept."""
    return workload.load(name, seed=seed)


@lru_cache(maxsize=8)
def scaled_of(
    name: str,
    seed: int,
    *,
    context_tok: float | None,
    output_tok: float | None,
    max_context_tok: int,
) -> workload.Trace:
    """Return a trace with its lengths moved; the last few are kept."""
    return workload.scale_lengths(
        trace_of(name, seed),
        context_tok=context_tok,
        output_tok=output_tok,
        max_context_tok=max_context_tok,
    ).trace


@lru_cache(maxsize=16)
def _bins(name: str, seed: int) -> tuple[NDArray[np.intp], int]:
    """Return the fine bin of each arrival of a trace, (requests,), and how many bins there are."""
    trace = trace_of(name, seed)
    bins = max(int(trace.duration_s / BIN_S * FINE), 1)
    place = trace.arrival_ps() / PS_PER_S / trace.duration_s * bins
    return np.minimum(place.astype(np.intp), bins - 1), bins


def _rate_ratio(
    bin_of: NDArray[np.intp], amount: F64, *, bins: int, length_s: float, correlation_s: float
) -> F64:
    """Return a rate over its mean by bin, as copies shifted up to `correlation_s` see it.

    Args:
        bin_of: Fine bin of each arrival, (requests,).
        amount: What each brings: 1, or tokens, (requests,).
        bins: Number of fine bins.
        length_s: Length of the trace [s].
        correlation_s: Largest shift of a copy [s].
    """
    fine_s = BIN_S / FINE
    counts = np.bincount(bin_of, weights=amount, minlength=bins)
    window = max(min(round(min(correlation_s, length_s) / fine_s), bins), 1)
    around = np.concatenate([counts[bins - window + 1 :], counts])
    total = np.concatenate([[0.0], np.cumsum(around)])
    smooth = (total[window:] - total[:-window]) / window
    whole = max(bins // FINE, 1)
    coarse: F64 = smooth[: whole * (bins // whole)].reshape(whole, -1).mean(axis=1)
    ratio: F64 = coarse / coarse.mean()
    return ratio
