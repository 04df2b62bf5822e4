"""Equal parts of plans share one written kernel; parts that differ in anything do not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.base.lru import LruCache
from cql.errors import CqlError
from cql.executor.codegen import kernel_cache

STRINGS: list[object] = ["ab", "b", None, "bc"]
WHOLE: list[object] = [1, 0, 5, 4]
GAPS: list[object] = [1, None, 5, 4]


@dataclass(frozen=True)
class Run:
    """A query over the stream ``s`` (ts, v, w), the column v, and the settings of the session."""

    text: str
    v: list[object] = field(default_factory=lambda: WHOLE)
    type: pa.DataType = field(default_factory=pa.int64)
    settings: dict[str, object] = field(default_factory=dict)

    def outcome(self) -> tuple[str, str]:
        """The rows and the text of the kernels, or the error with its position and an empty
        text."""
        columns = {"ts": pa.array([1, 2, 3, 4]), "v": pa.array(self.v, self.type), "w": STRINGS}
        session = cql.connect(spark=False, **self.settings)
        session.create_stream("s", pa.table(columns), ordered_by="ts")
        query = session.sql(self.text)
        assert isinstance(query, cql.Query)
        try:
            rows = repr(query.to_arrow().to_pylist())
        except CqlError as error:
            return str(error), ""
        return rows, str(query.explain("kernel"))


FILTER = Run("SELECT v, ts FROM s WHERE v > 1")
DIVIDE = Run("SELECT 12 / v AS r FROM s")
COUNT = Run("SELECT v, count(*) AS n [RANGE 2, SLIDE 2] FROM s GROUP BY v")
JOIN = Run("SELECT a.v, b.ts FROM s [RANGE 1] AS a, s [RANGE 1] AS b WHERE a.v <> b.v")
ROWS = Run("SELECT sum(v) AS n FROM s [ROWS 2]")
DIFFERENT = {
    "a constant": (FILTER, Run("SELECT v, ts FROM s WHERE v > 4")),
    "the sign of a zero": (
        Run("SELECT v * CAST('0.0' AS DOUBLE) AS r FROM s"),
        Run("SELECT v * CAST('-0.0' AS DOUBLE) AS r FROM s"),
    ),
    "a pattern": (
        Run("SELECT ts FROM s WHERE w LIKE 'a%'"),
        Run("SELECT ts FROM s WHERE w LIKE 'b%'"),
    ),
    "a type": (FILTER, Run(FILTER.text, type=pa.int32())),
    "whether there are NULLs": (FILTER, Run(FILTER.text, GAPS)),
    "the place of an error": (DIVIDE, Run(DIVIDE.text.replace("/", " /"))),
    "a width": (COUNT, Run(COUNT.text.replace("SLIDE 2", "SLIDE 1"))),
    "a setting": (COUNT, Run(COUNT.text, settings={"window_operator": "buffered"})),
    "a band": (JOIN, Run(JOIN.text.replace("[RANGE 1] AS b", "[RANGE 3] AS b"))),
    "a function": (ROWS, Run(ROWS.text.replace("sum", "max"))),
}


@pytest.fixture
def memo(monkeypatch: pytest.MonkeyPatch) -> LruCache[tuple[object, ...], Any]:
    made = _memo()
    monkeypatch.setattr(kernel_cache, "WRITTEN", made)
    return made


def _memo() -> LruCache[tuple[object, ...], Any]:
    return LruCache(1 << 17, kernel_cache._weight)


@pytest.mark.parametrize("what", DIFFERENT)
def test_what_differs_is_not_shared(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two queries that differ in one thing have the same outcomes one after the other as alone."""
    runs = DIFFERENT[what]
    alone = []
    for run in runs:
        monkeypatch.setattr(kernel_cache, "WRITTEN", _memo())
        alone.append(run.outcome())
    assert alone[0] != alone[1]
    for order in (runs, runs[::-1]):
        monkeypatch.setattr(kernel_cache, "WRITTEN", _memo())
        assert [run.outcome() for run in order] == [alone[runs.index(run)] for run in order]


@pytest.mark.parametrize(
    "run", [FILTER, COUNT, JOIN, ROWS], ids=("filter", "count", "join", "rows")
)
def test_the_same_query_is_written_once(run: Run, memo: LruCache[Any, Any]) -> None:
    first = run.outcome()
    parts = len(memo)
    assert parts > 0
    assert run.outcome() == first
    assert len(memo) == parts


def test_runs_that_share_a_kernel_do_not_meet() -> None:
    """Four runs share a kernel at the same time; a kernel holds no state of a run."""
    shared = Run("SELECT ts, w FROM s WHERE w > 'aa' AND w < 'bb' AND v < 5")
    alone, begin = shared.outcome(), Barrier(4)

    def run(_: int) -> list[tuple[str, str]]:
        begin.wait(60)
        return [shared.outcome() for _ in range(5)]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(4))) == [[alone] * 5] * 4


def test_what_calls_functions_of_users_is_not_kept(memo: LruCache[Any, Any]) -> None:
    """The cache would keep the functions alive, and all objects that they refer to."""
    session = cql.connect(spark=False)
    session.register_function("twice", lambda x: 2 * x, args=["bigint"], returns="bigint")
    session.create_stream("s", pa.table({"ts": [1, 2], "v": [3, 4]}), ordered_by="ts")
    query = session.sql("SELECT v FROM s WHERE twice(v) > 6")
    assert isinstance(query, cql.Query)
    assert query.to_arrow().to_pylist() == [{"v": 4}]
    assert len(memo) == 0


# -- the LRU cache itself --------------------------------------------------------------------------


def test_what_was_asked_for_last_is_kept() -> None:
    made: list[str] = []

    def make(text: str) -> str:
        made.append(text)
        return text.upper()

    memo: LruCache[str, str] = LruCache(6, len)
    for text in ("aa", "bb", "cc", "aa", "dd", "aa", "cc"):
        assert memo.get(text, partial(make, text)) == text.upper()
    assert made == ["aa", "bb", "cc", "dd"]  # dd evicted bb
    assert memo.get("bb", partial(make, "bb")) == "BB"
    assert made[4:] == ["bb"]
    assert len(memo) == 3


def test_what_is_too_large_is_not_kept() -> None:
    memo: LruCache[str, int] = LruCache(6, len)
    memo.get("aaa", lambda: 1)
    assert memo.get("a" * 7, lambda: 2) == 2
    assert memo.get("a" * 7, lambda: 3) == 3
    assert memo.get("aaa", lambda: 4) == 1


def test_of_two_that_are_made_at_once_the_first_stays() -> None:
    memo: LruCache[str, object] = LruCache(6, len)
    begin = Barrier(2)

    def make() -> object:
        begin.wait(60)
        return object()

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: memo.get("a", make), range(2))
    assert one is other


def test_what_fails_is_asked_again() -> None:
    memo: LruCache[str, int] = LruCache(6, len)
    with pytest.raises(ZeroDivisionError):
        memo.get("a", lambda: 1 // 0)
    assert memo.get("a", lambda: 1) == 1
