"""Safetensors checkpoints: one file, or shards with an index, read by mapping.

The ``safetensors`` package hands BF16, the format most checkpoints have, only to frameworks that
know it; NumPy does not. The format is a JSON table before the data, so it is read here, with every
offset checked against the file.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from firstlight.errors import ModelError, nearest
from firstlight.runners.excerpt import excerpt
from firstlight.runners.mapped import map_file, unpack

if TYPE_CHECKING:
    import mmap
    from collections.abc import Mapping

    from firstlight.runners.llama import Llama
    from firstlight.runners.weights import FloatArray

_FORMATS = {"F32": 4, "F16": 2, "BF16": 2}
"""Formats that are read -> bytes a weight."""

_MAX_HEADER_BYTES = 100_000_000
"""The limit of the reference implementation."""

_MAX_DIMENSIONS = 8
_MAX_COUNT = 1 << 63


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """Where one tensor lies: file, format, shape and byte range."""

    data: mmap.mmap
    format: str
    shape: tuple[int, ...]
    start: int
    nbytes: int


class SafetensorsFile:
    """Tensors of a checkpoint, by name, over one or more mapped files.

    Attributes:
        path: The file, or the folder of the shards.
    """

    def __init__(self, path: str | Path) -> None:
        """Map the ``.safetensors`` file, ``.index.json`` file or folder at ``path``.

        Raises:
            ModelError: A file is missing or damaged, or a tensor is given twice.
        """
        self.path = Path(path)
        self._entries: dict[str, _Entry] = {}
        for file in _files(self.path):
            for name, entry in _table(file).items():
                if name in self._entries:
                    raise ModelError(f"{file}: tensor {excerpt(name)} is given twice")
                self._entries[name] = entry

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of every tensor, by name."""
        return {name: entry.shape for name, entry in self._entries.items()}

    def read(self, name: str, *, out: FloatArray | None = None) -> FloatArray:
        """Return tensor ``name`` as float32, written to ``out`` when given.

        Raises:
            ModelError: There is no such tensor, its format is not read, or a weight is not finite.
        """
        if name not in self._entries:
            raise ModelError(f"{self.path}: no tensor {name!r}{nearest(name, self._entries)}")
        entry = self._entries[name]
        if entry.format not in _FORMATS:
            raise ModelError(
                f"{self.path}: tensor {name!r} is stored as {entry.format}; "
                f"these are read: {', '.join(_FORMATS)}"
            )
        if out is None:
            out = np.empty(entry.shape, np.float32)
        unpack(
            entry.data,
            start=entry.start,
            nbytes=entry.nbytes,
            form=entry.format,
            out=out,
            where=f"{self.path}: tensor {name!r}",
        )
        return out


def load(path: str | Path) -> Llama:
    """Return the Llama-family model in a Hugging Face folder, its weights as float32.

    Args:
        path: The folder, or a ``.safetensors`` file in it; ``config.json`` lies beside it.

    Raises:
        ModelError: A file is missing or damaged, or holds another architecture.
    """
    from firstlight.runners.llama import Llama
    from firstlight.runners.weights import open_weights

    return Llama(open_weights(path))


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in ``path``.

    Raises:
        ModelError: The file cannot be read or holds no object.
    """
    try:
        size = path.stat().st_size
        if size > _MAX_HEADER_BYTES:
            raise ModelError(f"{path}: {size} bytes; at most {_MAX_HEADER_BYTES} are allowed")
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ModelError(f"{path}: holds a JSON {type(document).__name__}, not an object")
    return document


def _files(path: Path) -> list[Path]:
    """List the files of the checkpoint."""
    if path.is_dir():
        index = path / "model.safetensors.index.json"
        if index.exists():
            return _files(index)
        single = sorted(path.glob("*.safetensors"))
        if len(single) != 1:
            raise ModelError(
                f"{path}: {len(single)} .safetensors files and no model.safetensors.index.json"
            )
        return single
    if not path.name.endswith(".index.json"):
        return [path]
    shards = read_json(path).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(s, str) for s in shards.values()):
        raise ModelError(f"{path}: weight_map must map tensor names to file names")
    names = sorted(set(shards.values()))
    stray = [name for name in names if Path(name).name != name]
    if stray:
        raise ModelError(f"{path}: shard {excerpt(stray[0])} lies outside the folder")
    return [path.parent / name for name in names]


def _table(path: Path) -> dict[str, _Entry]:
    """Map one file and check its table."""
    data = map_file(path)
    if len(data) < 8:
        raise ModelError(f"{path}: {len(data)} bytes are no safetensors file")
    (header_bytes,) = struct.unpack_from("<Q", data)
    if header_bytes > min(_MAX_HEADER_BYTES, len(data) - 8):
        raise ModelError(
            f"{path}: the header claims {header_bytes} bytes, the file has {len(data)}: "
            "truncated, or no safetensors file"
        )
    header = _header(path, data[8 : 8 + header_bytes])
    start = 8 + header_bytes
    entries = {
        name: _entry(path, name, row, data, start)
        for name, row in header.items()
        if name != "__metadata__"
    }
    end, owner = start, "the header"
    for name, entry in sorted(entries.items(), key=lambda item: item[1].start):
        if entry.start < end:
            raise ModelError(f"{path}: tensor {excerpt(name)} overlaps {excerpt(owner)}")
        end, owner = entry.start + entry.nbytes, name
    return entries


def _header(path: Path, text: bytes) -> dict[str, Any]:
    """Parse the JSON table; a name may stand in it once."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) != len(pairs):
            counts = Counter(name for name, _ in pairs)
            twice = next(name for name, count in counts.items() if count > 1)
            raise ModelError(f"{path}: {excerpt(twice)} is given twice")
        return table

    try:
        header = json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: the header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise ModelError(f"{path}: the header holds no table of tensors")
    return header


def _entry(path: Path, name: str, row: object, data: mmap.mmap, start: int) -> _Entry:
    """Check one row of the table."""
    where = f"{path}: tensor {excerpt(name)}"
    if not isinstance(row, dict):
        raise ModelError(f"{where} is described by {excerpt(row)}")
    shape, offsets = _counts(row.get("shape")), _counts(row.get("data_offsets"))
    if shape is None or offsets is None or len(offsets) != 2:
        raise ModelError(
            f"{where} has shape {excerpt(row.get('shape'))} and "
            f"data_offsets {excerpt(row.get('data_offsets'))}"
        )
    label = excerpt(row.get("dtype")).strip("'")
    low, high = offsets
    if not low <= high <= len(data) - start:
        raise ModelError(
            f"{where} lies at bytes {low} to {high} of {len(data) - start}: truncated, or it lies"
        )
    wanted = prod(shape) * _FORMATS.get(label, 0)
    if label in _FORMATS and wanted != high - low:
        raise ModelError(
            f"{where}: shape {shape} in {label} takes {wanted} bytes, not {high - low}"
        )
    return _Entry(data=data, format=label, shape=tuple(shape), start=start + low, nbytes=high - low)


def _counts(values: object) -> list[int] | None:
    """Return ``values`` if it is a short list of non-negative integers of 63 bits."""
    good = (
        isinstance(values, list)
        and len(values) <= _MAX_DIMENSIONS
        and all(type(v) is int and 0 <= v < _MAX_COUNT for v in values)
    )
    return cast("list[int]", values) if good else None
