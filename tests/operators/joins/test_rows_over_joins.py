"""Windows over the sequence numbers of a join's pairs (out-of-order paper §5.2)."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

from cql.errors import BindError
from cql.session.session import Session
from tests.support.results import results
from tests.support.runtimes import Settings, apply

ON = "a.k = b.k AND b.t BETWEEN a.t - 2 AND a.t + 1"
PAIRS = f"SELECT a.t AS t, b.t AS u, a.v AS v, b.v AS w FROM a JOIN b ON {ON}"
COUNT = "SELECT count(*) AS n, sum(v) AS v, sum(w) AS w, window_end AS e FROM ({}) AS j {}"
#: (t, k, v): three rows at each time; v numbers the rows.
ROWS = {
    name: [(i // 3, random.Random(f"{name} {i}").randrange(3), i) for i in range(120)]
    for name in "ab"
}
RUNTIMES: tuple[Settings, ...] = (
    {"runtime": "depth_first", "morsel_rows": 7},
    {"runtime": "ordered", "partitions": 1, "workers": 2, "morsel_rows": 64},
    {"runtime": "ordered", "partitions": 4, "workers": 2, "morsel_rows": 7},
)
#: OOP-Join with each runtime, the in-order joins with one runtime.
CHOICES = [*(("oop_join", runtime) for runtime in RUNTIMES), ("adaptive", RUNTIMES[-1])]


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(False) as made:
        for name, rows in ROWS.items():
            columns = dict(zip("tkv", map(list, zip(*rows, strict=True)), strict=True))
            made.create_stream(name, pa.table(columns), ordered_by="t")
        made.register_table("d", pa.table({"k": [1, 2, 2], "x": [10, 20, 21]}))
        yield made


def pairs() -> list[tuple[int, ...]]:
    """(t, u, v, w) of each pair."""
    return [
        (t, u, v, w)
        for t, k, v in ROWS["a"]
        for u, other, w in ROWS["b"]
        if k == other and t - 2 <= u <= t + 1
    ]


def counted(rows: list[tuple[int, ...]], n: int, m: int) -> list[tuple[int, ...]]:
    """(number of rows, sum of v, sum of w, end) of windows of ``n`` rows that slide by ``m``."""
    ends = range(m, len(rows) + n, m)
    held = [(rows[max(0, e - n) : e], e) for e in ends if e - n < len(rows)]
    return [(len(w), sum(r[2] for r in w), sum(r[3] for r in w), e) for w, e in held]


@pytest.mark.sampled
@pytest.mark.parametrize(("operator", "runtime"), CHOICES)
def test_every_operator_gives_the_same_windows(
    session: Session, operator: str, runtime: Settings
) -> None:
    apply(session, runtime, {"join_operator": operator})
    by_time = sorted(pairs(), key=lambda r: (max(r[:2]), *r))
    assert results(session, COUNT.format(PAIRS, "[ROWS 20 SLIDE 10]")) == counted(by_time, 20, 10)
    by_left = sorted(pairs())  # by t, then by the other columns
    found = results(session, COUNT.format(f"{PAIRS} ORDER BY t", "[ROWS 20 SLIDE 10]"))
    assert found == counted(by_left, 20, 10)


def test_in_the_select_list(session: Session) -> None:
    shown = "count(*) AS n, sum(a.v), sum(b.v), window_end [ROWS 9 SLIDE 9]"
    rows = sorted(
        (max(t, u), t, k, v, u, k, w)
        for t, k, v in ROWS["a"]
        for u, other, w in ROWS["b"]
        if k == other and t - 2 <= u <= t + 1
    )
    expected = counted([(r[1], r[4], r[3], r[6]) for r in rows], 9, 9)
    assert results(session, f"SELECT {shown} FROM a JOIN b ON {ON}") == expected


def test_lookups(session: Session) -> None:
    """Windows over the pairs with a table, and over the rows whose key is IN a table."""
    looked_up = [(t, x, v, 0) for t, k, v in ROWS["a"] for x in {1: [10], 2: [20, 21]}.get(k, [])]
    text = "SELECT a.t AS t, d.x, a.v AS v, 0 AS w FROM a JOIN d ON a.k = d.k"
    found = results(session, COUNT.format(text, "[ROWS 4 SLIDE 4]"))
    assert found == counted(sorted(looked_up), 4, 4)
    kept = [(t, k, v, 0) for t, k, v in ROWS["a"] if k in (1, 2)]
    text = "SELECT v, 0 AS w FROM a WHERE k IN (SELECT k FROM d)"
    assert results(session, COUNT.format(text, "[ROWS 4 SLIDE 4]")) == counted(kept, 4, 4)


@pytest.mark.parametrize("window", ["[ROWS 30 SLIDE 30]", "[PARTITION BY k ROWS 60 SLIDE 60]"])
def test_computed_columns_under_the_numbers(session: Session, window: str) -> None:
    """Columns that the subquery computes do not displace the row numbers."""
    text = f"SELECT sum(v) AS v FROM (SELECT v + 1 AS v, k < 9 AS k FROM a) AS c {window}"
    assert sum(v for (v,) in results(session, text)) == sum(v + 1 for _, _, v in ROWS["a"])


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (f"SELECT count(*) [ROWS 2 SLIDE 1] FROM a, b WHERE {ON}", "rows before WHERE"),
        ("SELECT count(*) [ROWS 2 SLIDE 1] FROM d JOIN d AS e ON d.k = e.k", "no time of theirs"),
        (
            COUNT.format(f"SELECT a.v, b.v AS w FROM a JOIN b ON {ON}", "[ROWS 2 SLIDE 1]"),
            "no time of theirs has a watermark",
        ),
        (
            COUNT.format(
                f"SELECT a.t, a.v, b.v AS w FROM a FULL JOIN b ON {ON}", "[ROWS 2 SLIDE 1]"
            ),
            "no time of theirs has a watermark",
        ),
    ],
)
def test_joins_without_an_order(session: Session, text: str, what: str) -> None:
    with pytest.raises(BindError) as raised:
        session.sql(text)
    assert what in str(raised.value)
