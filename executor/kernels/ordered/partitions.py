"""Partitioned parallelism (ordered-multicore paper, section 4): an input is split into fragments,
one for each partition that has rows in it; the fragments of a partition are worked on in order.

A splitting operator (``hash_split``) has listed the rows of each partition. ``dispatch`` adds the
fragments of an input to the queues of their partitions. With ``claim`` a worker takes a fragment:
with a master queue that keeps the order of arrival (HYBRID, figure 7), without a master queue
(PARTITIONED_QUEUE, 4.2), or with one queue and locks (SHARED_QUEUE, 4.1). The worker that finishes
the last fragment of an input merges the outputs of all fragments into the order that one worker
would give.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.atomics import (
    compare_and_swap,
    exchange,
    fetch_add,
    load,
    load_acquire,
    load_relaxed,
    pause,
    store,
    store_relaxed,
    store_release,
)
from cql.executor.kernels.lib.memory import (
    as_i16,
    as_i32,
    as_u8,
    copy_bytes,
    words,
)
from cql.executor.kernels.morsel_layout import (
    BASE,
    CAPACITY,
    CHOSEN,
    CURSOR,
    EPOCH,
    FEED,
    FOLLOWING,
    HEADER,
    LATE_ROW_ADDRESS,
    LATE_ROW_WORDS,
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
    SERIAL,
    WIDTH,
)
from cql.executor.kernels.ordered.handover import (
    next_input,
    place_of,
    ready_inputs,
    release,
    set_free,
    take_free,
)
from cql.executor.kernels.ordered.reorder import OF_MORSEL, SLOT
from cql.executor.kernels.ordered.tables import (
    COLUMNS,
    DISPATCHING,
    FIRST_SERIAL,
    FRAGMENT,
    FRAGMENTS,
    HELD,
    HYBRID,
    LIST_GOT,
    LIST_PUT,
    MASTER,
    MASTER_MASK,
    MASTER_PUT,
    MASTER_TAKEN,
    MERGED,
    MERGING_WORDS,
    NEXT,
    NOBODY,
    NUMBER,
    ORDER,
    OUTPUTS,
    PARTITIONED_QUEUE,
    PARTS,
    PLACES,
    PLAN,
    PORT_WORDS,
    PUT,
    SCHEME,
    SIZE,
    SLOTS,
    SPLIT,
    STOP,
    TASK,
    TOURNAMENT,
    UNDONE,
    WIDE,
    WORKER,
    list_at,
    port_at,
)

#: Unordered outputs are copied into as few morsels as they need if they have on average fewer rows
#: than this number: each morsel costs the tasks behind some microseconds, and a partitioned one
#: among them splits it once more.
_FEW_ROWS = 512


# -- the queues ------------------------------------------------------------------------------------


@njit(inline="always")
def fragment_at(task: int, serial: int, part: int) -> Any:
    s = words(task, TASK)
    return s[FRAGMENTS] + 8 * s[FRAGMENT] * ((serial & (s[SIZE] - 1)) * s[PARTS] + part)


@njit("void(int64, int64, int64)", nogil=True, cache=True)
def _add_input(task: int, morsel: int, serial: int) -> None:
    """``addInput`` of figure 7, for all fragments of an input. A morsel with punctuation has a
    fragment for every partition. So has a morsel without listed rows: there each partition receives
    all rows and picks its own. With its last fragment the morsel may return to its pool and be
    filled again, so nothing is read from it behind this one."""
    s, u = words(task, TASK), words(morsel, HEADER)
    parts, slot = s[PARTS], serial & (s[SIZE] - 1)
    words(s[SLOTS] + 8 * SLOT * slot, SLOT)[OF_MORSEL] = place_of(morsel)
    split = words(port_at(task, u[PORT]), PORT_WORDS)[SPLIT]
    columns = words(morsel, u[WIDTH])
    listed: Any = split >= 0
    rows = columns[HEADER + 2 * split] if listed else 0
    offsets = words(columns[HEADER + 2 * split + 2] if listed else 0, 2 * parts + 2)
    everywhere = not listed or u[PUNCTUATIONS] > 0
    nowhere = not everywhere and offsets[parts] == 0  # one empty fragment ends the input
    count = 0
    for q in range(parts):
        words(s[OUTPUTS], s[SIZE] * parts)[slot * parts + q] = 0
        count += 1 if everywhere else offsets[q + 1] > offsets[q]
    count += nowhere
    words(s[UNDONE], s[SIZE])[slot] = count
    u[REFERENCES] = count
    for q in range(parts):
        n = offsets[q + 1] - offsets[q] if listed else u[ROWS]
        if n == 0 and not everywhere and not (nowhere and q == 0):
            continue
        view = fragment_at(task, serial, q)
        # REFERENCES is not copied: workers on earlier fragments are changing it.
        copy_bytes(morsel, view, 8 * REFERENCES)
        behind = min(u[WIDTH], s[FRAGMENT]) - PARENT
        copy_bytes(morsel + 8 * PARENT, view + 8 * PARENT, 8 * behind)
        v = words(view, HEADER)
        v[PARENT] = morsel
        if listed:
            late = offsets[parts + 1 + q]
            v[ROWS], v[CHOSEN] = n, rows + 4 * offsets[q]
            v[LATE_ROWS] = offsets[parts + 2 + q] - late
            v[LATE_ROW_ADDRESS] = u[LATE_ROW_ADDRESS] + 8 * LATE_ROW_WORDS * late
        queue = list_at(task, q)
        waiting = words(queue, FIRST_SERIAL + s[SIZE])
        put = waiting[LIST_PUT]
        waiting[FIRST_SERIAL + (put & (s[SIZE] - 1))] = serial
        store_release(queue + 8 * LIST_PUT, put + 1)
        at = s[MASTER_PUT]
        store_relaxed(s[MASTER] + 8 * (at & s[MASTER_MASK]), q)  # as in ``push``
        count -= 1
        store_release(task + 8 * MASTER_PUT, at + 1)
        if count == 0:
            return


@njit("void(int64, int64)", nogil=True, cache=True)
def dispatch(plan: int, task: int) -> None:
    """Moves waiting inputs to the queues of their partitions, in order, as long as the reorder
    buffer has slots. Returns at once if another thread does so."""
    s = words(task, TASK)
    while True:
        if exchange(task + 8 * DISPATCHING, 1) != 0:
            return
        while s[PUT] < load_acquire(task + 8 * NEXT) + s[SIZE]:
            morsel = next_input(plan, task)
            if morsel == 0:
                break
            _add_input(task, morsel, s[PUT])
            store_release(task + 8 * PUT, s[PUT] + 1)
        store(task + 8 * DISPATCHING, 0)
        full = load(task + 8 * PUT) >= load(task + 8 * NEXT) + s[SIZE]
        if full or ready_inputs(plan, task) == 0:
            return


@njit("int64(int64)", nogil=True, cache=True)
def fragments_waiting(task: int) -> int:
    """The number of fragments that no worker has claimed."""
    return load_acquire(task + 8 * MASTER_PUT) - load_acquire(task + 8 * MASTER_TAKEN)


@njit("float64(int64)", nogil=True, cache=True)
def fragments_of_each(task: int) -> float:
    """The average number of fragments per input so far; 1 before the first input."""
    split = load_acquire(task + 8 * PUT)
    return load_acquire(task + 8 * MASTER_PUT) / split if split > 0 else 1.0


@njit("int64(int64)", nogil=True, cache=True)
def _from_master(task: int) -> int:
    """``masterQueue.tryDequeue``: a partition, or NOBODY."""
    s = words(task, TASK)
    while True:
        at = load_acquire(task + 8 * MASTER_TAKEN)
        if at >= load_acquire(task + 8 * MASTER_PUT):
            return NOBODY
        part = load_relaxed(s[MASTER] + 8 * (at & s[MASTER_MASK]))
        if compare_and_swap(task + 8 * MASTER_TAKEN, at, at + 1) == at:
            return part


@njit("int64(int64, int64)", nogil=True, cache=True)
def _lock(plan: int, word: int) -> int:
    """Takes a spin lock: 1. 0: the query ends, and the holder of the lock may never release it."""
    while load_relaxed(word) != 0 or exchange(word, 1) != 0:
        if load_relaxed(plan + 8 * STOP) != 0:
            return 0
        pause()
    return 1


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def claim(plan: int, task: int, first: int) -> int:
    """Claims a partition that has a fragment; the worker is then alone at this partition. Returns
    NOBODY if there is none. ``first``: the partition at which the search begins
    (PARTITIONED_QUEUE)."""
    s, scheme = words(task, TASK), words(plan, PLAN)[SCHEME]
    if scheme == PARTITIONED_QUEUE:
        for k in range(s[PARTS]):
            q = (first + k) % s[PARTS]
            queue = list_at(task, q)
            if load_acquire(queue + 8 * LIST_PUT) == load_acquire(queue + 8 * LIST_GOT):
                continue
            if compare_and_swap(queue + 8 * HELD, 0, 1) != 0:
                continue
            if load_acquire(queue + 8 * LIST_PUT) > load_acquire(queue + 8 * LIST_GOT):
                fetch_add(task + 8 * MASTER_TAKEN, 1)
                return q
            store(queue + 8 * HELD, 0)
        return NOBODY
    if scheme == HYBRID:
        while True:
            q = _from_master(task)
            # A worker that is at the partition already takes the fragment (``count`` of figure 7).
            if q == NOBODY or fetch_add(list_at(task, q) + 8 * HELD, 1) == 0:
                return q
    # Taking a fragment and locking its partition must be one step (figure 5).
    if _lock(plan, task + 8 * (MASTER_TAKEN + 1)) == 0:
        return NOBODY
    q = _from_master(task)
    if q != NOBODY and _lock(plan, list_at(task, q) + 8 * HELD) == 0:
        q = NOBODY
    store(task + 8 * (MASTER_TAKEN + 1), 0)
    return q


@njit("int64(int64, int64)", nogil=True, cache=True)
def next_fragment(task: int, part: int) -> int:
    """The serial of the oldest fragment of a claimed partition."""
    s = words(task, TASK)
    queue = list_at(task, part)
    waiting = words(queue, FIRST_SERIAL + s[SIZE])
    got = waiting[LIST_GOT]
    serial: Any = waiting[FIRST_SERIAL + (got & (s[SIZE] - 1))]
    store_release(queue + 8 * LIST_GOT, got + 1)
    return serial


@njit("int64(int64, int64, int64, int64)", nogil=True, cache=True)
def keeps(plan: int, task: int, part: int, budget: int) -> int:
    """After a fragment: 1 if the worker continues with its partition, 0 if the partition is
    released."""
    scheme = words(plan, PLAN)[SCHEME]
    queue = list_at(task, part)
    if scheme == HYBRID:
        return 1 if fetch_add(queue + 8 * HELD, -1) > 1 else 0
    if scheme == PARTITIONED_QUEUE:
        more = load_acquire(queue + 8 * LIST_PUT) > load_acquire(queue + 8 * LIST_GOT)
        if more and budget > 0:
            fetch_add(task + 8 * MASTER_TAKEN, 1)
            return 1
    store(queue + 8 * HELD, 0)
    return 0


@njit("int64(int64, int64, int64, int64)", nogil=True, cache=True)
def finish_fragment(task: int, serial: int, part: int, chain: int) -> int:
    """Notes that a fragment is done, with the chain of its outputs; 1 if it was the last unfinished
    fragment of its input."""
    s = words(task, TASK)
    slot = serial & (s[SIZE] - 1)
    words(s[OUTPUTS], s[SIZE] * s[PARTS])[slot * s[PARTS] + part] = chain
    release(words(fragment_at(task, serial, part), HEADER)[PARENT])
    return 1 if fetch_add(s[UNDONE] + 8 * slot, -1) == 1 else 0


# -- merging ---------------------------------------------------------------------------------------


@njit("void(int64)", nogil=True, cache=True)
def _release_chain(morsel: int) -> None:
    while morsel != 0:
        following: Any = words(morsel, HEADER)[FOLLOWING]
        release(morsel)
        morsel = following


@njit("void(int64, int64, int64, int64, int64)", nogil=True, cache=True)
def _gather(source: int, target: int, size: int, places: int, n: int) -> None:
    """Gathers ``n`` values of ``size`` bytes: value k at ``target`` is value ``places[2k + 1]`` of
    the column at word ``source`` of morsel ``places[2k]``."""
    p = words(places, 2 * n)
    word = source + 1
    if size == 8:
        wide = words(target, n)
        for k in range(n):
            wide[k] = words(words(p[2 * k], word)[source], 1 << 40)[p[2 * k + 1]]
    elif size == 4:
        half = as_i32(target, n)
        for k in range(n):
            half[k] = as_i32(words(p[2 * k], word)[source], 1 << 40)[p[2 * k + 1]]
    elif size == 2:
        short = as_i16(target, n)
        for k in range(n):
            short[k] = as_i16(words(p[2 * k], word)[source], 1 << 40)[p[2 * k + 1]]
    else:
        byte = as_u8(target, n)
        for k in range(n):
            byte[k] = as_u8(words(p[2 * k], word)[source], 1 << 40)[p[2 * k + 1]]


@njit("void(int64[::1], int64, int64, int64)", nogil=True, cache=True)
def _step(heads: Any, part: int, at: int, order: int) -> None:
    """Moves the head of a partition to the next row of its chain; behind the last row its morsel is
    0."""
    morsel, row = heads[4 * part], heads[4 * part + 1] + 1
    while morsel != 0 and row >= words(morsel, HEADER)[ROWS]:
        morsel, row = words(morsel, HEADER)[FOLLOWING], 0
    heads[4 * part], heads[4 * part + 1] = morsel, row
    if morsel != 0:
        u = words(morsel, at + 2 * order)
        heads[4 * part + 2] = 0 if order == 1 else words(u[at], row + 1)[row]
        heads[4 * part + 3] = words(u[at + 2 * order - 2], row + 1)[row]


@njit(inline="always")
def _earlier(heads: Any, x: int, y: int) -> Any:
    """The one of two partitions whose head comes first in the order."""
    a, b = 4 * x, 4 * y
    if heads[b] == 0:
        return x
    if heads[a] == 0 or heads[b + 2] < heads[a + 2]:
        return y
    return y if heads[b + 2] == heads[a + 2] and heads[b + 3] < heads[a + 3] else x


@njit("void(int64, int64, int64, int64[::1])", nogil=True, cache=True)
def _merge_into(task: int, worker: int, first: int, outputs: Any) -> None:
    """Merges the rows of the chains ``outputs`` into the chain of empty morsels ``first``, by a
    tournament tree over the heads of the partitions: node k holds the earlier of nodes 2k and
    2k + 1; the last ``parts`` nodes are the partitions."""
    s = words(task, TASK)
    parts, wide, order = s[PARTS], s[WIDE], s[ORDER]
    places = words(worker, WORKER)[PLACES]
    scratch = words(words(worker, WORKER)[TOURNAMENT], MERGING_WORDS * parts)
    # A head: morsel, row, and the two order columns of the row.
    heads, nodes = scratch[: 4 * parts], scratch[4 * parts :]
    at = HEADER + 2 * wide
    for q in range(parts):
        heads[4 * q], heads[4 * q + 1] = outputs[q], -1
        _step(heads, q, at, order)
        nodes[parts + q] = q
    for k in range(parts - 1, 0, -1):
        nodes[k] = _earlier(heads, nodes[2 * k], nodes[2 * k + 1])
    columns = words(s[COLUMNS], 2 * wide)
    morsel = first
    while morsel != 0:
        o = words(morsel, at)
        p = words(places, 2 * o[CAPACITY])
        n, best = 0, nodes[1]
        while n < o[CAPACITY] and heads[4 * best] != 0:
            p[2 * n], p[2 * n + 1] = heads[4 * best], heads[4 * best + 1]
            n += 1
            _step(heads, best, at, order)
            k = (parts + best) >> 1
            while k > 0:
                best = _earlier(heads, nodes[2 * k], nodes[2 * k + 1])
                nodes[k] = best
                k >>= 1
        for c in range(wide):
            word = HEADER + 2 * c
            _gather(word, o[word], columns[2 * c], places, n)
            if columns[2 * c + 1] != 0:
                _gather(word + 1, o[word + 1], 1, places, n)
        o[ROWS] = n
        morsel = o[FOLLOWING]


@njit("int64(int64[::1], int64)", nogil=True, cache=True)
def _joined(outputs: Any, last: int) -> int:
    """Concatenates the chains ``outputs`` without copying. The chain of partition ``last`` comes
    last and keeps its punctuation, which holds only behind all rows; the punctuation of the other
    chains is the same and is dropped."""
    first = outputs[last]
    for q in range(outputs.size):
        morsel = outputs[q] if q != last else 0
        while morsel != 0:
            u = words(morsel, HEADER)
            following = u[FOLLOWING]
            if u[ROWS] > 0:
                u[PUNCTUATIONS], u[FOLLOWING] = 0, first
                first = morsel
            else:
                release(morsel)
            morsel = following
    return first


@njit("void(int64, int64, int64, int64, int64, int64)", nogil=True, cache=True)
def _copy_rows(task: int, source: int, row: int, target: int, at: int, n: int) -> None:
    """Copies ``n`` rows of morsel ``source`` from ``row`` on to the rows of ``target`` from ``at``
    on."""
    s = words(task, TASK)
    wide = s[WIDE]
    columns = words(s[COLUMNS], 2 * wide)
    u, o = words(source, HEADER + 2 * wide), words(target, HEADER + 2 * wide)
    for c in range(wide):
        word, size = HEADER + 2 * c, columns[2 * c]
        copy_bytes(u[word] + size * row, o[word] + size * at, size * n)
        if columns[2 * c + 1] != 0:
            copy_bytes(u[word + 1] + row, o[word + 1] + at, n)


@njit("void(int64, int64, int64[::1])", nogil=True, cache=True)
def _copy_into(task: int, first: int, outputs: Any) -> None:
    """Copies the rows of the chains ``outputs``, one after the other, into the chain of empty
    morsels ``first``."""
    target, at = first, 0
    for morsel in outputs:
        while morsel != 0:
            u, row = words(morsel, HEADER), 0
            while row < u[ROWS]:
                o = words(target, HEADER)
                n = min(u[ROWS] - row, o[CAPACITY] - at)
                _copy_rows(task, morsel, row, target, at, n)
                row, at = row + n, at + n
                o[ROWS] = at
                if at == o[CAPACITY]:
                    target, at = o[FOLLOWING], 0
            morsel = u[FOLLOWING]


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def merge(task: int, worker: int, serial: int) -> int:
    """Merges the outputs of an input's fragments into one chain, in the order of their last ORDER
    columns (if ORDER is 0: in any order, and copied only if they are small); returns its first
    morsel, 0 if there are no outputs, or -1 if there are not enough free morsels."""
    s = words(task, TASK)
    parts, slot = s[PARTS], serial & (s[SIZE] - 1)
    outputs = words(s[OUTPUTS], s[SIZE] * parts)[slot * parts : (slot + 1) * parts]
    total, busy, one, morsels, late = 0, 0, 0, 0, 0
    for q in range(parts):
        morsel, rows = outputs[q], 0
        while morsel != 0:
            u = words(morsel, HEADER)
            rows += u[ROWS]
            late += u[LATE_ROWS]
            morsels += u[ROWS] > 0
            morsel = u[FOLLOWING]
        total += rows
        busy += rows > 0
        if rows > 0 or outputs[one] == 0:
            one = q
    if busy <= 1:
        for q in range(parts):
            if q != one:
                _release_chain(outputs[q])
        return outputs[one]
    if s[ORDER] == 0 and (late > 0 or total >= _FEW_ROWS * morsels):
        return _joined(outputs, one)
    free = take_free(s[MERGED])
    if free == 0:
        return -1
    capacity = words(free, HEADER)[CAPACITY]
    first = last = free
    words(first, HEADER)[FOLLOWING] = 0
    for _ in range(capacity, total, capacity):
        free = take_free(s[MERGED])
        if free == 0:
            while first != 0:
                following: Any = words(first, HEADER)[FOLLOWING]
                set_free(s[MERGED], first)
                first = following
            return -1
        words(free, HEADER)[FOLLOWING] = 0
        words(last, HEADER)[FOLLOWING] = free
        last = free
    if s[ORDER] == 0:
        _copy_into(task, first, outputs)
    else:
        _merge_into(task, worker, first, outputs)
    model = words(outputs[one], HEADER)
    morsel = first
    while morsel != 0:
        o = words(morsel, HEADER)
        for k in (SERIAL, EPOCH, FEED, BASE, PATH_NUMBER):
            o[k] = model[k]
        o[REFERENCES], o[OPERATOR], o[PUNCTUATIONS], o[LATE_ROWS] = 1, s[NUMBER], 0, 0
        o[CURSOR] = 0
        morsel = o[FOLLOWING]
    # The punctuation of one fragment serves, since all fragments have the same.
    o = words(last, HEADER)
    morsel = outputs[one]
    while morsel != 0:
        u = words(morsel, HEADER)
        room = o[PUNCTUATION_ADDRESS] + 8 * PUNCTUATION_WORDS * o[PUNCTUATIONS]
        copy_bytes(u[PUNCTUATION_ADDRESS], room, 8 * PUNCTUATION_WORDS * u[PUNCTUATIONS])
        o[PUNCTUATIONS] += u[PUNCTUATIONS]
        morsel = u[FOLLOWING]
    for q in range(parts):
        _release_chain(outputs[q])
    return first
