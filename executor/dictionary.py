"""The query's dictionary: every string that a kernel compares, groups by or computes, as a code.

Codes are dense, in order of first sight, and never seen outside; they are never compared for order
(``rank`` gives the order of the bytes, which is that of the code points). One code stands for one
byte string, be it text or binary.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_NO_MASK = np.zeros(0, np.uint8)


class Dictionary:
    """Encodes Arrow string or binary arrays, decodes codes; state is four flat arrays."""

    def __init__(self) -> None:
        self.places = np.zeros(256, np.int32)
        self.hashes = np.zeros(128, np.int64)
        self.starts = np.zeros(129, np.int64)
        self.arena = np.zeros(4096, np.uint8)
        self.used = 1  # code 0 stands for NULL, whose value nobody looks at
        self._ranked = 0
        self._rank: npt.NDArray[np.int32] = np.zeros(0, np.int32)

    def __len__(self) -> int:
        return self.used

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in (self.places, self.hashes, self.starts, self.arena))

    def encode(self, array: pa.Array, out: npt.NDArray[np.int32]) -> None:
        """Codes of ``array`` (string, binary or a dictionary of either) into ``out``; a NULL gets
        code 0."""
        if pa.types.is_dictionary(array.type):
            values = np.zeros(len(array.dictionary), np.int32)
            self.encode(array.dictionary, values)
            indices = array.indices.fill_null(0).to_numpy(zero_copy_only=False)
            out[:] = values[indices] if len(values) else 0
            return
        from cql.executor.kernels import dictionary as kernel  # most queries never need it

        _, offsets, data = array.buffers()
        n = len(array)
        wide = np.int64 if pa.types.is_large_string(array.type) else np.int32
        if n == 0:
            return
        offset_view = np.frombuffer(offsets, wide, n + 1, array.offset * np.dtype(wide).itemsize)
        bytes_view = np.frombuffer(data, np.uint8) if data is not None else _NO_MASK
        valid = _NO_MASK
        if array.null_count:
            valid = array.is_valid().to_numpy(zero_copy_only=False).view(np.uint8)
        done = 0
        while True:
            done, self.used = kernel.encode(
                bytes_view,
                offset_view,
                valid,
                done,
                n,
                self.places,
                self.hashes,
                self.starts,
                self.arena,
                self.used,
                out,
            )
            if done == n:
                return
            self._grow(int(offset_view[done + 1] - offset_view[done]))

    def encode_values(self, values: list[bytes]) -> npt.NDArray[np.int32]:
        out = np.zeros(len(values), np.int32)
        self.encode(pa.array(values, pa.binary()), out)
        return out

    def _grow(self, wanted: int) -> None:
        from cql.executor.kernels import dictionary as kernel

        if self.used >= self.hashes.size:
            self.hashes = np.concatenate([self.hashes, np.zeros_like(self.hashes)])
            self.starts = np.concatenate([self.starts, np.zeros(self.starts.size - 1, np.int64)])
            self.places = np.zeros(2 * self.hashes.size, np.int32)
            kernel.index(self.places, self.hashes, self.used)
        full = int(self.starts[self.used])
        if full + wanted > self.arena.size:
            size = max(2 * self.arena.size, full + wanted)
            self.arena = np.concatenate([self.arena, np.zeros(size - self.arena.size, np.uint8)])

    def value(self, code: int) -> bytes:
        return self.arena[self.starts[code] : self.starts[code + 1]].tobytes()

    def values(self, arrow: pa.DataType) -> pa.Array:
        """All strings in code order; shares the arena, so take from it before the next encode."""
        last = int(self.starts[self.used])
        if last < 2**31:
            offsets = pa.py_buffer(self.starts[: self.used + 1].astype(np.int32))
            data = pa.py_buffer(self.arena[:last])
            return pa.Array.from_buffers(arrow, self.used, [None, offsets, data])
        large = pa.large_string() if arrow == pa.string() else pa.large_binary()
        offsets = pa.py_buffer(self.starts[: self.used + 1].copy())
        return pa.Array.from_buffers(
            large, self.used, [None, offsets, pa.py_buffer(self.arena[:last])]
        )

    def decode(
        self, codes: npt.NDArray[np.int32], valid: npt.NDArray[np.uint8] | None, arrow: pa.DataType
    ) -> pa.Array:
        """Strings of the codes; NULL where ``valid`` is 0."""
        indices = pa.array(codes, mask=None if valid is None else valid == 0)
        taken = self.values(arrow).take(indices)
        return taken if taken.type == arrow else taken.cast(arrow)

    def rank(self) -> npt.NDArray[np.int32]:
        """rank()[code] orders codes as their bytes; made anew when codes were added."""
        if self._ranked != self.used:
            order = pc.sort_indices(self.values(pa.binary())).to_numpy()
            rank = np.empty(self.used, np.int32)
            rank[order] = np.arange(self.used, dtype=np.int32)
            self._rank, self._ranked = rank, self.used
        return self._rank
