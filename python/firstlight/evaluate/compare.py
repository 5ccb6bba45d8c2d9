"""The main job: designs on the same model, traffic, service level and power budget."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from firstlight import _core
from firstlight.errors import InfeasibleError, ModelError, ScenarioError, ScheduleError
from firstlight.evaluate import design, follow, question, screen, search
from firstlight.evaluate.answer import (
    BreakEven,
    Comparison,
    Design,
    EqualLoad,
)
from firstlight.evaluate.crew import Crew
from firstlight.evaluate.payoff import break_evens
from firstlight.evaluate.pieces import SILICON, Key, Pieces
from firstlight.evaluate.provenance import provenance, status
from firstlight.evaluate.search import Found
from firstlight.evaluate.sentence import answer
from firstlight.evaluate.tried import Tried

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from firstlight.evaluate.capacity import Traffic
    from firstlight.evaluate.cell import Serving
    from firstlight.evaluate.design import Solved
    from firstlight.evaluate.question import Question
    from firstlight.evaluate.screen import PoolPlan, Screened
    from firstlight.evaluate.search import DesignPlan
    from firstlight.scenario import Scenario

SCHEMA = 1
MORE_THAN_SAMPLE = 1.15
"""How much more than the sample says the whole time might carry."""


def compare(
    scenario: Scenario,
    *,
    rate_request_per_s: float | None = None,
    whole_fleet: bool = False,
    ratios: bool = True,
    progress: Callable[[int, int, str], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Comparison:
    """Return what each design of a scenario delivers at the highest load that meets the service level.

    Args:
        scenario: The question.
        rate_request_per_s: Load of the fleet [request/s]; None finds each design's capacity.
        whole_fleet: Simulate all cells of a fleet together instead of one of them.
        ratios: Also simulate the designs on other silicon, at equal load, under other bursts, and
            where they break even; without, these parts of the answer are empty.
        progress: Told how far it is: pieces done, pieces in all, what was done last.
        cancelled: Asked a few times a second; true ends it with `KeyboardInterrupt`.

    Raises:
        FirstlightError: The scenario is impossible; the message says what is allowed.
        KeyboardInterrupt: It was cancelled.
    """
    asked = question.resolve(scenario)
    with Crew(progress=progress, cancelled=cancelled) as crew:
        return _Job(
            asked=asked, rate=rate_request_per_s, whole_fleet=whole_fleet, ratios=ratios, crew=crew
        ).run()


class _Job:
    """The steps of one comparison: search on a sample, simulate the whole, draw conclusions."""

    def __init__(
        self,
        *,
        asked: Question,
        rate: float | None,
        whole_fleet: bool,
        ratios: bool,
        crew: Crew,
    ) -> None:
        self.asked = asked
        self.rate = rate
        self.whole_fleet = whole_fleet
        self.crew = crew
        self.is_whole = ratios
        self.pieces = Pieces(asked, compared=rate is None, ratios=ratios)

    def run(self) -> Comparison:
        pieces, budget = self.pieces, self.asked.budget
        plans = pieces.plans()
        pools = list(_distinct(plans))
        self.crew.total = len(pools) + 2 * len(plans)
        sample = self.asked.sample(
            [plan for key, plan in plans.items() if key.gpu is None],
            beside=[plan for key, plan in plans.items() if key.gpu is not None],
            cancelled=self.crew.cancelled,
        )
        alone = self.crew.map(lambda i: self._screen(*pools[i], sample), range(len(pools)))
        # Heavy pieces first, so that the threads end together.
        order = sorted(plans, key=lambda key: (len(plans[key].pools), key.gpu or ""), reverse=True)
        found = self.crew.map(
            lambda key: self._find(
                key, plans[key], [alone[pools.index(pair)] for pair in _pairs(plans[key])], sample
            ),
            order,
        )
        if self.whole_fleet:
            found = {
                key: design.together(one) if isinstance(one, Found) else one
                for key, one in found.items()
            }
        founds = {key: one for key, one in found.items() if isinstance(one, Found)}
        own = {name: founds[Key(name)] for name in pieces.specs if Key(name) in founds}
        tried = Tried(
            self.asked,
            founds=own,
            sample=sample,
            crew=self.crew,
            binding=self.rate is None,
            bursts=self.rate is None and self.is_whole and not self.whole_fleet,
        )
        full = tried.prepare(lambda: self._whole(founds.values(), sample))
        solved = self.crew.map(lambda key: self._solve(plans[key], found[key], full), order)
        mine = {name: solved[Key(name)] for name in pieces.specs}
        records = self._records(solved, tried)
        ratios = tuple(
            follow.ratio(solved, pieces, silicon, budget=budget)
            for silicon in (SILICON if self.is_whole else ())
        )
        turning: tuple[BreakEven, ...] = ()
        if pieces.triple is not None and self.rate is None and self.is_whole:
            turning = break_evens(
                self.asked,
                mine=mine,
                records=records,
                names=pieces.triple,
                coarse=sample,
                crew=self.crew,
            )
        facts = provenance(self.asked, mine, records, ratios=ratios, turning=turning)
        scenario = self.asked.scenario
        return Comparison(
            schema=SCHEMA,
            firstlight=_core.__version__,
            scenario=scenario.name,
            scenario_hash=scenario.hash(),
            scenario_document=scenario.document(),
            seed=scenario.seed,
            answer=answer(
                records, ratios, turning, optical=pieces.optical, rate_request_per_s=self.rate
            ),
            status=status(facts),
            workload=follow.workload(self.asked, full),
            designs=tuple(records.values()),
            at_equal_load=self._equal_load(mine, full),
            ratios=ratios,
            break_even=turning,
            provenance=facts,
            warnings=follow.warnings(
                records, mine, asked=self.asked, full=full, optical=pieces.optical
            ),
        )

    def _screen(
        self, pool: PoolPlan, serving: Serving, sample: Traffic
    ) -> Screened | InfeasibleError | ModelError | ScheduleError:
        """Return what a pool does alone, or why it does nothing."""
        result: Screened | InfeasibleError | ModelError | ScheduleError
        try:
            result = screen.screen(
                pool, serving, traffic=sample, slo=self.asked.slo, cancelled=self.crew.cancelled
            )
        except (InfeasibleError, ModelError, ScheduleError) as error:
            result = error
        self.crew.tick(f"screened {pool.server.id} as {pool.role}")
        return result

    def _whole(self, founds: Iterable[Found], sample: Traffic) -> Traffic:
        """Return the whole time, heavy enough for every design found."""
        founds = list(founds)
        most = MORE_THAN_SAMPLE * max((one.rate_request_per_s for one in founds), default=1.0)
        if self.rate is not None:
            most = max([most, *(self.rate / one.cells for one in founds)])
        return self.asked.whole(sample, most=most, cancelled=self.crew.cancelled)

    def _find(
        self,
        key: Key,
        plan: DesignPlan,
        alone: list[Screened | InfeasibleError | ModelError | ScheduleError],
        sample: Traffic,
    ) -> Found | str:
        """Return the best cell of a design, or why there is none."""
        result: Found | str
        try:
            # Too small a budget is told before what a pool cannot do.
            self.asked.budget.check(plan)
            result = search.best_cell(
                plan,
                traffic=sample,
                slo=self.asked.slo,
                budget=self.asked.budget,
                screened=[_able(one) for one in alone],
                cancelled=self.crew.cancelled,
            )
        except (InfeasibleError, ModelError, ScheduleError) as error:
            result = str(error)
        except ScenarioError as error:
            # Silicon that the user did not ask for may be too large for the budget.
            if key.gpu is None:
                raise
            result = str(error)
        self.crew.tick(f"searched {key}")
        return result

    def _solve(self, plan: DesignPlan, found: Found | str, full: Traffic) -> Solved:
        if isinstance(found, str):
            solved = design.refused(plan, found)
        else:
            solved = design.solve(
                plan,
                found,
                full=full,
                slo=self.asked.slo,
                budget=self.asked.budget,
                rate_request_per_s=self.rate,
                cancelled=self.crew.cancelled,
            )
        self.crew.tick(f"simulated {plan.name}")
        return solved

    def _records(self, solved: dict[Key, Solved], tried: Tried) -> dict[str, Design]:
        """Return the designs' records with all that depends on other designs filled in."""
        pieces, budget = self.pieces, self.asked.budget
        plain = {name: design.record(solved[Key(name)], budget=budget) for name in pieces.specs}
        bursts = tried.bursts({name: solved[Key(name)].goodput for name in pieces.specs})
        colocated, split = (
            plain[name] if name is not None else None for name in (pieces.colocated, pieces.split)
        )
        rivals = [record for record in (colocated, split) if record is not None]
        finished = {}
        for name, record in plain.items():
            is_light = name == pieces.optical
            finished[name] = msgspec.structs.replace(
                record,
                scopes=follow.gains(record, colocated=colocated, split=split),
                binding=tried.binding(name),
                bursts=bursts.get(name),
                gpu_equivalents_freed=follow.freed_gpus(
                    solved[Key(name)], solved[Key(pieces.split)] if pieces.split else None
                ),
                band=follow.band(solved, pieces, budget=budget) if is_light else None,
                accuracy=follow.accuracy(solved[Key(name)]),
                retrofit=follow.retrofit(record, rivals) if is_light and budget.limits else None,
            )
        return finished

    def _equal_load(self, mine: dict[str, Solved], full: Traffic) -> EqualLoad | None:
        """Return each design at the optical design's capacity, or at the least one's."""
        feasible = {name: one for name, one in mine.items() if one.found is not None}
        if not feasible or self.rate is not None or not self.is_whole:
            return None
        if self.pieces.optical in feasible:
            load = feasible[self.pieces.optical].goodput
        else:
            load = min(one.goodput for one in feasible.values())

        def fewest(name: str) -> dict[str, float]:
            one = feasible[name]
            if one.found is None or one.measured is None:
                return {}
            cell = one.found.cell
            cells = math.ceil(load / one.measured.rate_request_per_s - 1e-9)
            again = design.at(
                one.plan,
                one.found,
                full=full,
                slo=self.asked.slo,
                cell_rate=min(load / cells, full.most_request_per_s),
                budget=self.asked.budget,
                cancelled=self.crew.cancelled,
            )
            record = design.record(again, budget=self.asked.budget)
            return {
                "servers": float(cells * cell.servers),
                "gpus": float(cells * design.gpus(cell)),
                "power_provisioned_w": cells * self.asked.site.provisioned_w(cell.peak_w),
                "attainment_frac": record.attainment_frac,
                "energy_j_per_request": record.energy_j_per_request or 0.0,
                "cost_usd_per_request": record.cost_usd_per_request or 0.0,
            }

        return EqualLoad(request_per_s=load, designs=self.crew.map(fewest, feasible))


def _pairs(plan: DesignPlan) -> list[tuple[PoolPlan, Serving]]:
    """Return a design's pools, each as it would be alone."""
    return [(replace(pool, share=None, count=None), plan.serving) for pool in plan.pools]


def _distinct(plans: dict[Key, DesignPlan]) -> Iterator[tuple[PoolPlan, Serving]]:
    """Yield each pool once, whichever designs have it; heavy ones first."""
    seen: list[tuple[PoolPlan, Serving]] = []
    every = [(key.gpu or "", pair) for key, plan in plans.items() for pair in _pairs(plan)]
    for _, pair in sorted(every, key=lambda one: one[0], reverse=True):
        if pair not in seen:
            seen.append(pair)
            yield pair


def _able(one: Screened | InfeasibleError | ModelError | ScheduleError) -> Screened:
    if isinstance(one, Exception):
        raise one
    return one
