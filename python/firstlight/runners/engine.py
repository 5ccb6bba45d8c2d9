"""Linear layers through the photon-level emulator, with ranges chosen as models need them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from firstlight.errors import ModelError
from firstlight.runners.encoding import encode
from firstlight.runners.optical import Tally

if TYPE_CHECKING:
    from collections.abc import Mapping

    from firstlight.optics import Engine
    from firstlight.runners.recipe import Recipe
    from firstlight.runners.weights import FloatArray

_RANGES = ("ideal", "worst", "tile-max", "fixed-gain")
"""Receiver ranges that the emulator's converter can be given for a whole layer."""

_SAMPLE_TOK = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class OpticalEngine:
    """An engine of the emulator under a name that goes into the record of every result.

    Attributes:
        name: The preset, and whatever was changed on it.
        engine: The emulator's engine.
    """

    name: str
    engine: Engine

    def changed(self, changes: Mapping[str, Any]) -> OpticalEngine:
        """Return the engine with some parameters replaced."""
        if not changes:
            return self
        words = ", ".join(f"{key}={value}" for key, value in sorted(changes.items()))
        return replace(self, name=f"{self.name} ({words})", engine=self.engine.replace(**changes))


def open_engine(preset: str, changes: Mapping[str, Any] | None = None) -> OpticalEngine:
    """Return the engine of a preset with some parameters replaced.

    Raises:
        CatalogError: There is no such preset.
    """
    from firstlight.optics import Engine

    return OpticalEngine(name=preset, engine=Engine.preset(preset)).changed(changes or {})


class EngineLinear:
    """One linear layer in the emulator's light.

    The recipe's rotation, rounding, bits, tile and range are carried out here and handed to the
    engine; its light, converters' imperfections and static errors stay the engine's. A noise of the
    recipe is added as readout noise, a share of the range.

    Attributes:
        name: The layer.
        recipe: How it was prepared.
        tally: What it has done so far.
        digital_ops_per_tok: Digital work around the light for one token.
    """

    def __init__(
        self,
        name: str,
        weight: FloatArray,
        *,
        calibration: FloatArray,
        recipe: Recipe,
        seed: int,
        number: int,
        engine: OpticalEngine,
    ) -> None:
        """Rotate, round, choose the range and write the masks.

        Args:
            name: The layer.
            weight: (outputs, inputs).
            calibration: Inputs of the layer on some text, (tokens, inputs).
            recipe: The choices.
            seed: Names the noise.
            number: Place of the layer in the model; names its noise with the seed.
            engine: The engine.

        Raises:
            ModelError: The recipe asks for a range that the engine's converter cannot be given.
        """
        if recipe.receiver not in _RANGES or recipe.static_dac:
            wanted = "one input scale" if recipe.static_dac else f"range {recipe.receiver!r}"
            raise ModelError(
                f"layer {name}: {wanted} is for converters alone; on an engine these ranges are "
                f"allowed: {', '.join(_RANGES)}"
            )
        self.name, self.recipe, self.tally = name, recipe, Tally()
        encoded = encode(weight, calibration=calibration, recipe=recipe)
        self._rotation, self._seed, self._number = encoded.rotation, seed, number
        edges = encoded.grid.tile_starts
        sample = np.ascontiguousarray(encoded.calibration[:_SAMPLE_TOK])
        changes = _engine_changes(
            recipe, _largest_sum(encoded.grid.codes, encoded.calibration, edges, recipe)
        )
        self._layer = engine.engine.replace(**changes).compile(
            encoded.grid.weights, calibration=sample
        )
        self._outputs, self._macs = len(weight), weight.size
        adds = self._rotation.adds_per_tok if self._rotation else 0
        self.digital_ops_per_tok = adds + weight.shape[1] + 2 * len(weight) * (len(edges) - 1)

    def __call__(self, x: FloatArray, *, first_tok: int = 0) -> FloatArray:
        """Return the outputs, (tokens, outputs), of inputs, (tokens, inputs)."""
        x = np.ascontiguousarray(x)
        if self._rotation is not None:
            x = self._rotation(x)
        y, ledger = self._layer(x, seed=self._seed, layer=self._number, first_token=first_tok)
        self._count(len(x), ledger)
        return y
