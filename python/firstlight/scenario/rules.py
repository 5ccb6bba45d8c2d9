"""What each field of a scenario may hold, and the errors that say so."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from firstlight import catalog, units
from firstlight.errors import CatalogError, ScenarioError, UnitError, choices, nearest, written
from firstlight.scenario.locate import Path, dotted, line_of

Document = dict[str, object]
"""What TOML gives: tables, lists, words and numbers."""

WEIGHT_FORMATS = ("bf16", "fp16", "fp8", "nvfp4", "mxfp4", "int8", "int4")
KV_FORMATS = ("bf16", "fp16", "fp8")
BOUNDARIES = ("engine", "board", "server", "facility")
PRESETS = ("chat", "rag", "agentic", "code", "reasoning")
TRACES = ("azure-2023-conv", "azure-2023-code")
ROLES = ("prefill", "decode", "both")
TENSOR_PARALLEL = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The file a scenario comes from, so that an error names file and line.

    Attributes:
        file: Its name; "scenario" when it was made in Python.
        text: Its text, empty when it was made in Python.
    """

    file: str = "scenario"
    text: str = ""

    def error(self, path: Path, message: str) -> ScenarioError:
        """Return the error for one key: file, line, key path, and the message.

        Args:
            path: Key path of what is wrong.
            message: What was given and what is allowed.
        """
        line = line_of(self.text, path) if self.text else None
        place = f"{self.file}:{line}" if line else self.file
        at = f" {dotted(path)}:" if path else ""
        return ScenarioError(f"{place}:{at} {message}")


def shown(given: object) -> str:
    """Return a value as an error shows it: on one line, and not too long of it."""
    text = written(given)
    return text if len(text) <= 60 else f"{text[:57]}…"  # most of a line


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What one field may hold.

    Attributes:
        unit: Unit of a number, "1" for none; None when the field is a word.
        low: Smallest number allowed.
        high: Largest number allowed.
        above: Whether `low` itself is refused.
        below: Whether `high` itself is refused.
        whole: Whether the number must be whole.
        infinite: Whether infinity is allowed.
        words: Words allowed; any word when empty and `unit` is None.
        numbers: The only numbers allowed, or empty.
        optional: Whether the field may be left out without a default.
    """

    unit: str | None = None
    low: float = 0.0
    high: float = math.inf
    above: bool = False
    below: bool = False
    whole: bool = False
    infinite: bool = False
    words: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    optional: bool = False

    @property
    def allowed(self) -> str:
        """What the field may hold, in words."""
        parts = [f"{word!r}" for word in self.words] + [str(number) for number in self.numbers]
        if self.unit is not None and not self.numbers:
            start = "above" if self.above else "at least"
            end = (
                ""
                if math.isinf(self.high)
                else f" and {'below' if self.below else 'at most'} {self.high:g}"
            )
            noun = "a whole number" if self.whole else "a number"
            inside = "" if self.unit == "1" else f" in {units.examples(self.unit)}"
            parts.append(f"{noun}{inside}, {start} {self.low:g}{end}")
        return (
            " or ".join(parts) if len(parts) < 3 else ", ".join(parts)
        )  # a list reads better with commas

    def check(self, given: object, *, path: Path, where: Where) -> float | int | str:
        """Return the value in SI units.

        Args:
            given: What was written: a number, a quantity such as "1 MW", or a word.
            path: Key path, for the error.
            where: File, for the error.

        Raises:
            ScenarioError: The value is not allowed.
        """
        if isinstance(given, str) and (given in self.words or self.unit is None):
            if self.unit is None and self.words and given not in self.words:
                hint = nearest(given, self.words)
                raise where.error(path, f"{shown(given)}; allowed: {self.allowed}{hint}")
            if not given.strip():
                raise where.error(path, f"{shown(given)}; allowed: {self.allowed or 'a word'}")
            return given
        # a count is written as a number: 1, not "1"
        is_text = isinstance(given, str) and self.whole and self.unit == "1"
        kind = bool if is_text else (int | float | str)
        if self.unit is None or isinstance(given, bool) or not isinstance(given, kind):
            raise where.error(path, f"{shown(given)}; allowed: {self.allowed or 'a word'}")
        return self._number(given, path=path, where=where)

    def _number(self, given: float | str, *, path: Path, where: Where) -> float | int:
        try:
            # a whole number stays one: a float has no room for every 64-bit seed
            if self.whole and isinstance(given, int):
                value: float = given
            else:
                value = units.parse(given, self.unit or "1")
        except (UnitError, OverflowError) as error:
            why = str(error) if isinstance(error, UnitError) and not self.words else ""
            raise where.error(path, why or f"{shown(given)}; allowed: {self.allowed}") from None
        outside = (
            value != value  # NaN; math.isnan fails on a huge int
            or (value == math.inf and not self.infinite)
            or not self.low <= value <= self.high
            or (self.above and value == self.low)
            or (self.below and value == self.high)
            or (self.whole and value != int(value))
            or (self.numbers and value not in self.numbers)
        )
        if outside:
            raise where.error(path, f"{shown(given)}; allowed: {self.allowed}")
        return int(value) if self.whole else value


_FRACTION = Rule(unit="1", high=1.0)

WORKLOAD: Mapping[str, Rule] = MappingProxyType(
    {
        "preset": Rule(words=PRESETS, optional=True),
        "trace": Rule(optional=True),
        "context_tok": Rule(unit="tok", low=1, high=1e8, whole=True, optional=True),
        "output_tok": Rule(unit="tok", low=1, high=1e8, whole=True, optional=True),
        "cached_frac": Rule(unit="1", high=1.0, below=True),
        "correlation_s": Rule(unit="s", infinite=True),
        "shared_prefix_tok": Rule(unit="tok", high=1e8, whole=True),
    }
)
PRECISION: Mapping[str, Rule] = MappingProxyType(
    {"weights": Rule(words=WEIGHT_FORMATS), "kv": Rule(words=KV_FORMATS)}
)
SLO: Mapping[str, Rule] = MappingProxyType(
    {
        "ttft_s": Rule(unit="s", above=True, high=1e6),
        "tpot_s": Rule(unit="s", above=True, high=1e6),
        "quantile": Rule(unit="1", above=True, high=1.0, below=True),
    }
)
FACILITY: Mapping[str, Rule] = MappingProxyType(
    {
        "power_w": Rule(unit="W", above=True, high=1e12),
        "boundary": Rule(words=BOUNDARIES),
        "pue": Rule(unit="1", low=1.0, high=10.0),
        "electricity_usd_per_kwh": Rule(unit="usd/kWh", above=True, high=100.0),
        "carbon_g_per_kwh": Rule(unit="g/kWh", high=1e4),
        "rack_power_w": Rule(unit="W", above=True, high=1e9, optional=True),
    }
)
POLICY: Mapping[str, Rule] = MappingProxyType(
    {
        "batching": Rule(words=("vllm-v1",)),
        "chunk_tok": Rule(unit="tok", low=16, high=1e6, whole=True, words=("auto",)),
        "disaggregate": Rule(words=("never", "always", "conditional")),
        "local_below_tok": Rule(unit="tok", low=1, high=1e8, whole=True, optional=True),
    }
)
POOL: Mapping[str, Rule] = MappingProxyType(
    {
        "role": Rule(words=ROLES),
        "server": Rule(),
        "share": Rule(unit="1", above=True, high=1.0, words=("auto",)),
        "count": Rule(unit="1", low=1, high=1e7, whole=True, optional=True),
        "tp": Rule(unit="1", whole=True, words=("auto",), numbers=TENSOR_PARALLEL),
    }
)
TOP: Mapping[str, Rule] = MappingProxyType(
    {
        "schema": Rule(unit="1", whole=True, numbers=(1,)),
        "name": Rule(),
        "first_token": Rule(words=("prefill", "decode")),
        "seed": Rule(unit="1", high=2**63 - 1, whole=True),
    }
)
SECTIONS: Mapping[str, Mapping[str, Rule]] = MappingProxyType(
    {"precision": PRECISION, "workload": WORKLOAD, "slo": SLO, "facility": FACILITY}
)
SERVERS_INSTALLED = Rule(unit="1", low=1, high=1e7, whole=True)


def table(given: object, *, path: Path, where: Where, allowed: Iterable[str]) -> dict[str, object]:
    """Return a table whose keys are all known.

    Args:
        given: What was written.
        path: Key path of the table.
        where: File, for the error.
        allowed: Names of the keys it may have.

    Raises:
        ScenarioError: It is no table, or a key is unknown; the message names the nearest.
    """
    names = list(allowed)
    if not isinstance(given, Mapping):
        raise where.error(path, f"{shown(given)}; allowed: a table with {', '.join(names)}")
    for key in given:
        if key not in names:
            hint = choices(str(key), names)
            raise where.error((*path, str(key)), f"unknown key{hint}")
    return dict(given)


def known_record(identifier: object, *, kind: str, path: Path, where: Where) -> catalog.Record:
    """Return a catalog record; an unknown id is the scenario's error.

    Args:
        identifier: Its id as written.
        kind: Its kind.
        path: Key path, for the error.
        where: File, for the error.

    Raises:
        ScenarioError: There is no such record; the message names the nearest.
    """
    if not isinstance(identifier, str):
        raise where.error(path, f"{shown(identifier)}; allowed: a {kind} id")
    try:
        return catalog.get(identifier, kind=kind)
    except CatalogError as error:
        raise where.error(path, str(error)) from None
