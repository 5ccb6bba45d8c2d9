"""The plan: screen all designs by closed form, simulate the survivors, and say what binds next."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from firstlight.errors import FirstlightError, InfeasibleError, ModelError, ScenarioError
from firstlight.evaluate import capacity, design, question, search
from firstlight.evaluate.analytic import Point
from firstlight.evaluate.analytic.boundary import Boundary, break_even
from firstlight.evaluate.analytic.fleet import Estimate, design_estimate
from firstlight.evaluate.crew import Crew
from firstlight.evaluate.screen import screen as screen_pool
from firstlight.plan.choose import OBJECTIVES, Candidate, Objective, Screen, choose, front, score
from firstlight.plan.margin import Margin, Relaxation, Step, margins, relaxations, upgrades
from firstlight.plan.space import AIR_RACK_W, Limits, Space, capped, space_of
from firstlight.scenario import Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from firstlight.evaluate import Design
    from firstlight.evaluate.capacity import Traffic
    from firstlight.evaluate.design import Solved
    from firstlight.evaluate.question import Question
    from firstlight.evaluate.screen import Screened
    from firstlight.evaluate.search import DesignPlan
    from firstlight.plan.choose import Values
    from firstlight.scenario import Scenario

    Report = Callable[[int, int, str], None]

TPOT_S = (0.01, 0.015, 0.02, 0.03, 0.05, 0.08, 0.12)
"""Limits of the frontier: from 100 to 8 tokens a second and person."""
LOADS = (0.5, 0.7, 0.85, 0.95, 1.0, 1.05, 1.15)
"""Loads, over capacity, at which attainment is simulated."""
MEGA = 1e6
SAME_FRAC = 0.01
LOCAL_BELOW_TOK = (2048, 512, 128)
"""Uncached tokens below which the decode pool computes a prompt itself; the first is Dynamo's."""
NEAR_FRAC = 0.1
"""A survivor this much behind the best on the sample is not simulated over the whole time."""
MORE_THAN_SAMPLE = 1.05
"""A cell may carry this much more over the whole time than on the sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPoint:
    """One design under one limit of the time per token.

    Attributes:
        design: Its name.
        tpot_s: The limit [s].
        tok_per_s_user: Tokens a second that one person sees.
        tok_per_s_mw: Output tokens a second and megawatt of provisioned facility power.
        energy_j_per_tok: Energy of an output token, prompt included, at the facility [J/tok].
    """

    design: str
    tpot_s: float
    tok_per_s_user: float
    tok_per_s_mw: float
    energy_j_per_tok: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivor:
    """A candidate that was simulated.

    Attributes:
        candidate: What was screened.
        simulated: What the simulation found.
        whole: Whether over the whole time; else on a sample of it, for it was too far behind.
    """

    candidate: Candidate
    simulated: Design
    whole: bool


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to build.

    Attributes:
        objective: What was sought.
        tried: Candidates screened.
        exact: Whether every design of the space was tried.
        best: The survivor that does best when simulated.
        survivors: All that were simulated, best first; those on a sample only come last.
        silicon: The best design without light, as screened; None when there is none.
        reload: Reload time below which the chosen optical design beats `silicon` by goodput per watt,
            both with their servers, formats and policies as they are; None when no light is chosen.
        front: Designs none other beats in goodput per watt, cost and carbon at once, `best` among them.
        frontier: Tokens a second and person against tokens a second and megawatt.
        attainment: (load [request/s], share of requests within the limits) of the best, simulated.
        margins: What a tenth more of each resource brings, most first.
        binds: What limits the best design, and what does next.
        upgrade: What the power of each rack of a step-by-step build should bring, within all limits.
        retrofit: What light adds to installed servers; None without any.
        left_out: Designs and servers that were not possible, with the reason.
    """

    objective: Objective
    tried: int
    exact: bool
    best: Survivor
    survivors: tuple[Survivor, ...]
    silicon: Candidate | None
    reload: Boundary | None
    front: tuple[Candidate, ...]
    frontier: tuple[FrontierPoint, ...]
    attainment: tuple[tuple[float, float], ...]
    margins: tuple[Margin, ...]
    binds: tuple[str, str]
    upgrade: tuple[Step, ...]
    retrofit: dict[str, float] | None
    left_out: dict[str, str]


def plan(
    scenario: Scenario,
    *,
    objective: Objective = "goodput-per-watt",
    price_usd: float | None = None,
    max_servers: int | None = None,
    max_racks: int | None = None,
    cooling: Literal["any", "air"] = "any",
    servers: tuple[str, ...] = (),
    chunks: tuple[int | Literal["auto"], ...] = ("auto",),
    engines: tuple[int | None, ...] = (None,),
    survivors: int = 3,
    racks: int = 6,
    progress: Report | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Plan:
    """Return the best mix of servers and policy under power, service level, money and room.

    Args:
        scenario: Traffic, service level, power and prices; its designs name the first candidates.
        objective: What is best.
        price_usd: Most money for servers and network [usd].
        max_servers: Most servers.
        max_racks: Most racks, each of the scenario's `rack_power_w`, else of what air cools.
        cooling: ``air`` leaves out servers that need liquid.
        servers: Only these; empty takes the scenario's and the usual others.
        chunks: Token budgets to try; ``auto`` lets each pool take its best.
        engines: Engines in an optical server to try; None takes the scenario's.
        survivors: Candidates that are simulated.
        racks: Steps of the upgrade path.
        progress: Told how far it is.
        cancelled: Asked a few times a second.

    Raises:
        InfeasibleError: Nothing fits; the message names the cheapest relaxation.
        ScenarioError: A limit is impossible.

    Example:
        >>> import firstlight as fl
        >>> planned = fl.plan(fl.Scenario.default(), survivors=1)  # doctest: +SKIP
    """
    if objective not in OBJECTIVES:
        raise ScenarioError(f"objective {objective!r}; allowed: {', '.join(OBJECTIVES)}")
    if survivors < 1:
        raise ScenarioError(f"{survivors!r} survivors; allowed: 1 or more")
    rack_power_w = scenario.facility.rack_power_w or AIR_RACK_W
    caps = Limits(
        price_usd=price_usd,
        servers=max_servers,
        racks=max_racks,
        rack_power_w=rack_power_w,
        cooling=cooling,
    )
    resolved = question.resolve(scenario)
    asked = replace(resolved, budget=capped(resolved.budget, caps))
    space = space_of(scenario, caps=caps, servers_asked=servers, chunks=chunks, engines=engines)
    screen = Screen(asked, space)
    tell = progress or _nobody
    best, exact = choose(screen, objective, seed=scenario.seed, progress=tell)
    if best is None:
        raise InfeasibleError(_why_not(asked, space, screen))
    simulated = _simulate(
        screen, asked, objective=objective, count=survivors, tell=tell, cancelled=cancelled
    )
    chosen, solved = simulated[0]
    silicon = _best_silicon(screen, objective)
    sample = screen_traffic(asked, [chosen.candidate])
    found = margins(chosen.candidate, asked=asked, load=screen.load)
    return Plan(
        objective=objective,
        tried=len(screen.screened),
        exact=exact,
        best=chosen,
        survivors=tuple(one for one, _ in simulated),
        silicon=silicon,
        reload=_reload(scenario, chosen.candidate, silicon),
        front=tuple(
            front(screen.screened, best=chosen.candidate, simulated=_simulated_values(simulated))
        ),
        frontier=tuple(_frontier([one for one, _ in simulated], asked, screen)),
        attainment=tuple(_attainment(solved, asked=asked, traffic=sample, cancelled=cancelled)),
        margins=found,
        binds=(found[0].resource, found[1].resource if len(found) > 1 else "nothing else"),
        upgrade=upgrades(
            chosen.candidate,
            asked=asked,
            rack_power_w=rack_power_w,
            racks=racks,
        ),
        retrofit=_retrofit(scenario, screen, chosen.candidate),
        left_out={**space.left_out, **screen.skipped},
    )


def _is_light(one: Candidate) -> bool:
    return any(pool.server.engine is not None for pool in one.plan.pools)


def _best_silicon(screen: Screen, objective: Objective) -> Candidate | None:
    works = [one for one in screen.screened if one.estimate.feasible and not _is_light(one)]
    return max(works, key=lambda one: score(one.estimate, objective), default=None)


def _reload(scenario: Scenario, best: Candidate, silicon: Candidate | None) -> Boundary | None:
    """Return the reload time at which light stops paying against the best silicon."""
    if silicon is None or not _is_light(best):
        return None
    light = next(pool.server.engine for pool in best.plan.pools if pool.server.engine is not None)
    assumed = {**scenario.assumptions, "engines": light.engines}
    both = scenario.replace(designs=[_spec(best.plan), _spec(silicon.plan)], assumptions=assumed)
    return break_even(Point(both), field="t_reload_s", one=best.plan.name, other=silicon.plan.name)


def _spec(plan: DesignPlan) -> Table:
    """Return a plan as the design of a scenario."""
    split = len(plan.pools) > 1
    return Table(
        {
            "name": plan.name,
            "policy": _policy(plan) if split else {"disaggregate": "never"},
            "precision": {"weights": plan.serving.weights},
            "pools": [
                {"role": "both" if pool.role == "mixed" else pool.role, "server": pool.server.id}
                for pool in plan.pools
            ],
        }
    )


def _policy(plan: DesignPlan) -> dict[str, str | int]:
    if plan.disaggregate == "always":
        return {"disaggregate": "always"}
    return {"disaggregate": "conditional", "local_below_tok": plan.serving.local_below_tok}


def _nobody(done: int, total: int, what: str) -> None:
    """Tell nobody."""


def screen_traffic(asked: Question, candidates: list[Candidate]) -> Traffic:
    """Return a sample of the traffic, heavy enough for every candidate."""
    return asked.sample([one.plan for one in candidates])


def _simulate(
    screen: Screen,
    asked: Question,
    *,
    objective: Objective,
    count: int,
    tell: Report,
    cancelled: Callable[[], bool] | None,
) -> list[tuple[Survivor, Solved]]:
    """Return the best candidates, simulated on a sample of the traffic, best first."""
    works = [one for one in screen.screened if one.estimate.feasible]
    first = sorted(works, key=lambda one: -score(one.estimate, objective))[:count]
    if len(first[0].plan.pools) > 1:
        # Whether short prompts had better stay on the decode pool only a simulation can tell.
        first += [replace(first[0], plan=_conditional(first[0].plan, n)) for n in LOCAL_BELOW_TOK]
    traffic = screen_traffic(asked, first)
    with Crew(progress=tell, cancelled=cancelled) as crew:
        crew.total = len(first) + 1
        alone = _alone(first[0].plan, asked=asked, traffic=traffic, crew=crew)

        def sampled(place: int) -> tuple[Survivor, Solved]:
            one = first[place]
            # What a pool does alone does not depend on which prompts it is sent.
            known = alone if place == 0 or one.plan.disaggregate == "conditional" else None
            solved = _solved(one, asked=asked, traffic=traffic, screened=known, crew=crew)
            crew.tick(f"simulated {one.plan.name}")
            record = design.record(solved, budget=asked.budget)
            return Survivor(candidate=one, simulated=record, whole=False), solved

        found = list(crew.map(sampled, range(len(first))).values())
        found = _over_the_whole(found, asked=asked, sample=traffic, objective=objective, crew=crew)
    kept = [one for one in found if one[0].simulated.feasible]
    if not kept:
        reasons = "; ".join(f"{s.candidate.plan.name}: {s.simulated.reason}" for s, _ in found)
        raise InfeasibleError(f"what looked feasible is not when simulated: {reasons}")
    # What is known of a sample only comes last: no row of it stands above one of the whole time.
    return sorted(
        kept, key=lambda one: (not one[0].whole, -_simulated_score(one[0].simulated, objective))
    )


def _alone(
    plan: DesignPlan, *, asked: Question, traffic: Traffic, crew: Crew
) -> list[Screened] | None:
    """Return what each pool of a design does alone; None where one cannot do it at all."""

    def one(place: int) -> Screened | None:
        try:
            return screen_pool(
                plan.pools[place],
                plan.serving,
                traffic=traffic,
                slo=asked.slo,
                cancelled=crew.cancelled,
            )
        except (InfeasibleError, ModelError):
            return None  # said again, with its reason, when the design is solved

    found = list(crew.map(one, range(len(plan.pools))).values())
    known = [each for each in found if each is not None]
    return known if len(known) == len(found) else None


def _conditional(plan: DesignPlan, local_below_tok: int) -> DesignPlan:
    return replace(
        plan,
        name=f"{plan.name} conditional {local_below_tok}",
        disaggregate="conditional",
        serving=replace(plan.serving, local_below_tok=local_below_tok),
    )


def _over_the_whole(
    found: list[tuple[Survivor, Solved]],
    *,
    asked: Question,
    sample: Traffic,
    objective: Objective,
    crew: Crew,
) -> list[tuple[Survivor, Solved]]:
    """Return the survivors, those that may be best simulated over the whole time."""
    rates = [solved.measured.rate_request_per_s for _, solved in found if solved.measured]
    if not rates:
        return found
    full = asked.whole(sample, most=MORE_THAN_SAMPLE * max(rates), cancelled=crew.cancelled)

    def whole(place: int) -> tuple[Survivor, Solved]:
        one, solved = found[place]
        if solved.found is None:
            return one, solved
        again = design.solve(
            one.candidate.plan,
            solved.found,
            full=full,
            slo=asked.slo,
            budget=asked.budget,
            cancelled=crew.cancelled,
        )
        record = design.record(again, budget=asked.budget)
        return Survivor(candidate=one.candidate, simulated=record, whole=True), again

    # The whole time carries less than a sample of it, so that the next one may come first then.
    while places := _near([one for one, _ in found], objective):
        for place, one in crew.map(whole, places).items():
            found[place] = one
    crew.tick("simulated the whole time")
    return found


def _near(found: list[Survivor], objective: Objective) -> list[int]:
    """Return those that are near the best, as far as is known, and known of a sample only."""
    scores = [
        _simulated_score(one.simulated, objective) if one.simulated.feasible else -math.inf
        for one in found
    ]
    best = max(scores)
    return [
        place
        for place, (one, mine) in enumerate(zip(found, scores, strict=True))
        if not one.whole and math.isfinite(mine) and mine >= best - NEAR_FRAC * abs(best)
    ]


def _solved(
    one: Candidate,
    *,
    asked: Question,
    traffic: Traffic,
    screened: list[Screened] | None,
    crew: Crew,
) -> Solved:
    try:
        found = search.best_cell(
            one.plan,
            traffic=traffic,
            slo=asked.slo,
            budget=asked.budget,
            screened=screened,
            cancelled=crew.cancelled,
        )
    except (InfeasibleError, ModelError) as error:
        return design.refused(one.plan, str(error))
    return design.solve(
        one.plan, found, full=traffic, slo=asked.slo, budget=asked.budget, cancelled=crew.cancelled
    )


def _simulated_score(record: Design, objective: Objective) -> float:
    if objective == "cost":
        return -(record.cost_usd_per_mtok_blended or math.inf)
    if objective == "carbon":
        return -(record.carbon_g_per_request or math.inf)
    if objective == "goodput" or record.power_w is None:
        return record.goodput_request_per_s
    return record.goodput_request_per_s / record.power_w.provisioned


def _simulated_values(found: list[tuple[Survivor, Solved]]) -> dict[str, Values]:
    """Return goodput per watt, cost and carbon, more is better, of what was simulated whole."""
    return {
        one.candidate.plan.name: (
            _simulated_score(one.simulated, "goodput-per-watt"),
            _simulated_score(one.simulated, "cost"),
            _simulated_score(one.simulated, "carbon"),
        )
        for one, _ in found
        if one.whole
    }


def _frontier(simulated: list[Survivor], asked: Question, screen: Screen) -> list[FrontierPoint]:
    """Return tokens a second and person against tokens a second and megawatt, by closed form."""
    points: list[FrontierPoint] = []
    for one in simulated:
        if one.candidate.plan.disaggregate == "conditional":
            continue  # the closed form knows no other policy than "always"
        for tpot_s in TPOT_S:
            tighter = replace(asked, slo=replace(asked.slo, tpot_s=tpot_s))
            try:
                found = design_estimate(one.candidate.plan, asked=tighter, load=screen.load)
            except FirstlightError:
                continue
            point = _frontier_point(found, tpot_s) if found.feasible else None
            # Beyond what the memory holds a looser limit changes nothing.
            if point is not None and not (points and _is_same(points[-1], point)):
                points.append(point)
    return points


def _is_same(one: FrontierPoint, other: FrontierPoint) -> bool:
    near = abs(one.tok_per_s_mw / other.tok_per_s_mw - 1.0) < SAME_FRAC
    return one.design == other.design and near


def _frontier_point(found: Estimate, tpot_s: float) -> FrontierPoint:
    return FrontierPoint(
        design=found.name,
        tpot_s=tpot_s,
        tok_per_s_user=1.0 / found.tpot_s,
        tok_per_s_mw=found.output_tok_per_s / found.power_w * MEGA,
        energy_j_per_tok=found.energy_j_per_request / found.output_tok,
    )


def _attainment(
    solved: Solved,
    *,
    asked: Question,
    traffic: Traffic,
    cancelled: Callable[[], bool] | None,
) -> list[tuple[float, float]]:
    """Return the share of requests within the limits against the fleet's load, simulated."""
    if solved.found is None or solved.measured is None:
        return []
    points = []
    for part in LOADS:
        rate = min(solved.measured.rate_request_per_s * part, traffic.most_request_per_s)
        run = capacity.simulate(
            solved.found.cell.fleet,
            traffic,
            rate_request_per_s=rate,
            slo=asked.slo,
            cancelled=cancelled,
        )
        points.append((rate * solved.found.cells, run.attainment_frac))
    return points


def _retrofit(scenario: Scenario, screen: Screen, best: Candidate) -> dict[str, float] | None:
    """Return what light adds to installed servers, over the best design that only uses these."""
    if not scenario.facility.installed:
        return None
    silicon = [one for one in screen.screened if one.estimate.feasible and not _is_light(one)]
    base = max(silicon, key=lambda one: one.estimate.goodput_request_per_s, default=None)
    if base is None:
        return None
    mine, rival = best.estimate, base.estimate
    spent = mine.cost_usd_per_request * mine.request_per_s
    spent -= rival.cost_usd_per_request * rival.request_per_s
    tokens = mine.input_tok_per_s + mine.output_tok_per_s
    tokens -= rival.input_tok_per_s + rival.output_tok_per_s
    return {
        "extra_goodput_request_per_s": mine.goodput_request_per_s - rival.goodput_request_per_s,
        "marginal_usd_per_mtok": spent / tokens * MEGA if tokens > 0 else math.inf,
        "price_usd": best.price_usd,
    }


def _why_not(asked: Question, space: Space, screen: Screen) -> str:
    """Return why nothing fits, and which limit is the cheapest to move."""

    def works(changed: Question) -> str | None:
        tried = Screen(changed, space)
        best, _ = choose(tried, "goodput")
        return best.plan.name if best is not None else None

    found: tuple[Relaxation, ...] = relaxations(asked, works)
    if not found:
        why = "; ".join(_reasons(screen.skipped)[:3])
        return f"no design fits, whatever single limit is moved ({why})"
    way = ", or ".join(
        f"{_NAMES.get(one.resource, one.resource)} from {_number(one.today)} to {_number(one.needed)} "
        f"({one.design})"
        for one in found[:3]
    )
    if all(one.resource in _NAMES for one in found):
        # Of these the reasons of single designs know nothing: they speak of power.
        limits = " or ".join(_NAMES[one.resource] for one in found)
        return f"no design fits the limit of {limits}. Cheapest relaxation: {way}"
    why = "; ".join(_reasons(screen.skipped)[:3])
    return f"no design fits ({why}). Cheapest relaxation: {way}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1e4 else f"{value:.4g}"  # no powers of ten for dollars


_NAMES = {"money": "--price", "room": "--servers", "racks": "--most-racks"}
"""Limits that only a plan has, as they are asked for."""


def _reasons(skipped: dict[str, str]) -> list[str]:
    """Return why designs were not possible, each named once."""
    return list(
        dict.fromkeys(f"{name}: {why.removeprefix(f'{name}: ')}" for name, why in skipped.items())
    )
