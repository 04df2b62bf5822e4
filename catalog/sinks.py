"""Sinks: a table in memory, and a folder of files with one file per epoch.

A folder's epoch is written as ``_staging/epoch-….tmp``, synced, and published by a link to it named
``part-00000007.parquet`` and so on: a reader that lists the folder sees the whole epoch or nothing
of it. A staging file is locked while its writer lives. One without a lock is left over from a
crash, and is removed when the folder is next opened for writing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

import pyarrow as pa

from cql.base.model import Field, Schema
from cql.catalog.convert import Column, Shaper, assignable, batch_of
from cql.catalog.files.writers import FORMATS, Writer, check_writable
from cql.errors import CatalogError, did_you_mean

STAGING = "_staging"
#: The file that the one writer of a folder has locked.
_LOCK = "_lock"
#: The first word of the names of the files that an epoch adds.
PART = "part"
EXTENSIONS = {"parquet": "parquet", "arrow": "arrow", "csv": "csv", "json": "jsonl"}


class Caster:
    """Casts rows of ``source`` to rows of ``target``, by column name. The constructor refuses types
    that can never fit. A value that does not fit raises CatalogError, which names the column."""

    def __init__(self, source: Schema, target: Schema, what: str) -> None:
        self._what = what
        self._target = target
        self._places = [source.find(f.name) for f in target]
        self._shaper = Shaper([Field(f.name, f.type, f.nullable) for f in target])
        self._check(source)

    def _check(self, source: Schema) -> None:
        for field in source:
            if self._target.find(field.name) is None:
                raise CatalogError(
                    f"{self._what} has no column {field.name}",
                    hint=did_you_mean(field.name, self._target.names, what="its columns are")
                    or "name the columns as the table does, with AS",
                )
        folded = [f.name.lower() for f in source]
        twice = next((n for n in folded if folded.count(n) > 1), None)
        if twice is not None:
            raise CatalogError(
                f"the rows for {self._what} have two columns named {twice}",
                hint="rename one with AS",
            )
        for field, place in zip(self._target, self._places, strict=True):
            if place is None and not field.nullable:
                raise CatalogError(
                    f"column {field.name} of {self._what} is NOT NULL and gets no value",
                    hint=f"select a value AS {field.name}",
                )
            if place is not None and not assignable(source[place].type, field.type):
                raise CatalogError(
                    f"column {field.name} of {self._what} is {field.type}, "
                    f"the rows have {source[place].type}",
                    hint=f"CAST({source[place].name} AS {str(field.type).upper()})",
                )

    def cast(self, batch: pa.RecordBatch, row: int) -> pa.RecordBatch:
        """``row`` is the number of the first row in its epoch, for messages."""
        arrays = []
        for field, place in zip(self._target, self._places, strict=True):
            if place is None:
                arrays.append(pa.array([None] * batch.num_rows, field.type.to_arrow()))
            else:
                column: Column = batch.column(place)
                encoded = pa.types.is_dictionary(column.type)
                arrays.append(column.dictionary_decode() if encoded else column)
        raw = batch_of(self._target.fields, arrays, batch.num_rows)
        shaped = self._shaper.shape(raw, row=row, where=self._what)
        return shaped.cast(self._target.to_arrow()) if len(self._target) else shaped


class Epoch:
    """The order of calls, which all sinks share."""

    def __init__(self, source: Schema, target: Schema, what: str) -> None:
        self.schema = target
        self._what = what
        self._caster = Caster(source, target, what)
        self._open = False
        self._number = 0  # of rows in the open epoch

    def _begin(self) -> None:
        if self._open:
            raise CatalogError(f"an epoch of {self._what} is open", hint="commit or abort it first")
        self._open, self._number = True, 0

    def _cast(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self._open:
            raise CatalogError(f"no epoch of {self._what} is open", hint="call begin first")
        cast = self._caster.cast(batch, self._number)
        self._number += batch.num_rows
        return cast

    def _end(self) -> None:
        if not self._open:
            raise CatalogError(f"no epoch of {self._what} is open", hint="call begin first")
        self._open = False


class MemorySink(Epoch):
    """``publish`` appends the epoch's batches to the table and gives the epoch its number."""

    def __init__(
        self,
        source: Schema,
        target: Schema,
        publish: Callable[[Sequence[pa.RecordBatch]], int],
        what: str,
    ) -> None:
        super().__init__(source, target, what)
        self._publish = publish
        self._batches: list[pa.RecordBatch] = []

    def begin(self) -> None:
        self._begin()
        self._batches = []

    def write(self, batch: pa.RecordBatch) -> None:
        cast = self._cast(batch)
        if cast.num_rows:
            self._batches.append(cast)

    def commit(self) -> int:
        self._end()
        batches, self._batches = self._batches, []
        return self._publish(batches)

    def abort(self) -> None:
        self._open = False
        self._batches = []


class FolderSink(Epoch):
    """One file per epoch in ``folder``; see the module. ``commit`` returns epoch numbers from 0.
    ``style``: options of CSV files (``header``, ``sep``). ``word`` begins the names of the
    files. ``number`` is that of the one epoch of this sink, if the next free one will not do."""

    def __init__(
        self,
        folder: str,
        format: str,
        source: Schema,
        target: Schema,
        what: str,
        style: Mapping[str, Any] | None = None,
        word: str = PART,
        number: int | None = None,
    ) -> None:
        super().__init__(source, target, what)
        self._style = style or {}
        self._word = word
        self._fixed = number
        check_writable(format, target, what)
        self._folder = folder
        self._format = format
        self._staged: str | None = None
        self._file: IO[bytes] | None = None
        self._writer: Writer | None = None
        with self._failing():
            make_folder(folder)
            remove_stale(folder)

    def begin(self) -> None:
        self._begin()
        with self._failing():
            self._staged, self._file = open_staged(self._folder)
            write = FORMATS[self._format]
            self._writer = write(self._file, self.schema.to_arrow(), self._style)

    def write(self, batch: pa.RecordBatch) -> None:
        cast = self._cast(batch)
        assert self._writer is not None
        if cast.num_rows:
            with self._failing():
                self._writer.write(cast)

    def commit(self) -> int:
        self._end()
        assert self._writer is not None
        assert self._file is not None
        assert self._staged is not None
        with self._failing():
            self._writer.close()
            self._writer = None
            self._file.flush()
            os.fsync(self._file.fileno())
            extension = EXTENSIONS[self._format]
            epoch = publish(self._staged, self._folder, extension, self._word, self._fixed)
        self.abort()  # the staged name is another link to what is now published
        return epoch

    def abort(self) -> None:
        self._open = False
        writer, file, staged = self._writer, self._file, self._staged
        self._writer = self._file = self._staged = None
        if writer is not None:
            writer.discard()
        if file is not None:
            # The unwritten rest of the buffer is not wanted, nor is an error from writing it.
            with contextlib.suppress(OSError):
                file.close()
        if staged is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(staged)
            with contextlib.suppress(OSError):  # another writer still stages there
                os.rmdir(os.path.dirname(staged))

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """On a failure nothing of the epoch stays, and the message says what to do."""
        try:
            with failing(self._folder, self._what):
                yield
        except CatalogError:
            self.abort()
            raise


@contextlib.contextmanager
def failing(folder: str, what: str) -> Iterator[None]:
    """Raises an error from writing to the folder as CatalogError about ``what``."""
    try:
        yield
    except CatalogError as error:
        error.message = f"{what}: {error.message}"
        raise
    except (OSError, pa.ArrowException) as error:
        reason, hint = _explain(error)
        raise CatalogError(f"{what}: cannot write to {folder}: {reason}", hint=hint) from error


def _explain(error: BaseException) -> tuple[str, str]:
    number = getattr(error, "errno", None)
    if number in (errno.ENOSPC, errno.EDQUOT):
        return "no space left", "free some space and run the INSERT again: nothing was published"
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "permission denied", "grant write permission on the folder, or choose another"
    if isinstance(error, NotADirectoryError | FileExistsError):
        return "it is not a folder", "choose another path"
    return str(error), "nothing was published: run the INSERT again when the cause is removed"


def make_folder(folder: str) -> None:
    """Makes a folder that other processes may make and remove at the same time.

    Raises FileExistsError if the path is not a folder."""
    while True:
        try:
            return os.makedirs(folder, exist_ok=True)
        except FileExistsError:
            with contextlib.suppress(FileNotFoundError):  # the folder has been removed since
                if not stat.S_ISDIR(os.lstat(folder).st_mode):
                    raise


def open_staged(folder: str) -> tuple[str, IO[bytes]]:
    """A new locked file in the staging folder, and its path."""
    staging = os.path.join(folder, STAGING)
    while True:
        make_folder(staging)
        path = os.path.join(staging, f"epoch-{os.getpid()}-{secrets.token_hex(6)}.tmp")
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileNotFoundError:  # another writer's abort removed the empty folder
            continue
        file = os.fdopen(descriptor, "wb", 1 << 20)
        # Between its creation and its lock, the file looks stale to a writer that just opens.
        if _lock(file.fileno()) and os.path.exists(path):
            return path, file
        file.close()


def _lock(descriptor: int, *, wait: bool = False) -> bool:
    """Locks the file until it is closed or its process ends; False if another process holds it and
    this one need not ``wait``. Windows has no such locks: an open file cannot be removed there."""
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def one_writer(folder: str) -> Iterator[None]:
    """In the ``with`` block no other process or thread is in such a block for the folder; except on
    Windows."""
    path = os.path.join(folder, _LOCK)
    while True:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
        try:
            _lock(descriptor, wait=True)
            with contextlib.suppress(FileNotFoundError):  # the writer before has removed the file
                if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                    break
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # Windows: another writer has opened it
            os.unlink(path)
        os.close(descriptor)


def remove_stale(folder: str) -> None:
    """Removes staging files that no living writer holds."""
    staging = os.path.join(folder, STAGING)
    try:
        names = os.listdir(staging)
    except FileNotFoundError:
        return
    for name in names:
        path = os.path.join(staging, name)
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            if _lock(file.fileno()):
                os.unlink(path)
    with contextlib.suppress(OSError):  # not empty: another writer is at work
        os.rmdir(staging)


def publish(
    staged: str, folder: str, extension: str, word: str = PART, number: int | None = None
) -> int:
    """Gives the file the name of the next free epoch, or that of epoch ``number``. A link never
    replaces an existing file."""
    epoch = number
    if epoch is None:
        epoch = max(numbers(os.listdir(folder), word), default=-1) + 1
    while True:
        final = os.path.join(folder, f"{word}-{epoch:08d}.{extension}")
        try:
            os.link(staged, final)
        except FileExistsError:  # another writer was faster
            if number is not None:
                raise
            epoch += 1
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            os.rename(staged, final)  # a file system without links: one writer at a time
            break
        else:
            break
    _sync_folder(folder)
    return epoch


def numbers(names: Iterable[str], word: str) -> list[int]:
    """The epochs of the file names that begin with ``word``."""
    form = re.compile(word + r"-(\d{8,})\.\w+")
    return [int(m[1]) for name in names if (m := form.fullmatch(name))]


def _sync_folder(folder: str) -> None:
    """Makes the new name itself survive a power failure (folders cannot be opened on Windows)."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
