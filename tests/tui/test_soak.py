"""Random keys, mouse and resizes: no exception, no growth. FIRSTLIGHT_SOAK_S=600 is the long run."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path

import numpy as np
import pytest
from double import DoubleSolver

from firstlight.tui.app import Explorer
from firstlight.tui.keymap import BINDINGS

SECONDS = float(os.environ.get("FIRSTLIGHT_SOAK_S", "20"))
NEVER = {"quit", "export", "save", "open"}


def resident_bytes():
    line = next(
        x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmRSS")
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
