"""Step tables from a profile of real kernels.

A profile is three CSV files (``.gz`` allowed), as LLMServingSim's profiler writes them:

| file | columns |
|---|---|
| dense | layer, tokens, time_us |
| per_sequence | layer (``lm_head``, ``sampler``), sequences, time_us |
| attention | prefill_chunk, kv_prefill, n_decode, kv_decode, time_us |

A layer's time is linear between measured points. Nothing is fitted to a serving run.
"""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from firstlight.errors import TraceError
from firstlight.steps.table import MixedAttention, StepTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

PS_PER_US = 10**6

ONCE = ("embedding", "final_layernorm")
"""Layers that run once a step; all others run once a transformer layer."""

TWICE = ("layernorm",)
"""Layers that run twice a transformer layer."""

AXES = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")


def read_profile(
    *,
    dense: str | Path,
    per_sequence: str | Path,
    attention: str | Path,
    num_layers: int,
    overhead_s: float = 0.0,
    skew_frac: float = 0.0,
    source: str = "profile",
) -> StepTable:
    """Make the step table of a profiled model on a profiled device.

    Args:
        dense: CSV of layers by tokens in the step.
        per_sequence: CSV of output head and sampler by sequences.
        attention: CSV of attention over four axes.
        num_layers: Transformer layers.
        overhead_s: Host time a step that is not hidden behind the device [s].
        skew_frac: How far the decode context that counts lies from the mean towards the longest.
        source: Where the profile comes from, for the provenance.

    Raises:
        TraceError: A file lacks a column or holds a value that is no number; the row is named.
    """
    layers = _curves(dense, by="tokens")
    heads = _curves(per_sequence, by="sequences")
    mixed = _attention(attention, num_layers=num_layers, skew_frac=skew_frac)
    max_tok, max_seqs = int(mixed.axes[0][-1]), int(mixed.axes[2][-1])
    tokens, seqs = np.arange(max_tok + 1), np.arange(max_seqs + 1)
    linear_us = np.full(max_tok + 1, overhead_s * 1e6)
    for name, curve in layers.items():
        times = 1 if name in ONCE else num_layers * (2 if name in TWICE else 1)
        linear_us += times * np.interp(tokens, *curve)
    head_us = np.zeros(max_seqs + 1)
    for curve in heads.values():
        head_us += np.interp(seqs, *curve)
    none_by_tok = np.zeros(max_tok + 1, np.uint64)
    none_by_seq = np.zeros(max_seqs + 1, np.uint64)
    return StepTable(
        linear_ps=_ps(linear_us),
        head_ps=_ps(head_us),
        prefill_attn_floor_ps=0,
        prefill_attn_pair_fs=none_by_tok,
        decode_attn_floor_ps=none_by_seq,
        decode_attn_ctx_ps=none_by_seq,
        mix_1024=0,
        linear_pj=none_by_tok,
        head_pj=none_by_seq,
        prefill_attn_pair_fj=none_by_tok,
        decode_attn_floor_pj=none_by_seq,
        decode_attn_ctx_pj=none_by_seq,
        mixed=mixed,
        provenance={"time": ("measured", source), "energy": ("missing", "no power in a profile")},
    )


def _ps(times_us: NDArray[np.float64]) -> NDArray[np.uint64]:
    table = np.rint(times_us * PS_PER_US).astype(np.uint64)
    table[0] = 0
    return table


def _rows(path: str | Path, *, columns: tuple[str, ...]) -> list[tuple[str, ...]]:
    raw = Path(path).read_bytes()
    text = (gzip.decompress(raw) if str(path).endswith(".gz") else raw).decode()
    reader = csv.DictReader(io.StringIO(text))
    missing = [name for name in columns if name not in (reader.fieldnames or ())]
    if missing:
        raise TraceError(
            f"{path}: no column {', '.join(missing)}; there are {', '.join(reader.fieldnames or ())}"
        )
    return [tuple(row[name] or "" for name in columns) for row in reader]


def _number(text: str, *, path: str | Path, row: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not value >= 0:
        raise TraceError(f"{path}: row {row}: {text!r} is not allowed; a number, 0 or more")
    return value


def _curves(
    path: str | Path, *, by: str
) -> Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    points: dict[str, dict[float, float]] = {}
    for row, (layer, at, time_us) in enumerate(_rows(path, columns=("layer", by, "time_us")), 2):
        curve = points.setdefault(layer, {})
        curve[_number(at, path=path, row=row)] = _number(time_us, path=path, row=row)
    if not points:
        raise TraceError(f"{path} has no rows; a layer at one point at least")
    return {
        layer: (np.array(sorted(curve)), np.array([curve[at] for at in sorted(curve)]))
        for layer, curve in points.items()
    }


def _attention(path: str | Path, *, num_layers: int, skew_frac: float) -> MixedAttention:
    values = np.array(
        [
            [_number(text, path=path, row=row) for text in texts]
            for row, texts in enumerate(_rows(path, columns=(*AXES, "time_us")), 2)
        ]
    )
    if not len(values):
        raise TraceError(f"{path} has no rows; a grid over {', '.join(AXES)}")
    axes = [np.union1d([0.0], values[:, axis]) for axis in range(4)]
    grid = np.full([len(points) for points in axes], np.nan)
    grid[tuple(np.searchsorted(axes[axis], values[:, axis]) for axis in range(4))] = values[:, 4]
    _complete(grid, axes)
    axis_tok = tuple(points.astype(np.uint64) for points in axes)
    return MixedAttention(
        axes=(axis_tok[0], axis_tok[1], axis_tok[2], axis_tok[3]),
        attn_ps=np.rint(grid * num_layers * PS_PER_US).astype(np.uint64),
        skew_frac=skew_frac,
    )


def _complete(grid: NDArray[np.float64], axes: list[NDArray[np.float64]]) -> None:
    """Give a meaning to the edges of the grid, and go on linearly where a corner was too large."""
    grid[0] = grid[0, :1]  # without a chunk its context does not matter
    grid[:, :, 0] = grid[:, :, 0, :1]  # nor does a decode context without sequences
    grid[0, :, 0] = 0.0
    nearest = grid[..., 1]  # sequences always have some context
    grid[..., 0] = np.where(np.isnan(grid[..., 0]), nearest, grid[..., 0])
    for axis in (0, 2, 1, 3):
        along = np.moveaxis(grid, axis, 0)
        points = axes[axis]
        for i in range(2, len(points)):
            slope = (along[i - 1] - along[i - 2]) / (points[i - 1] - points[i - 2])
            beyond = along[i - 1] + np.maximum(slope, 0) * (points[i] - points[i - 1])
            along[i] = np.where(np.isnan(along[i]), beyond, along[i])
    if np.isnan(grid).any():
        raise TraceError("the attention grid has holes; every combination up to its token limit")
