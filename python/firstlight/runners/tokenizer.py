"""Text to token ids, by the ``tokenizers`` library, from the model's own vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from firstlight.errors import ModelError
from firstlight.runners.excerpt import excerpt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from tokenizers import Tokenizer as Backend

    from firstlight.runners.weights import Weights

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SPLITS = {
    "llama-bpe": _CONTRACTIONS + r"\p{N}{1,3}" + _REST,
    "qwen2": _CONTRACTIONS + r"\p{N}" + _REST,
}
"""``tokenizer.ggml.pre`` -> how text is cut into words before byte pairs are merged."""

_PRE = ("default", "gpt-2", "smollm", *_SPLITS)
_CONTROL, _USER_DEFINED = 3, 4


class Tokenizer:
    """Text and token ids of one model.

    Attributes:
        vocab: Number of tokens.
        bos_id: Token put before every text, or None.
        eos_id: Token that ends a text, or None.
    """

    def __init__(self, backend: Backend, *, bos_id: int | None, eos_id: int | None) -> None:
        """Wrap a tokenizer of the ``tokenizers`` library."""
        self._backend = backend
        self.vocab: int = backend.get_vocab_size()
        self.bos_id = bos_id
        self.eos_id = eos_id

    def encode(self, text: str) -> NDArray[np.int64]:
        """Return the token ids of ``text``, with the leading token if the model wants one."""
        ids = self._backend.encode(text, add_special_tokens=False).ids
        return np.array(ids if self.bos_id is None else [self.bos_id, *ids], np.int64)

    def decode(self, ids: Sequence[int] | NDArray[np.int64]) -> str:
        """Return the text of ``ids``, control tokens included."""
        text: str = self._backend.decode([int(i) for i in ids], skip_special_tokens=False)
        return text


def load_tokenizer(weights: Weights, *, path: str | Path | None = None) -> Tokenizer:
    """Return the tokenizer of an open model.

    Args:
        weights: The model.
        path: A ``tokenizer.json``; without it the GGUF vocabulary, or the file beside the model.

    Raises:
        ModelError: There is none, or it does not belong to this model.
    """
    folder = weights.path if weights.path.is_dir() else weights.path.parent
    if path is None and not weights.metadata:
        path = folder / "tokenizer.json"
    tokenizer = (
        from_gguf(weights.metadata, where=str(weights.path)) if path is None else _from_file(path)
    )
    if tokenizer.vocab > weights.architecture.vocab:
        raise ModelError(
            f"the tokenizer has {tokenizer.vocab} tokens, the model {weights.architecture.vocab}: "
            "they do not belong together"
        )
    return tokenizer


def from_gguf(metadata: Mapping[str, Any], *, where: str) -> Tokenizer:
    """Build the tokenizer that GGUF metadata describes.

    Raises:
        ModelError: The vocabulary is missing, damaged or of a kind that is not built here.
    """
    tokenizers = _library()
    kind, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre", "default")
    if not isinstance(pre, str) or pre not in _PRE or not isinstance(kind, str) or kind != "gpt2":
        raise ModelError(
            f"{where}: tokenizer {excerpt(kind)} with pre-tokenizer {excerpt(pre)}; from GGUF are built 'gpt2' "
            f"with {', '.join(_PRE)}: give a tokenizer.json"
        )
    tokens, merges = _strings(metadata, "tokens", where), _strings(metadata, "merges", where)
    pairs = [tuple(merge.split(" ")) for merge in merges]
    vocab = {token: index for index, token in enumerate(tokens)}
    bad = next(
        (p for p in pairs if len(p) != 2 or p[0] not in vocab or p[1] not in vocab
         or p[0] + p[1] not in vocab),
        None,
    )  # fmt: skip
    if bad is not None or len(vocab) != len(tokens):
        what = (
            f"merge {excerpt(' '.join(bad))} is not of the vocabulary"
            if bad
            else "a token is twice"
        )
        raise ModelError(f"{where}: tokenizer: {what}")
    backend = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab=vocab, merges=pairs, ignore_merges=pre == "llama-bpe")
    )
    if pre == "qwen2":
        backend.normalizer = tokenizers.normalizers.NFC()
    backend.pre_tokenizer = _pre_tokenizer(pre)
    backend.decoder = tokenizers.decoders.ByteLevel()
    kinds = metadata.get("tokenizer.ggml.token_type", np.empty(0, np.int32))
    if not isinstance(kinds, np.ndarray):
        raise ModelError(f"{where}: tokenizer.ggml.token_type is {excerpt(kinds)}, not numbers")
    for wanted, add in (
        (_CONTROL, backend.add_special_tokens),
        (_USER_DEFINED, backend.add_tokens),
    ):
        add([token for token, kind in zip(tokens, kinds, strict=False) if kind == wanted])
    adds_bos = metadata.get("tokenizer.ggml.add_bos_token", False)
    if not isinstance(adds_bos, bool):
        raise ModelError(f"{where}: tokenizer.ggml.add_bos_token is {excerpt(adds_bos)}, no flag")
    return Tokenizer(
        backend,
        bos_id=_token_id(metadata.get("tokenizer.ggml.bos_token_id"), len(vocab), where)
        if adds_bos
        else None,
        eos_id=_token_id(metadata.get("tokenizer.ggml.eos_token_id"), len(vocab), where),
    )


def _pre_tokenizer(pre: str) -> Any:  # noqa: ANN401  # the library's classes have no common type
    """Return how text is cut into words."""
    pre_tokenizers = _library().pre_tokenizers
    if pre in _SPLITS:
        words = pre_tokenizers.Split(
            _library().Regex(_SPLITS[pre]), behavior="isolated", invert=False
        )
        return pre_tokenizers.Sequence(
            [words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if pre == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    return byte_level


def _from_file(path: str | Path) -> Tokenizer:
    """Read a ``tokenizer.json``; the ids of its special tokens come from ``config.json``."""
    from firstlight.runners.safetensors import read_json

    path = Path(path)
    read_json(path)  # the library says little about what is no JSON
    try:
        backend = _library().Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, Exception) as error:  # the library raises Exception
        raise ModelError(f"{path}: no tokenizer: {error}") from error
    config_path = path.parent / "config.json"
    config = read_json(config_path) if config_path.exists() else {}
    settings_path = path.parent / "tokenizer_config.json"
    settings = read_json(settings_path) if settings_path.exists() else {}
    adds_bos = bool(settings.get("add_bos_token", False))
    # Ids beyond the tokenizer's own belong to the model, whose size is not known here.
    most, where = 1 << 31, str(config_path)
    return Tokenizer(
        backend,
        bos_id=_token_id(config.get("bos_token_id"), most, where) if adds_bos else None,
        eos_id=_token_id(config.get("eos_token_id"), most, where),
    )


def _token_id(value: object, vocab: int, where: str) -> int | None:
    """Return a token id from a file, the first where there are several."""
    first = (value[0] if value else None) if isinstance(value, list) else value
    if first is None:
        return None
    if type(first) is not int or not 0 <= first < vocab:
        raise ModelError(f"{where}: token id {excerpt(first)}; allowed: 0 to {vocab - 1}")
    return first


def _strings(metadata: Mapping[str, Any], key: str, where: str) -> list[str]:
    """Return a list of strings of the tokenizer's metadata."""
    value = metadata.get(f"tokenizer.ggml.{key}")
    if not isinstance(value, list) or not value:
        raise ModelError(f"{where}: tokenizer.ggml.{key} is missing: give a tokenizer.json")
    return value


def _library() -> Any:  # noqa: ANN401  # a module
    """Import the tokenizers library."""
    try:
        import tokenizers
        import tokenizers.decoders
        import tokenizers.models
        import tokenizers.normalizers
        import tokenizers.pre_tokenizers
    except ImportError as error:
        raise ModelError(
            "text needs the tokenizers library: pip install 'firstlight[models]'"
        ) from error
    return tokenizers
