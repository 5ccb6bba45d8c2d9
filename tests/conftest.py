"""Shared by all tests: the plain references are importable as `reference`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
