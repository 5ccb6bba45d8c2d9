"""Where a command's result goes: stdout, or a file that is whole or not there at all."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

from firstlight.errors import OutputError

if TYPE_CHECKING:
    from types import TracebackType

_PLAINER = str.maketrans(
    {"×": "x", "µ": "u", "−": "-", "–": "-", "≤": "<=", "≥": ">=", "·": "*", "₂": "2", "∞": "inf",
     "…": "...", "²": "2"}
)  # fmt: skip


class Destination:
    """A place for one result, claimed before the work and filled after it.

    A context manager: leaving it without `write` leaves nothing behind.

    Args:
        path: The file; None means stdout.

    Raises:
        OutputError: The file could not be written.
    """

    def __init__(self, path: str | None) -> None:
        # through a link the file behind it is replaced, not the link
        self._path = None if path is None else Path(path).resolve()
        self._given = path
        self._partial: Path | None = None
        if self._path is not None and (not self._path.exists() or self._path.is_file()):
            self._claim(self._path)
        elif self._path is not None and self._path.is_dir():
            raise OutputError(f"{path}: is a folder; allowed: a file in a folder that exists")

    def _claim(self, path: Path) -> None:
        """Make the partial file beside the wanted one, which proves that it can be written."""
        try:
            handle, partial = tempfile.mkstemp(
                dir=path.parent, prefix=f".{path.name[:100]}.", suffix=".part"
            )
        except OSError as error:
            raise self._refusal(error) from None
        os.close(handle)
        self._partial = Path(partial)
        if path.exists() and not os.access(path, os.W_OK):
            self._partial.unlink()
            raise OutputError(f"{self._given}: cannot be written: it is read-only")

    def _refusal(self, error: OSError) -> OutputError:
        return OutputError(
            f"{self._given}: cannot be written: {error.strerror or error}; nothing was written"
        )

    @property
    def is_file(self) -> bool:
        """Whether the result goes to a file."""
        return self._path is not None

    def write(self, result: str | bytes) -> None:
        """Write the whole result; bytes only to a file.

        Raises:
            OutputError: It cannot be written; nothing is left behind.
        """
        if self._path is None:
            _print(result if isinstance(result, str) else result.decode())
            return
        content = result.encode() if isinstance(result, str) else result
        try:
            if self._partial is None:  # a device or a pipe cannot be replaced
                self._path.write_bytes(content)
                return
            self._partial.write_bytes(content)
            self._partial.chmod(_mode(self._path))
            self._partial.replace(self._path)
            self._partial = None
        except OSError as error:
            raise self._refusal(error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._partial is not None:
            self._partial.unlink(missing_ok=True)
            self._partial = None


def _mode(path: Path) -> int:
    """Return the mode a new file gets: that of the one it replaces, else what umask leaves."""
    if path.exists():
        return path.stat().st_mode & 0o7777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _print(text: str) -> None:
    """Print a result; characters the terminal cannot show are written in plainer ones."""
    encoding = sys.stdout.encoding or "ascii"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(_PLAINER).encode(encoding, "replace").decode(encoding)
    sys.stdout.write(text)
    sys.stdout.flush()
