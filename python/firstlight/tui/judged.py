"""Published claims as the explorer lists them, with settings of its controls where they hold."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from firstlight import claims
from firstlight.claims import write
from firstlight.errors import ScenarioError
from firstlight.tui.answer import Verdict
from firstlight.tui.field import BY_KEY, ENGINE_KEYS, FIELDS
from firstlight.tui.scenario_file import engine_values, scenario_of
from firstlight.tui.solver import Cancelled

if TYPE_CHECKING:
    from firstlight.claims import Checked, Claim
    from firstlight.scenario import Scenario
    from firstlight.tui.number import Value
    from firstlight.tui.solver import Cancel
    from firstlight.tui.state import Setup

_STATES = {
    "holds": "holds", "holds here": "holds", "holds on its best reading": "partly",
    "does not hold": "fails", "not testable here": "unknown",
}  # fmt: skip


def verdicts(setup: Setup, *, cancel: Cancel) -> tuple[Verdict, ...]:
    """Return the verdict on every published claim in a setup's scenario.

    Args:
        setup: Plain numbers only.
        cancel: Polled between claims.

    Raises:
        FirstlightError: The scenario is impossible.
        Cancelled: A newer question arrived.
    """
    scenario = scenario_of(setup)
    found = []
    for claim in claims.claims():
        if cancel.is_set:
            raise Cancelled
        found.append(_verdict(_checked(scenario, claim.id), setup))
    return tuple(found)


@lru_cache(maxsize=128)
def _checked(scenario: Scenario, claim_id: str) -> Checked:
    return claims.check(scenario, ids=[claim_id]).claims[0]


def _verdict(checked: Checked, setup: Setup) -> Verdict:
    claim, here = checked.claim, checked.here
    value = "no number exists here"
    if here.value is not None:
        value = f"{write.amount(here.value, here.scale.unit)}; claimed {_goal(claim)}"
    best = checked.favourable
    holds_when = ""
    near = min(
        (one for one in checked.holds_when if one.value is not None and not one.is_met),
        key=lambda one: one.distance_ratio or float("inf"),
        default=None,
    )
    if near is not None and not here.met:
        holds_when = write.when_words(near)
    elif best.met and not here.met:
        holds_when = f"read as: {best.note}"
    return Verdict(
        claim=claim.sentence,
        state=_STATES[checked.verdict],
        here=value,
        basis=f"{here.scale.counts}; {_boundary(claim)}; against {claim.baseline}",
        holds_when=holds_when,
        settings=settings(checked.loads or {}, setup),
        source=f"{claim.said_by}, {claim.said_on}; {claim.source}",
    )


def _boundary(claim: Claim) -> str:
    return "boundary not stated" if claim.boundary == "?" else f"{claim.boundary} boundary"


def _goal(claim: Claim) -> str:
    return f"{claim.sign} {write.amount(claim.target, claim.unit)}"


def settings(changes: dict[str, object], setup: Setup) -> tuple[tuple[str, float | str], ...]:
    """Return changes of a scenario as settings of the controls, empty where one has no control.

    Args:
        changes: As `Scenario.replace` takes them.
        setup: What the controls say now.
    """
    found: dict[str, float | str] = {}
    for path, value in changes.items():
        if path.endswith(".band") and value is None:
            continue  # follows from the server
        if path.endswith(".server") and isinstance(value, str):
            found["optical_server"] = value
            # Another server brings its own figures, as when it is chosen by hand.
            found |= {k: v for k, v in engine_values(value).items() if isinstance(v, (int, float))}
            continue
        key = _KEYS.get(path.rpartition(".")[2])
        if key is None or not isinstance(value, (int, float, str)):
            return ()
        found[key] = value if isinstance(value, str) else float(value)
    try:
        checked: dict[str, Value] = {key: BY_KEY[key].checked(v) for key, v in found.items()}
        setup.with_values(checked)
    except ScenarioError:
        return ()  # beyond what the controls can say
    return tuple(
        (key, value)
        for key, value in found.items()
        if key not in ENGINE_KEYS or setup[key] != value
    )


_KEYS = {f.path.rpartition(".")[2]: f.key for f in FIELDS if f.path}
