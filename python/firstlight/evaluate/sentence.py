"""The first line of an answer: what follows, and which undisclosed inputs decide it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight.units import format_si

if TYPE_CHECKING:
    from firstlight.evaluate.answer import BreakEven, Design, Ratio


def answer(
    records: dict[str, Design],
    ratios: tuple[Ratio, ...],
    turning: tuple[BreakEven, ...],
    *,
    optical: str | None,
) -> str:
    """Return the answer in a few sentences.

    Args:
        records: The designs.
        ratios: Optical over GPU designs on each silicon.
        turning: Break-evens.
        optical: Name of the optical design, if there is one.
    """
    if optical is None:
        return _best_of(records)
    mine = records[optical]
    if not mine.feasible:
        return f"Optical prefill does not work here: {mine.reason}."
    parts = [_gain_sentence(mine, ratios)]
    if turning:
        parts.append("Undisclosed inputs decide this: " + "; ".join(map(_turn, turning)) + ".")
    return " ".join(parts)


def _best_of(records: dict[str, Design]) -> str:
    best = max(records.values(), key=lambda record: record.goodput_request_per_s)
    if not best.feasible:
        return "No design meets the service level: " + "; ".join(
            f"{name}: {record.reason}" for name, record in records.items()
        )
    return f"{best.name} carries the most: {best.goodput_request_per_s:,.0f} requests/s."


def _gain_sentence(mine: Design, ratios: tuple[Ratio, ...]) -> str:
    gains = [
        f"{min(ratio.goodput_per_w.values()):.2g}× the goodput per watt of the better GPU design "
        f"on {ratio.silicon}"
        for ratio in ratios
        if ratio.goodput_per_w
    ]
    text = f"Optical prefill with GPU decode carries {mine.goodput_request_per_s:,.0f} requests/s"
    if gains:
        text += ": " + ", ".join(gains)
    band = mine.band
    if band is None:
        return text + "."
    low, high = band.conservative, band.optimistic
    text += f" if the engine is {high.server}"
    if not low.feasible:
        return f"{text}; as {low.server} it fails: {low.reason}."
    return f"{text}; as {low.server} it carries {low.goodput_request_per_s:,.0f}."


def _turn(turn: BreakEven) -> str:
    name = {"t_reload_s": "reload time", "f_cycle_hz": "clock", "optical_price_ratio": "price"}
    label = name.get(turn.field, turn.field)
    if turn.value is None:
        return f"{label} ({turn.note})"
    unit = "× the GPU's per watt" if turn.unit == "1" else ""
    value = f"{turn.value:.3g}{unit}" if unit else format_si(turn.value, turn.unit)
    today = f"{turn.today:.3g}×" if unit else format_si(turn.today, turn.unit)
    return f"{label} (pays {turn.wins} {value}; assumed {today})"
