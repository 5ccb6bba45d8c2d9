"""Serving software around the kernels: what a step costs beyond them.

A stack's numbers are fitted once, on measured serving rows that are not among those it is judged
by (docs/roofline.md lists both); `tools/fit_stacks.py` writes them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING

import numpy as np

from firstlight.errors import ModelError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from firstlight.roofline.device import Device

    F64 = NDArray[np.float64]

STACKS = ("vllm-2025", "splitwise-2023")
FILE = "stacks.json"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stack:
    """Overheads of one serving stack.

    Attributes:
        id: Name a caller gives.
        step_s: Time of a step beside its kernels [s].
        sequence_s: The same for each emitted token [s].
        overhead_power_frac: Board power during the overhead, of the cap.
        graph_bytes: Memory kept for captured graphs and the runtime, a device [B].
        source: Where the numbers come from.
        curves: Overhead by tokens in the step, (tokens, seconds) by ``device/tp``; empty when
            `step_s` and `sequence_s` say it all.
        curve_layers: Layers of the model the curves were measured with; 0 without curves.
    """

    id: str
    step_s: float
    sequence_s: float
    overhead_power_frac: float
    graph_bytes: float
    source: str
    curves: Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]] = field(default_factory=dict)
    curve_layers: int = 0

    def overhead_w(self, device: Device) -> float:
        """Return board power above idle during the overhead [W]."""
        return max(0.0, self.overhead_power_frac * device.tdp_w - device.idle_w)

    def step_overhead_s(self, tokens: F64, *, device: Device, tp: int, layers: int) -> F64:
        """Return what a step of `tokens` costs beside its kernels and emitted tokens [s].

        A curve of another device or group size stands in when there is none: the nearest group on
        the device whose tables stand for this one.

        Args:
            tokens: Tokens in the step.
            device: Where it runs.
            tp: Devices in the group.
            layers: Layers of the model; the curves count launches, which go with layers.
        """
        if not self.curves:
            return np.full_like(tokens, self.step_s)
        names = [name for name in self.curves if name.startswith(f"{device.tables}/")]
        key = min(names or list(self.curves), key=lambda name: abs(int(name.split("/")[1]) - tp))
        at, overhead_s = (np.array(values) for values in self.curves[key])
        scale = layers / self.curve_layers
        return np.asarray(scale * np.interp(np.log(tokens), np.log(at), overhead_s))


@lru_cache(maxsize=1)
def _shipped() -> dict[str, Stack]:
    text = (resources.files("firstlight.roofline") / "data" / FILE).read_text(encoding="utf-8")
    return {entry["id"]: Stack(**entry) for entry in json.loads(text)}


def stack(name: str) -> Stack:
    """Return the stack called `name`.

    Raises:
        ModelError: No such stack; the message lists those there are.
    """
    if name not in STACKS:
        raise ModelError(
            f"unknown serving stack {name!r}{nearest(name, STACKS)}; allowed: {', '.join(STACKS)}"
        )
    return _shipped()[name]
