"""Prefill by light, decode by silicon: what the continuation of a prompt suffers.

This is what a disaggregated fleet ships: the prompt's keys and values come from the optical engine,
every later token is computed with the decode side's own weights over that cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from firstlight.errors import ModelError
from firstlight.runners.likelihood import divergence, predict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from firstlight.runners.llama import Llama, Replacements
    from firstlight.runners.weights import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPoint:
    """The continuation after an optical prefill against the all-digital one.

    Attributes:
        prompt_tok: Tokens prefilled by light [tok].
        continuation_tok: True tokens scored after each prompt [tok].
        prompts: Prompts averaged over.
        nll: Mean negative log-likelihood of the continuation, all digital in float32 [nat].
        nll_difference: What the split adds to it [nat].
        nll_difference_se: Standard error over prompts, or over tokens of a single one [nat].
        kl: Mean divergence of the split's predictions [nat].
        top1_agreement_frac: Share of tokens with the same first choice.
        first_token_agreement_frac: The same for the first token after the prompt, which the
            optical engine itself predicts.
    """

    prompt_tok: int
    continuation_tok: int
    prompts: int
    nll: float
    nll_difference: float
    nll_difference_se: float
    kl: float
    top1_agreement_frac: float
    first_token_agreement_frac: float


def prefill_decode(
    model: Llama,
    ids: NDArray[np.int64],
    *,
    prefill: Replacements,
    prompt_tok: int,
    continuation_tok: int = 64,
    prompts: int = 8,
    decode: Replacements | None = None,
    kv_format: str = "f32",
) -> SplitPoint:
    """Score true continuations over a KV cache that light computed.

    Args:
        model: The model; its own weights are the all-digital reference.
        ids: Token ids of a text, cut into prompts with their continuations.
        prefill: Layers that compute the prompt.
        prompt_tok: Length of every prompt [tok].
        continuation_tok: Tokens scored after it [tok].
        prompts: At most so many prompts.
        decode: Layers that compute the continuation; None is the model itself.
        kv_format: What the cache is rounded to on its way to the decode side.

    Raises:
        ModelError: The text is too short for one prompt, or a length is not positive.
    """
    if min(prompt_tok, continuation_tok, prompts) < 1:
        raise ModelError(
            f"{prompts} prompts of {prompt_tok} + {continuation_tok} tokens; at least 1 of each"
        )
    length = prompt_tok + continuation_tok
    count = min(prompts, len(ids) // length)
    if count == 0:
        raise ModelError(f"the text has {len(ids)} tokens; prompt and continuation take {length}")
    rows = [
        _one(model, ids[i * length : (i + 1) * length], prompt_tok, prefill, decode, kv_format)
        for i in range(count)
    ]
    nll = np.stack([row[0] for row in rows])
    difference = np.stack([row[1] for row in rows])
    same = np.stack([row[3] for row in rows])
    # Tokens of one prompt share its cache: prompts are what is independent.
    spread = difference.mean(axis=1) if count > 1 else difference[0]
    return SplitPoint(
        prompt_tok=prompt_tok,
        continuation_tok=continuation_tok,
        prompts=count,
        nll=float(nll.mean()),
        nll_difference=float(difference.mean()),
        nll_difference_se=float(spread.std(ddof=1) / math.sqrt(len(spread)))
        if len(spread) > 1
        else math.nan,
        kl=float(np.mean([row[2].mean() for row in rows])),
        top1_agreement_frac=float(same.mean()),
        first_token_agreement_frac=float(same[:, 0].mean()),
    )


def format_warnings(
    *, prefill_mask_bits: int, decode_weights: str, kv_format: str, prefill_kv: str = "f32"
) -> list[str]:
    """Return what differs between the two sides and is easily overlooked.

    Args:
        prefill_mask_bits: Bits of the optical weights.
        decode_weights: Format of the decode weights.
        kv_format: Format of the cache on the decode side.
        prefill_kv: Format the prefill side computes keys and values in.
    """
    notes = []
    bits = {"f32": 32, "f16": 16, "bf16": 16, "fp8_e4m3": 8, "int8": 8, "int4-g32": 4}
    if bits.get(decode_weights) != prefill_mask_bits:
        notes.append(
            f"two models answer one request: {prefill_mask_bits}-bit optical weights compute the "
            f"prompt, {decode_weights} weights the rest"
        )
    if kv_format != prefill_kv:
        notes.append(
            f"the cache is computed as {prefill_kv} and handed over as {kv_format}: a prefix "
            "cached on one side is not the other's bit for bit"
        )
    return notes


def sweep_lengths(
    model: Llama,
    ids: NDArray[np.int64],
    *,
    prefill: Replacements,
    prompt_lengths_tok: Sequence[int] = (32, 128, 448),
    continuation_tok: int = 64,
    prompts: int = 8,
) -> list[SplitPoint]:
    """Return one :class:`SplitPoint` for every prompt length."""
    return [
        prefill_decode(
            model,
            ids,
            prefill=prefill,
            prompt_tok=length,
            continuation_tok=continuation_tok,
            prompts=prompts,
        )
        for length in prompt_lengths_tok
    ]


def _one(
    model: Llama,
    ids: NDArray[np.int64],
    prompt_tok: int,
    prefill: Replacements,
    decode: Replacements | None,
    kv_format: str,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Return NLL, its difference, divergence and agreement for every token of one continuation."""
    exact = _continuation(model, ids, prompt_tok, {}, {}, "f32")
    mixed = _continuation(model, ids, prompt_tok, prefill, decode or {}, kv_format)
    targets = ids[prompt_tok:]
    nll, top1 = predict(model, exact, targets)
    mixed_nll, mixed_top1 = predict(model, mixed, targets)
    return nll, mixed_nll - nll, divergence(model, exact, mixed), top1 == mixed_top1


def _continuation(
    model: Llama,
    ids: NDArray[np.int64],
    prompt_tok: int,
    prefill: Replacements,
    decode: Replacements,
    kv_format: str,
) -> FloatArray:
    """Return the hidden states that predict every token after the prompt, (tokens, width)."""
    cache = model.new_cache(capacity_tok=len(ids))
    first = model.hidden(ids[:prompt_tok], cache=cache, replacements=prefill)[-1:]
    if kv_format != "f32":
        cache = cache.copy(kv_format=kv_format)
    if prompt_tok + 1 == len(ids):
        return first
    # The last token predicts nothing that is scored.
    rest = model.hidden(ids[prompt_tok:-1], cache=cache, replacements=decode)
    return np.concatenate([first, rest])
