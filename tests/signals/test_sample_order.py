"""The setting ``sample_order``: samples in rows give the same as samples in columns, and functions
that go over rows bring no samples together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.executor.operators.signals.segment_store import SegmentStore
from cql.session.session import Session
from tests.support.runtimes import RUNTIMES, apply, named

ROWS = 600
KINDS = ("int8", "int16", "int32", "int64", "float32", "float64")
FUNCTIONS = (
    "{x}",
    "avg({x})",
    "stddev({x})",
    "min({x})",
    "sum({x})",
    "peak({x})",
    "{x}[3]",
    "dot({x}, {y})",
    "delay({x}, {y}, 5)",
    "{x} * 0.5 - {y}",
    "subseg({x}, 3, 9)",
    "resample({x}, 3, 2)",
    "power_spectrum({x})",
    "haarwavelet({x}, 3)",
    "band_energy({x}, 1)",
)


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        random = np.random.default_rng(7)
        columns = {k: random.integers(-100, 100, ROWS).astype(k) for k in KINDS}
        made.create_stream("s", pa.table(columns), rate=1000)
        made.sql("CREATE VIEW w AS SELECT int16, float32 FROM s [ROWS 7 SLIDE 5]")
        yield made


def _results(session: Session, order: str, text: str) -> list[dict[str, Any]]:
    session.set("sample_order", order)
    found: list[dict[str, Any]] = session.sql(text).to_arrow().to_pylist()
    return found


@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
def test_functions_give_the_same(settings: dict[str, Any], session: Session) -> None:
    """Of windows that overlap, so that functions read some samples in rows and some brought
    together."""
    apply(session, settings, {"morsel_rows": 50})
    pairs = list(zip(KINDS, KINDS[1:] + KINDS[:1], strict=True))
    calls = [f.format(x=x, y=y) for x, y in pairs for f in FUNCTIONS]
    named = ", ".join(f"{call} AS c{k}" for k, call in enumerate(calls))
    text = f"SELECT window_start, {named} FROM s [ROWS 96 SLIDE 40]"
    found = _results(session, "rows", text)
    assert len(found) == 13
    assert found == _results(session, "columns", text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM s",
        "SELECT max(int16) AS z FROM CONCAT(w) AS c [ROWS 9 SLIDE 9]",
        "SELECT avg(a.int16) AS m, avg(a.float64) AS f FROM (SELECT window_start, window_end FROM s"
        " [ROWS 7 SLIDE 5]) AS d, s AS a WHERE a.time BETWEEN d.window_start AND d.window_end",
    ],
)
def test_operators_give_the_same(session: Session, text: str) -> None:
    found = _results(session, "rows", text)
    assert found
    assert found == _results(session, "columns", text)


def _copied(session: Session, monkeypatch: pytest.MonkeyPatch, text: str) -> int:
    """The bytes that the store copied under the order of rows."""
    stores = list[SegmentStore]()
    made = SegmentStore.__init__

    def init(self: SegmentStore, *args: Any, **more: Any) -> None:
        made(self, *args, **more)
        stores.append(self)

    with monkeypatch.context() as patch:
        patch.setattr(SegmentStore, "__init__", init)
        assert _results(session, "rows", text)
    (store,) = stores
    assert store.by_rows
    return store.counts["copied"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_wavelet_goes_over_rows(
    kind: str, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = KINDS[KINDS.index(kind) - 1]
    window = "FROM s [ROWS 96 SLIDE 96]"
    bands = [f"band_energy(haarwavelet({k}, 2), 1) AS e{k}" for k in (kind, other)]
    assert _copied(session, monkeypatch, f"SELECT {', '.join(bands)} {window}") == 0
    text = f"SELECT avg({kind}) AS m, {bands[1]} {window}"
    assert _copied(session, monkeypatch, text) == 6 * 96 * np.dtype(kind).itemsize


def test_the_plan_says_it(session: Session) -> None:
    session.set("sample_order", "rows")
    assert "which share the samples in rows" in str(session.sql("EXPLAIN SELECT * FROM w"))
