"""The logical plan: the meaning of a query, with every name and type resolved.

Each node knows its output ``schema``. The plan also has nodes for clauses that this version cannot
run: their queries bind, and the planner refuses them by clause.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from cql.base.model import NO_COLUMNS, Field, Schema
from cql.base.types import BIGINT, BOOLEAN, INT, DataType
from cql.base.window import Window
from cql.errors import Position
from cql.planner.nodes.catalog import Progress, Relation
from cql.planner.nodes.expr import Expr, Literal
from cql.planner.nodes.rewrite import replace

if TYPE_CHECKING:
    from cql.planner.functions.user_aggregates import UserAggregate


@dataclass(frozen=True, slots=True)
class Scan:
    """Reads a stream or table; ``columns`` are indices into the relation's schema. ``alias`` is the
    relation's name in the query."""

    relation: Relation
    columns: tuple[int, ...]
    pos: Position | None = field(default=None, compare=False)
    alias: str = field(default="", compare=False)
    schema: Schema = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        schema = self.relation.schema.part(self.columns, self.alias)
        object.__setattr__(self, "schema", schema)


@dataclass(frozen=True, slots=True)
class Values:
    """Rows of constants. SELECT without FROM reads one row without columns."""

    schema: Schema = NO_COLUMNS
    rows: tuple[tuple[Literal, ...], ...] = ((),)
    pos: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Filter:
    input: Logical
    condition: Expr
    pos: Position | None = field(default=None, compare=False)

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True)
class Project:
    input: Logical
    exprs: tuple[Expr, ...]
    names: tuple[str, ...]
    pos: Position | None = field(default=None, compare=False)

    @property
    def schema(self) -> Schema:
        pairs = zip(self.names, self.exprs, strict=True)
        return Schema(tuple(Field(n, e.type, e.nullable) for n, e in pairs))


@dataclass(frozen=True, slots=True)
class Union:
    """Bag union. The inputs have the same column types (``bind`` casts them); the output has the
    names of the first input."""

    inputs: tuple[Logical, ...]
    pos: Position | None = field(default=None, compare=False)

    @property
    def schema(self) -> Schema:
        first = self.inputs[0].schema
        merged = (
            Field(f.name, f.type, any(i.schema[k].nullable for i in self.inputs))
            for k, f in enumerate(first)
        )
        return Schema(tuple(merged))


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
    def can_subtract(self) -> bool:
        """Whether the contribution of some of a group's rows can be subtracted exactly."""
        exact = not self.type.is_fraction
        fits = self.fn in ("count", "count_if") or (self.fn in ("sum", "avg") and exact)
        return fits and self.function is None and not self.distinct

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
HOLISTIC = frozenset(("percentile", "percentile_disc", "mode", "array_agg", "string_agg"))
ANY_ORDER = frozenset(("count", "count_if", "min", "max", "bool_and", "bool_or"))
BY_TIME = frozenset(("first", "last", "max_by", "min_by", "array_agg", "string_agg"))


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


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Groups rows within each window. Output: the keys, the aggregates, then (for sliding windows
    and sessions) ``window_start``, ``window_end`` and ``window_time`` (= end - 1 unit) in the type
    of the window attribute. ``window`` None: one set of groups over the whole (bounded) input.
    ``late_output``: LATE OUTPUT takes the late rows that the aggregate leaves out, with all their
    columns. ``distinct``: the node is a DISTINCT; its output rows consist of keys alone and
    therefore need not wait until their groups close."""

    input: Logical
    window: Window | None
    keys: tuple[Expr, ...]
    calls: tuple[AggregateCall, ...]
    names: tuple[str, ...]  # names of the keys, then of the calls
    pos: Position | None = field(default=None, compare=False)
    late_output: bool = False
    partitioning: Partitioning | None = None
    distinct: bool = False

    @property
    def schema(self) -> Schema:
        typed = [(e.type, e.nullable) for e in (*self.keys, *self.calls)]
        fields = [Field(n, t, o) for n, (t, o) in zip(self.names, typed, strict=True)]
        if self.window is not None and self.window.has_bounds:
            assert self.window.wa is not None
            wa = self.input.schema[self.window.wa].type
            fields += [Field(n, wa if not wa.is_integer else BIGINT, False) for n in WINDOW_COLUMNS]
        return Schema(tuple(fields))


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
class Number:
    """The input with the number of each row appended, which windows of ROWS with SLIDE count. With
    ``windows`` (per key), the output has each row once per window that contains the row; the rows
    of a window leave together, when its last row has arrived or the input has ended."""

    input: Logical
    pos: Position | None = field(default=None, compare=False)
    windows: KeyWindows | None = None

    @property
    def schema(self) -> Schema:
        if self.windows is not None:
            return Schema((*self.input.schema, *self.windows.fields()))
        return Schema((*self.input.schema, Field(SEQUENCE, BIGINT, False)))


@dataclass(frozen=True, slots=True)
class Watermark:
    """The input (a stream) with a watermark on ``column`` alone, deduced from the order of arrival.
    ``progress`` has the slack, and the advance above which a row needs confirmation."""

    input: Logical
    column: int
    progress: Progress
    pos: Position | None = field(default=None, compare=False)

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True)
class Bucket:
    """WID's Bucket (out-of-order paper §4.1): each row once per window that contains the row, with
    ``window_start``, ``window_end``, ``window_time`` appended (Flink's window table functions)."""

    input: Logical
    window: Window
    pos: Position | None = field(default=None, compare=False)

    @property
    def schema(self) -> Schema:
        assert self.window.wa is not None
        wa = self.input.schema[self.window.wa].type
        kind = wa if not wa.is_integer else BIGINT
        return Schema((*self.input.schema, *(Field(n, kind, False) for n in WINDOW_COLUMNS)))


@dataclass(frozen=True, slots=True)
class Unnest:
    """Each row of the input once per element of ``array``, in the order of the elements, with the
    element as its last column; ``outer``: a row without elements leaves once, with NULL."""

    input: Logical
    array: Expr
    name: str
    outer: bool = False
    pos: Position | None = field(default=None, compare=False)

    @property
    def schema(self) -> Schema:
        assert self.array.type.element is not None
        element = Field(self.name, self.array.type.element, self.outer)
        return Schema((*self.input.schema, element))


@dataclass(frozen=True, slots=True)
class SortKey:
    expr: Expr
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Sort:
    """ORDER BY … [LIMIT n] [OFFSET m]. ``window_end`` is the column of the window within which rows
    are ordered; None orders the whole input (bounded input only). Without ``keys`` (LIMIT … PER
    WINDOW), rows keep their order of arrival. ``clause`` is the clause that requires the sort: an
    ORDER BY, or a clause that holds rows until the watermark has passed them."""

    input: Logical
    keys: tuple[SortKey, ...]
    limit: int | None
    offset: int
    window_end: int | None
    pos: Position | None = field(default=None, compare=False)
    clause: str = "ORDER BY"

    @property
    def holds(self) -> bool:
        """Whether the sort only holds rows until the watermark has passed them: no ORDER BY
        requires their order."""
        return self.clause != "ORDER BY"

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True)
class Limit:
    """LIMIT and OFFSET without ORDER BY: skips ``offset`` rows and passes the next ``limit`` rows
    in their order of arrival; the input ends with the last passed row. ``limit`` None: passes all
    rows after ``offset``."""

    input: Logical
    limit: int | None
    offset: int
    pos: Position | None = field(default=None, compare=False)

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True)
class RowNumber:
    """``ROW_NUMBER() OVER (PARTITION BY … ORDER BY …)``: the input with the number of each row,
    from 1, among the rows with equal ``partition`` columns. ``window`` is a progressing column of
    these: a partition is complete when the watermark has passed its value. None: the input is a
    relation, and the numbers change with the relation."""

    input: Logical
    partition: tuple[int, ...]
    keys: tuple[SortKey, ...]
    window: int | None
    name: str
    pos: Position | None = field(default=None, compare=False)

    @property
    def schema(self) -> Schema:
        return Schema((*self.input.schema, Field(self.name, INT, False)))


@dataclass(frozen=True, slots=True)
class Windowed:
    """An input under a window without an aggregate that takes the window: a relation of CQL.
    ``late_output`` as in Aggregate."""

    input: Logical
    window: Window
    pos: Position | None = field(default=None, compare=False)
    late_output: bool = False

    @property
    def schema(self) -> Schema:
        return self.input.schema


#: The kinds of joins that join each left row with the nearest right row.
ASOF = ("asof", "asof left")


@dataclass(frozen=True, slots=True)
class Join:
    """A join. Output: the columns of the left, then of the right. ``kind`` is inner, left, right,
    full, semi, anti, cross, asof or asof left. ``order`` is the reason for the order of the inputs,
    if the planner chose the order."""

    left: Logical
    right: Logical
    kind: str
    condition: Expr | None
    pos: Position | None = field(default=None, compare=False)
    order: str = field(default="", compare=False)
    partitioning: Partitioning | None = None

    @property
    def schema(self) -> Schema:
        if self.kind in ("semi", "anti"):
            return self.left.schema
        loose_left, loose_right = (
            self.kind in ("right", "full"),
            self.kind in ("left", "full", "asof left"),
        )
        left, right = self.left.schema.padded(loose_left), self.right.schema.padded(loose_right)
        return Schema((*left, *right))


def is_inner(node: Join) -> bool:
    """Whether all output rows of ``node`` are pairs."""
    return node.kind in ("inner", "cross")


@dataclass(frozen=True, slots=True)
class SubqueryJoin:
    """The input with a subquery's answer to each row as its last column (mark join and single
    join). ``kind`` is exists or in (whether ``query`` has a row equal to ``keys``, which are over
    the input) or scalar (the value of the only row of ``query``). ``condition`` is a further
    condition of exists, over the columns of the input, then of the query."""

    input: Logical
    query: Logical
    kind: str
    keys: tuple[Expr, ...]
    name: str
    pos: Position | None = field(default=None, compare=False)
    condition: Expr | None = None

    @property
    def schema(self) -> Schema:
        type_ = self.query.schema[0].type if self.kind == "scalar" else BOOLEAN
        return Schema((*self.input.schema, Field(self.name, type_, self.kind != "exists")))


@dataclass(frozen=True, slots=True)
class SetOperation:
    """EXCEPT or INTERSECT (``kind``) of two relations with equal column types; ``distinct``: as
    sets, else as bags."""

    left: Logical
    right: Logical
    kind: str
    distinct: bool
    pos: Position | None = field(default=None, compare=False)

    @property
    def schema(self) -> Schema:
        return Union((self.left, self.right)).schema


#: The columns for the instant of a row of ISTREAM, DSTREAM or RSTREAM and of a change, and for the
#: weight of a change.
TIME, WEIGHT = "_time", "_weight"


@dataclass(frozen=True, slots=True)
class RelationToStream:
    """ISTREAM, DSTREAM or RSTREAM (``kind``): the input's columns, then the instant."""

    input: Logical
    kind: str
    time: DataType
    pos: Position | None = field(default=None, compare=False)

    @property
    def schema(self) -> Schema:
        return Schema((*self.input.schema, Field(TIME, self.time, False)))


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A clause with known output columns that this version cannot run."""

    inputs: tuple[Logical, ...]
    clause: str
    schema: Schema
    hint: str | None = None
    pos: Position | None = field(default=None, compare=False)


Logical: TypeAlias = (
    Scan
    | Values
    | Filter
    | Project
    | Union
    | Aggregate
    | Bucket
    | Unnest
    | Number
    | Watermark
    | Sort
    | Limit
    | RowNumber
    | Windowed
    | Join
    | SetOperation
    | SubqueryJoin
    | RelationToStream
    | Unsupported
)


def inputs(node: Logical) -> tuple[Logical, ...]:
    match node:
        case Scan() | Values():
            return ()
        case Union() | Unsupported():
            return node.inputs
        case Join() | SetOperation():
            return (node.left, node.right)
        case SubqueryJoin():
            return (node.input, node.query)
        case _:
            return (node.input,)


def expressions(node: Logical) -> tuple[Expr, ...]:
    """The expressions of ``node``, over the columns of its input."""
    match node:
        case Filter():
            return (node.condition,)
        case Project():
            return node.exprs
        case Unnest():
            return (node.array,)
        case Aggregate():
            given = (e for call in node.calls for e in (*call.args, call.where) if e is not None)
            return (*node.keys, *given)
        case Sort() | RowNumber():
            return tuple(key.expr for key in node.keys)
        case Join():
            return () if node.condition is None else (node.condition,)
        case SubqueryJoin():
            return node.keys
        case _:
            return ()


def with_inputs(node: Logical, fn: Callable[[Logical], Logical]) -> Logical:
    """``node`` with ``fn`` applied to each of its inputs."""
    match node:
        case Scan() | Values() | Unsupported():
            return node
        case Union():
            return replace(node, inputs=tuple(fn(i) for i in node.inputs))
        case Join() | SetOperation():
            return replace(node, left=fn(node.left), right=fn(node.right))
        case SubqueryJoin():
            return replace(node, input=fn(node.input), query=fn(node.query))
        case _:
            return replace(node, input=fn(node.input))
