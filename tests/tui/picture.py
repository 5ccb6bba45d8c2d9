"""Strips to PNG, to be looked at. Braille and blocks are drawn, for no font here has them all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont
from rich.cells import get_character_cell_size
from rich.style import Style

if TYPE_CHECKING:
    from pathlib import Path

    from textual.strip import Strip

CELL = (10, 20)
FONT = "/usr/share/fonts/truetype/dejavu/DejaVuSansMono.ttf"
BOLD = "/usr/share/fonts/truetype/dejavu/DejaVuSansMono-Bold.ttf"
EIGHTHS = "▏▎▍▌▋▊▉█"
LEVELS = "▁▂▃▄▅▆▇█"
QUADRANTS = " ▘▝▀▖▌▞▛▗▚▐▜▄▙▟█"
BRAILLE = (0x01, 0x08, 0x02, 0x10, 0x04, 0x20, 0x40, 0x80)


def save(strips: list[Strip], path: Path, *, ground: str = "#0d1117", ink: str = "#d7dde6") -> None:
    """Write the strips as a picture."""
    width = max((strip.cell_length for strip in strips), default=1)
    image = Image.new("RGB", (width * CELL[0], len(strips) * CELL[1]), ground)
    draw = ImageDraw.Draw(image)
    fonts = (ImageFont.truetype(FONT, 16), ImageFont.truetype(BOLD, 16))
    for y, strip in enumerate(strips):
        x = 0
        for text, style, _ in strip:
            for glyph in text:
                size = get_character_cell_size(glyph)
                _cell(draw, x, y, glyph, style or Style(), fonts, ground, ink, max(size, 1))
                x += size
    image.save(path)


def _rgb(style: Style, *, is_ink: bool, default: str) -> str:
    color = style.color if is_ink else style.bgcolor
    if color is None or color.is_default:
        return default
    return color.get_truecolor().hex


def _cell(draw, x, y, glyph, style, fonts, ground, ink, size):
    front, back = _rgb(style, is_ink=True, default=ink), _rgb(style, is_ink=False, default=ground)
    if style.reverse:
        front, back = back, front
    w, h = CELL
    left, top = x * w, y * h
    draw.rectangle((left, top, left + w * size - 1, top + h - 1), fill=back)
    if style.dim:
        front = "#808890"
    if glyph == " ":
        return
    code = ord(glyph)
    if 0x2800 <= code < 0x2900:
        for i, bit in enumerate(BRAILLE):
            if (code - 0x2800) & bit:
                cx, cy = left + 2.5 + 5 * (i % 2), top + 2.5 + 5 * (i // 2)
                draw.ellipse((cx - 1.6, cy - 1.6, cx + 1.6, cy + 1.6), fill=front)
    elif glyph in EIGHTHS:
        draw.rectangle(
            (left, top, left + w * (EIGHTHS.index(glyph) + 1) / 8 - 1, top + h - 1), fill=front
        )
    elif glyph in LEVELS:
        draw.rectangle(
            (left, top + h * (7 - LEVELS.index(glyph)) / 8, left + w - 1, top + h - 1), fill=front
        )
    elif glyph in QUADRANTS:
        for bit in range(4):
            if QUADRANTS.index(glyph) >> bit & 1:
                cx, cy = left + 5 * (bit % 2), top + 10 * (bit // 2)
                draw.rectangle((cx, cy, cx + 4, cy + 9), fill=front)
    elif glyph == "━":
        draw.rectangle((left, top + 9, left + w - 1, top + 11), fill=front)
    elif glyph == "─":
        draw.rectangle((left, top + 10, left + w - 1, top + 10), fill=front)
    elif glyph == "│":
        draw.rectangle((left + 4, top, left + 5, top + h - 1), fill=front)
    else:
        draw.text((left, top), glyph, fill=front, font=fonts[1 if style.bold else 0])
