"""`firstlight calibrate`: a device and its serving stack, from measured runs."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import TYPE_CHECKING

import click

from firstlight.cli.destination import Destination

if TYPE_CHECKING:
    from firstlight.calibrate import Fit, Judged

_HELP = """\
Fit what a device and its serving stack take to measured runs, and judge runs that were kept apart.

RUNS is a CSV file, a row a run in which all requests are queued at the start (an offline
benchmark), with these columns:

\b
  model, device      catalog ids (firstlight catalog model)
  tp, weights, kv    group size and number formats: 2, fp8, fp8
  isl_tok, osl_tok   tokens of every prompt and answer
  requests           how many
  output_tok_per_s   what was measured
  token_budget, max_seqs, block_tok   if not 8192, 2048, 32

Three numbers a device are fitted, for all models on it: a factor on the kernels' own times, a time a
step and a time a token that comes out. Every fourth run of a device is kept out and judged.

\b
Examples:
  firstlight calibrate runs.csv
  firstlight calibrate runs.csv --hold-out 0 --json -o h100.json

Exit status: 0 done; 2 bad input.
"""


@click.command("calibrate", help=_HELP)
@click.argument("runs")
@click.option(
    "--hold-out",
    type=int,
    default=4,
    show_default=True,
    help="Keep each so-manieth run of a device out of the fit; 0: none.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, SI units.")
@click.option("-o", "--output", metavar="FILE", help="Write there.")
def command(*, runs: str, hold_out: int, as_json: bool, output: str | None) -> None:
    """Read, fit, print."""
    from firstlight.calibrate import fit, read_runs

    with Destination(output) as destination:
        found = fit(read_runs(runs), hold_out=hold_out)
        destination.write(_document(found) if as_json else _text(found))


def _document(found: Fit) -> str:
    def row(one: Judged) -> dict[str, object]:
        is_covered = not one.why_not
        return {
            **dataclasses.asdict(one.run),
            "held_out": one.is_held_out,
            "predicted_tok_per_s": one.output_tok_per_s if is_covered else None,
            "error_frac": one.error_frac if is_covered else None,
            "why_not": one.why_not,
        }

    return (
        json.dumps(
            {
                "calibrations": [dataclasses.asdict(one) for one in found.calibrations.values()],
                "runs": [row(one) for one in found.judged],
            },
            indent=1,
            allow_nan=False,
        )
        + "\n"
    )


def _text(found: Fit) -> str:
    lines = []
    for device, numbers in found.calibrations.items():
        kept, judged = (found.median_error_frac(device, is_held_out=held) for held in (False, True))
        lines.append(
            f"{device}: kernels × {numbers.kernel_factor:.3f}, {numbers.step_s * 1e6:,.0f} µs a step, "
            f"{numbers.sequence_s * 1e6:,.1f} µs a token; median error {kept:.1%} of what was fitted, "
            + ("nothing kept apart" if math.isnan(judged) else f"{judged:.1%} of what was not")
        )
    lines += ["", f"{'model':20}{'device':14}{'tp':>3}  {'weights':8}{'in':>7}{'out':>6}"]
    lines[-1] += f"{'measured':>11}{'here':>9}{'error':>8}"
    for one in found.judged:
        run = one.run
        start = f"{run.model:20}{run.device:14}{run.tp:>3}  {run.weights:8}{run.isl_tok:>7}"
        start += f"{run.osl_tok:>6}{run.output_tok_per_s:>11,.0f}"
        if one.why_not:
            lines.append(f"{start}{'–':>9}  row {run.row} is not covered: {one.why_not}")
            continue
        apart = " kept apart" if one.is_held_out else ""
        lines.append(f"{start}{one.output_tok_per_s:>9,.0f}{one.error_frac:>+8.1%}{apart}")
    return "\n".join(lines) + "\n"
