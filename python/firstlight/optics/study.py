"""What each effect does to a product: one at a time, all but one, and along a parameter."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from firstlight.errors import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from firstlight.optics.engine import Engine
    from firstlight.optics.run_ledger import RunLedger

    F32 = NDArray[np.float32]

EFFECTS: dict[str, dict[str, Any]] = {
    "input bits": {"activation_bits": None, "input_slice_bits": None},
    "weight bits": {"mask_bits": None, "weight_bits": None},
    "output converter": {"adc_bits": None, "adc_enob": None},
    "shot noise": {"shot_noise": False},
    "receiver noise": {"receiver_noise_electrons": 0.0, "readout_noise": 0.0},
    "laser noise": {"laser_rin_db_per_hz": None},
    "crosstalk": {"crosstalk_each_side_frac": 0.0, "crosstalk": None},
    "pixel error": {"weight_error_sigma_frac": 0.0, "stuck_pixel_frac": 0.0, "pixel_noise": None},
    "mask response": {"mask_response_poly": None, "mask_gamma": 1.0},
    "source gain": {
        "source_gain_sigma": 0.0, "dead_source_frac": 0.0, "source_compression": 0.0,
    },
    "column gain": {"column_gain_sigma": 0.0, "dead_detector_frac": 0.0, "saturation": None},
    "rail mismatch": {"rail_ratio_sigma": 0.0, "rail_leak": 0.0},
    "detector offset": {"detector_offset_sigma": 0.0},
    "previous symbol": {"inter_symbol": False},
}  # fmt: skip
"""Effect -> what switches it off."""

_NEEDS_LIGHT = ("shot noise", "receiver noise")


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorSource:
    """What one effect contributes.

    Attributes:
        effect: A key of `EFFECTS`.
        alone_snr_db: Ratio with only this effect on [dB]; inf when it changes nothing by itself.
        without_snr_db: Ratio with everything but this effect [dB].
    """

    effect: str
    alone_snr_db: float
    without_snr_db: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """One point of a sweep.

    Attributes:
        value: Value of the parameter.
        snr_db: Ratio of the exact product to the error [dB].
        ledger: What the run took.
    """

    value: Any
    snr_db: float
    ledger: RunLedger


def snr_db(y: F32, exact: NDArray[np.float64]) -> float:
    """Return the power of the exact product over that of the error [dB].

    Args:
        y: The product under test, (tokens, outputs).
        exact: The exact product, (tokens, outputs) float64.
    """
    error = float(np.square(y - exact).sum())
    signal = float(np.square(exact).sum())
    if error == 0.0:
        return math.inf
    return 10.0 * math.log10(signal / error) if signal > 0 else -math.inf


def exact_product(x: F32, w: F32) -> NDArray[np.float64]:
    """Return ``x @ w.T`` in float64, (tokens, outputs)."""
    return np.asarray(x.astype(np.float64) @ w.astype(np.float64).T)


def error_sources(
    engine: Engine, x: F32, w: F32, *, seed: int = 0, calibration: F32 | None = None
) -> tuple[ErrorSource, ...]:
    """Switch every effect on alone and off alone.

    Args:
        engine: The engine; effects it does not have are left out of the answer.
        x: Activations, (tokens, inputs) float32.
        w: Weights, (outputs, inputs) float32.
        seed: Seed of the noise.
        calibration: As for `Engine.compile`.
    """
    exact = exact_product(x, w)
    every_off = {name: value for off in EFFECTS.values() for name, value in off.items()}
    rows = []
    for effect, off in EFFECTS.items():
        on = {name: _parameter(engine, name) for name in off}
        if on == off or (effect in _NEEDS_LIGHT and engine.drive.is_light_unlimited):
            continue
        alone = engine.replace(**{**every_off, **on})
        if effect not in _NEEDS_LIGHT:
            alone = alone.replace(photons_per_mac=math.inf)
        ratios = []
        for other in (alone, engine.replace(**off)):
            y, _ = other.matmul(x, w, seed=seed, calibration=calibration)
            ratios.append(snr_db(y, exact))
        # Rounding of the float32 result itself.
        alone_db = math.inf if ratios[0] > 110.0 else ratios[0]
        rows.append(ErrorSource(effect=effect, alone_snr_db=alone_db, without_snr_db=ratios[1]))
    return tuple(rows)


def sweep(
    engine: Engine,
    x: F32,
    w: F32,
    *,
    name: str,
    values: Sequence[Any],
    seed: int = 0,
    calibration: F32 | None = None,
) -> tuple[SweepPoint, ...]:
    """Run one product for each value of a parameter.

    Raises:
        ScenarioError: When there is no value, or one is not allowed.
    """
    if not values:
        raise ScenarioError(f"sweep of {name}: no values; allowed: one or more")
    exact = exact_product(x, w)
    engines = [engine.replace(**{name: value}) for value in values]
    points = []
    for value, changed in zip(values, engines, strict=True):
        y, ledger = changed.matmul(x, w, seed=seed, calibration=calibration)
        points.append(SweepPoint(value=value, snr_db=snr_db(y, exact), ledger=ledger))
    return tuple(points)


def _parameter(engine: Engine, name: str) -> Any:  # noqa: ANN401  # any parameter
    names = {item.name for item in dataclasses.fields(engine.spec)}
    return getattr(engine.spec if name in names else engine.drive, name)
