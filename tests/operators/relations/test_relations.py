"""Relations: the changelog, the final relation and the streams of each query equal the reference,
for every order of arrival, morsel size and runtime."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.base.settings import Settings
from cql.errors import BindError, NotSupportedError, PlanError
from cql.planner.lower.plan import plan
from cql.planner.nodes.physical import ChangeAggregateExec, walk
from cql.planner.optimize.changelog import is_append_only, is_relation
from cql.planner.optimize.rules import optimize
from tests.support.fuzz.random_cases import (
    check,
    logical_plan,
    open_session,
)
from tests.support.fuzz.random_data import SCHEMAS, TIMES, Stream, random_stream, ticks
from tests.support.relation_cases import (
    RELATIONS,
    STREAMS,
    case_of,
    difference_of_changes,
    expected_changes,
)


@pytest.fixture
def session() -> Any:
    with cql.connect(spark=False) as made:
        data = pa.table({"t": pa.array([1, 2, 4], pa.int64()), "k": [1, 1, 2]})
        made.create_stream("s", data, ordered_by="t")
        made.register_table("plain", data)
        yield made


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.usefixtures("shared_kernels")
@pytest.mark.parametrize("text", RELATIONS)
def test_relation(text: str, seed: int, full: bool) -> None:
    rng = random.Random(f"{text} {seed}")
    for _ in range(60 if full else 2):
        case = case_of(text, rng)
        if "EMIT" not in text:
            check(case)
        found = difference_of_changes(expected_changes(case, logical_plan(case)), case)
        assert found is None, f"{found}\n{case.describe()}"


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.usefixtures("shared_kernels")
@pytest.mark.parametrize("text", STREAMS)
def test_stream(text: str, seed: int, full: bool) -> None:
    rng = random.Random(f"{text} {seed}")
    for _ in range(60 if full else 2):
        check(case_of(text, rng))


BESIDE = {
    "a": "SELECT count(*) AS c FROM a [RANGE UNBOUNDED] WHERE q > -5"
    " UNION ALL SELECT q FROM b [RANGE 3 SECONDS]",
    "n": "SELECT sum(k) AS c FROM n [ROWS 3] UNION ALL SELECT count(*) FROM m [RANGE 5]",
    "m": "SELECT max(c) AS c FROM (SELECT count(*) AS c FROM m [RANGE 5]"
    " UNION ALL SELECT k FROM n [ROWS 2])",
    "d": "SELECT c FROM (SELECT count(*) AS c FROM d [NOW] UNION ALL SELECT k FROM d [ROWS 2])",
}


@pytest.mark.sampled
@pytest.mark.usefixtures("shared_kernels")
@pytest.mark.parametrize("empty", BESIDE)
@pytest.mark.parametrize("stream", ["", "ISTREAM", "DSTREAM", "RSTREAM"])
def test_beside_an_aggregate_of_nothing(empty: str, stream: str, seed: int) -> None:
    """An aggregate over no rows has its row from the beginning, before any row of the other
    relation: also before instant 0, and if the empty input sends punctuation only."""
    text = BESIDE[empty] if not stream else f"SELECT {stream}(c) FROM ({BESIDE[empty]})"
    for start in (-60, 10):
        for punctuated in (False, True):
            rng = random.Random(f"{text} {seed} {start}")
            case = case_of(text, rng)
            streams = []
            for given in case.streams:
                tick = ticks(TIMES[given.name])
                times = [(start + 4 * n) * tick for n in range(6)]
                rows = [(t, *row[1:]) for t, row in zip(times, full_rows(rng), strict=False)]
                marked = given.name == empty and punctuated
                if marked:
                    b = SCHEMAS[given.name].find("b")
                    rows = [(*row[:b], True, *row[b + 1 :]) for row in rows]
                elif given.name == empty:
                    rows = []
                streams.append(Stream(given.name, tuple(rows), 0, marked=marked))
            case = replace(case, streams=tuple(streams))
            check(case)
            if not stream:
                found = difference_of_changes(expected_changes(case, logical_plan(case)), case)
                assert found is None, f"{found}\n{case.describe()}"


def full_rows(rng: random.Random) -> list[tuple[Any, ...]]:
    while len(rows := random_stream(rng, "n").rows) < 6:
        pass
    return list(rows)


def test_the_method_of_each_aggregate() -> None:
    methods = {
        "SELECT count(*) FROM n [RANGE UNBOUNDED]": "append_only",
        "SELECT count(*) FROM n [RANGE 5]": "retract",
        "SELECT sum(v), count(*) FROM n [RANGE 5]": "retract",
        "SELECT max(v), count(*) FROM n [RANGE 5]": "two_stacks",
        "SELECT DISTINCT k FROM n [RANGE 5]": "weights",
        "SELECT max(c) FROM (SELECT max(v) AS c FROM n [RANGE 5] GROUP BY k)": "rescan",
    }
    for text, method in methods.items():
        logical = logical_plan(case_of(text, random.Random(1)))
        made = plan(optimize(logical), Settings())
        first = next(n for n in walk(made.root) if isinstance(n, ChangeAggregateExec))
        assert first.method == method


def test_what_is_a_relation() -> None:
    for text, relation, append_only in (
        ("SELECT * FROM n [RANGE 5]", True, True),
        ("SELECT count(*) FROM n [RANGE 5]", True, False),
        ("SELECT ISTREAM(*) FROM n [RANGE 5]", False, True),
        ("SELECT count(*) AS c FROM n [RANGE 4 SLIDE 2]", False, True),
    ):
        logical = logical_plan(case_of(text, random.Random(1)))
        assert (is_relation(logical), is_append_only(logical)) == (relation, append_only)


def test_final_relation_and_its_changes(session: cql.Session) -> None:
    query = session.sql("SELECT k, count(*) AS c FROM s [RANGE 2] GROUP BY k ORDER BY k DESC")
    assert query.to_arrow().to_pylist() == [{"k": 2, "c": 1}, {"k": 1, "c": 1}]
    rows = [tuple(r.values()) for b in query.batches() for r in b.to_pylist()]
    assert rows == [
        (1, 1, 1, 1), (2, -1, 1, 1), (2, 1, 1, 2), (4, -1, 1, 2), (4, 1, 1, 1), (4, 1, 2, 1),
        (5, -1, 1, 1), (7, -1, 2, 1),
    ]  # fmt: skip


def test_signs_within_an_instant(session: cql.Session) -> None:
    """As in STREAM: within an instant, deletions precede insertions in a RANGE window and follow
    them in a ROWS window."""

    def signs(window: str) -> list[int]:
        query = session.sql(f"SELECT DISTINCT t FROM s {window}")
        return [r["_weight"] for b in query.batches() for r in b.to_pylist() if r["_time"] == 2]

    assert signs("[RANGE 0]") == [-1, 1]
    assert sorted(signs("[ROWS 1]")) == [-1, 1]


def test_changes_are_net(session: cql.Session) -> None:
    """An instant's changes are net: a group whose result stays the same, or whose row another group
    takes over, outputs nothing."""
    data = pa.table({"t": pa.array([1, 2, 2, 3], pa.int64()), "k": [1, 1, 2, 1], "v": [5, 6, 5, 7]})
    session.create_stream("p", data, ordered_by="t")
    for text in (
        "SELECT max(v) - min(v) AS w FROM p [PARTITION BY k ROWS 2] GROUP BY k HAVING count(*) > 1",
        "SELECT v FROM (SELECT k, max(v) AS v FROM p [NOW] GROUP BY k)",
        "SELECT count(*) AS c FROM p [NOW] UNION ALL SELECT count(*) FROM p [ROWS 2]",
    ):
        rows = [tuple(r.values()) for b in session.sql(text).batches() for r in b.to_pylist()]
        assert len({(time, value) for time, _, value in rows}) == len(rows), text


def test_the_row_that_leaves(session: cql.Session) -> None:
    """If two rows have equal values, the row that leaves its window is removed, here the first
    5."""
    data = pa.table({"t": pa.array([1, 2, 3, 4], pa.int64()), "v": [5, 9, 5, 0]})
    session.create_stream("p", data, ordered_by="t")
    query = session.sql("""
        SELECT first(v) AS f, last(v) AS l FROM (
            SELECT v FROM p [ROWS 3] WHERE t = 1 UNION ALL
            SELECT v FROM p [RANGE 9] WHERE t BETWEEN 2 AND 3
        )
    """)
    assert query.to_arrow().to_pylist() == [{"f": 9, "l": 5}]


def test_of_an_input_without_rows(session: cql.Session) -> None:
    query = session.sql("SELECT count(*) AS c, max(k) AS m FROM s [RANGE 2] WHERE k > 9")
    assert query.to_arrow().to_pylist() == [{"c": 0, "m": None}]


def test_of_punctuation_alone(session: cql.Session) -> None:
    """Punctuation advances the source to an instant before 0, without any row."""
    data = pa.table({"t": pa.array([-5], pa.int64()), "k": [1], "m": [True]})
    session.create_stream("p", data, ordered_by="t", punctuated={"t": "m"})
    query = session.sql("SELECT count(*) AS c, max(k) AS k FROM p [ROWS 2]")
    assert query.to_arrow().to_pylist() == [{"c": 0, "k": None}]


def test_tables_hold_from_the_beginning(session: cql.Session) -> None:
    query = session.sql("SELECT k FROM plain EXCEPT ALL SELECT k FROM s [ROWS 1]")
    assert query.to_arrow().to_pylist() == [{"k": 1}, {"k": 1}]
    both = session.sql("SELECT k FROM plain INTERSECT SELECT k FROM plain WHERE k > 1")
    assert both.to_arrow().to_pylist() == [{"k": 2}]


def test_a_table_takes_no_changes(session: cql.Session) -> None:
    session.sql("CREATE TABLE target (c BIGINT)")
    with pytest.raises(PlanError, match="change and leave"):
        session.sql("INSERT INTO target SELECT count(*) AS c FROM s [RANGE 2]")
    session.sql("INSERT INTO target SELECT ISTREAM(count(*) AS c) FROM s [RANGE 2]")
    assert session.sql("SELECT * FROM target").to_arrow()["c"].to_pylist() == [1, 2, 1, 0]


def test_a_table_of_changes_takes_them(session: cql.Session) -> None:
    query = "SELECT k, count(*) AS c FROM s [RANGE 5] GROUP BY k"
    session.sql("CREATE TABLE changes (_time BIGINT, _weight BIGINT, k INT, c BIGINT)")
    session.sql(f"INSERT INTO changes {query}").to_arrow()
    told = session.sql("SELECT * FROM changes").to_arrow().to_pylist()
    seen = [row for batch in session.sql(query).batches() for row in batch.to_pylist()]
    assert seen
    assert Counter(map(repr, told)) == Counter(map(repr, seen))
    session.sql("CREATE TABLE others (_time TIMESTAMP, _weight BIGINT, k INT, c BIGINT)")
    with pytest.raises(BindError, match="column _time has type timestamp"):
        session.sql(f"INSERT INTO others {query}")


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        ("SELECT count(*) FROM s [SESSION 2] EMIT CHANGES", "EMIT CHANGES"),
        ("SELECT count(*) FROM s [PARTITION BY k ROWS 2, RANGE 4]", "ROWS together with RANGE"),
        ("SELECT count(*) FROM (SELECT count(*) AS c FROM s [NOW]) [RANGE 4 SLIDE 2]", "watermark"),
    ],
)
def test_refused(session: cql.Session, text: str, clause: str) -> None:
    with pytest.raises(cql.CqlError) as refused:
        session.sql(text)
    assert clause in refused.value.message
    assert refused.value.position is not None or not isinstance(refused.value, NotSupportedError)


def test_refused_without_a_clock(session: cql.Session) -> None:
    with pytest.raises(cql.CqlError, match="has a watermark"):
        session.sql("SELECT count(*) FROM plain [ROWS 3]")


#: Windows of each type of time, with and without their bounds, which follow from the window's end.
EARLY = (
    "SELECT s, count(*) AS c, sum(q) AS q, window_end FROM n [RANGE 20 SLIDE 10] GROUP BY s",
    "SELECT s, count(*) AS c, window_start FROM n [RANGE 20 SLIDE 10] GROUP BY s",
    "SELECT k, count(*) AS c FROM n [RANGE 20 SLIDE 5] GROUP BY k",
    "SELECT count(*) AS c, window_time, window_start AS w FROM a [RANGE 3 SECONDS SLIDE 1 SECOND]"
    " HAVING window_start > TIMESTAMP '1970-01-01 00:00:02'",
    "SELECT s, max(q) AS q, window_start, window_time, window_end"
    " FROM d [RANGE 4 DAYS SLIDE 2 DAYS] GROUP BY s",
    "SELECT c + 1 AS c, w FROM (SELECT count(*) AS c, window_start AS w, window_end AS e, k"
    " FROM n [RANGE 8 SLIDE 8] GROUP BY k) WHERE e > 8 AND k > 0",
    "SELECT s, min(q) AS q, window_start FROM TABLE(CUMULATE(TABLE n, DESCRIPTOR(t), 5, 20))"
    " GROUP BY s, window_start, window_end",
)


@pytest.mark.sampled
@pytest.mark.parametrize("text", EARLY, ids=range(len(EARLY)))
def test_early_results_end_as_those_of_closed_windows(seed: int, text: str) -> None:
    """The changes sum to the rows that leave without EMIT CHANGES; the groups of closed windows are
    removed."""
    case = case_of(text, random.Random(seed))
    with open_session(case) as session, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        closed = Counter(map(repr, session.sql(text + " ON BAD ROW KEEP").to_arrow().to_pylist()))
        query = session.sql(text + " EMIT CHANGES ON BAD ROW KEEP")
        early: Counter[str] = Counter()
        for row in query.to_arrow().to_pylist():
            weight = row.pop("_weight")
            row.pop("_time")
            early[repr(row)] += weight
        groups = [m["groups"] for m in query.metrics() if m["operator"].startswith("aggregate")]
    assert {row: n for row, n in early.items() if n} == closed
    assert groups == [0]
