"""Decimals that declare more than 18 digits: values of up to 18 digits behave as in any decimal
column, longer values are bad rows, whatever the source."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import cql
from cql.errors import BindError, CatalogError, CqlError, NotSupportedError, RunError
from tests.support.runtimes import RUNTIMES, Settings, apply, named

WIDE = pa.decimal128(20, 2)
#: The last two values have 19 digits.
TEXTS = ("1.50", None, "-2.25", "9999999999999999.99", "-0.01", "12345678901234567.89",
         "-10000000000000000.00")  # fmt: skip
VALUES = [None if text is None else Decimal(text) for text in TEXTS]
GOOD = VALUES[:5]


@pytest.fixture
def session() -> Iterator[cql.Session]:
    with cql.connect(spark=False) as made:
        yield made


def table_of(values: list[Decimal | None], kind: pa.DataType = WIDE) -> pa.Table:
    return pa.table({"t": range(len(values)), "d": pa.array(values, kind)})


def from_arrow(session: cql.Session, path: Path) -> None:
    session.create_stream("s", table_of(VALUES), ordered_by="t")


def from_rows(session: cql.Session, path: Path) -> None:
    rows = [{"t": t, "d": value} for t, value in enumerate(VALUES)]
    session.create_stream("s", rows, ordered_by="t")


def from_pandas(session: cql.Session, path: Path) -> None:
    session.create_stream("s", table_of(VALUES).to_pandas(), ordered_by="t")


def from_polars(session: cql.Session, path: Path) -> None:
    polars = pytest.importorskip("polars")
    session.create_stream("s", polars.from_arrow(table_of(VALUES)), ordered_by="t")


def from_duckdb(session: cql.Session, path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    held = table_of(VALUES)
    session.create_stream("s", duckdb.from_arrow(held), ordered_by="t")


def from_parquet(session: cql.Session, path: Path) -> None:
    pq.write_table(table_of(VALUES), path / "a.parquet")
    session.sql(f"CREATE STREAM s USING parquet OPTIONS (path '{path}') ORDERED BY t")


def from_arrow_file(session: cql.Session, path: Path) -> None:
    feather.write_feather(table_of(VALUES), path / "a.arrow", compression="uncompressed")
    session.sql(f"CREATE STREAM s USING arrow OPTIONS (path '{path}') ORDERED BY t")


def from_csv(session: cql.Session, path: Path) -> None:
    lines = [f"{t},{text or ''}\n" for t, text in enumerate(TEXTS)]
    (path / "a.csv").write_text("t,d\n" + "".join(lines))
    declared = "CREATE STREAM s (t BIGINT, d DECIMAL(20, 2))"
    session.sql(f"{declared} USING csv OPTIONS (path '{path}') ORDERED BY t")


def from_json(session: cql.Session, path: Path) -> None:
    lines = [f'{{"t": {t}, "d": {text or "null"}}}\n' for t, text in enumerate(TEXTS)]
    (path / "a.json").write_text("".join(lines))
    declared = "CREATE STREAM s (t BIGINT, d DECIMAL(20, 2))"
    session.sql(f"{declared} USING json OPTIONS (path '{path}') ORDERED BY t")


SOURCES = [from_arrow, from_rows, from_pandas, from_polars, from_duckdb, from_parquet,
           from_arrow_file, from_csv, from_json]  # fmt: skip


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: s.__name__)
def test_values_of_more_digits_are_bad_rows(
    session: cql.Session, tmp_path: Path, source: Callable[[cql.Session, Path], None]
) -> None:
    source(session, tmp_path)
    with pytest.raises(CqlError, match=r"column d: 12345678901234567\.89 has more than 18 digits"):
        session.sql("SELECT t, d FROM s").to_arrow()
    query = session.sql("SELECT t, d FROM s ON BAD ROW KEEP")
    found = query.to_arrow()
    assert pa.types.is_decimal(found["d"].type)
    assert found["d"].type.precision >= 19
    assert found.to_pylist() == [{"t": t, "d": value} for t, value in enumerate(GOOD)]
    bad = session.sql("SHOW BAD ROWS").to_arrow().to_pylist()
    assert [row["offset"] for row in bad] == [5, 6]
    for row, value in zip(bad, TEXTS[5:], strict=True):
        assert f"column d: {value} has more than 18 digits" in row["reason"]


TWINS = {
    "select": "SELECT t, d, d + 1 AS p, d * 2 AS m, d / 4 AS q, -d AS n, abs(d) AS a, d % 7 AS r,"
    " round(d, 1) AS o, floor(d) AS f, CAST(d AS STRING) AS x, CAST(d AS DOUBLE) AS y,"
    " CAST(d AS BIGINT) AS i, CASE WHEN t < 2 THEN d ELSE 0 END AS c, coalesce(d, 1) AS l,"
    " d IN (1.5, 7) AS h, d > -2.3 AS g, d = 99999999999999999 AS e FROM s WHERE d IS NOT NULL",
    "group": "SELECT k, count(d) AS n, sum(d) AS s, min(d) AS mi, max(d) AS ma, avg(d) AS a,"
    " count(DISTINCT d) AS c, median(d) AS me, percentile_disc(0.5) WITHIN GROUP (ORDER BY d) AS p,"
    " max_by(t, d) AS b FROM s GROUP BY k",
    "key": "SELECT d, count(*) AS n, max(t) AS t FROM s [RANGE 10, SLIDE 10] GROUP BY d",
    "order": "SELECT d, t FROM s ORDER BY d DESC, t",
    "distinct": "SELECT DISTINCT d FROM s",
    "join": "SELECT a.t, b.t AS u, a.d FROM s AS a JOIN s AS b ON a.d = b.d",
    "union": "SELECT d FROM s UNION SELECT CAST(k AS DECIMAL(4, 1)) AS d FROM s",
}


def rows_of(k: int, kind: pa.DataType) -> pa.Table:
    values = [Decimal(n % 7 - 3) * Decimal("1.25") if n % 5 else None for n in range(k)]
    values[0], values[1] = Decimal("999999999.99"), Decimal("-999999999.99")
    return table_of(values, kind).append_column("k", pa.array([n % 3 for n in range(k)]))


def bag(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.sampled
@pytest.mark.parametrize("name", TWINS)
def test_a_wide_column_gives_what_one_of_18_digits_does(session: cql.Session, name: str) -> None:
    found = []
    for kind in (pa.decimal128(18, 2), WIDE, pa.decimal128(38, 2)):
        session.create_stream("s", rows_of(40, kind), ordered_by="t", replace=True)
        found.append(session.sql(TWINS[name]).to_arrow())
    assert found[0].num_rows
    assert bag(found[0]) == bag(found[1]) == bag(found[2])


@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
def test_groups_of_a_wide_key_in_every_runtime(session: cql.Session, settings: Settings) -> None:
    found = []
    for kind in (pa.decimal128(18, 2), WIDE):
        session.create_stream("s", rows_of(200, kind), ordered_by="t", replace=True)
        apply(session, settings)
        found.append(session.sql(TWINS["key"]).to_arrow())
    assert bag(found[0]) == bag(found[1])
    assert found[1]["d"].type == WIDE


def test_the_declared_type_stays_with_what_is_passed_on(session: cql.Session) -> None:
    session.create_stream("s", rows_of(10, pa.decimal128(38, 2)), ordered_by="t")
    found = session.sql(
        "SELECT d, CASE WHEN t > 1 THEN d ELSE 0 END AS c, CAST(d AS DECIMAL(20, 2)) AS n, d + 1"
        " AS p, coalesce(d, 0.5) AS l, CAST(5 AS DECIMAL(30, 4)) AS f FROM s"
    ).to_arrow()
    types = dict(zip(found.schema.names, map(str, found.schema.types), strict=True))
    assert types == {
        "d": "decimal128(38, 2)",
        "c": "decimal128(38, 2)",
        "n": "decimal128(20, 2)",
        "p": "decimal128(18, 2)",
        "l": "decimal128(38, 2)",
        "f": "decimal128(30, 4)",
    }
    grouped = session.sql("SELECT max(d) AS m, sum(d) AS s FROM s").to_arrow()
    assert [str(t) for t in grouped.schema.types] == ["decimal128(38, 2)", "decimal128(18, 2)"]
    both = "SELECT CAST(d AS DECIMAL(20, 2)) AS d FROM s UNION ALL SELECT d FROM s"
    assert session.sql(both).to_arrow()["d"].type == pa.decimal128(38, 2)
    described = session.sql("DESCRIBE s").to_arrow().to_pylist()
    assert {row["column"]: row["type"] for row in described}["d"] == "decimal(38,2)"


def test_constants_that_no_value_reaches(session: cql.Session) -> None:
    session.create_stream("s", table_of(GOOD), ordered_by="t")

    def count(condition: str) -> Any:
        return (
            session.sql(f"SELECT count(*) AS n FROM s WHERE {condition}").to_arrow()["n"][0].as_py()
        )

    for constant in ("99999999999999999", "10000000000000000.5", "10000000000000000"):
        for operator, low, high in (("<", 4, 0), ("<=", 4, 0), ("=", 0, 0), ("<>", 4, 4),
                                    (">", 0, 4), (">=", 0, 4)):  # fmt: skip
            assert count(f"d {operator} {constant}") == low
            assert count(f"d {operator} -{constant}") == high
    assert count("d IN (1.5, 99999999999999999)") == 1
    assert count("d BETWEEN -99999999999999999 AND 99999999999999999") == 4
    assert count("d <=> 99999999999999999") == 0
    assert count("d < 99999999999999999999e0") == 4
    with pytest.raises(BindError, match="does not fit in 64 bits") as caught:
        session.sql("SELECT t FROM s WHERE d < 99999999999999999999")
    assert caught.value.column == 27


def test_what_is_refused_and_what_overflows(session: cql.Session) -> None:
    session.create_stream("s", table_of(GOOD), ordered_by="t")
    for text, column in (
        ("SELECT CAST(t AS DECIMAL(39, 2)) AS x FROM s", 18),
        ("SELECT CAST(t AS DECIMAL(38, 19)) AS x FROM s", 18),
        ("CREATE TABLE x (d DECIMAL(38, 20)) USING parquet OPTIONS (path 'x')", 19),
    ):
        with pytest.raises(NotSupportedError, match="decimal") as caught:
            session.sql(text)
        assert caught.value.column == column
        assert caught.value.hint
    for text in (
        "SELECT d * 100 AS x FROM s",
        "SELECT CAST(d AS DECIMAL(38, 4)) AS x FROM s",
        "SELECT t AS x FROM s WHERE d < CAST(10000000000000000 AS DECIMAL(20, 2))",
        "SELECT sum(d) AS x FROM (SELECT d FROM s UNION ALL SELECT d FROM s) AS u",
    ):
        with pytest.raises(RunError):
            session.sql(text).to_arrow()
    kept = session.sql("SELECT CAST(d AS DECIMAL(38, 4)) AS x FROM s ON BAD ROW KEEP").to_arrow()
    assert kept["x"].type == pa.decimal128(38, 4)
    assert kept["x"].to_pylist() == [Decimal("1.5"), None, Decimal("-2.25"), Decimal("-0.01")]
    with pytest.raises(RunError, match="of which 18 digits are held"):
        session.sql("SELECT CAST('12345678901234567.89' AS DECIMAL(20, 2)) AS x").to_arrow()
    nothing = session.sql("SELECT TRY_CAST('12345678901234567.89' AS DECIMAL(20, 2)) AS x")
    assert nothing.to_arrow().to_pylist() == [{"x": None}]


def test_columns_of_files_and_their_hints(session: cql.Session, tmp_path: Path) -> None:
    from_parquet(session, tmp_path)
    place = f"USING parquet OPTIONS (path '{tmp_path}')"
    session.sql(f"CREATE STREAM narrow (t BIGINT, d DECIMAL(18, 2)) {place} ORDERED BY t")
    query = session.sql("SELECT d FROM narrow ON BAD ROW KEEP").to_arrow()
    assert query["d"].type == pa.decimal128(18, 2)
    assert query["d"].to_pylist() == GOOD
    with pytest.raises(CatalogError) as caught:
        session.sql(f"CREATE STREAM other (t BIGINT, d BIGINT) {place}")
    assert caught.value.hint == "declare d decimal(20,2), and CAST it in the query"
    session.create_stream("deep", pa.table({"a": pa.array([1], pa.decimal128(38, 20)), "b": [1]}))
    with pytest.raises(BindError, match="20 decimal places") as refused:
        session.sql("SELECT a FROM deep")
    assert refused.value.hint == "convert it where the data is made"


def test_written_files_have_the_declared_type(session: cql.Session, tmp_path: Path) -> None:
    session.create_stream("s", table_of(GOOD), ordered_by="t")
    path = tmp_path / "made"
    session.sql(f"CREATE TABLE made (d DECIMAL(38, 2)) USING parquet OPTIONS (path '{path}')")
    session.sql("INSERT INTO made SELECT d FROM s WHERE t < 3")
    session.sql("INSERT INTO made SELECT sum(d) FROM s WHERE t < 3")
    found = session.sql("SELECT d FROM made ORDER BY d").to_arrow()
    assert found["d"].type == pa.decimal128(38, 2)
    assert sorted(map(str, found["d"].to_pylist())) == ["-0.75", "-2.25", "1.50", "None"]
    assert {pq.read_schema(f).field("d").type for f in path.rglob("*.parquet")} == {
        pa.decimal128(38, 2)
    }


@pytest.mark.spark
def test_tables_of_spark(spark: Any) -> None:
    spark.sql("CREATE TABLE wide_in (t INT, d DECIMAL(38, 10), p DECIMAL(20, 2)) USING parquet")
    spark.sql("CREATE TABLE wide_out (k INT, d DECIMAL(38, 10), p DECIMAL(20, 2)) USING parquet "
              "PARTITIONED BY (p)")  # fmt: skip
    spark.sql(
        "INSERT INTO wide_in VALUES (1, 1.5, -2.25), (2, NULL, NULL), (3, -12345678.0000000001, 7),"
        " (4, 123456789, 7), (5, 0.25, 12345678901234567.89)"
    )
    good = [(1, Decimal("1.5"), Decimal("-2.25")), (2, None, None),
            (3, Decimal("-12345678.0000000001"), Decimal(7))]  # fmt: skip
    with cql.connect(spark) as session:
        with pytest.raises(CqlError, match=r"column d: 123456789\.0000000000 has more than 18 dig"):
            session.sql("SELECT t, d, p FROM wide_in").to_arrow()
        found = session.sql("SELECT t, d, p FROM wide_in ON BAD ROW KEEP").to_arrow()
        assert [tuple(row.values()) for row in found.to_pylist()] == good
        assert found["d"].type == pa.decimal128(38, 10)
        bad = session.sql("SHOW BAD ROWS").to_arrow().to_pylist()
        assert [row["offset"] for row in bad] == [3, 4]
        session.sql("INSERT INTO wide_out SELECT t, d, p FROM wide_in WHERE t < 4 ON BAD ROW KEEP")
        session.sql("INSERT INTO wide_out SELECT 9, sum(d), 7 FROM wide_in WHERE t = 1 "
                    "ON BAD ROW KEEP")  # fmt: skip
        written = spark.sql("SELECT * FROM wide_out ORDER BY k").collect()
        assert [tuple(row) for row in written] == [*good, (9, Decimal("1.5"), Decimal(7))]
        kinds = {f.name: f.dataType.simpleString() for f in spark.table("wide_out").schema}
        assert kinds == {"k": "int", "d": "decimal(38,10)", "p": "decimal(20,2)"}
        back = session.sql("SELECT p, count(*) AS n FROM wide_out GROUP BY p").to_arrow()
        assert bag(back) == bag(
            pa.table({"p": pa.array([Decimal("-2.25"), None, Decimal(7)], WIDE), "n": [1, 1, 2]})
        )
        frame = spark.createDataFrame(
            [(1, Decimal("1.5"), dt.date(2020, 1, 1))], "k INT, d DECIMAL(38, 18), x DATE"
        )
        session.create_stream("frame", frame)
        with pytest.raises(CqlError, match="has more than 18 digits"):
            session.sql("SELECT d FROM frame").to_arrow()
    for name in ("wide_in", "wide_out"):
        spark.sql(f"DROP TABLE {name}")
