"""`StepTable`: the integers the scheduler reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    U64 = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MixedAttention:
    """Measured attention time over (prompt chunk, its context, decoding sequences, their context).

    Neither the sum nor the larger of both parts predicts a mixed step. Between points the table is
    linear in each axis; beyond the last point of a context axis it goes on linearly. The longest
    chunk of a step is looked up beside its decoding sequences; further chunks add what they take
    alone.

    Attributes:
        axes: Points of the four axes, each rising from 0 [tok, tok, 1, tok].
        attn_ps: Attention of all layers at each point, four-dimensional [ps].
        skew_frac: How far the decode context that counts lies from the mean towards the longest.
    """

    axes: tuple[U64, U64, U64, U64]
    attn_ps: U64
    skew_frac: float = 0.0


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
        mixed: Measured attention times instead of the affine ones; energies stay affine.
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
    mixed: MixedAttention | None = None
    provenance: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def max_tok(self) -> int:
        """Largest number of tokens in one step."""
        return len(self.linear_ps) - 1

    @property
    def max_seqs(self) -> int:
        """Largest number of sequences in one step."""
        return len(self.head_ps) - 1
