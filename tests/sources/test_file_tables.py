"""Tables of files: the rows of an INSERT stay for every later session, all of them or none."""

from __future__ import annotations

import datetime as dt
import os
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import cql
from cql.catalog import sinks
from cql.errors import BindError, CatalogError, CqlError, NotSupportedError, ParseError, RunError
from cql.query.result import Result

FORMATS = ("parquet", "csv", "json", "arrow")
NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[cql.Session]:
    """Paths in statements are relative to a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    with cql.connect(spark=False) as made:
        yield made


def rows(session: cql.Session, text: str) -> list[tuple[Any, ...]]:
    query = session.sql(text)
    assert isinstance(query, cql.Query)
    return [tuple(row.values()) for row in query.to_arrow().to_pylist()]


def types(session: cql.Session, name: str) -> list[tuple[str, str]]:
    result = session.sql(f"DESCRIBE {name}")
    assert isinstance(result, Result)
    return [(row[0], row[1]) for row in result.rows]


def files(folder: str) -> list[str]:
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


@pytest.mark.parametrize("kind", FORMATS)
def test_rows_outlive_the_session_in_the_declared_types(session: cql.Session, kind: str) -> None:
    columns = (
        "k INT NOT NULL, s STRING, d DECIMAL(10, 2), ts TIMESTAMP, day DATE, f DOUBLE, b BOOLEAN"
    )
    made = f"CREATE TABLE t ({columns}) USING {kind} OPTIONS (path 'out')"
    session.sql(made)
    assert rows(session, "SELECT k, s FROM t") == []
    session.sql(
        "INSERT INTO t VALUES (1, 'two\nlines', 1.5, TIMESTAMP '2024-01-01 12:00:00',"
        " DATE '2024-01-02', 0.1, true)"
    )
    session.sql("INSERT INTO t (s, k) VALUES ('', 2)")
    first = (1, "two\nlines", Decimal("1.50"), NOON, dt.date(2024, 1, 2), 0.1, True)
    second = (2, "", None, None, None, None, None)
    assert rows(session, "SELECT * FROM t") == [first, second]
    session.sql("INSERT INTO t SELECT * FROM t")  # reads the files that existed when it began
    expected = [first, second, first, second]
    with cql.connect(spark=False) as other:
        other.sql(made.replace("out", os.path.abspath("out")))
        assert types(other, "t") == types(session, "t")
        assert rows(other, "SELECT * FROM t") == expected
    with pytest.raises(CatalogError, match="NOT NULL") as caught:
        session.sql("INSERT INTO t SELECT CAST(NULL AS INT), s, d, ts, day, f, b FROM t")
    assert "column k" in caught.value.message
    assert rows(session, "SELECT * FROM t") == expected
    assert len(files("out")) == 3


@pytest.mark.parametrize("kind", FORMATS)
def test_a_path_that_exists_says_its_columns(session: cql.Session, kind: str) -> None:
    values = "(VALUES (1, 'a'), (2, NULL)) AS v (k, s)"
    session.sql(f"CREATE TABLE t USING {kind} LOCATION 'out' AS SELECT k, s FROM {values}")
    session.sql(f"CREATE TABLE again USING {kind} OPTIONS (path 'out')")
    number = "int" if kind in ("parquet", "arrow") else "bigint"
    assert types(session, "again") == [("k", number), ("s", "string")]
    session.sql("INSERT INTO again VALUES (3, 'c')")
    assert rows(session, "SELECT * FROM t") == [(1, "a"), (2, None), (3, "c")]
    with pytest.raises(CatalogError, match=r"there are files in .* already") as caught:
        session.sql(f"CREATE TABLE u USING {kind} OPTIONS (path 'out') AS SELECT 1 AS k")
    assert "INSERT INTO adds rows" in (caught.value.hint or "")
    assert session._schema_of("u") is None


def test_drop_and_replace_leave_the_files(session: cql.Session) -> None:
    session.sql("CREATE TABLE t (k INT) USING csv OPTIONS (path 'out'); INSERT INTO t VALUES (1)")
    again = session.sql("CREATE TABLE IF NOT EXISTS t (k STRING) USING csv OPTIONS (path 'out')")
    assert str(again) == "table t exists already"
    with pytest.raises(BindError, match="table t exists already"):
        session.sql("CREATE TABLE t (k STRING) USING csv OPTIONS (path 'out')")
    session.sql("CREATE OR REPLACE TABLE t (k STRING) USING csv OPTIONS (path 'out')")
    assert rows(session, "SELECT k FROM t") == [("1",)]
    with pytest.raises(CatalogError, match="no files"):
        session.sql("CREATE OR REPLACE TABLE t USING csv OPTIONS (path 'none')")
    assert rows(session, "SELECT k FROM t") == [("1",)]  # the failed statement replaced nothing
    dropped = str(session.sql("DROP TABLE t"))
    assert dropped == f"table t dropped; its files stay in {os.path.abspath('out')}"
    assert files("out") == ["part-00000000.csv"]
    with pytest.raises(BindError, match="no stream or table t"):
        session.sql("SELECT * FROM t")
    session.sql("CREATE VIEW v AS SELECT 1 AS a")
    with pytest.raises(BindError, match="v is a view"):
        session.sql("CREATE OR REPLACE TABLE v (k INT) USING csv OPTIONS (path 'out')")
    with pytest.raises(NotSupportedError, match="OR REPLACE TABLE … AS"):
        session.sql("CREATE OR REPLACE TABLE t USING csv OPTIONS (path 'o') AS SELECT 1 AS k")


def test_a_failed_insert_leaves_nothing(session: cql.Session) -> None:
    session.register_table("n", {"k": [1, 0]})
    with pytest.raises(RunError, match="division by zero"):
        session.sql("CREATE TABLE t USING csv OPTIONS (path 'new') AS SELECT 1 DIV k AS x FROM n")
    assert session._schema_of("t") is None
    assert not os.path.exists("new")
    session.sql("CREATE TABLE t (x BIGINT) USING csv OPTIONS (path 'new')")
    with pytest.raises(RunError, match="division by zero"):
        session.sql("INSERT INTO t SELECT 1 DIV k AS x FROM n")
    assert files("new") == []
    assert rows(session, "SELECT x FROM t") == []


def test_show_tables_and_a_folder_that_goes(session: cql.Session) -> None:
    session.sql("CREATE TABLE t (k INT) USING parquet OPTIONS (path 'out')")
    session.sql("CREATE TABLE c (k INT) USING csv OPTIONS (path 'other')")

    def counts() -> dict[str, Any]:
        result = session.sql("SHOW TABLES")
        assert isinstance(result, Result)
        return {row[0]: row[2] for row in result.rows}

    assert counts() == {"t": 0, "c": 0}
    session.sql("INSERT INTO t VALUES (1), (2); INSERT INTO c VALUES (1)")
    assert counts() == {"t": 2, "c": None}
    os.remove("out/part-00000000.parquet")
    os.rmdir("out")
    assert counts() == {"t": None, "c": None}
    with pytest.raises(CatalogError, match="no file or folder"):
        session.sql("SELECT * FROM t").show()
    session.sql("INSERT INTO t VALUES (3)")
    assert rows(session, "SELECT * FROM t") == [(3,)]


def test_style_of_csv_holds_both_ways(session: cql.Session) -> None:
    session.sql(
        "CREATE TABLE t (k INT, s STRING) USING csv OPTIONS (path 'out', header false, sep ';');"
        "INSERT INTO t VALUES (1, 'a;b'), (NULL, 'c')"
    )
    assert Path("out/part-00000000.csv").read_text() == '1;"a;b"\n;"c"\n'
    assert rows(session, "SELECT * FROM t") == [(1, "a;b"), (None, "c")]


def test_other_spellings_and_the_working_folder(
    session: cql.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.sql("CREATE TABLE t (k INT) WITH ('format' = 'jsonl', 'path' = 'out')")
    session.sql("CREATE TABLE p (k INT) LOCATION 'bare'")
    os.mkdir("else")
    monkeypatch.chdir("else")
    session.sql("INSERT INTO t VALUES (1); INSERT INTO p VALUES (2)")
    assert files("../out") == ["part-00000000.jsonl"]
    assert files("../bare") == ["part-00000000.parquet"]
    assert files(".") == []


@pytest.mark.parametrize(
    ("text", "error", "message", "at"),
    [
        (
            "CREATE TABLE t (k INT) USING xls OPTIONS (path 'o')",
            CatalogError,
            "unknown format xls",
            30,
        ),
        ("CREATE TABLE t (k INT) USING csv", CatalogError, "USING csv and no path", 14),
        ("CREATE TABLE t (k INT) USING csv OPTIONS (sep ';')", BindError, "name no path", 43),
        ("CREATE TABLE t (k INT) USING csv OPTIONS (path 3)", CatalogError, "option path", 14),
        (
            "CREATE TABLE t (k INT) USING csv OPTIONS (path '')",
            CatalogError,
            "needs the option",
            14,
        ),
        (
            "CREATE TABLE t USING csv OPTIONS (path 'none')",
            CatalogError,
            "which does not exist",
            14,
        ),
        ("CREATE TABLE t USING csv OPTIONS (path 'empty')", CatalogError, "no files in", 14),
        ("CREATE TABLE t (k INT) LOCATION 'a.csv'", CatalogError, "a.csv is a file", 14),
        ("CREATE TABLE t (k INT) LOCATION 'x/*'", CatalogError, "is a pattern", 14),
        ("CREATE TABLE t (k INT) LOCATION 's3://b/x'", CatalogError, "not a local path", 14),
        ("CREATE TABLE t (k INT) LOCATION 'a.csv/x'", CatalogError, "cannot make the folder", 14),
        ("CREATE TABLE t (k INT) LOCATION 3", ParseError, "expected a path", 33),
        (
            "CREATE TABLE t (k INT) USING csv OPTIONS (path 'o') LOCATION 'o'",
            ParseError,
            "has a path already",
            53,
        ),
        (
            "CREATE TABLE t (k INT) USING csv OPTIONS (path 'o', quote '|')",
            CatalogError,
            "quote is no option of a table of csv files",
            14,
        ),
        (
            "CREATE TABLE t (k INT) USING json OPTIONS (path 'o', sep ';')",
            CatalogError,
            "sep is no option of a table of json files",
            14,
        ),
        ("CREATE TABLE t (k INT, K INT) LOCATION 'o'", ParseError, "'K' stands here twice", 24),
        ("CREATE TABLE t (k MAP<INT, INT>) LOCATION 'o'", NotSupportedError, "MAP", 19),
        ("CREATE TABLE t LOCATION 'o' AS SELECT 1 AS a, 2 AS A", BindError, "two columns", 32),
        (
            "CREATE TABLE t LOCATION 'o' AS SELECT NULL AS a",
            CatalogError,
            "cannot hold column a",
            14,
        ),
        ("CREATE TABLE t (k INTERVAL) USING csv LOCATION 'o'", CatalogError, "cannot hold", 14),
        ("CREATE TABLE t USING parquet LOCATION 'csv'", CatalogError, "a csv file by its name", 14),
        ("CREATE TABLE t (k INT) USING parquet LOCATION 'text'", CatalogError, "holds it as", 14),
        ("INSERT INTO parts VALUES (1, 2)", CatalogError, "folders named column=value", 13),
        ("INSERT INTO made VALUES ('a')", BindError, "column k has type int", 18),
        ("INSERT INTO made SELECT 1 AS k, 2 AS x", BindError, "the table takes 1", 18),
        ("INSERT INTO made (x) VALUES (1)", BindError, "there is no column x", 19),
    ],
)
def test_refusals_say_where(
    session: cql.Session, text: str, error: type[CqlError], message: str, at: int
) -> None:
    os.makedirs("empty")
    os.makedirs("csv/p=1")
    Path("a.csv").write_text("k\n1\n")
    Path("csv/p=1/a.csv").write_text("k\n1\n")
    session.sql("CREATE TABLE made (k INT) USING csv LOCATION 'made'")
    session.sql("CREATE TABLE parts USING csv LOCATION 'csv'")
    session.sql("CREATE TABLE texts USING parquet LOCATION 'text' AS SELECT 'a' AS k")
    before = sorted(os.listdir())
    with pytest.raises(error, match=message) as caught:
        session.sql(text)
    assert caught.value.position is not None
    assert caught.value.position.column == at
    assert sorted(os.listdir()) == before
    assert session._schema_of("t") is None


def test_an_array_is_written_by_every_format_but_csv(session: cql.Session) -> None:
    session.register_table("n", {"k": [1, 2]})
    for kind in FORMATS:
        made = f"CREATE TABLE {kind}s USING {kind} LOCATION '{kind}' AS SELECT array_agg(k) AS a"
        if kind == "csv":
            with pytest.raises(CatalogError, match="csv files cannot hold column a array<bigint>"):
                session.sql(f"{made} FROM n")
            assert not os.path.exists(kind)
        else:
            session.sql(f"{made} FROM n")
            assert rows(session, f"SELECT a FROM {kind}s") == [([1, 2],)]


@pytest.mark.parametrize("created", [True, False], ids=["insert", "create-as"])
def test_endless_input_is_published_by_epochs(
    session: cql.Session, monkeypatch: pytest.MonkeyPatch, created: bool
) -> None:
    """The generator gives the second row only once a query can read the first."""
    visible, goes_on = threading.Event(), threading.Event()

    def publish(*place: str) -> int:
        epoch = published(*place)
        if rows(reading, "SELECT count(*) AS n FROM t") == [(1,)]:
            visible.set()
        return epoch

    def endless() -> Iterator[dict[str, int]]:
        yield {"k": 1}
        assert visible.wait(60)
        yield {"k": 2}
        goes_on.wait(60)

    published = sinks.publish
    monkeypatch.setattr(sinks, "publish", publish)
    with cql.connect(spark=False) as reading:
        reading.sql("CREATE TABLE t (k BIGINT) USING parquet OPTIONS (path 'out')")
        session.create_stream("s", endless, bounded=False)
        session.sql("SET epoch_ms = 1")
        options = "USING parquet OPTIONS (path 'out')"
        if created:
            session.sql(f"CREATE TABLE t (k BIGINT) {options}")
            query = session.sql("INSERT INTO t SELECT k FROM s")
        else:
            query = session.sql(f"CREATE TABLE t {options} AS SELECT k FROM s")
        assert isinstance(query, cql.Query)
        assert visible.wait(60)
        with pytest.raises(RunError, match="writes into t"):
            session.sql("DROP TABLE t")
        goes_on.set()
        query.awaitTermination(60)
        assert rows(session, "SELECT k FROM t") == [(1,), (2,)]


def test_the_folder_may_be_made_by_another_at_the_same_time(
    session: cql.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkdir("out")
    isdir, unseen = os.path.isdir, iter([True])
    monkeypatch.setattr(os.path, "isdir", lambda p: isdir(p) and not next(unseen, False))
    session.sql("CREATE TABLE t (k INT) USING parquet OPTIONS (path 'out')")
    assert next(unseen, None) is None
    assert rows(session, "SELECT k FROM t") == []


def test_writers_of_one_folder_never_lose_each_others_rows(session: cql.Session) -> None:
    count, each = 4, 5
    sessions = [cql.connect(spark=False) for _ in range(count)]
    start = threading.Barrier(count)

    def write(number: int) -> None:
        one = sessions[number]
        one.sql("CREATE TABLE t (k INT) USING parquet OPTIONS (path 'out')")
        start.wait(60)
        for i in range(each):
            one.sql("INSERT INTO t VALUES (:a), (:b)", a=number * each + i, b=-1)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    session.sql("CREATE TABLE t USING parquet OPTIONS (path 'out')")
    found = sorted(k for (k,) in rows(session, "SELECT k FROM t"))
    assert found == [-1] * count * each + list(range(count * each))
    for one in sessions:
        one.close()
