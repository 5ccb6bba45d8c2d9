"""GGUF model files: read by mapping, trusted in nothing.

The reader is our own because a file from the internet is hostile input: every count, length and
offset is checked against the bytes that are there before anything is allocated for it, two tensors
may not share bytes, and whatever is wrong is one :class:`ModelError`. Unpacking is done by a
compiled kernel that gives the values of the ``gguf`` package bit for bit.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from firstlight.errors import ModelError
from firstlight.runners.excerpt import excerpt
from firstlight.runners.mapped import map_file, unpack

if TYPE_CHECKING:
    import mmap
    from collections.abc import Mapping

    from firstlight.runners.llama import Llama
    from firstlight.runners.weights import FloatArray

_FORMATS = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    8: ("Q8_0", 32, 34),
    12: ("Q4_K", 256, 144),
    14: ("Q6_K", 256, 210),
    30: ("BF16", 1, 2),
}
"""GGUF type number -> name, weights a block, bytes a block."""

_OTHER_FORMATS = {
    6: "Q5_0", 7: "Q5_1", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 13: "Q5_K", 15: "Q8_K",
    16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S",
    22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M",
    34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip
"""Formats that exist but are not read: named in the error."""

_SCALARS: Mapping[int, tuple[str, int]] = {
    0: ("<B", 1), 1: ("<b", 1), 2: ("<H", 2), 3: ("<h", 2), 4: ("<I", 4), 5: ("<i", 4),
    6: ("<f", 4), 7: ("<?", 1), 10: ("<Q", 8), 11: ("<q", 8), 12: ("<d", 8),
}  # fmt: skip
_STRING, _ARRAY = 8, 9
_MAX_DIMENSIONS = 4
_MAX_NAME_BYTES = 256
_MAX_TENSORS = 1 << 17
_MAX_STRINGS = 1 << 22
"""Far beyond any model; a header of nothing but counts would become many times its size in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufTensor:
    """One tensor as the file describes it.

    Attributes:
        name: Its name in the file.
        shape: Rows first, as NumPy counts; the file lists the fastest axis first.
        format: Storage format, ``"Q4_1"`` …
        start: First byte in the file.
        nbytes: Packed size [byte].
    """

    name: str
    shape: tuple[int, ...]
    format: str
    start: int
    nbytes: int


class _Cursor:
    """A position in the mapped file that refuses to leave it."""

    def __init__(self, data: mmap.mmap, where: str) -> None:
        self.data, self.where, self.at, self.end = data, where, 0, len(data)

    def take(self, count: int, what: str) -> int:
        """Advance by ``count`` bytes and return where they start."""
        if count > self.end - self.at:
            raise ModelError(
                f"{self.where}: {what} needs {count} bytes at byte {self.at}, "
                f"the file has {self.end - self.at} left: truncated, or the header lies"
            )
        start = self.at
        self.at += count
        return start

    def number(self, code: str, size: int, what: str) -> Any:  # noqa: ANN401  # int, float or bool
        """Read one little-endian scalar."""
        return struct.unpack_from(code, self.data, self.take(size, what))[0]

    def count(self, what: str, *, least_bytes: int, most: int | None = None) -> int:
        """Read a u64 count, at most ``most``, of items that take at least ``least_bytes`` each."""
        count: int = self.number("<Q", 8, what)
        if count * least_bytes > self.end - self.at:
            raise ModelError(
                f"{self.where}: {what} claims {count} items; the {self.end - self.at} bytes left "
                f"hold at most {(self.end - self.at) // least_bytes}"
            )
        if most is not None and count > most:
            raise ModelError(f"{self.where}: {what} claims {count} items; {most} are allowed")
        return count

    def text(self, what: str, *, most_bytes: int | None = None) -> str:
        """Read a length-prefixed UTF-8 string."""
        length: int = self.number("<Q", 8, what)
        if most_bytes is not None and length > most_bytes:
            raise ModelError(
                f"{self.where}: {what} is {length} bytes long; at most {most_bytes} are allowed"
            )
        start = self.take(length, what)
        try:
            return str(self.data[start : start + length], "utf-8")
        except UnicodeDecodeError as error:
            raise ModelError(f"{self.where}: {what} at byte {start} is not UTF-8") from error

    def value(self, kind: int, key: str) -> Any:  # noqa: ANN401  # whatever the file holds
        """Read one metadata value of type ``kind``."""
        if kind in _SCALARS:
            return self.number(*_SCALARS[kind], what=f"metadata {excerpt(key)}")
        if kind == _STRING:
            return self.text(f"metadata {excerpt(key)}")
        if kind == _ARRAY:
            return self._array(key)
        raise ModelError(
            f"{self.where}: metadata {excerpt(key)} has type {kind}; GGUF knows 0 to 12"
        )

    def _array(self, key: str) -> Any:  # noqa: ANN401  # list of strings or an array
        key = excerpt(key)
        kind: int = self.number("<I", 4, f"metadata {key}")
        if kind == _STRING:
            items = self.count(f"array {key}", least_bytes=8, most=_MAX_STRINGS)
            return [self.text(f"item of array {key}") for _ in range(items)]
        if kind not in _SCALARS:
            what = "arrays of arrays are" if kind == _ARRAY else f"item type {kind} is"
            raise ModelError(f"{self.where}: array {key}: {what} not allowed")
        code, size = _SCALARS[kind]
        items = self.count(f"array {key}", least_bytes=size)
        start = self.take(items * size, f"array {key}")
        return np.frombuffer(self.data[start : self.at], np.dtype(code))


class GgufFile:
    """A mapped GGUF file: metadata and where each tensor lies. Weights stay on disk until read.

    Attributes:
        path: The file.
        metadata: Key -> value; arrays are NumPy arrays, or lists of strings.
        tensors: Name -> :class:`GgufTensor`, in file order.
    """

    def __init__(self, path: str | Path) -> None:
        """Map ``path`` and check all of its header.

        Raises:
            ModelError: The file is no GGUF file, is damaged, or uses what is not supported.
        """
        self.path = Path(path)
        where = str(self.path)
        self._map = map_file(self.path)
        cursor = _Cursor(self._map, where)
        tensors = _check_preamble(cursor)
        self.metadata: Mapping[str, Any] = _read_metadata(cursor, tensors)
        self.tensors: Mapping[str, GgufTensor] = _read_tensors(
            cursor, count=tensors[0], alignment=_alignment(self.metadata, where)
        )

    def read(self, name: str, *, out: FloatArray | None = None) -> FloatArray:
        """Return tensor ``name`` as float32, unpacked into ``out`` when given.

        Args:
            name: Tensor name as in the file.
            out: C-contiguous float32 array of the tensor's shape.

        Raises:
            ModelError: There is no such tensor, or a weight is not finite.
        """
        if name not in self.tensors:
            from firstlight.errors import nearest

            raise ModelError(f"{self.path}: no tensor {name!r}{nearest(name, self.tensors)}")
        tensor = self.tensors[name]
        if out is None:
            out = np.empty(tensor.shape, np.float32)
        unpack(
            self._map,
            start=tensor.start,
            nbytes=tensor.nbytes,
            form=tensor.format,
            out=out,
            where=f"{self.path}: tensor {name!r}",
        )
        return out


def load(path: str | Path) -> Llama:
    """Return the Llama-family model in the GGUF file at ``path``, its weights as float32.

    Raises:
        ModelError: The file is damaged, holds another architecture, or does not fit in memory.
    """
    from firstlight.runners.llama import Llama
    from firstlight.runners.weights import open_weights

    return Llama(open_weights(path))


def _check_preamble(cursor: _Cursor) -> tuple[int, int]:
    """Read magic, version and the two counts."""
    where = cursor.where
    start = cursor.take(4, "the magic number")
    magic = bytes(cursor.data[start : start + 4])
    if magic != b"GGUF":
        raise ModelError(f"{where}: not a GGUF file: it begins with {magic!r}")
    version: int = cursor.number("<I", 4, "the version")
    if version & 0xFFFF == 0:
        raise ModelError(f"{where}: big-endian GGUF; only little-endian files are read")
    if version not in (2, 3):
        raise ModelError(f"{where}: GGUF version {version}; versions 2 and 3 are read")
    # A tensor takes at least 8 + 4 + 8 + 4 + 8 bytes of header, a metadata pair 8 + 4 + 1.
    tensors = cursor.count("the number of tensors", least_bytes=32, most=_MAX_TENSORS)
    pairs = cursor.count("the number of metadata pairs", least_bytes=13, most=_MAX_STRINGS)
    return tensors, pairs


def _read_metadata(cursor: _Cursor, counts: tuple[int, int]) -> dict[str, Any]:
    """Read all key-value pairs."""
    metadata: dict[str, Any] = {}
    for _ in range(counts[1]):
        key = cursor.text("a metadata key", most_bytes=65_535)
        if key in metadata:
            raise ModelError(f"{cursor.where}: metadata {excerpt(key)} is given twice")
        metadata[key] = cursor.value(cursor.number("<I", 4, f"the type of {excerpt(key)}"), key)
    parts = metadata.get("split.count", 1)
    if type(parts) is not int or parts != 1:
        raise ModelError(
            f"{cursor.where}: one of {excerpt(parts)} parts; merge the split file first"
        )
    return metadata


def _alignment(metadata: Mapping[str, Any], where: str) -> int:
    """Return the alignment of tensor data [byte]."""
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 1 <= alignment <= 1 << 20 or alignment % 8:
        raise ModelError(
            f"{where}: general.alignment is {excerpt(alignment)}; a multiple of 8 up to 2^20 is allowed"
        )
    return alignment


def _read_tensors(cursor: _Cursor, *, count: int, alignment: int) -> dict[str, GgufTensor]:
    """Read the tensor table, then place and check every tensor."""
    rows = [_tensor_row(cursor, alignment) for _ in range(count)]
    data_start = -(-cursor.at // alignment) * alignment
    tensors: dict[str, GgufTensor] = {}
    for name, shape, kind, offset in rows:
        if name in tensors:
            raise ModelError(f"{cursor.where}: tensor {name!r} is given twice")
        label, weights, size = _FORMATS[kind]
        tensors[name] = GgufTensor(
            name=name,
            shape=shape,
            format=label,
            start=data_start + offset,
            nbytes=prod(shape) // weights * size,
        )
    end, owner = data_start, "the header"
    for tensor in sorted(tensors.values(), key=lambda tensor: tensor.start):
        if tensor.start < end:
            raise ModelError(
                f"{cursor.where}: tensor {tensor.name!r} overlaps {owner!r} at byte {tensor.start}"
            )
        end, owner = tensor.start + tensor.nbytes, tensor.name
        if end > cursor.end:
            raise ModelError(
                f"{cursor.where}: tensor {tensor.name!r} ends at byte {end}, "
                f"the file at {cursor.end}: truncated, or the header lies"
            )
    return tensors


def _tensor_row(cursor: _Cursor, alignment: int) -> tuple[str, tuple[int, ...], int, int]:
    """Read one row of the tensor table: name, shape, type, offset."""
    name = cursor.text("a tensor name", most_bytes=_MAX_NAME_BYTES)
    where = f"{cursor.where}: tensor {name!r}"
    dimensions: int = cursor.number("<I", 4, f"tensor {name!r}")
    if not 1 <= dimensions <= _MAX_DIMENSIONS:
        raise ModelError(f"{where} has {dimensions} dimensions; 1 to {_MAX_DIMENSIONS} are allowed")
    sizes = [cursor.number("<Q", 8, f"tensor {name!r}") for _ in range(dimensions)]
    kind: int = cursor.number("<I", 4, f"tensor {name!r}")
    offset: int = cursor.number("<Q", 8, f"tensor {name!r}")
    if kind not in _FORMATS:
        known = ", ".join(label for label, _, _ in _FORMATS.values())
        label = _OTHER_FORMATS.get(kind, f"type {kind}")
        raise ModelError(f"{where} is stored as {label}; these are read: {known}")
    weights = _FORMATS[kind][1]
    if 0 in sizes or sizes[0] % weights:
        raise ModelError(
            f"{where} has dimensions {sizes}; the first must be a positive multiple of {weights}"
        )
    if offset % alignment:
        raise ModelError(f"{where} starts at {offset}, which is not a multiple of {alignment}")
    return name, tuple(reversed(sizes)), kind, offset
