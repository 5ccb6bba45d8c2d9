"""Checks the designs of a scenario: pools, policies, and what they must be together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight.scenario import rules
from firstlight.scenario.defaults import default
from firstlight.scenario.rules import Document, Rule, Where, known_record, shown, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from firstlight.scenario.locate import Path


def checked_designs(top: Mapping[str, object], *, where: Where) -> list[Document]:
    """Return the designs, those of the shipped scenario when none is given.

    Args:
        top: The whole document.
        where: File, for errors.

    Raises:
        ScenarioError: A design is impossible.
    """
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
    done: Document = {"name": name}
    checked_pools = [_pool(pool, (*path, "pools", at), where) for at, pool in enumerate(pools)]
    _together(checked_pools, path, where)
    split = len(checked_pools) > 1
    done["policy"] = _policy(given.get("policy", {}), path, where, split=split)
    if "precision" in given:
        done["precision"] = _override(given["precision"], (*path, "precision"), where)
    done["pools"] = checked_pools
    return done


def _policy(raw: object, path: Path, where: Where, *, split: bool) -> Document:
    """Return the policy; where nothing is split, nothing can be disaggregated."""
    path = (*path, "policy")
    given = table(raw, path=path, where=where, allowed=rules.POLICY)
    done: Document = {}
    for field, rule in rules.POLICY.items():
        if field in given:
            done[field] = rule.check(given[field], path=(*path, field), where=where)
        elif field == "disaggregate" and not split:
            done[field] = "never"
        elif not rule.optional:
            done[field] = default(f"design.policy.{field}")
    choice = done["disaggregate"]
    if "local_below_tok" in done and choice != "conditional":
        said = f"{done['local_below_tok']}; allowed: only with disaggregate = 'conditional'"
        raise where.error((*path, "local_below_tok"), said)
    if (choice == "never") == split:
        allowed = "'always' or 'conditional' with two pools" if split else "'never' with one pool"
        raise where.error((*path, "disaggregate"), f"{shown(choice)}; allowed: {allowed}")
    return done


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
    optical = "engine" in known_record(
        done["server"], kind="server", path=(*path, "server"), where=where
    )
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
    ends = [known_record(server, kind="server", path=path, where=where) for server in given]
    for end in ends:
        if "engine" not in end:
            raise where.error(path, f"{end.id!r} is not optical; allowed: two optical servers")
    return [end.id for end in ends]


def _together(pools: list[Document], path: Path, where: Where) -> None:
    """Check what the pools of one design must be together."""
    roles = sorted(str(pool["role"]) for pool in pools)
    if roles not in (["both"], ["decode", "prefill"]):
        raise where.error(
            (*path, "pools"),
            f"roles {', '.join(roles)}; allowed: one pool 'both', or one 'prefill' and one 'decode'",
        )
    total = sum(pool["share"] for pool in pools if isinstance(pool["share"], float))
    if total > 1 + 1e-9:
        raise where.error((*path, "pools"), f"shares sum to {total:g}; allowed: at most 1")
