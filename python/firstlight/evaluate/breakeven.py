"""Where optical prefill stops paying: reload time, clock and price solved for equality.

Time and clock are solved on pools alone (a pool apart costs little to simulate): per facility watt a
fleet of balanced pools carries 1 / (c_P/r_P + c_D/r_D), with c the watts and r the load of one
server. Price is solved exactly, because cost is linear in it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from firstlight.evaluate import capacity
from firstlight.evaluate.answer import BreakEven
from firstlight.evaluate.cell import Cell, Group, group

if TYPE_CHECKING:
    from collections.abc import Callable

    from firstlight.evaluate.capacity import Slo, Traffic
    from firstlight.evaluate.cell import Serving
    from firstlight.evaluate.search import Budget
    from firstlight.evaluate.servers import Server

TRIED = 7
"""Values from today's to the best end that are tried for one at which light wins."""
STEPS = 18
"""Halvings of a factor of 10^5: the last bracket is narrower than 0.01 %."""


def solve(
    field: str,
    *,
    unit: str,
    today: float,
    low: float,
    high: float,
    server_at: Callable[[float], Server],
    rising: bool,
    serving: Serving,
    decode_w_s: float,
    rival_w_s: float,
    traffic: Traffic,
    slo: Slo,
    budget: Budget,
    cancelled: Callable[[], bool] | None = None,
) -> BreakEven:
    """Return the value of an engine field at which the optical design equals its rival per watt.

    Args:
        field: The field.
        unit: Its unit.
        today: The scenario's value.
        low: Where to start.
        high: Where to end.
        server_at: The optical server at a value.
        rising: Whether more of it is better.
        serving: How the model is served.
        decode_w_s: Facility energy capacity the decode pool needs a request [W·s/request].
        rival_w_s: The same for the whole rival design.
        traffic: A sample of the traffic.
        slo: The service level.
        budget: What a server takes of the power.
        cancelled: Asked a few times a second.
    """

    def wins(value: float) -> bool:
        server = server_at(value)
        spare = rival_w_s - decode_w_s
        if spare <= 0:
            return False
        needed = budget.charge_w(server) / spare
        made = group(server, role="prefill", tp=1, chunk_tok=0, serving=serving)
        return carries(
            made,
            needed,
            serving=serving,
            traffic=traffic,
            slo=slo,
            cancelled=cancelled,
        )

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
    if good is None:
        turn, note = None, f"the optical design loses from {today:g} to {best:g} {unit}"
    elif len(tried) == 1 and wins(worst):
        turn, note = worst, f"the optical design wins from {worst:g} to {good:g} {unit}"
    else:
        bad = tried[-1]
        for _ in range(STEPS):
            middle = math.sqrt(good * bad)
            if wins(middle):
                good = middle
            else:
                bad = middle
        turn, note = good, "equal goodput per watt of the better GPU design, pools apart"
    return BreakEven(
        field=field,
        unit=unit,
        value=turn,
        today=today,
        wins="above" if rising else "below",
        note=note,
    )


def carries(
    made: Group,
    rate_request_per_s: float,
    *,
    serving: Serving,
    traffic: Traffic,
    slo: Slo,
    cancelled: Callable[[], bool] | None = None,
) -> bool:
    """Return whether one prefill server alone carries a load within its time to first token."""
    from dataclasses import replace

    if rate_request_per_s > traffic.most_request_per_s:
        return False
    fleet = Cell(groups=(replace(made, role="mixed"),), serving=serving).fleet
    level = replace(slo, tpot_s=1e6)
    run = capacity.simulate(
        fleet,
        replace(traffic, phase="prefill"),
        rate_request_per_s=rate_request_per_s,
        slo=level,
        stop_early=True,
        cancelled=cancelled,
    )
    return run.holds


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
