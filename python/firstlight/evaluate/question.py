"""From a scenario to what the search needs: plans, servers, traffic, budget, prices."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from firstlight import catalog, cost, models, workload
from firstlight.errors import ModelError, ScenarioError
from firstlight.evaluate import servers
from firstlight.evaluate.capacity import Slo, Traffic
from firstlight.evaluate.cell import Serving, fitting_tp, group
from firstlight.evaluate.measure import Site
from firstlight.evaluate.screen import PoolPlan, bound
from firstlight.evaluate.search import Budget, DesignPlan
from firstlight.optics import EngineSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from firstlight.scenario import Design, Scenario

STACK = "vllm-2025"
LINK = "ib-ndr"
FOLD = workload.Fold(period_s=480.0, keep_s=40.0)
"""The sample searches run on: a twelfth of the time, in pieces longer than most answers take."""
FEWEST_REQUESTS = 8000.0
"""Requests that a cell of the slowest design may see in the sample; for fewer it is made longer."""
MOST_COPIES = 1024
MOST_REQUESTS = 12_000_000
"""Most requests held at once: about 600 MB."""
ENGINE_FIELDS = frozenset(field.name for field in fields(EngineSpec))


@dataclass(frozen=True, kw_only=True)
class Question:
    """A scenario, resolved.

    Attributes:
        scenario: What was asked.
        shape: The model.
        slo: The service level.
        site: Overheads and prices.
        budget: What a fleet may take.
        overrides: Engine fields that the scenario assumes otherwise.
        price_ratio: Optical price per provisioned watt over that of the GPU servers beside it.
    """

    scenario: Scenario
    shape: models.ModelShape
    slo: Slo
    site: Site
    budget: Budget
    overrides: dict[str, float]
    price_ratio: float

    def number(self, name: str) -> float:
        """Return an assumption as a number."""
        return number(self.scenario, name)

    def serving(self, design: Design, *, weights: str | None = None) -> Serving:
        """Return how a design serves the model.

        Args:
            design: The design.
            weights: Another number format for the weights on silicon.
        """
        precision = self.scenario.precision_of(design)
        optical = [pool.server for pool in design.pools if servers.is_optical(pool.server)]
        bits = servers.weight_bits(optical[0], self.overrides) if optical else 0
        return Serving(
            shape=self.shape,
            weights=weights or precision.weights,
            kv=precision.kv,
            optical_weight_bits=bits,
            stack=STACK,
            max_seqs=int(self.number("max_seqs_count")),
            block_tok=int(self.number("kv_block_tok")),
            mem_util_frac=self.number("gpu_memory_utilization_frac"),
            watermark_frac=0.0,
            link_frac=self.number("kv_link_frac"),
            link_latency_s=self.number("kv_latency_s"),
            first_token=self.scenario.first_token,
            local_below_tok=design.policy.local_below_tok or int(self.number("local_below_tok")),
        )

    def plan(
        self,
        design: Design,
        *,
        optical: str | None = None,
        gpu: str | None = None,
        weights: str | None = None,
        overrides: dict[str, float] | None = None,
    ) -> DesignPlan:
        """Return a design as the search takes it.

        Args:
            design: The design.
            optical: Another optical server in place of the one named.
            gpu: Another GPU server in place of those named.
            weights: Another number format for the weights on silicon.
            overrides: Engine fields on top of the scenario's.
        """
        serving = self.serving(design, weights=weights)
        chunk = design.policy.chunk_tok
        pools = tuple(
            PoolPlan(
                role="mixed" if pool.role == "both" else pool.role,
                server=self.server(
                    _swapped(pool.server, optical=optical, gpu=gpu),
                    beside=self._silicon(design, gpu),
                    overrides=overrides,
                ),
                tp=None if pool.tp == "auto" else pool.tp,
                chunk_tok=None if chunk == "auto" else chunk,
                share=None if pool.share == "auto" or len(design.pools) == 1 else pool.share,
                count=pool.count,
            )
            for pool in design.pools
        )
        return DesignPlan(
            name=design.name,
            pools=pools,
            serving=serving,
            disaggregate="conditional" if design.policy.disaggregate == "conditional" else "always",
        )

    def server(
        self, server_id: str, *, beside: str, overrides: dict[str, float] | None = None
    ) -> servers.Server:
        """Return a server; an optical one is priced by the watt like the GPU server beside it."""
        usd_per_w = 1.0
        if servers.is_optical(server_id):
            silicon = catalog.get(beside, kind="server")
            usd_per_w = silicon.value("price_usd") / silicon.value("peak_w") * self.price_ratio
        return servers.load(
            server_id,
            overrides={**self.overrides, **(overrides or {})},
            usd_per_peak_w=usd_per_w,
        )

    def _silicon(self, design: Design, gpu: str | None) -> str:
        """Return the GPU server an optical one stands beside."""
        if gpu is not None:
            return gpu
        for pool in design.pools:
            if not servers.is_optical(pool.server):
                return pool.server
        raise ScenarioError(f"design {design.name!r} has no GPU server to decode on")

    def sample(
        self,
        plans: list[DesignPlan],
        *,
        beside: list[DesignPlan] | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> Traffic:
        """Return a sample of the time, heavy enough to search every plan's largest cell.

        Args:
            plans: The designs that will be searched; the model must fit one of them.
            beside: Further designs, which the model need not fit.
            cancelled: Asked a few times a second.

        Raises:
            ModelError: The model fits none of the plans.
        """
        trace = self.trace
        light = self._superposed(copies=1, most=trace.request_per_s, warm_up_frac=0.0)
        least = min(rate for rate, _ in _loads(plans, light, self.budget))
        most, fleet = (
            max(of)
            for of in zip(*_loads([*plans, *(beside or [])], light, self.budget), strict=True)
        )
        # A power of two, so that neighbouring scenarios draw the same requests.
        needed = max(fleet, most) / trace.request_per_s
        copies = min(2 ** math.ceil(math.log2(max(needed, 1.0))), MOST_COPIES)
        return self._superposed(
            copies=copies,
            most=min(most, copies * trace.request_per_s),
            warm_up_frac=self.number("warm_up_frac"),
            fold=_fold(least * trace.duration_s),
            cancelled=cancelled,
        )

    def whole(
        self, sample: Traffic, *, most: float, cancelled: Callable[[], bool] | None = None
    ) -> Traffic:
        """Return the whole time of which a sample was taken.

        Args:
            sample: The sample.
            most: Highest load that will be asked for [request/s].
            cancelled: Asked a few times a second.

        Raises:
            ScenarioError: More requests would be held than fit.
        """
        requests = most * self.trace.duration_s
        if requests > MOST_REQUESTS:
            raise ScenarioError(
                f"{most:,.3g} requests/s for the whole trace are {requests:,.3g} requests; at most "
                f"{MOST_REQUESTS:,} can be simulated: a lower power_w, or a lower --rate where one "
                "is given"
            )
        return self._superposed(
            copies=self._copies(sample),
            most=min(most, sample.full_request_per_s),
            warm_up_frac=sample.warm_up_frac,
            cancelled=cancelled,
        )

    def correlated(self, sample: Traffic, *, most: float, correlation_s: float) -> Traffic:
        """Return a sample of the same traffic with copies that are shifted otherwise.

        Args:
            sample: The traffic.
            most: Highest load that will be asked for [request/s].
            correlation_s: Bound of the shifts; 0 leaves all bursts together [s].
        """
        return self._superposed(
            copies=self._copies(sample),
            most=min(most, sample.full_request_per_s),
            warm_up_frac=sample.warm_up_frac,
            correlation_s=correlation_s,
            fold=sample.fold,
        )

    def _copies(self, sample: Traffic) -> int:
        return round(sample.full_request_per_s / self.trace.request_per_s)

    @property
    def trace(self) -> workload.Trace:
        """The trace with its lengths scaled and clipped to the model's context."""
        return self._scaled.trace

    @property
    def clipped_frac(self) -> float:
        """Share of requests that were cut to the model's context."""
        return self._scaled.clipped_frac

    @cached_property
    def _scaled(self) -> workload.ScaledTrace:
        work = self.scenario.workload
        return workload.scale_lengths(
            load_trace(self.scenario),
            context_tok=work.context_tok,
            output_tok=work.output_tok,
            max_context_tok=self.shape.max_context_tok,
        )

    def _superposed(
        self,
        *,
        copies: int,
        most: float,
        warm_up_frac: float,
        correlation_s: float | None = None,
        fold: workload.Fold | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> Traffic:
        work = self.scenario.workload
        superposed = workload.superpose(
            self.trace,
            copies=copies,
            seed=self.scenario.seed,
            max_request_per_s=most,
            correlation_s=work.correlation_s if correlation_s is None else correlation_s,
            cached_frac=work.cached_frac,
            fold=fold,
            cancelled=cancelled,
        )
        traffic = replace(Traffic.of(superposed, warm_up_frac=warm_up_frac), fold=fold)
        if not work.shared_prefix_tok:
            return traffic
        every = traffic.requests
        # What all requests share is present wherever they go.
        shared = np.minimum(every.isl_tok - 1, np.uint32(work.shared_prefix_tok))
        cached = np.maximum(every.cached_tok, shared)
        return replace(traffic, requests=replace(every, cached_tok=cached))


def number(scenario: Scenario, name: str) -> float:
    """Return an assumption as a number; the midpoint of a range.

    Raises:
        ScenarioError: It is a word.
    """
    value = scenario.assumption(name).value
    if isinstance(value, str | bool | tuple):
        raise ScenarioError(f"assumptions.{name}: {value!r} is not a number")
    return float(value)


def load_trace(scenario: Scenario) -> workload.Trace:
    """Return the trace a scenario names."""
    work = scenario.workload
    return workload.load(work.preset or work.trace or "azure-2023-conv", seed=scenario.seed)


def resolve(scenario: Scenario) -> Question:
    """Return a scenario with its model, overheads and prices looked up.

    Raises:
        CatalogError: A record is unknown.
        ScenarioError: An assumption is no number, or the installed servers exceed the budget.
    """
    facility = scenario.facility
    rates = cost.Rates(
        electricity_usd_per_kwh=facility.electricity_usd_per_kwh,
        colocation_usd_per_kw_month=number(scenario, "colocation_usd_per_kw_month"),
        it_life_years=number(scenario, "it_life_years"),
        cost_of_capital_frac=number(scenario, "cost_of_capital_frac"),
        network_price_frac=number(scenario, "network_price_frac"),
        carbon_g_per_kwh=facility.carbon_g_per_kwh,
    )
    installed = {name: int(count) for name, count in facility.installed.items()}
    site = Site(
        pue=facility.pue,
        network_frac=number(scenario, "network_frac"),
        kv_j_per_bit=catalog.get(LINK, kind="link").value("link_energy_j_per_bit"),
        margin_ratio=number(scenario, "server_margin_ratio"),
        rates=rates,
        sunk=frozenset(installed),
    )
    budget = Budget(
        power_w=facility.power_w,
        boundary=facility.boundary,
        rack_power_w=facility.rack_power_w,
        limits=installed,
        site=site,
        max_cell_servers=int(number(scenario, "max_cell_servers_count")),
    )
    standing_w = sum(
        budget.charge_w(servers.load(name, overrides={}, usd_per_peak_w=1.0)) * count
        for name, count in installed.items()
    )
    if standing_w > budget.power_w:
        raise ScenarioError(
            f"facility.installed takes {standing_w:,.0f} W of power_w = {budget.power_w:,.0f}; "
            "allowed: servers that fit the budget"
        )
    budget = replace(budget, standing_w=standing_w)
    model = scenario.model
    return Question(
        scenario=scenario,
        shape=models.load(model if isinstance(model, str) else dict(model)),
        slo=Slo(
            ttft_s=scenario.slo.ttft_s, tpot_s=scenario.slo.tpot_s, quantile=scenario.slo.quantile
        ),
        site=site,
        budget=budget,
        overrides={
            name: number(scenario, name) for name in scenario.assumptions if name in ENGINE_FIELDS
        },
        price_ratio=number(
            scenario,
            # The same input, under the name of the servers' own fact.
            "price_ratio" if "price_ratio" in scenario.assumptions else "optical_price_ratio",
        ),
    )


def _swapped(server_id: str, *, optical: str | None, gpu: str | None) -> str:
    return (optical if servers.is_optical(server_id) else gpu) or server_id


def _alone_bounds(plan: DesignPlan, light: Traffic) -> list[float]:
    """Return a bound on what one server of each pool carries."""
    bounds = []
    for pool in plan.pools:
        degrees = (1,) if pool.server.engine else fitting_tp(pool.server, serving=plan.serving)
        made = [
            group(
                pool.server,
                role=pool.role,
                tp=tp,
                chunk_tok=0 if pool.server.engine else 8192,
                serving=plan.serving,
            )
            for tp in degrees
        ]
        bounds.append(max(bound(option, serving=plan.serving, traffic=light) for option in made))
    return bounds


def _fold(requests: float) -> workload.Fold:
    """Return the sample of a time in which a cell sees so many requests, if it sees them all."""
    keep_s = FOLD.keep_s
    while requests * keep_s / FOLD.period_s < FEWEST_REQUESTS and keep_s < FOLD.period_s:
        keep_s *= 2.0
    return replace(FOLD, keep_s=keep_s)


def _loads(plans: list[DesignPlan], light: Traffic, budget: Budget) -> list[tuple[float, float]]:
    """Return loads that no cell and no fleet of each plan exceeds; plans that do not fit are left out.

    Raises:
        ModelError: The model fits none of them.
    """
    rates, refusal = [], None
    for plan in plans:
        try:
            bounds = _alone_bounds(plan, light)
        except ModelError as error:
            refusal = refusal or error
        else:
            rates.append((_most_rate(bounds, budget), _fleet_rate(plan, bounds, budget)))
    if not rates:
        raise refusal or ModelError("no design to simulate")
    return rates


def _most_rate(bounds: list[float], budget: Budget) -> float:
    """Return a load that no cell exceeds, from what one server of each pool carries at most."""
    if len(bounds) == 1:
        return bounds[0]
    # A cell carries what the scarcer pool does; the best split of its servers bounds that.
    servers_in_cell = budget.max_cell_servers
    return max(
        *(min(n * bounds[0], (servers_in_cell - n) * bounds[1]) for n in range(1, servers_in_cell)),
        *bounds,
    )


def _fleet_rate(plan: DesignPlan, bounds: list[float], budget: Budget) -> float:
    """Return a load that no fleet of the plan within the budget exceeds."""
    watts = sum(
        budget.charge_w(pool.server) / rate for pool, rate in zip(plan.pools, bounds, strict=True)
    )
    return budget.power_w / watts
