"""DISTINCT, EXCEPT and INTERSECT of changing relations, from the multiplicities of equal rows in
the inputs: a function for ``kernels.relations.group_changes``."""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.lib.memory import as_u8, integer_at, words
from cql.executor.kernels.morsel_layout import DONE

DISTINCT, EXCEPT, INTERSECT, EXCEPT_ALL, INTERSECT_ALL = range(5)

# Descriptor.
KIND = 0
CHANGES = 1  # rows of the piece
GROUPS = 2
MADE = 3  # changes of the result
SIDE_BYTES = 4  # bytes of a side; 0: there is one side
# Addresses, per row of the piece.
TIMES = 5
WEIGHTS = 6
OWNERS = 7
SIDES = 8  # 0 or 1
TOUCHED = 9  # scratch
# Addresses, per group.
LEFT = 10  # multiplicity in the left input
RIGHT = 11
SHOWN = 12  # multiplicity in the result
LIVE = 13
MARKED = 14  # scratch: 0
# Addresses, per change of the result.
OUT_OWNER = 15
OUT_TIME = 16
OUT_WEIGHT = 17
WORDS = 18


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def multiplicity(kind: int, left: int, right: int) -> int:
    """The multiplicity in the result of a row with multiplicities ``left`` and ``right`` in the
    inputs. DISTINCT has the left input only."""
    if kind == DISTINCT:
        return int(left > 0)
    if kind == EXCEPT:
        return int(left > 0 and right <= 0)
    if kind == INTERSECT:
        return int(left > 0 and right > 0)
    if kind == EXCEPT_ALL:
        return max(left - max(right, 0), 0)
    return max(min(left, right), 0)


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def multiplicities(desc: Any, morsel: Any) -> Any:
    d = words(desc, WORDS)
    n, groups, out, i = d[CHANGES], d[GROUPS], 0, 0
    times, weights, owners = words(d[TIMES], n), words(d[WEIGHTS], n), words(d[OWNERS], n)
    left, right = words(d[LEFT], groups), words(d[RIGHT], groups)
    shown, live = words(d[SHOWN], groups), words(d[LIVE], groups)
    marked, touched = as_u8(d[MARKED], groups), words(d[TOUCHED], n)
    out_owner, out_time = words(d[OUT_OWNER], n), words(d[OUT_TIME], n)
    out_weight = words(d[OUT_WEIGHT], n)
    while i < n:
        time, many = times[i], 0
        while i < n and times[i] == time:
            k = owners[i]
            if d[SIDE_BYTES] == 0 or integer_at(d[SIDES], d[SIDE_BYTES], i) == 0:
                left[k] += weights[i]
            else:
                right[k] += weights[i]
            if marked[k] == 0:
                marked[k] = 1
                touched[many] = k
                many += 1
            i += 1
        for j in range(many):
            k = touched[j]
            marked[k] = 0
            live[k] = left[k] != 0 or right[k] != 0
            now = multiplicity(d[KIND], left[k], right[k])
            if now != shown[k]:
                out_owner[out], out_time[out], out_weight[out] = k, time, now - shown[k]
                shown[k] = now
                out += 1
    d[MADE] = out
    return DONE
