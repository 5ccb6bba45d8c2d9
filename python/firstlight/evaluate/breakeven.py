"""Where optical prefill stops paying: a field of the engine solved for equality, and the price.

Price is solved exactly, because cost is linear in it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from firstlight.evaluate.answer import BreakEven
from firstlight.units import format_si

if TYPE_CHECKING:
    from collections.abc import Callable

TRIED = 7
"""Values from today's to the best end that are tried for one at which light wins."""
TOLERANCE_FRAC = 0.01
"""Width of the last bracket over the value."""
NOTE = "equal goodput per watt of the better GPU design, on a sample of the time"


def solve(
    field: str,
    *,
    unit: str,
    today: float,
    low: float,
    high: float,
    rising: bool,
    wins: Callable[[float], bool],
) -> BreakEven:
    """Return the value of an engine field at which the optical design equals its rival per watt.

    Args:
        field: The field.
        unit: Its unit.
        today: The scenario's value.
        low: Where to start.
        high: Where to end.
        rising: Whether more of it is better.
        wins: Whether light wins at a value.
    """
    best, worst = (high, low) if rising else (low, high)
    # More of a field may be worse again (a faster clock draws more power), so a value that wins is
    # looked for from today's on, and the turn on its worse side.
    tried = [worst]
    good = None
    for value in np.geomspace(min(max(today, low), high), best, TRIED):
        if wins(float(value)):
            good = float(value)
            break
        tried.append(float(value))
    turn: float | None = None
    if good is None:
        ends = " to ".join(format_si(end, unit) for end in (today, best))
        note = f"the optical design loses from {ends}"
    elif len(tried) == 1 and wins(worst):
        ends = " to ".join(format_si(end, unit) for end in (worst, good))
        turn, note = worst, f"the optical design wins from {ends}"
    else:
        bad = tried[-1]
        while max(good, bad) / min(good, bad) > 1.0 + TOLERANCE_FRAC:
            middle = math.sqrt(good * bad)
            if wins(middle):
                good = middle
            else:
                bad = middle
        turn, note = good, NOTE
    return BreakEven(
        field=field,
        unit=unit,
        value=turn,
        today=today,
        wins="above" if rising else "below",
        note=note,
    )


def price(
    *,
    today_ratio: float,
    optical_usd: float,
    equipment_usd: float,
    rival_usd: float,
) -> BreakEven:
    """Return the optical price, per provisioned watt over the GPU's, at which a request costs the same.

    Args:
        today_ratio: The scenario's ratio.
        optical_usd: Cost of a request in the optical design [usd].
        equipment_usd: The part of it that is optical equipment [usd].
        rival_usd: Cost of a request in the cheaper GPU design [usd].
    """
    others = optical_usd - equipment_usd
    unit_usd = equipment_usd / today_ratio
    value = (rival_usd - others) / unit_usd if unit_usd > 0 else None
    note = "equal cost of a request as the cheaper GPU design"
    if value is not None and value <= 0:
        value, note = None, "the optical design costs more even when its servers are free"
    return BreakEven(
        field="optical_price_ratio",
        unit="1",
        value=value,
        today=today_ratio,
        wins="below",
        note=note,
    )
