"""A test double for the solver: a plain formula of the setup, never part of the package.

It behaves like the real thing where the explorer can tell: monotone, three designs, a context at
which optics stop to win, refusals, slow full answers that poll their cancel flag.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from firstlight.errors import ScenarioError
from firstlight.tui.answer import (
    Answer,
    Citation,
    DesignAnswer,
    Lane,
    Life,
    Marginal,
    Span,
    Tier,
    Timeline,
    Verdict,
)
from firstlight.tui.field import BY_KEY
from firstlight.tui.solver import Cancel, Cancelled

if TYPE_CHECKING:
    from firstlight.tui.state import Setup

GPU = {
    "h100-sxm-8x": (8 * 1.0e15, 10_200.0, 8 * 3.35e12), "h200-sxm-8x": (8 * 1.0e15, 10_400.0, 8 * 4.8e12),
    "b200-8x": (8 * 2.2e15, 14_300.0, 8 * 8.0e12), "b300-8x": (8 * 2.4e15, 15_000.0, 8 * 8.0e12),
    "mi300x-8x": (8 * 1.3e15, 11_000.0, 8 * 5.3e12), "mi355x-8x": (8 * 2.5e15, 15_500.0, 8 * 8.0e12),
}  # fmt: skip
MODEL = {
    "llama-3.1-8b": (8e9, 32, 4096), "llama-3.1-70b": (70e9, 80, 8192),
    "llama-3.1-405b": (405e9, 126, 16384), "deepseek-v3": (37e9, 61, 7168),
    "qwen3-235b-a22b": (22e9, 94, 4096), "gpt-oss-120b": (5e9, 36, 2880),
}  # fmt: skip
SPEED = {"bf16": 0.5, "fp16": 0.5, "fp8": 1.0, "int8": 1.0, "nvfp4": 1.6, "mxfp4": 1.6, "int4": 1.0}
OPTICAL_W = 10_000.0


class DoubleSolver:
    """Plain formulas; counts how many simulations run at once."""

    tiers = frozenset(Tier)

    def __init__(self, *, coarse_s: float = 0.004, full_s: float = 0.02) -> None:
        self.coarse_s = coarse_s
        self.full_s = full_s
        self.most_at_once = 0
        self.simulations = 0
        self.cancelled = 0
        self.fails = False
        self._now = 0
        self._lock = threading.Lock()

    def analytic(self, setup: Setup) -> Answer:
        if self.fails:
            raise RuntimeError("the double was told to fail")
        return _answer(setup, Tier.ANALYTIC)

    def simulate(self, setup: Setup, *, fidelity: Tier, cancel: Cancel) -> Answer:
        with self._lock:
            self._now += 1
            self.simulations += 1
            self.most_at_once = max(self.most_at_once, self._now)
        try:
            end = time.perf_counter() + (self.coarse_s if fidelity is Tier.COARSE else self.full_s)
            while time.perf_counter() < end:
                if cancel.is_set:
                    self.cancelled += 1
                    raise Cancelled
                time.sleep(0.001)
            return _answer(setup, fidelity)
        finally:
            with self._lock:
                self._now -= 1

    def timeline(self, setup: Setup, *, design: str, cancel: Cancel) -> Timeline:
        del cancel
        return _timeline(setup, design)

    def claims(self, setup: Setup, *, cancel: Cancel) -> tuple[Verdict, ...]:
        del setup, cancel
        return (
            Verdict(
                claim="10x performance per watt in prefill", state="partly",
                here="2.9x linear layers only, 1.6x whole prefill", basis="H100 FP8, server watts",
                holds_when="reload is 1 us and the clock is 10 GHz",
                settings=(("t_reload_s", 1e-6), ("f_cycle_hz", 1e10)), source="vendor brief, 2026",
            ),
            Verdict(
                claim="up to 90 % less power", state="fails", here="38 % less", basis="facility",
                holds_when="attention runs forty times faster and the mask takes 8 bits",
                settings=(("mask_bits", 8.0), ("attention_op_per_s_per_engine", 1e16)), source="vendor page, 2025",
            ),
            Verdict(
                claim="1/10 of the cost of ownership", state="unknown", here="no public price",
                basis="not stated", source="vendor page, 2025",
            ),
            Verdict(
                claim="a billion-parameter model in real time", state="holds", here="11 ms a token",
                basis="one request", source="press release, 2026",
            ),
        )  # fmt: skip


def _answer(setup: Setup, tier: Tier) -> Answer:
    if setup.number("power_w") < 12_000:
        raise ScenarioError("power 10kW feeds no server; the smallest cell here needs 12.2 kW")
    share = setup["optical_share_frac"]
    share = 0.5 if isinstance(share, str) else share
    designs = (
        _design(setup, "gpu-colocated", "co-located", 0.0, interference=1.35),
        _design(setup, "gpu-disaggregated", "disaggregated", 0.0, interference=1.0),
        _design(setup, "optical+gpu", "optical+GPU", share, interference=1.0),
    )
    # The faster answers are a little off, as real ones would be, and each can be told apart.
    off = {Tier.ANALYTIC: 1.03, Tier.COARSE: 1.01, Tier.FULL: 1.0}[tier]
    designs = tuple(
        replace(d, metrics={k: v and v * off for k, v in d.metrics.items()}) for d in designs
    )
    freed = (
        designs[2].metrics["goodput_request_per_s"] / designs[1].metrics["goodput_request_per_s"]
    )
    designs = (*designs[:2], replace(designs[2], gpu_equivalents_freed=round((freed - 1) * 200)))
    citations = (
        Citation(
            path="dense_fp8_flop_per_s", value=1.979e15, unit="flop/s", status="datasheet",
            source="NVIDIA H100 data sheet", date="2024-03",
        ),
        Citation(
            path="t_reload_s", value=setup.number("t_reload_s"), unit="s", status="assumed",
            source="not disclosed", note="range 1 us to 1 ms",
        ),
    )  # fmt: skip
    return Answer(
        tier=tier, designs=designs, citations=citations,
        warnings=("reload time and clock are not disclosed; they decide this answer",),
    )  # fmt: skip


def _design(
    setup: Setup, name: str, label: str, optical_share: float, *, interference: float
) -> DesignAnswer:
    params, layers, hidden = MODEL.get(str(setup["model"]), (30e9, 60, 6144))
    flop_per_s, watts, _bytes_per_s = GPU.get(str(setup["gpu"]), GPU["h100-sxm-8x"])
    _, decode_w, decode_bytes_per_s = GPU.get(str(setup["decode_silicon"]), GPU["h100-sxm-8x"])
    flop_per_s *= SPEED[str(setup["weights"])] * 0.55
    ctx = BY_KEY["context_tok"].on_track(setup["context_tok"])
    out = BY_KEY["output_tok"].on_track(setup["output_tok"])
    fresh = ctx * (1 - setup.number("cached_frac"))
    linear = 2 * params * fresh
    attention = 4 * layers * hidden * fresh * ctx / 2
    is_optical = name == "optical+gpu" and optical_share > 0
    part = dict.fromkeys(
        (
            "optics",
            "gpu_prefill",
            "attention",
            "gpu_decode",
            "kv_transfer",
            "host",
            "idle",
            "cooling",
        ),
        0.0,
    )
    if is_optical:
        engines, clock = setup.number("engines"), setup.number("f_cycle_hz")
        passes = math.ceil(8 / setup.number("mask_bits"))
        tiles = params / 2048**2 / engines
        gather = 1 + 20_000 / fresh  # passes are shared by waiting prompts
        pass_s = tiles * passes * (setup.number("t_reload_s") / gather + fresh / clock)
        linear_s, linear_w = pass_s, OPTICAL_W * 10 ** ((setup.number("target_snr_db") - 30) / 40)
        attention_s = attention / (setup.number("attention_op_per_s_per_engine") * engines)
        prefill_s = max(linear_s, 1e-6) + attention_s
        part["optics"] = linear_s * linear_w
        part["attention"] = attention_s * watts * 0.6
    else:
        linear_s = linear / flop_per_s
        attention_s = attention / flop_per_s
        prefill_s = (linear_s + attention_s) * interference
        part["gpu_prefill"] = prefill_s * watts * 0.7
    batch = 48.0
    step_s = (params + layers * hidden / 4 * ctx * batch / 32) / (decode_bytes_per_s * 0.6)
    tpot = step_s * interference + 0.006
    part["gpu_decode"] = tpot * out / batch * decode_w * 0.6
    part["kv_transfer"] = 0.0 if name == "gpu-colocated" else ctx * 3e-4
    part["host"] = 0.08 * sum(part.values())
    part["idle"] = 0.15 * (part["gpu_prefill"] + part["gpu_decode"] + part["attention"])
    part["cooling"] = (setup.number("pue") - 1) * sum(part.values())
    joules = sum(part.values())
    rate = setup.number("power_w") * 0.8 / joules
    ttft = prefill_s * 1.4 + 0.03
    fits = ttft < setup.number("ttft_s") * 4
    price = setup.number("price_ratio") if is_optical else 1.0
    equipment = joules * 1.1e-7 * (price * part["optics"] / joules + 1 - part["optics"] / joules)
    dollars = joules / 3.6e6 * setup.number("electricity_usd_per_kwh") + equipment
    prefill_share = min(prefill_s / (prefill_s + tpot * out / batch), 0.97)
    linear_j = (
        part["optics"] if is_optical else part["gpu_prefill"] * linear_s / (linear_s + attention_s)
    )
    metrics: dict[str, float | None] = {
        "goodput_request_per_s": rate if fits else 0.02 * rate,
        "output_tok_per_s": rate * out,
        "ttft_s.p50": ttft,
        "ttft_s.p99": ttft * 3.1,
        "tpot_s.p50": tpot,
        "energy_j_per_request": joules,
        "scopes.prefill.energy_j_per_request": part["optics"]
        + part["gpu_prefill"]
        + part["attention"],
        "scopes.linear_only.energy_j_per_request": linear_j,
        "cost_usd_per_mtok_input": dollars * prefill_share / ctx * 1e6,
        "cost_usd_per_mtok_output": dollars * (1 - prefill_share) / out * 1e6,
        "carbon_g_per_request": joules / 3.6e6 * 380,
    }
    weakest = "assumed" if is_optical else "estimate"
    return DesignAnswer(
        name=name,
        label=label,
        metrics=metrics,
        status=dict.fromkeys(metrics, weakest),
        energy_j_by_part=part,
        binding=(
            Marginal(resource="HBM bandwidth", pool="decode", gain=0.62),
            Marginal(resource="power", pool="facility", gain=0.31),
            Marginal(resource="mask reload", pool="optics", gain=0.05),
        ),
    )


def _timeline(setup: Setup, design: str) -> Timeline:
    lanes, lives = [], []
    for unit in range(4):
        spans, t = [], 0.01 * unit
        for turn in range(12):
            name = f"r{turn * 4 + unit}"
            spans.append(Span(start_s=t, end_s=t + 0.004, kind="reload"))
            kind = "optics" if design == "optical+gpu" else "prefill"
            spans.append(Span(start_s=t + 0.004, end_s=t + 0.026, kind=kind, request=name))
            lives.append(
                Life(
                    request=name,
                    stages=(
                        Span(start_s=max(t - 0.02, 0), end_s=t + 0.004, kind="queue"),
                        Span(start_s=t + 0.004, end_s=t + 0.026, kind=kind),
                        Span(start_s=t + 0.026, end_s=t + 0.034, kind="transfer"),
                        Span(start_s=t + 0.034, end_s=t + 0.3, kind="decode"),
                    ),
                )
            )
            t += 0.031 + 0.003 * ((turn * 7 + unit) % 4)
        lanes.append(Lane(name=f"OPT{unit}", busy_frac=0.9, spans=tuple(spans)))
    lanes += [
        Lane(
            name=f"GPU{unit}", busy_frac=0.95,
            occupancy=tuple(0.6 + 0.35 * math.sin(unit + i / 5) for i in range(96)),
        )
        for unit in range(8)
    ]  # fmt: skip
    lanes.append(
        Lane(
            name="KV link", busy_frac=0.3,
            spans=tuple(Span(start_s=i * 0.03, end_s=i * 0.03 + 0.01, kind="transfer", request=f"r{i}") for i in range(14)),
        )
    )  # fmt: skip
    return Timeline(start_s=0.0, end_s=0.45, lanes=tuple(lanes), lives=tuple(lives))
