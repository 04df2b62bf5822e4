"""Publishes files into a table's folder, a whole epoch at a time.

Files are written in ``_staging-<uuid>`` (Spark, Hive and Arrow skip names that begin with ``_``).
Replacing ``_cql/epoch.json``, which lists the renames that publish an epoch, commits the epoch; the
renames follow. The next writer that opens the folder finishes the renames that a crash left undone,
so that no epoch stays half published. One rename (the usual case) is atomic for readers too.

An epoch may also replace files: it lists the files to remove, which follows its renames.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from cql.errors import CatalogError

STAGING = "_staging-"
_FOLDER = "_cql"
#: The formats of the record: epochs that only add files, and those that replace some or have notes.
_FORMAT, _REPLACING = 1, 2


@dataclass(frozen=True, slots=True)
class Epoch:
    """The last committed epoch: its renames (from, to; below the table's folder unless absolute),
    its partitions, which the catalog must know, and the files that it replaces (below the table's
    folder). ``notes`` is JSON data of the writer about the table after this epoch."""

    number: int = 0
    moves: tuple[tuple[str, str], ...] = ()
    partitions: tuple[Mapping[str, str | None], ...] = field(default=())
    removals: tuple[str, ...] = ()
    notes: Mapping[str, Any] | None = None


class Staging:
    """The staging folder of one writer, and the commits of its table's folder."""

    def __init__(self, table: str, folder: Path) -> None:
        self.table = table
        self.folder = folder
        self.path = folder / f"{STAGING}{uuid.uuid4().hex}"
        self.unpublished = False
        """Whether files of a committed epoch are still in the staging folder."""
        self._owner: BinaryIO | None = None
        self._handle: int | None = None
        with explained(table, folder):
            folder.mkdir(parents=True, exist_ok=True)
            # Through this handle no file can be made in a folder that was removed meanwhile, nor in
            # another folder of the same name.
            self._handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        with explained(table, folder), self._locked():
            self.last = _read(folder, table)
            # Before staging folders are removed: the files of an unfinished epoch are in one.
            self._publish(self.last)
            self._remove_stale()
            self.path.mkdir()
            # The lock lasts as long as this process, whatever becomes of its process id.
            self._owner = (self.path / "owner").open("wb")
            fcntl.flock(self._owner, fcntl.LOCK_EX)

    def refresh(self) -> Epoch:
        """The last epoch, which another writer may have committed."""
        with explained(self.table, self.folder), self._locked():
            self.last = _read(self.folder, self.table)
        return self.last

    def commit(
        self,
        number: int | None,
        moves: Sequence[tuple[Path, Path]],
        partitions: Sequence[Mapping[str, str | None]],
        removals: Sequence[Path] = (),
        notes: Mapping[str, Any] | None = None,
    ) -> tuple[Epoch, bool]:
        """Publishes the renames as epoch ``number`` (default: the next), then removes the files
        ``removals``. Returns the epoch, and whether it is new.

        An epoch that is committed already stays as it is.
        """
        with explained(self.table, self.folder), self._locked():
            last = _read(self.folder, self.table)
            if number is not None and number <= last.number:
                self.last = last
                return last, False
            if not all(source.exists() for source, _ in moves):
                raise gone(self.table, self.folder)
            self._publish(last)
            self.unpublished = False
            epoch = Epoch(
                last.number + 1 if number is None else number,
                tuple((self._relative(a), self._relative(b)) for a, b in moves),
                tuple(partitions),
                tuple(map(self._relative, removals)),
                notes,
            )
            self.unpublished = True
            try:
                _write(self.folder, epoch)
            except BaseException:  # Ctrl-C, too
                self.unpublished = _read(self.folder, self.table).number == epoch.number
                raise
            self.last = epoch
            self._publish(epoch)
            self.unpublished = False
            return epoch, True

    def close(self) -> None:
        if not self.unpublished:
            shutil.rmtree(self.path, ignore_errors=True)
        if self._owner is not None:
            self._owner.close()
            self._owner = None
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def withdraw(self, epoch: Epoch) -> None:
        """Removes the files of an epoch whose table was dropped while they were published."""
        for _, target in epoch.moves:
            path = self.folder / target
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def remove_folder(self) -> None:
        """Removes the folder of a dropped table, if it holds only empty folders of partitions and
        our own record of epochs."""
        for folder, _, _ in os.walk(self.folder, topdown=False):
            place = Path(folder)
            if place == self.folder:
                break
            if place != self.folder / _FOLDER:
                with contextlib.suppress(OSError):
                    place.rmdir()
        with contextlib.suppress(OSError):
            if all(entry.name == _FOLDER for entry in self.folder.iterdir()):
                shutil.rmtree(self.folder / _FOLDER, ignore_errors=True)
                self.folder.rmdir()

    def _relative(self, path: Path) -> str:
        return str(path.relative_to(self.folder)) if path.is_relative_to(self.folder) else str(path)

    def _publish(self, epoch: Epoch) -> None:
        touched: set[Path] = set()
        for source, target in epoch.moves:
            old, new = self.folder / source, self.folder / target
            if not old.exists():
                continue  # moved before a crash, or before this writer opened
            self._make_folders(Path(target).parent)
            os.rename(source, target, src_dir_fd=self._handle, dst_dir_fd=self._handle)
            touched.add(new.parent)
        for parent in touched:
            sync_folder(parent)
        for removed in epoch.removals:
            path = self.folder / removed
            with contextlib.suppress(FileNotFoundError):  # removed before a crash
                os.unlink(path)
            if path.parent != self.folder:
                with contextlib.suppress(OSError):  # other files are in it
                    os.rmdir(path.parent)

    def _make_folders(self, folder: Path) -> None:
        """Makes a folder below the table's folder, and its parents."""
        for part in (*reversed(folder.parents), folder):
            if part not in (Path(), Path(part.anchor)):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=self._handle)

    def _remove_stale(self) -> None:
        for other in self.folder.glob(f"{STAGING}*"):
            try:
                owner = (other / "owner").open("rb")
            except FileNotFoundError:
                # It was made under the lock that is held here: its writer died between two calls.
                shutil.rmtree(other, ignore_errors=True)
                continue
            except OSError:
                continue
            with owner:
                try:
                    fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    continue
                shutil.rmtree(other, ignore_errors=True)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        assert self._handle is not None
        mine, there = os.fstat(self._handle), os.stat(self.folder)
        if (mine.st_dev, mine.st_ino) != (there.st_dev, there.st_ino):
            raise gone(self.table, self.folder)
        self._make_folders(Path(_FOLDER))
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        lock = os.open(f"{_FOLDER}/lock", flags, 0o666, dir_fd=self._handle)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def gone(table: str, folder: Path) -> CatalogError:
    """The error for a folder that was removed, or emptied, while rows were written into it."""
    return CatalogError(
        f"table {table} was dropped or overwritten while rows were written into it: its folder "
        f"{folder} is gone, or another one",
        hint="nothing of this epoch is in the table; create it again, then run the INSERT again",
    )


@contextlib.contextmanager
def explained(table: str, folder: Path) -> Iterator[None]:
    """Turns an error of the file system into a CatalogError with a remedy."""
    try:
        yield
    except OSError as error:
        place = folder / str(error.filename or "")
        if error.errno == errno.ENOENT and (not folder.is_dir() or STAGING in str(place)):
            raise gone(table, folder) from error
        reason = (error.strerror or str(error)).split("\n")[0]
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            what = f"the disk of {folder} is full, or a limit on file size is reached ({reason})"
            hint = "free some space, or raise the limit; nothing of this epoch is visible"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            what = f"this user may not write to {place} ({reason})"
            hint = "give the user write permission on the table's folder"
        else:
            what = f"writing to {place} failed: {reason}"
            hint = "check that the folder exists and its disk works; then run the statement again"
        raise CatalogError(f"table {table}: {what}", hint=hint) from error


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def last_epoch(folder: Path, table: str) -> Epoch:
    """The last committed epoch of a table's folder, which may not be published yet."""
    with explained(table, folder):
        return _read(folder, table)


def _read(folder: Path, table: str) -> Epoch:
    file = folder / _FOLDER / "epoch.json"
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Epoch()
    try:
        entry = json.loads(text)
        if entry["format"] not in (_FORMAT, _REPLACING):
            raise ValueError(f"format {entry['format']}, known are {_FORMAT} and {_REPLACING}")
        return Epoch(
            int(entry["epoch"]),
            tuple((str(a), str(b)) for a, b in entry["moves"]),
            tuple(dict(partition) for partition in entry["partitions"]),
            tuple(map(str, entry.get("removals", ()))),
            entry.get("notes"),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CatalogError(
            f"table {table}: its record of epochs {file} is damaged: {error}",
            hint="delete that file after a look at the table: numbering starts again at 1",
        ) from error


def _write(folder: Path, epoch: Epoch) -> None:
    file = folder / _FOLDER / "epoch.json"
    fresh = file.with_suffix(".new")
    entry: dict[str, Any] = {
        "format": _FORMAT,
        "epoch": epoch.number,
        "moves": [list(move) for move in epoch.moves],
        "partitions": [dict(partition) for partition in epoch.partitions],
    }
    if epoch.removals or epoch.notes is not None:
        # A version that does not know these entries must not publish the epoch without them.
        entry |= {"format": _REPLACING, "removals": list(epoch.removals), "notes": epoch.notes}
    with fresh.open("w", encoding="utf-8") as out:
        json.dump(entry, out)
        out.flush()
        os.fsync(out.fileno())
    os.replace(fresh, file)
    sync_folder(file.parent)
