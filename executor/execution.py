"""A running query: feeds, operators, a runtime, and the ledgers of what was late or bad."""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from cql.errors import CatalogError, CqlError, RunError
from cql.executor import lateness, ledger, text_columns
from cql.executor.codegen import cache_folder
from cql.executor.compaction import compact, is_due
from cql.executor.constants import units_of
from cql.executor.dictionary import Dictionary
from cql.executor.egress import Egress
from cql.executor.graph import SINK, Edge, Graph, build
from cql.executor.holding import Holding
from cql.executor.ingest import Feed, Loaded, narrow_schema
from cql.executor.kernels import cut
from cql.executor.marks import columns_read
from cql.executor.operators.late_rows import LateRowsOperator
from cql.executor.operators.merge import MergeOperator
from cql.executor.operators.native import BUFFERS, StageOperator, Workspace
from cql.executor.operators.relation import RelationOperator
from cql.executor.operators.union import UnionOperator
from cql.executor.protocols import BLOCK_ROWS, Reader
from cql.executor.runtimes.depth_first import DepthFirst
from cql.executor.runtimes.protocol import Failure, Runtime
from cql.executor.timers import Clock, Timers, told_idle
from cql.executor.unit import PHASE, ROWS, SEQUENCE, SERIAL, Unit
from cql.model import Schema
from cql.planner.choose import duration
from cql.planner.physical import PhysicalPlan, ProjectExec, SourceExec, sources

#: Bad rows are all counted; this many keep their particulars.
LEDGER_ROWS = 10_000
_LEAVE_OUT = "leave such rows out: ON BAD ROW KEEP"
#: Waiting for an unbounded source never delays a stop request by more than this (seconds).
_POLL = 0.05


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a query is. ``event_time`` is the least progress of its inputs, in units of their
    window attribute; ``total_rows`` is known for bounded inputs with statistics."""

    rows_in: int
    rows_out: int
    late: int
    bad: int
    event_time: int | None
    total_rows: int | None
    elapsed: float


@dataclass(frozen=True, slots=True)
class BadRow:
    """``offset`` counts the rows of ``source`` from 0; both are None where a row cannot be traced
    back: a result of an aggregate, or a row behind an operator that drops or repeats rows.
    ``text`` is what stood in the source, of a row that could not be read."""

    source: str | None
    offset: int | None
    operator: str
    reason: str
    text: str | None = None


@dataclass(frozen=True, slots=True)
class _Over:
    """What can be asked about a run that is over."""

    progress: Progress
    metrics: list[dict[str, Any]]
    late: list[lateness.Late]
    held_back: str | None
    sources: dict[str, str]


class Execution:
    """Runs a physical plan once. ``batches`` is the only thing that moves it.

    ``settings`` is read for: runtime, morsel_rows, fuse, slice_us, max_state, kernel_cache.
    ``clock`` gives seconds that only go forward. ``on_notice`` is told what may be not meant,
    ``on_late`` gets the rows of LATE OUTPUT."""

    def __init__(
        self, plan: PhysicalPlan, settings: Mapping[str, Any], clock: Clock = time.monotonic
    ) -> None:
        self.plan = plan
        self.on_notice: Callable[[str], None] = lambda message: None
        self.on_late: Callable[[pa.RecordBatch], None] = lambda batch: None
        self.schema: Schema = plan.root.schema
        self._settings = settings
        self._rows = min(int(settings["morsel_rows"]), BLOCK_ROWS)
        self._feeds: list[Feed] = []
        self._paced = False
        self._graph: Graph | None = None
        self._runtime: Runtime | None = None
        self._results: deque[pa.RecordBatch] = deque()
        self._block: tuple[int, Loaded] | None = None  # and the feed that it came from
        self._bad: list[BadRow] = []
        self._bad_rows = 0
        self._refused: dict[str, Counter[str]] = {}
        self._rows_out = 0
        self._stop = False
        self._started: float | None = None
        self._finished: float | None = None
        self._serial = 0
        self._sequence = 0
        self._readers: list[Reader] = []
        self._total_rows: int | None = None
        self._over: _Over | None = None
        self._refreshing: list[StageOperator | MergeOperator] = []
        #: The latest instant to which the inputs of relations have come.
        self.last_instant: int | None = None
        self._clock = clock
        self._timers = Timers((), clock)
        self._holding = Holding((), clock)
        self._silent: set[int] = set()
        self._told: set[str] = set()  # inputs of which a notice was given

    # -- running ---------------------------------------------------------------------------------

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Results as soon as they exist. Closing the iterator releases everything."""
        if self._started is not None:
            raise RunError("this execution has run already")
        self._started = time.monotonic()
        try:
            self._prepare()
            yield from self._take_results()
            for _ in self._admissions():
                yield from self._take_results()
            if self._runtime is not None:
                self._runtime.drain()
            yield from self._take_results()
        finally:
            self._finished = time.monotonic()
            with contextlib.ExitStack() as closing:
                for reader in self._readers:
                    closing.callback(reader.close)
                self._release()

    def _release(self) -> None:
        """A session remembers its latest queries; of their runs only what can be asked is kept."""
        self._block = None
        self._over = _Over(
            self.progress(),
            self.metrics(),
            self._late(),
            self.held_back(),
            self.kernel_sources(),
        )
        for operator in self._graph.operators if self._graph else ():
            if isinstance(operator, StageOperator):
                operator.release()
            elif isinstance(operator, RelationOperator) and operator.last is not None:
                known = operator.last if self.last_instant is None else self.last_instant
                self.last_instant = max(known, operator.last)
        self._graph = self._runtime = None
        self._feeds, self._readers, self._refreshing = [], [], []
        self._results.clear()
        for name in ("_workspace", "_egress"):  # not there when the run failed to begin
            vars(self).pop(name, None)

    def request_stop(self) -> None:
        """Ends the run at the next admission; safe from any thread or signal handler."""
        self._stop = True

    def _take_results(self) -> Iterator[pa.RecordBatch]:
        while self._results:
            yield self._results.popleft()

    def _prepare(self) -> None:
        folder = cache_folder(str(self._settings["kernel_cache"]))
        self._workspace = Workspace(
            Dictionary(), folder, self._rows, int(self._settings["max_state"])
        )
        text = text_columns.analyse(self.plan.root)
        nodes = sources(self.plan.root)
        totals: list[int | None] = []
        nulls: list[set[int]] = []
        lags: list[int] = []
        for node in nodes:
            with _told_at(node):
                narrow_schema(node.schema)
                source = node.relation.source()
                self._readers.append(source.open(columns_read(node)))
                lags.append(int(getattr(source, "lag", 0)))
                self._paced |= bool(getattr(source, "paced", False))
                known = node.relation.statistics
                totals.append(known.rows)
                with_nulls = {name.lower() for name, count in known.nulls.items() if count}
                nulls.append({i for i, f in enumerate(node.schema) if f.name.lower() in with_nulls})
        if totals and None not in totals:
            self._total_rows = sum(n or 0 for n in totals)
        fuse = bool(self._settings["fuse"])
        self._graph = build(self.plan.root, self._workspace, fuse=fuse, nulls=nulls)
        ones = self._workspace.ones
        for k, (node, reader) in enumerate(zip(nodes, self._readers, strict=True)):
            unit = Unit.allocate(node.schema, self._rows, ones=ones.ctypes.data, owned=frozenset())
            encoded = frozenset(c for s, c in text.encoded if s == k)
            feed = Feed(node, reader, self._workspace.dictionary, encoded, unit, ones)
            feed.nulls, feed.lag = nulls[k], lags[k]
            self._workspace.resize(0, feed.nbytes, BUFFERS)
            self._feeds.append(feed)
        last = self._graph.last
        base = int(ones.ctypes.data)
        self._egress = Egress(
            self.schema,
            self._graph.units[last],
            self._workspace.dictionary,
            text.carried,
            (base, base + ones.nbytes),
        )
        for operator in self._graph.operators:
            if isinstance(operator, LateRowsOperator):
                operator.on_late = self.on_late
        self._runtime = self._make_runtime(self._graph)
        self._refreshing = [
            op
            for op in self._graph.operators
            if isinstance(op, StageOperator | MergeOperator) and op.needs_refresh
        ]
        self._refresh()

    def _make_runtime(self, graph: Graph) -> Runtime:
        ones = int(self._workspace.ones.ctypes.data)
        if self.plan.runtime == "depth_first":
            return DepthFirst(graph, self, ones=ones, gather=self._gathered(graph))
        from cql.executor.runtimes.queued import Queued  # its kernels compile when it is used

        return Queued(
            graph,
            self,
            graph.inputs,
            self.plan.runtime,
            ones=ones,
            unit_rows=self._rows,
            slice_us=int(self._settings["slice_us"]),
            resize=self._workspace.resize,
        )

    def _gathered(self, graph: Graph) -> int:
        """Rows that the last operator collects before they become a batch: a bounded query is asked
        for its whole answer, so small batches only cost; but not one that follows a clock, whose
        results are waited for. Columns that are read from the source's block leave with it."""
        last = graph.operators[graph.last]
        if self._paced or not all(f.source.relation.bounded for f in self._feeds):
            return 0
        if not isinstance(last, StageOperator) or last.code.by_ref or self._egress.carried:
            return 0
        return self._rows // 2

    def _admissions(self) -> Iterator[None]:
        """Admits units until every input has ended; yields after each."""
        assert self._graph is not None
        assert self._runtime is not None
        ones = int(self._workspace.ones.ctypes.data)
        for node, edge in self._graph.constants:
            for unit in units_of(node, self._workspace.dictionary, self._rows, ones):
                self._refresh()
                self._runtime.admit(unit, edge)
                yield
        alive = set(range(len(self._feeds)))
        for feed in self._feeds:
            if feed.lag:
                with _told_at(feed.source):
                    feed.load(None)
        timers = self._timers = Timers(self._feeds, self._clock)
        holding = self._holding = Holding(self._feeds, self._clock)
        while alive and not self._stop:
            if is_due(self._workspace):
                self._compact()
            holding.note({k for k in alive if not timers.is_idle(k)})
            k = self._next_feed(alive)
            for silent in self._silent:
                yield from self._in_silence(silent)
            if k is None:
                self._runtime.drain()  # nothing waits inside while the inputs are silent
                yield
                continue
            feed = self._feeds[k]
            if feed.pending is not None:
                if timers.heard(k):
                    self._admit(k, told_idle(feed, self._serial, self._sequence, idle=False))
                yield from self._units(k, feed)
                timers.taken(k)
                self._tell_far(feed)
            elif feed.ended:
                alive.discard(k)
                self._admit(k, feed.end(self._serial, self._sequence))
                yield

    def _admit(self, k: int, unit: Unit) -> None:
        """A unit of input ``k`` without rows."""
        assert self._runtime is not None
        self._runtime.admit(unit, self._entry(k))
        self._serial += 1

    def _in_silence(self, k: int) -> Iterator[None]:
        """Input ``k`` had nothing to give: it may be idle now, its heartbeat may be due."""
        feed = self._feeds[k]
        if self._timers.falls_idle(k):
            self._admit(k, told_idle(feed, self._serial, self._sequence, idle=True))
            yield
        if self._timers.beat(k):
            self._admit(k, feed.promised(self._serial, self._sequence))
            yield

    def _tell_far(self, feed: Feed) -> None:
        """Says once of an input that a row of it was further ahead than MAX ADVANCE."""
        for attribute in feed.attributes if feed.source.name not in self._told else ():
            if attribute.far_rows:
                self._told.add(feed.source.name)
                most = duration(int(attribute.words[cut.ADVANCE]), attribute.field.type)
                self.on_notice(
                    f"{feed.source.name}.{attribute.name} jumped by more than {most}: progress"
                    " waits until three further rows confirm it (MAX ADVANCE of CREATE STREAM)"
                )

    def _next_feed(self, alive: set[int]) -> int | None:
        """The input that is furthest behind in event time; on unbounded inputs, one that has
        something to read. None if nothing has come yet. Those that were asked and had nothing are
        ``_silent``."""
        self._silent.clear()
        order = sorted(alive, key=lambda k: (self._feeds[k].position, k))
        if all(self._feeds[k].source.relation.bounded for k in order):
            return order[0] if self._has_come(order[0], _POLL) else None
        # One that is idle is asked first: it must not find that others have passed it meanwhile.
        order.sort(key=lambda k: not self._timers.is_idle(k))
        for timeout in (0.0, _POLL / len(order)):
            for k in order:
                if self._has_come(k, timeout):
                    return k
        return None

    def _has_come(self, k: int, timeout: float) -> bool:
        """Whether input ``k`` has something to read, or has ended."""
        feed = self._feeds[k]
        with _told_at(feed.source):
            if feed.load(timeout) or feed.ended:
                return True
        self._silent.add(k)
        return False

    def _units(self, k: int, feed: Feed) -> Iterator[None]:
        """Admits the pending block of input ``k``, unit by unit."""
        assert self._graph is not None
        assert self._runtime is not None
        if self._graph.fed and any(f.nulls for f in self._feeds):
            self._runtime.drain()
            if self._graph.assume([f.nulls for f in self._feeds]):
                self._runtime.rebind()
        self._refresh()
        # Queues keep the order of each input, not that among inputs; and columns that pass by
        # reference are read from one block.
        self._runtime.settle()
        loaded = feed.begin(self._serial, self._sequence)
        self._block = (k, loaded)
        self._sequence += loaded.rows
        if loaded.block.bad:
            self._unread(feed, loaded)
        entry = self._entry(k)
        while self._runtime.admit_next(feed.cutter, feed.unit, entry) and not self._stop:
            yield
        self._serial = int(feed.cutter[cut.NEXT_SERIAL])

    def _entry(self, k: int) -> Edge:
        assert self._graph is not None
        edge = self._graph.entries[k]
        assert edge is not None
        return edge

    def _compact(self) -> None:
        """Between two blocks: nothing but the operators' state refers to texts."""
        assert self._graph is not None
        assert self._runtime is not None
        self._runtime.drain()
        self._block = None
        compact(self._workspace, self._graph.operators)
        self._refresh()

    def _refresh(self) -> None:
        """Dictionary tables cover the codes of the block that comes next."""
        for operator in self._refreshing:
            operator.refresh()

    # -- what the runtime hands over (runtimes.protocol.Handler) ---------------------------------

    def deliver(self, unit: Unit) -> None:
        n = int(unit.words[ROWS])
        if n == 0:
            return
        k, loaded = self._block or (0, None)
        self._results.append(self._egress.batch(k, loaded))
        self._rows_out += n

    def failed(self, failure: Failure) -> None:
        if failure.fatal or not self.plan.keep_bad_rows:
            again = failure.site.again
            nobody = failure.fatal and (again is None or not again.of_row)  # as a sum's overflow
            source, offset = (None, None) if nobody else self._origin(failure)
            where = f", in the row at offset {offset} of {source.name}" if source else ""
            raise RunError(
                f"{failure.site.message}{where}",
                position=failure.site.pos or (source.pos if source else None),
                hint=_remedy(failure),
            )
        self._bad_rows += 1
        self._refused.setdefault(failure.operator, Counter())[self._kind(failure)] += 1
        if len(self._bad) < LEDGER_ROWS:
            source, offset = self._origin(failure)
            name = source.name if source else None
            self._bad.append(BadRow(name, offset, failure.operator, failure.site.message))

    def _kind(self, failure: Failure) -> str:
        assert self._graph is not None
        named = (op for op in self._graph.operators if op.name == failure.operator)
        operator = next(named, None)
        return ledger.kind_of(operator, failure) if isinstance(operator, StageOperator) else "bad"

    def _unread(self, feed: Feed, loaded: Loaded) -> None:
        """The rows of a block that its source could not read."""
        name, bad = feed.source.name, loaded.block.bad
        if not self.plan.keep_bad_rows:
            remedies = [h for h in (bad[0].hint, _LEAVE_OUT) if h]
            raise CatalogError(bad[0].reason, position=feed.source.pos, hint="; or ".join(remedies))
        self._bad_rows += len(bad)
        for b in bad[: LEDGER_ROWS - len(self._bad)]:
            self._bad.append(BadRow(name, loaded.offset + b.row, "source", b.reason, b.text))

    def _origin(self, failure: Failure) -> tuple[SourceExec | None, int | None]:
        """The source of a failed row and its offset there, where rows come to the operator as they
        left the source."""
        words = failure.unit.words
        if self._block is None or words[SERIAL] < self._block[1].serial:
            return None, None
        k, loaded = self._block
        operator = self._reached(k, failure.operator)
        if operator is None or words[PHASE] > len(operator.code.kernel.hosts):  # a result, no row
            return None, None
        row = int(words[SEQUENCE]) - loaded.sequence + failure.row
        return self._feeds[k].source, loaded.place(row)

    def _reached(self, k: int, name: str) -> StageOperator | None:
        """The operator of that name, if only unions and projections lie between it and feed k."""
        assert self._graph is not None
        edge = self._graph.entries[k]
        while edge is not None and edge.target != SINK:
            operator = self._graph.operators[edge.target]
            if isinstance(operator, StageOperator) and operator.name == name:
                return operator
            if isinstance(operator, StageOperator):
                if operator.spec.aggregate or not all(
                    isinstance(step, ProjectExec) for step in operator.spec.steps
                ):
                    return None
            elif not isinstance(operator, UnionOperator):
                return None
            (edge,) = self._graph.edges[edge.target]
        return None

    # -- what users ask --------------------------------------------------------------------------

    def progress(self) -> Progress:
        """A snapshot; callable from any thread while the query runs."""
        if self._over is not None:
            return self._over.progress
        feeds = list(self._feeds)
        idle = [self._timers.is_idle(k) for k in range(len(feeds))]
        counted = [f for f, silent in zip(feeds, idle, strict=True) if not silent] or feeds
        times = [f.attributes[0].watermark() for f in counted if f.attributes]
        end = self._finished or time.monotonic()
        return Progress(
            sum(f.rows for f in feeds),
            self._rows_out,
            sum(f.late_rows for f in feeds),
            self._bad_rows,
            min(times) if times and min(times) > np.iinfo(np.int64).min else None,
            self._total_rows,
            end - self._started if self._started is not None else 0.0,
        )

    def metrics(self) -> list[dict[str, Any]]:
        """Per operator: rows in and out, and where the others went (``executor.ledger``); bytes of
        state."""
        if self._over is not None:
            return self._over.metrics
        graph = self._graph
        if graph is None:
            return []
        rows: list[dict[str, Any]] = [
            {
                "operator": f.source.name,
                "rows_in": f.rows,
                "rows_out": f.rows - f.bad - f.marks,
                "bad": f.bad,
                "late": f.late_rows,
                **({"marks": f.marks} if f.marks else {}),
                **({"far_ahead": f.far_rows} if f.far_rows else {}),
            }
            for f in self._feeds
        ]
        peaks = self._workspace.peaks
        return rows + [
            ledger.entry(op, self._refused.get(op.name, {}), peaks.get(op.name, 0))
            for op in graph.operators
        ]

    def held_back(self) -> str | None:
        """Which of several inputs was furthest behind for longest, as a sentence."""
        if self._over is not None:
            return self._over.held_back
        k = self._holding.worst()
        if k is None:
            return None
        held, feed = self._holding.held[k], self._feeds[k]
        by = duration(held.behind, feed.attributes[0].field.type)
        most = f", by {by} at the most" if held.behind else ""
        share = held.seconds / self._holding.seconds
        name = feed.source.name
        return f"time was held back by {name}: furthest behind for {share:.0%} of the run{most}"

    def late(self) -> pa.Table:
        """The ledger of lateness (``lateness.entries`` says what its kinds are). Lengths of time
        are durations; where an event time is no timestamp, numbers of its units."""
        found = self._late() if self._over is None else self._over.late
        nodes = [(n.schema, n.relation.stream) for n in sources(self.plan.root)]
        timed = all(
            schema[column].type.is_timestamp
            for schema, spec in nodes
            for progress in (spec.progress if spec else ())
            if (column := schema.find(progress.column)) is not None
        )
        return lateness.table(found, timed=timed)

    def _late(self) -> list[lateness.Late]:
        return lateness.entries(self._feeds, self._graph.operators if self._graph else [])

    def bad_rows(self) -> pa.Table:
        """The ledger of bad rows (the first LEDGER_ROWS; ``progress().bad`` counts all)."""
        return pa.table(
            {
                "source": pa.array([b.source for b in self._bad], pa.string()),
                "offset": pa.array([b.offset for b in self._bad], pa.int64()),
                "operator": pa.array([b.operator for b in self._bad], pa.string()),
                "reason": pa.array([b.reason for b in self._bad], pa.string()),
                "text": pa.array([b.text for b in self._bad], pa.string()),
            }
        )

    def kernel_sources(self) -> dict[str, str]:
        """The generated source of each stage, by operator."""
        if self._over is not None:
            return self._over.sources
        graph = self._graph
        if graph is None:
            return {}
        stages = [op for op in graph.operators if isinstance(op, StageOperator)]
        return {op.name: op.code.text for op in stages}


@contextlib.contextmanager
def _told_at(node: SourceExec) -> Iterator[None]:
    """What a source has to say is told at the place of its name."""
    try:
        yield
    except CqlError as error:
        error.position = error.position or node.pos
        raise


def _remedy(failure: Failure) -> str:
    if failure.site.kind == "rows":
        return "aggregate in the subquery (max, first), or ORDER BY … LIMIT 1"
    if failure.fatal and failure.site.again is not None:
        return "leave such rows out: FILTER (WHERE …) behind the aggregate, or WHERE"
    if failure.fatal:
        return "CAST its argument to a wider type (DOUBLE holds any size), or use shorter windows"
    if failure.site.kind in ("null event time", "event time"):
        return f"{_LEAVE_OUT} counts them"
    if failure.site.kind == "cast":
        return f"TRY_CAST gives NULL instead; or {_LEAVE_OUT}"
    return f"guard the expression (CASE WHEN …), or {_LEAVE_OUT}"
