"""How well a model predicts a text, and how far a changed model's predictions lie from its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from firstlight import _core
from firstlight.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from firstlight.runners.llama import Llama, Replacements
    from firstlight.runners.weights import FloatArray

_LOGIT_ROWS = 128
"""Tokens whose logits are held at a time."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Likelihood:
    """How well every token of a text was predicted from those before it in its window.

    Attributes:
        nll: −ln p of the true token [nat], (windows, ctx − 1).
        top1: The model's first choice, (windows, ctx − 1).
        hidden: Final hidden states, (windows, ctx − 1, width): the logits, unmultiplied.
    """

    nll: NDArray[np.float64]
    top1: NDArray[np.int64]
    hidden: FloatArray

    @property
    def perplexity(self) -> float:
        """E to the mean negative log-likelihood, all positions."""
        return math.exp(float(self.nll.mean()))

    @property
    def perplexity_second_half(self) -> float:
        """The same over the second half of every window, as llama.cpp counts."""
        return math.exp(float(self.nll[:, (self.nll.shape[1] + 1) // 2 - 1 :].mean()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A changed model against the unchanged one on the same tokens.

    Attributes:
        tokens: Predictions compared.
        perplexity: Of the changed model.
        reference_perplexity: Of the unchanged one.
        nll_difference: Mean difference of the negative log-likelihood [nat].
        nll_difference_se: Its standard error over tokens [nat].
        kl: Mean divergence of the changed from the unchanged prediction [nat].
        top1_agreement_frac: Share of tokens with the same first choice.
    """

    tokens: int
    perplexity: float
    reference_perplexity: float
    nll_difference: float
    nll_difference_se: float
    kl: float
    top1_agreement_frac: float

    @property
    def ratio(self) -> float:
        """Changed perplexity over unchanged."""
        return math.exp(self.nll_difference)

    @property
    def ratio_se(self) -> float:
        """Standard error of the ratio over tokens; the spread over seeds is not in it."""
        return self.ratio * self.nll_difference_se


def cut_windows(ids: ArrayLike, *, ctx_tok: int, windows: int | None = None) -> NDArray[np.int64]:
    """Cut token ids into windows that do not overlap, (windows, ctx_tok); the rest is dropped.

    Args:
        ids: Token ids of the text.
        ctx_tok: Tokens a window, at least 2 [tok].
        windows: At most so many, from the beginning; None is all.

    Raises:
        ModelError: The text is shorter than a window, or a count is impossible.
    """
    tokens = np.asarray(ids, np.int64).reshape(-1)
    if ctx_tok < 2 or (windows is not None and windows < 1):
        raise ModelError(f"{windows} windows of {ctx_tok} tokens; at least 1 of 2 are allowed")
    count = len(tokens) // ctx_tok
    if count == 0:
        raise ModelError(f"the text has {len(tokens)} tokens, a window {ctx_tok}")
    count = count if windows is None else min(count, windows)
    return tokens[: count * ctx_tok].reshape(count, ctx_tok)


def likelihood(
    model: Llama,
    windows: NDArray[np.int64],
    *,
    replacements: Replacements | None = None,
    progress: Callable[[int], None] | None = None,
) -> Likelihood:
    """Score every token of every window but its first.

    Args:
        model: The model.
        windows: Token ids, (windows, ctx).
        replacements: Linear layers computed by something else.
        progress: Called with the number of tokens done after each window.
    """
    count, ctx = windows.shape
    nll, top1 = np.empty((count, ctx - 1)), np.empty((count, ctx - 1), np.int64)
    states = np.empty((count, ctx - 1, model.architecture.width), np.float32)
    cache = model.new_cache(capacity_tok=ctx)
    for index, window in enumerate(windows):
        cache.clear()
        hidden = model.hidden(window, cache=cache, replacements=replacements)
        states[index] = hidden[:-1]
        nll[index], top1[index] = predict(model, hidden[:-1], window[1:])
        if progress is not None:
            progress((index + 1) * ctx)
    return Likelihood(nll=nll, top1=top1, hidden=states)


def predict(
    model: Llama, hidden: FloatArray, targets: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the negative log-likelihood of ``targets`` and the first choices, both (tokens,)."""
    nll, top1 = np.empty(len(hidden)), np.empty(len(hidden), np.int64)
    for start in range(0, len(hidden), _LOGIT_ROWS):
        rows = slice(start, min(start + _LOGIT_ROWS, len(hidden)))
        logits = model.logits(hidden[rows])
        _core.log_sum_exp(logits, logits.shape[1], nll[rows])
        nll[rows] -= np.take_along_axis(logits, targets[rows, None], axis=1)[:, 0]
        top1[rows] = logits.argmax(axis=1)
    return nll, top1


def divergence(model: Llama, reference: FloatArray, changed: FloatArray) -> NDArray[np.float64]:
    """Return the divergence of the predictions of two sets of hidden states, (tokens,) [nat]."""
    out = np.empty(len(reference))
    for start in range(0, len(reference), _LOGIT_ROWS):
        rows = slice(start, min(start + _LOGIT_ROWS, len(reference)))
        a, b = model.logits(reference[rows]), model.logits(changed[rows])
        _core.divergence(a, b, a.shape[1], out[rows])
    return out


def compare(model: Llama, reference: Likelihood, changed: Likelihood) -> Comparison:
    """Compare two runs over the same windows, token by token.

    Raises:
        ModelError: The runs are not over the same windows.
    """
    if reference.nll.shape != changed.nll.shape:
        raise ModelError(f"runs over {reference.nll.shape} and {changed.nll.shape} tokens")
    width = model.architecture.width
    difference = (changed.nll - reference.nll).reshape(-1)
    kl = divergence(model, reference.hidden.reshape(-1, width), changed.hidden.reshape(-1, width))
    return Comparison(
        tokens=difference.size,
        perplexity=changed.perplexity,
        reference_perplexity=reference.perplexity,
        nll_difference=float(difference.mean()),
        nll_difference_se=float(difference.std(ddof=1) / math.sqrt(difference.size)),
        kl=float(kl.mean()),
        top1_agreement_frac=float((reference.top1 == changed.top1).mean()),
    )
