"""Verdicts are computed: they move with the scenario, and scales are kept apart."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner

from firstlight import claims
from firstlight.claims import record, write
from firstlight.claims.document import document
from firstlight.cli.root import firstlight
from firstlight.errors import CatalogError, ScenarioError
from firstlight.scenario import Scenario

DESIGN_CLAIMS = 13


@pytest.fixture(scope="module")
def report():
    return claims.check(Scenario.default())


def test_every_claim_has_source_basis_boundary_baseline_and_what_is_missing():
    assert len(claims.claims()) == DESIGN_CLAIMS
    assert [claim.order for claim in claims.claims()] == list(range(1, DESIGN_CLAIMS + 1))
    for claim in claims.claims():
        assert claim.source
        assert claim.missing
        assert claim.same
        assert claim.free


def test_slower_reload_flips_what_hangs_on_it(report):
    slow = claims.check(Scenario.default().replace(t_reload_s=1e-3))
    for identifier in ("runs-8b-and-70b", "real-time", "prefill-10x", "power-90", "tco-tenth"):
        assert report.claim(identifier).verdict.startswith("holds")
        assert slow.claim(identifier).verdict == "does not hold"
    for identifier in ("millions-of-operations", "prefill-dominates-agents", "demand-1000x"):
        assert slow.claim(identifier).verdict == report.claim(identifier).verdict


def test_boundary_is_where_the_verdict_turns(report):
    when = next(w for w in report.claim("runs-8b-and-70b").holds_when if w.field == "t_reload_s")
    assert when.holds == "below"
    for factor, met in ((0.97, True), (1.03, False)):
        scenario = Scenario.default().replace(t_reload_s=when.value * factor)
        assert claims.check(scenario, ids=["runs-8b-and-70b"]).claims[0].here.met is met


def test_distance_is_the_factor_from_today(report):
    when = next(w for w in report.claim("real-time").holds_when if w.field == "t_reload_s")
    assert when.today == 1e-5
    assert when.distance_ratio == pytest.approx(1e-5 / when.value)
    assert when.value == pytest.approx(4 * 0.766e-6, rel=0.01)


def test_loaded_assumption_set_makes_the_claim_hold(report):
    checked = report.claim("real-time")
    assert not checked.here.met
    again = claims.check(Scenario.default().replace(**checked.loads), ids=["real-time"])
    assert again.claims[0].here.met


def test_values_on_different_scales_are_never_divided(report):
    whole, linear = report.claim("prefill-10x").here, report.claim("prefill-10x").favourable
    with pytest.raises(ScenarioError, match="different bases"):
        claims.over(whole, linear)
    other = report.claim("inference-16x").here
    with pytest.raises(ScenarioError, match="different bases"):
        claims.over(other, whole)
    assert claims.over(whole, whole) == 1.0


def test_gains_obey_amdahl(report):
    gains = report.gains
    whole = 1.0 / (gains.prefill_share / gains.prefill + (1 - gains.prefill_share) / gains.decode)
    assert whole == pytest.approx(gains.whole, rel=1e-9)
    share = gains.ratio / (gains.ratio + gains.rho)
    assert share == pytest.approx(gains.prefill_share, rel=1e-9)


def test_scenario_without_light_says_so_instead_of_failing():
    default = Scenario.default()
    silicon = default.replace(designs=[d for d in default.designs if "optical" not in d.name])
    found = claims.check(silicon)
    assert found.gains is None
    assert found.claim("prefill-10x").verdict == "not testable here"
    assert found.claim("prefill-dominates-agents").here.met
    assert found.claim("demand-1000x").verdict == "does not hold"


def test_table_fits_80_columns_and_names_every_claim(report):
    text = write.table(report)
    assert max(len(line) for line in text.splitlines()) <= 80
    for claim in claims.claims():
        assert claim.id in text
        full = write.full(report.claim(claim.id))
        assert max(len(line) for line in full.splitlines()) <= 80


def test_docs_are_generated_from_the_same_data(report):
    written = Path(__file__).parents[2].joinpath("docs/claims.md").read_text(encoding="utf-8")
    assert written == write.markdown(report), "run: firstlight claims --markdown > docs/claims.md"


def test_json_is_one_document_without_infinities(report):
    text = json.dumps(document(report), allow_nan=False)
    assert [one["id"] for one in json.loads(text)["claims"]] == [c.id for c in claims.claims()]


def test_command_prints_one_claim_and_writes_the_scenario_where_it_holds(tmp_path):
    out = tmp_path / "holds.toml"
    result = CliRunner().invoke(
        firstlight, ["claims", "--claim", "real-time", "--load", str(out)], catch_exceptions=False
    )
    assert result.exit_code == 0
    assert "holds when" in result.stdout
    assert math.isclose(Scenario.load(out).assumptions["t_reload_s"], 3.0e-6, rel_tol=0.02)


def loaded(claim, path):
    """Return what `claims --load` says on standard error, and the claim on what it wrote."""
    result = CliRunner().invoke(
        firstlight, ["claims", "--claim", claim, "--load", str(path)], catch_exceptions=False
    )
    assert result.exit_code == 0
    return result.stderr, claims.check(Scenario.load(path), ids=[claim]).claims[0].here


@pytest.mark.parametrize("claim", ["prefill-10x", "real-time"])
def test_scenario_that_is_said_to_hold_does(claim, tmp_path):
    said, here = loaded(claim, tmp_path / "near.toml")
    assert here.met
    assert "the claim holds there" in said


@pytest.mark.parametrize("claim", ["tco-tenth", "roadmap-50x", "eops-10kw", "power-90"])
def test_scenario_of_the_best_reading_says_where_it_does_not_hold(claim, tmp_path):
    said, here = loaded(claim, tmp_path / "near.toml")
    assert not here.met
    assert f"does not hold ({write.amount(here.value, here.scale.unit)}, claimed" in said


def test_loaded_prompt_is_a_whole_number_on_the_holding_side(report):
    checked = report.claim("prefill-10x")
    assert isinstance(checked.loads["context_tok"], int)
    when = next(w for w in checked.holds_when if w.field == "context_tok")
    assert checked.loads["context_tok"] < when.value


def test_uneven_boundary_says_so_and_an_even_one_does_not(report):
    uneven = next(w for w in report.claim("prefill-10x").holds_when if w.field == "context_tok")
    met = {
        tok: claims.check(Scenario.default().replace(context_tok=tok), ids=["prefill-10x"])
        .claims[0]
        .here.met
        for tok in (225, 240, 330)
    }
    assert met == {225: True, 240: False, 330: True}
    assert "about 348 tok, not at every value" in write.when_words(uneven)
    even = next(w for w in report.claim("real-time").holds_when if w.field == "t_reload_s")
    assert even.is_even
    assert "about" not in write.when_words(even)


def test_every_claim_that_holds_anywhere_shows_what_to_load(report):
    for checked in report.claims:
        assert ("\nload " in write.full(checked)) is (checked.loads is not None)
    assert "nothing to change (its best reading)" in write.full(report.claim("power-90"))


def test_unknown_claim_is_refused_with_the_nearest_name():
    with pytest.raises(CatalogError, match="did you mean 'power-90'"):
        claims.check(Scenario.default(), ids=["power90"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('target = "many"', "target"),
        ("colour = 1", "colour"),
        ('boundary = "galaxy"', "boundary"),
    ],
)
def test_malformed_claim_is_refused(line, message):
    source = Path(record.__file__).parents[1] / "catalog/data/claim/prefill-10x.toml"
    text = source.read_text(encoding="utf-8")
    key = line.split(" ")[0]
    kept = [row for row in text.splitlines() if not row.startswith(f"{key} =")]
    with pytest.raises(CatalogError, match=message):
        record.read("\n".join([line, *kept]), identifier="broken")
