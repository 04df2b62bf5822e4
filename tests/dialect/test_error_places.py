"""An error underlines exactly the word or the expression at fault."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import cql

CLICKS = pa.table(
    {
        "ts": pa.array([0, 60_000_000], pa.timestamp("us", "UTC")),
        "page": ["home", "help"],
        "ms": [120, 80],
    }
)
WINDOW = "clicks [RANGE 5 MINUTES SLIDE 5 MINUTES]"


@pytest.fixture(scope="module")
def session() -> Iterator[cql.Session]:
    with cql.connect(spark=False) as made:
        made.create_stream("clicks", CLICKS, ordered_by="ts")
        made.sql("CREATE TABLE t (a INT, b STRING)")
        yield made


# The carets underline the text in ‹…›.
@pytest.mark.parametrize(
    ("marked", "message"),
    [
        ("SELECT count(*) FROM clicks [SESSION 5 MINUTES] ‹EMIT› CHANGES", "EMIT CHANGES of a"),
        ("SELECT ms FROM clicks ‹LATE› OUTPUT INTO l", "no window of this query"),
        (f"SELECT count(*) FROM {WINDOW} LATE OUTPUT INTO ‹clicks›", "takes no rows"),
        ("SELECT page,\n‹count›(*) OVER (PARTITION BY page) FROM clicks", "OVER is not supported"),
        ("INSERT INTO t ‹SELECT› count(*), page FROM clicks [NOW] GROUP BY page", "also change"),
        ("SET runtime = ‹simulation›", "runtime = simulation is not supported"),
        ("SET ‹runtme› = fifo", "no setting runtme"),
        ("SET max_state = ‹'lots'›", "does not take 'lots'"),
        ("SELECT 1; RESET ‹runtme›", "no setting runtme"),
        ("SELECT /*+ runtime(‹simulation›) */ page FROM clicks", "is not supported"),
        ("STOP QUERY ‹q99›", "no query q99"),
        ("SHOW LATE ‹q99›", "no query q99"),
        ("SHOW BAD ROWS ‹q99›", "no query q99"),
        ("EXPLAIN ‹q99›", "no query q99"),
        ("EXPLAIN ANALYZE ‹q99›", "no query q99"),
        ("DROP VIEW ‹clicks›", "no view clicks"),
        ("DESCRIBE ‹clikcs›", "no stream, table or view clikcs"),
        ("SET ‹spark.sql.shuffle› = 1", "no setting spark.sql.shuffle"),
        ("INSERT INTO ‹clicks› SELECT ts, page, ms FROM clicks", "takes no rows"),
        ("INSERT INTO t SELECT ‹page›, ms FROM clicks", "column a has type int"),
        ("SELECT 1 + ‹ts * 2› FROM clicks", "* does not take"),
        ("SELECT ms + (‹clicks.ts - 5›) FROM clicks", "- does not take"),
        ("SELECT page FROM clicks WHERE ‹ms BETWEEN 1 AND ts›", "values of one type"),
        ("SELECT upper(page) FROM clicks WHERE 5 < ‹1 / (ms - 80)›", "division by zero in 1 / ("),
        ("SELECT ms + ‹clicks.page› FROM clicks", "not a valid bigint: CAST(page"),
        ("SELECT 1, ‹CAST›(page AS INT) FROM clicks", "not a valid int"),
        ("SELECT 'ms: ' || (‹1 DIV (ms - 80)›) FROM clicks", "division by zero in 1 DIV ("),
        ("SELECT CAST(‹1 DIV (ms - 80)› AS STRING) FROM clicks", "division by zero in 1 DIV ("),
        (
            "SELECT upper(concat(page, ‹CAST›(ms * 1000 AS SMALLINT))) FROM clicks",
            "does not fit smallint",
        ),
        ("SELECT ‹'n' || CAST(page AS INT)› FROM clicks", "the text 'home' is not a valid int"),
        (f"INSERT INTO t SELECT count(*), '' FROM {WINDOW} LATE OUTPUT INTO ‹T›", "results of the"),
        ("SELECT 1 + ‹skewness›(DISTINCT ms) FROM clicks", "skewness is not supported yet"),
        ("SELECT page FROM clicks LIMIT ‹ms›", "LIMIT needs a whole number"),
        ("SELECT sum(‹ts›) FROM clicks", "argument 1 of sum must be a number, but is timestamp"),
    ],
)
def test_the_caret_underlines_the_fault(session: cql.Session, marked: str, message: str) -> None:
    text = marked.replace("‹", "").replace("›", "")
    with pytest.raises(cql.CqlError) as caught:
        session.sql(text).to_arrow()
    error = caught.value
    assert message in error.message
    before, _, behind = marked.partition("‹")
    assert (error.line, error.column) == (before.count("\n") + 1, len(before.split("\n")[-1]) + 1)
    assert error.position is not None
    assert error.position.length == behind.index("›")


def test_a_failed_cast_names_its_remedy(session: cql.Session) -> None:
    for value in ("page", "ms * 1000"):
        with pytest.raises(cql.CqlError) as caught:
            session.sql(f"SELECT CAST({value} AS TINYINT) FROM clicks").to_arrow()
        assert "TRY_CAST" in (caught.value.hint or "")
