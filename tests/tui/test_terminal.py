"""A real terminal: tmux at two sizes, three kinds of TERM, without colour; keys in, screen out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.cells import cell_len

DOUBLE = Path(__file__).parent / "explore_double.py"
pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Tmux:
    """One tmux server of its own, so that nobody else's is touched."""

    def __init__(self, place: Path, width: int, height: int, term: str, **environment: str) -> None:
        self.socket = str(place / "tmux.sock")
        settings = {"TEXTUAL_FPS": "60", "LANG": "C.UTF-8", "TERM": term, **environment}
        words = " ".join(f"{k}={v}" for k, v in settings.items())
        self.run(
            "new-session", "-d", "-x", str(width), "-y", str(height),
            f"env {words} {sys.executable} {DOUBLE}; echo ended $?; sleep 30",
        )  # fmt: skip

    def run(self, *arguments: str) -> str:
        command = ["tmux", "-S", self.socket, "-f", os.devnull, *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=20
        ).stdout

    def screen(self, *options: str) -> list[str]:
        return self.run("capture-pane", "-p", *options).split("\n")[:-1]

    def wait(self, wanted: str, *, within: float = 20.0) -> list[str]:
        end = time.monotonic() + within
        while time.monotonic() < end:
            rows = self.screen()
            if any(wanted in row for row in rows):
                return rows
            time.sleep(0.1)
        raise AssertionError(f"{wanted!r} did not appear:\n" + "\n".join(self.screen()))

    def keys(self, *keys: str) -> None:
        self.run("send-keys", *keys)

    def end(self) -> None:
        command = ["tmux", "-S", self.socket, "kill-server"]
        subprocess.run(command, capture_output=True, check=False, timeout=20)


@pytest.fixture
def tmux(tmp_path):
    opened = []

    def make(width, height, term, **environment):
        opened.append(Tmux(tmp_path, width, height, term, **environment))
        return opened[-1]

    yield make
    for one in opened:
        one.end()


@pytest.mark.parametrize(
    ("size", "term"),
    [((80, 24), "screen-256color"), ((120, 40), "xterm-256color"), ((80, 24), "linux")],
)
def test_keys_in_and_numbers_out(tmux, size, term):
    one = tmux(*size, term)
    one.wait("simulated")
    # A picture may be taken in the middle of a repaint.
    rows = one.wait("best")
    assert len(rows) == size[1]
    assert all(cell_len(row) <= size[0] for row in rows)
    one.keys("l", "l", "l")
    one.wait("1.3")
    one.keys("p", "2")
    one.wait("A pinned")
    one.keys("3")
    one.wait("optics win")
    one.keys("1", "Enter")
    one.wait("Enter sets")
    one.keys("6", "4", "k", "Enter")
    one.wait("64k")
    one.keys("?")
    one.wait("Esc back")
    one.keys("Escape")
    one.run("resize-window", "-x", "50", "-y", "12")
    time.sleep(0.5)
    assert all(cell_len(row) <= 50 for row in one.screen())
    one.keys("q")
    one.wait("ended 0")


def test_no_colour_means_no_colour_code(tmux):
    one = tmux(80, 24, "xterm-256color", NO_COLOR="1")
    one.wait("simulated")
    for keys in ("2", "3", "4", "5", "1"):
        one.keys(keys)
        time.sleep(0.3)
    text = "\n".join(one.screen("-e"))
    codes = {c for part in text.split("\x1b[")[1:] for c in part.partition("m")[0].split(";")}
    assert codes <= {"", "0", "1", "2", "7", "22", "27", "39", "49"}, codes


def test_the_terminal_may_die(tmux):
    one = tmux(80, 24, "xterm-256color")
    one.wait("simulated")
    pids = one.run("list-panes", "-F", "#{pane_pid}").split()
    children = Path(f"/proc/{pids[0]}/task/{pids[0]}/children").read_text().split()
    one.run("kill-window")
    end = time.monotonic() + 8
    while time.monotonic() < end and any(Path(f"/proc/{pid}").exists() for pid in children):
        time.sleep(0.1)
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)
