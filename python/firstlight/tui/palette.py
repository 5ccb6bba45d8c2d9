"""The command palette: fields, metrics, themes, tabs, every action by its words."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from textual.command import DiscoveryHit, Hit, Hits, Provider

from firstlight.tui import keymap
from firstlight.tui.field import FIELDS, FROM_FILE
from firstlight.tui.metric import METRICS
from firstlight.tui.theme import THEMES
from firstlight.tui.widgets.controls import Controls

if TYPE_CHECKING:
    from collections.abc import Callable

    from firstlight.tui.app import Explorer


class Search(Provider):
    """Finds everything that can be done."""

    def _entries(self) -> list[tuple[str, str, Callable[[], object]]]:
        app: Explorer = self.app  # type: ignore[assignment]
        found: list[tuple[str, str, Callable[[], object]]] = [
            (binding.description, f"key {binding.key}", partial(app.run_action, binding.action))
            for binding in keymap.BINDINGS
        ]
        for f in FIELDS:
            found.append((f"control {f.label}", f.meaning, partial(self._select, f.key)))
            found += [
                (f"{f.label}: {name}", f.meaning, partial(app.set_field, f.key, word))
                for word, name in f.choices
                if word != FROM_FILE
            ]
        found += [(f"metric {m.label}", m.meaning, partial(app.choose_metric, m)) for m in METRICS]
        found += [
            (f"theme {name}", "colours", partial(app.choose_theme, name))
            for name, theme in THEMES.items()
            if not theme.is_mono
        ]
        return found

    def _select(self, key: str) -> None:
        app: Explorer = self.app  # type: ignore[assignment]
        app.action_tab("explore")
        app.panel(Controls).select(key)

    async def discover(self) -> Hits:
        """Offer everything."""
        for text, words, call in self._entries():
            yield DiscoveryHit(text, call, help=words)

    async def search(self, query: str) -> Hits:
        """Offer what matches."""
        matcher = self.matcher(query)
        for text, words, call in self._entries():
            score = max(matcher.match(text), 0.5 * matcher.match(words))
            if score > 0:
                yield Hit(score, matcher.highlight(text), call, help=words)
