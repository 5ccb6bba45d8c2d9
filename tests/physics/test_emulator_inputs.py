"""What goes in: limits of operands, refusals, and anything hypothesis can think of."""

import math
import os
import signal
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.errors import FirstlightError, ScenarioError
from firstlight.optics import Engine

FUZZ_CASES = 60
LONG_FUZZ_CASES = int(os.environ.get("FIRSTLIGHT_FUZZ_CASES", "20000"))


@pytest.fixture(scope="module")
def engine():
    return Engine.preset("iris-nova-optimistic", inputs=64, outputs=32)


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def error_frac(y, exact):
    return np.abs(y - exact).max() / max(np.abs(exact).max(), 1e-30)


@pytest.mark.parametrize(
    ("x", "w"),
    [
        (np.zeros((3, 70), np.float32), normal(1, 9, 70)),
        (normal(1, 3, 70), np.zeros((9, 70), np.float32)),
        (-np.abs(normal(1, 3, 70)), np.abs(normal(2, 9, 70))),
        (np.eye(3, 70, 5, dtype=np.float32), normal(2, 9, 70)),
        (normal(1, 3, 1), normal(2, 9, 1)),
        (normal(1, 3, 129), normal(2, 1, 129)),
        (normal(1, 3, 70) * np.where(np.arange(70) == 7, 1000, 1).astype(np.float32),
         normal(2, 9, 70)),
        (normal(1, 3, 70) * np.float32(1e30), normal(2, 9, 70) * np.float32(1e-30)),
        (normal(1, 3, 70) * np.float32(1e-40), normal(2, 9, 70)),
    ],
    ids=["dark", "closed", "all negative", "one channel", "K=1", "K not a multiple", "outlier x1000",
         "huge and tiny", "denormal"],
)  # fmt: skip
def test_ideal_engine_is_exact_whatever_the_operands(x, w, engine):
    exact = x.astype(np.float64) @ w.astype(np.float64).T
    y, _ = Engine.ideal(inputs=64, outputs=32).matmul(x, w)
    assert np.isfinite(y).all()
    assert error_frac(y, exact) < 1e-5
    noisy, ledger = engine.matmul(x, w, seed=1)
    assert np.isfinite(noisy).all()
    assert ledger.cycles == len(x) * math.ceil(x.shape[1] / 64)


def test_no_tokens_is_an_empty_product(engine):
    y, ledger = engine.matmul(np.zeros((0, 70), np.float32), normal(2, 9, 70))
    assert y.shape == (0, 9)
    assert (ledger.cycles, ledger.adc_reads, ledger.energy_j) == (0, 0, 0.0)


def test_inputs_are_untouched_and_out_is_filled(engine):
    x, w = normal(1, 5, 70), normal(2, 9, 70)
    copies = x.copy(), w.copy()
    out = np.full((5, 9), np.nan, np.float32)
    y, _ = engine.matmul(x, w, seed=3, out=out)
    assert y is out
    np.testing.assert_array_equal(x, copies[0])
    np.testing.assert_array_equal(w, copies[1])
    again, _ = engine.matmul(x, w, seed=3)
    np.testing.assert_array_equal(out, again)


def test_a_batch_may_be_cut_anywhere(engine):
    x, w = normal(1, 130, 70), normal(2, 40, 70)
    layer = engine.compile(w, layer=4)
    whole = layer(x, seed=3, threads=1)
    parts = [layer(x[a:b], seed=3, first_tok=a) for a, b in ((0, 1), (1, 77), (77, 130))]
    np.testing.assert_array_equal(np.vstack(parts), whole)
    assert (layer(x, seed=4) != whole).any()
    assert (engine.compile(w, layer=5)(x, seed=3) != whole).any()


X, W = normal(1, 3, 70), normal(2, 9, 70)
BAD_ROW = X.copy()
BAD_ROW[2, 5] = np.nan


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"x": X.astype(np.float64)}, ["x", "float64", "float32"]),
        ({"w": W.astype(np.int8)}, ["w", "int8", "float32"]),
        ({"x": [[1.0]]}, ["x", "list"]),
        ({"x": X[0]}, ["x", "(70,)", "two dimensions"]),
        ({"x": X[:, :60]}, ["x", "not contiguous", "ascontiguousarray"]),
        ({"x": np.ascontiguousarray(X[:, :60])}, ["x", "(3, 60)", "(tokens, 70)"]),
        ({"x": BAD_ROW}, ["x", "row 2", "finite"]),
        ({"w": np.full((2, 70), np.inf, np.float32)}, ["w", "row 0", "finite"]),
        ({"w": np.zeros((0, 70), np.float32)}, ["w", "(0, 70)"]),
        ({"out": np.zeros((3, 8), np.float32)}, ["out", "(3, 8)", "(3, 9)"]),
        ({"out": np.zeros((3, 9), np.float64)}, ["out", "float64"]),
        ({"seed": -1}, ["seed", "-1"]),
        ({"seed": 1.5}, ["seed", "1.5", "whole number"]),
        ({"seed": 2**64}, ["seed"]),
        ({"seed": "1"}, ["seed", "'1'"]),
        ({"threads": 0}, ["threads", "0"]),
        ({"first_tok": -3}, ["first_tok"]),
        ({"calibration": np.zeros((0, 70), np.float32)}, ["calibration"]),
        ({"calibration": X[:, :60].copy()}, ["calibration", "60", "70"]),
    ],
)
def test_bad_arguments_are_refused_in_one_line(arguments, words, engine):
    with pytest.raises(ScenarioError) as refusal:
        engine.matmul(**{"x": X, "w": W, **arguments})
    text = str(refusal.value)
    assert "\n" not in text
    for word in words:
        assert word in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mask_bit": 4}, ["mask_bit", "did you mean 'mask_bits'"]),
        ({"mask_bits": 0}, ["mask_bits", "1 to 15"]),
        ({"mask_bits": 4.5}, ["mask_bits", "4.5"]),
        ({"adc_bits": 99}, ["adc_bits", "99"]),
        ({"adc_energy_j": -1e-12}, ["adc_energy_j"]),
        ({"photons_per_mac": -5}, ["photons_per_mac"]),
        ({"photons_per_mac": math.nan}, ["photons_per_mac"]),
        ({"inputs": 0}, ["inputs", "16"]),
        ({"outputs": 1 << 40}, ["outputs"]),
        ({"signed_encoding": "two_pass"}, ["two_pass", "did you mean"]),
        ({"variance": "exactly"}, ["variance", "grouped, exact"]),
        ({"weight_bits": 1}, ["weight_bits", "2 to 16"]),
        ({"rounding": None}, ["rounding"]),
        ({"crosstalk": (0.1,)}, ["crosstalk", "two values"]),
        ({"crosstalk": (0.9, 0.0)}, ["crosstalk", "0.9"]),
        ({"pixel_noise": ("other", 0.1)}, ["pixel_noise", "proportional, additive"]),
        ({"engine_seed": True}, ["engine_seed"]),
        ({"shot_noise": 1}, ["shot_noise", "True or False"]),
        ({"adc_range": 0.0}, ["adc_range"]),
    ],
)
def test_bad_parameters_are_refused_in_one_line(change, words, engine):
    with pytest.raises(FirstlightError) as refusal:
        engine.replace(**change)
    text = str(refusal.value)
    assert "\n" not in text
    for word in words:
        assert word in text


def test_an_absurd_matrix_is_refused_before_anything_is_allocated(engine):
    # A view of one number: 2^42 weights without the memory.
    w = np.lib.stride_tricks.as_strided(
        np.zeros(1, np.float32), shape=(1 << 21, 1 << 21), strides=(0, 0)
    )
    started = time.perf_counter()
    with pytest.raises(ScenarioError):
        engine.matmul(np.zeros((1, 70), np.float32), w)
    assert time.perf_counter() - started < 1.0


def test_ctrl_c_stops_a_long_product(engine):
    layer = engine.compile(normal(1, 2048, 2048))
    x = np.ones((60_000, 2048), np.float32)
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    started = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        layer(x)
    timer.join()
    assert time.perf_counter() - started < 20.0


BITS = st.one_of(st.none(), st.integers(1, 15))
SMALL = st.sampled_from([0.0, 0.001, 0.01, 0.1])
ENGINES = st.fixed_dictionaries(
    {
        "inputs": st.sampled_from([16, 17, 64, 200]),
        "outputs": st.sampled_from([16, 33, 64]),
        "mask_bits": BITS,
        "activation_bits": BITS,
        "adc_bits": BITS,
        "adc_enob": st.one_of(st.none(), st.floats(1, 12)),
        "signed_encoding": st.sampled_from(
            ["four_quadrant_balanced", "two_pass_balanced", "two_pass_digital",
             "offset_input_balanced", "offset_both", "offset_both_raw", "nonnegative",
             "nonnegative_digital"]
        ),
        "photons_per_mac": st.sampled_from([1e-3, 0.5, 100.0, 1e9, math.inf, None]),
        "weight_error_sigma_frac": SMALL,
        "source_gain_sigma": SMALL,
        "column_gain_sigma": SMALL,
        "rail_ratio_sigma": SMALL,
        "crosstalk_each_side_frac": SMALL,
        "receiver_noise_electrons": st.sampled_from([0.0, 100.0, 1e4]),
        "laser_rin_db_per_hz": st.sampled_from([None, -135.0, -110.0]),
        "rin_mode": st.sampled_from(["common", "independent"]),
        "mask_contrast_ratio": st.sampled_from([None, 2.0, 100.0]),
        "mask_gamma": st.sampled_from([1.0, 2.2, 0.4]),
        "weight_bits": st.one_of(st.none(), st.integers(2, 16)),
        "variance": st.sampled_from(["grouped", "exact"]),
        "tile_split": st.sampled_from(["full", "even", "rounded"]),
        "weight_scale": st.sampled_from(["column", "tile", "matrix", 0.5]),
        "input_scale": st.sampled_from(["absmax", 1.0, 1e-3]),
        "adc_range": st.sampled_from([None, 1e-3, 4.0]),
        "adc_range_per": st.sampled_from(["column", "tile"]),
        "adc_levels": st.sampled_from(["full", "symmetric"]),
        "clip_order": st.sampled_from(["round_then_clip", "clip_then_round"]),
        "rounding": st.sampled_from(["nearest_even", "half_to_zero"]),
        "saturation": st.sampled_from([None, 0.5, 100.0]),
        "stuck_pixel_frac": SMALL,
        "dead_source_frac": SMALL,
        "dead_detector_frac": SMALL,
        "source_compression": st.sampled_from([0.0, 0.1]),
        "inter_symbol": st.booleans(),
        "input_slice_bits": st.one_of(st.none(), st.none(), st.integers(1, 8)),
        "pixel_noise": st.sampled_from([None, None, ("additive", 0.05), ("proportional", 0.1)]),
    }
)  # fmt: skip
SHAPES = st.tuples(st.integers(0, 5), st.integers(1, 70), st.integers(1, 230))


def fuzz(cases):
    return settings(max_examples=cases, deadline=None)


ANYTHING = (
    ENGINES,
    SHAPES,
    st.integers(0, 2**64 - 1),
    st.sampled_from([1.0, 1e-30, 1e18, 0.0]),
    st.booleans(),
)


@fuzz(FUZZ_CASES)
@given(*ANYTHING)
def test_any_engine_gives_finite_numbers_or_one_line(changes, shape, seed, size, is_calibrated):
    answer_or_refuse(changes, shape, seed, size, is_calibrated=is_calibrated)


@pytest.mark.long
@pytest.mark.timeout(7200)
@fuzz(LONG_FUZZ_CASES)
@given(*ANYTHING)
def test_a_great_many_engines_do_so(changes, shape, seed, size, is_calibrated):
    answer_or_refuse(changes, shape, seed, size, is_calibrated=is_calibrated)


def answer_or_refuse(changes, shape, seed, size, *, is_calibrated):
    tokens, n, k = shape
    x, w = normal(seed % 97, tokens, k) * np.float32(size), normal(seed % 89, n, k)
    try:
        # every parameter may differ from the device's at once
        engine = Engine.ideal(**changes)
        sample = normal(3, 9, k) * np.float32(size) if is_calibrated else None
        layer = engine.compile(w, calibration=sample)
        y, ledger = layer.run(x, seed=seed, threads=1)
    except FirstlightError as refusal:
        text = str(refusal)
    else:
        text = ""
    assert "\n" not in text
    if text:
        return
    assert np.isfinite(y).all()
    assert list(layer.core.expected_counts(tokens)) == [
        ledger.cycles, ledger.reloads, ledger.dac_writes, ledger.adc_reads,
    ]  # fmt: skip
    assert 0.0 <= ledger.adc_clip_frac <= 1.0
    if tokens > 1 and not engine.drive.inter_symbol:
        np.testing.assert_array_equal(layer(x[1:], seed=seed, first_tok=1, threads=1), y[1:])
