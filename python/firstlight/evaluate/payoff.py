"""The break-evens of a comparison: which undisclosed input would have to be what."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from firstlight import cost
from firstlight.errors import InfeasibleError, ScheduleError
from firstlight.evaluate import breakeven
from firstlight.evaluate.screen import Screened, screen
from firstlight.evaluate.search import reaches

if TYPE_CHECKING:
    from firstlight.evaluate.answer import BreakEven, Design
    from firstlight.evaluate.capacity import Traffic
    from firstlight.evaluate.crew import Crew
    from firstlight.evaluate.design import Solved
    from firstlight.evaluate.question import Question
    from firstlight.evaluate.screen import PoolPlan
    from firstlight.evaluate.search import DesignPlan, Found

FIELDS = (("t_reload_s", "s", 1e-7, 1.67e-2, False), ("f_cycle_hz", "Hz", 1e7, 2e10, True))
"""Undisclosed engine inputs: name, unit, range of search (to a 60 Hz display), more is better."""


def break_evens(
    asked: Question,
    *,
    mine: dict[str, Solved],
    records: dict[str, Design],
    names: tuple[str, str, str],
    coarse: Traffic,
    crew: Crew,
) -> tuple[BreakEven, ...]:
    """Return where the optical design equals the better GPU design, input by input.

    Args:
        asked: The question.
        mine: All designs, solved.
        records: Their records.
        names: Colocated, disaggregated and optical design.
        coarse: A sample of the traffic.
        crew: Who works.
    """
    colocated, split, light = names
    rivals = [mine[name] for name in (colocated, split) if mine[name].goodput > 0.0]
    decode = mine[light].found or mine[split].found
    if not rivals or decode is None or "decode" not in decode.alone:
        return ()
    w_s = _w_s(asked, rivals, mine[light])
    trial = _Trial(asked, mine[light].plan, decode, w_s=w_s, sample=coarse, crew=crew)

    def solved(row: tuple[str, str, float, float, bool]) -> BreakEven:
        field, unit, low, high, rising = row
        return breakeven.solve(
            field,
            unit=unit,
            today=trial.today(field),
            low=low,
            high=high,
            rising=rising,
            wins=partial(trial.wins, field),
        )

    money = _price(asked, mine[light], records=records, names=names)
    return (*crew.map(solved, FIELDS).values(), *([money] if money else []))


class _Trial:
    """The optical design with another engine, tried against the watts its rival needs.

    Args:
        asked: The question.
        plan: The optical design.
        decode: A cell whose decode pool is the design's.
        w_s: Watts of the budget that the rival needs for a request a second [W·s].
        sample: A sample of the traffic.
        crew: Who may stop it.
    """

    def __init__(
        self,
        asked: Question,
        plan: DesignPlan,
        decode: Found,
        *,
        w_s: float,
        sample: Traffic,
        crew: Crew,
    ) -> None:
        self._asked = asked
        self._plan = plan
        self._w_s = w_s
        self._sample = sample
        self._crew = crew
        group = next(group for group in decode.cell.groups if group.role == "decode")
        self._decode = Screened(group=replace(group, count=1), rate=decode.alone["decode"])

    def today(self, field: str) -> float:
        """Return the engine's value of a field."""
        return float(
            next(getattr(e, field) for pool in self._plan.pools if (e := pool.server.engine))
        )

    def wins(self, field: str, value: float) -> bool:
        """Return whether light carries the load for its rival's watts at a value of a field."""
        plan = replace(
            self._plan,
            pools=tuple(self._changed(pool, field, value) for pool in self._plan.pools),
        )
        try:
            screened = [
                self._decode if pool.role == "decode" else self._screen(pool) for pool in plan.pools
            ]
        except (InfeasibleError, ScheduleError):
            return False
        return reaches(
            plan,
            screened,
            w_s=self._w_s,
            traffic=self._sample,
            slo=self._asked.slo,
            budget=self._asked.budget,
            cancelled=self._crew.cancelled,
        )

    def _screen(self, pool: PoolPlan) -> Screened:
        return screen(
            pool,
            self._plan.serving,
            traffic=self._sample,
            slo=self._asked.slo,
            cancelled=self._crew.cancelled,
        )

    def _changed(self, pool: PoolPlan, field: str, value: float) -> PoolPlan:
        if pool.server.engine is None:
            return pool
        beside = self._decode.group.server.id
        server = self._asked.server(pool.server.id, beside=beside, overrides={field: value})
        return replace(pool, server=server)


def _w_s(asked: Question, rivals: list[Solved], light: Solved) -> float:
    """Return the watts at which light, on the sample, equals the better rival over the whole time.

    What light carries over the whole time, over what it carries on the sample, is taken to stay as
    it is today; where light carries nothing today, to be as the rival's.
    """
    best = min(rivals, key=lambda one: _watts(asked, one) / one.goodput)
    like = light if light.found is not None and light.goodput > 0.0 else best
    sampled = like.found.rate_request_per_s * like.found.cells if like.found else like.goodput
    return _watts(asked, best) / best.goodput * (like.goodput / sampled)


def _watts(asked: Question, one: Solved) -> float:
    """Return what the servers of a design take of the budget [W]."""
    if one.found is None:
        return 0.0
    groups = one.found.cell.groups
    return one.found.cells * sum(g.count * asked.budget.charge_w(g.server) for g in groups)


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
