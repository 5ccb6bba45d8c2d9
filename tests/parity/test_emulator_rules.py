"""Settings beside the reference files, against each family's rule written out in NumPy.

The rules are those of `tests/data/emulator/README.md`; a rule that meets its own file there is
tried at other bits, ranges, tiles and slices here.
"""

import itertools

import numpy as np
import pytest

from firstlight.optics import Engine

SYMMETRIC = {"inputs": 1024, "outputs": 1024, "adc_levels": "symmetric"}


@pytest.fixture(scope="module")
def operands():
    rng = np.random.default_rng(77)
    x = rng.standard_normal((12, 160)).astype(np.float32)
    w = (0.06 * rng.standard_normal((40, 160))).astype(np.float32)
    return x, w


def clip_then_round(v, low, high, levels):
    """CrossSim: both ends of the range are levels."""
    scale = (levels - 1) / (high - low)
    return np.rint((np.clip(v, low, high) - low) * scale) / scale + low


def round_then_clip(v, bound, bits):
    """aihwkit: a grid through zero."""
    step = 2 * bound / (2**bits - 2)
    return np.clip(np.rint(v / step) * step, -bound, bound)


def half_to_zero(v, precision):
    """AnalogVNN's reduced precision."""
    return np.sign(v) * np.ceil(np.abs(v * precision) - 0.5) / precision


def cut(length, sizes):
    edges = np.cumsum([0, *sizes])
    assert edges[-1] == length
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


def agree(engine, x, w, wanted):
    y, _ = engine.matmul(x, w)
    np.testing.assert_allclose(y, wanted, rtol=0, atol=2e-6 * max(1.0, np.abs(wanted).max()))


@pytest.mark.parametrize("dac_bits", [2, 4, 7, 8, 10])
@pytest.mark.parametrize("adc_bits", [3, 4, 8, 11])
@pytest.mark.parametrize("full_scale", [1.0, 2.9])
def test_signed_converters_that_clip_first(operands, dac_bits, adc_bits, full_scale):
    x, w = operands
    for adc_range in (1.0317, 4.0871):
        v = clip_then_round(x.astype(np.float64) / full_scale, -1, 1, 2**dac_bits - 1)
        sums = v @ (w.astype(np.float64) / 0.21).T
        y = clip_then_round(sums, -adc_range, adc_range, 2**adc_bits - 1) * full_scale * 0.21
        engine = Engine.ideal(
            **SYMMETRIC, activation_bits=dac_bits, adc_bits=adc_bits, input_scale=full_scale,
            weight_scale=0.21, adc_range=adc_range, clip_order="clip_then_round",
        )  # fmt: skip
        agree(engine, x, w, y)


@pytest.mark.parametrize("sizes", [[53, 53, 54], [32] * 5, [40] * 4])
@pytest.mark.parametrize("is_two", [False, True])
def test_unsigned_light_on_tiles_with_one_or_two_converters(operands, sizes, is_two):
    x, w = operands
    adc_range = 7.0931 if is_two else 2.0717
    y = 0.0
    for part in cut(160, sizes):
        v = clip_then_round(x[:, part].astype(np.float64) / 3.1, 0, 1, 2**8)
        g = w[:, part].astype(np.float64) / 0.21
        if is_two:
            plus, minus = v @ np.maximum(g, 0).T, v @ np.maximum(-g, 0).T
            sums = clip_then_round(plus, 0, adc_range, 256)
            sums = sums - clip_then_round(minus, 0, adc_range, 256)
        else:
            sums = clip_then_round(v @ g.T, -adc_range, adc_range, 255)
        y = y + sums * 3.1 * 0.21
    engine = Engine.ideal(
        **SYMMETRIC | {"inputs": max(64 if sizes[-1] == 54 else 0, min(sizes))},
        activation_bits=8, adc_bits=8, input_scale=3.1, weight_scale=0.21, adc_range=adc_range,
        tile_split="rounded", clip_order="clip_then_round",
        signed_encoding="nonnegative_digital" if is_two else "nonnegative",
    )  # fmt: skip
    agree(engine, x, w, y)


@pytest.mark.parametrize(("weight_bits", "cell_bits"), [(8, 4), (8, 2), (7, 3), (8, 7), (5, 4)])
def test_weights_cut_in_slices(operands, weight_bits, cell_bits):
    x, w = operands
    top, cell = 2 ** (weight_bits - 1) - 1, 2**cell_bits - 1
    v = clip_then_round(x.astype(np.float64) / 3.0, -1, 1, 255)
    code = np.rint(np.clip(w.astype(np.float64) / 0.21, -1, 1) * top)
    y, slices = 0.0, -(-(weight_bits - 1) // cell_bits)
    for index in range(slices):
        piece = (np.abs(code).astype(int) >> (cell_bits * index)) & cell
        unit = cell if slices > 1 else top
        sums = clip_then_round(v @ (np.sign(code) * piece / unit).T, -9.0317, 9.0317, 255)
        y = y + sums * unit * 2.0 ** (cell_bits * index) / top
    engine = Engine.ideal(
        **SYMMETRIC, activation_bits=8, adc_bits=8, input_scale=3.0, weight_scale=0.21,
        adc_range=9.0317, clip_order="clip_then_round", weight_bits=weight_bits,
        mask_bits=cell_bits,
    )  # fmt: skip
    agree(engine, x, w, y * 3.0 * 0.21)


@pytest.mark.parametrize(("bits", "plane_bits"), [(8, 1), (5, 1), (8, 2), (8, 4)])
@pytest.mark.parametrize("sizes", [[160], [53, 53, 54]])
def test_inputs_sent_plane_by_plane(operands, bits, plane_bits, sizes):
    x, w = operands
    top, plane_top = 2 ** (bits - 1) - 1, 2**plane_bits - 1
    y = 0.0
    for part in cut(160, sizes):
        code = np.rint(np.clip(x[:, part].astype(np.float64) / 3.0, -1, 1) * top)
        g = (w[:, part].astype(np.float64) / 0.21).T
        for index in range(-(-(bits - 1) // plane_bits)):
            plane = (np.abs(code).astype(int) >> (plane_bits * index)) & plane_top
            sums = (np.sign(code) * plane / plane_top) @ g
            read = clip_then_round(sums, -4.0317, 4.0317, 255)
            y = y + read * plane_top * 2.0 ** (plane_bits * index) / top
    engine = Engine.ideal(
        **SYMMETRIC | {"inputs": 64 if len(sizes) > 1 else 1024}, activation_bits=bits,
        adc_bits=8, input_scale=3.0, weight_scale=0.21, adc_range=4.0317,
        tile_split="rounded", clip_order="clip_then_round", input_slice_bits=plane_bits,
    )  # fmt: skip
    agree(engine, x, w, y * 3.0 * 0.21)


@pytest.mark.parametrize("input_scale", ["absmax", 1.0, 2.3])
@pytest.mark.parametrize("weight_scale", [1.0, "matrix"])
@pytest.mark.parametrize("sizes", [[160], [54, 53, 53], [32] * 5])
def test_converters_that_round_first(operands, input_scale, weight_scale, sizes):
    x, w = operands
    omega = np.abs(w).max() if weight_scale == "matrix" else 1.0
    bound = 12.037 if weight_scale == "matrix" else 1.217
    for dac_bits, adc_bits in [(8, 8), (6, 5), (4, 9)]:
        y = 0.0
        for part in cut(160, sizes):
            piece = x[:, part].astype(np.float64)
            is_dynamic = input_scale == "absmax"
            scale = np.abs(piece).max(axis=1, keepdims=True) if is_dynamic else input_scale
            v = round_then_clip(piece / scale, 1.0, dac_bits)
            y = y + round_then_clip(v @ (w[:, part] / omega).T, bound, adc_bits) * scale * omega
        engine = Engine.ideal(
            **SYMMETRIC | {"inputs": {160: 1024, 54: 64, 32: 32}[sizes[0]]},
            activation_bits=dac_bits, adc_bits=adc_bits, input_scale=input_scale,
            weight_scale=weight_scale, adc_range=bound, tile_split="even",
        )  # fmt: skip
        agree(engine, x, w, y)


@pytest.mark.parametrize("sizes", [[160], [54, 53, 53]])
@pytest.mark.parametrize("out_bound", [6.031, 12.017])
def test_a_bound_that_follows_the_largest_weight_of_a_tile(operands, sizes, out_bound):
    x, w = operands
    y = 0.0
    for part in cut(160, sizes):
        v = round_then_clip(x[:, part].astype(np.float64) / 3.0, 1.0, 8)
        top = np.abs(w[:, part]).max()
        y = y + round_then_clip(v @ (w[:, part] / top).T, out_bound, 8) * 3.0 * top
    engine = Engine.ideal(
        **SYMMETRIC | {"inputs": 64 if len(sizes) > 1 else 1024}, activation_bits=8,
        adc_bits=8, input_scale=3.0, weight_scale="tile", adc_range=out_bound, tile_split="even",
    )  # fmt: skip
    agree(engine, x, w, y)


@pytest.mark.parametrize("bits", [3, 4, 5, 6, 8])
def test_halves_that_go_towards_zero(operands, bits):
    x, w = operands
    precision = 2 ** (bits - 1) - 1
    v = half_to_zero(np.clip(x.astype(np.float64), -1, 1), precision)
    y = half_to_zero(np.clip(0.5 * (v @ w.T.astype(np.float64)), -1, 1), precision)
    engine = Engine.ideal(
        **SYMMETRIC, activation_bits=bits, adc_bits=bits, input_scale=1.0, weight_scale=1.0,
        adc_range=2.0, rounding="half_to_zero",
    )  # fmt: skip
    agree(engine, x, w, 2 * y)


@pytest.mark.parametrize("encoding", ["four_quadrant_balanced", "two_pass_balanced",
                                      "two_pass_digital", "offset_input_balanced", "offset_both",
                                      "offset_both_raw"])  # fmt: skip
def test_every_signed_encoding_is_the_product_with_fine_converters(operands, encoding):
    x, w = operands
    engine = Engine.ideal(
        inputs=64, outputs=16, activation_bits=12, mask_bits=12, adc_bits=16,
        signed_encoding=encoding,
    )  # fmt: skip
    y, _ = engine.matmul(x, w)
    exact = x.astype(np.float64) @ w.T
    assert np.square(y - exact).mean() < 1e-4 * np.square(exact).mean()
