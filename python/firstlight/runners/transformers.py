"""Hugging Face models through the light: ``from_pretrained(…, quantization_config=OpticalConfig())``.

``OpticalConfig`` is a class of ``transformers``' own kind, so it exists once that library does: it
and its quantizer are registered under the name ``firstlight`` when it, or :func:`optical_config`,
is first asked for. Weights are loaded as they are and the layers swapped after,
so that whatever ``transformers`` can load can be tried.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from firstlight.errors import ModelError
from firstlight.runners.recipe import Recipe

if TYPE_CHECKING:
    from firstlight.runners.engine import OpticalEngine


def optical_config(
    *,
    engine: OpticalEngine | None = None,
    recipe: Recipe | None = None,
    keep_digital: tuple[str, ...] = ("lm_head",),
    seed: int = 0,
) -> Any:  # noqa: ANN401  # a class that needs transformers to exist
    """Return a quantization configuration for ``from_pretrained``.

    Args:
        engine: The optical engine; None is converters and noise alone.
        recipe: How layers are prepared.
        keep_digital: Endings of the names of modules that stay exact.
        seed: Names the noise.

    Raises:
        ModelError: transformers is missing.
    """
    return _config_class()(
        engine=engine, recipe=recipe or Recipe(), keep_digital=keep_digital, seed=seed
    )


def __getattr__(name: str) -> Any:  # noqa: ANN401  # a class that needs transformers to exist
    if name == "OpticalConfig":
        return _config_class()
    msg = f"module 'firstlight.runners.transformers' has no attribute {name!r}"
    raise AttributeError(msg)


@cache
def _config_class() -> Any:  # noqa: ANN401  # a class that needs transformers to exist
    """Register the configuration and its quantizer, once."""
    try:
        quantizers: Any = import_module("transformers.quantizers")
        settings: Any = import_module("transformers.utils.quantization_config")
    except ImportError as error:
        raise ModelError(
            "Hugging Face models need transformers: pip install 'firstlight[transformers]'"
        ) from error

    @quantizers.register_quantization_config("firstlight")
    class OpticalConfig(settings.QuantizationConfigMixin):  # type: ignore[misc, unused-ignore]
        """What ``transformers`` carries from the caller to the quantizer."""

        def __init__(
            self, engine: OpticalEngine | None = None, recipe: Recipe | None = None,
            keep_digital: tuple[str, ...] = ("lm_head",), seed: int = 0,
        ) -> None:  # fmt: skip
            self.quant_method = "firstlight"
            self.engine, self.recipe = engine, recipe or Recipe()
            self.keep_digital, self.seed = keep_digital, seed

        def to_dict(self) -> dict[str, Any]:
            return {
                "quant_method": self.quant_method,
                "engine": self.engine.name if self.engine else None,
                "recipe": asdict(self.recipe),
                "keep_digital": list(self.keep_digital),
                "seed": self.seed,
            }

    @quantizers.register_quantizer("firstlight")
    class OpticalQuantizer(quantizers.HfQuantizer):  # type: ignore[misc, unused-ignore]
        """Swaps linear layers once their weights are real."""

        requires_calibration = False

        def _process_model_before_weight_loading(self, model: Any, **_: Any) -> Any:  # noqa: ANN401
            return model

        def _process_model_after_weight_loading(self, model: Any, **_: Any) -> Any:  # noqa: ANN401
            from firstlight.runners.torch import convert

            chosen = self.quantization_config
            return convert(
                model,
                chosen.engine,
                recipe=chosen.recipe,
                seed=chosen.seed,
                filter_fn=lambda _module, name: not name.endswith(tuple(chosen.keep_digital)),
            )

        def is_serializable(self, **_: Any) -> bool:  # noqa: ANN401
            # Ranges and noise belong to a machine, not to a checkpoint.
            return False

        @property
        def is_trainable(self) -> bool:
            return False

    return OpticalConfig
