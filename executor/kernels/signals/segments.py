"""Segments of signals: making, sharing, cutting and joining them (XStream paper, section III.B).

The four memory managers of the paper differ in what passing, cutting and appending copy:

======================  ==========  ===========  ===============================================
manager                 pass        subseg       append
======================  ==========  ===========  ===============================================
CopyAlways              copies      copies       copies both
RefCount-Copy           shares      shares       copies both
RefCount-Realloc        shares      shares       extends the first one's block if nobody else
                                                 has it, and copies the second; else copies both
RefCount-Lazy           shares      shares       splices the lists of parts
======================  ==========  ===========  ===============================================

``s`` is the address of a store, ``g`` and ``h`` are addresses of segments. A function that makes a
segment gives its caller one reference; 0 says that there was no room. All functions may be called
by several threads at once.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.atomics import (
    compare_and_swap,
    fetch_add,
    load_acquire,
    load_relaxed,
    pause,
    store_release,
)
from cql.executor.kernels.lib.memory import as_i16, as_i32, lines, move_bytes, words
from cql.executor.kernels.signals.heap import allocate, deallocate, reallocate
from cql.executor.kernels.signals.layout import (
    AT,
    BASE,
    BLOCK,
    BLOCK_WORDS,
    BLOCKS,
    BYTES,
    COPIED,
    COPY_ALWAYS,
    DATA,
    FIRST,
    FIRST_YOUNG,
    FLAT,
    FREE_BLOCK,
    FREE_PART,
    FREE_SEGMENT,
    FULL,
    KIND,
    KIND_BITS,
    LAST,
    LENGTH,
    LIVE_SEGMENTS,
    MADE,
    MADE_SEGMENT,
    MANAGER,
    MOST_BLOCKS,
    MOST_PARTS,
    MOST_SEGMENTS,
    NEXT,
    NEXT_YOUNG,
    NO_ROOM,
    OWNER,
    PART,
    PARTS,
    REFCOUNT_LAZY,
    REFCOUNT_REALLOC,
    REFERENCES,
    SAMPLES,
    SEGMENT,
    SEGMENTS,
    SERIAL,
    SHARES,
    SIZE,
    SIZES,
    START,
    STEP,
    STORE,
    STRUCT,
    TIMEBASES_AT,
    USED_BLOCKS,
    USED_PARTS,
    USED_SEGMENTS,
    YOUNG,
    YOUNG_WORDS,
)
from cql.executor.kernels.signals.timebase import TIMEBASE, USES


@njit("int64(int64)", nogil=True, cache=True)
def sample_bytes(base: int) -> int:
    """Bytes of a sample of a segment whose BASE is ``base``."""
    kind = base & KIND
    return SIZES[kind] if kind < STRUCT else 8 * (kind - STRUCT)


# -- the lock, and the lines of the tables; the functions below it are called with the lock held ---


@njit("void(int64)", nogil=True, cache=True)
def lock(s: int) -> None:
    while compare_and_swap(s, 0, 1) != 0:
        while load_relaxed(s) != 0:
            pause()


@njit("void(int64)", nogil=True, cache=True)
def unlock(s: int) -> None:
    store_release(s, 0)


@njit("void(int64[::1], int64, int64)", nogil=True, cache=True)
def use_timebase(q: Any, base: int, more: int) -> None:
    """Counts the uses of a timebase; ``base`` has the form of a segment's word BASE."""
    words(q[TIMEBASES_AT] + 8 * TIMEBASE * (base >> KIND_BITS), TIMEBASE)[USES] += more


@njit("int64(int64[::1], int64, int64, int64)", nogil=True, cache=True)
def _segment(q: Any, base: int, start: int, length: int) -> int:
    """The address of a new segment without parts; 0: no room."""
    at = q[FREE_SEGMENT]
    if at >= 0:
        g = q[SEGMENTS] + 8 * SEGMENT * at
        q[FREE_SEGMENT] = words(g, SEGMENT)[FIRST]
    elif q[USED_SEGMENTS] < q[MOST_SEGMENTS]:
        g = q[SEGMENTS] + 8 * SEGMENT * q[USED_SEGMENTS]
        q[USED_SEGMENTS] += 1
    else:
        q[FULL] = NO_ROOM
        return 0
    q[LIVE_SEGMENTS] += 1
    use_timebase(q, base, 1)
    line = words(g, SEGMENT)
    line[REFERENCES], line[FLAT], line[LENGTH], line[START] = 1, 0, length, start
    line[BASE], line[OWNER], line[FIRST], line[LAST] = base, q.ctypes.data, -1, -1
    return g


@njit("int64(int64[::1], int64)", nogil=True, cache=True)
def _block(q: Any, size: int) -> int:
    """The number of a new block of ``size`` bytes that no part shares; -1: no room."""
    at = q[FREE_BLOCK]
    blocks = lines(q[BLOCKS], q[MOST_BLOCKS], BLOCK_WORDS)
    if at < 0 and q[USED_BLOCKS] == q[MOST_BLOCKS]:
        q[FULL] = NO_ROOM
        return -1
    data = allocate(max(size, 1))
    if data == 0:
        q[FULL] = NO_ROOM
        return -1
    if at >= 0:
        q[FREE_BLOCK] = blocks[at, MADE]
    else:
        at = q[USED_BLOCKS]
        q[USED_BLOCKS] += 1
    blocks[at, SHARES], blocks[at, DATA], blocks[at, SIZE], blocks[at, MADE] = 0, data, size, 1
    blocks[at, STEP] = 0
    q[BYTES] += size
    return at


@njit("int64(int64[::1], int64, int64)", nogil=True, cache=True)
def _step(q: Any, block: int, base: int) -> int:
    """Bytes from a sample in a block to the next one of the same channel; ``base`` has the form of
    a segment's word BASE."""
    step = words(q[BLOCKS] + 8 * BLOCK_WORDS * block, BLOCK_WORDS)[STEP]
    return step if step != 0 else sample_bytes(base)


@njit("boolean(int64[::1], int64, int64, int64, int64)", nogil=True, cache=True)
def _add_part(q: Any, g: int, block: int, address: int, n: int) -> bool:
    """Appends a range of a block to the parts of a segment. False: no room."""
    line = words(g, SEGMENT)
    parts = lines(q[PARTS], q[MOST_PARTS], PART)
    last = line[LAST]
    if last >= 0 and parts[last, BLOCK] == block:
        step = _step(q, block, line[BASE])
        if parts[last, AT] + step * parts[last, SAMPLES] == address:
            parts[last, SAMPLES] += n
            return True
    at = q[FREE_PART]
    if at >= 0:
        q[FREE_PART] = parts[at, NEXT]
    elif q[USED_PARTS] < q[MOST_PARTS]:
        at = q[USED_PARTS]
        q[USED_PARTS] += 1
    else:
        q[FULL] = NO_ROOM
        return False
    parts[at, BLOCK], parts[at, AT], parts[at, SAMPLES], parts[at, NEXT] = block, address, n, -1
    held = words(q[BLOCKS] + 8 * BLOCK_WORDS * block, BLOCK_WORDS)
    held[SHARES] += 1
    if last < 0:
        line[FIRST] = at
        line[FLAT] = address if _step(q, block, line[BASE]) == sample_bytes(line[BASE]) else 0
    else:
        parts[last, NEXT] = at
        line[FLAT] = 0
    line[LAST] = at
    return True


@njit("void(int64[::1], int64)", nogil=True, cache=True)
def _leave_block(q: Any, block: int) -> None:
    """One part of a block is gone. A block that the host made is the host's to forget."""
    line = words(q[BLOCKS] + 8 * BLOCK_WORDS * block, BLOCK_WORDS)
    line[SHARES] -= 1
    if line[SHARES] == 0 and line[MADE] == 1:
        deallocate(line[DATA])
        q[BYTES] -= line[SIZE]
        line[DATA] = 0
        line[MADE] = q[FREE_BLOCK]
        q[FREE_BLOCK] = block


@njit("void(int64[::1], int64)", nogil=True, cache=True)
def _drop_parts(q: Any, g: int) -> None:
    line = words(g, SEGMENT)
    parts = lines(q[PARTS], q[MOST_PARTS], PART)
    at = line[FIRST]
    while at >= 0:
        following = parts[at, NEXT]
        _leave_block(q, parts[at, BLOCK])
        parts[at, NEXT] = q[FREE_PART]
        q[FREE_PART] = at
        at = following
    line[FIRST] = line[LAST] = -1
    line[FLAT] = 0


@njit("void(int64[::1], int64, int64, int64)", nogil=True, cache=True)
def _cut_back(q: Any, g: int, last: int, samples: int) -> None:
    """Drops the parts behind part ``last``, which keeps its first ``samples`` samples."""
    line = words(g, SEGMENT)
    parts = lines(q[PARTS], q[MOST_PARTS], PART)
    at = parts[last, NEXT]
    parts[last, SAMPLES], parts[last, NEXT] = samples, -1
    line[LAST] = last
    block = parts[last, BLOCK]
    if line[FIRST] == last and _step(q, block, line[BASE]) == sample_bytes(line[BASE]):
        line[FLAT] = parts[last, AT]
    while at >= 0:
        following = parts[at, NEXT]
        _leave_block(q, parts[at, BLOCK])
        parts[at, NEXT] = q[FREE_PART]
        q[FREE_PART] = at
        at = following


@njit("void(int64[::1], int64)", nogil=True, cache=True)
def _free(q: Any, g: int) -> None:
    _drop_parts(q, g)
    line = words(g, SEGMENT)
    use_timebase(q, line[BASE], -1)
    line[FIRST] = q[FREE_SEGMENT]
    q[FREE_SEGMENT] = (g - q[SEGMENTS]) // (8 * SEGMENT)
    q[LIVE_SEGMENTS] -= 1


@njit("boolean(int64[::1], int64, int64, int64, int64)", nogil=True, cache=True)
def _share(q: Any, g: int, h: int, skip: int, n: int) -> bool:
    """Appends ``n`` samples of segment ``g``, behind the first ``skip``, to the parts of ``h``."""
    parts = lines(q[PARTS], q[MOST_PARTS], PART)
    base, at = words(g, SEGMENT)[BASE], words(g, SEGMENT)[FIRST]
    while at >= 0 and n > 0:
        held, block = parts[at, SAMPLES], parts[at, BLOCK]
        if skip < held:
            taken = min(held - skip, n)
            if not _add_part(q, h, block, parts[at, AT] + _step(q, block, base) * skip, taken):
                return False
            n -= taken
            skip = 0
        else:
            skip -= held
        at = parts[at, NEXT]
    return True


@njit("void(int64, int64, int64, int64, int64)", nogil=True, cache=True)
def _gather(source: int, step: int, target: int, size: int, n: int) -> None:
    """Copies ``n`` samples of ``size`` bytes, which are ``step`` bytes apart."""
    if step == size:
        move_bytes(source, target, size * n)
    elif size == 2:
        small, smalls, k = as_i16(target, n), as_i16(source, step // 2 * (n - 1) + 1), step // 2
        for i in range(n):
            small[i] = smalls[k * i]
    elif size == 4:
        half, halves, k = as_i32(target, n), as_i32(source, step // 4 * (n - 1) + 1), step // 4
        for i in range(n):
            half[i] = halves[k * i]
    elif size == 8 and step % 8 == 0:
        whole, wholes, k = words(target, n), words(source, step // 8 * (n - 1) + 1), step // 8
        for i in range(n):
            whole[i] = wholes[k * i]
    else:
        for i in range(n):
            move_bytes(source + step * i, target + size * i, size)


@njit("void(int64[::1], int64, int64, int64, int64)", nogil=True, cache=True)
def _copy_samples(q: Any, g: int, skip: int, n: int, target: int) -> None:
    """Copies ``n`` samples of a segment, behind the first ``skip``, to an address."""
    parts = lines(q[PARTS], q[MOST_PARTS], PART)
    base, at = words(g, SEGMENT)[BASE], words(g, SEGMENT)[FIRST]
    size = sample_bytes(base)
    q[COPIED] += size * n
    while at >= 0 and n > 0:
        held, step = parts[at, SAMPLES], _step(q, parts[at, BLOCK], base)
        if skip < held:
            taken = min(held - skip, n)
            _gather(parts[at, AT] + step * skip, step, target, size, taken)
            target += size * taken
            n -= taken
            skip = 0
        else:
            skip -= held
        at = parts[at, NEXT]


@njit("void(int64[::1], int64)", nogil=True, cache=True)
def _leave_unshared(q: Any, block: int) -> None:
    lines(q[BLOCKS], q[MOST_BLOCKS], BLOCK_WORDS)[block, SHARES] = 1
    _leave_block(q, block)


@njit("int64(int64[::1], int64, int64)", nogil=True, cache=True)
def _filled(q: Any, h: int, n: int) -> int:
    """The address of ``n`` samples in a new block, which become the part of ``h``; 0: no room, and
    ``h`` is gone."""
    base = words(h, SEGMENT)[BASE]
    block = _block(q, n * sample_bytes(base))
    if block < 0:
        _free(q, h)
        return 0
    blocks = lines(q[BLOCKS], q[MOST_BLOCKS], BLOCK_WORDS)
    if base & KIND > STRUCT:
        blocks[block, STEP] = sample_bytes(base)
    data = blocks[block, DATA]
    if not _add_part(q, h, block, data, n):
        _leave_unshared(q, block)
        _free(q, h)
        return 0
    return data


# -- for callers -----------------------------------------------------------------------------------


@njit("int64(int64, int64, int64, int64)", nogil=True, cache=True)
def make(s: int, base: int, start: int, n: int) -> int:
    """A segment of ``n`` samples in a block of its own, which the caller fills (FLAT)."""
    q = words(s, STORE)
    lock(s)
    h = _segment(q, base, start, n)
    if h != 0 and n > 0 and _filled(q, h, n) == 0:
        h = 0
    unlock(s)
    return h


@njit("int64(int64, int64, int64, int64)", nogil=True, cache=True)
def adopt(s: int, address: int, size: int, step: int) -> int:
    """The number of a block of the host, which holds it (one share) until it lets go. ``step``: the
    bytes of a row; 0: the block has no rows."""
    q = words(s, STORE)
    lock(s)
    at = q[FREE_BLOCK]
    blocks = lines(q[BLOCKS], q[MOST_BLOCKS], BLOCK_WORDS)
    if at >= 0:
        q[FREE_BLOCK] = blocks[at, MADE]
    elif q[USED_BLOCKS] < q[MOST_BLOCKS]:
        at = q[USED_BLOCKS]
        q[USED_BLOCKS] += 1
    else:
        q[FULL] = NO_ROOM
    if at >= 0:
        blocks[at, SHARES], blocks[at, DATA], blocks[at, SIZE], blocks[at, MADE] = (
            1,
            address,
            size,
            0,
        )
        blocks[at, STEP] = step
    unlock(s)
    return at


@njit("void(int64, int64)", nogil=True, cache=True)
def let_go(s: int, block: int) -> None:
    """The host no longer holds a block."""
    lock(s)
    _leave_block(words(s, STORE), block)
    unlock(s)


@njit("boolean(int64, int64)", nogil=True, cache=True)
def forget(s: int, block: int) -> bool:
    """Frees the line of a block of the host if nobody shares it; whether it did."""
    q = words(s, STORE)
    lock(s)
    line = words(q[BLOCKS] + 8 * BLOCK_WORDS * block, BLOCK_WORDS)
    gone = line[SHARES] == 0
    if gone:
        line[DATA] = 0
        line[MADE] = q[FREE_BLOCK]
        q[FREE_BLOCK] = block
    unlock(s)
    return gone


@njit("int64(int64, int64, int64, int64, int64, int64)", nogil=True, cache=True)
def segment_of(s: int, base: int, start: int, n: int, block: int, address: int) -> int:
    """A segment of ``n`` samples at an address inside a block."""
    q = words(s, STORE)
    lock(s)
    h = _segment(q, base, start, n)
    if h != 0 and n > 0 and not _add_part(q, h, block, address, n):
        _free(q, h)
        h = 0
    unlock(s)
    return h


@njit("void(int64)", nogil=True, cache=True)
def retain(g: int) -> None:
    fetch_add(g, 1)


@njit("void(int64)", nogil=True, cache=True)
def release(g: int) -> None:
    """Gives one reference back."""
    if fetch_add(g, -1) == 1:
        s = words(g, SEGMENT)[OWNER]
        lock(s)
        _free(words(s, STORE), g)
        unlock(s)


@njit("int64(int64[::1], int64, int64, int64)", nogil=True, cache=True)
def _cut(q: Any, g: int, skip: int, n: int) -> int:
    line = words(g, SEGMENT)
    h = _segment(q, line[BASE], line[START] + skip, n)
    if h == 0 or n == 0:
        return h
    if q[MANAGER] == COPY_ALWAYS:
        target = _filled(q, h, n)
        if target == 0:
            return 0
        _copy_samples(q, g, skip, n, target)
    elif not _share(q, g, h, skip, n):
        _free(q, h)
        return 0
    return h


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def subseg(g: int, skip: int, n: int) -> int:
    """The ``n`` samples behind the first ``skip``, which the segment must have."""
    s = words(g, SEGMENT)[OWNER]
    lock(s)
    h = _cut(words(s, STORE), g, skip, n)
    unlock(s)
    return h


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def field_of(g: int, offset: int, kind: int) -> int:
    """The field of a segment of structs that has its samples ``offset`` bytes behind theirs."""
    line = words(g, SEGMENT)
    s, n = line[OWNER], line[LENGTH]
    q = words(s, STORE)
    base = (line[BASE] & ~KIND) | kind
    size = sample_bytes(base)
    lock(s)
    h = _segment(q, base, line[START], n)
    copies = h != 0 and n > 0 and q[MANAGER] == COPY_ALWAYS
    target = _filled(q, h, n) if copies else 0
    if copies and target == 0:
        h = 0
    parts = lines(q[PARTS], q[MOST_PARTS], PART)
    at = line[FIRST]
    while at >= 0 and h != 0:
        block, own, held = parts[at, BLOCK], parts[at, AT] + offset, parts[at, SAMPLES]
        if copies:
            _gather(own, _step(q, block, base), target, size, held)
            q[COPIED] += size * held
            target += size * held
        elif not _add_part(q, h, block, own, held):
            _free(q, h)
            h = 0
        at = parts[at, NEXT]
    unlock(s)
    return h


@njit("void(int64, int64, int64)", nogil=True, cache=True)
def place(g: int, base: int, start: int) -> None:
    """Puts a segment that nobody else has at number ``start`` of the timebase of ``base``."""
    line = words(g, SEGMENT)
    s = line[OWNER]
    lock(s)
    use_timebase(words(s, STORE), base, 1)
    use_timebase(words(s, STORE), line[BASE], -1)
    line[BASE], line[START] = (base & ~KIND) | (line[BASE] & KIND), start
    unlock(s)


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def moved(g: int, base: int, start: int) -> int:
    """The samples of a segment as those from number ``start`` on of the timebase of ``base``, which
    has the form of a segment's word BASE; 0: no room."""
    h = subseg(g, 0, words(g, SEGMENT)[LENGTH])
    if h != 0:
        place(h, base, start)
    return h


@njit("int64(int64)", nogil=True, cache=True)
def pass_on(g: int) -> int:
    """The segment as the next operator gets it, with a reference of its own."""
    line = words(g, SEGMENT)
    if words(line[OWNER], STORE)[MANAGER] == COPY_ALWAYS:
        return subseg(g, 0, line[LENGTH])
    retain(g)
    return g


@njit("boolean(int64, int64)", nogil=True, cache=True)
def are_adjacent(g: int, h: int) -> bool:
    """Whether segment ``h`` begins where ``g`` ends, in the same timebase."""
    a, b = words(g, SEGMENT), words(h, SEGMENT)
    return a[BASE] == b[BASE] and a[START] + a[LENGTH] == b[START]


@njit("boolean(int64[::1], int64, int64)", nogil=True, cache=True)
def _extended(q: Any, g: int, h: int) -> bool:
    """RefCount-Realloc: extends the block of ``g``, which nobody else has, by the samples of ``h``;
    whether it could."""
    line, n = words(g, SEGMENT), words(h, SEGMENT)[LENGTH]
    at = line[FIRST]
    if line[REFERENCES] != 1 or at < 0 or at != line[LAST]:
        return False
    part = words(q[PARTS] + 8 * PART * at, PART)
    block = words(q[BLOCKS] + 8 * BLOCK_WORDS * part[BLOCK], BLOCK_WORDS)
    if block[SHARES] != 1 or block[MADE] != 1 or part[AT] != block[DATA]:
        return False
    size = sample_bytes(line[BASE])
    if _step(q, part[BLOCK], line[BASE]) != size:
        return False
    held, more = size * line[LENGTH], size * n
    if held + more > block[SIZE]:
        moved = reallocate(block[DATA], held + more)
        if moved == 0:
            return False
        q[BYTES] += held + more - block[SIZE]
        block[DATA], block[SIZE] = moved, held + more
    _copy_samples(q, h, 0, n, block[DATA] + held)
    part[AT] = line[FLAT] = block[DATA]
    part[SAMPLES] += n
    line[LENGTH] += n
    return True


@njit("int64(int64[::1], int64, int64)", nogil=True, cache=True)
def _joined(q: Any, g: int, h: int) -> int:
    """A new segment with the samples of both; 0: no room."""
    a, b = words(g, SEGMENT), words(h, SEGMENT)
    n = a[LENGTH] + b[LENGTH]
    made = _segment(q, a[BASE], a[START], n)
    if made == 0 or n == 0:
        return made
    if q[MANAGER] == REFCOUNT_LAZY:
        if _share(q, g, made, 0, a[LENGTH]) and _share(q, h, made, 0, b[LENGTH]):
            return made
        _free(q, made)
        return 0
    target = _filled(q, made, n)
    if target == 0:
        return 0
    _copy_samples(q, g, 0, a[LENGTH], target)
    _copy_samples(q, h, 0, b[LENGTH], target + a[LENGTH] * sample_bytes(a[BASE]))
    return made


@njit("int64(int64, int64)", nogil=True, cache=True)
def append(g: int, h: int) -> int:
    """The samples of ``g`` and behind them those of ``h``, which are of the same kind. Takes the
    caller's reference of ``g``; 0: no room, and the reference of ``g`` stays."""
    s = words(g, SEGMENT)[OWNER]
    q = words(s, STORE)
    lock(s)
    made = g
    if q[MANAGER] == REFCOUNT_LAZY and words(g, SEGMENT)[REFERENCES] == 1:
        line, n = words(g, SEGMENT), words(h, SEGMENT)[LENGTH]
        last, samples = line[LAST], 0
        if last >= 0:
            samples = lines(q[PARTS], q[MOST_PARTS], PART)[last, SAMPLES]
        if _share(q, h, g, 0, n):
            line[LENGTH] += n
        else:
            made = 0
            if last >= 0:
                _cut_back(q, g, last, samples)
            else:
                _drop_parts(q, g)
    elif q[MANAGER] != REFCOUNT_REALLOC or not _extended(q, g, h):
        made = _joined(q, g, h)
    unlock(s)
    if made != 0 and made != g:
        release(g)
    return made


@njit("int64(int64)", nogil=True, cache=True)
def flat(g: int) -> int:
    """The address of the segment's samples one after the other. Samples in several ranges are
    brought together once (materialised); 0: no room, or no samples."""
    address = load_acquire(g + 8 * FLAT)
    line = words(g, SEGMENT)
    if address != 0 or line[LENGTH] == 0:
        return address
    s = line[OWNER]
    q = words(s, STORE)
    lock(s)
    address = line[FLAT]
    if address == 0:
        n = line[LENGTH]
        h = _segment(q, line[BASE], line[START], n)
        if h != 0:
            address = _filled(q, h, n)
        if address != 0:
            _copy_samples(q, g, 0, n, address)
            _drop_parts(q, g)
            made = words(h, SEGMENT)
            line[FIRST], line[LAST] = made[FIRST], made[LAST]
            made[FIRST] = made[LAST] = -1
            _free(q, h)
            store_release(g + 8 * FLAT, address)
    unlock(s)
    return address


@njit("UniTuple(int64, 3)(int64)", nogil=True, cache=True)
def in_rows(g: int) -> tuple[int, int, int]:
    """The block of rows that has the samples of a segment, the address of the first and the bytes
    to the next. The caller has a share of the block and gives it back (``let_go``); -1: the samples
    are not in the rows of one block, or have been brought together."""
    line = words(g, SEGMENT)
    s = line[OWNER]
    q = words(s, STORE)
    lock(s)
    block, at, step = -1, 0, 0
    if line[FLAT] == 0 and line[FIRST] >= 0 and line[FIRST] == line[LAST]:
        part = words(q[PARTS] + 8 * PART * line[FIRST], PART)
        block, at = part[BLOCK], part[AT]
        held = words(q[BLOCKS] + 8 * BLOCK_WORDS * block, BLOCK_WORDS)
        held[SHARES] += 1
        step = held[STEP]
    unlock(s)
    return block, at, step


@njit("void(int64, int64, int64, int64)", nogil=True, cache=True)
def copy_out(g: int, skip: int, n: int, target: int) -> None:
    """Copies ``n`` samples behind the first ``skip`` to an address."""
    s = words(g, SEGMENT)[OWNER]
    lock(s)
    _copy_samples(words(s, STORE), g, skip, n, target)
    unlock(s)


@njit("void(int64)", nogil=True, cache=True)
def free_blocks(s: int) -> None:
    """Frees all blocks that the store made, at its end."""
    q = words(s, STORE)
    for block in range(q[USED_BLOCKS]):
        line = words(q[BLOCKS] + 8 * BLOCK_WORDS * block, BLOCK_WORDS)
        if line[DATA] != 0 and line[MADE] == 1:
            deallocate(line[DATA])
            line[DATA] = 0
    q[BYTES] = 0


# -- the segments of morsels -----------------------------------------------------------------------


@njit("void(int64, int64)", nogil=True, cache=True)
def note_young(g: int, serial: int) -> None:
    """Leaves the caller's reference to the store until the morsel with this serial number is
    through (``sweep``)."""
    s = words(g, SEGMENT)[OWNER]
    q = words(s, STORE)
    lock(s)
    if q[NEXT_YOUNG] - q[FIRST_YOUNG] == q[MOST_SEGMENTS]:
        q[FULL] = NO_ROOM  # the segment stays until the store is closed
    else:
        at = q[YOUNG] + 8 * YOUNG_WORDS * (q[NEXT_YOUNG] % q[MOST_SEGMENTS])
        line = words(at, YOUNG_WORDS)
        line[SERIAL], line[MADE_SEGMENT] = serial, g
        q[NEXT_YOUNG] += 1
    unlock(s)


@njit("int64(int64)", nogil=True, cache=True)
def drop_samples(g: int) -> int:
    """Gives the samples of a young segment back, which nobody reads any more; returns 0. Without
    it they would stay until the morsel is through."""
    line = words(g, SEGMENT)
    s = line[OWNER]
    lock(s)
    if line[REFERENCES] == 1 and line[FIRST] >= 0:
        _drop_parts(words(s, STORE), g)
        line[LENGTH] = 0
    unlock(s)
    return 0


@njit("void(int64, int64)", nogil=True, cache=True)
def sweep(s: int, through: int) -> None:
    """Releases what was noted for morsels up to the serial number ``through``."""
    q = words(s, STORE)
    lock(s)
    while q[FIRST_YOUNG] < q[NEXT_YOUNG]:
        at = q[YOUNG] + 8 * YOUNG_WORDS * (q[FIRST_YOUNG] % q[MOST_SEGMENTS])
        line = words(at, YOUNG_WORDS)
        if line[SERIAL] > through:
            break
        g = line[MADE_SEGMENT]
        q[FIRST_YOUNG] += 1
        if fetch_add(g, -1) == 1:
            _free(q, g)
    unlock(s)
