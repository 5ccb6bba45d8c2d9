"""The compiled closed form of one pool against its plain form in NumPy, and its limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from firstlight.errors import FirstlightError
from firstlight.evaluate import question
from firstlight.evaluate.analytic.load import load_of_question
from firstlight.evaluate.analytic.pool import carried
from firstlight.evaluate.analytic.unit import steps_of, unit
from firstlight.evaluate.capacity import Slo
from firstlight.evaluate.cell import group
from firstlight.scenario import Scenario
from reference import closed_form

TRAFFIC = {
    "as it is": {},
    "long prompts": {"context_tok": 8000, "output_tok": 64},
    "no cache": {"cached_frac": 0.0, "context_tok": 300},
    "bursts together": {"correlation_s": 0.0},
}
LEVELS = [Slo(ttft_s=2.0, tpot_s=0.05, quantile=0.9), Slo(ttft_s=0.5, tpot_s=0.02, quantile=0.99)]
POOLS = [
    ("gpu-colocated", "mixed", 2, 512),
    ("gpu-colocated", "mixed", 4, 2048),
    ("gpu-disaggregated", "prefill", 2, 8192),
    ("gpu-disaggregated", "decode", 4, 2048),
    ("optical+gpu", "prefill", 1, 0),
]


@pytest.fixture(scope="module", params=TRAFFIC, ids=list(TRAFFIC))
def asked(request):
    return question.resolve(Scenario.default().replace(**TRAFFIC[request.param]))


def pools(asked):
    """(group of one server, its plan's serving) of each pool."""
    plans = {design.name: asked.plan(design) for design in asked.scenario.designs}
    for name, role, tp, chunk_tok in POOLS:
        plan = plans[name]
        server = next(pool.server for pool in plan.pools if pool.role == role)
        yield (
            group(server, role=role, tp=tp, chunk_tok=chunk_tok, serving=plan.serving),
            plan.serving,
        )


def test_step_times_are_those_of_the_plain_form(asked):
    load = load_of_question(asked)
    for made, serving in pools(asked):
        mine = steps_of(made, load=load, serving=serving)
        plain = closed_form.steps_of(made, load=load, serving=serving)
        for name in ("tokens", "prefill_s", "seqs", "decode_s", "extra_s_per_tok"):
            np.testing.assert_allclose(
                getattr(mine, name), getattr(plain, name), rtol=1e-12, err_msg=name
            )
        assert mine.bound() == pytest.approx(closed_form.bound_of(made, plain, load=load))


@pytest.mark.parametrize("slo", LEVELS, ids=["lax", "tight"])
@pytest.mark.parametrize("count", [1, 6])
def test_misses_and_capacity_are_those_of_the_plain_form(asked, slo, count):
    load = load_of_question(asked)
    for one, serving in pools(asked):
        made = replace(one, count=count)
        mine = steps_of(made, load=load, serving=serving)
        plain = closed_form.steps_of(made, load=load, serving=serving)
        rates = np.linspace(0.1, 1.2, 9) * count * mine.bound()
        if made.role == "prefill" or count == 1:
            missed = [
                mine.missed(
                    float(rate), count=count, ttft_s=slo.ttft_s, tpot_s=slo.tpot_s,
                    decode_wait_s=10 * slo.tpot_s, quantile=slo.quantile,
                )
                for rate in rates
            ]  # fmt: skip
            expected = closed_form.miss_frac(made, plain, rates, load=load, slo=slo)
            np.testing.assert_allclose(missed, expected, rtol=1e-9, atol=1e-12)
            assert carried(mine, slo=slo, count=count) == pytest.approx(
                closed_form.carried(made, plain, load=load, slo=slo), rel=1e-9
            )


def test_passes_that_are_not_tabled_are_those_of_the_table(asked):
    load = load_of_question(asked)
    plan = asked.plan(asked.scenario.design("optical+gpu"))
    server, serving = plan.pools[0].server, plan.serving
    made = group(server, role="prefill", tp=1, chunk_tok=0, serving=serving)
    mine = unit(server, role="prefill", tp=1, chunk_tok=0, serving=serving)
    steps, tabled = mine.steps(load, serving), steps_of(made, load=load, serving=serving)
    assert mine.chunk_tok == made.chunk_tok
    np.testing.assert_allclose(steps.tokens, tabled.tokens, rtol=1e-12)
    np.testing.assert_allclose(steps.prefill_s, tabled.prefill_s, rtol=1e-9)
    for tokens in (1, 300, made.chunk_tok):
        assert mine.joules.linear_j(tokens) == pytest.approx(
            made.table.linear_pj[tokens] / 1e12, rel=1e-9
        )
    assert mine.joules.head_j() == pytest.approx(made.table.head_pj[1] / 1e12, rel=1e-9)
    assert mine.joules.pair_j(9) == pytest.approx(
        made.table.prefill_attn_pair_fj[9] / 1e15, rel=1e-4
    )
    slo = LEVELS[0]
    assert carried(steps, slo=slo) == pytest.approx(carried(tabled, slo=slo), rel=1e-6)


def test_what_does_no_better_is_told_by_one_look(asked):
    load = load_of_question(asked)
    for made, serving in pools(asked):
        steps = steps_of(made, load=load, serving=serving)
        rate = carried(steps, slo=LEVELS[0])
        assert carried(steps, slo=LEVELS[0], beat=0.9 * rate) == rate
        assert carried(steps, slo=LEVELS[0], beat=1.1 * rate + 1e-9) == 0.0


def test_traffic_that_cannot_be_is_refused(asked):
    load = load_of_question(asked)
    for change, said in (
        ({"mean_output_tok": 0.0}, "mean_output_tok is 0; allowed: above 0"),
        ({"decode_ratio": np.ones(3)}, "decode_ratio has shape"),
        ({"uncached_weight": np.ones(1)}, "uncached_weight has shape"),
    ):
        with pytest.raises(ValueError, match=said):
            _ = replace(load, **change).moments


def test_a_role_that_does_not_exist_is_refused(asked):
    load = load_of_question(asked)
    made, serving = next(iter(pools(asked)))
    with pytest.raises((ValueError, FirstlightError), match="mixed, prefill or decode"):
        steps_of(replace(made, role="draft"), load=load, serving=serving)
