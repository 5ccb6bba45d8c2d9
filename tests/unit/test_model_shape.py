"""Model shapes: the counts that follow from a shape, and what a shape refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.errors import CatalogError, ModelError
from firstlight.models import ModelShape, from_table, load, operators
from firstlight.models.operator import distinct_experts

# Parameter counts (total, active) and KV bytes a token in 16 bits, derived independently from the
# published configurations; they reproduce the published sizes.
PUBLISHED = {
    "smollm2-135m": (134479872, 134479872, 23040),
    "smollm2-360m": (361758720, 361758720, 40960),
    "smollm2-1.7b": (1711276032, 1711276032, 196608),
    "llama-3.2-1b": (1235746816, 1235746816, 32768),
    "llama-3.2-3b": (3212574720, 3212574720, 114688),
    "llama-3.1-8b": (8029995008, 8029995008, 131072),
    "llama-3.1-70b": (70552387584, 70552387584, 327680),
    "llama-3.3-70b": (70552387584, 70552387584, 327680),
    "llama-3.1-405b": (405849243648, 405849243648, 516096),
    "llama-2-7b": (6738149376, 6738149376, 524288),
    "llama-2-70b": (68975329280, 68975329280, 327680),
    "qwen3-8b": (8190427136, 8190427136, 147456),
    "qwen3-32b": (32761446400, 32761446400, 262144),
    "qwen3-30b-a3b": (30531911680, 3352821760, 98304),
    "qwen3-235b-a22b": (235092836352, 22189965312, 192512),
    "deepseek-v3": (671025397760, 37551276032, 70272),
    "deepseek-r1": (671025397760, 37551276032, 70272),
    "gpt-oss-20b": (20907786240, 4186275840, 49152),
    "gpt-oss-120b": (116788838400, 5710233600, 73728),
    "mixtral-8x7b": (46702526464, 12879659008, 131072),
    "gemma-3-27b": (27007647744, 27007647744, 507904),
}

TOY = {
    "num_layers": 2,
    "hidden_size": 64,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 16,
    "ffn_size": 128,
    "vocab_size": 100,
    "max_context_tok": 512,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_counts_reproduce_the_published_sizes(name):
    shape = load(name)
    counts = (shape.params_total, shape.params_active, shape.kv_bytes_per_tok(16))
    assert counts == PUBLISHED[name]


@pytest.mark.parametrize("name", PUBLISHED)
def test_operators_hold_every_weight_once(name):
    shape = load(name)
    found = operators(shape)
    assert sum(op.weight_elements for op in found if op.kind == "linear") == shape.linear_params
    active = sum(op.weight_elements_active for op in found if op.kind == "linear")
    assert active == shape.linear_params_active
    assert sum(op.weight_elements for op in found if op.kind == "head") == shape.embedding_params


def test_linear_params_leave_the_output_head_out():
    assert load("llama-3.1-70b").linear_params == 68_451_041_280
    assert load("llama-3.1-8b").linear_params == 6_979_321_856


def test_a_tied_head_is_stored_once_and_computed_all_the_same():
    tied, apart = from_table({**TOY, "tie_embeddings": True}), from_table(TOY)
    assert apart.params_total - tied.params_total == 100 * 64
    assert [op.flop(3) for op in operators(tied)] == [op.flop(3) for op in operators(apart)]


def test_linear_flop_is_two_for_each_weight_and_token():
    shape = load("llama-3.1-8b")
    flop = sum(op.flop(7) for op in operators(shape) if op.kind == "linear")
    assert flop == 2 * 7 * shape.linear_params


def test_attention_flop_counts_causal_pairs():
    shape = from_table(TOY)
    # Two layers, 4 heads of 16: 4 * 4 * 16 FLOP a pair; 3 tokens behind 5 see 6 + 7 + 8 tokens.
    assert shape.attention_flop(3, 5) == 2 * 256 * (6 + 7 + 8)
    assert shape.attention_flop(0, 5) == 0


def test_attention_flop_is_additive_over_chunks():
    shape = from_table({**TOY, "sliding_window_tok": 32, "sliding_layers_per_full_layer": 1})
    whole = shape.attention_flop(100, 0)
    assert whole == shape.attention_flop(40, 0) + shape.attention_flop(60, 40)


def test_a_sliding_layer_never_sees_more_than_its_window():
    full = from_table(TOY)
    sliding = from_table({**TOY, "sliding_window_tok": 32, "sliding_layers_per_full_layer": 1})
    assert sliding.attention_flop(20, 0) == full.attention_flop(20, 0)
    one_layer = full.attention_flop(1, 1000) // 2
    assert sliding.attention_flop(1, 1000) == one_layer + 256 * 32


def test_decode_reads_the_latent_instead_of_keys_and_values():
    shape = load("deepseek-v3")
    (attend,) = (op for op in operators(shape, phase="decode") if op.kind == "attention")
    assert attend.elements_per_pair == 576
    assert attend.flop_per_pair == 2 * 128 * (512 + 512 + 64)


def test_weight_bytes_keep_embeddings_in_16_bits():
    shape = load("llama-3.1-8b")
    assert shape.weight_bytes(16) == 2 * shape.params_total
    assert shape.weight_bytes(8) == shape.linear_params + 4 * shape.embedding_params


@given(st.integers(1, 2000), st.integers(2, 64), st.data())
def test_distinct_experts_stay_within_what_is_possible(tokens, experts, data):
    topk = data.draw(st.integers(1, experts))
    hit = distinct_experts(tokens, experts=experts, topk=topk)
    assert 0 < hit <= min(experts, tokens * topk) + 1e-9
    assert hit <= distinct_experts(tokens + 1, experts=experts, topk=topk)


def test_one_token_visits_as_many_experts_as_it_is_sent_to():
    assert distinct_experts(1, experts=128, topk=8) == pytest.approx(8)
    assert distinct_experts(1e9, experts=128, topk=8) == pytest.approx(128)


def test_nested_and_flat_tables_mean_the_same():
    nested = {**TOY, "moe": {"experts": 8, "topk": 2, "expert_ffn": 32}}
    flat = {**TOY, "moe_experts": 8, "moe_topk": 2, "moe_expert_ffn_size": 32}
    assert from_table(nested) == from_table(flat)
    assert isinstance(load(nested), ModelShape)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_kv_heads": 3}, "num_heads = 4 is not a multiple of num_kv_heads = 3"),
        ({"num_layers": 0}, "num_layers = 0 is outside 1"),
        ({"hidden_size": -64}, "hidden_size = -64 is outside"),
        ({"vocab_size": 10**9}, "vocab_size = 1000000000 is outside"),
        ({"head_dim": 16.5}, "head_dim must be an integer, not 16.5"),
        ({"ffn_size": True}, "ffn_size must be an integer, not True"),
        ({"num_heads": float("nan")}, "num_heads must be an integer, not nan"),
        ({"hiden_size": 4}, "did you mean 'hidden_size'"),
        ({"moe_experts": 8}, "needs 1 <= moe_topk <= moe_experts"),
        ({"moe": {"expert": 8}}, "did you mean 'experts'"),
        ({"moe_experts": 8, "moe_topk": 9, "moe_expert_ffn_size": 4}, "moe_topk = 9"),
        ({"sliding_window_tok": 8}, "go together"),
        ({"mla_kv_lora_rank": 8}, "latent attention needs"),
        ({"tie_embeddings": "yes"}, "tie_embeddings must be true or false, not 'yes'"),
        (
            {
                "moe_experts": 8,
                "moe_topk": 2,
                "moe_expert_ffn_size": 4,
                "moe_first_dense_layers": 3,
            },
            "moe_first_dense_layers = 3 exceeds num_layers = 2",
        ),
    ],
)
def test_an_impossible_shape_is_refused_by_name(change, said):
    with pytest.raises(ModelError, match=said):
        from_table({**TOY, **change}, id="toy")


def test_a_missing_field_is_named():
    with pytest.raises(ModelError, match="missing hidden_size"):
        from_table({k: v for k, v in TOY.items() if k != "hidden_size"})


def test_negative_lengths_and_widths_are_refused():
    shape = from_table(TOY)
    with pytest.raises(ModelError, match="must not be negative"):
        shape.attention_flop(-1, 0)
    with pytest.raises(ModelError, match="positive"):
        shape.weight_bytes(0)
    with pytest.raises(ModelError, match="positive"):
        shape.kv_bytes_per_tok(-8)
    with pytest.raises(ModelError, match="unknown phase"):
        operators(shape, phase="train")


def test_an_unknown_model_is_refused_with_the_nearest_id():
    with pytest.raises(CatalogError, match=r"llama-3\.1-70b"):
        load("llama-3.1-70")
