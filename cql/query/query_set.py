"""A query set: queries that start together and run as one, with common parts computed once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from cql.base.reentrancy import inherited
from cql.errors import NotSupportedError, PlanError, RunError
from cql.query.query import EXPLAIN_MODES, Explanation, Query
from cql.query.result import Result
from cql.query.run import Run
from cql.query.sink_writer import Publisher
from cql.session.pyspark_names import pyspark_names

if TYPE_CHECKING:
    import pyarrow as pa


class RunOfAll(Protocol):
    """One run of several plans (``cql.executor.run.execution.Execution``).

    ``queries`` are the parts of the run; ``results`` yields their rows, each batch with the number
    of its query."""

    @property
    def queries(self) -> Sequence[Run]: ...
    def results(self) -> Iterator[tuple[int, pa.RecordBatch]]: ...
    def request_stop(self) -> None: ...


@pyspark_names
class QuerySet:
    """Several INSERTs and SELECTs; made by ``Session.query_set``.

    The queries start together and end together: an error of one query ends all. Rows that they
    insert from bounded input are published at the end of the input, or not at all. Each of
    ``queries`` has its own progress, metrics and ledgers."""

    def __init__(
        self,
        name: str,
        queries: Sequence[Query],
        run: Callable[[], RunOfAll],
        explain: Callable[[str], str],
    ) -> None:
        self.name = name
        self.queries = tuple(queries)
        for query in queries:
            query._starts_with(self.queries)
        self._new_run = run
        self._explain = explain
        self._run: RunOfAll | None = None

    @property
    def bounded(self) -> bool:
        """Whether every query ends by itself."""
        return all(q.bounded for q in self.queries)

    @property
    def _live(self) -> bool:
        """Whether some input of the set has no end."""
        return any(q._live for q in self.queries)

    @property
    def _windowed(self) -> bool:
        """Whether some query leaves out late rows."""
        return any(q._windowed for q in self.queries)

    @property
    def _has_run(self) -> bool:
        return self._run is not None

    @property
    def is_active(self) -> bool:
        return any(q.is_active for q in self.queries)

    def __repr__(self) -> str:
        names = ", ".join(f"{q.name} {q.status}" for q in self.queries)
        return f"<QuerySet {self.name}: {names}>"

    def batches(self) -> Iterator[tuple[Query, pa.RecordBatch]]:
        """Runs the set and yields the rows of the SELECTs as they arrive; the INSERTs write their
        tables meanwhile. Closing the iterator ends the run."""
        yield from self._rows(*self._begin())

    def _begin(self) -> tuple[RunOfAll, dict[int, Publisher], contextlib.ExitStack]:
        """The run, the publisher of each INSERT by the query's number, and the stack that ends all.

        On return, each query can be stopped and its new tables can be read."""
        run = self._new_run()
        writers: dict[int, Publisher] = {}
        with contextlib.ExitStack() as stack:
            for query, part in zip(self.queries, run.queries, strict=True):
                stack.enter_context(query._one_run(part))
            self._run = run
            for number, (query, part) in enumerate(zip(self.queries, run.queries, strict=True)):
                if query.is_insert:
                    writers[number] = stack.enter_context(query._publishing(part))
                else:
                    stack.enter_context(query._late_output(part))
            return run, writers, stack.pop_all()

    def _rows(
        self, run: RunOfAll, writers: dict[int, Publisher], running: contextlib.ExitStack
    ) -> Iterator[tuple[Query, pa.RecordBatch]]:
        results = run.results()
        try:
            with running:
                for number, batch in results:
                    if number in writers:
                        writers[number].write(batch)
                    elif batch.num_rows:
                        self.queries[number]._count(batch.num_rows)
                        yield self.queries[number], batch
        finally:
            close = getattr(results, "close", None)
            if close is not None:
                close()

    def to_arrow(self) -> list[pa.Table]:
        """The result of each query, in the order of the set; of an INSERT, the number of written
        rows. Raises PlanError unless every query ends by itself."""

        if not self.bounded:
            raise PlanError(
                "this set does not end by itself, so it has no whole result",
                hint="iterate over batches(), or INSERT into tables and start() it",
            )
        found: dict[str, list[pa.RecordBatch]] = {}
        for query, batch in self.batches():
            found.setdefault(query.name, []).append(batch)
        return [query._table_of(found.get(query.name, [])) for query in self.queries]

    @property
    def is_insert(self) -> bool:
        """Whether every query is an INSERT."""
        return all(q.is_insert for q in self.queries)

    def insert(self) -> QuerySet:
        """Runs the INSERTs in this thread to their end."""
        self._only_inserts()
        for _ in self.batches():
            pass
        return self

    def start(self) -> QuerySet:
        """Runs the INSERTs in the background."""
        self._only_inserts()
        if self.is_active:
            raise RunError(f"{self.name} is running already", hint="stop() it first")
        thread = threading.Thread(
            target=inherited(self._in_background, computes=False),
            args=self._begin(),
            name=f"cql {self.name}",
            daemon=True,
        )
        for query in self.queries:
            query._runs_in(thread)
        thread.start()
        return self

    def stop(self, timeout: float | None = 10.0) -> bool:
        """Requests the end of all queries, and waits up to ``timeout`` seconds for a run in the
        background; True when the set no longer runs."""
        return all(query.stop(timeout) for query in self.queries)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Waits for a run in the background; False if it still runs after ``timeout`` seconds.
        Raises the error that made the run fail."""
        return all(query.await_termination(timeout) for query in self.queries)

    def explain(self, mode: str = "physical") -> Explanation:
        """The plans as text. The first of several queries that share a part shows the part; the
        others name it. ``mode``: physical, mermaid, or logical (each query's own plan)."""
        word = mode.lower()
        if word not in EXPLAIN_MODES:
            raise PlanError(
                f"there is no EXPLAIN mode {mode}", hint=f"modes: {', '.join(EXPLAIN_MODES)}"
            )
        if word == "logical":
            return Explanation("\n".join(f"{q.name}:\n{q.explain(word)}" for q in self.queries))
        if word not in ("physical", "mermaid"):
            raise NotSupportedError(
                f"EXPLAIN {word.upper()} of queries that start together is not supported",
                hint=f"EXPLAIN {word.upper()} one of them by itself; metrics() of each of queries"
                " tells what its part of a run did",
            )
        return Explanation(self._explain(word))

    def _result(self) -> Result:
        """One row per query: its name, status and target, and the number of published rows."""
        columns = ("query", "status", "target", "rows")
        rows = ((q.name, q.status, q._target_name, q.row_count) for q in self.queries)
        return Result(columns, tuple(rows))

    def show(self) -> None:
        """Prints ``result()``. A set that ends by itself runs first, unless it has run."""
        if self.bounded and self._run is None:
            self.insert()
        self._result().show()

    def summary(self) -> str:
        """The latest run: one line per query."""
        return "\n".join(f"{q.name}: {q.summary()}" for q in self.queries)

    def _in_background(
        self, run: RunOfAll, writers: dict[int, Publisher], running: contextlib.ExitStack
    ) -> None:
        try:
            for _ in self._rows(run, writers, running):
                pass
        except Exception:  # each query keeps the error, and ``await_termination`` raises it
            return

    def _only_inserts(self) -> None:
        for query in self.queries:
            if not query.is_insert:
                raise RunError(
                    f"{query.name} is a SELECT, whose rows have nowhere to go",
                    hint="iterate over batches(), or take to_arrow()",
                )
