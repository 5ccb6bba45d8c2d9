"""`firstlight claims`: each published claim, its verdict here, and when it would hold."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command("claims")
@click.argument("scenario", required=False)
@click.option("--claim", "ids", multiple=True, metavar="ID", help="Only this claim, in full.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print docs/claims.md.")
@click.option(
    "--set", "changes", multiple=True, metavar="FIELD=VALUE", help="Change a field first."
)
@click.option(
    "-o", "--scenario-out", metavar="FILE", help="Write the nearest scenario where --claim holds."
)
def command(
    scenario: str | None,
    *,
    ids: tuple[str, ...],
    as_json: bool,
    as_markdown: bool,
    changes: tuple[str, ...],
    scenario_out: str | None,
) -> None:
    """Check each published claim on SCENARIO, the shipped one when none is given.

    A verdict is computed twice: on your scenario, and on the claim's most favourable reading. "holds
    when" is a solved boundary in one field, with its distance from today.
    """
    from firstlight import claims
    from firstlight.claims import write
    from firstlight.scenario import Scenario
    from firstlight.sweep.axis import assignments

    asked = Scenario.load(scenario) if scenario else Scenario.default()
    if changes:
        asked = asked.replace(**assignments(changes))
    report = claims.check(asked, ids=ids or None)
    if scenario_out is not None:
        _write_scenario(asked, report, Path(scenario_out))
    if as_json:
        from firstlight.claims.document import document

        click.echo(json.dumps(document(report), indent=2, ensure_ascii=False, allow_nan=False))
    elif as_markdown:
        click.echo(write.markdown(report), nl=False)
    elif ids:
        click.echo("\n\n".join(write.full(checked) for checked in report.claims))
    else:
        click.echo(write.table(report))


def _write_scenario(asked: object, report: object, path: Path) -> None:
    from firstlight.claims import Report
    from firstlight.errors import InfeasibleError, ScenarioError
    from firstlight.scenario import Scenario

    if not isinstance(report, Report) or not isinstance(asked, Scenario):
        raise TypeError("Invariant: a report and a scenario")
    if len(report.claims) != 1:
        raise ScenarioError("--scenario-out needs exactly one --claim")
    loads = report.claims[0].loads
    if loads is None:
        raise InfeasibleError(
            f"no assumption set was found under which {report.claims[0].claim.id!r} holds"
        )
    asked.replace(**loads).dump(path)
    click.echo(f"{path}: {', '.join(loads) or 'unchanged'}", err=True)
