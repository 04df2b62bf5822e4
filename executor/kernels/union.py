"""The native function of the pass-through union (out-of-order paper §5.4 and appendix).

Rows pass by reference and nothing is stored but the last punctuation of each input and attribute;
the output's punctuation is the minimum. An input that has ended holds nothing back.
"""

from __future__ import annotations

from typing import Any

from numba import cfunc

from cql.executor.kernels.memory import words
from cql.executor.unit import (
    DONE,
    EPOCH,
    HEADER,
    INFINITY,
    OUT,
    PORT,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
    SERIAL,
    STRAGGLER_ADDRESS,
    STRAGGLERS,
)

# Descriptor: columns, ports, attributes, rows, "all ended" sent; then per attribute its column,
# what was last sent, and the furthest that any input has come; then the watermark of (port,
# attribute), then whether each port has ended.
COLUMNS = 0
PORTS = 1
ATTRIBUTES = 2
ROWS_SEEN = 3
ENDED = 4
FIRST = 5


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def union(desc: Any, unit: Any) -> Any:
    d = words(desc, FIRST)
    columns = d[COLUMNS]
    ports = d[PORTS]
    attributes = d[ATTRIBUTES]
    d = words(desc, FIRST + 3 * attributes + ports * attributes + ports)
    u = words(unit, HEADER + 2 * columns)
    o = words(u[OUT], HEADER + 2 * columns)
    o[ROWS] = u[ROWS]
    o[SERIAL] = u[SERIAL]
    o[SEQUENCE] = u[SEQUENCE]
    o[EPOCH] = u[EPOCH]
    o[STRAGGLERS] = u[STRAGGLERS]
    o[STRAGGLER_ADDRESS] = u[STRAGGLER_ADDRESS]
    for k in range(HEADER, HEADER + 2 * columns):
        o[k] = u[k]
    d[ROWS_SEEN] += u[ROWS]
    sent = FIRST + attributes
    furthest = sent + attributes
    marks = furthest + attributes
    done = marks + ports * attributes
    port = u[PORT]
    arrived = words(u[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    leaving = words(o[PUNCTUATION_ADDRESS], 256)
    for p in range(u[PUNCTUATIONS]):
        attribute = arrived[PUNCTUATION_WORDS * p]
        value = arrived[PUNCTUATION_WORDS * p + 1]
        if arrived[PUNCTUATION_WORDS * p + 2] >= 0:
            continue
        if attribute < 0:
            d[done + port] = 1
        for a in range(attributes):
            if attribute < 0 or d[FIRST + a] == attribute:
                at = marks + port * attributes + a
                d[at] = max(d[at], INFINITY if attribute < 0 else value)
                if attribute >= 0:
                    d[furthest + a] = max(d[furthest + a], value)
    n = 0
    ended = 0
    for q in range(ports):
        ended += d[done + q]
    if ended == ports:
        if d[ENDED] == 0:
            d[ENDED] = 1
            for a in range(attributes):
                if d[furthest + a] > d[sent + a]:
                    leaving[PUNCTUATION_WORDS * n] = d[FIRST + a]
                    leaving[PUNCTUATION_WORDS * n + 1] = d[furthest + a]
                    leaving[PUNCTUATION_WORDS * n + 2] = -1
                    n += 1
            leaving[PUNCTUATION_WORDS * n] = -1
            leaving[PUNCTUATION_WORDS * n + 1] = INFINITY
            leaving[PUNCTUATION_WORDS * n + 2] = -1
            n += 1
    else:
        for a in range(attributes):
            low = INFINITY
            for q in range(ports):
                low = min(low, d[marks + q * attributes + a])
            if low > d[sent + a] and low < INFINITY:
                d[sent + a] = low
                leaving[PUNCTUATION_WORDS * n] = d[FIRST + a]
                leaving[PUNCTUATION_WORDS * n + 1] = low
                leaving[PUNCTUATION_WORDS * n + 2] = -1
                n += 1
    o[PUNCTUATIONS] = n
    return DONE
