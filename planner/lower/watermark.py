"""The columns of a physical plan on which punctuation flows, and those that close with a window."""

from __future__ import annotations

from cql.base.types import DataType
from cql.base.window import WindowKind
from cql.planner.functions import registry
from cql.planner.nodes.expr import Cast, Column, Expr, columns_of
from cql.planner.nodes.physical import (
    ArrivalExec,
    BucketExec,
    ChangeAggregateExec,
    DupelimExec,
    FilterExec,
    KeyWindowsExec,
    LateRowsExec,
    LimitExec,
    MergeUnionExec,
    NumberExec,
    OnTimeExec,
    Physical,
    ProjectExec,
    PunctuatedSortExec,
    RelationExec,
    RowNumberExec,
    SetOperationExec,
    SlackExec,
    SortExec,
    SourceExec,
    StreamExec,
    TopExec,
    UnionExec,
    ValuesExec,
    WidAggregateExec,
    bounded,
)
from cql.planner.nodes.physical_in_order_join import WindowJoinExec
from cql.planner.nodes.physical_join import (
    AsofJoinExec,
    LookupExec,
    OopJoinExec,
    RelationJoinExec,
    SubqueryJoinExec,
    TableJoinExec,
    UnnestExec,
)


def progressing(node: Physical) -> tuple[int, ...]:
    """Output columns on which punctuation flows, in ascending order."""
    match node:
        case SourceExec():
            return tuple(sorted(column for column, _ in node.progress))
        case ValuesExec():
            return ()
        case FilterExec() | LimitExec() | OnTimeExec() | LateRowsExec() | DupelimExec():
            return progressing(node.input)
        case LookupExec():
            return tuple(c for c in progressing(node.input) if c < node.width)
        case OopJoinExec():
            return _of_join(node)
        case WindowJoinExec():
            return _of_window_join(node)
        case TableJoinExec() | UnnestExec():
            return tuple(node.forwarded(progressing(node.input)))
        case AsofJoinExec():  # left rows wait, and leave in the order of one time
            time = node.times[0]
            shown = time in progressing(node.left) and time in node.columns
            return (node.columns.index(time),) if shown else ()
        case (
            ArrivalExec()
            | RelationExec()
            | ChangeAggregateExec()
            | SetOperationExec()
            | SubqueryJoinExec()
            | TopExec()
            | RowNumberExec()
            | RelationJoinExec()
        ):
            return (len(node.schema) - 2,)
        case StreamExec():
            return (len(node.input.schema) - 2,)
        case SortExec():
            # Rows wait for their window's end, so only the watermarks of window columns still hold.
            return () if node.window_end is None else window_columns(node.input)
        case ProjectExec():
            live = progressing(node.input)
            return tuple(
                i for i, e in enumerate(node.exprs) if progress_origin(e, live) is not None
            )
        case MergeUnionExec() | PunctuatedSortExec():
            return (node.order,)  # a waiting row may lie below the watermarks of other columns
        case SlackExec():
            return (node.attribute,)
        case NumberExec():
            return (*progressing(node.input), len(node.input.schema))
        case KeyWindowsExec():  # rows wait for their windows
            return (len(node.schema) - 1,)
        case BucketExec():
            live = progressing(node.input)
            width = len(node.input.schema)
            return (*live, *range(width, width + 3)) if node.window.wa in live else live
        case UnionExec():
            # a table holds the watermark back until it has been read, and not from then on
            found = [(set(progressing(i)), i) for i in node.inputs]
            kept = [columns for columns, i in found if columns or not bounded(i)]
            return tuple(sorted(set.intersection(*kept))) if kept else ()
        case WidAggregateExec():
            if node.window is None or node.window.wa not in progressing(node.input):
                return ()
            first = len(node.keys) + len(node.calls)
            bounds = tuple(range(first, first + 3))
            # Sessions leave by their ends, however long ago they began.
            return bounds[1:] if node.window.kind is WindowKind.SESSION else bounds


def _of_join(node: OopJoinExec) -> tuple[int, ...]:
    """The two times of the band (individual punctuation), the columns that follow them and, where
    both progress, the later and the earlier time (joint punctuation, out-of-order paper §7)."""
    band = node.band
    if band is None:
        return ()
    sides = ((0, node.left, band.left), (len(node.left.schema), node.right, band.right))
    live = {
        first + c
        for port, (first, side, c) in enumerate(sides)
        if c in progressing(side) and not node.loose(port)
    }
    if len(live) == len(sides):
        live |= {node.later, node.later + 1}
    live |= {c for c, port, _ in node.follows if sides[port][0] + sides[port][2] in live}
    return tuple(k for k, c in enumerate(node.columns) if c in live)


def _of_window_join(node: WindowJoinExec) -> tuple[int, ...]:
    """The time of each input, and the time of the result."""
    times = {node.first(i) + t for i, t in enumerate(node.times)}
    found = tuple(k for k, c in enumerate(node.columns) if c in times)
    return (*found, len(node.columns)) if node.time else found


def window_columns(node: Physical) -> tuple[int, ...]:
    """Output columns that are functions of one window's bounds (they close together)."""
    match node:
        case WidAggregateExec():
            return progressing(node)
        case BucketExec():
            return progressing(node)[-3:] if node.window.wa in progressing(node.input) else ()
        case FilterExec() | LimitExec() | SortExec() | OnTimeExec() | NumberExec() | LateRowsExec():
            return window_columns(node.input)
        case DupelimExec():  # each value is a window
            return progressing(node)
        case LookupExec():
            return tuple(c for c in window_columns(node.input) if c < node.width)
        case TableJoinExec() | UnnestExec():
            return tuple(node.forwarded(window_columns(node.input)))
        case ProjectExec():
            live = window_columns(node.input)
            return tuple(
                i for i, e in enumerate(node.exprs) if progress_origin(e, live) is not None
            )
        case UnionExec():
            common = set.intersection(*(set(window_columns(i)) for i in node.inputs))
            return tuple(sorted(common))
        case MergeUnionExec():
            common = set.intersection(*(set(window_columns(i)) for i in node.inputs))
            return tuple(c for c in (node.order,) if c in common)
        case PunctuatedSortExec() | SlackExec():
            below, only = window_columns(node.input), progressing(node)
            return tuple(c for c in only if c in below)
        case _:
            return ()


def progress_origin(expr: Expr, live: tuple[int, ...]) -> int | None:
    """The progressing input column of which ``expr`` is a non-decreasing function, if any."""
    used = columns_of(expr)
    if len(used) != 1:
        return None
    (column,) = used
    if column in live and expr.type.can_progress and registry.monotone(expr, column):
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
        case _:
            return None


def _size(kind: DataType) -> int:
    """Width of an integer in bits."""
    return int(kind.storage.removeprefix("int"))
