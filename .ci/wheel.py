"""Check a built wheel: its tag, its size, and what it must and must not hold."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

MOST_BYTES = 10_000_000
NEEDED = (
    "firstlight/__init__.py",
    "firstlight/py.typed",
    "firstlight/_core.pyi",
    "firstlight/scenario/default.toml",
    "firstlight/workload/data/azure-2023-conv.npz",
    "firstlight/workload/data/ATTRIBUTION.md",
)


def main(folder: str) -> None:
    """Check the only wheel in a folder.

    Raises:
        SystemExit: It is not as it must be.
    """
    wheels = list(Path(folder).glob("*.whl"))
    if len(wheels) != 1:
        sys.exit(f"{folder}: {len(wheels)} wheels; wanted 1")
    wheel = wheels[0]
    names = set(zipfile.ZipFile(wheel).namelist())
    faults = [f"lacks {name}" for name in NEEDED if name not in names]
    faults += [f"holds {name}" for name in names if "__pycache__" in name or "/tests/" in name]
    if "cp311-abi3" not in wheel.name:
        faults.append("is not for the stable interface of 3.11")
    if wheel.stat().st_size > MOST_BYTES:
        faults.append(f"has {wheel.stat().st_size:,} bytes; at most {MOST_BYTES:,}")
    if faults:
        sys.exit(f"{wheel.name}: {'; '.join(faults)}")
    print(f"{wheel.name}: {wheel.stat().st_size:,} bytes, {len(names)} files")


if __name__ == "__main__":
    main(sys.argv[1])
