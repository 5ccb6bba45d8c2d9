"""Silicon: what a step costs on GPUs, from measured kernel tables.

`step_table` fills the scheduler's table, `kv_blocks` says how much context fits beside the
weights, `errors` lists how far the tables are from rows they have not seen. Nothing is read from
disk before the first call.
"""

from __future__ import annotations

from firstlight.roofline.memory import kv_blocks
from firstlight.roofline.precision import KV_BITS, PRECISIONS
from firstlight.roofline.score import TableError, error_table, errors
from firstlight.roofline.stack import STACKS
from firstlight.roofline.step import step_table

__all__ = [
    "KV_BITS",
    "PRECISIONS",
    "STACKS",
    "TableError",
    "error_table",
    "errors",
    "kv_blocks",
    "step_table",
]
