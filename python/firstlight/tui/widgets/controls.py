"""The column of sliders and choices: groups that fold, keys, mouse, wheel and typing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from rich.segment import Segment
from textual.message import Message
from textual.strip import Strip

from firstlight.errors import ScenarioError
from firstlight.tui.canvas import Canvas
from firstlight.tui.field import BY_KEY, FIELDS, GROUPS, Field, Scale
from firstlight.tui.state import DEFAULT, Setup
from firstlight.tui.symbols import Symbols, plain
from firstlight.tui.theme import Ink, Theme
from firstlight.tui.widgets import slider
from firstlight.tui.widgets.headline import LETTERS
from firstlight.tui.widgets.panel import Panel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from textual import events

    from firstlight.tui.number import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlsData:
    """What the column shows.

    Attributes:
        setup: What the controls say.
        home: What a reset returns to.
        pinned: Scenario A, or None.
        selected: Index into `lines`.
        first: First line that is shown.
        folded: Groups whose fields are hidden.
        edit: Text being typed, or None.
        problem: What is wrong with it, or "".
        statuses: Provenance by field key where the catalog says what the control says.
    """

    setup: Setup
    home: Setup = DEFAULT
    pinned: Setup | None = None
    selected: int = 1
    first: int = 0
    folded: frozenset[str] = frozenset()
    edit: str | None = None
    problem: str = ""
    statuses: Mapping[str, str] | None = None


def lines(folded: frozenset[str]) -> list[str | Field]:
    """Return the rows: a group's name, then its fields unless it is folded."""
    found: list[str | Field] = []
    for group in GROUPS:
        found.append(group)
        if group not in folded:
            found += [f for f in FIELDS if f.group == group]
    return found


def letter(data: ControlsData, f: Field) -> str:
    """Return the provenance letter of a control: ``S`` once it was set by hand."""
    if data.statuses and f.key in data.statuses:
        return LETTERS.get(data.statuses[f.key], "?")
    if data.setup[f.key] != data.home[f.key]:
        return "S"
    return LETTERS.get(f.status, "?")


def render(
    width: int, height: int, theme: Theme, symbols: Symbols, data: ControlsData
) -> list[Strip]:
    """Return the strips of the column.

    Args:
        width: Cells across.
        height: Rows.
        theme: Colours.
        symbols: Glyphs.
        data: What to show.
    """
    every = lines(data.folded)
    shown = [
        _row(width, theme, symbols, data, data.first + y, line)
        for y, line in enumerate(every[data.first : data.first + height])
    ]
    blank = [Strip.blank(width, theme.style())] * (height - len(shown))
    ends = (data.first > 0, data.first + height < len(every))
    arrows = ("↑", "↓") if symbols.half else ("^", "v")
    for y, is_more, arrow in ((0, ends[0], arrows[0]), (height - 1, ends[1], arrows[1])):
        if is_more and 0 <= y < len(shown):
            mark = Strip([Segment(arrow, theme.style(Ink.ACCENT))], 1)
            shown[y] = Strip.join([shown[y].crop(0, width - 1), mark])
    return [*shown, *blank]


def _row(
    width: int, theme: Theme, symbols: Symbols, data: ControlsData, index: int, line: str | Field
) -> Strip:
    """Return one line of the column; a press of a key changes one of them, the rest is kept."""
    is_focused = index == data.selected
    if isinstance(line, str):
        inside = [f for f in FIELDS if f.group == line]
        moved = sum(data.setup[f.key] != data.home[f.key] for f in inside)
        return _group_row(width, theme, symbols, line, is_focused, line in data.folded, moved)
    value = data.setup[line.key]
    ghost = data.pinned[line.key] if data.pinned else None
    return _slider_row(
        width, theme, symbols, line.key, value, is_focused, plain(letter(data, line), symbols),
        ghost if ghost != value else None, data.edit if is_focused else None, bool(data.problem),
    )  # fmt: skip


@lru_cache(maxsize=256)
def _slider_row(
    width: int,
    theme: Theme,
    symbols: Symbols,
    key: str,
    value: Value,
    is_focused: bool,  # noqa: FBT001  # cache keys are positional
    mark: str,
    ghost: Value | None,
    edit: str | None,
    problem: bool,  # noqa: FBT001
) -> Strip:
    data = slider.SliderData(
        field=BY_KEY[key], value=value, is_focused=is_focused, letter=mark, ghost=ghost, edit=edit,
        problem=problem,
    )  # fmt: skip
    return slider.render(width, 1, theme, symbols, data)[0]


@lru_cache(maxsize=64)
def _group_row(
    width: int,
    theme: Theme,
    symbols: Symbols,
    name: str,
    is_focused: bool,  # noqa: FBT001
    is_folded: bool,  # noqa: FBT001
    moved: int,
) -> Strip:
    canvas = Canvas(width, 1, theme.style())
    on = Ink.SELECTED if is_focused else Ink.GROUND
    canvas.fill(0, 0, width, 1, theme.style(on=on))
    style = theme.style(Ink.ACCENT if is_focused else Ink.DIM, on, bold=True)
    x = canvas.text(0, 0, f"{symbols.fold[0 if is_folded else 1]} {name}", style)
    if is_folded:
        count = sum(f.group == name for f in FIELDS)
        said = f"{count} hidden" + (f", {moved} set" if moved else "")
        canvas.text(x + 2, 0, plain(said, symbols), theme.style(Ink.DIM, on))
    return canvas.strips()[0]


class Controls(Panel, can_focus=True):
    """The column; it shows a setup and says what the hand wants instead."""

    class Changed(Message):
        """A field is to have another value."""

        def __init__(self, key: str, value: Value, *, is_drag: bool) -> None:
            super().__init__()
            self.key = key
            self.value = value
            self.is_drag = is_drag

    class Released(Message):
        """A drag ended."""

    class Selected(Message):
        """Another control has the keys."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    class Said(Message):
        """Something to show in the status line."""

        def __init__(self, text: str, *, is_error: bool) -> None:
            super().__init__()
            self.text = text
            self.is_error = is_error

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.setup = DEFAULT
        self.home = DEFAULT
        self.pinned: Setup | None = None
        self.statuses: Mapping[str, str] = {}
        self.folded: frozenset[str] = frozenset()
        self._selected = 2  # the context: the first thing to move
        self._first = 0
        self._edit: str | None = None
        self._problem = ""
        self._dragged: Field | None = None

    # -- what is shown

    def show(
        self, setup: Setup, *, home: Setup, pinned: Setup | None, statuses: Mapping[str, str]
    ) -> None:
        """Show another setup, with what the catalog knows of its values."""
        self.setup, self.home, self.pinned, self.statuses = setup, home, pinned, statuses
        self.redraw()

    def draw(self, width: int, height: int) -> list[Strip]:
        """Return the column's strips."""
        self._scroll(height)
        data = ControlsData(
            setup=self.setup, home=self.home, pinned=self.pinned, selected=self._selected, first=self._first,
            folded=self.folded, edit=self._edit, problem=self._problem,
            statuses=self.statuses,
        )  # fmt: skip
        return render(width, height, self.look.theme, self.look.symbols, data)

    def _scroll(self, height: int) -> None:
        count = len(lines(self.folded))
        low, high = self._selected - height + 2, self._selected - 1
        self._first = max(min(self._first, high), low)
        self._first = max(min(self._first, count - height), 0)

    @property
    def selected(self) -> Field | None:
        """The control that has the keys, None on a heading."""
        line = lines(self.folded)[self._selected]
        return None if isinstance(line, str) else line

    @property
    def is_editing(self) -> bool:
        """Whether text is being typed."""
        return self._edit is not None

    # -- what keys do

    def select(self, key: str) -> None:
        """Give the keys to a field, unfolding its group."""
        f = next(f for f in FIELDS if f.key == key)
        self.folded -= {f.group}
        self._select(lines(self.folded).index(f))

    def _select(self, index: int) -> None:
        self._edit, self._problem = None, ""
        self._selected = min(max(index, 0), len(lines(self.folded)) - 1)
        self.redraw()
        f = self.selected
        self.post_message(self.Selected(f.key if f else ""))

    def step(self, rows: int) -> None:
        """Give the keys to a neighbour."""
        self._select(self._selected + rows)

    def fold(self) -> None:
        """Fold or unfold the group of the selected line."""
        line = lines(self.folded)[self._selected]
        group = line if isinstance(line, str) else line.group
        self.folded ^= {group}
        self._select(lines(self.folded).index(group))

    def nudge(self, steps: int) -> None:
        """Move the selected control; on a heading fold or unfold it."""
        f = self.selected
        if f is None:
            self.fold()
        else:
            self._change(f, f.nudged(self.setup[f.key], steps), is_drag=False)

    def to_end(self, *, is_high: bool) -> None:
        """Move the selected control to an end."""
        f = self.selected
        if f is None:
            return
        if f.scale is Scale.CHOICE:
            self._change(f, f.choices[-1 if is_high else 0][0], is_drag=False)
        else:
            self._change(f, f.hi if is_high else f.lo, is_drag=False)

    def reset(self) -> None:
        """Give the selected control its default."""
        f = self.selected
        if f is not None:
            self._change(f, f.default, is_drag=False)

    def begin_edit(self, text: str = "") -> None:
        """Begin to type a value; on a heading fold it."""
        f = self.selected
        if f is None:
            self.fold()
            return
        self._edit, self._problem = text, ""
        self.post_message(
            self.Said(f"{f.label}: {f.allowed()}; Enter sets, Esc leaves", is_error=False)
        )
        self.redraw()

    def _change(self, f: Field, value: Value, *, is_drag: bool) -> None:
        if value != self.setup[f.key]:
            # The next key may come before the answer to this message: it moves on from here.
            self.setup = self.setup.replace(f.key, value)
            self.post_message(self.Changed(f.key, value, is_drag=is_drag))

    # -- typing

    def check_consume_key(self, key: str, character: str | None) -> bool:
        """Keep every key from the bindings while text is typed."""
        del key, character
        return self.is_editing

    def on_key(self, event: events.Key) -> None:
        """Take a key of typed text."""
        if self._edit is None:
            return
        event.stop()
        event.prevent_default()
        if event.key == "escape":
            self._end_edit("")
        elif event.key == "enter":
            self._commit()
        elif event.key in ("backspace", "ctrl+h"):
            self._typed(self._edit[:-1])
        elif event.key == "ctrl+u":
            self._typed("")
        elif event.key in ("tab", "down", "up"):
            self._commit()
            if not self.is_editing:
                self.step(-1 if event.key == "up" else 1)
        elif event.is_printable and event.character:
            self._typed(self._edit + event.character)

    def on_paste(self, event: events.Paste) -> None:
        """Take pasted text."""
        if self._edit is not None:
            event.stop()
            self._typed(self._edit + event.text.splitlines()[0] if event.text else self._edit)

    def _typed(self, text: str) -> None:
        self._edit = text[:80]
        f = self.selected
        self._problem = ""
        if f is not None and text.strip():
            try:
                said = f"{f.label} = {f.shown(f.parse(text))}"
            except ScenarioError as error:
                self._problem = said = str(error)
            self.post_message(self.Said(said, is_error=bool(self._problem)))
        self.redraw()

    def _commit(self) -> None:
        f, text = self.selected, self._edit or ""
        if f is None or not text.strip():
            self._end_edit("")
            return
        try:
            value = f.parse(text)
        except ScenarioError as error:
            self._problem = str(error)
            self.post_message(self.Said(str(error), is_error=True))
            self.redraw()
            return
        self._end_edit("")
        self._change(f, value, is_drag=False)

    def _end_edit(self, said: str) -> None:
        self._edit, self._problem = None, ""
        self.post_message(self.Said(said, is_error=False))
        self.redraw()

    def on_blur(self) -> None:
        """Leave typing when the focus goes."""
        if self._edit is not None:
            self._end_edit("")

    # -- mouse

    def _line_at(self, y: int) -> tuple[int, str | Field | None]:
        index = self._first + y
        every = lines(self.folded)
        return index, every[index] if 0 <= index < len(every) else None

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Select what is under the pointer, and move or begin to drag it."""
        index, line = self._line_at(event.y)
        if line is None:
            return
        self._select(index)
        if isinstance(line, str):
            self.fold()
        elif line.scale is Scale.CHOICE:
            left = event.x <= slider.LABEL_CELLS + 1
            self._change(line, line.nudged(self.setup[line.key], -1 if left else 1), is_drag=False)
        elif self._is_on_track(event.x):
            self._dragged = line
            self.capture_mouse()
            self._drag_to(event.pointer_x, is_drag=False)

    def _is_on_track(self, x: int) -> bool:
        track = slider.track_of(self.size.width)
        return track.cells >= 3 and track.start - 1 <= x <= track.start + track.cells

    def _drag_to(self, x: float, *, is_drag: bool) -> None:
        f = self._dragged
        if f is None:
            return
        track = slider.track_of(self.size.width)
        place = (x - track.start) / max(track.cells - 1, 1)
        self._change(f, f.at(place), is_drag=is_drag)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Drag a slider."""
        self._drag_to(event.pointer_x, is_drag=True)

    def on_mouse_up(self) -> None:
        """End a drag."""
        if self._dragged is not None:
            self._dragged = None
            self.release_mouse()
            self.post_message(self.Released())

    def _on_wheel(self, event: events.MouseScrollUp | events.MouseScrollDown, steps: int) -> None:
        event.stop()
        index, line = self._line_at(event.y)
        if isinstance(line, Field):
            if index != self._selected:
                self._select(index)
            self._change(line, line.nudged(self.setup[line.key], steps), is_drag=False)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Raise the control under the pointer."""
        self._on_wheel(event, 1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Lower the control under the pointer."""
        self._on_wheel(event, -1)
