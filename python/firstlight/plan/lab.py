"""The sheet of an independent test: five quantities for two designs, predicted beside measured.

Both designs get the same model, context, batching, service level and load, each with the fewest servers
that carry it: a fleet that idles for want of load is no design's joule. The sheet is TOML: the
protocol for the machine that runs the test, the predictions, their errors, and a place for what is
measured (`nan` until it is).
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from firstlight.errors import InfeasibleError, ScenarioError, nearest
from firstlight.evaluate import question
from firstlight.evaluate.analytic import estimate
from firstlight.plan.sized import sized

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from firstlight.evaluate import Design
    from firstlight.plan.sized import Sized
    from firstlight.scenario import Scenario

SCHEMA = 1
LOAD_FRAC = 0.8
"""Load of the test, over what the weaker design carries."""
REPEATS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One quantity of the sheet.

    Attributes:
        name: Its key in the sheet.
        unit: Its unit.
        how: How it is measured.
        error_frac: Error of a prediction, one standard deviation over the value; NaN when nothing is
            predicted.
        why: Where that error comes from.
    """

    name: str
    unit: str
    how: str
    error_frac: float
    why: str


QUANTITIES = (
    Quantity(
        name="energy_j_per_request",
        unit="J",
        how="meters at the plugs of every server and switch of the design, integrated over the window, "
        "times the stated PUE, over requests completed in the window; idle included",
        error_frac=0.20,
        why="phase powers are measured for GPUs and assumed for optical servers; host power is a "
        "residual of server and GPU power",
    ),
    Quantity(
        name="ttft_p90_s",
        unit="s",
        how="arrival at the front end to the first token at the client, queueing included, 90th "
        "percentile of all arrivals in the window; a refused request counts as infinite",
        error_frac=0.25,
        why="queues near capacity magnify errors of step times, which are 5 to 15 % on held-out points",
    ),
    Quantity(
        name="output_tok_per_s",
        unit="tok/s",
        how="output tokens that reached clients in the window over its length, at the load where the "
        "service level just holds",
        error_frac=0.15,
        why="step times 5 to 15 % on held-out points; one cell for a fleet within 3 %",
    ),
    Quantity(
        name="accuracy_drop_frac",
        unit="1",
        how="1 − score over the score of the same checkpoint in BF16 on the same silicon, on the task "
        "suite named in the protocol, greedy decoding",
        error_frac=math.nan,
        why="nobody has published what 4-bit optical prefill does to this model: not predicted",
    ),
    Quantity(
        name="cost_usd_per_request",
        unit="$",
        how="(annuity of the purchase price + colocation of the provisioned power) × window + energy "
        "at the stated tariff, over requests completed in the window",
        error_frac=0.25,
        why="the optical price is undisclosed; GPU prices are estimates within 20 %",
    ),
)
"""The five quantities, in order."""


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A test of two designs.

    Attributes:
        designs: Their names.
        protocol: What is the same for both, for the machine that runs the test.
        predicted: design -> quantity -> value; NaN where nothing is predicted.
        measured: The same, NaN until it is filled in.
    """

    designs: tuple[str, str]
    protocol: dict[str, Any]
    predicted: dict[str, dict[str, float]]
    measured: dict[str, dict[str, float]]

    def to_toml(self) -> str:
        """Return the sheet as TOML; `read` gives an equal one."""
        import tomli_w

        return tomli_w.dumps(
            {
                "schema": SCHEMA,
                "designs": list(self.designs),
                "protocol": self.protocol,
                "quantity": [
                    {"name": q.name, "unit": q.unit, "how": q.how, "error_frac": q.error_frac,
                     "why": q.why}
                    for q in QUANTITIES
                ],
                "predicted": self.predicted,
                "measured": self.measured,
            }
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a sheet says of one quantity.

    Attributes:
        quantity: Its name.
        predicted_ratio: First design over second, as predicted.
        is_difference: Whether the predicted ratio is further from 1 than its error.
        measured_ratio: As measured; NaN until both are.
        is_refuted: Whether the measured ratio lies outside the prediction's error; None until measured.
        outside: Designs whose measured value lies outside the error of its own prediction.
    """

    quantity: str
    predicted_ratio: float
    is_difference: bool
    measured_ratio: float
    is_refuted: bool | None
    outside: tuple[str, ...]


SIGMAS = 2.0


def sheet(
    scenario: Scenario,
    *,
    designs: tuple[str, str],
    rate_request_per_s: float | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Sheet:
    """Return the sheet of a test of two designs of a scenario.

    Args:
        scenario: The question.
        designs: Names of two designs.
        rate_request_per_s: Load of both [request/s]; None takes four fifths of what the weaker
            carries within the power of the scenario. Each gets the fewest whole cells that carry it.
        progress: Told how far it is.

    Raises:
        ScenarioError: A design is unknown, or both are one.
        InfeasibleError: A design cannot meet the service level, or not at this load.
    """
    if designs[0] == designs[1]:
        raise ScenarioError(f"both designs are {designs[0]!r}; allowed: two different ones")
    two = scenario.replace(designs=[scenario.design(name) for name in designs])
    rate = rate_request_per_s
    if rate is None:
        guesses = estimate(two)
        for name, one in guesses.items():
            if not one.feasible:
                raise InfeasibleError(f"{name}: {one.reason}")
        rate = LOAD_FRAC * min(one.goodput_request_per_s for one in guesses.values())
    found, traffic = sized(question.resolve(two), rate_request_per_s=rate, progress=progress)
    return Sheet(
        designs=designs,
        protocol=_protocol(
            two, traffic, rate=rate, records={name: found[name].record for name in designs}
        ),
        predicted={name: _predicted(found[name]) for name in designs},
        measured={name: {q.name: math.nan for q in QUANTITIES} for name in designs},
    )


def _predicted(one: Sized) -> dict[str, float]:
    record = one.record
    return {
        "energy_j_per_request": record.energy_j_per_request or math.nan,
        "ttft_p90_s": record.ttft_s.p90 if record.ttft_s is not None else math.nan,
        "output_tok_per_s": one.full_record.output_tok_per_s,
        "accuracy_drop_frac": math.nan,
        "cost_usd_per_request": record.cost_usd_per_request or math.nan,
    }


def _protocol(
    scenario: Scenario,
    workload: Mapping[str, float | str],
    *,
    rate: float,
    records: dict[str, Design],
) -> dict[str, Any]:
    facility = scenario.facility
    model = scenario.model
    return {
        "model": model if isinstance(model, str) else dict(model),
        "precision_silicon": {
            "weights": scenario.precision.weights,
            "kv": scenario.precision.kv,
        },
        "load_request_per_s": rate,
        "arrivals": "open loop, as in the trace; the same seeds for both designs",
        "trace": dict(workload),
        "cached_frac": scenario.workload.cached_frac,
        "batching": sorted({design.policy.batching for design in scenario.designs}),
        "slo": {
            "ttft_s": scenario.slo.ttft_s,
            "tpot_s": scenario.slo.tpot_s,
            "quantile": scenario.slo.quantile,
        },
        "warm_up_frac": float(scenario.assumption("warm_up_frac").value),  # type: ignore[arg-type]
        "repeats": REPEATS,
        "power_boundary": "facility",
        "power_sampling_hz": 10.0,
        "pue": facility.pue,
        "electricity_usd_per_kwh": facility.electricity_usd_per_kwh,
        "accuracy_tasks": ["MMLU", "GSM8K", "LongBench at the mean context"],
        "sizing": "each design has the fewest servers, in whole cells, that carry the load within the "
        "service level; output_tok_per_s is the most these servers carry within it",
        "servers": {name: dict(record.servers) for name, record in records.items()},
    }


def read(text: str) -> Sheet:
    """Return a sheet as written, with what was filled in.

    Args:
        text: TOML.

    Raises:
        ScenarioError: It is no sheet, or a value is none.
    """
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"sheet: {error}") from None
    if raw.get("schema") != SCHEMA:
        raise ScenarioError(f"sheet: schema {raw.get('schema')!r}; allowed: {SCHEMA}")
    names = raw.get("designs")
    if not isinstance(names, list) or len(names) != 2 or len(set(names)) != 2:  # a pair
        raise ScenarioError(f"sheet: designs {names!r}; allowed: two names")
    first, second = (str(name) for name in names)
    return Sheet(
        designs=(first, second),
        protocol=dict(raw.get("protocol", {})),
        predicted={name: _values(raw, "predicted", name) for name in (first, second)},
        measured={name: _values(raw, "measured", name) for name in (first, second)},
    )


def _values(raw: Mapping[str, Any], part: str, design: str) -> dict[str, float]:
    table = raw.get(part, {}).get(design)
    if not isinstance(table, dict):
        raise ScenarioError(f"sheet: [{part}.{design!r}] is missing")
    known = {q.name for q in QUANTITIES}
    for name, value in table.items():
        if name not in known:
            raise ScenarioError(f"sheet: {part}.{design}: unknown {name!r}{nearest(name, known)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise ScenarioError(
                f"sheet: {part}.{design}.{name}: {value!r}; allowed: a number ≥ 0, or nan"
            )
    return {name: float(table.get(name, math.nan)) for name in sorted(known)}


def findings(filled: Sheet) -> tuple[Finding, ...]:
    """Return what is different beyond the model's error, and what measurement refutes.

    A ratio of two predictions carries both errors; an unknown that both designs share cancels in it
    only in part, so they are added in squares. Two standard deviations count.

    Args:
        filled: A sheet.
    """
    first, second = filled.designs
    found = []
    for quantity in QUANTITIES:
        name, error = quantity.name, quantity.error_frac
        guess = _over(filled.predicted[first][name], filled.predicted[second][name])
        seen = _over(filled.measured[first][name], filled.measured[second][name])
        limit = SIGMAS * error * math.sqrt(2.0)
        outside = tuple(
            design
            for design in filled.designs
            if abs(_over(filled.measured[design][name], filled.predicted[design][name]) - 1.0)
            > SIGMAS * error
        )
        found.append(
            Finding(
                quantity=name,
                predicted_ratio=guess,
                is_difference=abs(math.log(guess)) > math.log1p(limit) if guess > 0 else False,
                measured_ratio=seen,
                is_refuted=_refuted(guess, seen, limit),
                outside=outside,
            )
        )
    return tuple(found)


def _over(one: float, other: float) -> float:
    return one / other if other else math.nan


def _refuted(guess: float, seen: float, limit: float) -> bool | None:
    """Return whether a measured ratio lies outside a predicted one's error; None without both."""
    if not (guess > 0 and seen > 0):
        return None
    return abs(math.log(seen / guess)) > math.log1p(limit)
