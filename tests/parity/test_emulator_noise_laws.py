"""Repeated draws of public analog emulators: the same means and variances.

Each reference is an estimate from `repeats` draws, whose variance has a relative error of √(2/n);
ours is compared to it element by element within five of the two errors together, and over all
elements within 2 %.
"""

from pathlib import Path

import numpy as np
import pytest

from firstlight.optics import Engine

DATA = Path(__file__).parents[1] / "data" / "emulator"
REPEATS = 4000


def drawn(engine, x, w):
    """Mean and variance of each output over `REPEATS` draws."""
    layer = engine.compile(w)
    rows = np.repeat(x, REPEATS, axis=0)
    y = layer(rows, seed=11).astype(np.float64).reshape(len(x), REPEATS, len(w))
    return y.mean(axis=1), y.var(axis=1, ddof=1)


def assert_same_law(ours, theirs, repeats):
    mean, var = ours
    their_mean, their_var = theirs
    error = np.sqrt(var / REPEATS + their_var / repeats)
    assert np.abs(mean - their_mean).max() < 5 * error.max()
    ratio = var / their_var
    assert np.abs(ratio - 1).max() < 5 * np.sqrt(2 / REPEATS + 2 / repeats)
    assert ratio.mean() == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(
    ("device", "kind"),
    [("NormalProportionalDevice", "proportional"), ("NormalIndependentDevice", "additive")],
)
def test_noise_of_every_pixel_is_that_of_crosssim(device, kind):
    data = np.load(DATA / "cs_stat_read_noise.npz")
    engine = Engine.ideal(
        inputs=1024, activation_bits=8, input_scale=3.0, weight_scale=0.2, pixel_noise=(kind, 0.05)
    )

    ours = drawn(engine, data["x"], data["w"])

    theirs = data[f"mean_{device}"], data[f"var_{device}"]
    assert_same_law(ours, theirs, int(data["repeats"]))


@pytest.mark.parametrize(("case", "inputs"), [("onetile", 1024), ("tiles64", 64)])
def test_output_noise_is_that_of_aihwkit(case, inputs):
    data = np.load(DATA / "ai_stat_out_noise.npz")
    engine = Engine.ideal(inputs=inputs, tile_split="even", weight_scale=1.0, readout_noise=0.06)

    ours = drawn(engine, data["x"], data["w"])

    theirs = data[f"mean_{case}"], data[f"var_{case}"]
    assert_same_law(ours, theirs, int(data["repeats"]))


def test_photon_counting_is_the_poisson_law_of_analogvnn():
    data = np.load(DATA / "av_stat_noise.npz")
    lit = np.abs(data["v"]).reshape(-1, 1).astype(np.float32)
    engine = Engine.ideal(
        inputs=16, input_scale=1.0, weight_scale=1.0, signed_encoding="nonnegative",
        electrons_full_scale=750.0,
    )  # fmt: skip

    mean, var = drawn(engine, lit, np.ones((1, 1), dtype=np.float32))

    np.testing.assert_allclose(mean[:, 0], lit[:, 0], atol=5 * np.sqrt(1 / 750 / REPEATS))
    bright = lit[:, 0] > 0.05
    ratio = var[bright, 0] / np.minimum(data["poisson_var"][bright], 1)
    assert ratio.mean() == pytest.approx(1.0, abs=0.03)
