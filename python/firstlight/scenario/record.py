"""The question as one frozen record: `Scenario`."""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Any, Literal, Self

import msgspec

from firstlight import catalog
from firstlight.errors import OutputError, ScenarioError, nearest
from firstlight.scenario import check, rules
from firstlight.scenario.rules import Where

_MAX_FILE_BYTES = 1_000_000
_GIVEN = "given in the scenario"


class Table(dict[str, Any]):
    """A dict that cannot be changed, so that a scenario that holds it is a value."""

    def __init__(self, items: Mapping[str, object] | None = None) -> None:
        super().__init__(items or {})

    def _refuse(self, *_: object, **__: object) -> Any:  # noqa: ANN401  # stands in for many methods
        raise TypeError("a scenario is frozen; make a new one with Scenario.replace")

    __setitem__ = __delitem__ = update = pop = popitem = clear = setdefault = __ior__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # frozen, so it may have one
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type[Table], tuple[dict[str, Any]]]:
        return Table, (dict(self),)


class Precision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Number formats on silicon; an optical pool holds weights in its engine's mask bits.

    Attributes:
        weights: Format of weights and matrix products.
        kv: Format of the KV cache.
    """

    weights: str
    kv: str


class Workload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The traffic: a preset or a trace, and how it is scaled.

    Attributes:
        preset: Name of a preset, or None.
        trace: Id of a shipped trace or absolute path of a file, or None.
        context_tok: Mean prompt length the trace is scaled to [tok]; None leaves it as it is.
        output_tok: Mean output length the trace is scaled to [tok]; None leaves it as it is.
        cached_frac: Prompt tokens whose KV is present and not computed, 0 to 1.
        correlation_s: Largest shift between copies of the trace [s]; may be infinite.
        shared_prefix_tok: Tokens shared by requests of different copies [tok].
    """

    preset: str | None = None
    trace: str | None = None
    context_tok: int | None = None
    output_tok: int | None = None
    cached_frac: float
    correlation_s: float
    shared_prefix_tok: int


class Slo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the client is promised; both limits must hold for `quantile` of all arrivals.

    Attributes:
        ttft_s: Time to first token [s].
        tpot_s: Time per output token after the first [s].
        quantile: Share of arrivals, 0 to 1.
    """

    ttft_s: float
    tpot_s: float
    quantile: float


class Facility(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The power, what surrounds it, and what stands there already.

    Attributes:
        power_w: Power budget at `boundary` [W].
        boundary: "engine", "board", "server" or "facility".
        pue: Facility energy over IT energy.
        electricity_usd_per_kwh: Price of electricity.
        carbon_g_per_kwh: CO2 equivalent of electricity.
        installed: Servers that stay, their price sunk: server id -> number.
        rack_power_w: Limit of one rack [W], or None.
    """

    power_w: float
    boundary: Literal["engine", "board", "server", "facility"]
    pue: float
    electricity_usd_per_kwh: float
    carbon_g_per_kwh: float
    installed: Table = msgspec.field(default_factory=Table)
    rack_power_w: float | None = None


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How requests are batched and where their prefill runs.

    Attributes:
        batching: Step rule; "vllm-v1".
        chunk_tok: Token budget of a step [tok], or "auto" to search it.
        disaggregate: "never", "always", or "conditional" on what is cheaper for a request.
    """

    batching: str
    chunk_tok: int | Literal["auto"]
    disaggregate: Literal["never", "always", "conditional"]


class Pool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Servers of one kind with one role.

    Attributes:
        role: "prefill", "decode" or "both".
        server: Catalog id.
        share: Share of the facility's watts, 0 to 1, or "auto" to search it.
        count: Number of servers, or None when `share` decides.
        tp: Tensor-parallel degree, or "auto" to search it.
        band: Two optical servers, conservative and optimistic, between which the truth lies.
    """

    role: Literal["prefill", "decode", "both"]
    server: str
    share: float | Literal["auto"]
    count: int | None = None
    tp: int | Literal["auto"]
    band: tuple[str, str] | None = None


class Design(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to spend the power.

    Attributes:
        name: What it is called in results.
        policy: How requests are batched.
        pools: One pool "both", or one "prefill" and one "decode".
        precision: Its own formats by name, where they differ from the scenario's.
    """

    name: str
    policy: Policy
    pools: tuple[Pool, ...]
    precision: Table = msgspec.field(default_factory=Table)

    def pool(self, role: str) -> Pool:
        """Return the pool that does `role`; a pool "both" does either.

        Raises:
            ScenarioError: No pool does it.
        """
        for pool in self.pools:
            if pool.role in {role, "both"}:
                return pool
        raise ScenarioError(f"design {self.name!r} has no pool for {role!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """An assumption as this scenario takes it.

    Attributes:
        value: Number, word or truth value; the midpoint of a range.
        low: Lower end, or None when it is no number.
        high: Upper end, or None.
        fact: The catalog's fact, or the override as a fact marked assumed.
        given: Whether the scenario overrides it.
    """

    value: catalog.Scalar
    low: float | None
    high: float | None
    fact: catalog.Fact
    given: bool


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model, traffic, a service level, a power budget, and the designs compared on them.

    Make one with `default`, `load`, `from_document` or `replace`; a constructor call is checked as
    well, but fills in no defaults.

    Attributes:
        schema: Version of the format; 1.
        name: What the scenario is called.
        model: Catalog id, or a table of shapes under the names of the catalog's models.
        precision: Number formats on silicon.
        workload: The traffic.
        slo: The service level.
        facility: The power budget and its surroundings.
        designs: What is compared, in order.
        assumptions: Overrides by name: number in SI units, word, truth value or "low..high".
        first_token: Which phase emits the first token.
        seed: Seed of everything random.

    Example:
        >>> Scenario.default().replace(power_w="2 MW").facility.power_w
        2000000.0
    """

    schema: int
    name: str
    model: str | Table
    precision: Precision
    workload: Workload
    slo: Slo
    facility: Facility
    designs: tuple[Design, ...]
    assumptions: Table = msgspec.field(default_factory=Table)
    first_token: Literal["prefill", "decode"]
    seed: int

    def __post_init__(self) -> None:
        """Check every field.

        Raises:
            ScenarioError: A value is impossible.
        """
        if check.checked(self.document(), where=Where()) != self.document():
            raise ScenarioError("a scenario's fields hold SI numbers; use Scenario.from_document")

    @classmethod
    def default(cls) -> Self:
        """Return the shipped scenario."""
        text = (resources.files("firstlight.scenario") / "default.toml").read_text(encoding="utf-8")
        return cls.from_document(tomllib.loads(text), where=Where(file="default.toml", text=text))

    @classmethod
    def load(cls, path: str | FilePath) -> Self:
        """Return the scenario in a TOML file.

        Args:
            path: The file; a relative trace in it starts from its folder.

        Raises:
            ScenarioError: The file cannot be read, is no TOML, or a field is impossible.
        """
        path = FilePath(path)
        text = _text(path)
        return cls.from_document(
            _parsed(text, path), where=Where(file=str(path), text=text), base=path.parent
        )

    @classmethod
    def from_document(
        cls,
        document: Mapping[str, object],
        *,
        where: Where | None = None,
        base: FilePath | None = None,
    ) -> Self:
        """Return the scenario in a document of tables, lists, words and numbers.

        Args:
            document: As TOML gives it; what it leaves out is filled in.
            where: File and text, for errors.
            base: Folder a relative trace starts from.

        Raises:
            ScenarioError: A key is unknown or a value impossible.
        """
        done: dict[str, Any] = check.checked(document, where=where or Where(), base=base)
        facility = dict(done["facility"])
        facility["installed"] = Table(facility.get("installed"))
        model = done["model"]
        return cls(
            schema=done["schema"],
            name=done["name"],
            model=model if isinstance(model, str) else Table(model),
            precision=Precision(**done["precision"]),
            workload=Workload(**done["workload"]),
            slo=Slo(**done["slo"]),
            facility=Facility(**facility),
            designs=tuple(_design(design) for design in done["design"]),
            assumptions=Table(done["assumptions"]),
            first_token=done["first_token"],
            seed=done["seed"],
        )

    def document(self) -> dict[str, Any]:
        """Return the scenario as tables, lists, words and numbers, every field written out."""
        plain: dict[str, Any] = msgspec.to_builtins(self, builtin_types=())
        plain["design"] = [_present(design) for design in plain.pop("designs")]
        for section in rules.SECTIONS:
            plain[section] = _present(plain[section])
        order = [*rules.TOP, "model", *rules.SECTIONS, "design", "assumptions"]
        return {key: plain[key] for key in order}

    def to_toml(self) -> str:
        """Return the scenario as TOML; loading it gives an equal scenario."""
        import tomli_w

        return tomli_w.dumps(self.document())

    def dump(self, path: str | FilePath) -> None:
        """Write the scenario to a file, whole or not at all.

        Raises:
            OutputError: The file cannot be written.
        """
        path = FilePath(path)
        partial = path.with_name(f".{path.name}.partial")
        try:
            partial.write_text(self.to_toml(), encoding="utf-8")
            partial.replace(path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise OutputError(f"{path}: {error.strerror}; nothing was written") from None

    def hash(self) -> str:
        """Return a stable id of the question: 16 hex digits, the name left out."""
        document = self.document() | {"name": ""}
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def replace(self, **changes: object) -> Self:
        """Return a scenario with some fields changed.

        Args:
            **changes: Fields by bare name (`power_w`, `context_tok`, `model`, `t_reload_s`), by
                dotted name (`facility.power_w`, `design.optical+gpu.policy.chunk_tok`), or whole
                sections as tables. `chunk_tok`, `batching`, `disaggregate` and `tp` reach every
                design. None takes an optional field away.

        Raises:
            ScenarioError: A name is unknown or a value impossible.
        """
        from firstlight.scenario.change import apply

        return self.from_document(apply(self.document(), changes))

    def design(self, name: str) -> Design:
        """Return a design by name.

        Raises:
            ScenarioError: There is none of this name.
        """
        for design in self.designs:
            if design.name == name:
                return design
        names = [design.name for design in self.designs]
        hint = nearest(name, names)
        raise ScenarioError(f"unknown design {name!r}; allowed: {', '.join(names)}{hint}")

    def precision_of(self, design: Design) -> Precision:
        """Return the formats a design uses: its own, else the scenario's."""
        return msgspec.structs.replace(self.precision, **design.precision)

    def assumption(self, name: str, *, engine: str | None = None) -> Assumed:
        """Return an assumption as this scenario takes it.

        Args:
            name: A catalog assumption, or a field of an optical engine or server.
            engine: Which engine's field, when it is one; the first optical server's when None.

        Raises:
            ScenarioError: The name is unknown.
        """
        designs = self.document()["design"]
        known = check.overridable(designs) | dict(catalog.assumptions())
        if engine is not None:
            known |= catalog.get(engine, kind="engine").facts
        if name not in known:
            raise ScenarioError(f"unknown assumption {name!r}{nearest(name, known)}")
        fact = known[name]
        if name in self.assumptions:
            return _given(self.assumptions[name], fact)
        low, high = fact.range or (None, None)
        if low is None and isinstance(fact.value, int | float) and not isinstance(fact.value, bool):
            low = high = float(fact.value)
        return Assumed(value=fact.value, low=low, high=high, fact=fact, given=False)

    def applied(self, record: catalog.Record) -> catalog.Record:
        """Return a catalog record with this scenario's overrides in it.

        Args:
            record: An optical engine or server; an override of one of its facts replaces it.
        """
        mine = {
            key: _given(self.assumptions[key], fact).fact
            for key, fact in record.facts.items()
            if key in self.assumptions
        }
        return replace(record, facts=MappingProxyType({**record.facts, **mine})) if mine else record

    def paths(self) -> Iterator[str]:
        """Yield the path of every field, such as "facility.power_w" or "design.x.pools.0.tp"."""
        yield from (*rules.TOP, "model")
        for section in rules.SECTIONS:
            for field in getattr(self, section).__struct_fields__:
                yield f"{section}.{field}"
        for design in self.designs:
            yield f"design.{design.name}"
            yield f"design.{design.name}.precision"
            for field in design.policy.__struct_fields__:
                yield f"design.{design.name}.policy.{field}"
            for index, pool in enumerate(design.pools):
                for field in pool.__struct_fields__:
                    yield f"design.{design.name}.pools.{index}.{field}"
        yield "assumptions"

    def provenance(self, path: str) -> catalog.Fact:
        """Return where a field's value comes from.

        Args:
            path: One of `paths()`, or "assumptions.NAME".

        Returns:
            The catalog's fact when the field holds its default, else the value marked assumed.

        Raises:
            ScenarioError: There is no such field.
        """
        from firstlight.scenario.origin import provenance

        return provenance(self, path)

    def __hash__(self) -> int:
        return hash(self.hash())


def _design(raw: Mapping[str, Any]) -> Design:
    pools = tuple(
        Pool(**{**pool, "band": tuple(pool["band"]) if "band" in pool else None})
        for pool in raw["pools"]
    )
    return Design(
        name=raw["name"],
        policy=Policy(**raw["policy"]),
        pools=pools,
        precision=Table(raw.get("precision")),
    )


def _present(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section without what is absent, tuples as lists."""
    done: dict[str, Any] = {}
    for key, value in section.items():
        if value is None or (isinstance(value, Mapping) and not value):
            continue
        if key == "pools":
            done[key] = [_present(pool) for pool in value]
        else:
            done[key] = list(value) if isinstance(value, tuple) else value
    return done


def _given(written: float | str | bool, fact: catalog.Fact) -> Assumed:  # noqa: FBT001  # an override
    """Return an override as an assumption: the midpoint of a range, marked assumed."""
    low: float | None
    high: float | None
    value: catalog.Scalar = written
    word = isinstance(written, bool) or fact.unit in {"enum", "text"} or written == "ideal"
    if word:
        low = high = None
    else:
        low, high = check.span(written, fact.unit)
        value = (low + high) / 2 if low != high else written
    limits = None if low is None or high is None else (low, high)
    mine = catalog.Fact(
        value=value, unit=fact.unit, status=catalog.Status.ASSUMED, source=_GIVEN,
        date=fact.date, range=limits, note=f"in place of {fact.value!r} ({fact.status})",
    )  # fmt: skip
    return Assumed(value=value, low=low, high=high, fact=mine, given=True)


def _text(path: FilePath) -> str:
    """Return the text of a scenario file.

    Raises:
        ScenarioError: It cannot be read, is too large, empty, or no text.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(_MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ScenarioError(f"{path}: cannot be read: {why}") from None
    if len(content) > _MAX_FILE_BYTES:
        raise ScenarioError(f"{path}: larger than 1 MB; allowed: a scenario in TOML")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise ScenarioError(f"{path}: not UTF-8 text; allowed: a scenario in TOML") from None
    if not text.strip():
        raise ScenarioError(f"{path}: empty; allowed: a scenario in TOML")
    return text


def _parsed(text: str, path: FilePath) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ScenarioError(f"{path}: nested too deeply; allowed: a scenario in TOML") from None
    except ValueError as error:
        message, _, place = str(error).rpartition(" (at ")
        line = place.removeprefix("line ").partition(",")[0].rstrip(")")
        at = (
            f"{path}:{line}"
            if line.isdigit()
            else f"{path}:{_lines(text)}"
            if message
            else str(path)
        )
        raise ScenarioError(f"{at}: not TOML: {message or error}") from None


def _lines(text: str) -> int:
    return max(1, math.ceil(text.count("\n")))
