"""The segments of a query, and the blocks of samples that they share (``kernels.signals``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cql.errors import RunError
from cql.executor.kernels.signals import layout, segments, timebase, timebases
from cql.executor.kernels.signals.of_segments.prepared import free_tables
from cql.executor.morsel.egress import view_address
from cql.executor.morsel.sample_types import dtype_of_kind, number_of_kind
from cql.executor.state.store import Account

Samples = npt.NDArray[Any]

_MOST_TIMEBASES = 1 << 16


class Manager(Enum):
    """How segments share samples (XStream paper, section III.B)."""

    COPY_ALWAYS = layout.COPY_ALWAYS
    REFCOUNT_COPY = layout.REFCOUNT_COPY
    REFCOUNT_REALLOC = layout.REFCOUNT_REALLOC
    REFCOUNT_LAZY = layout.REFCOUNT_LAZY


#: The manager of each value of the setting ``segments``.
MANAGERS = {
    "lazy": Manager.REFCOUNT_LAZY,
    "realloc": Manager.REFCOUNT_REALLOC,
    "refcount_copy": Manager.REFCOUNT_COPY,
    "copy_always": Manager.COPY_ALWAYS,
}


@dataclass(frozen=True, slots=True)
class Room:
    """Lines of the tables; memory is taken only where a line was used."""

    segments: int = 1 << 22
    parts: int = 1 << 22
    blocks: int = 1 << 22


@dataclass(frozen=True, slots=True)
class Timebase:
    """The times of the samples of a signal: ``rate`` in hertz; sample 0 is ``phase`` seconds behind
    ``origin``, which is in nanoseconds since 1970."""

    rate: Fraction
    origin: int = 0
    phase: Fraction = Fraction(0)

    @property
    def words(self) -> tuple[int, ...]:
        """Its words in the table of timebases (``kernels.signals.timebase``)."""
        hertz, phase = self.rate.numerator, self.phase
        common = math.lcm(hertz, phase.denominator)
        per = self.rate.denominator * (common // hertz)
        return common, per, self.origin, phase.numerator * (common // phase.denominator)

    @classmethod
    def of(cls, words: Sequence[int]) -> Timebase:
        """The timebase with these words."""
        rate, per, origin, phase = words
        return cls(Fraction(rate, per), origin, Fraction(phase, rate))


def _base_word(base: int, samples: Samples) -> int:
    return base << layout.KIND_BITS | number_of_kind(samples.dtype)


class SegmentStore:
    """``account``: ``max_state`` of the query. ``by_rows``: feeds give blocks of rows."""

    def __init__(
        self,
        account: Account,
        manager: Manager = Manager.REFCOUNT_LAZY,
        room: Room = Room(),
        *,
        by_rows: bool = False,
    ) -> None:
        self.manager, self.by_rows = manager, by_rows
        self._account = account
        self._counted = 0
        self.tables = [
            np.empty((room.segments, layout.SEGMENT), np.int64),
            np.empty((room.parts, layout.PART), np.int64),
            np.empty((room.blocks, layout.BLOCK_WORDS), np.int64),
            np.empty((room.segments, layout.YOUNG_WORDS), np.int64),
        ]
        self.timebases = np.zeros((_MOST_TIMEBASES, timebase.TIMEBASE), np.int64)
        self._constants: dict[bytes, int] = {}
        self._hosted: dict[int, Samples] = {}  # blocks whose memory Python owns
        q = self.words = np.zeros(layout.STORE, np.int64)
        q[[layout.SEGMENTS, layout.PARTS, layout.BLOCKS, layout.YOUNG]] = [
            t.ctypes.data for t in self.tables
        ]
        q[[layout.MOST_SEGMENTS, layout.MOST_PARTS, layout.MOST_BLOCKS]] = (
            room.segments,
            room.parts,
            room.blocks,
        )
        q[[layout.FREE_SEGMENT, layout.FREE_PART, layout.FREE_BLOCK]] = -1
        q[layout.MANAGER] = manager.value
        q[layout.TIMEBASES_AT] = self.timebases.ctypes.data
        q[layout.MOST_TIMEBASES] = _MOST_TIMEBASES
        self._empty = np.zeros(layout.SEGMENT, np.int64)  # no line of the table: it always stays
        self._empty[[layout.REFERENCES, layout.OWNER]] = 1, self.address
        self._empty[layout.BASE] = layout.KINDS.index("float64")
        self._empty[[layout.FIRST, layout.LAST]] = -1
        q[layout.EMPTY] = self._empty.ctypes.data

    @property
    def address(self) -> int:
        return int(self.words.ctypes.data)

    # -- timebases -------------------------------------------------------------------------------

    def number_of(self, base: Timebase) -> int:
        """The number of a timebase, which the caller uses until ``leave``, or to the end of the
        query; segments use their own. Raises RunError if there are too many."""
        number = int(timebases.enter(self.address, *base.words))
        self.check_room()
        return number

    def leave(self, number: int) -> None:
        """Gives a use of a timebase back."""
        timebases.leave(self.address, number)

    def timebase(self, g: int) -> Timebase:
        """The timebase of a segment."""
        line = self.timebases[self._line(g)[layout.BASE] >> layout.KIND_BITS].tolist()
        return Timebase.of(line[: timebase.USES])

    # -- segments --------------------------------------------------------------------------------

    def share(self, samples: Samples) -> int:
        """The number of a block of samples that Python owns; samples with several fields are rows,
        whose fields begin at multiples of their sizes. It stays until ``let_go`` and until no
        segment shares it."""
        step = 0 if samples.dtype.names is None else samples.itemsize
        block = int(segments.adopt(self.address, samples.ctypes.data, samples.nbytes, step))
        self._check(block >= 0)
        self._account.resize(0, samples.nbytes, "the samples of its signals")
        self._hosted[block] = samples
        return block

    def let_go(self, block: int) -> None:
        segments.let_go(self.address, block)

    def segment(self, base: int, start: int, samples: Samples, block: int) -> int:
        """The segment of samples inside a shared block; ``start`` is the number of the first in
        timebase ``base``."""
        at = samples.ctypes.data
        word = _base_word(base, samples)
        made = int(segments.segment_of(self.address, word, start, len(samples), block, at))
        self._check(made != 0)
        return made

    def make(self, base: int, start: int, samples: Samples) -> int:
        """A segment with a copy of ``samples``."""
        word = _base_word(base, samples)
        made = int(segments.make(self.address, word, start, len(samples)))
        self._check(made != 0)
        view_address(self._line(made)[layout.FLAT], samples.dtype, len(samples))[:] = samples
        return made

    def make_at(self, g: int, samples: Samples) -> int:
        """The same, from where segment ``g`` begins on."""
        line = self._line(g)
        return self.make(line[layout.BASE] >> layout.KIND_BITS, line[layout.START], samples)

    def constant(self, values: Sequence[Any]) -> int:
        """The segment of a constant list of numbers, which stays to the end of the query."""
        samples = np.array(values, np.float64)
        key = samples.tobytes()
        if key not in self._constants:
            self._constants[key] = self.make(self.number_of(Timebase(Fraction(1))), 0, samples)
        return self._constants[key]

    def release(self, made: Sequence[int]) -> None:
        """Gives a reference of each segment back."""
        for g in made:
            segments.release(g)

    def length(self, g: int) -> int:
        return self._line(g)[layout.LENGTH]

    def start(self, g: int) -> int:
        return self._line(g)[layout.START]

    def samples(self, g: int) -> Samples:
        """A copy of the samples of a segment; structs come as bytes."""
        line = self._line(g)
        made = np.empty(line[layout.LENGTH], dtype_of_kind(line[layout.BASE] & layout.KIND))
        segments.copy_out(g, 0, len(made), made.ctypes.data)
        return made

    def view(self, g: int) -> Samples:
        """The samples of a segment in their place, as long as it lives; nobody may change them.
        Structs come as bytes.

        Raises RunError if there is no room to bring them together."""
        line = self._line(g)
        address, length = int(segments.flat(g)), line[layout.LENGTH]
        self._check(address != 0 or length == 0)
        found = view_address(address, dtype_of_kind(line[layout.BASE] & layout.KIND), length)
        found.flags.writeable = False
        return found

    def _line(self, g: int) -> list[int]:
        found: list[int] = view_address(g, np.dtype(np.int64), layout.SEGMENT).tolist()
        return found

    def check_room(self) -> None:
        """Raises RunError if a kernel found no room."""
        if self.words[layout.FULL] == layout.NO_TIMEBASE:
            raise RunError(
                f"the segments of the query have more than {_MOST_TIMEBASES:,} timebases",
                hint="each gap begins a timebase if the clock of a source drifts, and so does each"
                " phase of resample: declare RATE exactly, or resample by smaller numbers",
            )
        self._check(not self.words[layout.FULL])

    def check(self) -> None:
        """Raises RunError if a kernel found no room; accounts for what kernels have made.

        Also forgets the blocks of Python that nobody shares any more."""
        self.check_room()
        made = int(self.words[layout.BYTES] + self.words[layout.PREPARED_BYTES])
        self._account.resize(self._counted, made, "the samples of its signals")
        self._counted = made
        for block in [b for b in self._hosted if segments.forget(self.address, b)]:
            gone = self._hosted.pop(block)
            self._account.resize(gone.nbytes, 0, "the samples of its signals")

    def sweep(self, through: int) -> None:
        """Lets go of what was made for morsels up to this serial number."""
        segments.sweep(self.address, through)
        self.check()

    def _check(self, fits: bool) -> None:
        if not fits:
            raise RunError(
                "there is no room for more segments of signals: the query holds"
                f" {int(self.words[layout.LIVE_SEGMENTS]):,}",
                hint="make windows longer, or SET morsel_rows lower",
            )

    def close(self) -> None:
        """Frees all blocks, at the end of the query."""
        segments.free_blocks(self.address)
        free_tables(self.address)
        self._hosted.clear()

    @property
    def counts(self) -> dict[str, int]:
        """Live segments, bytes that the store made, bytes that it copied so far, and blocks whose
        memory Python owns."""
        q = self.words
        return {
            "segments": int(q[layout.LIVE_SEGMENTS]),
            "bytes": int(q[layout.BYTES]),
            "copied": int(q[layout.COPIED]),
            "hosted": len(self._hosted),
        }
