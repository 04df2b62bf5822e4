"""The runtimes with a queue in front of every operator: FIFO, FIFO-slice, run-to-completion."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cql.base.model import Schema
from cql.executor.graph.graph import SINK, Edge, Graph
from cql.executor.kernels.drive import queued
from cql.executor.kernels.morsel_layout import INFINITY, PUNCTUATIONS, ROWS
from cql.executor.morsel.morsel import Morsel, Words, value_bytes
from cql.executor.run.input_scheduler import InputScheduler
from cql.executor.runtimes.paths import meetings
from cql.executor.runtimes.protocol import Alone, Failure, Handler, at_work
from cql.executor.runtimes.times import OperatorClock, Times
from cql.executor.runtimes.wiring import Wiring
from cql.executor.state.store import BUFFERS

POLICIES = {
    "fifo": queued.FIFO,
    "fifo_slice": queued.FIFO_SLICE,
    "run_to_completion": queued.RUN_TO_COMPLETION,
}
#: Back-pressure: without bursts, after each admission operators run until at most this many morsels
#: wait inside; none where several paths of an input meet.
ADMITTED = 8
_SLOTS = 64


class Queued(Alone):
    """``inputs[k]`` are the schemas of the morsels that operator k reads, by port (see ``Graph``).
    ``policy`` is a key of POLICIES, ``slice_us`` the slice of FIFO-slice in microseconds, ``burst``
    the setting ``tuple_burst``.
    ``resize`` is called with the bytes before and after whenever morsels are allocated or freed.
    ``timed``: the time of the operators is measured."""

    def __init__(
        self,
        graph: Graph,
        handler: Handler,
        inputs: list[tuple[Schema, ...]],
        policy: str,
        *,
        ones: int,
        morsel_rows: int,
        slice_us: int,
        burst: int = 0,
        resize: Callable[[int, int, str], None] = lambda before, after, what: None,
        timed: bool = False,
    ) -> None:
        self.graph = graph
        self.handler = handler
        self._policy = POLICIES[policy]
        self._slice_ns = 1000 * slice_us
        self._widest, self._pool_of = _layouts(inputs)
        self._morsel_rows = morsel_rows
        self._resize = resize
        self._wiring = Wiring(graph)
        n = len(graph.operators)
        self._meets, self._adds = _meetings(graph)
        self._most = 0 if self._meets.any() else ADMITTED
        self._burst = 0 if self._meets.any() else burst
        self._came = 0  # rows of the burst so far
        self._column_from, self._sizes = _columns(inputs, _ports(graph))
        self._head = np.zeros(n, np.int64)
        self._tail = np.zeros(n, np.int64)
        self._spare = np.zeros(2 * len(self._widest), np.int64)
        self._slots = _SLOTS
        self._ring = np.zeros(n * _SLOTS, np.int64)
        self._pool_from = self._pools(_SLOTS)
        self._pool = np.zeros(2 * n * _SLOTS, np.int64)
        self._ready = np.zeros(n + 1, np.int64)
        self._control = np.zeros(16, np.int64)
        self._control[queued.OPERATOR] = -1
        self._control[queued.RESULT] = queued.NOT_CALLED
        self._clock = np.zeros(2, np.int64)  # scratch for reading the clock
        self._operator_clock = OperatorClock(n, timed)
        self._control[queued.TIMES] = self._operator_clock.address
        self._morsels: dict[int, Morsel] = {}

    def rebind(self) -> None:
        self._wiring.rebind()

    @property
    def calls(self) -> int:
        return int(self._control[queued.CALLS])

    def times(self) -> Times | None:
        return self._operator_clock.times()

    def admit(self, morsel: Morsel, edge: Edge) -> None:
        while event := self._enqueue(morsel, edge):
            self._answer(event)
        self._came += int(morsel.words[ROWS])
        if self._came < self._burst:
            return
        self._came = 0
        self._run(0 if self._burst else self._most)

    def go_on(self, serial: int = INFINITY) -> bool:
        return False

    def admit_next(self, scheduler: InputScheduler) -> bool:
        """Empties the queues before a turn of another input begins: queues keep the order within
        each input, but not the order among inputs."""
        if scheduler.is_over:
            self.quiesce()
        if not scheduler.take():
            return False
        morsel = scheduler.morsel
        if morsel.words[ROWS] > 0 or morsel.words[PUNCTUATIONS] > 0:
            self.admit(morsel, scheduler.edge)
        return True

    def is_through(self, serial: int) -> bool:
        return self._control[queued.OPERATOR] < 0 and bool((self._head == self._tail).all())

    def quiesce(self) -> None:
        self._came = 0
        self._run(0)
        self._shrink()

    def _shrink(self) -> None:
        """Frees the spare morsels that a burst needed; each pool keeps at most ADMITTED."""
        if len(self._morsels) <= ADMITTED * len(self._spare):
            return
        for k in range(len(self._spare)):
            first = int(self._pool_from[k])
            for place in range(first + ADMITTED, first + int(self._spare[k])):
                morsel = self._morsels.pop(int(self._pool[place]))
                self._resize(morsel.nbytes, 0, BUFFERS)
            self._spare[k] = min(int(self._spare[k]), ADMITTED)

    def drain(self) -> None:
        self.quiesce()

    def _enqueue(self, morsel: Morsel, edge: Edge) -> int:
        return int(
            queued.enqueue(
                edge.target,
                morsel.address,
                edge.port,
                0,
                self._ring,
                self._slots,
                self._head,
                self._tail,
                self._pool_of,
                self._pool_from,
                self._pool,
                self._spare,
                self._column_from,
                self._sizes,
                self._ready,
                self._control,
            )
        )

    def _run(self, until: int) -> None:
        while event := self._step(until):
            self._answer(event)

    def _step(self, until: int) -> int:
        return int(
            queued.run(
                self._policy,
                self._slice_ns,
                until,
                *self._wiring.tables,
                self._meets,
                self._adds,
                self._ring,
                self._slots,
                self._head,
                self._tail,
                self._pool_of,
                self._pool_from,
                self._pool,
                self._spare,
                self._column_from,
                self._sizes,
                self._ready,
                self._control,
                self._clock.ctypes.data,
            )
        )

    def _answer(self, event: int) -> None:
        if event == queued.NEED_MORSEL:
            self._new_morsel(int(self._control[queued.WANTS]))
            return
        if event == queued.NEED_ROOM:
            self._more_room()
            return
        index = int(self._control[queued.OPERATOR])
        operator = self.graph.operators[index]
        morsel = self._morsels[int(self._control[queued.MORSEL])]
        match event:
            case queued.SINK:
                self.handler.deliver(self.graph.morsels[index], index)
            case queued.NEEDS:
                with self._operator_clock.of(index), at_work(operator.name):
                    operator.provide(morsel)
            case queued.FAILED:
                self.handler.failed(Failure.of(operator, morsel))
            case queued.PYTHON:
                with self._operator_clock.of(index), at_work(operator.name):
                    result = operator.call(morsel, self.graph.morsels[index])
                self._control[queued.RESULT] = result
            case _:
                raise AssertionError(f"unknown event {event}")

    def _pools(self, slots: int) -> Words:
        """``pool_from`` of the driver: each pool has the morsels of full queues of its
        operators."""
        operators = np.bincount(self._pool_of // 2, minlength=len(self._widest))
        ends = np.cumsum(np.repeat(operators, 2) * slots)
        return np.concatenate([[0], ends[:-1]]).astype(np.int64)

    def _new_morsel(self, pool: int) -> None:
        rows = self._morsel_rows if pool % 2 else min(queued.SMALL, self._morsel_rows)
        morsel = Morsel.allocate(self._widest[pool // 2], rows, ones=0, late_rows=True, masks=True)
        self._resize(0, morsel.nbytes, BUFFERS)
        self._morsels[morsel.address] = morsel
        self._pool[int(self._pool_from[pool]) + int(self._spare[pool])] = morsel.address
        self._spare[pool] += 1

    def _more_room(self) -> None:
        """Doubles every queue and pool, and moves their entries to the new places."""
        n, old = len(self.graph.operators), self._slots
        ring, pool = np.zeros(2 * n * old, np.int64), np.zeros(2 * 2 * n * old, np.int64)
        for k in range(n):
            waiting = np.arange(self._head[k], self._tail[k])
            places = k * old + waiting % old
            ring[k * 2 * old + waiting % (2 * old)] = self._ring[places]
        firsts = self._pools(2 * old)
        for before, first, spare in zip(
            self._pool_from.tolist(), firsts.tolist(), self._spare.tolist(), strict=True
        ):
            pool[first : first + spare] = self._pool[before : before + spare]
        self._ring, self._pool, self._pool_from, self._slots = ring, pool, firsts, 2 * old


def _layouts(inputs: list[tuple[Schema, ...]]) -> tuple[list[Schema], Words]:
    """The schemas whose morsels wait, one for each layout; and ``pool_of`` of the driver."""
    found: dict[tuple[tuple[int, bool], ...], int] = {}
    schemas: list[Schema] = []
    pools: list[int] = []
    for ports in inputs:
        widest = _widest(ports)
        layout = tuple((value_bytes(f.type), f.type.can_progress) for f in widest)
        if layout not in found:
            found[layout] = len(schemas)
            schemas.append(widest)
        pools.append(2 * found[layout])
    return schemas, np.array(pools, np.int64)


def _ports(graph: Graph) -> list[int]:
    """The number of ports of each operator."""
    found = [1] * len(graph.operators)
    fed = [e for e in graph.entries if e is not None] + [e for _, e in graph.constants]
    for edge in [*fed, *(e for edges in graph.edges for e in edges)]:
        if edge.target != SINK:
            found[edge.target] = max(found[edge.target], edge.port + 1)
    return found


def _columns(inputs: list[tuple[Schema, ...]], ports: list[int]) -> tuple[Words, Words]:
    """``column_from`` and ``sizes`` of ``kernels.drive.queued``."""
    firsts: list[int] = []
    begins: list[int] = []
    sizes: list[int] = []
    for schemas, n in zip(inputs, ports, strict=True):
        firsts.append(len(inputs) + len(begins))
        for port in range(n):
            begins.append(len(sizes))
            sizes += [value_bytes(f.type) for f in schemas[min(port, len(schemas) - 1)]]
    table = [*firsts, *begins, len(sizes)]
    return np.array(table, np.int64), np.array([*sizes, 0], np.int64)


def _widest(schemas: tuple[Schema, ...]) -> Schema:
    """A schema whose buffers are large enough for the columns of every port."""
    longest = max(schemas, key=len)
    return Schema(
        tuple(
            max((s[c] for s in schemas if c < len(s)), key=lambda f: value_bytes(f.type))
            for c in range(len(longest))
        )
    )


def _meetings(graph: Graph) -> tuple[Words, Words]:
    """``meets`` and ``adds`` of the driver; 0 everywhere in a graph that cannot keep depth-first
    order."""
    try:
        meets, adds = meetings(graph)
    except ValueError:
        meets, adds = [0] * len(graph.operators), [[0] * len(edges) for edges in graph.edges]
    return np.array(meets, np.int64), np.array([n for of in adds for n in of], np.int64)
