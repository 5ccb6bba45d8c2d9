"""What the roofline needs to know of a device, and which measured tables stand for it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from firstlight import catalog
from firstlight.errors import CatalogError, ModelError
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
        link_bytes_per_s: Bandwidth to the other accelerators, one direction [B/s]; 0 when unknown.
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
    "h100-pcie": "h100-sxm",
    "l40s": "rtx-4090",
    "gb200-nvl72": "b200",
    "b300": "b200",
    "gb300-nvl72": "b200",
    "mi300x": "h100-sxm",
    "mi325x": "h200-sxm",
    "mi355x": "b200",
    "gaudi3": "h100-sxm",
}
"""Device whose tables stand for each GPU. One that is not its own relative borrows the residuals
of the nearest architecture on its own datasheet peaks: an estimate, always marked."""

_PEAKS = (
    "dense_bf16_flop_per_s",
    "dense_fp8_flop_per_s",
    "dense_fp4_flop_per_s",
    "dense_int8_op_per_s",
)


@lru_cache(maxsize=64)
def device(name: str) -> Device:
    """Return the device called `name`.

    Raises:
        CatalogError: The id is unknown, a fact is missing, or no measured relative stands for it.
    """
    record = catalog.get(name, kind="device")
    if name not in RELATIVES:
        raise CatalogError(
            f"device {name!r}: no measured architecture resembles it, so its step times cannot be "
            f"estimated; allowed: {', '.join(RELATIVES)}"
        )
    return Device(
        id=name,
        peaks={key: record.value(key) for key in _PEAKS if key in record},
        mem_bytes=record.value("mem_bytes"),
        mem_bytes_per_s=record.value("mem_bytes_per_s"),
        tdp_w=record.value("tdp_w"),
        idle_w=record.value("idle_w"),
        link_bytes_per_s=record.value("link_bytes_per_s") if "link_bytes_per_s" in record else 0.0,
        tables=RELATIVES[name],
    )
