"""`firstlight catalog`: what is printed, in 80 columns, and what is refused."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from firstlight import catalog
from firstlight.cli.root import firstlight
from firstlight.errors import CatalogError


def run(*arguments: str) -> str:
    result = CliRunner().invoke(firstlight, ["catalog", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_list_names_every_record_and_what_is_missing():
    text = run("list")
    for kind in catalog.kinds():
        for identifier in catalog.ids(kind):
            assert f"  {identifier}" in text
    assert "incomplete; missing: tdp_w" in text


@pytest.mark.parametrize(
    "identifier",
    [
        "h100-sxm",
        "h100-sxm-8x",
        "deepseek-v3",
        "iris-nova-optimistic",
        "budget",
        "rubin-r200",
        "usa",
        "lab-aoc-48",
    ],
)
def test_everything_printed_fits_80_columns(identifier):
    assert max(len(line) for line in run("show", identifier).splitlines()) <= 80
    assert max(len(line) for line in run("list").splitlines()) <= 80


def test_show_prints_value_status_source_and_date():
    text = run("show", "h100-sxm", "--kind", "device")
    line = next(line for line in text.splitlines() if "tdp_w" in line)
    assert line.split() == ["tdp_w", "700", "W", "datasheet", "[1]", "2026-12-01"]
    assert "ai-dynamo/aiconfigurator" in text


def test_show_prints_every_kind_that_has_the_id():
    text = run("show", "iris-nova-optimistic")
    assert "iris-nova-optimistic  (server)" in text
    assert "iris-nova-optimistic  (engine)" in text


def test_show_as_json_has_every_fact():
    document = json.loads(run("show", "b200", "--json"))
    (record,) = document["records"]
    assert record["facts"]["tdp_w"] == {
        "value": 1000, "unit": "W", "status": "datasheet", "date": "2026-12-01", "range": None,
        "note": "", "source": catalog.get("b200", kind="device").fact("tdp_w").source,
    }  # fmt: skip


def test_list_as_json_covers_one_kind():
    document = json.loads(run("list", "--kind", "engine", "--json"))
    assert {record["id"] for record in document["records"]} == set(catalog.ids("engine"))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["show", "h100"], "did you mean 'h100-sxm'"),
        (["show", "h100-sxm", "--kind", "devise"], "did you mean 'device'"),
        (["show", "zzzz"], "catalog list"),
        (["list", "--kind", "modle"], "did you mean 'model'"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(arguments, says):
    with pytest.raises(CatalogError, match=r"^[^\n]+$") as refused:
        CliRunner().invoke(firstlight, ["catalog", *arguments], catch_exceptions=False)
    assert says in str(refused.value)
