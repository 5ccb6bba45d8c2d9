"""The compiled half of firstlight. Private: use the façade modules."""

import numpy as np
from numpy.typing import NDArray

__version__: str

def build_info() -> dict[str, str]:
    """Return how the extension was built and what it can use on this machine."""

# Runners: arrays are C-contiguous; anything else is refused, never copied.
def dequantize(data: NDArray[np.uint8], format: str, out: NDArray[np.float32]) -> int:
    """Unpack GGUF blocks into ``out`` and return how many weights are not finite."""

def rms_norm(
    x: NDArray[np.float32], gain: NDArray[np.float32], epsilon: float, out: NDArray[np.float32]
) -> None:
    """Write the rows of ``x``, divided by their root mean square and scaled, to ``out``."""

def rope(
    x: NDArray[np.float32],
    cos: NDArray[np.float32],
    sin: NDArray[np.float32],
    heads: int,
    half: int,
    interleaved: bool,
) -> None:
    """Rotate the pairs of every head of ``x``, (tokens, heads, 2 * half), in place."""

def causal_softmax(
    scores: NDArray[np.float32],
    scale: float,
    queries: int,
    keys: int,
    first: int,
    window: int | None = None,
) -> None:
    """Turn scores, (blocks, queries, keys), into causal attention weights, in place."""

def swiglu(gate_up: NDArray[np.float32], width: int, out: NDArray[np.float32]) -> None:
    """Write ``silu(gate) * up`` of every row of the fused projection to ``out``."""

def log_sum_exp(logits: NDArray[np.float32], vocab: int, out: NDArray[np.float64]) -> None:
    """Write the log-sum-exp of every row of ``logits``, (rows, vocab), to ``out``."""

def divergence(
    a: NDArray[np.float32], b: NDArray[np.float32], vocab: int, out: NDArray[np.float64]
) -> None:
    """Write the KL divergence [nat] of every row of logits ``b`` from that of ``a`` to ``out``."""

def walsh(x: NDArray[np.float32], order: int, stride: int) -> None:
    """Multiply the middle axis of ``x``, (rows, order, stride), by a Hadamard matrix, in place."""

def readout(
    sums: NDArray[np.float32],
    outputs: int,
    full_scales: NDArray[np.float32] | None,
    margin: float,
    levels: float | None,
    sigma_frac: float,
    key: int,
    first_token: int,
) -> tuple[int, float, float]:
    """Read detector sums in place; return clipped readings, Σ signal² and Σ error²."""
