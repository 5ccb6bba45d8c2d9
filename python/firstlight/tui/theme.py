"""Colours by meaning. Designs and energy parts never share a hue; nothing is told by hue alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from rich.color import Color, blend_rgb
from rich.style import Style

CIVIDIS = (
    "#00224e", "#05285a", "#0a2f67", "#1c3670", "#2d3d70", "#38446f", "#434b6e", "#4c536e",
    "#555a6f", "#5e6170", "#666972", "#6f7073", "#777776", "#807f77", "#898777", "#938f76",
    "#9d9774", "#a8a071", "#b3a96d", "#bfb268", "#cbbb61", "#d8c558", "#e6cf4c", "#fde737",
)  # fmt: skip
"""24 steps of cividis, readable with every kind of colour blindness.

Source: Nuñez, Anderton, Renslow, PLoS ONE 13(7) e0199239 (2018).
"""


def _ramp(start: str, end: str, count: int = 8) -> tuple[str, ...]:
    a, b = Color.parse(start).get_truecolor(), Color.parse(end).get_truecolor()
    return tuple(blend_rgb(a, b, (i / (count - 1)) ** 0.8).hex for i in range(count))


DIVERGING_DARK = (*_ramp("#332b24", "#f6b048")[::-1], *_ramp("#22302c", "#3fe0aa"))
"""Where optics lose amber, where they win green, both fading to the ground at one."""

DIVERGING_LIGHT = (*_ramp("#f6efe2", "#c87f0a")[::-1], *_ramp("#e9f3ee", "#0f8a63"))


class Ink(StrEnum):
    """What a colour says."""

    TEXT = "text"
    DIM = "dim"
    FAINT = "faint"
    TITLE = "title"
    ACCENT = "accent"
    WARN = "warn"
    ERROR = "error"
    GAIN = "gain"
    LOSS = "loss"
    GROUND = "ground"
    PANEL = "panel"
    BAR = "bar"
    SELECTED = "selected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """Every colour the explorer uses.

    Attributes:
        name: Shown in the palette.
        is_dark: Which way brightness runs.
        is_mono: Draw with bold, dim and reverse only.
        inks: Colour of each `Ink`, `#rrggbb` or an ANSI name.
        designs: Colour of each design, in the order of the answer.
        parts: Background of each energy part, in the order of `metric.PARTS`.
        part_text: Text on a part.
        heat: Colours of a magnitude, low to high.
        diverging: Colours of a ratio, far below one to far above one.
    """

    name: str
    is_dark: bool
    is_mono: bool = False
    inks: tuple[tuple[Ink, str], ...]
    designs: tuple[str, ...]
    parts: tuple[str, ...]
    part_text: tuple[str, ...]
    heat: tuple[str, ...] = CIVIDIS
    diverging: tuple[str, ...] = DIVERGING_DARK

    def color(self, ink: Ink) -> str:
        """Return the colour of an ink."""
        return dict(self.inks)[ink]

    def style(self, ink: Ink = Ink.TEXT, on: Ink = Ink.GROUND, *, bold: bool = False) -> Style:
        """Return the style of text in `ink` over `on`; without colour, its attributes."""
        return _role_style(self, ink, on, bold)

    def design(self, index: int, on: Ink = Ink.GROUND, *, bold: bool = False) -> Style:
        """Return the style of a design's marks and numbers."""
        if self.is_mono:
            return _attributes(bold=bold, reverse=on in (Ink.SELECTED, Ink.BAR))
        return colored(self.designs[index % len(self.designs)], self.color(on), bold=bold)

    def part(self, index: int) -> Style:
        """Return the style of text on an energy part or a span kind."""
        if self.is_mono:
            return _attributes(reverse=index % 2 == 0)
        i = index % len(self.parts)
        return colored(self.part_text[i], self.parts[i])

    def part_ink(self, index: int) -> Style:
        """Return the part's colour as a foreground."""
        if self.is_mono:
            return _attributes()
        return colored(self.parts[index % len(self.parts)], self.color(Ink.GROUND))


@lru_cache(maxsize=4096)
def colored(ink: str, ground: str, *, bold: bool = False) -> Style:
    """Return a cached style, for Rich renders a style object's codes only once."""
    return Style(color=Color.parse(ink), bgcolor=Color.parse(ground), bold=bold)


@lru_cache(maxsize=16)
def _attributes(*, bold: bool = False, dim: bool = False, reverse: bool = False) -> Style:
    # Default colours are named: a style without colour breaks Textual's NO_COLOR filter.
    plain = Color.parse("default")
    return Style(color=plain, bgcolor=plain, bold=bold, dim=dim, reverse=reverse)


@lru_cache(maxsize=2048)
def _role_style(theme: Theme, ink: Ink, on: Ink, bold: bool) -> Style:  # noqa: FBT001  # cache key
    strong = bold or ink in (Ink.TITLE, Ink.ACCENT, Ink.WARN, Ink.ERROR)
    if theme.is_mono:
        return _attributes(
            bold=strong, dim=ink in (Ink.DIM, Ink.FAINT), reverse=on in (Ink.SELECTED, Ink.BAR)
        )
    return colored(theme.color(ink), theme.color(on), bold=bold or ink is Ink.TITLE)


_DARK_INKS = {
    Ink.TEXT: "#d7dde6", Ink.DIM: "#8a95a5", Ink.FAINT: "#3b4656", Ink.TITLE: "#f3f6fa",
    Ink.ACCENT: "#ffd166", Ink.WARN: "#ffb454", Ink.ERROR: "#ff7b72", Ink.GAIN: "#7fd1ae",
    Ink.LOSS: "#f0a07a", Ink.GROUND: "#0d1117", Ink.PANEL: "#121821", Ink.BAR: "#18222f",
    Ink.SELECTED: "#1f3147",
}  # fmt: skip
_LIGHT_INKS = {
    Ink.TEXT: "#1f2733", Ink.DIM: "#5b6675", Ink.FAINT: "#c3cad3", Ink.TITLE: "#0b1119",
    Ink.ACCENT: "#8a5a00", Ink.WARN: "#9a4f00", Ink.ERROR: "#b3261e", Ink.GAIN: "#0b6b4a",
    Ink.LOSS: "#a8430f", Ink.GROUND: "#fbfaf7", Ink.PANEL: "#f3f1ec", Ink.BAR: "#e5e3dc",
    Ink.SELECTED: "#d5e3f3",
}  # fmt: skip
_CONTRAST_INKS = _DARK_INKS | {
    Ink.TEXT: "#ffffff", Ink.DIM: "#d0d0d0", Ink.FAINT: "#707070", Ink.TITLE: "#ffffff",
    Ink.ACCENT: "#ffff00", Ink.GROUND: "#000000", Ink.PANEL: "#000000", Ink.BAR: "#202020",
    Ink.SELECTED: "#003a75",
}  # fmt: skip
_ANSI_INKS = {
    Ink.TEXT: "default", Ink.DIM: "bright_black", Ink.FAINT: "bright_black", Ink.TITLE: "default",
    Ink.ACCENT: "yellow", Ink.WARN: "yellow", Ink.ERROR: "red", Ink.GAIN: "green",
    Ink.LOSS: "red", Ink.GROUND: "default", Ink.PANEL: "default", Ink.BAR: "default",
    Ink.SELECTED: "blue",
}  # fmt: skip

# Okabe-Ito orange, sky and green, brightened on dark and darkened on light to at least 4.5:1.
_DARK_DESIGNS = ("#e69f00", "#56b4e9", "#2fc08d")
_LIGHT_DESIGNS = ("#8f5a00", "#0b66a3", "#007a52")
# optics, prefill, attention, decode, KV, host, idle, cooling: light first, then violet to slate.
_DARK_PARTS = (
    "#f4ecc2", "#b7a5ea", "#8f78d0", "#d58db3", "#7f9cc0", "#66758a", "#485466", "#35506a",
)  # fmt: skip
_DARK_PART_TEXT = ("#15171c",) * 5 + ("#ffffff",) * 3
_LIGHT_PARTS = (
    "#f0dd8c", "#c9baf2", "#a892e0", "#e9adc9", "#a9c1de", "#b4bcc7", "#d3d7dd", "#9db8c9",
)  # fmt: skip
_LIGHT_PART_TEXT = ("#15171c",) * 8


def _theme(name: str, inks: dict[Ink, str], *, is_dark: bool) -> Theme:
    return Theme(
        name=name,
        is_dark=is_dark,
        inks=tuple(inks.items()),
        designs=_DARK_DESIGNS if is_dark else _LIGHT_DESIGNS,
        parts=_DARK_PARTS if is_dark else _LIGHT_PARTS,
        part_text=_DARK_PART_TEXT if is_dark else _LIGHT_PART_TEXT,
        diverging=DIVERGING_DARK if is_dark else DIVERGING_LIGHT,
    )


DARK = _theme("dark", _DARK_INKS, is_dark=True)
LIGHT = _theme("light", _LIGHT_INKS, is_dark=False)
CONTRAST = _theme("contrast", _CONTRAST_INKS, is_dark=True)
TERMINAL = Theme(
    name="terminal",
    is_dark=True,
    inks=tuple(_ANSI_INKS.items()),
    designs=("yellow", "cyan", "green"),
    parts=("white", "magenta", "bright_magenta", "red", "blue", "cyan", "bright_black", "blue"),
    part_text=("black", "black", "black", "black", "white", "black", "white", "white"),
    heat=("blue", "cyan", "green", "yellow"),
    diverging=("yellow", "bright_black", "cyan", "green"),
)
MONO = replace(TERMINAL, name="no colour", is_mono=True)

THEMES = {theme.name: theme for theme in (DARK, LIGHT, CONTRAST, TERMINAL, MONO)}
"""Themes in the order in which `t` offers them."""
