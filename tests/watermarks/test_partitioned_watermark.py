"""Group-wise punctuation (PUNCTUATE BY; out-of-order paper A.1.1): each value of a column has its
own watermark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cql import Punctuation
from cql.errors import BindError, PlanError, RunError
from cql.query.query import Query
from cql.session.session import CqlWarning, Session
from tests.support import runtimes
from tests.support.fuzz.random_cases import case_of, check
from tests.support.groupwise import COUNT, UNITED, WINDOW, by_value, results, table

pytestmark = pytest.mark.usefixtures("shared_kernels")


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(False) as made:
        yield made


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("index", [*range(UNITED), UNITED + 1, UNITED + 2])
def test_random_cases(index: int, full: bool) -> None:
    outcomes: Counter[str] = Counter()
    for turn in range(200 if full else 4):
        outcomes[check(case_of(by_value(index), turn))] += 1
    assert outcomes["same"] > 1


# When windows close -------------------------------------------------------------------------------


ROWS = [(1, "a"), (2, "b"), (25, "a"), (3, "b"), (31, "a"), (14, "a"), (26, "b"), (7, None)]


@pytest.mark.parametrize("morsel_rows", [1, 3, 65_536])
def test_the_watermark_of_its_value_makes_a_row_late(session: Session, morsel_rows: int) -> None:
    session.set("morsel_rows", morsel_rows)
    session.create_stream("s", table(ROWS, "t", "p"), ordered_by="t", punctuated_by="p")
    # b and NULL come after 25 of a and are on time; 14 of a comes after 25 of a and is late
    groups = [("a", 1, 10), ("a", 1, 30), ("b", 2, 10), ("a", 1, 40), ("b", 1, 30), (None, 1, 10)]
    assert Counter(results(session)) == Counter(groups)
    query = session.sql(COUNT)
    assert isinstance(query, Query)
    query.to_arrow()
    late = {(e["place"], e["kind"]): e["count"] for e in query.late().to_pylist()}
    assert late == {("s", "rows"): 1, ("aggregate#0", "pairs"): 1}


def test_groups_leave_by_their_own_watermark(session: Session) -> None:
    """a's windows close as a advances, while b's stay open."""
    rows = [(1, "b"), (1, "a"), (11, "a"), (21, "a"), (31, "a"), (12, "b"), (32, "a")]
    session.create_stream("s", table(rows, "t", "p"), ordered_by="t", punctuated_by="p")
    ends = [(p, e) for p, _, e in results(session)]
    assert ends == [("a", 10), ("a", 20), ("a", 30), ("b", 10), ("b", 20), ("a", 40)]


def test_a_group_waits_for_no_other(session: Session) -> None:
    """a's window closes while b is silent."""
    seen: list[Any] = []

    def items() -> Iterator[dict[str, Any]]:
        yield from ({"t": t, "p": p} for t, p in ((1, "b"), (2, "a"), (11, "a")))
        for _ in range(100_000):  # until the reader has seen the window of a
            if seen:
                break
            yield {"t": 12, "p": "a"}
        yield {"t": 3, "p": "b"}

    session.create_stream("s", items, ordered_by="t", bounded=False, punctuated_by=("p", 1_000))
    query = session.sql(COUNT)
    assert isinstance(query, Query)
    for batch in query:
        seen += [(row["p"], row["n"], row["e"]) for row in batch.to_pylist()]
    assert seen[0] == ("a", 1, 10)
    assert ("b", 2, 10) in seen


def test_within_says_how_far_values_may_be_apart(session: Session) -> None:
    """b's windows close once the highest time of all rows is 30 beyond their ends."""
    rows = [(1, "b"), (2, "a"), (45, "a"), (3, "b"), (12, "b"), (22, "c")]
    clauses = {"ordered_by": "t", "punctuated_by": ("p", 30)}
    session.create_stream("s", table(rows, "t", "p"), **clauses)
    groups = [("b", 1, 10), ("a", 1, 10), ("a", 1, 50), ("b", 1, 20), ("c", 1, 30)]
    assert Counter(results(session)) == Counter(groups)  # 3 of b is late: 10 <= 45 - 30


def test_promises_of_the_source(session: Session) -> None:
    """A punctuation row holds for its value; with a NULL value, for all values."""
    rows = [
        *((1, "a", False), (2, "b", False), (10, "b", True), (3, "b", False), (4, "a", False)),
        *((10, None, True), (5, "a", False), (6, "c", False), (12, "c", False)),
    ]
    session.create_stream("s", table(rows, "t", "p", "m"), punctuated={"t": "m"}, punctuated_by="p")
    assert results(session) == [("b", 1, 10), ("a", 2, 10), ("c", 1, 20)]


def test_promises_between_rows_hold_for_all(session: Session) -> None:
    items: list[Any] = [{"t": 1, "p": "a"}, {"t": 15, "p": "b"}, {"t": 2, "p": "a"}]
    items += [Punctuation("t", 20), {"t": 3, "p": "a"}, {"t": 21, "p": "a"}]
    clauses = {"ordered_by": "t", "punctuated": "t", "punctuated_by": "p"}
    session.create_stream("s", items, **clauses)
    assert results(session) == [("a", 2, 10), ("b", 1, 20), ("a", 1, 30)]


@pytest.mark.parametrize(
    ("values", "keys", "behind", "morsel_rows"),
    [(5, 3, 300, 65_536), (200, 20, 200, 7), (2_000, 1, 500, 65_536), (3, 1_000, 500, 64)],
)
def test_groups_that_leave_make_room(
    session: Session, values: int, keys: int, behind: int, morsel_rows: int
) -> None:
    """No row is lost while window entries move into the places of closed windows."""
    rng = np.random.default_rng(values)
    n = 20_000
    t, p, k = np.sort(rng.integers(0, 1_000, n)), rng.integers(0, values, n), None
    k = rng.integers(0, keys, n)
    order = np.argsort(t + rng.integers(0, behind + 1, values)[p], kind="stable")
    t, p, k = t[order], p[order], k[order]
    session.set("morsel_rows", morsel_rows)
    data = pa.table({"t": t, "p": p, "k": k})
    session.create_stream("s", data, ordered_by="t", punctuated_by="p")
    text = "SELECT p, k, count(*), window_end FROM s [RANGE 30 SLIDE 10] GROUP BY k, p"
    expected: Counter[tuple[int, ...]] = Counter()
    for time, value, key in zip(t.tolist(), p.tolist(), k.tolist(), strict=True):
        for w in range(time // 10 - 2, time // 10 + 1):
            expected[value, key, 10 * w + 30] += 1
    found = {(value, key, end): n for value, key, n, end in results(session, text)}
    assert found == expected


def test_the_state_of_groups_that_have_left_is_given_back(session: Session) -> None:
    """The peak does not depend on the stream's length, though one value keeps old windows open."""
    session.set("morsel_rows", 64)
    peaks = []
    for n in (20_000, 80_000):
        i = np.arange(n)
        p, k = i % 40, i // 40 % 7
        t = np.where(p == 0, np.maximum(i // 20 - 200, 0), i // 20)
        data, clauses = pa.table({"t": t, "p": p, "k": k}), {"ordered_by": "t", "replace": True}
        session.create_stream("s", data, punctuated_by=("p", 500), **clauses)
        query = session.sql(
            "SELECT p, k, count(*), window_end FROM s [RANGE 30 SLIDE 10] GROUP BY k, p"
        )
        assert isinstance(query, Query)
        assert query.to_arrow().num_rows > n // 20
        peaks.append(query.metrics()[-1]["peak_bytes"])
    assert peaks[0] == peaks[1]


# State of DISTINCT and holistic aggregates --------------------------------------------------------

KEPT = """
    SELECT p, k, count(*) AS n, count(DISTINCT v) AS d, count(DISTINCT w) AS dw,
        sum(DISTINCT v) FILTER (WHERE i % 3 <> 0) AS e, median(v) AS mv, mode(w) AS mw,
        string_agg(w, ',') FILTER (WHERE k = 1) AS ws, array_agg(i) AS xs,
        array_agg(DISTINCT w ORDER BY w DESC) AS ds,
        percentile_disc(0.9) WITHIN GROUP (ORDER BY v) AS pv, sum(i) AS s, window_end
    FROM s [RANGE 30 SLIDE 10] GROUP BY k, p"""


def kept_values() -> pa.Table:
    """Rows in which some values lag behind others; keys and values include texts and NULLs."""
    rng, n = np.random.default_rng(7), 1_000
    t, p = np.sort(rng.integers(0, 150, n)), rng.integers(0, 9, n)
    order = np.argsort(t + rng.integers(0, 90, 9)[p], kind="stable")
    t, p, k = t[order], p[order], rng.integers(0, 4, n)
    v, w = rng.integers(0, 6, n), rng.integers(0, 20, n)
    return pa.table(
        {
            "t": t,
            "p": pa.array([None if x == 0 else f"p{x}" for x in p.tolist()]),
            "k": pa.array(k, mask=k == 0),
            "v": pa.array(v, mask=v == 0),
            "w": pa.array([None if x == 0 else f"w{x}" for x in w.tolist()]),
            "i": np.arange(n),
        }
    )


@pytest.mark.slow
def test_what_is_kept_beside_groups_leaves_with_them(session: Session) -> None:
    """DISTINCT and holistic aggregates equal those over the same rows in order of time, though
    windows close value by value."""
    data = kept_values()
    in_order = data.take(pa.array(np.argsort(data["t"].to_numpy(), kind="stable")))
    session.create_stream("s", in_order, ordered_by="t")
    expected = Counter(map(repr, results(session, KEPT)))
    assert len(expected) > 500
    session.create_stream("s", data, ordered_by="t", punctuated_by="p", replace=True)
    for case, settings in enumerate(runtimes.RUNTIMES):
        runtimes.apply(session, settings, {"morsel_rows": 13 if case % 2 else 4_096})
        assert Counter(map(repr, results(session, KEPT))) == expected, settings


def test_results_of_kept_values_wait_for_no_other_value(session: Session) -> None:
    rows = [(1, "b", 1), (1, "a", 2), (2, "a", 2), (3, "a", 9), (11, "a", 7), (21, "a", 5)]
    rows += [(12, "b", 4), (32, "a", 1)]
    session.create_stream("s", table(rows, "t", "p", "v"), ordered_by="t", punctuated_by="p")
    text = f"SELECT p, count(DISTINCT v), median(v), window_end FROM s {WINDOW} GROUP BY p"
    a = [("a", 2, 2.0, 10), ("a", 1, 7.0, 20)]
    b = [("b", 1, 1.0, 10), ("b", 1, 4.0, 20)]
    assert results(session, text) == [*a, *b[:1], ("a", 1, 5.0, 30), *b[1:], ("a", 1, 1.0, 40)]


@pytest.mark.parametrize("fixed", [0, 300])
def test_what_is_kept_is_given_back_while_the_window_stays(session: Session, fixed: int) -> None:
    """One window stays open while values come and close in it: the peak is that of the values that
    are open at one time, though their groups move."""
    session.set("morsel_rows", 64)
    peaks = []
    for n in (400, 4_000):
        rows: list[tuple[Any, ...]] = [(0, -1 - i, i, False) for i in range(fixed + 1)]
        for p in range(n):
            rows += [(1 + i, p, (p + i) % 50, False) for i in range(9)]
            rows += [(10, p, None, True)] + [(2, -1 - p % (fixed + 1), -p % 7, False)] * (p < 50)
        data = pa.table(
            {
                "t": pa.array([row[0] for row in rows]),
                "p": pa.array([row[1] for row in rows]),
                "v": pa.array([row[2] for row in rows]),
                "m": pa.array([row[3] for row in rows]),
            }
        )
        clauses: dict[str, Any] = {"punctuated": {"t": "m"}, "replace": True}
        session.create_stream("s", data, punctuated_by="p", **clauses)
        query = session.sql(f"""
            SELECT p, v % 3 AS k, count(DISTINCT v), median(v), count(DISTINCT t) FILTER (
                WHERE v > 40), array_agg(v), window_end FROM s {WINDOW} GROUP BY p, v % 3""")
        assert isinstance(query, Query)
        found = query.to_arrow()
        expected: dict[tuple[Any, ...], list[int]] = {}
        for _, p, v, mark in rows:
            if not mark:
                expected.setdefault((p, v % 3 if v >= 0 else -(-v % 3)), []).append(v)
        given = {(row["p"], row["k"]): row for row in found.to_pylist()}
        assert found.num_rows == len(given) == len(expected)
        for key, values in expected.items():
            row = list(given[key].values())
            assert row[2] == len(set(values))
            assert row[3] == float(np.median(values))
            assert row[4] <= 9
            assert sorted(row[5]) == sorted(values)
        peaks.append(query.metrics()[-1]["peak_bytes"])
    assert peaks[0] == peaks[1]


def test_the_first_row_of_a_value_measures_the_others(session: Session) -> None:
    """98 of a, late, confirms 100 of a; 110 of b is more than 5 ahead and waits."""
    rows = [(100, "a"), (98, "a"), (110, "b"), (109, "b"), (104, "b")]
    clauses: dict[str, Any] = {"ordered_by": "t", "punctuated_by": "p", "max_advance": 5}
    session.create_stream("s", table(rows, "t", "p"), **clauses)
    with pytest.warns(CqlWarning, match="jumped"):
        found = results(session, COUNT.replace("RANGE 10 SLIDE 10", "RANGE 1 SLIDE 1"))
    assert Counter(found) == Counter((p, 1, t + 1) for t, p in rows if t != 98)


def test_values_that_tell_nothing_are_forgotten(session: Session, small_blocks: None) -> None:
    """With ever-new values, memory holds only the values that are less than 10 behind."""
    rows = [(i // 4, f"value {i}") for i in range(4_000)]
    session.set("max_state", "3 MB")
    session.set("morsel_rows", 64)
    clauses: dict[str, Any] = {"ordered_by": "t", "replace": True}
    session.create_stream("s", table(rows, "t", "p"), punctuated_by=("p", 10), **clauses)
    query = session.sql(COUNT)
    assert isinstance(query, Query)
    assert query.to_arrow().num_rows == 4_000
    session.set("max_state", "1 MB")
    session.create_stream("s", table(rows * 5, "t", "p"), punctuated_by="p", **clauses)
    with pytest.raises(RunError, match="max_state"):
        results(session)


def test_queries_that_start_together(session: Session) -> None:
    """Queries of one set share a scan that reorders the columns; each result stays the same."""
    rows = [(0, t, p) for t, p in ROWS]
    session.create_stream("s", table(rows, "v", "t", "p"), ordered_by="t", punctuated_by="p")
    texts = [COUNT, COUNT.replace("SLIDE 10", "SLIDE 5"), "SELECT v, t FROM s WHERE v = 0"]
    alone = [Counter(results(session, text)) for text in texts]
    queries = session.query_set(";\n".join(texts)).queries
    found = [Counter(tuple(r.values()) for r in q.to_arrow().to_pylist()) for q in queries]
    assert found == alone


# Queries that await no watermark, and refusals ----------------------------------------------------


def test_what_needs_no_watermark_runs(session: Session) -> None:
    session.create_stream("s", table(ROWS, "t", "p"), ordered_by="t", punctuated_by="p")
    assert results(session, "SELECT t, p FROM s WHERE t > 0") == ROWS
    assert results(session, "SELECT t FROM s") == [(t,) for t, _ in ROWS]
    assert results(session, "SELECT count(*) FROM s") == [(len(ROWS),)]
    outer = f"SELECT e, sum(n) FROM ({COUNT}) AS x GROUP BY e"
    assert sum(n for _, n in results(session, outer)) == len(ROWS) - 1


@pytest.mark.parametrize(
    ("clauses", "what"),
    [
        ("PUNCTUATE BY p", "needs a column with a watermark"),
        ("ORDERED BY t PUNCTUATE BY x", "x is a double"),
        ("ORDERED BY t PUNCTUATE BY t", "t has a watermark"),
        ("ORDERED BY t PUNCTUATE BY p PUNCTUATE BY x", "twice"),
        ("ORDERED BY t PUNCTUATE BY nothing", "no column nothing"),
        ("ORDERED BY t PUNCTUATE BY p WITHIN 5 SECONDS", "unit is not declared"),
    ],
)
def test_clauses_that_cannot_be(session: Session, clauses: str, what: str) -> None:
    session.register_table("r", table([(1, "a", 0.5)], "t", "p", "x"))
    with pytest.raises(BindError, match=what):
        session.sql(f"CREATE STREAM s FROM TABLE r {clauses}")


def test_input_without_an_end_says_how_far_values_may_be_apart(session: Session) -> None:
    def rows() -> Iterator[dict[str, Any]]:
        yield {"t": 1, "p": "a"}

    session.create_stream("s", rows, ordered_by="t", bounded=False, punctuated_by="p")
    with pytest.raises(PlanError, match="how far its values may be apart") as found:
        session.sql(COUNT)
    assert "WITHIN 1000" in (found.value.hint or "")
    for name, clauses in (("a", {"unit": "seconds"}), ("b", {"punctuated_by": ("p", 5)})):
        given: dict[str, Any] = {"ordered_by": "t", "punctuated_by": "p", **clauses}
        session.create_stream(name, rows, bounded=False, **given)
        query = session.sql(COUNT.replace("FROM s", f"FROM {name}"))
        assert isinstance(query, Query)
        assert [row for batch in query for row in batch.column("n").to_pylist()] == [1]


def test_explain(session: Session) -> None:
    session.create_stream("s", table(ROWS, "t", "p"), ordered_by="t", punctuated_by=("p", 90))
    plan = str(session.sql(f"EXPLAIN {COUNT}"))
    assert "each p for itself (PUNCTUATE BY)" in plan
    assert "each p has its own watermark, at most 90 behind" in plan
    ran = str(session.sql(f"EXPLAIN ANALYZE {COUNT}"))
    assert "time was held back in s by rows whose p is NULL: 24 behind at the end" in ran
