"""Appends to Spark tables, one atomic epoch after another.

A table that the engine makes has no partition column for the epoch, so that ``SELECT *`` shows only
the declared columns. It has Spark's option ``recursiveFileLookup`` instead: an epoch of one file is
a file of the table's folder, a larger epoch is a folder in it, and one rename publishes either.
(Epochs as partitions would need a visible column and an ALTER TABLE each.)

A table that the user made takes rows by the names of its columns. Unpartitioned, each epoch is one
file, because Spark reads no folders there. Partitioned, an epoch is one or more files per
partition: a crash does not lose any, but a reader of another process may see some of them between
two renames.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from cql.catalog.spark import quoting, registry
from cql.catalog.spark.quoting import quoted
from cql.catalog.spark.session import spark_call
from cql.catalog.spark.tables import defaults as spark_defaults
from cql.catalog.spark.tables import partition
from cql.catalog.spark.tables import table as spark_table
from cql.catalog.spark.tables.columns import find_column, limited, nulls, widens
from cql.catalog.spark.tables.files import (
    PartitionValue,
    file_index,
    file_relation,
    frame_of,
    list_partitions,
    partition_schema,
)
from cql.catalog.spark.tables.staging import Staging, explained, gone, sync_folder
from cql.catalog.spark.tables.table import RECURSIVE, Table
from cql.catalog.spark.tables.types import to_arrow, to_spark
from cql.errors import CatalogError, did_you_mean

_GROUP_ROWS = 1 << 20
_GROUP_BYTES = 64 << 20
_OPEN_FILES = 32
_SPECS = 200


@dataclass(frozen=True, slots=True)
class Commit:
    """The result of ``commit``; ``new`` is False if the epoch was committed before."""

    epoch: int
    rows: int
    files: tuple[str, ...]
    new: bool


@dataclass(frozen=True, slots=True)
class _Target:
    """The table: its columns as stored, and the layout of an epoch in its folder."""

    folder: Path
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    partitions: dict[tuple[PartitionValue, ...], Path]
    managed: bool
    """The catalog lists the partitions (else Spark finds them by their folders)."""
    recursive: bool
    case_sensitive: bool
    defaults: frozenset[str]
    """The columns that have a DEFAULT."""

    @property
    def one_file(self) -> bool:
        return not self.recursive and not self.partition_columns


@dataclass(slots=True)
class _File:
    path: Path
    sink: Any
    writer: Any
    rows: int = 0
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_rows: int = 0
    waiting_bytes: int = 0


class EpochWriter:
    """Writes rows to a table and publishes them epoch by epoch.

    ``schema`` is that of the rows; with ``create`` a missing table is made of it (an existing one
    must fit). No row is visible before ``commit``. A replay that names a committed epoch publishes
    nothing. After an error the epoch's rows are gone; the writer can go on with the next epoch.
    """

    def __init__(
        self,
        session: SparkSession,
        table: str | Sequence[str],
        schema: pa.Schema,
        create: bool = False,
        *,
        max_rows_per_file: int = 5_000_000,
        max_bytes_per_file: int = 256 << 20,
    ) -> None:
        self._session = session
        self._name = spark_table.full_name(session, table)
        self._table = quoted(table)
        self._max_rows = max_rows_per_file
        self._max_bytes = max_bytes_per_file
        if not registry.ensure(session, table):
            if not create:
                raise spark_table.missing(session, table, registry.names(session))
            create_table(session, self._name, schema)
        self._target = target_of(session, table, self._table)
        self._plans: dict[pa.Schema, list[int | None]] = {}
        self._plan(schema)
        self._defaults: dict[str, pa.Array[Any]] = {}
        self._staging = Staging(self._table, self._target.folder)
        self._open: dict[tuple[PartitionValue, ...], _File] = {}
        self._done: list[tuple[tuple[PartitionValue, ...], Path]] = []
        self._rows = 0
        self._batch = 0
        try:
            self._check_there()  # the table may be gone, and its folder made anew by Staging
        except CatalogError:
            self.close()
            raise
        if self._staging.last.partitions:
            # A crash may have come between the last epoch's renames and its ALTER TABLE.
            self._enter_partitions(self._staging.last.partitions)
            self._refresh()

    @property
    def last_epoch(self) -> int:
        """The number of the last committed epoch; 0 before the first."""
        return self._staging.refresh().number

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return self._target.schema

    def write(self, batch: pa.RecordBatch) -> None:
        """Stages rows. Columns are matched by name; one that the rows lack holds its DEFAULT (NULL
        if it has none)."""
        rows = self._fitted(batch)
        if not rows.num_rows:
            return
        try:
            with explained(self._table, self._target.folder):
                columns = self._target.partition_columns
                if columns:
                    for values, part in partition.split(rows, columns):
                        self._append(values, part)
                else:
                    self._append((), rows)
        except BaseException:
            self.abort()
            raise
        self._rows += rows.num_rows

    def commit(self, epoch: int | None = None) -> Commit:
        """Publishes the rows written since the last commit; without rows nothing changes.

        ``epoch`` (default: the next number) makes the commit repeatable: an epoch that is not
        beyond the last is published already, and the staged rows are dropped.
        """
        try:
            with explained(self._table, self._target.folder):
                for values in list(self._open):
                    self._finish(values)
            if not self._done:
                number = self._staging.last.number if epoch is None else epoch
                return Commit(number, 0, (), new=False)
            self._check_there()
            moves, folders = self._moves(epoch)
            for folder in {source.parent for source, _ in moves}:
                with explained(self._table, folder):
                    sync_folder(folder)
            specs = [
                partition.specification(self._target.partition_columns, values, self._target.schema)
                for values in folders
            ]
            committed, new = self._staging.commit(epoch, moves, specs)
            if not new:
                return Commit(epoch or committed.number, 0, (), new=False)
            try:
                if specs:
                    self._enter_partitions(specs)
                    self._target.partitions.update(folders)
                self._refresh()
            except CatalogError as error:
                if not spark_table.exists(self._session, self._name):
                    self._staging.withdraw(committed)
                    raise gone(self._table, self._target.folder) from error
                raise CatalogError(
                    f"the rows are in table {self._table}, but not every session may see them: "
                    f"{error.message}",
                    hint="do not insert them again: the next INSERT into the table puts it right",
                ) from error
            files = tuple(target for _, target in committed.moves)
            return Commit(committed.number, self._rows, files, new=True)
        finally:
            self.abort()

    def abort(self) -> None:
        """Drops the rows staged since the last commit."""
        for file in self._open.values():
            with contextlib.suppress(Exception):
                file.writer.close()
            with contextlib.suppress(Exception):
                file.sink.close()
            file.path.unlink(missing_ok=True)
        if not self._staging.unpublished:
            for _, path in self._done:
                path.unlink(missing_ok=True)
        self._open.clear()
        self._done.clear()
        self._rows = 0
        self._batch += 1

    def close(self) -> None:
        """Drops uncommitted rows and removes the staging folder. If the table was dropped
        meanwhile, also removes the rest of its folder: Spark cannot remove one that is written
        into."""
        self.abort()
        self._staging.close()
        with contextlib.suppress(CatalogError):
            if not spark_table.exists(self._session, self._name):
                managed = spark_table.default_location(self._session, self._name)
                if managed == self._target.folder:
                    self._staging.remove_folder()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _plan(self, schema: pa.Schema) -> list[int | None]:
        known = self._plans.get(schema)
        if known is None:
            known = _matched(schema, self._target, self._table)
            self._plans[schema] = known
        return known

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays: list[Any] = []
        for wanted, at in zip(self._target.schema, self._plan(batch.schema), strict=True):
            array: Any = self._left_out(wanted, batch.num_rows) if at is None else batch.column(at)
            if array.type != wanted.type:
                try:
                    array = array.cast(wanted.type)
                except pa.ArrowInvalid as error:
                    raise CatalogError(
                        f"table {self._table}: a value of column {wanted.name} does not fit "
                        f"{wanted.type}: {error}",
                        hint="CAST or round it in the query",
                    ) from error
            array = limited(array, wanted, self._table)
            if array.null_count and not wanted.nullable:
                raise CatalogError(
                    f"table {self._table}: column {wanted.name} is NOT NULL, and a row has NULL",
                    hint="filter such rows out, or use coalesce()",
                )
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self._target.schema)

    def _left_out(self, wanted: pa.Field[Any], rows: int) -> pa.Array[Any]:
        """The DEFAULT of a column that the rows lack, evaluated once per epoch; else NULL."""
        if wanted.name not in self._target.defaults:
            return nulls(rows, wanted.type)
        if wanted.name not in self._defaults:
            frame = frame_of(self._session, self._name)
            known = spark_defaults.evaluated(
                self._session, frame, self._target.defaults, self._table
            )
            self._defaults.update(known)
        return pa.repeat(self._defaults[wanted.name][0], rows)

    def _append(self, values: tuple[PartitionValue, ...], rows: pa.RecordBatch) -> None:
        at = 0
        while at < rows.num_rows:
            file = self._file(values, rows.schema)
            room = rows.num_rows
            if not self._target.one_file:
                room = self._max_rows - file.rows - file.waiting_rows
            part = rows.slice(at, room)
            at += part.num_rows
            file.waiting.append(part)
            file.waiting_rows += part.num_rows
            file.waiting_bytes += part.nbytes
            if file.waiting_rows >= _GROUP_ROWS or file.waiting_bytes >= _GROUP_BYTES // len(
                self._open
            ):
                self._flush(file)
            if not self._target.one_file and (
                file.rows + file.waiting_rows >= self._max_rows
                or file.sink.tell() + file.waiting_bytes >= self._max_bytes
            ):
                self._finish(values)

    def _file(self, values: tuple[PartitionValue, ...], schema: pa.Schema) -> _File:
        file = self._open.pop(values, None)
        if file is None:
            if len(self._open) >= _OPEN_FILES:
                self._finish(next(iter(self._open)))
            folder = self._staging.path / f"{self._batch:06d}"
            folder.mkdir(exist_ok=True)
            path = folder / f"part-{len(self._done) + len(self._open):05d}.parquet"
            sink = pa.OSFile(str(path), mode="wb")
            try:
                # Spark ignores an Arrow schema in the footer; its reader goes by the types there.
                writer = pq.ParquetWriter(sink, schema, compression="snappy", store_schema=False)
            except BaseException:
                sink.close()
                raise
            file = _File(path, sink, writer)
        self._open[values] = file  # the most recently used is last
        return file

    def _flush(self, file: _File) -> None:
        if file.waiting:
            table = pa.Table.from_batches(file.waiting)
            file.writer.write_table(table, row_group_size=_GROUP_ROWS)
            file.rows += file.waiting_rows
            file.waiting = []
            file.waiting_rows = file.waiting_bytes = 0

    def _finish(self, values: tuple[PartitionValue, ...]) -> None:
        file = self._open[values]
        self._flush(file)
        file.writer.close()
        file.sink.close()
        with file.path.open("rb") as written:
            os.fsync(written.fileno())
        del self._open[values]
        self._done.append((values, file.path))

    def _moves(
        self, epoch: int | None
    ) -> tuple[list[tuple[Path, Path]], dict[tuple[PartitionValue, ...], Path]]:
        """The renames of this epoch, and the partitions that are new with it."""
        target = self._target
        # Unique, not only numbered: numbering starts again if the folder is emptied.
        number = self._staging.refresh().number + 1 if epoch is None else epoch
        name = f"epoch-{number:010d}-{uuid.uuid4().hex[:12]}"
        if not target.partition_columns:
            if len(self._done) == 1:
                return [(self._done[0][1], target.folder / f"{name}.parquet")], {}
            return [(self._done[0][1].parent, target.folder / name)], {}
        moves: list[tuple[Path, Path]] = []
        new: dict[tuple[PartitionValue, ...], Path] = {}
        device = os.stat(target.folder).st_dev
        for at, (values, path) in enumerate(self._done):
            folder = target.partitions.get(values) or new.get(values)
            if folder is None:
                spec = partition.specification(target.partition_columns, values, target.schema)
                folder = target.folder / partition.folder_name(spec)
                new[values] = folder
            elif folder.exists() and os.stat(folder).st_dev != device:
                raise CatalogError(
                    f"table {self._table}: its partition in {folder} lies on another disk, where "
                    "files cannot be moved to atomically",
                    hint="keep the partitions of a table that is streamed into on one disk",
                )
            moves.append((path, folder / f"{name}-{at:05d}.parquet"))
        return moves, new

    def _check_there(self) -> None:
        """Raises CatalogError if the table was dropped since the writer was opened. The folder of a
        table that Spark does not manage stays."""
        if not spark_table.exists(self._session, self._name):
            raise gone(self._table, self._target.folder)

    def _enter_partitions(self, specs: Sequence[Mapping[str, str | None]]) -> None:
        if self._target.managed:
            for at in range(0, len(specs), _SPECS):
                quoting.run(
                    self._session,
                    quoting.Template.ADD_PARTITIONS,
                    table=self._name,
                    partitions=specs[at : at + _SPECS],
                )

    def _refresh(self) -> None:
        """Makes Spark list the folder anew, and recompute its caches over the table and over views
        of it (``refreshTable`` alone leaves the caches of views as they are, and that of the table
        from the second time on)."""
        with spark_call(self._session, f"refreshing {self._table}"):
            self._session.catalog.refreshTable(quoted(self._name))
            self._session.catalog.refreshByPath(str(self._target.folder))


def create_table(
    session: SparkSession,
    full: tuple[str, ...],
    schema: pa.Schema,
    properties: Mapping[str, str] | None = None,
    comment: str | None = None,
    partitions: Sequence[str] = (),
) -> None:
    """Makes an empty table whose epochs are files or folders of one folder. With columns of
    ``partitions``, which become its last ones, they are files in the folders of partitions."""
    folder = spark_table.default_location(session, full)
    table = quoted(full)
    with explained(table, folder):
        folder.mkdir(parents=True, exist_ok=True)
        if any(not entry.name.startswith(("_", ".")) for entry in folder.iterdir()):
            raise CatalogError(
                f"the folder {folder} for the new table {table} has files in it",
                hint="move them away, or choose another name",
            )
    partition.check_columns(schema, partitions, table)
    own = [name for name in schema.names if name not in partitions]
    fields = to_spark(pa.schema([schema.field(name) for name in (*own, *partitions)]))
    lowered = [name.lower() for name in schema.names]
    twice = sorted({name for name in lowered if lowered.count(name) > 1})
    if twice:
        raise CatalogError(
            f"the new table {table} would have the column {twice[0]} twice",
            hint="give one of them another name with AS",
        )
    made = Table(
        name=full,
        schema=fields,
        provider="parquet",
        location=str(folder),
        partition_columns=tuple(partitions),
        options={} if partitions else {RECURSIVE: "true"},
        # else Spark takes a table with a folder for an external one, whose files DROP leaves behind
        properties={"is_managed_location": "true", **(properties or {})},
        comment=comment,
    )
    try:
        spark_table.create(session, made)
        registry.record(session, full)
    except BaseException:
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise


def target_of(session: SparkSession, name: str | Sequence[str], table: str) -> _Target:
    frame = frame_of(session, name)
    with spark_call(session, f"looking up {table}"):
        relation = file_relation(frame)
        if relation is None:
            raise _unfit(table, "is a view, or no table of files")
        form = relation.fileFormat().getClass().getSimpleName()
        bucketed = relation.bucketSpec().isDefined()
        managed = relation.location().getClass().getSimpleName() == "CatalogFileIndex"
        listed = (
            list_partitions(session, name, relation, file_index(session, relation))
            if partition_schema(relation).names
            else {}
        )
        schema = to_arrow(frame.schema)
        case_sensitive = session.conf.get("spark.sql.caseSensitive", "false") == "true"
        zone = session.conf.get("spark.sql.session.timeZone")
    entry = spark_table.load(session, name)
    folder = spark_table.local_path(entry.location) if entry.location is not None else None
    if form != "ParquetFileFormat":
        raise _unfit(table, f"holds {entry.provider} files, not parquet")
    if folder is None:
        raise _unfit(table, f"is in {entry.location}, which is no local or mounted folder")
    if bucketed:
        raise _unfit(table, "is bucketed")
    if (folder / "_spark_metadata").exists():
        raise _unfit(table, "is the sink of a Spark stream")
    partition_columns = tuple(
        found
        for column in entry.partition_columns
        if (found := find_column(column, schema.names, case_sensitive)) is not None
    )
    partition.check_columns(schema, partition_columns, table)
    if zone != "UTC" and any(
        getattr(schema.field(column).type, "tz", None) for column in partition_columns
    ):
        raise _unfit(table, f"is partitioned by a timestamp in the time zone {zone}")
    nullable = {f.name: f.nullable for f in entry.schema.fields}
    schema = pa.schema([f.with_nullable(f.nullable and nullable.get(f.name, True)) for f in schema])
    return _Target(
        folder=folder,
        schema=schema,
        partition_columns=partition_columns,
        partitions={values: path for path, values in listed.items()},
        managed=managed,
        recursive=entry.options.get(RECURSIVE, "").lower() == "true",
        case_sensitive=case_sensitive,
        defaults=spark_defaults.with_default(frame),
    )


def _unfit(table: str, what: str) -> CatalogError:
    return CatalogError(
        f"table {table} {what}, so rows cannot be streamed into it",
        hint="write to a new table, or to a parquet table in a local folder",
    )


def _matched(rows: pa.Schema, target: _Target, table: str) -> list[int | None]:
    """For each column of the table its index in the rows; None if the rows lack it."""
    found: dict[str, int] = {}
    for at, column in enumerate(rows):
        name = find_column(column.name, target.schema.names, target.case_sensitive)
        if name is None:
            raise CatalogError(
                f"table {table} has no column {column.name!r}",
                hint=did_you_mean(column.name, target.schema.names, what="its columns are")
                or "name the columns of the query as those of the table",
            )
        if name in found:
            raise CatalogError(
                f"table {table}: two columns of the query are named {name!r}",
                hint="give one of them another name with AS",
            )
        wanted = target.schema.field(name).type
        if not _fits(column.type, wanted):
            raise CatalogError(
                f"table {table}: column {name} is {wanted}, and the query gives {column.type}, "
                "which may not fit",
                hint=f"CAST {column.name} in the query to the type of the table",
            )
        found[name] = at
    for field_ in target.schema:
        left_out = field_.name not in found and field_.name not in target.defaults
        if left_out and not field_.nullable:
            raise CatalogError(
                f"table {table}: column {field_.name} is NOT NULL, and the query does not give it",
                hint="add the column to the query",
            )
    return [found.get(name) for name in target.schema.names]


def _fits(given: Any, wanted: Any) -> bool:
    if given == wanted:
        return True
    if pa.types.is_null(given):
        return True
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(wanted):
        # A wall clock is no instant; Spark would take the session's zone.
        return (given.tz is None) == (wanted.tz is None)
    if pa.types.is_integer(given) and pa.types.is_timestamp(wanted):
        return False
    if pa.types.is_binary(given) and pa.types.is_string(wanted):
        return False
    return widens(given, wanted)
