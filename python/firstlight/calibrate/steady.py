"""`SteadyState`: a server held at one batch size until nothing changes, and the CSV it comes from."""

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
    "task": "any name: rows of one task have prompts of one mean length, which is fitted",
    "batch": "mean number of sequences at once",
    "osl_tok": "mean answer [tok]",
    "itl_s": "median time between tokens [s]",
    "output_tok_per_s": "tokens that came out a second [tok/s]",
    "board_w": "mean power of one device [W]",
}
"""What a file must have."""

OPTIONAL = {"ep": "devices that hold whole experts instead of a slice of each; 1 without"}
"""What it may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyState:
    """A measured steady state.

    Attributes:
        row: Row of the file, from 2 on.
        model: Catalog id.
        device: Catalog id.
        tp: Devices in the group.
        weights: Format of the linear weights.
        kv: Format of the KV cache.
        task: What was asked; prompts of a task have one mean length.
        batch: Mean sequences at once.
        osl_tok: Mean answer [tok].
        itl_s: Median time between tokens [s].
        output_tok_per_s: Throughput [tok/s].
        board_w: Mean power of one device [W].
        ep: Devices that hold whole experts instead of a slice of each; 1: none.
    """

    row: int
    model: str
    device: str
    tp: int
    weights: str
    kv: str
    task: str
    batch: int
    osl_tok: float
    itl_s: float
    output_tok_per_s: float
    board_w: float
    ep: int = 1

    @property
    def is_spread(self) -> bool:
        """Whether whole experts are spread over the devices, which step times do not have."""
        return self.ep > 1

    @property
    def step_s(self) -> float:
        """Mean time of a step, which brings every sequence a token [s]."""
        return self.batch / self.output_tok_per_s

    @property
    def j_per_tok(self) -> float:
        """Energy of all devices for each token that came out, prompts included [J/tok]."""
        return self.tp * self.board_w / self.output_tok_per_s


def read_states(path: str | Path) -> tuple[SteadyState, ...]:
    """Return the steady states of a CSV file, in its order.

    Raises:
        TraceError: The file cannot be read, lacks a column, or has a bad value; the message says
            where and what is allowed.
    """
    return tuple(_state(row) for row in read_rows(path, needed=COLUMNS, optional=OPTIONAL))


def _state(row: Row) -> SteadyState:
    osl_tok = row.positive("osl_tok")
    if osl_tok < 1:
        raise row.error(f"osl_tok = {osl_tok:g}; 1 or more")
    return SteadyState(
        row=row.at,
        model=row.text("model"),
        device=row.text("device"),
        tp=row.whole("tp"),
        weights=row.text("weights"),
        kv=row.text("kv"),
        task=row.text("task"),
        batch=row.whole("batch"),
        osl_tok=osl_tok,
        itl_s=row.positive("itl_s"),
        output_tok_per_s=row.positive("output_tok_per_s"),
        board_w=row.positive("board_w"),
        ep=row.whole("ep", default=1),
    )
