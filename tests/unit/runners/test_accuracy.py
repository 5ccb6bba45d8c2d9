import json
import math
from dataclasses import replace

import numpy as np
import pytest

from firstlight.errors import ModelError, OutputError
from firstlight.runners import gguf
from firstlight.runners.accuracy import Laboratory
from firstlight.runners.digital import decode_layers, rounded_weight
from firstlight.runners.points import Point, converter_points, engine_points, sensitivity_points
from firstlight.runners.preparation import prepare
from firstlight.runners.recipe import Recipe
from firstlight.runners.split import format_warnings, prefill_decode, sweep_lengths
from reference.model_files import write_tiny_gguf


@pytest.fixture
def tiny(tmp_path, rng):
    write_tiny_gguf(tmp_path / "m.gguf", rng)
    return gguf.load(tmp_path / "m.gguf")


@pytest.fixture
def laboratory(tiny, tmp_path, rng):
    def make(**options):
        return Laboratory(
            tiny, text=rng.integers(0, 50, 90), calibration=rng.integers(0, 50, 60), ctx_tok=30,
            journal=tmp_path / "journal.jsonl", **options,
        )  # fmt: skip

    return make


def noisy(sigma=0.02, **changes):
    return Point(name=f"σ {sigma}", recipe=Recipe(sigma_frac=sigma, **changes))


def test_a_study_averages_seeds_and_knows_their_spread(laboratory):
    study = laboratory().study([noisy(), Point(name="quiet", recipe=Recipe())], seeds=(1, 2, 3))
    loud, quiet = study.rows
    ratios = [m.ratio for m in loud.measurements]
    assert loud.ratio == pytest.approx(np.mean(ratios))
    assert loud.seed_sd == pytest.approx(np.std(ratios, ddof=1))
    assert loud.ratio_high > loud.ratio
    # Without noise another seed changes nothing and is not run.
    assert len(quiet.measurements) == 1
    assert math.isnan(quiet.seed_sd)
    assert quiet.measurements[0].snr_db > loud.measurements[0].snr_db


def test_an_interrupted_study_goes_on_where_it_was(laboratory, tmp_path, monkeypatch):
    first = laboratory()
    want = first.study([noisy(), noisy(0.01)])
    lines = (tmp_path / "journal.jsonl").read_text().splitlines()
    assert len(lines) == 2
    # The last line was cut by the interruption.
    (tmp_path / "journal.jsonl").write_text(lines[0] + "\n" + lines[1][:40])
    second = Laboratory(
        first.model, text=first.windows.reshape(-1), calibration=first.calibration, ctx_tok=30,
        journal=tmp_path / "journal.jsonl",
    )  # fmt: skip
    prepared = []
    real = Laboratory.prepared
    monkeypatch.setattr(
        Laboratory, "prepared",
        lambda self, point, *, seed: prepared.append(point.name) or real(self, point, seed=seed),
    )  # fmt: skip
    again = second.study([noisy(), noisy(0.01)])
    assert prepared == ["σ 0.01"]
    assert [row.ratio for row in again.rows] == [row.ratio for row in want.rows]


def test_another_seed_text_or_recipe_is_measured_anew(laboratory):
    lab = laboratory()
    keys = {
        lab._key(noisy(), 0), lab._key(noisy(), 1), lab._key(noisy(0.01), 0),
        lab._key(replace(noisy(), engine={"photons_per_mac": 3}), 0),
    }  # fmt: skip
    lab.windows = lab.windows + 1
    keys.add(lab._key(noisy(), 0))
    assert len(keys) == 5


def test_the_cheapest_sure_setting_and_the_document(laboratory):
    study = laboratory().study(
        [Point(name="fine", recipe=Recipe(tile_rows=6)), Point(name="coarse", recipe=Recipe()),
         Point(name="hopeless", recipe=Recipe(receiver="worst", adc_bits=3))]
    )  # fmt: skip
    assert study.within(1.5).point.name == "coarse"
    assert study.within(0.5) is None
    document = json.loads(json.dumps(study.document(), allow_nan=False))
    assert document["rows"][0]["energy_j_per_tok"] is None
    assert document["reference_perplexity"] == pytest.approx(study.reference_perplexity)
    assert [row["name"] for row in document["rows"]] == ["fine", "coarse", "hopeless"]


def test_sensitivity_covers_every_layer_once(laboratory, tiny):
    points = sensitivity_points(noisy(), tiny)
    optical = [{n for n in tiny.linear_names if p.recipe.for_layer(n)} for p in points]
    assert set.union(*optical) == set(tiny.linear_names)
    assert sum(map(len, optical)) == len(tiny.linear_names)


def test_points_have_names_of_their_own():
    for points in (converter_points(), engine_points()):
        names = [point.name for point in points]
        assert len(set(names)) == len(names)


def test_too_little_text_is_refused(tiny):
    with pytest.raises(ModelError, match="the text has 20 tokens, a window 30"):
        Laboratory(tiny, text=np.arange(20), calibration=np.arange(40), ctx_tok=30)
    with pytest.raises(ModelError, match="3 calibration tokens"):
        Laboratory(tiny, text=np.arange(40), calibration=np.arange(3), ctx_tok=30)


def test_a_journal_that_cannot_be_written_is_an_output_error(tiny, tmp_path):
    lab = Laboratory(
        tiny, text=np.arange(40), calibration=np.arange(40), ctx_tok=30,
        journal=tmp_path / "none" / "j.jsonl",
    )  # fmt: skip
    with pytest.raises(OutputError, match="none"):
        lab.measure(noisy(), seed=0)


def test_an_exact_prefill_changes_nothing_and_a_noisy_one_does(tiny, rng):
    ids = rng.integers(0, 50, 100)
    exact = prefill_decode(tiny, ids, prefill={}, prompt_tok=20, continuation_tok=5)
    assert (exact.prompts, exact.nll_difference, exact.top1_agreement_frac) == (4, 0.0, 1.0)
    assert exact.kl < 1e-6
    optical = prepare(tiny, recipe=Recipe(sigma_frac=0.05), calibration=ids).layers
    points = sweep_lengths(
        tiny, ids, prefill=optical, prompt_lengths_tok=(5, 20), continuation_tok=5
    )
    assert [p.prompt_tok for p in points] == [5, 20]
    assert all(p.kl > 10 * exact.kl + 1e-6 for p in points)
    with pytest.raises(ModelError, match="take 150"):
        prefill_decode(tiny, ids, prefill={}, prompt_tok=145, continuation_tok=5)
    with pytest.raises(ModelError, match="at least 1"):
        prefill_decode(tiny, ids, prefill={}, prompt_tok=0)


def test_the_first_prediction_is_the_optical_engines_own(tiny, rng):
    ids = rng.integers(0, 50, 21)
    called = []

    def wrong(x, *, first_tok=0):
        called.append(first_tok)
        return np.zeros((len(x), 24), np.float32)

    # The last block's output layer does not reach the cache: only the first prediction suffers.
    layers = {"layers.1.down": wrong}
    point = prefill_decode(tiny, ids, prefill=layers, prompt_tok=16, continuation_tok=5)
    alone = prefill_decode(tiny, ids[:17], prefill=layers, prompt_tok=16, continuation_tok=1)
    assert called == [0, 0]
    assert point.kl == pytest.approx(alone.kl / 5, rel=1e-3)


def test_decode_formats_and_cache_formats_cost_and_are_warned_about(tiny, rng):
    ids = rng.integers(0, 50, 80)
    losses = [
        prefill_decode(
            tiny, ids, prefill={}, prompt_tok=16, continuation_tok=4,
            decode=decode_layers(tiny, number_format=weights), kv_format=kv,
        ).kl
        for weights, kv in (("f32", "f32"), ("f32", "fp8_e4m3"), ("int8", "f32"), ("int4-g32", "f32"))
    ]  # fmt: skip
    assert losses[0] < 1e-6
    assert losses[1] > 1e-6
    assert losses[0] < losses[2] < losses[3]
    notes = format_warnings(prefill_mask_bits=4, decode_weights="fp8_e4m3", kv_format="fp8_e4m3")
    assert len(notes) == 2
    assert "two models" in notes[0]
    assert format_warnings(prefill_mask_bits=8, decode_weights="int8", kv_format="f32") == []


@pytest.mark.parametrize(("kind", "error"), [("bf16", 2**-8), ("f16", 2**-11), ("fp8_e4m3", 2**-4)])
def test_rounded_weights_are_within_half_a_step(kind, error, rng):
    weight = rng.standard_normal((20, 64)).astype(np.float32)
    got = rounded_weight(weight, kind)
    # A subnormal number's step is absolute: 2^-10 of the largest for E4M3 with its scale.
    assert (np.abs(got - weight) <= error * np.abs(weight) + 2**-17 * 4).all()
    assert not np.array_equal(got, weight)


def test_an_unknown_decode_format_is_refused(tiny):
    with pytest.raises(ModelError, match="int4-g32"):
        decode_layers(tiny, number_format="int3")
