"""What is on the screen as files: TOML, CSV, JSON, SVG, Markdown. Written whole or not at all."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

from firstlight.errors import OutputError
from firstlight.tui.answer import Answer, Tier
from firstlight.tui.field import FIELDS
from firstlight.tui.metric import METRICS, PARTS
from firstlight.tui.number import written
from firstlight.tui.present import Known, note, state_words, summary, title_of
from firstlight.tui.state import share, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable

SUFFIXES = (".toml", ".csv", ".json", ".svg", ".md")


def tier_word(answer: Answer) -> str:
    """Return how an answer was found, for files."""
    return {Tier.ANALYTIC: "closed form", Tier.COARSE: "coarse simulation", Tier.FULL: "simulated"}[
        answer.tier
    ]


def as_json(known: Known) -> str:
    """Return setup, answer and sources as one JSON document in SI units."""
    answer = known.answer
    document = {
        "schema": 1,
        "share": share(known.setup),
        "scope": known.scope,
        "tier": tier_word(answer) if answer else None,
        "designs": [
            {
                "name": d.name,
                "feasible": d.is_feasible,
                "reason": d.reason or None,
                "metrics": {m.at(known.scope): m.value(d, known.scope) for m in METRICS},
                "status": dict(d.status),
                "band": {path: list(ends) for path, ends in d.band.items()},
                "energy_j_per_request_by_part": dict(d.energy_j_by_part),
                "binding": [
                    {"resource": b.resource, "pool": b.pool, "marginal": b.gain} for b in d.binding
                ],
                "gpu_equivalents_freed": d.gpu_equivalents_freed,
            }
            for d in (answer.designs if answer else ())
        ],
        "provenance": [
            {
                "path": c.path, "value": c.value, "unit": c.unit, "status": c.status,
                "source": c.source, "date": c.date, "note": c.note,
            }
            for c in (answer.citations if answer else ())
        ],
        "warnings": list(answer.warnings if answer else ()),
    }  # fmt: skip
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def as_csv(known: Known) -> str:
    """Return the table and the curves as CSV in SI units."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["kind", "design", "metric", "unit", "x_field", "x", "value", "status", "tier"])
    answer = known.answer
    for d in answer.designs if answer else ():
        for m in METRICS:
            path = m.at(known.scope)
            value = m.value(d, known.scope)
            writer.writerow(
                ["point", d.name, path, m.unit, "", "", "" if value is None else repr(value),
                 d.status.get(path, ""), tier_word(answer) if answer else ""]
            )  # fmt: skip
    curve = known.curve
    if curve is not None:
        path = known.metric.at(known.scope)
        for x, each in zip(curve.xs.tolist(), curve.answers, strict=True):
            for d in each.designs if each else ():
                value = d.value(path)
                writer.writerow(
                    ["curve", d.name, path, known.metric.unit, curve.key, repr(x),
                     "" if value is None else repr(value), d.status.get(path, ""), "closed form"]
                )  # fmt: skip
    return buffer.getvalue()


def table_rows(known: Known) -> list[list[str]]:
    """Return the headline as text: a heading row, then one row a metric."""
    answer = known.answer
    if answer is None:
        return []
    rows = [["metric", *(d.label for d in answer.designs), "best"]]
    for m in METRICS:
        best = m.best(answer, known.scope)
        values = [written(m.value(d, known.scope), m.unit) for d in answer.designs]
        name = answer.designs[best].label if best is not None else "-"
        rows.append([title_of(m, known.scope), *values, name])
    return rows


def as_table(known: Known) -> str:
    """Return the headline as a Markdown table."""
    rows = table_rows(known)
    if not rows:
        return "no answer yet\n"
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join(lines) + "\n"


def as_markdown(known: Known) -> str:
    """Return a report: question, table, energy, what binds, assumptions, sources."""
    answer = known.answer
    state, _ = state_words(known)
    lines = [
        f"# {summary(known.setup)}",
        "",
        f"`{share(known.setup)}`",
        "",
        f"Numbers: {state}.",
        "",
    ]
    if answer is not None:
        lines += [f"> {warning}" for warning in answer.warnings]
        lines += ["", as_table(known), note(known), "", "## Energy a request by part", ""]
        heads = [label for _, label, _ in PARTS]
        lines += ["| design | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
        for d in answer.designs:
            parts = [written(d.energy_j_by_part.get(key), "J") for key, _, _ in PARTS]
            lines.append(f"| {d.label} | " + " | ".join(parts) + " |")
        lines += ["", "## What binds", ""]
        for b in answer.designs[-1].binding:
            lines.append(f"- {b.resource} ({b.pool}): +5 % gives {b.gain * 5:+.1f} % goodput")
    lines += [
        "",
        "## Assumptions",
        "",
        "| control | value | status | source |",
        "|---|---|---|---|",
    ]
    for f in FIELDS:
        value = known.setup[f.key]
        is_set = value != known.home[f.key]
        status, source = ("set by you", "") if is_set else (f.status, f.source)
        lines.append(f"| {f.label} | {f.shown(value)} | {status} | {source} |")
    if answer is not None and answer.citations:
        lines += ["", "## Sources", ""]
        lines += [
            f"- {c.path} = {written(c.value, '')} {c.unit}: {c.status}, {c.source} {c.date} {c.note}".rstrip()
            for c in answer.citations
        ]
    return "\n".join(lines) + "\n"


def as_text(known: Known) -> str:
    """Return the table as plain lines, one number a line, for readers and for speech."""
    state, _ = state_words(known)
    lines = [summary(known.setup), f"numbers: {state}"]
    answer = known.answer
    if answer is not None:
        lines += [f"warning: {w}" for w in answer.warnings]
        for m in METRICS:
            best = m.best(answer, known.scope)
            for i, d in enumerate(answer.designs):
                value = written(m.value(d, known.scope), m.unit)
                mark = ", best" if i == best else ""
                status = d.status.get(m.at(known.scope), "unknown")
                lines.append(f"{title_of(m, known.scope)}, {d.label}: {value} ({status}{mark})")
        for d in answer.designs:
            if not d.is_feasible:
                lines.append(f"{d.label} is impossible: {d.reason}")
        for b in answer.designs[-1].binding[:1]:
            lines.append(f"{answer.designs[-1].label} is bound by {b.resource} ({b.pool})")
    said = note(known)
    if said:
        lines.append(said)
    lines.append(share(known.setup))
    return "\n".join(lines) + "\n"


def checked_path(text: str) -> Path:
    """Return the path of an export.

    Raises:
        OutputError: The ending names no format.
    """
    path = Path(text.strip()).expanduser()
    if path.suffix.lower() not in SUFFIXES:
        msg = f"{text.strip()!r} has no known ending; allowed: {', '.join(SUFFIXES)}"
        raise OutputError(msg)
    return path


def write(path: Path, known: Known, *, svg: Callable[[], str]) -> None:
    """Write what is known to a file whose ending names the format.

    Args:
        path: With one of `SUFFIXES`.
        known: What is on the screen.
        svg: Makes the picture of the screen.

    Raises:
        OutputError: It cannot be written; nothing is left behind.
    """
    from firstlight.tui import scenario_file

    makers: dict[str, Callable[[], str]] = {
        ".toml": lambda: scenario_file.text_of(known.setup),
        ".csv": lambda: as_csv(known),
        ".json": lambda: as_json(known),
        ".svg": svg,
        ".md": lambda: as_markdown(known),
    }
    write_whole(path, makers[path.suffix.lower()]())
