"""Where chunks are computed: this process, its cores, or a Ray cluster. The numbers are the same."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any, Literal, Protocol

from firstlight.errors import ScenarioError
from firstlight.sweep import task as tasks
from firstlight.sweep.extras import library

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from firstlight.sweep.table import Row
    from firstlight.sweep.task import Task

EngineName = Literal["local", "ray"]
TRIES = 3
"""How often a chunk is sent out when the process that had it dies."""
LOOK_S = 1.0
"""How often a worker looks whether its driver is still there."""
AHEAD = 2
"""Chunks in flight a core."""


class Engine(Protocol):
    """Computes chunks in any order."""

    def results(self, todo: Iterable[Task]) -> Iterator[tuple[Task, list[Row]]]:
        """Yield each task with its rows."""
        ...


def dead(task: Task, why: str) -> list[Row]:
    """Return the rows of a chunk whose workers all died."""
    return [tasks.failed({"point": index, **dict(values)}, why) for index, values in task.points]


def _follow(driver: int) -> None:
    """End this worker when its driver is gone, however that ended; else it would wait for ever."""

    def watch() -> None:
        while os.getppid() == driver:
            time.sleep(LOOK_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Serial:
    """This process."""

    def results(self, todo: Iterable[Task]) -> Iterator[tuple[Task, list[Row]]]:
        """Yield each task with its rows, in order."""
        for task in todo:
            yield task, tasks.run(task)


class Local:
    """Processes on this machine.

    Args:
        workers: Number of processes; None takes every core this process may use.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or len(os.sched_getaffinity(0))

    def results(self, todo: Iterable[Task]) -> Iterator[tuple[Task, list[Row]]]:
        """Yield each task with its rows, as they end; a chunk whose process dies is sent again."""
        waiting = list(todo)
        tries: dict[int, int] = {}
        while waiting:
            left = {task.number: task for task in waiting}
            for task, rows in self._pass(waiting, tries):
                left.pop(task.number)
                yield task, rows
            waiting = list(left.values())

    def _pass(self, waiting: list[Task], tries: dict[int, int]) -> Iterator[tuple[Task, list[Row]]]:
        """Yield what one pool of processes computes until it ends or one of them dies."""
        import multiprocessing

        queue = iter(waiting)
        # A fresh interpreter: forking one with threads and a compiled core is not safe.
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(
            self.workers, mp_context=context, initializer=_follow, initargs=(os.getpid(),)
        )
        flying: dict[Future[list[Row]], Task] = {}
        try:
            while True:
                while len(flying) < AHEAD * self.workers and (task := next(queue, None)):
                    flying[pool.submit(tasks.run, task)] = task
                if not flying:
                    return
                done, _ = wait(flying, return_when=FIRST_COMPLETED)
                for future in done:
                    yield flying[future], future.result()
                    del flying[future]
        except BrokenProcessPool:
            # Whichever process died, all chunks in flight are lost; each counts one try.
            for task in flying.values():
                tries[task.number] = tries.get(task.number, 0) + 1
                if tries[task.number] >= TRIES:
                    yield task, dead(task, f"its worker process died {TRIES} times")
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


class Ray:
    """A Ray cluster; without an address, Ray on this machine.

    Args:
        address: Address of the cluster, ``auto`` for the one this machine belongs to, or None.
        workers: Cores Ray may use on this machine when it is started here.

    Raises:
        ScenarioError: Ray is not installed or the cluster cannot be reached.
    """

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        ray = library("ray", extra="ray", what="engine 'ray'")
        self._ray = ray
        self._is_own = not ray.is_initialized()
        if self._is_own:
            try:
                ray.init(
                    address=address,
                    num_cpus=None if address else workers or len(os.sched_getaffinity(0)),
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level="ERROR",
                )
            except (ConnectionError, ValueError, RuntimeError) as error:
                where = f"at {address!r}" if address else "could be started here"
                raise ScenarioError(f"no Ray cluster {where}: {error}") from None
        self.workers = max(int(ray.cluster_resources().get("CPU", 1)), 1)

    def results(self, todo: Iterable[Task]) -> Iterator[tuple[Task, list[Row]]]:
        """Yield each task with its rows, as they end; Ray sends a chunk again when its worker dies."""
        ray = self._ray
        remote = ray.remote(max_retries=TRIES)(tasks.run)
        queue = iter(todo)
        flying: dict[Any, Task] = {}
        try:
            while True:
                while len(flying) < AHEAD * self.workers and (task := next(queue, None)):
                    flying[remote.remote(task)] = task
                if not flying:
                    return
                for ref in ray.wait(list(flying), num_returns=1)[0]:
                    task = flying.pop(ref)
                    try:
                        rows = ray.get(ref)
                    except (
                        ray.exceptions.WorkerCrashedError,
                        ray.exceptions.NodeDiedError,
                    ) as error:
                        rows = dead(task, f"its Ray worker died {TRIES + 1} times: {error}")
                    yield task, rows
        finally:
            for ref in flying:
                ray.cancel(ref, force=False)
            if self._is_own:
                ray.shutdown()
