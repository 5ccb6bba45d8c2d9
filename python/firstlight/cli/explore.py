"""`firstlight explore`: the cost explorer in a terminal, as text, in lines, in a browser."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from firstlight.tui.state import Setup


@click.command("explore")
@click.argument("scenario", required=False)
@click.option(
    "--print", "print_as", type=click.Choice(["text", "md", "json", "csv"]),
    help="Print the same screen and end.",
)  # fmt: skip
@click.option("-o", "--output", help="Write --print to a file.")
@click.option("--plain", is_flag=True, help="A conversation in lines, for screen readers.")
@click.option("--tour", is_flag=True, help="Six steps that show what to look at.")
@click.option("--web", is_flag=True, help="Serve it to a browser on 127.0.0.1.")
@click.option("--port", default=8000, show_default=True, help="Port of --web.")
@click.option("--theme", type=click.Choice(["dark", "light", "contrast", "terminal"]))
@click.option("--symbols", type=click.Choice(["auto", "braille", "block", "ascii"]), default="auto")
@click.option(
    "--color", type=click.Choice(["auto", "never", "16", "256", "true"]), default="auto",
    help="Colours to use; NO_COLOR is honoured.",
)  # fmt: skip
def command(
    scenario: str | None,
    print_as: str | None,
    output: str | None,
    plain: bool,  # noqa: FBT001
    tour: bool,  # noqa: FBT001
    web: bool,  # noqa: FBT001
    port: int,
    theme: str | None,
    symbols: str,
    color: str,
) -> None:
    """Move a slider, see what it does to time, energy and money.

    SCENARIO is a file, a share string (fl:1?...), "last" for where you left off, or nothing for the
    shipped scenario.
    """
    if web:
        from firstlight.tui.web import serve

        serve([scenario] if scenario else [], port=port)
        return
    setup = _setup(scenario)
    if print_as:
        _print(setup, print_as, output)
        return
    is_served = "TEXTUAL_DRIVER" in os.environ  # a browser stands at the other end
    if plain or not (is_served or (sys.stdin.isatty() and sys.stdout.isatty())):
        from firstlight.tui.plain import Plain
        from firstlight.tui.solver import default_solver

        Plain(default_solver(), setup, click.echo).run(sys.stdin)
        return
    _run(setup, theme=theme, symbols=symbols, color=color, is_tour=tour)


def _setup(scenario: str | None) -> Setup:
    from firstlight.tui import scenario_file, state

    if scenario is None:
        return state.DEFAULT
    if scenario == "last":
        path = state.autosave_path()
        return scenario_file.load(path) if path.exists() else state.DEFAULT
    if scenario.startswith("fl:"):  # what it says is meant, or it is refused
        setup, warnings = state.parse_share(scenario, is_strict=True)
        for warning in warnings:
            click.echo(f"warning: {warning}", err=True)
        return setup
    return scenario_file.load(Path(scenario))


def _print(setup: Setup, print_as: str, output: str | None) -> None:
    from firstlight.cli.destination import Destination
    from firstlight.tui import once
    from firstlight.tui.solver import default_solver

    with Destination(output) as place:
        place.write(once.FORMATS[print_as](once.answered(default_solver(), setup)))


def _run(setup: Setup, *, theme: str | None, symbols: str, color: str, is_tour: bool) -> None:
    # Textual reads both when it is imported: frames per second, fewer over a slow line.
    os.environ.setdefault("TEXTUAL_FPS", "30" if os.environ.get("SSH_CONNECTION") else "120")
    systems = {"16": "standard", "256": "256", "true": "truecolor"}
    if color in systems:
        os.environ["TEXTUAL_COLOR_SYSTEM"] = systems[color]
    if color == "never":
        os.environ["NO_COLOR"] = "1"
    from firstlight.tui import keymap, state
    from firstlight.tui import symbols as glyphs
    from firstlight.tui import theme as themes
    from firstlight.tui.apart import ApartSolver
    from firstlight.tui.app import Explorer

    bare = bool(os.environ.get("NO_COLOR"))
    few = os.environ.get("TERM") in ("linux", "vt220") or color == "16"
    chosen = themes.MONO if bare else themes.THEMES[theme or ("terminal" if few else "dark")]
    app = Explorer(
        ApartSolver(),
        setup=setup,
        theme=chosen,
        symbols=glyphs.choose() if symbols == "auto" else glyphs.SETS[symbols],
        autosave=state.autosave_path(),
        keys=keymap.load(keymap.keymap_path()),
        is_tour=is_tour,
    )
    app.run()
    if sys.stdout.isatty():
        click.echo(f"firstlight explore {state.share(app.known.setup)!r}")
