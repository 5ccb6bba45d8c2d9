"""What measurements say about a device and its serving stack: a few numbers and their error.

```text
runs.csv    ─► one simulation a run ─► kernels, steps, tokens ─┐
profile.csv ─► one step of kernels a row ──────────────────────┼─► least squares ─► Calibration
steady.csv  ─► median and mean step a row ─────────────────────┘   (a fourth of the rows is kept
                                                                    apart and only judged)
```
"""

from firstlight.calibrate.fit import Calibration, Fit, Judged, fit
from firstlight.calibrate.profile import (
    JudgedStep,
    ProfileFit,
    ProfileStep,
    fit_steps,
    read_steps,
)
from firstlight.calibrate.runs import COLUMNS, ServingRun, read_runs
from firstlight.calibrate.steady import SteadyState, read_states
from firstlight.calibrate.steady_fit import JudgedState, PowerFit, SteadyFit, fit_states

__all__ = [
    "COLUMNS",
    "Calibration",
    "Fit",
    "Judged",
    "JudgedState",
    "JudgedStep",
    "PowerFit",
    "ProfileFit",
    "ProfileStep",
    "ServingRun",
    "SteadyFit",
    "SteadyState",
    "fit",
    "fit_states",
    "fit_steps",
    "read_runs",
    "read_states",
    "read_steps",
]
