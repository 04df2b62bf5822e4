"""The join of two changing relations, instant by instant.

The changes of each side are sorted by time and carry the id of their row; each row has the id of
its key. On each side the rows of a key form a linked list. At an instant a pair changes if its left
or its right row changes. The weight of the change is ``left * right`` copies after the instant
minus ``left * right`` copies before it, which is ``dL x R_before + L_after x dR`` (Gupta and
Mumick, "Maintenance of Materialized Views", 1995, section 3.1); a pair of two rows that both change
is emitted once. In outer joins a side also emits its rows without partners, in mark joins all its
rows with the answer whether they have partners.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import call_operator, prefetch, words

#: Words of each row of a side: its copies after and before the instant; the id of its key (-1:
#: NULL, which has no partners); its neighbours in the list of the key; bits; the number of its
#: different partners; and the number of copies that the side itself has emitted.
HELD, SHOWN, KEY, AFTER, BEFORE, BITS, PARTNERS, EMITTED = range(8)
FIELDS = 8
#: Bits of a row: its copies change at this instant; it is listed in ``concerned``; it was emitted
#: with the answer that it has partners.
_CHANGED, _LISTED, _MET = 1, 2, 4
#: What a side itself emits: nothing; its rows without partners; or all its rows, each with the
#: answer whether it has partners.
NOTHING, WITHOUT, ANSWER = range(3)
#: In place of the other row's id, where a side itself emits: no partner; some partner (ANSWER).
NONE, SOME = -1, -2

#: Words of control: the index of the next change of each side; the phase of the instant and its
#: time; on each side, the number of rows that change and the number of rows in ``concerned``; the
#: current place in ``concerned``; the cursor in the key's list of the other side; 1 if all is done.
NEXT, PHASE, NOW, CHANGING, LISTED, PLACE, CURSOR, DONE = 0, 2, 3, 4, 6, 8, 9, 10
CONTROL = 11
_BEGIN, _LEFT, _RIGHT, _EMIT_LEFT, _EMIT_RIGHT = range(5)
_FIRST = -2  # the cursor stands before the first row of a list
#: Rows are prefetched this many changes ahead, the heads of their lists half as many.
_AHEAD = 16

_WORDS = "int64[::1]"
_TABLE = "int64[:, ::1]"  # a side: a line per row; changes: lines of times, weights and row ids
#: Lines of the output; lines 0 and 1 are the row ids of the left and of the right side.
_TIME, _WEIGHT = 2, 3


@njit(f"void({_TABLE}, {_TABLE}, int64, int64)", nogil=True, cache=True)
def _link(side: Any, heads: Any, port: int, row: int) -> None:
    key = side[row, KEY]
    first = heads[port, key]
    side[row, AFTER], side[row, BEFORE] = first, -1
    if first >= 0:
        side[first, BEFORE] = row
    heads[port, key] = row


@njit(f"void({_TABLE}, {_TABLE}, int64, int64)", nogil=True, cache=True)
def _unlink(side: Any, heads: Any, port: int, row: int) -> None:
    before, after = side[row, BEFORE], side[row, AFTER]
    if before >= 0:
        side[before, AFTER] = after
    else:
        heads[port, side[row, KEY]] = after
    if after >= 0:
        side[after, BEFORE] = before


@njit(f"void({_TABLE}, {_TABLE}, {_TABLE}, int64)", nogil=True, cache=True)
def _fetch(changes: Any, side: Any, heads: Any, i: int) -> None:
    """Prefetches the rows and the list heads that the changes after change ``i`` need; a row is
    prefetched before the heads of its list, since it holds the key."""
    n = changes.shape[1]
    if i + _AHEAD < n:
        prefetch(side.ctypes.data + 8 * FIELDS * changes[2, i + _AHEAD])
    if i + _AHEAD // 2 < n:
        key = side[changes[2, i + _AHEAD // 2], KEY]
        if key >= 0:
            prefetch(heads.ctypes.data + 8 * key)
            prefetch(heads.ctypes.data + 8 * (heads.shape[1] + key))


@njit(f"void({_TABLE}, {_TABLE}, {_TABLE}, {_TABLE}, {_WORDS}, int64)", nogil=True, cache=True)
def _gather(changes: Any, side: Any, heads: Any, concerned: Any, control: Any, port: int) -> None:
    """Applies a side's changes of the instant and lists in ``concerned`` the rows whose number of
    copies changes."""
    i, n, now = control[NEXT + port], 0, control[NOW]
    while i < changes.shape[1] and changes[0, i] == now:
        _fetch(changes, side, heads, i)
        row = changes[2, i]
        side[row, HELD] += changes[1, i]
        if side[row, BITS] & _CHANGED == 0:
            side[row, BITS] |= _CHANGED | _LISTED
            concerned[port, n] = row
            n += 1
        i += 1
    control[NEXT + port] = i
    kept = 0
    for j in range(n):
        row = concerned[port, j]
        if side[row, HELD] == side[row, SHOWN]:
            side[row, BITS] &= _MET
            continue
        if side[row, SHOWN] == 0:
            side[row, BITS] = _CHANGED | _LISTED
            side[row, PARTNERS] = side[row, EMITTED] = 0
            if side[row, KEY] >= 0:
                _link(side, heads, port, row)
        concerned[port, kept] = row
        kept += 1
    control[CHANGING + port] = control[LISTED + port] = kept


@njit(f"void({_TABLE}, {_TABLE}, {_WORDS}, int64, int64, int64)", nogil=True, cache=True)
def _meet(side: Any, concerned: Any, control: Any, port: int, row: int, more: int) -> None:
    """Adds ``more`` to the number of a row's different partners and lists the row in ``concerned``
    if that number changes."""
    if more != 0:
        side[row, PARTNERS] += more
        if side[row, BITS] & _LISTED == 0:
            side[row, BITS] |= _LISTED
            concerned[port, control[LISTED + port]] = row
            control[LISTED + port] += 1


@njit(
    f"int64({_TABLE}, {_TABLE}, {_TABLE}, {_TABLE}, int64, boolean, boolean, int64, int64,"
    f" {_WORDS}, {_TABLE}, int64)",
    nogil=True,
    cache=True,
)
def _pairs(
    mine: Any,
    theirs: Any,
    heads: Any,
    concerned: Any,
    port: int,
    shows: bool,
    counts: bool,
    condition: int,
    descriptor: int,
    control: Any,
    out: Any,
    n: int,
) -> int:
    """Writes the changes of the pairs whose row on side ``port`` changes.

    The pass of the left side (0) leaves out partners that change themselves: the pass of the right
    side finds these pairs. ``shows``: pairs are emitted; ``counts``: the partners of rows are
    counted. ``n`` changes are in ``out`` already; returns the new number. If ``out`` is full, PLACE
    and CURSOR stay where the next call must continue."""
    pair = words(descriptor, 2)
    now = control[NOW]
    while control[PLACE] < control[CHANGING + port]:
        x = concerned[port, control[PLACE]]
        x_was, x_now = mine[x, SHOWN], mine[x, HELD]
        y = control[CURSOR]
        if y == _FIRST:
            y = heads[1 - port, mine[x, KEY]] if mine[x, KEY] >= 0 else -1
        while y >= 0:
            if n == out.shape[1]:
                control[CURSOR] = y
                return n
            following = theirs[y, AFTER]
            changes = theirs[y, BITS] & _CHANGED != 0
            joins = not (port == 0 and changes)
            if joins and condition != 0:
                pair[port], pair[1 - port] = x, y
                joins = call_operator(condition, descriptor, 0) != 0
            if joins:
                y_was, y_now = theirs[y, SHOWN], theirs[y, HELD]
                if shows and x_now * y_now != x_was * y_was:
                    out[port, n], out[1 - port, n] = x, y
                    out[_TIME, n], out[_WEIGHT, n] = now, x_now * y_now - x_was * y_was
                    n += 1
                if counts:
                    # The partners of a row that is new at this instant are counted from 0.
                    x_before, y_before = int(x_was > 0), int(y_was > 0)
                    more = int(y_now > 0) - (y_before if x_before else 0)
                    _meet(mine, concerned, control, port, x, more)
                    more = int(x_now > 0) - (x_before if y_before else 0)
                    _meet(theirs, concerned, control, 1 - port, y, more)
            y = following
        control[PLACE] += 1
        control[CURSOR] = _FIRST
    return n


@njit(f"int64({_TABLE}, {_TABLE}, int64, int64, {_WORDS}, {_TABLE}, int64)", nogil=True, cache=True)
def _emit(side: Any, concerned: Any, port: int, kind: int, control: Any, out: Any, n: int) -> int:
    """Writes the changes that a side itself emits (``kind``) for the rows in ``concerned``; returns
    the new number of changes in ``out``. PLACE stays where the next call must continue."""
    now = control[NOW]
    while control[PLACE] < control[LISTED + port]:
        if n + 2 > out.shape[1]:
            return n
        row = concerned[port, control[PLACE]]
        held, emitted, met = side[row, HELD], side[row, EMITTED], side[row, PARTNERS] > 0
        other = NONE
        if kind == ANSWER:
            answered = side[row, BITS] & _MET != 0
            if answered != met:
                if emitted != 0:
                    out[port, n], out[1 - port, n] = row, SOME if answered else NONE
                    out[_TIME, n], out[_WEIGHT, n] = now, -emitted
                    n += 1
                emitted = 0
                side[row, BITS] ^= _MET
            other = SOME if met else NONE
        elif met:
            held = 0
        if held != emitted:
            out[port, n], out[1 - port, n] = row, other
            out[_TIME, n], out[_WEIGHT, n] = now, held - emitted
            n += 1
        side[row, EMITTED] = held
        control[PLACE] += 1
    return n


@njit(f"void({_TABLE}, {_TABLE}, {_TABLE}, {_WORDS}, int64)", nogil=True, cache=True)
def _close(side: Any, heads: Any, concerned: Any, control: Any, port: int) -> None:
    for j in range(control[LISTED + port]):
        row = concerned[port, j]
        side[row, SHOWN] = side[row, HELD]
        side[row, BITS] &= _MET
        if side[row, HELD] == 0 and side[row, KEY] >= 0:
            _unlink(side, heads, port, row)


@njit(
    f"int64({_TABLE}, {_TABLE}, {_TABLE}, {_TABLE}, {_TABLE}, {_TABLE}, boolean, int64, int64,"
    f" int64, int64, {_WORDS}, {_TABLE})",
    nogil=True,
    cache=True,
)
def join_changes(
    left_changes: Any,
    right_changes: Any,
    left: Any,
    right: Any,
    heads: Any,
    concerned: Any,
    shows: bool,
    of_left: int,
    of_right: int,
    condition: int,
    descriptor: int,
    control: Any,
    out: Any,
) -> int:
    """Writes to ``out`` the changes of the pairs (if ``shows``) and of the rows that each side
    itself emits (``of_left``, ``of_right``: NOTHING, WITHOUT or ANSWER).

    Returns the number of changes written, at most ``out.shape[1]``, which must be at least 2. The
    caller calls again until ``control[DONE]`` is 1. ``left_changes`` and ``right_changes`` have
    lines of times, weights and row ids; ``left`` and ``right`` have FIELDS words for each row.
    ``heads`` holds the first row of each key on both sides; ``concerned`` has room for all rows of
    either side. ``condition`` is the address of the function that tests a pair of equal keys, or 0;
    it reads the pair from the first two words of its ``descriptor``."""
    n = 0
    counts = of_left != NOTHING or of_right != NOTHING
    while True:
        if control[PHASE] == _BEGIN:
            i, j = control[NEXT], control[NEXT + 1]
            more = i < left_changes.shape[1]
            others = j < right_changes.shape[1]
            if not (more or others):
                control[DONE] = 1
                return n
            if more and (not others or left_changes[0, i] < right_changes[0, j]):
                control[NOW] = left_changes[0, i]
            else:
                control[NOW] = right_changes[0, j]
            _gather(left_changes, left, heads, concerned, control, 0)
            _gather(right_changes, right, heads, concerned, control, 1)
            control[PHASE], control[PLACE], control[CURSOR] = _LEFT, 0, _FIRST
        if control[PHASE] == _LEFT:
            n = _pairs(
                left, right, heads, concerned, 0, shows, counts, condition, descriptor, control,
                out, n,
            )  # fmt: skip
            if control[PLACE] < control[CHANGING]:
                return n
            control[PHASE], control[PLACE] = _RIGHT, 0
        if control[PHASE] == _RIGHT:
            n = _pairs(
                right, left, heads, concerned, 1, shows, counts, condition, descriptor, control,
                out, n,
            )  # fmt: skip
            if control[PLACE] < control[CHANGING + 1]:
                return n
            control[PHASE], control[PLACE] = _EMIT_LEFT, 0
        if control[PHASE] == _EMIT_LEFT:
            if of_left != NOTHING:
                n = _emit(left, concerned, 0, of_left, control, out, n)
                if control[PLACE] < control[LISTED]:
                    return n
            control[PHASE], control[PLACE] = _EMIT_RIGHT, 0
        if control[PHASE] == _EMIT_RIGHT:
            if of_right != NOTHING:
                n = _emit(right, concerned, 1, of_right, control, out, n)
                if control[PLACE] < control[LISTED + 1]:
                    return n
            _close(left, heads, concerned, control, 0)
            _close(right, heads, concerned, control, 1)
            control[PHASE] = _BEGIN
