"""Numbers, fields, setups: what is typed is what is meant."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight import catalog
from firstlight.errors import OutputError, ScenarioError
from firstlight.tui import keymap, scenario_file, state
from firstlight.tui.app import parse_line
from firstlight.tui.axis import Axis
from firstlight.tui.field import BY_KEY, FIELDS, FROM_FILE, Scale, field
from firstlight.tui.number import Range, parse, parse_value, si, written
from firstlight.tui.state import DEFAULT, History, parse_share, share


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("128k", "tok", 128e3), ("1.5MW", "W", 1.5e6), ("1.5 MW", "W", 1.5e6), ("10us", "s", 1e-5),
        ("10 µs", "s", 1e-5), ("$0.08", "usd", 0.08), ("40%", "%", 0.4), ("1e6", "W", 1e6),
        ("1GHz", "Hz", 1e9), ("30 dB", "dB", 30.0), ("×1.5", "×", 1.5), ("250Top/s", "op/s", 2.5e14),
        ("16_384", "tok", 16384.0),
    ],
)  # fmt: skip
def test_a_typed_number_means_its_si_value(text, unit, value):
    assert parse(text, unit) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    "text", ["", "abc", "12 parsecs", "--3", "1e999", "5..", "..5", "1..2..3", "3..3"]
)
def test_garbage_is_refused_with_an_example(text):
    with pytest.raises(ScenarioError) as refused:
        parse_value(text, "W")
    assert "write" in str(refused.value)


def test_a_range_borrows_its_unit():
    assert parse_value("5..20us", "s") == Range(5e-6, 2e-5)
    assert parse_value("20us..5us", "s") == Range(5e-6, 2e-5)


@given(st.floats(1e-11, 9e17, allow_nan=False))
def test_a_printed_number_is_right_to_three_digits(value):
    assert parse(si(value), "tok") == pytest.approx(value, rel=5.1e-3)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(0.412, "s", "412ms"), (1e6, "W", "1.00MW"), (None, "J", "?"), (math.nan, "J", "?"), (0.05, "usd", "$0.050"),
     (999.96, "tok", "1.00k"), (0.4, "%", "40%"), (0.0, "J", "0J")],
)  # fmt: skip
def test_a_number_is_printed_with_its_unit(value, unit, text):
    assert written(value, unit) == text


@pytest.mark.parametrize("f", FIELDS, ids=lambda f: f.key)
def test_every_field_can_be_walked_from_end_to_end_and_never_leaves_its_bounds(f):
    value = f.default
    if f.scale is Scale.CHOICE:
        seen = {value := f.nudged(value, 1) for _ in f.choices}
        assert seen == {word for word, _ in f.choices}
        return
    value = f.lo
    for _ in range(400):
        moved = f.nudged(value, 1)
        assert moved > value or value == f.hi
        value = moved
    assert value == f.hi
    for _ in range(400):
        value = f.nudged(value, -1)
    assert value == f.lo


@pytest.mark.parametrize("f", FIELDS, ids=lambda f: f.key)
def test_what_a_field_shows_can_be_typed_back(f):
    for value in [f.default] if f.scale is Scale.CHOICE else [f.default, f.at(0.3), f.at(0.9)]:
        again = f.parse(f.shown(value))
        if isinstance(value, str):
            assert again == value
        else:
            assert again == pytest.approx(value, rel=6e-3)


@pytest.mark.parametrize(
    "f", [f for f in FIELDS if f.scale is not Scale.CHOICE], ids=lambda f: f.key
)
def test_a_value_outside_names_the_bounds(f):
    with pytest.raises(ScenarioError) as refused:
        DEFAULT.replace(f.key, f.hi * 10)
    assert f.label in str(refused.value)
    assert f.allowed() in str(refused.value)


def test_a_percentage_can_be_written_three_ways():
    cached = BY_KEY["cached_frac"]
    assert cached.parse("40%") == cached.parse("40") == cached.parse("0.4") == pytest.approx(0.4)


@pytest.mark.parametrize("f", [f for f in FIELDS if f.scale is Scale.CHOICE], ids=lambda f: f.key)
def test_every_choice_is_accepted_by_the_scenario(f):
    for word, _ in f.choices:
        if word != FROM_FILE:
            assert scenario_file.scenario_of(DEFAULT.replace(f.key, word)).schema == 1


def test_every_server_and_model_offered_is_in_the_catalog():
    servers, models = catalog.ids("server"), catalog.ids("model")
    for key, known in (
        ("gpu", servers),
        ("decode_silicon", servers),
        ("optical_server", servers),
        ("model", models),
    ):
        assert {w for w, _ in BY_KEY[key].choices} - {FROM_FILE} <= set(known)


def values():
    def of(f):
        if f.scale is Scale.CHOICE:
            return st.sampled_from([w for w, _ in f.choices])
        number = st.floats(0, 1).map(f.at)
        ranges = st.tuples(st.floats(0, 0.4), st.floats(0.6, 1)).map(
            lambda e: Range(f.at(e[0]), f.at(e[1]))
        )
        auto = [st.just("auto")] if f.has_auto else []
        return st.one_of(number, ranges, *auto)

    return st.fixed_dictionaries({}, optional={f.key: of(f) for f in FIELDS})


@given(values())
def test_a_share_string_gives_the_setup_back(changes):
    setup = DEFAULT.with_values(changes)
    again, warnings = parse_share(share(setup))
    assert again == setup
    assert warnings == []
    assert share(setup).isascii()


def test_a_share_string_holds_only_what_differs_in_readable_words():
    text = share(DEFAULT.replace("power_w", 1.5e6).replace("t_reload_s", Range(5e-6, 2e-5)))
    assert text.startswith("fl:1?power_w=1500000&t_reload_s=5e-06..2e-05&d=")


@pytest.mark.parametrize(
    ("text", "said"),
    [("fl:1?power=3", "unknown field 'power'"), ("fl:1?power_w=1e30", "outside"), ("fl:1?d=0000", "defaults changed"),
     ("fl:1?power_w=cheese", "not a number")],
)  # fmt: skip
def test_what_a_share_string_cannot_mean_is_said_and_never_dropped_silently(text, said):
    setup, warnings = parse_share(text)
    assert setup == DEFAULT
    assert any(said in warning for warning in warnings)


@pytest.mark.parametrize("text", ["", "fl:2?x=1", "power_w=1", "\x00"])
def test_another_string_is_no_share_string(text):
    with pytest.raises(ScenarioError):
        parse_share(text)


def test_the_shipped_scenario_and_the_defaults_are_the_same():
    assert scenario_file.setup_of(scenario_file.shipped()) == DEFAULT
    assert scenario_file.scenario_of(DEFAULT) == scenario_file.shipped()


def test_a_saved_file_is_a_scenario_and_gives_the_setup_back(tmp_path):
    from firstlight.scenario import Scenario

    setup = DEFAULT.with_values(
        {"power_w": Range(1e6, 4e6), "t_reload_s": Range(1e-6, 1e-4), "gpu": "b200-8x", "context_tok": 65_536.0,
         "optical_share_frac": 0.4, "traffic": "rag", "model": "llama-3.1-8b"}
    )  # fmt: skip
    path = tmp_path / "rack.toml"
    scenario_file.save(setup, path)
    again = scenario_file.load(path)
    assert again.values == setup.values
    loaded = Scenario.load(path)
    assert loaded.workload.context_tok == 65_536
    assert loaded.design("gpu-disaggregated").pool("prefill").server == "b200-8x"
    assert loaded.design("gpu-disaggregated").pool("decode").server == "h100-sxm-8x"
    assert loaded.assumptions["t_reload_s"] == "1e-06..0.0001"


def test_a_number_changed_by_hand_counts_more_than_the_comment_above_it(tmp_path):
    path = tmp_path / "rack.toml"
    scenario_file.save(DEFAULT.replace("power_w", Range(1e6, 4e6)), path)
    text = path.read_text().replace("power_w = 2000000.0", "power_w = 3000000.0")
    assert "3000000.0" in text
    path.write_text(text)
    assert scenario_file.load(path)["power_w"] == 3e6


def test_an_engine_chosen_leaves_its_own_figures_to_the_catalog():
    server = "iris-nova-conservative"
    setup = DEFAULT.replace("optical_server", server).with_values(
        scenario_file.engine_values(server)
    )
    scenario = scenario_file.scenario_of(setup)
    assert setup["t_reload_s"] == pytest.approx(0.00069)
    assert scenario.assumptions == {}
    assert scenario.design("optical+gpu").pool("prefill").server == server


def test_what_no_control_shows_survives_an_edit():
    base = scenario_file.shipped().replace(quantile=0.99, seed=7)
    setup = scenario_file.setup_of(base).replace("power_w", 2e6)
    scenario = scenario_file.scenario_of(setup)
    assert (scenario.slo.quantile, scenario.seed, scenario.facility.power_w) == (0.99, 7, 2e6)


@pytest.mark.parametrize(
    "text", ["not toml [", "schema = 1\nfoo = 3\n", "schema = 1\n[facility]\npower_w = -4\n"]
)
def test_a_broken_file_is_refused_by_name(tmp_path, text):
    path = tmp_path / "broken.toml"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=r"broken\.toml"):
        scenario_file.load(path)


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "out.md"
    state.write_whole(path, "first")
    with pytest.raises(OutputError):
        state.write_whole(tmp_path / "out.md" / "below.md", "second")
    assert [p.name for p in tmp_path.iterdir()] == ["out.md"]
    assert path.read_text() == "first"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_drag_is_one_step_and_undo_returns_to_before_it():
    clock = Clock()
    history = History(DEFAULT, clock)
    for i in range(60):
        clock.now += 1.0
        history.push(DEFAULT.replace("power_w", 1e6 + 1e4 * (i + 1)), key="power_w", is_drag=i > 0)
    history.close_step()
    clock.now += 0.1
    history.push(history.now.replace("power_w", 5e6), key="power_w")
    assert history.undo()
    assert history.now["power_w"] == 1e6 + 6e5
    assert history.undo()
    assert history.now == DEFAULT
    assert not history.undo()
    assert history.redo()
    assert history.now["power_w"] == 1e6 + 6e5


def test_quick_key_presses_merge_and_slow_ones_do_not():
    clock = Clock()
    history = History(DEFAULT, clock)
    for wait, value in ((0, 2e6), (0.1, 3e6), (0.9, 4e6)):
        clock.now += wait
        history.push(DEFAULT.replace("power_w", value), key="power_w")
    history.undo()
    assert history.now["power_w"] == 3e6
    history.undo()
    assert history.now == DEFAULT


@given(values(), st.lists(st.sampled_from(["undo", "redo", "push"]), max_size=30))
def test_undo_then_redo_changes_nothing(changes, moves):
    history = History(DEFAULT, Clock())
    for i, (key, value) in enumerate(changes.items()):
        history.push(history.now.replace(key, value), key=f"{key}{i}")
    for move in moves:
        before = history.now
        if move == "push":
            history.push(history.now.replace("power_w", 3e6))
        elif getattr(history, move)():
            assert {"undo": history.redo, "redo": history.undo}[move]()
            assert history.now == before


@given(st.floats(1e-9, 1e9), st.floats(1.01, 1e9), st.integers(1, 12), st.booleans())
def test_ticks_lie_on_the_scale_and_are_not_too_many(lo, ratio, count, is_log):
    axis = Axis(lo=lo, hi=lo * ratio, is_log=is_log)
    ticks = axis.ticks(count)
    assert len(ticks) <= max(2 * count + 2, 6)
    assert ticks == sorted(set(ticks))
    assert all(-1e-6 <= axis.position(t) <= 1 + 1e-6 for t in ticks)


def test_a_log_scale_shows_no_zero():
    assert math.isnan(Axis(lo=1, hi=10, is_log=True).position(0.0))


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [("context 128k", "context_tok", 128e3), ("ctx=128k", None, None), ("power 1.5MW", "power_w", 1.5e6),
     ("SLO TTFT 500ms", "ttft_s", 0.5), ("price 0.5..2", "price_ratio", Range(0.5, 2.0)), ("model 8b", "model", "llama-3.1-8b"),
     ("optical auto", "optical_share_frac", "auto"), ("power_w = 2MW", "power_w", 2e6), ("gpu b200", "gpu", "b200-8x")],
)  # fmt: skip
def test_a_typed_line_sets_a_control(line, key, value):
    if key is None:
        with pytest.raises(ScenarioError, match="no control is called"):
            parse_line(line)
    else:
        assert parse_line(line) == (key, value)


def test_an_unknown_control_is_named_with_the_nearest():
    with pytest.raises(ScenarioError, match="did you mean 'context'"):
        field("contxt")


def test_a_keymap_file_moves_keys_and_names_what_it_does_not_know(tmp_path):
    path = tmp_path / "explore.toml"
    assert keymap.load(path) == {}
    path.write_text('[keymap]\npin = "f5"\n')
    assert keymap.load(path) == {"pin": "f5"}
    path.write_text('[keymap]\npinn = "f5"\n')
    with pytest.raises(ScenarioError, match="did you mean 'pin'"):
        keymap.load(path)
    path.write_text("[keymap")
    with pytest.raises(ScenarioError, match="keymap"):
        keymap.load(path)


def test_no_key_is_bound_twice_nor_eaten_by_terminals():
    keys = [key for binding in keymap.BINDINGS for key in binding.key.split(",")]
    assert len(keys) == len(set(keys))
    assert not any(
        key.startswith(("alt+", "ctrl+shift+", "ctrl+enter", "ctrl+j", "ctrl+o", "ctrl+s"))
        for key in keys
    )
