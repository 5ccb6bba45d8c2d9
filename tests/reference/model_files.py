"""Small model files, written plainly, for tests of the readers."""

import json
import struct
from pathlib import Path

import numpy as np

TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 8, "Q4_K": 12, "Q6_K": 14, "BF16": 30}


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def pair(key, value):
    """One metadata pair; the type follows the value's Python type, bytes are type and value."""
    if isinstance(value, bytes):
        return text(key) + value
    if isinstance(value, bool):
        return text(key) + struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return text(key) + struct.pack("<II", 4, value)
    if isinstance(value, float):
        return text(key) + struct.pack("<If", 6, value)
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    if value and isinstance(value[0], str):
        return text(key) + struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
    return text(key) + struct.pack("<IIQ", 9, 5, len(value)) + np.array(value, "<i4").tobytes()


def tensor_row(name, sizes, kind, offset):
    """One row of the tensor table; ``sizes`` as the file lists them, fastest axis first."""
    head = text(name) + struct.pack("<I", len(sizes))
    return head + struct.pack(f"<{len(sizes)}QIQ", *sizes, kind, offset)


def gguf_bytes(metadata, tensors, *, version=3, alignment=32):
    """A whole file; ``tensors`` maps names to float32 arrays or (shape, type name, packed bytes)."""
    rows, data = [], b""
    for name, tensor in tensors.items():
        if isinstance(tensor, np.ndarray):
            shape, kind, packed = tensor.shape, "F32", tensor.astype("<f4").tobytes()
        else:
            shape, kind, packed = tensor
        data += b"\0" * (-len(data) % alignment)
        rows.append(tensor_row(name, shape[::-1], TYPES[kind], len(data)))
        data += packed
    head = b"GGUF" + struct.pack("<IQQ", version, len(rows), len(metadata))
    head += b"".join(pair(k, v) for k, v in metadata.items()) + b"".join(rows)
    return head + b"\0" * (-len(head) % alignment) + data


def safetensors_bytes(tensors, header=None):
    """A whole file of float32 arrays, or of (dtype name, shape, bytes)."""
    table, data = {}, b""
    for name, tensor in tensors.items():
        if isinstance(tensor, np.ndarray):
            label, shape, packed = "F32", tensor.shape, tensor.astype("<f4").tobytes()
        else:
            label, shape, packed = tensor
        offsets = [len(data), len(data) + len(packed)]
        table[name] = {"dtype": label, "shape": list(shape), "data_offsets": offsets}
        data += packed
    raw = json.dumps(table if header is None else header).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def tiny_tensors(rng, *, family="llama", layers=2, width=24, heads=4, kv_heads=2, head_dim=6,
                 feed_forward=40, vocab=50, bias=False):  # fmt: skip
    """Random weights of a small model under GGUF names, as float32."""

    def matrix(rows, columns):
        return (rng.standard_normal((rows, columns)) / columns**0.5).astype(np.float32)

    def vector(size):
        return (1 + 0.2 * rng.standard_normal(size)).astype(np.float32)

    out = {"token_embd.weight": matrix(vocab, width), "output_norm.weight": vector(width)}
    for n in range(layers):
        block = {
            "attn_norm": vector(width), "ffn_norm": vector(width),
            "attn_q": matrix(heads * head_dim, width), "attn_k": matrix(kv_heads * head_dim, width),
            "attn_v": matrix(kv_heads * head_dim, width),
            "attn_output": matrix(width, heads * head_dim),
            "ffn_gate": matrix(feed_forward, width), "ffn_up": matrix(feed_forward, width),
            "ffn_down": matrix(width, feed_forward),
        }  # fmt: skip
        if family == "qwen3":
            block |= {"attn_q_norm": vector(head_dim), "attn_k_norm": vector(head_dim)}
        out |= {f"blk.{n}.{name}.weight": value for name, value in block.items()}
        if bias:
            for name, rows in (("attn_q", heads), ("attn_k", kv_heads), ("attn_v", kv_heads)):
                out[f"blk.{n}.{name}.bias"] = vector(rows * head_dim)
    return out


def tiny_metadata(*, family="llama", layers=2, width=24, heads=4, kv_heads=2, head_dim=6,
                  feed_forward=40, **more):  # fmt: skip
    """GGUF metadata of the same model."""
    values = {
        "block_count": layers, "context_length": 128, "embedding_length": width,
        "feed_forward_length": feed_forward, "attention.head_count": heads,
        "attention.head_count_kv": kv_heads, "attention.key_length": head_dim,
        "attention.value_length": head_dim, "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 500.0,
    } | more  # fmt: skip
    named = {f"{family}.{key}": value for key, value in values.items()}
    return {"general.architecture": family} | named


def write_tiny_gguf(path: Path, rng, **options):
    """Write a small model and return its tensors."""
    bias = options.pop("bias", False)
    window = options.pop("window", None)
    tensors = tiny_tensors(rng, bias=bias, **options)
    more = {"attention.sliding_window": window} if window else {}
    path.write_bytes(gguf_bytes(tiny_metadata(**options, **more), tensors))
    return tensors
