"""The depth-first runtime: each admitted morsel goes through the whole plan before the next one is
admitted (xstream paper III.C). The traversal itself is compiled (``kernels.drive.depth_first``);
this class serves its requests for Python."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np

from cql.base.uninterruptible import load_module
from cql.executor.graph.graph import Edge, Graph
from cql.executor.kernels.drive import depth_first
from cql.executor.kernels.morsel_layout import INFINITY, ROWS
from cql.executor.morsel.morsel import Morsel, Words, value_bytes
from cql.executor.run.input_scheduler import InputScheduler
from cql.executor.runtimes.protocol import Alone, Failure, Handler, at_work
from cql.executor.runtimes.times import OperatorClock, Times
from cql.executor.runtimes.wiring import Wiring

_SPARE_FRAMES = 4
#: Deliveries after which ``go_on`` and ``admit_next`` return, so that the results can be read.
_WAITING = 8
#: Results of more than 1/_SMALL of a batch are delivered without a copy into the batch.
_SMALL = 8


class DepthFirst(Alone):
    """``ones`` is the address of a mask without NULLs. ``gather`` maps an operator of
    ``graph.sinks`` to a number of rows: its results are gathered and delivered when they have this
    number of rows, or by ``drain``. ``timed``: the time of the operators is measured."""

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
        own = self._on_stack, self._ran, self._gather, self._collectors, self._stack, self._control
        arrays = (*self._wiring.tables, *own)
        self._addresses = np.array([a.ctypes.data for a in arrays], np.int64)
        self._tables = int(self._addresses.ctypes.data)
        for operator, rows in (gather or {}).items():
            if graph.operators[operator].any_instance.fills:
                self._gather[operator] = rows
            elif rows > 0:
                self._collect(operator, rows)

    def _collect(self, operator: int, rows: int) -> None:
        """Makes the morsel into which small results of an operator are copied, up to ``rows``
        rows."""
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
        """Runs the queued morsels that came back over the edge of a loop; the queue of the least
        recently run operator first."""
        while waiting := [k for k, queue in enumerate(self._queued) if queue]:
            operator = min(waiting, key=lambda k: int(self._ran[k]))
            copy, port = self._queued[operator].popleft()
            self._enter(copy, Edge(operator, port))
            while self._until_sink():
                pass

    def admit_next(self, scheduler: InputScheduler) -> bool:
        """Runs the compiled loop, which cuts and runs morsels until Python is needed. A morsel with
        a large output (a row of a join can have any number of partners) continues in the next
        call."""
        waiting = 0
        while waiting < _WAITING:
            event = int(depth_first.cut_and_drive(scheduler.address, self._tables))
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
        """Takes the current morsel through to the end; no other morsel waits between
        admissions."""
        while self.go_on():
            pass

    def drain(self) -> None:
        """Also delivers the gathered results."""
        self.quiesce()
        for sink in self.graph.sinks:
            self._hand_over(self.graph.morsels[sink], sink)
        self._hand_over_collected()

    def give_up(self) -> None:
        frames = self._stack[: depth_first.FRAME * int(self._control[depth_first.TOP])]
        frames = frames.reshape(-1, depth_first.FRAME)
        giving = set(frames[frames[:, 2] != 0, 0].tolist())  # operators whose output leaves now
        for sink in self.graph.sinks:
            if self._gather[sink] > 0 and sink not in giving:
                self._hand_over(self.graph.morsels[sink], sink)
        self._hand_over_collected()

    def _hand_over_collected(self) -> None:
        """Delivers the collected small results of a block at its end; they do not wait for results
        of the next block."""
        for sink, (morsel, _) in self._collected.items():
            self._hand_over(morsel, sink)

    def _hand_over(self, morsel: Morsel, sink: int) -> None:
        """Delivers the gathered rows of a sink, if there are any."""
        if morsel.words[ROWS] > 0:
            self.handler.deliver(morsel, sink)
            depth_first.clear_output.py_func(morsel.words)

    def _enter(self, morsel: Morsel, edge: Edge) -> None:
        self._input = morsel
        operator = edge.target
        depth_first.enter(morsel.address, operator, edge.port, self._tables)

    def _until_sink(self) -> bool:
        """Runs the current morsel until a result is delivered (True), or to its end (False)."""
        while (event := int(depth_first.drive(self._tables))) != depth_first.IDLE:
            self._answer(event)
            if event in (depth_first.SINK, depth_first.COLLECTED):
                return True
        return False

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
                load_module("cql.executor.kernels.drive.queued")  # ``Morsel.copy`` needs it
                morsel = self.graph.morsels[index].copy(self.graph.schemas[index], self._ones)
                self._queued[target].append((morsel, port))
            case _:
                raise AssertionError(f"unknown event {event}")

    def _morsel_at(self, frame: int) -> Morsel:
        """The Morsel object of the morsel that the frame's operator reads."""
        address = int(self._stack[frame + 1])
        if self._input is not None and self._input.address == address:
            return self._input
        below = frame - depth_first.FRAME
        morsel = self.graph.morsels[int(self._stack[below])]
        assert morsel.address == address
        return morsel
