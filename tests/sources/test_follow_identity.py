"""A followed file is identified by more than its path and length: each row comes once, or an error.

The tests poll the follower (``next(0)``), so that every change happens between two polls.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cql.base.model import Field, Schema
from cql.base.types import BIGINT, STRING
from cql.catalog.files import follow
from cql.catalog.files.follow import FollowSource
from cql.errors import CatalogError
from cql.executor.protocols import Reader
from tests.support.catalog_tools import FakeClock

SCHEMA = Schema((Field("k", STRING), Field("v", BIGINT)))


def followed(path: Path, kind: str = "csv", clock: FakeClock | None = None) -> FollowSource:
    return FollowSource(
        {"path": path}, what="stream s", format=kind, declared=SCHEMA, clock=clock or FakeClock()
    )


def polled(reader: Reader) -> list[Any]:
    """The rows that are available now."""
    found: list[Any] = []
    while (block := reader.next(0)) is not None and block.batch.num_rows:
        found += [(r["k"], r["v"]) for r in block.batch.to_pylist()]
    return found


def lines(*rows: tuple[str, int], head: bool = True) -> str:
    return "k,v\n" * head + "".join(f"{k},{v}\n" for k, v in rows)


def renamed_and_made_anew(path: Path) -> None:
    path.rename(f"{path}.1")
    path.write_text(lines(("b", 2)))


def renamed_within_the_pattern(path: Path) -> None:
    path.rename(path.with_name("z.csv"))
    path.write_text(lines(("b", 2)))


def overwritten_longer(path: Path) -> None:
    path.write_text(lines(("x", 7), ("y", 8)))


def overwritten_as_long(path: Path) -> None:
    path.write_text(lines(("x", 7)))


def replaced_by_renaming(path: Path) -> None:
    other = path.with_suffix(".tmp.csv")
    hidden = other.with_name("." + other.name)
    hidden.write_text(lines(("x", 7), ("y", 8)))
    os.replace(hidden, path)


def copied_and_truncated(path: Path) -> None:
    shutil.copy(path, path.with_name(".old"))
    os.truncate(path, 0)


def copied_truncated_and_written_on(path: Path) -> None:
    copied_and_truncated(path)
    with open(path, "a") as file:
        file.write(lines(("b", 2), ("c", 3)))


@pytest.mark.parametrize(
    "change",
    [
        renamed_and_made_anew,
        renamed_within_the_pattern,
        overwritten_longer,
        overwritten_as_long,
        replaced_by_renaming,
        copied_and_truncated,
        copied_truncated_and_written_on,
    ],
    ids=lambda change: change.__name__,
)
@pytest.mark.parametrize("resumed", [False, True])
def test_a_file_that_is_no_longer_itself(
    tmp_path: Path, change: Callable[[Path], None], resumed: bool
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(lines(("a", 1)))
    source = followed(tmp_path)
    reader = source.open(["k", "v"])
    block = reader.next(0)
    assert block is not None
    assert block.batch.num_rows == 1
    assert polled(reader) == []
    change(path)
    what = r"stream s: file .*a\.csv was (overwritten or replaced|cut short)"
    with pytest.raises(CatalogError, match=what) as caught:
        polled(source.open(["k", "v"], block.offset) if resumed else reader)
    assert caught.value.hint


def test_changes_far_from_the_head(tmp_path: Path) -> None:
    """The head is unchanged and the file only longer: the bytes before the read position differ."""
    path = tmp_path / "a.csv"
    rows = [("row", 1_000_000 + i) for i in range(5_000)]
    path.write_text(lines(*rows))
    reader = followed(tmp_path).open(["k", "v"])
    assert polled(reader) == rows
    path.write_text(lines(*rows[:-1], ("row", 7_777_777), ("new", 1)))
    with pytest.raises(CatalogError, match="overwritten or replaced"):
        polled(reader)


def test_growth_by_replacement(tmp_path: Path) -> None:
    """A longer copy that is renamed over the file counts as the same file, grown."""
    path = tmp_path / "a.csv"
    path.write_text(lines(("a", 1)))
    reader = followed(tmp_path).open(["k", "v"])
    found = polled(reader)
    for number in range(2, 5):
        copy = tmp_path / ".copy"
        copy.write_text(path.read_text() + lines(("a", number), head=False))
        os.replace(copy, path)
        found += polled(reader)
    assert found == [("a", n) for n in range(1, 5)]


@pytest.mark.parametrize("link", [os.rename, os.link, os.symlink])
def test_a_file_that_was_read_under_another_name(tmp_path: Path, link: Any) -> None:
    for name, row in (("a.csv", ("a", 1)), ("b.csv", ("b", 2))):
        (tmp_path / name).write_text(lines(row))
    reader = followed(tmp_path).open(["k", "v"])
    assert polled(reader) == [("a", 1), ("b", 2)]
    link(tmp_path / "a.csv", tmp_path / "c.csv")
    with pytest.raises(CatalogError, match=r"c\.csv is .*a\.csv, already read, under another name"):
        polled(reader)


def test_an_inode_that_comes_again(tmp_path: Path) -> None:
    """A file that was read may be removed, and a new file may reuse its inode."""
    reader = followed(tmp_path).open(["k", "v"])
    for number in range(20):
        path = tmp_path / f"{number:02}.csv"
        path.write_text(lines(("a", number)))
        assert polled(reader) == [("a", number)]
        for old in sorted(tmp_path.iterdir())[:-1]:
            old.unlink()


def test_files_that_were_left_are_watched(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.csv").write_text(lines((name, 1)))
    reader = followed(tmp_path).open(["k", "v"])
    assert len(polled(reader)) == 3
    os.utime(tmp_path / "a.csv")  # a new modification time alone is no change
    assert polled(reader) == []
    (tmp_path / "a.csv").write_text(lines(("x", 1)))  # the same length as before
    with pytest.raises(CatalogError, match=r"a\.csv changed after a later file was begun"):
        polled(reader)


def test_every_offset_of_random_growth(tmp_path: Path, seed: int) -> None:
    """Lines arrive in pieces of any size; reading resumes from every offset."""
    rng = random.Random(seed)
    source, path = followed(tmp_path), tmp_path / "0.csv"
    reader = source.open(["k", "v"])
    text, found, offsets = "", [], []
    for number in range(60):
        if number % 20 == 0:
            path = tmp_path / f"{number:02}.csv"
            text = "k,v\n"
        text += f"é{number},{number}\n"
        data = text.encode()
        cut = rng.randint(0, len(data))
        if path.exists():
            cut = max(cut, path.stat().st_size)
        if number % 20 == 19:
            cut = len(data)
        with open(path, "ab") as file:
            file.write(data[file.tell() : cut])
        block = reader.next(0)
        assert block is not None
        found += [r["v"] for r in block.batch.to_pylist()]
        offsets.append((len(found), block.offset))
    while (block := reader.next(0)) is not None and block.batch.num_rows:
        found += [r["v"] for r in block.batch.to_pylist()]
    assert found == list(range(60)), f"seed {seed}"
    for count, offset in offsets[::7]:
        rest = [v for _, v in polled(source.open(["k", "v"], offset))]
        assert rest == found[count:], f"seed {seed}"


def table(*rows: tuple[str, int]) -> pa.Table:
    return pa.table({"k": [k for k, _ in rows], "v": [v for _, v in rows]})


def whole(path: Path, kind: str, *rows: tuple[str, int]) -> bytes:
    hidden = path.with_name(".whole")
    if kind == "parquet":
        pq.write_table(table(*rows), hidden)
    else:
        new = pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream
        with new(hidden, table(*rows).schema) as writer:
            writer.write_table(table(*rows))
    return hidden.read_bytes()


KINDS = ("parquet", "arrow", "arrows")


@pytest.mark.parametrize("kind", KINDS)
def test_a_half_written_file_is_waited_for(tmp_path: Path, kind: str) -> None:
    clock = FakeClock()
    form = "parquet" if kind == "parquet" else "arrow"
    (tmp_path / f"a.{kind}").write_bytes(whole(tmp_path / "a", kind, ("a", 1)))
    path = tmp_path / f"b.{kind}"
    data = whole(path, kind, ("b", 2), ("c", 3))
    reader = followed(tmp_path, form, clock).open(["k", "v"])
    assert polled(reader) == [("a", 1)]
    for size in (0, 1, 4, 8, len(data) // 2, len(data) - 9, len(data) - 1):
        path.write_bytes(data[:size])
        assert polled(reader) == []
        clock.sleep(3_600)  # without a later file, waiting has no limit
        assert polled(reader) == []
    path.write_bytes(data)
    assert polled(reader) == [("b", 2), ("c", 3)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_never_completed(tmp_path: Path, kind: str) -> None:
    clock = FakeClock()
    form = "parquet" if kind == "parquet" else "arrow"
    path = tmp_path / f"a.{kind}"
    data = whole(path, kind, ("a", 1))
    path.write_bytes(data[:20])
    reader = followed(tmp_path, form, clock).open(["k", "v"])
    (tmp_path / f"b.{kind}").write_bytes(data)
    for size in range(20, 26):  # the file grows slowly
        path.write_bytes(data[:size])
        assert polled(reader) == []
        clock.sleep(follow.PATIENCE)
    assert polled(reader) == []
    clock.sleep(1)
    with pytest.raises(CatalogError, match=rf"a\.{kind} is not complete, and has not grown for 60"):
        polled(reader)


def test_half_written_files_say_nothing_of_the_columns(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(whole(tmp_path / "a", "parquet", ("a", 1)))
    (tmp_path / "b.parquet").write_bytes(b"PAR1 half")
    source = FollowSource({"path": tmp_path}, what="s", clock=FakeClock())
    assert source.schema.names == ("k", "v")
    assert polled(source.open(["k", "v"])) == [("a", 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_file_that_changes_after_it_was_read(tmp_path: Path, kind: str) -> None:
    form = "parquet" if kind == "parquet" else "arrow"
    path = tmp_path / f"a.{kind}"
    path.write_bytes(whole(path, kind, ("a", 1)))
    source = followed(tmp_path, form)
    reader = source.open(["k", "v"])
    block = reader.next(0)
    assert block is not None
    assert polled(reader) == []
    assert polled(source.open(["k", "v"], block.offset)) == []
    hidden = tmp_path / ".new"
    hidden.write_bytes(whole(path, kind, ("a", 1), ("b", 2)))
    os.replace(hidden, path)
    for again in (reader, None):
        with pytest.raises(CatalogError, match=r"replaced|cut short"):
            polled(again or source.open(["k", "v"], block.offset))
