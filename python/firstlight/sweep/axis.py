"""What is varied: grids, lists and distributions written as text, one axis a field.

Forms of a value: ``1e5..1e7:log:9`` and ``0..1:lin:5`` (a grid), ``1,2,4`` (a list), ``5..20`` (a
range, sampled evenly or, over more than a decade, evenly in its logarithm), and
``lognormal(median=10us, sigma=1)``, in Python also ``{"dist": "lognormal", "median": 1e-5, "sigma":
1.0}``. Numbers may carry units.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from firstlight import units
from firstlight.errors import ScenarioError, UnitError, written
from firstlight.scenario.spread import Spread, is_spread, read

if TYPE_CHECKING:
    from numpy.typing import NDArray

    F64 = NDArray[np.float64]

Value = float | str
_SPAN = re.compile(
    r"\s*(?P<low>.+?)\s*\.\.\s*(?P<high>[^:]+?)\s*(?::(?P<kind>log|lin):(?P<n>[0-9]+))?\s*"
)
MOST_VALUES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A field and the values it takes, one after the other.

    Attributes:
        field: Name as `Scenario.replace` takes it.
        values: Its values.
    """

    field: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution(Spread):
    """A field whose value is not known.

    Attributes:
        field: Name as `Scenario.replace` takes it.
    """

    field: str

    @classmethod
    def of(cls, field: str, spread: Spread) -> Distribution:
        """Return a spread as that of a field."""
        return cls(field=field, kind=spread.kind, parameters=spread.parameters)

    @property
    def span(self) -> tuple[float, float]:
        """Lowest and highest value that is drawn."""
        return self.ends


def number(text: str, *, field: str) -> float:
    """Return a number with or without a unit, in SI.

    Raises:
        ScenarioError: It is none.
    """
    try:
        # float() also takes the digits of other scripts
        value = float(text) if text.isascii() else None
    except ValueError:
        value = None
    if value is not None:
        if not math.isfinite(value):
            raise ScenarioError(f"{field}: {text!r} is not allowed; a finite number")
        return value
    match = re.fullmatch(r"\s*([+-]?[0-9._]+(?:[eE][+-]?[0-9]+)?)\s*(.+?)\s*", text)
    if match is not None:
        for unit in ("s", "W", "Hz", "J", "byte", "tok", "$", "$/kWh", "1", "dB"):
            try:
                return units.parse(text, unit)
            except UnitError:
                continue
    raise ScenarioError(f"{field}: {text!r} is no number; allowed: 5, 1e5, '10 us', '1 MW'")


def axis(field: str, given: object) -> Axis | Distribution:
    """Return what a field is varied over.

    Args:
        field: Name as `Scenario.replace` takes it.
        given: Text in one of the forms of this file, a number, a list, or a dict with ``dist``.

    Raises:
        ScenarioError: The form is unknown, a range empty or inverted, a parameter impossible.
    """
    if isinstance(given, Mapping):
        return _drawn(field, given)
    if isinstance(given, str):
        return _text(field, given)
    if isinstance(given, Iterable):
        values = tuple(_plain(field, item) for item in given)
        if not values:
            raise ScenarioError(f"{field}: an empty list; allowed: at least one value")
        return Axis(field=field, values=values)
    return Axis(field=field, values=(_plain(field, given),))


def _plain(field: str, item: object) -> Value:
    if isinstance(item, str):
        return item
    if isinstance(item, bool) or not isinstance(item, int | float | np.number):
        raise ScenarioError(f"{field}: {written(item)}; allowed: numbers and words")
    value = float(item)
    if not math.isfinite(value):
        raise ScenarioError(f"{field}: {written(item)}; allowed: finite numbers")
    return value


def _text(field: str, text: str) -> Axis | Distribution:
    if ".." not in text and is_spread(text):
        return _drawn(field, text)
    match = _SPAN.fullmatch(text)
    if match is None:
        if ".." in text:
            raise ScenarioError(
                f"{field}: {text!r}; allowed: 'low..high', 'low..high:log:N', 'low..high:lin:N'"
            )
        words = [word.strip() for word in text.split(",")]
        if not all(words):
            raise ScenarioError(f"{field}: {text!r} has an empty value; allowed: 'a,b,c'")
        return Axis(field=field, values=tuple(_word(field, word) for word in words))
    low = number(match["low"], field=field)
    high = number(match["high"], field=field)
    _ordered(field, low, high)
    if match["n"] is None:
        return _drawn(field, f"{low!r}..{high!r}")
    count = int(match["n"])
    if not 1 <= count <= MOST_VALUES:
        raise ScenarioError(f"{field}: {count} values; allowed: 1 to {MOST_VALUES}")
    if match["kind"] == "log":
        if low <= 0:
            raise ScenarioError(f"{field}: a logarithmic grid from {low:g}; allowed: above 0")
        grid = np.geomspace(low, high, count)
    else:
        grid = np.linspace(low, high, count)
    return Axis(field=field, values=tuple(float(value) for value in grid))


def _word(field: str, word: str) -> Value:
    try:
        return number(word, field=field)
    except ScenarioError:
        return word


def _ordered(field: str, low: float, high: float) -> None:
    if not low < high:
        kind = "empty" if low == high else "inverted"
        raise ScenarioError(f"{field}: {low:g}..{high:g} is {kind}; allowed: low < high")


def _drawn(field: str, given: object) -> Distribution:
    def one(raw: object, name: str) -> float:
        if isinstance(raw, str):
            return number(raw, field=field)
        if isinstance(raw, bool) or not isinstance(raw, int | float | np.number):
            raise ScenarioError(f"{name} = {written(raw)} is no number")
        return float(raw)

    try:
        made = read(given, number=one)
    except ScenarioError as error:
        said = str(error)
        raise ScenarioError(said if said.startswith(f"{field}:") else f"{field}: {said}") from None
    return Distribution.of(field, made)


def parse_over(items: Iterable[str]) -> dict[str, str]:
    """Return ``FIELD=FORM`` words as a mapping.

    Raises:
        ScenarioError: A word has no ``=``, or a field comes twice.
    """
    found: dict[str, str] = {}
    for item in items:
        field, sign, form = item.partition("=")
        if not sign or not field.strip() or not form.strip():
            raise ScenarioError(f"{item!r}; allowed: FIELD=VALUES, such as power_w=1e5..1e7:log:9")
        if field.strip() in found:
            raise ScenarioError(f"{field.strip()!r} is given twice")
        found[field.strip()] = form.strip()
    return found
