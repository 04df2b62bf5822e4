"""Compares an answer of the reference with a table of the engine: as bags, floats within 1e-9."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cql.base.types import Kind, from_arrow
from cql.planner.nodes.logical import Logical, Sort
from tests.reference.naive_rows import Answer
from tests.reference.naive_sort import compare_rows
from tests.reference.naive_values import order_key

RELATIVE = 1e-9
_TINY = 1e-12  # absolute tolerance, for differences of nearly equal numbers


def storage_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows of an Arrow table in storage form (see ``naive_values``)."""
    columns = [_storage_column(column) for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def _storage_column(column: Any) -> list[Any]:
    values: list[Any]
    if pa.types.is_list(column.type):
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        elements = _storage_column(column.flatten())
        ends = accumulate(n or 0 for n in pc.list_value_length(column).to_pylist())
        values = [elements[a:b] for a, b in pairwise([0, *ends])]
        valid = column.is_valid().to_pylist()
        return [value if ok else None for value, ok in zip(values, valid, strict=True)]
    if pa.types.is_struct(column.type):
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        rows = zip(*map(_storage_column, column.flatten()), strict=True)
        valid = column.is_valid().to_pylist()
        return [row if ok else None for row, ok in zip(rows, valid, strict=True)]
    kind = from_arrow(column.type)
    assert kind is not None, column.type
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if kind.is_timestamp:
        values = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64()).to_pylist()
        return values
    if kind.kind is Kind.INTERVAL:
        values = column.cast(pa.duration("us")).cast(pa.int64()).to_pylist()
        return values
    if kind.kind is Kind.DATE:
        values = column.cast(pa.date32()).cast(pa.int32()).to_pylist()
        return values
    if kind.kind is Kind.DECIMAL:
        return [None if v is None else int(v.scaleb(kind.scale)) for v in column.to_pylist()]
    values = column.to_pylist()
    return values


def same_value(a: object, b: object) -> bool:
    """NULL is NULL, NaN is NaN, -0.0 is 0.0, floats agree within 1e-9."""
    if isinstance(a, float) and isinstance(b, float):
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) and math.isnan(b)
        return math.isclose(a, b, rel_tol=RELATIVE, abs_tol=_TINY)
    if isinstance(a, list | tuple) and type(a) is type(b):
        assert isinstance(b, list | tuple)
        return len(a) == len(b) and all(map(same_value, a, b))
    return type(a) is type(b) and a == b


def _same_row(a: Sequence[object], b: Sequence[object]) -> bool:
    return len(a) == len(b) and all(map(same_value, a, b))


def _exact_part(row: Sequence[object]) -> tuple[object, ...]:
    """The part of a row that must agree exactly: all other values, and the places of the floats."""
    return tuple(_exact(v) for v in row)


def _exact(value: object) -> object:
    if isinstance(value, list | tuple):
        return (type(value).__name__, *map(_exact, value))
    return "float" if isinstance(value, float) else (type(value).__name__, value)


def _float_part(row: Sequence[object]) -> tuple[Any, ...]:
    return tuple(order_key(v) for v in _flat(row) if isinstance(v, float))


def _flat(row: Sequence[object]) -> Iterator[object]:
    for value in row:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value


def difference(want: Sequence[tuple[Any, ...]], got: Sequence[tuple[Any, ...]]) -> str | None:
    """The missing and the surplus rows of ``got``, as text; None if the two bags are the same."""
    ours: dict[Any, list[tuple[Any, ...]]] = defaultdict(list)
    for row in got:
        ours[_exact_part(row)].append(row)
    theirs: dict[Any, list[tuple[Any, ...]]] = defaultdict(list)
    for row in want:
        theirs[_exact_part(row)].append(row)
    missing, extra = [], []
    for key in theirs.keys() | ours.keys():
        lost, left = _unmatched(theirs.get(key, []), ours.get(key, []))
        missing += lost
        extra += left
    if not missing and not extra:
        return None
    show = [f"  missing {row}" for row in missing[:10]] + [f"  extra   {row}" for row in extra[:10]]
    return "\n".join([f"{len(missing)} rows missing, {len(extra)} too many", *show])


def _unmatched(
    want: list[tuple[Any, ...]], got: list[tuple[Any, ...]]
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """The rows of one exact part without a partner.

    The sorted floats pair up in nearly all cases; otherwise a row takes the first partner within
    the tolerance."""
    want, got = sorted(want, key=_float_part), sorted(got, key=_float_part)
    if len(want) == len(got) and all(map(_same_row, want, got)):
        return [], []
    lost = []
    for row in want:
        at = next((i for i, other in enumerate(got) if _same_row(row, other)), None)
        if at is None:
            lost.append(row)
        else:
            del got[at]
    return lost, got


def assert_same(answer: Answer, table: pa.Table, plan: Logical) -> None:
    """Asserts that ``table`` has the columns of the plan and the same bag of rows, in order if the
    root is a Sort. If a tie at a LIMIT allows several answers, compares only the number of rows."""
    want = plan.schema
    assert table.schema.names == list(want.names), f"columns {table.schema.names}"
    for field, arrow in zip(want, table.schema, strict=True):
        same = arrow.type == field.type.to_arrow() or from_arrow(arrow.type) == field.type
        assert same, f"{field.name}: {arrow.type} for {field.type}"
    rows = storage_rows(table)
    if answer.undetermined:
        assert len(rows) == len(answer.rows), f"{len(rows)} rows, not {len(answer.rows)}"
    else:
        found = difference(answer.rows, rows)
        assert found is None, found
    if isinstance(plan, Sort):
        _assert_ordered(plan, rows)


def _assert_ordered(plan: Sort, rows: list[tuple[Any, ...]]) -> None:
    """Asserts that windows follow each other, and that the rows of each are in sort order."""
    for before, after in pairwise(rows):
        if plan.window_end is not None:
            a, b = before[plan.window_end], after[plan.window_end]
            assert a <= b, f"window {b} after {a}"
            if a != b:
                continue
        assert compare_rows(plan.keys, before, after) <= 0, f"{after} after {before}"
