"""The measured tables shipped with the package, read once and only when asked for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np

from firstlight.roofline.surface import Scatter, Surface

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = "calibration.npz"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """One measured table and the roofline its residuals refer to.

    Attributes:
        key: ``kernel/device/format``.
        grid: The residuals.
        flop_per_s: Dense peak the ideal was computed with [FLOP/s].
        bytes_per_s: Memory or link bandwidth the ideal was computed with [B/s].
        bits: Bits of a weight (or KV element) in the ideal.
        activation_bits: Bits of an activation in the ideal.
        source: Where the rows come from.
    """

    key: str
    grid: Surface | Scatter
    flop_per_s: float
    bytes_per_s: float
    bits: float
    activation_bits: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Calibration:
    """All measured tables.

    Attributes:
        tables: Table by key.
        scalars: Fitted numbers by group and key (power, mixing, stacks).
        errors: Rows of the residual-error table.
    """

    tables: Mapping[str, Table]
    scalars: Mapping[str, Any]
    errors: tuple[Mapping[str, Any], ...]

    def find(self, kernel: str, device: str, *formats: str) -> tuple[Table | None, str]:
        """Return the first table of `kernel` on `device` in the order of `formats`, and its format."""
        for name in formats:
            table = self.tables.get(f"{kernel}/{device}/{name}")
            if table is not None:
                return table, name
        return None, ""


@lru_cache(maxsize=1)
def calibration() -> Calibration:
    """Return the tables shipped with the package."""
    path = resources.files("firstlight.roofline") / "data" / FILE
    with resources.as_file(path) as file, np.load(file) as archive:
        index = json.loads(bytes(archive["index"]).decode())
        tables = {key: _table(key, entry, archive) for key, entry in index["tables"].items()}
    return Calibration(tables=tables, scalars=index["scalars"], errors=tuple(index["errors"]))


def _table(key: str, entry: Mapping[str, Any], archive: Mapping[str, Any]) -> Table:
    axes = tuple(np.array(axis, dtype=np.float64) for axis in entry["axes"])
    residual = archive[key].astype(np.float64)
    grid: Surface | Scatter = Surface(axes=axes, residual=residual)
    if entry["points"]:
        points = np.array(entry["points"], dtype=np.float64)
        grid = Scatter(points=points, axes=axes, residual=residual)
    return Table(
        key=key,
        grid=grid,
        flop_per_s=entry["flop_per_s"],
        bytes_per_s=entry["bytes_per_s"],
        bits=entry["bits"],
        activation_bits=entry["activation_bits"],
        source=entry["source"],
    )
