"""A catalog without data, made from CREATE statements, and helpers that bind and print plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from cql.base.model import Schema
from cql.dialect import parse, parse_one
from cql.executor.protocols import Sink, Source
from cql.planner.bind.context import Context
from cql.planner.bind.statement import bind
from cql.planner.nodes.catalog import Relation, Statistics, StreamDefinition, StreamSpec
from cql.planner.nodes.expr import Call, Case, Cast, Column, Expr, Literal
from cql.planner.nodes.logical import Logical
from cql.planner.nodes.statements import (
    CreateConstant,
    CreateStream,
    CreateTable,
    CreateView,
    Insert,
    Query,
    Statement,
)


@dataclass(frozen=True, slots=True)
class FakeRelation:
    name: tuple[str, ...]
    schema: Schema
    stream: StreamSpec | None = None
    bounded: bool = True
    statistics: Statistics = field(default_factory=Statistics)
    unsupported: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return "table" if self.stream is None else "stream"

    def has_default(self, column: str) -> bool:
        return False

    def default(self, column: str) -> object:
        return None

    def source(self) -> Source:
        raise AssertionError("a fake relation has no rows")


class FakeCatalog:
    """A catalog that finds a relation by the last parts of its name, ignoring case, like the
    catalog of a session."""

    def __init__(self) -> None:
        self.relations: dict[tuple[str, ...], FakeRelation] = {}

    def find(self, name: tuple[str, ...]) -> Relation | None:
        wanted = tuple(part.lower() for part in name)
        for known, relation in self.relations.items():
            if tuple(part.lower() for part in known)[-len(wanted) :] == wanted:
                return relation
        return None

    def names(self) -> Sequence[tuple[str, ...]]:
        return list(self.relations)

    def create_stream(
        self, name: tuple[str, ...], definition: StreamDefinition, *, replace: bool
    ) -> None:
        assert definition.schema is not None
        self.relations[name] = FakeRelation(name, definition.schema, definition.spec)

    def drop(self, name: tuple[str, ...], kind: str) -> bool:
        return self.relations.pop(name, None) is not None

    def sink(self, name: tuple[str, ...], schema: Schema, *, create: bool) -> Sink:
        raise AssertionError("a fake relation takes no rows")


STREAMS = """
CREATE STREAM s (ts TIMESTAMP NOT NULL, k INT NOT NULL, a INT, x DOUBLE, name STRING) ORDERED BY ts;
CREATE STREAM r (ts TIMESTAMP, k INT NOT NULL, a INT, x DOUBLE, name STRING)
  ORDERED BY ts WITHIN 5 SECONDS;
CREATE STREAM secs (ts BIGINT, k INT, v BIGINT) ORDERED BY ts IN SECONDS;
CREATE STREAM millis (ts BIGINT, k INT, v BIGINT) ORDERED BY ts IN MILLISECONDS;
CREATE STREAM ticks (ts BIGINT, k INT, v BIGINT) ORDERED BY ts;
CREATE STREAM days (d DATE, k INT, v BIGINT) ORDERED BY d;
CREATE STREAM two (t1 TIMESTAMP, t2 TIMESTAMP, k INT) ORDERED BY t1 WATERMARK FOR t2 AS t2;
CREATE TABLE dim (k INT NOT NULL, label STRING, ts TIMESTAMP);
CREATE TABLE spark_catalog.db.flights (origin STRING NOT NULL, delay INT, at TIMESTAMP);
"""


@dataclass
class World:
    """A catalog and a context that statements change, as in a session."""

    catalog: FakeCatalog = field(default_factory=FakeCatalog)
    context: Context = field(default_factory=Context)
    constants: dict[str, Literal] = field(default_factory=dict)
    functions: dict[str, Any] = field(default_factory=dict)
    views: dict[tuple[str, ...], Any] = field(default_factory=dict)

    def run(self, script: str) -> World:
        for tree in parse(script):
            self._apply(self._bound(tree, self.fresh()))
        return self

    def fresh(self, parameters: Mapping[str, Any] | None = None) -> Context:
        names: dict[str, Any] = {"constants": self.constants, "views": self.views}
        self.context = Context(parameters or {}, functions=self.functions, **names)
        return self.context

    def _apply(self, made: Statement) -> None:
        match made:
            case CreateStream():
                self.catalog.create_stream(made.name, made.definition, replace=False)
            case CreateTable():
                assert made.schema is not None
                self.catalog.relations[made.name] = FakeRelation(made.name, made.schema)
            case CreateConstant():
                self.constants[made.name] = made.value
            case CreateView():
                self.views[made.name] = made.definition
            case _:
                raise AssertionError(made)

    def bind(self, text: str, **parameters: Any) -> Statement:
        return self._bound(parse_one(text), self.fresh(parameters))

    def _bound(self, tree: exp.Expr, context: Context) -> Statement:
        """The bound tree. Asserts that ``bind`` does not change the tree, even if it raises:
        sessions bind a tree several times."""
        before = anatomy(tree)
        try:
            return bind(tree, self.catalog, context)
        finally:
            assert anatomy(tree) == before

    def plan(self, text: str, **parameters: Any) -> Logical:
        bound = self.bind(text, **parameters)
        assert isinstance(bound, Query | Insert)
        return bound.plan if isinstance(bound, Query) else bound.query.plan

    def warnings(self) -> list[str]:
        return [w.message for w in self.context.warnings]


def anatomy(tree: exp.Expr) -> list[object]:
    """The identity, parent, arguments, metadata and type of each node of a tree."""
    return [
        (
            (id(node), type(node), id(node.parent), node.arg_key, node.index),
            [(k, _identity(v)) for k, v in node.args.items()],
            (repr(node._meta or {}), repr(node.comments), repr(node.type)),
        )
        for node in tree.walk()
    ]


def _identity(value: Any) -> object:
    if isinstance(value, list):
        return [_identity(v) for v in value]
    return id(value) if isinstance(value, exp.Expr) else repr(value)


def world(script: str = STREAMS) -> World:
    return World().run(script)


_SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%", "eq": "=", "ne": "<>",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and": "AND", "or": "OR",
}  # fmt: skip


def show(expr: Expr) -> str:
    """An expression as one line; each column shows its name and index."""
    match expr:
        case Column():
            return f"{expr.name}#{expr.index}"
        case Literal():
            return repr(expr.value)
        case Call() if expr.fn in _SIGNS and len(expr.args) == 2:
            return f"({show(expr.args[0])} {_SIGNS[expr.fn]} {show(expr.args[1])})"
        case Call():
            return f"{expr.fn}({', '.join(map(show, expr.args))})"
        case Cast():
            return f"{show(expr.arg)}::{expr.type}"
        case Case():
            branches = " ".join(f"WHEN {show(c)} THEN {show(v)}" for c, v in expr.branches)
            other = f" ELSE {show(expr.otherwise)}" if expr.otherwise is not None else ""
            return f"CASE {branches}{other} END"


def tree(node: Logical, depth: int = 0) -> str:
    """A plan as indented lines."""
    line = "  " * depth + type(node).__name__.lower() + _details(node)
    return "\n".join([line, *(tree(b, depth + 1) for b in node.inputs)])


def _details(node: Any) -> str:
    parts: list[str] = []
    match type(node).__name__:
        case "Scan":
            parts = [".".join(node.relation.name), *(f.name for f in node.schema)]
        case "Filter":
            parts = [show(node.condition)]
        case "Project":
            parts = [f"{show(e)} AS {n}" for e, n in zip(node.exprs, node.names, strict=True)]
        case "Unnest":
            parts = [f"{'outer ' if node.outer else ''}{show(node.array)} AS {node.name}"]
        case "Aggregate":
            parts = [f"key {show(k)}" for k in node.keys]
            parts += [
                f"{c.fn}({'distinct ' if c.distinct else ''}{', '.join(map(show, c.args))})"
                + (f" where {show(c.where)}" if c.where is not None else "")
                for c in node.calls
            ]
            parts += [_window(node.window)] if node.window is not None else []
        case "Bucket" | "Windowed":
            parts = [_window(node.window)]
        case "Sort":
            parts = [
                f"{show(k.expr)} {'desc' if k.descending else 'asc'}"
                f" nulls {'first' if k.nulls_first else 'last'}"
                for k in node.keys
            ]
            parts += [f"limit {node.limit}"] if node.limit is not None else []
            parts += [f"offset {node.offset}"] if node.offset else []
            parts += [f"per window #{node.window_end}"] if node.window_end is not None else []
        case "Join":
            parts = [node.kind] + ([show(node.condition)] if node.condition is not None else [])
        case "SubqueryJoin":
            parts = [node.kind, *map(show, node.keys)]
        case "RelationToStream":
            parts = [node.kind]
        case "Unsupported":
            parts = [node.clause]
    return f" [{', '.join(parts)}]" if parts else ""


def _window(window: Any) -> str:
    parts = [window.kind.value]
    for key in ("wa", "range", "slide", "rows"):
        value = getattr(window, key)
        if value is not None:
            parts.append(f"{key}={value}")
    if window.offset:
        parts.append(f"offset={window.offset}")
    if window.partition_by:
        parts.append(f"by={list(window.partition_by)}")
    return " ".join(parts)
