"""The answer as one JSON document: every field present, no number that JSON cannot hold."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from firstlight.evaluate import Comparison

WHY_NULL = {
    "reason": None,  # nothing failed
    "accuracy": "no accuracy of this engine at this precision has been published",
    "band": "only a design whose pool names two ends of undisclosed inputs has a band",
    "retrofit": "the scenario has no installed servers, or the design adds none to them",
    "binding": "found by searching the capacity, and a load was given or nothing was feasible",
    "bursts": "found beside the capacity, and a load was given or the whole fleet was simulated",
    "gpu_equivalents_freed": "needs this design and `gpu-disaggregated`, both feasible",
    "gain_vs_colocated": "the scenario has no feasible design with one GPU pool",
    "gain_vs_disaggregated": "the scenario has no feasible design with two GPU pools",
    "at_equal_load": "a load was given, or no design is feasible",
    "tpot_s": "no request had a second token",
    "itl_s": "no request had a second token",
}
"""Why a field may be null, by the last word of its path; None where null says: nothing to tell."""

_GIVEN_AS_TABLE = "provenance"
"""Here null means that the source is a table of numbers, not one."""


def document(comparison: Comparison) -> dict[str, Any]:
    """Return an answer as tables, lists, words and numbers, ready for JSON.

    A number that is infinite or undefined becomes null. Each null has its reason in `warnings`.

    Args:
        comparison: The answer.
    """
    plain: dict[str, Any] = comparison.to_dict()
    notes = [f"{path}: {what}; null stands for it" for path, what in _unwritable(plain)]
    done: dict[str, Any] = _finite(plain)
    infeasible = {design["name"] for design in done["designs"] if design["power_w"] is None}
    reasons: dict[str, list[str]] = {}
    for path, owner in _nulls(done):
        field = path.rpartition(".")[2]
        if owner in infeasible or path.startswith(_GIVEN_AS_TABLE):
            continue
        why = WHY_NULL.get(field, "not defined here")
        if why is not None and not any(note.startswith(f"{path}:") for note in notes):
            reasons.setdefault(why, []).append(path)
    notes += [f"{', '.join(paths)}: null, {why}" for why, paths in reasons.items()]
    notes += [f"designs.{name}: every result is null, not feasible" for name in sorted(infeasible)]
    return done | {"warnings": [*done["warnings"], *notes]}


def _finite(value: Any) -> Any:  # noqa: ANN401  # whatever JSON can hold
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _walk(value: object, path: str, owner: str) -> Iterator[tuple[str, str, object]]:
    """Yield (path, design it belongs to, value) of every leaf."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _walk(item, f"{path}.{key}" if path else str(key), owner)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            name = item.get("name") if isinstance(item, dict) else None
            step = name if isinstance(name, str) else str(index)
            yield from _walk(item, f"{path}.{step}", step if path == "designs" else owner)
    else:
        yield path, owner, value


def _unwritable(plain: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for path, _, value in _walk(plain, "", ""):
        if isinstance(value, float) and not math.isfinite(value):
            yield path, "not a number" if math.isnan(value) else "infinite"


def _nulls(done: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for path, owner, value in _walk(done, "", ""):
        if value is None:
            yield path, owner
