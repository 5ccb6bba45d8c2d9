"""Laws the emulator must obey, each with its source in docs/physics.md."""

import math

import numpy as np
import pytest

from firstlight.errors import ScenarioError
from firstlight.optics import Engine, layer_ledger
from firstlight.optics.passes import slices

K = 1024


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


@pytest.fixture(scope="module")
def operands():
    x, w = normal(1, 128, K), normal(2, 1024, K)
    return x, w, x @ w.T


def snr_db(y, wanted):
    error = y.astype(np.float64) - wanted
    return 10 * math.log10(np.square(wanted, dtype=np.float64).mean() / np.square(error).mean())


def normalised_snr_db(engine, x, w):
    """Ratio in the detectors' own units: one scale a vector and a column."""
    exact = x.astype(np.float64) @ w.astype(np.float64).T
    y, ledger = engine.matmul(x, w, seed=5)
    units = np.abs(x).max(axis=1)[:, None] * np.abs(w).max(axis=1)[None, :]
    return snr_db(y / units, exact / units), ledger


def test_no_noise_and_infinite_bits_is_the_exact_product(operands):
    x, w, exact = operands
    y, _ = Engine.ideal().matmul(x, w)
    assert np.abs(y - exact).max() <= 1e-5 * np.abs(exact).max()


def test_unlimited_light_leaves_quantisation_only(operands):
    x, w, _ = operands
    base = Engine.ideal(mask_bits=4, activation_bits=8, adc_bits=8, adc_enob=None)
    quantised, _ = base.matmul(x, w)
    bright, _ = base.replace(photons_per_mac=1e9).matmul(x, w)
    assert snr_db(bright, quantised.astype(np.float64)) > 60.0


def test_signed_sum_law(operands):
    """SNR = N/κ², shot noise only (optics of two-rail products)."""
    x, w, _ = operands
    ratio_db, ledger = normalised_snr_db(Engine.ideal(photons_per_mac=405.0), x, w)
    light = ledger.photons_per_mac * K
    law_db = 10 * math.log10(light / ledger.kappa**2)
    assert ratio_db == pytest.approx(law_db, abs=0.1)
    assert ledger.snr_db == pytest.approx(ratio_db, abs=0.1)
    assert ledger.kappa == pytest.approx(2 / math.pi * math.sqrt(K), rel=0.02)
    # 0.405 photons a MAC for every unit of SNR: 30 dB at 405, independent of K.
    assert ratio_db == pytest.approx(30.0, abs=0.3)


def test_more_light_is_never_worse(operands):
    x, w, _ = operands
    ratios = [
        normalised_snr_db(Engine.ideal(photons_per_mac=p), x, w)[0] for p in (1, 10, 100, 1000)
    ]
    np.testing.assert_allclose(np.diff(ratios), 10.0, atol=0.5)


@pytest.mark.parametrize("epsilon", [0.005, 0.01, 0.02, 0.03, 0.06, 0.1])
@pytest.mark.parametrize("mask_bits", [None, 4])
def test_crosstalk_law(operands, epsilon, mask_bits):
    """−10·log10(2ε²) ± 0.3 dB, for ideal masks and on the integer path."""
    x, w, _ = operands
    bits = {"mask_bits": mask_bits, "activation_bits": 8 if mask_bits else None}
    clean, _ = Engine.ideal(**bits).matmul(x, w)
    mixed, _ = Engine.ideal(**bits, crosstalk_each_side_frac=epsilon).matmul(x, w)
    units = np.abs(x).max(axis=1)[:, None] * np.abs(w).max(axis=1)[None, :]
    law_db = -10 * math.log10(2 * epsilon**2)
    assert snr_db(mixed / units, clean.astype(np.float64) / units) == pytest.approx(law_db, abs=0.3)


@pytest.mark.parametrize("sigma", [0.001, 0.003, 0.01, 0.03])
def test_rail_mismatch_law(operands, sigma):
    """−20·log10(σκ/2) ± 0.5 dB over 1,024 columns; light summed exactly and grouped."""
    x, w, _ = operands
    ratio_db, _ = normalised_snr_db(Engine.ideal(rail_ratio_sigma=sigma), x, w)
    kappa = 2 / math.pi * math.sqrt(K)
    assert ratio_db == pytest.approx(-20 * math.log10(sigma * kappa / 2), abs=0.5)


def test_calibration_recovers_rail_mismatch(operands):
    x, w, exact = operands
    engine = Engine.ideal(rail_ratio_sigma=0.01)
    plain, _ = engine.matmul(x, w)
    calibrated, _ = engine.matmul(x, w, calibration=normal(9, 256, K))
    assert snr_db(calibrated, exact) > snr_db(plain, exact) + 15.0


def test_crosstalk_is_not_symmetric_when_its_kernel_is_not():
    x = np.eye(3, dtype=np.float32)
    w = np.eye(3, dtype=np.float32)
    y, _ = Engine.ideal(inputs=16, outputs=16, crosstalk=(0.1, 0.0)).matmul(x, w)
    np.testing.assert_allclose(y, [[1, 0.1, 0], [0, 1, 0.1], [0, 0, 1]], atol=1e-6)


@pytest.mark.parametrize("bits", [5, 6, 7, 8])
def test_adc_rule(operands, bits):
    """SQNR = 6.02·b − 7.27 dB at ±4σ with 2^b codes, for normal sums."""
    x, w, exact = operands
    y, _ = Engine.ideal(adc_bits=bits).matmul(x, w, calibration=x)
    assert snr_db(y, exact) == pytest.approx(6.02 * bits - 7.27, abs=0.4)


def test_a_lower_enob_is_worth_its_bits(operands):
    x, w, exact = operands
    y, _ = Engine.ideal(adc_bits=8, adc_enob=6.0).matmul(x, w, calibration=x)
    assert snr_db(y, exact) == pytest.approx(6.02 * 6 - 7.27, abs=0.4)


@pytest.mark.parametrize(
    ("encoding", "photons"),
    [
        ("four_quadrant_balanced", 405.0),
        ("two_pass_balanced", 405.0),
        ("two_pass_digital", 405.0),
        ("offset_input_balanced", 7430.0),
        ("offset_both", 137_000.0),
    ],
)
def test_photons_that_an_encoding_needs_for_30_db(operands, encoding, photons):
    """Firm rows of the encodings table, within 10 %."""
    x, w, _ = operands
    engine = Engine.ideal(signed_encoding=encoding, photons_per_mac=photons)
    ratio_db, ledger = normalised_snr_db(engine, x, w)
    needed = ledger.photons_per_mac * 10 ** ((30.0 - ratio_db) / 10)
    assert needed == pytest.approx(photons, rel=0.1)


@pytest.mark.parametrize(("sigma", "law_db"), [(0.005, 35), (0.01, 29), (0.02, 23), (0.03, 20)])
def test_weight_error_law(operands, sigma, law_db):
    x, w, _ = operands
    assert normalised_snr_db(Engine.ideal(weight_error_sigma_frac=sigma), x, w)[0] == (
        pytest.approx(law_db, abs=1.0)
    )


@pytest.mark.parametrize(("sigma", "law_db"), [(0.003, 50), (0.01, 40), (0.03, 31)])
def test_source_gain_law(operands, sigma, law_db):
    x, w, _ = operands
    assert normalised_snr_db(Engine.ideal(source_gain_sigma=sigma), x, w)[0] == (
        pytest.approx(law_db, abs=1.0)
    )


@pytest.mark.parametrize("mode", ["common", "independent"])
def test_laser_noise_of_one_percent_is_near_40_db_on_signed_sums(operands, mode):
    x, w, _ = operands
    # 1 % rms in half of 1 GHz.
    rin_db = 20 * math.log10(0.01) - 10 * math.log10(0.5e9)
    engine = Engine.ideal(laser_rin_db_per_hz=rin_db, rin_mode=mode)
    # Common noise has one draw a vector: 128 of them know their variance to 0.5 dB.
    assert normalised_snr_db(engine, x, w)[0] == pytest.approx(40.0, abs=1.5)


def test_dark_light_costs_noise_but_no_signal(operands):
    x, w, _ = operands
    base = Engine.ideal(photons_per_mac=405.0)
    clean, _ = normalised_snr_db(base, x, w)
    dark, _ = normalised_snr_db(base.replace(mask_contrast_ratio=20), x, w)
    # Variance × 1.5 at 20:1.
    assert clean - dark == pytest.approx(10 * math.log10(1.5), abs=0.3)
    same, _ = Engine.ideal(mask_contrast_ratio=20).matmul(x, w)
    assert snr_db(same, x @ w.T) > 90


def test_grouped_light_is_within_two_percent_on_normal_operands():
    x, w = normal(1, 64, 512), normal(2, 512, 512)
    base = Engine.ideal(inputs=512, mask_bits=4, activation_bits=8, photons_per_mac=100.0)
    clean, _ = base.replace(photons_per_mac=math.inf).matmul(x, w)
    noise = {}
    for variance in ("grouped", "exact"):
        layer = base.replace(variance=variance).compile(w)
        y, ledger = layer.run(x, seed=3)
        assert ledger.uneven_frac == 0.0
        noise[variance] = y.astype(np.float64) - clean
    # The same normals: the ratio of the two deviations is the ratio of the deviations' sizes.
    ratio = np.square(noise["grouped"] / noise["exact"])
    big = np.abs(noise["exact"]) > np.abs(noise["exact"]).mean()
    assert np.abs(ratio[big] - 1).mean() < 0.02
    assert ratio[big].mean() == pytest.approx(1.0, abs=0.005)


@pytest.mark.parametrize("mask_bits", [4, 8])
def test_outliers_do_not_spoil_grouped_light(mask_bits):
    x, w = normal(1, 32, 512), normal(2, 512, 512)
    x[:16, 100] = 200.0
    x[8:, 17:500:40] *= 30.0
    base = Engine.ideal(inputs=512, mask_bits=mask_bits, activation_bits=8, photons_per_mac=1e4)
    clean, _ = base.replace(photons_per_mac=math.inf).matmul(x, w)
    grouped, ledger = base.matmul(x, w, seed=3)
    exact, _ = base.replace(variance="exact").matmul(x, w, seed=3)
    noise = exact.astype(np.float64) - clean
    is_told = np.abs(noise) > 0.5 * np.abs(noise).mean(axis=1, keepdims=True)
    errors = np.abs(((grouped - clean) / noise) ** 2 - 1.0)
    assert np.mean(errors, axis=1, where=is_told).max() < 0.02
    assert ledger.uneven_frac < 1.0


def test_narrow_tiles_sum_all_light():
    x, w = normal(1, 8, 48), normal(2, 64, 48)
    engine = Engine.ideal(inputs=48, mask_bits=4, activation_bits=8, photons_per_mac=100.0)
    grouped, _ = engine.matmul(x, w, seed=3)
    exact, _ = engine.replace(variance="exact").matmul(x, w, seed=3)
    np.testing.assert_array_equal(grouped, exact)


def test_counted_ledger_is_the_closed_form():
    engine = Engine.preset("iris-nova-optimistic", photons_per_mac=400.0)
    x, w = normal(1, 40, 2048), normal(2, 1500, 2048)
    _, ledger = engine.matmul(x, w, seed=1)
    closed = layer_ledger(40, k=2048, n=1500, spec=engine.spec)
    assert (ledger.cycles, ledger.reloads) == (closed.cycles, closed.reloads)
    assert (ledger.dac_writes, ledger.adc_reads) == (closed.dac_writes, closed.adc_reads)
    counted, formula = ledger.energy_j_by_part, closed.energy_j_by_part
    for part in counted.keys() - {"laser", "control"}:
        assert counted[part] == pytest.approx(formula[part], rel=1e-12), part
    # The closed form assumes an average mask and normal operands; the run counts its light.
    assert counted["laser"] == pytest.approx(formula["laser"], rel=0.1)
    assert ledger.photons == pytest.approx(closed.photons, rel=0.2)
    assert ledger.energy_j == pytest.approx(sum(counted.values()), rel=1e-12)
    assert ledger.utilization_frac == pytest.approx(1500 / 2048)


def test_bit_slices_cost_cycles_and_give_the_bits(operands):
    x, w, exact = operands
    whole, one = Engine.ideal(mask_bits=8, activation_bits=8).matmul(x, w)
    sliced, two = Engine.ideal(mask_bits=4, weight_bits=8, activation_bits=8).matmul(x, w)
    np.testing.assert_allclose(sliced, whole, atol=1e-3)
    assert (two.cycles, two.reloads) == (2 * one.cycles, 2 * one.reloads)
    assert snr_db(sliced, exact) > 38.0


@pytest.mark.parametrize("mask_bits", range(1, 9))
def test_emulator_and_closed_form_cut_weights_into_as_many_slices(mask_bits):
    engine = Engine.ideal(mask_bits=mask_bits, activation_bits=8)
    w = normal(2, 4, 16)
    for bits in range(2, 17):
        facts = engine.replace(weight_bits=bits).compile(w).facts
        assert facts["masks_per_tile"] == slices(engine.spec, weight_bits=bits), bits


def test_a_budget_that_no_pixel_passes_is_no_light():
    x = normal(1, 3, 64)
    _, dark = Engine.preset("iris-nova-optimistic").matmul(x, np.zeros((8, 64), np.float32))
    _, few = Engine.preset("iris-nova-optimistic").matmul(normal(1, 3, 5), normal(2, 7, 5))
    _, free = Engine.ideal().matmul(x, normal(2, 8, 64))

    assert dark.photons_per_mac == 0.0
    assert 100 < few.photons_per_mac < 1e5
    assert math.isinf(free.photons_per_mac)


def test_an_encoding_is_known_by_either_name():
    base = Engine.ideal()
    for name in ("two_pass_digital", "nonnegative"):
        assert base.replace(encoding=name) == base.replace(signed_encoding=name)
    with pytest.raises(ScenarioError, match=r"four_quadrant_balanced, .*nonnegative_digital"):
        base.replace(encoding="foo")
