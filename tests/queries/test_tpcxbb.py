"""The streaming queries of TPCx-BB (``queries/tpcxbb``) and the detection of high-mobility fraud
(``queries/ordered``) over generated rows: against DuckDB and the reference, in any order of arrival
that the streams declare, under every runtime, and over endless input."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner

import cql
from benchmarks import calls, tpcxbb
from cql.dialect import parse_one
from cql.planner.bind.context import Context
from cql.planner.bind.statement import bind
from cql.planner.nodes.statements import Query
from tests.reference import naive, naive_compare
from tests.support.paths import QUERIES
from tests.support.runtimes import ORDERED, Settings, share

FILES = {
    path.stem: path
    for path in sorted([*QUERIES.glob("tpcxbb/*.cql"), *QUERIES.glob("ordered/*.cql")])
}
WITHIN = timedelta(minutes=1)
#: ``max_advance``: with few rows over many days, honest rows are hours apart.
SPARSE = timedelta(days=30)
DAY = 24 * 3600

#: The same queries in DuckDB's SQL, written independently; ``row`` is a row's number in time order.
SQL = {
    "q01": """
        SELECT a.item_sk, b.item_sk, count(*) AS tickets,
               time_bucket(INTERVAL 1 HOUR, greatest(a.ts, b.ts)) + INTERVAL 1 HOUR AS hour
        FROM store_sales a JOIN store_sales b USING (ticket_number)
        WHERE a.store_sk <= 10 AND a.item_sk < b.item_sk
        GROUP BY a.item_sk, b.item_sk, hour
        QUALIFY row_number() OVER (PARTITION BY hour ORDER BY tickets DESC, a.item_sk, b.item_sk)
                <= 100""",
    "q02": """
        WITH gaps AS (
            SELECT *, ts - lag(ts) OVER (PARTITION BY user_sk ORDER BY ts, row) AS gap
            FROM web_clickstreams WHERE user_sk IS NOT NULL AND item_sk IS NOT NULL
        ), clicks AS (
            SELECT *, count(*) FILTER (gap > INTERVAL 1 HOUR)
                      OVER (PARTITION BY user_sk ORDER BY ts, row) AS number
            FROM gaps
        ), ends AS (
            SELECT user_sk, number, max(ts) + INTERVAL 1 HOUR - INTERVAL 1 MICROSECOND AS done
            FROM clicks GROUP BY ALL
        ), views AS (SELECT DISTINCT user_sk, number, item_sk FROM clicks)
        SELECT a.item_sk, b.item_sk, count(*) AS sessions,
               time_bucket(INTERVAL 1 HOUR, done) + INTERVAL 1 HOUR AS hour
        FROM views a JOIN views b USING (user_sk, number) JOIN ends USING (user_sk, number)
        WHERE a.item_sk < b.item_sk GROUP BY a.item_sk, b.item_sk, hour
        QUALIFY row_number() OVER (PARTITION BY hour ORDER BY sessions DESC, a.item_sk, b.item_sk)
                <= 30""",
    "q03": """
        WITH looks AS (
            SELECT b.row, b.ts, b.item_sk AS purchased, v.item_sk AS viewed, v.ts AS seen
            FROM web_clickstreams b, web_clickstreams v
            WHERE b.click_type = 'buy' AND v.click_type = 'view' AND b.user_sk = v.user_sk
              AND v.ts <= b.ts
            QUALIFY row_number() OVER (PARTITION BY b.row ORDER BY v.ts DESC, v.row DESC) <= 5
        )
        SELECT purchased, viewed, count(*) AS views,
               time_bucket(INTERVAL 1 DAY, ts) + INTERVAL 1 DAY AS day
        FROM looks WHERE seen >= ts - INTERVAL 10 DAYS
        GROUP BY purchased, viewed, day
        QUALIFY row_number() OVER (PARTITION BY day, purchased ORDER BY views DESC, viewed)
                <= 30""",
    "q04": """
        WITH gaps AS (
            SELECT *, ts - lag(ts) OVER (PARTITION BY user_sk ORDER BY ts, row) AS gap
            FROM web_clickstreams WHERE user_sk IS NOT NULL
        ), numbered AS (
            SELECT *, count(*) FILTER (gap > INTERVAL 1 HOUR)
                      OVER (PARTITION BY user_sk ORDER BY ts, row) AS number
            FROM gaps
        ), sessions AS (
            SELECT count(*) AS pages, max(ts) + INTERVAL 1 HOUR - INTERVAL 1 MICROSECOND AS done
            FROM numbered GROUP BY user_sk, number
            HAVING count(*) FILTER (click_type = 'cart') > 0
               AND count(*) FILTER (click_type = 'checkout') = 0
        )
        SELECT avg(pages), count(*), time_bucket(INTERVAL 1 HOUR, done) + INTERVAL 1 HOUR AS hour
        FROM sessions GROUP BY hour""",
    "q15": """
        WITH days AS (
            SELECT category_id, CAST(ts AS DATE) AS day, sum(net_paid) * 100 AS cents
            FROM store_sales JOIN items USING (item_sk)
            WHERE store_sk <= 10 AND category_id IS NOT NULL GROUP BY category_id, day
        ), ends AS (SELECT DISTINCT unnest(generate_series(day + 1, day + 28,
                                           INTERVAL 1 DAY))::DATE AS day FROM days)
        SELECT category_id, regr_slope(cents, days.day - DATE '2020-01-01') AS slope,
               ends.day::TIMESTAMPTZ
        FROM days JOIN ends ON days.day < ends.day AND days.day >= ends.day - 28
        GROUP BY category_id, ends.day HAVING count(*) > 1 AND slope <= 0""",
    "mobility_fraud": """
        WITH places AS (
            SELECT ts, unnest([caller, callee]) AS phone, unnest([caller_x, callee_x]) AS x,
                   unnest([caller_y, callee_y]) AS y
            FROM call_records WHERE area_code = 212
        ), moves AS (
            SELECT ts, sqrt((x - lag(x) OVER last) ** 2 + (y - lag(y) OVER last) ** 2) AS km,
                   epoch_us(ts) - epoch_us(lag(ts) OVER last) AS us
            FROM places WINDOW last AS (PARTITION BY phone ORDER BY ts)
        )
        SELECT count(*), time_bucket(INTERVAL 1 HOUR, ts) + INTERVAL 1 HOUR AS hour
        FROM moves WHERE us <= 86400e6 AND km > us * 500 / 36e8 GROUP BY hour""",
}
#: The operators that EXPLAIN shows, from the streams up, without projections: the stages of the
#: paper. Both sides of a self-join are listed.
SHAPES = {
    "q01": "Filter Filter OopJoin WidAggregate Sort",
    "q02": "Filter SessionAggregate Unnest Unnest Filter WidAggregate Sort",
    "q03": "Filter Filter AsofJoin Filter WidAggregate RowNumber Filter",
    "q04": "Filter SessionAggregate Filter WidAggregate",
    "q15": "Filter Filter TableJoin PaneAggregate Filter",
    "mobility_fraud": "Filter Filter Union Filter Filter Union AsofJoin Filter WidAggregate",
}
WHERE: tuple[Settings, ...] = (
    {},
    {"runtime": "fifo", "morsel_rows": 1_000},
    {"runtime": "fifo_slice", "morsel_rows": 333, "slice_us": 20},
    {"runtime": "run_to_completion", "morsel_rows": 4_096},
    *({**settings, "morsel_rows": 333, "scheduler": "lp"} for settings in ORDERED),
)


def made(rows: int, days: float, few: int, seed: int = 1) -> dict[str, pa.Table]:
    """All streams: about ``rows`` rows within ``days`` days, from ``few`` users and phones."""
    rate = rows / days / DAY
    return {
        "web_clickstreams": tpcxbb.web_clickstreams(rows, seed, rate, users=few),
        "store_sales": tpcxbb.store_sales(rows, seed, rate),
        "items": tpcxbb.items(seed),
        "call_records": calls.call_records(rows, seed, rate, phones=few, cloned=0.2),
    }


#: (rows, days, users and phones).
SIZES = {"dense": (12_000, 3, 3_000), "sparse": (6_000, 40, 60)}


@pytest.fixture(scope="module", params=SIZES.values(), ids=SIZES)
def tables(request: pytest.FixtureRequest) -> dict[str, pa.Table]:
    return made(*request.param)


def declare(session: cql.Session, tables: dict[str, pa.Table]) -> None:
    for name, table in tables.items():
        if name == "items":
            session.create_stream(name, table)
        else:
            session.create_stream(name, table, ordered_by="ts", slack=WITHIN, max_advance=SPARSE)


def ours(name: str, tables: dict[str, pa.Table], **settings: Any) -> pa.Table:
    with cql.connect(spark=False, **settings) as session:
        declare(session, tables)
        query = session.sql(FILES[name].read_text("utf-8"))
        answer = query.to_arrow()
        assert all(entry["count"] == 0 for entry in query.late().to_pylist())
        assert query.bad_rows().num_rows == 0
    return answer


def theirs(name: str, tables: dict[str, pa.Table]) -> pa.Table:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for stream, table in tables.items():
        numbered = table.append_column("row", pa.array(range(len(table)), pa.int64()))
        connection.register(stream, numbered)
    return connection.sql(SQL[name]).to_arrow_table()


def same(ours: pa.Table, theirs: pa.Table) -> None:
    theirs = theirs.rename_columns(ours.column_names).cast(ours.schema)
    rows = map(naive_compare.storage_rows, (theirs, ours))
    found = naive_compare.difference(*rows)
    assert found is None, found


def disordered(tables: dict[str, pa.Table], seed: int, minutes: int = 1) -> dict[str, pa.Table]:
    """Each row arrives up to ``minutes`` minutes later than its time."""
    rng = np.random.default_rng(seed)

    def as_it_comes(table: pa.Table) -> pa.Table:
        ts = table["ts"].cast(pa.int64()).to_numpy()
        return table.take(np.argsort(ts + rng.integers(0, minutes * 60_000_000, ts.size)))

    return {n: t if n == "items" else as_it_comes(t) for n, t in tables.items()}


def test_every_file_has_its_like_in_sql() -> None:
    assert set(FILES) == set(SQL) == set(SHAPES)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_equals_duckdb_in_any_order_under_any_runtime(
    name: str, tables: dict[str, pa.Table], seed: int, full: bool
) -> None:
    expected = theirs(name, tables)
    assert expected.num_rows > 10
    for number, settings in enumerate(share(WHERE, list(FILES).index(name), 5, seed, full=full)):
        same(ours(name, tables, **settings), expected)
        same(ours(name, disordered(tables, seed + number), **settings), expected)


def test_limits_are_reached(tables: dict[str, pa.Table]) -> None:
    """Some hours reach the limit of pairs, and some purchases the limit of items viewed before."""
    for name, limit in (("q01", 100), ("q02", 30)):
        pairs = ours(name, tables).group_by("window_end").aggregate([([], "count_all")])
        assert pc.max(pairs["count_all"]).as_py() == limit
    if len(tables["web_clickstreams"]) > 10_000:
        viewed = ours("q03", tables).group_by(["window_end", "purchased"])
        assert pc.max(viewed.aggregate([([], "count_all")])["count_all"]).as_py() == 30


@pytest.mark.sampled
@pytest.mark.parametrize("name", FILES)
def test_equals_the_reference(name: str, seed: int) -> None:
    """Also with rows later than declared, which each operator drops by its own rule."""
    small = made(300, days=2, few=10, seed=seed)
    sold = pc.is_in(small["items"]["item_sk"], small["store_sales"]["item_sk"])
    small["items"] = small["items"].filter(sold)
    for minutes in (1, 60):
        tables = disordered(small, seed, minutes)
        with cql.connect(spark=False) as session:
            declare(session, tables)
            text = FILES[name].read_text("utf-8")
            bound = bind(parse_one(text), session._catalog, Context())
            assert isinstance(bound, Query)
            rows = {stream: naive_compare.storage_rows(t) for stream, t in tables.items()}
            query = session.sql(text)
            answer = naive.evaluate(bound.plan, rows)
            naive_compare.assert_same(answer, query.to_arrow(), bound.plan)
            late = sum(entry["count"] for entry in query.late().to_pylist())
            assert (late > 0) == (minutes > 1)


@pytest.mark.parametrize("name", FILES)
def test_explain_shows_the_stages_of_the_paper(name: str, tables: dict[str, pa.Table]) -> None:
    with cql.connect(spark=False) as session:
        declare(session, tables)
        plan = session.sql(FILES[name].read_text("utf-8")).explain()
    found = re.findall(r"^[ │├└─]*([A-Z][a-z]\w+)\b(?!:)", plan, re.MULTILINE)
    shown = [each for each in found[::-1] if each not in ("Source", "Project", "OnTime")]
    assert " ".join(shown) == SHAPES[name], plan


@pytest.mark.parametrize("name", FILES)
def test_over_endless_input(name: str) -> None:
    """The planner accepts the query, and each window leaves once the watermark passes its end."""
    tables = made(*SIZES["sparse"])
    with cql.connect(spark=False, morsel_rows=500) as session:
        for stream, table in tables.items():
            clauses = {"bounded": False, "ordered_by": "ts", "slack": WITHIN, "max_advance": SPARSE}
            given = table if stream == "items" else iter(table.to_batches(500))
            session.create_stream(stream, given, **({} if stream == "items" else clauses))
        found = pa.Table.from_batches(session.sql(FILES[name].read_text("utf-8")))
    expected = ours(name, tables)
    passed = min(pc.max(t["ts"]).as_py() for n, t in tables.items() if n != "items")
    passed -= timedelta(hours=2) + (timedelta(days=1) if name == "q03" else timedelta())
    closed = pc.field("window_end") <= passed
    assert found.filter(closed).num_rows > 0
    same(found.filter(closed), expected.filter(closed))


@pytest.mark.parametrize("name", FILES)
def test_state_does_not_grow_with_the_input(name: str) -> None:
    """Up to twice the state is spare room, because arrays grow by doubling."""
    peaks = []
    for days in (250, 750):
        with cql.connect(spark=False, morsel_rows=1_000) as session:
            declare(session, made(100 * days, days, few=60))
            query = session.sql(FILES[name].read_text("utf-8"))
            query.to_arrow()
            peaks.append(sum(m.get("peak_bytes", 0) for m in query.metrics()))
    assert 0 < peaks[1] <= 2 * peaks[0]


# ----------------------------------------------------------------------------------- the generators


@pytest.mark.parametrize("make", [tpcxbb.web_clickstreams, tpcxbb.store_sales, calls.call_records])
def test_rows_are_in_order_and_repeatable(make: Callable[..., pa.Table]) -> None:
    for rows in (1, 10, 5_000):
        table = make(rows)
        assert table.num_rows == rows
        ts = table["ts"].cast(pa.int64()).to_numpy()
        assert (np.diff(ts) >= 0).all()
        assert make(rows).equals(table)
        assert not make(rows, seed=2).equals(table)
    span = (ts[-1] - ts[0]) / 1e6
    rates = {"web_clickstreams": 1.0, "store_sales": 0.25, "call_records": 5.0}
    assert span == pytest.approx(5_000 / rates[make.__name__], rel=0.2)


def test_skew_of_the_retailer() -> None:
    clicks, sales = tpcxbb.web_clickstreams(200_000), tpcxbb.store_sales(100_000)
    asked = duckdb.connect()
    asked.register("clicks", clicks)
    asked.register("sales", sales)
    asked.register("items", tpcxbb.items())

    def one(sql: str) -> Any:
        (value,) = asked.sql(sql).fetchall()[0]
        return value

    def share(of: str, column: str) -> Any:
        return one(
            f"SELECT count(*) / sum(count(*)) OVER () FROM {of} GROUP BY {column}"
            " ORDER BY 1 DESC LIMIT 1"
        )

    harmonic = 1 / sum(1 / rank for rank in range(1, tpcxbb.ITEMS + 1))
    views = "clicks WHERE click_type = 'view'"
    assert share(views, "item_sk") == pytest.approx(harmonic, rel=0.05)
    assert one("SELECT mode(item_sk) FROM clicks") == one("SELECT mode(item_sk) FROM sales")
    assert share("clicks WHERE user_sk IS NOT NULL", "user_sk") < 0.004
    assert one("SELECT count(DISTINCT category_id) FROM items") == tpcxbb.CATEGORIES
    unknown = one("SELECT count(*) FILTER (user_sk IS NULL) / count(*) FROM clicks")
    assert unknown == pytest.approx(0.05, rel=0.1)
    assert one("SELECT bool_and((item_sk IS NULL) = (click_type = 'checkout')) FROM clicks")
    items = one("SELECT count(*) / count(DISTINCT ticket_number) FROM sales")
    assert items == pytest.approx(4.7, rel=0.05)
    assert one("SELECT count(DISTINCT (ticket_number, item_sk)) FROM sales") == len(sales)
    bought_without_cart = """
        SELECT count(*) FROM clicks b WHERE click_type = 'buy' AND user_sk IS NOT NULL
        AND NOT EXISTS (FROM clicks c WHERE c.click_type = 'cart' AND c.user_sk = b.user_sk
                        AND c.item_sk = b.item_sk AND c.ts < b.ts)"""
    assert one(bought_without_cart) == 0


def test_only_clones_are_too_fast() -> None:
    honest = calls.call_records(20_000, rate=0.1, phones=200, cloned=0)
    cloned = calls.call_records(20_000, rate=0.1, phones=200, cloned=0.1)
    assert ours("mobility_fraud", {"call_records": honest}).num_rows == 0
    assert ours("mobility_fraud", {"call_records": cloned}).num_rows > 50


def test_written_as_parquet(tmp_path: Path) -> None:
    for command in (tpcxbb.main, calls.main):
        done = CliRunner().invoke(command, [str(tmp_path / "data"), "--rows", "1000"])
        assert done.exit_code == 0, done.output
    assert {p.stem for p in (tmp_path / "data").iterdir()} == {*tpcxbb.TABLES, "call_records"}
    with cql.connect(spark=False) as session:
        session.sql(
            f"CREATE STREAM store_sales USING parquet"
            f" OPTIONS (path '{tmp_path / 'data' / 'store_sales.parquet'}')"
            f" ORDERED BY ts WITHIN 1 MINUTE"
        )
        found = session.sql(FILES["q01"].read_text("utf-8")).to_arrow()
    same(found, ours("q01", {"store_sales": tpcxbb.store_sales(1_000)}))
