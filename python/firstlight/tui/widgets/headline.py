"""The table of designs: each metric, the best value marked, its provenance letter beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

from firstlight.tui.answer import Answer, Tier
from firstlight.tui.canvas import Canvas, cells
from firstlight.tui.metric import METRICS, SCOPES, Metric, short
from firstlight.tui.number import si, written
from firstlight.tui.symbols import Symbols, plain
from firstlight.tui.theme import Ink, Theme
from firstlight.tui.widgets.panel import Panel

if TYPE_CHECKING:
    from textual import events
    from textual.strip import Strip

LETTERS = {
    "measured": "M", "paper": "P", "datasheet": "D", "estimate": "E", "vendor": "V",
    "assumed": "A", "set": "·",
}  # fmt: skip
"""Provenance letter by status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadlineData:
    """What the table shows.

    Attributes:
        answer: Its numbers, or None before the first.
        scope: Scope of the metrics that have scopes.
        selected: Metric that the chart shows.
        is_stale: Whether the numbers belong to an earlier scenario; they are greyed.
        note: Last line.
    """

    answer: Answer | None
    scope: str = "inference"
    selected: Metric = METRICS[0]
    is_stale: bool = False
    note: str = ""
    short_note: str = ""


def rows(height: int) -> list[Metric]:
    """Return the metrics for which there is room, in their order."""
    count = max(height - 2, 0)
    spare = [METRICS[8], METRICS[4], METRICS[1], METRICS[6], METRICS[3], METRICS[5]]
    shown = list(METRICS)
    while len(shown) > count and spare:
        shown.remove(spare.pop(0))
    return shown[:count]


def render(
    width: int, height: int, theme: Theme, symbols: Symbols, data: HeadlineData
) -> list[Strip]:
    """Return the strips of the table.

    Args:
        width: Cells across.
        height: Rows: a heading, one a metric, a note.
        theme: Colours.
        symbols: Glyphs.
        data: What to show.
    """
    canvas = Canvas(width, height, theme.style())
    if data.answer is None:
        canvas.text(1, 0, plain("calculating the first answer …", symbols), theme.style(Ink.DIM))
        return canvas.strips()
    label = 15 if width >= 56 else 12
    columns = _columns(width, label, len(data.answer.designs))
    _heading(canvas, theme, symbols, data.answer, columns)
    for y, metric in enumerate(rows(height), start=1):
        _row(canvas, y, theme, symbols, data, metric, columns)
    if height > 2:
        note = data.note if cells(data.note) < width else data.short_note or data.note
        canvas.text(1, height - 1, plain(note, symbols), theme.style(Ink.DIM), width=width - 1)
    return canvas.strips()


def _columns(width: int, label: int, count: int) -> list[tuple[int, int]]:
    """Return (start, end) of each design's column; fewer where there is no room."""
    room = width - label - 3
    while count > 1 and room // count < 8:
        count -= 1
    each = min(max(room // max(count, 1), 1), 30)
    return [(label + i * each, label + (i + 1) * each) for i in range(count)]


def _shown(answer: Answer, columns: list[tuple[int, int]]) -> list[int]:
    """Return the designs that have a column; the optical one is the last to go."""
    every = list(range(len(answer.designs)))
    return every[len(every) - len(columns) :]


def _heading(
    canvas: Canvas, theme: Theme, symbols: Symbols, answer: Answer, columns: list[tuple[int, int]]
) -> None:
    for index, (start, end) in zip(_shown(answer, columns), columns, strict=True):
        design = answer.designs[index]
        room = end - start - 3
        name = design.label if cells(design.label) <= room - 2 else short(design)
        text = f"{symbols.mark(index)} {plain(name, symbols)}"
        number_end = _number_end(start, end, has_bands=_has_bands(answer))
        canvas.right(
            max(number_end, start + min(cells(text), room) + 1), 0, text,
            theme.design(index, bold=True), width=max(room + 1, 0),
        )  # fmt: skip


def _number_end(start: int, end: int, *, has_bands: bool) -> int:
    """Return where a number ends: room for a change or a band follows in wide columns."""
    if end - start < 18:
        return end - 1
    return end - (12 if has_bands and end - start >= 20 else 7)


def _has_bands(answer: Answer) -> bool:
    return any(low != high for d in answer.designs for low, high in d.band.values())


def _row(
    canvas: Canvas,
    y: int,
    theme: Theme,
    symbols: Symbols,
    data: HeadlineData,
    metric: Metric,
    columns: list[tuple[int, int]],
) -> None:
    answer = data.answer
    assert answer is not None  # noqa: S101  # render returned before
    is_selected = metric.path == data.selected.path
    on = Ink.SELECTED if is_selected else Ink.GROUND
    canvas.fill(0, y, canvas.width, 1, theme.style(on=on))
    if is_selected:
        canvas.text(0, y, symbols.right, theme.style(Ink.ACCENT, on))
    label_room = columns[0][0] - 2 if columns else canvas.width - 2
    label = plain(metric.label, symbols)
    canvas.text(
        1, y, label, theme.style(Ink.TITLE if is_selected else Ink.TEXT, on), width=label_room
    )
    best = metric.best(answer, data.scope)
    base = metric.value(answer.designs[0], data.scope)
    for index, (start, end) in zip(_shown(answer, columns), columns, strict=True):
        _cell(canvas, y, theme, symbols, data, metric, index, (start, end), on, best, base)
    status = answer.designs[-1].status.get(metric.at(data.scope), "")
    canvas.text(canvas.width - 2, y, LETTERS.get(status, "?"), theme.style(Ink.DIM, on))


def _cell(
    canvas: Canvas,
    y: int,
    theme: Theme,
    symbols: Symbols,
    data: HeadlineData,
    metric: Metric,
    index: int,
    column: tuple[int, int],
    on: Ink,
    best: int | None,
    base: float | None,
) -> None:
    answer = data.answer
    assert answer is not None  # noqa: S101
    design = answer.designs[index]
    start, end = column
    stop = _number_end(start, end, has_bands=_has_bands(answer))
    value = metric.value(design, data.scope)
    text = plain(written(value, metric.unit), symbols)
    if value is not None and answer.tier is not Tier.FULL:
        text = symbols.approximate + text
    if index == best:
        text = symbols.best + text
    if data.is_stale:
        style = theme.style(Ink.FAINT if not theme.is_mono else Ink.DIM, on)
    elif index == best:
        style = theme.design(index, on, bold=True)
    else:
        style = theme.style(Ink.TEXT if value is not None else Ink.DIM, on)
    canvas.right(stop, y, text, style, width=max(stop - start, 0))
    if end - start < 18 or value is None:
        return
    band = design.band.get(metric.at(data.scope))
    if band and band[0] != band[1]:
        aside = _band(band, metric)
        if cells(aside) > end - stop - 2 and value > 0:
            aside = f"÷{value / band[0]:.2g} ×{band[1] / value:.2g}"
    else:
        aside = _change(value, base, index)
    canvas.text(stop + 1, y, plain(aside, symbols), theme.style(Ink.DIM, on), width=end - stop - 2)


def _band(band: tuple[float, float], metric: Metric) -> str:
    unit = metric.unit if metric.unit in ("usd", "%") else ""
    low = si(band[0], digits=2) if not unit else written(band[0], unit)
    high = si(band[1], digits=2) if not unit else written(band[1], unit)
    return f"{low}…{high.lstrip('$')}"


def _change(value: float, base: float | None, index: int) -> str:
    if index == 0 or not base:
        return ""
    times = value / base
    if times >= 10:
        return f"×{times:.3g}"
    return f"{(times - 1) * 100:+.0f}%"


class Headline(Panel):
    """The table; a click chooses the metric of the chart."""

    DEFAULT_CSS = "Headline { height: 11; }"

    class Chosen(Message):
        """A metric was clicked."""

        def __init__(self, metric: Metric) -> None:
            super().__init__()
            self.metric = metric

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.data = HeadlineData(answer=None)

    def show(self, data: HeadlineData) -> None:
        """Show other numbers."""
        self.data = data
        self.redraw()

    def draw(self, width: int, height: int) -> list[Strip]:
        """Return the table's strips."""
        return render(width, height, self.look.theme, self.look.symbols, self.data)

    def on_click(self, event: events.Click) -> None:
        """Choose the metric under the pointer."""
        shown = rows(self.size.height)
        if 0 < event.y <= len(shown):
            self.post_message(self.Chosen(shown[event.y - 1]))


def scope_words(scope: str) -> str:
    """Return a scope in words."""
    return dict(SCOPES)[scope]
