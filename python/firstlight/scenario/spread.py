"""A number that is not known: a range, or a distribution, as files and commands write it.

Forms: ``"5..20"`` (spread evenly, or over more than a decade evenly in its logarithm),
``"lognormal(median=10us, sigma=1)"``, and in TOML or Python also
``{ dist = "lognormal", median = "10 us", sigma = 1 }``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from firstlight.errors import ScenarioError, nearest, written

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    F64 = NDArray[np.float64]

Kind = Literal["uniform", "loguniform", "normal", "lognormal", "triangular"]
NEEDS: dict[str, tuple[str, ...]] = {
    "uniform": ("low", "high"),
    "loguniform": ("low", "high"),
    "normal": ("mean", "std"),
    "lognormal": ("median", "sigma"),
    "triangular": ("low", "mode", "high"),
}
PLAIN = frozenset({"sigma"})
"""Parameters without the unit of the value they spread."""
DECADE = 10.0
TAIL = 1e-4
"""Normal tails are cut here, so that one draw in ten thousand cannot leave what is possible."""
RANGE = re.compile(r"\s*(.+?)\s*\.\.\s*(.+?)\s*")
_NAMED = re.compile(r"\s*(?P<kind>[a-z]+)\s*\((?P<rest>[^)]*)\)\s*")

Number = Callable[[object, str], float]
"""From a parameter as written and its name to a number in SI units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A number that is not known.

    Attributes:
        kind: Shape.
        parameters: Its parameters by name, in SI units.
    """

    kind: Kind
    parameters: dict[str, float]

    @property
    def center(self) -> float:
        """The one value taken where one has to be: the median, for a triangle its mode."""
        p = self.parameters
        if self.kind == "uniform":
            return (p["low"] + p["high"]) / 2
        if self.kind == "loguniform":
            return math.sqrt(p["low"] * p["high"])
        return p[{"normal": "mean", "lognormal": "median", "triangular": "mode"}[self.kind]]

    @property
    def ends(self) -> tuple[float, float]:
        """Lowest and highest value that is drawn."""
        import numpy as np

        if "low" in self.parameters:
            return self.parameters["low"], self.parameters["high"]
        low, high = self.at(np.array([0.0, 1.0]))
        return float(low), float(high)

    def at(self, quantile: F64) -> F64:
        """Return the values at quantiles between 0 and 1, any shape."""
        import numpy as np

        u = np.clip(quantile, 0.0, 1.0)
        p = self.parameters
        if self.kind == "uniform":
            even: F64 = p["low"] + u * (p["high"] - p["low"])
            return even
        if self.kind == "loguniform":
            logs = math.log(p["low"]) + u * (math.log(p["high"]) - math.log(p["low"]))
            return np.clip(np.exp(logs), p["low"], p["high"])
        if self.kind == "triangular":
            return _triangular(u, p["low"], p["mode"], p["high"])
        deviate = _normal(np.clip(u, TAIL, 1.0 - TAIL))
        if self.kind == "normal":
            return p["mean"] + p["std"] * deviate
        return p["median"] * np.exp(p["sigma"] * deviate)

    def document(self) -> dict[str, float | str]:
        """Return it as TOML writes it; `read` gives an equal one."""
        return {"dist": self.kind, **self.parameters}


def _triangular(u: F64, low: float, mode: float, high: float) -> F64:
    import numpy as np

    split = (mode - low) / (high - low)
    rising = low + np.sqrt(u * (high - low) * (mode - low))
    falling = high - np.sqrt((1.0 - u) * (high - low) * (high - mode))
    return np.where(u < split, rising, falling)


def _normal(u: F64) -> F64:
    """Return standard normal quantiles."""
    from statistics import NormalDist

    import numpy as np

    inverse = np.vectorize(NormalDist().inv_cdf, otypes=[float])
    deviates: F64 = inverse(u)
    return deviates


def is_spread(given: object) -> bool:
    """Return whether a value is written as a range or a distribution."""
    if isinstance(given, Mapping):
        return "dist" in given
    return isinstance(given, str) and (".." in given or _NAMED.fullmatch(given) is not None)


def read(given: object, *, number: Number) -> Spread:
    """Return a range or a distribution.

    Args:
        given: As written.
        number: Reads one parameter.

    Raises:
        ScenarioError: It is none, a range is inverted, or a parameter impossible; the message has no
            place yet.
    """
    if isinstance(given, Mapping):
        return _distribution(given, number=number)
    text = given if isinstance(given, str) else ""
    named = _NAMED.fullmatch(text)
    if named is not None:
        pairs = [item.partition("=") for item in named["rest"].split(",")]
        if not all(sign for _, sign, _ in pairs):
            raise ScenarioError(f"{text!r}; allowed: {named['kind']}(name=value, …)")
        parameters = {name.strip(): value.strip() for name, _, value in pairs}
        return _distribution({"dist": named["kind"], **parameters}, number=number)
    match = RANGE.fullmatch(text)
    if match is None:
        raise ScenarioError(f"{written(given)}; allowed: 'low..high' or a table with dist")
    low, high = number(match[1], "low"), number(match[2], "high")
    if low > high:
        raise ScenarioError(f"{text!r} is inverted; allowed: 'low..high'")
    kind: Kind = "loguniform" if low > 0 and high / low > DECADE else "uniform"
    return Spread(kind=kind, parameters={"low": low, "high": high})


def _distribution(given: Mapping[str, object], *, number: Number) -> Spread:
    kind = given.get("dist")
    if kind not in NEEDS:
        hint = nearest(str(kind), NEEDS)
        raise ScenarioError(f"dist = {written(kind)}; allowed: {', '.join(NEEDS)}{hint}")
    needs = NEEDS[str(kind)]
    extra = set(given) - set(needs) - {"dist"}
    if extra or any(name not in given for name in needs):
        raise ScenarioError(f"{written(given)}; a {kind} distribution takes {', '.join(needs)}")
    values = {name: number(given[name], name) for name in needs}
    if not all(math.isfinite(value) for value in values.values()):
        raise ScenarioError(f"{written(given)}; allowed: finite numbers")
    if "low" in values:
        if not values["low"] < values["high"]:
            same = values["low"] == values["high"]
            raise ScenarioError(
                f"{values['low']:g}..{values['high']:g} is {'empty' if same else 'inverted'}; "
                "allowed: low < high"
            )
        if kind == "loguniform" and values["low"] <= 0:
            raise ScenarioError(f"loguniform from {values['low']:g}; allowed: above 0")
        if "mode" in values and not values["low"] <= values["mode"] <= values["high"]:
            raise ScenarioError(f"mode {values['mode']:g} is outside low..high")
    spread = values.get("std", values.get("sigma", 1.0))
    if spread <= 0 or values.get("median", 1.0) <= 0:
        raise ScenarioError(f"{written(given)}; allowed: std, sigma and median above 0")
    return Spread(kind=cast("Kind", kind), parameters=values)
