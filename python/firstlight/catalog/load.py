"""Reads record files: only the file needed, each once."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING

from firstlight.catalog import schema
from firstlight.errors import CatalogError, choices, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.resources.abc import Traversable
    from pathlib import Path

KINDS = (
    "device", "server", "engine", "model", "tier", "link", "price", "electricity", "carbon",
    "facility", "measurement", "assumption",
)  # fmt: skip


def read(text: str, *, kind: str, where: str) -> dict[str, schema.Record]:
    """Return the records written in one file.

    Args:
        text: TOML: one table a record, and [sources] with what `src` keys stand for.
        kind: The kind the file belongs to.
        where: Name of the file, for messages.

    Raises:
        CatalogError: The file is no TOML, or a record breaks a rule of `schema`.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CatalogError(f"{where}: {error}") from None
    sources = document.pop("sources", {})
    return {
        identifier: schema.record(identifier, raw, kind=kind, sources=sources, where=where)
        for identifier, raw in document.items()
    }


class Catalog:
    """A folder of record files, `<kind>/<file>.toml`, read when asked for.

    A file named after a record holds that record alone; small kinds keep many in one file.

    Args:
        root: The folder; the one in the package when None.
    """

    def __init__(self, root: Path | None = None) -> None:
        self._root: Traversable = (
            root if root is not None else resources.files("firstlight.catalog") / "data"
        )
        self._files: dict[str, dict[str, schema.Record]] = {}
        self._listed: dict[str, list[str]] = {}
        self._assumptions: Mapping[str, schema.Fact] | None = None

    def kinds(self) -> tuple[str, ...]:
        """Return every kind of record."""
        return KINDS

    def _names(self, kind: str) -> list[str]:
        if kind not in KINDS:
            hint = nearest(kind, KINDS)
            raise CatalogError(f"unknown kind {kind!r}; allowed: {', '.join(KINDS)}{hint}")
        if kind not in self._listed:
            folder = self._root / kind
            entries = folder.iterdir() if folder.is_dir() else ()
            self._listed[kind] = sorted(
                entry.name for entry in entries if entry.name.endswith(".toml")
            )
        return self._listed[kind]

    def _file(self, kind: str, name: str) -> dict[str, schema.Record]:
        where = f"{kind}/{name}"
        if where not in self._files:
            text = (self._root / kind / name).read_text(encoding="utf-8")
            self._files[where] = read(text, kind=kind, where=where)
        return self._files[where]

    def records(self, kind: str) -> tuple[schema.Record, ...]:
        """Return every record of a kind, by id.

        Raises:
            CatalogError: The kind is unknown, or two files hold the same id.
        """
        found: dict[str, schema.Record] = {}
        for name in self._names(kind):
            for identifier, record in self._file(kind, name).items():
                if identifier in found:
                    raise CatalogError(f"{kind}/{name}: [{identifier}] is written twice")
                found[identifier] = record
        return tuple(found[identifier] for identifier in sorted(found))

    def ids(self, kind: str) -> tuple[str, ...]:
        """Return the ids of a kind.

        Raises:
            CatalogError: The kind is unknown.
        """
        return tuple(record.id for record in self.records(kind))

    def get(self, identifier: str, *, kind: str) -> schema.Record:
        """Return one record.

        Args:
            identifier: Its id, such as "h100-sxm".
            kind: Its kind, such as "device".

        Raises:
            CatalogError: There is no such kind or record; the message names the nearest.
        """
        names = self._names(kind)
        alone = f"{identifier}.toml"
        if alone in names:
            record = self._file(kind, alone).get(identifier)
            if record is not None:
                return record
        for record in self.records(kind):
            if record.id == identifier:
                return record
        hint = choices(identifier, self.ids(kind), see=f"firstlight catalog list -k {kind}")
        raise CatalogError(f"unknown {kind} {identifier!r}{hint}")

    def kinds_of(self, identifier: str) -> tuple[str, ...]:
        """Return the kinds that have a record of this id."""
        return tuple(kind for kind in KINDS if identifier in self.ids(kind))

    def assumptions(self) -> Mapping[str, schema.Fact]:
        """Return every assumption by name, whatever record it is in.

        Raises:
            CatalogError: Two records state the same assumption.
        """
        if self._assumptions is not None:
            return self._assumptions
        found: dict[str, schema.Fact] = {}
        for record in self.records("assumption"):
            for key, fact in record.facts.items():
                if key in found:
                    raise CatalogError(
                        f"assumption {key!r} is stated twice, again in {record.id!r}"
                    )
                found[key] = fact
        self._assumptions = MappingProxyType(found)
        return self._assumptions

    def check(self) -> None:
        """Check every record and every reference between them.

        Raises:
            CatalogError: A record breaks a rule or names a record that does not exist.
        """
        for kind in KINDS:
            self.records(kind)
        for server in self.records("server"):
            for key, kind in schema.REFERENCES.items():
                if key in server and server.text(key) not in self.ids(kind):
                    hint = nearest(server.text(key), self.ids(kind))
                    raise CatalogError(
                        f"server {server.id!r}: {key} {server.text(key)!r} is no {kind}{hint}"
                    )
        self.assumptions()


@cache
def shipped() -> Catalog:
    """Return the catalog inside the package."""
    return Catalog()
