"""Routes a changed field to its place in a scenario document."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from firstlight.errors import ScenarioError, nearest
from firstlight.scenario import overrides, rules
from firstlight.scenario.designs import checked_designs
from firstlight.scenario.rules import Where, known_record, shown

_EVERY_DESIGN = dict.fromkeys(rules.POLICY, "policy") | {"tp": "pools"}


def _homes() -> dict[str, tuple[str, ...]]:
    """Return where each bare name lives: `power_w` -> ("facility", "power_w")."""
    homes: dict[str, tuple[str, ...]] = {name: (name,) for name in (*rules.TOP, "model")}
    for section, fields in rules.SECTIONS.items():
        homes[section] = (section,)
        homes |= {field: (section, field) for field in fields}
    homes["installed"] = ("facility", "installed")
    homes["assumptions"] = ("assumptions",)
    return homes


def apply(document: Mapping[str, Any], changes: Mapping[str, object]) -> dict[str, Any]:
    """Return a copy of the document with the changes in it, not yet checked.

    Args:
        document: A checked document.
        changes: New values by bare or dotted name.

    Raises:
        ScenarioError: A name is unknown.
    """
    done = copy.deepcopy(dict(document))
    reaching = {name: value for name, value in changes.items() if _is_design(name)}
    if reaching:
        _redesign(done, reaching)
    homes = _homes()
    for name, value in changes.items():
        if name in reaching:
            continue
        if name in homes:
            _put(done, homes[name], value)
        elif name in _EVERY_DESIGN:
            _every(done, name, value)
        elif "." in name:
            _dotted(done, name, value)
        else:
            known = overrides.overridable(done["design"])
            if name not in known:
                allowed = [*homes, *_EVERY_DESIGN, "designs", *known]
                raise ScenarioError(f"unknown field {name!r}{nearest(name, allowed)}")
            _put(done, ("assumptions", name), value)
    return done


def _redesign(document: dict[str, Any], changes: Mapping[str, object]) -> None:
    """Change designs and check them, for the changes that follow reach into them."""
    for name in ("design", "designs"):
        if name in changes:
            document["design"] = checked_designs({"design": _plain(changes[name])}, where=Where())
    for name, value in changes.items():
        if "." in name:
            _dotted(document, name, value)
    document["design"] = checked_designs(document, where=Where())


def _is_design(name: str) -> bool:
    return name.partition(".")[0] in {"design", "designs"}


def _plain(value: object) -> Any:  # noqa: ANN401  # whatever TOML can hold
    """Return structs and tuples as tables and lists."""
    import msgspec

    plain = msgspec.to_builtins(value, builtin_types=())
    return _without_gaps(plain)


def _without_gaps(value: object) -> Any:  # noqa: ANN401  # whatever TOML can hold
    if isinstance(value, Mapping):
        kept = {key: _without_gaps(item) for key, item in value.items() if item is not None}
        return {key: item for key, item in kept.items() if key != "precision" or item}
    if isinstance(value, list | tuple):
        return [_without_gaps(item) for item in value]
    return value


def _put(document: dict[str, Any], home: tuple[str, ...], value: object) -> None:
    """Set or, with None, remove the field at `home`."""
    *sections, field = home
    table = document
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise ScenarioError(f"{section}: {shown(table)}; allowed: a table")
    if value is None:
        table.pop(field, None)
        return
    table[field] = _plain(value)
    if field in {"preset", "trace"} and sections:
        # a scenario has one of the two, so setting one replaces the other
        table.pop("trace" if field == "preset" else "preset", None)


def _every(document: dict[str, Any], field: str, value: object) -> None:
    for design in document["design"]:
        if field == "tp":
            for pool in design["pools"]:
                server = known_record(
                    pool["server"], kind="server", path=("server",), where=Where()
                )
                optical = "engine" in server
                pool["tp"] = "auto" if optical else value
        elif field == "local_below_tok":
            if design["policy"]["disaggregate"] == "conditional":
                design["policy"][field] = value
        elif field != "disaggregate" or len(design["pools"]) > 1:
            design["policy"][field] = value
            if field == "disaggregate" and value != "conditional":
                design["policy"].pop("local_below_tok", None)


def _dotted(document: dict[str, Any], name: str, value: object) -> None:
    """Set a field by dotted name; a design is named by name, a pool by position or role."""
    section, _, rest = name.partition(".")
    if section in {*rules.SECTIONS, "assumptions"}:
        _put(document, (section, rest), value)
        return
    if section not in {"design", "designs"}:
        allowed = [*rules.SECTIONS, "assumptions", "design"]
        raise ScenarioError(f"unknown field {name!r}; allowed sections: {', '.join(allowed)}")
    names = [str(design["name"]) for design in document["design"]]
    # a name may hold dots, so the longest that fits is meant
    fits = [design for design in names if rest == design or rest.startswith(f"{design}.")]
    if not fits:
        raise ScenarioError(f"{name!r}: unknown design; allowed: {', '.join(names)}")
    found = max(fits, key=len)
    design = document["design"][names.index(found)]
    steps = rest[len(found) + 1 :].split(".")
    if steps[0] == "pools" and len(steps) == 3:  # pools, which, field
        _put(_pool(design, steps[1], name), (steps[2],), value)
    elif steps[0] in {"policy", "precision"} or steps == ["name"]:
        _put(design, tuple(steps), value)
    else:
        raise ScenarioError(
            f"unknown field {name!r}; allowed after the design: name, policy.FIELD, "
            "precision.FIELD, pools.ROLE.FIELD"
        )


def _pool(design: Mapping[str, Any], which: str, name: str) -> dict[str, Any]:
    pools: list[dict[str, Any]] = design["pools"]
    for index, pool in enumerate(pools):
        if which in {str(index), pool["role"]}:
            return pool
    roles = ", ".join(str(pool["role"]) for pool in pools)
    raise ScenarioError(f"{shown(name)}: no pool {which!r}; allowed: {roles}")
