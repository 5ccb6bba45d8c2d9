"""Quantities as people write them ("50 kW", "0.08 $/kWh") and as code holds them (SI floats).

Nobody else in the package knows a prefix or converts a unit. `parse` checks that the unit given has
the dimension of the unit expected; `format_si` prints a number with the prefix that fits it.
Physical constants are exact (SI 2019).

Source: BIPM, The International System of Units, 9th edition (2019).
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import cache
from typing import NamedTuple

from firstlight.errors import UnitError, nearest

PLANCK_J_S = 6.62607015e-34
LIGHT_SPEED_M_PER_S = 299_792_458.0
ELEMENTARY_CHARGE_C = 1.602176634e-19
BOLTZMANN_J_PER_K = 1.380649e-23

HOUR_S = 3600.0
DAY_S = 86_400.0
YEAR_S = 365.25 * DAY_S
MONTH_S = YEAR_S / 12
KWH_J = 3.6e6

# fractions, so that "10 us" is the float nearest to 1e-5 and not a rounded product
_PREFIXES = {
    prefix: Fraction(power)
    for prefix, power in {
        "f": "1e-15", "p": "1e-12", "n": "1e-9", "u": "1e-6", "µ": "1e-6", "μ": "1e-6",
        "m": "1e-3", "k": "1e3", "M": "1e6", "G": "1e9", "T": "1e12", "P": "1e15", "E": "1e18",
    }.items()
}  # fmt: skip
_BINARY = {
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
}


class _Unit(NamedTuple):
    scale: Fraction
    dims: tuple[tuple[str, int], ...]


def _dims(**powers: int) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, power) for name, power in powers.items() if power))


_PREFIXED = {
    "W": _Unit(Fraction(1), _dims(joule=1, second=-1)),
    "J": _Unit(Fraction(1), _dims(joule=1)),
    "Wh": _Unit(Fraction(3600), _dims(joule=1)),
    "s": _Unit(Fraction(1), _dims(second=1)),
    "Hz": _Unit(Fraction(1), _dims(second=-1)),
    "m": _Unit(Fraction(1), _dims(metre=1)),
    "g": _Unit(Fraction(1), _dims(gram=1)),
    "B": _Unit(Fraction(1), _dims(byte=1)),
    "b": _Unit(Fraction(1, 8), _dims(byte=1)),
    "bit": _Unit(Fraction(1, 8), _dims(byte=1)),
    "FLOP": _Unit(Fraction(1), _dims(flop=1)),
    "flop": _Unit(Fraction(1), _dims(flop=1)),
    "OP": _Unit(Fraction(1), _dims(op=1)),
    "op": _Unit(Fraction(1), _dims(op=1)),
    "MAC": _Unit(Fraction(1), _dims(mac=1)),
    "tok": _Unit(Fraction(1), _dims(tok=1)),
    "$": _Unit(Fraction(1), _dims(usd=1)),
    "usd": _Unit(Fraction(1), _dims(usd=1)),
    "photon": _Unit(Fraction(1), _dims(photon=1)),
    "electron": _Unit(Fraction(1), _dims(electron=1)),
}
_PLAIN = {
    "1": _Unit(Fraction(1), ()),
    "%": _Unit(Fraction(1, 100), ()),
    "x": _Unit(Fraction(1), ()),
    "byte": _Unit(Fraction(1), _dims(byte=1)),
    "bytes": _Unit(Fraction(1), _dims(byte=1)),
    "token": _Unit(Fraction(1), _dims(tok=1)),
    "tokens": _Unit(Fraction(1), _dims(tok=1)),
    "min": _Unit(Fraction(60), _dims(second=1)),
    "h": _Unit(Fraction(HOUR_S), _dims(second=1)),
    "hour": _Unit(Fraction(HOUR_S), _dims(second=1)),
    "d": _Unit(Fraction(DAY_S), _dims(second=1)),
    "day": _Unit(Fraction(DAY_S), _dims(second=1)),
    "month": _Unit(Fraction(MONTH_S), _dims(second=1)),
    "year": _Unit(Fraction(YEAR_S), _dims(second=1)),
    "years": _Unit(Fraction(YEAR_S), _dims(second=1)),
    "request": _Unit(Fraction(1), _dims(request=1)),
    "req": _Unit(Fraction(1), _dims(request=1)),
    "dB": _Unit(Fraction(1), _dims(decibel=1)),
    "USD": _Unit(Fraction(1), _dims(usd=1)),
}

_WRITTEN = {"byte": "B", "flop": "FLOP", "op": "OP", "usd": "$"}
_SCALABLE = frozenset(
    {"W", "J", "s", "Hz", "m", "byte", "byte/s", "bit", "bit/s", "flop", "flop/s", "op/s", "op/J",
     "J/bit", "J/MAC", "J/flop", "J/op", "J/tok", "J/request", "tok", "tok/s", "flop/J"}
)  # fmt: skip
_SI_STEPS = (
    (1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""),
    (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"), (1e-12, "p"), (1e-15, "f"), (1e-18, "a"),
)  # fmt: skip

_LARGEST, _SMALLEST = 1e100, 1e-100
"""Beyond these a quantity is a slip of the pen, and exact arithmetic on it would be slow."""
_NUMBER = re.compile(
    r"\s*([+-]?(?:[0-9]+(?:_[0-9]+)*\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?)\s*(.*?)\s*"
)


def _word(word: str) -> _Unit | None:
    """Return the unit of one word ("kW", "GiB", "month"), or None."""
    if word in _PLAIN:
        return _PLAIN[word]
    if word in _PREFIXED:
        return _PREFIXED[word]
    for table in (_BINARY, _PREFIXES):
        for prefix, scale in table.items():
            base = _PREFIXED.get(word.removeprefix(prefix)) if word.startswith(prefix) else None
            if base is not None and (table is _PREFIXES or base.dims == _dims(byte=1)):
                return _Unit(scale * base.scale, base.dims)
    return None


@cache
def _unit(text: str) -> _Unit | None:
    """Return scale and dimension of a unit expression such as "usd/kWh" or "J/bit", or None."""
    scale, powers = Fraction(1), dict[str, int]()
    for position, word in enumerate(text.split("/")):
        unit = _word(word.strip())
        if unit is None:
            return None
        sign = -1 if position else 1
        scale = scale * unit.scale if sign > 0 else scale / unit.scale
        for name, power in unit.dims:
            powers[name] = powers.get(name, 0) + sign * power
    return _Unit(scale, _dims(**powers))


def examples(unit: str) -> str:
    """Return how a quantity of this unit may be written, for an error message.

    Args:
        unit: The unit code holds it in, such as "W" or "usd/kWh".
    """
    known = {
        "W": "W, kW or MW", "s": "ns, us, ms, s, min or h", "byte": "B, kB, MB, GB or GiB",
        "byte/s": "GB/s, TB/s or Gb/s", "Hz": "Hz, kHz, MHz or GHz", "tok": "tok or ktok",
        "usd/kWh": "$/kWh or $/MWh", "usd": "$, k$ or M$", "1": "a plain number or %",
        "J": "pJ, nJ, J, kJ or kWh", "g/kWh": "g/kWh or kg/MWh",
    }  # fmt: skip
    return known.get(unit, unit)


def parse(given: float | str, unit: str) -> float:
    """Return a quantity in `unit`.

    Args:
        given: A number, taken to be in `unit` already, or text such as "50 kW" or "0.08 $/kWh".
        unit: The unit wanted, such as "W", "s", "byte/s", "usd/kWh", or "1" for none.

    Raises:
        UnitError: The text is no number, or its unit has another dimension.

    Example:
        >>> parse("50 kW", "W")
        50000.0
    """
    if not isinstance(given, str):
        return float(given)
    match = _NUMBER.fullmatch(given)
    if match is None:
        raise UnitError(f"{given!r} is not a quantity; allowed: a number in {examples(unit)}")
    size, written = abs(float(match[1])), match[2]
    if not size <= _LARGEST or 0 < size < _SMALLEST:
        raise UnitError(f"{given!r} is out of range; allowed: a number in {examples(unit)}")
    number = Fraction(match[1]) if size else Fraction(0)
    if not written:
        return float(number)
    want, have = _unit(unit), _unit(written)
    if want is None:
        raise UnitError(f"unit {unit!r} is unknown to firstlight.units")
    if have is None:
        hint = nearest(written, [*_PLAIN, *_PREFIXED, "kW", "MW", "GW", "ms", "us", "GB", "GHz"])
        raise UnitError(f"{given!r}: unit {written!r} is unknown; allowed: {examples(unit)}{hint}")
    if have.dims != want.dims:
        raise UnitError(f"{given!r}: {written!r} is the wrong unit; allowed: {examples(unit)}")
    return float(number * have.scale / want.scale)


def is_unit(text: str) -> bool:
    """Return whether `text` is a unit expression this module understands."""
    return _unit(text) is not None


def _digits(value: float, digits: int) -> str:
    """Return `value` with `digits` significant digits and no exponent."""
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_si(value: float | None, unit: str, digits: int = 3) -> str:
    """Return a number with its unit and the prefix that fits, such as "50 kW" or "10 µs".

    Args:
        value: The number in `unit`; None and NaN print "?", for a gap is never 0.
        unit: The unit code holds it in, such as "W"; "1" prints none.
        digits: Significant digits.

    Example:
        >>> format_si(3.35e12, "byte/s")
        '3.35 TB/s'
    """
    if value is None or math.isnan(value):
        return "?"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    rounded = float(f"{value:.{digits - 1}e}")
    head, slash, rest = unit.partition("/")
    name = _WRITTEN.get(head, head)
    if unit not in _SCALABLE or rounded == 0:
        if unit == "1":
            return _plain(rounded, digits)
        return f"{_plain(rounded, digits)} {name}{slash}{rest}"
    # rounding comes first: 999.6 W to three digits is 1 kW
    magnitude = abs(rounded) * (1 + 1e-12)
    scale, prefix = next((step for step in _SI_STEPS if magnitude >= step[0]), _SI_STEPS[-1])
    return f"{_digits(rounded / scale, digits)} {prefix}{name}{slash}{rest}"


def _plain(value: float, digits: int) -> str:
    """Return a number without a prefix; very large and very small ones with an exponent."""
    if value and not 1e-4 <= abs(value) < 1e9:
        return f"{value:.{digits}g}"
    return _digits(value, digits)
