"""`ProfileStep`: the time of one step, as a profiler of a serving engine prints it; and its fit.

A step of as many tokens as sequences decodes; a step of more tokens is prompts alone, cut as evenly
as whole tokens allow. A step's time is then linear in what is fitted:

    seconds = kernel_factor · kernels + step_s + sequence_s · sequences
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from firstlight import models
from firstlight.calibrate.fit import PS_PER_S, Calibration
from firstlight.calibrate.rows import Row, read_rows
from firstlight.calibrate.solve import check_covered, check_hold_out, held_out, relative
from firstlight.errors import FirstlightError, ModelError, TraceError
from firstlight.roofline.step import bare_step_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from firstlight.steps import StepTable

COLUMNS = {
    "model": "catalog id",
    "device": "catalog id",
    "tp": "devices in the tensor-parallel group",
    "weights": "format of the linear weights, such as bf16 or fp8",
    "kv": "format of the KV cache",
    "tokens": "tokens in the step: one a sequence that decodes, or those of the prompts",
    "sequences": "sequences in the step",
    "context_tok": "mean tokens a sequence has in the cache before the step",
    "seconds": "measured time of the step [s]",
}
"""What a file must have."""

PS_PER_FS = 1e-3
MOST_TOK, MOST_SEQS = 1 << 17, 1 << 13
_UNKNOWNS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileStep:
    """A measured step.

    Attributes:
        row: Row of the file, from 2 on.
        model: Catalog id.
        device: Catalog id.
        tp: Devices in the group.
        weights: Format of the linear weights.
        kv: Format of the KV cache.
        tokens: Tokens in the step.
        sequences: Sequences in the step; as many as tokens: it decodes.
        context_tok: Mean tokens a sequence has in the cache before the step.
        seconds: Measured time [s].
    """

    row: int
    model: str
    device: str
    tp: int
    weights: str
    kv: str
    tokens: int
    sequences: int
    context_tok: int
    seconds: float

    @property
    def is_decode(self) -> bool:
        """Whether every sequence has one token in it."""
        return self.tokens == self.sequences


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedStep:
    """A step beside what the calibration says of it.

    Attributes:
        step: The step.
        is_held_out: Whether it was kept out of the fit.
        seconds: Predicted time [s]; nan when it is not covered.
        why_not: Why it is not covered, or "".
    """

    step: ProfileStep
    is_held_out: bool
    seconds: float
    why_not: str = ""

    @property
    def error_frac(self) -> float:
        """Predicted over measured, less one."""
        return self.seconds / self.step.seconds - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFit:
    """Calibrations by device, and every step judged.

    Attributes:
        calibrations: By device.
        judged: In the order of the file.
    """

    calibrations: dict[str, Calibration]
    judged: tuple[JudgedStep, ...]

    def median_error_frac(self, device: str | None = None, *, is_held_out: bool) -> float:
        """Return the median size of the error; nan when there is no such step."""
        errors = [
            abs(one.error_frac)
            for one in self.judged
            if one.is_held_out == is_held_out
            and not one.why_not
            and device in (None, one.step.device)
        ]
        return float(np.median(errors)) if errors else float("nan")


def read_steps(path: str | Path) -> tuple[ProfileStep, ...]:
    """Return the steps of a CSV file, in its order.

    Raises:
        TraceError: The file cannot be read, lacks a column, or has a bad value; the message says
            where and what is allowed.
    """
    return tuple(_step(row) for row in read_rows(path, needed=COLUMNS, optional={}))


def _step(row: Row) -> ProfileStep:
    tokens, sequences = row.whole("tokens"), row.whole("sequences")
    if tokens < sequences:
        raise row.error(
            f"tokens = {tokens} for {sequences} sequences; one each (decode) or more (prompts)"
        )
    context_tok = row.whole("context_tok", least=0)
    if tokens == sequences and context_tok == 0:
        raise row.error("context_tok = 0 in a step that decodes; 1 or more")
    return ProfileStep(
        row=row.at,
        model=row.text("model"),
        device=row.text("device"),
        tp=row.whole("tp"),
        weights=row.text("weights"),
        kv=row.text("kv"),
        tokens=tokens,
        sequences=sequences,
        context_tok=context_tok,
        seconds=row.positive("seconds"),
    )


def kernels_s(step: ProfileStep) -> float:
    """Return what the kernels of a step take in a loop [s].

    Raises:
        CatalogError: The device is unknown or lacks a fact.
        ModelError: The model, a format or a group is not possible, or the step is too large.
    """
    shape = models.load(step.model)
    if step.tokens > MOST_TOK or step.sequences > MOST_SEQS:
        raise ModelError(
            f"a step of {step.tokens} tokens, {step.sequences} sequences; at most {MOST_TOK} and "
            f"{MOST_SEQS}"
        )
    # powers of two, so that the rows of a profile share few tables
    table = bare_step_table(
        shape,
        step.device,
        tp=step.tp,
        weights=step.weights,
        kv=step.kv,
        max_tok=max(4096, 1 << (step.tokens - 1).bit_length()),
        max_seqs=max(512, 1 << (step.sequences - 1).bit_length()),
    )
    linear_ps = int(table.linear_ps[step.tokens]) + int(table.head_ps[step.sequences])
    return (linear_ps + _attention_ps(step, table)) / PS_PER_S


def _attention_ps(step: ProfileStep, table: StepTable) -> float:
    count = step.sequences
    if step.is_decode:
        floor_ps, slope_ps = table.decode_attn_floor_ps[count], table.decode_attn_ctx_ps[count]
        return float(floor_ps) + float(slope_ps) * count * step.context_tok
    chunk, longer = divmod(step.tokens, count)
    total_ps = float(count * table.prefill_attn_floor_ps)
    for tokens, chunks in ((chunk, count - longer), (chunk + 1, longer)):
        if chunks:
            pairs = tokens * step.context_tok + tokens * (tokens + 1) / 2
            pair_fs = float(table.prefill_attn_pair_fs[tokens])
            total_ps += chunks * pairs * pair_fs * PS_PER_FS
    return total_ps


def fit_steps(steps: Sequence[ProfileStep], *, hold_out: int = 4) -> ProfileFit:
    """Fit one calibration a device to steps of any models on it.

    Args:
        steps: Measured steps.
        hold_out: Each so-manieth covered step of a device is only judged; 0: all are fitted.

    Raises:
        TraceError: No row is covered, or a device has fewer than three steps to fit.
        ScenarioError: `hold_out` is 1 or negative, or scipy is not installed.
    """
    check_hold_out(hold_out)
    kernels: dict[int, float] = {}
    why_not: dict[int, str] = {}
    for at, step in enumerate(steps):
        try:
            kernels[at] = kernels_s(step)
        except FirstlightError as error:
            why_not[at] = str(error)
    check_covered(len(steps), {steps[at].row: why for at, why in why_not.items()})
    held: set[int] = set()
    calibrations: dict[str, Calibration] = {}
    for device in dict.fromkeys(steps[at].device for at in kernels):
        rows = [at for at in kernels if steps[at].device == device]
        apart = {rows[i] for i in held_out(len(rows), hold_out)}
        held |= apart
        fitted = [at for at in rows if at not in apart]
        if len(fitted) < _UNKNOWNS:
            raise TraceError(
                f"{device}: {len(fitted)} steps to fit; allowed: {_UNKNOWNS} or more, for as many "
                "numbers"
            )
        factor, step_s, sequence_s = relative(
            np.array([(kernels[at], 1.0, steps[at].sequences) for at in fitted]),
            np.array([steps[at].seconds for at in fitted]),
        )
        calibrations[device] = Calibration(
            device=device,
            kernel_factor=float(factor),
            step_s=float(step_s),
            sequence_s=float(sequence_s),
        )
    judged = tuple(
        JudgedStep(
            step=step,
            is_held_out=at in held,
            seconds=float("nan")
            if at in why_not
            else _predicted_s(kernels[at], step, calibrations[step.device]),
            why_not=why_not.get(at, ""),
        )
        for at, step in enumerate(steps)
    )
    return ProfileFit(calibrations=calibrations, judged=judged)


def _predicted_s(bare_s: float, step: ProfileStep, with_: Calibration) -> float:
    return with_.kernel_factor * bare_s + with_.step_s + with_.sequence_s * step.sequences
