"""What is done to a layer's weights before they are written to a mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from firstlight.runners.gptq import Grid, gptq, round_to_nearest, tiles
from firstlight.runners.hadamard import Rotation, rotation

if TYPE_CHECKING:
    from firstlight.runners.recipe import Recipe
    from firstlight.runners.weights import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """A layer's weights as they will be written, and the inputs they expect.

    Attributes:
        rotation: What every input passes through first, or None.
        grid: Rounded weights.
        calibration: Calibration inputs, rotated, (tokens, inputs).
    """

    rotation: Rotation | None
    grid: Grid
    calibration: FloatArray


def encode(weight: FloatArray, *, calibration: FloatArray, recipe: Recipe) -> Encoded:
    """Rotate and round ``weight``, (outputs, inputs), as ``recipe`` says.

    Raises:
        ModelError: The recipe cannot be carried out on this layer.
    """
    turn: Rotation | None = None
    if recipe.rotation == "hadamard":
        turn = rotation(weight.shape[1])
        weight, calibration = turn(weight), turn(calibration)
    edges = tiles(weight.shape[1], recipe.tile_rows)
    if recipe.rounding == "gptq":
        grid = gptq(weight, inputs=calibration, bits=recipe.mask_bits, tile_starts=edges)
    else:
        grid = round_to_nearest(weight, bits=recipe.mask_bits, tile_starts=edges)
    return Encoded(rotation=turn, grid=grid, calibration=calibration)
