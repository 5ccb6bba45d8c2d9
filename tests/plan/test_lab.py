"""The lab sheet: same conditions for both designs, a place for measurements, and what they say."""

from __future__ import annotations

import math

import pytest
from click.testing import CliRunner

from firstlight.cli.root import firstlight
from firstlight.errors import InfeasibleError, ScenarioError
from firstlight.evaluate import question
from firstlight.plan import lab
from firstlight.plan.sized import sized

NAMES = ("optical+gpu", "gpu-disaggregated")


@pytest.fixture(scope="module")
def sheet(small):
    return lab.sheet(small, designs=NAMES, rate_request_per_s=20.0)


def filled(sheet, **ratios):
    """Return the sheet with measurements that are the predictions times a factor."""
    measured = {
        name: {
            q: value * ratios.get(q, (1.0, 1.0))[i] for q, value in sheet.predicted[name].items()
        }
        for i, name in enumerate(sheet.designs)
    }
    return lab.Sheet(
        designs=sheet.designs, protocol=sheet.protocol, predicted=sheet.predicted, measured=measured
    )


def test_sheet_has_five_quantities_for_both_designs(sheet):
    assert [q.name for q in lab.QUANTITIES] == [
        "energy_j_per_request", "ttft_p90_s", "output_tok_per_s", "accuracy_drop_frac",
        "cost_usd_per_request",
    ]  # fmt: skip
    for name in NAMES:
        values = sheet.predicted[name]
        assert math.isnan(values["accuracy_drop_frac"])
        assert all(v > 0 for q, v in values.items() if q != "accuracy_drop_frac")
        assert all(math.isnan(v) for v in sheet.measured[name].values())


def test_protocol_says_what_is_the_same(sheet, small):
    for key in ("model", "load_request_per_s", "slo", "batching", "trace", "power_boundary", "pue"):
        assert key in sheet.protocol
    assert sheet.protocol["load_request_per_s"] == 20.0
    assert sheet.protocol["slo"]["ttft_s"] == small.slo.ttft_s


def test_each_design_has_the_fewest_servers_that_carry_the_load(small):
    asked = question.resolve(small.replace(power_w=6e5))
    low, _ = sized(asked, rate_request_per_s=5.0)
    high, _ = sized(asked, rate_request_per_s=1000.0)
    for name, one in high.items():
        cell = one.record.cell
        per_cell = one.full_record.request_per_s / cell.count
        assert cell.count > low[name].record.cell.count == 1
        # One cell fewer would not carry it.
        assert (cell.count - 1) * per_cell < 1.03 * 1000.0
        assert one.record.feasible
        assert one.full_record.request_per_s >= 1000.0
        assert one.full_record.servers == one.record.servers


def test_sheet_agrees_with_the_equal_load_of_compare(answer, small):
    equal = answer(power_w=3e5).at_equal_load
    made = lab.sheet(
        small.replace(power_w=3e5), designs=NAMES, rate_request_per_s=equal.request_per_s / 4
    )
    for name in NAMES:
        part = sum(made.protocol["servers"][name].values()) / equal.designs[name]["servers"]
        assert part == pytest.approx(0.25, abs=0.05)
        for quantity in ("energy_j_per_request", "cost_usd_per_request"):
            assert made.predicted[name][quantity] == pytest.approx(
                equal.designs[name][quantity], rel=0.1
            )


@pytest.mark.parametrize(
    ("rate", "error", "message"),
    [
        (1e5, InfeasibleError, "100,000 are asked for"),
        (0.0, ScenarioError, "above 0"),
        (math.nan, ScenarioError, "above 0"),
    ],
)
def test_impossible_loads_are_refused(small, rate, error, message):
    with pytest.raises(error, match=message):
        lab.sheet(small, designs=NAMES, rate_request_per_s=rate)


def test_sheet_is_read_back_as_written(sheet):
    again = lab.read(sheet.to_toml())
    assert again.designs == sheet.designs
    for name in NAMES:
        for quantity, value in sheet.predicted[name].items():
            other = again.predicted[name][quantity]
            assert other == value or (math.isnan(other) and math.isnan(value))


def test_measurement_that_agrees_confirms_and_one_that_does_not_refutes(sheet):
    agree = {one.quantity: one for one in lab.findings(filled(sheet))}
    assert agree["energy_j_per_request"].is_refuted is False
    assert agree["energy_j_per_request"].outside == ()
    off = filled(sheet, energy_j_per_request=(3.0, 1.0))
    found = {one.quantity: one for one in lab.findings(off)}["energy_j_per_request"]
    assert found.is_refuted
    assert found.outside == ("optical+gpu",)


def test_without_measurement_nothing_is_refuted(sheet):
    for one in lab.findings(sheet):
        assert one.is_refuted is None
        assert one.outside == ()


def test_equal_designs_are_no_difference_and_ones_ten_times_apart_are(sheet):
    equal = lab.Sheet(
        designs=sheet.designs,
        protocol={},
        predicted=dict.fromkeys(NAMES, sheet.predicted[NAMES[0]]),
        measured=sheet.measured,
    )
    assert not any(one.is_difference for one in lab.findings(equal))
    apart = {q: v * 10 for q, v in sheet.predicted[NAMES[0]].items()}
    ten = lab.Sheet(
        designs=sheet.designs, protocol={}, measured=sheet.measured,
        predicted={NAMES[0]: apart, NAMES[1]: sheet.predicted[NAMES[0]]},
    )  # fmt: skip
    differs = {one.quantity: one.is_difference for one in lab.findings(ten)}
    assert differs.pop("accuracy_drop_frac") is False
    assert all(differs.values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("schema = 1", "schema = 9"), "allowed: 1"),
        (("energy_j_per_request =", "energy_per_request ="), "did you mean 'energy_j_per_request'"),
        (("ttft_p90_s = nan", 'ttft_p90_s = "fast"'), "a number"),
        (("ttft_p90_s = nan", "ttft_p90_s = -1.0"), "a number"),
        (("designs = [", "designs = [ 'x', "), "two names"),
        (("schema", "= schema"), "sheet:"),
    ],
)
def test_damaged_sheets_are_refused(sheet, change, message):
    with pytest.raises(ScenarioError, match=message):
        lab.read(sheet.to_toml().replace(*change, 1))


def test_two_designs_are_needed(small):
    with pytest.raises(ScenarioError, match="two different ones"):
        lab.sheet(small, designs=("gpu-colocated", "gpu-colocated"))
    with pytest.raises(ScenarioError, match="unknown design"):
        lab.sheet(small, designs=("gpu-colocated", "gpu"))


def test_design_that_fails_says_why(small):
    with pytest.raises(InfeasibleError, match="TTFT"):
        lab.sheet(small.replace(t_reload_s=5e-3), designs=NAMES)


def test_command_judges_a_filled_sheet(sheet, tmp_path):
    path = tmp_path / "sheet.toml"
    path.write_text(filled(sheet, ttft_p90_s=(9.0, 1.0)).to_toml())
    result = CliRunner().invoke(firstlight, ["lab", "--filled", str(path)], catch_exceptions=False)
    assert result.exit_code == 0
    assert "refuted" in result.stdout
    assert "confirmed" in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


def test_empty_cells_are_not_judged(sheet, tmp_path):
    path = tmp_path / "sheet.toml"
    path.write_text(sheet.to_toml())
    result = CliRunner().invoke(firstlight, ["lab", "--filled", str(path)], catch_exceptions=False)
    rows = result.stdout.splitlines()
    assert "within error" not in result.stdout
    for quantity in lab.QUANTITIES:
        row = next(row for row in rows if row.startswith(quantity.name))
        expected = "not predicted" if math.isnan(quantity.error_frac) else "not measured"
        assert row.endswith(expected)
        assert len(row) <= 80
