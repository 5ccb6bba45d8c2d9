"""A CSV file of measurements, row by row, with errors that say where and what is allowed."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from firstlight.errors import TraceError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_ROWS = 100_000
MOST_WHOLE = 10**9


@dataclass(frozen=True, slots=True)
class Row:
    """One row.

    Attributes:
        path: The file.
        at: Row of the file, from 2 on.
        values: Text by column.
        meanings: What each column holds, for messages.
    """

    path: Path
    at: int
    values: Mapping[str | None, str | None]
    meanings: Mapping[str, str]

    def text(self, name: str) -> str:
        """Return what is written there.

        Raises:
            TraceError: Nothing is.
        """
        value = (self.values.get(name) or "").strip()
        if not value:
            raise self.error(f"{name} is empty; {self.meanings.get(name, 'a number')}")
        return value

    def whole(self, name: str, *, default: int | None = None, least: int = 1) -> int:
        """Return a whole number of `least` to 10^9, or `default` where nothing is written.

        Raises:
            TraceError: It is none.
        """
        if default is not None and not (self.values.get(name) or "").strip():
            return default
        value = self.text(name)
        if not (value.isascii() and value.isdigit() and least <= int(value) <= MOST_WHOLE):
            raise self.error(f"{name} = {value!r}; a whole number, {least} to 10^9")
        return int(value)

    def positive(self, name: str) -> float:
        """Return a number above 0.

        Raises:
            TraceError: It is none.
        """
        value = self.text(name)
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and number > 0):
            raise self.error(f"{name} = {value!r}; a number above 0")
        return number

    def error(self, what: str) -> TraceError:
        """Return an error that names the file and the row."""
        return TraceError(f"{self.path}, row {self.at}: {what}")


def column_names(path: str | Path) -> tuple[str, ...]:
    """Return the column names of a CSV file.

    Raises:
        TraceError: The file cannot be read.
    """
    path = Path(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return tuple(next(csv.reader(file), ()))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise _unreadable(path, error) from None


def read_rows(
    path: str | Path, *, needed: Mapping[str, str], optional: Mapping[str, str]
) -> tuple[Row, ...]:
    """Return the rows of a CSV file, in its order.

    Args:
        path: The file.
        needed: What each column that must be there holds.
        optional: The same of those that may be there.

    Raises:
        TraceError: The file cannot be read, lacks a column, has one that is not known, or too
            many values in a row.
    """
    path = Path(path)
    meanings = {**needed, **optional}
    _check_names(path, column_names(path), needed, tuple(meanings))
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = tuple(
                Row(path, at, values, meanings)
                for at, values in enumerate(csv.DictReader(file), start=2)
            )
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise _unreadable(path, error) from None
    if not 1 <= len(rows) <= MOST_ROWS:
        raise TraceError(f"{path}: {len(rows)} rows; allowed: 1 to {MOST_ROWS:,}")
    for row in rows:
        if None in row.values:
            raise row.error(f"more values than columns; {len(row.values) - 1} are allowed")
    return rows


def _unreadable(path: Path, error: Exception) -> TraceError:
    why = error.strerror if isinstance(error, OSError) else error
    return TraceError(f"{path}: {why or error}; allowed: a CSV file in UTF-8")


def _check_names(
    path: Path, names: tuple[str, ...], needed: Mapping[str, str], known: tuple[str, ...]
) -> None:
    missing = [name for name in needed if name not in names]
    if missing:
        raise TraceError(
            f"{path}, row 1: no column {missing[0]!r} ({needed[missing[0]]}); needed: "
            f"{', '.join(needed)}{nearest(missing[0], names)}"
        )
    for name in names:
        if name not in known or names.count(name) > 1:
            raise TraceError(
                f"{path}, row 1: column {name!r} is not allowed; each once: {', '.join(known)}"
            )
