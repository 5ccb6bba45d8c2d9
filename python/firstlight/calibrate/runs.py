"""`ServingRun`: a measured run with all its requests queued at once, and the CSV it comes from."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from firstlight.errors import TraceError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

COLUMNS = {
    "model": "catalog id",
    "device": "catalog id",
    "tp": "devices in the tensor-parallel group",
    "weights": "format of the linear weights, such as bf16 or fp8",
    "kv": "format of the KV cache",
    "isl_tok": "prompt tokens of every request",
    "osl_tok": "tokens generated for every request",
    "requests": "requests, all queued at the start",
    "output_tok_per_s": "measured throughput [tok/s]",
}
"""What a file must have."""

OPTIONAL = {"token_budget": 8192, "max_seqs": 2048, "block_tok": 32}
"""What it may have, and what is taken without."""

MOST_ROWS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingRun:
    """A measured run.

    Attributes:
        row: Row of the file, from 2 on.
        model: Catalog id.
        device: Catalog id.
        tp: Devices in the group.
        weights: Format of the linear weights.
        kv: Format of the KV cache.
        isl_tok: Prompt of every request [tok].
        osl_tok: Answer of every request [tok].
        requests: Requests, all queued at the start.
        output_tok_per_s: Measured throughput [tok/s].
        token_budget: Most tokens in a step [tok].
        max_seqs: Most sequences at once.
        block_tok: Tokens in a KV block [tok].
    """

    row: int
    model: str
    device: str
    tp: int
    weights: str
    kv: str
    isl_tok: int
    osl_tok: int
    requests: int
    output_tok_per_s: float
    token_budget: int
    max_seqs: int
    block_tok: int


def read_runs(path: str | Path) -> tuple[ServingRun, ...]:
    """Return the runs of a CSV file, in its order.

    Raises:
        TraceError: The file cannot be read, lacks a column, or has a bad value; the message says
            where and what is allowed.
    """
    path = Path(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            names = tuple(reader.fieldnames or ())
            _check_names(path, names)
            runs = tuple(_run(path, at, row) for at, row in enumerate(reader, start=2))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise TraceError(f"{path}: {why or error}; allowed: a CSV file in UTF-8") from None
    if not 1 <= len(runs) <= MOST_ROWS:
        raise TraceError(f"{path}: {len(runs)} runs; allowed: 1 to {MOST_ROWS:,}")
    return runs


def _check_names(path: Path, names: tuple[str, ...]) -> None:
    known = (*COLUMNS, *OPTIONAL)
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise TraceError(
            f"{path}, row 1: no column {missing[0]!r} ({COLUMNS[missing[0]]}); needed: "
            f"{', '.join(COLUMNS)}{nearest(missing[0], names)}"
        )
    for name in names:
        if name not in known or names.count(name) > 1:
            raise TraceError(
                f"{path}, row 1: column {name!r} is not allowed; each once: {', '.join(known)}"
            )


def _run(path: Path, at: int, row: Mapping[str | None, str | None]) -> ServingRun:
    def text(name: str) -> str:
        value = row.get(name) or ""
        if not value.strip():
            raise TraceError(f"{path}, row {at}: {name} is empty; {COLUMNS.get(name, 'a number')}")
        return value.strip()

    def whole(name: str) -> int:
        if name in OPTIONAL and not (row.get(name) or "").strip():
            return OPTIONAL[name]
        value = text(name)
        if not (value.isascii() and value.isdigit() and 1 <= int(value) <= 10**9):
            raise TraceError(f"{path}, row {at}: {name} = {value!r}; a whole number, 1 to 10^9")
        return int(value)

    if None in row:
        raise TraceError(f"{path}, row {at}: more values than columns; {len(row) - 1} are allowed")
    rate = text("output_tok_per_s")
    try:
        rate_tok_per_s = float(rate)
    except ValueError:
        rate_tok_per_s = math.nan
    if not (math.isfinite(rate_tok_per_s) and rate_tok_per_s > 0):
        raise TraceError(f"{path}, row {at}: output_tok_per_s = {rate!r}; a number above 0")
    return ServingRun(
        row=at,
        output_tok_per_s=rate_tok_per_s,
        model=text("model"),
        device=text("device"),
        weights=text("weights"),
        kv=text("kv"),
        tp=whole("tp"),
        isl_tok=whole("isl_tok"),
        osl_tok=whole("osl_tok"),
        requests=whole("requests"),
        token_budget=whole("token_budget"),
        max_seqs=whole("max_seqs"),
        block_tok=whole("block_tok"),
    )
