"""The compiled half of firstlight. Private: use the façade modules."""

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

__version__: str

def build_info() -> dict[str, str]:
    """Return how the extension was built and what it can use on this machine."""

def gap_edges_ps() -> NDArray[np.uint64]:
    """Return the lower edges of the gap histogram's buckets [ps]."""

@final
class StepTable:
    """Step costs of one replica, checked and kept in Rust."""

    def __new__(
        cls,
        *,
        linear_ps: NDArray[np.uint64],
        head_ps: NDArray[np.uint64],
        prefill_attn_floor_ps: int,
        prefill_attn_pair_fs: NDArray[np.uint64],
        decode_attn_floor_ps: NDArray[np.uint64],
        decode_attn_ctx_ps: NDArray[np.uint64],
        mix_1024: int,
        linear_pj: NDArray[np.uint64],
        head_pj: NDArray[np.uint64],
        prefill_attn_pair_fj: NDArray[np.uint64],
        decode_attn_floor_pj: NDArray[np.uint64],
        decode_attn_ctx_pj: NDArray[np.uint64],
    ) -> StepTable: ...

@final
class Engine:
    """A fleet in time."""

    def __new__(
        cls,
        pools: list[dict[str, Any]],
        fleet: dict[str, Any],
    ) -> Engine: ...
    def push(
        self,
        arrival_ps: NDArray[np.uint64],
        isl_tok: NDArray[np.uint32],
        cached_tok: NDArray[np.uint32],
        osl_tok: NDArray[np.uint32],
        unit_from: NDArray[np.uint64],
        unit_of: NDArray[np.uint32],
    ) -> None:
        """Add requests in order of arrival."""
    def watch(self, *, from_ps: int, ttft_ps: int, tpot_ps: int, allowed: int) -> None:
        """Stop early once more than `allowed` requests have missed their limits."""
    def advance(self, until_ps: int, most_events: int) -> str:
        """Let time pass; return "reached", "paused" or "missed"."""
    @property
    def now_ps(self) -> int:
        """The time up to which everything has happened [ps]."""
    @property
    def events(self) -> int:
        """Events so far."""
    @property
    def missed(self) -> int:
        """Requests that missed the watched limits so far."""
    def counters(self) -> list[dict[str, int]]:
        """Return one dictionary of integers a pool."""
    def gaps(self) -> tuple[NDArray[np.uint64], int]:
        """Return the histogram of gaps between tokens: counts by bucket, sum [ps]."""
    def free_blocks(self) -> list[int]:
        """Return the free KV blocks of every replica."""
    def requests(self) -> dict[str, NDArray[np.uint64]]:
        """Return the columns of all requests."""

@final
class OpticalLayer:
    """A weight matrix on optical masks."""

    def __new__(
        cls,
        w: NDArray[np.float32],
        spec: dict[str, Any],
        *,
        calibration: NDArray[np.float32] | None = None,
    ) -> OpticalLayer: ...
    def matmul(
        self,
        x: NDArray[np.float32],
        out: NDArray[np.float32],
        *,
        seed: int,
        layer: int,
        first_token: int,
        threads: int,
    ) -> dict[str, Any]:
        """Compute ``x · wᵀ`` into `out`; returns the counters."""
    def describe(self) -> dict[str, Any]:
        """Return what was compiled, by name."""
    def expected_counts(self, tokens: int) -> list[int]:
        """Return (cycles, reloads, DAC writes, ADC reads) of so many vectors by the closed form."""
    def effective(self, w: NDArray[np.float32], *, weight_slice: int = 0) -> NDArray[np.float64]:
        """Return the effective mask of a weight slice, (outputs, inputs), in ±1."""
