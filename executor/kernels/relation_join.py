"""The join of two changing relations, instant by instant.

Changes of each side come in the order of their times, with the id of their row; a row has the id of
its key. Rows of a key are a list on each side. At an instant the pairs change whose left or right
row does: of a pair, ``left * right`` copies after the instant less those before it, which is
``dL x R_before + L_after x dR`` (Gupta and Mumick, "Maintenance of Materialized Views", 1995,
section 3.1), with pairs of two rows that both change told once. A side may also tell of each of its
rows whether it has partners.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from cql.executor.kernels.memory import call_operator, words

#: Arrays of a side, by the id of a row: copies after and before the instant, the id of its key (-1:
#: NULL, which has no partners), its neighbours in the list of that, bits, how many different
#: partners it has, and how many copies have been told; and which rows this instant concerns.
HELD, SHOWN, KEY, AFTER, BEFORE, BITS, PARTNERS, TOLD, CONCERNED = range(9)
FIELDS = 9
#: Bits: its copies change, it is concerned, it was told to have partners.
_CHANGED, _LISTED, _MET = 1, 2, 4
#: What a side tells of a row: nothing, it when it has no partner, it when it has one, or it with
#: the answer.
NOTHING, WITHOUT, WITH, ANSWER = range(4)
#: In the place of the other row, in what a side tells: no partner, or (ANSWER) some.
NONE, SOME = -1, -2

#: Words of control: the next change of each side, where an instant stands and which it is; how many
#: rows change on each side, and how many are concerned; the place in these, and in the list of the
#: other side; whether all is done.
NEXT, PHASE, NOW, CHANGING, LISTED, PLACE, CURSOR, DONE = 0, 2, 3, 4, 6, 8, 9, 10
CONTROL = 11
_BEGIN, _LEFT, _RIGHT, _TELL_LEFT, _TELL_RIGHT = range(5)
_FIRST = -2  # the cursor stands before a list

_WORDS = "int64[::1]"
_SIDE = f"UniTuple({_WORDS}, {FIELDS})"
_CHANGES = f"UniTuple({_WORDS}, 3)"  # times, weights, ids
_OUT = f"UniTuple({_WORDS}, 4)"  # left, right, times, weights


@njit(f"void({_SIDE}, {_WORDS}, int64)", nogil=True, cache=True)
def _link(side: Any, head: Any, row: int) -> None:
    key = side[KEY][row]
    first = head[key]
    side[AFTER][row], side[BEFORE][row] = first, -1
    if first >= 0:
        side[BEFORE][first] = row
    head[key] = row


@njit(f"void({_SIDE}, {_WORDS}, int64)", nogil=True, cache=True)
def _unlink(side: Any, head: Any, row: int) -> None:
    before, after = side[BEFORE][row], side[AFTER][row]
    if before >= 0:
        side[AFTER][before] = after
    else:
        head[side[KEY][row]] = after
    if after >= 0:
        side[BEFORE][after] = before


@njit(f"void({_CHANGES}, {_SIDE}, {_WORDS}, {_WORDS}, int64)", nogil=True, cache=True)
def _gather(changes: Any, side: Any, head: Any, control: Any, port: int) -> None:
    """Takes a side's changes of the instant; lists the rows whose copies change."""
    times, weights, ids = changes
    i, n = control[NEXT + port], 0
    while i < times.size and times[i] == control[NOW]:
        row = ids[i]
        side[HELD][row] += weights[i]
        if side[BITS][row] & _CHANGED == 0:
            side[BITS][row] |= _CHANGED | _LISTED
            side[CONCERNED][n] = row
            n += 1
        i += 1
    control[NEXT + port] = i
    kept = 0
    for j in range(n):
        row = side[CONCERNED][j]
        if side[HELD][row] == side[SHOWN][row]:
            side[BITS][row] &= _MET
            continue
        if side[SHOWN][row] == 0:
            side[BITS][row] = _CHANGED | _LISTED
            side[PARTNERS][row] = side[TOLD][row] = 0
            if side[KEY][row] >= 0:
                _link(side, head, row)
        side[CONCERNED][kept] = row
        kept += 1
    control[CHANGING + port] = control[LISTED + port] = kept


@njit(f"void({_SIDE}, {_WORDS}, int64, int64, int64)", nogil=True, cache=True)
def _meet(side: Any, control: Any, port: int, row: int, more: int) -> None:
    """The row has so many different partners more."""
    if more != 0:
        side[PARTNERS][row] += more
        if side[BITS][row] & _LISTED == 0:
            side[BITS][row] |= _LISTED
            side[CONCERNED][control[LISTED + port]] = row
            control[LISTED + port] += 1


@njit(
    f"int64({_SIDE}, {_SIDE}, {_WORDS}, int64, boolean, int64, int64, {_WORDS}, {_OUT}, int64)",
    nogil=True,
    cache=True,
)
def _pairs(
    mine: Any,
    theirs: Any,
    head: Any,
    port: int,
    shows: bool,
    condition: int,
    descriptor: int,
    control: Any,
    out: Any,
    n: int,
) -> int:
    """The pairs of the rows of side ``port`` that change; ``head`` leads to their partners. Those
    of the left (0) leave out partners that change: these see them. Returns how many are told; the
    cursor stays where there was no more room."""
    pair = words(descriptor, 2)
    while control[PLACE] < control[CHANGING + port]:
        x = mine[CONCERNED][control[PLACE]]
        was, now = mine[SHOWN][x], mine[HELD][x]
        fresh = was == 0
        y = control[CURSOR]
        if y == _FIRST:
            y = head[mine[KEY][x]] if mine[KEY][x] >= 0 else -1
        while y >= 0:
            if n == out[0].size:
                control[CURSOR] = y
                return n
            following = theirs[AFTER][y]
            changes = theirs[BITS][y] & _CHANGED != 0
            if not (port == 0 and changes):
                pair[port], pair[1 - port] = x, y
                if condition == 0 or call_operator(condition, descriptor, 0) != 0:
                    y_was, y_now = theirs[SHOWN][y], theirs[HELD][y]
                    if shows and now * y_now != was * y_was:
                        out[port][n], out[1 - port][n] = x, y
                        out[2][n], out[3][n] = control[NOW], now * y_now - was * y_was
                        n += 1
                    come = int(now > 0) - int(was > 0)
                    y_come = int(y_now > 0) - int(y_was > 0)
                    # Partners of a row that is new are counted here, from none on.
                    _meet(mine, control, port, x, int(y_now > 0) if fresh else y_come)
                    if not (changes and y_was == 0):
                        _meet(theirs, control, 1 - port, y, come)
                    else:
                        _meet(theirs, control, 1 - port, y, int(now > 0))
            y = following
        control[PLACE] += 1
        control[CURSOR] = _FIRST
    return n


@njit(f"int64({_SIDE}, int64, int64, {_WORDS}, {_OUT}, int64)", nogil=True, cache=True)
def _tell(side: Any, port: int, kind: int, control: Any, out: Any, n: int) -> int:
    """What a side says of the rows that are concerned."""
    while control[PLACE] < control[LISTED + port]:
        if n + 2 > out[0].size:
            return n
        row = side[CONCERNED][control[PLACE]]
        held, told, met = side[HELD][row], side[TOLD][row], side[PARTNERS][row] > 0
        other = NONE
        if kind == ANSWER:
            answered = side[BITS][row] & _MET != 0
            if answered != met:
                if told != 0:
                    out[port][n], out[1 - port][n] = row, SOME if answered else NONE
                    out[2][n], out[3][n] = control[NOW], -told
                    n += 1
                told = 0
                side[BITS][row] ^= _MET
            other = SOME if met else NONE
        elif met != (kind == WITH):
            held = 0
        if held != told:
            out[port][n], out[1 - port][n] = row, other
            out[2][n], out[3][n] = control[NOW], held - told
            n += 1
        side[TOLD][row] = held
        control[PLACE] += 1
    return n


@njit(f"void({_SIDE}, {_WORDS}, {_WORDS}, int64)", nogil=True, cache=True)
def _close(side: Any, head: Any, control: Any, port: int) -> None:
    for j in range(control[LISTED + port]):
        row = side[CONCERNED][j]
        side[SHOWN][row] = side[HELD][row]
        side[BITS][row] &= _MET
        if side[HELD][row] == 0 and side[KEY][row] >= 0:
            _unlink(side, head, row)


@njit(
    f"int64({_CHANGES}, {_CHANGES}, {_SIDE}, {_SIDE}, {_WORDS}, {_WORDS}, boolean, int64, int64,"
    f" int64, int64, {_WORDS}, {_OUT})",
    nogil=True,
    cache=True,
)
def join_changes(
    left_changes: Any,
    right_changes: Any,
    left: Any,
    right: Any,
    left_head: Any,
    right_head: Any,
    shows: bool,
    of_left: int,
    of_right: int,
    condition: int,
    descriptor: int,
    control: Any,
    out: Any,
) -> int:
    """Changes of pairs (``shows``), and of what each side tells of its rows (``of_left``,
    ``of_right``); returns how many, at most as many as ``out`` has room for (two at least). To be
    called again until ``control[DONE]``. ``condition`` is the address of what is asked of a pair
    besides equal keys, or 0: it finds the pair in the first two words of its ``descriptor``."""
    n = 0
    while True:
        if control[PHASE] == _BEGIN:
            i, j = control[NEXT], control[NEXT + 1]
            more = i < left_changes[0].size
            others = j < right_changes[0].size
            if not (more or others):
                control[DONE] = 1
                return n
            if more and (not others or left_changes[0][i] < right_changes[0][j]):
                control[NOW] = left_changes[0][i]
            else:
                control[NOW] = right_changes[0][j]
            _gather(left_changes, left, left_head, control, 0)
            _gather(right_changes, right, right_head, control, 1)
            control[PHASE], control[PLACE], control[CURSOR] = _LEFT, 0, _FIRST
        if control[PHASE] == _LEFT:
            n = _pairs(left, right, right_head, 0, shows, condition, descriptor, control, out, n)
            if control[PLACE] < control[CHANGING]:
                return n
            control[PHASE], control[PLACE] = _RIGHT, 0
        if control[PHASE] == _RIGHT:
            n = _pairs(right, left, left_head, 1, shows, condition, descriptor, control, out, n)
            if control[PLACE] < control[CHANGING + 1]:
                return n
            control[PHASE], control[PLACE] = _TELL_LEFT, 0
        if control[PHASE] == _TELL_LEFT:
            if of_left != NOTHING:
                n = _tell(left, 0, of_left, control, out, n)
                if control[PLACE] < control[LISTED]:
                    return n
            control[PHASE], control[PLACE] = _TELL_RIGHT, 0
        if control[PHASE] == _TELL_RIGHT:
            if of_right != NOTHING:
                n = _tell(right, 1, of_right, control, out, n)
                if control[PLACE] < control[LISTED + 1]:
                    return n
            _close(left, left_head, control, 0)
            _close(right, right_head, control, 1)
            control[PHASE] = _BEGIN
