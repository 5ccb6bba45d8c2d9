"""A file mapped for reading, whose pages are given back once a tensor has been unpacked."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

from firstlight.errors import ModelError

if TYPE_CHECKING:
    from pathlib import Path

    from firstlight.runners.weights import FloatArray


def map_file(path: Path) -> mmap.mmap:
    """Return the bytes of ``path``, mapped for reading.

    Raises:
        ModelError: The file cannot be read, or is empty.
    """
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise ModelError(f"{path}: the file is empty") from error


def unpack(
    data: mmap.mmap, *, start: int, nbytes: int, form: str, out: FloatArray, where: str
) -> None:
    """Unpack the tensor at ``data[start : start + nbytes]``, stored as ``form``, into ``out``.

    The file's pages are given back afterwards: otherwise a loaded model counts its file on top of
    its weights.

    Raises:
        ModelError: A weight is not finite; ``where`` names file and tensor.
    """
    import numpy as np

    from firstlight import _core

    packed = np.frombuffer(data, np.uint8, nbytes, start)
    broken = _core.dequantize(packed, form, out.reshape(-1))
    if broken:
        raise ModelError(f"{where}: {broken} of {out.size} weights are NaN or infinite")
    if hasattr(data, "madvise"):  # Not on Windows.
        page = start // mmap.PAGESIZE * mmap.PAGESIZE
        data.madvise(mmap.MADV_DONTNEED, page, start + nbytes - page)
