"""The physical plan: operators as plain immutable data, with the reason for each choice.

``cql.executor.graph.build`` turns nodes into running operators; ``cql.planner.explain`` prints
nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from cql.base.model import NO_COLUMNS, Field, Schema
from cql.base.types import BIGINT, INT, DataType
from cql.base.window import Window
from cql.errors import Position
from cql.planner.nodes.catalog import Progress, Relation
from cql.planner.nodes.expr import Expr, Literal
from cql.planner.nodes.logical import (
    SEQUENCE,
    TIME,
    WEIGHT,
    WINDOW_COLUMNS,
    AggregateCall,
    KeyWindows,
    Partitioning,
    SortKey,
)
from cql.planner.nodes.physical_in_order_join import WindowJoinExec
from cql.planner.nodes.physical_join import (
    AsofJoinExec,
    LookupExec,
    OopJoinExec,
    RelationJoinExec,
    SubqueryJoinExec,
    TableJoinExec,
    UnnestExec,
)
from cql.planner.nodes.rewrite import replace


@dataclass(frozen=True, slots=True)
class Awaited:
    """The punctuation on a column that some consumer can use: the values ``offset`` plus a multiple
    of ``step``, for each pair (step, offset) of ``boundaries``; None: any value."""

    column: int
    boundaries: tuple[tuple[int, int], ...] | None


@dataclass(frozen=True, slots=True)
class SourceExec:
    """Reads blocks, marks late rows and makes punctuation (out-of-order paper §5.1). ``awaited``:
    by column, the punctuation that the plan above can use (``planner.lower.watermark_demand``);
    None: any. ``ahead``: the nesting depth of the source in tables and subqueries that rows are
    looked up in; deeper sources are read to their end before the others. ``refresh``: the interval,
    in microseconds, at which the source is read again. ``alias`` is the relation's name in the
    query."""

    relation: Relation
    columns: tuple[int, ...]
    why: str = ""
    pos: Position | None = field(default=None, compare=False)
    awaited: tuple[Awaited, ...] | None = None
    ahead: int = 0
    refresh: int | None = None
    alias: str = field(default="", compare=False)
    schema: Schema = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        schema = self.relation.schema.part(self.columns, self.alias)
        object.__setattr__(self, "schema", schema)

    def awaited_on(self, column: int) -> tuple[tuple[int, int], ...] | None:
        """The boundaries of the awaited punctuation on ``column``; None: any punctuation; (): no
        consumer awaits punctuation on the column."""
        if self.awaited is None:
            return None
        return next((a.boundaries for a in self.awaited if a.column == column), ())

    @property
    def progress(self) -> tuple[tuple[int, Progress], ...]:
        """The progressing columns (index and declaration) that the source reads."""
        spec, whole = self.relation.stream, self.relation.schema
        found = [(whole.find(p.column), p) for p in (spec.progress if spec else ())]
        return tuple(
            (self.columns.index(c), p) for c, p in found if c is not None and c in self.columns
        )

    @property
    def name(self) -> str:
        return ".".join(self.relation.name)


@dataclass(frozen=True, slots=True)
class ValuesExec:
    """Rows of constants. The default is one row without columns, which SELECT without FROM reads.
    ``ahead`` as in SourceExec."""

    schema: Schema = NO_COLUMNS
    rows: tuple[tuple[Literal, ...], ...] = ((),)
    why: str = ""
    ahead: int = 0


@dataclass(frozen=True, slots=True)
class FilterExec:
    input: Physical
    condition: Expr
    why: str = ""

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True)
class ProjectExec:
    """``in_blocks``: the source below computes the columns, block by block, and passes its own ones
    first (the executor makes such nodes)."""

    input: Physical
    exprs: tuple[Expr, ...]
    names: tuple[str, ...]
    why: str = ""
    in_blocks: bool = False

    @property
    def schema(self) -> Schema:
        pairs = zip(self.names, self.exprs, strict=True)
        return Schema(tuple(Field(n, e.type, e.nullable) for n, e in pairs))


@dataclass(frozen=True, slots=True)
class BucketExec:
    """Each row once per window that contains the row (WID's Bucket)."""

    input: Physical
    window: Window
    why: str = ""

    @property
    def schema(self) -> Schema:
        return Schema((*self.input.schema, *_window_fields(self.input.schema, self.window)))


@dataclass(frozen=True, slots=True)
class UnionExec:
    """Pass-through union: keeps no rows; its watermark is the minimum over the inputs (out-of-order
    paper §5.4). ``keyed_watermark``: (time, key): the union also passes on the watermark on column
    ``time`` of each value of column ``key`` (A.2.1)."""

    inputs: tuple[Physical, ...]
    names: tuple[str, ...]
    why: str = ""
    keyed_watermark: tuple[int, int] | None = None

    @property
    def schema(self) -> Schema:
        schemas = [i.schema for i in self.inputs]
        fields = (
            Field(name, schemas[0][k].type, any(s[k].nullable for s in schemas))
            for k, name in enumerate(self.names)
        )
        return Schema(tuple(fields))


class WindowOperator(StrEnum):
    """The state in which a windowed aggregate keeps its groups."""

    WID = "wid"  # each row updates the groups of each of its windows
    PANES = "panes"  # each row updates its pane; a window that closes merges its panes
    TWO_STACKS = "two_stacks"  # as panes, but merges panes when they enter and leave
    SUBTRACT = "subtract"  # as panes, but subtracts panes that leave
    BUFFERED = "buffered"  # panes keep rows; a window that closes aggregates its rows
    TWO_LEVEL = "two_level"  # a small table of partial aggregates below the groups of WID


class FlushPolicy(StrEnum):
    """When the groups of a closed window leave (out-of-order paper §6)."""

    AT_ONCE = "at_once"  # all groups at once
    SLOW = "slow"  # one group per ``Flush.every`` rows
    LAZY = "lazy"  # a group leaves when a group of a new window takes its place
    IN_ORDER_SLOW = "in_order_slow"  # figure 7


@dataclass(frozen=True, slots=True)
class Flush:
    """The flush of two-level aggregation (out-of-order paper §6): the low level has ``entries``
    entries. Slow flush emits one group per ``every`` rows (§6's i), and all remaining groups of a
    window when ``windows`` later windows have closed (§6's m)."""

    policy: FlushPolicy
    entries: int
    every: int
    windows: int


@dataclass(frozen=True, slots=True)
class MergeUnionExec:
    """Order-preserving union, IOP's Merge (out-of-order paper §2): rows wait until the watermark of
    every input has passed their time (column ``order``), and leave in the order of time.
    ``refuses_null``: a row without a time is a bad row, as in a sort; otherwise such a row leaves
    first."""

    inputs: tuple[Physical, ...]
    names: tuple[str, ...]
    order: int
    refuses_null: bool = False
    why: str = ""

    @property
    def schema(self) -> Schema:
        return UnionExec(self.inputs, self.names).schema


@dataclass(frozen=True, slots=True)
class PunctuatedSortExec:
    """Orders a stream: rows wait until punctuation has passed their time, column ``order`` ("first
    sorting the input. (Punctuation can unblock sort.)", out-of-order paper §5.5). ``keys`` order
    the rows of one time."""

    input: Physical
    order: int
    keys: tuple[SortKey, ...] = ()
    why: str = ""

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True)
class LimitExec:
    """Skips ``offset`` rows, passes the next ``limit`` rows in their order of arrival, and then
    reports the end of its input: sources that feed only this operator are read no further.
    ``limit`` None: passes all rows after ``offset``."""

    input: Physical
    limit: int | None
    offset: int
    why: str = ""

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True)
class SlackExec:
    """Deduces the watermark of column ``attribute`` from the order of arrival (out-of-order paper
    §2, option 2): the highest time so far less ``interval``, or the highest time that more than
    ``rows`` rows have reached. With an interval, an advance above ``max_advance`` needs
    confirmation (None: no advance does)."""

    input: Physical
    attribute: int
    interval: int | None
    rows: int | None
    why: str = ""
    max_advance: int | None = None

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True)
class WidAggregateExec:
    """Windowed hash aggregation by window id; punctuation closes windows (out-of-order paper §4.1,
    appendix). ``window`` None is one window over the whole input, which closes at the end of the
    input. ``pane`` is the width of the panes that windows share, None if ``operator`` has no panes;
    ``flush`` is the flush of two-level aggregation. ``adaptive``: the operator begins with
    ``operator`` and may change between WID, panes and buffered rows. ``by``: the index of a key
    whose values have their own watermarks; the watermark of its value closes a group."""

    input: Physical
    window: Window | None
    keys: tuple[Expr, ...]
    calls: tuple[AggregateCall, ...]
    names: tuple[str, ...]
    pane: int | None = None
    operator: WindowOperator = WindowOperator.WID
    flush: Flush | None = None
    adaptive: bool = False
    why: str = ""
    by: int | None = None
    partitioning: Partitioning | None = None

    @property
    def schema(self) -> Schema:
        fields = self._aggregated()
        if self.window is not None:
            fields += _window_fields(self.input.schema, self.window)
        return Schema(tuple(fields))

    def _aggregated(self) -> list[Field]:
        typed = [(e.type, e.nullable) for e in (*self.keys, *self.calls)]
        return [Field(n, t, o) for n, (t, o) in zip(self.names, typed, strict=True)]


@dataclass(frozen=True, slots=True)
class SharedPanesExec(WidAggregateExec):
    """The same aggregates over several ``windows`` of several queries, from shared panes.
    ``window`` says where panes begin; the last output column is the index in ``windows`` of a row's
    window."""

    windows: tuple[Window, ...] = ()

    @property
    def schema(self) -> Schema:
        bounds = _window_fields(self.input.schema, self.windows[0])
        fields = self._aggregated()
        return Schema((*fields, *bounds, Field(QUERY, INT, False)))


@dataclass(frozen=True, slots=True)
class NumberExec:
    """Appends to each row its number in the input, from 0."""

    input: Physical
    why: str = ""

    @property
    def schema(self) -> Schema:
        return Schema((*self.input.schema, Field(SEQUENCE, BIGINT, False)))


@dataclass(frozen=True, slots=True)
class KeyWindowsExec:
    """Windows over the row numbers within each key: WID's Bucket for a partitioned window, which
    has a state (out-of-order paper A.2.2). The rows of a window leave together, with the columns of
    ``KeyWindows.fields``, when its last row has arrived."""

    input: Physical
    windows: KeyWindows
    why: str = ""

    @property
    def schema(self) -> Schema:
        return Schema((*self.input.schema, *self.windows.fields()))


@dataclass(frozen=True, slots=True)
class LateRowsExec:
    """Passes rows on, and copies to LATE OUTPUT the late rows that ``window``, right above, leaves
    out."""

    input: Physical
    window: Window
    why: str = ""
    pos: Position | None = field(default=None, compare=False)

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True)
class OnTimeExec:
    """Leaves out and counts the late rows of column ``wa``. ``within``: a column and two bounds;
    leaves out, without counting them, on-time rows below the first bound or not below the
    second (None: no bound)."""

    input: Physical
    wa: int
    why: str = ""
    within: tuple[int, int | None, int | None] | None = None

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True)
class DupelimExec:
    """Duplicate elimination over a stream (out-of-order paper §5.4): passes the first of equal rows
    on arrival. The operator forgets a row when column ``by`` has passed the row's value: by
    punctuation or, if the input is ``in_order`` of this column, by later rows."""

    input: Physical
    by: int
    in_order: bool = False
    why: str = ""

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True)
class ArrivalExec:
    """Changes of rows that enter a relation on arrival and never leave it, each before the end of
    its window (column ``end``). The instant is the event time; for a late row, its row
    watermark."""

    input: Physical
    wa: int
    end: int
    why: str = ""

    @property
    def schema(self) -> Schema:
        wa = self.input.schema[self.wa].type
        return Schema((*self.input.schema, *change_fields(BIGINT if wa.is_integer else wa)))


@dataclass(frozen=True, slots=True)
class RelationExec:
    """The changelog of a stream as CQL's relation under a window without SLIDE: each row enters and
    leaves at an instant of ``window.wa``. Output: the input's columns, ``_time`` and ``_weight``
    (1 or -1), in the order of time."""

    input: Physical
    window: Window
    why: str = ""

    @property
    def schema(self) -> Schema:
        assert self.window.wa is not None
        wa = self.input.schema[self.window.wa].type
        return Schema((*self.input.schema, *change_fields(BIGINT if wa.is_integer else wa)))


@dataclass(frozen=True, slots=True)
class ChangeAggregateExec:
    """Aggregates over a changing relation: at each instant, the old row of a changed group leaves
    and the new row enters. The input has the keys, then the columns that the calls read, then
    ``_time`` and ``_weight``.

    ``method`` is how states forget rows: no row ever leaves ("append_only"), rows are retracted
    from their state ("retract"), rows leave in the order of their arrival ("two_stacks"), or in any
    order ("rescan"); a DISTINCT keeps the weight of each group ("weights"). ``ends`` is the key
    with the time from which no row of a group follows. ``entered`` is the column with the instant
    at which a row entered; it distinguishes a leaving row from others with the same values. An
    aggregate without keys has a row from the instant ``since`` on; None: from the first instant of
    the windows below or, if these have no row, from ``beginning`` on. ``shows``: all changes
    ("both"), the rows that enter ("istream") or those that leave ("dstream")."""

    input: Physical
    keys: int
    calls: tuple[AggregateCall, ...]
    names: tuple[str, ...]
    method: str
    ends: int | None = None
    why: str = ""
    entered: int | None = None
    beginning: int = 0
    since: int | None = None
    shows: str = "both"

    @property
    def schema(self) -> Schema:
        typed = [*((f.type, f.nullable) for f in self.input.schema.fields[: self.keys])]
        typed += [(c.type, c.nullable) for c in self.calls]
        fields = [Field(n, t, o) for n, (t, o) in zip(self.names, typed, strict=True)]
        return Schema((*fields, *self.input.schema.fields[-2:]))


@dataclass(frozen=True, slots=True)
class SetOperationExec:
    """EXCEPT and INTERSECT of changing relations, by the weights of each row on both sides. The
    input is the union of both, with the side (0 or 1) in a column before ``_time`` and
    ``_weight``."""

    input: Physical
    kind: str
    distinct: bool
    why: str = ""

    @property
    def schema(self) -> Schema:
        fields = self.input.schema.fields
        return Schema((*fields[:-3], *fields[-2:]))


@dataclass(frozen=True, slots=True)
class TopExec:
    """The first ``limit`` rows after ``offset`` of a changing relation, by ``keys`` (columns);
    ties by the order in which rows entered."""

    input: Physical
    keys: tuple[SortKey, ...]
    limit: int | None
    offset: int
    why: str = ""

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True)
class RowNumberExec:
    """The rows of a changing relation with the number of each row, from 1, among the rows with
    equal ``partition`` columns, ordered by ``keys`` (columns); ties by the order in which rows
    entered. The plan above needs only rows numbered up to ``limit``. ``forgets``: no row ever
    leaves the relation, so that the operator can forget rows behind ``limit``."""

    input: Physical
    partition: tuple[int, ...]
    keys: tuple[SortKey, ...]
    limit: int | None
    forgets: bool
    name: str
    why: str = ""

    @property
    def schema(self) -> Schema:
        fields = self.input.schema.fields
        return Schema((*fields[:-2], Field(self.name, INT, False), *fields[-2:]))


@dataclass(frozen=True, slots=True)
class StreamExec:
    """ISTREAM, DSTREAM or RSTREAM (``kind``) of a changing relation: rows with their instant. Kind
    ``net``: the changelog, with the net difference of each instant."""

    input: Physical
    kind: str
    why: str = ""

    @property
    def schema(self) -> Schema:
        fields = self.input.schema.fields
        return Schema(fields if self.kind == "net" else fields[:-1])


@dataclass(frozen=True, slots=True)
class SortExec:
    """Orders the rows of each window when punctuation closes the window, and keeps the first
    ``limit`` rows after ``offset``; ``window_end`` None: orders the whole input at its end.
    ``number`` is the name of an appended column: the number of each row, from 1, among the rows of
    its window with equal ``partition`` columns."""

    input: Physical
    keys: tuple[SortKey, ...]
    limit: int | None
    offset: int
    window_end: int | None
    why: str = ""
    partition: tuple[int, ...] = ()
    number: str | None = None

    @property
    def schema(self) -> Schema:
        if self.number is None:
            return self.input.schema
        return Schema((*self.input.schema, Field(self.number, INT, False)))


Physical: TypeAlias = (
    SourceExec
    | ValuesExec
    | FilterExec
    | ProjectExec
    | BucketExec
    | UnionExec
    | MergeUnionExec
    | PunctuatedSortExec
    | LimitExec
    | SlackExec
    | WidAggregateExec
    | SortExec
    | NumberExec
    | KeyWindowsExec
    | LateRowsExec
    | OnTimeExec
    | DupelimExec
    | ArrivalExec
    | RelationExec
    | SubqueryJoinExec
    | LookupExec
    | OopJoinExec
    | TableJoinExec
    | UnnestExec
    | RelationJoinExec
    | AsofJoinExec
    | WindowJoinExec
    | ChangeAggregateExec
    | SetOperationExec
    | TopExec
    | RowNumberExec
    | StreamExec
)

#: The column with the index of the query that a row belongs to, if queries share an operator.
QUERY = "_query"

#: Operators from changelogs to a changelog, instant by instant.
Changes: TypeAlias = (
    ChangeAggregateExec | SetOperationExec | TopExec | RowNumberExec | RelationJoinExec
)


@dataclass(frozen=True, slots=True)
class RuntimeChoice:
    """The runtime of a plan, and the reason. Operators with keys are split into ``partitions``
    (0: not split), which ``workers`` workers share. ``split`` has the ids of the nodes to split
    (None: all); PARTITION BY splits its operator in any case. ``how`` is the settings of the
    scheduler as text. ``text_threads`` threads compute the functions over texts of bounded sources,
    each a block of rows; with 1 it is the thread that drives the query."""

    name: str
    why: str
    workers: int = 1
    partitions: int = 0
    split: frozenset[int] | None = None
    how: str = ""
    text_threads: int = 1


@dataclass(frozen=True, slots=True)
class PhysicalPlan:
    """A whole query: its operators, its runtime, and its policies.

    ``keep_bad_rows``: bad rows go to the ledger and the query goes on; otherwise the first bad row
    fails the query. ``changelog``: the output is the changelog of a relation, with ``_time`` and
    ``_weight`` before the relation's columns. ``order`` is the order of the final relation's rows.
    ``emits_changes``: the query says EMIT CHANGES.
    """

    root: Physical
    runtime: RuntimeChoice
    keep_bad_rows: bool
    notes: tuple[str, ...] = ()
    changelog: bool = False
    order: tuple[SortKey, ...] = ()
    emits_changes: bool = False


@dataclass(frozen=True, slots=True)
class QuerySetPlan:
    """A query set: a node that several plans contain runs once for all of them
    (``planner.placement.multi_query``). ``notes`` are notes on the whole set."""

    plans: tuple[PhysicalPlan, ...]
    notes: tuple[str, ...] = ()


def inputs(node: Physical) -> tuple[Physical, ...]:
    match node:
        case SourceExec() | ValuesExec():
            return ()
        case UnionExec() | MergeUnionExec() | WindowJoinExec():
            return node.inputs
        case LookupExec():
            return (node.input, node.query)
        case OopJoinExec() | RelationJoinExec() | AsofJoinExec():
            return (node.left, node.right)
        case TableJoinExec():
            return (node.input, node.table)
        case _:
            return (node.input,)


def walk(node: Physical) -> Iterator[Physical]:
    """``node`` and all operators below, left to right, each before its inputs."""
    waiting = [node]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += reversed(inputs(found))


def relations(node: Physical) -> tuple[RelationExec, ...]:
    """The windows below ``node`` that turn streams into relations."""
    if isinstance(node, RelationExec):
        return (node,)
    return tuple(found for below in inputs(node) for found in relations(below))


def late_rows(node: Physical) -> LateRowsExec | None:
    """The operator from which LATE OUTPUT gets its rows, or None."""
    return next((n for n in walk(node) if isinstance(n, LateRowsExec)), None)


def sources(*roots: Physical) -> tuple[SourceExec, ...]:
    """All sources, left to right, each once; the executor's input ports have this order."""
    found = (n for root in roots for n in walk(root) if isinstance(n, SourceExec))
    return tuple({id(n): n for n in found}.values())


def waits(*roots: Physical) -> bool:
    """Whether rows of one input wait for rows of another input (in a join)."""
    joins = OopJoinExec | AsofJoinExec | RelationJoinExec | WindowJoinExec
    return any(isinstance(n, joins) for root in roots for n in walk(root))


def goes_by_arrival(*roots: Physical) -> bool:
    """Whether some watermark is deduced from the order of arrival (SlackExec)."""
    return any(isinstance(n, SlackExec) for root in roots for n in walk(root))


def windowed(node: Physical) -> bool:
    """Whether some operator may leave out late rows."""
    return any(
        isinstance(n, BucketExec | OnTimeExec | ArrivalExec | MergeUnionExec | PunctuatedSortExec)
        or (isinstance(n, WidAggregateExec) and n.window is not None)
        for n in walk(node)
    )


def bounded(node: Physical) -> bool:
    """Whether ``node`` ends without being stopped: its inputs end, or a LIMIT ends it."""
    match node:
        case SourceExec():
            return node.relation.bounded
        case LimitExec() if node.limit is not None:
            return True
        case _:
            return all(map(bounded, inputs(node)))


def live(*roots: Physical) -> bool:
    """Whether some input is unbounded: the query waits for its rows, even if a LIMIT ends the
    query."""
    return not all(s.relation.bounded for s in sources(*roots))


def with_input(node: Physical, new: tuple[Physical, ...]) -> Physical:
    match node:
        case SourceExec() | ValuesExec():
            return node
        case UnionExec() | MergeUnionExec() | WindowJoinExec():
            return replace(node, inputs=new)
        case LookupExec():
            return replace(node, input=new[0], query=new[1])
        case OopJoinExec() | RelationJoinExec() | AsofJoinExec():
            return replace(node, left=new[0], right=new[1])
        case TableJoinExec():
            return replace(node, input=new[0], table=new[1])
        case _:
            return replace(node, input=new[0])


def read_ahead(node: Physical) -> Physical:
    """``node`` with its sources marked to be read before the sources of the plan that looks rows up
    in ``node``."""
    if isinstance(node, SourceExec | ValuesExec):
        return replace(node, ahead=node.ahead + 1)
    return with_input(node, tuple(map(read_ahead, inputs(node))))


def change_fields(time: DataType) -> tuple[Field, Field]:
    """The columns ``_time`` and ``_weight`` of a change."""
    return Field(TIME, time, False), Field(WEIGHT, BIGINT, False)


def _window_fields(schema: Schema, window: Window) -> list[Field]:
    assert window.wa is not None
    wa = schema[window.wa].type
    kind = BIGINT if wa.is_integer else wa
    return [Field(name, kind, False) for name in WINDOW_COLUMNS]
