"""The ordered multicore runtime (ordered-multicore paper): any number of workers, and the order of
one. The workers' loop is compiled (``kernels.ordered.worker``); this class answers when one needs
Python, and is worker 0 itself."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from operator import itemgetter
from typing import ClassVar, Protocol

from cql.base.model import Schema
from cql.executor.graph.graph import Edge, Graph
from cql.executor.kernels.lib import condition, mpmc_queue
from cql.executor.kernels.morsel_layout import BASE, FEED, INFINITY, OPERATOR, PHASE, SERIAL, WAY
from cql.executor.kernels.ordered import admission, handover, schedulers, tables
from cql.executor.kernels.ordered import worker as workers
from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.flow.replicas import Instances, ReplicatedOperator, calls_users
from cql.executor.run.input_scheduler import InputScheduler
from cql.executor.runtimes.crew import Crew
from cql.executor.runtimes.paths import depth_first_ranks
from cql.executor.runtimes.protocol import Failure, Handler, at_work, failing_row
from cql.executor.runtimes.tables import Tasks
from cql.executor.runtimes.times import Times
from cql.planner.placement.choose_runtime import WINDOW_SLICES

WORKLISTS = {
    "hybrid": tables.HYBRID,
    "partitioned": tables.PARTITIONED_QUEUE,
    "shared": tables.SHARED_QUEUE,
}
#: Rows of a morsel before anything is known of what they cost.
_FIRST_ROWS = 256
POLICIES = {
    "ct": schedulers.CT,
    "lp": schedulers.LP,
    "et": schedulers.ET,
    "qst": schedulers.QST,
    "ct_printed": schedulers.CT_PRINTED,
}


class Observer(Protocol):
    """Who looks at a run (benchmarks do)."""

    def begun(self, tasks: Tasks) -> None:
        """Before the first morsel."""
        ...

    def ended(self, tasks: Tasks) -> None:
        """When all threads have left, before operators are let go."""
        ...


class Ordered:
    """Takes graphs that ``paths.check`` passes. ``inputs``: schemas of the feeds. ``gather``: the
    output of such an operator (of ``graph.sinks``) is delivered when it is that many rows, or by
    ``drain``; if ``live``, also when that of another block comes. ``morsel_us``: morsels take about
    so many microseconds of work, more where Python has to do something for each (``admission``), at
    most ``morsel_rows``; 0: they have as many rows as that. ``least`` is LP's threshold,
    ``capacity`` that of QST, ``window_us`` what CT looks over (0: 100 slices), ``slots`` the size
    of reorder buffers (0: as ``tasks.depth`` says). ``timed``: how long worklists are and
    outputs wait is measured, too."""

    #: Of tests (``tasks.CALM``).
    stress: ClassVar[int] = tables.CALM

    def __init__(
        self,
        graph: Graph,
        handler: Handler,
        inputs: Sequence[Schema],
        *,
        ones: int,
        morsel_rows: int,
        workers: int,
        policy: str = "ct",
        locked: bool = False,
        worklist: str = "hybrid",
        gather: Mapping[int, int] | None = None,
        live: bool = False,
        slice_us: int = 1000,
        least: int = 1,
        capacity: int = 256,
        window_us: int = 0,
        slots: int = 0,
        morsel_us: int = 0,
        resize: Callable[[int, int, str], None] = lambda before, after, what: None,
        timed: bool = False,
        observer: Observer | None = None,
    ) -> None:
        self.graph = graph
        self.handler = handler
        #: Held while results are given, bad rows told, and functions of users called.
        self._lock = threading.Lock()
        self._tasks = Tasks(
            graph,
            inputs,
            ones=ones,
            morsel_rows=morsel_rows,
            workers=workers,
            gather=gather or {},
            live=live,
            resize=resize,
            timed=timed,
            slots=slots,
        )
        plan = self._plan = self._tasks.plan
        plan[tables.POLICY] = POLICIES[policy]
        plan[tables.LOCKED], plan[tables.RANDOM] = locked, self.stress
        plan[tables.SCHEME] = WORKLISTS[worklist]
        plan[tables.SLICE] = 1000 * slice_us
        plan[tables.WINDOW] = 1000 * (window_us or WINDOW_SLICES * slice_us)
        plan[tables.LEAST], plan[tables.CAPACITY] = least, capacity
        plan[tables.MORSEL_WORK] = 1000 * morsel_us
        plan[tables.MORSEL_ROWS], plan[tables.MOST_ROWS] = (
            min(_FIRST_ROWS, morsel_rows),
            morsel_rows,
        )
        self._process = os.getpid()
        self._address = self._tasks.address
        self._bed = int(plan[tables.SLEEPING :].ctypes.data)
        self.workers = workers
        self._crew: Crew | None = None
        self._error: BaseException | None = None
        #: What failed, each with its place in the order of depth first.
        self._failures: list[tuple[tuple[int, ...], Exception]] = []
        self._ranks = depth_first_ranks(graph)
        self._observer = observer
        if observer is not None:
            observer.begun(self._tasks)

    # -- runtimes.protocol.Runtime -----------------------------------------------------------------

    @property
    def calls(self) -> int:
        order = self._tasks.order
        return sum(int(self._tasks.task(s)[tables.CALLS]) for s in range(len(order)))

    def times(self) -> Times | None:
        return self._tasks.times()

    def admit(self, morsel: Morsel, edge: Edge) -> None:
        k = self._tasks.entries.index(edge)
        while not admission.admit(self._address, k, morsel.address, 0):
            self._run_worker_zero(0)

    def go_on(self, serial: int = INFINITY) -> bool:
        while serial == INFINITY or not handover.all_through(self._address, serial):
            event = self._run_worker_zero(0)
            if event == workers.QUIET:
                return False
            if event in (workers.DELIVER, workers.LOOK):
                return True
        return False

    def admit_next(self, scheduler: InputScheduler) -> bool:
        while True:
            event = self._run_worker_zero(scheduler.words.ctypes.data)
            if event == workers.USED_UP:
                return False
            if event == workers.READ_AHEAD:
                scheduler.read_ahead()
            if event in (workers.DELIVER, workers.LOOK):
                return True

    def is_through(self, serial: int) -> bool:
        return bool(handover.all_through(self._address, serial))

    def quiesce(self) -> None:
        while self.go_on():
            pass

    def drain(self) -> None:
        self.quiesce()
        for operator, edge in self._tasks.collecting:
            if address := int(edge[tables.COLLECTING]):
                morsel = self._tasks.morsels[address]
                self.handler.deliver(morsel, operator, int(morsel.words[FEED]))
                mpmc_queue.offer(int(edge[tables.COLLECTORS]), address)
                edge[tables.COLLECTING] = 0

    def rebind(self) -> None:
        for s in range(len(self._tasks.order)):
            self._tasks.bind(s)
        for morsel in self._tasks.morsels.values():
            morsel.own_masks()

    def ask(self, *, halt: bool = False) -> None:
        if halt:
            self._plan[tables.WANTED] = 1
        self._tell(tables.ASKED, 1)

    def change(self, workers: int) -> None:
        """Tables are as large as cores like it, for which nothing may be inside."""
        if workers != self.workers:
            self.quiesce()
            self.rest()
            self._tasks.change(workers)
            self.workers = workers
        elif self._plan[tables.WANTED] != workers:  # halted by who was late to say so
            self.rest()

    def rest(self) -> None:
        if self._crew is None:
            return
        self._tell(tables.WANTED, 1)
        while self._tasks.worker(0)[tables.AT] >= 0:  # another worker may wait for its lock
            self._plan[tables.ASKED] = 1
            self._serve(0, int(admission.run_worker_zero(self._address, 0)))
        self._crew.join()
        self._crew = None

    def close(self) -> None:
        self._tell(tables.STOP, 1)
        if self._crew is not None:
            self._crew.join()
            self._crew = None  # it refers to this: morsels would stay until the collector comes
        if self._observer is not None:
            self._observer.ended(self._tasks)

    # -- workers -----------------------------------------------------------------------------------

    def _run_worker_zero(self, scheduler: int) -> int:
        """Worker 0 goes on until it has delivered something, or as ``admission.run_worker_zero`` says."""
        if self._failures:
            raise self._first_failure()
        if self._crew is None:
            self._plan[tables.WANTED] = self.workers
            self._crew = Crew(self._work, self.workers)
            self._crew.start()
        event = int(admission.run_worker_zero(self._address, scheduler))
        if self._error is not None:
            raise self._error
        self._serve(0, event)
        if self._failures:
            raise self._first_failure()
        return event

    def _work(self, w: int) -> None:
        try:
            while (event := int(workers.work(self._address, w))) != workers.LEFT:
                self._serve(w, event)
        except BaseException as error:  # worker 0 raises it
            self._error = error
            self._tell(tables.STOP, 1)

    def _tell(self, word: int, value: int) -> None:
        """Writes a word of the header, and wakes who waits for it."""
        self._plan[word] = value
        if os.getpid() == self._process:  # forked: a thread that is not there may hold its lock
            condition.wake(self._bed)

    def _serve(self, w: int, event: int) -> None:
        """What worker ``w`` needs. An error is not the query's yet: an earlier morsel may fail."""
        if event in (workers.QUIET, workers.USED_UP, workers.READ_AHEAD, workers.LOOK):
            return
        if event == workers.DELIVER:
            self._deliver()
            return
        began = time.perf_counter_ns()
        try:
            self._answer(w, event)
        except Exception as error:
            self._failed(w, event, error)
        spent, worker = time.perf_counter_ns() - began, self._tasks.worker(w)
        worker[tables.PYTHON_WORK] += spent
        if event in (workers.NEED_MORSEL, workers.NEED_MERGED):
            worker[tables.BEGAN] += spent  # the operator costs less once it has its morsels

    def _failed(self, w: int, event: int, error: Exception) -> None:
        """Nothing of what the worker was at, nor of what is behind it, goes on."""
        self._failures.append((self._place(w, event), error))
        worker = self._tasks.worker(w)
        lane = self._tasks.lane(int(worker[tables.AT]), int(worker[tables.ON]))
        if event == workers.NEED_MERGED:
            worker[tables.MERGING], lane[tables.MORSEL] = 0, 1
        lane[tables.STATE] = tables.FAILING
        self.ask()

    def _place(self, w: int, event: int) -> tuple[int, ...]:
        """Where what a worker is at stands in the order of depth first."""
        worker = self._tasks.worker(w)
        s, on = int(worker[tables.AT]), int(worker[tables.ON])
        row = phase = -1
        if event == workers.NEED_MERGED:
            ticket = int(worker[tables.MERGING]) - 1
            serial, way = divmod(self._tasks.place_of(s, ticket), 1 << handover.WAY_BITS)
        else:
            morsel = self._tasks.input_at(s, on)
            serial, way, phase = (int(morsel.words[k]) for k in (SERIAL, WAY, PHASE))
            if event == workers.FAILED:
                row = failing_row(morsel)
        rank = self._ranks[self._tasks.order[s]]
        ticket = int(self._tasks.lane(s, on)[tables.TICKET])
        return serial, way, rank, ticket, phase, row, on

    def _first_failure(self) -> Exception:
        """What depth first would have failed with: all that is before a failure goes through, and
        may fail, too."""
        self._tell(tables.WANTED, 1)
        self._exhaust()
        if self._crew is not None:
            self._crew.join()
            self._crew = None
        self._exhaust()
        if self._error is not None:
            raise self._error
        return min(self._failures, key=itemgetter(0))[1]

    def _exhaust(self) -> None:
        while (event := int(admission.exhaust(self._address))) != workers.QUIET:
            self._serve(0, event)

    def _deliver(self) -> None:
        ring = self._plan[tables.SINK :].ctypes.data
        while address := int(mpmc_queue.poll(ring)):
            morsel = self._tasks.morsels[address]
            with self._lock:
                self.handler.deliver(morsel, int(morsel.words[OPERATOR]), int(morsel.words[FEED]))
            handover.release(address)
            workers.left(self._address)

    def _answer(self, w: int, event: int) -> None:
        worker = self._tasks.worker(w)
        s = int(worker[tables.AT])
        if event == workers.NEED_MERGED:
            with self._lock:
                self._tasks.new_merged(s)
            return
        on = int(worker[tables.ON])
        lane = self._tasks.lane(s, on)
        if event == workers.NEED_MORSEL:
            with self._lock:
                lane[tables.OUTPUT] = self._tasks.new_morsel(s).address
            return
        operator = self.graph.operators[self._tasks.order[s]]
        of_worker = isinstance(operator, ReplicatedOperator)  # which its functions allow
        if isinstance(operator, Instances):
            operator = operator.instances[on]
        morsel = self._tasks.input_at(s, on)
        if event == workers.FAILED:
            feed = int(morsel.words[FEED]), int(morsel.words[BASE])
            place = self._place(w, event)
            with self._lock:
                self.handler.failed(Failure.of(operator, morsel, place, feed))
            return
        apart = self._lock if calls_users(operator) and not of_worker else nullcontext()
        with apart, at_work(operator.name):
            if event == workers.NEEDS:
                operator.provide(morsel)
            else:
                out = self._tasks.morsels[int(lane[tables.OUTPUT])]
                lane[tables.CODE] = operator.call(morsel, out)
