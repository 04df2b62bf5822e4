"""Slack over several bounded inputs (out-of-order paper §2, option 2): the inputs are read in order
of time, so that a row is late only if it is behind the rows of its own input."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import cql
from cql import Query
from cql.session.session import CqlWarning, Session
from tests.support.runtimes import RUNTIMES, Settings, named

WHERE: list[Settings] = [
    {"runtime": "depth_first"},
    {"runtime": "depth_first", "morsel_rows": 3},
    *RUNTIMES[1:],
]
UNION = "SELECT count(*) AS n, window_end AS e FROM {} AS u [RANGE 10 SLIDE 10]"


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        yield made


def given(session: Session, settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        session.set(name, value)


def stream(
    session: Session, name: str, times: Sequence[int | None], block: int, most: int | None = None
) -> None:
    """Creates a stream whose blocks have ``block`` rows each."""
    table = pa.table({"t": pa.array(times, pa.int64()), "k": pa.array(range(len(times)))})
    chunks = [table.slice(k, block) for k in range(0, len(times), block)] or [table]
    session.create_stream(
        name, pa.concat_tables(chunks), ordered_by="t", max_advance=most, replace=True
    )


def run(session: Session, text: str) -> tuple[list[tuple[Any, ...]], dict[str, int]]:
    query = session.sql(text)
    assert isinstance(query, Query)
    found = sorted(tuple(r.values()) for r in query.to_arrow().to_pylist())
    return found, {r["kind"]: r["count"] for r in query.late().to_pylist()}


def late_in_order_of_time(inputs: Sequence[Sequence[int]], slack: int) -> int:
    """The number of rows below the highest earlier time less the slack, if the inputs are read in
    order of time. A row below its own input's highest time is read together with that time."""
    coming = []
    for k, times in enumerate(inputs):
        reached = -1 << 62
        for row, t in enumerate(times):
            reached = max(reached, t)
            coming.append((reached, k, row, t))
    highest, late = -1 << 62, 0
    for _, _, _, t in sorted(coming):
        late += t < highest - slack
        highest = max(highest, t)
    return late


@pytest.mark.parametrize("settings", WHERE, ids=named)
@pytest.mark.parametrize("blocks", [(1000, 1000, 1000), (1000, 7, 1), (1, 2, 64)])
def test_nothing_is_late_of_synchronised_inputs(
    session: Session, settings: dict[str, Any], blocks: tuple[int, ...]
) -> None:
    given(session, settings | {"slack": "2"})
    for name, block in zip("abc", blocks, strict=True):
        stream(session, name, range(210), block)
    found, late = run(session, UNION.format("a UNION b UNION c"))
    assert found == [(30, e) for e in range(10, 211, 10)]
    assert late["behind slack"] == 0


@pytest.mark.parametrize("settings", WHERE, ids=named)
def test_late_is_what_is_late_in_the_order_of_time(
    session: Session, settings: dict[str, Any]
) -> None:
    rng = random.Random(9)
    inputs = [
        [max(0, t + rng.choice((0, 0, 0, -1, -4, -9))) for t in range(0, 300, step)]
        for step in (1, 3, 7)
    ]
    given(session, settings | {"slack": "3"})
    expected = late_in_order_of_time(inputs, 3)
    assert expected > 20
    for blocks in ((1000, 1000, 1000), (5, 1000, 2)):
        for name, times, block in zip("abc", inputs, blocks, strict=True):
            stream(session, name, times, block)
        _, late = run(session, UNION.format("a UNION b UNION c"))
        assert late["behind slack"] == expected


@pytest.mark.parametrize("slack", ["0", "5 rows"])
def test_an_input_that_begins_later_is_read_later(session: Session, slack: str) -> None:
    """Inputs with few rows, rows without a time, or no rows make no other row late."""
    given(session, {"slack": slack, "on_bad_row": "keep"})
    stream(session, "a", range(300), 1000)
    stream(session, "b", range(250, 400), 11)
    stream(session, "c", [None, 100, None, 270, None], 2)
    stream(session, "d", [], 1)
    _, late = run(session, UNION.format("a UNION b UNION c UNION d"))
    assert late["behind slack"] == 0


@pytest.mark.parametrize("settings", WHERE, ids=named)
def test_joins(session: Session, settings: dict[str, Any]) -> None:
    """A pair comes with the later of its rows; its time is at most 2, the band, behind."""
    given(session, settings | {"slack": "2"})
    stream(session, "a", range(200), 1000)
    stream(session, "b", range(200), 13)
    text = (
        "SELECT count(*) AS n, window_end AS e FROM"
        " (SELECT a.t AS t FROM a JOIN b ON a.t - b.t BETWEEN 0 AND 2) AS j"
        " [RANGE 100 SLIDE 100 WA t]"
    )
    found, late = run(session, text)
    assert found == [(297, 100), (300, 200)]
    assert late["behind slack"] == 0


def test_files_and_frames(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pa.table({"t": pa.array(range(500))}), path, row_group_size=50)
    session.create_stream("a", str(path), ordered_by="t")
    session.create_stream("b", lambda: ({"t": t} for t in range(500)), ordered_by="t", bounded=True)
    session.create_stream("c", pa.table({"t": range(500)}), ordered_by="t")
    session.set("slack", "0")
    found, late = run(session, UNION.format("a UNION b UNION c"))
    assert found == [(30, e) for e in range(10, 501, 10)]
    assert late["behind slack"] == 0


def test_a_row_far_ahead_is_read_in_its_place(session: Session) -> None:
    """Neither its own input nor the other input waits for the row."""
    stream(session, "a", [0, 1, 90_000, *range(2, 100)], 1000, most=1000)
    stream(session, "b", range(100), 1000)
    session.set("slack", "5")
    with pytest.warns(CqlWarning, match="jumped by more than 1000"):
        found, late = run(session, UNION.format("a UNION b"))
    assert (1, 90_010) in found
    assert sum(n for n, _ in found) == 201
    assert late["behind slack"] == 0
