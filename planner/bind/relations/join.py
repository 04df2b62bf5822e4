"""Binds joins: FROM items from left to right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from cql.base.model import Schema
from cql.base.types import Kind
from cql.dialect import nodes
from cql.errors import Position, did_you_mean
from cql.planner.bind.context import Binder, Env, fold
from cql.planner.bind.expressions.expression import ExprBinder
from cql.planner.bind.scope import QueryWindow, Scope, ScopeColumn, Source, column_of
from cql.planner.functions import nested, registry
from cql.planner.nodes.expr import (
    Case,
    Column,
    Expr,
    Literal,
    columns_of,
    conjunction,
    conjuncts,
)
from cql.planner.nodes.logical import ASOF, Filter, Join, Logical, Project, Unnest, Values
from cql.planner.optimize.changelog import as_side, is_of_updates, is_relation
from cql.planner.optimize.join_condition import compares_equal


@dataclass(frozen=True, slots=True)
class Item:
    """A bound FROM item. The last ``hidden`` columns of its plan are window columns of a derived
    stream. ``plan`` does not yet apply ``window`` (the aggregate above may do so)."""

    plan: Logical
    hidden: int
    source: Source | None
    window: QueryWindow | None = None

    @property
    def width(self) -> int:
        return len(self.plan.schema) - self.hidden


def scope_of(binder: Binder, items: Sequence[Item], plan: Logical, env: Env) -> Scope:
    """The scope of the columns of ``items``, left to right, with the types of ``plan`` (outer joins
    make columns nullable)."""
    columns: list[ScopeColumn] = []
    for item in items:
        offset = len(columns)
        for k in range(len(item.plan.schema)):
            column = column_of(plan, offset + k)
            hidden = k >= item.width
            columns.append(
                ScopeColumn(item.source, column.name, column, shown=not hidden, hidden=hidden)
            )
    sources = tuple(i.source for i in items if i.source is not None)
    return Scope(binder, sources, tuple(columns), env)


#: Clauses that UNNEST cannot have, by the key of the syntax tree.
_NOT_UNNESTED = {
    nodes.STREAM_WINDOW: "a window",
    nodes.FROM_WATERMARK: "WATERMARK",
    "version": "AS OF",
    "using": "USING",
    "match_condition": "MATCH_CONDITION",
}


def is_unnest(node: exp.Expr) -> bool:
    """Whether an item of FROM is ``UNNEST(…)``."""
    inner = node.this if isinstance(node, exp.Table) else None
    return isinstance(inner, exp.Func) and inner.name.lower() == "unnest"


@dataclass(frozen=True, slots=True)
class Merged:
    """A column of USING: the first value of the columns ``parts`` that is not NULL. The columns
    ``hides`` are visible only through this column."""

    name: str
    parts: tuple[int, ...]
    hides: frozenset[int]


class JoinChain:
    """Joins from left to right; USING merges columns."""

    def __init__(self, binder: Binder, env: Env, first: Item) -> None:
        self.binder = binder
        self.env = env
        self.items = [first]
        self.plan = first.plan
        self.merged: list[Merged] = []
        self._key = first.plan.update_key  # of ``plan``

    def scope(self) -> Scope:
        made = scope_of(self.binder, self.items, self.plan, self.env)
        hidden = {index for merged in self.merged for index in merged.hides}
        first = [ScopeColumn(None, m.name, self._value(m)) for m in self.merged]
        rest = [
            replace(c, shown=False, bare=False) if columns_of(c.expr) <= hidden else c
            for c in made.columns
        ]
        return replace(made, columns=(*first, *rest))

    def _value(self, merged: Merged) -> Expr:
        parts = [column_of(self.plan, index) for index in merged.parts]
        return parts[0] if len(parts) == 1 else registry.resolve("coalesce", parts, None)

    def add(self, right: Item, join: exp.Join) -> None:
        """Joins ``right``, whose plan already applies its window."""
        self._check_alias(right, join)
        if join.this.args.get("joins"):
            raise self.binder.unsupported("a nested join", join.this, "join one after the other")
        if join.this.args.get("version") is not None:
            self._temporal(right, join)
            return
        kind = self._kind(join)
        beside = self._beside(right, "cross", join)
        condition = self._condition(join, right, beside, kind)
        made = Join(self.plan, right.plan, kind, condition, self.binder.pos(join))
        self.plan = self._of_updates(made, join)
        if kind not in ("semi", "anti"):
            if self._key is None and right.plan.update_key is not None:
                self._key = tuple(len(made.left.schema) + k for k in right.plan.update_key)
            self.items.append(right)
            self.merged = beside.merged

    def _of_updates(self, made: Join, join: exp.Join) -> Join:
        """``made``, in which update streams are relations, unless it looks their rows up in a
        table. Update streams with the same key are joined on it, so that each row of the output
        has one key (UpStream report, section 3.2); a window says that a side is a plain relation.
        """
        streams = is_of_updates(made.left) or is_of_updates(made.right)
        if not streams or made.looks_up or made.kind in ASOF:
            return made
        implied = self._same_keys(made)
        if implied:
            names = ", ".join(one.name for one, _ in implied)
            self.binder.warn(
                f"update streams are joined on their update key, too: {names}. With a window, such"
                " as [PARTITION BY k ROWS 1], a side is a relation that is joined as written",
                join,
            )
            pos = self.binder.pos(join)
            equal = [registry.resolve("null_safe_eq", pair, pos) for pair in implied]
            parts = [*([] if made.condition is None else [made.condition]), *equal]
            kind = "inner" if made.kind == "cross" else made.kind
            made = replace(made, condition=conjunction(parts), kind=kind)
        return replace(made, left=as_side(made.left), right=as_side(made.right))

    def _same_keys(self, made: Join) -> list[tuple[Column, Column]]:
        """The columns of the update keys of both sides, if they have the same names and types; but
        those whose equality is written."""
        mine, theirs = self._key or (), made.right.update_key or ()
        width = len(made.left.schema)
        left = [column_of(made.left, at) for at in mine]
        right = [
            replace(c, index=width + c.index) for c in (column_of(made.right, k) for k in theirs)
        ]
        if [(c.name.lower(), c.type) for c in left] != [(c.name.lower(), c.type) for c in right]:
            return []
        written = [] if made.condition is None else conjuncts(made.condition)
        pairs = zip(left, right, strict=True)
        return [p for p in pairs if not any(_relates(part, *p) for part in written)]

    def unnest(self, join: exp.Join) -> None:
        """Joins ``UNNEST(array) AS u (element)``: each row with each element of its array. Structs
        may have a name for each field: ``AS u (a, b)``."""
        node, pos = join.this, self.binder.pos(join.this)
        for key, what in _NOT_UNNESTED.items():
            if node.args.get(key) or join.args.get(key):
                raise self.binder.unsupported(f"UNNEST with {what}", node)
        kind = self._kind(join)
        if kind not in ("inner", "cross", "left"):
            raise self.binder.unsupported(
                f"a {kind.upper()} JOIN with UNNEST", join, "CROSS JOIN and LEFT JOIN … ON TRUE are"
            )
        array = self._array(node)
        alias = node.args.get("alias")
        names = [c.name for c in alias.args.get("columns") or ()] if alias is not None else []
        fields = array.type.element.fields if array.type.element is not None else ()
        if len(names) > 1 and len(names) != len(fields):
            what = f"{len(fields)} columns, the fields of" if fields else "one column,"
            raise self.binder.error(f"UNNEST gives {what} the elements", alias)
        called = alias.name if alias is not None else ""
        name = names[0] if names else called or "col"
        made: Logical = Unnest(self.plan, array, name, kind == "left", pos)
        if len(names) > 1:
            made = _with_fields(made, names, pos)
        columns = made.schema.fields[len(self.plan.schema) :]
        right = Item(Values(Schema(columns)), 0, Source((called or name,)))
        self._check_alias(right, join)
        self.plan = made
        self.items.append(right)
        if join.args.get("on") is None:
            return
        condition = ExprBinder(self.binder, self.scope(), None, "ON").condition(join.args["on"])
        if kind == "left" and not (isinstance(condition, Literal) and condition.value is True):
            raise self.binder.unsupported(
                "LEFT JOIN UNNEST with a condition", join.args["on"], "LEFT JOIN … ON TRUE is"
            )
        if kind != "left":
            self.plan = Filter(made, condition, condition.pos)

    def _array(self, node: exp.Expr) -> Expr:
        args = node.this.expressions
        if len(args) != 1:
            raise self.binder.error("UNNEST takes one array", node)
        array = ExprBinder(self.binder, self.scope(), None, "UNNEST").bind(args[0])
        if array.type.kind is not Kind.ARRAY:
            raise self.binder.error(f"UNNEST takes an array, not {array.type}", args[0])
        return array

    def _beside(self, right: Item, kind: str, join: exp.Join) -> JoinChain:
        """This chain joined with ``right``, to resolve the names in ON."""
        both = JoinChain(self.binder, self.env, self.items[0])
        both.items = [*self.items, right]
        both.plan = Join(self.plan, right.plan, kind, None, self.binder.pos(join))
        both.merged = list(self.merged)
        return both

    def _check_alias(self, right: Item, join: exp.Join) -> None:
        name = right.source
        taken = [i.source for i in self.items if i.source is not None]
        if name is not None and any(fold(s.name) == fold(name.name) for s in taken):
            raise self.binder.error(
                f"FROM names {name} twice", join.this, hint="give one of them an alias: AS x"
            )

    def _kind(self, join: exp.Join) -> str:
        method, side = join.args.get("method") or "", join.args.get("side") or ""
        kind = join.args.get("kind") or ""
        if method == "NATURAL" and any(join.args.get(k) for k in ("on", "using")):
            raise self.binder.error(
                "NATURAL JOIN takes no condition", join, hint="JOIN … USING (…), or JOIN … ON …"
            )
        if method == "ASOF":
            if side in ("RIGHT", "FULL") or kind not in ("", "INNER", "OUTER"):
                what = f"an ASOF {side or kind} JOIN"
                raise self.binder.unsupported(what, join, "ASOF JOIN and ASOF LEFT JOIN are")
            # MATCH_CONDITION is Snowflake's syntax; Snowflake's ASOF JOIN keeps unmatched rows.
            return "asof left" if side or join.args.get("match_condition") else "asof"
        if kind in ("SEMI", "ANTI"):
            if side == "RIGHT":
                raise self.binder.unsupported(f"a RIGHT {kind} JOIN", join, "swap the inputs")
            return str(kind).lower()
        conditional = any(join.args.get(k) for k in ("on", "using")) or method == "NATURAL"
        if side:
            if not conditional:
                raise self.binder.error(f"{side} JOIN needs ON or USING", join)
            return str(side).lower()
        if kind == "CROSS" and conditional:
            raise self.binder.error("CROSS JOIN takes no condition", join)
        return "inner" if conditional else "cross"

    def _condition(self, join: exp.Join, right: Item, beside: JoinChain, kind: str) -> Expr | None:
        """USING, MATCH_CONDITION and ON as one condition; USING merges columns in ``beside``."""
        named: list[tuple[str, exp.Expr]] = [(c.name, c) for c in join.args.get("using") or ()]
        if join.args.get("method") == "NATURAL":
            mine = [c.name.lower() for c in self.scope().columns if c.bare and not c.hidden]
            theirs = right.plan.schema.names[: right.width]
            named = [(name, join) for name in theirs if name.lower() in mine]
        fns = ["eq"] * len(named)
        if kind in ASOF and named and not join.args.get("match_condition"):
            fns[-1] = "ge"  # USING (k, ts): the last column is the time
        parts = [
            self._using(name, at, right, beside, kind, fn)
            for (name, at), fn in zip(named, fns, strict=True)
        ]
        for key in ("match_condition", "on"):
            if join.args.get(key) is not None:
                clause = ExprBinder(self.binder, beside.scope(), None, "ON")
                parts.append(clause.condition(join.args[key]))
        if kind in ASOF and not parts:
            raise self.binder.error("ASOF JOIN needs MATCH_CONDITION or ON", join)
        if not parts:
            return None
        condition = parts[0]
        for part in parts[1:]:
            condition = registry.resolve("and", [condition, part], part.pos)
        return condition

    def _using(
        self, name: str, at: exp.Expr, right: Item, beside: JoinChain, kind: str, fn: str
    ) -> Expr:
        column = exp.Column(this=exp.Identifier(this=name))
        column.meta.update(at.meta)
        names = {c.name for c in self.scope().columns if c.bare and not c.hidden}
        self._check_using(name, at, names, " or ".join(_called(i) for i in self.items))
        names = set(right.plan.schema.names[: right.width])
        self._check_using(name, at, names, _called(right))
        left = self.scope().resolve(column, aliases_first=False, aliases=False)
        theirs = scope_of(self.binder, [right], right.plan, self.env)
        local = theirs.resolve(column, aliases_first=False, aliases=False)
        assert isinstance(local, Column)
        known = next((m for m in self.merged if m.name.lower() == name.lower()), None)
        mine = known.parts if known else tuple(columns_of(left))
        index = len(self.plan.schema) + local.index
        parts = {"right": (index,), "full": (*mine, index)}.get(kind, mine)
        hides = frozenset((*mine, index)) | (known.hides if known else frozenset())
        beside.merged = [m for m in beside.merged if m is not known]
        beside.merged.append(Merged(known.name if known else _named(left, name), parts, hides))
        there = replace(local, index=index)
        return registry.resolve(fn, [left, there], self.binder.pos(at))

    def _check_using(self, name: str, at: exp.Expr, names: set[str], side: str) -> None:
        if name.lower() not in {n.lower() for n in names}:
            hint = did_you_mean(name, names, what=f"columns of {side}")
            raise self.binder.error(f"there is no column {name} in {side}", at, hint=hint)

    def _temporal(self, right: Item, join: exp.Join) -> None:
        """``JOIN r FOR SYSTEM_TIME AS OF x ON …``: each row of the stream ``r`` is the version of
        its key from its own time until the next row of the key. A table has only one version."""
        version = join.this.args["version"]
        kind = self._kind(join)
        if kind not in ("inner", "left"):
            what = f"a temporal {kind.upper()} JOIN"
            raise self.binder.unsupported(what, join, "JOIN … ON and LEFT JOIN … ON are")
        at = ExprBinder(self.binder, self.scope(), None, "AS OF").bind(version.expression)
        beside = self._beside(right, "cross", join)
        condition = self._condition(join, right, beside, kind)
        self._check_keyed(join, condition, stream=not right.plan.is_table)
        filters: list[Expr] = []
        if not right.plan.is_table:
            if not columns_of(at):
                raise self.binder.unsupported(
                    "FOR SYSTEM_TIME AS OF a fixed time",
                    version,
                    "a time of the left says which version each of its rows sees: AS OF a.ts",
                )
            width = len(self.plan.schema)
            time = self._version_time(right, version)
            there = replace(time, index=width + time.index)
            since = registry.resolve("ge", [at, there], self.binder.pos(version))
            parts = [] if condition is None else conjuncts(condition)
            times = columns_of(at) | {there.index}
            # Conditions that are neither a key nor a tolerance do not choose the version: they
            # filter the chosen version.
            filters = [p for p in parts if not _is_key(p, width) and columns_of(p) != times]
            condition = conjunction([*(p for p in parts if p not in filters), since])
            kind = "asof left" if kind == "left" else "asof"
        self.plan = Join(self.plan, right.plan, kind, condition, self.binder.pos(join))
        if filters:
            self.plan = _filtered_versions(self.plan, conjunction(filters), kind)
        self.items.append(right)
        self.merged = beside.merged

    def _check_keyed(self, join: exp.Join, condition: Expr | None, *, stream: bool) -> None:
        """Raises BindError for a temporal join without an equality of both sides, which would find
        the newest row of any key."""
        width = len(self.plan.schema)
        if condition is not None and any(_is_key(p, width) for p in conjuncts(condition)):
            return
        node = join.args.get("on") or join.this.args["version"]
        hint = "say which key has versions: ON a.k = x.k, or a.k <=> x.k where NULL is a key, too"
        if not stream:
            hint += "; or leave AS OF out: a table has one version"
        raise self.binder.error("a temporal join needs an equality of both sides", node, hint=hint)

    def _version_time(self, right: Item, version: exp.Expr) -> Column:
        """The column with the time from which a row of ``right`` is valid."""
        if is_relation(right.plan):
            raise self.binder.unsupported(
                "a temporal join with a relation whose rows leave",
                version,
                "the versions of a stream are: each row holds until the next one of its key",
            )
        live = next(iter(right.plan.progressing), None)
        if live is None:
            raise self.binder.error(
                f"{right.source or 'this relation'} has no time from which on its rows hold",
                version,
                hint="declare ORDERED BY or WATERMARK on it",
            )
        return column_of(right.plan, live)


def _is_key(part: Expr, width: int) -> bool:
    """Whether ``part`` is an equality of a left and a right expression (the left has ``width``
    columns)."""
    compared = compares_equal(part)
    if compared is None:
        return False
    sides = [{c >= width for c in columns_of(arg)} for arg in compared[:2]]
    return sides in ([{False}, {True}], [{True}, {False}])


def _relates(part: Expr, one: Column, two: Column) -> bool:
    """Whether ``part`` says that two columns are equal."""
    compared = compares_equal(part)
    if compared is None:
        return False
    sides = {e.index for e in compared[:2] if isinstance(e, Column)}
    return sides == {one.index, two.index}


def _filtered_versions(plan: Join, condition: Expr, kind: str) -> Logical:
    """``plan`` restricted to versions that fulfil ``condition``; in an outer join, the columns of
    the other versions become NULL."""
    if kind == "asof":
        return Filter(plan, condition, condition.pos)
    width = len(plan.left.schema)
    columns = [column_of(plan, k) for k in range(len(plan.schema))]
    exprs: list[Expr] = [*columns[:width]]
    exprs += [Case(((condition, c),), None, c.type, True) for c in columns[width:]]
    return Project(plan, tuple(exprs), plan.schema.names, plan.pos)


def _called(item: Item) -> str:
    return "the subquery" if item.source is None else str(item.source)


def _named(expr: Expr, name: str) -> str:
    return expr.name if isinstance(expr, Column) else name


def _with_fields(plan: Logical, names: Sequence[str], pos: Position | None) -> Project:
    """``plan`` with the fields of its last column, a struct, in place of the column."""
    last = len(plan.schema) - 1
    kept = tuple(column_of(plan, k) for k in range(last))
    struct = column_of(plan, last)
    fields = tuple(nested.field(struct, name, pos) for name, _ in struct.type.fields)
    return Project(plan, (*kept, *fields), (*plan.schema.names[:last], *names), pos)
