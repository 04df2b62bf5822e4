"""The source of a stream that is a query: a run of the query, in a thread of its own, whose results
are the rows of the stream and whose punctuation is that of the stream."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from cql.base.model import Schema
from cql.base.reentrancy import inherited
from cql.base.waiting import join
from cql.executor.derived.handover import Handed, Handover
from cql.executor.derived.watermarks import ResultWatermarks, no_rows
from cql.executor.protocols import BLOCK_ROWS, Block, Offset, Reader
from cql.planner.nodes.logical import is_pulled
from cql.planner.nodes.physical import SourceExec

if TYPE_CHECKING:
    from cql.executor.run.control import Control
    from cql.executor.run.run_report import QueryRun


class StreamRun(Protocol):
    """A run of a query whose results come with their ``watermarks``
    (``executor.run.execution.Execution``)."""

    @property
    def control(self) -> Control: ...
    @property
    def watermarks(self) -> ResultWatermarks | None: ...
    @property
    def queries(self) -> Sequence[QueryRun]: ...
    def results(self) -> Generator[tuple[int, pa.RecordBatch]]: ...
    def request_stop(self) -> None: ...


@dataclass(slots=True)
class QuerySource:
    """The stream of a source that has a ``query``. ``new_run`` makes a run of the query, with the
    watermarks of the given columns, by their places."""

    node: SourceExec
    new_run: Callable[[Mapping[int, str]], StreamRun]

    @property
    def schema(self) -> Schema:
        return self.node.relation.schema

    @property
    def bounded(self) -> bool:
        return self.node.relation.bounded

    @property
    def paced(self) -> bool:
        """Whether rows come when those of the query's inputs come."""
        return not is_pulled(self.node.relation)

    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader:
        assert offset is None  # a run with such a source makes no checkpoint
        spec, schema = self.node.relation.stream, self.schema
        progress = spec.progress if spec is not None else ()
        times = {at: p.column for p in progress if (at := schema.find(p.column)) is not None}
        places = [at for name in columns if (at := schema.find(name)) is not None]
        reader = QueryReader(self.new_run(times), schema, places, self.node.name)
        reader.start()
        return reader


class QueryReader:
    """Reads the columns ``places`` of the results of ``run``, which have ``schema``."""

    def __init__(self, run: StreamRun, schema: Schema, places: Sequence[int], name: str) -> None:
        self.notices: list[str] = []
        run.queries[0].on_notice = self.notices.append
        self._run = run
        self._places = places
        self._arc = Handover()
        self._rest: deque[Handed] = deque()
        self._offset = 0
        self._none = no_rows(schema).select(places)
        work = inherited(self._drive)
        self._thread = threading.Thread(target=work, name=f"cql {name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def next(self, timeout: float | None = None) -> Block | None:
        taken = self._taken(timeout)
        if taken is None:
            if self._run.control.must_stop:  # the query has not come to its end
                return self._block([], [])
            return None
        parts, punctuation, rows = [], list[tuple[int, str, int]](), 0
        for one in taken:
            parts.append(one.rows.select(self._places))
            rows += one.rows.num_rows
            punctuation += [(rows, column, value) for column, value in one.watermarks]
        return self._block(parts, punctuation)

    def _taken(self, timeout: float | None) -> list[Handed] | None:
        """Results for one block, of which a single one may have more rows than a block."""
        if self._rest:
            return [self._rest.popleft()]
        taken = self._arc.take(timeout)
        if not taken or taken[0].rows.num_rows <= BLOCK_ROWS:
            return taken
        (large,) = taken
        rows, starts = large.rows, range(0, large.rows.num_rows, BLOCK_ROWS)
        self._rest.extend(Handed(rows.slice(k, BLOCK_ROWS), ()) for k in starts[:-1])
        self._rest.append(Handed(rows.slice(starts[-1]), large.watermarks))
        return [self._rest.popleft()]

    def _block(
        self, parts: list[pa.RecordBatch], punctuation: Sequence[tuple[int, str, int]]
    ) -> Block:
        batch = self._none
        if parts:
            batch = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        self._offset += batch.num_rows
        return Block(batch, {"row": self._offset}, row_punctuation=tuple(punctuation))

    def close(self) -> None:
        self._arc.close()
        self._run.request_stop()
        if threading.current_thread() is not self._thread:  # a function of the query may end it
            join(self._thread)

    def _drive(self) -> None:
        """Runs the query, and puts its results on the arc."""
        error: BaseException | None = None
        watermarks = self._run.watermarks
        assert watermarks is not None
        try:
            results = self._run.results()
            try:
                for _, batch in results:
                    if not self._arc.put(Handed(batch, watermarks.take())):
                        break
            finally:
                results.close()
        except BaseException as raised:  # raised where the rows are read
            error = raised
        self._arc.end(error)
