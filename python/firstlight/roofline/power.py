"""Board power while a kernel runs, from what share of arithmetic and bandwidth it uses.

``power = cap · min(1, floor + memory · u_m + compute · u_c^exponent)``, with u the achieved
share of the datasheet peak. The four numbers are fitted to board power that NVML reported during kernel
loops on H200 and B200; other devices take them as fractions of their own cap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from firstlight.roofline.calibration import calibration

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from firstlight.roofline.device import Device

    F64 = NDArray[np.float64]

MEASURED = ("h200-sxm", "b200")
_STAND_IN = {
    "b200": "b200",
    "gb200-nvl72": "b200",
    "b300": "b200",
    "gb300-nvl72": "b200",
    "mi355x": "b200",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerCurve:
    """Board power of one kernel family on one device.

    Attributes:
        cap_w: Board power limit [W].
        idle_w: Board power when idle [W].
        floor_frac: Power of a busy device that computes and moves nothing, of the cap.
        memory_frac: Added at full memory bandwidth, of the cap.
        compute_frac: Added at full dense peak, of the cap.
        exponent: Curvature of the arithmetic term.
    """

    cap_w: float
    idle_w: float
    floor_frac: float
    memory_frac: float
    compute_frac: float
    exponent: float

    def above_idle_w(self, compute_use: F64, memory_use: F64) -> F64:
        """Return power above idle [W] at the given shares of peak arithmetic and bandwidth."""
        share = (
            self.floor_frac
            + self.memory_frac * np.clip(memory_use, 0, 1)
            + self.compute_frac * np.clip(compute_use, 0, 1) ** self.exponent
        )
        return np.maximum(0.0, self.cap_w * np.minimum(1.0, share) - self.idle_w)


def power_curve(device: Device, kernel: str, form: str) -> PowerCurve:
    """Return the power curve of a kernel family on a device.

    Args:
        device: The device.
        kernel: ``gemm``, ``prefill_attention`` or ``decode_attention``.
        form: Format name of the kernel's table; the nearest fitted format is used.
    """
    fits = calibration().scalars["power"]
    stand_in = _STAND_IN.get(device.id, "h200-sxm")
    names = (form, form.replace("fp8", "fp8-block"), "bf16", "bf16-bf16")
    key = next(k for k in (f"{kernel}/{stand_in}/{name}" for name in names) if k in fits)
    floor, memory, compute, exponent = fits[key]
    return PowerCurve(
        cap_w=device.tdp_w,
        idle_w=device.idle_w,
        floor_frac=floor,
        memory_frac=memory,
        compute_frac=compute,
        exponent=exponent,
    )
