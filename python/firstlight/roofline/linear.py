"""Time and energy of everything in a step that depends on the number of tokens alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from firstlight.errors import CatalogError
from firstlight.models.operator import distinct_experts
from firstlight.roofline import ideal
from firstlight.roofline.calibration import Table, calibration
from firstlight.roofline.power import power_curve

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from firstlight.roofline.device import Device
    from firstlight.roofline.precision import Precision
    from firstlight.roofline.shard import Shard

    F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cost:
    """Time [s] and energy above idle [J] of one device at each number of tokens."""

    time_s: F64
    energy_j: F64
    status: str
    source: str

    def scaled(self, factor: float) -> Cost:
        """Return the cost of `factor` repetitions."""
        return Cost(
            time_s=self.time_s * factor,
            energy_j=self.energy_j * factor,
            status=self.status,
            source=self.source,
        )


_SUBSTITUTES = {
    "bf16": ("bf16",),
    "fp8": ("fp8", "fp8-block", "bf16"),
    "fp8-block": ("fp8-block", "fp8", "bf16"),
    "nvfp4": ("nvfp4", "fp8", "bf16"),
    "int8": ("int8", "fp8", "bf16"),
    "int8-weight": ("int8-weight", "bf16"),
    "int4-weight": ("int4-weight", "bf16"),
    "mxfp4": ("mxfp4", "nvfp4", "bf16"),
}
"""Formats whose residuals stand in when a device has no table of its own, best first."""


def find_table(kernel: str, device: Device, form: str) -> tuple[Table, bool]:
    """Return the table that stands for a kernel, and whether it is the device's own format."""
    table, found = calibration().find(kernel, device.tables, *_SUBSTITUTES[form])
    if table is None:
        table, found = calibration().find(kernel, "a100-sxm", *_SUBSTITUTES[form])
    if table is None:
        raise LookupError(kernel)
    own = table.key.split("/")[1] == device.id
    return table, own and found == form


def gemm(device: Device, precision: Precision, *, rows: int, cols: int, tokens: F64) -> Cost:
    """Return the cost of one (tokens, rows) × (rows, cols) product.

    Args:
        device: Where it runs.
        precision: Format of its weights.
        rows: Inputs K.
        cols: Outputs N.
        tokens: Values of m.
    """
    table, own = find_table("gemm", device, precision.table)
    peak, rate = _reference(table, device, device.peak(precision), own=own)
    roof = ideal.gemm_s(
        tokens,
        cols,
        rows,
        flop_per_s=peak,
        bytes_per_s=rate,
        weight_bits=precision.weight_bits if not own else table.bits,
        activation_bits=precision.activation_bits if not own else table.activation_bits,
    )
    time_s = roof * np.exp(table.grid.at(cols, rows).curve(tokens))
    flop = 2.0 * tokens * rows * cols
    moved = rows * cols * precision.weight_bits / 8 + 2.0 * tokens * (rows + cols)
    curve = power_curve(device, "gemm", precision.table)
    power_w = curve.above_idle_w(
        flop / time_s / device.peak(precision), moved / time_s / device.mem_bytes_per_s
    )
    return Cost(
        time_s=time_s,
        energy_j=power_w * time_s,
        status="measured" if own else "estimate",
        source=table.source if own else f"residuals of {table.key} on datasheet peaks",
    )


def _reference(table: Table, device: Device, peak: float, *, own: bool) -> tuple[float, float]:
    return (table.flop_per_s, table.bytes_per_s) if own else (peak, device.mem_bytes_per_s)


def experts(device: Device, precision: Precision, part: Shard, tokens: F64) -> Cost:
    """Return the cost of one layer's routed experts."""
    shape = part.shape
    table, own = find_table("experts", device, precision.expert_table)
    peak, rate = _reference(table, device, device.peak(precision), own=own)
    hit = _experts_hit(tokens, shape.moe_experts, shape.moe_topk)
    roof = ideal.experts_s(
        tokens,
        shape.hidden_size,
        part.expert_ffn,
        shape.moe_topk,
        experts_hit=hit,
        flop_per_s=peak,
        bytes_per_s=rate,
        weight_bits=table.bits if own else precision.weight_bits,
    )
    at = table.grid.at(shape.hidden_size, part.expert_ffn, shape.moe_topk, shape.moe_experts)
    time_s = roof * np.exp(at.curve(tokens))
    matrices = 3.0 * shape.hidden_size * part.expert_ffn
    curve = power_curve(device, "gemm", precision.table)
    power_w = curve.above_idle_w(
        2.0 * tokens * shape.moe_topk * matrices / time_s / device.peak(precision),
        hit * matrices * precision.weight_bits / 8 / time_s / device.mem_bytes_per_s,
    )
    return Cost(
        time_s=time_s,
        energy_j=power_w * time_s,
        status="measured" if own else "estimate",
        source=table.source if own else f"residuals of {table.key} on datasheet peaks",
    )


def _experts_hit(tokens: F64, count: int, topk: int) -> F64:
    knots = np.unique(np.geomspace(1, max(2.0, float(tokens.max())), 48).round())
    hit = [distinct_experts(float(t), experts=count, topk=topk) for t in knots]
    return np.interp(np.log(tokens), np.log(knots), hit)


def elementwise(device: Device, part: Shard, tokens: F64) -> Cost:
    """Return the cost of one layer's norms, rotary embedding and activation."""
    table, found = calibration().find("elementwise", device.tables, "bf16")
    own = found != "" and device.is_tabled
    if table is None:
        table, _ = calibration().find("elementwise", "h100-sxm", "bf16")
    if table is None:
        raise LookupError("elementwise")
    roof = ideal.elementwise_s(
        tokens,
        part.elementwise,
        4,
        bytes_per_s=table.bytes_per_s if own else device.mem_bytes_per_s,
    )
    time_s = roof * np.exp(table.grid.at(part.elementwise).curve(tokens))
    use = 2.0 * tokens * part.elementwise / time_s / device.mem_bytes_per_s
    power_w = power_curve(device, "gemm", "bf16").above_idle_w(0.0 * use, use)
    return Cost(
        time_s=time_s,
        energy_j=power_w * time_s,
        status="measured" if own else "estimate",
        source=table.source if own else f"residuals of {table.key} on datasheet bandwidth",
    )


def all_reduce(device: Device, part: Shard, tokens: F64) -> Cost:
    """Return the cost of one all-reduce of the residual stream."""
    if part.tp == 1:
        zero = np.zeros_like(tokens)
        return Cost(time_s=zero, energy_j=zero, status="measured", source="one device")
    if not device.link_bytes_per_s:
        raise CatalogError(
            f"device {device.id!r} has no link_bytes_per_s, so it cannot join a group of "
            f"{part.tp}; allowed: tp = 1"
        )
    table, found = calibration().find("all_reduce", device.tables, "bf16")
    own = found != "" and device.is_tabled
    elements = tokens * part.shape.hidden_size
    if table is None:
        # No collective was measured on cards without NVLink: the ring bound and a PCIe hop.
        time_s = _PCIE_LAUNCH_S * np.log2(part.tp) + ideal.all_reduce_s(
            elements, part.tp, link_bytes_per_s=device.link_bytes_per_s * _PCIE_USE
        )
        source = "ring bound on the datasheet link"
    else:
        link = table.bytes_per_s if own else device.link_bytes_per_s
        roof = ideal.all_reduce_s(elements, part.tp, link_bytes_per_s=link)
        time_s = roof * np.exp(table.grid.at(part.tp).curve(elements))
        source = table.source
    floor_w = power_curve(device, "gemm", "bf16").above_idle_w(0.0 * time_s, 0.0 * time_s)
    return Cost(
        time_s=time_s,
        energy_j=floor_w * time_s,
        status="measured" if own else "estimate",
        source=source,
    )


_PCIE_LAUNCH_S = 12e-6
_PCIE_USE = 0.7


@lru_cache(maxsize=64)
def knots(most: int) -> F64:
    """Return the token counts at which a step is worked out; between them it is linear.

    Every count to 128, then steps of at most 2 %: the tables themselves are a factor of two
    apart, so nothing measured is lost.
    """
    dense = np.arange(1, min(most, 128) + 1, dtype=np.float64)
    if most <= 128:
        return dense
    steps = int(np.log(most / 128) / np.log(1.02)) + 2
    return np.unique(np.concatenate([dense, np.geomspace(128, most, steps).round()]))


def linear_parts(
    device: Device, precision: Precision, plain: Precision, part: Shard, tokens: F64
) -> dict[str, Cost]:
    """Return the cost by part of one step over `tokens` tokens on one device.

    Args:
        device: Where it runs.
        precision: Format of the linear weights.
        plain: Format of the router, which is never quantised.
        part: The device's share of the model.
        tokens: Values of m.
    """
    found: dict[str, Cost] = {}
    for product in part.products:
        form = plain if product.is_router else precision
        cost = gemm(device, form, rows=product.rows, cols=product.cols, tokens=tokens)
        found[product.name] = cost.scaled(product.count)
    if part.shape.moe_layers:
        found["experts"] = experts(device, precision, part, tokens).scaled(part.shape.moe_layers)
    layers = part.shape.num_layers
    found["elementwise"] = elementwise(device, part, tokens).scaled(layers)
    found["all_reduce"] = all_reduce(device, part, tokens).scaled(2 * layers)
    return found
