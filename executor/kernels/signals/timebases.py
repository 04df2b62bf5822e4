"""The timebases of a store: entering one, and that of a segment at another rate."""

from __future__ import annotations

import math

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import lines, words
from cql.executor.kernels.signals.kept import clock
from cql.executor.kernels.signals.layout import (
    FULL,
    KIND_BITS,
    MOST_TIMEBASES,
    NO_TIMEBASE,
    OWNER,
    SEGMENT,
    START,
    STORE,
    TIMEBASES_AT,
    USED_TIMEBASES,
)
from cql.executor.kernels.signals.segments import lock, place, unlock, use_timebase
from cql.executor.kernels.signals.timebase import (
    MOST_RATE,
    ORIGIN,
    PER,
    PHASE,
    RATE,
    TIMEBASE,
    USES,
)


@njit("int64(int64, int64, int64, int64, int64)", nogil=True, cache=True)
def enter(s: int, rate: int, per: int, origin: int, phase: int) -> int:
    """The number of a timebase in the store at ``s``, which gets a line if it has none; -1: no
    room. The caller uses it until ``leave``.

    The newest are looked at first, since a signal goes on in its last one."""
    q = words(s, STORE)
    lock(s)
    table = lines(q[TIMEBASES_AT], q[MOST_TIMEBASES], TIMEBASE)
    at, free = q[USED_TIMEBASES] - 1, q[USED_TIMEBASES]
    while at >= 0:
        base = table[at]
        at_rate = base[RATE] == rate and base[PER] == per
        if base[USES] == 0:
            free = at
        elif at_rate and base[ORIGIN] == origin and base[PHASE] == phase:
            break
        at -= 1
    if at < 0 and free < q[MOST_TIMEBASES]:
        at = free
        table[at, RATE], table[at, PER] = rate, per
        table[at, ORIGIN], table[at, PHASE], table[at, USES] = origin, phase, 0
        q[USED_TIMEBASES] = max(q[USED_TIMEBASES], at + 1)
    if at < 0:
        q[FULL] = NO_TIMEBASE
    else:
        use_timebase(q, at << KIND_BITS, 1)
    unlock(s)
    return int(at)


@njit("void(int64, int64)", nogil=True, cache=True)
def leave(s: int, number: int) -> None:
    """The caller of ``enter`` no longer uses the timebase."""
    lock(s)
    use_timebase(words(s, STORE), number << KIND_BITS, -1)
    unlock(s)


@njit("boolean(int64, int64, int64, int64)", nogil=True, cache=True)
def place_at_rate(h: int, g: int, up: int, down: int) -> bool:
    """Puts segment ``h`` where ``g`` begins, at ``up`` / ``down`` times its rate. False: no room
    for another timebase.

    The phase is exact, unless RATE or PER would be above MOST_RATE for it: then it is rounded to a
    nanosecond."""
    line = words(g, SEGMENT)
    base = words(clock(g), TIMEBASE)
    rate, per, origin = base[RATE] * up, base[PER] * down, base[ORIGIN]
    since = line[START] * base[PER] + base[PHASE]  # times ``up``: in units of 1 / rate seconds
    rest = since % per * up
    start, phase = since // per * up + rest // per, rest % per
    common = math.gcd(math.gcd(rate, per), phase)
    if max(rate, per) // common > MOST_RATE:
        origin, phase = origin + int(1e9 * phase / rate), 0
        common = math.gcd(rate, per)
    at = enter(line[OWNER], rate // common, per // common, origin, phase // common)
    if at < 0:
        return False
    place(h, at << KIND_BITS, start)
    leave(line[OWNER], at)
    return True
