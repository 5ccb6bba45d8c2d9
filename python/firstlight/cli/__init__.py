"""The command line: one file a command, loaded only when it is called."""

from firstlight.cli.root import main

__all__ = ["main"]
