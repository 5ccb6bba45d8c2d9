"""The narrow protocol between the explorer and the calculation, and the real calculation behind it."""

from __future__ import annotations

from dataclasses import replace
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
from firstlight.tui.closed_form import LABELS, in_order
from firstlight.tui.metric import METRICS, PARTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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

    def work(self) -> bool:
        """Do something else that is short, for one who only waits.

        Returns:
            Whether there was anything to do.
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


@runtime_checkable
class CanWarmUp(Protocol):
    """A solver that can do ahead what the next questions are likely to need."""

    def warm(self, setup: Setup) -> Iterator[None]:
        """Do one short piece of work a step."""
        ...


@runtime_checkable
class HasMore(Protocol):
    """A solver that holds something to let go at the end."""

    def close(self) -> None:
        """Let it go."""
        ...


class RealSolver:
    """The calculation of this package: closed form, one cell's minute, and the whole comparison."""

    tiers = frozenset(Tier)
    KEPT = 16

    def __init__(self) -> None:
        self._full: dict[Setup, Answer] = {}

    def analytic(self, setup: Setup) -> Answer:
        """Return the closed-form answer.

        Args:
            setup: Plain numbers only.

        Raises:
            FirstlightError: The scenario is impossible.
        """
        from firstlight.tui import closed_form

        return closed_form.answer(setup)

    def simulate(self, setup: Setup, *, fidelity: Tier, cancel: Cancel) -> Answer:
        """Return the simulated answer.

        Args:
            setup: Plain numbers only.
            fidelity: COARSE: the closed form's cells for a minute or two; FULL: search and hour.
            cancel: Polled while simulating.

        Raises:
            FirstlightError: The scenario is impossible.
            Cancelled: A newer question arrived.
        """
        try:
            if fidelity is Tier.COARSE:
                return self._coarse(setup, cancel)
            # Another tab or an undo asks again what took seconds.
            if setup not in self._full:
                self._full[setup] = self.whole(setup, cancel)
                while len(self._full) > self.KEPT:
                    self._full.pop(next(iter(self._full)))
            return self._full[setup]
        except KeyboardInterrupt:
            if cancel.is_set:
                raise Cancelled from None
            raise

    def whole(self, setup: Setup, cancel: Cancel) -> Answer:
        """Return the whole comparison.

        Args:
            setup: Plain numbers only.
            cancel: Polled while simulating.

        Raises:
            FirstlightError: The scenario is impossible.
            KeyboardInterrupt: It was cancelled.
        """
        return _full(setup, cancel)

    def close(self) -> None:
        """Let go of what was held for later answers."""
        self._full.clear()

    def _coarse(self, setup: Setup, cancel: Cancel) -> Answer:
        from firstlight.tui import coarse

        quick = self.analytic(setup)
        records = coarse.designs(setup, cancel=cancel)
        designs = tuple(
            replace(
                design_of(records[one.name], {}),
                status=_spread(one.status, records[one.name]),
                band=one.band,
                gpu_equivalents_freed=one.gpu_equivalents_freed,
            )
            if one.name in records
            else one
            for one in quick.designs
        )
        return replace(quick, tier=Tier.COARSE, designs=designs)

    def warm(self, setup: Setup) -> Iterator[None]:
        """Draw the arrivals that the coarse tier may need next.

        Args:
            setup: Plain numbers only.
        """
        from firstlight.tui import coarse

        return coarse.warm(setup)

    def timeline(self, setup: Setup, *, design: str, cancel: Cancel) -> Timeline:
        """Return a few seconds of one design's cell at its capacity.

        Args:
            setup: Plain numbers only.
            design: Name of the design.
            cancel: Polled while simulating.

        Raises:
            FirstlightError: The design carries nothing.
            Cancelled: A newer question arrived.
        """
        from firstlight.tui import traced

        return traced.timeline(setup, design=design, cancel=cancel)

    def claims(self, setup: Setup, *, cancel: Cancel) -> tuple[Verdict, ...]:
        """Return each published claim's verdict.

        Args:
            setup: Plain numbers only.
            cancel: Polled between claims.

        Raises:
            FirstlightError: The scenario is impossible.
            Cancelled: A newer question arrived.
        """
        from firstlight.tui import judged

        return judged.verdicts(setup, cancel=cancel)


def _spread(status: Mapping[str, str], d: Design) -> dict[str, str]:
    """Return the provenance of the closed form for every number of a record: the inputs are one."""
    weakest = next(iter(status.values()), "")
    return dict.fromkeys(design_of(d, {}).metrics, weakest)


def _full(setup: Setup, cancel: Cancel) -> Answer:
    from firstlight.evaluate import compare
    from firstlight.tui.scenario_file import scenario_of

    found = compare(
        scenario_of(setup),
        ratios=False,
        progress=cancel.note,
        cancelled=lambda: cancel.is_set,
    )
    return answer_of(found, tier=Tier.FULL)


def default_solver() -> Solver:
    """Return the real calculation."""
    return RealSolver()


def answer_of(found: Comparison, *, tier: Tier) -> Answer:
    """Return a comparison as the screen takes it.

    Args:
        found: What `evaluate` returned.
        tier: How it was found.
    """
    by_name = {d.name: d for d in found.designs}
    status = {p.path: p.status for p in found.provenance}
    return Answer(
        tier=tier,
        designs=tuple(design_of(by_name[name], status) for name in in_order(by_name)),
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


def design_of(d: Design, status: Mapping[str, str]) -> DesignAnswer:
    """Return a design's record as the screen takes it.

    Args:
        d: The record.
        status: Provenance by path of the comparison; what has none of its own is as weak as the
            weakest input of the design, as all that is computed from them.
    """
    paths = [m.at(scope) for m in METRICS for scope in ("inference", "prefill", "linear_only")]
    metrics = {path: _at(d, path) for path in paths}
    weakest = status.get(f"designs.{d.name}.goodput_request_per_s", "")
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
        label=LABELS.get(d.name, d.name),
        is_feasible=d.feasible,
        reason=d.reason or "",
        metrics=metrics,
        status={path: status.get(f"designs.{d.name}.{path}", weakest) for path in metrics},
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
