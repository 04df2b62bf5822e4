"""A single far-future row (MAX ADVANCE) makes no other row late, from any kind of source, and the
ledger of late rows names it."""

from __future__ import annotations

import datetime as dt
import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import cql
from cql import Query
from cql.query.result import Result
from cql.session.session import CqlWarning, Session

MINUTE = "1 MINUTE"
COUNT = "SELECT count(*) AS n FROM s [RANGE {0} SLIDE {0}]"


def at(minute: float, day: int = 1) -> dt.datetime:
    return dt.datetime(2024, 5, day, 10, tzinfo=dt.UTC) + dt.timedelta(minutes=minute)


HONEST = [at(0), at(2), *(at(m) for m in range(3, 13))]


def with_far(far: dt.datetime, place: int) -> list[dt.datetime]:
    return [*HONEST[:place], far, *HONEST[place:]]


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        yield made


def run(
    session: Session, text: str = COUNT.format(MINUTE)
) -> tuple[int, dict[str, dict[str, Any]]]:
    """The sum of ``n``, and the ledger of late rows by kind."""
    query = session.sql(text)
    assert isinstance(query, Query)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CqlWarning)
        total = sum(row["n"] for batch in query for row in batch.to_pylist())
    return total, {r["kind"]: r for r in query.late().to_pylist()}


@pytest.mark.parametrize("slack", [None, "1 minute"])
@pytest.mark.parametrize("place", [0, 1, 2, 11, 12])
@pytest.mark.parametrize(
    "far", [at(2, 2), at(75), at(0, 30), dt.datetime(9999, 1, 1, tzinfo=dt.UTC)]
)
def test_no_honest_row_is_lost(
    session: Session, far: dt.datetime, place: int, slack: str | None
) -> None:
    """The far row is a day, an hour, a month or 8,000 years ahead, and comes first, in the middle
    or last."""
    rows = pa.table({"ts": with_far(far, place)})
    session.create_stream("s", rows, ordered_by="ts", slack=slack)
    total, late = run(session)
    assert total == 13
    assert late["rows"]["count"] == 0
    assert late["rows"]["suggested_slack"] is None


@pytest.mark.parametrize("runtime", ["depth_first", "fifo", "ordered"])
@pytest.mark.parametrize("morsel", [1, 3, 1024])
def test_the_ledger_names_the_jump(session: Session, runtime: str, morsel: int) -> None:
    session.set("runtime", runtime)
    session.set("morsel_rows", morsel)
    session.create_stream("s", pa.table({"ts": with_far(at(2, 2), 2)}), ordered_by="ts")
    query = session.sql(COUNT.format(MINUTE))
    assert isinstance(query, Query)
    with pytest.warns(CqlWarning, match="jumped by more than 1 hour.*MAX ADVANCE"):
        query.to_arrow()
    late = {r["kind"]: r for r in query.late().to_pylist()}
    assert late["beyond MAX ADVANCE"]["count"] == 1
    assert late["beyond MAX ADVANCE"]["jump"] == dt.timedelta(days=1)
    assert late["rows"]["jump"] is None
    shown = session.sql("SHOW LATE")
    assert isinstance(shown, Result)
    assert ("s", "beyond MAX ADVANCE", 1) in [row[:3] for row in shown.rows]


@pytest.mark.parametrize(
    ("declared", "unit"),
    [(" IN SECONDS", 1), (" IN MILLISECONDS", 1_000), (" IN NANOSECONDS", 1_000_000_000)],
)
def test_integers_with_a_unit(session: Session, declared: str, unit: int) -> None:
    times = [round(t.timestamp()) * unit for t in with_far(at(2, 2), 2)]
    session.register_table("rows", pa.table({"t": times}))
    session.sql(f"CREATE STREAM s FROM TABLE rows ORDERED BY t{declared}")
    assert run(session)[0] == 13


def test_integers_without_a_unit_are_measured_by_their_slack(session: Session) -> None:
    times = [round(t.timestamp()) for t in with_far(at(2, 2), 2)]
    session.create_stream("s", pa.table({"t": times}), ordered_by="t", slack=60)
    total, late = run(session, COUNT.format(60))
    assert total == 13
    assert late["beyond MAX ADVANCE"]["jump"] == 86_400


def test_what_makes_rows_late_where_nothing_tells_what_is_far(session: Session) -> None:
    """Without a unit and a slack, the rows are late, and the ledger does not suggest a slack of a
    day."""
    times = [round(t.timestamp()) for t in with_far(at(2, 2), 2)]
    session.create_stream("s", pa.table({"t": times}), ordered_by="t")
    total, late = run(session, COUNT.format(60))
    assert total == 3
    assert late["rows"]["count"] == 10
    assert late["rows"]["suggested_slack"] is None
    line = late["jump within MAX ADVANCE"]
    assert (line["count"], line["jump"]) == (10, 86_400)
    session.create_stream(
        "s", pa.table({"t": times}), ordered_by="t", max_advance=line["jump"] - 1, replace=True
    )
    assert run(session, COUNT.format(60))[0] == 13


def test_ordinary_disorder_is_advised_a_slack(session: Session) -> None:
    times = [t for k in range(0, 400, 4) for t in (k + 2, k, k + 3, k + 1)]
    session.create_stream("s", pa.table({"t": times}), ordered_by="t")
    _, late = run(session, COUNT.format(10))
    assert late["rows"]["suggested_slack"] == 2
    assert "jump within MAX ADVANCE" not in late


def test_dates(session: Session) -> None:
    days = [dt.date(2024, 5, d) for d in (1, 2, 3, 20, 3, 4, 5, 6, 7, 8)]
    session.create_stream("s", pa.table({"d": days}), ordered_by="d")
    assert run(session, "SELECT count(*) AS n FROM s [RANGE 1 DAY SLIDE 1 DAY]")[0] == 10


def test_gaps_of_honest_rows_cost_nothing(session: Session) -> None:
    """One row a day, in order, causes no notice and no late row."""
    days = [at(0) + dt.timedelta(days=k) for k in range(50)]
    session.create_stream("s", pa.table({"ts": days}), ordered_by="ts")
    query = session.sql(COUNT.format("1 HOUR"))
    assert isinstance(query, Query)
    assert query.to_arrow().num_rows == 50
    assert [r["kind"] for r in query.late().to_pylist()] == ["rows", "pairs"]


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("declared", [None, "2 hours"])
def test_sparse_rows_in_order_are_no_notice(
    session: Session, bounded: bool, declared: str | None
) -> None:
    """One row a day, or a hundred rows each morning, in order: the gaps cause no notice."""
    daily = [at(0) + dt.timedelta(days=k) for k in range(20)]
    mornings = [at(m / 10) + dt.timedelta(days=d) for d in range(5) for m in range(100)]
    notices: list[str] = []
    session.on_notice = notices.append
    for times in (daily, mornings):
        rows = [{"ts": t} for t in times]
        session.create_stream(
            "s",
            lambda rows=rows: iter(rows),
            ordered_by="ts",
            max_advance=declared,
            bounded=bounded,
            replace=True,
        )
        assert run(session, COUNT.format("1 HOUR"))[0] == len(rows)
    assert notices == []


@pytest.mark.parametrize("bounded", [True, False])
def test_a_jump_among_sparse_rows_is_told_once(session: Session, bounded: bool) -> None:
    """One row is ten years ahead of daily rows; the rows after it show that its time is wrong."""
    times = [at(0) + dt.timedelta(days=k) for k in range(20)]
    rows = [{"ts": t} for t in [*times[:8], at(0) + dt.timedelta(days=3650), *times[8:]]]
    notices: list[str] = []
    session.on_notice = notices.append
    session.create_stream("s", lambda: iter(rows), ordered_by="ts", bounded=bounded)
    assert run(session, COUNT.format("1 HOUR"))[0] == 21
    assert len(notices) == 1
    assert "s.ts jumped by more than 1 hour" in notices[0]


@pytest.mark.parametrize("kind", ["csv", "parquet", "json"])
def test_files(session: Session, tmp_path: Path, kind: str) -> None:
    table = pa.table({"ts": with_far(at(2, 2), 2)})
    path = tmp_path / f"rows.{kind}"
    if kind == "csv":
        pyarrow.csv.write_csv(table, path)
    elif kind == "parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        path.write_text("".join(f'{{"ts": "{t.isoformat()}"}}\n' for t in with_far(at(2, 2), 2)))
    session.sql(
        f"CREATE STREAM s (ts TIMESTAMP) USING {kind} OPTIONS (path '{path}') ORDERED BY ts"
    )
    assert run(session)[0] == 13


@pytest.mark.parametrize("bounded", [True, False])
def test_iterables(session: Session, bounded: bool) -> None:
    later = [at(m) for m in range(13, 23)]
    rows = [{"ts": t} for t in [*with_far(at(2, 2), 2), *later]]
    session.create_stream("s", lambda: iter(rows), ordered_by="ts", bounded=bounded)
    assert run(session)[0] == 23


@pytest.mark.parametrize("slack", ["1 minute", "5 rows"])
def test_slack_by_a_setting(session: Session, slack: str) -> None:
    session.create_stream("s", pa.table({"ts": with_far(at(2, 2), 2)}), ordered_by="ts")
    session.set("slack", slack)
    assert run(session)[0] == 13


@pytest.mark.parametrize("within", ["", " WITHIN 3 HOURS"])
def test_each_value_for_itself(session: Session, within: str) -> None:
    """Value b is a day behind, without an error; one of its rows is dated a day ahead."""
    here = [{"ts": at(m, 2), "k": "a"} for m in range(12)]
    behind = [{"ts": t, "k": "b"} for t in with_far(at(5, 2), 3)]
    rows = [row for pair in itertools.zip_longest(behind, here) for row in pair if row]
    if within:  # values may differ by 3 hours only: a row a day ahead is wrong
        rows = [{"ts": t, "k": k} for t in with_far(at(2, 2), 3) for k in ("a", "b")]
    session.register_table("rows", pa.Table.from_pylist(rows))
    session.sql(f"CREATE STREAM s FROM TABLE rows ORDERED BY ts PUNCTUATE BY k{within}")
    text = "SELECT k, count(*) AS n FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k"
    assert run(session, text)[0] == len(rows)


@pytest.mark.parametrize("operator", ["auto", "sync_filter", "filter_order", "adaptive"])
def test_a_join_of_inputs_in_order(session: Session, operator: str) -> None:
    """The far row waits below a join that needs its inputs in order."""
    session.create_stream("s", pa.table({"ts": with_far(at(2, 2), 2)}), ordered_by="ts")
    session.create_stream("r", pa.table({"u": HONEST}), ordered_by="u")
    session.set("join_operator", operator)
    text = "SELECT 1 AS n FROM s JOIN r ON abs(s.ts - r.u) <= INTERVAL 10 SECONDS"
    assert run(session, text)[0] == 12


def test_two_far_rows_and_a_real_gap(session: Session) -> None:
    """Three far rows do not advance the watermark; a fourth does, and the ledger counts the rows
    that this makes late."""
    three = [*HONEST[:2], at(0, 2), at(1, 2), at(2, 2), *HONEST[2:]]
    session.create_stream("s", pa.table({"ts": three}), ordered_by="ts")
    assert run(session)[0] == 15
    four = [*HONEST[:2], *(at(m, 2) for m in range(4)), *HONEST[2:]]
    session.create_stream("s", pa.table({"ts": four}), ordered_by="ts", replace=True)
    total, late = run(session)
    assert total == 6
    assert late["jump within MAX ADVANCE"]["count"] == 10
    assert late["rows"]["suggested_slack"] is None
