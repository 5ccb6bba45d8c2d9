"""The main job: designs on the same model, traffic, service level and power budget."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from firstlight import _core
from firstlight.errors import InfeasibleError, ModelError, ScenarioError, ScheduleError
from firstlight.evaluate import binding, capacity, design, follow, question, search
from firstlight.evaluate.answer import (
    Binding,
    BreakEven,
    Bursts,
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

if TYPE_CHECKING:
    from collections.abc import Callable

    from firstlight.evaluate.capacity import Traffic
    from firstlight.evaluate.design import Solved
    from firstlight.evaluate.question import Question
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
    """Return what each design of a scenario delivers at its best operating point.

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
    return _Job(
        asked=question.resolve(scenario),
        rate=rate_request_per_s,
        whole_fleet=whole_fleet,
        ratios=ratios,
        crew=Crew(progress=progress, cancelled=cancelled),
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
        self.crew.total = 2 * len(plans) + len(pieces.specs)
        sample = self.asked.sample(
            [plan for key, plan in plans.items() if key.gpu is None],
            beside=[plan for key, plan in plans.items() if key.gpu is not None],
            cancelled=self.crew.cancelled,
        )
        # Heavy pieces first, so that the threads end together.
        order = sorted(plans, key=lambda key: (len(plans[key].pools), key.gpu or ""), reverse=True)
        found = self.crew.map(lambda key: self._find(key, plans[key], sample), order)
        if self.whole_fleet:
            found = {
                key: design.together(one) if isinstance(one, Found) else one
                for key, one in found.items()
            }
        rates = [one.rate_request_per_s for one in found.values() if isinstance(one, Found)]
        most = MORE_THAN_SAMPLE * max(rates, default=1.0)
        if self.rate is not None:
            cells = [one.cells for one in found.values() if isinstance(one, Found)]
            most = max([most, *(self.rate / count for count in cells)])
        full = self.asked.whole(sample, most=most, cancelled=self.crew.cancelled)
        solved = self.crew.map(lambda key: self._solve(plans[key], found[key], full), order)
        mine = {name: solved[Key(name)] for name in pieces.specs}
        records = self._records(solved, sample)
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
                cancelled=self.crew.cancelled,
            )
        facts = provenance(self.asked, mine, records)
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

    def _find(self, key: Key, plan: DesignPlan, sample: Traffic) -> Found | str:
        """Return the best cell of a design, or why there is none."""
        result: Found | str
        try:
            result = search.best_cell(
                plan,
                traffic=sample,
                slo=self.asked.slo,
                budget=self.asked.budget,
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

    def _records(self, solved: dict[Key, Solved], sample: Traffic) -> dict[str, Design]:
        """Return the designs' records with all that depends on other designs filled in."""
        pieces, budget = self.pieces, self.asked.budget
        plain = {name: design.record(solved[Key(name)], budget=budget) for name in pieces.specs}
        bindings = self.crew.map(lambda name: self._binding(solved[Key(name)], sample), plain)
        bursts = self._bursts(solved, sample)
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
                binding=bindings[name],
                bursts=bursts.get(name),
                gpu_equivalents_freed=follow.freed_gpus(
                    solved[Key(name)], solved[Key(pieces.split)] if pieces.split else None
                ),
                band=follow.band(solved, pieces, budget=budget) if is_light else None,
                accuracy=follow.accuracy(solved[Key(name)]),
                retrofit=follow.retrofit(record, rivals) if is_light and budget.limits else None,
            )
        return finished

    def _binding(self, solved: Solved, sample: Traffic) -> Binding | None:
        found = solved.found
        result = None
        if found is not None and self.rate is None:
            result = binding.find(
                found.cell,
                traffic=sample,
                slo=self.asked.slo,
                rate_request_per_s=found.rate_request_per_s,
                cancelled=self.crew.cancelled,
            )
        self.crew.tick(f"what binds {solved.plan.name}")
        return result

    def _bursts(self, solved: dict[Key, Solved], sample: Traffic) -> dict[str, Bursts]:
        """Return what each design carries when bursts coincide and when they do not."""
        founds = {name: found for name in self.pieces.specs if (found := solved[Key(name)].found)}
        if not founds or self.rate is not None or self.whole_fleet or not self.is_whole:
            return {}
        most = 1.5 * max(found.rate_request_per_s for found in founds.values())
        both = [
            self.asked.correlated(sample, most=most, correlation_s=correlation_s)
            for correlation_s in (0.0, math.inf)
        ]

        def carried(name: str) -> Bursts:
            found = founds[name]
            rates = [
                capacity.search(
                    found.cell.fleet,
                    traffic,
                    slo=self.asked.slo,
                    guess_request_per_s=found.rate_request_per_s,
                    tolerance_frac=search.COARSE_TOLERANCE_FRAC,
                    first_step_frac=0.05,
                    cancelled=self.crew.cancelled,
                )
                for traffic in both
            ]
            # The sample gives the ratios, the whole time what they are ratios of.
            whole = solved[Key(name)].goodput
            together, apart = (run.rate_request_per_s if run else 0.0 for run in rates)
            return Bursts(
                synchronised_request_per_s=whole * together / found.rate_request_per_s,
                as_asked_request_per_s=whole,
                independent_request_per_s=whole * apart / found.rate_request_per_s,
            )

        return self.crew.map(carried, founds)

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
