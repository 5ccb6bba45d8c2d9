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

Where a profile of real kernels exists, `read_profile` makes the table of it, and a four-dimensional
table of measured attention (`MixedAttention`) replaces the affine terms; every step is then an event
of its own.
"""

from firstlight.steps.profile import read_profile
from firstlight.steps.table import MixedAttention, StepTable

__all__ = ["MixedAttention", "StepTable", "read_profile"]
