"""The values that aggregates over changing relations keep agree with Python lists."""

# Classes have the names of the SQL functions that they declare; their methods take no self.
# ruff: noqa: N801, N805

from __future__ import annotations

import random
import statistics
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.executor.kernels.lib import treap as kernel
from cql.executor.operators.aggregates import changelog_values


def rolling(values: list[Any], rows: int) -> list[list[Any]]:
    return [values[max(0, n + 1 - rows) : n + 1] for n in range(len(values))]


@pytest.fixture
def stream(seed: int) -> tuple[cql.Session, list[int], list[str]]:
    r = random.Random(seed)
    numbers = [int(r.gauss(0, 40)) for _ in range(1500)]
    texts = [f"text {n % 90}" for n in numbers]
    session = cql.connect(spark=False)
    data = pa.table({"t": range(1500), "v": numbers, "s": texts})
    session.create_stream("s", data, ordered_by="t")
    return session, numbers, texts


def _last_of_each_instant(query: Any) -> list[tuple[Any, ...]]:
    rows = [row for batch in query.batches() for row in batch.to_pylist()]
    told = {row["_time"]: tuple(row.values())[2:] for row in rows if row["_weight"] > 0}
    found: list[tuple[Any, ...]] = []
    for now in range(1500):
        found.append(told.get(now, found[-1] if found else ()))
    return found


def test_places_and_frequencies(stream: tuple[cql.Session, list[int], list[str]]) -> None:
    session, numbers, texts = stream
    query = session.sql("""
        SELECT median(v) AS m, mode(v) AS o, count(DISTINCT v) AS c, sum(DISTINCT v) AS d,
            percentile_disc(0.9) WITHIN GROUP (ORDER BY v) AS p, count(DISTINCT s) AS s
        FROM s [ROWS 300]""")
    want = []
    for held, strings in zip(rolling(numbers, 300), rolling(texts, 300), strict=True):
        most = max(Counter(held).values())
        mode = min(v for v, n in Counter(held).items() if n == most)
        place = -(-9 * len(held) // 10) - 1
        want.append(
            (
                statistics.median(held),
                mode,
                len(set(held)),
                sum(set(held)),
                float(sorted(held)[place]),
                len(set(strings)),
            )
        )
    assert _last_of_each_instant(query) == want


@pytest.mark.parametrize("at_once", [1, 700, 1 << 22])
def test_what_is_written_out_comes_in_pieces(
    stream: tuple[cql.Session, list[int], list[str]],
    at_once: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(changelog_values, "_AT_ONCE", at_once)
    session, numbers, texts = stream
    query = session.sql("""
        SELECT array_agg(s) AS l, avg(DISTINCT v) AS a, string_agg(s, ',' ORDER BY v, s) AS j
        FROM s [ROWS 7]""")
    want = [
        (
            strings,
            pytest.approx(statistics.mean(set(held))),
            ",".join(s for _, s in sorted(zip(held, strings, strict=True))),
        )
        for held, strings in zip(rolling(numbers, 7), rolling(texts, 7), strict=True)
    ]
    assert _last_of_each_instant(query) == want


def test_distinct_in_aggregates_of_users(
    stream: tuple[cql.Session, list[int], list[str]],
) -> None:
    session, numbers, _ = stream

    @session.aggregate
    class squares:
        def init() -> tuple[int]:
            return (0,)

        def update(state: tuple[int], x: int) -> tuple[int]:
            return (state[0] + x * x,)

        def final(state: tuple[int]) -> int:
            return state[0]

    want = [(sum(v * v for v in set(held)),) for held in rolling(numbers, 9)]
    query = session.sql("SELECT squares(DISTINCT v) AS q FROM s [ROWS 9]")
    assert _last_of_each_instant(query) == want


def test_state_is_given_back(stream: tuple[cql.Session, list[int], list[str]]) -> None:
    """With ever new groups, the values of groups that are gone are freed."""
    session, _, _ = stream
    query = session.sql("""
        SELECT t % 100000 AS g, count(DISTINCT v) AS c, median(v) AS m, array_agg(s) AS l
        FROM s [RANGE 5] GROUP BY g""")
    session.set("morsel_rows", 16)
    assert query.to_arrow().num_rows == 6
    groups = [m["groups"] for m in query.metrics() if m["operator"].startswith("aggregate")]
    assert groups == [0]


def test_a_treap_forgets(seed: int) -> None:
    r = random.Random(seed)
    nodes = np.full((400, kernel.PRIORITY + 1), -1, np.int64)
    control = np.array([-1, 0, 0, 1], np.int64)
    root, path = np.full(1, -1, np.int64), np.empty(1024, np.int64)
    rank = np.zeros(1, np.int32)
    held: Counter[int] = Counter()
    for _ in range(3000):
        word = r.randrange(-150, 150)
        weight = r.choice((1, 1, 2, -1, -held[word] or 1))
        weight = max(weight, -held[word])
        before = held[word]
        held[word] += weight
        moved = kernel.count_value(
            nodes, control, root, word, weight, kernel.AS_INTEGERS, rank, False, path
        )
        assert moved == (held[word] > 0) - (before > 0)
        total = nodes[root[0], kernel.TOTAL] if root[0] >= 0 else 0
        assert total == sum(held.values())
        assert control[kernel.LIVE] == sum(n > 0 for n in held.values())
    kernel.forget_treaps(nodes, control, root, np.zeros(1, np.int64))
    assert control[kernel.LIVE] == 0
    assert root[0] == -1
