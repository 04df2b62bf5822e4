"""Stream properties, derived bottom-up: which output columns of a plan progress.

A column progresses when the operators below can guarantee a rising lower bound on it, its
watermark. Only a column that progresses can be a window attribute (WA).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import assert_never

from cql.base.types import BIGINT
from cql.base.window import WindowKind
from cql.planner.functions.registry import monotone
from cql.planner.nodes.catalog import TimeUnit
from cql.planner.nodes.expr import Call, Case, Cast, Column, Expr, Literal, columns_of
from cql.planner.nodes.logical import (
    ASOF,
    WINDOW_COLUMNS,
    Aggregate,
    Bucket,
    Filter,
    Join,
    Limit,
    Logical,
    Number,
    Project,
    RelationToStream,
    RowNumber,
    Scan,
    SetOperation,
    Sort,
    SubqueryJoin,
    Union,
    Unnest,
    Unsupported,
    Values,
    Watermark,
    Windowed,
    is_inner,
)
from cql.planner.nodes.rewrite import replace


@dataclass(frozen=True, slots=True)
class ProgressInfo:
    """``unit`` is the time unit of a step of an integer column (None: not declared; timestamps and
    dates need none); ``declared`` is the clause that declares the watermark."""

    unit: TimeUnit | None
    declared: str


Progressing = Mapping[int, ProgressInfo]
#: Windows without SLIDE whose rows leave by their time.
_BY_TIME = (WindowKind.RANGE, WindowKind.NOW, WindowKind.UNBOUNDED)


def progressing(node: Logical) -> Progressing:
    """Output columns of ``node`` that progress, by index, in the order of their declaration."""
    match node:
        case Scan():
            return _of_scan(node)
        case Values():
            return {}
        case Filter() | Windowed() | Sort() | Limit() | RowNumber() | Unnest():
            return progressing(node.input)
        case RelationToStream():
            return {len(node.input.schema): _instants(node.input)}
        case SetOperation():
            return {}
        case SubqueryJoin():
            below = progressing(node.input)
            if is_constant(node.query):
                return below
            # rows leave in the order of one time: that of the instants
            return dict([*below.items()][:1])
        case Number() if node.windows is not None:
            return {len(node.schema) - 1: ProgressInfo(None, "the order of windows")}
        case Number():
            live = progressing(node.input)
            return {**live, len(node.input.schema): ProgressInfo(None, "the order of arrival")}
        case Watermark():
            return {node.column: ProgressInfo(node.progress.unit, node.progress.declared)}
        case Project():
            return _of_project(node)
        case Union():
            return reduce(_both, (progressing(i) for i in node.inputs))
        case Aggregate():
            return _of_aggregate(node)
        case Bucket():
            below = progressing(node.input)
            return {**below, **_window_columns(below, node.window.wa, len(node.input.schema))}
        case Join():
            return _of_join(node)
        case Unsupported():
            return _of_unsupported(node)


def is_bounded(node: Logical) -> bool:
    """Whether ``node`` ends: all its inputs do, or LIMIT ends it."""
    if isinstance(node, Scan):
        return node.relation.bounded
    if isinstance(node, Limit) and node.limit is not None:
        return True
    return all(is_bounded(i) for i in node.inputs)


def is_constant(node: Logical) -> bool:
    """Whether nothing below progresses: the rows of tables are there from the beginning."""
    match node:
        case Windowed():
            return False
        case Scan() | Values() | Filter() | Project() | Union() | Aggregate() | Bucket() | Unnest():
            return not progressing(node) and all(is_constant(i) for i in node.inputs)
        case Number() | Watermark() | Sort() | Limit() | RowNumber() | Join() | SetOperation():
            return not progressing(node) and all(is_constant(i) for i in node.inputs)
        case SubqueryJoin() | RelationToStream() | Unsupported():
            return not progressing(node) and all(is_constant(i) for i in node.inputs)
        case _:
            assert_never(node)


def is_table(node: Logical) -> bool:
    """Whether all rows of ``node`` are there before the first row of a stream: it ends, and none of
    its columns progresses, pruned columns included."""
    if isinstance(node, Scan):
        spec = node.relation.stream
        return node.relation.bounded and not (spec is not None and spec.progress)
    return is_constant(node) and all(map(is_table, node.inputs))


def looks_up(node: Join) -> bool:
    """Whether a join emits a stream's rows, each with its partners in a table. Such a join keeps
    the order, the watermark and the late rows of the stream."""
    match node.kind:
        case "inner" | "cross":
            return is_table(node.left) or is_table(node.right)
        case "left" | "semi" | "anti":
            return is_table(node.right)
        case "right":
            return is_table(node.left)
        case _:
            return False


def _of_scan(node: Scan) -> Progressing:
    if node.relation.stream is None:
        return {}
    schema = node.relation.schema
    found: dict[int, ProgressInfo] = {}
    for progress in node.relation.stream.progress:
        index = schema.find(progress.column)
        if index is not None and index in node.columns:
            at = node.columns.index(index)
            found.setdefault(at, ProgressInfo(progress.unit, progress.declared))
    return found


def _of_project(node: Project) -> Progressing:
    below = progressing(node.input)
    found: dict[int, ProgressInfo] = {}
    for column, info in below.items():
        for at, expr in enumerate(node.exprs):
            if columns_of(expr) == {column} and monotone(expr, column):
                found.setdefault(at, replace(info, unit=_unit(expr, info.unit)))
    for at, expr in enumerate(node.exprs):
        end = end_of_pair(expr)
        if end is not None and end[0] == times_of(node.input) and set(end[0]) <= below.keys():
            found[at] = below[end[0][0]]
    return found


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


def _unit(expr: Expr, unit: TimeUnit | None) -> TimeUnit | None:
    """The unit of a monotone expression: kept by shifts and integer casts, unknown otherwise."""
    match expr:
        case Column():
            return unit
        case Cast() if expr.type.is_integer and expr.arg.type.is_integer:
            return _unit(expr.arg, unit)
        case Call(fn="add" | "sub", args=(inner, Literal())):
            return _unit(inner, unit)
        case Call(fn="add", args=(Literal(), inner)):
            return _unit(inner, unit)
        case Literal() | Call() | Case() | Cast():
            return None
        case _:
            assert_never(expr)


def _both(one: Progressing, other: Progressing) -> Progressing:
    """The columns of a union that progress: those that progress in both inputs."""
    return {
        at: info if info.unit == other[at].unit else replace(info, unit=None)
        for at, info in one.items()
        if at in other
    }


def _window_columns(below: Progressing, wa: int | None, first: int) -> Progressing:
    """The three pseudo-columns of a window over ``below``, which start at index ``first``."""
    assert wa is not None
    info = below.get(wa, ProgressInfo(None, "WA"))
    return {first + k: info for k in range(len(WINDOW_COLUMNS))}


def _instants(node: Logical) -> ProgressInfo:
    """The clock of a relation: that of the first window in it."""
    match node:
        case Windowed() if node.window.wa is not None:
            below = progressing(node.input)
            return below.get(node.window.wa, ProgressInfo(None, "WA"))
        case (
            Scan()
            | Values()
            | Filter()
            | Project()
            | Union()
            | Aggregate()
            | Bucket()
            | Unnest()
            | Number()
            | Watermark()
            | Sort()
            | Limit()
            | RowNumber()
            | Windowed()
            | Join()
            | SetOperation()
            | SubqueryJoin()
            | RelationToStream()
            | Unsupported()
        ):
            below = progressing(node)
            if below or not node.inputs:
                return next(iter(below.values()), ProgressInfo(None, "WA"))
            return _instants(node.inputs[0])
        case _:
            assert_never(node)


def closing_key(node: Aggregate) -> tuple[int, int] | None:
    """The key that closes the groups of an aggregate without a window, and the progressing column
    with which the key rises. No row can come for a group that punctuation has passed (out-of-order
    paper §5.2). The first such key; None if groups stay open."""
    return next(closing_keys(node), None)


def closing_keys(node: Aggregate) -> Iterator[tuple[int, int]]:
    """All keys that close groups, each with the progressing column with which it rises."""
    if node.window is not None or not _only_comes(node.input):
        return
    below = progressing(node.input)
    for at, key in enumerate(node.keys):
        for column in columns_of(key):
            if column in below and key.type.can_progress and monotone(key, column):
                yield at, column


def times_of(node: Logical) -> tuple[int, ...] | None:
    """The columns of a join of streams that hold the times of its inputs, left to right: the window
    attribute of an input, or its first progressing column. None if a time is missing, or if the
    input contains other kinds of joins."""
    match node:
        case Windowed() if node.window.kind in _BY_TIME and not isinstance(node.input, Join):
            return None if node.window.wa is None else (node.window.wa,)
        case Filter():
            return times_of(node.input)
        case Project():
            below = times_of(node.input)
            places = [
                next((k for k, e in enumerate(node.exprs) if _is(e, column)), None)
                for column in below or ()
            ]
            found = tuple(k for k in places if k is not None)
            return found if below is not None and len(found) == len(below) else None
        case Join() if is_inner(node) and not looks_up(node):
            left, right = times_of(node.left), times_of(node.right)
            if left is None or right is None:
                return None
            return (*left, *(len(node.left.schema) + c for c in right))
        case Scan() | Watermark() | Aggregate():
            first = next(iter(progressing(node)), None)
            return None if first is None else (first,)
        case Values() | Union() | Bucket() | Unnest() | Number() | Sort() | Limit() | RowNumber():
            return None
        case Windowed() | Join() | SetOperation() | SubqueryJoin() | RelationToStream():
            return None
        case Unsupported():
            return None
        case _:
            assert_never(node)


def closing_pair(node: Aggregate) -> tuple[int, int] | None:
    """The times of both inputs of a join, if each group holds one of each: the rows of a group come
    together, and would leave the windows together (out-of-order paper §7, Q3)."""
    if node.window is not None:
        return None
    times = times_of(node.input)
    keys = {key.index for key in node.keys if isinstance(key, Column)}
    if times is None or len(times) != 2 or not keys.issuperset(times):
        return None
    return times[0], times[1]


def _is(expr: Expr, column: int) -> bool:
    return isinstance(expr, Column) and expr.index == column


def _only_comes(node: Logical) -> bool:
    """Whether ``node`` is certainly a stream, and not a relation whose rows may leave."""
    match node:
        case Join() if looks_up(node) or node.kind in ("inner", "cross", *ASOF):
            return all(_only_comes(i) for i in node.inputs)
        case Windowed() | SetOperation() | Join() | Unsupported():
            return False
        case SubqueryJoin():
            return is_constant(node.query) and _only_comes(node.input)
        case Aggregate() if node.window is not None:
            return True
        case Scan() | Values() | Filter() | Project() | Union() | Aggregate() | Bucket() | Unnest():
            return all(_only_comes(i) for i in node.inputs)
        case Number() | Watermark() | Sort() | Limit() | RowNumber() | RelationToStream():
            return all(_only_comes(i) for i in node.inputs)
        case _:
            assert_never(node)


def _of_aggregate(node: Aggregate) -> Progressing:
    closing = closing_key(node)
    if closing is not None and node.distinct:
        return _of_project(Project(node.input, node.keys, node.names))
    if closing is not None and closing_pair(node) is None:
        at, column = closing
        info = progressing(node.input)[column]
        return {at: replace(info, unit=_unit(node.keys[at], info.unit))}
    if node.window is None or not node.window.has_bounds:
        return {}
    first = len(node.keys) + len(node.calls)
    columns = dict(_window_columns(progressing(node.input), node.window.wa, first))
    if node.window.kind is WindowKind.SESSION:
        del columns[first]  # sessions leave by their ends, however long ago they began
    return columns


def _of_join(node: Join) -> Progressing:
    """A join keeps the times of both inputs, and both progress (out-of-order paper §3.2), except on
    the side that an outer join pads with NULL."""
    left = progressing(node.left) if node.kind not in ("right", "full") else {}
    if node.kind in ("semi", "anti", "left", "full", *ASOF):
        return left
    width = len(node.left.schema)
    right = {width + at: info for at, info in progressing(node.right).items()}
    return {**left, **right}


def _of_unsupported(node: Unsupported) -> Progressing:
    """An unsupported clause appends columns to its first input, or makes a relation of its own."""
    if not node.inputs:
        return {}
    below = node.inputs[0].schema.fields
    if node.schema.fields[: len(below)] != below:
        return {}
    return progressing(node.inputs[0])
