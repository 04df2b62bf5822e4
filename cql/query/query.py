"""A query of a session: planned, running or ended.

A ``Query`` is lazy: each reading of its rows starts a new run from the start of its sources.
Metrics, ledgers and progress describe the latest run.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, cast

from cql.base.model import Schema
from cql.base.reentrancy import inherited
from cql.base.types import DataType
from cql.errors import CqlError, NotSupportedError, PlanError, RunError
from cql.query.answers import Answers
from cql.query.life_cycle import LifeCycle
from cql.query.run import Progress, Run
from cql.query.sink_writer import ChangePublisher, Publisher
from cql.session.pyspark_names import pyspark_names

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame as SparkDataFrame
    from pyspark.sql import DataFrameWriterV2

    from cql.executor.protocols import KeyedSink, Sink
    from cql.planner.nodes.logical import SortKey
    from cql.planner.nodes.physical import PhysicalPlan
    from cql.spark.job.job import Job


@dataclass(frozen=True, slots=True)
class Target:
    """The target of an INSERT; ``open`` makes a new sink.

    ``epoch`` is the number of seconds between two commits. None publishes all rows at the end, or
    nothing on an error. ``new``: the table did not exist when the statement was made. ``applies``
    are the columns of the table's PRIMARY KEY if the rows are changes to apply to it."""

    name: str
    open: Callable[[], Sink]
    epoch: float | None
    new: bool = False
    applies: tuple[str, ...] = ()

    def publisher(self, published: Callable[[int], None], run: Run, rows: Schema) -> Publisher:
        """A publisher of ``rows`` of a run; see Publisher for ``published``."""
        sink = self.open()
        if not self.applies:
            return Publisher(sink, self.epoch, published, run)
        from cql.query.keyed_changes import KeyedChanges

        changes = KeyedChanges(rows.to_arrow(), self.applies, f"table {self.name}")
        return ChangePublisher(cast("KeyedSink", sink), changes, self.epoch, published, run)


class Explanation(str):
    """A plan as text, which an interactive Python shows line by line."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A query as the session prepares it, ready to run and to explain.

    ``text`` is the statement; ``source`` is the whole text that contains the statement, and
    positions refer to ``source``. ``windowed``: windows leave out late rows. ``event_time_type`` is
    the type of the first window attribute among the inputs. ``changelog``: the rows are the changes
    of a relation; ``answer_key``: the columns of ``schema`` by which ``read`` finds an answer;
    ``order`` is the order of the relation itself. ``late`` is the target of LATE
    OUTPUT. ``bounded``: the query ends by itself. ``live``: some input has no end, so the query
    waits for new rows; None means the opposite of ``bounded``. ``job`` is the query for another
    process. ``frame`` makes a DataFrame of Spark, and the run behind it."""

    text: str
    source: str
    plan: PhysicalPlan
    schema: Schema
    bounded: bool
    windowed: bool
    run: Callable[[], Run]
    job: Callable[[], Job]
    explain: Callable[[str, Run | None], str]
    event_time_type: DataType | None = None
    changelog: bool = False
    answer_key: tuple[int, ...] | None = None
    order: tuple[SortKey, ...] = ()
    late: Target | None = None
    live: bool | None = None
    frame: Callable[[], tuple[Run, SparkDataFrame]] | None = None


EXPLAIN_MODES = ("physical", "logical", "analyze", "mermaid", "kernel")


@pyspark_names
class Query(LifeCycle):
    """A SELECT or an INSERT; made by ``Session.sql``.

    ``status`` is ready, running, paused, finished, stopped or failed. Errors are CqlErrors that
    show their place in the query's text. Any thread may call ``stop``, ``pause`` and ``resume``;
    one thread at a time reads the rows."""

    def __init__(
        self, prepare: PreparedQuery, target: Target | None = None, name: str = ""
    ) -> None:
        super().__init__(name, prepare.source, prepare.run)
        self.text = prepare.text
        self._prepared = prepare
        self._target = target
        self._answers: Answers | None = None

    # ----------------------------------------------------------------- what it is

    @property
    def _plan(self) -> PhysicalPlan:
        return self._prepared.plan

    @property
    def schema(self) -> Schema:
        """The columns of the result; for an INSERT, of the inserted rows."""
        return self._prepared.schema

    @property
    def _windowed(self) -> bool:
        """Whether the query leaves out late rows; a query without windows treats them as others."""
        return self._prepared.windowed

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    @property
    def bounded(self) -> bool:
        """Whether the query ends by itself: at the end of its input, or by a LIMIT."""
        return self._prepared.bounded

    @property
    def _live(self) -> bool:
        """Whether some input has no end, so that the query waits for new rows (even if a LIMIT
        ends the query). Such an INSERT runs in the background and publishes during its run."""
        live = self._prepared.live
        return not self.bounded if live is None else live

    @property
    def _target_name(self) -> str | None:
        """The name of an INSERT's target."""
        return self._target.name if self._target is not None else None

    @property
    def is_insert(self) -> bool:
        return self._target is not None

    @property
    def _event_time_type(self) -> DataType | None:
        """The type of ``progress().event_time``."""
        return self._prepared.event_time_type

    def __repr__(self) -> str:
        what = f"INSERT INTO {self._target.name}" if self._target else "SELECT"
        columns = ", ".join(str(f) for f in self.schema)
        return f"<Query {self.name} {self._status}: {what} ({columns})>"

    def _repr_html_(self) -> str:
        """For notebooks: the columns and, for some queries, the first 20 rows.

        Only a SELECT that ends by itself over tables, files or Arrow data shows rows. A separate
        run computes them and gives up after 2 seconds."""
        from cql.show import notebook

        if self._target is not None:
            how = "an INSERT into " + self._target.name
        elif not self.bounded:
            how = "it does not end by itself: show(n) gives its first rows"
        elif self._live or self._prepared.late or not notebook.can_be_read_again(self._plan):
            how = "show() and to_arrow() give its rows"
        else:
            return notebook.query_html(self, Query(self._prepared, name=self.name), "")
        return notebook.query_html(self, None, how)

    # ----------------------------------------------------------------- reading rows

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Runs the query and yields Arrow batches as they arrive. Closing the iterator ends the
        run.

        A relation arrives as its changelog, with the columns ``_time`` and ``_weight`` in front:
        the number of copies of the row that enter, or below zero, leave."""
        if self._target is not None:
            raise RunError(
                "an INSERT gives no rows",
                hint=f"read {self._target.name} with a SELECT; row_count says how many it got",
            )
        return self._rows()

    def _rows(self) -> Iterator[pa.RecordBatch]:
        with self._one_run() as run:
            yield from self._rows_of(run)
            if self._cut_off:
                raise RunError("the session was closed before all rows had been read")

    def _rows_of(self, run: Run) -> Iterator[pa.RecordBatch]:
        """The rows of a run that has begun."""
        batches = run.batches()
        try:
            with self._late_output(run):
                for batch in batches:
                    if batch.num_rows:
                        self._row_count += batch.num_rows
                        yield batch
        finally:
            _close(batches)

    @contextlib.contextmanager
    def _late_output(self, run: Run) -> Iterator[None]:
        """In the ``with`` block, the LATE OUTPUT of ``run`` goes to its target.

        Like an INSERT, LATE OUTPUT of bounded input is published at the end of the input, or not at
        all."""
        late = self._prepared.late
        if late is None:
            yield
            return
        publisher = Publisher(late.open(), late.epoch, lambda rows: None, run)
        with publisher:
            run.on_late = publisher.write
            try:
                yield
            except GeneratorExit:
                if late.epoch is not None:
                    publisher.commit()
                raise
            if self._stop_requested and late.epoch is None:
                publisher.abandon()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.batches()

    def read(self, *key: object, timeout: float = 0.0) -> dict[str, Any] | None:
        """The newest answer for a key: ``query.read("IBM")``. None if there is none yet.

        The values are those of the update key in the result, of an aggregate those of its GROUP BY.
        The first call starts the query in the background; from then on it keeps the newest answer
        for each key until it is stopped. ``timeout``: seconds to wait for a first answer. Raises
        the error that made the query fail; PlanError for a query whose rows have no such key."""
        with self._lock:
            answers, begins = self._answers, self._answers is None
            if answers is None:
                answers = self._answers = self._new_answers()
        if begins:
            self._answer(answers)
        if self._exception is not None:
            raise self._exception
        return answers.read(key, timeout)

    def _new_answers(self) -> Answers:
        key = self._prepared.answer_key
        if key is None or self._target is not None:
            raise PlanError(
                "no column tells the answers of this query apart, so read() finds none",
                hint="read() needs the update key, or the columns of GROUP BY, in the select list",
                text=self._prepared.source,
            )
        changelog = self._prepared.plan.changelog
        return Answers(self.schema.names, key, changelog=changelog)

    def _answer(self, answers: Answers) -> None:
        """Runs the query in the background, into ``answers``."""
        try:
            stack = contextlib.ExitStack()
            run = stack.enter_context(self._one_run())
        except BaseException:
            self._answers = None
            raise

        def answer() -> None:
            try:
                with stack:
                    for batch in self._rows_of(run):
                        answers.add(batch)
            except Exception:  # ``exception`` and ``read`` report the error
                return
            finally:
                answers.end()

        name = f"cql {self.name}"
        thread = threading.Thread(target=inherited(answer, computes=False), name=name, daemon=True)
        self._runs_in(thread)
        thread.start()

    def to_arrow(self) -> pa.Table:
        """All rows as a table; of a relation, the rows at the end of its input.

        A relation is, for example, an aggregate over a window without SLIDE. An INSERT runs, unless
        it has run, and gives one row: the number of written rows. Raises PlanError for a query that
        does not end by itself."""
        if self._target is not None:
            self._finish_insert()
            return self._table_of(())
        self._must_end()
        return self._table_of(self.batches())

    def _table_of(self, batches: Iterable[pa.RecordBatch]) -> pa.Table:
        """The whole result as a table, from all batches of the run that has just ended; of a
        relation, its rows at the last instant of its input."""
        import pyarrow as pa

        from cql.executor.ledgers.final_relation import FinalRelation

        if self._target is not None:
            return pa.table({"rows": pa.array([self._row_count], pa.int64())})
        if not self._prepared.changelog:
            return pa.Table.from_batches(list(batches), schema=self.schema.to_arrow())
        relation = FinalRelation(self.schema.to_arrow(), self._last_instant)
        for batch in batches:
            relation.add(batch)
        return relation.table(self._prepared.order)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows as an Arrow C stream: for ``pl.DataFrame(query)``, ``pyarrow.table(query)``,
        ``SELECT * FROM query`` in DuckDB.

        A query that ends by itself gives the rows of ``to_arrow``; an endless query gives the rows
        of ``batches`` until it is stopped. The run begins at the request for the first batch and
        ends when the reader releases the stream. ``requested_schema`` requests other types of the
        same columns (ValueError if there is no cast)."""
        import pyarrow as pa

        from cql.query.arrow_stream import reader

        if self._target is not None:
            if not self.bounded:
                self._must_end()
            stream = reader(pa.schema({"rows": pa.int64()}), self._whole)
        elif self._prepared.changelog and self.bounded:
            # The relation's own columns follow the two columns ``_time`` and ``_weight``.
            columns = pa.schema([*self.schema.to_arrow()][2:])
            stream = reader(columns, self._whole)
        else:
            stream = reader(self.schema.to_arrow(), self.batches)
        return stream.__arrow_c_stream__(requested_schema)

    def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
        """Raises RunError: ``pd.DataFrame(query)`` requests an array and would fill it with
        batches."""
        hint = "query.to_pandas(), or pd.DataFrame.from_arrow(query)"
        raise RunError("a query is no array; it has named columns", hint=hint)

    def _whole(self) -> Iterator[pa.RecordBatch]:
        return iter(self.to_arrow().to_batches())

    def _last_instant(self) -> int | None:
        return self._run.last_instant if self._run is not None else None

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a pandas frame (the extra ``pandas``)."""
        import_extra("pandas")
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def to_polars(self) -> pl.DataFrame:
        """All rows as a polars frame (the extra ``polars``).

        Polars needs distinct column names: the second of two columns ``id`` becomes ``id_1``, as in
        DuckDB."""
        polars = import_extra("polars")
        table = self.to_arrow()
        frame: pl.DataFrame = polars.from_arrow(
            table.rename_columns(_each_once(table.column_names))
        )
        return frame

    def to_spark(self) -> SparkDataFrame:
        """The rows as a DataFrame of Spark. Its tasks run each time that Spark reads it; ``late``
        and ``bad_rows`` then have their figures.

        A query that tasks cannot share runs here, at once, and so does one that gives the rows of a
        relation. Raises RunError for an INSERT, CatalogError without a Spark session; tasks need
        the extra ``pandas`` (``DataFrame.mapInArrow``)."""
        from cql.catalog.spark.result import frame_of_table

        if self._target is not None:
            raise RunError("an INSERT has no rows", hint="query.insert() runs it")
        self._must_end()
        if not self._prepared.changelog and self._prepared.frame is not None:
            try:
                frame: SparkDataFrame
                self._run, frame = self._prepared.frame()
            except NotSupportedError:
                pass
            except CqlError as error:
                raise error.with_text(self._prepared.source) from error.__cause__
            else:
                return frame
        made: SparkDataFrame = frame_of_table(self.to_arrow())
        return made

    def write_to(self, table: str) -> DataFrameWriterV2:
        """Spark's writer of the rows, by its tasks: ``query.writeTo("default.t").create()``. Its
        ``append`` needs a table of a format with a writer of version 2 (Iceberg, Delta); for other
        tables ``to_spark().write`` appends. Raises as ``to_spark`` does."""
        return self.to_spark().writeTo(table)

    def plot(self, kind: str | None = None, *, marks: object = None, ax: object = None) -> Figure:
        """Runs the query and draws its rows (the extra ``plots``); the figure is matplotlib's.

        ``kind``: "spectrogram" (windows with spectra), "waveform" (samples of a signal, or windows
        of them) or "lines" (a time and numbers); None: the first of these that the columns have.
        ``marks``: a query or a table with columns ``start`` and ``stop``, ranges to shade. ``ax``:
        axes to draw in, one for each panel. Raises PlanError for a query that does not end by
        itself, or whose columns have no picture."""
        import_extra("matplotlib", "plots")
        from cql.show.plots.picture import draw

        if self._target is not None:
            raise RunError(
                "an INSERT gives no rows", hint=f"plot a SELECT from {self._target.name}"
            )
        return draw(self, kind, marks, ax).figure

    def show(self, n: int = 20) -> None:
        """Prints the first ``n`` rows to arrive and ends the run; for an INSERT, runs it and prints
        the number of written rows."""
        import sys

        from cql.show import render

        console = render.console_for(sys.stdout)
        if self._target is not None:
            self._finish_insert()
            console.print(self.summary())
            return
        table, more = self._head(n)
        render.print_rows(table, console, more=more)

    def _head(self, n: int) -> tuple[pa.Table, bool]:
        """The first ``n`` rows to arrive, and whether another row followed; ends the run."""
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
                text=self._prepared.source,
            )

    # ----------------------------------------------------------------- writing rows

    def start(self) -> Query:
        """Starts an INSERT in the background. Raises RunError for a SELECT, which has no target."""
        if self._target is None:
            raise RunError(
                "a SELECT has no target to run into",
                hint="iterate over it, or start an INSERT INTO a table",
            )
        thread = threading.Thread(
            target=inherited(self._insert_in_background, computes=False),
            args=self._begin_insert(),
            name=f"cql {self.name}",
            daemon=True,
        )
        self._runs_in(thread)
        thread.start()
        return self

    @property
    def _writes(self) -> frozenset[str]:
        """The tables that the query writes, with the table of LATE OUTPUT."""
        late = self._prepared.late
        named = (self._target.name if self._target else None, late.name if late else None)
        return frozenset(name for name in named if name is not None)

    @property
    def _makes(self) -> frozenset[str]:
        """The table that LATE OUTPUT creates, if the table does not exist yet."""
        late = self._prepared.late
        return frozenset((late.name,) if late is not None and late.new else ())

    def insert(self) -> Query:
        """Runs an INSERT in this thread to its end. A bounded INSERT that is interrupted or fails
        publishes nothing."""
        self._insert(*self._begin_insert())
        return self

    def _begin_insert(self) -> tuple[Run, Publisher, contextlib.ExitStack]:
        """The run, the publisher of its rows, and the stack that ends both.

        The sinks are open on return, so that the new tables can be read as soon as the query's
        status is running."""
        with contextlib.ExitStack() as stack:
            run = stack.enter_context(self._one_run())
            publisher = stack.enter_context(self._publishing(run))
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
        except Exception:  # ``exception`` and ``await_termination`` report the error
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
    def _publishing(self, run: Run) -> Iterator[Publisher]:
        """In the ``with`` block, the publisher that writes the rows of ``run`` into the target of
        this INSERT. The rows become visible at the end, or epoch by epoch."""
        assert self._target is not None
        publisher = self._target.publisher(self._count, run, self.schema)
        with self._late_output(run), publisher:
            yield publisher
            if self._stop_requested and self._target.epoch is None:
                publisher.abandon()

    # ----------------------------------------------------------------- about the latest run

    def progress(self) -> Progress:
        return self._latest().progress()

    def metrics(self) -> list[dict[str, Any]]:
        """One entry for each operator of the latest run: rows, time, memory."""
        return self._latest().metrics()

    def late(self) -> pa.Table:
        """The ledger of late rows of the latest run: ``place``, ``kind``, ``count``,
        ``max_lateness``, ``suggested_slack`` and ``jump``.

        The kinds: "rows": rows of an input below its watermark; "pairs": (row, window) pairs that
        an aggregate left out; "beyond MAX ADVANCE": rows that the watermark did not follow, because
        they were too far ahead, by ``jump``; "jump within MAX ADVANCE": rows that were late only
        because another row was ahead by ``jump``."""
        return self._latest().late()

    def bad_rows(self) -> pa.Table:
        """The ledger of the latest run's first 10,000 bad rows (``progress().bad`` counts all).

        ``source`` and ``offset`` (in rows, from 0) locate the row; both are NULL for a result of an
        aggregate and for a row behind a filter. ``operator`` is the operator that refused the row,
        "source" for an unreadable row. ``reason`` includes the place in the file; ``text`` is the
        text of an unreadable row."""
        return self._latest().bad_rows()

    def explain(self, mode: str = "physical") -> Explanation:
        """The plan as text.

        ``mode``: physical (with the reason for each choice), logical, analyze (runs a query that
        ends by itself, and adds the measurements), mermaid, kernel (the source of the compiled
        kernels). Raises PlanError for any other mode, and for analyze of an endless query."""
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
        return Explanation(self._prepared.explain(word, self._run))

    def _explain_run(self) -> Explanation:
        """The plan with the measurements of the latest run so far, ended or not."""
        return Explanation(self._prepared.explain("analyze", self._latest()))

    def summary(self) -> str:
        """The latest run in one line: rows, time, late and bad rows."""
        from cql.show import render

        progress = self.progress()
        verb = f" inserted into {self._target.name}" if self._target else ""
        rows = render.count_text(self._row_count)
        parts = [f"{rows}{verb} ({render.duration_text(progress.elapsed)})"]
        if progress.late and self._windowed:
            parts.append(f"{progress.late:,} late")
        if progress.bad:
            parts.append(f"{progress.bad:,} bad")
        return ", ".join(parts)


def import_extra(name: str, extra: str = "") -> Any:
    """Imports an optional library of the extra ``extra`` (default: the library's name); raises
    RunError with the way to install it."""
    import importlib

    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise RunError(
            f"{name} is not installed", hint=f"pip install 'cql-streams[{extra or name}]'"
        ) from None


def _close(batches: Iterator[Any]) -> None:
    close = getattr(batches, "close", None)
    if close is not None:
        close()


def _each_once(names: list[str]) -> list[str]:
    """The names, with repeated names numbered: id, id_1."""
    taken, found = set(names), list[str]()
    for name in names:
        other, k = name, 0
        while other in found or (k and other in taken):
            k += 1
            other = f"{name}_{k}"
        found.append(other)
    return found
