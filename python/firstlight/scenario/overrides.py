"""Overrides of assumptions: what may be overridden, and with what."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from firstlight import catalog, units
from firstlight.errors import ScenarioError, UnitError
from firstlight.scenario import spread
from firstlight.scenario.defaults import DEFAULTS
from firstlight.scenario.locate import dotted
from firstlight.scenario.rules import Document, Rule, Where, shown, table

if TYPE_CHECKING:
    from firstlight.scenario.locate import Path


def optical_records(designs: object) -> list[catalog.Record]:
    """Return engine and server of the optical pools, the ends of a band included.

    Args:
        designs: Checked designs as documents; without an optical one, the optimistic Iris Nova.
    """
    found: dict[str, None] = {}
    for design in designs if isinstance(designs, list) else []:
        for pool in design["pools"]:
            for server in (pool["server"], *pool.get("band", ())):
                found.setdefault(server)
    servers = [catalog.get(server, kind="server") for server in found]
    optical = [server for server in servers if "engine" in server]
    if not optical:
        optical = [catalog.get("iris-nova-optimistic", kind="server")]
    engines = [catalog.get(server.text("engine"), kind="engine") for server in optical]
    return [*engines, *optical]


def overridable(designs: object) -> dict[str, catalog.Fact]:
    """Return every assumption `[assumptions]` may override, with its catalog fact.

    These are the catalog's assumptions, save those that are fields of the scenario, and the fields
    of the optical engines and servers in play.
    """
    fields = set(DEFAULTS.values())
    names = {name: fact for name, fact in catalog.assumptions().items() if name not in fields}
    for record in optical_records(designs):
        for key, fact in record.facts.items():
            if fact.unit != "id":
                names.setdefault(key, fact)
    return names


def checked_overrides(raw: object, *, designs: object, where: Where) -> Document:
    """Return the [assumptions] table checked: SI numbers, words, truth values, ranges as written.

    Args:
        raw: The table as written.
        designs: Checked designs; their optical engines say which fields exist.
        where: File, for errors.

    Raises:
        ScenarioError: A name is unknown, or its value impossible.
    """
    if isinstance(raw, Mapping) and not raw:
        return {}
    known = overridable(designs)
    if isinstance(raw, Mapping):
        sections = {value: key for key, value in DEFAULTS.items()}
        for key in raw:
            if key in sections and key not in known:
                field = sections[key]
                raise where.error(("assumptions", str(key)), f"is a field; set {field} instead")
    names = table(raw, path=("assumptions",), where=where, allowed=sorted(known))
    return {
        key: _assumption(value, known[key], ("assumptions", key), where)
        for key, value in names.items()
    }


def _assumption(
    given: object, fact: catalog.Fact, path: Path, where: Where
) -> float | str | bool | dict[str, float | str]:
    """Return an override: a number in SI units, a word, a truth value, a range or distribution."""
    if isinstance(fact.value, bool):
        if isinstance(given, bool):
            return given
        raise where.error(path, f"{shown(given)}; allowed: true or false")
    if fact.unit in {"enum", "text"}:
        return str(Rule().check(given, path=path, where=where))
    if given == "ideal" and path[-1] in catalog.get("physical-limit", kind="engine"):
        return "ideal"
    if not spread.is_spread(given):
        return _amount(given, fact, path, where)
    return checked_spread(given, rule=rule_of(str(path[-1]), fact), path=path, where=where)


def checked_spread(
    given: object, *, rule: Rule, path: Path, where: Where
) -> str | dict[str, float | str]:
    """Return a range as written, or a distribution with its parameters in SI units.

    Args:
        given: As written.
        rule: What each value may be.
        path: Key path, for errors.
        where: File, for errors.

    Raises:
        ScenarioError: It is malformed, or one of its ends impossible.
    """
    if not units.is_unit(rule.unit or "1"):
        rule = Rule(unit="1", low=rule.low, high=rule.high)
    found = _spread(given, rule.unit or "1", path=path, where=where)
    for end in found.ends:
        rule.check(_rounded(end, rule), path=path, where=where)
    return given if isinstance(given, str) and ".." in given else found.document()


def _rounded(value: float, rule: Rule) -> float | int:
    return round(value) if rule.whole and math.isfinite(value) else value


def _spread(given: object, unit: str, *, path: Path, where: Where) -> spread.Spread:
    def number(raw: object, name: str) -> float:
        own = "1" if name in spread.PLAIN else unit
        return float(Rule(unit=own, low=-math.inf).check(raw, path=path, where=where))

    try:
        return spread.read(given, number=number)
    except ScenarioError as error:
        said = str(error)
        raise error if dotted(path) in said else where.error(path, said) from None


def rule_of(name: str, fact: catalog.Fact) -> Rule:
    """Return what a number that overrides an assumption may be.

    Args:
        name: The assumption.
        fact: What the catalog holds of it.
    """
    if fact.unit == "dB/Hz":
        return Rule(unit="1", low=-400.0, high=0.0)
    if name.endswith("_frac"):
        return Rule(unit=fact.unit, high=1.0)
    # nothing is free, and a factor of 0 would make the rest vanish
    return Rule(unit=fact.unit, above=name.endswith(("_ratio", "_factor")) or "usd" in fact.unit)


def _amount(given: object, fact: catalog.Fact, path: Path, where: Where) -> float:
    """Return one number of an override, in the fact's unit."""
    rule = rule_of(str(path[-1]), fact)
    if isinstance(given, str) and not units.is_unit(fact.unit):
        rule = Rule(unit="1", low=rule.low, high=rule.high)
    try:
        value = rule.check(given, path=path, where=where)
    except UnitError as error:
        raise where.error(path, str(error)) from None
    if isinstance(value, str):
        raise where.error(path, f"{shown(given)}; allowed: a number or 'low..high'")
    return value


def span(written: object, unit: str) -> tuple[float, float]:
    """Return both ends of an override: of a range or distribution, or of one number.

    Args:
        written: A checked override.
        unit: Its unit.
    """
    if not spread.is_spread(written):
        value = float(str(written))
        return value, value
    return spread_of(written, unit).ends


def spread_of(written: object, unit: str) -> spread.Spread:
    """Return a checked range or distribution.

    Args:
        written: As `checked_spread` returned it.
        unit: Its unit.
    """
    known = unit if units.is_unit(unit) else "1"
    return _spread(written, known, path=(), where=Where())
