"""Sweeps: every point once, whatever happens to the process, the folder or a worker."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from firstlight.cli.root import firstlight
from firstlight.errors import OutputError, ScenarioError
from firstlight.evaluate.analytic import estimate
from firstlight.scenario import Scenario
from firstlight.sweep import engines, table, task
from firstlight.sweep.run import sweep

OVER = {"power_w": "1e5..1e6:log:4", "t_reload_s": [1e-6, 1e-5]}


@pytest.fixture(scope="module")
def scenario():
    return Scenario.default()


@pytest.fixture(scope="module")
def plain(scenario):
    return sweep(scenario, over=OVER)


def keyed(rows):
    return {(row["point"], row["design"]): row for row in rows}


def test_every_point_equals_the_changed_scenario(scenario, plain):
    assert plain.points == 8
    for row in plain.rows:
        changes = {"power_w": row["power_w"], "t_reload_s": row["t_reload_s"]}
        one = estimate(scenario.replace(**changes))[row["design"]]
        assert row["goodput_request_per_s"] == one.goodput_request_per_s
        assert row["cost_usd_per_request"] == one.cost_usd_per_request


def test_processes_give_the_same_rows(scenario, plain, tmp_path):
    again = sweep(scenario, over=OVER, workers=2, chunk_points=3, folder=tmp_path / "s")
    assert keyed(again.rows) == keyed(plain.rows)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_both_forms_hold_the_same_numbers(scenario, plain, tmp_path, monkeypatch, form):
    if form == "parquet":
        pytest.importorskip("pyarrow", reason="the extra 'sweep' is not installed")
    monkeypatch.setattr(table, "form", lambda: form)
    swept = sweep(scenario, over=OVER, folder=tmp_path / form)
    assert list((tmp_path / form).glob(f"part-*.{form}"))
    for key, row in keyed(swept.rows).items():
        other = keyed(plain.rows)[key]
        for name in task.NUMBERS:
            assert row[name] == other[name]


def test_second_run_of_the_same_sweep_computes_nothing(scenario, tmp_path):
    first = sweep(scenario, over=OVER, folder=tmp_path / "s", chunk_points=2)
    again = sweep(scenario, over=OVER, folder=tmp_path / "s", chunk_points=2)
    assert (first.computed, again.computed) == (8, 0)
    assert again.rows == first.rows


def test_only_missing_parts_are_computed(scenario, tmp_path):
    first = sweep(scenario, over=OVER, folder=tmp_path / "s", chunk_points=2)
    next((tmp_path / "s").glob("part-000002.*")).unlink()
    again = sweep(scenario, over=OVER, folder=tmp_path / "s", chunk_points=2)
    assert again.computed == 2
    assert again.rows == first.rows


def test_folder_of_another_sweep_is_refused(scenario, tmp_path):
    sweep(scenario, over=OVER, folder=tmp_path / "s")
    with pytest.raises(OutputError, match="another sweep"):
        sweep(scenario, over={"power_w": [1e6]}, folder=tmp_path / "s")
    with pytest.raises(OutputError, match="scenario_hash"):
        sweep(scenario.replace(pue=1.3), over=OVER, folder=tmp_path / "s")


def test_folder_with_other_files_is_refused(scenario, tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(OutputError, match="not empty"):
        sweep(scenario, over=OVER, folder=tmp_path)


def test_two_sweeps_in_one_folder_are_refused(scenario, tmp_path):
    with table.Folder(tmp_path / "s"), pytest.raises(OutputError, match="another sweep is running"):
        sweep(scenario, over=OVER, folder=tmp_path / "s")
    assert sweep(scenario, over=OVER, folder=tmp_path / "s").points == 8


def test_killed_sweep_goes_on_with_nothing_lost_or_done_twice(scenario, tmp_path):
    over = {"power_w": "1e5..1e6:log:12", "t_reload_s": "1e-6..1e-5:log:20"}
    words = [f"{field}={form}" for field, form in over.items()]
    command = [sys.executable, "-c", (
        "import sys; from firstlight.scenario import Scenario; from firstlight.sweep.run import sweep;"
        "from firstlight.sweep.axis import parse_over;"
        "sweep(Scenario.default(), over=parse_over(sys.argv[2:]), folder=sys.argv[1],"
        " chunk_points=8, workers=1)"
    ), str(tmp_path / "s"), *words]  # fmt: skip
    process = subprocess.Popen(command)
    parts = 0
    for _ in range(600):
        parts = len(list((tmp_path / "s").glob("part-*"))) if (tmp_path / "s").exists() else 0
        if parts >= 3 or process.poll() is not None:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert parts >= 3
    kept = {entry.name: entry.stat().st_mtime_ns for entry in (tmp_path / "s").glob("part-*")}
    swept = sweep(scenario, over=over, folder=tmp_path / "s", chunk_points=8, workers=1)
    assert swept.computed == 240 - 8 * len(kept)
    for name, changed in kept.items():
        assert (tmp_path / "s" / name).stat().st_mtime_ns == changed
    assert sorted(row["point"] for row in swept.rows) == sorted(list(range(240)) * 3)
    assert keyed(swept.rows) == keyed(sweep(scenario, over=over).rows)


def test_workers_end_with_a_killed_driver(tmp_path):
    code = (
        "import sys; from firstlight.scenario import Scenario; from firstlight.sweep.run import sweep\n"
        "if __name__ == '__main__':\n"
        "    sweep(Scenario.default(), over={'power_w': '1e5..1e7:log:400', 'pue': '1..1.5:lin:50'},"
        " folder=sys.argv[1], workers=2)\n"
    )
    script = tmp_path / "driver.py"
    script.write_text(code)
    driver = subprocess.Popen([sys.executable, str(script), str(tmp_path / "s")])
    children = Path(f"/proc/{driver.pid}/task/{driver.pid}/children")
    workers = []
    for _ in range(600):
        workers = [p for p in children.read_text().split() if "spawn_main" in _command(p)]
        if list((tmp_path / "s").glob("part-*")) and len(workers) == 2:
            break
        time.sleep(0.05)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert len(workers) == 2
    for _ in range(200):
        if not any("spawn_main" in _command(p) for p in workers):
            break
        time.sleep(0.05)
    assert not any("spawn_main" in _command(p) for p in workers)


def _command(process):
    """Return the command line of a process; empty when it is gone or only waits to be reaped."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_text()
    return ""


def test_full_disk_keeps_earlier_parts_and_says_how_to_go_on(scenario, tmp_path, monkeypatch):
    real, calls = os.fsync, []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) > 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        OutputError, match="No space left on device; parts already written are kept"
    ):
        sweep(scenario, over=OVER, folder=tmp_path / "s", chunk_points=2)
    monkeypatch.undo()
    assert len(list((tmp_path / "s").glob("part-*"))) == 2
    assert not list((tmp_path / "s").glob(".*.partial"))
    assert sweep(scenario, over=OVER, folder=tmp_path / "s", chunk_points=2).computed == 4


def test_failed_points_are_recorded_with_their_reason(scenario):
    swept = sweep(scenario, over={"power_w": [1e3, 1e6]})
    assert swept.failed == 1
    row = next(row for row in swept.rows if row["status"] == "failed")
    assert "smaller than one h100-sxm-8x" in row["reason"]
    assert np.isnan(swept.column("goodput_request_per_s", design="optical+gpu")[0])
    assert swept.column("goodput_request_per_s", design="optical+gpu")[1] > 0


def test_infeasible_design_is_a_row_with_its_reason(scenario):
    swept = sweep(scenario, over={"t_reload_s": [1e-3]})
    row = keyed(swept.rows)[0, "optical+gpu"]
    assert row["status"] == "infeasible"
    assert "TTFT" in row["reason"]


def die_once(work):
    """Kill the process the first time; the mark that says so is a file."""
    if work.document.startswith("KILL:") and not Path(work.document[5:]).exists():
        with contextlib.suppress(OSError):
            Path(work.document[5:]).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return [{"point": index, "design": "x"} for index, _ in work.points]


def tasks(document, count=4):
    return [
        task.Task(number=n, document=document, tier="analytic", rate_request_per_s=None,
                  fields=("a",), points=((n, (("a", 1.0),)),))
        for n in range(count)
    ]  # fmt: skip


def test_chunks_of_a_dead_worker_are_sent_again(tmp_path, monkeypatch):
    monkeypatch.setattr(task, "run", die_once)
    # The functions of this file are importable in the new processes by path only.
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setattr(die_once, "__module__", "test_sweep")
    monkeypatch.setitem(sys.modules, "test_sweep", sys.modules[__name__])
    found = {
        one.number: rows
        for one, rows in engines.Local(2).results(tasks(f"KILL:{tmp_path / 'mark'}"))
    }
    assert sorted(found) == [0, 1, 2, 3]
    assert all(rows[0]["design"] == "x" for rows in found.values())
    assert (tmp_path / "mark").exists()


def test_chunk_that_always_kills_its_worker_is_recorded_and_the_rest_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(task, "run", die_once)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setattr(die_once, "__module__", "test_sweep")
    monkeypatch.setitem(sys.modules, "test_sweep", sys.modules[__name__])
    bad = tasks(f"KILL:{tmp_path / 'missing' / 'mark'}", count=1)
    monkeypatch.setattr(engines, "TRIES", 2)
    found = list(engines.Local(1).results(bad))
    assert found[0][1][0]["status"] == "failed"


def test_cell_tier_simulates_over_the_whole_trace(scenario):
    swept = sweep(scenario, over={"rate_request_per_s": [2.0, 4.0]}, tier="cell", workers=1)
    served = swept.column("request_per_s", design="gpu-colocated")
    assert served == pytest.approx([2.0, 4.0], rel=0.06)
    energy = swept.column("energy_j_per_request", design="gpu-colocated")
    assert energy[1] < energy[0]


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({}, "nothing to sweep"),
        ({"power": [1.0]}, "power"),
        ({"quantile": [2.0, 3.0]}, "quantile"),
        ({"power_w": "1e5..1e7:log:90000", "pue": "1..2:lin:9000"}, "at most"),
    ],
)
def test_impossible_sweeps_are_refused_before_they_begin(scenario, over, message):
    with pytest.raises(ScenarioError, match=message):
        sweep(scenario, over=over)


def test_draws_are_the_same_at_every_grid_point(scenario):
    pytest.importorskip("scipy", reason="the extra 'sweep' is not installed")
    swept = sweep(scenario, over={"power_w": [5e5, 1e6], "t_reload_s": "1e-6..1e-4"}, draws=8)
    by_power = {}
    for row in swept.rows:
        by_power.setdefault(row["power_w"], []).append(row["t_reload_s"])
    assert by_power[5e5] == by_power[1e6]
    assert swept.points == 16


def test_progress_counts_up_and_tells_the_time_left(scenario):
    told = []
    sweep(scenario, over=OVER, chunk_points=4, progress=lambda *what: told.append(what))
    assert [done for done, _, _ in told] == [4, 8]
    assert "left" in told[0][2]


def test_command_sweeps_resumes_and_prints_80_columns(tmp_path):
    words = ["sweep", "--over", "power_w=1e5..1e6:log:3", "-o", str(tmp_path / "s")]
    for computed in (3, 0):
        result = CliRunner().invoke(firstlight, words, catch_exceptions=False)
        assert result.exit_code == 0
        assert f"{computed} computed" in result.stdout
        assert max(len(line) for line in result.stdout.splitlines()[:-1]) <= 80
    assert json.loads((tmp_path / "s" / "manifest.json").read_text())["points"] == 3


def test_command_solves_a_break_even_of_any_two_designs():
    words = ["sweep", "--break-even", "t_reload_s", "--between", "optical+gpu,gpu-colocated"]
    result = CliRunner().invoke(firstlight, words, catch_exceptions=False)
    assert result.exit_code == 0
    assert "optical+gpu beats gpu-colocated with t_reload_s below" in result.stdout
    found = CliRunner().invoke(firstlight, [*words, "--json"], catch_exceptions=False)
    assert json.loads(found.stdout)["holds"] == "below"


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_ray_gives_the_same_numbers(scenario, plain, tmp_path):
    pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    swept = sweep(scenario, over=OVER, engine="ray", folder=tmp_path / "s", chunk_points=2)
    assert keyed(swept.rows) == keyed(plain.rows)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_ray_sends_the_chunk_of_a_dead_worker_again(tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    monkeypatch.setattr(task, "run", die_once)
    monkeypatch.setattr(die_once, "__module__", "__main__")
    found = list(engines.Ray(workers=1).results(tasks(f"KILL:{tmp_path / 'mark'}")))
    assert sorted(one.number for one, _ in found) == [0, 1, 2, 3]
    assert all(rows[0].get("design") == "x" for _, rows in found)


def test_ray_without_the_package_names_the_extra(scenario, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ScenarioError, match=r"firstlight\[ray\]"):
        sweep(scenario, over=OVER, engine="ray")
