"""Every picture, at every size: rows as many and as wide as asked, and a style on every segment."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from double import DoubleSolver
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.strip import Strip

from firstlight.tui import engine, once, present
from firstlight.tui.answer import Verdict
from firstlight.tui.axis import Axis
from firstlight.tui.field import FIELDS
from firstlight.tui.number import Range
from firstlight.tui.present import Known
from firstlight.tui.state import DEFAULT
from firstlight.tui.symbols import SETS, Symbols
from firstlight.tui.theme import THEMES, Theme
from firstlight.tui.widgets import (
    bars,
    controls,
    gantt,
    headline,
    heat_map,
    line_chart,
    slider,
    stacked_bars,
    text_table,
    tornado,
    why,
)

Picture = Callable[[int, int, Theme, Symbols], list[Strip]]
LOOKS = [(theme, symbols) for theme in THEMES.values() for symbols in SETS.values()]


class Free:
    is_set = False

    def note(self, done: int, total: int, what: str) -> None:
        """Nobody listens."""


def known() -> Known:
    solver = DoubleSolver(coarse_s=0, full_s=0)
    setup = DEFAULT.replace("t_reload_s", Range(1e-6, 1e-4)).replace("context_tok", 20_000.0)
    found = once.answered(solver, setup)
    reports: list[engine.Report] = []
    runner = engine.Engine(solver, reports.append, quiet_s=0)
    question = engine.Question(
        setup=setup, pinned=DEFAULT, metric=found.metric, map_keys=("context_tok", "power_w"),
        map_shape=(9, 7), timeline_design="optical+gpu", wants_claims=True,
    )  # fmt: skip
    runner.generation = 1
    runner._answer(1, -1.0, question)
    last = {type(report): report for report in reports}
    curve = last[engine.Curve]
    return Known(
        setup=setup, pinned=DEFAULT, answer=found.answer, pin_answer=found.answer, curve=curve,
        tornado=last[engine.Tornado], map=last[engine.Map], drawn=last[engine.Drawn],
        judged=last[engine.Judged],
    )  # fmt: skip


KNOWN = known()


def pictures() -> dict[str, Picture]:
    heat = present.heat_map(KNOWN, None)
    energy = present.bars(KNOWN)
    swings = present.tornado(KNOWN)
    assert heat
    assert energy
    assert swings
    lines = present.chart(KNOWN)
    assert any(s.low is not None for s in lines.series)
    assert any(s.is_ghost for s in lines.series)
    column = controls.ControlsData(setup=KNOWN.setup, pinned=DEFAULT, selected=3)
    typed = controls.ControlsData(setup=KNOWN.setup, selected=3, edit="上下文 128k", problem="no")
    keys = tuple((k, "a word", "quit") for k in "abcdef")
    found: dict[str, Picture] = {
        "headline": lambda w, h, t, s: headline.render(w, h, t, s, present.headline(KNOWN)),
        "chart": lambda w, h, t, s: line_chart.render(w, h, t, s, lines),
        "map": lambda w, h, t, s: heat_map.render(w, h, t, s, heat),
        "bars": lambda w, h, t, s: stacked_bars.render(w, h, t, s, energy),
        "gantt": lambda w, h, t, s: gantt.render(
            w, h, t, s, present.gantt(KNOWN, None, "", "optical+gpu")
        ),
        "tornado": lambda w, h, t, s: tornado.render(w, h, t, s, swings),
        "why": lambda w, h, t, s: why.render(w, h, t, s, present.why(KNOWN)),
        "controls": lambda w, h, t, s: controls.render(w, h, t, s, column),
        "typing": lambda w, h, t, s: controls.render(w, h, t, s, typed),
        "compare": lambda w, h, t, s: text_table.render(w, h, t, s, present.compare(KNOWN)),
        "claims": lambda w, h, t, s: text_table.render(
            w, h, t, s, present.claims(KNOWN, 1, s.verdicts)
        ),
        "top": lambda w, h, t, s: bars.render_top(
            w, h, t, s, bars.TopData(tab="map", summary="名前 is wide", state="simulated 20 ms")
        ),
        "bottom": lambda w, h, t, s: bars.render_bottom(w, h, t, s, bars.BottomData(keys=keys)),
        "said": lambda w, h, t, s: bars.render_bottom(
            w, h, t, s, bars.BottomData(keys=keys, message="数 is wrong", is_error=True)
        ),
    }
    for f in FIELDS[:4]:
        data = slider.SliderData(field=f, value=KNOWN.setup[f.key], is_focused=True, letter="A")
        found[f"slider {f.key}"] = lambda w, h, t, s, data=data: slider.render(w, h, t, s, data)
    return found


PICTURES = pictures()


def check(strips: list[Strip], width: int, height: int, symbols: Symbols) -> None:
    assert len(strips) == height
    for strip in strips:
        text = "".join(segment.text for segment in strip)
        assert cell_len(text) == width == strip.cell_length
        assert all(segment.style is not None for segment in strip)
        assert all(s.style.color is not None and s.style.bgcolor is not None for s in strip)


def sizes() -> Iterator[tuple[int, int]]:
    for n in range(1, 201):
        yield n, 1 + n * 37 % 60
        if n % 3 == 0:
            yield 1 + n * 53 % 200, n


@pytest.mark.parametrize("name", PICTURES)
def test_every_strip_has_the_width_asked_for_and_a_style_at_all_sizes(name):
    for turn, (width, height) in enumerate(sizes()):
        theme, symbols = LOOKS[turn % len(LOOKS)]
        check(PICTURES[name](width, height, theme, symbols), width, height, symbols)


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(sorted(PICTURES)), st.integers(1, 250), st.integers(1, 80),
    st.sampled_from(LOOKS),
)  # fmt: skip
def test_any_picture_in_any_look(name, width, height, look):
    check(PICTURES[name](width, height, *look), width, height, look[1])


@pytest.mark.parametrize("name", PICTURES)
def test_the_ascii_set_draws_ascii_but_for_what_a_person_typed(name):
    if name in ("typing", "top", "said", "claims"):
        pytest.skip("holds words in another script")
    for strip in PICTURES[name](100, 30, THEMES["dark"], SETS["ascii"]):
        text = "".join(segment.text for segment in strip).replace("…", "")
        assert text.isascii(), text


@pytest.mark.parametrize("name", PICTURES)
def test_without_colour_no_segment_has_one(name):
    for symbols in SETS.values():
        for strip in PICTURES[name](90, 25, THEMES["no colour"], symbols):
            for segment in strip:
                assert segment.style.color.is_default
                assert segment.style.bgcolor.is_default


def text_of(strips: list[Strip]) -> str:
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


def test_designs_and_best_values_are_told_without_colour():
    theme, symbols = THEMES["no colour"], SETS["braille"]
    table = text_of(PICTURES["headline"](90, 11, theme, symbols))
    assert all(mark in table for mark in symbols.marks)
    assert symbols.best in table
    chart = text_of(PICTURES["chart"](90, 20, theme, symbols))
    assert all(chart.count(mark) >= 2 for mark in symbols.marks)
    bar = text_of(PICTURES["bars"](100, 5, theme, symbols))
    assert "prefill" in bar
    assert "decode" in bar


def test_a_curve_never_tears_where_it_is_steep():
    line = np.concatenate([np.zeros(10), np.ones(10)])
    grid = line_chart.dots(line, 40)
    assert grid.any(axis=0).all()
    assert grid[:, 9:11].any(axis=1).all()


def test_crossing_curves_share_a_cell_and_lose_no_dot():
    xs = np.array([1.0, 2.0])
    both = (
        line_chart.Series(label="up", index=0, xs=xs, ys=np.array([1.0, 9.0])),
        line_chart.Series(label="down", index=1, xs=xs, ys=np.array([9.0, 1.0])),
    )
    axis = Axis(lo=1, hi=2, is_log=False)

    def lit(series):
        data = line_chart.LineChartData(
            title="",
            x_unit="",
            x_axis=axis,
            y_unit="",
            series=series,
            y_axis=Axis(lo=0, hi=10, is_log=False),
        )
        text = text_of(line_chart.render(40, 12, THEMES["dark"], SETS["braille"], data))
        return [ord(c) - 0x2800 if 0x2800 <= ord(c) < 0x2900 else 0 for c in text]

    together, up, down = lit(both), lit(both[:1]), lit(both[1:])
    crossing = [i for i in range(len(up)) if up[i] and down[i] and together[i]]
    assert crossing
    assert all(together[i] == up[i] | down[i] for i in crossing)


def test_the_break_even_is_written_where_curves_meet():
    xs = np.geomspace(1e3, 1e6, 33)
    data = line_chart.LineChartData(
        title="", x_unit="tok", x_axis=Axis(lo=1e3, hi=1e6, is_log=True), y_unit="J",
        series=(
            line_chart.Series(label="flat", index=0, xs=xs, ys=np.full(33, 100.0)),
            line_chart.Series(label="rising", index=1, xs=xs, ys=xs / 200.0),
        ),
    )  # fmt: skip
    assert "◆20k" in text_of(line_chart.render(80, 20, THEMES["dark"], SETS["braille"], data))


def test_gaps_stay_gaps():
    xs = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    ys = np.array([1.0, 1.0, math.nan, 1.0, 1.0])
    axis = Axis(lo=1, hi=5, is_log=False)
    line = line_chart.sampled(xs, ys, axis, Axis(lo=0, hi=2, is_log=False), 81)
    assert np.isnan(line[21:60]).all()
    assert np.isfinite(line[:20]).all()


def test_the_map_draws_break_even_and_impossible_cells():
    values = np.array([[0.5, 2.0, math.nan], [0.5, 2.0, math.nan]])
    axis = Axis(lo=1, hi=10, is_log=True)
    data = heat_map.HeatMapData(
        title="", x_axis=axis, y_axis=axis, x_unit="", y_unit="", values=values, unit="×",
        is_ratio=True, cursor=(1, 1),
    )  # fmt: skip
    text = text_of(heat_map.render(100, 16, THEMES["dark"], SETS["braille"], data))
    assert any(0x2800 < ord(c) < 0x2900 for c in text.splitlines()[5])
    assert "╱" in text.splitlines()[5]
    assert "impossible" in text


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=8), st.integers(1, 200))
def test_bars_sum_to_their_whole(parts, room):
    longest = max(sum(parts), 1e-9)
    assert sum(stacked_bars.lengths(tuple(parts), room, longest)) == round(
        sum(parts) / longest * room
    )


def test_a_claim_in_another_script_keeps_its_row_in_width():
    verdict = Verdict(claim="光学推論は十倍速い", state="unknown", here="?", basis="?")
    judged = engine.Judged(generation=1, verdicts=(verdict,))
    data = present.claims(Known(judged=judged), 0, "✓◐✗?")
    for width in range(1, 80):
        check(
            text_table.render(width, 4, THEMES["dark"], SETS["braille"], data),
            width,
            4,
            SETS["braille"],
        )


def test_a_cursor_from_other_axes_falls_back_to_the_scenario():
    data = present.heat_map(KNOWN, (0.0, 0.0))
    assert data is not None
    assert data.cursor == data.here
