"""Reports on a run: for each query of an execution, its progress and its ledgers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from cql.executor.kernels.morsel_layout import INFINITY
from cql.executor.ledgers import bad_rows, late_rows
from cql.executor.ledgers import metrics as ledger
from cql.executor.ledgers.bad_rows import BadRow
from cql.executor.morsel.ingest import Feed
from cql.executor.operators.contract import Operator
from cql.executor.run.backpressure_report import value_behind
from cql.executor.runtimes.times import MarkerTime, WorkerTime
from cql.planner.lower.choose import duration
from cql.planner.nodes.physical import SourceExec, sources
from cql.planner.placement.shared_panes import own_windows

if TYPE_CHECKING:
    from cql.executor.run.control import Control
    from cql.executor.run.execution import Execution


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a query. ``event_time`` is the lowest watermark of its inputs, in units of their
    window attribute. ``total_rows`` is known for bounded inputs with statistics. ``elapsed`` is in
    seconds. ``tasks`` are those of Spark that have ended, and all of them; None under another
    runtime."""

    rows_in: int
    rows_out: int
    late: int
    bad: int
    event_time: int | None
    total_rows: int | None
    elapsed: float
    tasks: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """``prepared``: seconds to compile kernels and open inputs. ``ran``: seconds from then on.
    ``workers``: the times of each worker (empty if only the driving thread works). ``markers``: the
    times of markers through the operators (None without workers)."""

    prepared: float
    ran: float
    workers: tuple[WorkerTime, ...]
    markers: MarkerTime | None = None


@dataclass(frozen=True, slots=True)
class _Over:
    """The answers of a finished run."""

    progress: Progress
    metrics: list[dict[str, Any]]
    timing: Timing | None
    late: list[late_rows.Late]
    held_back: str | None
    sources: dict[str, str]
    last_instant: int | None


class QueryRun:
    """Query ``number`` of an execution. If it is the only one, reading its ``batches`` drives the
    execution. ``on_notice`` receives notices for the user, ``on_late`` the rows of LATE OUTPUT.

    Reports include those of the streams that the query reads and that are queries themselves; the
    names of their inputs and operators begin with the name of the stream."""

    def __init__(self, execution: Execution, number: int) -> None:
        self.on_notice: Callable[[str], None] = lambda message: None
        self.on_late: Callable[[pa.RecordBatch], None] = lambda batch: None
        self._execution = execution
        self._number = number
        self._sources = sources(execution.plans[number].root)
        self._over: _Over | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields results as soon as they exist. Closing the iterator releases everything."""
        assert len(self._execution.plans) == 1
        results = self._execution.results()
        try:
            for _, batch in results:
                yield batch
        finally:
            results.close()

    @property
    def control(self) -> Control:
        """The control of the whole execution: pauses it and changes its number of workers."""
        return self._execution.control

    def sharing(self) -> str | None:
        """The number of workers found and the reason, or the reason for having one worker; None if
        there is nothing to report."""
        return self._execution.control.report()

    def request_stop(self) -> None:
        """Ends the run at the next admission; safe from any thread or signal handler."""
        self._execution.request_stop()

    def freeze(self) -> None:
        """Keeps the answers of this report, so that the run can be released."""
        self._over = _Over(
            self._progress(),
            self._metrics(),
            self.timing(),
            self._late(),
            self.held_back(),
            self._kernel_sources(),
            self.last_instant,
        )

    @property
    def timed(self) -> bool:
        """Whether ``metrics`` and ``timing`` include the times of operators; set it before the run
        begins."""
        return self._execution.timed

    @timed.setter
    def timed(self, wanted: bool) -> None:
        self._execution.timed = wanted

    @property
    def last_instant(self) -> int | None:
        """The latest instant that the inputs of windows have reached; INFINITY if the query has no
        windows that a row could leave."""
        if self._over is not None:
            return self._over.last_instant
        relations = [op.any_instance for op in self._operators() if op.any_instance.has_instants]
        if not relations:
            return INFINITY
        return max((op.last for op in relations if op.last is not None), default=None)

    def progress(self) -> Progress:
        """A snapshot; callable from any thread while the query runs."""
        made, below = self._progress(), [query.progress() for _, query in self._below()]
        late = made.late + sum(one.late for one in below)
        return replace(made, late=late, bad=made.bad + sum(one.bad for one in below))

    def _progress(self) -> Progress:
        if self._over is not None:
            return self._over.progress
        run, feeds = self._execution, self._feeds()
        idle = [run.timers.is_idle(k) for k in feeds]
        counted = [f for f, silent in zip(feeds.values(), idle, strict=True) if not silent]
        times = [f.attributes[0].watermark() for f in counted or feeds.values() if f.attributes]
        end = run.finished or time.monotonic()
        totals = [f.total_rows for f in feeds.values()]
        return Progress(
            sum(f.rows for f in feeds.values()),
            run.rows_out[self._number],
            sum(f.late_rows for f in feeds.values()),
            run.bad.counts[self._number],
            min(times) if times and min(times) > np.iinfo(np.int64).min else None,
            sum(n or 0 for n in totals) if totals and None not in totals else None,
            end - run.started if run.started is not None else 0.0,
        )

    def metrics(self) -> list[dict[str, Any]]:
        """Per operator: rows in and out, and the other outcomes of rows
        (``executor.ledgers.metrics``); bytes of state; its ``partitions``, with the share of the
        rows in the ``largest`` one. A ``timed`` run adds ``nanoseconds`` spent (for an input:
        reading it), the mean ``response`` time of an input's rows in nanoseconds
        (``response_times``), the punctuation that an operator received and passed on, and, under
        the ordered runtime, the fields of ``OperatorTime``."""
        return [
            *self._metrics(),
            *(
                {**entry, "operator": f"{name}.{entry['operator']}"}
                for name, query in self._below()
                for entry in query.metrics()
            ),
        ]

    def _metrics(self) -> list[dict[str, Any]]:
        if self._over is not None:
            return self._over.metrics
        run = self._execution
        times = run.times()
        rows: list[dict[str, Any]] = [
            {
                "operator": f.source.name,
                "rows_in": f.rows,
                "rows_out": f.rows - f.bad - f.row_punctuation,
                "bad": f.bad,
                "late": f.late_rows,
                **({"marks": f.row_punctuation} if f.row_punctuation else {}),
                **({"far_ahead": f.far_rows} if f.far_rows else {}),
                **({"nanoseconds": f.nanoseconds} if times is not None else {}),
                **self._response(k),
                **f.reported(),
            }
            for k, f in self._feeds().items()
        ]
        for k, op in self._numbered():
            peak = run.workspace.peaks.get(op.name, 0)
            rows.append(ledger.entry(op, run.bad.refused.get(op.name, {}), peak))
            if times is not None:
                rows[-1] |= ledger.timed(times.operators[k])
        return rows

    def _response(self, k: int) -> dict[str, float]:
        responses = self._execution.responses
        mean = responses.mean(k) if responses is not None else None
        return {} if mean is None else {"response": mean}

    def timing(self) -> Timing | None:
        """None unless the run is ``timed`` and has begun."""
        if self._over is not None:
            return self._over.timing
        run = self._execution
        times = run.times()
        if times is None or run.started is None or run.prepared is None:
            return None
        end = run.finished or time.monotonic()
        return Timing(run.prepared - run.started, end - run.prepared, times.workers, times.markers)

    def held_back(self) -> str | None:
        """A sentence about the input that was furthest behind for the longest time, or about the
        value of PUNCTUATE BY that is furthest behind; None if none is."""
        if self._over is not None:
            return self._over.held_back
        run = self._execution
        k = run.holding.worst()
        if k is None or k not in self._feeds():
            values = (value_behind(feed) for feed in self._feeds().values())
            return next(filter(None, values), None)
        held, feed = run.holding.held[k], run.feeds[k]
        by = duration(held.behind, feed.attributes[0].field.type)
        most = f", by {by} at the most" if held.behind else ""
        share = held.seconds / run.holding.seconds
        name = feed.source.name
        return f"time was held back by {name}: furthest behind for {share:.0%} of the run{most}"

    def late(self) -> pa.Table:
        """The ledger of lateness (``late_rows.entries`` lists its kinds). Lengths of time are
        durations, or integers in the unit of the event time if that is no timestamp."""
        found = list(self._all_late())
        return late_rows.table(found, timed=has_timestamps(_with_below(self._sources)))

    def _all_late(self) -> Iterator[late_rows.Late]:
        yield from self._late() if self._over is None else self._over.late
        for name, query in self._below():
            yield from (replace(one, place=f"{name}.{one.place}") for one in query._all_late())

    def _late(self) -> list[late_rows.Late]:
        return late_rows.entries(list(self._feeds().values()), self._operators(), self._windows())

    def _windows(self) -> dict[str, list[int]]:
        """This query's window numbers, per operator with the windows of several queries."""
        wanted = own_windows(self._execution.plans[self._number].root)
        return {
            op.name: wanted[id(op.aggregate)]
            for op in self._operators()
            if op.aggregate is not None and id(op.aggregate) in wanted
        }

    def bad_rows(self) -> pa.Table:
        """The ledger of bad rows (``ledgers.bad_rows``); ``progress().bad`` counts all of them."""
        found = map(asdict, self._all_bad())
        return pa.Table.from_pylist(list(found), schema=bad_rows.SCHEMA)

    def _all_bad(self) -> Iterator[BadRow]:
        yield from self._execution.bad.of_query(self._number)
        for name, query in self._below():
            for row in query._all_bad():
                source = None if row.source is None else f"{name}.{row.source}"
                yield replace(row, source=source, operator=f"{name}.{row.operator}")

    def kernel_sources(self) -> dict[str, str]:
        """The generated source of each stage, by operator."""
        found = self._kernel_sources()
        for name, query in self._below():
            found = found | {f"{name}.{k}": text for k, text in query.kernel_sources().items()}
        return found

    def _kernel_sources(self) -> dict[str, str]:
        if self._over is not None:
            return self._over.sources
        running = (op.any_instance for op in self._operators())
        return {op.name: op.source_text for op in running if op.source_text is not None}

    # -- its part of the execution ---------------------------------------------------------------

    def _below(self) -> list[tuple[str, QueryRun]]:
        """The queries that are streams of this one, each with the name of the stream."""
        mine = {id(s) for s in self._sources}
        return [(s.name, query) for s, query in list(self._execution.below) if id(s) in mine]

    def _feeds(self) -> dict[int, Feed]:
        """The query's inputs, by number."""
        mine = {id(s) for s in self._sources}
        feeds = enumerate(list(self._execution.feeds))
        return {k: f for k, f in feeds if id(f.source) in mine}

    def _operators(self) -> list[Operator]:
        """The operators that the query's results come through."""
        return [op for _, op in self._numbered()]

    def _numbered(self) -> list[tuple[int, Operator]]:
        run = self._execution
        if run.graph is None:
            return []
        users = zip(run.graph.operators, run.users, strict=True)
        return [(k, op) for k, (op, queries) in enumerate(users) if self._number in queries]


def _with_below(inputs: Iterable[SourceExec]) -> Iterator[SourceExec]:
    """``inputs``, with those of the queries that are streams."""
    for node in inputs:
        yield node
        if node.query is not None:
            yield from _with_below(sources(node.query.root))


def has_timestamps(inputs: Iterable[SourceExec]) -> bool:
    """Whether all event times that the inputs read are timestamps."""
    return all(
        node.schema[column].type.is_timestamp for node in inputs for column, _ in node.progress
    )
