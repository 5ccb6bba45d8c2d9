"""How much light to use."""

import math

import pytest

from firstlight.errors import ScenarioError
from firstlight.optics import Engine, operating_points
from firstlight.optics.operating_point import point_for_laser, point_for_snr


@pytest.fixture
def engine():
    return Engine.preset("iris-nova-optimistic")


def test_laser_power_and_ratio_are_each_others_inverse(engine):
    for ratio_db in (10.0, 20.0, 30.0, 40.0):
        point = point_for_snr(engine, ratio_db)
        assert point_for_laser(engine, point.laser_w).snr_db == pytest.approx(ratio_db, abs=1e-9)


def test_the_practical_laser_of_30_db_costs_what_the_closed_form_says(engine):
    """29 fJ a MAC at 30 dB, 8.0 at 20 dB (optics of a 1,024-wide engine)."""
    assert point_for_snr(engine, 30.0).laser_j_per_mac == pytest.approx(29e-15, rel=0.02)
    assert point_for_snr(engine, 20.0).laser_j_per_mac == pytest.approx(8.0e-15, rel=0.02)


def test_light_beyond_33_db_does_not_pay_on_a_4_bit_mask(engine):
    points = operating_points(engine, (15.0, 20.0, 25.0, 30.0, 33.0, 40.0))
    gains = [point.gain_db for point in points]
    assert gains == sorted(gains, reverse=True)
    assert points[4].gain_db < 0.25 < points[2].gain_db
    assert points[0].weight_snr_db == pytest.approx(17.1, abs=0.3)
    assert all(point.total_snr_db < point.weight_snr_db for point in points)


def test_an_ideal_mask_always_gains(engine):
    point = point_for_snr(engine.replace(mask_bits=None), 40.0)
    assert math.isinf(point.weight_snr_db)
    assert point.gain_db > 3.0


@pytest.mark.parametrize("ratio_db", [math.nan, 1000.0, -math.inf])
def test_an_impossible_ratio_is_refused(engine, ratio_db):
    with pytest.raises(ScenarioError, match="snr_db"):
        point_for_snr(engine, ratio_db)


@pytest.mark.parametrize("laser_w", [0.0, -1.0, math.nan, math.inf])
def test_an_impossible_laser_is_refused(engine, laser_w):
    with pytest.raises(ScenarioError, match="laser_w"):
        point_for_laser(engine, laser_w)


def test_explain_names_tiles_range_photons_interfaces_path_and_assumptions(engine):
    text = engine.explain(inputs=4096, outputs=2048)
    for words in (
        "4 × 2 tiles of 1024 × 1024", "±4 σ a column", "electrons a MAC", "Tb/s in",
        "2,097,152 operations", "narrow", "dithered", "t_reload_s", "off (inter_symbol=True",
    ):  # fmt: skip
        assert words in text
    assert "wide" in engine.replace(weight_error_sigma_frac=0.001).explain()
    assert "bits=None" in engine.replace(mask_bits=None).explain()
