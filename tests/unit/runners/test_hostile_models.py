"""Model files made to break a reader: whatever they hold, an answer or one line of refusal."""

import json
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from firstlight.errors import ModelError
from firstlight.runners import gguf, safetensors
from firstlight.runners.excerpt import excerpt
from firstlight.runners.tokenizer import load_tokenizer
from reference.model_files import (
    gguf_bytes,
    safetensors_bytes,
    tensor_row,
    text,
    tiny_metadata,
    tiny_tensors,
    write_tiny_gguf,
)

pytest.importorskip("tokenizers", reason="needs firstlight[models]")

FUZZ = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
NUMBERS = st.integers(0, 7) | st.integers(0, 2**64 - 1)
WORDS = st.text(max_size=12) | st.sampled_from(["llama", "gpt2", "none", "linear", "smollm"])
VALUES = st.one_of(
    st.tuples(st.just(4), st.integers(0, 2**32 - 1)).map(lambda v: struct.pack("<II", *v)),
    st.integers(0, 2**64 - 1).map(lambda v: struct.pack("<IQ", 10, v)),
    st.integers(-(2**31), 2**31 - 1).map(lambda v: struct.pack("<Ii", 5, v)),
    st.floats(width=32).map(lambda v: struct.pack("<If", 6, v)),
    st.floats().map(lambda v: struct.pack("<Id", 12, v)),
    st.booleans().map(lambda v: struct.pack("<I?", 7, v)),
    WORDS.map(lambda v: struct.pack("<I", 8) + text(v)),
    st.lists(WORDS, max_size=4).map(
        lambda v: struct.pack("<IIQ", 9, 8, len(v)) + b"".join(map(text, v))
    ),
    st.lists(st.integers(-5, 60), max_size=40).map(
        lambda v: struct.pack("<IIQ", 9, 5, len(v)) + np.array(v, "<i4").tobytes()
    ),
)
KEYS = [
    *sorted(tiny_metadata()),
    "split.count", "general.alignment", "llama.expert_count", "llama.rope.scaling.type",
    "llama.rope.scaling.factor", "llama.attention.key_length", "llama.attention.value_length",
    "llama.attention.sliding_window", "tokenizer.ggml.model", "tokenizer.ggml.pre",
    "tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.ggml.token_type",
    "tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id", "tokenizer.ggml.add_bos_token",
]  # fmt: skip
VOCABULARY = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.tokens": ["a", "b", "ab"],
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.token_type": [1, 1, 1],
}
INF = struct.pack("<If", 6, float("inf"))
ARRAY = struct.pack("<IIQ", 9, 5, 2) + np.array([1, 2], "<i4").tobytes()


def used(path):
    """Load a model and run it; a refusal must be one short line."""
    try:
        model = gguf.load(path) if path.suffix == ".gguf" else safetensors.load(path)
        load_tokenizer(model.weights).encode("abba")
        model.hidden(np.arange(4) % 3, cache=model.new_cache(capacity_tok=4))
    except ModelError as error:
        words = str(error)
        assert "\n" not in words
        assert len(words) < 1000 + 2 * len(str(path))


@FUZZ
@given(changes=st.dictionaries(st.sampled_from(KEYS), VALUES, min_size=1, max_size=3))
@example(changes={"split.count": ARRAY})
@example(changes={"llama.expert_count": ARRAY})
@example(changes={"llama.rope.scaling.type": ARRAY})
@example(changes={"tokenizer.ggml.model": ARRAY})
@example(changes={"tokenizer.ggml.pre": ARRAY})
@example(changes={"tokenizer.ggml.add_bos_token": ARRAY})
@example(changes={"tokenizer.ggml.token_type": struct.pack("<II", 4, 3)})
@example(changes={"llama.rope.freq_base": INF})
@example(changes={"llama.attention.head_count": struct.pack("<II", 4, 1000)})
def test_any_metadata_is_used_or_refused(changes, tmp_path, rng):
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_bytes(tiny_metadata() | VOCABULARY | changes, tiny_tensors(rng)))
    used(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
CONFIG = {
    "model_type": "llama", "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 50,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 500.0, "head_dim": 6,
    "hidden_act": "silu", "rope_scaling": None, "sliding_window": None, "num_experts": 0,
}  # fmt: skip
ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64}  # fmt: skip


def checkpoint(folder, rng, *, config=CONFIG, header=None):
    """Write a one-block checkpoint in Hugging Face's names."""
    names = {
        "token_embd": "model.embed_tokens", "output_norm": "model.norm",
        "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
        "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }  # fmt: skip
    tensors = {}
    for name, tensor in tiny_tensors(rng, layers=1).items():
        part = name.split(".")[-2]
        prefix = "model.layers.0." if name.startswith("blk.") else ""
        tensors[f"{prefix}{names[part]}.weight"] = tensor
    (folder / "config.json").write_text(json.dumps(config))
    path = folder / "model.safetensors"
    path.write_bytes(safetensors_bytes(tensors, header=header))
    return path


@FUZZ
@given(changes=st.dictionaries(st.sampled_from(sorted(CONFIG)), JSON, min_size=1, max_size=3))
@example(changes={"rope_theta": 10**400})
@example(changes={"rope_scaling": ROPE})
@example(changes={"num_attention_heads": 1000, "head_dim": None})
def test_any_configuration_is_used_or_refused(changes, tmp_path, rng):
    used(checkpoint(tmp_path, rng, config=CONFIG | changes))


@FUZZ
@given(
    row=st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets"]), JSON),
    name=WORDS | st.just("model.norm.weight"),
)
@example(row={"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}, name="model.norm.weight")
@example(row={"dtype": "F32", "shape": [10**400] * 90, "data_offsets": [0, 4]}, name="x")
@example(row={"dtype": "F32", "shape": [2**62, 2**62, 2**62], "data_offsets": [0, 4]}, name="x")
def test_any_row_of_a_table_is_used_or_refused(row, name, tmp_path, rng):
    header = {
        "model.embed_tokens.weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    } | {name: row}
    used(checkpoint(tmp_path, rng, header=header))


@FUZZ
@given(junk=st.binary(max_size=400), length=st.none() | st.integers(0, 2**64 - 1))
def test_any_bytes_are_refused(junk, length, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    start = struct.pack("<Q", len(junk) if length is None else length)
    for name in ("model.safetensors", "model.gguf"):
        (tmp_path / name).write_bytes((start if name.endswith("s") else b"GGUF") + junk)
        with pytest.raises(ModelError):
            (gguf if name.endswith("f") else safetensors).load(tmp_path / name)


def test_a_header_of_counts_alone_takes_no_more_memory_than_the_file(tmp_path):
    # Two million empty strings, and more tensors than any model has.
    strings = text("k") + struct.pack("<IIQ", 9, 8, 1 << 23) + bytes(8 << 23)
    rows = tensor_row("t", [1], 0, 0) * (1 << 18)
    for counts, data in (((0, 1), strings), ((1 << 18, 0), rows)):
        path = tmp_path / "model.gguf"
        path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, *counts) + data)
        tracemalloc.start()
        with pytest.raises(ModelError, match="are allowed"):
            gguf.GgufFile(path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1 << 20


def test_a_long_table_with_a_name_twice_is_refused_in_time(tmp_path, rng):
    row = '{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
    names = [*(f"t{n}" for n in range(200_000)), "t199999"]
    raw = ("{" + ",".join(f'"{name}":{row}' for name in names) + "}").encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(raw)) + raw)
    with pytest.raises(ModelError, match="'t199999' is given twice"):
        safetensors.SafetensorsFile(path)


def test_a_model_of_many_claimed_layers_is_refused_by_the_first_that_is_missing(tmp_path, rng):
    path = tmp_path / "model.gguf"
    tensors = write_tiny_gguf(path, rng)
    path.write_bytes(gguf_bytes(tiny_metadata(layers=1 << 24), tensors))
    with pytest.raises(ModelError, match=r"no tensor for 'layers\.2\."):
        gguf.load(path)


def test_an_excerpt_is_one_short_line_whatever_it_shows():
    deep = []
    for _ in range(900):
        deep = [deep]
    for value in (deep, "x\n" * 10**6, np.arange(10**6).reshape(1000, -1), {"k": [1] * 999}, 7):
        shown = excerpt(value)
        assert len(shown) < 200
        assert "\n" not in shown
    assert excerpt("Q4_0") == "'Q4_0'"
