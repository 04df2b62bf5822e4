"""The reference of enforced order: merging unions, ORDER BY a progressing time, slack.

Settings, not the meaning of a query alone, enforce order: ``Order`` holds these settings. Rows are
``naive_rows.Row``: ``values``, ``marks`` (row watermarks) and ``arrival``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from cql.base.types import DataType
from cql.base.window import WindowKind
from cql.planner.nodes.catalog import Progress
from cql.planner.nodes.expr import Call, Cast, Column, Expr, Literal
from cql.planner.nodes.logical import (
    Aggregate,
    Bucket,
    Filter,
    Join,
    Limit,
    Logical,
    Project,
    RowNumber,
    Scan,
    Sort,
    Union,
    Unnest,
    Watermark,
    Windowed,
)
from tests.reference.naive_progress import Column as Clock
from tests.reference.naive_progress import believed
from tests.reference.naive_rows import Row, Run
from tests.reference.naive_values import BadRowError


@dataclass(frozen=True)
class Order:
    """The settings that enforce order.

    ``merge``: unions give rows in order (``SET union_operator = 'merge'``). ``sort``: windowed
    aggregates receive rows in order (``SET order_enforcement = 'sort'``). With ``slack``, in units
    of the time, or ``slack_rows``, windowed aggregates and ORDER BY derive watermarks from the
    arrival order."""

    merge: bool = False
    sort: bool = False
    slack: int | None = None
    slack_rows: int | None = None

    @property
    def deduces(self) -> bool:
        return self.slack is not None or self.slack_rows is not None


def is_late_row(row: Row, column: int) -> bool:
    """Whether a row is below its row watermark; a row without a time is not."""
    mark, time = row.marks[column], row.values[column]
    return mark is not None and time is not None and time < mark


def remarked(rows: Sequence[Row], column: int, order: Order, most: int | None) -> list[Row]:
    """The rows with the row watermarks that the slack derives from their order.

    A row watermark is the highest time before the row minus the slack; further rows must confirm an
    advance above ``most``. With ``slack_rows``, the row watermark is the highest time that more
    than ``slack_rows`` earlier rows reached.

    >>> from tests.reference.naive_rows import Row
    >>> rows = [Row((t,), (None,)) for t in (10, 30, 20, 40, 15)]
    >>> [row.marks[0] for row in remarked(rows, 0, Order(slack=5), 5000)]
    [-inf, 5, 25, 25, 35]

    15 comes after 30, 20 and 40: three rows overtook it, the slack allows two.

    >>> [row.marks[0] for row in remarked(rows, 0, Order(slack_rows=2), None)]
    [-inf, -inf, -inf, 10, 20]
    """
    found: list[Row] = []
    times: list[int] = []
    clock = Clock(Progress("", order.slack or 0), most)
    for row in rows:
        time = row.values[column]
        begun = order.slack_rows is None and time is not None and clock.begins(time)
        if order.slack_rows is not None:
            highest = sorted(times, reverse=True)
            known = len(highest) > order.slack_rows
            mark = highest[order.slack_rows] if known else -math.inf
        else:
            mark = clock.mark
        marks = (*row.marks[:column], mark, *row.marks[column + 1 :])
        found.append(replace(row, marks=marks))
        if time is not None:
            times.append(time)
            if not begun:
                clock.row(time)
    return found


def watermarked(node: Watermark, rows: Sequence[Row]) -> list[Row]:
    """The rows with the row watermarks of the one column with a WATERMARK clause in the query.

    >>> from tests.reference.naive_rows import Row
    >>> from tests.reference.naive_tables import stream
    >>> declared = Watermark(stream("s", "v bigint, t bigint"), 1, Progress("t", 5))
    >>> [row.marks for row in watermarked(declared, [Row((0, t), (0, 0)) for t in (10, 30, 20)])]
    [(None, -inf), (None, 5), (None, 25)]
    """
    most = believed(node.schema[node.column].type, node.progress)
    bare = [replace(row, marks=(None,) * len(row.marks)) for row in rows]
    return remarked(bare, node.column, Order(slack=node.progress.slack), most)


def merged(node: Union, parts: Sequence[Sequence[Row]]) -> tuple[list[Row], int]:
    """The rows of a merging union, and the number of late rows that it left out.

    The order is that of the first column that progresses in all inputs. Ties follow the order of
    the inputs, then the arrival; rows without a time come first.

    >>> from tests.reference.naive_rows import Row
    >>> from tests.reference.naive_tables import stream
    >>> union = Union((stream("a", "t bigint"), stream("b", "t bigint")))
    >>> a = [Row((1,), (0,)), Row((9,), (1,)), Row((3,), (9,))]
    >>> b = [Row((5,), (0,)), Row((1,), (0,))]
    >>> rows, left_out = merged(union, (a, b))
    >>> [row.values for row in rows], left_out
    ([(1,), (1,), (5,), (9,)], 1)
    """
    live = progressing(node)
    rows = [row for part in parts for row in part]
    if not live:
        return rows, 0
    column = min(live)
    kept = [row for row in rows if not is_late_row(row, column)]
    kept.sort(key=lambda row: time_key(row, column))
    kept = [replace(row, arrival=k) for k, row in enumerate(kept)]
    return kept, len(rows) - len(kept)


def time_key(row: Row, column: int) -> float:
    time = row.values[column]
    return -math.inf if time is None else time


def progressing(node: Logical) -> set[int]:
    """The output columns that progress, as far as the reference knows.

    These are the progressing columns of a stream and of a window, passed on unchanged or by a
    rising function, and keys that close groups.

    >>> from tests.reference.naive_tables import column, stream, tumbling
    >>> s = stream("s", "t bigint, v bigint")
    >>> progressing(s), progressing(Project(s, (column(s, "v"), column(s, "t")), ("v", "t")))
    ({0}, {1})
    >>> progressing(tumbling(s, 10, by="v", n="count"))
    {2, 3, 4}
    """
    match node:
        case Scan():
            spec, schema = node.relation.stream, node.relation.schema
            declared = {schema.find(p.column) for p in spec.progress} if spec else set()
            return {at for at, column in enumerate(node.columns) if column in declared}
        case Project():
            below = progressing(node.input)
            exprs = enumerate(node.exprs)
            return {at for at, e in exprs if e.type.can_progress and rises_with(e) in below}
        case Union():
            return set.intersection(*map(progressing, node.inputs))
        case Join():
            width = len(node.left.schema)
            if node.kind in ("semi", "anti", "asof", "asof left"):
                return progressing(node.left)
            return progressing(node.left) | {width + c for c in progressing(node.right)}
        case Aggregate() if node.window is None:
            closing = closing_key(node)
            if closing is not None and node.distinct:
                return progressing(Project(node.input, node.keys, node.names))
            return set() if closing is None else {closing[0]}
        case Aggregate() if node.window is not None:
            width, bounds = len(node.schema), 2 if node.window.kind is WindowKind.SESSION else 3
            return set(range(width - bounds, width))
        case Bucket():
            width = len(node.schema)
            return progressing(node.input) | set(range(width - 3, width))
        case Watermark():
            return {node.column}
        case Filter() | Sort() | Limit() | RowNumber() | Unnest():
            return progressing(node.input)
        case _:
            return set()


_RISING = {"floor", "date_trunc", "trunc", "year", "unix_seconds", "unix_millis", "unix_micros"}


def rises_with(expr: Expr) -> int | None:
    """The column with which ``expr`` rises monotonically, as far as the reference knows.

    The reference knows casts, shifts, scales, ``floor``, whole parts of times, and ``x - x % c``.

    >>> from tests.reference.naive_tables import call, column, stream
    >>> t = column(stream("s", "v bigint, t bigint"), "t")
    >>> for e in (call("int_div", t, 60), call("sub", t, call("mod", t, 60)), call("mod", t, 60)):
    ...     print(rises_with(e))
    1
    1
    None
    """
    match expr:
        case Column():
            return expr.index
        case Cast():
            return rises_with(expr.arg)
        case Call(fn="sub", args=(a, Call(fn="mod", args=(b, Literal())))) if a == b:
            return rises_with(a)
        case Call(fn="add" | "sub" | "mul" | "div" | "int_div" | "date_add", args=(a, Literal())):
            return rises_with(a)  # the constants of the random shapes are positive
        case Call(args=args) if expr.fn in _RISING:
            (inner,) = (a for a in args if not isinstance(a, Literal))
            return rises_with(inner)
    return None


def closing_key(node: Aggregate) -> tuple[int, int] | None:
    """For an aggregate without a window: the first key that rises with a progressing column, and
    this column; else None."""
    if node.window is not None:
        return None
    below = progressing(node.input)
    for at, key in enumerate(node.keys):
        column = rises_with(key)
        if column in below and key.type.can_progress:
            assert column is not None
            return at, column
    return None


def released_by(node: Sort) -> int | None:
    """The time by which punctuation releases a sorted row: the first sort key, if it ascends and is
    a progressing time; else None."""
    if node.window_end is not None or not node.keys or node.keys[0].descending:
        return None
    key = node.keys[0].expr
    return key.index if isinstance(key, Column) and key.index in progressing(node.input) else None


def before_window(rows: list[Row], below: Logical, wa: int, run: Run) -> list[Row]:
    """The rows of ``below`` as a windowed aggregate receives them, where the settings derive
    watermarks or enforce order.

    With a slack of one row, 12 comes below 15, the second highest time: the row 12 is late in
    [5, 15). An enforced order leaves out the row 12 entirely.

    >>> from tests.reference.naive import evaluate
    >>> from tests.reference.naive_tables import sliding, stream
    >>> s = sliding(stream("s", "t bigint", slack=99), 10, 5, n="count")
    >>> data = {"s": [(15,), (20,), (12,), (26,)]}
    >>> for order in (Order(), Order(slack_rows=1), Order(slack_rows=1, sort=True)):
    ...     answer = evaluate(s, data, order=order)
    ...     print([row[:2] for row in answer.rows], answer.late_pairs, answer.left_out)
    [(1, 5), (2, 10), (2, 15), (2, 20), (1, 25)] 0 0
    [(2, 10), (2, 15), (2, 20), (1, 25)] 1 0
    [(1, 10), (2, 15), (2, 20), (1, 25)] 0 1
    """
    if run.order.deduces:
        rows = remarked(rows, wa, run.order, _most(below, wa, run.order))
    return in_time(rows, wa, run) if run.order.sort else rows


def _most(below: Logical, column: int, order: Order) -> int | None:
    """The largest advance of a derived watermark that needs no confirmation: MAX ADVANCE of a
    stream below, for a time of the same type, else the default."""
    kind = below.schema[column].type
    declared = [most for of, most in _declared(below) if of == kind]
    return max(declared, default=believed(kind, Progress("", order.slack or 0)))


def _declared(node: Logical) -> Iterator[tuple[DataType, int]]:
    """Pairs (type of the time, MAX ADVANCE) of the declarations of the streams below."""
    if isinstance(node, Scan) and node.relation.stream is not None:
        types = {field.name: field.type for field in node.relation.schema}
        for progress in node.relation.stream.progress:
            if progress.max_advance is not None:
                yield types[progress.column], progress.max_advance
    for child in node.inputs:
        yield from _declared(child)


def in_time(rows: list[Row], column: int, run: Run) -> list[Row]:
    """The rows in the order of a time, without late rows; a row without a time is bad."""
    kept = []
    for row in rows:
        if row.values[column] is None:
            run.fails(BadRowError("event time is NULL"))
        elif is_late_row(row, column):
            run.left_out += 1
        else:
            kept.append(row)
    kept.sort(key=lambda row: row.values[column])
    return [replace(row, arrival=k) for k, row in enumerate(kept)]


def released(node: Sort, rows: list[Row], run: Run) -> list[Row]:
    """The rows that ORDER BY orders; without late rows if punctuation releases the sorted rows."""
    column = released_by(node)
    if column is None:
        return rows
    if run.order.deduces:
        rows = remarked(rows, column, run.order, _most(node.input, column, run.order))
    return in_time(rows, column, run)


def windows_of(node: Logical) -> Iterator[tuple[int, int | None]]:
    """Pairs (column of the time, stay) of the windows; a row stays for ``stay`` units after its
    time, with None for ever."""
    match node:
        case Windowed():
            kinds = {WindowKind.NOW: 0, WindowKind.UNBOUNDED: None}
            assert node.window.wa is not None
            yield node.window.wa, kinds.get(node.window.kind, node.window.range)
        case Filter():
            yield from windows_of(node.input)
        case Project():
            for column, stays in windows_of(node.input):
                places = [
                    k
                    for k, e in enumerate(node.exprs)
                    if isinstance(e, Column) and e.index == column
                ]
                yield from ((at, stays) for at in places[:1])
        case Join():
            yield from windows_of(node.left)
            width = len(node.left.schema)
            yield from ((width + column, stays) for column, stays in windows_of(node.right))
        case _:  # all rows so far
            yield from ((column, None) for column in sorted(progressing(node))[:1])
