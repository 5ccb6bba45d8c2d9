"""One calibration a device and one prompt length a task, from steady states of any models.

Times: `kernel_factor · kernels + step_s + sequence_s · batch + prompt_s · prompts`, to the median time
between tokens and to the mean time of a step at once. Power above idle, of one device:

    watts = overhead_w · (share of overhead) + busy_w + (energy_factor · kernels + param_j · weights used) / step

Nothing may be negative, and errors count by their size, not their square: some runs went wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from firstlight.calibrate.fit import Calibration
from firstlight.calibrate.solve import check_covered, check_hold_out, held_out, relative
from firstlight.calibrate.steady_step import SteadyStep, steady_step
from firstlight.errors import FirstlightError, TraceError
from firstlight.roofline.device import device as find_device

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from firstlight.calibrate.steady import SteadyState

PROMPTS_TOK = (25, 50, 100, 150, 200, 250, 300, 400, 500, 600, 800, 1000, 1200, 1400, 1700, 2000)
"""Mean prompts that are tried."""
_UNKNOWNS = 4
_ROUNDS = 2

QUANTITIES = ("itl", "board_w", "j_per_tok")
"""What is judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerFit:
    """What a device draws above idle.

    Attributes:
        energy_factor: Energy of kernels in service over their energy in a loop.
        overhead_w: Power while no kernel runs, beside `busy_w` [W].
        busy_w: Power whenever a step runs [W].
        param_j: Energy for each weight that a token uses [J].
    """

    energy_factor: float
    overhead_w: float
    busy_w: float
    param_j: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedState:
    """A steady state beside what the calibration says of it.

    Attributes:
        state: The state.
        is_held_out: Whether it was kept out of the fit.
        itl_s: Predicted median time between tokens [s]; nan when it is not covered.
        board_w: Predicted mean power of one device [W].
        j_per_tok: Predicted energy of all devices a token [J/tok].
        why_not: Why it is not covered, or "".
    """

    state: SteadyState
    is_held_out: bool
    itl_s: float
    board_w: float
    j_per_tok: float
    why_not: str = ""

    def error_frac(self, quantity: str) -> float:
        """Return predicted over measured, less one, of one of `QUANTITIES`."""
        name = "itl_s" if quantity == "itl" else quantity
        return float(getattr(self, name) / getattr(self.state, name)) - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyFit:
    """Calibrations by device, prompts by task, and every state judged.

    Attributes:
        calibrations: Times, by device.
        powers: Power, by device.
        prompts_tok: Mean prompt by task [tok].
        judged: In the order of the file.
    """

    calibrations: dict[str, Calibration]
    powers: dict[str, PowerFit]
    prompts_tok: dict[str, int]
    judged: tuple[JudgedState, ...]

    def median_error_frac(
        self,
        quantity: str,
        device: str | None = None,
        *,
        is_held_out: bool,
        is_spread: bool = False,
    ) -> float:
        """Return the median size of the error; nan when there is no such state.

        Args:
            quantity: One of `QUANTITIES`.
            device: Catalog id; None: all of them.
            is_held_out: Whether of what was kept apart or of what was fitted.
            is_spread: Whether of states with whole experts on each device, which are never fitted.
        """
        errors = [
            abs(one.error_frac(quantity))
            for one in self.judged
            if one.is_held_out == is_held_out
            and one.state.is_spread == is_spread
            and not one.why_not
            and device in (None, one.state.device)
        ]
        return float(np.median(errors)) if errors else float("nan")


@lru_cache(maxsize=1 << 15)
def _step(state: SteadyState, prompt_tok: int) -> SteadyStep:
    return steady_step(state, prompt_tok=prompt_tok)


def fit_states(states: Sequence[SteadyState], *, hold_out: int = 4) -> SteadyFit:
    """Fit one calibration a device and one prompt length a task.

    States with whole experts on each device are judged, not fitted: step times cut every expert.

    Args:
        states: Measured steady states.
        hold_out: Each so-manieth covered state of a device is only judged; 0: all are fitted.

    Raises:
        TraceError: No row is covered, or a device has fewer than four states to fit.
        ScenarioError: `hold_out` is 1 or negative, or scipy is not installed.
    """
    check_hold_out(hold_out)
    why_not: dict[SteadyState, str] = {}
    for state in states:
        try:
            _step(state, PROMPTS_TOK[0])
        except FirstlightError as error:
            why_not[state] = str(error)
    check_covered(len(states), {state.row: why for state, why in why_not.items()})
    covered = [state for state in states if state not in why_not]
    by_device: dict[str, list[SteadyState]] = {}
    held: set[SteadyState] = set()
    for device in dict.fromkeys(state.device for state in covered):
        rows = [state for state in covered if state.device == device and not state.is_spread]
        apart = held_out(len(rows), hold_out)
        held |= {rows[i] for i in apart}
        by_device[device] = [state for i, state in enumerate(rows) if i not in apart]
        if len(by_device[device]) < _UNKNOWNS:
            raise TraceError(
                f"{device}: {len(by_device[device])} steady states to fit; allowed: {_UNKNOWNS} or "
                "more, for as many numbers (with ep above 1 they are only judged)"
            )
    held |= {state for state in covered if state.is_spread}
    fitted_tasks = dict.fromkeys(state.task for rows in by_device.values() for state in rows)
    prompts = _prompts(by_device, tuple(fitted_tasks))
    calibrations = {name: _times(name, rows, prompts) for name, rows in by_device.items()}
    powers = {name: _power(rows, prompts, calibrations[name]) for name, rows in by_device.items()}
    nan = float("nan")
    judged = tuple(
        JudgedState(
            state=state, is_held_out=False, itl_s=nan, board_w=nan, j_per_tok=nan,
            why_not=why_not[state],
        )
        if state in why_not
        else _judged(
            state,
            _step(state, prompts.get(state.task, PROMPTS_TOK[0])),
            calibrations[state.device],
            powers[state.device],
            is_held_out=state in held,
        )
        for state in states
    )  # fmt: skip
    return SteadyFit(calibrations=calibrations, powers=powers, prompts_tok=prompts, judged=judged)


def _prompts(
    by_device: Mapping[str, Sequence[SteadyState]], tasks: Sequence[str]
) -> dict[str, int]:
    """Return the prompts with the least summed error of times, one task after another."""
    prompts = {task: PROMPTS_TOK[len(PROMPTS_TOK) // 2] for task in tasks}
    for _ in range(_ROUNDS if len(tasks) > 1 else 1):
        for task in tasks:
            losses = {
                tokens: sum(
                    _loss(name, rows, {**prompts, task: tokens}) for name, rows in by_device.items()
                )
                for tokens in PROMPTS_TOK
            }
            prompts[task] = min(losses, key=lambda tokens: losses[tokens])
    return prompts


def _loss(device: str, rows: Sequence[SteadyState], prompts: Mapping[str, int]) -> float:
    with_ = _times(device, rows, prompts)
    total = 0.0
    for state in rows:
        step = _step(state, prompts[state.task])
        total += abs(_median_s(state, step, with_) / state.itl_s - 1.0)
        total += abs(_mean_s(state, step, with_) / state.step_s - 1.0)
    return total


def _times(device: str, rows: Sequence[SteadyState], prompts: Mapping[str, int]) -> Calibration:
    parts, measured_s = [], []
    for state in rows:
        step = _step(state, prompts[state.task])
        parts += [
            (step.median_s, 1.0, state.batch, step.median_prompts),
            (step.mean_s, 1.0, state.batch, step.mean_prompts),
        ]
        measured_s += [state.itl_s, state.step_s]
    found = relative(np.array(parts), np.array(measured_s), is_robust=True)
    factor, step_s, sequence_s, prompt_s = (float(value) for value in found)
    return Calibration(
        device=device,
        kernel_factor=factor,
        step_s=step_s,
        sequence_s=sequence_s,
        prompt_s=prompt_s,
    )


def _median_s(state: SteadyState, step: SteadyStep, with_: Calibration) -> float:
    return (
        with_.kernel_factor * step.median_s
        + with_.step_s
        + with_.sequence_s * state.batch
        + with_.prompt_s * step.median_prompts
    )


def _mean_s(state: SteadyState, step: SteadyStep, with_: Calibration) -> float:
    return (
        with_.kernel_factor * step.mean_s
        + with_.step_s
        + with_.sequence_s * state.batch
        + with_.prompt_s * step.mean_prompts
    )


def _watts(state: SteadyState, step: SteadyStep, with_: Calibration) -> tuple[float, ...]:
    """Return what a unit of each number of `PowerFit` adds to the power of one device."""
    lasts_s = _mean_s(state, step, with_)
    overhead_frac = 1.0 - with_.kernel_factor * step.mean_s / lasts_s
    group_s = lasts_s * state.tp
    return (step.mean_j / group_s, overhead_frac, 1.0, step.active_params_tok / group_s)


def _power(rows: Sequence[SteadyState], prompts: Mapping[str, int], with_: Calibration) -> PowerFit:
    idle_w = find_device(with_.device).idle_w
    parts = [_watts(state, _step(state, prompts[state.task]), with_) for state in rows]
    # what idles does not count: a board measured at or below idle weighs as one watt above it
    measured_w = np.array([max(1.0, state.board_w - idle_w) for state in rows])
    factor, overhead_w, busy_w, param_j = relative(np.array(parts), measured_w, is_robust=True)
    return PowerFit(
        energy_factor=float(factor),
        overhead_w=float(overhead_w),
        busy_w=float(busy_w),
        param_j=float(param_j),
    )


def _judged(
    state: SteadyState,
    step: SteadyStep,
    with_: Calibration,
    power: PowerFit,
    *,
    is_held_out: bool,
) -> JudgedState:
    weights = (power.energy_factor, power.overhead_w, power.busy_w, power.param_j)
    above_w = float(np.dot(_watts(state, step, with_), weights))
    board_w = find_device(state.device).idle_w + above_w
    lasts_s = _mean_s(state, step, with_)
    return JudgedState(
        state=state,
        is_held_out=is_held_out,
        itl_s=_median_s(state, step, with_),
        board_w=board_w,
        j_per_tok=board_w * state.tp * lasts_s / state.batch,
    )
