"""The first line of an answer: what follows, and which undisclosed inputs decide it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight.units import format_si

if TYPE_CHECKING:
    from firstlight.evaluate.answer import BreakEven, Design, Ratio

NAMES = {"t_reload_s": "reload time", "f_cycle_hz": "clock", "optical_price_ratio": "price"}


def answer(
    records: dict[str, Design],
    ratios: tuple[Ratio, ...],
    turning: tuple[BreakEven, ...],
    *,
    optical: str | None,
    rate_request_per_s: float | None = None,
) -> str:
    """Return the answer in a few sentences.

    Args:
        records: The designs.
        ratios: Optical over GPU designs on each silicon.
        turning: Break-evens.
        optical: Name of the optical design, if there is one.
        rate_request_per_s: The load that was given, None where capacities were searched.
    """
    if not any(record.feasible for record in records.values()):
        reasons = "; ".join(f"{name}: {record.reason}" for name, record in records.items())
        return f"No design meets the service level: {reasons}."
    if rate_request_per_s is not None:
        return _at_a_load(records, rate_request_per_s)
    if optical is None:
        best = max(records.values(), key=lambda record: record.goodput_request_per_s)
        return f"{best.name} carries the most: {best.goodput_request_per_s:,.0f} requests/s."
    mine = records[optical]
    if not mine.feasible:
        return f"Optical prefill does not work here: {mine.reason}."
    parts = [_gain(mine, ratios), *_band(mine)]
    if turning:
        parts.append("Undisclosed inputs decide this: " + "; ".join(map(_turn, turning)) + ".")
    return " ".join(parts)


def _at_a_load(records: dict[str, Design], rate: float) -> str:
    meeting = [name for name, record in records.items() if record.feasible]
    missing = [
        f"{name} only for {record.attainment_frac:.0%}"
        for name, record in records.items()
        if not record.feasible
    ]
    text = f"At {rate:,.0f} requests/s the service level is met by {', '.join(meeting)}"
    return f"{text}; {', '.join(missing)}." if missing else f"{text}."


def _gain(mine: Design, ratios: tuple[Ratio, ...]) -> str:
    gains = [
        f"{min(ratio.goodput_per_w.values()):.2g}× on {ratio.silicon}"
        for ratio in ratios
        if ratio.goodput_per_w
    ]
    text = f"Optical prefill with GPU decode carries {mine.goodput_request_per_s:,.0f} requests/s"
    if not gains:
        return f"{text}."
    return f"{text}, per watt {' and '.join(gains)} what the better GPU design carries."


def _band(mine: Design) -> list[str]:
    if mine.band is None:
        return []
    low, high = mine.band.conservative, mine.band.optimistic
    if not low.feasible:
        return [f"That is {high.server}; {low.server} fails: {low.reason}."]
    return [f"That is {high.server}; {low.server} carries {low.goodput_request_per_s:,.0f}."]


def _turn(turn: BreakEven) -> str:
    label = NAMES.get(turn.field, turn.field)
    if turn.value is None:
        return f"{label} ({turn.note})"
    if turn.unit == "1":
        return (
            f"{label} (pays {turn.wins} {turn.value:.3g}× the GPU's per watt; "
            f"assumed {turn.today:.3g}×)"
        )
    value, today = format_si(turn.value, turn.unit), format_si(turn.today, turn.unit)
    return f"{label} (pays {turn.wins} {value}; assumed {today})"
