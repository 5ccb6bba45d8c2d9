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


class PassCosts:
    """Time and energy of one optical pass at any size, without a table of all sizes.

    Energies are at the engine, above its static power.

    Args:
        stack: The model.
        spec: Engine and server.
        weight_bits: Bits of the model's weights.
        attention: What computes attention; None: the server's digital part.
        first_reload: Whether each pass waits for its first tile.
    """

    def __init__(
        self,
        stack: LinearStack,
        *,
        spec: EngineSpec,
        weight_bits: int,
        attention: AttentionUnit | None = None,
        first_reload: FirstReload = "hidden",
    ) -> None:
        self._stack = stack
        self._spec = spec
        self._weight_bits = weight_bits
        self._unit = digital_part(spec) if attention is None else attention
        self._first_reload: FirstReload = first_reload

    @property
    def pair_s(self) -> float:
        """Attention time of a query-key pair [s]."""
        return 2 * self._stack.attention_mac_per_pair / self._unit.op_per_s

    @property
    def pair_j(self) -> float:
        """Attention energy of a query-key pair [J]."""
        return self._stack.attention_mac_per_pair * self._unit.energy_j_per_mac

    def linear_s(self, tokens: F64) -> F64:
        """Return the time of the linear layers for so many tokens [s], the shape of `tokens`."""
        optical_s = passes.pass_time_s(
            self._stack,
            spec=self._spec,
            tokens=tokens,
            weight_bits=self._weight_bits,
            first_reload=self._first_reload,
        )
        return optical_s + 2 * self._window(tokens) / self._unit.op_per_s

    def linear_j(self, tokens: F64) -> F64:
        """Return the energy of the linear layers for so many tokens [J], the shape of `tokens`."""
        bits = self._weight_bits
        resident = passes.is_resident(self._stack, spec=self._spec, weight_bits=bits)
        optical_j = energy.pass_energy_j(
            self._stack, spec=self._spec, tokens=tokens, weight_bits=bits, is_reloaded=not resident
        )
        return optical_j + self._window(tokens) * self._unit.energy_j_per_mac

    def _window(self, tokens: F64) -> F64:
        # A sliding layer attends to a whole window once a prompt is longer: a cost a token, not a
        # pair.
        return tokens * self._stack.attention_mac_per_tok

    def head_s(self, emitted: F64) -> F64:
        """Return the output head's time on the digital part [s]: arithmetic, or reading its weights."""
        if self._stack.head is None:
            return np.zeros_like(emitted)
        unit, mac = digital_part(self._spec), self._stack.head.k * self._stack.head.n
        read_s = mac * self._weight_bits / 8 / unit.mem_bytes_per_s
        time_s = np.maximum(emitted * 2 * mac / unit.op_per_s, read_s)
        return np.where(emitted > 0, time_s, 0.0)

    def head_j(self, emitted: F64) -> F64:
        """Return the output head's energy, its weights read once a pass [J]."""
        if self._stack.head is None:
            return np.zeros_like(emitted)
        unit, mac = digital_part(self._spec), self._stack.head.k * self._stack.head.n
        read_j = mac * self._weight_bits * unit.mem_energy_j_per_bit
        return np.where(emitted > 0, emitted * mac * unit.energy_j_per_mac + read_j, 0.0)


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
    costs = PassCosts(
        stack, spec=spec, weight_bits=weight_bits, attention=unit, first_reload=first_reload
    )
    tokens = np.arange(size + 1, dtype=np.float64)
    emitted = np.arange(max_seqs + 1, dtype=np.float64)
    linear_s, linear_j = costs.linear_s(tokens), costs.linear_j(tokens)
    head_s, head_j = costs.head_s(emitted), costs.head_j(emitted)
    ctx_s, ctx_j = _context(stack, unit=unit, kv_bits=kv_bits)
    prompts = emitted > 0
    return StepTable(
        linear_ps=_integers(linear_s * PS_PER_S),
        head_ps=_integers(head_s * PS_PER_S),
        prefill_attn_floor_ps=0,
        prefill_attn_pair_fs=_filled(size + 1, costs.pair_s * FEMTO),
        decode_attn_floor_ps=_filled(max_seqs + 1, 0.0),
        decode_attn_ctx_ps=_integers(np.where(prompts, ctx_s * PS_PER_S, 0.0)),
        mix_1024=1024,
        linear_pj=_integers(linear_j * PJ_PER_J),
        head_pj=_integers(head_j * PJ_PER_J),
        prefill_attn_pair_fj=_filled(size + 1, costs.pair_j * FEMTO),
        decode_attn_floor_pj=_filled(max_seqs + 1, 0.0),
        decode_attn_ctx_pj=_integers(np.where(prompts, ctx_j * PJ_PER_J, 0.0)),
        provenance={
            "linear": ("assumed", "optical cycle model; reload, clock and SRAM are not disclosed"),
            "attention": ("assumed", f"{unit.name}: operations and energy a MAC"),
            "head": ("assumed", "digital part: operations, or the head's weights from memory"),
        },
    )


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
