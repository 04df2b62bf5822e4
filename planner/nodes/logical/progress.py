"""Columns that progress: the operators below can guarantee a rising lower bound on them, their
watermark. Only a column that progresses can be a window attribute (WA)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from cql.base.types import BIGINT
from cql.planner.nodes.catalog import TimeUnit
from cql.planner.nodes.expr import Call, Case, Cast, Column, Expr, Literal
from cql.planner.nodes.logical.parts import WINDOW_COLUMNS
from cql.planner.nodes.rewrite import replace


@dataclass(frozen=True, slots=True)
class ProgressInfo:
    """``unit`` is the time unit of a step of an integer column (None: not declared; timestamps and
    dates need none); ``declared`` is the clause that declares the watermark."""

    unit: TimeUnit | None
    declared: str


#: By the index of a column that progresses.
Progressing: TypeAlias = Mapping[int, ProgressInfo]
#: The progress of a window attribute of which nothing is known.
UNKNOWN = ProgressInfo(None, "WA")


def in_both(one: Progressing, other: Progressing) -> Progressing:
    """The columns of a union that progress: those that progress in both inputs."""
    return {
        at: info if info.unit == other[at].unit else replace(info, unit=None)
        for at, info in one.items()
        if at in other
    }


def of_window(below: Progressing, wa: int | None, first: int) -> Progressing:
    """The three pseudo-columns of a window over ``below``, which start at index ``first``."""
    assert wa is not None
    info = below.get(wa, UNKNOWN)
    return {first + k: info for k in range(len(WINDOW_COLUMNS))}


def end_of_pair(expr: Expr) -> tuple[tuple[int, int], str] | None:
    """The columns of ``greatest(a, b)`` or ``least(a, b)``, ascending, and the function's name."""
    if not (isinstance(expr, Call) and expr.fn in ("greatest", "least")):
        return None
    found = [e.index for e in map(_widened, expr.args) if isinstance(e, Column)]
    if len(found) != 2 or len(expr.args) != 2:
        return None
    return (min(found), max(found)), expr.fn


def _widened(expr: Expr) -> Expr:
    """``expr`` without the cast to BIGINT that a comparison of two integers adds."""
    if isinstance(expr, Cast) and expr.type == BIGINT and expr.arg.type.is_integer:
        return expr.arg
    return expr


def unit_of(expr: Expr, unit: TimeUnit | None) -> TimeUnit | None:
    """The unit of a monotone expression over a column in ``unit``: kept by shifts and integer
    casts, unknown otherwise."""
    match expr:
        case Column():
            return unit
        case Cast() if expr.type.is_integer and expr.arg.type.is_integer:
            return unit_of(expr.arg, unit)
        case Call(fn="add" | "sub", args=(inner, Literal())):
            return unit_of(inner, unit)
        case Call(fn="add", args=(Literal(), inner)):
            return unit_of(inner, unit)
        case Literal() | Call() | Case() | Cast():
            return None
        case _:
            assert_never(expr)
