"""Joins against DuckDB, at the last instant of bounded input: streams without windows and tables,
whose rows never leave, and windows of the last rows of each key."""

from __future__ import annotations

import random
from itertools import cycle

import duckdb
import pyarrow as pa
import pytest

import cql
from cql.base.window import MAX_EVENT_TIME
from cql.errors import NotSupportedError, RunError
from tests.reference.naive_compare import difference, storage_rows

pytestmark = pytest.mark.usefixtures("shared_kernels")

KINDS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN")
CONDITIONS = ("a.k = b.k AND a.v < b.v AND b.v > 5", "a.v > 15 AND a.s < b.s")
SUBQUERIES = (
    "EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.v > a.v)",
    "NOT EXISTS (SELECT 1 FROM b WHERE b.s > a.s AND b.v <> a.v)",
    "EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.t BETWEEN a.t - 50 AND a.t + 50)",
    "NOT EXISTS (SELECT 1 FROM b WHERE abs(b.t - a.t) <= 30 AND b.v > a.v)",
    "NOT EXISTS (SELECT 1 FROM b WHERE a.t - b.t >= 100 AND b.t > a.t - 300)",
    "a.v IN (SELECT b.v FROM b WHERE b.k = a.k)",
    "a.v NOT IN (SELECT b.v FROM b WHERE b.k = a.k)",
    "a.v NOT IN (SELECT b.v FROM b WHERE b.k < a.k AND b.s <> a.s)",
)

#: Joins of streams without a band, where the query needs a relation, and joins of ASOF results.
RELATIONS = (
    "SELECT a.t FROM a WHERE EXISTS (SELECT 1 FROM b, a AS c WHERE b.k = a.k AND b.v = c.v)",
    "SELECT a.t FROM a WHERE a.v NOT IN (SELECT b.v FROM b JOIN a AS c ON b.k = c.k WHERE c.v > 9)",
    "SELECT a.t, b.t AS u FROM a JOIN b ON a.k = b.k WHERE b.v IN (SELECT v FROM a) OR a.v > 9",
    "SELECT a.v FROM a JOIN b ON a.k = b.k EXCEPT SELECT v FROM b WHERE v > 9",
    "SELECT a.t, b.t AS u, c.v FROM a ASOF LEFT JOIN b ON a.k = b.k AND a.t > b.t"
    " FULL JOIN b AS c ON c.v = a.v",
    "SELECT a.t, c.v FROM a SEMI JOIN b ON a.t = b.t + 1 CROSS JOIN b AS c",
    "SELECT a.t, c.t AS u FROM a JOIN b ON a.k = b.k LEFT JOIN b AS c ON c.t = a.t + 1"
    " WHERE a.v IN (SELECT v FROM b)",
    "SELECT a.t, b.v, c.s FROM ((a JOIN b ON a.k = b.k) LEFT JOIN b AS c ON c.v = a.v)",
)


#: WHERE conditions on one side of an outer join (preserved or not), or on both sides.
ASKED = (
    "a.v > 5 AND b.v IS NULL",
    "a.s <> 'p' AND (b.v > 9 OR b.v IS NULL)",
    "b.v > 5",
    "(a.v > 5 OR a.k IS NULL) AND a.v < 15 AND coalesce(b.v, 0) < 12",
)
#: Sources for these conditions: a relation join, stream joins with a band, an ASOF join.
ONE_SIDE = (
    "a RIGHT JOIN b ON a.k = b.k AND a.v < b.v",
    "a LEFT JOIN b ON a.k = b.k AND abs(a.t - b.t) <= 90",
    "a RIGHT JOIN b ON b.t BETWEEN a.t - 30 AND a.t + 60",
    "a ASOF LEFT JOIN b ON a.k = b.k AND a.t >= b.t",
)
#: Time bands in WHERE, above another join: an outer, a semi- or an anti-join.
BANDS_ABOVE = (
    "SELECT a.t, b.t AS u, c.v FROM a, b LEFT JOIN b AS c ON c.t = b.t"
    " WHERE abs(a.t - b.t) <= 50 AND a.v > 3",
    "SELECT a.t, b.t AS u, c.t AS w FROM a, b LEFT JOIN a AS c ON c.k = a.k AND abs(c.t - b.t) < 20"
    " WHERE c.v IS NULL AND b.t BETWEEN a.t - 40 AND a.t + 20",
    "SELECT a.t, b.t AS u FROM a, b SEMI JOIN a AS c ON c.v = b.v WHERE abs(a.t - b.t) <= 50",
    "SELECT a.t, b.t AS u FROM a, b ANTI JOIN a AS c ON c.t BETWEEN b.t - 30 AND b.t"
    " WHERE abs(a.t - b.t) <= 50 AND a.k = b.k",
    "SELECT c.t AS w, x.t, x.u FROM b AS c RIGHT JOIN (SELECT a.t, b.t AS u FROM a, b) AS x"
    " ON c.t = x.u WHERE abs(x.t - x.u) <= 30",
)


def table(rng: random.Random, rows: int) -> pa.Table:
    def maybe(value: object) -> object:
        return None if rng.random() < 0.15 else value

    return pa.table(
        {
            "t": pa.array(sorted(rng.sample(range(1000), rows)), pa.int64()),
            "k": pa.array([maybe(rng.randrange(5)) for _ in range(rows)], pa.int64()),
            "s": pa.array([maybe(rng.choice("pqr")) for _ in range(rows)], pa.string()),
            "v": pa.array([maybe(rng.randrange(20)) for _ in range(rows)], pa.int64()),
        }
    )


def compared(seed: object, text: str, theirs: str | None = None) -> None:
    rng = random.Random(f"{seed} {text}")
    sizes = [rng.choice((0, 1, 30, 60)) for _ in "ab"]
    tables = {name: table(rng, size) for name, size in zip("ab", sizes, strict=True)}
    with cql.connect(spark=False, morsel_rows=rng.choice((3, 4096))) as session:
        for name, rows in tables.items():
            session.create_stream(name, rows, "t")
        mine = session.sql(text).to_arrow()
    connection = duckdb.connect()
    for name, rows in tables.items():
        connection.register(name, rows)
    other = connection.sql(theirs or text).to_arrow_table()
    found = difference(storage_rows(other), storage_rows(mine))
    assert found is None, f"{sizes}: {found}"


@pytest.mark.sampled
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_kinds(kind: str, condition: str, seed: int) -> None:
    right = "" if kind in ("SEMI JOIN", "ANTI JOIN") else ", b.t AS u, b.v AS w"
    for k in range(2):
        compared(f"{seed} {k}", f"SELECT a.t, a.k, a.s{right} FROM a {kind} b ON {condition}")


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_with_tables(kind: str, seed: int) -> None:
    """A NULL key matches nothing, not even a 0."""
    rng = random.Random(f"{seed} {kind}")
    right = "" if kind in ("SEMI JOIN", "ANTI JOIN") else ", b.k AS l, b.v AS w"
    text = f"SELECT a.k, a.v{right} FROM a {kind} b ON a.k = b.k"
    connection = duckdb.connect()
    tables = {name: table(rng, 40).drop_columns("t") for name in "ab"}
    for stream in (True, False):
        with cql.connect(spark=False) as session:
            for name, rows in tables.items():
                connection.register(name, rows)
                session.register_table(name, rows)
            if stream:
                timed = tables["a"].append_column("t", pa.array(range(40)))
                session.create_stream("a", timed, "t", replace=True)
            found = session.sql(text).to_arrow()
        expected = connection.sql(text).to_arrow_table()
        assert difference(storage_rows(expected), storage_rows(found)) is None


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["JOIN", "FULL JOIN", "ANTI JOIN"])
def test_the_last_rows_of_each_key(kind: str, seed: int) -> None:
    """An aggregate reads these rows; the rows with a NULL key are the rows of one key."""
    counted, condition = "SELECT k, s, count(*) AS n, max(v) AS v", CONDITIONS[0]
    mine = f"({counted} FROM {{0}} [PARTITION BY k ROWS 2] GROUP BY k, s)"
    latest = (
        f"({counted} FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY t DESC) AS p"
        " FROM {0}) WHERE p <= 2 GROUP BY k, s)"
    )
    right = "" if kind in ("SEMI JOIN", "ANTI JOIN") else ", b.n AS m, b.v AS w"
    texts = (
        f"SELECT a.k, a.n, a.s{right} FROM {part.format('a')} a {kind} {part.format('b')} b"
        f" ON {condition}"
        for part in (mine, latest)
    )
    compared(seed, *texts)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("condition", SUBQUERIES)
def test_subqueries_that_read_the_row_around_them(condition: str, seed: int) -> None:
    for k in range(2):
        compared(f"{seed} {k}", f"SELECT a.t, a.k, a.v FROM a WHERE {condition}")
        compared(f"{seed} {k}", f"SELECT a.t, {condition} AS said FROM a")


@pytest.mark.parametrize("kind", KINDS[1:])
def test_integer_times_of_windows(kind: str, seed: int) -> None:
    right = "" if kind in ("SEMI JOIN", "ANTI JOIN") else ", b.t AS u"
    near = "a.k = b.k AND abs(a.t - b.t) <= 60 AND b.t < a.t + 30"
    text = f"SELECT a.t{right} FROM a{{0}} {kind} b{{0}} ON {near}"
    compared(seed, text.format(" [RANGE UNBOUNDED]"), text.format(""))


def test_times_at_the_end_of_all_times() -> None:
    """Comparisons of these times do not overflow; a condition that computes with them is
    refused."""
    times = [-MAX_EVENT_TIME, MAX_EVENT_TIME - 2, MAX_EVENT_TIME]
    asked = "SELECT a.t FROM a WHERE {} (SELECT 1 FROM b WHERE a.t > b.t AND {})"
    with cql.connect(spark=False) as session:
        for name in "ab":
            session.create_stream(name, pa.table({"t": times}), "t")
        for word, near, found in (
            ("EXISTS", "abs(a.t - b.t) <= 2", times[2:]),
            ("NOT EXISTS", "b.t >= a.t - 1", times),
        ):
            said = session.sql(asked.format(word, near)).to_arrow()
            assert said["t"].to_pylist() == found
        with pytest.raises(NotSupportedError, match="which can fail"):
            session.sql(asked.format("EXISTS", "a.t * 4 - 1 <= b.t")).to_arrow()


@pytest.mark.sampled
@pytest.mark.parametrize("text", RELATIONS)
def test_joins_that_are_read_as_relations(text: str, seed: int) -> None:
    compared(seed, text)


@pytest.mark.sampled
@pytest.mark.parametrize(("source", "asked"), [*zip(ONE_SIDE, cycle(ASKED), strict=False)])
def test_what_is_asked_of_one_side_above_a_join(source: str, asked: str, seed: int) -> None:
    compared(seed, f"SELECT a.t, a.v, b.t AS u, b.v AS w FROM {source} WHERE {asked}")


@pytest.mark.parametrize("kind", ["SEMI JOIN", "ANTI JOIN"])
def test_what_is_asked_above_semi_joins(kind: str, seed: int) -> None:
    for near in ("a.v < b.v", "abs(a.t - b.t) <= 90"):
        compared(seed, f"SELECT a.t, a.v FROM a {kind} b ON a.k = b.k AND {near} WHERE a.v > 5")


@pytest.mark.sampled
@pytest.mark.parametrize("text", BANDS_ABOVE)
def test_bands_above_outer_joins(text: str, seed: int) -> None:
    compared(seed, text)


@pytest.mark.parametrize("kind", ["JOIN", "FULL JOIN"])
def test_sums_of_one_side_are_looked_up(kind: str, seed: int) -> None:
    text = f"SELECT a.t, a.k, b.t AS u FROM a {kind} b ON a.k + 1 = b.k"
    compared(seed, text)
    most = pa.table({"t": [1, 2], "k": [1, 2**63 - 1]})
    with cql.connect(spark=False) as session:
        for name in "ab":
            session.create_stream(name, most, "t")
        assert "Filter" not in session.sql(text).explain()
        with pytest.raises(RunError, match=r"overflow in k \+ 1") as caught:
            session.sql(text).to_arrow()
    assert caught.value.position is not None


def test_keys_of_bigint_and_decimal(seed: int) -> None:
    text = "SELECT a.t, b.t AS u FROM a LEFT JOIN {} b ON a.k = b.d"
    compared(seed, text.format("(SELECT t, CAST(k AS DECIMAL(8, 3)) AS d FROM b)"))


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["LEFT JOIN", "FULL JOIN", "ANTI JOIN"])
def test_times_that_lie_near_those_of_a_table(kind: str) -> None:
    """An outer join refuses conditions that can fail, except sums and differences of times."""
    rng, tables = random.Random(kind), {}
    for name in "ab":
        times = sorted(rng.randrange(100) for _ in range(30))
        k = [rng.randrange(3) for _ in times]
        stamps = pa.array([t * 1_000_000 for t in times], pa.timestamp("us"))
        tables[name] = pa.table({"ts": stamps, "k": k})
    right = "" if kind == "ANTI JOIN" else ", b.ts AS at"
    near = "a.ts BETWEEN b.ts - INTERVAL 3 SECONDS AND b.ts + INTERVAL 1 SECOND"
    apart = "b.ts - a.ts >= INTERVAL -1 SECOND AND b.ts - a.ts <= INTERVAL 3 SECONDS"
    connection = duckdb.connect()
    for name, rows in tables.items():
        connection.register(name, rows)
    text = f"SELECT a.ts, a.k{right} FROM a {kind} b ON a.k = b.k AND {near}"
    wanted = storage_rows(connection.sql(text).to_arrow_table())
    with cql.connect(spark=False) as session:
        session.create_stream("a", tables["a"], "ts")
        session.register_table("b", tables["b"])
        for said in (near, apart):
            found = session.sql(text.replace(near, said)).to_arrow()
            assert difference(wanted, storage_rows(found)) is None


@pytest.mark.parametrize("ways", ["single", "pipeline"])
def test_three_streams_whose_distances_are_sums(ways: str) -> None:
    """The sums in the time bounds are never evaluated, so that one operator can join the three
    inputs."""
    near = "abs(a.t - b.t) <= 60 AND c.t BETWEEN b.t AND b.t + 100 AND a.k = b.k AND b.k = c.k"
    text = f"SELECT a.t, b.t AS u, c.t AS w, a.k FROM a, b, c WHERE {near}"
    tables = {name: table(random.Random(name), 200) for name in "abc"}
    connection = duckdb.connect()
    for name, rows in tables.items():
        connection.register(name, rows)
    wanted = storage_rows(connection.sql(text).to_arrow_table())
    assert len(wanted) > 100
    with cql.connect(spark=False, multiway_join=ways, join_operator="sync_filter") as session:
        for name, rows in tables.items():
            session.create_stream(name, rows, "t")
        query = session.sql(text)
        assert query.explain().count("WindowJoin") == (1 if ways == "single" else 2)
        assert difference(wanted, storage_rows(query.to_arrow())) is None


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["depth_first", "ordered"])
@pytest.mark.parametrize("slack", [0, 40])
@pytest.mark.parametrize("kind", ["JOIN", "ANTI JOIN"])
def test_lists_that_lie_far_apart(kind: str, slack: int, runtime: str, seed: int) -> None:
    """Rows of one of the 400 keys lie some 10 KB apart, and each row meets about 10 rows."""
    rng, tables = random.Random(f"{seed} {kind} {slack}"), {}
    for name in "ab":
        times = sorted(range(6_000), key=lambda t: t + rng.uniform(0, slack))
        keys = [rng.randrange(400) if t % 7 else None for t in times]
        tables[name] = pa.table({"t": times, "k": pa.array(keys, pa.int64())})
    right = "" if kind in ("SEMI JOIN", "ANTI JOIN") else ", b.t AS u"
    text = (
        f"SELECT a.t, a.k{right} FROM a {kind} b ON a.k = b.k"
        " AND b.t - a.t <= 3000 AND a.t - b.t <= 1000"
    )
    connection = duckdb.connect()
    with cql.connect(spark=False, runtime=runtime, workers=2, partitions=2) as session:
        for name, rows in tables.items():
            session.create_stream(name, rows, watermark={"t": slack})
            connection.register(name, rows)
        query = session.sql(text)
        found = query.to_arrow()
        joins = [m for m in query.metrics() if m["operator"].startswith("join")]
    expected = connection.sql(text).to_arrow_table()
    assert difference(storage_rows(expected), storage_rows(found)) is None
    assert sum(m["searched_ahead"] for m in joins) > 1_000
