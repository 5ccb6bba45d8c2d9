"""A conversation in lines, for screen readers, braille devices and scripts: no boxes, no colour."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from firstlight.errors import FirstlightError, OutputError
from firstlight.tui import export, once, present, scenario_file
from firstlight.tui.app import parse_line
from firstlight.tui.field import BY_KEY, FIELDS, field
from firstlight.tui.metric import METRICS
from firstlight.tui.number import written
from firstlight.tui.present import Known
from firstlight.tui.state import History, Setup, parse_share, share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from firstlight.tui.solver import Solver

HELP = """\
NAME VALUE        set a control, such as: context 128k, power 1.5MW, price 0.5..2, model 8b
show              every number
list              every control, its value and what it may be
why               what binds
cite NAME         where a control's value comes from
undo, redo        go back, go forward
share             the share string
open FILE         a scenario file or a share string
export FILE       .md .csv .json .toml
quit"""


class Plain:
    """Answers one line at a time; only what changed is said."""

    def __init__(self, solver: Solver, setup: Setup, say: Callable[[str], object]) -> None:
        self.solver = solver
        self.say = say
        self.history = History(setup, lambda: 0.0)
        self.known = Known(setup=setup, home=setup)

    def run(self, lines: Iterable[str]) -> None:
        """Answer lines until "quit" or their end."""
        self.say("firstlight explore, plain. Type help for the words.")
        self._answer()
        for line in lines:
            if line.strip() in ("quit", "q", "exit"):
                return
            try:
                self.hear(line.strip())
            except FirstlightError as error:
                self.say(f"error: {error}")

    def hear(self, line: str) -> None:
        """Answer one line.

        Raises:
            FirstlightError: The line means nothing, or the scenario is impossible.
        """
        word, _, rest = line.partition(" ")
        known_words: dict[str, Callable[[str], None]] = {
            "help": lambda _: self._say(HELP),
            "show": lambda _: self._say(export.as_text(self.known).rstrip()),
            "list": lambda _: self._list(),
            "why": lambda _: self._why(),
            "cite": self._cite,
            "undo": lambda _: self._moved(self.history.undo()),
            "redo": lambda _: self._moved(self.history.redo()),
            "share": lambda _: self._say(share(self.known.setup)),
            "open": self._open,
            "export": self._export,
        }
        if not line:
            return
        if word in known_words:
            known_words[word](rest.strip())
            return
        key, value = parse_line(line)
        self._set(self.known.setup.replace(key, value))
        self.say(f"{BY_KEY[key].label} is {BY_KEY[key].shown(value)}")

    def _say(self, text: str) -> None:
        self.say(text)

    def _set(self, setup: Setup) -> None:
        before = self.known
        self.known = replace(self.known, setup=setup)
        try:
            self._answer()
        except FirstlightError:
            self.known = before
            raise
        self.history.push(setup)

    def _moved(self, is_moved: bool) -> None:  # noqa: FBT001  # what the history says
        if not is_moved:
            self.say("nothing more")
            return
        self.known = replace(self.known, setup=self.history.now)
        self._answer()

    def _answer(self) -> None:
        """Solve, and say the metrics that changed."""
        before = self.known.answer
        found = once.answered(self.solver, self.known.setup, metric=self.known.metric)
        self.known = replace(
            self.known, answer=found.answer, curve=found.curve, seconds=found.seconds
        )
        after = found.answer
        if after is None:
            return
        for metric in METRICS:
            for i, design in enumerate(after.designs):
                new = written(metric.value(design, self.known.scope), metric.unit)
                old = ""
                if before is not None:
                    old = written(metric.value(before.designs[i], self.known.scope), metric.unit)
                if new != old:
                    was = f", was {old}" if old else ""
                    self.say(f"{metric.label}, {design.label}: {new}{was}")
        said = present.note(self.known)
        if said:
            self.say(said)

    def _list(self) -> None:
        for f in FIELDS:
            self.say(
                f"{f.label} ({f.key}): {f.shown(self.known.setup[f.key])}; may be {f.allowed()}"
            )

    def _why(self) -> None:
        answer = self.known.answer
        for b in answer.designs[-1].binding if answer else ():
            self.say(f"5 % more {b.resource} ({b.pool}) gives {b.gain * 5:+.1f} % goodput")

    def _cite(self, name: str) -> None:
        key = field(name).key
        self.say(present.citation(self.known, key, scenario_file.cited(self.known.setup, key)))

    def _open(self, text: str) -> None:
        warnings: list[str] = []
        if text.startswith("fl:"):
            setup, warnings = parse_share(text)
        else:
            setup = scenario_file.load(Path(text).expanduser())
        for warning in warnings:
            self.say(f"warning: {warning}")
        self._set(setup)

    def _export(self, text: str) -> None:
        path = export.checked_path(text)
        export.write(path, self.known, svg=_no_picture)
        self.say(f"wrote {path}")


def _no_picture() -> str:
    raise OutputError("plain mode has no picture; allowed: .md .csv .json .toml")
