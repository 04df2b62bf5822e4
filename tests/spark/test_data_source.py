"""Queries inside Spark SQL: the format and the table function ``cql`` give the session's rows."""

# ruff: noqa: N805
from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql.datasource import CaseInsensitiveDict

import cql
from cql.catalog.spark.data_source import QuerySource, result_columns
from cql.catalog.spark.session import log_of
from cql.catalog.spark.tables.files import table_files
from cql.catalog.spark.tables.folder import TableFolder, folder_of
from cql.errors import CatalogError, CqlError
from cql.session.session import Session
from cql.spark.sql.texts import PlannedText
from tests.support.runtimes import share
from tests.support.spark_streams import registration

SECOND = 1_000_000
TUMBLING = (
    "SELECT k, count(*) AS n, sum(v) AS s, window_end FROM inside.s"
    " [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k"
)
BAND = (
    "SELECT a.ts, a.v, b.v AS w FROM inside.s AS a JOIN inside.r AS b ON a.k = b.k"
    " AND b.ts BETWEEN a.ts - INTERVAL 9 SECONDS AND a.ts + INTERVAL 5 SECONDS"
)
#: Texts, each with whether several tasks share its plan.
TEXTS = {
    "filter": ("SELECT ts, k + 1 AS k, w FROM inside.s WHERE v % 7 = 3", True),
    "tumbling": (TUMBLING, True),
    "sliding": (
        "SELECT k, max(v) AS m, window_start FROM inside.s [RANGE 5 MINUTES SLIDE 1 MINUTE]"
        " GROUP BY k",
        True,
    ),
    "band join": (BAND, True),
    "sessions": (
        "SELECT k, count(*) AS n, window_end FROM inside.s [SESSION 5 SECONDS] GROUP BY k",
        False,
    ),
    "aggregate": ("SELECT k, count(*) AS n FROM inside.s GROUP BY k", False),
    "limit": ("SELECT ts, k FROM inside.s ORDER BY ts, k, v, w LIMIT 7", False),
    "relation": (
        "SELECT k, count(*) AS n FROM inside.s [RANGE 1 MINUTE] GROUP BY k EMIT CHANGES",
        False,
    ),
    "its last state": ("SELECT k, count(*) AS n FROM inside.s [RANGE 1 MINUTE] GROUP BY k", False),
    "a watermark for each key": (
        "SELECT k, count(*) AS n, window_end FROM inside.keyed [RANGE 1 MINUTE SLIDE 1 MINUTE]"
        " GROUP BY k",
        False,
    ),
    "two watermarks": (
        "SELECT a.v, b.v AS w FROM inside.s AS a JOIN inside.s WATERMARK ts DELAY OF INTERVAL"
        " '9' SECONDS AS b ON a.k = b.k AND a.ts = b.ts",
        False,
    ),
    "a plain table": ("SELECT v, w FROM inside.s_rows WHERE k = 2", True),
    "no table": ("SELECT 7 / 2 AS q, 'a' AS t", False),
    "views and constants": ("SELECT ts, v FROM few WHERE v < most", True),
    "a function": ("SELECT scaled(v) AS v FROM inside.s WHERE k = 3", True),
    "an aggregate of the user": ("SELECT k, spread(v) AS d FROM inside.s GROUP BY k", False),
}


def rows(seed: int, count: int) -> pa.Table:
    """Rows of which a third comes up to a minute late."""
    rng = np.random.default_rng(seed)
    now = np.cumsum(rng.integers(0, 2 * SECOND, count))
    back = rng.integers(0, 60 * SECOND, count) * (rng.random(count) < 0.3)
    return pa.table(
        {
            "ts": pa.array(now - back).cast(pa.timestamp("us", "UTC")),
            "k": rng.integers(0, 9, count),
            "v": rng.integers(0, 100, count),
            "w": np.array(["a", "b", None], object)[rng.integers(0, 3, count)],
        }
    )


def stored(spark: Any, folder: Path, name: str, table: pa.Table) -> None:
    """The table of Spark ``inside.<name>`` over three Parquet files."""
    (folder / name).mkdir()
    share = -(-table.num_rows // 3)
    for n in range(3):
        pq.write_table(
            table.slice(n * share, share), folder / name / f"{n}.parquet", row_group_size=150
        )
    columns = "ts timestamp, k bigint, v bigint, w string"
    where = (folder / name).as_uri()
    spark.sql(f"CREATE TABLE inside.{name} ({columns}) USING parquet LOCATION '{where}'")


def scaled(x: int) -> int:
    return x * 3 + 1


class Spread:
    def init():
        return 2**40, -(2**40)

    def update(state, x: int):
        return min(state[0], x), max(state[1], x)

    def final(state) -> int:
        return state[1] - state[0]


@pytest.fixture(scope="module")
def session(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("source")
    spark.sql("CREATE DATABASE inside")
    spark.sql("USE inside")
    with cql.connect(spark) as made:
        made.on_notice = lambda text: None
        for seed, name in enumerate(("s", "r")):
            stored(spark, folder, f"{name}_rows", rows(seed, 2000))
            made.sql(
                f"CREATE OR REPLACE STREAM inside.{name} FROM TABLE inside.{name}_rows"
                " WATERMARK FOR ts AS ts - INTERVAL 30 SECONDS"
            )
        made.sql(
            "CREATE OR REPLACE STREAM inside.keyed FROM TABLE inside.s_rows"
            " ORDERED BY ts WITHIN 30 SECONDS PUNCTUATE BY k"
        )
        made.sql("CREATE VIEW few AS SELECT * FROM inside.s WHERE k < 3")
        made.sql("CREATE CONSTANT most = 40")
        made.register_function("scaled", scaled)
        made.register_function("spread", Spread)
        made.register_table("here", pa.table({"a": [1, 2]}))
        made.set("partitions", 4)
        made.register_in_spark()
        yield made
    spark.sql("USE default")
    spark.sql("DROP DATABASE inside CASCADE")


def read(spark: Any, text: str) -> Any:
    return spark.read.format("cql").option("query", text).load()


def in_sql(text: str) -> str:
    """The text as a string of Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def same(frame: Any, expected: pa.Table) -> bool:
    """Whether a frame of Spark has the expected rows, in any order."""
    made, wanted = (
        sorted(map(repr, table.to_pylist()))
        for table in (frame.toArrow().cast(expected.schema), expected)
    )
    return made == wanted


@pytest.mark.sampled
@pytest.mark.parametrize("name", TEXTS)
def test_texts(spark: Any, session: Session, name: str) -> None:
    text, shared = TEXTS[name]
    expected = session.sql(text).to_arrow()
    if "EMIT CHANGES" in text:
        expected = pa.Table.from_batches(session.sql(text).batches())
    assert expected.num_rows > 0
    frame = read(spark, text)
    assert frame.rdd.getNumPartitions() == (4 if shared else 1)
    assert same(frame, expected)
    assert same(spark.sql(f"SELECT * FROM cql({in_sql(text)})"), expected)


@pytest.mark.parametrize("text", [TUMBLING, BAND])
def test_partitions(spark: Any, session: Session, text: str, seed: int, full: bool) -> None:
    expected = session.sql(text).to_arrow()
    try:
        for tasks in share((1, 2, 7, 40), int(text == BAND), 2, seed, full=full):
            session.set("partitions", tasks)
            session.register_in_spark(["inside.s", "inside.r"])
            frame = read(spark, text)
            assert frame.rdd.getNumPartitions() <= tasks
            assert same(frame, expected)
    finally:
        session.set("partitions", 4)
        session.register_in_spark()


def test_hints(spark: Any, session: Session) -> None:
    text = TUMBLING.replace("SELECT", "SELECT /*+ partitions(3), runtime(spark) */")
    frame, expected = read(spark, text), session.sql(TUMBLING).to_arrow()
    assert frame.rdd.getNumPartitions() == 3
    assert same(frame, expected)
    assert session.sql(text).to_arrow().equals(expected)
    with pytest.raises(AnalysisException, match=r"the hint workers\(2\) cannot be obeyed"):
        read(spark, TUMBLING.replace("SELECT", "SELECT /*+ workers(2) */"))


def test_spark_sql_over_the_rows(spark: Any, session: Session) -> None:
    """A temporary view, a permanent one, a join and an aggregate of Spark."""
    expected = session.sql(TUMBLING).to_arrow()
    total = pa.compute.sum(expected["n"]).as_py()
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW counts USING cql OPTIONS (query {in_sql(TUMBLING)})"
    )
    assert same(spark.table("counts"), expected)
    spark.sql(f"CREATE TABLE inside.base USING cql OPTIONS (query {in_sql(TUMBLING)})")
    spark.sql(
        "CREATE VIEW inside.permanent AS"
        f" SELECT * FROM inside.base WITH (query = {in_sql(TUMBLING)}) WHERE n > 0"
    )
    try:
        assert same(spark.table("inside.permanent"), expected)
        joined = spark.sql(
            "SELECT sum(c.n) AS n, count(DISTINCT r.k) AS k FROM counts AS c JOIN"
            " (SELECT DISTINCT k FROM inside.r_rows) AS r ON c.k = r.k"
        ).collect()
        assert joined == [(total, 9)]
        with pytest.raises(AnalysisException, match=r"reads a table USING cql, WITH"):
            spark.table("inside.base").collect()
    finally:
        spark.sql("DROP VIEW inside.permanent")
        spark.sql("DROP TABLE inside.base")


def test_columns_of_all_types(spark: Any, session: Session, tmp_path: Path) -> None:
    day = dt.datetime(1965, 3, 4, 5, 6, 7, 890123)
    values: dict[str, tuple[pa.DataType, list[Any]]] = {
        "a_bool": (pa.bool_(), [True, False]),
        "a_byte": (pa.int8(), [-128, 127]),
        "a_short": (pa.int16(), [-(2**15), 2**15 - 1]),
        "an_int": (pa.int32(), [-(2**31), 2**31 - 1]),
        "a_long": (pa.int64(), [-(2**63), 2**63 - 1]),
        "a_float": (pa.float32(), [float("inf"), -0.5]),
        "a_double": (pa.float64(), [1e308, -0.0]),
        "a_decimal": (
            pa.decimal128(12, 3),
            [decimal.Decimal("-123456789.125"), decimal.Decimal("0.001")],
        ),
        "a_date": (pa.date32(), [dt.date(1583, 1, 1), dt.date(2999, 12, 31)]),
        "a_time": (pa.timestamp("us", "UTC"), [day.replace(tzinfo=dt.UTC)] * 2),
        "a_plain_time": (pa.timestamp("us"), [day, dt.datetime(2024, 3, 31, 2, 30)]),
        "a_text": (pa.string(), ["", "d'Été\n\U0001f389\0"]),
        "some_bytes": (pa.binary(), [b"", b"\x00\xff'"]),
    }
    table = pa.table({n: pa.array([*held, None], kind) for n, (kind, held) in values.items()})
    pq.write_table(table, tmp_path / "0.parquet")
    columns = (
        "a_bool boolean, a_byte tinyint, a_short smallint, an_int int, a_long bigint,"
        " a_float float, a_double double, a_decimal decimal(12, 3), a_date date, a_time timestamp,"
        " a_plain_time timestamp_ntz, a_text string, some_bytes binary"
    )
    spark.sql(f"CREATE TABLE inside.types ({columns}) USING parquet LOCATION '{tmp_path.as_uri()}'")
    session.register_in_spark()
    lists = (
        "SELECT array_agg(an_int) AS i, array_agg(a_text) AS t, array_agg(a_time) AS z,"
        " array_agg(a_decimal) AS d, count(*) AS n, sum(a_decimal) AS s FROM inside.types"
    )
    for text in ("SELECT * FROM inside.types", lists):
        expected = session.sql(text).to_arrow()
        frame = read(spark, text)
        assert same(frame, expected)
        assert same(spark.sql(f"SELECT * FROM cql({in_sql(text)})"), expected)
        assert all(field.nullable for field in frame.schema.fields)
    made = read(spark, "SELECT * FROM inside.types").schema.simpleString()
    assert made == spark.table("inside.types").schema.simpleString()


def log(spark: Any) -> str:
    file = log_of(spark)
    assert file is not None
    return file.read_text("utf-8")


def appended(spark: Any, session: Session, table: str, add: Any) -> None:
    """``add`` makes rows of ``table`` that a registration from before sees. A view with USING keeps
    the files of its first read; then a log says so."""
    text = f"SELECT * FROM {table}"
    session.register_in_spark()
    options = f"USING cql OPTIONS (query {in_sql(text)})"
    spark.sql(f"CREATE TABLE inside.lasting {options}")
    spark.sql(f"CREATE TEMPORARY VIEW of_first_read {options}")
    spark.sql(
        "CREATE TEMPORARY VIEW up_to_date AS"
        f" SELECT * FROM inside.lasting WITH (query = {in_sql(text)})"
    )
    before = session.sql(text).to_arrow()
    assert same(spark.table("up_to_date"), before)
    assert same(spark.table("of_first_read"), before)
    known = len(log(spark))
    add()
    after = session.sql(text).to_arrow()
    assert after.num_rows > before.num_rows
    assert same(spark.table("up_to_date"), after)
    assert same(read(spark, text), after)
    assert same(spark.sql(f"SELECT * FROM cql({in_sql(text)})"), after)
    assert "has changed since Spark planned" not in log(spark)[known:]
    assert same(spark.table("of_first_read"), before)
    assert "has changed since Spark planned this read of it" in log(spark)[known:]
    for view in ("up_to_date", "of_first_read"):
        spark.catalog.dropTempView(view)
    spark.sql("DROP TABLE inside.lasting")


def test_rows_that_are_added_are_seen(spark: Any, session: Session, tmp_path: Path) -> None:
    stored(spark, tmp_path, "grows", rows(7, 300))
    more = rows(8, 200)
    (tmp_path / "grows" / "below").mkdir()
    pq.write_table(more, tmp_path / "grows" / "_hidden.parquet")
    pq.write_table(more, tmp_path / "grows" / ".hidden.parquet")
    pq.write_table(more, tmp_path / "grows" / "below" / "0.parquet")
    appended(
        spark,
        session,
        "inside.grows",
        lambda: pq.write_table(more, tmp_path / "grows" / "4.parquet"),
    )


def test_rows_that_a_session_adds_are_seen(spark: Any, session: Session) -> None:
    session.sql("CREATE TABLE inside.made AS SELECT k, v FROM inside.s WHERE v < 9")
    insert = "INSERT INTO inside.made SELECT k, v FROM inside.s WHERE v > 9"
    appended(spark, session, "inside.made", lambda: session.sql(insert))
    session.sql("DROP TABLE inside.made")


def test_partitions_that_are_added_are_seen(spark: Any, session: Session) -> None:
    spark.sql(
        "CREATE TABLE inside.parts (v bigint, d date, w string) USING parquet PARTITIONED BY (d, w)"
    )
    spark.sql("INSERT INTO inside.parts VALUES (1, DATE '2024-01-01', 'a/b'), (2, NULL, NULL)")
    insert = "INSERT INTO inside.parts VALUES (3, DATE '2023-01-01', 'x y%'), (4, NULL, 'a=b')"
    appended(spark, session, "inside.parts", lambda: spark.sql(insert))


def test_a_table_that_only_spark_can_list(spark: Any, session: Session, tmp_path: Path) -> None:
    """Its files are those of the registration."""
    pq.write_table(pa.table({"k": [1, 2]}), tmp_path / "0.parquet")
    spark.sql(
        "CREATE TABLE inside.chosen (k bigint) USING parquet"
        f" OPTIONS (pathGlobFilter '?.parquet') LOCATION '{tmp_path.as_uri()}'"
    )
    session.register_in_spark()
    pq.write_table(pa.table({"k": [3]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"k": [4]}), tmp_path / "not.parquet")
    seen = []
    for _ in range(2):
        seen.append(sorted(row.k for row in read(spark, "SELECT k FROM inside.chosen").collect()))
        spark.catalog.refreshTable("inside.chosen")
        session.register_in_spark()
    assert seen == [[1, 2], [1, 2, 3]]


def described(spark: Any, table: str) -> TableFolder:
    files = table_files(spark, table)
    assert files is not None
    return folder_of(spark, ("inside", table), files)


def test_folders_that_are_not_of_the_table(spark: Any, session: Session, tmp_path: Path) -> None:
    spark.sql(
        "CREATE TABLE inside.days (v bigint, d int) USING parquet PARTITIONED BY (d)"
        f" LOCATION '{tmp_path.as_uri()}'"
    )
    spark.sql("INSERT INTO inside.days VALUES (1, 1), (2, 2)")
    folder = described(spark, "days")
    assert folder.folder == tmp_path
    assert [f.partition for f in folder.list_files().files] == [(1,), (2,)]
    (tmp_path / "d=x").mkdir()
    with pytest.raises(CatalogError, match="names no value of the type integer"):
        folder.list_files()
    (tmp_path / "d=x").rmdir()
    spark.sql("ALTER TABLE inside.days DROP PARTITION (d = 2)")
    assert described(spark, "days").folder is None
    (tmp_path / "_spark_metadata").mkdir()
    with pytest.raises(CatalogError, match="the log there says which files count"):
        folder.list_files()


def test_a_table_without_rows(spark: Any, session: Session) -> None:
    spark.sql("CREATE TABLE inside.no_rows (ts timestamp, k bigint) USING parquet")
    session.sql("CREATE OR REPLACE STREAM inside.none FROM TABLE inside.no_rows ORDERED BY ts")
    session.register_in_spark()
    for text in ("SELECT k FROM inside.none", TUMBLING.replace("inside.s", "inside.none")):
        assert read(spark, text.replace("sum(v)", "sum(k)")).collect() == []
    session.sql("DROP STREAM inside.none")


def test_a_table_that_is_gone(spark: Any, session: Session) -> None:
    spark.sql("CREATE TABLE inside.gone USING parquet AS SELECT 1 AS k")
    session.register_in_spark()
    spark.sql("DROP TABLE inside.gone")
    with pytest.raises(AnalysisException, match=r"cannot be listed: No such file"):
        read(spark, "SELECT k FROM inside.gone")


def test_an_orc_table(spark: Any, session: Session, tmp_path: Path) -> None:
    orc.write_table(pa.table({"k": [1, 2, 3]}), tmp_path / "0.orc")
    spark.sql(f"CREATE TABLE inside.orcs (k bigint) USING orc LOCATION '{tmp_path.as_uri()}'")
    session.register_in_spark()
    frame = read(spark, "SELECT k FROM inside.orcs WHERE k > 1")
    assert (sorted(row.k for row in frame.collect()), frame.rdd.getNumPartitions()) == ([2, 3], 1)


def test_late_rows_are_logged(spark: Any, session: Session) -> None:
    query = session.sql(TUMBLING)
    query.to_arrow()
    (pairs,) = [e["count"] for e in query.late().to_pylist() if e["kind"] == "pairs"]
    start = dt.datetime.now(dt.UTC)
    spark.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")
    try:
        read(spark, TUMBLING).collect()
        found = "SELECT msg FROM python_worker_logs() WHERE logger = 'cql' AND ts > :start"
        logs = spark.sql(found, args={"start": start}).collect()
    finally:
        spark.conf.set("spark.sql.pyspark.worker.logging.enabled", "false")
    counts = [int(row.msg.split()[4].replace(",", "")) for row in logs]
    assert (sum(counts), len(counts)) == (pairs, 4)
    known = len(log(spark))
    read(spark, TUMBLING).collect()
    assert "left out" in log(spark)[known:]


#: Texts that are wrong, with a part of the message and the words above the caret.
WRONG = {
    "SELECT k,\n  kk FROM inside.s": ("there is no column kk (line 2, column 3)", "kk"),
    "SELECT k FORM inside.s": ("", None),
    "SELECT k FROM inside.nope": ("there is no stream or table inside.nope", "inside.nope"),
    "SELECT a FROM here": ("here cannot be read inside Spark SQL", "here"),
    "SELECT k FROM inside.s; SELECT 1": ("expected one statement", "S"),
    "": ("expected one statement", None),
    "INSERT INTO inside.s_rows SELECT * FROM inside.s_rows": ("reads the rows of a", "INSERT"),
    "DROP TABLE inside.s_rows": ("reads the rows of a SELECT", "DROP"),
    "EXPLAIN SELECT 1 AS a": ("reads the rows of a SELECT", "EXPLAIN"),
    "SELECT k, v AS K FROM inside.s": ("the query gives two columns k", None),
    f"{TUMBLING} LATE OUTPUT INTO inside.late": ("LATE OUTPUT is not supported", "inside"),
}


def check_message(shown: str, text: str) -> None:
    """The message of a wrong text, with its place."""
    message, word = WRONG[text]
    assert message in shown
    if word is not None:
        lines = shown.split("\n")
        (caret,) = [n for n, line in enumerate(lines) if line.strip() and not line.strip(" ^")]
        at = lines[caret].index("^")
        assert lines[caret - 1][at:].startswith(word)


def test_wrong_texts(session: Session) -> None:
    """What Spark's workers do with a text, in this process: a failure costs Spark a worker."""
    registered = registration(session)
    for text in WRONG:
        with pytest.raises(CqlError) as caught:
            result_columns(PlannedText(registered, text).schema)
        check_message(str(caught.value), text)


def test_a_wrong_text_in_spark(spark: Any, session: Session) -> None:
    """The message of Spark ends with ours, which has the place in the text."""
    text = next(iter(WRONG))
    for attempt in (
        lambda: read(spark, text),
        lambda: spark.sql(f"SELECT * FROM cql({in_sql(text)})"),
        lambda: spark.sql(f"CREATE TEMPORARY VIEW v USING cql OPTIONS (query {in_sql(text)})"),
    ):
        with pytest.raises(AnalysisException) as caught:
            attempt()
        shown = str(caught.value).split(" SQLSTATE")[0]
        ours = shown[shown.index("cql.errors.") :]
        assert "File" not in ours
        check_message(ours, text)


def test_an_error_of_a_row(spark: Any, session: Session) -> None:
    text = "SELECT 100 / (v - 50) AS q FROM inside.s"
    for frame in (read(spark, text), spark.sql(f"SELECT * FROM cql({in_sql(text)})")):
        with pytest.raises(PythonException) as caught:
            frame.collect()
        ours = str(caught.value).split("cql.errors.RunError: ")[1].split("\n")
        assert ours[0].startswith("division by zero in 100 / (v - 50)")
        assert ours[2].strip(" ") == "^" * len("100 / (v - 50)")


def test_hostile_texts(spark: Any, session: Session, tmp_path: Path) -> None:
    """A text reaches neither Spark's SQL nor a shell nor a file that is not registered."""
    canary = tmp_path / "canary"
    secret = tmp_path / "secret.parquet"
    pq.write_table(pa.table({"k": [42]}), secret)
    (tmp_path / "secret.csv").write_text("k\n42\n", "utf-8")
    touch = f"`touch {canary}` $(touch {canary})"
    harmless = f"'; DROP TABLE inside.s_rows; --\" {touch} \\ /* ; */"
    literal = harmless.replace("'", "''")
    for text in (
        f"SELECT k, '{literal}' AS t FROM inside.s WHERE v = 3 -- '; DROP TABLE s_rows; \"",
        f"/* '; DROP TABLE inside.s_rows; */ SELECT k, '{literal}' AS t FROM inside.s LIMIT 3;",
    ):
        expected = session.sql(text).to_arrow()
        assert expected["t"].to_pylist() == [harmless] * expected.num_rows
        assert same(read(spark, text), expected)
        assert same(spark.sql("SELECT * FROM cql(:text)", args={"text": text}), expected)
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW h USING cql OPTIONS (query {in_sql(text)})")
        assert same(spark.table("h"), expected)
    spark.catalog.dropTempView("h")
    registered = registration(session)
    for text in (
        f"SELECT * FROM read_parquet('{secret}')",
        f"SELECT * FROM parquet.`{secret}`",
        f"SELECT * FROM csv.`{secret.with_suffix('.csv')}`",
        f"SELECT * FROM `{secret}`",
        f"CREATE STREAM x USING parquet OPTIONS (path '{secret}') ORDERED BY k",
        f"CREATE TABLE x USING csv OPTIONS (path '{canary}') AS SELECT 1 AS a",
        "SELECT java_method('java.lang.System', 'exit', '3') AS a",
        f"SELECT * FROM TABLE(replay('{secret}'))",
        f"SET path = '{secret}'; SELECT 1 AS a",
    ):
        with pytest.raises(CqlError):
            PlannedText(registered, text)
    assert not canary.exists()
    assert spark.table("inside.s_rows").count() == 2000


def test_other_options_are_refused(spark: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": [42]}), tmp_path / "s.parquet")
    options = {"query": "SELECT 1 AS a"}
    for name in ("path", "stream.s", "registered", "partitions"):
        source = QuerySource(CaseInsensitiveDict({**options, name: str(tmp_path)}))
        with pytest.raises(CatalogError, match=f"the format cql has no option {name}"):
            source.schema()
    with pytest.raises(CatalogError, match="needs the option query"):
        QuerySource(CaseInsensitiveDict()).schema()
    with pytest.raises(AnalysisException, match="the format cql has no option path"):
        spark.read.format("cql").options(**options).load(str(tmp_path))


def test_declared_columns_must_agree(spark: Any, session: Session) -> None:
    reader = spark.read.format("cql").option("query", "SELECT k, v FROM inside.s")
    assert reader.schema("k bigint, v bigint").load().count() == 2000
    with pytest.raises(AnalysisException, match=r"the query gives the columns struct<k:bigint,v:"):
        reader.schema("k bigint, v int").load().count()


def test_what_is_not_supported(spark: Any, session: Session, tmp_path: Path) -> None:
    frame = read(spark, "SELECT k FROM inside.s")
    with pytest.raises(AnalysisException, match=r"write\.format\('cql'\) is not supported"):
        frame.write.format("cql").mode("append").save()
    with pytest.raises(AnalysisException, match="takes the text of a query, as a constant"):
        spark.sql("SELECT * FROM range(2) AS r, LATERAL cql(CAST(r.id AS STRING))")


def test_a_registration_of_some(spark: Any, session: Session) -> None:
    notices: list[str] = []
    with cql.connect(spark) as other:
        other.on_notice = notices.append
        offset = object()
        other.register_function("odd", lambda x: x if offset else 0, ["bigint"], "bigint")
        with pytest.raises(CatalogError, match=r"there is no stream or table inside\.nope"):
            other.register_in_spark(["inside.nope"])
        other.register_in_spark(["inside.s"])
        try:
            assert read(spark, "SELECT k FROM INSIDE.S").count() == 2000
            assert read(spark, "SELECT k FROM spark_catalog.inside.s").count() == 2000
            for text in (
                "SELECT k FROM inside.r",
                "SELECT k FROM inside.s_rows",
                "SELECT 1 FROM few",
            ):
                with pytest.raises(AnalysisException, match="there is no stream or table"):
                    read(spark, text)
            with pytest.raises(AnalysisException, match="unknown function odd"):
                read(spark, "SELECT odd(k) AS k FROM inside.s")
        finally:
            session.register_in_spark()
    assert any("odd" in text and "is not registered in Spark" in text for text in notices)


def test_a_session_without_spark() -> None:
    with (
        cql.connect(spark=False) as session,
        pytest.raises(CatalogError, match="register_in_spark: this session has no Spark"),
    ):
        session.register_in_spark()


def test_a_frame_reads_the_rows_of_its_plan(spark: Any, session: Session) -> None:
    """A task that runs again gives the same rows."""
    frame = read(spark, TUMBLING)
    first = frame.toArrow()
    assert first.num_rows > 0
    assert frame.toArrow().equals(first)
    assert frame.count() == first.num_rows
