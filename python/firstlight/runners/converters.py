"""Linear layers through converters and a noisy receiver, without the optics around them.

This is the machine in whose terms accuracy studies speak: b-bit inputs and weights, exact sums
over K-tiles, Gaussian noise as a share of the receiver's full scale, an ADC. It runs at the speed
of NumPy's matrix product and is the second opinion on the photon-level emulator.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from firstlight import _core
from firstlight.errors import ModelError
from firstlight.runners.encoding import encode
from firstlight.runners.optical import Tally

if TYPE_CHECKING:
    from firstlight.runners.gptq import Grid
    from firstlight.runners.recipe import Recipe
    from firstlight.runners.weights import FloatArray

_DETECTOR_MARGIN = 1.2
"""A detector's own maximum over little text is less certain than the tile's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tile:
    """The inputs of one tile, its weights as shares of the largest, and its full scales."""

    columns: slice
    weights: FloatArray  # (inputs, outputs) in ±1
    scales: FloatArray  # (outputs,): largest weight
    full_scales: FloatArray | None  # (outputs,), or None for per-token or no converter


class ConverterLinear:
    """One linear layer behind converters.

    Attributes:
        name: The layer.
        recipe: How it was prepared.
        tally: What it has done so far.
        digital_ops_per_tok: Digital work around the light for one token.
    """

    def __init__(
        self, name: str, weight: FloatArray, *, calibration: FloatArray, recipe: Recipe, seed: int
    ) -> None:
        """Round, rotate and calibrate.

        Args:
            name: The layer; it names the noise with the seed.
            weight: (outputs, inputs).
            calibration: Inputs of the layer on some text, (tokens, inputs).
            recipe: The choices.
            seed: Names the noise.

        Raises:
            ModelError: The recipe cannot be carried out on this layer.
        """
        if recipe.photons_per_mac:
            raise ModelError(f"layer {name}: photons_per_mac needs an optical engine")
        self.name, self.recipe, self.tally = name, recipe, Tally()
        encoded = encode(weight, calibration=calibration, recipe=recipe)
        self._rotation, grid = encoded.rotation, encoded.grid
        is_fitted = recipe.bias_calibration or recipe.gain_calibration
        exact = calibration @ weight.T if is_fitted else None
        calibration = encoded.calibration
        self._static_scale = np.abs(calibration).max() if recipe.static_dac else None
        self._key = _noise_key(name, seed)
        self._tiles = self._calibrated(grid, calibration)
        adds = self._rotation.adds_per_tok if self._rotation else 0
        # A scale a token at the input, a scale and an addition a reading at the output.
        self.digital_ops_per_tok = adds + weight.shape[1] + 2 * len(weight) * len(self._tiles)
        self._bias: FloatArray | None = None
        if exact is not None:
            self._fit(self._through(calibration, first_tok=0), exact)
            self.tally = Tally()

    def __call__(self, x: FloatArray, *, first_tok: int = 0) -> FloatArray:
        """Return the outputs, (tokens, outputs), of inputs, (tokens, inputs)."""
        if self._rotation is not None:
            x = self._rotation(np.ascontiguousarray(x))
        out = self._through(x, first_tok=first_tok)
        return out if self._bias is None else out - self._bias

    def _fit(self, got: FloatArray, exact: FloatArray) -> None:
        """Choose gain and bias of every output so that ``got`` comes closest to ``exact``."""
        recipe = self.recipe
        if recipe.gain_calibration:
            # With a bias the gain is that of the deviations from the mean.
            around = got - got.mean(axis=0) if recipe.bias_calibration else got
            power = np.square(around).sum(axis=0)
            matched = (around * exact).sum(axis=0)
            gain = np.where(power > 0, matched / np.where(power > 0, power, 1), 1)
            gain = gain.astype(np.float32)
            self._tiles = [replace(tile, scales=tile.scales * gain) for tile in self._tiles]
            got = got * gain
        if recipe.bias_calibration:
            self._bias = (got - exact).mean(axis=0)
            self.digital_ops_per_tok += exact.shape[1]

    def _through(self, x: FloatArray, *, first_tok: int) -> FloatArray:
        """Send rotated inputs through the converters and count what was done."""
        recipe, tally = self.recipe, self.tally
        inputs, largest = self._encoded(x)
        outputs = len(self._tiles[0].scales)
        total = np.zeros((len(x), outputs), np.float32)
        levels = float(2 ** (recipe.adc_bits - 1) - 1) if recipe.adc_bits else None
        for index, tile in enumerate(self._tiles):
            sums = inputs[:, tile.columns] @ tile.weights
            if recipe.receiver != "ideal":
                clipped, signal, error = _core.readout(
                    sums, outputs, tile.full_scales, recipe.margin, levels, recipe.sigma_frac,
                    (self._key + index * 0x9E3779B97F4A7C15) & (2**64 - 1), first_tok,
                )  # fmt: skip
                # Auto-ranging reads twice: once to find the range.
                tally.readings += sums.size * (2 if recipe.receiver == "per-token" else 1)
                tally.clipped += clipped
                tally.signal += signal
                tally.error += error
            sums *= tile.scales
            total += sums
            tally.macs += len(x) * tile.weights.size
        total *= largest
        tally.tokens += len(x)
        tally.digital_ops += len(x) * self.digital_ops_per_tok
        return total

    def _encoded(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return inputs as shares of the largest, in DAC steps, and the largest, (tokens, 1)."""
        if self._static_scale is None:
            largest = np.abs(x).max(axis=1, keepdims=True)
            largest[largest == 0] = 1
        else:
            largest = np.full((len(x), 1), self._static_scale, np.float32)
        shares = x / largest
        if self.recipe.dac_bits:
            levels = np.float32(2 ** (self.recipe.dac_bits - 1) - 1)
            shares *= levels
            np.rint(shares, out=shares)
            if self._static_scale is not None:
                np.clip(shares, -levels, levels, out=shares)
            shares /= levels
        return shares, largest

    def _calibrated(self, grid: Grid, calibration: FloatArray) -> list[_Tile]:
        """Cut the rounded weights into tiles and choose each one's full scale."""
        levels = np.float32(2 ** (self.recipe.mask_bits - 1) - 1)
        inputs, _ = self._encoded(calibration)
        out = []
        for index, (start, end) in enumerate(itertools.pairwise(grid.tile_starts)):
            columns = slice(start, end)
            weights = np.ascontiguousarray((grid.codes[:, columns] / levels).T)
            out.append(
                _Tile(
                    columns=columns,
                    weights=weights,
                    scales=grid.scales[:, index] * levels,
                    full_scales=self._full_scales(inputs[:, columns] @ weights, inputs=end - start),
                )
            )
        return out

    def _full_scales(self, sums: FloatArray, *, inputs: int) -> FloatArray | None:
        """Choose the full scale of every output from sums seen in calibration."""
        recipe, outputs = self.recipe, sums.shape[1]
        sizes = np.abs(sums)
        match recipe.receiver:
            case "ideal" | "per-token":
                return None
            case "worst":
                chosen = np.full(outputs, float(inputs))
            case "fixed-gain":
                chosen = np.full(outputs, recipe.tile_rows / recipe.gain_divisor)
            case "tile-max":
                chosen = np.full(outputs, float(sizes.max()) * recipe.margin)
            case "detector-max":
                chosen = sizes.max(axis=0) * (recipe.margin * _DETECTOR_MARGIN)
            case "percentile":
                chosen = np.full(outputs, float(np.percentile(sizes, recipe.percentile)))
            case other:
                raise ModelError(f"layer {self.name}: receiver {other!r} needs an optical engine")
        scales: FloatArray = np.maximum(chosen, 1e-6).astype(np.float32)
        return scales


def _noise_key(name: str, seed: int) -> int:
    """Return the 64-bit number that names the noise of a layer."""
    from hashlib import blake2b

    digest = blake2b(f"{seed}:{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
