"""How watermarks pass through expressions, and the punctuation that consumers of a column await."""

from __future__ import annotations

from typing import TypeAlias

from cql.base.types import INTERVAL, DataType
from cql.base.window import Window
from cql.planner.functions.folding import monotone
from cql.planner.nodes.expr import Call, Case, Cast, Column, Expr, Literal, columns_of

#: Stands for a missing bound in arithmetic; times lie within half of it.
NO_BOUND = 1 << 62
#: (step, offset): the values offset + n · step. None: any value.
Boundaries: TypeAlias = frozenset[tuple[int, int]] | None
#: Boundaries by output column of a node.
Wanted: TypeAlias = dict[int, Boundaries]


def progress_origin(expr: Expr, live: tuple[int, ...]) -> int | None:
    """The progressing input column of which ``expr`` is a non-decreasing function, if any."""
    if isinstance(expr, Column):
        return expr.index if expr.index in live and expr.type.can_progress else None
    used = columns_of(expr)
    if len(used) != 1:
        return None
    (column,) = used
    if column in live and expr.type.can_progress and monotone(expr, column):
        return column
    return None


def value_origin(expr: Expr) -> int | None:
    """The column whose values ``expr`` has unchanged, if any; integers may become wider."""
    match expr:
        case Column():
            return expr.index
        case Cast(arg, kind):
            wider = kind.is_integer and arg.type.is_integer
            return value_origin(arg) if wider and _size(arg.type) <= _size(kind) else None
        case Literal() | Call() | Case():
            return None


def one_to_one(expr: Expr) -> int | None:
    """The column of which ``expr`` is a function with other values for other values, if any."""
    if isinstance(expr, Call) and expr.fn in ("add", "sub", "date_sub", "date_add"):
        moved, by = expr.args
        exact = not (moved.type.is_fraction or expr.type.is_fraction)
        return one_to_one(moved) if exact and isinstance(by, Literal) else None
    return value_origin(expr)


def _size(kind: DataType) -> int:
    """Width of an integer in bits."""
    return int(kind.storage.removeprefix("int"))


def first_columns(wanted: Wanted, width: int) -> Wanted:
    """The part of ``wanted`` on the first ``width`` columns."""
    return {c: b for c, b in wanted.items() if c < width}


def add_wanted(wanted: Wanted, column: int | None, more: Boundaries) -> None:
    """Adds boundaries of ``column`` to ``wanted``; a column of None adds nothing."""
    if column is None:
        return
    before = wanted.get(column, frozenset())
    wanted[column] = None if before is None or more is None else before | more


def moved(wanted: Boundaries, by: int) -> Boundaries:
    """The boundaries that lie ``by`` above those of ``wanted``."""
    if wanted is None:
        return None
    return frozenset((step, (offset + by) % step) for step, offset in wanted)


def window_ends(window: Window) -> Boundaries:
    """The ends of windows. Sessions end anywhere, days of a time zone at no multiple of a step."""
    if not window.has_number or not window.slide or window.range is None or window.zone:
        return None
    return frozenset({(window.slide, (window.offset + window.range) % window.slide)})


def wanted_below(expr: Expr, wanted: Boundaries) -> Boundaries:
    """The boundaries to await of the column in ``expr``, if ``wanted`` is awaited of ``expr``. A
    shift moves boundaries; other functions may need any value."""
    if wanted is None:
        return None
    match expr:
        case Column():
            return wanted
        case Cast() if expr.type.is_integer and expr.arg.type.is_integer:
            return wanted_below(expr.arg, wanted)
        case Call(fn="add" | "sub", args=(inner, Literal(value=int() as by) as shift)):
            if _shifts(inner, shift, expr):
                return wanted_below(inner, moved(wanted, -by if expr.fn == "add" else by))
            return None
        case Cast() | Call() | Literal() | Case():
            return None


def _shifts(inner: Expr, by: Literal, whole: Expr) -> bool:
    if inner.type.is_integer:
        return by.type.is_integer and whole.type.is_integer
    return inner.type.is_timestamp and by.type == INTERVAL and whole.type == inner.type


def fewest(wanted: frozenset[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """``wanted`` without the entries whose values are all values of another entry."""

    def covered(one: tuple[int, int]) -> bool:
        return any(
            other != one and one[0] % other[0] == 0 and (one[1] - other[1]) % other[0] == 0
            for other in wanted
        )

    return tuple(sorted(one for one in wanted if not covered(one)))
