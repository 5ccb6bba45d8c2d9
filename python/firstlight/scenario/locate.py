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
    seen: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.match(line)
        key = None if header else _KEY.match(line)
        if header:
            table = tuple(_parts(header[2]))
            if header[1] == "[[":
                name = header[2]
                seen[name] = seen.get(name, -1) + 1
                table = (*table, seen[name])
            elif table and str(table[0]) in seen:
                table = (table[0], seen[str(table[0])], *table[1:])
            here = table
        elif key:
            here = (*table, *_parts(key[1]))
        else:
            continue
        if here == path[: len(here)] and len(here) > best_depth:
            best_line, best_depth = number, len(here)
    if best_line is None or best_depth == len(path):
        return best_line
    return _inside(text, best_line, path[best_depth:])


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
