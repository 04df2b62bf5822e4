"""The reference of ORDER BY, LIMIT and ROW_NUMBER."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cmp_to_key, partial
from itertools import pairwise
from typing import Any

from cql.planner.nodes.logical import (
    Filter,
    Limit,
    Logical,
    Project,
    RowNumber,
    Scan,
    Sort,
    SortKey,
    Unnest,
)
from tests.reference.naive_expr import evaluate as value_of
from tests.reference.naive_order import is_late_row, released
from tests.reference.naive_rows import Row, Run
from tests.reference.naive_values import BadRowError, group_key, order_key


def compare_rows(keys: Sequence[SortKey], a: Sequence[Any], b: Sequence[Any]) -> int:
    """Negative, zero or positive, by the sort keys; each key decides the place of its NULLs.

    >>> from tests.reference.naive_tables import column, stream
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


def numbered(node: RowNumber, rows: list[Row], run: Run) -> list[Row]:
    """Each row with its number, from 1, among the rows of its partition.

    Ties are in any order: a tie of different rows makes the answer undetermined. A row that arrives
    after its window has no number.

    >>> from tests.reference.naive import evaluate
    >>> from tests.reference.naive_tables import column, stream
    >>> s = stream("s", "e bigint, k string, v bigint", slack=10)
    >>> top = RowNumber(s, (0, 1), (SortKey(column(s, "v"), True, False),), 0, "n")
    >>> evaluate(top, {"s": [(10, "a", 1), (10, "a", 3), (20, "a", 2), (10, "b", 2)]}).rows
    [(10, 'a', 3, 1), (10, 'a', 1, 2), (20, 'a', 2, 1), (10, 'b', 2, 1)]
    """
    parts: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        if node.window is not None and is_late_row(row, node.window):
            run.late += 1
            continue
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


def sorted_rows(node: Sort, rows: list[Row], run: Run) -> list[Row]:
    """ORDER BY … LIMIT … OFFSET, within each window if ``window_end`` names its column, else over
    the whole input.

    Ties are in any order; a tie across the cut makes the answer undetermined.

    >>> from tests.reference.naive import evaluate
    >>> from tests.reference.naive_tables import column, stream
    >>> s = stream("s", "e bigint, v bigint")
    >>> top = Sort(s, (SortKey(column(s, "v"), True, False),), limit=1, offset=0, window_end=0)
    >>> evaluate(top, {"s": [(10, 1), (10, 3), (20, 2), (10, 2)]}).rows
    [(10, 3), (20, 2)]

    If the first key is a progressing time, ascending, rows leave before the end of the input. Then
    the sort leaves out late rows, here 1 after 7.

    >>> s = stream("s", "t bigint, v bigint", slack=3)
    >>> by_time = Sort(s, (SortKey(column(s, "t"), False, True),), None, 0, None)
    >>> evaluate(by_time, {"s": [(5, 1), (7, 2), (4, 3), (1, 4)]}).rows
    [(4, 3), (5, 1), (7, 2)]
    """
    comparable = []
    for row in released(node, rows, run):
        try:
            compare_rows(node.keys, row.values, row.values)
            comparable.append(row)
        except BadRowError as error:
            run.fails(error)
    by_keys = cmp_to_key(partial(compare_rows, node.keys))
    parts: dict[Any, list[Row]] = defaultdict(list)
    for row in comparable:
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


def first_rows(node: Limit, rows: list[Row], run: Run) -> list[Row]:
    """LIMIT and OFFSET without ORDER BY: the first rows to arrive.

    If the semantics define no order of arrival, different rows make the answer undetermined.

    >>> from tests.reference.naive import evaluate
    >>> from tests.reference.naive_tables import stream
    >>> s = stream("s", "t bigint")
    >>> evaluate(Limit(s, 2, 1), {"s": [(3,), (1,), (2,), (0,)]}).rows
    [(1,), (2,)]
    """
    stop = len(rows) if node.limit is None else node.offset + node.limit
    kept = rows[node.offset : stop]
    left = [*rows[: node.offset], *rows[stop:]]
    if kept and left and not _comes_in_order(node.input):
        run.undetermined |= len({tuple(map(group_key, row.values)) for row in rows}) > 1
    return kept


def _comes_in_order(node: Logical) -> bool:
    match node:
        case Scan():
            return True
        case Filter() | Project() | Unnest() | Limit():
            return _comes_in_order(node.input)
        case _:
            return isinstance(node, Sort) and node.window_end is None
