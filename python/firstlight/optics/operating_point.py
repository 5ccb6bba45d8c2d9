"""How much light to use: signal-to-noise ratio against laser power, and where it stops paying."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from firstlight.errors import ScenarioError
from firstlight.optics.energy import electrons_per_output, laser_j_per_cycle, light_over_signal_sq

if TYPE_CHECKING:
    from collections.abc import Sequence

    from firstlight.optics.engine import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatingPoint:
    """One choice of laser power. All ratios are for normally distributed operands.

    Attributes:
        snr_db: Signal over shot and receiver noise [dB].
        photons_per_mac: Detected photons (electrons) a MAC.
        laser_w: Laser at the wall plug while light computes [W].
        laser_j_per_mac: Laser at the wall plug [J/MAC].
        weight_snr_db: Signal over the rounding of the weights alone [dB]; inf when ideal.
        total_snr_db: Signal over all of these together [dB].
        gain_db: What the last doubling of the light added to `total_snr_db` [dB].
    """

    snr_db: float
    photons_per_mac: float
    laser_w: float
    laser_j_per_mac: float
    weight_snr_db: float
    total_snr_db: float
    gain_db: float


def point_for_snr(engine: Engine, snr_db: float) -> OperatingPoint:
    """Return the laser power that reaches a signal-to-noise ratio.

    Args:
        engine: The engine.
        snr_db: Ratio to reach [dB].

    Raises:
        ScenarioError: When the ratio is not a number from −20 to 90 dB.
    """
    if not -20.0 <= snr_db <= 90.0:
        raise ScenarioError(f"snr_db: {snr_db!r} is not allowed; -20 to 90 dB")
    spec = engine.spec.replace(photons_per_mac=None)
    electrons = electrons_per_output(spec, snr_db=snr_db)
    joules = laser_j_per_cycle(spec, snr_db=snr_db)
    weight_db = weight_snr_db(engine)
    total_db = _together(snr_db, weight_db)
    half_db = _together(snr_of_light(engine, electrons / 2.0), weight_db)
    return OperatingPoint(
        snr_db=snr_db,
        photons_per_mac=electrons / spec.inputs,
        laser_w=joules * spec.f_cycle_hz,
        laser_j_per_mac=joules / (spec.inputs * spec.outputs),
        weight_snr_db=weight_db,
        total_snr_db=total_db,
        gain_db=total_db - half_db,
    )


def point_for_laser(engine: Engine, laser_w: float) -> OperatingPoint:
    """Return what a laser power at the wall plug gives.

    Args:
        engine: The engine.
        laser_w: Laser of one engine at the wall plug [W].

    Raises:
        ScenarioError: When the power is not positive or outside −20 to 90 dB.
    """
    if not math.isfinite(laser_w) or laser_w <= 0:
        raise ScenarioError(f"laser_w: {laser_w!r} is not allowed; a positive power in W")
    spec = engine.spec
    # The laser's energy is proportional to the electrons an output collects.
    unit_j = laser_j_per_cycle(spec.replace(photons_per_mac=1.0)) / spec.inputs
    electrons = laser_w / spec.f_cycle_hz / unit_j
    return point_for_snr(engine, snr_of_light(engine, electrons))


def snr_of_light(engine: Engine, electrons: float) -> float:
    """Return (N/κ)² / (N + σ²) of `electrons` an output [dB]: the inverse of the sizing."""
    kappa_sq = light_over_signal_sq(engine.spec)
    noise = electrons + engine.spec.receiver_noise_electrons**2
    return 10.0 * math.log10(electrons * electrons / kappa_sq / noise)


def weight_snr_db(engine: Engine) -> float:
    """Return signal over the rounding of the weights for normal operands [dB].

    The step is the expected largest of `inputs` weights over the levels; rounding errors are
    uniform.
    """
    bits = engine.weight_bits
    if bits is None:
        return math.inf
    levels = 2 ** (bits - 1) - 1
    step = math.sqrt(_peak_sq(engine)) / levels
    return -10.0 * math.log10(step * step / 12.0)


def _peak_sq(engine: Engine) -> float:
    """Square of the largest of `inputs` normal magnitudes, from κ² of one offset operand."""
    spec = engine.spec.replace(signed_encoding="offset_input_balanced")
    return light_over_signal_sq(spec) / (2.0 / math.pi * spec.inputs)


def operating_points(engine: Engine, snr_db: Sequence[float]) -> tuple[OperatingPoint, ...]:
    """Return the operating points of several ratios: the curve of diminishing returns.

    Beyond about 33 dB more light buys almost nothing on a 4-bit mask (`gain_db`), whose rounding is
    near 17 dB, while the laser's power grows in proportion.
    """
    return tuple(point_for_snr(engine, ratio) for ratio in snr_db)


def _together(*ratios_db: float) -> float:
    noise = sum(10.0 ** (-ratio / 10.0) for ratio in ratios_db)
    return -10.0 * math.log10(noise)
