"""Between what the controls say and the scenario the calculation takes, both ways."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from firstlight import catalog
from firstlight.errors import FirstlightError, ScenarioError
from firstlight.scenario import Design, Scenario
from firstlight.tui.answer import Citation
from firstlight.tui.field import AUTO, BY_KEY, ENGINE_KEYS, FIELDS, FROM_FILE, Field, Scale, is_path
from firstlight.tui.number import Range, Value, parse_value
from firstlight.tui.state import DEFAULT, Setup, parse_share, share, write_whole

if TYPE_CHECKING:
    from pathlib import Path

_TRACE = "azure-2023-conv"


@lru_cache(maxsize=1)
def shipped() -> Scenario:
    """Return the scenario that is answered when none is given."""
    return Scenario.default()


def scenario_of(setup: Setup) -> Scenario:
    """Return the scenario of a setup of plain numbers.

    Only what differs from the base is changed, so that a file keeps what no control shows.

    Args:
        setup: Without ranges, except in assumptions.

    Raises:
        ScenarioError: A value is impossible, or a range stands where a scenario knows none.
    """
    base, changes = changes_of(setup)
    return base.replace(**changes) if changes else base


def changes_of(setup: Setup) -> tuple[Scenario, dict[str, object]]:
    """Return the scenario a setup starts from and what it changes there, as `replace` takes it.

    Args:
        setup: Without ranges, except in assumptions.

    Raises:
        ScenarioError: A range stands where a scenario knows none.
    """
    base = setup.base or shipped()
    changes: dict[str, object] = {}
    for f, mine, theirs in zip(FIELDS, setup.values, _start(setup.base).values, strict=True):
        if f.key in ENGINE_KEYS:
            changes |= _engine_changes(base, setup, f, mine)
        elif mine != theirs:
            changes |= _changes(base, f, mine)
    return base, changes


@lru_cache(maxsize=64)
def _start(base: Scenario | None) -> Setup:
    """Return what the controls say of a base, without hashing the shipped one each time."""
    return setup_of(base or shipped())


def _engine_changes(base: Scenario, setup: Setup, f: Field, value: Value) -> dict[str, object]:
    """Return the override of an engine's figure, none where the server itself says the same.

    An override would reach both ends of a band, so one that says nothing new must not be made.
    """
    name = f.path.removeprefix("assumptions.")
    own = engine_values(str(setup["optical_server"])).get(f.key, f.default)
    if value == own:
        return {f.path: None} if name in base.assumptions else {}
    return {f.path: _plain(f, value)}


def _changes(base: Scenario, f: Field, value: Value) -> dict[str, object]:
    if value == FROM_FILE:
        return {}
    if f.key == "traffic":
        is_trace = value == _TRACE or is_path(str(value))
        return {"workload.trace" if is_trace else "workload.preset": value}
    if f.key == "optical_share_frac":
        return {
            f"design.{d.name}.pools.prefill.share": value for d in base.designs if _is_optical(d)
        }
    if f.key == "optical_server":
        return _optical_server(base, str(value))
    if f.key == "gpu":
        return {
            f"design.{d.name}.pools.{pool.role}.server": value
            for d in base.designs
            for pool in d.pools
            if not _is_optical(d) and pool.role in ("prefill", "both")
        }
    if f.key == "decode_silicon":
        return {
            f"design.{d.name}.pools.decode.server": value
            for d in base.designs
            for pool in d.pools
            if pool.role == "decode"
        }
    if isinstance(value, Range) and not f.path.startswith("assumptions."):
        msg = f"{f.label} is a range; the scenario takes one number there"
        raise ScenarioError(msg)
    return {_path(base, f): _plain(f, value)}


def _path(base: Scenario, f: Field) -> str:
    """Return where a control writes; a file may hold the price under the servers' own name of it."""
    old = "assumptions.price_ratio"
    is_old = f.key == "price_ratio" and old.partition(".")[2] in base.assumptions
    return old if is_old else f.path


def _optical_server(base: Scenario, server: str) -> dict[str, object]:
    changes: dict[str, object] = {}
    for design in base.designs:
        if _is_optical(design):
            pool = design.pool("prefill")
            head = f"design.{design.name}.pools.prefill"
            changes[f"{head}.server"] = server
            if pool.band and server not in pool.band:
                changes[f"{head}.band"] = None
    return changes


def _plain(f: Field, value: Value) -> object:
    if isinstance(value, Range):
        return f"{value.lo!r}..{value.hi!r}"
    if value == AUTO:
        return None
    is_whole = f.scale is Scale.INTEGER or f.unit == "tok"
    return round(value) if is_whole and isinstance(value, float) else value


def _is_optical(design: Design) -> bool:
    return "engine" in catalog.get(design.pool("prefill").server, kind="server")


@lru_cache(maxsize=64)
def setup_of(scenario: Scenario) -> Setup:
    """Return what the controls say of a scenario; what they cannot say is "from the file".

    Args:
        scenario: Any scenario.
    """
    values: dict[str, Value] = {
        "traffic": _traffic(scenario.workload.preset or scenario.workload.trace or ""),
        "model": _known("model", scenario.model if isinstance(scenario.model, str) else ""),
        "weights": scenario.precision.weights,
        "gpu": FROM_FILE,
        "decode_silicon": FROM_FILE,
        "optical_server": FROM_FILE,
        "optical_share_frac": AUTO,
        "context_tok": scenario.workload.context_tok or AUTO,
        "output_tok": scenario.workload.output_tok or AUTO,
        "cached_frac": scenario.workload.cached_frac,
        "power_w": scenario.facility.power_w,
        "pue": scenario.facility.pue,
        "electricity_usd_per_kwh": scenario.facility.electricity_usd_per_kwh,
        "ttft_s": scenario.slo.ttft_s,
        "tpot_s": scenario.slo.tpot_s,
    }
    for design in scenario.designs:
        prefill, decode = design.pool("prefill"), design.pool("decode")
        if _is_optical(design):
            values["optical_server"] = _known("optical_server", prefill.server)
            values["optical_share_frac"] = prefill.share
            values |= engine_values(prefill.server)
        else:
            values["gpu"] = _known("gpu", prefill.server)
        values["decode_silicon"] = _known("decode_silicon", decode.server)
    for f in FIELDS:
        name = _path(scenario, f).removeprefix("assumptions.")
        if name != f.path and name in scenario.assumptions:
            given = scenario.assumptions[name]
            values[f.key] = parse_value(given, "") if isinstance(given, str) else float(given)
    base = None if scenario == shipped() else scenario
    setup = Setup(name=scenario.name if base else "", base=base)
    return replace(setup, values=tuple(_held(f, values.get(f.key, f.default)) for f in FIELDS))


def _traffic(word: str) -> str:
    return word if is_path(word) else _known("traffic", word)


def _known(key: str, word: str) -> str:
    return word if word in dict(BY_KEY[key].choices) else FROM_FILE


def _held(f: Field, value: Value) -> Value:
    """Return a value of a file as the control can hold it: beyond its ends, at its end."""
    if isinstance(value, str):
        return value
    if isinstance(value, Range):
        low, high = max(value.lo, f.lo), min(value.hi, f.hi)
        return Range(low, high) if low < high else min(max(value.lo, f.lo), f.hi)
    return min(max(float(value), f.lo), f.hi)


@lru_cache(maxsize=64)
def _engine_facts(server: str) -> dict[str, catalog.Fact]:
    try:
        record = catalog.get(server, kind="server")
        engine = catalog.get(record.text("engine"), kind="engine")
    except FirstlightError:
        return {}
    both = {**engine.facts, **record.facts}
    return {key: both[key] for key in ENGINE_KEYS if key in both}


def engine_values(server: str) -> dict[str, Value]:
    """Return what is known of an optical server, for the sliders below it.

    Args:
        server: Catalog id; of others nothing is known.
    """
    return {
        key: _held(BY_KEY[key], float(fact.value))
        for key, fact in _engine_facts(server).items()
        if isinstance(fact.value, (int, float))
    }


def statuses(setup: Setup) -> dict[str, str]:
    """Return the provenance of the engine's figures that stand as the catalog has them."""
    server = str(setup["optical_server"])
    known = engine_values(server)
    return {
        key: str(fact.status)
        for key, fact in _engine_facts(server).items()
        if key in known and setup[key] == known[key]
    }


def fact_of(setup: Setup, key: str) -> catalog.Fact | None:
    """Return the catalog's fact behind a control, None where the control is the question itself."""
    if key in ENGINE_KEYS:
        return _engine_facts(str(setup["optical_server"])).get(key)
    path = BY_KEY[key].path
    if not path:
        return None
    try:
        return (setup.base or shipped()).provenance(path)
    except FirstlightError:
        return None


def text_of(setup: Setup) -> str:
    """Return the scenario file of a setup; its first line keeps ranges no scenario knows.

    Args:
        setup: What the controls say.
    """
    plain = {k: v for k, v in setup.changed(setup.nominal()).items() if _is_question(k)}
    nominal = setup.with_values({k: setup.nominal()[k] for k in plain})
    return f"# {share(setup)}\n{scenario_of(nominal).to_toml()}"


def _is_question(key: str) -> bool:
    return not BY_KEY[key].path.startswith("assumptions.")


def load(path: Path) -> Setup:
    """Return the setup of a scenario file.

    Raises:
        ScenarioError: It cannot be read or means nothing.
    """
    setup = setup_of(Scenario.load(path))
    first = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("#").strip()
    if not first.startswith("fl:"):
        return setup
    shared, _ = parse_share(first)
    for key in shared.ranges:
        # A number that was changed by hand since counts more than the comment above it.
        if shared.nominal()[key] == setup[key]:
            setup = setup.replace(key, shared[key])
    return setup


def save(setup: Setup, path: Path) -> None:
    """Write the scenario file of a setup, whole or not at all.

    Raises:
        OutputError: It cannot be written.
    """
    write_whole(path, text_of(setup))


def is_default(setup: Setup) -> bool:
    """Return whether nothing was changed."""
    return setup == DEFAULT


def cited(setup: Setup, key: str) -> Citation | None:
    """Return the citation behind a control."""
    fact = fact_of(setup, key)
    if fact is None:
        return None
    value = float(fact.value) if isinstance(fact.value, (int, float)) else None
    return Citation(
        path=key, value=value, unit=fact.unit, status=str(fact.status), source=fact.source,
        date=fact.date, note=fact.note,
    )  # fmt: skip
