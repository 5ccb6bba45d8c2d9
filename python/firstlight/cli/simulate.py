"""`firstlight simulate`: one design under one load, request by request."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from firstlight.cli.destination import Destination
from firstlight.cli.question import SETTINGS_HELP, asked, load
from firstlight.errors import OutputError, ScenarioError, nearest

if TYPE_CHECKING:
    from firstlight.evaluate.question import Question
    from firstlight.evaluate.search import Found
    from firstlight.schedule import Outcome

_HELP = """\
Run one design of a scenario over its whole traffic and keep every request.

One cell of the fleet is simulated, at its share of the load. --table holds a row a request with what
it waited for (queue, prompt, answer); --timeline opens in chrome://tracing or Perfetto.

\b
Examples:
  firstlight simulate --design optical --table requests.csv
  firstlight simulate rack.toml --rate 800 --timeline cell.json --json

Exit status: 0 done; 1 no cell of the design can meet the service level; 2 bad input.
"""

QUANTILES = (0.5, 0.9, 0.99)


@click.command("simulate", help=_HELP)
@click.argument("scenario", required=False)
@click.option("--design", metavar="NAME", help="The design; the scenario's first without it.")
@click.option("--rate", metavar="R", callback=load, help="Requests a second of the whole fleet.")
@click.option("--table", metavar="FILE", help="Write a row a request: .csv or .parquet.")
@click.option("--timeline", metavar="FILE", help="Write what every replica did, as a Chrome trace.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, SI units.")
@click.option("--seed", type=click.IntRange(min=0), help="Seed of everything random.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help=SETTINGS_HELP)
def command(
    *,
    scenario: str | None,
    design: str | None,
    rate: float | None,
    table: str | None,
    timeline: str | None,
    as_json: bool,
    seed: int | None,
    settings: tuple[str, ...],
) -> None:
    """Find the design's cell, run it, write what was asked for."""
    from firstlight import schedule
    from firstlight.evaluate import question

    resolved = question.resolve(asked(scenario, settings=settings, seed=seed))
    found, outcome = _run(resolved, design=design, rate=rate, record=timeline is not None)
    if table is not None and table == timeline:
        raise OutputError(f"{table}: --table and --timeline name one file; allowed: two")
    if table is not None:
        schedule.write_table(outcome, path=table)
    if timeline is not None:
        schedule.write_timeline(outcome, fleet=found.cell.fleet, path=timeline)
    summary = _summary(found, outcome)
    with Destination(None) as destination:
        destination.write(json.dumps(summary, indent=1) + "\n" if as_json else _text(summary))


def _run(
    resolved: Question, *, design: str | None, rate: float | None, record: bool
) -> tuple[Found, Outcome]:
    from firstlight import schedule
    from firstlight.evaluate import search

    designs = {one.name: one for one in resolved.scenario.designs}
    name = next(iter(designs)) if design is None else design
    if name not in designs:
        raise ScenarioError(
            f"--design {name!r} is not allowed; one of {', '.join(designs)}{nearest(name, designs)}"
        )
    plan = resolved.plan(designs[name])
    sample = resolved.sample([plan])
    found = search.best_cell(plan, traffic=sample, slo=resolved.slo, budget=resolved.budget)
    cell_rate = found.rate_request_per_s if rate is None else rate / found.cells
    full = resolved.whole(sample, most=max(cell_rate, found.rate_request_per_s))
    return found, schedule.run(found.cell.fleet, full.at(cell_rate), record=record)


def _summary(found: Found, outcome: Outcome) -> dict[str, Any]:
    import numpy as np

    from firstlight import schedule

    table = schedule.request_table(outcome)
    times = {
        f"{name}_p{round(100 * quantile)}": float(np.nanquantile(table[name], quantile))
        for name in ("queue_s", "ttft_s", "tpot_s", "e2e_s")
        for quantile in QUANTILES
        if np.isfinite(table[name]).any()
    }
    pools = [
        {"name": pool.name, "replicas": pool.replicas, **counters}
        for pool, counters in zip(found.cell.fleet.pools, outcome.total, strict=True)
    ]
    return {
        "cells": found.cells,
        "requests": len(outcome.arrivals),
        "done": int((table["state"] == "done").sum()),
        "span_s": outcome.end_ps / 1e12,
        "events": outcome.events,
        **times,
        "pools": pools,
    }


def _text(summary: dict[str, Any]) -> str:
    lines = [
        f"one of {summary['cells']} cells: {summary['done']:,} of {summary['requests']:,} requests "
        f"served in {summary['span_s']:,.0f} s",
        "",
        f"{'':14}{'p50':>10}{'p90':>10}{'p99':>10}",
    ]
    for name, label in (
        ("queue_s", "in the queue"),
        ("ttft_s", "first token"),
        ("tpot_s", "a token"),
        ("e2e_s", "last token"),
    ):
        cells = (summary.get(f"{name}_p{round(100 * quantile)}") for quantile in QUANTILES)
        lines.append(
            f"{label:14}"
            + "".join(f"{'–' if cell is None else f'{cell:.4g} s':>10}" for cell in cells)
        )
    lines.append("")
    for pool in summary["pools"]:
        busy_s = (pool["prefill_ps"] + pool["decode_ps"]) / 1e12
        busy = busy_s / (pool["replicas"] * summary["span_s"])
        lines.append(
            f"{pool['name']}: {pool['replicas']} replicas, {busy:.0%} busy, "
            f"{pool['steps']:,} steps, {pool['preemptions']:,} preemptions"
        )
    return "\n".join(lines) + "\n"
