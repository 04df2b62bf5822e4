"""Tables of files with a PRIMARY KEY as logs of changes: epochs append, compactions are safe."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cql
from cql.base.model import Field, Schema
from cql.base.types import BIGINT, DOUBLE, STRING
from cql.catalog import upsert_log
from cql.catalog.files.tables import FileTable
from cql.errors import CatalogError, CqlError
from tests.support.catalog_tools import read

SCHEMA = Schema((Field("k", BIGINT), Field("s", STRING), Field("v", BIGINT, False)))
KEYS = Schema((Field("a", STRING), Field("v", BIGINT), Field("b", DOUBLE)))
#: The table by a reader that merges all files of the folder.
DUCKDB = (
    "SELECT * EXCLUDE (_sequence, _deleted) FROM read_parquet('{}/*.parquet') QUALIFY"
    " row_number() OVER (PARTITION BY {} ORDER BY _sequence DESC) = 1 AND NOT _deleted"
)
DECLARED = "USING parquet OPTIONS (path 'out', upsert 'log')"


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[cql.Session]:
    monkeypatch.chdir(tmp_path)
    with cql.connect(spark=False) as made:
        yield made


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs are compacted soon."""
    monkeypatch.setattr(upsert_log, "LEAST_ROWS", 6)
    monkeypatch.setattr(upsert_log, "MOST_EPOCHS", 5)


def table(folder: Path, schema: Schema | None = SCHEMA, key: tuple[str, ...] = ("k",)) -> FileTable:
    return FileTable({"path": folder, "upsert": "log"}, what="t", schema=schema, key=key)


def in_duckdb(folder: Path, key: str = "k") -> list[tuple[Any, ...]]:
    duckdb = pytest.importorskip("duckdb")
    if not list(folder.glob("*.parquet")):
        return []
    found: list[tuple[Any, ...]] = duckdb.sql(DUCKDB.format(folder, key)).fetchall()
    return sorted(found)


def here(of: FileTable) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in read(of.source()))


def rows(session: cql.Session, text: str) -> list[tuple[Any, ...]]:
    query = session.sql(text)
    assert isinstance(query, cql.Query)
    return [tuple(row.values()) for row in query.to_arrow().to_pylist()]


@pytest.mark.usefixtures("small")
def test_random_epochs(tmp_path: Path, seed: int, full: bool) -> None:
    """Against a dict, for this reader and for one that merges all files."""
    for case in range(20 if full else 4):
        rng = random.Random(f"{seed} {case}")
        folder, expected = tmp_path / str(case), {}
        known, most = table(folder), 0
        for number in range(40):
            if rng.random() < 0.2:
                known = table(folder, rng.choice([SCHEMA, None]))  # of another session
            keys = [rng.randrange(8) for _ in range(rng.randrange(5))]
            gone = sorted({rng.randrange(8) for _ in range(rng.randrange(3))} - set(keys))
            sink: Any = known.sink(SCHEMA)
            sink.begin()
            texts = [rng.choice(["x", None]) for _ in keys]
            values = [number * 10 + n for n in range(len(keys))]
            columns = [pa.array(keys, pa.int64()), pa.array(texts, pa.string()), pa.array(values)]
            sink.write(pa.record_batch(columns, schema=SCHEMA.to_arrow()))
            sink.delete(pa.record_batch([pa.array(gone, pa.int64())], ["k"]))
            if rng.random() < 0.2:
                sink.abort()
            else:
                sink.commit()
                expected |= dict(zip(keys, zip(keys, texts, values, strict=True), strict=True))
                expected = {k: row for k, row in expected.items() if k not in gone}
            assert here(known) == in_duckdb(folder) == sorted(expected.values())
            files = list(folder.glob("*.parquet"))
            most = max(most, sum(pq.read_metadata(file).num_rows for file in files))
            assert len(files) <= 6
        assert most <= 2 * 8 + 5  # the rows of 8 keys, as many changes, and an epoch


def test_a_key_of_several_columns(tmp_path: Path) -> None:
    made = table(tmp_path / "t", KEYS, ("b", "a"))
    sink = made.sink(KEYS)
    for epoch in ([("x", 1, 0.0), ("y", 1, 0.0), ("x", 2, -0.0)], [("y", 3, 1.0), ("x", 3, 0.0)]):
        sink.begin()
        sink.write(
            pa.RecordBatch.from_pylist([dict(zip("avb", row, strict=True)) for row in epoch])
        )
        sink.commit()
    assert here(made) == [("x", 3, 0.0), ("y", 1, 0.0), ("y", 3, 1.0)]
    assert [row["v"] for row in read(made.source(), ["v"])] == [1, 3, 3]
    assert len(read(made.source(), [])) == 3


def test_statements(session: cql.Session, tmp_path: Path) -> None:
    session.sql(f"CREATE TABLE t (k INT, v STRING, n INT NOT NULL, PRIMARY KEY (k)) {DECLARED}")
    assert rows(session, "SELECT * FROM t") == []
    session.sql("INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2), (1, 'c', 3)")
    session.sql("INSERT INTO t (n, k) VALUES (7, 2), (9, 3)")
    expected = [(1, "c", 3), (2, None, 7), (3, None, 9)]
    assert rows(session, "SELECT * FROM t ORDER BY k") == expected
    assert rows(session, "SELECT n FROM t WHERE v IS NULL ORDER BY n") == [(7,), (9,)]
    assert rows(session, "SELECT count(*) FROM t") == [(3,)]
    assert sorted(os.listdir("out")) == ["log-00000000.parquet", "log-00000001.parquet"]
    for text, message in (
        ("INSERT INTO t VALUES (5, 'x', 1), (NULL, 'x', 1)", "NULL in column k"),
        (
            "INSERT INTO t SELECT 5, v, CASE WHEN k > 9 THEN 1 END FROM t",
            "NULL in a column declared NOT NULL",
        ),
    ):
        with pytest.raises(CqlError, match=message):
            session.sql(text)
    assert rows(session, "SELECT * FROM t ORDER BY k") == expected
    session.sql("INSERT INTO t SELECT k + 1, 'z', n FROM t")
    assert rows(session, "SELECT k, v FROM t ORDER BY k") == [
        (1, "c"),
        (2, "z"),
        (3, "z"),
        (4, "z"),
    ]
    session.sql(f"CREATE TABLE again (PRIMARY KEY (k)) {DECLARED}")
    assert rows(session, "SELECT k, v FROM again WHERE k > 2") == [(3, "z"), (4, "z")]
    session.sql(
        f"CREATE TABLE made (PRIMARY KEY (k)) {DECLARED.replace('out', 'made')} AS"
        " SELECT k, n FROM t WHERE k < 3"
    )
    assert rows(session, "SELECT * FROM made ORDER BY k") == [(1, 3), (2, 3)]
    assert in_duckdb(tmp_path / "made") == [(1, 3), (2, 3)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(PRIMARY KEY (v)) {log}", r"was written with PRIMARY KEY \(k\)"),
        ("(k INT, v INT, PRIMARY KEY (k, v)) {log}", r"was written with PRIMARY KEY \(k\)"),
        ("(PRIMARY KEY (k)) {plain}", "log-00000000.parquet was not written by .* that rewrites"),
        ("(k INT, v INT) {log}", "upsert needs a table with a key"),
        ("(k INT, _sequence INT, PRIMARY KEY (k)) {new}", "has its own column _sequence"),
        ("(k INT, v INT, PRIMARY KEY (k)) {csv}", "a log of changes has parquet files, not csv"),
        (
            "(k INT, v INT, PRIMARY KEY (k)) {old}",
            "rows-00000000.parquet was not written by .*'log'",
        ),
        ("(k INT, v INT, PRIMARY KEY (k)) WITH ('upsert' = 'log')", "in memory, is not supported"),
    ],
)
def test_refused(session: cql.Session, text: str, message: str) -> None:
    session.sql(f"CREATE TABLE t (k INT, v INT, PRIMARY KEY (k)) {DECLARED}")
    session.sql("INSERT INTO t VALUES (1, 1)")
    session.sql("CREATE TABLE o (k INT PRIMARY KEY, v INT) USING parquet OPTIONS (path 'old')")
    session.sql("INSERT INTO o VALUES (1, 1)")
    places = {
        "log": DECLARED,
        "new": DECLARED.replace("out", "new"),
        "old": DECLARED.replace("out", "old"),
        "csv": DECLARED.replace("parquet", "csv").replace("out", "new"),
        "plain": "USING parquet OPTIONS (path 'out')",
    }
    with pytest.raises(CqlError, match=message):
        session.sql(f"CREATE TABLE u {text.format(**places)}")
    assert rows(session, "SELECT * FROM t") == [(1, 1)]


def test_a_missing_epoch_is_an_error(session: cql.Session) -> None:
    session.sql(f"CREATE TABLE t (k INT, v INT, PRIMARY KEY (k)) {DECLARED}")
    for k in range(3):
        session.sql(f"INSERT INTO t VALUES ({k}, 1)")
    os.rename("out/log-00000001.parquet", "out/_away")
    for text in ("SELECT * FROM t", "INSERT INTO t VALUES (7, 7)"):
        with pytest.raises(CatalogError, match=r"(?s)epoch 1 is missing in .*put it back"):
            rows(session, text)
    os.rename("out/_away", "out/log-00000001.parquet")
    assert len(rows(session, "SELECT * FROM t")) == 3
    Path("out/mine.parquet").write_bytes(b"")
    with pytest.raises(CatalogError, match=r"mine\.parquet was not written by a table with"):
        rows(session, "SELECT * FROM t")


CRASH = """
import os, sys
import pyarrow as pa
from cql.base.model import Field, Schema
from cql.base.types import BIGINT, STRING
from cql.catalog import upsert_log
from cql.catalog.files.tables import FileTable
upsert_log.LEAST_ROWS, upsert_log.MOST_EPOCHS = 5, 100
schema = Schema((Field("k", BIGINT), Field("s", STRING), Field("v", BIGINT, False)))
options = {"path": sys.argv[1], "upsert": "log"}
sink = FileTable(options, what="t", schema=schema, key=["k"]).sink(schema)
left = int(sys.argv[3])
remove, link = os.unlink, os.link
def dying(path):
    global left
    if "log-" in str(path):
        left -= 1
        if left < 0:
            os._exit(9)
    remove(path)
def linked(*names):
    if "base-" in str(names[1]):
        if sys.argv[2] == "linked":
            link(*names)
        os._exit(9)
    link(*names)
if sys.argv[2] == "unlink":
    os.unlink = dying
else:
    os.link = linked
for k, gone in ((1, None), (2, None), (3, 1), (4, 2), (1, 3), (5, 4)):
    sink.begin()
    sink.write(pa.record_batch({"k": [k], "s": ["x"], "v": [k]}))
    sink.delete(pa.record_batch({"k": pa.array([] if gone is None else [gone], pa.int64())}))
    sink.commit()
"""


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("when", "removed"),
    [("staged", 0), ("linked", 0), ("unlink", 0), ("unlink", 1), ("unlink", 2)],
)
def test_a_crash_of_a_compaction_loses_nothing(tmp_path: Path, when: str, removed: int) -> None:
    """Deleted keys stay deleted while files are removed, and the next epoch removes the rest."""
    folder = tmp_path / "t"
    done = subprocess.run(
        [sys.executable, "-c", CRASH, str(folder), when, str(removed)], check=False, timeout=300
    )
    assert done.returncode == 9
    names = {path.name for path in folder.glob("*.parquet")}
    whole = when != "staged"
    assert ("base-00000003.parquet" in names) is whole
    assert len(names) == 3 + whole - removed
    expected = [(3, "x", 3), (4, "x", 4)] if whole else [(2, "x", 2), (3, "x", 3)]
    assert here(table(folder)) == in_duckdb(folder) == expected
    sink: Any = table(folder).sink(SCHEMA)
    sink.begin()
    sink.write(pa.record_batch({"k": [9], "s": ["y"], "v": [9]}))
    sink.commit()
    assert here(table(folder)) == in_duckdb(folder) == [*expected, (9, "y", 9)]
    left = (
        {"base-00000003.parquet", "log-00000004.parquet"}
        if whole
        else names | {"log-00000003.parquet"}
    )
    assert set(os.listdir(folder)) == left


@pytest.mark.usefixtures("small")
def test_writers_and_readers_of_several_sessions(tmp_path: Path) -> None:
    """No epoch is lost, and a reader always finds one of the tables there were."""
    folder, sessions, epochs = tmp_path / "t", 3, 20
    errors: list[BaseException] = []

    def write(number: int) -> None:
        try:
            sink: Any = table(folder).sink(SCHEMA)
            for epoch in range(epochs):
                sink.begin()
                sink.write(pa.record_batch({"k": [0, number], "s": ["x", "x"], "v": [0, epoch]}))
                sink.delete(pa.record_batch({"k": [100 + number]}))
                sink.commit()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(n + 1,)) for n in range(sessions)]
    for thread in threads:
        thread.start()
    seen = dict.fromkeys(range(1, sessions + 1), -1)
    while any(thread.is_alive() for thread in threads):
        source = table(folder).source()
        source.version()
        found = {row["k"]: row["v"] for row in read(source)}
        assert not any(k >= 100 for k in found)
        for number, epoch in seen.items():
            assert found.get(number, -1) >= epoch
            seen[number] = found.get(number, -1)
    assert errors == []
    last = epochs - 1
    assert here(table(folder)) == [(0, "x", 0), *((n, "x", last) for n in (1, 2, 3))]


def test_versions(tmp_path: Path) -> None:
    """The version of a table differs after each epoch: a lookup finds that it must read again."""
    made = table(tmp_path / "t")
    versions = [made.source().version()]
    sink = made.sink(SCHEMA)
    for _ in range(3):
        sink.begin()
        sink.write(pa.record_batch({"k": [1], "s": ["x"], "v": [1]}))
        sink.commit()
        versions.append(made.source().version())
    assert len(set(versions)) == 4
    assert made.source().version() == versions[-1]
