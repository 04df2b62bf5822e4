"""Two independent evaluators agree: the reference's and the planner's interpreter of constants.

Every function of the registry is bound to random arguments of types that it takes; both evaluators
must return the same value, or both must fail the row.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from cql.base.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTERVAL,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TINYINT,
    DataType,
    array,
    decimal,
    struct,
)
from cql.errors import CqlError
from cql.planner.functions import registry
from cql.planner.functions.nested import NESTED
from cql.planner.interpret.interpreter import EvaluationError, evaluate
from cql.planner.nodes.expr import Call, Cast, Column, Expr, walk
from tests.reference.naive_compare import same_value
from tests.reference.naive_expr import evaluate as value_of
from tests.reference.naive_registry import FUNCTIONS as OURS
from tests.reference.naive_values import BadRowError
from tests.support.fuzz.random_data import DAY, DAYS, FLOATS, INTS, LONGS, TEXTS
from tests.support.nested_values import draw, from_entry, to_entry

#: Functions that the reference lacks: they depend on a locale or on another regular-expression
#: engine.
WITHOUT_TWIN = frozenset(
    {"date_format", "to_date", "to_timestamp", "rlike", "regexp_extract", "regexp_replace"}
)
OPERATORS = frozenset(
    {
        *("add", "sub", "mul", "div", "int_div", "mod", "neg", "and", "or", "not"),
        *("eq", "ne", "lt", "le", "gt", "ge", "null_safe_eq", "is_distinct_from"),
        *("is_null", "is_not_null", "in_list", "bit_and", "bit_or", "bit_xor", "bit_not"),
    }
)
PRICE = decimal(9, 2)
VALUES: dict[DataType, tuple[Any, ...]] = {
    BOOLEAN: (True, False),
    TINYINT: (0, 1, -1, 127, -128, 5),
    SMALLINT: (0, 1, -1, 32767, -32768, 300),
    INT: INTS,
    BIGINT: LONGS,
    FLOAT: (0.0, -0.0, 0.5, -2.25, float("nan"), float("inf"), 3.0, 16777216.0),
    DOUBLE: (*FLOATS, 2.5, 0.125, -3.75, 7.0, 1e7, 123456.789),
    PRICE: (0, 1, -1, 123, -150, 999_999_999, 250),
    STRING: (*TEXTS, "12", "-7.5", " 3 ", "true", "2024-02-29", "1e2", "2024-01-01 10:00:00"),
    DATE: DAYS,
    TIMESTAMP: tuple(d * DAY + 3_723_000_004 for d in DAYS),
    INTERVAL: (0, 1, -1, 5, -7, 90_000_000, DAY),
}
#: Types to try for each argument.
_TRIED = (INT, BIGINT, DOUBLE, FLOAT, PRICE, STRING, DATE, TIMESTAMP, INTERVAL, BOOLEAN, SMALLINT)
_PAIR = struct((("a", INT), ("b", STRING)))
#: Types with parts, to try for functions of arrays and structs.
_NESTED = (
    *(array(kind, contains_null=True) for kind in (INT, STRING, DOUBLE, BOOLEAN, DATE, PRICE)),
    *(array(BIGINT), array(STRING), _PAIR, array(_PAIR, contains_null=True)),
    array(array(INT, contains_null=True), contains_null=True),
)


_OF_NESTED = frozenset(s.name for s in NESTED) | {"eq", "null_safe_eq", "is_null", "coalesce"}


def _draw(rng: random.Random, kind: DataType) -> Any:
    if kind.is_nested:
        return draw(rng, kind, lambda of: _draw(rng, of))
    if rng.random() < 0.1:
        return None
    small = kind.is_integer and rng.random() < 0.5
    return rng.randint(-9, 9) if small else rng.choice(VALUES[kind])


def _columns(kinds: tuple[DataType, ...]) -> tuple[Expr, ...]:
    return tuple(Column(i, f"c{i}", kind) for i, kind in enumerate(kinds))


def _bound(name: str, rng: random.Random) -> Iterator[tuple[Expr, tuple[DataType, ...]]]:
    """Calls of the function over columns of random types that it takes, with these types."""
    for count in range(4):
        for _ in range(14):
            kinds = tuple(rng.choice(_TRIED) for _ in range(count))
            if rng.random() < 0.5 and kinds:
                kinds = (kinds[0],) * count
            if name in _OF_NESTED and kinds:
                kinds = (rng.choice(_NESTED), *kinds[1:])
            try:
                yield registry.resolve(name, _columns(kinds), None), kinds
            except CqlError:
                continue


def _both(expr: Expr, row: tuple[Any, ...]) -> tuple[Any, Any]:
    results: list[Any] = []
    for run, failure in ((value_of, BadRowError), (_interpreted, EvaluationError)):
        try:
            results.append(run(expr, row))
        except failure:
            results.append("fails")
    return results[0], results[1]


def _interpreted(expr: Expr, row: tuple[Any, ...]) -> Any:
    kinds = {e.index: e.type for e in walk(expr) if isinstance(e, Column)}
    given = [to_entry(v, kinds[i]) if i in kinds else v for i, v in enumerate(row)]
    return from_entry(evaluate(expr, given), expr.type)


def _has_twin(expr: Expr) -> bool:
    return not any(isinstance(e, Call) and e.fn in WITHOUT_TWIN for e in walk(expr))


def _agree(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return same_value(a, b)
    if isinstance(a, list | tuple) and type(a) is type(b):
        assert isinstance(b, list | tuple)
        return len(a) == len(b) and all(map(_agree, a, b))
    return type(a) is type(b) and a == b


@pytest.mark.parametrize("name", sorted({*registry.FUNCTIONS, *OPERATORS} - WITHOUT_TWIN))
def test_functions_agree(name: str, seed: int, full: bool) -> None:
    rng = random.Random(f"{name} {seed}")
    for expr, kinds in _bound(name, rng):
        if not _has_twin(expr):
            continue
        for _ in range(200 if full else 20):
            row = tuple(_draw(rng, kind) for kind in kinds)
            if name in ("repeat", "lpad", "rpad", "make_date"):
                row = tuple(v % 50 if type(v) is int else v for v in row)
            mine, theirs = _both(expr, row)
            assert _agree(mine, theirs), f"{expr}\nof {row}: {mine!r}, not {theirs!r}"


@pytest.mark.parametrize("source", VALUES, ids=str)
@pytest.mark.parametrize("target", VALUES, ids=str)
def test_casts_agree(source: DataType, target: DataType) -> None:
    try:
        made = registry.cast(Column(0, "c", source), target, None)
    except CqlError:
        return
    assert isinstance(made, Column | Cast)
    for value in (*VALUES[source], None):
        mine, theirs = _both(made, (value,))
        assert _agree(mine, theirs), f"{value!r}: {mine!r}, not {theirs!r}"


def test_the_reference_knows_every_function() -> None:
    """A new function of the registry needs a counterpart in the reference, or an entry in
    WITHOUT_TWIN."""
    known = {*OURS, "and", "or", "coalesce", *WITHOUT_TWIN}
    rng = random.Random(0)
    missing = {
        e.fn
        for name in registry.FUNCTIONS
        for expr, _ in _bound(name, rng)
        for e in walk(expr)
        if isinstance(e, Call) and e.fn not in known
    }
    assert not missing
