"""The step table of an optical server: one gated pass, in the scheduler's integers.

A pass takes all waiting tokens up to the chunk bound, runs every layer, and its requests finish at
its end. `linear` is the optics (tiles, reloads, converters, laser); attention and the output head run
on the server's digital part, or attention on a GPU beside it. In one pass attention waits for the
linear layers and the other way round, so the two add.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from firstlight.errors import ModelError, ScenarioError
from firstlight.optics import energy, passes
from firstlight.optics.spec import checked_count
from firstlight.steps import StepTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from firstlight.optics.passes import FirstReload
    from firstlight.optics.spec import EngineSpec
    from firstlight.optics.tiles import LinearStack

    F64 = NDArray[np.float64]
    U64 = NDArray[np.uint64]

PS_PER_S = 10**12
PJ_PER_J = 10**12
FEMTO = 10**15


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionUnit:
    """What computes attention beside the light.

    Attributes:
        name: For provenance.
        op_per_s: Two operations a multiply-accumulate [op/s].
        energy_j_per_mac: Energy above idle [J/MAC].
        mem_bytes_per_s: Bandwidth at which resident keys and values are read [byte/s].
        mem_energy_j_per_bit: Energy of that read [J/bit].

    Raises:
        ScenarioError: When a rate is not positive or an energy is negative.
    """

    name: str
    op_per_s: float
    energy_j_per_mac: float
    mem_bytes_per_s: float
    mem_energy_j_per_bit: float = 0.0

    def __post_init__(self) -> None:
        for what in ("op_per_s", "mem_bytes_per_s"):
            value = getattr(self, what)
            if not (np.isfinite(value) and value > 0):
                raise ScenarioError(f"attention unit {self.name!r}: {what}={value!r} must be > 0")
        for what in ("energy_j_per_mac", "mem_energy_j_per_bit"):
            value = getattr(self, what)
            if not (np.isfinite(value) and value >= 0):
                raise ScenarioError(f"attention unit {self.name!r}: {what}={value!r} must be ≥ 0")


def digital_part(spec: EngineSpec) -> AttentionUnit:
    """Return the server's own digital part: all engines' together, fed by the server's memory."""
    return AttentionUnit(
        name="digital part of the optical server",
        op_per_s=spec.attention_op_per_s_per_engine * spec.engines,
        energy_j_per_mac=spec.attention_energy_j_per_mac,
        mem_bytes_per_s=spec.weight_stream_bytes_per_s,
        mem_energy_j_per_bit=spec.weight_memory_energy_j_per_bit,
    )


def step_table(
    stack: LinearStack,
    *,
    spec: EngineSpec,
    weight_bits: int,
    max_seqs: int,
    max_tok: int | None = None,
    kv_bits: int = 8,
    attention: AttentionUnit | None = None,
    first_reload: FirstReload = "hidden",
) -> StepTable:
    """Return time and energy of one optical pass over 0 to `max_tok` tokens.

    Energies are at the engine, above its static power; multiply by the supply factor for the server.

    Args:
        stack: The model.
        spec: Engine and server.
        weight_bits: Bits of the model's weights; more than the mask's cost more slices.
        max_seqs: Largest number of prompts that end in one pass.
        max_tok: Largest pass; None takes the SRAM bound.
        kv_bits: Bits of a stored key or value.
        attention: What computes attention; None: the server's digital part.
        first_reload: Whether each pass waits for its first tile.

    Raises:
        ModelError: When `max_tok` exceeds what the SRAM holds.
        ScenarioError: When a count is out of range.
    """
    checked_count("max_seqs", max_seqs)
    bound = passes.chunk_bound_tok(spec, hidden_size=stack.hidden_size)
    size = bound if max_tok is None else checked_count("max_tok", max_tok)
    if size > bound:
        raise ModelError(
            f"max_tok: {max_tok!r} is not allowed; 1 to {bound}, the tokens whose partial sums and "
            "activations fit the engine's SRAM"
        )
    unit = digital_part(spec) if attention is None else attention
    tokens = np.arange(size + 1, dtype=np.float64)
    linear_s = passes.pass_time_s(
        stack, spec=spec, tokens=tokens, weight_bits=weight_bits, first_reload=first_reload
    )
    resident = passes.is_resident(stack, spec=spec, weight_bits=weight_bits)
    linear_j = energy.pass_energy_j(
        stack, spec=spec, tokens=tokens, weight_bits=weight_bits, is_reloaded=not resident
    )
    # A sliding layer attends to a whole window once a prompt is longer: a cost a token, not a pair.
    window = tokens * stack.attention_mac_per_tok
    linear_s += 2 * window / unit.op_per_s
    linear_j += window * unit.energy_j_per_mac
    head_s, head_j = _head(stack, spec=spec, weight_bits=weight_bits, max_seqs=max_seqs)
    ctx_s, ctx_j = _context(stack, unit=unit, kv_bits=kv_bits)
    mac = stack.attention_mac_per_pair
    prompts = np.arange(max_seqs + 1) > 0
    return StepTable(
        linear_ps=_integers(linear_s * PS_PER_S),
        head_ps=_integers(head_s * PS_PER_S),
        prefill_attn_floor_ps=0,
        prefill_attn_pair_fs=_filled(size + 1, 2 * mac / unit.op_per_s * FEMTO),
        decode_attn_floor_ps=_filled(max_seqs + 1, 0.0),
        decode_attn_ctx_ps=_integers(np.where(prompts, ctx_s * PS_PER_S, 0.0)),
        mix_1024=1024,
        linear_pj=_integers(linear_j * PJ_PER_J),
        head_pj=_integers(head_j * PJ_PER_J),
        prefill_attn_pair_fj=_filled(size + 1, mac * unit.energy_j_per_mac * FEMTO),
        decode_attn_floor_pj=_filled(max_seqs + 1, 0.0),
        decode_attn_ctx_pj=_integers(np.where(prompts, ctx_j * PJ_PER_J, 0.0)),
        provenance={
            "linear": ("assumed", "optical cycle model; reload, clock and SRAM are not disclosed"),
            "attention": ("assumed", f"{unit.name}: operations and energy a MAC"),
            "head": ("assumed", "digital part: operations, or the head's weights from memory"),
        },
    )


def _head(
    stack: LinearStack, *, spec: EngineSpec, weight_bits: int, max_seqs: int
) -> tuple[F64, F64]:
    """The output head on the digital part: arithmetic, or reading its weights once a pass."""
    emitted = np.arange(max_seqs + 1, dtype=np.float64)
    if stack.head is None:
        return np.zeros_like(emitted), np.zeros_like(emitted)
    unit = digital_part(spec)
    mac = stack.head.k * stack.head.n
    bits = mac * weight_bits
    read_s = bits / 8 / unit.mem_bytes_per_s
    time_s = np.maximum(emitted * 2 * mac / unit.op_per_s, read_s)
    energy_j = emitted * mac * unit.energy_j_per_mac + bits * unit.mem_energy_j_per_bit
    return np.where(emitted > 0, time_s, 0.0), np.where(emitted > 0, energy_j, 0.0)


def _context(stack: LinearStack, *, unit: AttentionUnit, kv_bits: int) -> tuple[float, float]:
    """One query against one resident token: arithmetic or memory, the slower; both energies."""
    checked_count("kv_bits", kv_bits, high=32)
    bits = stack.kv_elements_per_tok * kv_bits
    mac = stack.attention_mac_per_pair
    time_s = max(2 * mac / unit.op_per_s, bits / 8 / unit.mem_bytes_per_s)
    return time_s, mac * unit.energy_j_per_mac + bits * unit.mem_energy_j_per_bit


def _integers(values: F64) -> U64:
    return np.rint(values).astype(np.uint64)


def _filled(length: int, value: float) -> U64:
    return np.full(length, round(value), dtype=np.uint64)
