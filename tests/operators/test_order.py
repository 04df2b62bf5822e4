"""Operators that enforce order, and slack: in scripts, over whole queries, and in EXPLAIN."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.base.slack import parse_slack
from cql.errors import PlanError, SettingError
from cql.executor.operators.order.merge import INITIAL_RUNS
from tests.support.operator_tools import session_over
from tests.support.script import Script

UNION = "SELECT ts, k FROM a UNION ALL SELECT ts, k FROM b"
MERGE = {"union_operator": "merge"}
COUNT = "SELECT count(*) AS n, window_end FROM a [RANGE 10 SLIDE 10 WA ts]"


# -- scripts ---------------------------------------------------------------------------------------


def test_merge_waits_for_the_input_that_is_behind() -> None:
    s = Script(UNION, settings=MERGE)
    s.push("5 x 1 \n 7 x 2").punctuate(7).push("3 y 1 \n 6 y 2", "b").expect("")
    s.punctuate(6, "b").expect("row 3 y \n row 5 x \n punct ts 6")
    s.punctuate(8).punctuate(7, "b").expect("row 6 y \n punct ts 7")
    s.end("b").expect("row 7 x \n punct ts 8")
    s.push("9 x 3 \n 8 x 4").end("a").expect("row 8 x \n row 9 x \n end")


def test_merge_leaves_out_late_rows_and_orders_ties_by_input() -> None:
    s = Script(UNION, settings=MERGE)
    s.push("4 b1 1 \n 4 b2 1", "b").push("4 a1 1 \n - a2 1 \n 4 a3 1")
    s.punctuate(5).punctuate(5, "b")
    s.expect("row - a2 \n row 4 a1 \n row 4 a3 \n row 4 b1 \n row 4 b2 \n punct ts 5")
    s.push("4 late 1 \n 6 z 1 \n - n 1").end().expect("row - n \n row 6 z \n end")
    merge = next(op for op in s.operators if op.name.startswith("merge"))
    assert merge.counters()["late_rows"] == 1


def test_merge_gives_more_rows_than_a_unit_holds() -> None:
    s = Script(UNION, 2, settings=MERGE)
    s.push("1 a 1 \n 2 b 1").push("3 c 1 \n 4 d 1").push("5 e 1").punctuate(9).expect("")
    s.end("b").expect("row 1 a \n row 2 b \n row 3 c \n row 4 d \n row 5 e \n punct ts 9")
    s.end("a").expect("end")


def test_sort_by_time_with_further_keys() -> None:
    s = Script("SELECT ts, k, v FROM a ORDER BY ts, k DESC NULLS LAST, v")
    s.push("2 a 1 \n 1 b 9 \n 2 c 5 \n 2 - 3 \n 2 c 4")
    s.punctuate(2).expect("row 1 b 9 \n punct ts 2")
    s.push("2 d 7 \n 1 x 1").punctuate(3)
    s.expect("row 2 d 7 \n row 2 c 4 \n row 2 c 5 \n row 2 a 1 \n row 2 - 3 \n punct ts 3")
    s.push("- x 1 \n 4 y 1").end().expect(
        "bad sort#0 0 the event time ts is NULL \n row 4 y 1 \n end"
    )


def test_limit_and_offset_hold_for_the_whole_stream() -> None:
    s = Script("SELECT ts, k FROM a ORDER BY ts LIMIT 2 OFFSET 1")
    s.push("3 c 1 \n 1 a 1 \n 2 b 1").punctuate(3).expect("row 2 b \n row 3 c \n punct ts 3 \n end")
    s.push("5 e 1 \n 4 d 1").punctuate(9).expect("").end().expect("")


def test_rows_leave_when_the_watermark_has_come_to_them() -> None:
    """At watermark t, no row can precede the rows at t. With further sort keys, a row at t still
    can, so that these rows wait."""
    s = Script("SELECT ts, k FROM a ORDER BY ts")
    s.push("3 c 1 \n 2 b 1").punctuate(3).expect("row 2 b \n row 3 c \n punct ts 3")
    s = Script("SELECT ts, k FROM a ORDER BY ts, k")
    s.push("3 c 1 \n 2 b 1").punctuate(3).expect("row 2 b \n punct ts 3")


def test_slack_of_rows() -> None:
    """A row is late if more rows have overtaken it than the slack allows; the windows decide which
    of their pairs are late."""
    s = Script(COUNT, settings={"slack": "2 rows"})
    s.push("1 a 1 \n 11 a 1 \n 12 a 1 \n 9 a 1")  # two rows have overtaken 9: on time
    s.expect("punct window_end 10")
    s.push("21 a 1").expect("row 2 10 \n punct window_end 20")
    s.push("8 a 1 \n 13 a 1").end().expect("row 3 20 \n row 1 30 \n end")


def test_slack_of_time_ignores_punctuation() -> None:
    s = Script(COUNT, settings={"slack": "3"})
    s.push("1 a 1 \n 12 a 1").punctuate(50).expect("punct window_end 10")
    s.push("9 a 1 \n 13 a 1")
    s.expect("row 2 10 \n punct window_end 20").push("9 a 1").end().expect("row 2 20 \n end")


def test_slack_is_waited_for_once() -> None:
    """ORDER BY window_end relies on the punctuation of the windows and adds no second wait."""
    s = Script(f"{COUNT} ORDER BY window_end", settings={"slack": "3"})
    s.push("1 a 1 \n 13 a 1").expect("row 1 10 \n punct window_end 20").end().expect(
        "row 1 20 \n end"
    )


def test_sort_before_a_window_leaves_out_whole_rows() -> None:
    """A row behind the slack still reaches its open window, unless order is enforced."""
    rows = "1 a 1 \n 8 a 1 \n 3 a 1 \n 30 a 1"
    s = Script(COUNT, settings={"slack": "3"})
    s.push(rows).end().expect("row 3 10 \n punct window_end 30 \n row 1 40 \n end")
    s = Script(COUNT, settings={"slack": "3", "order_enforcement": "sort"})
    s.push(rows).end().expect("row 2 10 \n punct window_end 30 \n row 1 40 \n end")


# -- whole queries ---------------------------------------------------------------------------------


def stream(n: int, seed: int, jitter: int) -> pa.Table:
    r = np.random.default_rng(seed)
    ts = np.arange(n) * 3 + r.integers(0, jitter + 1, n)
    names = pa.array([None if i % 11 == 0 else f"n{i % 7}" for i in range(n)])
    values = pa.array(r.integers(-3, 3, n), pa.int8())
    real = pa.array([float("nan") if i % 13 == 0 else -0.5 * (i % 5) for i in range(n)])
    fields = {"ts": pa.int64(), "k": pa.string(), "v": pa.int8(), "x": pa.float64()}
    schema = pa.schema([pa.field(c, t, nullable=c != "ts") for c, t in fields.items()])
    return pa.table([pa.array(ts), names, values, real], schema=schema)


@pytest.mark.sampled
@pytest.mark.parametrize("morsel_rows", [1, 7, 64, 65_536])
@pytest.mark.parametrize("runtime", ["depth_first", "fifo"])
def test_order_depends_on_no_morsel_and_no_runtime(morsel_rows: int, runtime: str) -> None:
    tables = {"a": stream(3_000, 1, 40), "b": stream(2_000, 2, 0), "c": stream(500, 3, 900)}
    settings = {"morsel_rows": morsel_rows, "runtime": runtime}
    session = session_over(tables, slack=60, settings=settings)
    found = session.sql("SELECT ts, k, v, x FROM a UNION b UNION c ORDER BY ts").to_arrow()
    assert repr(found.to_pydict()) == repr(_expected(tables).to_pydict())  # repr, as NaN != NaN


def _expected(tables: dict[str, pa.Table]) -> pa.Table:
    """The rows without the late ones, input after input, stably sorted by time."""
    parts = []
    for table in tables.values():
        ts = table["ts"].to_numpy()
        before = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(ts)[:-1]])
        parts.append(table.filter(pa.array(ts >= before.clip(min=0) - 60)))
    whole = pa.concat_tables(parts)
    return whole.take(pa.array(np.argsort(whole["ts"].to_numpy(), kind="stable"))).combine_chunks()


@pytest.mark.parametrize("keys", ["k, v DESC, x", "x DESC, k DESC NULLS LAST, v", "v, x, k"])
def test_further_keys_equal_a_sort_at_the_end(keys: str) -> None:
    table = stream(2_000, 4, 40)
    table = table.set_column(
        0, pa.field("ts", pa.int64(), False), pa.array(table["ts"].to_numpy() // 40)
    )
    session = session_over({"a": table}, slack=60, settings={"morsel_rows": 64})
    session.create_stream("t", table)
    by_time = session.sql(f"SELECT * FROM a ORDER BY ts, {keys}")
    at_end = session.sql(f"SELECT * FROM t ORDER BY ts, {keys}")
    assert "PunctuatedSort" in by_time.explain()
    assert "PunctuatedSort" not in at_end.explain()
    assert repr(by_time.to_arrow().to_pylist()) == repr(at_end.to_arrow().to_pylist())


def test_state_does_not_grow_with_the_stream() -> None:
    """Disorder within the slack makes few runs, however long the stream is."""
    sizes = []
    for n in (20_000, 200_000):
        tables = {"a": stream(n, 1, 40), "b": stream(n, 2, 40)}
        session = session_over(tables, slack=60, settings={"morsel_rows": 64})
        query = session.sql("SELECT ts, k FROM a ORDER BY ts")
        assert query.to_arrow().num_rows == n
        sizes.append({m["operator"]: m["state_bytes"] for m in query.metrics()[1:]})
    assert sizes[0] == sizes[1]
    assert sizes[0]["sort#0"] < 100_000


def test_reversed_bursts_need_more_runs_than_there_are_at_first() -> None:
    burst = 4 * INITIAL_RUNS
    ts = np.arange(20 * burst).reshape(-1, burst)[:, ::-1].ravel()
    session = session_over({"a": pa.table({"ts": ts})}, slack=burst, settings={"morsel_rows": 7})
    query = session.sql("SELECT ts FROM a ORDER BY ts")
    assert query.to_arrow()["ts"].to_pylist() == list(range(20 * burst))


@pytest.mark.parametrize("most", [1, 2, 5, 40])
def test_rows_that_punctuation_releases_leave_in_few_batches(most: int) -> None:
    """Releases of up to 4 rows are collected into batches of up to 32 rows; a larger release leaves
    at once, after the collected rows."""
    sizes = np.random.default_rng(most).integers(0, most + 1, 300)
    rows: list[Any] = []
    for second, size in enumerate(sizes):
        rows += [cql.Punctuation("ts", second)] * (second % 2)
        rows += [{"ts": second, "k": k} for k in range(size)]
    with cql.connect(False, morsel_rows=64, runtime="depth_first") as session:
        session.create_stream("s", rows, punctuated="ts")
        batches = list(session.sql("SELECT ts, k FROM s ORDER BY ts").batches())
    given = [row for row in rows if isinstance(row, dict)]
    assert [row for b in batches for row in b.to_pylist()] == given
    if 2 * most <= 4:
        assert all(28 < b.num_rows <= 32 for b in batches[:-1])
    else:
        assert max(b.num_rows for b in batches) > 4


def test_order_by_time_over_endless_input_gives_rows_at_once() -> None:
    with cql.connect(False, morsel_rows=64) as session:
        session.sql("""
            CREATE STREAM r (ts timestamp, key bigint) ORDERED BY ts WITHIN 1 SECOND USING rate
            OPTIONS (rows_per_second '1000', disorder '0.5', max_delay '1 second', pace 'false')""")
        rows = session.sql("SELECT ts, key FROM r ORDER BY ts")
        first = pa.Table.from_batches(itertools.islice(rows, 3))
        assert first.num_rows > 0
        times = first["ts"].cast(pa.int64()).to_numpy()
        assert (np.diff(times) >= 0).all()


@pytest.mark.parametrize("settings", [MERGE, {"order_enforcement": "sort"}])
def test_enforcing_order_changes_no_answer_without_late_rows(settings: dict[str, Any]) -> None:
    tables = {"a": stream(3_000, 1, 40), "b": stream(2_000, 2, 0)}
    text = (
        "SELECT k, count(*) AS n, window_end FROM a UNION b [RANGE 300 SLIDE 60 WA ts] GROUP BY k"
    )
    answers = []
    for chosen in ({}, settings):
        found = session_over(tables, slack=60, settings=chosen).sql(text).to_arrow()
        answers.append(sorted(map(repr, found.to_pylist())))
    assert answers[0] == answers[1]


def test_drops_against_delay_are_counted() -> None:
    """With SET slack, the count lacks exactly the pairs that the ledger counts as late."""
    table = stream(3_000, 5, 200)
    text = "SELECT count(*) AS n FROM a [RANGE 60 SLIDE 60 WA ts]"
    for slack in ("10", "20 rows", "3 rows"):
        session = session_over({"a": table}, slack=300, settings={"slack": slack})
        query = session.sql(text)
        total = sum(query.to_arrow()["n"].to_pylist())
        ledger = {(e["kind"], e["place"]): e["count"] for e in query.late().to_pylist()}
        dropped = ledger["pairs", "aggregate#1"]
        assert total + dropped == 3_000
        assert 0 < dropped <= ledger["behind slack", "slack#0"]
        assert ledger["rows", "a"] == 0


# -- EXPLAIN and refusals --------------------------------------------------------------------------


def test_explain_tells_why_a_union_merges() -> None:
    empty = pa.schema([pa.field("ts", pa.int64(), False), pa.field("k", pa.string())]).empty_table()
    session = session_over({"a": empty, "b": empty})
    ordered = "SELECT ts, k FROM a UNION b AS u ORDER BY ts"
    assert "MergeUnion by ts" in session.sql(ordered).explain()
    assert "the result is ordered by ts" in session.sql(ordered).explain()
    shown = session.sql(f"{ordered}, k").explain()
    assert "PunctuatedSort by ts" in shown
    assert "MergeUnion" not in shown
    assert "MergeUnion by ts" in session.sql(f"{ordered} LIMIT 3").explain()
    session.sql("SET union_operator = 'pass_through'")
    assert "MergeUnion" not in session.sql(ordered).explain()
    counted = "SELECT count(*) FROM a UNION b [RANGE 10 SLIDE 10 WA ts]"
    assert "(SET union_operator = 'pass_through')" in session.sql(counted).explain()
    session.sql("SET union_operator = 'merge'")
    assert "(SET union_operator = 'merge')" in session.sql(counted).explain()
    session.create_stream("t", empty)
    told = session.sql("SELECT k FROM a UNION t").explain()
    assert "not applied here: union_operator = merge: no column has a watermark in all" in told


def test_order_by_needs_a_time_with_a_watermark_first() -> None:
    with cql.connect(False) as session:
        session.sql("CREATE STREAM r ORDERED BY ts USING rate")
        for order in ("key, ts", "ts DESC", "key"):
            with pytest.raises(PlanError, match="has no end to wait for") as error:
                session.sql(f"SELECT ts, key FROM r ORDER BY {order}")
            assert "order by a time with a watermark first" in str(error.value.hint)


def test_slack_in_the_units_of_the_event_time() -> None:
    empty = pa.table({"ts": pa.array([], pa.int64())})
    session = session_over({"a": empty}, settings={"slack": "5 minutes"})
    text = "SELECT count(*) FROM a [RANGE 1 MINUTE SLIDE 1 MINUTE]"
    assert "less 300 (SET slack = '5 minutes')" in session.sql(text).explain()
    session.create_stream("n", empty, ordered_by="ts")
    with pytest.raises(PlanError, match="no whole number of steps of ts, a bigint"):
        session.sql("SELECT count(*) FROM n [RANGE 10 SLIDE 10]")
    session.create_stream(
        "z", pa.table({"ts": pa.array([], pa.timestamp("us", "UTC"))}), ordered_by="ts",
        slack=datetime.timedelta(seconds=1),
    )  # fmt: skip
    session.sql("SET slack = '500'")
    with pytest.raises(PlanError, match="no whole number of steps of ts, a timestamp"):
        session.sql(text.replace("FROM a", "FROM z"))


@pytest.mark.parametrize("text", ["soon", "-1 rows", "1.5 rows", "5 parsecs", "", "1 2"])
def test_what_is_no_slack(text: str) -> None:
    assert parse_slack(text) is None
    with cql.connect(False) as session, pytest.raises(SettingError, match="slack does not take"):
        session.sql(f"SET slack = '{text}'")


def test_slack_as_a_hint() -> None:
    empty = pa.table({"ts": pa.array([], pa.int64())})
    session = session_over({"a": empty})
    text = "SELECT /*+ slack('1000 rows') */ count(*) FROM a [RANGE 10 SLIDE 10]"
    assert "what more than 1000 rows overtook" in session.sql(text).explain()
