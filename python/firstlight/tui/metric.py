"""The metrics that are shown: one record feeds title, table, chart, export and help alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from firstlight.tui.answer import Answer, DesignAnswer

SCOPES = (
    ("inference", "whole inference"),
    ("prefill", "whole prefill"),
    ("linear_only", "linear layers only"),
)
"""Scope by key and words; ratios across scopes are never formed."""

PARTS = (
    ("optics", "optics", "o"), ("gpu_prefill", "prefill", "p"), ("attention", "attention", "a"),
    ("gpu_decode", "decode", "d"), ("kv_transfer", "KV", "k"), ("host", "host", "h"),
    ("idle", "idle", "i"), ("cooling", "cooling", "c"),
)  # fmt: skip
"""Energy parts: key, label, letter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One number of an answer.

    Attributes:
        path: Name in the answer; ``{scope}`` stands where scopes differ.
        label: Name on the screen.
        unit: Unit for `number.written`.
        is_more_better: Direction.
        meaning: What is divided by what, for help.
    """

    path: str
    label: str
    unit: str
    is_more_better: bool
    meaning: str

    @property
    def has_scopes(self) -> bool:
        """Whether it is told for three scopes."""
        return "{scope}" in self.path

    def at(self, scope: str) -> str:
        """Return the path for a scope."""
        if scope == "inference" and self.has_scopes:
            return self.path.rsplit(".", 1)[-1]
        return self.path.format(scope=scope)

    def value(self, design: DesignAnswer, scope: str) -> float | None:
        """Return the design's number, None when unknown."""
        return design.value(self.at(scope))

    def best(self, answer: Answer, scope: str) -> int | None:
        """Return the index of the best design, None on a tie or without numbers."""
        found = [
            (value, index)
            for index, design in enumerate(answer.designs)
            if (value := self.value(design, scope)) is not None
        ]
        if not found:
            return None
        pick = max if self.is_more_better else min
        value, index = pick(found)
        return index if sum(v == value for v, _ in found) == 1 else None


METRICS = (
    Metric(
        path="goodput_request_per_s", label="goodput /s", unit="/s", is_more_better=True,
        meaning="Requests per second that meet every service limit, at the same watts.",
    ),
    Metric(
        path="output_tok_per_s", label="tok/s out", unit="/s", is_more_better=True,
        meaning="Generated tokens per second at that load.",
    ),
    Metric(
        path="ttft_s.p50", label="TTFT p50", unit="s", is_more_better=False,
        meaning="Arrival to first token at the client, the median request.",
    ),
    Metric(
        path="ttft_s.p99", label="TTFT p99", unit="s", is_more_better=False,
        meaning="Arrival to first token that 99 of 100 requests stay below.",
    ),
    Metric(
        path="tpot_s.p50", label="TPOT p50", unit="s", is_more_better=False,
        meaning="Time per token after the first, the median request.",
    ),
    Metric(
        path="scopes.{scope}.energy_j_per_request", label="J/request", unit="J",
        is_more_better=False, meaning="Facility joules per request, idle and cooling included.",
    ),
    Metric(
        path="cost_usd_per_mtok_input", label="$/Mtok in", unit="usd", is_more_better=False,
        meaning="Dollars per million offered input tokens: equipment, colocation and energy.",
    ),
    Metric(
        path="cost_usd_per_mtok_output", label="$/Mtok out", unit="usd", is_more_better=False,
        meaning="Dollars per million output tokens: equipment, colocation and energy.",
    ),
    Metric(
        path="carbon_g_per_request", label="gCO₂/req", unit="g", is_more_better=False,
        meaning="Grams of CO₂ equivalent per request from the grid's energy.",
    ),
)  # fmt: skip
"""Every metric, in the order of the headline."""

OPTICAL, DISAGGREGATED, COLOCATED = "optical+gpu", "gpu-disaggregated", "gpu-colocated"


def ratio(answer: Answer, metric: Metric, scope: str) -> float | None:
    """Return how many times the optical design beats the better silicon design, None if unknown.

    Above one optics win, whichever way the metric points.
    """
    optical = [d for d in answer.designs if d.name == OPTICAL]
    others = [d for d in answer.designs if d.name != OPTICAL]
    mine = metric.value(optical[0], scope) if optical else None
    theirs = [v for d in others if (v := metric.value(d, scope)) is not None]
    if not mine or not theirs or min(theirs) <= 0:
        return None
    return mine / max(theirs) if metric.is_more_better else min(theirs) / mine


def short(design: DesignAnswer) -> str:
    """Return a design's name for narrow places."""
    words = {OPTICAL: "optical", DISAGGREGATED: "disagg", COLOCATED: "co-loc"}
    return words.get(design.name, design.label[:7])
