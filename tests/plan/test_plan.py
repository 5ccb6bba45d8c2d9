"""Plans: the optimum is the exhaustive one, limits hold, and what does not fit says what would."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import pytest
from click.testing import CliRunner

from firstlight import catalog
from firstlight.cli.root import firstlight
from firstlight.errors import InfeasibleError, ScenarioError
from firstlight.evaluate import question, servers
from firstlight.plan import margin
from firstlight.plan.choose import OBJECTIVES, Screen, choose, front, score
from firstlight.plan.run import plan
from firstlight.plan.space import Limits, capped, space_of
from firstlight.scenario import Scenario


@pytest.fixture(scope="module")
def scenario():
    return Scenario.default()


@pytest.fixture(scope="module")
def planned(scenario):
    return plan(scenario, survivors=2)


@pytest.fixture(scope="module")
def agentic(scenario):
    return plan(
        scenario.replace(**{"workload.preset": "agentic", "model": "llama-3.1-8b"}), racks=0
    )


def screen_of(scenario, *, caps=None, chunks=("auto",), servers=()):
    caps = caps or Limits()
    asked = question.resolve(scenario)
    space = space_of(scenario, caps=caps, chunks=chunks, servers_asked=servers)
    return Screen(question.replace(asked, budget=capped(asked.budget, caps)), space)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_optimiser_finds_the_exhaustive_optimum(scenario, objective):
    pytest.importorskip("scipy", reason="the extra 'sweep' is not installed")
    chunks = ("auto", 512, 2048)
    every, evolved = screen_of(scenario, chunks=chunks), screen_of(scenario, chunks=chunks)
    best, exact = choose(every, objective)
    found, was_exact = choose(evolved, objective, exact=0)
    assert exact
    assert not was_exact
    assert found.plan.name == best.plan.name
    assert score(found.estimate, objective) == score(best.estimate, objective)


def test_more_engines_are_tried_where_asked(scenario):
    space = space_of(
        scenario,
        caps=Limits(),
        engines=(2, 4, 8),
        servers_asked=("h100-sxm-8x", "iris-nova-optimistic"),
    )
    screen = screen_of(scenario)
    screen = Screen(screen.asked, space)
    best, _ = choose(screen, "goodput-per-watt")
    names = [one.plan.name for one in screen.screened]
    assert [name for name in names if "engines" in name] == [
        f"iris-nova-optimistic > h100-sxm-8x fp8 engines {n}" for n in (2, 4, 8)
    ]
    assert len(names) == 5
    engines = {one.plan.name: one.plan.pools[0].server.accelerators for one in screen.screened}
    assert engines["iris-nova-optimistic > h100-sxm-8x fp8 engines 8"] == 8
    assert "engines" in best.plan.name


def test_best_is_no_worse_than_any_design_of_the_space(scenario):
    screen = screen_of(scenario)
    best, _ = choose(screen, "goodput-per-watt")
    for one in screen.screened:
        assert score(one.estimate, "goodput-per-watt") <= score(best.estimate, "goodput-per-watt")


def test_no_design_of_the_front_is_beaten_and_all_others_are(scenario):
    screen = screen_of(scenario)
    choose(screen, "cost")
    kept = front(screen.screened)
    assert kept
    names = {one.plan.name for one in kept}

    def values(one):
        e = one.estimate
        return e.goodput_request_per_s_per_w, -e.cost_usd_per_mtok_blended, -e.carbon_g_per_request

    for one in screen.screened:
        if not one.estimate.feasible:
            continue
        beaten = any(
            all(a >= b for a, b in zip(values(other), values(one), strict=True))
            and values(other) != values(one)
            for other in screen.screened
            if other.estimate.feasible
        )
        assert beaten == (one.plan.name not in names)


def test_simulation_of_survivors_agrees_with_screening(planned):
    for one in planned.survivors:
        if one.candidate.plan.disaggregate == "conditional":
            continue  # the fast tier knows no policy but "always"
        ratio = one.simulated.goodput_request_per_s / one.candidate.estimate.goodput_request_per_s
        assert 0.8 < ratio < 1.25


def test_conditional_disaggregation_is_simulated_beside_the_best_split_design(planned):
    names = [one.candidate.plan.name for one in planned.survivors]
    assert len(names) == 5
    assert [name.split()[-1] for name in names if " conditional " in name] != []
    by_limit = {
        one.candidate.plan.serving.local_below_tok: one.simulated.goodput_request_per_s
        for one in planned.survivors
        if one.candidate.plan.disaggregate == "conditional"
    }
    # Dynamo's limit is for pools of one kind: here it sends nearly every prompt to the scarce one.
    assert set(by_limit) == {2048, 512, 128}
    assert by_limit[2048] < by_limit[512] < by_limit[128]


def test_what_may_win_is_simulated_over_the_whole_time_and_only_that(planned):
    assert planned.best.whole
    rates = {one.whole: [] for one in planned.survivors}
    for one in planned.survivors:
        rates[one.whole].append(
            one.simulated.goodput_request_per_s / one.simulated.power_w.provisioned
        )
    assert min(rates[True]) > 0
    assert max(rates.get(False, [0.0])) < max(rates[True])


def test_racks_limit_a_plan_and_the_limit_is_named(scenario):
    few = plan(scenario, survivors=1, max_racks=3)
    servers = few.best.simulated.servers
    held = {name: int(35e3 / catalog.get(name, kind="server").value("peak_w"))
            for name in servers if "peak_w" in catalog.get(name, kind="server")}  # fmt: skip
    silicon = sum(-(-n // held[name]) for name, n in servers.items() if name in held)
    assert silicon <= 3
    assert "racks" in [one.resource for one in few.margins]
    worth = {one.resource: one for one in few.margins}
    assert worth["racks"].elasticity < 3
    with pytest.raises(ScenarioError, match="0 racks"):
        plan(scenario, max_racks=0)


def test_racks_of_a_cell_hold_one_kind_each():
    caps = Limits(racks=4, rack_power_w=30e3)
    h100, b200 = (
        servers.load(name, overrides={}, usd_per_peak_w=1.0) for name in ("h100-sxm-8x", "b200-8x")
    )
    assert caps.racks_of(((h100, 1), (b200, 1)), 1) == 2
    assert caps.racks_of(((h100, 3), (b200, 2)), 2) == 4
    assert Limits(racks=1, rack_power_w=1e3).racks_of(((h100, 1),), 1) == float("inf")


def test_best_is_the_survivor_that_simulates_best(planned):
    rates = [
        one.simulated.goodput_request_per_s / one.simulated.power_w.provisioned
        for one in planned.survivors
    ]
    whole = [rate for rate, one in zip(rates, planned.survivors, strict=True) if one.whole]
    assert whole == sorted(whole, reverse=True)
    assert rates[: len(whole)] == whole
    assert planned.best is planned.survivors[0]


def test_winner_is_simulated_over_the_whole_time_and_on_the_front(agentic):
    # On the sample another design comes first; over the whole time it does not stay there.
    assert agentic.best.whole
    kinds = [one.whole for one in agentic.survivors]
    assert kinds == sorted(kinds, reverse=True)
    assert agentic.best.candidate.plan.name in [one.plan.name for one in agentic.front]
    best = agentic.best.simulated
    for one in agentic.survivors:
        if not one.whole:
            mine = one.simulated.goodput_request_per_s / one.simulated.power_w.provisioned
            assert mine < 0.9 * best.goodput_request_per_s / best.power_w.provisioned


def test_attainment_falls_with_load_and_is_met_at_capacity(planned):
    shares = [share for _, share in planned.attainment]
    assert shares[0] > 0.99
    assert all(a >= b - 0.02 for a, b in pairwise(shares))
    capacity = planned.best.simulated.goodput_request_per_s
    at = min(planned.attainment, key=lambda item: abs(item[0] - capacity / 0.95))
    assert at[1] >= 0.85


def test_frontier_trades_tokens_a_user_for_tokens_a_megawatt(planned):
    name = planned.best.candidate.plan.name.partition(" conditional ")[0]
    points = [point for point in planned.frontier if point.design == name]
    assert not any(" conditional " in point.design for point in planned.frontier)
    assert len(points) >= 3
    users = [point.tok_per_s_user for point in points]
    assert users == sorted(users, reverse=True)
    for slow, fast in pairwise(points):
        assert fast.tok_per_s_mw > slow.tok_per_s_mw
        assert fast.energy_j_per_tok < slow.energy_j_per_tok


def test_power_is_worth_about_its_share_and_a_scarce_server_its_rate(planned):
    worth = {one.resource: one for one in planned.margins}
    assert worth["power"].elasticity == pytest.approx(1.0, abs=0.15)
    pools = [worth["prefill servers"].elasticity, worth["decode servers"].elasticity]
    assert max(pools) == pytest.approx(1.0)
    assert planned.binds[0] == planned.margins[0].resource


def test_reload_boundary_is_where_light_stops_paying(planned):
    assert planned.silicon is not None
    assert planned.reload.holds == "below"
    assert planned.reload.value > planned.reload.today


def test_upgrade_steps_fit_a_rack_and_raise_goodput(planned):
    peaks = {pool.server.id: pool.server.peak_w for pool in planned.best.candidate.plan.pools}
    carried = [step.goodput_request_per_s for step in planned.upgrade]
    assert carried == sorted(carried)
    stands: dict[str, int] = {}
    for step in planned.upgrade:
        assert sum(n * peaks[name] for name, n in step.adds.items()) <= 35e3
        stands = {n: stands.get(n, 0) + step.adds.get(n, 0) for n in {*stands, *step.adds}}
        assert step.servers == {n: count for n, count in stands.items() if count}


@pytest.mark.parametrize(
    ("limit", "most"),
    [("max_servers", 1), ("max_servers", 7), ("max_racks", 2), ("price_usd", 2e6)],
)
def test_upgrade_path_keeps_the_limits_of_its_plan(scenario, limit, most):
    found = plan(scenario, survivors=1, **{limit: most})
    assert found.upgrade
    last = found.upgrade[-1]
    taken = {
        "max_servers": sum(last.servers.values()),
        "max_racks": last.racks,
        "price_usd": sum(step.price_usd for step in found.upgrade),
    }
    assert 0 < taken[limit] <= most
    for step in found.upgrade:
        assert step.racks >= len(step.servers)


def test_upgrade_path_stops_at_the_power_of_its_plan(scenario):
    found = plan(scenario.replace(power_w=1e5), survivors=1, servers=("h100-sxm-8x",))
    (id_, n), = found.upgrade[-1].servers.items()  # fmt: skip
    assert id_ == "h100-sxm-8x"
    assert n == found.best.simulated.servers["h100-sxm-8x"]
    assert len(found.upgrade) < 6


def test_price_ceiling_and_room_are_kept(scenario):
    screen = screen_of(scenario, caps=Limits(price_usd=5e6))
    choose(screen, "goodput")
    assert all(one.price_usd <= 5e6 for one in screen.screened)
    assert any(one.price_usd > 3e6 for one in screen.screened)
    screen = screen_of(scenario, caps=Limits(servers=20))
    choose(screen, "goodput")
    for one in screen.screened:
        assert sum(one.estimate.servers.values()) <= 20


def test_price_ceiling_is_what_binds_when_it_is_low(scenario):
    found = plan(scenario, survivors=1, price_usd=3e6, racks=0)
    worth = {one.resource: one for one in found.margins}
    assert worth["money"].elasticity > 0.7
    assert worth["power"].elasticity == 0
    assert worth["money"].per_unit > 0


def test_air_cooling_leaves_liquid_servers_out(scenario):
    space = space_of(
        scenario, caps=Limits(cooling="air"), servers_asked=("h100-sxm-8x", "gb200-nvl72-72x")
    )
    assert space.left_out == {"gb200-nvl72-72x": "needs liquid cooling"}


def test_rack_leaves_out_what_draws_more(scenario):
    space = space_of(scenario.replace(rack_power_w=1e4), caps=Limits())
    assert "b200-8x" in space.left_out
    with pytest.raises(ScenarioError, match="no GPU server is left"):
        space_of(scenario.replace(rack_power_w=1e3), caps=Limits())


def test_retrofit_adds_light_to_what_stands(scenario):
    standing = scenario.replace(power_w=8e5, installed={"h100-sxm-8x": 40})
    found = plan(standing, survivors=1, racks=0)
    servers = found.best.simulated.servers
    assert servers["h100-sxm-8x"] <= 40
    assert any("iris" in name for name in servers)
    assert found.retrofit["extra_goodput_request_per_s"] > 0
    light = sum(n for name, n in servers.items() if "iris" in name)
    assert found.retrofit["price_usd"] > 0
    assert light > 0
    assert "b200-8x" not in servers


def test_infeasible_plan_names_the_cheapest_relaxation_and_it_works(scenario):
    hard = scenario.replace(ttft_s=0.01)
    with pytest.raises(InfeasibleError, match="Cheapest relaxation: TTFT limit from") as no:
        plan(hard, servers=("h100-sxm-8x",), survivors=1)
    needed = float(re.search(r"TTFT limit from 0.01 to ([\d.e-]+)", str(no.value))[1])
    eased = plan(hard.replace(ttft_s=needed * 1.01), servers=("h100-sxm-8x",), survivors=1, racks=0)
    assert eased.best.candidate.estimate.feasible


def test_budget_below_one_server_asks_for_power(scenario):
    with pytest.raises(InfeasibleError, match="Cheapest relaxation: power from 5000 to"):
        plan(scenario.replace(power_w=5e3), servers=("h100-sxm-8x",), survivors=1)


def test_price_below_one_server_is_named_once_and_as_the_cause(scenario):
    with pytest.raises(InfeasibleError) as no:
        plan(scenario, price_usd=1e3, servers=("h100-sxm-8x",))
    text = str(no.value)
    assert text.startswith("no design fits the limit of --price. Cheapest relaxation: --price")
    assert "power" not in text
    needed = float(re.search(r"from 1000 to ([\d,]+)", text)[1].replace(",", ""))
    eased = plan(scenario, price_usd=needed * 1.01, servers=("h100-sxm-8x",), racks=0)
    assert sum(eased.best.simulated.servers.values()) == 1


def test_reasons_name_each_design_once(scenario):
    with pytest.raises(InfeasibleError) as no:
        plan(scenario.replace(power_w=5e3), servers=("h100-sxm-8x",))
    assert str(no.value).count("h100-sxm-8x fp8 both:") == 1


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"objective": "joy"}, "allowed: goodput"),
        ({"price_usd": 0.0}, "above 0"),
        ({"max_servers": 0}, "1 or more"),
        ({"survivors": 0}, "1 or more"),
        ({"servers": ("h100-sxm-9x",)}, "unknown server"),
        ({"servers": ("iris-nova-optimistic",)}, "no GPU server is left"),
    ],
)
def test_impossible_asks_are_refused(scenario, keywords, message):
    with pytest.raises(Exception, match=message):
        plan(scenario, **keywords)


def test_every_limit_relaxes_in_the_easier_direction(scenario):
    asked = question.resolve(scenario)
    caps = Limits(price_usd=1e6, servers=10, racks=5)
    asked = question.replace(asked, budget=capped(asked.budget, caps))
    for resource in margin.RESOURCES:
        more = margin.relaxed(asked, resource, 2.0)
        if resource == "rack power":
            assert more is None
            continue
        assert margin.amount(more, resource)[0] > margin.amount(asked, resource)[0]


def test_command_prints_80_columns_and_json(scenario):
    words = ["plan", "--survivors", "1", "--use", "h100-sxm-8x", "--use", "iris-nova-optimistic"]
    result = CliRunner().invoke(firstlight, words, catch_exceptions=False)
    assert result.exit_code == 0
    assert max(len(line) for line in result.stdout.splitlines()) <= 80
    assert "binds:" in result.stdout
    flat = " ".join(result.stdout.split())
    assert "µs, both designs as they are here (assumed 10 µs" in flat
    assert re.search(r"1: \+ .* requests/s in \d+ racks?", flat)
    result = CliRunner().invoke(firstlight, [*words, "--json"], catch_exceptions=False)
    assert json.loads(result.stdout)["best"]["candidate"]["design"]
