"""The answer is consistent in itself and moves the right way."""

import math
from dataclasses import replace
from itertools import pairwise

import msgspec
import numpy as np
import pytest

from firstlight import evaluate, workload
from firstlight.errors import InfeasibleError, ModelError, ScenarioError
from firstlight.evaluate import capacity, design, question, search
from firstlight.evaluate.answer import Parts
from firstlight.evaluate.cell import faster
from firstlight.scenario import Scenario


@pytest.fixture(scope="module")
def answer(small):
    return evaluate.compare(small)


def solved(scenario, name):
    """Solve one design alone, over the whole of its (short) traffic."""
    asked = question.resolve(scenario)
    plan = asked.plan(scenario.design(name))
    sample = asked.sample([plan])
    try:
        found = search.best_cell(plan, traffic=sample, slo=asked.slo, budget=asked.budget)
    except InfeasibleError as error:
        return design.refused(plan, str(error))
    return design.solve(plan, found, full=whole(asked, sample), slo=asked.slo, budget=asked.budget)


def whole(asked, sample):
    return asked.whole(sample, most=sample.most_request_per_s)


def goodput(scenario, name):
    return solved(scenario, name).goodput


def test_every_design_is_feasible_and_inside_the_budget(answer, small):
    for one in answer.designs:
        assert one.feasible, one.reason
        assert one.power_w.provisioned <= small.facility.power_w
        assert one.power_w.mean < one.power_w.peak < one.power_w.provisioned


def test_parts_sum_to_the_whole_and_to_mean_power(answer):
    for one in answer.designs:
        parts = one.energy_j_per_request_by_part
        assert parts.total == pytest.approx(one.energy_j_per_request, rel=1e-12)
        assert one.energy_j_per_request * one.request_per_s == pytest.approx(
            one.power_w.mean, rel=1e-9
        )
        for name in Parts.__struct_fields__:
            assert getattr(parts, name) >= 0.0


def test_energy_and_cost_of_tokens_add_up_to_those_of_requests(answer):
    for one in answer.designs:
        by_tok = (
            one.energy_j_per_tok_input * one.input_tok_per_s
            + one.energy_j_per_tok_output * one.output_tok_per_s
        )
        assert by_tok == pytest.approx(one.power_w.mean, rel=1e-9)
        usd = (
            one.cost_usd_per_mtok_input * one.input_tok_per_s
            + one.cost_usd_per_mtok_output * one.output_tok_per_s
        ) / 1e6
        assert usd == pytest.approx(one.cost_usd_per_request * one.request_per_s, rel=1e-9)


def test_cooling_is_pue_less_one_of_the_rest(answer, small):
    for one in answer.designs:
        parts = one.energy_j_per_request_by_part
        rest = parts.total - parts.cooling
        assert parts.cooling == pytest.approx((small.facility.pue - 1.0) * rest, rel=1e-9)


def test_only_the_optical_design_has_light_in_it(answer):
    light = answer.design("optical+gpu").energy_j_per_request_by_part
    assert light.optics > 0
    assert light.attention > 0
    assert light.gpu_prefill < light.gpu_decode
    for name in ("gpu-colocated", "gpu-disaggregated"):
        parts = answer.design(name).energy_j_per_request_by_part
        assert parts.optics == parts.attention == 0.0
        assert parts.gpu_prefill > 0
    assert answer.design("gpu-colocated").energy_j_per_request_by_part.kv_transfer == 0.0
    assert answer.design("gpu-disaggregated").energy_j_per_request_by_part.kv_transfer > 0.0


def test_the_service_level_is_met_and_percentiles_are_ordered(answer, small):
    for one in answer.designs:
        assert one.attainment_frac >= small.slo.quantile
        for spread in (one.ttft_s, one.tpot_s, one.itl_s, one.e2e_s):
            assert 0 < spread.p50 <= spread.p90 <= spread.p99


def test_gains_are_energies_over_energies(answer):
    base = answer.design("gpu-disaggregated")
    light = answer.design("optical+gpu")
    for name, scope in light.scopes.items():
        expected = base.scopes[name].energy_j_per_request / scope.energy_j_per_request
        assert scope.gain_vs_disaggregated == pytest.approx(expected)
        assert scope.boundary == base.scopes[name].boundary
    for name, scope in base.scopes.items():
        assert scope.gain_vs_disaggregated == pytest.approx(1.0), name


def test_the_band_names_both_ends_and_the_optimistic_is_not_worse(answer):
    band = answer.design("optical+gpu").band
    assert band.conservative.server == "iris-nova-conservative"
    assert band.optimistic.goodput_request_per_s >= band.conservative.goodput_request_per_s
    assert (
        band.conservative.feasible
        or "t_reload" in band.conservative.reason
        or ("pass" in band.conservative.reason)
    )


def test_freed_gpus_are_what_the_split_design_would_need_less_what_is_used(answer):
    light, split = answer.design("optical+gpu"), answer.design("gpu-disaggregated")
    per_gpu = split.goodput_request_per_s / (split.servers["h100-sxm-8x"] * 8)
    needed = light.goodput_request_per_s / per_gpu
    used = light.servers["h100-sxm-8x"] * 8
    assert light.gpu_equivalents_freed == pytest.approx(needed - used, abs=1.0)
    assert split.gpu_equivalents_freed == pytest.approx(0.0, abs=1.0)


def test_every_number_has_a_source_and_a_status(answer):
    paths = {fact.path for fact in answer.provenance}
    assert "scenario.facility.power_w" in paths
    assert "engines.iris-nova-optimistic.t_reload_s" in paths
    results = {
        f"designs.optical+gpu.{path}"
        for path in (
            "goodput_request_per_s", "output_tok_per_s", "attainment_frac", "ttft_s.p50",
            "ttft_s.p90", "tpot_s.p99", "itl_s.mean", "e2e_s.p50", "power_w.provisioned",
            "energy_j_per_request_by_part.optics", "scopes.prefill.gain_vs_disaggregated",
        )
    }  # fmt: skip
    assert results <= paths
    assert any(path.startswith("ratios.h100-sxm-8x fp8.goodput_per_w.") for path in paths)
    assert {f"break_even.{turn.field}" for turn in answer.break_even} <= paths
    assert all(f"designs.optical+gpu.utilization.{pool}" in paths
               for pool in answer.design("optical+gpu").utilization)  # fmt: skip
    allowed = {"measured", "paper", "datasheet", "estimate", "vendor", "assumed"}
    for fact in answer.provenance:
        assert fact.status in allowed, fact.path
        assert fact.source, fact.path
        assert fact.date, fact.path
    assert answer.status == "assumed"


def test_the_same_seed_gives_the_same_answer(answer, small):
    again = evaluate.compare(small)
    assert msgspec.json.encode(again) == msgspec.json.encode(answer)


def test_another_seed_gives_another_answer_of_about_the_same_size(small):
    mine, other = (goodput(small.replace(seed=seed), "gpu-colocated") for seed in (0, 1))
    assert other != mine
    assert other == pytest.approx(mine, rel=0.15)


def test_twice_the_power_carries_about_twice_as_much(small):
    single, double = (
        goodput(small.replace(power_w=watts), "gpu-colocated") for watts in (60e3, 120e3)
    )
    assert 1.8 < double / single < 2.6  # whole servers only


def test_longer_prompts_carry_less(small):
    shorter, longer = (
        goodput(small.replace(context_tok=mean), "gpu-colocated") for mean in (1000, 4000)
    )
    assert longer < 0.7 * shorter


@pytest.mark.parametrize(
    ("name", "at_least"),
    # With light the decode pool is what binds here, so a cache saves power and hardly adds load.
    [("gpu-colocated", 1.05), ("gpu-disaggregated", 1.05), ("optical+gpu", 0.98)],
)
def test_a_fuller_cache_carries_more(small, name, at_least):
    emptier, fuller = (goodput(small.replace(cached_frac=share), name) for share in (0.0, 0.9))
    assert fuller > at_least * emptier


def test_a_smaller_model_carries_more(small):
    large, smaller = (
        goodput(small.replace(model=model), "gpu-colocated")
        for model in ("llama-3.1-70b", "llama-3.1-8b")
    )
    assert smaller > 3 * large


def test_newer_silicon_carries_more_per_watt(small):
    old, new = (
        goodput(small.replace(**{"design.gpu-colocated.pools.both.server": gpu}), "gpu-colocated")
        for gpu in ("h100-sxm-8x", "b200-8x")
    )
    assert new > 1.2 * old


def test_a_slower_mask_carries_less_and_then_nothing(small):
    rates = [
        goodput(small.replace(t_reload_s=t_reload_s), "optical+gpu")
        for t_reload_s in (3e-6, 1e-5, 4e-5, 1e-4)
    ]
    # Whole servers make steps; within one the search's tolerance is left.
    for quick, slow in pairwise(rates):
        assert slow <= 1.04 * quick
    assert rates[-1] < 0.8 * rates[0]
    stuck = solved(small.replace(t_reload_s=1.6e-2), "optical+gpu")
    assert stuck.found is None
    assert "TTFT" in stuck.reason


def test_the_reload_break_even_separates_winning_from_losing(small, answer):
    turn = next(turn for turn in answer.break_even if turn.field == "t_reload_s")
    assert turn.wins == "below"

    rival = max(
        answer.design(n).goodput_request_per_s for n in ("gpu-colocated", "gpu-disaggregated")
    )

    def wins(t_reload_s):
        return goodput(small.replace(t_reload_s=t_reload_s), "optical+gpu") > rival

    # Pools apart and whole servers leave a factor of uncertainty around the solved value.
    assert wins(turn.value / 4)
    assert not wins(turn.value * 4)


def test_at_the_price_break_even_a_request_costs_the_same(small, answer):
    turn = next(turn for turn in answer.break_even if turn.field == "optical_price_ratio")
    again = evaluate.compare(small.replace(optical_price_ratio=turn.value))
    rivals = [again.design(n).cost_usd_per_request for n in ("gpu-colocated", "gpu-disaggregated")]
    assert again.design("optical+gpu").cost_usd_per_request == pytest.approx(min(rivals), rel=1e-6)


def test_a_given_load_is_carried_as_given(small, answer):
    load = 0.5 * answer.design("gpu-colocated").goodput_request_per_s
    half = evaluate.compare(small, rate_request_per_s=load).design("gpu-colocated")
    assert half.request_per_s == pytest.approx(load, rel=0.1)
    assert half.attainment_frac > 0.99
    assert half.ttft_s.p90 < answer.design("gpu-colocated").ttft_s.p90


def test_installed_servers_stay_and_light_is_added(small):
    base = small.replace(installed={"h100-sxm-8x": 3})
    answer = evaluate.compare(base)
    light, alone = answer.design("optical+gpu"), answer.design("gpu-colocated")
    assert alone.servers == {"h100-sxm-8x": 3}
    assert light.servers["h100-sxm-8x"] <= 3
    assert light.servers["iris-nova-optimistic"] >= 1
    assert light.retrofit["extra_goodput_request_per_s"] > 0
    assert (
        alone.cost_usd_per_request
        < evaluate.compare(small).design("gpu-colocated").cost_usd_per_request
    )  # their price is sunk


def test_one_cell_times_eight_carries_what_eight_cells_do(small):
    asked = question.resolve(small.replace(power_w=13e3 * 8))
    plan = asked.plan(small.design("gpu-colocated"))
    sample = asked.sample([plan])
    found = search.best_cell(plan, traffic=sample, slo=asked.slo, budget=asked.budget)
    full = asked.whole(sample, most=1.3 * found.cells * found.rate_request_per_s)
    one = design.solve(plan, found, full=full, slo=asked.slo, budget=asked.budget)
    assert one.found.cells == 8
    all_cells = design.together(one.found)
    run = capacity.search(
        all_cells.cell.fleet,
        full,
        slo=asked.slo,
        guess_request_per_s=all_cells.rate_request_per_s,
        tolerance_frac=0.005,
        first_step_frac=0.02,
    )
    fleet = run.rate_request_per_s
    assert one.found.cells * one.measured.rate_request_per_s == pytest.approx(fleet, rel=0.03)


class TestBadInput:
    def test_a_budget_below_one_server_names_what_it_takes(self, small):
        with pytest.raises(ScenarioError, match=r"power_w = 9000 is smaller than one h100-sxm-8x"):
            evaluate.compare(small.replace(power_w=9e3))

    def test_a_model_that_does_not_fit_says_what_is_missing(self, small):
        with pytest.raises(ModelError, match=r"needs .* GB .* has .* GB"):
            evaluate.compare(small.replace(model="llama-3.1-405b", weights="bf16"))

    def test_a_limit_nobody_can_meet_names_it(self, small):
        answer = evaluate.compare(small.replace(ttft_s=1e-4))
        for one in answer.designs:
            assert not one.feasible
            assert "TTFT" in one.reason
            assert one.energy_j_per_request is None
        assert answer.warnings

    def test_a_rack_too_small_for_a_server_is_refused(self, small):
        answer = evaluate.compare(small.replace(rack_power_w=5e3))
        assert "rack" in answer.design("gpu-colocated").reason

    def test_installed_servers_beyond_the_budget_are_refused(self, small):
        with pytest.raises(ScenarioError, match="installed"):
            evaluate.compare(small.replace(installed={"h100-sxm-8x": 100}))

    def test_a_fleet_too_large_to_simulate_whole_is_refused(self, small):
        with pytest.raises(ScenarioError, match="at most"):
            evaluate.compare(small.replace(power_w=1e9), whole_fleet=True)

    def test_being_cancelled_stops_everything(self, small):
        with pytest.raises(KeyboardInterrupt):
            evaluate.compare(small, cancelled=lambda: True)


def test_infinite_numbers_never_reach_the_answer(answer):
    def walk(value, path):
        if isinstance(value, dict):
            for key, item in value.items():
                walk(item, f"{path}.{key}")
        elif isinstance(value, list | tuple):
            for index, item in enumerate(value):
                walk(item, f"{path}[{index}]")
        elif isinstance(value, float) and "correlation_s" not in path and "scenario" not in path:
            assert math.isfinite(value), path

    walk({k: v for k, v in answer.to_dict().items() if k != "provenance"}, "")


def test_the_binding_resource_is_the_one_whose_increase_helps_most(small, answer):
    for one in answer.designs:
        binding = one.binding
        assert binding.marginal == max(binding.others.values())
        assert 0.0 not in binding.others.values()
        assert 0.0 < binding.marginal < 1.3, one.name
    one = solved(small, "gpu-colocated")
    name = answer.design("gpu-colocated").binding.resource
    assert name in {"compute", "memory bandwidth"}
    part = {"compute": "matrix", "memory bandwidth": "memory"}[name]
    group = one.found.cell.groups[0]
    more = replace(group, table=faster(group.table, part=part, by=1.1))
    asked = question.resolve(small)
    full = whole(asked, asked.sample([asked.plan(small.design("gpu-colocated"))]))
    richer = capacity.search(
        replace(one.found.cell, groups=(more,)).fleet,
        full,
        slo=asked.slo,
        guess_request_per_s=one.measured.rate_request_per_s,
        tolerance_frac=0.005,
    )
    assert richer.rate_request_per_s > 1.03 * one.measured.rate_request_per_s


def test_bursts_that_coincide_carry_less_than_bursts_that_do_not(trace_path):
    # A trace of two bursts: apart they fill each other's gaps.
    hour = workload.load("azure-2023-conv")
    times = np.concatenate([np.linspace(0, 10, 150), np.linspace(150, 160, 150)])
    trace = workload.Trace.from_arrivals(
        times,
        isl_tok=hour.isl_tok[:300],
        osl_tok=hour.osl_tok[:300],
        duration_s=300.0,
        name="bursts",
        source="made here",
    )
    path = trace_path.with_name("bursts.csv")
    workload.write_trace(trace, path=path)
    answer = evaluate.compare(
        Scenario.default().replace(power_w=60e3, trace=str(path), correlation_s=30.0)
    )
    bursts = answer.design("gpu-colocated").bursts
    assert bursts.synchronised_request_per_s < bursts.as_asked_request_per_s
    assert bursts.as_asked_request_per_s < bursts.independent_request_per_s


def test_conditional_disaggregation_lets_the_decode_pool_compute_short_prompts(small):
    name = "design.gpu-disaggregated.policy.disaggregate"
    always, conditional = (
        solved(small.replace(**{name: policy}), "gpu-disaggregated")
        for policy in ("always", "conditional")
    )
    assert conditional.plan.disaggregate == "conditional"
    assert conditional.measured.parts_j.kv_transfer / conditional.measured.completed < (
        0.5 * always.measured.parts_j.kv_transfer / always.measured.completed
    )


def test_a_prefix_all_requests_share_is_not_computed(small):
    without, shared = (
        solved(small.replace(cached_frac=0.0, shared_prefix_tok=tok), "gpu-disaggregated")
        for tok in (0, 800)
    )
    assert shared.measured.uncached_tok / shared.measured.input_tok < 0.8
    assert without.measured.uncached_tok == without.measured.input_tok
    assert shared.goodput > without.goodput
