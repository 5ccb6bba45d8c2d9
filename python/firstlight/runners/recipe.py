"""How a model is prepared for the light: steps that compose, each with its digital cost."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from firstlight.errors import ModelError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

RANGES = (
    "ideal", "worst", "tile-max", "detector-max", "fixed-gain", "per-token", "percentile", "engine"
)  # fmt: skip
"""Receiver range policies; what each means is in :class:`Recipe`."""

_MAY_BE_OFF = ("pixel_bits", "dac_bits", "adc_bits", "photons_per_mac")

ROTATIONS = ("none", "hadamard")
ROUNDINGS = ("nearest", "gptq")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """All choices between a float32 layer and an optical one.

    Sums are counted in units of the largest input times the largest weight, so that K inputs give
    at most K. Noise is a share of the converter's full scale, whatever the policy makes that.

    Attributes:
        mask_bits: Bits of a weight, sign included; one scale for every (K-tile, output).
        pixel_bits: Bits of an engine's pixel; fewer than ``mask_bits`` write a weight in slices on
            several masks. 0 is as many as needed.
        dac_bits: Bits of an input, sign included; one scale for every token, or 0 for float32.
        static_dac: One input scale for the layer, from calibration, instead of one a token.
        rotation: ``hadamard`` rotates the inputs online and the weights beforehand.
        rounding: ``gptq`` rounds weights for the layer's outputs on the calibration text.
        tile_rows: Inputs summed in one reading, at most (K).
        receiver: ``ideal`` no converter; ``worst`` the inputs of the tile, never clips; ``tile-max`` the
            largest sum seen in calibration, per layer and tile; ``detector-max`` likewise per
            output; ``fixed-gain`` K / ``gain_divisor`` for the whole machine; ``per-token`` the
            largest sum of each token (needs a second reading to find it); ``percentile`` a quantile
            of the sums' magnitude, offered because others use it: it clips what models need; ``engine``
            an optical engine's own range, some standard deviations of the sum, for the same reason.
        margin: Full scale over the largest sum, for the calibrated ranges.
        gain_divisor: See ``fixed-gain``.
        percentile: See ``percentile`` [%].
        adc_bits: Bits of the converter, sign included, or 0 for no steps.
        sigma_frac: Noise as a share of full scale.
        bias_calibration: Subtract every output's mean error on the calibration text.
        gain_calibration: Scale every output to the least squares of its error there; the factor
            joins the scale of the output and costs nothing.
        photons_per_mac: Light of an optical engine; 0 is the engine's own.
        keep_digital: Layers left in float32; patterns as in ``layers.*.down``.
        overrides: Pattern -> changed attributes of the layers it matches; later ones win.
    """

    mask_bits: int = 8
    pixel_bits: int = 0
    dac_bits: int = 8
    static_dac: bool = False
    rotation: str = "none"
    rounding: str = "nearest"
    tile_rows: int = 576
    receiver: str = "tile-max"
    margin: float = 1.0
    gain_divisor: float = 16.0
    percentile: float = 99.99
    adc_bits: int = 8
    sigma_frac: float = 0.0
    bias_calibration: bool = False
    gain_calibration: bool = False
    photons_per_mac: float = 0.0
    keep_digital: tuple[str, ...] = ()
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_choice("receiver", self.receiver, RANGES)
        _check_choice("rotation", self.rotation, ROTATIONS)
        _check_choice("rounding", self.rounding, ROUNDINGS)
        for name, low, high in (
            ("mask_bits", 2, 16), ("pixel_bits", 1, 16), ("dac_bits", 2, 16), ("adc_bits", 2, 20),
            ("tile_rows", 1, 1 << 20), ("margin", 1e-6, 1e6), ("gain_divisor", 1e-6, 1e9),
            ("percentile", 50, 100), ("sigma_frac", 0, 10), ("photons_per_mac", 1e-3, 1e9),
        ):  # fmt: skip
            value = getattr(self, name)
            off = name in _MAY_BE_OFF and value == 0
            if not off and not low <= value <= high:
                raise ModelError(f"recipe: {name} is {value}; {low} to {high} are allowed")

    def for_layer(self, name: str) -> Recipe | None:
        """Return the recipe of layer ``layers.N.KIND``, or None when it stays digital.

        Raises:
            ModelError: An override names an attribute that does not exist.
        """
        if any(matches(pattern, name) for pattern in self.keep_digital):
            return None
        recipe = self
        for pattern, changes in self.overrides.items():
            if matches(pattern, name):
                for key in changes:
                    _check_choice("override of", key, tuple(asdict(self)))
                recipe = replace(recipe, **changes)
        return recipe

    def warnings(self) -> list[str]:
        """Return what is known to go wrong with these choices."""
        notes = []
        if self.receiver == "percentile":
            notes.append(
                "a percentile range clips the few very large sums that language models rely on; "
                "with rotation it clips whole tokens: take tile-max"
            )
        if self.receiver == "worst" and self.adc_bits and self.adc_bits < 14:
            notes.append(
                f"full scale K leaves {self.adc_bits} bits almost no signal: sums use a hundredth "
                "of it"
            )
        if self.receiver == "engine":
            notes.append("an engine's own range is some standard deviations: it clips outliers")
        if self.static_dac:
            notes.append("one input scale for all tokens is set by the largest outlier")
        if self.rounding == "gptq" and self.rotation == "none":
            notes.append("GPTQ without rotation follows the outlier token, not the text")
        return notes


def matches(pattern: str, name: str) -> bool:
    """Tell whether a layer's name fits a pattern in which ``*`` stands for one part.

    A pattern without a dot is the kind of layer: ``down`` fits ``layers.7.down``.
    """
    if "." not in pattern:
        return name.rsplit(".", 1)[-1] == pattern
    expression = re.escape(pattern).replace(r"\*", r"[^.]+")
    return re.fullmatch(expression, name) is not None


def _check_choice(what: str, given: str, allowed: tuple[str, ...]) -> None:
    """Refuse a word that is not among those allowed."""
    if given not in allowed:
        raise ModelError(
            f"recipe: {what} {given!r}; allowed: {', '.join(allowed)}{nearest(given, allowed)}"
        )
