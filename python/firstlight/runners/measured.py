"""The accuracy that was measured for a model on an engine, or the command that measures it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredAccuracy:
    """One measured setting.

    Attributes:
        model: Catalog id of the model.
        engine: Catalog id of the engine.
        setting: What the study called it.
        mask_bits: Bits of a weight.
        ratio: Perplexity over the float32 perplexity.
        ratio_se: Standard error over tokens.
        kl: Mean divergence from the float32 prediction [nat].
        top1_agreement_frac: Share of tokens with the same first choice.
        energy_j_per_tok: Engine's energy for the linear layers of one token [J].
        tokens: Predictions scored.
        source: Where and how it was measured.
        date: When.
    """

    model: str
    engine: str
    setting: str
    mask_bits: int
    ratio: float
    ratio_se: float
    kl: float
    top1_agreement_frac: float
    energy_j_per_tok: float
    tokens: int
    source: str
    date: str


@lru_cache(maxsize=1)
def measured() -> tuple[MeasuredAccuracy, ...]:
    """Return everything that was measured and shipped."""
    text = files("firstlight.runners").joinpath("data/accuracy.toml").read_text(encoding="utf-8")
    document: dict[str, Any] = tomllib.loads(text)
    common = {key: document[key] for key in ("source", "date")}
    return tuple(MeasuredAccuracy(**common, **row) for row in document["measured"])


def accuracy_of(model: str, *, engine: str, mask_bits: int) -> MeasuredAccuracy | None:
    """Return the best shipped measurement of ``model`` on ``engine``, or None.

    Nothing is carried over from another model, engine or number of bits.

    Args:
        model: Catalog id of the model.
        engine: Catalog id of the engine.
        mask_bits: Bits of a weight.
    """
    fit = [
        row
        for row in measured()
        if (row.model, row.engine, row.mask_bits) == (model, engine, mask_bits)
    ]
    return min(fit, key=lambda row: row.ratio) if fit else None


def command_for(model: str, *, engine: str) -> str:
    """Return the command that measures ``model`` on ``engine``."""
    return f"firstlight accuracy {model}.gguf --text TEXT.txt --engine {engine}"
