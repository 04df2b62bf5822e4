"""What the planner and the executor ask of a catalog; ``cql.catalog`` implements it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from cql.base.model import Schema
from cql.errors import CatalogError, Position

if TYPE_CHECKING:
    from cql.executor.protocols import Sink, Source


#: The format of a stream that has no source of its own: rows are pushed into it.
PUSH = "push"


class TimeUnit(Enum):
    """What one step of an integer event time means, in microseconds (nanoseconds: 1000 a step)."""

    NANOSECONDS = "nanoseconds"
    MICROSECONDS = "microseconds"
    MILLISECONDS = "milliseconds"
    SECONDS = "seconds"
    MINUTES = "minutes"
    HOURS = "hours"
    DAYS = "days"


class Queue(Enum):
    APPEND = "append"
    APPEND_SHED_RANDOM = "append shed random"
    FIFO = "fifo"
    IN_PLACE = "in-place"
    LINECUTTING = "linecutting"


@dataclass(frozen=True, slots=True)
class Progress:
    """A progressing column: after a row with value v, no later row is below ``v - slack``, but for
    late rows. Lengths count units of the column; ``unit`` is declared for integers only.
    ``declared`` is the clause as written (for EXPLAIN).

    ``by_rows`` False: rows promise nothing, only the source's own punctuation does. ``marked_by``:
    a boolean column that is true in rows which are punctuation. ``every``: punctuation lies that
    far apart. ``max_advance``: a larger advance has to be confirmed (None: the default).
    ``apart``: a value of ``StreamSpec.by`` lies at most so far behind (None: the default)."""

    column: str
    slack: int = 0
    unit: TimeUnit | None = None
    declared: str = "ORDERED BY"
    by_rows: bool = True
    marked_by: str | None = None
    every: int | None = None
    max_advance: int | None = None
    apart: int | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """While a source has nothing to give, progress grows with the clock, ``slack`` behind it; both
    in microseconds (out-of-order paper A.1.1)."""

    every: int
    slack: int


@dataclass(frozen=True, slots=True)
class Computed:
    """A column that an expression over the columns of the source computes: ``text`` in the dialect;
    ``at``: how many columns of the stream stand before it; None: all of the source's."""

    name: str
    text: str
    at: int | None


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """What CREATE STREAM says beyond names and types."""

    progress: tuple[Progress, ...] = ()
    update_key: tuple[str, ...] | None = None
    queue: Queue = Queue.APPEND
    lazy_windows: bool | None = None
    rate_hz: float | None = None
    keep_bad_rows: bool | None = None  # None: FAIL on bounded input, KEEP on unbounded
    idle_after: int | None = None  # microseconds; None: the default
    heartbeat: Heartbeat | None = None
    # Clauses that are only kept: (clause, text).
    deferred: tuple[tuple[str, str], ...] = ()
    # PUNCTUATE BY: each value of the column has progress of its own (out-of-order paper A.1.1).
    by: str | None = None
    # ``Relation.schema`` lacks them: what reads the stream computes them above its source.
    computed: tuple[Computed, ...] = ()
    # Of one of them; no stored column progresses then.
    computed_progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class Statistics:
    """What is known of a relation before reading it; None is unknown. ``rate``: rows per second of
    event time."""

    rows: int | None = None
    rate: float | None = None
    distinct: Mapping[str, int] = field(default_factory=dict)
    nulls: Mapping[str, int] = field(default_factory=dict)


class Relation(Protocol):
    """A named stream or table."""

    @property
    def name(self) -> tuple[str, ...]: ...
    @property
    def kind(self) -> str:
        """stream, table or view (for SHOW and DESCRIBE)."""
        ...

    @property
    def schema(self) -> Schema: ...
    @property
    def stream(self) -> StreamSpec | None:
        """None for a plain table: nothing in it progresses."""
        ...

    @property
    def bounded(self) -> bool: ...
    @property
    def statistics(self) -> Statistics: ...
    @property
    def unsupported(self) -> Mapping[str, str]:
        """The columns that the data has and no query can use, with the reason."""
        ...

    def has_default(self, column: str) -> bool:
        """Whether an INSERT may leave out a column that is never NULL."""
        ...

    def default(self, column: str) -> object:
        """What an INSERT that leaves the column out stores now, as a Python object; mostly None."""
        ...

    def source(self) -> Source: ...


def refuse_computed(relation: Relation, what: str, position: Position | None = None) -> None:
    """CatalogError where ``what`` would read a stream without the columns that it computes."""
    if relation.stream is not None and relation.stream.computed:
        name, column = ".".join(relation.name), relation.stream.computed[0].name
        raise CatalogError(
            f"{what} reads columns as they are stored, and {name} computes {column}",
            position=position,
            hint=f"CREATE STREAM … AS SELECT … FROM {name} has them all",
        )


class Catalog(Protocol):
    """Names to relations. Every lookup raises CatalogError for a table that exists but is damaged,
    and returns None for one that does not exist."""

    def find(self, name: tuple[str, ...]) -> Relation | None: ...
    def names(self) -> Sequence[tuple[str, ...]]:
        """All names, for candidates and completion (without starting a JVM)."""
        ...

    def create_stream(
        self, name: tuple[str, ...], definition: StreamDefinition, *, replace: bool
    ) -> None: ...
    def drop(self, name: tuple[str, ...], kind: str) -> bool:
        """False if there was nothing of that name and kind."""
        ...

    def sink(self, name: tuple[str, ...], schema: Schema, *, create: bool) -> Sink:
        """Opens ``name`` for INSERT; ``schema`` is that of the rows, matched by name."""
        ...


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files of a table: ``format`` None is the default one; ``options`` hold ``path`` and those
    of the format. ``schema`` has the declared columns, None means those of the files."""

    format: str | None
    options: Mapping[str, Any]
    schema: Schema | None = None


@dataclass(frozen=True, slots=True)
class StreamDefinition:
    """CREATE STREAM, bound: ``schema`` None means that of the source. Exactly one of ``table`` and
    ``format`` is set; ``options`` are those of the format (``path`` among them), or say how the
    table is read (``follow``)."""

    schema: Schema | None
    spec: StreamSpec
    table: tuple[str, ...] | None = None
    format: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
