"""The setting ``segments``: queries over signals under each memory manager give the same, and copy
what their manager copies."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.base.settings import SETTINGS
from cql.executor import protocols
from cql.executor.operators.signals.segment_store import MANAGERS, SegmentStore
from cql.session.session import Session
from tests.support.runtimes import RUNTIMES, apply, named
from tests.support.signals.cases import random_case

QUICK, FULL = 10, 300
_SHARING = {
    "lazy": "which share the samples (XStream paper",
    "realloc": "append by realloc",
    "refcount_copy": "append by a copy",
    "copy_always": "which copy the samples",
}


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        yield made


def test_each_value_has_its_manager() -> None:
    assert list(MANAGERS) == list(SETTINGS["segments"].choices)


@pytest.mark.parametrize("value", MANAGERS)
def test_windows_are_the_same(
    value: str, session: Session, full: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(FULL if full else QUICK):
        choice = random.Random(f"managers {seed + i}")
        monkeypatch.setattr(protocols, "BLOCK_SAMPLES", choice.choice((1, 4, 30, 1000)))
        case = random_case(choice)
        case.declare(session, pushed=False)
        session.sql("RESET")
        runtime = choice.choice(RUNTIMES)
        rows, order = choice.choice((1, 3, 4096)), choice.choice(("columns", "rows"))
        apply(session, runtime, {"segments": value, "morsel_rows": rows, "sample_order": order})
        query: Any = session.sql(f"SELECT * FROM s {case.window}")
        try:
            case.check(query, query.to_arrow())
        except Exception as error:
            raise AssertionError(f"case {seed + i}, {named(runtime)}: {case}") from error


SYNC = """
    SELECT d.window_start, s.x FROM (SELECT window_start, window_end FROM s [ROWS 7 SLIDE 5]) AS d,
        s WHERE s.time >= d.window_start AND s.time < d.window_end"""

SAMPLES = np.arange(400, dtype=np.int16)


def _synced(session: Session, value: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, int]:
    """The segments of overlapping ranges, and the bytes that were copied for them."""
    stores: list[SegmentStore] = []
    made = SegmentStore.__init__

    def init(self: SegmentStore, *args: Any, **more: Any) -> None:
        made(self, *args, **more)
        stores.append(self)

    session.create_stream("s", pa.table({"x": SAMPLES}), rate=1000, replace=True)
    with monkeypatch.context() as patch:
        patch.setattr(protocols, "BLOCK_SAMPLES", 30)
        patch.setattr(SegmentStore, "__init__", init)
        session.set("segments", value)
        found = session.sql(SYNC).to_arrow().to_pylist()
    (store,) = stores
    assert store.manager is MANAGERS[value]
    return found, store.counts["copied"]


def test_each_manager_copies_what_it_says(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, copied = zip(*(_synced(session, v, monkeypatch) for v in MANAGERS), strict=True)
    windows = [list(range(first, first + 7)) for first in range(0, 394, 5)]
    for each in found:
        assert [row["x"] for row in each] == windows
    results = SAMPLES.itemsize * sum(map(len, windows))  # into the batches of the result
    lazy, realloc, refcount, always = (each - results for each in copied)
    assert lazy == 0
    assert 0 < realloc <= refcount < always


@pytest.mark.parametrize("value", MANAGERS)
def test_explain_shows_the_manager(value: str, session: Session) -> None:
    session.create_stream("s", pa.table({"x": [1, 2, 3]}), rate=1000)
    session.set("segments", value)
    assert str(session.sql(SYNC).explain()).count(_SHARING[value]) == 2


def test_a_query_without_segments_does_not_apply_it(session: Session) -> None:
    session.create_stream("s", pa.table({"x": [1, 2, 3]}), rate=1000)
    session.set("segments", "copy_always")
    shown = str(session.sql("SELECT x FROM s").explain())
    assert "not applied here: segments = copy_always" in shown
    assert "no operator makes segments of a signal" in shown
