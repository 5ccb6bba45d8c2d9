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

    from firstlight.optics import Engine, RunLedger
    from firstlight.runners.gptq import Grid
    from firstlight.runners.recipe import Recipe
    from firstlight.runners.weights import FloatArray

ENGINE_RANGES = ("engine", "worst", "tile-max", "fixed-gain")
"""Receiver ranges that an engine's converter can be given; ``engine`` leaves it its own."""

_PAIRED = "four_quadrant_balanced"
"""The encoding whose reading is the signed sum itself, so that a range can be computed for it."""

_SLICED_SIGMA = 12.0
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

    The recipe's rotation, rounding, bits and range are carried out here and handed to the engine;
    its tile, its light and its errors stay the engine's own. A noise of the recipe is added as
    readout noise, a share of the range. Masks are written once for a pass of
    ``engine.drive.reload_every_tok`` tokens, and the ledger charges a token its share.

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
            ModelError: The recipe asks for what the engine's converter cannot be given.
        """
        _check(name, recipe, engine.engine)
        self.name, self.recipe, self.tally = name, recipe, Tally()
        recipe = replace(recipe, tile_rows=engine.engine.spec.inputs)
        encoded = encode(weight, calibration=calibration, recipe=recipe)
        self._rotation, self._seed = encoded.rotation, seed
        self._pass_tok = engine.engine.drive.reload_every_tok
        tiles = len(encoded.grid.tile_starts) - 1
        adds = self._rotation.adds_per_tok if self._rotation else 0
        self.digital_ops_per_tok = adds + weight.shape[1] + 2 * len(weight) * tiles
        changes = _changes(recipe, encoded.grid, encoded.calibration)
        self._layer = engine.engine.replace(**changes).compile(
            np.ascontiguousarray(encoded.grid.weights),
            calibration=np.ascontiguousarray(encoded.calibration[:_SAMPLE_TOK]),
            layer=number,
        )

    def __call__(self, x: FloatArray, *, first_tok: int = 0) -> FloatArray:
        """Return the outputs, (tokens, outputs), of inputs, (tokens, inputs)."""
        x = np.ascontiguousarray(x)
        if self._rotation is not None:
            x = self._rotation(x)
        y, ledger = self._layer.run(x, seed=self._seed, first_tok=first_tok)
        self._count(ledger)
        return y

    def _count(self, ledger: RunLedger) -> None:
        """Add one run to the tally."""
        tally = self.tally
        tally.tokens += ledger.tokens
        tally.macs += ledger.macs
        tally.cycles += ledger.cycles
        tally.readings += ledger.adc_reads
        tally.clipped += round(ledger.adc_clip_frac * ledger.adc_reads)
        tally.digital_ops += ledger.tokens * self.digital_ops_per_tok
        share = min(1.0, ledger.tokens / self._pass_tok)
        for part, energy in ledger.energy_j_by_part.items():
            charged = energy * share if part.startswith("reload") else energy
            tally.energy_j[part] = tally.energy_j.get(part, 0.0) + charged


def _check(name: str, recipe: Recipe, engine: Engine) -> None:
    """Refuse what only converters alone can do."""
    if recipe.receiver not in ENGINE_RANGES:
        raise ModelError(
            f"layer {name}: receiver {recipe.receiver!r} is for converters alone; on an engine "
            f"these are allowed: {', '.join(ENGINE_RANGES)}"
        )
    if recipe.receiver != "engine" and engine.signed_encoding != _PAIRED:
        raise ModelError(
            f"layer {name}: receiver {recipe.receiver!r} with the encoding "
            f"{engine.signed_encoding!r}, which reads more than the signed sum; take 'engine'"
        )
    is_fitted = recipe.bias_calibration or recipe.gain_calibration
    if recipe.static_dac or is_fitted or (recipe.sigma_frac and not recipe.adc_bits):
        raise ModelError(
            f"layer {name}: static_dac, bias_calibration, gain_calibration and noise without a converter are for "
            "converters alone; an engine calibrates gain and bias of every column by itself"
        )


def _changes(recipe: Recipe, grid: Grid, calibration: FloatArray) -> dict[str, Any]:
    """Return the engine's parameters that carry out the recipe."""
    changes: dict[str, Any] = {
        "mask_bits": recipe.pixel_bits or recipe.mask_bits,
        "weight_bits": recipe.mask_bits,
        "weight_stream_bits": recipe.mask_bits,
        "activation_bits": recipe.dac_bits or None,
        "adc_bits": recipe.adc_bits or None,
        "tile_split": "even",
        "weight_scale": "column",
        "input_scale": "absmax",
    }
    if recipe.photons_per_mac:
        changes["photons_per_mac"] = recipe.photons_per_mac
    if recipe.receiver == "engine":
        return changes
    if 0 < recipe.pixel_bits < recipe.mask_bits:
        # Each slice of the weights has sums of its own size: the range follows their spread.
        return changes | {"adc_range_sigma": _SLICED_SIGMA * recipe.margin}
    match recipe.receiver:
        case "worst":
            half_range = float(max(np.diff(grid.tile_starts)))
        case "fixed-gain":
            half_range = recipe.tile_rows / recipe.gain_divisor
        case _:
            half_range = largest_sum(grid, calibration, bits=recipe.mask_bits) * recipe.margin
    changes["adc_range"] = half_range
    changes["readout_noise"] = recipe.sigma_frac * half_range
    return changes


def largest_sum(grid: Grid, inputs: FloatArray, *, bits: int) -> float:
    """Return the largest sum of any tile, in units of its largest input times its largest weight.

    Args:
        grid: Rounded weights.
        inputs: What the layer sees, (tokens, inputs).
        bits: Bits of a weight.
    """
    levels = np.float32(2 ** (bits - 1) - 1)
    top = 1e-6
    for start, end in zip(grid.tile_starts[:-1], grid.tile_starts[1:], strict=True):
        part = inputs[:, start:end]
        largest = np.abs(part).max(axis=1, keepdims=True)
        largest[largest == 0] = 1
        sums = (part / largest) @ (grid.codes[:, start:end] / levels).T
        top = max(top, float(np.abs(sums).max()))
    return top
