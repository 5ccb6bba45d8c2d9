"""Reading request traces. A malformed row is an error that names it; no row is ever skipped.

| format | columns |
|---|---|
| own CSV | arrival_s, isl_tok, osl_tok |
| Azure CSV | TIMESTAMP (date and time, any fraction, zone allowed), ContextTokens, GeneratedTokens |
| Vidur CSV | arrived_at [s], num_prefill_tokens, num_decode_tokens |
| lengths CSV | arrival_time_ns, input_toks, output_toks |
| Mooncake JSONL | timestamp [ms], input_length, output_length; other keys are ignored |
| packed | `.npz` as `firstlight trace convert` writes it |

`.gz` and `.zst` are unpacked by their suffix.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from firstlight.errors import TraceError, nearest
from firstlight.workload.trace import MAX_DURATION_S, MAX_TOK, PS_PER_S, Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_STAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,12}))?\s*(Z|z|[+-]\d\d:?\d\d)?"
)
_WHOLE = re.compile(r"[+-]?\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """Names of the three columns of a CSV format and how its times are read, to picoseconds."""

    time: str
    isl: str
    osl: str
    ps: Callable[[str], int]


@dataclass(slots=True)
class _Rows:
    """Values as they are read, with the line each came from."""

    where: str
    arrival_ps: list[int]
    isl: list[int]
    osl: list[int]
    lines: list[int]

    def add(self, line: int, *, arrival_ps: int, isl: int, osl: int) -> None:
        self.arrival_ps.append(arrival_ps)
        self.isl.append(isl)
        self.osl.append(osl)
        self.lines.append(line)


def read_trace(
    path: str | Path,
    *,
    sort: bool = False,
    duration_s: float | None = None,
    name: str | None = None,
) -> Trace:
    """Read a request trace; the format is found from the suffix and the header.

    Args:
        path: A file; see the table of this module.
        sort: Accept times that are out of order and sort them; equal times keep their order.
        duration_s: Length of the trace; None: the last arrival and one mean gap [s].
        name: Name of the trace; None: the file's.

    Raises:
        TraceError: When the file cannot be read, is empty, or a row is malformed: the message names
            file, row, column, what was given and what is allowed.
    """
    file = Path(path)
    where = str(path)
    suffixes = [suffix.lower() for suffix in file.suffixes]
    label = name or file.name.partition(".")[0] or where
    if suffixes[-1:] == [".npz"]:
        return _read_packed(file, where=where, name=label)
    text = _text(_unpacked(file, where=where), where=where)
    if not text.strip():
        raise TraceError(f"{where}: the file is empty; a header and at least one request")
    is_json = any(suffix in (".jsonl", ".ndjson", ".json") for suffix in suffixes[-2:])
    if is_json or text.lstrip().startswith("{"):
        rows = _read_jsonl(text, where=where)
    else:
        rows = _read_csv(text, where=where)
    return _trace(rows, sort=sort, duration_s=duration_s, name=label)


def _unpacked(file: Path, *, where: str) -> bytes:
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise TraceError(f"{where}: cannot be read: {error.strerror or error}") from error
    suffix = file.suffix.lower()
    if suffix == ".gz":
        try:
            return gzip.decompress(raw)
        except (OSError, EOFError, zlib.error) as error:
            raise TraceError(f"{where}: is not a whole gzip file: {error}") from error
    if suffix in (".zst", ".zstd"):
        return _unpacked_zstd(raw, where=where)
    return raw


def _unpacked_zstd(raw: bytes, *, where: str) -> bytes:
    try:
        import zstandard  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise TraceError(
            f"{where}: reading .zst needs the package zstandard (pip install 'firstlight[zstd]')"
        ) from error
    parts: list[bytes] = []
    rest = raw
    while rest or not parts:
        frame = zstandard.ZstdDecompressor().decompressobj()
        try:
            parts.append(frame.decompress(rest))
        except zstandard.ZstdError as error:
            raise TraceError(f"{where}: is not a whole zstd file: {error}") from error
        # A file cut between two blocks decompresses without complaint and would lose its last rows.
        if not frame.eof:
            raise TraceError(f"{where}: is not a whole zstd file: it ends inside a frame")
        rest = frame.unused_data
    return b"".join(parts)


def _text(raw: bytes, *, where: str) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = raw.count(b"\n", 0, error.start) + 1
        raise TraceError(
            f"{where}, row {row}: byte {raw[error.start]:#04x} is not UTF-8 text; allowed: UTF-8"
        ) from error


def _read_csv(text: str, *, where: str) -> _Rows:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    lines = _csv_lines(reader, where=where)
    number, header = next(lines)
    columns, places = _header(header, where=where, number=number)
    rows = _Rows(where, [], [], [], [])
    blank = 0
    for number, cells in lines:
        if not cells:
            blank = blank or number
            continue
        if blank:
            raise TraceError(f"{where}, row {blank}: the row is blank; allowed: only at the end")
        if len(cells) != len(header):
            raise TraceError(
                f"{where}, row {number}: {len(cells)} columns; allowed: {len(header)} as in the header"
            )
        rows.add(
            number,
            arrival_ps=_cell(columns.ps, cells[places[0]], where, number, columns.time),
            isl=_cell(_count, cells[places[1]], where, number, columns.isl),
            osl=_cell(_count, cells[places[2]], where, number, columns.osl),
        )
    return rows


def _csv_lines(reader: Any, *, where: str) -> Iterator[tuple[int, list[str]]]:  # noqa: ANN401
    """Every row with its line number; a broken quote is an error of that row."""
    while True:
        # a quote that is never closed swallows the rest: the row where it was opened is at fault
        begun = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            open_quote = "unexpected end of data" in str(error)
            said = "a quote is never closed; allowed: quotes in pairs" if open_quote else error
            raise TraceError(f"{where}, row {begun}: {said}") from error
        yield reader.line_num, cells


def _header(header: list[str], *, where: str, number: int) -> tuple[_Columns, tuple[int, int, int]]:
    names = [cell.strip().lower() for cell in header]
    for columns in _FORMATS:
        wanted = [columns.time.lower(), columns.isl.lower(), columns.osl.lower()]
        if all(names.count(name) == 1 for name in wanted):
            return columns, (names.index(wanted[0]), names.index(wanted[1]), names.index(wanted[2]))
    allowed = "; ".join(f"{c.time},{c.isl},{c.osl}" for c in _FORMATS)
    known = [name for c in _FORMATS for name in (c.time, c.isl, c.osl)]
    strange = next((cell for cell in header if cell.strip() not in known), "")
    raise TraceError(
        f"{where}, row {number}: the header {','.join(header)[:80]!r} is unknown; allowed (more "
        f"columns may follow): {allowed}{nearest(strange, known)}"
    )


def _read_jsonl(text: str, *, where: str) -> _Rows:
    rows = _Rows(where, [], [], [], [])
    blank = 0
    for number, line in enumerate(io.StringIO(text), start=1):
        if not line.strip():
            blank = blank or number
            continue
        if blank:
            raise TraceError(f"{where}, row {blank}: the row is blank; allowed: only at the end")
        item = _json_object(line, where=where, number=number)
        values = []
        for key, parse in (
            ("timestamp", _json_ms),
            ("input_length", _json_count),
            ("output_length", _json_count),
        ):
            if key not in item:
                raise TraceError(
                    f"{where}, row {number}: has no {key!r}; allowed: timestamp [ms], input_length, "
                    f"output_length{nearest(key, item)}"
                )
            values.append(_cell(parse, item[key], where, number, key))
        rows.add(number, arrival_ps=values[0], isl=values[1], osl=values[2])
    return rows


def _json_object(line: str, *, where: str, number: int) -> dict[str, Any]:
    try:
        item = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{where}, row {number}: is not JSON: {error}") from error
    if not isinstance(item, dict):
        raise TraceError(f"{where}, row {number}: {line.strip()[:40]!r} is not a JSON object")
    return item


def _read_packed(file: Path, *, where: str, name: str) -> Trace:
    """Read the compact form: gaps between arrivals in whole ticks, and lengths."""
    try:
        with np.load(file, allow_pickle=False) as packed:
            tick_ps, gaps = int(packed["tick_ps"]), packed["gap_ticks"].astype(np.uint64)
            isl, osl = packed["isl_tok"].astype(np.int64), packed["osl_tok"].astype(np.int64)
            duration_s, source = float(packed["duration_s"]), str(packed["source"])
    except OSError as error:
        raise TraceError(f"{where}: cannot be read: {error.strerror or error}") from error
    except (KeyError, ValueError, TypeError, EOFError, zlib.error, BadZipFile) as error:
        raise TraceError(f"{where}: is not a packed trace: {error}") from error
    arrival_ps = np.cumsum(gaps) * np.uint64(tick_ps)
    return Trace(
        arrival_s=arrival_ps / PS_PER_S,
        isl_tok=isl,
        osl_tok=osl,
        duration_s=duration_s,
        name=name,
        source=source,
    )


def _trace(rows: _Rows, *, sort: bool, duration_s: float | None, name: str) -> Trace:
    if not rows.lines:
        raise TraceError(f"{rows.where}: has a header but no request; at least one")
    first = min(rows.arrival_ps)
    span = [time - first for time in rows.arrival_ps]
    limit = int(MAX_DURATION_S) * PS_PER_S
    far = next((i for i, time in enumerate(span) if time > limit), None)
    if far is not None:
        raise TraceError(
            f"{rows.where}, row {rows.lines[far]}: comes {span[far] / PS_PER_S:.3g} s after the first "
            f"request; allowed: at most {MAX_DURATION_S:g} s"
        )
    times = np.array(span, dtype=np.int64)
    order = np.argsort(times, kind="stable") if sort else np.arange(len(times))
    late = np.flatnonzero(np.diff(times[order]) < 0)
    if late.size:
        at = int(late[0]) + 1
        raise TraceError(
            f"{rows.where}, row {rows.lines[at]}: comes {(times[at - 1] - times[at]) / PS_PER_S:g} s "
            "before the row above; allowed: rows in order of time, or sort=True (--sort)"
        )
    return Trace.from_arrivals(
        times[order] / PS_PER_S,
        isl_tok=np.array(rows.isl, dtype=np.int64)[order],
        osl_tok=np.array(rows.osl, dtype=np.int64)[order],
        duration_s=duration_s,
        name=name,
        source=rows.where,
    )


def _cell(parse: Callable[[Any], int], value: object, where: str, number: int, column: str) -> int:
    try:
        return parse(value)
    except ValueError as error:
        raise TraceError(
            f"{where}, row {number}, column {column}: {str(value)[:40]!r} is not allowed; {error}"
        ) from None


def _count(text: str) -> int:
    value = text.strip()
    if not _WHOLE.fullmatch(value) or len(value) > 20 or not 1 <= int(value) <= MAX_TOK:
        raise ValueError(f"a whole number of tokens, 1 to {MAX_TOK}")
    return int(value)


def _json_count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_TOK:
        raise ValueError(f"a whole number of tokens, 1 to {MAX_TOK}")
    return value


def _decimal_ps(text: str, *, ps_per_unit: int, unit: str) -> int:
    """Read a decimal number exactly; float would lose picoseconds on an epoch clock."""
    try:
        value = Decimal(text.strip())
    except InvalidOperation:
        raise ValueError(f"a finite time in {unit}") from None
    # Epoch clocks in seconds are near 1e9; the sign and size are checked against the first row.
    if not value.is_finite() or value.adjusted() > 18:
        raise ValueError(f"a finite time in {unit}, below 1e19")
    return int((value * ps_per_unit).to_integral_value())


def _seconds_ps(text: str) -> int:
    return _decimal_ps(text, ps_per_unit=PS_PER_S, unit="s")


def _nanoseconds_ps(text: str) -> int:
    return _decimal_ps(text, ps_per_unit=1000, unit="ns")


def _json_ms(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("a finite time in ms")  # noqa: TRY004 (becomes a TraceError)
    return _decimal_ps(repr(value), ps_per_unit=10**9, unit="ms")


def _stamp_ps(text: str) -> int:
    found = _STAMP.fullmatch(text.strip())
    what = "a date and time such as 2023-11-16 18:15:46.6805900, zone allowed"
    if not found:
        raise ValueError(what)
    day, hour, minute, second, fraction, zone = found.groups()
    if int(hour) > 23 or int(minute) > 59 or int(second) > 59:
        raise ValueError(what)
    try:
        midnight = _midnight_s(day, zone or "Z")
    except ValueError:
        raise ValueError(what) from None
    seconds = midnight + int(hour) * 3600 + int(minute) * 60 + int(second)
    return seconds * PS_PER_S + int((fraction or "0").ljust(12, "0"))


@lru_cache(maxsize=64)
def _midnight_s(day: str, zone: str) -> int:
    """Seconds since 1970 of a day's start in its zone; without a zone it is read as UTC."""
    offset = UTC if zone in "Zz" else timezone(_offset(zone))
    year, month, date = (int(part) for part in day.split("-"))
    start = datetime(year, month, date, tzinfo=offset)
    return (start - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)


def _offset(zone: str) -> timedelta:
    digits = zone[1:].replace(":", "")
    if int(digits[2:]) > 59:
        raise ValueError(zone)
    size = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return -size if zone[0] == "-" else size


_FORMATS = (
    _Columns(time="arrival_s", isl="isl_tok", osl="osl_tok", ps=_seconds_ps),
    _Columns(time="TIMESTAMP", isl="ContextTokens", osl="GeneratedTokens", ps=_stamp_ps),
    _Columns(time="arrived_at", isl="num_prefill_tokens", osl="num_decode_tokens", ps=_seconds_ps),
    _Columns(time="arrival_time_ns", isl="input_toks", osl="output_toks", ps=_nanoseconds_ps),
)
