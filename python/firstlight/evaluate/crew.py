"""Work on as many pieces at once as there are cores; the compiled engine releases the interpreter."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

K = TypeVar("K")
V = TypeVar("V")


class Crew:
    """Threads that share one way to report progress and one way to be stopped.

    Args:
        progress: Told how far the work is: pieces done, pieces in all, what was done last.
        cancelled: Asked a few times a second; true stops every thread.
    """

    def __init__(
        self,
        *,
        progress: Callable[[int, int, str], None] | None,
        cancelled: Callable[[], bool] | None,
    ) -> None:
        self.total = 0
        self._progress = progress
        self._asked = cancelled
        self._stop = threading.Event()
        self._done = 0
        # The same threads throughout: each has memory of its own, which dies hard.
        self._pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))

    def __enter__(self) -> Self:
        """Return it; its threads end with the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """End its threads."""
        self._pool.shutdown()

    def cancelled(self) -> bool:
        """Return whether to stop, in whichever thread it is asked."""
        return self._stop.is_set() or (self._asked is not None and self._asked())

    def tick(self, what: str) -> None:
        """Take note that a piece is done."""
        self._done += 1
        if self._progress is not None:
            self._progress(min(self._done, self.total), self.total, what)

    def map(self, work: Callable[[K], V], items: Iterable[K]) -> dict[K, V]:
        """Return the result of work by item, in the items' order.

        The first error stops all threads and is raised.
        """
        return self.run({item: partial(work, item) for item in items})

    def run(self, works: Mapping[K, Callable[[], V]]) -> dict[K, V]:
        """Return the result of each work, in their order; they are begun in that order too.

        The first error stops all threads and is raised.
        """
        futures = {key: self._pool.submit(work) for key, work in works.items()}
        try:
            return {key: future.result() for key, future in futures.items()}
        except BaseException:
            self._stop.set()
            for future in futures.values():
                future.cancel()
            wait(futures.values())
            raise
