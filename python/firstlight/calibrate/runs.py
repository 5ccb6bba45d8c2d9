"""`ServingRun`: a measured run with all its requests queued at once, and the CSV it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from firstlight.calibrate.rows import Row, read_rows

if TYPE_CHECKING:
    from pathlib import Path

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
    optional = {name: f"a whole number; {default} without" for name, default in OPTIONAL.items()}
    return tuple(_run(row) for row in read_rows(path, needed=COLUMNS, optional=optional))


def _run(row: Row) -> ServingRun:
    return ServingRun(
        row=row.at,
        output_tok_per_s=row.positive("output_tok_per_s"),
        model=row.text("model"),
        device=row.text("device"),
        weights=row.text("weights"),
        kv=row.text("kv"),
        tp=row.whole("tp"),
        isl_tok=row.whole("isl_tok"),
        osl_tok=row.whole("osl_tok"),
        requests=row.whole("requests"),
        token_budget=row.whole("token_budget", default=OPTIONAL["token_budget"]),
        max_seqs=row.whole("max_seqs", default=OPTIONAL["max_seqs"]),
        block_tok=row.whole("block_tok", default=OPTIONAL["block_tok"]),
    )
