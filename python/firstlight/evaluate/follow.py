"""What follows from solved designs without simulating again: ratios, bands, freed GPUs, retrofit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from firstlight.evaluate import design
from firstlight.evaluate.answer import Band, Design, Ratio, Scope
from firstlight.runners.measured import accuracy_of, command_for

if TYPE_CHECKING:
    from firstlight.evaluate.capacity import Traffic
    from firstlight.evaluate.design import Solved
    from firstlight.evaluate.pieces import Key, Pieces
    from firstlight.evaluate.question import Question
    from firstlight.evaluate.search import Budget
    from firstlight.runners.measured import MeasuredAccuracy


def band(solved: dict[Key, Solved], pieces: Pieces, *, budget: Budget) -> Band | None:
    """Return both ends of the optical design, when its scenario names them."""
    if pieces.band is None:
        return None
    low, high = (
        design.end(solved[pieces.end(server)], server=server, budget=budget)
        for server in pieces.band
    )
    return Band(conservative=low, optimistic=high)


def gains(mine: Design, *, colocated: Design | None, split: Design | None) -> dict[str, Scope]:
    """Return a design's scopes with their gains over the GPU designs."""
    return {
        name: msgspec.structs.replace(
            scope,
            gain_vs_colocated=_gain(colocated, name, scope),
            gain_vs_disaggregated=_gain(split, name, scope),
        )
        for name, scope in mine.scopes.items()
    }


def _gain(rival: Design | None, name: str, mine: Scope) -> float | None:
    if rival is None or name not in rival.scopes:
        return None
    return rival.scopes[name].energy_j_per_request / mine.energy_j_per_request


def freed_gpus(mine: Solved, rival: Solved | None) -> float | None:
    """Return GPUs that the split GPU design needs for this design's load, less its own."""
    if rival is None or mine.found is None or rival.found is None or not rival.goodput:
        return None
    if any(one.measured is None or not one.measured.holds for one in (mine, rival)):
        return None
    cells = mine.goodput / (rival.goodput / rival.found.cells)
    needed = math.ceil(cells * design.gpus(rival.found.cell) - 1e-9)
    return float(needed - design.gpus(mine.found.cell) * mine.found.cells)


def retrofit(mine: Design, rivals: list[Design]) -> dict[str, float] | None:
    """Return what adding light to installed servers brings over the better GPU design on them."""
    base = max(rivals, key=lambda record: record.goodput_request_per_s, default=None)
    if base is None or mine.cost_usd_per_request is None or base.cost_usd_per_request is None:
        return None
    spent = (
        mine.cost_usd_per_request * mine.request_per_s
        - base.cost_usd_per_request * base.request_per_s
    )
    tokens = (mine.input_tok_per_s + mine.output_tok_per_s) - (
        base.input_tok_per_s + base.output_tok_per_s
    )
    extra = {"extra_goodput_request_per_s": mine.goodput_request_per_s - base.goodput_request_per_s}
    # Without extra tokens there is nothing to spread the spending over.
    more = tokens > 0.01 * (base.input_tok_per_s + base.output_tok_per_s)
    return extra | ({"marginal_usd_per_mtok": spent / tokens * 1e6} if more else {})


def accuracy(solved: Solved) -> dict[str, float] | None:
    """Return what was measured of the model on a design's engine; nothing is guessed."""
    row = _measured(solved)
    if row is None:
        return None
    return {
        "perplexity_ratio": row.ratio,
        "perplexity_ratio_se": row.ratio_se,
        "kl_nat": row.kl,
        "top1_agreement_frac": row.top1_agreement_frac,
        "mask_bits": float(row.mask_bits),
        "predictions": float(row.tokens),
    }


def _measured(solved: Solved) -> MeasuredAccuracy | None:
    engine = next((pool.server.device for pool in solved.plan.pools if pool.server.engine), None)
    serving = solved.plan.serving
    if engine is None:
        return None
    return accuracy_of(serving.shape.id, engine=engine, mask_bits=serving.optical_weight_bits)


def ratio(
    solved: dict[Key, Solved], pieces: Pieces, silicon: tuple[str, str], *, budget: Budget
) -> Ratio:
    """Return the optical design over the GPU designs on some silicon.

    Args:
        solved: Everything solved.
        pieces: Which design is which.
        silicon: GPU server and format of the weights.
        budget: What a fleet may take.
    """
    label = " ".join(silicon)
    triple = pieces.triple
    if triple is None or pieces.on(triple[2], silicon) not in solved:
        why = "a load was given" if triple else "the scenario lacks one of the three designs"
        return Ratio(
            silicon=label, goodput_request_per_s_per_w={}, goodput_per_w={}, energy={}, cost={},
            reason=why,
        )  # fmt: skip
    ends = {name: design.record(solved[pieces.on(name, silicon)], budget=budget) for name in triple}
    light = ends[triple[2]]
    per_w = {
        name: record.goodput_request_per_s / record.power_w.provisioned
        for name, record in ends.items()
        if record.power_w is not None
    }
    # over a design that carries nothing within the limits there is no ratio
    rivals = [name for name in triple[:2] if per_w.get(name) and triple[2] in per_w]
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


def _over(one: float | None, other: float | None) -> float:
    return one / other if one and other else math.nan


def workload(asked: Question, full: Traffic) -> dict[str, float | str]:
    """Return what the traffic was, as it was simulated."""
    counts = full.requests.count_cv(bin_s=10.0)
    known: dict[str, float | str] = {} if counts is None else {"count_cv_10s": float(counts)}
    return known | {
        "trace": asked.trace.name,
        "span_s": full.span_s,
        "mean_input_tok": full.mean_input_tok,
        "mean_cached_tok": full.mean_input_tok - full.mean_uncached_tok,
        "mean_output_tok": full.mean_output_tok,
        "correlation_s": asked.scenario.workload.correlation_s,
    }


def warnings(
    records: dict[str, Design],
    solved: dict[str, Solved],
    *,
    asked: Question,
    full: Traffic,
    optical: str | None,
) -> tuple[str, ...]:
    """Return what a reader must know beside the numbers, one line each."""
    lines = []
    if asked.clipped_frac > 0:
        lines.append(
            f"{asked.clipped_frac:.2%} of requests are longer than the model's context of "
            f"{asked.shape.max_context_tok:,} tokens and were cut to it; mean prompt simulated "
            f"{full.mean_input_tok:,.0f} tok, mean answer {full.mean_output_tok:,.0f} tok"
        )
    lines += [
        f"{name}: not feasible: {record.reason}"
        for name, record in records.items()
        if not record.feasible
    ]
    for name, one in solved.items():
        if one.measured is None:
            continue
        if one.measured.rejected:
            lines.append(
                f"{name}: {one.measured.rejected} requests are longer than a replica's KV memory "
                "and count as misses"
            )
        if one.measured.rate_request_per_s >= full.most_request_per_s * (1.0 - 1e-9):
            lines.append(f"{name}: carries all the traffic that was drawn; it may carry more")
    if optical is not None:
        mine = solved[optical]
        serving = mine.plan.serving
        if _measured(mine) is None:
            engine = next(pool.server.device for pool in mine.plan.pools if pool.server.engine)
            lines.append(
                f"accuracy is null: what {serving.optical_weight_bits}-bit optical prefill does to "
                f"{serving.shape.id} was not measured; "
                f"{command_for(serving.shape.id, engine=engine)} measures it"
            )
    return tuple(lines)
