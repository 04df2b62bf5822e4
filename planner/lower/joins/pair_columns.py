"""Conditions of joins on pairs of rows: which expressions the join kernel computes itself, and the
input columns that hold the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from cql.base.types import DataType
from cql.planner.functions import registry
from cql.planner.nodes.expr import Call, Case, Cast, Column, Expr, Literal, children, rebuild, walk
from cql.planner.nodes.physical import (
    OnTimeExec,
    Physical,
    ProjectExec,
)
from cql.planner.nodes.rewrite import replace
from cql.planner.nodes.show import show

_PLAIN = frozenset(
    [
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "and",
        "or",
        "not",
        "is_null",
        "is_not_null",
        "isnan",
        "null_safe_eq",
        "is_distinct_from",
        "add",
        "sub",
        "mul",
        "neg",
        "coalesce",
    ]
)


#: Functions on texts that only compare dictionary codes.
EQUALITIES = frozenset(("eq", "ne", "null_safe_eq", "is_distinct_from"))


def runs_inside(expr: Expr, of_texts: frozenset[str] = EQUALITIES) -> bool:
    """Whether the join kernel can evaluate ``expr`` on a pair: a few instructions that cannot fail,
    and on texts only the functions in ``of_texts``."""
    if registry.can_fail(expr):
        return False
    for e in walk(expr):
        coded = any(part.type.is_coded for part in (e, *children(e)))
        match e:
            case Column() | Literal():
                pass
            case Call(function=None) if e.fn in _PLAIN and (not coded or e.fn in of_texts):
                pass
            case Cast() if _is_number(e.type) and _is_number(e.arg.type):
                pass
            case Call() | Case() | Cast():
                return False
            case _:
                assert_never(e)
    return True


def _is_number(kind: DataType) -> bool:
    return kind.is_integer or kind.is_fraction


def with_columns(
    child: Physical, exprs: Sequence[Expr], last: int = 0
) -> tuple[Physical, list[int]]:
    """``child`` with ``exprs`` as columns, and the place of each. A new column stands behind those
    of ``child``, before its ``last`` ones; an expression that is a column already adds none."""
    columns = [Column(k, f.name, f.type, f.nullable) for k, f in enumerate(child.schema)]
    width, places = len(columns) - last, []
    own: list[Expr] = [*columns[:width]]
    for expr in exprs:
        if isinstance(expr, Column):
            places.append(expr.index)
            continue
        if expr not in own:
            own.append(expr)
        places.append(own.index(expr))
    if len(own) == width:
        return child, places
    made, names = (show(expr) for expr in own[width:]), child.schema.names
    names = (*names[:width], *made, *names[width:])
    exprs = (*own, *columns[width:])
    return ProjectExec(child, exprs, names, "what rows are looked up by"), places


def behind(expr: Expr, width: int, more: int) -> Expr:
    """``expr`` with the columns from ``width`` on moved by ``more`` places."""
    if isinstance(expr, Column):
        return replace(expr, index=expr.index + (more if expr.index >= width else 0))
    return rebuild(expr, lambda e: behind(e, width, more))


def without_late_rows(child: Physical) -> Physical:
    """``child`` without its late rows, because the rows that they join with may have left."""
    for column in child.progressing:
        if child.emits_late_rows:
            child = OnTimeExec(child, column, "a join leaves late rows out")
    return child
