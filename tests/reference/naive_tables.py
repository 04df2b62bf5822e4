"""Short spellings of logical plans, for the reference's own examples and tests.

>>> s = stream("s", "t bigint, k string")
>>> s.schema.names
('t', 'k')
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

from cql.base.model import Field, Schema
from cql.base.types import BIGINT, BOOLEAN, DOUBLE, STRING, DataType, Kind
from cql.base.types import array as array_of
from cql.base.window import Window, WindowKind
from cql.planner.nodes.catalog import Progress, Statistics, StreamSpec
from cql.planner.nodes.expr import Call, Column, Expr, Literal, Value
from cql.planner.nodes.logical import Aggregate, AggregateCall, Logical, Scan

_TYPES = {kind.value: DataType(kind) for kind in Kind}
_COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "is_null", "like"}
#: An aggregate call: its function alone, or with a column's name or an expression, and its FILTER.
Spec = str | tuple[str, str | Expr] | tuple[str, str | Expr, Expr]


@dataclass(frozen=True)
class NaiveRelation:
    """A relation without rows; the reference receives the rows separately."""

    name: tuple[str, ...]
    schema: Schema
    stream: StreamSpec | None
    kind: str = "stream"
    bounded: bool = True
    statistics: Statistics = field(default_factory=Statistics)
    unsupported: Mapping[str, str] = field(default_factory=dict)

    def source(self) -> NoReturn:
        raise AssertionError("the reference reads lists")


def fields_of(text: str) -> Schema:
    """``"t bigint, k string"`` as a schema."""
    pairs = (part.split() for part in text.split(","))
    return Schema(tuple(Field(name, _TYPES[kind]) for name, kind in pairs))


def stream(name: str, columns: str, *, slack: int = 0) -> Scan:
    """A stream ordered by its first column within ``slack``."""
    schema = fields_of(columns)
    spec = StreamSpec((Progress(schema[0].name, slack),))
    return Scan(NaiveRelation((name,), schema, spec), tuple(range(len(schema))))


def array(of: Logical, name: str) -> Column:
    """The column ``name`` as an array column; the column's type is the type of the elements."""
    plain = column(of, name)
    return replace(plain, type=array_of(plain.type))


def table(name: str, columns: str) -> Scan:
    """A table: no column progresses."""
    schema = fields_of(columns)
    return Scan(NaiveRelation((name,), schema, None, "table"), tuple(range(len(schema))))


def column(node: Logical, name: str) -> Column:
    index = node.schema.find(name)
    assert index is not None, name
    return Column(index, name, node.schema[index].type, node.schema[index].nullable)


def literal(value: Value) -> Literal:
    kinds: Mapping[type, DataType] = {bool: BOOLEAN, int: BIGINT, float: DOUBLE, str: STRING}
    return Literal(value, kinds[type(value)])


def call(fn: str, *args: Expr | Value) -> Call:
    """A call; its type is BOOLEAN for comparisons, else the type of its first argument."""
    exprs = tuple(
        a if not isinstance(a, bool | int | float | str | bytes | None) else literal(a)
        for a in args
    )
    return Call(fn, exprs, BOOLEAN if fn in _COMPARISONS else exprs[0].type)


_RESULTS = {"count": BIGINT, "count_if": BIGINT, "avg": DOUBLE, "bool_and": BOOLEAN}


def _aggregate_call(node: Logical, spec: Spec) -> AggregateCall:
    fn, *rest = (spec,) if isinstance(spec, str) else spec
    args = (column(node, rest[0]) if isinstance(rest[0], str) else rest[0],) if rest else ()
    where = rest[1] if len(rest) > 1 else None
    assert not isinstance(where, str)
    assert isinstance(fn, str)
    kind = args[0].type if args else BIGINT
    if fn == "sum" and kind.is_integer:
        kind = BIGINT
    if fn.startswith(("var", "stddev")):
        kind = DOUBLE
    return AggregateCall(fn, args, _RESULTS.get(fn, kind), True, where=where)


def aggregate(node: Logical, window: Window | None, by: str, calls: dict[str, Spec]) -> Aggregate:
    keys = tuple(column(node, name) for name in by.split())
    made = tuple(_aggregate_call(node, spec) for spec in calls.values())
    return Aggregate(node, window, keys, made, (*by.split(), *calls))


def sliding(node: Logical, range_: int, slide: int, by: str = "", **calls: Spec) -> Aggregate:
    """An aggregate over sliding windows of the first column."""
    window = Window(WindowKind.SLIDING, 0, range=range_, slide=slide)
    return aggregate(node, window, by, calls)


def tumbling(node: Logical, range_: int, by: str = "", **calls: Spec) -> Aggregate:
    return sliding(node, range_, range_, by, **calls)


def whole(node: Logical, by: str = "", **calls: Spec) -> Aggregate:
    return aggregate(node, None, by, calls)
