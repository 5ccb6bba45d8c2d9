"""What happened to each request and on each replica, as tables and as a Chrome trace."""

from __future__ import annotations

import csv
import json
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from firstlight.errors import OutputError, ScheduleError
from firstlight.schedule.outcome import NEVER, STATES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from firstlight.schedule.fleet import Fleet
    from firstlight.schedule.outcome import Outcome

PS_PER_S = 1e12


def request_table(outcome: Outcome) -> dict[str, NDArray[Any]]:
    """Return one row a request: when it came, and what it waited for.

    ``queue_s`` is from arrival to first admission, ``prompt_s`` from there to the first token (a
    prefix that is read back and every chunk included), ``answer_s`` from the first token to the last
    (a hand-over and preemptions included). What did not happen is nan.

    Returns:
        Columns by name, each (requests,): arrival_s, isl_tok, osl_tok, state, queue_s, prompt_s,
        ttft_s, answer_s, tpot_s, e2e_s, preemptions.
    """
    asked = outcome.arrivals
    arrival_s, started_s, first_s, last_s = (
        np.where(times == NEVER, np.nan, times / PS_PER_S)
        for times in (outcome.arrival_ps, outcome.started_ps, outcome.first_ps, outcome.last_ps)
    )
    osl_tok = asked.osl_tok.astype(np.float64)
    answer_s = last_s - first_s
    with np.errstate(invalid="ignore", divide="ignore"):
        tpot_s = np.where(osl_tok > 1, answer_s / (osl_tok - 1), np.nan)
    return {
        "arrival_s": arrival_s,
        "isl_tok": asked.isl_tok,
        "osl_tok": asked.osl_tok,
        "state": np.array(STATES)[outcome.state],
        "queue_s": started_s - arrival_s,
        "prompt_s": first_s - started_s,
        "ttft_s": first_s - arrival_s,
        "answer_s": answer_s,
        "tpot_s": tpot_s,
        "e2e_s": last_s - arrival_s,
        "preemptions": outcome.preemptions,
    }


def write_table(outcome: Outcome, *, path: str | Path) -> Path:
    """Write `request_table` as CSV, or as Parquet where the name ends so and pyarrow is there.

    Raises:
        ScheduleError: Parquet is asked for without pyarrow, or the name ends otherwise.
    """
    path = Path(path)
    columns = request_table(outcome)
    if path.suffix == ".parquet":
        try:
            arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
        except ImportError as error:
            raise ScheduleError(f"{path}: Parquet needs pyarrow; .csv needs nothing") from error
        with _whole(path) as partial:
            parquet.write_table(arrow.table(columns), partial)
        return path
    if path.suffix != ".csv":
        raise ScheduleError(
            f"{path}: {path.suffix or 'no suffix'!r} is not allowed; .csv, .parquet"
        )
    with _whole(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
    return path


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """Give a file to write that becomes `path` when complete, and nothing when not."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        yield partial
        partial.replace(path)
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror or error}; nothing was written") from None
    finally:
        partial.unlink(missing_ok=True)


def power_w(outcome: Outcome, *, bin_s: float) -> dict[str, NDArray[np.float64]]:
    """Return busy share and power above idle over time, over all replicas.

    The energy of a step is spread evenly over its time.

    Returns:
        start_s, busy_replicas, power_w, each (bins,).

    Raises:
        ScheduleError: The run was not recorded.
    """
    timeline = _recorded(outcome)
    edges = np.arange(0.0, outcome.end_ps / PS_PER_S + bin_s, bin_s)
    start_s, end_s = timeline["start_ps"] / PS_PER_S, timeline["end_ps"] / PS_PER_S

    def over_time(rate: NDArray[np.float64]) -> NDArray[np.float64]:
        """Mean of a sum of rates, each on from start to end, in each bin."""
        times = np.concatenate([start_s, end_s])
        order = np.argsort(times, kind="stable")
        level = np.cumsum(np.concatenate([rate, -rate])[order])
        whole = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(times[order]))])
        mean: NDArray[np.float64] = np.diff(np.interp(edges, times[order], whole)) / bin_s
        return mean

    lasted_s = end_s - start_s
    return {
        "start_s": edges[:-1],
        "busy_replicas": over_time(np.ones_like(start_s)),
        "power_w": over_time(timeline["energy_j"] / lasted_s),
    }


def write_timeline(outcome: Outcome, *, fleet: Fleet, path: str | Path) -> Path:
    """Write a recorded run for chrome://tracing or Perfetto, a row a replica.

    Raises:
        ScheduleError: The run was not recorded.
    """
    timeline = _recorded(outcome)
    names = [f"{pool.name} {i}" for pool in fleet.pools for i in range(pool.replicas)]
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": tid, "args": {"name": name}}
        for tid, name in enumerate(names)
    ]
    columns = (timeline[name].tolist() for name in timeline)
    for replica, start, end, steps, prompt_tok, seqs, energy_j in zip(*columns, strict=True):
        kind = "decode" if not prompt_tok else "mixed" if seqs else "prefill"
        events.append(
            {
                "ph": "X",
                "name": kind,
                "pid": 0,
                "tid": replica,
                "ts": start / 1e6,
                "dur": (end - start) / 1e6,
                "args": {
                    "steps": steps,
                    "prompt_tok": prompt_tok,
                    "decode_seqs": seqs,
                    "energy_j": energy_j,
                },
            }
        )
    path = Path(path)
    with _whole(path) as partial:
        partial.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    return path


def _recorded(outcome: Outcome) -> dict[str, NDArray[Any]]:
    if outcome.timeline is None:
        raise ScheduleError("the run was not recorded; run(…, record=True) keeps a timeline")
    return outcome.timeline
