"""What changes the scenario, and what is seen of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from firstlight.errors import ScenarioError
from firstlight.tui import engine, present, scenario_file
from firstlight.tui.field import BY_KEY, FROM_FILE
from firstlight.tui.metric import METRICS, SCOPES, Metric
from firstlight.tui.symbols import SETS
from firstlight.tui.theme import THEMES
from firstlight.tui.view import View
from firstlight.tui.widgets.controls import Controls
from firstlight.tui.widgets.panel import Look

if TYPE_CHECKING:
    from firstlight.tui.number import Value


class Edits(View):
    """The actions that change controls, metric, axes, colours."""

    # -- what to see

    def choose_metric(self, metric: Metric) -> None:
        """Show a metric in chart, map and tornado."""
        self.known = replace(self.known, metric=metric, held_axis=None)
        self.show_answer()
        self.show_map()
        self.ask()

    def action_metric(self, step: int) -> None:
        """Show the next metric."""
        index = METRICS.index(self.known.metric) + step
        self.choose_metric(METRICS[index % len(METRICS)])

    def action_scope(self) -> None:
        """Show the next scope."""
        names = [name for name, _ in SCOPES]
        scope = names[(names.index(self.known.scope) + 1) % len(names)]
        self.known = replace(self.known, scope=scope, held_axis=None)
        self.say(f"energy is now told for: {dict(SCOPES)[scope]}")
        self.show_answer()
        self.ask()

    def action_axis(self) -> None:
        """Put the selected control along the chart."""
        f = self.panel(Controls).selected
        if f is None or f.choices:
            self.say("only a slider can lie along the chart; select one first", is_error=True)
            return
        self.known = replace(self.known, curve_key=f.key, held_axis=None)
        self.show_controls()
        self.show_curve()
        self.ask()

    def action_map_axis(self, which: int) -> None:
        """Put the next field across or up the map."""
        keys = list(self.known.map_keys)
        every = [key for key in present.MAP_KEYS if key != keys[1 - which]]
        keys[which] = every[(every.index(keys[which]) + 1) % len(every)]
        self.known = replace(self.known, map_keys=(keys[0], keys[1]))
        self.map_cursor = None
        self.ask()

    def action_design(self) -> None:
        """Show the next design's timeline."""
        names = [d.name for d in self.known.answer.designs] if self.known.answer else []
        if self.timeline_design in names:
            index = (names.index(self.timeline_design) + 1) % len(names)
            self.timeline_design, self.window, self.request = names[index], None, ""
            self.known = replace(self.known, drawn=None)
            self.show_timeline()
            self.ask()

    def action_symbols(self) -> None:
        """Draw with the next symbol set."""
        names = list(SETS)
        name = names[(names.index(self.look.symbols.name) + 1) % len(names)]
        self.put_on(Look(self.look.theme, SETS[name]))
        self.show_all()
        self.say(f"symbols: {name}")

    def action_theme(self) -> None:
        """Draw with the next theme; without colour it stays without."""
        if self.look.theme.is_mono:
            self.say("NO_COLOR is set", is_error=True)
            return
        names = [name for name, theme in THEMES.items() if not theme.is_mono]
        self.choose_theme(names[(names.index(self.look.theme.name) + 1) % len(names)])

    def choose_theme(self, name: str) -> None:
        """Draw with a theme."""
        self.put_on(Look(THEMES[name], self.look.symbols))
        self.show_all()
        self.say(f"theme: {name}")

    def action_freeze(self) -> None:
        """Hold the calculation, or go on."""
        self.known = replace(self.known, is_frozen=not self.known.is_frozen)
        if self.known.is_frozen:
            self.known = replace(self.known, is_stale=self.known.answer is not None)
            self.say("frozen: move what you like, Space calculates")
        else:
            self.say("")
        self.show_answer()
        self.ask()

    # -- what to change

    def set_field(self, key: str, value: Value, *, is_drag: bool = False) -> None:
        """Change one control; choosing an optical server sets what is known of it."""
        try:
            setup = self.known.setup.replace(key, value)
        except ScenarioError as error:
            self.say(str(error), is_error=True)
            return
        if key == "optical_server" and value != FROM_FILE:
            setup = setup.with_values(scenario_file.engine_values(str(value)))
        self.edit(setup, key=key, is_drag=is_drag)

    def action_reset(self) -> None:
        """Reset the selected control."""
        f = self.panel(Controls).selected
        if f is not None:
            self.set_field(f.key, self.known.home[f.key])

    def action_reset_all(self) -> None:
        """Reset every control."""
        self.edit(self.known.home)
        self.say("every control was reset; u undoes it")

    def action_undo(self) -> None:
        """Undo."""
        if self.history.undo():
            self.moved()
        else:
            self.say("nothing to undo")

    def action_redo(self) -> None:
        """Redo."""
        if self.history.redo():
            self.moved()
        else:
            self.say("nothing to redo")

    def action_pin(self) -> None:
        """Pin the controls as A, or let A go when nothing changed since."""
        is_same = self.known.pinned == self.known.setup
        pinned = None if is_same else self.known.setup
        answer = None if is_same else self.known.answer
        self.known = replace(self.known, pinned=pinned, pin_answer=answer)
        self.say(
            "A was let go" if is_same else "pinned as A: move anything, 2 compares, dots show A"
        )
        self.show_controls()
        self.show_compare()
        self.ask()

    def action_swap(self) -> None:
        """Swap A and B."""
        pinned = self.known.pinned
        if pinned is None:
            self.say("nothing is pinned; p pins", is_error=True)
            return
        self.known = replace(self.known, pinned=self.known.setup, pin_answer=self.known.answer)
        self.edit(pinned)

    def action_adopt(self) -> None:
        """Go back to A."""
        if self.known.pinned is None:
            self.say("nothing is pinned; p pins", is_error=True)
        else:
            self.edit(self.known.pinned)

    def take_cell(self, point: tuple[float, float]) -> None:
        """Give two controls the values of a map's cell."""
        setup = self.known.setup
        for key, value in zip(self.known.map_keys, point, strict=True):
            f = BY_KEY[key]
            setup = setup.replace(key, f.at(f.position(value)))
        self.edit(setup)
        self.map_cursor = None

    def load_claim(self, index: int) -> None:
        """Set the assumptions under which a claim holds."""
        verdicts = self.known.judged.verdicts if self.known.judged else ()
        if not 0 <= index < len(verdicts):
            return
        verdict = verdicts[index]
        if verdict.state == "holds":
            self.say(f"it holds here already: {verdict.claim}")
            return
        if not verdict.settings:
            self.say(
                f"no assumptions are known under which this holds: {verdict.claim}", is_error=True
            )
            return
        self.edit(self.known.setup.with_values(dict(verdict.settings)))
        self.say(f"set what it needs: {verdict.holds_when}; u undoes it")

    def action_solve(self) -> None:
        """Search where optics break even along the selected control."""
        f = self.panel(Controls).selected
        if f is None or f.choices:
            self.say(
                "select a slider first; = finds where optics break even along it", is_error=True
            )
            return
        self.say(f"searching {f.label} …")
        self._generation = self.engine.submit(
            engine.BreakEvenSearch(
                setup=self.known.setup, key=f.key, metric=self.known.metric, scope=self.known.scope
            )
        )
