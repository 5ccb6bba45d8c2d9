"""Claims as one JSON document; infinities and missing numbers are null."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from firstlight.claims.check import Report

SCHEMA = 1


def document(report: Report) -> dict[str, Any]:
    """Return a report as plain tables and lists.

    Args:
        report: The claims on one scenario.
    """
    from firstlight import _core

    claims = [
        {
            **msgspec.to_builtins(checked.claim),
            "verdict": checked.verdict,
            "here_verdict": dataclasses.asdict(checked.here),
            "favourable_verdict": dataclasses.asdict(checked.favourable),
            "holds_when": [dataclasses.asdict(when) for when in checked.holds_when],
            "loads": checked.loads,
            "is_load_of_best": checked.is_load_of_best,
        }
        for checked in report.claims
    ]
    body = {
        "schema": SCHEMA,
        "firstlight": _core.__version__,
        "scenario": report.scenario,
        "scenario_hash": report.scenario_hash,
        "claims": claims,
        "gains": dataclasses.asdict(report.gains) if report.gains is not None else None,
        "baselines": [
            {"name": name, "status": status, "ratio": ratio}
            for name, status, ratio in report.baselines
        ],
        "electricity": [
            {"device": device, "tier": tier, "share_frac": share}
            for device, tier, share in report.electricity
        ],
        "attention": [
            {"prompt_tok": prompt, "bound": bound, "bound_by_time": tighter}
            for prompt, bound, tighter in report.attention
        ],
        "demand": dataclasses.asdict(report.demand),
        "notes": list(report.notes),
    }
    plain: dict[str, Any] = _finite(body)
    return plain


def _finite(value: Any) -> Any:  # noqa: ANN401  # whatever JSON holds
    """Return a value with numbers JSON cannot hold as null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
