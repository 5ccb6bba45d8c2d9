"""How far the answer carries: the band, the ratios, where it turns, and the same load for all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight import units
from firstlight.report.delivered import NONE, number
from firstlight.report.layout import Grid, Heading, Points

if TYPE_CHECKING:
    from collections.abc import Iterator

    from firstlight.evaluate.answer import BreakEven, Comparison, Design, End
    from firstlight.report.layout import Block
    from firstlight.report.status import Letters

_INPUTS = {
    "t_reload_s": "time to reload a mask",
    "f_cycle_hz": "optical clock",
    "optical_price_ratio": "price a watt, GPU = 1",
}


def band(comparison: Comparison, letters: Letters) -> Iterator[Block]:
    """Yield both ends of what the undisclosed inputs of an optical design allow."""
    for design in comparison.designs:
        if design.band is None:
            continue
        ends = {"conservative": design.band.conservative, "optimistic": design.band.optimistic}
        letter = letters.of_design(design.name)
        yield Heading(f"{design.name} as a band: its engine's inputs are not disclosed")
        yield Grid(
            ("", "requests/s", "requests/s a kW", "J a request", "$ a 1000 requests"),
            tuple((f"{end}: {found.server}", *_end(found, letter)) for end, found in ends.items()),
        )
        failed = [
            f"{end} end: not feasible: {found.reason}"
            for end, found in ends.items()
            if not found.feasible
        ]
        if failed:
            yield Points(tuple(failed))


def _end(found: End, letter: str) -> tuple[str, ...]:
    if not found.feasible:
        return (f"0 {letter}", f"0 {letter}", NONE, NONE)
    usd = found.cost_usd_per_request
    return (
        f"{number(found.goodput_request_per_s)} {letter}",
        f"{units.format_si(found.goodput_request_per_s_per_w * 1000.0, '1')} {letter}",
        f"{units.format_si(found.energy_j_per_request, '1')} {letter}",
        f"{units.format_si(None if usd is None else usd * 1000.0, '1')} {letter}",
    )


def retrofit(comparison: Comparison, letters: Letters) -> Iterator[Block]:
    """Yield what adding to the installed servers brings."""
    lines = []
    for design in comparison.designs:
        if design.retrofit is None:
            continue
        letter = letters.of_design(design.name)
        extra = design.retrofit.get("extra_goodput_request_per_s")
        price = design.retrofit.get("marginal_usd_per_mtok")
        lines.append(
            f"{design.name}: {number(extra)} {letter} requests/s more within limits than the better "
            f"GPU design on the installed servers, at {units.format_si(price, '1')} {letter} $ a "
            "million extra tokens"
        )
    if lines:
        yield Heading("Added to the servers that stand")
        yield Points(tuple(lines))


def ratios(comparison: Comparison, letters: Letters) -> Iterator[Block]:
    """Yield optical over each GPU design, on each silicon."""
    if not comparison.ratios:
        return
    letter = letters.of_all
    rows = []
    for ratio in comparison.ratios:
        rows += [
            (
                f"{ratio.silicon}: over {rival}",
                *(
                    f"{units.format_si(gain, '1')}× {letter}"
                    for gain in (gain, ratio.energy[rival], ratio.cost[rival])
                ),
            )
            for rival, gain in ratio.goodput_per_w.items()
        ]
    yield Heading("Optical over GPU designs, all on the same silicon; above 1 optical is better")
    if rows:
        yield Grid(("", "goodput a watt", "energy", "cost"), tuple(rows))
    reasons = tuple(
        f"{ratio.silicon}: {ratio.reason}" for ratio in comparison.ratios if ratio.reason
    )
    if reasons:
        yield Points(reasons)


def break_even(comparison: Comparison, letters: Letters) -> Iterator[Block]:
    """Yield where the optical design equals the better GPU design, input by input."""
    if not comparison.break_even:
        return
    yield Heading("Where optical prefill stops paying, input by input")
    yield Grid(
        ("", "assumed here", "pays", "break-even"),
        tuple(
            (
                _INPUTS.get(turn.field, turn.field),
                f"{_amount(turn.today, turn)} {_input_letter(turn, comparison, letters)}",
                turn.wins if turn.value is not None else NONE,
                _amount(turn.value, turn) if turn.value is not None else "never",
            )
            for turn in comparison.break_even
        ),
    )
    yield Points(tuple(_notes(comparison.break_even)))


def _notes(turns: tuple[BreakEven, ...]) -> Iterator[str]:
    by_note: dict[str, list[str]] = {}
    for turn in turns:
        by_note.setdefault(turn.note, []).append(_INPUTS.get(turn.field, turn.field))
    for note, names in by_note.items():
        yield f"{', '.join(names)}: {note}"


def _amount(value: float | None, turn: BreakEven) -> str:
    return units.format_si(value, turn.unit) + ("×" if turn.unit == "1" else "")


def _input_letter(turn: BreakEven, comparison: Comparison, letters: Letters) -> str:
    """Return the letter of an undisclosed input: of the engine in play, or of the assumption."""
    ids = [name for design in comparison.designs for name in design.servers]
    paths = [f"assumptions.{turn.field}", *(f"engines.{name}.{turn.field}" for name in ids)]
    return next((letters.of(path) for path in paths if letters.fact(path)), letters.of_all)


def equal_load(comparison: Comparison, letters: Letters) -> Iterator[Block]:
    """Yield all designs at one and the same load."""
    found = comparison.at_equal_load
    if found is None or not found.designs:
        return
    names = [design.name for design in comparison.designs if found.designs.get(design.name)]
    by_name = {design.name: design for design in comparison.designs}

    def row(label: str, key: str, unit: str = "1", *, scale: float = 1.0) -> tuple[str, ...]:
        cells = (_value(found.designs[name], key, unit, scale=scale) for name in names)
        return (label, *(_lettered(cell, by_name[name], letters)
                         for cell, name in zip(cells, names, strict=True)))  # fmt: skip

    yield Heading(f"At one and the same load: {number(found.request_per_s)} requests/s")
    yield Grid(
        ("", *names),
        (
            row("servers", "servers"),
            row("GPUs", "gpus"),
            row("power provisioned", "power_provisioned_w", "W"),
            row("share in limits", "attainment_frac", "%", scale=100.0),
            row("energy a request", "energy_j_per_request", "J"),
            row("$ a 1000 requests", "cost_usd_per_request", scale=1000.0),
        ),
    )


def bursts(comparison: Comparison, letters: Letters) -> Iterator[Block]:
    """Yield what each design would carry were the bursts of many users otherwise correlated."""
    found = [(design, design.bursts) for design in comparison.designs if design.bursts is not None]
    if not found:
        return
    asked = number(comparison.workload.get("correlation_s"))
    rows = (
        ("all bursts together (0 s)", "synchronised_request_per_s"),
        (f"as asked ({asked} s)", "as_asked_request_per_s"),
        ("bursts independent (∞ s)", "independent_request_per_s"),
    )
    yield Heading("What coinciding bursts cost: requests/s carried, on a sample of the time")
    yield Grid(
        ("", *(design.name for design, _ in found)),
        tuple(
            (
                label,
                *(
                    f"{number(getattr(each, field))} {letters.of_design(design.name)}"
                    for design, each in found
                ),
            )
            for label, field in rows
        ),
    )


def _value(found: dict[str, float], key: str, unit: str, *, scale: float) -> str | None:
    if key not in found:
        return None
    value = found[key] * scale
    return number(value) if unit == "1" else units.format_si(value, unit)


def _lettered(cell: str | None, design: Design, letters: Letters) -> str:
    return NONE if cell is None else f"{cell} {letters.of_design(design.name)}"
