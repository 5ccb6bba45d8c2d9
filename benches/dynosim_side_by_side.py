"""The Azure conversation hour through firstlight and through NVIDIA's DynoSim, in one run.

    python -m venv /somewhere/dynosim && /somewhere/dynosim/bin/pip install ai-dynamo==1.3.1
    python benches/dynosim_side_by_side.py --dynosim /somewhere/dynosim/bin/python

One prefill and one decode worker with REF-AFFINE times (`tests/data/SOURCES.md`): both get the same
requests and the same law of step times. CPU time is compared, of the simulation alone: neither
start-up nor writing a report counts. DynoSim runs once, at the fastest of the settings tried that
give the same answers (its prefix cache on, where no prompt shares anything, and 100,000 blocks);
firstlight runs several times, and the median counts. Its time does include reading the trace, which
is under 1 % of it. Without DynoSim its stored answers stand in, and there is no ratio.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from firstlight import schedule
from firstlight.steps import StepTable

STORED = Path(__file__).parents[1] / "tests" / "data" / "dynosim-1p1d.npz"
BAR = 1000.0
MAX_TOK, MAX_SEQS = 8192, 512
BY_DECODE: Any = {"first_token": "decode"}
STEP_MS, TOKEN_MS, CONTEXT_MS = 13.5, 0.0643, 2.72e-5
KV_BYTES, LINK_GB_PER_S, BLOCK_TOK, UNIT_TOK = 327_680, 50.0, 16, 512

PEER = """
import json, sys, time
from dynamo.mocker import MockEngineArgs
from dynamo.replay import run_trace_replay
trace, times, kv_bytes, gb_per_s = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
workers = {
    f"{role}_engine_args": MockEngineArgs(
        worker_type=role, block_size=16, num_gpu_blocks=100_000, max_num_seqs=256,
        max_num_batched_tokens=8192, kv_bytes_per_token=kv_bytes, kv_transfer_bandwidth=gb_per_s,
        planner_profile_data=times,
    )
    for role in ("prefill", "decode")
}
wall_s, cpu_s = time.perf_counter(), time.process_time()
report = run_trace_replay(trace, num_prefill_workers=1, num_decode_workers=1, **workers)
cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
names = ("median_ttft_ms", "p99_ttft_ms", "median_e2e_latency_ms", "p99_e2e_latency_ms")
print("answer", json.dumps({"cpu_s": cpu_s, "wall_s": wall_s, **{n: report[n] for n in names}}))
"""


def table(*, token_ps: int) -> StepTable:
    """Return REF-AFFINE times with so much a prompt token."""
    by_tok, by_seq = np.zeros(MAX_TOK + 1, np.uint64), np.zeros(MAX_SEQS + 1, np.uint64)
    linear = (round(STEP_MS * 1e9) + token_ps * np.arange(MAX_TOK + 1)).astype(np.uint64)
    linear[0] = 0
    return StepTable(
        linear_ps=linear,
        head_ps=by_seq,
        prefill_attn_floor_ps=0,
        prefill_attn_pair_fs=by_tok,
        decode_attn_floor_ps=by_seq,
        decode_attn_ctx_ps=np.full(MAX_SEQS + 1, round(CONTEXT_MS * 1e9), np.uint64),
        mix_1024=1024,
        linear_pj=by_tok,
        head_pj=by_seq,
        prefill_attn_pair_fj=by_tok,
        decode_attn_floor_pj=by_seq,
        decode_attn_ctx_pj=by_seq,
    )


def fleet(*, imitate: bool) -> schedule.Fleet:
    """Return one prefill and one decode worker."""
    pools = tuple(
        schedule.Pool(
            name=role, role=role, replicas=1, table=table(token_ps=token_ps),
            token_budget=budget, max_seqs=256, kv_blocks=10**6,
        )
        for role, token_ps, budget in (
            ("prefill", round(TOKEN_MS * 1e9), 8192),
            ("decode", 0, 512),
        )
    )  # fmt: skip
    link_tok_ps = round(KV_BYTES / LINK_GB_PER_S * 1e3)
    return schedule.Fleet(
        pools=pools, link_tok_ps=link_tok_ps, imitate_dynosim=imitate, **BY_DECODE
    )


def ours(arrivals: schedule.Arrivals, *, imitate: bool, runs: int) -> tuple[Any, list[float]]:
    """Return an outcome and the CPU times of all runs, sorted [s]."""
    where, times_s = fleet(imitate=imitate), []
    for _ in range(runs):
        start_s = time.process_time()
        outcome = schedule.run(where, arrivals)
        times_s.append(time.process_time() - start_s)
    return outcome, sorted(times_s)


def peer(python: str, stored: dict[str, Any], count: int) -> dict[str, float] | None:
    """Return what DynoSim says and took; None, after saying why, when it cannot be run."""
    try:
        found = subprocess.run(
            [python, "-c", "import dynamo.mocker, dynamo.replay"], check=False, capture_output=True,
            text=True,
        )  # fmt: skip
    except OSError as error:
        print(f"DynoSim: {python}: {error.strerror}; allowed: a Python with ai-dynamo")
        return None
    if found.returncode:
        why = found.stderr.strip().splitlines()[-1]
        print(f"DynoSim is not there: {python}: {why}")
        print("  to have it: pip install ai-dynamo==1.3.1 in its own environment, then --dynosim")
        return None
    with tempfile.TemporaryDirectory() as folder:
        trace, times = Path(folder) / "hour.jsonl", Path(folder) / "times.npz"
        write_trace(trace, stored, count)
        write_times(times)
        ran = subprocess.run(
            [python, "-c", PEER, trace, times, str(KV_BYTES), str(LINK_GB_PER_S)],
            check=False, capture_output=True, text=True,
        )  # fmt: skip
    lines = [line for line in ran.stdout.splitlines() if line.startswith("answer ")]
    if ran.returncode or not lines:
        print(f"DynoSim failed with status {ran.returncode}: {ran.stderr.strip()[-300:]}")
        return None
    answer: dict[str, float] = json.loads(lines[0].removeprefix("answer "))
    return answer


def write_trace(path: Path, stored: dict[str, Any], count: int) -> None:
    """Write requests as Mooncake does, no two with a unit in common."""
    fresh = 0
    with path.open("w") as file:
        for at in range(count):
            isl = int(stored["isl_tok"][at])
            units = -(-isl // UNIT_TOK)
            row = {
                "timestamp": float(stored["arrival_us"][at]) / 1e3,
                "input_length": isl,
                "output_length": int(stored["osl_tok"][at]),
                "hash_ids": list(range(fresh, fresh + units)),
            }
            file.write(json.dumps(row) + "\n")
            fresh += units


def write_times(path: Path) -> None:
    """Write REF-AFFINE as the two points and the plane that DynoSim interpolates in."""
    isl, context = np.array([1.0, 16384.0]), np.array([0.0, 4e6])
    itl = STEP_MS + CONTEXT_MS * context
    np.savez(
        path, prefill_isl=isl, prefill_ttft_ms=STEP_MS + TOKEN_MS * isl,
        decode_active_kv_tokens=context, decode_context_length=np.array([1.0, 20000.0]),
        decode_itl=np.stack([itl, itl], axis=1),
    )  # fmt: skip


def main() -> int:
    """Run both and print; status 1 when the ratio was measured and is below the bar."""
    parser = argparse.ArgumentParser(description="The Azure hour: firstlight beside DynoSim")
    parser.add_argument("--dynosim", default=sys.executable, help="a Python that has ai-dynamo")
    parser.add_argument("--requests", type=int, help="only the first so many")
    parser.add_argument("--runs", type=int, default=7, help="of firstlight")
    asked = parser.parse_args()
    with np.load(STORED) as archive:
        stored = {name: archive[name] for name in archive.files}
    whole = len(stored["isl_tok"])
    count = whole if asked.requests is None else asked.requests
    if not (1 <= count <= whole and asked.runs >= 1):
        print(f"--requests {count} --runs {asked.runs}: 1 to {whole}, and 1 or more")
        return 2
    isl = stored["isl_tok"][:count].astype(np.uint32)
    arrivals = schedule.Arrivals(
        arrival_ps=stored["arrival_us"][:count].astype(np.uint64) * 10**6,
        isl_tok=isl, cached_tok=np.zeros_like(isl),
        osl_tok=stored["osl_tok"][:count].astype(np.uint32),
    )  # fmt: skip
    tokens = int(arrivals.osl_tok.sum())
    print(f"{count:,} requests, {tokens:,} generated tokens, REF-AFFINE, 1 prefill + 1 decode\n")
    medians_s = {}
    for imitate, name in ((True, "its rules"), (False, "our rules")):
        outcome, times_s = ours(arrivals, imitate=imitate, runs=asked.runs)
        medians_s[name] = times_s[len(times_s) // 2]
        print(
            f"firstlight, {name}: {medians_s[name] * 1e3:.1f} ms of CPU time, "
            f"{times_s[0] * 1e3:.1f} to {times_s[-1] * 1e3:.1f} over {asked.runs} runs"
        )
        if imitate:
            answers = outcome
    theirs = peer(asked.dynosim, stored, count)
    if theirs:
        print(
            f"DynoSim: {theirs['cpu_s']:.2f} s of CPU time, {theirs['wall_s']:.2f} s of the clock"
        )
    print()
    compare(answers, theirs, stored if count == whole else None)
    if theirs is None:
        print("\nratio: not measured")
        return 0
    ratios = {name: theirs["cpu_s"] / median_s for name, median_s in medians_s.items()}
    print()
    for name, ratio in ratios.items():
        print(f"ratio of CPU times, {name}: {ratio:,.0f}; bar {BAR:,.0f}")
    return 0 if max(ratios.values()) >= BAR or count < whole else 1


def compare(answers: Any, theirs: dict[str, float] | None, stored: dict[str, Any] | None) -> None:
    """Print both sides' times, and differences request by request where they are stored."""
    for short, long, name, when in (
        ("ttft", "ttft", "first token", answers.first_ps),
        ("e2e", "e2e_latency", "last token", answers.last_ps),
    ):
        took_ms = (when - answers.arrival_ps) / 1e9
        for mark, share in (("median", 0.5), ("p99", 0.99)):
            line = f"{name}, {mark:6}: here {np.quantile(took_ms, share):10,.3f} ms"
            if theirs:
                line += f", DynoSim {theirs[f'{mark}_{long}_ms']:10,.3f} ms"
            print(line)
        if stored:
            difference = np.abs(took_ms - stored[f"{short}_ns"] / 1e6)
            print(
                f"{name}, request by request beside stored answers: median "
                f"{np.median(difference):.5f} ms, 99 % {np.quantile(difference, 0.99):.1f} ms"
            )


if __name__ == "__main__":
    sys.exit(main())
