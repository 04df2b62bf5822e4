"""The catalog's interface to planner and executor; ``cql.catalog`` implements it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

from cql.base.model import Schema
from cql.errors import CatalogError, Position

if TYPE_CHECKING:
    from cql.executor.protocols import Sink, Source


#: The numerator of a rate, times its denominator: times are computed in 64 bits.
_MOST_PRODUCT = 9_000_000_000
#: Of signals, in hertz.
LEAST_RATE, MOST_RATE = 1e-6, 1_000_000_000
#: The name of the times of a signal that has no column for them.
SAMPLE_TIME = "time"
#: The format of a stream without a source: the program pushes rows into the stream.
PUSH = "push"


class TimeUnit(Enum):
    """The unit that an integer event time counts."""

    NANOSECONDS = "nanoseconds"
    MICROSECONDS = "microseconds"
    MILLISECONDS = "milliseconds"
    SECONDS = "seconds"
    MINUTES = "minutes"
    HOURS = "hours"
    DAYS = "days"


class Queue(Enum):
    """The queue in which rows of a stream wait for a query (UpStream report, section 4)."""

    APPEND = "append"
    APPEND_SHED_RANDOM = "append shed random"
    FIFO = "fifo"
    IN_PLACE = "in-place"
    LINECUTTING = "linecutting"
    ADAPTIVE = "adaptive"  # APPEND, and an update queue while rows wait too long

    @property
    def is_update(self) -> bool:
        """Whether a row takes the place of an older one of its key that waits."""
        return self not in (Queue.APPEND, Queue.APPEND_SHED_RANDOM)


@dataclass(frozen=True, slots=True)
class Progress:
    """A progressing column: after a row with value v, every later row below ``v - slack`` is a late
    row. Lengths are in units of the column; only integer columns declare a ``unit``. ``declared``
    is the clause as written (for EXPLAIN).

    ``by_rows`` False: rows do not raise the watermark, only the source's own punctuation does.
    ``marked_by``: a boolean column that is true in rows which are punctuation. ``every``: the
    distance between two punctuations. ``max_advance``: a larger advance of the watermark needs
    confirmation (None: the default). ``max_skew``: the most that the watermark of a value of
    ``StreamSpec.by`` may lie behind the most advanced rows (None: the default)."""

    column: str
    slack: int = 0
    unit: TimeUnit | None = None
    declared: str = "ORDERED BY"
    by_rows: bool = True
    marked_by: str | None = None
    every: int | None = None
    max_advance: int | None = None
    max_skew: int | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """While a source has no rows, the watermark follows the elapsed time of the clock, ``slack``
    behind it, with a punctuation ``every`` so often; both in microseconds (out-of-order paper
    A.1.1)."""

    every: int
    slack: int


#: The column of a changelog's source with the change that a row is: above zero, copies of the row
#: enter the relation; below zero, they leave it.
CHANGE = "_change"


@dataclass(frozen=True, slots=True)
class Changelog:
    """How the rows of a source are changes. ``column`` has their operation codes; None: the rows
    are Debezium envelopes. ``not_null``: the columns declared NOT NULL, which only a row that
    leaves may lack."""

    column: str | None
    not_null: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Computed:
    """A computed column: ``text`` is an expression of the dialect over the source's columns; ``at``
    is the number of the stream's columns in front of the column (None: all of the source's)."""

    name: str
    text: str
    at: int | None


@dataclass(frozen=True, slots=True)
class Refresh:
    """An item of REFRESH: updates of a key that ``condition`` holds of are taken ``every``
    microseconds apart, at least. The condition is an expression of the dialect over the update key;
    None: of all other keys."""

    condition: str | None
    every: int


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """The clauses of CREATE STREAM, without the columns' names and types."""

    progress: tuple[Progress, ...] = ()
    update_key: tuple[str, ...] | None = None
    queue: Queue | None = None  # None: the planner's choice
    lazy_windows: bool | None = None
    rate_hz: float | None = None
    keep_bad_rows: bool | None = None  # None: FAIL on bounded input, KEEP on unbounded
    idle_after: int | None = None  # microseconds; None: the default
    heartbeat: Heartbeat | None = None
    # Clauses that the stream keeps and a query refuses: (clause, text).
    deferred: tuple[tuple[str, str], ...] = ()
    # PUNCTUATE BY: each value of the column has its own watermark (out-of-order paper A.1.1).
    by: str | None = None
    # Not in ``Relation.schema``: a query that reads the stream computes these above the source.
    computed: tuple[Computed, ...] = ()
    # The progress of a computed column; no stored column progresses then.
    computed_progress: Progress | None = None
    # The rows are changes: the stream is a relation. ``Relation.schema`` then has CHANGE at its
    # end, and lacks the column with the codes.
    changelog: Changelog | None = None
    staleness: int | None = None  # the goal for the staleness of results, in microseconds
    refresh: tuple[Refresh, ...] = ()  # the first item that holds of a key counts
    # How far the time of a sample may be from where the rate says, in microseconds; None: half a
    # period.
    tolerance: int | None = None

    @property
    def rate(self) -> Fraction | None:
        """The samples per second of a signal, as the nearest fraction whose times can be computed
        in 64 bits: its numerator times its denominator is small. None: the stream is none."""
        if self.rate_hz is None:
            return None
        exact = Fraction(str(self.rate_hz))
        most = math.isqrt(int(_MOST_PRODUCT / exact))
        found = exact.limit_denominator(most)
        while found.numerator * found.denominator > _MOST_PRODUCT:
            most = found.denominator - 1
            found = exact.limit_denominator(most)
        return found

    @property
    def is_queued(self) -> bool:
        """Whether its rows wait in a queue that may leave some out: an update queue, or one that
        sheds load."""
        return self.is_updates or self.queue is Queue.APPEND_SHED_RANDOM

    @property
    def is_updates(self) -> bool:
        """Whether each row replaces the one before it: of its update key, or of all rows."""
        return self.update_key is not None or (self.queue is not None and self.queue.is_update)


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of a relation that is not yet read; None is unknown. ``rate`` is in rows per
    second of event time; ``distinct`` and ``nulls`` count values and rows per column.

    ``rows`` is exact. ``estimated_rows`` is the number of rows by a sample of the files, where
    ``rows`` is unknown; ``nulls`` then counts those of the sample. ``extents``: of integer and time
    columns, the length of the range of the values, and of that in a row group, on average; in the
    units of the engine (timestamps in microseconds)."""

    rows: int | None = None
    rate: float | None = None
    distinct: Mapping[str, int] = field(default_factory=dict)
    nulls: Mapping[str, int] = field(default_factory=dict)
    estimated_rows: int | None = None
    extents: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def expected_rows(self) -> int | None:
        """The number of rows, exact or estimated; for choices between plans with the same rows."""
        return self.estimated_rows if self.rows is None else self.rows


@dataclass(frozen=True, slots=True)
class Cluster:
    """The executors of a Spark that runs on other cores than this process: the number of their
    ``cores``, and the ``tables`` of its catalog among the relations of a query."""

    cores: int
    tables: frozenset[tuple[str, ...]]


class Relation(Protocol):
    """A named stream or table."""

    @property
    def name(self) -> tuple[str, ...]: ...
    @property
    def kind(self) -> str:
        """The kind for SHOW and DESCRIBE: stream, table or view."""
        ...

    @property
    def schema(self) -> Schema: ...
    @property
    def stream(self) -> StreamSpec | None:
        """The clauses of a stream; None for a plain table, which has no progressing column."""
        ...

    @property
    def bounded(self) -> bool: ...
    @property
    def statistics(self) -> Statistics: ...
    @property
    def unsupported(self) -> Mapping[str, str]:
        """The columns of the data that no query can use, with the reason."""
        ...

    def has_default(self, column: str) -> bool:
        """Whether an INSERT may leave out ``column`` although it is never NULL."""
        ...

    def default(self, column: str) -> object:
        """The value that an INSERT without ``column`` stores now, as a Python object; mostly
        None."""
        ...

    def source(self) -> Source: ...


def key_of(relation: Relation | None) -> tuple[str, ...]:
    """The columns of a table's PRIMARY KEY: an INSERT replaces the row with the same key. Empty
    for other relations."""
    key: tuple[str, ...] = getattr(relation, "key", ())
    return key


def refuse_computed(relation: Relation, what: str, position: Position | None = None) -> None:
    """Raises CatalogError if ``relation`` has computed columns, which ``what`` would not see, or
    if its rows are changes."""
    if relation.stream is not None and relation.stream.changelog is not None:
        name = ".".join(relation.name)
        raise CatalogError(
            f"{what} reads rows as they are stored, and those of {name} are changes",
            position=position,
            hint=f"CREATE STREAM … AS SELECT … FROM {name} has the relation that they make",
        )
    if relation.stream is not None and relation.stream.computed:
        name, column = ".".join(relation.name), relation.stream.computed[0].name
        raise CatalogError(
            f"{what} reads columns as they are stored, and {name} computes {column}",
            position=position,
            hint=f"CREATE STREAM … AS SELECT … FROM {name} has them all",
        )


class Relations(Protocol):
    """Maps names to relations. Every lookup raises CatalogError for a damaged table, and returns
    None for a table that does not exist."""

    def find(self, name: tuple[str, ...]) -> Relation | None: ...
    def names(self) -> Sequence[tuple[str, ...]]:
        """All names, for candidates and completion; does not start a JVM."""
        ...


class Catalog(Relations, Protocol):
    """Relations that come and go, and the tables that take rows."""

    def create_stream(
        self, name: tuple[str, ...], definition: StreamDefinition, *, replace: bool
    ) -> None: ...
    def drop(self, name: tuple[str, ...], kind: str) -> bool:
        """Drops the relation of that name and kind; returns False if there is none."""
        ...

    def sink(self, name: tuple[str, ...], schema: Schema, *, create: bool) -> Sink:
        """Opens ``name`` for INSERT; ``schema`` is the schema of the rows, matched by name."""
        ...


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files of a table. ``format`` None is the default format; ``options`` hold ``path`` and
    the options of the format. ``schema`` has the declared columns; None: those of the files."""

    format: str | None
    options: Mapping[str, Any]
    schema: Schema | None = None


#: The option of a table with a PRIMARY KEY that says what an epoch does: it rewrites rows (all, or
#: those of some partitions), or appends to a log of changes.
UPSERT, REWRITE, LOG = "upsert", "rewrite", "log"


@dataclass(frozen=True, slots=True)
class TableLayout:
    """How a new table of Spark keeps its rows: ``partitions`` are the columns of PARTITIONED BY;
    with ``log``, its epochs append to a log of changes. ``pos`` is the place of that clause."""

    partitions: tuple[str, ...] = ()
    log: bool = False
    pos: Position | None = field(default=None, compare=False)


PLAIN = TableLayout()


@dataclass(frozen=True, slots=True)
class StreamDefinition:
    """A bound CREATE STREAM. ``schema`` None means the schema of the source. Exactly one of
    ``table`` and ``format`` is set; ``options`` are the options of the format (with ``path``), or
    of reading the table (``follow``)."""

    schema: Schema | None
    spec: StreamSpec
    table: tuple[str, ...] | None = None
    format: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
