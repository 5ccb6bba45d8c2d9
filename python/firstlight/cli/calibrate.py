"""`firstlight calibrate`: a device and its serving stack, from what was measured."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import click

from firstlight.cli.destination import Destination

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from firstlight.calibrate import (
        Calibration,
        Fit,
        Judged,
        JudgedState,
        JudgedStep,
        ProfileFit,
        ProfileStep,
        ServingRun,
        SteadyFit,
        SteadyState,
    )

_HELP = """\
Fit what a device and its serving stack take to measurements, and judge rows that were kept apart.

FILE is a CSV file; its columns say which of three kinds it is. All have

\b
  model, device      catalog ids (firstlight catalog model)
  tp, weights, kv    group size and number formats: 2, fp8, fp8

Serving runs, a row a run in which all requests are queued at the start (an offline benchmark):

\b
  isl_tok, osl_tok   tokens of every prompt and answer
  requests           how many
  output_tok_per_s   what was measured
  token_budget, max_seqs, block_tok   if not 8192, 2048, 32

A profile, a row a step of the engine:

\b
  tokens, sequences  as many tokens as sequences: they decode; more: prompts alone
  context_tok        mean tokens a sequence has in the cache before the step
  seconds            what was measured

Steady states, a row a batch size that was held:

\b
  task               rows of one task have prompts of one mean length, which is fitted
  batch, osl_tok     mean sequences at once, mean answer
  itl_s, output_tok_per_s, board_w   what was measured; board_w is of one device
  ep                 devices that hold whole experts, if not 1: judged, never fitted

Fitted for each device, for all models on it: a factor on the kernels' own times, a time a step and
a time a token that comes out; from steady states also a time a prompt, and power. Every fourth row
of a device is kept out and judged.

\b
Examples:
  firstlight calibrate runs.csv
  firstlight calibrate profile.csv
  firstlight calibrate steady.csv --hold-out 0 --json -o h100.json

The least profile (with --hold-out 0):

\b
  model,device,tp,weights,kv,tokens,sequences,context_tok,seconds
  llama-3.1-8b,h100-sxm,1,bf16,bf16,8,8,600,0.00732
  llama-3.1-8b,h100-sxm,1,bf16,bf16,64,64,600,0.0115
  llama-3.1-8b,h100-sxm,1,bf16,bf16,2048,1,0,0.0561

Exit status: 0 done; 2 bad input.
"""


@click.command("calibrate", help=_HELP)
@click.argument("file")
@click.option(
    "--hold-out",
    type=int,
    default=4,
    show_default=True,
    help="Keep each so-manieth row of a device out of the fit; 0: none.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, SI units.")
@click.option("-o", "--output", metavar="FILE", help="Write there.")
def command(*, file: str, hold_out: int, as_json: bool, output: str | None) -> None:
    """Read, fit, print."""
    from firstlight import calibrate
    from firstlight.calibrate.rows import column_names
    from firstlight.cli import calibrate_text
    from firstlight.errors import TraceError, nearest

    with Destination(output) as destination:
        names = column_names(file)
        if "seconds" in names:
            steps = calibrate.fit_steps(calibrate.read_steps(file), hold_out=hold_out)
            text = _steps_document(steps) if as_json else calibrate_text.steps_text(steps)
        elif "itl_s" in names:
            states = calibrate.fit_states(calibrate.read_states(file), hold_out=hold_out)
            text = _states_document(states) if as_json else calibrate_text.states_text(states)
        elif "output_tok_per_s" not in names:
            kinds = ("output_tok_per_s", "seconds", "itl_s")
            like = next((hint for kind in kinds if (hint := nearest(kind, names))), "")
            raise TraceError(
                f"{file}, row 1: no column says what was measured; allowed: output_tok_per_s "
                f"(serving runs), seconds (a profile), itl_s (steady states){like}"
            )
        else:
            runs = calibrate.fit(calibrate.read_runs(file), hold_out=hold_out)
            text = _runs_document(runs) if as_json else calibrate_text.runs_text(runs)
        destination.write(text)


def _runs_document(found: Fit) -> str:
    rows = [
        _row(one, one.run, predicted_tok_per_s=one.output_tok_per_s, error_frac=one.error_frac)
        for one in found.judged
    ]
    return _document({"runs": rows}, found.calibrations.values())


def _steps_document(found: ProfileFit) -> str:
    rows = [
        _row(one, one.step, predicted_s=one.seconds, error_frac=one.error_frac)
        for one in found.judged
    ]
    return _document({"steps": rows}, found.calibrations.values())


def _states_document(found: SteadyFit) -> str:
    rows = [
        _row(
            one,
            one.state,
            predicted_itl_s=one.itl_s,
            predicted_board_w=one.board_w,
            predicted_j_per_tok=one.j_per_tok,
        )
        for one in found.judged
    ]
    powers = {device: dataclasses.asdict(power) for device, power in found.powers.items()}
    return _document(
        {"powers": powers, "prompts_tok": found.prompts_tok, "states": rows},
        found.calibrations.values(),
    )


def _row(
    one: Judged | JudgedStep | JudgedState,
    measured: ServingRun | ProfileStep | SteadyState,
    **predicted: float,
) -> dict[str, object]:
    """Return a measured row beside what is predicted of it, null where it is not covered."""
    return {
        **dataclasses.asdict(measured),
        "held_out": one.is_held_out,
        **{name: None if one.why_not else value for name, value in predicted.items()},
        "why_not": one.why_not,
    }


def _document(body: Mapping[str, object], calibrations: Iterable[Calibration]) -> str:
    numbers = [dataclasses.asdict(one) for one in calibrations]
    return json.dumps({"calibrations": numbers, **body}, indent=1, allow_nan=False) + "\n"
