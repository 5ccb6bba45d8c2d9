"""The arithmetic of the claims against published and hand-made numbers."""

from __future__ import annotations

import math

import pytest

from firstlight import models
from firstlight.claims import formula
from firstlight.errors import CatalogError, ScenarioError


@pytest.mark.parametrize(
    ("gain", "rho", "prefill_gain", "needed"),
    [
        (16, 1.9, math.inf, 28.5),
        (16, 5.0, math.inf, 75.0),
        (16, 1.9, 20, 142.5),
        (16, 5.0, 20, 375.0),
        (10, 1.9, math.inf, 17.1),
        (10, 5.0, math.inf, 45.0),
    ],
)
def test_needed_ratio_is_the_published_one(gain, rho, prefill_gain, needed):
    found = formula.ratio_needed(gain, rho=rho, prefill_gain=prefill_gain)
    assert found == pytest.approx(needed)


@pytest.mark.parametrize("prefill_gain", [1.0, 10.0, 16.0])
def test_no_traffic_is_enough_when_prefill_gains_less_than_the_whole(prefill_gain):
    assert formula.ratio_needed(16, rho=2.0, prefill_gain=prefill_gain) == math.inf


def test_needed_ratio_gives_exactly_the_gain():
    ratio = formula.ratio_needed(16, rho=3.3, prefill_gain=40)
    share = formula.share_of(ratio, rho=3.3)
    assert formula.whole_gain(share, prefill_gain=40) == pytest.approx(16)


@pytest.mark.parametrize(
    ("gain", "prefill_gain", "decode_gain", "low"),
    [
        (16, 20, 1, 0.987), (16, 20, 2, 0.972), (16, 20, 5, 0.917), (16, 64, 1, 0.952),
        (16, 64, 2, 0.903), (16, 64, 5, 0.746), (16, math.inf, 1, 0.9375), (10, 20, 1, 0.947),
        (10, math.inf, 1, 0.90),
    ],
)  # fmt: skip
def test_needed_share_is_the_published_one(gain, prefill_gain, decode_gain, low):
    found = formula.share_needed(gain, prefill_gain=prefill_gain, decode_gain=decode_gain)
    assert found is not None
    assert found[0] == pytest.approx(low, abs=6e-4)
    assert found[1] == 1.0


def test_sixteen_times_with_ten_times_prefill_needs_little_prefill_and_a_better_decode():
    assert formula.share_needed(16, prefill_gain=10, decode_gain=16 - 1e-9) is None
    low, high = formula.share_needed(16, prefill_gain=10, decode_gain=1e12)
    assert low == 0.0
    assert high == pytest.approx(0.625, abs=1e-4)


@pytest.mark.parametrize(
    ("prompt_tok", "share", "bound", "tighter"),
    [(4096, 0.071, 14.0, 7.0), (32768, 0.381, 2.6, 1.75), (131072, 0.711, 1.4, 1.19)],
)
def test_attention_bounds_prefill_of_8b(prompt_tok, share, bound, tighter):
    shape = models.load("llama-3.1-8b")
    assert formula.attention_share(shape, prompt_tok=prompt_tok) == pytest.approx(share, abs=6e-4)
    assert formula.attention_bound(shape, prompt_tok=prompt_tok) == pytest.approx(bound, rel=0.02)
    by_time = formula.attention_bound(
        shape,
        prompt_tok=prompt_tok,
        linear_flop_per_s=formula.H100_LINEAR_FLOP_PER_S,
        attention_flop_per_s=formula.H100_ATTENTION_FLOP_PER_S,
    )
    assert by_time == pytest.approx(tighter, rel=0.01)
    assert by_time < 1.0 / share


def test_attention_bound_refuses_one_rate():
    with pytest.raises(ScenarioError, match="both rates or none"):
        formula.attention_bound(
            models.load("llama-3.1-8b"), prompt_tok=4096, linear_flop_per_s=1e15
        )


@pytest.mark.parametrize(
    ("device", "share"),
    [("h100-sxm", 0.082), ("b200", 0.074), ("gb200-nvl72", 0.061), ("mi355x", 0.112)],
)
def test_electricity_share_at_neocloud_cost(device, share):
    assert formula.electricity_share(device) == pytest.approx(share, abs=5e-4)


def test_electricity_share_refuses_unknown_tier_and_missing_cost():
    with pytest.raises(ScenarioError, match="allowed: hyperscaler, neocloud"):
        formula.electricity_share("h100-sxm", tier="friend")
    with pytest.raises(CatalogError, match="provisioned_utility_w"):
        formula.electricity_share("l40s")


def test_free_prefill_saves_at_most_1_79_times_on_the_measured_split():
    assert pytest.approx(0.44, abs=5e-4) == formula.MEASURED_PREFILL_SHARE
    bound = formula.free_prefill_bound(formula.MEASURED_PREFILL_SHARE)
    assert bound == pytest.approx(1.79, abs=5e-3)


def test_baseline_choice_moves_one_target_from_69_to_9_times():
    ratios = [1e14 / one.op_per_j for one in formula.baselines()]
    assert ratios == sorted(ratios, reverse=True)
    published = (69, 47.6, 35.4, 35.2, 26.8, 22.2, 11.1, 9.3)
    assert ratios == pytest.approx(published, rel=0.01)


def test_tetra_leaves_84_nj_a_cycle():
    target = formula.peak_target(1e18, power_w=1e4, side=2048)
    assert target.cycle_per_s == pytest.approx(1.19e11, rel=2e-3)
    assert target.energy_j_per_cycle == pytest.approx(84e-9, rel=2e-3)
    assert target.energy_j_per_mac == pytest.approx(20e-15)
    assert formula.peak_target(1e18, power_w=1e4, side=1024).engines_at_1_ghz == pytest.approx(477, abs=0.5)  # fmt: skip


@pytest.mark.parametrize(
    ("model", "side", "bound_s"),
    [
        ("llama-3.1-8b", 1024, 7.5e-6),
        ("llama-3.1-8b", 2048, 30e-6),
        ("llama-3.1-70b", 1024, 0.77e-6),
        ("llama-3.1-70b", 2048, 3.1e-6),
    ],
)
def test_decode_on_light_bounds_the_reload(model, side, bound_s):
    shape = models.load(model)
    one = formula.reload_bound_s(shape, side=side, engines=1, tok_per_s=20)
    assert one == pytest.approx(bound_s, rel=0.015)
    assert formula.reload_bound_s(shape, side=side, engines=8, tok_per_s=20) == pytest.approx(
        8 * one
    )


def test_demand_figures_presume_twenty_times_efficiency_and_double_today_prices():
    implied = formula.demand()
    assert implied.usd_per_w == 100
    assert implied.efficiency_ratio == pytest.approx(20)
    assert implied.doubling_s == pytest.approx(0.5 * 365.25 * 86400, rel=0.005)
    ratios = [ratio for _, ratio in implied.over_today]
    assert max(ratios) == pytest.approx(2.86, abs=0.01)
    assert min(ratios) == pytest.approx(1.67, abs=0.01)
    assert implied.world_electricity_frac == pytest.approx(0.28, abs=0.005)


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan])
def test_shares_outside_zero_to_one_are_refused(share):
    with pytest.raises(ScenarioError, match="0 to 1"):
        formula.whole_gain(share, prefill_gain=2.0)
