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
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from firstlight import units
from firstlight.errors import ScenarioError, UnitError, nearest, written

if TYPE_CHECKING:
    from numpy.typing import NDArray

    F64 = NDArray[np.float64]

Value = float | str
Kind = Literal["uniform", "loguniform", "normal", "lognormal", "triangular"]
_SPAN = re.compile(
    r"\s*(?P<low>.+?)\s*\.\.\s*(?P<high>[^:]+?)\s*(?::(?P<kind>log|lin):(?P<n>[0-9]+))?\s*"
)
_NAMED = re.compile(r"\s*(?P<kind>[a-z]+)\s*\((?P<rest>[^)]*)\)\s*")
_NEEDS: dict[str, tuple[str, ...]] = {
    "uniform": ("low", "high"),
    "loguniform": ("low", "high"),
    "normal": ("mean", "std"),
    "lognormal": ("median", "sigma"),
    "triangular": ("low", "mode", "high"),
}
MOST_VALUES = 100_000
DECADE = 10.0
TAIL = 1e-4
"""Normal tails are cut here, so that one draw in ten thousand cannot leave what is possible."""


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
class Distribution:
    """A field whose value is not known.

    Attributes:
        field: Name as `Scenario.replace` takes it.
        kind: Shape.
        parameters: Its parameters by name.
    """

    field: str
    kind: Kind
    parameters: dict[str, float]

    @property
    def span(self) -> tuple[float, float]:
        """Lowest and highest value that is drawn."""
        low, high = self.at(np.array([0.0, 1.0]))
        return float(low), float(high)

    def at(self, quantile: F64) -> F64:
        """Return the values at quantiles between 0 and 1, any shape."""
        u = np.clip(quantile, 0.0, 1.0)
        p = self.parameters
        if self.kind == "uniform":
            return p["low"] + u * (p["high"] - p["low"])
        if self.kind == "loguniform":
            logs = math.log(p["low"]) + u * (math.log(p["high"]) - math.log(p["low"]))
            return np.clip(np.exp(logs), p["low"], p["high"])
        if self.kind == "triangular":
            return _triangular(u, p["low"], p["mode"], p["high"])
        deviate = _normal(np.clip(u, TAIL, 1.0 - TAIL))
        if self.kind == "normal":
            return p["mean"] + p["std"] * deviate
        return p["median"] * np.exp(p["sigma"] * deviate)


def _triangular(u: F64, low: float, mode: float, high: float) -> F64:
    split = (mode - low) / (high - low)
    rising = low + np.sqrt(u * (high - low) * (mode - low))
    falling = high - np.sqrt((1.0 - u) * (high - low) * (high - mode))
    return np.where(u < split, rising, falling)


def _normal(u: F64) -> F64:
    """Return standard normal quantiles."""
    from statistics import NormalDist

    inverse = np.vectorize(NormalDist().inv_cdf, otypes=[float])
    deviates: F64 = inverse(u)
    return deviates


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
        return _distribution(field, given)
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
    named = _NAMED.fullmatch(text)
    if named is not None:
        return _distribution(field, {"dist": named["kind"], **parse_over(named["rest"].split(","))})
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
        kind: Kind = "loguniform" if low > 0 and high / low > DECADE else "uniform"
        return Distribution(field=field, kind=kind, parameters={"low": low, "high": high})
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


def _distribution(field: str, given: Mapping[str, object]) -> Distribution:
    kind = given.get("dist")
    if kind not in _NEEDS:
        hint = nearest(str(kind), _NEEDS)
        raise ScenarioError(f"{field}: dist = {written(kind)}; allowed: {', '.join(_NEEDS)}{hint}")
    needs = _NEEDS[str(kind)]
    extra = set(given) - set(needs) - {"dist"}
    if extra or any(name not in given for name in needs):
        raise ScenarioError(
            f"{field}: {written(given)}; a {kind} distribution takes {', '.join(needs)}"
        )
    values: dict[str, float] = {}
    for name in needs:
        raw = given[name]
        values[name] = number(raw, field=field) if isinstance(raw, str) else float(str(raw))
    if "low" in values:
        _ordered(field, values["low"], values["high"])
        if kind == "loguniform" and values["low"] <= 0:
            raise ScenarioError(f"{field}: loguniform from {values['low']:g}; allowed: above 0")
        if "mode" in values and not values["low"] <= values["mode"] <= values["high"]:
            raise ScenarioError(f"{field}: mode {values['mode']:g} is outside low..high")
    spread = values.get("std", values.get("sigma", 1.0))
    if spread <= 0 or values.get("median", 1.0) <= 0:
        raise ScenarioError(f"{field}: {written(given)}; allowed: std, sigma and median above 0")
    return Distribution(field=field, kind=cast("Kind", kind), parameters=values)


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
