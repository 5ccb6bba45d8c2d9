"""Distil published kernel measurements into the tables that `firstlight.roofline` ships.

    python tools/distil_roofline.py DATA

DATA holds the folders ``aic_perf``, ``aic_power``, ``vidur_profiles`` and
``llmservingsim_profiles`` as docs/roofline.md describes them. Every fourth row of every table
(row number modulo 4 = 3, in file order) is kept out of the table and scores it; the residual errors are
written beside the tables. A sample of those rows goes to ``tests/data`` so that the tests can
score the shipped tables without DATA.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from firstlight.models.operator import distinct_experts
from firstlight.roofline import ideal
from firstlight.roofline.attention import (
    CARD_EDGE_TOK,
    EDGE_TOK,
    FIT_FROM_TOK,
    FIT_TO_TOK,
    affine,
    prefill_law,
)
from firstlight.roofline.calibration import FILE
from firstlight.roofline.surface import Surface, fill_holes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "python" / "firstlight" / "roofline" / "data" / FILE
DOCS = ROOT / "docs" / "roofline.md"
MARKS = ("<!-- errors -->", "<!-- /errors -->")
SAMPLE = ROOT / "tests" / "data" / "roofline_held_out.csv"

AIC = {"a100": "a100-sxm", "h100": "h100-sxm", "h200": "h200-sxm", "b200": "b200"}
PEAKS = {  # dense BF16 FLOP/s, memory B/s, link B/s: the reference of the residuals
    "a100-sxm": (312e12, 2.039e12, 300e9),
    "h100-sxm": (989e12, 3.35e12, 450e9),
    "h200-sxm": (989e12, 4.8e12, 450e9),
    "b200": (2250e12, 7.7e12, 900e9),
    "rtx-4090": (165.2e12, 1.008e12, 32e9),
    "rtx-pro-6000": (468e12, 1.792e12, 64e9),
}
GEMM_FORMATS = {  # name, peak over BF16, weight bits, activation bits
    "bfloat16": ("bf16", 1, 16, 16),
    "fp8": ("fp8", 2, 8, 8),
    "fp8_block": ("fp8-block", 2, 8, 8),
    "nvfp4": ("nvfp4", 4, 4.5, 4.5),
    "sq": ("int8", 2, 8, 8),
    "int8_wo": ("int8-weight", 1, 8, 16),
    "int4_wo": ("int4-weight", 1, 4, 16),
}
EXPERT_FORMATS = {
    "bfloat16": ("bf16", 1, 16),
    "fp8": ("fp8", 2, 8),
    "fp8_block": ("fp8-block", 2, 8),
    "nvfp4": ("nvfp4", 4, 4.5),
    "w4a16_mxfp4": ("mxfp4", 1, 4.25),
}
RTX = {
    "rtx-4090": {"RTX4090_Llama-3.1-8B_tp1": (4096, 14336, 32, 8)},
    "rtx-pro-6000": {
        "RTXPRO6000_Llama-3.1-8B_tp1": (4096, 14336, 32, 8),
        "RTXPRO6000_Llama-3.1-8B_tp2": (4096, 7168, 16, 4),
        "RTXPRO6000_Qwen3-32B_tp1": (5120, 25600, 64, 8),
        "RTXPRO6000_Qwen3-32B_tp2": (5120, 12800, 32, 4),
        "RTXPRO6000_Qwen3-30B-A3B-Instruct-2507_tp1": (2048, 0, 32, 4),
        "RTXPRO6000_Qwen3-30B-A3B-Instruct-2507_tp2": (2048, 0, 16, 2),
    },
}
VIDUR = {  # file -> device, hidden, ffn, heads, kv heads
    "mlp_a100_Meta-Llama-3-70B": ("a100-sxm", 8192, 28672, 64, 8),
    "mlp_a100_Meta-Llama-3-8B": ("a100-sxm", 4096, 14336, 32, 8),
    "mlp_h100_Llama-2-70b-hf": ("h100-sxm", 8192, 28672, 64, 8),
    "mlp_h100_Llama-2-7b-hf": ("h100-sxm", 4096, 11008, 32, 32),
}
AIC_SOURCE = "ai-dynamo/aiconfigurator @095f58a5 TensorRT-LLM kernels (Apache-2.0)"
POWER_SOURCE = "ai-dynamo/aiconfigurator @095f58a5 vLLM kernels, NVML power (Apache-2.0)"
VIDUR_SOURCE = "microsoft/vidur @7d475133 per-operator medians, FP16 (MIT)"
RTX_SOURCE = "casys-kaist/LLMServingSim @5daddb21 vLLM 0.19 profiles (MIT)"


class Columns(dict[str, Any]):
    """A CSV file as arrays by column name."""

    def pick(self, mask: np.ndarray) -> Columns:
        """Return the rows where `mask` holds."""
        return Columns({key: value[mask] for key, value in self.items()})

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.values())))


def read(path: Path) -> Columns:
    """Read a CSV file; a column of numbers becomes float64."""
    with path.open(newline="") as file:
        reader = csv.reader(file)
        header = next(reader)
        columns = list(zip(*reader, strict=True))
    found = Columns()
    for name, column in zip(header, columns, strict=True):
        try:
            found[name] = np.array(column, dtype=np.float64)
        except ValueError:
            found[name] = np.array(column)
    return found


def held_out(rows: int) -> np.ndarray:
    """Return the mask of the rows that score a table and are in no table."""
    return np.arange(rows) % 4 == 3


class Distillery:
    """Collects tables, their errors and a sample of the rows that scored them."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self.index: dict[str, Any] = {}
        self.errors: list[dict[str, Any]] = []
        self.scalars: dict[str, Any] = {}
        self.sample: list[tuple[Any, ...]] = []

    def grid(
        self,
        key: str,
        *,
        coordinates: tuple[np.ndarray, ...],
        time_s: np.ndarray,
        ideal_s: np.ndarray,
        meta: dict[str, Any],
    ) -> Surface:
        """Store a rectangular table and score it; return the surface."""
        out = held_out(len(time_s))
        axes = tuple(np.unique(c) for c in coordinates)
        residual = np.log(time_s / ideal_s)
        cells = np.full([len(a) for a in axes], np.nan)
        where = tuple(np.searchsorted(a, c) for a, c in zip(axes, coordinates, strict=True))
        cells[tuple(w[~out] for w in where)] = residual[~out]
        filled = fill_holes(axes, cells).astype(np.float16)
        self._store(key, filled, axes=axes, points=None, meta=meta)
        surface = Surface(axes=axes, residual=filled.astype(np.float64))
        predicted = ideal_s * np.exp(surface.residual[where])
        self.score(key, predicted[out], time_s[out], len(time_s))
        self._sample(key, coordinates, time_s, out)
        return surface

    def scatter(
        self,
        key: str,
        *,
        shapes: list[tuple[float, ...]],
        parts: list[tuple[tuple[np.ndarray, ...], np.ndarray, np.ndarray]],
        meta: dict[str, Any],
        sample: bool = True,
    ) -> None:
        """Store one grid a shape: `parts` holds (coordinates, time, ideal) of each shape."""
        axes = tuple(
            np.unique(np.concatenate([c[0][i] for c in parts])) for i in range(len(parts[0][0]))
        )
        grids, predicted, measured, rows = [], [], [], 0
        for shape, (coordinates, time_s, ideal_s) in zip(shapes, parts, strict=True):
            out = held_out(len(time_s))
            cells = np.full([len(a) for a in axes], np.nan)
            where = tuple(np.searchsorted(a, c) for a, c in zip(axes, coordinates, strict=True))
            cells[tuple(w[~out] for w in where)] = np.log(time_s / ideal_s)[~out]
            filled = fill_holes(axes, cells).astype(np.float16)
            grids.append(filled)
            predicted.append((ideal_s * np.exp(filled.astype(np.float64)[where]))[out])
            measured.append(time_s[out])
            rows += len(time_s)
            if sample:
                constant = tuple(np.full(len(time_s), value) for value in shape)
                self._sample(key, (*coordinates, *constant), time_s, out)
        self._store(key, np.stack(grids), axes=axes, points=shapes, meta=meta)
        self.score(key, np.concatenate(predicted), np.concatenate(measured), rows)

    def _store(
        self,
        key: str,
        values: np.ndarray,
        *,
        axes: tuple[np.ndarray, ...],
        points: list[tuple[float, ...]] | None,
        meta: dict[str, Any],
    ) -> None:
        self.arrays[key] = values
        self.index[key] = {"axes": [a.tolist() for a in axes], "points": points or [], **meta}

    def score(self, key: str, predicted: np.ndarray, measured: np.ndarray, rows: int) -> None:
        """Record the relative error of the rows kept out."""
        error = np.abs(predicted / measured - 1)
        kernel, device, form = key.split("/")
        self.errors.append(
            {
                "kernel": kernel,
                "device": device,
                "format": form,
                "rows": rows,
                "held_out": len(measured),
                "median": round(float(np.median(error)), 4),
                "p90": round(float(np.quantile(error, 0.9)), 4),
            }
        )

    def _sample(
        self, key: str, coordinates: tuple[np.ndarray, ...], time_s: np.ndarray, out: np.ndarray
    ) -> None:
        chosen = np.flatnonzero(out)[::16]
        for row in chosen:
            point = " ".join(f"{c[row]:g}" for c in coordinates)
            self.sample.append((key, point, f"{time_s[row]:.6g}"))

    def write(self) -> None:
        """Write the archive and the sample."""
        index = {"tables": self.index, "scalars": self.scalars, "errors": self.errors}
        blob = np.frombuffer(json.dumps(index, separators=(",", ":")).encode(), dtype=np.uint8)
        OUT.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(OUT, index=blob, **self.arrays)  # type: ignore[arg-type]
        SAMPLE.parent.mkdir(parents=True, exist_ok=True)
        with SAMPLE.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("table", "point", "time_s"))
            writer.writerows(self.sample)


def meta(
    device: str,
    *,
    scale: float,
    bits: float,
    activation_bits: float,
    source: str,
    link: bool = False,
) -> dict[str, Any]:
    """Return the reference numbers of a table."""
    flop, memory, wire = PEAKS[device]
    return {
        "flop_per_s": flop * scale,
        "bytes_per_s": wire if link else memory,
        "bits": bits,
        "activation_bits": activation_bits,
        "source": source,
    }


def gemm(still: Distillery, data: Path) -> None:
    """Distil the matrix products of the datacenter devices."""
    for short, device in AIC.items():
        table = read(data / "aic_perf" / f"gemm_{short}.csv")
        for raw, (name, scale, bits, activation) in GEMM_FORMATS.items():
            rows = table.pick(table["gemm_dtype"] == raw)
            if not rows.rows:
                continue
            about = meta(
                device, scale=scale, bits=bits, activation_bits=activation, source=AIC_SOURCE
            )
            m, n, k = rows["m"], rows["n"], rows["k"]
            still.grid(
                f"gemm/{device}/{name}",
                coordinates=(m, n, k),
                time_s=rows["latency_ms"] / 1e3,
                ideal_s=ideal.gemm_s(m, n, k, **gemm_reference(about)),
                meta=about,
            )


def gemm_reference(about: dict[str, Any]) -> dict[str, float]:
    """Return the keyword arguments of the matrix-product roofline."""
    return {
        "flop_per_s": about["flop_per_s"],
        "bytes_per_s": about["bytes_per_s"],
        "weight_bits": about["bits"],
        "activation_bits": about["activation_bits"],
    }


def attention(still: Distillery, data: Path) -> None:
    """Distil prefill and decode attention of the datacenter devices."""
    kinds: tuple[tuple[str, str, str, Callable[..., Any]], ...] = (
        ("prefill_attention", "context", "isl", ideal.prefill_attention_s),
        ("decode_attention", "generation", "kv_len", ideal.decode_attention_s),
    )
    for short, device in AIC.items():
        for kernel, file, length, roof in kinds:
            table = read(data / "aic_perf" / f"attn_{file}_{short}.csv")
            for compute, scale in (("bfloat16", 1), ("fp8", 2)):
                for cache, bits in (("bfloat16", 16), ("fp8", 8)):
                    rows = table.pick(
                        (table["attn_dtype"] == compute) & (table["kv_cache_dtype"] == cache)
                    )
                    if not rows.rows:
                        continue
                    about = meta(
                        device, scale=scale, bits=bits, activation_bits=16, source=AIC_SOURCE
                    )
                    batch, tokens = rows["batch_size"], rows[length]
                    heads, kv_heads = rows["num_heads"], rows["num_key_value_heads"]
                    lengths = (tokens,) if kernel.startswith("decode") else (tokens, 0 * tokens)
                    name = (
                        f"{'fp8' if compute == 'fp8' else 'bf16'}-{'fp8' if bits == 8 else 'bf16'}"
                    )
                    surface = still.grid(
                        f"{kernel}/{device}/{name}",
                        coordinates=(batch, tokens, heads, kv_heads),
                        time_s=rows["latency_ms"] / 1e3,
                        ideal_s=roof(
                            batch, *lengths, heads, kv_heads, **attention_reference(about)
                        ),
                        meta=about,
                    )
                    if kernel.startswith("decode"):
                        affine_law(still, f"decode_law/{device}/{name}", surface, rows, about)
                    else:
                        chunk_law(still, f"prefill_law/{device}/{name}", surface, rows, about)


def chunk_law(
    still: Distillery, key: str, surface: Surface, rows: Columns, about: dict[str, Any]
) -> None:
    """Score the law that the scheduler uses for a chunk on rows of one sequence."""
    seen = held_out(rows.rows) & (rows["batch_size"] == 1)
    some = rows.pick(seen)
    predicted = []
    for q, heads, kv_heads in zip(
        some["isl"], some["num_heads"], some["num_key_value_heads"], strict=True
    ):
        at = surface.at(heads, kv_heads)
        lengths = at.axes[1]
        roof = ideal.prefill_attention_s(
            1.0, lengths, 0.0, heads, kv_heads, **attention_reference(about)
        )
        time_s = (roof * np.exp(at.residual[0]))[:, None]
        law = prefill_law(lengths, np.zeros(1), time_s, edge_tok=EDGE_TOK)
        pair_s = float(law.pair_s(np.array([q]))[0])
        predicted.append(law.floor_s + law.edge_s * q + pair_s * q * (q + 1) / 2)
    still.score(key, np.array(predicted), some["latency_ms"] / 1e3, rows.rows)


def affine_law(
    still: Distillery, key: str, surface: Surface, rows: Columns, about: dict[str, Any]
) -> None:
    """Score the affine law that the scheduler uses on rows within its range of contexts."""
    batch, context, heads, kv_heads = surface.axes
    used = (context >= FIT_FROM_TOK) & (context <= FIT_TO_TOK)
    grid = np.meshgrid(batch, context[used], heads, kv_heads, indexing="ij")
    time_s = ideal.decode_attention_s(*grid, **attention_reference(about))
    time_s = np.moveaxis(time_s * np.exp(surface.residual[:, used]), 1, -1)
    total = np.moveaxis(grid[0] * grid[1], 1, -1)
    shape = time_s.shape[:-1]
    floor, slope = (
        law.reshape(shape)
        for law in affine(total.reshape(-1, used.sum()), time_s.reshape(-1, used.sum()))
    )
    seen = held_out(rows.rows) & (rows["kv_len"] >= FIT_FROM_TOK) & (rows["kv_len"] <= FIT_TO_TOK)
    some = rows.pick(seen)
    columns = ("batch_size", "num_heads", "num_key_value_heads")
    where = tuple(
        np.searchsorted(axis, some[name])
        for axis, name in zip((batch, heads, kv_heads), columns, strict=True)
    )
    predicted = floor[where] + slope[where] * some["batch_size"] * some["kv_len"]
    still.score(key, predicted, some["latency_ms"] / 1e3, rows.rows)


def attention_reference(about: dict[str, Any]) -> dict[str, float]:
    """Return the keyword arguments of the attention rooflines."""
    return {
        "head_dim": 128.0,
        "flop_per_s": about["flop_per_s"],
        "bytes_per_s": about["bytes_per_s"],
        "kv_bits": about["bits"],
    }


def all_reduce(still: Distillery, data: Path) -> None:
    """Distil all-reduce: at each size the faster of the custom kernel and NCCL."""
    table = read(data / "aic_perf" / "comm.csv")
    for short, device in AIC.items():
        mask = (table["gpu"] == short) & (table["op_name"] == "all_reduce")
        mask &= np.isin(table["dtype"], ("half", "bfloat16"))
        rows = table.pick(mask)
        best: dict[tuple[float, float], float] = {}
        for size, gpus, time_ms in zip(
            rows["message_size"], rows["num_gpus"], rows["latency_ms"], strict=True
        ):
            point = (size, gpus)
            best[point] = min(best.get(point, np.inf), time_ms / 1e3)
        points = sorted(best, key=lambda point: (point[1], point[0]))
        size, gpus = (np.array([p[i] for p in points]) for i in (0, 1))
        about = meta(device, scale=1, bits=16, activation_bits=16, source=AIC_SOURCE, link=True)
        still.grid(
            f"all_reduce/{device}/bf16",
            coordinates=(size, gpus),
            time_s=np.array([best[p] for p in points]),
            ideal_s=ideal.all_reduce_s(size, gpus, link_bytes_per_s=about["bytes_per_s"]),
            meta=about,
        )


def experts(still: Distillery, data: Path) -> None:
    """Distil grouped expert products: no expert parallelism, skewed load, the fastest kernel."""
    for short, device in AIC.items():
        table = read(data / "aic_perf" / f"moe_{short}.csv")
        table = table.pick((table["moe_ep_size"] == 1) & (table["distribution"] == "power_law_1.2"))
        for raw, (name, scale, bits) in EXPERT_FORMATS.items():
            rows = table.pick(table["moe_dtype"] == raw)
            if not rows.rows:
                continue
            about = meta(device, scale=scale, bits=bits, activation_bits=16, source=AIC_SOURCE)
            shapes, parts = [], []
            columns = ("hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size")
            for shape in sorted(set(zip(*(rows[c] for c in columns), strict=True))):
                mask = np.all([rows[c] == v for c, v in zip(columns, shape, strict=True)], axis=0)
                some = rows.pick(mask)
                tokens = np.unique(some["num_tokens"])
                tokens = tokens[tokens <= 16384]
                best = [some["latency_ms"][some["num_tokens"] == t].min() / 1e3 for t in tokens]
                hidden, inner, topk, count, tp = (float(v) for v in shape)
                hit = np.array(
                    [distinct_experts(t, experts=int(count), topk=int(topk)) for t in tokens]
                )
                roof = ideal.experts_s(
                    tokens,
                    hidden,
                    inner / tp,
                    topk,
                    experts_hit=hit,
                    flop_per_s=about["flop_per_s"],
                    bytes_per_s=about["bytes_per_s"],
                    weight_bits=bits,
                )
                shapes.append((hidden, inner / tp, topk, count))
                parts.append(((tokens,), np.array(best), roof))
            still.scatter(f"experts/{device}/{name}", shapes=shapes, parts=parts, meta=about)


def rtx(still: Distillery, data: Path) -> None:
    """Distil the workstation cards: matrix products, attention alone and mixed, element-wise."""
    folder = data / "llmservingsim_profiles"
    for device, profiles in RTX.items():
        about = meta(device, scale=1, bits=16, activation_bits=16, source=RTX_SOURCE)
        shapes: list[tuple[float, ...]] = []
        parts = []
        for profile, (hidden, inner, heads, kv_heads) in profiles.items():
            table = read(folder / f"{profile}_dense.csv")
            products = {
                "qkv_proj": (128 * (heads + 2 * kv_heads), hidden),
                "o_proj": (hidden, 128 * heads),
                "gate_up_proj": (2 * inner, hidden),
                "down_proj": (hidden, inner),
            }
            for layer, (n, k) in products.items():
                rows = table.pick(table["layer"] == layer)
                if not rows.rows or (n, k) in shapes:
                    continue
                m = rows["tokens"]
                shapes.append((float(n), float(k)))
                roof = ideal.gemm_s(m, float(n), float(k), **gemm_reference(about))
                parts.append(((m,), rows["time_us"] / 1e6, roof))
        still.scatter(f"gemm/{device}/bf16", shapes=shapes, parts=parts, meta=about)
        rtx_attention(still, folder, device, about)


def rtx_attention(still: Distillery, folder: Path, device: str, about: dict[str, Any]) -> None:
    """Distil attention of a workstation card and how prefill and decode share it."""
    shapes: list[tuple[float, ...]] = []
    prefill, decode, mixed = [], [], []
    for profile, (_, _, heads, kv_heads) in RTX[device].items():
        if (heads, kv_heads) in shapes:
            continue
        shapes.append((float(heads), float(kv_heads)))
        table = read(folder / f"{profile}_attention.csv")
        q, kv = table["prefill_chunk"], table["kv_prefill"]
        n, context = table["n_decode"], table["kv_decode"]
        time_s = table["time_us"] / 1e6
        only = n == 0
        roof = ideal.prefill_attention_s(
            np.ones(only.sum()), q[only], kv[only], heads, kv_heads, **attention_reference(about)
        )
        prefill.append(((q[only], np.maximum(kv[only], 1.0)), time_s[only], roof))
        only = q == 0
        roof = ideal.decode_attention_s(
            n[only], context[only], heads, kv_heads, **attention_reference(about)
        )
        decode.append(((n[only], context[only]), time_s[only], roof))
        mixed.append(mixing(q, kv, n, context, time_s))
    still.scatter(f"prefill_attention/{device}/bf16-bf16", shapes=shapes, parts=prefill, meta=about)
    still.scatter(f"decode_attention/{device}/bf16-bf16", shapes=shapes, parts=decode, meta=about)
    card_laws(still, device, shapes, prefill, decode)
    groups: dict[int, list[np.ndarray]] = {}
    for (heads, kv_heads), part in zip(shapes, mixed, strict=True):
        groups.setdefault(int(heads / kv_heads), []).append(part)
    for group, found in groups.items():
        mix_fit(still, device, group, np.concatenate(found, axis=1))


def card_laws(
    still: Distillery,
    device: str,
    shapes: list[tuple[float, ...]],
    prefill: list[Any],
    decode: list[Any],
) -> None:
    """Score the laws that the scheduler uses on the rows kept out of a card's tables."""
    chunks: list[tuple[np.ndarray, np.ndarray]] = []
    batches: list[tuple[np.ndarray, np.ndarray]] = []
    for i in range(len(shapes)):
        (q, kv), time_s, _ = prefill[i]
        law = prefill_law(
            *_shipped(still, f"prefill_attention/{device}/bf16-bf16", i), edge_tok=CARD_EDGE_TOK
        )
        out = held_out(len(time_s))
        kv = np.where(kv == 1.0, 0.0, kv)
        whole = law.floor_s + law.edge_s * q + law.pair_s(q) * (q * kv + q * (q + 1) / 2)
        chunks.append((whole[out], time_s[out]))
        (n, context), time_s, _ = decode[i]
        batch, at, grid_s = _shipped(still, f"decode_attention/{device}/bf16-bf16", i)
        used = (at >= FIT_FROM_TOK) & (at <= FIT_TO_TOK)
        floor, slope = affine(batch[:, None] * at[used], grid_s[:, used])
        out = held_out(len(time_s)) & (context >= FIT_FROM_TOK) & (context <= FIT_TO_TOK)
        where = np.searchsorted(batch, n[out])
        batches.append((floor[where] + slope[where] * n[out] * context[out], time_s[out]))
    for key, found, parts in (("prefill_law", chunks, prefill), ("decode_law", batches, decode)):
        predicted, measured = (np.concatenate([pair[j] for pair in found]) for j in range(2))
        rows = sum(len(part[1]) for part in parts)
        still.score(f"{key}/{device}/bf16-bf16", predicted, measured, rows)


def _shipped(still: Distillery, key: str, shape: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a shape's axes and its times as the shipped table gives them."""
    first, second = (np.array(axis) for axis in still.index[key]["axes"])
    heads, kv_heads = still.index[key]["points"][shape]
    about = still.index[key]
    if key.startswith("prefill"):
        behind = np.where(second == 1.0, 0.0, second)
        roof = ideal.prefill_attention_s(
            1.0, first[:, None], behind, heads, kv_heads, **attention_reference(about)
        )
        return first, behind, roof * np.exp(still.arrays[key][shape].astype(np.float64))
    roof = ideal.decode_attention_s(
        first[:, None], second, heads, kv_heads, **attention_reference(about)
    )
    return first, second, roof * np.exp(still.arrays[key][shape].astype(np.float64))


SERVING = {"chunk": 128, "sequences": 4, "context": 256}
"""Mixed steps that serving makes: smaller ones are all launch."""


def mix_fit(still: Distillery, device: str, group: int, part: np.ndarray) -> None:
    """Fit the share of the smaller attention part that a mixed step adds to the larger.

    The share is exact for no shape: it is the one with the least mean relative error over the
    steps that serving makes, by device and number of query heads a KV head.
    """
    larger, smaller, both = part
    key = f"{device}/{group}"
    shares = still.scalars.setdefault("mix", {})
    out = held_out(len(both))

    def loss(share: float) -> float:
        return float(np.abs((larger + share * smaller) / both - 1)[~out].mean())

    shares[key] = round(float(min(np.arange(0.0, 6.0, 0.02), key=loss)), 2)
    predicted = larger + shares[key] * smaller
    still.score(f"mixed_attention/{device}/group-{group}", predicted[out], both[out], len(both))


def mixing(
    q: np.ndarray, kv: np.ndarray, n: np.ndarray, context: np.ndarray, time_s: np.ndarray
) -> np.ndarray:
    """Return larger part, smaller part and whole of the mixed rows whose parts were measured."""
    alone = dict(zip(zip(q, kv, n, context, strict=True), time_s, strict=True))
    found = []
    for point, both in alone.items():
        if (
            point[0] < SERVING["chunk"]
            or point[2] < SERVING["sequences"]
            or point[3] < SERVING["context"]
        ):
            continue
        first = alone.get((point[0], point[1], 0.0, 0.0))
        second = alone.get((0.0, 0.0, point[2], point[3]))
        if first and second:
            found.append((max(first, second), min(first, second), both))
    return np.array(found).T


def elementwise(still: Distillery, data: Path) -> None:
    """Distil norms, rotary embedding and activation of one layer, summed."""
    found: dict[str, tuple[list[tuple[float, ...]], list[Any], str]] = {}
    for file, (device, hidden, inner, heads, kv_heads) in VIDUR.items():
        table = read(data / "vidur_profiles" / f"{file}.csv")
        rows = table.pick((table["tp"] == 1) & (table["num_tokens"] > 0))
        names = ("input_layernorm_ms", "post_attention_layernorm_ms", "mlp_act_ms", "attn_rope_ms")
        time_s = (sum(rows[name] for name in names) + 2 * rows["add_ms"]) / 1e3
        append_layer(
            found, device, rows["num_tokens"], time_s, hidden, inner, heads + kv_heads, VIDUR_SOURCE
        )
    for device, profiles in RTX.items():
        for profile, (hidden, inner, heads, kv_heads) in profiles.items():
            if not inner or "tp2" in profile:
                continue
            table = read(data / "llmservingsim_profiles" / f"{profile}_dense.csv")
            layers = {
                n: table.pick(table["layer"] == n) for n in ("layernorm", "act_fn", "rotary_emb")
            }
            time_s = (
                2 * layers["layernorm"]["time_us"]
                + layers["act_fn"]["time_us"]
                + layers["rotary_emb"]["time_us"]
            ) / 1e6
            append_layer(
                found,
                device,
                layers["act_fn"]["tokens"],
                time_s,
                hidden,
                inner,
                heads + kv_heads,
                RTX_SOURCE,
            )
    for device, (shapes, parts, source) in found.items():
        about = meta(device, scale=1, bits=16, activation_bits=16, source=source)
        still.scatter(f"elementwise/{device}/bf16", shapes=shapes, parts=parts, meta=about)


def append_layer(
    found: dict[str, tuple[list[tuple[float, ...]], list[Any], str]],
    device: str,
    tokens: np.ndarray,
    time_s: np.ndarray,
    hidden: int,
    inner: int,
    heads: int,
    source: str,
) -> None:
    """Add one layer's element-wise time to the device's shapes."""
    keep = (tokens <= 8192) & (time_s > 0)
    elements = 8.0 * hidden + 2.0 * 128 * heads + 3.0 * inner
    roof = ideal.elementwise_s(tokens[keep], elements, 4, bytes_per_s=PEAKS[device][1])
    shapes, parts, _ = found.setdefault(device, ([], [], source))
    if (float(elements),) in shapes:
        return
    shapes.append((float(elements),))
    parts.append(((tokens[keep],), time_s[keep], roof))


def power(still: Distillery, data: Path) -> None:
    """Fit board power of matrix products and attention on the devices where it was measured.

    NVML averages over a longer time than many of these loops run, so rows read low and hardly ever
    high: the same shape shows 130 W and 620 W. The fit therefore follows the upper quartile, which
    the longest loops and steady serving confirm, and kernels below `LOOP_S` are left out.
    """
    fits = still.scalars.setdefault("power", {})
    for short in ("h200", "b200"):
        device = AIC[short]
        flop, memory, _ = PEAKS[device]
        cap = {"h200": 700.0, "b200": 1000.0}[short]
        table = read(data / "aic_power" / f"gemm_power_{short}_vllm.csv")
        for raw, (name, scale, bits, activation) in GEMM_FORMATS.items():
            rows = table.pick(table["gemm_dtype"] == raw)
            if rows.rows:
                m, n, k, time_s = rows["m"], rows["n"], rows["k"], rows["latency_ms"] / 1e3
                compute = 2 * m * n * k / time_s / (flop * scale)
                moved = n * k * bits / 8 + m * k * activation / 8 + 2 * m * n
                fits[f"gemm/{device}/{name}"] = power_fit(
                    still,
                    f"gemm_power/{device}/{name}",
                    compute,
                    moved / time_s / memory,
                    rows["power_w"] / cap,
                    time_s,
                    base=fits.get(f"gemm/{device}/bf16"),
                )
        for kernel, file in (("prefill_attention", "context"), ("decode_attention", "generation")):
            table = read(data / "aic_power" / f"attn_{file}_power_{short}_vllm.csv")
            for raw, name, bits in (("bfloat16", "bf16-bf16", 16), ("fp8", "bf16-fp8", 8)):
                rows = table.pick(table["kv_cache_dtype"] == raw)
                batch, time_s = rows["batch_size"], rows["latency_ms"] / 1e3
                heads, kv_heads = rows["num_heads"], rows["num_key_value_heads"]
                if kernel == "prefill_attention":
                    pairs = rows["isl"] * (rows["isl"] + 1) / 2
                    compute = 4 * heads * 128 * batch * pairs / time_s / flop
                    use = 0 * compute
                else:
                    use = 2 * kv_heads * 128 * bits / 8 * batch * rows["kv_len"] / time_s / memory
                    compute = 0 * use
                fits[f"{kernel}/{device}/{name}"] = power_fit(
                    still,
                    f"{kernel}_power/{device}/{name}",
                    compute,
                    use,
                    rows["power_w"] / cap,
                    time_s,
                )


LOOP_S = 5e-5
UPPER = 0.75
BUSY = 0.1


def power_fit(
    still: Distillery,
    key: str,
    compute: np.ndarray,
    memory: np.ndarray,
    share: np.ndarray,
    time_s: np.ndarray,
    *,
    base: list[float] | None = None,
) -> list[float]:
    """Return (floor, memory, compute, exponent) of the upper quartile of the log power.

    With `base`, floor and memory are taken from it and only kernels that use a tenth of the
    arithmetic are fitted and scored: a quantised product streams weights at the power the 16-bit
    one does, and the small ones of these loops spend their time in launches.
    """
    out, long = held_out(len(share)), time_s >= LOOP_S
    if base is not None:
        long &= compute >= BUSY
    train, test = long & ~out, long & out

    def predicted(p: np.ndarray, mask: np.ndarray) -> np.ndarray:
        use = p[0] + p[1] * np.clip(memory[mask], 0, 1)
        return np.minimum(1.0, use + p[2] * np.clip(compute[mask], 0, 1) ** p[3])

    def loss(p: np.ndarray) -> float:
        short = np.log(share[train] / predicted(p, train))
        return float(np.maximum(UPPER * short, (UPPER - 1) * short).mean())

    first = base or [0.4, 0.4, 0.5, 0.5]
    has = [True, bool(memory.any()), bool(compute.any()), bool(compute.any())]
    best = np.array([v if there else 0.0 for v, there in zip(first, has, strict=True)])
    free = np.array(has) & np.array([base is None, base is None, True, True])
    low, high = np.array([0.2, 0.0, 0.0, 0.25]), np.array([0.7, 1.0, 2.0, 1.5])
    step = 0.1
    while step > 1e-3:  # coordinate search: four numbers, a loss without derivative
        trials = [best]
        for i in np.flatnonzero(free):
            for sign in (-step, step):
                trial = best.copy()
                trial[i] = np.clip(trial[i] + sign, low[i], high[i])
                trials.append(trial)
        losses = [loss(trial) for trial in trials]
        winner = int(np.argmin(losses))
        step, best = (step / 2, best) if winner == 0 else (step, trials[winner])
    still.score(key, predicted(best, test), share[test], int(long.sum()))
    return [round(float(v), 4) for v in best]


def sampler(still: Distillery, data: Path) -> None:
    """Fit the sampler: a launch and so many passes over the 32-bit logits."""
    rows, error = [], []
    for device, profiles in RTX.items():
        for profile in profiles:
            if "tp2" in profile:
                continue
            table = read(data / "llmservingsim_profiles" / f"{profile}_per_sequence.csv")
            some = table.pick(table["layer"] == "sampler")
            vocab = 151936 if "Qwen3" in profile else 128256
            passes_s = 4.0 * vocab * some["sequences"] / PEAKS[device][1]
            rows.append((passes_s, some["time_us"] / 1e6))
    x, y = (np.concatenate([r[i] for r in rows]) for i in (0, 1))
    out = held_out(len(y))
    design = np.stack([np.ones_like(x), x], axis=1) / y[:, None]
    launch, passes = np.linalg.lstsq(design[~out], np.ones((~out).sum()), rcond=None)[0]
    error = launch + passes * x
    still.score("sampler/rtx/fp32", error[out], y[out], len(y))
    still.scalars["sampler"] = [float(launch), float(passes)]


def document() -> None:
    """Write the error table of the tables just shipped into docs/roofline.md."""
    from firstlight.roofline import error_table

    text = DOCS.read_text(encoding="utf-8")
    before, rest = text.split(MARKS[0])
    _, after = rest.split(MARKS[1])
    table = f"{MARKS[0]}\n{error_table()}\n{MARKS[1]}"
    DOCS.write_text(before + table + after, encoding="utf-8")


def main(arguments: Iterable[str]) -> int:
    """Run every distillation."""
    data = Path(next(iter(arguments)))
    still = Distillery()
    for step in (
        gemm,
        attention,
        all_reduce,
        experts,
        rtx,
        elementwise,
        power,
        sampler,
    ):
        step(still, data)
    still.write()
    document()
    for row in still.errors:
        print("{kernel:24} {device:13} {format:12} {rows:6} {median:7.3f} {p90:7.3f}".format(**row))
    print(f"{OUT.stat().st_size / 1e3:.0f} kB", still.scalars)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
