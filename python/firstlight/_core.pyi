"""The compiled half of firstlight. Private: use the façade modules."""

__version__: str

def build_info() -> dict[str, str]:
    """Return how the extension was built and what it can use on this machine."""
