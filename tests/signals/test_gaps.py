"""The gaps of signals as a relation: against the slow model, in every runtime, and as the control
of ranges."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import nullcontext
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.errors import CqlError
from cql.session.session import Session
from tests.support.catalog_tools import blocks_of_eight
from tests.support.runtimes import RUNTIMES, apply, named
from tests.support.signals.cases import Case, random_case

QUICK, FULL = 40, 3000
_MORSELS = (1, 2, 7, 4096)


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        times = np.r_[0:100, 250:400, 405:420] * 10_000
        column = pa.array(times, pa.timestamp("us"))
        table = pa.table({"ts": column, "z": np.arange(len(times))})
        made.create_stream("shaking", table, ordered_by="ts", rate=100)
        yield made


def _told(session: Session, text: str) -> list[tuple[Any, ...]]:
    query: Any = session.sql(text)
    return [tuple(row.values()) for row in query.to_arrow().to_pylist()]


def _expected(case: Case) -> list[tuple[int, int, int]]:
    _, signal = case.expected()
    found = []
    for before, behind in pairwise(signal.runs):
        start, end = before.time_of(before.last), behind.time_of(behind.first)
        missing = int((end - start) * signal.rate / 1_000_000_000 + Fraction(1, 2))
        found.append((start // 1000, end // 1000, missing))
    return found


def test_random_gaps(session: Session, full: bool, seed: int) -> None:
    for i in range(FULL if full else QUICK):
        choice = random.Random(f"gaps {seed + i}")
        case = random_case(choice)
        case.declare(session, pushed=False)
        session.sql("RESET")
        runtime, rows = choice.choice(RUNTIMES), choice.choice(_MORSELS)
        apply(session, runtime, {"morsel_rows": rows})
        text, half = "SELECT * FROM GAPS(s)", int(500_000 / Fraction(case.rate))
        if case.timed and half and choice.random() < 0.4:
            case.tolerance = choice.randint(1, half)
            text = f"SELECT * FROM GAPS(s, INTERVAL {case.tolerance} MICROSECONDS)"
        with blocks_of_eight() if choice.random() < 0.7 else nullcontext():
            query: Any = session.sql(text)
            found: pa.Table = query.to_arrow()
        assert found.schema.names == ["gap_start", "gap_end", "missing"]
        times = [found[name].cast(pa.int64()).to_pylist() for name in found.schema.names]
        where = f"{seed + i}: {named(runtime)}, {rows} rows, {case}"
        assert list(zip(*times, strict=True)) == _expected(case), where


def test_as_a_stream(session: Session) -> None:
    gaps = "SELECT unix_millis(gap_start), unix_millis(gap_end), missing FROM"
    assert _told(session, f"{gaps} GAPS(shaking)") == [(1000, 2500, 150), (4000, 4050, 5)]
    assert _told(session, "SELECT g.missing FROM gaps(shaking) AS g WHERE g.missing > 9") == [
        (150,)
    ]
    counted = "SELECT count(*), sum(missing), unix_millis(window_end) FROM GAPS(shaking)"
    assert _told(session, f"{counted} [RANGE 2 SECONDS SLIDE 2 SECONDS WA gap_start]") == [
        (1, 150, 2000),
        (1, 5, 6000),
    ]
    session.sql("CREATE VIEW late AS SELECT * FROM GAPS(shaking) WHERE missing > 9")
    assert _told(session, "SELECT missing FROM late") == [(150,)]


def test_as_the_control_of_ranges(session: Session) -> None:
    """The samples just before and behind each gap."""
    text = """
        SELECT g.missing, shaking.z FROM GAPS(shaking) AS g, shaking
        WHERE shaking.ts >= g.gap_start - INTERVAL '20' MILLISECOND AND shaking.ts <= g.gap_end"""
    assert _told(session, text) == [
        (150, [98, 99]),
        (150, [100]),
        (5, [248, 249]),
        (5, [250]),
    ]


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("SELECT * FROM GAPS(plain)", "GAPS takes a signal", "plain"),
        ("SELECT * FROM GAPS(nothing)", "nothing", "nothing"),
        ("SELECT * FROM GAPS()", "GAPS takes the name of a signal", "GAPS"),
        ("SELECT * FROM GAPS(shaking, 3, 4)", "GAPS takes the name of a signal", "GAPS"),
        ("SELECT * FROM GAPS(shaking, 3)", "the tolerance of GAPS is an interval", "3"),
        (
            "SELECT * FROM GAPS(shaking, INTERVAL 6 MILLISECONDS)",
            "at most half the time from a sample to the next, 5,000 microseconds",
            "INTERVAL",
        ),
        (
            "SELECT * FROM GAPS(shaking, INTERVAL 0 MILLISECONDS)",
            "the tolerance of GAPS is above zero",
            "INTERVAL",
        ),
        (
            "SELECT * FROM GAPS(numbered, INTERVAL 1 MILLISECOND)",
            "numbered, whose samples have no column with their times, is not supported",
            "INTERVAL",
        ),
        (
            "SELECT * FROM GAPS(ZIP(shaking, other), INTERVAL 1 MILLISECOND)",
            "a signal that ZIP makes is not supported",
            "INTERVAL",
        ),
        ("SELECT * FROM GAPS('shaking')", "GAPS takes the name of a signal", "GAPS"),
        ("SELECT * FROM HOLES(shaking)", "the table function HOLES", "HOLES"),
    ],
)
def test_refused(text: str, message: str, place: str, session: Session) -> None:
    session.create_stream("plain", pa.table({"z": [1, 2]}))
    session.create_stream("numbered", pa.table({"z": [1, 2]}), rate=10)
    session.sql("CREATE VIEW other AS SELECT ts AS ts2, z AS y FROM shaking")
    with pytest.raises(CqlError) as caught:
        session.sql(text)
    assert message in caught.value.message
    at = caught.value.position
    assert at is not None
    assert text[at.column - 1 :].startswith(place)
