"""The full simulation in a process of its own: same answer, given up at once, never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from firstlight.errors import FirstlightError
from firstlight.tui.answer import Tier
from firstlight.tui.apart import ApartSolver
from firstlight.tui.solver import Cancelled, RealSolver
from firstlight.tui.state import DEFAULT

SMALL = DEFAULT.with_values({"power_w": 1e5})


class Flag:
    """A cancel flag that is set after it was asked so often, and counts what else was done."""

    def __init__(self, after=10**9):
        self.asked, self.after, self.notes, self.units = 0, after, [], 0

    @property
    def is_set(self):
        self.asked += 1
        return self.asked > self.after

    def note(self, done, total, what):
        self.notes.append((done, total, what))

    def work(self):
        self.units += 1
        return self.units < 5


@pytest.fixture
def solver():
    made = ApartSolver()
    yield made
    made.close()


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] not in ("Z", "X")
    except OSError:
        return False


def gone(pid, *, within_s=5.0):
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if not alive(pid):
            return True
        time.sleep(0.05)
    return False


def test_the_answer_is_that_of_this_process_and_details_went_on(solver):
    flag = Flag()
    apart = solver.simulate(SMALL, fidelity=Tier.FULL, cancel=flag)
    here = RealSolver().simulate(SMALL, fidelity=Tier.FULL, cancel=Flag())
    assert apart == here
    assert flag.notes
    assert flag.notes[-1][0] == flag.notes[-1][1]
    assert flag.units >= 5
    again = Flag()
    assert solver.simulate(SMALL, fidelity=Tier.FULL, cancel=again) is apart
    assert not again.notes


def test_a_stale_job_is_given_up_at_once_and_the_next_one_answered(solver):
    begin = time.monotonic()
    with pytest.raises(Cancelled):
        solver.simulate(DEFAULT, fidelity=Tier.FULL, cancel=Flag(after=20))
    assert time.monotonic() - begin < 2
    answer = solver.simulate(SMALL, fidelity=Tier.FULL, cancel=Flag())
    assert answer.tier is Tier.FULL


def test_what_is_refused_there_is_refused_here(solver):
    tiny = DEFAULT.with_values({"power_w": 1e4, "gpu": "gb300-nvl72-72x"})
    with pytest.raises(FirstlightError, match="power_w"):
        solver.simulate(tiny, fidelity=Tier.FULL, cancel=Flag())


def test_a_process_that_dies_is_told_and_started_again(solver):
    with pytest.raises(Cancelled):
        solver.simulate(SMALL, fidelity=Tier.FULL, cancel=Flag(after=2))
    os.kill(solver._process.pid, signal.SIGKILL)
    solver._process.wait()
    with pytest.raises(RuntimeError, match="has ended"):
        solver.simulate(SMALL, fidelity=Tier.FULL, cancel=Flag())
    assert solver.simulate(SMALL, fidelity=Tier.FULL, cancel=Flag()).tier is Tier.FULL


def test_closing_leaves_no_process(solver):
    with pytest.raises(Cancelled):
        solver.simulate(SMALL, fidelity=Tier.FULL, cancel=Flag(after=2))
    pid = solver._process.pid
    solver.close()
    assert gone(pid)


PARENT = """
import sys, time
sys.path.insert(0, sys.argv[1])
from test_apart import Flag, SMALL
from firstlight.tui.answer import Tier
from firstlight.tui.apart import ApartSolver
solver = ApartSolver()
try:
    solver.simulate(SMALL, fidelity=Tier.FULL, cancel=Flag(after=3))
except Exception:
    pass
print(solver._process.pid, flush=True)
time.sleep(60)
"""


def test_it_ends_with_an_explorer_that_was_killed():
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(Path(__file__).parent)], stdout=subprocess.PIPE
    )
    with parent:
        child = int(parent.stdout.readline())
        assert alive(child)
        parent.kill()
    assert gone(child)
