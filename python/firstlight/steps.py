"""Step tables: what one pass over a batch costs on one device group, in time and energy.

This is the whole contract between a device model (`roofline`, `optics`) and the scheduler. A device
model fills a `StepTable` once; the scheduler then needs no physics. Every entry is an integer so
that sums are exact: picoseconds for time, picojoules for energy **above idle**, both for the whole
device group that serves one replica (all GPUs of a tensor-parallel group, all engines of an optical
server).

One step over `m` tokens (prefill chunks and decode tokens together) that emits `e` tokens, with
prefill chunks of `q` new tokens behind `kv` resident ones, and `n` decoding sequences whose context
lengths sum to `S`, takes::

    prefill_attn = Σ_chunks  floor + (q·kv + q·(q+1)/2) · pair_fs[q] / 1000
    decode_attn  = ctx_floor_ps[n] + ctx_ps[n] · S              (0 when n = 0)
    step         = linear_ps[m] + head_ps[e]
                   + max(prefill_attn, decode_attn) + min(prefill_attn, decode_attn) · mix_1024 / 1024

Divisions are integer divisions (floor). A step without prefill is affine in `S`, which is what lets
the scheduler run thousands of them in closed form. Energy follows the same pattern, without the
`mix` term (energies add).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    U64 = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTable:
    """Time and energy of one step on one replica's device group.

    Attributes:
        linear_ps: Everything that depends only on the number of tokens in the step (matrix
            products, norms, collectives, host overhead), (max_tok + 1,) [ps]. Entry 0 is 0.
        head_ps: Output head and sampler by emitted tokens, (max_seqs + 1,) [ps]. Entry 0 is 0.
        prefill_attn_floor_ps: Attention floor of each prefill chunk [ps].
        prefill_attn_pair_fs: Attention time per query-key pair by chunk length, (max_tok + 1,) [fs].
        decode_attn_floor_ps: Decode attention floor by sequences, (max_seqs + 1,) [ps]. Entry 0 is 0.
        decode_attn_ctx_ps: Decode attention per context token, (max_seqs + 1,) [ps].
        mix_1024: Share of the smaller attention part that is not hidden, in 1/1024 (1024: they add).
        linear_pj: Energy above idle beside `linear_ps`, (max_tok + 1,) [pJ].
        head_pj: Energy above idle beside `head_ps`, (max_seqs + 1,) [pJ].
        prefill_attn_pair_fj: Attention energy per query-key pair by chunk length, (max_tok + 1,)
            [fJ]; a product is divided by 1000 and floored to pJ, once a chunk.
        decode_attn_floor_pj: Energy beside `decode_attn_floor_ps`, (max_seqs + 1,) [pJ].
        decode_attn_ctx_pj: Energy per context token and step, (max_seqs + 1,) [pJ].
        provenance: Where the numbers come from, one sentence a part: name -> (status, source).
    """

    linear_ps: U64
    head_ps: U64
    prefill_attn_floor_ps: int
    prefill_attn_pair_fs: U64
    decode_attn_floor_ps: U64
    decode_attn_ctx_ps: U64
    mix_1024: int
    linear_pj: U64
    head_pj: U64
    prefill_attn_pair_fj: U64
    decode_attn_floor_pj: U64
    decode_attn_ctx_pj: U64
    provenance: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def max_tok(self) -> int:
        """Largest number of tokens in one step."""
        return len(self.linear_ps) - 1

    @property
    def max_seqs(self) -> int:
        """Largest number of sequences in one step."""
        return len(self.head_ps) - 1
