"""Keys and mouse through Pilot: what the hand does is what the scenario says."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from double import DoubleSolver
from rich.cells import cell_len

from firstlight.tui import keymap
from firstlight.tui.answer import Tier
from firstlight.tui.app import Explorer
from firstlight.tui.field import BY_KEY, FIELDS
from firstlight.tui.metric import METRICS
from firstlight.tui.number import Range
from firstlight.tui.screens.page import Page
from firstlight.tui.state import DEFAULT, parse_share
from firstlight.tui.symbols import SETS
from firstlight.tui.theme import MONO, TERMINAL
from firstlight.tui.widgets import slider
from firstlight.tui.widgets.bars import BottomBar, TopBar
from firstlight.tui.widgets.controls import Controls, lines
from firstlight.tui.widgets.gantt import Gantt
from firstlight.tui.widgets.headline import Headline
from firstlight.tui.widgets.heat_map import Frame, HeatMap
from firstlight.tui.widgets.line_chart import LineChart

WIDE = (120, 40)


def play(story, *, size=WIDE, solver=None, **options):
    """Run a story `async (app, pilot)` in a terminal of a size."""
    solver = solver or DoubleSolver(coarse_s=0.001, full_s=0.002)

    async def run():
        app = Explorer(solver, quiet_s=0.03, **options)
        async with app.run_test(size=size) as pilot:
            await settled(app, pilot)
            await story(app, pilot)

    asyncio.run(run())


async def settled(app, pilot):
    """Wait until the newest question has its full answer."""
    for _ in range(400):
        await pilot.pause(0.01)
        answer = app.known.answer
        is_done = answer is not None and answer.tier is Tier.FULL and app.known.curve is not None
        if is_done and app.known.curve.is_final and not app.known.is_stale:
            return
    raise AssertionError("no full answer in 4 s")


async def press(pilot, *keys):
    for key in keys:
        await pilot.press(key)


def screen_text(app):
    rows = app.screen._compositor.render_strips()
    return ["".join(segment.text for segment in row) for row in rows]


def row_of(app, key):
    controls = app.query_one(Controls)
    return lines(controls.folded).index(BY_KEY[key]) - controls._first


def test_a_key_moves_the_slider_at_once_and_the_numbers_follow():
    async def story(app, pilot):
        before = app.known.answer
        await press(pilot, "l")
        moved = app.known.setup["context_tok"]
        assert moved > BY_KEY["context_tok"].usual
        await settled(app, pilot)
        await pilot.pause(0.1)
        expected = (
            DoubleSolver().analytic(app.known.setup).designs[2].metrics["energy_j_per_request"]
            / 1.03
        )
        assert app.known.answer.designs[2].metrics["energy_j_per_request"] == pytest.approx(
            expected
        )
        assert app.known.answer != before

    play(story)


@pytest.mark.parametrize("f", FIELDS, ids=lambda f: f.key)
def test_every_control_moves_both_ways_and_back_by_undo(f):
    async def story(app, pilot):
        app.query_one(Controls).select(f.key)
        await press(pilot, "l")
        up = app.known.setup[f.key]
        assert up != f.default
        await press(pilot, "u")
        assert app.known.setup == DEFAULT
        await press(pilot, "U")
        assert app.known.setup[f.key] == up
        await press(pilot, "r")
        assert app.known.setup[f.key] == f.default

    play(story)


def test_far_steps_ends_and_reset_all():
    async def story(app, pilot):
        app.query_one(Controls).select("power_w")
        await press(pilot, "L")
        assert app.known.setup["power_w"] == BY_KEY["power_w"].nudged(1e6, 10)
        await press(pilot, "dollar_sign")
        assert app.known.setup["power_w"] == 1e8
        await press(pilot, "0")
        assert app.known.setup["power_w"] == 1e4
        await press(pilot, "R")
        assert app.known.setup == DEFAULT

    play(story)


def test_typing_a_value_a_range_and_garbage():
    async def story(app, pilot):
        app.query_one(Controls).select("t_reload_s")
        await press(pilot, "enter", *"5..20us", "enter")
        assert app.known.setup["t_reload_s"] == Range(5e-6, 2e-5)
        await settled(app, pilot)
        assert app.known.answer.designs[2].band["energy_j_per_request"]
        await press(pilot, "enter", *"cheese")
        assert app.query_one(BottomBar).data.is_error
        assert "cheese" in app.query_one(BottomBar).data.message
        await press(pilot, "enter")
        assert app.query_one(Controls).is_editing
        await press(pilot, "escape")
        assert not app.query_one(Controls).is_editing
        assert app.known.setup["t_reload_s"] == Range(5e-6, 2e-5)
        await press(pilot, "enter", "q", "1", "escape")
        assert app.is_running
        assert app.tab == "explore"

    play(story)


def test_typing_filters_a_choice():
    async def story(app, pilot):
        app.query_one(Controls).select("model")
        await press(pilot, "enter", *"405", "enter")
        assert app.known.setup["model"] == "llama-3.1-405b"

    play(story)


def test_the_mouse_clicks_drags_and_wheels_a_slider():
    async def story(app, pilot):
        track = slider.track_of(app.query_one(Controls).size.width)
        y = row_of(app, "power_w")
        await pilot.mouse_down("#controls", offset=(track.start + 2, y))
        for x in range(3, track.cells - 1):
            await pilot.hover("#controls", offset=(track.start + x, y))
        await pilot.mouse_up("#controls", offset=(track.start + track.cells - 1, y))
        assert app.known.setup["power_w"] > 3e7
        await press(pilot, "u")
        assert app.known.setup["power_w"] == 1e6
        await pilot.click("#controls", offset=(track.start, y))
        assert app.known.setup["power_w"] == 1e4
        await press(pilot, "r")
        controls = app.query_one(Controls)
        from textual import events

        place = {
            "x": track.start,
            "y": y,
            "delta_x": 0,
            "delta_y": 0,
            "button": 0,
            "shift": False,
            "meta": False,
            "ctrl": False,
        }
        controls.post_message(events.MouseScrollUp(controls, **place))
        await pilot.pause()
        assert app.known.setup["power_w"] > 1e6

    play(story)


def test_the_mouse_turns_choices_folds_groups_and_picks_metrics_and_tabs():
    async def story(app, pilot):
        y = row_of(app, "gpu")
        await pilot.click("#controls", offset=(20, y))
        assert app.known.setup["gpu"] == "h200-sxm-8x"
        await pilot.click("#controls", offset=(slider.LABEL_CELLS, y))
        assert app.known.setup["gpu"] == "h100-sxm-8x"
        count = len(lines(app.query_one(Controls).folded))
        await pilot.click("#controls", offset=(3, 0))
        assert len(lines(app.query_one(Controls).folded)) < count
        await pilot.click("#headline", offset=(5, 3))
        assert app.known.metric is METRICS[2]
        await pilot.click("#top", offset=(26, 0))
        assert app.tab == "compare"
        await pilot.click("#bottom", offset=(2, 0))
        assert app.known.pinned == app.known.setup

    play(story)


def test_dragging_in_the_chart_moves_its_field():
    async def story(app, pilot):
        width = app.query_one("#chart", LineChart).size.width
        await pilot.click("#chart", offset=(width - 2, 8))
        assert app.known.setup["context_tok"] > 800_000

    play(story)


def test_the_metric_scope_and_axis_keys():
    async def story(app, pilot):
        await press(pilot, "m")
        assert app.known.metric is METRICS[6]
        await press(pilot, "M", "g")
        assert app.known.scope == "prefill"
        assert "whole prefill" in app.query_one("#chart", LineChart).data.title
        app.query_one(Controls).select("pue")
        await press(pilot, "X")
        await settled(app, pilot)
        assert app.known.curve_key == "pue"
        for _ in range(100):
            await pilot.pause(0.01)
            if app.known.curve.key == "pue":
                break
        assert app.query_one("#chart", LineChart).data.series
        app.query_one(Controls).select("model")
        await press(pilot, "X")
        assert app.query_one(BottomBar).data.is_error

    play(story)


def test_pin_swap_adopt_and_compare():
    async def story(app, pilot):
        await press(pilot, "x")
        assert app.query_one(BottomBar).data.is_error
        await press(pilot, "p")
        app.query_one(Controls).select("gpu")
        await press(pilot, "l", "l")
        await press(pilot, "2")
        await settled(app, pilot)
        await pilot.pause(0.2)
        text = "\n".join(screen_text(app))
        assert "INPUTS THAT DIFFER" in text
        assert "H100 SXM" in text
        assert "B200" in text
        assert "better" in text
        await press(pilot, "x")
        assert app.known.setup == DEFAULT
        assert app.known.pinned["gpu"] == "b200-8x"
        await press(pilot, "a")
        assert app.known.setup["gpu"] == "b200-8x"

    play(story)


def test_freeze_holds_the_engine_and_greys_the_numbers():
    async def story(app, pilot):
        await press(pilot, "space")
        generation = app.engine.generation
        await press(pilot, "l", "j", "l")
        await pilot.pause(0.1)
        assert app.engine.generation == generation
        assert app.query_one(Headline).data.is_stale
        await press(pilot, "space")
        await settled(app, pilot)
        assert app.engine.generation > generation

    play(story)


def test_an_impossible_scenario_keeps_the_last_good_numbers_greyed_and_says_which_limit():
    async def story(app, pilot):
        good = app.known.answer
        app.query_one(Controls).select("power_w")
        await press(pilot, "0")
        for _ in range(100):
            await pilot.pause(0.01)
            if app.known.is_stale:
                break
        assert app.known.answer == good
        assert app.query_one(Headline).data.is_stale
        assert "smallest cell" in app.query_one(BottomBar).data.message
        await press(pilot, "u")
        await settled(app, pilot)
        assert not app.query_one(BottomBar).data.is_error

    play(story)


def test_a_failing_engine_is_a_line_with_the_share_string_and_c_shows_more():
    solver = DoubleSolver(coarse_s=0.001, full_s=0.002)

    async def story(app, pilot):
        solver.fails = True
        await press(pilot, "l")
        for _ in range(100):
            await pilot.pause(0.01)
            if app.last_error:
                break
        assert "fl:1?context_tok" in app.query_one(BottomBar).data.message
        await press(pilot, "c")
        assert isinstance(app.screen, Page)
        await press(pilot, "escape")
        solver.fails = False
        await press(pilot, "l")
        await settled(app, pilot)

    play(story, solver=solver)


def test_break_even_by_key():
    async def story(app, pilot):
        await press(pilot, "equals_sign")
        for _ in range(200):
            await pilot.pause(0.01)
            if "break-even at context" in app.query_one(BottomBar).data.message:
                break
        assert "break-even at context 2" in app.query_one(BottomBar).data.message
        app.query_one(Controls).select("model")
        await press(pilot, "equals_sign")
        assert app.query_one(BottomBar).data.is_error

    play(story)


def test_the_map_moves_its_cursor_and_takes_a_cell():
    async def story(app, pilot):
        await press(pilot, "3")
        heat = app.query_one("#big-map", HeatMap)
        for _ in range(300):
            await pilot.pause(0.01)
            if heat.data is not None:
                break
        before = Frame.of(*heat.size, heat.data).cell(heat.data, heat.data.cursor)
        await press(pilot, "l", "l", "k")
        after = Frame.of(*heat.size, heat.data).cell(heat.data, heat.data.cursor)
        assert after == (before[0] + 2, before[1] - 1)
        point = heat.data.cursor
        await press(pilot, "enter")
        assert app.tab == "explore"
        assert app.known.setup["context_tok"] == pytest.approx(point[0], rel=0.01)
        assert app.known.setup["power_w"] == pytest.approx(point[1], rel=0.01)
        await press(pilot, "u")
        assert app.known.setup == DEFAULT
        await press(pilot, "3", "left_square_bracket")
        assert app.known.map_keys[0] != "context_tok"

    play(story)


def test_the_timeline_zooms_pans_and_shows_what_a_request_waited_for():
    async def story(app, pilot):
        await press(pilot, "4")
        gantt = app.query_one("#gantt", Gantt)
        for _ in range(300):
            await pilot.pause(0.01)
            if gantt.data.timeline is not None:
                break
        assert any("queue" in row for row in screen_text(app))
        whole = gantt.data.end_s - gantt.data.start_s
        await press(pilot, "plus")
        assert gantt.data.end_s - gantt.data.start_s < whole
        start = gantt.data.start_s
        await press(pilot, "l")
        assert gantt.data.start_s > start
        await press(pilot, "minus", "minus", "minus")
        assert gantt.data.end_s - gantt.data.start_s == pytest.approx(whole)
        first = gantt.data.request
        await press(pilot, "j", "j")
        assert gantt.data.request != first
        await pilot.click("#gantt", offset=(30, 2))
        assert app.request
        await press(pilot, "d")
        assert app.timeline_design == "gpu-colocated"

    play(story)


def test_a_claim_loads_what_it_needs_and_undo_takes_it_back():
    async def story(app, pilot):
        await press(pilot, "5")
        for _ in range(300):
            await pilot.pause(0.01)
            if app.known.judged is not None:
                break
        await press(pilot, "j", "k")
        assert app.claim == 0
        await press(pilot, "enter")
        assert app.known.setup["t_reload_s"] == 1e-6
        await press(pilot, "u")
        assert app.known.setup == DEFAULT
        await press(pilot, "j", "j", "enter")
        assert app.query_one(BottomBar).data.is_error

    play(story)


def test_setting_by_name_and_opening_a_share_string():
    async def story(app, pilot):
        await press(pilot, "colon", *"power 2MW", "enter")
        await pilot.pause()
        assert app.known.setup["power_w"] == 2e6
        await press(pilot, "colon", *"power nine", "enter")
        await pilot.pause()
        assert app.known.setup["power_w"] == 2e6
        await press(pilot, "escape", "o", *"fl:1?power_w=3e6&nonsense=1", "enter")
        await pilot.pause()
        assert app.known.setup["power_w"] == 3e6
        assert "nonsense" in app.query_one(BottomBar).data.message

    play(story)


def test_share_and_table_go_to_the_clipboard():
    async def story(app, pilot):
        await press(pilot, "l", "y")
        assert parse_share(app.clipboard)[0] == app.known.setup
        await press(pilot, "Y")
        assert app.clipboard.startswith("| metric |")

    play(story)


@pytest.mark.parametrize("suffix", [".toml", ".csv", ".json", ".svg", ".md"])
def test_export_writes_each_format(tmp_path, suffix):
    path = tmp_path / f"out{suffix}"

    async def story(app, pilot):
        await press(pilot, "e")
        await pilot.pause()
        app.screen.query_one("Input").value = str(path)
        await press(pilot, "enter")
        await pilot.pause()
        text = path.read_text()
        assert {
            ".toml": "schema = 1",
            ".csv": "goodput",
            ".json": '"designs"',
            ".svg": "<svg",
            ".md": "| metric |",
        }[suffix] in text
        if suffix == ".json":
            assert json.loads(text)["designs"][2]["name"] == "optical+gpu"

    play(story)


def test_an_export_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")

    async def story(app, pilot):
        await press(pilot, "e")
        await pilot.pause()
        app.screen.query_one("Input").value = str(tmp_path / "file" / "x.md")
        await press(pilot, "enter")
        await pilot.pause()
        assert "cannot be written" in app.query_one(BottomBar).data.message
        await press(pilot, "e")
        await pilot.pause()
        app.screen.query_one("Input").value = "x.pdf"
        await press(pilot, "enter")
        await pilot.pause()
        assert ".md" in str(app.screen.query_one("#prompt-said").render())

    play(story)


def test_the_setup_is_kept_and_an_unwritable_place_is_said_once(tmp_path):
    place = tmp_path / "state" / "last.toml"

    async def story(app, pilot):
        await press(pilot, "l")

    play(story, autosave=place)
    from firstlight.tui import scenario_file

    assert scenario_file.load(place)["context_tok"] > BY_KEY["context_tok"].usual
    (tmp_path / "file").write_text("")

    async def blocked(app, pilot):
        app.keep()
        assert "autosave is off" in app.query_one(BottomBar).data.message
        assert app.autosave is None

    play(blocked, autosave=tmp_path / "file" / "last.toml")


def test_help_citation_and_their_ways_out():
    async def story(app, pilot):
        for key in ("question_mark", "f1", "c"):
            await press(pilot, key)
            assert isinstance(app.screen, Page)
            await press(pilot, "escape")
            assert not isinstance(app.screen, Page)

    play(story)


def test_themes_and_symbols_change_what_is_drawn():
    async def story(app, pilot):
        assert any("●" in row for row in screen_text(app))
        await press(pilot, "B", "B")
        await pilot.pause(0.05)
        assert app.look.symbols.name == "ascii"
        assert not any("●" in row for row in screen_text(app))
        await press(pilot, "t")
        assert app.look.theme.name == "light"

    play(story)


def test_a_panel_is_enlarged_and_comes_back():
    async def story(app, pilot):
        await press(pilot, "plus")
        await pilot.pause(0.05)
        assert app.screen.maximized is not None
        await press(pilot, "minus")
        await pilot.pause(0.05)
        assert app.screen.maximized is None

    play(story)


def test_the_palette_knows_fields_metrics_themes_and_actions():
    async def story(app, pilot):
        app.set_field("pue", 1.5)
        await press(pilot, "ctrl+p")
        await pilot.pause(0.1)
        await press(pilot, *"undo")
        await pilot.pause(0.3)
        await press(pilot, "enter", "enter")
        await pilot.pause(0.2)
        assert app.known.setup == DEFAULT

    play(story)


def test_the_keymap_file_moves_a_key():
    async def story(app, pilot):
        await press(pilot, "f5")
        assert app.known.pinned == DEFAULT

    play(story, keys={"pin": "f5"})


def test_the_tour_moves_the_controls_and_can_be_left():
    async def story(app, pilot):
        assert "1/6" in app.query_one(BottomBar).data.message
        await press(pilot, "n")
        assert app.known.setup["context_tok"] == 65_536.0
        await press(pilot, "n", "n", "n", "n")
        assert app.tab == "map"
        await press(pilot, "n")
        assert "over" in app.query_one(BottomBar).data.message

    play(story, is_tour=True)


def test_quitting():
    async def story(app, pilot):
        await press(pilot, "q")
        await pilot.pause(0.05)
        assert not app.is_running

    play(story)


SIZES = [
    (1, 1),
    (2, 3),
    (10, 4),
    (24, 8),
    (40, 12),
    (61, 17),
    (80, 24),
    (100, 30),
    (162, 41),
    (200, 60),
    (300, 90),
]


@pytest.mark.parametrize("size", SIZES)
def test_no_terminal_is_refused_and_every_row_fits(size):
    async def story(app, pilot):
        for tab in "12345":
            await press(pilot, tab, "j", "l")
            await pilot.pause(0.02)
        rows = screen_text(app)
        assert len(rows) == size[1]
        assert all(cell_len(row) == size[0] for row in rows)

    play(story, size=size)


def test_resizing_across_every_breakpoint_shows_what_fits():
    async def story(app, pilot):
        for width, height in [(200, 60), (80, 24), (50, 15), (120, 40), (20, 5), (162, 50)]:
            await pilot.resize_terminal(width, height)
            await pilot.pause(0.15)
            rows = screen_text(app)
            assert all(cell_len(row) == width for row in rows)
        assert app.query_one("#side-map", HeatMap).data is not None
        assert any("optics win" in row for row in rows)

    play(story)


@pytest.mark.parametrize("theme", [MONO, TERMINAL], ids=lambda t: t.name)
def test_it_runs_without_colour_and_in_the_terminals_own(theme, monkeypatch):
    if theme is MONO:
        monkeypatch.setenv("NO_COLOR", "1")

    async def story(app, pilot):
        for tab in "12345":
            await press(pilot, tab)
            await pilot.pause(0.05)
        await press(
            pilot, "1", "enter", "5", "escape", "question_mark", "escape", "colon", "escape"
        )
        colors = {
            segment.style.color.name
            for row in app.screen._compositor.render_strips()
            for segment in row
            if segment.style and segment.style.color
        }
        if theme is MONO:
            assert colors <= {"default"}

    play(story, theme=theme, symbols=SETS["block"])


def test_every_binding_is_tried_somewhere_here():
    text = Path(__file__).read_text()
    for binding in keymap.BINDINGS:
        names = [*binding.key.split(",")]
        assert any(f'"{n}"' in text or (len(n) == 1 and f'"{n}' in text) for n in names), binding.id


def test_the_top_bar_says_when_the_numbers_are_final():
    async def story(app, pilot):
        assert app.query_one(TopBar).data.is_final
        assert "simulated" in app.query_one(TopBar).data.state

    play(story)


def test_the_other_keys_do_not_fail():
    async def story(app, pilot):
        await press(pilot, "z", "z", "v", "v", "right_square_bracket", "k", "h", "H", "s")
        await pilot.pause()
        await press(
            pilot, "escape", "ctrl+z", "ctrl+r", "ctrl+y", "tab", "shift+tab", "home", "end"
        )
        assert app.is_running

    play(story)


def test_answers_that_arrive_under_a_page_or_a_prompt_are_drawn():
    async def story(app, pilot):
        for opener in ("question_mark", "colon", "c"):
            await press(pilot, "l", opener)
            assert len(app.screen_stack) == 2
            await settled(app, pilot)
            await pilot.pause(0.2)
            assert app.stage.query_one(Headline).data.answer == app.known.answer
            await press(pilot, "escape")

    play(story)


@pytest.mark.parametrize("key", ["question_mark", "e", "colon"])
def test_a_page_that_is_left_twice_at_once_is_left_once(key):
    async def story(app, pilot):
        await pilot.press(key)
        page = app.screen
        assert page is not app.stage
        page.action_leave()
        page.action_leave()
        await pilot.pause(0.1)
        assert app.screen is app.stage
        assert app.is_running

    play(story)
