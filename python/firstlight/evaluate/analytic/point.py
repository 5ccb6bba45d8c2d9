"""A scenario that answers many changed questions: what does not change is looked up once.

`Point.at(changes)` equals `estimate(scenario.replace(**changes))`; changes of power, prices, service
level, lengths and engine fields take a fraction of a millisecond to a few, all others rebuild the
scenario.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from firstlight.errors import ScenarioError
from firstlight.evaluate import question, servers
from firstlight.evaluate.analytic import load as traffic
from firstlight.evaluate.analytic.fleet import Estimate, design_estimate
from firstlight.optics import EngineSpec
from firstlight.scenario import overrides, rules

if TYPE_CHECKING:
    from firstlight.evaluate.question import Question
    from firstlight.evaluate.screen import PoolPlan
    from firstlight.evaluate.search import DesignPlan
    from firstlight.scenario import Scenario

Changes = Mapping[str, object]
"""New values by field, as `Scenario.replace` takes them."""

_SLO = frozenset({"ttft_s", "tpot_s", "quantile"})
_WORKLOAD = frozenset({"cached_frac", "context_tok", "output_tok", "correlation_s"})
_BUDGET = frozenset({"power_w", "rack_power_w"})
_RATES = frozenset(
    {
        "electricity_usd_per_kwh", "carbon_g_per_kwh", "colocation_usd_per_kw_month",
        "it_life_years", "cost_of_capital_frac", "network_price_frac",
    }
)  # fmt: skip
_SITE = frozenset({"pue", "network_frac", "server_margin_ratio"})
_PRICE = "optical_price_ratio"
_ENGINE = question.ENGINE_FIELDS - {"weight_stream_bits"}  # it also changes how the model is held
QUICK = _SLO | _WORKLOAD | _BUDGET | _RATES | _SITE | {_PRICE} | _ENGINE
"""Fields whose change needs no new scenario."""
_SECTIONS = ("slo.", "workload.", "facility.", "assumptions.")
_WHOLE = frozenset(
    field.name
    for field in dataclasses.fields(EngineSpec)
    if field.metadata and field.metadata["kind"] is int
)
_NOWHERE = rules.Where(file="point")
KEPT = 16
"""Scenarios with slow changes that are remembered."""


def bare(field: str) -> str:
    """Return the bare name of a field of slo, workload, facility or assumptions."""
    for section in _SECTIONS:
        if field.startswith(section):
            return field.removeprefix(section)
    return field


class Point:
    """A scenario ready to be asked again and again.

    Args:
        scenario: The question all others are changes of.

    Raises:
        FirstlightError: The scenario is impossible.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.asked = question.resolve(scenario)
        self.plans = tuple(self.asked.plan(design) for design in scenario.designs)
        self._beside = {
            pool.server.id: _silicon(plan)
            for plan in self.plans
            for pool in plan.pools
            if pool.server.engine is not None
        }
        self._rules: dict[str, tuple[tuple[str, str], rules.Rule]] = {}
        self._others: dict[tuple[tuple[str, object], ...], Point] = {}

    def checked(self, changes: Changes) -> None:
        """Check changes as the scenario does.

        Raises:
            ScenarioError: A field is unknown or a value impossible.
        """
        self.scenario.replace(**dict(changes))

    def possible(self, changes: Changes) -> None:
        """Check the values of quick fields, each by itself; engines and slow fields check their own.

        Args:
            changes: New values by field.

        Raises:
            ScenarioError: A value is impossible.
        """
        quick, _ = _sorted(changes)
        for name, value in quick.items():
            if name not in _ENGINE:
                path, rule = self._rule(name)
                rule.check(value, path=path, where=_NOWHERE)

    def _rule(self, name: str) -> tuple[tuple[str, str], rules.Rule]:
        if name not in self._rules:
            for section, fields in rules.SECTIONS.items():
                if name in fields:
                    rule = fields[name]
                    if rule.whole:  # a mean may be any number once it is drawn
                        rule = dataclasses.replace(rule, whole=False)
                    self._rules[name] = (section, name), rule
                    break
            else:
                fact = self.scenario.assumption(name).fact
                self._rules[name] = ("assumptions", name), overrides.rule_of(name, fact)
        return self._rules[name]

    def at(
        self, changes: Changes | None = None, *, only: frozenset[str] | None = None
    ) -> dict[str, Estimate]:
        """Return what each design delivers under changes.

        Args:
            changes: New values by field; quick fields are taken as numbers in SI units without the
                scenario's checks (see `checked`).
            only: Names of the designs that are wanted; None for all.

        Raises:
            FirstlightError: The changed scenario is impossible.
        """
        base, quick = self.standing(changes or {})
        return base.quick(quick, only=only)

    def standing(self, changes: Changes) -> tuple[Point, dict[str, float]]:
        """Return the point that has the slow changes made, and the quick ones by bare name.

        Args:
            changes: New values by field.
        """
        quick, slow = _sorted(changes)
        return (self.other(slow) if slow else self), quick

    def resolved(self, changes: Changes) -> tuple[Question, dict[str, DesignPlan]]:
        """Return the question and the designs under changes, for one who simulates them.

        Args:
            changes: New values by field.
        """
        base, quick = self.standing(changes)
        asked = base._asked(quick)  # noqa: SLF001  # another point of the same class
        engine = {name: value for name, value in quick.items() if name in _ENGINE}
        plans = {plan.name: base._plan(plan, asked=asked, engine=engine) for plan in base.plans}  # noqa: SLF001
        return asked, plans

    def other(self, changes: Changes) -> Point:
        """Return the point of a changed scenario; the last few are remembered."""
        slow = dict(changes)
        key = tuple(sorted((name, repr(value)) for name, value in slow.items()))
        if key not in self._others:
            if len(self._others) >= KEPT:
                self._others.pop(next(iter(self._others)))
            self._others[key] = Point(self.scenario.replace(**slow))
        return self._others[key]

    def quick(
        self, changes: dict[str, float], *, only: frozenset[str] | None = None
    ) -> dict[str, Estimate]:
        """Return what each design delivers under changes of quick fields, by bare name."""
        asked = self._asked(changes)
        work = self.scenario.workload
        load = traffic.load_of(
            work.preset or work.trace or "azure-2023-conv",
            seed=self.scenario.seed,
            context_tok=changes.get("context_tok", work.context_tok),
            output_tok=changes.get("output_tok", work.output_tok),
            cached_frac=changes.get("cached_frac", work.cached_frac),
            correlation_s=changes.get("correlation_s", work.correlation_s),
            max_context_tok=asked.shape.max_context_tok,
            shared_prefix_tok=work.shared_prefix_tok,
        )
        engine = {name: value for name, value in changes.items() if name in _ENGINE}
        return {
            plan.name: design_estimate(
                self._plan(plan, asked=asked, engine=engine), asked=asked, load=load
            )
            for plan in self.plans
            if only is None or plan.name in only
        }

    def _asked(self, changes: dict[str, float]) -> Question:
        asked = self.asked
        if not changes:
            return asked
        site, budget = asked.site, asked.budget
        rates = {name: changes[name] for name in _RATES if name in changes}
        if rates or not _SITE.isdisjoint(changes):
            site = replace(
                site,
                rates=replace(site.rates, **rates),
                pue=changes.get("pue", site.pue),
                network_frac=changes.get("network_frac", site.network_frac),
                margin_ratio=changes.get("server_margin_ratio", site.margin_ratio),
            )
        if site is not asked.site or not _BUDGET.isdisjoint(changes):
            budget = replace(
                budget,
                site=site,
                power_w=changes.get("power_w", budget.power_w),
                rack_power_w=changes.get("rack_power_w", budget.rack_power_w),
            )
        levels = {name: changes[name] for name in _SLO if name in changes}
        return replace(
            asked,
            site=site,
            budget=budget,
            slo=replace(asked.slo, **levels) if levels else asked.slo,
            price_ratio=changes.get(_PRICE, asked.price_ratio),
        )

    def _plan(self, plan: DesignPlan, *, asked: Question, engine: dict[str, float]) -> DesignPlan:
        if not engine and asked.price_ratio == self.asked.price_ratio:
            return plan

        def pool(one: PoolPlan) -> PoolPlan:
            if one.server.engine is None:
                return one
            silicon = self._beside[one.server.id]
            usd_per_w = silicon.price_usd / silicon.peak_w * asked.price_ratio
            given = {**self.asked.overrides, **engine}
            fields = tuple(sorted((name, whole(name, value)) for name, value in given.items()))
            return replace(one, server=_optical(one.server.id, fields, usd_per_w))

        return replace(plan, pools=tuple(pool(one) for one in plan.pools))


def _sorted(changes: Changes) -> tuple[dict[str, float], dict[str, object]]:
    """Return (quick changes by bare name, all others)."""
    quick: dict[str, float] = {}
    slow: dict[str, object] = {}
    for field, value in changes.items():
        name = bare(field)
        if name in QUICK and isinstance(value, int | float) and not isinstance(value, bool):
            quick[name] = float(value)
        else:
            slow[field] = value
    return quick, slow


def whole(name: str, value: float) -> float:
    """Return a value as its field takes it: counts are rounded."""
    return round(value) if name in _WHOLE else value


@lru_cache(maxsize=4096)
def _optical(
    server_id: str, fields: tuple[tuple[str, float], ...], usd_per_peak_w: float
) -> servers.Server:
    return servers.load(server_id, overrides=dict(fields), usd_per_peak_w=usd_per_peak_w)


def _silicon(plan: DesignPlan) -> servers.Server:
    for pool in plan.pools:
        if pool.server.engine is None:
            return pool.server
    raise ScenarioError(f"design {plan.name!r} has no GPU server to decode on")


def estimate(scenario: Scenario) -> dict[str, Estimate]:
    """Return what each design of a scenario delivers, by closed form.

    Args:
        scenario: The question.

    Raises:
        FirstlightError: The scenario is impossible; a design that cannot meet the service level is
            an `Estimate` with its reason instead.
    """
    return Point(scenario).at()
