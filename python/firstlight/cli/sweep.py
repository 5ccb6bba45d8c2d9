"""`firstlight sweep`: grids and samples over any field; without a field, what is uncertain."""

from __future__ import annotations

import json
import math
import textwrap
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from firstlight.cli import progress
from firstlight.cli.destination import Destination
from firstlight.cli.question import SETTINGS_HELP, asked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from firstlight.scenario import Scenario
    from firstlight.sweep import Swept, Uncertainty

WIDTH = 80
_HELP = """\
Compute SCENARIO (the shipped one when none is given) over grids and samples.

\b
--over FIELD=VALUES, as often as needed:
  power_w=1e5..1e7:log:9        a logarithmic grid     pue=1.0..1.5:lin:6   an even one
  model=llama-3.1-8b,llama-3.1-70b                     a list
  t_reload_s=1us..1ms           a range, drawn (evenly in its logarithm over a decade)
  f_cycle_hz=lognormal(median=1e9, sigma=0.5)          a distribution, drawn

Grids multiply; ranges and distributions are drawn together, the same draws at every grid point.
Exit status 1: no point could be computed. With -o FOLDER every chunk is kept as it ends (Parquet where pyarrow is installed, else CSV): the same
command again goes on where it was interrupted.

\b
--break-even FIELD --between ONE,OTHER: where one design equals another in any field, by --measure.

Without --over: the ranges in [assumptions], and where there are none, what no vendor of optical
servers has disclosed; prints percentiles, how often light wins, and what to measure first.
"""


@click.command("sweep", help=_HELP)
@click.argument("scenario", required=False)
@click.option("--over", "items", multiple=True, metavar="FIELD=VALUES", help="What varies.")
@click.option("--tier", type=click.Choice(["analytic", "cell", "full"]), default="analytic",
              show_default=True, help="Closed form; one cell simulated; the whole comparison.")  # fmt: skip
@click.option("--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True)
@click.option("--address", metavar="ADDR", help="Ray cluster; without it Ray is started here.")
@click.option("--workers", type=click.IntRange(min=1), help="Processes; every core by default.")
@click.option("--draws", type=click.IntRange(min=2), default=256, show_default=True)
@click.option(
    "--rate", "rate", type=float, metavar="R", help="Load of the cell, requests a second."
)
@click.option("--seed", type=click.IntRange(min=0), help="Seed of everything random.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help=SETTINGS_HELP)
@click.option("--break-even", "turning", metavar="FIELD", help="Solve for equality in this field.")
@click.option("--between", metavar="ONE,OTHER", help="The two designs; the last two by default.")
@click.option("--measure", default="goodput_request_per_s_per_w", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("-o", "--output", metavar="FOLDER", help="Keep parts and manifest there.")
def command(
    scenario: str | None,
    *,
    items: tuple[str, ...],
    tier: str,
    engine: str,
    address: str | None,
    workers: int | None,
    draws: int,
    rate: float | None,
    seed: int | None,
    settings: tuple[str, ...],
    turning: str | None,
    between: str | None,
    measure: str,
    as_json: bool,
    output: str | None,
) -> None:
    """Sweep, print, and leave."""
    from firstlight.sweep.axis import parse_over

    question = asked(scenario, settings=settings, seed=seed)
    if turning is not None:
        _break_even(question, field=turning, between=between, measure=measure, as_json=as_json)
        return
    if not items:
        from firstlight.sweep.draws import uncertainty

        with progress.shown("drawing") as tell:
            found = uncertainty(question, draws=draws, progress=tell)
        text = json.dumps(_plain(found), indent=2) if as_json else uncertain_table(found)
        with Destination(None) as destination:
            destination.write(text + "\n")
        return
    from firstlight.sweep.run import sweep

    with progress.shown("sweeping") as tell, _resumable(output):
        swept = sweep(
            question,
            over=parse_over(items),
            tier=tier,  # type: ignore[arg-type]  # click has checked it
            engine=engine,  # type: ignore[arg-type]  # click has checked it
            folder=output,
            draws=draws,
            rate_request_per_s=rate,
            workers=workers,
            address=address,
            progress=tell,
        )
    text = json.dumps(_rows(swept), indent=2) if as_json else swept_table(swept)
    with Destination(None) as destination:
        destination.write(text + "\n")
    if swept.failed == swept.points:
        raise click.exceptions.Exit(1)


@contextmanager
def _resumable(output: str | None) -> Iterator[None]:
    """Say on an interrupt what is kept, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        if output is None:
            raise
        parts = sum(1 for _ in Path(output).glob("part-*"))
        click.echo(
            f"interrupted; {parts} finished part{'s' * (parts != 1)} in {output}: the same command "
            "goes on from there",
            err=True,
        )
        raise click.exceptions.Exit(130) from None


def _break_even(
    question: Scenario, *, field: str, between: str | None, measure: str, as_json: bool
) -> None:
    """Print where one design equals another."""
    import dataclasses

    from firstlight.errors import ScenarioError
    from firstlight.evaluate.analytic import Point
    from firstlight.evaluate.analytic.boundary import break_even

    names = [design.name for design in question.designs]
    pair = between.split(",") if between is not None else names[-1:] + names[-2:-1]
    if len(pair) != 2:  # a pair
        raise ScenarioError(f"--between {between!r}; allowed: ONE,OTHER of {', '.join(names)}")
    one, other = (name.strip() for name in pair)
    turn = break_even(Point(question), field=field, one=one, other=other, measure=measure)
    if as_json:
        text = json.dumps({"schema": 1, **dataclasses.asdict(turn)}, indent=2)
    elif turn.value is None:
        where = "wins" if turn.holds == "everywhere" else "loses"
        text = f"{one} {where} against {other} for every {field} from {turn.low:g} to {turn.high:g}"
    else:
        text = (
            f"{one} beats {other} with {field} {turn.holds} {turn.value:.4g}; "
            f"today {turn.today:.4g}, {turn.distance_ratio or 0.0:.3g}× away ({measure})"
        )
    with Destination(None) as destination:
        destination.write(text + "\n")


def _rows(swept: Swept) -> dict[str, object]:
    return {
        "schema": 1,
        "fields": swept.fields,
        "points": swept.points,
        "failed": swept.failed,
        "rows": [
            {
                key: None if isinstance(value, float) and not math.isfinite(value) else value
                for key, value in row.items()
            }
            for row in swept.rows
        ],
    }


def _plain(found: Uncertainty) -> dict[str, object]:
    def finite(value: float) -> float | None:
        return value if math.isfinite(value) else None

    return {
        "schema": 1,
        "fields": found.fields,
        "draws": len(found.draws),
        "first": found.first,
        "works_frac": found.works_frac,
        "wins_frac": {name: finite(value) for name, value in found.wins_frac.items()},
        "percentiles": {
            design: {
                name: dict(zip(("p10", "p50", "p90"), map(finite, values), strict=True))
                for name, values in measures.items()
            }
            for design, measures in found.percentiles.items()
        },
        "tornado": [
            {
                "field": bar.field, "low": bar.low, "high": bar.high, "ratio_low": bar.ratio_low,
                "ratio_high": bar.ratio_high, "status": bar.status,
            }
            for bar in found.tornado
        ],
        "sobol_total": found.sobol_total,
        "sobol_first": found.sobol_first,
        "measure_first": found.measure_first,
    }  # fmt: skip


_TITLES = {
    "goodput_request_per_s_per_w": ("goodput per kilowatt", 1e3, "requests/s/kW"),
    "energy_j_per_request": ("energy a request", 1.0, "J"),
    "cost_usd_per_request": ("cost of a thousand requests", 1e3, "$"),
    "carbon_g_per_request": ("carbon a request", 1e3, "mg"),
}


def uncertain_table(found: Uncertainty) -> str:
    """Return percentiles, wins, tornado and indices in 80 columns."""
    lines = [f"{len(found.draws)} draws of {len(found.fields)} uncertain inputs"]
    for design, share in found.works_frac.items():
        lines.append(f"  {design:22} meets the service level in {share:4.0%} of draws")
    for measure, (title, scale, unit) in _TITLES.items():
        head = f"{title} [{unit}]"
        lines += ["", f"{head:46}{'p10':>11}{'p50':>11}{'p90':>11}"]
        for design, spread in found.percentiles.items():
            cells = "".join(f"{value * scale:>11.4g}" for value in spread[measure])
            lines.append(f"  {design:44}{cells}")
        lines.append(f"  {found.first} is best in {found.wins_frac[measure]:.0%} of draws")
    lines += ["", f"one input at a time, {found.first} over its best rival (goodput per watt)"]
    lines.append(f"  {'':30}{'low':>11}{'high':>11}{'at low':>8}{'at high':>9}{'Sobol':>8}")
    for bar in found.tornado[:10]:
        total = found.sobol_total.get(bar.field)
        index = "–" if total is None else f"{total:.2f}"
        lines.append(
            f"  {bar.field:30}{bar.low:>11.4g}{bar.high:>11.4g}{bar.ratio_low:>8.2f}"
            f"{bar.ratio_high:>9.2f}{index:>8}"
        )
    if found.measure_first is not None:
        lines += [
            "",
            f"Worth measuring first: {found.measure_first}, which explains most of the answer.",
        ]
    return "\n".join(lines)


def swept_table(swept: Swept) -> str:
    """Return a summary of a sweep in 80 columns: one axis point by point, more by percentiles."""
    import numpy as np

    designs = list(dict.fromkeys(str(row["design"]) for row in swept.rows if row["design"]))
    counts = f"{swept.points:,} points, {swept.failed:,} failed, {swept.computed:,} computed"
    lines = [f"{counts} in {swept.seconds:,.1f} s"]
    if len(swept.fields) == 1 and swept.points <= 60:
        lines += ["", f"goodput [request/s] by {swept.fields[0]}"]
        width = max((len(name) for name in designs), default=0) + 2
        lines.append(f"{'':>14}" + "".join(f"{name:>{width}}" for name in designs))
        columns = [swept.column("goodput_request_per_s", design=name) for name in designs]
        points = {int(str(row["point"])): row for row in swept.rows}
        for index in range(swept.points):
            value = points[index][swept.fields[0]]
            shown = f"{value:>14.6g}" if isinstance(value, int | float) else f"{value!s:>14.14}"
            lines.append(
                shown
                + "".join(
                    f"{'–':>{width}}" if np.isnan(one[index]) else f"{one[index]:>{width},.1f}"
                    for one in columns
                )
            )
    else:
        lines += ["", f"{'goodput per kilowatt':24}{'p10':>10}{'p50':>10}{'p90':>10}{'works':>10}"]
        for name in designs:
            values = swept.column("goodput_request_per_s_per_w", design=name)
            works = values[np.isfinite(values)] * 1e3
            cells = [f"{'–':>10}"] * 3
            if len(works):
                cells = [f"{v:>10.4g}" for v in np.percentile(works, [10, 50, 90])]
            lines.append(f"{name:24}{''.join(cells)}{len(works) / swept.points:>10.0%}")
    for name in designs:
        mine = [row for row in swept.rows if row["design"] == name]
        if all(row["status"] == "infeasible" for row in mine):
            lines += _wrapped(f"{name} works at no point: {mine[0]['reason']}")
    failures = [row for row in swept.rows if row["status"] == "failed"]
    reasons = Counter(str(row["reason"]) for row in failures)
    for reason, times in reasons.most_common(3):
        lines += _wrapped(f"failed {times:,}×: {reason}")
    if swept.folder is not None:
        lines.append(f"kept in {swept.folder}")
    return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent="    ", break_on_hyphens=False)
