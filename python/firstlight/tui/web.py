"""The explorer in a browser, through textual-serve on 127.0.0.1; nothing is left running after."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from firstlight.errors import FirstlightError

if TYPE_CHECKING:
    from collections.abc import Sequence

_SERVE = """
import os, signal, sys, threading
from textual_serve.server import Server
def end_with_parent():
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)
threading.Thread(target=end_with_parent, daemon=True).start()
Server(sys.argv[1], host="127.0.0.1", port=int(sys.argv[2]), title="firstlight explore").serve()
"""


def serve(arguments: Sequence[str], *, port: int) -> None:
    """Serve until interrupted, then end the server and every explorer it started.

    textual-serve leaves its children running when it ends, so all of them live in one process
    group of their own, which is ended as a whole: here, or by the server itself once the pipe to
    this process closes, however this process ends.

    Args:
        arguments: Arguments of `firstlight explore`.
        port: Port on 127.0.0.1.

    Raises:
        FirstlightError: textual-serve is not installed.
    """
    from importlib.util import find_spec

    if find_spec("textual_serve") is None:
        msg = "--web needs textual-serve; install it with: pip install textual-serve"
        raise FirstlightError(msg)
    command = shlex.join([sys.executable, "-m", "firstlight", "explore", *arguments])
    server = subprocess.Popen(  # noqa: S603  # our own interpreter and our own arguments
        [sys.executable, "-c", _SERVE, command, str(port)],
        start_new_session=True,
        stdin=subprocess.PIPE,
    )
    for order in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(order, _interrupted)
    try:
        server.wait()
    finally:
        end_group(server.pid)
        if server.stdin is not None:
            server.stdin.close()


def _interrupted(order: int, _frame: object) -> None:
    raise SystemExit(128 + order)


def end_group(group: int, *, patience_s: float = 2.0) -> None:
    """End every process of a group: asked first, then without asking.

    Args:
        group: Process group id.
        patience_s: How long to wait between [s].
    """
    for order in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(group, order)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            try:
                os.killpg(group, 0)
            except ProcessLookupError:
                return
            time.sleep(0.05)
