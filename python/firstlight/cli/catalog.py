"""`firstlight catalog`: the facts behind every number, with their sources."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

    from firstlight.catalog import Fact, Record

_WIDTH = 80
_KEY_WIDTH, _VALUE_WIDTH = 34, 15


@click.group("catalog")
def command() -> None:
    """Print facts with unit, source, status and date."""


@command.command("list")
@click.option("--kind", "-k", help="Only this kind, such as device, server, engine or model.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_records(*, kind: str | None, as_json: bool) -> None:
    """List the records; what is missing for a simulation is named."""
    from firstlight import catalog

    kinds = (kind,) if kind else catalog.kinds()
    records = [record for each in kinds for record in catalog.records(each)]
    if as_json:
        _print_json({"records": [_summary(record) for record in records]})
        return
    for each in kinds:
        of_kind = [record for record in records if record.kind == each]
        click.echo(f"{each} ({len(of_kind)})")
        for record in of_kind:
            _print_summary(record)
    click.echo("\nfirstlight catalog show ID prints the facts with their sources.", err=True)


@command.command("show")
@click.argument("identifier", metavar="ID")
@click.option("--kind", "-k", help="Only this kind; without it, every kind that has the id.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def show(identifier: str, *, kind: str | None, as_json: bool) -> None:
    """Print the facts of ID; several kinds may have one id."""
    records = _find(identifier, kind)
    if as_json:
        _print_json({"records": [_full(record) for record in records]})
        return
    for position, record in enumerate(records):
        if position:
            click.echo()
        _print_record(record)


def _find(identifier: str, kind: str | None) -> list[Record]:
    """Return the records of this id.

    Raises:
        CatalogError: There is none; the message names the nearest.
    """
    from firstlight import catalog
    from firstlight.errors import CatalogError, choices

    kinds = (kind,) if kind else catalog.kinds_of(identifier)
    if kinds:
        return [catalog.get(identifier, kind=each) for each in kinds]
    known = [name for each in catalog.kinds() for name in catalog.ids(each)]
    hint = choices(identifier, dict.fromkeys(known), see="firstlight catalog list")
    raise CatalogError(f"unknown id {identifier!r}{hint}")


def _print_json(document: dict[str, Any]) -> None:
    click.echo(json.dumps({"schema": 1} | document, indent=2, ensure_ascii=False))


def _summary(record: Record) -> dict[str, Any]:
    return {
        "id": record.id, "kind": record.kind, "name": record.name, "facts": len(record.facts),
        "complete": record.complete, "missing": record.missing,
    }  # fmt: skip


def _full(record: Record) -> dict[str, Any]:
    facts = {
        key: {
            "value": fact.value, "unit": fact.unit, "status": fact.status, "source": fact.source,
            "date": fact.date, "range": fact.range, "note": fact.note,
        }
        for key, fact in record.facts.items()
    }  # fmt: skip
    return _summary(record) | {"facts": facts, "unknown": record.unknown}


def _print_summary(record: Record) -> None:
    head = f"  {record.id:26} {record.name}"
    click.echo(head if len(head) <= _WIDTH else f"{head[: _WIDTH - 1]}…")
    if record.missing:
        _print_wrapped(f"incomplete; missing: {', '.join(record.missing)}", indent=29)


def _print_wrapped(text: str, *, indent: int) -> None:
    margin = " " * indent
    for line in textwrap.wrap(
        text, _WIDTH, initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False
    ):
        click.echo(line)


def _print_record(record: Record) -> None:
    click.echo(f"{record.id}  ({record.kind})")
    _print_wrapped(record.name, indent=0)
    if record.missing:
        _print_wrapped(f"incomplete; missing: {', '.join(record.missing)}", indent=0)
    if record.unknown:
        _print_wrapped(f"looked for and not found: {', '.join(record.unknown)}", indent=0)
    sources = list(dict.fromkeys(fact.source for fact in record.facts.values()))
    click.echo()
    click.echo(f"  {'fact':34} {'value':>15}  {'status':9} {'from':>5} date")
    for key, fact in record.facts.items():
        _print_fact(key, fact, number=sources.index(fact.source) + 1)
    click.echo()
    _print_sources(sources)


def _print_fact(key: str, fact: Fact, *, number: int) -> None:
    value = str(fact.value) if key == "year" else _value(fact)
    tail = f"  {fact.status:9} {f'[{number}]':>5} {fact.date}"
    if len(key) > _KEY_WIDTH or len(value) > _VALUE_WIDTH:
        _print_wrapped(f"{key} {value}", indent=2)
        click.echo(" " * (3 + _KEY_WIDTH + _VALUE_WIDTH) + tail)
    else:
        click.echo(f"  {key:{_KEY_WIDTH}} {value:>{_VALUE_WIDTH}}{tail}")
    _print_wrapped(_remarks(fact), indent=6)


def _remarks(fact: Fact) -> str:
    parts = [fact.note] if fact.note else []
    if fact.range is not None:
        low, high = (_number(end, fact.unit) for end in fact.range)
        parts.insert(0, f"range {low} to {high}")
    return "; ".join(parts)


def _print_sources(sources: Iterable[str]) -> None:
    click.echo("sources")
    for number, source in enumerate(sources, 1):
        lines = textwrap.wrap(source, _WIDTH - 7, break_on_hyphens=False)
        for position, line in enumerate(lines):
            click.echo(f"  {f'[{number}]' if position == 0 else '':>4} {line}".rstrip())


def _number(value: float, unit: str) -> str:
    from firstlight.units import format_si

    if isinstance(value, int) and unit in {"1", "tok", "usd", "byte/tok"}:
        name = {"1": "", "tok": " tok", "usd": " $", "byte/tok": " B/tok"}[unit]
        return f"{value:,}{name}"
    return format_si(value, unit, digits=4)


def _value(fact: Fact) -> str:
    """Return a value as people read it."""
    if isinstance(fact.value, bool):
        return "yes" if fact.value else "no"
    if isinstance(fact.value, tuple):
        return ", ".join(_number(item, fact.unit) for item in fact.value)
    if isinstance(fact.value, str):
        return fact.value
    return _number(fact.value, fact.unit)
