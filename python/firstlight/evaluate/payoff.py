"""The break-evens of a comparison: which undisclosed input would have to be what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight import cost
from firstlight.evaluate import breakeven

if TYPE_CHECKING:
    from collections.abc import Callable

    from firstlight.evaluate.answer import BreakEven, Design
    from firstlight.evaluate.capacity import Traffic
    from firstlight.evaluate.design import Solved
    from firstlight.evaluate.question import Question
    from firstlight.evaluate.search import Found
    from firstlight.evaluate.servers import Server

FIELDS = (("t_reload_s", "s", 1e-7, 1.67e-2, False), ("f_cycle_hz", "Hz", 1e7, 2e10, True))
"""Undisclosed engine inputs: name, unit, range of search (to a 60 Hz display), more is better."""


def break_evens(
    asked: Question,
    *,
    mine: dict[str, Solved],
    records: dict[str, Design],
    names: tuple[str, str, str],
    coarse: Traffic,
    cancelled: Callable[[], bool] | None,
) -> tuple[BreakEven, ...]:
    """Return where the optical design equals the better GPU design, input by input.

    Args:
        asked: The question.
        mine: All designs, solved.
        records: Their records.
        names: Colocated, disaggregated and optical design.
        coarse: A sample of the traffic.
        cancelled: Asked a few times a second.
    """
    colocated, split, light = names
    rivals = [
        _w_s(asked, found) for name in (colocated, split) if (found := mine[name].found) is not None
    ]
    decode = mine[light].found or mine[split].found
    if not rivals or decode is None or "decode" not in decode.alone:
        return ()
    serving = mine[light].plan.serving
    group = next(group for group in decode.cell.groups if group.role == "decode")
    prefill = next(pool for pool in mine[light].plan.pools if pool.server.engine is not None)
    beside = group.server.id
    solved = [
        breakeven.solve(
            field,
            unit=unit,
            today=float(getattr(prefill.server.engine, field)),
            low=low,
            high=high,
            server_at=_server_at(asked, prefill.server.id, beside, field),
            rising=rising,
            serving=serving,
            decode_w_s=asked.budget.charge_w(group.server) / decode.alone["decode"],
            rival_w_s=min(rivals),
            traffic=coarse,
            slo=asked.slo,
            budget=asked.budget,
            cancelled=cancelled,
        )
        for field, unit, low, high, rising in FIELDS
    ]
    money = _price(asked, mine[light], records=records, names=names)
    return (*solved, *([money] if money else []))


def _server_at(
    asked: Question, server_id: str, beside: str, field: str
) -> Callable[[float], Server]:
    """Return the optical server as a function of one engine field."""

    def server(value: float) -> Server:
        return asked.server(server_id, beside=beside, overrides={field: value})

    return server


def _w_s(asked: Question, found: Found) -> float:
    """Return the facility watts a design needs for one request a second, pools apart."""
    return sum(
        asked.budget.charge_w(group.server) / found.alone[group.role] for group in found.cell.groups
    )


def _price(
    asked: Question, light: Solved, *, records: dict[str, Design], names: tuple[str, str, str]
) -> BreakEven | None:
    mine = records[names[2]]
    rivals = [usd for name in names[:2] if (usd := records[name].cost_usd_per_request) is not None]
    if light.found is None or light.measured is None or mine.cost_usd_per_request is None:
        return None
    if not rivals:
        return None
    rates = asked.site.rates
    equipment = sum(
        group.count
        * cost.annuity_usd_per_s(
            group.server.price_usd * (1.0 + rates.network_price_frac),
            life_years=rates.it_life_years,
            cost_of_capital_frac=rates.cost_of_capital_frac,
        )
        for group in light.found.cell.groups
        if group.server.kind == "optical" and group.server.id not in asked.site.sunk
    )
    return breakeven.price(
        today_ratio=asked.price_ratio,
        optical_usd=mine.cost_usd_per_request,
        equipment_usd=equipment * light.measured.window_s / light.measured.completed,
        rival_usd=min(rivals),
    )
