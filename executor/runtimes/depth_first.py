"""The depth-first runtime: each admitted morsel goes through the whole plan before the next
(xstream paper III.C). The traversal itself is compiled (``kernels.drive.depth_first``); this class
answers when it needs Python."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np

from cql.base.uninterruptible import load_module
from cql.executor.graph.graph import Edge, Graph
from cql.executor.kernels.drive import depth_first
from cql.executor.kernels.morsel_layout import INFINITY, ROWS
from cql.executor.morsel.morsel import Morsel, Words, value_bytes
from cql.executor.morsel.morsel_size import fills
from cql.executor.run.input_scheduler import InputScheduler
from cql.executor.runtimes.protocol import Alone, Failure, Handler, at_work
from cql.executor.runtimes.times import OperatorClock, Times
from cql.executor.runtimes.wiring import Wiring

_SPARE_FRAMES = 4
#: So many outputs may wait to be read until a morsel is left for a while.
_WAITING = 8
#: Results of more than this part of a batch are not copied into one.
_SMALL = 8


class DepthFirst(Alone):
    """``ones`` is the address of a mask without NULLs. ``gather``: results of such an operator (of
    ``graph.sinks``) are delivered when they are that many rows, or by ``drain``. ``timed``: the
    time of operators is taken."""

    def __init__(
        self,
        graph: Graph,
        handler: Handler,
        *,
        ones: int,
        gather: Mapping[int, int] | None = None,
        timed: bool = False,
    ) -> None:
        self.graph = graph
        self.handler = handler
        self._ones = ones
        self._wiring = Wiring(graph)
        n = len(graph.operators)
        self._on_stack = np.zeros(n, np.int64)
        self._stack = np.zeros(depth_first.FRAME * (n + _SPARE_FRAMES), np.int64)
        self._control = np.zeros(8, np.int64)
        self._control[depth_first.RESULT] = depth_first.NOT_CALLED
        self._clock = OperatorClock(n, timed)
        self._control[depth_first.TIMES] = self._clock.address
        self._input: Morsel | None = None
        self._queued: list[deque[tuple[Morsel, int]]] = [deque() for _ in graph.operators]
        self._ran = np.zeros(n, np.int64)  # the number of each operator's last call
        self._gather = np.zeros(n, np.int64)
        self._collectors = np.zeros(n, np.int64)
        self._collected: dict[int, tuple[Morsel, Words]] = {}
        for operator, rows in (gather or {}).items():
            if fills(graph.operators[operator]):
                self._gather[operator] = rows
            elif rows > 0:
                self._collect(operator, rows)

    def _collect(self, operator: int, rows: int) -> None:
        """Small results of that operator are copied into a morsel until they are ``rows``."""
        schema = self.graph.schemas[operator]
        morsel = Morsel.allocate(schema, rows, ones=self._ones, masks=True)
        sizes = [value_bytes(f.type) for f in schema]
        record = np.array([morsel.address, rows // _SMALL, len(sizes), *sizes], np.int64)
        self._collected[operator] = morsel, record
        self._collectors[operator] = record.ctypes.data

    def rebind(self) -> None:
        self._wiring.rebind()

    @property
    def calls(self) -> int:
        return int(self._control[depth_first.CALLS])

    def times(self) -> Times | None:
        return self._clock.times()

    def admit(self, morsel: Morsel, edge: Edge) -> None:
        self.quiesce()
        self._enter(morsel, edge)
        self.go_on()

    def go_on(self, serial: int = INFINITY) -> bool:
        for _ in range(_WAITING):
            if not self._until_sink():
                self._take_queued()
                return False
        return True

    def _take_queued(self) -> None:
        """Morsels that closed a loop, those of the operator least recently run first."""
        while waiting := [k for k, queue in enumerate(self._queued) if queue]:
            operator = min(waiting, key=lambda k: int(self._ran[k]))
            copy, port = self._queued[operator].popleft()
            self._enter(copy, Edge(operator, port))
            while self._until_sink():
                pass

    def admit_next(self, scheduler: InputScheduler) -> bool:
        """The compiled loop cuts and runs morsels until Python is needed. A morsel whose output is
        large (a row of a join may have any number of partners) goes on with the next call."""
        waiting = 0
        while waiting < _WAITING:
            event = int(depth_first.cut_and_drive(scheduler.words.ctypes.data, *self._tables()))
            if event in (depth_first.IDLE, depth_first.USED_UP):
                self._take_queued()
                if event == depth_first.USED_UP:
                    self._hand_over_collected()
                return event == depth_first.IDLE
            self._input = scheduler.morsel
            self._answer(event)
            waiting += event in (depth_first.SINK, depth_first.COLLECTED)
        return True

    def is_through(self, serial: int) -> bool:
        return not self._control[depth_first.TOP] and not any(self._queued)

    def quiesce(self) -> None:
        """The morsel at hand goes through to the end; nothing else waits between admissions."""
        while self.go_on():
            pass

    def drain(self) -> None:
        """Also delivers what was gathered."""
        self.quiesce()
        for sink in self.graph.sinks:
            self._hand_over(self.graph.morsels[sink], sink)
        self._hand_over_collected()

    def _hand_over_collected(self) -> None:
        """Small results wait for others of the same block, not for the next one."""
        for sink, (morsel, _) in self._collected.items():
            self._hand_over(morsel, sink)

    def _hand_over(self, morsel: Morsel, sink: int) -> None:
        """The rows that were gathered become results."""
        if morsel.words[ROWS] > 0:
            self.handler.deliver(morsel, sink)
            depth_first.clear_output.py_func(morsel.words)

    def _enter(self, morsel: Morsel, edge: Edge) -> None:
        self._input = morsel
        operator = edge.target
        depth_first.enter(morsel.address, operator, edge.port, *self._tables())

    def _until_sink(self) -> bool:
        """Takes the morsel at hand on until something is delivered, or (False) to the end."""
        while (event := int(depth_first.drive(*self._tables()))) != depth_first.IDLE:
            self._answer(event)
            if event in (depth_first.SINK, depth_first.COLLECTED):
                return True
        return False

    def _tables(self) -> tuple[Words, ...]:
        return (
            *self._wiring.tables,
            self._on_stack,
            self._ran,
            self._gather,
            self._collectors,
            self._stack,
            self._control,
        )

    def _answer(self, event: int) -> None:
        frame = depth_first.FRAME * (int(self._control[depth_first.TOP]) - 1)
        index = int(self._stack[frame])
        operator = self.graph.operators[index]
        morsel = self._morsel_at(frame)
        match event:
            case depth_first.SINK:
                self.handler.deliver(self.graph.morsels[index], index)
            case depth_first.COLLECTED:
                self._hand_over(self._collected[index][0], index)
            case depth_first.NEEDS:
                with self._clock.of(index), at_work(operator.name):
                    operator.provide(morsel)
            case depth_first.FAILED:
                self.handler.failed(Failure.of(operator, morsel))
            case depth_first.PYTHON:
                with self._clock.of(index), at_work(operator.name):
                    result = operator.call(morsel, self.graph.morsels[index])
                self._control[depth_first.RESULT] = result
            case depth_first.LOOPED:
                edge = int(self._stack[frame + 3]) - 1
                target = int(self._wiring.edge_to[edge])
                port = int(self._wiring.edge_port[edge])
                load_module("cql.executor.kernels.drive.queued")  # which copies
                morsel = self.graph.morsels[index].copy(self.graph.schemas[index], self._ones)
                self._queued[target].append((morsel, port))
            case _:
                raise AssertionError(f"unknown event {event}")

    def _morsel_at(self, frame: int) -> Morsel:
        """The Python side of the morsel that the frame's operator reads."""
        address = int(self._stack[frame + 1])
        if self._input is not None and self._input.address == address:
            return self._input
        below = frame - depth_first.FRAME
        morsel = self.graph.morsels[int(self._stack[below])]
        assert morsel.address == address
        return morsel
