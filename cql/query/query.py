"""A query of a session: planned, not yet running, or running, or done.

A ``Query`` is lazy: reading its rows runs it, each time anew from the start of its sources. What
can be asked about a run (metrics, ledgers, progress) is asked about the latest one.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from cql.base.model import Schema
from cql.base.reentrancy import inherited
from cql.base.types import DataType
from cql.errors import PlanError, RunError
from cql.query.life_cycle import LifeCycle
from cql.query.run import Progress, Run
from cql.query.sink_writer import Publisher
from cql.session.pyspark_names import pyspark_names

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from cql.executor.protocols import Sink
    from cql.planner.nodes.logical import SortKey
    from cql.planner.nodes.physical import PhysicalPlan


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
class PreparedQuery:
    """How a query is run and explained: what the session hands over. ``text`` is the statement,
    ``source`` the text that it stands in (and that positions refer to). ``windowed``: late rows
    are left out of windows. ``event_time_type`` is the type of the first progressing column among
    its inputs. ``changelog``: the rows are the changes of a relation, and ``order`` is that of the
    relation itself. ``late`` is where LATE OUTPUT goes. ``bounded``: it ends by itself; ``live``:
    some input does not (None: unless it is bounded), so that what comes is waited for."""

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
    live: bool | None = None


EXPLAIN_MODES = ("physical", "logical", "analyze", "mermaid", "kernel")


@pyspark_names
class Query(LifeCycle):
    """A SELECT or an INSERT; made by ``Session.sql``.

    ``status`` is ready, running, paused, finished, stopped or failed. Errors are CqlErrors that
    know the text of the query. Safe to ``stop``, ``pause`` and ``resume`` from any thread; rows are
    read by one thread at a time."""

    def __init__(
        self, prepare: PreparedQuery, target: Target | None = None, name: str = ""
    ) -> None:
        super().__init__(name, prepare.source, prepare.run)
        self.text = prepare.text
        self._prepared = prepare
        self._target = target

    # ----------------------------------------------------------------- what it is

    @property
    def _plan(self) -> PhysicalPlan:
        return self._prepared.plan

    @property
    def schema(self) -> Schema:
        """Columns of the result (of the rows inserted, for an INSERT)."""
        return self._prepared.schema

    @property
    def _windowed(self) -> bool:
        """Whether it leaves late rows out; without a window they are rows like any other."""
        return self._prepared.windowed

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    @property
    def bounded(self) -> bool:
        """Whether the query ends by itself: when its input does, or by a LIMIT."""
        return self._prepared.bounded

    @property
    def _live(self) -> bool:
        """Whether some input has no end, so that the query waits for what comes (even if a LIMIT
        ends it). Such an INSERT runs in the background, and publishes as it goes."""
        live = self._prepared.live
        return not self.bounded if live is None else live

    @property
    def _target_name(self) -> str | None:
        """Where an INSERT goes."""
        return self._target.name if self._target is not None else None

    @property
    def is_insert(self) -> bool:
        return self._target is not None

    @property
    def _event_time_type(self) -> DataType | None:
        """What ``progress().event_time`` counts."""
        return self._prepared.event_time_type

    def __repr__(self) -> str:
        what = f"INSERT INTO {self._target.name}" if self._target else "SELECT"
        columns = ", ".join(str(f) for f in self.schema)
        return f"<Query {self.name} {self._status}: {what} ({columns})>"

    def _repr_html_(self) -> str:
        """For notebooks: the columns and, of a SELECT that ends by itself over tables, files or
        Arrow data, its first 20 rows, computed apart from its runs and given up after 2 seconds.
        No other query is run for it."""
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
        """Arrow batches as they come; closing the iterator ends the query. A relation comes as its
        changes: ``_time``, ``_weight`` (how many copies of the row enter; below zero: leave)."""
        if self._target is not None:
            raise RunError(
                "an INSERT gives no rows",
                hint=f"read {self._target.name} with a SELECT; row_count says how many it got",
            )
        return self._rows()

    def _rows(self) -> Iterator[pa.RecordBatch]:
        with self._one_run() as run:
            batches = run.batches()
            try:
                with self._late_output(run):
                    for batch in batches:
                        if batch.num_rows:
                            self._row_count += batch.num_rows
                            yield batch
                if self._cut_off:
                    raise RunError("the session was closed before all rows had been read")
            finally:
                _close(batches)

    @contextlib.contextmanager
    def _late_output(self, run: Run) -> Iterator[None]:
        """While ``run`` runs, its LATE OUTPUT goes where it belongs. Like an INSERT, that of
        bounded input is published when all of it was read, or not at all."""
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
            return self._table_of(())
        self._must_end()
        return self._table_of(self.batches())

    def _table_of(self, batches: Iterable[pa.RecordBatch]) -> pa.Table:
        """The whole result, of all batches of the run that has just ended: a relation as of the
        last instant of its input."""
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
        """The rows for whoever reads Arrow's C streams: ``pl.DataFrame(query)``,
        ``pyarrow.table(query)``, ``SELECT * FROM query`` in DuckDB. Those of ``to_arrow`` for a
        query that ends by itself; of an endless one what ``batches`` gives, until it is stopped.
        The run begins with the first batch that is read, and ends when the stream is released.
        ``requested_schema`` asks for other types of the same columns (ValueError if there is no
        cast)."""
        import pyarrow as pa

        from cql.query.arrow_stream import reader

        if self._target is not None:
            if not self.bounded:
                self._must_end()
            stream = reader(pa.schema({"rows": pa.int64()}), self._whole)
        elif self._prepared.changelog and self.bounded:
            # Behind the columns of the changes stand those of the relation.
            columns = pa.schema([*self.schema.to_arrow()][2:])
            stream = reader(columns, self._whole)
        else:
            stream = reader(self.schema.to_arrow(), self.batches)
        return stream.__arrow_c_stream__(requested_schema)

    def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
        """RunError: ``pd.DataFrame(query)`` asks for an array, and would make one of batches."""
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
        """All rows as a polars frame (the extra ``polars``), whose columns differ in name: of two
        columns ``id`` the second is ``id_1`` there, as in DuckDB."""
        polars = import_extra("polars")
        table = self.to_arrow()
        frame: pl.DataFrame = polars.from_arrow(
            table.rename_columns(_each_once(table.column_names))
        )
        return frame

    def show(self, n: int = 20) -> None:
        """Prints the first ``n`` rows as they come and ends the query; an INSERT runs, and says
        how many rows it wrote."""
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
                text=self._prepared.source,
            )

    # ----------------------------------------------------------------- writing rows

    def start(self) -> Query:
        """Starts an INSERT in the background; a SELECT has nowhere to put its rows."""
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
        """The tables that its rows go into, LATE OUTPUT's too."""
        late = self._prepared.late
        named = (self._target.name if self._target else None, late.name if late else None)
        return frozenset(name for name in named if name is not None)

    @property
    def _makes(self) -> frozenset[str]:
        """The table that LATE OUTPUT makes, if there is none yet."""
        late = self._prepared.late
        return frozenset((late.name,) if late is not None and late.new else ())

    def insert(self) -> Query:
        """Runs an INSERT here, to its end. Interrupted or failed, a bounded one leaves nothing."""
        self._insert(*self._begin_insert())
        return self

    def _begin_insert(self) -> tuple[Run, Publisher, contextlib.ExitStack]:
        """A run, where its rows go, and what ends both. What it writes into is open from here on,
        so that the tables it makes can be read as soon as it is said to run."""
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
    def _publishing(self, run: Run) -> Iterator[Publisher]:
        """While ``run`` runs: what writes its rows into the target of this INSERT. They are
        published at the end, or by epochs."""
        assert self._target is not None
        publisher = Publisher(self._target.open(), self._target.epoch, self._count, run)
        with self._late_output(run), publisher:
            yield publisher
            if self._stop_asked and self._target.epoch is None:
                publisher.abandon()

    # ----------------------------------------------------------------- about the latest run

    def progress(self) -> Progress:
        return self._latest().progress()

    def metrics(self) -> list[dict[str, Any]]:
        """One entry for each operator of the latest run: rows, time, memory."""
        return self._latest().metrics()

    def late(self) -> pa.Table:
        """The ledger of late rows of the latest run: ``place``, ``kind``, ``count``,
        ``max_lateness``, ``suggested_slack`` and ``jump``. Kind "rows": rows of an input that came
        below its watermark; "pairs": (row, window) pairs that an aggregate left out; "beyond MAX
        ADVANCE": rows that were so far ahead, by ``jump``, that progress did not follow them; "jump
        within MAX ADVANCE": rows that were late only because one was ahead by ``jump``."""
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
        return Explanation(self._prepared.explain(word, self._run))

    def _explain_run(self) -> Explanation:
        """The plan with what the latest run has measured so far, whether it has ended or not."""
        return Explanation(self._prepared.explain("analyze", self._latest()))

    def summary(self) -> str:
        """The latest run in a line: rows, time, late and bad rows."""
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


def _each_once(names: list[str]) -> list[str]:
    """The names, those that come again numbered: id, id_1."""
    taken, found = set(names), list[str]()
    for name in names:
        other, k = name, 0
        while other in found or (k and other in taken):
            k += 1
            other = f"{name}_{k}"
        found.append(other)
    return found
