"""Run the explorer over the test double in this terminal: for tmux, PTY and pictures."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("TEXTUAL_FPS", "120")

from double import DoubleSolver

from firstlight.tui import symbols, theme
from firstlight.tui.app import Explorer

if __name__ == "__main__":
    bare = "NO_COLOR" in os.environ
    look = (
        theme.MONO if bare else theme.TERMINAL if os.environ.get("TERM") == "linux" else theme.DARK
    )
    coarse_s = float(sys.argv[1]) if len(sys.argv) > 1 else 0.004
    Explorer(DoubleSolver(coarse_s=coarse_s), theme=look, symbols=symbols.choose()).run()
