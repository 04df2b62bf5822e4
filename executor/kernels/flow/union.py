"""The native function of the pass-through union (out-of-order paper §5.4 and appendix).

Rows pass by reference. The only state is the watermark of each input and attribute; the output's
watermark is the minimum over the inputs. An input that has ended or is idle does not count. If an
idle input later gives rows below the output's watermark, these rows pass as late rows. With
group-wise punctuation, each value of a column also has its own watermark (``union_values``).
"""

from __future__ import annotations

from typing import Any

from numba import int64

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.drive.passing import pass_rows, send
from cql.executor.kernels.flow import union_values
from cql.executor.kernels.ingest.value_numbers import value_at
from cql.executor.kernels.lib.memory import as_u8, integer_at, words
from cql.executor.kernels.morsel_layout import (
    CURSOR,
    DETAIL,
    DETAIL_ROW,
    DONE,
    END_OF_INPUT,
    HEADER,
    IDLE,
    INFINITY,
    LATE_ROW_ADDRESS,
    LATE_ROW_WORDS,
    LATE_ROWS,
    NEED,
    NEVER,
    OUT,
    OUTPUT_FULL,
    PHASE,
    PORT,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
)

# Descriptor: a header; per attribute its column, the bytes of a value, the last punctuation sent
# and the highest watermark of any input; per port whether it has ended, whether it is idle and the
# number of its rows below the output's watermark; then the watermark of each (port, attribute).
COLUMNS = 0
PORTS = 1
ATTRIBUTES = 2
ROWS_SEEN = 3
ENDED = 4  # 1: the end was sent
IDLING = 5  # the state of the output sent last: 1: idle, as all inputs are; 0: not idle
RECORDS = 6  # address of room for LATE_ROW_WORDS per row and attribute
VALUES = 7  # address of the block of single values (``union_values``); 0: none
VALUES_ON = 8  # the attribute on which the single values progress
FIRST = 9
OF_ATTRIBUTE = 4
COLUMN, SIZE, SENT, FURTHEST = range(OF_ATTRIBUTE)
OF_PORT = 3
OVER, SILENT, TOO_LATE = range(OF_PORT)

#: The remaining work of a morsel: all of it; the punctuation of the values from CURSOR on.
_BEGIN, _LOOK = range(2)


@njit("UniTuple(int64, 2)(int64, int64, int64, int64)", cache=True)
def _of_value(values: int, morsel: int, port: int, row: int) -> Any:
    """(the port's watermark of the value of a row, the output's watermark of that value)."""
    b = words(values, union_values.HEADER_WORDS)
    at = HEADER + 2 * b[union_values.BY]
    u = words(morsel, at + 2)
    null = int64(as_u8(u[at + 1], row + 1)[row] == 0)
    key = 0 if null != 0 else value_at(u[at], b[union_values.SIZE], row)
    found = union_values.find(values, key, null)
    if found < 0:
        return NEVER, NEVER
    entry = union_values.entry_at(values, found)
    return entry[union_values.OWN + port], entry[union_values.PUNCTUATED]


@njit("int64(int64, int64, int64, int64)", cache=True)
def _mark_late(desc: int, morsel: int, columns: int, port: int) -> int:
    """Marks rows of a once idle port below the output's watermark as late rows; the output's
    watermark becomes their row watermark. Writes all late-row records of the morsel to RECORDS;
    returns their number."""
    d = words(desc, FIRST)
    attributes, ports = d[ATTRIBUTES], d[PORTS]
    d = words(desc, FIRST + OF_ATTRIBUTE * attributes + (OF_PORT + attributes) * ports)
    u = words(morsel, HEADER + 2 * columns)
    n = u[ROWS]
    old = words(u[LATE_ROW_ADDRESS], LATE_ROW_WORDS * u[LATE_ROWS])
    new = words(d[RECORDS], LATE_ROW_WORDS * n * attributes)
    at = FIRST + OF_ATTRIBUTE * attributes + OF_PORT * port
    first = FIRST + OF_ATTRIBUTE * attributes + OF_PORT * ports + port * attributes
    seen, made = 0, 0
    for i in range(n):
        late = False
        for a in range(attributes):
            column, sent = d[FIRST + OF_ATTRIBUTE * a + COLUMN], d[FIRST + OF_ATTRIBUTE * a + SENT]
            known = d[first + a]
            if d[VALUES] != 0 and a == d[VALUES_ON]:
                of_port, punctuated = _of_value(d[VALUES], morsel, port, i)
                known, sent = max(known, of_port), max(sent, punctuated)
            own = sent if known < sent else -INFINITY
            if own != -INFINITY:
                valid = as_u8(u[HEADER + 2 * column + 1], n)[i] != 0
                size = d[FIRST + OF_ATTRIBUTE * a + SIZE]
                if not valid or integer_at(u[HEADER + 2 * column], size, i) >= own:
                    own = -INFINITY
            before = -INFINITY
            for e in range(seen, u[LATE_ROWS]):
                if old[LATE_ROW_WORDS * e] != i:
                    break
                if old[LATE_ROW_WORDS * e + 1] == column:
                    before = old[LATE_ROW_WORDS * e + 2]
            late |= own > before
            own = max(own, before)
            if own != -INFINITY:
                new[LATE_ROW_WORDS * made] = i
                new[LATE_ROW_WORDS * made + 1] = column
                new[LATE_ROW_WORDS * made + 2] = own
                made += 1
        while seen < u[LATE_ROWS] and old[LATE_ROW_WORDS * seen] == i:
            seen += 1
        d[at + TOO_LATE] += late
    return made


@njit("boolean(int64)", cache=True)
def _compare(desc: int) -> bool:
    """Copies the watermarks of the inputs and of the output to the block of values; returns whether
    the watermark of an input has changed."""
    d = words(desc, FIRST)
    ports, attributes, values, k = d[PORTS], d[ATTRIBUTES], d[VALUES], d[VALUES_ON]
    of_ports = FIRST + OF_ATTRIBUTE * attributes
    watermarks = of_ports + OF_PORT * ports
    d = words(desc, watermarks + ports * attributes)
    words(values, union_values.HEADER_WORDS)[union_values.SENT] = d[FIRST + OF_ATTRIBUTE * k + SENT]
    known = union_values.ports_of(values)
    changed = False
    for q in range(ports):
        mark = (
            INFINITY
            if d[of_ports + OF_PORT * q + OVER] != 0
            else d[watermarks + q * attributes + k]
        )
        holds = INFINITY if d[of_ports + OF_PORT * q + SILENT] != 0 else mark
        at = union_values.OF_PORT * q
        changed |= mark != known[at + union_values.MARK]
        changed |= holds != known[at + union_values.HOLDS]
        known[at + union_values.MARK], known[at + union_values.HOLDS] = mark, holds
    return changed


@njit("void(int64, int64)", cache=True)
def _take_values(values: int, morsel: int) -> None:
    """Takes the group-wise punctuation of a morsel."""
    u, b = words(morsel, HEADER), words(values, union_values.HEADER_WORDS)
    arrived = words(u[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    for p in range(0, PUNCTUATION_WORDS * u[PUNCTUATIONS], PUNCTUATION_WORDS):
        if arrived[p] == b[union_values.COLUMN] and arrived[p + 2] == b[union_values.BY]:
            key, null = arrived[p + PUNCTUATION_WORDS + 1], arrived[p + PUNCTUATION_WORDS + 3]
            union_values.take(values, u[PORT], key, null, arrived[p + 1])


@njit("int64(int64, int64, int64, int64)", cache=True)
def _punctuate_taken(values: int, morsel: int, made: int, n: int) -> int:
    """Writes the output's group-wise punctuation of the values that a morsel punctuates, behind
    ``n`` records. Returns the new number of records, -1 if there is no room for all."""
    u, b = words(morsel, HEADER), words(values, union_values.HEADER_WORDS)
    arrived = words(u[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    for p in range(0, PUNCTUATION_WORDS * u[PUNCTUATIONS], PUNCTUATION_WORDS):
        if arrived[p] == b[union_values.COLUMN] and arrived[p + 2] == b[union_values.BY]:
            key, null = arrived[p + PUNCTUATION_WORDS + 1], arrived[p + PUNCTUATION_WORDS + 3]
            found = union_values.find(values, key, null)
            if found >= 0 and n >= 0:
                n = union_values.punctuate(values, found, made, n)
    return n


@njit("int64(int64, int64)", cache=True)
def _look(values: int, morsel: int) -> int:
    """Writes the output's group-wise punctuation of every value, from number CURSOR on, whose
    watermark has risen."""
    u = words(morsel, HEADER)
    o, b = words(u[OUT], HEADER), words(values, union_values.HEADER_WORDS)
    for number in range(u[CURSOR], b[union_values.COUNT]):
        n = union_values.punctuate(values, number, o[PUNCTUATION_ADDRESS], o[PUNCTUATIONS])
        if n < 0:
            u[CURSOR] = number
            return OUTPUT_FULL
        o[PUNCTUATIONS] = n
    union_values.purge(values)
    return DONE


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def union(desc: Any, morsel: Any) -> Any:
    d = words(desc, FIRST)
    columns, ports, attributes = d[COLUMNS], d[PORTS], d[ATTRIBUTES]
    d = words(desc, FIRST + OF_ATTRIBUTE * attributes + (OF_PORT + attributes) * ports)
    u = words(morsel, HEADER + 2 * columns)
    o = words(u[OUT], HEADER + 2 * columns)
    pass_rows(u, o, HEADER + 2 * columns)
    values = d[VALUES]
    if u[PHASE] == _LOOK:
        o[ROWS] = 0  # the first call has sent the rows
        return _look(values, morsel)
    if values != 0:
        room = union_values.requested_room(values, morsel)
        if room > words(values, union_values.HEADER_WORDS)[union_values.ROOM]:
            o[ROWS], u[DETAIL], u[DETAIL_ROW] = 0, 0, room
            return NEED
    o[LATE_ROWS] = u[LATE_ROWS]
    o[LATE_ROW_ADDRESS] = u[LATE_ROW_ADDRESS]
    d[ROWS_SEEN] += u[ROWS]
    port = u[PORT]
    of_ports = FIRST + OF_ATTRIBUTE * attributes
    watermarks = of_ports + OF_PORT * ports
    behind = False
    for a in range(attributes):
        behind |= d[watermarks + port * attributes + a] < d[FIRST + OF_ATTRIBUTE * a + SENT]
    if values != 0:
        of_port = union_values.OF_PORT * port + union_values.LAGS
        behind |= union_values.ports_of(values)[of_port] != 0
    if behind and u[ROWS] > 0:
        o[LATE_ROWS] = _mark_late(desc, morsel, columns, port)
        o[LATE_ROW_ADDRESS] = d[RECORDS]
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
                at = watermarks + port * attributes + a
                d[at] = max(d[at], INFINITY if attribute == END_OF_INPUT else value)
                if attribute != END_OF_INPUT:
                    furthest = FIRST + OF_ATTRIBUTE * a + FURTHEST
                    d[furthest] = max(d[furthest], value)
    if values != 0:
        _take_values(values, morsel)
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
                    low = min(low, d[watermarks + q * attributes + a])
            sent = FIRST + OF_ATTRIBUTE * a + SENT
            if low > d[sent] and low < INFINITY:
                d[sent] = low
                n = send(leaving, n, d[FIRST + OF_ATTRIBUTE * a + COLUMN], low)
        idling = 1 if idle == ports - ended else 0
        if idling != d[IDLING]:
            d[IDLING] = idling
            n = send(leaving, n, IDLE, idling)
    o[PUNCTUATIONS] = n
    if values == 0 or ended == ports:
        return DONE
    if not _compare(desc):
        n = _punctuate_taken(values, morsel, o[PUNCTUATION_ADDRESS], n)
        if n >= 0:
            o[PUNCTUATIONS] = n
            return DONE
    u[PHASE], u[CURSOR] = _LOOK, 0
    return _look(values, morsel)
