"""Changelog inputs in the form of other engines' tests, with the answers of these engines.

STREAM (Stanford University, BSD licence): its examples read a relation as lines of a time, ``+`` or
``-``, and a row, with one row that enters at each of the times 1 to 9, and leaves ten later; the
input here is made by a formula that gives the same rows. STREAM writes a relation in the same form
(user guide, section 2.1), so that a query has an answer at each instant.

Arroyo (Apache License 2.0, MIT): the queries of its tests ``debezium_pass_through``,
``debezium_agg`` and ``debezium_coercion``, over a history of orders like theirs, with updates that
change nothing and deletes. Arroyo writes envelopes; what their last rows per key leave is the
answer."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cql
from cql.session.session import Session
from tests.support.runtimes import apply, named
from tests.support.updates.changes import Row, rows_of, summed

LETTERS = "abcdefghijk"
#: Times, operations and rows.
ELEMENTS: list[tuple[int, str, Row]] = [
    (k if op == "+" else k + 10, op, (k, k * 11 / 10, LETTERS[k - 1], LETTERS[k - 1 : k + 2]))
    for op in "+-"
    for k in range(1, 10)
]
SETTINGS = ({"runtime": "depth_first"}, {"runtime": "ordered", "partitions": 4, "workers": 2})


@pytest.fixture(params=SETTINGS, ids=named)
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        apply(made, request.param)
        yield made


def changes(session: Session, query: str) -> list[tuple[int, str, Row]]:
    """The answer of a query in the form of STREAM's output; of equal times, rows that leave
    first."""
    asked: Any = session.sql(query)
    rows = [tuple(r.values()) for b in asked.batches() for r in b.to_pylist()]
    shown = [(time, "+" if n > 0 else "-", row) for time, n, *row in rows for _ in range(abs(n))]
    return sorted(((t, op, tuple(row)) for t, op, row in shown), key=lambda e: (e[0], e[1] == "+"))


def stream_relation(session: Session) -> None:
    session.sql("""
        CREATE STREAM r (t BIGINT, op STRING, a INT, b DOUBLE, c STRING, d STRING)
        ORDERED BY t CHANGELOG BY op
    """)
    session.push("r", [(t, op, *row) for t, op, row in ELEMENTS])
    session.end("r")


def test_relations_of_stream(session: Session) -> None:
    stream_relation(session)
    assert changes(session, "SELECT a, b, c, d FROM r") == ELEMENTS
    chosen = [e for e in ELEMENTS if 5 < e[2][0] < 8]
    assert changes(session, "SELECT a, b, c, d FROM r WHERE a > 5 AND a < 8") == chosen
    even = [(t, op, row[:1]) for t, op, row in ELEMENTS if row[0] % 2 == 0]
    assert changes(session, "SELECT a FROM r WHERE a % 2 = 0") == even
    # Distinct values, of which some come from two rows.
    half: list[tuple[int, str, Row]] = []
    held: Counter[int] = Counter()
    for t, op, row in ELEMENTS:
        value = row[0] // 2
        held[value] += 1 if op == "+" else -1
        if held[value] == (op == "+"):
            half.append((t, op, (value,)))
    assert changes(session, "SELECT DISTINCT floor(a / 2) AS v FROM r") == half
    # An aggregate without groups has its row from the first instant on.
    totals: list[tuple[int, str, Row]] = []
    total = count = 0
    for t, op, row in ELEMENTS:
        before = (count, total or None)
        count, total = (count + 1, total + row[0]) if op == "+" else (count - 1, total - row[0])
        totals += [(t, "-", before)] if t > 1 else []
        totals.append((t, "+", (count, total or None)))
    assert changes(session, "SELECT count(*) AS n, sum(a) AS s FROM r") == totals


def test_streams_joined_with_relations_of_stream(session: Session) -> None:
    """``RSTREAM (SELECT … FROM S [NOW], R WHERE …)``: each row of the stream sees the relation at
    its own time."""
    stream_relation(session)
    rows = [(t, a) for t in (1, 4, 9, 12, 19, 25) for a in (1, 4, 9)]
    session.sql("CREATE STREAM s (t BIGINT, a INT) ORDERED BY t")
    session.push("s", rows)
    session.end("s")
    asked: Any = session.sql("SELECT RSTREAM(s.a, r.d) FROM s [NOW], r WHERE s.a = r.a")
    found = [tuple(r.values()) for b in asked.batches() for r in b.to_pylist()]
    there = {a: range(a, a + 10) for a in range(1, 10)}
    expected = [(a, LETTERS[a - 1 : a + 2]) for t, a in rows if t in there[a]]
    assert Counter(f[:2] for f in found) == Counter(expected)


#: Orders: id, product, quantity, status.
HISTORY: list[tuple[str, Row | None, Row | None]] = [
    ("c", None, (1, "Mouse", 5, "Pending")),
    ("c", None, (2, "Laptop", 1, "Cancelled")),
    ("c", None, (3, "Mouse", 3, "Pending")),
    ("u", (1, "Mouse", 5, "Pending"), (1, "Mouse", 5, "Delivered")),
    ("c", None, (4, "Monitor", 2, "Shipped")),
    ("u", (2, "Laptop", 1, "Cancelled"), (2, "Laptop", 1, "Cancelled")),
    ("d", (3, "Mouse", 3, "Pending"), None),
    ("u", (4, "Monitor", 2, "Shipped"), (4, "Laptop", 2, "Shipped")),
    ("c", None, (5, "Keyboard", 4, "Pending")),
    ("d", (5, "Keyboard", 4, "Pending"), None),
]
NAMES = ("id", "product_name", "quantity", "status")


def orders(session: Session, folder: Path, clause: str) -> None:
    path = folder / "orders.json"
    with path.open("w") as file:
        for time, (op, before, after) in enumerate(HISTORY):
            sides = {
                side: None if row is None else dict(zip(NAMES, row, strict=True))
                for side, row in (("before", before), ("after", after))
            }
            file.write(json.dumps({**sides, "op": op, "ts_ms": time}) + "\n")
    session.sql(f"""
        CREATE STREAM orders (
            id INT PRIMARY KEY, product_name STRING, quantity INT, status STRING, ts_ms BIGINT
        )
        USING json OPTIONS (path '{path}') ORDERED BY ts_ms {clause} CHANGELOG DEBEZIUM
    """)


@pytest.mark.parametrize("clause", ["UPDATE KEY", ""])
def test_debezium_streams_of_arroyo(clause: str, session: Session, tmp_path: Path) -> None:
    orders(session, tmp_path, clause)
    last = Counter([(1, "Mouse", 5, "Delivered"), (2, "Laptop", 1, "Cancelled")])
    last[(4, "Laptop", 2, "Shipped")] = 1
    query = "SELECT id, product_name, quantity, status FROM orders"
    assert rows_of(session, query) == last
    asked: Any = session.sql(query)
    assert summed(asked.batches()) == last
    grouped = Counter([("p_Mouse", 1, 20), ("p_Laptop", 2, 23)])
    query = """
        SELECT concat('p_', product_name) AS id, count(*) AS c, sum(quantity + 5) + 10 AS q
        FROM orders GROUP BY concat('p_', product_name)
    """
    assert rows_of(session, query) == grouped
    asked = session.sql(f"{query} EMIT CHANGES")
    assert summed(asked.batches()) == grouped


def test_a_stream_of_inserts_of_arroyo(session: Session) -> None:
    session.sql(
        "CREATE STREAM s (counter BIGINT, ts_ms BIGINT) ORDERED BY ts_ms CHANGELOG DEBEZIUM"
    )
    session.push(
        "s", [{"before": None, "after": {"counter": n}, "op": "c", "ts_ms": n} for n in range(100)]
    )
    session.end("s")
    assert rows_of(session, "SELECT counter FROM s") == Counter((n,) for n in range(100))
