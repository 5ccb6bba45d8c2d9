"""The `firstlight` command and the table of its subcommands."""

from __future__ import annotations

import errno
import io
import os
import sys
from importlib import import_module
from pathlib import Path

import click

from firstlight.errors import FirstlightError, InfeasibleError

COMMANDS = {
    "compare": "Designs at equal power: what each delivers. The main job.",
    "plan": "The best mix and policy under power, service level and price; what binds next.",
    "simulate": "One design under one load: every request, every replica, as tables.",
    "explore": "Move a slider, see what it does to time, energy and money.",
    "emulate": "One product through the optics: its error, what causes it, its ledger.",
    "sweep": "Grids and samples over any field, resumable, on all cores or a Ray cluster.",
    "claims": "Each published claim: its basis, the verdict here, and when it would hold.",
    "lab": "A sheet for an independent test of two designs: predicted beside measured.",
    "catalog": "Facts with their sources: devices, servers, engines, models, prices.",
    "accuracy": "A real model through the light: perplexity, agreement, energy.",
    "calibrate": "A device and its serving stack, from measured runs.",
    "trace": "Read, check, convert and make request traces.",
    "doctor": "Versions, CPU features, optional parts, the terminal.",
}
"""Command name -> one line of help. The module is ``firstlight.cli.<name>``, loaded on demand."""


class _LazyGroup(click.Group):
    """A group that imports a command's module only when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"firstlight.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="firstlight")
def firstlight() -> None:
    """Time to first token, by light: what LLM inference gains when prefill runs on light."""


def _mend_closed_streams() -> None:
    """Stand in for streams the shell has closed: what is written to them fails or is dropped."""
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  # lives as long as we
    if sys.stdout is None:
        sys.stdout = _Closed()


class _Closed(io.TextIOBase):
    """An output that was closed before the program began."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        """Refuse.

        Raises:
            OSError: Always.
        """
        raise OSError(errno.EBADF, "it was closed")


def main() -> None:
    """Run the command line; exit 0 done, 1 the scenario cannot be met, 2 bad input."""
    _mend_closed_streams()
    try:
        # without standalone mode click hands back the status a command left with
        status = firstlight(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(2)
    except click.ClickException as error:
        click.echo(f"firstlight: {' '.join(error.format_message().split())}", err=True)
        sys.exit(2)
    except BrokenPipeError:
        # whoever read the output has seen enough; Python would complain once more at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        # of the commands' own files every failure has been named; what is left is the output itself
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.stdout = sys.__stdout__ or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
        click.echo(f"firstlight: the output cannot be written: {error.strerror or error}", err=True)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted; no output was left half-written", err=True)
        sys.exit(130)
    except InfeasibleError as error:
        click.echo(f"firstlight: {error}", err=True)
        sys.exit(1)
    except FirstlightError as error:
        click.echo(f"firstlight: {error}", err=True)
        sys.exit(2)
    sys.exit(status if isinstance(status, int) else 0)
