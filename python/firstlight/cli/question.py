"""From a command's arguments to a scenario."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from firstlight.errors import ScenarioError

if TYPE_CHECKING:
    from firstlight.scenario import Scenario

SETTINGS_HELP = (
    "Change a field for this run, as often as needed: power_w=2MW, model=llama-3.1-8b, "
    "assumptions.t_reload_s=20us."
)


def asked(path: str | None, *, settings: tuple[str, ...], seed: int | None) -> Scenario:
    """Return the scenario of a command.

    Args:
        path: A scenario file; None for the shipped one.
        settings: Changes as "key=value".
        seed: Seed of everything random; None keeps the scenario's.

    Raises:
        ScenarioError: The file or a change is impossible.
    """
    from firstlight.scenario import Scenario

    scenario = Scenario.default() if path is None else Scenario.load(path)
    if path is not None and scenario.assumptions:
        _check_engines(scenario, Path(path))
    changes = dict(_split(setting) for setting in settings)
    if changes and "name" not in changes:
        # What a person gave is no longer what the file's name says.
        changes["name"] = f"{scenario.name}, with {', '.join(s.strip() for s in settings)}"
    if seed is not None:
        changes["seed"] = seed
    return scenario.replace(**changes) if changes else scenario


def _check_engines(scenario: Scenario, path: Path) -> None:
    """Check what a file assumes of optical engines, while file and line are known.

    Raises:
        ScenarioError: A value is outside what an engine may have; names file, line and key.
    """
    from firstlight.optics import EngineSpec
    from firstlight.scenario import overrides
    from firstlight.scenario.file import text
    from firstlight.scenario.rules import Where

    where = Where(file=str(path), text=text(path))
    for record in overrides.optical_records(scenario.document()["design"]):
        for name in scenario.assumptions if record.kind == "engine" else ():
            if name not in record:
                continue
            for value in overrides.span(scenario.assumptions[name], record.facts[name].unit):
                try:
                    EngineSpec.preset(record.id, **{name: value})
                except ScenarioError as error:
                    said = str(error).removeprefix(f"{name}: ")
                    raise where.error(("assumptions", name), said) from None


def _split(setting: str) -> tuple[str, object]:
    key, equals, value = setting.partition("=")
    key = key.strip()
    if not equals or not key:
        raise ScenarioError(f"--set {setting!r}; allowed: key=value, such as power_w=2MW")
    return key, _value(value.strip())


def _value(text: str) -> object:
    """Return a value as TOML reads it; what is no TOML is a word or a quantity with its unit."""
    try:
        return tomllib.loads(f"value = {text}")["value"] if "\n" not in text else text
    except tomllib.TOMLDecodeError:
        return text


def load(_: click.Context, parameter: click.Parameter, given: str | None) -> float | None:
    """Return the load an option gives [request/s].

    Raises:
        click.BadParameter: It is not a finite number above zero.
    """
    if given is None:
        return None
    try:
        rate = float(given)
    except ValueError:
        rate = math.nan
    if not (math.isfinite(rate) and rate > 0):
        raise click.BadParameter(f"{given!r}; allowed: requests a second, above 0", param=parameter)
    return rate
