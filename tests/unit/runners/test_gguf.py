import contextlib
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firstlight import _core
from firstlight.errors import ModelError
from firstlight.runners.gguf import GgufFile, load
from reference.model_files import gguf_bytes, pair, tensor_row, text, tiny_metadata, write_tiny_gguf

BLOCKS = {
    "F32": (1, 4), "F16": (1, 2), "BF16": (1, 2), "Q4_0": (32, 18), "Q4_1": (32, 20),
    "Q8_0": (32, 34), "Q4_K": (256, 144), "Q6_K": (256, 210),
}  # fmt: skip


def file_with(tmp_path, data):
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    return path


def header(*, tensors=0, pairs=0, version=3, magic=b"GGUF"):
    return magic + struct.pack("<IQQ", version, tensors, pairs)


@pytest.mark.parametrize("kind", BLOCKS)
def test_unpacked_weights_equal_the_gguf_package_bit_for_bit(kind, rng):
    gguf = pytest.importorskip("gguf", reason="needs firstlight[models-test]")
    weights, size = BLOCKS[kind]
    count = 600
    raw = rng.integers(0, 256, (count, size), dtype=np.uint8)
    halves = {"F16": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q6_K": [208]}
    for at in halves.get(kind, []):
        # Any finite half, subnormal ones included.
        raw[:, at + 1] &= 0xBB
    if kind in ("F32", "BF16"):
        raw[:, size - 1] &= 0xBE
    out = np.empty(count * weights, np.float32)
    assert _core.dequantize(raw.reshape(-1), kind, out) == 0
    want = gguf.quants.dequantize(raw.reshape(-1), gguf.GGMLQuantizationType[kind])
    assert np.array_equal(out.view(np.uint32), np.asarray(want, np.float32).view(np.uint32))


def test_a_scattered_array_is_refused_not_copied():
    out = np.empty(64, np.float32)[::2]
    with pytest.raises((ValueError, TypeError)):
        _core.dequantize(np.zeros(128, np.uint8), "F32", out)


def test_shapes_are_rows_first_and_metadata_keeps_its_types(tmp_path):
    matrix = np.arange(12, dtype=np.float32).reshape(3, 4)
    metadata = {"a": 7, "b": 0.5, "c": "x", "d": ["y", "zz"], "e": [1, -2], "f": True}
    file = GgufFile(file_with(tmp_path, gguf_bytes(metadata, {"m": matrix, "n": matrix[0]})))
    assert file.tensors["m"].shape == (3, 4)
    assert np.array_equal(file.read("m"), matrix)
    assert np.array_equal(file.read("n"), matrix[0])
    assert file.metadata["d"] == ["y", "zz"]
    assert file.metadata["e"].tolist() == [1, -2]
    assert (file.metadata["a"], file.metadata["b"], file.metadata["f"]) == (7, 0.5, True)


HUGE = 1 << 60
BAD = {
    "empty": (b"", "empty"),
    "other magic": (b"GGML" + bytes(40), "not a GGUF file"),
    "cut header": (b"GGUF\3\0", "truncated"),
    "big-endian": (b"GGUF" + struct.pack(">I", 3) + bytes(32), "big-endian"),
    "old version": (header(version=1), "version 1"),
    "2^60 tensors": (header(tensors=HUGE), "claims"),
    "2^60 pairs": (header(pairs=HUGE), "claims"),
    "huge key": (header(pairs=1) + struct.pack("<Q", HUGE) + bytes(20), "65535"),
    "huge string": (
        header(pairs=1) + text("k") + struct.pack("<IQ", 8, HUGE) + bytes(20), "truncated"),
    "huge array": (
        header(pairs=1) + text("k") + struct.pack("<IIQ", 9, 4, HUGE) + bytes(20), "claims"),
    "array of arrays": (
        header(pairs=1) + text("k") + struct.pack("<IIQ", 9, 9, 1) + bytes(20), "arrays of arrays"),
    "unknown metadata type": (header(pairs=1) + text("k") + struct.pack("<I", 99) + bytes(20), "99"),
    "unknown item type": (
        header(pairs=1) + text("k") + struct.pack("<IIQ", 9, 77, 1) + bytes(20), "item type 77"),
    "key given twice": (header(pairs=2) + pair("k", 1) + pair("k", 2), "given twice"),
    "key not text": (header(pairs=1) + text(b"\xff\xfe") + bytes(20), "UTF-8"),
    "split file": (gguf_bytes({"split.count": 3}, {}), "parts"),
    "odd alignment": (gguf_bytes({"general.alignment": 3}, {}), "general.alignment"),
    "huge alignment": (gguf_bytes({"general.alignment": 1 << 31}, {}), "general.alignment"),
    "2^60 dimensions": (header(tensors=1) + tensor_row("t", [HUGE], 0, 0) + bytes(64), "truncated"),
    "product past 2^64": (
        header(tensors=1) + tensor_row("t", [1 << 32, 1 << 32, 1 << 32], 0, 0) + bytes(64),
        "truncated"),
    "no dimension": (header(tensors=1) + tensor_row("t", [], 0, 0) + bytes(64), "0 dimensions"),
    "nine dimensions": (header(tensors=1) + tensor_row("t", [1] * 9, 0, 0), "9 dimensions"),
    "empty tensor": (header(tensors=1) + tensor_row("t", [0, 4], 0, 0) + bytes(64), "dimensions"),
    "part of a block": (header(tensors=1) + tensor_row("t", [33], 3, 0) + bytes(64), "multiple of 32"),
    "unknown format": (header(tensors=1) + tensor_row("t", [32], 250, 0) + bytes(64), "type 250"),
    "format not read": (header(tensors=1) + tensor_row("t", [256], 10, 0) + bytes(64), "Q2_K"),
    "past the end": (header(tensors=1) + tensor_row("t", [4], 0, 1 << 20) + bytes(64), "truncated"),
    "offset 2^63": (header(tensors=1) + tensor_row("t", [4], 0, 1 << 63) + bytes(64), "truncated"),
    "not aligned": (header(tensors=1) + tensor_row("t", [4], 0, 4) + bytes(64), "multiple of 32"),
    "tensor given twice": (
        header(tensors=2) + tensor_row("t", [4], 0, 0) + tensor_row("t", [4], 0, 32) + bytes(99),
        "given twice"),
    "two tensors share bytes": (
        header(tensors=2) + tensor_row("t", [16], 0, 0) + tensor_row("u", [4], 0, 32) + bytes(99),
        "overlaps"),
    "long name": (header(tensors=1) + tensor_row("t" * 300, [4], 0, 0) + bytes(64), "256"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_hostile_file_is_refused_in_one_line(case, tmp_path):
    data, message = BAD[case]
    with pytest.raises(ModelError, match=message) as caught:
        GgufFile(file_with(tmp_path, data))
    assert "\n" not in str(caught.value)
    assert "model.gguf" in str(caught.value)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ModelError, match="No such file"):
        GgufFile(tmp_path / "none.gguf")


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cut=st.integers(0, 5000), flips=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)))
)
def test_a_damaged_file_reads_or_is_refused_but_never_breaks(cut, flips, tmp_path):
    data = bytearray(
        gguf_bytes(tiny_metadata(), {"token_embd.weight": np.ones((50, 24), np.float32)})
    )
    for at, value in flips:
        data[at % len(data)] = value
    path = file_with(tmp_path, bytes(data[: max(1, len(data) - cut)]))
    with contextlib.suppress(ModelError):
        file = GgufFile(path)
        for name, tensor in file.tensors.items():
            assert file.read(name).shape == tensor.shape


def test_weights_that_are_not_finite_are_refused_by_name(tmp_path):
    matrix = np.ones((3, 4), np.float32)
    matrix[1, 2] = np.nan
    file = GgufFile(file_with(tmp_path, gguf_bytes({}, {"blk.0.attn_q.weight": matrix})))
    with pytest.raises(ModelError, match=r"'blk\.0\.attn_q\.weight': 1 of 12 weights are NaN"):
        file.read("blk.0.attn_q.weight")
    with pytest.raises(ModelError, match=r"did you mean 'blk\.0\.attn_q\.weight'"):
        file.read("blk.0.attn_k.weight")


def test_another_architecture_is_named(tmp_path):
    data = gguf_bytes(
        tiny_metadata() | {"general.architecture": "gemma3"},
        {"token_embd.weight": np.ones((50, 24), np.float32)},
    )
    with pytest.raises(ModelError, match=r"'gemma3'.*llama, mistral, qwen2, qwen3"):
        load(file_with(tmp_path, data))


def test_a_missing_and_a_misshapen_tensor_are_named(tmp_path, rng):
    path = tmp_path / "model.gguf"
    tensors = write_tiny_gguf(path, rng)
    del tensors["blk.1.ffn_down.weight"]
    path.write_bytes(gguf_bytes(tiny_metadata(), tensors))
    with pytest.raises(ModelError, match=r"no tensor for 'layers\.1\.down'"):
        load(path)
    tensors["blk.1.ffn_down.weight"] = np.ones((40, 24), np.float32)
    path.write_bytes(gguf_bytes(tiny_metadata(), tensors))
    with pytest.raises(ModelError, match=r"shape \(40, 24\); the architecture needs \(24, 40\)"):
        load(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [("llama.block_count", 0), ("llama.attention.head_count", "four"), ("llama.block_count", 1 << 31),
     ("llama.attention.head_count_kv", 3), ("llama.rope.freq_base", -1.0),
     ("llama.rope.scaling.type", "yarn"), ("llama.expert_count", 8),
     ("llama.attention.layer_norm_rms_epsilon", float("nan"))],
)  # fmt: skip
def test_impossible_metadata_is_refused(key, value, tmp_path, rng):
    path = tmp_path / "model.gguf"
    tensors = write_tiny_gguf(path, rng)
    path.write_bytes(gguf_bytes(tiny_metadata() | {key: value}, tensors))
    with pytest.raises(ModelError):
        load(path)


def test_what_does_not_fit_in_memory_is_refused_before_it_is_read(tmp_path, rng, monkeypatch):
    path = tmp_path / "model.gguf"
    write_tiny_gguf(path, rng)
    monkeypatch.setattr("firstlight.runners.memory.available_bytes", lambda: 1000)
    monkeypatch.setattr(
        GgufFile, "read", lambda *_, **__: pytest.fail("read before it was checked")
    )
    with pytest.raises(ModelError, match="GB are available"):
        load(path)
