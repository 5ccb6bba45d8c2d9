"""The shipped pictures of the emulator are made by examples that run."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_error_against_light_prints_what_is_shipped():
    example = ROOT / "examples" / "error_against_light.py"
    done = subprocess.run(
        [sys.executable, str(example)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == example.with_suffix(".out").read_text()
