"""The rows of whole tables, for a task that computes a whole plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cql.base.model import Schema
from cql.catalog.convert import pick
from cql.catalog.prefetch import Prefetch
from cql.catalog.spark.tables.files import Files
from cql.catalog.spark.tables.read import SliceReader, read_batches
from cql.executor.protocols import Offset, Reader
from cql.spark.task.rows import TaskRows


@dataclass(frozen=True, slots=True)
class FilesSource(TaskRows):
    """The rows of files that Arrow reads (``Files.direct``)."""

    schema: Schema
    files: Files

    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader:
        table, start = self.files.table, int(offset["row"]) if offset else 0
        slices = read_batches(self.files, columns, offset=start)
        wanted = Schema(pick(self.schema, columns, f"table {table}"))
        return SliceReader(Prefetch(slices, f"cql reading {table}"), wanted, f"table {table}")
