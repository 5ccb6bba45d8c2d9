"""How far long work is, on stderr: a bar on a terminal, plain lines on a dumb one, else silence."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Report = Callable[[int, int, str], None]


@contextmanager
def shown(title: str) -> Iterator[Report]:
    """Yield a function that takes pieces done, pieces in all, and the piece done last.

    Args:
        title: What is being done.
    """
    if not sys.stderr.isatty():
        yield _silent
    elif os.environ.get("TERM") == "dumb":
        yield lambda done, total, what: print(f"{title}: {done}/{total} {what}", file=sys.stderr)
    else:
        with _bar(title) as report:
            yield report


def _silent(done: int, total: int, what: str) -> None:
    """Tell nobody."""


@contextmanager
def _bar(title: str) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[what]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None, what="")

        def report(done: int, total: int, what: str) -> None:
            progress.update(task, completed=done, total=total, what=what)

        yield report
