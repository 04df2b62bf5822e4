"""The reference's scalar evaluator: one typed expression over one row.

A call evaluates all arguments, left to right, before it tests them for NULL; only CASE, AND, OR and
COALESCE guard their operands. A strict function of a NULL argument is NULL. A value that does not
fit, a division by zero and a failing cast raise ``BadRowError``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from cql.base.types import BIGINT, BOOLEAN, DOUBLE, STRING, DataType, Kind
from cql.planner.nodes.expr import Call, Case, Cast, Column, Expr, Literal
from tests.reference import (
    naive_functions,
    naive_nested,
    naive_segments,
    naive_texts,
    naive_times,
)
from tests.reference.naive_cast import cast
from tests.reference.naive_registry import FUNCTIONS, NULL_AWARE
from tests.reference.naive_values import BadRowError

# The import of these modules fills FUNCTIONS.
_FILLED_BY = (naive_functions, naive_nested, naive_segments, naive_texts, naive_times)


def evaluate(expr: Expr, row: Sequence[object]) -> object:
    """The value of ``expr`` where column *i* is ``row[i]``.

    >>> from cql.base.types import BIGINT
    >>> evaluate(Call("add", (Column(0, "a", BIGINT), Literal(1, BIGINT)), BIGINT), (41,))
    42
    """
    match expr:
        case Column():
            return row[expr.index]
        case Literal(value=bytes(entry)) if expr.type.kind is Kind.SIGNAL:
            return [v for (v,) in struct.iter_unpack("<d", entry[4:])]  # behind their number
        case Literal():
            return expr.value
        case Case():
            return _case(expr, row)
        case Cast():
            return _cast(expr, row)
        case Call(fn="and" | "or"):
            return _connective(expr, row)
        case Call(fn="coalesce"):
            return _coalesce(expr, row)
        case Call(function=function) if function is not None:
            return _own(expr, row)
        case Call():
            return _call(expr, row)


def is_true(expr: Expr, row: Sequence[object]) -> bool:
    """Whether a condition is true; NULL is not true."""
    return evaluate(expr, row) is True


def _case(expr: Case, row: Sequence[object]) -> object:
    """The first branch whose condition is true; the other branches are not evaluated.

    >>> from cql.base.types import BIGINT, BOOLEAN
    >>> column = Column(0, "a", BIGINT)
    >>> zero = Call("eq", (column, Literal(0, BIGINT)), BOOLEAN)
    >>> share = Call("int_div", (Literal(6, BIGINT), column), BIGINT)
    >>> guarded = Case(((zero, Literal(None, BIGINT)),), share, BIGINT)
    >>> evaluate(guarded, (0,)), evaluate(guarded, (4,))
    (None, 1)
    """
    for condition, value in expr.branches:
        if is_true(condition, row):
            return evaluate(value, row)
    return None if expr.otherwise is None else evaluate(expr.otherwise, row)


def _cast(expr: Cast, row: Sequence[object]) -> object:
    """NULL stays NULL; TRY_CAST turns a failure of the cast itself into NULL."""
    value = evaluate(expr.arg, row)
    if value is None:
        return None
    try:
        return cast(value, expr.arg.type, expr.type)
    except BadRowError:
        if expr.safe:
            return None
        raise


def _connective(expr: Call, row: Sequence[object]) -> object:
    """Three-valued AND and OR; the first operand that decides ends the evaluation.

    >>> from cql.base.types import BOOLEAN
    >>> operands = Literal(None, BOOLEAN), Literal(False, BOOLEAN)
    >>> [evaluate(Call(fn, operands, BOOLEAN), ()) for fn in ("and", "or")]
    [False, None]
    """
    decides = expr.fn == "or"
    result: object = not decides
    for arg in expr.args:
        value = evaluate(arg, row)
        if value is decides:
            return decides
        if value is None:
            result = None
    return result


def _coalesce(expr: Call, row: Sequence[object]) -> object:
    """The first operand that is not NULL; later operands are not evaluated."""
    return next((v for v in (evaluate(a, row) for a in expr.args) if v is not None), None)


def _own(expr: Call, row: Sequence[object]) -> object:
    """A user's function, over types whose storage form is Python's own.

    A NULL argument gives NULL unless the function handles NULL itself. A function that raises, or
    returns a value of another type, makes a bad row.

    >>> from cql.planner.functions.user.functions import UserFunction
    >>> from cql.base.types import BIGINT
    >>> half = UserFunction("half", lambda a: 12 // a, (("a", BIGINT),), BIGINT)
    >>> call = Call("half", (Column(0, "a", BIGINT),), BIGINT, function=half)
    >>> evaluate(call, (4,)), evaluate(call, (None,))
    (3, None)
    >>> evaluate(call, (0,))
    Traceback (most recent call last):
        ...
    tests.reference.naive_values.BadRowError: ZeroDivisionError
    """
    assert expr.function is not None
    values = [evaluate(a, row) for a in expr.args]
    if not expr.function.sees_null and any(v is None for v in values):
        return None
    try:
        made = expr.function.function(*values)
    except Exception as error:  # a user's function may raise anything
        raise BadRowError(type(error).__name__) from error
    if isinstance(made, float) and not expr.type.is_fraction:
        raise BadRowError("a float is not of the type")
    return made if made is None else cast(made, _type_of(made), expr.type)


def _type_of(value: object) -> DataType:
    kinds = {bool: BOOLEAN, int: BIGINT, float: DOUBLE, str: STRING}
    if type(value) not in kinds or (isinstance(value, int) and abs(value) >= 2**63):
        raise BadRowError(f"{type(value).__name__} is not of the type")
    return kinds[type(value)]


def _call(expr: Call, row: Sequence[object]) -> object:
    values = [evaluate(a, row) for a in expr.args]
    if expr.fn not in NULL_AWARE and any(v is None for v in values):
        return None
    return FUNCTIONS[expr.fn](expr, *values)
