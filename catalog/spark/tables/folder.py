"""The files of a table listed from its folder, without the JVM.

Spark's table says where its files lie and how its folders name the partitions. A process without a
Spark session lists the files from that, by the rules by which Spark lists them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from cql.catalog.spark.session import Session
from cql.catalog.spark.tables import table as spark_table
from cql.catalog.spark.tables.files import (
    NO_VALUE,
    READERS,
    DataFile,
    Files,
    PartitionValue,
    escaped,
    in_reading_order,
)
from cql.catalog.spark.tables.row_groups import files_from_json, files_to_json
from cql.catalog.spark.tables.table import RECURSIVE, local_path
from cql.errors import CatalogError

#: The folder that a streaming query of Spark keeps in a table: its log says which files count.
_STREAM_LOG = "_spark_metadata"
#: Options of a table, in lower case, that do not choose among its files.
_OF_WRITERS = frozenset(("serialization.format", "compression"))


@dataclass(frozen=True, slots=True)
class TableFolder:
    """A table whose files ``list_files`` finds. ``table`` has the files of the time at which it was
    described. ``folder`` is None if only Spark can list the files: then these are the files.
    ``kinds`` are Spark's types of the partition columns. ``recursive``: the folders in ``folder``
    hold files of the table, too."""

    table: Files
    folder: Path | None = None
    kinds: tuple[str, ...] = ()
    recursive: bool = False

    def list_files(self) -> Files:
        """The files that the table has now. Raises CatalogError for a folder that Spark's rules
        leave open."""
        if self.folder is None:
            return self.table
        try:
            found = list(self._listed(self.folder))
        except OSError as error:
            raise CatalogError(
                f"table {self.table.table}: its folder {self.folder} cannot be listed:"
                f" {error.strerror}",
                hint="if the table was dropped or moved, register the session again",
            ) from error
        return replace(self.table, files=in_reading_order(found))

    def to_json(self) -> dict[str, Any]:
        kept = self.table if self.folder is None else replace(self.table, files=())
        folder = None if self.folder is None else str(self.folder)
        return {
            "table": files_to_json(kept),
            "folder": folder,
            "kinds": self.kinds,
            "recursive": self.recursive,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> TableFolder:
        folder = None if data["folder"] is None else Path(data["folder"])
        kinds, recursive = tuple(data["kinds"]), data["recursive"]
        return TableFolder(files_from_json(data["table"]), folder, kinds, recursive)

    def _listed(self, folder: Path) -> Iterator[DataFile]:
        if (folder / _STREAM_LOG).exists():
            raise CatalogError(
                f"table {self.table.table}: a streaming query writes its folder {folder}, and the"
                " log there says which files count",
                hint="register the session again: Spark then lists the files",
            )
        for below, values in self._partitions(folder):
            for path in _files_in(below, deep=self.recursive or bool(self.kinds)):
                status = path.stat()
                yield DataFile(str(path), path.as_uri(), status.st_size, status.st_mtime_ns, values)

    def _partitions(self, folder: Path) -> Iterator[tuple[Path, tuple[PartitionValue, ...]]]:
        """The folders of the partitions, with their values; ``folder`` without values if there are
        no partition columns."""
        found: list[tuple[Path, tuple[PartitionValue, ...]]] = [(folder, ())]
        for column, kind in zip(self.table.partition_columns, self.kinds, strict=True):
            start = f"{escaped(column)}=".lower()
            found = [
                (below, (*values, self._value(below, len(start), kind)))
                for above, values in found
                for below in above.iterdir()
                if below.name.lower().startswith(start) and below.is_dir()
            ]
        yield from found

    def _value(self, folder: Path, start: int, kind: str) -> PartitionValue:
        text = folder.name[start:]
        if text == NO_VALUE:
            return None
        try:
            return READERS[kind](unquote(text))
        except (ValueError, ArithmeticError):
            raise CatalogError(
                f"table {self.table.table}: its folder {folder} names no value of the type {kind}",
                hint="remove the folder, or give it the name that Spark gives it",
            ) from None


def folder_of(session: Session, name: tuple[str, ...], files: Files) -> TableFolder:
    """The folder of a table whose fresh listing by Spark is ``files``. A table that the rules here
    list in another way, or whose options choose among its files, keeps Spark's listing."""
    unlisted = TableFolder(files)
    if spark_table.is_temporary(session, name):
        return unlisted
    table = spark_table.load(session, name)
    types = {f.name: f.dataType.typeName() for f in table.schema.fields}
    kinds = tuple(types.get(column, "") for column in files.partition_columns)
    options = {key.lower(): value for key, value in table.options.items()}
    recursive = options.pop(RECURSIVE.lower(), "").lower() == "true"
    folder = None if table.location is None else local_path(table.location)
    if folder is None or options.keys() - _OF_WRITERS or not READERS.keys() >= set(kinds):
        return unlisted
    made = TableFolder(files, folder, kinds, recursive)
    try:
        listed = made.list_files()
    except CatalogError:
        return unlisted
    return made if listed.digest == files.digest else unlisted


def _files_in(folder: Path, *, deep: bool) -> Iterator[Path]:
    """The data files in ``folder``; ``deep``: also those in its folders."""
    for path in folder.iterdir():
        if not _is_data(path.name):
            continue
        if not path.is_dir():
            yield path
        elif deep:
            yield from _files_in(path, deep=deep)


def _is_data(name: str) -> bool:
    """Whether Spark reads a file or folder of this name."""
    hidden = name.startswith(".") or (name.startswith("_") and "=" not in name)
    return not hidden and not name.endswith("._COPYING_")
