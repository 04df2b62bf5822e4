"""The names that an expression can see, and the row that a SELECT's expressions are bound over.

The binder binds the expressions of a SELECT before their places in the plan are known. Their
columns therefore index a *virtual row*: the columns of FROM, and at fixed offsets the aggregates,
the window columns, the extra columns of subqueries and OVER, and the columns of the outer row (the
row of the enclosing query). ``assemble.place`` maps these indices to columns of the plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from cql.base.types import BIGINT, DataType
from cql.base.window import Window
from cql.errors import Position, did_you_mean
from cql.planner.bind.context import Binder, Env, match_name
from cql.planner.bind.expressions.literals import from_python
from cql.planner.functions import nested
from cql.planner.nodes.expr import Column, Expr, Literal, columns_of, rebuild
from cql.planner.nodes.logical import (
    WINDOW_COLUMNS,
    AggregateCall,
    Logical,
    Number,
    RunningCall,
    SortKey,
)
from cql.planner.nodes.rewrite import replace

#: The first column index of each part of the virtual row.
AGGREGATES = 1_000_000
WINDOW = 2_000_000
EXTRAS = 3_000_000
OUTER = 4_000_000
#: The clause name of functions with OVER in error messages.
OVER = "OVER"
#: Spark's names of a query's window and of its parts: ``window.start`` is ``window_start``.
WINDOW_NAMES = ("window", "session_window")
WINDOW_PARTS = ("start", "end", "time")


@dataclass(frozen=True, slots=True)
class Source:
    """A FROM item. ``name`` qualifies its columns (an alias has one part, a table up to three).
    ``unsupported`` maps columns that no query can use to the reason."""

    name: tuple[str, ...]
    unsupported: Mapping[str, str] = field(default_factory=dict, compare=False)

    def answers_to(self, qualifier: Sequence[str]) -> bool:
        tail = self.name[-len(qualifier) :]
        return len(tail) == len(qualifier) and all(
            a.lower() == b.lower() for a, b in zip(tail, qualifier, strict=True)
        )

    def __str__(self) -> str:
        return ".".join(self.name)


@dataclass(frozen=True, slots=True)
class ScopeColumn:
    """A visible column. ``shown``: ``*`` includes the column. ``bare``: a query may name the column
    without its source (not for the right side of USING). ``hidden``: the column is a window column
    of a derived stream, which a name matches only if no other column has this name."""

    source: Source | None
    name: str
    expr: Expr
    shown: bool = True
    bare: bool = True
    hidden: bool = False

    @property
    def path(self) -> str:
        return f"{self.source}.{self.name}" if self.source else self.name


@dataclass(frozen=True, slots=True)
class QueryWindow:
    """The window of a query with aggregates. ``columns`` are its start, end and time in the virtual
    row.

    ``origin`` is "bracket"; "table" for a window table function, whose columns are ordinary columns
    of its FROM item; "function" for ``window(ts, …)`` and ``TUMBLE(ts, …)`` in an expression.
    Windows over the rows of each key also have ``first``, the column with the number of a window's
    first row, and ``rows``, the number of rows in a window."""

    window: Window
    columns: tuple[Column, Column, Column]
    text: str
    origin: str = "bracket"
    pos: Position | None = field(default=None, compare=False)
    first: Column | None = None
    rows: int = 0

    @property
    def is_table(self) -> bool:
        return self.origin == "table"


def bracket_window(plan: Logical, window: Window, text: str, pos: Position | None) -> QueryWindow:
    """The QueryWindow of a window in brackets over ``plan``."""
    wa = plan.schema[window.wa].type if window.wa is not None else plan.schema[0].type
    columns = window_columns(wa)
    if isinstance(plan, Number) and plan.windows is not None:
        first = column_of(plan, len(plan.schema) - 2)
        return QueryWindow(window, columns, text, "bracket", pos, first, plan.windows.rows)
    return QueryWindow(window, columns, text, pos=pos)


def window_columns(wa: DataType) -> tuple[Column, Column, Column]:
    """The pseudo-columns of a sliding window over an attribute of type ``wa``."""
    kind = BIGINT if wa.is_integer else wa
    start, end, time = (
        Column(WINDOW + k, name, kind, False) for k, name in enumerate(WINDOW_COLUMNS)
    )
    return start, end, time


@dataclass(frozen=True, slots=True)
class Extra:
    """A column that a subquery, a function with OVER or a running function inside an expression
    appends to the row.
    ``subquery`` describes a subquery, ``ranked`` ROW_NUMBER() OVER, ``running`` a running function;
    they are over the virtual row. No other function with OVER can run."""

    clause: str
    name: str
    type: DataType
    hint: str | None = None
    subquery: Subquery | None = None
    ranked: Ranked | None = None
    running: RunningCall | None = None
    pos: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Subquery:
    """A subquery of an expression. ``kind`` is exists, in or scalar (see ``logical.SubqueryJoin``),
    or grouped: an aggregate of the rows of ``query`` that match the outer row. ``condition`` reads
    the columns of the subquery and (from ``OUTER`` on) the columns of the outer row."""

    query: Logical
    kind: str
    keys: tuple[Expr, ...] = ()
    condition: Expr | None = None
    grouped: Grouped | None = None

    @property
    def value_type(self) -> DataType:
        """The type of a scalar subquery."""
        return self.query.schema[0].type if self.grouped is None else self.grouped.value.type


@dataclass(frozen=True, slots=True)
class Grouped:
    """The aggregate of a correlated subquery. It covers the rows whose ``keys`` (over the
    subquery's columns) equal ``Subquery.keys`` and which fulfil ``Subquery.condition``. ``calls``
    read the columns of the subquery and of the outer row; ``value`` reads the results of ``calls``
    and the columns of the outer row."""

    calls: tuple[AggregateCall, ...]
    names: tuple[str, ...]
    keys: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class Ranked:
    """``ROW_NUMBER() OVER (PARTITION BY partition ORDER BY keys)``."""

    partition: tuple[Expr, ...]
    keys: tuple[SortKey, ...]


@dataclass(slots=True)
class Row:
    """The columns that the expressions of one SELECT add to the ``width`` columns of its FROM."""

    width: int
    calls: list[AggregateCall] = field(default_factory=list)
    call_names: list[str] = field(default_factory=list)
    extras: list[Extra] = field(default_factory=list)

    def add_call(self, call: AggregateCall, name: str) -> Column:
        """The column of ``call``; equal calls share one."""
        if call not in self.calls:
            self.calls.append(call)
            self.call_names.append(name)
        at = self.calls.index(call)
        return Column(AGGREGATES + at, self.call_names[at], call.type, call.nullable, call.pos)

    def add_extra(self, extra: Extra) -> Column:
        self.extras.append(extra)
        at = EXTRAS + len(self.extras) - 1
        return Column(at, extra.name, extra.type, True, extra.pos)

    def add_running(self, extra: Extra) -> Column:
        """The column of a running function; equal calls share one."""
        if extra not in self.extras:
            return self.add_extra(extra)
        at = EXTRAS + self.extras.index(extra)
        return Column(at, extra.name, extra.type, True, extra.pos)

    def _extras_in(self, expr: Expr) -> list[Extra]:
        return [self.extras[i - EXTRAS] for i in columns_of(expr) if EXTRAS <= i < OUTER]

    def holds_over(self, expr: Expr) -> bool:
        """Whether ``expr`` contains a function with OVER."""
        return any(extra.clause == OVER for extra in self._extras_in(expr))

    def running_in(self, expr: Expr) -> RunningCall | None:
        """A running function in ``expr``, if it contains one."""
        return next((e.running for e in self._extras_in(expr) if e.running is not None), None)


@dataclass(slots=True)
class Scope:
    """The visible names of one SELECT (or of ON)."""

    binder: Binder
    sources: tuple[Source, ...]
    columns: tuple[ScopeColumn, ...]
    env: Env
    window: QueryWindow | None = None
    #: select-list aliases, in order; the caller decides which clauses see the aliases
    aliases: list[tuple[str, Expr]] = field(default_factory=list)
    #: the window's aliases in the select list (``window(ts, '1 minute') AS w``), in lower case
    window_aliases: list[str] = field(default_factory=list)

    # ------------------------------------------------------------------ lookup

    def has(self, name: str) -> bool:
        return any(_same(c.name, name) for c in self.columns)

    def names_window(self, node: exp.Expr) -> bool:
        """Whether ``node`` names a whole window: ``window``, or an alias of a window."""
        if not isinstance(node, exp.Column) or len(node.parts) != 1 or self.has(node.name):
            return False
        name = node.name.lower()
        return name in self.window_aliases or (
            name in WINDOW_NAMES and self.window_parts(name) is not None
        )

    def window_parts(self, name: str) -> tuple[Expr, Expr] | None:
        """Start and end of the window ``name``: the window of this query, or the columns
        ``name_start`` and ``name_end`` of a query in FROM that selects a window. None if there is
        no window of this name."""
        folded = name.lower()
        own = folded in WINDOW_NAMES or folded in self.window_aliases
        if own and self.window is not None:
            return self.window.columns[0], self.window.columns[1]
        prefix = WINDOW_NAMES[0] if folded in WINDOW_NAMES else folded
        found = [
            [
                column.expr
                for column in self.columns
                if column.bare and not column.hidden and _same(column.name, f"{prefix}_{part}")
            ]
            for part in ("start", "end")
        ]
        if any(len(exprs) != 1 for exprs in found) or found[0][0].type != found[1][0].type:
            return None
        return found[0][0], found[1][0]

    def resolve(self, node: exp.Column, *, aliases_first: bool, aliases: bool) -> Expr:
        """The expression that a (qualified) name stands for. ``aliases``: select-list aliases
        count; ``aliases_first``: before the columns. Raises BindError with candidates."""
        parts = [p.name for p in node.parts]
        if len(parts) > 1:
            return self._qualified(node, parts[:-1], parts[-1], aliases)
        name = parts[0]
        quick = self._alias(node, name) if aliases_first and aliases else None
        found = quick or self._column(node, name)
        if found is None and aliases:
            found = self._alias(node, name)
        if found is None:
            found = self._hidden(name) or self.constant(node, name) or self._outer(node)
        if found is None:
            raise self._unknown(node, name, aliases)
        return found

    def _column(self, node: exp.Expr, name: str) -> Expr | None:
        found = [c for c in self.columns if c.bare and not c.hidden and _same(c.name, name)]
        pseudo = self._pseudo(name)
        if pseudo is not None and found:
            own = found[0].path
            column = (
                f"write {own}" if own != found[0].name else f"name the FROM item (… AS x): x.{own}"
            )
            raise self.binder.error(
                f"{name} is ambiguous: a column of the input, or of this query's window",
                node,
                hint=f"{column}, or window.{name.removeprefix('window_')} for this query's window",
            )
        if pseudo is not None:
            return replace(pseudo, pos=self.binder.pos(node))
        return self._only(node, name, found)

    def _only(self, node: exp.Expr, name: str, found: Sequence[ScopeColumn]) -> Expr | None:
        if len(found) > 1:  # a match in the same case wins, as in Schema.find
            exact = [c for c in found if c.name == name]
            found = exact if len(exact) == 1 else found
        if len(found) > 1:
            paths = [c.path for c in found]
            distinct = len(set(paths)) > 1
            raise self.binder.error(
                f"column {name} is ambiguous",
                node,
                hint="write " + " or ".join(paths)
                if distinct
                else f"{paths[0]} stands for {len(found)} columns: give them names of their own",
            )
        return self._with_position(found[0].expr, node) if found else None

    def _with_position(self, expr: Expr, node: exp.Expr) -> Expr:
        return replace(expr, pos=self.binder.pos(node))

    def _pseudo(self, name: str) -> Column | None:
        if self.window is None or self.window.is_table or name.lower() not in WINDOW_COLUMNS:
            return None
        return self.window.columns[WINDOW_COLUMNS.index(name.lower())]

    def _hidden(self, name: str) -> Expr | None:
        found = [c for c in self.columns if c.hidden and _same(c.name, name)]
        return found[0].expr if len(found) == 1 else None

    def _alias(self, node: exp.Expr, name: str) -> Expr | None:
        found = [expr for alias, expr in self.aliases if _same(alias, name)]
        if any(f != found[0] for f in found):
            raise self.binder.error(
                f"{name} is the alias of {len(found)} columns of the select list", node
            )
        return self._with_position(found[0], node) if found else None

    def _outer(self, node: exp.Column) -> Expr | None:
        """A column of the outer row, if this scope is that of a subquery in an expression."""
        if self.env.outer is None:
            return None
        outer = self.env.outer
        if len(node.parts) == 1 and not any(_same(c.name, node.name) for c in outer.columns):
            return None
        return around(outer.resolve(node, aliases_first=False, aliases=False))

    def constant(self, node: exp.Expr, name: str) -> Literal | None:
        """The constant or parameter ``name``, or None; a constant wins."""
        context, pos = self.binder.context, self.binder.pos(node)
        constant = context.constant(name)
        if constant is not None:
            return replace(constant, pos=pos)
        missing = object()
        parameters = {k: (v,) for k, v in context.parameters.items()}
        value = match_name(parameters, name) or missing
        return from_python(value[0], f"parameter {name}", pos) if isinstance(value, tuple) else None

    def _qualified(self, node: exp.Column, qualifier: list[str], name: str, aliases: bool) -> Expr:
        """``source.column``; if there is none, a field: ``source.column.field``, ``column.field``
        (in this order, as in Spark)."""
        sources = [s for s in self.sources if s.answers_to(qualifier)]
        if not sources:
            field = self._field(node, [*qualifier, name], aliases)
            return field or self._of_window(node, qualifier, name)
        if len(sources) > 1:
            raise self.binder.error(
                f"{'.'.join(qualifier)} is ambiguous",
                node,
                hint="give the FROM items aliases: " + ", ".join(str(s) for s in sources),
            )
        of_source = [c for c in self.columns if c.source is sources[0] and _same(c.name, name)]
        shown = [c for c in of_source if not c.hidden] or of_source
        found = self._only(node, name, shown)
        if found is None:
            pseudo = self._pseudo(name)
            found = self._with_position(pseudo, node) if pseudo else None
        if found is None:
            found = self._field(node, [*qualifier, name], aliases)
        if found is None:
            self._refuse_unsupported(node, name, sources)
            known = [c.name for c in self.columns if c.source is sources[0] and not c.hidden]
            raise self.binder.error(
                f"{sources[0]} has no column {name}",
                node,
                hint=did_you_mean(name, known, what="its columns"),
            )
        return found

    def _field(self, node: exp.Column, parts: list[str], aliases: bool) -> Expr | None:
        """A field of a struct, at any depth; None if the first parts name no struct."""
        for at in range(len(parts) - 2, -1, -1):
            qualifier, name = parts[:at], parts[at]
            found = [
                c
                for c in self.columns
                if not c.hidden
                and _same(c.name, name)
                and (c.source is not None and c.source.answers_to(qualifier) if at else c.bare)
            ]
            expr = self._only(node, name, found)
            if expr is None and not at and aliases:
                expr = self._alias(node, name)
            if expr is not None and (expr.type.is_nested or expr.type.is_of_structs):
                for part in parts[at + 1 :]:
                    expr = nested.field(expr, part, self.binder.pos(node))
                return expr
        return None

    def _of_window(self, node: exp.Column, qualifier: list[str], name: str) -> Expr:
        """A part of the window (``window.start``) or a column of the outer row. Raises BindError
        for an unknown qualifier."""
        own = qualifier[0].lower()
        named = own in WINDOW_NAMES or own in self.window_aliases
        part = name.lower()
        if len(qualifier) == 1 and named and self.window is not None and part in WINDOW_PARTS:
            return self._with_position(self.window.columns[WINDOW_PARTS.index(part)], node)
        parts = self.window_parts(own) if len(qualifier) == 1 and part in ("start", "end") else None
        if parts is not None and not self.has(own):
            return self._with_position(parts[part == "end"], node)
        if len(qualifier) == 1 and named:
            hint = f"{own}.start, {own}.end or {own}.time"
            what = "has no part " + name if self.window else "needs a window in this query"
            raise self.binder.error(f"{own} {what}", node, hint=hint)
        if self.env.outer is not None and (found := self._outer(node)) is not None:
            return found
        of = qualifier[:-1]
        alike = [c for c in self.columns if _same(c.name, qualifier[-1])]
        if any(not of or (c.source is not None and c.source.answers_to(of)) for c in alike):
            raise self.binder.error(
                f"column {qualifier[-1]} has no parts", node, hint="it is not a struct"
            )
        raise self.binder.error(
            f"there is no {'.'.join(qualifier)} in FROM",
            node,
            hint=did_you_mean(qualifier[-1], [s.name[-1] for s in self.sources], what="FROM has"),
        )

    def _unknown(self, node: exp.Column, name: str, aliases: bool) -> Exception:
        if not aliases and any(_same(alias, name) for alias, _ in self.aliases):
            return self.binder.error(
                f"{name} is an alias of the select list and not known here",
                node,
                hint="repeat the expression, or compute it in a subquery in FROM",
            )
        if name.lower() in WINDOW_COLUMNS:
            return self.binder.error(
                f"there is no window that {name} could belong to",
                node,
                hint="an aggregate over [RANGE …, SLIDE …], or FROM TUMBLE(…), has one",
            )
        self._refuse_unsupported(node, name, self.sources)
        context = self.binder.context
        known = {c.name for c in self.columns if not c.hidden}
        known |= {alias for alias, _ in self.aliases} if aliases else set()
        others = {*context.constants, *context.parameters}
        hint = did_you_mean(name, known, what="columns") or did_you_mean(name, others)
        if not known:
            hint = "there is no FROM; write strings in single quotes"
        elif node.this.args.get("quoted") and not (hint or "").startswith("did you mean"):
            hint = f"'{name}' in single quotes is a string"
        return self.binder.error(f"there is no column {name}", node, hint=hint)

    def _refuse_unsupported(self, node: exp.Column, name: str, sources: Sequence[Source]) -> None:
        for source in sources:
            for column, why in source.unsupported.items():
                if _same(column, name):
                    hint = None if "declare it" in why else "convert it where the data is made"
                    raise self.binder.error(f"{source}.{column} cannot be used: {why}", node, hint)

    # ------------------------------------------------------------------ stars

    def left_out(self, qualifier: Sequence[str] = ()) -> list[tuple[Source, str, str]]:
        """The columns that ``*`` or ``t.*`` leaves out because no query can use them: (source,
        name, reason)."""
        return [
            (source, column, why)
            for source in self.sources
            if not qualifier or source.answers_to(qualifier)
            for column, why in source.unsupported.items()
        ]

    def star(self, node: exp.Expr, qualifier: Sequence[str] = ()) -> list[ScopeColumn]:
        """The columns of ``*`` or ``t.*``."""
        if not self.columns and not self.sources:
            raise self.binder.error("* needs a FROM", node)
        if not qualifier:
            return [c for c in self.columns if c.shown and not c.hidden]
        sources = [s for s in self.sources if s.answers_to(qualifier)]
        if not sources and len(qualifier) <= 2:
            fields = self._fields(node, qualifier)
            if fields:
                return fields
        if len(sources) != 1:
            what = "is ambiguous" if sources else "is not in FROM"
            names = [s.name[-1] for s in self.sources]
            raise self.binder.error(
                f"{'.'.join(qualifier)} {what}",
                node,
                hint=did_you_mean(qualifier[-1], names, what="FROM has"),
            )
        return [c for c in self.columns if c.source is sources[0] and not c.hidden]

    def _fields(self, node: exp.Expr, path: Sequence[str]) -> list[ScopeColumn]:
        """The fields of the struct that ``path`` names; none if it names none."""
        column = exp.Column(this=exp.to_identifier(path[-1]))
        if len(path) > 1:
            column.set("table", exp.to_identifier(path[0]))
        if not any(_same(c.name, path[-1]) and c.expr.type.struct_fields for c in self.columns):
            return []
        value = self.resolve(column, aliases_first=False, aliases=False)
        names = [name for name, _ in value.type.struct_fields]
        pos = self.binder.pos(node)
        return [ScopeColumn(None, n, nested.field(value, n, pos)) for n in names]


def _same(a: str, b: str) -> bool:
    return a == b or a.lower() == b.lower()


def around(expr: Expr) -> Expr:
    """An expression over the outer row as a subquery reads the expression: each level of nesting
    adds ``OUTER`` to a column's index."""
    if isinstance(expr, Column):
        return replace(expr, index=OUTER + expr.index)
    return rebuild(expr, around)


def column_of(plan: Logical, at: int) -> Column:
    """Column ``at`` of a plan's output."""
    f = plan.schema[at]
    return Column(at, f.name, f.type, f.nullable)
