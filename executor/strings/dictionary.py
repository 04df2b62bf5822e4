"""The query's dictionary: a code for every string that a kernel compares, groups by or computes.

Codes are dense, in order of first sight, and never visible outside. They are never compared for
order: ``rank`` gives the order of the bytes, which is that of the code points. One code stands for
one byte string, text or binary.

Strings are only added. Over an endless stream most strings die: ``compact`` keeps those that some
state still refers to and renumbers them (``executor.strings.compaction``).

Several threads may add strings while others read: Python, and kernels once ``control`` was asked
for. An array that becomes too small is replaced by a larger one with the same content; a thread
that holds the old array still reads valid data. Only ``compact`` needs all other threads at rest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cql.base.uninterruptible import load_module
from cql.executor.morsel.buffers import POOL, Array

Codes = npt.NDArray[np.int32]
Account = Callable[[int, int], None]

_NO_MASK = np.zeros(0, np.uint8)
_CODES, _ARENA = 128, 4096  # room to begin with
#: The greatest depth of a table's result; then the depths of texts that an aggregate made, and of
#: arrays and structs, also those of rows: no table of texts computes entries for them.
FURTHEST, RESULTS, ARRAYS = 253, 254, 255


def _kernel() -> Any:
    """The kernel module, loaded on demand: most queries never need it."""
    return load_module("cql.executor.kernels.lib.dictionary")


class Dictionary:
    """Encodes Arrow string or binary arrays, decodes codes; the state is flat arrays.

    ``account(before, after)`` is called with byte counts before the dictionary, or other data kept
    per code, grows or shrinks; it may refuse by raising."""

    def __init__(self, account: Account = lambda before, after: None) -> None:
        self.account = account
        self.lock = threading.RLock()  # held while adding
        self.places = np.zeros(2 * _CODES, np.int64)
        self.hashes = np.zeros(_CODES, np.int64)
        #: The address of ``hashes``: kernels read it first, then the hashes of their codes.
        self.hashes_at = np.array([self.hashes.ctypes.data], np.int64)
        self._outgrown: list[npt.NDArray[np.int64]] = []  # kernels may still read these arrays
        self.starts = np.zeros(_CODES + 1, np.int64)
        self.arena = np.zeros(_ARENA, np.uint8)
        #: Depth of each text: the number of tables (``executor.strings.host_functions``) between a
        #: text that came with a row and this text.
        self.depths = np.zeros(_CODES, np.uint8)
        self._used = np.ones(1, np.int64)  # code 0 stands for NULL; its value is never read
        self._control: npt.NDArray[np.int64] | None = None
        self.kept = 0  # ``content`` after the last compaction
        self._ranked = 0
        self._rank: Codes = np.zeros(0, np.int32)

    def __len__(self) -> int:
        return self.used

    @property
    def used(self) -> int:
        """The number of codes in use."""
        return int(self._used[0])

    @used.setter
    def used(self, codes: int) -> None:
        self._used[0] = codes

    @property
    def control(self) -> int:
        """The address of the words by which kernels add texts (``kernels.lib.dictionary``)."""
        with self.lock:
            if self._control is None:
                self._control = np.zeros(_kernel().CONTROL, np.int64)
                self._bind()
        return int(self._control.ctypes.data)

    def _bind(self) -> None:
        """Shows kernels the arrays, the room for codes and the bytes of the arena."""
        if self._control is not None:
            kept = self.places, self.hashes, self.starts, self.depths, self.arena
            found = [a.ctypes.data for a in (self._used, *kept)]
            self._control[_kernel().USED :] = [*found, self.hashes.size, self.arena.size]

    @contextmanager
    def _adding(self) -> Iterator[None]:
        """Keeps all other threads from adding, those in kernels too."""
        with self.lock:
            if self._control is None:
                yield
                return
            kernel, control = _kernel(), self.control
            try:
                kernel.take_lock(control, kernel.PYTHON)
                yield
            finally:
                kernel.release_lock(control, kernel.PYTHON)

    @property
    def nbytes(self) -> int:
        return self.nbytes_of(self.hashes.size) + self.arena.size

    @property
    def content(self) -> int:
        """Bytes of the strings and of the data per code, without spare capacity."""
        return int(self.starts[self.used]) + self.nbytes_of(self.used)

    @staticmethod
    def nbytes_of(codes: int) -> int:
        """Bytes of the data for ``codes`` codes, without their strings. Outgrown hashes take as
        many bytes as those in use."""
        return codes * (2 * 8 + 2 * 8 + 8 + 1)

    def encode(self, array: pa.Array, out: Codes) -> None:
        """Writes the codes of ``array`` (string, binary or a dictionary of either) into ``out``;
        NULL gets code 0. Safe from any thread."""
        with self._adding():
            self._encode(array, out)

    def encode_results(self, array: pa.Array, depth: int) -> Codes:
        """Codes of computed texts (or of arrays) at the given ``depth``. Safe from any thread."""
        codes = np.zeros(len(array), np.int32)
        with self._adding():
            self._encode(array, codes, depth)
        return codes

    def _encode(self, array: pa.Array, out: Codes, depth: int = 0) -> None:
        if pa.types.is_dictionary(array.type):
            values = np.zeros(len(array.dictionary), np.int32)
            self._encode(array.dictionary, values, depth)
            indices = array.indices.fill_null(0).to_numpy(zero_copy_only=False)
            out[:] = values[indices] if len(values) else 0
            return
        kernel = _kernel()

        _, offsets, data = array.buffers()
        n = len(array)
        large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
        wide = np.int64 if large else np.int32
        if n == 0:
            return
        offset_view = np.frombuffer(offsets, wide, n + 1, array.offset * np.dtype(wide).itemsize)
        bytes_view = np.frombuffer(data, np.uint8) if data is not None else _NO_MASK
        valid = _NO_MASK
        if array.null_count:
            valid = array.is_valid().to_numpy(zero_copy_only=False).view(np.uint8)
        done = 0
        while True:
            done, used = kernel.encode(
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
            self.depths[self.used : used] = depth  # before other threads can see these codes
            self.used = used
            if done == n:
                return
            self._grow(int(offset_view[done + 1] - offset_view[done]))

    def encode_values(self, values: list[bytes]) -> Codes:
        out = np.zeros(len(values), np.int32)
        self.encode(pa.array(values, pa.binary()), out)
        return out

    def add_result(self, value: bytes, depth: int = 0) -> int:
        """``encode_results`` of one text."""
        return int(self.encode_results(pa.array([value], pa.binary()), depth)[0])

    def make_room(self, wanted: int) -> None:
        """Makes room for one more code, of a text of ``wanted`` bytes."""
        with self._adding():
            self._grow(wanted)

    def _grow(self, wanted: int) -> None:
        kernel = _kernel()

        room = self.hashes.size
        if self.used >= room:
            self.account(self.nbytes_of(room), self.nbytes_of(2 * room))
            self._outgrown.append(self.hashes)
            self._set_codes(2 * room)
            kernel.index(self.places, self.hashes, self.used)
            self._bind()
        full = int(self.starts[self.used])
        if full + wanted > self.arena.size:
            size = max(2 * self.arena.size, full + wanted)
            self.account(self.arena.size, size)
            self.arena = _moved(self.arena, full, size)
            self._bind()

    def _set_codes(self, room: int) -> None:
        """Moves the data of the codes to arrays for ``room`` codes; ``places`` are empty then."""
        self.hashes = _moved(self.hashes, self.used, room)
        self.hashes_at[0] = self.hashes.ctypes.data
        self.starts = _moved(self.starts, self.used + 1, room + 1)
        self.depths = _moved(self.depths, self.used, room)
        self.places = POOL.zeros(self.places.dtype, 2 * room)

    def compact(self, live: npt.NDArray[np.bool_]) -> Codes:
        """Forgets the codes that are not ``live`` and returns the new code of each old code; the
        order of codes stays. A last entry of -1 maps -1 (no code) to itself.

        The arrays keep their size, for as many new texts, unless less than a quarter of them was
        in use."""
        kernel = _kernel()

        before = self.nbytes + self._rank.nbytes
        codes, last = self.used, int(self.starts[self.used])
        renumbered = np.full(live.size + 1, -1, np.int32)
        self._outgrown.clear()
        self.used = kernel.compact(
            live, self.hashes, self.starts, self.depths, self.arena, renumbered
        )
        room = _room(2 * codes, _CODES)
        if room < self.hashes.size:
            self._set_codes(room)
        else:
            self.places[:] = 0
        kernel.index(self.places, self.hashes, self.used)
        size = _room(2 * last, _ARENA)
        if size < self.arena.size:
            self.arena = _moved(self.arena, int(self.starts[self.used]), size)
        self._bind()
        self._ranked, self._rank = 0, np.zeros(0, np.int32)
        self.account(before, self.nbytes)
        self.kept = self.content
        return renumbered

    def value(self, code: int) -> bytes:
        return self.arena[self.starts[code] : self.starts[code + 1]].tobytes()

    def values(self, arrow: pa.DataType) -> pa.Array:
        """All strings in code order, as the large type of ``arrow``. The result shares the arena
        and the offsets: use it before the next encode."""
        large = pa.large_string() if arrow == pa.string() else pa.large_binary()
        used = self.used  # read before the arrays: later arrays cover at least as many codes
        offsets = self.starts[: used + 1]
        data = pa.py_buffer(self.arena[: int(offsets[used])])
        return pa.Array.from_buffers(large, used, [None, pa.py_buffer(offsets), data])

    def decode(
        self, codes: Codes, valid: npt.NDArray[np.uint8] | None, arrow: pa.DataType
    ) -> pa.Array:
        """The strings of ``codes``; NULL where ``valid`` is 0. The time depends on the number of
        ``codes`` only, not on the size of the dictionary."""
        indices = pa.array(codes, mask=None if valid is None else valid == 0)
        return self.values(arrow).take(indices).cast(arrow)

    def rank(self) -> Codes:
        """rank()[code] orders codes by their bytes; rebuilt when codes were added. Safe from any
        thread."""
        with self.lock:
            return self._ranks()

    def _ranks(self) -> Codes:
        if self._ranked != self.used:
            order = pc.sort_indices(self.values(pa.binary())).to_numpy()
            rank = np.empty(order.size, np.int32)
            self.account(self._rank.nbytes, rank.nbytes)
            rank[order] = np.arange(order.size, dtype=np.int32)
            self._rank, self._ranked = rank, order.size
        return self._rank


def _moved(array: Array, used: int, n: int) -> Array:
    """An array with room for ``n`` values; the first ``used`` ones are those of ``array``."""
    other = POOL.empty(array.dtype, n)
    other[:used] = array[:used]
    return other


def _room(n: int, least: int) -> int:
    """The least power of two that is at least ``n`` and ``least``."""
    return max(least, 1 << (n - 1).bit_length()) if n else least
