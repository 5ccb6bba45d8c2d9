"""Presets, lengths, superposition and the statistics of a load."""

import math

import numpy as np
import pytest

from firstlight.errors import TraceError
from firstlight.workload import (
    PRESETS,
    SHIPPED,
    Trace,
    cached_tok,
    copies_for,
    count_cv,
    load,
    poisson_trace,
    preset,
    scale_lengths,
    summarize,
    superpose,
)

CONV = load("azure-2023-conv")
CODE = load("azure-2023-code")


def test_shipped_hours_are_the_published_ones():
    # Facts of the published CSV files, found by other people's scripts.
    conv, code = summarize(CONV), summarize(CODE)
    assert (conv.requests, code.requests) == (19_366, 8_819)
    assert (int(CONV.isl_tok.sum()), int(CONV.osl_tok.sum())) == pytest.approx(
        (22.36e6, 4.089e6), rel=2e-4
    )
    assert (conv.request_per_s, code.request_per_s) == pytest.approx((5.53, 2.57), abs=0.005)
    assert (conv.interarrival_cv, code.interarrival_cv) == pytest.approx((1.09, 13.2), rel=0.005)
    assert (conv.isl_tok["mean"], conv.osl_tok["mean"]) == pytest.approx((1154.7, 211.1), abs=0.05)
    assert (conv.isl_tok["p50"], conv.osl_tok["p50"]) == (1020, 129)
    assert (code.isl_tok["mean"], code.osl_tok["mean"]) == pytest.approx((2047.8, 27.9), abs=0.05)
    assert (conv.isl_tok["max"], code.isl_tok["max"]) == (14_050, 7_437)


@pytest.mark.parametrize("name", [*PRESETS, *SHIPPED])
def test_every_name_loads_and_says_where_it_comes_from(name):
    trace = load(name)
    assert len(trace) > 1000
    assert "@" in trace.source


def test_production_presets_are_the_shipped_hours():
    assert np.array_equal(load("chat").isl_tok, CONV.isl_tok)
    assert np.array_equal(load("code", seed=9).isl_tok, CODE.isl_tok)


DRAWN = [name for name, kind in PRESETS.items() if kind.isl is not None]


@pytest.mark.parametrize("name", DRAWN)
def test_drawn_lengths_reproduce_quantiles_and_mean_of_their_source(name):
    uniform = (np.arange(100_000) + 0.5) / 100_000
    for law in (PRESETS[name].isl, PRESETS[name].osl):
        drawn = law.draw(uniform)
        for quantile, tok in zip(law.quantile[1:-1], law.tok[1:-1], strict=True):
            assert np.quantile(drawn, quantile) == pytest.approx(tok, rel=0.01, abs=1)
        # Log-linear between few points: the mean is not fitted, so it is a check.
        assert drawn.mean() == pytest.approx(law.mean_tok, rel=0.09)


@pytest.mark.parametrize("name", DRAWN)
def test_drawn_traffic_depends_on_its_seed_alone(name):
    one, same, other = preset(name, seed=1), preset(name, seed=1), preset(name, seed=2)
    assert np.array_equal(one.arrival_s, same.arrival_s)
    assert np.array_equal(one.isl_tok, same.isl_tok)
    assert len(one) != len(other) or not np.array_equal(one.isl_tok, other.isl_tok)


def test_a_preset_without_a_source_is_refused_with_the_list():
    with pytest.raises(TraceError, match=r"multimodal.*no public trace.*chat, code, rag"):
        preset("multimodal")
    with pytest.raises(TraceError, match="did you mean 'agentic'"):
        preset("agentik")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"request_per_s": 0}, "request_per_s"),
        ({"request_per_s": math.nan}, "request_per_s"),
        ({"request_per_s": -1}, "request_per_s"),
        ({"duration_s": math.inf}, "duration_s"),
        ({"duration_s": -1}, "duration_s"),
        ({"isl": 0}, "isl"),
        ({"osl": 2.5}, "osl"),
        ({"seed": -1}, "seed"),
        ({"request_per_s": 1e9}, "too many"),
        ({"request_per_s": 1e-9}, "no request falls"),
    ],
)
def test_impossible_drawings_are_refused(options, words):
    given = {"request_per_s": 1.0, "duration_s": 100.0, "isl": 10, "osl": 5, **options}
    with pytest.raises(TraceError, match=words):
        poisson_trace(given.pop("request_per_s"), **given)


def test_lengths_scale_to_a_mean_and_keep_their_shape():
    scaled = scale_lengths(CONV, context_tok=4096, output_tok=100)
    assert scaled.trace.isl_tok.mean() == pytest.approx(4096, rel=1e-3)
    assert scaled.trace.osl_tok.mean() == pytest.approx(100, rel=5e-3)
    assert scaled.clipped_frac == 0
    assert np.all(np.diff(scaled.trace.isl_tok[np.argsort(CONV.isl_tok, kind="stable")]) >= 0)


def test_clipping_is_reported_and_leaves_room_for_the_answer():
    scaled = scale_lengths(load("agentic"), max_context_tok=131_072)
    total = scaled.trace.isl_tok + scaled.trace.osl_tok
    assert total.max() == 131_072
    assert scaled.clipped_frac == pytest.approx(
        np.mean(load("agentic").isl_tok > 130_800), abs=0.01
    )
    assert scaled.trace.isl_tok.min() >= 1


@pytest.mark.parametrize(
    "bad",
    [{"context_tok": 0}, {"output_tok": math.nan}, {"context_tok": -1}, {"max_context_tok": 1}],
)
def test_impossible_lengths_are_refused(bad):
    with pytest.raises(TraceError, match=next(iter(bad))):
        scale_lengths(CONV, **bad)


def test_cached_tokens_are_floored_and_never_the_whole_prompt():
    isl = np.array([1, 2, 3, 100, 1000])
    assert cached_tok(isl, cached_frac=0.5).tolist() == [0, 1, 1, 50, 500]
    assert cached_tok(isl, cached_frac=1.0).tolist() == [0, 1, 2, 99, 999]
    assert cached_tok(isl, cached_frac=0.29).tolist() == [0, 0, 0, 29, 290]
    assert cached_tok(isl, cached_frac=0.0).tolist() == [0] * 5


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan])
def test_impossible_cached_shares_are_refused(share):
    with pytest.raises(TraceError, match="cached_frac"):
        cached_tok(np.array([5]), cached_frac=share)


def load_of(trace=CONV, **options):
    return superpose(trace, **{"copies": 20, "seed": 7, "max_request_per_s": 40.0, **options})


def test_a_higher_load_contains_every_lower_one():
    load = load_of()
    low, high = load.at(10.0), load.at(37.0)
    keys = [
        set(
            zip(part.arrival_ps.tolist(), part.isl_tok.tolist(), part.osl_tok.tolist(), strict=True)
        )
        for part in (low, high)
    ]
    assert keys[0] < keys[1]


def test_thinning_from_a_higher_maximum_gives_the_same_load():
    low, high = load_of(max_request_per_s=12.0).at(12.0), load_of(max_request_per_s=90.0).at(12.0)
    assert np.array_equal(low.arrival_ps, high.arrival_ps)
    assert np.array_equal(low.osl_tok, high.osl_tok)


@pytest.mark.parametrize("rate", [5.0, 20.0, 40.0])
def test_the_rate_is_met_within_its_poisson_error(rate):
    counts = [len(load_of(seed=seed).at(rate)) for seed in range(5)]
    expected = rate * CONV.duration_s
    assert abs(np.mean(counts) - expected) < 3 * math.sqrt(expected / 5)


def test_all_copies_are_a_circle():
    load = load_of(copies=3, max_request_per_s=3 * CONV.request_per_s)
    every = load.requests
    assert len(every) == 3 * len(CONV)
    assert np.all(np.diff(every.arrival_ps.astype(np.int64)) >= 0)
    assert int(every.arrival_ps.max()) < every.duration_ps
    base = CONV.arrival_ps().astype(np.int64)
    for copy in range(3):
        mine = load.copy == copy
        assert np.array_equal(np.sort(load.index[mine]), np.arange(len(CONV)))
        shift = every.arrival_ps[mine].astype(np.int64) - base[load.index[mine]]
        assert len(set((shift % every.duration_ps).tolist())) == 1


def test_a_copy_does_not_depend_on_how_many_there_are():
    few, many = (load_of(copies=n, max_request_per_s=n * CONV.request_per_s) for n in (2, 5))
    for copy in range(2):
        a, b = few.copy == copy, many.copy == copy
        assert np.array_equal(few.requests.arrival_ps[a], many.requests.arrival_ps[b])
        assert np.array_equal(few.mark[a], many.mark[b])


def test_no_correlation_length_keeps_bursts_together_and_infinity_spreads_them():
    copies = 200
    full = copies * CODE.request_per_s
    own = count_cv(CODE.arrival_s, duration_s=CODE.duration_s, bin_s=10.0)
    cv = {
        limit: load_of(
            CODE, copies=copies, correlation_s=limit, max_request_per_s=full
        ).requests.count_cv(bin_s=10.0)
        for limit in (0.0, 60.0, math.inf)
    }
    poisson = 1 / math.sqrt(full * 10)
    assert cv[0.0] == pytest.approx(own, rel=1e-9)
    assert cv[0.0] > cv[60.0] > cv[math.inf]
    assert cv[math.inf] < 0.15 * own
    assert cv[math.inf] == pytest.approx(math.hypot(poisson, own / math.sqrt(copies)), rel=0.5)


def test_shifts_stay_within_the_correlation_length():
    load = load_of(copies=50, correlation_s=30.0, max_request_per_s=50 * CONV.request_per_s)
    base = CONV.arrival_ps().astype(np.int64)
    shift = load.requests.arrival_ps.astype(np.int64) - base[load.index]
    shift %= load.requests.duration_ps
    assert 25e12 < shift.max() <= 30e12
    assert shift.min() < 5e12


def test_synchronised_copies_are_ordered_by_copy_and_place():
    load = load_of(copies=4, correlation_s=0.0, max_request_per_s=4 * CONV.request_per_s)
    key = np.lexsort((load.index, load.copy, load.requests.arrival_ps))
    assert np.array_equal(key, np.arange(len(key)))


def test_requests_have_the_schedulers_types_and_limits():
    load = load_of(cached_frac=0.5).at(30.0)
    assert load.arrival_ps.dtype == np.uint64
    assert {part.dtype for part in (load.isl_tok, load.osl_tok, load.cached_tok)} == {
        np.dtype("u4")
    }
    assert np.all(load.cached_tok < load.isl_tok)
    assert np.array_equal(load.cached_tok, load.isl_tok // 2 - (load.isl_tok == 0))


def test_copies_for_a_rate_reach_it():
    copies = copies_for(CONV, request_per_s=100.0)
    assert copies == math.ceil(100 / CONV.request_per_s)
    assert len(load_of(copies=copies, max_request_per_s=100.0).at(100.0)) > 0
    assert copies_for(CONV, request_per_s=1e-3) == 1


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"copies": 0}, "copies"),
        ({"copies": 10**9}, "too many"),
        ({"seed": -1}, "seed"),
        ({"correlation_s": -1.0}, "correlation_s"),
        ({"correlation_s": math.nan}, "correlation_s"),
        ({"max_request_per_s": 0.0}, "max_request_per_s"),
        ({"max_request_per_s": math.nan}, "max_request_per_s"),
        ({"max_request_per_s": 1e6}, "the rate of 20 copies"),
        ({"cached_frac": 2.0}, "cached_frac"),
    ],
)
def test_impossible_loads_are_refused(bad, words):
    with pytest.raises(TraceError, match=words):
        load_of(**bad)


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, 40.1])
def test_rates_outside_the_built_load_are_refused(rate):
    with pytest.raises(TraceError, match="at most 40"):
        load_of().at(rate)


def test_count_cv_of_even_arrivals_is_zero_and_of_one_burst_is_known():
    even = np.arange(1000) * 0.1
    assert count_cv(even, duration_s=100.0, bin_s=10.0) == 0
    burst = np.zeros(100)
    assert count_cv(burst, duration_s=100.0, bin_s=10.0) == pytest.approx(3.0)
    assert count_cv(burst, duration_s=15.0, bin_s=10.0) is None
    with pytest.raises(TraceError, match="bin_s"):
        count_cv(burst, duration_s=15.0, bin_s=0.0)


def test_poisson_counts_have_the_poisson_spread():
    trace = poisson_trace(50.0, duration_s=3600.0, isl=10, osl=5, seed=3)
    facts = summarize(trace)
    assert facts.interarrival_cv == pytest.approx(1.0, abs=0.02)
    assert facts.count_cv_10s == pytest.approx(1 / math.sqrt(500), rel=0.12)


def test_a_repeated_trace_keeps_its_rate():
    trace = Trace.from_arrivals(
        np.array([5.0, 6.0, 7.0]),
        isl_tok=np.array([1, 1, 1]),
        osl_tok=np.array([1, 1, 1]),
        name="t",
        source="test",
    )
    assert trace.duration_s == 3.0
    assert trace.request_per_s == 1.0
