"""Aggregates of all values, and those of users, over relations with keys: pieces of any size,
partitions, rows that fail, and the memory of values."""

# User-defined aggregates are classes with the names of SQL functions, their methods have no self.
# ruff: noqa: N801, N805
from __future__ import annotations

import random
import statistics
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.errors import RunError
from cql.executor.operators.aggregates import changelog_values
from cql.session.session import Session

RANGE = 6
VALUES = f"""
    SELECT k, median(v) AS m, count(DISTINCT s) AS c, avg(DISTINCT v) AS a, array_agg(s) AS l,
        string_agg(s, ',' ORDER BY s DESC) AS j, max(v) AS h
    FROM s [RANGE {RANGE}] GROUP BY k"""


def _rows(seed: int, rows: int = 300) -> list[dict[str, Any]]:
    r = random.Random(seed)
    times = sorted(r.randrange(rows // 2) for _ in range(rows))
    return [
        {"t": t, "k": r.randrange(4), "v": r.randrange(9), "s": f"text {t} {r.randrange(2)}"}
        for t in times
    ]


def _session(rows: list[dict[str, Any]], settings: Mapping[str, object]) -> Session:
    session = cql.connect(spark=False)
    for setting, value in settings.items():
        session.set(setting, value)
    session.create_stream("s", pa.Table.from_pylist(rows), ordered_by="t")
    return session


def _expected(rows: list[dict[str, Any]]) -> dict[tuple[int, int], tuple[Any, ...]]:
    """By instant and key, the row of each key whose rows changed there."""
    instants: dict[int, set[int]] = defaultdict(set)
    for row in rows:
        instants[row["t"]].add(row["k"])
        instants[row["t"] + RANGE + 1].add(row["k"])
    found = {}
    for now, keys in instants.items():
        for k in keys:
            held = [w for w in rows if w["t"] <= now <= w["t"] + RANGE and w["k"] == k]
            if held:
                numbers, texts = [w["v"] for w in held], [w["s"] for w in held]
                found[now, k] = (
                    statistics.median(numbers),
                    len(set(texts)),
                    statistics.fmean(set(numbers)),
                    texts,
                    ",".join(sorted(texts, reverse=True)),
                    max(numbers),
                )
    return found


@pytest.mark.sampled
@pytest.mark.parametrize(
    "settings",
    [
        {"morsel_rows": 1},
        {"morsel_rows": 64},
        {"morsel_rows": 7, "runtime": "ordered", "workers": 2, "partitions": 3},
    ],
)
@pytest.mark.parametrize("at_once", [1, 100, 1 << 22])
def test_pieces_of_any_size(
    settings: dict[str, object], at_once: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changelog_values, "_AT_ONCE", at_once)
    rows = _rows(seed)
    with _session(rows, settings) as session:
        query = session.sql(VALUES)
        changes = [row for batch in query.batches() for row in batch.to_pylist()]
        groups = {m["groups"] for m in query.metrics() if m["operator"].startswith("aggregate")}
    entered = {
        (row["_time"], row["k"]): tuple(row[name] for name in "mcaljh")
        for row in changes
        if row["_weight"] > 0
    }
    expected = _expected(rows)
    assert entered.keys() <= expected.keys()  # a row that is the same as before does not leave
    for place, row in entered.items():
        assert row == pytest.approx(expected[place])
    held: dict[int, tuple[Any, ...]] = {}
    for (now, k), row in sorted(expected.items()):
        if (now, k) not in entered:
            assert row == pytest.approx(held[k])
        held[k] = row
    assert groups == {0}


def _failing(session: Session, where: int) -> None:
    # A class of aggregates has the name of its SQL function; its methods take no self.
    class picky:
        def init():
            return (0,)

        def update(state, v: int):
            if v == where:
                raise ValueError(f"no {v}")
            return (state[0] + v,)

        def merge(a, b):
            return (a[0] + b[0],)

        def final(state) -> int:
            return state[0]

    session.aggregate(picky)


@pytest.mark.sampled
@pytest.mark.parametrize("on_bad_row", ["fail", "keep"])
@pytest.mark.parametrize(
    "settings",
    [{"morsel_rows": 5}, {"runtime": "ordered", "workers": 2, "partitions": 3, "morsel_rows": 5}],
)
def test_a_function_that_fails_ends_the_query(settings: dict[str, object], on_bad_row: str) -> None:
    """The state of the group would be wrong from there on, so the row cannot be left out."""
    rows = [{"t": t, "k": t % 3, "v": t, "s": ""} for t in range(90)]
    given = {**settings, "on_bad_row": on_bad_row}
    with _session(rows, given) as session:
        _failing(session, 70)
        query = session.sql(
            "SELECT ISTREAM(k, picky(v) AS p, median(v) AS m) FROM s [RANGE 9] GROUP BY k"
        )
        with pytest.raises(RunError, match=r"picky\.update raised ValueError: no 70, at 70"):
            query.to_arrow()


def test_a_users_aggregate_runs_in_partitions() -> None:
    rows = _rows(1)
    text = "SELECT ISTREAM(k, picky(v) AS p) FROM s [RANGE 9] GROUP BY k"
    made = []
    for settings in ({}, {"runtime": "ordered", "workers": 2, "partitions": 3}):
        with _session(rows, {"morsel_rows": 16, **settings}) as session:
            _failing(session, -1)
            query = session.sql(text)
            made.append(query.to_arrow())
            counts = [m["partitions"] for m in query.metrics() if "partitions" in m]
    assert made[0].num_rows
    assert made[1].equals(made[0])
    assert counts == [3]


def test_max_state_counts_the_values_of_a_piece() -> None:
    rows = [{"t": t // 4000, "k": 1, "v": t, "s": f"text {t % 50}"} for t in range(8000)]
    for call in ("median(v)", "array_agg(v)"):
        text = f"SELECT k, {call} AS x FROM s [RANGE UNBOUNDED] GROUP BY k"
        with _session(rows, {"max_state": "1 MB", "morsel_rows": 1024}) as session:
            with pytest.raises(RunError, match=r"over max_state = 1,000,000") as refusal:
                session.sql(text).to_arrow()
            session.set("max_state", "100 MB")
            assert session.sql(text).to_arrow().num_rows == 1
        assert "SET max_state" in (refusal.value.hint or "")
