"""LIMIT is total: it gives the first rows of the result, ends the query and stops reading the
inputs, endless ones included. LIMIT … PER WINDOW, and ORDER BY … LIMIT over windows, count in each
window."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.catalog.memory import iterables
from cql.errors import CqlError, PlanError, RunError
from cql.query.query import Query
from cql.repl.screen import Screen
from tests.support.runtimes import RUNTIMES, Settings, apply, named
from tests.support.terminal import Terminal, invoke

ROWS = 40


class Source:
    """Rows (ts, k, v) with ts = v = 1, 2, … and k = v % 3, one block at a time. After ``blocks``
    blocks the source gives no row and does not end, until ``let_go`` is set."""

    def __init__(self, blocks: int | None = 1, size: int = ROWS) -> None:
        self._blocks, self._size = blocks, size
        self.let_go = threading.Event()
        self._closed: list[threading.Event] = []  # one event per reader

    def __call__(self) -> Iterator[pa.RecordBatch]:
        closed = threading.Event()
        self._closed.append(closed)
        try:
            for n in count() if self._blocks is None else range(self._blocks):
                yield batch(self._size * n + 1, self._size * (n + 1) + 1)
            self.let_go.wait(60)
        finally:
            closed.set()

    @property
    def began(self) -> int:
        return len(self._closed)

    @property
    def is_read(self) -> bool:
        return not self._closed[-1].is_set()

    def ends(self) -> bool:
        """Whether the last reader gets closed; earlier readers may only have inferred the types."""
        return self._closed[-1].wait(60)


def batch(start: int, stop: int) -> pa.RecordBatch:
    values = list(range(start, stop))
    return pa.record_batch({"ts": values, "k": [v % 3 for v in values], "v": values})


@contextmanager
def opened(settings: Settings, *sources: Source) -> Iterator[cql.Session]:
    """A session with the endless streams s, s1, … and the bounded stream t of ROWS rows."""
    with cql.connect() as session:
        apply(session, settings)
        for number, source in enumerate(sources):
            name = f"s{number or ''}"
            session.create_stream(name, source, ordered_by="ts", bounded=False)
        session.create_stream("t", pa.table(batch(1, ROWS + 1).to_pydict()), ordered_by="ts")
        try:
            yield session
        finally:
            for source in sources:
                source.let_go.set()


def rows(query: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in query.to_arrow().to_pylist()]


TUMBLING = "SELECT k, count(*) AS n, window_end AS e FROM {} [RANGE 10 SLIDE 10] GROUP BY k"
#: (query over the stream {}, its rows over an endless stream).
FIRST: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "all": ("SELECT v FROM (SELECT v FROM {} LIMIT ALL) LIMIT 2", [(1,), (2,)]),
    "plain": ("SELECT v FROM {} LIMIT 5", [(v,) for v in range(1, 6)]),
    "offset": ("SELECT v FROM {} WHERE k = 1 LIMIT 3 OFFSET 2", [(7,), (10,), (13,)]),
    "in order": ("SELECT v FROM {} ORDER BY ts LIMIT 3", [(1,), (2,), (3,)]),
    "windows": (
        f"{TUMBLING} LIMIT 4",
        [(1, 3, 10), (2, 3, 10), (0, 3, 10), (1, 4, 20)],
    ),
    "top of windows": (
        f"SELECT * FROM ({TUMBLING} ORDER BY n DESC, k LIMIT 1) LIMIT 3",
        [(0, 3, 10), (1, 4, 20), (2, 4, 30)],
    ),
    "changes": (
        "SELECT k, count(*) AS n FROM {} [RANGE 10] GROUP BY k EMIT CHANGES LIMIT 3",
        [(1, 1, 1, 1), (2, 1, 2, 1), (3, 1, 0, 1)],
    ),
    "below": ("SELECT sum(v) AS v FROM (SELECT v FROM {} LIMIT 5)", [(15,)]),
}


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
def test_the_first_rows_end_the_query(settings: Settings) -> None:
    """The query ends although its input is silent and endless; bounded input gives equal rows."""
    source = Source()
    with opened(settings, source) as session:
        for name, (text, first) in FIRST.items():
            query = session.sql(text.format("s"))
            assert query.bounded
            assert rows(query) == first, name
            assert query.status == "finished"
            assert rows(session.sql(text.format("t"))) == first, name


def test_inputs_that_nothing_asks_for_are_closed() -> None:
    """An inner LIMIT closes its input once it is full, while the other inputs go on."""
    first, second = Source(None, 4096), Source(None, 4096)
    union = (
        "SELECT v FROM (SELECT v FROM s LIMIT 2) UNION ALL SELECT v FROM s1 WHERE v < 0 OR v > 9"
    )
    with opened({}, first, second) as session:
        assert rows(session.sql("SELECT v FROM s LIMIT 2")) == [(1,), (2,)]
        assert first.ends()
        before = first.began
        query = session.sql(union)
        assert not query.bounded
        reading = query.batches()
        for _ in reading:
            if first.began > before and not first.is_read and second.is_read:
                break
        assert second.is_read
        reading.close()
        assert second.ends()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("SELECT v FROM s LIMIT 0", []),
        ("SELECT count(*) AS n FROM (SELECT v FROM s LIMIT 0)", [(0,)]),
        ("SELECT v FROM s LIMIT :n OFFSET 2", [(3,)]),
        ("SELECT v FROM t LIMIT 5 OFFSET 38", [(39,), (40,)]),
        ("SELECT v FROM t LIMIT 5 OFFSET 40", []),
        ("SELECT v FROM t OFFSET 38", [(39,), (40,)]),
        ("SELECT v FROM t ORDER BY ts OFFSET 38", [(39,), (40,)]),
        ("SELECT v FROM (SELECT v FROM s LIMIT 9) ORDER BY v DESC LIMIT 2", [(9,), (8,)]),
        ("SELECT v FROM (SELECT v FROM s LIMIT 9) WHERE v > 7", [(8,), (9,)]),
        (
            "WITH w AS (SELECT v FROM s LIMIT 1) SELECT v FROM w UNION ALL SELECT v FROM w",
            [(1,), (1,)],
        ),
        ("SELECT v FROM first", [(2,), (3,)]),
        ("SELECT v FROM s WHERE v IN (SELECT v FROM s LIMIT 3) LIMIT 2", [(1,), (2,)]),
        ("SELECT v FROM t ORDER BY v DESC LIMIT 2", [(40,), (39,)]),
    ],
)
def test_small_large_and_inner_limits(text: str, wanted: list[tuple[Any, ...]]) -> None:
    with opened({}, Source()) as session:
        session.sql("CREATE VIEW first AS SELECT v FROM s LIMIT 2 OFFSET 1")
        assert rows(session.sql(text, n=1)) == wanted


@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
def test_per_window(settings: Settings) -> None:
    with opened(settings, Source()) as session:
        wanted = [(1, 3, 10), (2, 3, 10), (1, 4, 20), (2, 3, 20)]
        each = rows(session.sql(f"{TUMBLING} LIMIT 2 PER WINDOW".format("t")))
        assert each[:4] == wanted
        assert len(each) == 9  # the last window has one row
        top = f"{TUMBLING} ORDER BY n DESC, k LIMIT 1".format("t")
        wanted = [(0, 3, 10), (1, 4, 20), (2, 4, 30), (0, 4, 40), (1, 1, 50)]
        assert rows(session.sql(top)) == rows(session.sql(f"{top} PER WINDOW")) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "SELECT v FROM s LIMIT 2 PER WINDOW",
        "SELECT v FROM s UNION ALL SELECT v FROM t LIMIT 2 PER WINDOW",
        "SELECT DISTINCT v FROM s LIMIT 2 PER WINDOW",
        "SELECT k, count(*) AS n FROM s [RANGE 10] GROUP BY k LIMIT 2 PER WINDOW",
    ],
)
def test_per_window_without_windows_is_refused(text: str) -> None:
    with opened({}, Source()) as session, pytest.raises(CqlError, match="PER WINDOW") as caught:
        session.sql(text)
    assert caught.value.position is not None
    assert "PER WINDOW" in (caught.value.hint or "")


def test_the_last_rows_of_endless_input_are_refused() -> None:
    with opened({}, Source()) as session, pytest.raises(PlanError, match="no end to wait for"):
        session.sql("SELECT v FROM s ORDER BY v LIMIT 5")


def test_inserts_end() -> None:
    """An INSERT from endless input runs in the background; when it ends, its rows are published."""
    with opened({}, Source()) as session:
        session.sql("CREATE TABLE kept (v BIGINT)")
        query = session.sql("INSERT INTO kept SELECT v FROM s LIMIT 3")
        assert isinstance(query, Query)
        query.await_termination(60)
        assert query.status == "finished"
        assert rows(session.sql("SELECT v FROM kept")) == [(1,), (2,), (3,)]
        made = session.sql("CREATE TABLE made AS SELECT v FROM s LIMIT 2")
        if isinstance(made, Query):
            made.await_termination(60)
        assert rows(session.sql("SELECT v FROM made")) == [(1,), (2,)]
        session.sql(
            "EXECUTE STATEMENT SET BEGIN INSERT INTO kept SELECT v FROM s LIMIT 1;"
            " INSERT INTO made SELECT v FROM s LIMIT 4; END"
        )
        for running in session.queries():
            running.await_termination(60)
        assert len(rows(session.sql("SELECT v FROM kept"))) == 4
        assert len(rows(session.sql("SELECT v FROM made"))) == 6


def test_the_command_ends() -> None:
    made = "CREATE STREAM r USING rate OPTIONS (rows_per_second '1000') ORDERED BY ts;"
    done = invoke("-c", f"{made} SELECT value FROM r LIMIT 3", "--format", "csv")
    assert done.exit_code == 0, done.output
    assert len(done.stdout.splitlines()) == 4


def test_show_and_iterators_end(capsys: pytest.CaptureFixture[str]) -> None:
    with opened({}, Source()) as session:
        query = session.sql("SELECT v FROM s LIMIT 2")
        assert sum(b.num_rows for b in query) == 2
        session.sql("SELECT v FROM s LIMIT 2").show()
        assert "2 rows" in capsys.readouterr().out


#: (query over the rows 1 … 40 of t, its number of rows before the first one that fails); t is one
#: block and one morsel.
FAILING = {
    "a projection": ("SELECT 10 / (v - 20) AS x FROM t", 19),
    "a filter": ("SELECT v FROM t WHERE 10 / (v - 20) < 100 AND k = 1", 7),
    "an offset": ("SELECT 10 / (v - 20) AS x FROM t ORDER BY ts", 19),
    "a window's argument": (
        "SELECT k, sum(10 / (v - 35)) AS n, window_end AS e FROM t [RANGE 10 SLIDE 10] GROUP BY k",
        9,
    ),
    "a window's sum": (
        "SELECT k, sum(v + CASE WHEN v > 34 THEN 4611686018427387904 ELSE 0 END) AS n FROM t"
        " [RANGE 10 SLIDE 10] GROUP BY k",
        9,
    ),
    "a window's result": (
        "SELECT k, 10 / (n - 4) AS x FROM (SELECT k, count(*) AS n, window_end AS e FROM t"
        " [RANGE 10 SLIDE 10] GROUP BY k)",
        3,
    ),
}


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:keys are in one partition")
@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
def test_a_row_that_fails_behind_the_last_one_is_not_come_to(settings: Settings) -> None:
    with opened(settings) as session:
        for name, (text, count) in FAILING.items():
            assert len(rows(session.sql(f"{text} LIMIT {count}"))) == count, name
            assert len(rows(session.sql(f"{text} LIMIT 1 OFFSET {count - 1}"))) == 1, name
            with pytest.raises(RunError, match=r"division by zero|overflow in sum"):
                session.sql(f"{text} LIMIT {count + 1}").to_arrow()
        inner = f"SELECT sum(x) AS s FROM ({FAILING['a projection'][0]} LIMIT 19)"
        both = session.sql(f"{inner} UNION ALL SELECT count(*) AS s FROM t")
        assert sorted(rows(both)) == [(-sum(10 // (20 - v) for v in range(1, 20)),), (40,)]


@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
def test_a_row_that_cannot_be_read_behind_the_last_one_is_not_come_to(
    settings: Settings, tmp_path: Path
) -> None:
    lines = [f"{v},{'x' if v in (20, 30) else v}" for v in range(1, 41)]
    (tmp_path / "v.csv").write_text("\n".join(["ts,v", *lines]))
    given = [{"ts": v, "v": "x" if v in (20, 30) else v} for v in range(1, 41)]
    with opened(settings) as session:
        session.sql(
            f"CREATE STREAM f (ts BIGINT, v BIGINT) USING csv OPTIONS (path '{tmp_path / 'v.csv'}')"
            " ORDERED BY ts"
        )
        session.create_stream("p", lambda: iter(given), ordered_by="ts")
        for name in ("f", "p"):
            text = f"SELECT v FROM {name} LIMIT"
            assert rows(session.sql(f"{text} 19")) == [(v,) for v in range(1, 20)]
            with pytest.raises(CqlError, match="x"):
                session.sql(f"{text} 20").to_arrow()
            kept = session.sql(f"{text} 20 ON BAD ROW KEEP")
            assert rows(kept) == [(v,) for v in range(1, 22) if v != 20]


@pytest.mark.auto_runtime
def test_what_fails_in_morsels_behind_the_last_row_is_not_counted() -> None:
    """Rows of later morsels are not even computed: a morsel has 64 rows, the block has all."""
    calls: list[int] = []

    def noted(v: int) -> int:
        calls.append(v)
        return 10 // (v % 10)

    with opened({"morsel_rows": 64}) as session:
        session.create_stream("long", pa.table(batch(1, 5001).to_pydict()), ordered_by="ts")
        session.register_function("noted", noted, ["bigint"], "bigint", parallel=False)
        query = session.sql("SELECT noted(v) AS x FROM long LIMIT 5 ON BAD ROW KEEP")
        assert len(rows(query)) == 5
        assert max(calls) <= 64
        assert query.bad_rows().num_rows <= 6


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
def test_python_sources_are_closed_when_the_query_ends(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query runs the generator's ``finally``; a busy generator ends at its next item."""
    monkeypatch.setattr(iterables, "PATIENCE", 60.0)
    ended: list[str] = []

    def endless(name: str) -> Iterator[dict[str, int]]:
        try:
            for n in count(1):
                yield {"ts": n, "v": n}
        finally:
            ended.append(name)

    with opened(settings) as session:
        for name, bounded in (("live", False), ("whole", True)):
            session.create_stream(name, partial(endless, name), ordered_by="ts", bounded=bounded)
            ended.clear()  # forgets the reader that inferred the types
            query = session.sql(f"SELECT v FROM {name} ORDER BY ts LIMIT 3")
            assert rows(query) == [(1,), (2,), (3,)]
            assert ended == [name]


def test_an_iterable_that_fails_behind_the_last_row() -> None:
    def failing() -> Iterator[dict[str, int]]:
        for n in range(1, 6):
            yield {"ts": n, "v": n}
        raise ValueError("the end")

    with opened({}) as session:
        session.create_stream("f", failing, ordered_by="ts")
        assert rows(session.sql("SELECT v FROM f LIMIT 5")) == [(v,) for v in range(1, 6)]
        with pytest.raises(CqlError, match="failed after row 5: ValueError: the end"):
            session.sql("SELECT v FROM f LIMIT 6").to_arrow()


def test_the_shell_says_that_it_ended() -> None:
    """The shell shows a query over endless input while it runs, and then reports its end."""
    terminal = Terminal(tty=True)
    with opened({}, Source()) as session:
        query = session.sql("SELECT v FROM s LIMIT 3 OFFSET 1")
        assert isinstance(query, Query)
        assert query._live
        Screen(terminal.console).present(query)
        assert query.status == "finished"
    last = terminal.text.rpartition("╭")[2]
    assert re.search(r"4 │\s+╰─+╯\s", last)
    assert "3 rows (" in last


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_inserts_into_tables_of_files_end(kind: str, tmp_path: Path) -> None:
    with opened({}, Source()) as session:
        folder = tmp_path / "out"
        session.sql(f"CREATE TABLE f (v BIGINT) USING {kind} OPTIONS (path '{folder}')")
        query = session.sql("INSERT INTO f SELECT v FROM s LIMIT :n OFFSET 1", n=3)
        assert isinstance(query, Query)
        query.await_termination(60)
        assert query.status == "finished"
        assert rows(session.sql("SELECT v FROM f")) == [(2,), (3,), (4,)]


def test_inserts_into_streams_end() -> None:
    with opened({}, Source()) as session:
        session.sql("CREATE STREAM pushed (ts BIGINT, v BIGINT) ORDERED BY ts")
        query = session.sql("INSERT INTO pushed SELECT ts, v FROM s LIMIT 3")
        assert isinstance(query, Query)
        query.await_termination(60)
        assert query.status == "finished"
        assert rows(session.sql("SELECT v FROM pushed LIMIT 3")) == [(1,), (2,), (3,)]


def test_inserts_into_spark_tables_end(spark: Any) -> None:
    with cql.connect(spark) as session:
        source = Source()
        session.create_stream("endless", source, ordered_by="ts", bounded=False)
        session.sql("CREATE TABLE first_rows (v BIGINT)")
        try:
            query = session.sql("INSERT INTO first_rows SELECT v FROM endless LIMIT 3")
            assert isinstance(query, Query)
            query.await_termination(120)
            assert query.status == "finished"
            assert sorted(row.v for row in spark.table("first_rows").collect()) == [1, 2, 3]
        finally:
            source.let_go.set()
            session.sql("DROP TABLE first_rows")
