"""Model shapes and the operators they are made of: rows, columns, weights, FLOP and bytes.

Nothing here knows a device. `load` finds a shape, `operators` lists what one pass computes,
`ModelShape` counts parameters and KV bytes.
"""

from __future__ import annotations

from firstlight.models.operator import Operator, operators
from firstlight.models.shape import ModelShape, from_table, load

__all__ = ["ModelShape", "Operator", "from_table", "load", "operators"]
