"""Python rows as a source: types, replay, and iterables without an end."""

from __future__ import annotations

import datetime as dt
import threading
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from cql.base.model import Field, Schema
from cql.base.types import BIGINT, DATE, DOUBLE, INT, STRING, TIMESTAMP, TIMESTAMP_NTZ, decimal
from cql.catalog.memory import iterables as iterables_module
from cql.catalog.memory.iterables import IterableSource
from cql.errors import CatalogError
from tests.support.catalog_tools import (
    check_replay,
    read,
)

UTC = dt.UTC


@pytest.mark.usefixtures("small_blocks")
def test_rows_of_a_list_replay() -> None:
    rows = [{"a": i, "t": None if i % 3 else f"s{i}"} for i in range(30)]
    source = IterableSource(rows, what="s")
    assert check_replay(source) == rows
    assert read(source, ["a"], {"row": 7}) == [{"a": i} for i in range(7, 30)]


def test_callable_reopens_and_iterator_does_not() -> None:
    calls: list[int] = []

    def make() -> Any:
        calls.append(1)
        return ({"a": i} for i in range(5))

    source = IterableSource(make, what="s")
    assert read(source) == [{"a": i} for i in range(5)]
    assert calls == [1]  # the first reading continues the iterator that gave the types
    assert read(source, offset={"row": 3}) == [{"a": 3}, {"a": 4}]
    once = IterableSource(make(), what="s")
    assert len(read(once)) == 5
    with pytest.raises(CatalogError, match="read only once"):
        once.open(["a"])


def test_types_from_the_first_item() -> None:
    item = {
        "i": 1,
        "f": 1.5,
        "s": "x",
        "t": dt.datetime(2024, 1, 1, tzinfo=UTC),
        "n": dt.datetime(2024, 1, 1),
        "d": Decimal("1.25"),
    }
    source = IterableSource(iter([item]), what="s")
    kinds = [f.type for f in source.schema]
    assert kinds == [BIGINT, DOUBLE, STRING, TIMESTAMP, TIMESTAMP_NTZ, decimal(3, 2)]
    assert read(source) == [item]


@pytest.mark.parametrize(
    ("value", "column", "message"),
    [
        (1.5, Field("a", BIGINT), r"row 2, column a: 1.5 \(float\) is not a bigint"),
        ("1", Field("a", BIGINT), r"row 2, column a: '1' \(str\) is not a bigint"),
        (2**40, Field("a", INT), r"row 2, column a: 1099511627776 does not fit int32"),
        (2**70, Field("a", BIGINT), r"row 2, column a: 1180591620717411303424"),
        (None, Field("a", BIGINT, False), r"row 2, column a: NULL"),
        (True, Field("a", BIGINT), r"row 2, column a: True \(bool\) is not a bigint"),
        (object(), Field("a", BIGINT), r"row 2, column a: <object"),
    ],
)
def test_bad_values_name_row_and_column(value: Any, column: Field, message: str) -> None:
    rows = [{"a": 1}, {"a": 2}, {"a": value}]
    source = IterableSource(rows, what="s", declared=Schema((column,)))
    with pytest.raises(CatalogError, match=message):
        read(source)


def test_mixed_python_types_are_not_bent() -> None:
    naive, aware = dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, tzinfo=UTC)
    for first, second, kind in [
        (aware, naive, TIMESTAMP),
        (naive, aware, TIMESTAMP_NTZ),
        ("x", b"y", STRING),
        (dt.date(2024, 1, 1), naive, DATE),
        (1, True, BIGINT),
    ]:
        schema = Schema((Field("v", kind),))
        with pytest.raises(CatalogError, match="row 1, column v"):
            read(IterableSource([{"v": first}, {"v": second}], what="s", declared=schema))
    schema = Schema((Field("v", decimal(9, 2)),))
    mixed = [{"v": 1}, {"v": Decimal("1.5")}, {"v": None}]
    rows = read(IterableSource(mixed, what="s", declared=schema))
    assert [r["v"] for r in rows] == [Decimal("1.00"), Decimal("1.50"), None]


def test_shapes_of_rows() -> None:
    schema = Schema((Field("a", BIGINT), Field("b", STRING)))
    assert read(IterableSource([(1, "x"), (2, None)], what="s", declared=schema))[1]["b"] is None
    with pytest.raises(CatalogError, match="row 1: 1 values for 2 columns"):
        read(IterableSource([(1, "x"), (2,)], what="s", declared=schema))
    with pytest.raises(CatalogError, match="row 1: unknown column aa"):
        read(IterableSource(iter([{"a": 1}, {"aa": 2}]), what="s"))
    with pytest.raises(CatalogError, match="without column names"):
        IterableSource([(1, 2)], what="s")
    with pytest.raises(CatalogError, match="NULL in the first item"):
        IterableSource(iter([{"a": None}]), what="s")
    with pytest.raises(CatalogError, match="empty"):
        IterableSource([], what="s")


def test_batches_and_rows_mixed() -> None:
    items = [pa.record_batch({"a": [1, 2]}), {"a": 3}, pa.table({"a": pa.array([4], pa.int8())})]
    source = IterableSource(iter(items), what="s", declared=Schema((Field("a", BIGINT),)))
    assert read(source) == [{"a": i} for i in (1, 2, 3, 4)]


def test_errors_of_the_generator_surface() -> None:
    def broken() -> Any:
        yield {"a": 1}
        raise KeyError("sensor")

    for bounded in (True, False):
        source = IterableSource(broken, what="stream s", bounded=bounded)
        reader = source.open(["a"])
        with pytest.raises(CatalogError, match="after row 1: KeyError: 'sensor'"):
            list(iter(lambda r=reader: r.next(timeout=10), None))
        reader.close()


def test_blocking_generator_does_not_block_next() -> None:
    gate, closed = threading.Event(), threading.Event()

    def slow() -> Any:
        try:
            yield {"a": 1}
            gate.wait()
            yield {"a": 2}
            yield {"a": 3}
        finally:
            closed.set()

    source = IterableSource(slow, what="s", declared=Schema((Field("a", BIGINT),)), bounded=False)
    reader = source.open(["a"])
    first = reader.next(timeout=10)
    assert first is not None
    assert first.batch.num_rows == 1
    idle = reader.next(timeout=0.01)
    assert idle is not None
    assert (idle.batch.num_rows, idle.offset) == (0, {"row": 1})
    gate.set()
    rows = []
    while (block := reader.next(timeout=10)) is not None:
        rows += block.batch.to_pylist()
    assert rows == [{"a": 2}, {"a": 3}]
    reader.close()
    assert closed.wait(60)


def test_live_iterable_stays_bounded_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iterables_module, "AHEAD", 4)
    made: list[int] = []

    def endless() -> Any:
        i = 0
        while True:
            made.append(i)
            yield (i,)
            i += 1

    source = IterableSource(
        endless, what="s", declared=Schema((Field("a", BIGINT),)), bounded=False
    )
    reader = source.open(["a"])
    block = reader.next(timeout=10)
    assert block is not None
    got = block.batch.num_rows
    assert got + 4 + 2 >= len(made)
    reader.close()


def test_live_batches_stay_bounded_ahead_in_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread makes no further batch once ROWS_AHEAD rows are waiting."""
    monkeypatch.setattr(iterables_module, "ROWS_AHEAD", 1_000)
    made = 0

    def endless() -> Any:
        nonlocal made
        while True:
            made += 100
            yield pa.record_batch({"a": range(made - 100, made)})

    source = IterableSource(endless, what="s", bounded=False)
    reader = source.open(["a"])
    got: list[int] = []
    while len(got) < 5_000:
        block = reader.next(timeout=10)
        assert block is not None
        got += block.batch.column(0).to_pylist()
        assert made - len(got) <= 1_000 + 100
    assert got == list(range(len(got)))
    reader.close()
