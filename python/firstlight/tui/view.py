"""The application below the keys: panels laid out, questions asked, reports drawn."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from textual.app import App, ComposeResult
from textual.containers import Horizontal, Vertical
from textual.theme import Theme as Palette
from textual.widget import Widget
from textual.widgets import ContentSwitcher

from firstlight.errors import FirstlightError
from firstlight.tui import engine, keymap, present, scenario_file
from firstlight.tui.answer import Tier
from firstlight.tui.messages import Reported
from firstlight.tui.palette import Search
from firstlight.tui.present import Known
from firstlight.tui.state import DEFAULT, History, Setup
from firstlight.tui.symbols import BRAILLE, Symbols
from firstlight.tui.terminal import is_gone
from firstlight.tui.theme import DARK, THEMES, Ink, Theme
from firstlight.tui.widgets.bars import BottomBar, BottomData, TopBar, TopData
from firstlight.tui.widgets.controls import Controls
from firstlight.tui.widgets.gantt import Gantt
from firstlight.tui.widgets.headline import Headline
from firstlight.tui.widgets.heat_map import HeatMap
from firstlight.tui.widgets.line_chart import LineChart, fit
from firstlight.tui.widgets.listing import Listing
from firstlight.tui.widgets.panel import Look, Panel
from firstlight.tui.widgets.stacked_bars import StackedBars
from firstlight.tui.widgets.tornado import TornadoChart
from firstlight.tui.widgets.why import Why

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from textual import events
    from textual.binding import BindingType
    from textual.screen import Screen
    from textual.timer import Timer

    from firstlight.tui.solver import Solver

_KEYS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "explore": (("←→", "move", "nudge(1)"), ("Enter", "type", "enter"), ("m", "metric", "metric(1)"),
                ("p", "pin A", "pin"), ("=", "break-even", "solve"), ("e", "export", "export"),
                ("?", "help", "help"), ("q", "quit", "quit"), ("u", "undo", "undo"),
                ("c", "source", "cite"), ("g", "scope", "scope")),
    "compare": (("p", "pin A", "pin"), ("x", "swap", "swap"), ("a", "adopt A", "adopt"),
                ("m", "metric", "metric(1)"), ("e", "export", "export"), ("1", "explore", "tab('explore')"),
                ("?", "help", "help"), ("q", "quit", "quit")),
    "map": (("←↓↑→", "cursor", "nudge(1)"), ("Enter", "take cell", "enter"), ("m", "metric", "metric(1)"),
            ("[ ]", "axes", "map_axis(0)"), ("e", "export", "export"), ("?", "help", "help"),
            ("q", "quit", "quit")),
    "timeline": (("+ -", "zoom", "maximize"), ("←→", "pan", "nudge(1)"), ("↑↓", "request", "step(1)"),
                 ("d", "design", "design"), ("?", "help", "help"), ("q", "quit", "quit")),
    "claims": (("↑↓", "claim", "step(1)"), ("Enter", "load what it needs", "enter"), ("u", "undo", "undo"),
               ("e", "export", "export"), ("?", "help", "help"), ("q", "quit", "quit")),
}  # fmt: skip


Shown = TypeVar("Shown", bound=Widget)


class View(App[None]):
    """Layout, engine and pictures; what the hand does comes in the classes above."""

    CSS_PATH = "explorer.tcss"
    TITLE = "firstlight"
    ENABLE_COMMAND_PALETTE = True
    COMMANDS = {Search}  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [*keymap.BINDINGS]
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012
        (0, "-tiny"),
        (62, "-narrow"),
        (100, "-normal"),
        (160, "-wide"),
    ]
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (18, "-short"), (32, "-mid"), (50, "-tall")]  # noqa: RUF012

    def __init__(
        self,
        solver: Solver,
        *,
        setup: Setup = DEFAULT,
        theme: Theme = DARK,
        symbols: Symbols = BRAILLE,
        autosave: Path | None = None,
        keys: Mapping[str, str] | None = None,
        quiet_s: float = 0.15,
        is_tour: bool = False,
    ) -> None:
        """Make the explorer.

        Args:
            solver: What calculates.
            setup: What the controls say first, and what a reset returns to.
            theme: Colours.
            symbols: Glyphs.
            autosave: File that keeps the setup, or None.
            keys: Keys by binding id that differ from the built-in ones.
            quiet_s: Quiet time before the full simulation [s].
            is_tour: Whether to begin with the tour.
        """
        super().__init__(ansi_color=_is_ansi(theme) or None)
        self.history = History(setup, time.monotonic)
        self.known = Known(setup=setup, home=setup)
        self.look = Look(theme, symbols)
        self.engine = engine.Engine(solver, self.post_report, quiet_s=quiet_s)
        self.autosave = autosave
        self.keys = dict(keys or {})
        self.tab = "explore"
        self.map_cursor: tuple[float, float] | None = None
        self.window: tuple[float, float] | None = None
        self.request = ""
        self.timeline_design = "optical+gpu"
        self.claim = 0
        self.last_error = ""
        self.tour_step = 0 if is_tour else -1
        self._panels: dict[tuple[type[Widget], str], Widget] = {}
        self._every: dict[type[Widget], list[Any]] = {}
        self._generation = 0
        self._asked: engine.Question | None = None
        self._takers: dict[type[engine.Report], Callable[[Any], None]] = {
            engine.Solved: self._take_answer,
            engine.PinSolved: self._take_pin,
            engine.Curve: partial(self._take_detail, "curve", self.show_curve),
            engine.Tornado: partial(self._take_detail, "tornado", self.show_tornado),
            engine.Map: partial(self._take_detail, "map", self.show_map),
            engine.Drawn: partial(self._take_detail, "drawn", self.show_timeline),
            engine.Judged: partial(self._take_detail, "judged", self.show_claims),
            engine.BreakEven: self._take_break_even,
            engine.Progress: self._take_progress,
            engine.Refused: lambda report: self._refused(report.message),
            engine.Broken: self._take_broken,
        }
        self._save_timer: Timer | None = None
        self._axis_timer: Timer | None = None
        self._message_timer: Timer | None = None

    # -- layout

    def compose(self) -> ComposeResult:
        """Lay out the tabs."""
        yield TopBar(id="top")
        with ContentSwitcher(initial="explore", id="tabs"):
            with Horizontal(id="explore"):
                with Vertical(id="left"):
                    yield Controls(id="controls")
                    yield Why(id="why")
                    yield TornadoChart(id="tornado")
                with Vertical(id="middle"):
                    yield Headline(id="headline")
                    yield LineChart(id="chart")
                    yield StackedBars(id="bars")
                with Vertical(id="side"):
                    yield HeatMap(id="side-map")
                    yield Gantt(id="side-gantt")
                    yield Listing(id="side-claims")
            with Horizontal(id="compare"):
                yield Listing(id="differences")
                yield LineChart(id="overlay")
            with Vertical(id="map"):
                yield HeatMap(id="big-map")
            with Vertical(id="timeline"):
                yield Gantt(id="gantt")
            with Vertical(id="claims"):
                yield Listing(id="verdicts")
                yield Listing(id="verdict")
        yield BottomBar(id="bottom")

    def on_mount(self) -> None:
        """Start the engine and ask the first question."""
        for theme in THEMES.values():
            if not _is_ansi(theme):
                self.register_theme(_palette(theme))
        self.put_on(self.look)
        if self.keys:
            self.set_keymap(self.keys)
        self.panel(Controls).focus()
        # Python's default of 5 ms between threads would be seen: the engine's own work is short.
        sys.setswitchinterval(0.0005)
        self.engine.start()
        self.show_all()
        self.ask()
        if not self.is_headless:
            self.set_interval(1.0, self._leave_a_dead_terminal)

    def _leave_a_dead_terminal(self) -> None:
        """End when the terminal has gone without a hang-up signal; its input would spin for ever."""
        if is_gone(sys.__stdin__):
            self.exit(return_code=1)

    def on_unmount(self) -> None:
        """End the engine and keep the setup."""
        self.engine.stop()
        self.keep()

    def put_on(self, look: Look) -> None:
        """Change colours and glyphs of everything."""
        self.look = look
        self.theme = "ansi-dark" if _is_ansi(look.theme) else f"firstlight-{look.theme.name}"
        for panel in self.panels(Panel):
            panel.put_on(look)

    def on_resize(self, event: events.Resize) -> None:
        """Ask again when another size shows other panels."""
        del event
        self.call_after_refresh(self._resized)

    def _resized(self) -> None:
        if not self.is_laid_out:
            return
        if self._question() != self._asked:
            self.ask()
        self.show_curve()
        self.show_map()

    @property
    def stage(self) -> Screen[Any]:
        """The screen with the tabs, also while a page or a prompt lies above it."""
        return self.screen_stack[0]

    def panel(self, kind: type[Shown], name: str = "") -> Shown:
        """Return the widget of a kind, or of a kind and id; looked for once, for none ever goes."""
        found = self._panels.get((kind, name))
        if found is None:
            found = self.stage.query_one(f"#{name}" if name else kind.__name__, kind)
            self._panels[kind, name] = found
        return cast("Shown", found)

    def panels(self, kind: type[Shown]) -> list[Shown]:
        """Return every widget of a kind."""
        if kind not in self._every:
            self._every[kind] = list(self.stage.query(kind))
        return cast("list[Shown]", self._every[kind])

    @property
    def is_laid_out(self) -> bool:
        """Whether there is something to draw on: not before the start nor after the end."""
        if not self.is_running or not self.screen_stack:  # at the end the screens go first
            return False
        return (TopBar, "") in self._panels or bool(self.stage.query(TopBar))

    # -- questions and reports

    def post_report(self, report: engine.Report) -> None:
        """Hand a report over from the engine's thread."""
        self.post_message(Reported(report))

    def ask(self) -> None:
        """Ask the engine everything that the visible panels show."""
        if self.known.is_frozen:
            return
        self._asked = self._question()
        self._generation = self.engine.submit(self._asked)

    def _question(self) -> engine.Question:
        is_wide = self.tab == "explore" and self.size.width >= 160
        return engine.Question(
            setup=self.known.setup,
            pinned=self.known.pinned,
            curve_key=self.known.curve_key,
            map_keys=self.known.map_keys if self.tab == "map" or is_wide else None,
            map_shape=(33, 25) if self.tab == "map" else (25, 17),
            metric=self.known.metric,
            scope=self.known.scope,
            timeline_design=self.timeline_design if self.tab == "timeline" or is_wide else "",
            wants_claims=self.tab == "claims" or is_wide,
        )

    def on_reported(self, message: Reported) -> None:
        """Draw what the engine found; what answers an older question is dropped."""
        report = message.report
        if report.generation < self._generation or not self.is_laid_out:
            return
        take = self._takers.get(type(report))
        if take is not None:
            take(report)

    def _take_answer(self, report: engine.Solved) -> None:
        answer = report.answer
        has_parts = any(d.energy_j_by_part for d in answer.designs)
        optical = answer.designs[-1] if answer.designs else None
        self.known = replace(
            self.known,
            answer=answer,
            detailed=answer if has_parts else self.known.detailed,
            bound=optical if optical is not None and optical.binding else self.known.bound,
            seconds=report.seconds,
            is_stale=False,
            progress="",
        )
        self.show_answer()

    def _take_detail(
        self,
        name: str,
        show: Callable[[], None],
        report: Any,  # noqa: ANN401
    ) -> None:  # each kind its place
        self.known = replace(self.known, **{name: report})
        show()

    def _take_progress(self, report: engine.Progress) -> None:
        self.known = replace(self.known, progress=f"{report.done}/{report.total}")
        self.show_state()

    def _take_pin(self, report: engine.PinSolved) -> None:
        self.known = replace(self.known, pin_answer=report.answer)
        self.show_compare()

    def _take_break_even(self, report: engine.BreakEven) -> None:
        self.say(present.break_even(report, self.known))
        self.ask()

    def _take_broken(self, report: engine.Broken) -> None:
        self.last_error = report.detail
        self._refused(f"{report.message} (c shows more)")

    def _refused(self, message: str) -> None:
        generation = self._generation
        self.known = replace(
            self.known,
            is_stale=True,
            progress="",
            # What was never had will not come: these panels say why instead of waiting.
            drawn=self.known.drawn
            or engine.Drawn(generation=generation, timeline=None, reason=message),
            judged=self.known.judged
            or engine.Judged(generation=generation, verdicts=(), reason=message),
        )
        for heat in self.panels(HeatMap):
            heat.note = message
            heat.redraw()
        self.say(message, is_error=True)
        self.show_answer()
        self.show_tornado()
        self.show_timeline()
        self.show_claims()

    # -- edits

    def edit(self, setup: Setup, *, key: str = "", is_drag: bool = False) -> None:
        """Make a new setup the current one: history, controls at once, then the engine."""
        self.history.push(setup, key=key, is_drag=is_drag)
        self.moved(is_drag=is_drag)

    def moved(self, *, is_drag: bool = False) -> None:
        """Draw and answer the setup at the history's cursor."""
        if is_drag and self.known.held_axis is None and self.known.curve is not None:
            self.known = replace(self.known, held_axis=fit(present.chart(self.known)))
        has_fast = Tier.ANALYTIC in self.engine.solver.tiers
        is_stale = self.known.is_stale or (not has_fast and self.known.answer is not None)
        self.known = replace(self.known, setup=self.history.now, is_stale=is_stale, progress="")
        self.show_controls()
        self.ask()
        if self.panel(BottomBar).data.message:
            self.say("")
        if self._axis_timer is not None:
            self._axis_timer.stop()
        if self.known.held_axis is not None:
            self._axis_timer = self.set_timer(0.25, self._release_axis)
        if self._save_timer is not None:
            self._save_timer.stop()
        self._save_timer = self.set_timer(1.0, self.keep)

    def _release_axis(self) -> None:
        self.known = replace(self.known, held_axis=None)
        if self.is_laid_out:
            self.show_chart()

    def keep(self) -> None:
        """Write the setup to the autosave file."""
        if self.autosave is None:
            return
        try:
            self.autosave.parent.mkdir(parents=True, exist_ok=True)
            scenario_file.save(self.known.setup, self.autosave)
        except (FirstlightError, OSError) as error:
            self.autosave = None  # said once; a full disk must not nag every second
            if self.is_running:
                self.say(f"autosave is off: {error}", is_error=True)

    # -- drawing

    def say(self, text: str, *, is_error: bool = False) -> None:
        """Show a line at the bottom: an error until the next edit, anything else for a while."""
        if not self.is_laid_out:
            return
        if self._message_timer is not None:
            self._message_timer.stop()
            self._message_timer = None
        self.panel(BottomBar).show(
            BottomData(keys=_KEYS[self.tab], message=text, is_error=is_error and bool(text))
        )
        if text and not is_error:
            self._message_timer = self.set_timer(12.0, lambda: self.say(""))

    def show_all(self) -> None:
        """Draw everything."""
        self.say("")
        self.show_controls()
        self.show_answer()
        self.show_chart()
        self.show_tornado()
        self.show_map()
        self.show_timeline()
        self.show_claims()

    def show_controls(self) -> None:
        """Draw sliders and the first row."""
        known = self.known
        self.panel(Controls).show(
            known.setup,
            home=known.home,
            pinned=known.pinned,
            statuses=scenario_file.statuses(known.setup),
        )
        self.show_state()

    def show_state(self) -> None:
        """Draw the first row."""
        words, is_final = present.state_words(self.known)
        self.panel(TopBar).show(
            TopData(
                tab=self.tab,
                summary=present.summary(self.known.setup),
                state=words,
                is_final=is_final,
            )
        )

    def show_answer(self) -> None:
        """Draw what depends on the answer at the point."""
        self.show_state()
        self.panel(Headline).show(present.headline(self.known))
        found = present.bars(self.known)
        if found is not None:
            self.panel(StackedBars).show(found)
        self.panel(Why).show(present.why(self.known))
        self.show_chart()
        self.show_compare()

    def show_curve(self) -> None:
        """Draw the curves, and the sentence that is read from them."""
        self.show_chart()
        self.panel(Headline).show(present.headline(self.known))

    def show_chart(self) -> None:
        """Draw the curves."""
        if self.tab not in ("explore", "compare"):
            return
        data = present.chart(self.known)
        for chart in self.panels(LineChart):
            if chart.size.width:
                chart.show(data)

    def show_compare(self) -> None:
        """Draw A against B."""
        if self.tab == "compare":
            self.panel(Listing, "differences").show(present.compare(self.known))

    def show_tornado(self) -> None:
        """Draw what moves the metric."""
        found = present.tornado(self.known)
        if found is not None:
            self.panel(TornadoChart).show(found)

    def show_map(self) -> None:
        """Draw the map."""
        found = present.heat_map(self.known, self.map_cursor)
        for heat in self.panels(HeatMap):
            if Tier.ANALYTIC not in self.engine.solver.tiers:
                heat.note = engine.NO_CLOSED_FORM
            if found is not None and heat.size.width:
                heat.show(found)

    def show_timeline(self) -> None:
        """Draw the timeline."""
        data = present.gantt(self.known, self.window, self.request, self.timeline_design)
        for chart in self.panels(Gantt):
            chart.show(data)

    def show_claims(self) -> None:
        """Draw the verdicts."""
        signs = self.look.symbols.verdicts
        self.panel(Listing, "side-claims").show(present.claims(self.known, -1, signs))
        self.panel(Listing, "verdicts").show(present.claims(self.known, self.claim, signs))
        self.panel(Listing, "verdict").show(present.claim_detail(self.known, self.claim))


def _is_ansi(theme: Theme) -> bool:
    """Return whether the terminal chooses the colours."""
    return theme.name in ("terminal", "no colour")


def _palette(theme: Theme) -> Palette:
    """Return Textual's own theme for pages and prompts."""
    return Palette(
        name=f"firstlight-{theme.name}",
        primary=theme.color(Ink.ACCENT),
        warning=theme.color(Ink.WARN),
        error=theme.color(Ink.ERROR),
        foreground=theme.color(Ink.TEXT),
        background=theme.color(Ink.GROUND),
        surface=theme.color(Ink.SELECTED),
        panel=theme.color(Ink.PANEL),
        dark=theme.is_dark,
    )
