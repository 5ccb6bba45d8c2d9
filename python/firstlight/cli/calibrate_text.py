"""What `firstlight calibrate` prints: numbers a device, then every row beside its measurement."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from firstlight.calibrate import Calibration, Fit, ProfileFit, SteadyFit

_APART = " kept apart"


def runs_text(found: Fit) -> str:
    """Return the text for serving runs."""
    lines = [
        f"{_numbers(device, numbers)}{_median(found, device)}"
        for device, numbers in found.calibrations.items()
    ]
    lines += ["", f"{'model':20}{'device':14}{'tp':>3}  {'weights':8}{'in':>7}{'out':>6}"]
    lines[-1] += f"{'measured':>11}{'here':>9}{'error':>8}"
    for one in found.judged:
        run = one.run
        start = f"{run.model:20}{run.device:14}{run.tp:>3}  {run.weights:8}{run.isl_tok:>7}"
        start += f"{run.osl_tok:>6}{run.output_tok_per_s:>11,.0f}"
        if one.why_not:
            lines.append(f"{start}{'–':>9}  row {run.row} is not covered: {one.why_not}")
            continue
        apart = _APART if one.is_held_out else ""
        lines.append(f"{start}{one.output_tok_per_s:>9,.0f}{one.error_frac:>+8.1%}{apart}")
    return "\n".join(lines) + "\n"


def steps_text(found: ProfileFit) -> str:
    """Return the text for a profile of steps."""
    lines = [
        f"{_numbers(device, numbers)}{_median(found, device)}"
        for device, numbers in found.calibrations.items()
    ]
    lines += ["", f"{'model':20}{'device':14}{'tp':>3}  {'weights':8}{'tokens':>7}{'seqs':>6}"]
    lines[-1] += f"{'context':>9}{'measured µs':>13}{'here':>11}{'error':>8}"
    for one in found.judged:
        step = one.step
        start = f"{step.model:20}{step.device:14}{step.tp:>3}  {step.weights:8}{step.tokens:>7}"
        start += f"{step.sequences:>6}{step.context_tok:>9}{step.seconds * 1e6:>13,.1f}"
        if one.why_not:
            lines.append(f"{start}{'–':>11}  row {step.row} is not covered: {one.why_not}")
            continue
        apart = _APART if one.is_held_out else ""
        lines.append(f"{start}{one.seconds * 1e6:>11,.1f}{one.error_frac:>+8.1%}{apart}")
    return "\n".join(lines) + "\n"


def states_text(found: SteadyFit) -> str:
    """Return the text for steady states."""
    lines = []
    for device, numbers in found.calibrations.items():
        power = found.powers[device]
        lines.append(_numbers(device, numbers) + f", {numbers.prompt_s * 1e6:,.0f} µs a prompt")
        lines.append(
            f"  power above idle: kernels × {power.energy_factor:.2f}, "
            f"{power.param_j * 1e12:.2f} pJ a weight used, {power.busy_w:.0f} W in a step, "
            f"{power.overhead_w:.0f} W more beside kernels"
        )
    prompts = ", ".join(f"{task} {tokens}" for task, tokens in found.prompts_tok.items())
    lines += [f"prompts, tokens: {prompts}", ""]
    lines.append(f"{'median error':32}{'rows':>5}{'ITL':>8}{'power':>8}{'J/token':>9}")
    lines += _medians(found)
    lines += ["", f"{'model':17}{'device':10}{'tp':>2} {'weights':12}{'task':16}{'batch':>5}"]
    lines[-1] += f"{'ITL ms':>8}{'error':>8}{'W':>6}{'error':>8}{'J/token':>9}{'error':>8}"
    for one in found.judged:
        state = one.state
        start = f"{state.model:17}{state.device:10}{state.tp:>2} {state.weights:12}{state.task:16}"
        start += f"{state.batch:>5}"
        if one.why_not:
            lines.append(f"{start}  row {state.row} is not covered: {one.why_not}")
            continue
        apart = _APART if one.is_held_out else ""
        apart = " experts spread" if state.is_spread else apart
        lines.append(
            f"{start}{state.itl_s * 1e3:>8.2f}{one.error_frac('itl'):>+8.1%}"
            f"{state.board_w:>6.0f}{one.error_frac('board_w'):>+8.1%}"
            f"{state.j_per_tok:>9.4f}{one.error_frac('j_per_tok'):>+8.1%}{apart}"
        )
    return "\n".join(lines) + "\n"


def _medians(found: SteadyFit) -> list[str]:
    from firstlight.calibrate.steady_fit import QUANTITIES

    lines = []
    devices = [None, *found.calibrations] if len(found.calibrations) > 1 else [*found.calibrations]
    for device in devices:
        for what, is_held_out, is_spread in (
            ("fitted", False, False),
            ("kept apart", True, False),
            ("experts spread", True, True),
        ):
            rows = sum(
                not one.why_not
                and (one.is_held_out, one.state.is_spread) == (is_held_out, is_spread)
                and device in (None, one.state.device)
                for one in found.judged
            )
            if rows:
                errors = [
                    found.median_error_frac(
                        name, device, is_held_out=is_held_out, is_spread=is_spread
                    )
                    for name in QUANTITIES
                ]
                lines.append(
                    f"{(device or 'all') + ', ' + what:32}{rows:>5}"
                    f"{errors[0]:>8.1%}{errors[1]:>8.1%}{errors[2]:>9.1%}"
                )
    return lines


def _numbers(device: str, numbers: Calibration) -> str:
    return (
        f"{device}: kernels × {numbers.kernel_factor:.3f}, {numbers.step_s * 1e6:,.0f} µs a step, "
        f"{numbers.sequence_s * 1e6:,.1f} µs a token"
    )


def _median(found: Fit | ProfileFit, device: str) -> str:
    kept, judged = (found.median_error_frac(device, is_held_out=held) for held in (False, True))
    return f"; median error {kept:.1%} of what was fitted, " + (
        "nothing kept apart" if math.isnan(judged) else f"{judged:.1%} of what was not"
    )
