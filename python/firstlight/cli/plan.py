"""`firstlight plan`: the best mix under power, service level, money and room; what binds next."""

from __future__ import annotations

import json
import math
import textwrap
from typing import TYPE_CHECKING, Any

import click

from firstlight.cli import progress
from firstlight.cli.destination import Destination
from firstlight.cli.question import SETTINGS_HELP, asked
from firstlight.errors import ScenarioError

if TYPE_CHECKING:
    from firstlight.plan import Plan

WIDTH = 80
NAME_WIDTH = 40
_OBJECTIVES = ("goodput-per-watt", "goodput", "cost", "carbon")


@click.command("plan")
@click.argument("scenario", required=False)
@click.option(
    "--objective", type=click.Choice(_OBJECTIVES), default=_OBJECTIVES[0], show_default=True
)
@click.option("--price", "price_usd", type=float, metavar="USD", help="Most money for servers.")
@click.option("--servers", "max_servers", type=int, metavar="N", help="Most servers.")
@click.option("--most-racks", "max_racks", type=int, metavar="N",
              help="Most racks, each of facility.rack_power_w (35 kW of air when it is not set).")  # fmt: skip
@click.option("--cooling", type=click.Choice(["any", "air"]), default="any", show_default=True)
@click.option("--use", "servers", multiple=True, metavar="ID", help="Only these servers.")
@click.option("--chunk", "chunks", multiple=True, metavar="TOK", help="Token budgets to try; auto.")
@click.option("--engines", "engines", multiple=True, type=click.IntRange(1, 1000), metavar="N",
              help="Engines in an optical server to try, as often as needed.")  # fmt: skip
@click.option("--survivors", type=click.IntRange(min=1), default=3, show_default=True,
              help="Designs that are simulated.")  # fmt: skip
@click.option("--racks", type=click.IntRange(min=0), default=6, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), help="Seed of everything random.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help=SETTINGS_HELP)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("-o", "--output", metavar="FILE", help="Write there: the whole answer or nothing.")
def command(
    scenario: str | None,
    *,
    objective: str,
    price_usd: float | None,
    max_servers: int | None,
    max_racks: int | None,
    cooling: str,
    servers: tuple[str, ...],
    chunks: tuple[str, ...],
    engines: tuple[int, ...],
    survivors: int,
    racks: int,
    seed: int | None,
    settings: tuple[str, ...],
    as_json: bool,
    output: str | None,
) -> None:
    """Plan for SCENARIO, the shipped one when none is given.

    Every design of the space is screened by closed form; the best are simulated on a sample of the
    traffic, and those that may win over the whole time. Exit status 1: nothing fits, and the message names the cheapest relaxation.
    """
    from firstlight.plan.run import plan

    question = asked(scenario, settings=settings, seed=seed)
    with Destination(output) as destination:
        with progress.shown("planning") as tell:
            found = plan(
                question,
                objective=objective,  # type: ignore[arg-type]  # click has checked it
                price_usd=price_usd,
                max_servers=max_servers,
                max_racks=max_racks,
                cooling=cooling,  # type: ignore[arg-type]  # click has checked it
                servers=servers,
                chunks=_chunks(chunks),
                engines=engines or (None,),
                survivors=survivors,
                racks=racks,
                progress=tell,
            )
        text = json.dumps(document(found), indent=2, allow_nan=False) if as_json else table(found)
        destination.write(text + "\n")


def _chunks(given: tuple[str, ...]) -> tuple[Any, ...]:
    if not given:
        return ("auto",)
    found: list[int | str] = []
    for word in given:
        if word == "auto":
            found.append(word)
        elif word.isdigit() and int(word) > 0:
            found.append(int(word))
        else:
            raise ScenarioError(f"--chunk {word!r}; allowed: tokens, or auto")
    return tuple(found)


def document(found: Plan) -> dict[str, Any]:
    """Return a plan as one JSON document."""
    import dataclasses

    from firstlight.evaluate import Design

    def plain(value: Any) -> Any:  # noqa: ANN401  # whatever a plan holds
        if isinstance(value, float) and not math.isfinite(value):
            return None
        if isinstance(value, Design):
            return plain(
                {
                    "goodput_request_per_s": value.goodput_request_per_s,
                    "energy_j_per_request": value.energy_j_per_request,
                    "cost_usd_per_mtok_blended": value.cost_usd_per_mtok_blended,
                    "carbon_g_per_request": value.carbon_g_per_request,
                    "servers": dict(value.servers),
                }
            )
        if type(value).__name__ == "Candidate":
            return {
                "design": value.plan.name,
                "price_usd": plain(value.price_usd),
                "estimate": plain(dataclasses.asdict(value.estimate)),
            }
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        if isinstance(value, dict):
            return {str(key): plain(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        return value

    built: dict[str, Any] = {"schema": 1, **plain(found)}
    return built


def table(found: Plan) -> str:
    """Return a plan in 80 columns."""
    best = found.best
    how = "all" if found.exact else "not all"
    lines = [f"best by {found.objective}: {best.candidate.plan.name}"]
    lines.append(f"  {_servers(best.simulated.servers)}, {_money(best.candidate.price_usd)} to buy")
    lines.append(
        f"  {found.tried} designs screened ({how} of the space), {len(found.survivors)} simulated"
    )
    lines += _light_lines(found)
    lines += [
        "",
        f"{'simulated over the whole time':41}{'req/s':>9}{'req/s/kW':>10}{'J/req':>9}{'$/Mtok':>11}",
    ]
    for one in found.survivors:
        record = one.simulated
        power = record.power_w.provisioned if record.power_w is not None else math.nan
        name = one.candidate.plan.name + ("" if one.whole else " *")
        if len(name) > NAME_WIDTH:
            lines.append(name)
            name = ""
        lines.append(
            f"{name:{NAME_WIDTH + 1}}{record.goodput_request_per_s:>9,.0f}"
            f"{record.goodput_request_per_s / power * 1e3:>10.3g}"
            f"{record.energy_j_per_request or math.nan:>9.4g}"
            f"{record.cost_usd_per_mtok_blended or math.nan:>11.3g}"
        )
    if not all(one.whole for one in found.survivors):
        lines.append("* on a sample of it: too far behind the best")
    lines += ["", "no other design is better in goodput per watt, cost and carbon at once:"]
    lines += [f"  {candidate.plan.name}" for candidate in found.front]
    lines += ["", f"binds: {found.binds[0]}; then {found.binds[1]}"]
    for margin in found.margins:
        worth = "" if math.isnan(margin.per_unit) or margin.unit not in {"W", "$", "server"} else (
            f"{_per_unit(margin.per_unit, margin.unit):>32}"
        )  # fmt: skip
        lines.append(f"  {margin.resource:18}{margin.elasticity:>7.2f} % a per cent{worth}")
    lines += ["", "share of requests within the limits, by load [request/s], on a sample"]
    lines.append("  " + "".join(f"{rate:>11,.0f}" for rate, _ in found.attainment))
    lines.append("  " + "".join(f"{share:>11.1%}" for _, share in found.attainment))
    lines += ["", f"{'frontier':41}{'tok/s/user':>12}{'tok/s/MW':>13}{'J/tok':>10}"]
    for point in found.frontier:
        lines.append(
            f"{point.design[:NAME_WIDTH]:{NAME_WIDTH + 1}}{point.tok_per_s_user:>12.1f}{point.tok_per_s_mw:>13,.0f}"
            f"{point.energy_j_per_tok:>10.3g}"
        )
    if found.upgrade:
        lines += ["", "the power of one rack at a time (every six months); a rack holds one kind"]
    for step in found.upgrade:
        lines.append(
            f"  {step.step}: + {_servers(step.adds)} → {step.goodput_request_per_s:,.0f} requests/s "
            f"in {step.racks} rack{'s' if step.racks > 1 else ''}"
        )
    if found.retrofit is not None:
        lines += ["", "on what is installed:"]
        lines += [f"  {name} = {value:.4g}" for name, value in found.retrofit.items()]
    return "\n".join(folded for line in lines for folded in _folded(line))


def _folded(line: str) -> list[str]:
    """Return a line as lines of at most 80 columns."""
    if len(line) <= WIDTH:
        return [line]
    return textwrap.wrap(line, WIDTH, subsequent_indent="    ", break_on_hyphens=False)


def _light_lines(found: Plan) -> list[str]:
    if found.reload is None or found.silicon is None:
        return []
    mine = found.best.candidate.estimate.goodput_request_per_s_per_w
    ratio = mine / found.silicon.estimate.goodput_request_per_s_per_w
    lines = [
        f"  {ratio:.2g}× the goodput per watt of {found.silicon.plan.name}, the best without light"
    ]
    turn = found.reload
    if turn.value is not None:
        lines.append(
            f"  as long as a mask reloads in {turn.value * 1e6:.3g} µs, both designs as they are here "
            f"(assumed {turn.today * 1e6:.3g} µs; nobody has disclosed it)"
        )
    return lines


def _servers(servers: dict[str, int]) -> str:
    return " + ".join(f"{n} {name}" for name, n in servers.items())


def _money(usd: float) -> str:
    return f"{usd / 1e6:,.1f} M$"


def _per_unit(value: float, unit: str) -> str:
    scale, name = {"W": (1e3, "kW"), "$": (1e6, "M$"), "server": (1.0, "server")}[unit]
    return f"{value * scale:+,.1f} requests/s a {name}"
