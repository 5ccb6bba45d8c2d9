"""The optical step table and the server's power."""

import dataclasses

import numpy as np
import pytest

from firstlight import catalog, models
from firstlight.optics import (
    AttentionUnit,
    EngineSpec,
    explain,
    linear_stack,
    pass_ledger,
    pass_time_s,
    server_power,
    step_table,
)

LLAMA_70B = linear_stack(models.load("llama-3.1-70b"))
NOVA = EngineSpec.preset("iris-nova-optimistic")


def table(**options):
    return step_table(LLAMA_70B, **{"spec": NOVA, "weight_bits": 4, "max_seqs": 8, **options})


def test_a_pass_of_70b_on_four_engines_takes_163_ms_up_to_ten_thousand_tokens():
    steps = table()
    assert steps.max_tok == 16384
    assert steps.linear_ps[0] == 0
    assert steps.linear_ps[1] == steps.linear_ps[10_000] == 163_200_000_000
    assert steps.linear_ps[10_001] > steps.linear_ps[10_000]


def test_the_table_is_the_pass_model_in_picoseconds_and_picojoules():
    steps = table(max_tok=3000)
    assert steps.linear_ps[3000] == round(
        1e12 * float(pass_time_s(LLAMA_70B, spec=NOVA, tokens=3000))
    )
    ledger = pass_ledger(LLAMA_70B, spec=NOVA, tokens=3000)
    assert float(steps.linear_pj[3000]) == pytest.approx(1e12 * ledger.energy_j, rel=1e-9)


def test_shapes_and_types_are_the_schedulers():
    steps = table(max_tok=100)
    for item in dataclasses.fields(steps):
        value = getattr(steps, item.name)
        if isinstance(value, np.ndarray):
            assert value.dtype == np.uint64
            assert len(value) in (101, 9)


def test_prefill_attention_is_its_arithmetic():
    steps = table(max_tok=10)
    mac_per_pair = 2 * 80 * 64 * 128
    assert steps.prefill_attn_pair_fs[10] == round(2 * mac_per_pair / 1e15 * 1e15)
    assert steps.prefill_attn_pair_fj[10] == round(mac_per_pair * 0.2e-12 * 1e15)
    # Causal attention of a prompt of T tokens is L·H·d·T² multiply-accumulates.
    tokens = 32768
    pairs = tokens * (tokens + 1) // 2
    assert mac_per_pair * pairs == pytest.approx(80 * 64 * 128 * tokens**2, rel=1e-4)


def test_attention_on_a_gpu_takes_the_gpus_time_and_energy():
    gpu = AttentionUnit(name="gpu", op_per_s=4e14, energy_j_per_mac=1e-12, mem_bytes_per_s=3e12)
    own, other = table(max_tok=10), table(max_tok=10, attention=gpu)
    assert other.prefill_attn_pair_fs[1] == pytest.approx(2.5 * float(own.prefill_attn_pair_fs[1]))
    assert other.prefill_attn_pair_fj[1] == pytest.approx(5 * float(own.prefill_attn_pair_fj[1]))
    assert np.array_equal(other.linear_ps, own.linear_ps)


def test_the_head_reads_its_weights_once_a_pass():
    steps = table(weight_bits=8)
    read_ps = 8192 * 128256 / 1e12 * 1e12
    assert steps.head_ps[0] == 0
    assert steps.head_ps[1] == steps.head_ps[8] == pytest.approx(read_ps)
    assert steps.head_pj[8] > steps.head_pj[1] > 0


def test_slower_masks_and_wider_weights_take_longer():
    base = int(table(max_tok=10).linear_ps[10])
    slow = NOVA.replace(t_reload_s=1e-3)
    assert table(max_tok=10, spec=slow).linear_ps[10] == 100 * base
    assert table(max_tok=10, weight_bits=8).linear_ps[10] == 2 * base


def test_a_published_server_example_within_its_printed_digits():
    # Llama-3.1-8B, 8 engines, 1 GHz, 10 µs, 16 prompts of 4,096: 1.2 M tok/s and 1,427 W there,
    # with attention hidden behind the linear layers, which is what this sum repeats.
    stack = linear_stack(models.load("llama-3.1-8b"))
    spec = NOVA.replace(engines=8)
    steps = step_table(stack, spec=spec, weight_bits=4, max_seqs=16)
    tokens, prompts = 16384, 4
    time_s = float(steps.linear_ps[tokens]) / 1e12
    pairs = prompts * 4096 * 4097 // 2
    joules = float(steps.linear_pj[tokens]) / 1e12
    joules += pairs * float(steps.prefill_attn_pair_fj[4096]) / 1e15
    power = server_power(spec)
    assert tokens / time_s == pytest.approx(1.2e6, rel=0.01)
    assert power.idle_w + joules / time_s * power.psu_factor == pytest.approx(1427, rel=0.02)


def test_server_power_grows_boundary_by_boundary():
    power = server_power(NOVA, pue=1.2)
    assert power.idle_w == pytest.approx((400 + 4 * 15) * 1.1)
    assert power.engine_idle_w < power.idle_w < power.facility_idle_w
    assert power.engine_peak_w < power.peak_w < power.facility_peak_w
    assert power.facility_peak_w == pytest.approx(1.2 * power.peak_w)


def test_no_pass_draws_more_than_the_peak():
    power = server_power(NOVA)
    steps = table()
    watts = steps.linear_pj[1:].astype(float) / steps.linear_ps[1:].astype(float)
    assert watts.max() + power.engine_idle_w <= power.engine_peak_w
    assert watts.max() + power.engine_idle_w > 0.9 * power.engine_peak_w  # a bound, not a guess


def test_peak_power_of_an_engine_without_any_energy_is_its_static_power():
    power = server_power(EngineSpec.preset("physical-limit"))
    assert power.idle_w == 0
    assert np.isfinite(power.peak_w)


def test_explain_prints_the_published_interfaces():
    facts = explain(NOVA, stack=LLAMA_70B)
    assert facts.reload_cycles == facts.break_even_tok == 10_000
    assert facts.tiles == 65280
    assert facts.chunk_tok == 16384
    assert facts.pass_floor_s == pytest.approx(0.1632)
    assert facts.vector_in_bit_per_s == pytest.approx(8.2e12, rel=0.01)
    assert facts.vector_out_bit_per_s == pytest.approx(10.2e12, rel=0.01)
    assert facts.weight_bit_per_s == pytest.approx(0.42e12, rel=0.01)
    assert facts.cycle_energy_j == pytest.approx(79.7e-9, rel=0.01)


def test_sliding_layers_cost_a_window_for_each_token_and_full_layers_a_pair():
    shape = models.load("gpt-oss-20b")
    stack = linear_stack(shape)
    steps = step_table(stack, spec=NOVA, weight_bits=4, max_seqs=1, max_tok=2)
    mac = 2 * shape.num_heads * shape.head_dim
    assert stack.attention_mac_per_pair == 12 * mac
    assert stack.attention_mac_per_tok == 12 * 128 * mac
    plain_s = pass_time_s(stack, spec=NOVA, tokens=2)
    extra_s = float(steps.linear_ps[2]) / 1e12 - float(plain_s)
    assert extra_s == pytest.approx(2 * 2 * 12 * 128 * mac / 1e15, rel=1e-3)


@pytest.mark.parametrize("name", catalog.ids("model"))
def test_every_model_of_the_catalog_has_a_table(name):
    shape = models.load(name)
    stack = linear_stack(shape)
    routers = shape.moe_layers * shape.hidden_size * shape.moe_experts
    assert stack.resident_weights == shape.linear_params - routers
    assert stack.active_weights == shape.linear_params_active - routers
    steps = step_table(stack, spec=NOVA, weight_bits=4, max_seqs=4)
    assert np.all(np.diff(steps.linear_ps.astype(np.int64)) >= 0)
    assert np.all(np.diff(steps.linear_pj.astype(np.int64)) > 0)
