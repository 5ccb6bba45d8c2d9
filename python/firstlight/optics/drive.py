"""`Drive`: how an engine is used, beside what it is: scales, ranges, slices, which effects are on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from firstlight.errors import ScenarioError, nearest

EXTRA_ENCODINGS = ("offset_both_raw", "nonnegative", "nonnegative_digital")
"""Encodings the emulator knows beside those that the closed-form energy has."""

_CHOICES = {
    "tile_split": ("full", "even", "rounded"),
    "adc_range_per": ("column", "tile"),
    "adc_levels": ("full", "symmetric"),
    "clip_order": ("round_then_clip", "clip_then_round"),
    "rounding": ("nearest_even", "half_to_zero"),
    "rin_mode": ("common", "independent"),
    "variance": ("grouped", "exact"),
}
_SWITCHES = (
    "shot_noise", "adc_noise", "crosstalk_conserving", "inter_symbol", "is_light_unlimited",
)  # fmt: skip
_SAME_NAMES = (
    "input_slice_bits", "tile_split", "input_scale", "weight_scale", "adc_range_per", "adc_levels",
    "clip_order", "rounding", "shot_noise", "poisson_below", "readout_noise", "mask_gamma",
    "stuck_pixel_frac", "dead_source_frac", "dead_detector_frac", "source_compression",
    "crosstalk_conserving", "saturation", "reload_every_tok", "variance", "engine_seed",
)  # fmt: skip
_REALS = {
    "adc_range_sigma": (0.1, 1e3),
    "poisson_below": (0.0, 300.0),
    "readout_noise": (0.0, 1e6),
    "mask_gamma": (0.05, 20.0),
    "stuck_pixel_frac": (0.0, 1.0),
    "dead_source_frac": (0.0, 1.0),
    "dead_detector_frac": (0.0, 1.0),
    "source_compression": (-0.3, 0.3),
    "drift_frac_per_s": (0.0, 1e9),
}
_WHOLES = {
    "weight_bits": (2, 16),
    "input_slice_bits": (1, 14),
    "reload_every_tok": (1, 2**62),
    "engine_seed": (0, 2**64 - 1),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """How an engine is driven. The defaults are those of the hardware's users.

    Light is measured in units of one full-scale source through one fully open pixel.

    Attributes:
        weight_bits: Bits of a signed weight, sign included: 2^(b−1) − 1 magnitude levels. More
            magnitude bits than `mask_bits` take several masks (bit slices). None: as the mask.
        input_slice_bits: Magnitude bits of an input sent a cycle; None sends all at once.
        tile_split: ``full`` tiles then the rest, ``even`` tiles (first ones larger), ``rounded``
            mean width (last takes the rest).
        input_scale: ``"absmax"`` of each vector in each tile, or a fixed full scale that clips.
        weight_scale: What an open pixel stands for: the largest weight of the ``"column"`` in its
            tile, of the ``"tile"``, of the ``"matrix"``, or a number.
        adc_range: Half range of the converters in units of light; None sizes it by
            `adc_range_sigma`.
        adc_range_sigma: Half range over the expected standard deviation of the sum.
        adc_range_per: One range a ``"column"`` or a ``"tile"``.
        adc_levels: ``"full"``: 2^b codes from −2^(b−1); ``"symmetric"``: ±(2^(b−1) − 1).
        clip_order: ``"round_then_clip"`` or ``"clip_then_round"``, in both converters.
        rounding: Ties ``"nearest_even"`` or ``"half_to_zero"``, in both converters.
        electrons_full_scale: Electrons of one unit of light, instead of a budget by photons.
        is_light_unlimited: No light budget: no shot noise, receiver noise vanishes. Set by
            ``photons_per_mac=math.inf``.
        shot_noise: Whether light comes in photons.
        poisson_below: Light [electron] of a reading below which photons are drawn one by one.
        adc_noise: Whether a converter's ENOB below its bits adds noise.
        readout_noise: Additive noise of a reading [unit of light, rms].
        rin_mode: Laser noise ``"common"`` to all sources, or ``"independent"``.
        mask_gamma: Exponent of the transmission of a written weight.
        stuck_pixel_frac: Share of pixel pairs stuck at a random value.
        dead_source_frac: Share of sources that stay dark.
        dead_detector_frac: Share of detectors that stay dark.
        source_compression: Compression c of a source at full scale, v·(1 − c·v²).
        crosstalk: Light from the left and the right neighbour, instead of the device's symmetric
            figure.
        crosstalk_conserving: Whether what leaks is missing at its origin.
        saturation: Light at which one detector saturates; None is never.
        drift_frac_per_s: Loss of mask transmission [1/s] since the last reload.
        reload_every_tok: Tokens between reloads, for drift.
        inter_symbol: Whether part of the previous symbol stays in the receiver. It couples a token
            to the one before it; the token before a call is dark.
        pixel_noise: Noise every pixel draws anew at every vector: ``("proportional", s)`` of its
            value or ``("additive", s)`` of full scale; None is off.
        variance: Light of the shot noise summed over ``"grouped"`` inputs, or ``"exact"``.
        engine_seed: Which specimen: freezes every static error.
        encoding: One of `EXTRA_ENCODINGS`, instead of the device's; set by ``signed_encoding``.

    Raises:
        ScenarioError: When a value is not one of those.
    """

    weight_bits: int | None = None
    input_slice_bits: int | None = None
    tile_split: str = "full"
    input_scale: str | float = "absmax"
    weight_scale: str | float = "column"
    adc_range: float | None = None
    adc_range_sigma: float = 4.0
    adc_range_per: str = "column"
    adc_levels: str = "full"
    clip_order: str = "round_then_clip"
    rounding: str = "nearest_even"
    electrons_full_scale: float | None = None
    is_light_unlimited: bool = False
    shot_noise: bool = True
    poisson_below: float = 50.0
    adc_noise: bool = True
    readout_noise: float = 0.0
    rin_mode: str = "common"
    mask_gamma: float = 1.0
    stuck_pixel_frac: float = 0.0
    dead_source_frac: float = 0.0
    dead_detector_frac: float = 0.0
    source_compression: float = 0.0
    crosstalk: tuple[float, float] | None = None
    crosstalk_conserving: bool = False
    saturation: float | None = None
    drift_frac_per_s: float = 0.0
    reload_every_tok: int = 16_384
    inter_symbol: bool = False
    pixel_noise: tuple[str, float] | None = None
    variance: str = "grouped"
    engine_seed: int = 0
    encoding: str | None = None

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            _choice(name, getattr(self, name), allowed)
        for name in _SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise ScenarioError(f"{name}: {getattr(self, name)!r} is not True or False")
        for name, (low, high) in _REALS.items():
            _real(name, getattr(self, name), low, high)
        for name, (low, high) in _WHOLES.items():
            value = getattr(self, name)
            if value is not None or name in {"reload_every_tok", "engine_seed"}:
                _whole(name, value, low, high)
        for name in ("adc_range", "electrons_full_scale", "saturation"):
            if getattr(self, name) is not None:
                _real(name, getattr(self, name), 1e-9, 1e15 if "elec" in name else 1e9)
        _scale("input_scale", self.input_scale, ("absmax",))
        _scale("weight_scale", self.weight_scale, ("column", "tile", "matrix"))
        self._check_pairs()

    def _check_pairs(self) -> None:
        if self.encoding is not None:
            _choice("encoding", self.encoding, EXTRA_ENCODINGS)
        if self.crosstalk is not None:
            _pair("crosstalk", self.crosstalk)
            for side in self.crosstalk:
                _real("crosstalk", side, 0.0, 0.5)
        if self.pixel_noise is not None:
            _pair("pixel_noise", self.pixel_noise)
            _choice("pixel_noise", self.pixel_noise[0], ("proportional", "additive"))
            _real("pixel_noise", self.pixel_noise[1], 0.0, 1.0)

    def core_names(self) -> dict[str, Any]:
        """Return the parameters that the compiled core takes as they are."""
        names: dict[str, Any] = {name: getattr(self, name) for name in _SAME_NAMES}
        names["rin_common"] = self.rin_mode == "common"
        if self.adc_range is None:
            names["adc_range_sigma"] = self.adc_range_sigma
        else:
            names["adc_range"] = self.adc_range
        if self.pixel_noise is not None:
            names[f"pixel_noise_{self.pixel_noise[0]}"] = self.pixel_noise[1]
        return names


def _choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        near = nearest(str(value), allowed)
        raise ScenarioError(f"{name}: {value!r} is not allowed; {', '.join(allowed)}{near}")


def _real(name: str, value: object, low: float, high: float) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not low <= value <= high:  # type: ignore[arg-type,operator]
        raise ScenarioError(f"{name}: {value!r} is not allowed; {low:g} to {high:g}")


def _whole(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ScenarioError(f"{name}: {value!r} is not allowed; a whole number {low} to {high}")


def _scale(name: str, value: object, words: tuple[str, ...]) -> None:
    if isinstance(value, str):
        _choice(name, value, words)
    else:
        _real(name, value, 1e-30, 1e30)


def _pair(name: str, value: object) -> None:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise ScenarioError(f"{name}: {value!r} is not allowed; two values")
