"""What the operators of one query share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cql.base.uninterruptible import load_module
from cql.errors import RunError
from cql.executor.codegen import module as codegen
from cql.executor.protocols import BLOCK_ROWS
from cql.executor.strings.dictionary import Dictionary

if TYPE_CHECKING:
    from types import ModuleType

    from cql.executor.operators.signals.segment_store import SegmentStore

_ONES = np.ones(BLOCK_ROWS, np.uint8)
_ONES.flags.writeable = False  # every query reads it


@dataclass(slots=True)
class Workspace:
    """What the operators of one query share. ``limit`` is ``max_state`` in bytes; ``peaks`` holds,
    by an operator's name, the most bytes that its state had. ``segments`` is the setting;
    ``by_rows``: ``sample_order`` is rows."""

    dictionary: Dictionary
    kernel_cache: str
    morsel_rows: int
    limit: int
    must_stop: Callable[[], bool] = bool  # whether a stop of the query is requested
    used: int = 0
    peak: int = 0
    peaks: dict[str, int] = field(default_factory=dict)
    _taken: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    segments: str = "lazy"
    by_rows: bool = False
    _signals: SegmentStore | None = None
    ones: npt.NDArray[np.uint8] = field(default_factory=lambda: _ONES)

    def __post_init__(self) -> None:
        self.dictionary.account = partial(self.resize, what="the texts that it computes with")
        self.dictionary.account(0, self.dictionary.nbytes)

    @property
    def signals(self) -> SegmentStore:
        """The segments of the query; its kernels are loaded with the first one."""
        if self._signals is None:
            load_module("cql.executor.operators.signals.segment_store")
            from cql.executor.operators.signals.segment_store import MANAGERS, SegmentStore

            self._signals = SegmentStore(self, MANAGERS[self.segments], by_rows=self.by_rows)
        return self._signals

    def sweep_signals(self, through: int) -> None:
        """Lets go of the segments of morsels up to the serial number ``through``, which are
        through."""
        if self._signals is not None:
            self._signals.sweep(through)

    def check_signals(self) -> None:
        """Raises RunError if there was no room for a segment."""
        if self._signals is not None:
            self._signals.check_room()

    def close(self) -> None:
        """Frees what Python does not own."""
        if self._signals is not None:
            self._signals.close()

    def load(self, text: str) -> ModuleType:
        """The compiled module of a kernel's text."""
        return codegen.load(text, self.kernel_cache, self.must_stop)

    def resize(self, before: int, after: int, what: str) -> None:
        """Accounts for state that grows from ``before`` to ``after`` bytes.

        Raises RunError, before the caller allocates, if the total would exceed the limit."""
        with self._lock:
            total = self.used - before + after
            if total > self.limit and after > before:
                raise RunError(
                    f"the query's state would grow to {total:,} bytes, over max_state = "
                    f"{self.limit:,} ({what})",
                    hint="SET max_state = '<size>', shorten RANGE, group by fewer keys, or SET "
                    "morsel_rows lower",
                )
            self.used = total
            self.peak = max(self.peak, total)
            mine = self._taken[what] = self._taken.get(what, 0) + after - before
            self.peaks[what] = max(self.peaks.get(what, 0), mine)
