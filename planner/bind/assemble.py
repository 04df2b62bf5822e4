"""Builds the plan nodes of a SELECT from its parts, which are bound over its virtual row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from cql.base.model import Field, Schema
from cql.base.types import BIGINT
from cql.base.window import Window, WindowKind
from cql.dialect import nodes
from cql.errors import BindError, NotSupportedError
from cql.planner.bind import partition_by
from cql.planner.bind.context import Binder, Bound
from cql.planner.bind.expressions.correlated import columns_around, joined
from cql.planner.bind.relations.running import with_running
from cql.planner.bind.scope import (
    AGGREGATES,
    EXTRAS,
    OUTER,
    WINDOW,
    Extra,
    QueryWindow,
    Row,
    Scope,
    column_of,
)
from cql.planner.bind.text_keys import closed_by_text
from cql.planner.bind.union import distinct
from cql.planner.functions.running import refused
from cql.planner.nodes.expr import Call, Column, Expr, Literal, columns_of, rebuild, walk
from cql.planner.nodes.logical import (
    FIRST_ROW,
    WINDOW_COLUMNS,
    Aggregate,
    AggregateCall,
    Bucket,
    Filter,
    Limit,
    Logical,
    Project,
    RowNumber,
    Sort,
    SortKey,
    SubqueryJoin,
    Unsupported,
    Windowed,
)
from cql.planner.nodes.rewrite import replace
from cql.planner.optimize.changelog import as_relation, clock, is_of_updates, is_relation

#: The hint for a LIMIT … PER WINDOW without a window.
PER_WINDOW = (
    "SELECT … FROM s [RANGE 10 MINUTES SLIDE 10 MINUTES] GROUP BY … LIMIT 3 PER WINDOW; LIMIT 3 by"
    " itself is the first 3 rows of the whole result"
)


@dataclass(frozen=True, slots=True)
class SelectItem:
    """An output column of a SELECT. ``ends_window``: the column is the end of a window that the
    select list writes once and that becomes two columns."""

    name: str
    expr: Expr
    node: exp.Expr
    ends_window: bool = False


@dataclass(frozen=True, slots=True)
class OrderItem:
    """A key of ORDER BY; ``expr`` is over the virtual row."""

    expr: Expr
    descending: bool
    nulls_first: bool
    node: exp.Expr


@dataclass(slots=True)
class Parts:
    """A SELECT, clause by clause. ``plan`` is its FROM; expressions are over the virtual row.

    ``by_window``: GROUP BY names the window as a whole, or its columns ``window_keys``."""

    node: exp.Select
    plan: Logical
    row: Row
    window: QueryWindow | None
    items: list[SelectItem] = field(default_factory=list)
    where: Expr | None = None
    where_node: exp.Expr | None = None
    grouped: bool = False
    keys: list[Expr] = field(default_factory=list)
    key_names: list[str] = field(default_factory=list)
    by_window: bool = False
    window_keys: list[tuple[Column, str]] = field(default_factory=list)
    having: Expr | None = None
    having_node: exp.Expr | None = None
    partition: nodes.PartitionBy | None = None
    partition_keys: list[Expr] = field(default_factory=list)
    partitions: int = 0
    distinct: bool = False
    order: list[OrderItem] = field(default_factory=list)
    order_node: exp.Expr | None = None
    limit: int | None = None
    per_window: exp.Expr | None = None  # LIMIT … PER WINDOW
    offset: int = 0

    @property
    def has_sort(self) -> bool:
        return bool(self.order) or self.limit is not None or self.offset > 0


@dataclass(frozen=True, slots=True)
class Output:
    """The plan below the select list, with the expressions of the select list (``items``) and of
    ORDER BY (``order``) over this plan. ``hidden`` are pseudo-columns behind the select list.
    ``in_windows``: all groups have the same windows (no sessions, no windows per key), so that
    ORDER BY can order rows within a window; ``window_end`` is then among the hidden columns."""

    plan: Logical
    items: tuple[Expr, ...]
    order: tuple[Expr, ...]
    hidden: tuple[Column, ...]
    in_windows: bool


def place(binder: Binder, parts: Parts, scope: Scope) -> Bound:
    """The plan of a SELECT."""
    if parts.row.calls:
        parts.grouped = True
    window = parts.window
    in_bracket = window is not None and window.origin == "bracket"
    if parts.distinct and in_bracket and not parts.grouped:
        _group_by_items(parts)  # DISTINCT over a window is distinct within each window
    late = next((e for e in parts.row.extras if e.running is not None), None)
    if parts.grouped and late is not None and late.running is not None:
        raise refused(late.running.fn, "beside an aggregate, GROUP BY or DISTINCT", late.pos)
    needs_all = parts.grouped or parts.distinct or bool(parts.order)
    if needs_all and window is None and is_of_updates(parts.plan):
        parts.plan = as_relation(parts.plan)
    output = _aggregated(binder, parts) if parts.grouped else _plain(binder, parts, scope)
    return _finished(binder, parts, output)


def _group_by_items(parts: Parts) -> None:
    parts.grouped, parts.distinct = True, False
    for item in parts.items:
        if item.expr not in parts.keys:
            parts.keys.append(item.expr)
            parts.key_names.append(item.name)


# ------------------------------------------------------------------ below the select list


Moves = dict[int, Column]


def _move(expr: Expr, moves: Mapping[int, Column]) -> Expr:
    """``expr`` with each column of the virtual row replaced by its plan column in ``moves``."""
    if isinstance(expr, Column):
        return replace(moves[expr.index], pos=expr.pos) if expr.index in moves else expr
    return rebuild(expr, lambda e: _move(e, moves))


def _with_extras(
    binder: Binder,
    plan: Logical,
    parts: Parts,
    exprs: Iterable[Expr],
    moves: Moves,
    lifted: Callable[[Expr], Expr] = lambda e: e,
) -> Logical:
    """``plan`` under the nodes that compute the extra columns (subqueries, OVER,
    running functions) in ``exprs``.
    ``lifted`` maps an expression over the virtual row to one over ``plan``."""
    base = plan
    indices = {i for e in exprs for i in columns_of(e) if EXTRAS <= i < OUTER}
    for index in sorted(indices):
        if index in moves:
            continue
        extra = parts.row.extras[index - EXTRAS]
        made: Logical
        if extra.running is not None:
            value = lifted(extra.running.value)
            plan = _with_extras(binder, plan, parts, [value], moves, lifted)
            call = replace(extra.running, value=_move(value, moves))
            made = with_running(plan, call, extra.name, extra.pos)
        elif extra.subquery is None:
            made = _over(plan, extra, lambda e: _move(lifted(e), moves))
        else:
            keys = [lifted(key) for key in extra.subquery.keys]
            around = {c: lifted(e) for c, e in columns_around(extra.subquery).items()}
            plan = _with_extras(binder, plan, parts, [*keys, *around.values()], moves, lifted)
            read = {c: _move(e, moves) for c, e in around.items()}
            moved = tuple(_move(key, moves) for key in keys)
            if extra.subquery.grouped is not None:
                made = joined(plan, base, extra, moved, read)
            else:
                made = _joined_with_subquery(plan, extra, moved, read)
        moves[index] = column_of(made, len(made.schema) - 1)
        plan = made
    return plan


def _over(plan: Logical, extra: Extra, move: Callable[[Expr], Expr]) -> Logical:
    """The plan of a function with OVER: RowNumber for ROW_NUMBER() partitioned by columns,
    Unsupported for any other.

    If the input is a stream and a progressing column is among the partition columns, punctuation
    ends each partition. Otherwise the input is a relation: that of a table, or that of all rows of
    a stream so far."""
    ranked = extra.ranked
    partition = [move(e) for e in ranked.partition] if ranked is not None else []
    columns = [e.index for e in partition if isinstance(e, Column)]
    ends = [c for c in columns if c in plan.progressing]
    changing = is_relation(plan) or not ends
    if ranked is None or len(columns) < len(partition):
        schema = Schema((*plan.schema, Field(extra.name, extra.type)))
        return Unsupported((plan,), extra.clause, schema, extra.hint, extra.pos)
    keys = tuple(replace(k, expr=move(k.expr)) for k in ranked.keys)
    name = extra.name
    if changing:
        return RowNumber(as_relation(plan), tuple(columns), keys, None, name, extra.pos)
    return RowNumber(plan, tuple(columns), keys, ends[0], name, extra.pos)


def _over_both(expr: Expr, width: int, around: Mapping[int, Expr]) -> Expr:
    """A subquery's condition over the ``width`` columns of the outer row, then its own columns."""
    if isinstance(expr, Column):
        own = replace(expr, index=width + expr.index)
        return around.get(expr.index, own)
    return rebuild(expr, lambda e: _over_both(e, width, around))


def _joined_with_subquery(
    plan: Logical,
    extra: Extra,
    keys: tuple[Expr, ...],
    around: Mapping[int, Expr],
) -> SubqueryJoin:
    """``plan`` joined with a subquery. A constant subquery answers each row as it arrives. The
    answers of a changing subquery change; ``plan`` then becomes the relation of all its rows so
    far. ``around`` maps the outer row's columns to expressions over ``plan``. Raises BindError if
    both sides count time in different units."""
    assert extra.subquery is not None
    query, kind = extra.subquery.query, extra.subquery.kind
    if not query.is_constant:
        plan = as_relation(plan)
    condition = extra.subquery.condition
    if condition is not None:
        condition = _over_both(condition, len(plan.schema), around)
    made = SubqueryJoin(plan, query, kind, keys, extra.name, extra.pos, condition)
    try:
        clock(made)
    except ValueError as error:
        raise BindError(
            f"the query and its subquery count time differently: {error}", position=extra.pos
        ) from None
    return made


def _input(binder: Binder, parts: Parts, below: Iterable[Expr], moves: Moves) -> Logical:
    """FROM under its buckets or relation window, and WHERE."""
    plan, window = parts.plan, parts.window
    if window is not None:
        if window.origin != "bracket" and not (parts.grouped and parts.by_window):
            plan = _bucket(parts, window, moves)
        elif not parts.grouped:
            plan = Windowed(plan, window.window, window.pos)
    plan = _with_extras(binder, plan, parts, below, moves)
    if parts.where is not None:
        assert parts.where_node is not None
        _check_where(binder, parts, moves)
        condition = _move(parts.where, moves)
        plan = Filter(plan, condition, binder.pos(parts.where_node))
    return plan


def _bucket(parts: Parts, window: QueryWindow, moves: Moves) -> Logical:
    if window.origin == "function" and parts.grouped:
        raise BindError(
            "the window is not in GROUP BY",
            position=window.pos,
            hint=f"add GROUP BY {window.text}",
        )
    plan = Bucket(parts.plan, window.window, window.pos)
    first = len(parts.plan.schema)
    for k, column in enumerate(window.columns):
        moves[WINDOW + k] = replace(column, index=first + k)
    return plan


def _check_where(binder: Binder, parts: Parts, moves: Moves) -> None:
    assert parts.where is not None
    for index in columns_of(parts.where):
        if WINDOW <= index < EXTRAS and index not in moves:
            name = WINDOW_COLUMNS[index - WINDOW]
            raise binder.error(
                f"WHERE cannot name {name}: it is computed before the window",
                parts.where_node or parts.node,
                hint="use HAVING",
            )


def _plain(binder: Binder, parts: Parts, scope: Scope) -> Output:
    """The output of a SELECT without an aggregate."""
    moves: Moves = {}
    if (clause := parts.partition) is not None:
        wanted, many = parts.partition_keys, parts.partitions
        parts.plan = partition_by.of_join(binder, clause, wanted, many, parts.plan)
    where = [parts.where] if parts.where is not None else []
    plan = _input(binder, parts, where, moves)
    exprs = [*(i.expr for i in parts.items), *(o.expr for o in parts.order)]
    plan = _with_extras(binder, plan, parts, exprs, moves)
    places = [*(i.node for i in parts.items), *(o.node for o in parts.order)]
    for expr, node in zip(exprs, places, strict=True):
        for index in columns_of(expr):
            if WINDOW <= index < EXTRAS and index not in moves:
                raise binder.error(
                    f"{WINDOW_COLUMNS[index - WINDOW]} needs an aggregate over the window",
                    node,
                    hint="FROM TUMBLE(…) or HOP(…) gives each row with its windows",
                )
    moved = [_move(e, moves) for e in exprs]
    count = len(parts.items)
    hidden = () if parts.distinct else _forwarded_columns(parts, scope)
    return Output(plan, tuple(moved[:count]), tuple(moved[count:]), hidden, False)


def _forwarded_columns(parts: Parts, scope: Scope) -> tuple[Column, ...]:
    """The window columns of a derived input, unless several inputs have a column of that name."""
    columns = [c.expr for c in scope.columns if c.hidden and isinstance(c.expr, Column)]
    names = [c.name for c in columns]
    kept = (c for c in columns if names.count(c.name) == 1 and c.name in WINDOW_COLUMNS)
    return tuple(c for c in kept if c.index < len(parts.plan.schema))


# ------------------------------------------------------------------ the aggregate


def _aggregated(binder: Binder, parts: Parts) -> Output:
    window = parts.window
    if window is not None and (window.origin == "bracket" or parts.by_window):
        _check_window_columns(parts)
        _check_partition(window, parts)
        if window.first is not None:  # all rows of one window of one key have the same first row
            parts.keys, parts.key_names = [*parts.keys, window.first], [*parts.key_names, FIRST_ROW]
    moves: Moves = {}
    inside = [*parts.keys, *(e for call in parts.row.calls for e in _inputs_of(call))]
    where = [parts.where] if parts.where is not None else []
    plan = _input(binder, parts, [*where, *inside], moves)
    in_windows = window is not None and WINDOW not in moves
    kept = window.window if window is not None and in_windows else None
    node = Aggregate(
        plan,
        None if kept is None else replace(kept, partition_by=()),  # the keys partition sessions
        tuple(_move(k, moves) for k in parts.keys),
        tuple(_moved_call(c, moves) for c in parts.row.calls),
        (*parts.key_names, *parts.row.call_names),
        (window.pos if window is not None and in_windows else None) or binder.pos(parts.node),
    )
    if (clause := parts.partition) is not None:
        wanted = [_move(key, moves) for key in parts.partition_keys]
        split = partition_by.of_aggregate(binder, clause, wanted, parts.partitions, node)
        node = replace(node, partitioning=split)
    lift = _Lift(binder, parts, node)
    result = closed_by_text(node)
    if window is not None and window.first is not None:
        result = _windows_of_keys(node, window.rows)
    items = [lift.lifted(i.expr, i.node) for i in parts.items]
    order = [lift.lifted(o.expr, o.node) for o in parts.order]
    having = None
    if parts.having is not None:
        assert parts.having_node is not None
        having = lift.lifted(parts.having, parts.having_node)
    above: Moves = {}
    used = [*items, *order, *([having] if having is not None else [])]
    result = _with_extras(binder, result, parts, used, above, lambda e: lift.lifted(e, parts.node))
    if having is not None and parts.having_node is not None:
        result = Filter(result, _move(having, above), binder.pos(parts.having_node))
    return Output(
        result,
        tuple(_move(e, above) for e in items),
        tuple(_move(e, above) for e in order),
        lift.window_columns() if in_windows else (),
        in_windows and kept is not None and _shared(kept, window),
    )


def _shared(window: Window, written: QueryWindow | None) -> bool:
    """Whether all groups have the same windows."""
    own = written is not None and written.first is not None
    return window.kind is not WindowKind.SESSION and not own


def _windows_of_keys(node: Aggregate, rows: int) -> Project:
    """``node`` with its windows' bounds as row numbers within their key. The last key of ``node``
    is the number of a window's first row."""
    schema = node.schema
    columns: list[Expr] = [column_of(node, k) for k in range(len(schema))]
    first = columns[len(node.keys) - 1]
    ends = [Literal(rows, BIGINT), Literal(rows - 1, BIGINT)]
    bounds: list[Expr] = [first, *(Call("add", (first, n), BIGINT, False) for n in ends)]
    return Project(node, (*columns[: -len(bounds)], *bounds), schema.names)


def _check_partition(window: QueryWindow, parts: Parts) -> None:
    """Raises NotSupportedError where ``TABLE(SESSION(TABLE t PARTITION BY k, …))`` partitions by
    other columns than GROUP BY groups by."""
    if window.window.kind is not WindowKind.SESSION or not window.is_table:
        return
    fields = parts.plan.schema
    by = {fields[k].name for k in window.window.partition_by}
    grouped = {k.index for k in parts.keys if isinstance(k, Column)}
    if set(window.window.partition_by) == grouped and len(grouped) == len(parts.keys):
        return
    wanted = f"PARTITION BY {', '.join(sorted(by))}" if by else "no PARTITION BY"
    raise NotSupportedError(
        f"sessions with {wanted} under GROUP BY of other columns are not supported by this version",
        position=window.pos,
        hint="name the same columns in PARTITION BY and in GROUP BY (beside window_start and"
        " window_end)",
    )


def _check_window_columns(parts: Parts) -> None:
    """Raises BindError where an argument or a key of the aggregate reads a window column, because
    the aggregate itself computes this column. Removes keys that read only window columns, because
    the window implies these keys."""
    read = [e for call in parts.row.calls for e in _inputs_of(call)]
    implied = [_window_columns_in(k) and min(columns_of(k)) >= WINDOW for k in parts.keys]
    read += [k for k, gone in zip(parts.keys, implied, strict=True) if not gone]
    for expr in read:
        for column in _window_columns_in(expr):
            raise BindError(
                f"{column.name} cannot be read inside the aggregate that makes it",
                position=column.pos or expr.pos,
                hint=f"aggregate in a subquery that selects {column.name}",
            )
    parts.key_names = [n for n, gone in zip(parts.key_names, implied, strict=True) if not gone]
    parts.keys = [k for k, gone in zip(parts.keys, implied, strict=True) if not gone]


def _window_columns_in(expr: Expr) -> list[Column]:
    return [e for e in walk(expr) if isinstance(e, Column) and WINDOW <= e.index < EXTRAS]


def _inputs_of(call: AggregateCall) -> tuple[Expr, ...]:
    return call.args if call.where is None else (*call.args, call.where)


def _moved_call(call: AggregateCall, moves: Moves) -> AggregateCall:
    args = tuple(_move(a, moves) for a in call.args)
    where = None if call.where is None else _move(call.where, moves)
    return replace(call, args=args, where=where)


class _Lift:
    """Maps expressions over the virtual row to expressions over the aggregate's output."""

    def __init__(self, binder: Binder, parts: Parts, node: Aggregate) -> None:
        self.binder = binder
        self.keys = parts.keys
        self.node = node
        self.calls_at = len(parts.keys)
        self.window_at = self.calls_at + len(parts.row.calls)

    def _output(self, at: int, like: Expr) -> Column:
        f = self.node.schema[at]
        return Column(at, f.name, f.type, f.nullable, like.pos)

    def window_columns(self) -> tuple[Column, ...]:
        fields = self.node.schema.fields[self.window_at :]
        return tuple(
            Column(self.window_at + k, f.name, f.type, f.nullable) for k, f in enumerate(fields)
        )

    def lifted(self, expr: Expr, node: exp.Expr) -> Expr:
        for at, key in enumerate(self.keys):
            if expr == key:
                return self._output(at, expr)
        if not isinstance(expr, Column):
            return rebuild(expr, lambda e: self.lifted(e, node))
        if AGGREGATES <= expr.index < WINDOW:
            return self._output(self.calls_at + expr.index - AGGREGATES, expr)
        if WINDOW <= expr.index < EXTRAS and self.node.window is not None:
            return self._output(self.window_at + expr.index - WINDOW, expr)
        if expr.index >= EXTRAS:
            return expr
        error = self.binder.error(
            f"column {expr.name} is neither grouped nor inside an aggregate",
            node,
            hint=f"add it to GROUP BY, or write first({expr.name}), max({expr.name}) or another"
            " aggregate",
        )
        error.position = expr.pos or error.position
        raise error


# ------------------------------------------------------------------ the select list and above


def _finished(binder: Binder, parts: Parts, output: Output) -> Bound:
    """Adds the select list, DISTINCT, and ORDER BY with LIMIT. Sort keys that are not selected are
    projected away above the sort."""
    names = [i.name for i in parts.items] + [c.name for c in output.hidden]
    exprs = [*output.items, *output.hidden]
    width = len(exprs)
    keys: list[SortKey] = []
    for ordered, expr in zip(parts.order, output.order, strict=True):
        at = next((k for k, e in enumerate(output.items) if e == expr), None)
        if at is None and parts.distinct:
            raise binder.error(
                "with DISTINCT, ORDER BY takes columns of the select list only", ordered.node
            )
        if at is None:
            at = len(exprs)
            exprs.append(expr)
            names.append(_unused(f"order_{len(keys) + 1}", names))
        column = Column(at, names[at], expr.type, expr.nullable, expr.pos)
        keys.append(SortKey(column, ordered.descending, ordered.nulls_first))
    plan = project(output.plan, exprs, names, binder, parts.node)
    bound = Bound(plan, len(output.hidden))
    if parts.distinct:
        bound = distinct(binder, bound, parts.node)
    in_windows = output.in_windows and not parts.distinct
    if parts.per_window is not None and not in_windows:
        raise binder.error(
            "LIMIT … PER WINDOW needs an aggregate over windows that all groups share",
            parts.per_window.expression,
            PER_WINDOW,
        )
    if parts.has_sort and not keys and parts.per_window is None:
        place = binder.pos(parts.order_node or parts.node)
        return replace(bound, plan=Limit(bound.plan, parts.limit, parts.offset, place))
    if parts.has_sort:
        if in_windows and parts.limit is None:
            in_windows = not bound.plan.is_bounded
        end = len(parts.items) + WINDOW_COLUMNS.index("window_end") if in_windows else None
        at_node = parts.order_node or parts.node
        sort = Sort(bound.plan, tuple(keys), parts.limit, parts.offset, end, binder.pos(at_node))
        bound = replace(bound, plan=sort)
        if len(exprs) > width:
            kept = [Column(k, names[k], e.type, e.nullable) for k, e in enumerate(exprs[:width])]
            bound = replace(bound, plan=Project(sort, tuple(kept), tuple(names[:width])))
    return bound


def _unused(name: str, names: Sequence[str]) -> str:
    while name in names:
        name = f"_{name}"
    return name


def project(
    plan: Logical,
    exprs: Sequence[Expr],
    names: Sequence[str],
    binder: Binder,
    node: exp.Expr,
) -> Logical:
    """A Project of ``exprs`` over ``plan``, or ``plan`` if the Project would change nothing."""
    same = [e.index if isinstance(e, Column) else -1 for e in exprs] == list(
        range(len(plan.schema))
    )
    if same and tuple(names) == plan.schema.names:
        return plan
    return Project(plan, tuple(exprs), tuple(names), binder.pos(node))
