"""Checks a scenario document and fills in what it does not say.

A document is what TOML gives: tables, lists, words and numbers. `checked` returns one in which every
number is in SI units, every default is written out and every id is known. Checking a checked
document changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from firstlight import catalog
from firstlight.errors import nearest
from firstlight.scenario import rules, spread
from firstlight.scenario.defaults import default
from firstlight.scenario.designs import checked_designs
from firstlight.scenario.overrides import checked_overrides, checked_spread
from firstlight.scenario.rules import Document, Where, known_record, shown, table

if TYPE_CHECKING:
    from firstlight.scenario.locate import Path


def checked(
    document: Mapping[str, object], *, where: Where, base: FilePath | None = None
) -> Document:
    """Return the document with defaults filled in, in SI units.

    Args:
        document: What TOML gave, or an earlier result.
        where: File and text, for errors.
        base: Folder that a relative trace path starts from.

    Raises:
        ScenarioError: A key is unknown or a value impossible; names file, line, key, what was
            given, what is allowed.
    """
    keys = [*rules.TOP, "model", *rules.SECTIONS, "design", "assumptions"]
    top = table(document, path=(), where=where, allowed=keys)
    done: Document = {
        field: rule.check(top.get(field, default(field)), path=(field,), where=where)
        for field, rule in rules.TOP.items()
    }
    done["model"] = _model(top.get("model", default("model")), where)
    for section in rules.SECTIONS:
        raw = top.get(section, {})
        extra = ("installed",) if section == "facility" else ()
        done[section] = _section(section, raw, where, extra)
    done["workload"] = _workload(top.get("workload", {}), done["workload"], where, base)
    done["facility"] = _facility(top.get("facility", {}), done["facility"], where)
    done["design"] = checked_designs(top, where=where)
    done["assumptions"] = checked_overrides(
        top.get("assumptions", {}), designs=done["design"], where=where
    )
    return done


def _section(name: str, raw: object, where: Where, extra: tuple[str, ...] = ()) -> Document:
    """Return a section's plain fields, defaults filled in."""
    fields = rules.SECTIONS[name]
    given = table(raw, path=(name,), where=where, allowed=[*fields, *extra])
    done: Document = {}
    for field, rule in fields.items():
        if field in given:
            check = checked_spread if _is_spread(given[field], rule) else _one
            done[field] = check(given[field], rule=rule, path=(name, field), where=where)
        elif not rule.optional:
            # through the rule, so that an int of the catalog becomes the float a file would give
            written = default(f"{name}.{field}")
            done[field] = rule.check(written, path=(name, field), where=where)
    return done


def _is_spread(given: object, rule: rules.Rule) -> bool:
    """Return whether a field is given as a range or distribution, and may be."""
    return rule.unit is not None and not rule.numbers and spread.is_spread(given)


def _one(given: object, *, rule: rules.Rule, path: Path, where: Where) -> float | int | str:
    return rule.check(given, path=path, where=where)


def _workload(raw: object, done: object, where: Where, base: FilePath | None) -> Document:
    """Return the workload with either a preset or a trace."""
    workload = dict(done) if isinstance(done, dict) else {}
    given = raw if isinstance(raw, Mapping) else {}
    if "preset" in given and "trace" in given:
        raise where.error(("workload", "trace"), "both preset and trace; allowed: one of them")
    if "preset" not in given:
        trace = str(workload.get("trace", default("workload.trace")))
        workload["trace"] = _trace(trace, where, base)
    return workload


def _trace(trace: str, where: Where, base: FilePath | None) -> str:
    """Return a shipped trace's id, or the absolute path of a trace file."""
    if trace in rules.TRACES:
        return trace
    path = FilePath(trace)
    if not path.is_absolute():
        path = (base or FilePath.cwd()) / path
    allowed = f"a file, or one of {', '.join(rules.TRACES)}"
    try:
        exists = path.is_file()
    except (OSError, ValueError):
        exists = False
    if not exists:
        hint = nearest(trace, rules.TRACES)
        raise where.error(
            ("workload", "trace"), f"no file {shown(trace)}; allowed: {allowed}{hint}"
        )
    return str(path.resolve())


def _facility(raw: object, done: object, where: Where) -> Document:
    facility = dict(done) if isinstance(done, dict) else {}
    given = raw.get("installed") if isinstance(raw, Mapping) else None
    if not given:
        return facility
    path: Path = ("facility", "installed")
    if not isinstance(given, Mapping):
        raise where.error(path, f"{shown(given)}; allowed: a table, server id = number of servers")
    installed = {}
    for server, count in given.items():
        known_record(server, kind="server", path=(*path, server), where=where)
        check = rules.SERVERS_INSTALLED.check
        installed[server] = check(count, path=(*path, server), where=where)
    facility["installed"] = installed
    return facility


@cache
def _model_fields() -> frozenset[str]:
    return frozenset(key for record in catalog.records("model") for key in record)


def _model(given: object, where: Where) -> str | Document:
    """Return a model's id, or a checked table of shapes."""
    if isinstance(given, str):
        return known_record(given, kind="model", path=("model",), where=where).id
    names = sorted({"name", *_model_fields()})
    if not isinstance(given, Mapping):
        raise where.error(("model",), f"{shown(given)}; allowed: a model id or a table of shapes")
    shapes = table(given, path=("model",), where=where, allowed=names)
    for key, value in shapes.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and not (isinstance(value, int | float) and 0 < value < math.inf):
            raise where.error(("model", key), f"{shown(value)}; allowed: a number above 0")
        if not isinstance(value, int | float | str | bool):
            raise where.error(("model", key), f"{shown(value)}; allowed: a number or a word")
    needed = [
        key for key in ("num_layers", "hidden_size", "num_heads", "vocab_size") if key not in shapes
    ]
    if needed:
        raise where.error(("model",), f"no {', '.join(needed)}; a table of shapes needs them")
    return dict(shapes)
