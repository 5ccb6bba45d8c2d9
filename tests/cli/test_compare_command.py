"""`firstlight compare`: streams, forms, exit status, files, interruption."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import msgspec
import pytest

from firstlight.evaluate import answer as records

SMALL = ("--set", "power_w=60 kW", "--set", "name=small")


@pytest.fixture
def compare(run, short_trace):
    """Runs `compare` on the small scenario."""
    return lambda *more: run("compare", "--set", f"trace={short_trace}", *SMALL, *more)


@pytest.fixture
def known(monkeypatch, answer):
    """Answers at once with what was computed before; what is asked for stays unread."""
    found = answer()
    monkeypatch.setattr("firstlight.evaluate.compare", lambda *_, **__: found)


def test_answer_goes_to_stdout_and_nothing_else_does(compare):
    ran = compare()
    assert ran.status == 0
    assert ran.err == ""
    assert ran.out.startswith("Optical prefill with GPU decode carries")
    assert max(map(len, ran.out.splitlines())) <= 80


@pytest.mark.usefixtures("known")
def test_wider_terminal_is_used(compare, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    assert 80 < max(map(len, compare("--sources").out.splitlines())) <= 140


def every_field(record: type, found: dict) -> None:
    """Check that a JSON object has each field of a record, and so on inside."""
    for name, kind in zip(
        record.__struct_fields__,
        [field.type for field in msgspec.structs.fields(record)],
        strict=True,
    ):
        assert name in found, f"{record.__name__}.{name}"
        inner = found[name]
        for part in msgspec_structs(kind):
            for item in inner if isinstance(inner, list) else [inner]:
                if isinstance(item, dict):
                    every_field(part, item)


def msgspec_structs(kind) -> list[type]:
    """Return the records a type speaks of, except as values of a mapping."""
    from typing import get_args, get_origin

    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [kind]
    if get_origin(kind) is dict:
        return []
    return [part for argument in get_args(kind) for part in msgspec_structs(argument)]


def test_json_has_every_field(compare):
    ran = compare("--json")
    assert ran.status == 0
    document = json.loads(ran.out)
    every_field(records.Comparison, document)
    for design in document["designs"]:
        assert set(design["scopes"]) == {"linear_only", "prefill", "inference"}
        for scope in design["scopes"].values():
            every_field(records.Scope, scope)
        for field in ("power_w", "ttft_s", "tpot_s", "itl_s", "e2e_s", "binding", "cell"):
            assert design[field] is not None, field
    optical = document["designs"][2]
    assert optical["band"]["optimistic"]["feasible"]
    assert not optical["band"]["conservative"]["feasible"]
    assert [ratio["silicon"] for ratio in document["ratios"]] == [
        "h100-sxm-8x fp8",
        "b200-8x nvfp4",
    ]
    assert {turn["field"] for turn in document["break_even"]} == {
        "t_reload_s", "f_cycle_hz", "optical_price_ratio",
    }  # fmt: skip


@pytest.mark.usefixtures("known")
def test_file_gets_what_stdout_would(compare, tmp_path):
    path = tmp_path / "answer.json"
    printed = compare("--json").out
    ran = compare("--json", "-o", path)
    assert (ran.status, ran.out, ran.err) == (0, "", "")
    assert path.read_text() == printed
    assert path.stat().st_mode & 0o777 == 0o666 & ~current_umask()
    assert [file.name for file in tmp_path.iterdir()] == ["answer.json"]


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.usefixtures("known")
def test_link_stays_a_link_and_a_device_a_device(compare, tmp_path):
    target, link = tmp_path / "real.md", tmp_path / "link.md"
    target.write_text("old")
    link.symlink_to(target)
    assert compare("--markdown", "-o", link).status == 0
    assert link.is_symlink()
    assert target.read_text().startswith("Optical prefill")
    assert compare("-o", os.devnull).status == 0
    assert not os.path.isfile(os.devnull)  # noqa: PTH113  # the device itself


def test_level_nobody_can_meet_exits_1_and_says_how_far(compare):
    ran = compare("--set", "ttft_s=0.1 ms")
    assert ran.status == 1
    assert ran.err == "firstlight: no design meets the service level\n"
    text = " ".join(ran.out.split())
    assert text.count("is not feasible: TTFT 0.0001 s cannot be met") == 3
    assert "takes 163 ms" in text


def test_load_nobody_can_carry_exits_1_and_says_how_far(compare):
    ran = compare("--rate", "100000")
    assert ran.status == 1
    assert "misses the service level at this load" in " ".join(ran.out.split())


def test_rate_is_the_load_of_every_design(compare):
    document = json.loads(compare("--rate", "100", "--json").out)
    for design in document["designs"]:
        # a short window of few arrivals: three sigma of their number
        assert design["request_per_s"] == pytest.approx(100.0, rel=0.3)
    assert document["at_equal_load"] is None
    assert any("a load was given" in line for line in document["warnings"])


def test_seed_changes_the_traffic_and_is_recorded(compare):
    one, other, again = (json.loads(compare("--json", "--seed", n).out) for n in (1, 2, 1))
    assert one["seed"] == 1
    assert one["designs"] != other["designs"]
    assert one == again


def command(*arguments: str, **kwargs) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "firstlight", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs,
    )  # fmt: skip


def test_interrupt_ends_cleanly_and_leaves_nothing(tmp_path):
    process = command("compare", "--json", "-o", str(tmp_path / "answer.json"))
    deadline = time.monotonic() + 60
    while not any(tmp_path.iterdir()):  # the output is claimed just before the work
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert err.strip() == "interrupted; no output was left half-written"
    assert list(tmp_path.iterdir()) == []


def test_reader_that_leaves_early_is_no_error(short_trace):
    process = command("compare", "--set", f"trace={short_trace}", *SMALL, "--sources")
    assert process.stdout.readline().startswith("Optical")
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    process.wait(timeout=60)


def test_plain_terminal_gets_plainer_characters(short_trace):
    process = command(
        "compare", "--set", f"trace={short_trace}", *SMALL,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    assert out.isascii()
    assert " us" in out


@pytest.mark.parametrize(("no_color", "wanted"), [("", True), ("1", False)])
def test_terminal_gets_colour_unless_it_is_refused(short_trace, no_color, wanted):
    import pty

    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "firstlight", "compare", "--set", f"trace={short_trace}", *SMALL],
        stdout=theirs, stderr=subprocess.PIPE,
        env={**os.environ, "TERM": "xterm-256color", "NO_COLOR": no_color, "COLUMNS": "80"},
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # Linux ends a terminal nobody writes to with an error
        while piece := os.read(ours, 65536):
            shown += piece
    os.close(ours)
    assert process.communicate(timeout=60)[1] == b""
    assert process.returncode == 0
    assert b"What each design delivers" in shown
    assert (b"\x1b[" in shown) == wanted


def test_help_teaches_with_examples(run):
    ran = run("compare", "--help")
    assert ran.status == 0
    assert "firstlight compare rack.toml --json -o answer.json" in ran.out
    assert "Exit status: 0 answered; 1 no design" in ran.out
    listed = run("--help").out
    assert "compare" in listed
    assert "doctor" in listed


def test_doctor_reports_versions_cpu_extras_and_terminal(run, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    found = json.loads(run("doctor", "--json").out)
    assert found["build"]["profile"] in {"release", "debug"}
    assert found["versions"]["python"].startswith(f"{sys.version_info.major}.")
    assert "zstd" in found["optional parts"]
    assert "test" not in found["optional parts"]
    assert found["terminal"]["colour"] == "off, NO_COLOR is set"
    text = run("doctor").out
    for section in found:
        assert f"\n{section}\n" in f"\n{text}"
