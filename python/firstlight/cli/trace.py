"""`firstlight trace`: read, check, convert and make request traces."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from firstlight.workload import Summary, Trace


@click.group("trace")
def command() -> None:
    """Read, check, convert and make request traces.

    A trace is a preset (chat, code, rag, agentic, reasoning), a shipped hour (azure-2023-conv,
    azure-2023-code) or a file: CSV of Azure, Vidur or our own columns, Mooncake JSONL, packed .npz;
    .gz and .zst are unpacked.
    """


HOUR_S = 3600.0

_sort = click.option("--sort", is_flag=True, help="Accept rows out of order and sort them.")
_seed = click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
_output = click.option("-o", "--output", required=True, help="File to write; its suffix decides.")
_json = click.option("--json", "as_json", is_flag=True, help="One JSON document.")


@command.command("info")
@click.argument("trace")
@_json
@_sort
@_seed
def info(trace: str, *, as_json: bool, sort: bool, seed: int) -> None:
    """Print rate, burstiness and lengths of TRACE."""
    from firstlight import workload

    summary = workload.summarize(workload.load(trace, seed=seed, sort=sort))
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(summary), indent=2, allow_nan=False))
    else:
        click.echo(_table(summary))


@command.command("convert")
@click.argument("trace")
@_output
@_sort
@_seed
@click.option("--context-tok", type=float, help="Scale prompts to this mean.")
@click.option("--output-tok", type=float, help="Scale answers to this mean.")
@click.option("--max-context-tok", type=int, help="Clip prompt and answer together to this.")
@click.option("--source", help="Where the trace comes from; kept in .npz.")
def convert(
    trace: str,
    *,
    output: str,
    sort: bool,
    seed: int,
    context_tok: float | None,
    output_tok: float | None,
    max_context_tok: int | None,
    source: str | None,
) -> None:
    """Write TRACE in another format: .csv, .jsonl (both also .gz) or .npz."""
    from firstlight import workload

    scaled = workload.scale_lengths(
        workload.load(trace, seed=seed, sort=sort),
        context_tok=context_tok,
        output_tok=output_tok,
        max_context_tok=max_context_tok,
    )
    if scaled.clipped_frac:
        click.echo(f"{scaled.clipped_frac:.1%} of requests clipped to fit", err=True)
    written = scaled.trace
    if source is not None:
        written = dataclasses.replace(written, source=source)
    _write(written, output=output)


@command.command("make")
@_output
@_seed
@click.option("--preset", "preset_name",
              help="Draw its lengths: rag, agentic, reasoning; chat and code are written as recorded.")  # fmt: skip
@click.option("--rate", "request_per_s", type=float, help="Mean arrivals a second.")
@click.option("--duration", "duration_s", type=float, default=HOUR_S, show_default=True)
@click.option("--isl", "isl_tok", type=int, help="Prompt tokens of every request.")
@click.option("--osl", "osl_tok", type=int, help="Answer tokens of every request.")
def make(
    *,
    output: str,
    seed: int,
    preset_name: str | None,
    request_per_s: float | None,
    duration_s: float,
    isl_tok: int | None,
    osl_tok: int | None,
) -> None:
    """Draw a trace with Poisson arrivals, lengths of a preset or fixed ones.

    Of the presets chat and code nothing is drawn: they are recorded hours (azure-2023-conv,
    azure-2023-code) and written as they are.
    """
    from firstlight import workload
    from firstlight.errors import TraceError, nearest

    isl: workload.LengthLaw | int | None = isl_tok
    osl: workload.LengthLaw | int | None = osl_tok
    rate = request_per_s
    if preset_name is not None:
        drawn = {name: kind for name, kind in workload.PRESETS.items() if kind.isl is not None}
        if preset_name in workload.PRESETS and preset_name not in drawn:
            if (isl, osl, rate, duration_s) != (None, None, None, HOUR_S):
                raise TraceError(
                    f"--preset {preset_name} is the recorded hour {workload.PRESETS[preset_name].trace}; "
                    "allowed: no --rate, --duration, --isl, --osl with it (`firstlight trace convert "
                    f"{preset_name}` scales its lengths)"
                )
            _write(workload.load(preset_name), output=output)
            return
        if preset_name not in drawn:
            raise TraceError(
                f"unknown --preset {preset_name!r}; one of {', '.join(workload.PRESETS)}"
                f"{nearest(preset_name, workload.PRESETS)}"
            )
        kind = drawn[preset_name]
        isl = kind.isl if isl is None else isl
        osl = kind.osl if osl is None else osl
        rate = kind.request_per_s if rate is None else rate
    if isl is None or osl is None or rate is None:
        raise TraceError("trace make: give --preset, or --rate, --isl and --osl")
    made = workload.poisson_trace(
        rate, duration_s=duration_s, isl=isl, osl=osl, seed=seed, name=preset_name or "poisson"
    )
    _write(made, output=output)


def _write(trace: Trace, *, output: str) -> None:
    from firstlight import workload

    path = workload.write_trace(trace, path=output)
    click.echo(f"{path}: {len(trace)} requests", err=True)


def _table(summary: Summary) -> str:
    def number(value: float | None) -> str:
        return "?" if value is None else f"{value:,.2f}"

    rate = summary.request_per_s
    poisson = [number((bin_s * rate) ** -0.5) for bin_s in (1.0, 10.0)]
    lines = [
        summary.name,
        f"  {summary.source}",
        "",
        f"  requests       {summary.requests:>12,}",
        f"  duration       {summary.duration_s:>12,.1f} s",
        f"  rate           {rate:>12,.3f} requests/s",
        f"  gap CV         {number(summary.interarrival_cv):>12}   (Poisson: 1)",
        f"  count CV, 1 s  {number(summary.count_cv_1s):>12}   (Poisson: {poisson[0]})",
        f"  count CV, 10 s {number(summary.count_cv_10s):>12}   (Poisson: {poisson[1]})",
        "",
        f"  {'tokens':<9}{'mean':>10}{'p50':>10}{'p90':>10}{'p99':>10}{'max':>12}",
    ]
    for name, facts in (("prompt", summary.isl_tok), ("answer", summary.osl_tok)):
        lines.append(
            f"  {name:<9}{facts['mean']:>10,.1f}{facts['p50']:>10,.0f}{facts['p90']:>10,.0f}"
            f"{facts['p99']:>10,.0f}{facts['max']:>12,.0f}"
        )
    return "\n".join(lines)
