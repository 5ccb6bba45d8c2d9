"""Facts with unit, source, status and date: devices, servers, optical engines, models, prices.

A record lives in `data/<kind>/` and is read when asked for. What nobody disclosed is either
`assumed`, with a reason and a range, or missing; it is never 0.

Example:
    >>> from firstlight import catalog
    >>> catalog.get("h100-sxm", kind="device").value("tdp_w")
    700
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight.catalog.load import Catalog, shipped
from firstlight.catalog.schema import Fact, Record, Scalar, Status, weakest
from firstlight.errors import CatalogError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "Catalog", "Fact", "Record", "Scalar", "Status", "assumption", "assumptions", "get", "ids",
    "kinds", "kinds_of", "records", "weakest",
]  # fmt: skip


def get(identifier: str, *, kind: str) -> Record:
    """Return one record of the shipped catalog; see `Catalog.get`."""
    return shipped().get(identifier, kind=kind)


def ids(kind: str) -> tuple[str, ...]:
    """Return the ids of a kind."""
    return shipped().ids(kind)


def kinds() -> tuple[str, ...]:
    """Return every kind of record."""
    return shipped().kinds()


def kinds_of(identifier: str) -> tuple[str, ...]:
    """Return the kinds that have a record of this id."""
    return shipped().kinds_of(identifier)


def records(kind: str) -> tuple[Record, ...]:
    """Return every record of a kind, by id."""
    return shipped().records(kind)


def assumptions() -> Mapping[str, Fact]:
    """Return every assumption by name."""
    return shipped().assumptions()


def assumption(name: str) -> Fact:
    """Return one assumption: a convention or calibration that is no property of a device.

    Raises:
        CatalogError: There is none of this name; the message names the nearest.
    """
    known = assumptions()
    if name not in known:
        hint = nearest(name, known) or f"; allowed: {', '.join(sorted(known))}"
        raise CatalogError(f"unknown assumption {name!r}{hint}")
    return known[name]
