"""The reference: the meaning of a query, evaluated slowly and obviously in pure Python.

``evaluate(plan, inputs)`` runs a logical plan over whole finite inputs: lists of tuples in arrival
order, with values in storage form (see ``naive_values``). Each construct is one function whose
docstring shows one worked example (``test_naive.py`` runs the examples). The reference uses nothing
of the executor: tests compare the engine's answer with this independent answer.

Row watermark. For each progressing column, a row carries the watermark of its source just before
the row (``naive_progress``): the largest value of the column so far minus the declared slack, or
the value of the source's last punctuation. The source sets the row watermark before any filter;
the row watermark depends on nothing else. A row below its row watermark is a late row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cmp_to_key, partial
from typing import Any

from cql.planner.nodes.logical import (
    Aggregate,
    Bucket,
    Concat,
    Fill,
    Filter,
    Gaps,
    Join,
    KeyWindows,
    Limit,
    Logical,
    Number,
    Process,
    Project,
    RelationToStream,
    Rewindow,
    RowNumber,
    Running,
    Scan,
    SetOperation,
    Sort,
    SubqueryJoin,
    Sync,
    Union,
    Unnest,
    Unsupported,
    Values,
    Watermark,
    Windowed,
    Zip,
)
from tests.reference.naive_aggregates import QueryFailsError
from tests.reference.naive_expr import evaluate as value_of
from tests.reference.naive_expr import is_true
from tests.reference.naive_groups import aggregated, bucketed, grouped
from tests.reference.naive_joins import holds_rows, joined, looks_up, together, with_condition
from tests.reference.naive_made_signals import concatenated, filled, zipped
from tests.reference.naive_order import Order, merged, watermarked
from tests.reference.naive_progress import NEVER, scan
from tests.reference.naive_relations import (
    Relations,
    TwoRowsError,
    is_append_only,
    is_constant,
    is_relation,
)
from tests.reference.naive_rewindow import gaps, rewindowed, synced
from tests.reference.naive_rows import Answer, Inputs, Row, Run, moved_mark
from tests.reference.naive_running import processed, running
from tests.reference.naive_sort import compare_rows, first_rows, numbered, sorted_rows
from tests.reference.naive_values import BadRowError, group_key


def evaluate(
    plan: Logical, inputs: Inputs, *, keep_bad: bool = False, order: Order | None = None
) -> Answer:
    """The answer of ``plan``.

    ``inputs`` maps the last part of a relation's name to its rows, with all columns of the
    relation's schema. ``order`` holds the settings that enforce order. Raises QueryFailsError if
    the query must fail."""
    run = Run(inputs, keep_bad, order or Order())
    try:
        if is_relation(plan) and not is_append_only(plan):
            rows = _final(plan, run)
        else:
            rows = [row.values for row in _rows(plan, run)]
    except TwoRowsError as error:
        raise QueryFailsError("a scalar subquery has two rows") from error
    reasons = frozenset(run.reasons)
    return Answer(rows, run.late, run.bad, run.undetermined, run.left_out, reasons)


def _rows(node: Logical, run: Run) -> list[Row]:
    match node:
        case Scan():
            return _scan(node, run)
        case Values():
            return [Row(tuple(v.value for v in row), ()) for row in node.rows]
        case Filter(input=Join(kind="inner" | "cross") as join):
            return _joined(with_condition(join, node.condition), run)
        case Filter():
            return list(_filter(node, run))
        case Project():
            return list(_project(node, run))
        case Union():
            return _union(node, run)
        case Aggregate():
            return aggregated(node, _rows(node.input, run), run)
        case Unnest():
            return list(_unnested(node, run))
        case Bucket():
            return list(bucketed(node, _rows(node.input, run), run))
        case Process():
            return list(processed(node, _rows(node.input, run)))
        case Running():
            return list(running(node, _rows(node.input, run), run))
        case Rewindow():
            return list(rewindowed(node, _rows(node.input, run)))
        case Gaps():
            return list(gaps(node, _rows(node.input, run)))
        case Sync():
            return list(synced(node, _rows(node.left, run), _rows(node.right, run)))
        case Watermark():
            return watermarked(node, _rows(node.input, run))
        case Number() if node.windows is not None:
            return _windows_of_keys(node.windows, _rows(node.input, run))
        case Number():
            return [
                replace(row, values=(*row.values, k), marks=(*row.marks, k))
                for k, row in enumerate(_rows(node.input, run))
            ]
        case Sort():
            return sorted_rows(node, _rows(node.input, run), run)
        case Limit():
            return first_rows(node, _rows(node.input, run), run)
        case RowNumber():
            return numbered(node, _rows(node.input, run), run)
        case Windowed():
            return _each_once(node, run)
        case RelationToStream():
            return _to_stream(node, run)
        case SubqueryJoin():
            return _looked_up(node, run)
        case Join():
            return _joined(node, run)
        case Concat():
            return list(concatenated(node, _rows(node.input, run)))
        case Fill():
            return list(filled(node, _rows(node.input, run)))
        case Zip():
            return list(zipped(node, _rows(node.left, run), _rows(node.right, run)))
        case SetOperation() | Unsupported():
            raise NotImplementedError(f"the reference does not evaluate {type(node).__name__} yet")


def _windows_of_keys(windows: KeyWindows, rows: list[Row]) -> list[Row]:
    """Each row once for each window of its key that holds the row.

    A row gets two more columns: the index of the window's first row among the rows of the key, and
    the number of the window. Windows are numbered in the order in which they become complete, and
    then the incomplete windows.

    >>> rows = [Row((k, v), (0, 0)) for k, v in ((1, "a"), (2, "b"), (1, "c"), (1, "d"))]
    >>> [row.values for row in _windows_of_keys(KeyWindows((0,), 2, 1), rows)]
    ... # doctest: +NORMALIZE_WHITESPACE
    [(1, 'a', -1, 0), (2, 'b', -1, 1), (1, 'a', 0, 2), (1, 'c', 0, 2), (1, 'c', 1, 3),
     (1, 'd', 1, 3), (1, 'd', 2, 4), (2, 'b', 0, 5)]
    """
    of_key: dict[object, list[Row]] = {}
    found: list[tuple[int, list[Row]]] = []
    n, m = windows.rows, windows.slide
    for row in rows:
        own = of_key.setdefault(tuple(group_key(row.values[c]) for c in windows.by), [])
        own.append(row)
        start = len(own) - n
        if start % m == 0:
            found.append((start, own[max(start, 0) :]))
    for own in of_key.values():
        starts = range(len(own) - n + 1, len(own))
        found += [(start, own[max(start, 0) :]) for start in starts if start % m == 0]
    return [
        replace(row, values=(*row.values, start, k), marks=(*row.marks, start, k))
        for k, (start, held) in enumerate(found)
        for row in held
    ]


def _joined(node: Join, run: Run) -> list[Row]:
    if looks_up(node) or node.kind in ("asof", "asof left"):
        return list(joined(node, lambda n: _rows(n, run), run))
    if node.kind not in ("inner", "cross") and is_constant(node):  # a join of tables
        rows = relations_of(run).at(node, 0)
        return [Row(row, (NEVER,) * len(row), k) for k, row in enumerate(rows)]
    if holds_rows(node):
        return list(together(node, relations_of(run), run))
    return list(joined(node, lambda n: _rows(n, run), run))


def _scan(node: Scan, run: Run) -> list[Row]:
    """The rows of an input, each with its row watermark per progressing column.

    Times 10, 30, 20 with a slack of 5 have the row watermarks -inf, 5 and 25: the last row is a
    late row. A NULL time does not advance the watermark.

    >>> from tests.reference.naive_tables import stream
    >>> s = stream("s", "t bigint", slack=5)
    >>> run = Run({"s": [(10,), (30,), (None,), (20,)]}, False, Order())
    >>> [row.marks[0] for row in _scan(s, run)]
    [-inf, 5, 25, 25]
    """
    rows = scan(node, run.inputs[node.relation.name[-1]])
    return [Row(values, tuple(marks), arrival) for arrival, (values, marks) in enumerate(rows)]


def _filter(node: Filter, run: Run) -> Iterator[Row]:
    """Keeps the rows whose condition is true; NULL is not true. Row watermarks do not change.

    >>> from tests.reference.naive_tables import call, column, stream
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


def _project(node: Project, run: Run) -> Iterator[Row]:
    """One value per expression. A row in which any expression fails is one bad row.

    >>> from tests.reference.naive_tables import call, column, stream
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
        marks = tuple(moved_mark(e, row) for e in node.exprs)
        yield Row(values, marks, row.arrival)


def _unnested(node: Unnest, run: Run) -> Iterator[Row]:
    """One row for each element of the array, with the row watermark of the input row. NULL has no
    elements.

    >>> from tests.reference.naive_tables import array, column, stream
    >>> s = stream("s", "t bigint, v bigint")
    >>> each = Unnest(s, array(s, "v"), "x", outer=True)
    >>> evaluate(each, {"s": [(1, [7, 8]), (2, []), (3, None)]}).rows
    [(1, [7, 8], 7), (1, [7, 8], 8), (2, [], None), (3, None, None)]
    """
    for row in _rows(node.input, run):
        try:
            elements = value_of(node.array, row.values)
        except BadRowError as error:
            run.fails(error)
            continue
        for element in elements or ([None] if node.outer else []):
            yield replace(row, values=(*row.values, element), marks=(*row.marks, None))


def _union(node: Union, run: Run) -> list[Row]:
    """A bag: all rows of all inputs. Each row keeps the row watermark of its own source, so the
    other inputs do not decide whether the row is late.

    Here 5 is on time in its own stream, although the other stream is already at 100.

    >>> from tests.reference.naive_tables import stream, tumbling
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
    """The evaluator of relations over these inputs."""
    return relations_of(Run(inputs, False, Order()))


def relations_of(run: Run) -> Relations:
    def late(rows: int) -> None:
        run.late += rows

    return Relations(
        lambda node: _rows(node, run),
        grouped,
        compare_rows,
        late,
        run.fails,
        lambda scan: list(run.inputs[scan.relation.name[-1]]),
    )


def _final(plan: Logical, run: Run) -> list[tuple[Any, ...]]:
    """The relation at the last instant that its inputs reach."""
    found = relations_of(run)
    last = found.last(plan)
    for window in found.windows(plan):
        found.members(window)
    rows = found.at(plan, 0 if last is None else last)
    if isinstance(plan, Sort):
        rows = sorted(rows, key=cmp_to_key(partial(compare_rows, plan.keys)))
    run.undetermined |= found.undetermined
    return rows


def _each_once(node: Windowed, run: Run) -> list[Row]:
    """The rows of a window that no operator above uses: each row once, without late rows."""
    members = relations_of(run).members(node)
    return [Row(row, (NEVER,) * len(row), k) for k, (_, row) in enumerate(members)]


def _looked_up(node: SubqueryJoin, run: Run) -> list[Row]:
    """Each row of a stream, also a late row, with the answer of a subquery over tables."""
    found, stream = relations_of(run), _rows(node.input, run)
    said = found.answers(node, [row.values for row in stream], found.at(node.query, 0))
    return [
        replace(row, values=(*row.values, answer), marks=(*row.marks, None) if row.marks else ())
        for row, answer in zip(stream, said, strict=True)
    ]


def _to_stream(node: RelationToStream, run: Run) -> list[Row]:
    found = relations_of(run)
    rows = [Row(row, (NEVER,) * len(row), k) for k, row in enumerate(found.stream(node))]
    run.undetermined |= found.undetermined
    return rows
