"""Evaluates a text function over all rows of a block, by the functions of ``BLOCKS``.

What these leave (a whole function, or single rows), Python computes row by row, equal rows once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cql.base.call_timeout import TimeLimitError
from cql.base.types import DataType, Kind
from cql.executor.codegen.expressions.text import SEE_NULL
from cql.executor.morsel.morsel import stored_dtype
from cql.executor.texts.column import FAILED, NULL, ODD, VALID, Column, Status, Texts
from cql.executor.texts.functions.table import BLOCKS, Argument
from cql.planner.interpret.interpreter import EvaluationError, evaluate
from cql.planner.nodes.expr import Call, Cast, Expr, Literal, Value, children, rebuild
from cql.planner.nodes.expr import Column as ColumnOf


def evaluate_block(expr: Expr, columns: Sequence[Column]) -> Column:
    """The values of ``expr`` over the input ``columns``, at least one. A row for which the
    interpreter raises EvaluationError is FAILED. ``expr`` holds columns, literals, and calls and
    casts that are text functions (``codegen.expressions.text``)."""
    if isinstance(expr, ColumnOf):
        return columns[expr.index]
    assert isinstance(expr, Call | Cast)
    args: list[Argument] = [
        a if isinstance(a, Literal) else evaluate_block(a, columns) for a in children(expr)
    ]
    given = _given(expr, args, len(columns[0]))
    status = given.copy()
    made = None
    name = "cast" if isinstance(expr, Cast) else expr.fn
    if name in BLOCKS and not (isinstance(expr, Call) and expr.function is not None):
        made = BLOCKS[name](expr, args, status)
    if made is None:
        status[given == VALID] = ODD
        return _by_row(expr, args, status)
    if isinstance(expr, Cast) and expr.safe:
        status[(status == FAILED) & (given == VALID)] = NULL
    found = Column(made, status)
    return found if not (status == ODD).any() else _by_row(expr, args, status, made)


def _given(expr: Call | Cast, args: Sequence[Argument], rows: int) -> Status:
    """The status of the rows by their arguments: an argument that failed outweighs a NULL."""
    status = np.full(rows, VALID, np.uint8)
    if not _sees_null(expr):
        for arg in args:
            if isinstance(arg, Literal):
                if arg.value is None:
                    status[:] = NULL
            else:
                status[arg.status == NULL] = NULL
    for arg in args:
        if isinstance(arg, Column):
            status[arg.status == FAILED] = FAILED
    return status


def _sees_null(expr: Call | Cast) -> bool:
    if isinstance(expr, Cast):
        return False
    if expr.function is not None:
        return expr.function.sees_null
    return expr.fn == "in_list" or expr.fn in SEE_NULL


def _by_row(
    expr: Call | Cast,
    args: Sequence[Argument],
    status: Status,
    made: Texts | npt.NDArray[Any] | None = None,
) -> Column:
    """Python's values for the rows whose status is ODD; ``made`` are those of the others."""
    numbers = iter(range(len(args)))
    columns: list[Column] = []

    def leaf(child: Expr) -> Expr:
        arg = args[next(numbers)]
        if isinstance(arg, Literal):
            return arg
        columns.append(arg)
        return ColumnOf(len(columns) - 1, "", child.type, child.nullable)

    call = rebuild(expr, leaf)
    kinds = [child.type for child in children(call) if isinstance(child, ColumnOf)]
    odd = np.flatnonzero(status == ODD)
    read = [_reader(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    known: dict[tuple[object, ...], tuple[Value, int]] = {}
    values: list[Value] = []
    for i in odd.tolist():
        row = [of(i) for of in read]
        key = tuple(map(_key, row))
        found = known.get(key)
        if found is None:
            found = known[key] = _value(call, row)
        values.append(found[0])
        status[i] = found[1]
    return Column(_merged(expr.type, made, odd, values, status.size), status)


def _value(call: Expr, row: Sequence[Value]) -> tuple[Value, int]:
    try:
        value = evaluate(call, row)
    except EvaluationError:
        return None, FAILED
    except TimeLimitError as error:
        error.position = error.position or call.pos
        raise
    return value, NULL if value is None else VALID


def _key(value: Value) -> object:
    """Tells values apart that have different texts: -0.0 is not 0.0, True is not 1."""
    return (value.hex(), 0.0) if isinstance(value, float) else (type(value), value)


def _reader(column: Column, kind: DataType) -> Any:
    """``f(i)``: the value of row *i* as the interpreter takes it."""
    values, status = column.values, column.status
    if isinstance(values, Texts):
        decode = kind.kind is Kind.STRING

        def text(i: int) -> Value:
            if status[i] != VALID:
                return None
            raw = values.text(i)
            return raw.decode() if decode else raw

        return text
    boolean = kind.storage == "bool"

    def number(i: int) -> Value:
        if status[i] != VALID:
            return None
        value: Value = values[i].item()
        return bool(value) if boolean else value

    return number


def _merged(
    kind: DataType,
    made: Texts | npt.NDArray[Any] | None,
    rows: npt.NDArray[np.int64],
    values: Sequence[Value],
    size: int,
) -> Texts | npt.NDArray[Any]:
    """``made`` with ``values`` in some ``rows``; a value that is None is left out."""
    if not kind.is_coded:
        if made is None:
            made = np.zeros(size, stored_dtype(kind.storage))
        assert not isinstance(made, Texts)
        for i, value in zip(rows.tolist(), values, strict=True):
            if value is not None:
                made[i] = value
        return made
    if made is None:
        made = Texts(np.zeros(0, np.uint8), np.zeros(size, np.int64), np.zeros(size, np.int64))
    assert isinstance(made, Texts)
    return made.with_rows(rows, [_raw(value) for value in values])


def _raw(value: Value) -> bytes:
    if isinstance(value, str):
        return value.encode()
    return value if isinstance(value, bytes) else b""
