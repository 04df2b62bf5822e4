"""Binds FROM (tables, views, subqueries, unions, window functions, joins) to a plan and a scope."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from cql.base.model import Field, Schema
from cql.base.window import Window, WindowKind
from cql.dialect import nodes
from cql.dialect import to_sql as printed
from cql.dialect.nodes import FromUnion, StreamWindow, TableFunction, WindowTable
from cql.errors import BindError, Position, did_you_mean
from cql.planner.bind.computed import computed_above, is_computed
from cql.planner.bind.context import Binder, Bound, Env, fold
from cql.planner.bind.relations import changelog, signal_functions, signals, user_operators
from cql.planner.bind.relations import window as bind_window
from cql.planner.bind.relations.derived_stream import read, refuse_relation
from cql.planner.bind.relations.join import Item, JoinChain, is_unnest, scope_of
from cql.planner.bind.relations.refresh import with_refresh
from cql.planner.bind.relations.row_numbers import numbered
from cql.planner.bind.scope import (
    QueryWindow,
    Scope,
    ScopeColumn,
    Source,
    bracket_window,
    column_of,
)
from cql.planner.bind.union import union
from cql.planner.bind.values import bind_values
from cql.planner.nodes.catalog import Progress, Relation, StreamSpec
from cql.planner.nodes.expr import Column
from cql.planner.nodes.logical import (
    Bucket,
    Logical,
    Project,
    Scan,
    Union,
    Values,
    Watermark,
    Windowed,
)
from cql.planner.nodes.relation_over import Watermarked
from cql.planner.nodes.statements import Name
from cql.planner.optimize.changelog import is_relation

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True)
class From:
    """A bound FROM. ``window`` is the window of its only item or only stream, which ``plan`` does
    not apply: the aggregate does. ``conditions``: what WHERE still says, where FROM has taken the
    ranges of signals from it; None: all of WHERE."""

    plan: Logical
    scope: Scope
    window: QueryWindow | None
    conditions: tuple[exp.Expr, ...] | None = None


# ------------------------------------------------------------------ names of tables


def name_of(table: exp.Expr) -> Name:
    """``catalog.schema.name`` of an ``exp.Table``, outermost part first."""
    parts = (table.text("catalog"), table.text("db"), table.name)
    return tuple(p for p in parts if p)


def find_relation(binder: Binder, table: exp.Expr) -> Relation:
    """The relation of that name. Raises BindError with candidates."""
    name = name_of(table)
    relation = binder.find(name)
    if relation is None:
        raise unknown_relation(binder, table, ())
    return relation


def unknown_relation(binder: Binder, table: exp.Expr, more: Sequence[str]) -> BindError:
    name = name_of(table)
    context = binder.context
    dotted_name = ".".join(name)
    if any(dotted_name.lower() == ".".join(v).lower() for v in context.views):
        return binder.error(
            f"{dotted_name} is a view, and a table is needed here",
            table,
            hint=f"CREATE STREAM … AS SELECT * FROM {dotted_name} reads a view",
        )
    known = [*binder.catalog.names(), *context.views, *context.streams]
    # A short name may stand for the last parts of a long name.
    dotted = [".".join(k[-len(name) :]) for k in known] + list(more)
    return binder.error(
        f"there is no stream or table {dotted_name}",
        table,
        hint=did_you_mean(dotted_name, dotted, what="there are")
        or "CREATE STREAM … declares one; SHOW TABLES lists them",
    )


# ------------------------------------------------------------------ items


def bind_from(binder: Binder, select: exp.Select, env: Env) -> From:
    """Binds the FROM of a SELECT; its plan contains the joins and the windows of the joined
    items."""
    clause = select.args.get("from_")
    joins = list(select.args.get("joins") or ())
    join_window = select.args.get(nodes.JOIN_WINDOW)
    if clause is None:
        if join_window is not None:
            raise binder.error("WINDOW needs a FROM", join_window)
        return From(Values(pos=binder.pos(select)), Scope(binder, (), (), env), None)
    first, inside = _opened(clause.this)
    item = bind_item(binder, first, env)
    joins = [*inside, *joins]
    if join_window is not None:
        item = _under_join_window(binder, item, join_window)
    if not joins:
        scope = scope_of(binder, [item], item.plan, env)
        window = item.window
        if window is not None and not window.is_table:
            if window.window.has_bounds:
                return From(item.plan, scope, window)
        elif window is not None:
            return From(item.plan, _scope_of_table(scope, item, window), window)
        return From(_applied(item).plan, scope, None)
    unnests = [is_unnest(join.this) for join in joins]
    joined = [join for join, unnest in zip(joins, unnests, strict=True) if not unnest]
    items = [item, *(bind_item(binder, join.this, env, temporal=True) for join in joined)]
    if join_window is not None:
        items[1:] = [_under_join_window(binder, right, join_window) for right in items[1:]]
    if any(each.window is None and signals.is_signal(each.plan) for each in items):
        synced = _with_signals(binder, select, items, env)
        if synced is not None:
            return synced
    streams = [k for k, each in enumerate(items) if not each.plan.is_table]
    window = None
    if len(streams) == 1:
        elements = _unnests_before(unnests, streams[0])
        items, window = _window_above(items, streams[0], elements)
    chain = JoinChain(binder, env, _applied(items[0]))
    rights = iter(items[1:])
    for join, unnest in zip(joins, unnests, strict=True):
        if unnest:
            binder.count_input(join.this)
            chain.unnest(join)
        else:
            chain.add(_applied(next(rights)), join)
    return From(chain.plan, chain.scope(), window)


def _with_signals(binder: Binder, select: exp.Select, items: list[Item], env: Env) -> From | None:
    """An item and signals, of which each row of the item gets the samples in a range; None if no
    condition is such a range: the samples are rows then, as those of any stream."""
    joins = select.args["joins"]
    written = [select.args["from_"].this, *(join.this for join in joins)]
    conditions = [join.args.get("on") for join in joins]
    conditions += [where.this] if (where := select.args.get("where")) is not None else []
    wanted = [part for each in conditions if each is not None for part in signals.parts_of(each)]
    pairs = list(zip(items, written, strict=False))
    others = [pair for pair in pairs if not _gives_ranges(pair[0], items, wanted)]
    beside = [item for item, _ in others]
    given = [item for item in items if item not in beside]
    if not any(signals.has_range(item, beside, wanted) for item in given):
        signals.refuse_without_time(binder, given, written)
        return None
    signals.check_joins(binder, joins)
    if len(others) != 1 or len(pairs) != len(written):
        at = written[0] if not others else others[-1][1]
        raise binder.unsupported(
            "FROM with signals and another number of items than one that says the ranges",
            at,
            "join them in a subquery: FROM (SELECT … ) AS d, audio AS a WHERE a.time BETWEEN …",
        )
    first = _applied(others[0][0])
    plan, seen = first.plan, [first]
    for item, node in pairs:
        if item is others[0][0]:
            continue
        scope = scope_of(binder, seen, plan, env)
        made = signals.synced(binder, plan, scope, item, node, wanted)
        shown = Values(Schema(made.schema.fields[len(plan.schema) :]))
        seen.append(Item(shown, 0, item.source))
        plan = made
    return From(plan, scope_of(binder, seen, plan, env), None, tuple(wanted))


def _gives_ranges(item: Item, items: Sequence[Item], wanted: Sequence[exp.Expr]) -> bool:
    """Whether ``item`` is a signal whose samples are wanted in ranges; a subquery over a signal may
    also be what says the ranges, or be joined as rows."""
    if item.window is not None or not signals.is_signal(item.plan):
        return False
    beside = [each for each in items if each is not item]
    return isinstance(item.plan, signals.STORED) or signals.has_range(item, beside, wanted)


def _unnests_before(unnests: Sequence[bool], item: int) -> int:
    """The number of UNNEST joins in front of ``item``, counting items of FROM without UNNEST."""
    others = [k for k, unnest in enumerate(unnests) if not unnest]
    return sum(unnests[: others[item - 1]]) if item else 0


def _opened(node: exp.Expr) -> tuple[exp.Expr, list[exp.Join]]:
    """The first item of FROM, and the joins behind it. The parentheses of
    ``(a JOIN b ON …) JOIN c ON …`` are dropped, because joins run from left to right anyway."""
    joins = list(node.args.get("joins") or ())
    inner = node.this if isinstance(node, exp.Subquery) and not _alias(node) else None
    if node.args.get(nodes.STREAM_WINDOW) is None and isinstance(inner, exp.Table | exp.Subquery):
        first, inside = _opened(inner)
        if inside:
            return first, [*inside, *joins]
    return node, joins


def _window_above(
    items: list[Item], stream: int, more: int
) -> tuple[list[Item], QueryWindow | None]:
    """Moves the window with SLIDE of the only stream above the joins with tables: the aggregate
    then reads the stream's rows with the columns that the tables add. Returns the items without
    this window, and the window over the joined rows (None: nothing to move). ``more`` is the number
    of UNNEST columns in front of the stream's columns."""
    found = items[stream].window
    if found is None or found.is_table or not found.window.has_bounds:
        return items, None
    before = more + sum(len(item.plan.schema) for item in items[:stream])
    moved = found.window
    if moved.wa is not None:
        moved = replace(moved, wa=moved.wa + before)
    moved = replace(moved, partition_by=tuple(c + before for c in moved.partition_by))
    bare = [*items[:stream], replace(items[stream], window=None), *items[stream + 1 :]]
    return bare, replace(found, window=moved)


def bind_item(binder: Binder, node: exp.Expr, env: Env, *, temporal: bool = False) -> Item:
    """Binds one FROM item. Checks its window and does not apply it; ``temporal`` allows AS OF."""
    binder.count_input(node)
    if node.args.get("version") is not None and not temporal:
        raise binder.unsupported("FOR SYSTEM_TIME AS OF outside a join", node.args["version"])
    match node:
        case WindowTable():
            for key in (nodes.STREAM_WINDOW, nodes.FROM_WATERMARK):
                if node.args.get(key) is not None:
                    raise binder.unsupported(
                        f"{key.split('_')[1].upper()} behind {node.window_kind}(…)", node.args[key]
                    )
            return _window_table(binder, node, env)
        case FromUnion():
            item = _union(binder, node, env)
        case TableFunction():
            item = _operated(binder, node, env)
        case exp.Subquery():
            item = _subquery(binder, node, env)
        case exp.Table():
            item = _table(binder, node, env)
        case exp.Values():
            alias = _alias(node)
            plan = bind_values(binder, node, env).plan
            item = Item(plan, 0, Source((alias,)) if alias else None)
        case _:
            raise binder.unsupported(f"{type(node).__name__.upper()} in FROM", node)
    item = _renamed(binder, item, node)
    window = node.args.get(nodes.STREAM_WINDOW)
    return item if window is None else _with_bracket(binder, item, window)


def _alias(node: exp.Expr) -> str:
    alias = node.args.get("alias")
    return alias.name if alias is not None else ""


def _renamed(binder: Binder, item: Item, node: exp.Expr) -> Item:
    """``item`` with the column names of ``AS m (a, b)``; its source already has the alias ``m``."""
    alias = node.args.get("alias")
    if not isinstance(alias, exp.TableAlias) or not alias.args.get("columns"):
        return item
    columns = alias.args["columns"]
    names = tuple(c.name for c in columns)
    return replace(item, plan=rename(binder, item.plan, names, item.width, alias))


def rename(
    binder: Binder, plan: Logical, names: Sequence[str], width: int, at: exp.Expr
) -> Logical:
    """``plan`` with its first ``width`` columns renamed to ``names``. Raises BindError for another
    number of names."""
    if len(names) != width:
        raise binder.error(f"{len(names)} names cannot name {width} columns", at)
    fields = plan.schema.fields
    exprs = tuple(Column(i, f.name, f.type, f.nullable) for i, f in enumerate(fields))
    kept = tuple(f.name for f in fields[width:])
    return Project(plan, exprs, (*names, *kept), binder.pos(at))


def _table(binder: Binder, node: exp.Table, env: Env) -> Item:
    if is_unnest(node):
        raise binder.error(
            "UNNEST takes an array of what stands before it in FROM",
            node,
            hint="FROM s, UNNEST(s.items) AS u (item)",
        )
    if signal_functions.is_of_signals(node.this):
        made = signal_functions.bound(
            binder, node.this, lambda table: _table(binder, table, env).plan
        )
        called = _alias(node) or signal_functions.source_name(node.this)
        return Item(made, 0, Source((called,)) if called else None)
    if isinstance(node.this, exp.Func):
        raise binder.unsupported(
            f"the table function {node.this.name or node.this.sql_names()[0]}",
            node,
            f"an operator of yours reads a table: {node.this.name}(TABLE t)"
            if binder.context.operator(node.this.name) is not None
            else "TUMBLE and HOP are, and GAPS, FILL, ZIP, CONCAT and SIGNAL of a signal; a file is"
            " declared: CREATE STREAM s USING csv OPTIONS (path '…')",
        )
    name, alias = name_of(node), _alias(node)
    source = Source((alias,) if alias else name)
    bound = _named(binder, node, name, env)
    if bound is None:
        scan = replace(_scan(binder, node, name, env), alias=alias or name[-1])
        bound = Bound(_with_computed(binder, scan, node))
        source = replace(source, unsupported=scan.relation.unsupported)
    else:
        bound = _progressing(binder, bound, node)
    return Item(bound.plan, bound.hidden, source)


def _named(binder: Binder, node: exp.Table, name: Name, env: Env) -> Bound | None:
    """A CTE, a view or an intermediate stream, bound in place."""
    if len(name) == 1:
        for known, (query, columns, around) in env.ctes.items():
            if known.lower() == name[0].lower():
                binder.used.add(id(query))
                with binder.expanding(node):
                    bound = binder.query(query, around)
                if not columns:
                    return bound
                return replace(bound, plan=rename(binder, bound.plan, columns, bound.width, node))
    found = binder.context.named(name)
    if found is None:
        return None
    key, named = found
    emitting = len(binder.emitting)
    bound = binder.expand(key, named, node)
    if named.columns:
        plan = rename(binder, bound.plan, named.columns, bound.width, node)
        return replace(bound, plan=plan)
    if named.progress is not None:
        bound = declared(binder, bound, named.progress, node)
    if named.updates is None:
        return bound
    refuse_relation(binder, bound.plan, node, emits=len(binder.emitting) > emitting)
    return read(binder, key, named.updates, bound, node, _alias(node) or name[-1])


def _scan(binder: Binder, node: exp.Table, name: Name, env: Env) -> Scan:
    relation = binder.find(name)
    if relation is None:
        raise unknown_relation(binder, node, [*env.ctes])
    watermark = node.args.get(nodes.FROM_WATERMARK)
    if watermark is not None and not is_computed(watermark.this, relation):
        relation = _watermarked(binder, relation, watermark)
    columns = tuple(range(len(relation.schema)))
    return with_refresh(binder, Scan(relation, columns, binder.pos(node)), node)


def _with_computed(binder: Binder, scan: Scan, node: exp.Table) -> Logical:
    """``scan`` with the stream's computed columns, and with the progress of one of these columns
    that the stream or a WATERMARK behind it declares."""
    spec = scan.relation.stream
    if spec is None:
        return scan
    timed = spec.computed_progress is not None or node.args.get(nodes.FROM_WATERMARK) is not None
    if spec.changelog is not None and not (spec.computed and timed):
        below = changelog.relation_of(binder, scan, scan, node)
        return computed_above(binder, scan, below, node) if spec.computed else below
    if not spec.computed:
        return scan
    plan: Logical = computed_above(binder, scan, scan, node)
    progress, clause = spec.computed_progress, node.args.get(nodes.FROM_WATERMARK)
    if clause is not None and not is_computed(clause.this, scan.relation):
        progress = None
    elif clause is not None:
        column = plan.schema[_named_by(binder, clause, plan.schema.names, "this stream")]
        before = progress if progress and progress.column == column.name else Progress(column.name)
        progress = _delayed(binder, column, before, clause)
    if progress is not None:
        plan = declared(binder, Bound(plan), progress, node).plan
    if spec.changelog is not None:
        plan = changelog.relation_of(binder, scan, plan, node)
    return plan


def _subquery(binder: Binder, node: exp.Subquery, env: Env) -> Item:
    alias = _alias(node)
    source = Source((alias,)) if alias else None
    inner = node.this
    if isinstance(inner, exp.Table | FromUnion | TableFunction | WindowTable) or (
        isinstance(inner, exp.Subquery) and inner.args.get("joins")
    ):
        item = _wrapped(binder, node, inner, source, env)
        if node.args.get(nodes.FROM_WATERMARK) is None:
            return item
        applied = _applied(item)
        bound = _progressing(binder, Bound(applied.plan, applied.hidden), node)
        return Item(bound.plan, bound.hidden, item.source)
    bound = _progressing(binder, binder.query(inner, env.alone()), node)
    return Item(bound.plan, bound.hidden, source)


def _wrapped(
    binder: Binder, node: exp.Subquery, inner: exp.Expr, source: Source | None, env: Env
) -> Item:
    """``(A UNION B)`` or ``(a JOIN b ON …)``. A join needs an alias, which hides the names inside
    the parentheses."""
    item = bind_item(binder, inner, env)
    joins = inner.args.get("joins") or ()
    if not joins:
        return replace(item, source=source or item.source)
    if source is None:
        raise binder.unsupported(
            "a join in parentheses without an alias, as the right side of another,",
            node,
            "add AS x, and name its columns by it: x.k",
        )
    chain = JoinChain(binder, env, _applied(item))
    for join in joins:
        chain.add(_applied(bind_item(binder, join.this, env)), join)
    shown = chain.scope().star(node)
    exprs = tuple(c.expr for c in shown)
    return Item(Project(chain.plan, exprs, tuple(c.name for c in shown)), 0, source)


# ------------------------------------------------------------------ unions


def _union(binder: Binder, node: FromUnion, env: Env) -> Item:
    members = [_applied(bind_item(binder, member, env)) for member in node.expressions]
    bounds = [Bound(m.plan, m.hidden) for m in members]
    names = [str(m.source) if m.source else f"member {k + 1}" for k, m in enumerate(members)]
    bound, alias = union(binder, bounds, names, node), _alias(node)
    bound = _progressing(binder, bound, node)
    return Item(bound.plan, bound.hidden, Source((alias,)) if alias else None)


# ------------------------------------------------------------------ watermarks on an item


def _watermarked(binder: Binder, relation: Relation, node: exp.Expr) -> Relation:
    spec = relation.stream or StreamSpec()
    names = [*relation.schema.names, *(c.name for c in spec.computed)]
    index = _named_by(binder, node, names, ".".join(relation.name))
    column = relation.schema[index]
    known = {p.column.lower(): p for p in spec.progress}
    made = _delayed(binder, column, known.get(column.name.lower(), Progress(column.name)), node)
    others = tuple(p for p in spec.progress if fold((p.column,)) != fold((column.name,)))
    return Watermarked(relation, replace(spec, progress=(made, *others)))


def _progressing(binder: Binder, bound: Bound, node: exp.Expr) -> Bound:
    """A query in FROM with the progress that WATERMARK behind it declares for one of its columns,
    stored or computed. The query's other columns then do not progress."""
    clause = node.args.get(nodes.FROM_WATERMARK)
    if clause is None:
        return bound
    schema = bound.plan.schema
    index = _named_by(binder, clause, schema.names[: bound.width], "this query")
    live = bound.plan.progressing
    before = Progress(schema[index].name, unit=live[index].unit if index in live else None)
    return declared(binder, bound, _delayed(binder, schema[index], before, clause), clause)


def declared(binder: Binder, bound: Bound, progress: Progress, at: exp.Expr) -> Bound:
    """A query with ``progress`` declared for one of its columns. Raises BindError for a relation,
    and if the query does not have the column (any more)."""
    if is_relation(bound.plan):
        raise binder.error(
            f"{progress.declared} needs a stream, and this query is a relation: its rows also leave"
            " it",
            at,
            hint="put it behind the stream inside, in front of the window",
        )
    index = bound.plan.schema.find(progress.column)
    if index is None:
        raise binder.error(f"this query has no column {progress.column} (any more)", at)
    return replace(bound, plan=_watermark(bound.plan, index, progress, binder.pos(at)))


def _watermark(plan: Logical, column: int, progress: Progress, pos: Position | None) -> Logical:
    """``plan`` with ``progress`` on ``column``. A union gets a Watermark per member, and its own
    watermark is the lowest of its members': members are read in blocks, so that the union's rows
    arrive in no order of time."""
    if isinstance(plan, Union):
        members = tuple(_watermark(member, column, progress, pos) for member in plan.inputs)
        return replace(plan, inputs=members)
    return Watermark(plan, column, progress, pos)


def _named_by(binder: Binder, clause: exp.Expr, names: Sequence[str], what: str) -> int:
    """The index in ``names`` of the column that WATERMARK names. Raises BindError for an unknown or
    ambiguous name."""
    name = clause.this.name
    found = [k for k, each in enumerate(names) if each.lower() == name.lower()]
    if len(found) > 1:
        raise binder.error(f"{what} has {len(found)} columns {name}", clause.this)
    if not found:
        raise binder.error(
            f"{what} has no column {name}",
            clause.this,
            hint=did_you_mean(name, names, what="its columns"),
        )
    return found[0]


def _delayed(binder: Binder, column: Field, before: Progress, clause: exp.Expr) -> Progress:
    """``before`` with the delay of the clause as its slack."""
    delay = clause.args["delay"]
    slack = bind_window.slack(binder, column, before.unit, delay, "DELAY OF")
    declared = f"WATERMARK {column.name} DELAY OF {printed(delay)}"
    return replace(before, slack=slack, declared=declared, by_rows=True)


# ------------------------------------------------------------------ windows of items


def item_lookup(binder: Binder, item: Item) -> Callable[[exp.Expr], int]:
    """A function from a name in an item's bracket to the index of the item's column."""
    scope = scope_of(binder, [item], item.plan, Env())

    def find(node: exp.Expr) -> int:
        found = scope.resolve(as_column(node), aliases_first=False, aliases=False)
        if not isinstance(found, Column):
            raise binder.error(f"{node.name} is a constant, not a column", node)
        return found.index

    return find


def as_column(node: exp.Expr) -> exp.Column:
    """An Identifier as a column; the column keeps the Identifier's place in the text."""
    if isinstance(node, exp.Column):
        return node
    column = exp.Column(this=exp.Identifier(this=node.name, quoted=node.args.get("quoted")))
    column.meta.update(node.meta)
    return column


def _with_bracket(binder: Binder, item: Item, node: StreamWindow) -> Item:
    changelog.refuse_window(binder, item.plan, node)
    if signals.is_signal(item.plan):
        return replace(item, plan=signals.rewindowed(binder, item.plan, node))
    find = item_lookup(binder, item)
    text, pos = printed(node), binder.pos(node)
    if bind_window.counts_rows(node):
        plan = numbered(binder, item.plan, node, find)
        more = len(plan.schema) - len(item.plan.schema)
        item = replace(item, plan=plan, hidden=item.hidden + more)
    window = bind_window.bracket(binder, node, item.plan, find)
    return replace(item, window=bracket_window(item.plan, window, text, pos))


def _operated(binder: Binder, node: TableFunction, env: Env) -> Item:
    """``f(TABLE t) AS x``: the rows of an operator of the user."""
    inner = _applied(bind_item(binder, node.args["source"], env))
    find = item_lookup(binder, inner)
    keys = [(name, find(name)) for name in node.args.get("partition") or ()]
    made = user_operators.processed(binder, Bound(inner.plan, inner.hidden), node, keys, env)
    bound = _progressing(binder, made, node)
    return Item(bound.plan, bound.hidden, Source((_alias(node) or node.this.name,)))


def _window_table(binder: Binder, node: WindowTable, env: Env) -> Item:
    """``TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), …)) AS x``: x also has the window columns."""
    inner = node.args["source"]
    alias = _alias(node)
    if isinstance(inner, exp.Table):
        item = _table(binder, inner, env)
    else:
        bound = binder.query(inner, env.alone())
        item = Item(bound.plan, bound.hidden, None)
    changelog.refuse_window(binder, item.plan, node)
    source = Source((alias,)) if alias else item.source
    # Drops the window columns of a derived stream: this window's columns have the same names.
    if item.hidden:
        shown = tuple(column_of(item.plan, k) for k in range(item.width))
        names = item.plan.schema.names[: item.width]
        item = replace(item, plan=Project(item.plan, shown, names), hidden=0)
    item = replace(item, source=source)
    window = bind_window.table_window(binder, node, item.plan, item_lookup(binder, item))
    text, pos = f"{node.window_kind}(…)", binder.pos(node)
    found = bracket_window(item.plan, window, text, pos)
    return replace(item, window=replace(found, origin="table"))


def _scope_of_table(scope: Scope, item: Item, window: QueryWindow) -> Scope:
    """``scope``, with the window columns of a window table function as ordinary columns."""
    if not window.is_table:
        return scope
    added = tuple(ScopeColumn(item.source, column.name, column) for column in window.columns)
    return replace(scope, columns=(*scope.columns, *added))


def _applied(item: Item) -> Item:
    """``item`` with its window applied in its plan (below a join, or without an aggregate)."""
    window = item.window
    if window is None:
        return replace(item, window=None)
    if window.is_table:
        return replace(item, plan=Bucket(item.plan, window.window, window.pos), window=None)
    return replace(item, plan=Windowed(item.plan, window.window, window.pos), window=None)


def _under_join_window(binder: Binder, item: Item, node: exp.Expr) -> Item:
    """``item`` under ``WINDOW 10 minutes`` (in-order paper): the last 10 minutes of each input.
    Raises BindError if the item has a window of its own."""
    if item.window is not None:
        raise binder.error("this query has WINDOW, and a FROM item a window of its own", node)
    changelog.refuse_window(binder, item.plan, node)
    wa = bind_window.default_attribute(binder, item.plan, node)
    length = bind_window.amount(binder, None, node.this)
    range_ = wa.units(binder, length, "WINDOW", node.this)
    if range_ <= 0:
        raise binder.error("WINDOW must be longer than zero", node.this)
    window = Window(WindowKind.RANGE, wa.index, range_)
    return replace(item, window=bracket_window(item.plan, window, printed(node), binder.pos(node)))
