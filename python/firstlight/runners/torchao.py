"""torchao's ``quantize_(model, optical_config(…))``: the same layers under the name people know."""

from __future__ import annotations

from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any

from firstlight.errors import ModelError
from firstlight.runners.recipe import Recipe

if TYPE_CHECKING:
    from torch import nn

    from firstlight.runners.engine import OpticalEngine


def optical_config(
    *,
    engine: OpticalEngine | None = None,
    recipe: Recipe | None = None,
    model: nn.Module | None = None,
    seed: int = 0,
) -> Any:  # noqa: ANN401  # a class that needs torchao to exist
    """Return a configuration for ``torchao.quantization.quantize_``.

    torchao hands over a layer without its name. Names choose what a recipe overrides and name the
    noise: give ``model`` and they are those that :func:`firstlight.runners.torch.convert` uses, so
    that both give the same bits. torchao's default filter takes ``lm_head`` too; pass
    ``filter_fn`` to leave it out.

    Args:
        engine: The optical engine; None is converters and noise alone.
        recipe: How layers are prepared.
        model: The model whose layers will be replaced, for their names.
        seed: Names the noise.

    Raises:
        ModelError: torchao is missing, or the recipe speaks of layers by name and there is no
            ``model``.
    """
    chosen = recipe or Recipe()
    if model is None and (chosen.overrides or chosen.keep_digital):
        raise ModelError(
            "torchao hands over layers without names, and the recipe overrides some by name: "
            "pass model=, the model to convert"
        )
    return _config_class()(engine=engine, recipe=chosen, model=model, seed=seed)


@cache
def _config_class() -> Any:  # noqa: ANN401  # a class that needs torchao to exist
    """Register the configuration with its handler."""
    try:
        from torchao.core.config import AOBaseConfig
        from torchao.quantization.transform_module import register_quantize_module_handler
    except ImportError as error:
        raise ModelError("quantize_ needs torchao: pip install torchao") from error
    from firstlight.runners.torch import linear_places, optical_module

    class OpticalConfig(AOBaseConfig):  # type: ignore[misc, unused-ignore]
        """What torchao carries from the caller to the handler."""

        def __init__(
            self, engine: OpticalEngine | None, recipe: Recipe, model: nn.Module | None, seed: int
        ) -> None:
            self.engine, self.recipe, self.seed = engine, recipe, seed
            self._others = count()
            places = linear_places(model) if model is not None else []
            # By identity: a module is not hashable by its weights, and lives as long as its model.
            self._names = {
                id(linear): (number, name)
                for number, (_parent, _child, name, linear) in enumerate(places)
            }

        def name(self, linear: nn.Module) -> tuple[int, str]:
            """Return a layer's place and name; without a model they count what was handed over."""
            if id(linear) in self._names:
                return self._names[id(linear)]
            if self._names:
                raise ModelError(
                    "quantize_ was given a layer that is not in the model of its configuration"
                )
            number = next(self._others)
            return number, f"linear{number}"

    def replace(linear: nn.Module, config: OpticalConfig) -> nn.Module:
        number, name = config.name(linear)
        own = config.recipe.for_layer(name)
        if own is None:
            return linear
        replaced: nn.Module = optical_module(
            linear, name=name, recipe=own, seed=config.seed, number=number, engine=config.engine
        )
        return replaced

    register_quantize_module_handler(OpticalConfig)(replace)
    return OpticalConfig
