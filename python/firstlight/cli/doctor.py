"""`firstlight doctor`: versions, CPU features, optional parts, the terminal."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
from importlib import metadata
from pathlib import Path

import click

_CPU_FEATURES = (
    "sse4_2",
    "avx",
    "f16c",
    "fma",
    "avx2",
    "avx512f",
    "avx512bw",
    "avx512_vnni",
    "asimd",
)
_CPU_INFO = Path("/proc/cpuinfo")
_NEEDED = ("numpy", "click", "msgspec", "rich", "textual", "tomli-w")
_DEVELOPING = frozenset({"test", "lint"})
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+).*;.*extra\s*==\s*['\"]([^'\"]+)['\"]")


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(*, as_json: bool) -> None:
    """Print versions, CPU features, optional parts and what the terminal can show."""
    found = {
        "build": _build(),
        "versions": _versions(),
        "cpu": _cpu(),
        "optional parts": _optional(),
        "terminal": _terminal(),
    }
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for section, facts in found.items():
        click.echo(section)
        for name, value in facts.items():
            click.echo(f"  {name:14} {value}")


def _build() -> dict[str, str]:
    """Return how the compiled half was built, and what it uses here."""
    from firstlight import _core

    return _core.build_info()


def _versions() -> dict[str, str]:
    return {
        "firstlight": _version("firstlight") or "not installed",
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        **{name: _version(name) or "missing" for name in _NEEDED},
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _cpu() -> dict[str, str]:
    text = _CPU_INFO.read_text(errors="replace") if _CPU_INFO.exists() else ""
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)
    model = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
    has = set(flags[1].split()) if flags else set()
    return {
        "model": model[1] if model else platform.machine(),
        "cores": str(len(os.sched_getaffinity(0)))
        if hasattr(os, "sched_getaffinity")
        else str(os.cpu_count()),
        "features": " ".join(name for name in _CPU_FEATURES if name in has) or "?",
    }


def _optional() -> dict[str, str]:
    """Return each extra: the version of its packages, or how to install it."""
    extras: dict[str, list[str]] = {}
    for line in metadata.requires("firstlight") or []:
        match = _REQUIREMENT.match(line)
        if match and match[2] not in _DEVELOPING:
            extras.setdefault(match[2], []).append(match[1])
    return {
        extra: ", ".join(f"{name} {_version(name)}" for name in names)
        if all(_version(name) for name in names)
        else f"not installed: pip install 'firstlight[{extra}]'"
        for extra, names in extras.items()
    }


def _terminal() -> dict[str, str]:
    size = shutil.get_terminal_size((80, 24))
    return {
        "kind": os.environ.get("TERM", "?") if sys.stdout.isatty() else "not a terminal",
        "size": f"{size.columns} columns, {size.lines} lines",
        "colour": _colour(),
        "encoding": _encoding(),
    }


def _colour() -> str:
    if os.environ.get("NO_COLOR"):
        return "off, NO_COLOR is set"
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return "off"
    term = os.environ.get("TERM", "")
    if os.environ.get("COLORTERM") in {"truecolor", "24bit"}:
        return "16 million"
    return "256" if "256" in term else "16"


def _encoding() -> str:
    encoding = sys.stdout.encoding or "ascii"
    try:
        "µ × − ≤ ░ ▒ ▓ █ ⣿".encode(encoding)
    except UnicodeEncodeError:
        return f"{encoding}, without unicode: plainer characters are printed"
    return f"{encoding}, unicode: µ × − ≤ ░ ▒ ▓ █ ⣿"
