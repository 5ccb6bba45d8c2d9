"""One view of a model's weights, whatever file they came in."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from firstlight.errors import ModelError
from firstlight.runners.architecture import LINEARS, Architecture, from_config, from_gguf

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

FloatArray: TypeAlias = "NDArray[np.float32]"
"""Float32 numbers, which everything in a runner is computed with."""

_GGUF_LAYER = {
    "q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output",
    "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down",
    "attention_norm": "attn_norm", "feed_forward_norm": "ffn_norm",
    "q_norm": "attn_q_norm", "k_norm": "attn_k_norm",
}  # fmt: skip
_GGUF_MODEL = {"embedding": "token_embd", "norm": "output_norm", "head": "output"}
_HF_LAYER = {
    "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj",
    "o": "self_attn.o_proj", "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj",
    "attention_norm": "input_layernorm", "feed_forward_norm": "post_attention_layernorm",
    "q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm",
}  # fmt: skip
_HF_MODEL = {"embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}


class TensorReader(Protocol):
    """A file that gives tensors by its own names."""

    def read(self, name: str, *, out: FloatArray | None = None) -> FloatArray:
        """Return a tensor as float32."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """A model's tensors under our names: ``embedding``, ``layers.3.down``, ``layers.3.q.bias``.

    Attributes:
        path: Where the model lies.
        architecture: Its sizes and conventions.
        reader: The open file.
        names: Our name -> the file's name.
        shapes: Our name -> shape.
        metadata: GGUF metadata, or an empty table.
    """

    path: Path
    architecture: Architecture
    reader: TensorReader
    names: Mapping[str, str]
    shapes: Mapping[str, tuple[int, ...]]
    metadata: Mapping[str, Any]

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def read(self, name: str, *, out: FloatArray | None = None) -> FloatArray:
        """Return tensor ``name`` as float32, written to ``out`` when given.

        Raises:
            ModelError: A weight is not finite, or its format is not read.
        """
        return self.reader.read(self.names[name], out=out)

    @property
    def float32_bytes(self) -> int:
        """Memory that all tensors take as float32 [byte]."""
        return 4 * sum(prod(shape) for shape in self.shapes.values())


def open_weights(path: str | Path) -> Weights:
    """Open the model at ``path``: a GGUF file, a safetensors file or a Hugging Face folder.

    Raises:
        ModelError: It is neither, is damaged, or its tensors do not fit its architecture.
    """
    path = Path(path)
    if not path.exists():
        raise ModelError(f"{path}: no such file or folder")
    weights = _open_gguf(path) if path.suffix == ".gguf" else _open_checkpoint(path)
    _check_shapes(weights)
    return weights


def _open_gguf(path: Path) -> Weights:
    from firstlight.runners.gguf import GgufFile

    file = GgufFile(path)
    shapes = {name: tensor.shape for name, tensor in file.tensors.items()}
    embedding = shapes.get("token_embd.weight")
    if "general.architecture" in file.metadata and (embedding is None or len(embedding) != 2):
        # Name the architecture first: another kind of model has no such tensor at all.
        from_gguf(file.metadata, vocab=1, where=str(path))
        raise ModelError(f"{path}: no tensor 'token_embd.weight' of two dimensions")
    vocab = embedding[0] if embedding else 1
    architecture = from_gguf(file.metadata, vocab=vocab, where=str(path))
    names = _names(architecture, shapes, "blk.{}.", _GGUF_LAYER, _GGUF_MODEL)
    if "rope_freqs.weight" in shapes:
        names["rope_freqs"] = "rope_freqs.weight"
    return Weights(
        path=path,
        architecture=architecture,
        reader=file,
        names=names,
        shapes={ours: shapes[theirs] for ours, theirs in names.items()},
        metadata=file.metadata,
    )


def _open_checkpoint(path: Path) -> Weights:
    from firstlight.runners.safetensors import SafetensorsFile, read_json

    folder = path if path.is_dir() else path.parent
    if not path.is_dir() and not path.name.endswith((".safetensors", ".safetensors.index.json")):
        raise ModelError(
            f"{path}: unknown kind of model; allowed: .gguf, .safetensors, a folder with both "
            "config.json and .safetensors files"
        )
    architecture = from_config(read_json(folder / "config.json"), where=str(folder / "config.json"))
    file = SafetensorsFile(path)
    names = _names(architecture, file.shapes, "model.layers.{}.", _HF_LAYER, _HF_MODEL)
    return Weights(
        path=path,
        architecture=architecture,
        reader=file,
        names=names,
        shapes={ours: file.shapes[theirs] for ours, theirs in names.items()},
        metadata={},
    )


def _names(
    architecture: Architecture,
    shapes: Mapping[str, tuple[int, ...]],
    layer_prefix: str,
    layer_names: Mapping[str, str],
    model_names: Mapping[str, str],
) -> dict[str, str]:
    """Return our name -> the file's name for every tensor the file has."""
    wanted = {ours: f"{theirs}.weight" for ours, theirs in model_names.items()}
    # A file cannot have more layers than tensors, whatever its header says.
    for layer in range(min(architecture.layers, len(shapes) + 1)):
        for ours, theirs in layer_names.items():
            name = layer_prefix.format(layer) + theirs
            wanted[f"layers.{layer}.{ours}"] = f"{name}.weight"
            if ours in LINEARS:
                wanted[f"layers.{layer}.{ours}.bias"] = f"{name}.bias"
    return {ours: theirs for ours, theirs in wanted.items() if theirs in shapes}


def _check_shapes(weights: Weights) -> None:
    """Refuse tensors that are missing or of another shape than the architecture's."""
    shape = weights.architecture
    expected: dict[str, tuple[int, ...]] = {
        "embedding": (shape.vocab, shape.width),
        "norm": (shape.width,),
    }
    _check_present(weights, expected)
    for layer in range(shape.layers):
        own = _layer_shapes(shape, f"layers.{layer}.")
        _check_present(weights, own)
        expected |= own
    expected["head"] = (shape.vocab, shape.width)
    expected["rope_freqs"] = (shape.head_dim // 2,)
    for name, given in weights.shapes.items():
        wanted = expected.get(name)
        if name.endswith(".bias"):
            wanted = (shape.linear_shape(name.split(".")[2])[0],)
        if wanted is not None and given != wanted:
            raise ModelError(
                f"{weights.path}: tensor {weights.names[name]!r} has shape {given}; "
                f"the architecture needs {wanted}"
            )


def _check_present(weights: Weights, expected: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse a model without one of its tensors."""
    missing = next((name for name in expected if name not in weights.names), None)
    if missing is not None:
        raise ModelError(f"{weights.path}: the file has no tensor for {missing!r}")


def _layer_shapes(shape: Architecture, prefix: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors that every block must have."""
    shapes = {prefix + kind: shape.linear_shape(kind) for kind in LINEARS}
    norms: dict[str, tuple[int, ...]] = {
        prefix + "attention_norm": (shape.width,),
        prefix + "feed_forward_norm": (shape.width,),
    }
    if shape.family == "qwen3":
        norms[prefix + "q_norm"] = norms[prefix + "k_norm"] = (shape.head_dim,)
    return {**shapes, **norms}
