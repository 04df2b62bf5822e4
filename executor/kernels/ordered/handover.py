"""Handover of morsels between tasks: reference counts, views, worklists, and the order in which a
task reads several ports.

REFERENCES counts the readers of a morsel. A morsel that shows columns of another morsel refers to
that one as its PARENT, which is not freed before it."""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.drive.passing import append_rows, punctuation_in
from cql.executor.kernels.lib.atomics import (
    exchange,
    fetch_add,
    load_acquire,
    load_relaxed,
    pause,
    store_relaxed,
    store_release,
)
from cql.executor.kernels.lib.condition import wake
from cql.executor.kernels.lib.memory import copy_bytes, words
from cql.executor.kernels.lib.mpmc_queue import CHAIN, CHANGING, RING, held, offer, poll, poll_held
from cql.executor.kernels.lib.mpmc_queue import MASK as RING_MASK
from cql.executor.kernels.morsel_layout import (
    BASE,
    CAPACITY,
    CHOSEN,
    CURSOR,
    EPOCH,
    FEED,
    FOLLOWING,
    HEADER,
    HOME,
    LATE_ROW_ADDRESS,
    LATE_ROWS,
    OPERATOR,
    PARENT,
    PATH_NUMBER,
    PORT,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    REFERENCES,
    ROWS,
    SEQUENCE,
    SERIAL,
    WIDTH,
)
from cql.executor.kernels.ordered.tables import (
    ADDS_PATH,
    BY_BLOCK,
    COLLECTED,
    COLLECTED_COLUMNS,
    COLLECTING,
    COLLECTORS,
    EDGE,
    EDGES,
    FIRST_EDGE,
    FROM,
    GIVEN,
    GOT,
    INSIDE,
    KIND,
    NEXT,
    NUMBER,
    PARTITIONED,
    PASSED_ON,
    PLAN,
    PORT_WORDS,
    PORTS,
    QUEUE,
    QUEUE_MASK,
    SENT,
    SINK,
    SLEEPING,
    TASK,
    TASKS,
    TIMED,
    TO_PORT,
    TO_TASK,
    TOOK,
    TURN_PUT,
    TURN_TAKEN,
    TURNS,
    TURNS_MASK,
    VIEWS,
    lane_at,
    port_at,
    task_at,
)

#: A turn is one word: a place, then a port of PORT_BITS bits.
PORT_BITS = 8
#: A place is a serial number, then a PATH_NUMBER of PATH_BITS bits (``runtimes.paths``).
PATH_BITS = 8


@njit(inline="always")
def place_of(morsel: int) -> Any:
    """The position of a morsel in depth-first order."""
    u = words(morsel, HEADER)
    return u[SERIAL] << PATH_BITS | u[PATH_NUMBER]


@njit("void(int64)", nogil=True, cache=True)
def lock(word: int) -> None:
    while load_relaxed(word) != 0 or exchange(word, 1) != 0:
        pause()


@njit("void(int64, int64)", nogil=True, cache=True)
def set_free(pool: int, morsel: int) -> None:
    """Returns a free morsel to its pool. If all cells of the pool are full, which one input can
    cause, the morsel goes to the pool's chain."""
    if offer(pool, morsel) == 0:
        lock(pool + 8 * CHANGING)
        words(morsel, HEADER)[FOLLOWING] = words(pool, RING)[CHAIN]
        store_relaxed(pool + 8 * CHAIN, morsel)
        store_release(pool + 8 * CHANGING, 0)


@njit("int64(int64)", nogil=True, cache=True)
def take_free(pool: int) -> int:
    """Takes a free morsel from a pool; 0: there is none."""
    morsel = poll(pool)
    if morsel != 0 or load_relaxed(pool + 8 * CHAIN) == 0:
        return morsel
    lock(pool + 8 * CHANGING)
    morsel = words(pool, RING)[CHAIN]
    if morsel != 0:
        store_relaxed(pool + 8 * CHAIN, words(morsel, HEADER)[FOLLOWING])
    store_release(pool + 8 * CHANGING, 0)
    return morsel


@njit("void(int64)", nogil=True, cache=True)
def release(morsel: int) -> None:
    """Removes one reader of a morsel. A morsel without readers returns to its pool and releases its
    parent."""
    while morsel != 0:
        if fetch_add(morsel + 8 * REFERENCES, -1) != 1:
            return
        u = words(morsel, HEADER)
        parent: Any = u[PARENT]
        u[PARENT] = 0
        set_free(u[HOME], morsel)
        morsel = parent


@njit("void(int64, int64)", nogil=True, cache=True)
def show(morsel: int, view: int) -> None:
    """Makes ``view`` a view of the morsel. It refers to the columns and copies the punctuation, for
    its reader may add punctuation."""
    u, v = words(morsel, HEADER), words(view, HEADER)
    for k in (ROWS, SERIAL, SEQUENCE, EPOCH, LATE_ROWS, LATE_ROW_ADDRESS, PUNCTUATIONS):
        v[k] = u[k]
    for k in (CHOSEN, FEED, BASE, PATH_NUMBER):
        v[k] = u[k]
    v[PORT] = u[PORT]
    v[REFERENCES], v[FOLLOWING] = 1, 0
    columns = v[WIDTH] - HEADER
    copy_bytes(morsel + 8 * HEADER, view + 8 * HEADER, 8 * columns)
    copy_bytes(
        u[PUNCTUATION_ADDRESS], v[PUNCTUATION_ADDRESS], 8 * PUNCTUATION_WORDS * u[PUNCTUATIONS]
    )


@njit("void(int64, int64, int64)", nogil=True, cache=True)
def push(plan: int, port: int, morsel: int) -> None:
    """Adds a morsel to a worklist, which must have room."""
    p = words(port, PORT_WORDS)
    at = p[GIVEN]
    # Atomic: a worker that loses the race for the place's previous morsel may still read the place.
    store_relaxed(p[QUEUE] + 8 * (at & p[QUEUE_MASK]), morsel)
    fetch_add(plan + 8 * INSIDE, 1)
    store_release(port + 8 * GIVEN, at + 1)


@njit(inline="always")
def waiting(port: int) -> Any:
    """Morsels in a worklist."""
    return load_acquire(port + 8 * GIVEN) - load_acquire(port + 8 * GOT)


@njit("void(int64, int64, int64)", nogil=True, cache=True)
def to_sink(plan: int, morsel: int, number: int) -> None:
    """Queues a morsel, a result of operator ``number``, for Python."""
    words(morsel, HEADER)[OPERATOR] = number
    fetch_add(plan + 8 * INSIDE, 1)
    offer(plan + 8 * SINK, morsel)
    wake(plan + 8 * SLEEPING)


@njit("void(int64, int64, int64)", nogil=True, cache=True)
def _hand_over(plan: int, edge: int, number: int) -> None:
    """Hands the collected results of operator ``number`` over to Python, as one morsel."""
    e = words(edge, EDGE)
    o = words(e[COLLECTING], HEADER)
    o[REFERENCES], o[PARENT] = 1, 0
    to_sink(plan, e[COLLECTING], number)
    e[COLLECTING] = 0


@njit("int64(int64, int64, int64, int64)", nogil=True, cache=True)
def _collect(plan: int, edge: int, morsel: int, number: int) -> int:
    """Appends the results in a morsel to the collecting morsel of an edge, which is handed over
    when it is full. Returns 0 if no collecting morsel is free; CURSOR counts the rows copied, so
    that the next call continues there."""
    e, u = words(edge, EDGE), words(morsel, HEADER)
    if e[BY_BLOCK] != 0 and e[COLLECTING] != 0:
        o = words(e[COLLECTING], HEADER)
        if o[BASE] != u[BASE] or o[FEED] != u[FEED]:
            _hand_over(plan, edge, number)
    sizes = words(e[COLLECTED], e[COLLECTED_COLUMNS])
    from_columns = words(morsel, HEADER + 2 * sizes.size)
    while u[CURSOR] < u[ROWS]:
        if e[COLLECTING] == 0:
            e[COLLECTING] = poll(e[COLLECTORS])
            if e[COLLECTING] == 0:
                return 0
            words(e[COLLECTING], HEADER)[ROWS] = 0
        o = words(e[COLLECTING], HEADER + 2 * sizes.size)
        n = min(u[ROWS] - u[CURSOR], o[CAPACITY] - o[ROWS])
        append_rows(from_columns, o, sizes, u[CURSOR], n)
        u[CURSOR] += n
        o[SERIAL], o[FEED], o[BASE] = u[SERIAL], u[FEED], u[BASE]
        if o[ROWS] == o[CAPACITY]:
            _hand_over(plan, edge, number)
    release(morsel)
    return 1


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def push_downstream(plan: int, task: int, morsel: int) -> int:
    """``send_downstream`` of figure 4: hands an output morsel over on all edges of the task. 0: an
    edge has no room; the caller tries again later."""
    s = words(task, TASK)
    header = words(plan, PLAN)
    edges, first = s[EDGES], s[FIRST_EDGE]
    for k in range(edges):
        e = words(first + 8 * EDGE * k, EDGE)
        if e[TO_TASK] < 0:
            if held(plan + 8 * SINK) + 4 > header[SINK + RING_MASK]:
                return 0
        else:
            port = port_at(task_at(plan, e[TO_TASK]), e[TO_PORT])
            if waiting(port) > words(port, PORT_WORDS)[QUEUE_MASK]:
                return 0
        if edges > 1 and held(e[VIEWS]) == 0:
            return 0
    u = words(morsel, HEADER)
    e = words(first, EDGE)
    passed_on = punctuation_in(morsel) if header[TIMED] != 0 else 0
    if e[TO_TASK] < 0 and e[COLLECTORS] != 0:  # a task that collects has no edge but this one
        taken = _collect(plan, first, morsel, s[NUMBER])
        s[PASSED_ON] += passed_on * taken
        return taken
    s[PASSED_ON] += passed_on
    u[REFERENCES] = edges
    for k in range(edges):
        e = words(first + 8 * EDGE * k, EDGE)
        given = morsel
        if edges > 1:
            given = poll_held(e[VIEWS])
            show(morsel, given)
            words(given, HEADER)[PARENT] = morsel
            words(given, HEADER)[PATH_NUMBER] += e[ADDS_PATH]
        words(given, HEADER)[PORT] = e[TO_PORT]
        if e[TO_TASK] < 0:
            to_sink(plan, given, s[NUMBER])
        else:
            push(plan, port_at(task_at(plan, e[TO_TASK]), e[TO_PORT]), given)
    return 1


@njit("void(int64, int64, int64)", nogil=True, cache=True)
def note_punctuation(task: int, lane: int, morsel: int) -> None:
    """Counts the punctuation of a morsel that is done. All partitions receive the punctuation of an
    input; only the first one counts it."""
    if words(task, TASK)[KIND] != PARTITIONED or lane == lane_at(task, 0):
        fetch_add(task + 8 * TOOK, punctuation_in(morsel))


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def is_through(plan: int, number: int, place: int) -> int:
    """Whether task ``number`` has sent all outputs of the morsels up to ``place``. -1 is an input:
    1, since a turn is written only after its morsel is in the worklist."""
    if number < 0:
        return 1
    task = task_at(plan, number)
    if load_acquire(task + 8 * SENT) > place:
        return 1
    given = 0
    for k in range(words(task, TASK)[PORTS]):
        port = port_at(task, k)
        if is_through(plan, words(port, PORT_WORDS)[FROM], place) == 0:
            return 0
        given += load_acquire(port + 8 * GIVEN)
    return 1 if load_acquire(task + 8 * NEXT) == given else 0


@njit("int64(int64, int64)", nogil=True, cache=True)
def all_through(plan: int, serial: int) -> int:
    """Whether all morsels up to serial number ``serial``, and all results of them, have left."""
    if held(plan + 8 * SINK) > 0:
        return 0
    for k in range(words(plan, PLAN)[TASKS]):
        if is_through(plan, k, ((serial + 1) << PATH_BITS) - 1) == 0:
            return 0
    return 1


@njit("int64(int64)", nogil=True, cache=True)
def take(port: int) -> int:
    """Takes the next morsel of a port, which one thread reads at a time and which has one."""
    p = words(port, PORT_WORDS)
    at = p[GOT]
    morsel: Any = words(p[QUEUE], p[QUEUE_MASK] + 1)[at & p[QUEUE_MASK]]
    store_release(port + 8 * GOT, at + 1)
    return morsel


@njit("int64(int64, int64)", nogil=True, cache=True)
def next_port(plan: int, task: int) -> int:
    """The port with the next morsel of a task that one thread reads at a time; -1: the morsel has
    not arrived. A task with several ports follows its turns, in the order of admission: it reads
    all morsels that one turn covers before those of the next turn."""
    s = words(task, TASK)
    if s[PORTS] == 1:
        return 0 if waiting(port_at(task, 0)) > 0 else -1
    while s[TURN_TAKEN] < load_acquire(task + 8 * TURN_PUT):
        turn = words(s[TURNS], s[TURNS_MASK] + 1)[s[TURN_TAKEN] & s[TURNS_MASK]]
        place, number = turn >> PORT_BITS, turn & ((1 << PORT_BITS) - 1)
        port = port_at(task, number)
        p = words(port, PORT_WORDS)
        over = is_through(plan, p[FROM], place)  # must precede the look into the worklist
        if waiting(port) > 0:
            morsel = words(p[QUEUE], p[QUEUE_MASK] + 1)[p[GOT] & p[QUEUE_MASK]]
            if place_of(morsel) <= place:
                return number
            over = 1
        if over == 0:
            return -1
        store_release(task + 8 * TURN_TAKEN, s[TURN_TAKEN] + 1)
    return -1


@njit("int64(int64, int64)", nogil=True, cache=True)
def next_input(plan: int, task: int) -> int:
    """Takes the next morsel of a task that one thread reads at a time; 0: it has not arrived."""
    number = next_port(plan, task)
    return take(port_at(task, number)) if number >= 0 else 0


@njit("int64(int64, int64)", nogil=True, cache=True)
def ready_inputs(plan: int, task: int) -> int:
    """The approximate number of inputs that ``next_port`` would find; at least 1 if there is a
    turn that it would end. Takes no input."""
    s = words(task, TASK)
    total = 0
    for k in range(s[PORTS]):
        total += max(waiting(port_at(task, k)), 0)
    if s[PORTS] == 1:
        return total
    taken = load_acquire(task + 8 * TURN_TAKEN)
    if taken >= load_acquire(task + 8 * TURN_PUT):
        return 0
    turn = words(s[TURNS], s[TURNS_MASK] + 1)[taken & s[TURNS_MASK]]
    place, port = turn >> PORT_BITS, port_at(task, turn & ((1 << PORT_BITS) - 1))
    over = is_through(plan, words(port, PORT_WORDS)[FROM], place)
    return max(total, 1) if over != 0 or waiting(port) > 0 else 0
