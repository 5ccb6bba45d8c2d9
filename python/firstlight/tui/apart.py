"""The full simulation in a process of its own, so that it never delays a key.

It takes seconds, both cores and hundreds of megabytes. Beside the screen it would hold the
interpreter when a key comes; here a newer question just stops listening. The process reads jobs
from its input and ends when that is closed, so that none outlives the explorer, however it ends.
"""

from __future__ import annotations

import os
import pickle  # between two ends of one pipe of ours
import queue
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from firstlight.errors import FirstlightError
from firstlight.tui.answer import Answer, Tier
from firstlight.tui.solver import Cancelled, RealSolver

if TYPE_CHECKING:
    from firstlight.tui.solver import Cancel
    from firstlight.tui.state import Setup

POLL_S = 0.004
"""How often a newer question is looked for while waiting [s]."""
NICE = 5
"""How far it steps back behind the screen."""


class ApartSolver(RealSolver):
    """As `RealSolver`, the full tier simulated by a process that is started when first needed."""

    def __init__(self) -> None:
        super().__init__()
        self._process: subprocess.Popen[bytes] | None = None
        self._heard: queue.SimpleQueue[tuple[object, ...]] = queue.SimpleQueue()
        self._job = 0

    def whole(self, setup: Setup, cancel: Cancel) -> Answer:
        """Return the whole comparison, simulated elsewhere.

        Args:
            setup: Plain numbers only.
            cancel: Polled while waiting.

        Raises:
            FirstlightError: The scenario is impossible.
            Cancelled: A newer question arrived.
            RuntimeError: The calculation failed or its process ended; the message says how.
        """
        self._job += 1
        self._send(self._job, setup)
        while True:
            if cancel.is_set:
                self._send(0, None)
                raise Cancelled
            try:
                if self._heard.empty() and cancel.work():
                    continue
                job, kind, *rest = self._heard.get(timeout=POLL_S)
            except queue.Empty:
                continue
            if kind == "ended":
                self._end()
                raise RuntimeError("the process of the full simulation has ended")
            # What has another number is the last word of a job that was given up.
            answer = _taken(str(kind), rest, cancel) if job == self._job else None
            if answer is not None:
                return answer

    def close(self) -> None:
        """End the process."""
        super().close()
        self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):  # what was not yet sent goes nowhere
                        pipe.close()

    def _send(self, job: int, setup: Setup | None) -> None:
        process = self._process
        if process is None:
            process = self._process = self._started()
        assert process.stdin is not None  # noqa: S101  # a pipe was asked for
        try:
            _write(process.stdin, (job, setup))
        except (OSError, ValueError):
            self._end()
            raise RuntimeError("the process of the full simulation has ended") from None

    def _started(self) -> subprocess.Popen[bytes]:
        heard: queue.SimpleQueue[tuple[object, ...]] = queue.SimpleQueue()
        self._heard = heard
        process = subprocess.Popen(
            [sys.executable, "-m", "firstlight.tui.apart"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl+C in the terminal is for the screen
        )  # fmt: skip
        assert process.stdout is not None  # noqa: S101  # a pipe was asked for
        threading.Thread(
            target=_hear, args=(process.stdout, heard), name="firstlight-apart", daemon=True
        ).start()
        return process


def _taken(kind: str, rest: list[object], cancel: Cancel) -> Answer | None:
    """Return the answer where this is one; pass progress on and raise what went wrong."""
    if kind == "refused":
        raise FirstlightError(str(rest[0]))
    if kind == "broken":
        raise RuntimeError(str(rest[0]))
    if kind == "progress":
        done, total, what = rest
        cancel.note(int(str(done)), int(str(total)), str(what))
    return rest[0] if isinstance(rest[0], Answer) else None


def _hear(pipe: IO[bytes], heard: queue.SimpleQueue[tuple[object, ...]]) -> None:
    """Put everything that is said into the queue, and at last that nothing more will come."""
    try:
        while True:
            heard.put(pickle.load(pipe))  # noqa: S301  # our own process
    except (EOFError, OSError, ValueError, pickle.UnpicklingError):
        heard.put((0, "ended"))


def _write(pipe: IO[bytes], message: tuple[object, ...]) -> None:
    pipe.write(pickle.dumps(message))
    pipe.flush()


class _Job:
    """The job under way, given up when another one has been read."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self.pipe = pipe
        self.jobs: queue.SimpleQueue[tuple[int, Setup | None]] = queue.SimpleQueue()
        self.newest = 0
        self.number = 0

    @property
    def is_set(self) -> bool:
        return self.newest != self.number

    def note(self, done: int, total: int, what: str) -> None:
        _write(self.pipe, (self.number, "progress", done, total, what))

    def work(self) -> bool:
        return False

    def read(self, pipe: IO[bytes]) -> None:
        """Read jobs until the explorer closes its end; then nobody needs an answer."""
        try:
            while True:
                job, setup = pickle.load(pipe)  # noqa: S301  # our own process
                self.newest = job
                self.jobs.put((job, setup))
        except (EOFError, OSError, ValueError, pickle.UnpicklingError):
            os._exit(0)


def main() -> None:
    """Answer jobs from standard input on standard output."""
    os.nice(NICE)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library may print must not mix with answers
    solver, work = RealSolver(), _Job(out)
    threading.Thread(target=work.read, args=(sys.stdin.buffer,), daemon=True).start()
    while True:
        work.number, setup = work.jobs.get()
        if setup is None or work.is_set:
            continue
        try:
            answer = solver.simulate(setup, fidelity=Tier.FULL, cancel=work)
            _write(out, (work.number, "answer", answer))
        except Cancelled:
            continue
        except FirstlightError as error:
            _write(out, (work.number, "refused", str(error)))
        except Exception:  # noqa: BLE001  # whatever it is, the screen shows it
            _write(out, (work.number, "broken", traceback.format_exc()))


if __name__ == "__main__":
    main()
