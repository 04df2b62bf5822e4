"""Each row of ``a [NOW]`` with the last rows of its key: when it is a join of streams, and its
answers."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from typing import Any

import pyarrow as pa
import pytest

import cql
from tests.support.fuzz.random_cases import check
from tests.support.fuzz.random_joins import rooms
from tests.support.fuzz.random_relation_joins import LATEST_SHAPES, latest_rows_case

pytestmark = pytest.mark.usefixtures("shared_kernels")

QUICK = 4
PAIRS = """
    SELECT ISTREAM(p.ts, p.k, p.v, q.v AS w)
    FROM a [NOW] p {kind} JOIN b [PARTITION BY k ROWS {n}] q ON p.k = q.k"""


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("first", range(QUICK))
def test_random_joins_equal_the_reference(first: int, full: bool, seed: int) -> None:
    for index in range(first, LATEST_SHAPES, QUICK):
        for k in range(seed, seed + (60 if full else 2)):
            with rooms(k):
                check(latest_rows_case(index, k))


def _rows(seed: int, n: int, keys: int) -> dict[str, list[Any]]:
    rng = random.Random(seed)
    times = sorted(rng.randrange(4 * n) for _ in range(n))
    return {
        "ts": times,
        "k": [rng.choice((None, *range(keys))) for _ in times],
        "v": list(range(n)),
    }


def _expected(
    a: dict[str, list[Any]], b: dict[str, list[Any]], n: int, *, pads: bool
) -> list[tuple[Any, ...]]:
    kept: dict[Any, deque[int]] = defaultdict(lambda: deque(maxlen=n))
    found, j = [], 0
    for ts, k, v in zip(a["ts"], a["k"], a["v"], strict=True):
        while j < len(b["ts"]) and b["ts"][j] <= ts:
            kept[b["k"][j]].append(b["v"][j])
            j += 1
        partners = list(kept[k]) if k is not None else []
        found += [(ts, k, v, w) for w in partners or ([None] if pads else [])]
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("runtime", ["depth_first", "fifo", "ordered"])
@pytest.mark.parametrize(("kind", "n"), [("", 5), ("LEFT", 3), ("", 1), ("LEFT", 70)])
@pytest.mark.parametrize("morsel_rows", [2, 64, 4096])
def test_rows_of_a_key(runtime: str, kind: str, n: int, morsel_rows: int) -> None:
    """A left row with more partners than a morsel has rows, too; NULL keys have none."""
    a, b = _rows(1, 400, 5), _rows(2, 900, 5)
    with cql.connect(spark=False) as session:
        session.set("runtime", runtime)
        session.set("morsel_rows", morsel_rows)
        session.create_stream("a", pa.table(a), ordered_by="ts")
        session.create_stream("b", pa.table(b), ordered_by="ts")
        query = session.sql(PAIRS.format(kind=kind, n=n))
        found = [tuple(r.values()) for r in query.to_arrow().to_pylist()]
    assert found == _expected(a, b, n, pads=kind == "LEFT")


def test_rows_leave_with_the_rows_that_replace_them() -> None:
    """Of 40,000 right rows with ten keys, at most 30 stay besides those that wait."""
    a, b = _rows(1, 20_000, 10), _rows(2, 40_000, 10)
    with cql.connect(spark=False) as session:
        session.set("runtime", "depth_first")
        session.set("morsel_rows", 256)
        session.create_stream("a", pa.table(a), ordered_by="ts")
        session.create_stream("b", pa.table(b), ordered_by="ts")
        query = session.sql(PAIRS.format(kind="", n=3))
        query.to_arrow()
        (join,) = (m for m in query.metrics() if m["operator"].startswith("asofjoin"))
    assert join["peak_bytes"] < 400_000
    assert join["held_right"] == 0  # no left row follows


ONE = "SELECT ISTREAM(p.ts, p.v, q.v AS w) FROM a [NOW] p JOIN a {window} q ON {on}"


@pytest.mark.parametrize(
    ("text", "streams"),
    [
        (ONE.format(window="[PARTITION BY k ROWS 2]", on="p.k = q.k"), True),
        (ONE.format(window="[PARTITION BY k ROWS 2]", on="p.k = q.k AND p.v > q.v"), True),
        (ONE.format(window="[PARTITION BY k ROWS 2]", on="p.v = q.v"), False),
        (ONE.format(window="[PARTITION BY k, v ROWS 2]", on="p.k = q.k"), False),
        (ONE.format(window="[ROWS 2]", on="p.k = q.k"), False),
        (ONE.format(window="[RANGE 3]", on="p.k = q.k"), False),
        # Without the left row's time, a row could equal one of the instant before.
        (ONE.replace("p.ts, ", "").format(window="[PARTITION BY k ROWS 2]", on="p.k = q.k"), False),
        (ONE.replace("ISTREAM", "RSTREAM").format(window="[PARTITION BY k ROWS 2]",
                                                  on="p.k = q.k"), False),
    ],
)  # fmt: skip
def test_when_it_is_a_join_of_streams(text: str, streams: bool) -> None:
    with cql.connect(spark=False) as session:
        session.create_stream("a", pa.table(_rows(1, 10, 2)), ordered_by="ts")
        plan = str(session.sql(f"EXPLAIN {text}"))
    assert ("AsofJoin" in plan) is streams
    assert ("RelationJoin" in plan) is not streams


def test_equal_rows_of_neighbouring_instants_are_not_new() -> None:
    """ISTREAM leaves out what was there at the instant before."""
    a = {"ts": [1, 2, 4], "k": [1, 1, 1], "v": [7, 7, 7]}
    with cql.connect(spark=False) as session:
        session.create_stream("a", pa.table(a), ordered_by="ts")
        session.create_stream("b", pa.table({"ts": [0], "k": [1], "v": [9]}), ordered_by="ts")
        text = PAIRS.replace("p.ts, ", "").format(kind="", n=2)
        assert session.sql(text).to_arrow().num_rows == 2
        assert session.sql(PAIRS.format(kind="", n=2)).to_arrow().num_rows == 3
