"""Runs the command line in this process, as a shell would see it."""

from __future__ import annotations

import sys
from typing import NamedTuple

import pytest


class Ran(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def run(monkeypatch, capsys):
    """A function from arguments to exit status, stdout and stderr."""
    from firstlight.cli import main

    def call(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["firstlight", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        captured = capsys.readouterr()
        return Ran(int(left.value.code or 0), captured.out, captured.err)

    return call
