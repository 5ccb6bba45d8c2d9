"""What the roofline needs to know of a device, and which measured tables stand for it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from firstlight.errors import CatalogError, ModelError, nearest
from firstlight.roofline.precision import PRECISIONS, Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Peaks of one accelerator.

    Attributes:
        id: Catalog id.
        peaks: Dense peak by fact name [FLOP/s].
        mem_bytes: Memory [B].
        mem_bytes_per_s: Memory bandwidth [B/s].
        tdp_w: Board power limit [W].
        idle_w: Board power when idle [W].
        link_bytes_per_s: Bandwidth to the other accelerators, one direction [B/s].
        tables: Device whose measured tables are used: itself, or the nearest relative.
    """

    id: str
    peaks: dict[str, float]
    mem_bytes: float
    mem_bytes_per_s: float
    tdp_w: float
    idle_w: float
    link_bytes_per_s: float
    tables: str

    @property
    def is_tabled(self) -> bool:
        """Whether the device has measured kernel tables of its own."""
        return self.tables == self.id

    def peak(self, precision: Precision) -> float:
        """Return the dense peak of a number format [FLOP/s].

        Raises:
            ModelError: The device has no such arithmetic; the message lists what it has.
        """
        found = self.peaks.get(precision.peak)
        if found is None:
            allowed = [p.id for p in PRECISIONS.values() if p.peak in self.peaks]
            raise ModelError(
                f"device {self.id!r} has no {precision.id} arithmetic; allowed: {', '.join(allowed)}"
            )
        return found


RELATIVES = {
    "a100-sxm": "a100-sxm",
    "h100-sxm": "h100-sxm",
    "h200-sxm": "h200-sxm",
    "b200": "b200",
    "rtx-4090": "rtx-4090",
    "rtx-pro-6000": "rtx-pro-6000",
    "a40": "a40",
    "h100-pcie": "h100-sxm",
    "h800-sxm": "h100-sxm",
    "gh200": "h100-sxm",
    "l40s": "rtx-4090",
    "gb200": "b200",
    "b300": "b200",
    "gb300": "b200",
    "mi300x": "h100-sxm",
    "mi325x": "h200-sxm",
    "mi355x": "b200",
}
"""Untabled devices borrow the residuals of the nearest architecture: an estimate, always marked."""

_T, _G = 1e12, 1e9
_FACTS: dict[str, tuple[float, ...]] = {
    "a100-sxm": (312, 0, 0, 624, 80, 2.039, 400, 60, 300),
    "h100-sxm": (989, 1979, 0, 1979, 80, 3.35, 700, 75, 450),
    "h200-sxm": (989, 1979, 0, 1979, 141, 4.8, 700, 80, 450),
    "b200": (2250, 4500, 9000, 4500, 180, 7.7, 1000, 140, 900),
    "rtx-4090": (165.2, 330.3, 0, 660.6, 24, 1.008, 450, 20, 32),
    "rtx-pro-6000": (468, 936, 1871, 936, 96, 1.792, 600, 30, 64),
    "a40": (149.7, 0, 0, 299.3, 48, 0.696, 300, 30, 32),
    "l40s": (362, 733, 0, 733, 48, 0.864, 350, 35, 32),
    "gb200": (2500, 5000, 10000, 5000, 186, 8.0, 1200, 160, 900),
    "mi300x": (1307, 2615, 0, 2615, 192, 5.3, 750, 140, 448),
}


@lru_cache(maxsize=64)
def device(name: str) -> Device:
    """Return the device called `name`.

    Raises:
        CatalogError: The id is unknown, or no measured relative stands for it.
    """
    if name not in _FACTS:
        raise CatalogError(
            f"unknown device {name!r}{nearest(name, _FACTS)}; allowed: {', '.join(_FACTS)}"
        )
    bf16, fp8, fp4, int8, mem, rate, tdp, idle, link = _FACTS[name]
    names = (
        "dense_bf16_flop_per_s",
        "dense_fp8_flop_per_s",
        "dense_fp4_flop_per_s",
        "dense_int8_op_per_s",
    )
    peaks = {key: v * _T for key, v in zip(names, (bf16, fp8, fp4, int8), strict=True) if v}
    return Device(
        id=name,
        peaks=peaks,
        mem_bytes=mem * _G,
        mem_bytes_per_s=rate * _T,
        tdp_w=tdp,
        idle_w=idle,
        link_bytes_per_s=link * _G,
        tables=RELATIVES[name],
    )
