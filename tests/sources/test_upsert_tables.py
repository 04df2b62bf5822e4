"""Tables with a PRIMARY KEY: an INSERT replaces rows by key, a changelog is applied by key."""

from __future__ import annotations

import datetime as dt
import errno
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cql
from cql.base.model import Field, Schema
from cql.base.types import BIGINT, STRING
from cql.catalog import sinks
from cql.catalog.files.keyed import whole
from cql.catalog.files.tables import FileTable
from cql.catalog.memory.memory_table import MemoryTable
from cql.catalog.upsert import key_numbers
from cql.errors import BindError, CatalogError, CqlError, RunError
from cql.query.keyed_changes import KeyedChanges
from tests.support.catalog_tools import read

KINDS = ("memory", "parquet", "csv", "json", "arrow")
SCHEMA = Schema((Field("k", BIGINT), Field("s", STRING), Field("v", BIGINT)))


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[cql.Session]:
    """Paths in statements are relative to a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    with cql.connect(spark=False) as made:
        yield made


def using(kind: str, folder: str = "out") -> str:
    if kind == "log":
        return f"USING parquet OPTIONS (path '{folder}', upsert 'log')"
    return "" if kind == "memory" else f"USING {kind} OPTIONS (path '{folder}')"


def rows(session: cql.Session, text: str) -> list[tuple[Any, ...]]:
    query = session.sql(text)
    assert isinstance(query, cql.Query)
    return [tuple(row.values()) for row in query.to_arrow().to_pylist()]


def at(minute: int) -> dt.datetime:
    return dt.datetime(2024, 5, 1, 12, minute, tzinfo=dt.UTC)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


# -- rows


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_replaces_the_row_of_its_key(session: cql.Session, kind: str) -> None:
    session.sql(
        f"CREATE TABLE t (k INT, v STRING, n INT, PRIMARY KEY (k) NOT ENFORCED) {using(kind)}"
    )
    session.sql("INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2), (1, 'c', 3)")
    assert rows(session, "SELECT * FROM t ORDER BY k") == [(1, "c", 3), (2, "b", 2)]
    session.sql("INSERT INTO t (v, k) VALUES ('d', 2), ('e', 3)")  # the rest of the row is NULL
    expected = [(1, "c", 3), (2, "d", None), (3, "e", None)]
    assert rows(session, "SELECT * FROM t ORDER BY k") == expected
    session.sql("INSERT INTO t SELECT k, v, 10 * k FROM t WHERE k > 1")
    assert rows(session, "SELECT * FROM t ORDER BY k")[1:] == [(2, "d", 20), (3, "e", 30)]
    assert rows(session, "SELECT count(*) FROM t") == [(3,)]
    assert [row[:4] for row in session.sql("DESCRIBE t").rows][:2] == [
        ("k", "int", "not null", "primary key"),
        ("v", "string", "", ""),
    ]
    (shown,) = session.sql("SHOW TABLES").rows
    counted = 3 if kind in ("memory", "parquet") else None
    assert shown[1:] == ("k int not null, v string, n int, primary key (k)", counted)
    if kind != "memory":
        assert len(os.listdir("out")) == 1


@pytest.mark.parametrize("kind", [*KINDS, "log"])
def test_a_failed_insert_leaves_the_table(session: cql.Session, kind: str) -> None:
    session.sql(f"CREATE TABLE t (k STRING PRIMARY KEY, v INT) {using(kind)}")
    session.sql("INSERT INTO t VALUES ('a', 1)")
    for text in (
        "INSERT INTO t VALUES ('b', 2), (NULL, 3)",
        "INSERT INTO t SELECT CASE WHEN v > 5 THEN k END, v FROM t",
    ):
        with pytest.raises(CatalogError, match=r"(?s)NULL in column k.*WHERE k IS NOT NULL"):
            session.sql(text)
    with pytest.raises(CqlError, match="does not fit"):
        session.sql("INSERT INTO t SELECT 'b', 3000000000 * v FROM t")
    with pytest.raises(BindError, match="column k takes no NULL and is not filled"):
        session.sql("INSERT INTO t (v) VALUES (1)")
    assert rows(session, "SELECT * FROM t") == [("a", 1)]


def test_declarations(session: cql.Session) -> None:
    made = "CREATE TABLE c (PRIMARY KEY (a, b)) {} AS SELECT 1 AS a, 'x' AS b, v FROM r"
    session.register_table("r", {"v": [1, 2]})
    for kind in ("memory", "parquet"):
        session.sql(made.format(using(kind, "c")))
        assert rows(session, "SELECT * FROM c") == [(1, "x", 2)]
        session.sql("INSERT INTO c VALUES (1, 'x', 3), (1, 'y', 4)")
        assert rows(session, "SELECT * FROM c") == [(1, "x", 3), (1, "y", 4)]
        session.sql("DROP TABLE c")
    again = "CREATE TABLE c (PRIMARY KEY (a, b)) USING parquet OPTIONS (path 'c')"
    session.sql(again)  # the columns are those of the file
    session.sql("INSERT INTO c VALUES (1, 'y', 5)")
    assert rows(session, "SELECT * FROM c") == [(1, "x", 3), (1, "y", 5)]
    session.sql("CREATE OR REPLACE TABLE c (k INT)")  # in memory, and without a key
    session.sql("INSERT INTO c VALUES (1), (1)")
    assert rows(session, "SELECT k FROM c") == [(1,), (1,)]
    session.sql("CREATE OR REPLACE TABLE c (k INT PRIMARY KEY)")
    session.sql("INSERT INTO c VALUES (1), (1)")
    assert rows(session, "SELECT k FROM c") == [(1,)]
    session.register_table("p", {"k": [1, 1, 2], "v": [1, 2, 3]}, primary_key="K")
    session.sql("INSERT INTO p VALUES (2, 4)")
    assert rows(session, "SELECT * FROM p") == [(1, 2), (2, 4)]
    with pytest.raises(CatalogError, match="no column j"):
        session.register_table("q", {"k": [1]}, primary_key=["j"])
    with pytest.raises(CatalogError, match="NULL in column k"):
        session.register_table("q", {"k": [1, None]}, primary_key=["k"])
    with pytest.raises(CatalogError, match="which is no PRIMARY KEY"):
        session.sql("CREATE TABLE q (PRIMARY KEY (k)) AS SELECT array_agg(v) AS k FROM r")


def test_a_key_that_a_folder_cannot_have(session: cql.Session) -> None:
    session.sql("CREATE TABLE t (a INT, b INT) USING parquet OPTIONS (path 'plain')")
    session.sql("INSERT INTO t VALUES (1, 1)")
    with pytest.raises(CatalogError, match=r"was not written by a table with a PRIMARY KEY"):
        session.sql("CREATE TABLE u (a INT PRIMARY KEY) USING parquet OPTIONS (path 'plain')")
    session.sql("CREATE TABLE u (a INT, b INT PRIMARY KEY) USING parquet OPTIONS (path 'keyed')")
    session.sql("INSERT INTO u VALUES (1, 1), (1, 2)")
    session.sql("CREATE TABLE w (a INT PRIMARY KEY, b INT) USING parquet OPTIONS (path 'keyed')")
    with pytest.raises(CatalogError, match=r"several rows have the key 1 \(a\)"):
        session.sql("INSERT INTO w VALUES (2, 2)")
    assert rows(session, "SELECT * FROM u") == [(1, 1), (1, 2)]
    pq.write_table(pa.table({"a": [1], "b": [1]}), "keyed/mine.parquet")
    for text in ("SELECT * FROM u", "INSERT INTO u VALUES (5, 5)"):
        with pytest.raises(CatalogError, match=r"mine.parquet was not written by a table with"):
            rows(session, text)


# -- changes


def clicks(session: cql.Session, **others: Any) -> None:
    data = [
        {"page": page, "ms": ms, "ts": at(minute)}
        for minute, (page, ms) in enumerate([("a", 1), ("b", 2), ("a", 3), ("c", 4), ("a", 5)])
    ]
    session.create_stream("clicks", data, ordered_by="ts", **others)


@pytest.mark.parametrize("kind", [*KINDS, "log"])
def test_a_changelog_is_applied(session: cql.Session, kind: str) -> None:
    clicks(session)
    session.sql(f"CREATE TABLE n (page STRING PRIMARY KEY, n BIGINT) {using(kind)}")
    session.sql("INSERT INTO n VALUES ('a', 100), ('z', 100)")
    query = session.sql(
        "INSERT INTO n SELECT page, count(*) FROM clicks GROUP BY page EMIT CHANGES"
    )
    assert query.to_arrow()["rows"].to_pylist() == [7]  # changes
    assert sorted(rows(session, "SELECT * FROM n")) == [("a", 3), ("b", 1), ("c", 1), ("z", 100)]
    # a row that leaves takes its key with it, and the relation is that of the last instant
    session.sql("INSERT INTO n SELECT page, count(*) FROM clicks [RANGE 1 MINUTE] GROUP BY page")
    assert sorted(rows(session, "SELECT * FROM n")) == [("a", 1), ("c", 1), ("z", 100)]


def test_a_changelog_makes_a_table(session: cql.Session) -> None:
    clicks(session)
    text = "SELECT page, sum(ms) AS s FROM clicks [RANGE 1 MINUTE] GROUP BY page"
    session.sql(f"CREATE TABLE m (PRIMARY KEY (page)) AS {text}")
    session.sql(
        f"CREATE TABLE f (page STRING, s BIGINT, PRIMARY KEY (page)) {using('csv')} AS {text}"
    )
    session.sql(
        f"CREATE TABLE none (PRIMARY KEY (page)) AS {text.replace('GROUP', 'WHERE ms > 9 GROUP')}"
    )
    for name in ("m", "f"):
        assert sorted(rows(session, f"SELECT * FROM {name}")) == [("a", 5), ("c", 4)]
    assert rows(session, "SELECT * FROM none") == []
    session.sql(
        "CREATE TABLE log (_time TIMESTAMP, _weight BIGINT, page STRING PRIMARY KEY, s BIGINT)"
    )
    session.sql(f"INSERT INTO log {text}")  # columns for the changes themselves
    assert len(rows(session, "SELECT * FROM log")) == 3


def test_rows_that_the_key_does_not_tell_apart(session: cql.Session) -> None:
    clicks(session)
    session.sql(
        "CREATE TABLE t (page STRING PRIMARY KEY, ms BIGINT); INSERT INTO t VALUES ('a', 0)"
    )
    text = "SELECT page, ms FROM clicks [RANGE {} MINUTES] EMIT CHANGES"
    with pytest.raises(RunError, match=r"(?s)two rows with page = a.*PRIMARY KEY is \(page\)"):
        session.sql(f"INSERT INTO t {text.format(2)}")
    assert rows(session, "SELECT * FROM t") == [("a", 0)]
    session.sql(f"INSERT INTO t {text.format(1)}")
    assert sorted(rows(session, "SELECT * FROM t")) == [("a", 5), ("c", 4)]
    session.sql("CREATE TABLE plain (page STRING, ms BIGINT)")
    with pytest.raises(CqlError, match=r"(?s)rows of this query also change.*PRIMARY KEY"):
        session.sql(f"INSERT INTO plain {text.format(1)}")


RANDOM = (
    "SELECT k, s, count(*) AS n, sum(v) AS v FROM r [RANGE 20] GROUP BY k, s",
    "SELECT k, s, count(*) AS n, max(v) AS v FROM r WHERE v > 20 GROUP BY k, s EMIT CHANGES",
    "SELECT k, s, 1 AS n, v FROM r [PARTITION BY k, s ROWS 1]",
    "SELECT k, s, n, v FROM (SELECT k, s, 1 AS n, v, ROW_NUMBER() OVER (PARTITION BY k, s"
    " ORDER BY v DESC, t) AS place FROM r) WHERE place = 1",
)


@pytest.mark.sampled
@pytest.mark.parametrize("runtime", ["depth_first", "ordered"])
@pytest.mark.parametrize("text", RANDOM)
def test_random_relations(
    session: cql.Session, text: str, runtime: str, seed: int, full: bool
) -> None:
    """The table holds the relation, and the rows of before whose keys were never in it."""
    session.set("runtime", runtime)
    rng = random.Random(f"{text} {seed}")
    for case in range(10 if full else 2):
        times = np.sort(np.array([rng.randrange(200) for _ in range(rng.choice([0, 40, 400]))]))
        count = times.size
        data = pa.table(
            {
                "t": pa.array(times, pa.int64()),
                "k": pa.array([rng.randrange(4) for _ in range(count)], pa.int64()),
                "s": pa.array([rng.choice("xyz") for _ in range(count)], pa.string()),
                "v": pa.array([rng.randrange(40) for _ in range(count)], pa.int64()),
            }
        )
        session.create_stream("r", data, ordered_by="t", replace=True)
        before = {(k, "x"): (k, "x", -1, -1) for k in range(8)}
        for kind in ("memory", "parquet", "log"):
            name = f"{kind}{case}"
            session.sql(
                f"CREATE TABLE {name} (k BIGINT, s STRING, n BIGINT, v BIGINT, PRIMARY KEY (k, s))"
                f" {using(kind, name)}"
            )
            session.sql(f"INSERT INTO {name} VALUES {', '.join(map(str, before.values()))}")
            session.sql(f"INSERT INTO {name} {text}")
            changes = list(session.sql(text).batches())
            met = {(row["k"], row["s"]) for b in changes for row in b.to_pylist()}
            relation = session.sql(text.removesuffix(" EMIT CHANGES")).to_arrow().to_pylist()
            if text.endswith("EMIT CHANGES"):
                relation = _final(changes)
            expected = {key: row for key, row in before.items() if key not in met}
            expected |= {(row["k"], row["s"]): tuple(row.values()) for row in relation}
            assert sorted(rows(session, f"SELECT * FROM {name}")) == sorted(expected.values())


def _final(changes: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    there: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in (row for batch in changes for row in batch.to_pylist()):
        row.pop("_time")
        weight = row.pop("_weight")
        if weight > 0:
            there[tuple(row.values())] = row
        else:
            del there[tuple(row.values())]
    return list(there.values())


CHANGES = pa.schema(
    [("_time", pa.int64()), ("_weight", pa.int64()), ("k", pa.int64()), ("v", pa.string())]
)
Change = tuple[int, int, int, str | None]


def changes_of(*items: Change) -> pa.RecordBatch:
    columns = list(zip(*items, strict=True)) or [()] * 4
    arrays = [pa.array(c, f.type) for c, f in zip(columns, CHANGES, strict=True)]
    return pa.record_batch(arrays, schema=CHANGES)


def test_random_changes_in_random_epochs(seed: int, full: bool) -> None:
    """Against a dict: after each epoch the table is the relation at one instant, and at the end
    that of the last one."""
    for case in range(400 if full else 80):
        rng = random.Random(f"{seed} {case}")
        there: dict[int, str | None] = {}
        changes: list[Change] = []
        last = rng.choice([None, 9, 13])
        instants = [dict(there)]
        for instant in range(1, 14):
            now: list[Change] = []
            for k in rng.sample(range(6), rng.randrange(5)):
                if k in there:
                    now.append((instant, -1, k, there.pop(k)))
                if rng.random() < 0.7:
                    there[k] = rng.choice(["a", "b", None])
                    now.append((instant, 1, k, there[k]))
            rng.shuffle(now)
            changes += now
            if last is None or instant <= last:
                instants.append(dict(there))
        keyed = KeyedChanges(CHANGES, ["k"], "t")
        table: dict[int, str | None] = {}
        while changes:
            count = rng.randrange(6)
            keyed.add(changes_of(*changes[:count]))
            del changes[:count]
            if rng.random() < 0.5:
                _apply(table, keyed.take(last, final=False))
                assert table in instants
        _apply(table, keyed.take(last, final=True))
        assert table == instants[-1]
        assert not keyed.waits


def test_an_instant_counts_as_a_whole() -> None:
    keyed = KeyedChanges(CHANGES, ["k"], "t")
    table: dict[int, str | None] = {}
    keyed.add(changes_of((1, 1, 1, "a"), (2, 1, 1, "b")))
    _apply(table, keyed.take(None, final=False))
    assert table == {1: "a"}  # the rest of instant 2 may come
    with_both = keyed.take(None, final=False)
    assert with_both is None  # nothing has come, but two rows cannot be all of it
    keyed.add(changes_of((2, -1, 1, "a")))
    assert keyed.take(None, final=False) is None
    _apply(table, keyed.take(None, final=False))
    assert table == {1: "b"}
    keyed.add(changes_of((3, 1, 1, "c"), (4, 1, 2, "c")))
    with pytest.raises(RunError, match="at 3 the query has two rows with k = 1"):
        keyed.take(None, final=False)


def _apply(table: dict[int, str | None], net: Any) -> None:
    if net is not None:
        for key in net.gone["k"].to_pylist():
            table.pop(key, None)
        keys = net.rows["k"].to_pylist()
        assert len(set(keys)) == len(keys)
        table.update(zip(keys, net.rows["v"].to_pylist(), strict=True))


# -- epochs, readers, writers, crashes


def test_readers_see_the_table_of_their_beginning(tmp_path: Path) -> None:
    memory = MemoryTable(SCHEMA, "t", ["k"])
    files = FileTable({"path": tmp_path / "t"}, what="t", schema=SCHEMA, key=["k"])
    one, two = ([pa.record_batch({"k": [k], "s": [s], "v": [1]})] for k, s in [(1, "a"), (1, "b")])
    for table in (memory, files):
        versions = []
        readers = []
        for batches in ([], one, two):
            sink = table.sink(SCHEMA)
            sink.begin()
            for batch in batches:
                sink.write(batch)
            assert sink.commit() == len(versions)
            versions.append(table.source().version())
            readers.append(table.source().open(["s"]))
        assert len(set(versions)) == 3  # as many rows, and yet another version
        seen = []
        for reader in readers:
            block = reader.next()
            seen.append([] if block is None else block.batch.to_pylist())
        assert seen == [[], [{"s": "a"}], [{"s": "b"}]]
        assert read(table.source()) == [{"k": 1, "s": "b", "v": 1}]
    assert os.listdir(tmp_path / "t") == ["rows-00000002.parquet"]


def test_an_endless_insert_publishes_epochs(session: cql.Session) -> None:
    session.sql("CREATE STREAM quotes (symbol STRING, price INT, ts TIMESTAMP) ORDERED BY ts")
    session.set("epoch_ms", 5)
    for kind in ("memory", "parquet"):
        session.sql(f"CREATE TABLE {kind}s (symbol STRING PRIMARY KEY, price INT) {using(kind)}")
        session.sql(
            f"CREATE TABLE {kind}n (symbol STRING PRIMARY KEY, n BIGINT) {using(kind, 'n')}"
        )
    inserts = [
        session.sql(text.format(kind))
        for kind in ("memory", "parquet")
        for text in (
            "INSERT INTO {}s SELECT symbol, price FROM quotes",
            "INSERT INTO {}n SELECT symbol, count(*) FROM quotes [RANGE 5 MINUTES] GROUP BY symbol",
        )
    ]
    shown = [(f"{kind}{word}") for kind in ("memory", "parquet") for word in "sn"]

    def tables() -> list[list[tuple[Any, ...]]]:
        return [sorted(rows(session, f"SELECT * FROM {name}")) for name in shown]

    session.push("quotes", [("IBM", 1, at(0)), ("GM", 2, at(1)), ("IBM", 3, at(2))])
    session.push("quotes", [("GM", 4, at(6))])
    newest = [("GM", 4), ("IBM", 3)]
    wait_for(lambda: tables()[::2] == [newest, newest])
    session.push("quotes", [("GM", 5, at(30))])
    left = [("GM", 1)]  # all others have left the window
    newest = [("GM", 5), ("IBM", 3)]
    session.end("quotes")
    for query in inserts:
        assert query.await_termination(60)
        assert query.exception is None
    assert tables() == [newest, left, newest, left]


def test_updates_go_into_a_table(session: cql.Session) -> None:
    session.sql(
        "CREATE STREAM quotes (symbol STRING, price INT, ts TIMESTAMP) ORDERED BY ts"
        " UPDATE KEY (symbol); CREATE TABLE latest (symbol STRING PRIMARY KEY, price INT)"
    )
    query = session.sql("INSERT INTO latest SELECT symbol, price FROM quotes")
    session.push("quotes", [(f"s{k % 7}", k, at(k % 60)) for k in range(50)])
    session.push("quotes", [("s1", 99, at(59))])
    session.end("quotes")
    assert query.await_termination(60)
    found = dict(rows(session, "SELECT * FROM latest"))
    assert found["s1"] == 99
    assert len(found) == 7


@pytest.mark.parametrize("stage", ["lock", "begin", "sync", "link"])
def test_a_full_disk_leaves_the_table(
    stage: str, session: cql.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.sql("CREATE TABLE t (k INT PRIMARY KEY) USING parquet OPTIONS (path 'out')")
    session.sql("INSERT INTO t VALUES (1)")

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    places = {"lock": (sinks, "_lock"), "begin": (sinks, "open_staged")}
    with monkeypatch.context() as patched:
        patched.setattr(*places.get(stage, (os, {"sync": "fsync"}.get(stage, "link"))), full)
        with pytest.raises(CatalogError, match=r"(?s)no space left.*nothing was published"):
            session.sql("INSERT INTO t VALUES (2)")
    assert rows(session, "SELECT * FROM t") == [(1,)]
    assert [name for name in os.listdir("out") if name != "_lock"] == ["rows-00000000.parquet"]


CRASH = """
import os, sys
import cql
with cql.connect(spark=False) as session:
    columns, path = "k INT PRIMARY KEY, v INT", sys.argv[1]
    session.sql(f"CREATE TABLE t ({columns}) USING parquet OPTIONS (path '{path}')")
    session.sql("INSERT INTO t VALUES (1, 1)")
    if sys.argv[2] == "staged":
        os.link = lambda *names: os._exit(9)
    else:
        remove = os.unlink
        os.unlink = lambda path: os._exit(9) if sys.argv[2] in str(path) else remove(path)
    session.sql("INSERT INTO t VALUES (1, 2), (2, 2)")
"""


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("when", "held"), [("staged", {1: 1}), ("_staging", {1: 2, 2: 2}), ("rows-", {1: 2, 2: 2})]
)
def test_a_crash_leaves_a_whole_epoch(
    session: cql.Session, when: str, held: dict[int, int], tmp_path: Path
) -> None:
    folder = tmp_path / "t"
    done = subprocess.run(
        [sys.executable, "-c", CRASH, str(folder), when], check=False, timeout=300
    )
    assert done.returncode == 9
    session.sql("CREATE TABLE t (k INT PRIMARY KEY, v INT) USING parquet OPTIONS (path 't')")
    assert dict(rows(session, "SELECT * FROM t")) == held
    session.sql("INSERT INTO t VALUES (3, 3)")
    assert dict(rows(session, "SELECT * FROM t")) == {**held, 3: 3}
    assert len(os.listdir(folder)) == 1


def test_writers_of_two_sessions_take_turns(tmp_path: Path) -> None:
    """No epoch is lost, and a reader always finds one of the tables there were."""
    folder, sessions, epochs = tmp_path / "t", 3, 20
    errors: list[BaseException] = []

    def table() -> FileTable:
        return FileTable({"path": folder}, what="t", schema=SCHEMA, key=["k"])

    def write(number: int) -> None:
        try:
            sink = table().sink(SCHEMA)
            for epoch in range(epochs):
                sink.begin()
                values = {"k": [0, number + 1], "s": [f"{epoch}"] * 2, "v": [number, epoch]}
                sink.write(pa.record_batch(values))
                sink.commit()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(sessions)]
    for thread in threads:
        thread.start()
    seen = dict.fromkeys(range(1, sessions + 1), -1)
    while any(thread.is_alive() for thread in threads):
        found = {row["k"]: row["v"] for row in read(table().source())}
        table().statistics()
        for number, epoch in seen.items():
            assert found.get(number, -1) >= epoch
            seen[number] = found.get(number, -1)
    assert errors == []
    found = {row["k"]: row["v"] for row in read(table().source())}
    assert {k: v for k, v in found.items() if k} == dict.fromkeys(
        range(1, sessions + 1), epochs - 1
    )
    assert os.listdir(folder) == [f"rows-{sessions * epochs - 1:08d}.parquet"]


@pytest.mark.parametrize("name", ["t", "t[1]"])
@pytest.mark.parametrize("format", ["parquet", "csv", "json", "arrow"])
def test_a_reader_whose_file_was_removed_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, name: str
) -> None:
    """Between the listing of the folder and the reading of its file, a writer replaces the file."""
    folder = str(tmp_path / name)
    os.mkdir(folder)
    table = FileTable({"path": folder}, what="t", format=format, schema=SCHEMA, key=["k"])
    sink, newest = table.sink(SCHEMA), whole.newest

    def write(key: int) -> None:
        sink.begin()
        sink.write(pa.record_batch({"k": [key], "s": ["x"], "v": [key]}))
        sink.commit()

    def rows() -> int:
        return len(read(table.source()))

    def counted() -> int | None:
        return table.statistics().rows

    def version() -> str:
        [(path, _, _)] = table.source().version()
        return str(path)

    for key, find in enumerate((rows, counted, version)):
        write(2 * key)
        stale = [newest(folder, "t")]
        write(2 * key + 1)
        with monkeypatch.context() as patch:
            patch.setattr(whole, "newest", lambda *given, s=stale: s.pop() if s else newest(*given))
            found = find()
        assert stale == []
        assert found == (newest(folder, "t") if find is version else find())
        assert rows() == 2 * key + 2


def test_a_lookup_reads_the_table_again(session: cql.Session) -> None:
    session.sql(
        "CREATE TABLE names (k INT PRIMARY KEY, name STRING); INSERT INTO names VALUES (1, 'old');"
        "CREATE STREAM s (k INT, ts TIMESTAMP) ORDERED BY ts; SET table_refresh = '10 ms'"
    )
    found: list[str] = []
    query = session.sql("SELECT name FROM s JOIN names ON s.k = names.k")

    def run() -> None:
        found.extend(row["name"] for batch in query for row in batch.to_pylist())

    thread = threading.Thread(target=run)
    thread.start()
    session.push("s", [(1, at(0))])
    wait_for(lambda: found == ["old"])
    session.sql("INSERT INTO names VALUES (1, 'new')")

    def pushed() -> bool:
        session.push("s", [(1, at(1))])  # a row after the table was read again finds the new one
        return found[-1] == "new"

    wait_for(pushed)
    session.end("s")
    thread.join(60)


def test_key_numbers() -> None:
    columns = [
        pa.chunked_array([[1.0, -0.0, float("nan")], [0.0, float("nan"), 1.0]]),
        pa.chunked_array([pa.array(["a", "b", None, "b"]), pa.array([None, "c"])]),
    ]
    assert key_numbers(columns).tolist() == [0, 1, 2, 1, 2, 3]
