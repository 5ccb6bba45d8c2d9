"""The narrow protocol between the explorer and the calculation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from firstlight.tui.answer import Answer, Tier, Timeline, Verdict
    from firstlight.tui.state import Setup


class Cancelled(Exception):  # noqa: N818  # not an error: a newer question arrived
    """The question is stale; nobody waits for its answer."""


class Cancel(Protocol):
    """What a long calculation polls."""

    @property
    def is_set(self) -> bool:
        """Whether a newer question has arrived."""
        ...


class Solver(Protocol):
    """What the explorer needs of the calculation.

    Every method raises `firstlight.errors.FirstlightError` for what cannot be; the explorer then
    shows the message and keeps the last good numbers, greyed. Numbers must depend on the setup
    alone (common random numbers), or sliders would look noisy and differences would lie.
    """

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
