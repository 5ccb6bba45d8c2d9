"""`firstlight lab`: the sheet of an independent test of two designs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from firstlight.cli import progress
from firstlight.cli.destination import Destination
from firstlight.cli.question import SETTINGS_HELP, asked

if TYPE_CHECKING:
    from firstlight.plan.lab import Sheet

_HELP = """\
Print the sheet of a test of two designs: protocol, predictions, a place for what is measured.

\b
  firstlight lab -o sheet.toml               write the sheet; fill in [measured]
  firstlight lab --filled sheet.toml         what is different beyond the model's error
"""


@click.command("lab", help=_HELP)
@click.argument("scenario", required=False)
@click.option("--design", "designs", multiple=True, metavar="NAME", help="Twice: the two designs.")
@click.option("--rate", type=float, metavar="R", help="Load of both, requests a second.")
@click.option("--filled", metavar="FILE", help="Read a sheet that was filled in, and judge it.")
@click.option("--seed", type=click.IntRange(min=0), help="Seed of everything random.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help=SETTINGS_HELP)
@click.option("-o", "--output", metavar="FILE", help="Write there: the whole sheet or nothing.")
def command(
    scenario: str | None,
    *,
    designs: tuple[str, ...],
    rate: float | None,
    filled: str | None,
    seed: int | None,
    settings: tuple[str, ...],
    output: str | None,
) -> None:
    """Write a sheet, or judge a filled one."""
    from firstlight.errors import ScenarioError
    from firstlight.plan import lab

    if filled is not None:
        try:
            text = Path(filled).read_text(encoding="utf-8")
        except OSError as error:
            raise ScenarioError(f"{filled}: {error.strerror}") from None
        with Destination(output) as destination:
            destination.write(judged(lab.read(text)))
        return
    question = asked(scenario, settings=settings, seed=seed)
    chosen = designs or (question.designs[-1].name, question.designs[-2].name)
    if len(chosen) != 2:  # a test compares two
        raise ScenarioError(f"{len(chosen)} designs; allowed: --design twice")
    with Destination(output) as destination:
        with progress.shown("predicting") as tell:
            made = lab.sheet(
                question,
                designs=(chosen[0], chosen[1]),
                rate_request_per_s=rate,
                progress=tell,
            )
        destination.write(made.to_toml())
        if destination.is_file:
            click.echo(
                f"{output}: fill in [measured], then firstlight lab --filled {output}", err=True
            )


def judged(sheet: Sheet) -> str:
    """Return what a sheet says, in 80 columns."""
    from firstlight.plan.lab import QUANTITIES, findings

    first, second = sheet.designs
    lines = [f"{first} over {second}", ""]
    lines.append(f"{'quantity':24}{'predicted':>11}{'± error':>9}{'measured':>11}  verdict")
    errors = {q.name: q.error_frac for q in QUANTITIES}
    for one in findings(sheet):
        error = errors[one.quantity]
        spread = "–" if math.isnan(error) else f"{2 * error * math.sqrt(2):.0%}"
        verdict = "differs" if one.is_difference else "within error"
        if math.isnan(one.predicted_ratio):
            verdict = "not predicted"
        elif one.is_refuted is None:
            verdict = "differs, not measured" if one.is_difference else "not measured"
        elif one.is_refuted:
            verdict = "refuted"
        else:
            verdict += ", confirmed"
        lines.append(
            f"{one.quantity:24}{_ratio(one.predicted_ratio):>11}{spread:>9}"
            f"{_ratio(one.measured_ratio):>11}  {verdict}"
        )
        lines += [
            f"  {design}: measured outside the error of its own prediction"
            for design in one.outside
        ]
    lines += [
        "",
        "differs: the predicted ratio is further from 1 than twice the model's error.",
    ]
    return "\n".join(lines) + "\n"


def _ratio(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3g}×"
