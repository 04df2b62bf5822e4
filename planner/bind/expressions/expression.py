"""Binds expressions: a syntax tree becomes typed nodes over a SELECT's virtual row (``scope``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

from sqlglot import exp

from cql.base import types as t
from cql.base.types import DataType
from cql.dialect.nodes import Duration, GroupWindow, TypedNumber
from cql.errors import BindError, did_you_mean
from cql.planner.bind.context import Binder
from cql.planner.bind.expressions import literals, parts, running
from cql.planner.bind.expressions import subquery as subqueries
from cql.planner.bind.expressions.calls import function_arguments, function_name, printed
from cql.planner.bind.scope import OVER, WINDOW_PARTS, Extra, Ranked, Row, Scope, Subquery
from cql.planner.functions import aggregates, registry, signals
from cql.planner.functions.holistic import WITH_LISTS
from cql.planner.functions.running import RUNNING, refused
from cql.planner.functions.signature import check_ordered
from cql.planner.nodes.expr import Case, Expr, Literal
from cql.planner.nodes.logical import WINDOW_COLUMNS, SortKey
from cql.planner.nodes.rewrite import replace

Node: TypeAlias = exp.Expr

_BINARY: dict[type[exp.Expr], str] = {
    exp.Add: "add",
    exp.Sub: "sub",
    exp.Mul: "mul",
    exp.Div: "div",
    exp.IntDiv: "int_div",
    exp.Mod: "mod",
    exp.EQ: "eq",
    exp.NEQ: "ne",
    exp.LT: "lt",
    exp.LTE: "le",
    exp.GT: "gt",
    exp.GTE: "ge",
    exp.NullSafeEQ: "null_safe_eq",
    exp.NullSafeNEQ: "is_distinct_from",
    exp.And: "and",
    exp.Or: "or",
    exp.RegexpLike: "rlike",
    exp.BitwiseAnd: "bit_and",
    exp.BitwiseOr: "bit_or",
    exp.BitwiseXor: "bit_xor",
    exp.BitwiseLeftShift: "shiftleft",
    exp.BitwiseRightShift: "shiftright",
    exp.DPipe: "concat",
}
_UNARY: dict[type[exp.Expr], str] = {exp.Not: "not", exp.BitwiseNot: "bit_not"}
#: sqlglot's function nodes whose first SQL name is not the name in the registry.
#: Arguments of sqlglot's nodes that change the meaning of an operator; they are refused.
_REFUSED_ARGUMENTS: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.Between: ("symmetric",),
    exp.In: ("unnest", "field", "is_global"),
    exp.RegexpLike: ("flag", "full_match"),
    exp.Trim: ("collation",),
}
#: Functions that exist only with OVER, with their result type (None: the argument's type).
_OVER_ONLY: dict[str, DataType | None] = {
    "row_number": t.INT,
    "rank": t.INT,
    "dense_rank": t.INT,
    "ntile": t.INT,
    "percent_rank": t.DOUBLE,
    "cume_dist": t.DOUBLE,
    "lag": None,
    "lead": None,
    "nth_value": None,
}
#: Functions that may take a unit without quotes as the first of three arguments.
_WITH_UNITS = ("datediff", "date_diff", "timestampdiff", "dateadd", "date_add", "timestampadd")
#: Flink's auxiliary functions of a group window, with the index of the window's part.
AUXILIARY = {
    f"{kind}_{word}": at
    for kind in ("tumble", "hop", "session")
    for word, at in (("start", 0), ("end", 1), ("rowtime", 2))
}
_NO_STRUCT = "write window.start or window.end: a window itself is no value"


def is_default(node: Node) -> bool:
    """Whether ``node`` is the word DEFAULT without quotes (which can also name a column)."""
    bare = isinstance(node, exp.Column) and len(node.parts) == 1
    return bare and node.name.upper() == "DEFAULT" and not node.this.args.get("quoted")


@dataclass(frozen=True, slots=True)
class _Arguments:
    """The arguments of an aggregate. ``listed``: the last ones stood in an ``array(…)``."""

    args: list[Expr]
    distinct: bool
    order: list[SortKey]
    listed: bool


@dataclass(frozen=True, slots=True)
class ExprBinder:
    """Binds expressions of one clause.

    ``clause`` is the clause's name in error messages. ``row`` None refuses aggregates, subqueries
    and OVER. ``aliases`` says when a name may match an alias of the select list: never (None),
    after the columns ("last"), or before the columns ("first").
    """

    binder: Binder
    scope: Scope
    row: Row | None
    clause: str
    aggregates: bool = False
    aliases: str | None = None

    def bind(self, node: Node) -> Expr:
        """The typed expression. Raises BindError or NotSupportedError at the place of the fault,
        and PlanError for an expression that is too large."""
        made = self._bound(node)
        self.binder.check_size(made, node)
        return made

    def _bound(self, node: Node) -> Expr:
        kind = type(node)
        for key in _REFUSED_ARGUMENTS.get(kind, ()):
            if node.args.get(key):
                raise self.binder.unsupported(f"{kind.__name__.upper()} … {key.upper()}", node)
        if kind in _BINARY:
            args = [self.bind(node.this), self.bind(node.expression)]
            if kind is exp.Div and all(a.type.is_integer for a in args):
                self.binder.divided = node
            return registry.resolve(_BINARY[kind], args, self.binder.pos(node))
        pos = self.binder.pos(node)
        if kind in _UNARY:
            return registry.resolve(_UNARY[kind], [self.bind(node.this)], pos)
        match node:
            case exp.Paren():
                return self.bind(node.this)
            case exp.Column():
                return self._column(node)
            case exp.Literal():
                if node.is_string:
                    return Literal(node.name, t.STRING, pos)
                return literals.number(node.name, pos)
            case TypedNumber():
                return literals.typed_number(str(node.this), node.args["kind"], pos)
            case exp.HexString():
                return Literal(bytes.fromhex(str(node.this)), t.BINARY, pos)
            case exp.Boolean():
                return Literal(bool(node.this), t.BOOLEAN, pos)
            case exp.Null():
                return Literal(None, t.NULL, pos)
            case exp.Neg():
                return self._negated(node)
            case exp.Interval() | Duration():
                return literals.interval(node, pos)
            case exp.Placeholder():
                return parameter(self.binder, node)
            case exp.Cast() | exp.TryCast():
                return self._cast(node)
            case exp.Case():
                return self._case(node)
            case exp.Is():
                return self._is(node)
            case exp.Between():
                return self._between(node)
            case exp.In():
                return self._in(node)
            case exp.Like() | exp.ILike() | exp.Escape():
                return self._like(node)
            case exp.Exists() | exp.Subquery() | exp.Select() | exp.SetOperation():
                return self._subquery(node)
            case exp.Window():
                return self._over(node)
            case GroupWindow():
                raise self.binder.unsupported("a window as a value", node, _NO_STRUCT)
            case exp.Dot():
                return self._dot(node)
            case exp.Bracket():
                return parts.item(self.binder, node, self.bind)
            case exp.Struct():
                return parts.struct(self.binder, node, self.bind)
            case exp.Star():
                raise self.binder.error("* stands only in a select list and in count(*)", node)
            case exp.Alias():
                raise self.binder.error("an alias (AS) has no place here", node)
            case exp.Filter() | exp.WithinGroup() | exp.IgnoreNulls() | exp.RespectNulls():
                return self._aggregate(node)
            case exp.AggFunc():
                return self._aggregate(node)
            case exp.Func():
                return self._function(node)
        raise self.binder.unsupported(f"{_shown(node)} in an expression", node)

    def condition(self, node: Node, part: str | None = None) -> Expr:
        """Binds a boolean expression. ``part`` names it in error messages, in place of the
        clause."""
        bound = self.bind(node)
        if bound.type not in (t.BOOLEAN, t.NULL):
            raise self.binder.error(
                f"{part or self.clause} needs a condition, not a value of type {bound.type}", node
            )
        return registry.cast(bound, t.BOOLEAN, bound.pos)

    # ------------------------------------------------------------------ names

    def _column(self, node: exp.Column) -> Expr:
        if isinstance(node.this, exp.Star):
            raise self.binder.error("* stands only in a select list and in count(*)", node)
        if self.scope.names_window(node):
            raise self.binder.unsupported("a window as a value", node, _NO_STRUCT)
        default = self.binder.defaults.get(id(node))
        if default is not None and not self.scope.has(node.name):
            return default
        first = self.aliases == "first"
        try:
            found = self.scope.resolve(node, aliases_first=first, aliases=self.aliases is not None)
        except BindError:
            if is_default(node):
                raise self.binder.error(
                    "DEFAULT stands for a whole value, in VALUES or the select list of an INSERT",
                    node,
                    hint="an INSERT whose list of columns leaves one out stores its default, too",
                ) from None
            raise
        if self.row is not None and self.clause in _BEFORE_OVER and self.row.holds_over(found):
            raise before_over(self.binder, self.clause, node)  # an alias
        late = None if self.row is None else self.row.running_in(found)
        if late is not None and self.clause != "SELECT":
            raise refused(late.fn, f"in {self.clause}", self.binder.pos(node))
        return found

    def _dot(self, node: exp.Dot) -> Expr:
        """``window(ts, '1 minute').start``, or a field of a struct."""
        if isinstance(node.this, GroupWindow) and node.expression.name.lower() in WINDOW_PARTS:
            return self._window_part(node, WINDOW_PARTS.index(node.expression.name.lower()))
        return parts.field(self.binder, node, self.bind)

    def _window_part(self, node: Node, at: int) -> Expr:
        if self.scope.window is None:
            raise self.binder.error(
                "there is no window here", node, hint=f"{self.clause} is computed before the window"
            )
        return replace(self.scope.window.columns[at], pos=self.binder.pos(node))

    # ------------------------------------------------------------------ operators

    def _negated(self, node: exp.Neg) -> Expr:
        pos = self.binder.pos(node)
        inner = node.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return literals.number(f"-{inner.name}", pos)  # 2^63 without the sign does not fit
        if isinstance(inner, TypedNumber):
            return literals.typed_number(f"-{inner.this}", inner.args["kind"], pos)
        return registry.resolve("neg", [self.bind(inner)], pos)

    def _cast(self, node: exp.Cast | exp.TryCast) -> Expr:
        pos, inner = self.binder.pos(node), node.this
        to = literals.data_type(node.args["to"], self.binder.pos(node.args["to"]) or pos)
        safe = isinstance(node, exp.TryCast)
        made = replace(registry.cast(self.bind(inner), to, pos, safe=safe), pos=pos)
        is_text = isinstance(inner, exp.Literal) and inner.is_string
        if is_text and (to.is_timestamp or to == t.DATE) and not isinstance(made, Literal):
            # DATE '…' and TIMESTAMP '…' are literals: a wrong one fails here, not in each row.
            form = "YYYY-MM-DD" if to == t.DATE else "YYYY-MM-DD hh:mm:ss[.ffffff][+hh:mm]"
            raise self.binder.error(
                f"'{inner.name[:40]}' is not a {to}", node, hint=f"write '{form}'"
            )
        return made

    def _case(self, node: exp.Case) -> Expr:
        pos, operand = self.binder.pos(node), node.args.get("this")
        tested = self.bind(operand) if operand is not None else None
        conditions: list[Expr] = []
        for branch in node.args["ifs"]:
            if tested is None:
                conditions.append(self.condition(branch.this, "WHEN"))
            else:
                args = [tested, self.bind(branch.this)]
                conditions.append(registry.resolve("eq", args, self.binder.pos(branch)))
        values = [self.bind(branch.args["true"]) for branch in node.args["ifs"]]
        default = node.args.get("default")
        if default is not None:
            values.append(self.bind(default))
        unified = registry.unify(values, pos, "CASE")
        otherwise = unified.pop() if default is not None else None
        nullable = otherwise is None or any(v.nullable for v in (*unified, otherwise))
        branches = tuple(zip(conditions, unified, strict=True))
        return Case(branches, otherwise, unified[0].type.without_length, nullable, pos)

    def _is(self, node: exp.Is) -> Expr:
        pos, value, against = self.binder.pos(node), self.bind(node.this), node.expression
        negated = bool(node.args.get("negate"))
        if isinstance(against, exp.Not):
            negated, against = not negated, against.this
        if isinstance(against, exp.Null):
            made = registry.resolve("is_null", [value], pos)
        else:
            made = registry.resolve("null_safe_eq", [value, self.bind(against)], pos)
        return registry.resolve("not", [made], pos) if negated else made

    def _between(self, node: exp.Between) -> Expr:
        pos, value = self.binder.pos(node), self.bind(node.this)
        low, high = self.bind(node.args["low"]), self.bind(node.args["high"])
        both = [
            registry.raw_comparison("ge")((value, low), pos),
            registry.raw_comparison("le")((value, high), pos),
        ]
        return registry.resolve("and", both, pos)

    def _in(self, node: exp.In) -> Expr:
        query = node.args.get("query")
        if query is not None:
            return self._in_subquery(node, query)
        items = [self.bind(item) for item in node.expressions]
        if not items:
            raise self.binder.error("IN needs at least one value", node)
        return registry.resolve("in_list", [self.bind(node.this), *items], self.binder.pos(node))

    def _like(self, node: Node) -> Expr:
        escape: list[Expr] = []
        like = node
        if isinstance(node, exp.Escape):
            like, escape = node.this, [self.bind(node.expression)]
        name = "ilike" if isinstance(like, exp.ILike) else "like"
        pos, patterns, joined = self.binder.pos(like), [like.expression], "or"
        several = like.expression
        if isinstance(several, exp.Anonymous) and several.name.upper() in ("ANY", "SOME", "ALL"):
            patterns = several.expressions
            joined = "and" if several.name.upper() == "ALL" else "or"
        this = self.bind(like.this)
        made = [registry.resolve(name, [this, self.bind(p), *escape], pos) for p in patterns]
        if like.args.get("negate"):  # NOT LIKE ANY is true if one pattern does not match
            made = [registry.resolve("not", [one], pos) for one in made]
        return reduce(lambda a, b: registry.resolve(joined, [a, b], pos), made)

    # ------------------------------------------------------------------ functions

    def _function(self, node: exp.Func) -> Expr:
        name, pos = function_name(node), self.binder.pos(node)
        if name in AUXILIARY:
            return self._window_part(node, AUXILIARY[name])
        if name == "window_time" and self.scope.window is not None:
            return self._window_part(node, WINDOW_COLUMNS.index(name))
        if self._is_aggregate(name):
            return self._aggregate(node)
        if name in _OVER_ONLY:
            raise self.binder.error(f"{name}() needs OVER (…)", node)
        if name in RUNNING:
            return running.bound(self, node)
        arguments = function_arguments(node)
        if any(isinstance(a, exp.Star) for a in arguments):
            raise self.binder.error(f"{name}(*) is not a function; count(*) is", node)
        args: list[Expr] = []
        if isinstance(node, exp.Extract):
            args.append(Literal(node.name, t.STRING, pos))
        elif name in _WITH_UNITS and len(arguments) == 3:
            args.append(self._unit(arguments.pop(0), name))
        args += [self.bind(a) for a in arguments]
        return registry.resolve(name, args, pos, self.binder.context.signatures)

    def _unit(self, node: Node, name: str) -> Literal:
        """The unit of ``timestampdiff(HOUR, …)``, which is a word without quotes."""
        word = node.name if isinstance(node, exp.Column) and len(node.parts) == 1 else None
        if isinstance(node, exp.Literal) and node.is_string:
            hint = f"{name}({node.name}, …) counts whole units; date_trunc the times for boundaries"
            raise self.binder.error(f"the unit of {name} is a word without quotes", node, hint)
        if word is None or node.this.args.get("quoted"):
            raise self.binder.error(
                f"{name} of three arguments takes a unit first", node, f"{name}(HOUR, …)"
            )
        return Literal(word, t.STRING, self.binder.pos(node))

    def _aggregate(self, node: Node) -> Expr:
        row = self.row
        where_node = None
        call = node
        if isinstance(call, exp.Filter):
            call, where_node = call.this, call.expression.this
        if isinstance(call, exp.IgnoreNulls | exp.RespectNulls):
            raise self.binder.unsupported("IGNORE NULLS", call, "FILTER (WHERE x IS NOT NULL)")
        within: exp.Expr | None = None
        if isinstance(call, exp.WithinGroup):
            call, within = call.this, call.expression
        if not isinstance(call, exp.Func):
            raise self.binder.error("FILTER belongs to an aggregate", node)
        name = function_name(call)
        if name in _OVER_ONLY:
            raise self.binder.error(f"{name}() needs OVER (…)", call)
        if not self._is_aggregate(name):
            if where_node is not None:
                raise self.binder.error(f"{name} is no aggregate: FILTER has no place here", call)
            if within is not None:
                raise self.binder.error(
                    f"{name} is no aggregate: WITHIN GROUP has no place here", call
                )
            # The registry refuses a name that is neither an aggregate nor a function.
            args = [self.bind(a) for a in function_arguments(call)]
            own = self.binder.context.signatures
            return registry.resolve(name, args, self.binder.pos(call), own)
        if where_node is None and within is None:
            over_segment = self._over_segment(call, name)
            if over_segment is not None:
                return over_segment
        if row is None or not self.aggregates:
            hint = "HAVING is computed after the aggregates" if self.clause == "WHERE" else None
            raise self.binder.error(f"{self.clause} cannot hold the aggregate {name}", call, hint)
        given = self._aggregate_arguments(call)
        order = given.order if within is None else self._keys(within)
        if within is not None and given.order:
            raise self.binder.error("an aggregate is ordered inside or WITHIN GROUP", within)
        where = None
        if where_node is not None:
            where = replace(self._inside_aggregate(), clause="FILTER").condition(where_node)
        mine = self.binder.context.aggregate(name)
        pos = self.binder.pos(call)
        if mine is not None:
            if given.listed:
                raise self.binder.error(f"{name} takes no array", call, f"usage: {mine.usage}")
            if order or within is not None:
                word = "WITHIN GROUP" if within is not None else "ORDER BY"
                raise self.binder.error(f"{name} takes no {word}", call, f"usage: {mine.usage}")
            made = mine.resolve(given.args, given.distinct, where, pos)
        else:
            args = given.args
            if name == "count" and len(args) > 1 and not given.distinct:
                # count(a, b) counts the rows in which no argument is NULL.
                known = [registry.resolve("is_not_null", [arg], pos) for arg in args]
                conditions = [where, *known] if where is not None else known
                where = reduce(lambda a, b: registry.resolve("and", [a, b], pos), conditions)
                args = []
            made = aggregates.resolve_aggregate(
                name,
                args,
                given.distinct,
                where,
                pos,
                order=order,
                within=within is not None,
                listed=given.listed,
            )
        return row.add_call(made, printed(node))

    def _over_segment(self, call: exp.Func, name: str) -> Expr | None:
        """The aggregate ``name`` of the samples of a segment; None if the call is of rows."""
        columns, nodes = self.scope.columns, function_arguments(call)
        given = any(c.expr.type.kind is t.Kind.SIGNAL for c in columns)
        if not given or len(nodes) != 1 or not signals.is_over_segments(name):
            return None
        if isinstance(nodes[0], exp.Star | exp.Distinct | exp.Order):
            return None
        found = replace(self, aggregates=False).bind(nodes[0])
        if found.type.kind is not t.Kind.SIGNAL:
            return None
        return signals.over_segment(name, found, self.binder.pos(call))

    def _is_aggregate(self, name: str) -> bool:
        own = self.binder.context.aggregate(name)
        return own is not None or aggregates.is_aggregate(name)

    def _inside_aggregate(self) -> ExprBinder:
        return replace(self, aggregates=False, aliases=None, clause="an aggregate")

    def _aggregate_arguments(self, call: exp.Func) -> _Arguments:
        nodes = function_arguments(call)
        order: list[SortKey] = []
        for at, node in enumerate(nodes):
            if isinstance(node, exp.Order):  # ORDER BY behind the last argument
                order += self._keys(node)
                nodes[at] = node.this
        distinct = bool(nodes) and isinstance(nodes[0], exp.Distinct)
        if distinct:
            nodes = [*nodes[0].expressions, *nodes[1:]]
            for at, node in enumerate(nodes):
                if isinstance(node, exp.Order):
                    order += self._keys(node)
                    nodes[at] = node.this
        inside = self._inside_aggregate()
        if len(nodes) == 1 and isinstance(nodes[0], exp.Star):
            if function_name(call) != "count" or distinct:
                raise self.binder.error("only count takes *", call)
            return _Arguments([], False, [], False)
        takes_list = function_name(call) in WITH_LISTS
        listed = takes_list and bool(nodes) and isinstance(nodes[-1], exp.Array)
        if listed:
            nodes = [*nodes[:-1], *nodes[-1].expressions]
        return _Arguments([inside.bind(node) for node in nodes], distinct, order, listed)

    def _keys(self, order: exp.Expr) -> list[SortKey]:
        """The keys of ORDER BY inside an aggregate."""
        inside = self._inside_aggregate()
        found = []
        for o in order.expressions:
            descending, written = bool(o.args.get("desc")), o.args.get("nulls_first")
            nulls_first = not descending if written is None else bool(written)
            found.append(SortKey(inside.bind(o.this), descending, nulls_first))
        return found

    # ------------------------------------------------------------------ subqueries and OVER

    def _extra(self, extra: Extra, node: Node) -> Expr:
        if self.row is None:
            hint = None
            if self.clause == "ON" and extra.subquery is not None:
                hint = "ask it in WHERE, or in a subquery of the side that it reads"
            raise self.binder.unsupported(f"{extra.clause} in {self.clause}", node, hint)
        return self.row.add_extra(extra)

    def _subquery(self, node: Node) -> Expr:
        """A scalar subquery or EXISTS. The subquery is bound in any case, so that its errors
        show."""
        query = node.this if isinstance(node, exp.Exists) else node
        bound = self.binder.query(query, self.scope.env.under(self.scope))
        if isinstance(node, exp.Exists):
            subquery = subqueries.exists(self.binder, bound, node)
            return self._subquery_column("EXISTS (subquery)", t.BOOLEAN, subquery, node)
        subquery = subqueries.scalar(self.binder, bound, node)
        return self._subquery_column("a scalar subquery", subquery.value_type, subquery, node)

    def _subquery_column(
        self, clause: str, type_: DataType, subquery: Subquery, node: Node
    ) -> Expr:
        pos = self.binder.pos(node)
        return self._extra(Extra(clause, printed(node), type_, subquery=subquery, pos=pos), node)

    def _in_subquery(self, node: exp.In, query: Node) -> Expr:
        if isinstance(node.this, exp.Tuple):
            hint = "EXISTS (SELECT 1 FROM r WHERE r.a = s.a AND r.b = s.b)"
            raise self.binder.unsupported("several values IN (subquery)", node, hint)
        value = self.bind(node.this)
        bound = self.binder.query(query, self.scope.env.under(self.scope))
        related = subqueries.is_in_related(self.binder, value, bound, node)
        if related is None:
            subquery = subqueries.is_in(self.binder, value, bound, node)
            return self._subquery_column("IN (subquery)", t.BOOLEAN, subquery, node)
        there, unknown = related
        found = self._subquery_column("IN (subquery)", t.BOOLEAN, there, node)
        if unknown is None:
            return found
        is_null = self._subquery_column("IN (subquery)", t.BOOLEAN, unknown, node)
        yes, no, null = (Literal(value, t.BOOLEAN) for value in (True, False, None))
        pos = self.binder.pos(node)
        return Case(((found, yes), (is_null, null)), no, t.BOOLEAN, True, pos)

    def _over(self, node: exp.Window) -> Expr:
        """``f(…) OVER (PARTITION BY … ORDER BY …)``: checks names and types."""
        if self.clause in _BEFORE_OVER:
            raise before_over(self.binder, self.clause, node)
        inner: Node = node.this
        while isinstance(inner, exp.IgnoreNulls | exp.RespectNulls | exp.Filter):
            inner = inner.this
        if not isinstance(inner, exp.Func):
            raise self.binder.error("OVER belongs to a function", node)
        partition, keys = self._over_parts(node)
        name = function_name(inner)
        numbers = name == "row_number" and keys and node.args.get("spec") is None
        arguments = [a for a in function_arguments(inner) if not isinstance(a, exp.Star)]
        if len(arguments) == 1 and isinstance(arguments[0], exp.Distinct):
            arguments = list(arguments[0].expressions)
        inside = replace(self, clause=OVER)
        args = [inside.bind(a) for a in arguments]
        return self._extra(
            Extra(
                OVER,
                printed(node),
                self._over_type(inner, name, args),
                "ROW_NUMBER() OVER (… ORDER BY …) is, without a frame"
                if name in _OVER_ONLY
                else "a window in FROM, as in FROM s [RANGE 1 MINUTE, SLIDE 1 MINUTE], groups rows",
                ranked=Ranked(partition, keys) if numbers else None,
                pos=self.binder.pos(node),
            ),
            node,
        )

    def _over_type(self, node: Node, name: str, args: Sequence[Expr]) -> DataType:
        if name in _OVER_ONLY:
            fixed = _OVER_ONLY[name]
            if fixed is not None:
                return fixed
            if not args:
                raise self.binder.error(f"{name}() needs an argument", node)
            return args[0].type.without_length
        if name in RUNNING:
            raise refused(name, "with OVER", self.binder.pos(node))
        if not self._is_aggregate(name):
            known = (*_OVER_ONLY, *aggregates.AGGREGATES)
            hint = did_you_mean(name, known, few=0) or f"window functions: {', '.join(_OVER_ONLY)}"
            raise self.binder.error(f"{name} cannot stand before OVER", node, hint)
        pos = self.binder.pos(node)
        mine = self.binder.context.aggregate(name)
        if mine is not None:
            return mine.resolve(args, False, None, pos).type
        return aggregates.resolve_aggregate(name, list(args), False, None, pos).type

    def _over_parts(self, node: exp.Window) -> tuple[tuple[Expr, ...], tuple[SortKey, ...]]:
        """The keys of PARTITION BY and of ORDER BY in OVER (…)."""
        window: Node = node
        named = node.args.get("alias")
        if named is not None:
            window = self._named_window(node, named.name)
        inside = replace(self, clause=OVER)
        partition = tuple(inside.bind(part) for part in window.args.get("partition_by") or ())
        order = window.args.get("order")
        keys = []
        for ordered in order.expressions if order else ():
            expr = inside.bind(ordered.this)
            check_ordered(expr, "ORDER BY", None)
            descending, nulls_first = direction(ordered)
            keys.append(SortKey(expr, descending, nulls_first))
        return partition, tuple(keys)

    def _named_window(self, node: exp.Window, name: str) -> Node:
        select = node.find_ancestor(exp.Select)
        known = {w.name: w for w in (select.args.get("windows") if select else None) or ()}
        if name not in known:
            raise self.binder.error(
                f"there is no window {name}", node, did_you_mean(name, known, what="windows")
            )
        found: Node = known[name]
        return found


def before_over(binder: Binder, clause: str, node: Node) -> BindError:
    """The error for a ``clause`` that contains a function with OVER, directly or by an alias."""
    return binder.error(
        f"{clause} cannot hold a function with OVER: it is computed before",
        node,
        hint="compute it in a subquery in FROM: FROM (SELECT …, ROW_NUMBER() OVER (…) AS n"
        " …) WHERE n <= 3",
    )


def direction(ordered: Node) -> tuple[bool, bool]:
    """Whether a key of ORDER BY descends, and whether its NULLs come first. The default is Spark's:
    NULLs first in ascending order, last in descending order."""
    descending = bool(ordered.args.get("desc"))
    written = ordered.args.get("nulls_first")
    return descending, (not descending) if written is None else bool(written)


def parameter(binder: Binder, node: exp.Expr) -> Literal:
    """The value of the parameter ``:name``. Raises BindError if it has no value."""
    parameters = binder.context.parameters
    if node.name not in parameters:
        hint = did_you_mean(node.name, parameters, what="given")
        raise binder.error(
            f"parameter :{node.name} has no value",
            node,
            hint=hint or f"pass it, as in sql(text, {node.name}=…) or --param {node.name}=…",
        )
    return literals.from_python(parameters[node.name], f"parameter :{node.name}", binder.pos(node))


#: Clauses that are computed before functions with OVER.
_BEFORE_OVER = ("WHERE", "GROUP BY", "HAVING", "FILTER", "an aggregate", OVER)


def is_reserved(name: str) -> bool:
    """Whether ``name`` has a meaning here although no registry has a function of this name."""
    folded = name.lower()
    windows = folded in AUXILIARY or folded in ("window", "window_time")
    return windows or folded in _OVER_ONLY


def _shown(node: exp.Expr) -> str:
    return type(node).__name__.lower()
