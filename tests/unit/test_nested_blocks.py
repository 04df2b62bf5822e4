"""Columns of arrays and structs: entries of blocks, and functions over blocks, are those of the
interpreter, row by row."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cql.base.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP,
    DataType,
    array,
    decimal,
    struct,
)
from cql.executor.morsel.arrow_columns import plain_storage, unpack_mask
from cql.executor.strings.nested import arrow_of, binary_entries, entries_of, well_formed
from cql.executor.texts.column import FAILED, NULL, VALID, Column, Texts, texts_from
from cql.executor.texts.evaluate import evaluate_block
from cql.planner.functions import registry
from cql.planner.interpret.interpreter import EvaluationError, evaluate
from cql.planner.nodes.expr import Column as ColumnOf
from cql.planner.nodes.expr import Expr, Literal
from tests.reference.naive_compare import same_value, storage_rows
from tests.support.nested_values import draw, from_entry, to_entry, to_python

PRICE = decimal(9, 2)
PAIR = struct((("a", INT), ("b", STRING)))
KINDS = (
    *(array(k, contains_null=True) for k in (INT, BOOLEAN, SMALLINT, DOUBLE, FLOAT, STRING, DATE)),
    array(PRICE, contains_null=True),
    array(TIMESTAMP),
    array(STRING),
    PAIR,
    array(PAIR, contains_null=True),
    struct((("x", array(BIGINT, contains_null=True)), ("y", PAIR), ("z", BOOLEAN))),
    array(array(STRING, contains_null=True), contains_null=True),
)
TEXTS = ("", "a", "b", "a b", "žluť", "😀")


def scalar(rng: random.Random, kind: DataType) -> Any:
    if rng.random() < 0.2:
        return None
    if kind == STRING:
        return rng.choice(TEXTS)
    if kind == BOOLEAN:
        return rng.random() < 0.5
    if kind.is_fraction:
        return rng.choice((0.0, -0.0, 1.5, float("nan"), float("-inf"), -2.25))
    return rng.choice((0, 1, -1, 2, 3, 100))


def column_of(values: list[Any], kind: DataType) -> pa.Array:
    """An Arrow column of values of the reference, with rows before and behind that are cut off."""
    made = [to_python(v, kind) for v in [values[0], *values, values[-1]]]
    return _arrow(made, kind).slice(1, len(values))


def _arrow(values: list[Any], kind: DataType) -> pa.Array:
    """Times and decimals of Python values in storage form."""
    missing = pa.array([v is None for v in values], pa.bool_())
    if kind.element is not None:
        parts = [e for v in values for e in v or ()]
        offsets = np.concatenate([[0], np.cumsum([len(v or ()) for v in values])])
        return pa.ListArray.from_arrays(
            pa.array(offsets, pa.int32()),
            _arrow(parts, kind.element),
            kind.to_arrow(),
            mask=missing,
        )
    if kind.fields:
        members = [_arrow([(v or {}).get(n) for v in values], of) for n, of in kind.fields]
        return pa.StructArray.from_arrays(members, fields=list(kind.to_arrow()), mask=missing)
    if kind == DATE:
        return pa.array(values, pa.int32()).cast(pa.date32())
    if kind == TIMESTAMP:
        return pa.array(values, pa.int64()).cast(kind.to_arrow())
    if kind == PRICE:
        unscaled = pa.array(values, pa.int64()).cast(pa.decimal128(19, 0))
        return pa.compute.divide(unscaled, pa.scalar(100, pa.decimal128(3, 0))).cast(
            kind.to_arrow()
        )
    return pa.array(values, kind.to_arrow())


def values_of(rng: random.Random, kind: DataType, rows: int = 40) -> list[Any]:
    return [draw(rng, kind, lambda of: scalar(rng, of)) for _ in range(rows)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_entries_are_those_of_the_interpreter(kind: DataType, seed: int) -> None:
    rng = random.Random(f"{kind} {seed}")
    for rows in (1, 40):
        values = values_of(rng, kind, rows)
        column = column_of(values, kind)
        wanted = [to_entry(v, kind) for v in values]
        assert binary_entries(column, kind).to_pylist() == wanted


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_entries_become_the_column_again(kind: DataType, seed: int) -> None:
    rng = random.Random(f"back {kind} {seed}")
    values = values_of(rng, kind)
    column = column_of(values, kind)
    back = arrow_of(entries_of(column, kind), unpack_mask(column), kind)
    back.validate(full=True)
    assert back.type == kind.to_arrow()
    rows = [row for (row,) in storage_rows(pa.table({"c": back}))]
    assert all(map(same_value, rows, values))
    assert arrow_of(texts_from([]), None, kind).to_pylist() == []


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_other_bytes_are_told_from_entries(kind: DataType, seed: int) -> None:
    """Tables by code meet the entries of other types, and texts; no function reads these."""
    rng = random.Random(f"bytes {kind} {seed}")
    own = [e for v in values_of(rng, kind) if isinstance(e := to_entry(v, kind), bytes)]
    assert well_formed(texts_from(own), kind).all()
    others = [rng.randbytes(rng.choice((0, 1, 3, 4, 5, 8, 13, 40))) for _ in range(300)]
    others += [e[: rng.randrange(len(e) + 1)] for e in own]
    others += [bytes(4) * rng.randrange(6) for _ in range(20)]
    fits = well_formed(texts_from(others), kind)
    for raw in (raw for raw, fit in zip(others, fits, strict=True) if fit):
        from_top = from_entry(raw, shallow(kind))  # readable, though its parts may not be
        assert isinstance(from_top, list | tuple)


def shallow(kind: DataType) -> DataType:
    """The type with binaries in place of nested parts: the entry of an array is one."""
    if kind.element is not None:
        return array(STRING if kind.element.is_coded else kind.element)
    return struct(tuple((n, STRING if of.is_coded else of) for n, of in kind.fields))


def block(values: list[Any], kind: DataType) -> Column:
    column = column_of(values, kind)
    mask = unpack_mask(column)
    status = np.full(len(column), VALID, np.uint8) if mask is None else mask
    if kind.is_coded:
        return Column(entries_of(column, kind), status)
    return Column(plain_storage(column, kind), status)


NUMBERS = (0, 1, 2, -1, -2, 5, None)
CALLS = ("item", "get", "element_at", "try_element_at", "array_contains", "array_position", "slice")


def bound(name: str, kind: DataType, others: list[Expr]) -> Expr:
    given = ColumnOf(0, "c", kind)
    if name == "item":
        from cql.planner.functions.nested import item

        return item(given, others[0], None)
    return registry.resolve(name, [given, *others], None)


def check(expr: Expr, kinds: list[DataType], rows: list[tuple[Any, ...]]) -> None:
    columns = [block([row[k] for row in rows], kind) for k, kind in enumerate(kinds)]
    made = evaluate_block(expr, columns)
    for i, row in enumerate(rows):
        given = [to_entry(v, kind) for v, kind in zip(row, kinds, strict=True)]
        try:
            wanted = evaluate(expr, given)
        except EvaluationError:
            assert made.status[i] == FAILED, (expr, row)
            continue
        assert made.status[i] == (NULL if wanted is None else VALID), (expr, row, wanted)
        if wanted is not None:
            assert same_value(_value(made, i, expr.type), from_entry(wanted, expr.type)), row


def _value(made: Column, i: int, kind: DataType) -> Any:
    if isinstance(made.values, Texts):
        raw = made.values.text(i)
        return raw.decode() if kind == STRING else from_entry(raw, kind)
    value = made.values[i].item()
    return bool(value) if kind == BOOLEAN else value


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("kind", [k for k in KINDS if k.element is not None], ids=str)
def test_functions_of_arrays(name: str, kind: DataType, seed: int) -> None:
    rng = random.Random(f"{name} {kind} {seed}")
    assert kind.element is not None
    second = kind.element if name in ("array_contains", "array_position") else INT
    more = [INT] if name == "slice" else []
    arrays = values_of(rng, kind)
    seconds = [scalar(rng, second) if second != INT else rng.choice(NUMBERS) for _ in arrays]
    if second.is_nested:
        seconds = values_of(rng, second)
    thirds = [[rng.choice((0, 1, 2, 9))] if more else [] for _ in arrays]
    columns: list[Expr] = [ColumnOf(k, "d", of) for k, of in enumerate([second, *more], 1)]
    rows = [(a, b, *c) for a, b, c in zip(arrays, seconds, thirds, strict=True)]
    check(bound(name, kind, columns), [kind, second, *more], rows)
    if not second.is_nested:
        value = scalar(rng, second) if second != INT else 1
        literals: list[Expr] = [Literal(value, second), *(Literal(2, INT) for _ in more)]
        check(bound(name, kind, literals), [kind], [(a,) for a in arrays])


@pytest.mark.parametrize("name", ["size", "array_min", "array_max"])
@pytest.mark.parametrize("kind", [k for k in KINDS if k.element is not None], ids=str)
def test_functions_of_one_array(name: str, kind: DataType, seed: int) -> None:
    rng = random.Random(f"{name} {kind} {seed}")
    assert kind.element is not None
    if name == "size" or not kind.element.is_nested:
        check(bound(name, kind, []), [kind], [(a,) for a in values_of(rng, kind)])


@pytest.mark.parametrize("kind", [k for k in KINDS if k.fields], ids=str)
def test_fields_and_constructors(kind: DataType, seed: int) -> None:
    from cql.planner.functions.nested import field, make_struct

    rng = random.Random(f"{kind} {seed}")
    rows = [(v,) for v in values_of(rng, kind)]
    column = ColumnOf(0, "c", kind)
    parts: list[Expr] = [field(column, name, None) for name, _ in kind.fields]
    for part in parts:
        check(part, [kind], rows)
    check(make_struct([name for name, _ in kind.fields], parts, None), [kind], rows)
    check(registry.resolve("array", [column, column], None), [kind], rows)
