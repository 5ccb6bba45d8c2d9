"""Numbers as people write them: ``128k``, ``1.5MW``, ``5..20``, ``40 %``, ``auto``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from firstlight.errors import ScenarioError

_PREFIXES = {
    "p": 1e-12, "n": 1e-9, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "m": 1e-3, "": 1.0,
    "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
}  # fmt: skip
_STEPS = (
    (1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"),
    (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"), (1e-12, "p"),
)  # fmt: skip
_NUMBER = re.compile(
    r"^\s*[×$]?\s*([+-]?(?:\d[\d_,]*\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*(.*?)\s*$", re.I
)
_SUFFIXES = {
    "W": ("w", "watt", "watts"), "s": ("s", "sec", "seconds"), "Hz": ("hz",), "J": ("j",),
    "tok": ("tok", "token", "tokens"), "%": ("%",), "usd": ("usd", "$"), "dB": ("db",),
    "bit": ("bit", "bits", "b"), "×": ("x", "×"), "g": ("g",), "op/s": ("op/s", "ops"),
}  # fmt: skip


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """A value known only between two ends.

    Attributes:
        lo: Lower end.
        hi: Upper end.
    """

    lo: float
    hi: float


Value = float | str | Range
"""What a control may say: a number in SI units, a choice, or a range."""


def si(value: float, *, digits: int = 3) -> str:
    """Return a number with `digits` significant digits and an SI prefix.

    >>> si(16384), si(0.00021), si(0)
    ('16.4k', '210µ', '0')
    """
    if not math.isfinite(value):
        return "?"
    if value == 0:
        return "0"
    size = abs(value)
    scale, prefix = next(((s, p) for s, p in _STEPS if size >= s * (1 - 5e-4)), _STEPS[-1])
    scaled = value / scale
    places = max(digits - 1 - math.floor(math.log10(max(abs(scaled), 1))), 0)
    text = f"{scaled:.{places}f}"
    if abs(float(text)) >= 1000 and scale < 1e18:
        return si(float(text) * scale, digits=digits)
    return text + prefix


def trimmed(value: float, *, digits: int = 3) -> str:
    """Return `si` without trailing zeros, for ticks and round settings."""
    text = si(value, digits=digits)
    head, tail = (text[:-1], text[-1]) if text[-1].isalpha() else (text, "")
    return (head.rstrip("0").rstrip(".") if "." in head else head) + tail


def written(value: float | None, unit: str, *, is_tick: bool = False) -> str:
    """Return a value with its unit, as short as reading allows.

    Args:
        value: In SI units (a fraction for "%"); None and nan print "?".
        unit: "s", "J", "W", "usd", "%", "tok", "×", "/s", … or "".
        is_tick: Leave trailing zeros away.
    """
    if value is None or not math.isfinite(value):
        return "?"
    number = trimmed if is_tick else si
    if unit == "%":
        return f"{value * 100:.3g}%"
    if unit == "usd":
        return _dollars(value, is_tick=is_tick)
    if unit == "×":
        return f"×{number(value)}"
    if unit in ("tok", "/s", "", "bit", "servers"):
        return number(value)
    if unit == "dB":
        return f"{value:.3g} dB"
    return f"{number(value)}{unit}"


def _dollars(value: float, *, is_tick: bool) -> str:
    sign, size = ("-" if value < 0 else ""), abs(value)
    if size and size < 0.001:
        return f"{sign}${size:.1e}"
    if size >= 1000:
        return f"{sign}${(trimmed if is_tick else si)(size)}"
    if is_tick:
        return f"{sign}${size:.3g}"
    return f"{sign}${size:.{3 if size < 0.1 else 2}f}"


def setting(value: Value, unit: str) -> str:
    """Return what a control says, ranges as ``5…20``."""
    if isinstance(value, Range):
        return f"{written(value.lo, unit, is_tick=True)}…{written(value.hi, unit, is_tick=True)}"
    if isinstance(value, str):
        return value
    return written(value, unit, is_tick=True)


def parse(text: str, unit: str) -> float:
    """Return the SI value of one typed number.

    Args:
        text: Such as ``128k``, ``1.5 MW``, ``40%``, ``10us``, ``$0.08``.
        unit: The unit that is wanted.

    Raises:
        ScenarioError: The text is no number, or carries another unit.
    """
    match = _NUMBER.match(text)
    if not match:
        msg = f"{text.strip()!r} is not a number; write for example {_example(unit)}"
        raise ScenarioError(msg)
    number = float(match.group(1).replace(",", "").replace("_", ""))
    scale = _scale(match.group(2), unit)
    if scale is None:
        msg = f"{match.group(2)!r} is not understood after {match.group(1)}; write for example {_example(unit)}"
        raise ScenarioError(msg)
    # Dividing by a power of ten is rounded once, so that 5us is the float nearest to 5e-6.
    value = number * scale if scale >= 1 else number / round(1 / scale)
    if not math.isfinite(value):
        msg = f"{text.strip()!r} is not finite; write for example {_example(unit)}"
        raise ScenarioError(msg)
    return value


def _scale(suffix: str, unit: str) -> float | None:
    names = _SUFFIXES.get(unit, ())
    if unit == "%":
        # A bare number above one can only be a percentage; 0.4 and 40 and 40% are the same.
        return 0.01 if suffix in ("", "%") else None
    for name in sorted(names, key=len, reverse=True):
        if suffix.lower().endswith(name):
            head = suffix[: len(suffix) - len(name)].strip()
            if head in _PREFIXES:
                return _PREFIXES[head]
    return _PREFIXES.get(suffix)


def _example(unit: str) -> str:
    examples = {"W": "1.5MW", "s": "10us", "Hz": "1GHz", "%": "40%", "tok": "128k", "usd": "0.08",
                "dB": "30dB", "bit": "8", "×": "1.5"}  # fmt: skip
    one = examples.get(unit, "12.5")
    return f"{one} or a range such as 5..20" if unit in ("×", "usd") else one


def parse_value(text: str, unit: str) -> float | Range:
    """Return a typed number or range.

    Args:
        text: A number, or two joined by ``..`` or ``…``; the first may leave its unit to the second.
        unit: The unit that is wanted.

    Raises:
        ScenarioError: Not a number, not a range, or a range whose ends are equal.
    """
    parts = re.split(r"\.{2,3}|…|\bto\b", text)
    if len(parts) == 1:
        return parse(text, unit)
    if len(parts) != 2 or not all(p.strip() for p in parts):
        msg = f"{text.strip()!r} is not a range; write two numbers, such as 5..20"
        raise ScenarioError(msg)
    first, second = parts
    high = parse(second, unit)
    tail = _NUMBER.match(second)
    bare = _NUMBER.match(first)
    borrowed = tail.group(2) if tail and bare and not bare.group(2) else ""
    low = parse(first.strip() + borrowed, unit)
    if low == high:
        msg = f"{text.strip()!r} has no width; write one number instead"
        raise ScenarioError(msg)
    return Range(min(low, high), max(low, high))
