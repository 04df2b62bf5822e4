"""Watermarks end to end: the guard against far-future rows, source punctuation, idle inputs and
heartbeats. A script of blocks moves the injected clock."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from cql import Punctuation
from cql.errors import BindError, CatalogError, NotSupportedError
from cql.executor.run.execution import Execution
from cql.query.query import Query
from cql.session.session import CqlWarning, Session
from tests.support.live import STEADY, Clock, Live, Script, _count, at, late

DAY = 86_400


def counts(query: Any) -> list[tuple[int, float]]:
    """Per window: the count ``n`` and the window's end in seconds."""
    return [_count(row) for row in query.to_arrow().to_pylist()]


COUNT = "SELECT count(*) AS n, window_end FROM {} [RANGE 10 SECONDS SLIDE 10 SECONDS]"


# Endless sources ----------------------------------------------------------------------------------


@pytest.fixture
def live() -> Iterator[Live]:
    made = Live()
    yield made
    made.session.close()


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(False) as made:
        yield made


# MAX ADVANCE --------------------------------------------------------------------------------------


def test_one_row_of_the_far_future_moves_nothing(live: Live) -> None:
    far = 1000 * DAY
    live.stream("s", [(0, [1, 2, far, 3, 11, 12, 25])])
    found, query = live.run(COUNT.format("s"))
    assert [row[1:] for row in found] == [(3, 10), (2, 20), (1, 30), (1, far + 10)]
    assert query.progress().late == 0
    assert query.metrics()[0]["far_ahead"] == 1
    assert live.notices == [
        "s.ts jumped by more than 1 hour: its watermark waits until three further rows confirm it"
        " (MAX ADVANCE of CREATE STREAM)"
    ]


def test_three_further_rows_confirm_an_advance(live: Live) -> None:
    gap = 2 * DAY
    live.stream("s", [(0, [1]), (1, [gap + 1]), (2, [gap + 2, gap + 3]), (3, [gap + 20])])
    found, query = live.run(COUNT.format("s"))
    assert found[0] == (3, 1, 10)  # not before the fourth row arrives
    assert query.metrics()[0]["far_ahead"] == 4


def test_an_advance_in_between_starts_the_count_anew(live: Live) -> None:
    far = 1000 * DAY
    rows = [1, far, 2, far, 3, far, 4, far, 5, far, 11]
    live.stream("s", [(0, rows), (1, [12]), (2, [25])])
    found, query = live.run(COUNT.format("s"))
    assert found[:2] == [(0.0, 5, 10), (2.0, 2, 20)]
    assert query.progress().late == 0


@pytest.mark.parametrize(
    ("clause", "guarded"), [("", True), ("MAX ADVANCE 1 HOUR", True), ("MAX ADVANCE 2 d", False)]
)
def test_bounded_input_is_guarded(session: Session, clause: str, guarded: bool) -> None:
    session.register_table("rows", pa.table({"ts": [at(1), at(DAY + 7200), at(2), at(11)]}))
    session.sql(f"CREATE STREAM s FROM TABLE rows ORDERED BY ts {clause}")
    query = session.sql(COUNT.format("s"))
    assert isinstance(query, Query)
    if guarded:
        with pytest.warns(CqlWarning, match="jumped by more than 1 hour"):
            found = counts(query)
        assert found == [(2, 10), (1, 20), (1, DAY + 7210)]
    else:
        assert counts(query) == [(1, 10), (1, DAY + 7210)]
        assert late(query)["s", "rows"] == 2


@pytest.mark.parametrize(
    ("clause", "error"),
    [
        ("ORDERED BY k MAX ADVANCE 1 HOUR", "k"),
        ("MAX ADVANCE 1 HOUR", "needs a column with a watermark"),
        ("ORDERED BY ts MAX ADVANCE 0 SECONDS", "must be above zero"),
        ("ORDERED BY ts IDLE AFTER 5", "has no unit"),
        ("ORDERED BY ts IDLE AFTER 0 SECONDS", "must be above zero"),
        ("ORDERED BY k HEARTBEAT EVERY 1 s SLACK 1 s", "k is a bigint"),
        ("HEARTBEAT EVERY 1 s SLACK 1 s", "needs a timestamp"),
        ("PUNCTUATE ON ts EVERY 1 s", "nothing makes any"),
        ("PUNCTUATE ON ts WHEN k", "marked by a boolean"),
        ("PUNCTUATE ON ts WHEN nothing", "there is no column nothing"),
        ("PUNCTUATE ON x", "there is no column x"),
    ],
)
def test_clauses_that_mean_nothing_are_refused(session: Session, clause: str, error: str) -> None:
    with pytest.raises((BindError, NotSupportedError), match=error) as refusal:
        session.sql(
            f"CREATE STREAM s (ts TIMESTAMP, k BIGINT) USING csv OPTIONS (path 'x') {clause}"
        )
    assert refusal.value.position is not None
    assert refusal.value.hint is not None or "above zero" in error or "no column" in error


# IDLE AFTER ---------------------------------------------------------------------------------------

UNION = COUNT.format("a UNION b AS u")


def test_an_idle_input_holds_nothing_back(live: Live) -> None:
    live.stream("a", STEADY)
    live.stream("b", [(0, [0]), (1, [1]), (60, [60])])
    found, query = live.run(UNION)
    # b sends its last row at 1 and is idle from 6 on; then a's watermark alone closes windows
    assert [row[:2] for row in found[:3]] == [(10.0, 12), (20.0, 10), (30.0, 10)]
    assert sum(row[1] for row in found) == 63
    assert query.progress().late == 0


def test_rows_of_an_input_that_wakes_are_late_below_what_was_passed_on(live: Live) -> None:
    live.stream("a", STEADY, "IDLE AFTER 1 HOUR")
    live.stream("b", [(1, [1]), (35, [5, 31, 36]), (45, [45])], "IDLE AFTER 20 SECONDS")
    found, query = live.run(UNION)
    ends = [row[2] for row in found]
    assert ends == sorted(set(ends))  # each window is emitted once
    assert found[0][:2] == (21.0, 11)  # 20 seconds after the last row of b
    # the watermark is at 35; the last closed window ended at 30
    assert late(query)["b", "idle"] == 1
    assert late(query)["aggregate#1", "pairs"] == 1
    assert {end: n for _, n, end in found}[40] == 12
    # b is active again: [40, 50) waits until b passes 50 or ends
    assert {end: time for time, _, end in found}[40] >= 45


def test_the_input_that_holds_time_back_is_named(live: Live) -> None:
    live.stream("a", STEADY, "IDLE AFTER 1 HOUR")
    live.stream("b", [(0, [0]), (20, [20]), (59, [59])], "IDLE AFTER 1 HOUR")
    _, query = live.run(UNION)
    assert query._run is not None
    told = query._run.held_back() or ""
    assert told.startswith("time was held back by b: furthest behind for 9")
    assert told.endswith(" of the run, by 38 seconds at the most")


def test_a_union_in_order_waits_for_no_idle_input(live: Live) -> None:
    live.session.set("union_operator", "merge")
    live.stream("a", STEADY, "IDLE AFTER 1 HOUR")
    live.stream("b", [(1, [1]), (35, [5, 31, 36]), (45, [45])], "IDLE AFTER 20 SECONDS")
    found, query = live.run(UNION)
    assert "merge" in query.explain()
    assert found[0][1:] == (11, 10)
    assert found[0][0] <= 22  # 20 seconds after the last row of b
    # the merge has output 35 and cannot output lower times any more
    assert late(query)["b", "idle"] == 2
    assert late(query)["merge#0", "left out"] == 2
    assert sum(row[1] for row in found) == len(STEADY) + 3
    ends = [row[2] for row in found]
    assert ends == sorted(set(ends))


def test_an_input_alone_is_never_idle(live: Live) -> None:
    live.stream("a", [(0, [1]), (1000, [2, 30])])
    found, query = live.run(COUNT.format("a"))
    assert found == [(1000.0, 2, 10), (1000.0, 1, 40)]
    assert query.progress().late == 0


@pytest.mark.sampled
@pytest.mark.parametrize("runtime", ["depth_first", "fifo", "run_to_completion"])
@pytest.mark.parametrize("fuse", ["on", "off"])
def test_idleness_passes_filters_and_windows(live: Live, runtime: str, fuse: str) -> None:
    live.session.set("runtime", runtime)
    live.session.set("fuse", fuse)
    live.stream("a", STEADY)
    live.stream("b", [(0, [0, 1, 2]), (58, [3, 50])])
    inner = "SELECT count(*) AS c, window_time AS w FROM {} [RANGE 2 SECONDS SLIDE 2 SECONDS]"
    text = (
        f"WITH p AS ({inner.format('a')}), r AS ({inner.format('b')} HAVING count(*) > 0)"
        " SELECT sum(c) AS n, window_end FROM p UNION r AS u [RANGE 10 SECONDS SLIDE 10 SECONDS"
        " WA w]"
    )
    found, query = live.run(text)
    assert found[0][1:] == (12, 10)
    assert found[0][0] <= 13
    ends = [row[2] for row in found]
    assert ends == sorted(set(ends))
    assert (
        sum(row[1] for row in found)
        + late(query)["r" if ("r", "idle") in late(query) else "b", "idle"]
        >= 60
    )


def test_an_idle_input_does_not_hold_the_rows_of_a_join(live: Live) -> None:
    """Changes of the idle input for closed instants count for the first open instant."""
    live.stream("a", STEADY)
    live.stream("b", [(0, [0]), (1, [1]), (50, [20, 50])], "IDLE AFTER 5 SECONDS")
    text = (
        "SELECT DSTREAM(count(*) AS n, 0 AS window_end) FROM a [RANGE 2 SECONDS] AS l"
        " LEFT JOIN b [RANGE 2 SECONDS] AS r ON r.ts <= l.ts"
    )
    found, query = live.run(text)
    # b is idle from 6 on: the counts follow a, whose rows leave the window
    assert found[0][0] == 6.0
    (join,) = (m for m in query.metrics() if m["operator"].startswith("relationjoin"))
    assert join["held_left"] == join["held_right"] == join["waiting"] == 0
    # b's rows at 1 (that instant is still open when b turns idle) and at 20
    assert late(query)["b", "idle"] == 2


def test_bounded_input_is_never_idle(session: Session) -> None:
    """A bounded replay that stalls loses no row and emits the closed windows during the stall."""
    clock = Clock()
    made = Session(False, run=lambda plan, settings: Execution(plan, settings, clock).queries[0])
    from cql.planner.nodes.catalog import StreamSpec

    stall = [(0, [1, 2, 11]), (10, [12, 25])]
    for name, events in (("a", STEADY), ("b", stall)):
        source = Script(clock, events, bounded=True)
        made._catalog.local.add_source((f"{name}_rows",), source, StreamSpec())
        made.sql(f"CREATE STREAM {name} FROM TABLE {name}_rows ORDERED BY ts IDLE AFTER 1 SECOND")
    query = made.sql(UNION)
    assert isinstance(query, Query)
    found = [(clock.time - 100, *_count(row)) for batch in query for row in batch.to_pylist()]
    assert sum(n for _, n, _ in found) == 65
    assert query.progress().late == 0
    assert found[0][0] < 11
    made.close()


# HEARTBEAT ----------------------------------------------------------------------------------------


def test_a_heartbeat_closes_windows_in_silence(live: Live) -> None:
    live.stream("s", [(0, [1, 8]), (30, [36])], "HEARTBEAT EVERY 1 SECOND SLACK 3 SECONDS")
    found, query = live.run(COUNT.format("s"))
    # the last event time, 8, + elapsed seconds - 3 reaches 10 after five seconds
    assert found == [(5.0, 2, 10), (30.0, 1, 40)]
    assert query.progress().late == 0


def test_rows_below_a_heartbeat_are_late_rows(live: Live) -> None:
    live.stream("s", [(0, [8]), (20, [9, 12, 21, 35])], "HEARTBEAT EVERY 1 SECOND SLACK 3 SECONDS")
    found, query = live.run(COUNT.format("s"))
    # the watermark is 8 + (19 or 20) - 3: 9 and 12 miss their windows; the window of 21 is open
    assert [row[1:] for row in found] == [(1, 10), (1, 30), (1, 40)]
    assert late(query) == {("s", "rows"): 3, ("aggregate#0", "pairs"): 2}


def test_a_heartbeat_waits_for_the_live_end(live: Live) -> None:
    """A source that has data to read makes no heartbeats, however slowly it is read."""
    live.stream("s", [(0, [1]), (0, [2]), (0, [3])], "HEARTBEAT EVERY 1 SECOND SLACK 0 SECONDS")
    query = live.session.sql(COUNT.format("s"))
    assert isinstance(query, Query)
    live.clock.time += 1000
    assert [_count(row) for batch in query for row in batch.to_pylist()] == [(3, 10)]


def test_an_input_with_a_heartbeat_is_idle_only_on_demand(live: Live) -> None:
    live.stream("a", STEADY)
    live.stream("b", [(0, [0]), (60, [60])], "HEARTBEAT EVERY 1 SECOND SLACK 4 SECONDS")
    found, query = live.run(UNION)
    assert found[0] == (14.0, 11, 10)  # by the heartbeat, not after the five seconds of IDLE AFTER
    assert query.progress().late == 0


# Source punctuation -------------------------------------------------------------------------------


def _items(*items: float | Punctuation) -> list[Any]:
    return [
        Punctuation(i.column, at(i.value)) if isinstance(i, Punctuation) else {"ts": at(i), "v": i}
        for i in items
    ]


MARKED = _items(1, 3, 2, Punctuation("ts", 10), 12, 9, 11, Punctuation("ts", 20), 19.5, 25)


@pytest.mark.parametrize("morsel_rows", [1, 2, 65_536])
def test_marks_between_the_rows_of_an_iterable(session: Session, morsel_rows: int) -> None:
    session.set("morsel_rows", morsel_rows)
    session.create_stream("s", MARKED, punctuated="ts")
    query = session.sql(COUNT.format("s"))
    assert isinstance(query, Query)
    assert counts(query) == [(3, 10), (2, 20), (1, 30)]  # 9 and 19.5 are below the punctuation
    assert late(query) == {("s", "rows"): 2, ("aggregate#0", "pairs"): 2}
    (entry,) = [e for e in query.late().to_pylist() if e["kind"] == "rows"]
    assert entry["max_lateness"] == datetime.timedelta(seconds=1)


def test_marks_of_a_live_iterable_close_windows_at_once(session: Session) -> None:
    seen: list[Any] = []

    def items() -> Iterator[Any]:
        yield from _items(1, 2, Punctuation("ts", 10))
        for _ in range(10_000):  # until the reader has seen the window
            if seen:
                break
            yield Punctuation("ts", at(10))
        yield {"ts": at(25), "v": 1}

    session.create_stream("s", items, punctuated="ts", bounded=False)
    query = session.sql(COUNT.format("s"))
    assert isinstance(query, Query)
    for batch in query:
        seen += [_count(row) for row in batch.to_pylist()]
    assert seen == [(2, 10), (1, 30)]


def test_rows_that_are_marks(session: Session) -> None:
    times = [1, 3, 2, 10, 12, 9, 11, 20, 19.5, 25, 0]
    marks = [False, None, False, True, False, False, False, True, False, False, True]
    rows = pa.table(
        {"ts": [at(t) for t in times[:-1]] + [None], "v": list(range(11)), "mark": marks}
    )
    session.register_table("rows", rows)
    session.sql("CREATE STREAM s FROM TABLE rows PUNCTUATE ON ts WHEN mark")
    assert counts(session.sql(COUNT.format("s"))) == [(3, 10), (2, 20), (1, 30)]
    values = session.sql("SELECT v FROM s")
    assert isinstance(values, Query)
    assert [r["v"] for r in values.to_arrow().to_pylist()] == [0, 1, 2, 4, 5, 6, 8, 9]
    bad = session.sql("SELECT 1 / (v - 5) AS x FROM s ON BAD ROW KEEP")
    assert isinstance(bad, Query)
    assert bad.to_arrow().num_rows == 7
    assert bad.bad_rows().to_pylist()[0]["offset"] == 5  # a punctuation row takes an offset


def test_a_csv_file_with_marks(session: Session, tmp_path: Any) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("t,mark\n1,false\n9,\n10,true\n5,false\n21,false\n")
    session.sql(
        f"CREATE STREAM s (t BIGINT, mark BOOLEAN) USING csv OPTIONS (path '{path}')"
        " PUNCTUATE ON t WHEN mark"
    )
    query = session.sql("SELECT count(*) AS n, window_end FROM s [RANGE 10 SLIDE 10]")
    assert isinstance(query, Query)
    assert counts(query) == [(2, 10), (1, 30)]
    assert late(query)["s", "rows"] == 1


def test_order_and_marks_together(session: Session) -> None:
    items = _items(1, 8, Punctuation("ts", 2), 3, 17, 6, Punctuation("ts", 15), 14)
    session.create_stream("s", items, ordered_by="ts", slack="5 seconds", punctuated="ts")
    query = session.sql(COUNT.format("s"))
    assert isinstance(query, Query)
    assert counts(query) == [(3, 10), (2, 20)]  # 6 < 17 - 5; 14 is below the punctuation 15
    assert late(query) == {("s", "rows"): 2, ("aggregate#0", "pairs"): 1}


@pytest.mark.parametrize(
    ("mark", "error"),
    [
        (Punctuation("tss", at(1)), "punctuation on tss, which is no column"),
        (Punctuation("v", 1.5), "punctuation on v, which is a double"),
        (Punctuation("ts", 5), "punctuation, row 0, column ts: 5"),
        (Punctuation("ts", None), "punctuation on ts has no value"),
        (Punctuation("k", 5), "punctuates k, which is not declared to have a watermark"),
    ],
)
def test_punctuation_that_cannot_be(session: Session, mark: Punctuation, error: str) -> None:
    rows = [{"ts": at(1), "v": 0.5, "k": 1}, mark, {"ts": at(2), "v": 0.5, "k": 1}]
    session.create_stream("s", rows, punctuated="ts")
    with pytest.raises(CatalogError, match=error):
        counts(session.sql(COUNT.format("s")))


def test_punctuation_of_a_replay_is_shifted_with_its_times(session: Session) -> None:
    session.create_stream("s", MARKED, punctuated="ts")
    session.sql(
        "CREATE STREAM r USING replay OPTIONS (table 's', time 'ts', shift '1 day') PUNCTUATE ON ts"
    )
    query = session.sql(COUNT.format("r"))
    assert isinstance(query, Query)
    assert counts(query) == [(3, DAY + 10), (2, DAY + 20), (1, DAY + 30)]


# Unusual event times ------------------------------------------------------------------------------


@pytest.mark.parametrize("punctuated", [None, "ts"])
def test_times_before_1970_leap_days_and_clocks_that_go_back(
    session: Session, punctuated: str | None
) -> None:
    days = ["1969-12-31 23:59:59", "1968-02-29 12:00:00", "1969-12-31 23:59:58", None]
    days += ["1970-01-01 00:00:00", "2020-02-29 23:59:59", "2020-03-01 00:00:00"]
    times = [None if d is None else datetime.datetime.fromisoformat(d + "+00:00") for d in days]
    session.create_stream(
        "s",
        pa.table({"ts": times}),
        ordered_by="ts",
        slack="1 second",
        punctuated=punctuated,
        max_advance="30000 days",
    )
    query = session.sql(
        "SELECT count(*) AS n, window_start AS w FROM s [RANGE 1 DAY SLIDE 1 DAY] ON BAD ROW KEEP"
    )
    assert isinstance(query, Query)
    found = [(r["n"], r["w"].date().isoformat()) for r in query.to_arrow().to_pylist()]
    assert found == [(2, "1969-12-31"), (1, "1970-01-01"), (1, "2020-02-29"), (1, "2020-03-01")]
    assert late(query) == {("s", "rows"): 1, ("aggregate#0", "pairs"): 1}
    assert query.progress().bad == 1


def test_integers_below_zero(session: Session) -> None:
    times = [-25, -21, -30, -9, -1, 3, 12]
    session.create_stream("s", pa.table({"t": times}), ordered_by="t", max_advance=10)
    query = session.sql("SELECT count(*) AS n, window_end FROM s [RANGE 10 SLIDE 10]")
    assert isinstance(query, Query)
    assert counts(query) == [(3, -20), (2, 0), (1, 10), (1, 20)]  # no late rows, hence no notice
    assert query.metrics()[0]["far_ahead"] == 4


# What EXPLAIN shows of the awaited punctuation ----------------------------------------------------


@pytest.mark.parametrize(
    ("query", "awaited"),
    [
        (COUNT.format("s"), "punctuation on ts every 10 seconds"),
        (
            "SELECT count(*) FROM s [RANGE 25 SECONDS SLIDE 10 SECONDS OFFSET 2 SECONDS]",
            "punctuation on ts every 10 seconds + 7 seconds",
        ),
        ("SELECT ts FROM s WHERE ts IS NOT NULL", "no punctuation"),
        (
            "SELECT count(*) FROM (SELECT ts + INTERVAL '3' SECOND AS u FROM s) AS x"
            " [RANGE 10 SECONDS SLIDE 10 SECONDS WA u]",
            "punctuation on ts every 10 seconds + 7 seconds",
        ),
        (
            "SELECT count(*) FROM (SELECT date_trunc('SECOND', ts) AS u FROM s) AS x"
            " [RANGE 10 SECONDS SLIDE 10 SECONDS WA u]",
            "punctuation on ts at any value",
        ),
        (
            "SELECT count(*) FROM (SELECT count(*) AS c, window_time AS u FROM s"
            " [RANGE 10 SECONDS SLIDE 5 SECONDS]) AS x [RANGE 1 MINUTE SLIDE 1 MINUTE WA u]",
            "punctuation on ts every 5 seconds",
        ),
        (
            "SELECT * FROM s AS a, s AS b WHERE b.ts BETWEEN a.ts - INTERVAL 30 SECONDS AND a.ts",
            "punctuation on ts every 500 milliseconds",
        ),
        (
            "SELECT * FROM s AS a LEFT JOIN s AS b ON b.ts BETWEEN a.ts AND a.ts + INTERVAL 2"
            " SECONDS",
            "punctuation on ts at any value",
        ),
        (
            "SELECT count(*) FROM (SELECT ts FROM s UNION ALL SELECT ts FROM s ORDER BY ts) AS o"
            " [ROWS 2 SLIDE 1]",
            "punctuation on ts at any value",
        ),
    ],
)
def test_explain_shows_what_is_awaited(session: Session, query: str, awaited: str) -> None:
    session.create_stream("s", pa.table({"ts": [at(1)]}), ordered_by="ts")
    made = session.sql(query)
    assert isinstance(made, Query)
    assert f"· awaited: {awaited}\n" in made.explain()


@pytest.mark.parametrize(
    ("time", "left", "right"),
    [
        ("a.ts", "every 15 seconds", "every 15 seconds + 7 seconds"),
        ("b.ts", "every 15 seconds + 11 seconds", "every 15 seconds"),
        ("greatest(a.ts, b.ts)", "every 15 seconds", "every 15 seconds"),
        (
            "least(a.ts, b.ts)",
            "every 15 seconds and every 15 seconds + 11 seconds",
            "every 15 seconds and every 15 seconds + 7 seconds",
        ),
    ],
)
def test_joins_await_what_the_windows_above_them_do(
    session: Session, time: str, left: str, right: str
) -> None:
    """Individual and joint punctuation on a pair's times need punctuation of both inputs
    (out-of-order paper §5.3, §7). The join also awaits punctuation to purge its own rows."""
    for name in "ab":
        session.create_stream(name, pa.table({"ts": [at(1)], "v": [1]}), ordered_by="ts")
    pairs = (
        f"SELECT {time} AS t, a.v FROM a, b WHERE"
        " b.ts BETWEEN a.ts - INTERVAL 3611 SECONDS AND a.ts + INTERVAL 3607 SECONDS"
    )
    window = "[RANGE 15 SECONDS SLIDE 15 SECONDS WA t]"
    told = _awaited(session.sql(f"SELECT count(v) AS n FROM ({pairs}) AS j {window}"))
    assert told == [f"punctuation on ts {side} and every 200 seconds" for side in (left, right)]


def test_a_join_of_a_join_awaits_no_more(session: Session) -> None:
    session.create_stream("s", pa.table({"ts": [at(1)], "k": [1]}), ordered_by="ts")
    near = "{}.ts BETWEEN a.ts AND a.ts + INTERVAL 8 SECONDS"
    told = _awaited(
        session.sql(
            "SELECT count(*) AS n, window_end FROM (SELECT c.ts AS t FROM s AS a, s AS b, s AS c"
            f" WHERE {near.format('b')} AND {near.format('c')} AND a.k = b.k AND b.k = c.k) AS j"
            " [RANGE 1 MINUTE SLIDE 1 MINUTE WA t]"
        )
    )
    assert len(told) == 3
    assert all("every" in each and "any" not in each for each in told)


def _awaited(query: Any) -> list[str]:
    """The awaited punctuation of each source, as EXPLAIN shows it."""
    return [line.split("awaited: ")[1] for line in query.explain().split("\n") if "awaited" in line]


def test_fine_punctuation_does_not_flood(session: Session) -> None:
    """Of 1,000 punctuations, ten reach the end of a window: at most 12 operator calls."""
    items = [i for t in range(1000) for i in _items(t / 10, Punctuation("ts", t / 10))]
    session.create_stream("s", items, punctuated="ts")
    calls: list[Callable[[], int]] = []

    def run(plan: Any, settings: Any) -> Any:
        made = Execution(plan, settings)
        before = made._make_runtime

        def runtime(graph: Any) -> Any:
            found = before(graph)
            calls.append(lambda: found.calls)
            return found

        made._make_runtime = runtime
        return made.queries[0]

    session._run = run
    assert counts(session.sql(COUNT.format("s"))) == [(100, end) for end in range(10, 101, 10)]
    assert calls[0]() <= 12


# Several progressing columns ----------------------------------------------------------------------


FLOWS = pa.table(
    {
        "began": [0, 12, 3, 30, 22, 41, 8],
        "ended": [9, 14, 16, 33, 38, 44, 46],
        "size": [1, 2, 4, 8, 16, 32, 64],
    }
)


@pytest.fixture
def flows(session: Session) -> Session:
    """NetFlow records (out-of-order paper §3.1), ordered by end; their starts are out of order."""
    session.register_table("rows", FLOWS)
    for name in ("f", "g"):
        session.sql(
            f"CREATE STREAM {name} FROM TABLE rows ORDERED BY ended ORDERED BY began WITHIN 10"
        )
    return session


def test_windows_on_either_column(flows: Session) -> None:
    text = "SELECT sum(size) AS n, window_end FROM f [RANGE 10 SLIDE 10 WA {}]"
    ends = flows.sql(text.format("ended"))
    assert isinstance(ends, Query)
    assert counts(ends) == [(1, 10), (6, 20), (24, 40), (96, 50)]
    assert late(ends)["aggregate#0", "pairs"] == 0
    starts = flows.sql(text.format("began"))
    assert isinstance(starts, Query)
    assert counts(starts) == [(5, 10), (2, 20), (16, 30), (8, 40), (32, 50)]  # 8 < 41 - 10
    assert late(starts)["aggregate#0", "pairs"] == 1


def test_unions_of_such_streams(flows: Session) -> None:
    for column, expected in (
        ("ended", [(2, 10), (12, 20), (48, 40), (192, 50)]),
        ("began", [(10, 10), (4, 20), (32, 30), (16, 40), (64, 50)]),
    ):
        query = flows.sql(
            f"SELECT sum(size) AS n, window_end FROM f UNION g AS u [RANGE 10 SLIDE 10 WA {column}]"
        )
        assert isinstance(query, Query)
        assert counts(query) == expected


def test_a_window_on_one_column_over_a_window_on_the_other(flows: Session) -> None:
    """Both watermarks of the source reach the plan; each aggregate reads one of them."""
    query = flows.sql(
        "WITH a AS (SELECT sum(size) AS n, window_end AS e FROM f [RANGE 10 SLIDE 10 WA ended]),"
        " b AS (SELECT sum(size) AS n, window_end AS e FROM g [RANGE 10 SLIDE 10 WA began])"
        " SELECT sum(n) AS n, window_end FROM a UNION b AS u [RANGE 100 SLIDE 100 WA e]"
    )
    assert isinstance(query, Query)
    assert counts(query) == [(127 + 63, 100)]
