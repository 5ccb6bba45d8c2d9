"""The documents keep up with the code: commands, options, fields, examples, links, the output shown."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import click
import msgspec
import pytest

from firstlight.cli.root import COMMANDS, firstlight
from firstlight.evaluate import answer as records
from firstlight.scenario import Scenario

ROOT = Path(__file__).parents[2]
PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "benches").glob("*.md"),
]
README = (ROOT / "README.md").read_text(encoding="utf-8")
METRICS = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")


def commands(group: click.Command, name: str):
    yield name, group
    if isinstance(group, click.Group):
        context = click.Context(group)
        for sub in group.list_commands(context):
            yield from commands(group.get_command(context, sub), f"{name} {sub}")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_documented(name):
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    command = firstlight.get_command(click.Context(firstlight), name)
    assert f"firstlight {name}" in text
    for _, each in commands(command, name):
        for parameter in each.params:
            if isinstance(parameter, click.Option):
                assert any(f"`{option}" in text for option in parameter.opts), parameter.opts


@pytest.mark.parametrize(
    "record",
    [kind for kind in vars(records).values()
     if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__struct_fields__],
    ids=lambda kind: kind.__name__,
)  # fmt: skip
def test_every_field_of_the_answer_is_defined(record):
    for field in record.__struct_fields__:
        assert f"`{field}`" in METRICS, field


def test_every_key_of_the_traffic_is_defined(answer):
    for key in answer().workload:
        assert f"`{key}`" in METRICS, key


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_scenario_of_the_readme_is_valid(tmp_path):
    (text,) = blocks("toml")
    path = tmp_path / "rack.toml"
    path.write_text(text, encoding="utf-8")
    scenario = Scenario.load(path)
    assert scenario.facility.power_w == 250e3
    assert scenario.assumption("t_reload_s").value == pytest.approx(20e-6)


def test_python_of_the_readme_runs(monkeypatch, answer, capsys):
    found = answer()
    monkeypatch.setattr("firstlight.evaluate.compare", lambda _: found)
    (code,) = blocks("python")
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102  # our own page
    assert found.answer in capsys.readouterr().out


def test_commands_of_the_readme_exist():
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    called = [re.findall(r"firstlight (\w+)", line) for line in lines]
    assert {name for names in called for name in names} <= set(COMMANDS)
    assert {"compare", "trace", "catalog", "doctor"} <= {n for names in called for n in names}


def tool():
    spec = importlib.util.spec_from_file_location("readme", ROOT / "tools" / "readme.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_readme_shows_an_answer_of_80_columns():
    shown = tool().shown(README)
    assert shown.startswith("Optical prefill")
    assert "Letters after numbers" in shown
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.long
def test_readme_shows_the_real_answer():
    readme = tool()
    assert readme.shown(README) == readme.real()
