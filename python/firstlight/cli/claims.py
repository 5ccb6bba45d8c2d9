"""`firstlight claims`: each published claim, its verdict here, and when it would hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from firstlight.cli.destination import Destination
from firstlight.cli.question import SETTINGS_HELP, asked

if TYPE_CHECKING:
    from firstlight.claims import Report
    from firstlight.scenario import Scenario


@click.command("claims")
@click.argument("scenario", required=False)
@click.option("--claim", "ids", multiple=True, metavar="ID", help="Only this claim, in full.")
@click.option("--json", "form", flag_value="json", help="Print one JSON document.")
@click.option("--markdown", "form", flag_value="markdown", help="Print docs/claims.md.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help=SETTINGS_HELP)
@click.option("--seed", type=click.IntRange(min=0), help="Seed of everything random.")
@click.option(
    "--load", "loaded", metavar="FILE",
    help="Write the nearest scenario found where --claim holds, else that of its best reading; says which.",
)  # fmt: skip
@click.option("-o", "--output", metavar="FILE", help="Write there: the whole answer or nothing.")
def command(
    scenario: str | None,
    *,
    ids: tuple[str, ...],
    form: str | None,
    settings: tuple[str, ...],
    seed: int | None,
    loaded: str | None,
    output: str | None,
) -> None:
    """Check each published claim on SCENARIO, the shipped one when none is given.

    A verdict is computed twice: on your scenario, and on the claim's most favourable reading. "holds
    when" is a solved boundary in one field, all else as in the scenario, with its distance from
    today's value.
    """
    from firstlight import claims

    question = asked(scenario, settings=settings, seed=seed)
    with Destination(output) as destination:
        report = claims.check(question, ids=ids or None)
        if loaded is not None:
            _write_scenario(question, report, Path(loaded))
        destination.write(_written(report, form=form, is_full=bool(ids)))


def _written(report: Report, *, form: str | None, is_full: bool) -> str:
    from firstlight.claims import write
    from firstlight.claims.document import document

    if form == "json":
        return json.dumps(document(report), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if form == "markdown":
        return write.markdown(report)
    if is_full:
        return "\n\n".join(write.full(checked) for checked in report.claims) + "\n"
    return write.table(report) + "\n"


def _write_scenario(question: Scenario, report: Report, path: Path) -> None:
    from firstlight.errors import InfeasibleError, ScenarioError

    if len(report.claims) != 1:
        raise ScenarioError("--load needs exactly one --claim")
    loads = report.claims[0].loads
    if loads is None:
        raise InfeasibleError(
            f"no assumption set was found under which {report.claims[0].claim.id!r} holds"
        )
    changed = question.replace(**loads)
    changed.dump(path)
    click.echo(f"{path}: {', '.join(loads) or 'unchanged'}; {_there(changed, report)}", err=True)


def _there(changed: Scenario, report: Report) -> str:
    """Return whether a claim holds, as it is read here, on a changed scenario."""
    from firstlight import claims
    from firstlight.claims.write import amount

    claim = report.claims[0].claim
    found = claims.check(changed, ids=[claim.id]).claims[0].here
    if found.met:
        return "the claim holds there"
    reached = "no value" if found.value is None else amount(found.value, claim.unit)
    return (
        f"nearest found: does not hold ({reached}, claimed {claim.sign} "
        f"{amount(claim.target, claim.unit)}); only its best reading may"
    )
