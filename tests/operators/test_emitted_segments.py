"""Segments as results of operators of the user: they are at the times of their row's segment, and
functions, windows and other operators take them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import cql
from cql.errors import BindError, RunError
from cql.planner.nodes.plan_json import from_json, to_json
from cql.session.session import Session
from tests.support.results import results
from tests.support.run_checkpoints import plan_of
from tests.support.runtimes import RUNTIMES, apply, named
from tests.support.user_operators import STEPS, Emit, operator_session

SAMPLES = np.random.default_rng(1).normal(0, 100, 3200).astype(np.int16)
MANAGERS = ("lazy", "realloc", "refcount_copy", "copy_always")


@pytest.fixture
def session() -> Iterator[Session]:
    with operator_session(1) as made:
        yield made


@pytest.mark.parametrize("runtime", RUNTIMES, ids=named)
def test_a_filter_between_windows(runtime: dict[str, Any], session: Session) -> None:
    """Its windows are those of the signal, though they are longer than what it was given."""
    apply(session, runtime, {"morsel_rows": 7, "segments": MANAGERS[len(str(runtime)) % 4]})
    found = results(session, STEPS)
    steps = np.diff(SAMPLES.astype(int), prepend=0)
    begins = range(0, 3101, 50)
    assert [row[0].microsecond + 1_000_000 * row[0].second for row in found] == [
        1000 * k for k in begins
    ]
    assert [row[1] for row in found] == [steps[k : k + 100].tolist() for k in begins]
    spreads = [2 * SAMPLES[k : k + 100].std(ddof=1) for k in begins]
    assert np.allclose([row[2] for row in found], spreads, rtol=1e-12)


def test_what_takes_them(session: Session) -> None:
    @session.operator({"first": "bigint", "n": "int"})
    def describes(state: Any, row: Any, emit: Emit) -> None:
        emit(row.at, len(row.step))

    table = "steps(TABLE audio [ROWS 64 SLIDE 32]) AS x"
    found = results(
        session,
        "SELECT first, n FROM describes(TABLE (SELECT timestamp_ns(resample(step, 1, 2), 1) AS at,"
        f" subseg(step, 3, 9) AS step FROM {table})) AS d",
    )
    assert found == [(32_000_000 * k + 2_000_000, 9) for k in range(99)]
    session.sql(f"CREATE TABLE kept AS SELECT window_start AS at, step FROM {table}")
    session.sql(f"CREATE VIEW v AS SELECT step FROM {table}")
    (kept,) = results(session, "SELECT count(step) FROM kept")
    assert kept == (99,)
    query: Any = session.sql("SELECT * FROM SIGNAL(v) AS s")
    assert query.to_arrow().num_rows == 3200
    told = next(m for m in query.metrics() if m["operator"].startswith("signal#"))
    assert told["overlapping"] == 98 * 32
    assert "each at its own times" in str(session.sql("EXPLAIN SELECT * FROM SIGNAL(v) AS s"))


def test_the_plan_travels(session: Session) -> None:
    root = plan_of(session, STEPS).root
    assert from_json(to_json(root), session._catalog, session._functions) == root


def test_no_more_and_several_rows(session: Session) -> None:
    """A row may emit no segment, several, and one without samples."""

    @session.operator({"part": "signal<tinyint>", "k": "int"}, state={"n": "int64"})
    def parts(state: Any, row: Any, emit: Emit) -> None:
        state.n += 1
        for k in range(state.n % 3):
            emit(np.full(k, k), k)
            emit([1, -2], k=k)

    found = results(
        session,
        "SELECT part, k, window_start FROM parts(TABLE audio [ROWS 320 SLIDE 320]) AS p",
    )
    assert [(p, k) for p, k, _ in found[:6]] == [
        ([], 0), ([1, -2], 0), ([], 0), ([1, -2], 0), ([1], 1), ([1, -2], 1),
    ]  # fmt: skip
    assert [row[2].microsecond for row in found[:6]] == [0, 0, *[320_000] * 4]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "emitted as x None, and a signal<tinyint> has all its samples"),
        ([1, None], "emitted as x an array with None, and a signal<tinyint> has all its samples"),
        (np.array([300]), "an array with 300, which array<tinyint> cannot hold"),
        (np.zeros((2, 2), np.int8), "an array of 2 dimensions"),
        (1, "which is no list and no array of numpy"),
    ],
    ids=str,
)
def test_what_is_no_segment(value: Any, message: str, session: Session) -> None:
    @session.operator({"x": "signal<tinyint>"})
    def emits(state: Any, row: Any, emit: Emit) -> None:
        emit(value)

    with pytest.raises(RunError, match=message):
        results(session, "SELECT x FROM emits(TABLE audio [ROWS 64 SLIDE 64]) AS e")


def test_declarations(session: Session) -> None:
    def nothing(state: Any, row: Any, emit: Emit) -> None: ...

    def ends(state: Any, emit: Emit) -> None: ...

    @session.operator({"x": " Signal < Float > "})
    def floats(state: Any, row: Any, emit: Emit) -> None:
        emit(row.ch0)

    ((first, *_), *_) = results(
        session, "SELECT x FROM floats(TABLE audio [ROWS 4 SLIDE 4]) AS f LIMIT 1"
    )
    assert first == SAMPLES[:4].tolist()
    with pytest.raises(BindError, match="have no segment that says when it begins"):
        session.sql("SELECT * FROM floats(TABLE s) AS f")
    with pytest.raises(BindError, match=r"finish cannot emit x, a signal<int>: behind the last"):
        cql.operator({"x": "signal<int>"}, finish=ends)(nothing)
    with pytest.raises(BindError, match="is a signal of string, and samples are numbers"):
        cql.operator({"x": "signal<string>"})(nothing)
    with pytest.raises(BindError, match="signal<double>"):
        cql.function("signal<double>", args=["double"] * 3)(nothing)
