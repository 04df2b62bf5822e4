"""A running query: its feeds, its operators, and the runtime that drives them."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from cql.base.reentrancy import stepped
from cql.base.uninterruptible import load_module
from cql.errors import CqlError, RunError
from cql.executor.graph.build import build
from cql.executor.graph.graph import Edge, Graph
from cql.executor.jit.compiler_process import StoppedError
from cql.executor.kernels.ingest import cutter
from cql.executor.kernels.morsel_layout import INFINITY, ROWS, SERIAL
from cql.executor.ledgers.bad_rows import BadRows
from cql.executor.ledgers.response_times import Responses
from cql.executor.morsel.egress import Egress
from cql.executor.morsel.ingest import Feed, errors_at
from cql.executor.morsel.morsel import Morsel
from cql.executor.morsel.morsel_size import sizes
from cql.executor.morsel.source_punctuation import columns_read
from cql.executor.operators.contract import Operator
from cql.executor.operators.workspace import Workspace
from cql.executor.protocols import Source
from cql.executor.run import partition_sizing
from cql.executor.run.backpressure_report import Holding
from cql.executor.run.control import Control
from cql.executor.run.input_scheduler import InputScheduler
from cql.executor.run.inputs import Inputs
from cql.executor.run.limits import Limits, fails_in_parts
from cql.executor.run.make_runtime import make_runtime
from cql.executor.run.resuming import Members, partitions_of, saved_partitions
from cql.executor.run.run_report import QueryRun
from cql.executor.run.table_refresh import Rereading
from cql.executor.run.timers import Clock, Timers, reported_idle
from cql.executor.run.values_source import morsels_of
from cql.executor.runtimes.protocol import Failure, Runtime, at_work
from cql.executor.runtimes.times import Times
from cql.executor.state.checkpoint import Checkpoint
from cql.executor.state.store import Snapshot
from cql.executor.strings import encoding
from cql.executor.strings.compaction import compact, is_due
from cql.executor.strings.dictionary import Dictionary
from cql.executor.texts.in_blocks import in_blocks
from cql.planner.lower.choose import duration
from cql.planner.nodes.physical import (
    Physical,
    PhysicalPlan,
    QuerySetPlan,
    goes_by_arrival,
    waits,
)
from cql.planner.nodes.physical.numbers import NodeNumbers
from cql.planner.nodes.plan_hash import plan_hash

if TYPE_CHECKING:
    from cql.executor.runtimes.ordered import Observer

#: The longest wait for an unbounded source, and so the longest delay of a stop request, and the
#: longest time for which collected results of a live run stay inside between two blocks (seconds).
_POLL = 0.05
#: Members of a checkpoint that the execution itself saves.
_RUN, _TIMERS, _PARTITIONS = "run", "timers", "partitions"
#: Blocks of an input that are readable at once under the ordered runtime.
_BLOCKS_INSIDE = 3


class Execution:
    """Runs a physical plan once, or the plans of a query set (``QuerySetPlan``). Only the iteration
    over ``results`` drives the run.

    ``settings`` has the settings of a run (``cql.session.applied.OF_RUN``). ``clock`` returns
    monotonic seconds. ``observer`` observes the ordered runtime, if that runtime drives the
    run. ``resume``: the checkpoint of a run of the same plans over the same sources; this run
    continues behind the rows that it had admitted."""

    def __init__(
        self,
        plan: PhysicalPlan | QuerySetPlan,
        settings: Mapping[str, Any],
        clock: Clock = time.monotonic,
        observer: Observer | None = None,
        resume: Checkpoint | None = None,
    ) -> None:
        self.plans = plan.plans if isinstance(plan, QuerySetPlan) else (plan,)
        self._roots = [p.root for p in self.plans]
        self._replaced: Mapping[int, Physical] = {}
        self._settings = settings
        self._chosen = self.plans[0].runtime
        self._driver = self._chosen.name
        self._rows, self._morsel_us = sizes(self.plans, settings, self._driver)
        self._inputs = Inputs()
        self.graph: Graph | None = None
        self._runtime: Runtime | None = None
        self._results: deque[tuple[int, pa.RecordBatch]] = deque()
        self._egress: dict[int, tuple[int, Egress]] = {}  # by the sink's operator
        self.users: list[set[int]] = []  # queries of each operator
        self._scheduler: InputScheduler | None = None
        self.bad = BadRows(self.plans)
        self.rows_out = [0 for _ in self.plans]
        finds = self._driver == "ordered" and not settings["workers"]
        self.control = Control(self._driver, self._chosen.workers, clock, finds=finds)
        self.timed = False  # whether later runs measure the time of operators
        self.responses: Responses | None = None
        self.started: float | None = None
        self.prepared: float | None = None
        self.finished: float | None = None
        self.queries = [QueryRun(self, q) for q in range(len(self.plans))]
        self._looks_up = False  # whether kernels have dictionary tables or ranks of texts
        self._clock = clock
        self._observer = observer
        self.timers = Timers((), clock)
        self.holding = Holding((), clock)
        self.rereading = Rereading()
        self._limits: Limits | None = None
        self._resume = resume
        self._sizes: dict[int, partition_sizing.Measured] = {}  # of partitions, by node number
        self._members: Members | None = None
        self._silent: set[int] = set()
        self._reported: set[str] = set()  # inputs that have had their notice

    @property
    def feeds(self) -> list[Feed]:
        return self._inputs.feeds

    # -- running ---------------------------------------------------------------------------------

    def results(self) -> Generator[tuple[int, pa.RecordBatch]]:
        """Yields results as soon as they exist, each with the number of its query. Closing the
        iterator releases everything."""
        return stepped(self.control, self._through_all())

    def _through_all(self) -> Generator[tuple[int, pa.RecordBatch]]:
        if self.started is not None:
            raise RunError("this execution has run already")
        self.started, self._process = time.monotonic(), os.getpid()
        try:
            self._prepare()
            self.prepared = time.monotonic()
            yield from self._take_results()
            for _ in self._admissions():
                self._note_responses()
                yield from self._take_results()
                self.control.attend()
            if self._runtime is not None:
                self._runtime.drain()
                if self._limits:
                    self._limits.judge(self._runtime.drain)
            self._note_responses()
            yield from self._take_results()
        except StoppedError:
            return  # stopped while a kernel was compiled
        except Exception:
            yield from self._take_results()  # the results of rows before the failed one
            raise
        finally:
            self.finished = time.monotonic()
            self.control.end()
            if os.getpid() == self._process:
                self._close()  # a forked process owns none of it

    def _close(self) -> None:
        with contextlib.ExitStack() as closing:
            closing.callback(self._inputs.close)
            if self._runtime is not None:
                self._runtime.close()  # its threads end before their data is released
            self._release()

    def _release(self) -> None:
        """Releases the run, except for the answers of its reports: a session keeps its latest
        queries."""
        for query in self.queries:
            query.freeze()
        for operator in self.graph.running() if self.graph else ():
            operator.release()
        self.graph = self._runtime = self._scheduler = self._limits = self.responses = None
        self._members, self._inputs, self._resume = None, Inputs(), None
        self.rereading.end()
        self.bad.end()
        self._results.clear()
        self._egress = {}
        vars(self).pop("workspace", None)  # missing if the run failed to begin

    def request_stop(self) -> None:
        """Ends the run at the next admission; safe from any thread or signal handler."""
        self.control.stop()

    def request_checkpoint(self, then: Callable[[Checkpoint], None], serial: int = 0) -> None:
        """Calls ``then`` with a checkpoint, once at least ``serial`` morsels have been admitted and
        the consumer has taken all results of the admitted morsels. A run that ends before makes
        none.

        The iteration over ``results`` raises NotSupportedError if the state of an operator cannot
        be saved, or if the rows of an input cannot be read again."""
        self.control.checkpoint_at(serial, then)

    def _take_results(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        if not self._results:
            return
        began = self._clock()
        while self._results:
            yield self._results.popleft()
            if os.getpid() != self._process:
                self._results.clear()
                raise RunError(
                    "this run belongs to the process that this one was forked from: its threads"
                    " stayed there",
                    hint="run the query again here, or fork before it begins",
                )
        self.control.away(self._clock() - began)

    def _prepare(self) -> None:
        self.workspace = Workspace(
            Dictionary(),
            str(self._settings["kernel_cache"]),
            self._rows,
            int(self._settings["max_state"]),
            lambda: self.control.must_stop,
        )
        if self._resume is not None and self._resume.plans != self._hashes():
            raise RunError(
                "the checkpoint is of another query, or of another plan of this query",
                hint="restore it with the query and the settings that it was taken with",
            )
        moved = in_blocks(self._roots)
        self._roots, self._replaced = list(moved.roots), moved.replaced
        text = encoding.analyse(self._roots)
        inputs = self._inputs
        inputs.open(self._roots, text.encoded, self.workspace, self._rows, self._resume)
        self.graph = graph = self._build([f.nulls for f in self.feeds])
        self.users = graph.users()
        ones = self.workspace.ones
        base = int(ones.ctypes.data)
        for q, sink in enumerate(graph.sinks):
            schema, carried = self._roots[q].schema, text.carried[q]
            egress = Egress(schema, self.workspace.dictionary, carried, (base, base + ones.nbytes))
            self._egress[sink] = q, egress
        for operator, users in zip(graph.operators, self.users, strict=True):
            for query in users:
                operator.give_late_rows(self.queries[query].on_late)
        self.rereading = Rereading(self.feeds, inputs.sources, self._clock)
        inputs.compute_ahead(self._chosen.text_threads)
        most = _BLOCKS_INSIDE if self._driver == "ordered" else 1
        self._scheduler = InputScheduler(
            self.feeds,
            graph.entries,
            waits(*self._roots),
            most,
            inputs.read_early(),
            by_time=goes_by_arrival(*self._roots),
        )
        self._limits = Limits(graph, self.feeds, self._scheduler)
        self.bad.begin(graph, self.users, self.feeds, self._scheduler)
        if self.timed:
            self.responses = Responses(self.feeds, self._clock, waits=waits(*self._roots))
        self._runtime = self._make_runtime(graph)
        self._looks_up = any(self._refreshing())
        self._members = Members(
            self._roots,
            graph,
            self._runtime,
            self.workspace,
            inputs.sources,
            self.feeds,
            self._scheduler,
            self._limits,
            self.bad,
            self.rereading,
        )
        if self._resume is not None:
            self._members.resume(self._resume)
            self._restore_own(self._resume.members[_RUN])
        self._refresh()
        self.control.begin(self._runtime, self._scheduler)

    def _build(self, nulls: list[set[int]]) -> Graph:
        """Builds the operators. Falls back to depth first if the ordered runtime cannot keep the
        order of results."""
        fuse = bool(self._settings["fuse"])
        make = partial(build, self._roots, self.workspace, fuse=fuse, nulls=nulls)
        if self._driver == "ordered":
            load_module("cql.executor.runtimes.paths")
            from cql.executor.runtimes.paths import check

            chosen, saved = self._chosen, self._resume
            exactly: Mapping[int, int] | None = None
            if saved is None:
                self._sizes = self._measured()
            elif not self._settings["partitions"]:
                self._sizes, exactly = partitions_of(saved.members[_PARTITIONS])
            graph = make(
                parts=chosen.partitions, split=self._split, measured=self._sizes, exactly=exactly
            )
            if not all(plan.keep_bad_rows for plan in self.plans) and fails_in_parts(graph):
                graph = make()
                if self._settings["partitions"]:
                    self.queries[0].on_notice(
                        "keys are in one partition: a row that fails behind the last one of LIMIT"
                        " must not fail the query (ON BAD ROW KEEP lets partitions be)"
                    )
            try:
                check(graph)
            except ValueError as reason:
                self._driver = "depth_first"
                self.control.alone(str(reason))
                if self._settings["runtime"] == "ordered":
                    self.queries[0].on_notice(f"this query runs depth first: {reason}")
            else:
                return graph
        return make()

    @property
    def _split(self) -> frozenset[int] | None:
        """The numbers of the nodes that are split into partitions (``build``)."""
        split, nodes = self._chosen.split, NodeNumbers(*(plan.root for plan in self.plans))
        if not split or not self._replaced:
            return split
        here = NodeNumbers(*self._roots)
        return frozenset(here[self._replaced.get(n, nodes.node(n))] for n in split)

    def _measured(self) -> dict[int, partition_sizing.Measured]:
        """The number of partitions of aggregates, measured where no setting says it."""
        workers, split = self._chosen.workers, self._split
        if not split or self.control.must_stop:
            return {}
        return partition_sizing.measure(
            self._roots, self.feeds, self.workspace.dictionary, workers, split
        )

    def _make_runtime(self, graph: Graph) -> Runtime:
        return make_runtime(
            self._driver,
            graph,
            self,
            self._settings,
            self.workspace,
            inputs=[f.schema for f in self.feeds],
            carrying=[sink for sink, (_, egress) in self._egress.items() if egress.carried],
            morsel_rows=self._rows,
            morsel_us=self._morsel_us,
            workers=self.control.workers,
            live=self._inputs.live,
            timed=self.timed,
            observer=self._observer,
        )

    def _note_responses(self) -> None:
        if self.responses is not None and self._runtime is not None and self._scheduler is not None:
            idle = {k for k in range(len(self.feeds)) if self.timers.is_idle(k)}
            self.responses.note(self._scheduler, self._runtime, idle)

    def times(self) -> Times | None:
        """The runtime's measurements; None unless the run is ``timed``."""
        runtime = self._runtime
        return runtime.times() if runtime is not None else None

    def _admissions(self) -> Iterator[None]:
        """Admits morsels until every input has ended; yields after each morsel."""
        assert self._runtime is not None
        saved = None if self._resume is None else self._resume.members[_RUN]
        for feed in self.feeds if saved is None else ():
            if feed.lag:
                with errors_at(feed.source):
                    feed.load(None)
        for ahead in self._ahead():
            self._runtime.quiesce()
            alive = {k for k, f in enumerate(self.feeds) if f.source.ahead == ahead}
            if saved is not None:
                phase = int(saved.words[0])
                if ahead > phase:
                    continue  # it was over at the checkpoint
                if ahead == phase:
                    alive = set(saved.arrays["alive"].tolist())
                    yield from self._read(alive, ahead, again=True)
                    continue
            yield from self._constants(ahead)
            yield from self._read(alive, ahead)

    def _ahead(self) -> list[int]:
        """The reading phases in order: inputs of subqueries are read before the inputs of the
        queries around them."""
        assert self.graph is not None
        ahead = {f.source.ahead for f in self.feeds}
        return sorted(ahead | {node.ahead for node, _ in self.graph.constants}, reverse=True)

    def _constants(self, ahead: int) -> Iterator[None]:
        assert self.graph is not None
        assert self._runtime is not None
        ones = int(self.workspace.ones.ctypes.data)
        for node, edge in self.graph.constants:
            if node.ahead != ahead:
                continue
            for morsel in morsels_of(node, self.workspace.dictionary, self._rows, ones):
                self._refresh()
                self._runtime.admit(morsel, edge)
                yield from self._through()

    def _read(self, alive: set[int], phase: int, *, again: bool = False) -> Iterator[None]:
        """Admits the morsels of the inputs ``alive``, those of a reading phase, until these have
        ended. Idle times start now, or continue if the run continues in this phase ``again``."""
        runtime, scheduler = self._runtime, self._scheduler
        assert runtime is not None
        assert scheduler is not None
        timers = self.timers = Timers(self.feeds, self._clock)
        if again and self._resume is not None:
            timers.restore(self._resume.members[_TIMERS])
            self._resume = None
        holding = self.holding = Holding(self.feeds, self._clock)
        scheduler.among(alive)
        delivered = self._clock()
        while not self.control.must_stop:
            if self._inputs.live and self._clock() - delivered >= _POLL:
                runtime.drain()  # an input that is never silent may give no more results
                delivered = self._clock()
                yield
            if self._limits:
                self._limits.judge(runtime.quiesce)
                if self._limits.reached:
                    yield from self._leave(alive)
            if not alive:
                return
            if self.control.wants_checkpoint(scheduler.serial):
                runtime.drain()
                yield  # the consumer takes all results of the admitted morsels
                self.control.give(self._checkpoint(alive, phase))
                continue
            if is_due(self.workspace):
                self._compact()
            for table, source in self.rereading.due() if not scheduler.is_in_turn else ():
                yield from self._read_again(table, source)
                scheduler.among(alive)
            holding.note({k for k in alive if not timers.is_idle(k)})
            k = scheduler.current if scheduler.is_in_turn else self._next_feed(alive)
            for silent in self._silent:
                yield from self._in_silence(silent)
            if k is None:
                runtime.drain()  # delivers everything inside while the inputs are silent
                yield
                continue
            feed = self.feeds[k]
            if feed.ended and feed.pending is None and not scheduler.is_open(k):
                alive.discard(k)
                scheduler.among(alive)
                self._report_notices(feed)
                yield from self._admit(k, feed.end(scheduler.serial, scheduler.sequence))
                continue
            if not scheduler.is_open(k):
                if timers.received(k):
                    punctuation = reported_idle(
                        feed, scheduler.serial, scheduler.sequence, idle=False
                    )
                    yield from self._admit(k, punctuation)
                self._report_notices(feed)  # those of opening the source, before its first rows
                yield from self._open(k)
            yield from self._morsels()

    def _leave(self, alive: set[int]) -> Iterator[None]:
        """Ends the inputs that lead only to exhausted LIMITs."""
        assert self._runtime is not None
        assert self._scheduler is not None
        scheduler, limits = self._scheduler, self._limits
        assert limits is not None
        self._runtime.quiesce()
        for k in limits.leave(alive):
            alive.discard(k)
            feed = self.feeds[k]
            if not limits.have_ended:
                yield from self._admit(k, feed.end(scheduler.serial, scheduler.sequence))
            self._inputs.readers.remove(feed.reader)
            with errors_at(feed.source):
                feed.reader.close()
        scheduler.give_up(alive)
        yield

    def _read_again(self, k: int, source: Source) -> Iterator[None]:
        """Refreshes a table, between two turns of the stream that it is joined with."""
        assert self._runtime is not None
        assert self._scheduler is not None
        feed, scheduler = self.feeds[k], self._scheduler
        self._runtime.quiesce()
        with errors_at(feed.source):
            feed.read_again(source.open(columns_read(feed.source)))
        self._inputs.readers.append(feed.reader)
        scheduler.among({k})
        while not (feed.ended or self.control.must_stop):
            scheduler.go_on()  # a table is read to its end even if a LIMIT is exhausted
            if self._has_come(k, _POLL):
                if feed.pending is not None:
                    yield from self._open(k)
                yield from self._morsels()
        yield from self._admit(k, feed.end(scheduler.serial, scheduler.sequence))
        self._runtime.quiesce()
        self.rereading.switches.append((feed.source.name, scheduler.sequence))
        yield

    def _morsels(self) -> Iterator[None]:
        """Admits the morsels of the open blocks until an input without an open block is due."""
        assert self._runtime is not None
        assert self._scheduler is not None
        limits, control = self._limits, self.control
        yield
        while self._runtime.admit_next(self._scheduler):
            if control.must_stop or (limits and limits.wait):
                break
            yield
        self._note_responses()
        self.control.reach()
        k = self._scheduler.current
        if k is not None and not self._scheduler.is_open(k):
            self.timers.taken(k)
            self._report_far(self.feeds[k])
            self._report_notices(self.feeds[k])

    def _admit(self, k: int, morsel: Morsel) -> Iterator[None]:
        """Admits a morsel of input ``k`` without rows."""
        assert self._runtime is not None
        assert self._scheduler is not None
        self.control.reach()
        if self._driver != "ordered":
            self._runtime.quiesce()  # queues keep no order among inputs
        self._runtime.admit(morsel, self._entry(k))
        yield from self._through()
        self._scheduler.count_empty_morsel()

    def _through(self, serial: int = INFINITY) -> Iterator[None]:
        """Drives the admitted morsels up to serial number ``serial`` through all operators."""
        assert self._runtime is not None
        while self._runtime.go_on(serial):
            yield
        yield

    def _in_silence(self, k: int) -> Iterator[None]:
        """Handles input ``k``, which has no rows to give: idleness and heartbeat."""
        feed, scheduler = self.feeds[k], self._scheduler
        assert scheduler is not None
        if self.timers.falls_idle(k):
            punctuation = reported_idle(feed, scheduler.serial, scheduler.sequence, idle=True)
            yield from self._admit(k, punctuation)
        if self.timers.beat(k):
            yield from self._admit(k, feed.punctuation_morsel(scheduler.serial, scheduler.sequence))

    def _report_notices(self, feed: Feed) -> None:
        """Shows the notices of the source about its data."""
        notices: list[str] = getattr(feed.reader, "notices", [])
        while notices:
            self.queries[0].on_notice(notices.pop(0))

    def _report_far(self, feed: Feed) -> None:
        """Reports, once per input, rows that MAX ADVANCE kept from being late: they came behind an
        unconfirmed row far ahead. Distances alone prove nothing: with one row a day, each row is
        far ahead of the previous one."""
        for attribute in feed.attributes if feed.source.name not in self._reported else ():
            if attribute.kept[0]:
                self._reported.add(feed.source.name)
                most = duration(int(attribute.words[cutter.ADVANCE]), attribute.field.type)
                self.queries[0].on_notice(
                    f"{feed.source.name}.{attribute.name} jumped by more than {most}: its"
                    " watermark waits until three further rows confirm it (MAX ADVANCE of CREATE"
                    " STREAM)"
                )

    def _next_feed(self, alive: set[int]) -> int | None:
        """The input that is furthest behind in event time; among unbounded inputs, one with rows
        to read. None if none has rows yet. ``_silent`` collects the inputs without rows."""
        scheduler = self._scheduler
        assert scheduler is not None
        self._silent.clear()
        if all(self.feeds[k].source.relation.bounded for k in alive):
            k = scheduler.next_turn()
            if self._inputs.paced and not self._has_come(k, 0.0) and self._delivers():
                return None
            return k if self._has_come(k, _POLL) else None
        # Idle inputs are asked first, before the watermark passes them.
        order = sorted(scheduler.in_order(alive), key=lambda k: not self.timers.is_idle(k))
        for timeout in (0.0, _POLL / len(order)):
            if timeout and self._delivers():
                return None
            for k in order:
                if self._has_come(k, timeout):
                    return k
        return None

    def _delivers(self) -> bool:
        """Delivers everything inside before the driver waits for an input; returns whether there
        are results to read now."""
        assert self._runtime is not None
        self._runtime.drain()
        return bool(self._results)

    def _has_come(self, k: int, timeout: float) -> bool:
        """Whether input ``k`` has rows to read or has ended; waits up to ``timeout`` seconds."""
        feed = self.feeds[k]
        assert self._scheduler is not None
        with self._reading(k):
            if self._limits:
                self._limits.check(k)
            if self._scheduler.is_open(k) or feed.load(timeout) or feed.ended:
                return True
        self._silent.add(k)
        return False

    @contextlib.contextmanager
    def _reading(self, k: int) -> Iterator[None]:
        """Orders errors: an error of the source comes after the failures of rows that the source
        gave before. It is dropped if the query needs no more of the source."""
        try:
            with errors_at(self.feeds[k].source):
                yield
        except Exception:
            if self._runtime is None or self._limits is None:
                raise
            self._runtime.quiesce()
            self._limits.judge(self._runtime.quiesce)
            if not self._limits.hides_rest_of(k):
                raise

    def _open(self, k: int) -> Iterator[None]:
        """Opens the pending block of input ``k``. First, morsels that show the columns of the block
        dropped for it go through all operators; if kernels or dictionary tables change, all
        admitted morsels do."""
        graph, runtime, scheduler, feed = self.graph, self._runtime, self._scheduler, self.feeds[k]
        assert graph is not None
        assert runtime is not None
        assert scheduler is not None
        contradicted = graph.contradicted([f.nulls for f in self.feeds])
        if contradicted or self._looks_up or self._driver != "ordered":
            yield from self._through()
            runtime.quiesce()
        else:
            yield from self._through(scheduler.leaving(k))
        if contradicted:
            runtime.drain()
            graph.reassume(contradicted)
            runtime.rebind()
        self._refresh()
        if feed.pending is not None:
            for bounds in graph.bounds:
                bounds.learn(k, feed.pending.data, feed.pending.masks)
        assert self._members is not None
        self._members.unreadable(k, scheduler.open(k))

    def _entry(self, k: int) -> Edge:
        assert self.graph is not None
        edge = self.graph.entries[k]
        assert edge is not None
        return edge

    def _compact(self) -> None:
        """Compacts the dictionary between two morsels, when only operator state and read blocks
        refer to texts."""
        assert self.graph is not None
        assert self._runtime is not None
        self._runtime.drain()
        values = [feed.values for feed in self.feeds if feed.values is not None]
        assert self._scheduler is not None
        compact(self.workspace, list(self.graph.running()), [*values, self._scheduler])
        self._refresh()

    # -- checkpoints -----------------------------------------------------------------------------

    def _checkpoint(self, alive: set[int], phase: int) -> Checkpoint:
        """The state of the run, which is drained, in a reading phase with the inputs ``alive``."""
        assert self._members is not None
        assert self.graph is not None
        peaks = [self.workspace.peaks.get(op.name, 0) for op in self.graph.operators]
        reported = [k for k, f in enumerate(self.feeds) if f.source.name in self._reported]
        arrays = {"alive": sorted(alive), "rows out": self.rows_out, "peaks": peaks}
        own = {n: np.array(a, np.int64) for n, a in {**arrays, "reported": reported}.items()}
        others = {
            _RUN: Snapshot(own, np.array([phase], np.int64)),
            _TIMERS: self.timers.snapshot(),
            _PARTITIONS: saved_partitions(self.graph.partitions, self._sizes),
        }
        return replace(self._members.save(alive, phase, others), plans=self._hashes())

    def _hashes(self) -> tuple[str, ...]:
        return tuple(plan_hash(plan.root) for plan in self.plans)

    def _restore_own(self, saved: Snapshot) -> None:
        assert self.graph is not None
        self.rows_out = saved.arrays["rows out"].tolist()
        self._reported = {self.feeds[k].source.name for k in saved.arrays["reported"].tolist()}
        peaks = self.workspace.peaks
        assert self._members is not None
        assert self._resume is not None
        origins = self._members.origins(self._resume)
        for operator, origin in zip(self.graph.operators, origins, strict=True):
            peak = 0 if origin is None else int(saved.arrays["peaks"][origin])
            peaks[operator.name] = max(peaks.get(operator.name, 0), peak)

    # -- texts -----------------------------------------------------------------------------------

    def _refreshing(self) -> Iterator[Operator]:
        """The operators that look up texts."""
        assert self.graph is not None
        for operator in self.graph.running():
            if operator.needs_refresh:
                yield operator

    def _refresh(self) -> None:
        """Extends the dictionary tables to the codes of the next block."""
        for operator in self._refreshing() if self._looks_up else ():
            with at_work(operator.name):
                operator.refresh()

    # -- what the runtime hands over (runtimes.protocol.Handler) ---------------------------------

    def deliver(self, morsel: Morsel, sink: int, feed: int | None = None) -> None:
        n = int(morsel.words[ROWS])
        if n == 0:
            return
        assert self._scheduler is not None
        k, loaded = self._scheduler.block_of(feed, int(morsel.words[SERIAL]))
        query, egress = self._egress[sink]
        self._results.append((query, egress.batch(morsel, k, loaded)))
        self.rows_out[query] += n

    def failed(self, failure: Failure) -> None:
        """Raises the failure, or returns to leave the row out (``runtimes.protocol.Handler``). A
        row behind an exhausted LIMIT is neither counted nor raised."""
        limits = self._limits
        assert limits is not None
        if limits.hides(failure):
            return
        try:
            self.bad.failed(failure)
        except CqlError as error:
            if not limits.postpones(failure, error):
                raise
