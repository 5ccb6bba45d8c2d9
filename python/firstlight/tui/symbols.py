"""Glyphs in three sets, for terminals whose fonts know braille, blocks or only ASCII."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Mapping

Codes = npt.NDArray[np.uint32]
"""(256,) code point for each dot mask of one cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbols:
    """One set of glyphs; every glyph is one cell wide.

    Attributes:
        name: "braille", "block" or "ascii".
        dot_columns: Dots a cell has across.
        dot_rows: Dots a cell has down.
        marks: Mark of each design.
        ghost: Mark of the pinned scenario.
        best: Before the best value of a row.
        approximate: Before a number that is not final.
        track: Slider track.
        fill: Slider track left of the thumb.
        thumb: Slider thumbs by sub-cell position, left to right.
        eighths: Bars of one to eight eighths of a cell, lying.
        levels: Bars of one to eight eighths of a cell, standing.
        shades: Densities from nothing to full, where colour may not speak.
        half: Upper half block, or "" when a cell has one colour.
        left: Arrow head.
        right: Arrow head.
        line: Horizontal line.
        bar: Vertical line.
        grid: Grid dot.
        dash: Broken vertical line.
        cross: Grid crossing.
        fold: Marks of a folded and an open group.
        verdicts: holds, partly, fails, unknown.
        cursor: Cursor on a map.
        times: Multiplication sign.
        hatch: Fill of what cannot be.
    """

    name: str
    dot_columns: int
    dot_rows: int
    marks: str
    ghost: str
    best: str
    approximate: str
    track: str
    fill: str
    thumb: str
    eighths: str
    levels: str
    shades: str
    half: str
    left: str
    right: str
    line: str
    bar: str
    grid: str
    dash: str
    cross: str
    fold: str
    verdicts: str
    cursor: str
    times: str
    hatch: str

    def mark(self, index: int) -> str:
        """Return a design's mark."""
        return self.marks[index % len(self.marks)]

    def glyphs(self) -> Codes:
        """Return the code point of each dot mask; bit = row × dot_columns + column."""
        return _GLYPHS[self.name]


_BRAILLE_BITS = (0x01, 0x08, 0x02, 0x10, 0x04, 0x20, 0x40, 0x80)
_QUADRANTS = " ▘▝▀▖▌▞▛▗▚▐▜▄▙▟█"
# Three dots down: high, middle, low; a column of two or three reads as a steep line.
_ASCII_DOTS = " '-|.||:"


def _glyphs() -> dict[str, Codes]:
    braille = np.zeros(256, np.uint32)
    for mask in range(256):
        braille[mask] = 0x2800 + sum(b for i, b in enumerate(_BRAILLE_BITS) if mask >> i & 1)
    braille[0] = ord(" ")
    block = np.array([ord(_QUADRANTS[mask & 15]) for mask in range(256)], np.uint32)
    ascii_ = np.array([ord(_ASCII_DOTS[mask & 7]) for mask in range(256)], np.uint32)
    return {"braille": braille, "block": block, "ascii": ascii_}


_GLYPHS = _glyphs()

BRAILLE = Symbols(
    name="braille", dot_columns=2, dot_rows=4, marks="●▲■", ghost="◆", best="▸", approximate="≈",
    track="─", fill="━", thumb="▏▎▍▌▋▊▉█", eighths="▏▎▍▌▋▊▉█", levels="▁▂▃▄▅▆▇█", shades=" ░▒▓█",
    half="▀", left="◂", right="▸", line="━", bar="│", grid="·", dash="┊", cross="┼", fold="▸▾",
    verdicts="✓◐✗?", cursor="◎", times="×", hatch="╱",
)  # fmt: skip
BLOCK = Symbols(
    name="block", dot_columns=2, dot_rows=2, marks="●▲■", ghost="◆", best="►", approximate="≈",
    track="─", fill="═", thumb="▌▌▌▌██▐▐", eighths="▌▌▌▌████", levels="▄▄▄▄████", shades=" ░▒▓█",
    half="▀", left="◄", right="►", line="─", bar="│", grid="·", dash="│", cross="┼", fold="►▼",
    verdicts="√~x?", cursor="+", times="x", hatch="/",
)  # fmt: skip
ASCII = Symbols(
    name="ascii", dot_columns=1, dot_rows=3, marks="o^#", ghost="a", best=">", approximate="~",
    track="-", fill="=", thumb="|", eighths="########", levels="..::==##", shades=" .:+#",
    half="", left="<", right=">", line="=", bar="|", grid=".", dash=":", cross="+", fold=">v",
    verdicts="y~n?", cursor="@", times="x", hatch="/",
)  # fmt: skip

SETS: Mapping[str, Symbols] = {s.name: s for s in (BRAILLE, BLOCK, ASCII)}
"""Symbol sets in the order in which `B` offers them."""


def choose(environment: Mapping[str, str] = os.environ) -> Symbols:
    """Return the richest set the terminal can be trusted with.

    Args:
        environment: Variables such as ``TERM`` and ``LANG``.
    """
    locale = next(
        (environment[k] for k in ("LC_ALL", "LC_CTYPE", "LANG") if environment.get(k)), "UTF-8"
    )
    if "utf" not in locale.lower():
        return ASCII
    return BLOCK if environment.get("TERM") in ("linux", "vt220") else BRAILLE


def plain(text: str, symbols: Symbols) -> str:
    """Return a label in ASCII where the set has nothing else."""
    if symbols.name != "ascii":
        return text
    for glyph, word in (("×", "x"), ("µ", "u"), ("…", "..."), ("→", "->"), ("±", "+-"),
                        ("≥", ">="), ("≤", "<="), ("−", "-"), ("–", "-"), ("·", "."),
                        ("÷", "/"), ("¢", "c"), ("₂", "2"), ("Δ", "d"),
                        ("≈", "~"), ("←", "<"), ("↑", "^"), ("↓", "v")):  # fmt: skip
        text = text.replace(glyph, word)
    return text.encode("ascii", "replace").decode()
