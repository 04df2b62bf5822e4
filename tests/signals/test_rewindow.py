"""Windows of signals against the slow model: in every runtime, however the samples come."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.session.session import Session
from tests.support.runtimes import RUNTIMES, apply, named
from tests.support.signals.cases import Case, random_case

QUICK, FULL = 40, 3000  # cases of each way in which samples come
_MORSELS = (1, 2, 3, 7, 100, 4096)


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        yield made


def _chosen(session: Session, choice: random.Random) -> str:
    """Chooses a runtime and the rows of morsels."""
    session.sql("RESET")
    runtime, rows = choice.choice(RUNTIMES), choice.choice(_MORSELS)
    apply(session, runtime, {"morsel_rows": rows})
    return f"{named(runtime)}, {rows} rows"


def _answer(session: Session, case: Case, pieces: list[pa.Table]) -> None:
    query: Any = session.sql(f"SELECT * FROM s {case.window}")
    if not pieces:
        case.check(query, query.to_arrow())
        return
    batches = []
    read = iter(query)
    for piece in pieces:
        session.push("s", piece)
    session.end("s")
    batches += list(read)
    case.check(query, pa.Table.from_batches(batches, query.schema.to_arrow()))


@pytest.mark.parametrize("blocks", ["whole", "eight", "pushed"])
def test_random_signals(
    blocks: str, session: Session, full: bool, seed: int, request: pytest.FixtureRequest
) -> None:
    if blocks == "eight":
        request.getfixturevalue("small_blocks")
    for i in range(FULL if full else QUICK):
        choice = random.Random(f"rewindow {blocks} {seed + i}")
        case = random_case(choice)
        case.declare(session, pushed=blocks == "pushed")
        pieces = _pieces(case.table, choice) if blocks == "pushed" else []
        how = _chosen(session, choice)
        try:
            _answer(session, case, pieces)
        except Exception as error:
            raise AssertionError(f"case {seed + i}, {how}: {case}") from error


def _pieces(table: pa.Table, choice: random.Random) -> list[pa.Table]:
    found, at = [], 0
    while at < len(table):
        n = choice.choice((1, 2, 5, 30))
        found.append(table.slice(at, n))
        at += n
    return found or [table]
