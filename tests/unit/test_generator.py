"""The rate generator: every row depends only on its number and the seed."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from cql.base.model import Field, Schema
from cql.base.types import BIGINT
from cql.catalog import blocks as blocks_module
from cql.catalog.memory.generator import RateSource
from cql.catalog.options import Options, parse_duration
from cql.errors import CatalogError
from cql.executor.protocols import BLOCK_ROWS
from tests.support.catalog_tools import FakeClock, check_replay, drain, plain, read

ALL = "ts, seq, key, name, value, amount"


def rate(clock: FakeClock | None = None, **options: Any) -> RateSource:
    return RateSource(options, what="stream r", clock=clock)


def test_defaults_and_columns() -> None:
    source = rate(pace="false")
    assert not source.bounded
    assert source.schema.names == ("ts", "key", "value")
    block = source.open(["ts", "key"]).next()
    assert block is not None
    assert block.batch.num_rows == BLOCK_ROWS
    assert block.batch.column(0)[0].as_py() == dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    everything = rate(rows="5", columns=ALL, seed=3)
    rows = read(everything)
    assert [r["seq"] for r in rows] == [0, 1, 2, 3, 4]
    assert all(r["name"] == f"key_{r['key']}" for r in rows)
    assert all(0 <= r["value"] < 1 and 0 <= r["amount"] < 1000 for r in rows)
    assert rows[1]["ts"] - rows[0]["ts"] == dt.timedelta(milliseconds=1)
    assert everything.statistics().rows == 5


def test_replays_and_differs_by_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks_module, "BLOCK_ROWS", 64)
    options = {"rows": 1000, "columns": ALL, "disorder": 0.3, "max_delay": "2 s", "skew": 1.1}
    assert check_replay(rate(**options)) == read(rate(**options))
    assert read(rate(**options)) != read(rate(**options, seed=1))
    columns = [f.name for f in rate(**options).schema]
    alone = [{"key": r["key"]} for r in read(rate(**options), columns)]
    assert read(rate(**options), ["key"]) == alone


def test_skew_follows_zipf() -> None:
    counts = Counter(r["key"] for r in read(rate(rows=60_000, keys=20, skew=1.0), ["key"]))
    total = sum(1 / (k + 1) for k in range(20))
    for key in (0, 1, 9, 19):
        assert counts[key] / 60_000 == pytest.approx(1 / (key + 1) / total, rel=0.1)
    even = Counter(r["key"] for r in read(rate(rows=60_000, keys=20), ["key"]))
    assert len(even) == 20
    assert max(even.values()) < 1.15 * min(even.values())


def test_disorder_stays_within_its_bound() -> None:
    options = {"rows": 20_000, "rows_per_second": 100, "disorder": 0.25, "max_delay": "3 seconds"}
    times = [r["ts"] for r in read(rate(**options), ["ts"])]
    late = sum(a > b for a, b in pairwise(times))
    assert late > 1000
    latest = times[0]
    worst = dt.timedelta()
    for time in times:
        latest = max(latest, time)
        worst = max(worst, latest - time)
    assert dt.timedelta(seconds=2.9) < worst <= dt.timedelta(seconds=3)


def test_punctuation_is_true() -> None:
    source = rate(rows=200_000, disorder=0.5, max_delay="1 s", punctuation=True)
    blocks = drain(source.open(["ts"]))
    for i, block in enumerate(blocks[:-1]):
        ((column, bound),) = block.punctuation
        assert column == "ts"
        later = min(b.batch.column(0).cast("int64").to_numpy().min() for b in blocks[i + 1 :])
        assert bound <= later
    assert drain(rate(rows=10).open(["ts"]))[0].punctuation == ()


def test_exact_times_at_odd_rates_and_far_rows() -> None:
    source = rate(rows_per_second="0.3", start=0, pace="false")
    far = 10**12
    block = source.open(["ts"], {"row": far}).next()
    assert block is not None
    assert block.batch.column(0).cast("int64")[0].as_py() == far * 10_000_000 // 3


def test_endless_rows_are_paced() -> None:
    clock = FakeClock()
    reader = rate(clock, rows_per_second=10).open(["ts"])
    clock.time = 1.0
    block = reader.next()
    assert block is not None
    assert block.batch.num_rows == 10


def test_paced_by_the_clock() -> None:
    clock = FakeClock()
    source = rate(clock, rows=25, rows_per_second=10, pace="true", columns="seq")
    reader = source.open(["seq"])
    early = reader.next(timeout=0.05)
    assert early is not None
    assert early.batch.num_rows == 0
    clock.time = 1.0
    block = reader.next()
    assert block is not None
    assert block.batch.num_rows == 10
    seen = block.batch.num_rows
    while (block := reader.next()) is not None:
        seen += block.batch.num_rows
        assert seen <= clock.now() * 10 + 1e-6
    assert seen == 25
    assert clock.now() == pytest.approx(2.5)


def test_declared_columns_and_dictionary_names() -> None:
    source = RateSource({"rows": 3}, what="r", declared=Schema((Field("seq", BIGINT),)))
    assert read(source) == [{"seq": 0}, {"seq": 1}, {"seq": 2}]
    (block,) = drain(rate(rows=100, columns="name").open(["name"]))
    assert len(set(plain(block.batch).column(0).to_pylist())) == 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows_per_sec": 1}, "no option rows_per_sec\n.*rows_per_second"),
        ({"rows": -1}, "whole number from 0"),
        ({"rows": "many"}, "whole number"),
        ({"rows_per_second": 0}, "a number from 0.001"),
        ({"disorder": 0.5}, "belong together"),
        ({"disorder": 2, "max_delay": "1 s"}, "a number from 0 to 1"),
        ({"disorder": 1, "max_delay": "soon"}, "a duration"),
        ({"columns": "ts, vlaue"}, "no column vlaue\n.*value"),
        ({"keys": 0}, "whole number from 1"),
        ({"start": "yesterday"}, "a time such as"),
        ({"pace": "maybe"}, "true or false"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(CatalogError, match=f"(?s){message}"):
        rate(**options)


def test_durations() -> None:
    assert parse_duration("1.5 min") == 90_000_000
    assert parse_duration("250ms") == 250_000
    assert parse_duration("2 Days") == 2 * 86_400_000_000
    assert parse_duration("10 us") == 10
    assert parse_duration("5") == parse_duration("x s") == parse_duration("1 month") == -1
    assert Options({"d": dt.timedelta(seconds=2)}, "x").duration("d") == 2_000_000
