"""The native function of the pass-through union (out-of-order paper §5.4 and appendix).

Rows pass by reference and nothing is stored but the last punctuation of each input and attribute;
the output's punctuation is the minimum. An input that has ended holds nothing back, nor does one
that is idle: rows that it gives later below what has been promised meanwhile go on as stragglers.
"""

from __future__ import annotations

from typing import Any

from numba import cfunc, njit

from cql.executor.kernels.memory import as_u8, integer_at, words
from cql.executor.kernels.passing import pass_rows, send
from cql.executor.unit import (
    DONE,
    END_OF_INPUT,
    HEADER,
    IDLE,
    INFINITY,
    OUT,
    PORT,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    STRAGGLER_ADDRESS,
    STRAGGLER_WORDS,
    STRAGGLERS,
)

# Descriptor: a header; per attribute its column, the bytes of a value, the last promise sent and
# the furthest that any input has come; per port whether it has ended, whether it is idle and its
# rows that came too late for that; then the watermark of (port, attribute).
COLUMNS = 0
PORTS = 1
ATTRIBUTES = 2
ROWS_SEEN = 3
ENDED = 4  # the end was sent
IDLING = 5  # what was sent last: all inputs are idle (1), or not
RECORDS = 6  # address of room for STRAGGLER_WORDS per row and attribute
FIRST = 7
OF_ATTRIBUTE = 4
COLUMN, SIZE, SENT, FURTHEST = range(OF_ATTRIBUTE)
OF_PORT = 3
OVER, SILENT, TOO_LATE = range(OF_PORT)


@njit("int64(int64, int64, int64, int64)", cache=True)
def _mark_late(desc: int, unit: int, columns: int, port: int) -> int:
    """Rows of a port that was idle, below what has been promised: stragglers, whose own watermark
    is that promise. Writes all records of the unit anew; returns how many there are."""
    d = words(desc, FIRST)
    attributes, ports = d[ATTRIBUTES], d[PORTS]
    d = words(desc, FIRST + OF_ATTRIBUTE * attributes + (OF_PORT + attributes) * ports)
    u = words(unit, HEADER + 2 * columns)
    n = u[ROWS]
    old = words(u[STRAGGLER_ADDRESS], STRAGGLER_WORDS * u[STRAGGLERS])
    new = words(d[RECORDS], STRAGGLER_WORDS * n * attributes)
    at = FIRST + OF_ATTRIBUTE * attributes + OF_PORT * port
    first = FIRST + OF_ATTRIBUTE * attributes + OF_PORT * ports + port * attributes
    seen, made = 0, 0
    for i in range(n):
        late = False
        for a in range(attributes):
            column, sent = d[FIRST + OF_ATTRIBUTE * a + COLUMN], d[FIRST + OF_ATTRIBUTE * a + SENT]
            own = sent if d[first + a] < sent else -INFINITY
            if own != -INFINITY:
                valid = as_u8(u[HEADER + 2 * column + 1], n)[i] != 0
                size = d[FIRST + OF_ATTRIBUTE * a + SIZE]
                if not valid or integer_at(u[HEADER + 2 * column], size, i) >= own:
                    own = -INFINITY
            before = -INFINITY
            for e in range(seen, u[STRAGGLERS]):
                if old[STRAGGLER_WORDS * e] != i:
                    break
                if old[STRAGGLER_WORDS * e + 1] == column:
                    before = old[STRAGGLER_WORDS * e + 2]
            late |= own > before
            own = max(own, before)
            if own != -INFINITY:
                new[STRAGGLER_WORDS * made] = i
                new[STRAGGLER_WORDS * made + 1] = column
                new[STRAGGLER_WORDS * made + 2] = own
                made += 1
        while seen < u[STRAGGLERS] and old[STRAGGLER_WORDS * seen] == i:
            seen += 1
        d[at + TOO_LATE] += late
    return made


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def union(desc: Any, unit: Any) -> Any:
    d = words(desc, FIRST)
    columns, ports, attributes = d[COLUMNS], d[PORTS], d[ATTRIBUTES]
    d = words(desc, FIRST + OF_ATTRIBUTE * attributes + (OF_PORT + attributes) * ports)
    u = words(unit, HEADER + 2 * columns)
    o = words(u[OUT], HEADER + 2 * columns)
    pass_rows(u, o, HEADER + 2 * columns)
    o[STRAGGLERS] = u[STRAGGLERS]
    o[STRAGGLER_ADDRESS] = u[STRAGGLER_ADDRESS]
    d[ROWS_SEEN] += u[ROWS]
    port = u[PORT]
    of_ports = FIRST + OF_ATTRIBUTE * attributes
    marks = of_ports + OF_PORT * ports
    behind = False
    for a in range(attributes):
        behind |= d[marks + port * attributes + a] < d[FIRST + OF_ATTRIBUTE * a + SENT]
    if behind and u[ROWS] > 0:
        o[STRAGGLERS] = _mark_late(desc, unit, columns, port)
        o[STRAGGLER_ADDRESS] = d[RECORDS]
    arrived = words(u[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    for p in range(u[PUNCTUATIONS]):
        attribute = arrived[PUNCTUATION_WORDS * p]
        value = arrived[PUNCTUATION_WORDS * p + 1]
        if arrived[PUNCTUATION_WORDS * p + 2] >= 0:
            continue
        if attribute == IDLE:
            d[of_ports + OF_PORT * port + SILENT] = value
            continue
        if attribute == END_OF_INPUT:
            d[of_ports + OF_PORT * port + OVER] = 1
        for a in range(attributes):
            if attribute == END_OF_INPUT or d[FIRST + OF_ATTRIBUTE * a + COLUMN] == attribute:
                at = marks + port * attributes + a
                d[at] = max(d[at], INFINITY if attribute == END_OF_INPUT else value)
                if attribute != END_OF_INPUT:
                    furthest = FIRST + OF_ATTRIBUTE * a + FURTHEST
                    d[furthest] = max(d[furthest], value)
    leaving = words(o[PUNCTUATION_ADDRESS], 256)
    n, ended, idle = 0, 0, 0
    for q in range(ports):
        ended += d[of_ports + OF_PORT * q + OVER]
        if d[of_ports + OF_PORT * q + OVER] == 0:
            idle += d[of_ports + OF_PORT * q + SILENT]
    if ended == ports:
        if d[ENDED] == 0:
            d[ENDED] = 1
            for a in range(attributes):
                at = FIRST + OF_ATTRIBUTE * a
                if d[at + FURTHEST] > d[at + SENT]:
                    n = send(leaving, n, d[at + COLUMN], d[at + FURTHEST])
            n = send(leaving, n, END_OF_INPUT, INFINITY)
    else:
        for a in range(attributes):
            low = INFINITY
            for q in range(ports):
                if d[of_ports + OF_PORT * q + SILENT] == 0:
                    low = min(low, d[marks + q * attributes + a])
            sent = FIRST + OF_ATTRIBUTE * a + SENT
            if low > d[sent] and low < INFINITY:
                d[sent] = low
                n = send(leaving, n, d[FIRST + OF_ATTRIBUTE * a + COLUMN], low)
        idling = 1 if idle == ports - ended else 0
        if idling != d[IDLING]:
            d[IDLING] = idling
            n = send(leaving, n, IDLE, idling)
    o[PUNCTUATIONS] = n
    return DONE
