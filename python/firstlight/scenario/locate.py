"""Finds the line of a key in a TOML text, so that an error can name it.

`tomllib` does not keep positions. This reads headers and key lines only; inside a value that spans
lines (a list of inline tables) it counts the key's occurrences.
"""

from __future__ import annotations

import re

Path = tuple[str | int, ...]

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(
    r"\s*((?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*'))*)\s*="
)
_BARE = re.compile(r"[A-Za-z0-9_+-]+")


def _parts(text: str) -> list[str]:
    """Return the parts of a dotted key, without quotes."""
    return [part.strip("\"' ") for part in re.findall(r"\"[^\"]*\"|'[^']*'|[^.\s]+", text)]


def dotted(path: Path) -> str:
    """Return a key path as people write it: `design[2].pools[0].server`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            shown = part if _BARE.fullmatch(part) else repr(part[:40])
            text += f".{shown}" if text else shown
    return text


def line_of(text: str, path: Path) -> int | None:
    """Return the line, from 1, where the key or its nearest enclosing table is written.

    Args:
        text: The TOML text.
        path: Keys and list positions from the top.
    """
    best_line, best_depth = None, 0
    table: Path = ()
    seen: dict[Path, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.match(line)
        key = None if header else _KEY.match(line)
        if header:
            here = table = _entered(header, seen)
        elif key:
            here = (*table, *_parts(key[1]))
        else:
            continue
        if here == path[: len(here)] and len(here) > best_depth:
            best_line, best_depth = number, len(here)
    if best_line is None or best_depth == len(path):
        return best_line
    return _inside(text, best_line, path[best_depth:])


def _entered(header: re.Match[str], seen: dict[Path, int]) -> Path:
    """Return the path a header opens; lists of tables carry the position of their last entry."""
    here: Path = ()
    parts = _parts(header[2])
    for depth, part in enumerate(parts, 1):
        here = (*here, part)
        if depth == len(parts) and header[1] == "[[":
            seen[here] = seen.get(here, -1) + 1
        if here in seen:
            here = (*here, seen[here])
    return here


def _inside(text: str, line: int, rest: Path) -> int:
    """Return the line of a key inside the value that starts on `line`."""
    words = [part for part in rest if isinstance(part, str)]
    if not words:
        return line
    nth = next((part for part in rest if isinstance(part, int)), 0)
    pattern = re.compile(rf"(?<![\w-])[\"']?{re.escape(words[-1])}[\"']?\s*=")
    found = 0
    for number, content in enumerate(text.splitlines()[line - 1 :], line):
        if number > line and (
            _HEADER.match(content) or content.startswith(tuple("abcdefghijklmnopqrstuvwxyz"))
        ):
            break
        for _ in pattern.finditer(content):
            if found == nth:
                return number
            found += 1
    return line
