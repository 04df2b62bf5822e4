"""Tables of files: a folder whose files are the rows, each INSERT adding one file. (A table with a
PRIMARY KEY has one file, or is a log of changes: see ``keyed``.)

The folder outlives the session, and others may write to it. CREATE TABLE over a folder with files
reads them; DROP TABLE forgets the table and leaves the files.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa

from cql.base.model import Schema
from cql.catalog.files.formats import NAMES, format_of
from cql.catalog.files.keyed.log import LoggedFiles, check_key, table_schema
from cql.catalog.files.keyed.whole import KeyedFiles, read_newest
from cql.catalog.files.listing import list_files
from cql.catalog.files.source import FileSource
from cql.catalog.files.writers import check_writable
from cql.catalog.options import Options
from cql.catalog.sinks import FolderSink, make_folder
from cql.catalog.upsert import UpsertSink, with_key
from cql.errors import CatalogError, did_you_mean
from cql.executor.protocols import KeyedSink, Sink
from cql.planner.nodes.catalog import LOG, REWRITE, UPSERT, Statistics

#: Format of the files of a table without USING.
DEFAULT = "parquet"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
#: CSV options that hold both for the files that an INSERT writes and for those that are read.
_BOTH_WAYS = ("header", "sep", "delimiter")


def table_format(name: str | None, what: str) -> str:
    """The format of that name; CatalogError if there is none."""
    kind = NAMES.get((name or DEFAULT).lower())
    if kind is None:
        raise CatalogError(
            f"{what}: unknown format {name}",
            hint=did_you_mean(str(name), NAMES, what="formats of tables are", few=len(NAMES)),
        )
    return kind


class FileTable:
    """``options`` are ``path`` and those of the format (None: parquet). With ``schema``, a missing
    folder is made; without, the columns are those of the folder's files. ``empty``: the folder must
    not hold files yet. ``key`` are the columns of the PRIMARY KEY."""

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        what: str,
        format: str | None = None,
        schema: Schema | None = None,
        empty: bool = False,
        key: Sequence[str] = (),
    ) -> None:
        self._what = what
        self.format = table_format(format, what)
        given = {k.lower(): v for k, v in options.items()}
        path = given.pop("path", None)
        path = os.fspath(path) if isinstance(path, os.PathLike) else path
        self.folder = _folder(Options({"path": path}, what).text("path"), what)
        self._logged = self._is_logged(given.pop(UPSERT, None), key)
        self._style = self._checked(given)
        self._options = {**given, "path": self.folder}
        if self.format == "csv":
            self._options["multiline"] = True  # our own values may hold line ends
        if schema is not None:
            check_writable(self.format, schema, what)
            schema, key = with_key(schema, key, what)
        elif key:
            check_writable(self.format, Schema(()), what)
        files = [f.path for f in list_files([self.folder], what)] if self.exists else []
        self._check_files(files, schema, empty)
        self.made = not self.exists
        if self.made:
            _make(self.folder, what)
        self.unsupported: Mapping[str, str] = {}
        self.partitioned = False
        if self._logged:
            first = self._logged_schema(schema, key)
        else:
            source = self._first(schema) if key else self._source(schema)
            first = source.schema
            self.unsupported, self.partitioned = source.unsupported, source.partitioned
        self.schema, self.key = with_key(first, key, what)
        self._keyed = self._keyed_files() if key else None

    def _is_logged(self, upsert: Any, key: Sequence[str]) -> bool:
        """Whether the option ``upsert`` makes the table a log of changes."""
        if upsert is None:
            return False
        if upsert not in (REWRITE, LOG) or not key:
            raise CatalogError(
                f"{self._what}: the option upsert is {upsert!r}",
                hint=f"a table with a PRIMARY KEY takes {REWRITE} or {LOG}, others no such option",
            )
        if upsert == LOG and self.format != "parquet":
            raise CatalogError(
                f"{self._what}: a log of changes has parquet files, not {self.format}",
                hint="USING parquet, or leave out the option upsert",
            )
        return bool(upsert == LOG)

    def _logged_schema(self, schema: Schema | None, key: Sequence[str]) -> Schema:
        """The columns of a table that is a log. Raises CatalogError for files of another kind or
        key."""
        stored = table_schema(self.folder, self._what, lambda path: self._source(None, path))
        if stored is not None:
            check_key(stored, key, self._what)
        found = schema or stored
        assert found is not None  # else there are no files
        return found

    def _first(self, schema: Schema | None) -> FileSource:
        """A source of the newest file of a table with a key."""
        return read_newest(
            self.folder,
            self._what,
            lambda path: self._source(schema, path),
            lambda: self._source(schema),
        )

    def _keyed_files(self) -> KeyedFiles | LoggedFiles:
        made = LoggedFiles if self._logged else KeyedFiles
        return made(
            self.folder,
            self.format,
            self.schema,
            self.key,
            self._source,
            self._style,
            self._what,
        )

    def statistics(self) -> Statistics:
        if self._keyed is not None:
            return self._keyed.statistics()
        if not list_files([self.folder], self._what):
            return Statistics(rows=0)
        return self.source().statistics()

    @property
    def exists(self) -> bool:
        return os.path.isdir(self.folder)

    def _checked(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """The options that determine how files are written. Raises CatalogError for an option that
        only reading obeys, because rows of an INSERT could then not be read back."""
        for name in given:
            if self.format != "csv" or name not in _BOTH_WAYS:
                takes = "header and sep" if self.format == "csv" else "nothing but path"
                raise CatalogError(
                    f"{self._what}: {name} is no option of a table of {self.format} files",
                    hint=f"it takes {takes}; CREATE STREAM … USING {self.format} reads files that"
                    " are written otherwise",
                )
        options = Options(given, self._what)
        sep = options.character("sep", options.character("delimiter", ","))
        return {"header": options.flag("header", True), "sep": sep}

    def _check_files(self, files: Sequence[str], schema: Schema | None, empty: bool) -> None:
        if files and empty:
            raise CatalogError(
                f"{self._what}: there are files in {self.folder} already",
                hint="without AS the table reads them, and INSERT INTO adds rows; or choose another"
                " folder",
            )
        if not files and schema is None:
            gone = "" if self.exists else ", which does not exist"
            raise CatalogError(
                f"{self._what}: there are no files in {self.folder}{gone}",
                hint="declare the columns: CREATE TABLE t (column TYPE, …)",
            )
        for path in files:
            found = format_of(path)
            if found not in (None, self.format):
                raise CatalogError(
                    f"{self._what} is one of {self.format} files, and {path} is a {found} file by"
                    " its name",
                    hint=f"USING {found}, or another folder",
                )

    def _source(self, schema: Schema | None, path: str | None = None) -> FileSource:
        options = {**self._options, "path": path or self.folder}
        return FileSource(
            options,
            what=self._what,
            format=self.format,
            declared=schema,
            one_file=path is not None,
        )

    def source(self) -> FileSource | KeyedFiles | LoggedFiles:
        """A source of the files that exist when it is opened."""
        return self._source(self.schema) if self._keyed is None else self._keyed

    def sink(self, rows: Schema) -> FolderSink | UpsertSink:
        """Adds one file per epoch of rows of schema ``rows``; a table with a key gets a new
        one."""
        if self._keyed is not None:
            publish = self._keyed.publish
            return UpsertSink(rows, self.schema, self.key, publish, self._what)
        if self.partitioned:
            raise CatalogError(
                f"{self._what} lies in folders named column=value, and INSERT makes none",
                hint="make a table of Spark for rows that are stored by partition",
            )
        return FolderSink(self.folder, self.format, rows, self.schema, self._what, self._style)


class FirstSink:
    """The sink of a table that does not exist before its first commit: ``publish`` runs the commit
    that it receives, and makes the table known. An aborted INSERT removes the folder ``made`` for
    it."""

    def __init__(
        self, inner: Sink, publish: Callable[[Callable[[], int]], int], made: str | None
    ) -> None:
        self._inner = inner
        self._publish = publish
        self._made = made
        self.schema = inner.schema

    def begin(self) -> None:
        self._inner.begin()

    def write(self, batch: pa.RecordBatch) -> None:
        self._inner.write(batch)

    def delete(self, keys: pa.RecordBatch) -> None:
        cast("KeyedSink", self._inner).delete(keys)

    def commit(self) -> int:
        try:
            return self._publish(self._inner.commit)
        except CatalogError:
            self.abort()
            raise

    def abort(self) -> None:
        self._inner.abort()
        if self._made is not None:
            with contextlib.suppress(OSError):  # not empty: an earlier epoch, or files of others
                os.rmdir(self._made)


def _folder(path: str | None, what: str) -> str:
    """The absolute path of a folder that exists or can be made: the session may change its working
    directory later."""
    if not path:
        raise CatalogError(f"{what} needs the option path", hint="path 'folder'")
    folder = os.path.abspath(os.path.expanduser(path))
    if os.path.isdir(folder):
        return folder
    if _SCHEME.match(path):
        raise CatalogError(
            f"{what}: {path} is not a local path", hint="give the path of a folder, or mount it"
        )
    if os.path.lexists(folder) and not os.path.isdir(folder):  # no other process just made it
        raise CatalogError(
            f"{what}: {path} is a file, and a table is a folder of files",
            hint="name its folder; CREATE STREAM … reads single files",
        )
    if glob.has_magic(path):
        raise CatalogError(
            f"{what}: {path} is a pattern, and a table is one folder of files",
            hint="name the folder; CREATE STREAM … reads the files that a pattern finds",
        )
    return folder


def _make(folder: str, what: str) -> None:
    try:
        make_folder(folder)
    except OSError as error:
        raise CatalogError(
            f"{what}: cannot make the folder {folder}: {error.strerror}", hint="choose another path"
        ) from error
