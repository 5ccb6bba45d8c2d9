"""Key press to repaint through a real pseudo-terminal at 120×40, against an empty Textual app.

Each press waits until the terminal has been sent the very number that the coarse (tier-1) answer
has for that key, so a repaint of an older answer is not counted. The solver is the tests' double,
whose coarse answer takes `--solve-ms`, or with ``--real`` that of the package.

Run: ``python benches/bench_tui_latency.py [--presses 60] [--solve-ms 4] [--real]``
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import select
import statistics
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOUBLE = ROOT / "tests" / "tui" / "explore_double.py"
sys.path.insert(0, str(DOUBLE.parent))

EMPTY = """
from textual.app import App
from textual.widget import Widget
from textual.strip import Strip
from rich.segment import Segment
from rich.style import Style
class Count(Widget):
    n = 0
    def render_line(self, y):
        text = f"count {self.n:06d}" if y == 0 else ""
        return Strip([Segment(text.ljust(self.size.width), Style())], self.size.width)
class Empty(App):
    BINDINGS = [("l", "more", "more"), ("q", "quit", "quit")]
    def compose(self):
        yield Count()
    def action_more(self):
        count = self.query_one(Count)
        count.n += 1
        count.refresh()
Empty().run()
"""


CONTROLS = 41
"""Cells across the column of sliders at 120×40."""


class Terminal:
    """A program in a pseudo-terminal."""

    def __init__(self, command: list[str], *, width: int = 120, height: int = 40) -> None:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        environment = {
            **os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "TEXTUAL_FPS": "120",
            "COLUMNS": str(width), "LINES": str(height),
        }  # fmt: skip
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment, close_fds=True,
            start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        self.master = master

    def read(self, seconds: float) -> bytes:
        """Return what is there within a time, b"" when nothing is."""
        ready, _, _ = select.select([self.master], [], [], max(seconds, 0))
        return os.read(self.master, 1 << 16) if ready else b""

    def drain(self, quiet_s: float) -> None:
        """Read until nothing comes for a while."""
        while self.read(quiet_s):
            pass

    def press(self, key: bytes, wanted: bytes, *, within: float = 5.0) -> tuple[float, float, int]:
        """Return seconds to the first byte and to the wanted text, and the bytes sent."""
        begin = time.perf_counter()
        os.write(self.master, key)
        seen, first = b"", 0.0
        while time.perf_counter() - begin < within:
            some = self.read(within)
            now = time.perf_counter() - begin
            first = first or now
            seen += some
            if wanted in seen:
                return first, now, len(seen)
        raise AssertionError(f"{wanted!r} did not come in {within} s; got {seen[-300:]!r}")

    def close(self) -> None:
        """End the program."""
        os.write(self.master, b"q")
        try:
            self.process.wait(3)
        except subprocess.TimeoutExpired:
            self.process.kill()
        os.close(self.master)

    def memory_bytes(self) -> int:
        """Return its resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(x for x in status.splitlines() if x.startswith("VmRSS")).split()[1]) * 1024


def quantiles(seconds: list[float]) -> dict[str, float]:
    """Return p50 and p95 in milliseconds."""
    cuts = statistics.quantiles(seconds, n=20, method="inclusive")
    return {
        "p50_ms": round(statistics.median(seconds) * 1e3, 1),
        "p95_ms": round(cuts[-1] * 1e3, 1),
    }


def empty(presses: int) -> dict[str, float]:
    """Return the latency of a Textual app that shows one number."""
    terminal = Terminal([sys.executable, "-c", EMPTY])
    terminal.drain(1.0)
    times = []
    for n in range(presses):
        times.append(terminal.press(b"l", f"{n + 1:06d}".encode())[1])
        terminal.drain(0.05)
    terminal.close()
    return quantiles(times)


class Never:
    """A cancel flag nobody sets."""

    is_set = False

    def note(self, done: int, total: int, what: str) -> None:
        """Nobody listens."""

    def work(self) -> bool:
        """There is nothing else to do."""
        return False


def explorer(
    presses: int, solve_ms: float, size: tuple[int, int], *, is_real: bool = False
) -> dict[str, object]:
    """Return the latencies of the explorer, over the double or over the package's own solver."""
    from double import DoubleSolver

    from firstlight.tui.answer import Tier
    from firstlight.tui.field import BY_KEY
    from firstlight.tui.number import written
    from firstlight.tui.state import DEFAULT

    command = [sys.executable, str(DOUBLE), str(solve_ms / 1e3)]
    solver = DoubleSolver(coarse_s=0, full_s=0)
    if is_real:
        from firstlight.tui.solver import default_solver

        command = [sys.executable, "-m", "firstlight", "explore"]
        solver = default_solver()
    terminal = Terminal(command, width=size[0], height=size[1])
    seen = b""
    while "≈".encode() not in seen:
        seen += terminal.read(5)
    start_s = time.perf_counter() - terminal.began
    terminal.drain(1.0)
    field = BY_KEY["context_tok"]
    setup, first, full, sizes, wanted = DEFAULT, [], [], [], ""
    for n in range(presses):
        letter, step = (b"l", 1) if n < presses * 3 // 4 else (b"h", -1)
        setup = setup.replace("context_tok", field.nudged(setup["context_tok"], step))
        answer = solver.simulate(setup, fidelity=Tier.COARSE, cancel=Never())
        before = wanted
        wanted = "≈" + written(answer.designs[2].metrics["energy_j_per_request"], "J")
        if wanted == before:
            # Nothing of it is repainted, so there is nothing to wait for.
            os.write(terminal.master, letter)
            terminal.drain(0.2)
            continue
        a, b, count = terminal.press(letter, wanted.encode())
        first.append(a)
        full.append(b)
        sizes.append(count)
        terminal.drain(0.12)
    memory = terminal.memory_bytes()
    terminal.close()
    return {
        "first_byte": quantiles(first),
        "coarse_answer": quantiles(full),
        "bytes_a_press": round(statistics.median(sizes)),
        "start_to_numbers_s": round(start_s, 2),
        "memory_mb": round(memory / 1e6),
    }


def drag(solve_ms: float, seconds: float, *, is_real: bool = False) -> dict[str, float]:
    """Return frame gaps and catch-up of a drag of the context at 60 events a second.

    It is caught up when the coarse answer of the last place has been painted.
    """
    from double import DoubleSolver

    from firstlight.tui.answer import Tier
    from firstlight.tui.field import BY_KEY
    from firstlight.tui.number import written
    from firstlight.tui.solver import default_solver
    from firstlight.tui.state import DEFAULT
    from firstlight.tui.widgets.slider import track_of

    command = [sys.executable, str(DOUBLE), str(solve_ms / 1e3)]
    if is_real:
        command = [sys.executable, "-m", "firstlight", "explore"]
    solver = default_solver() if is_real else DoubleSolver(coarse_s=0, full_s=0)
    track, field, end_x = track_of(CONTROLS), BY_KEY["context_tok"], 16
    last_setup = DEFAULT.replace(field.key, field.at((end_x - 1 - track.start) / (track.cells - 1)))
    answer = solver.simulate(last_setup, fidelity=Tier.COARSE, cancel=Never())
    wanted = "≈" + written(answer.designs[2].metrics["energy_j_per_request"], "J")
    terminal = Terminal(command)
    terminal.drain(1.5)
    begin = last = time.perf_counter()
    gap, count, n = 0.0, 0, 0
    os.write(terminal.master, b"\x1b[<0;16;4M")
    while time.perf_counter() - begin < seconds:
        n += 1
        place = n % 36
        x = 14 + (place if place < 18 else 36 - place)
        os.write(terminal.master, f"\x1b[<32;{x};4M".encode())
        until = begin + n / 60
        while (left := until - time.perf_counter()) > 0:
            if terminal.read(left):
                now = time.perf_counter()
                gap, last, count = max(gap, now - last), now, count + 1
    while n % 36 != 12:  # the drag goes on to a place whose numbers differ from the last one's
        n += 1
        time.sleep(1 / 60)
        os.write(terminal.master, f"\x1b[<32;{20 + n % 2};4M".encode())
        terminal.read(0)
    caught_up = terminal.press(f"\x1b[<32;{end_x};4M".encode(), wanted.encode())[1]
    os.write(terminal.master, f"\x1b[<0;{end_x};4m".encode())
    terminal.close()
    return {
        "largest_gap_ms": round(gap * 1e3, 1),
        "reads": count,
        "caught_up_ms": round(caught_up * 1e3, 1),
    }


def main() -> None:
    """Print the measurements as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--presses", type=int, default=60)
    parser.add_argument("--solve-ms", type=float, default=4.0)
    parser.add_argument("--drag-s", type=float, default=10.0)
    parser.add_argument("--real", action="store_true")
    given = parser.parse_args()
    found = {"empty_app": empty(given.presses)}
    for size in ((120, 40), (80, 24), (200, 60)):
        found[f"explorer_{size[0]}x{size[1]}"] = explorer(
            given.presses, given.solve_ms, size, is_real=given.real
        )
    found["drag"] = drag(given.solve_ms, given.drag_s, is_real=given.real)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
