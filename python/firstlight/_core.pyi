"""The compiled half of firstlight. Private: use the façade modules."""

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

__version__: str

def build_info() -> dict[str, str]:
    """Return how the extension was built and what it can use on this machine."""

# Runners: arrays are C-contiguous; anything else is refused, never copied.
def dequantize(data: NDArray[np.uint8], kind: str, out: NDArray[np.float32]) -> int:
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
        mixed_axes: list[NDArray[np.uint64]] | None = None,
        mixed_ps: NDArray[np.uint64] | None = None,
        mixed_skew_1024: int = 0,
    ) -> StepTable: ...

@final
class Moments:
    """Traffic as the closed form sees it, checked and kept in Rust."""

    def __new__(
        cls,
        *,
        rate_ratio: NDArray[np.float64],
        prefill_ratio: NDArray[np.float64],
        decode_ratio: NDArray[np.float64],
        uncached_tok: NDArray[np.float64],
        uncached_weight: NDArray[np.float64],
        mean_uncached_tok: float,
        uncached_cv: float,
        mean_input_tok: float,
        mean_output_tok: float,
        mean_pairs: float,
        context_tok: float,
        bin_s: float,
    ) -> Moments: ...

@final
class Alone:
    """One server of a pool under one traffic."""

    def __new__(
        cls,
        *,
        role: str,
        replicas: int,
        table: StepTable,
        chunk_tok: int,
        max_seqs: int,
        kv_blocks: int,
        block_tok: int,
        moments: Moments,
    ) -> Alone: ...
    def prefill_size_tok(self, tok_per_s: float) -> float:
        """Return the size of the prefill step that keeps up with so many tokens a second [tok]."""
    def prefill_time_s(self, tokens: float) -> float:
        """Return the time of a prefill step with its attention [s]."""
    def decode_seqs(self, tok_per_s: float) -> float:
        """Return the sequences in flight that keep up with so many tokens a second."""
    def decode_time_s(self, seqs: float) -> float:
        """Return the time of a step that decodes so many sequences [s]."""
    @property
    def most_tok(self) -> float:
        """Largest prefill step [tok]."""
    @property
    def tokens(self) -> NDArray[np.float64]:
        """Prompt tokens of a step [tok]."""
    @property
    def prefill_s(self) -> NDArray[np.float64]:
        """Time of such a step with its attention [s]."""
    @property
    def seqs(self) -> NDArray[np.float64]:
        """Decoding sequences."""
    @property
    def decode_s(self) -> NDArray[np.float64]:
        """Time of a step that decodes them [s]."""
    @property
    def extra_s_per_tok(self) -> float:
        """What a prompt token adds to a step that decodes [s]."""
    @staticmethod
    def of_passes(
        *,
        tokens: NDArray[np.float64],
        linear_s: NDArray[np.float64],
        pair_s: float,
        moments: Moments,
    ) -> Alone:
        """Return an optical server, whose passes of so many tokens take so long."""
    def bound(self) -> float:
        """Return a load that one server cannot exceed [request/s]."""
    def carried(
        self,
        *,
        count: int,
        ttft_s: float,
        tpot_s: float,
        decode_wait_s: float,
        quantile: float,
        beat: float = 0.0,
    ) -> float:
        """Return the highest load that `count` servers on one queue carry [request/s]."""
    def missed(
        self,
        rate_request_per_s: float,
        *,
        count: int,
        ttft_s: float,
        tpot_s: float,
        decode_wait_s: float,
        quantile: float,
    ) -> float:
        """Return the share of requests that miss the level at a load."""

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
        keep: NDArray[np.bool_],
        unit_from: NDArray[np.uint64],
        unit_of: NDArray[np.uint32],
        follow_from: NDArray[np.uint64],
        follow_of: NDArray[np.uint32],
        think_ps: NDArray[np.uint64],
    ) -> None:
        """Add requests in order of arrival."""
    def add_fault(
        self,
        *,
        kind: str,
        replica: int,
        from_ps: int,
        until_ps: int,
        table: StepTable | None = None,
        slower_1024: int = 1024,
    ) -> None:
        """Add a fault: "down", "slow" (with its step costs), "link-down" or "link-slow"."""
    def keep_in_flight(self, most: int) -> None:
        """Keep at most `most` requests in flight; 0: any number."""
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
    def tally(self, *, from_ps: int, ttft_ps: int, tpot_ps: int) -> list[int]:
        """Return how many came from a time on, and how many met both limits, either of them."""
    def record(self) -> None:
        """Record what every replica does from now on."""
    def timeline(self) -> dict[str, NDArray[Any]]:
        """Return the columns of what was recorded."""
    def counters(self) -> list[dict[str, int]]:
        """Return one dictionary of integers a pool."""
    def gaps(self) -> tuple[NDArray[np.uint64], int]:
        """Return the histogram of gaps between tokens: counts by bucket, sum [ps]."""
    def free_blocks(self) -> list[int]:
        """Return the free KV blocks of every replica."""
    def requests(self) -> dict[str, NDArray[Any]]:
        """Return the columns of all requests."""
    def take_requests(self) -> dict[str, NDArray[Any]]:
        """Return the same and forget them all: the fleet is then idle."""

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
