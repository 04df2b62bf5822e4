"""Sliding windows over the rows of each key: [PARTITION BY k ROWS n SLIDE m] (out-of-order paper
A.2.2)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from cql.errors import BindError, CqlError, NotSupportedError
from cql.query.query import Query
from cql.session.session import CqlWarning, Session
from tests.support.results import results
from tests.support.runtimes import RUNTIMES, apply, named


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(False) as made:
        yield made


def by_definition(
    rows: list[tuple[Any, ...]], n: int, m: int
) -> list[tuple[Any, int, list[tuple[Any, ...]]]]:
    """(key, end, rows) of each window in output order: a window leaves when its last row comes; at
    the end of the input, the open windows leave key by key."""
    found, of_key = [], dict[Any, list[tuple[Any, ...]]]()
    for row in rows:
        own = of_key.setdefault(row[0], [])
        own.append(row)
        if (len(own) - n) % m == 0:
            found.append((row[0], len(own), own[-n:]))
    for key, own in of_key.items():
        ends = range(len(own) + 1, len(own) + n)
        found += [(key, e, own[max(0, e - n) :]) for e in ends if (e - n) % m == 0]
    return found


SUMS = (
    "SELECT k, window_start AS b, window_end AS e, count(*) AS c, sum(v) AS s FROM r {} GROUP BY k"
)


@pytest.mark.sampled
@pytest.mark.parametrize("runtime", RUNTIMES, ids=named)
def test_every_runtime_gives_the_same_rows_in_the_same_order(
    session: Session, runtime: dict[str, Any]
) -> None:
    rng = random.Random(3)
    rows = [(rng.choice((None, "a", "a", "b", "c", "d")), i, rng.randrange(9)) for i in range(900)]
    columns = dict(zip(("k", "t", "v"), map(list, zip(*rows, strict=True)), strict=True))
    session.create_stream("r", pa.table(columns), ordered_by="t")
    apply(session, runtime, {"morsel_rows": 64})
    for n, m in ((3, 1), (40, 10), (10, 10), (90, 7)):
        found = results(session, SUMS.format(f"[PARTITION BY k ROWS {n} SLIDE {m}]"))
        held = by_definition(rows, n, m)
        assert found == [(k, e - n, e, len(w), sum(r[2] for r in w)) for k, e, w in held]


def test_rows_between_windows_belong_to_none(session: Session) -> None:
    session.create_stream("r", pa.table({"k": [1] * 9, "t": range(9), "v": range(9)}))
    with pytest.warns(CqlWarning, match="rows between two windows belong to none"):
        found = results(session, SUMS.format("[PARTITION BY k ROWS 2 SLIDE 4]"))
    assert found == [(1, 0, 2, 2, 1), (1, 4, 6, 2, 9), (1, 8, 10, 1, 8)]


def test_filters_stand_behind_the_numbers(session: Session) -> None:
    """A window whose last row the filter drops is emitted; a window without rows is not."""
    session.create_stream(
        "r", pa.table({"k": list("aababb"), "t": range(6), "v": [5, 0, 6, 7, 0, 0]})
    )
    window = "[PARTITION BY k ROWS 2 SLIDE 2]"
    text = SUMS.format(f"{window} WHERE v > 0")
    assert results(session, text) == [("a", 0, 2, 1, 5), ("b", 0, 2, 1, 6), ("a", 2, 4, 1, 7)]
    ungrouped = f"SELECT count(*) AS n, window_end AS e FROM r {window}"
    assert results(session, ungrouped) == [(2, 2), (2, 2), (1, 4), (1, 4)]


def test_a_window_waits_for_no_other_key(session: Session) -> None:
    """A window waits neither for other keys nor for the next row of its key, and no row is late."""
    seen: list[Any] = []

    def items() -> Iterator[dict[str, Any]]:
        yield from ({"t": t, "k": k, "v": 1} for t, k in ((9, "b"), (2, "a"), (1, "a")))
        for _ in range(100_000):  # until the reader has seen a window
            if seen:
                break
            yield {"t": 12, "k": "c", "v": 1}

    session.create_stream("r", items, ordered_by="t", bounded=False)
    session.set("max_state", "100 MB")
    query = session.sql(SUMS.format("[PARTITION BY k ROWS 2 SLIDE 2]"))
    assert isinstance(query, Query)
    for batch in query:
        seen += [tuple(row.values()) for row in batch.to_pylist()]
    assert seen[0] == ("a", 0, 2, 2, 2)


@pytest.mark.parametrize(
    ("text", "error", "what"),
    [
        ("SELECT k FROM r [PARTITION BY k ROWS 2 SLIDE 1]", NotSupportedError, "an aggregate"),
        (SUMS.format("[PARTITION BY k ROWS 2 SLIDE 0]"), BindError, "above zero"),
        (SUMS.format("[PARTITION BY k ROWS UNBOUNDED SLIDE 1]"), BindError, "has no SLIDE"),
        (SUMS.format("[PARTITION BY k ROWS 2 SLIDE 1 WA t]"), BindError, "it has no WA"),
        (
            SUMS.format("[PARTITION BY k ROWS 2 SLIDE 1]") + " EMIT CHANGES",
            NotSupportedError,
            "EMIT CHANGES of a window of PARTITION BY and ROWS with SLIDE",
        ),
        (
            f"SELECT count(*) FROM ({SUMS.format('[PARTITION BY k ROWS 2 SLIDE 1]')}) AS x"
            " [RANGE 9 SLIDE 9]",
            BindError,
            "take one of time inside",
        ),
    ],
)
def test_what_cannot_be(session: Session, text: str, error: type[CqlError], what: str) -> None:
    session.create_stream("r", pa.table({"k": [1], "t": [1], "v": [1]}), ordered_by="t")
    with pytest.raises(error) as raised:
        results(session, text)
    assert what in str(raised.value)
