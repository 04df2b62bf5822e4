"""LATE OUTPUT INTO receives exactly the rows that some window leaves out, whatever the plan."""

from __future__ import annotations

import contextlib
import random
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql import CqlError, Query, Session
from cql.base.window import Window, WindowKind
from cql.errors import BindError, CatalogError, NotSupportedError
from cql.executor.operators.flow.late_output import leaves_out
from tests.reference.naive_windows import DAY, windows_of
from tests.support.runtimes import ORDERED, named

pytestmark = pytest.mark.usefixtures("shared_kernels")

SLACK = 4

WINDOWS = {
    "[RANGE 10 SLIDE 10]": Window(WindowKind.SLIDING, 0, 10, 10),
    "[RANGE 20 SLIDE 5]": Window(WindowKind.SLIDING, 0, 20, 5),
    "[RANGE 7 SLIDE 3]": Window(WindowKind.SLIDING, 0, 7, 3),
    "[RANGE 3 SLIDE 7 OFFSET 2]": Window(WindowKind.SLIDING, 0, 3, 7, 2),
    "[RANGE 20 CUMULATE 5]": Window(WindowKind.CUMULATE, 0, 20, 5),
    "[SESSION 6]": Window(WindowKind.SESSION, 0, gap=6),
}


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect() as made:
        yield made


def rows_of(seed: int, name: str) -> list[dict[str, Any]]:
    rng = random.Random(f"{seed} {name}")
    return [
        {
            "t": 3 * k + rng.randint(-25, 5) - 40,
            "k": rng.choice([1, 2, None]),
            "s": rng.choice(["a", "", None, "žluť"]),
            "b": rng.choice([True, False, None]),
            "id": f"{name}{k}",
        }
        for k in range(80)
    ]


def lost(rows: list[dict[str, Any]], window: Window, slack: int = SLACK) -> list[dict[str, Any]]:
    """The late rows by the rule: a window leaves a row out iff its end <= the row watermark."""
    found, highest = [], None
    for row in rows:
        own, t = -(1 << 60) if highest is None else highest - slack, row["t"]
        if window.kind is WindowKind.SESSION:
            assert window.gap is not None
            late = t + window.gap <= own
        else:
            late = any(end <= own for _, end in windows_of(window, t))
        if late:
            found.append(row)
        highest = t if highest is None else max(highest, t)
    return found


def made(session: Session, rows: list[dict[str, Any]], name: str = "s") -> None:
    schema = pa.schema(
        [("t", pa.int64()), ("k", pa.int32()), ("s", pa.string()), ("b", pa.bool_())]
    ).append(pa.field("id", pa.string()))
    table = pa.Table.from_pylist(rows, schema=schema)
    session.create_stream(name, table, ordered_by="t", slack=SLACK)


def run(session: Session, text: str) -> list[dict[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the warning about windows with gaps between them
        session.sql(f"{text} LATE OUTPUT INTO kept").to_arrow()
    kept = session.sql("SELECT * FROM kept")
    assert isinstance(kept, Query)
    return kept.to_arrow().to_pylist()


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"fuse": "off", "morsel_rows": 7, "runtime": "fifo"},
        {"morsel_rows": 1, "runtime": "run_to_completion", "window_operator": "wid"},
        *({**settings, "morsel_rows": 7} for settings in ORDERED),
    ],
    ids=named,
)
def test_the_rows_that_a_window_leaves_out(window: str, settings: dict[str, Any]) -> None:
    for seed in range(2):
        rows = rows_of(seed, "s")
        with cql.connect(**settings) as session:
            made(session, rows)
            found = run(session, f"SELECT k, count(*) AS n FROM s {window} GROUP BY k")
            assert found == lost(rows, WINDOWS[window])
            assert found


@pytest.mark.sampled
@pytest.mark.parametrize("operator", ["wid", "panes", "two_stacks"])
def test_whatever_the_operator(operator: str) -> None:
    rows = rows_of(3, "s")
    with cql.connect(window_operator=operator) as session:
        made(session, rows)
        found = run(session, "SELECT max(t) AS m FROM s [RANGE 20 SLIDE 5] WHERE k IS NOT NULL")
    late = lost(rows, WINDOWS["[RANGE 20 SLIDE 5]"])
    assert found == [row for row in late if row["k"] is not None]


@pytest.mark.parametrize("kind", [WindowKind.SLIDING, WindowKind.CUMULATE])
@pytest.mark.parametrize("zone", ["Europe/Prague", "America/New_York", "Pacific/Apia"])
def test_days_of_a_time_zone(kind: WindowKind, zone: str) -> None:
    rng = random.Random(f"{kind} {zone}")
    window = Window(kind, 0, 6 * DAY, 2 * DAY, offset=3_600_000_000, zone=zone)
    hour = DAY // 24
    times = [rng.choice((15_060, 15_340, 19_806, 20_025)) * DAY for _ in range(200)]
    times = [t + rng.randint(-100, 100) * hour + rng.choice((-1, 0, 1)) for t in times]
    own = [t + rng.randint(1, 200) * hour for t in times]
    found = leaves_out(window, np.array(times), np.array(own))
    assert found.tolist() == [
        any(end <= mark for _, end in windows_of(window, t))
        for t, mark in zip(times, own, strict=True)
    ]
    assert 0 < found.sum() < 200


def test_a_union_a_projection_and_a_window_above_the_window(session: Session) -> None:
    parts = {name: rows_of(5, name) for name in "ab"}
    for name, rows in parts.items():
        made(session, rows, name)
    found = run(
        session,
        "SELECT sum(n) AS n FROM (SELECT count(*) AS n, window_time AS w FROM"
        " (SELECT t + 3 AS u, upper(id) AS i FROM a UNION ALL SELECT t + 3, upper(id) FROM b) AS x"
        " [RANGE 10 SLIDE 10 WA u]) AS y [RANGE 100 SLIDE 100 WA w]",
    )
    moved = {n: [{**r, "t": r["t"] + 3} for r in rows] for n, rows in parts.items()}
    late = [r for rows in moved.values() for r in lost(rows, WINDOWS["[RANGE 10 SLIDE 10]"])]
    expected = sorted((r["t"], r["id"].upper()) for r in late)
    assert sorted((r["u"], r["i"]) for r in found) == expected


@pytest.mark.parametrize("query", ["SELECT count(*) FROM s [RANGE 9]", "SELECT t FROM s [NOW]"])
def test_a_relation_leaves_out_every_late_row(session: Session, query: str) -> None:
    rows = rows_of(7, "s")
    made(session, rows)
    ids = [r["id"] for r in run(session, query)]
    highest = [max(r["t"] for r in rows[:k]) for k in range(1, len(rows))]
    assert ids == [r["id"] for r, h in zip(rows[1:], highest, strict=True) if r["t"] < h - SLACK]


def test_slack_of_the_querys_own(session: Session) -> None:
    rows = rows_of(8, "s")
    made(session, rows)
    session.set("slack", "3 rows")
    text = "SELECT count(*) AS n FROM s [RANGE 10 SLIDE 10]"
    found = run(session, text)
    query = session.sql(text)
    assert isinstance(query, Query)
    query.to_arrow()
    (pairs,) = [e["count"] for e in query.late().to_pylist() if e["kind"] == "pairs"]
    assert len(found) == pairs > 0


def test_an_insert_and_a_table_that_is_there(session: Session) -> None:
    rows = rows_of(9, "s")
    made(session, rows)
    session.sql("CREATE TABLE kept (id STRING, t BIGINT, k INT, s STRING, b BOOLEAN)")
    session.sql("CREATE TABLE counts (n BIGINT, e BIGINT)")
    window = "[RANGE 10 SLIDE 10]"
    text = f"SELECT count(*) AS n, window_end AS e FROM s {window} LATE OUTPUT INTO kept"
    for times in (1, 2):
        insert = session.sql(f"INSERT INTO counts {text}")
        assert isinstance(insert, Query)
        insert.to_arrow()
        found = session.sql("SELECT * FROM kept")
        assert isinstance(found, Query)
        assert len(found.to_arrow().to_pylist()) == times * len(lost(rows, WINDOWS[window]))


def test_nothing_is_kept_of_a_run_that_fails_or_is_left(session: Session) -> None:
    rows = rows_of(10, "s")
    made(session, rows)
    first = rows[0]["t"]
    session.sql("CREATE TABLE kept (id STRING, t BIGINT, k INT, s STRING, b BOOLEAN)")
    late = "LATE OUTPUT INTO kept"
    fails = session.sql(f"SELECT sum(1 / (t - ({first}))) AS n FROM s [RANGE 10 SLIDE 10] {late}")
    left = session.sql(f"SELECT count(*) AS n FROM s [RANGE 10 SLIDE 10] {late}")
    assert isinstance(fails, Query)
    assert isinstance(left, Query)
    with pytest.raises(CqlError, match="division by zero"):
        fails.to_arrow()
    session.set("morsel_rows", 1)
    next(iter(left.batches()))
    kept = session.sql("SELECT * FROM kept")
    assert isinstance(kept, Query)
    assert kept.to_arrow().num_rows == 0


WINDOW = "[RANGE 10 SLIDE 10]"
LATE = f"SELECT count(*) AS n FROM s {WINDOW} LATE OUTPUT INTO kept"


def names_of(session: Session, table: str) -> list[str]:
    query = session.sql(f"SELECT * FROM {table}")
    assert isinstance(query, Query)
    assert query.to_arrow().num_rows == 0
    return query.columns


@pytest.mark.parametrize("how", ["insert", "create", "set", "select"])
def test_over_endless_input_its_table_is_there_from_the_start(session: Session, how: str) -> None:
    """A reader finds the empty table before the first late row."""
    go = threading.Event()

    def numbers() -> Iterator[dict[str, Any]]:
        yield from ({"t": t, "k": 1} for t in (1, 30))
        go.wait(240)

    session.create_stream("s", numbers, ordered_by="t", bounded=False)
    session.sql("CREATE TABLE counts (n BIGINT)")
    try:
        if how == "insert":
            session.sql(f"INSERT INTO counts {LATE}")
        elif how == "create":
            session.sql(f"CREATE TABLE made AS {LATE}; INSERT INTO made SELECT 1 AS n WHERE false")
        elif how == "set":
            session.sql(f"EXECUTE STATEMENT SET BEGIN INSERT INTO counts {LATE}; END")
        else:
            first = session.sql(LATE)
            assert isinstance(first, Query)
            with contextlib.closing(first.batches()) as batches:
                next(batches)
                assert names_of(session, "kept") == ["t", "k"]
        assert names_of(session, "kept") == ["t", "k"]
    finally:
        go.set()


def test_nothing_is_made_where_planning_fails(session: Session) -> None:
    session.create_stream("s", lambda: iter([{"t": 1}]), ordered_by="t", bounded=False)
    session.sql("CREATE TABLE counts (m DATE)")
    for text in (f"INSERT INTO nowhere {LATE}", f"INSERT INTO counts {LATE}", f"{LATE} WITH x"):
        with pytest.raises(CqlError):
            session.sql(text)
    session.sql(LATE)  # the query is lazy and has not started
    assert session._catalog.find(("kept",)) is None


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("SELECT t FROM s LATE OUTPUT INTO l", BindError, "no window of this query"),
        (
            f"SELECT count(*) AS n FROM s {WINDOW} UNION ALL SELECT count(*) FROM s {WINDOW}"
            " LATE OUTPUT INTO l",
            NotSupportedError,
            "of several windows",
        ),
        (
            f"SELECT * FROM (SELECT count(*) FROM s {WINDOW} LATE OUTPUT INTO l) AS x",
            NotSupportedError,
            "LATE OUTPUT inside another query",
        ),
        (f"SELECT count(*) FROM s {WINDOW} LATE OUTPUT INTO s", CatalogError, "takes no rows"),
        (f"SELECT count(*) FROM s {WINDOW} LATE OUTPUT INTO v", BindError, "v is a query"),
        (f"SELECT count(*) FROM s {WINDOW} LATE OUTPUT INTO narrow", CatalogError, "k"),
    ],
)
def test_what_is_refused(session: Session, text: str, error: type[CqlError], message: str) -> None:
    made(session, rows_of(1, "s"))
    session.sql("CREATE VIEW v AS SELECT t FROM s")
    session.sql("CREATE TABLE narrow (t BIGINT)")
    with pytest.raises(error, match=message) as refusal:
        session.sql(text).to_arrow()
    assert refusal.value.position is not None


def test_order_that_is_enforced_below_it_is_refused(session: Session) -> None:
    made(session, rows_of(1, "s"))
    session.set("order_enforcement", "sort")
    with pytest.raises(NotSupportedError, match="in order") as refusal:
        session.sql(f"SELECT count(*) FROM s {WINDOW} LATE OUTPUT INTO l")
    assert "order_enforcement" in (refusal.value.hint or "")
