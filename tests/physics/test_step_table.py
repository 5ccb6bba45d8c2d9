"""What any step table must obey: limits, monotonicity, caps."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from firstlight import catalog
from firstlight.models import from_table, load
from firstlight.roofline import step_table
from firstlight.roofline.step import bare_step_table
from firstlight.steps import StepTable

CASES = [
    ("llama-3.1-8b", "a100-sxm", 1, "bf16", "bf16"),
    ("llama-3.1-70b", "h100-sxm", 4, "fp8", "fp8"),
    ("llama-3.1-70b", "h200-sxm", 2, "bf16", "bf16"),
    ("llama-3.1-405b", "b200", 8, "nvfp4", "fp8"),
    ("llama-3.1-8b", "rtx-4090", 1, "bf16", "bf16"),
    ("qwen3-32b", "rtx-pro-6000", 2, "bf16", "bf16"),
    ("qwen3-30b-a3b", "h100-sxm", 2, "fp8", "bf16"),
    ("deepseek-v3", "h200-sxm", 8, "fp8-block", "bf16"),
    ("gpt-oss-120b", "b200", 2, "int4-weight", "bf16"),
    ("gemma-3-27b", "mi300x", 1, "bf16", "bf16"),
    ("llama-3.1-70b", "l40s", 8, "fp8", "fp8"),
    ("llama-3.1-70b", "gb200-nvl72", 4, "nvfp4", "fp8"),
]


def table_of(model, device, tp, weights, kv, max_tok=4096, max_seqs=256):
    return step_table(
        load(model), device, tp=tp, weights=weights, kv=kv, max_tok=max_tok, max_seqs=max_seqs
    )


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def case(request):
    return request.param, table_of(*request.param)


def test_every_entry_is_an_unsigned_integer(case):
    _, table = case
    for field in dataclasses.fields(StepTable):
        value = getattr(table, field.name)
        if isinstance(value, np.ndarray):
            assert value.dtype == np.uint64
        elif field.name != "provenance" and value is not None:
            assert isinstance(value, int)
            assert value >= 0


def test_lengths_follow_the_limits(case):
    _, table = case
    assert (table.max_tok, table.max_seqs) == (4096, 256)
    assert len(table.prefill_attn_pair_fs) == len(table.linear_pj) == 4097
    assert len(table.decode_attn_ctx_ps) == len(table.decode_attn_floor_pj) == 257


def test_nothing_costs_nothing(case):
    _, table = case
    for values in (
        table.linear_ps, table.head_ps, table.decode_attn_floor_ps,
        table.linear_pj, table.head_pj, table.decode_attn_floor_pj,
    ):  # fmt: skip
        assert values[0] == 0
        assert (values[1:] > 0).all() or values is table.decode_attn_floor_ps


def test_more_tokens_never_take_less_time(case):
    _, table = case
    assert (np.diff(table.linear_ps.astype(np.int64)) >= 0).all()
    assert (np.diff(table.head_ps.astype(np.int64)) >= 0).all()


def test_more_context_takes_more_time(case):
    _, table = case
    assert (table.decode_attn_ctx_ps[1:] > 0).all()
    assert (table.prefill_attn_pair_fs[1:] > 0).all()


def test_a_longer_chunk_does_not_make_its_pairs_dearer(case):
    _, table = case
    assert (np.diff(table.prefill_attn_pair_fs[1:].astype(np.int64)) <= 0).all()


def test_context_is_never_read_faster_than_memory_allows(case):
    (model, device, tp, _, kv), table = case
    shape = load(model)
    if shape.is_mla or shape.sliding_window_tok:
        pytest.skip("their cache is laid out differently; the plain models cover the law")
    width = {"bf16": 2, "fp8": 1}[kv]
    moved = shape.num_layers * 2 * max(1, shape.num_kv_heads // tp) * shape.head_dim * width
    bound_ps = 1e12 * moved / catalog.get(device, kind="device").value("mem_bytes_per_s")
    assert (table.decode_attn_ctx_ps[1:] >= np.floor(bound_ps)).all()


def test_no_part_draws_more_than_the_cap(case):
    (_, device, tp, _, _), table = case
    record = catalog.get(device, kind="device")
    room_w = tp * (record.value("tdp_w") - record.value("idle_w"))
    for energy_pj, time_ps in (
        (table.linear_pj, table.linear_ps),
        (table.head_pj, table.head_ps),
        (table.decode_attn_floor_pj, table.decode_attn_floor_ps),
        (table.decode_attn_ctx_pj, table.decode_attn_ctx_ps),
        (table.prefill_attn_pair_fj, table.prefill_attn_pair_fs),
    ):
        energy, time = energy_pj.astype(float), time_ps.astype(float)
        assert (energy <= room_w * time * (1 + 1e-6) + room_w).all()


def test_a_long_step_reaches_the_sustained_rate_of_the_measured_products():
    # H100 BF16 products of 8192 by 8192 by 8192 sustain 783 TFLOP/s (aiconfigurator @095f58a5);
    # a whole step also moves activations, so it stays a little below and never above the peak.
    shape = load("llama-3.1-70b")
    table = bare_step_table(
        shape, "h100-sxm", tp=1, weights="bf16", kv="bf16", max_tok=32768, max_seqs=8
    )
    rate = 2 * shape.linear_params * 32768 / (float(table.linear_ps[32768]) / 1e12)
    assert 0.60 * 989e12 < rate < 0.80 * 989e12


def test_a_single_token_is_bound_by_reading_the_weights():
    shape = load("llama-3.1-70b")
    table = bare_step_table(
        shape, "h100-sxm", tp=8, weights="bf16", kv="bf16", max_tok=8, max_seqs=8
    )
    stream_s = 2 * shape.linear_params / 8 / 3.35e12
    assert 1.0 < float(table.linear_ps[1]) / 1e12 / stream_s < 2.0


def test_a_larger_group_is_faster_but_not_in_proportion():
    times = [
        float(table_of("llama-3.1-70b", "h200-sxm", tp, "fp8", "fp8").linear_ps[2048])
        for tp in (1, 2, 4, 8)
    ]
    for small, large in itertools.pairwise(times):
        assert small / 2 < large < small


def test_kv_heads_are_copied_when_the_group_outnumbers_them():
    common = {
        "num_layers": 4, "hidden_size": 4096, "num_heads": 32, "head_dim": 128, "ffn_size": 8192,
        "vocab_size": 32000, "max_context_tok": 4096,
    }  # fmt: skip
    one, eight = (
        step_table(
            from_table({**common, "num_kv_heads": heads}), "h100-sxm", tp=8, weights="bf16",
            kv="bf16", max_tok=16, max_seqs=16,
        )
        for heads in (1, 8)
    )  # fmt: skip
    assert (one.decode_attn_ctx_ps == eight.decode_attn_ctx_ps).all()


def test_fewer_bits_read_faster():
    # Not in proportion: measured NVFP4 products include quantising the activations.
    times = [
        float(table_of("llama-3.1-405b", "b200", 8, weights, "bf16").linear_ps[8])
        for weights in ("bf16", "fp8", "nvfp4")
    ]
    assert times == sorted(times, reverse=True)


def test_a_sliding_window_bounds_what_context_costs():
    full = load("gemma-3-27b")
    sliding = table_of("gemma-3-27b", "h100-sxm", 1, "bf16", "bf16", max_tok=64, max_seqs=8)
    everywhere = step_table(
        dataclasses.replace(full, sliding_window_tok=0, sliding_layers_per_full_layer=0),
        "h100-sxm", tp=1, weights="bf16", kv="bf16", max_tok=64, max_seqs=8,
    )  # fmt: skip
    share = full.full_layers / full.num_layers
    slopes = sliding.decode_attn_ctx_ps[4], everywhere.decode_attn_ctx_ps[4]
    assert float(slopes[0]) == pytest.approx(share * float(slopes[1]), rel=1e-3)


def test_prefill_draws_near_the_cap_and_a_lone_decode_far_below():
    table = bare_step_table(
        load("llama-3.1-70b"), "h200-sxm", tp=2, weights="bf16", kv="bf16", max_tok=8192, max_seqs=8
    )
    record = catalog.get("h200-sxm", kind="device")

    def board_w(m):
        return float(table.linear_pj[m]) / float(table.linear_ps[m]) / 2 + record.value("idle_w")

    assert board_w(8192) > 0.93 * record.value("tdp_w")
    assert board_w(1) < 0.80 * record.value("tdp_w")


def test_board_power_of_a_large_product_is_the_measured_one():
    # Held-out anchors: H200 BF16 8192 cubed 0.976 pJ/FLOP, B200 NVFP4 0.245 pJ/FLOP
    # (aiconfigurator @095f58a5, NVML). The curve was fitted to all long loops, not to these rows.
    from firstlight.roofline.device import device
    from firstlight.roofline.linear import gemm
    from firstlight.roofline.precision import precision

    for name, weights, measured_j in (
        ("h200-sxm", "bf16", 0.976e-12),
        ("b200", "nvfp4", 0.245e-12),
    ):
        where = device(name)
        cost = gemm(where, precision(weights), rows=8192, cols=8192, tokens=np.array([8192.0]))
        joule = float(cost.energy_j[0] + where.idle_w * cost.time_s[0])
        assert joule / (2 * 8192**3) == pytest.approx(measured_j, rel=0.15)
