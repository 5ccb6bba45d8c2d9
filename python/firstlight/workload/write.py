"""Writing request traces: whole or not at all."""

from __future__ import annotations

import gzip
import io
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from firstlight.errors import OutputError
from firstlight.workload.trace import PS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from firstlight.workload.trace import Trace

FORMATS = (".csv", ".jsonl", ".npz", ".csv.gz", ".jsonl.gz")
"""Suffixes that can be written."""


def write_trace(trace: Trace, *, path: str | Path) -> Path:
    """Write a trace; the suffix says how: own CSV, Mooncake JSONL (both also `.gz`) or packed `.npz`.

    CSV and packed keep picoseconds; JSONL holds milliseconds with their fraction.

    Args:
        trace: The trace.
        path: Where to; an existing file is replaced when the new one is complete.

    Returns:
        The path written.

    Raises:
        OutputError: When the suffix is unknown or the file cannot be written.
    """
    file = Path(path)
    name = file.name.lower()
    suffix = next((s for s in sorted(FORMATS, key=len, reverse=True) if name.endswith(s)), None)
    if suffix is None:
        raise OutputError(f"{path}: cannot tell the format; allowed: {', '.join(FORMATS)}")
    if suffix == ".npz":
        payload = _packed(trace)
    else:
        payload = (_csv(trace) if suffix.startswith(".csv") else _jsonl(trace)).encode()
        if suffix.endswith(".gz"):
            payload = gzip.compress(payload, mtime=0)
    partial = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        partial.write_bytes(payload)
        partial.replace(file)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from error
    return file


def _csv(trace: Trace) -> str:
    rows = zip(
        trace.arrival_ps().tolist(), trace.isl_tok.tolist(), trace.osl_tok.tolist(), strict=True
    )
    lines = [f"{_decimal(ps, places=12)},{isl},{osl}" for ps, isl, osl in rows]
    return "\n".join(["arrival_s,isl_tok,osl_tok", *lines, ""])


def _jsonl(trace: Trace) -> str:
    rows = zip(
        trace.arrival_ps().tolist(), trace.isl_tok.tolist(), trace.osl_tok.tolist(), strict=True
    )
    return "".join(
        json.dumps({"timestamp": _milliseconds(ps), "input_length": isl, "output_length": osl})
        + "\n"
        for ps, isl, osl in rows
    )


def _milliseconds(ps: int) -> int | float:
    whole, rest = divmod(ps, 10**9)
    return ps / 10**9 if rest else whole


def _decimal(value: int, *, places: int) -> str:
    """Write value · 10^−places without rounding or trailing zeros."""
    whole, rest = divmod(value, 10**places)
    fraction = f"{rest:0{places}d}".rstrip("0")
    return f"{whole}.{fraction}" if fraction else str(whole)


def _packed(trace: Trace) -> bytes:
    gaps = np.diff(trace.arrival_ps(), prepend=np.uint64(0))
    tick_ps = int(np.gcd.reduce(gaps)) or PS_PER_S
    out = io.BytesIO()
    np.savez_compressed(
        out,
        tick_ps=np.uint64(tick_ps),
        gap_ticks=_smallest(gaps // np.uint64(tick_ps)),
        isl_tok=_smallest(trace.isl_tok),
        osl_tok=_smallest(trace.osl_tok),
        duration_s=np.float64(trace.duration_s),
        source=np.str_(trace.source),
    )
    return out.getvalue()


def _smallest(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(np.min_scalar_type(int(values.max())))
