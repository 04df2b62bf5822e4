"""The window buffer of a key (UpStream report, section 7.2): its rows, oldest first, in blocks of a
fixed number of rows (FixedLengthContiguousZone).

A row lies there once, whichever windows it is in. Four pointers say what
for: ET behind the newest row, DF at the row that is dequeued next, WS at the most recent window, WE
at the end of the committed one. When a new window starts, EAGER erases the rows from WS to ET but
those of the committed window; so the buffer holds the rows of at most SIZE + SLIDE - 1 units of
time. LAZY drops the rows before WS when a window ends, of those behind WE whole blocks; so it holds
as many, and the committed window.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.morsel_layout import NEVER
from cql.executor.kernels.updates.layout import (
    BLOCK_AFTER,
    BLOCK_BEFORE,
    BLOCK_ROWS,
    DEQUEUED,
    DF_BLOCK,
    DF_ROW,
    ENQUEUED,
    FIRST_BLOCK,
    IDLE,
    LAST_BLOCK,
    NONE,
    READY,
    ROWS_GONE,
    ROWS_HELD,
    STATE,
    WE,
    blocks_of,
    events_of,
)
from cql.executor.kernels.updates.pages import mem_add, mem_rem


@njit("int64(int64[::1], int64[:, ::1], int64, int64)", nogil=True, cache=True)
def push(q: Any, buffers: Any, cell: int, event: int) -> int:
    """Appends a row at ET and returns its place among all rows."""
    blocks = blocks_of(q)
    block = buffers[cell, LAST_BLOCK]
    if block < 0 or blocks[block, ENQUEUED] == q[BLOCK_ROWS]:
        last, block = block, mem_add(q)
        blocks[block, BLOCK_AFTER], blocks[block, BLOCK_BEFORE] = -1, last
        blocks[block, DEQUEUED], blocks[block, ENQUEUED] = 0, 0
        if last < 0:
            buffers[cell, FIRST_BLOCK] = block
        else:
            blocks[last, BLOCK_AFTER] = block
        buffers[cell, LAST_BLOCK] = block
    at = blocks[block, ENQUEUED]
    blocks[block, ENQUEUED] += 1
    place = block * q[BLOCK_ROWS] + at
    events_of(q)[place] = event
    if buffers[cell, DF_BLOCK] < 0 and buffers[cell, STATE] != NONE:
        buffers[cell, DF_BLOCK], buffers[cell, DF_ROW] = block, at
    q[ROWS_HELD] += 1
    return int(place)


@njit("void(int64[::1], int64[:, ::1], int64, int64)", nogil=True, cache=True)
def _free_block(q: Any, buffers: Any, cell: int, block: int) -> None:
    blocks = blocks_of(q)
    before, after = blocks[block, BLOCK_BEFORE], blocks[block, BLOCK_AFTER]
    if before < 0:
        buffers[cell, FIRST_BLOCK] = after
    else:
        blocks[before, BLOCK_AFTER] = after
    if after < 0:
        buffers[cell, LAST_BLOCK] = before
    else:
        blocks[after, BLOCK_BEFORE] = before
    mem_rem(q, block)


@njit("void(int64[::1], int64[:, ::1], int64, int64)", nogil=True, cache=True)
def drop_front(q: Any, buffers: Any, cell: int, keep: int) -> None:
    """Frees the rows before event time ``keep`` that are not to be dequeued."""
    blocks, events = blocks_of(q), events_of(q)
    committed = buffers[cell, STATE] == READY or buffers[cell, STATE] == IDLE
    n = 0
    while buffers[cell, FIRST_BLOCK] >= 0:
        block = buffers[cell, FIRST_BLOCK]
        at = blocks[block, DEQUEUED]
        if committed and block == buffers[cell, DF_BLOCK] and at == buffers[cell, DF_ROW]:
            break
        if events[block * q[BLOCK_ROWS] + at] >= keep:
            break
        blocks[block, DEQUEUED] += 1
        n += 1
        if blocks[block, DEQUEUED] == blocks[block, ENQUEUED]:
            _free_block(q, buffers, cell, block)
    q[ROWS_HELD] -= n
    q[ROWS_GONE] += n


@njit("void(int64[::1], int64[:, ::1], int64, int64)", nogil=True, cache=True)
def drop_behind_committed(q: Any, buffers: Any, cell: int, keep: int) -> None:
    """LAZY: frees the blocks whose rows are all between the end of the committed window, which has
    rows to dequeue, and event time ``keep``. There is a row from ``keep`` on."""
    blocks, events = blocks_of(q), events_of(q)
    n, block = 0, blocks[buffers[cell, DF_BLOCK], BLOCK_AFTER]
    while block >= 0:
        begin, end = blocks[block, DEQUEUED], blocks[block, ENQUEUED]
        following = blocks[block, BLOCK_AFTER]
        if events[block * q[BLOCK_ROWS] + end - 1] >= keep:
            break
        if events[block * q[BLOCK_ROWS] + begin] >= buffers[cell, WE]:
            n += end - begin
            _free_block(q, buffers, cell, block)
        block = following
    q[ROWS_HELD] -= n
    q[ROWS_GONE] += n


@njit("void(int64[::1], int64[:, ::1], int64, int64)", nogil=True, cache=True)
def erase_back(q: Any, buffers: Any, cell: int, start: int) -> None:
    """EAGER: frees the rows from event time ``start`` on; none is in the committed window."""
    blocks, events = blocks_of(q), events_of(q)
    n = 0
    while buffers[cell, LAST_BLOCK] >= 0:
        block = buffers[cell, LAST_BLOCK]
        at = blocks[block, ENQUEUED] - 1
        if events[block * q[BLOCK_ROWS] + at] < start:
            break
        if buffers[cell, DF_BLOCK] == block and buffers[cell, DF_ROW] == at:
            buffers[cell, DF_BLOCK] = -1
        blocks[block, ENQUEUED] = at
        n += 1
        if blocks[block, DEQUEUED] == at:
            _free_block(q, buffers, cell, block)
    q[ROWS_HELD] -= n
    q[ROWS_GONE] += n


@njit("int64(int64[::1], int64[:, ::1], int64, int64)", nogil=True, cache=True)
def first_row(q: Any, buffers: Any, cell: int, start: int) -> int:
    """The event time of the buffer's first row from ``start`` on; NEVER: it has none."""
    block = buffers[cell, FIRST_BLOCK]
    events, blocks = events_of(q), blocks_of(q)
    while block >= 0:
        for at in range(blocks[block, DEQUEUED], blocks[block, ENQUEUED]):
            event = events[block * q[BLOCK_ROWS] + at]
            if event >= start:
                return int(event)
        block = blocks[block, BLOCK_AFTER]
    return int(NEVER)
