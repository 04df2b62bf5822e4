"""Joins of streams with tables: random joins against the reference, against DuckDB, and
refusals."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import cql
from cql.errors import BindError, NotSupportedError, PlanError, RunError
from cql.executor.strings import compaction
from tests.support.catalog_tools import blocks_of_eight
from tests.support.fuzz.random_cases import check
from tests.support.fuzz.random_table_joins import SHAPES, table_case
from tests.support.results import results

pytestmark = pytest.mark.usefixtures("shared_kernels")

#: The number of shapes that run without --full.
SMALL = 4


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("first", range(SMALL))
def test_random_joins_equal_the_reference(first: int, full: bool) -> None:
    for index in range(first, SHAPES, SMALL) if full else (first,):
        for seed in range(60 if full else 5):
            check(table_case(index, seed))


PAGES = {"page": [1, 2, 2, None], "name": ["one", "two", "zwei", "none"], "site": [7, 7, 8, 9]}


def stream(**columns: list[Any]) -> pa.Table:
    """A table whose ``ts``, in seconds, becomes a timestamp."""
    times = pa.array([int(t * 1_000_000) for t in columns.pop("ts")], pa.timestamp("us"))
    return pa.table({"ts": times, **columns})


@pytest.fixture
def session() -> Iterator[cql.Session]:
    with cql.connect(spark=False) as made:
        clicks = stream(ts=[0, 1, 5, 3, 12], page=[1, 2, None, 2, 3], ms=[10, 20, 30, 40, 50])
        made.create_stream("clicks", clicks, "ts")
        made.create_stream("pages", pa.table(PAGES))
        made.create_stream("sites", pa.table({"site": [7, 8], "owner": ["Ann", "Bob"]}))
        yield made


def test_rows_pass_in_their_order_late_ones_too(session: cql.Session) -> None:
    """The row at 3 comes after the row at 5: it is late, and passes."""
    found = results(session, "SELECT ms, name FROM clicks LEFT JOIN pages USING (page)")
    pairs = [(20, "two"), (20, "zwei"), (30, None), (40, "two"), (40, "zwei"), (50, None)]
    assert found == [(10, "one"), *pairs]
    assert results(session, "SELECT ms FROM clicks SEMI JOIN pages USING (page)") == [
        (10,),
        (20,),
        (40,),
    ]
    assert results(session, "SELECT ms FROM clicks ANTI JOIN pages USING (page)") == [(30,), (50,)]


@pytest.mark.sampled
@pytest.mark.parametrize(
    "source",
    [
        "clicks JOIN pages USING (page) JOIN sites USING (site)",
        "sites JOIN pages USING (site) JOIN clicks USING (page)",
        "sites, clicks, pages WHERE sites.site = pages.site AND clicks.page = pages.page",
    ],
)
def test_stars(session: cql.Session, source: str) -> None:
    found = sorted(results(session, f"SELECT ms, name, owner FROM {source}"))
    many = [(20, "two", "Ann"), (20, "zwei", "Bob"), (40, "two", "Ann"), (40, "zwei", "Bob")]
    assert found == [(10, "one", "Ann"), *many]


def test_windows_above_close_while_rows_come(session: cql.Session) -> None:
    """The stream's window is the window of the aggregate; endless input gives its results."""

    def endless() -> Iterator[dict[str, Any]]:
        for n in count():
            yield {"ts": datetime(2024, 1, 1) + timedelta(seconds=n), "page": n % 3}

    session.create_stream("e", endless, "ts", bounded=False)
    for window in ("e [RANGE 6 SECONDS SLIDE 6 SECONDS]", "e"):
        above = "" if "[" in window else "[RANGE 6 SECONDS SLIDE 6 SECONDS, WA e.ts]"
        query = session.sql(
            f"SELECT name, count(*) AS n, window_end {above} FROM {window} JOIN pages USING (page)"
            " GROUP BY name"
        )
        coming = (row for batch in query for row in batch.to_pylist())
        first = [row for row, _ in zip(coming, range(6), strict=False)]
        assert [(row["name"], row["n"], row["window_end"].second) for row in first] == [
            (name, 2, end) for end in (6, 12) for name in ("one", "two", "zwei")
        ]


def test_groups_close_by_a_key_that_rises(session: cql.Session) -> None:
    found = results(
        session,
        "SELECT date_trunc('minute', ts) AS m, count(*) AS n FROM clicks JOIN pages USING (page)"
        " GROUP BY date_trunc('minute', ts)",
    )
    assert [n for _, n in found] == [5]


@pytest.mark.parametrize("kind", ["RIGHT", "FULL"])
def test_rows_of_a_table_without_a_partner_wait_for_the_end(
    session: cql.Session, kind: str
) -> None:
    """This is no lookup: both sides join as streams, and the stream's late row (40) is left out."""
    text = f"SELECT c.ms, p.name FROM clicks c {kind} JOIN pages p ON c.page = p.page"
    found = {(10, "one"), (20, "two"), (20, "zwei"), (None, "none")}
    lonely = {(30, None), (50, None)} if kind == "FULL" else set()
    assert set(results(session, text)) == found | lonely
    text = f"SELECT p.name, s.owner FROM sites s {kind} JOIN pages p USING (site)"
    named = {("one", "Ann"), ("two", "Ann"), ("zwei", "Bob"), ("none", None)}
    assert set(results(session, text)) == named


@pytest.mark.parametrize("kind", ["JOIN", "LEFT JOIN", "SEMI JOIN", "ANTI JOIN"])
def test_the_same_as_duckdb(kind: str) -> None:
    rng = random.Random(kind)
    n, m = 20_000, 3_000
    facts = stream(
        ts=list(range(n)),
        k=[rng.choice((None, rng.randrange(2_000))) for _ in range(n)],
        s=[rng.choice(("a", "b", None)) for _ in range(n)],
        v=[rng.randrange(100) for _ in range(n)],
    )
    keys = [rng.choice((None, rng.randrange(2_500))) for _ in range(m)]
    texts = [rng.choice(("a", "b", None)) for _ in range(m)]
    things = pa.table({"k": keys, "s": texts, "w": [rng.randrange(100) for _ in range(m)]})
    shown = "f.v" if kind[:4] in ("SEMI", "ANTI") else "f.v, t.w"
    text = f"SELECT {shown} FROM f {kind} t ON f.k = t.k AND f.s = t.s AND f.v < t.w"
    connection = duckdb.connect()
    connection.register("f", facts)
    connection.register("t", things)
    expected = connection.sql(text).fetchall()
    with cql.connect(spark=False, morsel_rows=1_000) as session:
        session.create_stream("f", facts, "ts")
        session.create_stream("t", things)
        assert Counter(results(session, text)) == Counter(expected)


def test_a_table_that_does_not_fit(session: cql.Session) -> None:
    big = pa.table({"page": list(range(200_000)), "size": list(range(200_000))})
    session.create_stream("big", big)
    session.set("morsel_rows", 1_000)
    session.set("max_state", "4 MB")
    with pytest.raises(RunError, match=r"the table big does not fit: .* take [\d,]+ bytes") as said:
        session.sql("SELECT ms, size FROM clicks JOIN big USING (page)").to_arrow()
    assert "fewer columns" in (said.value.hint or "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT ms FROM clicks c LEFT JOIN pages p ON c.page = p.page AND 1 / c.ms > p.site",
         "LEFT OUTER JOIN, which can fail"),
        ("SELECT ms FROM clicks c ANTI JOIN pages p ON c.page = p.page AND concat(c.ms, p.name)"
         " = 'x'", "ANTI JOIN, which computes with both sides"),
    ],
)  # fmt: skip
def test_what_is_refused_is_named(session: cql.Session, text: str, said: str) -> None:
    with pytest.raises(NotSupportedError, match=said) as caught:
        session.sql(text).to_arrow()
    assert caught.value.position is not None


def test_errors_of_names_and_types(session: cql.Session) -> None:
    with pytest.raises(BindError, match="page") as caught:
        session.sql("SELECT page FROM clicks JOIN pages ON clicks.page = pages.page")
    told = f"{caught.value} {caught.value.hint}"
    assert "clicks.page" in told
    assert "pages.page" in told
    with pytest.raises(BindError) as caught:
        session.sql("SELECT ms FROM clicks JOIN pages ON clicks.ts = pages.page")
    assert caught.value.position is not None


def test_an_endless_table_is_none(session: cql.Session) -> None:
    session.create_stream("e", lambda: iter([{"page": 1}]), bounded=False)
    session.create_stream("f", lambda: iter([{"ts": datetime(2024, 1, 1)}]), "ts", bounded=False)
    with pytest.raises(PlanError, match="for ever") as caught:
        session.sql("SELECT f.ts FROM f JOIN e ON true").to_arrow()
    assert "ORDERED BY or WATERMARK on e" in (caught.value.hint or "")


def test_texts_of_a_table_outlive_those_of_the_stream(
    session: cql.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dictionary is compacted while the stream passes new texts; the table's keys are still
    found."""
    monkeypatch.setattr(compaction, "LEAST", 1_000)
    n = 2_000
    texts = [f"fresh {k}" if k % 10 else "one" for k in range(n)]
    session.create_stream("s", stream(ts=list(range(n)), name=texts).to_batches, "ts")
    text = "SELECT pages.name FROM s JOIN pages ON s.name = pages.name AND pages.name <> 'fresh 9'"
    with blocks_of_eight():
        assert results(session, text) == [("one",)] * (n // 10)


KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "whole numbers without gaps": (pa.int64(), list(range(-3, 40))),
    "short whole numbers": (pa.int16(), [k for k in range(-3, 60) if k % 3]),
    "whole numbers with gaps": (pa.int64(), [k * 1_000_003 for k in range(-20, 20)]),
    "the least and the greatest": (pa.int64(), [-(2**63), 2**63 - 1, 0]),
    "texts": (pa.string(), [f"key {k}" for k in range(30)]),
    "fractions": (pa.float64(), [0.0, 0.5, float("inf"), 1e300]),
}


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["JOIN", "LEFT JOIN"])
@pytest.mark.parametrize("name", KEYS)
def test_keys_with_one_row_each(name: str, kind: str) -> None:
    """Some rows find no key, or have none."""
    key, held = KEYS[name]
    rng = random.Random(name)
    table = {"k": pa.array([*held[1:], None], key), "w": pa.array([*range(1, len(held)), None])}
    for found in (held[1:], [*held, None]):  # every row has a partner, and not every row
        drawn = pa.array([rng.choice(found) for _ in range(900)], key)
        times = pa.array(range(900), pa.timestamp("s"))
        rows = pa.table({"ts": times, "k": drawn, "v": range(900)})
        text = f"SELECT v, s.k AS a, c.k AS b, w FROM s {kind} c ON s.k = c.k"
        connection = duckdb.connect()
        connection.register("s", rows)
        connection.register("c", pa.table(table))
        expected = connection.sql(f"{text} ORDER BY v").fetchall()
        with cql.connect(spark=False, morsel_rows=100) as session:
            session.create_stream("s", rows, "ts")
            session.create_stream("c", pa.table(table))
            assert results(session, text) == expected
