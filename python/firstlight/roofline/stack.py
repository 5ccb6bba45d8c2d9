"""Serving software around the kernels: what a step costs beyond them.

A stack's numbers are fitted once, on measured serving rows that are not among those it is judged
by (docs/roofline.md lists both).
"""

from __future__ import annotations

from dataclasses import dataclass

from firstlight.errors import ModelError, nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Overheads of one serving stack.

    Attributes:
        id: Name a caller gives.
        step_s: Time of a step in which no kernel runs [s].
        sequence_s: The same for each emitted token [s].
        kernel_scale: Kernel time over the tabled kernels' time.
        graph_bytes: Memory kept for captured graphs and the runtime, a device [B].
        source: Where the numbers come from.
    """

    id: str
    step_s: float
    sequence_s: float
    kernel_scale: float
    graph_bytes: float
    source: str


STACKS = {
    s.id: s
    for s in (
        Stack(
            id="vllm-2025",
            step_s=0.0005,
            sequence_s=4e-6,
            kernel_scale=1.0,
            graph_bytes=1.0e9,
            source="fitted on ML.ENERGY v3 steady-state rows (vLLM 0.11)",
        ),
        Stack(
            id="splitwise-2023",
            step_s=0.015,
            sequence_s=2.5e-4,
            kernel_scale=1.2,
            graph_bytes=1.0e9,
            source="fitted on the Splitwise characterisation (2023, FP16)",
        ),
    )
}


def stack(name: str) -> Stack:
    """Return the stack called `name`.

    Raises:
        ModelError: No such stack; the message lists those there are.
    """
    found = STACKS.get(name)
    if found is None:
        raise ModelError(
            f"unknown serving stack {name!r}{nearest(name, STACKS)}; allowed: {', '.join(STACKS)}"
        )
    return found
