"""The queries of a query set give the rows that each gives alone, and share equal operators."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from cql.errors import CqlError, NotSupportedError, ParseError, PlanError, RunError
from cql.query.query import Query
from cql.query.query_set import QuerySet
from cql.query.result import Result
from cql.repl.text import is_complete
from cql.session.session import Session
from tests.reference.naive_compare import difference, storage_rows
from tests.support.runtimes import RUNTIMES

ROWS = 3_000
COUNTS = "SELECT k, count(*) AS n, window_end FROM s [RANGE {r} SLIDE {s}{o}] GROUP BY k"


def rows_of(r: random.Random) -> pa.Table:
    """Rows whose times begin at about -4 and go back by up to 8, so that a slack of 3 leaves late
    rows. A gap in the middle is longer than any window."""
    times = [n // 3 + r.randrange(9) - 4 + (500 if n > ROWS // 2 else 0) for n in range(ROWS)]
    columns: dict[str, Any] = {
        "ts": times,
        "k": [r.choice(["a", "b", "c", None]) for _ in range(ROWS)],
        "x": [r.choice([None, r.randrange(-50, 50)]) for _ in range(ROWS)],
        "y": [r.randrange(5) for _ in range(ROWS)],
    }
    return pa.table(columns)


def make_session(r: random.Random, **settings: Any) -> Session:
    session = Session(False)
    for name, value in settings.items():
        session.set(name, value)
    for name in ("s", "b"):
        session.create_stream(name, rows_of(r), ordered_by="ts", slack=3)
    return session


def random_query(r: random.Random) -> str:
    """A random query: mostly a window of varying length over one stream, sometimes another query
    that reads the same stream."""
    where = r.choice(["", "", "", " WHERE y > 1", " WHERE x > 0 AND y < 4"])
    having = r.choice(["", "", " HAVING count(*) > 2"])
    keys = r.choice(["k", "k", "k", "k, y", ""])
    calls = r.sample(
        [
            *("count(*) AS n", "sum(x) AS t", "min(x) AS low", "max(k) AS high", "avg(x) AS m"),
            *("first(x) AS f", "max_by(x, y) AS b", "count(x) FILTER (WHERE y = 1) AS c"),
        ],
        r.randrange(1, 4),
    )
    slide = r.choice([5, 6, 10, 15, 20])
    offset = r.choice(["", "", " OFFSET 5", " OFFSET 2"])
    window = f"[RANGE {slide * r.randrange(1, 5)} SLIDE {slide}{offset}]"
    group = f" GROUP BY {keys}" if keys else ""
    shown = ", ".join([*([keys] if keys else []), *calls, "window_start", "window_end"])
    return r.choice(
        [
            *[f"SELECT {shown} FROM s {window}{where}{group}{having}"] * 8,
            f"SELECT k, x FROM s{where}",
            "SELECT ts, k, x, y FROM s",
            f"SELECT DISTINCT k, y FROM s{where}",
            f"SELECT k, count(DISTINCT x) AS d, window_end FROM s {window}{where} GROUP BY k",
            f"SELECT k, count(*) AS n FROM s [RANGE 40]{where} GROUP BY k",
            f"SELECT count(*) AS n, window_end FROM (SELECT ts, k FROM s{where} UNION ALL"
            f" SELECT ts, k FROM b) AS u {window}",
            f"SELECT s.k, s.window_end, n FROM (SELECT k, count(*) AS n, window_end, window_time"
            f" FROM s {window} GROUP BY k) AS s WHERE n > 1",
            f"SELECT max(n) AS most, window_end FROM (SELECT k, count(*) AS n, window_time FROM s"
            f" {window} GROUP BY k) AS w [RANGE {4 * slide} SLIDE {2 * slide} WA window_time]",
        ]
    )


def check(texts: list[str], seed: int, **settings: Any) -> None:
    """Each query has the same rows, and as many late pairs and bad rows, alone and in the set."""
    with make_session(random.Random(seed), **settings) as session:
        alone: list[Query] = []
        expected = []
        for text in texts:
            query = session.sql(text)
            assert isinstance(query, Query)
            expected.append(query.to_arrow())
            alone.append(query)
        both = session.query_set(";\n".join(texts))
        tables = both.to_arrow()
        for text, want, table, old, new in zip(
            texts, expected, tables, alone, both.queries, strict=True
        ):
            assert difference(storage_rows(want), storage_rows(table)) is None, text
            pairs = [
                sum(e["count"] for e in q.late().to_pylist() if e["kind"] != "rows")
                for q in (old, new)
            ]
            assert pairs[0] == pairs[1], text
            assert new.bad_rows().num_rows == old.bad_rows().num_rows, text
            assert new.status == "finished"
            assert new.row_count == old.row_count, text


def test_random_sets(seed: int, full: bool) -> None:
    for case in range(400 if full else 1):
        r = random.Random(f"{seed} {case}")
        texts = [random_query(r) for _ in range(r.randrange(2, 6))]
        check(
            texts,
            seed + case,
            **r.choice(RUNTIMES),
            fuse=r.random() < 0.7,
            morsel_rows=r.choice([7, 64, 1000]),
        )


@pytest.fixture
def session(seed: int) -> Iterator[Session]:
    with make_session(random.Random(seed)) as made:
        yield made


WINDOWS = [COUNTS.format(r=r, s=s, o=o) for r, s, o in ((10, 10, ""), (40, 20, ""), (60, 15, ""))]


def operators(made: QuerySet) -> list[str]:
    """The sorted names of the operators of all queries, each operator once."""
    found = {m["operator"] for q in made.queries for m in q.metrics()}
    return sorted(name.partition("#")[0] for name in found)


def test_windows_share_panes_and_a_scan(session: Session) -> None:
    made = session.query_set(";".join(WINDOWS))
    made.to_arrow()
    assert operators(made).count("aggregate") == 1
    assert operators(made).count("s") == 1
    (aggregate,) = (m for m in made.queries[0].metrics() if "groups_out" in m)
    assert aggregate["rows_in"] == ROWS
    text = made.explain()
    assert text.count("#1 SharedPaneAggregate count(*) by k") == 3
    assert "3 queries share panes of 5" in text
    assert "[RANGE 10 SLIDE 10 WA ts], [RANGE 40 SLIDE 20 WA ts], [RANGE 60 SLIDE 15 WA ts]" in text
    assert made.explain("mermaid").count("SharedPaneAggregate") == 1


@pytest.mark.usefixtures("small_blocks")
def test_shared_panes_are_open_when_the_first_null_comes() -> None:
    """From the first NULL on another kernel works on the same state."""
    rows = [{"ts": n - 300, "k": None if n > 400 and n % 5 == 0 else n % 3} for n in range(600)]
    table = pa.Table.from_pylist(rows)
    with Session(False) as session:
        # With a function as the source nothing is known about the batches beforehand.
        session.create_stream("s", table.to_batches, ordered_by="ts", slack=3)
        made = session.query_set(";".join(WINDOWS))
        for text, together in zip(WINDOWS, made.to_arrow(), strict=True):
            alone = session.sql(text).to_arrow()
            assert sorted(map(repr, together.to_pylist())) == sorted(map(repr, alone.to_pylist()))


@pytest.mark.parametrize(("name", "value"), [("shared_windows", False), ("window_operator", "wid")])
def test_each_can_have_its_own_state(session: Session, name: str, value: Any) -> None:
    session.set(name, value)
    made = session.query_set(";".join(WINDOWS))
    made.to_arrow()
    assert operators(made).count("aggregate") == 3
    assert operators(made).count("s") == 1


def test_what_differs_is_not_shared(session: Session) -> None:
    """Windows share no panes if they have other rows, other groups, values that are kept beside the
    groups, or too many panes, whose merging costs more than the rows."""
    others = [
        COUNTS.format(r=20, s=20, o="") + " HAVING count(*) > 1",
        "SELECT y, count(*) AS n, window_end FROM s [RANGE 20 SLIDE 10] GROUP BY y",
        "SELECT k, count(*) AS n, window_end FROM s [RANGE 30 SLIDE 10] WHERE y > 1 GROUP BY k",
        "SELECT k, count(DISTINCT y) AS n, window_end FROM s [RANGE 40 SLIDE 10] GROUP BY k",
        COUNTS.format(r=600, s=10, o=""),
        "SELECT k, count(*) AS n, window_end FROM b [RANGE 30 SLIDE 10] GROUP BY k",
    ]
    made = session.query_set(";".join(others))
    assert "Shared" not in made.explain()
    made.to_arrow()
    assert operators(made).count("aggregate") == len(others)


def test_the_same_query_twice_runs_once(session: Session) -> None:
    made = session.query_set(";".join([WINDOWS[2], "SELECT k FROM s", WINDOWS[2]]))
    first, _, second = made.to_arrow()
    assert first.equals(second)
    assert operators(made).count("aggregate") == 1


def test_panes_are_given_back(session: Session) -> None:
    """Panes that no open window needs are freed: the longest window bounds the state of the set."""
    one = session.sql(COUNTS.format(r=60, s=15, o=""))
    assert isinstance(one, Query)
    one.to_arrow()
    made = session.query_set(";".join(WINDOWS))
    made.to_arrow()
    (before,) = (m["peak_bytes"] for m in one.metrics() if "groups_out" in m)
    (after,) = (m["peak_bytes"] for m in made.queries[2].metrics() if "groups_out" in m)
    assert after <= 2 * before


def test_two_mentions_within_a_query_stay_two(session: Session) -> None:
    """A union of a stream with itself reads the stream twice, also if another query reads it."""
    union = "SELECT count(*) AS n FROM (SELECT ts FROM s UNION ALL SELECT ts FROM s) AS u"
    made = session.query_set(f"{union}; SELECT count(*) AS n FROM s")
    assert [t.to_pylist() for t in made.to_arrow()] == [[{"n": 2 * ROWS}], [{"n": ROWS}]]
    assert len([m for m in made.queries[0].metrics() if m["operator"] == "s"]) == 2


# -- INSERTs ---------------------------------------------------------------------------------------

INSERTS = """
    INSERT INTO ten SELECT k, count(*) AS n, window_end FROM s [RANGE 10 SLIDE 10] GROUP BY k;
    INSERT INTO twenty SELECT k, count(*) AS n, window_end FROM s [RANGE 20 SLIDE 20] GROUP BY k;
"""


@pytest.fixture
def tables(session: Session) -> Session:
    for name in ("ten", "twenty"):
        session.sql(f"CREATE TABLE {name} (k string, n bigint, window_end bigint)")
    return session


def held(session: Session, name: str) -> int:
    (row,) = session.sql(f"SELECT count(*) AS n FROM {name}").to_arrow().to_pylist()
    return int(row["n"])


def test_statement_set(tables: Session) -> None:
    result = tables.sql(f"EXECUTE STATEMENT SET BEGIN {INSERTS} END;")
    assert isinstance(result, Result)
    shown = [(target, rows) for _, _, target, rows in result.rows]
    assert shown == [("ten", held(tables, "ten")), ("twenty", held(tables, "twenty"))]
    assert shown[0][1] > shown[1][1] > 0
    plan = tables.sql(f"EXPLAIN STATEMENT SET BEGIN {INSERTS} END").to_arrow().to_pylist()[0]
    assert "2 queries share panes of 10" in plan["plan"]


def test_a_set_fails_as_a_whole(tables: Session) -> None:
    """An error in one query ends all queries of the set, and nothing is published."""
    broken = "INSERT INTO ten SELECT k, 1 / (y - 1), ts FROM s WHERE ts > 100;"
    made = tables.query_set(f"{INSERTS.replace('INTO ten', 'INTO twenty')} {broken}")
    with pytest.raises(CqlError, match="division by zero") as caught:
        made.insert()
    assert caught.value.position is not None
    assert (held(tables, "ten"), held(tables, "twenty")) == (0, 0)
    assert {q.status for q in made.queries} == {"failed"}


def test_bad_rows_are_those_of_a_query(tables: Session) -> None:
    made = tables.query_set(
        """SELECT k, 1 / y AS z FROM s ON BAD ROW KEEP; SELECT k, y FROM s ON BAD ROW KEEP"""
    )
    divided, whole = made.to_arrow()
    assert whole.num_rows == ROWS
    bad = made.queries[0].progress().bad
    assert divided.num_rows == ROWS - bad < ROWS
    assert made.queries[0].bad_rows().num_rows == bad
    assert made.queries[1].progress().bad == made.queries[1].bad_rows().num_rows == 0


SHARED = {
    "SELECT ts, 1 / y AS z FROM s": "1 / y",
    "SELECT 1 / 1 AS one, ts FROM s WHERE 1 / y > 0": "1 / y",
    "SELECT sum(1 / y) AS z, window_end FROM s [RANGE 40 SLIDE 40]": "1 / y",
    "SELECT 1 / (count(*) - 1) AS z, window_end FROM s [RANGE 1 SLIDE 1]": "1 / (count(*) - 1)",
}


@pytest.mark.parametrize("text", SHARED)
@pytest.mark.parametrize("keeping", [(True, False), (True, True, False), (False, True)])
def test_an_error_is_told_at_the_query_that_fails(
    session: Session, text: str, keeping: tuple[bool, ...]
) -> None:
    """The error has its position in the query that fails, although a query that keeps bad rows
    shares the operator."""
    lines = [text + (" ON BAD ROW KEEP" if keeps else " ON BAD ROW FAIL") for keeps in keeping]
    fails = keeping.index(False)
    with pytest.raises(CqlError, match="division by zero") as caught:
        session.query_set(";\n".join(lines)).to_arrow()
    assert caught.value.line == fails + 1
    assert caught.value.column == text.index(SHARED[text]) + 1


def test_windows_that_share_panes_fail_where_the_query_fails(session: Session) -> None:
    text = "SELECT sum(1 / y) AS z, window_end FROM s [RANGE {r} SLIDE 10]"
    made = session.query_set(
        f"{text.format(r=10)} ON BAD ROW KEEP;\n  {text.format(r=40)} ON BAD ROW FAIL"
    )
    assert "Shared" in made.explain()
    with pytest.raises(CqlError, match="division by zero") as caught:
        made.to_arrow()
    assert (caught.value.line, caught.value.column) == (2, 14)


def test_an_unreadable_row_is_told_at_the_query_that_fails(session: Session) -> None:
    times = pa.array([1000, 2001, 3000], pa.timestamp("ns"))  # the second is between microseconds
    session.create_stream("u", pa.table({"ts": times, "k": ["a", "b", "c"]}), ordered_by="ts")
    with pytest.raises(CqlError, match="row 1, column ts") as caught:
        session.query_set(
            "SELECT k FROM u ON BAD ROW KEEP;\nSELECT k, ts FROM u ON BAD ROW FAIL"
        ).to_arrow()
    assert (caught.value.line, caught.value.column) == (2, 19)


def test_late_output_is_that_of_a_query(tables: Session) -> None:
    window = "SELECT count(*) AS n, window_end FROM s [RANGE {0} SLIDE {0}]"
    alone = []
    for n in (4, 8):
        tables.sql(f"{window.format(n)} LATE OUTPUT INTO late_{n}").to_arrow()
        alone.append(held(tables, f"late_{n}"))
    both = ";".join(f"{window.format(n)} LATE OUTPUT INTO again_{n}" for n in (4, 8))
    tables.query_set(both).to_arrow()
    assert [held(tables, f"again_{n}") for n in (4, 8)] == alone
    assert alone[0] > alone[1] > 0


def test_in_the_background() -> None:
    """One iterable that can be read only once feeds all queries of the set."""
    turn = threading.Event()

    def numbers() -> Iterator[dict[str, Any]]:
        for n in range(100):
            yield {"ts": n, "k": "k"}
        turn.wait(240)
        yield {"ts": 1000, "k": "k"}

    with Session(False) as session:
        session.set("epoch_ms", 20)
        session.create_stream("s", numbers, ordered_by="ts", bounded=False)
        for name in ("ten", "twenty"):
            session.sql(f"CREATE TABLE {name} (k string, n bigint, window_end bigint)")
        made = session.query_set(INSERTS)
        made.start()
        with pytest.raises(RunError, match="is running already"):
            made.start()
        turn.set()
        assert made.await_termination(60)
        assert (held(session, "ten"), held(session, "twenty")) == (11, 6)


def test_one_that_stops_stops_all(tables: Session) -> None:
    """If one query of a bounded set stops, all queries stop, and nothing is published."""
    read, go = threading.Event(), threading.Event()

    def numbers() -> Iterator[dict[str, Any]]:
        for n in range(100):
            yield {"ts": n, "k": "k"}
        read.set()
        go.wait(240)
        yield {"ts": 1000, "k": "k"}

    tables.create_stream("s", numbers, ordered_by="ts", replace=True)
    made = tables.query_set(INSERTS).start()
    assert {q.status for q in made.queries} == {"running"}  # so that each can be stopped
    assert read.wait(60)
    made.queries[0].stop(timeout=0)
    go.set()
    assert made.stop(60)
    assert {q.status for q in made.queries} == {"stopped"}
    assert (held(tables, "ten"), held(tables, "twenty")) == (0, 0)


def test_modes_of_explain(tables: Session) -> None:
    made = tables.query_set(INSERTS)
    assert str(made.explain("MERMAID")).startswith("flowchart")
    text = f"STATEMENT SET BEGIN {INSERTS} END"
    (row,) = tables.sql(f"EXPLAIN MERMAID {text}").to_arrow().to_pylist()
    assert row["plan"].startswith("flowchart")
    assert "Scan s" in made.explain("logical")
    with pytest.raises(NotSupportedError, match="EXPLAIN ANALYZE of queries that") as caught:
        tables.sql(f"EXPLAIN ANALYZE {text}")
    assert caught.value.position is not None
    with pytest.raises(PlanError, match="there is no EXPLAIN mode wrong"):
        made.explain("wrong")


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("EXECUTE STATEMENT SET BEGIN SELECT k FROM s; END", "takes INSERT INTO"),
        ("EXECUTE STATEMENT SET BEGIN END", "needs one INSERT INTO"),
        (f"EXECUTE STATEMENT SET BEGIN {INSERTS}", "does not end"),
        ("EXECUTE STATEMENT", "expected STATEMENT SET BEGIN after EXECUTE"),
        (f"EXECUTE STATEMENT SET {INSERTS} END", "expected STATEMENT SET BEGIN after EXECUTE"),
        (
            f"EXECUTE STATEMENT SET BEGIN EXECUTE STATEMENT SET BEGIN {INSERTS} END; END",
            "a set of statements stands in no other",
        ),
    ],
)
def test_bad_sets_are_refused(tables: Session, text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message) as caught:
        tables.sql(text)
    assert caught.value.position is not None


def test_hints_of_the_run_are_refused(session: Session) -> None:
    with pytest.raises(PlanError, match="the hint runtime is for one query") as caught:
        session.query_set("SELECT k FROM s; SELECT /*+ runtime(fifo) */ k FROM s")
    assert caught.value.position is not None
    assert session.query_set("SELECT k FROM s; SELECT /*+ union_operator(auto) */ k FROM s")
    with pytest.raises(PlanError, match="are SELECT and INSERT INTO"):
        session.query_set("SELECT k FROM s; SHOW STREAMS")
    with pytest.raises(RunError, match="is a SELECT, whose rows have nowhere to go"):
        session.query_set("SELECT k FROM s").start()


def test_what_is_refused_has_had_no_effect(session: Session) -> None:
    with pytest.raises(PlanError, match="are SELECT and INSERT INTO") as caught:
        session.query_set("CREATE TABLE made (a int); SELECT k FROM s")
    assert caught.value.position is not None
    with pytest.raises(CqlError, match="there is no stream or table made"):
        session.sql("SELECT a FROM made")


def test_two_queries_make_no_table_together(session: Session) -> None:
    one = "SELECT count(*) AS n FROM s [RANGE {0} SLIDE {0}] LATE OUTPUT INTO later"
    both = f"{one.format(4)}; {one.format(8)}"
    with pytest.raises(PlanError, match="make the table later") as caught:
        session.query_set(both)
    assert caught.value.position is not None
    session.sql(f"{one.format(4)}").to_arrow()  # makes the table
    alone = held(session, "later")
    session.query_set(both).to_arrow()
    assert held(session, "later") > 2 * alone


def test_the_shell_waits_for_end() -> None:
    assert not is_complete("EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1;")
    assert is_complete("EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; END;")
    assert is_complete("SELECT 1;")


@pytest.mark.parametrize("other", ["sum(10 / x)", "count(*) FILTER (WHERE 10 / x > 1)"])
@pytest.mark.parametrize("length", [10, 20])
def test_rows_that_are_bad_for_one_query_are_not_for_another(other: str, length: int) -> None:
    """Queries share panes only if the same expressions can fail; a bad-row policy applies to its
    own query only."""
    table = pa.table({"t": [0, 5, 12, 3, 15], "k": list("aabba"), "x": [1, 0, 2, 5, 1]})
    with Session(False) as session:
        session.create_stream("s", table, ordered_by="t")
        count = f"SELECT k, count(*) AS n FROM s [RANGE {length} SLIDE {length}] GROUP BY k"
        fails = f"SELECT k, {other} AS n FROM s [RANGE 10 SLIDE 10] GROUP BY k ON BAD ROW KEEP"
        alone = [session.sql(text).to_arrow() for text in (count, fails)]
        both = session.query_set(f"{count}; {fails}")
        assert [t.sort_by("k").to_pylist() for t in both.to_arrow()] == [
            t.sort_by("k").to_pylist() for t in alone
        ]
        assert [query.bad_rows().num_rows for query in both.queries] == [0, 1]
