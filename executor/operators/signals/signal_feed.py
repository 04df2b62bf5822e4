"""The feed of a signal: the samples of a block become segments, a row for each run in it, without a
copy. Their times are in the timebase of the run (``runs``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cql.errors import NotSupportedError, RunError
from cql.executor import protocols
from cql.executor.morsel.arrow_columns import plain_storage, unpack_mask
from cql.executor.morsel.ingest import Feed, Loaded
from cql.executor.morsel.source_punctuation import Separated
from cql.executor.operators.signals.runs import Run, Runs
from cql.executor.operators.signals.segment_store import SegmentStore
from cql.executor.protocols import Block
from cql.executor.state.store import Snapshot
from cql.executor.texts.blocks import Computed

#: In microseconds, before or after 1970.
_LATEST = (2**63 - 2**61) // 1000


@dataclass(slots=True)
class SignalFeed(Feed):
    """``store``: the segments of the query."""

    store: SegmentStore | None = None
    runs: Runs = field(init=False)
    _samples: int = 0

    def __post_init__(self) -> None:
        Feed.__post_init__(self)
        given = self.source.signal
        assert given is not None
        self.runs = Runs(Fraction(given.rate, given.per))
        if hasattr(self.reader, "block_rows"):
            self.reader.block_rows = protocols.BLOCK_SAMPLES

    def reported(self) -> dict[str, Any]:
        """The samples of each channel, and what interrupts them."""
        runs = self.runs
        return {
            "samples": self._samples,
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
        data = [plain_storage(c, f.type) for c, f in zip(columns, fields, strict=True)]
        holes = [mask != 0 for column in columns if (mask := unpack_mask(column)) is not None]
        valid = np.logical_and.reduce(holes) if holes else None
        times = None if given.time is None else data[given.time].astype(np.int64, copy=False)
        if times is not None:
            self._check_times(times if valid is None else times[valid])
        runs = self.runs.of(n, times, valid)
        self._samples += sum(run.samples for run in runs)
        channels = [column for k, column in enumerate(data) if k != given.time]
        handles = [self._segments(store, column, runs) for column in channels]
        made = Block(
            pa.record_batch([pa.nulls(len(runs))], names=["_"]), block.offset, bad=block.bad
        )
        separated = Separated(len(runs), None, np.zeros(0, np.int64), 0)
        loaded = Loaded(made, separated, list(handles), [None] * len(handles), [], [])
        loaded.leaves = partial(store.release, [g for column in handles for g in column.tolist()])
        return loaded

    def _check_times(self, times: npt.NDArray[np.int64]) -> None:
        """Raises RunError for times whose nanoseconds, with the longest window behind them, do not
        fit in 64 bits."""
        for time in (times.min(), times.max()) if len(times) else ():
            if abs(int(time)) > _LATEST:
                raise RunError(
                    f"the signal {self.source.name} has a sample at the time"
                    f" {np.datetime64(int(time), 'us')}: times of samples lie between the years"
                    " 1752 and 2188"
                )

    def _is_carried(self, i: int) -> bool:
        return False  # samples and times are numbers

    @staticmethod
    def _segments(store: SegmentStore, samples: Any, runs: Sequence[Run]) -> Any:
        """The segments of a channel, one for each run."""
        samples = np.ascontiguousarray(samples)
        block = store.share(samples)
        made = [
            store.segment(
                store.number_of(run.base),
                run.start,
                samples[run.first : run.first + run.samples],
                block,
            )
            for run in runs
        ]
        store.let_go(block)
        return np.array(made, np.int64)

    def snapshot(self) -> Snapshot:
        """Raises NotSupportedError: segments are not saved yet."""
        raise NotSupportedError(
            f"a checkpoint of a query over the signal {self.source.name} is not supported by this"
            " version",
            position=self.source.pos,
        )
