"""The files that a path stands for: folders, patterns, links, and paths that are no files."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from cql.catalog.files import listing
from cql.catalog.files.follow import FollowSource
from cql.catalog.files.listing import list_files
from cql.catalog.files.source import FileSource
from cql.errors import CatalogError
from tests.support.catalog_tools import FakeClock, read


def files(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("v\n1\n")


def found(root: Path, pattern: str = "") -> list[str]:
    path = os.path.join(root, pattern) if pattern else str(root)
    return [os.path.relpath(f.path, root) for f in list_files([path], "stream s")]


@pytest.mark.parametrize(
    "pattern", ["", "**", "**/*.csv", "**/*", "**/**/*.csv", "*", "**/x.csv", "[xb]*"]
)
def test_links_to_the_folder_itself(tmp_path: Path, pattern: str) -> None:
    files(tmp_path, "x.csv", "b/x.csv")
    for link in ("a", "b/up", "c"):
        (tmp_path / link).symlink_to(tmp_path, target_is_directory=True)
    expected = ["b/x.csv", "x.csv"]
    if pattern == "*":  # matches the links, and each link is a folder
        expected = sorted([*expected, "a/b/x.csv", "a/x.csv", "c/b/x.csv", "c/x.csv"])
    assert found(tmp_path, pattern) == expected


def test_patterns(tmp_path: Path) -> None:
    files(tmp_path, "a/1.csv", "a/b/2.csv", "a/b/c/3.csv", "d/4.txt", "_h/5.csv", "a/.6.csv")
    files(tmp_path, "k=_1/7.csv", "_k=1/8.csv", "we[i]rd.csv")
    csv = ["_k=1/8.csv", "a/1.csv", "a/b/2.csv", "a/b/c/3.csv", "k=_1/7.csv", "we[i]rd.csv"]
    assert found(tmp_path, "**/*.csv") == csv
    assert found(tmp_path) == sorted([*csv, "d/4.txt"])
    assert found(tmp_path, "a/**/c/*.csv") == found(tmp_path, "**/c") == ["a/b/c/3.csv"]
    assert found(tmp_path, "a/**/**/b/**/3.csv") == ["a/b/c/3.csv"]
    assert found(tmp_path, "?/[0-3].csv") == ["a/1.csv"]
    assert found(tmp_path, "*/./1.csv") == ["a/./1.csv".replace("./", "")]
    assert found(tmp_path, "we[i]rd.csv") == ["we[i]rd.csv"]
    assert found(tmp_path, "*/_h/*.csv") == found(tmp_path, "nowhere/*.csv") == []
    assert found(tmp_path, "a/1.csv/*.csv") == []
    (tmp_path / "link").symlink_to("a/b", target_is_directory=True)
    assert found(tmp_path, "link") == found(tmp_path, "l*") == ["link/2.csv", "link/c/3.csv"]
    assert found(tmp_path, "**/2.csv") == ["a/b/2.csv"]
    (tmp_path / "d" / "file.csv").symlink_to(tmp_path / "a" / "1.csv")
    assert found(tmp_path, "d/*.csv") == ["d/file.csv"]


def test_relative_patterns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files(tmp_path, "1.csv", "k=2/1.csv")
    monkeypatch.chdir(tmp_path)
    names = [(f.path, dict(f.partitions)) for f in list_files(["*.csv", "k=*", "**/1.csv"], "s")]
    assert names == [("1.csv", {}), ("k=2/1.csv", {"k": "2"})]
    with pytest.raises(CatalogError, match=r"no file or folder nope\n.*relative to"):
        list_files(["nope"], "s")


def test_deep_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders are nested deeper than Python's recursion limit."""
    monkeypatch.chdir(tmp_path)
    deep = "/".join(["d"] * 1_200)
    for depth in range(1, 1_201):
        os.mkdir(deep[: 2 * depth - 1])
    Path(deep, "x.csv").write_text("v\n1\n")
    assert len(list_files(["."], "s")) == len(list_files(["**/x.csv"], "s")) == 1
    Path(deep, "x.csv").unlink()
    os.removedirs(deep)  # pytest's own clean-up is recursive


@pytest.mark.parametrize("place", ["x.csv", "below/x.csv", "link.csv"])
@pytest.mark.parametrize("kind", ["a FIFO", "a socket", "a device"])
def test_what_is_no_file_is_refused(tmp_path: Path, kind: str, place: str) -> None:
    """Opening a FIFO would block until a writer opens it."""
    files(tmp_path, "a.csv", "below/b.csv")
    odd = tmp_path / ("other" if place == "link.csv" else place)
    if kind == "a FIFO":
        os.mkfifo(odd)
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as one:
            directory = os.open(odd.parent, os.O_RDONLY)
            one.bind(f"/proc/self/fd/{directory}/{odd.name}")  # a socket's path must be short
            os.close(directory)
    else:
        odd.symlink_to("/dev/zero")
    if place == "link.csv":
        (tmp_path / place).symlink_to(odd)
    patterns = ["", "**/*.csv", place] if place != "link.csv" else ["*.csv", place]
    for pattern in patterns:
        path = str(tmp_path / pattern)
        with pytest.raises(CatalogError, match=rf"csv is {kind}, and only files") as caught:
            FileSource({"path": path, "format": "csv"}, what="stream s")
        assert "pattern" in (caught.value.hint or "")
    assert read(FileSource({"path": tmp_path / "a.csv"}, what="s")) == [{"v": 1}]


def test_a_fifo_that_appears_in_a_followed_folder(tmp_path: Path) -> None:
    files(tmp_path, "1.csv")
    reader = FollowSource({"path": tmp_path}, what="s", clock=FakeClock()).open(["v"])
    block = reader.next(timeout=0)
    assert block is not None
    assert block.batch.num_rows == 1
    os.mkfifo(tmp_path / "2.csv")
    with pytest.raises(CatalogError, match=r"2.csv is a FIFO"):
        reader.next(timeout=0)


def test_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    files(tmp_path, "1.csv")
    (tmp_path / "2.csv").symlink_to(tmp_path / "gone.csv")
    for pattern in ("", "*.csv", "2.csv"):
        with pytest.raises(CatalogError, match=r"the link .*2.csv leads nowhere"):
            list_files([str(tmp_path / pattern)], "s")


def test_a_file_that_vanishes_while_it_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files(tmp_path, "1.csv")
    monkeypatch.setattr(listing, "_is_file", lambda path, what: False)
    with pytest.raises(CatalogError, match=r"there is no file or folder .*1.csv"):
        found(tmp_path, "1.csv")
    assert found(tmp_path, "*.csv") == []


def test_a_folder_that_may_not_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files(tmp_path, "a/1.csv")
    real = os.scandir

    def scandir(path: str) -> Any:
        if path.endswith("a"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    for pattern in ("", "**/*.csv", "*/*.csv"):
        with pytest.raises(CatalogError, match=r"folder .*/a cannot be listed: Permission"):
            list_files([str(tmp_path / pattern)], "s")
