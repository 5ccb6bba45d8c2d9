"""Random keys, mouse and resizes: no exception, no growth. FIRSTLIGHT_SOAK_S=600 is the long run.

Once over the double inside this process, once over the package's own calculation in a real
pseudo-terminal, where memory is that of the explorer alone.
"""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import numpy as np
import pytest
from double import DoubleSolver

from firstlight.tui.app import Explorer
from firstlight.tui.keymap import BINDINGS

SECONDS = float(os.environ.get("FIRSTLIGHT_SOAK_S", "20"))
NEVER = {"quit", "export", "save", "open"}


MOST_BYTES = 200e6
"""After every model, server and tab was visited; the first answers take three quarters of it."""


def resident_bytes(pid="self"):
    line = next(
        x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("VmRSS")
    )
    return int(line.split()[1]) * 1024


@pytest.mark.long
@pytest.mark.timeout(900)
def test_random_keys_mouse_and_resizes_break_and_grow_nothing():
    rng = np.random.default_rng(11)
    keys = [k for b in BINDINGS if b.id not in NEVER for k in b.key.split(",")]
    keys += [*"0123456789kM.", "backspace", "escape", "escape", "escape", "enter"]

    async def run():
        app = Explorer(DoubleSolver(coarse_s=0.001, full_s=0.005), quiet_s=0.02)
        sizes = []
        async with app.run_test(size=(120, 40)) as pilot:
            loop = asyncio.get_running_loop()
            begin, turn = loop.time(), 0
            while loop.time() - begin < SECONDS:
                turn += 1
                kind = rng.random()
                if kind < 0.02:
                    await pilot.resize_terminal(int(rng.integers(1, 220)), int(rng.integers(1, 70)))
                elif kind < 0.15:
                    width, height = app.size
                    await pilot.click(
                        offset=(int(rng.integers(0, width)), int(rng.integers(0, height)))
                    )
                else:
                    await pilot.press(str(rng.choice(keys)))
                assert app.is_running
                if turn % 400 == 0:
                    gc.collect()
                    sizes.append(resident_bytes())
            assert app._exception is None
        return sizes

    sizes = asyncio.run(run())
    half = len(sizes) // 2
    if half >= 3:
        early, late = np.median(sizes[half // 2 : half]), np.median(sizes[half:])
        assert late - early < 15e6, sizes


SEQUENCES = {
    "left": b"\x1b[D", "right": b"\x1b[C", "up": b"\x1b[A", "down": b"\x1b[B", "escape": b"\x1b",
    "enter": b"\r", "tab": b"\t", "shift+tab": b"\x1b[Z", "space": b" ", "backspace": b"\x7f",
    "home": b"\x1b[H", "end": b"\x1b[F",
}  # fmt: skip


class Terminal:
    """The explorer in a pseudo-terminal; what it writes is read and looked through."""

    def __init__(self, tmp_path):
        self.master, slave = pty.openpty()
        self.resize(120, 40)
        environment = {
            **os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor",
            "XDG_STATE_HOME": str(tmp_path),
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-m", "firstlight", "explore"], stdin=slave, stdout=slave,
            stderr=slave, env=environment, cwd=tmp_path, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        self.size = (120, 40)

    def resize(self, width, height):
        self.size = (width, height)
        size = struct.pack("HHHH", height, width, 0, 0)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)

    def drain(self, seconds):
        """Return everything that is written within a time."""
        seen, end = b"", time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self.master], [], [], left)[0]:
                try:
                    seen += os.read(self.master, 1 << 16)
                except OSError:
                    return seen
        return seen

    def settle(self):
        """Read until nothing is written for a while, though a simulation may tell how far it is."""
        for _ in range(12):
            if not self.drain(0.4):
                return

    def send(self, data):
        os.write(self.master, data)

    def click(self, rng):
        # Not the last row: a click there may mean to quit.
        x, y = (int(rng.integers(1, n)) for n in self.size)
        button = int(rng.choice([0, 0, 0, 64, 65]))
        self.send(f"\x1b[<{button};{x};{y}M".encode())
        if button == 0:
            for _ in range(int(rng.integers(0, 6))):  # a drag
                x = min(max(x + int(rng.integers(-4, 5)), 1), self.size[0])
                self.send(f"\x1b[<32;{x};{y}M".encode())
            self.send(f"\x1b[<0;{x};{y}m".encode())


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_real_calculation_in_a_real_terminal_breaks_and_grows_nothing(tmp_path):
    rng = np.random.default_rng(5)
    quiet = NEVER | {"command", "web"}
    keys = [k for b in BINDINGS if b.id not in quiet for k in b.key.split(",")]
    keys = [k for k in keys if len(k) == 1 or k in SEQUENCES] + list("hjkl12345mpu") * 3
    one = Terminal(tmp_path)
    one.drain(3.0)
    begin, sizes, seen = time.monotonic(), [], b""
    before: list[list[int]] = []
    looked = begin
    while time.monotonic() - begin < SECONDS:
        kind = rng.random()
        if kind < 0.03:
            # Nothing is under way across a resize, or a click may find another last row.
            one.settle()
            one.resize(int(rng.integers(10, 220)), int(rng.integers(3, 70)))
            one.settle()
        elif kind < 0.2:
            one.click(rng)
        else:
            key = str(rng.choice(keys))
            one.send(SEQUENCES.get(key, key.encode()))
        # Mostly as fast as a hand, now and then long enough for the whole simulation to begin.
        seen = (seen + one.drain(float(rng.choice([0.02, 0.05, 0.4], p=[0.6, 0.37, 0.03]))))[
            -65536:
        ]
        assert b"calculation failed" not in seen
        assert b"Traceback" not in seen
        if one.process.poll() is not None:
            # A late resize may have put "quit" under the pointer: that is an end like any other.
            assert one.process.returncode == 0, seen.decode(errors="replace")[-6000:]
            os.close(one.master)
            before, sizes, one = [*before, sizes], [], Terminal(tmp_path)
            one.drain(3.0)
            continue
        if time.monotonic() - looked > SECONDS / 40:
            looked = time.monotonic()
            sizes.append(resident_bytes(one.process.pid))
    one.resize(120, 40)
    one.send(b"\x1b")
    one.drain(1.0)
    one.send(b"\x1b1")
    one.drain(1.0)
    one.send(b"q")
    one.drain(3.0)
    assert one.process.wait(20) == 0
    os.close(one.master)
    sizes = max([*before, sizes], key=len)
    half = len(sizes) // 2
    assert np.median(sizes[half:]) - np.median(sizes[half // 2 : half]) < 15e6, sizes
    assert max(sizes) < MOST_BYTES, sizes
    if where := os.environ.get("FIRSTLIGHT_SOAK_LOG"):
        Path(where).write_text(f"{[round(size / 1e6) for size in sizes]} MB\n", encoding="utf-8")
