"""A sweep's folder: immutable parts, a manifest that says what they are parts of, and a lock.

A part is written beside its place, flushed to the disk and renamed, so that it is there whole or not at
all. The lock is the kernel's: it is gone the moment its holder is, however that ended.
"""

from __future__ import annotations

import contextlib
import csv
import fcntl
import io
import json
import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, Self

from firstlight.errors import OutputError
from firstlight.sweep.extras import library

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Row = dict[str, float | int | str | bool | None]

Form = Literal["parquet", "csv"]
MANIFEST = "manifest.json"
LOCK = ".lock"


def form() -> Form:
    """Return the form parts are written in: Parquet where pyarrow is installed, else CSV."""
    from importlib.util import find_spec

    return "parquet" if find_spec("pyarrow") else "csv"


class Folder:
    """The folder of one sweep, held while the sweep runs.

    A context manager: the lock is released at its end.

    Args:
        path: The folder; made when it is missing.

    Raises:
        OutputError: It cannot be made or written, or another sweep is running in it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock: IO[str] = (path / LOCK).open("a+", encoding="utf-8")
        except OSError as error:
            raise _refusal(path, error) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise OutputError(
                f"{path}: another sweep is running in this folder; allowed: wait for it, or another "
                "folder"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def claim(self, manifest: Mapping[str, Any]) -> Form:
        """Check that the folder holds this sweep or none, and write its manifest.

        Args:
            manifest: What is swept: only what decides the numbers.

        Returns:
            The form its parts have.

        Raises:
            OutputError: The folder holds another sweep, or cannot be written.
        """
        place = self.path / MANIFEST
        if place.exists():
            known = read_manifest(self.path)
            differs = [key for key in manifest if known.get(key) != manifest[key]]
            if differs:
                raise OutputError(
                    f"{self.path}: holds another sweep (its {', '.join(differs)} differ); allowed: "
                    "the same sweep again, which resumes it, or an empty folder"
                )
            kept: Form = "csv" if known.get("form") == "csv" else "parquet"
            return kept
        strangers = [entry.name for entry in self.path.iterdir() if entry.name != LOCK]
        if strangers:
            raise OutputError(
                f"{self.path}: is not empty ({strangers[0]!r}) and holds no sweep; allowed: an "
                "empty folder"
            )
        chosen = form()
        self._replace(
            place, json.dumps({**manifest, "form": chosen}, indent=2).encode("utf-8") + b"\n"
        )
        return chosen

    def parts(self) -> set[int]:
        """Return the numbers of the parts that are there."""
        found = set()
        for entry in self.path.iterdir():
            stem, dot, ending = entry.name.partition(".")
            if stem.startswith("part-") and dot and ending in {"parquet", "csv"}:
                found.add(int(stem.removeprefix("part-")))
        return found

    def write(self, number: int, rows: Sequence[Row], *, chosen: Form) -> None:
        """Write one part, whole or not at all.

        Raises:
            OutputError: The disk is full or the folder gone; earlier parts stay.
        """
        place = self.path / f"part-{number:06d}.{chosen}"
        self._replace(place, _parquet(rows) if chosen == "parquet" else _csv(rows))

    def _replace(self, place: Path, content: bytes) -> None:
        partial = place.with_name(f".{place.name}.partial")
        try:
            with partial.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            partial.replace(place)
        except OSError as error:
            # Where the folder itself is gone there is nothing to clean.
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise _refusal(self.path, error) from None


def _refusal(path: Path, error: OSError) -> OutputError:
    return OutputError(
        f"{path}: {error.strerror or error}; parts already written are kept, run again to resume"
    )


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of a folder.

    Raises:
        OutputError: There is none, or it is damaged.
    """
    try:
        document: dict[str, Any] = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OutputError(f"{path}: no readable {MANIFEST} ({error}); no sweep is here") from None
    return document


def _parquet(rows: Sequence[Row]) -> bytes:
    pa = library("pyarrow", extra="sweep", what="Parquet")
    parquet = library("pyarrow.parquet", extra="sweep", what="Parquet")
    names = list(rows[0])
    table = pa.table({name: [row[name] for row in rows] for name in names})
    stream = io.BytesIO()
    parquet.write_table(table, stream, compression="zstd")
    return stream.getvalue()


def _csv(rows: Sequence[Row]) -> bytes:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue().encode("utf-8")


def read(path: Path | str) -> list[Row]:
    """Return every row of a sweep's folder, by point and design.

    Raises:
        OutputError: There is no sweep.
        ScenarioError: Its parts are Parquet and pyarrow is not installed.
    """
    folder = Path(path)
    read_manifest(folder)
    rows: list[Row] = []
    for entry in sorted(folder.glob("part-*.*")):
        rows += _rows(entry)
    return rows


def _rows(entry: Path) -> list[Row]:
    if entry.suffix == ".parquet":
        parquet = library("pyarrow.parquet", extra="sweep", what=f"reading {entry}")
        found: list[Row] = parquet.read_table(entry).to_pylist()
        return found
    with entry.open(newline="", encoding="utf-8") as stream:
        return [
            {name: _value(text) for name, text in row.items()} for row in csv.DictReader(stream)
        ]


def _value(text: str) -> float | int | str | bool | None:
    if text == "":
        return None
    if text in {"True", "False"}:
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
