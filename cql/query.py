"""A query of a session: planned, not yet running, or running, or done.

A ``Query`` is lazy: reading its rows runs it, each time anew from the start of its sources. What
can be asked about a run (metrics, ledgers, progress) is asked about the latest one.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from cql.errors import CqlError, PlanError, RunError
from cql.model import Schema
from cql.settings import find_setting
from cql.types import DataType

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from cql.executor.protocols import Sink
    from cql.executor.query_run import Timing
    from cql.planner.logical import SortKey
    from cql.planner.physical import PhysicalPlan

T = TypeVar("T", bound=type)


def pyspark_names(cls: T) -> T:
    """Gives every public snake_case member of a class its PySpark spelling too: ``to_pandas`` is
    also ``toPandas``, ``await_termination`` also ``awaitTermination``."""
    for name, member in list(vars(cls).items()):
        if "_" in name.strip("_") and not name.startswith("_"):
            setattr(cls, re.sub(r"_([a-z])", lambda m: m.group(1).upper(), name), member)
    return cls


class Progress(Protocol):
    """How far a run is. ``event_time`` is in storage units; ``elapsed`` in seconds."""

    @property
    def rows_in(self) -> int: ...
    @property
    def rows_out(self) -> int: ...
    @property
    def late(self) -> int: ...
    @property
    def bad(self) -> int: ...
    @property
    def event_time(self) -> int | None: ...
    @property
    def total_rows(self) -> int | None: ...
    @property
    def elapsed(self) -> float: ...


class RunControl(Protocol):
    """Safe from any thread, and from signal handlers."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def share(self, workers: int) -> None: ...
    @property
    def is_paused(self) -> bool: ...
    @property
    def workers(self) -> int: ...


class Run(Protocol):
    """One run of a physical plan (``cql.executor.query_run.QueryRun``). ``on_notice`` is told,
    while it runs, what may be not meant; ``on_late`` gets the rows of LATE OUTPUT. ``timed``:
    ``metrics`` and ``timing`` say how long operators take."""

    on_notice: Callable[[str], None]
    on_late: Callable[[pa.RecordBatch], None]
    timed: bool

    def batches(self) -> Iterator[pa.RecordBatch]: ...
    def request_stop(self) -> None: ...
    def progress(self) -> Progress: ...
    def metrics(self) -> list[dict[str, Any]]: ...
    def late(self) -> pa.Table: ...
    def bad_rows(self) -> pa.Table: ...
    def timing(self) -> Timing | None: ...
    def held_back(self) -> str | None: ...
    def sharing(self) -> str | None: ...
    def kernel_sources(self) -> Mapping[str, str]: ...
    @property
    def control(self) -> RunControl: ...
    @property
    def last_instant(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Target:
    """Where an INSERT goes; ``open`` gives a fresh sink. ``epoch`` is how many seconds of output
    are published at once; None publishes everything at the end, or nothing. ``new``: there was no
    such table when the statement was made."""

    name: str
    open: Callable[[], Sink]
    epoch: float | None
    new: bool = False


class Explanation(str):
    """A plan as text, which an interactive Python shows line by line."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a query is run and explained: what the session hands over. ``text`` is the statement,
    ``source`` the text that it stands in (and that positions refer to). ``windowed``: late rows
    are left out of windows. ``event_time_type`` is the type of the first progressing column among
    its inputs. ``changelog``: the rows are the changes of a relation, and ``order`` is that of the
    relation itself. ``late`` is where LATE OUTPUT goes."""

    text: str
    source: str
    plan: PhysicalPlan
    schema: Schema
    bounded: bool
    windowed: bool
    run: Callable[[], Run]
    explain: Callable[[str, Run | None], str]
    event_time_type: DataType | None = None
    changelog: bool = False
    order: tuple[SortKey, ...] = ()
    late: Target | None = None


EXPLAIN_MODES = ("physical", "logical", "analyze", "mermaid", "kernel")


@pyspark_names
class Query:
    """A SELECT or an INSERT; made by ``Session.sql``.

    ``status`` is ready, running, paused, finished, stopped or failed. Errors are CqlErrors that
    know the text of the query. Safe to ``stop``, ``pause`` and ``resume`` from any thread; rows are
    read by one thread at a time."""

    def __init__(self, recipe: Recipe, target: Target | None = None, name: str = "") -> None:
        self.name = name
        self.text = recipe.text
        self._recipe = recipe
        self._target = target
        self._others: tuple[Query, ...] = ()
        self._run: Run | None = None
        self._thread: threading.Thread | None = None
        self._status = "ready"
        self._exception: BaseException | None = None
        self._cut_off = False
        self._stop_asked = False
        self._timed = False
        self._row_count = 0
        self._lock = threading.Lock()

    # ----------------------------------------------------------------- what it is

    @property
    def plan(self) -> PhysicalPlan:
        return self._recipe.plan

    @property
    def schema(self) -> Schema:
        """Columns of the result (of the rows inserted, for an INSERT)."""
        return self._recipe.schema

    @property
    def windowed(self) -> bool:
        """Whether it leaves late rows out; without a window they are rows like any other."""
        return self._recipe.windowed

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    @property
    def bounded(self) -> bool:
        """Whether the query ends by itself."""
        return self._recipe.bounded

    @property
    def target_name(self) -> str | None:
        """Where an INSERT goes."""
        return self._target.name if self._target is not None else None

    @property
    def is_insert(self) -> bool:
        return self._target is not None

    @property
    def event_time_type(self) -> DataType | None:
        """What ``progress().event_time`` counts."""
        return self._recipe.event_time_type

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
    def has_run(self) -> bool:
        """Whether there is a run to ask about (progress, metrics, ledgers)."""
        return self._run is not None

    @property
    def exception(self) -> BaseException | None:
        """What ended the latest run, if it failed."""
        return self._exception

    @property
    def row_count(self) -> int:
        """Rows given or published so far by the latest run."""
        return self._row_count

    def __repr__(self) -> str:
        what = f"INSERT INTO {self._target.name}" if self._target else "SELECT"
        columns = ", ".join(str(f) for f in self.schema)
        return f"<Query {self.name} {self._status}: {what} ({columns})>"

    # ----------------------------------------------------------------- reading rows

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Arrow batches as they come; closing the iterator ends the query. A relation comes as its
        changes: ``_time``, ``_weight`` (how many copies of the row enter; below zero: leave)."""
        if self._target is not None:
            raise RunError(
                "an INSERT gives no rows",
                hint=f"read {self._target.name} with a SELECT; row_count says how many it got",
            )
        return self._rows()

    def _rows(self) -> Iterator[pa.RecordBatch]:
        with self.running() as run:
            batches = run.batches()
            try:
                with self.late_output(run):
                    for batch in batches:
                        if batch.num_rows:
                            self._row_count += batch.num_rows
                            yield batch
                if self._cut_off:
                    raise RunError("the session was closed before all rows had been read")
            finally:
                _close(batches)

    @contextlib.contextmanager
    def late_output(self, run: Run) -> Iterator[None]:
        """While ``run`` runs, its LATE OUTPUT goes where it belongs. Like an INSERT, that of
        bounded input is published when all of it was read, or not at all."""
        late = self._recipe.late
        if late is None:
            yield
            return
        publisher = Publisher(late.open(), late.epoch, lambda rows: None, run.request_stop)
        with publisher:
            run.on_late = publisher.write
            try:
                yield
            except GeneratorExit:
                if late.epoch is not None:
                    publisher.commit()
                raise
            if self._stop_asked and late.epoch is None:
                publisher.abandon()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.batches()

    def to_arrow(self) -> pa.Table:
        """All rows; of a relation (a window without SLIDE under an aggregate, say) those that it
        has at the end of its input. An INSERT runs (unless it has) and gives one row: how many were
        written. Refused for a query that does not end by itself."""
        if self._target is not None:
            self._finish_insert()
            return self.table_of(())
        self._must_end()
        return self.table_of(self.batches())

    def table_of(self, batches: Iterable[pa.RecordBatch]) -> pa.Table:
        """The whole result, of all batches of the run that has just ended: a relation as of the
        last instant of its input."""
        import pyarrow as pa

        from cql.executor.changelog import FinalRelation

        if self._target is not None:
            return pa.table({"rows": pa.array([self._row_count], pa.int64())})
        if not self._recipe.changelog:
            return pa.Table.from_batches(list(batches), schema=self.schema.to_arrow())
        relation = FinalRelation(self.schema.to_arrow())
        for batch in batches:
            relation.add(batch)
        assert self._run is not None
        return relation.table(self._run.last_instant, self._recipe.order)

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a pandas frame (the extra ``pandas``)."""
        import_extra("pandas")
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def to_polars(self) -> pl.DataFrame:
        """All rows as a polars frame (the extra ``polars``)."""
        polars = import_extra("polars")
        frame: pl.DataFrame = polars.from_arrow(self.to_arrow())
        return frame

    def show(self, n: int = 20) -> None:
        """Prints the first ``n`` rows as they come and ends the query; an INSERT runs, and says
        how many rows it wrote."""
        import sys

        from cql import render

        console = render.console_for(sys.stdout)
        if self._target is not None:
            self._finish_insert()
            console.print(self.summary())
            return
        table, more = self.head(n)
        render.print_rows(table, console, more=more)

    def head(self, n: int) -> tuple[pa.Table, bool]:
        """The first ``n`` rows to come, and whether there was another one; ends the query."""
        import pyarrow as pa

        found: list[pa.RecordBatch] = []
        rows = 0
        batches = self.batches()
        try:
            for batch in batches:
                found.append(batch)
                rows += batch.num_rows
                if rows > n:
                    break
        finally:
            _close(batches)
        table = pa.Table.from_batches(found, schema=self.schema.to_arrow())
        return table.slice(0, n), rows > n

    def _must_end(self) -> None:
        if not self.bounded:
            raise PlanError(
                "this query does not end by itself, so it has no whole result",
                hint="iterate over it, show(n) its first rows, or INSERT INTO a table",
                text=self._recipe.source,
            )

    # ----------------------------------------------------------------- running in the background

    def start(self) -> Query:
        """Starts an INSERT in the background; a SELECT has nowhere to put its rows."""
        if self._target is None:
            raise RunError(
                "a SELECT has no target to run into",
                hint="iterate over it, or start an INSERT INTO a table",
            )
        self._thread = threading.Thread(
            target=self._insert_in_background,
            args=self._begin_insert(),
            name=f"cql {self.name}",
            daemon=True,
        )
        self._thread.start()
        return self

    @property
    def writes(self) -> frozenset[str]:
        """The tables that its rows go into, LATE OUTPUT's too."""
        late = self._recipe.late
        named = (self._target.name if self._target else None, late.name if late else None)
        return frozenset(name for name in named if name is not None)

    @property
    def makes(self) -> frozenset[str]:
        """The table that LATE OUTPUT makes, if there is none yet."""
        late = self._recipe.late
        return frozenset((late.name,) if late is not None and late.new else ())

    def starts_with(self, others: Sequence[Query]) -> None:
        """They stop together, too."""
        self._others = tuple(others)

    def runs_in(self, thread: threading.Thread) -> None:
        """Where it runs in the background, as one of a set."""
        self._thread = thread

    def stop(self, timeout: float | None = 10.0) -> bool:
        """Asks the query to end, and waits up to ``timeout`` seconds for one in the background;
        True when it no longer runs. An unbounded INSERT publishes what it has; a bounded one
        leaves nothing."""
        with self._lock:
            self._stop_asked = True
            run = self._run
        for other in self._others:
            other._stop_asked = True
        if run is not None and self.is_active:
            run.request_stop()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)
            return not thread.is_alive()
        return not self.is_active

    def pause(self) -> Query:
        """Nothing is read or computed any more, as soon as the morsels at hand are through, until
        ``resume``; who reads its rows waits. Queries that started together pause together."""
        self._running().control.pause()
        return self

    def resume(self) -> Query:
        """Goes on where ``pause`` has left it."""
        self._running().control.resume()
        return self

    @property
    def workers(self) -> int:
        """Threads that share the work of the latest run. Set while it runs, it lets workers leave
        or join, and its output stays the same; 0: as many as raise throughput. RunError for a
        query that runs in one thread (another runtime than ``ordered``)."""
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

    def cut_off(self) -> None:
        """Its session closes: whoever reads its rows is told that these are not all."""
        self._cut_off = True
        self.stop(timeout=0)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Waits for a query in the background; False if it still runs after ``timeout`` seconds.
        Raises what made it fail."""
        if self._thread is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                return False
        if self._exception is not None:
            raise self._exception
        return not self.is_active

    def insert(self) -> Query:
        """Runs an INSERT here, to its end. Interrupted or failed, a bounded one leaves nothing."""
        self._insert(*self._begin_insert())
        return self

    def _begin_insert(self) -> tuple[Run, Publisher, contextlib.ExitStack]:
        """A run, where its rows go, and what ends both. What it writes into is open from here on,
        so that the tables it makes can be read as soon as it is said to run."""
        with contextlib.ExitStack() as stack:
            run = stack.enter_context(self.running())
            publisher = stack.enter_context(self.publishing(run))
            return run, publisher, stack.pop_all()

    def _finish_insert(self) -> None:
        if self._status == "ready":
            self._must_end()
            self.insert()
        else:
            if not self.bounded:
                self._must_end()
            self.await_termination()

    def _insert_in_background(
        self, run: Run, publisher: Publisher, running: contextlib.ExitStack
    ) -> None:
        try:
            self._insert(run, publisher, running)
        except Exception:  # ``exception`` and ``await_termination`` hand it over
            return

    def _insert(self, run: Run, publisher: Publisher, running: contextlib.ExitStack) -> None:
        with running:
            batches = run.batches()
            try:
                for batch in batches:
                    publisher.write(batch)
            finally:
                _close(batches)

    @contextlib.contextmanager
    def publishing(self, run: Run) -> Iterator[Publisher]:
        """While ``run`` runs: what writes its rows into the target of this INSERT. They are
        published at the end, or by epochs."""
        assert self._target is not None
        publisher = Publisher(self._target.open(), self._target.epoch, self.count, run.request_stop)
        with self.late_output(run), publisher:
            yield publisher
            if self._stop_asked and self._target.epoch is None:
                publisher.abandon()

    @contextlib.contextmanager
    def running(self, part: Run | None = None) -> Iterator[Run]:
        """While a run, or a ``part`` of the run of several queries, is this one's."""
        run = self._begin(part)
        try:
            yield run
        except BaseException as error:
            self._end(error)
            raise
        else:
            self._end(None)

    def count(self, rows: int) -> None:
        """So many rows more were given or published."""
        self._row_count += rows

    # ----------------------------------------------------------------- about the latest run

    def _begin(self, part: Run | None) -> Run:
        with self._lock:
            if self._status == "running":
                raise RunError(f"query {self.name} is running already", hint="stop() it first")
            self._stop_asked = False
            self._exception = None
            self._row_count = 0
            self._status = "running"
        try:
            run = self._recipe.run() if part is None else part
            run.timed = self._timed
        except BaseException as error:
            self._end(error)
            raise
        with self._lock:
            self._run = run
            if self._stop_asked:
                run.request_stop()
        return run

    def _end(self, error: BaseException | None) -> None:
        if isinstance(error, CqlError):
            error.with_text(self._recipe.source)
        if error is None:
            self._status = "stopped" if self._stop_asked else "finished"
        elif isinstance(error, GeneratorExit | KeyboardInterrupt):
            self._status = "stopped"
        else:
            self._exception = error
            self._status = "failed"

    def _latest(self) -> Run:
        if self._run is None:
            raise RunError(
                f"query {self.name} has not run yet", hint="read its rows first, or start() it"
            )
        return self._run

    def progress(self) -> Progress:
        return self._latest().progress()

    def metrics(self) -> list[dict[str, Any]]:
        """One entry for each operator of the latest run: rows, time, memory."""
        return self._latest().metrics()

    def late(self) -> pa.Table:
        """The ledger of late rows of the latest run: ``place``, ``kind``, ``count`` and
        ``max_lateness``. Kind "rows": rows of an input that came below its watermark; kind "pairs":
        (row, window) pairs that an aggregate left out."""
        return self._latest().late()

    def bad_rows(self) -> pa.Table:
        """The ledger of bad rows of the latest run, the first 10,000 (``progress().bad`` counts
        all): ``source`` and ``offset`` (rows from 0; both NULL for a result of an aggregate and
        behind filters), the ``operator`` that refused the row ("source" where it could not be
        read), the ``reason`` with its place in the file, and the ``text`` of an unreadable row."""
        return self._latest().bad_rows()

    def explain(self, mode: str = "physical") -> Explanation:
        """The plan as text. ``mode``: physical (with the reason for each choice), logical,
        analyze (runs a query that ends by itself, and adds what was measured), mermaid, kernel
        (the source that is compiled)."""
        word = mode.lower()
        if word not in EXPLAIN_MODES:
            raise PlanError(
                f"there is no EXPLAIN mode {mode}", hint=f"modes: {', '.join(EXPLAIN_MODES)}"
            )
        if word == "analyze":
            self._must_end()
            self._timed = True
            try:
                if self._target is not None:
                    self._finish_insert()
                else:
                    for _ in self.batches():
                        pass
            finally:
                self._timed = False
        return Explanation(self._recipe.explain(word, self._run))

    def summary(self) -> str:
        """The latest run in a line: rows, time, late and bad rows."""
        from cql import render

        progress = self.progress()
        verb = f" inserted into {self._target.name}" if self._target else ""
        rows = render.count_text(self._row_count)
        parts = [f"{rows}{verb} ({render.duration_text(progress.elapsed)})"]
        if progress.late and self.windowed:
            parts.append(f"{progress.late:,} late")
        if progress.bad:
            parts.append(f"{progress.bad:,} bad")
        return ", ".join(parts)


class Publisher:
    """Writes batches into a sink, epoch by epoch.

    With ``epoch`` None there is one epoch: committed at the end, aborted on an error. Otherwise a
    second thread commits every ``epoch`` seconds what has been written since, so that rows become
    visible although no more arrive; ``published`` is told the rows of each commit, and ``stop`` is
    called when one failed there, so that its error need not wait for the next row. Leaving the
    ``with`` block by an exception aborts the open epoch."""

    def __init__(
        self,
        sink: Sink,
        epoch: float | None,
        published: Callable[[int], None],
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        self._stop = stop
        self._sink = sink
        self._epoch = epoch
        self._published = published
        self._lock = threading.Lock()
        self._pending: int | None = None  # rows in the open epoch; None: no epoch is open
        self._done = threading.Event()
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Publisher:
        if self._epoch is None:
            self._sink.begin()
            self._pending = 0
        else:
            self._thread = threading.Thread(target=self._tick, name="cql publisher", daemon=True)
            self._thread.start()
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        with self._lock:
            if self._error is not None:
                raise self._error
            if not batch.num_rows:
                return
            if self._pending is None:
                self._sink.begin()
                self._pending = 0
            self._sink.write(batch)
            self._pending += batch.num_rows

    def commit(self) -> None:
        """Publishes the open epoch, if there is one."""
        with self._lock:
            if self._pending is not None:
                rows, self._pending = self._pending, None
                self._sink.commit()
                self._published(rows)

    def abandon(self) -> None:
        """Drops the open epoch."""
        with self._lock:
            if self._pending is not None:
                self._pending = None
                self._sink.abort()

    def _tick(self) -> None:
        while not self._done.wait(self._epoch):
            try:
                self.commit()
            except Exception as error:  # raised by the next write, or at the end
                self._error = error
                self._stop()
                return

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()
        if kind is not None:
            self.abandon()
            return
        if self._error is not None:
            raise self._error
        self.commit()


def import_extra(name: str) -> Any:
    """An optional library, or an error that says how to get it."""
    import importlib

    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise RunError(
            f"{name} is not installed", hint=f"pip install 'cql-streams[{name}]'"
        ) from None


def _close(batches: Iterator[Any]) -> None:
    close = getattr(batches, "close", None)
    if close is not None:
        close()
