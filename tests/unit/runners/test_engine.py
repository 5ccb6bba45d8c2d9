"""Layers in the emulator's light against the same layers behind converters alone."""

import math

import numpy as np
import pytest

from firstlight.errors import ModelError
from firstlight.optics import Engine
from firstlight.runners import gguf
from firstlight.runners.accuracy import Laboratory
from firstlight.runners.engine import OpticalEngine, open_engine
from firstlight.runners.points import Point
from firstlight.runners.preparation import prepare, prepare_layer
from firstlight.runners.recipe import Recipe
from reference.model_files import write_tiny_gguf

IDEAL = OpticalEngine(name="ideal", engine=Engine.ideal(adc_levels="symmetric"))


def snr_db(got, want):
    return 10 * np.log10(np.square(want).mean() / (np.square(got - want).mean() + 1e-30))


def pair(rng, engine, recipe, *, inputs=320):
    """One layer on the engine and behind converters, its weights and inputs."""
    weight = rng.standard_normal((40, inputs)) * np.exp(rng.standard_normal(inputs))
    weight, x = weight.astype(np.float32), rng.standard_normal((60, inputs)).astype(np.float32)
    layers = [
        prepare_layer(
            "layers.0.q", weight, calibration=x, recipe=recipe, seed=1, number=3, engine=chosen
        )
        for chosen in (engine, None)
    ]
    return *layers, weight, x


@pytest.mark.parametrize(
    "changes",
    [{"dac_bits": 0, "adc_bits": 0}, {"adc_bits": 0}, {"adc_bits": 0, "rotation": "hadamard"},
     {"adc_bits": 0, "mask_bits": 4, "rounding": "gptq", "rotation": "hadamard"}],
)  # fmt: skip
def test_without_errors_the_engine_computes_what_converters_do(changes, rng):
    light, plain, _, x = pair(rng, IDEAL, Recipe(tile_rows=1024, **changes))
    # Codes on both sides are the same; only the order of additions differs.
    assert snr_db(light(x), plain(x)) > 100


def test_converter_and_its_range_are_the_same_up_to_ties(rng):
    light, plain, weight, x = pair(rng, IDEAL, Recipe(tile_rows=1024))
    assert snr_db(light(x), x @ weight.T) == pytest.approx(snr_db(plain(x), x @ weight.T), abs=0.5)


def test_noise_is_a_share_of_the_same_range(rng):
    noisy = Recipe(tile_rows=1024, sigma_frac=0.01)
    light, plain, weight, x = pair(rng, IDEAL, noisy)
    assert snr_db(light(x), x @ weight.T) == pytest.approx(snr_db(plain(x), x @ weight.T), abs=0.7)


@pytest.mark.parametrize("pixel_bits", [2, 3, 4])
def test_weights_in_slices_are_the_weights(pixel_bits, rng):
    sliced = Recipe(pixel_bits=pixel_bits, dac_bits=0, adc_bits=0)
    light, plain, _, x = pair(rng, IDEAL, sliced)
    assert snr_db(light(x), plain(x)) > 90
    whole, *_ = pair(rng, IDEAL, Recipe(dac_bits=0, adc_bits=0))
    whole(x)
    assert light.tally.cycles == math.ceil(7 / pixel_bits) * whole.tally.cycles


def test_a_batch_cut_anywhere_gives_the_same_bits(rng):
    light, _, _, x = pair(rng, open_engine("iris-nova-optimistic"), Recipe(rotation="hadamard"))
    cut = np.concatenate([light(x[:25], first_tok=7), light(x[25:], first_tok=32)])
    assert np.array_equal(light(x, first_tok=7), cut)
    assert not np.array_equal(light(x, first_tok=8), cut)


def test_the_ledger_is_summed_and_masks_are_shared_by_a_pass(rng):
    light, _, _, x = pair(rng, open_engine("iris-nova-optimistic"), Recipe())
    light(x)
    once = dict(light.tally.energy_j)
    light(x)
    assert light.tally.tokens == 120
    assert light.tally.cycles == 120
    assert light.tally.energy_j == pytest.approx({part: 2 * j for part, j in once.items()})
    _, ledger = light._layer.run(x)
    assert once["laser"] == pytest.approx(ledger.energy_j_by_part["laser"])
    assert once["reload"] == pytest.approx(ledger.energy_j_by_part["reload"] * 60 / 16_384)


def test_more_light_gives_a_better_signal_and_costs_more(rng):
    preset = open_engine("iris-nova-optimistic")
    rows = []
    for photons in (3.0, 30.0, 300.0):
        light, _, weight, x = pair(
            np.random.default_rng(2), preset.changed({"photons_per_mac": photons}), Recipe()
        )
        rows.append((snr_db(light(x), x @ weight.T), light.tally.energy_j["laser"]))
    assert rows == sorted(rows)
    assert rows[2][1] == pytest.approx(100 * rows[0][1], rel=1e-6)


def test_a_recipes_light_is_the_engines_and_may_differ_by_layer(rng):
    preset = open_engine("iris-nova-optimistic")
    recipe = Recipe(overrides={"q": {"photons_per_mac": 40.0}, "down": {"photons_per_mac": 9.0}})
    x, weight = (rng.standard_normal((n, 320)).astype(np.float32) for n in (60, 40))
    own, other = (
        prepare_layer(
            "layers.0.q", weight, calibration=x, recipe=chosen, seed=1, number=3, engine=engine
        )
        for chosen, engine in (
            (recipe.for_layer("layers.0.q"), preset),
            (Recipe(), preset.changed({"photons_per_mac": 40.0})),
        )
    )
    assert np.array_equal(own(x), other(x))
    assert own.tally.energy_j == other.tally.energy_j
    assert recipe.for_layer("layers.3.k").photons_per_mac == 0


@pytest.mark.parametrize(
    ("engine", "changes"),
    [({}, {"receiver": "per-token"}), ({}, {"receiver": "detector-max"}), ({}, {"static_dac": True}),
     ({}, {"bias_calibration": True}), ({}, {"gain_calibration": True}),
     ({"signed_encoding": "offset_both"}, {})],
)  # fmt: skip
def test_what_an_engine_cannot_do_is_refused(engine, changes, rng):
    with pytest.raises(ModelError, match=r"layers\.0\.q"):
        pair(rng, open_engine("iris-nova-optimistic").changed(engine), Recipe(**changes))


def test_an_engines_own_range_is_for_engines():
    with pytest.raises(ModelError, match="engine"):
        pair(np.random.default_rng(0), None, Recipe(receiver="engine"))


def test_a_study_on_an_engine_has_joules_and_cycles(tmp_path, rng):
    write_tiny_gguf(tmp_path / "m.gguf", rng)
    model = gguf.load(tmp_path / "m.gguf")
    lab = Laboratory(
        model, text=rng.integers(0, 50, 60), calibration=rng.integers(0, 50, 60), ctx_tok=30,
        engine=open_engine("iris-nova-optimistic"),
    )  # fmt: skip
    dark = Point(name="dark", recipe=Recipe(), engine={"photons_per_mac": 1.0})
    study = lab.study([dark, Point(name="bright", recipe=Recipe())], seeds=(0, 1))
    assert all(len(row.measurements) == 2 and row.energy_j_per_tok > 0 for row in study.rows)
    # Two layers of seven matrices, one tile each: fourteen cycles a token.
    assert study.rows[0].measurements[0].cycles_per_tok == 14
    front = study.front()
    assert [row.ratio for row in front] == sorted((row.ratio for row in front), reverse=True)


def test_the_model_path_and_a_layer_alone_give_the_same_bits(tmp_path, rng):
    write_tiny_gguf(tmp_path / "m.gguf", rng)
    model, ids = gguf.load(tmp_path / "m.gguf"), rng.integers(0, 50, 40)
    engine = open_engine("iris-nova-optimistic")
    optical = prepare(model, recipe=Recipe(), calibration=ids, seed=5, engine=engine)
    inputs = dict(model.observe(ids))["layers.0.qkv"]
    number = model.linear_names.index("layers.0.k")
    alone = prepare_layer(
        "layers.0.k", model.linear("layers.0.k"), calibration=inputs, recipe=Recipe(), seed=5,
        number=number, engine=engine,
    )  # fmt: skip
    assert np.array_equal(alone(inputs), optical.layers["layers.0.k"](inputs))
