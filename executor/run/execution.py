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
from cql.executor.derived.query_source import QuerySource
from cql.executor.derived.watermarks import ResultWatermarks
from cql.executor.graph.build import build
from cql.executor.graph.graph import Graph
from cql.executor.jit.compiler_process import StoppedError
from cql.executor.kernels.morsel_layout import ROWS, SERIAL
from cql.executor.ledgers.bad_rows import BadRows
from cql.executor.ledgers.response_times import Responses
from cql.executor.morsel.egress import Egress
from cql.executor.morsel.ingest import Feed
from cql.executor.morsel.morsel import Morsel
from cql.executor.morsel.morsel_size import sizes
from cql.executor.operators.workspace import Workspace
from cql.executor.protocols import Source
from cql.executor.run import partition_sizing
from cql.executor.run.backpressure_report import Holding
from cql.executor.run.control import Control
from cql.executor.run.input_scheduler import InputScheduler
from cql.executor.run.inputs import Inputs
from cql.executor.run.limits import Limits, fails_in_parts
from cql.executor.run.make_runtime import make_runtime
from cql.executor.run.reading import Reading
from cql.executor.run.resuming import Members, partitions_of, saved_partitions
from cql.executor.run.run_report import QueryRun
from cql.executor.run.table_refresh import Rereading
from cql.executor.run.timers import Clock, Timers
from cql.executor.runtimes.protocol import Failure, Runtime
from cql.executor.runtimes.times import Times
from cql.executor.state.checkpoint import Checkpoint
from cql.executor.state.store import Snapshot
from cql.executor.strings import encoding
from cql.executor.strings.dictionary import Dictionary
from cql.executor.texts.in_blocks import in_blocks
from cql.planner.nodes.physical import (
    Physical,
    PhysicalPlan,
    QuerySetPlan,
    SourceExec,
    goes_by_arrival,
    waits,
)
from cql.planner.nodes.physical.numbers import NodeNumbers
from cql.planner.nodes.plan_hash import plan_hash

if TYPE_CHECKING:
    from cql.executor.runtimes.ordered import Observer

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
    continues behind the rows that it had admitted. ``times``: by their places in the results, the
    columns whose ``watermarks`` the consumer takes, one for each result, also for those without
    rows."""

    def __init__(
        self,
        plan: PhysicalPlan | QuerySetPlan,
        settings: Mapping[str, Any],
        clock: Clock = time.monotonic,
        observer: Observer | None = None,
        resume: Checkpoint | None = None,
        times: Mapping[int, str] | None = None,
    ) -> None:
        self.plans = plan.plans if isinstance(plan, QuerySetPlan) else (plan,)
        self._roots = [p.root for p in self.plans]
        self.watermarks: ResultWatermarks | None = None
        if times is not None:
            self.watermarks = ResultWatermarks(self._roots[0].schema, times)
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
        #: The runs of the sources that are queries.
        self.below: list[tuple[SourceExec, QueryRun]] = []
        self._clock = clock
        self._observer = observer
        self.timers = Timers(clock)
        self.holding = Holding(clock)
        self.rereading = Rereading()
        self._limits: Limits | None = None
        self._resume = resume
        self._sizes: dict[int, partition_sizing.Measured] = {}  # of partitions, by node number
        self._members: Members | None = None
        self._reading: Reading | None = None

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
            reading = self._prepare()
            admissions = reading.admissions(self._saved(_RUN), self._saved(_TIMERS))
            self._resume, runtime = None, reading.runtime
            self.prepared = time.monotonic()
            yield from self._take_results()
            for _ in admissions:
                reading.note_responses()
                yield from self._take_results()
                self.control.attend()
            runtime.drain()
            if reading.limits:
                reading.limits.judge(runtime.drain)
            reading.note_responses()
            yield from self._take_results()
        except StoppedError:
            return  # stopped while a kernel was compiled
        except Exception:
            if self._runtime is not None and os.getpid() == self._process:
                with contextlib.suppress(CqlError):  # the store of segments may be what is full
                    self._runtime.give_up()
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
        self._members = self._reading = self._resume = None
        self._inputs = Inputs()
        self.rereading.end()
        self.bad.end()
        self._results.clear()
        self._egress = {}
        workspace = vars(self).pop("workspace", None)  # missing if the run failed to begin
        if workspace is not None:
            workspace.close()

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

    def _prepare(self) -> Reading:
        self.workspace = Workspace(
            Dictionary(),
            str(self._settings["kernel_cache"]),
            self._rows,
            int(self._settings["max_state"]),
            lambda: self.control.must_stop,
            segments=str(self._settings["segments"]),
            by_rows=self._settings["sample_order"] == "rows",
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
        encoded, resume = text.encoded, self._resume
        inputs.open(self._roots, encoded, self.workspace, self._rows, resume, self._of_query)
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
        self._reading = reading = Reading(
            graph,
            self._runtime,
            self._scheduler,
            inputs,
            self._limits,
            self._members,
            self.rereading,
            self.workspace,
            self.control,
            self.timers,
            self.holding,
            self.responses,
            morsel_rows=self._rows,
            keeps_order=self._driver == "ordered",
            results=self._results,
            save=self._checkpoint,
            notify=lambda message: self.queries[0].on_notice(message),
            clock=self._clock,
        )
        if self._resume is not None:
            self._members.resume(self._resume)
            self._restore_own(self._resume.members[_RUN])
        reading.refresh()
        self.control.begin(self._runtime, self._scheduler)
        return reading

    def _of_query(self, node: SourceExec) -> Source:
        """The source of a stream that is a query. Its run stops and pauses with this one."""
        query = node.query
        assert query is not None

        def new_run(times: Mapping[int, str]) -> Execution:
            run = Execution(query, self._settings, self._clock, times=times)
            run.timed = self.timed
            self.below.append((node, run.queries[0]))
            self.control.lead(run.control)
            return run

        return QuerySource(node, new_run)

    def _build(self, nulls: list[set[int]]) -> Graph:
        """Builds the operators. Falls back to depth first if the runtime cannot keep the order of
        results."""
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
                self._fall_back(reason)
            else:
                return graph
        graph = make()
        if self._driver not in ("depth_first", "ordered"):
            load_module("cql.executor.runtimes.paths")
            from cql.executor.runtimes.paths import meetings

            try:
                meetings(graph)
            except ValueError as reason:
                self._fall_back(reason)
        return graph

    def _fall_back(self, reason: ValueError) -> None:
        """The query runs depth first; a runtime that was asked for gives a notice."""
        if self._settings["runtime"] == self._driver:
            self.queries[0].on_notice(f"this query runs depth first: {reason}")
        self._driver = "depth_first"
        self.control.alone(str(reason))

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
            carrying=[
                sink
                for sink, (_, egress) in self._egress.items()
                if egress.needs_blocks or self.watermarks is not None
            ],
            morsel_rows=self._rows,
            morsel_us=self._morsel_us,
            workers=self.control.workers,
            live=self._inputs.live,
            timed=self.timed,
            observer=self._observer,
        )

    def times(self) -> Times | None:
        """The runtime's measurements; None unless the run is ``timed``."""
        runtime = self._runtime
        return runtime.times() if runtime is not None else None

    # -- checkpoints -----------------------------------------------------------------------------

    def _checkpoint(self, alive: set[int], phase: int) -> Checkpoint:
        """The state of the run, which is drained, in a reading phase with the inputs ``alive``."""
        assert self._members is not None
        assert self.graph is not None
        peaks = [self.workspace.peaks.get(op.name, 0) for op in self.graph.operators]
        assert self._reading is not None
        told = self._reading.reported
        reported = [k for k, f in enumerate(self.feeds) if f.source.name in told]
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

    def _saved(self, member: str) -> Snapshot | None:
        return None if self._resume is None else self._resume.members[member]

    def _restore_own(self, saved: Snapshot) -> None:
        assert self.graph is not None
        self.rows_out = saved.arrays["rows out"].tolist()
        assert self._reading is not None
        self._reading.reported |= {
            self.feeds[k].source.name for k in saved.arrays["reported"].tolist()
        }
        peaks = self.workspace.peaks
        assert self._members is not None
        assert self._resume is not None
        origins = self._members.origins(self._resume)
        for operator, origin in zip(self.graph.operators, origins, strict=True):
            peak = 0 if origin is None else int(saved.arrays["peaks"][origin])
            peaks[operator.name] = max(peaks.get(operator.name, 0), peak)

    # -- what the runtime hands over (runtimes.protocol.Handler) ---------------------------------

    def deliver(self, morsel: Morsel, sink: int, feed: int | None = None) -> None:
        n, watermarks = int(morsel.words[ROWS]), self.watermarks
        rises = watermarks is not None and watermarks.note(morsel)
        if n == 0:
            if rises and watermarks is not None:
                self._results.append((0, watermarks.no_rows))
            return
        assert self._scheduler is not None
        k, loaded = self._scheduler.block_of(feed, int(morsel.words[SERIAL]))
        query, egress = self._egress[sink]
        self.workspace.check_signals()
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
