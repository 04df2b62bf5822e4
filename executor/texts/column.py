"""Columns of one block: values or texts, with a status for each row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cql.base.uninterruptible import load_module
from cql.executor.kernels.texts.status import FAILED as FAILED
from cql.executor.kernels.texts.status import NULL as NULL
from cql.executor.kernels.texts.status import ODD as ODD
from cql.executor.kernels.texts.status import VALID as VALID
from cql.executor.morsel.buffers import POOL

#: Bytes behind new texts: kernels copy 128 bytes at once.
ROOM = 128

Status: TypeAlias = npt.NDArray[np.uint8]
Places: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts as places in shared bytes: text *i* is ``data[starts[i]:ends[i]]``, in UTF-8 or, for
    binaries, any bytes. The texts may overlap and lie in any order. Only rows with a VALID status
    have a text; the places of the others are empty."""

    data: Bytes
    starts: Places
    ends: Places

    def __len__(self) -> int:
        return self.starts.size

    def text(self, i: int) -> bytes:
        return self.data[self.starts[i] : self.ends[i]].tobytes()

    @property
    def size(self) -> int:
        """The sum of their sizes, in bytes."""
        return int((self.ends - self.starts).sum())

    @property
    def is_dense(self) -> bool:
        """Whether each text begins where the one before it ends."""
        return len(self) > 0 and bool((self.starts[1:] == self.ends[:-1]).all())

    def take(self, rows: npt.NDArray[Any]) -> Texts:
        return Texts(self.data, self.starts[rows], self.ends[rows])

    def with_rows(self, rows: npt.NDArray[np.int64], values: list[bytes]) -> Texts:
        """The texts with other ones in some ``rows``."""
        new, behind = texts_from(values), self.data.size
        starts, ends = self.starts.copy(), self.ends.copy()
        starts[rows], ends[rows] = new.starts + behind, new.ends + behind
        return Texts(np.concatenate([self.data, new.data]), starts, ends)


@dataclass(slots=True)
class Extraction:
    """The ``groups`` of a regular expression that functions over a column extract together, and
    the ``parts`` of its texts once they are found: a struct array, NULL where there is no match."""

    groups: tuple[int, ...]
    parts: pa.StructArray | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """The values of a block's rows: texts, or an array in storage form (booleans are bytes).
    ``extractions`` are, by their patterns, those that functions share."""

    values: Texts | npt.NDArray[Any]
    status: Status
    extractions: dict[str, list[Extraction]] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.status.size


def texts_of(array: pa.Array) -> Texts:
    """The texts of a string or binary array, without a copy of their bytes. A NULL is empty or
    has any text."""
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    kind = np.dtype(np.int64 if wide else np.int32)
    _, offsets, data = array.buffers()
    n = len(array)
    if n == 0 or data is None:
        return Texts(np.zeros(0, np.uint8), np.zeros(n, np.int64), np.zeros(n, np.int64))
    places = POOL.empty(np.int64, n + 1)  # kernels take places that may be written
    places[:] = np.frombuffer(offsets, kind, n + 1, array.offset * kind.itemsize)
    return Texts(np.frombuffer(data, np.uint8), places[:-1], places[1:])


def texts_from(values: list[bytes]) -> Texts:
    ends = np.cumsum(np.fromiter(map(len, values), np.int64, len(values)), dtype=np.int64)
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])[: ends.size]
    return Texts(np.frombuffer(b"".join(values), np.uint8), starts, ends)


def new_places(rows: int) -> tuple[Places, Places]:
    """Starts and ends of texts that are yet to be written."""
    return POOL.empty(np.int64, rows), POOL.empty(np.int64, rows)


def new_bytes(size: int) -> Bytes:
    """Memory for new texts, with ROOM behind it."""
    return POOL.empty(np.uint8, size + ROOM)


def empty_texts(sizes: Places, status: Status) -> tuple[Texts, Places]:
    """Texts of these sizes in bytes, one after the other and yet to be written, and their n + 1
    offsets. Rows that are not VALID get an empty text. There is ROOM behind the texts."""
    offsets = POOL.zeros(np.int64, sizes.size + 1)
    np.cumsum(np.where(status == VALID, sizes, 0), out=offsets[1:])
    return Texts(new_bytes(int(offsets[-1])), offsets[:-1], offsets[1:]), offsets


def repaired(texts: Texts) -> Texts:
    """The texts with U+FFFD in place of what is not UTF-8, as Python decodes them."""
    kernels = load_module("cql.executor.kernels.texts.validity")
    if texts.is_dense and kernels.is_valid(texts.data, texts.starts, texts.ends):
        return texts
    invalid = np.zeros(len(texts), np.uint8)
    if not kernels.find_invalid(texts.data, texts.starts, texts.ends, invalid):
        return texts
    rows = np.flatnonzero(invalid)
    made = [texts.text(i).decode(errors="replace").encode() for i in rows.tolist()]
    return texts.with_rows(rows, made)


def to_arrow(texts: Texts, status: Status, kind: pa.DataType) -> pa.Array:
    """An array of ``kind`` (string or binary; of the large one for 2 GB and more), NULL where the
    status is not VALID."""
    data, offsets = _packed(texts)
    if offsets.dtype != np.int32:
        kind = pa.large_string() if kind == pa.string() else pa.large_binary()
    valid = status == VALID
    bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(texts), buffers)


def _packed(texts: Texts) -> tuple[Bytes, npt.NDArray[Any]]:
    """The bytes of the texts one after the other, and n + 1 offsets: int32 for less than 2 GB, else
    int64. Shares the bytes if they lie so already."""
    starts, ends = texts.starts, texts.ends
    n, dense = starts.size, texts.is_dense
    size = int(ends[-1]) if dense else texts.size
    offsets = POOL.empty(np.int32 if size < 1 << 31 else np.int64, n + 1)
    if dense:
        offsets[:-1], offsets[-1] = starts, size
        return texts.data, offsets
    data = new_bytes(size)
    kernels = load_module("cql.executor.kernels.texts.build")
    kernels.gather(texts.data, starts, ends, offsets, data)
    return data, offsets
