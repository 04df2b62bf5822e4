"""Checkpoints of a whole run: the operators, the places in the sources, and all other members.

A run takes a checkpoint between two morsels, when it is drained: all results of the admitted rows
have been delivered, and no morsel is inside. A new run of the same query over the same sources then
goes on behind the admitted rows. A source that is not read to its end has to give its rows again
(``replayable``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cql.errors import CqlError, NotSupportedError, RunError
from cql.executor.graph.graph import Graph
from cql.executor.graph.keys import moved
from cql.executor.ledgers.bad_rows import BadRows
from cql.executor.morsel.ingest import Feed, Loaded, errors_at
from cql.executor.morsel.resumed_reader import ResumedReader, rows_of
from cql.executor.morsel.source_punctuation import columns_read
from cql.executor.operators.contract import Operator
from cql.executor.operators.workspace import Workspace
from cql.executor.protocols import Block, Reader, Source
from cql.executor.run.input_scheduler import InputScheduler
from cql.executor.run.limits import Limits
from cql.executor.run.partition_sizing import Measured
from cql.executor.run.table_refresh import Rereading
from cql.executor.runtimes.protocol import Runtime
from cql.executor.state import checkpoint as state
from cql.executor.state.checkpoint import Checkpoint, InputPlace, Moved
from cql.executor.state.store import Saves, Snapshot
from cql.planner.nodes.physical import Physical, SourceExec


@dataclass(frozen=True)
class Members:
    """The parts of a run whose state a checkpoint has."""

    roots: Sequence[Physical]
    graph: Graph
    runtime: Runtime
    workspace: Workspace
    sources: Sequence[Source]
    feeds: Sequence[Feed]
    scheduler: InputScheduler
    limits: Limits
    bad: BadRows
    rereading: Rereading

    def _saving(self) -> dict[str, Saves]:
        """The members that save their own state, by name."""
        found: dict[str, Saves] = {
            "scheduler": self.scheduler,
            "limits": self.limits,
            "bad rows": self.bad,
            "table refresh": self.rereading,
            "runtime": self.runtime,
        }
        return found | {f"bounds {k}": one for k, one in enumerate(self.graph.bounds)}

    def save(
        self, alive: Collection[int], phase: int, others: Mapping[str, Snapshot]
    ) -> Checkpoint:
        """The state of the run, which is drained. ``alive``: the inputs of the reading phase
        ``phase`` that have not ended; none of them ``has_bursts``. ``others``: further snapshots,
        by name.

        Raises NotSupportedError for an operator whose state cannot be saved, and for an input that
        cannot be read again."""
        self._assume_known_nulls()
        inputs = tuple(self._place(k, alive, phase) for k in range(len(self.feeds)))
        holders = [one for feed in self.feeds for one in feed.holders]
        saved = state.checkpoint(self._operators, self.workspace.dictionary, holders)
        members = {name: one.snapshot() for name, one in self._saving().items()}
        members |= {input_name(k): feed.snapshot() for k, feed in enumerate(self.feeds)}
        return replace(saved, inputs=inputs, members={**members, **others})

    def _assume_known_nulls(self) -> None:
        """Rebuilds the kernels that NULLs of pending blocks contradict: the words of a kernel
        follow from the columns that it assumes to be without NULLs."""
        contradicted = self.graph.contradicted([feed.nulls for feed in self.feeds])
        if contradicted:
            self.graph.reassume(contradicted)
            self.runtime.rebind()

    def has_bursts(self, alive: Collection[int]) -> bool:
        """Whether a burst of an update queue is partly processed, or an error waits behind it: no
        source gives it again, so a checkpoint has to wait."""
        return any(
            self._has_begun(k) or self.feeds[k].pending is not None
            for k in alive
            if self.feeds[k].gives_bursts
        )

    def _has_begun(self, k: int) -> bool:
        return self.scheduler.is_open(k) or self.limits.has_error(k)

    def _place(self, k: int, alive: Collection[int], phase: int) -> InputPlace:
        feed, name = self.feeds[k], self.feeds[k].source.name
        begun = self._has_begun(k)
        if feed.source.query is not None:
            raise NotSupportedError(
                f"a checkpoint of a query that reads the stream {name} is not supported by this"
                " version: the stream is a query, which runs by itself",
                position=feed.source.pos,
                hint="INSERT its rows into a table or a stream, and let another query read those",
            )
        read = feed.source.ahead > phase or (feed.source.ahead == phase and k not in alive)
        if read or (feed.is_read and feed.pending is None and not begun):
            return InputPlace(name, over=True)
        _check(self.sources[k], name)
        opened = self.scheduler.last_block(k) if begun else None
        blocks = [block for block in (opened, feed.pending) if block is not None]
        offset = blocks[0].begins if blocks else feed.offset
        return InputPlace(name, offset, tuple(_rows_read(b) for b in blocks), begun)

    def resume(self, saved: Checkpoint) -> None:
        """Continues with a checkpoint, before the first morsel."""
        dictionary = self.workspace.dictionary
        work = moved(self.roots, self.graph.keys, saved.operators)
        state.restore(saved, self._operators, dictionary, work)
        translate = state.translation(saved, dictionary)
        for k, (feed, place) in enumerate(zip(self.feeds, saved.inputs, strict=True)):
            own = saved.members[input_name(k)]
            feed.restore(own)
            feed.offset = place.offset
            for holder in feed.holders:
                holder.map_codes(translate)
            for number in range(len(place.blocks)):
                begun = place.begun and number == 0
                with errors_at(feed.source):
                    feed.reload(begun=begun)
                if begun:
                    self._begin_again(k, own)
        members = {**saved.members, "runtime": self._renumbered(saved)}
        for name, one in self._saving().items():
            one.restore(members[name])
        self.bad.rename(self._names(saved, work))

    def origins(self, saved: Checkpoint) -> list[int | None]:
        """For each operator, its number in the run of a checkpoint; None if it is new."""
        numbers = {key: number for number, key in enumerate(saved.operators)}
        return [numbers.get(key) for key in self.graph.keys]

    def _names(self, saved: Checkpoint, work: Moved | None) -> dict[str, str]:
        """The names that the operators of a checkpoint have in this run."""
        before = {key: f"{key.split(' ')[-1]}#{k}" for k, key in enumerate(saved.operators)}
        to = dict[str, str]()
        for key, operator in self._operators.items():
            others = work.to.get(key, ()) if work is not None else ()
            to |= {before[other]: operator.name for other in (key, *others) if other in before}
        return to

    @property
    def _operators(self) -> dict[str, Operator]:
        return dict(zip(self.graph.keys, self.graph.operators, strict=True))

    def _renumbered(self, saved: Checkpoint) -> Snapshot:
        """The runtime's snapshot for the operators of this run. A new split numbers rows on behind
        those that it would have split, and those that wait in the operator whose input it
        splits. Another operator, which may have numbered its rows itself under another runtime,
        goes on behind all rows that have left it."""
        emitted, before = saved.members["runtime"].words, list[int]()
        for number, origin in enumerate(self.origins(saved)):
            if origin is None:
                readers = (number, self.graph.edges[number][0].target)
                before.append(max(self.graph.operators[k].counters()["rows_in"] for k in readers))
            else:
                left = self.graph.operators[number].counters()["rows_out"]
                before.append(max(left, int(emitted[origin]) if emitted.size else 0))
        return Snapshot({}, np.array(before, np.int64))

    def _begin_again(self, k: int, own: Snapshot) -> None:
        """Opens the pending block of input ``k``, and moves to the row of the checkpoint."""
        feed = self.feeds[k]
        feed.rewind()
        loaded = self.scheduler.open(k)
        self.unreadable(k, loaded)
        feed.go_on(own, loaded)

    def unreadable(self, k: int, loaded: Loaded) -> None:
        """Counts the unreadable rows of a block of input ``k``, or cuts the block before the first
        of them, or raises an error."""
        if not loaded.block.bad:
            return
        try:
            self.bad.unread(self.feeds[k], loaded, self.runtime.quiesce)
        except CqlError as error:
            if not self.limits.cuts_off(k, loaded, error):
                raise


def input_name(k: int) -> str:
    return f"input {k}"


def _rows_read(loaded: Loaded) -> int:
    """The rows that the source gave for a block, unreadable ones included."""
    return rows_of(loaded.block) if loaded.source_rows is None else loaded.source_rows


def _check(source: Source, name: str) -> None:
    if not getattr(source, "replayable", False):
        raise NotSupportedError(
            f"the rows of {name} cannot be read again, so a run over it has no checkpoint",
            hint="tables, lists, functions that give an iterable, and files can be read again",
        )


def open_again(node: SourceExec, source: Source, place: InputPlace) -> Reader:
    """A reader for a run that continues at ``place``.

    Raises RunError for a place in another source."""
    if place.name != node.name:
        raise RunError(
            f"the checkpoint is of a query that reads {place.name}, where this one reads"
            f" {node.name}",
            hint="restore it with the query that it was taken with",
        )
    if place.over:
        return _Over()
    _check(source, place.name)
    return ResumedReader(source, place.name, columns_read(node), place.offset, place.blocks)


class _Over:
    """The reader of a source that was read to its end before the checkpoint."""

    def next(self, timeout: float | None = None) -> Block | None:
        return None

    def close(self) -> None: ...


# -- partitions ------------------------------------------------------------------------------------


def saved_partitions(made: Mapping[int, int], measured: Mapping[int, Measured]) -> Snapshot:
    """The numbers of partitions ``made``, by the numbers of nodes, and the samples from which they
    were ``measured``."""
    words, largest = [], []
    for number, parts in sorted(made.items()):
        sample = measured.get(number)
        words += [number, parts, -1 if sample is None else sample.rows]
        largest.append(0.0 if sample is None else sample.largest)
    return Snapshot({"largest": np.array(largest, np.float64)}, np.array(words, np.int64))


def partitions_of(saved: Snapshot) -> tuple[dict[int, Measured], dict[int, int]]:
    """The samples and the numbers of partitions of ``saved_partitions``."""
    rows = saved.words.reshape(-1, 3).tolist()
    made = {number: parts for number, parts, _ in rows}
    measured = {
        number: Measured(parts, largest, sampled)
        for (number, parts, sampled), largest in zip(
            rows, saved.arrays["largest"].tolist(), strict=True
        )
        if sampled >= 0
    }
    return measured, made
