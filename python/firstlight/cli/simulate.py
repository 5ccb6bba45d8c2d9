"""`firstlight simulate`: one design under one load, request by request."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import click

from firstlight.cli.destination import Destination
from firstlight.cli.question import SETTINGS_HELP, asked, load
from firstlight.cli.simulate_drafts import HELP as SPECULATE_HELP
from firstlight.cli.simulate_drafts import line as drafts_line
from firstlight.cli.simulate_drafts import speculating
from firstlight.cli.simulate_fault import HELP as FAULT_HELP
from firstlight.errors import InfeasibleError, OutputError, ScenarioError, nearest
from firstlight.units import parse

if TYPE_CHECKING:
    from firstlight.evaluate.capacity import Slo
    from firstlight.evaluate.question import Question
    from firstlight.evaluate.search import Found
    from firstlight.schedule import Arrivals, Fleet, Outcome

_HELP = """\
Run one design of a scenario over its whole traffic and keep every request.

One cell of the fleet is simulated, at its share of the load. --table holds a row a request with what
it waited for (queue, prompt, answer); --timeline opens in chrome://tracing or Perfetto.

\b
Examples:
  firstlight simulate --design optical+gpu --table requests.csv
  firstlight simulate rack.toml --rate 800 --timeline cell.json --json
  firstlight simulate --design gpu-colocated --batching sglang
  firstlight simulate --design optical+gpu --fault "t=600s server=0 down=300s"
  firstlight simulate --design gpu-colocated --speculate "k=4 accept=0.7 draft=0.02"

Exit status: 0 done; 1 no cell of the design can meet the service level; 2 bad input.
"""

QUANTILES = (0.5, 0.9, 0.99)
BATCHING: dict[str, Literal["vllm", "sglang", "orca", "static"]] = {
    "vllm-v1": "vllm",
    "sglang": "sglang",
    "orca": "orca",
    "static": "static",
}


@click.command("simulate", help=_HELP)
@click.argument("scenario", required=False)
@click.option("--design", metavar="NAME", help="The design; the scenario's first without it.")
@click.option("--rate", metavar="R", callback=load, help="Requests a second of the whole fleet.")
@click.option("--table", metavar="FILE", help="Write a row a request: .csv or .parquet.")
@click.option("--timeline", metavar="FILE", help="Write what every replica did, as a Chrome trace.")
@click.option(
    "--batching",
    type=click.Choice(tuple(BATCHING)),
    default="vllm-v1",
    show_default=True,
    help="Step rule of the design's replicas.",
)
@click.option(
    "--routing",
    type=click.Choice(("least-load", "round-robin", "prefix-aware", "least-ttft")),
    default="least-load",
    show_default=True,
    help="Which replica takes a request.",
)
@click.option(
    "--cap",
    metavar="POWER",
    help="Most power of the cell's devices above idle, shared by its replicas: 20kW.",
)
@click.option(
    "--governor",
    metavar="TIME",
    help="Move the watts of --cap between prefill and decode, looking this often: 100ms.",
)
@click.option("--speculate", metavar="WORDS", help=SPECULATE_HELP)
@click.option("--fault", "faults", multiple=True, metavar="WORDS", help=FAULT_HELP)
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
    batching: str,
    routing: Literal["least-load", "round-robin", "prefix-aware", "least-ttft"],
    cap: str | None,
    governor: str | None,
    speculate: str | None,
    faults: tuple[str, ...],
    as_json: bool,
    seed: int | None,
    settings: tuple[str, ...],
) -> None:
    """Find the design's cell, run it, write what was asked for."""
    from firstlight import schedule
    from firstlight.cli import simulate_fault
    from firstlight.evaluate import question

    resolved = question.resolve(asked(scenario, settings=settings, seed=seed))
    found, arrivals, load = _cell(resolved, design=design, rate=rate)
    fleet = replace(
        found.cell.fleet,
        pools=tuple(replace(pool, policy=BATCHING[batching]) for pool in found.cell.fleet.pools),
        routing=schedule.Routing(policy=routing),
    )
    fleet = _capped(fleet, cap=cap, governor=governor)
    if speculate is not None:
        fleet = speculating(fleet, speculate, seed=resolved.scenario.seed)
    broken = simulate_fault.faults(faults, cell=found.cell, fleet=fleet)
    outcome = schedule.run(fleet, arrivals, record=timeline is not None, faults=broken)
    if table is not None and table == timeline:
        raise OutputError(f"{table}: --table and --timeline name one file; allowed: two")
    if table is not None:
        schedule.write_table(outcome, path=table)
    if timeline is not None:
        schedule.write_timeline(outcome, fleet=fleet, path=timeline)
    summary = _summary(found, outcome, slo=resolved.slo, load=load)
    if broken:
        whole = schedule.run(fleet, arrivals)
        summary["faults"] = len(faults)
        summary["met_frac_without_faults"] = _met(whole, slo=resolved.slo)
    with Destination(None) as destination:
        destination.write(json.dumps(summary, indent=1) + "\n" if as_json else _text(summary))


def _capped(fleet: Fleet, *, cap: str | None, governor: str | None) -> Fleet:
    """Return the fleet under one cap for all its replicas, with who moves its watts."""
    from firstlight import schedule

    if cap is None:
        if governor is not None:
            raise ScenarioError(f"--governor {governor} needs --cap, the watts it moves")
        return fleet
    cap_w = parse(cap, "W")
    if not cap_w > 0:
        raise ScenarioError(f"--cap {cap} is not allowed; above 0, in watts above idle")
    if governor is None:
        each_w = cap_w / sum(pool.replicas for pool in fleet.pools)
        return replace(fleet, pools=tuple(replace(pool, cap_w=each_w) for pool in fleet.pools))
    caps_w = schedule.shared_caps_w(fleet, cap_w=cap_w)
    tick_ps = round(parse(governor, "s") * 1e12)
    if tick_ps < 0:
        raise ScenarioError(f"--governor {governor} is not allowed; 1 us or more")
    return replace(
        fleet,
        governor=schedule.Governor(tick_ps=tick_ps, caps_w=caps_w, first=len(caps_w) // 2),
    )


def _cell(
    resolved: Question, *, design: str | None, rate: float | None
) -> tuple[Found, Arrivals, float]:
    """Return a design's cell, what comes to it, and the load of the fleet [request/s]."""
    from firstlight.evaluate import search
    from firstlight.evaluate.compare import MORE_THAN_SAMPLE
    from firstlight.evaluate.design import solve

    designs = {one.name: one for one in resolved.scenario.designs}
    name = next(iter(designs)) if design is None else design
    if name not in designs:
        raise ScenarioError(
            f"--design {name!r} is not allowed; one of {', '.join(designs)}{nearest(name, designs)}"
        )
    plan = resolved.plan(designs[name])
    sample = resolved.sample([plan])
    found = search.best_cell(plan, traffic=sample, slo=resolved.slo, budget=resolved.budget)
    if rate is not None:
        full = resolved.whole(sample, most=max(rate / found.cells, found.rate_request_per_s))
        return found, full.at(rate / found.cells), rate
    # The load that compare finds: what the whole time carries, not what the sample does.
    full = resolved.whole(sample, most=MORE_THAN_SAMPLE * found.rate_request_per_s)
    solved = solve(plan, found, full=full, slo=resolved.slo, budget=resolved.budget)
    if solved.measured is None:
        raise InfeasibleError(f"{name}: {solved.reason}")
    cell_rate = solved.measured.rate_request_per_s
    return found, full.at(cell_rate), cell_rate * found.cells


def _met(outcome: Outcome, *, slo: Slo) -> float:
    """Return the share of all requests that met both limits."""
    import numpy as np

    from firstlight import schedule

    table = schedule.request_table(outcome)
    rest_ok = (table["osl_tok"] == 1) | (table["tpot_s"] <= slo.tpot_s)
    met = (table["state"] == "done") & (table["ttft_s"] <= slo.ttft_s) & rest_ok
    return float(np.mean(met)) if len(met) else 1.0


def _summary(found: Found, outcome: Outcome, *, slo: Slo, load: float) -> dict[str, Any]:
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
        "load_request_per_s": load,
        "requests": len(outcome.arrivals),
        "done": int((table["state"] == "done").sum()),
        "span_s": outcome.end_ps / 1e12,
        "events": outcome.events,
        "met_frac": _met(outcome, slo=slo),
        **times,
        "pools": pools,
    }


def _text(summary: dict[str, Any]) -> str:
    lines = [
        f"load of the fleet: {summary['load_request_per_s']:,.4g} requests/s",
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
            + "".join(f"{'–' if cell is None else _seconds(cell):>10}" for cell in cells)
        )
    lines.append(f"{'within limits':14}{summary['met_frac']:>10.2%}")
    if "faults" in summary:
        moved = sum(pool["rerouted"] for pool in summary["pools"])
        lost = sum(pool["lost_tok"] for pool in summary["pools"])
        lines[-1] += f" ({summary['met_frac_without_faults']:.2%} without the faults)"
        lines.append(f"faults: {moved:,} requests routed anew, KV of {lost:,} tokens lost")
    if any(pool["drafted_tok"] for pool in summary["pools"]):
        lines.append(drafts_line(summary["pools"]))
    lines.append("")
    for pool in summary["pools"]:
        busy_s = (pool["prefill_ps"] + pool["decode_ps"]) / 1e12
        busy = busy_s / (pool["replicas"] * summary["span_s"])
        lines.append(
            f"{pool['name']}: {pool['replicas']} replicas, {busy:.0%} busy, "
            f"{pool['steps']:,} steps, {pool['preemptions']:,} preemptions"
        )
    return "\n".join(lines) + "\n"


def _seconds(time_s: float) -> str:
    """Return a time in at most nine characters, so that columns stay apart."""
    return f"{time_s:.4g} s" if time_s >= 0.01 else f"{time_s:.3g} s"
