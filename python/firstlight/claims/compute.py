"""The computations that decide claims: each returns one number of a scenario under changes.

A number that does not exist (a design does not work, the scenario has no optical pool) is NaN, and
the claim then does not hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from firstlight import catalog, optics
from firstlight.claims import formula
from firstlight.errors import ModelError, ScenarioError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from firstlight.claims.case import Case
    from firstlight.optics import EngineSpec

    Compute = Callable[["Case", Mapping[str, object], str, str], float]
    OfEngine = Callable[["Case", EngineSpec, str], float]

NOTHING = math.nan
TETRA_OP_PER_S, TETRA_W = 1e18, 1e4
MODELS = ("llama-3.1-8b", "llama-3.1-70b")
RELOAD_CHUNK_TOK = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """A computation and what its scopes count.

    Attributes:
        compute: (case, changes, scope, optical server) -> number.
        scopes: What each scope counts, with its boundary.
    """

    compute: Compute
    scopes: dict[str, str]


def _of_gains(scopes: dict[str, tuple[str, str]], *, saved: bool = False) -> Test:
    """Return a test that reads one number of `Gains` a scope.

    Args:
        scopes: Scope -> (field of `Gains`, what it counts).
        saved: Whether the share saved is wanted, 1 − 1 / gain.
    """

    def compute(case: Case, changes: Mapping[str, object], scope: str, server: str) -> float:
        gains = case.gains(changes, server=server)
        if gains is None:
            return NOTHING
        gain = float(getattr(gains, scopes[scope][0]))
        return 1.0 - 1.0 / gain if saved else gain

    return Test(compute=compute, scopes={scope: words for scope, (_, words) in scopes.items()})


def _of_engine(work: OfEngine) -> Compute:
    """Return a computation on the optical engine; there is none without one."""

    def compute(case: Case, changes: Mapping[str, object], scope: str, server: str) -> float:
        spec = case.engine(changes, server=server)
        return NOTHING if spec is None else work(case, spec, scope)

    return compute


def _prefill_share(case: Case, changes: Mapping[str, object], scope: str, server: str) -> float:
    found = case.estimates(changes, server=server, only=case.split or "")
    rival = found.get(case.split or "")
    if rival is None:
        return NOTHING
    if scope == "tokens":
        return rival.uncached_tok / (rival.uncached_tok + rival.output_tok)
    if not rival.feasible:
        return NOTHING
    return rival.prefill_energy_j_per_request / rival.energy_j_per_request


def _power_elasticity(case: Case, spec: EngineSpec, scope: str) -> float:
    """Return d ln power / d ln rate of one optical server, in the clock."""
    import dataclasses

    faster = dataclasses.replace(spec, f_cycle_hz=spec.f_cycle_hz * 1.1)
    slow, fast = optics.server_power(spec), optics.server_power(faster)
    if scope == "server":
        return math.log(fast.peak_w / slow.peak_w) / math.log(1.1)
    # The multiplication itself: light alone, over all the server draws.
    ledger = optics.cycle_ledger(optics.linear_stack(case.shape), spec=spec)
    return ledger.laser_j * spec.f_cycle_hz * spec.engines * slow.psu_factor / slow.peak_w


def _ops_per_cycle(case: Case, spec: EngineSpec, scope: str) -> float:
    del case
    operations = 2.0 * spec.inputs * spec.outputs
    return operations / spec.encoding.passes if scope == "signed" else operations


def _models(case: Case, changes: Mapping[str, object], scope: str, server: str) -> float:
    """Return how many of the two models the optical design serves within the limits."""
    del scope
    works = 0
    for model in MODELS:
        try:
            found = case.estimates(
                {**changes, "model": model}, server=server, only=case.light or ""
            )
        except ModelError:
            continue
        mine = found.get(case.light or "")
        works += mine is not None and mine.feasible
    return float(works) if case.light is not None else NOTHING


def _server_w(case: Case, spec: EngineSpec, scope: str) -> float:
    peak_w = optics.server_power(spec).peak_w
    if scope == "optical server":
        return peak_w
    silicon = (
        pool.server.peak_w
        for plan in case.point.plans
        if plan.name == case.light
        for pool in plan.pools
        if pool.server.engine is None
    )
    return max(peak_w, *silicon)


def _op_per_j(case: Case, spec: EngineSpec, scope: str) -> float:
    """Return operations a joule at the engine, or of a whole server at full load."""
    stack = optics.linear_stack(case.shape)
    chunk = min(RELOAD_CHUNK_TOK, optics.chunk_bound_tok(spec, hidden_size=stack.hidden_size))
    at_engine = optics.engine_op_per_j(stack, spec=spec, chunk_tok=chunk)
    if scope == "engine":
        return at_engine
    seconds = float(
        optics.pass_time_s(stack, spec=spec, tokens=np.array([chunk]), weight_bits=4)[0]
    )
    operations = 2.0 * stack.active_weights * chunk
    power = optics.server_power(spec)
    joules = (operations / at_engine + power.engine_idle_w * seconds) * power.psu_factor
    joules += spec.host_power_w * power.psu_factor * seconds
    return operations / joules


def _tok_per_s(case: Case, changes: Mapping[str, object], scope: str, server: str) -> float:
    """Return output tokens a second that one person sees."""
    spec = case.engine(changes, server=server)
    if spec is None:
        return NOTHING
    if scope == "decode on light":
        stack = optics.linear_stack(case.shape)
        one = optics.pass_time_s(stack, spec=spec, tokens=np.array([1.0]), weight_bits=4)
        return 1.0 / float(one[0])
    found = case.estimates(changes, server=server, only=case.light or "").get(case.light or "")
    return 1.0 / found.tpot_s if found is not None and found.feasible else 0.0


def _demand(case: Case, changes: Mapping[str, object], scope: str, server: str) -> float:
    """Return the claim's price of a watt over that of today."""
    del case, changes, server
    over = formula.demand().over_today
    if scope == "highest estimate":
        return over[-1][1]
    return float(np.median([ratio for _, ratio in over]))


_PROMPT = {
    "prefill": (
        "prefill", "energy of the whole prompt, gpu-disaggregated over optical, facility"
    ),
    "linear": ("linear", "energy of linear layers, above idle, board"),
}  # fmt: skip
TESTS: dict[str, Test] = {
    "prefill-gain": _of_gains(_PROMPT),
    "roadmap": _of_gains(_PROMPT),
    "inference-gain": _of_gains(
        {
            "whole": ("whole", "energy of a request, better GPU design over optical, facility"),
            "colocated": (
                "whole_colocated",
                "energy of a request, gpu-colocated over optical, facility",
            ),
        }
    ),
    "power-cut": _of_gains(
        {
            "whole": ("whole", "energy saved a request at the same load, facility"),
            "linear": ("linear", "energy saved in linear layers of prefill, above idle, board"),
        },
        saved=True,
    ),
    "cost-gain": _of_gains(
        {
            "whole": ("cost", "cost of a request, cheaper GPU design over optical, facility"),
            "prefill": (
                "prefill_cost",
                "cost of the prompt, gpu-disaggregated over optical, facility",
            ),
        }
    ),
    "power-elasticity": Test(
        compute=_of_engine(_power_elasticity),
        scopes={
            "server": "d ln power / d ln rate of one optical server",
            "light": "laser power over the server's, at full rate",
        },
    ),
    "ops-per-cycle": Test(
        compute=_of_engine(_ops_per_cycle),
        scopes={
            "signed": "operations of one signed product over the cycles it takes, engine",
            "peak": "operations of one optical cycle, engine",
        },
    ),
    "models": Test(
        compute=_models,
        scopes={"served": "of Llama-3.1 8B and 70B, how many meet the limits with decode on GPUs"},
    ),
    "server-power": Test(
        compute=_of_engine(_server_w),
        scopes={
            "optical server": "one optical server at full load, at its plug",
            "largest server": "the largest server of the optical design, decode included, at its plug",
        },
    ),
    "prefill-share": Test(
        compute=_prefill_share,
        scopes={
            "joules": "prompt's share of the energy of gpu-disaggregated, facility",
            "tokens": "uncached prompt tokens over all computed tokens",
        },
    ),
    "op-per-j": Test(
        compute=_of_engine(_op_per_j),
        scopes={
            "engine": "operations a joule of the engine, reload included",
            "server": "operations a joule of the server, host and supply included",
        },
    ),
    "tok-per-s": Test(
        compute=_tok_per_s,
        scopes={
            "decode on light": "output tokens a second of one sequence, all on light",
            "decode on silicon": "output tokens a second of one sequence, decode on GPUs",
        },
    ),
    "demand": Test(
        compute=_demand,
        scopes={
            "median estimate": "price of a watt in the claim over the median of today's estimates",
            "highest estimate": "price of a watt in the claim over the highest of today's estimates",
        },
    ),
}
"""Computation by name."""


def compute(
    name: str, case: Case, changes: Mapping[str, object], *, scope: str, server: str
) -> float:
    """Return the number a claim turns on; NaN when it does not exist here.

    Raises:
        ScenarioError: The test or scope is unknown.
    """
    if name not in TESTS or scope not in TESTS[name].scopes:
        raise ScenarioError(f"no computation {name!r} with scope {scope!r}")
    return TESTS[name].compute(case, changes, scope, server)


def rack_w() -> float:
    """Return what an air-cooled rack gives [W]."""
    return catalog.get("rack-air", kind="facility").value("rack_power_w")
