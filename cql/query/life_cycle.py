"""The life cycle of a query: ready, running, paused, ended. A query can run any number of times."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Self

from cql.base.reentrancy import is_inside
from cql.base.settings import find_setting
from cql.base.waiting import join
from cql.errors import CqlError, RunError
from cql.query.run import Run
from cql.session.pyspark_names import pyspark_names


@pyspark_names
class LifeCycle:
    """The life cycle of the query ``name``.

    Errors refer to the text ``source``; ``new_run`` makes a run of the query's plan."""

    def __init__(self, name: str, source: str, new_run: Callable[[], Run]) -> None:
        self.name = name
        self._source = source
        self._new_run = new_run
        self._others: tuple[LifeCycle, ...] = ()
        self._run: Run | None = None
        self._thread: threading.Thread | None = None
        self._status = "ready"
        self._exception: BaseException | None = None
        self._cut_off = False
        self._stop_requested = False
        self._timed = False
        self._row_count = 0
        self._lock = threading.Lock()

    @property
    def status(self) -> str:
        return "paused" if self.is_paused else self._status

    @property
    def is_active(self) -> bool:
        return self._status == "running"

    @property
    def is_paused(self) -> bool:
        run = self._run
        return self.is_active and run is not None and run.control.is_paused

    @property
    def _has_run(self) -> bool:
        """Whether there is a run that can report progress, metrics and ledgers."""
        return self._run is not None

    @property
    def exception(self) -> BaseException | None:
        """The error that ended the latest run, if the run failed."""
        return self._exception

    @property
    def row_count(self) -> int:
        """Rows given or published so far by the latest run."""
        return self._row_count

    # ----------------------------------------------------------------- one run

    @contextlib.contextmanager
    def _one_run(self, part: Run | None = None) -> Iterator[Run]:
        """In the ``with`` block, the query runs: a new run, or ``part`` of a query set's run."""
        run = self._begin(part)
        try:
            yield run
        except BaseException as error:
            self._end(error)
            raise
        else:
            self._end(None)

    def _count(self, rows: int) -> None:
        """Adds ``rows`` to the number of rows given or published."""
        self._row_count += rows

    def _begin(self, part: Run | None) -> Run:
        with self._lock:
            if self._status == "running":
                hint = "stop() it first"
                if self._is_inside:
                    hint = f"what {self.name} calls itself cannot read its rows"
                raise RunError(f"query {self.name} is running already", hint=hint)
            self._stop_requested = False
            self._exception = None
            self._row_count = 0
            self._status = "running"
        try:
            run = self._new_run() if part is None else part
            run.timed = self._timed
        except BaseException as error:
            self._end(error)
            raise
        with self._lock:
            self._run = run
            if self._stop_requested:
                run.request_stop()
        return run

    def _end(self, error: BaseException | None) -> None:
        if isinstance(error, CqlError):
            error.with_text(self._source)
        if error is None:
            self._status = "stopped" if self._stop_requested else "finished"
        elif isinstance(error, GeneratorExit | KeyboardInterrupt):
            self._status = "stopped"
        else:
            self._exception = error
            self._status = "failed"

    # ----------------------------------------------------------------- while it runs

    def _starts_with(self, others: Sequence[LifeCycle]) -> None:
        """Declares ``others`` as the queries that stop and pause together with this query."""
        self._others = tuple(others)

    def _runs_in(self, thread: threading.Thread) -> None:
        """Declares ``thread`` as the thread that runs the query in the background."""
        self._thread = thread

    def stop(self, timeout: float | None = 10.0) -> bool:
        """Requests the end of the query; returns True when the query no longer runs.

        Waits up to ``timeout`` seconds for a query in the background. An unbounded INSERT publishes
        the rows that it has; a bounded INSERT publishes nothing. A call from inside the query's own
        function, iterable or sink does not wait: the query ends after that function, iterable or
        sink returns."""
        with self._lock:
            self._stop_requested = True
            run = self._run
        for other in self._others:
            other._stop_requested = True
        if run is not None and self.is_active:
            run.request_stop()
        thread = self._thread
        if thread is not None and not self._is_inside:
            return join(thread, timeout)
        return not self.is_active

    def pause(self) -> Self:
        """Pauses the query until ``resume``, and the other queries of its query set too.

        The query completes the morsels in flight, then reads and computes nothing; readers of its
        rows wait. Raises RunError inside the query's own function, iterable or sink."""
        control = self._running().control
        if is_inside(control):
            raise RunError(
                f"query {self.name} cannot be paused by what it calls itself: nothing would be left"
                " to go on with it",
                hint="pause() it from a thread of your own; stop() ends it after this call",
            )
        control.pause()
        return self

    def resume(self) -> Self:
        """Continues a paused query."""
        self._running().control.resume()
        return self

    @property
    def workers(self) -> int:
        """The number of worker threads of the latest run.

        Setting the number while the query runs makes workers leave or join; the output stays the
        same. 0 lets the engine choose the number by throughput. Raises RunError for a query that
        runs in one thread (another runtime than ``ordered``)."""
        return self._latest().control.workers

    @workers.setter
    def workers(self, workers: int) -> None:
        setting = find_setting("workers")
        self._running().control.share(int(setting.parse(workers)))

    def _running(self) -> Run:
        with self._lock:
            run = self._run
        if run is None or not self.is_active:
            raise RunError(f"query {self.name} is not running: it is {self._status}")
        return run

    @property
    def _is_inside(self) -> bool:
        """Whether this thread computes for the run."""
        run = self._run
        return run is not None and is_inside(run.control)

    def _cut_short(self) -> None:
        """The session closes: a reader of the query's rows gets an error, because rows are
        missing."""
        self._cut_off = True
        self.stop(timeout=0)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Waits for a query in the background; False if it still runs after ``timeout`` seconds.

        Raises the error that made the query fail. Raises RunError inside the query's own function,
        iterable or sink, which would wait for its own end."""
        if self._is_inside and self.is_active and (timeout is None or timeout > 0):
            raise RunError(
                f"query {self.name} cannot be awaited by what it calls itself: it ends after this"
                " call",
                hint="await it where it was started; stop() ends it after this call",
            )
        if self._thread is not None and not join(self._thread, timeout):
            return False
        if self._exception is not None:
            raise self._exception
        return not self.is_active

    def _latest(self) -> Run:
        if self._run is None:
            raise RunError(
                f"query {self.name} has not run yet", hint="read its rows first, or start() it"
            )
        return self._run
