"""The light of every layer: what is shared, what is spent, what it buys."""

import numpy as np
import pytest

from firstlight.errors import ModelError
from firstlight.runners import gguf
from firstlight.runners.engine import open_engine
from firstlight.runners.light import (
    LayerLight,
    importance_of,
    layer_lights,
    share_light,
    with_light,
)
from firstlight.runners.preparation import prepare
from firstlight.runners.recipe import Recipe
from reference.model_files import write_tiny_gguf


def layer(name, kappa, *, inputs=64, macs=4096):
    return LayerLight(name=name, kappa=kappa, inputs=inputs, lit_macs_per_tok=macs)


LAYERS = [layer("a.q", 4.0), layer("a.v", 12.0, macs=1024), layer("a.down", 20.0, inputs=256)]


def noise(light, importance=()):
    weights = dict(importance)
    return sum(
        weights.get(each.name.split(".")[-1], 1) * each.noise_frac(light[each.name])
        for each in LAYERS
    )


def test_the_light_spent_is_that_of_the_mean():
    light = share_light(LAYERS, photons_per_mac=30.0)
    spent = sum(light[each.name] * each.lit_macs_per_tok for each in LAYERS)
    assert spent == pytest.approx(30.0 * sum(each.lit_macs_per_tok for each in LAYERS))


@pytest.mark.parametrize("importance", [{}, {"down": 9.0, "q": 0.5}])
def test_no_other_share_of_the_same_light_is_less_noisy(importance, rng):
    light = share_light(LAYERS, photons_per_mac=30.0, importance=importance)
    least = noise(light, importance)
    total = sum(light[each.name] * each.lit_macs_per_tok for each in LAYERS)
    for _ in range(200):
        other = {name: photons * np.exp(rng.normal(0, 0.3)) for name, photons in light.items()}
        spent = sum(other[each.name] * each.lit_macs_per_tok for each in LAYERS)
        other = {name: photons * total / spent for name, photons in other.items()}
        assert noise(other, importance) >= least * (1 - 1e-12)


def test_a_layer_twice_as_dark_gets_twice_the_light():
    light = share_light([layer("a.q", 5.0), layer("b.q", 10.0)], photons_per_mac=30.0)
    assert light["b.q"] == pytest.approx(2 * light["a.q"])
    important = share_light(
        [layer("a.q", 5.0), layer("a.k", 5.0)], photons_per_mac=30.0, importance={"k": 4.0}
    )
    assert important["a.k"] == pytest.approx(2 * important["a.q"])


def test_importance_is_loss_for_noise_and_never_nothing():
    # The noise of q is 4²/(64·10) = 0.025, that of down 20²/(256·10) = 0.15625.
    losses = {("q",): 0.05, ("down",): 0.15625 * 40, ("v",): -0.01}
    found = importance_of(losses, LAYERS, photons_per_mac=10.0)
    assert found == pytest.approx({"q": 2.0, "down": 40.0, "v": 0.4})
    with pytest.raises(ModelError, match="less light"):
        importance_of({("q",): 0.0}, LAYERS, photons_per_mac=10.0)


def test_one_massive_token_does_not_set_the_light_of_all_others(tmp_path, rng, monkeypatch):
    write_tiny_gguf(tmp_path / "m.gguf", rng)
    model, engine = gguf.load(tmp_path / "m.gguf"), open_engine("iris-nova-optimistic")
    x = rng.standard_normal((40, 24)).astype(np.float32)
    kappas = []
    for size in (1.0, 1e4):
        x[0] *= size
        monkeypatch.setattr(
            "firstlight.runners.light.layer_inputs", lambda *_: [("layers.0.q", x.copy())]
        )
        (each,) = layer_lights(model, recipe=Recipe(), calibration=[], engine=engine)
        kappas.append(each.kappa)
    # A token's light and signal grow together.
    assert kappas[1] == pytest.approx(kappas[0], rel=1e-5)


@pytest.mark.parametrize(
    ("layers", "photons", "importance"),
    [([], 1.0, {}), (LAYERS, 0.0, {}), (LAYERS, float("nan"), {}), (LAYERS, 1.0, {"q": -1.0})],
)
def test_impossible_light_is_refused(layers, photons, importance):
    with pytest.raises(ModelError, match="positive numbers"):
        share_light(layers, photons_per_mac=photons, importance=importance)


def test_on_an_engine_shared_light_costs_the_same_and_helps_the_dark_layers(tmp_path, rng):
    write_tiny_gguf(tmp_path / "m.gguf", rng)
    model, ids = gguf.load(tmp_path / "m.gguf"), rng.integers(0, 50, 90)
    base = Recipe(rotation="none", photons_per_mac=20.0, adc_bits=12, mask_bits=12, dac_bits=12)
    errors = {"weight_error_sigma_frac": 0.0, "rail_ratio_sigma": 0.0, "source_gain_sigma": 0.0,
              "crosstalk": (0.0, 0.0), "adc_enob": 12.0}  # fmt: skip
    engine = open_engine("iris-nova-optimistic").changed(errors)
    layers = layer_lights(model, recipe=base, calibration=ids, engine=engine)
    light = share_light(layers, photons_per_mac=20.0)
    assert len(light) == 14
    results = {}
    for word, recipe in (("uniform", base), ("shared", with_light(base, light))):
        prepared = prepare(model, recipe=recipe, calibration=ids, engine=engine)
        for name, each in prepared.layers.items():
            each(rng.standard_normal((8, model.linear(name).shape[1])).astype(np.float32))
        laser = prepared.tally().energy_j["laser"]
        results[word] = laser, {signal.name: signal.snr_db for signal in prepared.signals}
    brightest = max(light, key=light.get)
    darkest = min(light, key=light.get)
    assert results["shared"][1][brightest] > results["uniform"][1][brightest]
    assert results["shared"][1][darkest] < results["uniform"][1][darkest]
    # A source's light is also divided by the mean transmission of its mask, which for columns of 24
    # weights is not the same from layer to layer.
    assert results["shared"][0] == pytest.approx(results["uniform"][0], rel=0.2)
