"""Operators in partitions: rows are spread by the content of their keys, never by the stored codes;
every number of partitions that the clause accepts gives the rows of one partition."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pyarrow as pa
import pytest

from cql.catalog import blocks
from cql.executor.run import reading
from cql.executor.strings import compaction
from cql.executor.strings.dictionary import Dictionary
from cql.session.session import Session
from tests.support.runtimes import ORDERED, share

ROWS = 4_000
STEADY = 23


def rows_of(seed: int) -> pa.Table:
    """Rows in which every second text occurs once and is then compacted away; the others recur."""
    r = random.Random(seed)
    texts = [
        None
        if r.random() < 0.02
        else f"steady {r.randrange(STEADY)}"
        if i % 2
        else f"passing text number {i} of {seed}"
        for i in range(ROWS)
    ]
    return pa.table(
        {
            "t": pa.array(range(ROWS), pa.int64()),
            "k": pa.array(texts, pa.string()),
            "b": pa.array([None if x is None else x[::-1].encode() for x in texts], pa.binary()),
            "n": pa.array([r.randrange(3) for _ in texts], pa.int32()),
            "x": pa.array([r.choice((0.0, -0.0, 0.5, None)) for _ in texts], pa.float64()),
        }
    )


@pytest.fixture
def session(seed: int, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 200)
    monkeypatch.setattr(compaction, "LEAST", 4_000)
    session = Session(False)
    for name in "ac":
        session.create_stream(name, rows_of(seed), ordered_by="t", unit="seconds")
    return session


@pytest.fixture
def compactions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    seen: list[int] = []

    def watched(*args: Any) -> None:
        compaction.compact(*args)
        seen.append(len(args[0].dictionary))

    monkeypatch.setattr(reading, "compact", watched)
    return seen


KEYS = ("k", "n, k, b", "x, k")
_WIDE = f"[RANGE {2 * ROWS} SLIDE {2 * ROWS}]"
#: Queries by name: operators that hold state see texts again after their codes have changed.
TEXT_KEYS = {
    **{
        f"one window by {keys}": f"SELECT {keys}, count(*) AS c, max(t) AS m FROM a {_WIDE}"
        f" WHERE k LIKE 'steady%' OR k IS NULL GROUP BY {keys}"
        for keys in KEYS
    },
    "sliding windows": "SELECT k, n, count(*) AS c, window_end FROM a [RANGE 2000 SLIDE 500]"
    " WHERE k LIKE 'steady%' GROUP BY k, n",
    "sessions": "SELECT k, count(*) AS c, min(t) AS s FROM a [SESSION 300]"
    " WHERE k LIKE 'steady%' GROUP BY k",
    "distinct": "SELECT DISTINCT k, n FROM a WHERE k LIKE 'steady%'",
    "computed": "SELECT u, count(*) AS c FROM (SELECT t, concat(k, '/', n) AS u FROM a"
    f" WHERE k LIKE 'steady%') AS s {_WIDE} GROUP BY u",
    "join by text": "SELECT x.k, y.t FROM a AS x JOIN c AS y ON x.k = y.k AND y.n = 0"
    " AND y.t BETWEEN x.t + 1000 AND x.t + 1002 WHERE x.k LIKE 'steady%'",
    "join by two": "SELECT x.k, y.t FROM a AS x JOIN c AS y ON x.k = y.k AND x.n = y.n"
    " AND y.t BETWEEN x.t + 1000 AND x.t + 1006",
    "join by bytes": "SELECT x.t, y.t AS u FROM a AS x JOIN c AS y ON x.n = y.n AND x.b = y.b"
    " AND y.t BETWEEN x.t + 1000 AND x.t + 1006",
    "union": f"SELECT k, count(*) AS c FROM (SELECT t, k FROM a UNION ALL SELECT t, k FROM c) AS u"
    f" {_WIDE} WHERE k LIKE 'steady%' GROUP BY k",
}


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("query", TEXT_KEYS)
def test_rows_are_spread_by_content(
    session: Session, compactions: list[int], seed: int, query: str, full: bool
) -> None:
    """The output stays the same if codes of texts change while windows and joins are open."""
    text = TEXT_KEYS[query]
    session.set("runtime", "depth_first")
    expected = session.sql(text).to_arrow()
    assert expected.num_rows > 2
    dealt = share(ORDERED[2:], list(TEXT_KEYS).index(query), 2, seed, full=full)
    for settings in dealt:
        compactions.clear()
        for name, value in settings.items():
            session.set(name, value)
        assert session.sql(text).to_arrow().equals(expected), settings
        assert len(compactions) >= 2


def test_the_hash_of_a_text_is_the_same_in_every_dictionary() -> None:
    """Kernels find the hashes through a word that holds the address of the array, also after growth
    and compaction."""
    texts = [f"text {n}".encode() for n in range(3_000)]
    first, second = Dictionary(), Dictionary()
    forward, backward = first.encode_values(texts), second.encode_values(texts[::-1])[::-1]
    assert (first.hashes[forward] == second.hashes[backward]).all()
    assert first.hashes_at[0] == first.hashes.ctypes.data
    live = first.hashes == first.hashes
    live = live[: len(first)]
    live[forward[::2]] = False
    renumbered = first.compact(live)
    assert (first.hashes[renumbered[forward[1::2]]] == second.hashes[backward[1::2]]).all()
    assert first.hashes_at[0] == first.hashes.ctypes.data


MANY = {
    "groups": "SELECT n7, count(*) AS c, max(t) AS m FROM w [RANGE 300 SLIDE 300] GROUP BY n7",
    "a union": "SELECT n7, count(*) AS c FROM (SELECT t, n7 FROM w UNION ALL SELECT t, g FROM w)"
    " AS u [RANGE 300 SLIDE 300 WA t] GROUP BY n7",
    "a join": "SELECT w.n7, v.t FROM w JOIN v ON w.n7 = v.n7 AND v.t BETWEEN w.t AND w.t + 500",
}


@pytest.fixture(scope="module")
def wide(seed: int) -> Session:
    r = random.Random(seed)
    session = Session(False)
    for name in "wv":
        columns = {"t": range(2_000), "n7": [r.randrange(700) for _ in range(2_000)]}
        columns["g"] = [r.randrange(50) for _ in range(2_000)]
        table = pa.table({n: pa.array(c, pa.int64()) for n, c in columns.items()})
        session.create_stream(name, table, ordered_by="t", unit="seconds")
    return session


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("query", MANY)
def test_up_to_256_partitions(wide: Session, seed: int, query: str, full: bool) -> None:
    """The merge of outputs has room for 256 partitions."""
    wide.set("runtime", "depth_first")
    expected = wide.sql(MANY[query]).to_arrow()
    wide.set("runtime", "ordered")
    key = "w.n7" if query == "a join" else "n7"
    every = [
        (f"{scheme}({key}) INTO {parts}", workers)
        for scheme in ("HASH", "RANGE")
        for parts in (1, 89, 128, 256)
        for workers in (1, 2, 3)
        if scheme == "HASH" or query in ("groups", "a join")
    ]
    for clause, workers in share(every, list(MANY).index(query), 3, seed, full=full):
        wide.set("workers", workers)
        text = f"{MANY[query]} PARTITION BY {clause}"
        assert wide.sql(text).to_arrow().equals(expected), (clause, workers)


@pytest.mark.slow
def test_small_outputs_of_partitions(wide: Session) -> None:
    """Partitions whose outputs may leave in any order: kernels add the lists to the dictionary at
    the same time, and the few rows of each partition leave as one morsel."""
    text = """
        SELECT e, count(*) AS c, sum(d) AS d, window_end FROM (
            SELECT n7, collect_set(g) AS xs, count(DISTINCT g) AS d FROM w [SESSION 20 SECONDS]
            GROUP BY n7)
        [RANGE 500 SECONDS SLIDE 500 SECONDS] AS s, UNNEST(s.xs) AS x (e) GROUP BY e"""
    order = [(name, "ascending") for name in ("window_end", "e")]
    wide.set("runtime", "depth_first")
    expected = wide.sql(text).to_arrow().sort_by(order)
    wide.set("runtime", "ordered")
    for parts, workers in itertools.product((1, 8, 64), (1, 3)):
        wide.set("partitions", parts)
        wide.set("workers", workers)
        assert wide.sql(text).to_arrow().sort_by(order).equals(expected), (parts, workers)
    wide.set("partitions", 0)


#: Queries whose conditions and keys call Python, at each place that a partitioned operator reads.
NEW_TEXTS = {
    "a predicate": "SELECT n, min(1) AS e, max(t) AS m FROM a WHERE concat_ws('-', 'a', k) LIKE"
    " 'a-s%' GROUP BY n",
    "a CASE": "SELECT n, count(*) AS c FROM a WHERE CASE WHEN n = 1 THEN concat_ws('-', k, n)"
    " ELSE upper(k) END > 'STEADY 2' GROUP BY n",
    "a key by CASE": "SELECT CASE WHEN n = 1 THEN concat_ws('-', left(k, 8), n) ELSE 'no' END AS u,"
    " count(*) AS c FROM a GROUP BY CASE WHEN n = 1 THEN concat_ws('-', left(k, 8), n) ELSE 'no'"
    " END",
    "aggregates": "SELECT n, max(concat_ws('-', k, t)) AS m, count(DISTINCT concat(left(k, 8), n))"
    " AS d FROM a GROUP BY n",
    "a filtered aggregate": "SELECT n, count(*) FILTER (WHERE concat_ws('-', k, n) LIKE '%-1') AS c"
    " FROM a GROUP BY n",
    "HAVING": "SELECT n, max(k) AS m FROM a GROUP BY n HAVING concat_ws('-', max(k), n) LIKE 's%'",
    "keys of a join": "SELECT x.t, y.t AS u FROM a AS x JOIN c AS y ON concat_ws('-', x.k, x.n) ="
    " concat_ws('-', y.k, y.n) AND y.t BETWEEN x.t AND x.t + 20",
    "a condition of a join": "SELECT x.t, y.t AS u FROM a AS x JOIN c AS y ON x.k = y.k AND"
    " concat_ws('-', x.b, y.b) > '2 ' AND y.t BETWEEN x.t AND x.t + 60",
    "sides of a join": "SELECT x.t, y.t AS u FROM (SELECT * FROM a WHERE concat_ws('-', k, n) LIKE"
    " '%-1') AS x JOIN (SELECT * FROM c WHERE concat(k, n) LIKE '%1') AS y ON x.k = y.k AND"
    " y.t BETWEEN x.t AND x.t + 100",
}


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("query", NEW_TEXTS)
def test_texts_that_are_made_before_partitions(
    session: Session, seed: int, query: str, full: bool
) -> None:
    text = NEW_TEXTS[query]
    session.set("runtime", "depth_first")
    expected = session.sql(text).to_arrow()
    assert expected.num_rows > 0
    dealt = share(ORDERED, list(NEW_TEXTS).index(query), 2, seed, full=full)
    for settings in dealt:
        for name, value in settings.items():
            session.set(name, value)
        assert session.sql(text).to_arrow().equals(expected), settings


#: Queries in which rows fail at the windows, in the step below, or in the keys.
_WINDOW = "[RANGE 100 SLIDE 100]"
FAILING = {
    "argument": f"SELECT n, sum(10 / (t % 50)) AS x FROM a {_WINDOW} GROUP BY n",
    "filter": f"SELECT n, sum(10 / (t % 50)) AS x FROM a {_WINDOW} WHERE n <> 1 GROUP BY n",
    "key": f"SELECT 10 / (t % 50) AS q, count(*) AS x FROM a {_WINDOW} GROUP BY 10 / (t % 50)",
    "union": "SELECT n, sum(10 / (t % 50)) AS x FROM (SELECT * FROM a UNION ALL SELECT * FROM c)"
    f" {_WINDOW} GROUP BY n",
}


@pytest.mark.sampled
@pytest.mark.parametrize("query", FAILING)
def test_bad_rows_are_traced_to_their_source(session: Session, query: str) -> None:
    found = []
    for partitions in (0, 1, 3):
        session.set("runtime", "ordered" if partitions else "depth_first")
        session.set("partitions", partitions)
        run = session.sql(f"{FAILING[query]} ON BAD ROW KEEP")
        run.to_arrow()
        found.append(run.bad_rows().select(["source", "offset", "reason"]).to_pylist())
    assert found[0] == found[1] == found[2]
    assert {row["offset"] % 50 for row in found[0]} == {0}
