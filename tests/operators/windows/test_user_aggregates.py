"""Aggregate functions of users: their declaration, every operator that runs them, and every kind of
error."""

# User-defined aggregates are classes with the names of SQL functions, their methods have no self.
# ruff: noqa: N801, N805
from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.errors import BindError, CqlError, PlanError, RunError
from cql.functions.declare import load
from tests.support.fuzz.random_cases import (
    check,
)
from tests.support.own_aggregates import (
    COMPILED,
    IN_PYTHON,
    NULLS,
    QUERIES,
    aggregate_case,
    in_python,
    own_sum,
)
from tests.support.results import rows

pytestmark = pytest.mark.usefixtures("shared_kernels")

ROWS = 40
STREAM = pa.table(
    {
        "ts": pa.array(range(ROWS), pa.int64()),
        "n": pa.array([None if i % 7 == 3 else i * 3 - 20 for i in range(ROWS)], pa.int64()),
        "x": pa.array([i / 4 for i in range(ROWS)], pa.float64()),
        "w": pa.array(["abc"[i % 3] for i in range(ROWS)]),
        "d": pa.array(range(ROWS), pa.int32()).cast(pa.date32()),
        "m": pa.array([Decimal(i) / 4 for i in range(ROWS)], pa.decimal128(10, 2)),
    }
)
WINDOW = "s [RANGE 10 SLIDE 10]"


def session_of(*functions: Any, **settings: Any) -> cql.Session:
    session = cql.connect(spark=False, functions=functions, **settings)
    session.create_stream("s", STREAM, ordered_by="ts")
    return session


# -- declaring ---------------------------------------------------------------------------------


def test_types_come_from_annotations_or_are_given() -> None:
    assert COMPILED[0].usage == "own_sum(q bigint) → bigint"
    assert COMPILED[0].help == "A sum."
    assert IN_PYTHON[2].usage == "own_pairs(k bigint, q bigint) → bigint"

    @cql.aggregate("decimal(10,2)", args=["date", dt.timedelta], name="Given")
    class given:
        @staticmethod
        def init() -> tuple[int, bool, float]:
            return 0, False, 0.5

        @staticmethod
        def update(state: Any, day: Any, span: Any) -> Any:
            return state

        @staticmethod
        def final(state: Any) -> Any:
            return Decimal(1)

    assert given.usage == "Given(day date, span interval) → decimal(10,2)"
    assert [str(kind) for kind in given.state] == ["bigint", "boolean", "double"]
    assert given.start == (0, False, 0.5)


def init() -> Any:
    return (0,)


def update(state: Any, a: int) -> Any:
    return state


def merge(a: Any, b: Any) -> Any:
    return a


def final(state: Any) -> int:
    return 0


def generator(state: Any, a: int) -> Any:
    yield a


WHOLE: dict[str, Any] = {"init": init, "update": update, "merge": merge, "final": final}


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("sum", {}, "is a function of the engine"),
        ("median", {}, "is a function of the engine"),
        ("select", {}, "is a word of the language"),
        ("f", {"init": None}, "f has no init"),
        ("f", {"update": None}, "f has no update"),
        ("f", {"final": None}, "f has no final"),
        ("f", {"init": lambda: 0}, "returned 0, not a tuple"),
        ("f", {"init": lambda: ()}, "not a tuple"),
        ("f", {"init": lambda: (None,)}, "returned a state with None"),
        ("f", {"init": lambda: ("a",)}, "returned a state with 'a'"),
        ("f", {"init": lambda: (2**63,)}, "f.init returned a state with"),
        ("f", {"init": lambda: (1 // 0,)}, "f.init raised ZeroDivisionError"),
        ("f", {"init": lambda a: (0,)}, "f.init cannot be called with 0 arguments"),
        ("f", {"merge": lambda a: a}, "f.merge cannot be called with 2 arguments"),
        ("f", {"retract": lambda a: a}, "f.retract cannot be called with 2 arguments"),
        ("f", {"update": lambda: (0,)}, "takes no state"),
        ("f", {"update": lambda state, a: state}, "the type of argument a of f is not known"),
        ("f", {"update": generator}, "a coroutine or a generator"),
        ("f", {"update": classmethod(update)}, "f.update is no function"),
        ("f", {"update": lambda self, state, a: state}, "takes self, and there is none"),
        ("f", {"final": lambda state: 0}, "the type of the result of f is not known"),
        ("f", {"final": 7}, "f.final is no function"),
    ],
)
def test_a_bad_declaration_is_refused(name: str, changed: dict[str, Any], message: str) -> None:
    parts = {role: made for role, made in {**WHOLE, **changed}.items() if made is not None}
    with pytest.raises(BindError, match=message):
        cql.aggregate(name=name)(type("f", (), parts))


@pytest.mark.parametrize("kind", ["string", "binary", "null"])
def test_texts_are_refused(kind: str) -> None:
    with pytest.raises(BindError, match="takes and gives numbers, booleans and times"):
        cql.aggregate("int", args=[kind])(type("f", (), WHOLE))
    with pytest.raises(BindError, match="takes and gives numbers, booleans and times"):
        cql.aggregate(kind, args=["int"])(type("f", (), WHOLE))


def test_what_is_no_class() -> None:
    with pytest.raises(BindError, match="an aggregate is a class, not 7"):
        cql.aggregate("int")(7)


@pytest.mark.slow
def test_every_way_to_register(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "import cql\n"
        "@cql.aggregate\n"
        "class total:\n"
        "    def init(): return (0,)\n"
        "    def update(state, n: int): return (state[0] + n,)\n"
        "    def final(state) -> int: return state[0]\n"
    )
    made = load(path).total
    for given in (path, [made], {"total": made}, {"total": made.definition}, [made.definition]):
        with cql.connect(spark=False, functions=given) as session:
            session.register_table("t", {"n": [1, 2]})
            assert rows(session.sql("SELECT total(n) AS t FROM t")) == [(3,)]
    with session_of() as session:
        session.aggregate(made.definition)
        session.aggregate("int", args=["int"], name="other")(made.definition)
        session.register_function("third", made.definition)
        text = "SELECT total(n) = other(CAST(n AS INT)) AND total(n) = third(n) AS same FROM s"
        assert rows(session.sql(text)) == [(True,)]
        (shown,) = session.sql("SHOW FUNCTIONS LIKE 'total'").rows
        assert shown[:3] == ("total", "user", "total(n bigint) → bigint")
        session.drop_function("total")
        with pytest.raises(BindError, match="total"):
            session.sql("SELECT total(n) FROM s")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT ‹own_sum›() FROM s", "own_sum takes 1 argument, not 0"),
        ("SELECT ‹own_pairs›(n) FROM s", "own_pairs takes 2 arguments, not 1"),
        ("SELECT own_sum(‹w›) FROM s", "argument 1 of own_sum must be bigint"),
        ("SELECT ‹own_pairs›(DISTINCT n, n) FROM s", "takes one argument, not 2"),
        ("SELECT ‹own_nulls›(DISTINCT n) FROM s", "it counts rows that are NULL"),
        ("SELECT n FROM s WHERE ‹own_sum›(n) > 1", "WHERE cannot hold the aggregate own_sum"),
        ("SELECT ‹own_sum›(n) WITHIN GROUP (ORDER BY n) FROM s", "takes no WITHIN GROUP"),
        ("SELECT ‹own_sum›(n ORDER BY n) FROM s", "takes no ORDER BY"),
        ("SELECT ‹own_odd›(n) FROM s GROUP BY SESSION(ts, 3)", "no merge, which session windows"),
        ("SELECT ‹own_odd›(n) FROM s [RANGE 5]", "neither retract nor merge"),
        ("SELECT ‹own_odd›(n), max(n) FROM s [ROWS 5]", "neither retract nor merge|beside max"),
    ],
)
def test_what_is_refused_in_a_query(text: str, message: str) -> None:
    with session_of(*COMPILED, NULLS) as session, pytest.raises(CqlError, match=message) as caught:
        session.sql(text.replace("‹", "").replace("›", ""))
    assert caught.value.column == text.index("‹") + 1


@pytest.mark.parametrize("operator", ["panes", "two_stacks", "two_level"])
def test_panes_need_merge(operator: str) -> None:
    text = "SELECT own_odd(n) FROM s [RANGE 20 SLIDE 1]"
    expected = pytest.raises(
        PlanError, match=r"own_odd has no merge, which (panes|two levels) need"
    )
    with session_of(*COMPILED, window_operator=operator) as session, expected:
        session.sql(text)
    with session_of(*COMPILED) as session:
        assert "own_odd has no merge, which panes need" in session.sql(text).explain()


# -- computing ---------------------------------------------------------------------------------


def test_explain_says_what_is_compiled() -> None:
    with session_of(*COMPILED, NULLS) as session:
        said = session.sql("SELECT own_sum(n), own_nulls(CAST(n AS INT)) FROM s").explain()
    assert "aggregate own_sum: compiled, called from the kernel" in said
    assert "aggregate own_nulls.update: in Python: null_handling='call' hands None over" in said
    assert "aggregate own_nulls.merge: compiled, called from the kernel" in said


def test_times_and_decimals_go_in_and_out() -> None:
    @cql.aggregate
    class latest:
        def init():
            return (-1,)

        def update(state, day: dt.date):
            return (max(state[0], day.toordinal()),)

        def final(state) -> dt.date:
            return dt.date.fromordinal(state[0])

    @cql.aggregate("decimal(12,2)", args=["decimal(10,2)"])
    class cents:
        def init():
            return (0,)

        def update(state, m):
            return (state[0] + int(m * 100),)

        def final(state):
            return Decimal(state[0]) / 100

    with session_of(latest, cents) as session:
        found = rows(session.sql("SELECT latest(d), cents(m), sum(m) FROM s"))
    assert found == [(dt.date(1970, 2, 9), Decimal("195.00"), Decimal("195.00"))]


def test_no_rows() -> None:
    with session_of(*COMPILED) as session:
        text = "SELECT own_sum(n), own_spread(x), own_odd(n) FROM s WHERE ts > 99"
        assert rows(session.sql(text)) == [(None, None, False)]


def test_a_float_state_does_not_drift_over_an_empty_relation() -> None:
    """The rounding error of a float state disappears when the last row leaves the relation."""

    @cql.aggregate
    class drifting:
        def init():
            return (0.0,)

        def update(state, x: float):
            return (state[0] + x,)

        def retract(state, x):
            return (state[0] - x,)

        def final(state) -> float:
            return state[0]

    table = pa.table({"ts": [0, 1, 20], "x": [1e16, 1.0, 3.0]})
    with cql.connect(spark=False, functions=[drifting]) as session:
        session.create_stream("f", table, ordered_by="ts")
        query = session.sql("SELECT ISTREAM(drifting(x)) FROM f [RANGE 5]")
        assert [v for (v,) in rows(query)] == [1e16, 0.0, 3.0, 0.0]


# -- errors ------------------------------------------------------------------------------------


def failing(role: str, where: Any) -> Any:
    """An aggregate whose method ``role`` raises if ``where`` is true of the last argument."""

    def wrapped(function: Any) -> Any:
        def call(*given: Any) -> Any:
            if where(given[-1]):
                raise ValueError(f"no {given[-1]}")
            return function(*given)

        return call

    parts = {r: getattr(own_sum, r) for r in ("init", "update", "merge", "retract", "final")}
    return cql.aggregate("bigint", args=["bigint"], name="bad")(
        type("bad", (), {**parts, role: wrapped(parts[role])})
    )


@pytest.mark.parametrize("compiled", [True, False])
def test_a_row_that_update_refuses_is_named(compiled: bool) -> None:
    @cql.aggregate
    class bad:
        def init():
            return (0,)

        def update(state, n: int):
            if n == 25:
                raise ValueError("no 25")
            return (state[0] + n,)

        def final(state) -> int:
            return state[0]

    own = bad if compiled else cql.aggregate("bigint", args=["int"])(in_python(bad.definition))
    for keep in ("", " ON BAD ROW KEEP"):
        with session_of(own) as session, pytest.raises(RunError) as caught:
            session.sql(f"SELECT bad(CAST(n AS INT)) FROM {WINDOW}{keep}").to_arrow()
        assert caught.value.message == (
            "bad.update raised ValueError: no 25, in aggregate#0, in the row at offset 15 of s"
        )
        assert "FILTER" in (caught.value.hint or "")
        assert caught.value.column == 8


@pytest.mark.parametrize("runtime", ["depth_first", "fifo"])
def test_a_result_that_final_refuses_is_a_bad_row(runtime: str) -> None:
    own = failing("final", lambda state: state[1] > 600)
    with session_of(own, runtime=runtime) as session:
        with pytest.raises(RunError, match=r"bad.final raised ValueError: no \("):
            session.sql(f"SELECT bad(n) FROM {WINDOW}").to_arrow()
        query = session.sql(f"SELECT bad(n), window_end FROM {WINDOW} ON BAD ROW KEEP")
        assert [end for _, end in rows(query)] == [10, 20, 30]
        assert "bad.final raised" in query.bad_rows()["reason"][0].as_py()


def test_a_merge_that_fails() -> None:
    own = failing("merge", lambda b: b[1] > 80)
    expected = pytest.raises(RunError, match=r"bad\.merge raised ValueError")
    with session_of(own, window_operator="panes") as session, expected as caught:
        session.sql("SELECT bad(n) FROM s [RANGE 20 SLIDE 5]").to_arrow()
    assert "offset" not in caught.value.message


@pytest.mark.parametrize(
    ("role", "where", "message"),
    [
        ("update", lambda q: q == 25, "bad.update raised ValueError: no 25, at 15"),
        ("retract", lambda q: q == 25, "bad.retract raised ValueError: no 25, at 21"),
        ("final", lambda state: state[1] > 500, "bad.final raised ValueError: no "),
    ],
)
def test_an_error_over_a_relation_tells_the_instant(role: str, where: Any, message: str) -> None:
    with session_of(failing(role, where)) as session, pytest.raises(RunError, match=message):
        session.sql("SELECT ISTREAM(bad(n)) FROM s [RANGE 5]").to_arrow()


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ((1, 2.5), "returned a state with 2.5, not a bigint|returned a state with"),
        ((1,), r"returned \(1,\), not a tuple of 2"),
        (7, "returned 7, not a tuple of 2"),
        ((1, None), "returned a state with None"),
        ((1, 2**70), "returned a state with"),
    ],
)
def test_a_state_of_another_kind(returned: Any, message: str) -> None:
    own = cql.aggregate("bigint", args=["bigint"], name="bad")(
        type("bad", (), {**WHOLE, "init": lambda: (0, 0), "update": lambda state, n: returned})
    )
    with session_of(own) as session, pytest.raises(RunError, match=message):
        session.sql("SELECT bad(n) FROM s").to_arrow()


def test_overflow_raises_as_in_python() -> None:
    """A state holds 64-bit integers; Python's integers have any size."""

    @cql.aggregate
    class times:
        def init():
            return (1,)

        def update(state, n: int):
            return (state[0] * n,)

        def final(state) -> int:
            return state[0]

    with session_of(times) as session, pytest.raises(RunError, match=r"times\.update returned"):
        session.sql("SELECT times(n + 200) FROM s").to_arrow()


# -- random cases ------------------------------------------------------------------------------


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("functions", [COMPILED, IN_PYTHON], ids=["compiled", "in Python"])
@pytest.mark.parametrize(("text", "names"), QUERIES)
def test_random_cases(
    text: str, names: str, functions: Sequence[Any], seed: int, full: bool
) -> None:
    rng = random.Random(f"{text} {seed} {functions is COMPILED}")
    least = 60 if full else 1
    outcomes: Counter[str] = Counter()
    while outcomes.total() < least or not (outcomes["same"] or outcomes.total() > 20):
        outcomes[check(aggregate_case(text, names, functions, rng))] += 1
    assert outcomes["same"]
