"""A worker loop for two threads, to prove that operators carry an ordered runtime: a test tool.

Each source's path through the graph is a chain of stages; all chains have the same number. A stage
whose operators keep no state may run several serials at once, each into its own output chunks; any
other runs serials in order, by whichever thread holds its turn. ``work`` is entered by both threads
and stays without the GIL until an operator needs Python (NEED, ERROR, an operator in Python), a
unit is missing, or the serial whose turn it is has left the last stage and is delivered.

Chunks are numbered; the chunks of one (level, serial) are a linked list, where level 0 is the input
and level k + 1 the output of stage k. They are free again only when their serial is delivered,
because operators pass columns on by reference.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit, types
from operator_tools import Admissions, Recorder

from cql.executor.graph import SINK, Graph
from cql.executor.kernels.atomics import compare_and_swap, load_acquire, store_release
from cql.executor.kernels.drive import clear_output, start_unit
from cql.executor.kernels.memory import call_operator, words
from cql.executor.operators.native import Operator, StageOperator, Workspace
from cql.executor.runtimes.protocol import Failure
from cql.executor.unit import (
    DETAIL_ROW,
    DONE,
    ERROR,
    HEADER,
    NEED,
    OUT,
    PUNCTUATIONS,
    ROWS,
    Unit,
)

Words = npt.NDArray[np.int64]
MOST_CHUNKS = 1 << 18

# Events.
FINISHED = 0
NEEDS = 1
FAILED = 2
PYTHON = 3
NEED_UNIT = 4
DELIVER = 5

# A worker's words.
STAGE = 0  # -1: nothing claimed
AT = 1  # serial
CHUNK = 2  # input chunk, -1 after the last
OUTPUT = 3  # output chunk, -1 for none
FRESH = 4  # the input chunk has not been started
RESULT = 5  # what a Python operator returned
RANDOM = 6
WORKER = 7
WORKED = 8  # operator calls
NOT_CALLED = -1


class Tables(NamedTuple):
    """``turn``, ``lock``: per stage, the sink last. ``first``, ``last``, ``done``: per (level,
    serial). ``path``, ``port``: per (source, stage). ``address``, ``free``: per operator."""

    serial: Words  # per stage: 1 if it keeps the order
    source: Words  # per serial
    path: Words
    port: Words
    address: Words
    turn: Words
    lock: Words
    first: Words
    last: Words
    done: Words
    free: Words
    unit: Words  # per chunk: address
    owner: Words  # per chunk: operator
    next: Words  # per chunk
    flags: Words  # 0: stop, 1: lock of the free lists


_sched_yield = types.ExternalFunction("sched_yield", types.int32())


@njit(inline="always")
def _at(array: Any, i: int) -> int:
    return array.ctypes.data + 8 * i


@njit(nogil=True, cache=True)
def _maybe_yield(me: Any) -> None:
    """Gives the processor away at one point in four."""
    x = me[RANDOM]
    x ^= x << 13
    x ^= (x >> 7) & 0x01FFFFFFFFFFFFFF
    x ^= x << 17
    me[RANDOM] = x
    if x & 3 == 0:
        _sched_yield()


@njit(nogil=True, cache=True)
def give(t: Any, chunk: int) -> None:
    """Puts a chunk on its operator's free list."""
    while compare_and_swap(_at(t.flags, 1), 0, 1) != 0:
        _sched_yield()
    operator = t.owner[chunk]
    t.next[chunk] = t.free[operator]
    t.free[operator] = chunk
    store_release(_at(t.flags, 1), 0)


@njit(nogil=True, cache=True)
def _take(t: Any, operator: int) -> int:
    while compare_and_swap(_at(t.flags, 1), 0, 1) != 0:
        _sched_yield()
    chunk = t.free[operator]
    if chunk >= 0:
        t.free[operator] = t.next[chunk]
    store_release(_at(t.flags, 1), 0)
    return chunk


@njit(nogil=True, cache=True)
def _claim(t: Any, me: Any) -> bool:
    """Claims the next serial of the last stage that has one; both workers get one at least."""
    n = t.source.size
    for stage in range(t.serial.size - 1, -1, -1):
        turn = _at(t.turn, stage)
        s = load_acquire(turn)
        if s >= n or load_acquire(_at(t.done, stage * n + s)) == 0:
            continue
        if stage == 0 and s < 2 and s != me[WORKER]:
            continue
        _maybe_yield(me)
        if t.serial[stage] != 0:
            if compare_and_swap(_at(t.lock, stage), 0, 1) != 0:
                continue
            if load_acquire(turn) != s:
                store_release(_at(t.lock, stage), 0)
                continue
        elif compare_and_swap(turn, s, s + 1) != s:
            continue
        me[STAGE] = stage
        me[AT] = s
        me[CHUNK] = t.first[stage * n + s]
        me[OUTPUT] = -1
        me[FRESH] = 1
        return True
    return False


@njit(nogil=True, cache=True)
def _leave(t: Any, me: Any) -> None:
    """Publishes what the stage gave for this serial, and passes the turn on."""
    n = t.source.size
    stage = me[STAGE]
    if stage < t.serial.size - 1:
        store_release(_at(t.done, (stage + 1) * n + me[AT]), 1)
    _maybe_yield(me)
    if t.serial[stage] != 0:
        store_release(_at(t.turn, stage), me[AT] + 1)
        store_release(_at(t.lock, stage), 0)
    me[STAGE] = -1


@njit(nogil=True, cache=True)
def delivered(t: Any, me: Any) -> None:
    """The sink is done with its serial: all its chunks are free."""
    n = t.source.size
    for level in range(1, t.serial.size):
        chunk = t.first[level * n + me[AT]]
        while chunk >= 0:
            following = t.next[chunk]
            give(t, chunk)
            chunk = following
    if me[AT] == n - 1:
        store_release(_at(t.flags, 0), 1)
    _leave(t, me)


@njit(inline="always")
def _append(t: Any, place: int, chunk: int) -> None:
    t.next[chunk] = -1
    if t.first[place] < 0:
        t.first[place] = chunk
    else:
        t.next[t.last[place]] = chunk
    t.last[place] = chunk


@njit(nogil=True, cache=True)
def work(t: Any, me: Any, descriptor: Any) -> int:
    """Runs until all is delivered (FINISHED) or Python is needed; call again to go on."""
    n = t.source.size
    stages = t.serial.size - 1  # without the sink
    while load_acquire(_at(t.flags, 0)) == 0:
        if me[STAGE] < 0 and not _claim(t, me):
            _sched_yield()
            continue
        _maybe_yield(me)
        stage = me[STAGE]
        if stage == stages:
            return DELIVER
        if me[CHUNK] < 0:
            _leave(t, me)
            continue
        place = t.source[me[AT]] * stages + stage
        operator = t.path[place]
        unit = words(t.unit[me[CHUNK]], HEADER)
        if me[OUTPUT] < 0:
            me[OUTPUT] = _take(t, operator)
            if me[OUTPUT] < 0:
                return NEED_UNIT
            clear_output(words(t.unit[me[OUTPUT]], HEADER))
            if me[FRESH] != 0:
                start_unit(unit, t.port[place], t.unit[me[OUTPUT]])
                me[FRESH] = 0
            unit[OUT] = t.unit[me[OUTPUT]]
        if t.address[operator] == 0:
            if me[RESULT] == NOT_CALLED:
                return PYTHON
            code = me[RESULT]
            me[RESULT] = NOT_CALLED
        else:
            code = call_operator(t.address[operator], descriptor[operator], t.unit[me[CHUNK]])
        me[WORKED] += 1
        if code == NEED:
            return NEEDS
        if code == ERROR:
            return FAILED
        out = words(t.unit[me[OUTPUT]], HEADER)
        if out[ROWS] > 0 or out[PUNCTUATIONS] > 0:
            _append(t, (stage + 1) * n + me[AT], me[OUTPUT])
        else:
            give(t, me[OUTPUT])
        me[OUTPUT] = -1
        if code == DONE:
            me[CHUNK] = t.next[me[CHUNK]]
            me[FRESH] = 1
    return FINISHED


class TwoThreads:
    """Runs a graph whose sources' paths are chains of equal length over prepared units."""

    def __init__(
        self,
        graph: Graph,
        admissions: Admissions,
        recorder: Recorder,
        workspace: Workspace,
        seed: int,
    ) -> None:
        self.graph = graph
        self.recorder = recorder
        self.events = [0] * 6
        self.operators = [list(graph.operators), _twins(graph, workspace)]
        self._rows, self._ones = workspace.unit_rows, int(workspace.ones.ctypes.data)
        self._lock = threading.Lock()
        self._units = [unit for _, unit in admissions.units]
        self._errors: list[BaseException] = []
        self._tables = self._wire(admissions)
        self._workers = np.zeros((2, 9), np.int64)
        self._workers[:, [STAGE, RESULT]] = -1, NOT_CALLED
        self._workers[:, WORKER] = 0, 1
        self._workers[:, RANDOM] = np.random.default_rng(seed).integers(1, 1 << 62, 2)
        self._descriptors = np.array(
            [[op.descriptor.ctypes.data for op in own] for own in self.operators], np.int64
        )

    def _wire(self, admissions: Admissions) -> Tables:
        paths = [self._path(k) for k in range(len(self.graph.entries))]
        stages, n = len(paths[0]), len(self._units)
        assert all(len(p) == stages for p in paths), "chains of equal length only"
        kept = [any(_in_order(self.graph.operators[p[k][0]]) for p in paths) for k in range(stages)]
        first = np.full((stages + 1) * n, -1, np.int64)
        done = np.zeros((stages + 1) * n, np.int64)
        first[:n], done[:n] = np.arange(n), 1
        unit = np.zeros(MOST_CHUNKS, np.int64)
        unit[:n] = [u.address for u in self._units]
        return Tables(
            serial=np.array([*kept, True], np.int64),
            source=np.array([k for k, _ in admissions.units], np.int64),
            path=np.array([op for p in paths for op, _ in p], np.int64),
            port=np.array([port for p in paths for _, port in p], np.int64),
            address=np.array([op.address for op in self.graph.operators], np.int64),
            turn=np.zeros(stages + 1, np.int64),
            lock=np.zeros(stages + 1, np.int64),
            first=first,
            last=first.copy(),
            done=done,
            free=np.full(len(self.graph.operators), -1, np.int64),
            unit=unit,
            owner=np.zeros(MOST_CHUNKS, np.int64),
            next=np.full(MOST_CHUNKS, -1, np.int64),
            flags=np.zeros(2, np.int64),
        )

    def _path(self, source: int) -> list[tuple[int, int]]:
        edge = self.graph.entries[source]
        assert edge is not None
        path = []
        while edge.target != SINK:
            path.append((edge.target, edge.port))
            (edge,) = self.graph.edges[edge.target]
        return path

    def run(self) -> None:
        threads = [threading.Thread(target=self._worker, args=(w,)) for w in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    @property
    def calls(self) -> list[int]:
        """Operator calls of each worker."""
        return [int(n) for n in self._workers[:, WORKED]]

    def counters(self, operator: int) -> dict[str, int]:
        """An operator's counters, added up over the workers' instances of it."""
        own = {id(ops[operator]): ops[operator].counters() for ops in self.operators}
        return {name: sum(c[name] for c in own.values()) for name in next(iter(own.values()))}

    def _worker(self, w: int) -> None:
        me = self._workers[w]
        try:
            while (event := int(work(self._tables, me, self._descriptors[w]))) != FINISHED:
                with self._lock:
                    self.events[event] += 1
                    self._answer(w, me, event)
        except BaseException as error:  # raised by the thread that waits
            self._errors.append(error)
            self._tables.flags[0] = 1

    def _answer(self, w: int, me: Words, event: int) -> None:
        if event == DELIVER:
            self._deliver(me)
            return
        t = self._tables
        place = int(t.source[me[AT]]) * (t.serial.size - 1) + int(me[STAGE])
        index = int(t.path[place])
        operator, unit = self.operators[w][index], self._units[int(me[CHUNK])]
        if event == NEEDS:
            operator.provide(unit)
        elif event == FAILED:
            row, fatal = int(unit.words[DETAIL_ROW]), operator.is_fatal(unit)
            failure = Failure(operator.name, operator.error(unit), unit, row, fatal)
            self.recorder.failed(failure)
        elif event == PYTHON:
            me[RESULT] = operator.call(unit, self._units[int(me[OUTPUT])])
        else:
            assert event == NEED_UNIT
            self._new_unit(index)

    def _deliver(self, me: Words) -> None:
        t = self._tables
        chunk = int(t.first[t.first.size - t.source.size + me[AT]])
        while chunk >= 0:
            self.recorder.deliver(self._units[chunk])
            chunk = int(t.next[chunk])
        delivered(t, me)

    def _new_unit(self, index: int) -> None:
        chunk, like = len(self._units), self.graph.units[index]
        schema = self.graph.schemas[index]
        owned = frozenset(i for i, data in enumerate(like.data) if data is not None)
        unit = Unit.allocate(
            schema,
            self._rows,
            ones=self._ones,
            owned=owned,
            stragglers=like.stragglers is not None,
        )
        self._units.append(unit)
        self._tables.unit[chunk], self._tables.owner[chunk] = unit.address, index
        give(self._tables, chunk)


def _in_order(operator: Operator) -> bool:
    return not isinstance(operator, StageOperator) or operator.spec.aggregate is not None


def _twins(graph: Graph, workspace: Workspace) -> list[Operator]:
    """The second worker's operators. Those that only count share one descriptor; a stateless one
    that asks Python for tables or columns has buffers that only one thread at a time may use."""
    twins: list[Operator] = []
    for operator in graph.operators:
        twin = operator
        if isinstance(operator, StageOperator) and not _in_order(operator):
            code = operator.code.kernel
            if code.hosts or code.tables or code.uses_rank:
                twin = StageOperator(operator.name, operator.spec, workspace)
                twin.allocate_host()
                twin.refresh()
        twins.append(twin)
    return twins
