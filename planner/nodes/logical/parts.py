"""Parts of plan nodes: calls of aggregates, sort keys, windows per key, names of columns, items of
REFRESH."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cql.base.model import Field, Schema
from cql.base.types import BIGINT, DataType
from cql.errors import Position
from cql.planner.nodes.expr import Expr, Literal

if TYPE_CHECKING:
    from cql.planner.functions.user.aggregates import UserAggregate


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """The call of an aggregate. ``fn`` is a name in ``cql.planner.functions.aggregates``, or the
    name of the user's ``function``; ``where`` is the FILTER clause. ``constants`` are parameters
    besides the arguments (shares, a separator). ``order`` has (descending, NULLs first) for each of
    the last arguments, which order the rows of a group."""

    fn: str
    args: tuple[Expr, ...]
    type: DataType
    nullable: bool
    distinct: bool = False
    where: Expr | None = None
    pos: Position | None = field(default=None, compare=False)
    constants: tuple[Literal, ...] = ()
    order: tuple[tuple[bool, bool], ...] = ()
    function: UserAggregate | None = None

    @property
    def holistic(self) -> bool:
        """Whether its state consists of all values of a group."""
        return self.fn in HOLISTIC

    @property
    def beside(self) -> str | None:
        """The call as text if it keeps values outside the state of its group, else None."""
        if self.distinct:
            return f"{self.fn}(DISTINCT …)"
        return f"{self.fn}, which needs all values of a group," if self.holistic else None

    @property
    def has_inverse(self) -> bool:
        """Whether the code of an aggregate of the engine can undo updates and merges exactly."""
        exact = not self.type.is_fraction
        return self.fn in WITH_INVERSE and exact and self.function is None

    @property
    def can_subtract(self) -> bool:
        """Whether the contribution of some of a group's rows can be subtracted exactly."""
        return self.has_inverse and not self.distinct

    @property
    def read(self) -> tuple[Expr, ...]:
        """The expressions over the columns of the input."""
        return self.args if self.where is None else (*self.args, self.where)

    @property
    def same_in_any_order(self) -> bool:
        """Whether the result is the same in any order of rows, bit for bit."""
        plain = self.fn in ANY_ORDER and self.beside is None and self.function is None
        return plain and not any(arg.type.is_fraction for arg in self.args)

    @property
    def by_time(self) -> bool:
        """Whether the result depends on the order of rows by (window attribute, arrival)."""
        return self.fn in BY_TIME


#: Canonical names; see ``cql.planner.functions.holistic``.
HOLISTIC = frozenset(
    ("percentile", "percentile_disc", "mode", "array_agg", "string_agg", "time_weighted_avg")
)
#: Aggregates whose states, unless they are floats, can be subtracted. The executor requires that
#: these aggregates, and no others, have ``retract`` and ``subtract`` lines.
WITH_INVERSE = frozenset(("count", "count_if", "sum", "avg"))
ANY_ORDER = frozenset(("count", "count_if", "min", "max", "bool_and", "bool_or"))
BY_TIME = frozenset(
    ("first", "last", "max_by", "min_by", "array_agg", "string_agg", "time_weighted_avg")
)


@dataclass(frozen=True, slots=True)
class Partitioning:
    """PARTITION BY: splits an operator into ``parts`` partitions by HASH or RANGE of ``keys``
    (empty: all keys of the operator). ``keys`` are indices into the operator's list of keys. For a
    join of the logical plan they are columns of its pairs instead."""

    scheme: str
    parts: int
    keys: tuple[int, ...]
    pos: Position | None = field(default=None, compare=False)


WINDOW_COLUMNS = ("window_start", "window_end", "window_time")


#: The column with the number of a row in its stream, from 0.
SEQUENCE = "_sequence"
#: The columns of a window over the rows of a key: the number of its first row among the rows of the
#: key, and its number among the windows of all keys.
FIRST_ROW = "_first_row"
KEY_WINDOW = "_key_window"
#: Columns that number rows or windows in the order of arrival: no row is late on these columns.
NUMBERED = frozenset((SEQUENCE, KEY_WINDOW))


@dataclass(frozen=True, slots=True)
class KeyWindows:
    """``[PARTITION BY k ROWS n SLIDE m]``: windows over the row numbers within each key; ``by`` are
    the columns of the key. ``rows`` and ``slide`` are in rows."""

    by: tuple[int, ...]
    rows: int
    slide: int

    @property
    def overlap(self) -> int:
        """The most windows that contain one row."""
        return -(-self.rows // self.slide)

    def text(self, schema: Schema) -> str:
        by = ", ".join(schema[c].name for c in self.by)
        return f"[PARTITION BY {by} ROWS {self.rows} SLIDE {self.slide}]"

    def fields(self) -> tuple[Field, Field]:
        """The columns appended to a row: the number of the window's first row among the rows of its
        key, and the number of the window among the windows of all keys, which ascends."""
        return Field(FIRST_ROW, BIGINT, False), Field(KEY_WINDOW, BIGINT, False)


@dataclass(frozen=True, slots=True)
class SortKey:
    expr: Expr
    descending: bool
    nulls_first: bool


#: The columns for the instant of a row of ISTREAM, DSTREAM or RSTREAM and of a change, and for the
#: weight of a change.
TIME, WEIGHT = "_time", "_weight"


@dataclass(frozen=True, slots=True)
class RefreshItem:
    """REFRESH: updates of a key that ``condition`` holds of (None: of all other keys) are taken
    ``every`` microseconds apart, at least. The columns of the condition are those of the update
    key, by their places in it."""

    condition: Expr | None
    every: int
