"""The seam between a model and whatever computes its linear layers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from firstlight.runners.weights import FloatArray


class Linear(Protocol):
    """One linear layer, ready to run."""

    def __call__(self, x: FloatArray, *, first_tok: int = 0) -> FloatArray:
        """Return the outputs, (tokens, outputs), of inputs, (tokens, inputs).

        ``first_tok`` is the position of the first token; the noise of a token depends on it and not
        on how the tokens were cut into calls.
        """
        ...


@dataclass(slots=True, kw_only=True)
class Tally:
    """What a linear layer did, summed over its calls.

    Attributes:
        tokens: Tokens it computed.
        macs: Multiply-accumulates in light.
        readings: Detector readings, each one conversion.
        clipped: Readings at or beyond full scale.
        signal: Σ of squared sums, in the reading's unit.
        error: Σ of squared differences between reading and sum.
        digital_ops: Additions and multiplications around the light: rotation, scales, accumulation.
        energy_j: Joules by part, where the engine knows them [J].
        cycles: Optical cycles, where the engine counts them.
    """

    tokens: int = 0
    macs: int = 0
    readings: int = 0
    clipped: int = 0
    signal: float = 0.0
    error: float = 0.0
    digital_ops: int = 0
    energy_j: dict[str, float] = field(default_factory=dict)
    cycles: int = 0

    @property
    def clipped_frac(self) -> float:
        """Share of readings that were clipped."""
        return self.clipped / self.readings if self.readings else 0.0

    def add(self, other: Tally) -> None:
        """Add what another layer, or another call, did."""
        self.tokens += other.tokens
        self.macs += other.macs
        self.readings += other.readings
        self.clipped += other.clipped
        self.signal += other.signal
        self.error += other.error
        self.digital_ops += other.digital_ops
        self.cycles += other.cycles
        for part, energy in other.energy_j.items():
            self.energy_j[part] = self.energy_j.get(part, 0.0) + energy


class PreparedLinear(Linear, Protocol):
    """A linear layer that was prepared and counts what it does.

    Attributes:
        name: The layer.
        tally: What it did so far.
    """

    name: str
    tally: Tally
