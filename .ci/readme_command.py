"""Print the README's command for installing and testing, so that the checks run what it promises."""

import re
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def main() -> None:
    """Print the one shell block that runs pytest."""
    blocks = re.findall(r"```sh\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    tests = [block.strip() for block in blocks if "pytest" in block]
    if len(tests) != 1:
        sys.exit(f"README.md: {len(tests)} shell blocks run pytest; one is wanted")
    print(tests[0])


main()
