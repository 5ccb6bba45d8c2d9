import numpy as np
import pytest

from firstlight.errors import ModelError
from firstlight.runners import gguf
from firstlight.runners.converters import ConverterLinear
from firstlight.runners.gptq import gptq, output_error, round_to_nearest, tiles
from firstlight.runners.hadamard import rotation
from firstlight.runners.preparation import layer_inputs, prepare
from firstlight.runners.recipe import Recipe, matches
from reference.model_files import write_tiny_gguf


def heavy(rng, shape):
    """Numbers with outliers, as activations have."""
    return (rng.standard_normal(shape) * np.exp(rng.standard_normal(shape[1]) * 1.5)).astype(
        np.float32
    )


def linear(rng, recipe, *, tokens=60, inputs=96, outputs=40, seed=0):
    weight, x = heavy(rng, (outputs, inputs)), heavy(rng, (tokens, inputs))
    layer = ConverterLinear("layers.0.q", weight, calibration=x, recipe=recipe, seed=seed)
    return layer, weight, x


def snr_db(got, want):
    return 10 * np.log10(np.square(want).mean() / np.square(got - want).mean())


@pytest.mark.parametrize("size", [1, 2, 12, 20, 36, 64, 576, 1536, 3584, 5120])
def test_a_rotation_is_orthogonal_and_its_weights_undo_it(size, rng):
    turn = rotation(size)
    matrix = turn(np.eye(size, dtype=np.float32)).astype(np.float64)
    assert np.abs(matrix @ matrix.T - np.eye(size)).max() < 1e-6
    x, w = heavy(rng, (7, size)), heavy(rng, (5, size))
    assert np.allclose(turn(x) @ turn(w).T, x @ w.T, rtol=1e-3, atol=1e-3 * np.abs(x @ w.T).max())


def test_a_rotation_spreads_one_outlier_over_all_inputs():
    x = np.zeros((1, 576), np.float32)
    x[0, 77] = 24.0
    assert np.allclose(np.abs(rotation(576)(x)), 1.0, atol=1e-5)


def test_an_order_without_a_hadamard_matrix_is_refused():
    with pytest.raises(ModelError, match="order 35"):
        rotation(35)


def test_the_additions_of_a_rotation_are_counted():
    # 576 = 16 · 36: four stages of additions and 35 for Paley's part.
    assert rotation(576).adds_per_tok == 576 * 39
    assert rotation(1536).adds_per_tok == 1536 * (7 + 11)


def test_tiles_are_the_fewest_and_equal():
    assert tiles(576, 576) == (0, 576)
    assert tiles(1536, 576) == (0, 512, 1024, 1536)
    assert tiles(10, 4) == (0, 4, 7, 10)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_gptq_is_no_worse_than_rounding_for_any_output(bits, rng):
    # Inputs that depend on each other: where they do not, no error can be moved.
    x = heavy(rng, (200, 30)) @ heavy(rng, (30, 96)) + heavy(rng, (200, 96))
    weight, edges = heavy(rng, (30, 96)), tiles(96, 40)
    hessian = x.T @ x
    moved = output_error(gptq(weight, inputs=x, bits=bits, tile_starts=edges), weight, hessian)
    plain = output_error(round_to_nearest(weight, bits=bits, tile_starts=edges), weight, hessian)
    assert (moved <= plain).all()
    assert moved.sum() < 0.8 * plain.sum()


def test_gptq_survives_inputs_that_are_always_zero(rng):
    x = heavy(rng, (50, 96))
    x[:, 10:20] = 0
    grid = gptq(heavy(rng, (8, 96)), inputs=x, bits=4, tile_starts=(0, 96))
    assert np.isfinite(grid.weights).all()
    grid = gptq(heavy(rng, (8, 96)), inputs=np.zeros_like(x), bits=4, tile_starts=(0, 96))
    assert np.isfinite(grid.weights).all()


@pytest.mark.parametrize("rotate", ["none", "hadamard"])
def test_many_bits_and_no_noise_give_the_exact_product(rotate, rng):
    exact = Recipe(mask_bits=16, dac_bits=0, adc_bits=0, rotation=rotate, tile_rows=50)
    layer, weight, x = linear(rng, exact)
    assert snr_db(layer(x), x @ weight.T) > 70


@pytest.mark.parametrize(
    ("worse", "better"),
    [({"mask_bits": 4}, {"mask_bits": 6}), ({"dac_bits": 4}, {"dac_bits": 8}),
     ({"adc_bits": 5}, {"adc_bits": 8}), ({"sigma_frac": 0.02}, {"sigma_frac": 0.002}),
     ({"receiver": "worst"}, {"receiver": "tile-max"}),
     ({"receiver": "tile-max", "adc_bits": 6}, {"receiver": "detector-max", "adc_bits": 6}),
     ({"adc_bits": 6}, {"adc_bits": 6, "tile_rows": 24}),
     ({"sigma_frac": 0.02}, {"sigma_frac": 0.02, "rotation": "hadamard"}),
     ({"static_dac": True, "dac_bits": 6}, {"dac_bits": 6})],
)  # fmt: skip
def test_a_better_machine_gives_a_better_signal(worse, better, rng):
    (bad, weight, x), (good, _, _) = (
        linear(np.random.default_rng(3), Recipe(**r)) for r in (worse, better)
    )
    assert snr_db(good(x), x @ weight.T) > snr_db(bad(x), x @ weight.T) + 0.5


def test_noise_follows_the_seed_and_the_position_not_the_cut(rng):
    noisy = Recipe(sigma_frac=0.01)
    (layer, _, x), (other, _, _) = (linear(np.random.default_rng(5), noisy, seed=s) for s in (1, 2))
    whole = layer(x, first_tok=7)
    cut = np.concatenate([layer(x[:25], first_tok=7), layer(x[25:], first_tok=32)])
    assert np.array_equal(whole, cut)
    assert not np.array_equal(whole, layer(x, first_tok=8))
    assert not np.array_equal(whole, other(x, first_tok=7))


def test_the_tally_counts_what_was_done(rng):
    layer, _, x = linear(rng, Recipe(tile_rows=48, rotation="hadamard"))
    layer(x)
    assert (layer.tally.tokens, layer.tally.macs) == (60, 60 * 96 * 40)
    assert layer.tally.readings == 60 * 40 * 2
    assert layer.tally.digital_ops == 60 * (rotation(96).adds_per_tok + 96 + 2 * 2 * 40)


def test_auto_range_reads_twice_and_never_clips_beyond_its_own_largest(rng):
    layer, weight, x = linear(rng, Recipe(receiver="per-token"))
    got = layer(x * 100)
    assert layer.tally.readings == 60 * 40 * 2
    # The range follows the token, so its size does not matter.
    assert np.allclose(got, layer(x) * 100, rtol=1e-4)
    assert snr_db(got, x @ weight.T * 100) > 20


def test_bias_calibration_removes_what_is_constant(rng):
    # A range that clips is an error with a mean.
    clipping = {"receiver": "fixed-gain", "gain_divisor": 40.0, "tile_rows": 96}
    x = np.abs(heavy(rng, (60, 96)))
    weight = np.abs(heavy(rng, (40, 96)))
    plain, fixed = (
        ConverterLinear(
            "l", weight, calibration=x, seed=0, recipe=Recipe(bias_calibration=b, **clipping)
        )
        for b in (False, True)
    )
    assert np.abs((fixed(x) - x @ weight.T).mean(axis=0)).max() < 1e-2
    assert snr_db(fixed(x), x @ weight.T) > snr_db(plain(x), x @ weight.T)


def test_gain_calibration_is_the_least_squares_and_costs_nothing(rng):
    # Weights of few bits and a range that clips change every output's size.
    crude = {"receiver": "fixed-gain", "gain_divisor": 40.0, "tile_rows": 96, "mask_bits": 3}
    x, weight = heavy(rng, (400, 96)), heavy(rng, (40, 96))
    exact = x @ weight.T

    def layer(**more):
        return ConverterLinear("l", weight, calibration=x, seed=0, recipe=Recipe(**crude, **more))

    plain, fitted = layer(), layer(gain_calibration=True)
    misses = [np.square(chosen(x) - exact).sum(axis=0) for chosen in (plain, fitted)]
    assert (misses[1] <= misses[0] * (1 + 1e-5)).all()
    assert misses[1].sum() < 0.98 * misses[0].sum()
    # No other factor is closer, for any output.
    for factor in (0.99, 1.01):
        assert (np.square(fitted(x) * factor - exact).sum(axis=0) > misses[1]).all()
    assert fitted.digital_ops_per_tok == plain.digital_ops_per_tok
    both = layer(gain_calibration=True, bias_calibration=True)
    assert (np.square(both(x) - exact).sum(axis=0) <= misses[1] * (1 + 1e-4)).all()
    assert both.digital_ops_per_tok == plain.digital_ops_per_tok + 40


def test_light_is_for_engines(rng):
    with pytest.raises(ModelError, match="needs an optical engine"):
        ConverterLinear(
            "l", heavy(rng, (8, 16)), calibration=heavy(rng, (9, 16)), seed=0,
            recipe=Recipe(photons_per_mac=10.0),
        )  # fmt: skip


def test_a_row_of_zeros_and_a_column_of_zeros_stay_zero(rng):
    weight, x = heavy(rng, (40, 96)), heavy(rng, (60, 96))
    weight[3], x[5] = 0, 0
    layer = ConverterLinear("l", weight, calibration=x, recipe=Recipe(), seed=0)
    got = layer(x)
    assert not got[5].any()
    assert not got[:, 3].any()


def test_patterns_name_kinds_and_layers():
    assert matches("down", "layers.7.down")
    assert matches("layers.*.down", "layers.7.down")
    assert matches("layers.7.*", "layers.7.q")
    assert not matches("layers.7.*", "layers.17.q")
    assert not matches("down", "layers.7.up")


def test_a_recipe_differs_by_layer_and_keeps_some_digital():
    recipe = Recipe(mask_bits=4, keep_digital=("layers.0.*",), overrides={"down": {"mask_bits": 8}})
    assert recipe.for_layer("layers.0.q") is None
    assert recipe.for_layer("layers.1.q").mask_bits == 4
    assert recipe.for_layer("layers.1.down").mask_bits == 8


@pytest.mark.parametrize(
    ("change", "message"),
    [({"receiver": "tile_max"}, "did you mean 'tile-max'"), ({"mask_bits": 1}, "2 to 16"),
     ({"sigma_frac": -0.1}, "sigma_frac is -0.1"), ({"rotation": "dct"}, "none, hadamard"),
     ({"percentile": 20}, "percentile")],
)  # fmt: skip
def test_impossible_recipes_are_refused(change, message):
    with pytest.raises(ModelError, match=message):
        Recipe(**change)


def test_an_override_of_nothing_is_refused():
    with pytest.raises(ModelError, match="did you mean 'mask_bits'"):
        Recipe(overrides={"down": {"mask_bit": 8}}).for_layer("layers.1.down")


def test_known_traps_are_warned_about():
    for trap in ({"receiver": "percentile"}, {"receiver": "engine"}, {"receiver": "worst"}, {"static_dac": True},
                 {"rounding": "gptq"}):  # fmt: skip
        assert len(Recipe(**trap).warnings()) == 1
    assert Recipe(rotation="hadamard", rounding="gptq").warnings() == []


def test_a_model_is_prepared_layer_by_layer_and_measured(tmp_path, rng):
    write_tiny_gguf(tmp_path / "m.gguf", rng)
    model, ids = gguf.load(tmp_path / "m.gguf"), rng.integers(0, 50, 60)
    assert [name for name, _ in layer_inputs(model, ids)] == model.linear_names
    optical = prepare(model, recipe=Recipe(keep_digital=("k",)), calibration=ids)
    assert list(optical.layers) == [n for n in model.linear_names if not n.endswith(".k")]
    assert all(signal.snr_db > 15 for signal in optical.signals)
    assert all(signal.kappa >= 1 for signal in optical.signals)
    assert optical.tally().macs == 0
    exact = model.hidden(ids, cache=model.new_cache(capacity_tok=60))
    got = model.hidden(ids, cache=model.new_cache(capacity_tok=60), replacements=optical.layers)
    assert 10 < snr_db(got, exact) < 60
    macs = model.architecture.macs_per_tok - 2 * 12 * 24
    assert optical.tally().macs == 60 * macs
