"""Whole screens as text and style runs: three sizes, dark, light and without colour.

`FIRSTLIGHT_REFRESH_GOLDEN=1` writes them anew; the change is then read in the diff.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest
from double import DoubleSolver
from test_app import settled

from firstlight.tui.answer import Tier
from firstlight.tui.app import Explorer
from firstlight.tui.theme import THEMES

PLACE = Path(__file__).parent / "golden"
SIZES = [(80, 24), (120, 40), (200, 60)]


def drawn(size, theme):
    """Return the rows of a screen: a context chosen, pinned, and moved on."""

    async def run():
        app = Explorer(DoubleSolver(coarse_s=0, full_s=0), quiet_s=0.02, theme=THEMES[theme])
        async with app.run_test(size=size) as pilot:
            await settled(app, pilot)
            app.set_field("context_tok", 12_000.0)
            await pilot.press("p", *"llllll")
            for _ in range(300):
                await pilot.pause(0.02)
                if is_done(app, is_wide=size[0] >= 160):
                    break
            app.say("")
            app.known = replace(app.known, seconds=0.02)
            app.show_state()
            await pilot.pause(0.1)
            return app.screen._compositor.render_strips()

    return asyncio.run(run())


def is_done(app, *, is_wide):
    known = app.known
    is_full = known.answer.tier is Tier.FULL and known.curve.is_final and known.tornado
    return is_full and (not is_wide or (known.judged and known.map and known.map.is_final))


def written(strips):
    rows = ["".join(segment.text for segment in strip).rstrip() for strip in strips]
    return "\n".join([*rows, "--- styles", *map(runs, strips)]) + "\n"


def runs(strip):
    """Return where each style of a row begins: column, ink/ground, and b d r."""
    x, line = 0, []
    for text, style, _ in strip:
        attributes = "".join(
            c for c, on in zip("bdr", (style.bold, style.dim, style.reverse), strict=True) if on
        )
        ink = style.color.name if style.color else "-"
        ground = style.bgcolor.name if style.bgcolor else "-"
        line.append(f"{x}:{ink}/{ground}{attributes}")
        x += len(text)
    return " ".join(line)


@pytest.mark.parametrize("theme", ["dark", "light", "no colour"])
@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
def test_the_screen_is_as_it_was_looked_at(size, theme):
    found = written(drawn(size, theme))
    path = PLACE / f"{size[0]}x{size[1]}-{theme.replace(' ', '-')}.txt"
    if os.environ.get("FIRSTLIGHT_REFRESH_GOLDEN"):
        PLACE.mkdir(exist_ok=True)
        path.write_text(found, encoding="utf-8")
    assert found.splitlines() == path.read_text(encoding="utf-8").splitlines()


def test_there_are_nine_screens():
    assert len(list(PLACE.glob("*.txt"))) == 9
