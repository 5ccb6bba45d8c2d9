"""What an optical product costs, by part: the closed form beside the emulator's counted ledger.

Boundary: the engine (laser, converters, links, SRAM, masks and the weights fetched for them).
Static host and bias power is charged over wall time by `firstlight.optics.server`.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from firstlight.errors import ScenarioError
from firstlight.optics.passes import slices
from firstlight.optics.spec import checked_count
from firstlight.units import LIGHT_SPEED_M_PER_S, PLANCK_J_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from firstlight.optics.spec import EngineSpec
    from firstlight.optics.tiles import LinearLayer, LinearStack

    F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What happened in a product, counted, and the joules it took. Ledgers add.

    Attributes:
        cycles: Optical cycles.
        reloads: Masks written.
        dac_writes: Inputs converted to analog (one serves all rails of an input).
        adc_reads: Outputs converted to digital.
        photons: Photons on the detectors of the outputs in use.
        laser_j: Laser at the wall plug [J].
        accumulator_j: Partial sums read and written [J].
        links_j: Inputs and outputs over the die-to-die links [J].
        dac_driver_j: Input converters and drivers [J].
        adc_tia_j: Output converters and amplifiers [J].
        sram_j: Inputs read from SRAM, outputs scaled [J].
        control_j: Clocking and control [J].
        reload_j: Weights fetched and pixels written [J].
    """

    cycles: float = 0.0
    reloads: float = 0.0
    dac_writes: float = 0.0
    adc_reads: float = 0.0
    photons: float = 0.0
    laser_j: float = 0.0
    accumulator_j: float = 0.0
    links_j: float = 0.0
    dac_driver_j: float = 0.0
    adc_tia_j: float = 0.0
    sram_j: float = 0.0
    control_j: float = 0.0
    reload_j: float = 0.0

    @property
    def energy_j_by_part(self) -> dict[str, float]:
        """Joules by part."""
        return {
            item.name[:-2]: getattr(self, item.name)
            for item in dataclasses.fields(self)
            if item.name.endswith("_j")
        }

    @property
    def energy_j(self) -> float:
        """All parts together [J]."""
        return sum(self.energy_j_by_part.values())

    def __add__(self, other: Ledger) -> Ledger:
        return Ledger(
            **{
                item.name: getattr(self, item.name) + getattr(other, item.name)
                for item in dataclasses.fields(self)
            }
        )

    def times(self, factor: float) -> Ledger:
        """Return the ledger of `factor` such products."""
        return Ledger(
            **{item.name: getattr(self, item.name) * factor for item in dataclasses.fields(self)}
        )


def photon_energy_j(spec: EngineSpec) -> float:
    """Return the energy of one photon, hc/λ [J]."""
    return PLANCK_J_S * LIGHT_SPEED_M_PER_S / spec.wavelength_m


def electrons_per_output(spec: EngineSpec, *, snr_db: float | None = None) -> float:
    """Return the electrons one output must collect in a cycle to reach the signal-to-noise ratio.

    For random signs the wanted sum is κ = Σ|x||w| / rms(y) times smaller than the light that carries
    it, while the shot noise is that of all the light. With a receiver noise σ:
    SNR = (N/κ)² / (N + σ²), solved for N. Intensity noise, contrast and converter noise are left
    out here; the emulator has them.

    Args:
        spec: The engine; its `photons_per_mac`, when set, wins over the ratio.
        snr_db: Ratio to reach instead of `target_snr_db` [dB].
    """
    if snr_db is None and spec.photons_per_mac is not None:
        return spec.photons_per_mac * spec.inputs
    ratio = math.pow(10.0, (spec.target_snr_db if snr_db is None else snr_db) / 10.0)
    shot = light_over_signal_sq(spec) * ratio
    thermal = spec.receiver_noise_electrons**2
    return (shot + math.sqrt(shot * shot + 4.0 * shot * thermal)) / 2.0


def light_over_signal_sq(spec: EngineSpec) -> float:
    """Return κ² for normally distributed operands: the square of the light over the signal.

    Two rails and mask pairs carry only magnitudes: κ² = (2/π)²·K. An offset operand carries its
    largest magnitude m for every element instead of its mean one √(2/π)·σ.
    """
    rails = 2.0 / math.pi
    crest = _peak_sq(spec.inputs)
    per_input = crest if spec.encoding.is_input_offset else rails
    per_weight = crest if spec.encoding.is_weight_offset else rails
    return per_input * per_weight * spec.inputs


def laser_j_per_cycle(spec: EngineSpec, *, snr_db: float | None = None) -> float:
    """Return the laser's wall-plug energy of one full cycle [J]."""
    # An offset weight leaves the average pixel half open.
    mask = 0.5 if spec.encoding.is_weight_offset else spec.mask_efficiency_frac
    efficiency = (
        spec.quantum_efficiency_frac
        * spec.optics_transmission_frac
        * mask
        * spec.laser_wall_plug_frac
    )
    electrons = electrons_per_output(spec, snr_db=snr_db)
    return spec.outputs * electrons * photon_energy_j(spec) / efficiency


def reload_j_per_tile(spec: EngineSpec) -> float:
    """Return the energy to fetch and write one full tile [J]."""
    weight = spec.weight_stream_bits * spec.weight_memory_energy_j_per_bit
    pixels = spec.pixels_per_weight * spec.pixel_write_energy_j
    return spec.inputs * spec.outputs * (weight + pixels)


def layer_ledger(
    tokens: float,
    *,
    k: int,
    n: int,
    spec: EngineSpec,
    weight_bits: int = 4,
    chunk_tok: int | None = None,
    snr_db: float | None = None,
) -> Ledger:
    """Return the ledger of `tokens` vectors through one k × n matrix.

    Only the inputs and outputs in use are converted; a mask is written whole; the first sum of an
    output is written without being read.

    Args:
        tokens: Vectors.
        k: Inputs of the matrix.
        n: Outputs of the matrix.
        spec: The engine.
        weight_bits: Bits of the weights.
        chunk_tok: Vectors that meet a tile before the next is loaded; None: all of them.
        snr_db: Ratio the laser is sized for, instead of the engine's [dB].

    Raises:
        ScenarioError: When a count is negative, zero where it cannot be, or not finite.
    """
    _check_counts(tokens, k=k, n=n, chunk_tok=chunk_tok)
    per_weight = slices(spec, weight_bits=weight_bits)
    k_tiles, n_tiles = -(-k // spec.inputs), -(-n // spec.outputs)
    sweeps = 0 if tokens == 0 else 1 if chunk_tok is None else math.ceil(tokens / chunk_tok)
    streaming = _streaming(k=k, n=n, spec=spec, per_weight=per_weight, snr_db=snr_db).times(tokens)
    tiles = k_tiles * n_tiles * per_weight
    return streaming + _reloading(k=k, n=n, spec=spec, per_weight=per_weight).times(
        sweeps if tiles else 0
    )


def _streaming(
    *, k: int, n: int, spec: EngineSpec, per_weight: int, snr_db: float | None
) -> Ledger:
    """One vector past all tiles of a k × n matrix."""
    k_tiles, n_tiles = -(-k // spec.inputs), -(-n // spec.outputs)
    sweeps = spec.encoding.passes * per_weight
    cycles = sweeps * k_tiles * n_tiles
    inputs = sweeps * n_tiles * k
    readings = sweeps * k_tiles * n
    reads = readings * spec.encoding.conversions_per_output
    activation_bits = spec.activation_bits or 0
    electrons = electrons_per_output(spec, snr_db=snr_db)
    parts = {
        # Unlit sources draw nothing; lenses spread the lit ones over every column.
        "laser_j": laser_j_per_cycle(spec, snr_db=snr_db) * inputs / spec.inputs,
        "accumulator_j": (2 * readings - n) * spec.accumulator_bits * spec.sram_energy_j_per_bit,
        "links_j": (inputs * activation_bits + reads * spec.link_out_bits)
        * spec.link_energy_j_per_bit,
        "dac_driver_j": inputs
        * (spec.dac_energy_j + spec.drivers_per_input * spec.driver_energy_j),
        "adc_tia_j": reads * (spec.adc_energy_j + spec.tia_energy_j),
        "sram_j": inputs * activation_bits * spec.sram_energy_j_per_bit
        + reads * spec.dequant_energy_j,
    }
    return Ledger(
        cycles=cycles,
        dac_writes=inputs,
        adc_reads=reads,
        photons=readings * (k / (k_tiles * spec.inputs)) * electrons / spec.quantum_efficiency_frac,
        control_j=spec.control_overhead_frac * sum(parts.values()),
        **parts,
    )


def _reloading(*, k: int, n: int, spec: EngineSpec, per_weight: int) -> Ledger:
    """One sweep of loads over all tiles of a k × n matrix."""
    tiles = -(-k // spec.inputs) * -(-n // spec.outputs) * per_weight
    fetched = per_weight * k * n * spec.weight_stream_bits * spec.weight_memory_energy_j_per_bit
    pixels = tiles * spec.inputs * spec.outputs * spec.pixels_per_weight
    return Ledger(reloads=tiles, reload_j=fetched + pixels * spec.pixel_write_energy_j)


def pass_ledger(
    stack: LinearStack, *, spec: EngineSpec, tokens: int, weight_bits: int = 4
) -> Ledger:
    """Return the ledger of one pass of `tokens` tokens through every linear layer.

    Every resident expert that is hit is loaded; a token streams past `top_k` of them.
    """
    _check_counts(tokens, k=1, n=1, chunk_tok=None)
    total = Ledger()
    for layer in stack.layers:
        streaming, reloading = _layer_parts(layer, spec=spec, weight_bits=weight_bits)
        hit = float(layer.experts_hit(np.asarray(float(tokens))))
        total = total + streaming.times(layer.count * layer.top_k * tokens)
        total = total + reloading.times(layer.count * hit)
    return total


def pass_energy_j(
    stack: LinearStack, *, spec: EngineSpec, tokens: F64, weight_bits: int = 4, is_reloaded: bool
) -> F64:
    """Return the engine energy of one pass for many pass sizes at once [J], shape of `tokens`."""
    total = np.zeros_like(tokens)
    for layer in stack.layers:
        streaming, reloading = _layer_parts(layer, spec=spec, weight_bits=weight_bits)
        total += layer.count * layer.top_k * streaming.energy_j * tokens
        if is_reloaded:
            total += layer.count * reloading.energy_j * layer.experts_hit(tokens)
    return total


def cycle_ledger(stack: LinearStack, *, spec: EngineSpec, snr_db: float | None = None) -> Ledger:
    """Return the mean ledger of one optical cycle of a model, reload excluded.

    Args:
        stack: The model; it decides how often a partial sum is only written.
        spec: The engine.
        snr_db: Ratio the laser is sized for, instead of the engine's [dB].

    Source:
        The budget of tests/physics/test_optical_energy.py: 78.83 nJ for Llama-3.1-8B on
        iris-nova-optimistic, 38 % of it laser.
    """
    total = Ledger()
    for layer in stack.layers:
        streaming = _streaming(k=layer.k, n=layer.n, spec=spec, per_weight=1, snr_db=snr_db)
        total = total + streaming.times(layer.count * layer.top_k)
    return total.times(1.0 / total.cycles)


def engine_op_per_j(
    stack: LinearStack, *, spec: EngineSpec, chunk_tok: int, snr_db: float | None = None
) -> float:
    """Return operations per joule at the engine, reload included, two operations a MAC [op/J].

    Args:
        stack: The model.
        spec: The engine.
        chunk_tok: Tokens that share one reload.
        snr_db: Ratio the laser is sized for, instead of the engine's [dB].
    """
    _check_counts(chunk_tok, k=1, n=1, chunk_tok=chunk_tok)
    operations, joules = 0.0, 0.0
    for layer in stack.layers:
        streaming = _streaming(k=layer.k, n=layer.n, spec=spec, per_weight=1, snr_db=snr_db)
        reloading = _reloading(k=layer.k, n=layer.n, spec=spec, per_weight=1)
        times = layer.count * layer.top_k
        operations += times * 2.0 * layer.k * layer.n
        joules += times * (streaming.energy_j + reloading.energy_j / chunk_tok)
    return operations / joules


def snr_curve(
    stack: LinearStack, *, spec: EngineSpec, chunk_tok: int, snr_db: tuple[float, ...]
) -> tuple[tuple[float, float], ...]:
    """Return (ratio [dB], operations per joule [op/J]) pairs: what precision costs.

    Above about 33 dB light dominates and each further decibel costs more than it can be worth on a
    4-bit mask, whose rounding alone is near 17 dB.
    """
    return tuple(
        (ratio, engine_op_per_j(stack, spec=spec, chunk_tok=chunk_tok, snr_db=ratio))
        for ratio in snr_db
    )


def _layer_parts(
    layer: LinearLayer, *, spec: EngineSpec, weight_bits: int
) -> tuple[Ledger, Ledger]:
    per_weight = slices(spec, weight_bits=weight_bits)
    return (
        _streaming(k=layer.k, n=layer.n, spec=spec, per_weight=per_weight, snr_db=None),
        _reloading(k=layer.k, n=layer.n, spec=spec, per_weight=per_weight),
    )


@cache
def _peak_sq(count: int) -> float:
    """Square of the largest of `count` standard normal magnitudes, averaged as noise sees it.

    Each vector is scaled by its own largest element m, so the signal's power is the mean of 1/m²:
    1 / E[1/m²] with E[1/m²] = ∫ 2/m³ · erf(m/√2)^count dm; the integrand is nil below m = 0.5.
    """
    step = 1e-3
    inside = sum(
        2.0 / m**3 * math.erf(m / math.sqrt(2.0)) ** count * step
        for m in (0.5 + step * (i + 0.5) for i in range(9500))
    )
    return 1.0 / (inside + 1.0 / 10.0**2)


def _check_counts(tokens: float, *, k: int, n: int, chunk_tok: int | None) -> None:
    if not math.isfinite(tokens) or tokens < 0:
        raise ScenarioError(f"tokens: {tokens!r} is not allowed; a finite count ≥ 0")
    checked_count("k", k)
    checked_count("n", n)
    if chunk_tok is not None:
        checked_count("chunk_tok", chunk_tok)
