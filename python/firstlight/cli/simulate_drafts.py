"""`--speculate` of `firstlight simulate`: what is drafted and how much of it holds, from words."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from firstlight.errors import ScenarioError, nearest

if TYPE_CHECKING:
    from firstlight.schedule import Fleet, Pool, Speculation

HELP = (
    'Speculative decoding: "k=4 accept=0.7" (each of 4 drafts holds in 7 of 10 cases when those '
    'before it did), "accept=0.8/0.6/0.45" (as servers measure it, by draft), draft=0.02 (a draft '
    "costs 2 % of a plain step; without it nothing, as n-grams)."
)
MOST = 32
_ALLOWED = ("k", "accept", "draft")


def speculating(fleet: Fleet, words: str, *, seed: int) -> Fleet:
    """Return the fleet with drafts in every pool that decodes.

    Args:
        fleet: Pools under ``vllm``.
        words: As in `HELP`.
        seed: Key of the draws.

    Raises:
        ScenarioError: The words are malformed, or the drafts do not fit a step.
    """
    speculation = _read(words, seed=seed)
    return replace(
        fleet,
        pools=tuple(
            pool if pool.role == "prefill" else _with(pool, speculation, words)
            for pool in fleet.pools
        ),
    )


def _with(pool: Pool, speculation: Speculation, words: str) -> Pool:
    if pool.policy != "vllm":
        raise ScenarioError(
            f"--speculate {words!r} under --batching {pool.policy} is not allowed; vllm-v1"
        )
    most = pool.token_budget // pool.max_seqs - 1
    if speculation.drafts > most:
        fewer = pool.token_budget // (1 + speculation.drafts)
        either = f"k={most} at most, or " if most > 0 else ""
        raise ScenarioError(
            f"--speculate {words!r}: {pool.max_seqs} sequences of {1 + speculation.drafts} tokens "
            f"do not fit a step of {pool.token_budget} on {pool.name}; allowed: {either}"
            f"--set max_seqs_count={fewer}"
        )
    return replace(pool, speculation=speculation)


def _read(text: str, *, seed: int) -> Speculation:
    from firstlight.schedule import Speculation

    words = dict[str, str]()
    for word in text.replace(",", " ").split():
        key, equals, value = word.partition("=")
        if not equals or key not in _ALLOWED or key in words:
            raise ScenarioError(
                f"--speculate {text!r}: {word!r} is not allowed; each once: "
                f"{', '.join(f'{name}=…' for name in _ALLOWED)}{nearest(key, _ALLOWED)}"
            )
        words[key] = value
    shares = words.get("accept", "").split("/")
    if "accept" not in words or ("k" not in words and len(shares) == 1):
        raise ScenarioError(
            f"--speculate {text!r}: allowed: k=… and accept=…, or accept=…/…/… with one share a draft"
        )
    drafts = words.get("k", str(len(shares)))
    if not drafts.isascii() or not drafts.isdecimal() or not 1 <= int(drafts) <= MOST:
        raise ScenarioError(f"--speculate {text!r}: k={drafts} is not allowed; 1 to {MOST}")
    if len(shares) not in (1, int(drafts)):
        raise ScenarioError(
            f"--speculate {text!r}: {len(shares)} shares are not allowed; one, or {drafts}, one a "
            "draft"
        )
    accept = tuple(_share(text, "accept", share) for share in shares)
    if any(later > before for before, later in pairwise(accept)):
        raise ScenarioError(
            f"--speculate {text!r}: accept={words['accept']} is not allowed; shares that do not "
            "rise: a draft holds only where those before it did"
        )
    return Speculation(
        drafts=int(drafts),
        accept_frac=accept if len(accept) > 1 else accept[0],
        draft_frac=_share(text, "draft", words.get("draft", "0")),
        seed=seed,
    )


def _share(text: str, name: str, value: str) -> float:
    try:
        share = float(value)
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 1.0:
        raise ScenarioError(f"--speculate {text!r}: {name}={value} is not allowed; 0 to 1")
    return share


def line(pools: list[dict[str, int]]) -> str:
    """Return what became of the drafts, from the counters of all pools."""
    drafted, accepted, draft_ps, decode_ps = (
        sum(pool[name] for pool in pools)
        for name in ("drafted_tok", "accepted_tok", "draft_ps", "decode_ps")
    )
    return (
        f"drafts: {accepted / max(drafted, 1):.1%} of {drafted:,} came out, "
        f"{draft_ps / max(decode_ps, 1):.1%} of decode time went into them"
    )
