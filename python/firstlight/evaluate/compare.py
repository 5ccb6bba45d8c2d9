"""The main job: designs on the same model, traffic, service level and power budget."""

from __future__ import annotations

import math
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import msgspec

from firstlight import _core
from firstlight.errors import ScenarioError
from firstlight.evaluate import binding, design, question, servers
from firstlight.evaluate.answer import (
    Band,
    Binding,
    BreakEven,
    Comparison,
    Design,
    EqualLoad,
    Ratio,
    Scope,
)
from firstlight.evaluate.design import Solved
from firstlight.evaluate.payoff import break_evens
from firstlight.evaluate.provenance import provenance, status
from firstlight.evaluate.sentence import answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from firstlight.evaluate.capacity import Traffic
    from firstlight.evaluate.question import Question
    from firstlight.evaluate.search import DesignPlan
    from firstlight.scenario import Design as DesignSpec
    from firstlight.scenario import Scenario

K = TypeVar("K")
V = TypeVar("V")
SCHEMA = 1
SILICON = (("h100-sxm-8x", "fp8"), ("b200-8x", "nvfp4"))
"""Ratios are given on these: server and format of the weights."""


class Progress:
    """Told how far a comparison is; the default tells nobody."""

    def __call__(self, done: int, total: int, what: str) -> None:
        """Take note.

        Args:
            done: Pieces of work that are done.
            total: All pieces.
            what: The piece that was done last.
        """


@dataclass(frozen=True, slots=True)
class _Key:
    """One thing to solve: a design, with some of its hardware swapped."""

    design: str
    optical: str | None = None
    gpu: str | None = None
    weights: str | None = None


def compare(
    scenario: Scenario,
    *,
    rate_request_per_s: float | None = None,
    whole_fleet: bool = False,
    progress: Callable[[int, int, str], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Comparison:
    """Return what each design of a scenario delivers at its best operating point.

    Args:
        scenario: The question.
        rate_request_per_s: Load of the fleet [request/s]; None finds each design's capacity.
        whole_fleet: Simulate all cells of a fleet together instead of one of them.
        progress: Told how far it is.
        cancelled: Asked a few times a second; true ends it with `KeyboardInterrupt`.

    Raises:
        FirstlightError: The scenario is impossible; the message says what is allowed.
        KeyboardInterrupt: It was cancelled.
    """
    return _Job(
        asked=question.resolve(scenario),
        rate=rate_request_per_s,
        whole_fleet=whole_fleet,
        progress=progress or Progress(),
        cancelled=cancelled,
    ).run()


class _Job:
    """The pieces of one comparison, solved two at a time."""

    def __init__(
        self,
        *,
        asked: Question,
        rate: float | None,
        whole_fleet: bool,
        progress: Callable[[int, int, str], None],
        cancelled: Callable[[], bool] | None,
    ) -> None:
        self.asked = asked
        self.rate = rate
        self.whole_fleet = whole_fleet
        self.progress = progress
        self.stop = threading.Event()
        self.asked_to_stop = cancelled or (lambda: False)
        self.specs = {spec.name: spec for spec in asked.scenario.designs}
        self.colocated = self._first(lambda spec: len(spec.pools) == 1)
        self.optical = self._first(_is_optical)
        self.split = self._first(lambda spec: len(spec.pools) > 1 and not _is_optical(spec))
        self.done = 0
        self.total = 0

    def cancelled(self) -> bool:
        """Return whether to stop, in whichever thread it is asked."""
        return self.stop.is_set() or self.asked_to_stop()

    def run(self) -> Comparison:
        plans = self._plans()
        full = self.asked.traffic(
            [plan for key, plan in plans.items() if key.gpu is None],
            beside=[plan for key, plan in plans.items() if key.gpu is not None],
            whole_fleet=self.whole_fleet,
        )
        coarse = full.folded(period_s=question.FOLD_PERIOD_S, keep_s=question.FOLD_KEEP_S)
        self.total = len(plans) + 2 * len(self.specs)
        # Heavy pieces first, so that two threads end together.
        order = sorted(plans, key=lambda key: (len(plans[key].pools), key.gpu or ""), reverse=True)
        solved = dict(
            zip(
                order,
                self._parallel(lambda key: self._solve(key, plans[key], full, coarse), order),
                strict=True,
            )
        )
        records = self._records(solved, coarse)
        mine = {name: solved[_Key(name)] for name in self.specs}
        ratios = tuple(self._ratio(solved, *silicon) for silicon in SILICON)
        equal = self._equal_load(mine, full)
        turning = self._break_even(mine, records, coarse)
        scenario = self.asked.scenario
        facts = provenance(self.asked, mine, records)
        return Comparison(
            schema=SCHEMA,
            firstlight=_core.__version__,
            scenario=scenario.name,
            scenario_hash=scenario.hash(),
            seed=scenario.seed,
            answer=answer(records, ratios, turning, optical=self.optical),
            status=status(facts),
            workload=self._workload(full),
            designs=tuple(records.values()),
            at_equal_load=equal,
            ratios=ratios,
            break_even=turning,
            provenance=facts,
            warnings=self._warnings(records, mine),
        )

    # --- what to solve ---------------------------------------------------------------------------

    def _first(self, wanted: Callable[[DesignSpec], bool]) -> str | None:
        return next((name for name, spec in self.specs.items() if wanted(spec)), None)

    def _plans(self) -> dict[_Key, DesignPlan]:
        keys = [_Key(name) for name in self.specs]
        if self.optical is not None and self.rate is None:
            keys += [self._end_key(end) for end in self._band() or ()]
        if self.rate is None and self._triple() is not None:
            keys += [
                _Key(name, gpu=gpu, weights=weights)
                for gpu, weights in SILICON
                if (gpu, weights) != self._silicon()
                for name in (self.colocated, self.split, self.optical)
                if name is not None
            ]
        return {
            key: self.asked.plan(
                self.specs[key.design], optical=key.optical, gpu=key.gpu, weights=key.weights
            )
            for key in dict.fromkeys(keys)
        }

    def _end_key(self, server: str) -> _Key:
        """Return the key of one end of the band; the end the design names is the design itself."""
        name = self.optical or ""
        named = any(pool.server == server for pool in self.specs[name].pools)
        return _Key(name) if named else _Key(name, optical=server)

    def _band(self) -> tuple[str, str] | None:
        if self.optical is None:
            return None
        return next((pool.band for pool in self.specs[self.optical].pools if pool.band), None)

    def _triple(self) -> tuple[str, str, str] | None:
        if self.colocated is None or self.split is None or self.optical is None:
            return None
        return self.colocated, self.split, self.optical

    def _silicon(self) -> tuple[str, str] | None:
        """Return GPU server and format of the scenario's designs, when they all share them."""
        scenario = self.asked.scenario
        used = {
            (pool.server, scenario.precision_of(spec).weights)
            for spec in self.specs.values()
            for pool in spec.pools
            if not servers.is_optical(pool.server)
        }
        return used.pop() if len(used) == 1 else None

    def _parallel(self, work: Callable[[K], V], items: list[K]) -> list[V]:
        """Do work on as many items at once as there are cores."""
        workers = min(len(os.sched_getaffinity(0)), len(items)) or 1
        with ThreadPoolExecutor(workers) as pool:
            futures = [pool.submit(work, item) for item in items]
            try:
                return [future.result() for future in futures]
            except BaseException:
                self.stop.set()
                for future in futures:
                    future.cancel()
                raise

    def _tick(self, what: str) -> None:
        self.done += 1
        self.progress(min(self.done, self.total), self.total, what)

    def _solve(self, key: _Key, plan: DesignPlan, full: Traffic, coarse: Traffic) -> Solved:
        try:
            solved = design.solve(
                plan,
                full=full,
                coarse=coarse,
                slo=self.asked.slo,
                budget=self.asked.budget,
                rate_request_per_s=self.rate,
                whole_fleet=self.whole_fleet,
                cancelled=self.cancelled,
            )
        except ScenarioError as error:
            # Silicon that the user did not ask for may be too large for the budget.
            if key.gpu is None:
                raise
            solved = Solved(plan=plan, found=None, run=None, measured=None, reason=str(error))
        self._tick(" ".join(filter(None, (key.design, key.optical, key.gpu))))
        return solved

    # --- what follows from it --------------------------------------------------------------------

    def _records(self, solved: dict[_Key, Solved], coarse: Traffic) -> dict[str, Design]:
        plain = {
            name: design.record(solved[_Key(name)], budget=self.asked.budget) for name in self.specs
        }
        bindings = dict(
            zip(
                self.specs,
                self._parallel(
                    lambda name: self._binding(solved[_Key(name)], coarse), list(self.specs)
                ),
                strict=True,
            )
        )
        finished = {}
        for name, record in plain.items():
            is_mine = name == self.optical
            finished[name] = msgspec.structs.replace(
                record,
                scopes={
                    scope: msgspec.structs.replace(
                        value,
                        gain_vs_colocated=_gain(plain, self.colocated, scope, value),
                        gain_vs_disaggregated=_gain(plain, self.split, scope, value),
                    )
                    for scope, value in record.scopes.items()
                },
                binding=bindings[name],
                gpu_equivalents_freed=self._freed(solved, name),
                band=self._ends(solved) if is_mine else None,
                retrofit=self._retrofit(plain, name),
            )
        return finished

    def _binding(self, solved: Solved, coarse: Traffic) -> Binding | None:
        found = solved.found
        result = None
        if found is not None and self.rate is None:
            result = binding.find(
                found.cell,
                traffic=coarse,
                slo=self.asked.slo,
                rate_request_per_s=found.rate_request_per_s,
                cancelled=self.cancelled,
            )
        self._tick(f"what binds {solved.plan.name}")
        return result

    def _ends(self, solved: dict[_Key, Solved]) -> Band | None:
        ends = self._band()
        if ends is None or self.optical is None or self.rate is not None:
            return None
        low, high = (
            design.end(solved[self._end_key(server)], server=server, budget=self.asked.budget)
            for server in ends
        )
        return Band(conservative=low, optimistic=high)

    def _freed(self, solved: dict[_Key, Solved], name: str) -> float | None:
        """Return GPUs that `gpu-disaggregated` needs for this design's load, less its own."""
        if self.split is None:
            return None
        mine, rival = solved[_Key(name)], solved[_Key(self.split)]
        if mine.found is None or rival.found is None or not rival.goodput:
            return None
        cells = mine.goodput / (rival.goodput / rival.found.cells)
        needed = math.ceil(cells * design.gpus(rival.found.cell) - 1e-9)
        return float(needed - design.gpus(mine.found.cell) * mine.found.cells)

    def _retrofit(self, plain: dict[str, Design], name: str) -> dict[str, float] | None:
        """Return what adding to the installed servers brings, over the GPU design that keeps them."""
        if not self.asked.budget.limits or name != self.optical:
            return None
        rivals = [plain[other] for other in (self.colocated, self.split) if other is not None]
        base = max(rivals, key=lambda record: record.goodput_request_per_s, default=None)
        mine = plain[name]
        if base is None or mine.cost_usd_per_request is None or base.cost_usd_per_request is None:
            return None
        extra = mine.goodput_request_per_s - base.goodput_request_per_s
        spent = (
            mine.cost_usd_per_request * mine.request_per_s
            - base.cost_usd_per_request * base.request_per_s
        )
        tokens = (mine.input_tok_per_s + mine.output_tok_per_s) - (
            base.input_tok_per_s + base.output_tok_per_s
        )
        return {
            "extra_goodput_request_per_s": extra,
            "marginal_usd_per_mtok": spent / tokens * 1e6 if tokens > 0 else math.inf,
        }

    def _ratio(self, solved: dict[_Key, Solved], gpu: str, weights: str) -> Ratio:
        label = f"{gpu} {weights}"
        triple = self._triple()
        if triple is None or self.rate is not None:
            why = "a load was given" if triple else "the scenario lacks one of the three designs"
            return Ratio(
                silicon=label, goodput_request_per_s_per_w={}, goodput_per_w={}, energy={}, cost={},
                reason=why,
            )  # fmt: skip
        mine = (gpu, weights) == self._silicon()
        ends = {
            name: design.record(
                solved[_Key(name) if mine else _Key(name, gpu=gpu, weights=weights)],
                budget=self.asked.budget,
            )
            for name in triple
        }
        light = ends[triple[2]]
        per_w = {
            name: record.goodput_request_per_s / record.power_w.provisioned
            for name, record in ends.items()
            if record.power_w is not None
        }
        rivals = [name for name in triple[:2] if name in per_w and triple[2] in per_w]
        reasons = [f"{name}: {record.reason}" for name, record in ends.items() if record.reason]
        return Ratio(
            silicon=label,
            goodput_request_per_s_per_w=per_w,
            goodput_per_w={name: per_w[triple[2]] / per_w[name] for name in rivals},
            energy={
                name: _over(ends[name].energy_j_per_request, light.energy_j_per_request)
                for name in rivals
            },
            cost={
                name: _over(ends[name].cost_usd_per_request, light.cost_usd_per_request)
                for name in rivals
            },
            reason="; ".join(reasons) or None,
        )

    def _equal_load(self, mine: dict[str, Solved], full: Traffic) -> EqualLoad | None:
        feasible = {name: one for name, one in mine.items() if one.found is not None}
        if not feasible or self.rate is not None:
            return None
        if self.optical in feasible:
            load = feasible[self.optical].goodput
        else:
            load = min(one.goodput for one in feasible.values())

        def cheapest(name: str) -> dict[str, float]:
            one = feasible[name]
            if one.found is None or one.run is None:
                return {}
            cells = math.ceil(load / one.run.rate_request_per_s - 1e-9)
            again = design.at(
                one.plan,
                one.found,
                full=full,
                slo=self.asked.slo,
                cell_rate=min(load / cells, full.most_request_per_s),
                budget=self.asked.budget,
                cancelled=self.cancelled,
            )
            record = design.record(again, budget=self.asked.budget)
            return {
                "servers": float(cells * one.found.cell.servers),
                "gpus": float(cells * design.gpus(one.found.cell)),
                "power_provisioned_w": cells * self.asked.site.provisioned_w(one.found.cell.peak_w),
                "attainment_frac": record.attainment_frac,
                "energy_j_per_request": record.energy_j_per_request or 0.0,
                "cost_usd_per_request": record.cost_usd_per_request or 0.0,
            }

        names = list(feasible)
        results = self._parallel(cheapest, names)
        return EqualLoad(request_per_s=load, designs=dict(zip(names, results, strict=True)))

    def _break_even(
        self, mine: dict[str, Solved], records: dict[str, Design], coarse: Traffic
    ) -> tuple[BreakEven, ...]:
        triple = self._triple()
        if triple is None or self.rate is not None:
            return ()
        return break_evens(
            self.asked,
            mine=mine,
            records=records,
            names=triple,
            coarse=coarse,
            cancelled=self.cancelled,
        )

    def _workload(self, full: Traffic) -> dict[str, float | str]:
        half = full.most_request_per_s / 2.0
        requests = full.at(half)
        counts = full.requests.count_cv(bin_s=10.0)
        return {
            "trace": question.load_trace(self.asked.scenario).name,
            "span_s": full.span_s,
            "mean_input_tok": float(full.requests.isl_tok.mean()),
            "mean_cached_tok": float(full.requests.cached_tok.mean()),
            "mean_output_tok": full.mean_output_tok,
            "count_cv_10s": float(counts or 0.0),
            "correlation_s": self.asked.scenario.workload.correlation_s,
            "requests_at_half_load": float(len(requests)),
        }

    def _warnings(self, records: dict[str, Design], mine: dict[str, Solved]) -> tuple[str, ...]:
        lines = [
            f"{name}: not feasible: {record.reason}"
            for name, record in records.items()
            if not record.feasible
        ]
        lines += [
            f"{name}: {rejected} requests are longer than a replica's KV memory and count as misses"
            for name, one in mine.items()
            if one.run is not None and (rejected := int((one.run.outcome.state == 7).sum()))
        ]
        if self.optical is not None:
            bits = mine[self.optical].plan.serving.optical_weight_bits
            lines.append(
                f"accuracy is null: nobody has published what {bits}-bit optical prefill does to "
                f"{self.asked.shape.id}; `band` and `retrofit` are null where they do not apply"
            )
        return tuple(lines)


def _is_optical(spec: DesignSpec) -> bool:
    return any(servers.is_optical(pool.server) for pool in spec.pools)


def _over(one: float | None, other: float | None) -> float:
    return one / other if one and other else math.nan


def _gain(plain: dict[str, Design], name: str | None, scope: str, mine: Scope) -> float | None:
    if name is None or scope not in plain[name].scopes:
        return None
    return plain[name].scopes[scope].energy_j_per_request / mine.energy_j_per_request
