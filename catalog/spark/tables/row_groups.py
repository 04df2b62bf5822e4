"""The row groups of a Parquet table with the bounds of a time column, and its statistics, from the
footers of its files; and a table's files as JSON data, for tasks that read a part of them."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
            column = None if time is None else _times(files, file, [time]).get(time)
        for number, group in enumerate(held):
            made = Group(index, number, first, group.rows)
            found.append(made if column is None else _bounded(made, group, *column))
            first += group.rows
    return found


def _bounded(made: Group, group: RowGroup, name: str, times: int, over: int) -> Group:
    bounds = group.bounds.get(name)
    if bounds is None:
        return replace(made, known=group.nulls.get(name) == group.rows)
    low, high = _converted(bounds, times, over)
    return replace(made, low=low, high=high, known=True)


def _converted(bounds: tuple[int, int], times: int, over: int) -> tuple[int, int]:
    return bounds[0] * times // over, bounds[1] * times // over


def _times(files: Files, file: DataFile, columns: Iterable[str]) -> dict[str, tuple[str, int, int]]:
    """Of those of the ``columns`` that may be times, the file's name of the column, and the ratio
    of its unit to the engine's; without those whose statistics do not say what a query reads."""
    with pq.ParquetFile(file.path) as opened:
        schema, legacy = opened.schema_arrow, is_legacy(opened)
    found: dict[str, tuple[str, int, int]] = {}
    for column in columns:
        name = find_column(column, schema.names, files.case_sensitive)
        if name is None or legacy or column in files.partition_columns:
            continue
        kind = schema.field(name).type
        if pa.types.is_timestamp(kind):
            found[column] = name, *_UNITS[kind.unit]
        elif pa.types.is_signed_integer(kind) or pa.types.is_date32(kind):
            found[column] = name, 1, 1
    return found


_UNITS = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}


def statistics_of(files: Files | None) -> Statistics:
    """Statistics of a Parquet table, of many files by the footers of some; unknown otherwise."""
    if files is None or files.format != "parquet":
        return Statistics()
    rows, size = 0, 0
    nulls: dict[str, int] = {}
    extents = _Extents()
    sample = _sample(files.files)
    for file in sample:
        try:
            groups = row_groups(file.path, columns=True)
            times = _times(files, file, files.schema.names)
        except (OSError, ValueError):
            return Statistics()  # reading the rows will report the fault of the file
        size += file.size
        for group in groups:
            rows += group.rows
            for name, more in group.nulls.items():
                if more:
                    nulls[name] = nulls.get(name, 0) + more
            extents.add(group, times)
    if len(sample) == len(files.files):
        return Statistics(rows=rows, nulls=nulls, extents=extents.found())
    about = round(rows * files.size / max(size, 1))
    return Statistics(nulls=nulls, estimated_rows=about, extents=extents.found())


class _Extents:
    """Finds ``Statistics.extents``; leaves out columns whose bounds some row group lacks."""

    def __init__(self) -> None:
        self._bounds: dict[str, list[tuple[int, int]]] = {}
        self._known: Counter[str] = Counter()
        self._groups = 0

    def add(self, group: RowGroup, times: Mapping[str, tuple[str, int, int]]) -> None:
        """Adds a row group; ``times`` are the columns of its file as in ``_times``."""
        self._groups += 1
        for column, (name, *ratio) in times.items():
            bounds = group.bounds.get(name)
            self._known[column] += bounds is not None or group.nulls.get(name) == group.rows
            if bounds is not None:
                self._bounds.setdefault(column, []).append(_converted(bounds, *ratio))

    def found(self) -> dict[str, tuple[int, int]]:
        return {
            column: (
                max(high for _, high in known) - min(low for low, _ in known),
                sum(high - low for low, high in known) // len(known),
            )
            for column, known in self._bounds.items()
            if self._known[column] == self._groups
        }


def _sample(files: Sequence[DataFile]) -> list[DataFile]:
    """At most ``_FOOTERS`` of the files, spread over their list, with the first and the last."""
    if len(files) <= _FOOTERS:
        return list(files)
    return [files[k * (len(files) - 1) // (_FOOTERS - 1)] for k in range(_FOOTERS)]


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
