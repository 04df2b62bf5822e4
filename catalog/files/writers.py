"""Writing one file of each format, batch by batch, into an open binary file."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC
from typing import IO, Any, Protocol, cast

import pyarrow as pa

from cql.base.model import Schema
from cql.base.types import BINARY, INTERVAL, DataType, Kind
from cql.errors import CatalogError, did_you_mean


class Writer(Protocol):
    def write(self, batch: pa.RecordBatch) -> None: ...
    def close(self) -> None:
        """Completes the file's content; the file itself stays open."""
        ...

    def discard(self) -> None:
        """Releases the file without completing it."""
        ...


class _ArrowWriter:
    """Arrow's own writers, which have one interface."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()

    def discard(self) -> None:
        # Not closed: close would write to a file that may just have refused a write. Parquet's
        # writer closes itself when it is collected, unless it believes that it is closed.
        if hasattr(self._writer, "is_open"):
            self._writer.is_open = False


def _parquet(file: IO[bytes], schema: pa.Schema, style: Mapping[str, Any]) -> Writer:
    import pyarrow.parquet as pq

    return _ArrowWriter(pq.ParquetWriter(file, schema))


def _arrow(file: IO[bytes], schema: pa.Schema, style: Mapping[str, Any]) -> Writer:
    return _ArrowWriter(pa.ipc.new_file(cast(Any, file), schema))


def _csv(file: IO[bytes], schema: pa.Schema, style: Mapping[str, Any]) -> Writer:
    import pyarrow.csv as pc

    options = pc.WriteOptions(
        include_header=style.get("header", True), delimiter=style.get("sep", ",")
    )
    return _ArrowWriter(pc.CSVWriter(file, schema, write_options=options))


class _JsonWriter:
    def __init__(self, file: IO[bytes], schema: pa.Schema, style: Mapping[str, Any]) -> None:
        del schema, style
        self._file = file

    def write(self, batch: pa.RecordBatch) -> None:
        lines = []
        for row in _rows(batch):
            try:
                lines.append(json.dumps(row, default=_plain, allow_nan=False))
            except ValueError as error:
                bad = ((k, x) for k, v in row.items() if (x := _not_finite(v)) is not None)
                name, value = next(bad)
                raise CatalogError(
                    f"column {name}: JSON cannot hold {value}",
                    hint="write Parquet, or replace NaN and infinity by NULL",
                ) from error
        self._file.write("".join(line + "\n" for line in lines).encode())

    def close(self) -> None: ...
    def discard(self) -> None: ...


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
    except (ValueError, OverflowError) as error:
        raise CatalogError(
            f"a time cannot be written as text: {error}",
            hint="JSON takes the years 1 to 9999; write Parquet",
        ) from error
    return rows


def _not_finite(value: Any) -> float | None:
    """A NaN or an infinity in a value; None if there is none."""
    if isinstance(value, float):
        return None if math.isfinite(value) else value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((x for part in parts if (x := _not_finite(part)) is not None), None)


def _plain(value: Any) -> str:
    """Times in ISO (UTC as Z), decimals as text, which keeps their digits."""
    if getattr(value, "tzinfo", None) is not None:
        return str(value.astimezone(UTC).isoformat().replace("+00:00", "Z"))
    return str(value.isoformat() if hasattr(value, "isoformat") else value)


FORMATS: dict[str, Callable[[IO[bytes], pa.Schema, Mapping[str, Any]], Writer]] = {
    "parquet": _parquet,
    "arrow": _arrow,
    "csv": _csv,
    "json": _JsonWriter,
}


def check_writable(format: str, schema: Schema, what: str) -> None:
    """Raises CatalogError for columns that a file of that format could not give back."""
    if format not in FORMATS:
        raise CatalogError(
            f"{what}: cannot write format {format}",
            hint=did_you_mean(format, FORMATS, what="formats are"),
        )
    for field in schema:
        unheld = f"{what}: {format} files cannot hold column {field.name} {field.type}"
        if field.type.is_nested and format == "csv":
            raise CatalogError(
                unheld,
                hint="write JSON lines or Parquet, or CAST the column AS STRING",
            )
        for kind in _kinds(field.type):
            _check_kind(format, kind, unheld)


def _check_kind(format: str, kind: DataType, unheld: str) -> None:
    text = format in ("csv", "json") and kind in (BINARY, INTERVAL)
    if text or (format != "arrow" and kind.kind is Kind.NULL):
        raise CatalogError(
            unheld,
            hint="cast the column in the query, or make the table a folder of Arrow files",
        )
    if format == "parquet" and kind == INTERVAL:
        raise CatalogError(
            unheld,
            hint="cast it to BIGINT microseconds",
        )


def _kinds(kind: DataType) -> Iterator[DataType]:
    """The type, and the types of its parts at any depth."""
    yield kind
    parts = [of for _, of in kind.fields]
    for of in parts if kind.element is None else [kind.element]:
        yield from _kinds(of)
