"""A terminal that goes away without a signal ends the explorer; nothing is left spinning."""

import os
import pty
import subprocess
import sys
import time

from firstlight.tui.terminal import is_gone


def test_a_terminal_is_gone_once_its_other_end_is_closed():
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as stream:
        assert not is_gone(stream)
        os.close(ours)
        assert is_gone(stream)
    assert is_gone(None)


def test_the_explorer_ends_with_its_terminal():
    ours, theirs = pty.openpty()
    # A session of its own: no controlling terminal, so no hang-up signal comes.
    child = subprocess.Popen(
        [sys.executable, "-m", "firstlight", "explore"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        seen, deadline = b"", time.monotonic() + 60
        while b"\x1b[?1049h" not in seen and time.monotonic() < deadline:
            seen += os.read(ours, 65536)
        time.sleep(1.0)
        os.close(ours)
        assert child.wait(timeout=60) is not None
    finally:
        child.kill()
        child.wait()
