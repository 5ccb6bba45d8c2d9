"""`firstlight doctor`: versions, CPU features in use, optional parts."""

from __future__ import annotations

import click


@click.command("doctor")
def command() -> None:
    """Print versions, CPU features in use and which optional parts are installed."""
    from firstlight import _core

    for key, value in _core.build_info().items():
        click.echo(f"{key:12} {value}")
