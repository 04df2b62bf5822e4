"""SELECT: one query block, from its clauses to logical nodes.

The plan of a block, from below: FROM, WHERE, the (windowed) aggregate, HAVING, the select list,
ORDER BY and LIMIT, ISTREAM. Expressions are first bound over a virtual row (see ``scope``), because
the aggregate is known only after all clauses are bound; ``place`` then builds the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from cql.base.types import BIGINT
from cql.base.window import Window, WindowKind
from cql.dialect import nodes, to_duration
from cql.dialect import to_sql as printed
from cql.dialect.nodes import GroupWindow
from cql.planner.bind import partition_by
from cql.planner.bind.assemble import OrderItem, Parts, SelectItem, place
from cql.planner.bind.context import Binder, Bound, Env
from cql.planner.bind.expressions.calls import printed as column_name
from cql.planner.bind.expressions.expression import (
    AUXILIARY,
    ExprBinder,
    before_over,
    direction,
    parameter,
)
from cql.planner.bind.expressions.literals import as_int
from cql.planner.bind.relations import changelog
from cql.planner.bind.relations import window as bind_window
from cql.planner.bind.relations.from_clause import From, as_column, bind_from
from cql.planner.bind.relations.row_numbers import numbered
from cql.planner.bind.scope import (
    AGGREGATES,
    EXTRAS,
    WINDOW,
    WINDOW_NAMES,
    QueryWindow,
    Row,
    Scope,
    bracket_window,
)
from cql.planner.functions.running import refused
from cql.planner.functions.signature import check_ordered
from cql.planner.nodes.expr import Column, Expr, Literal, columns_of, conjunction
from cql.planner.nodes.logical import Logical, RelationToStream, Windowed
from cql.planner.optimize.changelog import as_relation, clock


@dataclass(slots=True)
class Block:
    """The state of binding one SELECT."""

    binder: Binder
    node: exp.Select
    scope: Scope
    parts: Parts
    conditions: tuple[exp.Expr, ...] | None = None  # of WHERE, which FROM has left; None: all

    def clause(self, name: str, **more: Any) -> ExprBinder:
        return ExprBinder(self.binder, self.scope, self.parts.row, name, **more)


def bind_select(binder: Binder, node: exp.Select, env: Env) -> Bound:
    """Binds one query block; ``env`` already has its CTEs. Raises BindError for wrong names and
    types, NotSupportedError for unsupported clauses."""
    for key, clause in (("qualify", "QUALIFY"), ("match", "MATCH_RECOGNIZE")):
        if node.args.get(key) is not None:
            raise binder.unsupported(clause, node.args[key])
    block = _start(binder, node, bind_from(binder, node, env))
    _select_list(block)
    _where(block)
    _group_by(block)
    _having(block)
    _partition_by(block)
    _order_by(block)
    bound = place(binder, block.parts, block.scope)
    operator = node.args.get(nodes.R2S)
    return bound if not operator else to_stream(binder, bound, operator)


def to_stream(binder: Binder, bound: Bound, operator: exp.Expr) -> Bound:
    """Puts ISTREAM, DSTREAM or RSTREAM above a query; the instant becomes a hidden column."""
    plan = replace(bound, plan=as_relation(bound.plan)).shown()
    try:
        time = clock(plan)
    except ValueError as error:
        raise binder.error(
            f"the inputs of {operator.name} count time differently: {error}", operator
        ) from None
    return Bound(RelationToStream(plan, operator.name, time or BIGINT, binder.pos(operator)), 1)


# ------------------------------------------------------------------ the window of the block


def _start(binder: Binder, node: exp.Select, source: From) -> Block:
    plan, scope, window = source.plan, source.scope, source.window
    written = node.args.get(nodes.SELECT_WINDOW)
    if written is not None:
        plan, window = _select_window(binder, written, source)
    calls = list(_group_windows(node))
    if calls:
        plan, window = _function_window(binder, calls, plan, scope, window)
    scope = replace(scope, window=window)
    parts = Parts(node, plan, Row(len(plan.schema)), window)
    return Block(binder, node, scope, parts, source.conditions)


def _select_window(
    binder: Binder, node: nodes.StreamWindow, source: From
) -> tuple[Logical, QueryWindow | None]:
    """``SELECT count(*) [RANGE …, WA M1.ts] FROM M1, M2``: a window over the joined rows. Returns
    the plan, and the window unless the plan applies it already (a window without bounds)."""
    if source.window is not None:
        raise binder.error("the select list and the FROM item both have a window", node)
    plan = source.plan
    changelog.refuse_window(binder, plan, node)

    def find(wanted: exp.Expr) -> int:
        found = source.scope.resolve(as_column(wanted), aliases_first=False, aliases=False)
        if not isinstance(found, Column):
            raise binder.error(f"{wanted.name} is no column of FROM", wanted)
        return found.index

    if bind_window.counts_rows(node):
        plan = numbered(binder, plan, node, find)
    window = bind_window.bracket(binder, node, plan, find)
    if not window.has_bounds:
        return Windowed(plan, window, binder.pos(node)), None
    return plan, bracket_window(plan, window, printed(node), binder.pos(node))


def _group_windows(node: exp.Select) -> Iterator[GroupWindow]:
    """The window functions in the clauses of this block, without those in its subqueries."""
    parts: list[exp.Expr] = list(node.expressions)
    parts += [node.args[k] for k in ("group", "having", "order") if node.args.get(k) is not None]
    while parts:
        part = parts.pop(0)
        if isinstance(part, GroupWindow):
            yield part
        elif isinstance(part, exp.Anonymous) and part.name.lower() in AUXILIARY:
            yield _of_auxiliary(part)
        elif not isinstance(part, exp.Query):
            parts += list(part.iter_expressions())


_AUXILIARY_ARGUMENTS = {
    "TUMBLE": ("size", "offset"),
    "HOP": ("slide", "size", "offset"),
    "SESSION": ("gap",),
}


def _of_auxiliary(node: exp.Anonymous) -> GroupWindow:
    """The window that ``TUMBLE_END(ts, INTERVAL '1' MINUTE)`` belongs to."""
    kind = node.name.upper().split("_")[0]
    arguments = [a.copy() for a in node.expressions]
    args: dict[str, Any] = {"kind": kind}
    if arguments and to_duration(arguments[0]) is None:
        args["this"] = arguments.pop(0)
    args |= dict(zip(_AUXILIARY_ARGUMENTS[kind], arguments, strict=False))
    made = GroupWindow(**args)
    made.meta.update(node.meta)
    return made


def _function_window(
    binder: Binder,
    calls: Sequence[GroupWindow],
    plan: Logical,
    scope: Scope,
    window: QueryWindow | None,
) -> tuple[Logical, QueryWindow]:
    """``window(ts, …)`` or ``TUMBLE(ts, …)``: all calls of a block must denote the same window."""
    first = calls[0]
    changelog.refuse_window(binder, plan, first)
    if window is not None:
        raise binder.error("this query has two windows: one in FROM and this one", first)
    found: list[Window] = []
    for call in calls:
        wa = None
        if call.this is not None:
            bound = ExprBinder(binder, scope, None, "a window").bind(call.this)
            if not isinstance(bound, Column):
                raise binder.error(
                    "a window needs the name of a column",
                    call.this,
                    hint="compute it in a subquery: FROM (SELECT *, … AS t FROM s)",
                )
            wa = bound
        bind_window.check_arguments(binder, call)
        found.append(bind_window.group_window(binder, call, plan, scope, wa))
        if found[-1] != found[0]:
            raise binder.error("this query has two different windows", call)
    text, pos = printed(first), binder.pos(first)
    return plan, replace(bracket_window(plan, found[0], text, pos), origin="function")


# ------------------------------------------------------------------ the clauses


def _select_list(block: Block) -> None:
    for node in block.node.expressions:
        for item in _items(block, node):
            block.parts.items.append(item)
            if isinstance(node, exp.Alias):
                block.scope.aliases.append((item.name, item.expr))


def _is_window(block: Block, node: exp.Expr) -> bool:
    """Whether ``node`` denotes a whole window: ``window(ts, '1 minute')``, or a window's name."""
    return isinstance(node, GroupWindow) or block.scope.names_window(node)


def _of_window(block: Block, node: exp.Expr) -> tuple[Expr, Expr]:
    """Start and end of the window that ``node`` denotes. The dialect has no structs: a window is
    these two columns."""
    name = WINDOW_NAMES[0] if isinstance(node, GroupWindow) else node.name
    parts = block.scope.window_parts(name)
    assert parts is not None
    pos = block.binder.pos(node)
    return replace(parts[0], pos=pos), replace(parts[1], pos=pos)


def _window_items(block: Block, node: exp.Expr, inner: exp.Expr) -> Iterator[SelectItem]:
    name = WINDOW_NAMES[0]
    if isinstance(node, exp.Alias):
        name = node.alias
        if block.scope.window is not None:
            block.scope.window_aliases.append(name.lower())
    start, end = _of_window(block, inner)
    yield SelectItem(f"{name}_start", start, inner)
    yield SelectItem(f"{name}_end", end, inner, ends_window=True)


def _items(block: Block, node: exp.Expr) -> Iterator[SelectItem]:
    """The columns of one element of the select list: one column, or those of ``*`` or a window."""
    inner = node.this if isinstance(node, exp.Alias) else node
    if _is_window(block, inner):
        yield from _window_items(block, node, inner)
        return
    star = inner if isinstance(inner, exp.Star) else inner.this
    if isinstance(star, exp.Star) and isinstance(inner, exp.Star | exp.Column):
        if isinstance(node, exp.Alias):
            raise block.binder.error("* takes no alias", node)
        yield from _star(block, inner, star)
        return
    expr = block.clause("SELECT", aggregates=True, aliases="last").bind(inner)
    if isinstance(node, exp.Alias):
        name = node.alias
    elif isinstance(expr, Column):
        name = inner.name if _is_part(inner, expr) else expr.name
    else:
        name = _computed_name(inner)
    yield SelectItem(name, expr, inner)


def _computed_name(node: exp.Expr) -> str:
    """The name of what is no column: of a field the last part (``s.user.name`` is name)."""
    return node.name if isinstance(node, exp.Column) else column_name(node)


def _is_part(node: exp.Expr, column: Column) -> bool:
    """Whether ``node`` is written as ``window.start`` or ``window.end``; Spark names these columns
    start and end."""
    part = node.name.lower()
    qualified = isinstance(node, exp.Column) and len(node.parts) > 1
    return qualified and part in ("start", "end") and column.name.lower().endswith(f"_{part}")


def _star(block: Block, node: exp.Expr, star: exp.Star) -> Iterator[SelectItem]:
    qualifier = [p.name for p in node.parts[:-1]] if isinstance(node, exp.Column) else []
    columns = block.scope.star(node, qualifier)
    unusable = block.scope.left_out(qualifier)
    names = {c.name.lower() for c in columns} | {name.lower() for _, name, _ in unusable}
    excepted = star.args.get("except_") or []
    for gone in excepted:
        if gone.name.lower() not in names:
            raise block.binder.error(f"* has no column {gone.name} to leave out", gone)
    dropped = {gone.name.lower() for gone in excepted}
    for source, name, why in unusable:
        if name.lower() not in dropped:
            block.binder.warn(f"* leaves out {source}.{name}: {why}", node)
    place = block.binder.pos(node)
    for column in columns:
        if column.name.lower() not in dropped:
            yield SelectItem(column.name, replace(column.expr, pos=place), node)


def _where(block: Block) -> None:
    where = block.node.args.get("where")
    if block.conditions is not None:
        bound = [block.clause("WHERE").condition(part) for part in block.conditions]
        block.parts.where = conjunction(bound) if bound else None
        block.parts.where_node = block.conditions[0] if bound else None
    elif where is not None:
        block.parts.where = block.clause("WHERE").condition(where.this)
        block.parts.where_node = where.this


def _group_by(block: Block) -> None:
    group = block.node.args.get("group")
    if group is None:
        return
    for key, clause in (("rollup", "ROLLUP"), ("cube", "CUBE"), ("grouping_sets", "GROUPING SETS")):
        if group.args.get(key):
            raise block.binder.unsupported(clause, group, "UNION ALL of several GROUP BY")
    parts = block.parts
    parts.grouped = True
    _keys(block, group)
    if parts.window is not None and parts.window_keys and not parts.by_window:
        # CUMULATE has several windows with the same start: their start is an ordinary key.
        by_start = all(expr.index == WINDOW for expr, _ in parts.window_keys)
        several = parts.window.window.kind is WindowKind.CUMULATE
        if not (by_start and several) or parts.window.origin == "bracket":
            parts.by_window = True
        else:
            parts.keys += [expr for expr, _ in parts.window_keys]
            parts.key_names += [name for _, name in parts.window_keys]


def _keys(block: Block, group: exp.Expr) -> None:
    parts = block.parts
    if group.args.get("all"):
        for item in parts.items:
            if parts.row.holds_over(item.expr):
                raise before_over(block.binder, "GROUP BY ALL", item.node)
            _refuse_running(block, item.expr, "GROUP BY ALL", item.node)
            if not _holds_aggregate(item.expr):
                _add_key(block, item.expr, item.name)
        return
    for node in group.expressions:
        _group_key(block, node)


def _group_key(block: Block, node: exp.Expr) -> None:
    if isinstance(node, GroupWindow) or (block.scope.window and block.scope.names_window(node)):
        block.parts.by_window = True
        return
    if block.scope.names_window(node):
        for part, word in zip(_of_window(block, node), ("start", "end"), strict=True):
            _add_key(block, part, f"{node.name}_{word}")
        return
    if isinstance(node, exp.Tuple) and not node.expressions:
        return  # GROUP BY (): one group
    if isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets | exp.Tuple):
        raise block.binder.unsupported(
            "ROLLUP, CUBE and GROUPING SETS", node, "UNION ALL of several GROUP BY"
        )
    found = _ordinal(block, node, "GROUP BY")
    for item in found[1:]:
        _add_key(block, item.expr, item.name)
    if found:
        expr, name = found[0].expr, found[0].name
        if block.parts.row.holds_over(expr):
            raise before_over(block.binder, "GROUP BY", node)
        _refuse_running(block, expr, "GROUP BY", node)
    else:
        expr = block.clause("GROUP BY", aliases="last").bind(node)
        name = expr.name if isinstance(expr, Column) else _computed_name(node)
    if _holds_aggregate(expr):
        raise block.binder.error("GROUP BY cannot hold an aggregate", node)
    _add_key(block, expr, name)


def _refuse_running(block: Block, expr: Expr, clause: str, node: exp.Expr) -> None:
    """Raises NotSupportedError if a ``clause`` names an item of the select list by its number, and
    ``expr``, the item, has a running function."""
    call = block.parts.row.running_in(expr)
    if call is not None:
        raise refused(call.fn, f"in {clause}", block.binder.pos(node))


def _add_key(block: Block, expr: Expr, name: str) -> None:
    """Adds a key of GROUP BY. Columns of the window go to ``window_keys``: the window implies
    them."""
    parts = block.parts
    if isinstance(expr, Column) and WINDOW <= expr.index < EXTRAS:
        parts.window_keys.append((expr, name))
    elif expr not in parts.keys:
        parts.keys.append(expr)
        parts.key_names.append(name)


def _holds_aggregate(expr: Expr) -> bool:
    return any(AGGREGATES <= i < WINDOW for i in columns_of(expr))


def _ordinal(block: Block, node: exp.Expr, clause: str) -> list[SelectItem]:
    """The select-list items of ``GROUP BY 1`` (two items for a window), or [] if ``node`` is no
    ordinal. Raises BindError for an ordinal beyond the select list."""
    if not isinstance(node, exp.Literal) or node.is_string or not node.name.isdecimal():
        return []
    at, items = int(node.name), block.parts.items
    firsts = [k for k, item in enumerate(items) if not item.ends_window]
    if not 1 <= at <= len(firsts):
        raise block.binder.error(f"{clause} {at}: the select list has {len(firsts)} columns", node)
    first = firsts[at - 1]
    return items[first : first + 1 + any(i.ends_window for i in items[first + 1 : first + 2])]


def _having(block: Block) -> None:
    having = block.node.args.get("having")
    if having is None:
        return
    block.parts.grouped = True
    clause = block.clause("HAVING", aggregates=True, aliases="first")
    block.parts.having = clause.condition(having.this)
    block.parts.having_node = having.this


def _partition_by(block: Block) -> None:
    clause = block.node.args.get(nodes.PARTITION_BY)
    if clause is None:
        return
    bind = block.clause("PARTITION BY", aliases="last").bind
    block.parts.partition = clause
    block.parts.partition_keys = [bind(node) for node in clause.expressions]
    many = count_of(block.binder, clause, "INTO", "")
    if many is None or not 1 <= many <= partition_by.MOST:
        raise block.binder.error(
            f"PARTITION BY … INTO takes 1 to {partition_by.MOST} partitions", clause.expression
        )
    block.parts.partitions = many


def _order_by(block: Block) -> None:
    parts, node = block.parts, block.node
    parts.distinct = node.args.get("distinct") is not None
    order = node.args.get("order")
    for ordered in order.expressions if order is not None else ():
        exprs: Sequence[Expr]
        if _is_window(block, ordered.this):
            exprs = _of_window(block, ordered.this)
        elif found := _ordinal(block, ordered.this, "ORDER BY"):
            exprs = [item.expr for item in found]
            for expr in exprs:
                _refuse_running(block, expr, "ORDER BY", ordered.this)
        else:
            clause = block.clause("ORDER BY", aggregates=True, aliases="first")
            exprs = [clause.bind(ordered.this)]
        parts.order += [order_item(ordered, expr) for expr in exprs]
    limit = node.args.get("limit")
    parts.limit = count_of(block.binder, limit, "LIMIT")
    if limit is not None and limit.args.get(nodes.PER_WINDOW):
        parts.per_window = limit
    parts.offset = count_of(block.binder, node.args.get("offset"), "OFFSET") or 0
    for key in ("order", "limit", "offset"):
        if parts.order_node is None:
            parts.order_node = node.args.get(key)


def order_item(ordered: exp.Expr, expr: Expr) -> OrderItem:
    check_ordered(expr, "ORDER BY", None)
    descending, nulls_first = direction(ordered)
    return OrderItem(expr, descending, nulls_first, ordered.this)


def count_of(
    binder: Binder, node: exp.Expr | None, clause: str, of: str = " of rows"
) -> int | None:
    """The row count of LIMIT or OFFSET, or the number of INTO, given as a literal, a parameter or a
    constant."""
    if node is None:
        return None
    inner = node.expression
    value: Literal | Expr | None = None
    unknown = isinstance(inner, exp.Column) and not binder.context.names_value(inner.name)
    if isinstance(inner, exp.Placeholder):
        value = parameter(binder, inner)
    elif unknown:
        value = None
    elif isinstance(inner, exp.Literal | exp.Column | exp.Neg):
        value = ExprBinder(binder, Scope(binder, (), (), Env()), None, clause).bind(inner)
    number = as_int(value.value) if isinstance(value, Literal) and value.type.is_integer else None
    if number is None or number < 0:
        raise binder.error(f"{clause} needs a whole number{of}", inner)
    return number
