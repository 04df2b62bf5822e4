"""The row groups of a Parquet table with the bounds of a time column, and its statistics, from the
footers of its files; and a table's files as JSON data, for tasks that read a part of them."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cql.catalog.files.parquet_footer import RowGroup, row_groups
from cql.catalog.files.reading import guarded
from cql.catalog.spark.tables.columns import find_column
from cql.catalog.spark.tables.files import DataFile, Files, PartitionValue
from cql.catalog.spark.tables.read import is_legacy
from cql.planner.nodes.catalog import Statistics

#: Most files of a table whose footers are read for statistics.
_FOOTERS = 64


@dataclass(frozen=True, slots=True)
class Group:
    """A row group: the index of its file in the table, its own index in the file, the row number in
    the table of its first row, and its number of rows.

    ``low`` and ``high`` are the bounds of the time column, in units of the engine (timestamps in
    microseconds), None if all times are NULL. ``known`` is False if the file does not state
    them."""

    file: int
    index: int
    first: int
    rows: int
    low: int | None = None
    high: int | None = None
    known: bool = False


def groups_of(files: Files, time: str | None, known: int = 0, first: int = 0) -> list[Group]:
    """The row groups of a Parquet table in reading order, with the bounds of column ``time``; those
    behind the ``known`` first files, which have ``first`` rows."""
    found: list[Group] = []
    for index, file in enumerate(files.files[known:], known):
        with guarded(file.path):
            held = row_groups(file.path, columns=time is not None)
            column = None if time is None else _time_column(files, file, time)
        for number, group in enumerate(held):
            made = Group(index, number, first, group.rows)
            found.append(made if column is None else _bounded(made, group, *column))
            first += group.rows
    return found


def _bounded(made: Group, group: RowGroup, name: str, times: int, over: int) -> Group:
    bounds = group.bounds.get(name)
    if bounds is None:
        return replace(made, known=group.nulls.get(name) == group.rows)
    low, high = (bound * times // over for bound in bounds)
    return replace(made, low=low, high=high, known=True)


def _time_column(files: Files, file: DataFile, time: str) -> tuple[str, int, int] | None:
    """The file's name of column ``time``, and the ratio of its unit to the engine's; None if its
    statistics do not say what a query reads."""
    with pq.ParquetFile(file.path) as opened:
        schema, legacy = opened.schema_arrow, is_legacy(opened)
    name = find_column(time, schema.names, files.case_sensitive)
    if name is None or legacy or time in files.partition_columns:
        return None
    kind = schema.field(name).type
    if pa.types.is_timestamp(kind):
        return name, *_UNITS[kind.unit]
    if pa.types.is_signed_integer(kind) or pa.types.is_date32(kind):
        return name, 1, 1
    return None


_UNITS = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}


def statistics_of(files: Files | None) -> Statistics:
    """The number of rows and of NULLs of a Parquet table of a few files; unknown otherwise."""
    if files is None or files.format != "parquet" or len(files.files) > _FOOTERS:
        return Statistics()
    rows = 0
    nulls: dict[str, int] = {}
    for file in files.files:
        try:
            groups = row_groups(file.path, columns=True)
        except (OSError, ValueError):
            return Statistics()  # reading the rows will report the fault of the file
        for group in groups:
            rows += group.rows
            for name, more in group.nulls.items():
                if more:
                    nulls[name] = nulls.get(name, 0) + more
    return Statistics(rows=rows, nulls=nulls)


def files_to_json(files: Files) -> dict[str, Any]:
    return {
        "table": files.table,
        "format": files.format,
        "schema": base64.b64encode(files.schema.serialize()).decode(),
        "partition_columns": files.partition_columns,
        "files": [
            {**asdict(f), "partition": list(map(_value_to_json, f.partition))} for f in files.files
        ],
        "case_sensitive": files.case_sensitive,
        "direct": files.direct,
    }


def files_from_json(data: Mapping[str, Any]) -> Files:
    return Files(
        data["table"],
        data["format"],
        pa.ipc.read_schema(pa.py_buffer(base64.b64decode(data["schema"]))),
        tuple(data["partition_columns"]),
        tuple(_files_from_json(data["files"])),
        data["case_sensitive"],
        data["direct"],
    )


def _files_from_json(data: list[dict[str, Any]]) -> Iterator[DataFile]:
    for given in data:
        partition = tuple(map(_value_from_json, given["partition"]))
        yield DataFile(**{**given, "partition": partition})


def _value_to_json(value: PartitionValue) -> Any:
    """Decimals, bytes and fractions, which JSON does not have as such, become a pair with their
    kind."""
    match value:
        case Decimal():
            return ["decimal", str(value)]
        case bytes():
            return ["bytes", base64.b64encode(value).decode()]
        case float():
            return ["float", value.hex()]
    return value


def _value_from_json(data: Any) -> PartitionValue:
    match data:
        case ["decimal", str(text)]:
            return Decimal(text)
        case ["bytes", str(text)]:
            return base64.b64decode(text)
        case ["float", str(text)]:
            return float.fromhex(text)
    value: PartitionValue = data
    return value
