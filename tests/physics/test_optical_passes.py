"""Pass times of the optical cycle model against published arithmetic and physical limits."""

import numpy as np
import pytest

from firstlight import models
from firstlight.optics import (
    EngineSpec,
    LinearLayer,
    LinearStack,
    break_even_tok,
    chunk_bound_tok,
    linear_stack,
    pass_time_s,
    prompt_time_s,
    tile_count,
    utilization,
)
from firstlight.optics.passes import accumulator_bound_tok, tile_load_s

LLAMA_8B = linear_stack(models.load("llama-3.1-8b"))
LLAMA_70B = linear_stack(models.load("llama-3.1-70b"))
MIXTRAL = linear_stack(models.load("mixtral-8x7b"))


def engine(side=1024, **changes):
    preset = {1024: "iris-nova-optimistic", 2048: "iris-nova-2048"}[side]
    return EngineSpec.preset(preset, **{"engines": 1, **changes})


@pytest.mark.parametrize(
    ("stack", "side", "tiles"),
    [
        (LLAMA_8B, 1024, 6656),
        (LLAMA_8B, 2048, 1664),
        (LLAMA_70B, 1024, 65280),
        (LLAMA_70B, 2048, 16320),
    ],
)
def test_tiles_of_llama_with_fused_projections_and_without_the_head(stack, side, tiles):
    assert tile_count(stack, spec=engine(side)) == tiles


def test_weights_of_llama_8b_are_its_linear_layers_without_the_head():
    assert LLAMA_8B.active_weights == 6_979_321_856


SIXTIETH_S = 1 / 60
PROMPTS = (4096, 32768, 131072)
# side, reload [s], clock [Hz]: seconds and percent of cycles in use for the three prompts, as
# published for Llama-3.1-8B (one engine, one pass, chunk = prompt). None: not printed there.
CELLS = [
    (1024, SIXTIETH_S, 1e8, (111, 111, 111), (0, 2, 8)),
    (1024, SIXTIETH_S, 1e9, (111, 111, 111), (0, 0, 1)),
    (1024, SIXTIETH_S, 1e10, (111, 111, 111), (0, 0, 0)),
    (1024, 1e-3, 1e8, (6.66, 6.66, 8.72), (4, 33, 100)),
    (1024, 1e-3, 1e9, (6.66, 6.66, 6.66), (0.4, 3, 13)),
    (1024, 1e-3, 1e10, (6.66, 6.66, 6.66), (0, 0, 1)),
    (1024, 1e-4, 1e8, (0.67, 2.18, 8.72), (41, 100, 100)),
    (1024, 1e-4, 1e9, (0.67, 0.67, 0.87), (4, 33, 100)),
    (1024, 1e-4, 1e10, (0.67, 0.67, 0.67), (0, 3, 13)),
    (1024, 1e-5, 1e8, (0.273, 2.18, 8.72), (100, 100, 100)),
    (1024, 1e-5, 1e9, (0.067, 0.218, 0.872), (41, 100, 100)),
    (1024, 1e-5, 1e10, (0.067, 0.067, 0.087), (4, 33, 100)),
    (1024, 1e-6, 1e8, (0.273, 2.18, 8.72), (100, 100, 100)),
    (1024, 1e-6, 1e9, (0.027, 0.218, 0.872), (100, 100, 100)),
    (1024, 1e-6, 1e10, (0.0067, 0.022, 0.087), (41, 100, 100)),
    (2048, 1e-3, 1e8, (1.66, 1.66, 2.18), (4, 33, 100)),
    (2048, 1e-3, 1e9, (1.66, 1.66, 1.66), (0.4, 3, 13)),
    (2048, 1e-3, 1e10, (1.66, 1.66, 1.66), (0, 0, 1)),
    (2048, 1e-4, 1e8, (0.166, 0.545, 2.18), (41, 100, 100)),
    (2048, 1e-4, 1e9, (0.166, 0.166, 0.218), (4, 33, 100)),
    (2048, 1e-4, 1e10, (0.166, 0.166, 0.166), (0, 3, 13)),
    (2048, 1e-5, 1e8, (0.068, 0.545, 2.18), (100, 100, 100)),
    (2048, 1e-5, 1e9, (0.017, 0.055, 0.218), (41, 100, 100)),
    (2048, 1e-5, 1e10, (0.017, 0.017, 0.022), (4, 33, 100)),
]


@pytest.mark.parametrize(("side", "reload_s", "clock_hz", "seconds", "percent"), CELLS)
def test_published_prefill_times_of_llama_8b(side, reload_s, clock_hz, seconds, percent):
    spec = engine(side, t_reload_s=reload_s, f_cycle_hz=clock_hz)
    for prompt, second, share in zip(PROMPTS, seconds, percent, strict=True):
        time_s = prompt_time_s(LLAMA_8B, spec=spec, prompt_tok=prompt, chunk_tok=prompt)
        # The last printed digit: half a unit of it, and one where the source cut instead of rounded.
        digit = 10.0 ** -len(f"{second}".partition(".")[2])
        assert abs(time_s - second) <= digit
        used = 100 * utilization(spec, chunk_tok=prompt)
        assert abs(used - share) <= (0.05 if share == 0.4 else 0.8)


def test_a_pass_never_beats_its_reloads():
    spec = engine(engines=4)
    times = pass_time_s(LLAMA_70B, spec=spec, tokens=np.arange(1, 10_001))
    assert times == pytest.approx(np.full(10_000, 65280 / 4 * 1e-5))
    assert times[0] == pytest.approx(0.1632)


def test_a_pass_over_no_tokens_takes_no_time():
    assert pass_time_s(LLAMA_8B, spec=engine(), tokens=0, first_reload="exposed") == 0.0


def test_single_buffering_adds_the_reload_to_the_stream():
    both = engine(double_buffer=False, t_reload_s=1e-4)
    assert float(pass_time_s(LLAMA_8B, spec=both, tokens=4096)) == pytest.approx(
        6656 * (4096e-9 + 1e-4)
    )
    assert utilization(both, chunk_tok=break_even_tok(both)) == pytest.approx(0.5)


def test_an_exposed_first_reload_costs_one_load_a_pass():
    spec = engine()
    hidden, exposed = (
        float(pass_time_s(LLAMA_8B, spec=spec, tokens=8192, first_reload=how))
        for how in ("hidden", "exposed")
    )
    assert exposed - hidden == pytest.approx(spec.t_reload_s)


def test_two_passes_double_the_stream_and_halve_the_break_even():
    one, two = engine(), engine(signed_encoding="two_pass_balanced")
    assert pass_time_s(LLAMA_8B, spec=two, tokens=16384) == pytest.approx(
        2 * pass_time_s(LLAMA_8B, spec=one, tokens=16384)
    )
    assert break_even_tok(two) == break_even_tok(one) / 2 == 5000


@pytest.mark.parametrize(
    ("bits", "slices"), [(1, 1), (4, 1), (5, 1), (6, 2), (8, 2), (9, 2), (10, 3), (16, 4)]
)
def test_weights_wider_than_the_mask_take_several_slices(bits, slices):
    one = pass_time_s(LLAMA_8B, spec=engine(), tokens=100, weight_bits=4)
    assert pass_time_s(LLAMA_8B, spec=engine(), tokens=100, weight_bits=bits) == pytest.approx(
        slices * one
    )


def test_the_weight_stream_bounds_the_load():
    spec = engine(engines=60, weight_stream_bytes_per_s=1e12)
    assert tile_load_s(spec) == pytest.approx(60 * 2**19 / 1e12)
    assert tile_load_s(engine(t_reload_s=0, weight_stream_bytes_per_s=1e14)) == pytest.approx(
        2**19 / 1e14
    )


def test_engines_that_do_not_divide_a_layer_wait_for_each_other():
    stack = LinearStack(layers=(LinearLayer(name="a", k=1024, n=5120, count=3),), hidden_size=1024)
    assert float(pass_time_s(stack, spec=engine(engines=4), tokens=1)) == pytest.approx(
        3 * 2 * 1e-5
    )


def test_a_model_that_fits_the_engines_is_never_reloaded():
    stack = LinearStack(layers=(LinearLayer(name="a", k=1024, n=1024, count=4),), hidden_size=1024)
    assert float(pass_time_s(stack, spec=engine(engines=4), tokens=1)) == pytest.approx(4e-9)


@pytest.mark.parametrize(("side", "tokens"), [(1024, 16384), (2048, 8192)])
def test_accumulators_bound_the_chunk(side, tokens):
    assert accumulator_bound_tok(engine(side)) == tokens
    assert chunk_bound_tok(engine(side), hidden_size=4096) == tokens


def test_activations_bound_the_chunk_of_a_wide_model_and_are_pooled():
    assert chunk_bound_tok(engine(engines=1), hidden_size=8192) == 8192
    assert chunk_bound_tok(engine(engines=4), hidden_size=8192) == 16384


def test_long_prompts_are_cut_at_the_chunk_bound():
    spec = engine()
    assert prompt_time_s(LLAMA_8B, spec=spec, prompt_tok=40_000) == pytest.approx(
        6656 * (2 * 16384e-9 + 1e-5)  # 7,232 tokens are left: less than a reload
    )


def test_a_batch_loads_only_the_experts_it_hits():
    spec = engine()
    dense = sum(x.tiles(spec) * x.count for x in MIXTRAL.layers if x.experts == 1)
    expert = sum(x.tiles(spec) * x.count for x in MIXTRAL.layers if x.experts > 1)
    one, many = pass_time_s(MIXTRAL, spec=spec, tokens=[1, 4000])
    assert one == pytest.approx((dense + 2 * expert) * 1e-5)
    assert many == pytest.approx((dense + 8 * expert) * 1e-5)


def test_more_tokens_never_take_less_time():
    for stack in (LLAMA_8B, MIXTRAL):
        times = pass_time_s(stack, spec=engine(engines=3), tokens=np.arange(16385))
        assert np.all(np.diff(times) >= 0)
