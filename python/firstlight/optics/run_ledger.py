"""`RunLedger`: what an emulated product took, from the counters of the run itself.

The counters are raised where the numbers are made (in Rust); this file multiplies them by the
energies of the engine's parts. `firstlight.optics.energy.layer_ledger` is the closed form of the same
quantities, and a test binds the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from firstlight.optics.energy import Ledger, photon_energy_j

if TYPE_CHECKING:
    from collections.abc import Mapping

    from firstlight.optics.engine import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLedger:
    """What one product took. Boundary of the energies: the engine.

    Attributes:
        counted: Cycles, reloads, conversions, photons and joules by part.
        tokens: Vectors.
        macs: Multiply-accumulates of the matrix product.
        dac_clip_frac: Share of inputs beyond full scale.
        adc_clip_frac: Share of readings beyond the last code.
        snr_db: Analog signal over random noise at the detectors [dB]; inf without noise.
        kappa: Σ|x||w| / rms(y) at the detectors: light over signal.
        photons_per_mac: Detected photons (electrons) a MAC, dark light not counted; inf when light
            is unlimited.
        utilization_frac: Share of the pixels' capacity that the product used.
        uneven_frac: Share of vectors whose light was summed input by input although groups were
            asked for.
    """

    counted: Ledger
    tokens: int
    macs: int
    dac_clip_frac: float
    adc_clip_frac: float
    snr_db: float
    kappa: float
    photons_per_mac: float
    utilization_frac: float
    uneven_frac: float

    @property
    def cycles(self) -> int:
        """Optical cycles."""
        return int(self.counted.cycles)

    @property
    def reloads(self) -> int:
        """Masks written."""
        return int(self.counted.reloads)

    @property
    def dac_writes(self) -> int:
        """Inputs converted to light."""
        return int(self.counted.dac_writes)

    @property
    def adc_reads(self) -> int:
        """Readings converted to numbers."""
        return int(self.counted.adc_reads)

    @property
    def photons(self) -> float:
        """Photons on the detectors."""
        return self.counted.photons

    @property
    def energy_j_by_part(self) -> dict[str, float]:
        """Joules by part [J]."""
        return self.counted.energy_j_by_part

    @property
    def energy_j(self) -> float:
        """All parts together [J]."""
        return self.counted.energy_j

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers under the attributes' names; what is infinite is None."""
        plain: dict[str, Any] = {
            "tokens": self.tokens,
            "macs": self.macs,
            "cycles": self.cycles,
            "reloads": self.reloads,
            "dac_writes": self.dac_writes,
            "adc_reads": self.adc_reads,
            "photons": self.photons,
            "photons_per_mac": self.photons_per_mac,
            "dac_clip_frac": self.dac_clip_frac,
            "adc_clip_frac": self.adc_clip_frac,
            "snr_db": self.snr_db,
            "kappa": self.kappa,
            "utilization_frac": self.utilization_frac,
            "uneven_frac": self.uneven_frac,
            "energy_j": self.energy_j,
            "energy_j_per_mac": self.energy_j / self.macs if self.macs else 0.0,
            "energy_j_by_part": self.energy_j_by_part,
            "boundary": "engine",
        }
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in plain.items()
        }


def run_ledger(
    counts: Mapping[str, Any], *, engine: Engine, facts: Mapping[str, Any], tokens: int
) -> RunLedger:
    """Return the ledger of one run.

    Args:
        counts: Counters of the core.
        engine: The engine.
        facts: What was compiled.
        tokens: Vectors.
    """
    spec = engine.spec
    macs = tokens * facts["inputs"] * facts["outputs"]
    electrons = facts["electrons_full_scale"]
    reads = counts["adc_reads"]
    signal_sq, noise_sq = counts["signal_sq"], counts["noise_sq"]
    carried = counts["carrying"]
    room = counts["cycles"] * spec.inputs * spec.outputs
    used = macs * facts["cycles_per_tile"]
    vectors = tokens * facts["k_tiles"] * facts["n_tiles"] * facts["readings"]
    snr_db = math.inf
    if noise_sq > 0:
        snr_db = 10.0 * math.log10(signal_sq / noise_sq) if signal_sq > 0 else -math.inf
    return RunLedger(
        counted=_counted(counts, engine=engine, facts=facts, tokens=tokens),
        tokens=tokens,
        macs=macs,
        dac_clip_frac=_share(counts["dac_clips"], counts["dac_values"]),
        adc_clip_frac=_share(counts["adc_clips"], reads),
        snr_db=snr_db,
        kappa=carried / math.sqrt(reads * signal_sq) if signal_sq > 0 and carried > 0 else 0.0,
        photons_per_mac=_photons_per_mac(carried, electrons, macs=macs, engine=engine),
        utilization_frac=_share(used, room),
        uneven_frac=_share(counts["uneven_vectors"], vectors),
    )


def _counted(
    counts: Mapping[str, Any], *, engine: Engine, facts: Mapping[str, Any], tokens: int
) -> Ledger:
    """Counts times the energies of the parts."""
    spec = engine.spec
    activation_bits = spec.activation_bits or 0
    electrons = facts["electrons_full_scale"]
    is_lit = math.isfinite(electrons)
    writes, reads = counts["dac_writes"], counts["adc_reads"]
    # Every source is spread over all columns of the mask, and over both rails of a pair.
    rails = 1 if engine.signed_encoding.startswith("offset_both") else 2
    efficiency = (
        spec.quantum_efficiency_frac * spec.optics_transmission_frac * spec.laser_wall_plug_frac
    )
    sent = counts["sent"] * rails * spec.outputs * electrons if is_lit else 0.0
    sums = 2 * counts["accumulations"] - tokens * facts["outputs"]
    parts = {
        "laser_j": sent * photon_energy_j(spec) / efficiency,
        "accumulator_j": sums * spec.accumulator_bits * spec.sram_energy_j_per_bit,
        "links_j": (writes * activation_bits + reads * spec.link_out_bits)
        * spec.link_energy_j_per_bit,
        "dac_driver_j": writes
        * (spec.dac_energy_j + spec.drivers_per_input * spec.driver_energy_j),
        "adc_tia_j": reads * (spec.adc_energy_j + spec.tia_energy_j),
        "sram_j": writes * activation_bits * spec.sram_energy_j_per_bit
        + reads * spec.dequant_energy_j,
    }
    fetched = facts["inputs"] * facts["outputs"] * facts["masks_per_tile"] if tokens else 0
    pixels = counts["reloads"] * spec.inputs * spec.outputs * spec.pixels_per_weight
    light = counts["light"] * electrons if is_lit else 0.0
    return Ledger(
        cycles=counts["cycles"],
        reloads=counts["reloads"],
        dac_writes=writes,
        adc_reads=reads,
        photons=light / spec.quantum_efficiency_frac,
        control_j=spec.control_overhead_frac * sum(parts.values()),
        reload_j=fetched * spec.weight_stream_bits * spec.weight_memory_energy_j_per_bit
        + pixels * spec.pixel_write_energy_j,
        **parts,
    )


def _photons_per_mac(carried: float, electrons: float, *, macs: int, engine: Engine) -> float:
    if math.isfinite(electrons):
        return carried * electrons / macs if macs else 0.0
    # A budget that no pixel lets pass is no light, not unlimited light.
    return math.inf if engine.drive.is_light_unlimited else 0.0


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
