"""Traffic by name: shipped production hours, and seeded arrivals with published lengths."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from firstlight.errors import TraceError, nearest
from firstlight.workload.lengths import LengthLaw
from firstlight.workload.read import read_trace
from firstlight.workload.trace import MAX_DURATION_S, Trace

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHIPPED = {
    "azure-2023-conv": "Azure OpenAI conversation, one hour of 2023-11-16",
    "azure-2023-code": "Azure OpenAI code completion, one hour of 2023-11-16",
}
"""Traces in the package: Azure/AzurePublicDataset, CC-BY-4.0, see `data/ATTRIBUTION.md`."""

_POINTS = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
_MOONCAKE = (
    "kvcache-ai/Mooncake FAST25-release/traces/conversation_trace.jsonl @3b5a5941 (Apache-2.0)"
)
_SESSIONS = "callanjfox/kv-cache-tester traces/ @94f6046d (Apache-2.0), 38,702 requests"
_SERVEGEN = "alibaba/ServeGen data/ @f891d118 (Apache-2.0), reason/deepseek-r1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A named kind of traffic.

    Attributes:
        description: One line.
        trace: A key of `SHIPPED`, or "" when arrivals are drawn.
        request_per_s: Mean rate of drawn arrivals [1/s]; a load scales it anyway.
        isl: Law of prompt lengths when drawn.
        osl: Law of answer lengths when drawn.
    """

    description: str
    trace: str = ""
    request_per_s: float = 0.0
    isl: LengthLaw | None = None
    osl: LengthLaw | None = None


PRESETS = {
    "chat": Preset(description="Conversation: the Azure hour", trace="azure-2023-conv"),
    "code": Preset(description="Code completion: the Azure hour", trace="azure-2023-code"),
    "rag": Preset(
        description="Long documents in the prompt: lengths of the Mooncake conversation trace",
        request_per_s=3.40,
        isl=LengthLaw(
            quantile=_POINTS,
            tok=(891, 894, 901, 2306, 6909, 15367, 27367, 39550, 85400, 126195),
            mean_tok=12035.1,
            source=_MOONCAKE,
        ),
        osl=LengthLaw(
            quantile=_POINTS,
            tok=(1, 3, 10, 156, 350, 472, 597, 698, 1118, 2000),
            mean_tok=342.6,
            source=_MOONCAKE,
        ),
    ),
    "agentic": Preset(
        description="Coding agents: lengths of real sessions, requests drawn independently",
        request_per_s=1.0,
        isl=LengthLaw(
            quantile=_POINTS,
            tok=(6343, 17386, 30491, 66050, 102086, 135892, 215386, 289553, 451331, 894371),
            mean_tok=117925.8,
            source=_SESSIONS,
        ),
        osl=LengthLaw(
            quantile=(*_POINTS[:-1], 0.999, 1.0),
            tok=(1, 57, 88, 137, 214, 424, 885, 1526, 3738, 9000, 18195),
            mean_tok=437.2,
            source=_SESSIONS,
        ),
    ),
    "reasoning": Preset(
        description="Long answers: lengths of DeepSeek-R1 traffic",
        request_per_s=16.0,
        isl=LengthLaw(
            quantile=(0.0, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0),
            tok=(4, 13, 41, 208, 482, 2092, 6714, 23423, 33783, 60096),
            mean_tok=1268.25,
            source=_SERVEGEN,
        ),
        osl=LengthLaw(
            quantile=(0.0, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0),
            tok=(9, 225, 427, 792, 1499, 3432, 5701, 12607, 20833, 35733),
            mean_tok=1527.42,
            source=_SERVEGEN,
        ),
    ),
}
"""Kinds of traffic by name. There is no `multimodal`: no public trace gives its lengths."""


def load(name: str | Path, *, seed: int = 0, sort: bool = False) -> Trace:
    """Return a preset, a shipped trace, or the trace in a file.

    Args:
        name: A key of `PRESETS` or `SHIPPED`, or a path (anything with a slash or a suffix).
        seed: Seed of drawn arrivals.
        sort: See `read_trace`.

    Raises:
        TraceError: When the name is unknown or the file is malformed.
    """
    text = str(name)
    if text in PRESETS:
        return preset(text, seed=seed)
    if text in SHIPPED:
        return _shipped(text)
    if "/" in text or Path(text).suffix or Path(text).exists():
        return read_trace(name, sort=sort)
    known = (*PRESETS, *SHIPPED)
    raise TraceError(
        f"{text!r} is no preset, no shipped trace and no file; one of {', '.join(known)}, or a "
        f"path{nearest(text, known)}"
    )


def preset(name: str, *, seed: int = 0, duration_s: float = 3600.0) -> Trace:
    """Return an hour of a kind of traffic.

    Args:
        name: A key of `PRESETS`.
        seed: Seed of drawn arrivals and lengths; production hours do not depend on it.
        duration_s: Length when drawn [s].

    Raises:
        TraceError: When the name is unknown.
    """
    if name not in PRESETS:
        why = " (no public trace gives its lengths)" if name == "multimodal" else ""
        raise TraceError(
            f"preset {name!r} is not available{why}; one of {', '.join(PRESETS)}"
            f"{nearest(name, PRESETS)}"
        )
    kind = PRESETS[name]
    if kind.isl is None or kind.osl is None:
        return _shipped(kind.trace, name=name)
    return poisson_trace(
        kind.request_per_s,
        duration_s=duration_s,
        isl=kind.isl,
        osl=kind.osl,
        seed=seed,
        name=name,
        source=f"drawn, Poisson arrivals (assumed); lengths: {kind.isl.source}",
    )


def poisson_trace(
    request_per_s: float,
    *,
    duration_s: float,
    isl: LengthLaw | int,
    osl: LengthLaw | int,
    seed: int = 0,
    name: str = "poisson",
    source: str = "drawn, Poisson arrivals",
) -> Trace:
    """Draw independent arrivals at a constant rate.

    Args:
        request_per_s: Mean rate [1/s].
        duration_s: Length [s].
        isl: Law of prompt lengths, or one length [tok].
        osl: Law of answer lengths, or one length [tok].
        seed: Seed; the same seed gives the same trace.
        name: Name of the trace.
        source: Source of the trace.

    Raises:
        TraceError: When a value is out of range or no request falls into the duration.
    """
    if not (math.isfinite(request_per_s) and request_per_s > 0):
        raise TraceError(f"request_per_s: {request_per_s!r} is not allowed; above 0")
    if not (math.isfinite(duration_s) and 0 < duration_s <= MAX_DURATION_S):
        raise TraceError(f"duration_s: {duration_s!r} is not allowed; up to {MAX_DURATION_S:g} s")
    if request_per_s * duration_s > 1e8:
        raise TraceError(f"{request_per_s * duration_s:.3g} requests are too many; at most 1e8")
    if isinstance(seed, bool) or seed < 0:
        raise TraceError(f"seed: {seed!r} is not allowed; a whole number ≥ 0")
    arrivals, prompts, answers = (
        np.random.default_rng(each) for each in np.random.SeedSequence(seed).spawn(3)
    )
    count = int(arrivals.poisson(request_per_s * duration_s))
    if count == 0:
        raise TraceError(
            f"no request falls into {duration_s:g} s at {request_per_s:g} a second; more of either"
        )
    return Trace(
        arrival_s=np.sort(arrivals.random(count)) * duration_s,
        isl_tok=_draw(isl, prompts.random(count), name="isl"),
        osl_tok=_draw(osl, answers.random(count), name="osl"),
        duration_s=duration_s,
        name=name,
        source=source,
    )


def _draw(law: LengthLaw | int, uniform: NDArray[np.float64], *, name: str) -> NDArray[np.int64]:
    if isinstance(law, LengthLaw):
        return law.draw(uniform)
    if law != int(law) or law < 1:
        raise TraceError(f"{name}: {law!r} is not allowed; a whole number of tokens ≥ 1")
    return np.full(len(uniform), law, dtype=np.int64)


def _shipped(trace_id: str, *, name: str | None = None) -> Trace:
    from importlib.resources import as_file, files

    with as_file(files("firstlight.workload") / "data" / f"{trace_id}.npz") as file:
        return read_trace(file, name=name or trace_id)
