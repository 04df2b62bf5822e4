"""Rows by partition, and the folder that Spark gives each partition."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cql.catalog.spark.tables.files import NO_VALUE, PartitionValue, escaped
from cql.errors import CatalogError


def split(
    batch: pa.RecordBatch, columns: Sequence[str]
) -> Iterator[tuple[tuple[PartitionValue, ...], pa.RecordBatch]]:
    """The rows of each partition, in their order and without the partition columns."""
    if not batch.num_rows:
        return
    codes = np.zeros(batch.num_rows, dtype=np.int64)
    dictionaries: list[list[PartitionValue]] = []
    for column in columns:
        array: Any = _stored(batch.column(column))
        encoded = array.dictionary_encode(null_encoding="encode")
        dictionaries.append([_value(value) for value in encoded.dictionary.to_pylist()])
        indices = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        codes = codes * max(1, len(dictionaries[-1])) + indices
    rest = batch.drop_columns(list(columns))
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    bounds = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist(), len(ordered)]
    for start, end in itertools.pairwise(bounds):
        code = int(ordered[start])
        values: list[PartitionValue] = []
        for dictionary in reversed(dictionaries):
            code, at = divmod(code, len(dictionary))
            values.append(dictionary[at])
        rows = rest if len(bounds) == 2 else rest.take(order[start:end])
        yield tuple(reversed(values)), rows


def specification(
    columns: Sequence[str], values: Sequence[PartitionValue], schema: pa.Schema
) -> dict[str, str | None]:
    """The values as the texts of a partition specification; NULL is None."""
    return {
        column: _text(value, schema.field(column))
        for column, value in zip(columns, values, strict=True)
    }


def folder_name(spec: Mapping[str, str | None]) -> Path:
    """The partition's folder below the table's folder: ``a=1/b=x%3Ay``."""
    return Path(
        *(
            f"{escaped(column)}={NO_VALUE if text is None else escaped(text)}"
            for column, text in spec.items()
        )
    )


def check_columns(schema: pa.Schema, columns: Sequence[str], table: str) -> None:
    """Refuses partition columns whose folder names depend on how Java prints a number."""
    for column in columns:
        kind = schema.field(column).type
        if pa.types.is_floating(kind) or pa.types.is_binary(kind) or pa.types.is_nested(kind):
            raise CatalogError(
                f"table {table}: its partition column {column} is {kind}, and rows cannot be "
                "streamed into such partitions",
                hint="partition by a string, number, date, timestamp or boolean",
            )


def _stored(array: Any) -> Any:
    if pa.types.is_date32(array.type):
        return array.view(pa.int32())
    if pa.types.is_timestamp(array.type):
        return array.view(pa.int64())
    return array


def _value(value: PartitionValue) -> PartitionValue:
    # Spark writes an empty string into the folder of NULL, and reads NULL from there.
    return None if value == "" else value


def _text(value: PartitionValue, field: pa.Field[Any]) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f")
    if pa.types.is_date32(field.type):
        return str(np.int64(value).astype("datetime64[D]"))
    if pa.types.is_timestamp(field.type):
        text = str(np.int64(value).astype("datetime64[us]")).replace("T", " ")
        return text.rstrip("0").rstrip(".") if "." in text else text
    return str(value)
