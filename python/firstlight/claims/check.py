"""Each published claim on one scenario: verdict here, on its most favourable reading, and its boundary."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from firstlight.claims import formula, record
from firstlight.claims.case import Case, Gains
from firstlight.claims.compute import TESTS, compute
from firstlight.errors import FirstlightError, ScenarioError
from firstlight.evaluate.analytic.boundary import solve

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from firstlight.claims.record import Claim, Reading
    from firstlight.evaluate.analytic.boundary import Boundary
    from firstlight.scenario import Scenario

WORDS = {
    (True, True): "holds",
    (True, False): "holds here",
    (False, True): "holds on its best reading",
    (False, False): "does not hold",
}
INSIDE = (0.98, 0.95, 0.9)
"""How far inside a boundary an assumption set is put, so that it holds; the first that does."""
NEARBY = tuple(2.0 ** (step / 12) for step in range(1, 13))
"""Where beyond a boundary the verdict is tried again, as factors of it."""
BETWEEN = 6
"""Values between today's and the boundary at which it is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What a number is about; numbers on different scales are never divided by each other.

    Attributes:
        basis: The quantity.
        counts: What is counted, with its boundary.
        unit: Its unit.
    """

    basis: str
    counts: str
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One reading of a claim, computed.

    Attributes:
        value: The number; None when it does not exist here.
        met: Whether the claim is true under this reading.
        scale: What the number is about.
        note: The reading in words.
    """

    value: float | None
    met: bool
    scale: Scale
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldsWhen:
    """One boundary of a claim.

    Attributes:
        name: What is varied, in words.
        field: The field; empty when it is no single field of a scenario.
        unit: Its unit.
        value: Where the claim turns; None when it never does.
        today: Value in the scenario.
        holds: ``below``, ``above``, ``everywhere`` or ``nowhere``.
        distance_ratio: Factor from today to the value; None without a value.
        searched: Range that was searched.
        reading: ``here`` or ``best``: which reading it is the boundary of.
        is_even: Whether the verdict turns there and, nearby or on the way from today, nowhere else.
    """

    name: str
    field: str
    unit: str
    value: float | None
    today: float
    holds: str
    distance_ratio: float | None
    searched: tuple[float, float]
    reading: str = "here"
    is_even: bool = True

    @property
    def is_met(self) -> bool:
        """Whether today's value is on the side where the claim holds."""
        if self.value is None:
            return self.holds == "everywhere"
        return self.today <= self.value if self.holds == "below" else self.today >= self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A claim with its verdicts.

    Attributes:
        claim: The claim.
        here: On the user's scenario.
        favourable: On its most favourable reading.
        holds_when: Boundaries in single fields, all else as in the scenario.
        loads: The nearest assumption set found where it holds, as changes of the scenario: of its own
            reading, else of the most favourable one, where it need not hold as read here; None when
            neither was found.
        verdict: In words.
        is_load_of_best: Whether `loads` is the most favourable reading's.
    """

    claim: Claim
    here: Verdict
    favourable: Verdict
    holds_when: tuple[HoldsWhen, ...]
    loads: dict[str, object] | None
    verdict: str
    is_load_of_best: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All claims on one scenario.

    Attributes:
        scenario: Its name.
        scenario_hash: Its id.
        claims: The claims in order.
        gains: Optical against GPU designs; None when one does not work.
        baselines: (baseline, status, ratio of the 100 TOPS/W target over it).
        electricity: (device, tier, share of electricity in its cost).
        attention: (prompt [tok], bound, bound with measured rates) for Llama-3.1-8B.
        demand: What the demand figures imply.
        notes: What must be said beside the table.
    """

    scenario: str
    scenario_hash: str
    claims: tuple[Checked, ...]
    gains: Gains | None
    baselines: tuple[tuple[str, str, float], ...]
    electricity: tuple[tuple[str, str, float], ...]
    attention: tuple[tuple[int, float, float], ...]
    demand: formula.Demand
    notes: tuple[str, ...]

    def claim(self, identifier: str) -> Checked:
        """Return one claim.

        Raises:
            ScenarioError: It was not checked.
        """
        for checked in self.claims:
            if checked.claim.id == identifier:
                return checked
        raise ScenarioError(f"claim {identifier!r} was not checked")


def over(one: Verdict, other: Verdict) -> float:
    """Return a value over another on the same scale.

    Raises:
        ScenarioError: The scales differ, or a value does not exist.
    """
    if one.scale != other.scale:
        raise ScenarioError(
            f"{one.scale.counts!r} and {other.scale.counts!r} are on different bases; a ratio of "
            "them has no meaning"
        )
    if one.value is None or other.value is None:
        raise ScenarioError(f"no value for {one.scale.counts!r}")
    return one.value / other.value


def check(scenario: Scenario, *, ids: Sequence[str] | None = None) -> Report:
    """Return the verdict on each published claim for a scenario.

    Args:
        scenario: The user's question.
        ids: Claims to check; all when None.

    Raises:
        CatalogError: A claim is unknown.
        FirstlightError: The scenario is impossible.

    Example:
        >>> import firstlight as fl
        >>> report = fl.claims.check(fl.Scenario.default(), ids=["eops-10kw"])
        >>> report.claims[0].verdict
        'holds on its best reading'
    """
    chosen = record.claims() if ids is None else tuple(record.get(name) for name in ids)
    case = Case(scenario)
    gains = case.gains({})
    return Report(
        scenario=scenario.name,
        scenario_hash=scenario.hash(),
        claims=tuple(_checked(claim, case, gains) for claim in chosen),
        gains=gains,
        baselines=tuple((one.name, one.status, 1e14 / one.op_per_j) for one in formula.baselines()),
        electricity=tuple(
            (device, tier, formula.electricity_share(device, tier=tier, usd_per_kwh=_price(case)))
            for device in ("h100-sxm", "b200", "gb200-nvl72", "mi355x")
            for tier in formula.TIERS
        ),
        attention=tuple(_attention(prompt) for prompt in (4096, 32768, 131072)),
        demand=formula.demand(),
        notes=_notes(case, gains),
    )


def _price(case: Case) -> float:
    return case.scenario.facility.electricity_usd_per_kwh


def _attention(prompt_tok: int) -> tuple[int, float, float]:
    from firstlight import models

    shape = models.load("llama-3.1-8b")
    return (
        prompt_tok,
        formula.attention_bound(shape, prompt_tok=prompt_tok),
        formula.attention_bound(
            shape,
            prompt_tok=prompt_tok,
            linear_flop_per_s=formula.H100_LINEAR_FLOP_PER_S,
            attention_flop_per_s=formula.H100_ATTENTION_FLOP_PER_S,
        ),
    )


def _checked(claim: Claim, case: Case, gains: Gains | None) -> Checked:
    here = _verdict(claim, claim.here, case)
    favourable = _verdict(claim, claim.favourable, case)
    when = (*_boundaries(claim, claim.here, case), *_ratios(claim, gains))
    if favourable.met and not here.met and not any(one.value is not None for one in when):
        when += _boundaries(claim, claim.favourable, case)
    testable = case.light is not None or here.value is not None or favourable.value is not None
    word = WORDS[here.met, favourable.met] if testable else "not testable here"
    loads = _loads(claim, case, here=here, when=when)
    is_of_best = loads is None and favourable.met
    return Checked(
        claim=claim,
        here=here,
        favourable=favourable,
        holds_when=when,
        loads=case.reading(claim.favourable) if is_of_best else loads,
        verdict=word,
        is_load_of_best=is_of_best,
    )


def _value(
    claim: Claim, reading: Reading, case: Case, extra: Mapping[str, object] | None = None
) -> float:
    changes: dict[str, object] = {**reading.changes, **(extra or {})}
    return compute(claim.test, case, changes, scope=reading.scope, server=reading.engine)


def _verdict(claim: Claim, reading: Reading, case: Case) -> Verdict:
    value = _value(claim, reading, case)
    exists = not math.isnan(value)
    return Verdict(
        value=value if exists else None,
        met=exists and claim.met(value),
        scale=Scale(
            basis=claim.basis, counts=TESTS[claim.test].scopes[reading.scope], unit=claim.unit
        ),
        note=reading.note,
    )


def _boundaries(claim: Claim, reading: Reading, case: Case) -> tuple[HoldsWhen, ...]:
    """Return where one reading of a claim begins or ceases to hold, field by field."""
    is_here = reading is claim.here
    try:
        point = case.point if is_here else case.point.other(case.reading(reading))
    except FirstlightError:
        return ()

    def holds(changes: dict[str, float]) -> bool:
        value = _value(claim, reading, case, changes)
        return not math.isnan(value) and claim.met(value)

    found = []
    for search in claim.solve:
        try:
            turn = solve(point, field=search.field, holds=holds)
        except FirstlightError:
            # The scenario has no such field, as when it has no optical pool.
            continue
        when = HoldsWhen(
            name=search.name, field=search.field, unit=search.unit, value=turn.value,
            today=turn.today, holds=turn.holds, distance_ratio=turn.distance_ratio,
            searched=(turn.low, turn.high), reading="here" if is_here else "best",
            is_even=_is_even(turn, holds),
        )  # fmt: skip
        found.append(when)
    return tuple(found)


def _is_even(turn: Boundary, holds: Callable[[dict[str, float]], bool]) -> bool:
    """Return whether a verdict turns at a boundary only, as far as twice or half of it and today."""
    edge, now = turn.value, turn.today
    if edge is None or edge <= 0 or now <= 0:
        return True
    is_below = turn.holds == "below"
    met = [edge / far if is_below else edge * far for far in NEARBY]
    steps = [edge * (now / edge) ** (step / BETWEEN) for step in range(1, BETWEEN)]
    # Today's value may lie on either side.
    tried = [(value, True) for value in met]
    tried += [(value, (value < edge) == is_below) for value in steps]

    def agrees(value: float, *, expected: bool) -> bool:
        try:
            return holds({turn.field: value}) is expected
        except FirstlightError:
            return True  # impossible values lie outside the question

    return all(
        agrees(value, expected=expected)
        for value, expected in tried
        if turn.low <= value <= turn.high
    )


def _ratios(claim: Claim, gains: Gains | None) -> tuple[HoldsWhen, ...]:
    """Return the traffic an energy claim needs, by Amdahl's law on this scenario's joules."""
    if gains is None:
        return ()
    if claim.test == "prefill-share":
        return (_ratio_row("decode unchanged", gains.rho, gains),)
    goals = {"inference-gain": claim.target, "power-cut": 1.0 / (1.0 - min(claim.target, 0.999))}
    if claim.test not in goals:
        return ()
    goal = goals[claim.test]
    gain = max(gains.prefill, 1e-9)
    return (
        _ratio_row(
            "prefill gain as here",
            formula.ratio_needed(goal, rho=gains.rho, prefill_gain=gain),
            gains,
        ),
        _ratio_row("prefill free", formula.ratio_needed(goal, rho=gains.rho), gains),
    )


def _ratio_row(condition: str, needed: float, gains: Gains) -> HoldsWhen:
    is_possible = math.isfinite(needed)
    return HoldsWhen(
        name=f"uncached input per output token, {condition}",
        field="",
        unit="1",
        value=needed if is_possible else None,
        today=gains.ratio,
        holds="above" if is_possible else "nowhere",
        distance_ratio=max(needed / gains.ratio, gains.ratio / needed) if is_possible else None,
        searched=(0.0, math.inf),
    )


def _loads(
    claim: Claim, case: Case, *, here: Verdict, when: tuple[HoldsWhen, ...]
) -> dict[str, object] | None:
    """Return the nearest changes of the scenario under which the claim holds as it is read here."""
    if here.met:
        return {}
    near = sorted(
        (
            one
            for one in when
            if one.field and one.value is not None and one.distance_ratio is not None
        ),
        key=lambda one: one.distance_ratio or math.inf,
    )
    for one in near:
        for value in _inside(one):
            changes: dict[str, object] = {one.field: value}
            try:
                case.scenario.replace(**changes)  # a count must be whole
                if claim.met(_value(claim, claim.here, case, changes)):
                    return changes
            except FirstlightError:
                continue
    return None


def _inside(when: HoldsWhen) -> tuple[float | int, ...]:
    """Return values inside a boundary, near ones first: as they are, and whole ones."""
    edge = when.value or 0.0
    found: list[float | int] = []
    for part in INSIDE:
        value = edge * part if when.holds == "below" else edge / part
        found += [value, math.floor(value) if when.holds == "below" else math.ceil(value)]
    return tuple(found)


def _notes(case: Case, gains: Gains | None) -> tuple[str, ...]:
    notes = [
        "Numbers on different bases, boundaries or baselines are never divided by each other.",
        _split_note(),
        "Undisclosed: reload time, clock, engines a server, server power, price. They are assumed.",
        "Computed by the fast tier; `firstlight compare` simulates.",
    ]
    if gains is None:
        notes.append(
            "Optical and GPU designs cannot be compared here: "
            + "; ".join(
                f"{name}: {one.reason}" for name, one in case.estimates({}).items() if one.reason
            )
        )
    return tuple(notes)


def _split_note() -> str:
    bound = formula.free_prefill_bound(formula.MEASURED_PREFILL_SHARE)
    return (
        "The one public split of a whole system's GPU energy is 44 % prefill and 56 % decode "
        f"(InferenceX PR #2934): free prefill would save at most {bound:.2f}× there."
    )
