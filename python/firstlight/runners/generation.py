"""Continuing a prompt: one token after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from firstlight.errors import ModelError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from firstlight.runners.llama import Llama, Replacements


def generate(
    model: Llama,
    prompt: ArrayLike,
    *,
    max_tok: int,
    temperature: float = 0.0,
    seed: int = 0,
    stop_id: int | None = None,
    prefill: Replacements | None = None,
    decode: Replacements | None = None,
) -> NDArray[np.int64]:
    """Return the continuation of ``prompt``, the stop token included.

    Args:
        model: The model.
        prompt: Token ids.
        max_tok: At most so many new tokens [tok].
        temperature: 0 takes the likeliest token; otherwise one is drawn from softmax(logits / T).
        seed: Names the draws.
        stop_id: Token that ends the continuation.
        prefill: Linear layers computed by something else while the prompt is read.
        decode: Likewise for every later token.

    Raises:
        ModelError: The prompt is empty, or a number is out of range.
    """
    if max_tok < 1 or not 0 <= temperature < np.inf:
        raise ModelError(
            f"{max_tok} tokens at temperature {temperature}; at least 1 token and a "
            "temperature of 0 or more are allowed"
        )
    tokens = np.asarray(prompt)
    draws = np.random.default_rng(seed)
    cache = model.new_cache(capacity_tok=tokens.size + max_tok)
    hidden = model.hidden(tokens, cache=cache, replacements=prefill)
    out: list[int] = []
    while True:
        logits = model.logits(hidden[-1:])[0].astype(np.float64)
        if temperature == 0:
            token = int(logits.argmax())
        else:
            weights = np.exp((logits - logits.max()) / temperature)
            token = int(draws.choice(weights.size, p=weights / weights.sum()))
        out.append(token)
        if len(out) == max_tok or token == stop_id:
            return np.array(out, np.int64)
        hidden = model.hidden([token], cache=cache, replacements=decode)
