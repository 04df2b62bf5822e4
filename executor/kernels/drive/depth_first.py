"""The depth-first driver (xstream paper III.C), compiled once for all queries.

A morsel goes through the whole plan before the driver admits the next one: an operator passes its
output to its successors at once, by reference. The traversal has an explicit stack and can resume,
so that the kernel can return to Python for everything that only Python can do.

The tables are flat int64 arrays with one entry per operator: ``address`` (0: Python runs the
operator), ``descriptor``, ``out`` (address of its output morsel), ``ran`` (number of its last
call). ``edge_from[op]`` to ``edge_from[op + 1]`` are the operator's edges, each with ``edge_to``
(operator, or -1 for the sink) and ``edge_port``. ``gather`` is the number of rows of a batch for
the sink that the operator itself fills over several calls. ``collectors`` is the address of the
record of a collector (``COLLECTING`` and the words behind it), or 0; a collector is a morsel to
which the driver copies small outputs for the sink. A stack frame is five words: operator, morsel,
state (0: call the operator; 1: deliver its output), next edge, result of the call.

The functions take the address of a table of the arrays' addresses: passing twelve arrays from
Python would take 4 microseconds.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.drive.passing import append_rows
from cql.executor.kernels.ingest.input_scheduler import MORSEL, OPERATOR, record, take
from cql.executor.kernels.ingest.input_scheduler import PORT as TO_PORT
from cql.executor.kernels.lib.clock import add_punctuation, add_time, began_at
from cql.executor.kernels.lib.memory import call_operator, words
from cql.executor.kernels.morsel_layout import (
    CAPACITY,
    CURSOR,
    DONE,
    ERROR,
    HEADER,
    LATE_ROWS,
    NEED,
    OUT,
    OUTPUT_FULL,
    PHASE,
    PORT,
    PUNCTUATIONS,
    ROWS,
    SERIAL,
    SUB,
)

FRAME = 5
# Events: the reasons for which the driver returns to Python.
IDLE = 0  # the traversal is over
SINK = 1  # the output morsel of the operator on top goes to the sink
PYTHON = 2  # the operator on top runs in Python
NEEDS = 3  # the operator on top needs a larger buffer
FAILED = 4  # the operator on top failed at a row
LOOPED = 5  # the successor is on the stack already: queue a copy of the morsel
USED_UP = 6  # the current input of the input scheduler has no further block
COLLECTED = 7  # the collector of the operator on top goes to the sink

# Record of a collector.
COLLECTING = 0  # address of the morsel
SMALL = 1  # outputs with more rows go to the sink without a copy
COLUMNS = 2
SIZES = 3  # bytes of a value of each column
# Results of ``_collect``: copied; not copied; the collector must go to the sink first.
TAKEN, LEFT, LEAVES_FIRST = range(3)

# Control words.
TOP = 0  # frames on the stack
CALLS = 1  # operator calls made
RESULT = 2  # the status that the Python operator returned
NOT_CALLED = -1
NEEDED_PYTHON = 3  # 1: the current morsel has needed Python
TIMES = 4  # address of the measurements per operator (``clock``), or 0

#: Where the address of each array stands.
(
    _ADDRESS,
    _DESCRIPTOR,
    _OUT,
    _EDGE_FROM,
    _EDGE_TO,
    _EDGE_PORT,
    _ON_STACK,
    _RAN,
    _GATHER,
    _COLLECTORS,
    _STACK,
    _CONTROL,
) = range(12)


@njit(inline="always")
def _table(tables: int, k: int) -> Any:
    """An array of which only the address is known; nobody reads its length."""
    return words(words(tables, k + 1)[k], 1)


@njit(inline="always")
def start_morsel(morsel: Any, port: int, out: int) -> None:
    """Prepares a morsel as an input: the consumer starts at its first row."""
    morsel[CURSOR] = 0
    morsel[PHASE] = 0
    morsel[SUB] = 0
    morsel[PORT] = port
    morsel[OUT] = out


@njit(inline="always")
def clear_output(out: Any) -> None:
    out[ROWS] = 0
    out[PUNCTUATIONS] = 0
    out[LATE_ROWS] = 0


@njit(inline="always")
def push(stack: Any, control: Any, operator: int, morsel: int) -> None:
    at = FRAME * control[TOP]
    stack[at] = operator
    stack[at + 1] = morsel
    stack[at + 2] = 0
    stack[at + 3] = 0
    stack[at + 4] = 0
    control[TOP] += 1


@njit("int64(int64, int64)", nogil=True, cache=True)
def _collect(record: int, morsel: int) -> int:
    """Copies a small output behind the outputs that the collector holds."""
    if record == 0:
        return LEFT
    r = words(record, SIZES)
    columns = r[COLUMNS]
    u, o = words(morsel, HEADER + 2 * columns), words(r[COLLECTING], HEADER + 2 * columns)
    if u[ROWS] > r[SMALL] or u[ROWS] > o[CAPACITY] - o[ROWS]:
        return LEAVES_FIRST if o[ROWS] > 0 else LEFT
    o[SERIAL] = u[SERIAL]
    append_rows(u, o, words(record + 8 * SIZES, columns), 0, u[ROWS])
    return TAKEN


@njit("int64(int64)", nogil=True, cache=True)
def drive(tables: int) -> int:
    """Runs until the stack is empty (IDLE) or an event needs Python. Returns the event; the caller
    handles the event and calls again.

    After SINK and LOOPED, ``drive`` takes the morsel as delivered. After COLLECTED, the caller has
    emptied the collector. After NEEDS and FAILED, ``drive`` calls the operator again with the same
    morsel. After PYTHON, ``control[RESULT]`` holds the status that the operator returned."""
    address, descriptor = _table(tables, _ADDRESS), _table(tables, _DESCRIPTOR)
    out, on_stack, ran = _table(tables, _OUT), _table(tables, _ON_STACK), _table(tables, _RAN)
    edge_from, edge_to = _table(tables, _EDGE_FROM), _table(tables, _EDGE_TO)
    edge_port, gather = _table(tables, _EDGE_PORT), _table(tables, _GATHER)
    collectors, stack = _table(tables, _COLLECTORS), _table(tables, _STACK)
    control = _table(tables, _CONTROL)
    times = control[TIMES]
    while control[TOP] > 0:
        at = FRAME * (control[TOP] - 1)
        operator = stack[at]
        result = words(out[operator], OUT + 8)
        if stack[at + 2] == 0:
            if address[operator] == 0:
                if control[RESULT] == NOT_CALLED:
                    return PYTHON
                code = control[RESULT]
                control[RESULT] = NOT_CALLED
            else:
                began = began_at(times)
                code = call_operator(address[operator], descriptor[operator], stack[at + 1])
                add_time(times, operator, began)
            control[CALLS] += 1
            ran[operator] = control[CALLS]
            if code == NEED:
                return NEEDS
            if code == ERROR:
                return FAILED
            done = stack[at + 1] if code == DONE else 0
            add_punctuation(times, operator, done, out[operator])
            stack[at + 4] = code
            stack[at + 3] = edge_from[operator]
            if code == DONE and result[ROWS] < gather[operator]:
                result[PUNCTUATIONS] = 0  # the sink needs no punctuation
                result[LATE_ROWS] = 0
                on_stack[operator] = 0
                control[TOP] -= 1
                continue
            if result[ROWS] > 0 or result[PUNCTUATIONS] > 0:
                stack[at + 2] = 1
            elif code == DONE:
                on_stack[operator] = 0
                control[TOP] -= 1
            continue
        edge = stack[at + 3]
        if edge < edge_from[operator + 1]:
            successor = edge_to[edge]
            if successor < 0:
                taken = _collect(collectors[operator], out[operator])
                if taken == LEAVES_FIRST:
                    return COLLECTED
                stack[at + 3] = edge + 1
                if taken == TAKEN:
                    continue
                return SINK
            stack[at + 3] = edge + 1
            start_morsel(result, edge_port[edge], out[successor])
            if on_stack[successor] != 0:
                return LOOPED
            on_stack[successor] = 1
            if gather[successor] == 0:
                clear_output(words(out[successor], OUT + 8))
            push(stack, control, successor, out[operator])
            continue
        clear_output(result)
        if stack[at + 4] == OUTPUT_FULL:
            stack[at + 2] = 0
        else:
            on_stack[operator] = 0
            control[TOP] -= 1
    return IDLE


@njit("void(int64, int64, int64, int64)", nogil=True, cache=True)
def enter(morsel: int, operator: int, port: int, tables: int) -> None:
    """Pushes an operator and its input morsel on the empty stack."""
    out, gather = _table(tables, _OUT), _table(tables, _GATHER)
    start_morsel(words(morsel, OUT + 8), port, out[operator])
    if gather[operator] == 0:
        clear_output(words(out[operator], OUT + 8))
    _table(tables, _ON_STACK)[operator] = 1
    push(_table(tables, _STACK), _table(tables, _CONTROL), operator, morsel)


@njit("int64(int64, int64)", nogil=True, cache=True)
def cut_and_drive(scheduler: int, tables: int) -> int:
    """Cuts morsels from the blocks of the inputs and drives each through the plan. Returns an event
    that needs Python (the caller handles the event and calls again), IDLE at the end of a morsel
    that needed Python, or USED_UP."""
    control = _table(tables, _CONTROL)
    while True:
        if control[TOP] > 0:
            event = drive(tables)
            if event != IDLE:
                control[NEEDED_PYTHON] = 1
                return event
        if control[NEEDED_PYTHON] != 0:
            control[NEEDED_PYTHON] = 0
            return IDLE
        if take(scheduler) == 0:
            return USED_UP
        given = record(scheduler)
        head = words(given[MORSEL], OUT + 8)
        if head[ROWS] > 0 or head[PUNCTUATIONS] > 0:
            enter(given[MORSEL], given[OPERATOR], given[TO_PORT], tables)
