"""The question as one frozen record: `Scenario`."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Any, Literal, Self

import msgspec

from firstlight import catalog
from firstlight.errors import OutputError, ScenarioError, nearest
from firstlight.scenario import check, file, overrides, rules, spread
from firstlight.scenario.parts import (
    Assumed,
    Design,
    Facility,
    Policy,
    Pool,
    Precision,
    Slo,
    Table,
    Workload,
)
from firstlight.scenario.rules import Where

_GIVEN = "given in the scenario"


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
        assumptions: Overrides by name: number in SI units, word, truth value, "low..high" or a
            distribution.
        uncertain: Fields of the sections that were given as a range or a distribution, as "slo.ttft_s";
            the fields themselves hold its middle.
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
    uncertain: Table = msgspec.field(default_factory=Table)
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
        text = file.text(path)
        return cls.from_document(
            file.parsed(text, path=path), where=Where(file=str(path), text=text), base=path.parent
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
        uncertain = _centered(done)
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
            uncertain=Table(uncertain),
            first_token=done["first_token"],
            seed=done["seed"],
        )

    def document(self) -> dict[str, Any]:
        """Return the scenario as tables, lists, words and numbers, every field written out."""
        plain: dict[str, Any] = msgspec.to_builtins(self, builtin_types=())
        plain["design"] = [_present(design) for design in plain.pop("designs")]
        for section in rules.SECTIONS:
            plain[section] = _present(plain[section])
        for path, written in plain.pop("uncertain").items():
            section, _, field = path.partition(".")
            plain[section][field] = written
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
        known = overrides.overridable(designs) | dict(catalog.assumptions())
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
        elif key == "policy":
            done[key] = _present(value)
        else:
            done[key] = list(value) if isinstance(value, tuple) else value
    return done


def _centered(document: dict[str, Any]) -> dict[str, Any]:
    """Put the middle in place of each range or distribution of a section; return them by path."""
    found: dict[str, Any] = {}
    for section, fields in rules.SECTIONS.items():
        for name, rule in fields.items():
            written = document[section].get(name)
            if rule.unit is not None and spread.is_spread(written):
                found[f"{section}.{name}"] = written
                middle = overrides.spread_of(written, rule.unit).center
                document[section][name] = round(middle) if rule.whole else middle
    return found


def _given(written: Any, fact: catalog.Fact) -> Assumed:  # noqa: ANN401  # whatever an override is
    """Return an override as an assumption: the middle of a range or distribution, marked assumed."""
    low: float | None
    high: float | None
    value: catalog.Scalar = written
    word = isinstance(written, bool) or fact.unit in {"enum", "text"} or written == "ideal"
    if word:
        low = high = None
    else:
        low, high = overrides.span(written, fact.unit)
        if low != high:
            value = overrides.spread_of(written, fact.unit).center
    limits = None if low is None or high is None else (low, high)
    mine = catalog.Fact(
        value=value, unit=fact.unit, status=catalog.Status.ASSUMED, source=_GIVEN,
        date=fact.date, range=limits, note=f"in place of {fact.value!r} ({fact.status})",
    )  # fmt: skip
    return Assumed(value=value, low=low, high=high, fact=mine, given=True)
