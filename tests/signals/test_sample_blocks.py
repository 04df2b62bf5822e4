"""Signals whose rows are blocks of samples: the samples are those of the same signal with a row for
each of them, however the blocks are cut."""

from __future__ import annotations

import datetime as dt
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cql
from cql.catalog.local import LocalCatalog
from cql.errors import CqlError
from cql.planner.nodes.catalog import Progress, StreamSpec
from cql.session.session import Session
from tests.support.catalog_tools import check_replay

RATE = 44_100
WINDOWS = """
    SELECT window_start, a AS samples, max(b) AS highest FROM {} [ROWS 300 SLIDE 200 WITH RESTS]
"""
GAPS = "SELECT gap_start, gap_end, missing FROM GAPS({})"


def _tables(seed: int) -> tuple[pa.Table, pa.Table]:
    """The same samples as blocks, and one in each row."""
    choice = random.Random(seed)
    kind = choice.choice([pa.list_(pa.int16()), pa.large_list(pa.int16()), pa.list_(pa.int16())])
    starts, times = list[int](), list[int]()
    blocks: tuple[list[Any], list[Any]] = ([], [])
    flat: tuple[list[int | None], list[int | None]] = ([], [])
    at = Fraction(choice.randrange(10**6))
    for _ in range(choice.randrange(1, 40)):
        length = choice.choice([0, 1, 7, 100, 1000])
        starts.append(round(at))
        for channel, samples in zip(blocks, flat, strict=True):
            values: list[int | None] = [choice.randrange(-999, 999) for _ in range(length)]
            if length and choice.random() < 0.2:
                values[choice.randrange(length)] = None
            lacks = choice.random() < 0.1 and channel is blocks[1]
            channel.append(None if lacks else values)
            samples += [None] * length if lacks else values
        times += [starts[-1] + round(Fraction(k * 10**6, RATE)) for k in range(length)]
        at += Fraction(length * 10**6, RATE) + (
            choice.randrange(10**5) if choice.random() < 0.1 else 0
        )
    stamp = pa.timestamp("us")
    return (
        pa.table(
            {
                "at": pa.array(starts, stamp),
                "a": pa.array(blocks[0], kind),
                "b": pa.array(blocks[1], kind),
            }
        ),
        pa.table(
            {
                "at": pa.array(times, stamp),
                "a": pa.array(flat[0], pa.int16()),
                "b": pa.array(flat[1], pa.int16()),
            }
        ),
    )


@pytest.fixture(scope="module")
def session() -> Any:
    with cql.connect(spark=False) as made:
        yield made


@pytest.mark.parametrize("seed", range(12))
def test_blocks_are_the_samples_in_them(session: Session, seed: int, tmp_path: Path) -> None:
    blocks, samples = _tables(seed)
    session.create_stream("flat", samples, ordered_by="at", rate=RATE, replace=True)
    path = tmp_path / "blocks.parquet"
    pq.write_table(blocks, path, row_group_size=5)
    batches = blocks.to_batches(max_chunksize=3)
    for data in (blocks, path, batches):
        session.create_stream("whole", data, ordered_by="at", rate=RATE, replace=True)
        for text in (WINDOWS, GAPS, "SELECT * FROM {}", "SELECT count(*) AS n FROM {}"):
            found = session.sql(text.format("whole")).to_arrow()
            assert found.equals(session.sql(text.format("flat")).to_arrow())


def test_a_reader_goes_on_from_every_offset() -> None:
    blocks, samples = _tables(3)
    unlike = pa.table({"at": [blocks["at"][0]], "a": [[1, 2]], "b": [[1]]})
    table = pa.concat_tables([blocks, unlike.cast(blocks.schema), blocks])
    catalog = LocalCatalog()
    spec = StreamSpec(progress=(Progress("at", declared="ORDERED BY at"),), rate_hz=RATE)
    catalog.register(("whole",), table, spec=spec)
    relation = catalog.find(("whole",))
    assert relation is not None
    assert len(check_replay(relation.source())) == 2 * len(samples)


def test_a_row_with_unlike_channels_is_bad(session: Session) -> None:
    table = pa.table(
        {
            "at": pa.array([0, 1_000_000, 2_000_000], pa.timestamp("us")),
            "a": [[1, 2], [3], [4, 5]],
            "b": [[1, 2], [3, 4], [5, 6]],
        }
    )
    session.register_table("unlike", table)
    session.sql("CREATE STREAM fails FROM TABLE unlike ORDERED BY at RATE 2 HZ")
    with pytest.raises(CqlError, match="different numbers of samples: 1 in a, 2 in b"):
        session.sql("SELECT a, b FROM fails").to_arrow()
    session.sql("CREATE STREAM goes FROM TABLE unlike ORDERED BY at RATE 2 HZ ON BAD ROW KEEP")
    query = session.sql("SELECT a, b FROM goes")
    assert query.to_arrow()["a"].to_pylist() == [1, 2, 4, 5]
    assert [(b["offset"], b["text"]) for b in query.bad_rows().to_pylist()] == [
        (2, "{'a': [3], 'b': [3, 4]}")
    ]


def test_columns_beside_the_channels_are_those_of_the_row(session: Session) -> None:
    at = pa.array([0, 1_500_000], pa.timestamp("us"))
    table = pa.table({"at": at, "a": [[1, 2, 3], [4]], "who": ["x", None]})
    session.create_stream("whole", table, ordered_by="at", rate=2, replace=True)
    assert session.sql("SELECT who, a FROM whole").to_arrow().to_pylist() == [
        {"who": who, "a": k} for who, k in zip(["x", "x", "x", None], [1, 2, 3, 4], strict=True)
    ]
    kinds = session.sql("DESCRIBE whole").to_arrow().to_pylist()
    assert [(k["column"], k["type"]) for k in kinds][:2] == [
        ("at", "timestamp_ntz"),
        ("a", "bigint"),
    ]


def test_computed_columns_are_of_each_sample(session: Session, seed: int) -> None:
    blocks, flat = _tables(seed + 3)
    found = []
    for name, table, kind in (
        ("mixed", blocks, "ARRAY<SMALLINT>"),
        ("mixed_rows", flat, "SMALLINT"),
    ):
        session.register_table(f"{name}_of", table)
        session.sql(f"CREATE STREAM {name} (at TIMESTAMP_NTZ, a {kind}, mean AS (a + b) / 2,"
                    f" b {kind}) FROM TABLE {name}_of ORDERED BY at RATE {RATE} HZ")  # fmt: skip
        rows: Any = session.sql(f"SELECT * FROM {name}")
        windows: Any = session.sql(f"SELECT mean FROM {name} [ROWS 100 SLIDE 100 WITH RESTS]")
        found.append((rows.to_arrow(), windows.to_arrow()))
    assert found[0] == found[1]
    assert found[0][0].column_names == ["at", "a", "mean", "b"]
    with pytest.raises(CqlError, match=r"\+ does not take array"):
        session.sql("CREATE STREAM c (at TIMESTAMP_NTZ, a ARRAY<SMALLINT>, b ARRAY<SMALLINT>,"
                    " d AS a + b) FROM TABLE mixed_of ORDERED BY at")  # fmt: skip
    with pytest.raises(CqlError, match="later, which is computed, as the time of rows that are"):
        session.sql("CREATE STREAM c (later AS at + INTERVAL 1 SECOND) FROM TABLE mixed_of"
                    f" ORDERED BY later RATE {RATE} HZ")  # fmt: skip


def test_pushed_blocks(session: Session) -> None:
    session.sql("CREATE STREAM live (at TIMESTAMP, a ARRAY<SMALLINT>) ORDERED BY at RATE 4 HZ")
    for k in range(3):
        at = dt.datetime(2024, 1, 1, 0, 0, k, tzinfo=dt.UTC)
        session.push("live", [{"at": at, "a": [k, 1, 2, 3]}])
    with pytest.raises(CqlError, match=r"5 \(int\) is not an array<smallint>"):
        session.push("live", [{"at": at, "a": 5}])
    session.sql("INSERT INTO live SELECT TIMESTAMP '2024-01-01 00:00:03', array(9, 1, 1, 1)")
    session.end("live")
    found = session.sql("SELECT sum(a) AS s FROM live [ROWS 4 SLIDE 4]").to_arrow()
    assert found["s"].to_pylist() == [6, 7, 8, 12]


def test_segments_in_a_table_are_a_signal_again(session: Session) -> None:
    wave = np.random.default_rng(1).integers(-9, 9, 10_000).astype(np.int16)
    session.create_stream("audio", pa.table({"ch0": wave}), rate=8000, replace=True)
    session.sql("""
        CREATE TABLE kept AS
        SELECT window_start AS start, ch0 FROM audio [ROWS 1024 SLIDE 1024 WITH RESTS]
    """)
    session.sql("CREATE STREAM again FROM TABLE kept ORDERED BY start RATE 8000 HZ")
    assert session.sql("SELECT ch0 FROM again").to_arrow()["ch0"].to_pylist() == wave.tolist()
    windows = "SELECT stddev(ch0) AS s, window_start FROM {} [ROWS 500 SLIDE 250]"
    found = session.sql(windows.format("again")).to_arrow()
    assert found.equals(session.sql(windows.format("audio")).to_arrow())
    session.sql("CREATE TABLE wide (start TIMESTAMP, w ARRAY<DOUBLE>)")
    session.sql("INSERT INTO wide SELECT window_start, ch0 FROM again [ROWS 100 SLIDE 100]")
    assert session.sql("SELECT w FROM wide").to_arrow()["w"][7].as_py() == wave[700:800].tolist()
