"""The same answers without a screen: printed, spoken, exported, served."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from double import DoubleSolver

from firstlight.cli import explore
from firstlight.errors import FirstlightError, ScenarioError
from firstlight.tui import export, once, present, solver, web
from firstlight.tui.answer import Tier
from firstlight.tui.metric import METRICS
from firstlight.tui.number import Range
from firstlight.tui.plain import Plain
from firstlight.tui.state import DEFAULT


@pytest.fixture
def doubled(monkeypatch, tmp_path):
    monkeypatch.setattr(solver, "default_solver", lambda: DoubleSolver(coarse_s=0, full_s=0))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def answered(setup=DEFAULT):
    return once.answered(DoubleSolver(coarse_s=0, full_s=0), setup)


def run(*arguments, **options):
    return CliRunner().invoke(explore.command, arguments, **options)


@pytest.mark.parametrize("form", ["text", "md", "json", "csv"])
def test_printing_gives_the_number_of_the_solver(doubled, form):
    result = run("fl:1?power_w=2e6&d=0000", "--print", form)
    assert result.exit_code == 0, result.output
    expected = (
        DoubleSolver(coarse_s=0, full_s=0)
        .simulate(DEFAULT.replace("power_w", 2e6), fidelity=Tier.FULL, cancel=once._Never())
        .designs[2]
    )
    joules = expected.metrics["energy_j_per_request"]
    if form == "json":
        document = json.loads(result.stdout)
        assert document["designs"][2]["metrics"]["energy_j_per_request"] == joules
        assert document["tier"] == "simulated"
        assert document["provenance"][0]["source"]
    elif form == "csv":
        rows = list(csv.DictReader(io.StringIO(result.stdout)))
        values = {r["value"] for r in rows if r["kind"] == "point" and r["design"] == "optical+gpu"}
        assert repr(joules) in values
        assert sum(r["kind"] == "curve" for r in rows) == 3 * 65
    else:
        assert present.written(joules, "J") in result.stdout
    assert "the defaults changed" in result.stderr


def test_printing_to_a_file_is_whole(doubled, tmp_path):
    path = tmp_path / "out.json"
    assert run("--print", "json", "-o", str(path)).exit_code == 0
    assert json.loads(path.read_text())["designs"]


def test_a_scenario_that_is_broken_or_missing_is_an_error_with_its_name(doubled, tmp_path):
    with pytest.raises(ScenarioError, match=r"nowhere\.toml"):
        run(str(tmp_path / "nowhere.toml"), "--print", "text", catch_exceptions=False)


def test_without_a_terminal_it_speaks(doubled):
    result = run(input="power 2MW\nwhy\nundo\nnonsense 3\npower -3\nlist\ncite power\nquit\n")
    said = result.stdout
    assert result.exit_code == 0
    assert "power is 2MW" in said
    assert "5 % more HBM bandwidth" in said
    assert "error: no control is called 'nonsense'" in said
    assert "error: power -3W is outside" in said
    assert "power (power_w): 1MW; may be 10kW to 100MW" in said
    assert "\x1b" not in said
    assert not any(0x2500 <= ord(c) < 0x2900 for c in said)


def test_plain_says_only_what_changed():
    said: list[str] = []
    talk = Plain(DoubleSolver(coarse_s=0, full_s=0), DEFAULT, said.append)
    talk.run(["$/kWh 0.2"])
    after = said[said.index("firstlight explore, plain. Type help for the words.") + 1 :]
    changed = after[len(METRICS) * 3 :]
    assert any("was" in line for line in changed)
    assert not any("TTFT" in line for line in changed)


def test_plain_keeps_the_last_good_setup_when_one_is_impossible():
    said: list[str] = []
    talk = Plain(DoubleSolver(coarse_s=0, full_s=0), DEFAULT, said.append)
    talk.run(["power 10kW", "share", "export x.svg", "open /nowhere.toml"])
    assert any("smallest cell" in line for line in said)
    assert talk.known.setup == DEFAULT
    assert any("no picture" in line for line in said)
    assert any("/nowhere.toml" in line for line in said)


def test_a_report_names_sources_status_and_what_was_set_by_hand():
    setup = DEFAULT.replace("t_reload_s", Range(1e-6, 1e-4))
    known = replace(answered(setup), home=DEFAULT)
    text = export.as_markdown(known)
    assert "| reload | 1µs…100µs | set by you |" in text
    assert "NVIDIA H100 data sheet" in text
    assert "fl:1?t_reload_s=1e-06..0.0001" in text
    assert "> reload time and clock are not disclosed" in text


def test_an_unknown_number_is_a_question_mark_and_never_zero():
    known = answered()
    gap = replace(known.answer.designs[2], metrics={}, status={})
    known = replace(known, answer=replace(known.answer, designs=(*known.answer.designs[:2], gap)))
    assert "optical+GPU: ? (unknown)" in export.as_text(known)
    assert json.loads(export.as_json(known))["designs"][2]["metrics"]["ttft_s.p50"] is None


def test_a_design_that_is_impossible_says_why():
    known = answered()
    dead = replace(known.answer.designs[2], is_feasible=False, reason="one pass takes 11.3 s")
    known = replace(known, answer=replace(known.answer, designs=(*known.answer.designs[:2], dead)))
    assert "optical+GPU is impossible: one pass takes 11.3 s" in export.as_text(known)
    assert present.points(known)[2] is None


def test_the_metric_is_compared_in_its_own_direction():
    answer = answered().answer
    for metric in METRICS:
        values = [metric.value(d, "inference") for d in answer.designs]
        best = (max if metric.is_more_better else min)(values)
        index = metric.best(answer, "inference")
        assert index is None or values[index] == best


def test_the_sentence_and_the_search_find_the_same_break_even():
    from firstlight.tui.engine import BreakEvenSearch, Engine

    known = answered()
    reports = []
    runner = Engine(DoubleSolver(), reports.append)
    runner._search(0, BreakEvenSearch(setup=DEFAULT, key="context_tok", metric=METRICS[5]))
    value = present.written(reports[0].values[0], "tok")
    assert f"context ≤ {value}" in present.wins(known)


def test_a_comparison_becomes_an_answer_number_by_number():
    from firstlight.evaluate import answer as records

    def design(name, joules):
        said = {
            "name": name, "feasible": True, "servers": {}, "goodput_request_per_s": 8.0,
            "ttft_s": records.Percentiles(mean=0.1, p50=0.2, p90=0.3, p99=0.4),
            "energy_j_per_request": joules,
            "energy_j_per_request_by_part": records.Parts(
                optics=1, gpu_prefill=2, attention=3, gpu_decode=4, kv_transfer=5, host=6, idle=7,
                cooling=8,
            ),
            "gpu_equivalents_freed": 12.0,
            "binding": records.Binding(
                resource="memory bandwidth", pool="decode", marginal=0.5,
                others={"memory bandwidth @ decode": 0.5, "compute @ prefill": 0.2},
            ),
            "scopes": {
                "prefill": records.Scope(
                    energy_j_per_request=6.0, boundary="facility", gain_vs_colocated=1.0,
                    gain_vs_disaggregated=1.0,
                )
            },
        }  # fmt: skip
        return records.Design(**(dict.fromkeys(records.Design.__struct_fields__) | said))

    fields = dict.fromkeys(records.Comparison.__struct_fields__) | {
        "designs": (design("optical+gpu", 36.0), design("gpu-colocated", 40.0)), "provenance": (),
        "warnings": ("w",), "answer": "a sentence", "status": "assumed",
    }  # fmt: skip
    found = solver.answer_of(records.Comparison(**fields), tier=Tier.FULL)
    optical = found.designs[-1]
    assert optical.name == "optical+gpu"
    assert optical.metrics["ttft_s.p99"] == 0.4
    assert optical.metrics["tpot_s.p50"] is None
    assert optical.metrics["scopes.prefill.energy_j_per_request"] == 6.0
    assert optical.metrics["energy_j_per_request"] == sum(optical.energy_j_by_part.values())
    assert [(b.resource, b.gain) for b in optical.binding] == [
        ("memory bandwidth", 0.5),
        ("compute", 0.2),
    ]
    assert found.warnings == ("a sentence", "w")


def test_every_process_of_a_group_is_ended():
    grandchild = "import time; time.sleep(60)"
    stubborn = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        f"p = subprocess.Popen([sys.executable, '-c', {grandchild!r}]); print(p.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", stubborn], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    child = int(parent.stdout.readline())
    web.end_group(parent.pid, patience_s=0.3)
    parent.wait(5)
    parent.stdout.close()
    end = time.monotonic() + 5
    while time.monotonic() < end and alive(child):
        time.sleep(0.05)
    assert not alive(child)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_serving_without_textual_serve_names_the_package(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(FirstlightError, match="pip install textual-serve"):
        web.serve([], port=1)


def test_the_explorer_is_served_and_nothing_is_left():
    pytest.importorskip("textual_serve", reason="textual-serve is not installed")
    port = 18_700 + os.getpid() % 900
    code = f"from firstlight.tui.web import serve; serve([], port={port})"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([sys.executable, "-c", code], **quiet)
    try:
        end = time.monotonic() + 20
        while time.monotonic() < end:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=2) as page:
                    assert b"firstlight explore" in page.read()
                    break
            except OSError:
                time.sleep(0.2)
        else:
            raise AssertionError("no page in 20 s")
        drawn = asyncio.run(first_screen(port))
        assert b"compare" in drawn
        assert served_explorers()
    finally:
        server.send_signal(2)
        server.wait(15)
    assert not served_explorers()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=2)


async def first_screen(port):
    """Return what the explorer sends a browser until its tabs are drawn."""
    import aiohttp

    url = f"http://127.0.0.1:{port}/ws?width=100&height=30"
    drawn = b""
    async with aiohttp.ClientSession() as session, session.ws_connect(url) as socket:
        await socket.send_json(["resize", {"width": 100, "height": 30}])
        async with asyncio.timeout(30):
            async for message in socket:
                data = message.data
                drawn += data if isinstance(data, bytes) else str(data).encode()
                if b"compare" in drawn:
                    break
    return drawn


def served_explorers():
    """Return explorers that run for a browser."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes()
            if (
                b"firstlight\0explore" in words
                and b"TEXTUAL_DRIVER" in (place / "environ").read_bytes()
            ):
                found.append(place.name)
        except OSError:
            continue
    return found
