"""The smallest whole unit of a design: a few servers with their replicas, as the scheduler sees it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from firstlight import optics, roofline, schedule
from firstlight.errors import CatalogError, ModelError

if TYPE_CHECKING:
    from firstlight.evaluate.servers import Server
    from firstlight.models import ModelShape
    from firstlight.steps import StepTable

Role = Literal["mixed", "prefill", "decode"]
TENSOR_PARALLEL = (1, 2, 4, 8)
TABLE_TOK = 8192
"""Longest GPU step that is tabled [tok]; vLLM's largest default budget."""
OPTICAL_SEQS = 256
"""Most prompts that end in one optical pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """How the model is held and served, the same for every design unless it says otherwise.

    Attributes:
        shape: The model.
        weights: Number format of the weights on silicon.
        kv: Number format of the KV cache.
        optical_weight_bits: Bits of the weights on the masks.
        stack: Named serving stack whose overheads apply.
        max_seqs: Most sequences in a step.
        block_tok: Tokens in a KV block [tok].
        mem_util_frac: Share of device memory the engine may use.
        watermark_frac: Share of blocks kept free when a request is admitted beside others.
        link_frac: Share of the network cards a KV hand-over attains.
        link_latency_s: Start of a hand-over [s].
        first_token: Who emits the first token after a hand-over.
        local_below_tok: Uncached tokens below which the decode pool computes a prompt itself, where
            disaggregation is conditional [tok].
    """

    shape: ModelShape
    weights: str
    kv: str
    optical_weight_bits: int
    stack: str
    max_seqs: int
    block_tok: int
    mem_util_frac: float
    watermark_frac: float
    link_frac: float
    link_latency_s: float
    first_token: Literal["prefill", "decode"]
    local_below_tok: int = 2048

    @property
    def kv_bits(self) -> int:
        """Bits of a stored key or value."""
        return roofline.KV_BITS[self.kv]

    @property
    def kv_bytes_per_tok(self) -> float:
        """KV cache of one token [byte]."""
        return self.shape.kv_bytes_per_tok(self.kv_bits)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Servers of one kind in one role, inside a cell.

    Attributes:
        server: The server.
        count: How many.
        role: What they do.
        tp: GPUs that share a replica; the engines of an optical server always work together.
        chunk_tok: Most tokens in a step [tok].
        replicas: Replicas of one server.
        table: What a step costs on one replica.
        kv_blocks: KV blocks of one replica.
        max_seqs: Most sequences of one replica.
    """

    server: Server
    count: int
    role: Role
    tp: int
    chunk_tok: int
    replicas: int
    table: StepTable
    kv_blocks: int
    max_seqs: int


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A fleet is a number of these.

    Attributes:
        groups: Its servers by role.
        serving: How the model is served.
        disaggregate: Whether the prefill pool computes every prompt, or the decode pool some
            (Dynamo's rule, `firstlight.schedule.Disaggregation`).
    """

    groups: tuple[Group, ...]
    serving: Serving
    disaggregate: Literal["always", "conditional"] = "always"

    @cached_property
    def servers(self) -> int:
        """Number of servers."""
        return sum(group.count for group in self.groups)

    @cached_property
    def peak_w(self) -> float:
        """Sum of the servers' peak power at their plugs [W]."""
        return sum(group.count * group.server.peak_w for group in self.groups)

    @cached_property
    def fleet(self) -> schedule.Fleet:
        """The cell as the scheduler sees it."""
        serving = self.serving
        decode = next((group for group in self.groups if group.role == "decode"), None)
        tok_ps = 0
        if decode is not None:
            share = decode.server.nic_bytes_per_s / decode.replicas * serving.link_frac
            tok_ps = round(serving.kv_bytes_per_tok / share * 1e12)
        pools = tuple(
            schedule.Pool(
                name=f"{group.role}:{group.server.id}",
                role=group.role,
                replicas=group.count * group.replicas,
                table=group.table,
                token_budget=group.chunk_tok,
                max_seqs=group.max_seqs,
                kv_blocks=group.kv_blocks,
                watermark_blocks=int(group.kv_blocks * serving.watermark_frac),
            )
            for group in self.groups
        )
        return schedule.Fleet(
            pools=pools,
            block_tok=serving.block_tok,
            link_tok_ps=tok_ps,
            link_latency_ps=round(serving.link_latency_s * 1e12),
            first_token=serving.first_token,
            disaggregation=schedule.Disaggregation(
                policy=self.disaggregate, local_below_tok=serving.local_below_tok
            ),
        )


def fitting_tp(server: Server, *, serving: Serving) -> tuple[int, ...]:
    """Return the tensor-parallel degrees at which the model fits the server's GPUs.

    Raises:
        ModelError: It fits at none; the message is that of the largest degree.
    """
    fitting: list[int] = []
    refusal: CatalogError | ModelError | None = None
    for tp in TENSOR_PARALLEL:
        if tp > server.accelerators or server.accelerators % tp:
            continue
        try:
            _blocks(server.device, tp, serving)
            if tp > 1:
                # a device whose link nobody has stated joins no group
                _table(server.device, tp, serving)
        except (CatalogError, ModelError) as error:
            refusal = error
        else:
            fitting.append(tp)
    if not fitting:
        raise refusal or ModelError(f"{server.id}: no tensor-parallel degree divides its GPUs")
    return tuple(fitting)


def room_tok(server: Server, *, tp: int, serving: Serving) -> int:
    """Return the tokens of KV cache that one replica holds [tok].

    Raises:
        ModelError: The model does not fit.
    """
    return _blocks(server.device, tp, serving) * serving.block_tok


def group(
    server: Server, *, role: Role, tp: int, chunk_tok: int, serving: Serving, count: int = 1
) -> Group:
    """Return servers in one role.

    Args:
        server: The server.
        role: What it does; an optical server only prefills.
        tp: GPUs to a replica; ignored by optical servers.
        chunk_tok: Most tokens in a step [tok]; 0 takes the SRAM bound of an optical server.
        serving: How the model is served.
        count: How many servers.

    Raises:
        ModelError: The model does not fit.
    """
    if server.engine is not None:
        return _optical(server, role=role, chunk_tok=chunk_tok, serving=serving, count=count)
    return Group(
        server=server,
        count=count,
        role=role,
        tp=tp,
        chunk_tok=chunk_tok,
        replicas=server.accelerators // tp,
        table=_table(server.device, tp, serving),
        kv_blocks=_blocks(server.device, tp, serving),
        max_seqs=min(serving.max_seqs, chunk_tok),
    )


def _optical(server: Server, *, role: Role, chunk_tok: int, serving: Serving, count: int) -> Group:
    spec = server.engine
    if spec is None or role != "prefill":
        raise ModelError(f"{server.id} can only prefill; it was given the role {role!r}")
    table = _pass_table(spec, serving)
    chunk = min(chunk_tok, table.max_tok) if chunk_tok else table.max_tok
    bits = serving.optical_weight_bits
    weights = serving.shape.weight_bytes(bits)
    room = server.mem_bytes - weights
    blocks = int(room // (serving.kv_bytes_per_tok * serving.block_tok))
    if blocks < 1:
        raise ModelError(
            f"{serving.shape.id} does not fit {server.id}: {weights / 1e9:.1f} GB of {bits}-bit "
            f"weights, {server.mem_bytes / 1e9:.0f} GB of memory"
        )
    return Group(
        server=server,
        count=count,
        role=role,
        tp=1,
        chunk_tok=chunk,
        replicas=1,
        table=table,
        kv_blocks=blocks,
        max_seqs=min(OPTICAL_SEQS, chunk),
    )


@lru_cache(maxsize=24)
def _table(device: str, tp: int, serving: Serving) -> StepTable:
    return roofline.step_table(
        serving.shape,
        device,
        tp=tp,
        weights=serving.weights,
        kv=serving.kv,
        max_tok=TABLE_TOK,
        max_seqs=serving.max_seqs,
        stack=serving.stack,
    )


@lru_cache(maxsize=64)
def _blocks(device: str, tp: int, serving: Serving) -> int:
    return roofline.kv_blocks(
        serving.shape,
        device,
        tp=tp,
        weights=serving.weights,
        kv=serving.kv,
        block_tok=serving.block_tok,
        mem_util_frac=serving.mem_util_frac,
        stack=serving.stack,
    )


@lru_cache(maxsize=24)  # each takes half a megabyte or more
def _pass_table(spec: optics.EngineSpec, serving: Serving) -> StepTable:
    return optics.step_table(
        optics.linear_stack(serving.shape),
        spec=spec,
        weight_bits=serving.optical_weight_bits,
        max_seqs=OPTICAL_SEQS,
        kv_bits=serving.kv_bits,
    )


def faster(table: StepTable, *, part: Literal["matrix", "memory", "all"], by: float) -> StepTable:
    """Return a table whose time is shorter in one respect, to ask what one more per cent would do.

    Args:
        table: The original.
        part: ``memory``: what one token already costs (streaming weights and KV); ``matrix``: what
            further tokens add, and prefill attention; ``all``: everything.
        by: Factor of speed, such as 1.05.
    """
    from dataclasses import replace

    def quicker(column: np.ndarray) -> np.ndarray:
        shorter = np.floor(column / by).astype(np.uint64)
        return np.where(column > 0, np.maximum(shorter, 1), 0).astype(np.uint64)

    if part == "all":
        return replace(
            table,
            linear_ps=quicker(table.linear_ps),
            head_ps=quicker(table.head_ps),
            prefill_attn_pair_fs=quicker(table.prefill_attn_pair_fs),
            decode_attn_floor_ps=quicker(table.decode_attn_floor_ps),
            decode_attn_ctx_ps=quicker(table.decode_attn_ctx_ps),
        )
    first = np.minimum(table.linear_ps, table.linear_ps[1])
    further = table.linear_ps - first
    if part == "memory":
        return replace(
            table,
            linear_ps=quicker(first) + further,
            decode_attn_ctx_ps=quicker(table.decode_attn_ctx_ps),
        )
    return replace(
        table,
        linear_ps=first + quicker(further),
        prefill_attn_pair_fs=quicker(table.prefill_attn_pair_fs),
    )
