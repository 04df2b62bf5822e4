"""Windows as updates (UpStream report, section 6): a window of a key is an update of the key's
windows before it, and windows are dropped whole.

*LAZY* (MRU_L): a window becomes an update when it has fully arrived, that is when PROGRESS reaches
its end. A committed key never runs out of rows.

*EAGER* (MRU_E): a window becomes an update with its first row. The operator processes its rows as
they arrive; a committed key without rows is IDLE, and goes to the tail of the READY keys when a row
of its window comes, or when its window ends.

The *key transition graph*: an update makes a key WAIT (the queue of keys is wq). When no committed
key is READY, the key at the head of wq is committed to its most recent window and is READY (upq).
When the window has ended and all its rows are dequeued the key is DONE, until its result is
delivered. A key can WAIT while it is committed; it enters wq afterwards, at the place of its age.

A window of a key is ``[k * SLIDE, k * SLIDE + SIZE)`` in event time and has a row of the key. EAGER
serves windows that have a row in their first SLIDE. The rows of a key come in the order
of event time; others are left out and counted.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.morsel_layout import NEVER
from cql.executor.kernels.updates.layout import (
    ACTIVE,
    ACTIVE_AFTER,
    ACTIVE_BEFORE,
    ACTIVE_HEAD,
    ARRIVED,
    BLOCK_AFTER,
    BLOCK_ROWS,
    COMMITTED,
    DELIVERED,
    DEQUEUED,
    DF_BLOCK,
    DF_ROW,
    DONE,
    EAGER,
    ENDED,
    ENDS,
    ENQUEUED,
    FIFO,
    FIRST_BLOCK,
    GAP_FROM,
    GAP_TO,
    HEAD,
    IDLE,
    IDLE_HEAD,
    LAZY,
    LINECUTTING,
    LINK_AFTER,
    LINK_BEFORE,
    NEWEST,
    NEXT_PENDING,
    NONE,
    OPENED,
    PENDING,
    PENDING_FROM,
    PROGRESS,
    REACHED,
    READY,
    READY_HEAD,
    READY_TAIL,
    ROWS_BETWEEN,
    ROWS_LATE,
    ROWS_TAKEN,
    SCHEDULER,
    SERVED_WAITING,
    SINCE,
    SINCE_FROM,
    SIZE,
    SLIDE,
    STATE,
    SUPERSEDED,
    TAKEN,
    WAITING,
    WE,
    WINDOWS,
    WS,
    blocks_of,
    buffers_of,
    cells_of,
    events_of,
    nodes_of,
)
from cql.executor.kernels.updates.lists import link, link_first, unlink, unlink_from
from cql.executor.kernels.updates.queue_of_keys import (
    enter,
    enter_by_age,
    leave,
    move_to_tail,
    note_cutting,
)
from cql.executor.kernels.updates.staleness import (
    begin,
    end_pending,
    end_waiting,
    note_arrival,
)
from cql.executor.kernels.updates.window_buffer import (
    drop_behind_committed,
    drop_front,
    erase_back,
    first_row,
    push,
)

# Marks of a dequeued row (table 1). OPENS: open the window. CLOSES: emit its result.
UPDATES, OPENS, CLOSES = 0, 1, 2


# -- lists of keys ---------------------------------------------------------------------------------


@njit(inline="always")
def _make_ready(q: Any, buffers: Any, cell: int) -> None:
    """Enters a key at the tail of upq."""
    tail = q[READY_TAIL]
    link(q, buffers, cell, tail, READY_HEAD, READY_TAIL, LINK_AFTER, LINK_BEFORE)
    buffers[cell, STATE] = READY


@njit(inline="always")
def _make_idle(q: Any, buffers: Any, cell: int) -> None:
    link_first(q, buffers, cell, IDLE_HEAD, LINK_AFTER, LINK_BEFORE)
    buffers[cell, STATE] = IDLE


@njit(inline="always")
def _unlink(q: Any, buffers: Any, cell: int) -> None:
    """Takes a key out of upq or il."""
    if buffers[cell, STATE] == READY:
        unlink(q, buffers, cell, READY_HEAD, READY_TAIL, LINK_AFTER, LINK_BEFORE)
    else:
        unlink_from(q, buffers, cell, IDLE_HEAD, LINK_AFTER, LINK_BEFORE)


@njit(inline="always")
def _activate(q: Any, buffers: Any, cell: int) -> None:
    link_first(q, buffers, cell, ACTIVE_HEAD, ACTIVE_AFTER, ACTIVE_BEFORE)
    buffers[cell, ACTIVE] = 1


@njit(inline="always")
def _deactivate(q: Any, buffers: Any, cell: int) -> None:
    unlink_from(q, buffers, cell, ACTIVE_HEAD, ACTIVE_AFTER, ACTIVE_BEFORE)
    buffers[cell, ACTIVE] = 0


@njit(inline="always")
def _last_end(q: Any, to: int) -> int:
    """The latest end of a window that is not behind ``to``."""
    return int((to - q[SIZE]) // q[SLIDE] * q[SLIDE] + q[SIZE])


# -- updates ---------------------------------------------------------------------------------------


@njit("void(int64[::1], int64[:, ::1], int64[:, ::1], int64, int64)", nogil=True, cache=True)
def _update(q: Any, cells: Any, buffers: Any, cell: int, now: int) -> None:
    """The key has a more recent window to serve (isUpdate)."""
    q[ARRIVED] += 1
    note_arrival(q, cells, cell, now)
    nodes = nodes_of(q)
    if cells[cell, WAITING] != 0:
        q[SUPERSEDED] += 1
        if q[SCHEDULER] == FIFO and buffers[cell, STATE] == NONE:
            move_to_tail(q, nodes, cell)
        return
    cells[cell, WAITING] = 1
    begin(cells, cell, SINCE, SINCE_FROM, now)
    if buffers[cell, STATE] == NONE:
        enter(q, cells, nodes, cell, cell)
    else:
        q[SERVED_WAITING] += 1


@njit("void(int64[:, ::1], int64[:, ::1], int64, int64, int64)", nogil=True, cache=True)
def _close(cells: Any, buffers: Any, cell: int, start: int, now: int) -> None:
    """A window of the key has fully arrived: its result is due. None of a later one was delivered:
    windows of a key end in order."""
    if cells[cell, PENDING] == NEVER:
        begin(cells, cell, PENDING, PENDING_FROM, now)
    serves = buffers[cell, STATE] != NONE
    if serves and start > buffers[cell, COMMITTED] and buffers[cell, NEXT_PENDING] == NEVER:
        buffers[cell, NEXT_PENDING] = now


@njit(inline="always")
def _note_gap(q: Any, buffers: Any, cell: int, newest: int, event: int) -> None:
    """EAGER: notes that an active key has windows without a row between its rows at ``newest`` and
    at ``event``, unless an earlier gap is still ahead of the progress."""
    to = buffers[cell, GAP_TO]
    if to != NEVER and _last_end(q, to) > buffers[cell, ENDED]:
        return
    if newest // q[SLIDE] * q[SLIDE] + q[SLIDE] + q[SIZE] <= event:
        buffers[cell, GAP_FROM], buffers[cell, GAP_TO] = newest, event


@njit("int64(int64[::1], int64, int64, int64)", nogil=True, cache=True)
def enqueue_row(q: Any, cell: int, event: int, now: int) -> int:
    """The place of a row of a key in its window buffer; -1: the queue does not keep it."""
    cells, buffers = cells_of(q), buffers_of(q)
    start = event // q[SLIDE] * q[SLIDE]
    reached = max(q[PROGRESS], buffers[cell, REACHED])
    if event < cells[cell, NEWEST] or start + q[SIZE] <= reached:
        q[ROWS_LATE] += 1
        return -1
    if event >= start + q[SIZE]:
        q[ROWS_BETWEEN] += 1
        return -1
    newest = cells[cell, NEWEST]
    cells[cell, NEWEST] = event
    if buffers[cell, ACTIVE] == 0:
        _activate(q, buffers, cell)
        buffers[cell, ENDED] = _last_end(q, max(event, reached))
    elif q[WINDOWS] == EAGER:
        _note_gap(q, buffers, cell, newest, event)
    if q[WINDOWS] == LAZY:
        return push(q, buffers, cell, event)
    serves = buffers[cell, STATE] == READY or buffers[cell, STATE] == IDLE
    begins = start > buffers[cell, WS]
    if begins:
        if cells[cell, WAITING] != 0:
            used = buffers[cell, WE] if serves else NEVER
            erase_back(q, buffers, cell, max(buffers[cell, WS], used))
        buffers[cell, WS] = start
    place = push(q, buffers, cell, event)
    if begins:
        _update(q, cells, buffers, cell, now)
    if buffers[cell, STATE] == IDLE and event < buffers[cell, WE]:  # doPromote
        _unlink(q, buffers, cell)
        _make_ready(q, buffers, cell)
    return place


@njit("void(int64[::1], int64[:, ::1], int64[:, ::1], int64, int64, int64)", nogil=True, cache=True)
def _end_eager(q: Any, cells: Any, buffers: Any, cell: int, last: int, now: int) -> None:
    """The key's windows that end by ``last`` have ended. What is due for one of them is due for the
    latest that has a row."""
    newest = cells[cell, NEWEST]
    if buffers[cell, GAP_TO] != NEVER and last <= buffers[cell, GAP_TO]:
        newest = buffers[cell, GAP_FROM]
    start = min(last - q[SIZE], newest // q[SLIDE] * q[SLIDE])
    if start + q[SIZE] > buffers[cell, ENDED]:
        _close(cells, buffers, cell, start, now)
    if buffers[cell, STATE] == IDLE and buffers[cell, WE] <= last:
        _unlink(q, buffers, cell)
        _make_ready(q, buffers, cell)


@njit("void(int64[::1], int64[:, ::1], int64[:, ::1], int64, int64, int64)", nogil=True, cache=True)
def _end_lazy(q: Any, cells: Any, buffers: Any, cell: int, last: int, now: int) -> None:
    """The same; each window that has a row is an update."""
    end = buffers[cell, ENDED] + q[SLIDE]
    while end <= last:
        start = end - q[SIZE]
        first = first_row(q, buffers, cell, start)
        if first == NEVER:
            break
        if first >= end:  # no row up to the first end behind that row
            end = _last_end(q, first) + q[SLIDE]
            continue
        buffers[cell, WS] = start
        _update(q, cells, buffers, cell, now)
        _close(cells, buffers, cell, start, now)
        drop_front(q, buffers, cell, start)
        if buffers[cell, STATE] == READY:
            drop_behind_committed(q, buffers, cell, start)
        end += q[SLIDE]


@njit("void(int64[::1], int64[:, ::1], int64[:, ::1], int64, int64, int64)", nogil=True, cache=True)
def _end_windows(q: Any, cells: Any, buffers: Any, cell: int, to: int, now: int) -> None:
    """The windows of an active key that end by ``to`` have ended."""
    last = _last_end(q, to)
    if last <= buffers[cell, ENDED]:
        return
    if q[WINDOWS] == EAGER:
        _end_eager(q, cells, buffers, cell, last, now)
    else:
        _end_lazy(q, cells, buffers, cell, last, now)
    buffers[cell, ENDED] = last
    if cells[cell, NEWEST] // q[SLIDE] * q[SLIDE] + q[SIZE] <= last:  # no open window has a row
        _deactivate(q, buffers, cell)


@njit("void(int64[::1], int64, int64)", nogil=True, cache=True)
def progress(q: Any, to: int, now: int) -> None:
    """No later row has an event time below ``to``: the windows that end by then have fully
    arrived."""
    if to <= q[PROGRESS]:
        return
    q[PROGRESS] = to
    last = _last_end(q, to)
    if last == q[ENDS]:
        return
    q[ENDS] = last
    cells, buffers = cells_of(q), buffers_of(q)
    cell = q[ACTIVE_HEAD]
    while cell >= 0:
        following = buffers[cell, ACTIVE_AFTER]
        _end_windows(q, cells, buffers, cell, to, now)
        cell = following


@njit("void(int64[::1], int64, int64, int64)", nogil=True, cache=True)
def progress_of(q: Any, cell: int, to: int, now: int) -> None:
    """No later row of one key has an event time below ``to`` (group-wise punctuation)."""
    cells, buffers = cells_of(q), buffers_of(q)
    buffers[cell, REACHED] = max(buffers[cell, REACHED], to)
    if buffers[cell, ACTIVE] != 0:
        _end_windows(q, cells, buffers, cell, to, now)


@njit(
    "void(int64[::1], int64[::1], int64[::1], int64[::1], int64, int64[::1])",
    nogil=True,
    cache=True,
)
def enqueue_rows(q: Any, ids: Any, events: Any, watermarks: Any, now: int, found: Any) -> None:
    """Enqueues rows of the keys ``ids`` with these event times; ``watermarks`` is the progress
    before each row. Writes the place of each row to ``found``, -1 for a row that is not kept."""
    for i in range(ids.size):
        progress(q, watermarks[i], now)
        found[i] = enqueue_row(q, ids[i], events[i], now)


# -- the operator's side ---------------------------------------------------------------------------


@njit("void(int64[::1], int64[:, ::1], int64[:, ::1], int64)", nogil=True, cache=True)
def _commit(q: Any, cells: Any, buffers: Any, now: int) -> None:
    """Commits the key at the head of wq to its most recent window."""
    if q[SCHEDULER] == LINECUTTING:
        note_cutting(q)
    cell = q[HEAD]
    leave(q, nodes_of(q), cell)
    cells[cell, WAITING] = 0
    end_waiting(cells, cell, NEVER, now)
    q[TAKEN] += 1
    start = buffers[cell, WS]
    buffers[cell, COMMITTED], buffers[cell, WE] = start, start + q[SIZE]
    buffers[cell, OPENED] = 0
    buffers[cell, NEXT_PENDING] = NEVER
    drop_front(q, buffers, cell, start)
    block = buffers[cell, FIRST_BLOCK]
    buffers[cell, DF_BLOCK] = block
    if block >= 0:
        buffers[cell, DF_ROW] = blocks_of(q)[block, DEQUEUED]
    _make_ready(q, buffers, cell)


@njit(
    "int64(int64[::1], int64, int64[::1], int64[::1], int64[::1], int64[::1])",
    nogil=True,
    cache=True,
)
def serve(q: Any, now: int, rows: Any, owners: Any, starts: Any, marks: Any) -> int:
    """Dequeues rows of committed windows, as many as ``rows`` has room for, and returns their
    number. Writes the place of each (-1: no row, but CLOSES), its key, the start of its window and
    its marks. Commits keys when no committed one has rows."""
    cells, buffers = cells_of(q), buffers_of(q)
    blocks, events = blocks_of(q), events_of(q)
    n = 0
    while n < rows.size:
        if q[READY_HEAD] < 0:
            if q[HEAD] < 0:
                break
            _commit(q, cells, buffers, now)
        cell = q[READY_HEAD]
        block, at = buffers[cell, DF_BLOCK], buffers[cell, DF_ROW]
        start, end = buffers[cell, COMMITTED], buffers[cell, WE]
        place = block * q[BLOCK_ROWS] + at
        has = block >= 0 and events[place] < end
        owners[n], starts[n], rows[n], marks[n] = cell, start, -1, UPDATES
        if has:
            rows[n] = place
            if buffers[cell, OPENED] == 0:
                marks[n], buffers[cell, OPENED] = OPENS, 1
            at += 1
            if at == blocks[block, ENQUEUED]:
                block = blocks[block, BLOCK_AFTER]
                at = blocks[block, DEQUEUED] if block >= 0 else 0
            buffers[cell, DF_BLOCK], buffers[cell, DF_ROW] = block, at
            q[ROWS_TAKEN] += 1
        more = block >= 0 and events[block * q[BLOCK_ROWS] + at] < end
        if not more:
            _unlink(q, buffers, cell)
            if max(q[PROGRESS], buffers[cell, REACHED]) >= end:
                marks[n] |= CLOSES
                buffers[cell, STATE] = DONE
            else:
                _make_idle(q, buffers, cell)
        if has or marks[n] != UPDATES:
            n += 1
    return n


@njit("void(int64[::1], int64[::1])", nogil=True, cache=True)
def forget(q: Any, owners: Any) -> None:
    """Frees the rows that ``serve`` has dequeued and no window needs any more; the owner of the
    queue has copied them."""
    buffers, cells = buffers_of(q), cells_of(q)
    for i in range(owners.size):
        cell = owners[i]
        if i > 0 and cell == owners[i - 1]:
            continue
        if cells[cell, WAITING] != 0:
            keep = buffers[cell, WS]
        elif q[WINDOWS] == LAZY:
            keep = buffers[cell, ENDED] + q[SLIDE] - q[SIZE]
        else:
            keep = buffers[cell, WE]
        drop_front(q, buffers, cell, keep)


@njit("void(int64[::1], int64[::1], int64)", nogil=True, cache=True)
def deliver_windows(q: Any, owners: Any, now: int) -> None:
    """The results of the DONE keys ``owners`` have reached the application."""
    cells, buffers = cells_of(q), buffers_of(q)
    for i in range(owners.size):
        cell = owners[i]
        end_pending(cells, cell, buffers[cell, NEXT_PENDING], now)
        buffers[cell, STATE] = NONE
        if cells[cell, WAITING] != 0:
            q[SERVED_WAITING] -= 1
            enter_by_age(q, cells, nodes_of(q), cell)
    q[DELIVERED] += owners.size
