"""Checks a scenario document and fills in what it does not say.

A document is what TOML gives: tables, lists, words and numbers. `checked` returns one in which every
number is in SI units, every default is written out and every id is known. Checking a checked
document changes nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import TYPE_CHECKING

from firstlight import catalog, units
from firstlight.errors import CatalogError, UnitError, nearest
from firstlight.scenario import rules
from firstlight.scenario.rules import Rule, Where, shown, table

if TYPE_CHECKING:
    from firstlight.scenario.locate import Path

Document = dict[str, object]

DEFAULTS: Mapping[str, str] = MappingProxyType(
    {
        "schema": "schema_version",
        "name": "scenario_name",
        "model": "model_id",
        "first_token": "first_token",
        "seed": "seed",
        "precision.weights": "weights_format",
        "precision.kv": "kv_format",
        "workload.preset": "preset_id",
        "workload.trace": "trace_id",
        "workload.context_tok": "context_tok",
        "workload.output_tok": "output_tok",
        "workload.cached_frac": "cached_frac",
        "workload.correlation_s": "correlation_s",
        "workload.shared_prefix_tok": "shared_prefix_tok",
        "slo.ttft_s": "slo_ttft_s",
        "slo.tpot_s": "slo_tpot_s",
        "slo.quantile": "slo_quantile_frac",
        "facility.power_w": "power_w",
        "facility.boundary": "power_boundary",
        "facility.pue": "pue",
        "facility.electricity_usd_per_kwh": "electricity_usd_per_kwh",
        "facility.carbon_g_per_kwh": "carbon_g_per_kwh",
        "facility.rack_power_w": "rack_limit",
        "facility.installed": "installed_servers",
        "assumptions": "assumption_overrides",
        "design": "designs",
        "design.precision": "design_precision",
        "design.policy.batching": "batching",
        "design.policy.chunk_tok": "chunk_policy",
        "design.policy.disaggregate": "disaggregate_policy",
        "design.pools.share": "pool_share",
        "design.pools.count": "pool_servers",
        "design.pools.tp": "tensor_parallel",
        "design.pools.band": "pool_band",
    }
)
"""Field -> the catalog assumption that is its default, with its source. `design` fields leave out
the design's name and the pool's position."""


def default(field: str) -> float | str:
    """Return the default of a field, from the catalog."""
    value = catalog.assumption(DEFAULTS[field]).value
    if isinstance(value, tuple):
        raise TypeError(f"Invariant: the default of {field} is one value")
    return value


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
    done["design"] = _designs(top, where)
    done["assumptions"] = _assumptions(top.get("assumptions", {}), done["design"], where)
    return done


def _section(name: str, raw: object, where: Where, extra: tuple[str, ...] = ()) -> Document:
    """Return a section's plain fields, defaults filled in."""
    fields = rules.SECTIONS[name]
    given = table(raw, path=(name,), where=where, allowed=[*fields, *extra])
    done: Document = {}
    for field, rule in fields.items():
        if field in given:
            done[field] = rule.check(given[field], path=(name, field), where=where)
        elif not rule.optional:
            done[field] = default(f"{name}.{field}")
    return done


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
        _record(server, "server", (*path, server), where)
        check = rules.SERVERS_INSTALLED.check
        installed[server] = check(count, path=(*path, server), where=where)
    facility["installed"] = installed
    return facility


def _record(identifier: object, kind: str, path: Path, where: Where) -> catalog.Record:
    """Return a catalog record; an unknown id is the scenario's error."""
    if not isinstance(identifier, str):
        raise where.error(path, f"{shown(identifier)}; allowed: a {kind} id")
    try:
        return catalog.get(identifier, kind=kind)
    except CatalogError as error:
        raise where.error(path, str(error)) from None


def server(identifier: str) -> catalog.Record:
    """Return a server of the catalog.

    Raises:
        ScenarioError: There is none of this id.
    """
    return _record(identifier, "server", (), Where())


@cache
def _model_fields() -> frozenset[str]:
    return frozenset(key for record in catalog.records("model") for key in record)


def _model(given: object, where: Where) -> str | Document:
    """Return a model's id, or a checked table of shapes."""
    if isinstance(given, str):
        return _record(given, "model", ("model",), where).id
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


def _designs(top: Mapping[str, object], where: Where) -> list[Document]:
    """Return the designs, those of the shipped scenario when none is given."""
    given = top.get("design")
    if given is None:
        given = shipped_designs()
    if not isinstance(given, list | tuple) or not given:
        raise where.error(("design",), f"{shown(given)}; allowed: at least one [[design]]")
    designs = [_design(raw, index, where) for index, raw in enumerate(given)]
    names = [design["name"] for design in designs]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise where.error(("design", index, "name"), f"{shown(name)} is used twice")
    return designs


def shipped_designs() -> list[Document]:
    """Return the three designs of the shipped scenario, as written."""
    import tomllib
    from importlib import resources

    text = (resources.files("firstlight.scenario") / "default.toml").read_text(encoding="utf-8")
    designs: list[Document] = tomllib.loads(text)["design"]
    return designs


def _design(raw: object, index: int, where: Where) -> Document:
    path: Path = ("design", index)
    given = table(raw, path=path, where=where, allowed=("name", "policy", "precision", "pools"))
    if "name" not in given:
        raise where.error(path, "no name; every design has one")
    name = Rule().check(given["name"], path=(*path, "name"), where=where)
    pools = given.get("pools")
    if not isinstance(pools, list | tuple) or not pools:
        raise where.error((*path, "pools"), f"{shown(pools)}; allowed: a list of pools")
    done: Document = {"name": name, "policy": _policy(given.get("policy", {}), path, where)}
    if "precision" in given:
        done["precision"] = _override(given["precision"], (*path, "precision"), where)
    done["pools"] = [_pool(pool, (*path, "pools", at), where) for at, pool in enumerate(pools)]
    _together(done, path, where)
    return done


def _policy(raw: object, path: Path, where: Where) -> Document:
    path = (*path, "policy")
    given = table(raw, path=path, where=where, allowed=rules.POLICY)
    return {
        field: rule.check(given[field], path=(*path, field), where=where)
        if field in given
        else default(f"design.policy.{field}")
        for field, rule in rules.POLICY.items()
    }


def _override(raw: object, path: Path, where: Where) -> Document:
    """Return a design's own precision; what it does not say is the scenario's."""
    given = table(raw, path=path, where=where, allowed=rules.PRECISION)
    return {
        field: rules.PRECISION[field].check(value, path=(*path, field), where=where)
        for field, value in given.items()
    }


def _pool(raw: object, path: Path, where: Where) -> Document:
    given = table(raw, path=path, where=where, allowed=(*rules.POOL, "band"))
    done: Document = {}
    for field, rule in rules.POOL.items():
        if field in given:
            done[field] = rule.check(given[field], path=(*path, field), where=where)
        elif field in {"role", "server"}:
            raise where.error(path, f"no {field}; every pool has a role and a server")
        elif not rule.optional:
            done[field] = default(f"design.pools.{field}")
    optical = "engine" in _record(done["server"], "server", (*path, "server"), where)
    if optical and done["role"] != "prefill":
        raise where.error(
            (*path, "role"), f"{shown(done['role'])}; an optical server does 'prefill' only"
        )
    if "count" in done and done["share"] != "auto":
        raise where.error((*path, "count"), "both share and count; allowed: one of them")
    if "band" in given:
        done["band"] = _band(given["band"], (*path, "band"), where)
    return done


def _band(given: object, path: Path, where: Where) -> list[str]:
    """Return the two optical servers between which the truth lies, conservative first."""
    if not isinstance(given, list | tuple) or len(given) != 2:  # two ends of a band
        raise where.error(
            path, f"{shown(given)}; allowed: [conservative server, optimistic server]"
        )
    ends = [_record(server, "server", path, where) for server in given]
    for end in ends:
        if "engine" not in end:
            raise where.error(path, f"{end.id!r} is not optical; allowed: two optical servers")
    return [end.id for end in ends]


def _together(design: Document, path: Path, where: Where) -> None:
    """Check what the pools of one design must be together."""
    pools = design["pools"]
    if not isinstance(pools, list):
        raise TypeError("Invariant: pools are a list by now")
    roles = sorted(str(pool["role"]) for pool in pools)
    if roles not in (["both"], ["decode", "prefill"]):
        raise where.error(
            (*path, "pools"),
            f"roles {', '.join(roles)}; allowed: one pool 'both', or one 'prefill' and one 'decode'",
        )
    shares = [pool["share"] for pool in pools if not isinstance(pool["share"], str)]
    if sum(shares) > 1 + 1e-9:
        raise where.error((*path, "pools"), f"shares sum to {sum(shares):g}; allowed: at most 1")


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


def _assumptions(raw: object, designs: object, where: Where) -> Document:
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
