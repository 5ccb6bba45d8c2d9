"""What a solver answers. Names and units are those of ``firstlight compare --json``."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Tier(IntEnum):
    """How an answer was found; only FULL is shown without ``≈``."""

    ANALYTIC = 0
    COARSE = 1
    FULL = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """Where one number comes from.

    Attributes:
        path: What it is, such as ``designs.optical+gpu.energy_j_per_request``.
        value: The number in SI units, or None.
        unit: Its unit.
        status: measured, paper, datasheet, estimate, vendor, assumed.
        source: Title or address.
        date: When it was published or read.
        note: Conditions and boundary.
    """

    path: str
    value: float | None
    unit: str
    status: str
    source: str
    date: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marginal:
    """What a little more of one resource would bring.

    Attributes:
        resource: In words, such as "HBM bandwidth".
        pool: Where, such as "decode".
        gain: d ln goodput / d ln resource, found by re-simulation.
    """

    resource: str
    pool: str
    gain: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignAnswer:
    """One design's numbers.

    Attributes:
        name: Such as ``optical+gpu``.
        label: Short name for the screen.
        is_feasible: Whether it meets the service level at all.
        reason: Why not, or "".
        metrics: Value by metric path (``ttft_s.p50``); absent or None means unknown.
        status: Provenance by metric path.
        energy_j_by_part: Joules per request by part, disjoint, summing to the whole.
        band: (low, high) by metric path where inputs are undisclosed or ranges.
        binding: Marginal gains, the binding resource first.
        gpu_equivalents_freed: GPUs the disaggregated design needs beyond this one.
    """

    name: str
    label: str
    is_feasible: bool = True
    reason: str = ""
    metrics: Mapping[str, float | None]
    status: Mapping[str, str] = field(default_factory=dict)
    energy_j_by_part: Mapping[str, float] = field(default_factory=dict)
    band: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    binding: tuple[Marginal, ...] = ()
    gpu_equivalents_freed: float | None = None

    def value(self, path: str) -> float | None:
        """Return a metric, or None when it is unknown or the design is impossible."""
        return self.metrics.get(path) if self.is_feasible else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Three designs on one scenario.

    Attributes:
        tier: How it was found.
        designs: In a fixed order: co-located, disaggregated, optical.
        citations: Sources of what went in and came out.
        warnings: What the reader must know.
    """

    tier: Tier
    designs: tuple[DesignAnswer, ...]
    citations: tuple[Citation, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Work of one kind on one lane of the timeline.

    Attributes:
        start_s: Begin.
        end_s: End.
        kind: Such as "prefill", "transfer", "reload", "stall".
        request: Request it belongs to, or "".
    """

    start_s: float
    end_s: float
    kind: str
    request: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One device, link or tier over time.

    Attributes:
        name: Such as "OPT0".
        busy_frac: Share of the window it worked.
        spans: Work, in order of time.
        occupancy: Samples 0 to 1 over the window where spans would be too many; else empty.
        kind: Kind of work that the samples are of.
    """

    name: str
    busy_frac: float
    spans: tuple[Span, ...] = ()
    occupancy: tuple[float, ...] = ()
    kind: str = "decode"


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One request from arrival to last token.

    Attributes:
        request: Its name.
        stages: What it waited for and what was done, in order.
    """

    request: str
    stages: tuple[Span, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A window of the simulated run.

    Attributes:
        start_s: Begin of the window.
        end_s: End of the window.
        lanes: Devices, then links, then tiers.
        lives: Requests in the window.
    """

    start_s: float
    end_s: float
    lanes: tuple[Lane, ...]
    lives: tuple[Life, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A published claim, judged in this scenario.

    Attributes:
        claim: The claim in the vendor's words.
        state: holds, partly, fails, unknown.
        here: What comes out here.
        basis: What is compared with what, at which boundary.
        holds_when: In words, the nearest assumptions under which it holds.
        settings: Those assumptions as field key and value.
        source: Where it was published.
    """

    claim: str
    state: str
    here: str
    basis: str
    holds_when: str = ""
    settings: tuple[tuple[str, float | str], ...] = ()
    source: str = ""
