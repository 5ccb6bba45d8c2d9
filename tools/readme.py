"""Write the real output of `firstlight compare` into README.md.

Run: `python tools/readme.py`. A test marked `long` checks that it was run.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
START = "<!-- the output below is written by tools/readme.py -->\n```text\n"
END = "```\n<!-- end of the output -->\n"


def shown(page: str) -> str:
    """Return the output a README shows.

    Args:
        page: Its text.
    """
    return page.split(START)[1].split(END, maxsplit=1)[0]


def real() -> str:
    """Return what the shipped scenario answers on a terminal of 80 columns."""
    command = [sys.executable, "-m", "firstlight", "compare"]
    done = subprocess.run(  # noqa: S603  # our own command
        command,
        capture_output=True,
        text=True,
        check=True,
        env={"COLUMNS": "80", "LC_ALL": "C.UTF-8"},
    )
    return done.stdout


def main() -> None:
    """Put the real output in."""
    page = README.read_text(encoding="utf-8")
    head, rest = page.split(START)
    _, tail = rest.split(END)
    README.write_text(f"{head}{START}{real()}{END}{tail}", encoding="utf-8")


if __name__ == "__main__":
    main()
