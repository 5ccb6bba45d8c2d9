"""An answer as a page of tables: for a terminal of any width, or in Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from firstlight.report import delivered, margins
from firstlight.report.layout import (
    Grid,
    Heading,
    Paragraph,
    Points,
    plain,
    to_markdown,
    to_terminal,
)
from firstlight.report.status import LEGEND, Letters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from firstlight.evaluate.answer import Comparison
    from firstlight.report.layout import Block, Style

Form = Literal["terminal", "markdown"]


def tables(
    comparison: Comparison,
    *,
    form: Form = "terminal",
    width: int = 80,
    style: Style = plain,
    at_given_load: bool = False,
) -> str:
    """Return an answer as text.

    Args:
        comparison: The answer.
        form: For a terminal, or a Markdown page.
        width: Columns of the terminal; no line is wider.
        style: Dresses the lines of a terminal.
        at_given_load: Whether a load was given; else each design is at its capacity.

    Example:
        >>> print(tables(compare(Scenario.default())))  # doctest: +SKIP
    """
    return _written(
        _page(comparison, at_given_load=at_given_load), form=form, width=width, style=style
    )


def sources(
    comparison: Comparison, *, form: Form = "terminal", width: int = 80, style: Style = plain
) -> str:
    """Return where every number of an answer comes from, grouped by source.

    Args:
        comparison: The answer.
        form: For a terminal, or a Markdown page.
        width: Columns of the terminal; no line is wider.
        style: Dresses the lines of a terminal.
    """
    return _written(_sources(comparison), form=form, width=width, style=style)


def _written(blocks: Iterator[Block], *, form: Form, width: int, style: Style) -> str:
    if form == "markdown":
        return to_markdown(blocks)
    return to_terminal(blocks, width=width, style=style)


def _page(comparison: Comparison, *, at_given_load: bool) -> Iterator[Block]:
    letters = Letters(comparison)
    yield Paragraph(comparison.answer)
    yield Paragraph(_asked(comparison, letters))
    feasible = any(design.power_w is not None for design in comparison.designs)
    where = (
        "at the load given" if at_given_load else "at the highest load that meets the service level"
    )
    yield Heading(f"What each design delivers {where}")
    if feasible:
        yield delivered.results(comparison, letters)
        if delivered.is_always_stepping(comparison):
            yield Paragraph(
                "Busy is the share of time in a step, and a replica steps whenever anything waits: "
                "100 % is not full."
            )
    yield from delivered.misses(comparison, letters)
    if feasible:
        yield from margins.band(comparison, letters)
        yield from margins.retrofit(comparison, letters)
        yield Heading("Energy of a request by part, at the facility")
        yield delivered.parts(comparison, letters)
        yield Heading("Three scopes: energy of a request, and gain over each GPU design")
        yield delivered.scopes(comparison, letters)
        yield from margins.ratios(comparison, letters)
    yield from margins.break_even(comparison, letters)
    yield from margins.equal_load(comparison, letters)
    yield from margins.bursts(comparison, letters)
    yield from delivered.binding(comparison)
    yield from delivered.cells(comparison)
    # why a design is not feasible is told above
    told = [design.reason for design in comparison.designs if design.reason]
    rest = tuple(
        line for line in comparison.warnings if not any(line.endswith(why) for why in told)
    )
    if rest:
        yield Heading("Mind")
        yield Points(rest)
    yield Paragraph(f"Letters after numbers: {LEGEND}; a result is as weak as its weakest input.")


def _asked(comparison: Comparison, letters: Letters) -> str:
    """Return the question in a sentence, each input with its letter."""

    def given(name: str, unit: str = "") -> str:
        fact = letters.fact(f"scenario.{name}")
        if fact is None or fact.value is None:
            return "?"
        text = delivered.quantity(fact.value, unit or fact.unit)
        return f"{text} {letters.of(f'scenario.{name}')}"

    work = comparison.workload
    spread = ""
    if "count_cv_10s" in work:
        spread = f", count CV {delivered.number(work['count_cv_10s'], digits=2)} in 10 s"
    return (
        f"{comparison.scenario}: model {given('model')}, weights {given('precision.weights')}, "
        f"KV {given('precision.kv')}; traffic {work['trace']}, mean prompt "
        f"{delivered.number(work['mean_input_tok'])} tok ({given('workload.cached_frac')} of it "
        f"cached), mean answer {delivered.number(work['mean_output_tok'])} tok{spread}; "
        f"{given('slo.quantile')} of requests with TTFT ≤ {given('slo.ttft_s')} and TPOT ≤ "
        f"{given('slo.tpot_s')}; {given('facility.power_w')} at the "
        f"{given('facility.boundary')}, PUE {given('facility.pue')}, "
        f"{given('facility.electricity_usd_per_kwh')}; seed {comparison.seed}."
    )


def _sources(comparison: Comparison) -> Iterator[Block]:
    by_source: dict[str, list[tuple[str, ...]]] = {}
    for fact in comparison.provenance:
        value = "table" if fact.value is None else delivered.quantity(fact.value, fact.unit)
        by_source.setdefault(f"{fact.source} ({fact.date})", []).append(
            (fact.path, value, fact.status)
        )
    yield Heading(f"Where the numbers come from: {len(comparison.provenance)} values")
    for source, rows in by_source.items():
        yield Paragraph(source)
        yield Grid(("", "", ""), tuple(rows), words=True)
