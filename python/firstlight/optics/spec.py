"""`EngineSpec`: every number that describes one kind of optical engine and the server around it.

Field names are those of the catalog's `engine` records. ``None`` means *ideal*: the effect is
switched off (no quantisation, no intensity noise, infinite contrast).
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

from firstlight import catalog
from firstlight.errors import ScenarioError, nearest, written


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """How signed numbers ride on light, which cannot be negative.

    Attributes:
        passes: Optical cycles a token and tile.
        conversions_per_output: Analog-to-digital conversions an output and cycle.
        is_input_offset: Inputs are shifted to be non-negative instead of using two rails.
        is_weight_offset: Weights are shifted to be non-negative instead of using mask pairs.
    """

    passes: int
    conversions_per_output: int
    is_input_offset: bool = False
    is_weight_offset: bool = False


ENCODINGS = {
    "four_quadrant_balanced": Encoding(passes=1, conversions_per_output=1),
    "two_pass_balanced": Encoding(passes=2, conversions_per_output=1),
    "two_pass_digital": Encoding(passes=2, conversions_per_output=2),
    "offset_input_balanced": Encoding(passes=1, conversions_per_output=1, is_input_offset=True),
    "offset_both": Encoding(
        passes=1, conversions_per_output=1, is_input_offset=True, is_weight_offset=True
    ),
    "offset_both_raw": Encoding(
        passes=1, conversions_per_output=1, is_input_offset=True, is_weight_offset=True
    ),
    "nonnegative": Encoding(passes=1, conversions_per_output=1),
    "nonnegative_digital": Encoding(passes=1, conversions_per_output=2),
}
"""Signed encodings by name; `raw` leaves the known light to the converter, so it needs more bits."""


def _count(low: int, high: int, *, unit: str = "1") -> Any:  # noqa: ANN401 (a dataclass field)
    return field(metadata={"kind": int, "low": low, "high": high, "unit": unit})


def _real(low: float, high: float, *, unit: str = "1") -> Any:  # noqa: ANN401
    return field(metadata={"kind": float, "low": low, "high": high, "unit": unit})


def _ideal(kind: type, low: float, high: float, *, unit: str) -> Any:  # noqa: ANN401
    return field(
        metadata={"kind": kind, "low": low, "high": high, "unit": unit, "may_be_ideal": True}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """One optical engine, the server that carries it, and the energies of its parts.

    An engine multiplies a vector of `inputs` signed numbers by a mask of `inputs` × `outputs`
    signed weights once an optical cycle, and keeps the mask until it is reloaded.

    Attributes:
        inputs: Signed inputs of one tile.
        outputs: Signed outputs of one tile.
        physical_rows: Rows of the physical mask (rails included).
        physical_cols: Columns of the physical mask (rails included).
        signed_encoding: A key of `ENCODINGS`.
        f_cycle_hz: Optical cycles a second [Hz].
        t_reload_s: Time to write one mask [s].
        double_buffer: Whether a mask is written while the other one computes.
        engines: Engines in one server.
        mask_bits: Bits of one signed mask weight; None is ideal.
        activation_bits: Bits of one input; None is ideal.
        adc_bits: Resolution of the converters [bit]; None is ideal.
        adc_enob: Effective number of bits of the converters; None is ideal.
        wavelength_m: Wavelength [m].
        laser_wall_plug_frac: Light out over electricity in.
        laser_rin_db_per_hz: Relative intensity noise [dB/Hz]; None is ideal.
        optics_transmission_frac: Share of the light that the lenses pass.
        quantum_efficiency_frac: Electrons a photon at the detector.
        mask_contrast_ratio: Brightest over darkest pixel; None is ideal.
        crosstalk_each_side_frac: Light that leaks to each neighbouring detector.
        rail_ratio_sigma: Spread of the ratio of the two rails' gains.
        source_gain_sigma: Spread of the sources' gains.
        column_gain_sigma: Spread of the columns' gains.
        weight_error_sigma_frac: Spread of a written weight, of full scale.
        receiver_noise_electrons: Noise of one detector reading [electron].
        receiver_bandwidth_over_f: Receiver bandwidth over `f_cycle_hz`; None is ideal.
        target_snr_db: Signal-to-noise ratio the laser is sized for [dB].
        dac_energy_j: One digital-to-analog conversion [J].
        driver_energy_j: One driver and symbol [J].
        tia_energy_j: One receiver amplifier and reading [J].
        adc_energy_j: One analog-to-digital conversion [J].
        link_energy_j_per_bit: Die-to-die links [J/bit].
        sram_energy_j_per_bit: SRAM, one bit read or written [J/bit].
        weight_memory_energy_j_per_bit: Memory that holds the weights [J/bit].
        accumulator_bits: Bits of one partial sum.
        accumulator_sram_bytes: Partial-sum memory of one engine [byte].
        pixel_write_energy_j: One pixel at a reload [J].
        dequant_energy_j: Scaling one output [J].
        control_overhead_frac: Clocking and control, over everything else in a cycle.
        host_power_w: Host of the server, always on [W].
        engine_static_power_w: Bias and clocks of one engine, always on [W].
        psu_factor: Power at the plug over power at the boards.
        attention_energy_j_per_mac: Digital part, one multiply-accumulate [J/MAC].
        attention_op_per_s_per_engine: Digital part beside one engine [op/s], two op a MAC.
        weight_stream_bits: Bits fetched a mask weight at a reload.
        link_out_bits: Bits of one output on the link.
        drivers_per_input: Drivers of one signed input (rails).
        pixels_per_weight: Pixels of one signed weight (quadrants).
        mask_efficiency_frac: Share of the light that an average mask passes.
        activation_sram_bytes: Activation memory of one engine [byte].
        weight_stream_bytes_per_s: Server memory to the masks, shared by the engines [byte/s].
        mask_response_poly: Transmission a·w² + b·w + c of a written weight, or None (linear).
        rail_leak: Share of one rail's light that appears on the other.
        detector_offset_sigma: Spread of the detectors' zero, of full scale.
        photons_per_mac: Detected photons a MAC, instead of sizing by `target_snr_db`.

    Raises:
        ScenarioError: When a value is of the wrong type, not finite or out of its range.
    """

    inputs: int = _count(16, 8192)
    outputs: int = _count(16, 8192)
    physical_rows: int = _count(16, 16384)
    physical_cols: int = _count(16, 16384)
    signed_encoding: str
    f_cycle_hz: float = _real(1e6, 2e10, unit="Hz")
    t_reload_s: float = _real(0.0, 0.017, unit="s")
    double_buffer: bool
    engines: int = _count(1, 1000)
    mask_bits: int | None = _ideal(int, 1, 15, unit="bit")
    activation_bits: int | None = _ideal(int, 1, 15, unit="bit")
    adc_bits: int | None = _ideal(int, 1, 16, unit="bit")
    adc_enob: float | None = _ideal(float, 1, 16, unit="bit")
    wavelength_m: float = _real(4e-7, 1.7e-6, unit="m")
    laser_wall_plug_frac: float = _real(0.01, 1)
    laser_rin_db_per_hz: float | None = _ideal(float, -170, -110, unit="dB/Hz")
    optics_transmission_frac: float = _real(0.01, 1)
    quantum_efficiency_frac: float = _real(0.1, 1)
    mask_contrast_ratio: float | None = _ideal(float, 2, 1e4, unit="1")
    crosstalk_each_side_frac: float = _real(0, 0.35)
    rail_ratio_sigma: float = _real(0, 0.1)
    source_gain_sigma: float = _real(0, 0.5)
    column_gain_sigma: float = _real(0, 0.1)
    weight_error_sigma_frac: float = _real(0, 0.1)
    receiver_noise_electrons: float = _real(0, 2e4, unit="electron")
    receiver_bandwidth_over_f: float | None = _ideal(float, 0.3, 2, unit="1")
    target_snr_db: float = _real(5, 60, unit="dB")
    dac_energy_j: float = _real(0, 3e-11, unit="J")
    driver_energy_j: float = _real(0, 3e-11, unit="J")
    tia_energy_j: float = _real(0, 5e-12, unit="J")
    adc_energy_j: float = _real(0, 2e-11, unit="J")
    link_energy_j_per_bit: float = _real(0, 1e-11, unit="J/bit")
    sram_energy_j_per_bit: float = _real(0, 1e-12, unit="J/bit")
    weight_memory_energy_j_per_bit: float = _real(0, 1e-10, unit="J/bit")
    accumulator_bits: int = _count(16, 48, unit="bit")
    accumulator_sram_bytes: int = _count(2**20, 2**32, unit="byte")
    pixel_write_energy_j: float = _real(0, 1e-10, unit="J")
    dequant_energy_j: float = _real(0, 1e-11, unit="J")
    control_overhead_frac: float = _real(0, 2)
    host_power_w: float = _real(0, 2000, unit="W")
    engine_static_power_w: float = _real(0, 500, unit="W")
    psu_factor: float = _real(1, 1.4)
    attention_energy_j_per_mac: float = _real(1e-14, 5e-12, unit="J/MAC")
    attention_op_per_s_per_engine: float = _real(1e12, 1e16, unit="op/s")
    weight_stream_bits: int = _count(1, 16, unit="bit")
    link_out_bits: int = _count(4, 24, unit="bit")
    drivers_per_input: int = _count(1, 4)
    pixels_per_weight: int = _count(1, 8)
    mask_efficiency_frac: float = _real(0.01, 1)
    activation_sram_bytes: int = _count(0, 2**33, unit="byte")
    weight_stream_bytes_per_s: float = _real(1e6, 1e14, unit="byte/s")
    mask_response_poly: tuple[float, float, float] | None = None
    rail_leak: float = field(
        default=0.0, metadata={"kind": float, "low": 0, "high": 0.5, "unit": "1"}
    )
    detector_offset_sigma: float = field(
        default=0.0, metadata={"kind": float, "low": 0, "high": 0.1, "unit": "1"}
    )
    photons_per_mac: float | None = field(
        default=None,
        metadata={"kind": float, "low": 1e-3, "high": 1e9, "unit": "1", "may_be_ideal": True},
    )

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            if item.metadata:
                checked = _checked(item.name, getattr(self, item.name), item.metadata)
                object.__setattr__(self, item.name, checked)
        if not isinstance(self.double_buffer, bool):
            raise ScenarioError(
                f"double_buffer: {written(self.double_buffer)} is not true or false"
            )
        if self.signed_encoding not in ENCODINGS:
            raise ScenarioError(
                f"signed_encoding: {written(self.signed_encoding)} is unknown; one of "
                f"{', '.join(ENCODINGS)}{nearest(str(self.signed_encoding), ENCODINGS)}"
            )
        if self.mask_response_poly is not None:
            object.__setattr__(self, "mask_response_poly", _checked_poly(self.mask_response_poly))

    @property
    def encoding(self) -> Encoding:
        """The signed encoding's facts."""
        return ENCODINGS[self.signed_encoding]

    @classmethod
    def preset(cls, preset_id: str, **overrides: Any) -> EngineSpec:  # noqa: ANN401
        """Read an engine of the catalog.

        Args:
            preset_id: A catalog id such as ``"iris-nova-optimistic"``.
            **overrides: Fields that differ from the catalog; ``None`` or ``"ideal"`` switches an
                effect off where that is meant.

        Raises:
            CatalogError: When the id is unknown.
            ScenarioError: When an override is unknown, or a value is out of its range.

        Examples:
            >>> EngineSpec.preset("iris-nova-optimistic", engines=8).engines
            8
        """
        record = catalog.get(preset_id, kind="engine")
        names = {item.name for item in dataclasses.fields(cls)}
        # A record also holds targets and cross-checks that describe no part of the engine.
        values = {name: fact.value for name, fact in record.facts.items() if name in names}
        return cls(**_known({**values, **overrides}))

    @staticmethod
    def preset_ids() -> tuple[str, ...]:
        """Return the ids that `preset` accepts."""
        return catalog.ids("engine")

    def replace(self, **changes: Any) -> EngineSpec:  # noqa: ANN401
        """Return a copy with some fields changed.

        Raises:
            ScenarioError: When a name is unknown or a value is out of its range.
        """
        return dataclasses.replace(self, **_known(changes))


def checked_count(name: str, value: object, *, low: int = 1, high: int | None = None) -> int:
    """Return `value` when it is a whole number from `low` to `high`.

    Raises:
        ScenarioError: When it is not.
    """
    whole = value if isinstance(value, int) and not isinstance(value, bool) else None
    if whole is not None and whole >= low and (high is None or whole <= high):
        return whole
    allowed = f"≥ {low}" if high is None else f"from {low} to {high}"
    raise ScenarioError(f"{name}: {value!r} is not allowed; a whole number {allowed}")


def _known(values: dict[str, Any]) -> dict[str, Any]:
    names = [item.name for item in dataclasses.fields(EngineSpec)]
    for name in values:
        if name not in names:
            raise ScenarioError(f"{name!r} is not a field of an engine{nearest(name, names)}")
    return values


def _checked(name: str, value: object, rule: Any) -> float | int | None:  # noqa: ANN401
    """Return `value` as the field's type, or say what is allowed."""
    low, high, unit = rule["low"], rule["high"], rule["unit"]
    allowed = f"allowed: {low:g} to {high:g}" + ("" if unit == "1" else f" {unit}")
    if value is None or value == "ideal":
        if rule.get("may_be_ideal"):
            return None
        raise ScenarioError(f"{name}: {written(value)} is not a number; {allowed}")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ScenarioError(f"{name}: {written(value)} is not a number; {allowed}")
    if not math.isfinite(value) or not low <= value <= high:
        raise ScenarioError(f"{name}: {written(value)} is out of range; {allowed}")
    if rule["kind"] is float:
        return float(value)
    if value != int(value):
        raise ScenarioError(f"{name}: {written(value)} is not a whole number; {allowed}")
    return int(value)


def _checked_poly(value: object) -> tuple[float, float, float]:
    what = "mask_response_poly: three finite numbers a, b, c of a·w² + b·w + c"
    if not isinstance(value, list | tuple) or len(value) != 3:
        raise ScenarioError(f"{what}, not {written(value)}")
    if any(isinstance(x, bool) or not isinstance(x, int | float) for x in value):
        raise ScenarioError(f"{what}, not {written(value)}")
    if not all(math.isfinite(x) for x in value):
        raise ScenarioError(f"{what}, not {written(value)}")
    return float(value[0]), float(value[1]), float(value[2])
