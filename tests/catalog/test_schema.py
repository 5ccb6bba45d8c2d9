"""Every shipped fact has a source, and a record that breaks a rule is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from firstlight import catalog
from firstlight.errors import CatalogError

if TYPE_CHECKING:
    from pathlib import Path

GOOD = {
    "value": "700",
    "unit": '"W"',
    "status": '"datasheet"',
    "source": '"data sheet of the maker"',
    "date": '"2026-12-01"',
}


def write(folder: Path, kind: str, text: str) -> catalog.Catalog:
    path = folder / kind
    path.mkdir(exist_ok=True)
    (path / "records.toml").write_text(text)
    return catalog.Catalog(folder)


def fact(**changes: str | None) -> str:
    parts = {key: value for key, value in (GOOD | changes).items() if value is not None}
    return "{ " + ", ".join(f"{key} = {value}" for key, value in parts.items()) + " }"


def record(key: str = "tdp_w", **changes: str | None) -> str:
    return f'[some-device]\nname = "Some device"\n{key} = {fact(**changes)}\n'


def test_every_shipped_record_keeps_the_rules_and_every_reference_resolves():
    catalog.shipped().check()
    counts = {kind: len(catalog.ids(kind)) for kind in catalog.kinds()}
    assert counts["device"] >= 31
    assert counts["engine"] == 7
    assert counts["model"] == 21
    assert all(counts.values())


@pytest.mark.parametrize("kind", catalog.kinds())
def test_every_shipped_fact_names_unit_source_status_and_date(kind):
    for shipped in catalog.records(kind):
        for key, each in shipped.facts.items():
            assert each.unit, (shipped.id, key)
            assert len(each.source) > 8, (shipped.id, key, each.source)
            assert isinstance(each.status, catalog.Status)
            assert each.date.startswith("20")
            assert "/work" not in each.source + each.note


def test_a_good_record_is_read(tmp_path):
    shelf = write(tmp_path, "device", record())
    assert shelf.get("some-device", kind="device").value("tdp_w") == 700


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"source": None}, "no source"),
        ({"source": '" "'}, "no source"),
        ({"unit": None}, "no unit"),
        ({"status": None}, "no status"),
        ({"date": None}, "no date"),
        ({"value": None}, "no value"),
        ({"status": '"guess"'}, "status 'guess'; allowed: measured, paper"),
        ({"date": '"soon"'}, "date 'soon'"),
        ({"value": "nan"}, "value nan"),
        ({"value": "inf"}, "value inf"),
        ({"value": '"not found"'}, "value 'not found'"),
        ({"value": "true"}, "value True"),
        ({"unit": '"kW"'}, "unit 'kW' contradicts the name; allowed: 'W'"),
        ({"range": "[900, 100]"}, "range"),
        ({"range": "[800, 900]"}, "leaves out 700"),
        ({"range": "[1]"}, "allowed: [low, high]"),
        ({"range": "[nan, 900]"}, "nan in a list"),
        ({"sourec": '"x"'}, "unknown 'sourec'; did you mean 'source'"),
        ({"src": '"nowhere"', "source": None}, "src 'nowhere' is not under [sources]"),
        ({"src": '"nowhere"'}, "both src and source"),
    ],
)
def test_a_fact_that_breaks_a_rule_is_refused(tmp_path, change, says):
    shelf = write(tmp_path, "device", record(**change))
    with pytest.raises(CatalogError, match=r"^device/records\.toml: \[some-device\]: tdp_w") as no:
        shelf.check()
    assert says in str(no.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (record().replace("some-device", "Some_Device"), "an id is lower case"),
        (record("TDP_w"), "a fact's name is lower case"),
        (record("power"), "must end in its unit"),
        (record().replace('name = "Some device"\n', ""), "no name"),
        ('[some-device]\nname = "Some device"\n', "no facts"),
        ('[some-device]\nname = "Some device"\ntdp_w = 700\n', "is no fact"),
        ("[some-device\n", "device/records.toml"),
        ("some-device = 5\n", "is no record"),
    ],
)
def test_a_record_that_breaks_a_rule_is_refused(tmp_path, text, says):
    shelf = write(tmp_path, "device", text)
    with pytest.raises(CatalogError) as no:
        shelf.check()
    assert says in str(no.value)


def test_a_server_that_names_no_device_is_refused(tmp_path):
    write(tmp_path, "device", record())
    device = fact(value='"some-devise"', unit='"id"')
    text = f'[some-server]\nname = "Some server"\ndevice = {device}\n'
    shelf = write(tmp_path, "server", text)
    with pytest.raises(
        CatalogError, match=r"'some-devise' is no device; did you mean 'some-device'"
    ):
        shelf.check()


def test_an_id_written_twice_is_refused(tmp_path):
    write(tmp_path, "device", record())
    (tmp_path / "device" / "more.toml").write_text(record())
    with pytest.raises(CatalogError, match="written twice"):
        catalog.Catalog(tmp_path).ids("device")


def test_an_assumption_stated_twice_is_refused(tmp_path):
    again = record().replace("some-device", "another")
    write(tmp_path, "assumption", record() + again)
    with pytest.raises(CatalogError, match="stated twice"):
        catalog.Catalog(tmp_path).assumptions()
