"""What `import firstlight` offers, and what it does not load."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import firstlight

HEAVY = (
    "numpy",
    "rich",
    "textual",
    "msgspec",
    "torch",
    "transformers",
    "ray",
    "matplotlib",
    "pyarrow",
)
LIGHT = ("textual", "rich", "torch", "transformers", "ray", "matplotlib", "pyarrow")


@pytest.mark.parametrize("name", firstlight.__all__)
def test_public_name_resolves(name):
    assert getattr(firstlight, name) is not None
    assert name in dir(firstlight)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'comparre'"):
        _ = firstlight.comparre


def loaded_by(code: str) -> set[str]:
    """Return the top-level packages a clean interpreter has after running `code`."""
    tail = "import json, sys; print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{tail}"], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_import_loads_nothing_heavy():
    assert not loaded_by("import firstlight") & {*HEAVY, "click"}


def test_help_loads_nothing_heavy():
    code = "import sys\nsys.argv = ['firstlight', '--help']\nfrom firstlight.cli import main\ntry:\n    main()\nexcept SystemExit:\n    pass"
    loaded = loaded_by(code)
    assert "click" in loaded
    assert not loaded & {*HEAVY}


def test_composer_and_report_load_no_front_end():
    loaded = loaded_by("import firstlight\nfirstlight.compare\nfirstlight.report.tables")
    assert "numpy" in loaded
    assert not loaded & {*LIGHT, "click"}
