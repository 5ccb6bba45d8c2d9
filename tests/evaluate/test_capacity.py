"""The search over loads: what it tries, when it stops, what it says of the edge."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from firstlight import schedule
from firstlight.errors import ScheduleError
from firstlight.evaluate import capacity, question
from firstlight.evaluate.cell import Cell, group
from firstlight.evaluate.crew import Crew
from firstlight.evaluate.screen import alone
from firstlight.schedule.run import loaded


@pytest.fixture
def cell(small):
    """A question, and one server of its colocated design as a fleet."""
    asked = question.resolve(small)
    plan = asked.plan(small.design("gpu-colocated"))
    made = group(plan.pools[0].server, role="mixed", tp=4, chunk_tok=2048, serving=plan.serving)
    return SimpleNamespace(
        asked=asked,
        plan=plan,
        group=made,
        fleet=Cell(groups=(made,), serving=plan.serving).fleet,
        sample=asked.sample([plan]),
    )


SLO = capacity.Slo(ttft_s=1.0, tpot_s=0.1, quantile=0.9)


def traffic(*, most=1000.0):
    return SimpleNamespace(most_request_per_s=most, span_s=100.0, warm_up_frac=0.0)


@pytest.fixture
def edge(monkeypatch):
    """A cell whose share in time falls by 0.05 for each tenth of load, through 0.9 at 80."""
    tried = []

    def simulate(fleet, _, *, rate_request_per_s, slo, **__):
        tried.append(rate_request_per_s)
        attained = min(0.9 - 0.5 * math.log(rate_request_per_s / fleet), 1.0)
        return SimpleNamespace(
            holds=attained >= slo.quantile,
            attainment_frac=attained,
            slo=slo,
            rate_request_per_s=rate_request_per_s,
        )

    monkeypatch.setattr(capacity, "simulate", simulate)
    return tried


def search(guess, **more):
    return capacity.search(
        80.0,
        more.pop("traffic", traffic()),
        slo=SLO,
        guess_request_per_s=guess,
        tolerance_frac=0.01,
        **more,
    )


@pytest.mark.parametrize("guess", [0.001, 1.0, 79.0, 81.0, 999.0, 1e9])
def test_the_capacity_is_found_from_any_guess(edge, guess):
    assert search(guess).rate_request_per_s == pytest.approx(80.0, rel=0.0101)
    assert len(edge) < 25


def test_the_slope_is_that_of_the_bracket_or_less(edge):
    # to 0.9 exactly at the edge: the late share grows by 0.5 for a load e times as high
    assert 0.0 <= search(70.0).slope <= 0.5


def test_a_choice_that_is_no_better_costs_one_run(edge):
    assert search(70.0, beyond_request_per_s=81.0) is None
    assert edge == [81.0]


def test_a_choice_that_is_better_is_searched_from_there(edge):
    assert search(10.0, beyond_request_per_s=78.0).rate_request_per_s == pytest.approx(
        80.0, rel=0.0101
    )
    assert min(edge) == 78.0


def test_beyond_what_there_is_nothing_is_tried(edge):
    assert search(10.0, traffic=traffic(most=50.0), beyond_request_per_s=51.0) is None
    assert edge == []


def test_all_there_is_is_carried(edge):
    held = search(10.0, traffic=traffic(most=50.0))
    assert (held.rate_request_per_s, held.slope) == (50.0, None)


def test_nothing_is_carried(edge):
    assert (
        capacity.search(1e-9, traffic(), slo=SLO, guess_request_per_s=5.0, tolerance_frac=0.01)
        is None
    )


def test_a_load_with_nothing_to_spare_ends_the_search(edge):
    def found(slope):
        edge.clear()
        held = capacity.search_for(
            lambda run: run.rate_request_per_s,
            80.0,
            traffic(),
            slo=SLO,
            guess_request_per_s=79.5,
            tolerance_frac=0.01,
            slope=slope,
        )
        assert held.kept == held.rate_request_per_s
        return held.rate_request_per_s, len(edge)

    assert found(0.5) == (79.5, 1)
    rate, runs = found(None)
    assert runs > 1
    assert rate >= 79.5


def test_loads_that_share_their_columns_give_what_copies_of_them_give(cell):
    shared = cell.sample.at(0.6 * cell.sample.most_request_per_s)
    assert 0 < len(shared) < len(shared.arrival_ps)
    copied = shared.kept()
    one, other = schedule.run(cell.fleet, shared), schedule.run(cell.fleet, copied)
    for name in ("arrival_ps", "first_ps", "last_ps", "started_ps", "state", "preemptions"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert one.total == other.total
    assert np.array_equal(one.arrivals.isl_tok, copied.isl_tok)


def test_the_engine_counts_as_the_columns_do(cell):
    for load in (0.05, 0.2, 0.9):
        rate = load * cell.sample.most_request_per_s
        run = capacity.simulate(
            cell.fleet, cell.sample, rate_request_per_s=rate, slo=cell.asked.slo
        )
        outcome, arrivals = run.outcome, run.outcome.arrivals
        counted = arrivals.arrival_ps >= outcome.window_ps[0]
        ttft_ps, tpot_ps = (round(s * 1e12) for s in (cell.asked.slo.ttft_s, cell.asked.slo.tpot_s))
        began, ended = outcome.first_ps < schedule.NEVER, outcome.last_ps < schedule.NEVER
        first_ok = began & (outcome.first_ps - arrivals.arrival_ps <= ttft_ps)
        gaps = (arrivals.osl_tok - 1).astype(np.uint64)
        rest_ok = ended & (outcome.last_ps - outcome.first_ps <= gaps * np.uint64(tpot_ps))
        assert run.arrived == counted.sum()
        assert run.met == (counted & first_ok & rest_ok).sum()
        assert run.met_ttft == (counted & first_ok).sum()
        assert run.met_tpot == (counted & rest_ok).sum()


def test_an_engine_that_handed_its_requests_over_is_idle(cell):
    core = loaded(cell.fleet, cell.sample.at(1.0))
    core.advance(20 * 10**12, 10**9)
    events, total = core.events, core.counters()
    first_ps = core.requests()["first_ps"]
    assert np.array_equal(core.take_requests()["first_ps"], first_ps)
    assert len(core.requests()["first_ps"]) == 0
    assert core.advance(10**15, 10**9) == "reached"
    assert (core.events, core.counters()) == (events, total)


@pytest.mark.parametrize(
    "columns",
    [
        {"keep": np.ones(3, bool)},
        {"isl_tok": np.ones(3, np.uint32)},
        {"unit_from": np.zeros(2, np.uint64), "unit_of": np.zeros(0, np.uint32)},
        {"follow_from": np.zeros(2, np.uint64), "follow_of": np.zeros(0, np.uint32)},
    ],
)
def test_columns_of_another_length_are_refused(cell, columns):
    two = schedule.Arrivals(
        arrival_ps=np.zeros(2, np.uint64),
        isl_tok=np.full(2, 5, np.uint32),
        cached_tok=np.zeros(2, np.uint32),
        osl_tok=np.full(2, 5, np.uint32),
    )
    with pytest.raises(ScheduleError, match=r"has shape"):
        schedule.run(cell.fleet, replace(two, **columns))
    waits = {"follow_from": np.zeros(3, np.uint64), "follow_of": np.zeros(0, np.uint32)}
    with pytest.raises(ScheduleError, match=r"keep is given; allowed: none where requests wait"):
        schedule.run(cell.fleet, replace(two, keep=np.ones(2, bool), **waits))


def test_the_first_error_of_a_crew_stops_the_rest():
    begun = []

    def work(item):
        begun.append(item)
        if item == 1:
            raise ValueError("one")
        return item

    with Crew(progress=None, cancelled=None) as crew:
        with pytest.raises(ValueError, match="one"):
            crew.map(work, range(1000))
        assert crew.cancelled()
    assert len(begun) < 1000


def test_a_pool_that_is_no_better_than_another_counts_for_nothing(cell):
    options = {"serving": cell.plan.serving, "traffic": cell.sample, "slo": cell.asked.slo}
    rate = alone(cell.group, **options)
    assert alone(cell.group, **options, beyond=rate * 1.2) == 0.0
    assert alone(cell.group, **options, beyond=rate * 0.8) == pytest.approx(rate, rel=0.04)
