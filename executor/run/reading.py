"""Reads the inputs of a run, phase by phase, and admits their morsels to the runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass, field

from cql.executor.graph.graph import Edge, Graph
from cql.executor.kernels.ingest import cutter
from cql.executor.kernels.morsel_layout import INFINITY
from cql.executor.ledgers.response_times import Responses
from cql.executor.morsel.ingest import Feed, errors_at
from cql.executor.morsel.morsel import Morsel
from cql.executor.morsel.source_punctuation import columns_read
from cql.executor.operators.contract import Operator
from cql.executor.operators.workspace import Workspace
from cql.executor.protocols import Source
from cql.executor.run.backpressure_report import Holding
from cql.executor.run.control import Control
from cql.executor.run.input_scheduler import InputScheduler
from cql.executor.run.inputs import Inputs
from cql.executor.run.limits import Limits
from cql.executor.run.resuming import Members
from cql.executor.run.table_refresh import Rereading
from cql.executor.run.timers import Clock, Timers, reported_idle
from cql.executor.run.values_source import morsels_of
from cql.executor.runtimes.protocol import Runtime, at_work
from cql.executor.state.checkpoint import Checkpoint
from cql.executor.state.store import Snapshot
from cql.executor.strings.compaction import compact, is_due
from cql.planner.lower.choose import duration

#: The longest wait for an unbounded source, and so the longest delay of a stop request, and the
#: longest time for which collected results of a live run stay inside between two blocks (seconds).
_POLL = 0.05


@dataclass
class Reading:
    """The reading of a prepared run. ``morsel_rows``: the most rows of a morsel.
    ``keeps_order``: whether the runtime itself keeps the order of the morsels of several inputs.
    ``results``: what the runtime has delivered and the consumer has not taken. ``save`` makes a
    checkpoint of the drained run, from the inputs that have not ended and the number of their
    reading phase. ``notify`` receives notices for the user. ``reported``: the inputs that have had
    their notice of rows far ahead."""

    graph: Graph
    runtime: Runtime
    scheduler: InputScheduler
    inputs: Inputs
    limits: Limits
    members: Members
    rereading: Rereading
    workspace: Workspace
    control: Control
    timers: Timers
    holding: Holding
    responses: Responses | None
    morsel_rows: int
    keeps_order: bool
    results: Sized
    save: Callable[[set[int], int], Checkpoint]
    notify: Callable[[str], None]
    clock: Clock
    reported: set[str] = field(default_factory=set)
    _silent: set[int] = field(default_factory=set)
    _looks_up: bool = field(init=False)  # whether kernels have dictionary tables or ranks of texts

    def __post_init__(self) -> None:
        self._looks_up = any(self._refreshing())
        for feed in self.feeds:
            feed.watch(self.runtime.drain)

    @property
    def feeds(self) -> list[Feed]:
        return self.inputs.feeds

    # -- reading phases --------------------------------------------------------------------------

    def admissions(self, run: Snapshot | None, timers: Snapshot | None) -> Iterator[None]:
        """Admits morsels until every input has ended; yields after each morsel. ``run`` and
        ``timers``: the run and its timers at the checkpoint that this one continues."""
        for feed in self.feeds if run is None else ():
            if feed.lag and not feed.gives_bursts:
                with errors_at(feed.source):
                    feed.load(None)
        for ahead in self._ahead():
            self.runtime.quiesce()
            alive = {k for k, f in enumerate(self.feeds) if f.source.ahead == ahead}
            if run is not None:
                phase = int(run.words[0])
                if ahead > phase:
                    continue  # it was over at the checkpoint
                if ahead == phase:
                    yield from self._read(set(run.arrays["alive"].tolist()), ahead, timers)
                    continue
            yield from self._constants(ahead)
            yield from self._read(alive, ahead)

    def _ahead(self) -> list[int]:
        """The reading phases in order: inputs of subqueries are read before the inputs of the
        queries around them."""
        ahead = {f.source.ahead for f in self.feeds}
        return sorted(ahead | {node.ahead for node, _ in self.graph.constants}, reverse=True)

    def _constants(self, ahead: int) -> Iterator[None]:
        ones = int(self.workspace.ones.ctypes.data)
        for node, edge in self.graph.constants:
            if node.ahead != ahead:
                continue
            for morsel in morsels_of(node, self.workspace.dictionary, self.morsel_rows, ones):
                self.refresh()
                self.runtime.admit(morsel, edge)
                yield from self._through()

    def _read(self, alive: set[int], phase: int, saved: Snapshot | None = None) -> Iterator[None]:
        """Admits the morsels of the inputs ``alive``, those of a reading phase, until these have
        ended. Idle times start now, or continue with the ``saved`` timers of this phase."""
        runtime, scheduler = self.runtime, self.scheduler
        timers, holding = self.timers, self.holding
        timers.begin(self.feeds)
        if saved is not None:
            timers.restore(saved)
        holding.begin(self.feeds)
        scheduler.among(alive)
        live, delivered = self.inputs.live, self.clock()
        while not self.control.must_stop:
            if live and self.clock() - delivered >= _POLL:
                runtime.drain()  # an input that is never silent may give no more results
                delivered = self.clock()
                yield
            if self.limits:
                self.limits.judge(runtime.quiesce)
                if self.limits.reached:
                    yield from self._leave(alive)
            if not alive:
                return
            if self.control.wants_checkpoint(scheduler.serial):
                if not self.members.has_bursts(alive):
                    runtime.drain()
                    yield  # the consumer takes all results of the admitted morsels
                    self.control.give(self.save(alive, phase))
                    continue
                self.control.postpone(scheduler.serial)
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
        scheduler, limits = self.scheduler, self.limits
        self.runtime.quiesce()
        for k in limits.leave(alive):
            alive.discard(k)
            feed = self.feeds[k]
            if not limits.have_ended:
                yield from self._admit(k, feed.end(scheduler.serial, scheduler.sequence))
            self.inputs.readers.remove(feed.reader)
            with errors_at(feed.source):
                feed.reader.close()
        scheduler.give_up(alive)
        yield

    def _read_again(self, k: int, source: Source) -> Iterator[None]:
        """Refreshes a table, between two turns of the stream that it is joined with."""
        feed, scheduler = self.feeds[k], self.scheduler
        self.runtime.quiesce()
        with errors_at(feed.source):
            feed.read_again(source.open(columns_read(feed.source)))
        self.inputs.readers.append(feed.reader)
        scheduler.among({k})
        while not (feed.ended or self.control.must_stop):
            scheduler.go_on()  # a table is read to its end even if a LIMIT is exhausted
            if self._has_come(k, _POLL):
                if feed.pending is not None:
                    yield from self._open(k)
                yield from self._morsels()
        yield from self._admit(k, feed.end(scheduler.serial, scheduler.sequence))
        self.runtime.quiesce()
        self.rereading.switches.append((feed.source.name, scheduler.sequence))
        yield

    # -- which input is next ---------------------------------------------------------------------

    def _next_feed(self, alive: set[int]) -> int | None:
        """The input that is furthest behind in event time; among unbounded inputs, one with rows
        to read. None if none has rows yet. ``_silent`` collects the inputs without rows."""
        scheduler = self.scheduler
        self._silent.clear()
        if all(self.feeds[k].source.relation.bounded for k in alive):
            k = scheduler.next_turn()
            if self.inputs.paced and not self._has_come(k, 0.0) and self._delivers():
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
        self.runtime.drain()
        return len(self.results) > 0

    def _has_come(self, k: int, timeout: float) -> bool:
        """Whether input ``k`` has rows to read or has ended; waits up to ``timeout`` seconds."""
        feed = self.feeds[k]
        try:
            if self.limits:
                self.limits.check(k)
            if self.scheduler.is_open(k) or feed.load(timeout) or feed.ended:
                return True
        except Exception as error:
            self._raise_in_order(k, error)
        self._silent.add(k)
        return False

    def _raise_in_order(self, k: int, error: Exception) -> None:
        """Raises an error of input ``k`` after the failures of rows that the input gave before.
        The error is dropped if the query needs no more of the input."""
        self.runtime.quiesce()
        self.limits.judge(self.runtime.quiesce)
        if not self.limits.hides_rest_of(k):
            with errors_at(self.feeds[k].source):
                raise error

    def _in_silence(self, k: int) -> Iterator[None]:
        """Handles input ``k``, which has no rows to give: idleness and heartbeat."""
        feed, scheduler = self.feeds[k], self.scheduler
        if self.timers.falls_idle(k):
            punctuation = reported_idle(feed, scheduler.serial, scheduler.sequence, idle=True)
            yield from self._admit(k, punctuation)
        if self.timers.beat(k):
            yield from self._admit(k, feed.punctuation_morsel(scheduler.serial, scheduler.sequence))

    # -- admission -------------------------------------------------------------------------------

    def _open(self, k: int) -> Iterator[None]:
        """Opens the pending block of input ``k``. First, morsels that show the columns of the block
        dropped for it go through all operators; if kernels or dictionary tables change, all
        admitted morsels do."""
        graph, runtime, feed = self.graph, self.runtime, self.feeds[k]
        contradicted = graph.contradicted([f.nulls for f in self.feeds])
        if contradicted or self._looks_up or not self.keeps_order:
            yield from self._through()
            runtime.quiesce()
        else:
            yield from self._through(self.scheduler.leaving(k))
        if contradicted:
            runtime.drain()
            graph.reassume(contradicted)
            runtime.rebind()
        self.refresh()
        self.workspace.sweep_signals(self._last_through(k))
        if feed.pending is not None:
            for bounds in graph.bounds:
                bounds.learn(k, feed.pending.data, feed.pending.masks)
        self.members.unreadable(k, self.scheduler.open(k))

    def _last_through(self, k: int) -> int:
        """The serial number up to which all morsels are through, when input ``k`` opens a block."""
        ahead = self.keeps_order and not self._looks_up
        return self.scheduler.leaving(k) if ahead else self.scheduler.serial - 1

    def _morsels(self) -> Iterator[None]:
        """Admits the morsels of the open blocks until an input without an open block is due."""
        limits, control = self.limits, self.control
        yield
        while self.runtime.admit_next(self.scheduler):
            if control.must_stop or (limits and limits.wait):
                break
            yield
        self.note_responses()
        self.control.reach()
        k = self.scheduler.current
        if k is not None and not self.scheduler.is_open(k):
            self.timers.taken(k)
            self._report_far(self.feeds[k])
            self._report_notices(self.feeds[k])

    def _admit(self, k: int, morsel: Morsel) -> Iterator[None]:
        """Admits a morsel of input ``k`` without rows."""
        self.control.reach()
        if not self.keeps_order:
            self.runtime.quiesce()
        self.runtime.admit(morsel, self._entry(k))
        yield from self._through()
        self.scheduler.count_empty_morsel()

    def _through(self, serial: int = INFINITY) -> Iterator[None]:
        """Drives the admitted morsels up to serial number ``serial`` through all operators."""
        while self.runtime.go_on(serial):
            yield
        yield

    def _entry(self, k: int) -> Edge:
        edge = self.graph.entries[k]
        assert edge is not None
        return edge

    # -- texts -----------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Extends the dictionary tables to the codes of the next block."""
        for operator in self._refreshing() if self._looks_up else ():
            with at_work(operator.name):
                operator.refresh()

    def _refreshing(self) -> Iterator[Operator]:
        """The operators that look up texts."""
        return (op for op in self.graph.running() if op.needs_refresh)

    def _compact(self) -> None:
        """Compacts the dictionary between two morsels, when only operator state and read blocks
        refer to texts."""
        self.runtime.drain()
        held = [one for feed in self.feeds for one in feed.holders]
        compact(self.workspace, list(self.graph.running()), [*held, self.scheduler])
        self.refresh()

    # -- reports ---------------------------------------------------------------------------------

    def note_responses(self) -> None:
        if self.responses is not None:
            idle = {k for k in range(len(self.feeds)) if self.timers.is_idle(k)}
            self.responses.note(self.scheduler, self.runtime, idle)

    def _report_notices(self, feed: Feed) -> None:
        """Shows the notices of the source about its data."""
        notices: list[str] = getattr(feed.reader, "notices", [])
        while notices:
            self.notify(notices.pop(0))

    def _report_far(self, feed: Feed) -> None:
        """Reports, once per input, rows that MAX ADVANCE kept from being late: they came behind an
        unconfirmed row far ahead. Distances alone prove nothing: with one row a day, each row is
        far ahead of the previous one."""
        for attribute in feed.attributes if feed.source.name not in self.reported else ():
            if attribute.kept[0]:
                self.reported.add(feed.source.name)
                most = duration(int(attribute.words[cutter.ADVANCE]), attribute.field.type)
                self.notify(
                    f"{feed.source.name}.{attribute.name} jumped by more than {most}: its"
                    " watermark waits until three further rows confirm it (MAX ADVANCE of CREATE"
                    " STREAM)"
                )
