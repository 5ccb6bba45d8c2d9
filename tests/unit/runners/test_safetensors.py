import json
import struct

import numpy as np
import pytest

from firstlight.errors import ModelError
from firstlight.runners.safetensors import SafetensorsFile, load
from reference import llama as plain
from reference.model_files import safetensors_bytes, tiny_tensors

HF = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm", "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
}  # fmt: skip
CONFIG = {
    "model_type": "qwen3", "num_hidden_layers": 2, "hidden_size": 24, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 6, "intermediate_size": 40, "vocab_size": 50,
    "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 500.0, "hidden_act": "silu",
}  # fmt: skip


def hf_names(tensors):
    out = {}
    for name, value in tensors.items():
        if name == "token_embd.weight":
            out["model.embed_tokens.weight"] = value
        elif name == "output_norm.weight":
            out["model.norm.weight"] = value
        else:
            _, layer, rest, end = name.split(".")
            out[f"model.layers.{layer}.{HF[rest]}.{end}"] = value
    return out


def test_a_folder_in_shards_gives_the_plain_forward_pass(tmp_path, rng):
    tensors = tiny_tensors(rng, family="qwen3")
    named = list(hf_names(tensors).items())
    shards = {"a.safetensors": dict(named[:9]), "b.safetensors": dict(named[9:])}
    for file, part in shards.items():
        (tmp_path / file).write_bytes(safetensors_bytes(part))
    index = {"weight_map": {name: file for file, part in shards.items() for name in part}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    model, ids = load(tmp_path), rng.integers(0, 50, 20)
    got = model.logits(model.hidden(ids, cache=model.new_cache(capacity_tok=20)))
    want = plain.logits(tensors, ids, interleaved=False)
    assert np.abs(got - want).max() < 1e-4


@pytest.mark.parametrize("kind", ["F16", "BF16"])
def test_narrow_formats_widen_exactly(kind, tmp_path, rng):
    values = rng.standard_normal((3, 5)).astype(np.float32)
    if kind == "F16":
        packed = values.astype("<f2")
        want = packed.astype(np.float32)
    else:
        packed = (values.view(np.uint32) >> 16).astype("<u2")
        want = (packed.astype(np.uint32) << 16).view(np.float32)
    path = tmp_path / "m.safetensors"
    path.write_bytes(safetensors_bytes({"w": (kind, (3, 5), packed.tobytes())}))
    assert np.array_equal(SafetensorsFile(path).read("w"), want)


def test_the_safetensors_library_writes_what_is_read_here(tmp_path, rng):
    library = pytest.importorskip("safetensors.numpy", reason="needs firstlight[models-test]")
    tensors = {"a": rng.standard_normal((4, 3)).astype(np.float32), "b": np.zeros(2, np.float16)}
    library.save_file(tensors, tmp_path / "m.safetensors", metadata={"format": "pt"})
    file = SafetensorsFile(tmp_path / "m.safetensors")
    assert np.array_equal(file.read("a"), tensors["a"])
    assert file.shapes == {"a": (4, 3), "b": (2,)}


def row(**changes):
    return {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes}


BAD = {
    "empty": (b"", "empty"),
    "short": (b"abc", "3 bytes"),
    "2^60 header": (struct.pack("<Q", 1 << 60) + bytes(50), "claims"),
    "not JSON": (struct.pack("<Q", 4) + b"{{{{", "not JSON"),
    "deep JSON": (struct.pack("<Q", 200_000) + b"[" * 200_000, "not JSON"),
    "a list": (safetensors_bytes({}, header=[1]), "no table"),
    "a number for a tensor": (safetensors_bytes({}, header={"w": 3}), "described by 3"),
    "2^60 dims": (safetensors_bytes({}, header=row(shape=[1 << 60, 1 << 60])) + bytes(8), "takes"),
    "negative dim": (safetensors_bytes({}, header=row(shape=[-2])) + bytes(8), "shape"),
    "past the end": (safetensors_bytes({}, header=row(data_offsets=[0, 800])) + bytes(8), "truncated"),
    "backwards": (safetensors_bytes({}, header=row(data_offsets=[8, 0])) + bytes(8), "truncated"),
    "true for a number": (safetensors_bytes({}, header=row(shape=[True])) + bytes(8), "shape"),
    "shared bytes": (
        safetensors_bytes({}, header=row() | {"v": row()["w"]}) + bytes(8), "overlaps"),
    "given twice": (
        struct.pack("<Q", 16) + b'{"w": 1, "w": 2}' + bytes(8), "given twice"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_hostile_file_is_refused_in_one_line(case, tmp_path):
    data, message = BAD[case]
    (tmp_path / "m.safetensors").write_bytes(data)
    with pytest.raises(ModelError, match=message) as caught:
        SafetensorsFile(tmp_path / "m.safetensors")
    assert "\n" not in str(caught.value)


def test_a_format_that_is_not_read_is_named(tmp_path):
    path = tmp_path / "m.safetensors"
    path.write_bytes(safetensors_bytes({"w": ("F8_E4M3", (4,), bytes(4))}))
    with pytest.raises(ModelError, match="F8_E4M3"):
        SafetensorsFile(path).read("w")


def test_a_shard_outside_the_folder_is_refused(tmp_path):
    index = {"weight_map": {"w": "../../etc/passwd"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match="outside"):
        SafetensorsFile(tmp_path)


@pytest.mark.parametrize(
    "change",
    [{"model_type": "gemma3"}, {"num_local_experts": 8}, {"hidden_act": "gelu"},
     {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, {"hidden_size": None}],
)  # fmt: skip
def test_a_config_that_does_not_run_is_refused(change, tmp_path, rng):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | change))
    (tmp_path / "m.safetensors").write_bytes(
        safetensors_bytes(hf_names(tiny_tensors(rng, family="qwen3")))
    )
    with pytest.raises(ModelError, match=r"config\.json"):
        load(tmp_path)
