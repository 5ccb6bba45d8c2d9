"""Optical engines: how long a pass takes, what it costs, and what it does to the numbers.

`EngineSpec` describes an engine; `step_table` gives the scheduler its time and energy; `Ledger` and
`layer_ledger` are the closed form of the energy, part by part. Names are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firstlight.optics.drive import Drive
    from firstlight.optics.energy import (
        Ledger,
        cycle_ledger,
        engine_op_per_j,
        layer_ledger,
        pass_ledger,
        reload_j_per_tile,
        snr_curve,
    )
    from firstlight.optics.engine import Engine, Layer
    from firstlight.optics.operating_point import OperatingPoint, operating_points
    from firstlight.optics.passes import (
        break_even_tok,
        chunk_bound_tok,
        pass_time_s,
        prompt_time_s,
        utilization,
    )
    from firstlight.optics.run_ledger import RunLedger
    from firstlight.optics.server import Explanation, ServerPower, explain, server_power
    from firstlight.optics.spec import ENCODINGS, Encoding, EngineSpec
    from firstlight.optics.table import AttentionUnit, PassCosts, digital_part, step_table
    from firstlight.optics.tiles import LinearLayer, LinearStack, linear_stack, tile_count

_HOMES = {
    "spec": ("ENCODINGS", "Encoding", "EngineSpec"),
    "tiles": ("LinearLayer", "LinearStack", "linear_stack", "tile_count"),
    "passes": (
        "break_even_tok",
        "chunk_bound_tok",
        "pass_time_s",
        "prompt_time_s",
        "utilization",
    ),
    "energy": (
        "Ledger",
        "cycle_ledger",
        "engine_op_per_j",
        "layer_ledger",
        "pass_ledger",
        "reload_j_per_tile",
        "snr_curve",
    ),
    "drive": ("Drive",),
    "engine": ("Engine", "Layer"),
    "operating_point": ("OperatingPoint", "operating_points"),
    "run_ledger": ("RunLedger",),
    "server": ("Explanation", "ServerPower", "explain", "server_power"),
    "table": ("AttentionUnit", "PassCosts", "digital_part", "step_table"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ENCODINGS",
    "AttentionUnit",
    "Drive",
    "Encoding",
    "Engine",
    "EngineSpec",
    "Explanation",
    "Layer",
    "Ledger",
    "LinearLayer",
    "LinearStack",
    "OperatingPoint",
    "PassCosts",
    "RunLedger",
    "ServerPower",
    "break_even_tok",
    "chunk_bound_tok",
    "cycle_ledger",
    "digital_part",
    "engine_op_per_j",
    "explain",
    "layer_ledger",
    "linear_stack",
    "operating_points",
    "pass_ledger",
    "pass_time_s",
    "prompt_time_s",
    "reload_j_per_tile",
    "server_power",
    "snr_curve",
    "step_table",
    "tile_count",
    "utilization",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 (whatever the name is)
    if name not in _HOME_OF:
        raise AttributeError(f"module 'firstlight.optics' has no attribute {name!r}")
    return getattr(import_module(f"firstlight.optics.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
