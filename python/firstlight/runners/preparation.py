"""From a model and some text to optical layers, and what each of them does to its signal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from firstlight.runners.llama import GROUPS
from firstlight.runners.optical import PreparedLinear, Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import ArrayLike

    from firstlight.runners.engine import OpticalEngine
    from firstlight.runners.llama import Llama
    from firstlight.runners.recipe import Recipe
    from firstlight.runners.weights import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSignal:
    """What one optical layer does to its signal, on the calibration text.

    Attributes:
        name: The layer.
        snr_db: Exact outputs over the error of the optical ones [dB].
        kappa: Σ|x||w| over the rms output: light paid for every unit of signal.
        clipped_frac: Share of readings beyond full scale.
        crest: Largest over rms input, mean over tokens.
    """

    name: str
    snr_db: float
    kappa: float
    clipped_frac: float
    crest: float


@dataclass(slots=True, kw_only=True)
class OpticalModel:
    """Optical layers of a model, by name: pass ``layers`` as the model's replacements.

    Attributes:
        layers: Name -> layer; those kept digital are missing.
        signals: What each does to its signal.
    """

    layers: dict[str, PreparedLinear]
    signals: list[LayerSignal]

    def tally(self) -> Tally:
        """Return what all layers did since :meth:`reset`."""
        total = Tally()
        for layer in self.layers.values():
            total.add(layer.tally)
        return total

    def reset(self) -> None:
        """Forget what was counted."""
        for layer in self.layers.values():
            layer.tally = Tally()


def prepare(
    model: Llama,
    *,
    recipe: Recipe,
    calibration: ArrayLike,
    seed: int = 0,
    engine: OpticalEngine | None = None,
    progress: Callable[[int], None] | None = None,
) -> OpticalModel:
    """Prepare every linear layer that ``recipe`` does not keep digital.

    Args:
        model: The model.
        recipe: The choices.
        calibration: Token ids of text that is not the text to be scored.
        seed: Names the noise.
        engine: The optical engine; None is converters and noise alone.
        progress: Called with the number of layers done.
    """
    out = OpticalModel(layers={}, signals=[])
    for index, (name, inputs) in enumerate(layer_inputs(model, calibration)):
        own = recipe.for_layer(name)
        if own is not None:
            weight = model.linear(name)
            layer = prepare_layer(
                name,
                weight,
                calibration=inputs,
                recipe=own,
                seed=seed,
                number=index,
                engine=engine,
            )
            out.signals.append(_signal(layer, weight, inputs))
            layer.tally = Tally()
            out.layers[name] = layer
        if progress is not None:
            progress(index + 1)
    return out


def prepare_layer(
    name: str,
    weight: FloatArray,
    *,
    calibration: FloatArray,
    recipe: Recipe,
    seed: int,
    number: int,
    engine: OpticalEngine | None,
) -> PreparedLinear:
    """Prepare one layer for the engine, or for converters alone.

    Args:
        name: The layer.
        weight: (outputs, inputs).
        calibration: Inputs of the layer on some text, (tokens, inputs).
        recipe: The choices.
        seed: Names the noise.
        number: Place of the layer in the model.
        engine: The optical engine; None is converters and noise alone.
    """
    if engine is None:
        from firstlight.runners.converters import ConverterLinear

        return ConverterLinear(name, weight, calibration=calibration, recipe=recipe, seed=seed)
    from firstlight.runners.engine import EngineLinear

    return EngineLinear(
        name,
        weight,
        calibration=calibration,
        recipe=recipe,
        seed=seed,
        number=number,
        engine=engine,
    )


def layer_inputs(model: Llama, ids: ArrayLike) -> Iterator[tuple[str, FloatArray]]:
    """Yield every linear layer's name with its inputs, (tokens, inputs), on some text."""
    for group, inputs in model.observe(ids):
        prefix, kinds = group.rsplit(".", 1)
        for kind in GROUPS[kinds]:
            yield f"{prefix}.{kind}", inputs


def _signal(layer: PreparedLinear, weight: FloatArray, inputs: FloatArray) -> LayerSignal:
    """Measure one layer against its exact self."""
    inputs = inputs[:256]
    exact = inputs @ weight.T
    # Positions that no text reaches: this is another draw of the noise than the text will see.
    error = layer(inputs, first_tok=1 << 40) - exact
    power, miss = float(np.square(exact).mean()), float(np.square(error).mean())
    light = float((np.abs(inputs) @ np.abs(weight).T).mean())
    sizes = np.abs(inputs)
    rms = np.sqrt(np.square(inputs).mean(axis=1))
    return LayerSignal(
        name=layer.name,
        snr_db=10 * math.log10(power / miss) if miss > 0 else math.inf,
        kappa=light / math.sqrt(power) if power > 0 else math.inf,
        clipped_frac=layer.tally.clipped_frac,
        crest=float((sizes.max(axis=1) / np.maximum(rms, 1e-30)).mean()),
    )
