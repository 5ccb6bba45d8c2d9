"""Energy of an optical cycle, part by part, against the published budget and physical limits."""

import dataclasses

import pytest

from firstlight import models
from firstlight.optics import (
    EngineSpec,
    Ledger,
    cycle_ledger,
    engine_op_per_j,
    layer_ledger,
    linear_stack,
    pass_ledger,
    reload_j_per_tile,
    snr_curve,
)
from firstlight.optics.energy import electrons_per_output, light_over_signal_sq

LLAMA_8B = linear_stack(models.load("llama-3.1-8b"))
LLAMA_70B = linear_stack(models.load("llama-3.1-70b"))


# Published nanojoules of one cycle: laser, accumulator, links, DAC + drivers, ADC + TIA, SRAM,
# control, total; microjoules of a tile load; then the total for Llama-3.1-70B.
BUDGET = {
    "iris-nova-optimistic": ((30.28, 12.96, 9.22, 5.22, 3.07, 2.31, 15.77), 78.83, 17.4, 79.7),
    "iris-nova-2048": ((92.65, 23.01, 18.43, 10.44, 6.14, 4.63, 38.83), 194.14, 69.6, 197.8),
    "tetra-2029-1024": ((1.26, 4.42, 1.84, 0.75, 0.92, 1.13, 1.55), 11.86, 13.6, 12.15),
    "tetra-2029-target": ((4.73, 7.85, 3.69, 1.50, 1.84, 2.25, 3.28), 25.13, 54.5, 26.3),
}
PARTS = ("laser", "accumulator", "links", "dac_driver", "adc_tia", "sram", "control")


@pytest.mark.parametrize("preset", BUDGET)
def test_published_energy_of_a_cycle(preset):
    rows, total_nj, reload_uj, total_70b_nj = BUDGET[preset]
    spec = EngineSpec.preset(preset)
    cycle = cycle_ledger(LLAMA_8B, spec=spec)
    # Every row is printed with two decimals: one percent, or that digit where it is coarser.
    for part, row_nj in zip(PARTS, rows, strict=True):
        assert cycle.energy_j_by_part[part] * 1e9 == pytest.approx(row_nj, rel=0.005, abs=0.006)
    assert cycle.energy_j * 1e9 == pytest.approx(total_nj, rel=0.001)
    assert reload_j_per_tile(spec) * 1e6 == pytest.approx(reload_uj, rel=0.005)
    seventy = cycle_ledger(LLAMA_70B, spec=spec)
    assert seventy.energy_j * 1e9 == pytest.approx(total_70b_nj, rel=0.002)


# Published tera-operations per joule at 20, 25, 30, 35, 40 dB, 8,192-token chunks.
PRECISION = {
    "iris-nova-optimistic": (39, 33, 26, 17, 9.5),
    "iris-nova-2048": (72, 58, 41, 25, 12),
    "tetra-2029-1024": (166, 155, 129, 84, 40),
    "tetra-2029-target": (296, 263, 196, 108, 45),
}


@pytest.mark.parametrize("preset", PRECISION)
def test_published_price_of_precision(preset):
    spec = EngineSpec.preset(preset)
    curve = snr_curve(LLAMA_8B, spec=spec, chunk_tok=8192, snr_db=(20, 25, 30, 35, 40))
    for (_, op_per_j), tera in zip(curve, PRECISION[preset], strict=True):
        assert op_per_j / 1e12 == pytest.approx(tera, rel=0.02)


@pytest.mark.parametrize("preset", PRECISION)
def test_decibels_above_33_cost_several_times_what_those_below_cost(preset):
    spec = EngineSpec.preset(preset)
    joules = [
        1 / engine_op_per_j(LLAMA_8B, spec=spec, chunk_tok=8192, snr_db=ratio)
        for ratio in (20, 33, 40)
    ]
    below, above = (joules[1] - joules[0]) / 13, (joules[2] - joules[1]) / 7
    assert above > 3 * below
    assert joules[2] > 2 * joules[1]


def test_parts_of_a_ledger_add_to_its_energy():
    ledger = layer_ledger(
        100, k=3000, n=5000, spec=EngineSpec.preset("iris-nova-optimistic"), chunk_tok=30
    )
    assert sum(ledger.energy_j_by_part.values()) == ledger.energy_j
    assert set(ledger.energy_j_by_part) == {*PARTS, "reload"}
    assert all(value > 0 for value in dataclasses.astuple(ledger))


def test_counts_of_a_layer_that_fills_no_tile():
    spec = EngineSpec.preset("iris-nova-optimistic")
    ledger = layer_ledger(10, k=1500, n=2500, spec=spec, chunk_tok=4)
    assert ledger.cycles == 10 * 2 * 3
    assert ledger.reloads == 3 * 2 * 3
    assert ledger.dac_writes == 10 * 3 * 1500
    assert ledger.adc_reads == 10 * 2 * 2500


def test_rows_and_columns_are_not_the_same():
    spec = EngineSpec.preset("iris-nova-optimistic")
    wide = layer_ledger(1, k=1024, n=4096, spec=spec)
    tall = layer_ledger(1, k=4096, n=1024, spec=spec)
    assert wide.cycles == tall.cycles
    assert wide.dac_writes == tall.dac_writes
    assert wide.accumulator_j < tall.accumulator_j  # one sum each, never read back


def test_a_pass_is_the_sum_of_its_layers():
    spec = EngineSpec.preset("iris-nova-optimistic")
    total = Ledger()
    for layer in LLAMA_8B.layers:
        total = total + layer_ledger(5, k=layer.k, n=layer.n, spec=spec).times(layer.count)
    whole = pass_ledger(LLAMA_8B, spec=spec, tokens=5)
    assert whole.energy_j == pytest.approx(total.energy_j)
    assert whole.cycles == 5 * 6656
    assert whole.reloads == pytest.approx(6656)


def test_light_for_random_signs_is_two_over_pi_squared_times_the_width():
    spec = EngineSpec.preset("iris-nova-optimistic")
    assert light_over_signal_sq(spec) / spec.inputs == pytest.approx(0.405, rel=0.001)


def test_light_of_offset_encodings_follows_the_largest_operand():
    # Published for 30 dB and 1,024 inputs from a Monte Carlo of 192 × 128 sums: 7,320 to 7,670 and
    # 134,500 to 142,000. Its peaks scatter, so the middle is met within twice its half-width.
    base = EngineSpec.preset("iris-nova-optimistic")
    offset_input = base.replace(signed_encoding="offset_input_balanced")
    offset_both = base.replace(signed_encoding="offset_both")
    assert 1000 * light_over_signal_sq(offset_input) / 1024 == pytest.approx(7_495, rel=0.045)
    assert 1000 * light_over_signal_sq(offset_both) / 1024 == pytest.approx(138_250, rel=0.054)


def test_a_noiseless_receiver_needs_shot_limited_light():
    spec = EngineSpec.preset("physical-limit")
    assert electrons_per_output(spec) == pytest.approx(405.3 * 1024, rel=0.001)


def test_more_receiver_noise_needs_more_light():
    quiet, loud = (
        EngineSpec.preset("iris-nova-optimistic", receiver_noise_electrons=value)
        for value in (100, 2000)
    )
    assert electrons_per_output(quiet) < electrons_per_output(loud)


def test_photons_per_mac_replaces_the_ratio():
    spec = EngineSpec.preset("iris-nova-optimistic", photons_per_mac=200)
    assert electrons_per_output(spec) == 200 * 1024


def test_two_passes_double_every_part_but_the_first_write():
    one = EngineSpec.preset("iris-nova-optimistic")
    two = one.replace(signed_encoding="two_pass_balanced")
    single, double = (layer_ledger(7, k=4096, n=4096, spec=spec) for spec in (one, two))
    for part in ("laser", "links", "dac_driver", "adc_tia", "sram"):
        assert double.energy_j_by_part[part] == pytest.approx(2 * single.energy_j_by_part[part])
    assert double.reload_j == single.reload_j
    assert double.accumulator_j / single.accumulator_j == pytest.approx(15 / 7)


@pytest.mark.parametrize("kind", ["two_pass", "nonnegative"])
def test_digital_subtraction_reads_both_detectors(kind):
    names = {"two_pass": "two_pass_balanced", "nonnegative": "nonnegative"}
    balanced, digital = (
        layer_ledger(
            1,
            k=1024,
            n=1024,
            spec=EngineSpec.preset("iris-nova-optimistic", signed_encoding=name),
        )
        for name in (names[kind], f"{kind}_digital")
    )
    assert digital.adc_reads == 2 * balanced.adc_reads
    assert digital.cycles == balanced.cycles


def test_wider_weights_fetch_and_stream_every_slice():
    spec = EngineSpec.preset("iris-nova-optimistic")
    four, eight = (layer_ledger(3, k=1024, n=1024, spec=spec, weight_bits=b) for b in (4, 8))
    assert eight.cycles == 2 * four.cycles
    assert eight.reload_j == 2 * four.reload_j


def test_no_tokens_cost_nothing():
    ledger = layer_ledger(0, k=100, n=100, spec=EngineSpec.preset("iris-nova-optimistic"))
    assert ledger == Ledger()
