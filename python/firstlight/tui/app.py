"""The cost explorer: keys, mouse, files and words, over the pictures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from textual.widgets import ContentSwitcher

from firstlight.errors import FirstlightError, ScenarioError
from firstlight.tui import export, keymap, present, scenario_file
from firstlight.tui.edits import Edits
from firstlight.tui.field import BY_KEY, field
from firstlight.tui.screens.page import Page, help_text
from firstlight.tui.screens.prompt import Prompt
from firstlight.tui.state import Setup, parse_share, share
from firstlight.tui.tour import STEPS
from firstlight.tui.widgets.controls import Controls
from firstlight.tui.widgets.gantt import Gantt
from firstlight.tui.widgets.heat_map import HeatMap
from firstlight.tui.widgets.line_chart import LineChart
from firstlight.tui.widgets.listing import Listing
from firstlight.tui.widgets.panel import Panel

if TYPE_CHECKING:
    from collections.abc import Callable

    from firstlight.tui.number import Value
    from firstlight.tui.widgets.bars import BottomBar, TopBar
    from firstlight.tui.widgets.headline import Headline
    from firstlight.tui.widgets.tornado import TornadoChart

_FOCUS = {
    "explore": Controls,
    "compare": Listing,
    "map": HeatMap,
    "timeline": Gantt,
    "claims": Listing,
}


class Explorer(Edits):
    """The cost explorer."""

    # -- where to go

    def action_tab(self, tab: str) -> None:
        """Open a tab, give its main panel the keys and ask for what it shows."""
        self.action_minimize_panel()
        self.tab = tab
        self.panel(ContentSwitcher).current = tab
        self.stage.query_one(f"#{tab}").query_one(_FOCUS[tab]).focus()
        self.say("")
        self.show_state()
        self.call_after_refresh(self._opened)

    def _opened(self) -> None:
        if not self.is_laid_out:
            return
        self.show_compare()
        self.show_chart()
        self.show_map()
        self.show_timeline()
        self.show_claims()
        self.ask()

    def action_step(self, rows: int) -> None:
        """Go to the next control, row, claim or request; on the map up or down."""
        if self.tab == "explore":
            self.panel(Controls).step(rows)
        elif self.tab == "map":
            self.panel(HeatMap, "big-map").moved(0, -rows)
        elif self.tab == "timeline":
            self._pick_request(rows)
        else:
            name = "#verdicts" if self.tab == "claims" else "#differences"
            self.stage.query_one(name, Listing).step(rows)

    def _pick_request(self, rows: int) -> None:
        line = self.known.drawn.timeline if self.known.drawn else None
        names = [life.request for life in line.lives] if line else []
        if not names:
            return
        shown = self.panel(Gantt, "gantt").data.request
        index = names.index(shown) + rows if shown in names else 0
        self.request = names[index % len(names)]
        self.show_timeline()

    def action_nudge(self, steps: int) -> None:
        """Move the control, the map's cursor or the window of the timeline."""
        if self.tab == "explore":
            self.panel(Controls).nudge(steps)
        elif self.tab == "map":
            self.panel(HeatMap, "big-map").moved(steps, 0)
        elif self.tab == "timeline":
            self._move_window(1.0, 0.1 if abs(steps) == 1 else 0.5, 1 if steps > 0 else -1)

    def _move_window(self, zoom: float, share_: float, sign: int) -> None:
        line = self.known.drawn.timeline if self.known.drawn else None
        if line is None:
            return
        start, end = self.window or (line.start_s, line.end_s)
        span, center = (end - start) / zoom, (start + end) / 2 + sign * share_ * (end - start)
        span = min(max(span, 1e-6), line.end_s - line.start_s)
        start = min(max(center - span / 2, line.start_s), line.end_s - span)
        self.window = (start, start + span)
        self.show_timeline()

    def action_end(self, is_high: bool) -> None:  # noqa: FBT001  # actions are positional
        """Move the control to an end."""
        if self.tab == "explore":
            self.panel(Controls).to_end(is_high=is_high)

    def action_enter(self) -> None:
        """Type a value; take the map's cell; load a claim."""
        if self.tab == "explore":
            self.panel(Controls).begin_edit()
        elif self.tab == "map":
            data = self.panel(HeatMap, "big-map").data
            if data is not None:
                self.take_cell(data.cursor)
                self.action_tab("explore")
        elif self.tab == "claims":
            self.load_claim(self.claim)

    def action_fold(self) -> None:
        """Fold the group of the selected control."""
        self.panel(Controls).fold()

    def action_maximize(self) -> None:
        """Enlarge a panel; zoom the timeline in."""
        if self.tab == "timeline":
            self._move_window(1.6, 0.0, 1)
            return
        if self.screen.maximized is not None:
            self.action_minimize_panel()
            return
        panel = self.mouse_over if isinstance(self.mouse_over, Panel) else None
        wanted = panel or next((c for c in self.panels(LineChart) if c.size.width), None)
        if wanted is not None and wanted.id not in ("top", "bottom"):
            self.screen.maximize(wanted, container=False)

    def action_minimize(self) -> None:
        """Show all panels again; zoom the timeline out."""
        if self.tab == "timeline":
            self._move_window(1 / 1.6, 0.0, 1)
        else:
            self.action_minimize_panel()

    def action_minimize_panel(self) -> None:
        """Show all panels again."""
        if self.screen.maximized is not None:
            self.screen.minimize()

    async def action_back(self) -> None:
        """Leave what is enlarged or said, and the tour."""
        self.tour_step = -1
        self.action_minimize_panel()
        self.say("")

    def action_panel(self) -> None:
        """Show the next of chart and energy where there is no room for both."""
        self.screen.toggle_class("-bars")
        self.call_after_refresh(self.show_answer)

    def on_ready(self) -> None:
        """Begin the tour when it was asked for."""
        if self.tour_step >= 0:
            self._tour()

    def action_tour(self) -> None:
        """Take the next step of the tour, or begin it."""
        self.tour_step = self.tour_step + 1 if self.tour_step + 1 < len(STEPS) else -1
        if self.tour_step < 0:
            self.say("the tour is over; ? lists every key")
        else:
            self._tour()

    def _tour(self) -> None:
        step = STEPS[self.tour_step]
        if step.pins:
            self.known = replace(self.known, pinned=self.known.setup, pin_answer=self.known.answer)
        if step.sets:
            self.edit(self.known.setup.with_values(dict(step.sets)))
        if step.tab != self.tab:
            self.action_tab(step.tab)
        self.say(f"{self.tour_step + 1}/{len(STEPS)} {step.says}")

    # -- words and files

    def action_cite(self) -> None:
        """Say where numbers come from, or show an error's detail."""
        if self.last_error:
            detail, self.last_error = self.last_error, ""
            self.push_screen(
                Page("the calculation failed", f"{share(self.known.setup)}\n\n{detail}")
            )
            return
        f = self.panel(Controls).selected
        said = (
            present.citation(self.known, f.key, scenario_file.cited(self.known.setup, f.key))
            if f
            else ""
        )
        sources = [
            f"{c.path}: {c.status}, {c.source} {c.date} {c.note}".strip()
            for c in (self.known.answer.citations if self.known.answer else ())
        ]
        warnings = [f"! {w}" for w in (self.known.answer.warnings if self.known.answer else ())]
        text = "\n\n".join(
            [said, present.metric_citation(self.known), *warnings, *sources, present.letters()]
        )
        self.push_screen(Page("where the numbers come from", text))

    def action_help(self) -> None:
        """Show help for the selected control and every key."""
        f = self.panel(Controls).selected
        said = (
            present.citation(self.known, f.key, scenario_file.cited(self.known.setup, f.key))
            if f
            else ""
        )
        keys = keymap.shown_keys(self.keys)
        self.push_screen(Page("help", help_text(keys, said, present.letters())))

    def _ask_line(
        self,
        label: str,
        text: str,
        check: Callable[[str], str],
        then: Callable[[str], None],
    ) -> None:
        def done(line: str | None) -> None:
            if line is not None:
                try:
                    then(line)
                except FirstlightError as error:
                    self.say(str(error), is_error=True)

        self.push_screen(Prompt(label, text=text, check=check), done)

    def action_command(self) -> None:
        """Set any control by name."""

        def check(line: str) -> str:
            f, value = parse_line(line)
            return f"{BY_KEY[f].label} = {BY_KEY[f].shown(value)}"

        def then(line: str) -> None:
            key, value = parse_line(line)
            self.panel(Controls).select(key)
            self.set_field(key, value)

        self._ask_line(
            "set a control, such as: context 128k, power 1.5MW, price 0.5..2", "", check, then
        )

    def action_share(self) -> None:
        """Copy the share string."""
        text = share(self.known.setup)
        self.copy_to_clipboard(text)
        self.say(f"copied {text}")

    def action_copy_table(self) -> None:
        """Copy the table as Markdown."""
        self.copy_to_clipboard(export.as_table(self.known))
        self.say("copied the table as Markdown")

    def action_export(self) -> None:
        """Write what is on the screen."""

        def then(line: str) -> None:
            path = export.checked_path(line)
            export.write(path, self.known, svg=lambda: self.export_screenshot(title="firstlight"))
            self.say(f"wrote {path}")

        self._ask_line(
            "export to a file; its ending chooses .md .csv .json .toml .svg", "firstlight.md",
            lambda line: f"writes {export.checked_path(line)}", then,
        )  # fmt: skip

    def action_save(self) -> None:
        """Save the scenario file."""

        def then(line: str) -> None:
            path = Path(line.strip()).expanduser()
            scenario_file.save(self.known.setup, path)
            self.say(f"saved {path}")

        self._ask_line(
            "save the scenario to", "scenario.toml", lambda line: f"writes {line.strip()}", then
        )

    def action_open(self) -> None:
        """Open a scenario file or a share string."""
        self._ask_line(
            "open a scenario file, or paste a share string", "", lambda line: f"opens {line.strip()}",
            self.open_line,
        )  # fmt: skip

    def open_line(self, line: str) -> None:
        """Open what a line names.

        Raises:
            ScenarioError: It cannot be opened.
        """
        warnings: list[str] = []
        setup: Setup
        if line.strip().startswith("fl:"):
            setup, warnings = parse_share(line)
        else:
            setup = scenario_file.load(Path(line.strip()).expanduser())
        self.known = replace(self.known, home=setup)
        self.edit(setup)
        self.say("; ".join(warnings) or "opened", is_error=bool(warnings))

    # -- messages of the hand

    def on_controls_changed(self, message: Controls.Changed) -> None:
        """Take a moved control."""
        self.set_field(message.key, message.value, is_drag=message.is_drag)

    def on_controls_released(self) -> None:
        """End a drag: what follows is another step."""
        self.history.close_step()

    def on_controls_said(self, message: Controls.Said) -> None:
        """Show what a control has to say."""
        self.say(message.text, is_error=message.is_error)

    def on_headline_chosen(self, message: Headline.Chosen) -> None:
        """Take a clicked metric."""
        self.choose_metric(message.metric)

    def on_line_chart_moved(self, message: LineChart.Moved) -> None:
        """Take a dragged cursor."""
        f = BY_KEY[self.known.curve_key]
        self.set_field(f.key, f.at(f.position(message.value)), is_drag=message.is_drag)

    def on_tornado_chart_chosen(self, message: TornadoChart.Chosen) -> None:
        """Go to a clicked control."""
        self.panel(Controls).select(message.key)

    def on_heat_map_moved(self, message: HeatMap.Moved) -> None:
        """Move the map's cursor."""
        self.map_cursor = message.point
        self.show_map()

    def on_heat_map_chosen(self, message: HeatMap.Chosen) -> None:
        """Take a cell of the map."""
        self.take_cell(message.point)
        self.action_tab("explore")

    def on_gantt_picked(self, message: Gantt.Picked) -> None:
        """Show a request's life."""
        self.request = message.request
        self.show_timeline()

    def on_listing_moved(self, message: Listing.Moved) -> None:
        """Select a claim."""
        self.claim = message.index
        self.show_claims()

    def on_listing_chosen(self, message: Listing.Chosen) -> None:
        """Load a claim's assumptions."""
        self.load_claim(message.index)

    def on_top_bar_opened(self, message: TopBar.Opened) -> None:
        """Open a tab."""
        self.action_tab(message.tab)

    async def on_bottom_bar_pressed(self, message: BottomBar.Pressed) -> None:
        """Do what a clicked key does."""
        await self.run_action(message.action)


def parse_line(line: str) -> tuple[str, Value]:
    """Return the field key and value of a typed line such as ``context 128k``.

    Raises:
        ScenarioError: No such control, or the value is not allowed.
    """
    name, _, rest = line.strip().replace("=", " ").partition(" ")
    f = None
    for words in range(len(line.split()), 0, -1):  # labels may have two words
        head = " ".join(line.replace("=", " ").split()[:words])
        try:
            f = field(head)
        except ScenarioError:
            continue
        rest = " ".join(line.replace("=", " ").split()[words:])
        break
    if f is None:
        f = field(name)
    return f.key, f.parse(rest)
