"""One server in its role, as the closed form reads it: its step times for a traffic, its joules."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np

from firstlight import _core, optics
from firstlight.errors import ModelError
from firstlight.evaluate.cell import OPTICAL_SEQS, group
from firstlight.schedule.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from firstlight.evaluate.analytic.load import Load
    from firstlight.evaluate.cell import Group, Role, Serving
    from firstlight.evaluate.servers import Server
    from firstlight.optics import EngineSpec
    from firstlight.steps import StepTable

    F64 = NDArray[np.float64]

PJ_PER_J = 1e12
FEMTO = 1e15
BATCHES = 32
"""Sizes of a pass at which its time is computed."""


class Joules(Protocol):
    """Energies of one replica's steps above idle [J]."""

    def linear_j(self, tokens: int) -> float:
        """Return the energy of the linear layers for so many tokens."""
        ...

    def pair_j(self, tokens: int) -> float:
        """Return the attention energy of a query-key pair of a prompt of so many tokens."""
        ...

    def head_j(self) -> float:
        """Return the energy of the output head for one token."""
        ...

    def decode_j(self, seqs: int, context_tok: float) -> float:
        """Return the energy of a step that decodes so many sequences of that mean context."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Unit:
    """One server in its role.

    Attributes:
        role: What it does.
        tp: GPUs to a replica.
        chunk_tok: Most tokens in a step [tok].
        replicas: Replicas of the server.
        joules: What its steps take.
        made: The servers as the scheduler sees them; None for an optical server, whose passes are
            computed where they are asked for.
        passes: The passes of an optical server.
    """

    role: Role
    tp: int
    chunk_tok: int
    replicas: int
    joules: Joules
    made: Group | None = None
    passes: Passes | None = None

    @lru_cache(maxsize=256)  # noqa: B019  # units are kept anyhow, and few
    def steps(self, load: Load, serving: Serving) -> _core.Alone:
        """Return one server's step times for a traffic; the last few are kept."""
        if self.passes is not None:
            return self.passes.steps(load)
        if self.made is None:
            raise ModelError("a unit is made of a table or of passes")
        return steps_of(self.made, load=load, serving=serving)


def unit(server: Server, *, role: Role, tp: int, chunk_tok: int, serving: Serving) -> Unit:
    """Return one server in its role; the last few are kept.

    Args:
        server: The server.
        role: What it does.
        tp: GPUs to a replica.
        chunk_tok: Most tokens in a step [tok]; 0 takes the SRAM bound of an optical server.
        serving: How the model is served.

    Raises:
        ModelError: The model does not fit.
    """
    if server.engine is not None:
        return _optical(server.engine, server.mem_bytes, server.id, role, chunk_tok, serving)
    key = server.id, role, tp, chunk_tok, serving
    if key not in _UNITS:
        made = group(server, role=role, tp=tp, chunk_tok=chunk_tok, serving=serving)
        _UNITS[key] = Unit(
            role=role,
            tp=tp,
            chunk_tok=made.chunk_tok,
            replicas=made.replicas,
            joules=Tabled(made.table),
            made=made,
        )
    return _UNITS[key]


_UNITS: dict[tuple[str, str, int, int, Serving], Unit] = {}


@lru_cache(maxsize=512)
def _optical(
    spec: EngineSpec, mem_bytes: float, server_id: str, role: Role, chunk_tok: int, serving: Serving
) -> Unit:
    if role != "prefill":
        raise ModelError(f"{server_id} can only prefill; it was given the role {role!r}")
    passes = Passes(spec, serving, chunk_tok=chunk_tok)
    bits = serving.optical_weight_bits
    weights = serving.shape.weight_bytes(bits)
    if mem_bytes - weights < serving.kv_bytes_per_tok * serving.block_tok:
        raise ModelError(
            f"{serving.shape.id} does not fit {server_id}: {weights / 1e9:.1f} GB of {bits}-bit "
            f"weights, {mem_bytes / 1e9:.0f} GB of memory"
        )
    return Unit(
        role=role, tp=1, chunk_tok=passes.chunk_tok, replicas=1, joules=passes, passes=passes
    )


def steps_of(made: Group, *, load: Load, serving: Serving) -> _core.Alone:
    """Return one server's step table at the batch sizes that matter for a traffic.

    Args:
        made: One server in its role.
        load: The traffic.
        serving: How the model is served.
    """
    return _core.Alone(
        role=made.role,
        replicas=made.replicas,
        table=compiled(made.table),
        chunk_tok=made.chunk_tok,
        max_seqs=made.max_seqs,
        kv_blocks=made.kv_blocks,
        block_tok=serving.block_tok,
        moments=load.moments,
    )


class Tabled:
    """Energies read from a step table.

    Args:
        table: The table.
    """

    def __init__(self, table: StepTable) -> None:
        self._table = table

    def linear_j(self, tokens: int) -> float:
        """Return the energy of the linear layers for so many tokens."""
        return float(self._table.linear_pj[tokens]) / PJ_PER_J

    def pair_j(self, tokens: int) -> float:
        """Return the attention energy of a query-key pair of a prompt of so many tokens."""
        place = min(tokens, self._table.max_tok)
        return float(self._table.prefill_attn_pair_fj[place]) / FEMTO

    def head_j(self) -> float:
        """Return the energy of the output head for one token."""
        return float(self._table.head_pj[1]) / PJ_PER_J

    def decode_j(self, seqs: int, context_tok: float) -> float:
        """Return the energy of a step that decodes so many sequences of that mean context."""
        table = self._table
        fixed = (
            table.linear_pj[min(seqs, table.max_tok)]
            + table.head_pj[seqs]
            + table.decode_attn_floor_pj[seqs]
        )
        by_context = float(table.decode_attn_ctx_pj[seqs]) * seqs * context_tok
        return (float(fixed) + by_context) / PJ_PER_J


class Passes:
    """An optical server's passes, computed only where they are asked for.

    A table of all passes takes milliseconds to make, and a sweep over an engine's fields needs a new
    one a point. Equal to `firstlight.optics.step_table` but for its rounding.

    Args:
        spec: The engine.
        serving: How the model is held.
        chunk_tok: Most tokens in a pass [tok]; 0 takes the SRAM bound.

    Raises:
        ModelError: Not one token fits the SRAM.
    """

    def __init__(self, spec: EngineSpec, serving: Serving, *, chunk_tok: int) -> None:
        stack = optics.linear_stack(serving.shape)
        bound = optics.chunk_bound_tok(spec, hidden_size=stack.hidden_size)
        self.chunk_tok = min(chunk_tok, bound) if chunk_tok else bound
        self._costs = optics.PassCosts(stack, spec=spec, weight_bits=serving.optical_weight_bits)

    def steps(self, load: Load) -> _core.Alone:
        """Return the times of passes at the sizes that matter for a traffic."""
        ends = min(OPTICAL_SEQS, self.chunk_tok)
        # Prompts of one pass end together; the bound on them bounds the pass as well.
        tokens = _sizes(max(round(min(self.chunk_tok, ends * load.mean_uncached_tok)), 2))
        prompts = np.round(np.maximum(tokens / load.mean_uncached_tok, 1.0))
        linear_s = self._costs.linear_s(tokens) + self._costs.head_s(np.minimum(prompts, ends))
        return _core.Alone.of_passes(
            tokens=tokens, linear_s=linear_s, pair_s=self._costs.pair_s, moments=load.moments
        )

    def linear_j(self, tokens: int) -> float:
        """Return the energy of the linear layers for so many tokens."""
        return float(self._costs.linear_j(np.array([float(tokens)]))[0])

    def pair_j(self, tokens: int) -> float:
        """Return the attention energy of a query-key pair, whatever the prompt."""
        del tokens
        return self._costs.pair_j

    def head_j(self) -> float:
        """Return the energy of the output head for one token."""
        return float(self._costs.head_j(np.ones(1))[0])

    def decode_j(self, seqs: int, context_tok: float) -> float:
        """Return nothing: light does not decode."""
        del seqs, context_tok
        return 0.0


@lru_cache(maxsize=256)
def _sizes(most_tok: int) -> F64:
    """Return sizes from 1 to `most_tok` in equal ratios, whole numbers."""
    sizes: F64 = np.unique(np.round(np.geomspace(1.0, float(most_tok), BATCHES)))
    return sizes
