"""The expressions that an operator of a plan holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from cql.planner.nodes.expr import Call, Case, Cast, Column, Expr, Literal
from cql.planner.nodes.logical import AggregateCall, SortKey
from cql.planner.nodes.physical import Physical


def expressions_in(root: Physical) -> Iterator[Expr | AggregateCall]:
    """The expressions of all operators of a plan, also those of sort keys, and its calls of
    aggregates, each before the expressions in it."""
    yield from held_by(root)
    for child in root.inputs:
        yield from expressions_in(child)


def held_by(node: Physical) -> Iterator[Expr | AggregateCall]:
    """``expressions_in`` of one operator, without its inputs."""
    for field in fields(node):
        yield from _in(getattr(node, field.name))


def _in(value: Any) -> Iterator[Expr | AggregateCall]:
    match value:
        case Column() | Literal() | Call() | Case() | Cast():
            yield value
        case AggregateCall():
            yield value
            yield from _in((*value.args, value.where))
        case SortKey():
            yield from _in(value.expr)
        case tuple():
            for part in value:
                yield from _in(part)
