"""The reference of groups: in windows, in sessions, or closed by a key that rises with time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cql.base.window import Window, WindowKind
from cql.planner.nodes.logical import SEQUENCE, Aggregate, Bucket
from tests.reference.naive_aggregates import aggregate
from tests.reference.naive_expr import evaluate as value_of
from tests.reference.naive_expr import is_true
from tests.reference.naive_order import before_window, closing_key
from tests.reference.naive_progress import NEVER
from tests.reference.naive_rows import Row, Run, moved_mark
from tests.reference.naive_sessions import Point, is_late, sessions
from tests.reference.naive_values import BadRowError, group_key
from tests.reference.naive_windows import first_after, windows_of


def aggregated(node: Aggregate, rows: list[Row], run: Run) -> list[Row]:
    """One row per non-empty (window, group): keys, aggregates, window_start, window_end,
    window_time. Rows of the result are never late. Windows leave in the order of their ends.

    A NULL key is a group of its own; -0.0 and 0.0 are one group, and so is NaN.

    >>> from tests.reference.naive import evaluate
    >>> from tests.reference.naive_tables import stream, tumbling
    >>> s = tumbling(stream("s", "t bigint, k string, v int"), 10, by="k", total=("sum", "v"))
    >>> for row in evaluate(s, {"s": [(1, "a", 1), (2, None, 2), (3, "a", 3), (25, "a", 4)]}).rows:
    ...     print(row)
    ('a', 4, 0, 10, 9)
    (None, 2, 0, 10, 9)
    ('a', 4, 20, 30, 29)

    Without a window, the whole input is one window; without keys, the result always has one row.

    >>> from tests.reference.naive_tables import whole
    >>> s = stream("s", "t bigint, v int")
    >>> evaluate(whole(s, n="count", total=("sum", "v")), {"s": []}).rows
    [(0, None)]
    """
    window = node.window
    groups: dict[tuple[Any, ...], list[_Member]] = defaultdict(list)
    closing = closing_key(node)
    if closing is not None:
        return _closed_by_key(node, *closing, rows, run)
    if window is not None and window.wa is not None and not _counts_rows(node):
        rows = before_window(rows, node.input, window.wa, run)
    if window is not None and window.kind is WindowKind.SESSION:
        return _sessions(node, window, rows, run)
    for row in rows:
        try:
            member = _member(node, row)
            spans = [()] if window is None else _on_time(window, row, run)
        except BadRowError as error:
            run.fails(error)
            continue
        for span in spans:
            groups[(span, *map(group_key, member.keys))].append(member)
    if window is None and not node.keys and not groups:
        groups[((),)] = []
    rows = [_group_row(node, key[0], members) for key, members in groups.items()]
    return _by_end(node, rows)


def _on_time(window: Window, row: Row, run: Run) -> list[tuple[int, int]]:
    """The open windows of a row. A (row, window) pair is left out and counted as late iff the
    window's end is at or below the row watermark.

    The row watermark of 8 is 15: its windows [0, 10) and [5, 15) are over. The row 12 only reaches
    [10, 20).

    >>> from tests.reference.naive import evaluate
    >>> from tests.reference.naive_tables import sliding, stream
    >>> s = sliding(stream("s", "t bigint"), 10, 5, count="count")
    >>> evaluate(s, {"s": [(15,), (8,), (12,)]})
    ... # doctest: +NORMALIZE_WHITESPACE
    Answer(rows=[(2, 10, 20, 19), (1, 15, 25, 24)], late_pairs=3, bad_rows=0, undetermined=False)
    """
    assert window.wa is not None
    mark = row.marks[window.wa]
    held = windows_of(window, _event_time(window, row))
    kept = [w for w in held if mark is None or w[1] > mark]
    run.late += len(held) - len(kept)
    return kept


def _closed_by_key(node: Aggregate, at: int, column: int, rows: list[Row], run: Run) -> list[Row]:
    """Groups by a key that rises with a progressing column.

    A row is late iff its key lies below the key of its row watermark: the source can send no
    further on-time row to a group of such a key. A NULL key has no place in time: the row is bad.

    The row watermark of 9 and 21 is 25: group 0 is closed, group 2 is not.

    >>> from tests.reference.naive import evaluate
    >>> from tests.reference.naive_tables import call, column, stream, whole
    >>> from cql.planner.nodes.logical import Project
    >>> s = stream("s", "t bigint")
    >>> tens = Project(s, (call("int_div", column(s, "t"), 10),), ("tens",))
    >>> evaluate(whole(tens, "tens", n="count"), {"s": [(3,), (25,), (9,), (21,)]})
    Answer(rows=[(0, 1), (2, 2)], late_pairs=1, bad_rows=0, undetermined=False)

    DISTINCT passes the first of equal rows at once, with the row watermarks of its columns.

    >>> from dataclasses import replace
    >>> s = stream("s", "t bigint, k string", slack=5)
    >>> distinct = replace(whole(s, "t k"), distinct=True)
    >>> evaluate(distinct, {"s": [(7, "a"), (3, "b"), (7, "a"), (9, "a"), (3, "b"), (3, "c")]})
    ... # doctest: +NORMALIZE_WHITESPACE
    Answer(rows=[(7, 'a'), (3, 'b'), (9, 'a')], late_pairs=2, bad_rows=0, undetermined=False)
    """
    groups: dict[tuple[Any, ...], list[_Member]] = defaultdict(list)
    firsts: dict[tuple[Any, ...], Row] = {}
    for row in before_window(rows, node.input, column, run):
        try:
            member = _member(node, row)
            if member.keys[at] is None:
                raise BadRowError("the key that closes groups is NULL")
        except BadRowError as error:
            run.fails(error)
            continue
        mark = moved_mark(node.keys[at], row)
        if mark is not None and member.keys[at] < mark:
            run.late += 1
            continue
        group = tuple(map(group_key, member.keys))
        groups[group].append(member)
        marks = tuple(moved_mark(key, row) for key in node.keys)
        firsts.setdefault(group, Row(member.keys, marks, row.arrival))
    if node.distinct:
        return list(firsts.values())
    made = [_group_row(node, (), members) for members in groups.values()]
    closed = tuple(NEVER if k == at else None for k in range(len(node.schema)))
    return sorted((Row(r.values, closed) for r in made), key=lambda r: r.values[at])


def _sessions(node: Aggregate, window: Window, rows: list[Row], run: Run) -> list[Row]:
    """One row per session of a group (see ``naive_sessions``): its rows are at most the gap apart.

    A row is late iff its row watermark is at or above its time plus the gap.

    >>> from tests.reference.naive import evaluate
    >>> from tests.reference.naive_tables import aggregate, stream
    >>> s = stream("s", "t bigint, k string", slack=10)
    >>> counted = aggregate(s, Window(WindowKind.SESSION, 0, gap=10), "k", {"n": "count"})
    >>> evaluate(counted, {"s": [(0, "a"), (20, "a"), (10, "a"), (31, "a"), (11, "a")]})
    ... # doctest: +NORMALIZE_WHITESPACE
    Answer(rows=[('a', 3, 0, 30, 29), ('a', 1, 31, 41, 40)], late_pairs=1, bad_rows=0,
           undetermined=False)
    """
    assert window.wa is not None
    assert window.gap is not None
    groups: dict[tuple[Any, ...], list[tuple[Point, _Member]]] = defaultdict(list)
    for row in rows:
        try:
            member = _member(node, row)
        except BadRowError as error:
            run.fails(error)
            continue
        point = (member.time, row.marks[window.wa])
        if is_late(point, window.gap):
            run.late += 1
        else:
            groups[tuple(map(group_key, member.keys))].append((point, member))
    made = [
        _group_row(node, (start, end), [group[k][1] for k in held])
        for group in groups.values()
        for start, end, held in sessions([point for point, _ in group], window.gap)
    ]
    return _by_end(node, made)


def _counts_rows(node: Aggregate) -> bool:
    """Whether the windows count row numbers, which need no enforced order."""
    assert node.window is not None
    return node.input.schema[node.window.wa or 0].name == SEQUENCE


def _by_end(node: Aggregate, rows: list[Row]) -> list[Row]:
    end = len(node.keys) + len(node.calls) + 1
    return sorted(rows, key=lambda row: row.values[end : end + 1])


def _event_time(window: Window, row: Row) -> int:
    assert window.wa is not None
    time = row.values[window.wa]
    if time is None:
        raise BadRowError("event time is NULL")
    assert isinstance(time, int)
    return time


@dataclass(frozen=True)
class _Member:
    keys: tuple[Any, ...]
    args: tuple[tuple[Any, ...] | None, ...]  # per call; None where FILTER leaves the row out
    time: Any
    arrival: int


def _member(node: Aggregate, row: Row) -> _Member:
    """The keys and arguments, evaluated once per row, with or without windows; FILTER guards its
    call.

    >>> from tests.reference.naive import evaluate
    >>> from tests.reference.naive_tables import call, column, stream, tumbling
    >>> s = stream("s", "t bigint, v bigint")
    >>> share = call("int_div", 6, column(s, "v"))
    >>> guarded = tumbling(s, 10, total=("sum", share, call("ne", column(s, "v"), 0)))
    >>> evaluate(guarded, {"s": [(1, 0), (2, 3)]}).rows
    [(2, 0, 10, 9)]
    """
    time = None if node.window is None or node.window.wa is None else row.values[node.window.wa]
    if node.window is not None and time is None:
        raise BadRowError("event time is NULL")
    args = []
    for one in node.calls:
        taken = one.where is None or is_true(one.where, row.values)
        args.append(tuple(value_of(a, row.values) for a in one.args) if taken else None)
    return _Member(
        tuple(value_of(k, row.values) for k in node.keys), tuple(args), time, row.arrival
    )


def grouped(node: Aggregate, bag: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """One row per group; without keys, always one row."""
    groups: dict[tuple[Any, ...], list[_Member]] = defaultdict(list)
    for k, values in enumerate(bag):
        member = _member(node, Row(values, (), k))
        groups[tuple(map(group_key, member.keys))].append(member)
    if not node.keys and not groups:
        groups[()] = []
    return [_group_row(node, (), members).values for members in groups.values()]


def _group_row(node: Aggregate, span: tuple[int, ...], members: list[_Member]) -> Row:
    """The output row of a group; ``first`` and ``last`` use the order (WA, arrival).

    >>> from tests.reference.naive import evaluate
    >>> from tests.reference.naive_tables import stream, tumbling
    >>> s = stream("s", "t bigint, v int", slack=9)
    >>> last = tumbling(s, 10, a=("first", "v"), b=("last", "v"))
    >>> evaluate(last, {"s": [(5, 1), (2, 2), (5, 3)]}).rows
    [(2, 3, 0, 10, 9)]
    """
    if node.window is not None:
        members = sorted(members, key=lambda m: (m.time, m.arrival))
    values: list[Any] = list(members[0].keys) if members else []
    for i, one in enumerate(node.calls):
        values.append(aggregate(one, [m.args[i] for m in members if m.args[i] is not None]))
    marks: list[float | None] = [None] * len(values)
    if span:
        start, end = span
        values += [start, end, end - 1]
        marks += [NEVER] * 3
    return Row(tuple(values), tuple(marks))


def bucketed(node: Bucket, rows: list[Row], run: Run) -> Iterator[Row]:
    """Each row once per window that holds the row, with the window's columns appended.

    The operator is stateless: late rows pass and stay late. Every later window ends above the row
    watermark.

    >>> from cql.base.window import WindowKind
    >>> from tests.reference.naive import evaluate
    >>> from tests.reference.naive_tables import stream
    >>> s = Bucket(stream("s", "t bigint"), Window(WindowKind.SLIDING, 0, range=10, slide=5))
    >>> evaluate(s, {"s": [(7,)]}).rows
    [(7, 0, 10, 9), (7, 5, 15, 14)]
    """
    for row in rows:
        try:
            spans = windows_of(node.window, _event_time(node.window, row))
        except BadRowError as error:
            run.fails(error)
            continue
        marks = (*row.marks, *_bucket_marks(node.window, row))
        for start, end in spans:
            yield Row((*row.values, start, end, end - 1), marks, row.arrival)


def _bucket_marks(window: Window, row: Row) -> tuple[float | None, ...]:
    """The row watermarks of window_start, window_end and window_time: the bounds of the first
    window that ends above the row watermark of the time."""
    assert window.wa is not None
    mark = row.marks[window.wa]
    if mark is None or mark == NEVER:
        return (mark,) * 3
    start, end = first_after(window, int(mark))
    return start, end, end - 1
