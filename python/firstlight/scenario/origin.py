"""Says where the value of a scenario's field comes from."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from firstlight import catalog
from firstlight.errors import ScenarioError, nearest
from firstlight.scenario import overrides
from firstlight.scenario.defaults import DEFAULTS

if TYPE_CHECKING:
    from firstlight.scenario.record import Scenario

_TRACE = "workload.trace"
_OF_THE_TRACE = ("workload.context_tok", "workload.output_tok")


def provenance(scenario: Scenario, path: str) -> catalog.Fact:
    """Return the fact behind a field; see `Scenario.provenance`."""
    if path.startswith("assumptions."):
        return scenario.assumption(path.removeprefix("assumptions.")).fact
    value, field = _value(scenario, path)
    fact = catalog.assumption(DEFAULTS[field])
    if path in scenario.uncertain:
        ends = overrides.span(scenario.uncertain[path], fact.unit)
        return dataclasses.replace(_given(value, fact), range=ends)
    if field in _OF_THE_TRACE and value is None and _value(scenario, _TRACE)[0] != _default_trace():
        return dataclasses.replace(
            fact, value="as the workload has it", unit="text", status=catalog.Status.ASSUMED,
            source="the workload of the scenario", range=None, note="",
        )  # fmt: skip
    if value is None or value == {}:
        return fact
    if field == "design" or (field.startswith("design.") and value != fact.value):
        shipped = value == _shipped(path)
        return dataclasses.replace(fact, value=_scalar(value)) if shipped else _given(value, fact)
    return fact if value == fact.value else _given(value, fact)


def _given(value: object, fact: catalog.Fact) -> catalog.Fact:
    return catalog.Fact(
        value=_scalar(value), unit=fact.unit, status=catalog.Status.ASSUMED,
        source="given in the scenario", date=fact.date,
        note=f"in place of {fact.value!r} ({fact.status})",
    )  # fmt: skip


def _default_trace() -> catalog.Scalar:
    return catalog.assumption(DEFAULTS[_TRACE]).value


def _shipped(path: str) -> object:
    """Return what the shipped scenario says at the path of a design, or None."""
    from firstlight.scenario.record import Scenario

    shipped = Scenario.default()
    return _of_design(shipped, path)[0] if path in shipped.paths() else None


def _scalar(value: object) -> catalog.Scalar:
    return value if isinstance(value, float | int | bool | str) else str(value)


def _value(scenario: Scenario, path: str) -> tuple[Any, str]:
    """Return a field's value and the key of `DEFAULTS` it falls under."""
    known = list(scenario.paths())
    if path not in known:
        raise ScenarioError(f"unknown field {path!r}{nearest(path, known)}")
    if path.startswith("design."):
        return _of_design(scenario, path)
    value: Any = scenario
    for part in path.split("."):
        value = getattr(value, part)
    return value, path


def _of_design(scenario: Scenario, path: str) -> tuple[Any, str]:
    rest = path.removeprefix("design.")
    design = max(
        (
            item
            for item in scenario.designs
            if rest == item.name or rest.startswith(f"{item.name}.")
        ),
        key=lambda item: len(item.name),
    )
    steps = rest[len(design.name) + 1 :].split(".")
    if steps == [""]:
        return design.name, "design"
    if steps[0] == "policy":
        return getattr(design.policy, steps[1]), f"design.policy.{steps[1]}"
    if steps[0] == "pools":
        value = getattr(design.pools[int(steps[1])], steps[2])
        field = f"design.pools.{steps[2]}"
        return value, field if field in DEFAULTS else "design"
    return design.precision, "design.precision"
