"""A published claim as data: who said what when, on which basis, and which readings are tested.

One file a claim under `catalog/data/claim/`. `same` lists what must be equal on both sides of a fair
comparison, `free` what each side may choose. A reading is an assumption set: changes of the scenario
that can be loaded.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Literal

import msgspec

from firstlight.catalog import Status  # noqa: TC001  # msgspec reads the annotation
from firstlight.errors import CatalogError, nearest


class Reading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to read a claim: an assumption set and what the number then covers.

    Attributes:
        note: The reading in words.
        scope: What is counted, one of the scopes of the claim's test.
        engine: Another optical server in place of the scenario's, or empty.
        changes: Changes of the scenario.
    """

    note: str
    scope: str
    engine: str = ""
    changes: dict[str, float | str] = {}  # msgspec copies defaults


class Search(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A field in which the claim's boundary is solved.

    Attributes:
        field: The field.
        unit: Its unit.
        name: What people call it.
    """

    field: str
    unit: str
    name: str


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One published sentence and how it is tested.

    Attributes:
        id: Name of its file.
        order: Place in lists.
        sentence: What was said.
        said_by: Who said it.
        said_on: When, ISO date or year; "?" when unknown.
        status: How far the source can be trusted.
        source: Where it was read.
        read_on: When it was read, ISO date.
        basis: The quantity the sentence is about.
        boundary: Where it was taken, "?" when nobody said.
        baseline: What it is compared with, "?" when nobody said.
        missing: What would have to be disclosed to verify it.
        same: What must be equal on both sides.
        free: What each side may choose.
        test: Name of the computation.
        target: The number that decides.
        unit: Its unit.
        better: Whether the claim holds above or below the target.
        here: How it is read on the user's scenario.
        favourable: The most favourable reading.
        solve: Fields in which the boundary is sought.
        wants_reload: Whether it hangs on the reload time.
    """

    id: str
    order: int
    sentence: str
    said_by: str
    said_on: str
    status: Status
    source: str
    read_on: str
    basis: str
    boundary: Literal["engine", "board", "server", "facility", "rack", "?"]
    baseline: str
    missing: tuple[str, ...]
    same: tuple[str, ...]
    free: tuple[str, ...]
    test: str
    target: float
    unit: str
    better: Literal["above", "below"]
    here: Reading
    favourable: Reading
    solve: tuple[Search, ...] = ()

    @property
    def sign(self) -> str:
        """Return the comparison as a sign."""
        return "≥" if self.better == "above" else "≤"

    def met(self, value: float) -> bool:
        """Return whether a value makes the claim true."""
        return value >= self.target if self.better == "above" else value <= self.target


def read(text: str, *, identifier: str) -> Claim:
    """Return the claim written in one file.

    Args:
        text: TOML.
        identifier: Name of the file without its ending.

    Raises:
        CatalogError: The file breaks a rule; the message says which.
    """
    try:
        document = tomllib.loads(text)
        claim = msgspec.convert({"id": identifier, **document}, Claim)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise CatalogError(f"claim/{identifier}.toml: {error}") from None
    empty = [
        name
        for name in ("sentence", "said_by", "source", "basis", "baseline", "missing")
        if not getattr(claim, name)
    ]
    if empty:
        raise CatalogError(f"claim/{identifier}.toml: {empty[0]} is empty; allowed: '?' or words")
    return claim


@cache
def claims() -> tuple[Claim, ...]:
    """Return every claim, in order.

    Raises:
        CatalogError: A file breaks a rule.
    """
    folder = resources.files("firstlight.catalog") / "data" / "claim"
    found = [
        read(entry.read_text(encoding="utf-8"), identifier=entry.name.removesuffix(".toml"))
        for entry in folder.iterdir()
        if entry.name.endswith(".toml")
    ]
    return tuple(sorted(found, key=lambda claim: claim.order))


def get(identifier: str) -> Claim:
    """Return one claim.

    Raises:
        CatalogError: There is none of that id.
    """
    known = {claim.id: claim for claim in claims()}
    if identifier not in known:
        hint = nearest(identifier, known)
        raise CatalogError(f"unknown claim {identifier!r}; allowed: {', '.join(known)}{hint}")
    return known[identifier]
