"""Operators of the user (``f(TABLE s)``): against a plain Python loop under all runtimes, with
checkpoints, and what is refused."""

from __future__ import annotations

import ast
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.errors import BindError, CqlError, NotSupportedError, ParseError, RunError
from cql.executor.state.checkpoint import to_ipc
from cql.session.session import Session
from tests.support import user_operators
from tests.support.paths import ROOT
from tests.support.run_checkpoints import plan_of, run, stop_and_continue
from tests.support.runtimes import RUNTIMES, apply, named
from tests.support.user_operators import LEVELS, MANY, STEPS, Emit, operator_session, rows_of

QUICK, FULL = 12, 1000


@pytest.fixture
def session() -> Iterator[Session]:
    with operator_session(1) as made:
        yield made


def _rows(session: Session, text: str) -> list[tuple[Any, ...]]:
    query: Any = session.sql(text)
    return [tuple(row.values()) for row in query.to_arrow().to_pylist()]


def _refused(session: Session, text: str, kind: type[CqlError], message: str) -> CqlError:
    with pytest.raises(kind, match=message) as found:
        _rows(session, text)
    assert found.value.position is not None
    return found.value


# -- rows ------------------------------------------------------------------------------------------


def _emitted(seed: int, count: int) -> list[tuple[Any, ...]]:
    """What ``many`` emits for the rows of a seed."""
    made: list[tuple[Any, ...]] = []
    state = SimpleNamespace(n=0, by_key=np.zeros(4), seen=np.zeros((2, 4), bool))
    for ts, k, name, v in rows_of(seed, count):

        def emit(*values: Any, odd: Any, at: int) -> None:
            made.append((at, *values, bool(odd), at))

        row = SimpleNamespace(ts=max(ts, 0), k=k, name=name, v=v)
        user_operators.many(state, row, emit, 3)
    return made


def _micros(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(round(v.timestamp() * 1e6) if hasattr(v, "timestamp") else v for v in row)


def test_a_plain_loop_gives_the_same(full: bool, seed: int) -> None:
    for i in range(FULL if full else QUICK):
        choice = random.Random(f"operators {seed + i}")
        count = choice.choice((0, 1, 60, 400, 3000))
        runtime = RUNTIMES[(seed + i) % len(RUNTIMES)]
        rows = choice.choice((1, 2, 7, 4096)) if count < 1000 else 4096
        with operator_session(seed + i, count) as session:
            apply(session, runtime, {"morsel_rows": rows})
            found = [_micros(row) for row in _rows(session, MANY)]
            assert found == _emitted(seed + i, count), f"{named(runtime)}, {rows} rows"


@pytest.mark.parametrize("runtime", RUNTIMES, ids=named)
def test_watermarks_and_late_rows_pass(runtime: dict[str, Any], session: Session) -> None:
    """Windows over the rows of an operator are those over the rows that it gets."""
    apply(session, runtime, {"morsel_rows": 5})
    text = "SELECT window_start, count(*) AS n, sum({}) AS v FROM {} [RANGE 10 MILLISECONDS SLIDE 5"
    text += " MILLISECONDS, WA ts]"
    found = session.sql(text.format("v2", "same(TABLE (SELECT ts, v FROM s)) AS x"))
    plain = session.sql(text.format("v", "s"))
    assert found.to_arrow().to_pylist() == plain.to_arrow().to_pylist()
    assert found.late().num_rows == plain.late().num_rows > 0


def test_what_no_query_reads_is_not_made(session: Session) -> None:
    assert _rows(session, "SELECT count(*) AS n FROM many(TABLE s, 3) AS m") == [
        (len(_emitted(1, 400)),)
    ]
    (first, *_) = _rows(session, "SELECT text FROM many(TABLE s, 1 + 2)")
    assert first == (_emitted(1, 400)[0][2],)


def test_operators_over_operators_views_and_order(session: Session) -> None:
    session.sql("CREATE VIEW firsts AS SELECT ts, number, total AS v FROM many(TABLE s, 1) AS m")
    found = _rows(session, "SELECT v2 FROM same(TABLE firsts) AS x LIMIT 5")
    assert found == [(row[3],) for row in _emitted(1, 400) if row[2] and row[2][-1] == "0"][:5]
    session.register_table("t", pa.table({"v": [3.0, 1.0, 2.0]}))
    assert _rows(session, "SELECT * FROM same(TABLE (SELECT v FROM t ORDER BY v)) AS x") == [
        (1.0,),
        (2.0,),
        (3.0,),
    ]


def test_nested_columns_and_names(session: Session) -> None:
    @session.operator({"text": "string"}, state={"n": "uint8"})
    def shown(state: Any, row: Any, emit: Emit) -> None:
        state.n = 255
        emit(repr(row))

    text = "SELECT array(k, NULL) AS xs, struct(name AS s) AS o, CAST(k AS decimal(5, 2)) AS `a b`"
    ((found,), *_) = _rows(session, f"SELECT text FROM shown(TABLE ({text} FROM s WHERE k = 2))")
    (row, *_) = _rows(
        session, "SELECT text FROM shown(TABLE (SELECT NULL AS a, v IS NULL AS b FROM s))"
    )
    assert row == ("Row(a=None, b=False)",)
    name = next(name for _, k, name, _ in rows_of(1, 400) if k == 2)
    assert found == f"Row(xs=[2, None], o={{'s': {name!r}}}, _2=Decimal('2.00'))"


# -- segments --------------------------------------------------------------------------------------


@pytest.mark.parametrize("segments", ["lazy", "realloc", "refcount_copy", "copy_always"])
def test_segments_are_arrays(session: Session, segments: str) -> None:
    apply(session, {"segments": segments})
    wave = np.random.default_rng(1).normal(0, 100, 3200).astype(np.int16)
    starts = range(0, 3200 - 63, 48)
    expected = [float(np.abs(wave[k : k + 64].astype(np.float64)).mean()) for k in starts]
    assert [row[1] for row in _rows(session, LEVELS)] == expected


def test_segments_are_read_only_and_stay(session: Session) -> None:
    kept: list[Any] = []

    @session.operator({"x": "double"})
    def keeps(state: Any, row: Any, emit: Emit) -> None:
        kept.append(row.ch0[2:])

    @session.operator({"x": "double"})
    def changes(state: Any, row: Any, emit: Emit) -> None:
        row.ch0[0] = 1

    @session.operator({"n": "int"})
    def in_a_circle(state: Any, row: Any, emit: Emit) -> None:
        parts = [row.ch0]
        parts.append(parts)
        emit(len(row.ch0))

    text = "SELECT * FROM {}(TABLE audio [ROWS 64 SLIDE 64]) AS x"
    _refused(session, text.format("keeps"), RunError, "keeps keeps the samples of a segment")
    _refused(session, text.format("changes"), RunError, "destination is read-only, in process#")
    assert {row[-1] for row in _rows(session, text.format("in_a_circle"))} == {64}
    kept.clear()


# -- checkpoints -----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [MANY, LEVELS, STEPS], ids=["rows", "segments", "signals"])
def test_checkpoints(text: str, seed: int, full: bool) -> None:
    for k in range(100 if full else 2):
        choice = random.Random(f"operator checkpoint {seed + k}")
        with operator_session(seed + k, 300, morsel_rows=choice.choice((3, 50))) as session:
            plans = []
            for runtime in ("depth_first", "fifo", "ordered"):
                session.set("runtime", runtime)
                plans.append((plan_of(session, text), dict(session.settings)))
            stop_and_continue(*choice.choice(plans), choice, stops=3, others=plans)


def test_in_a_new_process(tmp_path: Path) -> None:
    text = f"SELECT ts, number, text, total FROM ({MANY}) AS a UNION ALL SELECT window_start,"
    text += f" rises, NULL, level FROM ({LEVELS}) AS b"
    with operator_session(3, morsel_rows=7) as session:
        plan = plan_of(session, text)
        whole = run(plan, session.settings)
        before = run(plan, session.settings, stop=whole.morsels // 2)
    assert before.saved is not None
    (tmp_path / "run.arrow").write_bytes(to_ipc(before.saved))
    subprocess.run(
        [sys.executable, "-m", user_operators.__name__, text, str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "1"},
        check=True,
    )
    rows, ledgers = ast.literal_eval((tmp_path / "rest").read_text("utf-8"))
    assert [[*a, *b] for a, b in zip(before.rows, rows, strict=True)] == whole.rows
    assert ledgers == whole.ledgers


def test_a_checkpoint_of_another_state() -> None:
    text, saved = "SELECT * FROM f(TABLE s) AS x", []
    for state in ("int64", "int32"):
        with operator_session(1, morsel_rows=7) as session:

            @session.operator({"n": "int"}, state={"n": state})
            def f(state: Any, row: Any, emit: Emit) -> None:
                state.n += 1

            plan = plan_of(session, text)
            if not saved:
                saved.append(run(plan, session.settings, stop=1).saved)
            else:
                ran = run(plan, session.settings, saved[0])
                assert "the checkpoint is of another query" in str(ran.error)


# -- errors and limits -----------------------------------------------------------------------------


def test_errors_name_the_row(session: Session) -> None:
    @session.operator({"x": "tinyint", "y": "string"}, state={"n": "int32", "xs": ("int32", 2)})
    def fails(state: Any, row: Any, emit: Emit, how: str) -> Any:
        state.n += 1
        if state.n == 3:
            match how:
                case "raises":
                    raise ValueError("no")
                case "wide":
                    emit(x=1000)
                case "kind":
                    emit(1, y=2)
                case "many":
                    emit(1, "y", 3)
                case "unknown":
                    emit(z=3)
                case "twice":
                    emit(1, x=3)
                case "returns":
                    return row
                case "real":
                    state.n = 2.5
                case "name":
                    state.m = 1
                case "array":
                    state.xs = [1.5, 2.5]
        emit(1, "a")
        return None

    expected = {
        "raises": "fails raised ValueError: no",
        "wide": "fails emitted as x 1000, which a tinyint cannot hold",
        "kind": "fails emitted as y 2, which is an int, not a str",
        "many": "fails emitted 3 values, and it returns x, y",
        "unknown": "fails emitted z, which it does not return",
        "twice": "fails emitted x twice",
        "returns": "fails returned Row",
        "real": "fails raised TypeError: 2.5 is no integer, as the state has here",
        "name": "fails raised AttributeError",
        "array": "fails raised TypeError: Cannot cast",
    }
    for k, (how, message) in enumerate(expected.items()):
        apply(session, RUNTIMES[k % len(RUNTIMES)])
        text = f"SELECT * FROM fails(TABLE s, '{how}') AS x"
        found = _refused(session, text, RunError, message)
        assert ", in process#0, in the row at offset 2 of s" in found.message, found.message
        assert str(found.hint).startswith("leave such rows out in its table")
        assert len(_rows(session, f"{text} LIMIT 2")) == 2
    kept = _refused(session, f"{text} ON BAD ROW KEEP", RunError, "fails raised")
    assert "its state may have changed" in str(kept.hint)


def test_memory_and_time_are_limited(session: Session) -> None:
    @session.operator({"x": "bigint"})
    def floods(state: Any, row: Any, emit: Emit) -> None:
        for k in range(10**7):
            try:
                emit(k)
            except Exception:
                return

    @session.operator({"x": "bigint"}, state={"xs": ("float64", 10**6)})
    def large(state: Any, row: Any, emit: Emit) -> None:
        emit(len(state.xs))

    @session.operator({"x": "bigint"})
    def endless(state: Any, row: Any, emit: Emit) -> None:
        while True:
            pass

    session.sql("SET max_state = '6 MB'")
    for name in ("floods", "large"):
        with pytest.raises(RunError, match="state would grow to"):
            _rows(session, f"SELECT * FROM {name}(TABLE s) AS x")
    session.sql("RESET max_state")
    assert _rows(session, "SELECT max(x) AS x FROM large(TABLE s) AS x") == [(10**6,)]
    session.sql("SET function_timeout = '50 milliseconds'")
    with pytest.raises(RunError, match=r"endless ran longer than .*, in process#0"):
        _rows(session, "SELECT * FROM endless(TABLE s) AS x")


def test_what_has_no_order_is_refused(session: Session) -> None:
    session.register_table("t", pa.table({"v": [1.0]}))
    for table, what in (
        ("t", "a table, whose rows have no order,"),
        ("s [RANGE 1 SECOND]", "a relation, whose rows also leave,"),
        ("(SELECT k FROM s UNION ALL SELECT k FROM s)", "a union"),
    ):
        text = f"SELECT * FROM same(TABLE {table}) AS x"
        _refused(session, text, NotSupportedError, f"the operator same over {what}")


def test_wrong_calls(session: Session) -> None:
    session.register_function("twice", lambda x: 2 * x, ["int"], "int")
    for text, kind, message in (
        ("SELECT * FROM sam(TABLE s)", BindError, "unknown operator sam"),
        ("SELECT * FROM gaps(TABLE audio)", BindError, "GAPS takes the name of a signal"),
        ("SELECT * FROM twice(TABLE s)", BindError, "twice is a function of values"),
        ("SELECT same(v) FROM s", BindError, "same is an operator over a table"),
        ("SELECT * FROM same(s)", NotSupportedError, "the table function same"),
        ("SELECT * FROM same(TABLE s, 1)", BindError, "same takes a table and no argument, not 1"),
        ("SELECT * FROM many(TABLE s)", BindError, "a table and 1 argument, not 0"),
        ("SELECT * FROM many(TABLE s, 'a')", BindError, "argument 2 of many must be a constant"),
        ("SELECT * FROM many(TABLE s, k)", BindError, "k"),
        ("SELECT * FROM same(TABLE s", ParseError, "is not closed"),
        ("SELECT * FROM same(TABLE s ORDER BY v)", ParseError, "ORDER BY is not supported"),
        ("SELECT * FROM same(TABLE s,)", ParseError, "an argument is missing"),
        ("SELECT * FROM same(TABLE (SELECT v, ts AS v2 FROM s))", BindError, "returns v2"),
    ):
        _refused(session, text, kind, message)


def test_declarations() -> None:
    def plain(state: Any, row: Any, emit: Emit) -> None: ...

    def short(state: Any, row: Any) -> None: ...

    def lazy(state: Any, row: Any, emit: Emit) -> Iterator[int]:
        yield 1

    def untyped(state: Any, row: Any, emit: Emit, x) -> None: ...  # type: ignore[no-untyped-def]

    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (plain, {"returns": {}}, "plain returns no column"),
        (plain, {"returns": ["double"]}, "is no mapping"),
        (plain, {"returns": {"x y": "int"}}, "is no name of a column"),
        (plain, {"returns": {"x": "int", "X": "int"}}, "plain returns two columns X"),
        (plain, {"returns": {"x": "struct<a int>"}}, "single values and arrays of them"),
        (plain, {"returns": {"x": "array<array<int>>"}}, "single values and arrays of them"),
        (untyped, {"args": ["array<int>"]}, "take and return single values"),
        (plain, {"state": {"n": "str"}}, "is no number and no array of numbers"),
        (plain, {"state": {"n": ("int8", 0)}}, "is no number and no array of numbers"),
        (plain, {"state": {"n": ("int8", 1 << 50)}}, "more than a terabyte"),
        (plain, {"state": {"_n": "int8"}}, "begins with _"),
        (short, {}, "short takes 2 arguments, and an operator is called with three"),
        (lazy, {}, "is a coroutine or a generator"),
        (untyped, {}, "the type of argument x of untyped is not known"),
        (3, {}, "an operator is a function, not 3"),
        (plain, {"name": "sum"}, "sum is a function of the engine"),
    ]
    for made, given, message in wrong:
        with pytest.raises(BindError, match=message):
            cql.operator(**{"returns": {"x": "int"}, **given})(made)


def test_operators_are_listed_and_explained(session: Session) -> None:
    plan = str(session.sql(f"EXPLAIN {MANY}"))
    assert "Process many(ts, k, name, v; 3)" in plan
    assert "state: n int64, by_key float64[4], seen bool[2, 4]" in plan
    assert "operator many: in Python, once per row" in plan
    session.register_function("many2", user_operators.many)
    listed = str(session.sql("SHOW FUNCTIONS LIKE 'many2'"))
    assert "many2(TABLE t, most bigint) → (number bigint" in listed.replace("\n", " ")
    session.drop_function("many2")
    again = session.sql(str(session.sql(MANY)._prepared.text))  # printed and parsed
    assert again.to_arrow().num_rows == len(_emitted(1, 400))
