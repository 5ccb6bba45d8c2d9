"""A fleet of balanced pools: how many of each fit the budget, and what a request then costs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from firstlight import cost
from firstlight.errors import InfeasibleError, ModelError, ScenarioError
from firstlight.evaluate import search
from firstlight.evaluate.analytic.pool import alone

if TYPE_CHECKING:
    from firstlight.evaluate.analytic.load import Load
    from firstlight.evaluate.analytic.pool import Alone
    from firstlight.evaluate.capacity import Slo
    from firstlight.evaluate.cell import Role
    from firstlight.evaluate.question import Question
    from firstlight.evaluate.search import Budget, DesignPlan

JOINT_FRAC = 1.0
"""Capacity of two pools together over that of the scarcer alone, fitted."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What one design delivers at its capacity, by closed form.

    Attributes:
        name: The design.
        feasible: Whether anything meets the service level within the budget.
        reason: Why not.
        servers: Servers by id.
        power_w: What the budget is charged at the facility [W].
        mean_power_w: Energy over time at the facility [W].
        request_per_s: Requests served a second.
        goodput_request_per_s: Of these, within the service level.
        goodput_request_per_s_per_w: Over the charged power [request/s/W].
        input_tok_per_s: Prompt tokens offered a second.
        output_tok_per_s: Tokens generated a second.
        energy_j_per_request: Energy of a request at the facility [J].
        prefill_energy_j_per_request: The part booked to the prompt [J].
        linear_energy_j_per_request: Prefill of linear layers at the accelerator, above idle [J].
        cost_usd_per_request: Cost of a request [usd].
        prefill_cost_usd_per_request: The part booked to the prompt [usd].
        cost_usd_per_mtok_blended: Cost of a million tokens, prompt and answer alike [usd/Mtok].
        equipment_usd_per_request: The part of it that repays servers, by id [usd].
        carbon_g_per_request: Carbon of a request [g].
        tpot_s: Time per output token at the mean rate [s].
        ttft_s: Time to first token at the mean rate [s].
        utilization: Load of each pool over what it carries alone.
        tp: Tensor parallel degree by role.
        chunk_tok: Most tokens in a step by role [tok].
        cell: Servers of each role in a cell.
        cells: Cells in the fleet.
        uncached_tok: Mean prompt tokens to compute [tok].
        output_tok: Mean answer [tok].
    """

    name: str
    feasible: bool
    reason: str | None
    servers: dict[str, int]
    power_w: float
    mean_power_w: float
    request_per_s: float
    goodput_request_per_s: float
    goodput_request_per_s_per_w: float
    input_tok_per_s: float
    output_tok_per_s: float
    energy_j_per_request: float
    prefill_energy_j_per_request: float
    linear_energy_j_per_request: float
    cost_usd_per_request: float
    prefill_cost_usd_per_request: float
    cost_usd_per_mtok_blended: float
    equipment_usd_per_request: dict[str, float]
    carbon_g_per_request: float
    tpot_s: float
    ttft_s: float
    utilization: dict[str, float]
    tp: dict[str, int]
    chunk_tok: dict[str, int]
    cell: dict[str, int]
    cells: int
    uncached_tok: float
    output_tok: float


def design_estimate(plan: DesignPlan, *, asked: Question, load: Load) -> Estimate:
    """Return what one design delivers.

    Args:
        plan: The design.
        asked: The question it answers.
        load: The traffic.

    Raises:
        ScenarioError: The budget is smaller than one server or one cell.
    """
    try:
        asked.budget.check(plan)
        pools = [
            alone(pool, serving=plan.serving, load=load, slo=_own(asked.slo, pool.role))
            for pool in plan.pools
        ]
    except (InfeasibleError, ModelError) as error:
        return _nothing(plan.name, str(error), load=load)
    rate, counts, cells = _best_counts(plan, pools, budget=asked.budget)
    return _account(plan, pools, counts, cells, rate=rate, asked=asked, load=load)


def _own(slo: Slo, role: Role) -> Slo:
    """Return the limits a pool of that role answers for."""
    return replace(slo, tpot_s=1e6) if role == "prefill" else slo


def _best_counts(
    plan: DesignPlan, pools: list[Alone], *, budget: Budget
) -> tuple[float, tuple[int, ...], int]:
    """Return (fleet rate, servers of each pool in a cell, cells) of the best cell.

    Raises:
        ScenarioError: No cell fits.
    """
    best: tuple[float, tuple[int, ...], int] = (0.0, (), 0)
    joint = JOINT_FRAC if len(pools) > 1 else 1.0
    charges = [budget.charge_w(pool.server) for pool in plan.pools]
    # A budget of more than power counts for itself.
    is_limited = bool(budget.limits) or type(budget) is not search.Budget
    for counts in search.ratios(plan, budget):
        if is_limited:
            servers = tuple((pool.server, n) for pool, n in zip(plan.pools, counts, strict=True))
            cells = budget.cells(servers)
        else:
            taken = sum(charge * n for charge, n in zip(charges, counts, strict=True))
            cells = int(budget.power_w / taken + 1e-9)
        rate = joint * cells * min(pool.together(n) for pool, n in zip(pools, counts, strict=True))
        if rate > best[0]:
            best = rate, counts, cells
    if not best[2]:
        raise ScenarioError(
            f"{plan.name}: no cell of {' + '.join(pool.server.id for pool in plan.pools)} fits "
            f"power_w = {budget.power_w:g}"
        )
    return best


@dataclass(frozen=True, kw_only=True)
class _Booked:
    """One server a second at its load: joules and dollars, prompt and answer apart."""

    prefill_w: float
    decode_w: float
    linear_w: float
    prefill_share: float
    busy_frac: float
    step_s: float
    first_s: float


def _running(one: Alone, rate: float, *, load: Load, asked: Question) -> _Booked:
    """Return what one server draws, net of cooling, at a load of `rate` requests a second."""
    made, server, joules = one.unit, one.server, one.unit.joules
    steps = one.steps
    per_replica = rate / made.replicas
    prefill_j = decode_j = linear_j = busy_prefill = busy_decode = step_s = first_s = 0.0
    slowed, size = 1.0, 0.0
    if made.role != "decode":
        asked_tok = per_replica * load.mean_uncached_tok
        size = max(steps.prefill_size_tok(asked_tok), 1.0)
        size = min(max(size, load.mean_uncached_tok), steps.most_tok)
        at = round(size)
        linear_j = load.mean_uncached_tok * joules.linear_j(at) / at
        pair_j = joules.pair_j(min(at, int(load.mean_uncached_tok) + 1))
        prefill_j = linear_j + load.mean_pairs * pair_j + joules.head_j()
        first_s = steps.prefill_time_s(size)
        busy_prefill = asked_tok * first_s / size
        if made.role == "mixed":
            busy_prefill = min(asked_tok * steps.extra_s_per_tok, 0.98)
            # Prompts ride on steps that stream the weights for decode anyhow.
            ride = int(steps.most_tok) - 64
            further_j = (joules.linear_j(ride + 64) - joules.linear_j(64)) / ride
            prefill_j += load.mean_uncached_tok * further_j - linear_j
            linear_j = load.mean_uncached_tok * further_j
            slowed = 1.0 / (1.0 - busy_prefill)
    if made.role != "prefill":
        wanted = per_replica * load.mean_output_tok * slowed
        n = max(round(steps.decode_seqs(wanted)), 1)
        alone_s = steps.decode_time_s(n)
        decode_j = load.mean_output_tok * joules.decode_j(n, load.context_tok) / n
        step_s = alone_s * slowed
        busy_decode = min(wanted * alone_s / n, 1.0 - busy_prefill)
    busy = min(busy_prefill + busy_decode, 1.0)
    # Mixed steps are split by the time each part alone would take.
    apart = per_replica * load.mean_uncached_tok * first_s / size if size else 0.0
    share = apart / (apart + busy_decode) if apart + busy_decode else 0.5
    standing_w = (
        server.floor_w
        + server.host_idle_w
        + (server.host_peak_w - server.host_idle_w) * busy
        + asked.site.network_frac * server.peak_w
    )
    loss = server.supply_factor
    return _Booked(
        prefill_w=rate * prefill_j * loss + standing_w * share,
        decode_w=rate * decode_j * loss + standing_w * (1.0 - share),
        linear_w=rate * linear_j,
        prefill_share=share,
        busy_frac=busy,
        step_s=step_s,
        first_s=first_s,
    )


def _account(
    plan: DesignPlan,
    pools: list[Alone],
    counts: tuple[int, ...],
    cells: int,
    *,
    rate: float,
    asked: Question,
    load: Load,
) -> Estimate:
    """Return joules, dollars and grams of a fleet at its capacity."""
    site, rates = asked.site, asked.site.rates
    numbers = [n * cells for n in counts]
    booked = [
        _running(pool, rate / n, load=load, asked=asked)
        for pool, n in zip(pools, numbers, strict=True)
    ]
    split = len(pools) > 1
    wire_j = 8.0 * load.mean_input_tok * plan.serving.kv_bytes_per_tok * site.kv_j_per_bit
    wire_w = rate * wire_j if split else 0.0
    prefill_w = wire_w + sum(b.prefill_w * n for b, n in zip(booked, numbers, strict=True))
    decode_w = sum(b.decode_w * n for b, n in zip(booked, numbers, strict=True))
    mean_w = site.pue * (prefill_w + decode_w)
    equipment: dict[str, float] = {}
    usd_per_s = cost.energy_usd(mean_w, rates=rates)
    prefill_usd_per_s = cost.energy_usd(site.pue * prefill_w, rates=rates)
    peak_w = 0.0
    for pool, n, drawn in zip(pools, numbers, booked, strict=True):
        server = pool.server
        price = 0.0 if server.id in site.sunk else server.price_usd
        provisioned = site.provisioned_w(server.peak_w)
        peak_w += provisioned * n
        standing = n * cost.standing_usd_per_s(price, provisioned / site.pue, rates=rates)
        usd_per_s += standing
        prefill_usd_per_s += standing * drawn.prefill_share
        equipment[server.id] = equipment.get(server.id, 0.0) + n / rate * cost.annuity_usd_per_s(
            price * (1.0 + rates.network_price_frac),
            life_years=rates.it_life_years,
            cost_of_capital_frac=rates.cost_of_capital_frac,
        )
    energy_j = mean_w / rate
    goodput = rate * asked.slo.quantile
    tokens = load.mean_input_tok + load.mean_output_tok
    servers: dict[str, int] = {}
    for pool, n in zip(pools, numbers, strict=True):
        servers[pool.server.id] = servers.get(pool.server.id, 0) + n
    roles = [pool.unit.role for pool in pools]
    return Estimate(
        name=plan.name,
        feasible=True,
        reason=None,
        servers=servers,
        power_w=peak_w,
        mean_power_w=mean_w,
        request_per_s=rate,
        goodput_request_per_s=goodput,
        goodput_request_per_s_per_w=goodput / peak_w,
        input_tok_per_s=rate * load.mean_input_tok,
        output_tok_per_s=rate * load.mean_output_tok,
        energy_j_per_request=energy_j,
        prefill_energy_j_per_request=site.pue * prefill_w / rate,
        linear_energy_j_per_request=sum(
            b.linear_w * n for b, n in zip(booked, numbers, strict=True)
        )
        / rate,
        cost_usd_per_request=usd_per_s / rate,
        prefill_cost_usd_per_request=prefill_usd_per_s / rate,
        cost_usd_per_mtok_blended=usd_per_s / rate / tokens * 1e6,
        equipment_usd_per_request=equipment,
        carbon_g_per_request=cost.carbon_g(energy_j, rates=rates),
        tpot_s=max(b.step_s for b in booked),
        ttft_s=max(b.first_s for b in booked),
        utilization={
            role: rate / cells / pool.together(n)
            for role, n, pool in zip(roles, counts, pools, strict=True)
        },
        tp={pool.unit.role: pool.unit.tp for pool in pools},
        chunk_tok={pool.unit.role: pool.unit.chunk_tok for pool in pools},
        cell=dict(zip(roles, counts, strict=True)),
        cells=cells,
        uncached_tok=load.mean_uncached_tok,
        output_tok=load.mean_output_tok,
    )


def _nothing(name: str, reason: str, *, load: Load) -> Estimate:
    numbers = dict.fromkeys(
        (
            "power_w", "mean_power_w", "request_per_s", "goodput_request_per_s",
            "goodput_request_per_s_per_w", "input_tok_per_s", "output_tok_per_s",
        ),
        0.0,
    )  # fmt: skip
    absent = dict.fromkeys(
        (
            "energy_j_per_request", "prefill_energy_j_per_request", "linear_energy_j_per_request",
            "cost_usd_per_request", "prefill_cost_usd_per_request", "cost_usd_per_mtok_blended",
            "carbon_g_per_request", "tpot_s", "ttft_s",
        ),
        math.nan,
    )  # fmt: skip
    return Estimate(
        name=name,
        feasible=False,
        reason=reason,
        servers={},
        equipment_usd_per_request={},
        utilization={},
        tp={},
        chunk_tok={},
        cell={},
        cells=0,
        uncached_tok=load.mean_uncached_tok,
        output_tok=load.mean_output_tok,
        **numbers,
        **absent,
    )
