"""The last step of an operator that splits morsels by partition: lists the rows of each
partition."""

from __future__ import annotations

from numba import int64, uint64

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import as_i16, as_i32, words
from cql.executor.kernels.morsel_layout import (
    HEADER,
    LATE_ROW_ADDRESS,
    LATE_ROW_WORDS,
    LATE_ROWS,
    ROWS,
)

#: Up to this number of partitions, each partition has a pass of its own over all rows.
_PASSES = 4


@njit("void(int64, int64, int64, int64)", nogil=True, cache=True)
def split_rows(morsel: int, out: int, columns: int, parts: int) -> None:
    """Lists the rows of each partition.

    Behind ``columns`` other columns the output has the columns ``rows`` (int32: row numbers,
    grouped by partition), ``offsets`` (parts + 1 offsets into ``rows``, then parts + 1 offsets into
    the late rows) and ``part`` (int16: the partition of each row, -1: the row is left out), which
    is filled already. The late rows of the output are grouped by partition, too, and number their
    rows within the partition; those of ``morsel`` are in the order of arrival."""
    u = words(morsel, HEADER)
    o = words(out, HEADER + 2 * (columns + 3))
    n, late = u[ROWS], u[LATE_ROWS]
    at = HEADER + 2 * columns
    rows, part = as_i32(o[at], n + 1), as_i16(o[at + 4], n)
    offsets = words(o[at + 2], 2 * parts + 2)
    for q in range(2 * parts + 2):
        offsets[q] = 0
    lates = offsets[parts + 1 :]  # meanwhile: the next free place of each partition
    if parts <= _PASSES:
        listed = 0
        for q in range(parts):
            for i in range(n):  # no branch, and no word in memory that is both read and written
                rows[uint64(listed)] = i
                listed += int64(part[uint64(i)] == q)
            offsets[q + 1] = listed
    else:
        for i in range(n):
            offsets[part[i] + 1] += 1
        offsets[0] = 0
        for q in range(parts):
            offsets[q + 1] += offsets[q]
        for q in range(parts):
            lates[q] = offsets[q]
        for i in range(n):
            q = part[i]
            if q >= 0:
                rows[lates[q]] = i
                lates[q] += 1
    for q in range(parts + 1):
        lates[q] = 0
    o[LATE_ROWS] = late
    if late == 0:
        return
    old = words(u[LATE_ROW_ADDRESS], LATE_ROW_WORDS * late)
    new = words(o[LATE_ROW_ADDRESS], LATE_ROW_WORDS * late)
    made = 0
    for q in range(parts):
        lates[q] = made
        place = offsets[q]
        for e in range(late):
            row = old[LATE_ROW_WORDS * e]
            if part[row] != q:
                continue
            while rows[place] < row:
                place += 1
            new[LATE_ROW_WORDS * made] = place - offsets[q]
            new[LATE_ROW_WORDS * made + 1] = old[LATE_ROW_WORDS * e + 1]
            new[LATE_ROW_WORDS * made + 2] = old[LATE_ROW_WORDS * e + 2]
            made += 1
    lates[parts] = o[LATE_ROWS] = made
