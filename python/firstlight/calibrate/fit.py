"""Least squares from simulated kernels, steps and tokens to measured times.

Where all requests are queued at the start, who is in which step does not depend on how long steps
take. So one simulation a run on kernels alone gives its steps and tokens once and for all, and

    time = kernel_factor · kernels + step_s · steps + sequence_s · tokens

is linear in what is fitted. The fit is of relative errors, and nothing may be negative.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from firstlight import models, roofline, schedule
from firstlight.calibrate.solve import check_covered, check_hold_out, held_out, relative
from firstlight.errors import FirstlightError, ModelError, TraceError
from firstlight.roofline.step import bare_step_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from firstlight.calibrate.runs import ServingRun
    from firstlight.steps import StepTable

PS_PER_S = 1e12
MOST_REQUESTS = 6000
"""More of the same requests say nothing new about a steady state."""
_UNKNOWNS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What a device with its serving stack takes beside what its kernels took in a loop.

    Attributes:
        device: Catalog id.
        kernel_factor: Time of kernels in service over their time in a loop.
        step_s: Time of a step beside its kernels [s].
        sequence_s: The same for each token that comes out [s].
        prompt_s: The same for each chunk of a prompt [s].
    """

    device: str
    kernel_factor: float
    step_s: float
    sequence_s: float
    prompt_s: float = 0.0

    def apply(self, bare: StepTable) -> StepTable:
        """Return calibrated times; energies stay as they are.

        Args:
            bare: Times of the kernels alone.
        """

        def scaled(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
            return np.round(values * self.kernel_factor).astype(np.uint64)

        steps = np.arange(len(bare.linear_ps)) > 0
        tokens = np.arange(len(bare.head_ps))
        step_ps, token_ps = self.step_s * PS_PER_S, self.sequence_s * PS_PER_S
        return replace(
            bare,
            linear_ps=scaled(bare.linear_ps) + np.round(steps * step_ps).astype(np.uint64),
            head_ps=scaled(bare.head_ps) + np.round(tokens * token_ps).astype(np.uint64),
            prefill_attn_floor_ps=round(
                bare.prefill_attn_floor_ps * self.kernel_factor + self.prompt_s * PS_PER_S
            ),
            prefill_attn_pair_fs=scaled(bare.prefill_attn_pair_fs),
            decode_attn_floor_ps=scaled(bare.decode_attn_floor_ps),
            decode_attn_ctx_ps=scaled(bare.decode_attn_ctx_ps),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A run beside what the calibration says of it.

    Attributes:
        run: The run.
        is_held_out: Whether it was kept out of the fit.
        output_tok_per_s: Predicted throughput [tok/s]; nan when the run is not covered.
        why_not: Why it is not covered, or "".
    """

    run: ServingRun
    is_held_out: bool
    output_tok_per_s: float
    why_not: str = ""

    @property
    def error_frac(self) -> float:
        """Predicted over measured, less one."""
        return self.output_tok_per_s / self.run.output_tok_per_s - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Calibrations by device, and every run judged.

    Attributes:
        calibrations: By device.
        judged: In the order of the file.
    """

    calibrations: dict[str, Calibration]
    judged: tuple[Judged, ...]

    def median_error_frac(self, device: str | None = None, *, is_held_out: bool) -> float:
        """Return the median size of the error; nan when there is no such run."""
        errors = [
            abs(one.error_frac)
            for one in self.judged
            if one.is_held_out == is_held_out
            and not one.why_not
            and device in (None, one.run.device)
        ]
        return float(np.median(errors)) if errors else float("nan")


@dataclass(frozen=True, slots=True)
class _Counted:
    kernels_s: float
    steps: int
    tokens: int


def fit(runs: Sequence[ServingRun], *, hold_out: int = 4) -> Fit:
    """Fit one calibration a device to runs of any models on it.

    Args:
        runs: Measured runs.
        hold_out: Each so-manieth covered run of a device is only judged; 0: all are fitted.

    Raises:
        TraceError: No row is covered, or a device has fewer than three runs to fit.
        ScenarioError: `hold_out` is 1 or negative, or scipy is not installed.
    """
    check_hold_out(hold_out)
    counted: dict[int, _Counted] = {}
    why_not: dict[int, str] = {}
    for at, run in enumerate(runs):
        try:
            counted[at] = _count(run)
        except FirstlightError as error:
            why_not[at] = str(error)
    check_covered(len(runs), {runs[at].row: why for at, why in why_not.items()})
    held: set[int] = set()
    calibrations: dict[str, Calibration] = {}
    for device in dict.fromkeys(runs[at].device for at in counted):
        rows = [at for at in counted if runs[at].device == device]
        apart = {rows[i] for i in held_out(len(rows), hold_out)}
        held |= apart
        fitted = [at for at in rows if at not in apart]
        calibrations[device] = _solve(device, [(runs[at], counted[at]) for at in fitted])
    judged = tuple(
        Judged(
            run=run,
            is_held_out=at in held,
            output_tok_per_s=float("nan")
            if at in why_not
            else _predicted(counted[at], calibrations[run.device]),
            why_not=why_not.get(at, ""),
        )
        for at, run in enumerate(runs)
    )
    return Fit(calibrations=calibrations, judged=judged)


def _count(run: ServingRun) -> _Counted:
    """Simulate a run on kernels alone."""
    shape = models.load(run.model)
    table = bare_step_table(
        shape,
        run.device,
        tp=run.tp,
        weights=run.weights,
        kv=run.kv,
        max_tok=run.token_budget,
        max_seqs=run.max_seqs,
    )
    blocks = roofline.kv_blocks(
        shape,
        run.device,
        tp=run.tp,
        weights=run.weights,
        kv=run.kv,
        block_tok=run.block_tok,
        max_tok=run.token_budget,
    )
    pool = schedule.Pool(
        name="run",
        role="mixed",
        replicas=1,
        table=table,
        token_budget=run.token_budget,
        max_seqs=run.max_seqs,
        kv_blocks=blocks,
    )
    none = np.zeros(min(run.requests, MOST_REQUESTS), np.uint32)
    outcome = schedule.run(
        schedule.Fleet(pools=(pool,), block_tok=run.block_tok),
        schedule.Arrivals(
            arrival_ps=none.astype(np.uint64),
            isl_tok=none + np.uint32(run.isl_tok),
            cached_tok=none,
            osl_tok=none + np.uint32(run.osl_tok),
        ),
    )
    total = outcome.total[0]
    if total["emitted_tok"] < len(none) * run.osl_tok:
        raise ModelError(f"a request of {run.isl_tok} + {run.osl_tok} tokens does not fit memory")
    return _Counted(outcome.end_ps / PS_PER_S, total["steps"], total["emitted_tok"])


def _solve(device: str, fitted: Sequence[tuple[ServingRun, _Counted]]) -> Calibration:
    if len(fitted) < _UNKNOWNS:
        raise TraceError(
            f"{device}: {len(fitted)} runs to fit; allowed: {_UNKNOWNS} or more, for as many numbers"
        )
    parts = np.array([(one.kernels_s, one.steps, one.tokens) for _, one in fitted])
    measured_s = np.array([one.tokens / run.output_tok_per_s for run, one in fitted])
    factor, step_s, sequence_s = (float(value) for value in relative(parts, measured_s))
    return Calibration(device=device, kernel_factor=factor, step_s=step_s, sequence_s=sequence_s)


def _predicted(one: _Counted, with_: Calibration) -> float:
    lasts_s = with_.kernel_factor * one.kernels_s + with_.step_s * one.steps
    return one.tokens / (lasts_s + with_.sequence_s * one.tokens)
