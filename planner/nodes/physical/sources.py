"""Where rows come from: sources and constants."""

from __future__ import annotations

from dataclasses import dataclass, field

from cql.base.model import NO_COLUMNS, Field, Schema
from cql.base.types import BIGINT, signal
from cql.errors import Position
from cql.planner.nodes.catalog import Progress, Queue, Relation
from cql.planner.nodes.expr import Literal
from cql.planner.nodes.logical import RefreshItem
from cql.planner.nodes.physical.base import NoInput
from cql.planner.nodes.physical.plan import PhysicalPlan
from cql.planner.nodes.progress import is_value, max_advance


@dataclass(frozen=True, slots=True)
class Awaited:
    """The punctuation on a column that some consumer can use: the values ``offset`` plus a multiple
    of ``step``, for each pair (step, offset) of ``boundaries``; None: any value."""

    column: int
    boundaries: tuple[tuple[int, int], ...] | None


#: The column that the source of an update stream adds if windows are updates: the start of the
#: window for which a row is given.
WINDOW_OF_ROW = "_update_window"
#: The number of the update key of a row. The source adds this column behind WINDOW_OF_ROW if the
#: key is not a single column whose values have distinct bits.
KEY_OF_ROW = "_update_key"


@dataclass(frozen=True, slots=True)
class UpdateWindows:
    """Windows as updates (UpStream report, section 6), ``size`` long and ``slide`` apart, in units
    of the column ``time``. ``eager``: the query begins with a window when its first row has come;
    otherwise when the window has fully arrived (LAZY)."""

    size: int
    slide: int
    eager: bool
    time: int


@dataclass(frozen=True, slots=True)
class UpdateQueue:
    """The queue in which the rows of an update stream wait (UpStream report, section 4). ``keys``:
    the columns of the update key, among those that the source reads; without any, each row updates
    the one before it. ``windows``: None if each row is an update. ``goal``: STALENESS UNDER, in
    microseconds. ``is_fixed``: whether a run may not choose another update queue by the measured
    frequencies of the keys. ``refresh``: REFRESH; the first item that holds of a key counts."""

    queue: Queue
    keys: tuple[int, ...]
    windows: UpdateWindows | None = None
    goal: int | None = None
    is_fixed: bool = True
    refresh: tuple[RefreshItem, ...] = ()


@dataclass(frozen=True, slots=True)
class SignalInput:
    """Rows that are the samples of a signal, of ``rate`` / ``per`` hertz. ``time``: the column,
    among those that the source reads, with their times; None: sample 0 is at the beginning of 1970,
    and there are no gaps. ``tolerance``: how far the time of a sample may be from where the rate
    says, in microseconds; None: half a period."""

    rate: int
    per: int
    time: int | None
    tolerance: int | None


@dataclass(frozen=True, slots=True)
class SourceExec(NoInput):
    """Reads blocks, marks late rows and makes punctuation (out-of-order paper §5.1). ``awaited``:
    by column, the punctuation that the plan above can use (``planner.lower.watermark_demand``);
    None: any. ``ahead``: the nesting depth of the source in tables and subqueries that rows are
    looked up in; deeper sources are read to their end before the others. ``refresh``: the interval,
    in microseconds, at which the source is read again. ``alias`` is the relation's name in the
    query. ``updates``: where rows wait that come faster than the query takes them; None: at the
    source. If windows are updates, the column WINDOW_OF_ROW follows the stored ones, and then
    KEY_OF_ROW, if keys are numbered. ``signal``: the rows are samples, and the source gives
    segments of them: a row for each part of a block without a gap, without the times. ``query``:
    the plan of a stream that is a query (``logical.DerivedStream``); the run of the plan with the
    source runs it, too."""

    relation: Relation
    columns: tuple[int, ...]
    why: str = ""
    pos: Position | None = field(default=None, compare=False)
    awaited: tuple[Awaited, ...] | None = None
    ahead: int = 0
    refresh: int | None = None
    alias: str = field(default="", compare=False)
    updates: UpdateQueue | None = None
    signal: SignalInput | None = None
    query: PhysicalPlan | None = field(default=None, compare=False)
    #: The columns that are read from the source.
    stored: Schema = field(init=False, compare=False, repr=False)
    schema: Schema = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        stored = schema = self.relation.schema.part(self.columns, self.alias)
        object.__setattr__(self, "stored", stored)
        windows = None if self.updates is None else self.updates.windows
        if windows is not None:
            time = schema[windows.time].type
            added = [Field(WINDOW_OF_ROW, BIGINT if time.is_integer else time, False)]
            if self._numbers_keys:
                added.append(Field(KEY_OF_ROW, BIGINT, False))
            schema = Schema((*schema.fields, *added))
        if self.signal is not None:
            channels = [f for k, f in enumerate(stored) if k != self.signal.time]
            schema = Schema(tuple(Field(f.name, signal(f.type), False) for f in channels))
        object.__setattr__(self, "schema", schema)

    @property
    def sources(self) -> tuple[SourceExec, ...]:
        return (self,)

    @property
    def shown(self) -> tuple[int, ...]:
        """The columns of the relation that are in the output."""
        time = None if self.signal is None else self.signal.time
        return tuple(c for k, c in enumerate(self.columns) if k != time)

    @property
    def _numbers_keys(self) -> bool:
        """Whether an update key is known by its number in the queue."""
        assert self.updates is not None
        keys = self.updates.keys
        return len(keys) != 1 or not is_value(self.stored[keys[0]].type)

    @property
    def by(self) -> str | None:
        """The column whose values have a watermark each: that of PUNCTUATE BY, or the update key if
        windows are updates."""
        if self.updates is not None and self.updates.windows is not None:
            return KEY_OF_ROW if self._numbers_keys else self.stored.names[self.updates.keys[0]]
        return None if self.relation.stream is None else self.relation.stream.by

    def awaited_on(self, column: int) -> tuple[tuple[int, int], ...] | None:
        """The boundaries of the awaited punctuation on ``column``; None: any punctuation; (): no
        consumer awaits punctuation on the column."""
        if self.awaited is None:
            return None
        return next((a.boundaries for a in self.awaited if a.column == column), ())

    @property
    def progress(self) -> tuple[tuple[int, Progress], ...]:
        """The progressing columns (index and declaration) that the source reads. If windows are
        updates, WINDOW_OF_ROW alone progresses: the queue knows when no window of a key before it
        follows. Segments say themselves how far a signal has come."""
        if self.updates is not None and self.updates.windows is not None:
            return ((len(self.columns), Progress(WINDOW_OF_ROW, by_rows=False)),)
        if self.signal is not None:
            return ()
        spec, whole = self.relation.stream, self.relation.schema
        found = [(whole.find(p.column), p) for p in (spec.progress if spec else ())]
        return tuple(
            (self.columns.index(c), p) for c, p in found if c is not None and c in self.columns
        )

    @property
    def name(self) -> str:
        return ".".join(self.relation.name)

    @property
    def progressing(self) -> tuple[int, ...]:
        return tuple(sorted(column for column, _ in self.progress))

    @property
    def bounded(self) -> bool:
        return self.relation.bounded

    def late_out_of_order(self, column: int, *, guarded: bool) -> bool:
        declared = dict(self.progress).get(column)
        if declared is None or not declared.by_rows or declared.slack:
            return False
        if self.by is not None:
            return False  # only the rows of one value are in order
        sparse = declared.every is not None or declared.marked_by is not None
        return not sparse and (guarded or max_advance(self.relation, declared) is None)


@dataclass(frozen=True, slots=True)
class ValuesExec(NoInput):
    """Rows of constants. The default is one row without columns, which SELECT without FROM reads.
    ``ahead`` as in SourceExec."""

    schema: Schema = NO_COLUMNS
    rows: tuple[tuple[Literal, ...], ...] = ((),)
    why: str = ""
    ahead: int = 0

    @property
    def progressing(self) -> tuple[int, ...]:
        return ()

    @property
    def bounded(self) -> bool:
        return True
