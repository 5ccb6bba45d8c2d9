"""What a fact and a record are, and the rules every record file must keep.

A fact is a value with unit, source, status and date; a record is a named set of facts. The rules
live here, not in a test, because a user's own record is read by the same code.
"""

from __future__ import annotations

import datetime as dt
import enum
import math
import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar, overload

from firstlight.errors import CatalogError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Scalar = float | int | bool | str | tuple[float, ...]
_Default = TypeVar("_Default")


class Status(enum.StrEnum):
    """How far a fact can be trusted, strongest first."""

    MEASURED = "measured"
    PAPER = "paper"
    DATASHEET = "datasheet"
    ESTIMATE = "estimate"
    VENDOR = "vendor"
    ASSUMED = "assumed"


_RANK = {status: rank for rank, status in enumerate(Status)}


def weakest(*statuses: Status | str) -> Status:
    """Return the weakest of the statuses: what a number derived from such inputs carries.

    Raises:
        CatalogError: No status was given, or one is none of the six.
    """
    if not statuses:
        raise CatalogError("weakest() of nothing; allowed: at least one status")
    return max((_status(status, "weakest()") for status in statuses), key=_RANK.__getitem__)


def _status(text: object, where: str) -> Status:
    try:
        return Status(str(text))
    except ValueError:
        allowed = ", ".join(Status)
        hint = nearest(str(text), [str(status) for status in Status])
        raise CatalogError(f"{where}: status {text!r}; allowed: {allowed}{hint}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One value and where it comes from.

    Attributes:
        value: A number, a truth value, a word, or a short list of numbers; "ideal" in an optical
            engine switches that effect off.
        unit: SI unit of the value; "1" for counts and fractions, "enum", "bool", "id" or "text".
        status: How far it can be trusted.
        source: Who says so.
        date: When the source was read or published, ISO.
        range: Lowest and highest credible value, or None.
        note: What else one must know.
    """

    value: Scalar
    unit: str
    status: Status
    source: str
    date: str
    range: tuple[float, float] | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A named set of facts of one kind.

    Attributes:
        id: Name in lower case with hyphens, unique within the kind.
        kind: What it is: "device", "server", "engine", …
        name: What people call it.
        facts: Fact by name; names end in their unit.
        missing: What a simulation needs and nobody disclosed; empty when the record is complete.
        unknown: Facts looked for and not found that a simulation can do without.
    """

    id: str
    kind: str
    name: str
    facts: Mapping[str, Fact]
    missing: tuple[str, ...] = ()
    unknown: tuple[str, ...] = field(default=())

    def __contains__(self, key: object) -> bool:
        return key in self.facts

    def __iter__(self) -> Iterator[str]:
        return iter(self.facts)

    @property
    def complete(self) -> bool:
        """Whether the record has enough to simulate with."""
        return not self.missing

    def fact(self, key: str) -> Fact:
        """Return the fact with its source.

        Raises:
            CatalogError: The record has no such fact.
        """
        if key in self.facts:
            return self.facts[key]
        lack = f"; missing: {', '.join(self.missing)}" if self.missing else ""
        hint = nearest(key, self.facts)
        raise CatalogError(f"{self.kind} {self.id!r} has no {key!r}{lack}{hint}")

    def value(self, key: str) -> float:
        """Return a number in its SI unit.

        Raises:
            CatalogError: The record has no such fact, or the fact is not a number.
        """
        value = self.fact(key).value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise CatalogError(
                f"{self.kind} {self.id!r}: {key} is {value!r}; a number is needed here"
            )
        return value

    def count(self, key: str) -> int:
        """Return a whole number.

        Raises:
            CatalogError: The record has no such fact, or the fact is not a whole number.
        """
        value = self.value(key)
        if value != int(value):
            raise CatalogError(f"{self.kind} {self.id!r}: {key} is {value!r}; not a whole number")
        return int(value)

    def text(self, key: str) -> str:
        """Return a word.

        Raises:
            CatalogError: The record has no such fact, or the fact is not a word.
        """
        value = self.fact(key).value
        if not isinstance(value, str):
            raise CatalogError(
                f"{self.kind} {self.id!r}: {key} is {value!r}; a word is needed here"
            )
        return value

    @overload
    def get(self, key: str) -> Scalar | None: ...
    @overload
    def get(self, key: str, default: _Default) -> Scalar | _Default: ...
    def get(self, key: str, default: _Default | None = None) -> Scalar | _Default | None:
        """Return a fact's value, or `default` when the record has none."""
        return self.facts[key].value if key in self.facts else default

    def values(self) -> dict[str, Scalar]:
        """Return every value by name, without sources."""
        return {key: fact.value for key, fact in self.facts.items()}


REQUIRED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "device": ("mem_bytes", "mem_bytes_per_s", "tdp_w"),
        "server": ("mem_bytes", "peak_w", "idle_w", "host_idle_w", "nic_bytes_per_s", "price_usd"),
        "model": ("num_layers", "hidden_size", "num_heads", "num_kv_heads", "head_dim",
                  "ffn_size", "vocab_size", "max_context_tok", "attention"),
        "engine": ("inputs", "outputs", "f_cycle_hz", "t_reload_s", "engines"),
    }
)  # fmt: skip
"""Facts without which a record of the kind cannot be simulated."""

REFERENCES: Mapping[str, str] = MappingProxyType({"device": "device", "engine": "engine"})
"""Facts of a server that name a record of another kind."""

_UNIT_OF_SUFFIX = {
    "_usd_per_kw_month": "usd/kW/month", "_usd_per_mw_year": "usd/MW/year",
    "_usd_per_kwh": "usd/kWh", "_usd_per_hour": "usd/h", "_usd_per_byte": "usd/byte",
    "_usd_per_w": "usd/W", "_usd_per_eur": "1", "_usd_per_gbp": "1",
    "_eur_per_kwh": "eur/kWh", "_gbp_per_kwh": "gbp/kWh", "_g_per_kwh": "g/kWh",
    "_bytes_per_s": "byte/s", "_flop_per_s": "flop/s", "_op_per_s": "op/s",
    "_op_per_s_per_engine": "op/s", "_tok_per_s": "tok/s", "_op_per_j": "op/J",
    "_j_per_bit": "J/bit", "_j_per_mac": "J/MAC", "_j_per_flop": "J/flop", "_j_per_tok": "J/tok",
    "_flop_per_j": "flop/J", "_db_per_hz": "dB/Hz",
    "_bytes_per_tok": "byte/tok", "_bytes_per_tok_bf16": "byte/tok",
    "_electrons": "electron", "_bits": "bit", "_enob": "bit", "_bytes": "byte", "_tok": "tok",
    "_hz": "Hz", "_db": "dB", "_years": "year", "_usd": "usd", "_frac": "1", "_ratio": "1",
    "_factor": "1", "_sigma": "1", "_count": "1", "_s": "s", "_j": "J", "_w": "W", "_m": "m",
}  # fmt: skip
_SUFFIXES = sorted(_UNIT_OF_SUFFIX, key=len, reverse=True)
_BARE_UNITS = frozenset({"1", "enum", "bool", "id", "text", "photon", "op/J"})
_WORD_UNITS = frozenset({"enum", "id", "text"})
_IDENTIFIER = re.compile(r"[a-z0-9]+(?:[.-][a-z0-9]+)*")
_KEY = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
_FACT_KEYS = frozenset({"value", "unit", "status", "source", "src", "date", "range", "note"})


def unit_of(key: str) -> str | None:
    """Return the unit a fact's name promises by its ending, or None when it promises none."""
    for suffix in _SUFFIXES:
        if key.endswith(suffix) or key == suffix[1:]:
            return _UNIT_OF_SUFFIX[suffix]
    return None


def _checked_unit(key: str, unit: object, where: str) -> str:
    promised = unit_of(key)
    if not isinstance(unit, str) or not unit:
        raise CatalogError(f"{where}: no unit; allowed: an SI unit, or '1' for none")
    if promised is not None and unit != promised:
        raise CatalogError(f"{where}: unit {unit!r} contradicts the name; allowed: {promised!r}")
    if promised is None and unit not in _BARE_UNITS:
        raise CatalogError(f"{where}: the name must end in its unit {unit!r}")
    return unit


def _checked_value(value: object, unit: str, where: str) -> Scalar:
    if isinstance(value, bool):
        if unit == "bool":
            return value
    elif isinstance(value, str):
        if value and (unit in _WORD_UNITS or value == "ideal"):
            return value
    elif isinstance(value, int | float):
        if math.isfinite(value) and unit not in _WORD_UNITS | {"bool"}:
            return value
    elif isinstance(value, list) and value:
        return tuple(_number(item, where) for item in value)
    raise CatalogError(f"{where}: value {value!r} with unit {unit!r}; allowed: a finite number, "
                       "a word with unit 'enum', 'id' or 'text', true or false with 'bool'")  # fmt: skip


def _number(item: object, where: str) -> float:
    if isinstance(item, bool) or not isinstance(item, int | float) or not math.isfinite(item):
        raise CatalogError(f"{where}: {item!r} in a list; allowed: finite numbers")
    return item


def _checked_range(limits: object, value: Scalar, where: str) -> tuple[float, float] | None:
    if limits is None:
        return None
    if not isinstance(limits, list) or len(limits) != 2:  # two ends of a range
        raise CatalogError(f"{where}: range {limits!r}; allowed: [low, high]")
    low, high = (_number(end, where) for end in limits)
    inside = isinstance(value, str) or not isinstance(value, int | float) or low <= value <= high
    if low > high or not inside:
        raise CatalogError(f"{where}: range {limits!r} is inverted or leaves out {value!r}")
    return low, high


def _checked_source(raw: Mapping[str, object], sources: Mapping[str, str], where: str) -> str:
    key, text = raw.get("src"), raw.get("source")
    if key is not None and text is not None:
        raise CatalogError(f"{where}: both src and source; allowed: one of them")
    if key is not None:
        parts = str(key).split("+")
        for part in parts:
            if part not in sources:
                hint = nearest(part, sources)
                raise CatalogError(f"{where}: src {part!r} is not under [sources]{hint}")
        return "; ".join(sources[part] for part in parts)
    if not isinstance(text, str) or not text.strip():
        raise CatalogError(f"{where}: no source; every fact says who says so")
    return text


def _checked_date(date: object, where: str) -> str:
    try:
        return dt.date.fromisoformat(str(date)).isoformat()
    except ValueError:
        raise CatalogError(f"{where}: date {date!r}; allowed: an ISO date") from None


def fact(key: str, raw: object, *, sources: Mapping[str, str], where: str) -> Fact:
    """Return the checked fact written in a record file.

    Args:
        key: Name of the fact.
        raw: Its table as read.
        sources: The file's [sources] table, for `src = "key"`.
        where: File and record, for messages.

    Raises:
        CatalogError: The fact breaks a rule; the message names it and what is allowed.
    """
    where = f"{where}: {key}"
    if not _KEY.fullmatch(key):
        raise CatalogError(f"{where}: a fact's name is lower case words joined by '_'")
    if not isinstance(raw, dict):
        raise CatalogError(f"{where}: {raw!r} is no fact; allowed: a table with value, unit, "
                           "status, source and date")  # fmt: skip
    unknown = [name for name in raw if name not in _FACT_KEYS]
    if unknown:
        raise CatalogError(f"{where}: unknown {unknown[0]!r}{nearest(unknown[0], _FACT_KEYS)}")
    if "value" not in raw:
        raise CatalogError(f"{where}: no value; leave the fact out and list it as not found")
    unit = _checked_unit(key, raw.get("unit"), where)
    value = _checked_value(raw["value"], unit, where)
    if "status" not in raw:
        raise CatalogError(f"{where}: no status; allowed: {', '.join(Status)}")
    if "date" not in raw:
        raise CatalogError(f"{where}: no date; allowed: an ISO date")
    return Fact(
        value=value,
        unit=unit,
        status=_status(raw["status"], where),
        source=_checked_source(raw, sources, where),
        date=_checked_date(raw["date"], where),
        range=_checked_range(raw.get("range"), value, where),
        note=str(raw.get("note", "")),
    )


def record(
    identifier: str, raw: object, *, kind: str, sources: Mapping[str, str], where: str
) -> Record:
    """Return the checked record written in a file.

    Args:
        identifier: Its id.
        raw: Its table as read.
        kind: The kind it belongs to.
        sources: The file's [sources] table.
        where: File, for messages.

    Raises:
        CatalogError: The record or one of its facts breaks a rule.
    """
    where = f"{where}: [{identifier}]"
    if not _IDENTIFIER.fullmatch(identifier):
        raise CatalogError(f"{where}: an id is lower case words and numbers joined by '-' or '.'")
    if not isinstance(raw, dict):
        raise CatalogError(f"{where}: {raw!r} is no record")
    rest = dict(raw)
    name = rest.pop("name", None)
    if not isinstance(name, str) or not name:
        raise CatalogError(f"{where}: no name")
    sought = rest.pop("not_found", [])
    facts = {key: fact(key, table, sources=sources, where=where) for key, table in rest.items()}
    if not facts and not sought:
        raise CatalogError(f"{where}: no facts")
    missing = _missing(kind, facts)
    return Record(
        id=identifier,
        kind=kind,
        name=name,
        facts=MappingProxyType(facts),
        missing=missing,
        unknown=tuple(str(item) for item in sought if item not in missing),
    )


def _missing(kind: str, facts: Mapping[str, Fact]) -> tuple[str, ...]:
    """Return what the kind needs to be simulated and the facts do not have."""
    needed = REQUIRED.get(kind, ())
    if kind == "server":
        owner = "engine" if "engine" in facts else "device"
        # a GPU server's memory is its devices'; an optical server's power and price follow from its engine
        derived = {"peak_w", "idle_w", "host_idle_w", "price_usd"}
        skip = {"mem_bytes"} if owner == "device" else derived
        needed = (owner, *(key for key in needed if key not in skip))
    lacking = [key for key in needed if key not in facts]
    if kind == "device" and not any(key.startswith("dense_") for key in facts):
        lacking.append("a dense peak")
    return tuple(lacking)
