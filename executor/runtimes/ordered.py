"""The ordered multicore runtime (ordered-multicore paper): any number of workers, and the output
order of one. The loop of the workers is compiled (``kernels.ordered.worker``); this class serves
their requests for Python. The thread that drives it is worker 0."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from operator import itemgetter
from typing import ClassVar, Protocol

import numpy as np

from cql.base.model import Schema
from cql.executor.graph.graph import Edge, Graph
from cql.executor.kernels.lib import condition, mpmc_queue
from cql.executor.kernels.morsel_layout import (
    BASE,
    FEED,
    INFINITY,
    OPERATOR,
    PATH_NUMBER,
    PHASE,
    SERIAL,
)
from cql.executor.kernels.ordered import admission, handover, schedulers, tables
from cql.executor.kernels.ordered import worker as workers
from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.contract import Parallelism
from cql.executor.run.input_scheduler import InputScheduler
from cql.executor.runtimes.crew import Crew
from cql.executor.runtimes.paths import depth_first_ranks
from cql.executor.runtimes.protocol import Failure, Handler, at_work, failing_row
from cql.executor.runtimes.tables import Tasks
from cql.executor.runtimes.times import Times
from cql.executor.state.store import Snapshot
from cql.planner.placement.choose_runtime import WINDOW_SLICES

WORKLISTS = {
    "hybrid": tables.HYBRID,
    "partitioned": tables.PARTITIONED_QUEUE,
    "shared": tables.SHARED_QUEUE,
}
#: Rows of a morsel while the cost of a row is unknown.
_FIRST_ROWS = 256
POLICIES = {
    "ct": schedulers.CT,
    "lp": schedulers.LP,
    "et": schedulers.ET,
    "qst": schedulers.QST,
    "ct_printed": schedulers.CT_PRINTED,
}


class Observer(Protocol):
    """An observer of a run (benchmarks use it)."""

    def begun(self, tasks: Tasks) -> None:
        """Called before the first morsel."""
        ...

    def ended(self, tasks: Tasks) -> None:
        """Called when all threads have left, while the operators still exist."""
        ...


class Ordered:
    """Runs a graph that ``paths.check`` accepts.

    ``inputs``: the schemas of the feeds. ``policy``: a key of POLICIES. ``locked``: the lock-based
    reorder buffer in place of the non-blocking one. ``worklist``: a key of WORKLISTS. ``gather``
    maps an operator of ``graph.sinks`` to a number of rows: its results are gathered and delivered
    when they have this number of rows, by ``drain``, and, if ``live``, when a result of another
    block comes. ``morsel_us``: the target work of a morsel in microseconds, more where Python works
    for each morsel (``admission``), with at most ``morsel_rows`` rows; 0: all morsels have
    ``morsel_rows`` rows. ``slice_us``: the time slice in microseconds. ``least``: LP's threshold,
    in inputs. ``capacity``: C of QST. ``window_us``: CT's window in microseconds (0: WINDOW_SLICES
    slices). ``slots``: the size of the reorder buffers in inputs (0: ``choose_runtime.depth``).
    ``timed``: times and the lengths of worklists are measured."""

    #: For tests: CALM, YIELDING or STALLING of ``kernels.ordered.tables``.
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
        #: Held while results are delivered, bad rows are handled, user functions are called, and
        #: morsels are made.
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
        #: The errors, each with its place in depth-first order.
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
            event = self._run_worker_zero(scheduler.address)
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
        self._hand_over_collected()

    def give_up(self) -> None:
        self._stop()
        self._hand_over_collected()

    def _hand_over_collected(self) -> None:
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

    def request_return(self, *, halt: bool = False) -> None:
        if halt:
            self._plan[tables.WANTED] = 1
        self._notify(tables.RETURN_REQUESTED, 1)

    def change(self, workers: int) -> None:
        """Quiesces first, since the tables get the size that suits the number of workers, and can
        change it only while no morsel is inside."""
        if workers != self.workers:
            self.quiesce()
            self.rest()
            self._tasks.change(workers)
            self.workers = workers
        elif self._plan[tables.WANTED] != workers:  # a belated ``request_return(halt=True)``
            self.rest()

    def rest(self) -> None:
        if self._crew is None:
            return
        self._notify(tables.WANTED, 1)
        # Worker 0 may hold a lock of its task that another worker waits for: end its slice first.
        while self._tasks.worker(0)[tables.AT] >= 0:
            self._plan[tables.RETURN_REQUESTED] = 1
            self._serve(0, int(admission.run_worker_zero(self._address, 0)))
        self._crew.join()
        self._crew = None

    def snapshot(self) -> Snapshot:
        """By operator, the number of rows that have left its task: the rows that partitions make
        are numbered on."""
        tasks = [self._tasks.task(self._tasks.place[k]) for k in range(len(self._tasks.order))]
        return Snapshot({}, np.array([task[tables.EMITTED] for task in tasks], np.int64))

    def restore(self, saved: Snapshot) -> None:
        for k, emitted in enumerate(saved.words.tolist()):
            self._tasks.task(self._tasks.place[k])[tables.EMITTED] = emitted

    def close(self) -> None:
        self._stop()
        if self._observer is not None:
            self._observer.ended(self._tasks)

    def _stop(self) -> None:
        """Ends the other threads."""
        self._notify(tables.STOP, 1)
        if self._crew is not None:
            self._crew.join()
            self._crew = None  # breaks a cycle that would keep the morsels until a collection

    # -- workers -----------------------------------------------------------------------------------

    def _run_worker_zero(self, scheduler: int) -> int:
        """Runs worker 0 until it returns an event (``admission.run_worker_zero``), handles the
        event and returns it. Raises the error of another worker's thread, or the error of the first
        failed morsel in depth-first order."""
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
            self._notify(tables.STOP, 1)

    def _notify(self, word: int, value: int) -> None:
        """Writes a word of the header and wakes the sleeping workers."""
        self._plan[word] = value
        # In a forked process a thread that does not exist there may hold the lock of ``wake``.
        if os.getpid() == self._process:
            condition.wake(self._bed)

    def _serve(self, w: int, event: int) -> None:
        """Handles an event of worker ``w``. An error is stored, not raised: an earlier morsel may
        fail later, and the query fails with the first error in depth-first order."""
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
            worker[tables.BEGAN] += spent  # making morsels is no cost of the operator

    def _failed(self, w: int, event: int, error: Exception) -> None:
        """Stores the error of a worker's input; the task does not continue with this input or any
        later one."""
        self._failures.append((self._place(w, event), error))
        worker = self._tasks.worker(w)
        lane = self._tasks.lane(int(worker[tables.AT]), int(worker[tables.ON]))
        if event == workers.NEED_MERGED:
            worker[tables.MERGING], lane[tables.MORSEL] = 0, 1
        lane[tables.STATE] = tables.FAILING
        self.request_return()

    def _place(self, w: int, event: int) -> tuple[int, ...]:
        """The place in depth-first order of the input that a worker is at."""
        worker = self._tasks.worker(w)
        s, on = int(worker[tables.AT]), int(worker[tables.ON])
        row = phase = -1
        if event == workers.NEED_MERGED:
            ticket = int(worker[tables.MERGING]) - 1
            serial, path_number = divmod(self._tasks.place_of(s, ticket), 1 << handover.PATH_BITS)
        else:
            morsel = self._tasks.input_at(s, on)
            serial, path_number, phase = (
                int(morsel.words[k]) for k in (SERIAL, PATH_NUMBER, PHASE)
            )
            if event == workers.FAILED:
                row = failing_row(morsel)
        rank = self._ranks[self._tasks.order[s]]
        ticket = int(self._tasks.lane(s, on)[tables.TICKET])
        return serial, path_number, rank, ticket, phase, row, on

    def _first_failure(self) -> Exception:
        """The error with which a depth-first run would have failed. All inputs before a failure are
        finished first, since they may fail, too."""
        self._notify(tables.WANTED, 1)
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
        # The user functions of replicas may run at once.
        of_worker = operator.parallelism is Parallelism.REPLICATED
        if operator.instances:
            operator = operator.instances[on]
        morsel = self._tasks.input_at(s, on)
        if event == workers.FAILED:
            feed = int(morsel.words[FEED]), int(morsel.words[BASE])
            place = self._place(w, event)
            with self._lock:
                self.handler.failed(Failure.of(operator, morsel, place, feed))
            return
        guard = self._lock if operator.calls_users and not of_worker else nullcontext()
        with guard, at_work(operator.name):
            if event == workers.NEEDS:
                operator.provide(morsel)
            else:
                out = self._tasks.morsels[int(lane[tables.OUTPUT])]
                lane[tables.CODE] = operator.call(morsel, out)
