"""Tokens in time: run requests over a fleet and say when each token came and what it cost.

The simulation itself is compiled (`firstlight._core.Engine`); this room checks, calls and wraps.

```text
Queued ─► Prefilling ─► Decoding ─► Done                                   a mixed pool
   ▲          │             │
   └──────────┴─ preempted ─┘
Queued ─► Prefilling ─► Handed ─► Pulling ─► Ready ─► Decoding ─► Done     prefill and decode pools
Queued ─► Loading ─► Loaded ─► Prefilling                        a prefix comes from a lower tier
```
"""

from firstlight.schedule.arrivals import Arrivals
from firstlight.schedule.compiled import (
    below_power,
    engine,
    gap_edges_ps,
    sglang_shares,
    shared_caps_w,
    speculation_shares,
)
from firstlight.schedule.fault import Fault, slower_table
from firstlight.schedule.fleet import (
    Cache,
    Disaggregation,
    Fleet,
    Governor,
    Pool,
    Routing,
    SGLang,
    Speculation,
    Tier,
)
from firstlight.schedule.outcome import NEVER, STATES, Limits, Outcome
from firstlight.schedule.report import power_w, request_table, write_table, write_timeline
from firstlight.schedule.run import EVENTS_A_CALL, loaded, run

__all__ = [
    "EVENTS_A_CALL",
    "NEVER",
    "STATES",
    "Arrivals",
    "Cache",
    "Disaggregation",
    "Fault",
    "Fleet",
    "Governor",
    "Limits",
    "Outcome",
    "Pool",
    "Routing",
    "SGLang",
    "Speculation",
    "Tier",
    "below_power",
    "engine",
    "gap_edges_ps",
    "loaded",
    "power_w",
    "request_table",
    "run",
    "sglang_shares",
    "shared_caps_w",
    "slower_table",
    "speculation_shares",
    "write_table",
    "write_timeline",
]
