"""The narrow protocol between the explorer and the calculation, and the real calculation behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from firstlight.tui.answer import (
    Answer,
    Citation,
    DesignAnswer,
    Marginal,
    Tier,
    Timeline,
    Verdict,
)
from firstlight.tui.metric import COLOCATED, DISAGGREGATED, METRICS, OPTICAL, PARTS

if TYPE_CHECKING:
    from firstlight.evaluate import Comparison, Design
    from firstlight.tui.state import Setup


class Cancelled(Exception):  # noqa: N818  # not an error: a newer question arrived
    """The question is stale; nobody waits for its answer."""


class Cancel(Protocol):
    """What a long calculation polls, and tells how far it is."""

    @property
    def is_set(self) -> bool:
        """Whether a newer question has arrived."""
        ...

    def note(self, done: int, total: int, what: str) -> None:
        """Tell how far it is.

        Args:
            done: Pieces of work that are done.
            total: All pieces.
            what: The piece that was done last.
        """
        ...


class Solver(Protocol):
    """What the explorer needs of the calculation.

    Every method raises `firstlight.errors.FirstlightError` for what cannot be; the explorer then
    shows the message and keeps the last good numbers, greyed. Numbers must depend on the setup
    alone (common random numbers), or sliders would look noisy and differences would lie.

    Attributes:
        tiers: How it can answer. Curves, map, tornado and break-even need ANALYTIC.
    """

    tiers: frozenset[Tier]

    def analytic(self, setup: Setup) -> Answer:
        """Return the closed-form answer in about a millisecond.

        Args:
            setup: Plain numbers only; the engine has taken ranges apart.
        """
        ...

    def simulate(self, setup: Setup, *, fidelity: Tier, cancel: Cancel) -> Answer:
        """Return the simulated answer, coarse in about 20 ms or full.

        Args:
            setup: Plain numbers only.
            fidelity: COARSE or FULL.
            cancel: Polled while simulating.

        Raises:
            Cancelled: A newer question arrived.
        """
        ...


@runtime_checkable
class HasTimeline(Protocol):
    """A solver that can show what the devices did."""

    def timeline(self, setup: Setup, *, design: str, cancel: Cancel) -> Timeline:
        """Return a window of one design's simulated run."""
        ...


@runtime_checkable
class HasClaims(Protocol):
    """A solver that judges published claims."""

    def claims(self, setup: Setup, *, cancel: Cancel) -> tuple[Verdict, ...]:
        """Return each claim's verdict in this scenario."""
        ...


class CompareSolver:
    """`firstlight.evaluate.compare` as a solver: the whole simulation, and nothing faster."""

    tiers = frozenset({Tier.FULL})

    def analytic(self, setup: Setup) -> Answer:
        """Raise, for there is no closed form; the engine asks only for `tiers`."""
        del setup
        raise Cancelled

    def simulate(self, setup: Setup, *, fidelity: Tier, cancel: Cancel) -> Answer:
        """Return the comparison of the setup's scenario.

        Raises:
            Cancelled: A newer question arrived.
        """
        from firstlight.evaluate import compare
        from firstlight.tui.scenario_file import scenario_of

        del fidelity
        try:
            found = compare(
                scenario_of(setup), progress=cancel.note, cancelled=lambda: cancel.is_set
            )
        except KeyboardInterrupt:
            if cancel.is_set:
                raise Cancelled from None
            raise
        return answer_of(found, tier=Tier.FULL)


def default_solver() -> Solver:
    """Return the real calculation."""
    return CompareSolver()


_LABELS = {COLOCATED: "co-located", DISAGGREGATED: "disaggregated", OPTICAL: "optical+GPU"}


def answer_of(found: Comparison, *, tier: Tier) -> Answer:
    """Return a comparison as the screen takes it.

    Args:
        found: What `evaluate` returned.
        tier: How it was found.
    """
    order = {name: i for i, name in enumerate(_LABELS)}
    designs = sorted(found.designs, key=lambda d: order.get(d.name, len(order)))
    # The screen takes the optical design to be the last one.
    designs.sort(key=lambda d: d.name == OPTICAL)
    return Answer(
        tier=tier,
        designs=tuple(_design(d, str(found.status)) for d in designs),
        citations=tuple(
            Citation(
                path=p.path,
                value=float(p.value) if isinstance(p.value, (int, float)) else None,
                unit=p.unit,
                status=p.status,
                source=p.source,
                date=p.date,
            )
            for p in found.provenance
        ),
        warnings=(found.answer, *found.warnings),
    )


def _design(d: Design, status: str) -> DesignAnswer:
    paths = [m.at(scope) for m in METRICS for scope in ("inference", "prefill", "linear_only")]
    metrics = {path: _at(d, path) for path in paths}
    bound = d.binding
    binding: tuple[Marginal, ...] = ()
    if bound is not None:
        others = {tuple(name.split(" @ ")): gain for name, gain in bound.others.items()}
        rest = [
            Marginal(resource=names[0], pool=names[-1], gain=gain)
            for names, gain in sorted(others.items(), key=lambda item: -item[1])
            if names != (bound.resource, bound.pool)
        ]
        first = Marginal(resource=bound.resource, pool=bound.pool, gain=bound.marginal)
        binding = (first, *rest)
    parts = d.energy_j_per_request_by_part
    return DesignAnswer(
        name=d.name,
        label=_LABELS.get(d.name, d.name),
        is_feasible=d.feasible,
        reason=d.reason or "",
        metrics=metrics,
        status=dict.fromkeys(metrics, status),
        energy_j_by_part={key: getattr(parts, key) for key, _, _ in PARTS} if parts else {},
        band=_band(d),
        binding=binding,
        gpu_equivalents_freed=d.gpu_equivalents_freed,
    )


def _at(d: Design, path: str) -> float | None:
    """Return the number at a dotted path of a design, None where it has none."""
    found: object = d
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else getattr(found, name, None)
        if found is None:
            return None
    return float(found) if isinstance(found, (int, float)) else None


def _band(d: Design) -> dict[str, tuple[float, float]]:
    """Return both ends of what undisclosed inputs allow, where both are possible."""
    if d.band is None:
        return {}
    ends = {}
    for path in ("goodput_request_per_s", "energy_j_per_request"):
        values = [_end(d.band.conservative, path), _end(d.band.optimistic, path)]
        known = [v for v in values if v is not None]
        if len(known) == 2:
            ends[path] = (min(known), max(known))
    return ends


def _end(end: object, path: str) -> float | None:
    value = getattr(end, path)
    return float(value) if getattr(end, "feasible", False) and value is not None else None
