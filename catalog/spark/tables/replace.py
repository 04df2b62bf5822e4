"""Epochs that replace rows: a table some of whose files the next epoch removes.

Each epoch is one folder of files, or files in the folders of partitions. The files behind ``cut``
hold rows that a later epoch replaces. One record commits the new files, the removal of the old
ones, and notes about both. To readers the new files come first: between the two they may see rows
of both.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from cql.catalog.spark.tables import partition
from cql.catalog.spark.tables import table as spark_table
from cql.catalog.spark.tables.columns import repeated
from cql.catalog.spark.tables.files import PartitionValue
from cql.catalog.spark.tables.staging import explained, gone, last_epoch, sync_folder
from cql.catalog.spark.tables.write import EpochWriter, target_of
from cql.errors import CatalogError


@dataclass(frozen=True, slots=True)
class Replaced:
    """A published epoch: its number, the rows in front of ``cut`` and behind it, and the number of
    files that it removed."""

    epoch: int
    kept_rows: int
    open_rows: int
    removed: int


class ReplacingWriter(EpochWriter):
    """Writes epochs of a table that the engine made. Opening it publishes an epoch that a crash has
    left half published."""

    def __init__(self, session: SparkSession, table: Sequence[str], schema: pa.Schema) -> None:
        super().__init__(session, table, schema)
        self._kept: tuple[int, int] | None = None
        self._values: dict[Path, tuple[PartitionValue, ...]] = {}
        self.number = self._staging.last.number
        self.notes: Mapping[str, Any] | None = self._staging.last.notes

    @property
    def files(self) -> list[str]:
        """The files that readers see, by their paths in the table's folder."""
        folder = self._target.folder
        found = (path.relative_to(folder) for path in folder.rglob("*.parquet"))
        return sorted(
            str(path) for path in found if not any(p.startswith(("_", ".")) for p in path.parts)
        )

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return self._target.partition_columns

    def files_with(self, tables: Sequence[pa.Table] | None) -> list[str]:
        """The files of the partitions that rows of ``tables`` lie in; of all partitions without
        ``tables``. Raises CatalogError for a partition outside of the table's folder."""
        target = self._target
        if not target.partition_columns:
            return self.files
        if tables is None:  # other writers may have added partitions since this one opened
            self._target = target = target_of(self._session, self._name, self._table)
            folders = dict.fromkeys(target.partitions)
        else:
            folders = self._partitions_of(tables)
        found: list[Path] = []
        for values in folders:
            folder = self._folder_of(values)
            if not folder.is_relative_to(target.folder):
                raise CatalogError(
                    f"table {self._table} has a PRIMARY KEY, and its partition {folder} lies"
                    f" outside of its folder {target.folder}",
                    hint="drop the partition in Spark (ALTER TABLE … DROP PARTITION), and INSERT"
                    " its rows",
                )
            self._values[folder] = values
            found += [path for path in folder.glob("*.parquet") if path.name[0] not in "_."]
        return sorted(str(path.relative_to(target.folder)) for path in found)

    def _partitions_of(self, tables: Sequence[pa.Table]) -> dict[tuple[PartitionValue, ...], None]:
        columns = self._target.partition_columns
        found: dict[tuple[PartitionValue, ...], None] = {}
        for table in tables:
            for batch in table.select(list(columns)).combine_chunks().to_batches():
                counted = batch.append_column("", pa.nulls(batch.num_rows))
                found |= dict.fromkeys(values for values, _ in partition.split(counted, columns))
        return found

    def _folder_of(self, values: tuple[PartitionValue, ...]) -> Path:
        target = self._target
        spec = partition.specification(target.partition_columns, values, target.schema)
        return target.partitions.get(values) or target.folder / partition.folder_name(spec)

    def rows_of(self, files: Sequence[str], schema: pa.Schema) -> pa.Table:
        """The rows of these files as columns of ``schema``; NULL in columns that a file lacks."""
        tables = [schema.empty_table()]
        for file in files:
            path = self._target.folder / file
            found = pq.ParquetFile(path).read()
            values = self._values.get(path.parent, ())
            known = dict(zip(self._target.partition_columns, values, strict=bool(values)))
            columns = [
                found.column(f.name).cast(f.type)
                if f.name in found.column_names
                else repeated(known.get(f.name), f.type, found.num_rows)
                for f in schema
            ]
            tables.append(pa.table(columns, schema=schema))
        return pa.concat_tables(tables)

    def cut(self) -> None:
        """The rows that follow go into files of their own."""
        self._finish_all()
        self._kept = len(self._done), self._rows

    def replace(self, removed: Sequence[str], notes: Mapping[str, Any]) -> Replaced | None:
        """Publishes the rows as the epoch behind the one that the writer found, and removes files.
        ``notes`` get the files behind ``cut`` as ``open``. Returns None, and publishes nothing, if
        another writer has published that epoch meanwhile."""
        try:
            self._finish_all()
            self._check_there()
            files, kept_rows = self._kept or (len(self._done), self._rows)
            folder = self._target.folder
            moves, partitions = self._moved()
            for staged in {source if source.is_dir() else source.parent for source, _ in moves}:
                with explained(self._table, staged):
                    sync_folder(staged)
            opened = [f"{moves[0][1].name}/{path.name}" for _, path in self._done[files:]]
            committed, new = self._staging.commit(
                self.number + 1,
                moves,
                partitions,
                [folder / file for file in removed],
                {**notes, "open": opened},
            )
            if not new:
                return None
            made = Replaced(committed.number, kept_rows, self._rows - kept_rows, len(removed))
            try:
                self._enter_partitions(partitions)
                self._refresh()
            except CatalogError as error:
                if not spark_table.exists(self._session, self._name):
                    self._staging.withdraw(committed)
                    raise gone(self._table, folder) from error
                raise
            return made
        finally:
            self._kept = None
            self.abort()

    def _moved(self) -> tuple[list[tuple[Path, Path]], list[Mapping[str, str | None]]]:
        """The renames of the epoch, and the partitions that may be new with it."""
        columns = self._target.partition_columns
        if columns:
            moves, folders = self._moves(self.number + 1)
            schema = self._target.schema
            return moves, [partition.specification(columns, v, schema) for v in folders]
        name = f"epoch-{self.number + 1:010d}-{uuid.uuid4().hex[:12]}"
        if not self._done:
            return [], []
        return [(self._done[0][1].parent, self._target.folder / name)], []

    def keep(self, notes: Mapping[str, Any]) -> bool:
        """Publishes an epoch of other notes and the same rows; False if another writer has
        published that epoch meanwhile."""
        self._check_there()
        _, new = self._staging.commit(self.number + 1, (), (), (), notes)
        return new

    def _finish_all(self) -> None:
        with explained(self._table, self._target.folder):
            for values in list(self._open):
                self._finish(values)


def notes_of(session: SparkSession, table: Sequence[str]) -> tuple[Mapping[str, Any] | None, bool]:
    """The notes of a table's last epoch (None without any), and whether all of it is published."""
    location = spark_table.load(session, table).location
    folder = None if location is None else spark_table.local_path(location)
    if folder is None or not folder.is_dir():
        return None, True
    last = last_epoch(folder, ".".join(table))
    waits = any((folder / source).exists() for source, _ in last.moves)
    stays = any((folder / removed).exists() for removed in last.removals)
    return last.notes, not (waits or stays)
