"""`firstlight compare`: designs on the same model, traffic, service level and power."""

from __future__ import annotations

import json
import os
import shutil
import sys
from typing import TYPE_CHECKING, Literal

import click

from firstlight.cli import progress
from firstlight.cli.destination import Destination
from firstlight.cli.question import SETTINGS_HELP, asked, load

if TYPE_CHECKING:
    from firstlight.evaluate import Comparison
    from firstlight.report.layout import Style


_HELP = """\
Compare designs at equal power: what each delivers within the service level.

SCENARIO is a TOML file. Without it the shipped scenario is answered: one megawatt, one hour of
Azure conversation traffic, Llama-3.1-70B; GPUs doing both phases, GPUs split into prefill and
decode pools, and optical prefill with GPU decode.

\b
Examples:
  firstlight compare
  firstlight compare rack.toml --json -o answer.json
  firstlight compare --set power_w=250kW --set model=llama-3.1-8b
  firstlight compare --set t_reload_s=50us      an undisclosed input, changed
  firstlight compare --rate 1000                all designs at one load
  firstlight compare --sources | less           every input with its source

Exit status: 0 answered; 1 no design can meet the service level (says which limit and how far);
2 bad input.
"""


@click.command("compare", help=_HELP)
@click.argument("scenario", required=False)
@click.option("--json", "form", flag_value="json", help="Print one JSON document, SI units.")
@click.option("--markdown", "form", flag_value="markdown", help="Print the tables as Markdown.")
@click.option(
    "--rate",
    metavar="R",
    callback=load,
    help="Compare at R requests a second instead of at each design's capacity.",
)
@click.option("--full", "whole_fleet", is_flag=True, help="Simulate the fleet, not one cell of it.")
@click.option("--seed", type=click.IntRange(min=0), help="Seed of everything random.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help=SETTINGS_HELP)
@click.option("--sources", "with_sources", is_flag=True, help="Add where every number comes from.")
@click.option("-o", "--output", metavar="FILE", help="Write there: the whole answer or nothing.")
@click.pass_context
def command(
    context: click.Context,
    *,
    scenario: str | None,
    form: str | None,
    rate: float | None,
    whole_fleet: bool,
    seed: int | None,
    settings: tuple[str, ...],
    with_sources: bool,
    output: str | None,
) -> None:
    """Answer, print, and leave with the status."""
    from firstlight import evaluate, report
    from firstlight.report.layout import plain

    question = asked(scenario, settings=settings, seed=seed)
    with Destination(output) as destination:
        with progress.shown("comparing") as tell:
            answer = evaluate.compare(
                question, rate_request_per_s=rate, whole_fleet=whole_fleet, progress=tell
            )
        style = None if destination.is_file else _style()
        destination.write(
            _written(
                answer,
                form=form,
                with_sources=with_sources,
                style=style or plain,
                at_given_load=rate is not None,
            )
        )
    if not any(report.meets(one, quantile=question.slo.quantile) for one in answer.designs):
        click.echo("firstlight: no design meets the service level", err=True)
        context.exit(1)


def _written(
    answer: Comparison, *, form: str | None, with_sources: bool, style: Style, at_given_load: bool
) -> str:
    from firstlight import report

    if form == "json":
        text = json.dumps(report.document(answer), indent=2, ensure_ascii=False, allow_nan=False)
        return f"{text}\n"
    width = shutil.get_terminal_size((80, 24)).columns
    shape: Literal["markdown", "terminal"] = "markdown" if form == "markdown" else "terminal"
    text = report.tables(answer, form=shape, width=width, style=style, at_given_load=at_given_load)
    if with_sources:
        text += "\n" + report.sources(answer, form=shape, width=width, style=style)
    return text


def _style() -> Style | None:
    """Return how headings are made to stand out; None where colour is not wanted."""
    wanted = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    return _dressed if wanted and not os.environ.get("NO_COLOR") else None


def _dressed(text: str, *, role: str) -> str:
    if role == "heading":
        return click.style(text, bold=True, fg="cyan")
    return click.style(text, dim=True) if role == "head" else text
