"""The worked examples of the reference, and corner cases that they leave out."""

from __future__ import annotations

import doctest
import importlib
import math
from types import ModuleType

import pyarrow as pa
import pytest

from cql.base.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    TIMESTAMP,
    TINYINT,
    DataType,
    decimal,
)
from cql.planner.nodes.expr import Call, Cast, Literal
from cql.planner.nodes.logical import AggregateCall, Filter, Project, Sort, SortKey
from tests.reference import naive
from tests.reference.naive import evaluate
from tests.reference.naive_aggregates import QueryFailsError
from tests.reference.naive_compare import assert_same, difference, same_value
from tests.reference.naive_expr import evaluate as value_of
from tests.reference.naive_rows import Answer
from tests.reference.naive_tables import call, column, sliding, stream, tumbling, whole
from tests.reference.naive_values import (
    BadRowError,
    civil,
    day_number,
    float_text,
    parse_timestamp,
    timestamp_text,
)

MODULES = (
    "reference.naive",
    "reference.naive_aggregates",
    "reference.naive_cast",
    "reference.naive_expr",
    "reference.naive_functions",
    "reference.naive_groups",
    "reference.naive_order",
    "reference.naive_sessions",
    "reference.naive_sort",
    "reference.naive_progress",
    "reference.naive_tables",
    "reference.naive_texts",
    "reference.naive_values",
    "reference.naive_windows",
    "support.fuzz.random_permutations",
)


@pytest.mark.parametrize("name", MODULES)
def test_worked_examples(name: str) -> None:
    module: ModuleType = importlib.import_module(f"tests.{name}")
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


# Scalars ------------------------------------------------------------------------------------------


def _value(fn: str, kind: DataType, *args: tuple[object, DataType]) -> object:
    literals = tuple(Literal(v, t) for v, t in args)
    return value_of(Call(fn, literals, kind), ())


@pytest.mark.parametrize(
    ("fn", "kind", "args", "want"),
    [
        ("add", TINYINT, ((100, TINYINT), (28, TINYINT)), None),
        ("add", TINYINT, ((100, TINYINT), (27, TINYINT)), 127),
        ("neg", BIGINT, ((-(2**63), BIGINT),), None),
        ("abs", INT, ((-(2**31), INT),), None),
        ("int_div", BIGINT, ((-7, BIGINT), (2, BIGINT)), -3),
        ("int_div", BIGINT, ((-(2**63), BIGINT), (-1, BIGINT)), None),
        ("mod", BIGINT, ((-7, BIGINT), (2, BIGINT)), -1),
        ("mod", BIGINT, ((-(2**63), BIGINT), (-1, BIGINT)), 0),
        ("div", DOUBLE, ((1.0, DOUBLE), (0.0, DOUBLE)), None),
        ("mul", FLOAT, ((1e38, FLOAT), (10.0, FLOAT)), math.inf),
        ("add", decimal(5, 2), ((123, decimal(3, 2)), (5, decimal(3, 1))), 173),
        ("div", decimal(8, 6), ((100, decimal(5, 2)), (300, decimal(5, 2))), 333333),
        ("lt", BOOLEAN, ((math.inf, DOUBLE), (math.nan, DOUBLE)), True),
        ("eq", BOOLEAN, ((-0.0, DOUBLE), (0.0, DOUBLE)), True),
        ("lt", BOOLEAN, (("Z", STRING), ("a", STRING)), True),
        ("round", DOUBLE, ((2.5, DOUBLE), (0, INT)), 3.0),
        ("round", DOUBLE, ((-1.005, DOUBLE), (2, INT)), -1.01),
        ("floor", BIGINT, ((-1.5, DOUBLE),), -2),
        ("ln", DOUBLE, ((0.0, DOUBLE),), "NULL"),
        ("sqrt", DOUBLE, ((-1.0, DOUBLE),), math.nan),
        ("year", INT, ((-1, TIMESTAMP),), 1969),
        ("date_add", DATE, ((2**31 - 1, DATE), (1, INT)), None),
        ("length", INT, (("žluť", STRING),), 4),
    ],
)
def test_functions(
    fn: str, kind: DataType, args: tuple[tuple[object, DataType], ...], want: object
) -> None:
    if want is None:
        with pytest.raises(BadRowError):
            _value(fn, kind, *args)
    else:
        assert same_value(_value(fn, kind, *args), None if want == "NULL" else want)


@pytest.mark.parametrize(
    ("value", "source", "target", "want"),
    [
        (300, INT, TINYINT, None),
        (-1.9, DOUBLE, INT, -1),
        (math.nan, DOUBLE, BIGINT, None),
        ("12.5", STRING, INT, None),
        (" 1e3 ", STRING, DOUBLE, 1000.0),
        ("nope", STRING, BOOLEAN, None),
        ("Y", STRING, BOOLEAN, True),
        (-1, TIMESTAMP, DATE, -1),
        (-1, TIMESTAMP, BIGINT, -1),
        (1, DATE, TIMESTAMP, 86_400_000_000),
        ("2024-02-30", STRING, DATE, None),
        ("2024-02-29", STRING, DATE, 19_782),
        (12345, decimal(7, 2), STRING, "123.45"),
        (-5, decimal(7, 2), STRING, "-0.05"),
        (1.005, DOUBLE, decimal(5, 2), 101),
        (1e3, DOUBLE, decimal(4, 2), None),
        (1e16, DOUBLE, STRING, "1.0E16"),
        (0.1 + 0.2, DOUBLE, STRING, "0.30000000000000004"),
    ],
)
def test_casts(value: object, source: DataType, target: DataType, want: object) -> None:
    literal = Literal(value, source)
    if want is None:
        with pytest.raises(BadRowError):
            value_of(Cast(literal, target), ())
        assert value_of(Cast(literal, target, safe=True), ()) is None
    else:
        assert value_of(Cast(literal, target), ()) == want


def test_nothing_fails_behind_a_guard() -> None:
    zero, one = Literal(0, BIGINT), Literal(1, BIGINT)
    bad = call("eq", call("int_div", one, zero), one)
    assert value_of(call("and", False, bad), ()) is False
    assert value_of(call("or", True, bad), ()) is True
    with pytest.raises(BadRowError):
        value_of(call("and", Literal(None, BOOLEAN), bad), ())
    with pytest.raises(BadRowError):  # a NULL does not guard its neighbour
        value_of(call("add", Literal(None, BIGINT), call("int_div", one, zero)), ())


@pytest.mark.parametrize("day", [0, -1, 19_782, -719_528, 2**31 - 1, -(2**31), 10**8])
def test_the_calendar_goes_both_ways(day: int) -> None:
    assert day_number(*civil(day)) == day


def test_text_of_times_and_floats() -> None:
    assert timestamp_text(-1) == "1969-12-31 23:59:59.999999"
    assert parse_timestamp("1970-01-01T01:00:00.5+01:00") == 500_000
    assert parse_timestamp("1970-01-01 24:00:00") is None
    assert float_text(9_999_999.0) == "9999999.0"
    assert float_text(9_999_999.99999999) == "9999999.99999999"
    assert float_text(1e-5) == "1.0E-5"
    assert float_text(0.10000000149011612, single=True) == "0.1"


# Aggregates ---------------------------------------------------------------------------------------


def _aggregated(fn: str, values: list[object], columns: str = "t bigint, v double") -> object:
    plan = whole(stream("s", columns), a=(fn, "v"))
    return evaluate(plan, {"s": [(i, v) for i, v in enumerate(values)]}).rows[0][0]


@pytest.mark.parametrize(
    ("fn", "values", "want"),
    [
        ("count", [1.0, None], 1),
        ("sum", [None], None),
        ("sum", [0.5, math.nan], math.nan),
        ("sum", [math.inf, -math.inf], math.nan),
        ("avg", [1.0, 2.0, None], 1.5),
        ("var_samp", [1.0], None),
        ("var_pop", [1.0], 0.0),
        ("var_samp", [1.0, 3.0], 2.0),
        ("stddev_pop", [1.0, 3.0], 1.0),
        ("min", [math.nan, 1.0], 1.0),
        ("max", [math.nan, 1.0], math.nan),
        ("first", [None, 1.0], None),
        ("last", [1.0, 2.0], 2.0),
    ],
)
def test_aggregates(fn: str, values: list[object], want: object) -> None:
    assert same_value(_aggregated(fn, values), want)


def test_a_sum_that_does_not_fit_fails_the_query() -> None:
    top = 2**63 - 1
    with pytest.raises(QueryFailsError):
        _aggregated("sum", [top, 1], "t bigint, v bigint")
    assert _aggregated("sum", [top, 1, -5], "t bigint, v bigint") == top - 4


def test_distinct_counts_values() -> None:
    s = stream("s", "t bigint, v double")
    plan = whole(s)
    call_ = AggregateCall("count", (column(s, "v"),), BIGINT, False, distinct=True)
    plan = type(plan)(s, None, (), (call_,), ("n",))
    rows = [(1, 0.0), (2, -0.0), (3, math.nan), (4, math.nan), (5, None)]
    assert evaluate(plan, {"s": rows}).rows == [(2,)]


# Plans --------------------------------------------------------------------------------------------


def test_slide_larger_than_range_leaves_gaps() -> None:
    plan = sliding(stream("s", "t bigint"), 2, 5, n="count")
    rows = [(t,) for t in range(-5, 6)]
    assert evaluate(plan, {"s": rows}) == Answer(
        [(2, -5, -3, -4), (2, 0, 2, 1), (1, 5, 7, 6)], 0, 0
    )


def test_a_window_of_a_window_knows_no_late_rows() -> None:
    inner = tumbling(stream("s", "t bigint, k int"), 10, "k", n="count")
    times = Project(inner, (column(inner, "window_time"), column(inner, "n")), ("t", "n"))
    outer = tumbling(times, 20, best=("max", "n"))
    rows = [(1, 1), (2, 1), (3, 2), (15, 1), (45, 1), (4, 1)]
    assert evaluate(outer, {"s": rows}) == Answer([(2, 0, 20, 19), (1, 40, 60, 59)], 1)


def test_lateness_is_judged_before_the_filter() -> None:
    s = stream("s", "t bigint, v int")
    small = tumbling(Filter(s, call("lt", column(s, "v"), 5)), 10, n="count")
    assert evaluate(small, {"s": [(50, 9), (1, 1)]}) == Answer([], 1)


def test_a_shifted_attribute_takes_its_watermark_along() -> None:
    s = stream("s", "t bigint")
    moved = Project(s, (call("add", column(s, "t"), 100),), ("u",))
    assert evaluate(tumbling(moved, 10, n="count"), {"s": [(20,), (5,)]}) == Answer(
        [(1, 120, 130, 129)], 1
    )


def test_null_event_time_is_a_bad_row() -> None:
    plan = tumbling(stream("s", "t bigint"), 10, n="count")
    assert evaluate(plan, {"s": [(None,), (1,)]}, keep_bad=True) == Answer([(1, 0, 10, 9)], 0, 1)
    with pytest.raises(QueryFailsError):
        evaluate(plan, {"s": [(None,)]})


def test_a_tie_at_the_limit_leaves_the_answer_open() -> None:
    s = stream("s", "t bigint, v int")
    top = Sort(s, (SortKey(column(s, "v"), False, True),), 1, 0, None)
    assert evaluate(top, {"s": [(1, 1), (2, 1)]}).undetermined
    assert not evaluate(top, {"s": [(1, 1), (1, 1)]}).undetermined
    assert evaluate(top, {"s": [(1, None), (1, 1)]}).rows == [(1, None)]


# Comparison ---------------------------------------------------------------------------------------


def test_bags_with_floats_are_matched_within_tolerance() -> None:
    assert difference([(1, 0.1), (1, 0.3)], [(1, 0.30000000000000004), (1, 0.1)]) is None
    assert difference([(1.0, 5.0), (1.0 + 1e-12, 4.0)], [(1.0, 4.0), (1.0, 5.0)]) is None
    assert difference([(1,)], [(1,), (1,)]) is not None
    assert difference([(True,)], [(1,)]) is not None
    assert difference([(0.0,)], [(None,)]) is not None


def test_assert_same_sees_types_names_and_order() -> None:
    s = stream("s", "t bigint, v double")
    plan = Sort(s, (SortKey(column(s, "v"), False, True),), None, 0, None)
    answer = naive.evaluate(plan, {"s": [(1, 2.0), (2, None)]})
    good = pa.table({"t": pa.array([2, 1]), "v": pa.array([None, 2.0])})
    assert_same(answer, good, plan)
    with pytest.raises(AssertionError, match="after"):
        assert_same(answer, good.take([1, 0]), plan)
    with pytest.raises(AssertionError, match="columns"):
        assert_same(answer, good.rename_columns(["t", "w"]), plan)
    with pytest.raises(AssertionError, match="v: "):
        assert_same(answer, good.set_column(1, "v", pa.array([None, 2])), plan)
