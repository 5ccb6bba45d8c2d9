"""Fit the serving-stack constants of `firstlight.roofline.stack` and score the rows kept apart.

    python tools/fit_stacks.py DATA

DATA holds ``mlenergy_v3`` and ``splitwise_perf`` (docs/roofline.md). Rows that score a published
bar are never fitted: they are listed in `SCORED` and `SPLITWISE_SCORED`. The fit is
written beside the tables; its score is printed.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from firstlight.models import load
from firstlight.roofline.device import device
from firstlight.roofline.stack import FILE, Stack
from firstlight.roofline.step import bare_step_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from firstlight.steps import StepTable

SERVED = {  # model as published -> catalog id
    "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "meta-llama/Llama-3.1-70B-Instruct": "llama-3.1-70b",
    "meta-llama/Llama-3.3-70B-Instruct": "llama-3.3-70b",
    "Qwen/Qwen3-8B": "qwen3-8b",
}
GPUS = {"H100": "h100-sxm", "B200": "b200"}
SCORED = {("llama-3.1-8b", "h100-sxm", 128), ("llama-3.1-70b", "h100-sxm", 8)}
FITTED_TO_BATCH = 256
CONTEXT_LIMIT_TOK = 650
"""Mean context that the KV memory of the fullest rows admits (8B, batch 691, one H100)."""
SPLITWISE_GPUS = {"a100-80gb": "a100-sxm", "h100-80gb": "h100-sxm"}
SPLITWISE_POWER_FRAC = 0.43
"""Average board power of A100 at batch 1 in a group of 8, where overhead is nearly the whole step."""
GRAPH_BYTES = 1.46e9
"""What a published vLLM 0.19 run on an RTX 4090 (2,588 KV blocks of 16 at 0.9 utilisation) leaves
beside weights, activations and KV cache."""
OUT = Path(__file__).resolve().parent.parent / "python/firstlight/roofline/data" / FILE
SPLITWISE_SCORED = {(2048, 1, 8, "h100-80gb"), (2048, 1, 8, "a100-80gb"), (512, 64, 8, "h100-80gb")}


@dataclasses.dataclass(frozen=True)
class Row:
    """A measured steady state and the kernel time of its decode step."""

    model: str
    gpu: str
    batch: int
    itl_s: float
    power_w: float
    base_s: float
    ctx_s: float
    table: StepTable
    group: int


def main(arguments: Iterable[str]) -> int:
    """Fit and score every stack."""
    data = Path(next(iter(arguments)))
    stacks = [vllm(data), splitwise(data)]
    text = json.dumps([dataclasses.asdict(found) for found in stacks], indent=1)
    OUT.write_text(text + "\n", encoding="utf-8")
    return 0


def rows(data: Path) -> list[Row]:
    """Return the chat rows of the dense models the catalog has."""
    found = []
    with (data / "mlenergy_v3" / "llm_energy_dev.csv").open(newline="") as file:
        for line in csv.DictReader(file):
            if line["model"] not in SERVED or line["task"] != "lm-arena-chat":
                continue
            model, gpu, tp = SERVED[line["model"]], GPUS[line["gpu"]], int(line["tp"])
            batch = round(float(line["avg_batch"]))
            table = bare_step_table(
                load(model), gpu, tp=tp, weights="bf16", kv="bf16", max_tok=4096, max_seqs=4096
            )
            base = table.linear_ps[batch] + table.head_ps[batch] + table.decode_attn_floor_ps[batch]
            found.append(
                Row(
                    model=model,
                    gpu=gpu,
                    batch=batch,
                    itl_s=float(line["median_itl_ms"]) / 1e3,
                    power_w=float(line["power_w_per_gpu"]),
                    base_s=float(base) / 1e12,
                    ctx_s=float(table.decode_attn_ctx_ps[batch]) * batch / 1e12,
                    table=table,
                    group=tp,
                )
            )
    return found


def vllm(data: Path) -> Stack:
    """Fit step and sequence overhead and the mean context on H100; power of the overhead."""
    everything = rows(data)
    fitted = [
        row
        for row in everything
        if row.gpu == "h100-sxm"
        and row.batch <= FITTED_TO_BATCH
        and (row.model, row.gpu, row.batch) not in SCORED
    ]
    best = (np.inf, 0.0, 0.0, 0.0)
    itl = np.array([row.itl_s for row in fitted])
    for context in range(200, CONTEXT_LIMIT_TOK + 1, 25):
        kernel = np.array([row.base_s + row.ctx_s * context for row in fitted])
        batch = np.array([row.batch for row in fitted])
        design = np.stack([np.ones_like(itl), batch], axis=1) / itl[:, None]
        step, sequence = np.linalg.lstsq(design, 1 - kernel / itl, rcond=None)[0]
        step = max(step, 0.0)
        error = float((np.abs((kernel + step + sequence * batch) / itl - 1)).mean())
        best = min(best, (error, context, step, sequence))
    _, context, step, sequence = best
    print(f"vllm-2025: context {context} tok, step_s {step:.3g}, sequence_s {sequence:.3g}")
    fraction = overhead_power(fitted, context, step, sequence)
    print(f"vllm-2025: overhead_power_frac {fraction:.2f}")
    print("model gpu batch | ITL ms: predicted measured error | W: predicted measured error")
    for row in everything:
        overhead = step + sequence * row.batch
        itl = row.base_s + row.ctx_s * context + overhead
        power = power_w(row, context, overhead, fraction)
        mark = "scored" if (row.model, row.gpu, row.batch) in SCORED else ""
        if row in fitted:
            mark = "fitted"
        print(
            f"{row.model:14} {row.gpu:8} {row.batch:5} | {itl * 1e3:7.2f} {row.itl_s * 1e3:7.2f} "
            f"{itl / row.itl_s - 1:+6.1%} | {power:5.0f} {row.power_w:5.0f} "
            f"{power / row.power_w - 1:+6.1%} {mark}"
        )
    return Stack(
        id="vllm-2025",
        step_s=round(float(step), 6),
        sequence_s=round(float(sequence), 7),
        overhead_power_frac=round(fraction, 2),
        graph_bytes=GRAPH_BYTES,
        source=f"ML.ENERGY v3 steady states (vLLM 0.11, H100), mean context {context} tok",
    )


def power_w(row: Row, context: float, overhead_s: float, fraction: float) -> float:
    """Return mean board power of a decode step [W]."""
    where, n, table = device(row.gpu), row.batch, row.table
    pj = table.linear_pj[n] + table.head_pj[n] + table.decode_attn_floor_pj[n]
    energy_j = (float(pj) + float(table.decode_attn_ctx_pj[n]) * n * context) / 1e12 / row.group
    energy_j += (fraction * where.tdp_w - where.idle_w) * overhead_s
    return energy_j / (row.base_s + row.ctx_s * context + overhead_s) + where.idle_w


def overhead_power(fitted: list[Row], context: float, step: float, sequence: float) -> float:
    """Return the power share of the overhead with the least mean relative error."""

    def loss(fraction: float) -> float:
        return statistics.fmean(
            abs(power_w(r, context, step + sequence * r.batch, fraction) / r.power_w - 1)
            for r in fitted
        )

    return float(min(np.arange(0.3, 1.001, 0.01), key=loss))


def splitwise(data: Path) -> Stack:
    """Return what the 2023 stack adds to the kernels of Llama-2-70B, by device and group."""
    times: dict[str, dict[int, list[float]]] = {}
    with (data / "splitwise_perf" / "perf_model.csv").open(newline="") as file:
        for line in csv.DictReader(file):
            name, tp = line["hardware"], int(line["tensor_parallel"])
            if line["model"] != "llama2-70b" or name not in SPLITWISE_GPUS:
                continue
            prompt, batch = int(line["prompt_size"]), int(line["batch_size"])
            if (prompt, batch, tp, name) in SPLITWISE_SCORED or batch == 64:
                continue
            gpu = SPLITWISE_GPUS[name]
            table = bare_step_table(
                load("llama-2-70b"), gpu, tp=tp, weights="fp16", kv="fp16",
                max_tok=16384, max_seqs=64,
            )  # fmt: skip
            curve = times.setdefault(f"{gpu}/{tp}", {})
            if prompt * batch <= 16384:
                pairs = batch * prompt * (prompt + 1) / 2
                kernel = float(table.linear_ps[prompt * batch] + table.head_ps[batch]) / 1e12
                kernel += batch * table.prefill_attn_floor_ps / 1e12
                kernel += pairs * float(table.prefill_attn_pair_fs[prompt]) / 1e15
                measured = float(line["prompt_time"]) / 1e3
                curve.setdefault(prompt * batch, []).append(measured - kernel)
            context = batch * (prompt + int(line["token_size"]) / 2)
            kernel = float(table.linear_ps[batch] + table.head_ps[batch]) / 1e12
            kernel += float(table.decode_attn_floor_ps[batch]) / 1e12
            kernel += float(table.decode_attn_ctx_ps[batch]) * context / 1e12
            curve.setdefault(batch, []).append(float(line["token_time"]) / 1e3 - kernel)
    curves = {
        key: (
            tuple(float(m) for m in sorted(curve)),
            tuple(round(max(0.0, statistics.median(curve[m])), 6) for m in sorted(curve)),
        )
        for key, curve in sorted(times.items())
    }
    return Stack(
        id="splitwise-2023",
        step_s=0.0,
        sequence_s=0.0,
        overhead_power_frac=SPLITWISE_POWER_FRAC,
        graph_bytes=GRAPH_BYTES,
        source="Splitwise characterisation @8f99e7dc (MIT): Llama-2-70B FP16 on A100 and H100",
        curves=curves,
        curve_layers=80,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
