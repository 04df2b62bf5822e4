"""User functions under the ordered runtime: several workers run them at once, and the rows and the
errors are those of depth first."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.base.reentrancy import OneAtATime, inherited
from cql.catalog import blocks
from cql.errors import RunError
from cql.executor.operators.contract import Operator
from cql.executor.operators.flow.replicas import PartitionedOperator, ReplicatedOperator
from cql.executor.run.execution import Execution
from cql.executor.strings import compaction
from tests.support.function_fixtures import FUNCTIONS

ROWS = 600
WORKERS, UNITS = (1, 2, 4), (1, 7, 65_536)


def table(rows: int = ROWS) -> pa.Table:
    return pa.table(
        {
            "ts": pa.array(range(rows), pa.int64()),
            "n": pa.array([None if i % 7 == 3 else i * 3 - 20 for i in range(rows)], pa.int64()),
            "x": pa.array([None if i % 5 == 2 else i / 4 - 3 for i in range(rows)], pa.float64()),
            "w": pa.array([None if i % 11 == 1 else f"{'abcde'[i % 5]}{i}" for i in range(rows)]),
            "k": pa.array([i % 4 for i in range(rows)], pa.int32()),
            "i": pa.array(range(rows), pa.int32()),
        }
    )


def parallel_sum() -> Any:
    def update(state, n):
        return (state[0] + len(str(n)) * 0 + n,)

    parts = {
        "init": lambda: (0,),
        "update": update,
        "merge": lambda a, b: (a[0] + b[0],),
        "final": lambda state: state[0],
    }
    declare = cql.aggregate("bigint", args=["bigint"], name="own_sum")
    return declare(type("own_sum", (), parts))


def digits(n: int) -> int:
    return len(format(n, "d"))


def holds(n: int) -> int:
    return len(format(n, "x")) + n


MADE = [*FUNCTIONS, parallel_sum(), holds, cql.function(parallel=True)(digits)]
QUERIES = {
    "compiled": "SELECT i, collatz(i + 1) AS c, hypotenuse(x, 4.0) AS h FROM s WHERE i % 3 <> 1",
    "in Python": "SELECT i, holds(n) AS p FROM s WHERE in_python(n) > 0 OR n IS NULL",
    "in Python, parallel": "SELECT i, digits(n) AS p FROM s WHERE digits(i) > 1",
    "of a text": "SELECT i, shout(shout(w)) AS t, upper(w) AS u FROM s WHERE w > 'b1' OR i < 9",
    "of several": "SELECT i, repeated(w, i % 3) AS r, concat(shout(w), w) AS c FROM s",
    "over results": "SELECT i, shout(repeated(w, collatz(i + 1) % 3)) AS r FROM s",
    "below windows": """
        SELECT r, count(*) AS c, own_sum(n) AS t, window_end FROM
        (SELECT ts, repeated(substring(w, 1, 1), k % 3) AS r, n FROM s) AS f
        [RANGE 40 SLIDE 20 WA ts] GROUP BY r""",
    "above windows": """
        SELECT k, shout(max(w)) AS m, in_python(own_sum(n)) AS t, window_end
        FROM s [RANGE 30 SLIDE 30] GROUP BY k HAVING shout(min(w)) > 'A'""",
    "above a union": """
        SELECT shout(w) AS t, in_python(n) AS p FROM
        (SELECT w, n FROM s UNION ALL SELECT w, n + 1 AS n FROM s) AS u""",
}


@pytest.fixture(scope="module")
def session() -> Iterator[cql.Session]:
    with cql.connect(spark=False, functions=MADE) as session:
        session.create_stream("s", table(), ordered_by="ts")
        yield session


def under(session: cql.Session, **settings: Any) -> None:
    for name, value in settings.items():
        session.set(name, value)


def rows(session: cql.Session, text: str, **settings: Any) -> pa.Table:
    under(session, **settings)
    return session.sql(text).to_arrow()


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_the_answer_is_that_of_depth_first(session: cql.Session, name: str) -> None:
    expected = rows(session, QUERIES[name], runtime="depth_first", morsel_rows=65_536)
    assert expected.num_rows > 0
    for workers, unit in product(WORKERS, UNITS):
        ordered = {"runtime": "ordered", "workers": workers, "morsel_rows": unit}
        assert rows(session, QUERIES[name], **ordered).equals(expected), ordered


# -- operators in several threads ------------------------------------------------------------------


def operators(monkeypatch: pytest.MonkeyPatch) -> list[Operator]:
    """Collects the operators of the queries that run from now on."""
    found: list[Operator] = []
    make = Execution._make_runtime

    def noting(self: Execution, graph: Any) -> Any:
        found.extend(graph.operators)
        return make(self, graph)

    monkeypatch.setattr(Execution, "_make_runtime", noting)
    return found


def test_workers_are_in_a_function_at_once() -> None:
    """Two calls wait for each other, which no single thread could do."""
    meeting = threading.Barrier(2)
    met: set[int] = set()

    def meets(n: int) -> int:
        if n in (0, 1):
            meeting.wait(60)
            met.add(threading.get_ident())
        return n

    with cql.connect(spark=False, runtime="ordered", workers=2, morsel_rows=1) as session:
        session.create_stream("s", table(8), ordered_by="ts")
        session.register_function("meets", meets, ["int"], "int", parallel=True)
        text = "SELECT meets(i) AS i FROM s"
        assert session.sql(text).to_arrow()["i"].to_pylist() == list(range(8))
    assert len(met) == 2


def test_a_function_that_holds_the_interpreter_stays_in_one_thread(
    session: cql.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = operators(monkeypatch)
    calls = {"holds": False, "digits": True, "collatz": True}
    for call in calls:
        rows(session, f"SELECT {call}(i + 1) FROM s", runtime="ordered", workers=2)
    assert [isinstance(o, ReplicatedOperator) for o in found] == list(calls.values())


@pytest.mark.sampled
@pytest.mark.parametrize("text", ["one(i)", "one(i) + length(w)", "two(w, i)", "text(w)"])
def test_a_function_that_is_not_parallel_keeps_its_stage_alone(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    inside: list[int] = []
    together: list[int] = []

    def alone(*_: Any) -> int:
        inside.append(1)
        together.append(len(inside))
        inside.pop()
        return 1

    found = operators(monkeypatch)
    with cql.connect(spark=False, runtime="ordered", workers=4, morsel_rows=7) as session:
        session.create_stream("s", table(), ordered_by="ts")
        for name, kinds in (("one", ["int"]), ("two", ["string", "int"]), ("text", ["string"])):
            session.register_function(name, alone, kinds, "int", parallel=False)
        both = f"SELECT max({text}) AS m, b FROM (SELECT w, i, {text} AS b FROM s) AS f GROUP BY b"
        session.sql(both).to_arrow()
    assert not any(isinstance(o, ReplicatedOperator) for o in found)
    assert set(together) == {1}


def test_an_aggregate_that_is_not_parallel_is_not_split(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "SELECT k, total(i) AS t, window_end FROM s [RANGE 20 SLIDE 20] GROUP BY k"
    found = operators(monkeypatch)
    for parallel in (True, False):
        found.clear()
        with cql.connect(spark=False, runtime="ordered", workers=2, partitions=3) as session:
            session.create_stream("s", table(), ordered_by="ts")
            total = parallel_sum().definition
            session.register_function("total", total, ["bigint"], "bigint", parallel=parallel)
            session.sql(text).to_arrow()
        assert any(isinstance(o, PartitionedOperator) for o in found) is parallel


def test_instances_are_as_many_as_workers_have_been(monkeypatch: pytest.MonkeyPatch) -> None:
    found = operators(monkeypatch)
    with cql.connect(spark=False, runtime="ordered", workers=1, functions=FUNCTIONS) as session:
        session.create_stream(
            "s", [b for _ in range(3) for b in table(200).to_batches()], ordered_by=None
        )
        query = session.sql("SELECT i, repeated(w, 2) AS r, shout(w) AS t FROM s")
        batches = iter(query)
        wanted = [3, 2, 5]
        taken = []
        for batch in batches:
            taken.append(batch)
            if wanted:
                query.workers = wanted.pop(0)
    (stage,) = found
    assert isinstance(stage, ReplicatedOperator)
    assert len(stage.instances) in (1, 3, 5)
    one = {"i": list(range(200)), "w": table(200)["w"].to_pylist()}
    made = pa.Table.from_batches(taken)
    assert made["i"].to_pylist() == 3 * one["i"]
    assert made["r"].to_pylist() == 3 * [w and 2 * w for w in one["w"]]
    assert made["t"].to_pylist() == 3 * [w and w.upper() + "!" for w in one["w"]]


# -- errors ----------------------------------------------------------------------------------------


def fails_at(*bad: int) -> Any:
    def fails(n: int) -> int:
        if n in bad:
            raise ValueError(f"not {n}")
        return len(str(n))

    return fails


def of_text(w: str) -> int:
    return {"a": 1}[w[0]]


def of_both(w: str, n: int) -> str:
    return w if n != 333 else 7  # type: ignore[return-value]


def state_of_three(state, n):
    return (0, 0, 0) if n > 400 else state


#: The expected end of the message, by call.
BROKEN = {
    "fails(i)": "fails raised ValueError: not 250, in project#0, in the row at offset 250",
    "of_text(w)": "of_text raised KeyError: 'c', in project#0, in the row at offset 2",
    "of_both(w, i)": "7, which is an int, not a str, in project#0, in the row at offset 333",
    "wrong(i)": "'x', which is a str, not an int, in project#0, in the row at offset 123",
    "states(i)": "returned (0, 0, 0), not a tuple of 1, in aggregate#0, in the row at offset 401",
}


@pytest.fixture(scope="module")
def broken() -> Iterator[cql.Session]:
    with cql.connect(spark=False, functions=[of_text, of_both]) as session:
        session.create_stream("s", table(), ordered_by="ts")
        session.register_function("fails", fails_at(250, 251, 500), ["int"], "int")
        session.register_function("wrong", lambda n: "x" if n == 123 else n, ["int"], "int")
        parts = {"init": lambda: (0,), "update": state_of_three, "final": lambda state: state[0]}
        session.register_function("states", type("states", (), parts), ["int"], "bigint")
        yield session


@pytest.mark.sampled
@pytest.mark.parametrize("call", BROKEN)
def test_the_first_failure_is_told(broken: cql.Session, call: str) -> None:
    told: set[str] = set()
    runs = [{"runtime": "depth_first"}, {"runtime": "fifo"}]
    runs += [{"runtime": "ordered", "workers": w} for w in WORKERS]
    for settings, unit in product(runs, UNITS):
        under(broken, morsel_rows=unit, **settings)
        with pytest.raises(RunError) as caught:
            broken.sql(f"SELECT {call} AS made FROM s").to_arrow()
        told.add(str(caught.value))
    (said,) = told
    assert BROKEN[call] in said
    assert "(line 1, column 8)" in said


def test_bad_rows_are_left_out_in_order(broken: cql.Session) -> None:
    text = "SELECT i, fails(i) AS f, of_text(w) AS t FROM s ON BAD ROW KEEP"
    found = []
    for settings in ({"runtime": "depth_first"}, {"runtime": "ordered", "workers": 4}):
        under(broken, morsel_rows=7, **settings)
        query = broken.sql(text)
        kept = query.to_arrow()
        bad = sorted(query.bad_rows().to_pylist(), key=lambda row: row["offset"])
        found.append((kept, bad))
    (kept, bad), (kept_by_four, bad_by_four) = found
    assert kept.equals(kept_by_four)
    assert bad == bad_by_four
    assert 0 < kept.num_rows == ROWS - len(bad)


# -- compaction ------------------------------------------------------------------------------------

FORGETTING = {
    "replicas": "SELECT i, shout(w) AS a, upper(concat(shout(w), w)) AS c FROM s WHERE w > 'a1'",
    "partitions": """
        SELECT k, shout(max(w)) AS m, upper(min(w)) AS l, count(*) AS n, window_end
        FROM s [RANGE 40 SLIDE 20] GROUP BY k HAVING shout(max(w)) > 'A1'""",
}


@pytest.mark.parametrize("name", FORGETTING)
def test_tables_of_instances_survive_compaction(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    answers = []
    for settings in ({"runtime": "depth_first"}, {"runtime": "ordered", "workers": 2}):
        for least in (compaction.LEAST, 2_000):
            monkeypatch.setattr(blocks, "BLOCK_ROWS", 50)
            monkeypatch.setattr(compaction, "LEAST", least)
            with cql.connect(spark=False, functions=FUNCTIONS, partitions=3, **settings) as session:
                session.create_stream("s", table(), ordered_by="ts")
                answers.append(session.sql(FORGETTING[name]).to_arrow())
    assert answers[0].num_rows > 0
    assert all(answer.equals(answers[0]) for answer in answers)


def test_a_function_that_is_not_parallel_runs_queries_that_call_it() -> None:
    """The queries may call the function in any of their threads: these calls do not wait for the
    outer call, which waits for the queries."""
    inside: list[int] = []
    most: list[int] = []
    totals: list[int] = []
    found: list[object] = []

    def work() -> None:
        with cql.connect(spark=False, runtime="ordered", workers=2, morsel_rows=1) as session:
            session.create_stream("s", table(40), ordered_by="ts")
            session.sql("CREATE TABLE t (i BIGINT)")

            def alone(n: int) -> int:
                inside.append(n)
                most.append(len(inside))
                try:
                    if n != 1000:
                        return n + 1
                    if not totals:
                        total = "SELECT sum(alone(i)) AS t FROM s"
                        query = session.sql("INSERT INTO t SELECT alone(i) AS i FROM s").start()
                        query.await_termination()
                        totals.append(session.sql(total).to_arrow()["t"][0].as_py())
                    return totals[0]
                finally:
                    inside.pop()

            session.register_function("alone", alone, ["bigint"], "bigint", parallel=False)
            text = "SELECT alone(1000) AS n, alone(alone(i)) AS i FROM s LIMIT 1"
            found.extend(session.sql(text).to_arrow().to_pylist())
            found.append(session.sql("SELECT sum(i) AS i FROM t").to_arrow()["i"][0].as_py())

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(240)
    assert not thread.is_alive()
    every = sum(range(1, 41))
    assert found == [{"n": every, "i": 2}, 2 * every]  # inserted twice: at once and by start()
    assert max(most) == 2  # the outer call, which waits, and one nested call


def test_a_turn_within_a_call_ends_with_it() -> None:
    """A thread that a call has started need not wait for that call; if the thread outlives the
    call, it takes turns with all other threads."""
    lock, begins, entered = OneAtATime(), threading.Event(), threading.Event()
    order: list[str] = []

    def late() -> None:
        begins.wait(60)
        lock.call(order.append, "late")
        entered.set()

    def started() -> threading.Thread:
        thread = threading.Thread(target=inherited(late, computes=False), daemon=True)
        thread.start()
        return thread

    def outer() -> threading.Thread:
        thread = lock.call(lambda: lock.call(started))
        begins.set()
        assert entered.wait(60)  # the outer call has not ended, so the thread does not wait
        order.append("outer")
        return thread

    def following() -> None:
        begins.set()
        order.append("next")

    lock.call(outer).join(60)
    begins.clear()
    thread = lock.call(started)
    lock.call(following)
    thread.join(60)
    assert order == ["late", "outer", "next", "late"]
