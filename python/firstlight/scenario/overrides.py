"""Overrides of assumptions: what may be overridden, and with what."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from firstlight import catalog, units
from firstlight.errors import UnitError
from firstlight.scenario.defaults import DEFAULTS
from firstlight.scenario.rules import Document, Rule, Where, shown, table

if TYPE_CHECKING:
    from firstlight.scenario.locate import Path

_RANGE = re.compile(r"\s*(.+?)\s*\.\.\s*(.+?)\s*")


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


def _assumption(given: object, fact: catalog.Fact, path: Path, where: Where) -> float | str | bool:
    """Return an override: a number in SI units, a word, a truth value, or a range as written."""
    if isinstance(fact.value, bool):
        if isinstance(given, bool):
            return given
        raise where.error(path, f"{shown(given)}; allowed: true or false")
    if fact.unit in {"enum", "text"}:
        return str(Rule().check(given, path=path, where=where))
    if given == "ideal" and path[-1] in catalog.get("physical-limit", kind="engine"):
        return "ideal"
    match = _RANGE.fullmatch(given) if isinstance(given, str) else None
    if match is None:
        return _amount(given, fact, path, where)
    low, high = (_amount(end, fact, path, where) for end in match.groups())
    if low > high:
        raise where.error(path, f"{shown(given)} is inverted; allowed: 'low..high'")
    return str(given)


def _amount(given: object, fact: catalog.Fact, path: Path, where: Where) -> float:
    """Return one number of an override, in the fact's unit."""
    name = str(path[-1])
    if fact.unit == "dB/Hz":
        rule = Rule(unit="1", low=-400.0, high=0.0)
    elif name.endswith("_frac"):
        rule = Rule(unit=fact.unit, high=1.0)
    else:
        # nothing is free, and a factor of 0 would make the rest vanish
        rule = Rule(
            unit=fact.unit, above=name.endswith(("_ratio", "_factor")) or "usd" in fact.unit
        )
    if isinstance(given, str) and not units.is_unit(fact.unit):
        rule = Rule(unit="1", low=rule.low, high=rule.high)
    try:
        value = rule.check(given, path=path, where=where)
    except UnitError as error:
        raise where.error(path, str(error)) from None
    if isinstance(value, str):
        raise where.error(path, f"{shown(given)}; allowed: a number or 'low..high'")
    return value


def span(written: float | str, unit: str) -> tuple[float, float]:
    """Return both ends of an override: of a range as written, or of one number.

    Args:
        written: A checked override.
        unit: Its unit.
    """
    match = _RANGE.fullmatch(written) if isinstance(written, str) else None
    if match is None:
        return float(written), float(written)
    known = unit if units.is_unit(unit) else "1"
    return units.parse(match[1], known), units.parse(match[2], known)
