"""The physical plan: operators by name, plain immutable data, with the reason for each choice.

Nothing here runs: ``cql.executor.graph.build`` turns nodes into running operators, and
``cql.planner.explain`` prints them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
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


@dataclass(frozen=True, slots=True)
class Awaited:
    """The punctuation on a column that some consumer can use: values at ``offset`` + a multiple of
    ``step``, for each pair (step, offset); None: any value."""

    column: int
    boundaries: tuple[tuple[int, int], ...] | None


@dataclass(frozen=True, slots=True)
class SourceExec:
    """Reads blocks, marks late rows and makes punctuation (out-of-order paper §5.1). ``awaited``:
    by column, the punctuation that the plan above can use
    (``planner.lower.watermark_demand``); None: any. ``ahead``: in how many subqueries and
    tables it stands that rows are looked up in; sources that stand in more are read to their end
    before the others. ``refresh``: it is read again that often (microseconds). ``alias`` is what
    the query calls it."""

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
        """Boundaries on a column, None if all punctuation counts; () if nobody awaits any."""
        if self.awaited is None:
            return None
        return next((a.boundaries for a in self.awaited if a.column == column), ())

    @property
    def progress(self) -> tuple[tuple[int, Progress], ...]:
        """The columns that progress, as they are declared."""
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
    """Rows of constants; by default the one row without columns that SELECT without FROM reads.
    ``ahead`` as for a source."""

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
    input: Physical
    exprs: tuple[Expr, ...]
    names: tuple[str, ...]
    why: str = ""

    @property
    def schema(self) -> Schema:
        pairs = zip(self.names, self.exprs, strict=True)
        return Schema(tuple(Field(n, e.type, e.nullable) for n, e in pairs))


@dataclass(frozen=True, slots=True)
class BucketExec:
    """Each row once per window that holds it (WID's Bucket)."""

    input: Physical
    window: Window
    why: str = ""

    @property
    def schema(self) -> Schema:
        return Schema((*self.input.schema, *_window_fields(self.input.schema, self.window)))


@dataclass(frozen=True, slots=True)
class UnionExec:
    """Pass-through union: no tuple state, progress is the minimum over the inputs (§5.4).
    ``promised``: a column, and one that progresses on it for each of its values (A.2.1)."""

    inputs: tuple[Physical, ...]
    names: tuple[str, ...]
    why: str = ""
    promised: tuple[int, int] | None = None

    @property
    def schema(self) -> Schema:
        schemas = [i.schema for i in self.inputs]
        fields = (
            Field(name, schemas[0][k].type, any(s[k].nullable for s in schemas))
            for k, name in enumerate(self.names)
        )
        return Schema(tuple(fields))


class WindowOperator(StrEnum):
    """How the groups of windows are kept."""

    WID = "wid"  # each row goes to the groups of each of its windows
    PANES = "panes"  # to those of its pane; a window that closes merges its panes
    TWO_STACKS = "two_stacks"  # the same, but panes are merged as they come and go
    SUBTRACT = "subtract"  # the same, but panes that go are subtracted
    BUFFERED = "buffered"  # rows are kept in panes, and aggregated window by window
    TWO_LEVEL = "two_level"  # to a small table, which gives partial aggregates up to WID's


class FlushPolicy(StrEnum):
    """When the groups of a window that has closed leave (§6)."""

    AT_ONCE = "at_once"  # all of them
    SLOW = "slow"  # one for every so many rows
    LAZY = "lazy"  # one for each that a new window's group pushes out of its place
    IN_ORDER_SLOW = "in_order_slow"  # figure 7


@dataclass(frozen=True, slots=True)
class Flush:
    """How two levels are flushed: the low level has ``entries``; slowly, a group leaves for every
    ``every`` rows (§6's i), and all of a window when ``windows`` later ones have closed (its m)."""

    policy: FlushPolicy
    entries: int
    every: int
    windows: int


@dataclass(frozen=True, slots=True)
class MergeUnionExec:
    """Order-preserving union, IOP's Merge (§2): rows wait until every input has passed the time in
    column ``order``, and leave in its order. ``refuses_null``: a row without a time is a bad row,
    as for a sort; else it has no place in the order, and goes first."""

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
    """Orders a stream: rows wait until punctuation has passed the time in column ``order`` ("first
    sorting the input. (Punctuation can unblock sort.)", §5.5). ``keys`` order rows of one time."""

    input: Physical
    order: int
    keys: tuple[SortKey, ...] = ()
    why: str = ""

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True)
class LimitExec:
    """Passes the first ``limit`` rows behind the first ``offset`` as they come, and then says that
    its input has ended: what only feeds it is read no further. ``limit`` None: all rows behind
    ``offset``."""

    input: Physical
    limit: int | None
    offset: int
    why: str = ""

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True)
class SlackExec:
    """Deduces progress on column ``attribute`` from the order of arrival (§2, option 2): the
    highest time so far less ``interval``, or the highest that more than ``rows`` rows have
    reached. Of an interval, an advance of more than ``max_advance`` has to be confirmed (None: no
    advance has to)."""

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
    """Windowed hash aggregation by window id, closed by punctuation (§4.1, appendix). ``window``
    None is one window over the whole input, closed at its end. ``pane`` is the width of the panes
    that windows share, None where ``operator`` has none; ``flush`` is that of two levels.
    ``adaptive``: it begins with ``operator``, and may change over between WID, panes and buffered
    rows. ``by``: groups leave by the progress of the value of that key."""

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
    """The same aggregates over several ``windows`` of several queries, from the panes that all of
    them share. ``window`` says where panes begin; the last column, which of ``windows`` a row is
    of."""

    windows: tuple[Window, ...] = ()

    @property
    def schema(self) -> Schema:
        bounds = _window_fields(self.input.schema, self.windows[0])
        fields = self._aggregated()
        return Schema((*fields, *bounds, Field(QUERY, INT, False)))


@dataclass(frozen=True, slots=True)
class NumberExec:
    """Appends to each row its place in the input, from 0."""

    input: Physical
    why: str = ""

    @property
    def schema(self) -> Schema:
        return Schema((*self.input.schema, Field(SEQUENCE, BIGINT, False)))


@dataclass(frozen=True, slots=True)
class KeyWindowsExec:
    """Windows over the numbers of the rows of each key: WID's Bucket for a window that is
    partitioned, which has a state (out-of-order paper A.2.2). The rows of a window leave together,
    with the columns of ``KeyWindows.fields``, when its last one has come."""

    input: Physical
    windows: KeyWindows
    why: str = ""

    @property
    def schema(self) -> Schema:
        return Schema((*self.input.schema, *self.windows.fields()))


@dataclass(frozen=True, slots=True)
class LateRowsExec:
    """Passes rows on, and gives those to LATE OUTPUT that ``window``, right above, leaves out for
    being late."""

    input: Physical
    window: Window
    why: str = ""
    pos: Position | None = field(default=None, compare=False)

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True)
class OnTimeExec:
    """Leaves out, and counts, the rows that are late rows on column ``wa``."""

    input: Physical
    wa: int
    why: str = ""

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True)
class DupelimExec:
    """Duplicate elimination over a stream (out-of-order paper §5.4): of equal rows the first passes
    as it comes. It is forgotten when column ``by`` has come past it, by punctuation or, where the
    input is ``in_order`` of that column, by the rows themselves."""

    input: Physical
    by: int
    in_order: bool = False
    why: str = ""

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True)
class ArrivalExec:
    """Rows that enter a relation as they come and never leave it, each before the end of the window
    in column ``end``: the instant is the event time, of a late row its row watermark."""

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
    """A stream as CQL's relation under a window without SLIDE, in the form of its changes: each row
    enters and leaves at an instant of ``window.wa``. Output: the input's columns, ``_time`` and
    ``_weight`` (1 or -1), in the order of time."""

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
    """Aggregates over a changing relation: at each instant, the old row of a group that changes
    leaves and the new one enters. The input's columns are the keys, then whatever the calls read,
    then the change's own; ``method`` is how states forget rows: nothing ever leaves
    ("append_only"), rows are taken out of their state ("retract"), they leave in the order in which
    they came ("two_stacks"), or in any order ("rescan"). ``ends`` is the key from which on no row
    of a group follows. ``entered`` is the column that says when a row entered, where a row that
    leaves must be told from others with the same values. Without keys there is a row from the
    instant ``since`` on; None: from the first one of the windows below, or where they have none
    from the ``beginning`` on."""

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

    @property
    def schema(self) -> Schema:
        typed = [*((f.type, f.nullable) for f in self.input.schema.fields[: self.keys])]
        typed += [(c.type, c.nullable) for c in self.calls]
        fields = [Field(n, t, o) for n, (t, o) in zip(self.names, typed, strict=True)]
        return Schema((*fields, *self.input.schema.fields[-2:]))


@dataclass(frozen=True, slots=True)
class SetOperationExec:
    """EXCEPT and INTERSECT of changing relations, by the weights of each row on both sides. The
    input is their union, with a column before the change's own that says which side: 0 or 1."""

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
    """The rows of a changing relation with the place of each, from 1, among those that are equal in
    the columns ``partition``, by ``keys`` (columns); ties by the order in which rows entered. Only
    those up to ``limit`` are asked for; with ``forgets`` no row ever leaves, so that those behind
    never matter again."""

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
    """ISTREAM, DSTREAM or RSTREAM (``kind``) of a changing relation: rows with their instant.
    ``net``: its changes, of each instant the difference only."""

    input: Physical
    kind: str
    why: str = ""

    @property
    def schema(self) -> Schema:
        fields = self.input.schema.fields
        return Schema(fields if self.kind == "net" else fields[:-1])


@dataclass(frozen=True, slots=True)
class SortExec:
    """Orders the rows of each window when punctuation closes it, keeping the first ``limit`` after
    ``offset``; ``window_end`` None: the whole input, at its end. ``number`` appends the place of
    each row, from 1, among those of its window that are equal in the columns ``partition``."""

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

#: The column that says which of the queries that share an operator a row is for.
QUERY = "_query"

#: Operators that take changes and give them, instant by instant.
Changes: TypeAlias = (
    ChangeAggregateExec | SetOperationExec | TopExec | RowNumberExec | RelationJoinExec
)


@dataclass(frozen=True, slots=True)
class RuntimeChoice:
    """Who runs a plan, and why; operators with keys are split into ``partitions`` (0: they are
    not), which ``workers`` share: those in ``split``, by the ids of their nodes (None: all), and
    where PARTITION BY says it. ``how`` are the settings of its scheduler, in words."""

    name: str
    why: str
    workers: int = 1
    partitions: int = 0
    split: frozenset[int] | None = None
    how: str = ""


@dataclass(frozen=True, slots=True)
class PhysicalPlan:
    """A whole query: its operators, the runtime that drives them, and the policies it runs under.

    ``keep_bad_rows``: bad rows go to the ledger and the query goes on; else the first one fails it.
    ``changelog``: the output is a relation, given as its changes: ``_time`` and ``_weight`` come
    before its own columns; ``order`` is that of the final relation's rows; ``emits_changes``: the
    changes are what the query asks for.
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
    """Queries that run as one: a node that several of their plans hold runs once, for all of them
    (``planner.placement.multi_query``). ``notes`` are of all."""

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
    """All operators, left to right, each before its inputs."""
    waiting = [node]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += reversed(inputs(found))


def relations(node: Physical) -> tuple[RelationExec, ...]:
    """The windows that make ``node`` a relation."""
    if isinstance(node, RelationExec):
        return (node,)
    return tuple(found for below in inputs(node) for found in relations(below))


def late_rows(node: Physical) -> LateRowsExec | None:
    """Where LATE OUTPUT takes its rows."""
    return next((n for n in walk(node) if isinstance(n, LateRowsExec)), None)


def sources(*roots: Physical) -> tuple[SourceExec, ...]:
    """All sources, left to right, each once: the order of the executor's input ports."""
    found = (n for root in roots for n in walk(root) if isinstance(n, SourceExec))
    return tuple({id(n): n for n in found}.values())


def waits(*roots: Physical) -> bool:
    """Whether rows of one input wait for those of another."""
    joins = OopJoinExec | AsofJoinExec | RelationJoinExec | WindowJoinExec
    return any(isinstance(n, joins) for root in roots for n in walk(root))


def goes_by_arrival(*roots: Physical) -> bool:
    """Whether progress is deduced from the order in which rows arrive."""
    return any(isinstance(n, SlackExec) for root in roots for n in walk(root))


def windowed(node: Physical) -> bool:
    """Whether some operator may leave late rows out."""
    return any(
        isinstance(n, BucketExec | OnTimeExec | ArrivalExec | MergeUnionExec | PunctuatedSortExec)
        or (isinstance(n, WidAggregateExec) and n.window is not None)
        for n in walk(node)
    )


def bounded(node: Physical) -> bool:
    """Whether it ends by itself: its inputs do, or a LIMIT ends it."""
    match node:
        case SourceExec():
            return node.relation.bounded
        case LimitExec() if node.limit is not None:
            return True
        case _:
            return all(map(bounded, inputs(node)))


def live(*roots: Physical) -> bool:
    """Whether some input has no end by itself: what it gives is waited for, whatever ends the
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
    """``node``, its sources read before those of what looks rows up in it."""
    if isinstance(node, SourceExec | ValuesExec):
        return replace(node, ahead=node.ahead + 1)
    return with_input(node, tuple(map(read_ahead, inputs(node))))


def change_fields(time: DataType) -> tuple[Field, Field]:
    """The columns of a change."""
    return Field(TIME, time, False), Field(WEIGHT, BIGINT, False)


def _window_fields(schema: Schema, window: Window) -> list[Field]:
    assert window.wa is not None
    wa = schema[window.wa].type
    kind = BIGINT if wa.is_integer else wa
    return [Field(name, kind, False) for name in WINDOW_COLUMNS]
