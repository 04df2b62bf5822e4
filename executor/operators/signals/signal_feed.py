"""The feed of a signal: the samples of a block become segments, a row for each run in it, without a
copy. Their times are in the timebase of the run (``runs``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from cql.base.types import DataType, Kind
from cql.executor import protocols
from cql.executor.morsel.arrow_columns import plain_storage, unpack_mask
from cql.executor.morsel.ingest import Feed, Loaded
from cql.executor.morsel.sample_types import fields_of, sample_dtype
from cql.executor.morsel.source_punctuation import Separated
from cql.executor.operators.signals.followed_runs import check_times, runs_of
from cql.executor.operators.signals.runs import Run, Runs
from cql.executor.operators.signals.segment_store import SegmentStore
from cql.executor.protocols import Block
from cql.executor.state.store import Snapshot
from cql.executor.texts.blocks import Computed

#: The part of its snapshot that has the state of the runs.
_RUNS = "runs"


@dataclass(slots=True)
class SignalFeed(Feed):
    """``store``: the segments of the query."""

    store: SegmentStore | None = None
    runs: Runs = field(init=False)
    #: The state of the runs before the block that is pending, or was so last; and before the block
    #: that was opened last.
    _before: list[int] = field(init=False)
    _opened: list[int] = field(init=False)

    def __post_init__(self) -> None:
        Feed.__post_init__(self)
        given = self.source.signal
        assert given is not None
        self.runs = runs_of(given)
        self._before = self._opened = self.runs.words
        if hasattr(self.reader, "block_rows"):
            self.reader.block_rows = protocols.BLOCK_SAMPLES

    def reported(self) -> dict[str, Any]:
        """The samples of each channel, and what interrupts them."""
        runs = self.runs
        return {
            "samples": runs.samples,
            "gaps": runs.gaps,
            "overlapping": runs.overlapping,
            "missing": runs.missing,
        }

    def _convert(self, block: Block, computed: Sequence[Computed]) -> Loaded:
        given, store = self.source.signal, self.store
        assert given is not None
        assert store is not None
        columns, n = block.batch.columns, block.batch.num_rows
        fields = self.source.stored
        data = [_stored(c, f.type) for c, f in zip(columns, fields, strict=True)]
        holes = [mask != 0 for column in columns for mask in _masks(column)]
        valid = np.logical_and.reduce(holes) if holes else None
        times = None if given.time is None else data[given.time].astype(np.int64, copy=False)
        if times is not None:
            check_times(times if valid is None else times[valid], self.source.name)
        self._before = self.runs.words
        runs = self.runs.of(n, times, valid)
        channels = [column for k, column in enumerate(data) if k != given.time]
        if store.by_rows and len(channels) > 1:
            handles = self._segments_of_rows(store, channels, runs)
        else:
            handles = [self._segments_of(store, column, runs) for column in channels]
        made = Block(
            pa.record_batch([pa.nulls(len(runs))], names=["_"]), block.offset, bad=block.bad
        )
        separated = Separated(len(runs), None, np.zeros(0, np.int64), 0)
        loaded = Loaded(made, separated, list(handles), [None] * len(handles), [], [])
        loaded.source_rows = n + len(block.bad)
        loaded.leaves = partial(store.release, [g for column in handles for g in column.tolist()])
        return loaded

    def _is_carried(self, i: int) -> bool:
        return False  # samples and times are numbers, or structs of them

    @staticmethod
    def _segments_of(store: SegmentStore, samples: Any, runs: Sequence[Run]) -> Any:
        """The segments of a channel, one for each run."""
        samples = np.ascontiguousarray(samples)
        block = store.share(samples)
        made = _cut(store, samples, block, runs)
        store.let_go(block)
        return made

    @staticmethod
    def _segments_of_rows(
        store: SegmentStore, channels: Sequence[Any], runs: Sequence[Run]
    ) -> list[Any]:
        """The same of all channels, whose samples are copied into rows."""
        fields = [(f"{k}", channel.dtype) for k, channel in enumerate(channels)]
        rows = np.empty(len(channels[0]), np.dtype(fields, align=True))
        for (name, _), channel in zip(fields, channels, strict=True):
            rows[name] = channel
        block = store.share(rows)
        made = [_cut(store, rows[name], block, runs) for name, _ in fields]
        store.let_go(block)
        return made

    def begin(self) -> Loaded:
        self._opened = self._before
        return Feed.begin(self)

    # -- checkpoints -----------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The place in the blocks, and the state of the runs before and behind the block that was
        opened last. The samples are not in it: the source gives the blocks again."""
        behind = self.runs.words if self.pending is None else self._before
        runs = Snapshot({}, np.array([self._opened, behind], np.int64).ravel())
        saved = Feed.snapshot(self)
        return replace(saved, parts={**saved.parts, _RUNS: runs})

    def restore(self, saved: Snapshot) -> None:
        """Continues with the state of a feed of the same plan; the blocks are to be read again."""
        Feed.restore(self, saved)
        self._opened, behind = saved.parts[_RUNS].words.reshape(2, -1).tolist()
        self.runs = self.runs.continued(behind)

    def reload(self, *, begun: bool) -> None:
        """Reads a block of the checkpoint again. ``begun``: the one that was opened last."""
        if begun:
            self.runs = self.runs.continued(self._opened)
        Feed.reload(self, begun=begun)


def _stored(column: pa.Array, of: DataType) -> Any:
    """The values of a column; structs are put together from their fields."""
    if of.kind is not Kind.STRUCT:
        return plain_storage(column, of)
    made = np.zeros(len(column), sample_dtype(of))
    for k, (part, (_, kind)) in enumerate(zip(fields_of(made), of.fields, strict=True)):
        part[:] = _stored(column.field(k), kind)
    return made


def _masks(column: pa.Array) -> Iterator[Any]:
    """0 for the rows where a column or a field of its structs is NULL, if there are any."""
    mask = unpack_mask(column)
    if mask is not None:
        yield mask
    if pa.types.is_struct(column.type):
        for k in range(column.type.num_fields):
            yield from _masks(column.field(k))


def _cut(store: SegmentStore, samples: Any, block: int, runs: Sequence[Run]) -> Any:
    """The segments of a channel in ``block``, one for each run."""
    made = list[int]()
    for run in runs:
        base, own = store.number_of(run.base), samples[run.first : run.first + run.samples]
        made.append(store.segment(base, run.start, own, block))
        store.leave(base)
    return np.array(made, np.int64)
