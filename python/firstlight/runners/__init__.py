"""Real models, digitally and through the light: what accuracy survives and what it costs.

>>> import firstlight as fl
>>> model = fl.runners.gguf.load("model.gguf")  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

_MODULES = (
    "accuracy",
    "converters",
    "digital",
    "engine",
    "generation",
    "gguf",
    "gptq",
    "hadamard",
    "likelihood",
    "preparation",
    "recipe",
    "safetensors",
    "split",
    "tokenizer",
    "torch",
    "torchao",
    "transformers",
)

__all__ = list(_MODULES)


def __getattr__(name: str) -> ModuleType:
    if name in _MODULES:
        return import_module(f"firstlight.runners.{name}")
    msg = f"module 'firstlight.runners' has no attribute {name!r}"
    raise AttributeError(msg)
