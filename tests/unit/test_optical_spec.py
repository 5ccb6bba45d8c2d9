"""Engine specifications and model shapes: what is accepted, and how a refusal reads."""

import math

import pytest

from firstlight import models, optics
from firstlight.errors import CatalogError, ModelError, ScenarioError
from firstlight.optics import (
    AttentionUnit,
    EngineSpec,
    LinearLayer,
    LinearStack,
    layer_ledger,
    linear_stack,
    pass_time_s,
    prompt_time_s,
    server_power,
    step_table,
    tile_count,
    utilization,
)

NOVA = EngineSpec.preset("iris-nova-optimistic")
STACK = LinearStack(
    layers=(LinearLayer(name="a", k=100, n=100),),
    hidden_size=100,
    head=LinearLayer(name="head", k=100, n=1000),
)


def test_every_public_name_resolves():
    for name in optics.__all__:
        assert getattr(optics, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        optics.nothing  # noqa: B018


@pytest.mark.parametrize("preset", EngineSpec.preset_ids())
def test_every_preset_is_valid(preset):
    assert EngineSpec.preset(preset).inputs >= 16


def test_the_two_ends_of_the_band_differ_only_in_the_reload():
    conservative = EngineSpec.preset("iris-nova-conservative")
    assert conservative.replace(t_reload_s=NOVA.t_reload_s) == NOVA
    assert conservative.t_reload_s > 50 * NOVA.t_reload_s


def test_ideal_means_switched_off():
    spec = NOVA.replace(adc_bits="ideal", mask_contrast_ratio=None)
    assert spec.adc_bits is None
    assert spec.mask_contrast_ratio is None


def test_unknown_preset_names_the_nearest():
    with pytest.raises(CatalogError, match="did you mean 'iris-nova-optimistic'"):
        EngineSpec.preset("iris-nova-optimist")


def test_unknown_field_names_the_nearest():
    with pytest.raises(ScenarioError, match="did you mean 't_reload_s'"):
        EngineSpec.preset("iris-nova-optimistic", t_reload=1e-5)
    with pytest.raises(ScenarioError, match="did you mean 'engines'"):
        NOVA.replace(engine=3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"engines": 0}, r"engines: 0 is out of range; allowed: 1 to 1000"),
        ({"engines": -1}, "out of range"),
        ({"engines": 1.5}, "whole number"),
        ({"engines": True}, "not a number"),
        ({"inputs": 0}, "inputs: 0 is out of range"),
        (
            {"f_cycle_hz": math.nan},
            "f_cycle_hz: nan is out of range; allowed: 1e\\+06 to 2e\\+10 Hz",
        ),
        ({"f_cycle_hz": math.inf}, "out of range"),
        ({"t_reload_s": -1e-6}, "out of range"),
        ({"t_reload_s": "fast"}, "'fast' is not a number"),
        ({"t_reload_s": None}, "not a number"),
        ({"t_reload_s": "ideal"}, "not a number"),
        ({"weight_stream_bytes_per_s": 0}, "out of range"),
        ({"double_buffer": 1}, "not true or false"),
        ({"signed_encoding": "two_pass_balance"}, "did you mean 'two_pass_balanced'"),
        ({"mask_response_poly": [1, 2]}, "three finite numbers"),
        ({"mask_response_poly": [1, 2, math.nan]}, "three finite numbers"),
        ({"mask_response_poly": [1, 2, "x"]}, "three finite numbers"),
    ],
)
def test_bad_engine_values_are_refused(changes, words):
    with pytest.raises(ScenarioError, match=words):
        NOVA.replace(**changes)


@pytest.mark.parametrize(
    "sizes", [{"k": 0}, {"n": -5}, {"count": 0}, {"k": 1.5}, {"experts": 2, "top_k": 3}]
)
def test_bad_layers_are_refused(sizes):
    with pytest.raises(ModelError, match="layer 'x'"):
        LinearLayer(**{"name": "x", "k": 10, "n": 10, **sizes})


def test_a_model_without_layers_is_refused():
    with pytest.raises(ModelError, match="without linear layers"):
        LinearStack(layers=(), hidden_size=10)
    with pytest.raises(ModelError, match="hidden_size"):
        LinearStack(layers=STACK.layers, hidden_size=0)


def test_latent_attention_and_shared_experts_are_in_the_stack():
    stack = linear_stack(models.load("deepseek-v3"))
    # 671.0 B parameters in all; the two embeddings and the routers are not in the stack.
    assert stack.resident_weights == pytest.approx(671.0e9 - 2 * 7168 * 129280, rel=0.001)
    assert stack.kv_elements_per_tok * 2 == 70_272
    assert stack.head is not None
    assert 2 * (stack.active_weights + stack.head.k * stack.head.n) == pytest.approx(
        73_249_193_984, rel=0.005
    )
    assert tile_count(stack, spec=NOVA) > 600_000


@pytest.mark.parametrize("tokens", [-1, math.nan, math.inf, [3, -2]])
def test_bad_token_counts_are_refused(tokens):
    with pytest.raises(ScenarioError, match="tokens"):
        pass_time_s(STACK, spec=NOVA, tokens=tokens)


@pytest.mark.parametrize("bits", [0, -4, 17, 4.0, True])
def test_bad_weight_bits_are_refused(bits):
    with pytest.raises(ScenarioError, match="weight_bits"):
        pass_time_s(STACK, spec=NOVA, tokens=1, weight_bits=bits)


def test_bad_chunks_and_prompts_are_refused():
    with pytest.raises(ScenarioError, match="chunk_tok"):
        utilization(NOVA, chunk_tok=0)
    with pytest.raises(ScenarioError, match="prompt_tok"):
        prompt_time_s(STACK, spec=NOVA, prompt_tok=0)


@pytest.mark.parametrize("bad", [{"k": 0}, {"n": -1}, {"chunk_tok": 0}, {"k": 1.5}])
def test_bad_ledger_sizes_are_refused(bad):
    with pytest.raises(ScenarioError, match=next(iter(bad))):
        layer_ledger(1, **{"k": 10, "n": 10, "spec": NOVA, **bad})


@pytest.mark.parametrize("tokens", [-1, math.nan, math.inf])
def test_bad_ledger_tokens_are_refused(tokens):
    with pytest.raises(ScenarioError, match="tokens"):
        layer_ledger(tokens, k=10, n=10, spec=NOVA)


def test_a_pass_larger_than_the_memories_is_refused():
    with pytest.raises(ModelError, match="max_tok: 20000 is not allowed; 1 to 16384"):
        step_table(STACK, spec=NOVA, weight_bits=4, max_seqs=1, max_tok=20000)
    with pytest.raises(ModelError, match="do not fit"):
        step_table(
            LinearStack(layers=STACK.layers, hidden_size=4096),
            spec=NOVA.replace(activation_sram_bytes=100),
            weight_bits=4,
            max_seqs=1,
        )


@pytest.mark.parametrize(
    "bad", [{"max_seqs": 0}, {"max_tok": 0}, {"kv_bits": 0}, {"max_tok": 2.5}, {"weight_bits": 0}]
)
def test_bad_table_sizes_are_refused(bad):
    with pytest.raises(ScenarioError, match=next(iter(bad))):
        step_table(STACK, **{"spec": NOVA, "weight_bits": 4, "max_seqs": 1, **bad})


@pytest.mark.parametrize(
    "bad",
    [
        {"op_per_s": 0},
        {"op_per_s": math.nan},
        {"mem_bytes_per_s": -1},
        {"energy_j_per_mac": -1e-12},
        {"mem_energy_j_per_bit": math.inf},
    ],
)
def test_bad_attention_units_are_refused(bad):
    good = {"name": "gpu", "op_per_s": 1e14, "energy_j_per_mac": 1e-12, "mem_bytes_per_s": 1e12}
    with pytest.raises(ScenarioError, match=next(iter(bad))):
        AttentionUnit(**{**good, **bad})


@pytest.mark.parametrize("pue", [0.9, 0, -1, math.nan, math.inf])
def test_bad_pue_is_refused(pue):
    with pytest.raises(ScenarioError, match="pue"):
        server_power(NOVA, pue=pue)
