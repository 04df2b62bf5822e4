"""The registry: names, argument types, refusals; folding; aggregates."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools

import pytest

from cql.base.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTERVAL,
    NULL,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    DataType,
    Kind,
    array,
    decimal,
)
from cql.errors import BindError, CqlError, NotSupportedError, Position
from cql.executor.codegen.expressions.calls import COMPILED
from cql.executor.operators.aggregates import functions
from cql.executor.operators.aggregates.functions import aggregate_code
from cql.planner.functions.aggregates import AGGREGATES, is_aggregate, resolve_aggregate
from cql.planner.functions.coercion import castable, common_type
from cql.planner.functions.folding import can_fail, fold, monotone
from cql.planner.functions.registry import FUNCTIONS, cast, resolve, unify
from cql.planner.interpret import interpreter
from cql.planner.interpret import text as texts
from cql.planner.interpret import time as times
from cql.planner.nodes.expr import Call, Case, Cast, Column, Expr, Literal, walk
from cql.planner.nodes.logical import AggregateCall
from cql.planner.nodes.show import show

POS = Position(3, 7, 4)
A = Column(0, "a", BIGINT)
I = Column(1, "i", INT)  # noqa: E741 (as its column is named)
D = Column(2, "d", DOUBLE)
P = Column(3, "p", decimal(10, 2), False)
S = Column(4, "s", STRING)
B = Column(5, "b", BOOLEAN)
TS = Column(6, "ts", TIMESTAMP, False)
DT = Column(7, "dt", DATE)
V = Column(8, "v", INTERVAL)
W = Column(9, "w", BINARY)
F = Column(10, "f", FLOAT)
T = Column(11, "t", TINYINT)
COLUMNS = (A, I, D, P, S, B, TS, DT, V, W, F, T)
EVERY = (*(c.type for c in COLUMNS), NULL, SMALLINT, TIMESTAMP_NTZ, decimal(18, 18))


def call(name: str, *args: Expr) -> Expr:
    return resolve(name, args, POS)


def n(value: int) -> Literal:
    return Literal(value, INT)


def text(value: str) -> Literal:
    return Literal(value, STRING)


NOTHING = Literal(None, NULL)


# -- types of results --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expr", "shown", "kind"),
    [
        (call("add", A, I), "a + CAST(i AS bigint)", BIGINT),
        (call("add", T, T), "t + t", TINYINT),
        (call("ADD", I, n(1)), "i + 1", INT),
        (call("div", I, n(2)), "i / 2", INT),
        (call("div", A, n(1000)), "a / 1000", BIGINT),
        (call("int_div", I, n(2)), "CAST(i AS bigint) DIV 2", BIGINT),
        (call("div", D, n(2)), "d / 2.0", DOUBLE),
        (call("add", F, I), "CAST(f AS double) + CAST(i AS double)", DOUBLE),
        (call("add", F, F), "f + f", FLOAT),
        (call("add", P, n(1)), "p + 1.00", decimal(11, 2)),
        (call("mul", P, Literal(15, decimal(2, 1))), "p * 1.5", decimal(13, 3)),
        (call("mul", P, P), "p * p", decimal(18, 4)),
        (call("div", P, n(3)), "p / 3", decimal(14, 6)),
        (call("mul", P, D), "CAST(p AS double) * d", DOUBLE),
        (call("add", S, n(1)), "CAST(s AS bigint) + 1", BIGINT),
        (call("eq", S, I), "CAST(s AS bigint) = CAST(i AS bigint)", BOOLEAN),
        (call("lt", DT, text("2024-01-01")), "dt < DATE '2024-01-01'", BOOLEAN),
        (call("ge", TS, DT), "ts >= CAST(dt AS timestamp)", BOOLEAN),
        (call("add", TS, V), "ts + v", TIMESTAMP),
        (call("add", V, TS), "ts + v", TIMESTAMP),
        (call("sub", TS, TS), "ts - ts", INTERVAL),
        (call("add", DT, n(3)), "date_add(dt, 3)", DATE),
        (call("add", DT, Literal(86_400_000_000, INTERVAL)), "date_add(dt, 1)", DATE),
        (call("sub", DT, DT), "CAST(dt AS timestamp) - CAST(dt AS timestamp)", INTERVAL),
        (call("mul", n(2), V), "v * 2", INTERVAL),
        (call("div", V, n(2)), "v / 2", INTERVAL),
        (call("neg", n(5)), "-5", INT),
        (call("neg", Literal(1 << 31, BIGINT)), "-2147483648", INT),
        (call("concat", S, I), "concat(s, CAST(i AS string))", STRING),
        (call("||", W, W), "concat(w, w)", BINARY),
        (call("year", TS), "year(CAST(ts AS date))", INT),
        (call("hour", DT), "hour(CAST(dt AS timestamp))", INT),
        (call("extract", text("DOW"), DT), "dayofweek(dt)", INT),
        (call("date_trunc", text("MONTH"), DT), "date_trunc('month', CAST(dt AS timestamp))",
         TIMESTAMP),
        (call("floor", P), "floor(p)", decimal(9, 0)),
        (call("ceiling", D), "ceil(d)", BIGINT),
        (call("round", P, n(1)), "round(p, 1)", decimal(10, 1)),
        (call("round", I), "i", INT),
        (call("instr", S, text("x")), "locate('x', s)", INT),
        (call("if", B, I, A), "CASE WHEN b THEN CAST(i AS bigint) ELSE a END", BIGINT),
        (call("coalesce", NOTHING, P, n(0)), "CAST(p AS decimal(12,2))", decimal(12, 2)),
        (call("nullif", I, n(0)), "CASE WHEN i = 0 THEN NULL ELSE i END", INT),
        (call("in_list", I, n(1), NOTHING), "i IN (1, NULL)", BOOLEAN),
        (call("in_list", I, n(1), A), "(CAST(i AS bigint) = 1) OR (CAST(i AS bigint) = a)",
         BOOLEAN),
        (call("log", D), "ln(d)", DOUBLE),
        (call("pi"), "3.141592653589793", DOUBLE),
        (call("shiftleft", T, n(1)), "shiftleft(CAST(t AS int), 1)", INT),
        (call("to_date", S), "CAST(s AS date)", DATE),
        (call("unix_timestamp", TS), "unix_micros(ts) DIV 1000000", BIGINT),
    ],
)  # fmt: skip
def test_types_and_casts(expr: Expr, shown: str, kind: DataType) -> None:
    assert show(expr) == shown
    assert expr.type == kind


def test_nullability() -> None:
    assert not call("add", P, P).nullable
    assert call("add", P, A).nullable
    assert call("ln", Literal(2.0, DOUBLE)).nullable
    assert not call("is_null", A).nullable
    assert not call("coalesce", A, n(0)).nullable
    assert not call("greatest", A, n(0)).nullable
    assert not call("null_safe_eq", A, A).nullable
    assert cast(TS, INT, None, safe=True).nullable
    assert not cast(TS, DATE, None, safe=True).nullable
    assert not call("concat_ws", text(","), S).nullable
    assert call("if", B, P, NOTHING).nullable


# -- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "args", "message", "hint"),
    [
        ("uper", (S,), "unknown function uper", "did you mean upper"),
        ("substring", (S,), "takes 2 to 3 arguments, not 1", "substring(text, from [, length])"),
        ("sqrt", (TS,), "argument 1 of sqrt must be a number, but is timestamp", "sqrt(x)"),
        ("sqrt", (S,), "argument 1 of sqrt must be a number, but is string", "sqrt(x)"),
        ("add", (TS, n(1)), "+ does not take timestamp and int", "INTERVAL 5 SECONDS"),
        ("add", (B, B), "+ does not take boolean and boolean", "numbers"),
        ("mul", (S, S), "* does not take string and string", None),
        ("and", (B, I), "argument 2 of AND must be boolean, but is int", None),
        ("eq", (TS, I), "= needs values of one type, not timestamp, int", "CAST"),
        ("date_trunc", (text("monht"), TS), "the unit 'monht'", "did you mean month"),
        ("date_trunc", (S, TS), "must be a constant string", None),
        ("extract", (text("centuryy"), TS), "the field 'centuryy'", "fields:"),
        ("round", (D, I), "must be a constant whole number", None),
        ("round", (D, n(40)), "rounds to -22", None),
        ("date_add", (DT, A), "argument 2 of date_add must be int, but is bigint", None),
        ("rlike", (S, text("(")), "not valid in RE2", None),
        ("rlike", (S, text("(?=a)")), "not valid in RE2", None),
        ("like", (S, text("a\\b")), "escapes something else", None),
        ("date_format", (TS, text("GGG")), "GGG is no pattern", None),
        ("to_date", (S, text("Q")), "can be written, not read", None),
        ("to_date", (I,), "to_date does not take (int)", None),
        ("coalesce", (I, TS), "COALESCE needs values of one type", None),
        ("mul", (Literal(1, decimal(18, 10)), Literal(1, decimal(18, 10))), "20 decimal places",
         "cast an operand"),
        ("now", (), "not deterministic", "event time"),
        ("rand", (), "not deterministic", None),
        ("current_timestamp", (), "not deterministic", None),
        ("in_list", (I, *(n(k) for k in range(300))), "at most 256", "range"),
        ("mul", (V, D), "an interval times a fraction", None),
    ],
)  # fmt: skip
def test_refusals(name: str, args: tuple[Expr, ...], message: str, hint: str | None) -> None:
    with pytest.raises(CqlError) as caught:
        call(name, *args)
    assert message in caught.value.message
    assert caught.value.position is not None
    if hint is not None:
        assert hint in (caught.value.hint or "")


def test_functions_of_the_clock_are_not_supported() -> None:
    with pytest.raises(NotSupportedError):
        call("current_date")


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_any_arguments_give_an_expression_or_an_error_with_a_position(name: str) -> None:
    least, most = FUNCTIONS[name].arity
    for count in {least, most or least + 1}:
        for a in (*COLUMNS, NOTHING):
            args = (a, *COLUMNS[: max(0, count - 1)])[:count]
            made = _made(name, args)
            assert not isinstance(made, CqlError) or made.position is not None, (name, args)
            if not isinstance(made, CqlError):
                _check(made)


def _made(name: str, args: tuple[Expr, ...]) -> Expr | CqlError:
    try:
        return call(name, *args)
    except CqlError as error:
        return error


def _check(expr: Expr) -> None:
    """Requires that an evaluator knows every node, and that the types of arguments, casts and CASE
    branches fit."""
    show(expr)
    for node in walk(expr):
        if isinstance(node, Call):
            known = (COMPILED, texts.TEXT_FUNCTIONS, interpreter.NOT_STRICT)
            assert any(node.fn in table for table in known), node.fn
            if node.fn in ("eq", "lt", "coalesce", "least", "greatest", "in_list"):
                assert len({a.type for a in node.args}) == 1, node
        if isinstance(node, Cast):
            assert castable(node.arg.type, node.type)
        if isinstance(node, Case):
            values = [v for _, v in node.branches]
            values += [] if node.otherwise is None else [node.otherwise]
            assert {v.type for v in values} == {node.type}


def test_signatures_explain_themselves() -> None:
    for name, signature in {**FUNCTIONS, **AGGREGATES}.items():
        assert signature.name == name
        assert signature.help.endswith(".")
        assert name.split("_")[0].lower() in signature.usage.lower(), signature.usage


# -- types -------------------------------------------------------------------------------------


def test_common_type_is_symmetric_and_casts_exist() -> None:
    for a in EVERY:
        for b in EVERY:
            to = common_type([a, b])
            assert to == common_type([b, a])
            if to is not None:
                assert castable(a, to), (a, b, to)
                assert castable(b, to), (a, b, to)


@pytest.mark.parametrize(
    ("types", "wanted"),
    [
        ((INT, BIGINT), BIGINT),
        ((INT, FLOAT), DOUBLE),
        ((INT, decimal(5, 2)), decimal(12, 2)),
        ((BIGINT, decimal(5, 2)), decimal(18, 2)),
        ((decimal(18, 2), decimal(18, 6)), decimal(18, 6)),
        ((DATE, TIMESTAMP), TIMESTAMP),
        ((STRING, DATE), DATE),
        ((STRING, INT), BIGINT),
        ((STRING, decimal(5, 2)), DOUBLE),
        ((NULL, NULL), NULL),
        ((BOOLEAN, INT), None),
        ((TIMESTAMP, INT), None),
    ],
)
def test_common_types(types: tuple[DataType, ...], wanted: DataType | None) -> None:
    assert common_type(types) == wanted


def test_comparisons_give_integer_literals_their_own_digits() -> None:
    assert [e.type for e in unify([P, n(1)], None, "x")] == [decimal(12, 2)] * 2
    compared = call("lt", P, n(1))
    assert isinstance(compared, Call)
    assert [a.type for a in compared.args] == [decimal(10, 2)] * 2


def test_cast_refusals_name_a_way() -> None:
    for source, to in ((I, DATE), (V, BIGINT), (DT, INT), (P, TIMESTAMP), (B, DATE)):
        assert not castable(source.type, to)
        with pytest.raises(BindError, match="cannot cast"):
            cast(source, to, POS)


def test_literals_are_cast_on_the_spot_unless_that_fails() -> None:
    assert cast(n(5), BIGINT, None) == Literal(5, BIGINT)
    assert cast(text("2024-02-29"), DATE, None) == Literal(19782, DATE)
    assert isinstance(cast(text("never"), DATE, None), Cast)
    assert cast(text("never"), DATE, None, safe=True) == Literal(None, DATE)


# -- folding -----------------------------------------------------------------------------------


def test_fold() -> None:
    assert fold(call("add", n(1), call("mul", n(2), n(3)))) == Literal(7, INT)
    assert fold(call("upper", text("ab"))) == text("AB")
    assert fold(call("add", I, NOTHING)) == Literal(None, INT)
    true, false = Literal(True, BOOLEAN), Literal(False, BOOLEAN)
    assert fold(call("and", true, B)) == B
    assert fold(call("and", B, false)) == false
    assert fold(call("or", B, true)) == true
    assert fold(call("if", true, I, n(1))) == I
    assert fold(call("if", NOTHING, I, n(1))) == n(1)


def test_fold_never_hides_an_error() -> None:
    fails = call("div", n(1), n(0))
    assert fold(fails) == fails
    risky = call("eq", call("div", n(1), I), n(0))
    false = Literal(False, BOOLEAN)
    assert fold(call("and", risky, false)) == call("and", risky, false)
    assert fold(call("and", false, risky)) == false
    assert fold(call("add", call("div", n(1), I), NOTHING)).type == INT
    assert not isinstance(fold(call("add", call("div", n(1), I), NOTHING)), Literal)
    guarded = call("if", call("eq", I, n(0)), n(0), fails)
    assert fold(guarded) == guarded


def test_can_fail() -> None:
    assert can_fail(call("add", A, A))
    assert not can_fail(call("add", D, D))
    assert not can_fail(call("div", A, n(7)))
    assert can_fail(call("div", A, n(-1)))
    assert can_fail(call("div", D, D))
    assert not can_fail(call("mod", A, n(3)))
    assert not can_fail(call("add", P, P))
    assert can_fail(call("mul", call("mul", P, P), P))
    assert can_fail(cast(A, INT, None))
    assert not can_fail(cast(A, INT, None, safe=True))
    assert not can_fail(call("like", S, text("a%")))
    assert can_fail(call("like", S, S))


def test_each_function_either_never_fails_or_may_fail() -> None:
    for module in (texts, times, interpreter):
        may_fail = getattr(module, "MAY_FAIL", None) or interpreter._MAY_FAIL
        assert not set(module.NEVER_FAIL) & set(may_fail), module
    assert set(texts.FAILS_BY) <= set(texts.MAY_FAIL)
    for fn in interpreter.NEVER_FAIL:
        assert not can_fail(Call(fn, (S, I), STRING, True)), fn


def test_monotone() -> None:
    hour = Literal(3_600_000_000, INTERVAL)
    assert monotone(TS, 6)
    assert monotone(call("sub", TS, hour), 6)
    assert monotone(call("date_trunc", text("day"), call("add", TS, hour)), 6)
    assert monotone(cast(I, BIGINT, None), 1)
    assert monotone(call("div", A, n(60)), 0)
    assert monotone(call("floor", call("mul", D, Literal(0.5, DOUBLE))), 2)
    assert not monotone(TS, 0)
    assert not monotone(call("neg", A), 0)
    assert not monotone(call("sub", n(5), I), 1)
    assert not monotone(call("mul", I, n(-1)), 1)
    assert not monotone(call("add", A, I), 0)
    assert not monotone(call("mod", A, n(7)), 0)
    assert not monotone(n(5), 0)
    assert not monotone(cast(A, STRING, None), 0)
    assert not monotone(call("month", TS), 6)


# -- aggregates --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "args", "fn", "kind", "nullable"),
    [
        ("count", (), "count", BIGINT, False),
        ("COUNT", (n(1),), "count", BIGINT, False),
        ("count", (S,), "count", BIGINT, False),
        ("sum", (I,), "sum", BIGINT, True),
        ("sum", (F,), "sum", DOUBLE, True),
        ("sum", (P,), "sum", decimal(18, 2), True),
        ("sum", (V,), "sum", INTERVAL, True),
        ("mean", (I,), "avg", DOUBLE, True),
        ("avg", (P,), "avg", decimal(14, 6), True),
        ("min", (S,), "min", STRING, True),
        ("max", (TS,), "max", TIMESTAMP, True),
        ("std", (I,), "stddev_samp", DOUBLE, True),
        ("variance", (P,), "var_samp", DOUBLE, True),
        ("var_pop", (F,), "var_pop", DOUBLE, True),
        ("first_value", (S,), "first", STRING, True),
        ("any_value", (D,), "first", DOUBLE, True),
        ("last", (B,), "last", BOOLEAN, True),
        ("every", (B,), "bool_and", BOOLEAN, True),
        ("any", (B,), "bool_or", BOOLEAN, True),
        ("count_if", (B,), "count_if", BIGINT, False),
        ("arg_max", (S, I), "max_by", STRING, True),
        ("median", (I,), "percentile", DOUBLE, True),
        ("quantile", (TS, n(1)), "percentile_disc", TIMESTAMP, True),
        ("mode", (S,), "mode", STRING, True),
        ("collect_list", (S,), "array_agg", array(STRING), False),
        ("group_concat", (I,), "string_agg", STRING, True),
    ],
)
def test_aggregates(
    name: str, args: tuple[Expr, ...], fn: str, kind: DataType, nullable: bool
) -> None:
    assert is_aggregate(name)
    made = resolve_aggregate(name, args, False, None, POS)
    assert (made.fn, made.type, made.nullable) == (fn, kind, nullable)


def test_aggregate_arguments() -> None:
    assert resolve_aggregate("count", (n(1),), False, None, POS).args == ()
    assert resolve_aggregate("count", (S,), True, None, POS).distinct
    assert not resolve_aggregate("min", (S,), True, None, POS).distinct
    assert resolve_aggregate("stddev", (I,), False, None, POS).args == (cast(I, DOUBLE, None),)
    assert resolve_aggregate("sum", (I,), False, B, POS).where == B


@pytest.mark.parametrize(
    ("name", "args", "error", "message"),
    [
        ("kurtosis", (I,), NotSupportedError, "kurtosis is not supported yet"),
        ("percentile", (I,), BindError, "percentile does not take 1 argument"),
        ("percentile", (I, n(2)), BindError, "must be a constant from 0 to 1"),
        ("string_agg", (S, S), BindError, "the separator of string_agg must be a constant string"),
        ("median", (B,), BindError, "argument 1 of median must be a number, but is boolean"),
        ("max_by", (I,), BindError, "takes two arguments"),
        ("approx_count_distinct", (I,), NotSupportedError, "not supported yet"),
        ("sum", (B,), BindError, "argument 1 of sum must be a number, but is boolean"),
        ("sum", (I, I), BindError, "takes one argument"),
        ("count", (I, I), BindError, "takes one argument"),
        ("bool_and", (I,), BindError, "argument 1 of bool_and must be boolean, but is int"),
        ("summ", (I,), BindError, "not an aggregate"),
    ],
)
def test_aggregate_refusals(
    name: str, args: tuple[Expr, ...], error: type[CqlError], message: str
) -> None:
    with pytest.raises(error) as caught:
        resolve_aggregate(name, args, False, None, POS)
    assert message in caught.value.message
    assert caught.value.position is not None


@functools.cache
def fixed_size_calls() -> list[AggregateCall]:
    """Each call of an aggregate with a state of fixed size, for each type of its arguments."""
    made = []
    for name in AGGREGATES:
        for args in ((), *((x,) for x in COLUMNS), *itertools.product(COLUMNS, repeat=2)):
            with contextlib.suppress(CqlError):
                made.append(resolve_aggregate(name, args, False, None, POS))
    return [call for call in made if not call.holistic]


def test_each_aggregate_has_code() -> None:
    assert {made.fn for made in fixed_size_calls()} == {*functions._BUILDERS}


@pytest.mark.parametrize("loose", [False, True])
def test_each_aggregate_can_be_merged(loose: bool) -> None:
    for made in fixed_size_calls():
        code = aggregate_code(made, 0, loose)
        assert code.merge
        assert bool(code.retract) == bool(code.subtract) == made.can_subtract
        # A DISTINCT call has the same code, for single values; its groups are not subtracted.
        distinct = dataclasses.replace(made, distinct=True)
        assert aggregate_code(distinct, 0, loose) == code
        assert not distinct.can_subtract


@pytest.mark.parametrize("name", ["merge", "retract", "subtract"])
def test_an_aggregate_without_lines_that_the_planner_relies_on_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = aggregate_code(resolve_aggregate("count", (), False, None, POS), 0, False)
    less = dataclasses.replace(code, **{name: ()})
    monkeypatch.setitem(functions._BUILDERS, "count", lambda *_: less)
    with pytest.raises(AssertionError, match=f"count.*no {name} lines"):
        aggregate_code(resolve_aggregate("count", (), False, None, POS), 0, False)


def test_an_aggregate_whose_subtraction_the_planner_does_not_know_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = resolve_aggregate("max", (I,), False, None, POS)
    more = dataclasses.replace(aggregate_code(made, 0, False), subtract=("pass",))
    monkeypatch.setitem(functions._BUILDERS, "max", lambda *_: more)
    with pytest.raises(AssertionError, match=r"max\(int\): the code has subtract lines.*is False"):
        aggregate_code(made, 0, False)


def test_every_kind_has_a_cast_to_text() -> None:
    for kind in set(Kind) - {Kind.ARRAY, Kind.SIGNAL}:
        assert castable(DataType(kind, 5, 1) if kind is Kind.DECIMAL else DataType(kind), STRING)
