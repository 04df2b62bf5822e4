"""The order of joins: the chosen order, its reason, and that the order changes no row."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain, count

import pyarrow as pa
import pytest

import cql
from tests.reference.naive_compare import difference, storage_rows


def table(seed: int, rows: int, keys: int) -> pa.Table:
    rng = random.Random(seed)
    return pa.table(
        {
            "t": sorted(rng.randrange(60) for _ in range(rows)),
            "k": [rng.randrange(keys) for _ in range(rows)],
            "j": [rng.randrange(4) for _ in range(rows)],
        }
    )


@pytest.fixture
def session() -> Iterator[cql.Session]:
    with cql.connect(spark=False) as made:
        for name, rows, keys in (("big", 60, 3), ("wide", 50, 5), ("few", 6, 5), ("one", 1, 2)):
            made.create_stream(name, table(rows, rows, keys), "t")
        made.create_stream("held", table(7, 9, 3).drop_columns("t"))
        yield made


CASES = (
    "SELECT count(*) AS n, sum(b.j) AS s FROM big [RANGE UNBOUNDED] b,"
    " wide [RANGE UNBOUNDED] w, few [RANGE UNBOUNDED] f WHERE b.k = w.k AND w.j = f.j",
    "SELECT b.t, w.k, f.j, o.t AS u FROM big [ROWS 40] b JOIN wide [ROWS 30] w"
    " ON b.k = w.k JOIN few [ROWS 2] f ON f.k = w.k JOIN one [ROWS 1] o ON o.k <> f.j",
    "SELECT * FROM (SELECT k, max(j) AS j FROM big [RANGE 30] GROUP BY k) b"
    " CROSS JOIN wide [RANGE UNBOUNDED] w JOIN few [ROWS 1] f ON f.k = w.k AND f.j = b.j"
    " WHERE w.t > 3 EMIT CHANGES",
)


STAR = (
    "SELECT b.k, w.j, f.t FROM big b, wide w, few f WHERE b.t BETWEEN f.t - 30 AND f.t + 20"
    " AND f.t - w.t <= 25 AND f.t > w.t - 16 AND b.k <= w.k"
)
REASONS = (
    *((text, "pairs at a time, as written") for text in CASES),
    (STAR, "order big, few, wide: each has a band with one before it"),
)


@pytest.mark.sampled
@pytest.mark.parametrize(("text", "why"), REASONS)
def test_another_order_has_the_same_rows(session: cql.Session, text: str, why: str) -> None:
    query = session.sql(text)
    assert why in query.explain()
    chosen = query.to_arrow()
    session.set("join_order", "written")
    written = session.sql(text)
    assert "as written" not in written.explain()
    expected = written.to_arrow()
    assert chosen.schema == expected.schema
    assert expected.num_rows > 0
    assert difference(storage_rows(expected), storage_rows(chosen)) is None


def test_the_small_input_comes_first(session: cql.Session) -> None:
    """few × wide gives 6 × 50 / 5 = 60 pairs, wide × big many more."""
    assert "order few, wide, big: about 60 pairs" in session.sql(CASES[0]).explain()


@pytest.mark.parametrize(
    "text",
    [
        # only two inputs; a condition that can fail; an outer join; a lookup in a table
        "SELECT b.k FROM big [ROWS 9] b, few [ROWS 1] f WHERE b.k = f.k",
        "SELECT b.k FROM big [ROWS 9] b, wide [ROWS 9] w, few [ROWS 1] f"
        " WHERE 6 / (b.k + w.k) = f.k",
        "SELECT b.k FROM big [ROWS 9] b JOIN wide [ROWS 9] w ON b.k = w.k LEFT JOIN few [ROWS 1] f"
        " ON f.j = w.j",
        "SELECT b.k FROM big [ROWS 9] b, wide [ROWS 9] w, held f WHERE b.k = w.k AND f.j = w.j",
    ],
)
def test_where_the_written_order_stays(session: cql.Session, text: str) -> None:
    assert "pairs at a time" not in session.sql(text).explain()


@pytest.mark.parametrize(
    "text",
    [
        # each stream has a band with an earlier one; one stream has no band; one band has one bound
        STAR.replace("big b, wide w, few f", "big b, few f, wide w"),
        STAR.replace("f.t - w.t <= 25 AND f.t > w.t - 16", "f.j = w.j"),
        STAR.replace("f.t - w.t <= 25 AND ", ""),
    ],
)
def test_where_streams_with_bands_stay(session: cql.Session, text: str) -> None:
    assert "each has a band" not in session.sql(text).explain()


ENDLESS = (
    "FROM p, q, r WHERE p.t BETWEEN r.t - 3 AND r.t + 1 AND q.t = r.t",
    "FROM p, q, r WHERE abs(p.t - r.t) <= 2 AND abs(q.t - r.t) <= 3 AND p.v + 1 > 2",
    "FROM held, p, q, r WHERE abs(p.t - r.t) <= 2 AND abs(q.t - r.t) <= 3 AND held.k = p.k",
    # a chain whose ends join last, and trees: a later band uses the first stream's time again
    "FROM q, r, p, x WHERE abs(p.t - q.t) <= 2 AND abs(q.t - r.t) <= 2 AND abs(x.t - r.t) <= 1",
    "FROM p JOIN q ON p.t = q.t JOIN r ON r.t = q.t JOIN x ON x.t - p.t BETWEEN 1 AND 2",
    "FROM p, q, r, x, p AS y WHERE abs(p.t - q.t) <= 1 AND abs(p.t - r.t) <= 1"
    " AND abs(q.t - x.t) <= 1 AND r.t = y.t + 1",
)


@pytest.mark.sampled
@pytest.mark.parametrize("joined", ENDLESS)
def test_endless_streams_join_as_those_that_end(session: cql.Session, joined: str) -> None:
    rows = pa.table({"t": range(30), "k": [t % 4 for t in range(30)], "v": range(30)})
    text = f"SELECT p.t, q.t AS u, r.t AS v {joined}"
    results = []
    for bounded in (True, False):
        for name in "pqrx":
            data = rows if bounded else lambda: iter(rows.to_batches(7))
            session.create_stream(name, data, "t", bounded=bounded, replace=True)
        results.append(pa.Table.from_batches(session.sql(text)))
    assert results[0].num_rows > 20
    assert difference(*map(storage_rows, results)) is None


@pytest.mark.sampled
@pytest.mark.parametrize("time", ["p.t", "q.t", "r.t"])
def test_groups_close_by_each_time_of_a_join_of_three(session: cql.Session, time: str) -> None:
    """The bands bound how far each earlier input's time lies below the time of the last input."""
    for name in "pqr":
        session.create_stream(name, lambda: ({"t": n} for n in count()), "t", bounded=False)
    query = session.sql(
        f"SELECT count(*) AS n, window_end [RANGE 50, SLIDE 50, WA {time}]"
        " FROM p, q, r WHERE q.t - p.t BETWEEN 1 AND 2 AND r.t - q.t BETWEEN -3 AND 5"
    )
    steps = [(a, a + b) for a in (1, 2) for b in range(-3, 6)]
    pairs = [(p, p + a, p + b) for p in range(200) for a, b in steps if p + b >= 0]
    at = [pair["pqr".index(time[0])] for pair in pairs]
    windows = chain.from_iterable(batch.to_pylist() for batch in query)
    for end, window in zip((50, 100, 150), windows, strict=False):
        assert window == {"n": sum(end - 50 <= t < end for t in at), "window_end": end}


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        "p, q LEFT JOIN r ON r.t = q.t",
        "p, q LEFT JOIN r ON r.t BETWEEN q.t - 2 AND q.t + 3",
        "p, q LEFT JOIN r ON r.t = q.t LEFT JOIN r AS o ON o.t = p.t",
        "p, q LEFT SEMI JOIN r ON r.t = q.t",
        "p, q LEFT JOIN r ON r.t = q.t LEFT ANTI JOIN r AS o ON o.t = q.t AND o.v > r.v",
        "p, q ASOF JOIN r ON q.t >= r.t",
    ],
)
def test_bands_of_a_preserved_side_bound_it(session: cql.Session, source: str) -> None:
    """WHERE filters the output of the outer join; its band still bounds the join below."""
    for name in ("p", "q", "r"):
        session.create_stream(name, lambda: ({"t": n, "v": n} for n in count()), "t", bounded=False)
    text = f"SELECT p.t, q.t AS u FROM {source} WHERE p.v >= 3 AND abs(p.t - q.t) <= 5"
    batch = next(iter(session.sql(text)))
    found = batch.to_pylist()
    assert found
    assert all(row["t"] >= 3 and abs(row["t"] - row["u"]) <= 5 for row in found)
