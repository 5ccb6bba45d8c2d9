"""Which key does what, and a file that says otherwise.

No Alt, no Ctrl+Enter, no Ctrl+Shift: terminals and multiplexers eat them.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from textual.binding import Binding

from firstlight.errors import ScenarioError, nearest
from firstlight.tui.widgets.bars import TABS

if TYPE_CHECKING:
    from collections.abc import Mapping

_TABLE: tuple[tuple[str, str, str, str], ...] = (
    *((f"tab_{tab}", str(i), f"tab('{tab}')", f"open {tab}") for i, tab in enumerate(TABS, 1)),
    ("down", "j,down,tab", "step(1)", "next control or row"),
    ("up", "k,up,shift+tab", "step(-1)", "previous control or row"),
    ("left", "h,left", "nudge(-1)", "lower, or left"),
    ("right", "l,right", "nudge(1)", "raise, or right"),
    ("left_far", "H,shift+left", "nudge(-10)", "lower by ten steps"),
    ("right_far", "L,shift+right", "nudge(10)", "raise by ten steps"),
    ("low_end", "0,home", "end(False)", "to the lower end"),
    ("high_end", "dollar_sign,end", "end(True)", "to the upper end"),
    ("enter", "enter", "enter", "type a value or a range such as 5..20; take a map cell or a claim"),
    ("fold", "z", "fold", "fold or unfold the group"),
    ("reset", "r", "reset", "reset the control"),
    ("reset_all", "R", "reset_all", "reset every control"),
    ("metric_next", "m", "metric(1)", "next metric"),
    ("metric_previous", "M", "metric(-1)", "previous metric"),
    ("scope", "g", "scope", "next scope: whole inference, whole prefill, linear layers"),
    ("axis", "X", "axis", "put the selected control along the chart"),
    ("panel", "v", "panel", "what stands below the table: chart, energy, what moves it"),
    ("pin", "p", "pin", "pin the controls as scenario A, or let it go"),
    ("swap", "x", "swap", "swap A and B"),
    ("adopt", "a", "adopt", "go back to A"),
    ("undo", "u,ctrl+z", "undo", "undo"),
    ("redo", "U,ctrl+r,ctrl+y", "redo", "redo"),
    ("freeze", "space", "freeze", "hold the calculation while moving several controls, and go on"),
    ("cite", "c", "cite", "the full sentence about the selected control and the metric"),
    ("solve", "equals_sign", "solve", "at which value of the selected control do optics break even?"),
    ("command", "colon", "command", "set any control by name, such as context 128k"),
    ("share", "y", "share", "copy the share string"),
    ("copy_table", "Y", "copy_table", "copy the table as Markdown"),
    ("export", "e", "export", "write TOML, CSV, JSON, SVG or Markdown"),
    ("open", "o", "open", "open a scenario file or a share string"),
    ("save", "s", "save", "save the scenario file"),
    ("maximize", "plus", "maximize", "enlarge the panel under the pointer, or the chart; zoom in"),
    ("minimize", "minus", "minimize", "back to all panels; zoom out"),
    ("design", "d", "design", "design of the timeline"),
    ("map_across", "left_square_bracket", "map_axis(0)", "other field across the map"),
    ("map_up", "right_square_bracket", "map_axis(1)", "other field up the map"),
    ("symbols", "B", "symbols", "braille, blocks or ASCII"),
    ("theme", "t", "theme", "next theme"),
    ("tour", "n", "tour", "the tour, or its next step"),
    ("help", "question_mark,f1", "help", "help"),
    ("back", "escape", "back", "back"),
    ("quit", "q,ctrl+q", "quit", "quit; the setup is kept"),
)  # fmt: skip
"""(id, keys, action, words)."""

BINDINGS = [
    Binding(keys, action, words, id=name, show=False, priority=name in ("down", "up"))
    for name, keys, action, words in _TABLE
]

WORDS = {name: words for name, _, _, words in _TABLE}


def keymap_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Return where a keymap file is looked for."""
    home = environment.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "firstlight" / "explore.toml"


def load(path: Path) -> dict[str, str]:
    """Return keys by binding id from the ``[keymap]`` table of a file; empty without a file.

    Raises:
        ScenarioError: Not TOML, or an unknown binding.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        msg = f"{path}: cannot be used as keymap: {error}"
        raise ScenarioError(msg) from None
    keymap = tables.get("keymap", {})
    for name, keys in keymap.items():
        if name not in WORDS:
            msg = f"{path}: no key binding is called {name!r}{nearest(name, WORDS)}; there are: {', '.join(WORDS)}"
            raise ScenarioError(msg)
        if not isinstance(keys, str) or not keys:
            msg = f'{path}: {name}: {keys!r} is not a key; write for example "ctrl+n,n"'
            raise ScenarioError(msg)
    return dict(keymap)


def shown_keys(keymap: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    """Return (keys, words) of every binding, for help."""
    names = {"dollar_sign": "$", "equals_sign": "=", "colon": ":", "plus": "+", "minus": "-",
             "question_mark": "?", "left_square_bracket": "[", "right_square_bracket": "]",
             "left": "←", "right": "→", "up": "↑", "down": "↓", "escape": "Esc", "enter": "Enter",
             "space": "Space"}  # fmt: skip
    rows = []
    for name, keys, _, words in _TABLE:
        each = (keymap or {}).get(name, keys).split(",")
        rows.append((" ".join(names.get(k, k) for k in each), words))
    return rows
