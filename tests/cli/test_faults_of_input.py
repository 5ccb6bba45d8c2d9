"""Faults of input that were found by trying to break the commands, each kind kept as a test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from firstlight import catalog, units
from firstlight.errors import (
    CatalogError,
    FirstlightError,
    ScenarioError,
    TraceError,
    UnitError,
    choices,
    written,
)
from firstlight.scenario import Scenario
from firstlight.sweep import axis


def test_a_sweep_in_which_every_point_fails_says_why_and_leaves_with_1(run):
    ran = run("sweep", "--over", "t_reload_s=1,2")
    assert ran.status == 1
    assert "2 points, 2 failed" in ran.out
    assert "failed 1×: t_reload_s: 1 is out of range; allowed: 0 to 0.017 s" in ran.out


def test_a_sweep_in_which_some_points_fail_leaves_with_0(run):
    ran = run("sweep", "--over", "pue=0.5,1.2")
    assert ran.status == 0
    assert "2 points, 1 failed" in ran.out


def test_reasons_are_folded_and_never_cut(run):
    ran = run("sweep", "--over", "pue=0.5,1.2")
    assert "at least 1 and at most 10" in " ".join(ran.out.split())
    assert max(map(len, ran.out.splitlines())) <= 80


def test_a_design_that_works_at_no_point_says_why(run):
    ran = run("sweep", "--over", "ttft_s=1e-9,2e-9")
    assert "optical+gpu works at no point:" in ran.out
    assert "nan" not in ran.out


@pytest.mark.parametrize(
    "setting",
    ["pue=0.5,1.2", "quantile=1.5,0.9", "cost_of_capital_frac=2,0.1", "cached_frac=1,0.5"],
)
def test_a_quick_field_is_checked_as_a_scenario_checks_it(run, setting):
    assert "2 points, 1 failed" in run("sweep", "--over", setting).out


def test_an_interrupted_sweep_says_what_is_kept_and_how_to_go_on(tmp_path):
    folder = tmp_path / "kept"
    words = [
        "sweep",
        "--over",
        "t_reload_s=1e-6..1e-4:log:60000",
        "--workers",
        "1",
        "-o",
        str(folder),
    ]
    process = subprocess.Popen(  # our own interpreter and our own words
        [sys.executable, "-m", "firstlight", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # a test runner may have been started with interrupts switched off
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )  # fmt: skip
    try:
        for _ in range(600):
            if any(folder.glob("part-*")):
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert f"in {folder}: the same command goes on from there" in err
    assert "no output was left" not in err


def test_a_file_that_begins_with_a_byte_order_mark_is_read(tmp_path):
    path = tmp_path / "rack.toml"
    path.write_bytes(b"\xef\xbb\xbf" + b'[facility]\npower_w = "2 MW"\n')
    assert Scenario.load(path).facility.power_w == 2e6
    path.write_bytes("[facility]\n".encode("utf-16"))
    with pytest.raises(ScenarioError, match="not UTF-8 text"):
        Scenario.load(path)


def test_a_device_without_a_stated_link_is_used_alone(run):
    design = 'design=[{name="g",pools=[{role="both",server="gaudi3-8x"}]}]'
    ran = run("sweep", "--set", design, "--set", "model=llama-3.1-8b", "--over", "pue=1.1")
    assert ran.status == 0
    assert "0 failed" in ran.out


def test_a_load_that_is_too_much_is_told_to_be_lowered_where_it_was_given(run):
    ran = run("compare", "--rate", "1e9")
    assert ran.status == 2
    assert "--rate" in ran.err
    assert "one cell" not in ran.err


@pytest.mark.parametrize("command", ["compare", "sweep", "plan", "claims"])
def test_an_engine_field_that_cannot_be_is_refused_with_file_and_line(run, tmp_path, command):
    path = tmp_path / "rack.toml"
    path.write_text("[facility]\npue = 1.1\n[assumptions]\nt_reload_s = 1\n")
    ran = run(command, path)
    assert ran.status == 2
    assert f"{path}:4: assumptions.t_reload_s: 1 is out of range; allowed: 0 to 0.017 s" in ran.err
    path.write_text('[assumptions]\nengines = "2..4000"\n')
    assert f"{path}:2: assumptions.engines: 4000 is out of range" in run(command, path).err


def test_long_lists_of_names_are_shortened():
    names = [f"name-{n}" for n in range(200)]
    assert choices("xyz", names, see="firstlight catalog list") == (
        "; 200 are allowed, such as name-0, name-1, name-2; 'firstlight catalog list' names them"
    )
    assert choices("xyz", ["a", "b"]) == "; allowed: a, b"
    assert choices("name-19", names).startswith("; did you mean 'name-19")


@pytest.mark.parametrize(
    "attempt",
    [
        lambda: catalog.get("zzzz", kind="model"),
        lambda: Scenario.default().replace(model="zzzz"),
        lambda: Scenario.default().replace(assumptions={"zzzz": 1}),
        lambda: Scenario.default().replace(**{"design.optical+gpu.pools.prefill.server": "zzzz"}),
    ],
)
def test_no_message_lists_a_whole_catalog(attempt):
    with pytest.raises(FirstlightError) as refused:
        attempt()
    assert len(str(refused.value)) < 260


def test_a_short_unknown_id_is_not_taken_for_another_short_one(run):
    ran = run("catalog", "show", "nope")
    assert ran.status == 2
    assert "did you mean" not in ran.err
    assert "firstlight catalog list" in ran.err
    assert "did you mean 'h100-sxm'" in run("catalog", "show", "h100-sxn").err


@pytest.mark.parametrize("text", ["١٢", "１２", "1__0", "1_"])
def test_digits_of_other_scripts_are_no_numbers(text):
    with pytest.raises(UnitError):
        units.parse(text, "1")
    with pytest.raises(ScenarioError):
        axis.number(text, field="power_w")
    with pytest.raises(ScenarioError):
        Scenario.default().replace(power_w=text)


@pytest.mark.parametrize("field", ["schema", "seed"])
def test_a_count_is_a_number_not_a_word(tmp_path, field):
    path = tmp_path / "rack.toml"
    path.write_text(f'{field} = "1"\n')
    with pytest.raises(ScenarioError, match=f"{field}: '1'; allowed"):
        Scenario.load(path)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "nothing"), (True, "true"), (1e-5, "1e-05"), ((1, "a"), "[1, 'a']"),
        ({"a": None}, "{ a = nothing }"), ({"\n": 1}, "{ '\\n' = 1 }"), ("a\nb", "'a\\nb'"),
    ],
)  # fmt: skip
def test_values_are_shown_as_files_write_them(value, said):
    assert written(value) == said


@pytest.mark.parametrize(
    ("setting", "leak"),
    [
        ({"power_w": True}, "True"), ({"power_w": None, "pue": (1, 2)}, "(1, 2)"),
        ({"double_buffer": None, "t_reload_s": None, "ttft_s": {"dist": None}}, "None"),
    ],
)  # fmt: skip
def test_no_message_speaks_python(setting, leak):
    with pytest.raises(FirstlightError) as refused:
        Scenario.default().replace(**setting)
    assert leak not in str(refused.value)


def test_a_quote_that_is_never_closed_is_a_fault_of_the_row_it_begins_in(tmp_path):
    from firstlight import workload

    path = tmp_path / "trace.csv"
    rows = "\n".join(f"{n},10,10" for n in range(50))
    path.write_text(f'arrived_at,num_prefill_tokens,num_decode_tokens\n0,"10,10\n{rows}\n')
    with pytest.raises(TraceError) as refused:
        workload.read_trace(path)
    assert "row 2: a quote is never closed" in str(refused.value)


@pytest.mark.parametrize(
    "words", [["catalog", "list"], ["doctor"], ["sweep", "--over", "pue=1.1,1.2"], ["claims"]]
)
@pytest.mark.parametrize("stream", [1, 2])
def test_a_stream_that_the_shell_has_closed_is_no_crash(words, stream):
    ran = subprocess.run(  # our own interpreter and our own words
        [sys.executable, "-m", "firstlight", *words],
        capture_output=True, check=False, timeout=120,
        preexec_fn=lambda: os.close(stream),
    )  # fmt: skip
    assert b"Traceback" not in ran.stderr
    assert ran.returncode == (2 if stream == 1 else 0)
    if stream == 1:
        assert ran.stderr.count(b"\n") == 1


def test_unknown_kinds_are_refused():
    with pytest.raises(CatalogError, match="unknown kind"):
        catalog.ids("devic")
