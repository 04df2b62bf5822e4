"""Growing files are read in the order of their names, without end."""

from __future__ import annotations

from pathlib import Path

import pytest

from cql.base.model import Field, Schema
from cql.base.types import BIGINT, INT, STRING
from cql.catalog.files.follow import FollowSource
from cql.errors import CatalogError
from tests.support.catalog_tools import (
    FakeClock,
    sample,
    write,
)


def append(path: Path, text: str) -> None:
    with open(path, "a") as file:
        file.write(text)


def test_follow_reads_appended_complete_lines(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "1.csv"
    path.write_text("a,b\n1,x\n2,y\n3,")
    declared = Schema((Field("a", BIGINT), Field("b", STRING)))
    source = FollowSource(
        {"path": tmp_path}, what="s", format="csv", declared=declared, clock=clock
    )
    assert not source.bounded
    reader = source.open(["a"])
    block = reader.next(timeout=1)
    assert block is not None
    assert block.batch.to_pylist() == [{"a": 1}, {"a": 2}]
    clock.events = [
        (clock.now() + 1, lambda: append(path, "z\n4,q\n")),
        (clock.now() + 3, lambda: (tmp_path / "2.csv").write_text("a,b\n5,m\n")),
        (clock.now() + 3, lambda: append(path, "6,last")),
    ]
    rows, offsets = [], [block.offset]
    for _ in range(20):
        block = reader.next(timeout=1)
        assert block is not None
        rows += [r["a"] for r in block.batch.to_pylist()]
        offsets.append(block.offset)
    assert rows == [3, 4, 6, 5]
    for offset in offsets:
        again = source.open(["a"], offset)
        rest: list[int] = []
        while (more := again.next(timeout=0)) is not None and more.batch.num_rows:
            rest += [r["a"] for r in more.batch.to_pylist()]
        assert rest == [1, 2, 3, 4, 6, 5][offset["row"] :]
    append(tmp_path / "1.csv", "7,late\n")
    (tmp_path / "3.csv").write_text("a,b\n")
    with pytest.raises(CatalogError, match=r"1.csv changed after a later file was begun"):
        reader.next(timeout=1)


@pytest.mark.usefixtures("small_blocks")
def test_follow_offsets_within_a_chunk(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_text("".join(f'{{"a": {i}}}\n' for i in range(30)))
    source = FollowSource({"path": tmp_path, "poll": "1 s"}, what="s", clock=FakeClock())
    reader = source.open(["a"])
    for expected in range(8, 31, 8):
        block = reader.next(timeout=0)
        assert block is not None
        again = source.open(["a"], block.offset).next(timeout=0)
        assert again is not None
        rest = [r["a"] for r in again.batch.to_pylist()]
        assert rest == list(range(block.offset["row"], min(block.offset["row"] + 8, 30)))
        assert block.offset["row"] == min(expected, 30)


def test_follow_whole_files_in_name_order(tmp_path: Path) -> None:
    clock = FakeClock()
    write(sample(3), tmp_path / "1.parquet", "parquet")
    source = FollowSource({"path": tmp_path}, what="s", clock=clock)
    reader = source.open(["n"])
    first = reader.next(timeout=1)
    assert first is not None
    assert first.batch.num_rows == 3
    write(sample(2), tmp_path / "2.parquet", "parquet")
    second = reader.next(timeout=1)
    assert second is not None
    assert second.batch.num_rows == 2
    write(sample(2), tmp_path / "0.parquet", "parquet")
    with pytest.raises(CatalogError, match=r"0.parquet appeared after .*2.parquet"):
        reader.next(timeout=1)


def test_follow_refuses_what_cannot_grow(tmp_path: Path) -> None:
    path = tmp_path / "1.csv"
    path.write_text("a\n1\n")
    with pytest.raises(CatalogError, match="multiline"):
        FollowSource({"path": path, "multiline": True}, what="s")
    reader = FollowSource({"path": path}, what="s", clock=FakeClock()).open(["a"])
    assert reader.next(timeout=0) is not None
    path.write_text("a\n")
    with pytest.raises(CatalogError, match="cut short"):
        reader.next(timeout=0)
    append(path, "x\n")
    declared = Schema((Field("a", INT),))
    source = FollowSource({"path": path}, what="s", declared=declared, clock=FakeClock())
    block = source.open(["a"]).next(timeout=0)
    assert block is not None
    assert [b.reason for b in block.bad] == [f"file {path}, line 2: column a: 'x' is not an int"]
