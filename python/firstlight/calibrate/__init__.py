"""What measured runs say about a device and its serving stack: three numbers and their error.

```text
runs.csv ─► one simulation a run ─► kernels, steps, tokens ─► least squares ─► Calibration
                                        (a fourth of the runs is kept apart and only judged)
```
"""

from firstlight.calibrate.fit import Calibration, Fit, Judged, fit
from firstlight.calibrate.runs import COLUMNS, ServingRun, read_runs

__all__ = ["COLUMNS", "Calibration", "Fit", "Judged", "ServingRun", "fit", "read_runs"]
