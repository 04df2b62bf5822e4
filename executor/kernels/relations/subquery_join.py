"""The answer of a subquery for each row of a relation, instant by instant (mark and single joins).

Changes are sorted by time. A change of the left side (0) has a row id and a key id; a change of the
subquery (1) has a key id, or for SINGLE the id of its value. The left rows of a key form a linked
list, so that a key that enters or leaves the subquery finds its rows.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit

EXISTS, IN, SINGLE = 0, 1, 2
FALSE, TRUE, NULL = 0, 1, 2  # answers of EXISTS and IN; of SINGLE: value id + 1, 0 for NULL
#: Words of control: rows of the subquery; rows of the subquery with a NULL key; the id of the value
#: of a SINGLE (-1: none); the change to continue with; and 1 if a SINGLE had two rows.
ROWS, NULLS, VALUE, NEXT, TWO = 0, 1, 2, 3, 4
CONTROL = 5

_WORDS = "int64[::1]"
_BYTES = "uint8[::1]"


@njit(f"int64(int64, int64, int64, {_WORDS}, {_WORDS})", nogil=True, cache=True)
def _answer(kind: int, key: int, null: int, count: Any, control: Any) -> int:
    if kind == SINGLE:
        return int(control[VALUE] + 1)
    if null == 0 and count[key] > 0:
        return TRUE
    if kind == EXISTS:
        return FALSE
    unknown = control[ROWS] > 0 if null else control[NULLS] > 0
    return NULL if unknown else FALSE


@njit(f"void(int64, int64, {_WORDS}, {_WORDS}, {_WORDS})", nogil=True, cache=True)
def _link(row: int, key: int, head: Any, after: Any, before: Any) -> None:
    first = head[key]
    after[row], before[row] = first, -1
    if first >= 0:
        before[first] = row
    head[key] = row


@njit(f"void(int64, int64, {_WORDS}, {_WORDS}, {_WORDS})", nogil=True, cache=True)
def _unlink(row: int, key: int, head: Any, after: Any, before: Any) -> None:
    if before[row] >= 0:
        after[before[row]] = after[row]
    else:
        head[key] = after[row]
    if after[row] >= 0:
        before[after[row]] = before[row]


@njit(
    f"int64(int64, boolean, {_WORDS}, {_WORDS}, {_WORDS}, {_WORDS}, {_WORDS}, {_BYTES}, {_WORDS},"
    f" {_WORDS}, {_WORDS}, {_WORDS}, {_WORDS}, {_WORDS}, {_WORDS}, {_WORDS}, {_WORDS}, {_WORDS},"
    f" {_WORDS}, {_WORDS}, {_WORDS}, {_WORDS}, {_WORDS}, {_WORDS}, {_WORDS}, {_WORDS}, {_WORDS})",
    nogil=True,
    cache=True,
)
def answer_rows(
    kind: int,
    constant: bool,
    times: Any,
    weights: Any,
    sides: Any,
    rows: Any,
    keys: Any,
    nulls: Any,
    values: Any,
    held: Any,
    shown: Any,
    answer: Any,
    key_of: Any,
    state: Any,
    after: Any,
    before: Any,
    count: Any,
    head: Any,
    was: Any,
    touched_keys: Any,
    touched: Any,
    held_values: Any,
    control: Any,
    out_rows: Any,
    out_answers: Any,
    out_times: Any,
    out_weights: Any,
) -> int:
    """Writes the changes of the pairs (row, answer); returns the number of changes.

    An instant needs room for two changes for each row id; the call stops before an instant for
    which the output may lack room, and ``control[NEXT]`` is the change to continue with. It also
    stops, with ``control[TWO]`` set, if a SINGLE subquery has more than one row.

    ``state`` of a row: bit 0, the row is in the list of its key; bit 1, its key is NULL; bit 2, the
    current instant touches it. ``was`` is the count of a key before the instant, -1 outside of an
    instant. ``constant``: the subquery is complete before the first left row, so that left rows
    are not kept."""
    out = 0
    i = control[NEXT]
    capacity = held.size
    while i < times.size and out + 2 * capacity <= out_rows.size:
        t = times[i]
        n = 0
        changed_keys = 0
        some, unknown, value = control[ROWS] > 0, control[NULLS] > 0, control[VALUE]
        first = i
        while i < times.size and times[i] == t:
            if sides[i] == 0:
                r = rows[i]
                if state[r] & 1 == 0:
                    key_of[r], held[r], shown[r] = keys[i], 0, 0
                    state[r] = 1 | (2 if nulls[i] else 0)
                    _link(r, keys[i], head, after, before)
                held[r] += weights[i]
                if state[r] & 4 == 0:
                    state[r] |= 4
                    touched[n] = r
                    n += 1
            else:
                control[ROWS] += weights[i]
                k = keys[i]
                if kind == SINGLE:
                    held_values[values[i]] += weights[i]
                elif nulls[i]:
                    control[NULLS] += weights[i]
                else:
                    if was[k] < 0:
                        was[k] = count[k]
                        touched_keys[changed_keys] = k
                        changed_keys += 1
                    count[k] += weights[i]
            i += 1
        if kind == SINGLE:
            if control[ROWS] > 1:
                control[TWO] = 1
                return out
            if value >= 0 and held_values[value] == 0:
                control[VALUE] = -1
            for j in range(first, i):
                if sides[j] != 0 and held_values[values[j]] > 0:
                    control[VALUE] = values[j]
            everything = control[VALUE] != value
        else:
            turned = (control[ROWS] > 0) != some or (control[NULLS] > 0) != unknown
            everything = kind == IN and turned
        if everything:
            for r in range(capacity):
                if state[r] & 5 == 1:
                    state[r] |= 4
                    touched[n] = r
                    n += 1
        for j in range(changed_keys):
            k = touched_keys[j]
            if (was[k] > 0) != (count[k] > 0):
                r = head[k]
                while r >= 0:
                    if state[r] & 4 == 0:
                        state[r] |= 4
                        touched[n] = r
                        n += 1
                    r = after[r]
            was[k] = -1
        for j in range(n):
            r = touched[j]
            state[r] &= 3
            now = _answer(kind, key_of[r], state[r] & 2, count, control)
            gone, come = shown[r], held[r]
            if now == answer[r]:
                gone, come = 0, held[r] - shown[r]
            if gone != 0:
                out_rows[out], out_answers[out] = r, answer[r]
                out_times[out], out_weights[out] = t, -gone
                out += 1
            if come != 0:
                out_rows[out], out_answers[out] = r, now
                out_times[out], out_weights[out] = t, come
                out += 1
            shown[r], answer[r] = held[r], now
            if held[r] == 0 or constant:
                _unlink(r, key_of[r], head, after, before)
                state[r] = 0
    control[NEXT] = i
    return out
