"""The reference: what a query means, slowly and obviously, in pure Python.

``evaluate(plan, inputs)`` runs a logical plan over whole finite inputs: lists of tuples in arrival
order, values in storage form (see ``naive_values``). Each construct is one function whose docstring
shows one worked example (run by ``test_naive.py``). Nothing of the executor is used here: it is the
second answer that the engine's is compared with.

Own watermark. A row carries, for each progressing column, the progress of its source just before
it (``naive_progress``): the largest value of that column so far, minus the declared slack, or what
the source has promised. It is made at the source, before any filter, and depends on nothing else. A
row below its own watermark is a straggler.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cmp_to_key, partial
from itertools import pairwise
from typing import Any

from naive_aggregates import QueryFailsError, UndeterminedError, aggregate
from naive_expr import evaluate as value_of
from naive_expr import is_true
from naive_order import Order, before_window, closing_key, merged, released
from naive_progress import NEVER, scan
from naive_relations import Relations, TwoRowsError, is_append_only, is_relation
from naive_sessions import Point, is_late, sessions
from naive_values import BadRowError, group_key, order_key
from naive_windows import first_after, windows_of

from cql.planner.expr import Column, Expr, columns_of
from cql.planner.logical import (
    SEQUENCE,
    Aggregate,
    Bucket,
    Filter,
    Join,
    Logical,
    Number,
    Project,
    RelationToStream,
    RowNumber,
    Scan,
    SetOperation,
    Sort,
    SortKey,
    SubqueryJoin,
    Union,
    Unsupported,
    Values,
    Windowed,
)
from cql.window import Window, WindowKind

__all__ = ["Answer", "QueryFailsError", "Row", "UndeterminedError", "evaluate"]

Inputs = Mapping[str, Sequence[tuple[Any, ...]]]


@dataclass(frozen=True)
class Row:
    """``marks[i]`` is the own watermark on column *i*, None where the column does not progress.
    ``arrival`` orders the rows of one named stream."""

    values: tuple[Any, ...]
    marks: tuple[float | None, ...]
    arrival: int = 0


@dataclass(frozen=True)
class Answer:
    """Rows in an order that the semantics allow, the (row, window) pairs left out as late, and the
    bad rows left out. ``undetermined`` says that a tie at a LIMIT makes several answers right;
    ``left_out`` are the stragglers that something in order had no place for."""

    rows: list[tuple[Any, ...]]
    late_pairs: int = 0
    bad_rows: int = 0
    undetermined: bool = False
    left_out: int = field(default=0, repr=False)


@dataclass
class _Run:
    inputs: Inputs
    keep_bad: bool
    order: Order
    late: int = 0
    left_out: int = 0
    bad: int = 0
    undetermined: bool = False

    def fails(self, error: BadRowError) -> None:
        """A bad row: FAIL ends the query, KEEP counts it and goes on without it."""
        if not self.keep_bad:
            raise QueryFailsError(f"bad row: {error}") from error
        self.bad += 1


def evaluate(
    plan: Logical, inputs: Inputs, *, keep_bad: bool = False, order: Order | None = None
) -> Answer:
    """The answer of ``plan``. ``inputs`` maps the last part of a relation's name to its rows, with
    all columns of the relation's schema; ``order`` is what enforces order. Raises QueryFailsError
    where the query must fail."""
    run = _Run(inputs, keep_bad, order or Order())
    try:
        if is_relation(plan) and not is_append_only(plan):
            rows = _final(plan, run)
        else:
            rows = [row.values for row in _rows(plan, run)]
    except TwoRowsError as error:
        raise QueryFailsError("a scalar subquery has two rows") from error
    return Answer(rows, run.late, run.bad, run.undetermined, run.left_out)


def _rows(node: Logical, run: _Run) -> list[Row]:
    match node:
        case Scan():
            return _scan(node, run)
        case Values():
            return [Row(tuple(v.value for v in row), ()) for row in node.rows]
        case Filter():
            return list(_filter(node, run))
        case Project():
            return list(_project(node, run))
        case Union():
            return _union(node, run)
        case Aggregate():
            return _aggregate(node, run)
        case Bucket():
            return list(_bucket(node, run))
        case Number():
            return [
                replace(row, values=(*row.values, k), marks=(*row.marks, k))
                for k, row in enumerate(_rows(node.input, run))
            ]
        case Sort():
            return _sort(node, run)
        case RowNumber():
            return _row_number(node, run)
        case Windowed():
            return _each_once(node, run)
        case RelationToStream():
            return _to_stream(node, run)
        case SubqueryJoin():
            return _looked_up(node, run)
        case SetOperation() | Join() | Unsupported():
            raise NotImplementedError(f"the reference does not evaluate {type(node).__name__} yet")


def _scan(node: Scan, run: _Run) -> list[Row]:
    """The rows of an input, each with its own watermark per progressing column.

    Times 10, 30, 20 with a slack of 5 have the own watermarks -inf, 5 and 25: the last row is a
    straggler. NULL times move nothing.

    >>> from naive_tables import stream
    >>> s = stream("s", "t bigint", slack=5)
    >>> run = _Run({"s": [(10,), (30,), (None,), (20,)]}, False, Order())
    >>> [row.marks[0] for row in _scan(s, run)]
    [-inf, 5, 25, 25]
    """
    rows = scan(node, run.inputs[node.relation.name[-1]])
    return [Row(values, tuple(marks), arrival) for arrival, (values, marks) in enumerate(rows)]


def _filter(node: Filter, run: _Run) -> Iterator[Row]:
    """Keeps the rows whose condition is true; NULL is not true. Marks stay as they are.

    >>> from naive_tables import call, column, stream
    >>> s = stream("s", "t bigint, v bigint")
    >>> big = Filter(s, call("gt", column(s, "v"), 1))
    >>> evaluate(big, {"s": [(1, 1), (2, None), (3, 3)]}).rows
    [(3, 3)]
    """
    for row in _rows(node.input, run):
        try:
            if is_true(node.condition, row.values):
                yield row
        except BadRowError as error:
            run.fails(error)


def _project(node: Project, run: _Run) -> Iterator[Row]:
    """One value per expression. A row in which any of them fails is one bad row.

    >>> from naive_tables import call, column, stream
    >>> s = stream("s", "t bigint, v bigint")
    >>> share = Project(s, (call("int_div", 6, column(s, "v")),), ("share",))
    >>> evaluate(share, {"s": [(1, 4), (2, 0), (3, None)]}, keep_bad=True)
    Answer(rows=[(1,), (None,)], late_pairs=0, bad_rows=1, undetermined=False)
    """
    for row in _rows(node.input, run):
        try:
            values = tuple(value_of(e, row.values) for e in node.exprs)
        except BadRowError as error:
            run.fails(error)
            continue
        marks = tuple(_moved_mark(e, row) for e in node.exprs)
        yield Row(values, marks, row.arrival)


def _moved_mark(expr: Expr, row: Row) -> float | None:
    """The own watermark of a computed column: where the expression rises with one progressing
    column (the binder lets only such be a WA), it is the expression of that column's mark."""
    used = columns_of(expr)
    if len(used) != 1:
        return None
    (index,) = used
    mark = row.marks[index]
    if mark is None or mark == NEVER or isinstance(expr, Column):
        return mark
    try:
        moved = value_of(expr, (*row.values[:index], mark, *row.values[index + 1 :]))
    except BadRowError:
        return NEVER
    whole = isinstance(moved, int) and not isinstance(moved, bool)
    return moved if whole else None  # type: ignore[return-value]


def _union(node: Union, run: _Run) -> list[Row]:
    """A bag: all rows of all inputs. Each keeps the watermark of its own source, so that a row is
    late or not whatever the other inputs do.

    Here 5 is on time in its own stream, although the other one is at 100 already.

    >>> from naive_tables import stream, tumbling
    >>> a, b = stream("a", "t bigint"), stream("b", "t bigint")
    >>> counted = tumbling(Union((a, b)), 10, count="count")
    >>> sorted(evaluate(counted, {"a": [(100,)], "b": [(5,), (7,)]}).rows)
    [(1, 100, 110, 109), (2, 0, 10, 9)]
    """
    parts = [_rows(part, run) for part in node.inputs]
    if not run.order.merge:
        return [row for part in parts for row in part]
    rows, left_out = merged(node, parts)
    run.left_out += left_out
    return rows


# Relations ----------------------------------------------------------------------------------------


def relations(inputs: Inputs) -> Relations:
    """The relations over these inputs."""
    return _relations(_Run(inputs, False, Order()))


def _relations(run: _Run) -> Relations:
    def late(rows: int) -> None:
        run.late += rows

    return Relations(
        lambda node: _rows(node, run),
        _grouped,
        compare_rows,
        late,
        run.fails,
        lambda scan: list(run.inputs[scan.relation.name[-1]]),
    )


def _grouped(node: Aggregate, bag: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """One row per group; without keys always one."""
    groups: dict[tuple[Any, ...], list[_Member]] = defaultdict(list)
    for k, values in enumerate(bag):
        member = _member(node, Row(values, (), k))
        groups[tuple(map(group_key, member.keys))].append(member)
    if not node.keys and not groups:
        groups[()] = []
    return [_group_row(node, (), members).values for members in groups.values()]


def _final(plan: Logical, run: _Run) -> list[tuple[Any, ...]]:
    """The relation at the last instant to which its inputs have come."""
    found = _relations(run)
    last = found.last(plan)
    for window in found.windows(plan):
        found.members(window)
    rows = found.at(plan, 0 if last is None else last)
    if isinstance(plan, Sort):
        rows = sorted(rows, key=cmp_to_key(partial(compare_rows, plan.keys)))
    run.undetermined |= found.undetermined
    return rows


def _each_once(node: Windowed, run: _Run) -> list[Row]:
    """A window that nothing above asks about: each row that is no straggler, once."""
    members = _relations(run).members(node)
    return [Row(row, (NEVER,) * len(row), k) for k, (_, row) in enumerate(members)]


def _looked_up(node: SubqueryJoin, run: _Run) -> list[Row]:
    """What a table says of each row of a stream that is no straggler, in the order of time."""
    found = _relations(run)
    stream = _rows(node.input, run)
    timed = (k for row in stream for k, mark in enumerate(row.marks) if mark is not None)
    wa = next(timed, None)
    if wa is None:
        rows = [row.values for row in stream]
    else:
        window = Windowed(node.input, Window(WindowKind.UNBOUNDED, wa))
        rows = [row for _, row in found.members(window)]
    said = found.answers(node, rows, found.at(node.query, 0))
    width = len(node.schema)
    return [
        Row((*r, x), (NEVER,) * width, k) for k, (r, x) in enumerate(zip(rows, said, strict=True))
    ]


def _to_stream(node: RelationToStream, run: _Run) -> list[Row]:
    found = _relations(run)
    rows = [Row(row, (NEVER,) * len(row), k) for k, row in enumerate(found.stream(node))]
    run.undetermined |= found.undetermined
    return rows


# Windows ------------------------------------------------------------------------------------------


def _event_time(window: Window, row: Row) -> int:
    assert window.wa is not None
    time = row.values[window.wa]
    if time is None:
        raise BadRowError("event time is NULL")
    assert isinstance(time, int)
    return time


def _on_time(window: Window, row: Row, run: _Run) -> list[tuple[int, int]]:
    """The windows that a row still reaches. A (row, window) pair is left out and counted as late
    iff the window's end is at or below the row's own watermark.

    The mark is 15 when 8 arrives: of its windows [0, 10) is over, [5, 15) too; 12 reaches
    [10, 20) only.

    >>> from naive_tables import sliding, stream
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


def _aggregate(node: Aggregate, run: _Run) -> list[Row]:
    """One row per non-empty (window, group): keys, aggregates, window_start, window_end,
    window_time. Rows of the result are never late. Windows leave by their end.

    A NULL key is a group of its own; -0.0 and 0.0 are one group, and so is NaN.

    >>> from naive_tables import stream, tumbling
    >>> s = tumbling(stream("s", "t bigint, k string, v int"), 10, by="k", total=("sum", "v"))
    >>> for row in evaluate(s, {"s": [(1, "a", 1), (2, None, 2), (3, "a", 3), (25, "a", 4)]}).rows:
    ...     print(row)
    ('a', 4, 0, 10, 9)
    (None, 2, 0, 10, 9)
    ('a', 4, 20, 30, 29)

    Without a window the whole input is one window; without keys it always has one row.

    >>> from naive_tables import whole
    >>> s = stream("s", "t bigint, v int")
    >>> evaluate(whole(s, n="count", total=("sum", "v")), {"s": []}).rows
    [(0, None)]
    """
    window = node.window
    groups: dict[tuple[Any, ...], list[_Member]] = defaultdict(list)
    rows = _rows(node.input, run)
    closing = closing_key(node)
    if closing is not None:
        return _closed_by_key(node, *closing, rows, run)
    if window is not None and window.wa is not None and not _counts_rows(node):
        rows = before_window(rows, window.wa, run)
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


def _counts_rows(node: Aggregate) -> bool:
    """Whether its windows are over the numbers of rows, which need no order enforced."""
    assert node.window is not None
    return node.input.schema[node.window.wa or 0].name == SEQUENCE


def _closed_by_key(node: Aggregate, at: int, column: int, rows: list[Row], run: _Run) -> list[Row]:
    """Groups by a key that rises with a progressing column: a row is late iff its key lies below
    that of its own watermark, for no other input of its own can still come to such a group. A NULL
    key has no place in time: a bad row.

    The mark is 25 when 9 and 21 arrive: group 0 is closed, group 2 is not.

    >>> from naive_tables import call, column, stream, whole
    >>> s = stream("s", "t bigint")
    >>> tens = Project(s, (call("int_div", column(s, "t"), 10),), ("tens",))
    >>> evaluate(whole(tens, "tens", n="count"), {"s": [(3,), (25,), (9,), (21,)]})
    Answer(rows=[(0, 1), (2, 2)], late_pairs=1, bad_rows=0, undetermined=False)
    """
    groups: dict[tuple[Any, ...], list[_Member]] = defaultdict(list)
    for row in before_window(rows, column, run):
        try:
            member = _member(node, row)
            if member.keys[at] is None:
                raise BadRowError("the key that closes groups is NULL")
        except BadRowError as error:
            run.fails(error)
            continue
        mark = _moved_mark(node.keys[at], row)
        if mark is not None and member.keys[at] < mark:
            run.late += 1
        else:
            groups[tuple(map(group_key, member.keys))].append(member)
    made = [_group_row(node, (), members) for members in groups.values()]
    marks = tuple(NEVER if k == at else None for k in range(len(node.schema)))
    return sorted((Row(r.values, marks) for r in made), key=lambda r: r.values[at])


def _by_end(node: Aggregate, rows: list[Row]) -> list[Row]:
    end = len(node.keys) + len(node.calls) + 1
    return sorted(rows, key=lambda row: row.values[end : end + 1])


def _sessions(node: Aggregate, window: Window, rows: list[Row], run: _Run) -> list[Row]:
    """One row per session of a group (see ``naive_sessions``): rows that follow each other by at
    most the gap. A row is late iff its own watermark has come to the end of its own gap.

    >>> from naive_tables import aggregate, stream
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


@dataclass(frozen=True)
class _Member:
    keys: tuple[Any, ...]
    args: tuple[tuple[Any, ...] | None, ...]  # per call; None where FILTER leaves the row out
    time: Any
    arrival: int


def _member(node: Aggregate, row: Row) -> _Member:
    """Keys and arguments are evaluated once per row, windows or not; FILTER guards its call.

    >>> from naive_tables import call, column, stream, tumbling
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


def _group_row(node: Aggregate, span: tuple[int, ...], members: list[_Member]) -> Row:
    """``first`` and ``last`` go by (WA, arrival).

    >>> from naive_tables import stream, tumbling
    >>> s = stream("s", "t bigint, v int", slack=9)
    >>> last = tumbling(s, 10, a=("first", "v"), b=("last", "v"))
    >>> evaluate(last, {"s": [(5, 1), (2, 2), (5, 3)]}).rows
    [(2, 3, 0, 10, 9)]
    """
    if node.window is not None:
        members = sorted(members, key=lambda m: (m.time, m.arrival))
    values: list[Any] = list(members[0].keys) if members else []
    for i, one in enumerate(node.calls):
        values.append(aggregate(one, [m.args[i] for m in members if m.args[i] is not None]))  # type: ignore[misc]
    marks: list[float | None] = [None] * len(values)
    if span:
        start, end = span
        values += [start, end, end - 1]
        marks += [NEVER] * 3
    return Row(tuple(values), tuple(marks))


def _bucket(node: Bucket, run: _Run) -> Iterator[Row]:
    """Each row once per window that holds it, with the window's columns appended. It is stateless,
    so stragglers pass, and stay stragglers: after WA reached a mark, every window that is still to
    come ends above it.

    >>> from cql.window import WindowKind
    >>> from naive_tables import stream
    >>> s = Bucket(stream("s", "t bigint"), Window(WindowKind.SLIDING, 0, range=10, slide=5))
    >>> evaluate(s, {"s": [(7,)]}).rows
    [(7, 0, 10, 9), (7, 5, 15, 14)]
    """
    for row in _rows(node.input, run):
        try:
            spans = windows_of(node.window, _event_time(node.window, row))
        except BadRowError as error:
            run.fails(error)
            continue
        marks = (*row.marks, *_bucket_marks(node.window, row))
        for start, end in spans:
            yield Row((*row.values, start, end, end - 1), marks, row.arrival)


def _bucket_marks(window: Window, row: Row) -> tuple[float | None, ...]:
    """What the own watermark says of window_start, window_end and window_time: the first window
    that ends above it is the least to come."""
    assert window.wa is not None
    mark = row.marks[window.wa]
    if mark is None or mark == NEVER:
        return (mark,) * 3
    start, end = first_after(window, int(mark))
    return start, end, end - 1


# Order --------------------------------------------------------------------------------------------


def compare_rows(keys: Sequence[SortKey], a: Sequence[Any], b: Sequence[Any]) -> int:
    """Negative, zero or positive; NULL goes where each key says.

    >>> from naive_tables import column, stream
    >>> key = SortKey(column(stream("s", "v bigint"), "v"), descending=True, nulls_first=False)
    >>> [compare_rows([key], (x,), (y,)) for x, y in ((1, 2), (2, 2), (None, 1))]
    [1, 0, 1]
    """
    for key in keys:
        x, y = value_of(key.expr, a), value_of(key.expr, b)
        if x is None or y is None:
            if x is not y:
                return -1 if (x is None) == key.nulls_first else 1
            continue
        left: Any = order_key(x)
        right: Any = order_key(y)
        if left != right:
            return -1 if (left < right) != key.descending else 1
    return 0


def _row_number(node: RowNumber, run: _Run) -> list[Row]:
    """Each row with its place, from 1, among those that are equal in the partition's columns. Ties
    are in any order: rows that differ leave the answer open.

    >>> from naive_tables import column, stream
    >>> s = stream("s", "e bigint, k string, v bigint")
    >>> top = RowNumber(s, (0, 1), (SortKey(column(s, "v"), True, False),), 0, "n")
    >>> evaluate(top, {"s": [(10, "a", 1), (10, "a", 3), (20, "a", 2), (10, "b", 2)]}).rows
    [(10, 'a', 3, 1), (10, 'a', 1, 2), (20, 'a', 2, 1), (10, 'b', 2, 1)]
    """
    parts: dict[Any, list[Row]] = defaultdict(list)
    for row in _rows(node.input, run):
        parts[tuple(group_key(row.values[c]) for c in node.partition)].append(row)
    by_keys = cmp_to_key(partial(compare_rows, node.keys))
    made = []
    for part in parts.values():
        part.sort(key=lambda row: by_keys(row.values))
        for a, b in pairwise(part):
            tie = compare_rows(node.keys, a.values, b.values) == 0
            run.undetermined |= tie and tuple(map(group_key, a.values)) != tuple(
                map(group_key, b.values)
            )
        made += [
            Row((*row.values, k), (*row.marks, None), row.arrival) for k, row in enumerate(part, 1)
        ]
    return made


def _sort(node: Sort, run: _Run) -> list[Row]:
    """ORDER BY … LIMIT … OFFSET, within each window when ``window_end`` names one, else over the
    whole input. Ties are in any order; a tie across the cut leaves the answer open.

    >>> from naive_tables import column, stream
    >>> s = stream("s", "e bigint, v bigint")
    >>> top = Sort(s, (SortKey(column(s, "v"), True, False),), limit=1, offset=0, window_end=0)
    >>> evaluate(top, {"s": [(10, 1), (10, 3), (20, 2), (10, 2)]}).rows
    [(10, 3), (20, 2)]

    A first key that ascends with a time that progresses lets rows leave before the end: stragglers
    are left out then, here 1 behind 7.

    >>> s = stream("s", "t bigint, v bigint", slack=3)
    >>> by_time = Sort(s, (SortKey(column(s, "t"), False, True),), None, 0, None)
    >>> evaluate(by_time, {"s": [(5, 1), (7, 2), (4, 3), (1, 4)]}).rows
    [(4, 3), (5, 1), (7, 2)]
    """
    rows = []
    for row in released(node, _rows(node.input, run), run):
        try:
            compare_rows(node.keys, row.values, row.values)
            rows.append(row)
        except BadRowError as error:
            run.fails(error)
    by_keys = cmp_to_key(partial(compare_rows, node.keys))
    parts: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        parts[None if node.window_end is None else row.values[node.window_end]].append(row)
    kept = []
    for end in sorted(parts) if node.window_end is not None else list(parts):
        part = sorted(parts[end], key=lambda row: by_keys(row.values))
        stop = len(part) if node.limit is None else node.offset + node.limit
        for cut in (node.offset, stop):
            if 0 < cut < len(part):
                a, b = part[cut - 1].values, part[cut].values
                tie = compare_rows(node.keys, a, b) == 0
                run.undetermined |= tie and tuple(map(group_key, a)) != tuple(map(group_key, b))
        kept += part[node.offset : stop]
    return kept
