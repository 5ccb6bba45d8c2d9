"""Traffic: traces and presets, and the load that many seeded copies of them make.

`load` gives a `Trace` by name or file; `scale_lengths` moves its lengths; `superpose` turns it into
nested loads for the scheduler. `draw_sessions` gives requests that wait for one another. Names are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firstlight.workload.lengths import LengthLaw, ScaledTrace, cached_tok, scale_lengths
    from firstlight.workload.presets import PRESETS, SHIPPED, Preset, load, poisson_trace, preset
    from firstlight.workload.read import read_trace
    from firstlight.workload.sessions import SESSIONS, Sessions, draw_sessions
    from firstlight.workload.summary import Summary, count_cv, interarrival_cv, summarize
    from firstlight.workload.superposition import Fold, Requests, Superposed, copies_for, superpose
    from firstlight.workload.trace import Trace
    from firstlight.workload.write import write_trace

_HOMES = {
    "lengths": ("LengthLaw", "ScaledTrace", "cached_tok", "scale_lengths"),
    "presets": ("PRESETS", "SHIPPED", "Preset", "load", "poisson_trace", "preset"),
    "read": ("read_trace",),
    "sessions": ("SESSIONS", "Sessions", "draw_sessions"),
    "summary": ("Summary", "count_cv", "interarrival_cv", "summarize"),
    "superposition": ("Fold", "Requests", "Superposed", "copies_for", "superpose"),
    "trace": ("Trace",),
    "write": ("write_trace",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "PRESETS",
    "SESSIONS",
    "SHIPPED",
    "Fold",
    "LengthLaw",
    "Preset",
    "Requests",
    "ScaledTrace",
    "Sessions",
    "Summary",
    "Superposed",
    "Trace",
    "cached_tok",
    "copies_for",
    "count_cv",
    "draw_sessions",
    "interarrival_cv",
    "load",
    "poisson_trace",
    "preset",
    "read_trace",
    "scale_lengths",
    "summarize",
    "superpose",
    "write_trace",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 (whatever the name is)
    if name not in _HOME_OF:
        raise AttributeError(f"module 'firstlight.workload' has no attribute {name!r}")
    return getattr(import_module(f"firstlight.workload.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
